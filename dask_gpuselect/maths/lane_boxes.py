"""Box plots of many lanes, complete, as columns of any kind of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dask_gpuselect.maths.cuts import Arrays

Column = Any  # an array of the kind of the chunks


@dataclass(frozen=True, eq=False)
class LaneBoxes(Arrays):
    """Statistics of the box plot of every lane, with NaN and no fliers where there is no box.

    Parameters
    ----------
    n : int, or ndarray of int64
        Number of elements of each lane, missing ones among them.
    n_valid, n_low, n_high : array of uint32, shape (n_lanes,)
        Number of elements that are not NaN, and of those beyond the lower and the upper fence.
    q : array of float64, shape (n_q, n_lanes)
        Quantiles `Rule.q`.
    mean, deviation : array of float64, shape (n_lanes,)
        Mean and standard deviation, from exact sums, each rounded once.
    least, most, low, high : array, shape (n_lanes,)
        The extremes, and the nearest elements inside the fences. Of the dtype of the chunks.
    fliers : array
        Of the same dtype. For each lane the lowest fliers, ascending, then the highest, descending.
        The lanes come in blocks of consecutive lanes, which may be in any order.
    starts, counts : array of int64
        Where the fliers of each block of lanes begin, and how many they are, in the order of the
        lanes.
    most_fliers : int
        Largest number of fliers of each side of a lane.
    n_left_out : array of integers, shape (n_lanes,), optional
        Number of elements of each lane that a mask leaves out, of `n`. None without masks.
    weight : array of float64, shape (n_lanes,), optional
        With weights, the weight of each lane; `n_low` and `n_high` are then weights too.
    flier_weights, sides : arrays of float64 or int64, and int64, optional
        With weights, those of the fliers, which are in any order and `starts` and `counts` None;
        and twice the number of the lane of each, plus one above the upper fence.
    """

    n: int | Column
    n_valid: Column
    n_low: Column
    n_high: Column
    q: Column
    mean: Column
    deviation: Column
    least: Column
    most: Column
    low: Column
    high: Column
    fliers: Column
    starts: Column
    counts: Column
    most_fliers: int
    n_left_out: Column | None = None
    weight: Column | None = None
    flier_weights: Column | None = None
    sides: Column | None = None

    @property
    def n_lanes(self) -> int:
        return int(self.n_valid.shape[0])


DRAWS_UP_TO = (1 << 31) - 1
"""Largest number of elements of a lane, and of listed fliers of each side."""
