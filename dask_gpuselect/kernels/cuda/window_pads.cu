// Padded chunks: a chunk with elements before and behind it along each axis, for windows.

#include "padding.cuh"

// A block takes a part of a row along the last axis, or several rows that are short. What stands for
// none is `fill`, which the mask `kept` keeps if `fills` is 1. `kept` may be null.
extern "C" __global__ void __launch_bounds__(PAD_THREADS) window_pads(
    const Word* chunk, const Keep* keeps, const __grid_constant__ Padding padding, Word fill, int fills,
    Word* padded, Keep* kept
) {
    int last = (int)padding.n_axes - 1;
    i64 length = padding.sizes[last], n_rows = padding.n_padded / length;
    int width = (int)min(length, (i64)PAD_THREADS), rows = PAD_THREADS / width;
    int own_row = threadIdx.x / width, own_at = threadIdx.x - own_row * width;
    i64 n_parts = (length + width - 1) / width, n_blocks = (n_rows + rows - 1) / rows * n_parts;
    for (i64 block = blockIdx.x; block < n_blocks; block += gridDim.x) {
        i64 part = block % n_parts, row = block / n_parts * rows + own_row, at = part * width + own_at;
        if (own_row >= rows || row >= n_rows || at >= length) continue;
        bool is_inside = true;
        i64 place = source_of(padding, last, at, is_inside) * padding.strides[last], rest = row;
        for (int d = last - 1; d >= 0; --d) {
            i64 next = d ? rest / padding.sizes[d] : 0;
            place += source_of(padding, d, rest - next * padding.sizes[d], is_inside) * padding.strides[d];
            rest = next;
        }
        i64 i = row * length + at;
        padded[i] = is_inside ? chunk[place] : fill;
        if (kept) kept[i] = is_inside ? (keeps ? keeps[place] : (Keep)1) : (Keep)fills;
    }
}
