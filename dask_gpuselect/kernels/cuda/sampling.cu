// A sample, and the brackets that it lets expect.

extern "C" __global__ void sample(
    const Word* chunk, i64 n, const i64* layout, i64 size, Value* drawn, u64* has_missing
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    Value value = value_of(element(chunk, layout, sampled_place(i, size, n)));
    drawn[i] = value;
    if (is_missing(value)) *has_missing = 1;
}

// The ends of brackets from their keys, so that the tally follows without the host. `spans` is where the
// first of them belongs. One warp.
extern "C" __global__ void guess(const u64* keys, int n_ends, Value* spans) {
    int e = threadIdx.x;
    if (e < n_ends) spans[e] = value_of(word_of((Key)keys[e]));
}
