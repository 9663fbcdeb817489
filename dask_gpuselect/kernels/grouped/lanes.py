"""Lanes that are the groups of `maths.runs.Runs`, the only chunk of a column.

`reference.lanes` describes the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask_gpuselect.arrays import in_kind
from dask_gpuselect.maths import runs
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds
from dask_gpuselect.maths.runs import Runs


def _of_columns(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of a column from one of its only chunk."""
    return lambda column, *given, **how: function(column.chunks[0], *given, **how)


parts_of = _of_columns(lambda own: [own])
answer_lanes = _of_columns(lambda own, question: in_kind(runs.answered(own, question), own.home))
answers_and_ends = _of_columns(runs.answers_and_ends)
box_lanes = _of_columns(lambda own, question, rule, **_: own.boxes(question, rule))


def lane_ends(parts: Sequence[Runs], bounds: Bounds, most: int) -> LaneEnds:
    """Collect the elements beyond the bounds of every group, at most `most` of each side."""
    return runs.ends_and_moments(parts[0], bounds, most)


def deviations(own: Runs, centre: Any, dtype: Any) -> Runs:
    """Return the distances of elements from the centres of their groups, in the given dtype."""
    return own.distances(centre, dtype)
