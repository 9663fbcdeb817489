// Load 2; see ``spans.cuh``.

#include "spans.cuh"

// Nothing if it is in vain: the ends are of a sample that is not of the usual kind.
extern "C" __global__ void __launch_bounds__(TALLY_THREADS) tally(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, const Value* spans,
    const int* segments_of, const Value* ends, const unsigned char* wanted, const u64* is_in_vain,
    int n_spans, int n_ends, u64* totals, Value* candidates, u64 most
) {
    if (*is_in_vain) return;
    Counting mine;
    mine.start(spans, segments_of, ends, wanted, n_ends, totals, candidates, most);
    visit_all<TALLY_THREADS, PER_THREAD>(chunk, n, layout, keeps, mine);
    mine.finish(n_spans, totals);
}
