// Elements of groups: converted to keys that order them by group, counted at the ends of their group,
// or counted word by word.
//
// `codes` are the number of the group of each element, negative for none.
//
#include "codes.cuh"
#include "tops.cuh"
#include "weights.cuh"

// Defined before this text: IN_SHARED (1 if the counts fit in shared memory), END_STEPS (then a group has fewer than
// 2**END_STEPS ends), ROWS (1 if some groups are tallied at a time) and WEIGHTED (1 if weights are summed; then
// counts fit).

// Write elements as keys that order by group, then by value. Elements of up to 32 bits have the group
// in the upper half of the key; those of 64 bits have groups in an array of their own. Missing elements
// come behind all others, by group, and elements in no group have the number `none`. With `size` below n,
// one element is taken from each of `size` equal stretches. With a shift, places follow as lowest bits.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_keys(
    const Word* values, const Code* codes, i64 n, i64 size, int n_groups, int none, int shift, u64* keys,
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

// Find the pivots of runs, one thread for each. A run begins at its `start`, and its pivots are at even
// ranks from its least to its largest key; `first` is the number of its first pivot. For each pivot,
// write its key, how many keys of the run are below it and up to it, and whether it differs from the
// pivot before. `start` and `first` have one more entry, where all end.
//
// With `running`, sums of weights in `n_limbs` digits of 32 bits, a row of `n_keys` for each digit, the second half
// of the pivots of a run are at even steps by weight, as floats tell it, and `is_new` is not written.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_pivots(
    const u64* keys, const i64* start, const i64* first, int n_runs, i64 n, const i64* running, int n_limbs,
    i64 n_keys, u64* pivot_keys, i64* below, i64* upto, unsigned char* is_new
) {
    auto weight_upto = [&](i64 place) {
        double sum = 0.0;
        for (int limb = n_limbs - 1; limb >= 0; --limb) sum = sum * 0x1p32 + (double)running[limb * n_keys + place];
        return sum;
    };
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        // The last run that begins at this pivot or before.
        int run = first_not(1, n_runs, [&](int run) { return first[run] <= i; }) - 1;
        i64 begin = start[run], end = start[run + 1], number = i - first[run];
        i64 n_own = (first[run + 1] - first[run]) / (running ? 2 : 1), steps = max(n_own - 1, (i64)1);
        i64 whole = (end - begin - 1) / steps, rest = (end - begin - 1) % steps;
        i64 place = begin + number * whole + number * rest / steps;
        if (number >= n_own) {
            double before = begin ? weight_upto(begin - 1) : 0.0, all = weight_upto(end - 1) - before;
            double share = before + all * ((double)(number - n_own + 1) / (double)n_own);
            place = first_not(begin, end - 1, [&](i64 at) { return weight_upto(at) < share; });
        }
        u64 key = keys[place];
        i64 low = first_not(begin, place, [&](i64 at) { return keys[at] < key; });
        i64 behind = first_not(place + 1, end, [&](i64 at) { return keys[at] <= key; });
        if (running) {  // places among all runs
            pivot_keys[i] = key, below[i] = low, upto[i] = behind;
            continue;
        }
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

// --- Guessed brackets -----------------------------------------------------------------------------

// Find where a bracket of the weight up to a share begins, before the first element in doubt, or where it ends:
// counted from the start of a group, whose elements are in a sorted sample up to `stop`. See `groups_guess`. To first
// order, the share of the sampled weight up to an element has the variance that
// `maths.weight_guess.WeightedSample.places` tells. One more weight, of 1, is for one element more or less.
__device__ __forceinline__ i64 place_of_weight(
    const double* sums, const double* squares, i64 start, i64 stop, double share, double rate, double width, bool ends
) {
    double begin = start ? sums[start - 1] : 0.0, before = start ? squares[start - 1] : 0.0;
    double weight = sums[stop - 1] - begin, square = squares[stop - 1] - before;
    double window = weight > 0.0 ? fmin(rate * square / (weight * weight), 1.0) : 0.0;
    share += window * ((ends ? 1.0 : 0.0) - share);
    auto place_of = [&](double sum) { return first_not(start, stop, [&](i64 at) { return sums[at] < sum; }); };
    double below = squares[min(place_of(begin + share * weight), stop - 1)] - before, others = square - below;
    double doubt = width * sqrt((1.0 - share) * (1.0 - share) * below + share * share * fmax(others, 0.0)) + 1.0;
    return place_of(begin + share * weight + (ends ? doubt : -doubt)) - start - (ends ? 0 : 1);
}

// By one block for each group: guess brackets of some elements of the group, by a sample of all groups that
// is sorted by group and value. `shares` are the ranks of these elements, as shares of the group's elements.
// A bracket reaches `width` standard deviations to either side. A group has two ends for each element,
// ascending, and they may be equal. If a bracket is open, the largest key stands for its end.
//
// With running sums of the sample's weights, of at most 1, and of their squares, shares are those of the weight.
// Brackets then hold windows of the weight as `maths.weight_finish.window_means` has, if `rate` is the share of all
// elements that is in the sample, or none if it is 0.
//
// For boxes there are two brackets more: of all that is surely beyond a fence or the nearest inside, on each
// side. One end of each is open. `tops` gets for each group the power of two at which its elements are cut to be
// summed.
//
// Where `taken` is given, ends are candidates of the cells before them, so that each is behind all others there when
// these are sorted.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) groups_guess(
    const u64* keys, const u32* numbers, i64 n, int n_groups, const double* shares, int n_shares, double width,
    const double* sums, const double* squares, double rate, double whis, int by_quantiles, Key* ends, int* first,
    unsigned char* wanted, u64* totals, u64* taken, u32* cells, int* tops
) {
    // Small integers have keys of their own size: the kernel that counts takes none for this end otherwise.
    constexpr Key OPEN = KIND != FLOATING && BITS < 32 ? (Key)(Word)~Word(0) : ~Key(0);
    extern __shared__ u64 memory[];
    __shared__ i64 bounds[2];
    const int group = blockIdx.x, n_guessed = 2 * n_shares, n_ends = n_guessed + (tops ? 2 : 0);
    const int before = group * n_ends;
    Key* own = (Key*)memory;
    int* ranks = (int*)(own + n_ends);  // of the ends; -1 for an open end below
    if (threadIdx.x < 2) {
        bounds[threadIdx.x] = first_not((i64)0, n, [&](i64 at) {
            return (i64)(numbers ? numbers[at] : keys[at] >> 32) < group + (int)threadIdx.x;
        });
    }
    __syncthreads();
    const i64 size = bounds[1] - bounds[0];
    const u64* its = keys + bounds[0];
    for (int i = threadIdx.x; i < n_guessed; i += USUAL_THREADS) {
        double share = shares[i / 2], middle = share * (double)size;
        double reach = width + ceil(width * sqrt(fmax(middle * (1.0 - share), 0.0)));
        i64 place = (i64)(i % 2 ? ceil(middle) + reach : floor(middle) - 1.0 - reach);
        if (sums && size) place = place_of_weight(sums, squares, bounds[0], bounds[1], share, rate, width, i % 2);
        own[i] = place < 0 || place >= size ? OPEN : (Key)its[place];
        ranks[i] = place < 0 ? -1 : 0;
    }
    __syncthreads();
    if (tops && threadIdx.x == 0) {
        auto number_of = [](Key key) { return as_double(value_of(word_of(key))); };
        bool is_open = false;  // nothing is known of a quartile
        for (int i = 0; i < n_guessed; ++i) is_open |= own[i] == OPEN;
        double first = number_of(own[1]), third = number_of(own[4]), least = whis * fmax(third - first, 0.0);
        double low = fmin(by_quantiles ? number_of(own[7]) : first - least, first);
        double high = fmax(by_quantiles ? number_of(own[8]) : third + least, third);
        i64 below = first_not((i64)0, size, [&](i64 at) { return number_of((Key)its[at]) < low; });
        i64 above = first_not((i64)0, size, [&](i64 at) { return !(number_of((Key)its[at]) > high); }) - 1;
        // Without candidates at ends, no end may be beyond a fence.
        if (!taken && !is_open) is_open = (Key)its[below] > own[0] || (Key)its[above] < own[n_guessed - 1];
        for (int i = 0; i < n_guessed && is_open && !taken; ++i) own[i] = OPEN;
        if (is_open) below = size, above = -1;
        Key* more = own + n_guessed;
        more[0] = above >= 0 ? (Key)its[above] : OPEN, more[1] = below < size ? (Key)its[below] : OPEN;
        ranks[n_guessed] = above < 0 ? -1 : 0, ranks[n_guessed + 1] = 0;
        tops[group] = 0;
        auto number_at = [&](int i) { return own[i] == OPEN ? 0.0 : number_of(own[i]); };
        find_top_near(n_ends, number_at, PIECES, tops + group);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_ends; i += USUAL_THREADS) {
        Key end = own[i];
        int rank = 0;
        for (int j = 0; j < n_ends; ++j) rank += own[j] < end || (own[j] == end && j < i);
        ends[before + rank] = end;
        if (ranks[i] >= 0) ranks[i] = rank;
        if (!taken) continue;
        u32 cell = before + group + rank;
#if BITS == 64
        taken[before + rank] = end, cells[before + rank] = cell;
#else
        taken[before + rank] = (u64)cell << 32 | end;
#endif
    }
    __syncthreads();
    for (int cell = threadIdx.x; cell <= n_ends; cell += USUAL_THREADS) {
        int depth = tops != nullptr;  // brackets around the cell
        for (int i = 0; i < n_ends; ++i) depth += ranks[i] < cell ? 1 - 2 * (i % 2) : 0;
        wanted[before + group + cell] = depth > 0;
    }
    if (threadIdx.x) return;
    first[group] = before;
    if (group + 1 == n_groups) first[n_groups] = before + n_ends, *totals = taken ? (u64)(before + n_ends) : 0;
}

// --- Counting at ends -----------------------------------------------------------------------------

#if IN_SHARED

// Counts in shared memory. Behind them is one for each lane that nobody reads, for elements that do not count:
// without branches, the additions of several elements overlap.
struct Counts {
    typedef int Place;
    u32* own;
    Place n;

    __device__ __forceinline__ void start() {
        for (Place i = threadIdx.x; i < n + 32; i += GROUPS_THREADS) own[i] = 0;
        __syncthreads();
    }
    __device__ __forceinline__ void add(Place place, bool is_some) {
        atomicAdd(own + (is_some ? place : n + threadIdx.x % 32), 1u);
    }
    template <class Total>
    __device__ __forceinline__ void finish(const Total& total) {
        __syncthreads();
        for (Place i = threadIdx.x; i < n; i += GROUPS_THREADS) {
            if (own[i]) atomicAdd(total(i), (u64)own[i]);
        }
    }
};

#else

// Counts in device memory. One group may have nearly all elements, and additions to one place wait for
// each other. So the block caches the first places that it meets in shared memory.
struct Counts {
    typedef i64 Place;
    u64* counts;
    i64* first_places;  // the cached places, or -1
    u32* own;

    __device__ __forceinline__ void start() {
        __shared__ i64 places[GROUPS_HELD];
        __shared__ u32 held[GROUPS_HELD];
        first_places = places, own = held;
        for (int i = threadIdx.x; i < GROUPS_HELD; i += GROUPS_THREADS) first_places[i] = -1, own[i] = 0;
        __syncthreads();
    }
    __device__ __forceinline__ void add(Place place, bool is_some) {
        if (!is_some) return;
        int slot = (int)(place % GROUPS_HELD);
        i64 its = ((volatile i64*)first_places)[slot];
        if (its < 0) {
            its = (i64)atomicCAS((u64*)first_places + slot, ~(u64)0, (u64)place);
            if (its < 0) its = place;
        }
        if (its == place) atomicAdd(own + slot, 1u); else atomicAdd(counts + place, (u64)1);
    }
    template <class Total>
    __device__ __forceinline__ void finish(const Total&) {
        __syncthreads();
        for (int i = threadIdx.x; i < GROUPS_HELD; i += GROUPS_THREADS) {
            if (own[i]) atomicAdd(counts + first_places[i], (u64)own[i]);
        }
    }
};

#endif

#if IN_SHARED

// The ends of all groups in shared memory: the first of each group, then the second of each, and so on,
// so that threads with different groups use different banks. Behind its own, a group has the largest key.
struct GroupEnds {
    const Key* ends;
    const int* first;
    int n_groups;

    // Count the ends of a group below a key, without branches; tell whether the next one equals it.
    __device__ __forceinline__ int below(int group, Key key, bool& is_end) const {
        const Key* at = ends + group;
        int n = 0;
#pragma unroll
        for (int half = 1 << END_STEPS >> 1; half; half >>= 1) {
            if (at[(half - 1) * n_groups] < key) at += half * n_groups, n += half;
        }
        is_end = *at == key;
        if (KIND != FLOATING && BITS >= 32) is_end = is_end && n < first[group + 1] - first[group];
        return n;
    }
};

#else

struct GroupEnds {
    const Key* ends;
    const int* first;

    __device__ __forceinline__ int below(int group, Key key, bool& is_end) const {
        int start = first[group], stop = first[group + 1];
        int end = first_not(start, stop, [&](int at) { return ends[at] < key; });
        is_end = end < stop && ends[end] == key;
        return end - start;
    }
};

#endif

// Add a weight to a sum in shared memory, in units of 2^unit. Its digits of 32 bits lie `stride` apart; there is
// one more than weights have.
__device__ __forceinline__ void add_weight(u32* sum, int stride, Held held, int unit, int n_limbs) {
    Weighed weight = weighed(held);
    u64 carry = 0;
    for (int limb = 0; limb <= n_limbs; ++limb) {
        u64 part = (limb < n_limbs ? (u32)digits_from(weight, unit, limb) : 0) + carry;
        carry = part >> 32;
        if ((u32)part == 0) continue;
        u32 before = atomicAdd(sum + limb * stride, (u32)part);
        carry += before + (u32)part < before;
    }
}

// A group of k ends has k + 1 cells: before, between and behind them. `first` is the place of its first
// end. `totals` has the number of candidates; the number of elements in each cell, and of those that equal
// its upper end; and for each group the number of missing elements. The candidates are the elements of
// wanted cells, in any order: keys with the cell in the upper half, or with an array of cells.
//
// Each row of blocks reads all elements, and looks at those of the next `at_once` groups, whose tables fit in shared
// memory. Without ROWS, there is one row.
//
// With weights, only elements in groups below `n_groups` are looked at. `sums` gets the weight of each cell, and of the
// elements at its upper end, in digits of 32 bits of units of 2^unit; `their_weights` those of the candidates.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_tally(
    const Word* values, const Code* codes, i64 n, const Key* ends, const int* first,
    const unsigned char* wanted, int n_groups, int n_ends, int at_once, u64* totals, u64* taken, u32* cells,
    u64 room, const Held* weights, int unit, int n_limbs, u64* sums, Held* their_weights
) {
    typedef Counts::Place Place;
    const i64 all_cells = (i64)n_ends + n_groups;
    const int first_group = ROWS ? blockIdx.y * at_once : 0, first_end = ROWS ? first[first_group] : 0;
    const i64 first_cell = (i64)first_end + first_group;
    if (ROWS) {
        n_groups = min(at_once, n_groups - first_group), n_ends = first[first_group + n_groups] - first_end;
        first += first_group, ends += first_end, wanted += first_cell;
    }
    Place n_cells = (Place)n_ends + n_groups;
    // The number of a count or a digit among those of all groups. There is a row of them for each cell.
    auto among_all = [&](Place i) { return ROWS ? i / n_cells * all_cells + first_cell + i % n_cells : (i64)i; };
#if IN_SHARED  // and so are the tables
    extern __shared__ u64 memory[];
    constexpr int N_ROWS = 1 << END_STEPS;
    Place n_counts = 2 * n_cells + n_groups;
    Key* own_ends = (Key*)memory;
    int* own_first = (int*)(own_ends + N_ROWS * n_groups);
    Counts counts = {(u32*)(own_first + n_groups + 1), n_counts};
    u32* own_sums = counts.own + n_counts + 32;
    const int n_digits = WEIGHTED ? 2 * n_cells * (n_limbs + 1) : 0;
    unsigned char* own_wanted = (unsigned char*)(own_sums + n_digits);
    for (int i = threadIdx.x; i < n_digits; i += GROUPS_THREADS) own_sums[i] = 0;
    for (int i = threadIdx.x; i < N_ROWS * n_groups; i += GROUPS_THREADS) {
        int group = i % n_groups, end = first[group] + i / n_groups;
        own_ends[i] = end < first[group + 1] ? ends[end - first_end] : ~Key(0);
    }
    for (int i = threadIdx.x; i <= n_groups; i += GROUPS_THREADS) own_first[i] = first[i] - first_end;
    for (int i = threadIdx.x; i < n_cells; i += GROUPS_THREADS) own_wanted[i] = wanted[i];
    first = own_first, wanted = own_wanted;
    const GroupEnds of_groups = {own_ends, own_first, n_groups};
#else
    Counts counts = {totals + 1};
    const GroupEnds of_groups = {ends, first};
#endif
    counts.start();
    constexpr int N_WARPS = GROUPS_THREADS / 32;
    constexpr i64 TILE = GROUPS_THREADS * GROUPS_EACH;
    __shared__ u32 before_warp[N_WARPS];
    __shared__ u64 begin;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 start = blockIdx.x * TILE; start < n; start += gridDim.x * TILE) {
        Word words[GROUPS_EACH];
        int group[GROUPS_EACH];
        Place places[GROUPS_EACH];
        Key keys[GROUPS_EACH];
        Held held[GROUPS_EACH];
        u32 takes = 0;
        const Word* its = values + start + threadIdx.x;
        const Code* own_codes = codes + start + threadIdx.x;
        const Held* own_weights = weights + start + threadIdx.x;
        auto read = [&](i64 n_left) {
#pragma unroll
            for (int k = 0; k < GROUPS_EACH; ++k) {
                bool is_present = k * GROUPS_THREADS < n_left;
                words[k] = is_present ? __ldcs(its + k * GROUPS_THREADS) : Word(0);
                group[k] = is_present ? (int)__ldcs(own_codes + k * GROUPS_THREADS) : -1;
                if (WEIGHTED) held[k] = is_present ? __ldcs(own_weights + k * GROUPS_THREADS) : Held(0);
                if (ROWS) group[k] -= group[k] < 0 ? 0 : first_group;
                if ((ROWS || WEIGHTED) && group[k] >= n_groups) group[k] = -1;
            }
        };
        if (n - start >= TILE) read(TILE);  // whole tiles need no comparisons
        else read(n - start - threadIdx.x);
#pragma unroll
        for (int k = 0; k < GROUPS_EACH; ++k) {
            keys[k] = key_of(words[k]);
            bool is_some = group[k] >= 0, is_valid = !is_missing(value_of(words[k])), is_end;
            int its_group = is_some ? group[k] : 0;
            int cell = of_groups.below(its_group, keys[k], is_end) + first[its_group] + its_group;
            if (is_some && is_valid && !is_end && wanted[cell]) takes |= 1u << k;
            places[k] = is_valid ? cell + (is_end ? n_cells : 0) : 2 * n_cells + its_group;
        }
        // Apart, so that searches need not wait for additions to shared memory.
#pragma unroll
        for (int k = 0; k < GROUPS_EACH; ++k) counts.add(places[k], group[k] >= 0);
#if WEIGHTED
#pragma unroll
        for (int k = 0; k < GROUPS_EACH; ++k) {
            if (group[k] < 0 || places[k] >= 2 * n_cells) continue;
            add_weight(own_sums + places[k], 2 * n_cells, held[k], unit, n_limbs);
        }
#endif
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
                taken[at] = keys[k], cells[at] = (u32)(first_cell + places[k]);
#else
                taken[at] = (u64)(u32)(first_cell + places[k]) << 32 | keys[k];
#endif
                if (WEIGHTED) their_weights[at] = held[k];
            }
            ++at;
        }
        __syncthreads();  // before others write to `begin`
    }
    counts.finish([&](Place i) {
        return totals + 1 + (i < 2 * n_cells ? among_all(i) : 2 * (all_cells - n_cells) + first_group + i);
    });
#if WEIGHTED
    for (int i = threadIdx.x; i < n_digits; i += GROUPS_THREADS) {
        if (own_sums[i]) atomicAdd(sums + among_all(i), (u64)own_sums[i]);
    }
#endif
}

// --- How often each word occurs -------------------------------------------------------------------

#if BITS <= 16

// Find for each element the place of its word in the table of all groups. Without codes, consecutive
// runs of `width` elements are the groups.
extern "C" __global__ void __launch_bounds__(GROUPS_THREADS) groups_words(
    const Word* words, const Code* codes, i64 n, i64 width, int n_groups, int n_words, u64* totals
) {
#if IN_SHARED
    extern __shared__ u64 memory[];
    Counts counts = {(u32*)memory, n_groups * n_words};
#else
    Counts counts = {totals};
#endif
    counts.start();
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        i64 group = codes ? (i64)codes[i] : i / width;
        counts.add((Counts::Place)(group * n_words + words[i]), group >= 0);
    }
    counts.finish([&](Counts::Place i) { return totals + i; });
}

#endif
