// Elements beyond the fences of a box, and the nearest ones inside.

#include "tops.cuh"

// What a box needs besides sums. Behind it are listed elements of both sides.
struct BoxFound {
    // Quartiles, and the last elements from below and from above that may be listed.
    double answers[5];
    u64 n_below, n_above;  // elements beyond the fences
    u64 least, most;  // keys of the nearest elements inside; of the least one all bits are inverted
    u64 n_listed[2];
    u64 n_left;  // blocks that have finished
    u64 is_unknown;  // 1 if some elements near a fence were not gathered, or quartiles are not exact
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
