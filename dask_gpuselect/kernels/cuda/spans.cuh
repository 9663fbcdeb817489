// Load 2: counts at the ends of brackets, and the candidates between them, in one read.
//
// A span is a run of wanted cells with the ends around them, or an end that stands alone. What lies
// in no span is only compared and counted, in registers. The elements of spans, a few per cent, are
// staged in shared memory, a column for each thread, until a warp has enough of them to look at
// together: it tells ends from candidates, and appends those to the output. A span has one cell, or all.

constexpr int PER_THREAD = sizeof(Word) == 8 ? 8 : 16;
constexpr u32 TABLE_SIZE = 1u << TABLE_BITS;
// Staged elements a thread: a warp waits for more than 16 (8 bytes: 8), for each time it empties the
// stage it waits for memory.
constexpr int STAGE = PER_THREAD + (sizeof(Value) == 8 ? 8 : 16);

extern __shared__ __align__(16) unsigned char scratch[];

// A place in shared memory, by its 32-bit address: half the arithmetic of a pointer.
struct Place {
    u32 address;

    __device__ __forceinline__ void store(Value value) const {
#if KIND == FLOATING && BITS == 64
        asm volatile("st.shared.f64 [%0], %1;" ::"r"(address), "d"(value) : "memory");
#elif KIND == FLOATING
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
#else
        *(Value*)__cvta_shared_to_generic(address) = value;
#endif
    }
    __device__ __forceinline__ Value load() const {
        return *(const Value*)__cvta_shared_to_generic(address);
    }
};

// Defined before this text: SPANS, for how many spans the kernel is made, and SPANS_ARE, what these are.
constexpr int ENDS = 0;    // single ends: all is counted in registers
constexpr int CELLS = 1;   // single ends, or single cells with the ends they have
#define PLACED (SPANS_ARE == 2)  // one span of everything, whose cells are found by a table: see `Placed`

struct Tally {
    // The spans [low, high], and how many elements are below, in, and at the ends of each. Floats
    // count exactly up to 2^24 for each thread, which is more than any device's memory holds.
    Value low[SPANS], high[SPANS];
    float below[SPANS], in[SPANS], at_low[SPANS], at_high[SPANS];
    float is_staged[SPANS];  // not if it is an end that stands alone: there is nothing to gather
    float n_missing;
    const int* segments_of;  // the first and the last segment of each span: an end if odd

    // In shared memory.
    u32 stage, top;  // addresses of a thread's own column, and of its next free place
    Value* ends;
    u32* segments;  // elements of cell 0, of end 0, of cell 1, of end 1, ...
    unsigned char* wanted;
    int n_ends;

    Value* candidates;
    u64 most;
    u64* n_found;

    static constexpr u32 ROW = TALLY_THREADS * sizeof(Value);

    __device__ __forceinline__ void start(
        const Value* spans, const int* its_segments, const Value* all_ends,
        const unsigned char* are_wanted, int number, u64* totals, Value* out, u64 room
    ) {
        n_ends = number;
        segments_of = its_segments;
        segments = (u32*)scratch;
        Value* staged = (Value*)(segments + 2 * n_ends + 2);
        ends = staged + TALLY_THREADS * STAGE;
        wanted = (unsigned char*)(ends + n_ends);
        stage = (u32)__cvta_generic_to_shared(staged + threadIdx.x);
        top = stage;
        candidates = out;
        most = room;
        n_found = totals + SPANS + 1;
        if (PLACED) {
            for (int i = threadIdx.x; i < n_ends; i += TALLY_THREADS) ends[i] = all_ends[i];
            for (int i = threadIdx.x; i < 2 * n_ends + 1; i += TALLY_THREADS) segments[i] = 0;
            for (int i = threadIdx.x; i < n_ends + 1; i += TALLY_THREADS) wanted[i] = are_wanted[i];
        }
#pragma unroll
        for (int s = 0; s < SPANS; ++s) {
            low[s] = spans[2 * s];
            high[s] = spans[2 * s + 1];
            below[s] = in[s] = at_low[s] = at_high[s] = 0;
            bool is_end = segments_of[2 * s] % 2 && is_equal_to(low[s], high[s]);
            is_staged[s] = is_end ? 0 : 1;
        }
        n_missing = 0;
        __syncthreads();
    }

    // `totals` gets the number of elements below each span, of missing ones, of candidates (also of
    // those past `most`, which are not kept), and of every segment.
    __device__ __forceinline__ void finish(int n_spans, u64* totals) {
        empty_stage();
        add_over_warp(&totals[SPANS], (u32)n_missing);
#pragma unroll
        for (int s = 0; s < SPANS; ++s) {
            add_over_warp(&totals[s], (u32)below[s]);
            if (s < n_spans) add_segments(s, totals + SPANS + 2);
        }
    }

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        if (N == 1 && !present[0]) return;
        Value poison = 0;
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Value value = value_of(words[e]);
#if KIND == FLOATING
            poison = value * 0 + poison;
            if (!present[e]) value = __int_as_float(0x7fffffff);
#endif
            float is_wanted = 0;  // NaN is neither below a span nor in one
#pragma unroll
            for (int s = 0; s < SPANS; ++s) {
                float is_below = is_less(value, low[s]), is_up_to = is_at_most(value, high[s]);
                if (KIND != FLOATING && !present[e]) is_below = is_up_to = 0;
                float is_in = is_up_to - is_below;
                below[s] += is_below;
                in[s] += is_in;
                is_wanted += is_in * is_staged[s];
            }
            if (SPANS_ARE != ENDS && is_wanted != 0) {
                Place{top}.store(value);
                top += ROW;
            }
        }
        if (is_missing(poison)) {  // NaN, or only infinity
#pragma unroll
            for (int e = 0; e < N; ++e) n_missing += present[e] && is_missing(value_of(words[e]));
        }
    }

    __device__ __forceinline__ u32 n_staged() const { return (top - stage) / ROW; }

    __device__ __forceinline__ void pause() {
        if (__any_sync(ALL_LANES, n_staged() > STAGE - PER_THREAD)) empty_stage();
    }

    __device__ __forceinline__ void empty_stage() {
        empty_stage([&](Value value) { return !is_at_an_end(value); });
    }

    // Look at the staged elements, and append those that are candidates.
    template <class IsCandidate>
    __device__ __forceinline__ void empty_stage(IsCandidate is_candidate) {
        u32 kept = stage;
        for (u32 staged = stage; staged < top; staged += ROW) {
            Value value = Place{staged}.load();
            if (is_candidate(value)) {
                Place{kept}.store(value);
                kept += ROW;
            }
        }
        top = kept;
        __syncwarp();
        append(n_staged());
        top = stage;
    }

    __device__ __forceinline__ bool is_at_an_end(Value value) {
        u32 is_at_end = 0;
#pragma unroll
        for (int s = 0; s < SPANS; ++s) {
            float is_low = is_equal(value, low[s]), is_high = is_equal(value, high[s]);
            at_low[s] += is_low;
            at_high[s] += is_high;
            // An open span has an infinity for an end, which an element may well equal.
            if (segments_of[2 * s] % 2) is_at_end |= __float_as_uint(is_low);
            if (segments_of[2 * s + 1] % 2) is_at_end |= __float_as_uint(is_high);
        }
        return is_at_end != 0;
    }

    // The counts in the span's segments.
    __device__ __forceinline__ void add_segments(int s, u64* totals) const {
        int first = segments_of[2 * s], last = segments_of[2 * s + 1];
        float in_cell = in[s];
        if (is_staged[s] == 0) {
            add_over_warp(&totals[first], (u32)in_cell);
            return;
        }
        if (first % 2) {
            add_over_warp(&totals[first], (u32)at_low[s]);
            in_cell -= at_low[s];
        }
        if (last % 2) {
            add_over_warp(&totals[last], (u32)at_high[s]);
            in_cell -= at_high[s];
        }
        add_over_warp(&totals[first + first % 2], (u32)in_cell);
    }

    // One reservation for a warp; neighbouring lanes write neighbouring elements.
    __device__ __forceinline__ void append(u32 n_candidates) {
        u32 total = total_over_warp(n_candidates);
        if (total == 0) return;
        u64 at = reserved(n_found, total);
        for (u32 s = 0, deepest = largest_over_warp(n_candidates); s < deepest; ++s) {
            u32 holders = __ballot_sync(ALL_LANES, s < n_candidates);
            u64 mine = at + n_before(holders);
            if (s < n_candidates && mine < most) candidates[mine] = Place{stage + s * ROW}.load();
            at += __popc(holders);
        }
        __syncwarp();
    }
};

// --- Many ends ------------------------------------------------------------------------------------

// The same of so many ends that comparing with each span would take longer than finding the cell of
// each element: a table of `TABLE_SIZE` even steps from below the first end to beyond the last. Most
// steps have no end, so all of their elements are in one cell, and are counted by one look. The others,
// and those that may be wanted, are staged, and found by a search among the ends of their step.
//
// Defined before this text: KEYED (1: the steps of floats are even in their bits, which suits ends of all
// magnitudes; 0: in their values).
#define BY_VALUE (KIND == FLOATING && !KEYED)

// An unsigned integer that is never smaller for a larger value, and the same for equal ones.
#if KIND != FLOATING
typedef Key Rung;
__device__ __forceinline__ Rung rung_of(Value value) { return key_of((Word)value); }
#elif BITS == 64
typedef u32 Rung;  // half a key: 32-bit arithmetic
__device__ __forceinline__ Rung rung_of(Value value) {
    return (u32)(key_of((Word)__double_as_longlong(value)) >> 32);
}
#else
typedef u32 Rung;
__device__ __forceinline__ Rung rung_of(Value value) { return key_of_float(value); }
#endif

struct Placed : Tally {
#if BY_VALUE
    Value origin, steps;  // from an element to its step
#else
    Rung origin;
    int shift;
#endif
    // For each step, the segment of its elements; or, with IS_STAGED, how many ends are below the step,
    // and, 16 bits up, how many up to its end.
    u32* table;

    static constexpr u32 IS_STAGED = 0x80000000u;

    template <class... Given>
    __device__ __forceinline__ void start(Given... given) {
        Tally::start(given...);
        u32 behind = (u32)(wanted + n_ends + 1 - scratch);  // not an address: the compiler must know
        table = (u32*)(scratch + (behind + 3) / 4 * 4);     // that the table is in shared memory
        Value first = ends[0], last = ends[n_ends - 1];
#if BY_VALUE
        Value step = (last - first) / (Value)(TABLE_SIZE - 4);
        origin = first - step * (Value)1.5;  // so that rounding moves no end to the first step or the last
        steps = (Value)1 / step;  // 0 or infinite if ends are far apart or one
#else
        origin = rung_of(first);
        shift = max((int)n_digits(rung_of(last) - origin) - TABLE_BITS, 0);
        origin -= min(origin, (Rung)1 << shift);  // so that what is below has a step without ends
#endif
        for (int i = threadIdx.x; i < TABLE_SIZE; i += TALLY_THREADS) table[i] = 0;
        if (threadIdx.x == 0) segments[2 * n_ends + 1] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n_ends; i += TALLY_THREADS) atomicAdd(&table[step_of(ends[i])], 1u);
        __syncthreads();
        if (threadIdx.x < 32) sum_table();
        __syncthreads();
    }

    // Never smaller for a larger value, which is all that the table needs; NaN gets any.
    __device__ __forceinline__ u32 step_of(Value value) const {
#if BY_VALUE && BITS == 64
        return (u32)fmin(fmax((value - origin) * steps, 0.0), (Value)(TABLE_SIZE - 1));
#elif BY_VALUE
        return (u32)fminf(fmaxf((value - origin) * steps, 0.0f), (Value)(TABLE_SIZE - 1));
#else
        Rung at = (max(rung_of(value), origin) - origin) >> shift;
        return (u32)min(at, (Rung)(TABLE_SIZE - 1));
#endif
    }

    // By one warp: from the numbers of ends in each step to the entries of the table.
    __device__ void sum_table() {
        u32 before = 0;
        for (int i = threadIdx.x; i < TABLE_SIZE; i += 32) {
            u32 mine = table[i], upto = before + sum_upto(mine), below = upto - mine;
            table[i] = mine || wanted[below] ? below | upto << 16 | IS_STAGED : 2 * below;
            before = __shfl_sync(ALL_LANES, upto, 31);
        }
    }

    // Each addition is of one, which hardware does for all threads that add to the same count together.
    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        u32 entries[N];
#pragma unroll
        for (int e = 0; e < N; ++e) {
            Value value = value_of(words[e]);
            u32 entry = table[step_of(value)];
            entries[e] = is_missing(value) ? 2 * n_ends + 1 : entry;
        }
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (!present[e]) continue;
            if (entries[e] & IS_STAGED) {
                Place{top}.store(value_of(words[e]));
                top += ROW;
            } else {
                atomicAdd(&segments[entries[e]], 1u);
            }
        }
    }

    __device__ __forceinline__ void pause() {
        if (__any_sync(ALL_LANES, n_staged() > STAGE - PER_THREAD)) empty_placed();
    }

    __device__ __forceinline__ void empty_placed() {
        empty_stage([&](Value value) {
            u32 between = table[step_of(value)];
            int first = between & 0xffff, last = between >> 16 & 0x7fff;
            int cell = first_not(first, last, [&](int end) { return is_less_than(ends[end], value); });
            bool is_end = cell < n_ends && is_equal_to(ends[cell], value);
            atomicAdd(&segments[2 * cell + is_end], 1u);
            return !is_end && wanted[cell];
        });
    }

    __device__ __forceinline__ void finish(int, u64* totals) {
        empty_placed();
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * n_ends + 1; i += TALLY_THREADS) {
            if (segments[i]) atomicAdd(&totals[SPANS + 2 + i], (u64)segments[i]);
        }
        if (threadIdx.x == 0) atomicAdd(&totals[SPANS], (u64)segments[2 * n_ends + 1]);
    }
};

#if PLACED
typedef Placed Counting;
#else
typedef Tally Counting;
#endif
