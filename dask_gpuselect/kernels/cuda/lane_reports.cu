// What reports of parts of lanes say together. They have a row for each lane and question.

// The cuts of a part: of each row, order statistics at m even ranks among n_inside elements, each
// between `low` and `high`.
struct Cuts {
    const Word *low, *high;
    const i64* n_inside;
    i64 m;
};

// The candidates of a part: those of a row end before `stops`.
struct Gathered {
    const Word* candidates;
    const i64 *n_inside, *stops;
};

// What is known of the elements of some ranks; an entry for each row, or, of n_valid and n_missing,
// for each lane.
struct Known {
    const i64 *below, *before, *inside, *upto, *n_valid, *n_missing, *stops;
    const Word* candidates;
    const i64 *lower, *upper, *known_valid, *known_missing;
    const Word *low, *high;
};

struct Told {
    u64 has_changed;  // some lane has other elements than were known
    u64 any_missing;
    u64 least, most;  // valid elements of a lane
};

constexpr int HELD = 64;  // parts for which a thread remembers where its pivot must be
constexpr int TOGETHER = 8;  // threads that copy a row

// The j-th of m even ranks among `size`.
__device__ __forceinline__ i64 even_rank(i64 j, i64 m, i64 size) {
    u64 product = (u64)j * (u64)(size - 1), steps = (u64)max(m - 1, (i64)1);
    return (product | steps) >> 32 ? product / steps : (u32)product / (u32)steps;
}

// The ends of brackets, bit by bit: the largest key that at most `wanted` elements can be below is a
// pivot. So is the smallest key that more than `wanted` must be up to: the largest that at most
// `wanted` must be up to the pivots before it.
extern "C" __global__ void __launch_bounds__(REPORT_THREADS) reports_bracket(
    const Cuts* parts, int n_parts, const i64* lower, const i64* upper, i64 n_rows, i64 k, Word* low,
    Word* high
) {
    i64 n = n_rows * k, step = (i64)gridDim.x * REPORT_THREADS;
    for (i64 i = (i64)blockIdx.x * REPORT_THREADS + threadIdx.x; i < 2 * n; i += step) {
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
                while (first < last && size) {
                    int middle = (first + last) / 2;
                    if (key_of(__ldg(pivots + middle)) < tried) first = middle + 1; else last = middle;
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

// The candidates of all parts, row by row; `starts` says where those of a row begin.
extern "C" __global__ void __launch_bounds__(REPORT_THREADS) reports_merge(
    const Gathered* parts, int n_parts, const i64* starts, i64 n_rows, Word* found
) {
    i64 first = (i64)blockIdx.x * (REPORT_THREADS / TOGETHER) + threadIdx.x / TOGETHER;
    i64 step = (i64)gridDim.x * (REPORT_THREADS / TOGETHER);
    for (i64 row = first; row < n_rows; row += step) {
        Word* its_found = found + starts[row];
        for (int p = 0; p < n_parts; ++p) {
            i64 n = parts[p].n_inside[row];
            const Word* its = parts[p].candidates + (parts[p].stops[row] - n);
            for (i64 i = threadIdx.x % TOGETHER; i < n; i += TOGETHER) its_found[i] = its[i];
            its_found += n;
        }
    }
}

// The candidate of a rank, for a warp: the largest key that at most `place` others are below.
__device__ Key key_at(const Word* candidates, i64 n, i64 place) {
    int me = threadIdx.x % 32;
    // Those of few stay in registers.
    bool is_first = me < n, is_second = me + 32 < n;
    Key first = is_first ? key_of(candidates[me]) : 0;
    Key second = is_second ? key_of(candidates[me + 32]) : 0;
    Key key = 0;
    for (int bit = BITS - 1; bit >= 0; --bit) {
        Key tried = key | Key(1) << bit;
        u32 below = (is_first && first < tried) + (is_second && second < tried);
        for (i64 i = me + 64; i < n; i += 32) below += key_of(candidates[i]) < tried;
        if ((i64)warp_sum(below) <= place) key = tried;
    }
    return key;
}

// The elements of the lower and the upper rank of each row, a warp for each.
extern "C" __global__ void __launch_bounds__(REPORT_THREADS) reports_select(
    const __grid_constant__ Known known, i64 n_rows, i64 n_questions, Word* lower, Word* upper,
    Told* told
) {
    i64 first = (i64)blockIdx.x * (REPORT_THREADS / 32) + threadIdx.x / 32;
    i64 step = (i64)gridDim.x * (REPORT_THREADS / 32);
    for (i64 row = first; row < n_rows; row += step) {
        i64 n = known.inside[row], places[2];
        const Word* candidates = known.candidates + (known.stops[row] - n);
        places[0] = known.lower[row] - known.before[row];
        places[1] = known.upper[row] - known.before[row];
        Word words[2];
        for (int j = 0; j < 2; ++j) {
            if (j && places[1] == places[0]) {
                words[1] = words[0];
            } else if (places[j] < 0 || places[j] >= n) {
                words[j] = places[j] < 0 ? known.low[row] : known.high[row];
            } else {
                words[j] = word_of(key_at(candidates, n, places[j]));
            }
        }
        if (threadIdx.x % 32) continue;
        lower[row] = words[0], upper[row] = words[1];
        i64 lane = row / n_questions, n_valid = known.n_valid[lane];
        i64 n_missing = known.n_missing[lane];
        bool holds = known.below[row] <= known.lower[row] && known.upper[row] < known.upto[row];
        bool is_same = n_valid == known.known_valid[lane] && n_missing == known.known_missing[lane];
        if (!is_same || (n_valid && !holds)) told->has_changed = 1;
        if (n_missing) told->any_missing = 1;
        if ((u64)n_valid < told->least) atomicMin(&told->least, (u64)n_valid);
        if ((u64)n_valid > told->most) atomicMax(&told->most, (u64)n_valid);
    }
}
