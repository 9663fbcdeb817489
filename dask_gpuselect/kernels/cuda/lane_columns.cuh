// Box plots of many lanes as columns.

#include "lanes.cuh"
#include "lane_sums.cuh"
#include "fences.cuh"

// A column for each statistic; the columns of quantiles follow one another.
struct Columns {
    double *q, *mean, *deviation;
    Word *least, *most, *low, *high;
    u32 *n_valid, *n_low, *n_high;
    unsigned char* is_unsure;  // flags of unsure means and deviations
};

// Flags and counts for all lanes together.
struct Facts {
    Flags flags;
    u64 n_fliers, n_unsure;
};

// Write the mean and the deviation of a lane; it may have none.
__device__ __forceinline__ void finish_lane(
    const LaneSums& sums, u32 n_valid, bool none, i64 lane, const Columns& columns, Facts* facts
) {
    double mean, deviation, nan = __longlong_as_double(0x7ff8000000000000ll);
    bool is_sure = sums.finish(n_valid, mean, deviation) || none;
    columns.mean[lane] = none ? nan : mean;
    columns.deviation[lane] = none ? nan : deviation;
    columns.is_unsure[lane] = !is_sure;
    if (!is_sure) atomicAdd(&facts->n_unsure, 1ull);
}
