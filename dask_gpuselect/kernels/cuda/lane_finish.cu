// Statistics that follow from the sums of lanes.

#include "lane_columns.cuh"

// Compute means and deviations of lanes that groups have summed, one thread for each.
extern "C" __global__ void __launch_bounds__(FINISH_THREADS) finish_of_lanes(
    const LaneSums* sums_of_lanes, i64 n_lanes, u32 n, int omits_missing,
    const __grid_constant__ Columns columns, Told* told
) {
    i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 lane = (i64)blockIdx.x * blockDim.x + threadIdx.x; lane < n_lanes; lane += stride) {
        u32 n_valid = columns.n_valid[lane];
        bool none = n_valid == 0 || (n_valid < n && !omits_missing);
        double mean, deviation, nan = __longlong_as_double(0x7ff8000000000000ll);
        LaneSums sums = sums_of_lanes[lane];
        bool is_sure = sums.finish(n_valid, mean, deviation) || none;
        columns.mean[lane] = none ? nan : mean;
        columns.deviation[lane] = none ? nan : deviation;
        columns.is_unsure[lane] = !is_sure;
        if (!is_sure) atomicAdd(&told->n_unsure, 1ull);
    }
}
