// A sample, and what it lets expect.

extern "C" __global__ void sample(
    const Word* chunk, i64 n, const i64* layout, i64 size, Value* drawn
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) drawn[i] = value_of(element(chunk, layout, sampled_place(i, size, n)));
}

// The ends of single cells from a sorted sample, so that the tally follows without the host: its
// positions are known before its elements are. One warp; a lane has a bracket, and LOOKS positions in
// it, the first and the last of which are its ends, unless open: before the sample, or behind it.
//
// The guess is refused if an element is missing, for then the positions are others, or if elements at
// neighbouring positions are equal, for then that value is to be counted and not gathered.
constexpr int LOOKS = 17;
extern "C" __global__ void guess(
    const Value* ordered, i64 size, const i64* positions, int n_brackets, Value* spans,
    u64* is_refused
) {
    bool is_tied = is_missing(ordered[size - 1]);
    int b = threadIdx.x;
    if (b < n_brackets) {
        const i64* mine = positions + b * LOOKS;
        Value seen[LOOKS];
#pragma unroll
        for (int l = 0; l < LOOKS; ++l) seen[l] = ordered[min(max(mine[l], 0ll), size - 1)];
#pragma unroll
        for (int l = 1; l < LOOKS; ++l) {
            bool are_two = mine[l] > max(mine[l - 1], 0ll) && mine[l] < size;
            is_tied |= are_two && is_equal_to(seen[l - 1], seen[l]);
        }
        if (b + 1 < n_brackets) is_tied |= is_equal_to(seen[LOOKS - 1], ordered[mine[LOOKS]]);
        if (mine[0] >= 0) spans[2 * b] = seen[0];
        if (mine[LOOKS - 1] < size) spans[2 * b + 1] = seen[LOOKS - 1];
    }
    if (__any_sync(ALL_LANES, is_tied)) *is_refused = 1;
}
