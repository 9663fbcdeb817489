// Lanes: their elements, and the answers to questions about them.
//
// A lane is the elements (o, 0, i), (o, 1, i), ... of a chunk seen as (outer, rows, inner), and of all
// other chunks of its column.
//
// Defined before this text, besides the definitions for elements.cuh: ANSWER (0: an element; 16, 32,
// 64: a float of that many bits), IN_PARTS (0: lanes are in one chunk; 1: in one or several), and
// LISTED (1: a lane has some of the rows, given by a list; 0: all rows), and ONLY_MOST, the largest number
// of ranks and answers of the only lane of an array.


struct Part {
    const Word* data;
    const Keep* keeps;  // a mask of the same layout, if there is one
    i64 stop;  // end of the rows of this part, counted over all parts
    i64 outer, row, inner;  // strides, in elements
};

struct Stack {
    Part parts[MOST_STACKED];
    i64 n_parts, n, n_inner, n_lanes;
    i64 one;  // 1
    u32* has_missing;  // with masks: becomes 1 if an element that is kept is NaN
};

// The rows of a lane, ascending.
struct Rows {
    int n;
#if LISTED
    const int* list;
    __device__ __forceinline__ int operator[](int row) const { return __ldg(list + row); }
#else
    __device__ __forceinline__ int operator[](int row) const { return row; }
#endif
};

// The ranks and weights for a lane with v valid elements are in row v - first_v of these tables.
struct Wanted {
    const int2* ranks;  // lower and upper
    const double* weights;  // weights of the upper element
    i64 first_v;
    int n_answers;
    int mixes;  // 0: the lower element; 1: their mean; 2: interpolated by weight
    int skips_missing;
};

// The wanted ranks, ascending and distinct, if no element is missing; and for each answer the indices
// of its lower and upper rank.
struct OnlyWanted {
    i64 n;
    i64 ranks[ONLY_MOST];
    double weights[ONLY_MOST];  // weights of the upper elements
    int lower[ONLY_MOST], upper[ONLY_MOST];
    int n_ranks, n_answers, mixes;
};

struct Flags {
    u32 all_missing;  // some lane has no valid element
    u32 too_wide;  // some integer cannot be represented as float64
};

// --- Answers --------------------------------------------------------------------------------------

#if ANSWER == 64
typedef double Answer;
#elif ANSWER == 32
typedef float Answer;
#elif ANSWER == 16
typedef unsigned short Answer;
#else
typedef Word Answer;
#endif

__device__ __forceinline__ Answer rounded(double value, Word word) {
#if ANSWER == 64
    return value;
#elif ANSWER == 32
    float narrow;  // not to be flushed to zero
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(narrow) : "d"(value));
    return narrow;
#elif ANSWER == 16
    unsigned short narrow;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow) : "d"(value));
    return narrow;
#else
    return word;
#endif
}

__device__ __forceinline__ Answer no_answer() {
#if ANSWER == 0
    return word_of(LARGEST);  // NaN for floats; other elements are never missing
#else
    return rounded(__longlong_as_double(0x7ff8000000000000ll), 0);
#endif
}

__device__ __forceinline__ bool is_finite(double x) {
    return (__double2hiint(x) & 0x7ff00000) != 0x7ff00000;
}

// As `interpolation._numpy_lerp`. The compiler does not fuse these intrinsics.
__device__ __forceinline__ double near_end_lerp(double a, double b, double weight) {
    double width = __dadd_rn(b, -a);
    return weight < 0.5 ? __dadd_rn(a, __dmul_rn(width, weight))
                        : __dadd_rn(b, -__dmul_rn(width, __dadd_rn(1.0, -weight)));
}

__device__ __forceinline__ double mean_of(double a, double b) {
    double sum = __dadd_rn(a, b);
    return is_finite(sum) ? __dmul_rn(sum, 0.5) : __dadd_rn(__dmul_rn(a, 0.5), __dmul_rn(b, 0.5));
}

// As `interpolation.interpolate`.
__device__ Answer mixed(Key lower, Key upper, double weight, int mixes, Flags* flags) {
    Word first = word_of(lower), second = word_of(upper);
    if (mixes == 0) return rounded(as_double(value_of(first)), first);
    double a = as_double(value_of(first)), b = as_double(value_of(second));
#if KIND != FLOATING && BITS == 64
    if (a <= -9007199254740992.0 || b >= 9007199254740992.0) flags->too_wide = 1;
#endif
    if (mixes == 1) return rounded(mean_of(a, b), first);
    double mix = __dadd_rn(a, b);
    if (is_finite(a) && is_finite(b)) {
        mix = is_finite(__dadd_rn(b, -a))
            ? near_end_lerp(a, b, weight)
            : 2.0 * near_end_lerp(__dmul_rn(a, 0.5), __dmul_rn(b, 0.5), weight);
    }
    return rounded(weight == 0.0 ? a : weight == 1.0 ? b : mix, first);
}

// --- Reading --------------------------------------------------------------------------------------

// Keys of NaN and of places behind the end are the largest of all, so that they are sorted last. The
// largest integer has that key too. Where it is taken for a place behind the end, the result is the
// same.
__device__ __forceinline__ bool is_absent(Key key) { return key == LARGEST; }

// The elements of one lane, whose rows are read in ascending order.
struct Reader {
    const Stack& stack;
    const Rows rows;
    i64 o, i, step;  // step is the distance of rows in bytes
    const char* row_0;
    int part, stop;
#if KEEPS
    const Keep* keeps_0;
#endif

    __device__ __forceinline__ Reader(const Stack& stack, const Rows& rows, i64 lane)
        : stack(stack), rows(rows) {
        i64 n_inner = stack.n_inner;
        if (stack.n_lanes >> 32 == 0) {
            o = (u32)lane / (u32)n_inner, i = (u32)lane - (u32)o * (u32)n_inner;
        } else {
            o = lane / n_inner, i = lane - o * n_inner;
        }
        enter(0);
    }

    __device__ __forceinline__ void enter(int next) {
        const Part& p = stack.parts[next];
        i64 start = next ? stack.parts[next - 1].stop : 0;
        part = next, stop = (int)p.stop, step = p.row * (i64)sizeof(Word);
        i64 offset = o * p.outer + i * p.inner - start * p.row;
        row_0 = (const char*)(p.data + offset);
#if KEEPS
        keeps_0 = p.keeps + offset;
#endif
    }

    // The address of a row of the lane.
    __device__ __forceinline__ const char* at(int row) {
        row = rows[row];
        if (IN_PARTS) {
            while (row >= stop) enter(part + 1);
        }
        return row_0 + (u64)(u32)row * (u64)step;
    }

    // Read rows first, first + EACH, ... The first SURE of them exist; the words of rows beyond the
    // lane's end are 0.
    template <int EACH, int SURE, int N>
    __device__ __forceinline__ void read_words(int first, Word (&words)[N]) {
        const char* start = row_0 + first * step;
        i64 jump = EACH * step;
        bool is_kept[KEEPS ? N : 1];
#pragma unroll
        for (int j = 0; j < N; ++j) {
            int row = first + j * EACH;
            words[j] = 0, is_kept[KEEPS ? j : 0] = true;
            if (j < SURE || row < rows.n) {
                words[j] = __ldg((const Word*)(!IN_PARTS && !LISTED ? start + j * jump : at(row)));
                if (KEEPS) is_kept[j] = keeps(row);
            }
        }
        if (KEEPS) blank(words, is_kept);
    }

    // True if a mask keeps the element of a row of the part that was read last.
    __device__ __forceinline__ bool keeps(int row) const {
#if KEEPS
        return __ldg(keeps_0 + (u64)(u32)row * (u64)(step / (i64)sizeof(Word)));
#else
        return true;
#endif
    }

    // Put NaN in place of the words that a mask leaves out.
    template <int N, int M>
    __device__ __forceinline__ void blank(Word (&words)[N], const bool (&is_kept)[M]) const {
        bool found = false;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            found |= is_kept[j] && is_missing(value_of(words[j]));
            if (!is_kept[j]) words[j] = NOT_A_NUMBER;
        }
        if (found) *stack.has_missing = 1;
    }
};
