// Elements that weigh: counts and sums of weights between the ends of brackets, and what is there.
//
// A weight is an integer times a power of two. What is added up is some of its binary digits, as an
// integer, so no sum depends on any order; more digits than 64 bits can sum take another read.

// Defined before this text: WHOLE (1 if weights are integers, 0 if they are float64).
#if WHOLE
typedef i64 Weight;
#else
typedef double Weight;
#endif

// A positive weight in units of 2^unit, rounded down, modulo 2^64.
__device__ __forceinline__ u64 in_units(Weight weight, int unit) {
#if WHOLE
    u64 digits = (u64)weight;
    int shift = -unit;
#else
    u64 bits = (u64)__double_as_longlong(weight);
    int exponent = (int)(bits >> 52);
    u64 digits = bits & 0xfffffffffffffull;
    if (exponent) digits |= 1ull << 52;
    else exponent = 1;
    int shift = exponent - 1075 - unit;
#endif
    if (shift >= 64 || shift <= -64) return 0;
    return shift >= 0 ? digits << shift : digits >> -shift;
}

// The segment of an element: twice the number of ends below it, and one more if it equals the next.
__device__ __forceinline__ int segment_of(Value value, const Value* ends, int n_ends) {
    int first = 0, last = n_ends;
    while (first < last) {
        int middle = (first + last) / 2;
        if (is_less_than(ends[middle], value)) first = middle + 1; else last = middle;
    }
    return 2 * first + (first < n_ends && is_equal_to(ends[first], value));
}

// How many elements are in each segment, and the sums of their weights, in units of 2^unit, of each of
// which `mask` says which digits count. `totals` has both, the counts first.
extern "C" __global__ void __launch_bounds__(WEIGH_THREADS) weigh_segments(
    const Word* values, const Weight* weights, i64 n, const Value* ends, int n_ends, int unit,
    u64 mask, u64* totals
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    int n_segments = 2 * n_ends + 1;
    Value* own_ends = (Value*)scratch;
    u32* counts = (u32*)(scratch + (n_ends * sizeof(Value) + 7) / 8 * 8);
    u32 *low = counts + n_segments, *high = low + n_segments;
    for (int i = threadIdx.x; i < n_ends; i += WEIGH_THREADS) own_ends[i] = ends[i];
    for (int i = threadIdx.x; i < 3 * n_segments; i += WEIGH_THREADS) counts[i] = 0;
    __syncthreads();
    i64 step = (i64)gridDim.x * WEIGH_THREADS;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * WEIGH_THREADS + threadIdx.x; i < n; i += step) {
        int segment = segment_of(value_of(values[i]), own_ends, n_ends);
        u64 piece = in_units(weights[i], unit) & mask;
        atomicAdd(&counts[segment], 1u);
        // Shared memory adds 32 bits natively, and 64 bits in a loop.
        u32 least = (u32)piece, before = atomicAdd(&low[segment], least);
        u32 rest = (u32)(piece >> 32) + (before + least < before);
        if (rest) atomicAdd(&high[segment], rest);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_segments; i += WEIGH_THREADS) {
        if (counts[i] == 0) continue;
        atomicAdd(&totals[i], (u64)counts[i]);
        atomicAdd(&totals[n_segments + i], (u64)high[i] << 32 | low[i]);
    }
}

// The elements in some of the open cells between the ends, with their weights, in any order. There is
// room for all. `wanted` has a byte for each cell.
extern "C" __global__ void __launch_bounds__(WEIGH_THREADS) weigh_taken(
    const Word* values, const Weight* weights, i64 n, const Value* ends, int n_ends,
    const unsigned char* wanted, Value* taken, Weight* their_weights, u64 room, u64* n_taken
) {
    i64 step = (i64)gridDim.x * WEIGH_THREADS;
    for (i64 start = (i64)blockIdx.x * WEIGH_THREADS; start < n; start += step) {
        i64 i = start + threadIdx.x;
        Value value = 0;
        bool takes = false;
        if (i < n) {
            value = value_of(values[i]);
            int segment = segment_of(value, ends, n_ends);
            takes = segment % 2 == 0 && wanted[segment / 2];
        }
        u32 holders = __ballot_sync(ALL_LANES, takes);
        if (holders == 0) continue;
        u32 lane = threadIdx.x % 32;
        u64 at = lane == 0 ? atomicAdd(n_taken, (u64)__popc(holders)) : 0;
        at = __shfl_sync(ALL_LANES, at, 0) + __popc(holders & ((1u << lane) - 1));
        if (!takes || at >= room) continue;
        taken[at] = value;
        their_weights[at] = weights[i];
    }
}
