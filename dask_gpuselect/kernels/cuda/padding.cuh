// The axes of a padded chunk and of the answers of its windows.

// Along an axis, the elements of a padded chunk stand for those of the chunk, before it for some that
// are apart by a step, and behind it. Places before `low` and from `high` on stand for none.
struct Axes {
    i64 strides[PAD_AXES];  // in elements
    i64 low[PAD_AXES], high[PAD_AXES];
    i64 shift[PAD_AXES];  // of coordinates, so that those of the chunk begin at `before`
    i64 before[PAD_AXES], n[PAD_AXES];
    i64 first_before[PAD_AXES], step_before[PAD_AXES];
    i64 first_behind[PAD_AXES], step_behind[PAD_AXES];
    i64 shape[PAD_AXES], places[PAD_AXES];  // of the answers: sizes, and distances of neighbours
    i64 steps[PAD_AXES];
    i64 n_windows;
};

// Return the element of the chunk that one of the padded chunk stands for, along an axis. `is_inside`
// becomes false if it stands for none.
__device__ __forceinline__ i64 source_of(const Axes& axes, int d, i64 at, bool& is_inside) {
    is_inside &= at >= axes.low[d] && at < axes.high[d];
    at += axes.shift[d];
    i64 behind = at - axes.before[d] - axes.n[d];
    if (at < axes.before[d]) return axes.first_before[d] + at * axes.step_before[d];
    if (behind >= 0) return axes.first_behind[d] + behind * axes.step_behind[d];
    return at - axes.before[d];
}

// What is asked of windows, one argument instead of ten: each takes time to be passed.
struct Asked {
    const i64* ranks;  // the lower and then the upper ones of each answer for 0 to n elements
    const double* weights;  // of the upper ones
    double scale;  // by which distances are divided
    u64 fill;  // the element where none is, which windows count if `fills` is 1
    int fills, n, n_answers, mixes, skips_missing, least;
};
