// The box of an array that is one lane, after ``only_lane.cu`` has found its quartiles: elements beyond
// the fences, the nearest ones inside, and sums, in one read. The host gets all of it in its own memory.

#include "sums.cuh"
#include "tops.cuh"

// What a box needs besides sums. Behind it are listed elements of both sides.
struct BoxFound {
    // Quartiles, and the last elements from below and from above that may be listed.
    double answers[5];
    u64 n_below, n_above;  // elements beyond the fences
    u64 least, most;  // keys of the nearest elements inside; of the least one all bits are inverted
    u64 n_listed[2];
    u64 n_left;  // blocks that have finished
};

struct Beyond {
    double low, high, last_low, last_high;
    u32 n_below, n_above;
    Key least, most;
    BoxFound* found;
    Value* listed;
    u64 room;

    __device__ __forceinline__ void start(
        const double* answers, double whis, BoxFound* into, Value* its_listed, u64 its_room
    ) {
        double q1 = answers[0], q3 = answers[2];
        // As `Rule.fences`. The compiler does not fuse these intrinsics.
        double reach = __dmul_rn(whis, __dadd_rn(q3, -q1));
        low = fmin(__dadd_rn(q1, -reach), q1);
        high = fmax(__dadd_rn(q3, reach), q3);
        last_low = answers[3];
        last_high = answers[4];
        n_below = n_above = 0;
        least = (Key)~Key(0);
        most = 0;
        found = into;
        listed = its_listed;
        room = its_room;
    }

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Value value = value_of(words[e]);
            double number = as_double(value);
            Key key = key_of(words[e]);
            bool is_below = present[e] && number < low, is_above = present[e] && number > high;
            n_below += is_below;
            n_above += is_above;
            if (present[e] && !is_below) least = min(least, key);
            if (present[e] && !is_above) most = max(most, key);
            if (!__any_sync(ALL_LANES, is_below || is_above)) continue;
            list(0, is_below && number < last_low, value);
            list(1, is_above && number > last_high, value);
        }
    }

    __device__ __forceinline__ void list(int side, bool is_listed, Value value) {
        u64 at = reserved_each(&found->n_listed[side], is_listed);
        if (is_listed && at < room) listed[side * room + at] = value;
    }

    __device__ __forceinline__ void pause() {}

    // Add the counts of a warp to those of all.
    __device__ __forceinline__ void finish() {
        add_over_warp(&found->n_below, n_below);
        add_over_warp(&found->n_above, n_above);
        Key its_least = least_over_warp(least), its_most = largest_over_warp(most);
        if (threadIdx.x % 32 == 0) {
            atomicMax(&found->least, ~(u64)its_least);
            atomicMax(&found->most, (u64)its_most);
        }
    }
};

// Behind `BoxFound` are the digits of the sums, three counts, and the listed elements of both sides. All
// of that is zero before and after.
constexpr int FOUND_WORDS = sizeof(BoxFound) / 8 + TOTAL_DIGITS + SQUARE_DIGITS + 3;

extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) only_box(
    const Word* elements, i64 n, double whis, u64* all, u64 room, u64* told
) {
    BoxFound* found = (BoxFound*)all;
    u64 *out = (u64*)(found + 1), *counts = out + TOTAL_DIGITS + SQUARE_DIGITS;
    Value* listed = (Value*)(all + FOUND_WORDS);
    __shared__ u64 digits[MOMENTS_THREADS / 32][N_DIGITS];
    clear<MOMENTS_THREADS>(digits);
    const double* answers = found->answers;
    int top = 0;
    find_top_near(5, [&](int i) { return answers[i]; }, PIECES, &top);
    Both<Beyond, Sums> mine;
    mine.first.start(answers, whis, found, listed, room);
    mine.second.start(top, digits[threadIdx.x / 32]);
    visit_all<MOMENTS_THREADS, SUMS_EACH>(elements, n, nullptr, nullptr, mine);
    mine.second.finish(counts);
    mine.first.finish();
    write<MOMENTS_THREADS>(digits, out);
    if (!is_last_block(&found->n_left)) return;
    // Elements without room were not listed.
    Value* told_listed = (Value*)(told + FOUND_WORDS);
    for (int side = 0; side < 2; ++side) {
        u64 number = min(__ldcg(&found->n_listed[side]), room);
        for (u64 i = threadIdx.x; i < number; i += MOMENTS_THREADS) {
            told_listed[side * room + i] = __ldcg(&listed[side * room + i]);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < FOUND_WORDS; i += MOMENTS_THREADS) {
        told[i] = __ldcg(&all[i]);
        all[i] = 0;
    }
    __threadfence_system();
}
