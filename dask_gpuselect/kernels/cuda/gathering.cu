// Load 2 and the exact sums in one read: see ``spans.cuh`` and ``sums.cuh``.

#include "spans.cuh"
#include "sums.cuh"

// Least number of blocks on a multiprocessor: as many as have registers for all counts and sums.
constexpr int BLOCKS = BITS < 64 && SPANS <= 5 && (PIECES <= 2 || PLACED) ? 3 : 2;

// Nothing unless the form is that of this kernel: twice the number of pieces, and one more if steps are
// even in bits.
extern "C" __global__ void __launch_bounds__(TALLY_THREADS, BLOCKS) gather_and_sum(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, const Value* spans,
    const int* segments_of, const Value* ends, const unsigned char* wanted, const int* form,
    int n_spans, int n_ends, u64* totals, Value* candidates, u64 most, const int* top, u64* sums,
    u64* counts
) {
    if (*form != 2 * PIECES + KEYED) return;
    __shared__ u64 digits[TALLY_THREADS / 32][N_DIGITS];
    clear<TALLY_THREADS>(digits);
    Both<Counting, Sums> mine;
    mine.first.start(spans, segments_of, ends, wanted, n_ends, totals, candidates, most);
    mine.second.start(*top, digits[threadIdx.x / 32]);
    visit_all<TALLY_THREADS, PER_THREAD>(chunk, n, layout, keeps, mine);
    mine.first.finish(n_spans, totals);
    mine.second.finish(counts);
    write<TALLY_THREADS>(digits, sums);
}
