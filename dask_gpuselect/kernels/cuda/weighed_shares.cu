// Weighted quantiles of lanes: the first element of each up to which the weights reach a share.
//
// GROUP threads share a lane, and each takes every GROUP-th row of it. Weights are rounded to integers
// whose sum has 32 bits. Their sums up to a key inside of a bracket narrow it, until one key is left: a
// guess. If rounding may have moved it, sums of the weights themselves, below the guess and up to it, prove it
// or say on which side the answer is. These sums are floats, which are exact where weights are integers. Elsewhere an answer is
// unsure if such a sum is so near to the share that rounding may have moved it past; the host finds that
// by integers.
//
// Defined before this text:
//
//   REACH_THREADS: threads of a block
//   GROUP: threads of a lane, a power of two
//   EACH: rows of a thread, at most
//   MIN_BLOCKS: blocks at the same time on a multiprocessor
//   SIDE_BY_SIDE: 1 if neighbouring lanes are nearer to each other than rows are

#include "weighed_lanes.cuh"

constexpr int LANES = REACH_THREADS / GROUP;  // of a block at the same time
constexpr int TEAM = GROUP < 32 ? GROUP : 32;  // the threads of a lane that are of one warp
constexpr int WARPS = GROUP / TEAM;
constexpr int PARTS = WARPS > 1 ? WARPS * REACH_SUMS * 2 : 0;  // words for the warps of a lane
// Lanes that are side by side share a warp so that neighbouring threads have neighbouring lanes.
constexpr int APART = SIDE_BY_SIDE && GROUP < 32 ? 32 / GROUP : 1;
// In wider groups, threads fetch elements for other threads, because they read rows in the order of memory.
constexpr bool ARE_FETCHED = SIDE_BY_SIDE && GROUP >= 32 && LANES > 1;
constexpr int FETCHED_PITCH = GROUP + 32 / (LANES < 32 ? LANES : 32);
constexpr int STEPS = 4;  // from one element to the next, before the bracket is halved

// --- What the threads of a lane find together -------------------------------------------------------

struct Totals {
    double weight;
    u32 rounded, n_valid, n_missing, n_idle;  // idle: valid elements without weight
    Key least, most;

    __device__ __forceinline__ Totals()
        : weight(0), rounded(0), n_valid(0), n_missing(0), n_idle(0), least(NO_KEY), most(0) {}
    template <class Other>
    __device__ __forceinline__ void merge(Other of) {
        weight += of(weight), rounded += of(rounded), n_valid += of(n_valid), n_missing += of(n_missing);
        n_idle += of(n_idle);
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

// The value of another thread, whose number differs in the bits `by`.
struct Shuffled {
    int by;

    template <class Number>
    __device__ __forceinline__ Number operator()(Number mine) const {
        return __shfl_xor_sync(ALL_LANES, mine, by);
    }
};

struct Group {
    int slot, me;  // this thread's lane in the block, and its place in the group
    u64* parts;    // of the warps, twice: a warp may be ahead by one sum
    int turn;

    __device__ __forceinline__ explicit Group(u64* all_parts) : turn(0) {
        slot = APART > 1 ? threadIdx.x / 32 * APART + threadIdx.x % APART : threadIdx.x / GROUP;
        me = APART > 1 ? threadIdx.x % 32 / APART : threadIdx.x % GROUP;
        parts = all_parts + slot * PARTS;
    }

    template <class Part>
    __device__ __forceinline__ static void over_team(Part& mine) {
#pragma unroll
        for (int by = APART; by < TEAM * APART; by *= 2) {
            mine.merge(Shuffled{by});
        }
    }

    __device__ __forceinline__ static void over_team(Guess& mine) {
        if (TEAM < 32) return over_team<Guess>(mine);
        mine.upto = total_over_warp(mine.upto);
        mine.last = largest_over_warp(mine.last), mine.next = least_over_warp(mine.next);
    }

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

    // True while a thread of the warp works. Groups of several warps do not wait for each other.
    __device__ __forceinline__ static bool any(bool is_open) {
        return GROUP > 1 && GROUP < 32 ? __any_sync(ALL_LANES, is_open) : is_open;
    }
};

static_assert(sizeof(Totals) <= 8 * REACH_SUMS, "there is room");

// --- The rows of a thread ---------------------------------------------------------------------------

struct Own {
    Key keys[EACH];
    u32 rounded[EACH];
    const double* weights;  // of the first row
    i64 jump;  // from a row to the next, in weights
    double scale;
    u64 kept;  // a bit for each row, 0 if a mask leaves it out
    int n, me;

    __device__ __forceinline__ explicit Own(const ReachLanes& lanes)
        : jump(GROUP * lanes.weights_row), scale(lanes.scale) {}

    __device__ __forceinline__ bool is_kept(int j) const { return !KEEPS || (kept >> j & 1); }
    __device__ __forceinline__ u32 round(double w) const {
        return w > 0 ? max(1u, (u32)(w * scale + 0.5)) : 0u;
    }

    template <bool NEEDS_WEIGHTS, class Visit>
    __device__ __forceinline__ void visit(Visit visit_row) {
        const double* at = weights;
        int n_rows = n - me;
        // Otherwise weights, or which rows there are, are kept in registers from one visit to the next.
        asm volatile("" : "+l"(at));
        asm volatile("" : "+r"(n_rows));
#pragma unroll
        for (int j = 0; j < EACH; ++j, at += jump) {
            bool is_one = NEEDS_WEIGHTS && j * GROUP < n_rows && is_kept(j);
            visit_row(j, is_one ? __ldg(at) : LEFT_OUT);
        }
    }

    // Round the weights, and add them up. Elements without weight and NaN take no part.
    __device__ __forceinline__ Totals start() {
        Totals all;
        visit<true>([&](int j, double w) {
            u32 its = round(w);
            bool is_nan = KIND == FLOATING && keys[j] == NO_KEY, is_one = w > 0 && !is_nan;
            rounded[j] = its;
            all.n_missing += w > 0 && is_nan;
            if (!is_one) {
                all.n_idle += !is_nan && is_idle(w);
                keys[j] = NO_KEY;
                return;
            }
            all.weight += w, all.rounded += its, ++all.n_valid;
            all.least = min(all.least, keys[j]), all.most = max(all.most, keys[j]);
        });
        return all;
    }

    __device__ __forceinline__ Guess guess(Key pivot) {
        Guess found;
        visit<false>([&](int j, double) {
            Key its = keys[j];
            if (its <= pivot) found.upto += rounded[j], found.last = max(found.last, its);
            else found.next = min(found.next, its);
        });
        return found;
    }

    __device__ __forceinline__ Proof prove(Key pivot) {
        Proof found;
        visit<true>([&](int j, double w) {
            Key its = keys[j];
            if (its < pivot) found.below += w, found.last = max(found.last, its);
            if (its <= pivot) found.upto += w;
            else found.next = min(found.next, its);
        });
        return found;
    }
};

// Read some rows of lanes, from `its` on, neighbouring threads neighbouring elements. A row of lanes that
// are side by side is read by neighbouring threads, and each gets its own elements by way of shared memory.
template <class T>
__device__ __forceinline__ void fetch(const T* its, i64 jump, int n_rows, const Group& group, T* fetched, T (&found)[FETCHED_ROWS]) {
    asm volatile("" : "+r"(n_rows));  // otherwise the places of all rows are found first
#pragma unroll
    for (int j = 0; j < FETCHED_ROWS; ++j, its += jump) found[j] = j * GROUP < n_rows ? __ldg(its) : T(0);
    if constexpr (ARE_FETCHED) {
        T* to = fetched + threadIdx.x % LANES * FETCHED_PITCH + threadIdx.x / LANES;
        const T* from = fetched + group.slot * FETCHED_PITCH + group.me;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < FETCHED_ROWS; ++j) to[j * LANES * FETCHED_PITCH] = found[j];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < FETCHED_ROWS; ++j) found[j] = from[j * LANES * FETCHED_PITCH];
    }
}

// Read the keys and the mask of a lane. Return whether there is one.
__device__ __forceinline__ bool load(
    const ReachLanes& lanes, const Word* values, const double* weights, const Keep* keeps, i64 start,
    const Group& group, u64* fetched, Own& own
) {
    const bool is_one = start + group.slot < lanes.n_lanes;
    own.me = group.me, own.n = is_one ? (int)lanes.n : 0, own.kept = 0;
    own.weights = Rows<GROUP>(values, weights, keeps, lanes, start + group.slot, group.me).weight;
    const int slot = ARE_FETCHED ? threadIdx.x % LANES : group.slot;
    const int first = ARE_FETCHED ? threadIdx.x / LANES : group.me;
    const Rows<GROUP> its(values, weights, keeps, lanes, start + slot, first);
    auto its_key = [&](Word word, int row) {
        return row < own.n && !is_missing(value_of(word)) ? key_of(word) : NO_KEY;
    };
#pragma unroll
    for (int from = 0; from < EACH; from += FETCHED_ROWS) {
        Word words[FETCHED_ROWS];
        Keep kept[FETCHED_ROWS];
        const int n_rows = its.n - from * GROUP;
        fetch(its.word + from * its.jump, its.jump, n_rows, group, (Word*)fetched, words);
        if (KEEPS) fetch(its.keep + from * its.keeps_jump, its.keeps_jump, n_rows, group, (Keep*)fetched, kept);
#pragma unroll
        for (int i = 0; i < FETCHED_ROWS; ++i) {
            int j = from + i;
            if (KEEPS) own.kept |= (u64)(kept[i] != 0) << j;
            if (j < EACH) own.keys[j] = its_key(words[i], own.me + j * GROUP);
        }
    }
    return is_one;
}

// A guess for a share, and the rounded weights below it and up to it. At first it is the least key.
struct Guessed {
    Key key;
    u32 before, upto;

    __device__ __forceinline__ explicit Guessed(const Totals& all) : key(all.least), before(0), upto(0) {}

    // Whether it is the answer for a share `near` of the rounded weights, wherever weights are rounded to: each
    // by at most one, so that a sum and the share of all differ by at most their number.
    __device__ __forceinline__ bool is_sure(const Totals& all, double near) const {
        double margin = all.n_valid + 2.0;
        return (key == all.least || near - before > margin) && (key == all.most || upto - near > margin);
    }
};

// Guess the first key up to which the rounded weights reach a share of theirs, or pass it. `guessed` is for
// example the guess for a smaller share, and becomes the one for this.
//
// Keys are interpolated (the Illinois method): of normal, uniform and lognormal lanes, 9 quantiles take 5 to
// 10 steps each, and with the middle keys 7 to 16. Every fourth key is the middle one, which bounds their
// number.
__device__ __forceinline__ void guess(Own& own, Group& group, const Totals& all, double near, bool is_passed, Guessed& guessed) {
    bool is_open = all.n_valid > 0 && guessed.key < all.most, was_enough = false;
    Key low = guessed.key, high = all.most;
    u32 before = guessed.before, upto = all.rounded;
    float aim = (float)near - 0.5f * ((float)all.rounded / (float)all.n_valid);
    float less = aim - (float)before, more = (float)all.rounded - aim;  // the weight up to the ends, from there
#pragma unroll 1
    for (int step = 1; group.any(is_open); ++step) {
        float share = step % 4 ? fminf(fmaxf(less / (less + more), 0.0f), 0.9999f) : 0.5f;
        Key middle = low + min((Key)((float)(high - low) * share), high - low - (high > low));
        Guess found = own.guess(middle);
        group.together(found);
        if (!is_open) continue;
        bool is_enough = is_passed ? found.upto > near : found.upto >= near;
        bool is_again = step > 1 && is_enough == was_enough;
        if (is_enough) {
            high = found.last, upto = found.upto, more = (float)upto - aim, less *= is_again ? 0.5f : 1.0f;
        } else {
            low = found.next, before = found.upto, less = aim - (float)before, more *= is_again ? 0.5f : 1.0f;
        }
        was_enough = is_enough, is_open = low < high;
    }
    guessed.key = low, guessed.before = before, guessed.upto = upto;
}

// Find the first key up to which the weights reach a share, or pass it.
__device__ __forceinline__ Key reached(
    Own& own, Group& group, const Totals& all, const ReachTarget& target, double slack, Guessed& first, bool& is_unsure
) {
    double share = target.share * all.weight, near = target.share * all.rounded;
    bool is_passed = target.is_passed;
    guess(own, group, all, near, is_passed, first);
    bool is_open = all.n_valid > 0 && all.least < all.most && !first.is_sure(all, near);
    Key key = first.key, low = all.least, high = all.most;
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
    const Word* values, const double* weights, const Keep* keeps, const ReachLanes* told, const ReachTarget* targets,
    int answer_size, void* answers, i64* n_valid, i64* n_missing, unsigned char* are_unsure, u32* flags
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    const ReachLanes lanes = *told;
    Group group((u64*)scratch);
    Own own(lanes);
    for (i64 start = (i64)blockIdx.x * LANES; start < lanes.n_lanes; start += (i64)gridDim.x * LANES) {
        i64 number = start + group.slot;
        bool is_one = load(lanes, values, weights, keeps, start, group, (u64*)scratch + LANES * PARTS, own), sure = true;
        Totals all = own.start();
        group.together(all);
        Guessed guessed(all);
        double before = 0;
#pragma unroll 1
        for (i64 t = 0; t < lanes.n_targets; ++t) {
            ReachTarget target = targets[t];
            double q = target.share;
            if (q < before) guessed = Guessed(all);
            before = q;
            bool is_unsure = false;
            Key key = q == 0 ? all.least : q == 1 ? all.most : reached(own, group, all, target, lanes.slack * all.weight, guessed, is_unsure);
            sure = sure && !(is_unsure && lanes.slack > 0);
            if (is_one && group.me == 0) ((Value*)answers)[t * lanes.n_lanes + number] = value_of(word_of(key));
        }
        if (!is_one || group.me) continue;
        write(all, number, !sure, n_valid, n_missing, are_unsure, flags);
    }
}
