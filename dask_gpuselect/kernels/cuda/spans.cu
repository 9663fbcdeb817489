// Load 2: counts at the ends of brackets, and the candidates between them; see ``spans.cuh``.

#define TALLY(NAME, SPANS, KINDS)                                                                \
    extern "C" __global__ void __launch_bounds__(TALLY_THREADS) NAME##_##SPANS(                  \
        const Word* chunk, i64 n, const i64* layout, const Value* spans, const int* segments_of, \
        const Value* ends, const unsigned char* wanted, const u64* is_in_vain, int n_spans,      \
        int n_ends, u64* totals, Value* candidates, u64 most                                     \
    ) {                                                                                          \
        NothingElse nothing;                                                                     \
        tally<SPANS, KINDS>(                                                                     \
            chunk, n, layout, spans, segments_of, ends, wanted, is_in_vain, n_spans, n_ends,     \
            totals, candidates, most, nothing                                                    \
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
