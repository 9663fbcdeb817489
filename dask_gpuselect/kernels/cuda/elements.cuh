// Reading the elements of a chunk, and ordering them by integer keys.
//
// Defined before this text: BITS (8, 16, 32 or 64: the size of an element), KIND (what it is) and KEEPS
// (1 if a mask says which elements take part, else 0).

#define UNSIGNED 0
#define SIGNED 1
#define FLOATING 2

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Word: an element as it lies in memory. Value: as it is compared, and as it is handed out.
#if BITS == 8
typedef unsigned char Word;
#elif BITS == 16
typedef unsigned short Word;
#elif BITS == 32
typedef u32 Word;
#else
typedef u64 Word;
#endif

#if KIND == FLOATING && BITS == 64
typedef double Value;
#elif KIND == FLOATING
typedef float Value;
#elif KIND == SIGNED && BITS == 8
typedef signed char Value;
#elif KIND == SIGNED && BITS == 16
typedef short Value;
#elif KIND == SIGNED && BITS == 32
typedef int Value;
#elif KIND == SIGNED
typedef i64 Value;
#else
typedef Word Value;
#endif

__device__ __forceinline__ Value value_of(Word word) {
#if KIND == FLOATING && BITS == 16
    float value;  // by hand, because NVRTC finds cuda_fp16.h only where CUDA's headers are installed
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(word));
    return value;
#elif KIND == FLOATING && BITS == 32
    return __uint_as_float(word);
#elif KIND == FLOATING
    return __longlong_as_double((i64)word);
#else
    return (Value)word;
#endif
}

__device__ __forceinline__ bool is_missing(Value value) {
#if KIND == FLOATING
    return value != value;
#else
    return false;
#endif
}

// Where subnormal numbers matter, arithmetic on float32 is written in PTX, because CuPy lets NVRTC
// flush them to zero (-ftz=true).

__device__ __forceinline__ double as_double(Value value) {
#if KIND == FLOATING && BITS < 64
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(value));
    return wide;
#else
    return (double)value;
#endif
}

__device__ __forceinline__ float sum_of(float a, float b) {
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
}

__device__ __forceinline__ float difference_of(float a, float b) {
    float difference;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
    return difference;
}

// Comparisons return 1.0f or 0.0f. Adding these uses the floating-point units; the integer units do the
// comparing, and adding predicates there would double their work.
#if KIND == FLOATING && BITS == 64
#define COMPARE(OPERATOR) asm("set." OPERATOR ".f32.f64 %0, %1, %2;" : "=f"(is) : "d"(a), "d"(b))
#elif KIND == FLOATING
#define COMPARE(OPERATOR) asm("set." OPERATOR ".f32.f32 %0, %1, %2;" : "=f"(is) : "f"(a), "f"(b))
#elif BITS == 64 && KIND == SIGNED
#define COMPARE(OPERATOR) asm("set." OPERATOR ".f32.s64 %0, %1, %2;" : "=f"(is) : "l"(a), "l"(b))
#elif BITS == 64
#define COMPARE(OPERATOR) asm("set." OPERATOR ".f32.u64 %0, %1, %2;" : "=f"(is) : "l"(a), "l"(b))
#elif KIND == SIGNED
#define COMPARE(OPERATOR)                                                                           \
    asm("set." OPERATOR ".f32.s32 %0, %1, %2;" : "=f"(is) : "r"((int)a), "r"((int)b))
#else
#define COMPARE(OPERATOR)                                                                           \
    asm("set." OPERATOR ".f32.u32 %0, %1, %2;" : "=f"(is) : "r"((u32)a), "r"((u32)b))
#endif

#define COMPARISON(RESULT, NAME, IS, STATEMENT)                                                     \
    __device__ __forceinline__ RESULT NAME(Value a, Value b) {                                      \
        IS is;                                                                                      \
        STATEMENT;                                                                                  \
        return is;                                                                                  \
    }
COMPARISON(float, is_less, float, COMPARE("lt"))
COMPARISON(float, is_at_most, float, COMPARE("le"))
COMPARISON(float, is_equal, float, COMPARE("eq"))

// Comparisons for branches. They compare integers with zero, which have all bits set if true: comparing the functions
// above with zero, where CuPy's options flush subnormals, would make the assembler flush them in both comparisons.
#if KIND == FLOATING && BITS < 64
COMPARISON(bool, is_less_than, u32, asm("set.lt.u32.f32 %0, %1, %2;" : "=r"(is) : "f"(a), "f"(b)))
COMPARISON(bool, is_equal_to, u32, asm("set.eq.u32.f32 %0, %1, %2;" : "=r"(is) : "f"(a), "f"(b)))
#else
COMPARISON(bool, is_less_than, bool, is = a < b)
COMPARISON(bool, is_equal_to, bool, is = a == b)
#endif

// --- Numbers --------------------------------------------------------------------------------------

// Count the binary digits of a number.
__device__ __forceinline__ u32 n_digits(u32 number) { return 32 - __clz((int)number); }
__device__ __forceinline__ u32 n_digits(u64 number) { return 64 - __clzll((i64)number); }

// --- Searches -------------------------------------------------------------------------------------

// Find the first of the places [first, last) for which a condition does not hold, or `last`. It holds
// for all places before and for none behind.
template <class I, class Before>
__device__ __forceinline__ I first_not(I first, I last, Before is_before) {
    while (first < last) {
        I middle = first + (last - first) / 2;  // rounded down, for negative numbers as well
        if (is_before(middle)) first = middle + 1; else last = middle;
    }
    return first;
}

// --- Threads ---------------------------------------------------------------------------------------

// The number of this thread among those of all blocks, and the number of all.
__device__ __forceinline__ i64 own_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 all_threads() { return (i64)gridDim.x * blockDim.x; }

// Visit the parts of the equal share that this block has of some parts one behind the other; `upto` is
// the number of items of the parts up to each. Hand on the part, the first item in it, and how many.
template <class Visit>
__device__ __forceinline__ void for_share(const i64* upto, int n_parts, Visit visit) {
    i64 n = upto[n_parts - 1], at = n * blockIdx.x / gridDim.x, stop = n * (blockIdx.x + 1) / gridDim.x;
    for (int part = first_not(0, n_parts, [&](int i) { return upto[i] <= at; }); at < stop; ++part) {
        i64 end = min(stop, upto[part]);
        if (at < end) visit(part, at - (part ? upto[part - 1] : 0), end - at);
        at = end;
    }
}

// Wait for those threads of the block that wait at the barrier of this name.
__device__ __forceinline__ void named_barrier(int name, int n_threads) {
    asm volatile("bar.sync %0, %1;" : : "r"(name), "r"(n_threads) : "memory");
}

// --- Where elements lie -------------------------------------------------------------------------

// Return the place of an element of a chunk that is not contiguous. `layout` has the number of
// dimensions, then their sizes, then their strides in elements; the last dimension is the innermost.
__device__ i64 place_of(i64 i, const i64* layout) {
    int n_dimensions = (int)layout[0];
    const i64* sizes = layout + 1;
    const i64* strides = sizes + n_dimensions;
    i64 place = 0;
    for (int d = n_dimensions - 1; d > 0; --d) {
        u64 size = (u64)sizes[d];
        u64 quotient = ((u64)i | size) >> 32 ? (u64)i / size : (u64)((u32)i / (u32)size);
        place += (i - (i64)(quotient * size)) * strides[d];
        i = (i64)quotient;
    }
    return place + i * strides[0];
}

__device__ __forceinline__ Word element(const Word* chunk, const i64* layout, i64 i) {
    return chunk[layout ? place_of(i, layout) : i];
}

constexpr int VECTOR = 16 / sizeof(Word);  // elements a 16-byte load

template <int N>
union Loaded {
    uint4 vectors[N / VECTOR];
    Word words[N];
    __device__ Loaded() {}
};

// Some items side by side, which are loaded and stored together, by at most 16 bytes.
template <class Item, int N>
struct alignas(N * sizeof(Item) < 16 ? N * sizeof(Item) : 16) Together {
    Item items[N];
};

// A byte for each element: 1 if the mask keeps it.
typedef unsigned char Keep;

constexpr Word NOT_A_NUMBER = BITS == 64 ? Word(0x7ff8000000000000ull)
                              : BITS == 32 ? Word(0x7fc00000u) : Word(0x7e00u);

// The mask of the elements of a 16-byte load.
#if BITS == 8
typedef uint4 Keeps;
#elif BITS == 16
typedef uint2 Keeps;
#elif BITS == 32
typedef u32 Keeps;
#else
typedef unsigned short Keeps;
#endif

// Flags of N elements: which of them take part.
template <int N>
union Present {
    Keeps vectors[N / VECTOR ? N / VECTOR : 1];
    u32 bytes[(N + 3) / 4];

    __device__ __forceinline__ explicit Present(bool is_present) {
#pragma unroll
        for (int i = 0; i < (N + 3) / 4; ++i) bytes[i] = is_present ? 0x01010101u : 0;
    }
    __device__ __forceinline__ bool operator[](int e) const {
        return (bytes[e / 4] & 1u << 8 * (e % 4)) != 0;
    }
    __device__ __forceinline__ void leave_out(int e) { bytes[e / 4] &= ~(1u << 8 * (e % 4)); }
#if !KEEPS
    // All or none of them: for kernels that are compiled without masks.
    __device__ __forceinline__ operator bool() const { return bytes[0] != 0; }
#endif
};

// Hand every element of the chunk to `visit(words, present)`, `PER_THREAD` of them or one at a time.
// Elements that are not present must be ignored. `visit.pause()` follows each such call. All threads of
// a block take part in all calls, so that they may vote and wait for each other. The elements are
// shared by `n_blocks` blocks, of which this is number `block`.
//
// A contiguous chunk is read by 16-byte loads; all loads of a call are in flight together. `keeps` is
// in the order in which the elements are read, and aligned as they are (see `chunk.Chunk`).
template <int THREADS, int PER_THREAD, class Visit>
__device__ __forceinline__ void visit_all(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, Visit& visit,
    const i64 block = blockIdx.x, const i64 n_blocks = gridDim.x
) {
    constexpr i64 TILE = THREADS * PER_THREAD;
    i64 head = (i64)((16 - (u64)chunk % 16) % 16 / sizeof(Word));  // before the first whole vector
    i64 n_tiles = layout || n < head ? 0 : (n - head) / TILE;
    const uint4* vectors = (const uint4*)(chunk + head);
    for (i64 tile = block; tile < n_tiles; tile += n_blocks) {
        Loaded<PER_THREAD> loaded;
        const uint4* mine = vectors + tile * (TILE / VECTOR) + threadIdx.x;
#pragma unroll
        for (int l = 0; l < PER_THREAD / VECTOR; ++l) loaded.vectors[l] = __ldcs(mine + l * THREADS);
        Present<PER_THREAD> present(true);
#if KEEPS
        const Keeps* kept = (const Keeps*)(keeps + head) + tile * (TILE / VECTOR) + threadIdx.x;
#pragma unroll
        for (int l = 0; l < PER_THREAD / VECTOR; ++l) present.vectors[l] = __ldcs(kept + l * THREADS);
#endif
        visit(loaded.words, present);
        visit.pause();
    }
    // One at a time: all elements of a chunk that is not contiguous, or those before and after the
    // tiles.
    i64 n_tiled = n_tiles * TILE, n_left = n - n_tiled;
    if (n_tiles == 0) head = 0;
    for (i64 start = block * THREADS; start < n_left; start += n_blocks * THREADS) {
        i64 i = start + threadIdx.x;
        bool is_present = i < n_left;
        if (i >= head) i += n_tiled;
        Word word[1] = {is_present ? element(chunk, layout, i) : Word(0)};
        if (KEEPS && is_present) is_present = keeps[i] != 0;
        visit(word, Present<1>(is_present));
        visit.pause();
    }
}

// A visit that takes the elements one by one and needs no pause.
template <class Take>
struct OneByOne {
    Take take;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
#pragma unroll
        for (int e = 0; e < N; ++e) take(words[e], present[e]);
    }

    __device__ __forceinline__ void pause() {}
};

// Hand every element of the chunk to `take(word, is_present)`; see `visit_all`.
template <int THREADS, int PER_THREAD, class Take>
__device__ __forceinline__ void take_all(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, Take take
) {
    OneByOne<Take> visit = {take};
    visit_all<THREADS, PER_THREAD>(chunk, n, layout, keeps, visit);
}

// Two visits at once.
template <class A, class B>
struct Both {
    A& first;
    B& second;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        first(words, present);
        second(words, present);
    }

    __device__ __forceinline__ void pause() {
        first.pause();
        second.pause();
    }
};

// --- Warps --------------------------------------------------------------------------------------

constexpr u32 ALL_LANES = 0xffffffffu;

// Combine the values of all threads of a warp; all of them get the result.
template <class T, class Combine>
__device__ __forceinline__ T over_warp(T value, Combine combine) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) {
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, offset));
    }
    return value;
}

template <class T>
__device__ __forceinline__ T total_over_warp(T value) {
    return over_warp(value, [](T a, T b) { return a + b; });
}

template <class T>
__device__ __forceinline__ T least_over_warp(T value) {
    return over_warp(value, [](T a, T b) { return min(a, b); });
}

template <class T>
__device__ __forceinline__ T largest_over_warp(T value) {
    return over_warp(value, [](T a, T b) { return max(a, b); });
}

#if __CUDA_ARCH__ >= 800  // one instruction for numbers of 32 bits
__device__ __forceinline__ u32 total_over_warp(u32 value) { return __reduce_add_sync(ALL_LANES, value); }
__device__ __forceinline__ u32 least_over_warp(u32 value) { return __reduce_min_sync(ALL_LANES, value); }
__device__ __forceinline__ u32 largest_over_warp(u32 value) { return __reduce_max_sync(ALL_LANES, value); }
#endif

// The sum over the threads of a warp up to this one.
template <class T>
__device__ __forceinline__ T sum_upto(T value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        T lower = __shfl_up_sync(ALL_LANES, value, step);
        if (threadIdx.x % 32 >= step) value += lower;
    }
    return value;
}

// Add the sum of a warp's counts to a total.
template <class T>
__device__ __forceinline__ void add_over_warp(u64* total, T count) {
    T of_warp = total_over_warp(count);
    if (threadIdx.x % 32 == 0 && of_warp) atomicAdd(total, (u64)of_warp);
}

// Reserve `n` places for a warp behind those that are taken; return the first of them.
__device__ __forceinline__ u64 reserved(u64* n_taken, u32 n) {
    u64 at = threadIdx.x % 32 == 0 && n ? atomicAdd(n_taken, (u64)n) : 0;
    return __shfl_sync(ALL_LANES, at, 0);
}

// The number of threads before this one among some of a warp.
__device__ __forceinline__ u32 n_before(u32 threads) {
    return __popc(threads & ((1u << threadIdx.x % 32) - 1));
}

// Reserve a place for each thread of a warp that wants one; return this thread's.
__device__ __forceinline__ u64 reserved_each(u64* n_taken, bool wants) {
    u32 all = __ballot_sync(ALL_LANES, wants);
    return all ? reserved(n_taken, __popc(all)) + n_before(all) : 0;
}

// The sum over a block, always in the same order.
template <int THREADS>
__device__ __forceinline__ double sum_of_block(double mine) {
    __shared__ double of_warps[THREADS / 32];
    mine = total_over_warp(mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
    __syncthreads();
    double sum = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += of_warps[warp];
    return sum;
}

// Sort n items that threads share, ascending, by a bitonic network: `at(i)` is item i, and `me` is the
// number of this thread among `n_threads`. All threads that `sync` waits for give the same `most`, which
// is n or more. In the first step of each length the second half is mirrored, so that all exchanges put
// the smaller item first, and no items are needed behind the end.
template <class At, class Less, class Sync>
__device__ __forceinline__ void sort_together(
    int n, int most, int me, int n_threads, At at, Less is_less, Sync sync
) {
#pragma unroll 1
    for (int half = 1; half < most; half *= 2) {
#pragma unroll 1
        for (int step = half; step; step /= 2) {
            int apart = step == half ? 2 * half - 1 : step;
#pragma unroll 1
            for (int pair = me;; pair += n_threads) {
                int low = 2 * pair - (pair & (step - 1)), high = low ^ apart;
                if (low >= n) break;
                if (high >= n) continue;
                auto a = at(low), b = at(high);
                if (is_less(b, a)) at(low) = b, at(high) = a;
            }
            sync();
        }
    }
}

// Sort n items in shared memory by a whole block.
template <class T, class Less>
__device__ __forceinline__ void sort_shared(T* items, int n, Less is_less) {
    auto at = [&](int i) -> T& { return items[i]; };
    sort_together(n, n, threadIdx.x, blockDim.x, at, is_less, [] { __syncthreads(); });
}

// By a whole block: write the sum of those before to each of some numbers in shared memory, which may
// replace them; return the sum of all.
__device__ __forceinline__ u32 prefix_sum(const u32* numbers, u32* before, u32 size) {
    __shared__ u32 of_warps[32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, total = 0;
    for (u32 start = 0; start < size; start += blockDim.x) {
        u32 i = start + threadIdx.x, own = i < size ? numbers[i] : 0, upto = sum_upto(own);
        if (lane == 31) of_warps[warp] = upto;
        __syncthreads();
        u32 others = lane < blockDim.x / 32 ? of_warps[lane] : 0;
        upto += total_over_warp(lane < warp ? others : 0);
        if (i < size) before[i] = total + upto - own;
        total += total_over_warp(others);
        __syncthreads();
    }
    return total;
}

// --- Whole numbers --------------------------------------------------------------------------------

// An element as an integer times a power of two; `begin` is the place of its lowest bit among the
// digits of exact sums.
struct Whole {
    u64 size;
    int begin;
    bool is_negative;
};

__device__ __forceinline__ Whole whole_of_double(double value) {
    u64 bits = (u64)__double_as_longlong(value);
    int exponent = (int)(bits >> 52) & 0x7ff;
    u64 size = bits & 0xfffffffffffffull;
    if (exponent) size |= 1ull << 52;
    else exponent = 1;
    return {size, exponent + OFFSET, (bits >> 63) != 0};
}

__device__ __forceinline__ Whole whole_of(Value value) {
#if KIND == FLOATING
    return whole_of_double(as_double(value));
#elif KIND == SIGNED
    return {value < 0 ? 0 - (u64)(i64)value : (u64)value, 32 * TOTAL_POINT, value < 0};
#else
    return {(u64)value, 32 * TOTAL_POINT, false};
#endif
}

__device__ __forceinline__ bool is_special(Word word) {  // NaN or infinite
#if KIND == FLOATING
    constexpr Word EXPONENT = BITS == 64 ? Word(0x7ff0000000000000ull)
                              : BITS == 32 ? Word(0x7f800000u) : Word(0x7c00u);
    return (word & EXPONENT) == EXPONENT;
#else
    return false;
#endif
}

constexpr u64 MASK = 0xffffffffu;  // of the lowest digit of 32 bits

// Add a signed number of at most 64 bits to digits, its lowest bit at bit `begin`.
__device__ __forceinline__ void add_at(u64* digits, u64 size, bool is_negative, int begin) {
    u64* at = digits + (begin >> 5);
    int shift = begin & 31;
    u64 low = (size & MASK) << shift, high = (size >> 32) << shift;
    u64 parts[3] = {low & MASK, (low >> 32) + (high & MASK), high >> 32};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        if (parts[i]) atomicAdd(at + i, is_negative ? 0 - parts[i] : parts[i]);
    }
}

// --- Blocks -------------------------------------------------------------------------------------

// Whether this is the last block to come here, which then finds all that other blocks have written in
// memory. `n_blocks` counts them, and is 0 at first.
__device__ __forceinline__ bool is_last_block(u64* n_blocks) {
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(n_blocks, 1ull) == gridDim.x - 1;
    __syncthreads();
    if (is_last) __threadfence();
    return is_last;
}

// --- Keys ---------------------------------------------------------------------------------------

// An unsigned integer in the order of the elements; zeros of both signs have the same one. Elements of
// one and two bytes use 32-bit arithmetic.
#if BITS == 64
typedef u64 Key;
#else
typedef u32 Key;
#endif

constexpr int KEY_BITS = 8 * sizeof(Key);
constexpr Key SIGN = Key(1) << (BITS - 1);
constexpr Key LARGEST = Key(Word(-1));

// The key of a float32. Adding +0 turns -0 into +0 and changes nothing else. It uses the floating-point
// pipeline.
__device__ __forceinline__ u32 key_of_float(float value) {
    u32 bits = __float_as_uint(sum_of(value, 0.0f));
    return bits ^ (u32((int)bits >> 31) | 0x80000000u);
}

__device__ __forceinline__ Key key_of(Word word) {
#if KIND == UNSIGNED
    return word;
#elif KIND == SIGNED
    return Key(word) ^ SIGN;
#elif BITS == 64
    Key bits = (u64)__double_as_longlong(__dadd_rn(__longlong_as_double((i64)word), 0.0));
    return bits ^ (u64((i64)bits >> 63) | SIGN);
#elif BITS == 32
    return key_of_float(__uint_as_float(word));
#else
    Key bits = word == SIGN ? 0 : word;
    return bits & SIGN ? LARGEST & ~bits : bits | SIGN;
#endif
}

// The key of an element, or of a missing one the largest.
__device__ __forceinline__ Key key_or_absent(Word word) {
#if KIND == FLOATING && BITS == 32
    return key_of(word);  // adding turns any NaN into 0x7fffffff, whose key is the largest
#else
    return is_missing(value_of(word)) ? LARGEST : key_of(word);
#endif
}

__device__ __forceinline__ Word word_of(Key key) {
#if KIND == UNSIGNED
    return Word(key);
#elif KIND == SIGNED
    return Word(key ^ SIGN);
#else
    return Word(key & SIGN ? key ^ SIGN : ~key);
#endif
}

// --- Hashed places ------------------------------------------------------------------------------

// SplitMix64 (Steele, Lea & Flood 2014), a bijection that looks random; and its last step, by which
// every bit depends on all bits of a word.
__device__ __forceinline__ u64 mixed_word(u64 word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

__device__ __forceinline__ u64 hash(u64 i) {
    return mixed_word(i * 0x9e3779b97f4a7c15ull + 0x9e3779b97f4a7c15ull);
}

// Return a hashed place in stretch i of `size` equal stretches of n elements. Unlike a fixed stride,
// hashed places do not follow the period of periodic data. Stretches make the sample of sorted data
// even. Arrays that are sampled together have salts, so that equal ones are drawn at other places.
__device__ __forceinline__ i64 sampled_place(i64 i, i64 size, i64 n, i64 salt = 0) {
    i64 start = i * n / size;
    i64 length = (i + 1) * n / size - start;
    return start + (i64)(hash((u64)(salt + i)) % (u64)length);
}
