"""Questions about lanes that one device kernel may answer, and the layout of lanes. The reference.

The reference answers None: the caller then takes a slower way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_gpuselect.arrays import namespace, transposed


def lanes_last(chunk: Any, axes: tuple[int, ...]) -> Any:
    """Return a chunk with its reduced axes joined as the last axis: a view if possible."""
    others = [axis for axis in range(chunk.ndim) if axis not in axes]
    moved = transposed(chunk, (*others, *axes))
    shape = (chunk.shape[axis] for axis in others)
    n = math.prod(chunk.shape[axis] for axis in axes)
    return namespace(chunk).reshape(moved, (*shape, n))


def rows_of_lanes(array: Any, axes: tuple[int, ...]) -> Any:
    """Return the lanes of an array as rows: a view where each is contiguous, else a copy."""
    rows = lanes_last(array, axes)
    return namespace(rows).reshape(rows, (math.prod(rows.shape[:-1]), rows.shape[-1]))


def answer_group_lanes(*_: Any, **__: Any) -> None:
    """Answer a question for every group of every lane, ``(n_answers, n_groups, n_lanes)``, in kind.

    None where it is as fast to ask `answer_lanes` about one group after the other.

    Parameters
    ----------
    column, question
        As for `answer_lanes`.
    places : callable
        Returns for each group the places of its elements in every lane, ascending.
    """


def lane_deviations(*_: Any, **__: Any) -> None:
    """Answer the median of every lane, and that of the distances from it, in kind.

    None where it is as fast to ask `answer_lanes` twice.

    Parameters
    ----------
    column
        As for `answer_lanes`.
    median, distances : LaneOrder
        The questions about the elements and about the distances.
    dtype : dtype
        Dtype of the distances.
    """


def answer_only_lane(*_: Any, **__: Any) -> None:
    """Answer a question about all elements of an array, ``(n_answers,)``, in kind.

    None where samples or cuts are as fast, and if some elements are missing.

    Parameters
    ----------
    values : array
        At least one element.
    question : ElementOrder
        The order statistics to find.
    """


def trimmed_lanes(*_: Any, **__: Any) -> None:
    """Average the elements of every lane between its cuts, as `TrimmedLanes`.

    None where exact sums of clipped elements are as fast, or needed.

    Parameters
    ----------
    column
        As for `answer_lanes`.
    cuts : array, shape (2, n_lanes)
        The least and the largest element of each lane that stay, of the kind of the chunks.
    proportion : float
        Share of the elements that is cut off at each end.
    answer : dtype
        Floating dtype of the means.
    """


def box_alone(*_: Any, **__: Any) -> None:
    """Compute the finished box plot of all elements of an array, as that of one lane.

    None where samples or cuts are as fast, and if some elements are missing.

    Parameters
    ----------
    values : array
        At least one element.
    question : ElementOrder
        The quantiles that `rule` needs.
    rule : Rule
        How boxes are drawn.
    """


def box_lanes(*_: Any, **__: Any) -> None:
    """Compute the finished box plot of every lane, of the kind of the chunks.

    None where `answers_and_ends`, which returns the parts of box plots, is as fast.

    Parameters
    ----------
    column, question
        As for `answer_lanes`. The answers are those that `rule` needs.
    rule : Rule
        How boxes are drawn.
    omits_nan : bool
        True if NaN is left out; otherwise a lane with NaN has no box.
    """


def quotients(distances: Any, centre: Any, scale: float) -> Any:
    """Divide distances by a scale, in their dtype; NaN where the centre is not finite."""
    xp = namespace(distances)
    with np.errstate(all="ignore"):
        return xp.where(
            xp.isfinite(centre), distances / scale, xp.full_like(distances, float("nan"))
        )
