"""Samples of NumPy chunks, and brackets that they suggest."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu.draws import sample
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.reference import sampling as reference
from dask_gpuselect.kernels.reference.sampling import is_best_counted, is_best_whole, whole
from dask_gpuselect.maths.cuts import Brackets, RanksOf, Tally

__all__ = ["is_best_counted", "is_best_whole", "pilot", "sample", "sorted_sample", "whole"]


def sorted_sample(values: NDArray[Any], size: int) -> tuple[NDArray[Any], float]:
    """A sorted sample; see `reference.sampling.sorted_sample`."""
    return np.sort(sample(values, size)), size / max(values.size, 1)


def pilot(values: NDArray[Any], size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Brackets that a sample suggests, and the tally there; see `reference.sampling.pilot`."""
    drawn = sample(values, size)
    return reference.pilot_from(drawn, partial(tally, values), values.size, ranks)
