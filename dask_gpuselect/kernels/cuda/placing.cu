// A record that comes as an argument, written to memory.

struct Passed {
    unsigned char bytes[PASSED];
};

extern "C" __global__ void __launch_bounds__(PLACE_THREADS) place(
    const __grid_constant__ Passed passed, int n, unsigned char* out
) {
    for (int i = threadIdx.x; i < n; i += PLACE_THREADS) out[i] = passed.bytes[i];
}
