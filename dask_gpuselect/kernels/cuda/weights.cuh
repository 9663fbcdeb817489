// Weights of elements: an integer times a power of two each.
//
// Defined before this text: WHOLE (1 if weights are integers, 0 if they are floats) and NARROW (1 if a kernel reads
// float32 weights).

#if WHOLE
typedef i64 Weight;
#else
typedef double Weight;
#endif
#if NARROW
typedef float Held;
#else
typedef Weight Held;
#endif

// A weight from memory: `digits` times 2^place, and flags of what is wrong with it.
struct Weighed {
    u64 digits;
    int place;
    u32 faults;
};

constexpr u32 IS_NEGATIVE = 1, IS_NOT_FINITE = 2;
constexpr int LEAST_PLACE = -1074;  // lowest place of a digit of a float64
constexpr int MOST_PLACE = 4096;  // above all distances from it

#if !WHOLE
// From bits, because arithmetic on float32 flushes subnormal numbers to zero.
#if NARROW
typedef u32 Bits;
__device__ __forceinline__ Bits bits_of(Held held) { return (u32)__float_as_int(held); }
#else
typedef u64 Bits;
__device__ __forceinline__ Bits bits_of(Held held) { return (u64)__double_as_longlong(held); }
#endif
constexpr int FRACTION = NARROW ? 23 : 52, EXPONENTS = NARROW ? 255 : 2047;
constexpr Bits HIDDEN = Bits(1) << FRACTION, INFINITE = Bits(EXPONENTS) << FRACTION, MINUS = INFINITE + HIDDEN;
#endif

// Whether a weight is positive and finite.
__device__ __forceinline__ bool is_positive(Held held) {
#if WHOLE
    return held > 0;
#else
    return bits_of(held) - 1 < INFINITE - 1;
#endif
}

__device__ __forceinline__ Weighed weighed(Held held) {
#if WHOLE
    return {(u64)held, 0, held < 0 ? IS_NEGATIVE : 0};
#else
    Bits bits = bits_of(held), digits = bits % HIDDEN;
    int exponent = (int)(bits >> FRACTION) & EXPONENTS;
    if (exponent) digits |= HIDDEN;
    else exponent = 1;
    u32 faults = 0;
    if (bits >= INFINITE && bits != MINUS) {
        faults = bits > MINUS && bits <= MINUS + INFINITE ? IS_NEGATIVE : IS_NOT_FINITE;
    }
    return {digits, exponent - EXPONENTS / 2 - FRACTION, faults};
#endif
}

// The digits of a weight in units of 2^unit, of which it is a multiple, from digit `limb` of 32 bits on.
__device__ __forceinline__ u64 digits_from(Weighed weight, int unit, int limb) {
    int shift = weight.place - unit - 32 * limb;
    return shift < 0 ? weight.digits >> min(-shift, 63) : weight.digits << min(shift, 63);
}
