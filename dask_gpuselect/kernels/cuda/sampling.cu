// A sample, and the brackets that follow from it.

#include "tops.cuh"

// Draw the elements at `size` hashed places. With a mask, unmasked elements are drawn in any order
// while there is room. Elements without room are from random blocks, so that the sample is fair.
extern "C" __global__ void __launch_bounds__(TALLY_THREADS) sample(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, i64 size, i64 salt, i64 room,
    Value* drawn, u64* has_missing, u64* n_drawn
) {
#if KEEPS
    i64 block = (i64)((u64)blockIdx.x * 2654435761u % gridDim.x);
    i64 i = block * blockDim.x + threadIdx.x;
    i64 place = i < size ? sampled_place(i, size, n, salt) : 0;
    bool takes = i < size && keeps[place];
    i64 at = (i64)reserved_each(n_drawn, takes);
    if (!takes || at >= room) return;
#else
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, at = i;
    if (i >= size) return;
    i64 place = sampled_place(i, size, n, salt);
#endif
    Value value = value_of(element(chunk, layout, place));
    drawn[at] = value;
    if (is_missing(value)) *has_missing = 1;
}

// Count the nonzero elements of a contiguous mask.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) kept_number(
    const Word* mask, i64 n, u64* total
) {
    u32 number = 0;
    take_all<SELECT_THREADS, 4 * VECTOR>(mask, n, nullptr, nullptr, [&](Word word, bool is_present) {
        number += is_present && word != 0;
    });
    add_over_warp(total, number);
}

// Convert keys to the ends of brackets, so that the tally follows without the host. `spans` points to
// the first end. One warp.
extern "C" __global__ void __launch_bounds__(32) guess(const u64* keys, int n_ends, Value* spans) {
    int e = threadIdx.x;
    if (e < n_ends) spans[e] = value_of(word_of((Key)keys[e]));
}

// The same for many ends, at places of an ascending sample. One block.
extern "C" __global__ void __launch_bounds__(TALLY_THREADS) guess_placed(
    const Value* drawn, const i64* places, int n_ends, Value* ends
) {
    for (int e = threadIdx.x; e < n_ends; e += TALLY_THREADS) ends[e] = drawn[places[e]];
}

// --- The brackets of a box --------------------------------------------------------------------------

// At most one element of the sample in 2^FEW_ALONE may be summed by itself, and one in 2^FEW_NEAR be near
// ends.
constexpr int FEW_ALONE = 10, FEW_NEAR = 3;

// Count the elements of an ascending sample below a fence, or up to it.
__device__ __forceinline__ i64 number_below(const Value* drawn, i64 size, double fence, bool or_at) {
    return first_not((i64)0, size, [&](i64 place) {
        double value = as_double(drawn[place]);
        return value < fence || (or_at && value == fence);
    });
}

// True if more than about `most` elements between two places are tied; half as many may already count.
__device__ __forceinline__ bool has_ties(const Value* drawn, i64 first, i64 last, i64 most) {
    i64 step = (most + 1) / 2;
    bool found = false;
    for (i64 i = first + threadIdx.x * step; i + step <= last; i += 32 * step) {
        found |= !is_less_than(drawn[i], drawn[i + step]);
    }
    return found;
}

// Choose the power of two at which elements are cut to be summed, from nearly the largest of both signs and
// those at some places: see `cut_for`. False if too many elements of the sample are smaller than the pieces
// can represent.
__device__ __forceinline__ bool find_top(
    const Value* drawn, i64 size, const i64* places, int n_places, int pieces, int* top
) {
    i64 n_out = size >> (FEW_ALONE + 1);
    auto number_at = [&](int i) {
        return as_double(drawn[i < n_places ? places[i] : i == n_places ? n_out : size - 1 - n_out]);
    };
    if (!find_top_near(n_places + 2, number_at, pieces, top)) return false;
#if KIND == FLOATING && BITS > 16
    double held = __longlong_as_double((i64)(*top - top_room(pieces) - 1 + 1023) << 52);
    i64 n_small = number_below(drawn, size, held, false) - number_below(drawn, size, -held, true);
    return n_small <= size >> FEW_ALONE;
#else
    return true;
#endif
}

// By a warp: whether few elements are within one of the steps of `Placed`, even in values, that have ends.
__device__ __forceinline__ bool are_few_near(const Value* drawn, i64 size, const i64* places, int n_ends) {
    double step = (as_double(drawn[places[n_ends - 1]]) - as_double(drawn[places[0]])) / (1 << TABLE_BITS);
    i64 number = 0;
    if (threadIdx.x < n_ends) {
        double end = as_double(drawn[places[threadIdx.x]]);
        number = number_below(drawn, size, end + step, true) - number_below(drawn, size, end - step, false);
    }
    return total_over_warp(number) < size >> FEW_NEAR;
}

// Find the ends of a box's brackets in a sorted sample, and choose the form of the kernel that counts and
// sums: see `BoxGuess`. The form is 0 if the sample is not of the usual kind. One warp.
extern "C" __global__ void __launch_bounds__(32) guess_box(
    const Value* drawn, i64 size, const i64* quartiles, i64 n_extreme, i64 most_near, i64 most_tied,
    double whis, Value* all_ends, int* top, int* form
) {
    constexpr int N_ENDS = 12, FIRST = 3, LAST = 8;  // the ends of quartiles are those from FIRST to LAST
    double low = as_double(drawn[quartiles[0]]), low_most = as_double(drawn[quartiles[1]]);
    double high_least = as_double(drawn[quartiles[4]]), high = as_double(drawn[quartiles[5]]);
    // The box has at least and at most these widths, so that the fences are that far from it.
    double least = high_least > low_most ? whis * (high_least - low_most) : 0.0, most = whis * (high - low);
    __shared__ i64 places[N_ENDS];
    if (threadIdx.x < N_ENDS) {
        int e = threadIdx.x;
        i64 place = e == 1    ? number_below(drawn, size, low - most, false) - 1
                    : e == 2  ? number_below(drawn, size, low_most - least, false)
                    : e == 9  ? number_below(drawn, size, high_least + least, true) - 1
                    : e == 10 ? number_below(drawn, size, high + most, true)
                    : e == 0  ? n_extreme
                    : e == 11 ? size - 1 - n_extreme
                              : quartiles[e - FIRST];
        places[e] = min(max(place, (i64)0), size - 1);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        places[0] = min(places[0], places[1]);
        places[N_ENDS - 1] = max(places[N_ENDS - 1], places[N_ENDS - 2]);
    }
    __syncwarp();
    Value ends[N_ENDS];
#pragma unroll
    for (int e = 0; e < N_ENDS; ++e) ends[e] = drawn[places[e]];
    bool is_usual = !is_missing(drawn[size - 1]) && high - low < __longlong_as_double(0x7ff0000000000000);
    is_usual &= places[2] - places[1] <= most_near && places[10] - places[9] <= most_near;
#pragma unroll
    for (int e = FIRST - 1; e <= LAST; ++e) is_usual &= is_less_than(ends[e], ends[e + 1]);
    is_usual &= !has_ties(drawn, 0, places[0], most_tied) && !has_ties(drawn, places[11], size - 1, most_tied);
    for (int e = 1; e < N_ENDS - 1; e += 2) is_usual &= !has_ties(drawn, places[e], places[e + 1], most_tied);
    is_usual = __all_sync(ALL_LANES, is_usual);
    constexpr int MOST_PIECES = KIND == FLOATING && BITS > 16 ? PIECES + 1 : PIECES;
    int chosen = 0, found = 0;
    for (int p = PIECES; is_usual && !chosen && p <= MOST_PIECES; ++p) {
        if (find_top(drawn, size, places + FIRST - 1, LAST - FIRST + 3, p, &found)) chosen = p;
    }
    bool is_keyed = KIND != FLOATING || !are_few_near(drawn, size, places, N_ENDS);
    if (threadIdx.x) return;
#pragma unroll
    for (int e = 0; e < N_ENDS; ++e) all_ends[e] = ends[e];
    *top = found;
    *form = chosen ? 2 * chosen + is_keyed : 0;
}
