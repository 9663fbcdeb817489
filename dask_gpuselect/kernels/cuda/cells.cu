// Load 1: counts of about BUCKETS cells, whatever the distribution, in one read.
//
// An element's bucket is found by arithmetic instead of a search. The leading bits of its key (sign and
// exponent; for integers the number of digits) choose a slot. A slot has a window of keys, divided into
// as many equal buckets as the slot's share of a sorted sample asks for. So two dependent loads from
// shared memory, of the slot's window and of the bucket's pivot, find the cell of an element, for data
// that spread over each binade. If they do not, cells are heavy and the caller splits them.
//
// Defined before this text, according to the size of shared memory: BUCKETS, SAMPLE (a power of two)
// and CLASSIFY_THREADS.

constexpr i64 FLUSH = 1 << 20;  // elements that a block counts before 32 bits could overflow
constexpr int CLASSIFY_EACH = sizeof(Word) == 8 ? 8 : 16;  // elements of a thread in flight
constexpr int TOGETHER = 4;  // elements that a thread classifies together: their loads are in flight

// --- Slots --------------------------------------------------------------------------------------

#if BITS == 8
constexpr u32 SLOTS = 256;
__device__ __forceinline__ u32 slot_of(Key key) { return key; }
__device__ __forceinline__ Key slot_start(u32 slot) { return slot; }
#elif KIND == FLOATING
// A slot for each sign and exponent.
constexpr int MANTISSA = BITS == 16 ? 10 : BITS == 32 ? 23 : 52;
constexpr u32 SLOTS = 1u << (BITS - MANTISSA);
__device__ __forceinline__ u32 slot_of(Key key) { return u32(key >> MANTISSA); }
__device__ __forceinline__ Key slot_start(u32 slot) { return Key(slot) << MANTISSA; }
#else
// A slot for each number of binary digits; those of negative numbers come before, in reverse.
constexpr u32 ZERO = KIND == SIGNED ? BITS : 0;  // the slot of zero
constexpr u32 SLOTS = KIND == SIGNED ? 2 * BITS : BITS + 1;
__device__ __forceinline__ u32 slot_of(Key key) {
    if (KIND == UNSIGNED) return n_digits(key);
    return key & SIGN ? ZERO + n_digits(key ^ SIGN) : ZERO - 1 - n_digits(SIGN - 1 - key);
}
__device__ __forceinline__ Key slot_start(u32 slot) {
    if (slot >= ZERO) {
        Key magnitude = slot == ZERO ? 0 : Key(1) << (slot - ZERO - 1);
        return KIND == UNSIGNED ? magnitude : SIGN + magnitude;
    }
    return SIGN - (Key(1) << (ZERO - 1 - slot));
}
#endif

__device__ __forceinline__ Key slot_last(u32 slot) {
    return slot + 1 < SLOTS ? slot_start(slot + 1) - 1 : LARGEST;
}

// A slot's window in 64 bits: where it begins, its first bucket, and the number and width of its
// buckets. Elements of the slot outside the window fall into the buckets before and behind it, if there
// are any.
struct Window {
    u64 bits;
  // 32 bits for the begin: as it is, or relative to the slot and rounded down
    static constexpr int ROUNDED = BITS < 64 ? 0 : KIND == FLOATING ? 20 : 31;

    __device__ static Window make(u32 slot, Key begin, u32 base, u32 n_buckets, u32 shift) {
        u64 where = BITS < 64 ? (u64)begin : (u64)(begin - slot_start(slot)) >> ROUNDED;
        return Window{where << 32 | (u64)base << 19 | (u64)n_buckets << 6 | shift};
    }
    __device__ __forceinline__ Key begin(u32 slot) const {
        u32 where = u32(bits >> 32);
        return BITS < 64 ? Key(where) : slot_start(slot) + ((Key)where << ROUNDED);
    }
    __device__ __forceinline__ u32 base() const { return u32(bits) >> 19; }
    __device__ __forceinline__ u32 n_buckets() const { return u32(bits) >> 6 & 0x1fff; }
    __device__ __forceinline__ u32 shift() const { return u32(bits) & 63; }
};

// --- Choosing windows and pivots ----------------------------------------------------------------

__device__ int n_less(const Key* sorted, int size, Key key) {
    return first_not(0, size, [&](int place) { return sorted[place] < key; });
}

__device__ int n_up_to(const Key* sorted, int size, Key key) {
    return key == ~Key(0) ? size : n_less(sorted, size, key + 1);
}

// The last key of a bucket: the last bucket of a window may reach beyond the slot.
__device__ Key last_of_bucket(u32 slot, Key edge, u32 shift) {
    return edge + min((Key(1) << shift) - 1, slot_last(slot) - edge);
}

__device__ Key middle(const Key* sorted, int from, int to) { return sorted[(from + to) / 2]; }

// One block. `aim` is the number of buckets to make for the sample. The pivot of a bucket is the key that its
// elements are compared with: in this bucket, if `has_pivot` is 1, or in a later one. `n_buckets` becomes the number of
// all buckets, or 0 if the sample spans so many slots that BUCKETS do not suffice.
extern "C" __global__ void __launch_bounds__(CHOOSE_THREADS) choose(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, u32 aim, u64* windows, Key* pivots,
    unsigned char* has_pivot, u32* n_buckets
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    Key* sampled = (Key*)scratch;
    u32* bases = (u32*)(sampled + SAMPLE);  // of SLOTS slots, and the total
    __shared__ u32 n_valid, n_used;
    if (threadIdx.x == 0) n_valid = n_used = 0;
    __syncthreads();
    u32 valid = 0;
    for (int i = threadIdx.x; i < SAMPLE; i += CHOOSE_THREADS) {
        i64 place = sampled_place(i, SAMPLE, n);
        Word word = element(chunk, layout, place);
        bool missing = is_missing(value_of(word)) || (KEEPS && !keeps[place]);
        sampled[i] = missing ? ~Key(0) : key_of(word);  // missing ones are sorted behind all others
        valid += !missing;
    }
    atomicAdd(&n_valid, valid);
    __syncthreads();
    sort_shared(sampled, SAMPLE, [](Key a, Key b) { return a < b; });
    int size = (int)n_valid;

    // A used slot takes up to three buckets more than its share: one by rounding up, and two for
    // elements outside its window. A run of unused slots takes one bucket.
    u32 used = 0;
    for (u32 slot = threadIdx.x; slot < SLOTS; slot += CHOOSE_THREADS) {
        int from = n_less(sampled, size, slot_start(slot));
        used += from < size && sampled[from] <= slot_last(slot);
    }
    atomicAdd(&n_used, used);
    __syncthreads();
    i64 room = (i64)BUCKETS - 4 * (i64)n_used - 1;
    if (room < BUCKETS / 4) {
        if (threadIdx.x == 0) *n_buckets = 0;
        return;
    }
    aim = (u32)min(room, (i64)aim);

    for (u32 slot = threadIdx.x; slot < SLOTS; slot += CHOOSE_THREADS) {
        Key begin = slot_start(slot), end = slot_last(slot);
        int from = n_less(sampled, size, begin);
        int to = from;
        if (from < size && sampled[from] <= end) {
            to = slot + 1 < SLOTS ? n_less(sampled, size, slot_start(slot + 1)) : size;
        }
        if (from == to) {  // counted at the first slot of its run
            bool is_first = slot == 0 || n_less(sampled, size, slot_start(slot - 1)) < from;
            windows[slot] = Window::make(slot, begin, 0, 0, 0).bits;
            bases[slot] = is_first;
            continue;
        }
        Key least = sampled[from], most = sampled[to - 1];
        bool is_narrow = most - least < (end - begin) / 4;
        if (is_narrow) {
            begin += (least - begin) >> Window::ROUNDED << Window::ROUNDED;
            end = most;
        }
        u32 share = 1 + (u32)((u64)(to - from) * aim / size);
        u64 length = end - begin;  // the length minus one
        int shift = max((int)n_digits(length) - (int)n_digits(share), 0);
        if (length >> shift >= share) ++shift;
        u32 count = (u32)(length >> shift) + 1;
        windows[slot] = Window::make(slot, begin, is_narrow, count, shift).bits;
        bases[slot] = count + 2 * is_narrow;
    }
    __syncthreads();
    u32 total = prefix_sum(bases, bases, SLOTS);
    if (threadIdx.x == 0) {
        bases[SLOTS] = total;
        *n_buckets = total;
    }
    __syncthreads();
    for (u32 slot = threadIdx.x; slot < SLOTS; slot += CHOOSE_THREADS) {
        Window window = {windows[slot]};
        u32 base = bases[slot] + window.base();  // after the bucket for keys before the window
        if (bases[slot + 1] == bases[slot]) base = bases[slot] - 1;  // not the first slot of an unused run
        windows[slot] = Window::make(
            slot, window.begin(slot), base, window.n_buckets(), window.shift()
        ).bits;
    }
    __syncthreads();

    for (u32 b = threadIdx.x; b < total; b += CHOOSE_THREADS) {
        // The last slot whose buckets begin at b or before.
        u32 slot = first_not(1u, SLOTS, [&](u32 slot) { return bases[slot] <= b; }) - 1;
        Window window = {windows[slot]};
        i64 i = (i64)b - window.base();
        bool is_outside = i < 0 || i >= window.n_buckets();
        Key edge = i < 0 ? slot_start(slot) : window.begin(slot) + ((Key)i << window.shift());
        int from = n_less(sampled, size, edge);
        int to = from;
        if (!is_outside) to = n_up_to(sampled, size, last_of_bucket(slot, edge, window.shift()));
        Key pivot = ~Key(0);
        if (from < to) {
            pivot = middle(sampled, from, to);
        } else if (from < size) {  // the pivot is that of the bucket of the next sampled element
            Key next = sampled[from];
            u32 its_slot = slot_of(next);
            Window others = {windows[its_slot]};
            Key start = others.begin(its_slot);
            start += (next - start) >> others.shift() << others.shift();
            Key last = last_of_bucket(its_slot, start, others.shift());
            pivot = middle(sampled, n_less(sampled, size, start), n_up_to(sampled, size, last));
        }
        pivots[b] = pivot;
        has_pivot[b] = from < to;
    }
}

// --- Counting -----------------------------------------------------------------------------------

struct Totals {
    u64 counts[3][BUCKETS];  // of elements below, at and above the bucket's pivot
    u64 n_missing;
};

struct Classify {
    // In shared memory.
    u64* windows;
    Key* pivots;
    u32* counts;  // as in Totals

    Totals* totals;
    u32 n_missing;
    i64 n_counted;  // elements that the block may have counted since the last flush

    template <int N>
    __device__ __forceinline__ void operator()(const Word (&words)[N], Present<N> present) {
        constexpr int BATCH = N < TOGETHER ? N : TOGETHER;
#pragma unroll
        for (int start = 0; start < N; start += BATCH) {
            Key keys[BATCH];
            u32 buckets[BATCH];
#pragma unroll
            for (int e = 0; e < BATCH; ++e) {
                keys[e] = key_of(words[start + e]);
                buckets[e] = bucket_of(keys[e]);
            }
            Key nearest[BATCH];
            u32 sides[BATCH];
            bool are_missing = false, are_present = true, are_alike = BATCH > 1;
#pragma unroll
            for (int e = 0; e < BATCH; ++e) nearest[e] = pivots[buckets[e]];
#pragma unroll
            for (int e = 0; e < BATCH; ++e) {
                sides[e] = keys[e] < nearest[e] ? 0 : keys[e] == nearest[e] ? 1 : 2;
                are_missing |= is_missing(value_of(words[start + e]));
                are_present &= present[start + e];
                are_alike &= buckets[e] == buckets[0] && sides[e] == sides[0];
            }
            if (are_alike && !are_missing && are_present) {  // sorted or tied data: one addition for all
                count(buckets[0], sides[0], BATCH);
                continue;
            }
#pragma unroll
            for (int e = 0; e < BATCH; ++e) {
                bool missing = is_missing(value_of(words[start + e]));
                n_missing += present[start + e] && missing;
                if (!present[start + e] || missing) continue;
                count(buckets[e], sides[e], 1);
            }
        }
        n_counted += N * CLASSIFY_THREADS;
    }

    __device__ __forceinline__ u32 bucket_of(Key key) const {
        u32 slot = slot_of(key);
        Window window = {windows[slot]};
        Key begin = window.begin(slot);
        Key i = (key - begin) >> window.shift();
        if (i < window.n_buckets()) return window.base() + (u32)i;  // false also before the window
        return key < begin ? window.base() - 1 : window.base() + window.n_buckets();
    }

    __device__ __forceinline__ void count(u32 bucket, u32 side, u32 number) {
        atomicAdd(&counts[side * BUCKETS + bucket], number);
    }

    __device__ __forceinline__ void pause() {
        constexpr i64 AT_ONCE = CLASSIFY_THREADS * 64;  // more than one call counts
        if (n_counted + AT_ONCE > FLUSH) flush();
    }

    __device__ void flush() {
        __syncthreads();
        u64* all = &totals->counts[0][0];
        for (int i = threadIdx.x; i < 3 * BUCKETS; i += CLASSIFY_THREADS) {
            if (counts[i]) atomicAdd(&all[i], (u64)counts[i]);
            counts[i] = 0;
        }
        n_counted = 0;
        __syncthreads();
    }
};

extern "C" __global__ void __launch_bounds__(CLASSIFY_THREADS) classify(
    const Word* chunk, i64 n, const i64* layout, const Keep* keeps, const u64* windows, const Key* pivots,
    const u32* n_buckets, Totals* totals
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    u64* own_windows = (u64*)scratch;
    Key* own_pivots = (Key*)(own_windows + SLOTS);
    Classify mine = {own_windows, own_pivots, (u32*)(own_pivots + BUCKETS), totals, 0, 0};
    if (*n_buckets == 0) return;
    for (int i = threadIdx.x; i < SLOTS; i += CLASSIFY_THREADS) mine.windows[i] = windows[i];
    for (int i = threadIdx.x; i < *n_buckets; i += CLASSIFY_THREADS) mine.pivots[i] = pivots[i];
    for (int i = threadIdx.x; i < 3 * BUCKETS; i += CLASSIFY_THREADS) mine.counts[i] = 0;
    __syncthreads();
    visit_all<CLASSIFY_THREADS, CLASSIFY_EACH>(chunk, n, layout, keeps, mine);
    mine.flush();
    add_over_warp(&totals->n_missing, mine.n_missing);
}
