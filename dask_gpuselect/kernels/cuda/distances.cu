// The pairs of queries and rows that may be near, and their distances; see `reference.distances` for
// the bound that is used here.
//
// No tile of distances is ever in device memory. A block takes 64 rows and 128 queries, and each of its
// threads 4 by 8 of these. For 1e6 rows and 1,000 queries, the products take most of the time; their
// tile would take 8 GB.

constexpr int SIDE = 16;  // threads along each side of a block's tile
constexpr int ROWS_EACH = 4;
constexpr int QUERIES_EACH = 8;
constexpr int TILE_ROWS = SIDE * ROWS_EACH;
constexpr int TILE_QUERIES = SIDE * QUERIES_EACH;
constexpr int FEATURES = 8;  // features in shared memory at a time
constexpr double MOST_SQUARE = 1.0715086071862673e+301;  // 2^1000, `HUGE` of the reference

// Features of some rows.
struct Rows {
    const Word* first;
    i64 n, row_step, feature_step;  // steps in elements
    int p;

    __device__ __forceinline__ double feature(i64 row, int f) const {
        return as_double(value_of(first[row * row_step + f * feature_step]));
    }
};

// Prepare the factors of the pairs: queries minus their mean, times -2, feature by feature, and the
// squares of their lengths.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) near_queries(
    const double* queries, int n_queries, int p, const double* centre, double* factors,
    double* squares
) {
    for (i64 i = own_thread(); i < n_queries; i += all_threads()) {
        double square = 0;
        for (int f = 0; f < p; ++f) {
            double moved = __dsub_rn(queries[i * p + f], centre[f]);
            factors[(i64)f * n_queries + i] = -2 * moved;
            square += moved * moved;
        }
        squares[i] = square;
    }
}

// Collect the rows that may be near to each query, in any order, up to `room`. If there are more for a
// query, the number of this tile is written to `failed`, and this and all later tiles stop. `factors`
// and `squares` are those of `near_queries`, and `share` is 1 - C.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) near_pairs(
    const Word* first, i64 n, i64 row_step, i64 feature_step, int p, const double* centre,
    const double* factors, const double* squares, const double* limits, int n_queries,
    double share, u32* near_rows, u32 room, u32* n_near, volatile u32* failed, u32 tile
) {
    __shared__ bool has_failed;
    if (threadIdx.x == 0) has_failed = *failed;
    __syncthreads();
    if (has_failed) return;
    __shared__ double x[FEATURES][TILE_ROWS], q[FEATURES][TILE_QUERIES];
    __shared__ double lengths[TILE_ROWS];  // squared lengths of the moved rows
    Rows rows = {first, n, row_step, feature_step, p};
    int query_tiles = (n_queries + TILE_QUERIES - 1) / TILE_QUERIES;
    i64 first_row = (i64)(blockIdx.x / query_tiles) * TILE_ROWS;
    int first_query = blockIdx.x % query_tiles * TILE_QUERIES;
    int of_row = threadIdx.x % SIDE, of_query = threadIdx.x / SIDE;
    double products[ROWS_EACH][QUERIES_EACH] = {}, length = 0;

    for (int start = 0; start < p; start += FEATURES) {
        for (int i = threadIdx.x; i < FEATURES * TILE_ROWS; i += USUAL_THREADS) {
            int f = i / TILE_ROWS;
            i64 row = first_row + i % TILE_ROWS;
            bool is_there = start + f < p && row < n;
            x[f][i % TILE_ROWS] =
                is_there ? __dsub_rn(rows.feature(row, start + f), centre[start + f]) : 0.0;
        }
        for (int i = threadIdx.x; i < FEATURES * TILE_QUERIES; i += USUAL_THREADS) {
            int f = i / TILE_QUERIES, query = first_query + i % TILE_QUERIES;
            bool is_there = start + f < p && query < n_queries;
            q[f][i % TILE_QUERIES] = is_there ? factors[(i64)(start + f) * n_queries + query] : 0.0;
        }
        __syncthreads();
#pragma unroll
        for (int f = 0; f < FEATURES; ++f) {
            double mine[ROWS_EACH];
#pragma unroll
            for (int r = 0; r < ROWS_EACH; ++r) mine[r] = x[f][of_row + r * SIDE];
#pragma unroll
            for (int c = 0; c < QUERIES_EACH; ++c) {
                double factor = q[f][of_query + c * SIDE];
#pragma unroll
                for (int r = 0; r < ROWS_EACH; ++r) products[r][c] += factor * mine[r];
            }
        }
        if (threadIdx.x < TILE_ROWS) {
#pragma unroll
            for (int f = 0; f < FEATURES; ++f) length += x[f][threadIdx.x] * x[f][threadIdx.x];
        }
        __syncthreads();
    }
    if (threadIdx.x < TILE_ROWS) lengths[threadIdx.x] = length;
    __syncthreads();

    u32 near = 0;  // a bit for each pair
#pragma unroll
    for (int c = 0; c < QUERIES_EACH; ++c) {
        int query = first_query + of_query + c * SIDE;
        if (query >= n_queries) continue;
        double limit = limits[query], square = squares[query];
#pragma unroll
        for (int r = 0; r < ROWS_EACH; ++r) {
            double of_this = lengths[of_row + r * SIDE];
            bool is_further = products[r][c] + share * of_this > limit;
            bool may_overflow = !(of_this + square < MOST_SQUARE);
            bool is_there = first_row + of_row + r * SIDE < n;
            if (is_there && (may_overflow || !is_further)) near |= 1u << (c * ROWS_EACH + r);
        }
    }
#pragma unroll
    for (int c = 0; c < QUERIES_EACH; ++c) {
        u32 bits = near >> (c * ROWS_EACH) & ((1u << ROWS_EACH) - 1), n_here = __popc(bits);
        if (n_here == 0) continue;
        int query = first_query + of_query + c * SIDE;
        u32 at = atomicAdd(&n_near[query], n_here);
        if (at + n_here > room) *failed = tile;
        for (; bits; bits &= bits - 1, ++at) {
            u32 row = (u32)first_row + of_row + (__ffs(bits) - 1) * SIDE;
            if (at < room) near_rows[(i64)query * room + at] = row;
        }
    }
}

// The sum of squared differences, feature after feature; every operation is rounded by itself, as in
// the reference. Operands are scaled by `whole` before they are subtracted, and the difference by
// `scale`.
__device__ __forceinline__ double squared_distance(
    const Rows& rows, i64 row, const double* query, double whole, double scale
) {
    double total = 0;
    for (int f = 0; f < rows.p; ++f) {
        double x = __dmul_rn(rows.feature(row, f), whole), q = __dmul_rn(query[f], whole);
        double d = __dmul_rn(__dsub_rn(x, q), scale);
        total = __dadd_rn(total, __dmul_rn(d, d));
    }
    return total;
}

// The order of pairs: by level, square and row. No two are equal.
struct Entry {
    u64 square, tag;  // the bits of the square, which ascend with it; level and row

    static constexpr int ROW_BITS = 60;

    __device__ __forceinline__ static Entry of(signed char level, double squared, i64 row) {
        return {(u64)__double_as_longlong(squared), (u64)(level + 1) << ROW_BITS | (u64)row};
    }
    __device__ __forceinline__ signed char level() const { return (signed char)(tag >> ROW_BITS) - 1; }
    __device__ __forceinline__ i64 row() const { return (i64)(tag & ((1ull << ROW_BITS) - 1)); }
    __device__ __forceinline__ bool is_before(const Entry& other) const {
        u64 mine = tag >> ROW_BITS, its = other.tag >> ROW_BITS;
        if (mine != its) return mine < its;
        return square != other.square ? square < other.square : tag < other.tag;
    }
};

// Numbers by which differences are scaled where their squares would be lost; see `Nearest`.
struct Scales {
    double tiny, up, down;
    signed char small, large;
};

// The level and the square of a row.
__device__ __forceinline__ Entry entry_of(
    const Rows& rows, i64 row, const double* query, const Scales& by, i64 number
) {
    double square = squared_distance(rows, row, query, 1, 1);
    signed char level = 0;
    if (square < by.tiny) {
        level = by.small;
        square = squared_distance(rows, row, query, 1, by.up);
    } else if (isinf(square)) {
        level = by.large;
        square = squared_distance(rows, row, query, by.down, 1);
    }
    return Entry::of(level, square, number);
}

// Choose the `k` nearest among the `n_known` so far and the near rows of a query, or all of `n_rows` if
// there is no list of near ones; one block for each query. They replace those so far. Rows are sorted in
// batches that fit in shared memory. `start` is the number of the first row. The last of the `k` gives
// the limit for the next tile: see `limits` of the reference.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) near_chosen(
    const Word* first, i64 row_step, i64 feature_step, int p, const double* queries, u32 n_rows,
    const u32* near_rows, u32 room, u32* n_near, const u32* failed, double tiny, double up, double down,
    signed char small, signed char large, i64 start, int n_known, int k, signed char* levels,
    double* squared, i64* rows, const double* squares, double share, double wider, double* limits
) {
    __shared__ Entry entries[NEAR_ROOM];
    if (*failed) return;
    Rows all = {first, 0, row_step, feature_step, p};
    Scales by = {tiny, up, down, small, large};
    i64 query = blockIdx.x, begin = query * room;
    u32 next = 0, stop = near_rows ? n_near[query] : n_rows;
    for (int i = threadIdx.x; i < n_known; i += USUAL_THREADS) {
        i64 at = query * k + i;
        entries[i] = Entry::of(levels[at], squared[at], rows[at]);
    }
    int n = n_known;
    do {
        int n_new = (int)min((u32)(NEAR_ROOM - n), stop - next);
        for (int i = threadIdx.x; i < n_new; i += USUAL_THREADS) {
            i64 row = near_rows ? near_rows[begin + next + i] : next + i;
            entries[n + i] = entry_of(all, row, queries + query * p, by, start + row);
        }
        __syncthreads();
        sort_shared(entries, n + n_new, [](const Entry& a, const Entry& b) { return a.is_before(b); });
        n = min(n + n_new, k);
        next += n_new;
    } while (next < stop);
    for (int i = threadIdx.x; i < n; i += USUAL_THREADS) {
        i64 at = query * k + i;
        levels[at] = entries[i].level();
        squared[at] = __longlong_as_double((i64)entries[i].square);
        rows[at] = entries[i].row();
    }
    if (threadIdx.x) return;
    n_near[query] = 0;  // for the next tile
    double last = __longlong_as_double((i64)entries[k - 1].square);
    signed char level = entries[k - 1].level();
    double infinity = __longlong_as_double(0x7ff0000000000000ll);
    if (level < 0) last = last > 0 ? tiny : -infinity;  // nothing is nearer than an equal row
    if (level > 0) last = infinity;
    limits[query] = __dsub_rn(__dmul_rn(last, wider), __dmul_rn(share, squares[query]));
}

// The distances of some pairs, correctly rounded.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) near_distances(
    const signed char* levels, const double* squared, i64 n, double up, double down, double* out
) {
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        double root = sqrt(squared[i]);
        out[i] = levels[i] < 0 ? __dmul_rn(root, 1 / up) : levels[i] > 0 ? __dmul_rn(root, 1 / down)
                                                                         : root;
    }
}
