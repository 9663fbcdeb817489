// Means of lanes without their least and largest elements.

#include "lanes.cuh"
#include "lane_sums.cuh"

constexpr int TRIM_EACH = 8;  // elements of a lane in flight

// By one thread for each lane: average its elements between two cuts, which are the last to stay. If one of these
// is infinite, so is the mean, or NaN. See `TrimmedLanes`.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) trim_lanes(
    const __grid_constant__ Stack stack, const double* cuts, double proportion, Answer* means, i64* n_valid,
    unsigned char* sure
) {
    const Rows rows = {(int)stack.n};
    for (i64 lane = own_thread(); lane < stack.n_lanes; lane += all_threads()) {
        Reader read(stack, rows, lane);
        const double low = cuts[lane], high = cuts[stack.n_lanes + lane];
        Exact<SUM_LEVELS> sum;
        i64 n = 0;
#pragma unroll 1
        for (int first = 0; first < rows.n; first += TRIM_EACH) {
            Word words[TRIM_EACH];
            read.read_words<1, 0>(first, words);
            double numbers[TRIM_EACH];
#pragma unroll
            for (int k = 0; k < TRIM_EACH; ++k) {
                Value value = value_of(words[k]);
                bool is_some = first + k < rows.n && !is_missing(value);
                n += is_some;
                numbers[k] = is_some ? fmin(fmax(as_double(value), low), high) : 0.0;
            }
            sum.add(numbers);
        }
        const double n_cut = floor(__dmul_rn(proportion, (double)n)), by = (double)n - 2.0 * n_cut;
        sum.add_product(-n_cut, low);
        sum.add_product(-n_cut, high);
        const Leading whole = leading(sum);
        bool is_sure = true;
        double mean = quotient(whole, by, is_sure);
        double error, lost, less;
        const double product = product_of(mean, by, error);
        double left = two_sum(__dadd_rn(whole.high, -product), -error, lost);
        left = two_sum(left, whole.middle, less);
        // It has the sign of what rounding the mean has cut off.
        left = __dadd_rn(left, __dadd_rn(__dadd_rn(lost, less), whole.low));
        is_sure = is_sure && (whole.is_all || left != 0.0);
        // A mean that may be halfway between two answers moves to that side.
        u64 bits = (u64)__double_as_longlong(mean);
        bool may_be_halfway = ANSWER < 64 && left != 0.0 && mean != 0.0 && (bits & 0xfffffffull) == 0;
        if (may_be_halfway) mean = __longlong_as_double((i64)((left > 0.0) == (mean > 0.0) ? bits + 1 : bits - 1));
        bool is_end = !(is_finite(low) && is_finite(high));
        means[lane] = rounded(!is_end ? mean : low == high ? low : __dadd_rn(low, high), 0);
        n_valid[lane] = n;
        sure[lane] = is_sure || is_end;
    }
}
