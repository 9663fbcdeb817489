// Load 2, and the exact sums in the same read; see ``spans.cuh`` and ``sums.cuh``.
//
// Defined before this text, besides the definitions for these: SUMMED, 1 if elements are summed.

#include "spans.cuh"
#include "sums.cuh"

// Least number of blocks on a multiprocessor: as many as have registers for all counts and sums.
// 0 for any number.
constexpr int BLOCKS = !SUMMED ? 0 : BITS < 64 && SPANS <= 5 && (PIECES <= 2 || PLACED) ? 3 : 2;

// Nothing if it is in vain: the ends are of a sample that is not of the usual kind. With sums, nothing unless
// the form is that of this kernel: twice the number of pieces, and one more if steps are even in bits.
extern "C" __global__ void __launch_bounds__(TALLY_THREADS, BLOCKS) tally(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, const Value* spans,
    const int* segments_of, const Value* ends, const unsigned char* wanted, const u64* is_in_vain,
    const int* form, int n_spans, int n_ends, u64* totals, Value* candidates, u64 most, const int* top, u64* sums
) {
    if (SUMMED ? *form != 2 * PIECES + KEYED : *is_in_vain != 0) return;
    Counting mine;
    mine.start(spans, segments_of, ends, wanted, n_ends, totals, candidates, most);
#if SUMMED
    sum_by_block<TALLY_THREADS>(*top, sums, [&](Sums& its) {
        Both<Counting, Sums> both = {mine, its};
        visit_all<TALLY_THREADS, PER_THREAD>(chunk, n, layout, keeps, both);
        mine.finish(n_spans, totals);
    });
#else
    visit_all<TALLY_THREADS, PER_THREAD>(chunk, n, layout, keeps, mine);
    mine.finish(n_spans, totals);
#endif
}
