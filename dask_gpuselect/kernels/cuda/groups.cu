// Elements of groups: converted to keys that order them by group, counted at the ends of their group,
// or counted word by word.
//
// `codes` are the number of the group of each element, negative for none.
//
// Defined before this text: IN_SHARED (1 if the counts fit in shared memory).

// Write elements as keys that order by group, then by value. Elements of up to 32 bits have the group
// in the upper half of the key; those of 64 bits have groups in an array of their own. Missing elements
// come behind all others, by group, and elements in no group have the number `none`. With `size` below n,
// one element is taken from each of `size` equal stretches. With a shift, places follow as lowest bits.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_keys(
    const Word* values, const int* codes, i64 n, i64 size, int n_groups, int none, int shift, u64* keys,
    u32* groups
) {
#pragma unroll 4
    for (i64 i = own_thread(); i < size; i += all_threads()) {
        i64 place = size == n ? i : sampled_place(i, size, n);
        Word word = values[place];
        int code = codes[place];
        u32 group = code < 0 ? none : is_missing(value_of(word)) ? n_groups + code : code;
#if BITS == 64
        keys[i] = key_of(word);
        groups[i] = group;
#else
        keys[i] = ((u64)group << 32 | key_of(word)) << shift | (shift ? (u64)place : 0);
#endif
    }
}

// Convert keys back to elements.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_values(
    const u64* keys, i64 n, Word* words
) {
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) words[i] = word_of((Key)keys[i]);
}

// Count the sorted elements up to each of some numbers of groups, from 0 on.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_stops(
    const u64* keys, const u32* numbers, i64 n, int n_numbers, i64* stops
) {
    for (i64 i = own_thread(); i < n_numbers; i += all_threads()) {
        stops[i] = first_not((i64)0, n, [&](i64 place) {
            return (i64)(numbers ? numbers[place] : keys[place] >> 32) <= i;
        });
    }
}

// Find the pivots of runs, one thread for each. A run begins at its `start`, and its pivots are at even
// ranks from its least to its largest key; `first` is the number of its first pivot. For each pivot,
// write its key, how many keys of the run are below it and up to it, and whether it differs from the
// pivot before. `start` and `first` have one more entry, where all end.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_pivots(
    const u64* keys, const i64* start, const i64* first, int n_runs, i64 n, u64* pivot_keys, i64* below,
    i64* upto, unsigned char* is_new
) {
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        // The last run that begins at this pivot or before.
        int run = first_not(1, n_runs, [&](int run) { return first[run] <= i; }) - 1;
        i64 begin = start[run], end = start[run + 1], number = i - first[run];
        i64 steps = max(first[run + 1] - first[run] - 1, (i64)1);
        i64 whole = (end - begin - 1) / steps, rest = (end - begin - 1) % steps;
        i64 place = begin + number * whole + number * rest / steps;
        u64 key = keys[place];
        i64 low = first_not(begin, place, [&](i64 at) { return keys[at] < key; });
        i64 behind = first_not(place + 1, end, [&](i64 at) { return keys[at] <= key; });
        pivot_keys[i] = key, below[i] = low - begin, upto[i] = behind - begin;
        i64 before = begin + (number - 1) * whole + (number - 1) * rest / steps;
        is_new[i] = number == 0 || before < low;
    }
}

// Find where each of some wanted numbers belongs in an ascending stretch of its own, from `start` to
// `stop`: behind the numbers less than it, or behind those up to it where `passes` is set. A number has
// `n_words` words, the lowest first; word k of number i of the table is ``table[k * n + i]``.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_find(
    const u64* table, i64 n, int n_words, const i64* start, const i64* stop, const i64* passes,
    const u64* wanted, i64 n_wanted, i64* places
) {
    for (i64 i = own_thread(); i < n_wanted; i += all_threads()) {
        places[i] = first_not(start[i], stop[i], [&](i64 place) {
            for (int k = n_words - 1; k >= 0; --k) {
                u64 word = table[k * n + place], its = wanted[k * n_wanted + i];
                if (word != its) return word < its;
            }
            return passes[i] != 0;  // all words are equal
        });
    }
}

// --- Counting at ends -----------------------------------------------------------------------------

#if IN_SHARED

// Counts in shared memory.
struct Counts {
    u32* own;
    i64 n;

    __device__ __forceinline__ void start() {
        for (i64 i = threadIdx.x; i < n; i += GROUPS_THREADS) own[i] = 0;
        __syncthreads();
    }
    __device__ __forceinline__ void add(i64 place) { atomicAdd(own + place, 1u); }
    __device__ __forceinline__ void finish(u64* counts) {
        __syncthreads();
        for (i64 i = threadIdx.x; i < n; i += GROUPS_THREADS) {
            if (own[i]) atomicAdd(counts + i, (u64)own[i]);
        }
    }
};

#else

// Counts in device memory. One group may have nearly all elements, and additions to one place wait for
// each other. So the block caches the first places that it meets in shared memory.
struct Counts {
    u64* counts;
    i64* first_places;  // the cached places, or -1
    u32* own;

    __device__ __forceinline__ void start() {
        for (int i = threadIdx.x; i < GROUPS_HELD; i += GROUPS_THREADS) first_places[i] = -1, own[i] = 0;
        __syncthreads();
    }
    __device__ __forceinline__ void add(i64 place) {
        int slot = (int)(place % GROUPS_HELD);
        i64 its = ((volatile i64*)first_places)[slot];
        if (its < 0) {
            its = (i64)atomicCAS((u64*)first_places + slot, ~(u64)0, (u64)place);
            if (its < 0) its = place;
        }
        if (its == place) atomicAdd(own + slot, 1u); else atomicAdd(counts + place, (u64)1);
    }
    __device__ __forceinline__ void finish(u64*) {
        __syncthreads();
        for (int i = threadIdx.x; i < GROUPS_HELD; i += GROUPS_THREADS) {
            if (own[i]) atomicAdd(counts + first_places[i], (u64)own[i]);
        }
    }
};

#endif

// A group of k ends has k + 1 cells: before, between and behind them. `first` is the place of its first
// end. `totals` has the number of candidates; for each cell the number of elements in it and of those
// that equal its upper end; and for each group the number of missing elements. The candidates are the
// elements of wanted cells, in any order: keys with the cell in the upper half, or with an array of
// cells.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_tally(
    const Word* values, const int* codes, i64 n, const Key* ends, const int* first,
    const unsigned char* wanted, int n_groups, int n_ends, u64* totals, u64* taken, u32* cells,
    u64 room
) {
    i64 n_cells = (i64)n_ends + n_groups;
#if IN_SHARED  // and so are the tables
    extern __shared__ u64 memory[];
    i64 n_counts = 2 * n_cells + n_groups;
    Key* own_ends = (Key*)memory;
    int* own_first = (int*)(own_ends + n_ends);
    Counts counts = {(u32*)(own_first + n_groups + 1), n_counts};
    unsigned char* own_wanted = (unsigned char*)(counts.own + n_counts);
    for (int i = threadIdx.x; i < n_ends; i += GROUPS_THREADS) own_ends[i] = ends[i];
    for (int i = threadIdx.x; i <= n_groups; i += GROUPS_THREADS) own_first[i] = first[i];
    for (int i = threadIdx.x; i < n_cells; i += GROUPS_THREADS) own_wanted[i] = wanted[i];
    ends = own_ends, first = own_first, wanted = own_wanted;
#else
    __shared__ i64 first_places[GROUPS_HELD];
    __shared__ u32 own[GROUPS_HELD];
    Counts counts = {totals + 1, first_places, own};
#endif
    counts.start();
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
                int stop = first[group[k] + 1];
                int end = first_not(first[group[k]], stop, [&](int at) { return ends[at] < keys[k]; });
                bool is_end = end < stop && ends[end] == keys[k];
                cell[k] = end + group[k];
                place = 2 * (i64)cell[k] + is_end;
                if (!is_end && wanted[cell[k]]) takes |= 1u << k;
            }
            if (is_some) counts.add(place);
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
    counts.finish(totals + 1);
}

// --- How often each word occurs -------------------------------------------------------------------

#if BITS <= 16

// Find for each element the place of its word in the table of all groups. Without codes, consecutive
// runs of `width` elements are the groups.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_words(
    const Word* words, const int* codes, i64 n, i64 width, int n_groups, int n_words, u64* totals
) {
#if IN_SHARED
    extern __shared__ u64 memory[];
    Counts counts = {(u32*)memory, (i64)n_groups * n_words};
#else
    __shared__ i64 first_places[GROUPS_HELD];
    __shared__ u32 own[GROUPS_HELD];
    Counts counts = {totals, first_places, own};
#endif
    counts.start();
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        i64 group = codes ? (i64)codes[i] : i / width;
        if (group >= 0) counts.add(group * n_words + words[i]);
    }
    counts.finish(totals);
}

#endif
