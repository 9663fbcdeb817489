// A CUDA grid on one thread of a CPU. Each thread of a block is a fiber, which runs until it has to wait:
// at a barrier, at a vote or shuffle of its warp, or in a loop that waits for another block. Blocks run
// one after another, those of a cooperative launch by turns.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <sys/mman.h>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include "runtime.hpp"

Index threadIdx, blockIdx, blockDim, gridDim;
alignas(1024) unsigned char dynamic_shared[MOST_SHARED];

namespace {

// --- Fibers -----------------------------------------------------------------------------------------

constexpr size_t STACK = (1 << 16) + 1088;  // no power of two, so that stacks lie in different sets of the cache
constexpr uint64_t CANARY = 0xfeedfacecafebeef;
constexpr unsigned char POISON = 0xdb;  // what shared memory has at first, as on a device: anything
constexpr int BEYOND = 1024;  // bytes behind a block's dynamic shared memory that have to stay as they are

#ifdef __x86_64__
typedef void* Context;
extern "C" void switch_stacks(void** from, void* to);
asm(R"(
.text
switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
void switch_to(Context& from, Context& to) { switch_stacks(&from, to); }
void begin(Context& context, unsigned char* stack, void (*run)()) {
    uint64_t* top = (uint64_t*)((uintptr_t)(stack + STACK) / 16 * 16) - 8;
    memset(top, 0, 64);
    top[6] = (uint64_t)run;
    context = top;
}
#else
typedef ucontext_t Context;
void switch_to(Context& from, Context& to) { swapcontext(&from, &to); }
void begin(Context& context, unsigned char* stack, void (*run)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack, context.uc_stack.ss_size = STACK;
    makecontext(&context, run, 0);
}
#endif

enum State { READY, IN_WARP, AT_BARRIER, SPINNING, DONE };
const char* const STATES[] = {"ready", "in a vote or shuffle", "at a barrier", "waiting in a loop", "done"};

struct Fiber {
    Context context;
    unsigned char* stack;
    unsigned number;  // of the thread in its block
    State state = READY;
    int op, source, line;  // of a vote or shuffle; or the barrier's name
    uint32_t mask;
    uint64_t value, result;
};

struct Barrier {
    std::vector<Fiber*> waiting;
    unsigned n_yes = 0;
};

struct Block {
    Index at;
    std::vector<Fiber> fibers;
    std::deque<Fiber*> ready;
    std::vector<Fiber*> spinning;
    unsigned n_done = 0;
    Barrier barriers[16];
    std::vector<unsigned char> shared;  // while another block runs
};

Context scheduler;
Block* block;
Fiber* me;
const Launch* now;
std::string problem;
uint64_t state_of_random;
std::vector<unsigned char*> stacks;

uint64_t random_number() {
    state_of_random ^= state_of_random << 13, state_of_random ^= state_of_random >> 7;
    return state_of_random ^= state_of_random << 17;
}

void pause() { switch_to(me->context, scheduler); }

void wake(Fiber* fiber) {
    fiber->state = READY;
    block->ready.push_back(fiber);
}

Fiber* next_ready() {
    auto& ready = block->ready;
    if (now->order == RANDOM) std::swap(ready[random_number() % ready.size()], ready.back());
    Fiber* fiber = now->order == FORWARD ? ready.front() : ready.back();
    if (now->order == FORWARD) ready.pop_front();
    else ready.pop_back();
    return fiber;
}

// --- Votes and shuffles -----------------------------------------------------------------------------

uint64_t reduced(int op, uint64_t a, uint64_t b) {
    switch (op) {
        case ADD: return (uint32_t)(a + b);
        case MIN: return a < b ? a : b;
        case MAX: return a > b ? a : b;
        case MIN_SIGNED: return (int64_t)a < (int64_t)b ? a : b;
        case MAX_SIGNED: return (int64_t)a > (int64_t)b ? a : b;
        case AND: return a & b;
        case OR: return a | b;
        default: return a ^ b;
    }
}

// If all that a fiber waits for have come, their results, and all but itself can go on.
bool completes(Fiber& waiter) {
    Fiber* warp = &block->fibers[waiter.number / 32 * 32];
    unsigned n_lanes = block->fibers.size() - waiter.number / 32 * 32;
    uint32_t here = 0;  // the lanes of the mask that are not done
    for (unsigned lane = 0; lane < 32 && lane < n_lanes; ++lane) {
        if (!(waiter.mask >> lane & 1) || warp[lane].state == DONE) continue;
        const Fiber& other = warp[lane];
        if (other.state != IN_WARP || other.op != waiter.op || other.mask != waiter.mask) return false;
        here |= 1u << lane;
    }
    uint64_t found = 0;
    bool is_first = true;
    for (uint32_t left = here; left; left &= left - 1) {
        const Fiber& other = warp[__builtin_ctz(left)];
        if (waiter.op == BALLOT) found |= (uint64_t)(other.value != 0) << __builtin_ctz(left);
        else if (waiter.op >= ADD) found = is_first ? other.value : reduced(waiter.op, found, other.value);
        is_first = false;
    }
    for (uint32_t left = here; left; left &= left - 1) {
        Fiber& other = warp[__builtin_ctz(left)];
        other.result = found;
        if (waiter.op == SHUFFLE) {
            if (!(here >> other.source & 1)) {
                fail("line %d: thread %u shuffles from lane %d, which takes no part", other.line,
                     other.number, other.source);
            }
            other.result = warp[other.source].value;
        } else if (waiter.op == MATCH) {
            other.result = 0;
            for (uint32_t all = here; all; all &= all - 1) {
                int lane = __builtin_ctz(all);
                other.result |= (uint64_t)(warp[lane].value == other.value) << lane;
            }
        }
    }
    for (uint32_t left = here; left; left &= left - 1) {
        Fiber& other = warp[__builtin_ctz(left)];
        if (&other == me) me->state = READY;
        else wake(&other);
    }
    return true;
}

// --- Barriers ---------------------------------------------------------------------------------------

bool opens(Barrier& barrier, unsigned n_needed, bool counts) {
    if (barrier.waiting.empty() || barrier.waiting.size() < n_needed) return false;
    for (Fiber* fiber : barrier.waiting) {
        fiber->result = barrier.n_yes;
        if (fiber == me && counts) me->state = READY;
        else wake(fiber);
    }
    barrier.waiting.clear();
    barrier.n_yes = 0;
    return true;
}

// --- Running ----------------------------------------------------------------------------------------

void run_thread() {
    now->kernel(now->arguments);
    me->state = DONE;
    ++block->n_done;
    // Those who waited for it alone go on.
    unsigned first = me->number / 32 * 32;
    for (unsigned t = first; t < first + 32 && t < block->fibers.size(); ++t) {
        if (block->fibers[t].state == IN_WARP) completes(block->fibers[t]);
    }
    opens(block->barriers[0], block->fibers.size() - block->n_done, false);
    pause();
}

size_t static_size() { return now->static_end - now->static_begin; }

void make(Block& made, unsigned number, unsigned first_stack) {
    made.at = {number % gridDim.x, number / gridDim.x % gridDim.y, number / gridDim.x / gridDim.y};
    made.fibers.resize(blockDim.x * blockDim.y * blockDim.z);
    for (unsigned t = 0; t < made.fibers.size(); ++t) {
        if (first_stack + t == stacks.size()) {
            constexpr int MANY = 1024;  // and one that nobody has: the first may be too small, too
            void* memory = mmap(nullptr, STACK * (MANY + 1), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            for (int i = 1; i <= MANY; ++i) stacks.push_back((unsigned char*)memory + i * STACK);
        }
        Fiber& fiber = made.fibers[t];
        fiber.number = t, fiber.stack = stacks[first_stack + t];
        *(uint64_t*)fiber.stack = CANARY;
        begin(fiber.context, fiber.stack, run_thread);
        made.ready.push_back(&fiber);
    }
    made.shared.assign(static_size() + now->shared + BEYOND, POISON);
}

void enter(Block& entered) {
    block = &entered, blockIdx = entered.at;
    memcpy(now->static_begin, entered.shared.data(), static_size());
    memcpy(dynamic_shared, entered.shared.data() + static_size(), now->shared + BEYOND);
}

void leave(Block& left) {
    memcpy(left.shared.data(), now->static_begin, static_size());
    memcpy(left.shared.data() + static_size(), dynamic_shared, now->shared + BEYOND);
    for (int i = 0; i < BEYOND; ++i) {
        if (problem.empty() && dynamic_shared[now->shared + i] != POISON) {
            fail("block %u wrote behind its %zu bytes of shared memory", left.at.x, now->shared);
        }
    }
}

// Run a block until none of its threads can go on; whether any did but to see that it has to wait.
bool run(Block& entered) {
    enter(entered);
    bool moved = !entered.ready.empty();
    for (Fiber* fiber : entered.spinning) wake(fiber);
    entered.spinning.clear();
    while (!entered.ready.empty() && problem.empty()) {
        me = next_ready();
        threadIdx = {me->number % blockDim.x, me->number / blockDim.x % blockDim.y,
                     me->number / blockDim.x / blockDim.y};
        switch_to(scheduler, me->context);
        moved |= me->state != SPINNING;
        if (*(uint64_t*)me->stack != CANARY) fail("the stack of thread %u is full", me->number);
    }
    leave(entered);
    return moved;
}

std::string told(const Block& stuck) {
    std::string text = "deadlock: block " + std::to_string(stuck.at.x);
    for (size_t t = 0, start = 0; t < stuck.fibers.size(); ++t) {
        const Fiber& a = stuck.fibers[start];
        bool is_last = t + 1 == stuck.fibers.size();
        if (!is_last) {
            const Fiber& b = stuck.fibers[t + 1];
            if (a.state == b.state && (a.state == DONE || a.line == b.line)) continue;
        }
        text += "; threads " + std::to_string(start) + " to " + std::to_string(t) + " are ";
        text += STATES[a.state];
        if (a.state == IN_WARP || a.state == AT_BARRIER) text += " of line " + std::to_string(a.line);
        start = t + 1;
    }
    return text;
}

}  // namespace

// --- What kernels call ------------------------------------------------------------------------------

void fail(const char* format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (problem.empty()) problem = text;
}

uint64_t in_warp(int op, uint32_t mask, uint64_t value, int source, int line) {
    if (!(mask >> me->number % 32 & 1)) fail("line %d: thread %u is not in its mask", line, me->number);
    me->op = op, me->mask = mask, me->value = value, me->source = source, me->line = line;
    me->state = IN_WARP;
    if (!completes(*me) || !problem.empty()) pause();
    return me->result;
}

unsigned at_barrier(int name, unsigned n_threads, bool yes, int line) {
    Barrier& barrier = block->barriers[name];
    barrier.waiting.push_back(me);
    barrier.n_yes += yes;
    me->state = AT_BARRIER, me->line = line;
    if (!opens(barrier, n_threads ? n_threads : block->fibers.size() - block->n_done, true)) pause();
    return me->result;
}

void spin() {
    me->state = SPINNING;
    block->spinning.push_back(me);
    pause();
}

// Where any thread may overtake another: in a random order, some do.
void may_pause() {
    if (now->order != RANDOM || random_number() % 8) return;
    wake(me);
    pause();
}

// Returns what went wrong, or an empty text.
extern "C" const char* launch(const Launch* launch) {
    now = launch, problem.clear(), state_of_random = launch->seed * 2654435761u + 88172645463325252ull;
    gridDim = launch->grid, blockDim = launch->block;
    unsigned n_blocks = gridDim.x * gridDim.y * gridDim.z;
    unsigned n_threads = blockDim.x * blockDim.y * blockDim.z;
    std::vector<unsigned> numbers(n_blocks);
    for (unsigned i = 0; i < n_blocks; ++i) {
        numbers[i] = launch->order == BACKWARD ? n_blocks - 1 - i : i;
        if (launch->order == RANDOM) std::swap(numbers[i], numbers[random_number() % (i + 1)]);
    }
    unsigned n_together = launch->is_cooperative ? n_blocks : 1;
    for (unsigned first = 0; first < n_blocks && problem.empty(); first += n_together) {
        std::vector<Block> blocks(n_together);
        for (unsigned b = 0; b < n_together; ++b) make(blocks[b], numbers[first + b], b * n_threads);
        // A thread that comes out of a loop may go right into another: some rounds without any other move.
        for (int idle = 0; idle < 100 && problem.empty(); ++idle) {
            unsigned n_done = 0;
            for (Block& each : blocks) {
                if (each.n_done < n_threads && problem.empty() && run(each)) idle = 0;
                n_done += each.n_done == n_threads;
            }
            if (n_done == n_together) break;
        }
        for (Block& each : blocks) {
            if (each.n_done < n_threads && problem.empty()) problem = told(each);
        }
    }
    return problem.c_str();
}
