"""Means of lanes without their least and largest elements. The host side of ``trimmed.cu``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn
from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.lane_stack import LaneStack
from dask_gpuselect.kernels.cuda.lanes import blanked_column, counted, floating_of, keeps_of
from dask_gpuselect.kernels.cuda.launch import Array, launch
from dask_gpuselect.maths.trimmed import TrimmedLanes


def trimmed_lanes(
    column: ChunkColumn, cuts: Array, proportion: float, answer: np.dtype[Any]
) -> TrimmedLanes | None:
    """Average the elements of every lane between its cuts; see `reference.lanes.trimmed_lanes`.

    Reads the chunks once. Scratch: 33 bytes for each lane, and copies of masked chunks.
    """
    chunks, dtype, axes = column
    wide = floating_of(column)
    if wide is None:
        return None
    n_left_out = cupy.zeros(cuts.shape[1], np.int64)
    if isinstance(chunks[0], Accompanied):
        n_left_out = counted([~keeps_of(chunk) for chunk in chunks], axes)
        column, _ = blanked_column(column, wide)
    elif dtype.str[1:] in ("i8", "u8"):
        column = column.as_type(wide)
    stack = LaneStack.of(column)
    if stack.n >= 1 << 31:
        return None
    means, n_valid, is_sure = (cupy.empty(stack.n_lanes, each) for each in (answer, "i8", "?"))
    given = stack.record, cupy.ascontiguousarray(as_float64(cuts)), proportion
    made = ("IN_PARTS", int(len(stack.parts) > 1)), ("ANSWER", 8 * answer.itemsize)
    into = means, n_valid, is_sure
    launch(stack.dtype, "trim_lanes", *given, *into, n_threads=stack.n_lanes, defined=made)
    return TrimmedLanes(means, is_sure, n_valid, n_left_out)
