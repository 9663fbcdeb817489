"""What a device may answer at once about lanes, and others do not: the reference; and lanes with
their elements along the last axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, namespace, transposed
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder


def lanes_last(chunk: Any, axes: tuple[int, ...]) -> Any:
    """A chunk with its reduced axes as one, the last: a view where that can be."""
    kept = [axis for axis in range(chunk.ndim) if axis not in axes]
    moved = transposed(chunk, (*kept, *axes))
    shape = (chunk.shape[axis] for axis in kept)
    n = math.prod(chunk.shape[axis] for axis in axes)
    return namespace(chunk).reshape(moved, (*shape, n))


def answer_group_lanes(
    chunks: Sequence[Array],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    places: Callable[[], Sequence[IntArray]],
) -> Array | None:
    """The answers for every group of every lane, ``(n_answers, n_groups, n_lanes)``, of the chunks'
    kind; None where it is as fast to ask `answer_lanes` about one group after the other.

    Parameters
    ----------
    chunks, dtype, axes, question
        As for `answer_lanes`.
    places : callable
        Gives for each group where its elements are in every lane, ascending.
    """
    return None


def answer_only_lane(values: Array, question: LaneOrder) -> Array | None:
    """The answers about all elements of an array, ``(n_answers,)``, in kind; None where samples or
    cuts find them as fast, and where not all elements are valid.

    Parameters
    ----------
    values : array
        Of one element or more.
    question : LaneOrder
    """
    return None


def box_lanes(
    chunks: Sequence[Array],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    rule: Rule,
    *,
    omits_nan: bool,
) -> LaneBoxes | None:
    """The finished box plot of every lane, of the chunks' kind; None where `answers_and_ends` is as
    fast, which tells what boxes are made of.

    Parameters
    ----------
    chunks, dtype, axes, question
        As for `answer_lanes`. The answers are those that `rule` wants.
    rule : Rule
        How boxes are drawn.
    omits_nan : bool
        Whether NaN is left out; otherwise a lane with any has no box.
    """
    return None
