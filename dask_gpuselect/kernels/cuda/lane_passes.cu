// Lanes that are read in parts: the cuts of a part, or its counts at brackets and its elements inside
// these. The elements go where a previous count has made room for them, or, if few can be inside, to a
// row for each bracket.
//
// Defined before this text, besides the definitions for lanes.cuh and lane_runs.cuh: IS_TALLY (0: cuts, 1:
// counts and candidates).

#include "lane_runs.cuh"

// A row for each lane, an entry for each question. If low and high are null, all elements are inside.
struct Brackets {
    const Word *low, *high;
    int n_questions;
    int n_ranks;  // number of cuts; or the number of candidates that a row has room for: 0 to count only
};

struct Counts {
    i64 *n_valid, *n_missing, *below, *before, *inside, *upto;
};

static_assert(RUNS == 1, "a thread has one run");

// Shared memory: that of lanes_select.
extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) passes_of_lanes(
    const __grid_constant__ Stack stack, const __grid_constant__ Brackets brackets,
    const __grid_constant__ Counts counts, const i64* starts, Word* elements
) {
    extern __shared__ u64 memory[];
    Group group = own_group((Key*)memory);
    Key* mine = group.mine;
    int me = group.me;
    i64 n_lanes = stack.n_lanes, n_tiles = (n_lanes + LANES - 1) / LANES;
    Rows rows = {(int)stack.n};
    for (i64 tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        i64 first_lane = tile * LANES, lane = first_lane + group.slot;
        bool is_lane = lane < n_lanes;
        int n_kept[RUNS];
        fetch(stack, rows, first_lane, group, n_kept);
        u32 n_valid = without_missing(group, rows.n, n_kept);
        int n_own = n_kept[0];
        if (is_lane && me == 0) {
            counts.n_valid[lane] = n_valid, counts.n_missing[lane] = stack.n - n_valid;
        }
        if constexpr (!IS_TALLY && GROUP > 1) {
            merge_runs(group);
            n_own = min(max((int)n_valid - me * RUN, 0), RUN);
        }
#pragma unroll 1
        for (int question = 0; question < brackets.n_questions; ++question) {
            i64 entry = min(lane, n_lanes - 1) * brackets.n_questions + question;
            bool is_all = brackets.low == nullptr;
            Key low = 0, high = 0;
            if (!is_all) low = key_of(brackets.low[entry]), high = key_of(brackets.high[entry]);
            int from = is_all ? 0 : n_upto(mine, 0, n_own, low);
            int to = is_all ? n_own : n_below(mine, 0, n_own, high);
            u32 below = 0, before = from, below_high = to, upto = 0;
            if (IS_TALLY) {
                below = n_below(mine, 0, from, low);
                upto = n_upto(mine, to, n_own, high);
            }
            __syncwarp();
            if constexpr (IS_TALLY) {
                // If a bracket has more elements than it can have, the chunk has changed. They are left
                // out, and the counts tell.
                u32 n_all, place = group.sum_before(max(to - from, 0), n_all);
                u32 room = starts ? ~0u : brackets.n_ranks;
                Word* its_elements = elements + (starts ? starts[entry] : entry * room);
                for (int i = from; i < to && is_lane; ++i, ++place) {
                    if (place < room) its_elements[place] = word_of(mine[i * PITCH]);
                }
            }
            before = group.sum(before), below_high = group.sum(below_high);
            u32 n_inside = below_high > before ? below_high - before : 0;
            if (is_lane && me == 0) counts.before[entry] = before, counts.inside[entry] = n_inside;
            if constexpr (IS_TALLY) {
                below = group.sum(below), upto = group.sum(upto);
                if (is_lane && me == 0) counts.below[entry] = below, counts.upto[entry] = upto;
            } else {
                u64 last = n_inside ? n_inside - 1 : 0;
                for (int j = me; j < brackets.n_ranks; j += GROUP) {
                    u32 rank = before + (u32)((u64)j * last / (u64)max(brackets.n_ranks - 1, 1));
                    rank = min(rank, n_valid ? n_valid - 1 : 0);  // arbitrary where nothing is inside
                    Key key = *in_order(group.all, rank);
                    if (is_lane) elements[entry * brackets.n_ranks + j] = word_of(key);
                }
            }
        }
        if (STAGED && SIDE_BY_SIDE) {
            __syncthreads();
        } else {
            group.sync();  // a merge reads the runs of other threads
        }
    }
}
