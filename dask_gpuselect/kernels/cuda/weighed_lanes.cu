// Weighted quantiles of lanes: the first element of each up to which the weights reach a share.
//
// A block has the keys of some lanes in shared memory, and one or several threads for each lane. They
// find two bits of the answer's key at a time: the sums of the weights below three keys say which bits
// follow. Sums are floats, which are exact where weights are integers. Elsewhere an answer is unsure if
// a sum is so near to the share that rounding may have moved it past; the host finds that by integers.
//
// Defined before this text: REACH_THREADS; A_BLOCK, how many lanes a block has at the same time, a
// power of two; SIDE_BY_SIDE, 1 if neighbouring lanes are nearer to each other than rows are; and
// WEIGHTS_ARE, where weights are found.

constexpr int OF_LANES = 0;  // in shared memory, for each lane
constexpr int OF_ROWS = 1;   // in shared memory, the same for all lanes
constexpr int APART = 2;     // in the device's memory, the same for all lanes

struct ReachLanes {  // strides in elements, of (outer, rows, inner)
    i64 n_lanes, n_inner, n;
    i64 outer, row, inner;
    i64 weights_outer, weights_row, weights_inner;
    i64 n_targets;
    double slack;  // of a sum, relative to the weight of the lane
};

// What is wanted: the first element up to which the weights reach a share, or pass it. The shares 0
// and 1 are those of the first and of the last element, however little these weigh.
struct ReachTarget {
    double share;
    i64 is_passed;
};

constexpr int PITCH = A_BLOCK + (A_BLOCK > 1);
constexpr int STEP = REACH_THREADS / A_BLOCK;  // threads of a lane, which take every STEP-th row
constexpr int A_WARP = A_BLOCK < 32 ? A_BLOCK : 32;                 // lanes of a warp
constexpr int PARTS = A_BLOCK < 32 ? REACH_THREADS / 32 : STEP;     // sums of a lane, each of a warp's threads
constexpr int TOTALS = A_BLOCK * 3;

struct Lane {
    const Key* keys;  // in shared memory
    const double* weights;
    i64 weights_pitch;
    int n, first;
    double* sums;  // `TOTALS` of the block's lanes, and the parts of these

    __device__ __forceinline__ double weight(int row) const {
        if (WEIGHTS_ARE == APART) return weights[row * weights_pitch];
        return weights[WEIGHTS_ARE == OF_ROWS ? row : row * PITCH];
    }

    // Add up what the threads of the lane have. All of them get the same sum.
    __device__ __forceinline__ void add_up(double (&mine)[3]) const {
        if (STEP == 1) return;
#pragma unroll
        for (int j = 0; j < 3; ++j) {
#pragma unroll
            for (int by = A_WARP; by < 32; by *= 2) mine[j] += __shfl_xor_sync(ALL_LANES, mine[j], by);
        }
        int of_block = threadIdx.x % A_BLOCK, part = A_BLOCK < 32 ? threadIdx.x / 32 : first;
        double* parts = sums + TOTALS;
        if (threadIdx.x % 32 < A_WARP) {
            for (int j = 0; j < 3; ++j) parts[part * TOTALS + 3 * of_block + j] = mine[j];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TOTALS; i += REACH_THREADS) {
            double total = 0;
#pragma unroll 4
            for (int p = 0; p < PARTS; ++p) total += parts[p * TOTALS + i];
            sums[i] = total;
        }
        __syncthreads();
        for (int j = 0; j < 3; ++j) mine[j] = sums[3 * of_block + j];
    }

    // What is below three keys: one, two and three steps of `1 << shift` from a key.
    template <bool COUNTS>
    __device__ __forceinline__ void below(Key from, int shift, double (&found)[3]) const {
        double a = 0, b = 0, c = 0;
#pragma unroll 8
        for (int row = first; row < n; row += STEP) {
            Key key = keys[row * PITCH];
            double w = weight(row);
            if (COUNTS) w = w > 0 ? 1 : 0;
            Key steps = key < from ? 0 : (key - from) >> shift;
            if (steps < 1) a += w;
            if (steps < 2) b += w;
            if (steps < 3) c += w;
        }
        found[0] = a;
        found[1] = b;
        found[2] = c;
        add_up(found);
    }

    // The first key up to which there is the share, or more than it, of what is added up.
    template <bool COUNTS>
    __device__ __forceinline__ Key reached(double share, bool is_passed, double slack, bool& is_unsure) const {
        Key key = 0;
        for (int shift = BITS - 2; shift >= 0; shift -= 2) {
            double found[3];
            below<COUNTS>(key, shift, found);
            int digit = 0;
            for (int j = 0; j < 3; ++j) {
                digit += is_passed ? found[j] <= share : found[j] < share;
                is_unsure |= slack > 0 && fabs(found[j] - share) <= slack;
            }
            key += (Key)digit << shift;
        }
        return key;
    }
};

// Where the first element of a lane is.
__device__ __forceinline__ i64 place_of_lane(const ReachLanes& lanes, i64 number, i64 of_outer, i64 of_inner) {
    if (lanes.n_inner == 1) return number * of_outer;
    i64 outer = number >> 32 ? number / lanes.n_inner : (u32)number / (u32)lanes.n_inner;
    return outer * of_outer + (number - outer * lanes.n_inner) * of_inner;
}

// Copy an element to shared memory, and its weight. NaN gets the largest key, which no number has.
__device__ __forceinline__ void put(
    Word word, const double* weight, int row, int lane, Key* keys, double* held
) {
    keys[row * PITCH + lane] = is_missing(value_of(word)) ? ~Key(0) : key_of(word);
    if (WEIGHTS_ARE == OF_LANES) held[row * PITCH + lane] = *weight;
}

// Copy the lanes of a tile. Neighbouring threads read neighbouring elements: of lanes side by side,
// those of a row.
__device__ __forceinline__ void load(
    const ReachLanes& lanes, const Word* values, const double* weights, i64 start, Key* keys, double* held
) {
    const int n = (int)lanes.n, n_lanes = (int)min(lanes.n_lanes - start, (i64)A_BLOCK);
    if (SIDE_BY_SIDE) {
        int lane = threadIdx.x % A_BLOCK;
        if (lane >= n_lanes) return;
        const Word* its = values + place_of_lane(lanes, start + lane, lanes.outer, lanes.inner);
        const double* own = weights + place_of_lane(lanes, start + lane, lanes.weights_outer, lanes.weights_inner);
#pragma unroll 4
        for (int row = threadIdx.x / A_BLOCK; row < n; row += STEP) {
            put(its[row * lanes.row], own + row * lanes.weights_row, row, lane, keys, held);
        }
        return;
    }
    for (int i = threadIdx.x; i < n * n_lanes; i += REACH_THREADS) {
        int lane = A_BLOCK == 1 ? 0 : (u32)i / (u32)n, row = i - lane * n;
        i64 place = place_of_lane(lanes, start + lane, lanes.outer, lanes.inner) + row * lanes.row;
        i64 its = place_of_lane(lanes, start + lane, lanes.weights_outer, lanes.weights_inner);
        put(values[place], weights + its + row * lanes.weights_row, row, lane, keys, held);
    }
}

extern "C" __global__ void __launch_bounds__(REACH_THREADS) reach_lanes(
    const Word* values, const double* weights, const ReachLanes* told, const ReachTarget* targets,
    Value* found, i64* n_valid, i64* n_missing, unsigned char* are_unsure
) {
    extern __shared__ __align__(16) unsigned char scratch[];
    const ReachLanes lanes = *told;
    double* sums = (double*)scratch;
    double* held = sums + (STEP > 1 ? TOTALS * (1 + PARTS) : 0);
    i64 n_held = WEIGHTS_ARE == OF_LANES ? lanes.n * PITCH : WEIGHTS_ARE == OF_ROWS ? lanes.n : 0;
    Key* keys = (Key*)(held + n_held);
    if (WEIGHTS_ARE == OF_ROWS) {
        for (int row = threadIdx.x; row < lanes.n; row += REACH_THREADS) {
            held[row] = weights[row * lanes.weights_row];
        }
    }
    int of_block = threadIdx.x % A_BLOCK;
    Lane lane;
    lane.keys = keys + of_block;
    lane.weights = WEIGHTS_ARE == APART ? weights : WEIGHTS_ARE == OF_ROWS ? held : held + of_block;
    lane.weights_pitch = lanes.weights_row;
    lane.first = threadIdx.x / A_BLOCK;
    lane.sums = sums;
    for (i64 start = (i64)blockIdx.x * A_BLOCK; start < lanes.n_lanes; start += (i64)gridDim.x * A_BLOCK) {
        __syncthreads();
        load(lanes, values, weights, start, keys, held);
        __syncthreads();
        i64 number = start + of_block;
        bool is_one = number < lanes.n_lanes;
        lane.n = is_one ? (int)lanes.n : 0;  // all threads wait for each other all the same
        double totals[3] = {0, 0, 0};  // weight, number, and number of missing elements
#pragma unroll 4
        for (int row = lane.first; row < lane.n; row += STEP) {
            double w = lane.weight(row);
            bool is_nan = KIND == FLOATING && lane.keys[row * PITCH] == ~Key(0);
            totals[0] += is_nan ? 0 : w;
            totals[1] += w > 0 && !is_nan;
            totals[2] += w > 0 && is_nan;
        }
        lane.add_up(totals);
        bool is_unsure = false;
        for (i64 t = 0; t < lanes.n_targets; ++t) {
            double q = targets[t].share;
            Key key = q == 0 || q == 1
                ? lane.reached<true>(q == 0 ? 1 : totals[1], false, 0, is_unsure)
                : lane.reached<false>(q * totals[0], targets[t].is_passed, totals[0] * lanes.slack, is_unsure);
            if (is_one && lane.first == 0) found[number * lanes.n_targets + t] = value_of(word_of(key));
        }
        if (is_one && lane.first == 0) {
            n_valid[number] = (i64)totals[1];
            n_missing[number] = (i64)totals[2];
            are_unsure[number] = is_unsure;
        }
    }
}
