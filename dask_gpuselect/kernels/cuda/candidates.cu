// Selection of the elements of some ranks among candidates, by the digits of their keys from the
// leading one on (radixSelect of Alabi et al. 2012, section 3.2, for several ranks together and in
// place).
//
// There is one launch for each digit. All blocks count the digit over the elements that have the
// leading digits of a wanted one; the block that finishes last looks up the digit of each rank.

#include "digits.cuh"

struct Selection {
    i64 n;                     // elements
    i64 places[MOST_SELECTED];  // wanted ranks among all elements
    u64 ranks[MOST_SELECTED];  // ranks among the elements with the prefix found so far; `places` at first
    u64 prefixes[MOST_SELECTED];  // the digits found so far
    u64 n_finished;  // number of blocks that have finished
    u64 n_missing;  // elements whose keys are beyond that of infinity
};

// `totals` has BINS counts for each rank; it is zero before and after.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) select_digit(
    const Word* elements, Selection* selection, u64* totals, int n_ranks, int shift, int bits
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* counts = (u32*)scratch;
    __shared__ Groups groups;
    count_digit<SELECT_EACH>(
        elements, selection->n, selection->prefixes, n_ranks, shift, bits, groups, counts, totals,
        &selection->n_missing
    );
    if (!is_last_block(&selection->n_finished)) return;
    if (threadIdx.x == 0) selection->n_finished = 0;
    int r = threadIdx.x / 32;
    if (r < n_ranks) {
        const u64* of_group = totals + groups.of_rank[r] * BINS;
        look_up(of_group, selection->ranks[r], selection->prefixes[r], bits);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < groups.number * BINS; i += SELECT_THREADS) totals[i] = 0;
}

// By one warp: find the places of some ranks of all elements among the candidates of a tally's cells, so
// that the selection can follow without the host, which checks it by the tally's counts. If an element
// is not among the candidates, its place is arbitrary. `measure(cell, before, inside)` sets the number of
// elements before a cell and in it, for one cell after the other.
template <class Measure>
__device__ __forceinline__ void locate_among(
    const u64* n_found, u64 most, const i64* wanted, int n_ranks, Selection* selection, int n_cells,
    Measure measure
) {
    int r = threadIdx.x;
    if (r == 0) selection->n = (i64)min(*n_found, most);
    if (r >= n_ranks) return;
    u64 rank = (u64)wanted[r], place = 0, gathered = 0;
    for (int cell = 0; cell < n_cells; ++cell) {
        u64 before, inside;
        measure(cell, before, inside);
        if (rank >= before && rank - before < inside) place = gathered + rank - before;
        gathered += inside;
    }
    selection->places[r] = (i64)place;
    selection->ranks[r] = place;
}

extern "C" __global__ void __launch_bounds__(32) locate(
    const u64* below, const u64* n_found, const u64* held, const int* segments_of, int n_spans,
    u64 most, const i64* wanted, int n_ranks, Selection* selection
) {
    locate_among(n_found, most, wanted, n_ranks, selection, n_spans, [&](int s, u64& before, u64& inside) {
        int first = segments_of[2 * s];
        before = below[s] + (first % 2 ? held[first] : 0);
        inside = held[first + first % 2];
    });
}

// The same for a tally of all segments, of which some cells are wanted.
extern "C" __global__ void __launch_bounds__(32) locate_placed(
    const u64* held, const unsigned char* wanted, int n_ends, const u64* n_found, u64 most,
    const i64* ranks, int n_ranks, Selection* selection
) {
    u64 upto = 0;  // of the cells so far
    auto measure = [&](int cell, u64& before, u64& inside) {
        before = upto;
        inside = wanted[cell] ? held[2 * cell] : 0;
        upto += held[2 * cell] + (cell < n_ends ? held[2 * cell + 1] : 0);
    };
    locate_among(n_found, most, ranks, n_ranks, selection, n_ends + 1, measure);
}
