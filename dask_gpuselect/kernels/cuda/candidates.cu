// The elements of some ranks among candidates, by the digits of their keys, the leading one first
// (radixSelect of Alabi et al. 2012, section 3.2, of several ranks at once and in place).
//
// One launch for each digit: all blocks count the digit over the elements whose digits before are
// those of a wanted one, and the block that finishes last looks up what the digit of each rank is.

struct Selection {
    i64 n;                     // elements
    i64 places[MOST_SELECTED];    // wanted: ranks among them
    u64 ranks[MOST_SELECTED];     // among the elements with the digits found so far; `places` at first
    u64 prefixes[MOST_SELECTED];  // those digits
    u64 n_finished;            // blocks
    u64 n_missing;             // elements, whose keys are beyond infinity's
};

// `totals` are zeros, and left so: BINS for each rank.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) select_digit(
    const Word* elements, Selection* selection, u64* totals, int n_ranks, int shift, int bits
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32* counts = (u32*)scratch;
    __shared__ Groups groups;
    __shared__ bool is_last;
    if (threadIdx.x == 0) find_groups(selection->prefixes, n_ranks, groups);
    for (u32 i = threadIdx.x; i < n_ranks * BINS; i += SELECT_THREADS) counts[i] = 0;
    __syncthreads();

    CountDigits count = {groups, counts, shift, bits, shift + bits == BITS, 0};
    visit_all<SELECT_THREADS, SELECT_EACH>(elements, selection->n, nullptr, nullptr, count);
    u32 n_missing = warp_sum(count.n_missing);
    if (threadIdx.x % 32 == 0 && n_missing) atomicAdd(&selection->n_missing, (u64)n_missing);

    __syncthreads();
    for (u32 i = threadIdx.x; i < groups.number * BINS; i += SELECT_THREADS) {
        if (counts[i]) atomicAdd(&totals[i], (u64)counts[i]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&selection->n_finished, 1ull) == gridDim.x - 1;
        if (is_last) selection->n_finished = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    int r = threadIdx.x / 32;
    if (r < n_ranks) {
        const u64* of_group = totals + groups.of_rank[r] * BINS;
        look_up(of_group, selection->ranks[r], selection->prefixes[r], bits);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < groups.number * BINS; i += SELECT_THREADS) totals[i] = 0;
}

// Where the elements of some ranks of all are among the candidates of a tally's cells, so that the
// selection follows without the host, which checks it by the tally's counts. Anywhere if they are not
// there. One warp.
extern "C" __global__ void locate(
    const u64* below, const u64* n_found, const u64* held, const int* segments_of, int n_spans,
    u64 most, const i64* wanted, int n_ranks, Selection* selection
) {
    int r = threadIdx.x;
    if (r == 0) selection->n = (i64)min(*n_found, most);
    if (r >= n_ranks) return;
    u64 rank = (u64)wanted[r], place = 0, gathered = 0;
    for (int s = 0; s < n_spans; ++s) {
        int first = segments_of[2 * s], cell = first + first % 2;
        u64 start = below[s] + (first % 2 ? held[first] : 0);
        if (rank >= start && rank - start < held[cell]) place = gathered + rank - start;
        gathered += held[cell];
    }
    selection->places[r] = (i64)place;
    selection->ranks[r] = place;
}

// --- Between two keys ---------------------------------------------------------------------------

struct Survey {
    Key low, high;
    u32 number;
    Key least, most;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Key key = key_of(words[e]);
            if (!is_present || key < low || key > high) continue;
            ++number;
            least = min(least, key);
            most = max(most, key);
        }
    }

    __device__ __forceinline__ void pause() {}
};

// How many elements have keys in [low, high], and the least and the largest of these keys. `found` is 0,
// the largest number, and 0.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) survey(
    const Word* elements, i64 n, u64 low, u64 high, u64* found
) {
    Survey mine = {(Key)low, (Key)high, 0, (Key)~Key(0), 0};
    visit_all<SELECT_THREADS, SELECT_EACH>(elements, n, nullptr, nullptr, mine);
    u32 number = warp_sum(mine.number);
    for (int offset = 16; offset; offset >>= 1) {
        mine.least = min(mine.least, __shfl_xor_sync(ALL_LANES, mine.least, offset));
        mine.most = max(mine.most, __shfl_xor_sync(ALL_LANES, mine.most, offset));
    }
    if (threadIdx.x % 32 || number == 0) return;
    atomicAdd(&found[0], (u64)number);
    atomicMin(&found[1], (u64)mine.least);
    atomicMax(&found[2], (u64)mine.most);
}

struct Collect {
    Key low, high;
    Value* kept;
    u64 most;
    u64* n_found;

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], bool is_present) {
        for (int e = 0; e < N; ++e) {
            Key key = key_of(words[e]);
            bool is_in = is_present && key >= low && key <= high;
            u32 holders = __ballot_sync(ALL_LANES, is_in);
            if (holders == 0) continue;
            u32 lane = threadIdx.x % 32;
            u64 at = lane == 0 ? atomicAdd(n_found, (u64)__popc(holders)) : 0;
            at = __shfl_sync(ALL_LANES, at, 0) + __popc(holders & ((1u << lane) - 1));
            if (is_in && at < most) kept[at] = value_of(words[e]);
        }
    }

    __device__ __forceinline__ void pause() {}
};

// The elements with keys in [low, high], in any order; `n_found` counts those that find no room too.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) collect(
    const Word* elements, i64 n, u64 low, u64 high, Value* kept, u64 most, u64* n_found
) {
    Collect mine = {(Key)low, (Key)high, kept, most, n_found};
    visit_all<SELECT_THREADS, SELECT_EACH>(elements, n, nullptr, nullptr, mine);
}
