// The layout of weighted lanes in memory.

// Weights and elements whose products are exact, except for zeros: in this range, and its inverse.
constexpr double FARTHEST_ENDS = 0x1p120;
constexpr double LEAST_SHARE = 0x1p-100;

struct ReachLanes {  // strides in elements, of (outer, rows, inner)
    i64 n_lanes, n_inner, n;
    i64 outer, row, inner;
    i64 weights_outer, weights_row, weights_inner;
    i64 keeps_outer, keeps_row, keeps_inner;
    i64 n_targets;
    double slack;  // of a sum, relative to the weight of the lane
    double scale;  // of weights that are rounded to integers
};

constexpr i64 ALL_IDLE = -1;  // instead of a number of missing elements, if all elements are without weight

// Weights of elements that a mask leaves out are -0.0.
constexpr double LEFT_OUT = -0.0;

__device__ __forceinline__ bool is_idle(double weight) { return __double_as_longlong(weight) == 0; }

// Return where the first element of a lane is.
__device__ __forceinline__ i64 place_of_lane(const ReachLanes& lanes, i64 number, i64 of_outer, i64 of_inner) {
    if (lanes.n_inner == 1) return number * of_outer;
    i64 outer = number >> 32 ? number / lanes.n_inner : (u32)number / (u32)lanes.n_inner;
    return outer * of_outer + (number - outer * lanes.n_inner) * of_inner;
}
