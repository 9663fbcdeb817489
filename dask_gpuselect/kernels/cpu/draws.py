"""Elements at hashed places of a chunk, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.reference import sampling as reference


@until_compiled(reference.sample)
def sample(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Draw valid elements at `size` hashed places; see `reference.sampling.sample`."""
    drawn = np.empty(size, values.dtype)
    _sample(values, drawn)
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


@kernel
def _sample(x: t.Values, drawn: t.Out) -> None:
    """Draw one element from each of equal stretches of x, at a hashed place of the stretch.

    A fixed stride would see one phase of periodic data. Stretches make the sample of sorted data
    nearly even.
    """
    for i in range(drawn.size):
        start = i * x.size // drawn.size
        length = (i + 1) * x.size // drawn.size - start
        drawn[i] = x[start + np.int64(hashed(np.uint64(i)) % np.uint64(length))]


@called_by_kernels
def hashed(i: Any) -> Any:
    """Hash an integer by SplitMix64 (Steele, Lea & Flood 2014), a bijection that looks random."""
    return mixed_word(i * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15))


@called_by_kernels
def mixed_word(word: Any) -> Any:
    """Hash a word by the last step of SplitMix64: every bit depends on all bits of the word."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
