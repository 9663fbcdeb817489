// Weighted quantiles of lanes that are sorted, so that many quantiles take little longer than one.
//
// GROUP threads share a lane. Each sorts EACH elements in registers, and they merge these runs in shared
// memory, each a part of equal length (merge path: Odeh, Green, Mwassi, Shmueli & Birk 2012). Then each
// thread adds up the weights of EACH neighbours in order. Running sums of these tell among which ones
// an answer is, and one thread finds it there. Sums are pairs of floats, with a bound of their error: where
// this is too wide, an answer is unsure.
//
// Defined before this text:
//
//   REACH_THREADS: threads of a block
//   GROUP: threads of a lane, a power of two
//   EACH: elements of a thread; an odd number is best for the banks of shared memory
//   MIN_BLOCKS: blocks at the same time on a multiprocessor
//   COMMON: the number of the weights if all lanes have the same, which then are in shared memory, or 0
//   SIDE_BY_SIDE: 1 if neighbouring lanes are nearer to each other than rows are

#include "networks.cuh"
#include "weighed_lanes.cuh"

typedef unsigned short Row;

constexpr int LANES = REACH_THREADS / GROUP;  // of a block at the same time
constexpr int PITCH = GROUP * EACH | 1;  // from a lane to the next, in elements
constexpr Row ABSENT = 0xffff;  // the row of elements that take no part
constexpr double NEAR = 0x1p-40;  // sums of floats decide beyond this share of the weight
constexpr int MOST_STEPS = 64;  // elements of a window
// Weights that are added one after the other: those of a thread, a few sums, and those before an answer.
constexpr double ADDED = 2 * EACH + 28 + MOST_STEPS;

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

// A lane in shared memory.
struct Lane {
    Key* keys;
    Pair* sums;
    Row* rows;
    double* common;  // weights
    const double* weights;
    i64 weights_row;
    int me, n;  // this thread's place in the group, and the number of valid elements

    __device__ __forceinline__ Lane(unsigned char* scratch, int slot, int me) : me(me) {
        common = (double*)((Pair*)scratch + REACH_THREADS);
        Key* all_keys = (Key*)(common + COMMON);
        sums = (Pair*)scratch + slot * GROUP, keys = all_keys + slot * PITCH;
        rows = (Row*)(all_keys + LANES * PITCH) + slot * PITCH;
    }

    __device__ __forceinline__ static void sync() {
        if (GROUP > 32) __syncthreads();
        else __syncwarp();
    }

    __device__ __forceinline__ double weight(u32 row) const {
        if (row == ABSENT) return 0.0;
        return COMMON ? common[row] : __ldg(weights + row * weights_row);
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

// Elements in order, from one of those before a share of the weight on.
struct Walk {
    const Lane& lane;
    int j;
    Pair before, upto;  // the weight before this element, and with it

    __device__ __forceinline__ Walk(const Lane& lane, double near) : lane(lane) {
        const Pair* sums = lane.sums;
        int thread = first_not(0, GROUP - 1, [&](int i) { return sums[i].high < near; });
        j = thread * EACH;
        if (thread) before = sums[thread - 1];
        upto = before, add();
        while (!is_last() && upto.high < near) step();
    }
    __device__ __forceinline__ void add() { upto.add(lane.weight(lane.rows[j])); }
    __device__ __forceinline__ void step() { before = upto, ++j, add(); }
    __device__ __forceinline__ bool is_last() const { return j + 1 >= lane.n; }
    __device__ __forceinline__ Key key() const { return lane.keys[j]; }
};

// Find the first key up to which the weight reaches a share, or passes it, each rounded to 53 bits.
// `error` is a bound of that of sums of weights.
__device__ __forceinline__ Key reached(
    const Lane& lane, const Pair& weight, const ReachTarget& target, double error, bool& sure
) {
    if (target.share == 0.0) return lane.keys[0];
    if (target.share == 1.0) return lane.keys[lane.n - 1];
    Pair share = product_of(weight.tidy(), Pair(target.share));
    double near = share.high, margin = NEAR * weight.high, off = error > 0.0 ? error + near * PAIR_ERROR : 0.0;
    double least = __dadd_rn(near, __dadd_rn(share.low, -off)), most = __dadd_rn(near, __dadd_rn(share.low, off));
    Walk walk(lane, near - margin);
    for (int step = 0; !walk.is_last() && walk.upto.high <= near + margin; walk.step(), ++step) {
        Pair upto = walk.upto.tidy();
        double low = __dadd_rn(upto.high, __dadd_rn(upto.low, -error));
        double high = __dadd_rn(upto.high, __dadd_rn(upto.low, error));
        bool is_enough = target.is_passed ? low > most : low >= most;
        bool may_be = target.is_passed ? high > least : high >= least;
        sure = sure && is_enough == may_be && near > LEAST_MEAN && step < MOST_STEPS;
        if (is_enough || !sure) break;
    }
    return walk.key();
}

__device__ __forceinline__ double mean_of_window(
    const Lane& lane, const Pair& weight, const Pair& square, double q, int answer_size, bool& sure
) {
    Window window(weight, square, q, ADDED);
    double scale = window.weight.high;
    Walk walk(lane, window.first.high / scale - NEAR * scale);
    window.start(walk.key());
#pragma unroll 1
    for (int step = 0; !walk.is_last(); ++step) {
        Pair left = window.behind(walk.upto);
        if (left.high < -window.error) break;
        walk.step(), window.step(walk.key(), left);
        if (step == MOST_STEPS) sure = false;
        if (!sure) break;
    }
    sure = sure && (q == 0.0 || q > LEAST_SHARE);
    return window.rounded(answer_size, sure);
}

// What the threads of a lane say of it.
struct Notes {
    u32 n_valid, n_missing, n_idle, is_unsure;  // idle: valid elements without weight
};

// Read lanes, sort them, and let `find` answer for each, given the items of the thread.
template <class Find, class Write>
__device__ __forceinline__ void sort_lanes(
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes& lanes, Find find, Write write
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    __shared__ Notes all_notes[LANES];
    const int slot = threadIdx.x / GROUP, me = threadIdx.x % GROUP, n = (int)lanes.n;
    const int its_slot = SIDE_BY_SIDE ? threadIdx.x % LANES : slot, first = SIDE_BY_SIDE ? threadIdx.x / LANES : me;
    Lane lane(scratch, slot, me), its(scratch, its_slot, first);
    Notes &notes = all_notes[slot], &its_notes = all_notes[its_slot];
    lane.weights_row = lanes.weights_row;
    for (int row = threadIdx.x; COMMON && row < n; row += REACH_THREADS) {
        lane.common[row] = __ldg(weights + row * lanes.weights_row);
    }
    for (i64 start = (i64)blockIdx.x * LANES; start < lanes.n_lanes; start += (i64)gridDim.x * LANES) {
        __syncthreads();
        if (threadIdx.x < LANES) all_notes[threadIdx.x] = {0, 0, 0, 0};
        __syncthreads();
        i64 number = start + its_slot;
        int n_rows = number < lanes.n_lanes ? n - first : 0;
        number = min(number, lanes.n_lanes - 1);
        const Word* word_at = values + place_of_lane(lanes, number, lanes.outer, lanes.inner) + first * lanes.row;
        const double* weight_at = weights + first * lanes.weights_row;
        weight_at += place_of_lane(lanes, number, lanes.weights_outer, lanes.weights_inner);
        const Keep* keep_at = keeps;
        if (KEEPS) keep_at += place_of_lane(lanes, number, lanes.keeps_outer, lanes.keeps_inner) + first * lanes.keeps_row;
        Notes mine = {0, 0, 0, 0};
#pragma unroll 8
        for (int j = 0; j < EACH; ++j) {
            bool is_row = j * GROUP < n_rows;
            Word word = is_row ? __ldg(word_at) : Word(0);
            double w = LEFT_OUT;
            if (is_row) w = COMMON ? lane.common[first + j * GROUP] : __ldg(weight_at);
            if (KEEPS && is_row && !__ldg(keep_at)) w = LEFT_OUT;
            word_at += GROUP * lanes.row, weight_at += GROUP * lanes.weights_row, keep_at += KEEPS ? GROUP * lanes.keeps_row : 0;
            bool is_nan = is_missing(value_of(word)), takes = w > 0 && !is_nan;
            mine.n_valid += takes, mine.n_missing += w > 0 && is_nan, mine.n_idle += !is_nan && is_idle(w);
            its.keys[first + j * GROUP] = takes ? key_of(word) : NO_KEY;
            its.rows[first + j * GROUP] = takes ? first + j * GROUP : ABSENT;
        }
        if (mine.n_valid) atomicAdd(&its_notes.n_valid, mine.n_valid);
        if (mine.n_missing) atomicAdd(&its_notes.n_missing, mine.n_missing);
        if (mine.n_idle) atomicAdd(&its_notes.n_idle, mine.n_idle);
        __syncthreads();
        number = start + slot;
        bool is_one = number < lanes.n_lanes;
        lane.n = notes.n_valid, lane.weights = weights;
        if (is_one) lane.weights += place_of_lane(lanes, number, lanes.weights_outer, lanes.weights_inner);
        Item items[EACH];
        lane.sort(items);
        if (!find(lane, number, items)) notes.is_unsure = 1;
        lane.sync();
        if (is_one && me == 0) write(notes, number);
    }
}

extern "C" __global__ void __launch_bounds__(REACH_THREADS, MIN_BLOCKS) sort_and_reach(
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes* told, const ReachTarget* targets,
    Value* found, i64* n_valid, i64* n_missing, unsigned char* are_unsure, u32* flags
) {
    const ReachLanes lanes = *told;
    auto find = [&](Lane& lane, i64 number, const Item (&items)[EACH]) {
        bool sure = true;
        Pair weight;
#pragma unroll
        for (int j = 0; j < EACH; ++j) weight.add(lane.weight(items[j].row));
        weight = lane.scan(weight);
        double error = lanes.slack > 0 ? ADDED * ADDED * PAIR_ERROR * weight.high : 0.0;
        for (i64 t = lane.me; t < lanes.n_targets && lane.n; t += GROUP) {
            found[t * lanes.n_lanes + number] = value_of(word_of(reached(lane, weight, targets[t], error, sure)));
        }
        return sure;
    };
    sort_lanes(values, weights, keeps, lanes, find, [&](const Notes& notes, i64 number) {
        write(notes, number, notes.is_unsure, n_valid, n_missing, are_unsure, flags);
    });
}

extern "C" __global__ void __launch_bounds__(REACH_THREADS, MIN_BLOCKS) sort_and_mean(
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes* told, const double* shares, int n_shares,
    int answer_size, double* means, i64* n_valid, i64* n_missing, unsigned char* are_unsure,
    u32* flags
) {
    const ReachLanes lanes = *told;
    auto find = [&](Lane& lane, i64 number, const Item (&items)[EACH]) {
        bool sure = true;
        Pair weight, square;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            double w = lane.weight(items[j].row), error;
            if (!(w > 0)) continue;
            double own = product_of(w, w, error);
            weight.add(w), square.add(Pair(own, error));
            sure = sure && w <= FARTHEST_ENDS && w >= 1.0 / FARTHEST_ENDS;
        }
        square = lane.scan(square), lane.sync(), weight = lane.scan(weight);
        for (int k = lane.me; k < n_shares && lane.n; k += GROUP) {
            double mean = mean_of_window(lane, weight, square, shares[k], answer_size, sure);
            means[k * lanes.n_lanes + number] = mean;
        }
        return sure;
    };
    sort_lanes(values, weights, keeps, lanes, find, [&](const Notes& notes, i64 number) {
        write(notes, number, notes.is_unsure, n_valid, n_missing, are_unsure, flags);
    });
}

// Find the places of the elements of each lane in their order, and count them.
extern "C" __global__ void __launch_bounds__(REACH_THREADS, MIN_BLOCKS) sort_and_place(
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes* told, u32* places, i64* n_valid,
    i64* n_missing
) {
    const ReachLanes lanes = *told;
    auto find = [&](Lane& lane, i64 number, const Item (&items)[EACH]) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            int place = lane.me * EACH + j;
            if (place < lane.n) places[number * lanes.n + place] = items[j].row;
        }
        return true;
    };
    sort_lanes(values, weights, keeps, lanes, find, [&](const Notes& notes, i64 number) {
        count(notes, number, n_valid, n_missing);
    });
}
