// Sums of differences from a centre and of their squares, in one read; see `moments.Moments`.
//
// Each is kept as the sum of two float64, the second of which has what the first has lost by rounding
// (Knuth, volume 2, 4.2.2; Dekker 1971).

struct Two {
    double high, low;

    __device__ __forceinline__ void add(double value) {
        double total = high + value;
        double added = total - high;
        low += (high - (total - added)) + (value - added);
        high = total;
    }

    // Add a number that is two float64 itself.
    __device__ __forceinline__ void add(double value, double rest) {
        add(value);
        low += rest;
    }
};

__device__ __forceinline__ Two sum_of(double a, double b) {
    Two sum = {a, 0};
    sum.add(b, 0);
    return sum;
}

// What is added up: the elements themselves, differences from a centre, or those times a scale.
constexpr int ABOUT_ZERO = 0;
constexpr int ABOUT_CENTRE = 1;
constexpr int SCALED = 2;

// A difference as the sum of two float64.
template <int HOW>
__device__ __forceinline__ Two difference(Value value, Value centre, double scale) {
#if KIND == FLOATING
    double x = as_double(value), c = as_double(centre);
    if (HOW == ABOUT_ZERO) return {x, 0};
    return HOW == SCALED ? sum_of(x * scale, -c * scale) : sum_of(x, -c);
#elif BITS < 64
    return {(double)value - (double)centre, 0};
#else
    bool is_above = value >= centre;
    u64 gap = is_above ? (u64)value - (u64)centre : (u64)centre - (u64)value;
    double sign = is_above ? 1 : -1;
    return sum_of(sign * ((double)(u32)(gap >> 32) * 4294967296.0), sign * (double)(u32)gap);
#endif
}

__device__ __forceinline__ bool is_special(Word word) {  // NaN or infinite
#if KIND == FLOATING && BITS == 64
    return ((u32)(word >> 32) & 0x7ff00000u) == 0x7ff00000u;
#elif KIND == FLOATING && BITS == 32
    return (word & 0x7f800000u) == 0x7f800000u;
#elif KIND == FLOATING
    return (word & 0x7c00u) == 0x7c00u;
#else
    return false;
#endif
}

template <int HOW>
struct Moments {
    Value centre;
    double scale;
    Two total, square;
    u32 n_high, n_low, n_missing;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
        if (!is_present) return;
        bool has_special = false;
#pragma unroll
        for (int e = 0; e < N; ++e) has_special |= is_special(words[e]);
        if (!has_special) {
#pragma unroll
            for (int e = 0; e < N; ++e) add(value_of(words[e]));
            return;
        }
        for (int e = 0; e < N; ++e) {
            Value value = value_of(words[e]);
            if (!is_special(words[e])) {
                add(value);
            } else {
                bool is_nan = is_missing(value);
                n_missing += is_nan;
                n_high += !is_nan && value > 0;
                n_low += !is_nan && value < 0;
            }
        }
    }

    __device__ __forceinline__ void add(Value value) {
        Two d = difference<HOW>(value, centre, scale);
        double squared = __dmul_rn(d.high, d.high);
        // The compiler keeps all that adds a zero, for a zero may be negative: so nothing is added.
        constexpr bool IS_ONE = (HOW == ABOUT_ZERO && KIND == FLOATING) || (KIND != FLOATING && BITS < 64);
        if (IS_ONE) {
            total.add(d.high);
            // The square of a float32 is a float64.
            if (KIND == FLOATING && BITS < 64) square.add(squared);
            else square.add(squared, __fma_rn(d.high, d.high, -squared));
        } else {
            total.add(d.high, d.low);
            square.add(squared, __fma_rn(d.high, d.high, -squared) + 2 * d.high * d.low);
        }
    }

    __device__ __forceinline__ void pause() {}
};

__device__ __forceinline__ void add_over_warp(Two& sum) {
    for (int offset = 16; offset; offset >>= 1) {
        double high = __shfl_xor_sync(ALL_LANES, sum.high, offset);
        sum.add(high, __shfl_xor_sync(ALL_LANES, sum.low, offset));
    }
}

// Write down what a block has found: four numbers, and the numbers of inf, -inf and NaN in all.
template <int HOW>
__device__ __forceinline__ void write(Moments<HOW>& mine, double* sums, u64* counts) {
    __shared__ Two of_warps[2][MOMENTS_THREADS / 32];
    u32 found[3] = {mine.n_high, mine.n_low, mine.n_missing};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        u32 of_warp = warp_sum(found[i]);
        if (threadIdx.x % 32 == 0 && of_warp) atomicAdd(&counts[i], (u64)of_warp);
    }
    add_over_warp(mine.total);
    add_over_warp(mine.square);
    if (threadIdx.x % 32 == 0) {
        of_warps[0][threadIdx.x / 32] = mine.total;
        of_warps[1][threadIdx.x / 32] = mine.square;
    }
    __syncthreads();
    if (threadIdx.x >= 2) return;
    Two sum = {0, 0};
    for (int w = 0; w < MOMENTS_THREADS / 32; ++w) {
        sum.add(of_warps[threadIdx.x][w].high, of_warps[threadIdx.x][w].low);
    }
    double* own = sums + 4 * blockIdx.x + 2 * threadIdx.x;
    own[0] = sum.high;
    own[1] = sum.low;
}

constexpr int EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

#define MOMENTS(NAME, HOW)                                                                          \
    extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) NAME(                             \
        const Word* chunk, i64 n, const i64* layout, Value centre, double scale, double* sums,      \
        u64* counts                                                                                 \
    ) {                                                                                             \
        Moments<HOW> mine = {centre, scale};                                                        \
        visit_all<MOMENTS_THREADS, EACH>(chunk, n, layout, mine);                                   \
        write(mine, sums, counts);                                                 \
    }

MOMENTS(moments_zero, ABOUT_ZERO)
MOMENTS(moments_centre, ABOUT_CENTRE)
MOMENTS(moments_scaled, SCALED)
