// Elements of groups: as keys that order them by group, and counted at the ends of their group.
//
// `codes` are the number of the group of each element, negative for none.

// Elements as keys that order by group, then by value: of up to 32 bits with the group in the upper
// half, of 64 bits with the groups beside them. Those that are missing come behind all others, by
// group, and behind these what is in no group. Of n elements all, or as many as `size` says, of even
// stretches one each.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_keys(
    const Word* values, const int* codes, i64 n, i64 size, int n_groups, u64* keys, u32* groups
) {
    i64 step = (i64)gridDim.x * GROUPS_THREADS;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * GROUPS_THREADS + threadIdx.x; i < size; i += step) {
        i64 place = size == n ? i : sampled_place(i, size, n);
        Word word = values[place];
        int code = codes[place];
        u32 group = is_missing(value_of(word)) ? (u32)n_groups + (u32)code : (u32)code;
        if (code < 0) group = 2 * (u32)n_groups;
#if BITS == 64
        keys[i] = key_of(word);
        groups[i] = group;
#else
        keys[i] = (u64)group << 32 | key_of(word);
#endif
    }
}

// Of keys at some places, each in an ascending stretch: the key, and how many of the stretch are below
// it and up to it. A thread for each.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_ties(
    const u64* keys, const i64* places, const i64* starts, const i64* stops, i64 n, u64* found,
    i64* below, i64* upto
) {
    i64 step = (i64)gridDim.x * GROUPS_THREADS;
    for (i64 i = (i64)blockIdx.x * GROUPS_THREADS + threadIdx.x; i < n; i += step) {
        i64 start = starts[i], place = places[i];
        u64 key = keys[place];
        i64 first = start, last = place;  // the first that equals it
        while (first < last) {
            i64 middle = (first + last) / 2;
            if (keys[middle] < key) first = middle + 1; else last = middle;
        }
        i64 behind = place + 1, stop = stops[i];  // the first above
        while (behind < stop) {
            i64 middle = (behind + stop) / 2;
            if (keys[middle] <= key) behind = middle + 1; else stop = middle;
        }
        found[i] = key, below[i] = first - start, upto[i] = behind - start;
    }
}

// --- Counting at ends -----------------------------------------------------------------------------

// Count one more at a place. In device memory many threads may want the same one, of a group that has
// nearly all elements: those that want what the first of the warp wants count together.
__device__ __forceinline__ void count_one(u32* counts, i64 place, bool does) {
    if (does) atomicAdd(counts + place, 1u);
}

__device__ __forceinline__ void count_one(u64* counts, i64 place, bool does) {
    u32 doing = __ballot_sync(ALL_LANES, does);
    if (!doing) return;
    int leader = __ffs(doing) - 1;
    u64 its_place = __shfl_sync(ALL_LANES, (u64)place, leader);
    bool is_same = does && (u64)place == its_place;
    u32 same = __ballot_sync(ALL_LANES, is_same);
    if ((int)(threadIdx.x % 32) == leader) atomicAdd(counts + place, (u64)__popc(same));
    if (does && !is_same) atomicAdd(counts + place, (u64)1);
}

// The sum of those of the threads of a warp up to this one.
__device__ __forceinline__ u32 sum_upto(u32 value) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u32 lower = __shfl_up_sync(ALL_LANES, value, step);
        if (lane >= step) value += lower;
    }
    return value;
}

// A group of k ends has k + 1 cells: before, between and behind them, and `first` says where its ends
// begin. `totals` has the number of candidates; how many elements are in each cell and how many equal
// its upper end; and how many of each group are missing. The candidates, of the wanted cells, are keys
// with the cell in the upper half, or with the cells beside them, in any order.
template <class Count>
__device__ __forceinline__ void tally_groups(
    const Word* values, const int* codes, i64 n, const Key* ends, const int* first,
    const unsigned char* wanted, i64 n_cells, u64* totals, Count* counts, u64* taken, u32* cells,
    u64 room
) {
    constexpr int N_WARPS = GROUPS_THREADS / 32;
    constexpr i64 TILE = GROUPS_THREADS * GROUPS_EACH;
    __shared__ u32 before_warp[N_WARPS];
    __shared__ u64 begin;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 start = blockIdx.x * TILE; start < n; start += gridDim.x * TILE) {
        Word words[GROUPS_EACH];
        int group[GROUPS_EACH], cell[GROUPS_EACH];
        Key keys[GROUPS_EACH];
        u32 takes = 0;
#pragma unroll
        for (int k = 0; k < GROUPS_EACH; ++k) {
            i64 i = start + k * GROUPS_THREADS + threadIdx.x;
            words[k] = i < n ? __ldcs(values + i) : Word(0);
            group[k] = i < n ? __ldcs(codes + i) : -1;
        }
#pragma unroll
        for (int k = 0; k < GROUPS_EACH; ++k) {
            keys[k] = key_of(words[k]);
            bool is_some = group[k] >= 0, is_valid = !is_missing(value_of(words[k]));
            i64 place = 2 * n_cells + group[k];
            if (is_some && is_valid) {
                int end = first[group[k]], stop = first[group[k] + 1], last = stop;
                while (end < last) {
                    int middle = (end + last) / 2;
                    if (ends[middle] < keys[k]) end = middle + 1; else last = middle;
                }
                bool is_end = end < stop && ends[end] == keys[k];
                cell[k] = end + group[k];
                place = 2 * (i64)cell[k] + is_end;
                if (!is_end && wanted[cell[k]]) takes |= 1u << k;
            }
            count_one(counts, place, is_some);
        }
        u32 upto = sum_upto(__popc(takes));
        if (lane == 31) before_warp[warp] = upto;
        if (!__syncthreads_or((int)takes)) continue;
        if (warp == 0) {
            u32 own = lane < N_WARPS ? before_warp[lane] : 0, all = sum_upto(own);
            if (lane < N_WARPS) before_warp[lane] = all - own;
            if (lane == 31) begin = atomicAdd(totals, (u64)all);
        }
        __syncthreads();
        u64 at = begin + before_warp[warp] + upto - __popc(takes);
#pragma unroll
        for (int k = 0; k < GROUPS_EACH; ++k) {
            if (!(takes >> k & 1)) continue;
            if (at < room) {
#if BITS == 64
                taken[at] = keys[k], cells[at] = (u32)cell[k];
#else
                taken[at] = (u64)(u32)cell[k] << 32 | keys[k];
#endif
            }
            ++at;
        }
        __syncthreads();  // before others write to `begin`
    }
}

// With the tables, and counts of a block's own, in shared memory.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_tally_shared(
    const Word* values, const int* codes, i64 n, const Key* ends, const int* first,
    const unsigned char* wanted, int n_groups, int n_ends, u64* totals, u64* taken, u32* cells,
    u64 room
) {
    extern __shared__ u64 memory[];
    int n_cells = n_ends + n_groups, n_counts = 2 * n_cells + n_groups;
    Key* own_ends = (Key*)memory;
    int* own_first = (int*)(own_ends + n_ends);
    u32* counts = (u32*)(own_first + n_groups + 1);
    unsigned char* own_wanted = (unsigned char*)(counts + n_counts);
    for (int i = threadIdx.x; i < n_ends; i += GROUPS_THREADS) own_ends[i] = ends[i];
    for (int i = threadIdx.x; i <= n_groups; i += GROUPS_THREADS) own_first[i] = first[i];
    for (int i = threadIdx.x; i < n_counts; i += GROUPS_THREADS) counts[i] = 0;
    for (int i = threadIdx.x; i < n_cells; i += GROUPS_THREADS) own_wanted[i] = wanted[i];
    __syncthreads();
    tally_groups(
        values, codes, n, own_ends, own_first, own_wanted, n_cells, totals, counts, taken, cells, room
    );
    __syncthreads();
    for (int i = threadIdx.x; i < n_counts; i += GROUPS_THREADS) {
        if (counts[i]) atomicAdd(totals + 1 + i, (u64)counts[i]);
    }
}

extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_tally(
    const Word* values, const int* codes, i64 n, const Key* ends, const int* first,
    const unsigned char* wanted, int n_groups, int n_ends, u64* totals, u64* taken, u32* cells,
    u64 room
) {
    tally_groups(
        values, codes, n, ends, first, wanted, (i64)n_ends + n_groups, totals, totals + 1, taken,
        cells, room
    );
}
