// Statistics that follow from the sums of lanes.

#include "lane_columns.cuh"

// Compute means and deviations of lanes that groups have summed, one thread for each.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) finish_of_lanes(
    const LaneSums* sums_of_lanes, i64 n_lanes, u32 n, int omits_missing,
    const __grid_constant__ Columns columns, Facts* facts
) {
    for (i64 lane = own_thread(); lane < n_lanes; lane += all_threads()) {
        u32 n_valid = columns.n_valid[lane];
        bool none = n_valid == 0 || (n_valid < n && !omits_missing);
        finish_lane(sums_of_lanes[lane], n_valid, none, lane, columns, facts);
    }
}
