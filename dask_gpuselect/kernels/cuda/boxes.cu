// All that a box plot needs, in one read: counts at the ends of brackets and candidates, as in
// ``spans.cuh``, and the sums of ``moments.cuh``, which keep another unit busy.

#define BOX(NAME, SPANS)                                                                         \
    extern "C" __global__ void __launch_bounds__(TALLY_THREADS) NAME(                            \
        const Word* chunk, i64 n, const i64* layout, const Value* spans, const int* segments_of, \
        const Value* ends, const unsigned char* wanted, const u64* is_in_vain, int n_spans,      \
        int n_ends, u64* totals, Value* candidates, u64 most, double* sums, u64* counts          \
    ) {                                                                                          \
        Moments<ABOUT_ZERO> moments = {};                                                        \
        tally<SPANS, CELLS>(                                                                     \
            chunk, n, layout, spans, segments_of, ends, wanted, is_in_vain, n_spans, n_ends,     \
            totals, candidates, most, moments                                                    \
        );                                                                                       \
        write<TALLY_THREADS>(moments, sums, counts);                                             \
    }

BOX(box_1, 1)
BOX(box_3, 3)
BOX(box_5, 5)
BOX(box_8, 8)
