// What the kernels of lanes need besides, for one block of a warp or more.

#include "cuda_on_host.hpp"
#include <algorithm>

#define __grid_constant__
#undef __launch_bounds__
#define __launch_bounds__(...)

using std::max;
using std::min;

struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct uint4 { u32 x, y, z, w; };

template <class T>
static T __ldg(const T* place) { return *place; }

template <class T>
static T exchanged(T value, int lane) {
    long long bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = (long long)__shfl_sync(ALL_LANES, (u64)bits, lane);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
#define __shfl_sync(mask, value, lane) exchanged(value, (lane) & 31)
#define __shfl_xor_sync(mask, value, offset) exchanged(value, (int)(threadIdx.x ^ (offset)) & 31)

static bool __any_sync(u32 mask, bool is) { return __ballot_sync(mask, is) != 0; }
static bool __all_sync(u32 mask, bool is) { return __ballot_sync(mask, !is) == 0; }

// Of some or all threads, of which some may be ahead by shuffles in their warp.
static int n_at_barrier[16], n_passed[16];
static bool votes;
static void group_barrier(int name, int n_threads) {
    int turn = n_passed[name];
    if (++n_at_barrier[name] == n_threads) n_at_barrier[name] = 0, ++n_passed[name];
    while (n_passed[name] == turn) swapcontext(&contexts[threadIdx.x], &scheduler);
}
static void block_barrier() { group_barrier(0, MOMENTS_THREADS); }
static bool __syncthreads_or(bool is) {
    block_barrier();
    votes = false;
    block_barrier();
    votes |= is;
    block_barrier();
    return votes;
}

static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dsqrt_rn(double a) { return std::sqrt(a); }
static int __double2hiint(double a) { return (int)(__double_as_longlong(a) >> 32); }

#if BITS == 64
typedef u64 Key;
#else
typedef u32 Key;
#endif
constexpr int KEY_BITS = 8 * sizeof(Key);
constexpr Key SIGN = Key(1) << (BITS - 1);
constexpr Key LARGEST = Key(Word(-1));

static Key key_of(Word word) {
#if KIND == UNSIGNED
    return word;
#elif KIND == SIGNED
    return Key(word) ^ SIGN;
#else
    Word bits = word == SIGN ? 0 : word;
    return is_missing(value_of(word)) ? LARGEST : bits & SIGN ? LARGEST & ~Key(bits) : bits | SIGN;
#endif
}

static Word word_of(Key key) {
#if KIND == UNSIGNED
    return Word(key);
#elif KIND == SIGNED
    return Word(key ^ SIGN);
#else
    return Word(key & SIGN ? key ^ SIGN : ~key);
#endif
}

template <class T>
static T __shfl_up_sync(u32, T value, int offset) {
    int lane = threadIdx.x % 32;
    return exchanged(value, lane < offset ? lane : lane - offset);
}

template <class T>
static T __ldcg(const T* place) { return *place; }

static int __ffs(u32 bits) { return __builtin_ffs((int)bits); }
static void __threadfence() {}
static void __threadfence_system() {}
static int __clz(u32 bits) { return bits ? __builtin_clz(bits) : 32; }
using std::fabs;
using std::fmax;
using std::fmin;
struct Extent {
    int x;
};
static const Extent blockDim = {MOMENTS_THREADS};
