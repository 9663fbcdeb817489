// Weighted quantiles of lanes: the first element of each up to which the weights reach a share.
//
// GROUP threads share a lane, and each takes every GROUP-th row of it. Weights are rounded to integers
// whose sum has 32 bits. Their sums up to the middle of a bracket of keys halve it, until one key is
// left: a guess. Sums of the weights themselves, below the guess and up to it, prove it or say on which
// side the answer is. These sums are floats, which are exact where weights are integers. Elsewhere an answer is
// unsure if such a sum is so near to the share that rounding may have moved it past; the host finds that
// by integers.
//
// Defined before this text:
//
//   REACH_THREADS: threads of a block
//   GROUP: threads of a lane, a power of two
//   EACH: rows of a thread, at most
//   MIN_BLOCKS: blocks at the same time on a multiprocessor
//   KEYS_ARE, ROUNDED_ARE: where a thread finds keys, and the rounded weights
//   SIDE_BY_SIDE: 1 if neighbouring lanes are nearer to each other than rows are

#include "weighed_lanes.cuh"

constexpr int IN_REGISTERS = 0;
constexpr int IN_MEMORY = 1;  // shared by the block
constexpr int MADE = 2;       // from the weights, whenever they are needed

constexpr int LANES = REACH_THREADS / GROUP;  // of a block at the same time
constexpr int TEAM = GROUP < 32 ? GROUP : 32;  // the threads of a lane that are of one warp
constexpr int WARPS = GROUP / TEAM;
// Lanes that are side by side share a warp so that neighbouring threads have neighbouring lanes.
constexpr int APART = SIDE_BY_SIDE && GROUP < 32 ? 32 / GROUP : 1;
// Of wider groups, threads fetch elements for other threads, because they read rows in the order of memory.
constexpr bool ARE_FETCHED = SIDE_BY_SIDE && GROUP >= 32 && LANES > 1;
constexpr int FETCHED_PITCH = GROUP + 32 / (LANES < 32 ? LANES : 32);
constexpr Key NO_KEY = ~Key(0);  // of elements that take no part; no element has a larger one
constexpr int STEPS = 4;  // from one element to the next, before the bracket is halved

struct ReachTarget {  // the first element up to which the weights reach a share, or pass it
    double share;  // 0 and 1 are those of the first and of the last element, however little these weigh
    i64 is_passed;
};

// --- What the threads of a lane find together -------------------------------------------------------

struct Totals {
    double weight;
    u32 rounded, n_valid, n_missing;
    Key least, most;

    __device__ __forceinline__ Totals() : weight(0), rounded(0), n_valid(0), n_missing(0), least(NO_KEY), most(0) {}
    template <class Other>
    __device__ __forceinline__ void merge(Other of) {
        weight += of(weight), rounded += of(rounded), n_valid += of(n_valid), n_missing += of(n_missing);
        least = min(least, of(least)), most = max(most, of(most));
    }
};

// The rounded weight up to a key, the last key up to it, and the first behind it.
struct Guess {
    u32 upto;
    Key last, next;

    __device__ __forceinline__ Guess() : upto(0), last(0), next(NO_KEY) {}
    template <class Other>
    __device__ __forceinline__ void merge(Other of) {
        upto += of(upto), last = max(last, of(last)), next = min(next, of(next));
    }
};

// The weight below a key and up to it, the last key below it, and the first behind it.
struct Proof {
    double below, upto;
    Key last, next;

    __device__ __forceinline__ Proof() : below(0), upto(0), last(0), next(NO_KEY) {}
    template <class Other>
    __device__ __forceinline__ void merge(Other of) {
        below += of(below), upto += of(upto), last = max(last, of(last)), next = min(next, of(next));
    }
};

struct Group {
    int slot, me;  // this thread's lane in the block, and its place in the group
    u64* parts;    // of the warps, twice: a warp may be ahead by one sum
    int turn;

    template <class Part>
    __device__ __forceinline__ static void over_team(Part& mine) {
#pragma unroll
        for (int by = APART; by < TEAM * APART; by *= 2) {
            mine.merge([&](auto its) { return __shfl_xor_sync(ALL_LANES, its, by); });
        }
    }

#if BITS < 64
    __device__ __forceinline__ static void over_team(Guess& mine) {
        if (TEAM == 32) {
            mine.upto = warp_sum(mine.upto), mine.last = warp_max(mine.last), mine.next = ~warp_max(~mine.next);
            return;
        }
        over_team<Guess>(mine);
    }
#endif

    // Merge what all threads of a lane have. Each of them gets the result.
    template <class Part>
    __device__ __forceinline__ void together(Part& mine) {
        over_team(mine);
        if (WARPS == 1) return;
        Part* own = (Part*)(parts + (turn ^= 1) * WARPS * REACH_SUMS);
        int lane = threadIdx.x % 32;
        if (lane == 0) own[me / 32] = mine;
        named_barrier(1 + slot, GROUP);
        mine = lane < WARPS ? own[lane] : Part();
        over_team(mine);
    }

    // Whether a thread of the warp still works. Groups of several warps do not wait for each other.
    __device__ __forceinline__ static bool any(bool is_open) {
        return GROUP > 1 && GROUP < 32 ? __any_sync(ALL_LANES, is_open) : is_open;
    }
};

static_assert(sizeof(Totals) <= 8 * REACH_SUMS, "there is room for parts");

// --- The rows of a thread ---------------------------------------------------------------------------

struct Own {
    Key keys[KEYS_ARE == IN_REGISTERS ? EACH : 1];
    u32 rounded[ROUNDED_ARE == IN_REGISTERS ? EACH : 1];
    Key* all_keys;  // of the lane, in shared memory
    u32* all_rounded;
    const double* weights;  // of the first row
    i64 jump;  // from a row to the next, in weights
    double scale;
    int n, me;

    __device__ __forceinline__ int row(int j) const { return me + j * GROUP; }
    __device__ __forceinline__ Key& key(int j) {
        return KEYS_ARE == IN_REGISTERS ? keys[j] : all_keys[row(j)];
    }
    __device__ __forceinline__ u32 round(double w) const {
        return w > 0 ? max(1u, (u32)(w * scale + 0.5)) : 0u;
    }
    __device__ __forceinline__ u32 its_rounded(int j, double w) const {
        if (ROUNDED_ARE == MADE) return round(w);
        return ROUNDED_ARE == IN_REGISTERS ? rounded[j] : all_rounded[row(j)];
    }

    template <bool NEEDS_WEIGHTS, class Visit>
    __device__ __forceinline__ void visit(Visit visit_row) {
        const double* at = weights;
        int n_rows = n - me;
        // Otherwise weights, or which rows there are, are kept in registers from one visit to the next.
        asm volatile("" : "+l"(at));
        asm volatile("" : "+r"(n_rows));
        auto visit_one = [&](int j) {
            visit_row(j, NEEDS_WEIGHTS && j * GROUP < n_rows ? __ldg(at) : 0.0);
            at += jump;
        };
        if constexpr (KEYS_ARE == IN_REGISTERS) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) visit_one(j);
        } else {
#pragma unroll 4
            for (int j = 0; j * GROUP < n_rows; ++j) visit_one(j);
        }
    }

    // Round the weights, and add them up. Elements without weight and NaN take no part.
    __device__ __forceinline__ Totals start() {
        Totals all;
        visit<true>([&](int j, double w) {
            u32 its = round(w);
            bool is_nan = KIND == FLOATING && key(j) == NO_KEY, is_one = w > 0 && !is_nan;
            if (ROUNDED_ARE == IN_REGISTERS) rounded[j] = its;
            if (ROUNDED_ARE == IN_MEMORY && row(j) < n) all_rounded[row(j)] = its;
            all.n_missing += w > 0 && is_nan;
            if (!is_one) {
                if (KEYS_ARE == IN_REGISTERS || row(j) < n) key(j) = NO_KEY;
                return;
            }
            all.weight += w, all.rounded += its, ++all.n_valid;
            all.least = min(all.least, key(j)), all.most = max(all.most, key(j));
        });
        return all;
    }

    __device__ __forceinline__ Guess guess(Key pivot) {
        Guess found;
        visit<ROUNDED_ARE == MADE>([&](int j, double w) {
            Key its = key(j);
            if (its <= pivot) found.upto += its_rounded(j, w), found.last = max(found.last, its);
            else found.next = min(found.next, its);
        });
        return found;
    }

    __device__ __forceinline__ Proof prove(Key pivot) {
        Proof found;
        visit<true>([&](int j, double w) {
            Key its = key(j);
            if (its < pivot) found.below += w, found.last = max(found.last, its);
            if (its <= pivot) found.upto += w;
            else found.next = min(found.next, its);
        });
        return found;
    }
};

// Read the keys of a lane, neighbouring threads neighbouring elements.
__device__ __forceinline__ void load(
    const ReachLanes& lanes, const Word* values, i64 start, const Group& group, Word* fetched, Own& own
) {
    auto its_key = [&](Word word, int row) {
        return row < own.n && !is_missing(value_of(word)) ? key_of(word) : NO_KEY;
    };
    if constexpr (KEYS_ARE == IN_REGISTERS) {
        int slot = ARE_FETCHED ? threadIdx.x % LANES : group.slot;
        int first = ARE_FETCHED ? threadIdx.x / LANES : group.me;
        i64 number = min(start + slot, lanes.n_lanes - 1);
        const Word* its = values + place_of_lane(lanes, number, lanes.outer, lanes.inner) + first * lanes.row;
        const i64 jump = GROUP * lanes.row;
#pragma unroll
        for (int from = 0; from < EACH; from += FETCHED_ROWS) {
            Word words[FETCHED_ROWS];
            int n_rows = (int)lanes.n - first - from * GROUP;
            asm volatile("" : "+r"(n_rows));  // otherwise the places of all rows are found first
#pragma unroll
            for (int j = 0; j < FETCHED_ROWS && from + j < EACH; ++j, its += jump) {
                words[j] = j * GROUP < n_rows ? __ldg(its) : Word(0);
            }
            if constexpr (ARE_FETCHED) {
                __syncthreads();
#pragma unroll
                for (int j = 0; j < FETCHED_ROWS; ++j) fetched[(j * LANES + slot) * FETCHED_PITCH + first] = words[j];
                __syncthreads();
#pragma unroll
                for (int j = 0; j < FETCHED_ROWS; ++j) {
                    words[j] = fetched[(j * LANES + group.slot) * FETCHED_PITCH + group.me];
                }
            }
#pragma unroll
            for (int j = 0; j < FETCHED_ROWS && from + j < EACH; ++j) {
                own.keys[from + j] = its_key(words[j], own.row(from + j));
            }
        }
    } else {
        const Word* its = values + place_of_lane(lanes, start, lanes.outer, lanes.inner);
#pragma unroll 8
        for (int row = own.me; row < own.n; row += GROUP) own.all_keys[row] = its_key(its[row * lanes.row], row);
    }
}

// Find the first key up to which the weights reach a share, or pass it.
__device__ __forceinline__ Key reached(
    Own& own, Group& group, const Totals& all, const ReachTarget& target, double slack, bool& is_unsure
) {
    double share = target.share * all.weight, near = target.share * all.rounded;
    bool is_passed = target.is_passed, is_open = all.n_valid > 0 && all.least < all.most;
    Key low = all.least, high = all.most;
    while (group.any(is_open)) {
        Key middle = low + (high - low) / 2;
        Guess found = own.guess(middle);
        group.together(found);
        if (!is_open) continue;
        bool is_enough = is_passed ? found.upto > near : found.upto >= near;
        low = is_enough ? low : found.next, high = is_enough ? found.last : high;
        is_open = low < high;
    }
    Key key = low;
    low = all.least, high = all.most;
    is_open = all.n_valid > 0 && low < high;
#pragma unroll 1
    for (int step = 1; group.any(is_open); ++step) {
        Proof found = own.prove(key);
        group.together(found);
        if (!is_open) continue;
        bool is_enough = is_passed ? found.upto > share : found.upto >= share;
        bool is_more = is_passed ? found.below > share : found.below >= share;
        if (!is_enough && key < high) {
            low = found.next;
            key = step < STEPS || low == high ? low : low + (high - low) / 2;
        } else if (is_more && key > low) {
            high = found.last;
            key = step < STEPS || low == high ? high : low + (high - low) / 2;
        } else {
            is_unsure |= key > all.least && fabs(found.below - share) <= slack;
            is_unsure |= key < all.most && fabs(found.upto - share) <= slack;
            is_open = false;
        }
    }
    return key;
}

extern "C" __global__ void __launch_bounds__(REACH_THREADS, MIN_BLOCKS) reach_lanes(
    const Word* values, const double* weights, const ReachLanes* told, const ReachTarget* targets,
    Value* found, i64* n_valid, i64* n_missing, unsigned char* are_unsure
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    const ReachLanes lanes = *told;
    u64* parts = (u64*)scratch;
    void* behind = parts + (WARPS > 1 ? LANES * WARPS * REACH_SUMS * 2 : 0);
    Group group;
    group.slot = APART > 1 ? threadIdx.x / 32 * APART + threadIdx.x % APART : threadIdx.x / GROUP;
    group.me = APART > 1 ? threadIdx.x % 32 / APART : threadIdx.x % GROUP;
    group.parts = parts + group.slot * WARPS * REACH_SUMS * 2, group.turn = 0;
    Own own;
    own.me = group.me, own.jump = GROUP * lanes.weights_row, own.scale = lanes.scale;
    own.all_keys = (Key*)behind, own.all_rounded = (u32*)behind;
    for (i64 start = (i64)blockIdx.x * LANES; start < lanes.n_lanes; start += (i64)gridDim.x * LANES) {
        i64 number = start + group.slot;
        bool is_one = number < lanes.n_lanes;
        own.n = is_one ? (int)lanes.n : 0;
        own.weights = weights + group.me * lanes.weights_row;
        if (is_one) own.weights += place_of_lane(lanes, number, lanes.weights_outer, lanes.weights_inner);
        load(lanes, values, start, group, (Word*)behind, own);
        Totals all = own.start();
        group.together(all);
        bool is_unsure = false;
#pragma unroll 1
        for (i64 t = 0; t < lanes.n_targets; ++t) {
            ReachTarget target = targets[t];
            Key key = target.share == 0   ? all.least
                      : target.share == 1 ? all.most
                                          : reached(own, group, all, target, lanes.slack * all.weight, is_unsure);
            if (is_one && group.me == 0) found[number * lanes.n_targets + t] = value_of(word_of(key));
        }
        if (!is_one || group.me) continue;
        n_valid[number] = all.n_valid;
        n_missing[number] = all.n_missing;
        are_unsure[number] = is_unsure && lanes.slack > 0;
    }
}
