"""Elements of CuPy chunks: counted between pivots, and gathered between the ends of brackets."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cuda.cells import MOST_PIVOTS, cuts
from dask_gpuselect.kernels.cuda.spans import merged, tally, tally_in_place

__all__ = ["MOST_PIVOTS", "cuts", "elements_of", "kept", "merged", "tally", "tally_in_place"]


def elements_of(chunk: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """The chunk itself if it is of the dtype that was promised: kernels read it as it lies."""
    return chunk.astype(dtype, copy=False), 0


def kept(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Those elements of a chunk that take part; see `reference.selection.kept`."""
    values = chunk.values
    return elements_of(values if chunk.keeps is None else values[chunk.keeps], dtype)
