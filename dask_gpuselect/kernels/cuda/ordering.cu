// Sorting: keys of elements and back, and elements dealt out between marks in one read and one write.
//
// Marks are keys that ascend, padded with the largest key to one less than a power of two. Class 2 * i
// is behind mark i - 1 and before mark i, class 2 * i + 1 equals mark i. Behind all marks are two more:
// the largest key, which missing elements have, has one of its own, the last.

// The key that sorting has for an element: that of missing ones is the largest.
__device__ __forceinline__ Key sorted_key(Word word) {
#if KIND == FLOATING
    if (is_missing(value_of(word))) return LARGEST;
#endif
    return key_of(word);
}

// Keys of elements, maybe in their place.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS) keys_of_words(
    const Word* words, i64 n, Word* keys
) {
    i64 step = (i64)gridDim.x * DEAL_THREADS;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * DEAL_THREADS + threadIdx.x; i < n; i += step) {
        keys[i] = Word(sorted_key(words[i]));
    }
}

// Elements of keys, in their place.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS) words_of_keys(Word* keys, i64 n) {
    i64 step = (i64)gridDim.x * DEAL_THREADS;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * DEAL_THREADS + threadIdx.x; i < n; i += step) {
        keys[i] = word_of(Key(keys[i]));
    }
}

// --- Classes --------------------------------------------------------------------------------------

constexpr u32 NO_CLASS = ~0u;

__device__ __forceinline__ u32 class_of(Key key, const Key* marks, u32 room, u32 n_marks) {
    u32 below = 0;  // marks
    for (u32 step = room / 2; step; step /= 2) {
        if (marks[below + step - 1] < key) below += step;
    }
    if (below < n_marks) return 2 * below + (marks[below] == key);
    return 2 * n_marks + (key == LARGEST);
}

// Count an element of each lane of a warp that has a class: its place among those of its block. Of
// sorted data all lanes have one class, and adding one by one would take 32 times as long.
__device__ __forceinline__ u32 counted(u32* counts, u32 its) {
    u32 lane = threadIdx.x % 32, first = __shfl_sync(ALL_LANES, its, 0);
    if (!__all_sync(ALL_LANES, its == first)) return its == NO_CLASS ? 0 : atomicAdd(counts + its, 1u);
    if (first == NO_CLASS) return 0;
    u32 before = lane == 0 ? atomicAdd(counts + first, 32u) : 0;
    return __shfl_sync(ALL_LANES, before, 0) + lane;
}

// How many elements each class has; `taken` is as of `deal`.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS) deal_counts(
    const Word* chunk, i64 n, const i64* layout, const Key* marks, u32 room, u32 n_marks, u64* taken
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    Key* own_marks = (Key*)scratch;
    u32* counts = (u32*)(own_marks + room);
    u32 n_classes = 2 * n_marks + 2;
    for (u32 i = threadIdx.x; i < room; i += DEAL_THREADS) own_marks[i] = marks[i];
    for (u32 i = threadIdx.x; i < n_classes; i += DEAL_THREADS) counts[i] = 0;
    __syncthreads();
    i64 step = (i64)gridDim.x * DEAL_THREADS;
    for (i64 start = (i64)blockIdx.x * DEAL_THREADS; start < n; start += step) {
        i64 i = start + threadIdx.x;
        bool is_in = i < n;
        Key key = sorted_key(is_in ? element(chunk, layout, i) : Word(0));
        counted(counts, is_in ? class_of(key, own_marks, room, n_marks) : NO_CLASS);
    }
    __syncthreads();
    for (u32 c = threadIdx.x; c < n_classes; c += DEAL_THREADS) {
        if (counts[c]) atomicAdd(taken + c * DEAL_APART, (u64)counts[c]);
    }
}

// --- Dealing --------------------------------------------------------------------------------------

constexpr int DEAL_TILE = DEAL_THREADS * DEAL_EACH;
constexpr i64 NOWHERE = -(1ll << 62);

// Where each class begins, by their counts. One warp.
__device__ __forceinline__ void add_up(const u32* counts, u32* starts, u32 n_classes) {
    u32 lane = threadIdx.x, before = 0;
    for (u32 first = 0; first < n_classes; first += 32) {
        u32 own = first + lane < n_classes ? counts[first + lane] : 0, sum = own;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            u32 lower = __shfl_up_sync(ALL_LANES, sum, by);
            if (lane >= by) sum += lower;
        }
        if (first + lane < n_classes) starts[first + lane] = before + sum - own;
        before += __shfl_sync(ALL_LANES, sum, 31);
    }
}

// The keys of the elements between marks, those of one class in any order: those of class 2 * i are
// written from `rooms[2 * i]` to `rooms[2 * i + 1]`, places as numbers of keys from address 0. What
// finds no room is counted and not written. Nor are other classes, each of which has one key.
//
// A block takes a tile at a time. It brings the tile in order in shared memory, reserves a run of the
// output for each class, and writes runs: neighbouring threads write neighbouring keys.
//
// `taken` has zeros, one for each class, so far apart that blocks do not wait for other classes.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS, 2) deal(
    const Word* chunk, i64 n, const i64* layout, const Key* marks, u32 room, u32 n_marks, u64* taken,
    const i64* rooms
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32 n_classes = 2 * n_marks + 2;
    i64* shifts = (i64*)scratch;  // from places in the tile to places where keys are written
    Word* tile = (Word*)(shifts + n_classes);
    Key* own_marks = (Key*)(tile + DEAL_TILE);
    u32* counts = (u32*)(own_marks + room);
    u32* starts = counts + n_classes;
    unsigned short* classes = (unsigned short*)(starts + n_classes);
    for (u32 i = threadIdx.x; i < room; i += DEAL_THREADS) own_marks[i] = marks[i];
    for (u32 i = threadIdx.x; i < n_classes; i += DEAL_THREADS) counts[i] = 0;
    __syncthreads();
    for (i64 first = (i64)blockIdx.x * DEAL_TILE; first < n; first += (i64)gridDim.x * DEAL_TILE) {
        u32 n_here = (u32)min(n - first, (i64)DEAL_TILE);
        Word keys[DEAL_EACH];
        u32 placed[DEAL_EACH];  // the class, and the place in it among those of the tile
#pragma unroll
        for (int e = 0; e < DEAL_EACH; ++e) {
            u32 i = e * DEAL_THREADS + threadIdx.x;
            keys[e] = i < n_here ? element(chunk, layout, first + i) : Word(0);
        }
#pragma unroll
        for (int e = 0; e < DEAL_EACH; ++e) {
            Key key = sorted_key(keys[e]);
            keys[e] = Word(key);
            bool is_in = e * DEAL_THREADS + threadIdx.x < n_here;
            u32 its = is_in ? class_of(key, own_marks, room, n_marks) : NO_CLASS;
            u32 place = counted(counts, its);
            placed[e] = is_in ? its << 16 | place : NO_CLASS;
        }
        __syncthreads();
        if (threadIdx.x < 32) add_up(counts, starts, n_classes);
        __syncthreads();
        for (u32 c = threadIdx.x; c < n_classes; c += DEAL_THREADS) {
            u32 number = counts[c];
            counts[c] = 0;
            if (number == 0) continue;
            i64 before = (i64)atomicAdd(taken + c * DEAL_APART, (u64)number);
            i64 at = c % 2 ? NOWHERE : rooms[c] + before;
            shifts[c] = at >= 0 && at + number <= rooms[c + 1] ? at - starts[c] : NOWHERE;
        }
#pragma unroll
        for (int e = 0; e < DEAL_EACH; ++e) {
            if (placed[e] == NO_CLASS) continue;
            u32 its = placed[e] >> 16, place = starts[its] + (placed[e] & 0xffff);
            tile[place] = keys[e];
            classes[place] = (unsigned short)its;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < DEAL_EACH; ++e) {
            u32 i = e * DEAL_THREADS + threadIdx.x;
            if (i >= n_here) continue;
            i64 at = shifts[classes[i]] + i;
            // By its address: nvcc leaves out a store through a null pointer and an offset.
            if (at >= 0) *(Word*)(at * (i64)sizeof(Word)) = tile[i];
        }
    }
}
