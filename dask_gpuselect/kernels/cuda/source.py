"""What the CUDA kernels are made from: their source text for each dtype, and how much shared memory
they take. Nothing here needs CuPy or a device."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TALLY_THREADS = 256
CHOOSE_THREADS = 1024
MOST_ENDS = 1024  # of brackets, counted in one read
SPANS = (1, 3, 8)  # for which there are kernels
SELECT_THREADS = 1024
MOST_RANKS = 6  # selected at the same time
DIGIT = 11  # bits

KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}  # as in ``elements.cuh``


class Sizes(NamedTuple):
    """How large the kernels of load 1 are made, for the shared memory that a block can have."""

    buckets: int
    sampled: int
    threads: int  # as many as share a multiprocessor's registers, by one block or several


SIZES = (
    Sizes(8192, 1 << 14, 1024),
    Sizes(4096, 1 << 14, 512),
    Sizes(2048, 1 << 13, 512),
    Sizes(1024, 1 << 12, 512),
)
STATIC = 2048  # bytes of shared memory that the kernels and the system take besides


def sizes_for(dtype: np.dtype[Any], shared: int) -> Sizes | None:
    """The largest sizes that fit, or None if none do: before compute capability 7.0."""
    for sizes in SIZES:
        if max(choose_memory(dtype, sizes), classify_memory(dtype, sizes)) + STATIC <= shared:
            return sizes
    return None


FILES = {
    "choose": "cells.cu",
    "classify": "cells.cu",
    "sample": "sampling.cu",
    "guess": "sampling.cu",
    "tally": "spans.cu",
    "locate": "selection.cu",
    "select": "selection.cu",
}
"""Where each kernel is, by the first word of its name. Each file is compiled when it is needed."""


def file_of(kernel: str) -> str:
    return FILES[kernel.partition("_")[0]]


def source(file: str, dtype: np.dtype[Any], sizes: Sizes) -> str:
    """The CUDA C++ source of a file's kernels for one dtype."""
    defined = {
        "BITS": 8 * dtype.itemsize,
        "KIND": KINDS[dtype.kind],
        "BUCKETS": sizes.buckets,
        "SAMPLE": sizes.sampled,
        "CLASSIFY_THREADS": sizes.threads,
    }
    lines = [f"#define {name} {value}\n" for name, value in defined.items()]
    folder = files("dask_gpuselect.kernels.cuda")
    return "".join([*lines, *((folder / name).read_text() for name in ("elements.cuh", file))])


def n_slots(dtype: np.dtype[Any]) -> int:
    """SLOTS of ``cells.cu``."""
    if dtype.itemsize == 1:
        return 256
    if dtype.kind == "f":
        return {2: 64, 4: 512, 8: 4096}[dtype.itemsize]
    bits = 8 * dtype.itemsize
    return 2 * bits if dtype.kind == "i" else bits + 1


def key_size(dtype: np.dtype[Any]) -> int:
    """Bytes of a Key of ``elements.cuh``."""
    return 8 if dtype.itemsize == 8 else 4


def choose_memory(dtype: np.dtype[Any], sizes: Sizes) -> int:
    """Bytes of shared memory that a block of `choose` takes: the sample, and a number a slot."""
    return sizes.sampled * key_size(dtype) + 4 * (n_slots(dtype) + 1)


def classify_memory(dtype: np.dtype[Any], sizes: Sizes) -> int:
    """Bytes for a block of `classify`: windows, and pivots, three counts and two sums a bucket."""
    return 8 * n_slots(dtype) + sizes.buckets * (key_size(dtype) + 5 * 4)


def tally_memory(dtype: np.dtype[Any], n_ends: int) -> int:
    """Bytes for a block of `tally`: what its threads stage, the ends, and their counts."""
    value_size = selected_dtype(dtype).itemsize
    staged = 8 + 8 if dtype.itemsize == 8 else 16 + 16
    return staged * TALLY_THREADS * value_size + (n_ends + 1) * (value_size + 9)


def select_memory(n_ranks: int) -> int:
    """Bytes for a block of `select_digit`: a count for each rank and value of the digit."""
    return n_ranks * 4 << DIGIT


def digits(dtype: np.dtype[Any]) -> list[tuple[int, int]]:
    """The shift and the bits of each digit of a key, the leading one first."""
    bits = 8 * dtype.itemsize
    return [(max(top - DIGIT, 0), min(top, DIGIT)) for top in range(bits, 0, -DIGIT)]


SELECTED: dict[str, np.dtype[Any]] = {"?": np.dtype(np.uint8), "e": np.dtype(np.float32)}


def selected_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which the kernels hand out elements."""
    return SELECTED.get(dtype.char, dtype)


def from_keys(keys: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements of these keys: the inverse of `key_of` in ``elements.cuh``."""
    bits = 8 * dtype.itemsize
    sign = np.uint64(1 << (bits - 1))
    if dtype.kind == "i":
        keys = keys ^ sign
    elif dtype.kind == "f":
        keys = np.where(keys & sign, keys ^ sign, ~keys)
    words = keys.astype(f"u{dtype.itemsize}")
    return words.view(dtype).astype(selected_dtype(dtype), copy=False)
