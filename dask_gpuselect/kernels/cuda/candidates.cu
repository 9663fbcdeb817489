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
// is not among the candidates, its place is arbitrary. `cells(visit)` calls `visit` for each cell, with
// the number of elements before it and in it.
template <class Cells>
__device__ __forceinline__ void locate_among(
    const u64* n_found, u64 most, const i64* wanted, int n_ranks, Selection* selection, Cells cells
) {
    int r = threadIdx.x;
    if (r == 0) selection->n = (i64)min(*n_found, most);
    if (r >= n_ranks) return;
    u64 rank = (u64)wanted[r], place = 0, gathered = 0;
    cells([&](u64 before, u64 inside) {
        if (rank >= before && rank - before < inside) place = gathered + rank - before;
        gathered += inside;
    });
    selection->places[r] = (i64)place;
    selection->ranks[r] = place;
}

extern "C" __global__ void __launch_bounds__(32) locate(
    const u64* below, const u64* n_found, const u64* held, const int* segments_of, int n_spans,
    u64 most, const i64* wanted, int n_ranks, Selection* selection
) {
    locate_among(n_found, most, wanted, n_ranks, selection, [&](auto visit) {
        for (int s = 0; s < n_spans; ++s) {
            int first = segments_of[2 * s];
            visit(below[s] + (first % 2 ? held[first] : 0), held[first + first % 2]);
        }
    });
}

// The same for a tally of all segments, of which some cells are wanted.
extern "C" __global__ void __launch_bounds__(32) locate_placed(
    const u64* held, const unsigned char* wanted, int n_ends, const u64* n_found, u64 most,
    const i64* ranks, int n_ranks, Selection* selection
) {
    locate_among(n_found, most, ranks, n_ranks, selection, [&](auto visit) {
        u64 before = 0;
        for (int cell = 0; cell <= n_ends; ++cell) {
            if (wanted[cell]) visit(before, held[2 * cell]);
            before += held[2 * cell] + (cell < n_ends ? held[2 * cell + 1] : 0);
        }
    });
}

// --- Between two keys ---------------------------------------------------------------------------

constexpr int SURVEY_EACH = VECTOR < 4 ? 4 : VECTOR;  // elements of a thread in flight

struct Surveys {
    // For intervals of keys [low, high]: the number of elements, and the least and the largest of their
    // keys; at first 0, the largest number, and 0.
    u64 low[MOST_SURVEYS], high[MOST_SURVEYS], number[MOST_SURVEYS], least[MOST_SURVEYS];
    u64 most[MOST_SURVEYS];
    // For other intervals: room for elements, the place of the first, and their number.
    u64 kept_low[2], kept_high[2], room[2], start[2], n_kept[2];
};

// Survey the elements in some intervals, and collect those in others, in any order.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) survey(
    const Word* elements, i64 n, Surveys* surveys, Value* kept
) {
    Key low[MOST_SURVEYS], high[MOST_SURVEYS], least[MOST_SURVEYS], most[MOST_SURVEYS];
    u32 number[MOST_SURVEYS];
#pragma unroll
    for (int i = 0; i < MOST_SURVEYS; ++i) {
        low[i] = (Key)surveys->low[i], high[i] = (Key)surveys->high[i];
        number[i] = 0, least[i] = (Key)~Key(0), most[i] = 0;
    }
    Key kept_low[2], kept_high[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        kept_low[i] = (Key)surveys->kept_low[i], kept_high[i] = (Key)surveys->kept_high[i];
    }
    take_all<SELECT_THREADS, SURVEY_EACH>(elements, n, nullptr, nullptr, [&](Word word, bool is_present) {
        Key key = key_of(word);
#pragma unroll
        for (int i = 0; i < MOST_SURVEYS; ++i) {
            if (!is_present || key < low[i] || key > high[i]) continue;
            ++number[i];
            least[i] = min(least[i], key);
            most[i] = max(most[i], key);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            bool is_in = is_present && key >= kept_low[i] && key <= kept_high[i];
            u64 at = reserved_each(&surveys->n_kept[i], is_in);
            if (is_in && at < surveys->room[i]) kept[surveys->start[i] + at] = value_of(word);
        }
    });
#pragma unroll
    for (int i = 0; i < MOST_SURVEYS; ++i) {
        u32 of_warp = total_over_warp(number[i]);
        Key its_least = least_over_warp(least[i]), its_most = largest_over_warp(most[i]);
        if (threadIdx.x % 32 || of_warp == 0) continue;
        atomicAdd(&surveys->number[i], (u64)of_warp);
        atomicMin(&surveys->least[i], (u64)its_least);
        atomicMax(&surveys->most[i], (u64)its_most);
    }
}
