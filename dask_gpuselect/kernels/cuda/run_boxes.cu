// Box plots of runs: elements that are sorted by group and then by value, as keys of ``groups.cu``.

#include "lane_columns.cuh"

// The box of a run, besides its sums, and where its fliers are.
struct RunBox {
    double q[5];
    u64 least, most, low, high;  // elements, as words
    i64 n_low, n_high, start, count;
};

// By one block for each run. `table` has a column for each run: where it starts and stops, the places of the
// lower and then of the upper elements of its answers, and the weights of the upper ones. A run that is empty
// has no box.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) boxes_of_runs(
    const u64* keys, const i64* table, int n_runs, int n_answers, int mixes, const __grid_constant__ Drawn drawn,
    RunBox* boxes, Word* fliers, Facts* facts
) {
    __shared__ double q[MOST_Q], fences[2];
    __shared__ i64 edges[2];
    __shared__ u64 place;
    const i64 *lower = table + 2 * n_runs, *upper = lower + n_answers * n_runs;
    const double* weights = (const double*)(upper + n_answers * n_runs);
    const int me = threadIdx.x;
    for (int run = blockIdx.x; run < n_runs; run += gridDim.x) {
        const i64 start = table[run], stop = table[n_runs + run];
        const bool none = start == stop;
        __syncthreads();
        if (me < MOST_Q) q[me] = none ? __longlong_as_double(0x7ff8000000000000ll) : 0.0;
        if (me < n_answers && !none) {
            int at = me * n_runs + run;
            Key first = (Key)keys[lower[at]], second = (Key)keys[upper[at]];
            q[me] = mixed(first, second, weights[at], mixes, &facts->flags);
        }
        __syncthreads();
        if (me < 2) {
            double low, high;
            fences_of(drawn, q, low, high);
            fences[me] = me ? high : low;
            edges[me] = first_not(start, stop, [&](i64 at) {
                double number = number_of((Key)keys[at]);
                return me ? !(number > high) : number < low;
            });
        }
        __syncthreads();
        i64 inner = edges[0], outer = edges[1], n_low = inner - start, n_high = stop - outer;
        i64 kept_low = min(n_low, (i64)drawn.most_fliers), n_kept = kept_low + min(n_high, (i64)drawn.most_fliers);
        if (me == 0) place = n_kept ? atomicAdd(&facts->n_fliers, (u64)n_kept) : 0;
        __syncthreads();
        for (i64 i = me; i < n_kept; i += USUAL_THREADS) {
            i64 at = i < kept_low ? start + i : stop - 1 - (i - kept_low);
            fliers[place + i] = word_of((Key)keys[at]);
        }
        if (me < MOST_Q) boxes[run].q[me] = q[me];
        if (me) continue;
        auto word = [&](bool is_one, i64 at) { return (u64)word_of(is_one ? (Key)keys[at] : LARGEST); };
        RunBox& box = boxes[run];
        box.least = word(!none, start), box.most = word(!none, stop - 1);
        // No element is inside a fence that is made from infinite quartiles.
        box.low = word(fences[0] == fences[0] && inner < stop, inner);
        box.high = word(fences[1] == fences[1] && outer > start, outer - 1);
        box.n_low = n_low, box.n_high = n_high, box.start = (i64)place, box.count = n_kept;
    }
}
