// CUDA C++ on the host, as far as `moments.cu` and `weighing.cu` need it. The threads of a block take turns: each runs
// up to its next barrier or shuffle, which all of them meet in the same order.

#include <cmath>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __launch_bounds__(n)

struct Place {
    int x;
};
static Place threadIdx;
static Place blockIdx = {0};
static const Place gridDim = {1};

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
constexpr u32 ALL_LANES = 0xffffffffu;
typedef WORD Word;
typedef VALUE Value;

static ucontext_t scheduler, contexts[MOMENTS_THREADS];
static long long shuffled[MOMENTS_THREADS];
static std::function<void()> running;

static void __syncthreads() { swapcontext(&contexts[threadIdx.x], &scheduler); }

static long long __shfl_xor_sync(u32, long long value, int offset) {
    shuffled[threadIdx.x] = value;
    __syncthreads();
    long long found = shuffled[threadIdx.x ^ offset];
    __syncthreads();
    return found;
}

static u32 warp_sum(u32 value) {
    for (int offset = 16; offset; offset >>= 1) value += (u32)__shfl_xor_sync(ALL_LANES, value, offset);
    return value;
}

static u64 __shfl_sync(u32, u64 value, int lane) {
    shuffled[threadIdx.x] = (long long)value;
    __syncthreads();
    u64 found = (u64)shuffled[threadIdx.x / 32 * 32 + lane];
    __syncthreads();
    return found;
}

static u32 __ballot_sync(u32, bool is) {
    u32 found = 0;
    for (int lane = 0; lane < 32; ++lane) {
        shuffled[threadIdx.x] = is;
        found |= (u32)__shfl_sync(ALL_LANES, is, lane) << lane;
    }
    return found;
}

static void __syncwarp() { __syncthreads(); }
static int __float_as_int(float x) { int bits; std::memcpy(&bits, &x, 4); return bits; }
static i64 sampled_place(i64 i, i64 size, i64 n) { return i * n / size; }

static int __popc(u32 bits) { return __builtin_popcount(bits); }

template <class Number>
static Number atomicAdd(Number* to, Number value) {
    Number before = *to;
    *to += value;
    return before;
}
static i64 __double_as_longlong(double x) { i64 bits; std::memcpy(&bits, &x, 8); return bits; }
static double __longlong_as_double(i64 bits) { double x; std::memcpy(&x, &bits, 8); return x; }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static float sum_of(float a, float b) { return a + b; }
static float difference_of(float a, float b) { return a - b; }
static u32 __float_as_uint(float x) { u32 bits; std::memcpy(&bits, &x, 4); return bits; }
static float __uint_as_float(u32 bits) { float x; std::memcpy(&x, &bits, 4); return x; }
static Value value_of(Word word) { Value value; std::memcpy(&value, &word, sizeof word); return value; }
static double as_double(Value value) { return (double)value; }
static bool is_missing(Value value) { return value != value; }
static bool is_less_than(Value a, Value b) { return a < b; }
static bool is_equal_to(Value a, Value b) { return a == b; }
static float is_equal(Value a, Value b) { return a == b; }

typedef unsigned char Keep;

template <int N>
struct Present {
    bool is[N];
    bool operator[](int e) const { return is[e]; }
    operator bool() const { return is[0]; }  // where no mask is
};

// As in ``elements.cuh``: whole tiles, then one element at a time; all threads take part in all calls.
template <int THREADS, int PER_THREAD, class Visit>
static void visit_all(const Word* chunk, i64 n, const i64*, const Keep* keeps, Visit& visit) {
    constexpr i64 TILE = THREADS * PER_THREAD;
    i64 n_tiled = n / TILE * TILE;
    for (i64 start = 0; start < n_tiled; start += TILE) {
        Word words[PER_THREAD];
        std::memcpy(words, chunk + start + threadIdx.x * PER_THREAD, sizeof words);
        Present<PER_THREAD> present;
        for (int e = 0; e < PER_THREAD; ++e) {
            present.is[e] = !keeps || keeps[start + threadIdx.x * PER_THREAD + e];
        }
        visit(words, present);
        visit.pause();
    }
    for (i64 start = n_tiled; start < n; start += THREADS) {
        i64 i = start + threadIdx.x;
        Word word[1] = {i < n ? chunk[i] : Word(0)};
        visit(word, Present<1>{i < n && (!keeps || keeps[i])});
        visit.pause();
    }
}

static bool is_done[MOMENTS_THREADS];

static void run_thread() {
    running();
    is_done[threadIdx.x] = true;
    swapcontext(&contexts[threadIdx.x], &scheduler);
}

static void run_block(std::function<void()> kernel) {
    constexpr size_t SIZE = 1 << 16;
    std::vector<char> stacks(SIZE * MOMENTS_THREADS);
    running = kernel;
    for (int t = 0; t < MOMENTS_THREADS; ++t) {
        getcontext(&contexts[t]);
        contexts[t].uc_stack.ss_sp = stacks.data() + SIZE * t;
        contexts[t].uc_stack.ss_size = SIZE;
        makecontext(&contexts[t], run_thread, 0);
        is_done[t] = false;
    }
    for (int left = MOMENTS_THREADS; left;) {
        for (int t = 0; t < MOMENTS_THREADS; ++t) {
            if (is_done[t]) continue;
            threadIdx.x = t;
            swapcontext(&scheduler, &contexts[t]);
            left -= is_done[t];
        }
    }
}
