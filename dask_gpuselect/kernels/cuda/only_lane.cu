// Quantiles of an array that is one lane, by one launch. All blocks count a digit, wait for each other,
// and look up the digit of each rank; then comes the next digit. It is started cooperatively, so that
// all blocks run at the same time.

#include "lanes.cuh"
#include "digits.cuh"

// Counters that the blocks share; zero before and after.
struct OnlyShared {
    Flags flags;
    u64 n_missing, n_left;
    u32 n_arrived;
};

// Flags for the host, in its own memory.
struct OnlyTold {
    Flags flags;
    u64 n_missing;
};

// Wait until all blocks have been here `times` times.
__device__ __forceinline__ void meet(OnlyShared* shared, u32 times) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&shared->n_arrived, 1u);
        while (*(volatile u32*)&shared->n_arrived < times * gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
}

// By all threads of a block: find the digit of each rank, and its rank among the elements with that
// digit.
__device__ __forceinline__ void look_up_together(
    const u64* totals, const Groups& groups, int n_ranks, u64* ranks, u64* prefixes, int bits
) {
    constexpr int EACH = BINS / SELECT_THREADS, WARPS = SELECT_THREADS / 32;
    __shared__ u32 of_warps[ONLY_MOST][WARPS];
    u32 counts[ONLY_MOST][EACH], upto[ONLY_MOST];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < ONLY_MOST; ++r) {
        upto[r] = 0;
        if (r >= n_ranks) continue;
        const u64* its_totals = totals + groups.of_rank[r] * BINS + threadIdx.x * EACH;
#pragma unroll
        for (int i = 0; i < EACH; ++i) upto[r] += counts[r][i] = (u32)__ldcg(its_totals + i);
    }
#pragma unroll
    for (int r = 0; r < ONLY_MOST; ++r) {
        if (r >= n_ranks) continue;
        upto[r] = sum_upto(upto[r]);
        if (lane == 31) of_warps[r][warp] = upto[r];
    }
    u32 wanted[ONLY_MOST];
#pragma unroll
    for (int r = 0; r < ONLY_MOST; ++r) wanted[r] = r < n_ranks ? (u32)ranks[r] : 0;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ONLY_MOST; ++r) {
        if (r >= n_ranks) continue;
        upto[r] += total_over_warp(lane < min(warp, WARPS) ? of_warps[r][lane] : 0);
        u32 below = upto[r];
#pragma unroll
        for (int i = 0; i < EACH; ++i) below -= counts[r][i];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (below <= wanted[r] && wanted[r] < below + counts[r][i]) {
                ranks[r] = wanted[r] - below;
                prefixes[r] = prefixes[r] << bits | (threadIdx.x * EACH + i);
            }
            below += counts[r][i];
        }
    }
    __syncthreads();
}

// `totals` has BINS counts for each digit and rank; it is zero before and after.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) only_lane(
    const Word* elements, const __grid_constant__ OnlyWanted wanted, u64* totals,
    OnlyShared* shared, OnlyTold* told, Answer* answers
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* counts = (u32*)scratch;
    __shared__ Groups groups;
    __shared__ u64 ranks[ONLY_MOST], prefixes[ONLY_MOST];
    int n_ranks = wanted.n_ranks;
    if (threadIdx.x < n_ranks) ranks[threadIdx.x] = wanted.ranks[threadIdx.x], prefixes[threadIdx.x] = 0;
    __syncthreads();
    u64* all_totals = totals;
    u32 times = 0;
    for (int top = BITS; top > 0; top -= DIGIT) {
        int bits = top < DIGIT ? top : DIGIT, shift = top - bits;
        count_digit<SELECT_EACH>(
            elements, wanted.n, prefixes, n_ranks, shift, bits, groups, counts, totals, &shared->n_missing
        );
        meet(shared, ++times);
        look_up_together(totals, groups, n_ranks, ranks, prefixes, bits);
        totals += n_ranks * BINS;
    }
    if (blockIdx.x == 0 && threadIdx.x < wanted.n_answers) {
        int a = threadIdx.x;
        Key lower = (Key)prefixes[wanted.lower[a]], upper = (Key)prefixes[wanted.upper[a]];
        answers[a] = mixed(lower, upper, wanted.weights[a], wanted.mixes, &shared->flags);
    }
    // The last block to finish writes the flags for the host, and clears the counters.
    if (!is_last_block(&shared->n_left)) return;
    for (u64* total = all_totals + threadIdx.x; total < totals; total += SELECT_THREADS) *total = 0;
    if (threadIdx.x == 0) {
        volatile OnlyShared* known = shared;
        told->flags.all_missing = 0, told->flags.too_wide = known->flags.too_wide;
        told->n_missing = known->n_missing;
        __threadfence_system();
        known->flags.too_wide = 0, known->n_missing = 0, known->n_arrived = 0, known->n_left = 0;
    }
}
