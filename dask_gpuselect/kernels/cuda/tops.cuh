// The places where elements are cut to be summed; see `cut_for` and ``sums.cuh``.

// Number of binades that an element may be smaller than the largest.
__device__ __forceinline__ int top_room(int pieces) {
    return PIECE * pieces - 2 - (BITS == 64 ? 52 : 23);
}

// Choose the power of two at which elements are cut from some of them, `number_at(i)` for i below n.
// False if that is beyond the powers at which they can be.
template <class NumberAt>
__device__ __forceinline__ bool find_top_near(int n, NumberAt number_at, int pieces, int* top) {
#if KIND == FLOATING && BITS > 16
    int least = FARTHEST_TOP, most = -FARTHEST_TOP;
    for (int i = 0; i < n; ++i) {
        u64 bits = (u64)__double_as_longlong(number_at(i)) << 1;
        if (bits == 0) continue;
        int exponent = (int)(bits >> 53) - 1022;
        least = min(least, exponent);
        most = max(most, exponent);
    }
    if (least <= -FARTHEST_TOP || most >= FARTHEST_TOP) return false;
    int room = top_room(pieces), found = most + min((room - min(most - least, room)) / 2, 2);
    *top = BITS == 64 ? found : min(max(found, LEAST_TOP), MOST_TOP);
#else
    *top = KIND == FLOATING ? TOP_OF_HALF : 0;
#endif
    return true;
}
