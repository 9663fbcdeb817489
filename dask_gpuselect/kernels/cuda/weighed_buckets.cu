// Weighted quantiles of lanes that exceed shared memory, so that many quantiles take little longer than one.
//
// A sample gives pivots, between which lie buckets; elements that equal a pivot have a bucket of their own.
// The first read adds up the weights of each bucket, as integers in LIMBS numbers, and writes down the bucket
// of each element. So it is known in which buckets each answer is. The elements of these alone are gathered
// and sorted, as many as there is room for, and so on until all quantiles are answered. Where there is no room
// for one, or where sums are too near to a share, an answer is unsure.
//
// Defined before this text, besides those of weighed_sorts.cuh:
//
//   LIMB, LIMBS: bits of a number that is added up, so that sums have 32, and how many make up a weight

#include "weighed_sorts.cuh"

constexpr int CLASSES = 2 * PIVOTS;  // the last pivot is NO_KEY
constexpr int AHEAD = 4;  // rows that a thread reads before it needs them

struct Round {
    u32 n_items, upto;  // upto: of the sizes of all questions that are answered by the end of the round
    u32 wanted[CLASSES / 32];  // a bit for each bucket
};

// The buckets of a lane in shared memory, and the elements of some of them.
struct Buckets : Sorted {
    Key* pivots;
    u32 *limbs, *counts;  // up to each bucket; of a bucket of equal elements, one counts
    double* weights;  // of elements; before these are gathered, sums of threads
    double unit;  // of weights that are integers
    int from, to;  // the buckets in which an answer of this thread is

    __device__ __forceinline__ Buckets(unsigned char* scratch, int slot, int place, double scale) : unit(1.0 / scale) {
        weights = (double*)scratch + slot * ROOM, sums = (Pair*)weights, me = place;
        Key* all_keys = (Key*)((double*)scratch + LANES * ROOM);
        u32* all_limbs = (u32*)(all_keys + LANES * (PIVOTS + PITCH));
        pivots = all_keys + slot * PIVOTS, keys = all_keys + LANES * PIVOTS + slot * PITCH;
        limbs = all_limbs + slot * (LIMBS + 1) * CLASSES, counts = limbs + LIMBS * CLASSES;
        rows = (Row*)(all_limbs + LANES * (LIMBS + 1) * CLASSES) + slot * PITCH;
    }

    __device__ __forceinline__ u32 count_before(int b) const { return b > 0 ? counts[b - 1] : 0; }
    __device__ __forceinline__ Pair weight_before(int b) const {
        Pair sum;
#pragma unroll
        for (int l = LIMBS - 1; l >= 0; --l) sum.add(b > 0 ? limbs[l * CLASSES + b - 1] * (unit * (1ull << LIMB * l)) : 0.0);
        return sum.tidy();
    }
    __device__ __forceinline__ Pair weight_of(int j) const {
        int row = rows[j], b = 2 * (row - ROOM) + 1;  // rows from ROOM on stand for all elements that equal a pivot
        return row < ROOM ? Pair(weights[row]) : sum_of(weight_before(b + 1), negative(weight_before(b)));
    }

    // Find a pivot in the tree, whose levels follow one another: neighbours are in different banks.
    __device__ __forceinline__ Key& pivot(int i) const { return pivots[i + 1 < PIVOTS ? (PIVOTS + i + 1) >> __ffs(i + 1) : 0]; }
    __device__ __forceinline__ int bucket_of(Key key) const {
        int node = 1;
        Key bound = NO_KEY;
#pragma unroll
        for (int by = PIVOTS / 2; by; by /= 2) {
            Key its = pivots[node];
            bool is_behind = its < key;
            bound = is_behind ? bound : its, node = 2 * node + is_behind;
        }
        return 2 * (node - PIVOTS) + (bound == key);
    }

    // Sort what was sampled, and choose pivots at even steps.
    __device__ __forceinline__ void choose(Item (&items)[EACH]) {
        sort(items);
        int n_taken = first_not(0, ROOM, [&](int i) { return rows[i] != ABSENT; });
        for (int i = me; i < PIVOTS; i += GROUP) {
            pivot(i) = i + 1 < PIVOTS && n_taken ? keys[(i64)(i + 1) * n_taken / PIVOTS] : NO_KEY;
        }
        for (int i = me; i < (LIMBS + 1) * CLASSES; i += GROUP) limbs[i] = 0;
    }

    // Find the buckets of an answer. The shares 0 and 1 are in the first and in the last that has elements.
    __device__ __forceinline__ void place(Questions& questions, int k) {
        double low, high, share = questions.targets[k].share;
        questions.place(k, low, high);
        from = first_not(0, CLASSES - 1, [&](int b) { return weight_before(b + 1).high < low; });
        to = first_not(from, CLASSES - 1, [&](int b) { return weight_before(b + 1).high < high; });
        if (MEANS || (share != 0.0 && share != 1.0)) return;
        u32 rank = share == 0.0 ? 1 : counts[CLASSES - 1];
        from = to = first_not(0, CLASSES - 1, [&](int b) { return counts[b] < rank; });
    }

    // Go to the first of these elements.
    __device__ __forceinline__ void seek(Walk<Buckets>& walk, double) const {
        bool is_behind = from % 2 == 0;  // the pivot, which is the first of the bucket otherwise
        Key bound = from ? pivot(from / 2 - is_behind) : Key(0);
        auto is_before = [&](int i) { return from && (keys[i] < bound || (is_behind && keys[i] == bound)); };
        walk.start(first_not(0, n, is_before), weight_before(from));
    }
};

// Add up tables of all lanes of the block, each by a warp.
__device__ __forceinline__ void add_up(u32* tables) {
    const int me = threadIdx.x % 32;
    for (int k = threadIdx.x / 32; k < LANES * (LIMBS + 1); k += REACH_THREADS / 32) {
        u32 before = 0;
#pragma unroll 4
        for (int i = me; i < CLASSES; i += 32) {
            u32* at = tables + k * CLASSES + i;
            u32 upto = *at;
            if (k % (LIMBS + 1) == LIMBS && i % 2) upto = min(upto, 1u);
            *at = upto = before + sum_upto(upto);
            before = __shfl_sync(ALL_LANES, upto, 31);
        }
    }
}

extern "C" __global__ void __launch_bounds__(REACH_THREADS) select_and_reach(
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes* told, const ReachTarget* targets,
    int answer_size, void* answers, i64* n_valid, i64* n_missing, unsigned char* are_unsure, u32* flags, Row* buckets
) {
    const ReachLanes lanes = *told;
    Questions questions(lanes, targets, answer_size, answers);
    extern __shared__ __align__(16) unsigned char scratch[];
    __shared__ Notes all_notes[LANES];
    __shared__ Round all_rounds[LANES];
    __shared__ u32 n_open[2];  // questions, in this round and in the next
    const int slot = threadIdx.x / GROUP, me = threadIdx.x % GROUP, n = (int)lanes.n;
    const int its_slot = SIDE_BY_SIDE ? threadIdx.x % LANES : slot, first = SIDE_BY_SIDE ? threadIdx.x / LANES : me;
    Buckets lane(scratch, slot, me, lanes.scale), its(scratch, its_slot, first, lanes.scale);
    Notes &notes = all_notes[slot], &its_notes = all_notes[its_slot];
    Round &round = all_rounds[slot], &its_round = all_rounds[its_slot];
    Row* bucket_of_first = buckets + ((i64)blockIdx.x * LANES + its_slot) * n + first;
    for (i64 start = (i64)blockIdx.x * LANES; start < lanes.n_lanes; start += (i64)gridDim.x * LANES) {
        const i64 number = start + slot;
        __syncthreads();
        if (threadIdx.x < LANES) all_notes[threadIdx.x] = {};
        // Sample.
        const Rows<GROUP> all(values, weights, keeps, lanes, start + its_slot, 0);
        for (int j = 0; j < EACH; ++j) {
            int i = first + j * GROUP;
            u64 place = (u64)i << 16 | (u32)i * 0x9e3779b9u >> 16;  // at random between two steps
            double w;
            Word word = all.at((i64)(place * n / ROOM >> 16)).read(w);
            bool takes = w > 0 && !is_missing(value_of(word));
            its.keys[i] = takes ? key_of(word) : NO_KEY, its.rows[i] = takes ? 0 : ABSENT;
        }
        __syncthreads();
        Item items[EACH];
        lane.choose(items);
        __syncthreads();
        // Measure all buckets.
        Pair weight, square;
        Notes mine = {};
        Rows<GROUP> read(values, weights, keeps, lanes, start + its_slot, first);
        Row* to = bucket_of_first;
        while (read.n > 0) {
            Word words[AHEAD];
            double w[AHEAD];
            int its_buckets[AHEAD], n_left = read.n;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i, read.step()) words[i] = read.read(w[i]);
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) its_buckets[i] = its.bucket_of(key_of(words[i]));
#pragma unroll
            for (int i = 0; i < AHEAD; ++i, to += GROUP) {
                bool takes = mine.add(words[i], w[i]);
                int bucket = takes ? its_buckets[i] : ABSENT;
                if (i * GROUP < n_left) *to = bucket;
                if (!takes) continue;
                double scaled = w[i] * lanes.scale;
                u64 whole = (u64)scaled;
                mine.is_cut |= (double)whole != scaled;
                atomicAdd(its.counts + bucket, 1u);
#pragma unroll
                for (int l = 0; l < LIMBS; ++l) {
                    u32 part = (u32)(whole >> LIMB * l) & ((1u << LIMB) - 1);
                    if (part) atomicAdd(its.limbs + l * CLASSES + bucket, part);
                }
                mine.is_unsure |= !add_weight(w[i], weight, square);
            }
        }
        mine.add_to(its_notes);
        if (MEANS) its.scan(square);
        __syncthreads();
        if (MEANS) square = lane.sums[GROUP - 1];
        add_up(((u32*)lane.limbs) - slot * (LIMBS + 1) * CLASSES);
        __syncthreads();
        // Answer questions, one for each thread, in rounds.
        weight = lane.weight_before(CLASSES);
        const double cut = notes.is_cut ? n * lane.unit : 0.0;
        bool sure = cut <= NEAR / 4 * weight.high;
        questions.begin(weight, square);
#pragma unroll 1
        for (int k = me; k < (questions.n + GROUP - 1) / GROUP * GROUP; k += GROUP) {
            bool is_open = k < questions.n && notes.n_valid && number < lanes.n_lanes && sure;
            lane.from = lane.to = 0;
            if (is_open) lane.place(questions, k);
            u32 size = is_open ? lane.counts[lane.to] - lane.count_before(lane.from) : 0;
            if (size > ROOM || (is_open && !size)) sure = is_open = false, size = 0;
            lane.scan(Pair(size));
            const u32 upto = (u32)lane.sums[me].high;
            u32 before = 0;
#pragma unroll 1
            for (int turn = 0;; turn ^= 1) {
                __syncthreads();
                if (me == 0) round.n_items = 0, round.upto = before;
                if (threadIdx.x == 0) n_open[turn] = 0;
                for (int i = me; i < CLASSES / 32; i += GROUP) round.wanted[i] = 0;
                for (int i = me; i < ROOM; i += GROUP) lane.keys[i] = NO_KEY, lane.rows[i] = ABSENT;
                __syncthreads();
                const bool is_now = is_open && upto - before <= ROOM;
                if (is_now) atomicMax(&round.upto, upto);
                for (int b = lane.from; is_now && b <= lane.to; ++b) {
                    bool is_new = !(atomicOr(&round.wanted[b / 32], 1u << b % 32) >> b % 32 & 1);
                    if (!(is_new && b % 2) || lane.counts[b] == lane.counts[b - 1]) continue;
                    u32 item = atomicAdd(&round.n_items, 1u);
                    lane.keys[item] = lane.pivot(b / 2), lane.rows[item] = ROOM + b / 2;
                }
                if (is_open && !is_now) n_open[turn] = 1;
                __syncthreads();
                for (int row = first; row < all.n; row += AHEAD * GROUP) {
                    u32 its_buckets[AHEAD];
#pragma unroll
                    for (int i = 0; i < AHEAD; ++i) {
                        int other = row + i * GROUP;
                        its_buckets[i] = other < all.n ? bucket_of_first[other - first] : ABSENT;
                    }
#pragma unroll
                    for (int i = 0; i < AHEAD; ++i) {
                        u32 b = its_buckets[i];
                        if (b % 2 || !(its_round.wanted[b / 32] >> b % 32 & 1)) continue;
                        u32 item = atomicAdd(&its_round.n_items, 1u);
                        its.keys[item] = key_of(all.at(row + i * GROUP).read(its.weights[item])), its.rows[item] = item;
                    }
                }
                __syncthreads();
                lane.n = round.n_items, before = round.upto;
                lane.sort(items);
                Walk<Buckets> walk(lane);
                if (is_now) questions.answer(walk, k, number, size + 2 * LIMBS + 28, cut, sure), is_open = false;
                if (!n_open[turn]) break;
            }
            __syncthreads();
        }
        if (!sure) notes.is_unsure = 1;
        __syncthreads();
        if (number < lanes.n_lanes && me == 0) write(notes, number, notes.is_unsure, n_valid, n_missing, are_unsure, flags);
    }
}
