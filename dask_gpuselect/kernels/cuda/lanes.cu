// Quantiles of many lanes, each read once from device memory.

#include "lane_runs.cuh"

// Lists of rows; each list makes lanes of its own.
struct Lists {
    const int* rows;   // list by list
    const int4* each;  // where a list begins, how many rows it has, and its number among all
    i64 n, n_all;  // lists of this launch, and of all launches together
};

// A block for each tile of lanes. None takes a second tile: a loop over tiles needs 80 registers a
// thread instead of 64 for lanes of 365, and a seventh more time to compile.
//
// Shared memory: the keys of all lanes, and for each group its few keys and its sums.
extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) lanes_select(
    const __grid_constant__ Stack stack, const __grid_constant__ Wanted wanted,
    const __grid_constant__ Lists lists, Answer* answers, Flags* flags
) {
    extern __shared__ u64 memory[];
    Group group = own_group((Key*)memory);
    i64 n_lanes = stack.n_lanes;
    u32 tile = blockIdx.x;
#if LISTED
    // All lists of the same lanes one after the other, for the cache: lists may have neighbouring rows,
    // or rows in common.
    int4 list = __ldg(lists.each + tile % (u32)lists.n);
    Rows rows = {list.y, lists.rows + list.x};
    i64 first_lane = (i64)(tile / (u32)lists.n) * LANES, stride = lists.n_all * n_lanes;
    Answer* its_answers = answers + list.z * n_lanes;
#else
    Rows rows = {(int)stack.n};
    i64 first_lane = (i64)tile * LANES, stride = n_lanes;
    Answer* its_answers = answers;
#endif
    u32 n = (u32)rows.n;
    int n_kept[RUNS];
    fetch(stack, rows, first_lane, group, n_kept);
    i64 lane = first_lane + group.slot;
    u32 n_valid = without_missing(group, n, n_kept);
    bool none = n_valid == 0 || (n_valid < n && !wanted.skips_missing);
    if (n_valid == 0 && lane < n_lanes && group.me == 0) flags->all_missing = 1;
    if constexpr (ORDERED) merge_runs(group);
    // Each thread of a team finishes a different answer.
    for (int start = 0; start < wanted.n_answers; start += TEAM) {
        int n_some = min(wanted.n_answers - start, TEAM);
        i64 entry = ((i64)n_valid - wanted.first_v) * wanted.n_answers + start;
        Key lower = 0, upper = 0;
        if (GROUP < 32 ? !__all_sync(ALL_LANES, none) : !none) {
            for (int a = 0; a < n_some; ++a) {
                if ((GROUP == 1 || ORDERED) && a != group.mate()) continue;
                int2 ranks = wanted.ranks[entry + a];
                Key first = 0, second = 0;
                if constexpr (GROUP == 1 || ORDERED) {
                    first = *in_order(group.all, ranks.x), second = *in_order(group.all, ranks.y);
                } else {
                    select_keys(group, n_kept, n_valid, ranks.x, ranks.y, first, second);
                }
                if (a == group.mate()) lower = first, upper = second;
            }
        }
        int a = group.mate();
        if (group.me < n_some && lane < n_lanes) {
            its_answers[(start + a) * stride + lane] =
                none ? no_answer()
                     : mixed(lower, upper, wanted.weights[entry + a], wanted.mixes, flags);
        }
    }
}
