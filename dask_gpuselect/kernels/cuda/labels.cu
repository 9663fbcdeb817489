// Numbers of the groups of labels, which are integers.

constexpr int LABELS_EACH = 4;  // labels that a thread loads, and codes that it stores, at once

struct alignas(LABELS_EACH * sizeof(Word) < 16 ? LABELS_EACH * sizeof(Word) : 16) LabelVector {
    Word labels[LABELS_EACH];
};

struct alignas(16) CodeVector {
    int codes[LABELS_EACH];
};

// Find the code of each label, which `table` has from the label `least` on; -1 for all others. Without a
// table, codes are the distances from `least`. Labels that are not contiguous have a layout.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) label_codes(
    const Word* labels, i64 n, const i64* layout, const int* table, i64 least, i64 size, int* codes
) {
    auto code_of = [&](Word word) {
        Value label = value_of(word);
        // What is above all of int64 is in no table.
        bool is_some = label < 0 || (u64)label <= 0x7fffffffffffffffull;
        u64 place = (u64)(i64)label - (u64)least;
        if (!is_some || place >= (u64)size) return -1;
        return table ? __ldg(table + place) : (int)place;
    };
    bool is_aligned = !layout && (u64)labels % sizeof(LabelVector) == 0;
    i64 n_vectors = is_aligned ? n / LABELS_EACH : 0;
    for (i64 i = own_thread(); i < n_vectors; i += all_threads()) {
        LabelVector loaded = ((const LabelVector*)labels)[i];
        CodeVector found;
#pragma unroll
        for (int k = 0; k < LABELS_EACH; ++k) found.codes[k] = code_of(loaded.labels[k]);
        ((CodeVector*)codes)[i] = found;
    }
    for (i64 i = n_vectors * LABELS_EACH + own_thread(); i < n; i += all_threads()) {
        codes[i] = code_of(element(labels, layout, i));
    }
}
