// What kernels and the runtime share.

#include <stddef.h>
#include <stdint.h>

struct Index {
    unsigned x, y, z;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;

constexpr size_t MOST_SHARED = 256 << 10;
extern unsigned char dynamic_shared[];

enum Op { SYNC, BALLOT, SHUFFLE, MATCH, ADD, MIN, MAX, MIN_SIGNED, MAX_SIGNED, AND, OR, XOR };
enum Order { FORWARD, BACKWARD, RANDOM };

struct Launch {
    void (*kernel)(void** arguments);  // one thread
    void** arguments;
    Index grid, block;
    size_t shared;  // bytes of dynamic shared memory
    unsigned char *static_begin, *static_end;  // static shared memory
    int is_cooperative;
    int order;
    uint64_t seed;
};

void fail(const char* format, ...);
uint64_t in_warp(int op, uint32_t mask, uint64_t value, int source, int line);
unsigned at_barrier(int name, unsigned n_threads, bool yes, int line);
void spin();
void may_pause();
