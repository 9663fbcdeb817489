"""Elements of NumPy chunks: counted between pivots, and gathered between the ends of brackets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu.cells import cuts
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.maths.cuts import Tally
from dask_gpuselect.maths.keys import selection_dtype

__all__ = ["cuts", "elements_of", "kept", "merged", "tally", "tally_in_place"]

tally_in_place = tally  # this is the host
merged = Tally.merge


def elements_of(chunk: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """The elements of a chunk without NaT, and the number of NaT: a view of a contiguous chunk of a
    dtype that is compared as it is."""
    values = flat(chunk, dtype)
    if dtype.kind not in "Mm":
        return values, 0
    is_valid = values != np.iinfo(np.int64).min  # NaT
    n_nat = len(values) - int(np.count_nonzero(is_valid))
    return (values[is_valid], n_nat) if n_nat else (values, 0)


def flat(chunk: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """All elements of a chunk, as they are compared: in C order if it is contiguous in that."""
    values = np.asarray(chunk, dtype).ravel(order="K")
    if dtype.kind in "bMm":
        values = values.astype(dtype.newbyteorder("="), copy=False).view(selection_dtype(dtype))
    return np.require(values, selection_dtype(dtype), ["C", "A"])


def kept(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """Those elements of a chunk that take part; see `reference.selection.kept`."""
    values = chunk.values
    return elements_of(values if chunk.keeps is None else values[chunk.keeps], dtype)
