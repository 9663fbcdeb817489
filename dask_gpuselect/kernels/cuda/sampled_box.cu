// The rest of the box of a large array, whose cells are counted and whose candidates are gathered: its
// quartiles, from selected elements, the elements beyond the fences, and the nearest ones inside.

#include "lanes.cuh"
#include "beyond.cuh"

constexpr int SAMPLED_EACH = VECTOR < 4 ? 4 : VECTOR;  // elements of a thread in flight

// By a block: the answers of `BoxFound`, from the selected elements. Elements beyond the last that may be
// listed are in the first or the last cell, or they are few, and all of them are listed. False if integers
// are too wide.
__device__ __forceinline__ bool find_answers(
    const OnlyWanted& wanted, const u64* prefixes, const u64* held, int n_ends, u64 room, double* answers
) {
    Flags flags = {0, 0};
    int a = threadIdx.x;
    if (a < 5) {
        bool is_limit = a >= 3, is_known = !is_limit || held[a == 3 ? 0 : 2 * n_ends] >= room;
        Key lower = (Key)prefixes[wanted.lower[a]], upper = (Key)prefixes[wanted.upper[a]];
        answers[a] = is_known ? mixed(lower, upper, wanted.weights[a], wanted.mixes, &flags)
                              : __longlong_as_double(a == 3 ? 0x7ff0000000000000ll : 0xfff0000000000000ll);
    }
    return !__syncthreads_or(flags.too_wide);
}

// By one warp: add the ends, and the cells whose elements were not gathered, as far as they are beyond a
// fence. False if a fence is inside such a cell.
__device__ __forceinline__ bool add_ungathered(
    Beyond& mine, const Value* ends, const unsigned char* gathers, const u64* held, int n_ends
) {
    bool is_known = true;
    for (int e = threadIdx.x; e < n_ends; e += 32) {
        double number = as_double(ends[e]), next = as_double(ends[min(e + 1, n_ends - 1)]);
        bool is_below = number < mine.low, is_above = number > mine.high;
        u64 ties = held[2 * e + 1], behind = gathers[e + 1] ? 0 : held[2 * e + 2];
        if (behind && (is_below != next < mine.low || is_above != next > mine.high)) is_known = false;
        if (is_below) atomicAdd(&mine.found->n_below, ties + behind);
        if (is_above) atomicAdd(&mine.found->n_above, ties + behind);
        if (ties == 0) continue;
        Key key = key_of(*(const Word*)(ends + e));
        if (!is_below) mine.least = min(mine.least, key);
        if (!is_above) mine.most = max(mine.most, key);
        for (int side = 0; side < 2; ++side) {
            if (!(side ? is_above && number > mine.last_high : is_below && number < mine.last_low)) continue;
            u64 at = atomicAdd(&mine.found->n_listed[side], ties);
            for (u64 i = at; i < min(at + ties, mine.room); ++i) mine.listed[side * mine.room + i] = ends[e];
        }
    }
    return is_known;
}

// `found` is zero before. Nothing if the sample was not of the usual kind, or without room for candidates.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) sampled_box(
    const Word* candidates, u64 most, const u64* n_found, const int* form, const u64* prefixes,
    const Value* ends, const unsigned char* gathers, const u64* held, int n_ends,
    const __grid_constant__ OnlyWanted wanted, double whis, BoxFound* found, Value* listed, u64 room
) {
    if (*form == 0 || *n_found > most) return;
    __shared__ double answers[5];
    bool is_known = find_answers(wanted, prefixes, held, n_ends, room, answers);
    Beyond mine;
    mine.start(answers, whis, found, listed, room);
    visit_all<SELECT_THREADS, SAMPLED_EACH>(candidates, (i64)*n_found, nullptr, nullptr, mine);
    if (blockIdx.x == 0) {
        if (threadIdx.x < 5) found->answers[threadIdx.x] = answers[threadIdx.x];
        if (threadIdx.x < 32) is_known &= add_ungathered(mine, ends, gathers, held, n_ends);
        if (!is_known) found->is_unknown = 1;
    }
    mine.finish();
}
