// Box plots of many lanes at once. Needs lanes.cuh, lane_runs.cuh and lane_sums.cuh.
//
// The sorted runs of a lane know all of its box: its quartiles are selected, the places of the fences in
// each run count what is beyond them, and the elements there are the whiskers' ends. Fliers are written by
// a second launch, which knows where those of each lane go: it sorts the lanes that have any again, for
// memory is read faster than all elements would be kept.
//
// Defined before this text, beside those of lanes.cuh and lane_runs.cuh: FLIERS (0: the boxes; 1: their
// fliers). ANSWER is 64.

// How boxes are drawn; see `boxes.Rule`.
struct Drawn {
    double whis;
    int by_quantiles, autorange;  // the whiskers' ends are the last two quantiles; see `Rule.fences`
    int omits_missing;
    u32 most_fliers;  // of each side
};

constexpr int MOST_Q = 5;

// A column for each statistic; those of quantiles one behind the other.
struct Columns {
    double *q, *mean, *deviation;
    Word *least, *most, *low, *high;
    u32 *n_valid, *n_low, *n_high;
    unsigned char* is_unsure;  // of the mean and the deviation
};

// Of all lanes together.
struct Told {
    Flags flags;
    u64 n_fliers, n_unsure;
};

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

// As `Rule.fences`.
__device__ __forceinline__ void fences_of(
    const Drawn& drawn, const double (&q)[MOST_Q], double& low, double& high
) {
    double height = __dadd_rn(q[2], -q[0]);
    double reach = __dmul_rn(drawn.whis, height);
    low = fmin(drawn.by_quantiles ? q[3] : __dadd_rn(q[0], -reach), q[0]);
    high = fmax(drawn.by_quantiles ? q[4] : __dadd_rn(q[2], reach), q[2]);
    if (height == 0.0 && drawn.autorange) low = -infinity(), high = infinity();
}

__device__ __forceinline__ double number_of(Key key) { return as_double(value_of(word_of(key))); }

// The first of so many places of a run that is not below a bound, and the first that is above it. Nothing
// is beyond NaN.
__device__ __forceinline__ int place_of_low(const Key* run, int n, double bound) {
    int from = 0, to = n;
    while (from < to) {
        int middle = (from + to) / 2;
        if (number_of(run[middle * PITCH]) < bound) from = middle + 1; else to = middle;
    }
    return from;
}

__device__ __forceinline__ int place_of_high(const Key* run, int n, double bound) {
    int from = 0, to = n;
    while (from < to) {
        int middle = (from + to) / 2;
        if (!(number_of(run[middle * PITCH]) > bound)) from = middle + 1; else to = middle;
    }
    return from;
}

// How many elements a run has, without those that are missing.
__device__ __forceinline__ int n_of_run(const Key* run, int n) {
    return KIND == FLOATING && n > 0 && is_absent(run[(n - 1) * PITCH]) ? n_below(run, 0, n, LARGEST) : n;
}

__device__ __forceinline__ void reduce(Group& group, LaneSums& sums, LaneSums* of_warps) {
#pragma unroll 1
    for (int mask = TEAM / 2; mask; mask /= 2) {
        LaneSums others;
#pragma unroll
        for (int l = 0; l < SUM_LEVELS; ++l) {
            others.total.parts[l] = group.other(sums.total.parts[l], mask);
            others.square.parts[l] = group.other(sums.square.parts[l], mask);
        }
        u32 told = sums.total.lost | sums.square.lost << 1;
        told = group.other(told, mask);
        others.total.lost = told & 1, others.square.lost = told >> 1;
        others.n_high = group.other(sums.n_high, mask), others.n_low = group.other(sums.n_low, mask);
        sums.merge(others);
    }
    if constexpr (GROUP > 32) {
        LaneSums* its_warps = of_warps + group.slot * (GROUP / 32);
        if (group.mate() == 0) its_warps[group.warp()] = sums;
        group.sync();
        if (group.me == 0) {
            for (int i = 1; i < GROUP / 32; ++i) sums.merge(its_warps[i]);
        }
        group.sync();
    }
}

#if !FLIERS

// Shared memory: that of lanes_select, and if groups are of several warps the sums of each warp.
extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) boxes_of_lanes(
    const __grid_constant__ Stack stack, const __grid_constant__ Wanted wanted,
    const __grid_constant__ Drawn drawn, const __grid_constant__ Columns columns, Told* told
) {
    extern __shared__ u64 memory[];
    Key* kept = (Key*)memory;
    Key* all_few = kept + KEPT * PITCH;
    u32* all_sums = (u32*)(all_few + (GROUP > 1 ? LANES * FEW : 0));
    LaneSums* of_warps = (LaneSums*)((char*)memory + WARP_SUMS);
    __shared__ u32 n_fliers, n_unsure;
    if (threadIdx.x == 0) n_fliers = 0, n_unsure = 0;
    __syncthreads();

    int slot = IS_SPREAD ? threadIdx.x / 32 * STEP + threadIdx.x % STEP : threadIdx.x / GROUP;
    int me = IS_SPREAD ? threadIdx.x % 32 / STEP : threadIdx.x % GROUP;
    Group group = {slot, me, all_few + slot * FEW, all_sums + slot * 64, 0};
    Key* mine = kept + slot * STRIDE + me;
    i64 n_lanes = stack.n_lanes, n_tiles = (n_lanes + LANES - 1) / LANES;
    Rows rows = {(int)stack.n};
    u32 n = (u32)rows.n;
    for (i64 tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        i64 first_lane = tile * LANES, lane = first_lane + slot;
        int n_kept[RUNS];
        fetch(stack, rows, first_lane, group, kept, mine, n_kept);
        u32 n_valid = 0;
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            n_kept[run] = n_of_run(mine + run * RUN * PITCH, n_kept[run]);
            n_valid += n_kept[run];
        }
        __syncwarp();
        n_valid = group.sum(n_valid);
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
                select_keys(mine, n_kept, group, n_valid, ranks.x, ranks.y, first, second);
                group.broadcast(first, second, 0);
            }
            // Lanes without elements have keys that are none.
            double answer = none ? 0.0
                                 : mixed(first, second, wanted.weights[entry + a], wanted.mixes, &told->flags);
#pragma unroll
            for (int k = 0; k < MOST_Q; ++k) q[k] = k == a ? answer : q[k];
        }

        double low, high;
        fences_of(drawn, q, low, high);
        Key least = LARGEST, below_most = LARGEST, inside_low = LARGEST, below_inside_high = LARGEST;
        u32 n_low = 0, n_high = 0;
        LaneSums sums;
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            const Key* its_keys = mine + run * RUN * PITCH;
            int its_n = n_kept[run];
            if (its_n == 0) continue;
            int at_low = place_of_low(its_keys, its_n, low), at_high = place_of_high(its_keys, its_n, high);
            n_low += at_low, n_high += its_n - at_high;
            least = min(least, its_keys[0]);
            below_most = min(below_most, LARGEST - its_keys[(its_n - 1) * PITCH]);
            if (at_low < its_n) inside_low = min(inside_low, its_keys[at_low * PITCH]);
            if (at_high > 0) {
                below_inside_high = min(below_inside_high, LARGEST - its_keys[(at_high - 1) * PITCH]);
            }
#pragma unroll 1
            for (int j = 0; j < its_n; ++j) sums.add(value_of(word_of(its_keys[j * PITCH])));
        }
        __syncwarp();
        n_low = group.sum(n_low), n_high = group.sum(n_high);
        least = group.least(least), below_most = group.least(below_most);
        inside_low = group.least(inside_low), below_inside_high = group.least(below_inside_high);
        reduce(group, sums, of_warps);

        if (me == 0 && lane < n_lanes) {
            double mean, deviation;
            bool is_sure = sums.finish(n_valid, mean, deviation) || none;
            double nan = __longlong_as_double(0x7ff8000000000000ll);
            Word none_word = word_of(LARGEST);
            if (none) n_low = 0, n_high = 0;
#pragma unroll
            for (int k = 0; k < MOST_Q; ++k) {
                if (k < wanted.n_answers) columns.q[k * n_lanes + lane] = none ? nan : q[k];
            }
            columns.mean[lane] = none ? nan : mean;
            columns.deviation[lane] = none ? nan : deviation;
            columns.least[lane] = none ? none_word : word_of(least);
            columns.most[lane] = none ? none_word : word_of(LARGEST - below_most);
            // Nothing is inside a fence of infinite quartiles.
            bool is_low = KIND != FLOATING || low == low, is_high = KIND != FLOATING || high == high;
            columns.low[lane] = none || !is_low ? none_word : word_of(inside_low);
            columns.high[lane] = none || !is_high ? none_word : word_of(LARGEST - below_inside_high);
            columns.n_valid[lane] = n_valid;
            columns.n_low[lane] = n_low, columns.n_high[lane] = n_high;
            columns.is_unsure[lane] = !is_sure;
            u32 its_fliers = min(n_low, drawn.most_fliers) + min(n_high, drawn.most_fliers);
            if (its_fliers) atomicAdd(&n_fliers, its_fliers);
            if (!is_sure) atomicAdd(&n_unsure, 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            if (n_fliers) atomicAdd(&told->n_fliers, (u64)n_fliers);
            if (n_unsure) atomicAdd(&told->n_unsure, (u64)n_unsure);
            n_fliers = 0, n_unsure = 0;
        }
        __syncthreads();
    }
}

#else

// How many keys of a lane are below this one, or equal it and before it: its rank. `run` is where it lies.
__device__ __forceinline__ u32 rank_of(const Key* all, int n, Key key, int me, int its_run, int place) {
    u32 rank = place;
    for (int other = 0; other < GROUP; ++other) {
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            if (other == me && run == its_run) continue;
            int n_left = n - other - run * RUN * GROUP;
            int n_there = min(max((n_left + GROUP - 1) / GROUP, 0), RUN);
            const Key* keys = all + other + run * RUN * PITCH;
            bool is_before = run < its_run || (run == its_run && other < me);
            rank += is_before ? n_upto(keys, 0, n_there, key) : n_below(keys, 0, n_there, key);
        }
    }
    return rank;
}

// Write the fliers of each lane behind those of the lanes before: the lowest ascending, then the highest
// descending. `stops` says how many there are up to each lane. Shared memory: that of lanes_select.
extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) fliers_of_lanes(
    const __grid_constant__ Stack stack, const __grid_constant__ Drawn drawn,
    const __grid_constant__ Columns columns, const i64* stops, Word* fliers
) {
    extern __shared__ u64 memory[];
    Key* kept = (Key*)memory;
    int slot = IS_SPREAD ? threadIdx.x / 32 * STEP + threadIdx.x % STEP : threadIdx.x / GROUP;
    int me = IS_SPREAD ? threadIdx.x % 32 / STEP : threadIdx.x % GROUP;
    Group group = {slot, me, nullptr, nullptr, 0};
    Key* mine = kept + slot * STRIDE + me;
    i64 n_lanes = stack.n_lanes, n_tiles = (n_lanes + LANES - 1) / LANES;
    Rows rows = {(int)stack.n};
    for (i64 tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        i64 first_lane = tile * LANES, lane = first_lane + slot;
        u32 n_low = 0, n_high = 0;
        if (lane < n_lanes) n_low = columns.n_low[lane], n_high = columns.n_high[lane];
        if (!__syncthreads_or(n_low + n_high > 0)) continue;

        int n_kept[RUNS];
        fetch(stack, rows, first_lane, group, kept, mine, n_kept);
        group.sync();
        if (n_low + n_high > 0) {
            u32 n_valid = columns.n_valid[lane];
            u32 kept_low = min(n_low, drawn.most_fliers), kept_high = min(n_high, drawn.most_fliers);
            Word* its_fliers = fliers + stops[lane] - kept_low - kept_high;
            if constexpr (GROUP == 1) {
                for (u32 i = 0; i < kept_low; ++i) its_fliers[i] = word_of(mine[i * PITCH]);
                for (u32 i = 0; i < kept_high; ++i) {
                    its_fliers[kept_low + i] = word_of(mine[(n_valid - 1 - i) * PITCH]);
                }
            } else {
                double q[MOST_Q] = {}, low, high;
#pragma unroll
                for (int k = 0; k < MOST_Q; ++k) {
                    if (k < 3 || drawn.by_quantiles) q[k] = columns.q[k * n_lanes + lane];
                }
                fences_of(drawn, q, low, high);
                const Key* all = kept + slot * STRIDE;
#pragma unroll
                for (int run = 0; run < RUNS; ++run) {
                    const Key* its_keys = mine + run * RUN * PITCH;
                    int its_n = n_of_run(its_keys, n_kept[run]);
                    int at_low = place_of_low(its_keys, its_n, low);
                    for (int i = 0; i < at_low && kept_low; ++i) {
                        Key key = its_keys[i * PITCH];
                        u32 rank = rank_of(all, rows.n, key, me, run, i);
                        if (rank >= kept_low) break;  // the next ones lie behind it
                        its_fliers[rank] = word_of(key);
                    }
                    int at_high = place_of_high(its_keys, its_n, high);
                    for (int i = its_n - 1; i >= at_high && kept_high; --i) {
                        Key key = its_keys[i * PITCH];
                        u32 rank = n_valid - 1 - rank_of(all, rows.n, key, me, run, i);
                        if (rank >= kept_high) break;
                        its_fliers[kept_low + rank] = word_of(key);
                    }
                }
            }
        }
        __syncthreads();
    }
}

#endif
