// Box plots of many lanes, each lane read once from device memory.
//
// The sorted runs of a lane determine its whole box: its quartiles are selected; the places of the
// fences in each run give the numbers of elements beyond them; and the elements there are the ends of
// the whiskers and the fliers. The fliers of a block's lanes are written one behind the other, those of
// blocks in any order.
//
// Defined before this text, besides the definitions for lanes.cuh and lane_runs.cuh: OWN, the bytes of
// shared memory of lanes_select. ANSWER is 64.

#include "lane_runs.cuh"
#include "lane_columns.cuh"

// The first place of a run that is not below a bound, and the first that is above it. No element is
// beyond a bound that is NaN.
__device__ __forceinline__ int place_of_low(const Key* run, int n, double bound) {
    return first_not(0, n, [&](int place) { return number_of(run[place * PITCH]) < bound; });
}

__device__ __forceinline__ int place_of_high(const Key* run, int n, double bound) {
    return first_not(0, n, [&](int place) { return !(number_of(run[place * PITCH]) > bound); });
}

// Merge `mine` of all threads of a group by `merge(mask)`, which adds the value of the thread whose
// number differs in these bits. Warps are merged first, then their results by way of shared memory,
// where each group has a part of its own for sums of any kind: groups do not wait for each other. The
// first thread then has the result.
template <class T, class Merge>
__device__ __forceinline__ void merge_all(Group& group, T& mine, LaneSums* all_of_warps, Merge merge) {
    static_assert(sizeof(T) <= sizeof(LaneSums), "warps have room");
    T* of_warps = (T*)(all_of_warps + group.slot * (GROUP / 32));
#pragma unroll 1
    for (int round = 0;; ++round) {
#pragma unroll 1
        for (int mask = round ? GROUP / 64 : TEAM / 2; mask; mask /= 2) merge(mask);
        if (GROUP <= 32 || round) return;
        if (group.mate() == 0) of_warps[group.warp()] = mine;
        group.sync();
        mine = group.mate() < GROUP / 32 ? of_warps[group.mate()] : T();
        group.sync();
    }
}

__device__ __forceinline__ void merge_sums(Group& group, LaneSums& sums, LaneSums* of_warps) {
    merge_all(group, sums, of_warps, [&](int mask) {
        LaneSums others;
#pragma unroll
        for (int l = 0; l < SUM_LEVELS; ++l) {
            others.total.parts[l] = group.other(sums.total.parts[l], mask);
            others.square.parts[l] = group.other(sums.square.parts[l], mask);
        }
        u32 flags = sums.total.lost | sums.square.lost << 1;
        flags = group.other(flags, mask);
        others.total.lost = flags & 1, others.square.lost = flags >> 1;
        others.n_high = group.other(sums.n_high, mask), others.n_low = group.other(sums.n_low, mask);
        sums.merge(others);
    });
}

// The smallest nonzero magnitude of a sorted run, as the key of a number; the largest key if there is
// none.
__device__ __forceinline__ Key smallest_of(const Key* run, int n) {
    int zero = n_below(run, 0, n, SIGN), behind = n_upto(run, zero, n, SIGN);
    Key smallest = LARGEST;
    if (zero > 0) smallest = Key(word_of(run[(zero - 1) * PITCH])) & ~SIGN;
    if (behind < n) smallest = min(smallest, run[behind * PITCH] & ~SIGN);
    return smallest;
}

// The sums of a group's lane, whose elements are of few magnitudes (`are_few`) or of some; in its first
// thread.
__device__ __forceinline__ void add_plainly(
    const Key* mine, int n_mine, const Magnitudes& of, bool are_few, Group& group, LaneSums* of_warps,
    LaneSums& sums
) {
    Rounders by(of);
    PlainSums plain;
    // Four elements at a time, so that their additions do not wait for each other. Zeros behind the end
    // add nothing.
    constexpr int AT_ONCE = 4;
#pragma unroll 1
    for (int j = 0; j < n_mine; j += AT_ONCE) {
        double x[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) x[k] = j + k < n_mine ? number_of(mine[(j + k) * PITCH]) : 0.0;
        plain.add(x, by, are_few);
    }
    __syncwarp();
    merge_all(group, plain, of_warps, [&](int mask) {
        plain.merge([&](double part) { return group.other(part, mask); }, are_few);
    });
    sums.set(plain);
}

// The fliers of a group's lane are collected in its part of shared memory, where its sorted runs were,
// and sorted there. Searching each of them in all runs took 61 ms for (3650, 300, 300) float32 of which
// a seventh are fliers; the whole kernel takes 5.6 ms for normal data.

__device__ __forceinline__ Key& key_in(Key* all, u32 i) { return all[i / GROUP * PITCH + i % GROUP]; }

// Move the keys of a lane that are before one place of each run, or from another one on, to its first
// places. The others are lost. Returns their number.
__device__ __forceinline__ u32 gather_beyond(
    const Key* mine, Key* all, int at_low, int at_high, int n_mine, Group& group
) {
    u32 n_found = 0;
    // Row by row: keys only move to places that have been read.
#pragma unroll 1
    for (int row = 0;; ++row) {
        int i = row < at_low ? row : row + at_high - at_low;
        bool has = i < n_mine;
        Key key = has ? mine[i * PITCH] : 0;
        u32 of_row, place = n_found + group.sum_before(has, of_row);
        if (GROUP < 32 ? !__any_sync(ALL_LANES, of_row) : !of_row) return n_found;
        group.sync();
        if (has) key_in(all, place) = key;
        n_found += of_row;
    }
}

// Sort the first n keys of a lane.
__device__ __forceinline__ void sort_first(Key* all, u32 n, Group& group) {
    group.sync();
    int most = GROUP < 32 ? largest_over_warp(n) : n;
    auto at = [&](int i) -> Key& { return key_in(all, i); };
    auto is_less = [](Key a, Key b) { return a < b; };
    sort_together(n, most, group.me, GROUP, at, is_less, [&] { group.sync(); });
}

// Write the fliers of a lane: the lowest in ascending, then the highest in descending order. Its keys
// are lost.
__device__ __forceinline__ void write_fliers(
    const Key* mine, Key* all, int at_low, int at_high, int n_mine, Group& group, u32 kept_low, u32 kept_high,
    Word* fliers
) {
    u32 n_sorted = n_mine;
    if constexpr (GROUP > 1) {
        // A lane without fliers collects no keys.
        if (kept_low + kept_high == 0) at_low = 0, at_high = n_mine;
        n_sorted = gather_beyond(mine, all, at_low, at_high, n_mine, group);
        sort_first(all, n_sorted, group);
    }
#pragma unroll 1
    for (u32 i = group.me; i < kept_low + kept_high; i += GROUP) {
        u32 place = i < kept_low ? i : n_sorted - 1 - (i - kept_low);
        fliers[i] = word_of(key_in(all, place));
    }
}

// The places where fliers are written: those of a block's lanes begin at a common place. No more are written than
// there is room for, but all are counted.
struct Fliers {
    Word* elements;
    i64 room;
    i64 *starts, *counts;  // of each block's lanes, or of each lane whose group has several warps
};

static_assert(RUNS == 1, "a thread has one run");

// A block for each tile of lanes; see lanes_select.
//
// Shared memory: that of lanes_select, and the numbers of fliers of the lanes, or, if groups have
// several warps, the sums of each warp.
extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) boxes_of_lanes(
    const __grid_constant__ Stack stack, const __grid_constant__ Wanted wanted,
    const __grid_constant__ Drawn drawn, const __grid_constant__ Columns columns,
    const __grid_constant__ Fliers fliers, LaneSums* sums_of_lanes, Facts* facts
) {
    extern __shared__ u64 memory[];
    LaneSums* of_warps = (LaneSums*)((char*)memory + OWN);
    u32* numbers = (u32*)(of_warps + (GROUP > 32 ? BLOCK / 32 : 0));
    u64* place = (u64*)(numbers + (LANES + 2) / 2 * 2);

    Group group = own_group((Key*)memory);
    int slot = group.slot, me = group.me;
    Key* mine = group.mine;
    i64 n_lanes = stack.n_lanes;
    Rows rows = {(int)stack.n};
    u32 n = (u32)rows.n, tile = blockIdx.x;
    i64 first_lane = (i64)tile * LANES, lane = first_lane + slot;
    int n_kept[1];
    fetch(stack, rows, first_lane, group, n_kept);
    u32 n_valid = without_missing(group, n, n_kept);
    int n_mine = n_kept[0];
    bool none = n_valid == 0 || (n_valid < n && !drawn.omits_missing);

    double q[MOST_Q] = {};
    i64 entry = ((i64)n_valid - wanted.first_v) * wanted.n_answers;
#pragma unroll 1
    for (int a = 0; a < wanted.n_answers; ++a) {
        int2 ranks = wanted.ranks[entry + a];
        Key first = 0, second = 0;
        if constexpr (GROUP == 1) {
            first = mine[ranks.x * PITCH], second = mine[ranks.y * PITCH];
        } else {
            select_keys(group, n_kept, n_valid, ranks.x, ranks.y, first, second);
            group.broadcast(first, second, 0);
        }
        // Lanes without elements have arbitrary keys.
        double answer = none ? 0.0
                             : mixed(first, second, wanted.weights[entry + a], wanted.mixes, &facts->flags);
#pragma unroll
        for (int k = 0; k < MOST_Q; ++k) q[k] = k == a ? answer : q[k];
    }

    double low, high;
    fences_of(drawn, q, low, high);
    Key least = LARGEST, below_most = LARGEST, inside_low = LARGEST, below_inside_high = LARGEST;
    Key smallest = LARGEST;
    int at_low = 0, at_high = 0;
    if (n_mine > 0) {
        at_low = place_of_low(mine, n_mine, low), at_high = place_of_high(mine, n_mine, high);
        least = mine[0], below_most = LARGEST - mine[(n_mine - 1) * PITCH];
        if (at_low < n_mine) inside_low = mine[at_low * PITCH];
        if (at_high > 0) below_inside_high = LARGEST - mine[(at_high - 1) * PITCH];
        if (KIND == FLOATING && BITS < 64) smallest = smallest_of(mine, n_mine);
    }
    __syncwarp();
    u32 n_low = group.sum(at_low), n_high = group.sum(n_mine - at_high);
    least = group.least(least), below_most = group.least(below_most);
    inside_low = group.least(inside_low), below_inside_high = group.least(below_inside_high);
    Key most = LARGEST - below_most;

    // Use plain sums if the elements of all lanes of a warp are of few magnitudes, or of some.
    LaneSums sums;
    bool is_few = false, is_some = false;
    Magnitudes of = {};
    if constexpr (KIND != FLOATING || BITS < 64) {
        if (KIND == FLOATING) smallest = group.least(smallest);
        bool is_any = n_valid > 0;
        double size = is_any ? fmax(fabs(number_of(least)), fabs(number_of(most))) : 1.0;
        if (size == 0.0) size = 1.0;
        double nearest = KIND == FLOATING && smallest != LARGEST ? as_double(value_of((Word)smallest)) : size;
        of = magnitudes(nearest, size, n);
        is_few = of.are_few(), is_some = of.are_some();
        if (GROUP < 32) {
            is_few = __all_sync(ALL_LANES, is_few), is_some = __all_sync(ALL_LANES, is_some);
        }
        if (is_few || is_some) add_plainly(mine, n_mine, of, is_few, group, of_warps, sums);
    }
    if (!is_few && !is_some) {
#pragma unroll 1
        for (int j = 0; j < n_mine; ++j) sums.add(value_of(word_of(mine[j * PITCH])));
        __syncwarp();
        merge_sums(group, sums, of_warps);
    }

    if (none || lane >= n_lanes) n_low = 0, n_high = 0;
    u32 kept_low = min(n_low, drawn.most_fliers), kept_high = min(n_high, drawn.most_fliers);
    u32 n_own = kept_low + kept_high, n_before = 0, n_together = n_own;
    u64 start;
    if constexpr (GROUP > 32) {
        u64* start_of_all = (u64*)(of_warps + slot * (GROUP / 32));
        if (me == 0) {
            *start_of_all = start = n_own ? atomicAdd(&facts->n_fliers, (u64)n_own) : 0;
            if (lane < n_lanes) fliers.starts[lane] = start, fliers.counts[lane] = n_own;
        }
        group.sync();
        start = *start_of_all;
    } else {
        if (me == 0) numbers[slot] = n_own;
        __syncthreads();
        n_together = prefix_sum(numbers, numbers, LANES);
        if (threadIdx.x == 0) {
            *place = n_together ? atomicAdd(&facts->n_fliers, (u64)n_together) : 0;
            fliers.starts[tile] = *place, fliers.counts[tile] = n_together;
        }
        __syncthreads();
        start = *place, n_before = numbers[slot];
    }
    // All lanes of a warp write, or none: they write together.
    bool writes = n_together && (i64)start + n_together <= fliers.room;
    if (writes && (GROUP > 32 || __any_sync(ALL_LANES, n_own > 0))) {
        Word* its_fliers = fliers.elements + start + n_before;
        write_fliers(mine, group.all, at_low, at_high, n_mine, group, kept_low, kept_high, its_fliers);
    }

    if (me == 0 && lane < n_lanes) {
        double nan = __longlong_as_double(0x7ff8000000000000ll);
        if constexpr (GROUP == 1) {
            finish_lane(sums, n_valid, none, lane, columns, facts);
        } else {
            sums_of_lanes[lane] = sums;
        }
        Word none_word = word_of(LARGEST);
#pragma unroll
        for (int k = 0; k < MOST_Q; ++k) {
            if (k < wanted.n_answers) columns.q[k * n_lanes + lane] = none ? nan : q[k];
        }
        columns.least[lane] = none ? none_word : word_of(least);
        columns.most[lane] = none ? none_word : word_of(most);
        // No element is inside a fence that is made from infinite quartiles.
        bool is_low = KIND != FLOATING || low == low, is_high = KIND != FLOATING || high == high;
        columns.low[lane] = none || !is_low ? none_word : word_of(inside_low);
        columns.high[lane] = none || !is_high ? none_word : word_of(LARGEST - below_inside_high);
        columns.n_valid[lane] = n_valid;
        columns.n_low[lane] = n_low, columns.n_high[lane] = n_high;
    }
}
