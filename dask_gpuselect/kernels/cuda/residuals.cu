// Sums over the rows of a chunk for one linear fit, in one read; see `concentration.ResidualSums`.
//
// Defined before this text: PARAMETERS, the number of parameters, and INTERCEPT, 1 if the first is an
// intercept. A thread takes one row at a time, and has its sums of products in registers.

constexpr int COLUMNS = PARAMETERS - INTERCEPT;
constexpr int PRODUCTS = PARAMETERS * (PARAMETERS + 1) / 2;
constexpr int SUMS = PRODUCTS + PARAMETERS + 1;  // products, moments, and the sum of squares
constexpr int ROW = 1 + PARAMETERS;  // residual and design of a gathered row

// The numbers of a fit, as the host packs them.
struct Numbers {
    const double* at;
    __device__ double centre(int k) const { return at[k]; }
    __device__ double scale(int k) const { return at[COLUMNS + k]; }
    __device__ double y_centre() const { return at[2 * COLUMNS]; }
    __device__ double y_scale() const { return at[2 * COLUMNS + 1]; }
    __device__ double theta(int k) const { return at[2 * COLUMNS + 2 + k]; }
    __device__ double end(int i) const { return at[2 * COLUMNS + 2 + PARAMETERS + i]; }
};

// Compute the design of a row and its residual; every operation is rounded by itself, as in the
// reference.
__device__ __forceinline__ double residual_of(
    const Word* row, double y, const Numbers& fit, double (&z)[PARAMETERS]) {
    z[0] = 1;
#pragma unroll
    for (int k = 0; k < COLUMNS; ++k) {
        double x = as_double(value_of(row[k]));
        z[INTERCEPT + k] = __dmul_rn(__dsub_rn(x, fit.centre(k)), fit.scale(k));
    }
    double residual = __dmul_rn(__dsub_rn(y, fit.y_centre()), fit.y_scale());
#pragma unroll
    for (int k = 0; k < PARAMETERS; ++k)
        residual = __dsub_rn(residual, __dmul_rn(z[k], fit.theta(k)));
    return residual;
}

// Call a function with the place and the factors of each term of the sums of a row.
template <class Take>
__device__ __forceinline__ void each_term(
    const double (&z)[PARAMETERS], double residual, Take take) {
    int at = 0;
#pragma unroll
    for (int k = 0; k < PARAMETERS; ++k)
#pragma unroll
        for (int m = 0; m <= k; ++m) take(at++, z[k], z[m]);
#pragma unroll
    for (int k = 0; k < PARAMETERS; ++k) take(at++, z[k], residual);
    take(at, residual, residual);
}

// Counts are of the rows below all ends, at each end, and between them. Sums at each end are added to;
// sums below all ends are written for each block.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS)
rows_tally(const Word* x, const double* y, i64 n, const double* numbers, int n_ends, int with_sums,
           i64 most, u64* counts, double* at_ends, double* of_blocks, i64* places, double* rows) {
    Numbers fit = {numbers};
    double first = fit.end(0), last = fit.end(n_ends - 1);
    double sums[SUMS] = {};
    u64 n_below = 0;
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        double z[PARAMETERS];
        double residual = residual_of(x + i * COLUMNS, y[i], fit, z);
        double size = fabs(residual);
        if (size < first) {
            ++n_below;
            if (with_sums)
                each_term(z, residual, [&](int at, double a, double b) { sums[at] += a * b; });
        } else if (size <= last) {
            int end = 0;
            while (end < n_ends && fit.end(end) != size) ++end;
            if (end < n_ends) {
                atomicAdd(counts + 1 + end, 1ull);
                double* own = at_ends + end * SUMS;
                if (with_sums)
                    each_term(z, residual,
                              [&](int at, double a, double b) { atomicAdd(own + at, a * b); });
            } else {
                i64 place = (i64)atomicAdd(counts + 1 + n_ends, 1ull);
                if (place < most) {
                    places[place] = i;
                    rows[place * ROW] = residual;
                    for (int k = 0; k < PARAMETERS; ++k) rows[place * ROW + 1 + k] = z[k];
                }
            }
        }
    }
    double* own = of_blocks + (i64)blockIdx.x * (1 + SUMS);
    double all_below = sum_of_block<USUAL_THREADS>((double)n_below);  // exact: fewer than 2^53
    if (threadIdx.x == 0) own[0] = all_below;
    for (int at = 0; with_sums && at < SUMS; ++at) {
        double value = 0;
#pragma unroll
        for (int k = 0; k < SUMS; ++k)  // registers cannot be indexed
            if (k == at) value = sums[k];
        value = sum_of_block<USUAL_THREADS>(value);
        if (threadIdx.x == 0) own[1 + at] = value;
    }
}
