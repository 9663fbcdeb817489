// Exact sums of the elements of a lane and of their squares, and the mean and deviation, each rounded
// once. They use float64 and error-free transformations, and round as `maths.moments` does. Where that
// cannot decide the rounding, the result is marked unsure, and the caller computes it by integers.

#include "errors.cuh"

constexpr double ERROR = 0x1p-96;  // bound of the error of a pair of float64, as in Python
constexpr double FARTHEST = 0x1p400;  // elements up to here, and down to its inverse, have exact squares
constexpr double SURE_TAIL = 0x1p-120;  // three float64 determine a number up to this part of it
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

#if BITS < 64
#define SUM_LEVELS 3
#define SPREAD_LEVELS 4
#else
#define SUM_LEVELS 4
#define SPREAD_LEVELS 7
#endif

// A sum of float64 parts, which is exact unless something was lost.
template <int LEVELS>
struct Exact {
    double parts[LEVELS];
    bool lost;

    __device__ __forceinline__ Exact() : lost(false) {
#pragma unroll
        for (int l = 0; l < LEVELS; ++l) parts[l] = 0.0;
    }

    __device__ __forceinline__ void add(double x) {
#pragma unroll
        for (int l = 0; l < LEVELS; ++l) {
            parts[l] = two_sum(parts[l], x, x);
            if (x == 0.0) return;
        }
        lost = true;
    }

    // Add some numbers, whose additions do not wait for each other.
    template <int N>
    __device__ __forceinline__ void add(const double (&numbers)[N]) {
        double x[N];
        bool is_left = true;
#pragma unroll
        for (int k = 0; k < N; ++k) x[k] = numbers[k];
#pragma unroll
        for (int l = 0; l < LEVELS && is_left; ++l) {
            is_left = false;
#pragma unroll
            for (int k = 0; k < N; ++k) parts[l] = two_sum(parts[l], x[k], x[k]), is_left |= x[k] != 0.0;
        }
        lost |= is_left;
    }

    __device__ __forceinline__ void add_product(double a, double b) {
        double error, product = product_of(a, b, error);
        add(product);
        if (error != 0.0) add(error);
    }
};

// The leading bits of a number, and whether these are all; see `moments.Leading`.
struct Leading {
    double high, middle, low;
    bool is_all, is_known;
};

template <int LEVELS>
__device__ __forceinline__ Leading leading(const Exact<LEVELS>& exact) {
    double p[LEVELS];
#pragma unroll
    for (int l = 0; l < LEVELS; ++l) p[l] = exact.parts[l];
    // Repeatedly from the last part to the first: then each part is the remainder of the sum of those
    // after it.
#pragma unroll
    for (int round = 0; round + 1 < LEVELS; ++round) {
#pragma unroll
        for (int l = LEVELS - 1; l > 0; --l) p[l - 1] = two_sum(p[l - 1], p[l], p[l]);
    }
    double rest = 0.0;
#pragma unroll
    for (int l = 3; l < LEVELS; ++l) rest += fabs(p[l]);
    Leading leads = {p[0], p[1], p[2], rest == 0.0, !exact.lost};
    double size = fabs(p[0]);
    leads.is_known = leads.is_known && fabs(p[1]) <= 0x1p-52 * size && fabs(p[2]) <= 0x1p-104 * size &&
                     rest <= SURE_TAIL * size;
    return leads;
}

// As `moments._rounded_sum`, for numbers that are not scaled.
__device__ __forceinline__ double rounded_sum(double first, double second, bool is_exact, bool& sure) {
    first = two_sum(first, second, second);
    double error = is_exact ? 0.0 : __dmul_rn(fabs(first), ERROR);
    double low = __dadd_rn(first, __dadd_rn(second, -error));
    double high = __dadd_rn(first, __dadd_rn(second, error));
    bool is_normal = (fabs(low) > 0x1p-1021 && fabs(low) < 0x1p1023) || first == 0.0;
    sure = sure && low == high && is_normal;
    return low;
}

// As `moments._quotient`.
__device__ __forceinline__ double quotient(const Leading& number, double by, bool& sure) {
    double first = __ddiv_rn(number.high, by), error, more, lost;
    double whole = product_of(first, by, error);
    double rest = two_sum(__dadd_rn(__dadd_rn(number.high, -whole), -error), number.middle, more);
    more = __dadd_rn(more, number.low);
    double second = __ddiv_rn(__dadd_rn(rest, more), by);
    double again = product_of(second, by, lost);
    bool is_exact = number.is_all && more == 0.0 && again == rest && lost == 0.0;
    sure = sure && number.is_known;
    return rounded_sum(first, second, is_exact, sure);
}

// As `moments._root_over`; n is `by`.
__device__ __forceinline__ double root_over(const Leading& number, double by, u32 n, bool& sure) {
    double root = __dsqrt_rn(number.high), error, more;
    double whole = product_of(root, root, error);
    double rest = two_sum(__dadd_rn(__dadd_rn(number.high, -whole), -error), number.middle, more);
    double second = root > 0.0
        ? __ddiv_rn(__dadd_rn(rest, __dadd_rn(more, number.low)), __dmul_rn(2.0, root))
        : 0.0;
    double lost, lost_own, lost_left, lost_more;
    double twice = product_of(__dmul_rn(2.0, root), second, lost);
    double own = product_of(second, second, lost_own);
    double left = two_sum(__dadd_rn(rest, -twice), more, lost_left);
    left = two_sum(left, __dadd_rn(number.low, -own), lost_more);
    lost = fabs(lost) + fabs(lost_own) + fabs(lost_left) + fabs(lost_more);
    bool is_root = number.is_all && left == 0.0 && lost == 0.0;
    double first = __ddiv_rn(root, by);
    whole = product_of(first, by, error);
    rest = __dadd_rn(__dadd_rn(root, -whole), -error);
    bool is_exact = (is_root && (n & (n - 1)) == 0) || number.high == 0.0;
    sure = sure && number.is_known;
    return rounded_sum(first, __ddiv_rn(__dadd_rn(rest, second), by), is_exact, sure);
}

// --- Sums of weights ------------------------------------------------------------------------------

template <int LEVELS, int OTHERS>
__device__ __forceinline__ void add_parts(Exact<LEVELS>& sum, const Exact<OTHERS>& other) {
#pragma unroll
    for (int l = 0; l < OTHERS; ++l) {
        if (other.parts[l] != 0.0) sum.add(other.parts[l]);
    }
    sum.lost |= other.lost;
}

// Add a number times a sum, of which the caller knows whether it is exact.
template <int LEVELS, int OTHERS>
__device__ __forceinline__ void add_times(Exact<LEVELS>& sum, double factor, const Exact<OTHERS>& other) {
    for (int l = 0; l < OTHERS; ++l) {
        if (other.parts[l] != 0.0) sum.add_product(factor, other.parts[l]);
    }
}

// Add the product of two such sums, with a sign.
template <int LEVELS, int FIRST, int SECOND>
__device__ __forceinline__ void add_product(
    Exact<LEVELS>& sum, double sign, const Exact<FIRST>& a, const Exact<SECOND>& b
) {
#pragma unroll 1
    for (int i = 0; i < FIRST * SECOND; ++i) {
        double x = a.parts[i / SECOND], y = b.parts[i % SECOND];
        if (x != 0.0 && y != 0.0) sum.add_product(sign * x, y);
    }
}

// Subtract a number times the leading bits of another.
template <int LEVELS>
__device__ __forceinline__ void subtract_times(Exact<LEVELS>& sum, double factor, const Leading& by) {
    sum.add_product(-factor, by.high);
    if (by.middle != 0.0) sum.add_product(-factor, by.middle);
    if (by.low != 0.0) sum.add_product(-factor, by.low);
}

typedef Exact<8> Wide;

__device__ __forceinline__ bool is_zero(const Wide& sum) {
    return !sum.lost && leading(sum).high == 0.0;
}

__device__ __forceinline__ double rounded_once(const Exact<3>& sum, bool& sure) {
    Leading leads = leading(sum);
    sure = sure && leads.is_known;
    return rounded_sum(leads.high, leads.middle, leads.low == 0.0, sure);
}

// Divide, and round once. If the numerator is not exact (`is_exact`), its relative error is below
// 2**-100. Then tells whether the quotient is.
__device__ double quotient_once(const Wide& numerator, const Leading& by, bool& is_exact, bool& sure) {
    double first = __ddiv_rn(leading(numerator).high, by.high);
    Wide rest = numerator;
    subtract_times(rest, first, by);
    double second = __ddiv_rn(leading(rest).high, by.high);
    subtract_times(rest, second, by);
    sure = sure && !rest.lost && by.is_known;
    is_exact = is_exact && is_zero(rest);
    double rounded = rounded_sum(first, second, is_exact, sure);
    is_exact = is_exact && second == 0.0;
    return rounded;
}

// --- Sums of elements of few magnitudes -----------------------------------------------------------

// Let elements be multiples of 2**unit, smaller than 2**top, and fewer than 2**log_n. If their
// magnitudes differ little, one float64 holds the sum, and two the sum of squares: one for multiples of
// a power of two, one for the remainders. If they differ more, it takes two and three.
constexpr int MOST_BITS = 26;  // bits of an element: above, its square is no float64

struct Magnitudes {
    int unit, top, log_n;

    __device__ __forceinline__ bool are_few() const {
        bool fit = top - unit + log_n <= 52 && top - unit <= 52 - log_n;
        return fit && (KIND == FLOATING ? BITS < 64 : top <= MOST_BITS);
    }
    __device__ __forceinline__ bool are_some() const {
        bool fit = top - unit <= 106 - 2 * log_n && 2 * (top - unit) <= 158 - 3 * log_n;
        return fit && (KIND == FLOATING ? BITS < 64 : top <= MOST_BITS);
    }
    // Squares, remainders and elements are rounded to multiples of 2**cut, so that a float64 holds
    // their sum.
    __device__ __forceinline__ int cut_of_squares() const { return 2 * top + log_n - 52; }
    __device__ __forceinline__ int cut_of_rest() const { return cut_of_squares() + log_n - 53; }
    __device__ __forceinline__ int cut_of_elements() const { return top + log_n - 52; }
};

// Adding this, and subtracting it again, rounds a number of up to 2**(cut + 51) to a multiple of 2**cut.
__device__ __forceinline__ double rounder_to(int cut) {
    return __longlong_as_double(((i64)(cut + 52 + 1023) << 52) + (1ll << 51));
}

__device__ __forceinline__ double rounded_by(double x, double rounder) {
    return __dadd_rn(__dadd_rn(x, rounder), -rounder);
}

// For elements whose magnitudes are at most `size`, and, except for zeros, at least `smallest`.
__device__ __forceinline__ Magnitudes magnitudes(double smallest, double size, u32 n) {
    int log_n = 32 - __clz(n);
#if KIND == FLOATING
    int top = (int)(__double_as_longlong(size) >> 52) - 1022;
    int unit = (int)(__double_as_longlong(smallest) >> 52) - 1023 - (BITS == 16 ? 10 : 23);
    return {max(unit, BITS == 16 ? -24 : -149), top, log_n};
#else
    return {0, size < 1.0 ? 0 : (int)(__double_as_longlong(size) >> 52) - 1022, log_n};
#endif
}

// The numbers by which others are rounded.
struct Rounders {
    double squares, rest, elements;

    __device__ __forceinline__ explicit Rounders(const Magnitudes& of)
        : squares(rounder_to(of.cut_of_squares())), rest(rounder_to(of.cut_of_rest())),
          elements(rounder_to(of.cut_of_elements())) {}
};

// Sums of elements whose magnitudes differ little, or somewhat more: the elements in two parts, and
// their squares in three. All parts are exact; if magnitudes differ little, `rest` and `middle` are 0.
struct PlainSums {
    double sum, rest, high, middle, low;

    __device__ __forceinline__ PlainSums() : sum(0.0), rest(0.0), high(0.0), middle(0.0), low(0.0) {}

    template <int N>
    __device__ __forceinline__ void add(const double (&x)[N], const Rounders& by, bool are_few) {
        double left[N];
#pragma unroll
        for (int k = 0; k < N; ++k) {
            double square = __dmul_rn(x[k], x[k]), rounded = rounded_by(square, by.squares);
            left[k] = __dadd_rn(square, -rounded), high = __dadd_rn(high, rounded);
        }
        if (are_few) {
#pragma unroll
            for (int k = 0; k < N; ++k) sum = __dadd_rn(sum, x[k]), low = __dadd_rn(low, left[k]);
            return;
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
            double near = rounded_by(left[k], by.rest), most = rounded_by(x[k], by.elements);
            middle = __dadd_rn(middle, near), low = __dadd_rn(low, __dadd_rn(left[k], -near));
            sum = __dadd_rn(sum, most), rest = __dadd_rn(rest, __dadd_rn(x[k], -most));
        }
    }

    // Merge the sums with those that `other` returns for each part.
    template <class Other>
    __device__ __forceinline__ void merge(Other other, bool are_few) {
        sum = __dadd_rn(sum, other(sum)), high = __dadd_rn(high, other(high)), low = __dadd_rn(low, other(low));
        if (!are_few) rest = __dadd_rn(rest, other(rest)), middle = __dadd_rn(middle, other(middle));
    }
};

// --- Sums of lanes -------------------------------------------------------------------------------

// Sums of the finite elements of a lane or of a part of it.
struct LaneSums {
    Exact<SUM_LEVELS> total, square;
    u32 n_high, n_low;  // numbers of infinite elements

    __device__ __forceinline__ LaneSums() : n_high(0), n_low(0) {}

    __device__ __forceinline__ void add(Value value) {
#if KIND == FLOATING
        double x = as_double(value), size = fabs(x);
        if (!(size < INFINITE)) {
            n_high += x > 0.0, n_low += x < 0.0;
            return;
        }
        total.add(x);
#if BITS < 64
        square.add(__dmul_rn(x, x));  // at most 48 bits
#else
        square.add_product(x, x);
        square.lost |= size > FARTHEST || (size < 1.0 / FARTHEST && size > 0.0);
#endif
#elif BITS <= 16
        double x = (double)value;
        total.add(x), square.add(__dmul_rn(x, x));
#elif BITS == 32
        double x = (double)value;
        total.add(x), square.add_product(x, x);
#else
        // Two halves, each of which a float64 holds.
        double low = (double)(u32)value;
#if KIND == SIGNED
        double high = (double)(int)(value >> 32) * 0x1p32;
#else
        double high = (double)(u32)(value >> 32) * 0x1p32;
#endif
        total.add(high), total.add(low);
        square.add_product(high, high), square.add_product(2.0 * high, low), square.add_product(low, low);
#endif
    }

    // Take over plain sums.
    __device__ __forceinline__ void set(const PlainSums& plain) {
        double (&s)[SUM_LEVELS] = square.parts;
        total.parts[0] = two_sum(plain.sum, plain.rest, total.parts[1]);
        double more, most = two_sum(plain.high, plain.middle, more);
        s[0] = two_sum(most, plain.low, most), s[1] = two_sum(more, most, s[2]);
    }

    // Merge the sums with those of another part.
    __device__ __forceinline__ void merge(const LaneSums& other) {
        add_parts(total, other.total), add_parts(square, other.square);
        n_high += other.n_high, n_low += other.n_low;
    }

    // Compute mean and standard deviation of n elements, each rounded once; return whether that is
    // sure.
    __device__ __forceinline__ bool finish(u32 n, double& mean, double& deviation) const {
        double nan = __longlong_as_double(0x7ff8000000000000ll);
        mean = deviation = nan;
        if (n_high || n_low) {
            if (!(n_high && n_low)) mean = n_high ? INFINITE : -INFINITE;
            return true;
        }
        if (n == 0) return true;
        bool sure = true, is_one = true;
        double by = (double)n;
#pragma unroll
        for (int l = 1; l < SUM_LEVELS; ++l) is_one = is_one && total.parts[l] == 0.0;
        Leading sum = {total.parts[0], 0.0, 0.0, true, true};
        if (is_one && !total.lost && !square.lost) {  // a quotient of two numbers is rounded once
            mean = __ddiv_rn(total.parts[0], by);
        } else {
            sum = leading(total);
            mean = quotient(sum, by, sure);
        }
        // The variance times n squared.
        Exact<SPREAD_LEVELS> spread;
        spread.lost = total.lost || square.lost;
        double parts[3] = {sum.high, sum.middle, sum.low};
        spread.lost |= !sum.is_all;
#pragma unroll
        for (int l = 0; l < SUM_LEVELS; ++l) {
            if (square.parts[l] != 0.0) spread.add_product(by, square.parts[l]);
        }
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            if (parts[i] == 0.0) continue;
            spread.add_product(-parts[i], parts[i]);
#pragma unroll
            for (int j = 0; j < i; ++j) {
                if (parts[j] != 0.0) spread.add_product(-2.0 * parts[j], parts[i]);
            }
        }
        Leading leads = leading(spread);
        leads.is_known = leads.is_known && leads.high >= 0.0;
        deviation = root_over(leads, by, n, sure);
        return sure;
    }
};
