// Weighted elements: counts and sums of weights between the ends of brackets, and the candidates there.
//
// A weight is an integer times a power of two. Its binary digits are added up as an integer, so that sums do not
// depend on the order.

#include "codes.cuh"
#include "weights.cuh"

// Defined before this text: IN_UNITS (1 if weights are rounded down to units and no elements are gathered) and ALONE
// (1 if each thread adds up by itself).

// --- All in one read ------------------------------------------------------------------------------

// The weight in the dtype that is returned.
__device__ __forceinline__ Weight handed_out(Held held, Weighed weight) {
#if NARROW
    constexpr int NORMAL = 1 << 23;
    if (weight.digits < NORMAL) return (double)weight.digits * 1.40129846432481707e-45;  // 2^-149
#endif
    return held;
}

constexpr int VALID_EACH = 8;  // elements that a thread looks at before its warp writes

// Copy the elements that are not missing and weigh something, with their weights, in any order, as far
// as there is room. `counters` gets the number of these, that of missing elements that weigh something, and
// what is wrong with weights.
extern "C" __global__ void __launch_bounds__(WEIGH_THREADS) weigh_valid(
    const Word* values, const Held* weights, const Keep* keeps, i64 n, Word* taken,
    Weight* their_weights, u64 room, u64* counters
) {
    u32 lane = threadIdx.x % 32, faults = 0, n_missing = 0;
    i64 first = own_thread() / 32 * 32 * VALID_EACH, step = all_threads() * VALID_EACH;
    for (i64 start = first; start < n; start += step) {
        Word words[VALID_EACH];
        Held held[VALID_EACH];
#pragma unroll
        for (int e = 0; e < VALID_EACH; ++e) {
            i64 i = start + 32 * e + lane;
            words[e] = i < n ? values[i] : Word(0);
            held[e] = i < n && (!KEEPS || keeps[i]) ? weights[i] : Held(0);
        }
        u32 holders[VALID_EACH], n_taken = 0;
#pragma unroll
        for (int e = 0; e < VALID_EACH; ++e) {
            Weighed weight = weighed(held[e]);
            bool weighs = weight.digits && !weight.faults, missing = is_missing(value_of(words[e]));
            faults |= weight.faults;
            n_missing += weighs && missing;
            holders[e] = __ballot_sync(ALL_LANES, weighs && !missing);
            n_taken += __popc(holders[e]);
        }
        u64 at = reserved(counters, n_taken);
#pragma unroll
        for (int e = 0; e < VALID_EACH; ++e) {
            u64 mine = at + n_before(holders[e]);
            if (holders[e] >> lane & 1 && mine < room) {
                taken[mine] = words[e];
                their_weights[mine] = handed_out(held[e], weighed(held[e]));
            }
            at += __popc(holders[e]);
        }
    }
    if (n_missing) atomicAdd(counters + 1, (u64)n_missing);
    if (faults) atomicOr(counters + 2, (u64)faults);
}

// Number the elements of groups by the group and the band: those that take part and weigh something, those
// of weight 0 two bands behind, and masked ones three. Missing elements are moved on by one band later.
// `extent` gets what is wrong with weights, the highest bit of all weights, and the distance of the lowest
// bit from the highest possible place; bits are counted from the lowest possible place on.
extern "C" __global__ void __launch_bounds__(WEIGH_THREADS) weigh_bands(
    const Held* weights, const Keep* keeps, i64 n, const Code* codes, int n_groups, int* numbers, u32* extent
) {
    u32 faults = 0, highest = 0, lowest = 0;
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        bool is_masked = KEEPS && !keeps[i];
        Weighed weight = weighed(is_masked ? Held(0) : weights[i]);
        int code = codes[i];
        faults |= weight.faults;
        if (code >= 0) code += is_masked ? 3 * n_groups : weight.digits ? 0 : 2 * n_groups;
        numbers[i] = code;
        if (weight.digits == 0) continue;
        int place = weight.place - LEAST_PLACE;
        highest = max(highest, (u32)(place + 64 - __clzll(weight.digits)));
        lowest = max(lowest, (u32)(MOST_PLACE - place + 1 - __ffsll(weight.digits)));
    }
    faults = over_warp(faults, [](u32 a, u32 b) { return a | b; });
    highest = largest_over_warp(highest);
    lowest = largest_over_warp(lowest);
    if (threadIdx.x % 32) return;
    if (faults) atomicOr(extent, faults);
    atomicMax(extent + 1, highest);
    atomicMax(extent + 2, lowest);
}

// Bring weights in the order of elements; an item of `order` has the place in its `n_bits` lowest bits,
// and a key above them. Weights are also converted to whole units of 2^unit if that is wanted: whole numbers, or their
// `n_limbs` digits of 32 bits, one row each, the lowest first.
extern "C" __global__ void __launch_bounds__(WEIGH_THREADS) weigh_ordered(
    const u64* order, i64 n, int n_bits, const Held* weights, int unit, int n_limbs, u64* keys, Held* ordered,
    i64* whole
) {
#pragma unroll 4
    for (i64 i = own_thread(); i < n; i += all_threads()) {
        u64 item = order[i];
        Held held = weights[item & ((1ull << n_bits) - 1)];
        ordered[i] = held;
        if (keys) keys[i] = item >> n_bits;
        if (!whole) continue;
        Weighed weight = weighed(held);
        for (int limb = 0; limb < n_limbs; limb++) {
            u64 digits = digits_from(weight, unit, limb);
            whole[limb * n + i] = (i64)(n_limbs > 1 ? (unsigned)digits : digits);
        }
    }
}

// Choose the exponent of a unit of which most weights are multiples, from those at hashed places: the
// median of the places of their last digits, minus UNITS_BELOW. The same for all blocks.
__device__ __forceinline__ int unit_of(const Held* weights, i64 n) {
    if (WHOLE) return 0;
    constexpr int NONE = 1 << 30;
    int size = n < UNIT_SAMPLE ? (int)n : UNIT_SAMPLE, mine = NONE;
    if (threadIdx.x < size) {
        Weighed weight = weighed(weights[sampled_place(threadIdx.x, size, n)]);
        if (weight.digits && !weight.faults) mine = weight.place;
    }
    int n_good = __syncthreads_count(mine != NONE);
    int median = first_not(LEAST_PLACE, -LEAST_PLACE, [&](int place) {
        return __syncthreads_count(mine <= place) <= n_good / 2;
    });
    return n_good ? max(median - UNITS_BELOW, LEAST_PLACE) : 0;
}

constexpr int AHEAD = 8;  // elements that a thread loads and places together
// Digits of 32 bits of a block's sums, and bits of a weight in units that may be added to them: 2^32 of these fit.
constexpr int LIMBS = IN_UNITS ? 2 : NARROW || WHOLE ? 3 : 4, ROOM = IN_UNITS ? 64 : 32 * (LIMBS - 1);
constexpr int MOST_SHIFT = ROOM - (WHOLE ? 63 : NARROW ? 24 : 53);  // by which all weights may be multiplied

// Convert a weight to units of 2^unit, rounded down if IN_UNITS. Return false if it is not whole, or too large.
__device__ __forceinline__ bool has_units(Weighed weight, int unit, u64& low, u64& high) {
    u64 digits = weight.digits;
    int shift = weight.place - unit;
    if ((u32)shift > MOST_SHIFT) {
        if (shift < 0) {
            bool is_whole = shift > -64 && !(digits & ((1ull << -shift) - 1));
            if (!IN_UNITS && !is_whole) return false;
            digits = shift > -64 ? digits >> -shift : 0;
            shift = 0;
        }
        if (shift >= 64 || shift + 64 - __clzll(digits) > ROOM) return false;
    }
    low = digits << shift;
    high = shift && LIMBS > 3 ? digits >> (64 - shift) : 0;
    return true;
}

// Add a number of units to a sum in shared memory, whose digits lie `stride` apart.
__device__ __forceinline__ void add_units(u32* sum, int stride, u64 low, u64 high) {
#if ALONE  // No other thread adds to this sum: one addition of 64 bits, seldom a digit more.
    u64 before = (u64)sum[stride] << 32 | sum[0], after = before + low;
    sum[0] = (u32)after, sum[stride] = (u32)(after >> 32);
    u64 more = high + (after < low);
    for (int limb = 2; limb < LIMBS && more; ++limb, more >>= 32) {
        more += sum[limb * stride];
        sum[limb * stride] = (u32)more;
    }
#else  // Shared memory adds 32 bits natively, but 64 bits only in a loop.
    u64 units[2] = {low, high};
    u32 carry = 0;
#pragma unroll
    for (int limb = 0; limb < LIMBS; ++limb) {
        u64 part = (u64)(u32)(units[limb / 2] >> 32 * (limb % 2)) * (limb < ROOM / 32) + carry;
        carry = (u32)(part >> 32);
        if ((u32)part == 0) continue;
        u32 before = atomicAdd(sum + limb * stride, (u32)part);
        carry += before + (u32)part < before;
    }
#endif
}

// Count elements and sum weights by segments, and gather the elements in the wanted cells with their weights.
// Weights may be of any kind.
//
// Each block has `n_copies` of the counts and sums of all segments, so that few of its threads add to the same
// ones. Sums are in units of 2^unit. Weights that are not whole units, or too many of them, are added to the
// digits of the exact sum directly; if IN_UNITS, weights are rounded down to units that are given, which must be so
// many that sums fit in 64 bits. `totals` has the number of missing elements with a positive weight; flags of invalid
// weights; the number of gathered elements (also those beyond `room`); that of masked ones; the unit; whether
// weights were added directly; for each segment the number of elements and the 4 digits of the sum of units;
// and for each segment TOTAL_DIGITS digits of the weights added directly. Digits have 32 bits.
extern "C" __global__ void __launch_bounds__(ONCE_THREADS, 1024 / ONCE_THREADS) weigh_once(
    const Word* values, const Held* weights, const Keep* keeps, i64 n, const Value* ends, int n_ends,
    const unsigned char* wanted, int given_unit, int n_copies, u64* totals, Value* taken, Weight* their_weights,
    u64 room
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    const int unit = IN_UNITS ? given_unit : unit_of(weights, n);
    constexpr int T = ONCE_THREADS, FIELDS = 1 + LIMBS;
    int n_segments = 2 * n_ends + 1, n_counters = n_segments * n_copies;
    Weight* staged_weights = (Weight*)scratch;
    Value* staged = (Value*)(staged_weights + (IN_UNITS ? 0 : T / 32 * WARP_STAGE));
    Value* own_ends = staged + (IN_UNITS ? 0 : T / 32 * WARP_STAGE);
    int n_bytes = (IN_UNITS ? 0 : T / 32 * WARP_STAGE * (int)(sizeof(Weight) + sizeof(Value))) + n_ends * (int)sizeof(Value);
    u32* counts = (u32*)(scratch + (n_bytes + 3) / 4 * 4);  // and behind them each digit of the sums
    unsigned char* own_wanted = (unsigned char*)(counts + FIELDS * n_counters);
    __shared__ u32 others[4];  // missing, invalid, masked, added directly
    for (int i = threadIdx.x; i < n_ends; i += T) own_ends[i] = ends[i];
    for (int i = threadIdx.x; i < FIELDS * n_counters; i += T) counts[i] = 0;
    if (!IN_UNITS) {
        for (int i = threadIdx.x; i <= n_ends; i += T) own_wanted[i] = wanted[i];
    }
    if (threadIdx.x < 4) others[threadIdx.x] = 0;
    __syncthreads();

    u64 *sums = totals + 6, *rest = sums + (i64)5 * n_segments;
    u32 lane = threadIdx.x % 32, n_staged = 0;
    u32 n_missing = 0, n_masked = 0, faults = 0, is_direct = 0;
    int copy = threadIdx.x % n_copies;
    staged += threadIdx.x / 32 * WARP_STAGE;
    staged_weights += threadIdx.x / 32 * WARP_STAGE;
    auto write = [&] {
        __syncwarp();
        u64 at = reserved(totals + 2, n_staged);
        for (u32 i = lane; i < n_staged; i += 32) {
            if (at + i >= room) break;
            taken[at + i] = staged[i];
            their_weights[at + i] = staged_weights[i];
        }
        __syncwarp();
        n_staged = 0;
    };

    for (i64 start = (i64)blockIdx.x * T * AHEAD; start < n; start += all_threads() * AHEAD) {
        Word words[AHEAD];
        Held held[AHEAD];
        const i64 first = start + threadIdx.x;
        const int left = (int)min(n - start, (i64)T * AHEAD) - (int)threadIdx.x;
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            bool is_there = k * T < left, is_masked = KEEPS && is_there && !keeps[first + k * T];
            n_masked += is_masked;
            words[k] = is_there ? values[first + k * T] : Word(0);
            held[k] = is_there && !is_masked ? weights[first + k * T] : Held(0);
        }
        u32 bytes_below[AHEAD] = {};  // of ends; found by bisection for all elements together, which hides latency
        for (int among = n_ends; among; among >>= 1) {
            const int step = among - (among >> 1);
            const char* last = (const char*)(own_ends + step - 1);
            Value tried[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) tried[k] = *(const Value*)(last + bytes_below[k]);
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (is_less_than(tried[k], value_of(words[k]))) bytes_below[k] += step * sizeof(Value);
            }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            Value value = value_of(words[k]);
            Weighed weight = weighed(held[k]);
            bool is_lost = is_missing(value), is_wanted = false;
            if (is_positive(held[k]) && !is_lost) {
                int end = bytes_below[k] / sizeof(Value);
                bool is_end = end < n_ends && is_equal_to(own_ends[end], value);
                int segment = 2 * end + is_end;
                is_wanted = !IN_UNITS && !is_end && own_wanted[end];
                u32* own = counts + segment * n_copies + copy;
                if (ALONE) ++*own; else atomicAdd(own, 1u);
                u64 low, high;
                if (has_units(weight, unit, low, high)) {
                    add_units(own + n_counters, n_counters, low, high);
                } else if (!IN_UNITS) {
                    u64* digits = rest + (i64)segment * TOTAL_DIGITS;
                    add_at(digits, weight.digits, false, weight.place + 32 * TOTAL_POINT);
                    is_direct = 1;
                }
            } else if (weight.digits) {
                faults |= weight.faults;
                n_missing += is_lost;
            }
            if (IN_UNITS) continue;
            u32 holders = __ballot_sync(ALL_LANES, is_wanted);
            if (holders == 0) continue;
            if (is_wanted) {
                u32 at = n_staged + n_before(holders);
                staged[at] = value;
                staged_weights[at] = handed_out(held[k], weight);
            }
            n_staged += __popc(holders);
            if (n_staged > WARP_STAGE - 32) write();
        }
    }
    if (!IN_UNITS) write();
    if (n_missing) atomicAdd(&others[0], n_missing);
    if (faults) atomicOr(&others[1], faults);
    if (n_masked) atomicAdd(&others[2], n_masked);
    if (is_direct) others[3] = 1;
    __syncthreads();
    if (own_thread() == 0) totals[4] = (u64)(i64)unit;
    if (threadIdx.x == 0) {
        if (others[0]) atomicAdd(totals, (u64)others[0]);
        if (others[1]) atomicOr(totals + 1, (u64)others[1]);
        if (others[2]) atomicAdd(totals + 3, (u64)others[2]);
        if (others[3]) atomicOr(totals + 5, 1ull);
    }
    const int group = min(n_copies, 32), member = threadIdx.x % group;  // threads that add up copies together
    for (int first = 0; first < FIELDS * n_segments; first += T / group) {
        int i = first + threadIdx.x / group;
        bool is_there = i < FIELDS * n_segments;
        u64 sum = 0;
        for (int k = member; is_there && k < n_copies; k += group) sum += counts[i * n_copies + k];
        for (int apart = group / 2; apart; apart /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, apart);
        if (sum && !member) atomicAdd(sums + (i64)(i % n_segments) * 5 + i / n_segments, sum);
    }
}

// Draw elements at hashed places with their weights. The weight is 0 if the element is missing or the
// weight invalid. Elements of weight 0 are replaced by the last value in order.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) weigh_drawn(
    const Word* values, const Held* weights, const Keep* keeps, i64 n, i64 size, Value* drawn,
    double* their_weights
) {
    i64 i = own_thread();
    if (i >= size) return;
    constexpr Word LAST = KIND == UNSIGNED ? (Word)~(Word)0 : (Word)((Word)~(Word)0 >> 1);
    i64 place = sampled_place(i, size, n);
    Value value = value_of(values[place]);
    Weighed weight = weighed(weights[place]);
    bool is_good = weight.digits && !weight.faults && !is_missing(value) && (!KEEPS || keeps[place]);
    drawn[i] = is_good ? value : value_of(LAST);
    their_weights[i] = is_good ? (double)handed_out(weights[place], weight) : 0;
}

// For each stretch of a sorted sample, one warp finds the last element with a positive weight. `out`
// gets the largest weights of all stretches, then the sums of weights divided by these, then the sums
// of their squares.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) weigh_stretches(
    const i64* order, const Value* drawn, const double* their_weights, i64 size, i64 n_stretches,
    double* out, Value* last
) {
    i64 stretch = own_thread() / 32;
    if (stretch >= n_stretches) return;
    u32 lane = threadIdx.x % 32;
    i64 first = stretch * size / n_stretches, stop = (stretch + 1) * size / n_stretches;
    i64 at = first;
    double most = 0;
    for (i64 i = first + lane; i < stop; i += 32) {
        double weight = their_weights[order[i]];
        if (weight > 0) at = i;
        most = fmax(most, weight);
    }
    at = largest_over_warp(at);
    most = largest_over_warp(most);
    double sum = 0, squares = 0, unit = most > 0 ? most : 1;
    for (i64 i = first + lane; i < stop; i += 32) {
        double share = their_weights[order[i]] / unit;
        sum += share;
        squares += share * share;
    }
    sum = total_over_warp(sum);
    squares = total_over_warp(squares);
    if (lane) return;
    out[stretch] = most;
    out[n_stretches + stretch] = sum;
    out[2 * n_stretches + stretch] = squares;
    last[stretch] = drawn[order[at]];
}

// --- Exact sums of products -----------------------------------------------------------------------

// Add a number of N limbs of 32 bits, its lowest bit at bit `begin`, to a thread's own ADD_DIGITS
// digits from `first` on, or to the digits of all threads. Digits may be negative, and larger than 32
// bits.
template <int N>
__device__ __forceinline__ void add_limbs(
    const u32 (&limbs)[N], bool is_negative, int begin, int first, u64* own, u64* table
) {
    int place = (begin >> 5) - first, shift = begin & 31;
    u64 whole = 0;
#pragma unroll
    for (int i = 0; i <= N; ++i, ++place) {
        if (i < N) whole += (u64)limbs[i] << shift;
        u64 part = whole & 0xffffffffull;
        whole >>= 32;
        if (part == 0) continue;
        if (is_negative) part = 0 - part;
        if (place >= 0 && place < ADD_DIGITS) own[place * ADD_THREADS] += part;
        else atomicAdd(table + first + place, part);
    }
}

template <int N, int M>
__device__ __forceinline__ void multiply(const u32 (&left)[N], const u32 (&right)[M], u32 (&product)[N + M]) {
#pragma unroll
    for (int i = 0; i < N; ++i) product[i] = 0;
#pragma unroll
    for (int j = 0; j < M; ++j) {
        u64 whole = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            whole += (u64)left[i] * right[j] + product[i + j];
            product[i + j] = (u32)whole;
            whole >>= 32;
        }
        product[N + j] = (u32)whole;
    }
}

// Limbs of weights and of elements: as few as they need, because each costs time in every product.
constexpr int OF_WEIGHT = NARROW ? 1 : 2, OF_VALUE = BITS <= 32 ? 1 : 2;

template <int N>
__device__ __forceinline__ void limbs_of(u64 size, u32 (&limbs)[N]) {
    limbs[0] = (u32)size;
    if (N > 1) limbs[N - 1] = (u32)(size >> 32);
}

// The lowest of the ADD_DIGITS digits that each thread has of a sum, by where its largest terms end. The
// uppermost digit is for larger terms than those of the sample.
__device__ __forceinline__ int first_digit(int end, int point, int n_digits) {
    return min(max((end - 1 + 32 * point) / 32 - ADD_DIGITS + 2, 0), n_digits - ADD_DIGITS - 1);
}

// The lowest digits that threads have by themselves of the sums of weights, of products, and of squares.
struct FirstDigits {
    int weights, products, squares;
};

// Choose these digits by a few of n elements; by a whole block.
__device__ __forceinline__ FirstDigits first_digits(const Word* values, const Held* weights, i64 n) {
    constexpr int T = ADD_THREADS, NONE = -(1 << 20);
    __shared__ int ends[2];  // behind the highest bits of the largest weight and element
    if (threadIdx.x < 2) ends[threadIdx.x] = NONE;
    __syncthreads();
    int n_sampled = n < T ? (int)n : T;
    if (threadIdx.x < n_sampled) {
        i64 at = sampled_place(threadIdx.x, n_sampled, n);
        Weighed weight = weighed(weights[at]);
        Whole element = whole_of(value_of(values[at]));
        if (weight.digits) atomicMax(&ends[0], weight.place + 64 - __clzll(weight.digits));
        if (element.size && !is_special(values[at])) {
            atomicMax(&ends[1], element.begin - 32 * TOTAL_POINT + 64 - __clzll(element.size));
        }
    }
    __syncthreads();
    int end = ends[0] == NONE ? 0 : ends[0], step = ends[1] == NONE ? 0 : ends[1];
    return {
        first_digit(end, TOTAL_POINT, TOTAL_DIGITS), first_digit(end + step, SQUARE_POINT, SQUARE_DIGITS),
        first_digit(end + 2 * step, CUBE_POINT, CUBE_DIGITS)};
}

// What a thread has counted: elements that are inf and -inf, and flags of invalid weights.
struct Others {
    u32 n_high, n_low, faults;
};

__device__ __forceinline__ void add_others(const Others& others, u64* counts) {
    if (others.n_high) atomicAdd(counts, (u64)others.n_high);
    if (others.n_low) atomicAdd(counts + 1, (u64)others.n_low);
    if (others.faults) atomicOr(counts + 2, (u64)others.faults);
}

constexpr int N_SUMS = 3, TABLE = TOTAL_DIGITS + SQUARE_DIGITS + CUBE_DIGITS + 3;

// Add a weight and its products with an element and, if wanted, with its square to the `own` digits of a
// thread, or to those of a table if it is far larger or smaller. Leave out missing elements, those of weight
// 0 and, with two `sides`, those that are not between them.
__device__ __forceinline__ void add_weighed(
    Word word, Held held, const Value* sides, bool has_squares, const FirstDigits& firsts, u64* own, u64* table,
    Others& others
) {
    constexpr int STEP = ADD_DIGITS * ADD_THREADS;
    Value value = value_of(word);
    Weighed weight = weighed(held);
    others.faults |= weight.faults;
    if (!weight.digits || is_missing(value)) return;
    if (sides && !(is_less_than(sides[0], value) && is_less_than(value, sides[1]))) return;
    Whole element = whole_of(value);
    if (is_special(word)) {
        others.n_high += !element.is_negative;
        others.n_low += element.is_negative;
        return;
    }
    // The digits of a float64 with no more bits than a float32 end with zeros.
    constexpr int ZEROS = KIND == FLOATING && OF_VALUE == 1 ? 29 : 0;
    int place = element.begin - 32 * TOTAL_POINT + ZEROS;
    u32 size[OF_VALUE], once[OF_WEIGHT], twice[OF_WEIGHT + OF_VALUE], thrice[OF_WEIGHT + 2 * OF_VALUE];
    limbs_of(element.size >> ZEROS, size);
    limbs_of(weight.digits, once);
    multiply(once, size, twice);
    int begin = weight.place + place + 32 * SQUARE_POINT;
    u64 *products = table + TOTAL_DIGITS, *squares = products + SQUARE_DIGITS;
    add_limbs(twice, element.is_negative, begin, firsts.products, own + STEP, products);
    if (!has_squares) return;
    add_limbs(once, false, weight.place + 32 * TOTAL_POINT, firsts.weights, own, table);
    multiply(twice, size, thrice);
    begin = weight.place + 2 * place + 32 * CUBE_POINT;
    add_limbs(thrice, false, begin, firsts.squares, own + 2 * STEP, squares);
}

// Return where a table has the digits of a sum from the first that threads have on.
__device__ __forceinline__ u64* digits_in(u64* table, int sum, const FirstDigits& firsts) {
    if (sum == 0) return table + firsts.weights;
    u64* products = table + TOTAL_DIGITS;
    return sum == 1 ? products + firsts.products : products + SQUARE_DIGITS + firsts.squares;
}

// Sum exactly the weights of n elements between two others, their products with the elements and, if
// wanted, with the squares of the elements. Only finite elements are summed; the numbers of inf and
// -inf are counted. Missing elements and those of weight 0 are left out. `table` has the digits of the
// sums, one after the other, then the numbers of inf and -inf, and flags of invalid weights.
//
// Each block looks at a few elements to choose the digits that its threads add up by themselves.
__device__ __forceinline__ void add_products(
    const Word* values, const Held* weights, const Keep* keeps, i64 n, const Value* sides, bool has_squares,
    u64* table
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    constexpr int T = ADD_THREADS, EACH = ADD_DIGITS;
    u64 *digits = (u64*)scratch, *own = digits + threadIdx.x, *all = digits + N_SUMS * EACH * T;
    FirstDigits firsts = first_digits(values, weights, n);
    for (int i = 0; i < N_SUMS * EACH; ++i) own[i * T] = 0;
    Others others = {0, 0, 0};
    for (i64 i = threadIdx.x; i < n; i += T) {
        if (KEEPS && !keeps[i]) continue;
        add_weighed(values[i], weights[i], sides, has_squares, firsts, own, table, others);
    }
    __syncthreads();
    for (int i = threadIdx.x / 32; i < N_SUMS * EACH; i += T / 32) {
        u64 sum = 0;
        for (int k = threadIdx.x % 32; k < T; k += 32) sum += digits[i * T + k];
        sum = total_over_warp(sum);
        if (threadIdx.x % 32 == 0) all[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x < N_SUMS) {
        int k = threadIdx.x;
        u64* its = digits_in(table, k, firsts);
        i64 carry = 0;
        for (int i = 0; i < EACH; ++i) {  // so that the digits of all blocks can be added up
            carry += (i64)all[k * EACH + i];
            u64 part = (u64)carry & 0xffffffffull;
            if (part) atomicAdd(its + i, part);
            carry >>= 32;
        }
        if (carry) atomicAdd(its + EACH, (u64)carry);
    }
    add_others(others, table + TABLE - 3);
}

// Sum the elements of several parts as `add_products` does, each to a row of `tables`. A part begins at
// its `start`; `upto` is the number of elements of the parts up to it. With `sides`, only elements
// between the two sides of a part are summed, and no squares. Each block takes an equal share of all.
extern "C" __global__ void __launch_bounds__(ADD_THREADS) weigh_products(
    const Word* values, const Held* weights, const Keep* keeps, const i64* start, const i64* upto,
    int n_parts, const Value* sides, u64* tables
) {
    for_share(upto, n_parts, [&](int part, i64 first, i64 n) {
        i64 place = start[part] + first;
        const Value* between = sides ? sides + 2 * part : nullptr;
        u64* table = tables + (i64)part * TABLE;
        add_products(
            values + place, weights + place, KEEPS ? keeps + place : nullptr, n, between, !sides, table);
    });
}

// Sum the elements of every group below `n_groups`, in any order, each to a row of `tables`; `numbers` are those
// of the groups, others take no part. A block orders a tile of `size` elements by group, and a warp sums those of
// a group.
extern "C" __global__ void __launch_bounds__(ADD_THREADS) weigh_groups(
    const Word* values, const Held* weights, const int* numbers, i64 n, int n_groups, int size, u64* tables
) {
    constexpr int T = ADD_THREADS, EACH = 4, N = N_SUMS * ADD_DIGITS;
    extern __shared__ __align__(16) unsigned char scratch[];
    u64* digits = (u64*)scratch;
    Held* their_weights = (Held*)(digits + N * T);
    Word* tile = (Word*)(their_weights + size);
    u32* left = (u32*)(tile + size);  // elements of each group that have no place yet
    u32* starts = left + n_groups;
    const int me = threadIdx.x, lane = me % 32, warp = me / 32;
    u64 *own = digits + me, *of_warp = digits + 32 * warp;
    FirstDigits firsts = first_digits(values, weights, n);
    for (int i = 0; i < N; ++i) own[i * T] = 0;
    for (i64 start = (i64)blockIdx.x * size; start < n; start += (i64)gridDim.x * size) {
        const i64 stop = min(start + size, n);
        auto visit = [&](i64 first, int (&group)[EACH]) {
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                group[k] = first + k * T < stop ? numbers[first + k * T] : -1;
                if (group[k] >= n_groups) group[k] = -1;
            }
        };
        for (int i = me; i < n_groups; i += T) left[i] = 0;
        __syncthreads();
        for (i64 first = start + me; first < stop; first += T * EACH) {
            int group[EACH];
            visit(first, group);
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                if (group[k] >= 0) atomicAdd(left + group[k], 1u);
            }
        }
        __syncthreads();
        u32 total = prefix_sum(left, starts, n_groups);
        if (me == 0) starts[n_groups] = total;
        for (i64 first = start + me; first < stop; first += T * EACH) {
            int group[EACH];
            Word words[EACH];
            Held held[EACH];
            visit(first, group);
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                words[k] = group[k] >= 0 ? values[first + k * T] : Word(0);
                held[k] = group[k] >= 0 ? weights[first + k * T] : Held(0);
            }
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                if (group[k] < 0) continue;
                u32 at = starts[group[k]] + atomicSub(left + group[k], 1u) - 1;
                tile[at] = words[k];
                their_weights[at] = held[k];
            }
        }
        __syncthreads();
        for (int g = warp; g < n_groups; g += T / 32) {
            const u32 end = starts[g + 1];
            if (starts[g] == end) continue;
            u64* table = tables + (i64)g * TABLE;
            Others others = {0, 0, 0};
            for (u32 i = starts[g] + lane; i < end; i += 32) {
                add_weighed(tile[i], their_weights[i], nullptr, true, firsts, own, table, others);
            }
            __syncwarp();
            // Each thread adds up one digit of all threads of the warp, and clears it.
            i64 sum = 0;
            for (int k = 0; lane < N && k < 32; ++k) {
                u64& digit = of_warp[lane * T + (lane + k) % 32];
                sum += (i64)digit;
                digit = 0;
            }
            if (sum) {  // in two parts, so that the digits of all blocks can be added up
                u64* its = digits_in(table, lane / ADD_DIGITS, firsts) + lane % ADD_DIGITS;
                atomicAdd(its, (u64)sum & 0xffffffffull);
                if (sum >> 32) atomicAdd(its + 1, (u64)(sum >> 32));
            }
            add_others(others, table + TABLE - 3);
            __syncwarp();
        }
        __syncthreads();
    }
}
