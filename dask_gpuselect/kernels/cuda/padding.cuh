// The padding of a chunk: which of its elements stand for those before and behind it.

// Along an axis, the elements of a padded chunk stand for those of the chunk, before it for some that
// are apart by a step, and behind it. Places before `low` and from `high` on stand for none.
struct Padding {
    i64 strides[PAD_AXES];  // in elements
    i64 low[PAD_AXES], high[PAD_AXES];
    i64 shift[PAD_AXES];  // of coordinates, so that those of the chunk begin at `before`
    i64 before[PAD_AXES], n[PAD_AXES];
    i64 first_before[PAD_AXES], step_before[PAD_AXES];
    i64 first_behind[PAD_AXES], step_behind[PAD_AXES];
};

// Return the element of the chunk that one of the padded chunk stands for, along an axis. `is_inside`
// becomes false if it stands for none.
__device__ __forceinline__ i64 source_of(const Padding& padding, int d, i64 at, bool& is_inside) {
    is_inside &= at >= padding.low[d] && at < padding.high[d];
    at += padding.shift[d];
    i64 behind = at - padding.before[d] - padding.n[d];
    if (at < padding.before[d]) return padding.first_before[d] + at * padding.step_before[d];
    if (behind >= 0) return padding.first_behind[d] + behind * padding.step_behind[d];
    return at - padding.before[d];
}
