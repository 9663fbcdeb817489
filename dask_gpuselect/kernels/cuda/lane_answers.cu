// Answers of lanes from the merged tally of all their parts.

#include "lanes.cuh"
#include "lane_reports.cuh"

// Each row has an answer, found by one warp. Every lane has a valid element.
extern "C" __global__ void __launch_bounds__(USUAL_THREADS) answers_of_tally(
    const __grid_constant__ Known known, const __grid_constant__ Wanted wanted, i64 n_lanes,
    Answer* answers, Facts* facts
) {
    for (i64 row = own_thread() / 32; row < n_lanes * wanted.n_answers; row += all_threads() / 32) {
        Word words[2];
        select_words(known, row, words);
        if (threadIdx.x % 32) continue;
        i64 lane = row / wanted.n_answers, answer = row - lane * wanted.n_answers;
        check_row(known, row, lane, facts);
        // The weights are those for the known number of elements: if the number has changed, no answer
        // is used.
        double weight = wanted.weights[(known.known_valid[lane] - wanted.first_v) * wanted.n_answers + answer];
        bool none = known.n_missing[lane] && !wanted.skips_missing;
        answers[answer * n_lanes + lane] = none
            ? no_answer()
            : mixed(key_of(words[0]), key_of(words[1]), weight, wanted.mixes, (Flags*)&facts->all_missing);
    }
}
