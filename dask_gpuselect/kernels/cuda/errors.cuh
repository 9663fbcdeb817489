// Sums and products of two numbers, each with its rounding error.

__device__ __forceinline__ double two_sum(double a, double b, double& error) {
    double sum = __dadd_rn(a, b), other = __dadd_rn(sum, -a);
    error = __dadd_rn(__dadd_rn(a, -__dadd_rn(sum, -other)), __dadd_rn(b, -other));
    return sum;
}

__device__ __forceinline__ double product_of(double a, double b, double& error) {
    double product = __dmul_rn(a, b);
    error = __fma_rn(a, b, -product);
    return product;
}
