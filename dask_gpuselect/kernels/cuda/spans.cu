// Load 2; see ``spans.cuh``.

// Nothing if it is in vain: for the ends are of a sample with missing elements, and so misplaced.
template <int SPANS, int KINDS>
__device__ __forceinline__ void tally(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, const Value* spans,
    const int* segments_of, const Value* ends, const unsigned char* wanted, const u64* is_in_vain,
    int n_spans, int n_ends, u64* totals, Value* candidates, u64 most
) {
    if (*is_in_vain) return;
    Tally<SPANS, KINDS> mine;
    mine.start(spans, segments_of, ends, wanted, n_ends, totals, candidates, most);
    visit_all<TALLY_THREADS, PER_THREAD>(chunk, n, layout, keeps, mine);
    mine.finish(n_spans, totals);
}

#define TALLY(NAME, SPANS, KINDS)                                                                \
    extern "C" __global__ void __launch_bounds__(TALLY_THREADS) NAME##_##SPANS(                  \
        const Word* chunk, i64 n, const i64* layout, const Keep* keeps, const Value* spans,      \
        const int* segments_of, const Value* ends, const unsigned char* wanted,                  \
        const u64* is_in_vain, int n_spans, int n_ends, u64* totals, Value* candidates, u64 most \
    ) {                                                                                          \
        tally<SPANS, KINDS>(                                                                     \
            chunk, n, layout, keeps, spans, segments_of, ends, wanted, is_in_vain, n_spans,      \
            n_ends, totals, candidates, most                                                     \
        );                                                                                       \
    }

TALLY(tally_ends, 1, ENDS)
TALLY(tally_ends, 3, ENDS)
TALLY(tally_ends, 5, ENDS)
TALLY(tally_ends, 8, ENDS)
TALLY(tally_cells, 1, CELLS)
TALLY(tally_cells, 3, CELLS)
TALLY(tally_cells, 5, CELLS)
TALLY(tally_cells, 8, CELLS)
TALLY(tally_any, 1, ANY)
TALLY(tally_any, 3, ANY)
TALLY(tally_any, 5, ANY)
TALLY(tally_any, 8, ANY)
