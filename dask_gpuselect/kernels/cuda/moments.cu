// Exact sums of elements and of their squares, in one read; see `moments.Moments`.
//
// As on CPUs (`cpu_moments`), an element is cut into pieces at fixed places, and the pieces and their
// products are added up in float64 without rounding: so few of them, and so small, that nothing is
// lost. From time to time a warp adds these sums to digits of 32 bits. An element with bits above or
// below the pieces is added to the digits by itself.
//
// Defined before this text: PIECES, of an element.

constexpr int DIGITS = TOTAL_DIGITS + SQUARE_DIGITS;  // of the sum, and behind them of the squares
constexpr int WARPS = MOMENTS_THREADS / 32;
constexpr u64 MASK = 0xffffffffu;
constexpr int LAST_BIT = BITS == 64 ? 52 : 23;  // how far it is from the first, of a float
constexpr int AT_MOST = 512;  // elements of a thread between two times

// Add a number of at most 64 bits and a sign, from which bit on.
__device__ __forceinline__ void add_at(u64* digits, u64 size, bool is_negative, int begin) {
    u64* at = digits + (begin >> 5);
    int shift = begin & 31;
    u64 low = (size & MASK) << shift, high = (size >> 32) << shift;
    u64 parts[3] = {low & MASK, (low >> 32) + (high & MASK), high >> 32};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        if (parts[i]) atomicAdd(at + i, is_negative ? 0 - parts[i] : parts[i]);
    }
}

// Add the square of a number of at most 64 bits. If it is shifted, it has at most 53.
__device__ __forceinline__ void add_square(u64* digits, u64 size, int begin) {
    u64* at = digits + (begin >> 5);
    int shift = begin & 31;
    u64 low = size & MASK, high = size >> 32;
    u64 own = low * low, cross = low * high, upper = high * high;
    u64 a = (own & MASK) << shift, b = ((own >> 32) + 2 * (cross & MASK)) << shift;
    u64 c = (2 * (cross >> 32) + (upper & MASK)) << shift, d = (upper >> 32) << shift;
    u64 parts[5] = {
        a & MASK, (a >> 32) + (b & MASK), (b >> 32) + (c & MASK), (c >> 32) + (d & MASK), d >> 32
    };
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        if (parts[i]) atomicAdd(at + i, parts[i]);
    }
}

// An element as an integer times a power of two, which is said by its first bit among the digits.
struct Whole {
    u64 size;
    int begin;
    bool is_negative;
};

__device__ __forceinline__ Whole whole_of(Value value) {
#if KIND == FLOATING
    u64 bits = (u64)__double_as_longlong(as_double(value));
    int exponent = (int)(bits >> 52) & 0x7ff;
    u64 size = bits & 0xfffffffffffffull;
    if (exponent) size |= 1ull << 52;
    else exponent = 1;
    return {size, exponent + OFFSET, (bits >> 63) != 0};
#elif KIND == SIGNED
    return {value < 0 ? 0 - (u64)(i64)value : (u64)value, 32 * TOTAL_POINT, value < 0};
#else
    return {(u64)value, 32 * TOTAL_POINT, false};
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

// --- All elements of a chunk ----------------------------------------------------------------------

__device__ __forceinline__ i64 sum_over_warp(i64 value) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(ALL_LANES, value, offset);
    return value;
}

// Digits of at most 32 bits, but for the last, so that those of all warps can be added up.
__device__ __forceinline__ void carry(u64* digits, int n) {
    for (int i = 0; i + 1 < n; ++i) {
        digits[i + 1] += (u64)((i64)digits[i] >> 32);
        digits[i] &= MASK;
    }
}

__device__ __forceinline__ void clear(u64 (*digits)[DIGITS]) {
    for (int i = threadIdx.x; i < WARPS * DIGITS; i += MOMENTS_THREADS) digits[0][i] = 0;
    __syncthreads();
}

// Add the digits of all warps to those of the device.
__device__ __forceinline__ void write(u64 (*digits)[DIGITS], u64* out) {
    __syncthreads();
    if (threadIdx.x < 2 * WARPS) {
        u64* own = digits[threadIdx.x / 2];
        if (threadIdx.x % 2) carry(own + TOTAL_DIGITS, SQUARE_DIGITS);
        else carry(own, TOTAL_DIGITS);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < DIGITS; i += MOMENTS_THREADS) {
        u64 sum = 0;
        for (int w = 0; w < WARPS; ++w) sum += digits[w][i];
        if (sum) atomicAdd(out + i, sum);
    }
}

constexpr int EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

#if KIND == FLOATING

__device__ __forceinline__ double power_of_two(int exponent) {
    return __longlong_as_double((i64)(exponent + 1023) << 52);
}

// Not inlined: few elements come here, and all others would have fewer registers.
__device__ __noinline__ void add_alone(Value value, u64* digits) {
    Whole whole = whole_of(value);
    add_at(digits, whole.size, whole.is_negative, whole.begin);
    add_square(digits + TOTAL_DIGITS, whole.size, 2 * whole.begin);
}

// Add a warp's sum, of some units, to its digits. Not inlined: it is called for every sum, but seldom.
__device__ __noinline__ void put(u64* to, double sum, int unit, int point) {
    i64 number = sum_over_warp((i64)(sum * power_of_two(-unit)));
    if (threadIdx.x % 32 == 0 && number) {
        add_at(to, number < 0 ? 0 - (u64)number : (u64)number, number < 0, unit + point);
    }
}

struct Moments {
    int top;
    u64* digits;  // of this warp
    double least, most;
    double cuts[PIECES];
    double sums[PIECES], products[PIECES][PIECES];
    u32 n_high, n_low, n_missing;
    int n_added;

    // What the pieces of a number are multiples of.
    __device__ __forceinline__ int unit(int piece) const { return top + 1 - PIECE * (piece + 1); }

    __device__ __forceinline__ void start() {
        least = power_of_two(unit(PIECES - 1) + LAST_BIT);
        most = power_of_two(top);
#pragma unroll
        for (int i = 0; i < PIECES; ++i) cuts[i] = 1.5 * power_of_two(52 + unit(i));
        n_high = n_low = n_missing = 0;
        zero();
    }

    __device__ __forceinline__ void zero() {
        n_added = 0;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            sums[i] = 0;
#pragma unroll
            for (int j = i; j < PIECES; ++j) products[i][j] = 0;
        }
    }

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (present[e]) add(words[e]);
        }
        n_added += N;  // in all threads alike: they flush together
    }

    __device__ __forceinline__ void add(Word word) {
        Value value = value_of(word);
        double rest = as_double(value), size = fabs(rest);
        if (size <= most && size >= least) {
            double pieces[PIECES];
#pragma unroll
            for (int i = 0; i + 1 < PIECES; ++i) {
                pieces[i] = __dsub_rn(__dadd_rn(rest, cuts[i]), cuts[i]);
                rest = __dsub_rn(rest, pieces[i]);
            }
            pieces[PIECES - 1] = rest;
#pragma unroll
            for (int i = 0; i < PIECES; ++i) {
                sums[i] = __dadd_rn(sums[i], pieces[i]);
#pragma unroll
                for (int j = i; j < PIECES; ++j) {
                    products[i][j] = __fma_rn(pieces[i], pieces[j], products[i][j]);
                }
            }
        } else if (is_special(word)) {
            bool is_nan = is_missing(value);
            n_missing += is_nan;
            n_high += !is_nan && value > 0;
            n_low += !is_nan && value < 0;
        } else if (size != 0) {
            add_alone(value, digits);
        }
    }

    __device__ __forceinline__ void pause() {
        if (n_added > AT_MOST - EACH) flush();
    }

    // Sums of at most 512 are at most 2**53 units, those of a warp 2**58.
    __device__ __forceinline__ void flush() {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            put(digits, sums[i], unit(i), 32 * TOTAL_POINT);
#pragma unroll
            for (int j = i; j < PIECES; ++j) {
                put(digits + TOTAL_DIGITS, products[i][j], unit(i) + unit(j),
                    32 * SQUARE_POINT + (j > i));
            }
        }
        zero();
    }
};

extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, int top, u64* out, u64* counts
) {
    __shared__ u64 digits[WARPS][DIGITS];
    clear(digits);
    Moments mine;
    mine.top = top;
    mine.digits = digits[threadIdx.x / 32];
    mine.start();
    visit_all<MOMENTS_THREADS, EACH>(chunk, n, layout, keeps, mine);
    mine.flush();
    u32 found[3] = {mine.n_high, mine.n_low, mine.n_missing};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        u32 of_warp = warp_sum(found[i]);
        if (threadIdx.x % 32 == 0 && of_warp) atomicAdd(&counts[i], (u64)of_warp);
    }
    write(digits, out);
}

#else

// Of integers, digits are added up as they are: those of the sum, then those of the squares.
struct Moments {
    i64 low, high;
    u64 squares[4];

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (!present[e]) continue;
            Value value = value_of(words[e]);
#if BITS < 64
            u64 square = (u64)((i64)value * (i64)value);
            low += (i64)value;
            squares[0] += square & MASK;
            if (BITS == 32) squares[1] += square >> 32;
#else
            low += (i64)((u64)value & MASK);
            high += (i64)(value >> 32);
            Whole whole = whole_of(value);
            u64 below = whole.size & MASK, above = whole.size >> 32;
            u64 own = below * below, cross = below * above, upper = above * above;
            squares[0] += own & MASK;
            squares[1] += (own >> 32) + 2 * (cross & MASK);
            squares[2] += 2 * (cross >> 32) + (upper & MASK);
            squares[3] += upper >> 32;
#endif
        }
    }

    __device__ __forceinline__ void pause() {}
};

extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64* out
) {
    __shared__ u64 digits[WARPS][DIGITS];
    clear(digits);
    Moments mine = {0, 0, {0, 0, 0, 0}};
    visit_all<MOMENTS_THREADS, EACH>(chunk, n, layout, keeps, mine);
    i64 low = sum_over_warp(mine.low), high = sum_over_warp(mine.high);
    u64* own = digits[threadIdx.x / 32];
    if (threadIdx.x % 32 == 0) {
        own[TOTAL_POINT] = (u64)low;
        own[TOTAL_POINT + 1] = (u64)high;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        i64 sum = sum_over_warp((i64)mine.squares[i]);
        if (threadIdx.x % 32 == 0) own[TOTAL_DIGITS + SQUARE_POINT + i] = (u64)sum;
    }
    write(digits, out);
}

#endif

// --- Rows -----------------------------------------------------------------------------------------

// Add every element of a contiguous table to the digits of its row, of which `first_total` and
// `first_square` are the first.
extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) sum_rows(
    const Word* rows, i64 n_rows, i64 n, u64* total, int first_total, int n_total, u64* square,
    int first_square, int n_square
) {
    i64 step = (i64)gridDim.x * MOMENTS_THREADS;
    for (i64 i = (i64)blockIdx.x * MOMENTS_THREADS + threadIdx.x; i < n_rows * n; i += step) {
        Word word = rows[i];
        Whole whole = whole_of(value_of(word));
        if (is_special(word) || whole.size == 0) continue;
        i64 row = i / n;
        add_at(total + row * n_total, whole.size, whole.is_negative, whole.begin - 32 * first_total);
        add_square(square + row * n_square, whole.size, 2 * whole.begin - 32 * first_square);
    }
}
