// Sorting: conversion of elements to keys and back, and distribution of elements between marks in one
// read and one write.
//
// Marks are ascending keys, padded with the largest key to one less than a power of two. Class 2 * i is
// between mark i - 1 and mark i; class 2 * i + 1 equals mark i. Two classes follow all marks: the
// second of them is for the largest key, which missing elements have.

// Convert elements to keys; both may be in the same memory.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS) keys_of_words(
    const Word* words, i64 n, Word* keys
) {
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        keys[i] = Word(key_or_absent(words[i]));
    }
}

// Convert keys to elements in place.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS) words_of_keys(Word* keys, i64 n) {
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        keys[i] = word_of(Key(keys[i]));
    }
}

// --- Classes --------------------------------------------------------------------------------------

constexpr u32 NO_CLASS = ~0u;

__device__ __forceinline__ u32 class_of(Key key, const Key* marks, u32 room, u32 n_marks) {
    u32 below = 0;  // number of marks below the key
    for (u32 step = room / 2; step; step /= 2) {
        if (marks[below + step - 1] < key) below += step;
    }
    if (below < n_marks) return 2 * below + (marks[below] == key);
    return 2 * n_marks + (key == LARGEST);
}

// Count an element of each lane of a warp that has a class; return its place among those of its block.
// In sorted data all lanes have one class, and adding one by one would take 32 times as long.
__device__ __forceinline__ u32 counted(u32* counts, u32 its) {
    u32 lane = threadIdx.x % 32, first = __shfl_sync(ALL_LANES, its, 0);
    if (!__all_sync(ALL_LANES, its == first)) return its == NO_CLASS ? 0 : atomicAdd(counts + its, 1u);
    if (first == NO_CLASS) return 0;
    u32 before = lane == 0 ? atomicAdd(counts + first, 32u) : 0;
    return __shfl_sync(ALL_LANES, before, 0) + lane;
}

// --- Dealing --------------------------------------------------------------------------------------

constexpr int DEAL_TILE = DEAL_THREADS * DEAL_EACH;
constexpr i64 NOWHERE = -(1ll << 62);

// Write the keys between marks, those of one class in any order. Keys of class 2 * i go to places
// `rooms[2 * i]` to `rooms[2 * i + 1]`, counted in keys from address 0. Keys without room are counted,
// but not written. Keys of the other classes are not written either: each such class has only one key.
//
// A block takes a tile at a time. It sorts the tile by class in shared memory, reserves a run of the
// output for each class, and writes runs: neighbouring threads write neighbouring keys.
//
// `taken` has a counter for each class, at first zero. They are so far apart that blocks do not wait
// for other classes.
extern "C" __global__ void __launch_bounds__(DEAL_THREADS, 2) deal(
    const Word* chunk, i64 n, const i64* layout, const Key* marks, u32 room, u32 n_marks, u64* taken,
    const i64* rooms
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u32 n_classes = 2 * n_marks + 2;
    i64* shifts = (i64*)scratch;  // differences of places in the output and in the tile, by class
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
        u32 placed[DEAL_EACH];  // the class, and the place in it among the keys of the tile
#pragma unroll
        for (int e = 0; e < DEAL_EACH; ++e) {
            u32 i = e * DEAL_THREADS + threadIdx.x;
            keys[e] = i < n_here ? element(chunk, layout, first + i) : Word(0);
        }
#pragma unroll
        for (int e = 0; e < DEAL_EACH; ++e) {
            Key key = key_or_absent(keys[e]);
            keys[e] = Word(key);
            bool is_in = e * DEAL_THREADS + threadIdx.x < n_here;
            u32 its = is_in ? class_of(key, own_marks, room, n_marks) : NO_CLASS;
            u32 place = counted(counts, its);
            placed[e] = is_in ? its << 16 | place : NO_CLASS;
        }
        __syncthreads();
        prefix_sum(counts, starts, n_classes);  // where each class begins
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
            // By its address: nvcc drops a store through a null pointer and an offset.
            if (at >= 0) *(Word*)(at * (i64)sizeof(Word)) = tile[i];
        }
    }
}
