"""Samples of NumPy chunks, and brackets that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu.draws import sample
from dask_gpuselect.kernels.cpu.moments import moments
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.reference import sampling as reference
from dask_gpuselect.maths.cuts import Brackets, IntArray, RanksOf, Tally
from dask_gpuselect.maths.moments import Moments


def sorted_sample(values: NDArray[Any], size: int) -> tuple[NDArray[Any], float]:
    """Draw a sorted sample; see `reference.sampling.sorted_sample`."""
    return np.sort(sample(values, size)), size / max(values.size, 1)


def pilot(values: NDArray[Any], size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Find brackets from a sample and tally the chunk there; see `reference.sampling.pilot`."""
    drawn = sample(values, size)
    return reference.pilot_from(drawn, partial(tally, values), values.size, ranks)


def tally_and_sums(
    values: NDArray[Any], brackets: Brackets, most: int, ranks: Callable[[int], IntArray]
) -> tuple[Tally | None, Moments]:
    """Tally some brackets and sum a chunk exactly; see `reference.sampling.tally_and_sums`."""
    del ranks
    return tally(values, brackets, most), moments(values, brackets.ends)
