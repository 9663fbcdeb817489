// Counts of the digits of keys, and the search for the digit of the element of a rank.

constexpr u32 BINS = 1u << DIGIT;  // 2 bins for each of 1,024 threads
constexpr int SELECT_EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight
constexpr u32 NONE = ~0u;

// Ranks with the same prefix share their counts.
struct Groups {
    Key prefixes[MOST_SELECTED];
    u32 of_rank[MOST_SELECTED];
    u32 number;
};

__device__ __forceinline__ void find_groups(const u64* prefixes, int n_ranks, Groups& groups) {
    u32 number = 0;
    for (int r = 0; r < n_ranks; ++r) {
        Key prefix = (Key)prefixes[r];
        u32 g = 0;
        while (g < number && groups.prefixes[g] != prefix) ++g;
        if (g == number) groups.prefixes[number++] = prefix;
        groups.of_rank[r] = g;
    }
    groups.number = number;
}

struct CountDigits {
    const Groups& groups;
    u32* counts;  // in shared memory: BINS for each group
    int shift, bits;
    bool looks_for_missing;
    u32 n_missing;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
        u32 n_groups = groups.number;
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (looks_for_missing) n_missing += is_present && is_missing(value_of(words[e]));
            Key rest = key_of(words[e]) >> shift;
            u32 digit = (u32)rest & ((1u << bits) - 1);
            Key prefix = shift + bits < KEY_BITS ? rest >> bits : Key(0);
            u32 bin = NONE;
#pragma unroll 1  // otherwise compiling takes three times as long
            for (u32 g = 0; g < n_groups; ++g) {
                if (groups.prefixes[g] == prefix) bin = g * BINS + digit;
            }
            add(is_present ? bin : NONE);
        }
    }

    // Candidates lie close together: their first digits are often the same in a whole warp.
    __device__ __forceinline__ void add(u32 bin) {
        u32 first = __shfl_sync(ALL_LANES, bin, 0);
        if (__all_sync(ALL_LANES, bin == first)) {
            if (threadIdx.x % 32 == 0 && bin != NONE) atomicAdd(&counts[bin], 32u);
        } else if (bin != NONE) {
            atomicAdd(&counts[bin], 1u);
        }
    }

    __device__ __forceinline__ void pause() {}
};

// Count a digit of all elements for each group of the ranks, and add the counts to those of all blocks.
template <int EACH>
__device__ __forceinline__ void count_digit(
    const Word* elements, i64 n, const u64* prefixes, int n_ranks, int shift, int bits, Groups& groups,
    u32* counts, u64* totals, u64* n_missing
) {
    if (threadIdx.x == 0) find_groups(prefixes, n_ranks, groups);
    for (u32 i = threadIdx.x; i < n_ranks * BINS; i += SELECT_THREADS) counts[i] = 0;
    __syncthreads();
    CountDigits count = {groups, counts, shift, bits, shift + bits == BITS, 0};
    visit_all<SELECT_THREADS, EACH>(elements, n, nullptr, nullptr, count);
    add_over_warp(n_missing, count.n_missing);
    __syncthreads();
    for (u32 i = threadIdx.x; i < groups.number * BINS; i += SELECT_THREADS) {
        if (counts[i]) atomicAdd(&totals[i], (u64)counts[i]);
    }
}

// By one warp: find which of 32 runs of WIDTH counts from `start` contains the wanted rank, if any, and
// how many elements are below the run.
template <int WIDTH>
__device__ __forceinline__ bool narrow(const u64* counts, u64 wanted, u32& start, u64& below) {
    u32 lane = threadIdx.x % 32;
    const u64* mine = counts + start + lane * WIDTH;
    u64 sum = 0;
#pragma unroll 16
    for (int i = 0; i < WIDTH; ++i) sum += __ldcg(mine + i);  // all loads are in flight together
    u64 upto = below + sum_upto(sum);
    u32 owners = __ballot_sync(ALL_LANES, upto - sum <= wanted && wanted < upto);
    if (owners == 0) return false;
    int owner = __ffs(owners) - 1;
    start += owner * WIDTH;
    below = __shfl_sync(ALL_LANES, upto - sum, owner);
    return true;
}

// By one warp: find the digit of a rank, and its rank among the elements with that digit.
__device__ void look_up(const u64* counts, u64& rank, u64& prefix, int bits) {
    u64 wanted = rank, below = 0;
    u32 digit = 0;
    if (!narrow<BINS / 32>(counts, wanted, digit, below)) return;
    narrow<BINS / 1024>(counts, wanted, digit, below);
    u64 count = __ldcg(counts + digit);
    if (wanted >= below + count) {
        below += count;
        ++digit;
    }
    __syncwarp();  // all lanes have read the rank
    if (threadIdx.x % 32 == 0) {
        rank = wanted - below;
        prefix = prefix << bits | digit;
    }
}
