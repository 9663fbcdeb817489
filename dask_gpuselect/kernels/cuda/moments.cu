// Sums of differences from a centre and of their squares, in one read; see ``moments.cuh``.

constexpr int EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

#define MOMENTS(NAME, HOW)                                                                          \
    extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) NAME(                             \
        const Word* chunk, i64 n, const i64* layout, Value centre, double scale, double* sums,      \
        u64* counts                                                                                 \
    ) {                                                                                             \
        Moments<HOW> mine = {centre, scale};                                                        \
        visit_all<MOMENTS_THREADS, EACH>(chunk, n, layout, mine);                                   \
        write<MOMENTS_THREADS>(mine, sums, counts);                                                 \
    }

MOMENTS(moments_zero, ABOUT_ZERO)
MOMENTS(moments_centre, ABOUT_CENTRE)
MOMENTS(moments_scaled, SCALED)
