// Box plots of many lanes as columns.

#include "lanes.cuh"
#include "lane_sums.cuh"

// The rule by which boxes are drawn; see `boxes.Rule`.
struct Drawn {
    double whis;
    int by_quantiles, autorange;  // whiskers end at the last two quantiles; see `Rule.fences`
    int omits_missing;
    u32 most_fliers;  // of each side
};

constexpr int MOST_Q = 5;

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

// The fences, as in `Rule.fences`.
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
