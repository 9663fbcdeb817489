"""Box plots of many lanes, complete, as columns of any kind of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import like, namespace, to_host
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.tables import ahead

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


def weighed_fliers(boxes: LaneBoxes) -> tuple[IntArray, NDArray[Any], FloatArray]:
    """List the fliers of lanes with weights, equal ones once, on the host.

    They are ordered where they are, which takes 1 ms for 5e5 fliers on a device, and 60 on a host.

    Returns
    -------
    listed : ndarray of int64, shape (n_lanes, 2)
        Number of values listed below and above each box.
    fliers, weights : ndarrays
        The values and their total weights, in the order of `LaneBoxes.fliers`.
    """
    sides: Any = boxes.sides
    weights: Any = boxes.flier_weights
    elements = boxes.fliers
    xp, n_sides = namespace(elements), 2 * boxes.n_lanes
    order = xp.argsort(elements)
    order = order[xp.argsort(sides[order], kind="stable")]
    sides, elements = sides[order], elements[order]
    # Compared as words, because CuPy takes denormal numbers for 0.
    words = elements.view(f"u{elements.dtype.itemsize}")
    if elements.dtype.kind == "f":
        words = xp.where(words << 1 == 0, xp.zeros_like(words), words)
    is_edge = xp.ones(len(order) + 1, dtype=bool)
    is_edge[1:-1] = (sides[1:] != sides[:-1]) | (words[1:] != words[:-1])
    edges = xp.flatnonzero(is_edge)
    begins, ends, side = edges[:-1], edges[1:], sides[edges[:-1]]
    n = xp.bincount(sides, minlength=n_sides)
    upto = xp.cumsum(n)
    # A value is listed as long as fewer than `most_fliers` elements are more extreme.
    n_beyond = xp.where(side % 2 == 1, upto[side] - ends, begins - (upto - n)[side])
    takes = n_beyond < boxes.most_fliers
    begins, ends, side = begins[takes], ends[takes], side[takes]
    n = xp.bincount(side, minlength=n_sides)
    upto, at = xp.cumsum(n), xp.arange(len(side))
    at = xp.where(side % 2 == 1, (2 * upto - n)[side] - 1 - at, at)
    begins, sizes = begins[at], (ends - begins)[at]
    sums: FloatArray = to_host(weights[order[begins]]).astype(np.float64)
    some = xp.flatnonzero(sizes > 1)
    if len(some):
        first, times = to_host(begins[some]), to_host(sizes[some])
        own = to_host(weights[order[like(ahead(first, times), order)]])
        run = np.repeat(np.arange(len(times)), times)
        sums[to_host(some)] = ExactSums.of(run, len(times), own).rounded()
    return to_host(n).reshape(-1, 2), unsigned_zero(to_host(elements[begins])), sums
