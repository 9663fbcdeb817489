// Moving windows over a padded chunk: the order statistics of windows of many elements, by tiles.
//
// A block sorts the elements of a tile and puts their ranks in their places; keys of up to 16 bits stand
// for themselves. The bits of these ranks make a wavelet matrix (Claude, Navarro & Ordóñez, Information Systems 47, 2015; for images: Moroto &
// Umetani, ACM Transactions on Graphics 41, 2022): from one level to the next, elements with a bit of 0
// come first, and otherwise keep their order. So a run of neighbours stays a run on every level. The
// element of a rank among the runs of a window is found bit by bit, by counting the zeros of each run.
// That takes two lookups a level and run, however long runs are.
//
// Defined before this text, besides the definitions for lanes.cuh: AXES (number of axes), RUNS
// (number of runs of a window), UNROLLED (the same, or 1 if they do not fit in registers), DEVIATES (1 if
// the question is about distances from the median of the window), TILE_THREADS and TILE_BLOCKS.

#include "deviations.cuh"
#include "padding.cuh"

extern __shared__ __align__(16) unsigned char scratch[];

typedef unsigned short Place;  // of an element in its tile

struct Tiling {
    Axes axes;
    i64 n_tiles;
    i64 tiles[AXES];    // number of tiles
    int outs[AXES];     // windows of a tile
    int extents[AXES];  // elements of a tile
    int distances[AXES];  // of neighbours in the order of a tile
    int offsets[RUNS];       // where runs begin, relative to the window
    int lengths[RUNS];
    int n_outs, n_elements;
    int size, levels;        // 2 to the power of levels
};

// A word of a level: 32 bits, and how many bits are 1 before them.
struct __align__(8) Marks {
    u32 bits, before;
};

__device__ __forceinline__ int ones_before(const Marks* level, int place) {
    Marks marks = level[place >> 5];
    return (int)marks.before + __popc(marks.bits & ((1u << (place & 31)) - 1));
}

// --- Sorting --------------------------------------------------------------------------------------

// An entry is a key and its place. Keys of 64 bits leave no room for it: they stay in their places.
#if BITS == 64
typedef Place Entry;
__device__ __forceinline__ bool is_before(const Key* keys, Entry a, Entry b) { return keys[a] < keys[b]; }
__device__ __forceinline__ Entry entry_of(Key, int place) { return (Place)place; }
#else
typedef u64 Entry;
__device__ __forceinline__ bool is_before(const Key*, Entry a, Entry b) { return a < b; }
__device__ __forceinline__ Entry entry_of(Key key, int place) { return (u64)key << 16 | (u32)place; }
#endif

// Where an entry lies: with gaps, so that threads that have 8 neighbours each use all banks.
__device__ __forceinline__ int with_gaps(int i) { return BITS == 64 ? i : i + (i >> 3); }

// Do STEPS steps of a bitonic network, whose pairs are `apart`, `apart / 2`, ... from each other.
template <int STEPS>
__device__ __forceinline__ void exchange_entries(
    const Key* keys, Entry* entries, int size, int length, int apart
) {
    int nearest = apart >> (STEPS - 1);
    __syncthreads();
    for (int t = threadIdx.x; t < size >> STEPS; t += TILE_THREADS) {
        int first = (t & -nearest) << STEPS | (t & (nearest - 1));
        bool descends = first & length;
        Entry own[1 << STEPS];
#pragma unroll
        for (int e = 0; e < 1 << STEPS; ++e) own[e] = entries[with_gaps(first + e * nearest)];
#pragma unroll
        for (int step = STEPS - 1; step >= 0; --step) {
#pragma unroll
            for (int e = 0; e < 1 << STEPS; ++e) {
                if (e >> step & 1) continue;
                Entry a = own[e], b = own[e | 1 << step];
                bool moves = is_before(keys, descends ? a : b, descends ? b : a);
                own[e] = moves ? b : a, own[e | 1 << step] = moves ? a : b;
            }
        }
#pragma unroll
        for (int e = 0; e < 1 << STEPS; ++e) entries[with_gaps(first + e * nearest)] = own[e];
    }
}

__device__ __forceinline__ void sort_entries(const Key* keys, Entry* entries, int size) {
    for (int length = 2; length <= size; length *= 2) {
        int apart = length / 2;
        for (; apart >= 4; apart /= 8) exchange_entries<3>(keys, entries, size, length, apart);
        if (apart == 2) exchange_entries<2>(keys, entries, size, length, apart);
        if (apart == 1) exchange_entries<1>(keys, entries, size, length, apart);
    }
    __syncthreads();
}

// --- Levels ---------------------------------------------------------------------------------------

// Count the bits before each word of a level of `size` bits, with one warp.
__device__ __forceinline__ void count_before(Marks* level, int size) {
    int n_words = size / 32, each = (n_words + 31) / 32;
    int first = min((int)threadIdx.x * each, n_words), last = min(first + each, n_words), own = 0;
    for (int i = first; i < last; ++i) own += __popc(level[i].bits);
    int before = sum_upto(own);
    if (threadIdx.x == 31) level[n_words].bits = 0, level[n_words].before = (u32)before;
    before -= own;
    for (int i = first; i < last; ++i) {
        level[i].before = (u32)before;
        before += __popc(level[i].bits);
    }
}

// Make the levels of ranks, which are overwritten, and count the zeros of each.
__device__ __forceinline__ void make_levels(
    Place* ranks, Place* others, Marks* levels, int* zeros, int size, int n_levels
) {
    for (int bit = n_levels - 1; bit >= 0; --bit) {
        Marks* level = levels + (n_levels - 1 - bit) * (size / 32 + 1);
        for (int i = threadIdx.x; i < size; i += TILE_THREADS) {
            u32 word = __ballot_sync(~0u, ranks[i] >> bit & 1);
            if (i % 32 == 0) level[i / 32].bits = word;
        }
        __syncthreads();
        if (threadIdx.x < 32) count_before(level, size);
        __syncthreads();
        int n_zeros = size - (int)level[size / 32].before;
        if (threadIdx.x == 0) zeros[n_levels - 1 - bit] = n_zeros;
        for (int i = threadIdx.x; i < size; i += TILE_THREADS) {
            int ones = ones_before(level, i);
            others[ranks[i] >> bit & 1 ? n_zeros + ones : i - ones] = ranks[i];
        }
        __syncthreads();
        Place* made = others;
        others = ranks, ranks = made;
    }
}

// --- Tiles ----------------------------------------------------------------------------------------

struct Tile {
    const Tiling& tiling;
    const Word* chunk;
    const Keep* keeps;
    Word fill;  // in place of what is outside, if `fills` is 1
    int fills;
    i64 origin[AXES];  // the first window of the tile

    __device__ __forceinline__ Tile(
        const Tiling& tiling, const Word* chunk, const Keep* keeps, Word fill, int fills, i64 tile
    ) : tiling(tiling), chunk(chunk), keeps(keeps), fill(fill), fills(fills) {
#pragma unroll
        for (int d = AXES - 1; d >= 0; --d) {
            origin[d] = tile % tiling.tiles[d] * tiling.outs[d];
            tile /= tiling.tiles[d];
        }
    }

    // Get the key at coordinates in the tile: the largest one for elements that are left out.
    // `state` becomes 0 if the element is valid, 1 if it is left out, 2 if it is missing.
    __device__ __forceinline__ Key key_at(const int (&at)[AXES], int& state) const {
        i64 place = 0;
        bool is_inside = true;
#pragma unroll
        for (int d = 0; d < AXES; ++d) {
            i64 coordinate = origin[d] * tiling.axes.steps[d] + at[d];
            place += source_of(tiling.axes, d, coordinate, is_inside) * tiling.axes.strides[d];
        }
        state = 1;
        if (is_inside ? KEEPS && !keeps[place] : !fills) return LARGEST;
        Word word = is_inside ? chunk[place] : fill;
        state = is_missing(value_of(word)) ? 2 : 0;
        return state ? LARGEST : key_of(word);
    }

    // The key at a place of the tile.
    __device__ __forceinline__ Key key_at(int place) const {
        int at[AXES], state;
#pragma unroll
        for (int d = 0; d < AXES; ++d) {
            at[d] = (u32)place / (u32)tiling.distances[d] % (u32)tiling.extents[d];
        }
        return key_at(at, state);
    }
};

// Find what the levels are made of, a rank in the tile or a key, by the rank in a window. Not inlined,
// because the arrays of its runs, where they begin and end and the number of ones before, are registers.
__device__ __noinline__ int place_of_rank(
    const Tiling& tiling, const Marks* levels, const int* n_zeros, int start, int rank
) {
    u32 ends[RUNS], ones[RUNS];
#pragma unroll UNROLLED
    for (int j = 0; j < RUNS; ++j) {
        u32 first = (u32)(start + tiling.offsets[j]);
        ends[j] = first | (first + tiling.lengths[j]) << 16;
    }
    int sorted = 0;
    for (int bit = tiling.levels - 1; bit >= 0; --bit) {
        int zeros = 0;
#pragma unroll UNROLLED
        for (int j = 0; j < RUNS; ++j) {
            int first = (int)(ends[j] & 0xffffu), last = (int)(ends[j] >> 16);
            u32 low = (u32)ones_before(levels, first), high = (u32)ones_before(levels, last);
            ones[j] = low | high << 16;
            zeros += last - first - (int)(high - low);
        }
        bool is_one = rank >= zeros;
        u32 first_ones = (u32)*n_zeros++ * 0x10001u;
        if (is_one) rank -= zeros, sorted |= 1 << bit;
#pragma unroll UNROLLED
        for (int j = 0; j < RUNS; ++j) ends[j] = is_one ? first_ones + ones[j] : ends[j] - ones[j];
        levels += tiling.size / 32 + 1;
    }
    return sorted;
}

// Count the marks in a window.
__device__ __forceinline__ int marks_of(const Tiling& tiling, const Marks* level, int start) {
    int n = 0;
    for (int j = 0; j < RUNS; ++j) {
        int first = start + tiling.offsets[j];
        n += ones_before(level, first + tiling.lengths[j]) - ones_before(level, first);
    }
    return n;
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILE_BLOCKS) window_tiles(
    const Word* chunk, const Keep* keeps, const __grid_constant__ Tiling tiling,
    const __grid_constant__ Asked asked, Answer* answers, int* valid, Flags* flags
) {
    int size = tiling.size, n_words = size / 32 + 1;
    __shared__ int zeros[TILE_LEVELS];
    Marks* left_out = (Marks*)scratch;
    Marks* missing = left_out + n_words;
    Place* ranked = (Place*)(missing + n_words);  // of each place: its rank, or its key if that is short
#if BITS <= 16
    Place* others = ranked + size;
#else
    Place* sorted = ranked + size;  // the place of each rank
#if BITS == 64
    Key* keys = (Key*)(sorted + size);
    Entry* entries = sorted;
    Place* others = (Place*)keys;
#else
    Key* keys = 0;
    Entry* entries = (Entry*)(sorted + size);
    Place* others = (Place*)entries;
#endif
#endif
    Marks* levels = (Marks*)(others + size);
    for (i64 number = blockIdx.x; number < tiling.n_tiles; number += gridDim.x) {
        Tile tile(tiling, chunk, keeps, (Word)asked.fill, asked.fills, number);
        __syncthreads();
        for (int i = threadIdx.x; i < n_words; i += TILE_THREADS) {
            left_out[i].bits = missing[i].bits = 0;
        }
        __syncthreads();
        int is_partial = 0;
        for (int i = threadIdx.x; i < size; i += TILE_THREADS) {
            Key key = LARGEST;
            int place = i;
            if (i < tiling.n_elements) {
                int at[AXES], state, rest = i;
                place = 0;
#pragma unroll
                for (int d = AXES - 1; d >= 0; --d) {
                    u32 next = (u32)rest / (u32)tiling.extents[d];
                    at[d] = rest - (int)(next * (u32)tiling.extents[d]), rest = (int)next;
                    place += at[d] * tiling.distances[d];
                }
                key = tile.key_at(at, state);
                if (state) {
                    is_partial = 1;
                    atomicOr(&(state == 2 ? missing : left_out)[place >> 5].bits, 1u << (place & 31));
                }
            }
#if BITS <= 16
            ranked[place] = (Place)key;
#else
            if (BITS == 64) keys[place] = key;
            entries[with_gaps(i)] = entry_of(key, place);
#endif
        }
        is_partial = __syncthreads_or(is_partial);
        if (is_partial && threadIdx.x < 32) count_before(left_out, size), count_before(missing, size);
#if BITS > 16
        sort_entries(keys, entries, size);
        for (int i = threadIdx.x; i < size; i += TILE_THREADS) {
            Place place = (Place)entries[with_gaps(i)];
            ranked[place] = (Place)i, sorted[i] = place;
        }
#endif
        __syncthreads();
        make_levels(ranked, others, levels, zeros, size, tiling.levels);
        for (int i = threadIdx.x; i < tiling.n_outs; i += TILE_THREADS) {
            int start = 0, rest = i;
            i64 window = 0;
            bool is_inside = true;
#pragma unroll
            for (int d = AXES - 1; d >= 0; --d) {
                u32 next = (u32)rest / (u32)tiling.outs[d];
                int at = rest - (int)(next * (u32)tiling.outs[d]);
                rest = (int)next;
                is_inside &= tile.origin[d] + at < tiling.axes.shape[d];
                window += (tile.origin[d] + at) * tiling.axes.places[d];
                start += at * (int)tiling.axes.steps[d] * tiling.distances[d];
            }
            if (!is_inside) continue;
            int n_missing = is_partial ? marks_of(tiling, missing, start) : 0;
            int n_valid = asked.n - n_missing - (is_partial ? marks_of(tiling, left_out, start) : 0);
            if (valid) valid[window] = n_valid;
            bool has_none = n_valid < asked.least || (n_missing && !asked.skips_missing);
            for (int a = 0; a < asked.n_answers; ++a) {
                i64 row = (i64)a * (asked.n + 1) + n_valid;
                Answer* answer = answers + (i64)a * tiling.axes.n_windows + window;
                if (has_none) {
                    *answer = no_answer();
                    continue;
                }
                auto key_at = [&](int rank) {
                    int place = place_of_rank(tiling, levels, zeros, start, rank);
#if BITS <= 16
                    return (Key)place;
#else
                    return tile.key_at(sorted[place]);
#endif
                };
#if DEVIATES
                *answer = deviation_of(n_valid, key_at, asked.scale, flags);
#else
                i64 lower = asked.ranks[row];
                i64 upper = asked.ranks[(i64)asked.n_answers * (asked.n + 1) + row];
                Key low = key_at((int)lower), high = upper == lower ? low : key_at((int)upper);
                *answer = mixed(low, high, asked.weights[row], asked.mixes, flags);
#endif
            }
        }
    }
}
