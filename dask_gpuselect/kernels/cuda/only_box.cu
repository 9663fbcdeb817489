// The box of an array that is one lane, after ``only_lane.cu`` has found its quartiles: elements beyond
// the fences, the nearest ones inside, and sums, in one read. The host gets all of it in its own memory.

#include "sums.cuh"
#include "beyond.cuh"

// Behind `BoxFound` are the digits of the sums, three counts, and the listed elements of both sides. All
// of that is zero before and after.
constexpr int FOUND_WORDS = sizeof(BoxFound) / 8 + N_NUMBERS;

extern "C" __global__ void __launch_bounds__(MOMENTS_THREADS) only_box(
    const Word* elements, i64 n, double whis, u64* all, u64 room, u64* told
) {
    BoxFound* found = (BoxFound*)all;
    Value* listed = (Value*)(all + FOUND_WORDS);
    const double* answers = found->answers;
    int top = 0;
    find_top_near(5, [&](int i) { return answers[i]; }, PIECES, &top);
    Beyond beyond;
    beyond.start(answers, whis, found, listed, room);
    sum_by_block<MOMENTS_THREADS>(top, (u64*)(found + 1), [&](Sums& sums) {
        Both<Beyond, Sums> mine = {beyond, sums};
        visit_all<MOMENTS_THREADS, SUMS_EACH>(elements, n, nullptr, nullptr, mine);
        beyond.finish();
    });
    if (!is_last_block(&found->n_left)) return;
    // Elements without room were not listed.
    Value* told_listed = (Value*)(told + FOUND_WORDS);
    for (int side = 0; side < 2; ++side) {
        u64 number = min(__ldcg(&found->n_listed[side]), room);
        for (u64 i = threadIdx.x; i < number; i += MOMENTS_THREADS) {
            told_listed[side * room + i] = __ldcg(&listed[side * room + i]);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < FOUND_WORDS; i += MOMENTS_THREADS) {
        told[i] = __ldcg(&all[i]);
        all[i] = 0;
    }
    __threadfence_system();
}
