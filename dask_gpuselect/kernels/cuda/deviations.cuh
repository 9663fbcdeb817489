// The median of the distances of the elements of a window from their median.

#include "lanes.cuh"

__device__ __forceinline__ double distance_from(Answer centre, Key key) {
#if ANSWER == 32
    return as_double(difference_of((float)value_of(word_of(key)), centre));
#else
    return __dadd_rn(as_double(value_of(word_of(key))), -(double)centre);
#endif
}

// Of n sorted elements, which `at` returns: the (rank + 1)th least distance is the least within which
// rank + 1 elements lie that follow one another.
template <class At>
__device__ __forceinline__ double distance_of_rank(Answer centre, int n, int rank, At at) {
    double least = __longlong_as_double(0x7ff0000000000000ll);
    first_not(0, n - rank, [&](int i) {  // the places on both sides of the least are among those asked
        double before = -distance_from(centre, at(i)), behind = distance_from(centre, at(i + rank));
        least = fmin(least, fmax(before, behind));
        return before > behind;
    });
    return least;
}

// Divide a distance as NumPy divides numbers of its dtype.
__device__ __forceinline__ Answer scaled(Answer distance, double scale) {
#if ANSWER == 32
    float quotient;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(distance), "f"((float)scale));
    return quotient;
#else
    return __ddiv_rn(distance, scale);
#endif
}

template <class At>
__device__ __forceinline__ Answer deviation_of(int n, At at, double scale, Flags* flags) {
    int lower = (n - 1) / 2, upper = n / 2;
    Key low = at(lower);
    Answer centre = mixed(low, upper == lower ? low : at(upper), 0.5, 1, flags);
    if (!is_finite(distance_from(centre, key_of(0)))) return no_answer();
    double a = distance_of_rank(centre, n, lower, at);
    double b = upper == lower ? a : distance_of_rank(centre, n, upper, at);
    return scaled(rounded(mean_of(a, b), 0), scale);
}
