// The fingerprint of a chunk's words: each is mixed with its place, and all are added up, so that
// their order counts and that of the threads does not. Bytes behind the last word are handed on.

// The last step of Steele, Lea and Flood's SplitMix64.
__device__ u64 mixed(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

extern "C" __global__ void __launch_bounds__(MARK_THREADS) mark_words(
    const u64* words, i64 n, i64 n_bytes, u64* found
) {
    u64 sum = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const unsigned char* rest = (const unsigned char*)(words + n);
        u64 word = 0;
        for (i64 i = n_bytes - 8 * n; i-- > 0;) word = word << 8 | rest[i];
        found[1] = word;
    }
    i64 step = (i64)gridDim.x * MARK_THREADS;
    for (i64 i = (i64)blockIdx.x * MARK_THREADS + threadIdx.x; i < n; i += step)
        sum += mixed(words[i] ^ mixed((u64)i + 1));
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(found, sum);
}
