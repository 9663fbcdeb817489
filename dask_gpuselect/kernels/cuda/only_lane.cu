// Quantiles of the one lane that an array is, by one launch: all blocks count a digit, wait for each other,
// and look up what the digit of each rank is, digit by digit. To be started cooperatively, so that all
// blocks run at the same time. Needs lanes.cuh and digits.cuh.

constexpr int ONLY_EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight

// What is wanted, if no element is missing or as many as the host says: ascending and distinct ranks, and
// for each answer which two of them are its neighbours.
struct OnlyWanted {
    i64 n;
    i64 ranks[MOST_RANKS];
    double weights[MOST_ANSWERS];  // of the upper
    int lower[MOST_ANSWERS], upper[MOST_ANSWERS];
    int n_ranks, n_answers, mixes;
};

// What the blocks share: all zeros at first, and left so.
struct OnlyShared {
    Flags flags;
    u64 n_missing;
    u32 n_arrived, n_left;
};

// What the host reads, in its own memory.
struct OnlyTold {
    Flags flags;
    u64 n_missing;
};

// Wait until all blocks have come here so many times.
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

// `totals` are zeros, and left so: BINS for each digit and rank.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) only_lane(
    const Word* elements, const __grid_constant__ OnlyWanted wanted, u64* totals,
    OnlyShared* shared, OnlyTold* told, Answer* answers
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* counts = (u32*)scratch;
    __shared__ Groups groups;
    __shared__ u64 ranks[MOST_RANKS], prefixes[MOST_RANKS];
    int n_ranks = wanted.n_ranks;
    if (threadIdx.x < n_ranks) ranks[threadIdx.x] = wanted.ranks[threadIdx.x], prefixes[threadIdx.x] = 0;
    __syncthreads();
    __shared__ bool is_last;
    u64* all_totals = totals;
    u32 times = 0;
    for (int top = BITS; top > 0; top -= DIGIT) {
        int bits = top < DIGIT ? top : DIGIT, shift = top - bits;
        if (threadIdx.x == 0) find_groups(prefixes, n_ranks, groups);
        for (u32 i = threadIdx.x; i < n_ranks * BINS; i += SELECT_THREADS) counts[i] = 0;
        __syncthreads();

        CountDigits count = {groups, counts, shift, bits, top == BITS, 0};
        visit_all<SELECT_THREADS, ONLY_EACH>(elements, wanted.n, nullptr, nullptr, count);
        u32 n_missing = warp_sum(count.n_missing);
        if (threadIdx.x % 32 == 0 && n_missing) atomicAdd(&shared->n_missing, (u64)n_missing);
        __syncthreads();
        for (u32 i = threadIdx.x; i < groups.number * BINS; i += SELECT_THREADS) {
            if (counts[i]) atomicAdd(&totals[i], (u64)counts[i]);
        }
        meet(shared, ++times);
        int r = threadIdx.x / 32;
        if (r < n_ranks) look_up(totals + groups.of_rank[r] * BINS, ranks[r], prefixes[r], bits);
        __syncthreads();
        totals += n_ranks * BINS;
    }
    if (blockIdx.x == 0 && threadIdx.x < wanted.n_answers) {
        int a = threadIdx.x;
        Key lower = (Key)prefixes[wanted.lower[a]], upper = (Key)prefixes[wanted.upper[a]];
        answers[a] = mixed(lower, upper, wanted.weights[a], wanted.mixes, &shared->flags);
    }
    // The last block to leave tells the host, and leaves zeros.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(&shared->n_left, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (u64* total = all_totals + threadIdx.x; total < totals; total += SELECT_THREADS) *total = 0;
    if (threadIdx.x == 0) {
        volatile OnlyShared* known = shared;
        told->flags.all_missing = 0, told->flags.too_wide = known->flags.too_wide;
        told->n_missing = known->n_missing;
        __threadfence_system();
        known->flags.too_wide = 0, known->n_missing = 0, known->n_arrived = 0, known->n_left = 0;
    }
}
