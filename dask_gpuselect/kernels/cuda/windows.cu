// Moving windows over a padded chunk: the order statistics of each. A thread has one window.
//
// The wanted key is found two bits at a time: each read of the window counts the keys below three
// values. Neighbouring threads have neighbouring windows, so that reads come from the first-level
// cache.
//
// Defined before this text, besides the definitions for lanes.cuh: DEVIATES (1 if the question is about
// distances from the median of the window).

#include "deviations.cuh"

struct Window {
    const Word* chunk;
    const Keep* keeps;
    const i64* offsets;
    i64 base;
    int n;

    // Get an element; false if it is masked.
    __device__ __forceinline__ bool get(int i, Word& word) const {
        i64 place = base + __ldg(offsets + i);
        if (KEEPS && !keeps[place]) return false;
        word = chunk[place];
        return true;
    }
    // Get the key of an element; false if it is masked or missing.
    __device__ __forceinline__ bool at(int i, Key& key) const {
        Word word;
        if (!get(i, word)) return false;
        key = key_of(word);
        return !is_missing(value_of(word));
    }
    __device__ __forceinline__ bool is_missing_at(int i) const {
        Word word;
        return get(i, word) && is_missing(value_of(word));
    }
};

// --- Reads ----------------------------------------------------------------------------------------

// Find the key of a rank, and of the next rank, among the keys of `bits` bits that `at` returns.
template <class K, class At>
__device__ __forceinline__ void select_key(
    int n, i64 lower, i64 upper, int bits, At at, K& first, K& second
) {
    K prefix = 0;
    for (int shift = bits - 2; shift >= 0; shift -= 2) {
        K one = prefix | K(1) << shift, two = prefix | K(2) << shift, three = prefix | K(3) << shift;
        int below_one = 0, below_two = 0, below_three = 0;
        for (int i = 0; i < n; ++i) {
            K key;
            if (!at(i, key)) continue;
            below_one += key < one, below_two += key < two, below_three += key < three;
        }
        prefix = lower < below_one ? prefix : lower < below_two ? one : lower < below_three ? two : three;
    }
    first = second = prefix;
    if (upper == lower) return;
    int upto = 0;
    K next = K(~K(0));
    for (int i = 0; i < n; ++i) {
        K key;
        if (!at(i, key)) continue;
        upto += key <= prefix;
        if (key > prefix) next = min(next, key);
    }
    if (upper >= upto) second = next;
}

#if DEVIATES
// The median of the distances of the elements of a window from their median.
__device__ Answer deviation_of(const Window& own, i64 n_valid, Flags* flags) {
    Key low, high;
    i64 lower = (n_valid - 1) / 2, upper = n_valid / 2;
    auto keys = [&](int i, Key& key) { return own.at(i, key); };
    select_key<Key>(own.n, lower, upper, BITS, keys, low, high);
    Answer centre = mixed(low, high, 0.5, 1, flags);
    if (!is_finite(distance_from(centre, key_of(0)))) return no_answer();
    u64 first, second;
    auto distances = [&](int i, u64& distance) {
        Key key;
        if (!own.at(i, key)) return false;
        distance = (u64)__double_as_longlong(fabs(distance_from(centre, key)));
        return true;
    };
    select_key<u64>(own.n, lower, upper, 64, distances, first, second);
    return rounded(mean_of(__longlong_as_double((i64)first), __longlong_as_double((i64)second)), 0);
}
#endif

// --- The kernel -----------------------------------------------------------------------------------

// `layout` describes where windows begin, and `offsets` the places of their n elements relative to
// that. `ranks` has the lower and then the upper ranks of each answer for 0 to n elements, and
// `weights` the weights of the upper ones.
extern "C" __global__ void __launch_bounds__(WINDOWS_THREADS) windows_answer(
    const Word* chunk, const Keep* keeps, const i64* layout, const i64* offsets, i64 n_windows, int n,
    const i64* ranks, const double* weights, int n_answers, int mixes, int skips_missing,
    int least, Answer* answers, int* valid, Flags* flags
) {
    for (i64 i = own_thread(); i < n_windows; i += all_threads()) {
        Window own = {chunk, keeps, offsets, place_of(i, layout), n};
        int n_valid = 0, n_missing = 0;
#if KEEPS || KIND == FLOATING
        for (int j = 0; j < n; ++j) {
            Key key;
            n_valid += own.at(j, key);
            n_missing += own.is_missing_at(j);
        }
#else
        n_valid = n;
#endif
        if (valid) valid[i] = n_valid;
        bool has_none = n_valid < least || (n_missing && !skips_missing);
        for (int a = 0; a < n_answers; ++a) {
            i64 place = (i64)a * (n + 1) + n_valid;
            Answer* answer = answers + (i64)a * n_windows + i;
            if (has_none) {
                *answer = no_answer();
                continue;
            }
#if DEVIATES
            *answer = deviation_of(own, n_valid, flags);
#else
            i64 lower = ranks[place], upper = ranks[(i64)n_answers * (n + 1) + place];
            Key first, second;
            auto all = [&](int j, Key& key) { return own.at(j, key); };
            select_key<Key>(n, lower, upper, BITS, all, first, second);
            *answer = mixed(first, second, weights[place], mixes, flags);
#endif
        }
    }
}
