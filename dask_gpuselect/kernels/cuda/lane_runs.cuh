// Lanes as sorted runs in shared memory, each read once from device memory, and selection of keys by
// rank.
//
// GROUP threads share a lane. Each sorts RUNS runs of RUN keys by a network, in registers, and stores
// them in shared memory. For a group of one thread, that is the sorted lane. Other groups narrow a
// bracket around the wanted key. In each sweep every thread proposes, from one of its runs, the key at
// the place that the rank has among all keys inside the bracket. The middle of the sorted proposals is
// close to the wanted key: the median of a run of 24 keys tells more than one random key. Two proposals
// around the middle are counted in all runs, by binary search, and keys outside them are dropped. This
// is repeated until FEW keys are left, which are sorted. No data can make that slow: pivots are
// elements, so that one sweep counts all ties.
//
// Defined before this text, besides the definitions for lanes.cuh:
//
//   GROUP: threads for a lane, a power of two
//   RUN, RUNS: keys of a run, and runs of a thread
//   BLOCK: threads of a block
//   MIN_BLOCKS: blocks at the same time on a multiprocessor
//   SIDE_BY_SIDE: lanes are next to each other in memory, not one behind the other
//   STAGED: threads fetch keys for other threads, because they read rows in the order of memory
//   ORDERED: the runs of a lane are merged, because many keys of it are wanted

#include "lanes.cuh"
#include "networks.cuh"

constexpr int KEPT = RUN * RUNS;  // keys of a thread
constexpr int LANES = BLOCK / GROUP;  // lanes of a block at the same time
constexpr int TEAM = GROUP < 32 ? GROUP : 32;  // the threads of a group that are of one warp
constexpr int FEW = GROUP < 4 ? 8 * GROUP : 32;  // keys that are sorted at the end
constexpr int FEW_EACH = FEW / TEAM;

// Thread `me` of lane `slot` stores key j at j * PITCH + slot * STRIDE + me. So a thread's own keys are
// in one bank, and keys that a warp fetches together, for other threads, are in different banks.
constexpr int PAD = !STAGED || !SIDE_BY_SIDE ? 0 : LANES < 32 ? 32 / LANES : 1;
constexpr int STRIDE = GROUP + PAD;
constexpr int PITCH = LANES * STRIDE + (STAGED && !SIDE_BY_SIDE ? GROUP : 0);

// The threads of a team are next to each other in their warp, or spread so that neighbouring threads
// have neighbouring lanes.
constexpr bool IS_SPREAD = SIDE_BY_SIDE && !STAGED && GROUP < 32;
constexpr int STEP = IS_SPREAD ? 32 / GROUP : 1;

__device__ constexpr u32 team_of_first() {
    u32 threads = 0;
    for (int i = 0; i < TEAM; ++i) threads |= 1u << i * STEP;
    return threads;
}
constexpr u32 TEAM_OF_FIRST = team_of_first();

// --- Sorting in registers -------------------------------------------------------------------------

// A long run is sorted in two parts, one after the other by the same instructions, which are then
// merged. That is 511 exchanges for 60 keys instead of 506, but only 333 in the text of the kernel,
// which decides how long it takes to compile. It needs a few more registers, and is not done where they
// would be spilled.
constexpr int MOST_REGISTERS = 65536 / (BLOCK * MIN_BLOCKS);
constexpr int PARTS = RUN > 32 && RUN + 36 <= MOST_REGISTERS ? 2 : 1;
constexpr int PART = RUN / PARTS;
static_assert(PART * PARTS == RUN, "parts are equal");

__device__ constexpr int power_from(int n) { return n > 1 ? 2 * power_from((n + 1) / 2) : 1; }

__device__ __forceinline__ void merge_parts(Key (&keys)[RUN], Key one) {
    constexpr int P = power_from(PART);
    if constexpr (PARTS > 1) merge_in_thread<P, P, P - PART>(keys, one);
}

// --- Groups ---------------------------------------------------------------------------------------

// The threads that share a lane. All threads of a warp take part in all calls.
struct Group {
    int slot, me;  // this thread's lane in the block, and its place in the group
    Key *all, *mine;  // the keys of the lane, and of this thread
    Key* few;      // FEW
    u32* sums;  // two for each warp, if the group has several
    int turn;

    __device__ __forceinline__ int mate() const { return me % TEAM; }  // this thread in its team
    __device__ __forceinline__ int warp() const { return me / 32; }

    __device__ __forceinline__ void sync() const {
        if constexpr (GROUP <= 32) {
            __syncwarp();
        } else {
            named_barrier(1 + slot, GROUP);
        }
    }

    template <class T>
    __device__ __forceinline__ T other(T value, int mask) const {
        return __shfl_xor_sync(ALL_LANES, value, mask * STEP);
    }

    // The value of thread i of the team.
    template <class T>
    __device__ __forceinline__ T of(T value, int i) const {
        int lane = threadIdx.x % 32;
        return __shfl_sync(ALL_LANES, value, lane + (i - mate()) * STEP);
    }

    __device__ __forceinline__ u32 team_sum(u32 value) const {
        if constexpr (TEAM == 32) return total_over_warp(value);
#pragma unroll
        for (int mask = TEAM / 2; mask; mask /= 2) value += other(value, mask);
        return value;
    }

    __device__ __forceinline__ Key team_least(Key key) const {
#pragma unroll
        for (int mask = TEAM / 2; mask; mask /= 2) key = min(key, other(key, mask));
        return key;
    }

    // The number of threads of the team with `yes`.
    __device__ __forceinline__ int team_votes(bool yes) const {
        int first = threadIdx.x % 32 - mate() * STEP;
        return __popc(__ballot_sync(ALL_LANES, yes) & TEAM_OF_FIRST << first);
    }

    __device__ __forceinline__ u32 sum(u32 value) {
        value = team_sum(value);
        if constexpr (GROUP <= 32) return value;
        // Two places are used by turns, so that a warp that is ahead by one sum overwrites nothing that
        // is still needed.
        u32* mine = sums + 32 * (turn ^= 1);
        if (mate() == 0) mine[warp()] = value;
        sync();
        return total_over_warp(mate() < GROUP / 32 ? mine[mate()] : 0);
    }

    // The sum over the threads before this one, and over all.
    __device__ __forceinline__ u32 sum_before(u32 value, u32& total) {
        u32 upto = value;
#pragma unroll
        for (int step = 1; step < TEAM; step *= 2) {
            u32 lower = of(upto, max(mate() - step, 0));
            if (mate() >= step) upto += lower;
        }
        total = of(upto, TEAM - 1);
        if constexpr (GROUP <= 32) return upto - value;
        u32* mine = sums + 32 * (turn ^= 1);
        if (mate() == 0) mine[warp()] = total;
        sync();
        u32 of_warp = mate() < GROUP / 32 ? mine[mate()] : 0;
        total = total_over_warp(of_warp);
        return total_over_warp(mate() < warp() ? of_warp : 0) + upto - value;
    }

    __device__ __forceinline__ Key least(Key key) {
        key = team_least(key);
        if constexpr (GROUP <= 32) return key;
        sync();
        if (mate() == 0) few[warp()] = key;
        sync();
        return team_least(mate() < GROUP / 32 ? few[mate()] : LARGEST);
    }

    // The values that the threads of one warp have.
    __device__ __forceinline__ void broadcast(Key& a, Key& b, int from_warp) {
        if constexpr (GROUP <= 32) return;
        sync();
        if (me == 32 * from_warp) few[0] = a, few[1] = b;
        sync();
        a = few[0], b = few[1];
    }

    // Sort the team's keys in ascending order; each thread has EACH of them.
    template <int EACH>
    __device__ __forceinline__ void sort(Key (&keys)[EACH]) const {
        int first = mate() * EACH;
#pragma unroll
        for (int size = 2; size <= TEAM * EACH; size *= 2) {
#pragma unroll
            for (int step = size / 2; step >= EACH; step /= 2) {
                bool takes_least = ((first & step) == 0) == ((first & size) == 0);
#pragma unroll
                for (int k = 0; k < EACH; ++k) {
                    Key theirs = other(keys[k], step / EACH);
                    keys[k] = takes_least ? min(keys[k], theirs) : max(keys[k], theirs);
                }
            }
#pragma unroll
            for (int step = size / 2 < EACH ? size / 2 : EACH / 2; step; step /= 2) {
#pragma unroll
                for (int k = 0; k < EACH; ++k) {
                    if (k & step) continue;
                    bool ascends = ((first + k) & size) == 0;
                    Key a = keys[k], b = keys[k + step];
                    keys[k] = ascends ? min(a, b) : max(a, b);
                    keys[k + step] = ascends ? max(a, b) : min(a, b);
                }
            }
        }
    }
};

// This thread's group. Shared memory has the keys of all lanes, `all_keys`, and behind them, for each
// group, its few keys and its sums.
__device__ __forceinline__ Group own_group(Key* all_keys) {
    Key* all_few = all_keys + KEPT * PITCH;
    u32* all_sums = (u32*)(all_few + (GROUP > 1 ? LANES * FEW : 0));
    int slot = IS_SPREAD ? threadIdx.x / 32 * STEP + threadIdx.x % STEP : threadIdx.x / GROUP;
    int me = IS_SPREAD ? threadIdx.x % 32 / STEP : threadIdx.x % GROUP;
    Key* its = all_keys + slot * STRIDE;
    return {slot, me, its, its + me, all_few + slot * FEW, all_sums + slot * 64, 0};
}

// --- Fetching -------------------------------------------------------------------------------------

// So many keys of each part are certainly elements, if a thread has every GROUP-th row: a run is
// rounded up by at most three, the runs to equal lengths, and the lane to equally many rows for each
// thread.
constexpr int SURE = PART - 4 * RUNS;

// Fetch lanes that are side by side: the block's threads read rows of all its lanes.
__device__ __forceinline__ void fetch_rows(
    const Stack& stack, const Rows& rows, i64 first_lane, Key* kept
) {
    int slot = threadIdx.x % LANES, row = threadIdx.x / LANES;
    Reader read(stack, rows, min(first_lane + slot, stack.n_lanes - 1));
    Key* its_kept = kept + slot * STRIDE + row;
#pragma unroll 1
    for (int first = 0; first < KEPT; first += PART) {
        Word words[PART];
        read.read_words<GROUP, SURE>(row + first * GROUP, words);
#pragma unroll
        for (int j = 0; j < PART; ++j) its_kept[(first + j) * PITCH] = words[j];
    }
}

// Fetch lanes that are one behind the other: a warp's threads read the warp's lanes, several together
// if they are short. Enough rows or lanes are read one after the other that 16 loads are in flight.
__device__ __forceinline__ void fetch_lanes(
    const Stack& stack, const Rows& rows, i64 first_lane, Key* kept
) {
    constexpr int PLACES = KEPT * GROUP;  // of a lane
    constexpr int WIDTH = PLACES > 16 ? 32 : PLACES > 8 ? 16 : PLACES > 4 ? 8 : PLACES > 2 ? 4 : 2;
    constexpr int AT_ONCE = 32 / WIDTH, STEPS = (PLACES + WIDTH - 1) / WIDTH;
    constexpr int ROUNDS = GROUP < 32 ? 32 / GROUP / AT_ONCE : 1, IN_FLIGHT = 16;
    constexpr int LANES_TOGETHER = ROUNDS < IN_FLIGHT ? ROUNDS : IN_FLIGHT;
    constexpr int STEPS_TOGETHER =
        STEPS * LANES_TOGETHER < IN_FLIGHT ? STEPS : IN_FLIGHT / LANES_TOGETHER;
    constexpr int SURE_STEPS = (KEPT - 4 * RUNS) * GROUP / WIDTH;
    int me = threadIdx.x % WIDTH, n = rows.n;
    int first_slot = threadIdx.x / 32 * (32 / GROUP) + threadIdx.x % 32 / WIDTH;
    i64 lane = first_lane + first_slot;
    int n_left = (int)min(stack.n_lanes - lane, (i64)32);  // of lanes
    Reader read(stack, rows, min(lane, stack.n_lanes - 1));
#pragma unroll
    for (int first = 0; first < STEPS; first += STEPS_TOGETHER) {
#pragma unroll 1
        for (int start = 0; start < ROUNDS; start += LANES_TOGETHER) {
            Word words[STEPS_TOGETHER][LANES_TOGETHER];
#pragma unroll
            for (int s = 0; s < STEPS_TOGETHER; ++s) {
                int step = first + s, row = me + step * WIDTH;
                bool is_row = step < SURE_STEPS || (step < STEPS && row < n);
                const char* at = read.row_0;
                i64 jump = 0;
                if (is_row) {
                    at = read.at(row);
                    jump = AT_ONCE * stack.parts[read.part].outer * (i64)sizeof(Word);
                }
                at += start * jump;
#pragma unroll
                for (int l = 0; l < LANES_TOGETHER; ++l) {
                    words[s][l] = Word(0);
                    bool is_lane = (start + l) * AT_ONCE < n_left;
                    if (is_row && is_lane) words[s][l] = __ldg((const Word*)at);
                    at += jump;
                    asm("" : "+l"(at));  // otherwise the compiler computes all offsets for every load
                }
            }
#pragma unroll
            for (int s = 0; s < STEPS_TOGETHER; ++s) {
                int step = first + s;
                // The row of the first step; later rows are as far apart.
                Key* its_kept = kept + me / GROUP * PITCH + me % GROUP + first_slot * STRIDE;
                bool is_place = PLACES % WIDTH == 0 || me + step * WIDTH < PLACES;
                int further = step * (WIDTH / GROUP) * PITCH;
#pragma unroll
                for (int l = 0; l < LANES_TOGETHER; ++l) {
                    int slot = (start + l) * AT_ONCE;
                    if (step < STEPS && is_place) its_kept[further + slot * STRIDE] = words[s][l];
                }
            }
        }
    }
}

// Sort each run; it is fetched now if that has not been done.
__device__ __forceinline__ void sort_runs(
    const Stack& stack, const Rows& rows, i64 lane, int me, Key* mine, int (&n_kept)[RUNS]
) {
    Reader read(stack, rows, lane);
    Key one = (Key)stack.one;
#pragma unroll 1
    for (int run = 0; run < RUNS; ++run) {
        Key* run_kept = mine + run * RUN * PITCH;
        Key keys[RUN];
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
            int first = me + (run * RUN + part * PART) * GROUP;
            Word words[PART];
            if constexpr (STAGED) {
                const Key* part_kept = run_kept + part * PART * PITCH;
#pragma unroll
                for (int j = 0; j < PART; ++j) words[j] = (Word)part_kept[j * PITCH];
            } else {
                read.read_words<GROUP, SURE>(first, words);
            }
            Key of_part[PART];
#pragma unroll
            for (int j = 0; j < PART; ++j) {
                bool is_present = j < SURE || first + j * GROUP < rows.n;
                of_part[j] = is_present ? key_or_absent(words[j]) : LARGEST;
            }
            sort_in_thread<1>(of_part, one);
            // Move the sorted first part to the front.
#pragma unroll
            for (int j = 0; j < RUN; ++j) {
                keys[j] = j + PART < RUN ? keys[(j + PART) % RUN] : of_part[j + PART - RUN];
            }
        }
        merge_parts(keys, one);
#pragma unroll
        for (int j = 0; j < RUN; ++j) run_kept[j * PITCH] = keys[j];
    }
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
        int n_left = rows.n - me - run * RUN * GROUP;
        n_kept[run] = min(max((n_left + GROUP - 1) / GROUP, 0), RUN);
    }
}

// Fill the block's part of shared memory with the lanes from `first_lane` on, each run sorted. `n_kept`
// gets the number of elements in each of the thread's runs.
__device__ __forceinline__ void fetch(
    const Stack& stack, const Rows& rows, i64 first_lane, const Group& group, int (&n_kept)[RUNS]
) {
    Key* kept = group.all - group.slot * STRIDE;
    if constexpr (STAGED && SIDE_BY_SIDE) {
        fetch_rows(stack, rows, first_lane, kept);
        __syncthreads();
    } else if constexpr (STAGED) {
        fetch_lanes(stack, rows, first_lane, kept);
        __syncwarp();
    }
    i64 lane = min(first_lane + group.slot, stack.n_lanes - 1);
    sort_runs(stack, rows, lane, group.me, group.mine, n_kept);
}

// --- Merging --------------------------------------------------------------------------------------

// Key i of neighbouring threads' runs in one order: each thread has RUN of them.
__device__ __forceinline__ const Key* in_order(const Key* first, int i) {
    return GROUP == 1 ? first + i * PITCH : first + i / RUN + i % RUN * PITCH;
}

// Merge the runs of a group's lane, one of each thread, until all its keys are in one order: selecting a
// hundred ranks one by one would take many times as many comparisons. In each round two halves of
// neighbouring threads are merged, and every thread finds where its RUN keys begin in both.
__device__ __forceinline__ void merge_runs(const Group& group) {
    static_assert(RUNS == 1 || !ORDERED, "a thread merges as many keys as it has in registers");
#pragma unroll 1
    for (int half = 1; half < GROUP; half *= 2) {
        int begin = group.me & -2 * half, n = half * RUN, at = (group.me - begin) * RUN;
        const Key *left = group.all + begin, *right = left + half;
        group.sync();
        int i = first_not(max(at - n, 0), min(at, n), [&](int place) {
            return *in_order(left, place) <= *in_order(right, at - 1 - place);
        });
        int j = at - i;
        Key merged[RUN];
        Key a = i < n ? *in_order(left, i) : LARGEST, b = j < n ? *in_order(right, j) : LARGEST;
#pragma unroll
        for (int k = 0; k < RUN; ++k) {
            bool is_left = a <= b;
            merged[k] = is_left ? a : b;
            int next = is_left ? ++i : ++j;
            Key key = next < n ? *in_order(is_left ? left : right, next) : LARGEST;
            a = is_left ? key : a, b = is_left ? b : key;
        }
        group.sync();
#pragma unroll
        for (int k = 0; k < RUN; ++k) group.mine[k * PITCH] = merged[k];
    }
    group.sync();
}

// --- Selecting ------------------------------------------------------------------------------------

// The first of the places [from, to) of a run whose key is not below this one, or `to`.
__device__ __forceinline__ int n_below(const Key* run, int from, int to, Key key) {
    return first_not(from, to, [&](int place) { return run[place * PITCH] < key; });
}

__device__ __forceinline__ int n_upto(const Key* run, int from, int to, Key key) {
    return first_not(from, to, [&](int place) { return run[place * PITCH] <= key; });
}

// Leave out the missing elements at the ends of runs; return the number of the others in the lane.
__device__ __forceinline__ u32 without_missing(Group& group, int n, int (&n_kept)[RUNS]) {
    if (KIND != FLOATING) return n;
    u32 n_own = 0;
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
        const Key* its_keys = group.mine + run * RUN * PITCH;
        bool is_any = n_kept[run] > 0 && is_absent(its_keys[(n_kept[run] - 1) * PITCH]);
        if (is_any) n_kept[run] = n_below(its_keys, 0, n_kept[run], LARGEST);
        n_own += n_kept[run];
    }
    __syncwarp();
    return group.sum(n_own);
}

// Find the two keys of ranks `lower` and `upper`, which is `lower` or the next rank, in a group's lane.
// The first warp of the group gets them.
__device__ __forceinline__ void select_keys(
    Group& group, const int (&n_kept)[RUNS], u32 n_valid, u32 lower, u32 upper, Key& first, Key& second
) {
    const Key* mine = group.mine;
    // The wanted key is in [lo, hi]. `below` and `upto` keys are below lo and up to hi. The keys inside
    // are at places [from, to) of each run.
    Key lo = 0, hi = LARGEST;
    u32 below = 0, upto = n_valid;
    int from[RUNS], to[RUNS];
#pragma unroll
    for (int run = 0; run < RUNS; ++run) from[run] = 0, to[run] = n_kept[run];
    for (int sweep = 0;; ++sweep) {
        bool is_open = lo < hi && upto - below > FEW;
        if (GROUP < 32 ? !__any_sync(ALL_LANES, is_open) : !is_open) break;

        float share = ((float)(lower - below) + 0.5f) / (float)(upto - below);
        int its_run = RUNS == 1 ? 0 : (group.me + sweep / max(GROUP / 32, 1)) % RUNS;
        int start = from[0], n_inside = to[0] - from[0];
#pragma unroll
        for (int run = 1; run < RUNS; ++run) {
            if (run == its_run) start = from[run], n_inside = to[run] - from[run];
        }
        // The place is rounded at random, because otherwise all runs would err on the same side.
        float random = (float)((group.me + 32 * sweep) * 0x9e3779b1u) * 0x1p-32f;
        int place = (int)(share * (float)n_inside - 0.5f + random);
        place = start + max(min(place, n_inside - 1), 0);
        bool proposes = n_inside > 0;
        Key proposed[1] = {LARGEST};
        if (proposes) proposed[0] = mine[(its_run * RUN + place) * PITCH];
        group.sort(proposed);
        int n_proposed = group.team_votes(proposes);
        Key p = lo, r = hi;
        float reach;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(reach) : "f"((float)n_proposed));
        float middle = 0.5f * (float)n_proposed;
        int at_p = max((int)(middle - 0.75f * reach), 0);
        int at_r = max(min((int)(middle + 0.75f * reach), n_proposed - 1), 0);
        Key low = group.of(proposed[0], at_p), high = group.of(proposed[0], at_r);
        Key between = group.of(proposed[0], n_proposed / 2);
        if (n_proposed) {
            // Ties at both ends: count those of one end.
            bool is_stuck = low == lo && high == hi;
            p = is_stuck ? between : low;
            r = is_stuck ? between : high;
        }
        // Warps take turns, because each has other keys; a warp without keys inside proposes nothing.
        group.broadcast(p, r, sweep % max(GROUP / 32, 1));

        int at_lo[RUNS], at_hi[RUNS];
        u32 counts = 0;  // of the keys inside: those below p, and those up to r
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            const Key* its_keys = mine + run * RUN * PITCH;
            at_lo[run] = n_below(its_keys, from[run], to[run], p);
            at_hi[run] = n_upto(its_keys, at_lo[run], to[run], r);
            counts += (u32)(at_lo[run] - from[run]) + ((u32)(at_hi[run] - from[run]) << 16);
        }
        __syncwarp();
        counts = group.sum(counts);
        if (!is_open) continue;
        u32 below_p = below + (counts & 0xffff), upto_r = below + (counts >> 16);
        bool is_lower = lower < below_p, is_higher = lower >= upto_r;
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            int stop = to[run];
            to[run] = is_lower ? at_lo[run] : is_higher ? stop : at_hi[run];
            from[run] = is_lower ? from[run] : is_higher ? at_hi[run] : at_lo[run];
        }
        if (is_lower) {
            hi = p - 1, upto = below_p;
        } else if (is_higher) {
            lo = r + 1, below = upto_r;
        } else {
            lo = p, below = below_p, hi = r, upto = upto_r;
        }
    }

    // One value, or few keys, are left.
    bool is_one_value = lo == hi;
    u32 n_own = 0, total;
#pragma unroll
    for (int run = 0; run < RUNS; ++run) n_own += is_one_value ? 0 : to[run] - from[run];
    u32 place = group.sum_before(n_own, total);
    group.sync();
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
        if (is_one_value) continue;
        for (int i = from[run]; i < to[run]; ++i) group.few[place++] = mine[(run * RUN + i) * PITCH];
    }
    group.sync();
    Key left[FEW_EACH];
#pragma unroll
    for (int k = 0; k < FEW_EACH; ++k) {
        int i = group.mate() * FEW_EACH + k;
        left[k] = i < (int)total ? group.few[i] : LARGEST;
    }
    group.sync();
    group.sort(left);
    if (group.warp() == 0) {
#pragma unroll
        for (int k = 0; k < FEW_EACH; ++k) group.few[group.mate() * FEW_EACH + k] = left[k];
    }
    __syncwarp();  // the few keys of the first warp, which answers
    if (group.warp() == 0) {
        first = is_one_value ? lo : group.few[lower - below];
        second = is_one_value ? lo : group.few[min(upper - below, (u32)FEW - 1)];
    }
    bool is_outside = upper >= upto;  // the upper key is the next one above hi
    if (GROUP <= 32 ? __any_sync(ALL_LANES, is_outside) : is_outside) {
        Key next = LARGEST;
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            if (to[run] < n_kept[run]) next = min(next, mine[(run * RUN + to[run]) * PITCH]);
        }
        next = group.least(next);
        if (is_outside) second = next;
    }
}
