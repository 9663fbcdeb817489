// Lanes that are taken in parts: the cuts of a part, its counts at brackets, and its elements inside these.
// Needs lanes.cuh and lane_runs.cuh.
//
// Defined before this text, beside those of lanes.cuh and lane_runs.cuh: PASS (0: cuts, 1: counts, 2:
// candidates).

// A row for each lane, an entry for each question. No low and high ends: all elements are inside.
struct Brackets {
    const Word *low, *high;
    int n_questions, n_ranks;
};

struct Counts {
    i64 *n_valid, *below, *before, *inside, *upto;
};

struct Inside {
    int from[RUNS], to[RUNS];  // of each run of this thread
};

// Shared memory: that of lanes_select.
extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) passes_of_lanes(
    const __grid_constant__ Stack stack, const __grid_constant__ Brackets brackets,
    const __grid_constant__ Counts counts, const i64* starts, Word* found
) {
    extern __shared__ u64 memory[];
    Key* kept = (Key*)memory;
    Key* all_few = kept + KEPT * PITCH;
    u32* all_sums = (u32*)(all_few + (GROUP > 1 ? LANES * FEW : 0));
    int slot = IS_SPREAD ? threadIdx.x / 32 * STEP + threadIdx.x % STEP : threadIdx.x / GROUP;
    int me = IS_SPREAD ? threadIdx.x % 32 / STEP : threadIdx.x % GROUP;
    Group group = {slot, me, all_few + slot * FEW, all_sums + slot * 64, 0};
    Key* mine = kept + slot * STRIDE + me;
    i64 n_lanes = stack.n_lanes, n_tiles = (n_lanes + LANES - 1) / LANES;
    Rows rows = {(int)stack.n};
    for (i64 tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        i64 first_lane = tile * LANES, lane = first_lane + slot;
        bool is_lane = lane < n_lanes;
        int n_kept[RUNS];
        fetch(stack, rows, first_lane, group, kept, mine, n_kept);
        u32 n_valid = 0;
#pragma unroll
        for (int run = 0; run < RUNS; ++run) {
            const Key* its_keys = mine + run * RUN * PITCH;
            int its_n = n_kept[run];
            if (KIND == FLOATING && its_n > 0 && is_absent(its_keys[(its_n - 1) * PITCH])) {
                n_kept[run] = n_below(its_keys, 0, its_n, LARGEST);
            }
            n_valid += n_kept[run];
        }
        __syncwarp();
        n_valid = group.sum(n_valid);
        if (PASS < 2 && is_lane && me == 0) counts.n_valid[lane] = n_valid;
#pragma unroll 1
        for (int question = 0; question < brackets.n_questions; ++question) {
            i64 entry = min(lane, n_lanes - 1) * brackets.n_questions + question;
            bool is_all = brackets.low == nullptr;
            Key low = 0, high = 0;
            if (!is_all) low = key_of(brackets.low[entry]), high = key_of(brackets.high[entry]);
            Inside inside;
            u32 below = 0, before = 0, below_high = 0, upto = 0;
#pragma unroll
            for (int run = 0; run < RUNS; ++run) {
                const Key* its_keys = mine + run * RUN * PITCH;
                int its_n = n_kept[run];
                inside.from[run] = is_all ? 0 : n_upto(its_keys, 0, its_n, low);
                inside.to[run] = is_all ? its_n : n_below(its_keys, 0, its_n, high);
                before += inside.from[run], below_high += inside.to[run];
                if (PASS == 1) {
                    below += n_below(its_keys, 0, inside.from[run], low);
                    upto += n_upto(its_keys, inside.to[run], its_n, high);
                }
            }
            __syncwarp();
            if constexpr (PASS == 2) {
                u32 n_own = 0, n_all;
#pragma unroll
                for (int run = 0; run < RUNS; ++run) n_own += max(inside.to[run] - inside.from[run], 0);
                u32 place = group.sum_before(n_own, n_all);
                if (!is_lane) continue;
                Word* its_found = found + starts[entry];
#pragma unroll
                for (int run = 0; run < RUNS; ++run) {
                    for (int i = inside.from[run]; i < inside.to[run]; ++i) {
                        its_found[place++] = word_of(mine[(run * RUN + i) * PITCH]);
                    }
                }
                continue;
            }
            before = group.sum(before), below_high = group.sum(below_high);
            u32 n_inside = below_high > before ? below_high - before : 0;
            if (is_lane && me == 0) counts.before[entry] = before, counts.inside[entry] = n_inside;
            if constexpr (PASS == 1) {
                below = group.sum(below), upto = group.sum(upto);
                if (is_lane && me == 0) counts.below[entry] = below, counts.upto[entry] = upto;
            } else {
                u64 last = n_inside ? n_inside - 1 : 0;
#pragma unroll 1
                for (int j = 0; j < brackets.n_ranks; ++j) {
                    u32 rank = before + (u32)((u64)j * last / (u64)max(brackets.n_ranks - 1, 1));
                    rank = min(rank, n_valid ? n_valid - 1 : 0);  // where nothing is inside
                    Key first = 0, second = 0;
                    if constexpr (GROUP == 1) {
                        first = mine[rank * PITCH];
                    } else {
                        select_keys(mine, n_kept, group, n_valid, rank, rank, first, second);
                        group.sync();
                    }
                    if (is_lane && me == 0) found[entry * brackets.n_ranks + j] = word_of(first);
                }
            }
        }
        if (STAGED && SIDE_BY_SIDE) {
            __syncthreads();
        } else {
            __syncwarp();
        }
    }
}
