// Isotonic regression by parallel minimum lower sets; see ``lower_sets.py``.
//
// There are three kernels, without waiting for the host. One block computes prefix sums. Then, for each
// start, the smallest average up to a later element is found: a thread has one start, and blocks take
// segments of the ends, so that few elements fill a device too; the results of the segments are merged
// by atomic minima of ordered integers. Last, one block computes the largest of these averages up to
// each element.

#include "errors.cuh"

constexpr i64 LONGEST = 16 * USUAL_THREADS;  // length of segments

constexpr u64 INFINITE = 0xfffull << 52;  // inf in the form of `ordered`

// Numbers that the first kernel computes for the others.
struct Facts {
    double slack, weight_slack;  // bounds of what the high parts of two sums leave out
    i64 exponent;  // sums are of y * 2**-exponent
};

__device__ __forceinline__ u64 ordered(double value) {
    u64 bits = (u64)__double_as_longlong(value);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

__device__ __forceinline__ double from_ordered(u64 key) {
    return __longlong_as_double((i64)(key >> 63 ? key & ~(1ull << 63) : ~key));
}

// The difference of two numbers, each the sum of two float64, to about one rounding.
__device__ __forceinline__ double difference(
    double high, double low, double start_high, double start_low
) {
    double lost, total = two_sum(high, -start_high, lost);
    return __dadd_rn(total, __dadd_rn(lost, __dsub_rn(low, start_low)));
}

// Without weights (WEIGHTED is 0), all of them are 1.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) sets_smallest(
    const double* high, const double* low, const double* weight_high, const double* weight_low,
    i64 n, const Facts* facts, u64* smallest
) {
    double slack = facts->slack, weight_slack = facts->weight_slack;
    __shared__ double ends[2][USUAL_THREADS], weights[WEIGHTED ? 2 : 1][USUAL_THREADS];
    i64 n_tiles = (n + USUAL_THREADS - 1) / USUAL_THREADS;
    // Segments are short enough that all blocks have one, if possible: 1e4 elements have 40 tiles.
    i64 length = (n_tiles * n / gridDim.x / USUAL_THREADS + 1) * USUAL_THREADS;
    length = length < LONGEST ? length : LONGEST;
    i64 n_segments = (n + length - 1) / length;
    for (i64 work = blockIdx.x; work < n_tiles * n_segments; work += gridDim.x) {
        i64 tile = work % n_tiles * USUAL_THREADS, segment = work / n_tiles * length;
        i64 stop = segment + length < n ? segment + length : n;
        i64 i = tile + threadIdx.x;
        bool is_there = i < n;
        double start_high = is_there ? high[i] : 0, start_low = is_there ? low[i] : 0;
        double from_high = WEIGHTED && is_there ? weight_high[i] : 0;
        double from_low = WEIGHTED && is_there ? weight_low[i] : 0;
        double best = is_there ? from_ordered(smallest[i]) : 0;
        for (i64 at = tile > segment ? tile : segment; at < stop; at += USUAL_THREADS) {
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
            int size = (int)(stop - at < USUAL_THREADS ? stop - at : USUAL_THREADS);
            double count = (double)(at - i + 1);
            for (int t = i > at ? (int)(i - at) : 0; is_there && t < size; ++t) {
                double grown = ends[0][t] - start_high;
                double weight = WEIGHTED ? weights[0][t] - from_high : count + t;
                double most = slack + (WEIGHTED ? fabs(best) * weight_slack : 0);
                // Few averages can be the smallest: only these are computed to the last digit.
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

// --- One block: each thread has a stretch ---

struct Pair {
    double high, low;
};

__device__ __forceinline__ Pair sum_of(Pair a, Pair b) {
    double lost, total = two_sum(a.high, b.high, lost);
    lost = __dadd_rn(lost, __dadd_rn(a.low, b.low));
    double high = __dadd_rn(total, lost);
    return {high, __dsub_rn(lost, __dsub_rn(high, total))};
}

__device__ __forceinline__ double joined(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ u64 joined(u64 a, u64 b) { return a > b ? a : b; }
__device__ __forceinline__ Pair joined(Pair a, Pair b) { return sum_of(a, b); }

// Combine the items of all threads up to this one: the largest value, or the sum of pairs.
template <typename Item>
__device__ Item up_to(Item own, Item* shared) {
    shared[threadIdx.x] = own;
    for (int step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        bool is_behind = threadIdx.x >= step;
        Item before = shared[is_behind ? threadIdx.x - step : 0];
        __syncthreads();
        if (is_behind) shared[threadIdx.x] = joined(before, shared[threadIdx.x]);
    }
    __syncthreads();
    return shared[threadIdx.x];
}

// Values divided by a power of two so that the largest is less than 1. Without `values`, all of them
// are 1.
struct Scaled {
    const double* values;
    int exponent;

    __device__ static Scaled of(const double* values, i64 n, double* shared) {
        double size = 0;
        for (i64 i = threadIdx.x; values && i < n; i += blockDim.x)
            size = fmax(size, fabs(values[i]));
        up_to(size, shared);
        size = shared[blockDim.x - 1];
        __syncthreads();
        return {values, size > 0 ? ilogb(size) + 1 : 0};
    }

    __device__ double operator[](i64 i) const {
        return values ? scalbn(values[i], -exponent) : 1;
    }
};

// Prefix sums of products: n + 1 numbers, the first of which is 0. Returns their largest magnitude.
__device__ double prefix_sums(
    Scaled y, Scaled weights, i64 n, double* high, double* low, double* sizes) {
    __shared__ Pair shared[SCAN_THREADS];
    i64 each = (n + blockDim.x - 1) / blockDim.x;
    i64 start = each * threadIdx.x < n ? each * threadIdx.x : n;
    i64 stop = start + each < n ? start + each : n;
    auto item = [&](i64 i) -> Pair {
        Pair product;
        product.high = product_of(y[i], weights[i], product.low);
        return product;
    };
    Pair own = {0, 0};
    for (i64 i = start; i < stop; ++i) own = sum_of(own, item(i));
    up_to(own, shared);
    Pair sum = threadIdx.x ? shared[threadIdx.x - 1] : Pair{0, 0};
    if (threadIdx.x == 0) high[0] = low[0] = 0;
    double size = 0;
    for (i64 i = start; i < stop; ++i) {
        sum = sum_of(sum, item(i));
        high[i + 1] = sum.high;
        low[i + 1] = sum.low;
        size = fmax(size, fabs(sum.high));
    }
    up_to(size, sizes);
    return sizes[blockDim.x - 1];
}

extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
sets_sums(
    const double* y, const double* weights, i64 n, double* high, double* low, double* weight_high,
    double* weight_low, Facts* facts, u64* smallest) {
    __shared__ double sizes[SCAN_THREADS];
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) smallest[i] = INFINITE;
    Scaled of_y = Scaled::of(y, n, sizes), of_weights = Scaled::of(weights, n, sizes);
    const double left_out = 8 * 0x1p-53;
    double most = prefix_sums(of_y, of_weights, n, high, low, sizes), most_weight = 0;
    if (weights) {
        __syncthreads();
        most_weight = prefix_sums({nullptr, 0}, of_weights, n, weight_high, weight_low, sizes);
    }
    if (threadIdx.x == 0) *facts = {left_out * most, left_out * most_weight, of_y.exponent};
}

// The largest average up to each element, in units of y; keys are replaced by numbers.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
sets_largest(u64* keys, i64 n, const Facts* facts) {
    __shared__ u64 shared[SCAN_THREADS];
    i64 each = (n + blockDim.x - 1) / blockDim.x;
    i64 start = each * threadIdx.x < n ? each * threadIdx.x : n;
    i64 stop = start + each < n ? start + each : n;
    u64 largest = 0;
    for (i64 i = start; i < stop; ++i) largest = joined(largest, keys[i]);
    up_to(largest, shared);
    largest = threadIdx.x ? shared[threadIdx.x - 1] : 0;
    for (i64 i = start; i < stop; ++i) {
        largest = joined(largest, keys[i]);
        double average = scalbn(from_ordered(largest), (int)facts->exponent);
        keys[i] = (u64)__double_as_longlong(average);
    }
}
