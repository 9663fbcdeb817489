// A copy of a chunk in which NaN stands for the elements that a mask leaves out.

// The first `n_vectors` vectors of 16 bytes by one load each. `has_missing` becomes 1 if an element
// that the mask keeps is NaN.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) blank_masked(
    const Word* chunk, const Keep* keeps, i64 n, i64 n_vectors, Word* out, u32* has_missing
) {
    bool has_any = false;
    for (i64 v = own_thread(); v < n_vectors; v += all_threads()) {
        Loaded<VECTOR> loaded;
        Present<VECTOR> present(true);
        loaded.vectors[0] = __ldcs((const uint4*)chunk + v);
        present.vectors[0] = __ldcs((const Keeps*)keeps + v);
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            if (!present[e]) loaded.words[e] = NOT_A_NUMBER;
            else has_any |= is_missing(value_of(loaded.words[e]));
        }
        ((uint4*)out)[v] = loaded.vectors[0];
    }
    for (i64 i = n_vectors * VECTOR + own_thread(); i < n; i += all_threads()) {
        Word word = keeps[i] ? chunk[i] : NOT_A_NUMBER;
        has_any |= keeps[i] && is_missing(value_of(word));
        out[i] = word;
    }
    if (has_any) *has_missing = 1;
}
