"""Fingerprints of CuPy chunks: the host side of ``fingerprints.cu``."""

from __future__ import annotations

import cupy
import numpy as np

from dask_gpuselect.kernels.cpu.fingerprints import MASK, mixed
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch
from dask_gpuselect.kernels.cuda.source import MARK_THREADS

WORD = np.dtype(np.uint64)


@advised
def mixed_in(start: int, chunk: Array) -> int:
    """64 bits that a number and every byte of a chunk, in C order, have a part in.

    Reads the chunk once, and copies it only if it is not in C order or begins between two words.
    """
    flat = cupy.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    if flat.data.ptr % WORD.itemsize:
        flat = flat.copy()
    n_words = flat.size // WORD.itemsize
    found = cupy.zeros(1, np.uint64)
    if n_words:
        words = flat[: n_words * WORD.itemsize].view(np.uint64)
        launch(WORD, "mark_words", MARK_THREADS, (words, np.int64(n_words), found))
    rest = flat[n_words * WORD.itemsize :].get().tobytes() if flat.size % WORD.itemsize else b""
    (sum_of_words,) = found.get().tolist()
    n_bytes: int = flat.size
    of_words = int(sum_of_words) ^ int.from_bytes(rest, "little") ^ n_bytes << 32
    return mixed((start ^ of_words) & MASK)
