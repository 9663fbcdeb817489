// A sample, and the brackets that it lets expect.

// The elements at `size` places. Those that a mask keeps are drawn as far as there is room, in any
// order: what finds none is of blocks that lie anywhere, so the sample is fair.
extern "C" __global__ void sample(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, i64 size, i64 room, Value* drawn,
    u64* has_missing, u64* n_drawn
) {
#if KEEPS
    i64 block = (i64)((u64)blockIdx.x * 2654435761u % gridDim.x);
    i64 i = block * blockDim.x + threadIdx.x;
    i64 place = i < size ? sampled_place(i, size, n) : 0;
    bool takes = i < size && keeps[place];
    __shared__ u32 n_here;
    __shared__ u64 first;
    if (threadIdx.x == 0) n_here = 0;
    __syncthreads();
    u64 at = takes ? atomicAdd(&n_here, 1u) : 0;
    __syncthreads();
    if (threadIdx.x == 0) first = atomicAdd(n_drawn, (u64)n_here);
    __syncthreads();
    at += first;
    if (!takes || at >= room) return;
#else
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, at = i;
    if (i >= size) return;
    i64 place = sampled_place(i, size, n);
#endif
    Value value = value_of(element(chunk, layout, place));
    drawn[at] = value;
    if (is_missing(value)) *has_missing = 1;
}

struct CountKept {
    u64 number;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        u32 some = 0;
#pragma unroll
        for (int e = 0; e < N; ++e) some += present[e] && words[e] != 0;
        number += some;
    }

    __device__ __forceinline__ void pause() {}
};

// How many elements of a contiguous mask are not zero.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) kept_number(
    const Word* mask, i64 n, u64* total
) {
    CountKept mine = {0};
    visit_all<SELECT_THREADS, 4 * VECTOR>(mask, n, nullptr, nullptr, mine);
    for (int offset = 16; offset; offset >>= 1) {
        mine.number += __shfl_xor_sync(ALL_LANES, mine.number, offset);
    }
    if (threadIdx.x % 32 == 0 && mine.number) atomicAdd(total, mine.number);
}

// The ends of brackets from their keys, so that the tally follows without the host. `spans` is where the
// first of them belongs. One warp.
extern "C" __global__ void guess(const u64* keys, int n_ends, Value* spans) {
    int e = threadIdx.x;
    if (e < n_ends) spans[e] = value_of(word_of((Key)keys[e]));
}
