// Quantiles of lanes too long for shared memory: the digits of keys are counted one after the other,
// until so few elements have the leading digits that they fit. A digit that is equal in all keys of a
// lane is not counted: integers stored as floats have few others, and equal elements have none.

#include "lanes.cuh"

constexpr int DIGIT_BITS = 8;
constexpr int N_BINS = 1 << DIGIT_BITS;
constexpr int BINS_PITCH = N_BINS + 1;  // so that equal bins of neighbouring lanes are in different banks
constexpr int AHEAD = 8;  // elements that a thread loads before it uses them

// The search for one answer: the leading digits of its lower key, and its rank among the keys that have
// them.
struct Search {
    Key prefix, next;  // at the end, the lower key; and the least key above it
    u32 rank, n_same;  // rank among the keys with this prefix, and their number
    u32 n_left;  // those of them that are in shared memory
    u32 wants_next;  // 1 if the upper key has another prefix
};

// The bits that are set in some key, and those that are not set in some key.
struct KeyBits {
    Key found, lacked;
};

// Count the bins of a warp's threads, with one addition for equal bins: tied data have few bins, and
// additions to one place wait for each other.
__device__ __forceinline__ void count_bin(u32* bins, u32 bin, bool counts) {
    u32 left = __ballot_sync(ALL_LANES, counts);
#pragma unroll
    for (int turn = 0; turn < 2 && left; ++turn) {
        int leader = __ffs(left) - 1;
        u32* place = bins + bin;
        u64 theirs = __shfl_sync(ALL_LANES, (u64)place, leader);
        u32 same = __ballot_sync(ALL_LANES, counts && (u64)place == theirs);
        if ((int)(threadIdx.x % 32) == leader) atomicAdd(place, (u32)__popc(same));
        counts &= !(same >> threadIdx.x % 32 & 1);
        left &= ~same;
    }
    if (counts) atomicAdd(bins + bin, 1u);
}

// Count the digit of a thread's key. With lanes side by side, few threads of a warp have equal bins.
__device__ __forceinline__ void count_key(u32* bins, Key key, bool counts, int n_side) {
    u32 bin = u32(key) & (N_BINS - 1);
    if (n_side == 1) count_bin(bins, bin, counts);
    else if (counts) atomicAdd(bins + bin, 1u);
}

// Find the bin of each search's rank, one warp for each search.
__device__ __forceinline__ void take_bins(Search* searches, u32* bins, int n_searches, int shared_by) {
    int me = threadIdx.x % 32;
    for (int s = threadIdx.x / 32; s < n_searches; s += LONG_THREADS / 32) {
        const u32* mine = bins + (i64)(s / shared_by * shared_by) * BINS_PITCH + me * (N_BINS / 32);
        u32 own[N_BINS / 32], total = 0;
#pragma unroll
        for (int b = 0; b < N_BINS / 32; ++b) total += own[b] = mine[b];
        u32 before = sum_upto(total) - total;
        u32 rank = searches[s].rank;
        __syncwarp();
#pragma unroll
        for (int b = 0; b < N_BINS / 32; ++b) {
            if (rank >= before && rank - before < own[b]) {
                searches[s].prefix = searches[s].prefix << DIGIT_BITS | Key(me * (N_BINS / 32) + b);
                searches[s].rank = rank - before;
                searches[s].n_same = own[b];
            }
            before += own[b];
        }
    }
}

// Hand every element of a thread's lane to `visit(key, is_present)`; all threads take part in all
// calls.
template <class Visit>
__device__ __forceinline__ void visit_lane(
    const Stack& stack, i64 lane, i64 first, i64 step, Visit visit
) {
    Reader read(stack, Rows{(int)stack.n}, lane);
    i64 n = stack.n;
    for (i64 start = 0; start < n; start += AHEAD * step) {
        Word words[AHEAD];
        bool is_kept[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            i64 row = start + first + j * step;
            words[j] = row < n ? __ldg((const Word*)read.at((int)row)) : Word(0);
            is_kept[j] = row >= n || read.keeps((int)row);
        }
        if (KEEPS) read.blank(words, is_kept);
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            visit(key_or_absent(words[j]), start + first + j * step < n);
        }
    }
}

// True if an answer needs an element above all those with the prefix.
__device__ __forceinline__ bool wants_next(const Search& search, const Wanted& wanted, i64 entry) {
    int2 ranks = wanted.ranks[entry];
    return ranks.y > ranks.x && search.rank + 1 >= search.n_same;
}

// Shared memory: for each lane and answer a search, room for elements, and bins; and two keys for each
// lane. A block takes `n_side` lanes side by side, or one lane.
extern "C" __global__ void __launch_bounds__(LONG_THREADS, 2) long_lanes(
    const __grid_constant__ Stack stack, const __grid_constant__ Wanted wanted, int n_side,
    int first_answer, int room, Answer* answers, Flags* flags
) {
    extern __shared__ u64 memory[];
    int n_some = min(wanted.n_answers - first_answer, MOST_ANSWERS), n_searches = n_side * n_some;
    Search* searches = (Search*)memory;
    Key* left = (Key*)(searches + n_searches);
    KeyBits* key_bits = (KeyBits*)(left + n_searches * room);  // one for each lane
    u32* bins = (u32*)(key_bits + n_side);
    u32* n_missing = bins + n_searches * BINS_PITCH;
    u32* any_next = n_missing + n_side;
    i64 n_lanes = stack.n_lanes;
    int side = threadIdx.x % n_side;
    i64 first = threadIdx.x / n_side, step = LONG_THREADS / n_side;
    Search* mine = searches + side * n_some;
    Key* my_left = left + side * n_some * room;
    u32* my_bins = bins + side * n_some * BINS_PITCH;
    bool is_searcher = (int)threadIdx.x < n_searches;
    Search& own = searches[is_searcher ? threadIdx.x : 0];

    for (i64 tile = blockIdx.x; tile * n_side < n_lanes; tile += gridDim.x) {
        i64 lane = min(tile * n_side + side, n_lanes - 1);
        if ((int)threadIdx.x < n_side) {
            n_missing[threadIdx.x] = 0;
            key_bits[threadIdx.x] = {0, 0};
        }
        if (is_searcher) own.prefix = 0, own.next = LARGEST, own.n_left = 0;
        if (threadIdx.x == 0) *any_next = 0;
        bool is_left = false;
        i64 entry = 0;  // the table entry of this thread's search
        for (int shift = BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
            bool is_first = shift == BITS - DIGIT_BITS;
            for (int b = threadIdx.x; b < n_searches * BINS_PITCH; b += LONG_THREADS) bins[b] = 0;
            // Before the first digit nothing is known about equal digits.
            Key varies = is_first ? LARGEST : key_bits[side].found & key_bits[side].lacked;
            bool is_counted = __syncthreads_or(u32(varies >> shift) & (N_BINS - 1));
            Key prefixes[MOST_ANSWERS];
#pragma unroll
            for (int a = 0; a < MOST_ANSWERS; ++a) prefixes[a] = a < n_some ? mine[a].prefix : Key(0);
            if (is_left) {
#pragma unroll
                for (int a = 0; a < MOST_ANSWERS; ++a) {
                    int n = a < n_some ? (int)mine[a].n_left : 0;
                    for (int i = (int)first; i < n; i += (int)step) {
                        Key key = my_left[a * room + i] >> shift;
                        u32 bin = u32(key) & (N_BINS - 1);
                        if (key >> DIGIT_BITS == prefixes[a]) atomicAdd(my_bins + a * BINS_PITCH + bin, 1u);
                    }
                }
            } else if (is_first) {  // the first digit has the same counts for all answers
                u32 missing = 0;
                KeyBits some = {0, 0};
                visit_lane(stack, lane, first, step, [&](Key key, bool is_present) {
                    if (KIND == FLOATING) missing += is_present && is_absent(key);
                    if (is_present) some.found |= key, some.lacked |= ~key;
                    count_key(my_bins, key >> shift, is_present, n_side);
                });
                if (KIND == FLOATING && missing) atomicAdd(n_missing + side, missing);
                atomicOr(&key_bits[side].found, some.found);
                atomicOr(&key_bits[side].lacked, some.lacked);
            } else if (is_counted) {
                visit_lane(stack, lane, first, step, [&](Key key, bool is_present) {
                    Key prefix = key >> shift >> DIGIT_BITS;
#pragma unroll
                    for (int a = 0; a < MOST_ANSWERS; ++a) {
                        if (a >= n_some) break;
                        bool counts = is_present && prefix == prefixes[a];
                        count_key(my_bins + a * BINS_PITCH, key >> shift, counts, n_side);
                    }
                });
            }
            __syncthreads();
            if (is_first && is_searcher) {
                i64 n_valid = stack.n - n_missing[threadIdx.x / n_some];
                entry = (n_valid - wanted.first_v) * wanted.n_answers + first_answer +
                        threadIdx.x % n_some;
                own.rank = wanted.ranks[entry].x;
                own.n_same = 0;
            }
            __syncthreads();
            if (is_left || is_counted) {
                take_bins(searches, bins, n_searches, is_first ? n_some : 1);
            } else if (is_searcher) {
                Key same = key_bits[threadIdx.x / n_some].found >> shift & (N_BINS - 1);
                own.prefix = own.prefix << DIGIT_BITS | same;
            }
            __syncthreads();
            bool is_last = shift == 0, fits = true;
            for (int s = 0; s < n_searches; ++s) fits &= searches[s].n_same <= (u32)room;
            if (is_left || !(is_last || fits)) continue;
            // Collect the keys with the prefixes, and find the least larger key where it is needed.
            if (is_searcher) {
                own.wants_next = wants_next(own, wanted, entry);
                if (own.wants_next) *any_next = 1;
            }
            __syncthreads();
            bool wants_any = *any_next;
            if (is_last && !wants_any) break;
            Key next[MOST_ANSWERS];
#pragma unroll
            for (int a = 0; a < MOST_ANSWERS; ++a) {
                prefixes[a] = a < n_some ? mine[a].prefix : Key(0);
                next[a] = LARGEST;
            }
            visit_lane(stack, lane, first, step, [&](Key key, bool is_present) {
                Key prefix = key >> shift;
#pragma unroll
                for (int a = 0; a < MOST_ANSWERS; ++a) {
                    if (a >= n_some) break;
                    if (is_present && prefix > prefixes[a]) next[a] = min(next[a], key);
                    if (is_present && prefix == prefixes[a] && !is_last) {
                        my_left[a * room + atomicAdd(&mine[a].n_left, 1u)] = key;
                    }
                }
            });
            if (wants_any) {
#pragma unroll
                for (int a = 0; a < MOST_ANSWERS; ++a) {
                    if (a < n_some) atomicMin(&mine[a].next, next[a]);
                }
            }
            is_left = true;
            __syncthreads();
        }
        // If the upper key is not the lower one, it may be among the collected keys.
        if (is_left) {
#pragma unroll
            for (int a = 0; a < MOST_ANSWERS; ++a) {
                int n = a < n_some ? (int)mine[a].n_left : 0;
                Key lower = a < n_some ? mine[a].prefix : Key(0), least = LARGEST;
                for (int i = (int)first; i < n; i += (int)step) {
                    Key key = my_left[a * room + i];
                    if (key > lower) least = min(least, key);
                }
                if (least != LARGEST) atomicMin(&mine[a].next, least);
            }
        }
        __syncthreads();
        if (is_searcher) {
            i64 n_valid = stack.n - n_missing[threadIdx.x / n_some];
            int a = first_answer + threadIdx.x % n_some;
            i64 of_lane = tile * n_side + threadIdx.x / n_some;
            Answer answer = no_answer();
            if (n_valid > 0 && (n_valid == stack.n || wanted.skips_missing)) {
                Key upper = wants_next(own, wanted, entry) ? own.next : own.prefix;
                answer = mixed(own.prefix, upper, wanted.weights[entry], wanted.mixes, flags);
            }
            if (of_lane < n_lanes) answers[a * n_lanes + of_lane] = answer;
            if (n_valid == 0 && of_lane < n_lanes) flags->all_missing = 1;
        }
        __syncthreads();
    }
}
