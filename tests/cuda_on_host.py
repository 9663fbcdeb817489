"""The text of CUDA kernels, compiled for the host: see ``cuda_on_host.hpp``."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda.source import AGREED, INCLUDED, KINDS

THREADS = 64  # of a block
NAMES = {
    "f8": ("u64", "double"),
    "f4": ("u32", "float"),
    "i8": ("u64", "i64"),
    "u8": ("u64", "u64"),
    "i4": ("u32", "int"),
    "i2": ("unsigned short", "short"),
    "u1": ("unsigned char", "unsigned char"),
}
"""Of words and values, by dtype."""
DYNAMIC = "extern __shared__ __align__(16) unsigned char scratch[];"
REPLACED = {
    DYNAMIC: "alignas(16) static unsigned char scratch[1 << 18];",
    "extern __shared__ u64 memory[];": "alignas(16) static u64 memory[1 << 15];",
}
ASM = {
    """    if (multiplies) {
        asm("{\\n"
            "    .reg .u32 sum;\\n"
            "    mad.lo.u32 sum, %1, %4, %2;\\n"
            "    mad.lo.u32 %0, %3, %5, sum;\\n"
            "}"
            : "=r"(least)
            : "r"(a), "r"(b), "r"(most), "r"(one), "r"(-one));
    }""": "    if (multiplies) least = a + b - most;",
    'asm volatile("bar.sync %0, %1;" : : "r"(name), "r"(n_threads) : "memory");': (
        "group_barrier(name, n_threads);"
    ),
    'asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(reach) : "f"((float)n_proposed));': (
        "reach = std::sqrt((float)n_proposed);"
    ),
    'asm("" : "+l"(at));': "",
    "__syncthreads();": "block_barrier();",
}
"""What the host cannot take of the text of lanes' kernels, and what does the same there."""


def compiled(
    folder: Path,
    file: str,
    dtype: str,
    more: dict[str, int],
    wrappers: Sequence[str],
    *,
    header: str = "cuda_on_host.hpp",
    replaced: Mapping[str, str] = MappingProxyType({}),
    threads: int = THREADS,
) -> ctypes.CDLL:
    """The kernels of a file for one dtype, and functions of C that call them by `run_block`."""
    kind = np.dtype(dtype)
    word, value = NAMES[dtype]
    agreed = AGREED | {"IN_PARTS": 1, "BITS": 8 * kind.itemsize, "KIND": KINDS[kind.kind]} | more
    agreed |= {"MOMENTS_THREADS": threads, "UNSIGNED": 0, "SIGNED": 1, "FLOATING": 2}
    lines = [f"#define {name} {number}" for name, number in agreed.items()]
    lines += [f"#define WORD {word}", f"#define VALUE {value}", f'#include "{header}"']
    names = (*INCLUDED.get(file, ()), file)
    text = "".join((files("dask_gpuselect.kernels.cuda") / name).read_text() for name in names)
    for old, new in (REPLACED | dict(replaced)).items():
        text = text.replace(old, new)
    lines.append(text)
    (folder / "kernel.cpp").write_text("\n".join([*lines, *wrappers]))
    command = ["g++", "-std=c++20", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w"]
    command += [f"-I{Path(__file__).parent}", str(folder / "kernel.cpp")]
    subprocess.run([*command, "-o", str(folder / "kernel.so")], check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def pointer(a: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(a.ctypes.data)
