// Counts of every word of one or two bytes. Bytes take one read.
//
// Defined before this text: WINDOW, the number of words that are counted in one read. For two bytes,
// the table of all words is larger than shared memory, so that words are counted window by window.

#if BITS <= 16

constexpr bool IS_BYTE = BITS == 8;
constexpr int COPIES = IS_BYTE ? 32 : 1;  // copies of the table, one for each lane of a warp
constexpr int PITCH = IS_BYTE ? 257 : WINDOW;  // so that equal words are in different banks

extern "C" __global__ void __launch_bounds__(TABULATE_THREADS) tabulate_words(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u32 first, u64* counts
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* tables = (u32*)scratch;
    for (int i = threadIdx.x; i < COPIES * PITCH; i += TABULATE_THREADS) tables[i] = 0;
    __syncthreads();
    u32* table = tables + (IS_BYTE ? threadIdx.x % 32 * PITCH : 0);
    take_all<TABULATE_THREADS, 16>(chunk, n, layout, keeps, [&](Word word, bool is_present) {
        u32 place = IS_BYTE ? u32(word) : u32(word) - first;
        if (is_present && (IS_BYTE || place < WINDOW)) atomicAdd(table + place, 1u);
    });
    __syncthreads();
    for (int i = threadIdx.x; i < WINDOW; i += TABULATE_THREADS) {
        u64 sum = 0;
        for (int copy = 0; copy < COPIES; ++copy) sum += tables[copy * PITCH + i];
        if (sum) atomicAdd(counts + first + i, sum);
    }
}

#endif
