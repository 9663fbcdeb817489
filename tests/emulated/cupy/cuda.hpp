// CUDA C++ for g++: what the kernels use of it. `translate.py` rewrites what no header can.

#include "runtime.hpp"

// No header of the standard library: each takes longer to read than a kernel.
extern "C" {
double fabs(double), sqrt(double), log1p(double), ldexp(double, int), fma(double, double, double);
double scalbn(double, int), fmin(double, double), fmax(double, double), rint(double), floor(double), ceil(double);
float fminf(float, float), fmaxf(float, float), sqrtf(float);
int ilogb(double);
void* memcpy(void*, const void*, size_t);
}
inline float fabs(float x) { return __builtin_fabsf(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }

#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static  // blocks run one after another; `launch` swaps what those that wait have
#define __CUDA_ARCH__ 900

namespace cuda {
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

template <class To, class From>
inline To bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

template <class T>
inline uint64_t widened(T value) {
    static_assert(sizeof value <= 8);
    uint64_t wide = 0;
    memcpy(&wide, &value, sizeof value);
    return wide;
}

template <class T>
inline T narrowed(uint64_t wide) {
    T value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

template <class T>
inline const T* aligned(const T* place) {
    if ((uintptr_t)place % alignof(T)) fail("a load of %zu bytes is not aligned", sizeof(T));
    return place;
}
}  // namespace cuda

// --- Vectors ----------------------------------------------------------------------------------------

struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

template <class T> inline T __ldg(const T* place) { return *cuda::aligned(place); }
template <class T> inline T __ldcg(const T* place) { return *cuda::aligned(place); }
template <class T> inline T __ldcs(const T* place) { return *cuda::aligned(place); }
template <class T> inline void __stcg(T* place, T value) { *cuda::aligned(place) = value; }

// --- Blocks -----------------------------------------------------------------------------------------

inline void __syncthreads(int line = __builtin_LINE()) { at_barrier(0, 0, false, line); }
inline int __syncthreads_count(int yes, int line = __builtin_LINE()) { return at_barrier(0, 0, yes, line); }
inline int __syncthreads_or(int yes, int line = __builtin_LINE()) { return at_barrier(0, 0, yes, line) > 0; }
inline int __syncthreads_and(int yes, int line = __builtin_LINE()) { return at_barrier(0, 0, !yes, line) == 0; }
inline void __threadfence() { may_pause(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { may_pause(); }

// A window of shared memory has addresses of 32 bits, which may be negative here: of static variables.
inline size_t __cvta_generic_to_shared(const void* place) {
    return (uint32_t)((const unsigned char*)place - dynamic_shared);
}
inline void* __cvta_shared_to_generic(size_t address) { return dynamic_shared + (int32_t)address; }

// --- Warps ------------------------------------------------------------------------------------------

inline void __syncwarp(uint32_t mask = ~0u, int line = __builtin_LINE()) { in_warp(SYNC, mask, 0, 0, line); }
inline unsigned __ballot_sync(uint32_t mask, bool yes, int line = __builtin_LINE()) {
    return in_warp(BALLOT, mask, yes, 0, line);
}
inline int __any_sync(uint32_t mask, bool yes, int line = __builtin_LINE()) {
    return in_warp(BALLOT, mask, yes, 0, line) != 0;
}
inline int __all_sync(uint32_t mask, bool yes, int line = __builtin_LINE()) {
    return in_warp(BALLOT, mask, !yes, 0, line) == 0;
}
template <class T>
inline unsigned __match_any_sync(uint32_t mask, T value, int line = __builtin_LINE()) {
    return in_warp(MATCH, mask, cuda::widened(value), 0, line);
}

// `lane` is this thread's, `first` and `last` the ends of its part of the warp.
#define SHUFFLES(NAME, ARGUMENT, SOURCE)                                                            \
    template <class T>                                                                              \
    inline T NAME(uint32_t mask, T value, ARGUMENT, int width = 32, int line = __builtin_LINE()) {  \
        int lane = threadIdx.x % 32, first = lane & ~(width - 1), last = first + width - 1;         \
        (void)first, (void)last;                                                                    \
        return cuda::narrowed<T>(in_warp(SHUFFLE, mask, cuda::widened(value), SOURCE, line));       \
    }
SHUFFLES(__shfl_sync, int from, first + (from & (width - 1)))
SHUFFLES(__shfl_up_sync, unsigned by, lane - (int)by >= first ? lane - (int)by : lane)
SHUFFLES(__shfl_down_sync, unsigned by, lane + (int)by <= last ? lane + (int)by : lane)
SHUFFLES(__shfl_xor_sync, int with, (lane ^ with) <= last ? lane ^ with : lane)
#undef SHUFFLES

#define REDUCES(NAME, T, OP)                                                   \
    inline T NAME(uint32_t mask, T value, int line = __builtin_LINE()) {       \
        return (T)in_warp(OP, mask, (uint64_t)(int64_t)value, 0, line);        \
    }
REDUCES(__reduce_add_sync, unsigned, ADD)
REDUCES(__reduce_add_sync, int, ADD)
REDUCES(__reduce_min_sync, unsigned, MIN)
REDUCES(__reduce_min_sync, int, MIN_SIGNED)
REDUCES(__reduce_max_sync, unsigned, MAX)
REDUCES(__reduce_max_sync, int, MAX_SIGNED)
REDUCES(__reduce_and_sync, unsigned, AND)
REDUCES(__reduce_or_sync, unsigned, OR)
REDUCES(__reduce_xor_sync, unsigned, XOR)
#undef REDUCES

// --- Atomic operations ------------------------------------------------------------------------------

#define ATOMIC(NAME, T, RESULT)            \
    inline T NAME(T* place, T value) {     \
        may_pause();                       \
        T old = *cuda::aligned(place);     \
        *place = RESULT;                   \
        return old;                        \
    }
#define ATOMICS(T)                                             \
    ATOMIC(atomicMin, T, value < old ? value : old)            \
    ATOMIC(atomicMax, T, value > old ? value : old)            \
    ATOMIC(atomicAnd, T, old & value)                          \
    ATOMIC(atomicOr, T, old | value)                           \
    ATOMIC(atomicXor, T, old ^ value)                          \
    ATOMIC(atomicExch, T, value)                               \
    inline T atomicCAS(T* place, T expected, T value) {        \
        may_pause();                                           \
        T old = *cuda::aligned(place);                         \
        if (old == expected) *place = value;                   \
        return old;                                            \
    }
ATOMICS(int)
ATOMICS(unsigned)
ATOMICS(unsigned long long)
ATOMIC(atomicMin, long long, value < old ? value : old)
ATOMIC(atomicMax, long long, value > old ? value : old)
ATOMIC(atomicAdd, int, old + value)
ATOMIC(atomicAdd, unsigned, old + value)
ATOMIC(atomicAdd, unsigned long long, old + value)
ATOMIC(atomicAdd, float, old + value)
ATOMIC(atomicAdd, double, old + value)
ATOMIC(atomicSub, int, old - value)
ATOMIC(atomicSub, unsigned, old - value)
#undef ATOMIC
#undef ATOMICS

// --- Numbers ----------------------------------------------------------------------------------------

#define LEAST_AND_MOST(T, A, B)                                     \
    inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; }    \
    inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
LEAST_AND_MOST(int, int, int)
LEAST_AND_MOST(unsigned, unsigned, unsigned)
LEAST_AND_MOST(unsigned, int, unsigned)
LEAST_AND_MOST(unsigned, unsigned, int)
LEAST_AND_MOST(long long, long long, long long)
LEAST_AND_MOST(unsigned long long, unsigned long long, unsigned long long)
LEAST_AND_MOST(unsigned long long, long long, unsigned long long)
LEAST_AND_MOST(unsigned long long, unsigned long long, long long)
#undef LEAST_AND_MOST
// Of NaN and a number these are the number, as in CUDA.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline unsigned __vminu2(unsigned a, unsigned b) { return min(a & 0xffff, b & 0xffff) | min(a >> 16, b >> 16) << 16; }
inline unsigned __vmaxu2(unsigned a, unsigned b) { return max(a & 0xffff, b & 0xffff) | max(a >> 16, b >> 16) << 16; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) { return ((unsigned long long)high << 32 | low) >> by % 32; }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= (unsigned)(bytes >> (which >> 4 * i) % 8 * 8 & 0xff) << 8 * i;
    return out;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __float_as_uint(float x) { return cuda::bits<unsigned>(x); }
inline int __float_as_int(float x) { return cuda::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return cuda::bits<float>(x); }
inline float __int_as_float(int x) { return cuda::bits<float>(x); }
inline long long __double_as_longlong(double x) { return cuda::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda::bits<double>(x); }
inline int __double2hiint(double x) { return (int)(cuda::bits<long long>(x) >> 32); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// --- PTX --------------------------------------------------------------------------------------------

constexpr uint64_t ptx_code(const char* text) {
    uint64_t code = 14695981039346656037ull;
    for (; *text; ++text) code = (code ^ (unsigned char)*text) * 1099511628211ull;
    return code;
}
// Which asm statements there are. Of another one the type is incomplete.
template <uint64_t CODE>
struct Ptx;
#define PTX(TEXT, ...) Ptx<ptx_code(TEXT)>::run(__VA_ARGS__)
#define PTX_IS(TEXT, PARAMETERS, ...)                \
    template <>                                      \
    struct Ptx<ptx_code(TEXT)> {                     \
        static void run PARAMETERS { __VA_ARGS__; }  \
    };
#define PTX_SETS(TYPE, T)                                                                \
    PTX_IS("set.lt.f32." TYPE " %0, %1, %2;", (float& is, T a, T b), is = a < b)         \
    PTX_IS("set.le.f32." TYPE " %0, %1, %2;", (float& is, T a, T b), is = a <= b)        \
    PTX_IS("set.eq.f32." TYPE " %0, %1, %2;", (float& is, T a, T b), is = a == b)
PTX_SETS("f64", double)
PTX_SETS("f32", float)
PTX_SETS("s64", long long)
PTX_SETS("u64", unsigned long long)
PTX_SETS("s32", int)
PTX_SETS("u32", unsigned)
PTX_IS("set.lt.u32.f32 %0, %1, %2;", (unsigned& is, float a, float b), is = a < b ? ~0u : 0)
PTX_IS("set.eq.u32.f32 %0, %1, %2;", (unsigned& is, float a, float b), is = a == b ? ~0u : 0)
PTX_IS("shl.b64 %0, %1, %2;", (unsigned long long& to, unsigned long long a, unsigned by), to = by < 64 ? a << by : 0)
PTX_IS("shl.b32 %0, %1, %2;", (unsigned& to, unsigned a, unsigned by), to = by < 32 ? a << by : 0)
PTX_IS("cvt.f64.f32 %0, %1;", (double& to, float a), to = a)
PTX_IS("cvt.rn.f32.f64 %0, %1;", (float& to, double a), to = (float)a)
PTX_IS("cvt.f32.f16 %0, %1;", (float& to, unsigned short a), to = cuda::bits<_Float16>(a))
PTX_IS("cvt.rn.f16.f64 %0, %1;", (unsigned short& to, double a),
       to = a != a ? 0x7fff : cuda::bits<unsigned short>((_Float16)a))
// The sum of a NaN and a number is one NaN, whichever the first one was.
PTX_IS("add.rn.f32 %0, %1, %2;", (float& to, float a, float b),
       to = a + b == a + b ? a + b : cuda::bits<float>(0x7fffffff))
PTX_IS("min.f32 %0, %1, %2;", (float& to, float a, float b), to = a < b ? a : b)
PTX_IS("max.f32 %0, %1, %2;", (float& to, float a, float b), to = a < b ? b : a)
PTX_IS("sub.rn.f32 %0, %1, %2;", (float& to, float a, float b), to = a - b)
PTX_IS("div.rn.f32 %0, %1, %2;", (float& to, float a, float b), to = a / b)
PTX_IS("sqrt.approx.ftz.f32 %0, %1;", (float& to, float a), to = sqrtf(a))
PTX_IS("{\n"
       "    .reg .u32 sum;\n"
       "    mad.lo.u32 sum, %1, %4, %2;\n"
       "    mad.lo.u32 %0, %3, %5, sum;\n"
       "}",
       (unsigned& to, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e), to = c * e + (a * d + b))
PTX_IS("bar.sync %0, %1;", (int name, int n_threads), at_barrier(name, n_threads, false, __builtin_LINE()))
PTX_IS("st.shared.f64 [%0], %1;", (unsigned at, double value), *(double*)__cvta_shared_to_generic(at) = value)
PTX_IS("st.shared.f32 [%0], %1;", (unsigned at, float value), *(float*)__cvta_shared_to_generic(at) = value)
struct Unchanged {
    template <class T>
    Unchanged(const T&) {}
};
PTX_IS("", (Unchanged), )

// --- Starting a kernel ------------------------------------------------------------------------------

extern "C" __attribute__((visibility("hidden"))) unsigned char __bss_start, _end;

namespace cuda {
template <int... PLACES>
struct Places {};
template <int N, int... PLACES>
struct PlacesOf : PlacesOf<N - 1, N - 1, PLACES...> {};
template <int... PLACES>
struct PlacesOf<0, PLACES...> {
    typedef Places<PLACES...> Type;
};

template <class... Types, int... PLACES>
inline void call_with(void (*kernel)(Types...), void** arguments, Places<PLACES...>) {
    kernel(*(Types*)arguments[PLACES]...);
}
template <class... Types>
inline void call(void (*kernel)(Types...), void** arguments) {
    call_with(kernel, arguments, typename PlacesOf<sizeof...(Types)>::Type());
}
template <class... Types>
inline int sizes(void (*)(Types...), int* out) {
    int all[] = {(int)sizeof(Types)..., 0};
    memcpy(out, all, sizeof all - sizeof(int));
    return sizeof...(Types);
}
}  // namespace cuda

#define KERNEL(NAME)                                                                                \
    extern "C" void run_thread(void** arguments) { cuda::call(NAME, arguments); }                   \
    extern "C" int sizes_of_parameters(int* out) { return cuda::sizes(NAME, out); }                 \
    extern "C" void static_shared(unsigned char** ends) { ends[0] = &__bss_start, ends[1] = &_end; }
