// The brackets and counts of the elements of some ranks, and how these are selected from candidates.

// An entry for each row; n_valid and n_missing have one for each lane. The candidates of a row end
// before its entry of `stops`; without `stops`, each row has `room` places, of which the first are
// used.
struct Known {
    const i64 *below, *before, *inside, *upto, *n_valid, *n_missing, *stops;
    const Word* candidates;
    const i64 *lower, *upper, *known_valid, *known_missing;
    const Word *low, *high;
    i64 room;
};

struct Facts {
    u64 has_changed;  // some lane has other elements than in the passes before
    u64 any_missing;
    u64 least, most;  // valid elements of a lane
    u32 all_missing, too_wide;  // Flags of lanes.cuh
};

// By a warp: the candidate of a rank, which is the largest key that at most `place` others are below.
__device__ Key key_at(const Word* candidates, i64 n, i64 place) {
    int me = threadIdx.x % 32;
    // Up to 64 candidates stay in registers.
    bool is_first = me < n, is_second = me + 32 < n;
    Key first = is_first ? key_of(candidates[me]) : 0;
    Key second = is_second ? key_of(candidates[me + 32]) : 0;
    Key key = 0;
    for (int bit = BITS - 1; bit >= 0; --bit) {
        Key tried = key | Key(1) << bit;
        u32 below = (is_first && first < tried) + (is_second && second < tried);
        for (i64 i = me + 64; i < n; i += 32) below += key_of(candidates[i]) < tried;
        if ((i64)total_over_warp(below) <= place) key = tried;
    }
    return key;
}

// By a warp: the elements of the lower and the upper rank of a row.
__device__ __forceinline__ void select_words(const Known& known, i64 row, Word (&words)[2]) {
    i64 n = known.inside[row], places[2];
    const Word* candidates = known.candidates + (known.stops ? known.stops[row] - n : row * known.room);
    if (!known.stops) n = min(n, known.room);
    places[0] = known.lower[row] - known.before[row];
    places[1] = known.upper[row] - known.before[row];
    for (int j = 0; j < 2; ++j) {
        if (j && places[1] == places[0]) {
            words[1] = words[0];
        } else if (places[j] < 0 || places[j] >= n) {
            words[j] = places[j] < 0 ? known.low[row] : known.high[row];
        } else {
            words[j] = word_of(key_at(candidates, n, places[j]));
        }
    }
}

// Check that the elements of a row's lane are the known ones; if not, note that they have changed.
__device__ __forceinline__ void check_row(const Known& known, i64 row, i64 lane, Facts* facts) {
    i64 n_valid = known.n_valid[lane], n_missing = known.n_missing[lane];
    bool holds = known.below[row] <= known.lower[row] && known.upper[row] < known.upto[row];
    bool is_same = n_valid == known.known_valid[lane] && n_missing == known.known_missing[lane];
    if (!known.stops) is_same &= known.inside[row] <= known.room;
    if (!is_same || (n_valid && !holds)) facts->has_changed = 1;
}
