// Padded chunks: a chunk with elements before and behind it along each axis, for windows.

// Along an axis, the elements of a padded chunk stand for those of the chunk, before it for some that
// are apart by a step, and behind it. Places before `low` and from `high` on stand for none.
struct Padding {
    i64 sizes[PAD_AXES], strides[PAD_AXES];  // of the padded chunk; of the chunk, in elements
    i64 low[PAD_AXES], high[PAD_AXES];
    i64 shift[PAD_AXES];  // of coordinates, so that those of the chunk begin at `before`
    i64 before[PAD_AXES], n[PAD_AXES];
    i64 first_before[PAD_AXES], step_before[PAD_AXES];
    i64 first_behind[PAD_AXES], step_behind[PAD_AXES];
    i64 n_axes, n_padded;
};

// What stands for none is `fill`, which the mask `kept` keeps if `fills` is 1. `kept` may be null.
extern "C" __global__ void __launch_bounds__(PAD_THREADS) window_pads(
    const Word* chunk, const Keep* keeps, const __grid_constant__ Padding padding, Word fill, int fills,
    Word* padded, Keep* kept
) {
    for (i64 i = own_thread(); i < padding.n_padded; i += all_threads()) {
        i64 rest = i, place = 0;
        bool is_inside = true;
        for (int d = (int)padding.n_axes - 1; d >= 0; --d) {
            u64 size = (u64)padding.sizes[d];
            u64 next = (u64)rest >> 32 ? (u64)rest / size : (u64)((u32)rest / (u32)size);
            i64 at = rest - (i64)(next * size);
            rest = (i64)next;
            is_inside &= at >= padding.low[d] && at < padding.high[d];
            at += padding.shift[d] - padding.before[d];
            if (at < 0) {
                at = padding.first_before[d] + (at + padding.before[d]) * padding.step_before[d];
            } else if (at >= padding.n[d]) {
                at = padding.first_behind[d] + (at - padding.n[d]) * padding.step_behind[d];
            }
            place += at * padding.strides[d];
        }
        padded[i] = is_inside ? chunk[place] : fill;
        if (kept) kept[i] = is_inside ? (keeps ? keeps[place] : (Keep)1) : (Keep)fills;
    }
}
