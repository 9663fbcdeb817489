// Sorting by a bitonic network and merges (Alyafi & Khalid, section 4.1). A block of threads sorts each
// sub-array in shared memory. Then runs are merged in pairs; every thread finds by binary search the
// part that it merges (merge path; Odeh et al. 2012), where otherwise one thread would merge all.

extern __shared__ __align__(16) unsigned char scratch[];

// Each block sorts `size` elements, a power of two. Places behind the end count as larger than all
// others.
extern "C" __global__ void __launch_bounds__(BITONIC_THREADS) bitonic_runs(
    const Value* elements, i64 n, int size, Value* out
) {
    Value* run = (Value*)scratch;
    i64 start = (i64)blockIdx.x * size;
    int n_own = (int)min((i64)size, n - start);
    for (int i = threadIdx.x; i < n_own; i += BITONIC_THREADS) run[i] = elements[start + i];
    __syncthreads();
    sort_shared(run, n_own, [](Value a, Value b) { return is_less_than(a, b); });
    for (int i = threadIdx.x; i < n_own; i += BITONIC_THREADS) out[start + i] = run[i];
}

// Count the elements of the first run among the first `diagonal` of two merged runs; among equal
// elements those of the first run come first.
__device__ __forceinline__ i64 split_of(
    const Value* first, i64 n_first, const Value* second, i64 n_second, i64 diagonal
) {
    return first_not(max((i64)0, diagonal - n_second), min(diagonal, n_first), [&](i64 place) {
        return !is_less_than(second[diagonal - 1 - place], first[place]);
    });
}

// Merge runs of `size` sorted elements in pairs. Every block writes `tile` elements of one pair, at
// most `MERGE_EACH` for each thread.
extern "C" __global__ void __launch_bounds__(BITONIC_THREADS) merge_runs(
    const Value* elements, i64 n, i64 size, int tile, Value* out
) {
    Value* staged = (Value*)scratch;
    __shared__ i64 splits[2];
    i64 start = (i64)blockIdx.x * tile, stop = min(start + tile, n);
    i64 pair = start / (2 * size) * (2 * size);
    const Value* first = elements + pair;
    i64 n_first = min(size, n - pair), n_second = min(size, n - pair - n_first);
    const Value* second = first + n_first;
    if (threadIdx.x < 2) {
        i64 diagonal = (threadIdx.x ? stop : start) - pair;
        splits[threadIdx.x] = split_of(first, n_first, second, n_second, diagonal);
    }
    __syncthreads();
    i64 begun = splits[0], begun_second = start - pair - begun;
    int own_first = (int)(splits[1] - begun), own = (int)(stop - start), own_second = own - own_first;
    for (int i = threadIdx.x; i < own; i += BITONIC_THREADS) {
        staged[i] = i < own_first ? first[begun + i] : second[begun_second + i - own_first];
    }
    __syncthreads();
    int diagonal = min((int)threadIdx.x * MERGE_EACH, own);
    int i = (int)split_of(staged, own_first, staged + own_first, own_second, diagonal);
    int j = diagonal - i;
    Value merged[MERGE_EACH];
#pragma unroll
    for (int e = 0; e < MERGE_EACH; ++e) {
        bool is_second = i >= own_first
            || (j < own_second && is_less_than(staged[own_first + j], staged[i]));
        if (diagonal + e < own) merged[e] = is_second ? staged[own_first + j++] : staged[i++];
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < MERGE_EACH; ++e) {
        if (diagonal + e < own) staged[diagonal + e] = merged[e];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < own; i += BITONIC_THREADS) out[start + i] = staged[i];
}
