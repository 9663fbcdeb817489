// Exact sums of all elements of a chunk, in one read, and of the rows of a table; see ``sums.cuh``.

#include "sums.cuh"

extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, int top, u64* out, u64* counts
) {
    __shared__ u64 digits[MOMENTS_THREADS / 32][N_DIGITS];
    clear<MOMENTS_THREADS>(digits);
    Sums mine;
    mine.start(top, digits[threadIdx.x / 32]);
    visit_all<MOMENTS_THREADS, SUMS_EACH>(chunk, n, layout, keeps, mine);
    mine.finish(counts);
    write<MOMENTS_THREADS>(digits, out);
}

// Sum every run of contiguous elements; `upto` is the number of elements up to the end of each. Each
// block takes an equal share of all elements. A run has `each` numbers: its digits, then its counts.
extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments_of_runs(
    const Word* all_words, const i64* upto, int n_runs, int top, u64* out, int each
) {
    __shared__ u64 digits[MOMENTS_THREADS / 32][N_DIGITS];
    for_share(upto, n_runs, [&](int run, i64 first, i64 n) {
        const Word* words = all_words + (run ? upto[run - 1] : 0) + first;
        clear<MOMENTS_THREADS>(digits);
        Sums mine;
        mine.start(top, digits[threadIdx.x / 32]);
        visit_all<MOMENTS_THREADS, SUMS_EACH>(words, n, nullptr, nullptr, mine, 0, 1);
        mine.finish(out + (i64)(run + 1) * each - 3);
        write<MOMENTS_THREADS>(digits, out + (i64)run * each);
        __syncthreads();
    });
}

// --- Rows -----------------------------------------------------------------------------------------

// Add every element of a contiguous table to the digits of its row, from digits `first_total` and
// `first_square` on.
extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) sum_rows(
    const Word* rows, i64 n_rows, i64 n, u64* total, int first_total, int n_total, u64* square,
    int first_square, int n_square
) {
    for (i64 i = own_thread(); i < n_rows * n; i += all_threads()) {
        Word word = rows[i];
        Whole whole = whole_of(value_of(word));
        if (is_special(word) || whole.size == 0) continue;
        i64 row = i / n;
        add_at(total + row * n_total, whole.size, whole.is_negative, whole.begin - 32 * first_total);
        add_square(square + row * n_square, whole.size, 2 * whole.begin - 32 * first_square);
    }
}
