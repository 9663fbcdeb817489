"""Lanes that are the groups of `maths.runs.Runs`, the only chunk of a column. See `maths.runs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import in_kind
from dask_gpuselect.kernels.companions import ChunkColumn
from dask_gpuselect.maths import runs
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds
from dask_gpuselect.maths.runs import Runs


def parts_of(column: ChunkColumn) -> Sequence[Runs]:
    """Return the only chunk of a column."""
    return column.chunks


def answer_lanes(column: ChunkColumn, question: LaneOrder) -> Any:
    """Answer a question for every group, in kind; see `reference.lanes.answer_lanes`."""
    (own,) = column.chunks
    return in_kind(runs.answered(own, question), own.home)


def box_lanes(
    column: ChunkColumn, question: LaneOrder, rule: Rule, *, omits_nan: bool
) -> LaneBoxes | None:
    """Compute the box plot of every group; see `reference.lanes.box_lanes`."""
    boxes: LaneBoxes | None = column.chunks[0].boxes(question, rule)
    return boxes


def answers_and_ends(
    column: ChunkColumn, question: LaneOrder, bounds_of: BoundsOf, most: int
) -> tuple[NDArray[np.float64], LaneEnds]:
    """Answer a question, and collect elements; see `reference.lanes.answers_and_ends`."""
    return runs.answers_and_ends(column.chunks[0], question, bounds_of, most)


def lane_ends(parts: Sequence[Runs], bounds: Bounds, most: int) -> LaneEnds:
    """Collect the elements beyond the bounds of every group; see `reference.lanes.lane_ends`."""
    return runs.ends(parts[0], bounds, most)


def deviations(own: Runs, centre: Any, dtype: np.dtype[Any]) -> Runs:
    """Return the distances of elements from the centres of their groups."""
    return own.distances(centre, dtype)
