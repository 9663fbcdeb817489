// The layout of weighted lanes in memory.

struct ReachLanes {  // strides in elements, of (outer, rows, inner)
    i64 n_lanes, n_inner, n;
    i64 outer, row, inner;
    i64 weights_outer, weights_row, weights_inner;
    i64 n_targets;
    double slack;  // of a sum, relative to the weight of the lane
    double scale;  // of weights that are rounded to integers
};

// Return where the first element of a lane is.
__device__ __forceinline__ i64 place_of_lane(const ReachLanes& lanes, i64 number, i64 of_outer, i64 of_inner) {
    if (lanes.n_inner == 1) return number * of_outer;
    i64 outer = number >> 32 ? number / lanes.n_inner : (u32)number / (u32)lanes.n_inner;
    return outer * of_outer + (number - outer * lanes.n_inner) * of_inner;
}
