// Numbers as sums of two floats, with about 106 bits.

#include "lane_sums.cuh"

// A bound of the relative error of some operations with pairs. Of a sum of n numbers, it is n * n times this.
constexpr double PAIR_ERROR = 0x1p-100;

// A sum of floats as two: the second has the rounding errors of the first.
struct Pair {
    double high, low;

    __device__ __forceinline__ Pair(double high = 0, double low = 0) : high(high), low(low) {}
    __device__ __forceinline__ void add(double x) {
        double error;
        high = two_sum(high, x, error), low = __dadd_rn(low, error);
    }
    __device__ __forceinline__ void add(const Pair& other) { add(other.high), low = __dadd_rn(low, other.low); }
    __device__ __forceinline__ void add_product(double a, double b) {
        double error, product = product_of(a, b, error);
        add(Pair(product, error));
    }
    __device__ __forceinline__ Pair tidy() const {
        Pair sum;
        sum.high = two_sum(high, low, sum.low);
        return sum;
    }
};

// The high part is nearly all of the sum, unless numbers cancel: what is lost then is small beside these.
__device__ __forceinline__ Pair sum_of(const Pair& a, const Pair& b) {
    Pair sum = a;
    sum.add(b);
    double high = __dadd_rn(sum.high, sum.low);
    return Pair(high, __dadd_rn(sum.low, -__dadd_rn(high, -sum.high)));
}

__device__ __forceinline__ Pair product_of(const Pair& a, const Pair& b) {
    Pair product;
    product.high = product_of(a.high, b.high, product.low);
    product.low = __fma_rn(a.high, b.low, __fma_rn(a.low, b.high, product.low));
    return product;
}

__device__ __forceinline__ Pair negative(const Pair& a) { return Pair(-a.high, -a.low); }

__device__ __forceinline__ Pair quotient_of(const Pair& a, const Pair& b) {
    Pair first(__ddiv_rn(a.high, b.high));
    Pair rest = sum_of(a, negative(product_of(first, b)));
    Pair second(__ddiv_rn(rest.high, b.high));
    rest = sum_of(rest, negative(product_of(second, b)));
    return sum_of(first, sum_of(second, Pair(__ddiv_rn(rest.high, b.high))));
}

__device__ __forceinline__ void add_parts(Pair& sum, const Pair& other) { sum.add(other); }

// Round a pair whose error is below a bound.
__device__ __forceinline__ double rounded_once(const Pair& pair, double error, bool& sure) {
    double low = __dadd_rn(pair.high, __dadd_rn(pair.low, -error));
    double high = __dadd_rn(pair.high, __dadd_rn(pair.low, error));
    sure = sure && low == high && fabs(low) > 0x1p-1021 && fabs(low) < 0x1p1023;
    return low;
}
