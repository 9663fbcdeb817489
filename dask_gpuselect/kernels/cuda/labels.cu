// Numbers of the groups of labels, which are integers.

#include "codes.cuh"

// Labels that a thread loads, and codes that it stores, at once: at least 16 bytes of labels.
constexpr int LABELS_EACH = sizeof(Word) < 4 ? 16 / sizeof(Word) : 4;

// Find the code of each label, which `table` has from the label `least` on; -1 for all others, and for
// labels that are not in the mask `keeps`, if there is one. Without a table, codes are the distances from
// `least`. Labels that are not contiguous have a layout.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) label_codes(
    const Word* labels, i64 n, const i64* layout, const Keep* keeps, const int* table, i64 least, i64 size,
    Code* codes
) {
    auto code_of = [&](Word word, Keep is_kept) {
        Value label = value_of(word);
        // What is above all of int64 is in no table.
        bool is_some = is_kept && (label < 0 || (u64)label <= 0x7fffffffffffffffull);
        u64 place = (u64)(i64)label - (u64)least;
        if (!is_some || place >= (u64)size) return Code(-1);
        return (Code)(table ? __ldg(table + place) : (int)place);
    };
    typedef Together<Word, LABELS_EACH> Labels;
    typedef Together<Code, LABELS_EACH> Codes;
    typedef Together<Keep, LABELS_EACH> Mask;
    bool is_aligned = !layout && (u64)labels % sizeof(Labels) == 0 && (u64)keeps % sizeof(Mask) == 0;
    i64 n_vectors = is_aligned && (u64)codes % sizeof(Codes) == 0 ? n / LABELS_EACH : 0;
    for (i64 i = own_thread(); i < n_vectors; i += all_threads()) {
        Labels loaded = ((const Labels*)labels)[i];
        Codes found;
        Mask mask;
        if (keeps) mask = ((const Mask*)keeps)[i];
#pragma unroll
        for (int k = 0; k < LABELS_EACH; ++k) {
            found.items[k] = code_of(loaded.items[k], keeps ? mask.items[k] : Keep(1));
        }
        ((Codes*)codes)[i] = found;
    }
    for (i64 i = n_vectors * LABELS_EACH + own_thread(); i < n; i += all_threads()) {
        codes[i] = code_of(element(labels, layout, i), keeps ? keeps[i] : Keep(1));
    }
}
