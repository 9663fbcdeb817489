// Moving windows of few elements: networks of comparisons in registers.
//
// A thread has some windows one behind the other along one axis, the shared one. It reads what they
// reach, and makes the comparisons that they share once. Elements of up to 16 bits are compared two at
// a time, those of two windows. The chunk is padded as it is read.
//
// Defined before this text, besides the definitions for lanes.cuh: AXES (number of axes, of which the
// shared one is the last), FASTEST (the axis along which neighbouring threads lie), ROWS and SIZE (the
// elements of a window along all other axes and along the shared one), SHARING (windows whose comparisons are shared), PAIRS (2: each comparison is one of two windows;
// else 1), DEVIATES (1 if the question is about distances from the median of the window), LACKS (1 if a window may lack elements), PLACES (elements of a window), N_ANSWERS, N_WANTED
// (number of ranks that the network finds) and NETWORK (its comparisons). Lists: COORDINATES (of each row
// along each other axis), NEEDED (1 for each element of a run that some window counts), BITS_OF (those of
// each window, 32 at a time as bits) and WANTED (the ranks).

#include "deviations.cuh"
#include "padding.cuh"

struct Columns {
    Axes axes;
    i64 first[PAD_AXES], last[PAD_AXES];  // places from where all is in the chunk
    i64 n_runs, n_tasks;
};

constexpr int RUN = SHARING * PAIRS, REACHED = RUN + SIZE - 1;  // along the shared axis
constexpr int N_WORDS = (ROWS * REACHED + 31) / 32, LAST = AXES - 1;
__device__ constexpr int COORDINATE[] = {COORDINATES};
__device__ constexpr bool IS_NEEDED[] = {NEEDED};
__device__ constexpr u32 COUNTED[] = {BITS_OF};
__device__ constexpr int RANKS[] = {WANTED};

// An Item is compared. Floats of 32 bits are as they are: comparing integers takes longer. An absent
// one is NaN.
#if KIND == FLOATING && BITS == 32
typedef float Item;
#define LAST_ITEM __uint_as_float(0x7f800000u)
__device__ __forceinline__ Item item_of(Word word) { return __uint_as_float(word); }
__device__ __forceinline__ bool is_absent_item(Item item) { return item != item; }
__device__ __forceinline__ Key key_of_item(Item item) { return key_of(__float_as_uint(item)); }
__device__ __forceinline__ Item lesser(Item a, Item b) {
    asm("min.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
    return a;
}
__device__ __forceinline__ Item larger(Item a, Item b) {
    asm("max.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
    return a;
}
#else
typedef Key Item;
#define LAST_ITEM LARGEST
__device__ __forceinline__ Item item_of(Word word) { return key_or_absent(word); }
__device__ __forceinline__ bool is_absent_item(Item item) { return KIND == FLOATING && is_absent(item); }
__device__ __forceinline__ Key key_of_item(Item item) { return item; }
__device__ __forceinline__ Item lesser(Item a, Item b) {
    return PAIRS == 2 ? __vminu2((u32)a, (u32)b) : min(a, b);
}
__device__ __forceinline__ Item larger(Item a, Item b) {
    return PAIRS == 2 ? __vmaxu2((u32)a, (u32)b) : max(a, b);
}
#endif

// The elements that the windows of a thread reach. Where no element is, there is `fill`, which windows
// count if `fills` is 1.
struct Reached {
    const Columns& columns;
    const Word* chunk;
    const Keep* keeps;
    Word fill;
    int fills;
    int at[AXES];  // coordinates of the first window
    Item items[ROWS][REACHED];
    u32 left_out[N_WORDS];
    bool has_any;  // that is left out or missing

    // The place of an element along an axis: the most negative one if there is none.
    template <bool IS_INNER>
    __device__ __forceinline__ i64 placed(int d, int i) const {
        const Axes& axes = columns.axes;
        i64 place = at[d] * axes.steps[d] + i;
        bool is_there = true;
        place = IS_INNER ? place + axes.shift[d] - axes.before[d]
                         : source_of(axes, d, place, is_there);
        return is_there ? place * axes.strides[d] : -(1ll << 60);
    }

    // Read them. Inner ones are all elements of the chunk.
    template <bool IS_INNER>
    __device__ __forceinline__ void read() {
        i64 of_rows[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            of_rows[row] = 0;
#pragma unroll
            for (int d = 0; d < LAST; ++d) {
                of_rows[row] += placed<IS_INNER>(d, COORDINATE[row * AXES + d]);
            }
        }
#pragma unroll
        for (int i = 0; i < REACHED; ++i) {
            i64 along = placed<IS_INNER>(LAST, i);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                int bit = row * REACHED + i;
                if (!IS_NEEDED[bit]) continue;
                i64 place = of_rows[row] + along;
                if (IS_INNER) place = (u32)place;  // one instruction for the address
                bool is_there = IS_INNER || place >= 0;
                items[row][i] = item_of(is_there ? __ldg(chunk + place) : fill);
                bool is_kept = is_there ? !KEEPS || __ldg(keeps + place) : fills;
                if (!is_kept) left_out[bit / 32] |= 1u << bit % 32;
                has_any |= !is_kept || is_absent_item(items[row][i]);
            }
        }
    }
};

// Tables are those of `window_tiles`.
extern "C" __global__ void __launch_bounds__(NETWORK_THREADS) window_networks(
    const Word* chunk, const Keep* keeps, const __grid_constant__ Columns columns, Word fill,
    int fills, int n, const i64* ranks, const double* weights, int n_answers, int mixes,
    int skips_missing, int least, Answer* answers, int* valid, Flags* flags
) {
    for (u32 task = (u32)own_thread(); task < (u32)columns.n_tasks; task += (u32)all_threads()) {
        Reached own = {columns, chunk, keeps, fill, fills, {}, {}, {}, false};
        u32 rest = task, missing[N_WORDS] = {};
        bool is_inner = true;
        i64 first_window = 0;
#pragma unroll
        for (int j = 0; j < AXES; ++j) {
            int d = (FASTEST - j + AXES) % AXES;
            u32 size = (u32)(d == LAST ? columns.n_runs : columns.axes.shape[d]);
            u32 next = j < LAST ? rest / size : 0;
            own.at[d] = (int)(rest - next * size) * (d == LAST ? RUN : 1), rest = next;
            first_window += own.at[d] * columns.axes.places[d];
            i64 first = own.at[d] * columns.axes.steps[d];
            is_inner &= first >= columns.first[d] && first <= columns.last[d];
        }
        is_inner ? own.read<true>() : own.read<false>();
        if (LACKS && own.has_any) {
#pragma unroll
            for (int bit = 0; bit < ROWS * REACHED; ++bit) {
                Item& item = own.items[bit / REACHED][bit % REACHED];
                bool is_out = own.left_out[bit / 32] >> bit % 32 & 1;
                if (!is_out && is_absent_item(item)) missing[bit / 32] |= 1u << bit % 32;
                if (is_out || is_absent_item(item)) item = LAST_ITEM;
            }
        }
        Item items[ROWS][SHARING + SIZE - 1], chosen[SHARING][N_WANTED];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int i = 0; i < SHARING + SIZE - 1; ++i) {
                items[row][i] = own.items[row][i];
#if PAIRS == 2
                items[row][i] |= own.items[row][i + SHARING] << 16;
#endif
            }
        }
        NETWORK
#pragma unroll
        for (int k = 0; k < RUN; ++k) {
            if (own.at[LAST] + k >= columns.axes.shape[LAST]) continue;
            i64 window = first_window + k * columns.axes.places[LAST];
            auto key_at = [&](int i) {
                Item item = chosen[k % SHARING][i];
#if PAIRS == 2
                item = k < SHARING ? item & 0xffffu : item >> 16;
#endif
                return key_of_item(item);
            };
            int n_valid = PLACES, n_missing = 0;
            if (LACKS && own.has_any) {
#pragma unroll
                for (int word = 0; word < N_WORDS; ++word) {
                    n_missing += __popc(missing[word] & COUNTED[k * N_WORDS + word]);
                    n_valid -= __popc(own.left_out[word] & COUNTED[k * N_WORDS + word]);
                }
                n_valid -= n_missing;
            }
            if (valid) valid[window] = n_valid;
            bool has_none = n_valid < least || (n_missing && !skips_missing);
#pragma unroll
            for (int a = 0; a < N_ANSWERS; ++a) {
                Answer* answer = answers + (i64)a * columns.axes.n_windows + window;
                if (has_none) {
                    *answer = no_answer();
                    continue;
                }
#if DEVIATES
                Key sorted[N_WANTED];
                for (int i = 0; i < N_WANTED; ++i) sorted[i] = key_at(i);
                *answer = deviation_of(n_valid, [&](int i) { return sorted[i]; }, flags);
#else
                i64 place = (i64)a * (PLACES + 1) + n_valid;
                i64 lower = ranks[place], upper = ranks[(i64)N_ANSWERS * (PLACES + 1) + place];
                Key low = key_at(0), high = low;
#pragma unroll
                for (int i = 1; i < N_WANTED; ++i) {
                    low = RANKS[i] == lower ? key_at(i) : low;
                    high = RANKS[i] == upper ? key_at(i) : high;
                }
                *answer = mixed(low, high, mixes == 2 ? weights[place] : 0, mixes, flags);
#endif
            }
        }
    }
}
