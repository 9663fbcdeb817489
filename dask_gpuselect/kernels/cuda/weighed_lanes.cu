// Weighted lanes: what is at their ends, for box plots, and quantiles of lanes that are sorted.
//
// Defined before this text: REACH_THREADS; A_BLOCK, how many lanes a block has at the same time, a
// power of two; SIDE_BY_SIDE, 1 if neighbouring lanes are nearer to each other than rows are; and IN_PAIRS,
// 1 if sums of products are pairs of floats, with a bound of their error, and 0 if they are exact.

#include "fences.cuh"
#include "weighed_lanes.cuh"

constexpr int STEP = REACH_THREADS / A_BLOCK;  // threads of a lane, which take every STEP-th row

// --- Ends of lanes --------------------------------------------------------------------------------

constexpr int NEXT = 64;

// Whether the exponent of a number is beyond that of FARTHEST_ENDS, or below that of its inverse. Comparing
// integers takes less time than comparing floats.
__device__ __forceinline__ bool is_far_off(double x) {
    u32 exponent = (u32)((u64)__double_as_longlong(x) >> 52) & 0x7ff;
    return exponent - (1023 - 120) >= 240;
}

// The ends of a lane, or of a part of it, by weight.
struct Ends {
    Exact<3> weight, below, above;  // sums of few weights are often halfway between two floats
#if IN_PAIRS
    Pair total, square, next_total, next_square;  // those of the next few elements are summed apart
    u32 n_next = 0;
#else
    Exact<SUM_LEVELS + 1> total;
    Exact<SUM_LEVELS + (BITS < 64 ? 2 : 3)> square;
#endif
    Key least, most, inside_low, inside_high;
    u32 n_beyond, n_low, n_high;  // elements beyond the bounds, and infinite ones
    u32 is_far;  // squares, or weights, may not be exact

    __device__ __forceinline__ Ends()
        : least(~Key(0)), most(0), inside_low(~Key(0)), inside_high(0), n_beyond(0), n_low(0), n_high(0), is_far(0) {}

    // Add some elements together, so that their additions do not wait for each other. Return whether some are
    // beyond the bounds; the weights of these are added later.
    template <int N>
    __device__ __forceinline__ bool add(const Word (&words)[N], double (&weights)[N], double low, double high) {
        double numbers[N];
        bool has_low = low == low, has_high = high == high;
        u32 is_special = 0, before = n_beyond;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            Value value = value_of(words[k]);
            Key key = key_of(words[k]);
            double x = as_double(value);
            bool takes = __double_as_longlong(weights[k]) > 0 && !is_missing(value);
            bool from_low = x >= low, to_high = x <= high;
            if (takes) least = min(least, key), most = max(most, key);
            if (takes && from_low) inside_low = min(inside_low, key);
            if (takes && to_high) inside_high = max(inside_high, key);
            n_beyond += takes && ((has_low && !from_low) || (has_high && !to_high));
            is_far |= takes && is_far_off(weights[k]);
            is_special |= (takes && is_far_off(x)) << k;
            numbers[k] = takes ? x : 0.0, weights[k] = takes ? weights[k] : 0.0;
        }
        weight.add(weights);
#pragma unroll
        for (int k = 0; k < N && is_special; ++k) {
            double x = numbers[k];
            bool is_one = is_special >> k & 1, is_infinite = is_one && !(fabs(x) < INFINITE);
            n_high += is_infinite && x > 0, n_low += is_infinite && x < 0;
            is_far |= is_one && !is_infinite && x != 0.0;
            if (is_infinite) numbers[k] = 0.0;
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
            double x = numbers[k], w = weights[k], error, own = product_of(x, x, error);
            // The square of a float32 is a float64.
            if (BITS < 32 || (BITS == 32 && KIND == FLOATING)) error = 0.0;
#if IN_PAIRS
            next_total.add_product(w, x), next_square.add_product(w, own);
            if (error != 0.0) next_square.add_product(w, error);
#else
            total.add_product(w, x), square.add_product(w, own);
            if (error != 0.0) square.add_product(w, error);
#endif
        }
#if IN_PAIRS
        n_next += N;
        if (n_next >= NEXT) finish();
#endif
        return n_beyond != before;
    }

    // Add what was summed apart.
    __device__ __forceinline__ void finish() {
#if IN_PAIRS
        total.add(next_total), square.add(next_square);
        next_total = next_square = Pair(), n_next = 0;
#endif
    }

    __device__ __forceinline__ void merge(const Ends& other) {
        add_parts(weight, other.weight), add_parts(below, other.below), add_parts(above, other.above);
        add_parts(total, other.total), add_parts(square, other.square);
        least = min(least, other.least), most = max(most, other.most);
        inside_low = min(inside_low, other.inside_low), inside_high = max(inside_high, other.inside_high);
        n_low += other.n_low, n_high += other.n_high, is_far |= other.is_far;
    }

    // Compute mean and standard deviation, each rounded once. `error` bounds that of a sum of pairs.
    __device__ __forceinline__ void moments(double error, double& mean, double& deviation, bool& sure) const {
        mean = deviation = __longlong_as_double(0x7ff8000000000000ll);
        if (n_high || n_low) {
            if (!(n_high && n_low)) mean = n_high ? INFINITE : -INFINITE;
            return;
        }
        Leading leads = leading(weight);
        if (leads.high == 0.0) return;
#if IN_PAIRS
        if (least == most) {
            mean = as_double(value_of(word_of(least))), deviation = 0.0;
            return;
        }
        // The sum of the magnitudes is at most the root of `whole`.
        Pair by(leads.high, leads.middle), sum = total.tidy(), whole = product_of(square.tidy(), by), ratio = quotient_of(sum, by);
        double off = __dmul_rn(error, __ddiv_rn(__dsqrt_rn(whole.high), by.high));
        mean = rounded_once(ratio, __dadd_rn(off, __dmul_rn(error, fabs(ratio.high))), sure);
        Pair spread = sum_of(whole, negative(product_of(sum, sum)));  // the variance times the square of the weight
        off = 8.0 * error * whole.high, deviation = 0.0;
        sure = sure && !is_far && leads.is_known && spread.high > off;
        if (!sure) return;
        Pair root(__dsqrt_rn(spread.high));
        Pair rest = sum_of(spread, negative(product_of(root, root)));
        root.add(__ddiv_rn(rest.high, 2.0 * root.high));
        ratio = quotient_of(root.tidy(), by);
        deviation = rounded_once(ratio, ratio.high * (off / spread.high + 2.0 * error), sure);
#else
        Wide sum, spread;
        add_parts(sum, total);
        sure = sure && !square.lost && !is_far;
        bool is_exact = true;
        mean = quotient_once(sum, leads, is_exact, sure);
        // The variance times the square of the weight.
        add_product(spread, 1.0, weight, square);
        add_product(spread, -1.0, total, total);
        double size = leading(spread).high;
        sure = sure && !spread.lost && size >= 0.0;
        deviation = 0.0;
        if (!(size > 0.0)) return;
        double root = __dsqrt_rn(size);
        spread.add_product(-root, root);
        double more = __ddiv_rn(leading(spread).high, __dmul_rn(2.0, root));
        spread.add_product(__dmul_rn(-2.0, root), more);
        spread.add_product(-more, more);
        Wide whole;
        whole.add(root), whole.add(more);
        is_exact = is_zero(spread);
        deviation = quotient_once(whole, leads, is_exact, sure);
#endif
    }
};

static_assert(sizeof(Ends) <= ENDS_BYTES, "a thread has room");

// Fliers of all lanes, in any order, each with the number of its lane, doubled, and one more if it is
// above.
struct FlierList {
    Word* elements;
    double* weights;
    i64 *sides, room;
    u64* n;  // and behind it, the number of lanes whose numbers are not sure
};

constexpr int AHEAD = 4;  // rows that a thread reads before it needs them, and adds together

// Visit the rows of a thread: AHEAD elements and their weights at a time.
template <class Visit>
__device__ __forceinline__ void visit_rows(Rows<STEP> rows, Visit visit) {
    Word next[AHEAD], words[AHEAD];
    double next_weights[AHEAD], own[AHEAD];
    auto read = [&] {
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) next[k] = rows.at(k * STEP).read(next_weights[k]);
        rows = rows.at(AHEAD * STEP);
    };
    read();
#pragma unroll 1
    while (rows.n > -AHEAD * STEP) {
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) words[k] = next[k], own[k] = next_weights[k];
        read();
        visit(words, own);
    }
}

// Find what lanes have at their ends, one or several threads for each. The numbers are weight, weight
// below and above the fences, mean and deviation; the extremes are the least and the largest element,
// and the nearest inside the fences, which are NaN if those are. Fences follow from `n_q` quantiles.
extern "C" __global__ void __launch_bounds__(REACH_THREADS, 4) reach_ends(
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes* told, const double* quantiles,
    int n_q, const __grid_constant__ Drawn drawn, const FlierList* list, double* numbers, Word* extremes, unsigned char* are_unsure
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    Ends* all = (Ends*)scratch;
    const ReachLanes lanes = *told;
    const FlierList fliers = *list;
    const int of_block = SIDE_BY_SIDE ? threadIdx.x % A_BLOCK : threadIdx.x / STEP;
    const int first = SIDE_BY_SIDE ? threadIdx.x / A_BLOCK : threadIdx.x % STEP;
    const int apart = SIDE_BY_SIDE ? A_BLOCK : 1;  // threads of a lane, in numbers of threads
    for (i64 start = (i64)blockIdx.x * A_BLOCK; start < lanes.n_lanes; start += (i64)gridDim.x * A_BLOCK) {
        i64 number = start + of_block;
        bool is_one = number < lanes.n_lanes;
        const Rows<STEP> rows(values, weights, keeps, lanes, number, first);
        i64 n_rows = rows.n > 0 ? (rows.n - 1) / STEP + 1 : 0;  // of this thread
        double q[MOST_Q] = {}, low, high;
#pragma unroll
        for (int i = 0; i < MOST_Q; ++i) {
            if (is_one && i < n_q) q[i] = quantiles[i * lanes.n_lanes + number];
        }
        fences_of(drawn, q, low, high);
        Ends ends;
        // A bit for each stretch of rows that has elements beyond the bounds.
        const i64 stretch = (n_rows / (64 * AHEAD) + 1) * AHEAD;
        i64 n_left = stretch;
        u64 marks = 0, mark = 1;
        visit_rows(rows, [&](const Word (&words)[AHEAD], double (&w)[AHEAD]) {
            if (ends.add(words, w, low, high)) marks |= mark;
            if ((n_left -= AHEAD) == 0) mark <<= 1, n_left = stretch;
        });
        ends.finish();
        // The first thread of a warp takes places for the fliers of all.
        u32 n_upto = sum_upto(ends.n_beyond);
        i64 place = reserved(fliers.n, __shfl_sync(ALL_LANES, n_upto, 31)) + n_upto - ends.n_beyond;
#pragma unroll 1
        for (; marks; marks &= marks - 1) {
            i64 begin = (__ffsll(marks) - 1) * stretch;
            Rows<STEP> at = rows.at(begin * STEP);
#pragma unroll 4
            for (i64 row = begin; row < min(begin + stretch, n_rows); ++row, at.step()) {
                Word word = __ldg(at.word);
                double x = as_double(value_of(word));
                if (!(x < low || x > high) || (KEEPS && !__ldg(at.keep))) continue;
                double w = __ldg(at.weight);
                if (!(w > 0)) continue;
                if (x < low) ends.below.add(w);
                else ends.above.add(w);
                if (place < fliers.room) {
                    fliers.elements[place] = word, fliers.weights[place] = w;
                    fliers.sides[place] = 2 * number + (x > high);
                }
                ++place;
            }
        }
        if (STEP > 1) {
            __syncthreads();
            all[threadIdx.x] = ends;
#pragma unroll 1
            for (int half = STEP / 2; half; half /= 2) {
                __syncthreads();
                if (first < half) all[threadIdx.x].merge(all[threadIdx.x + half * apart]);
            }
            ends = all[threadIdx.x];
        }
        if (!is_one || first) continue;
        bool sure = true;
        // So many numbers are added one after the other, or sums of them.
        double mean, deviation, size = NEXT + lanes.n / STEP / NEXT + 32.0, error = size * size * PAIR_ERROR;
        ends.moments(error, mean, deviation, sure);
        double found[5] = {
            rounded_once(ends.weight, sure), rounded_once(ends.below, sure), rounded_once(ends.above, sure),
            mean, deviation
        };
        bool has_low = KIND != FLOATING || low == low, has_high = KIND != FLOATING || high == high;
        Key keys[4] = {
            ends.least, ends.most, has_low ? ends.inside_low : LARGEST, has_high ? ends.inside_high : LARGEST
        };
#pragma unroll
        for (int i = 0; i < 5; ++i) numbers[i * lanes.n_lanes + number] = found[i];
#pragma unroll
        for (int i = 0; i < 4; ++i) extremes[i * lanes.n_lanes + number] = word_of(keys[i]);
        are_unsure[number] = !sure;
        if (!sure) atomicAdd(fliers.n + 1, 1ull);
    }
}

// --- Lanes that are sorted ------------------------------------------------------------------------

// The wanted answer, by its place in `lane_weights.METHODS`: the first element up to which the weights reach
// a share, also the first up to which they pass it, or the mean over a window of the weight.
constexpr int UNTIL_PASSED = 1;
constexpr int OVER_WINDOW = 2;

// The sorted elements of a lane that take part, by their places, and the weight of the first.
struct Walk {
    Rows<1> rows;
    const u32* places;
    i64 n, j;
    Exact<3> upto;  // the weight of the elements up to j

    __device__ __forceinline__ double weight(i64 i) const { return rows.weight[places[i] * rows.weights_jump]; }
    // With +0.0 for -0.0.
    __device__ __forceinline__ Value value(i64 i) const {
        return value_of(word_of(key_of(rows.word[places[i] * rows.jump])));
    }
    __device__ __forceinline__ double number(i64 i) const { return as_double(value(i)); }
    __device__ __forceinline__ void start() {
        j = 0, upto = Exact<3>();
        upto.add(weight(0));
    }
    __device__ __forceinline__ void step() { upto.add(weight(++j)); }
    __device__ __forceinline__ bool is_last() const { return j + 1 >= n; }
    // A bound of the error of the first part of the weight, relative to it.
    __device__ __forceinline__ double slack() const { return 0x1p-52 * (double)(n + 8); }
    // Walk to the first element up to which the weight, rounded to 53 bits, is a share or more.
    __device__ __forceinline__ void reach(double share, bool is_passed, bool& sure) {
        double margin = slack() * share;
        for (; !is_last(); step()) {
            double near = upto.parts[0];
            if (fabs(near - share) <= margin) near = rounded_once(upto, sure);
            if (is_passed ? near > share : near >= share) return;
        }
    }
};

// Whether products of a number with sums of squares of weights may be denormal, and lose bits.
__device__ __forceinline__ bool is_tiny(double x) { return x != 0.0 && fabs(x) < 0x1p-400; }

// The mean over the window of a share: the first element in it, and each step to the next element
// times the part of the window that is behind it. Let W be the weight and S the sum of the squares of
// all weights: in units of W * W, the window begins at `q (W * W - S)` and is S wide. All is exact.
__device__ double mean_of_window(
    Walk& walk, double q, const Exact<3>& weight, const Exact<5>& square, const Wide& other, bool is_double,
    bool& sure
) {
    double size = weight.parts[0], first = q * leading(other).high / size, width = square.parts[0] / size;
    double margin = size * (0x1p-40 + walk.slack());
    while (!walk.is_last() && walk.upto.parts[0] <= first - margin) walk.step();
    double base = walk.number(walk.j), last = base;
    Walk ahead = walk;
    Wide stop, sum, none;
    add_times(stop, q, other);
    add_parts(stop, square);
#pragma unroll 1
    for (; !ahead.is_last() && ahead.upto.parts[0] < first + width + margin; ahead.step()) {
        Wide part = stop, beyond;
        add_product(part, -1.0, ahead.upto, weight);
        double next = ahead.number(ahead.j + 1);
        Exact<2> step;
        step.parts[0] = two_sum(next, -last, step.parts[1]);
        sure = sure && !part.lost && !is_tiny(step.parts[0]) && !is_tiny(step.parts[1]);
        if (!(leading(part).high > 0.0)) break;
        if (step.parts[0] == 0.0) continue;
        last = next;
        beyond = part;
        add_times(beyond, -1.0, square);
        if (leading(beyond).high > 0.0) part = none, add_parts(part, square);
        add_product(sum, 1.0, part, step);
    }
    if (last == base) return base;
    double largest = fmax(fabs(base), fabs(last));
    sure = sure && !is_tiny(base);
    add_times(sum, base, square);
    bool is_exact = true;
    double mean = quotient_once(sum, leading(square), is_exact, sure);
    // Rounding again is right unless the first rounding has made a tie.
    bool is_tie = (__double_as_longlong(mean) & ((1ll << 28) - 1)) == 0;
    sure = sure && largest < (KIND == FLOATING ? FARTHEST_ENDS : 0x1p53) && !sum.lost && (is_exact || is_double || !is_tie);
    return mean;
}

// Find what is wanted of each lane, whose elements that take part are at the first of its places, in
// order. One thread takes a lane. Means are numbers, and other answers are elements.
extern "C" __global__ void __launch_bounds__(REACH_THREADS) reach_sorted(
    const Word* values, const double* weights, const ReachLanes* told, const u32* places, const i64* n_valid,
    const double* shares, int n_shares, int wanted, int is_double, Value* lower, Value* upper, double* means,
    unsigned char* are_unsure
) {
    const ReachLanes lanes = *told;
    i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 lane = (i64)blockIdx.x * blockDim.x + threadIdx.x; lane < lanes.n_lanes; lane += stride) {
        bool sure = true;
        Walk walk = {{values, weights, nullptr, lanes, lane, 0}, places + lane * lanes.n, n_valid[lane]};
        Exact<3> weight;
        Exact<5> square;
        for (i64 j = 0; j < walk.n; ++j) {
            double w = walk.weight(j);
            weight.add(w);
            if (wanted != OVER_WINDOW) continue;
            square.add_product(w, w);
            square.lost |= w > FARTHEST_ENDS || w < 1.0 / FARTHEST_ENDS;
        }
        sure = !weight.lost && !square.lost;
        Wide other;
        if (wanted == OVER_WINDOW) add_product(other, 1.0, weight, weight);
        add_times(other, -1.0, square);
        double before = INFINITE;
#pragma unroll 1
        for (int k = 0; k < n_shares; ++k) {
            i64 at = k * lanes.n_lanes + lane;
            if (!walk.n) {
                if (wanted == OVER_WINDOW) means[at] = 0.0; else lower[at] = upper[at] = 0;
                continue;
            }
            double q = shares[k];
            if (!(q >= before)) walk.start();
            before = q;
            sure = sure && (q == 0.0 || q > LEAST_SHARE);
            if (wanted == OVER_WINDOW) {
                means[at] = mean_of_window(walk, q, weight, square, other, is_double, sure);
                continue;
            }
            Exact<5> product;
            add_times(product, q, weight);
            Leading own = leading(product);
            sure = sure && own.is_known;
            double share = rounded_sum(own.high, own.middle, own.low == 0.0 && own.is_all, sure);
            // The shares 0 and 1 are those of the first and of the last element.
            bool is_inner = q > 0.0 && q < 1.0;
            Walk ahead = walk;
            if (is_inner) walk.reach(share, false, sure), ahead = walk;
            if (is_inner && wanted == UNTIL_PASSED) ahead.reach(share, true, sure);
            i64 last = walk.n - 1;
            lower[at] = walk.value(is_inner ? walk.j : q > 0.0 ? last : 0);
            upper[at] = walk.value(is_inner ? ahead.j : q > 0.0 ? last : 0);
        }
        are_unsure[lane] = !sure;
    }
}
