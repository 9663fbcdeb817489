// The pairs of queries and rows that may be near, and their distances; see `reference.distances`,
// which has the bound that is used here.
//
// No tile of distances is ever in memory. A block takes 64 rows and 128 queries, and each of its
// threads 4 by 8 of these: of 1e6 rows and 1,000 queries the products are the time, and not the
// 8 GB that they would take.

constexpr int SIDE = 16;  // threads along each side of a block's tile
constexpr int ROWS_EACH = 4;
constexpr int QUERIES_EACH = 8;
constexpr int TILE_ROWS = SIDE * ROWS_EACH;
constexpr int TILE_QUERIES = SIDE * QUERIES_EACH;
constexpr int FEATURES = 8;  // in shared memory at a time
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

// Pairs as ``query << 32 | row``, in any order; those past `most` are counted and not kept. `factors`
// has -2 (q - centre) of every query, feature after feature, and `share` is 1 - C.
extern "C" __global__ void __launch_bounds__(NEAR_THREADS) near_pairs(
    const Word* first, i64 n, i64 row_step, i64 feature_step, int p, const double* centre,
    const double* factors, const double* squares, const double* limits, int n_queries,
    double share, u64* pairs, u64 most, u64* n_found
) {
    __shared__ double x[FEATURES][TILE_ROWS], q[FEATURES][TILE_QUERIES];
    __shared__ double lengths[TILE_ROWS];  // squared, of the moved rows
    Rows rows = {first, n, row_step, feature_step, p};
    int query_tiles = (n_queries + TILE_QUERIES - 1) / TILE_QUERIES;
    i64 first_row = (i64)(blockIdx.x / query_tiles) * TILE_ROWS;
    int first_query = blockIdx.x % query_tiles * TILE_QUERIES;
    int of_row = threadIdx.x % SIDE, of_query = threadIdx.x / SIDE;
    double products[ROWS_EACH][QUERIES_EACH] = {}, length = 0;

    for (int start = 0; start < p; start += FEATURES) {
        for (int i = threadIdx.x; i < FEATURES * TILE_ROWS; i += NEAR_THREADS) {
            int f = i / TILE_ROWS;
            i64 row = first_row + i % TILE_ROWS;
            bool is_there = start + f < p && row < n;
            x[f][i % TILE_ROWS] =
                is_there ? __dsub_rn(rows.feature(row, start + f), centre[start + f]) : 0.0;
        }
        for (int i = threadIdx.x; i < FEATURES * TILE_QUERIES; i += NEAR_THREADS) {
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
    // One reservation for a warp.
    u32 mine = __popc(near), before = mine, lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, before, step);
        if (lane >= step) before += other;
    }
    u32 total = __shfl_sync(ALL_LANES, before, 31);
    if (total == 0) return;
    u64 at = lane == 0 ? atomicAdd(n_found, (u64)total) : 0;
    at = __shfl_sync(ALL_LANES, at, 0) + before - mine;
    for (; near; near &= near - 1, ++at) {
        int bit = __ffs(near) - 1;
        u64 query = first_query + of_query + bit / ROWS_EACH * SIDE;
        u64 row = first_row + of_row + bit % ROWS_EACH * SIDE;
        if (at < most) pairs[at] = query << 32 | row;
    }
}

// The sum of squared differences, feature after feature, every operation rounded by itself as in the
// reference. Both are scaled by `whole` before they are subtracted, and by `scale` afterwards.
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

// By what pairs are compared: the level and the square of `Nearest`.
extern "C" __global__ void __launch_bounds__(NEAR_THREADS) near_keys(
    const Word* first, i64 row_step, i64 feature_step, int p, const double* queries,
    const u64* pairs, i64 n_pairs, double tiny, double up, double down, signed char small,
    signed char large, signed char* levels, double* squared
) {
    Rows rows = {first, 0, row_step, feature_step, p};
    for (i64 i = (i64)blockIdx.x * NEAR_THREADS + threadIdx.x; i < n_pairs;
         i += (i64)gridDim.x * NEAR_THREADS) {
        i64 row = (i64)(pairs[i] & 0xffffffffull);
        const double* query = queries + (i64)(pairs[i] >> 32) * p;
        double found = squared_distance(rows, row, query, 1, 1);
        signed char level = 0;
        if (found < tiny) {
            level = small;
            found = squared_distance(rows, row, query, 1, up);
        } else if (isinf(found)) {
            level = large;
            found = squared_distance(rows, row, query, down, 1);
        }
        levels[i] = level;
        squared[i] = found;
    }
}

// What pairs are ordered by: level, square and row, of which no two are the same.
struct Entry {
    u64 square, tag;  // the bits of a square, which ascend with it; level and row

    static constexpr int ROW_BITS = 60;

    __device__ __forceinline__ static Entry of(signed char level, double squared, i64 row) {
        return {(u64)__double_as_longlong(squared), (u64)(level + 1) << ROW_BITS | (u64)row};
    }
    __device__ __forceinline__ static Entry nothing() { return {~0ull, ~0ull}; }
    __device__ __forceinline__ signed char level() const { return (signed char)(tag >> ROW_BITS) - 1; }
    __device__ __forceinline__ i64 row() const { return (i64)(tag & ((1ull << ROW_BITS) - 1)); }
    __device__ __forceinline__ bool is_before(const Entry& other) const {
        u64 mine = tag >> ROW_BITS, its = other.tag >> ROW_BITS;
        if (mine != its) return mine < its;
        return square != other.square ? square < other.square : tag < other.tag;
    }
};

__device__ __forceinline__ i64 first_of_query(const u64* pairs, i64 n, u64 query) {
    i64 first = 0, last = n;
    while (first < last) {
        i64 middle = (first + last) / 2;
        if ((pairs[middle] >> 32) < query) first = middle + 1; else last = middle;
    }
    return first;
}

// The `k` nearest of `n_known` so far and of all pairs of a query, which is a block's: so many at a
// time as there is room for, in order. `start` is where the rows of the pairs begin.
extern "C" __global__ void __launch_bounds__(NEAR_THREADS) near_chosen(
    const u64* pairs, i64 n_pairs, const signed char* levels, const double* squared, i64 start,
    const signed char* known_levels, const double* known_squared, const i64* known_rows,
    int n_known, int k, signed char* out_levels, double* out_squared, i64* out_rows
) {
    __shared__ Entry entries[NEAR_ROOM];
    i64 query = blockIdx.x;
    i64 next = first_of_query(pairs, n_pairs, query);
    i64 stop = first_of_query(pairs, n_pairs, query + 1);
    for (int i = threadIdx.x; i < n_known; i += NEAR_THREADS) {
        i64 at = query * n_known + i;
        entries[i] = Entry::of(known_levels[at], known_squared[at], known_rows[at]);
    }
    int n = n_known;
    do {
        int n_new = (int)min((i64)(NEAR_ROOM - n), stop - next), size = 1;
        while (size < n + n_new) size *= 2;
        for (int i = threadIdx.x; i < size - n; i += NEAR_THREADS) {
            i64 at = next + i;
            entries[n + i] = i < n_new ? Entry::of(levels[at], squared[at],
                                                   start + (i64)(pairs[at] & 0xffffffffull))
                                       : Entry::nothing();
        }
        __syncthreads();
        for (int run = 2; run <= size; run *= 2) {
            for (int apart = run / 2; apart; apart /= 2) {
                for (int i = threadIdx.x; i < size / 2; i += NEAR_THREADS) {
                    int low = i / apart * 2 * apart + i % apart, high = low + apart;
                    bool descends = (low & run) != 0;
                    Entry a = entries[low], b = entries[high];
                    if (b.is_before(a) != descends) {
                        entries[low] = b;
                        entries[high] = a;
                    }
                }
                __syncthreads();
            }
        }
        n = min(n + n_new, k);
        next += n_new;
    } while (next < stop);
    for (int i = threadIdx.x; i < n; i += NEAR_THREADS) {
        i64 at = query * k + i;
        out_levels[at] = entries[i].level();
        out_squared[at] = __longlong_as_double((i64)entries[i].square);
        out_rows[at] = entries[i].row();
    }
}
