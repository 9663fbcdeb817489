// Weighted lanes: their layout in memory, and what kernels of quantiles share.

#include "pairs.cuh"

// Weights and elements whose products are exact, except for zeros: in this range, and its inverse.
constexpr double FARTHEST_ENDS = 0x1p120;
constexpr double LEAST_SHARE = 0x1p-100;

struct ReachLanes {  // strides in elements, of (outer, rows, inner)
    i64 n_lanes, n_inner, n;
    i64 outer, row, inner;
    i64 weights_outer, weights_row, weights_inner;
    i64 keeps_outer, keeps_row, keeps_inner;
    i64 n_targets;
    double slack;  // of a sum, relative to the weight of the lane
    double scale;  // of weights that are rounded to integers
};

constexpr i64 ALL_IDLE = -1;  // instead of a number of missing elements, if all elements are without weight

// Weights of elements that a mask leaves out are -0.0.
constexpr double LEFT_OUT = -0.0;

__device__ __forceinline__ bool is_idle(double weight) { return __double_as_longlong(weight) == 0; }

// Return where the first element of a lane is.
__device__ __forceinline__ i64 place_of_lane(const ReachLanes& lanes, i64 number, i64 of_outer, i64 of_inner) {
    if (lanes.n_inner == 1) return number * of_outer;
    i64 outer = number >> 32 ? number / lanes.n_inner : (u32)number / (u32)lanes.n_inner;
    return outer * of_outer + (number - outer * lanes.n_inner) * of_inner;
}

// Every BY-th row of a lane, from its first one on.
template <int BY>
struct Rows {
    const Word* word;
    const double* weight;
    const Keep* keep;
    i64 jump, weights_jump, keeps_jump;
    int n;  // rows from this one to the end of the lane

    __device__ __forceinline__ Rows(
        const Word* values, const double* weights, const Keep* keeps, const ReachLanes& lanes, i64 number, int first
    ) : jump(BY * lanes.row), weights_jump(BY * lanes.weights_row), keeps_jump(KEEPS ? BY * lanes.keeps_row : 0) {
        n = number < lanes.n_lanes ? (int)lanes.n - first : 0;
        number = min(number, lanes.n_lanes - 1);
        word = values + place_of_lane(lanes, number, lanes.outer, lanes.inner) + first * lanes.row;
        weight = weights + place_of_lane(lanes, number, lanes.weights_outer, lanes.weights_inner) + first * lanes.weights_row;
        keep = keeps;
        if (KEEPS) keep += place_of_lane(lanes, number, lanes.keeps_outer, lanes.keeps_inner) + first * lanes.keeps_row;
    }
    // Read an element, and its weight, which may be in shared memory: LEFT_OUT if it is left out.
    template <bool IS_NEAR = false>
    __device__ __forceinline__ Word read(double& w, const double* common = nullptr) const {
        bool is_row = n > 0;
        Word its = is_row ? __ldg(word) : Word(0);
        w = LEFT_OUT;
        if (is_row) w = IS_NEAR ? *common : __ldg(weight);
        if (KEEPS && is_row && !__ldg(keep)) w = LEFT_OUT;
        return its;
    }
    __device__ __forceinline__ Rows at(i64 row) const {
        Rows its = *this;
        its.word += row * (jump / BY), its.weight += row * (weights_jump / BY), its.keep += row * (keeps_jump / BY);
        its.n -= (int)row;
        return its;
    }
    __device__ __forceinline__ void step() { word += jump, weight += weights_jump, keep += keeps_jump, n -= BY; }
};

// --- Quantiles --------------------------------------------------------------------------------------

constexpr Key NO_KEY = ~Key(0);  // of elements that take no part; no element has a larger one
constexpr double LEAST_MEAN = 0x1p-700;  // so that products of squares and steps are no denormal numbers

struct ReachTarget {  // the first element up to which the weights reach a share, or pass it
    double share;  // 0 and 1 are those of the first and of the last element, however little these weigh
    i64 is_passed;
};

// Write down how many valid and missing elements a lane has.
template <class Numbers>
__device__ __forceinline__ void count(const Numbers& all, i64 number, i64* n_valid, i64* n_missing) {
    bool is_nothing = !all.n_valid && !all.n_missing;
    n_valid[number] = all.n_valid;
    n_missing[number] = is_nothing && all.n_idle ? ALL_IDLE : all.n_missing;
}

// Write down what a lane has, and whether some lane is unsure, or is not complete.
template <class Numbers>
__device__ __forceinline__ void write(
    const Numbers& all, i64 number, bool is_unsure, i64* n_valid, i64* n_missing, unsigned char* are_unsure, u32* flags
) {
    count(all, number, n_valid, n_missing);
    are_unsure[number] = is_unsure && all.n_valid;
    if (is_unsure && all.n_valid) flags[0] = 1;
    if (!all.n_valid || all.n_missing) flags[1] = 1;
}

// The window over which a quantile is a mean. Let W be the weight and S the sum of the squares of all
// weights: in units of W * W, it begins at `q (W * W - S)` and is S wide. The mean is the first element in
// it, and each step to the next element times the part of the window that is behind it.
struct Window {
    Pair weight, square, rest, inverse;  // inverse: of the square
    double unit, error;  // 1 / weight; a bound of the error of sums of weights, times the weight
    Pair first, stop;
    Pair moved;  // the steps, times the parts of the window behind them
    double base, last, n_steps;

    __device__ __forceinline__ Window() {}
    __device__ __forceinline__ Window(const Pair& all, const Pair& squares)
        : weight(all.tidy()), square(squares.tidy()) {
        rest = sum_of(product_of(weight, weight), negative(square)), inverse = quotient_of(Pair(1.0), square);
        unit = 1.0 / weight.high;
    }

    __device__ __forceinline__ void open(double q) { first = product_of(rest, Pair(q)), stop = sum_of(first, square); }

    __device__ __forceinline__ void start(Key key) { base = last = as_double(value_of(word_of(key))), moved = Pair(), n_steps = 0.0; }

    // The window behind elements whose weight is `upto`.
    __device__ __forceinline__ Pair behind(const Pair& upto) const {
        return sum_of(stop, negative(product_of(upto.tidy(), weight)));
    }

    // Step to the next element, with so much of the window behind it.
    __device__ __forceinline__ void step(Key key, const Pair& left) {
        bool is_all = left.high > square.high || (left.high == square.high && left.low >= square.low);
        double value = as_double(value_of(word_of(key)));
        Pair more;
        more.high = two_sum(value, -last, more.low);
        moved = sum_of(moved, product_of(is_all ? square : left, more)), last = value, ++n_steps;
    }

    // Round the mean, whose dtype has `answer_size` bytes.
    __device__ __forceinline__ double rounded(int answer_size, bool& sure) const {
        if (last == base) return base;
        double largest = fmax(fabs(base), fabs(last));
        double off = (last - base) * 2.0 * error * inverse.high + (16.0 + n_steps) * largest * PAIR_ERROR;
        double found = rounded_once(sum_of(Pair(base), product_of(moved, inverse)), off, sure);
        sure = sure && fabs(found) > LEAST_MEAN && largest < (KIND == FLOATING ? FARTHEST_ENDS : 0x1p53);
        // Rounding again is right unless the first rounding has made a tie.
        u64 bits = (u64)__double_as_longlong(found);
        bool is_tie = !(bits & ((1ull << 28) - 1)), is_float = !(bits & ((1ull << 29) - 1)) && fabs(found) > 0x1p-126;
        sure = sure && (answer_size == 8 || !is_tie || (answer_size == 4 && is_float));
        return found;
    }
};
