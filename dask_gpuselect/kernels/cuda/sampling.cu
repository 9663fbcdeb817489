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
    __shared__ u32 n_here;
    __shared__ u64 first;
    if (threadIdx.x == 0) n_here = 0;
    __syncthreads();
    u64 at = takes ? atomicAdd(&n_here, 1u) : 0;
    __syncthreads();
    if (threadIdx.x == 0) first = atomicAdd(n_drawn, (u64)n_here);
    __syncthreads();
    at += first;
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

struct CountKept {
    u64 number;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        u32 some = 0;
#pragma unroll
        for (int e = 0; e < N; ++e) some += present[e] && words[e] != 0;
        number += some;
    }

    __device__ __forceinline__ void pause() {}
};

// Count the nonzero elements of a contiguous mask.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) kept_number(
    const Word* mask, i64 n, u64* total
) {
    CountKept mine = {0};
    visit_all<SELECT_THREADS, 4 * VECTOR>(mask, n, nullptr, nullptr, mine);
    u64 of_warp = total_over_warp(mine.number);
    if (threadIdx.x % 32 == 0 && of_warp) atomicAdd(total, of_warp);
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

// At most one element of the sample in 2^FEW_ALONE may be summed by itself.
constexpr int FEW_ALONE = 10;

// Count the elements of an ascending sample below a fence, or up to it.
__device__ __forceinline__ i64 number_below(const Value* drawn, i64 size, double fence, bool or_at) {
    return first_not((i64)0, size, [&](i64 place) {
        double value = as_double(drawn[place]);
        return value < fence || (or_at && value == fence);
    });
}

// Whether more than about `most` elements between two places are tied; half as many may already count.
__device__ __forceinline__ bool has_ties(const Value* drawn, i64 first, i64 last, i64 most) {
    i64 step = (most + 1) / 2;
    bool found = false;
    for (i64 i = first + threadIdx.x * step; i + step <= last; i += 32 * step) {
        found |= !is_less_than(drawn[i], drawn[i + step]);
    }
    return found;
}

// Choose the power of two at which elements are cut to be summed, from the ends of the brackets: see
// `cut_for`. False if too many elements of the sample are smaller than the pieces can represent.
__device__ __forceinline__ bool find_top(
    const Value* drawn, i64 size, const Value* ends, int n_ends, int* top
) {
    if (!find_top_near(n_ends, [&](int e) { return as_double(ends[e]); }, top)) return false;
#if KIND == FLOATING && BITS > 16
    double held = __longlong_as_double((i64)(*top - TOP_ROOM - 1 + 1023) << 52);
    i64 n_small = number_below(drawn, size, held, false) - number_below(drawn, size, -held, true);
    return n_small <= size >> FEW_ALONE;
#else
    return true;
#endif
}

// Find the ends of a box's brackets in a sorted sample, and choose how to cut elements that are summed:
// see `BoxGuess`. Sets `is_in_vain` if the sample is not of the usual kind. `bounds` are those of
// spans, the first and the last of which are open. One warp.
extern "C" __global__ void __launch_bounds__(32) guess_box(
    const Value* drawn, i64 size, const i64* places, i64 most_beyond, i64 most_tied, double whis,
    Value* bounds, int* top, u64* is_in_vain
) {
    constexpr int N_QUARTILES = 3, N_ENDS = 2 * N_QUARTILES + 2;
    double low = as_double(drawn[places[0]]), low_most = as_double(drawn[places[1]]);
    double high_least = as_double(drawn[places[4]]), high = as_double(drawn[places[5]]);
    // The box has at least this width, so that the fences are at least this far from it.
    double width = high_least > low_most ? whis * (high_least - low_most) : 0.0;
    i64 first = number_below(drawn, size, low_most - width, false);
    i64 last = number_below(drawn, size, high_least + width, true) - 1;
    bool is_usual = first <= most_beyond && size - 1 - last <= most_beyond;
    is_usual &= !is_missing(drawn[size - 1]) && high - low < __longlong_as_double(0x7ff0000000000000);
    __shared__ Value ends[N_ENDS];
    if (threadIdx.x < N_ENDS) {
        int e = threadIdx.x;
        i64 place = e == 0 ? first : e == N_ENDS - 1 ? last : places[e - 1];
        ends[e] = drawn[min(max(place, (i64)0), size - 1)];
    }
    __syncwarp();
    for (int e = 0; e + 1 < N_ENDS; ++e) is_usual &= is_less_than(ends[e], ends[e + 1]);
    is_usual &= !has_ties(drawn, 0, min(first, size - 1), most_tied);
    is_usual &= !has_ties(drawn, max(last, (i64)0), size - 1, most_tied);
    for (int i = 0; i < N_QUARTILES; ++i) {
        is_usual &= !has_ties(drawn, places[2 * i], places[2 * i + 1], most_tied);
    }
    int found = 0;
    is_usual &= find_top(drawn, size, ends, N_ENDS, &found);
    is_usual = __all_sync(ALL_LANES, is_usual);
    if (threadIdx.x < N_ENDS) bounds[1 + threadIdx.x] = ends[threadIdx.x];
    if (threadIdx.x == 0) {
        *top = found;
        if (!is_usual) *is_in_vain = 1;
    }
}
