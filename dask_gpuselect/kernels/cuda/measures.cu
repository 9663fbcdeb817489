// The measurements of strategies, each in one read: the extent of the elements, counts and distances at a
// pivot, and counts in bins; see `strategies.probes`.
//
// Defined before this text: SPACE, in which distances are measured.

constexpr int EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

// The key in which the host knows an element: that of the float32 for a float16.
#if KIND == FLOATING && BITS == 16
__device__ __forceinline__ Key told_key(Word word) {
    float sum;
    asm("add.rn.f32 %0, %1, 0f00000000;" : "=f"(sum) : "f"(value_of(word)));
    u32 bits = __float_as_uint(sum);
    return bits ^ (u32((int)bits >> 31) | 0x80000000u);
}
#else
__device__ __forceinline__ Key told_key(Word word) { return key_of(word); }
#endif

// True if there may be NaN among some elements: the highest keys are NaN's or infinity's.
template <int N>
__device__ __forceinline__ bool has_special(const Word (&words)[N]) {
    bool is = false;
#pragma unroll
    for (int e = 0; e < N; ++e) is |= is_special(words[e]);
    return is;
}

// Hand the elements that are not missing to `mine`, which counts the others.
template <class Mine, int N>
__device__ __forceinline__ void add_valid(Mine& mine, const Word (&words)[N]) {
    if (!has_special(words)) {
#pragma unroll
        for (int e = 0; e < N; ++e) mine.add(words[e]);
        return;
    }
    for (int e = 0; e < N; ++e) {
        if (is_missing(value_of(words[e]))) ++mine.n_missing;
        else mine.add(words[e]);
    }
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

struct Point {
    Key pivot;
    double at, origin;  // the pivot's coordinate
    u32 n_below, n_above, n_missing;
    Key previous, next;
    Distances low, high;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
        if (is_present) add_valid(*this, words);
    }

    __device__ __forceinline__ void add(Word word) {
        Key key = told_key(word);
        bool is_below = key < pivot, is_above = key > pivot;
        n_below += is_below;
        n_above += is_above;
        if (is_below) previous = max(previous, key);
        if (is_above) next = min(next, key);
        if (SPACE == BY_KEY) {
            if (is_below) low += (Distances)(pivot - key);
            if (is_above) high += (Distances)(key - pivot);
        } else if (SPACE != NONE) {
            double d = coordinate(word, origin) - at;
            if (is_below) low += (Distances)-d;
            if (is_above) high += (Distances)d;
        }
    }

    __device__ __forceinline__ void pause() {}
};

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
    Point mine = {(Key)pivot, at, origin, 0, 0, 0, Key(0), (Key)~Key(0), 0, 0};
    visit_all<MEASURE_THREADS, EACH>(chunk, n, layout, keeps, mine);
    add_over_warp(&counted->n_below, mine.n_below);
    add_over_warp(&counted->n_above, mine.n_above);
    add_over_warp(&counted->n_missing, mine.n_missing);
    add_extremes(counted, mine.next, mine.previous);
    if (SPACE == NONE) return;
    double low = sum_of_block<MEASURE_THREADS>((double)mine.low);
    double high = sum_of_block<MEASURE_THREADS>((double)mine.high);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = low;
        sums[2 * blockIdx.x + 1] = high;
    }
}

// --- The extent ---------------------------------------------------------------------------------

struct Extent {
    Key origin;
    u32 n_missing;
    Key least, largest;
    double total;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
        if (is_present) add_valid(*this, words);
    }

    __device__ __forceinline__ void add(Word word) {
        Key key = told_key(word);
        least = min(least, key);
        largest = max(largest, key);
        if (SPACE == BY_VALUE) total += coordinate(word, 0);
        else total += key >= origin ? (double)(key - origin) : -(double)(origin - key);
    }

    __device__ __forceinline__ void pause() {}
};

// `counted` has the largest key in `previous` and the least, inverted, in `not_next`.
extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) extent(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 origin, Counted* counted, double* sums
) {
    Extent mine = {(Key)origin, 0, (Key)~Key(0), Key(0), 0};
    visit_all<MEASURE_THREADS, EACH>(chunk, n, layout, keeps, mine);
    add_over_warp(&counted->n_missing, mine.n_missing);
    add_extremes(counted, mine.least, mine.largest);
    double total = sum_of_block<MEASURE_THREADS>(mine.total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// --- Bins ---------------------------------------------------------------------------------------

constexpr u32 NO_BIN = ~0u;

// Bins of equally many keys (the digits of radixSelect; Alabi et al. 2012, section 2.2).
struct KeyBins {
    Key origin;
    int shift;
    u32 n_bins;

    __device__ __forceinline__ bool is_before(Key key) const { return key < origin; }

    __device__ __forceinline__ u32 bin(Key key, Word) const {
        Key place = (key - origin) >> shift;  // of a key before the origin: far behind the last
        return key >= origin && place < n_bins ? (u32)place : NO_BIN;
    }
};

// Bins of equally wide values (bucketSelect; Alabi et al. 2012, equation 1). No operation is fused,
// so that the host finds the same edges.
struct LinearBins {
    Key low, high;
    double start, slope;
    u32 n_bins;

    __device__ __forceinline__ bool is_before(Key key) const { return key < low; }

    __device__ __forceinline__ u32 bin(Key key, Word word) const {
        if (key < low || key > high) return NO_BIN;
        double place = __dmul_rn(__dsub_rn(as_double(value_of(word)), start), slope);
        return min((u32)place, n_bins - 1);
    }
};

template <class Bins>
struct Histogram {
    Bins bins;
    u32* counts;  // in shared memory, of this warp and perhaps others
    u32 n_before, n_missing;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
        if (!is_present) return;
        bool is_all_valid = !has_special(words);
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (!is_all_valid && is_missing(value_of(words[e]))) {
                ++n_missing;
                continue;
            }
            Key key = told_key(words[e]);
            n_before += bins.is_before(key);
            u32 bin = bins.bin(key, words[e]);
            // One more, by all lanes that have the same: the hardware adds them up by itself.
            if (bin != NO_BIN) atomicAdd(&counts[bin], 1u);
        }
    }

    __device__ __forceinline__ void pause() {}
};

// `totals` are zeros: elements before the first bin, missing ones, and those in each bin.
template <class Bins>
__device__ __forceinline__ void count_bins(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, Bins bins, u64* totals
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* counts = (u32*)scratch;
    u32 n_copies = COUNTERS / bins.n_bins;  // of the counters: warps wait less for each other
    n_copies = n_copies ? n_copies : 1;
    for (u32 i = threadIdx.x; i < n_copies * bins.n_bins; i += MEASURE_THREADS) counts[i] = 0;
    __syncthreads();
    Histogram<Bins> mine = {bins, counts + threadIdx.x / 32 % n_copies * bins.n_bins, 0, 0};
    visit_all<MEASURE_THREADS, EACH>(chunk, n, layout, keeps, mine);
    add_over_warp(&totals[0], mine.n_before);
    add_over_warp(&totals[1], mine.n_missing);
    __syncthreads();
    for (u32 i = threadIdx.x; i < bins.n_bins; i += MEASURE_THREADS) {
        u64 sum = 0;
        for (u32 copy = 0; copy < n_copies; ++copy) sum += counts[copy * bins.n_bins + i];
        if (sum) atomicAdd(&totals[2 + i], sum);
    }
}

extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) count_keys(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 origin, int shift, u32 n_bins, u64* totals
) {
    KeyBins bins = {(Key)origin, shift, n_bins};
    count_bins(chunk, n, layout, keeps, bins, totals);
}

extern "C" __global__ void __launch_bounds__(MEASURE_THREADS) count_linear(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u64 low, u64 high, double start, double slope,
    u32 n_bins, u64* totals
) {
    LinearBins bins = {(Key)low, (Key)high, start, slope, n_bins};
    count_bins(chunk, n, layout, keeps, bins, totals);
}
