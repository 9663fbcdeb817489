// The fences of box plots.

#include "lane_sums.cuh"

// The rule by which boxes are drawn; see `boxes.Rule`.
struct Drawn {
    double whis;
    int by_quantiles, autorange;  // whiskers end at the last two quantiles; see `Rule.fences`
    int omits_missing;
    u32 most_fliers;  // of each side
};

constexpr int MOST_Q = 5;

// The fences, as in `Rule.fences`.
__device__ __forceinline__ void fences_of(
    const Drawn& drawn, const double (&q)[MOST_Q], double& low, double& high
) {
    double height = __dadd_rn(q[2], -q[0]);
    double reach = __dmul_rn(drawn.whis, height);
    low = fmin(drawn.by_quantiles ? q[3] : __dadd_rn(q[0], -reach), q[0]);
    high = fmax(drawn.by_quantiles ? q[4] : __dadd_rn(q[2], reach), q[2]);
    if (height == 0.0 && drawn.autorange) low = -INFINITE, high = INFINITE;
}

__device__ __forceinline__ double number_of(Key key) { return as_double(value_of(word_of(key))); }
