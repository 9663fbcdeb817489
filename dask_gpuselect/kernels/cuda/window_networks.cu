// Moving windows of few elements: networks of comparisons in registers.
//
// A thread has some windows one behind the other along one axis, the shared one. It reads what they
// reach, and makes the comparisons that they share once. Elements of up to 16 bits are compared two at
// a time, those of two windows. Integers of up to 16 bits are read, and answers of theirs written, as
// words of 32 bits, if all windows are whole: a thread has the windows of all elements of a word. The
// chunk is padded as it is read.
//
// Defined before this text, besides the definitions for lanes.cuh: AXES (number of axes, of which the
// shared one is the last), FASTEST (the axis along which neighbouring threads lie), ROWS and SIZE (the
// elements of a window along all other axes and along the shared one), SHARING (windows whose
// comparisons are shared), PAIRS (2: each comparison is one of two windows; else 1), SIDE (elements of a
// word, and windows of a thread along FASTEST; 1 if it reads no words), WIDTH (elements of a window along
// FASTEST), DEVIATES (1 if the question is about distances from the median of the window), LACKS (1 if a
// window may lack elements), PLACES (elements of a window), N_ANSWERS, N_WANTED (number of ranks that
// the network finds) and NETWORK (its comparisons). Lists: COORDINATES (of each row along each other
// axis), NEEDED (1 for each element of a run that some window counts), BITS_OF (those of each window, 32
// at a time as bits) and WANTED (the ranks).

#include "deviations.cuh"
#include "padding.cuh"

struct Columns {
    Axes axes;
    i64 first[PAD_AXES], last[PAD_AXES];  // places from where all is in the chunk
    i64 runs[PAD_AXES];  // of the threads along each axis
    i64 n_tasks;
};

constexpr int SETS = SIDE > 1 ? SIDE / 2 : 1;  // of pairs of windows that are compared
constexpr int RUN = SIDE > 1 ? SHARING : SHARING * PAIRS;  // windows along the shared axis
constexpr int REACHED = RUN + SIZE - 1;  // elements along it
constexpr int N_WORDS = (ROWS * REACHED + 31) / 32, LAST = AXES - 1;
__device__ constexpr int COORDINATE[] = {COORDINATES};
__device__ constexpr bool IS_NEEDED[] = {NEEDED};
__device__ constexpr u32 COUNTED[] = {BITS_OF};
__device__ constexpr int RANKS[] = {WANTED};

// Whether the answers of a word of elements are a word.
#define IS_WORD (SIDE > 1 && N_WANTED == 1 && ANSWER == 0 && !DEVIATES)
// Whether distances from the medians of whole windows are Items, those of integers two at a time too.
#define ARE_ITEMS (DEVIATES && BITS <= 32 && (KIND == FLOATING ? BITS == ANSWER : PLACES % 2))

constexpr u32 SIGNS = KIND != SIGNED ? 0 : BITS == 8 ? 0x80808080u : 0x80008000u;  // of a word

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

#if ARE_ITEMS
__device__ __forceinline__ Item difference(Item a, Item b) {
#if KIND == FLOATING
    return difference_of(a, b);
#else
    return a - b;  // b is not larger, in either half
#endif
}

// Find the distance of a rank among those of all elements of a window; see `distance_of_rank`.
template <int RANK>
__device__ __forceinline__ Item item_of_rank(Item centre, const Item (&sorted)[N_WANTED]) {
    Item least = larger(difference(centre, sorted[0]), difference(sorted[RANK], centre));
#pragma unroll
    for (int i = 1; i < PLACES - RANK; ++i) {
        Item before = difference(centre, sorted[i]), behind = difference(sorted[i + RANK], centre);
        least = lesser(least, larger(before, behind));
    }
    return least;
}

// Find the median of these distances; see `deviation_of`.
__device__ __forceinline__ Item item_of_deviation(const Item (&sorted)[N_WANTED]) {
    constexpr int LOWER = (PLACES - 1) / 2, UPPER = PLACES / 2;
#if KIND == FLOATING
    Item centre = rounded(mean_of(as_double(sorted[LOWER]), as_double(sorted[UPPER])), 0);
    if (!is_finite(as_double(centre))) return no_answer();
    Item a = item_of_rank<LOWER>(centre, sorted), b = a;
    if (UPPER > LOWER) b = item_of_rank<UPPER>(centre, sorted);
    return rounded(fabs(mean_of(as_double(a), as_double(b))), 0);
#else
    return item_of_rank<LOWER>(sorted[LOWER], sorted);
#endif
}
#define DEVIATE(k) if (!LACKS || !own.has_any) chosen[k][0] = item_of_deviation(chosen[k])
#else
#define DEVIATE(k)
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
    u32 left_out[N_WORDS];
    bool has_any;  // that is left out or missing

    // The place of an element along an axis, all of whose elements are in the chunk.
    __device__ __forceinline__ int inner(int d, int i) const {
        const Axes& axes = columns.axes;
        int place = at[d] * (int)axes.steps[d] + i + (int)axes.shift[d] - (int)axes.before[d];
        return place * (int)axes.strides[d];
    }

    // The same of any element: the most negative one if there is none.
    __device__ __forceinline__ i64 placed(int d, int i) const {
        bool is_there = true;
        i64 place = source_of(columns.axes, d, at[d] * columns.axes.steps[d] + i, is_there);
        return is_there ? place * columns.axes.strides[d] : -(1ll << 60);
    }

#if SIDE > 1
    static constexpr int OUTER = ROWS / WIDTH, REACH = WIDTH + SIDE - 1;  // of all windows side by side
    static constexpr int N_READ = (REACH + 2 * SIDE - 2) / SIDE;  // words, wherever the first one lies
    u32 words[OUTER][REACHED][N_READ];

    // The elements of two windows that are compared together: each fills its half, so that halves
    // are compared as the elements are.
    __device__ __forceinline__ Item item(int set, int row, int i) const {
        const auto& own = words[row / WIDTH][i];
        int first = row % WIDTH + set, second = first + SETS, more = BITS / 8 - 1;
        int low = first % SIDE * (BITS / 8), high = second % SIDE * (BITS / 8) + 4;
        int bytes = low | (low + more) << 4 | high << 8 | (high + more) << 12;
        return __byte_perm(own[first / SIDE], own[second / SIDE], bytes);
    }

    __device__ __forceinline__ void read_inner() {
#pragma unroll
        for (int row = 0; row < OUTER; ++row) {
            u32 first = inner(LAST, 0);
#pragma unroll
            for (int d = 0; d < LAST; ++d) first += inner(d, COORDINATE[row * WIDTH * AXES + d]);
#pragma unroll
            for (int i = 0; i < REACHED; ++i) {
                const Word* element = chunk + (first + (u32)(i * (int)columns.axes.strides[LAST]));
                const u32* from = (const u32*)((u64)element & ~3ull);
                u32 read[N_READ];
#pragma unroll
                for (int j = 0; j < N_READ; ++j) read[j] = __ldg(from + j);
#pragma unroll
                for (int j = 0; j < N_READ; ++j) {
                    u32 next = j + 1 < N_READ ? read[j + 1] : 0;
                    words[row][i][j] = __funnelshift_r(read[j], next, (u32)(u64)element * 8) ^ SIGNS;
                }
            }
        }
    }

    __device__ __forceinline__ void read() {
        i64 across[REACH];
#pragma unroll
        for (int j = 0; j < REACH; ++j) across[j] = placed(FASTEST, j);
#pragma unroll
        for (int row = 0; row < OUTER; ++row) {
#pragma unroll
            for (int i = 0; i < REACHED; ++i) {
                i64 first = placed(LAST, i);
#pragma unroll
                for (int d = 0; d < FASTEST; ++d) first += placed(d, COORDINATE[row * WIDTH * AXES + d]);
#pragma unroll
                for (int j = 0; j < N_READ; ++j) words[row][i][j] = SIGNS;
#pragma unroll
                for (int j = 0; j < REACH; ++j) {
                    i64 place = first + across[j];
                    u32 word = place >= 0 ? __ldg(chunk + place) : fill;
                    words[row][i][j / SIDE] ^= word << j % SIDE * BITS;
                }
            }
        }
    }
#else
    Item items[ROWS][REACHED];

    __device__ __forceinline__ Item item(int, int row, int i) const {
        Item item = items[row][i];
#if PAIRS == 2
        item |= items[row][i + SHARING] << 16;
#endif
        return item;
    }

    __device__ __forceinline__ void take(int row, int i, Word word, bool is_kept) {
        int bit = row * REACHED + i;
        items[row][i] = item_of(word);
        if (!is_kept) left_out[bit / 32] |= 1u << bit % 32;
        has_any |= !is_kept || is_absent_item(items[row][i]);
    }

    __device__ __forceinline__ void read_inner() {
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            u32 first = inner(LAST, 0);
#pragma unroll
            for (int d = 0; d < LAST; ++d) first += inner(d, COORDINATE[row * AXES + d]);
#pragma unroll
            for (int i = 0; i < REACHED; ++i) {
                if (!IS_NEEDED[row * REACHED + i]) continue;
                u32 place = first + (u32)(i * (int)columns.axes.strides[LAST]);
                take(row, i, __ldg(chunk + place), !KEEPS || __ldg(keeps + place));
            }
        }
    }

    __device__ __forceinline__ void read() {
        i64 of_rows[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            of_rows[row] = 0;
#pragma unroll
            for (int d = 0; d < LAST; ++d) of_rows[row] += placed(d, COORDINATE[row * AXES + d]);
        }
#pragma unroll
        for (int i = 0; i < REACHED; ++i) {
            i64 along = placed(LAST, i);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                if (!IS_NEEDED[row * REACHED + i]) continue;
                i64 place = of_rows[row] + along;
                bool is_there = place >= 0;
                bool is_kept = is_there ? !KEEPS || __ldg(keeps + place) : fills;
                take(row, i, is_there ? __ldg(chunk + place) : fill, is_kept);
            }
        }
    }
#endif
};

// Answers side by side, and as they are written together.
typedef Together<Answer, SIDE> Written;
union Answers {
    Answer each[SIDE];
    Written together;
    u32 word;
    __device__ __forceinline__ Answers() {}

    // Write the first n of them.
    __device__ __forceinline__ void write(Answer* to, int n) const {
        if (n >= SIDE && (u64)to % alignof(Written) == 0) {
            *(Written*)to = together;
            return;
        }
#pragma unroll
        for (int i = 0; i < SIDE; ++i) {
            if (i < n) to[i] = each[i];
        }
    }
};

extern "C" __global__ void __launch_bounds__(NETWORK_THREADS) window_networks(
    const Word* chunk, const Keep* keeps, const __grid_constant__ Columns columns,
    const __grid_constant__ Asked asked, Answer* answers, int* valid, Flags* flags
) {
    for (u32 task = (u32)own_thread(); task < (u32)columns.n_tasks; task += (u32)all_threads()) {
        Reached own = {columns, chunk, keeps, (Word)asked.fill, asked.fills};
        u32 rest = task, missing[N_WORDS] = {};
        bool is_inner = true;
        int first_window = 0;
#pragma unroll
        for (int j = 0; j < AXES; ++j) {
            int d = (FASTEST - j + AXES) % AXES, each = d == LAST ? RUN : d == FASTEST ? SIDE : 1;
            u32 next = j < LAST ? rest / (u32)columns.runs[d] : 0;
            own.at[d] = (int)(rest - next * (u32)columns.runs[d]) * each, rest = next;
            first_window += own.at[d] * (int)columns.axes.places[d];
            int first = own.at[d] * (int)columns.axes.steps[d];
            is_inner &= first >= (int)columns.first[d] && first <= (int)columns.last[d];
        }
        is_inner ? own.read_inner() : own.read();
#if SIDE == 1
        if (LACKS && own.has_any) {
#pragma unroll
            for (int bit = 0; bit < ROWS * REACHED; ++bit) {
                Item& item = own.items[bit / REACHED][bit % REACHED];
                bool is_out = own.left_out[bit / 32] >> bit % 32 & 1;
                if (!is_out && is_absent_item(item)) missing[bit / 32] |= 1u << bit % 32;
                if (is_out || is_absent_item(item)) item = LAST_ITEM;
            }
        }
#endif
        Item chosen_of[SETS][SHARING][N_WANTED];
#pragma unroll
        for (int set = 0; set < SETS; ++set) {
            auto& chosen = chosen_of[set];
            Item items[ROWS][SHARING + SIZE - 1];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
#pragma unroll
                for (int i = 0; i < SHARING + SIZE - 1; ++i) items[row][i] = own.item(set, row, i);
            }
            NETWORK
        }
        int n_left = SIDE == 1 ? 1 : (int)columns.axes.shape[FASTEST] - own.at[FASTEST];
#pragma unroll
        for (int k = 0; k < RUN; ++k) {
            if (own.at[LAST] + k >= (int)columns.axes.shape[LAST]) continue;
            int window = first_window + k * (int)columns.axes.places[LAST];
            auto item_at = [&](int side, int i) {
                Item item = chosen_of[side % SETS][k % SHARING][i];
#if PAIRS == 2
                item = (SIDE == 1 ? k < SHARING : side < SETS) ? item : item >> 16;
                item &= Word(-1);
#endif
                return item;
            };
            auto key_at = [&](int side, int i) { return key_of_item(item_at(side, i)); };
            int n_valid = PLACES, n_missing = 0;
            if (LACKS && own.has_any) {
#pragma unroll
                for (int word = 0; word < N_WORDS; ++word) {
                    n_missing += __popc(missing[word] & COUNTED[k * N_WORDS + word]);
                    n_valid -= __popc(own.left_out[word] & COUNTED[k * N_WORDS + word]);
                }
                n_valid -= n_missing;
            }
#pragma unroll
            for (int side = 0; side < SIDE; ++side) {
                if (valid && side < n_left) valid[window + side] = n_valid;
            }
            bool has_none = n_valid < asked.least || (n_missing && !asked.skips_missing);
#pragma unroll
            for (int a = 0; a < N_ANSWERS; ++a) {
                Answers found;
#if IS_WORD
                Item even = chosen_of[0][k][0], odd = chosen_of[SETS - 1][k][0];
                found.word = SIGNS ^ (BITS == 8 ? __byte_perm(even, odd, 0x6240) : even);
#endif
#pragma unroll
                for (int side = 0; side < SIDE && (!IS_WORD || has_none); ++side) {
                    Answer& answer = found.each[side];
                    if (has_none) {
                        answer = no_answer();
                        continue;
                    }
                    if (ARE_ITEMS && (!LACKS || !own.has_any)) {
                        answer = scaled(item_at(side, 0), asked.scale);
                        continue;
                    }
#if DEVIATES
                    Key sorted[N_WANTED];
                    for (int i = 0; i < N_WANTED; ++i) sorted[i] = key_at(side, i);
                    auto at = [&](int i) { return sorted[i]; };
                    answer = deviation_of(n_valid, at, asked.scale, flags);
#else
                    i64 place = (i64)a * (PLACES + 1) + n_valid;
                    i64 lower = asked.ranks[place];
                    i64 upper = asked.ranks[(i64)N_ANSWERS * (PLACES + 1) + place];
                    Key low = key_at(side, 0), high = low;
#pragma unroll
                    for (int i = 1; i < N_WANTED; ++i) {
                        low = RANKS[i] == lower ? key_at(side, i) : low;
                        high = RANKS[i] == upper ? key_at(side, i) : high;
                    }
                    double weight = asked.mixes == 2 ? asked.weights[place] : 0;
                    answer = mixed(low, high, weight, asked.mixes, flags);
#endif
                }
                found.write(answers + (i64)a * columns.axes.n_windows + window, n_left);
            }
        }
    }
}
