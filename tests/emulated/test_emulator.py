"""The CPU that runs CUDA kernels in tests: which mistakes it finds. What it computes is compared
with NumPy wherever a kernel of the package runs on it.

The stand-in for CuPy is imported from here, and not as `cupy`, which this process may not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulated.cupy import compiler

try:
    compiler.compiler()
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)

from tests.emulated import cupy

ORDERS = ("forward", "backward", "random:1")
pytestmark = pytest.mark.any_dask


def kernel(text: str) -> Any:
    return cupy.RawModule(code=text).get_function("tried")


def ran(
    text: str, threads: int, *more: Any, blocks: int = 1, shared: int = 0, size: int = 0
) -> Any:
    """What a kernel writes to its first argument, a number of 32 bits for each thread."""
    out = cupy.zeros(size or blocks * threads, np.int32)
    kernel(text)((blocks,), (threads,), (out, *more), shared_mem=shared)
    return out.get()


SUM_OF_BLOCK = """
extern "C" __global__ void tried(int* out) {
    __shared__ int sums[32];
    int sum = threadIdx.x + 1000 * blockIdx.x;
    for (int by = 16; by; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) all += sums[w];
    out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}
"""


def test_a_missing_barrier_shows_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (SUM_OF_BLOCK, SUM_OF_BLOCK.replace("__syncthreads();", "")):
        results = []
        for order in ORDERS:
            monkeypatch.setenv("EMULATED_ORDER", order)
            results.append(ran(text, 128).tolist())
        assert (results[0] == results[1] == results[2]) == ("__syncthreads" in text)


EACH_WAITS = """
extern "C" __global__ void tried(int* out, volatile int* arrived) {
    __shared__ int own;
    if (threadIdx.x == 0) {
        own = blockIdx.x;
        atomicAdd((int*)arrived, 1);
        while (*arrived < (int)gridDim.x) {
        }
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = 10 * own + *arrived;
}
"""


def together(text: str, blocks: int) -> Any:
    import ctypes

    out, arrived = cupy.zeros(32 * blocks, np.int32), cupy.zeros(1, np.int32)
    addresses = (ctypes.c_uint64 * 2)(out.data.ptr, arrived.data.ptr)
    first = ctypes.addressof(addresses)
    places = (ctypes.c_uint64 * 2)(first, first + 8)
    start = cupy.cuda.driver.launchCooperativeKernel
    start(kernel(text).ptr, blocks, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(places))
    return out.get()


def test_blocks_that_do_not_run_together_wait_for_ever() -> None:
    with pytest.raises(
        RuntimeError, match="deadlock: block 0; threads 0 to 0 are waiting in a loop"
    ):
        ran(EACH_WAITS, 32, cupy.zeros(1, np.int32), blocks=2)


def test_more_blocks_than_run_together() -> None:
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="too many blocks"):
        together(EACH_WAITS, 5)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            "if (threadIdx.x) __syncthreads(); else __syncwarp();",
            "deadlock: .* 0 to 0 are in a vote",
        ),
        ('asm volatile("bar.sync %0, %1;" : : "r"(1), "r"(128) : "memory");', "at a barrier"),
        ("__shfl_sync(1u << threadIdx.x, 1, 3);", "shuffles from lane 3, which takes no part"),
        ("__ballot_sync(1, true);", "thread 1 is not in its mask"),
        ("extern __shared__ int more[]; more[threadIdx.x] = 1;", "wrote behind its 64 bytes"),
        ("double d = *(double*)(out + 1); __ldg((double*)(out + 1));", "8 bytes is not aligned"),
        (
            "volatile char large[66550]; for (int i = 0; i < 66550; ++i) large[i] = 1;",
            "stack of thread 0 is full",
        ),
    ],
)
def test_mistakes_are_found(body: str, problem: str) -> None:
    text = f'extern "C" __global__ void tried(int* out) {{ {body} }}'
    with pytest.raises(RuntimeError, match=problem):
        ran(text, 64, shared=64)


@pytest.mark.parametrize(
    ("arguments", "shared", "problem"),
    [
        ((), 0, "takes 1 arguments, not 0"),
        ((np.int32(1),), 0, "argument 0 of tried has 8 bytes, not 4"),
        ((np.uint64(0),), 1 << 16, "asks for 65536 bytes of shared memory, and may have 49152"),
    ],
)
def test_launches_that_a_device_refuses(arguments: Any, shared: int, problem: str) -> None:
    tried = kernel('extern "C" __global__ void tried(int* out) {}')
    with pytest.raises((TypeError, cupy.cuda.driver.CUDADriverError), match=problem):
        tried((1,), (32,), arguments, shared_mem=shared)


def test_shared_memory_is_anything_at_first() -> None:
    text = """extern "C" __global__ void tried(int* out) {
        __shared__ int own;
        if (threadIdx.x == 0) *out = own, own = 0;
    }"""
    assert ran(text, 32, blocks=2)[0] == np.int32(-0x24242425)
    assert cupy.empty(1, np.int32).item() == np.int32(-0x24242425)


def test_an_unknown_asm_statement() -> None:
    text = """extern "C" __global__ void tried(int* out) {
        asm("brev.b32 %0, %1;" : "=r"(*out) : "r"(3));
    }"""
    with pytest.raises(compiler.CompileError, match="incomplete type"):
        kernel(text)


# --- Arrays ---------------------------------------------------------------------------------------


def test_arrays_are_none_of_numpy() -> None:
    a = cupy.asarray(np.arange(6.0).reshape(2, 3))
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        np.asarray(a)
    for mixed in (
        lambda: a + np.ones(3),
        lambda: cupy.where(a > 1, a, np.ones(3)),
        lambda: np.ones(3) * a,
    ):
        with pytest.raises(TypeError, match="Unsupported type"):
            mixed()
    assert isinstance(np.sqrt(a), cupy.ndarray)
    assert isinstance(np.sum(a), cupy.ndarray)
    assert a.sum().shape == ()
    assert isinstance(a[0, 0], cupy.ndarray)
    assert isinstance(cupy.count_nonzero(a), cupy.ndarray)
    assert a[:, 1:].data.ptr == a.data.ptr + 8
    assert a.T.flags.f_contiguous
    with pytest.raises(ValueError, match="Unsupported dtype"):
        cupy.asarray(np.array(["a"]))


def test_memory_is_counted_and_limited() -> None:
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        a = cupy.empty(1000, np.uint8)
        b = a[1:] + 1
        del a
        assert pool.used_bytes() == 1024
        pool.set_limit(size=2048)
        with pytest.raises(MemoryError, match="Out of memory allocating 1,536 bytes"):
            cupy.empty(1500, np.uint8)
        assert b.size == 999


@pytest.mark.slow
def test_what_is_read_behind_an_array(tmp_path: Path) -> None:
    script = (
        "import os, numpy as np; os.environ['EMULATED_GUARD'] = '1'\n"
        "from tests.emulated import cupy\n"
        "text = 'extern \"C\" __global__ void tried(int* out) { out[0] = out[threadIdx.x]; }'\n"
        "f = cupy.RawModule(code=text).get_function('tried')\n"
        "a = cupy.zeros(4, np.int32)\n"
        "f((1,), (4,), (a,)); print('fine', flush=True); f((1,), (5,), (a,))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("fine\n", -11), done.stderr
