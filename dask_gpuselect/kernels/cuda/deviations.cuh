// The median of the distances of the elements of a window from their median.

#include "lanes.cuh"

__device__ __forceinline__ double distance_from(Answer centre, Key key) {
#if ANSWER == 32
    float distance = difference_of((float)value_of(word_of(key)), centre);
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(distance));
    return wide;
#else
    return __dadd_rn(as_double(value_of(word_of(key))), -(double)centre);
#endif
}

// Of n sorted elements, which `at` returns: the (rank + 1)th least distance is the least within which
// rank + 1 elements lie that follow one another.
template <class At>
__device__ __forceinline__ double distance_of_rank(Answer centre, int n, int rank, At at) {
    // Before this place, the first of these elements is farther than the last.
    int first = first_not(0, n - rank - 1, [&](int i) {
        return -distance_from(centre, at(i)) > distance_from(centre, at(i + rank));
    });
    double behind = fmax(-distance_from(centre, at(first)), distance_from(centre, at(first + rank)));
    return first ? fmin(behind, -distance_from(centre, at(first - 1))) : behind;
}

template <class At>
__device__ __forceinline__ Answer deviation_of(int n, At at, Flags* flags) {
    int lower = (n - 1) / 2, upper = n / 2;
    Answer centre = mixed(at(lower), at(upper), 0.5, 1, flags);
    if (!is_finite(distance_from(centre, key_of(0)))) return no_answer();
    double a = distance_of_rank(centre, n, lower, at);
    double b = upper == lower ? a : distance_of_rank(centre, n, upper, at);
    return rounded(mean_of(a, b), 0);
}
