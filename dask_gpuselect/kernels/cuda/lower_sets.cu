// From each number on, the smallest average up to a later one: the first half of isotonic regression
// by parallel minimum lower sets; see `kernels.lower_sets`.
//
// A thread has one start. Blocks take its ends in segments, so that few numbers fill a device too,
// and the smallest of all segments meet as ordered integers.

constexpr i64 SEGMENT = 16 * SETS_THREADS;

__device__ __forceinline__ u64 ordered(double value) {
    u64 bits = (u64)__double_as_longlong(value);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

__device__ __forceinline__ double from_ordered(u64 key) {
    return __longlong_as_double((i64)(key >> 63 ? key & ~(1ull << 63) : ~key));
}

// The difference of two numbers, each the sum of two float64, to about one rounding.
__device__ __forceinline__ double difference(
    double high, double low, double start_high, double start_low) {
    double total = __dsub_rn(high, start_high);
    double rest = __dsub_rn(total, high);
    double lost = __dsub_rn(__dsub_rn(high, __dsub_rn(total, rest)), __dadd_rn(start_high, rest));
    return __dadd_rn(total, __dadd_rn(lost, __dsub_rn(low, start_low)));
}

// `slack` is more than what the high parts of two sums leave out, `weight_slack` of two weights.
template <bool WEIGHTED>
__device__ __forceinline__ void smallest_averages(
    const double* high, const double* low, const double* weight_high, const double* weight_low,
    i64 n, double slack, double weight_slack, u64* smallest) {
    __shared__ double ends[2][SETS_THREADS], weights[WEIGHTED ? 2 : 1][SETS_THREADS];
    i64 n_tiles = (n + SETS_THREADS - 1) / SETS_THREADS;
    i64 n_segments = (n + SEGMENT - 1) / SEGMENT;
    for (i64 work = blockIdx.x; work < n_tiles * n_segments; work += gridDim.x) {
        i64 tile = work % n_tiles * SETS_THREADS, segment = work / n_tiles * SEGMENT;
        i64 stop = segment + SEGMENT < n ? segment + SEGMENT : n;
        i64 i = tile + threadIdx.x;
        bool is_there = i < n;
        double start_high = is_there ? high[i] : 0, start_low = is_there ? low[i] : 0;
        double from_high = WEIGHTED && is_there ? weight_high[i] : 0;
        double from_low = WEIGHTED && is_there ? weight_low[i] : 0;
        double best = is_there ? from_ordered(smallest[i]) : 0;
        for (i64 at = tile > segment ? tile : segment; at < stop; at += SETS_THREADS) {
            __syncthreads();
            if (at + threadIdx.x < stop) {
                i64 j = at + threadIdx.x + 1;
                ends[0][threadIdx.x] = high[j];
                ends[1][threadIdx.x] = low[j];
                if (WEIGHTED) {
                    weights[0][threadIdx.x] = weight_high[j];
                    weights[WEIGHTED ? 1 : 0][threadIdx.x] = weight_low[j];
                }
            }
            __syncthreads();
            int size = (int)(stop - at < SETS_THREADS ? stop - at : SETS_THREADS);
            double count = (double)(at - i + 1);
            for (int t = i > at ? (int)(i - at) : 0; is_there && t < size; ++t) {
                double grown = ends[0][t] - start_high;
                double weight = WEIGHTED ? weights[0][t] - from_high : count + t;
                double most = slack + (WEIGHTED ? fabs(best) * weight_slack : 0);
                // Few averages can be the smallest: only these are taken to the last digit.
                if (!(grown > fma(best, weight, most))) {
                    grown = difference(ends[0][t], ends[1][t], start_high, start_low);
                    if (WEIGHTED)
                        weight = difference(
                            weights[0][t], weights[WEIGHTED ? 1 : 0][t], from_high, from_low);
                    if (weight > 0) best = fmin(best, grown / weight);
                }
            }
        }
        if (is_there) atomicMin(smallest + i, ordered(best));
    }
}

extern "C" __global__ void __launch_bounds__(SETS_THREADS)
sets_smallest(const double* high, const double* low, i64 n, double slack, u64* smallest) {
    smallest_averages<false>(high, low, nullptr, nullptr, n, slack, 0, smallest);
}

extern "C" __global__ void __launch_bounds__(SETS_THREADS)
sets_weighted(
    const double* high, const double* low, const double* weight_high, const double* weight_low,
    i64 n, double slack, double weight_slack, u64* smallest) {
    smallest_averages<true>(
        high, low, weight_high, weight_low, n, slack, weight_slack, smallest);
}

// Back to numbers, in place.
extern "C" __global__ void sets_numbers(u64* keys, i64 n) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        keys[i] = (u64)__double_as_longlong(from_ordered(keys[i]));
}
