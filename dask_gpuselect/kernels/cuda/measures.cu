// The measurements of strategies, each in one read: the extent of the elements, counts and distances at a
// pivot, and counts in bins; see `strategies.probes`.
//
// Defined before this text: SPACE, in which distances are measured.

constexpr int EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

// The key in which the host knows an element: that of the float32 for a float16.
__device__ __forceinline__ Key told_key(Word word) {
#if KIND == FLOATING && BITS == 16
    return key_of_float(value_of(word));
#else
    return key_of(word);
#endif
}

// Hand every element that is not missing to `add`, and count the others.
template <class Add>
__device__ __forceinline__ void add_valid(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64* n_missing, Add add
) {
    u32 number = 0;
    take_all<MEASURE_THREADS, EACH>(chunk, n, layout, keeps, [&](Word word, bool is_present) {
        bool missing = is_missing(value_of(word));
        number += is_present && missing;
        if (is_present && !missing) add(word);
    });
    add_over_warp(n_missing, number);
}

// --- Distances ----------------------------------------------------------------------------------

#define NONE 0
#define BY_VALUE 1
#define BY_KEY 2
#define BY_LOG 3

// The sum of some distances. Of keys of 32 bits it is an integer: 2^31 of them for a thread fit.
#if SPACE == BY_KEY && BITS < 64
typedef u64 Distances;
#else
typedef double Distances;
#endif

__device__ __forceinline__ double coordinate(Word word, double origin) {
    double x = as_double(value_of(word));
    return SPACE == BY_LOG ? log1p(x - origin) : x;
}

// --- One pivot ----------------------------------------------------------------------------------

struct Counted {
    u64 n_below, n_above, n_missing, previous, not_next;  // all zeros at first, so `next` inverted
};

// Note the largest key of a warp, and the least one inverted.
__device__ __forceinline__ void add_extremes(Counted* counted, Key least, Key largest) {
    least = least_over_warp(least);
    largest = largest_over_warp(largest);
    if (threadIdx.x % 32) return;
    atomicMax(&counted->not_next, ~(u64)least);
    atomicMax(&counted->previous, (u64)largest);
}

extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) point(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 pivot, double at, double origin,
    Counted* counted, double* sums
) {
    Key own = (Key)pivot, previous = 0, next = (Key)~Key(0);
    u32 n_below = 0, n_above = 0;
    Distances low = 0, high = 0;
    add_valid(chunk, n, layout, keeps, &counted->n_missing, [&](Word word) {
        Key key = told_key(word);
        bool is_below = key < own, is_above = key > own;
        n_below += is_below;
        n_above += is_above;
        if (is_below) previous = max(previous, key);
        if (is_above) next = min(next, key);
        if (SPACE == BY_KEY) {
            if (is_below) low += (Distances)(own - key);
            if (is_above) high += (Distances)(key - own);
        } else if (SPACE != NONE) {
            double d = coordinate(word, origin) - at;
            if (is_below) low += (Distances)-d;
            if (is_above) high += (Distances)d;
        }
    });
    add_over_warp(&counted->n_below, n_below);
    add_over_warp(&counted->n_above, n_above);
    add_extremes(counted, next, previous);
    if (SPACE == NONE) return;
    double all_low = sum_of_block<MEASURE_THREADS>((double)low);
    double all_high = sum_of_block<MEASURE_THREADS>((double)high);
    if (threadIdx.x == 0) sums[2 * blockIdx.x] = all_low, sums[2 * blockIdx.x + 1] = all_high;
}

// --- The extent ---------------------------------------------------------------------------------

// `counted` has the largest key in `previous` and the least, inverted, in `not_next`.
extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) extent(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 origin, Counted* counted, double* sums
) {
    Key begin = (Key)origin, least = (Key)~Key(0), largest = 0;
    double total = 0;
    add_valid(chunk, n, layout, keeps, &counted->n_missing, [&](Word word) {
        Key key = told_key(word);
        least = min(least, key);
        largest = max(largest, key);
        if (SPACE == BY_VALUE) total += coordinate(word, 0);
        else total += key >= begin ? (double)(key - begin) : -(double)(begin - key);
    });
    add_extremes(counted, least, largest);
    total = sum_of_block<MEASURE_THREADS>(total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// --- Bins ---------------------------------------------------------------------------------------

constexpr u32 NO_BIN = ~0u;

// Count the elements in bins, and those before the first: `bin_of(key, word)` is the bin of one that is
// not. `totals` are zeros: elements before the first bin, missing ones, and those in each bin.
template <class BinOf>
__device__ __forceinline__ void count_bins(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 origin, u32 n_bins, u64* totals,
    BinOf bin_of
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* counts = (u32*)scratch;
    u32 n_copies = COUNTERS / n_bins;  // of the counters: warps wait less for each other
    n_copies = n_copies ? n_copies : 1;
    for (u32 i = threadIdx.x; i < n_copies * n_bins; i += MEASURE_THREADS) counts[i] = 0;
    __syncthreads();
    u32* own = counts + threadIdx.x / 32 % n_copies * n_bins;
    u32 n_before = 0;
    add_valid(chunk, n, layout, keeps, totals + 1, [&](Word word) {
        Key key = told_key(word);
        bool is_before = key < (Key)origin;
        n_before += is_before;
        u32 bin = is_before ? NO_BIN : bin_of(key, word);
        // One more, by all lanes that have the same: the hardware adds them up by itself.
        if (bin != NO_BIN) atomicAdd(&own[bin], 1u);
    });
    add_over_warp(totals, n_before);
    __syncthreads();
    for (u32 i = threadIdx.x; i < n_bins; i += MEASURE_THREADS) {
        u64 sum = 0;
        for (u32 copy = 0; copy < n_copies; ++copy) sum += counts[copy * n_bins + i];
        if (sum) atomicAdd(&totals[2 + i], sum);
    }
}

// Bins of equally many keys (the digits of radixSelect; Alabi et al. 2012, section 2.2).
extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) count_keys(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 origin, int shift, u32 n_bins, u64* totals
) {
    count_bins(chunk, n, layout, keeps, origin, n_bins, totals, [&](Key key, Word) {
        Key place = (key - (Key)origin) >> shift;
        return place < n_bins ? (u32)place : NO_BIN;
    });
}

// Bins of equally wide values (bucketSelect; Alabi et al. 2012, equation 1). No operation is fused,
// so that the host finds the same edges.
extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) count_linear(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 low, u64 high, double start, double slope,
    u32 n_bins, u64* totals
) {
    count_bins(chunk, n, layout, keeps, low, n_bins, totals, [&](Key key, Word word) {
        double place = __dmul_rn(__dsub_rn(as_double(value_of(word)), start), slope);
        return key > (Key)high ? NO_BIN : min((u32)place, n_bins - 1);
    });
}
