// The fingerprint of a chunk: words are hashed and added up, so that the order of the threads does not
// matter.

// Each word is hashed together with its place, so that their order matters. Bytes behind the last word
// are returned separately.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) mark_words(
    const u64* words, i64 n, i64 n_bytes, u64* sums
) {
    u64 sum = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const unsigned char* rest = (const unsigned char*)(words + n);
        u64 word = 0;
        for (i64 i = n_bytes - 8 * n; i-- > 0;) word = word << 8 | rest[i];
        sums[1] = word;
    }
    for (i64 i = own_thread(); i < n; i += all_threads()) 
        sum += mixed_word(words[i] ^ mixed_word((u64)i + 1));
    add_over_warp(sums, sum);
}

// Each element is hashed together with the hash of the elements of other arrays at its place, if there
// are any; its place does not matter. The hashes are replaced, or added up if `sums` is not null.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) mark_elements(
    const Word* chunk, i64 n, const i64* layout, u64* hashes, u64* sums
) {
    u64 sum = 0;
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        u64 hash = mixed_word((hashes ? hashes[i] : 0) ^ (u64)element(chunk, layout, i));
        if (sums) sum += hash;
        else hashes[i] = hash;
    }
    if (sums) add_over_warp(sums, sum);
}
