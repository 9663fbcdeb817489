// Exact sums of all elements of a chunk, in one read, and of the rows of a table; see ``sums.cuh``.

#include "sums.cuh"
#include "codes.cuh"

extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, int top, u64* out
) {
    sum_by_block<MOMENTS_THREADS>(top, out, [&](Sums& sums) {
        visit_all<MOMENTS_THREADS, SUMS_EACH>(chunk, n, layout, keeps, sums);
    });
}

// Hand on the elements between two bounds, and count them.
struct Between {
    Sums& sums;
    Value low, high;
    u32 n;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Value value = value_of(words[e]);
            bool is_one = present[e] && is_less_than(low, value) && is_less_than(value, high);
            if (!is_one) present.leave_out(e);
            n += is_one;
        }
        sums(words, present);
    }

    __device__ __forceinline__ void pause() { sums.pause(); }
};

// Sum the elements between two bounds. Their number is behind all others.
extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments_between(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, int top, Value low, Value high, u64* out
) {
    sum_by_block<MOMENTS_THREADS>(top, out, [&](Sums& sums) {
        Between mine = {sums, low, high, 0};
        visit_all<MOMENTS_THREADS, SUMS_EACH>(chunk, n, layout, keeps, mine);
        add_over_warp(&out[N_NUMBERS], mine.n);
    });
}

// Sum every run of contiguous elements; `upto` is the number of elements up to the end of each. Each
// block takes an equal share of all elements. A run has N_NUMBERS of its own.
extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) moments_of_runs(
    const Word* all_words, const i64* upto, int n_runs, int top, u64* out
) {
    __shared__ u64 digits[MOMENTS_THREADS / 32][N_DIGITS];
    for_share(upto, n_runs, [&](int run, i64 first, i64 n) {
        const Word* words = all_words + (run ? upto[run - 1] : 0) + first;
        clear<MOMENTS_THREADS>(digits);
        Sums mine;
        mine.start(top, digits[threadIdx.x / 32]);
        visit_all<MOMENTS_THREADS, SUMS_EACH>(words, n, nullptr, nullptr, mine, 0, 1);
        mine.finish(out + (i64)(run + 1) * N_NUMBERS - 3);
        write<MOMENTS_THREADS>(digits, out + (i64)run * N_NUMBERS);
        __syncthreads();
    });
}

// Sum the elements of every group below `n_groups`, in any order; `tops` are those of the groups. A block orders a tile of
// elements by group, and a warp sums those of a group. A group has N_NUMBERS of its own; blocks add their
// digits up first if there is room (IN_SHARED is 1).
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) moments_of_groups(
    const Word* words, const Code* codes, i64 n, int n_groups, int size, const int* tops, u64* out
) {
    constexpr int T = GROUPS_THREADS, WARPS = T / 32, N = 4;
    extern __shared__ u64 memory[];
    const int n_digits = IN_SHARED ? n_groups * N_DIGITS : 0;
    auto digits_of = [&](int g) { return IN_SHARED ? memory + g * N_DIGITS : out + (i64)g * N_NUMBERS; };
    Word* tile = (Word*)(memory + n_digits);
    u32* left = (u32*)(tile + size);  // elements of each group that have no place yet
    u32* starts = left + n_groups;
    const int me = threadIdx.x, lane = me % 32, warp = me / 32;
    for (int i = me; i < n_digits; i += T) memory[i] = 0;
    __syncthreads();  // also of blocks without a tile
    for (i64 start = (i64)blockIdx.x * size; start < n; start += (i64)gridDim.x * size) {
        const i64 stop = min(start + size, n);
        auto visit_codes = [&](i64 first, int (&group)[SUMS_EACH]) {
#pragma unroll
            for (int k = 0; k < SUMS_EACH; ++k) {
                group[k] = first + k * T < stop ? (int)codes[first + k * T] : -1;
                if (group[k] >= n_groups) group[k] = -1;
            }
        };
        for (int i = me; i < n_groups; i += T) left[i] = 0;
        __syncthreads();
        for (i64 first = start + me; first < stop; first += T * SUMS_EACH) {
            int group[SUMS_EACH];
            visit_codes(first, group);
#pragma unroll
            for (int k = 0; k < SUMS_EACH; ++k) {
                if (group[k] >= 0) atomicAdd(left + group[k], 1u);
            }
        }
        __syncthreads();
        u32 total = prefix_sum(left, starts, n_groups);
        if (me == 0) starts[n_groups] = total;
        for (i64 first = start + me; first < stop; first += T * SUMS_EACH) {
            Word own[SUMS_EACH];
            int group[SUMS_EACH];
            visit_codes(first, group);
#pragma unroll
            for (int k = 0; k < SUMS_EACH; ++k) own[k] = first + k * T < stop ? words[first + k * T] : Word(0);
#pragma unroll
            for (int k = 0; k < SUMS_EACH; ++k) {
                if (group[k] >= 0) tile[starts[group[k]] + atomicSub(left + group[k], 1u) - 1] = own[k];
            }
        }
        __syncthreads();
        for (int g = warp; g < n_groups; g += WARPS) {
            const Word* its = tile + starts[g];
            const int number = starts[g + 1] - starts[g];
            if (number == 0) continue;
            Sums mine;
            mine.start(tops[g], digits_of(g));
            for (int first = 0; first < number; first += 32 * N) {
                Word some[N];
                Present<N> present(false);
#pragma unroll
                for (int k = 0; k < N; ++k) {
                    int at = first + 32 * k + lane;
                    some[k] = at < number ? its[at] : Word(0);
                    if (at < number) present.bytes[0] |= 1u << 8 * k;
                }
                mine.pause();
                mine(some, present);
            }
            mine.finish(out + (i64)g * N_NUMBERS + COUNTS_AT);
        }
        __syncthreads();
    }
    if (!IN_SHARED) return;
    for (int i = me; i < 2 * n_groups; i += T) {
        u64* its = memory + i / 2 * N_DIGITS;
        if (i % 2) carry(its + N_TOTAL, N_SQUARE);
        else carry(its, N_TOTAL);
    }
    __syncthreads();
    for (int i = me; i < n_digits; i += T) {
        if (memory[i]) atomicAdd(out + (i64)(i / N_DIGITS) * N_NUMBERS + place_of_digit(i % N_DIGITS), memory[i]);
    }
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
