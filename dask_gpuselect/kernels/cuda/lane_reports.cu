// Merging of the partial results of parts of lanes. They have a row for each lane and question.

#include "lane_reports.cuh"

// The cuts of a part: for each row, order statistics at m even ranks among n_inside elements. Each is
// known to lie between `low` and `high`.
struct Cuts {
    const Word *low, *high;
    const i64* n_inside;
    i64 m;
};

// The candidates of a part. Those of a row end before its entry of `stops`; without `stops`, each row
// has `room` places, of which the first are used.
struct Gathered {
    const Word* candidates;
    const i64 *n_inside, *stops;
    i64 room;
};

// Tables to add up: the number of entries, and where the sums go. The tables of all parts follow.
struct Summed {
    i64 n;
    i64* sums;
};

constexpr int HELD = 64;  // parts for which a thread remembers the place of its pivot
constexpr int TOGETHER = 8;  // threads that copy one row together

// The j-th of m even ranks among `size`.
__device__ __forceinline__ i64 even_rank(i64 j, i64 m, i64 size) {
    u64 product = (u64)j * (u64)(size - 1), steps = (u64)max(m - 1, (i64)1);
    return (product | steps) >> 32 ? product / steps : (u32)product / (u32)steps;
}

// The ends of brackets, found bit by bit. The largest key that at most `wanted` elements can be below
// is a pivot. So is the smallest key that more than `wanted` elements are proven to be up to: the
// search finds the largest key for which at most `wanted` are proven to be up to the pivots before it.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) reports_bracket(
    const Cuts* parts, int n_parts, const i64* lower, const i64* upper, i64 n_rows, i64 k, Word* low,
    Word* high
) {
    i64 n = n_rows * k;
    for (i64 i = own_thread(); i < 2 * n; i += all_threads()) {
        bool is_upper = i >= n;
        i64 entry = is_upper ? i - n : i, row = entry / k;
        i64 wanted = is_upper ? upper[entry] : lower[entry];
        int from[HELD], to[HELD], at[HELD];
        for (int p = 0; p < min(n_parts, HELD); ++p) from[p] = 0, to[p] = (int)parts[p].m;
        Key key = 0;
        for (int bit = BITS - 1; bit >= 0; --bit) {
            Key tried = key | Key(1) << bit;
            i64 number = 0;
            for (int p = 0; p < n_parts; ++p) {
                i64 m = parts[p].m, size = parts[p].n_inside[row];
                const Word* pivots = (is_upper ? parts[p].high : parts[p].low) + row * m;
                int first = p < HELD ? from[p] : 0, last = p < HELD ? to[p] : (int)m;
                if (size) {
                    first = first_not(first, last, [&](int i) { return key_of(__ldg(pivots + i)) < tried; });
                }
                if (p < HELD) at[p] = first;
                if (is_upper) {
                    number += first && size ? even_rank(first - 1, m, size) + 1 : 0;
                } else {
                    number += first < m && size ? even_rank(first, m, size) : size;
                }
            }
            bool is_taken = number <= wanted;
            if (is_taken) key = tried;
            for (int p = 0; p < min(n_parts, HELD); ++p) (is_taken ? from : to)[p] = at[p];
        }
        (is_upper ? high : low)[entry] = word_of(key);
    }
}

// Add up tables of all parts. If `facts` is not null, the first two are n_valid and n_missing.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) reports_sum(
    const u64* summed, int n_tables, int n_parts, Facts* facts
) {
    for (int table = 0; table < n_tables; ++table, summed += 2 + n_parts) {
        const Summed& to = *(const Summed*)summed;
        const i64* const* parts = (const i64* const*)(summed + 2);
        for (i64 i = own_thread(); i < to.n; i += all_threads()) {
            i64 sum = 0;
            for (int p = 0; p < n_parts; ++p) sum += parts[p][i];
            to.sums[i] = sum;
            if (facts && table == 0) {
                if ((u64)sum < facts->least) atomicMin(&facts->least, (u64)sum);
                if ((u64)sum > facts->most) atomicMax(&facts->most, (u64)sum);
            }
            if (facts && table == 1 && sum) facts->any_missing = 1;
        }
    }
}

// Copy the candidates of all parts, row by row. `starts` has the place of each row's first; without it,
// each row has `room` places.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) reports_merge(
    const Gathered* parts, int n_parts, const i64* starts, i64 room, i64 n_rows, Word* out
) {
    for (i64 row = own_thread() / TOGETHER; row < n_rows; row += all_threads() / TOGETHER) {
        Word* its_out = out + (starts ? starts[row] : row * room);
        i64 left = room;
        for (int p = 0; p < n_parts; ++p) {
            const Gathered& part = parts[p];
            i64 n = part.n_inside[row];
            const Word* its = part.candidates + (part.stops ? part.stops[row] - n : row * part.room);
            if (!part.stops) n = min(n, part.room);
            if (!starts) n = min(n, left), left -= n;
            for (i64 i = threadIdx.x % TOGETHER; i < n; i += TOGETHER) its_out[i] = its[i];
            its_out += n;
        }
    }
}

// Find the elements of the lower and the upper rank of each row, one warp for each.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) reports_select(
    const __grid_constant__ Known known, i64 n_rows, i64 n_questions, Word* lower, Word* upper,
    Facts* facts
) {
    for (i64 row = own_thread() / 32; row < n_rows; row += all_threads() / 32) {
        Word words[2];
        select_words(known, row, words);
        if (threadIdx.x % 32) continue;
        lower[row] = words[0], upper[row] = words[1];
        i64 lane = row / n_questions, n_valid = known.n_valid[lane];
        check_row(known, row, lane, facts);
        if (known.n_missing[lane]) facts->any_missing = 1;
        if ((u64)n_valid < facts->least) atomicMin(&facts->least, (u64)n_valid);
        if ((u64)n_valid > facts->most) atomicMax(&facts->most, (u64)n_valid);
    }
}
