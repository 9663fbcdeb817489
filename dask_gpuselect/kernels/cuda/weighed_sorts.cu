// Weighted quantiles of lanes that are sorted, so that many quantiles take little longer than one.
//
// GROUP threads share a lane. Each sorts EACH elements in registers, and they merge these runs in shared
// memory, each a part of equal length (merge path: Odeh, Green, Mwassi, Shmueli & Birk 2012). Then each
// thread adds up the weights of EACH neighbours in order. Running sums of these tell among which ones
// an answer is, and one thread finds it there. Sums are pairs of floats, with a bound of their error: where
// this is too wide, an answer is unsure.
//
// Defined before this text, besides those of weighed_sorts.cuh:
//
//   MIN_BLOCKS: blocks at the same time on a multiprocessor
//   COMMON: the number of the weights if all lanes have the same, which then are in shared memory, or 0

#include "weighed_sorts.cuh"

// Weights that are added one after the other: those of a thread, a few sums, and those before an answer.
constexpr double ADDED = 2 * EACH + 28 + MOST_STEPS;

// A lane in shared memory.
struct Lane : Sorted {
    double* common;  // weights
    const double* weights;
    i64 weights_row;

    __device__ __forceinline__ Lane(unsigned char* scratch, int slot, int place) {
        common = (double*)((Pair*)scratch + REACH_THREADS), me = place;
        Key* all_keys = (Key*)(common + COMMON);
        sums = (Pair*)scratch + slot * GROUP, keys = all_keys + slot * PITCH;
        rows = (Row*)(all_keys + LANES * PITCH) + slot * PITCH;
    }

    __device__ __forceinline__ double weight(u32 row) const {
        if (row == ABSENT) return 0.0;
        return COMMON ? common[row] : __ldg(weights + row * weights_row);
    }
    __device__ __forceinline__ double weight_of(int j) const { return weight(rows[j]); }

    // Go to the first element of a thread up to whose elements the weight is this or more, unless there already.
    __device__ __forceinline__ void seek(Walk<Lane>& walk, double near) const {
        int thread = first_not(0, GROUP - 1, [&](int i) { return sums[i].high < near; });
        if (walk.j >= thread * EACH && walk.before.high < near) return;
        walk.start(thread * EACH, thread ? sums[thread - 1] : Pair());
    }
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
        if (threadIdx.x < LANES) all_notes[threadIdx.x] = {};
        __syncthreads();
        Rows<GROUP> read(values, weights, keeps, lanes, start + its_slot, first);
        Notes mine = {};
#pragma unroll 8
        for (int j = 0; j < EACH; ++j, read.step()) {
            int row = first + j * GROUP;
            double w;
            Word word = read.read<(COMMON > 0)>(w, its.common + row);
            bool takes = mine.add(word, w);
            its.keys[row] = takes ? key_of(word) : NO_KEY, its.rows[row] = takes ? row : ABSENT;
        }
        mine.add_to(its_notes);
        __syncthreads();
        i64 number = start + slot;
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
    int answer_size, void* answers, i64* n_valid, i64* n_missing, unsigned char* are_unsure, u32* flags
) {
    const ReachLanes lanes = *told;
    Questions questions(lanes, targets, answer_size, answers);
    auto find = [&](Lane& lane, i64 number, const Item (&items)[EACH]) {
        bool sure = true;
        Pair weight, square;
#pragma unroll
        for (int j = 0; j < EACH; ++j) sure = add_weight(lane.weight(items[j].row), weight, square) && sure;
        if (MEANS) square = lane.scan(square), lane.sync();
        weight = lane.scan(weight);
        questions.begin(weight, square);
        Walk<Lane> walk(lane);
#pragma unroll 1
        for (int k = lane.me; k < questions.n && lane.n; k += GROUP) questions.answer(walk, k, number, ADDED, 0.0, sure);
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
