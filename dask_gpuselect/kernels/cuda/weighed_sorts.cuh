// Weighted lanes in shared memory: sorting their elements, and finding quantiles among sorted ones.
//
// Defined before this text:
//
//   REACH_THREADS: threads of a block
//   GROUP: threads of a lane, a power of two
//   EACH: elements of a thread; an odd number is best for the banks of shared memory
//   MEANS: 1 if answers are means over windows, and 0 if they are elements
//   SIDE_BY_SIDE: 1 if neighbouring lanes are nearer to each other than rows are

#include "networks.cuh"
#include "weighed_lanes.cuh"

typedef unsigned short Row;

constexpr int LANES = REACH_THREADS / GROUP;  // of a block at the same time
constexpr int ROOM = GROUP * EACH;  // elements of a lane that are sorted together
constexpr int PITCH = ROOM | 1;  // from a lane to the next, in elements
constexpr Row ABSENT = 0xffff;  // the row of elements that take no part
constexpr double NEAR = 0x1p-40;  // sums of floats decide beyond this share of the weight
// A bound of the relative error of a sum of n weights, for n * n: the second parts of pairs have up to n times
// 2**-53 of the sum, and their sum is rounded n times. It is four times that.
constexpr double SUM_ERROR = 0x1p-104;
constexpr int MOST_STEPS = 64;  // elements of most windows

struct Item {
    Key key;
    u32 row;
};

// The largest integers are as large as NO_KEY, and elements that take no part are behind them.
__device__ __forceinline__ void exchange(Item& a, Item& b, bool, Plain) {
    bool swaps = b.key < a.key || (KIND != FLOATING && b.key == a.key && b.row < a.row);
    Item first = swaps ? b : a, second = swaps ? a : b;
    a = first, b = second;
}

// Elements in shared memory that the threads of a lane sort.
struct Sorted {
    Key* keys;
    Pair* sums;
    Row* rows;
    int me, n;  // this thread's place in the group, and the number of valid elements

    __device__ __forceinline__ static void sync() {
        if (GROUP > 32) __syncthreads();
        else __syncwarp();
    }

    // Merge two sorted runs of `by` threads each; this thread gets its part.
    __device__ __forceinline__ void merge(int by, Item (&items)[EACH]) const {
        const int start = (me & -2 * by) * EACH, size = by * EACH, diagonal = (me & (2 * by - 1)) * EACH;
        const Key *low = keys + start, *high = low + size;
        const Row* its_rows = rows + start;
        auto is_second_first = [&](int a, Key of_a, int b, Key of_b) {
            return of_b < of_a || (KIND != FLOATING && of_b == of_a && its_rows[size + b] < its_rows[a]);
        };
        int a = first_not(max(0, diagonal - size), min(diagonal, size), [&](int i) {
            return !is_second_first(i, low[i], diagonal - 1 - i, high[diagonal - 1 - i]);
        });
        int b = diagonal - a;
        Key of_a = low[a], of_b = high[b];
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            bool takes_b = b < size && (a >= size || is_second_first(a, of_a, b, of_b));
            int place = takes_b ? size + b : a;
            items[j].key = takes_b ? of_b : of_a, items[j].row = its_rows[place];
            Key next = low[place + 1];
            if (takes_b) ++b, of_b = next;
            else ++a, of_a = next;
        }
    }

    // Sort the elements. Each thread gets its neighbours in order.
    __device__ __forceinline__ void sort(Item (&items)[EACH]) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) items[j].key = keys[me * EACH + j], items[j].row = rows[me * EACH + j];
        sort_in_thread<1>(items, Plain());
#pragma unroll 1
        for (int by = 1;; by *= 2) {
            sync();
#pragma unroll
            for (int j = 0; j < EACH; ++j) keys[me * EACH + j] = items[j].key, rows[me * EACH + j] = items[j].row;
            sync();
            if (by >= GROUP) return;
            merge(by, items);
        }
    }

    // Write the sums of all threads up to each. Return that of all.
    __device__ __forceinline__ Pair scan(Pair mine) {
        sums[me] = mine;
        sync();
#pragma unroll 1
        for (int by = 1; by < GROUP; by *= 2) {
            if (me >= by) mine.add(sums[me - by]);
            sync();
            sums[me] = mine;
            sync();
        }
        return sums[GROUP - 1];
    }
};

// Elements of a lane in order, from one of those before a share of the weight on.
template <class Lane>
struct Walk {
    const Lane& lane;
    int j = -1;
    Pair before, upto;  // the weight before this element, and with it

    __device__ __forceinline__ explicit Walk(const Lane& lane) : lane(lane) {}
    __device__ __forceinline__ void start(int place, const Pair& weight) { j = place, upto = before = weight, add(); }
    // Go to the first element up to which the weight is this or more, or to the last one.
    __device__ __forceinline__ void reach(double near) {
        lane.seek(*this, near);
        while (!is_last() && upto.high < near) step();
    }
    __device__ __forceinline__ void add() { upto.add(lane.weight_of(j)); }
    __device__ __forceinline__ void step() { before = upto, ++j, add(); }
    __device__ __forceinline__ bool is_last() const { return j + 1 >= lane.n; }
    __device__ __forceinline__ Key key() const { return lane.keys[j]; }
};

// Find the first key up to which the weight reaches a share, or passes it, each rounded to 53 bits.
// `error` is a bound of that of sums of weights.
template <class Lane>
__device__ __forceinline__ Key reached(
    Walk<Lane>& walk, const Pair& weight, const ReachTarget& target, double error, bool& sure
) {
    if (target.share == 0.0) return walk.lane.keys[0];
    if (target.share == 1.0) return walk.lane.keys[walk.lane.n - 1];
    Pair share = product_of(weight, Pair(target.share));
    double near = share.high, margin = NEAR * weight.high, off = error > 0.0 ? error + near * PAIR_ERROR : 0.0;
    double least = __dadd_rn(near, __dadd_rn(share.low, -off)), most = __dadd_rn(near, __dadd_rn(share.low, off));
    walk.reach(near - margin);
    Walk<Lane> ahead = walk;
    for (int step = 0; !ahead.is_last() && ahead.upto.high <= near + margin; ahead.step(), ++step) {
        Pair upto = ahead.upto.tidy();
        double low = __dadd_rn(upto.high, __dadd_rn(upto.low, -error));
        double high = __dadd_rn(upto.high, __dadd_rn(upto.low, error));
        bool is_enough = target.is_passed ? low > most : low >= most;
        bool may_be = target.is_passed ? high > least : high >= least;
        sure = sure && is_enough == may_be && near > LEAST_MEAN && step < MOST_STEPS;
        if (is_enough || !sure) break;
    }
    return ahead.key();
}

// Find a mean by plain floats, which tell nearly all float32. Return NaN if they do not.
template <class Lane>
__device__ __forceinline__ double near_mean(Walk<Lane> walk, const Window& window) {
    double weight = window.weight.high, error = 0x1p-50 * weight * weight, moved = 0.0, last = window.base;
    int step = 0;
#pragma unroll 1
    for (; step < 16 && !walk.is_last(); ++step) {
        double left = __fma_rn(-__dadd_rn(walk.upto.high, walk.upto.low), weight, window.stop.high);
        if (left < -error) break;
        walk.step();
        double value = as_double(value_of(word_of(walk.key())));
        moved = __fma_rn(fmin(left, window.square.high), __dadd_rn(value, -last), moved), last = value;
    }
    double mean = __fma_rn(moved, window.inverse.high, window.base);
    double off = 2.0 * error * window.inverse.high * (last - window.base) + 0x1p-47 * fmax(fabs(window.base), fabs(last));
    float low = (float)(mean - off), high = (float)(mean + off);
    return step < 16 && low == high ? low : __longlong_as_double(0x7ff8000000000000ll);
}

template <class Lane>
__device__ __forceinline__ double mean_of_window(Walk<Lane>& walk, Window& window, double q, int answer_size, bool& sure) {
    window.open(q);
    walk.reach(window.first.high * window.unit - NEAR * window.weight.high);
    window.start(walk.key());
    sure = sure && (q == 0.0 || q > LEAST_SHARE);
    double near = answer_size == 4 ? near_mean(walk, window) : INFINITE;
    if (fabs(near) < INFINITE) return near;
    Walk<Lane> ahead = walk;
#pragma unroll 1
    for (int step = 0; !ahead.is_last(); ++step) {
        Pair left = window.behind(ahead.upto);
        if (left.high < -window.error) break;
        ahead.step(), window.step(ahead.key(), left);
        if (step == MOST_STEPS) {  // more weights are added than `added`
            double more = 1.0 + (double)ahead.lane.n / MOST_STEPS;
            window.error *= more * more;
        }
    }
    return window.rounded(answer_size, sure);
}

// The questions about a lane: shares to reach or to pass, or, with MEANS, windows to average over.
struct Questions {
    const ReachTarget* targets;
    void* answers;
    i64 n_lanes;
    int n, answer_size;
    double slack;
    Window window;

    __device__ __forceinline__ Questions(const ReachLanes& lanes, const ReachTarget* targets, int answer_size, void* answers)
        : targets(targets), answers(answers), n_lanes(lanes.n_lanes), n((int)lanes.n_targets), answer_size(answer_size),
          slack(lanes.slack) {}

    __device__ __forceinline__ void begin(const Pair& weight, const Pair& square) {
        if (MEANS) window = Window(weight, square);
        else window.weight = weight.tidy();
    }

    // Find the weights between which the elements of an answer are.
    __device__ __forceinline__ void place(int k, double& low, double& high) {
        double scale = window.weight.high, share = targets[k].share;
        if (MEANS) window.open(share);
        low = MEANS ? window.first.high * window.unit : share * scale, high = MEANS ? window.stop.high * window.unit : low;
        low -= NEAR * scale, high += NEAR * scale;
    }

    // So many weights are added one after the other, whose sum is `off` away from the right one at first.
    template <class Lane>
    __device__ __forceinline__ void answer(Walk<Lane>& walk, int k, i64 number, double added, double off, bool& sure) {
        i64 at = k * n_lanes + number;
        off += added * added * SUM_ERROR * window.weight.high;
        window.error = MEANS ? off * window.weight.high : slack > 0 ? off : 0.0;
        if (MEANS) {
            double mean = mean_of_window(walk, window, targets[k].share, answer_size, sure);
            if (answer_size == 4) ((float*)answers)[at] = (float)mean;
            else ((double*)answers)[at] = mean;
        } else {
            ((Value*)answers)[at] = value_of(word_of(reached(walk, window.weight, targets[k], window.error, sure)));
        }
    }
};

// Add a weight to sums of weights and, with MEANS, of their squares. Return whether the square is exact.
__device__ __forceinline__ bool add_weight(double w, Pair& weight, Pair& square) {
    weight.add(w);
    if (!MEANS || !(w > 0)) return true;
    double error, own = product_of(w, w, error);
    square.add(Pair(own, error));
    return w <= FARTHEST_ENDS && w >= 1.0 / FARTHEST_ENDS;
}

// What the threads of a lane say of it.
struct Notes {
    u32 n_valid, n_missing, n_idle, is_unsure;  // idle: valid elements without weight
    u32 is_cut;  // weights were rounded to integers

    // Count an element. Return whether it takes part.
    __device__ __forceinline__ bool add(Word word, double w) {
        bool is_nan = is_missing(value_of(word)), takes = w > 0 && !is_nan;
        n_valid += takes, n_missing += w > 0 && is_nan, n_idle += !is_nan && is_idle(w);
        return takes;
    }
    __device__ __forceinline__ void add_to(Notes& all) const {
        if (n_valid) atomicAdd(&all.n_valid, n_valid);
        if (n_missing) atomicAdd(&all.n_missing, n_missing);
        if (n_idle) atomicAdd(&all.n_idle, n_idle);
        if (is_unsure) all.is_unsure = 1;
        if (is_cut) all.is_cut = 1;
    }
};
