// Exact sums of elements and of their squares; see `moments.Moments`.
//
// An element is cut into pieces at fixed places. The pieces and their products are so few and so small
// that they add up without rounding. From time to time a warp adds these sums to digits of 32 bits. An
// element with bits above or below the pieces is added to the digits by itself.
//
// Defined before this text: PIECES, the number of pieces of an element.

constexpr int AT_MOST = 511;  // elements that a thread adds between two flushes
constexpr int SUMS_EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

// The range of digits that sums of elements, and of their squares, can have. A float32 is a float64
// whose 53 bits begin at 2**-201 or above, and sums of 2**40 of them are below 2**168.
#if KIND == FLOATING && BITS == 64
constexpr int FIRST_TOTAL = 0, N_TOTAL = TOTAL_DIGITS, FIRST_SQUARE = 0, N_SQUARE = SQUARE_DIGITS;
#elif KIND == FLOATING
constexpr int FIRST_TOTAL = TOTAL_POINT - 7, N_TOTAL = 13;
constexpr int FIRST_SQUARE = SQUARE_POINT - 13, N_SQUARE = 25;
#else
constexpr int FIRST_TOTAL = TOTAL_POINT, N_TOTAL = 3, FIRST_SQUARE = SQUARE_POINT, N_SQUARE = 5;
#endif
constexpr int N_DIGITS = N_TOTAL + N_SQUARE;  // digits of the sum, followed by those of the squares
// In device memory, behind all digits of both sums are the numbers of elements that are inf, -inf and NaN.
constexpr int COUNTS_AT = TOTAL_DIGITS + SQUARE_DIGITS, N_NUMBERS = COUNTS_AT + 3;

// Add the square of a number of at most 64 bits to digits. If it must be shifted, it has at most 53
// bits.
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

// --- The digits of warps --------------------------------------------------------------------------

// Carry, so that all digits but the last have at most 32 bits, and those of all warps can be added up.
__device__ __forceinline__ void carry(u64* digits, int n) {
    for (int i = 0; i + 1 < n; ++i) {
        digits[i + 1] += (u64)((i64)digits[i] >> 32);
        digits[i] &= MASK;
    }
}

// The place of a digit among the complete digits, those of the sum and then those of the squares.
__device__ __forceinline__ int place_of_digit(int i) {
    return i < N_TOTAL ? FIRST_TOTAL + i : TOTAL_DIGITS + FIRST_SQUARE + i - N_TOTAL;
}

template <int THREADS>
__device__ __forceinline__ void clear(u64 (*digits)[N_DIGITS]) {
    for (int i = threadIdx.x; i < THREADS / 32 * N_DIGITS; i += THREADS) digits[0][i] = 0;
    __syncthreads();
}

// Add the digits of all warps to the complete digits in device memory.
template <int THREADS>
__device__ __forceinline__ void write(u64 (*digits)[N_DIGITS], u64* out) {
    constexpr int WARPS = THREADS / 32;
    __syncthreads();
    if (threadIdx.x < 2 * WARPS) {
        u64* own = digits[threadIdx.x / 2];
        if (threadIdx.x % 2) carry(own + N_TOTAL, N_SQUARE);
        else carry(own, N_TOTAL);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < N_DIGITS; i += THREADS) {
        u64 sum = 0;
        for (int w = 0; w < WARPS; ++w) sum += digits[w][i];
        if (sum) atomicAdd(out + place_of_digit(i), sum);
    }
}

#if KIND == FLOATING

// Not inlined: few elements come here, and the code for all others keeps more registers.
__device__ __noinline__ void add_alone(Value value, u64* digits) {
    Whole whole = whole_of(value);
    add_at(digits, whole.size, whole.is_negative, whole.begin - 32 * FIRST_TOTAL);
    add_square(digits + N_TOTAL, whole.size, 2 * (whole.begin - 16 * FIRST_SQUARE));
}

// Add the sum of a warp's numbers to digits, its lowest bit at bit `begin`. Not inlined: there are many
// calls in the text, but few at run time.
__device__ __noinline__ void put(u64* to, i64 number, int begin) {
    number = total_over_warp(number);
    if (threadIdx.x % 32 == 0 && number) {
        add_at(to, number < 0 ? 0 - (u64)number : (u64)number, number < 0, begin);
    }
}

// Counts of the elements that are not finite.
struct Specials {
    u32 n_high, n_low, n_missing;

    __device__ __forceinline__ void add(Value value) {
        bool is_nan = is_missing(value);
        n_missing += is_nan;
        n_high += !is_nan && value > 0;
        n_low += !is_nan && value < 0;
    }

    __device__ __forceinline__ void write(u64* counts) const {
        u32 numbers[3] = {n_high, n_low, n_missing};
#pragma unroll
        for (int i = 0; i < 3; ++i) add_over_warp(&counts[i], numbers[i]);
    }
};

// Sums of pieces and of products of two, which a warp adds to its digits from time to time. `Own` has
// the units of pieces, and converts sums to whole numbers of units.
template <class Own, class Sum, class Product>
struct PieceSums {
    u64* digits;  // of this warp
    Sum sums[PIECES];
    Product products[PIECES][PIECES];
    Specials specials;
    int n_added;

    __device__ __forceinline__ void zero() {
        n_added = 0;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            sums[i] = 0;
#pragma unroll
            for (int j = i; j < PIECES; ++j) products[i][j] = 0;
        }
    }

    __device__ __forceinline__ void start(u64* own) {
        digits = own;
        specials = {0, 0, 0};
        zero();
    }

    __device__ __forceinline__ void pause() {
        if (n_added > AT_MOST - SUMS_EACH) flush();
    }

    __device__ __forceinline__ void flush() {
        const Own& own = *(const Own*)this;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            int unit = own.unit(i), point = 32 * (TOTAL_POINT - FIRST_TOTAL);
            put(digits, own.in_units(sums[i], unit), unit + point);
#pragma unroll
            for (int j = i; j < PIECES; ++j) {
                int both = unit + own.unit(j), its_point = 32 * (SQUARE_POINT - FIRST_SQUARE) + (j > i);
                put(digits + N_TOTAL, own.in_units(products[i][j], both), both + its_point);
            }
        }
        zero();
    }

    __device__ __forceinline__ void finish(u64* counts) {
        flush();
        specials.write(counts);
    }
};

#endif

#if KIND == FLOATING && BITS < 64

// Pieces are signed integers of 23 bits. If a number is added to 1.5 * 2**23 units, the last bits of
// the sum are the number in these units, rounded. The remainder is cut next, in units 2**23 times
// smaller. The first piece is from -2**22 to 2**22 - 1: beyond, the exponent of the sum changes, which
// shows that the element is too large. The others are from -2**22 to 2**22. So 511 pieces add up to
// less than 2**31, and their products to less than 2**53, or 2**58 in a warp.
//
// Sums and products wrap around, so that additions can be undone.
struct Sums : PieceSums<Sums, u32, u64> {
    float cuts[PIECES];

    static constexpr u32 EXPONENT = 0xff800000u;  // the bits of sign and exponent

    // An element cut into pieces, with the bits that tell whether the pieces are all of it: `moved` if
    // it is too large, `left` for the remainder, which is 0 except for the sign.
    struct Cut {
        u32 pieces[PIECES];
        u32 moved, left;

        __device__ __forceinline__ bool is_all() const { return !(moved & EXPONENT) && !(left << 1); }
    };

    __device__ __forceinline__ int unit(int piece) const {
        return (int)(__float_as_uint(cuts[piece]) >> 23) - 127 - 23;
    }

    // Elements below 2**top fit into the pieces.
    __device__ __forceinline__ void start(int top, u64* own) {
        PieceSums::start(own);
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            cuts[i] = __uint_as_float((u32)(top + 1 - 23 * i + 127) << 23 | 1u << 22);
        }
    }

    __device__ __forceinline__ Cut cut(Value rest) const {
        Cut made;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            float sum = sum_of(rest, cuts[i]);
            u32 bits = __float_as_uint(sum), before = __float_as_uint(cuts[i]);
            made.pieces[i] = bits - before;
            if (i == 0) made.moved = bits ^ before;
            rest = difference_of(rest, difference_of(sum, cuts[i]));
        }
        made.left = __float_as_uint(rest);
        return made;
    }

    template <bool UNDOES>
    __device__ __forceinline__ void add(const Cut& element) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            u32 piece = element.pieces[i];
            sums[i] += UNDOES ? 0 - piece : piece;
#pragma unroll
            for (int j = i; j < PIECES; ++j) {
                u64 product = (u64)((i64)(int)piece * (int)element.pieces[j]);
                products[i][j] += UNDOES ? 0 - product : product;
            }
        }
    }

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        Cut all;
        all.moved = all.left = 0;
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Cut element = cut(value_of(present[e] ? words[e] : Word(0)));
            add<false>(element);
            all.moved |= element.moved;
            all.left |= element.left;
        }
        n_added += N;  // the same in all threads, which flush together
        if (all.is_all()) return;
        // Some of them do not fit: undo the addition of their pieces.
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Value value = value_of(present[e] ? words[e] : Word(0));
            Cut element = cut(value);
            if (element.is_all()) continue;
            add<true>(element);
            if (is_special(words[e])) specials.add(value);
            else add_alone(value, digits);
        }
    }

    __device__ __forceinline__ i64 in_units(u32 sum, int) const { return (int)sum; }
    __device__ __forceinline__ i64 in_units(u64 sum, int) const { return (i64)sum; }
};

#elif KIND == FLOATING

constexpr int LAST_BIT = 52;  // distance of the last bit of a float64 from its first

__device__ __forceinline__ double power_of_two(int exponent) {
    return __longlong_as_double((i64)(exponent + 1023) << 52);
}

// Pieces of 23 bits. They, their sums and their products are float64: 511 products are less than 2**53
// units, and 2**58 in a warp.
struct Sums : PieceSums<Sums, double, double> {
    int top;
    double least, most;
    double cuts[PIECES];

    // The unit of a piece: pieces are multiples of it.
    __device__ __forceinline__ int unit(int piece) const { return top + 1 - PIECE * (piece + 1); }

    __device__ __forceinline__ void start(int highest, u64* own) {
        PieceSums::start(own);
        top = highest;
        least = power_of_two(unit(PIECES - 1) + LAST_BIT);
        most = power_of_two(top);
#pragma unroll
        for (int i = 0; i < PIECES; ++i) cuts[i] = 1.5 * power_of_two(52 + unit(i));
    }

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (present[e]) add(words[e]);
        }
        n_added += N;  // the same in all threads, which flush together
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
            specials.add(value);
        } else if (size != 0) {
            add_alone(value, digits);
        }
    }

    __device__ __forceinline__ i64 in_units(double sum, int unit) const {
        return (i64)(sum * power_of_two(-unit));
    }
};

#else

// Integers are not cut: the digits of the elements and of their squares are added up.
struct Sums {
    u64* digits;  // of this warp
    i64 low, high;
    u64 squares[4];

    __device__ __forceinline__ void start(int, u64* own) {
        digits = own;
        low = high = 0;
        for (int i = 0; i < 4; ++i) squares[i] = 0;
    }

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

    __device__ __forceinline__ void finish(u64*) {
        i64 sums[2] = {total_over_warp(low), total_over_warp(high)};
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < 2; ++i) digits[i] += (u64)sums[i];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            i64 sum = total_over_warp((i64)squares[i]);
            if (threadIdx.x % 32 == 0) digits[N_TOTAL + i] += (u64)sum;
        }
    }
};

#endif

// Sum by a whole block: `visit(sums)` hands elements on. What is found is added to the N_NUMBERS of `out`.
template <int THREADS, class Visit>
__device__ __forceinline__ void sum_by_block(int top, u64* out, Visit visit) {
    __shared__ u64 digits[THREADS / 32][N_DIGITS];
    clear<THREADS>(digits);
    Sums mine;
    mine.start(top, digits[threadIdx.x / 32]);
    visit(mine);
    mine.finish(out + COUNTS_AT);
    write<THREADS>(digits, out);
}
