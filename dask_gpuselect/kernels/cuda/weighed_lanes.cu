// Weighted quantiles of lanes: the first element of each up to which the weights reach a share.
//
// A block has the keys of some lanes in shared memory, and one or several threads for each lane. They
// find two bits of the answer's key at a time, from the least key of the lane on: the sums of the weights
// below three keys say which bits follow, until one key is left. Sums are floats, which are exact where weights are integers. Elsewhere an answer is unsure if
// a sum is so near to the share that rounding may have moved it past; the host finds that by integers.
//
// Other kernels sort the lanes, and find what is at their ends for box plots.
//
// Defined before this text: REACH_THREADS; A_BLOCK, how many lanes a block has at the same time, a
// power of two; SIDE_BY_SIDE, 1 if neighbouring lanes are nearer to each other than rows are; and
// WEIGHTS_ARE, where weights are found.

#include "lane_sums.cuh"

constexpr int OF_LANES = 0;  // in shared memory, for each lane
constexpr int OF_ROWS = 1;   // in shared memory, the same for all lanes
constexpr int APART = 2;     // in the device's memory, the same for all lanes

struct ReachLanes {  // strides in elements, of (outer, rows, inner)
    i64 n_lanes, n_inner, n;
    i64 outer, row, inner;
    i64 weights_outer, weights_row, weights_inner;
    i64 n_targets;
    double slack;  // of a sum, relative to the weight of the lane
};

// What is wanted: the first element up to which the weights reach a share, or pass it. The shares 0
// and 1 are those of the first and of the last element, however little these weigh.
struct ReachTarget {
    double share;
    i64 is_passed;
};

constexpr int PITCH = A_BLOCK + (A_BLOCK > 1);
constexpr int STEP = REACH_THREADS / A_BLOCK;  // threads of a lane, which take every STEP-th row
constexpr int A_WARP = A_BLOCK < 32 ? A_BLOCK : 32;                 // lanes of a warp
constexpr int PARTS = A_BLOCK < 32 ? REACH_THREADS / 32 : STEP;     // sums of a lane, each of a warp's threads
constexpr int TOTALS = A_BLOCK * REACH_SUMS;

struct Lane {
    const Key* keys;  // in shared memory
    const double* weights;
    i64 weights_pitch;
    int n, first;
    double* sums;  // `TOTALS` of the block's lanes, and the parts of these

    __device__ __forceinline__ double weight(int row) const {
        if (WEIGHTS_ARE == APART) return weights[row * weights_pitch];
        return weights[WEIGHTS_ARE == OF_ROWS ? row : row * PITCH];
    }

    // Add up what the threads of the lane have, and find the extremes of their keys. All of them get the
    // same results.
    __device__ __forceinline__ void add_up(double (&mine)[3], Key& least, Key& most) const {
        if (STEP == 1) return;
#pragma unroll
        for (int by = A_WARP; by < 32; by *= 2) {
#pragma unroll
            for (int j = 0; j < 3; ++j) mine[j] += __shfl_xor_sync(ALL_LANES, mine[j], by);
            least = min(least, (Key)__shfl_xor_sync(ALL_LANES, (u64)least, by));
            most = max(most, (Key)__shfl_xor_sync(ALL_LANES, (u64)most, by));
        }
        int of_block = threadIdx.x % A_BLOCK, part = A_BLOCK < 32 ? threadIdx.x / 32 : first;
        double* parts = sums + TOTALS;
        if (threadIdx.x % 32 < A_WARP) {
            double* own = parts + part * TOTALS + REACH_SUMS * of_block;
            for (int j = 0; j < 3; ++j) own[j] = mine[j];
            ((u64*)own)[3] = least, ((u64*)own)[4] = most;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TOTALS; i += REACH_THREADS) {
            int j = i % REACH_SUMS;
            double total = 0;
            u64 key = j == 3 ? ~0ull : 0;
#pragma unroll 4
            for (int p = 0; p < PARTS; ++p) {
                u64 its = ((const u64*)parts)[p * TOTALS + i];
                if (j < 3) total += parts[p * TOTALS + i];
                key = j == 3 ? min(key, its) : max(key, its);
            }
            if (j < 3) sums[i] = total;
            else ((u64*)sums)[i] = key;
        }
        __syncthreads();
        const double* own = sums + REACH_SUMS * of_block;
        for (int j = 0; j < 3; ++j) mine[j] = own[j];
        least = (Key)((const u64*)own)[3], most = (Key)((const u64*)own)[4];
    }

    // The weight below three keys: one, two and three steps of `1 << shift` from a key; and the extremes
    // of the keys in the four steps.
    __device__ __forceinline__ void below(
        Key from, int shift, bool is_open, double (&found)[3], Key& least, Key& most
    ) const {
        double a = 0, b = 0, c = 0;
        least = ~Key(0), most = 0;
#pragma unroll 8
        for (int row = is_open ? first : n; row < n; row += STEP) {
            Key key = keys[row * PITCH];
            double w = weight(row);
            bool is_before = key < from;
            Key steps = is_before ? Key(0) : (Key)((key - from) >> shift);
            if (steps < 1) a += w;
            if (steps < 2) b += w;
            if (steps < 3) c += w;
            bool is_in = !is_before && steps < 4;
            least = min(least, is_in ? key : ~Key(0));
            most = max(most, is_in ? key : Key(0));
        }
        found[0] = a;
        found[1] = b;
        found[2] = c;
        add_up(found, least, most);
    }

    // The first key, between two, up to which the weights reach the share, or pass it.
    __device__ __forceinline__ Key reached(
        Key key, Key last, double share, bool is_passed, double slack, bool& is_unsure
    ) const {
        bool is_open = n > 0 && key < last;
        int shift = is_open ? (65 - __clzll((i64)(u64)(last - key))) / 2 * 2 - 2 : 0;
        while (STEP > 1 ? __syncthreads_or(is_open) : is_open) {
            double found[3];
            Key least, most;
            below(key, shift, is_open, found, least, most);
            if (!is_open) continue;
            int digit = 0;
            for (int j = 0; j < 3; ++j) {
                digit += is_passed ? found[j] <= share : found[j] < share;
                is_unsure |= slack > 0 && fabs(found[j] - share) <= slack;
            }
            key += (Key)digit << shift;
            if (least == most) key = least;
            is_open = least != most && shift > 0;
            shift -= 2;
        }
        return min(key, last);
    }
};

// Where the first element of a lane is.
__device__ __forceinline__ i64 place_of_lane(const ReachLanes& lanes, i64 number, i64 of_outer, i64 of_inner) {
    if (lanes.n_inner == 1) return number * of_outer;
    i64 outer = number >> 32 ? number / lanes.n_inner : (u32)number / (u32)lanes.n_inner;
    return outer * of_outer + (number - outer * lanes.n_inner) * of_inner;
}

// Copy an element to shared memory, and its weight. NaN gets the largest key, which no number has.
__device__ __forceinline__ void put(
    Word word, const double* weight, int row, int lane, Key* keys, double* held
) {
    keys[row * PITCH + lane] = is_missing(value_of(word)) ? ~Key(0) : key_of(word);
    if (WEIGHTS_ARE == OF_LANES) held[row * PITCH + lane] = *weight;
}

// Copy the lanes of a tile. Neighbouring threads read neighbouring elements: of lanes side by side,
// those of a row.
__device__ __forceinline__ void load(
    const ReachLanes& lanes, const Word* values, const double* weights, i64 start, Key* keys, double* held
) {
    const int n = (int)lanes.n, n_lanes = (int)min(lanes.n_lanes - start, (i64)A_BLOCK);
    if (SIDE_BY_SIDE) {
        int lane = threadIdx.x % A_BLOCK;
        if (lane >= n_lanes) return;
        const Word* its = values + place_of_lane(lanes, start + lane, lanes.outer, lanes.inner);
        const double* own = weights + place_of_lane(lanes, start + lane, lanes.weights_outer, lanes.weights_inner);
#pragma unroll 4
        for (int row = threadIdx.x / A_BLOCK; row < n; row += STEP) {
            put(its[row * lanes.row], own + row * lanes.weights_row, row, lane, keys, held);
        }
        return;
    }
    for (int i = threadIdx.x; i < n * n_lanes; i += REACH_THREADS) {
        int lane = A_BLOCK == 1 ? 0 : (u32)i / (u32)n, row = i - lane * n;
        i64 place = place_of_lane(lanes, start + lane, lanes.outer, lanes.inner) + row * lanes.row;
        i64 its = place_of_lane(lanes, start + lane, lanes.weights_outer, lanes.weights_inner);
        put(values[place], weights + its + row * lanes.weights_row, row, lane, keys, held);
    }
}

extern "C" __global__ void __launch_bounds__(REACH_THREADS) reach_lanes(
    const Word* values, const double* weights, const ReachLanes* told, const ReachTarget* targets,
    Value* found, i64* n_valid, i64* n_missing, unsigned char* are_unsure
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    const ReachLanes lanes = *told;
    double* sums = (double*)scratch;
    double* held = sums + (STEP > 1 ? TOTALS * (1 + PARTS) : 0);
    i64 n_held = WEIGHTS_ARE == OF_LANES ? lanes.n * PITCH : WEIGHTS_ARE == OF_ROWS ? lanes.n : 0;
    Key* keys = (Key*)(held + n_held);
    if (WEIGHTS_ARE == OF_ROWS) {
        for (int row = threadIdx.x; row < lanes.n; row += REACH_THREADS) {
            held[row] = weights[row * lanes.weights_row];
        }
    }
    int of_block = threadIdx.x % A_BLOCK;
    Lane lane;
    lane.keys = keys + of_block;
    lane.weights = WEIGHTS_ARE == APART ? weights : WEIGHTS_ARE == OF_ROWS ? held : held + of_block;
    lane.weights_pitch = lanes.weights_row;
    lane.first = threadIdx.x / A_BLOCK;
    lane.sums = sums;
    for (i64 start = (i64)blockIdx.x * A_BLOCK; start < lanes.n_lanes; start += (i64)gridDim.x * A_BLOCK) {
        __syncthreads();
        load(lanes, values, weights, start, keys, held);
        __syncthreads();
        i64 number = start + of_block;
        bool is_one = number < lanes.n_lanes;
        lane.n = is_one ? (int)lanes.n : 0;  // all threads wait for each other all the same
        double totals[3] = {0, 0, 0};  // weight, number, and number of missing elements
        Key least = ~Key(0), most = 0;
#pragma unroll 4
        for (int row = lane.first; row < lane.n; row += STEP) {
            double w = lane.weight(row);
            Key key = lane.keys[row * PITCH];
            bool is_nan = KIND == FLOATING && key == ~Key(0);
            totals[0] += is_nan ? 0 : w;
            totals[1] += w > 0 && !is_nan;
            totals[2] += w > 0 && is_nan;
            if (w > 0 && !is_nan) least = min(least, key), most = max(most, key);
        }
        lane.add_up(totals, least, most);
        bool is_unsure = false;
        for (i64 t = 0; t < lanes.n_targets; ++t) {
            double q = targets[t].share, slack = totals[0] * lanes.slack;
            bool is_passed = targets[t].is_passed;
            Key key = q == 0   ? least
                      : q == 1 ? most
                               : lane.reached(least, most, q * totals[0], is_passed, slack, is_unsure);
            if (is_one && lane.first == 0) found[number * lanes.n_targets + t] = value_of(word_of(key));
        }
        if (is_one && lane.first == 0) {
            n_valid[number] = (i64)totals[1];
            n_missing[number] = (i64)totals[2];
            are_unsure[number] = is_unsure;
        }
    }
}

// --- Ends of lanes --------------------------------------------------------------------------------

// Weights and elements whose products are exact, except for zeros: in this range, and its inverse.
constexpr double FARTHEST_ENDS = 0x1p120;

// What a lane, or a part of it, has at its ends, by weight.
struct Ends {
    Exact<3> weight, below, above;
    Exact<SUM_LEVELS + 1> total;
    Exact<SUM_LEVELS + (BITS < 64 ? 2 : 3)> square;
    Key least, most, inside_low, inside_high;
    u32 n_beyond, n_low, n_high;  // elements beyond the bounds, and infinite ones

    __device__ __forceinline__ Ends()
        : least(~Key(0)), most(0), inside_low(~Key(0)), inside_high(0), n_beyond(0), n_low(0), n_high(0) {}

    __device__ __forceinline__ void add(Word word, double w, double low, double high) {
        Value value = value_of(word);
        if (!(w > 0) || is_missing(value)) return;
        Key key = key_of(word);
        double x = as_double(value), size = fabs(x);
        least = min(least, key), most = max(most, key);
        if (x >= low) inside_low = min(inside_low, key);
        if (x <= high) inside_high = max(inside_high, key);
        weight.add(w);
        if (x < low) below.add(w), ++n_beyond;
        if (x > high) above.add(w), ++n_beyond;
        if (!(size < INFINITE)) {
            n_high += x > 0, n_low += x < 0;
            return;
        }
        if (x == 0.0) return;
        total.add_product(w, x);
        double error, own = product_of(x, x, error);
        square.add_product(w, own);
        if (error != 0.0) square.add_product(w, error);
        bool is_far = size > FARTHEST_ENDS || size < 1.0 / FARTHEST_ENDS;
        square.lost |= is_far || w > FARTHEST_ENDS || w < 1.0 / FARTHEST_ENDS;
    }

    __device__ __forceinline__ void merge(const Ends& other) {
        add_parts(weight, other.weight), add_parts(below, other.below), add_parts(above, other.above);
        add_parts(total, other.total), add_parts(square, other.square);
        least = min(least, other.least), most = max(most, other.most);
        inside_low = min(inside_low, other.inside_low), inside_high = max(inside_high, other.inside_high);
        n_low += other.n_low, n_high += other.n_high;
    }

    // Compute mean and standard deviation, each rounded once.
    __device__ __forceinline__ void moments(double& mean, double& deviation, bool& sure) const {
        mean = deviation = __longlong_as_double(0x7ff8000000000000ll);
        if (n_high || n_low) {
            if (!(n_high && n_low)) mean = n_high ? INFINITE : -INFINITE;
            return;
        }
        Leading by = leading(weight);
        if (by.high == 0.0) return;
        Wide sum, spread;
        add_parts(sum, total);
        sure = sure && !square.lost;
        bool is_exact = true;
        mean = quotient_once(sum, by, is_exact, sure);
        // The variance times the square of the weight.
#pragma unroll 1
        for (int i = 0; i < 3; ++i) {
#pragma unroll 1
            for (int j = 0; j < SUM_LEVELS + (BITS < 64 ? 2 : 3); ++j) {
                double a = weight.parts[i], b = square.parts[j];
                if (a != 0.0 && b != 0.0) spread.add_product(a, b);
            }
        }
#pragma unroll 1
        for (int i = 0; i < SUM_LEVELS + 1; ++i) {
#pragma unroll 1
            for (int j = 0; j < SUM_LEVELS + 1; ++j) {
                double a = total.parts[i], b = total.parts[j];
                if (a != 0.0 && b != 0.0) spread.add_product(-a, b);
            }
        }
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
        deviation = quotient_once(whole, by, is_exact, sure);
    }
};

static_assert(sizeof(Ends) <= ENDS_BYTES, "a thread has room");

// Fliers of all lanes, in any order, each with the number of its lane, doubled, and one more if it is
// above.
struct FlierList {
    Word* elements;
    double* weights;
    i64 *sides, room;
    u64* n;
};

// Find what lanes have at their ends, one or several threads for each. The numbers are weight, weight
// below and above the bounds, mean and deviation; the extremes are the least and the largest element,
// and the nearest inside the bounds.
extern "C" __global__ void __launch_bounds__(REACH_THREADS) reach_ends(
    const Word* values, const double* weights, const ReachLanes* told, const double* lows,
    const double* highs, const FlierList* list, double* numbers, Word* extremes, unsigned char* are_unsure
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
        i64 n = is_one ? lanes.n : 0;
        double low = is_one ? lows[number] : 0.0, high = is_one ? highs[number] : 0.0;
        const Word* its = values + (is_one ? place_of_lane(lanes, number, lanes.outer, lanes.inner) : 0);
        const double* own = weights;
        if (is_one) own += place_of_lane(lanes, number, lanes.weights_outer, lanes.weights_inner);
        Ends ends;
        for (i64 row = first; row < n; row += STEP) {
            ends.add(its[row * lanes.row], own[row * lanes.weights_row], low, high);
        }
        if (ends.n_beyond) {
            i64 place = atomicAdd(fliers.n, (u64)ends.n_beyond);
            for (i64 row = first; row < n; row += STEP) {
                Word word = its[row * lanes.row];
                double w = own[row * lanes.weights_row], x = as_double(value_of(word));
                if (!(w > 0 && (x < low || x > high))) continue;
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
        double mean, deviation;
        ends.moments(mean, deviation, sure);
        double found[5] = {
            rounded_once(ends.weight, sure), rounded_once(ends.below, sure), rounded_once(ends.above, sure),
            mean, deviation
        };
        Key keys[4] = {ends.least, ends.most, ends.inside_low, ends.inside_high};
#pragma unroll
        for (int i = 0; i < 5; ++i) numbers[i * lanes.n_lanes + number] = found[i];
#pragma unroll
        for (int i = 0; i < 4; ++i) extremes[i * lanes.n_lanes + number] = word_of(keys[i]);
        are_unsure[number] = !sure;
    }
}

// --- Lanes that are sorted ------------------------------------------------------------------------

// What is wanted, by its place in `lane_weights.METHODS`: the first element up to which the weights reach
// a share, also the first up to which they pass it, or the mean over a window of the weight.
constexpr int UNTIL_PASSED = 1;
constexpr int OVER_WINDOW = 2;

constexpr double LEAST_SHARE = 0x1p-100;

// The sorted elements of a lane that take part, by their places, and the weight of the first.
struct Walk {
    const Word* values;
    const double* weights;
    const u32* places;
    i64 row, weights_row, n, j;
    Exact<3> upto;  // the weight of the elements up to j

    __device__ __forceinline__ double weight(i64 i) const { return weights[places[i] * weights_row]; }
    __device__ __forceinline__ Value value(i64 i) const { return value_of(values[places[i] * row]); }
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
    for (int l = 0; l < 8; ++l) {
        if (other.parts[l] != 0.0) stop.add_product(q, other.parts[l]);
    }
    add_parts(stop, square);
#pragma unroll 1
    for (; !ahead.is_last() && ahead.upto.parts[0] < first + width + margin; ahead.step()) {
        Wide part = stop, beyond;
#pragma unroll 1
        for (int i = 0; i < 9; ++i) {
            double a = ahead.upto.parts[i / 3], b = weight.parts[i % 3];
            if (a != 0.0 && b != 0.0) part.add_product(-a, b);
        }
        double next = ahead.number(ahead.j + 1), error, step = two_sum(next, -last, error);
        sure = sure && !part.lost;
        if (!(leading(part).high > 0.0)) break;
        if (step == 0.0) continue;
        last = next;
        beyond = part;
        for (int l = 0; l < 5; ++l) {
            if (square.parts[l] != 0.0) beyond.add(-square.parts[l]);
        }
        if (leading(beyond).high > 0.0) part = none, add_parts(part, square);
#pragma unroll 1
        for (int l = 0; l < 8; ++l) {
            if (part.parts[l] == 0.0) continue;
            sum.add_product(part.parts[l], step);
            if (error != 0.0) sum.add_product(part.parts[l], error);
        }
    }
    if (last == base) return base;
    double largest = fmax(fabs(base), fabs(last));
    for (int l = 0; l < 5; ++l) {
        if (square.parts[l] != 0.0) sum.add_product(base, square.parts[l]);
    }
    bool is_exact = true;
    double mean = quotient_once(sum, leading(square), is_exact, sure);
    // Rounding again is right unless the first rounding has made a tie.
    bool is_tie = (__double_as_longlong(mean) & ((1ll << 28) - 1)) == 0;
    sure = sure && largest < (KIND == FLOATING ? FARTHEST_ENDS : 0x1p53) && !sum.lost && (is_exact || is_double || !is_tie);
    return mean;
}

#if BITS == 64
struct Item {
    Key key;
    u64 place;
};
__device__ __forceinline__ Item item_of(Key key, u32 place) { return {key, place}; }
__device__ __forceinline__ u32 place_of(const Item& item) { return (u32)item.place; }
__device__ __forceinline__ bool is_before(const Item& a, const Item& b) {
    return a.key != b.key ? a.key < b.key : a.place < b.place;
}
#else
typedef u64 Item;
__device__ __forceinline__ Item item_of(Key key, u32 place) { return (u64)key << 32 | place; }
__device__ __forceinline__ u32 place_of(Item item) { return (u32)item; }
__device__ __forceinline__ bool is_before(Item a, Item b) { return a < b; }
#endif

constexpr u32 ABSENT = 1u << 31;  // the mark of elements that take no part, which are behind all others

// Find the places of the elements of each lane in their order, and count them. A block sorts A_BLOCK lanes
// in shared memory, by exchanges that all put the smaller element first. Neighbouring threads exchange
// neighbouring pairs. So a warp sees to all that it exchanges itself up to a distance of 32.
extern "C" __global__ void __launch_bounds__(REACH_THREADS) reach_order(
    const Word* values, const double* weights, const ReachLanes* told, u32* places, i64* n_valid, i64* n_missing
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    Item* items = (Item*)scratch;
    __shared__ u32 n_nan[A_BLOCK];
    const ReachLanes lanes = *told;
    const u32 n = (u32)lanes.n, pitch = n | 1;
    const int log_pairs = n > 2 ? 31 - __clz((int)n - 1) : 0;  // of the pairs of a lane
    for (i64 start = (i64)blockIdx.x * A_BLOCK; start < lanes.n_lanes; start += (i64)gridDim.x * A_BLOCK) {
        const u32 n_here = (u32)min(lanes.n_lanes - start, (i64)A_BLOCK);
        __syncthreads();
        if (threadIdx.x < A_BLOCK) n_nan[threadIdx.x] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < n * n_here; i += REACH_THREADS) {
            u32 lane = SIDE_BY_SIDE ? i % n_here : i / n, row = SIDE_BY_SIDE ? i / n_here : i - lane * n;
            i64 number = start + lane;
            Word word = values[place_of_lane(lanes, number, lanes.outer, lanes.inner) + row * lanes.row];
            i64 own = place_of_lane(lanes, number, lanes.weights_outer, lanes.weights_inner);
            bool weighs = weights[own + row * lanes.weights_row] > 0, is_nan = is_missing(value_of(word));
            bool takes = weighs && !is_nan;
            if (weighs && is_nan) atomicAdd(&n_nan[lane], 1u);
            items[lane * pitch + row] = takes ? item_of(key_of(word), row) : item_of(~Key(0), row | ABSENT);
        }
        u32 last = ~0u;  // the step before
#pragma unroll 1
        for (u32 half = 1; half < n; half *= 2) {
#pragma unroll 1
            for (u32 step = half; step; last = step, step /= 2) {
                if (max(step, last) > 32) __syncthreads();
                else __syncwarp();
                u32 apart = step == half ? 2 * half - 1 : step;
                for (u32 pair = threadIdx.x; pair < n_here << log_pairs; pair += REACH_THREADS) {
                    u32 lane = pair >> log_pairs, p = pair & ((1u << log_pairs) - 1);
                    u32 i = 2 * p - (p & (step - 1)), j = i ^ apart;
                    if (j >= n) continue;
                    Item a = items[lane * pitch + i], b = items[lane * pitch + j];
                    if (is_before(b, a)) items[lane * pitch + i] = b, items[lane * pitch + j] = a;
                }
            }
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < n * n_here; i += REACH_THREADS) {
            places[start * n + i] = place_of(items[i / n * pitch + i % n]);
        }
        if (threadIdx.x < n_here) {
            const Item* its = items + threadIdx.x * pitch;
            n_valid[start + threadIdx.x] = first_not(0u, n, [&](u32 i) { return !(place_of(its[i]) & ABSENT); });
            n_missing[start + threadIdx.x] = n_nan[threadIdx.x];
        }
    }
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
        Walk walk;
        walk.values = values + place_of_lane(lanes, lane, lanes.outer, lanes.inner), walk.row = lanes.row;
        walk.weights = weights + place_of_lane(lanes, lane, lanes.weights_outer, lanes.weights_inner);
        walk.weights_row = lanes.weights_row, walk.places = places + lane * lanes.n, walk.n = n_valid[lane];
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
        for (int i = 0; i < 9 && wanted == OVER_WINDOW; ++i) {
            double a = weight.parts[i / 3], b = weight.parts[i % 3];
            if (a != 0.0 && b != 0.0) other.add_product(a, b);
        }
        for (int l = 0; l < 5; ++l) {
            if (square.parts[l] != 0.0) other.add(-square.parts[l]);
        }
        double before = INFINITE;
#pragma unroll 1
        for (int k = 0; k < n_shares; ++k) {
            i64 at = lane * n_shares + k;
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
            for (int l = 0; l < 3; ++l) {
                if (weight.parts[l] != 0.0) product.add_product(q, weight.parts[l]);
            }
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
