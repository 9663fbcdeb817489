"""Weighted lanes of CuPy chunks: the host side of ``weighed_shares.cu`` and ``weighed_lanes.cu``.

Sums of weights are floats, or several floats together, which are exact. The host finds the answers
that they cannot tell by integers. Lanes are sorted for the estimator of type 7, if the kernel has
no room for them, or if many quantiles are wanted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_gpuselect.arrays import all_true, any_true
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.lane_boxes import FLIERS_SHARE
from dask_gpuselect.kernels.cuda.lane_stack import Part, parts_in_three
from dask_gpuselect.kernels.cuda.launch import Array, launch, most_shared
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.kernels.reference.at_once import lanes_last
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths import lane_weights
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.keys import EXACT_UP_TO, selection_dtype
from dask_gpuselect.maths.lane_boxes import DRAWS_UP_TO, LaneBoxes
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.lane_ends import Bounds, ends_of_sorted
from dask_gpuselect.maths.lane_weights import WantedQuantiles
from dask_gpuselect.maths.sorted_lanes import SortedLanes

REACH_LANES = source.record("weighed_lanes.cu", "ReachLanes")
REACH_TARGET = source.record("weighed_shares.cu", "ReachTarget")
FLIER_LIST = source.record("weighed_lanes.cu", "FlierList")
# Elements that are sorted together, with 40 bytes of scratch each.
TILE = 1 << 27
# Quantiles of a lane up to which the kernel finds each by itself, in up to 16 looks for 4 bytes.
# Sorting in shared memory takes as long as 4 quantiles, and other sorting as long as 12.
FEW, FEW_LONG = 4, 12


def answer_lanes(column: ChunkColumn, question: Any) -> Array | None:
    """Find the answers ``(n_answers, n_lanes)`` on the chunks' device.

    None where the host answers: about dates, and where weights are larger than 2**53 or nearly as
    large, or small, as float64 can be.
    """
    found = _found(column, question.wanted)
    return None if found is None else _answers(found[1], question)


def box_lanes(
    column: ChunkColumn, question: Any, rule: Rule, *, omits_nan: bool
) -> LaneBoxes | None:
    """Compute the weighted box plot of every lane on the chunks' device.

    None where `answer_lanes` is None, and for integers of 8 bytes. Reads elements and weights once
    more than `answer_lanes`, and those of lanes with fliers twice more.
    """
    dtype = column.dtype
    is_wide = dtype.kind != "f" and dtype.itemsize == 8
    found = None if is_wide else _found(column, question.wanted)
    if found is None:
        return None
    table, lanes = found
    is_none = lanes.n_valid == 0
    if not omits_nan:
        is_none |= lanes.n_missing > 0
    q = as_float64(_answers(lanes, question))
    q[:, is_none] = np.nan
    low, high = rule.fences(q)
    numbers, extremes, fliers = _ends(table, low, high)
    if dtype.kind == "f":
        extremes[:2, is_none], numbers[3:, is_none] = np.nan, np.nan
        # No element is inside a fence that is made from infinite quartiles.
        for fence, nearest in zip((low, high), extremes[2:], strict=True):
            nearest[cupy.isnan(fence)] = np.nan
    names = "weight", "n_low", "n_high", "mean", "deviation"
    ends = zip(("least", "most", "low", "high"), extremes, strict=True)
    return LaneBoxes(
        n=table.n,
        n_valid=lanes.n_valid,
        q=q,
        **dict(zip(names, numbers, strict=True)),
        **dict(ends),
        **fliers,
        starts=None,
        counts=None,
        most_fliers=min(rule.max_fliers, DRAWS_UP_TO),
        n_left_out=table.n - lanes.n_valid - lanes.n_missing,
    )


def _found(column: ChunkColumn, wanted: WantedQuantiles) -> tuple[Weighed, Lanes] | None:
    """Join chunks, and find the elements that answer each lane; None as for `answer_lanes`."""
    chunks, dtype, axes = column
    table = None if dtype.kind in "mM" else Weighed.of(chunks, axes)
    if table is None:
        return None
    lanes = _reached(table, wanted) or _sorted(table, _sorted_as(dtype), wanted)
    if lanes is None or any_true((lanes.n_valid == 0) & (lanes.n_missing == 0)):
        return None  # nothing weighs anything, or all is left out: the host tells them apart
    return table, lanes


def _answers(lanes: Lanes, question: Any) -> Array:
    """Compute the answers ``(n_answers, n_lanes)`` from the elements between which they lie."""
    lower, upper = (_bits(each) for each in (lanes.lower, lanes.upper))
    answers = _in_dtype(lower.view(lanes.lower.dtype).T, question.dtype)
    # The question knows what the others answer: means of two elements, and lanes with NaN.
    is_other = (lower != upper).any(axis=1) | (lanes.n_valid == 0)
    others = cupy.flatnonzero(is_other | (lanes.n_missing > 0))
    if others.size:
        names = "lower", "upper", "n_valid", "n_missing"
        some = Lanes(*(getattr(lanes, each)[others].get() for each in names))
        answers[:, others] = cupy.asarray(question.finished(some))
    return answers


def _bits(values: Array) -> Array:
    """Return the bits of floats, with +0.0 for -0.0: CuPy takes denormal float32 for zeros."""
    if values.dtype.kind != "f":
        return values
    bits = values.view(f"u{values.dtype.itemsize}")
    return cupy.where(bits << bits.dtype.type(1), bits, bits.dtype.type(0))


def _in_dtype(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert elements to a dtype, with denormal float32."""
    if dtype == np.float64:
        return as_float64(values)
    return values.astype(dtype, copy=False)


def _sorted_as(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Choose the floats as which elements of a dtype are sorted."""
    if dtype.kind == "f":
        return np.dtype(f"f{max(dtype.itemsize, 4)}")
    if dtype.itemsize <= 4:
        return np.dtype("f4" if dtype.itemsize <= 2 else "f8")
    return None


class Weighed(NamedTuple):
    """The lanes of some chunks together.

    Parameters
    ----------
    values, weights : cupy.ndarray
        Of one shape. Weights are float64, 0 for elements that are left out, and may be broadcast.
    axes : tuple of int
        The reduced ones.
    slack : float
        A bound of the rounding error of a sum of weights, relative to the weight of the lane; 0
        where such sums are exact.
    scale : float
        Weights times this, rounded, have a sum below 2**32.
    """

    values: Array
    weights: Array
    axes: tuple[int, ...]
    slack: float
    scale: float

    @classmethod
    def of(cls, chunks: Sequence[Accompanied], axes: tuple[int, ...]) -> Weighed | None:
        """Join chunks; None where sums of their weights may overflow or be inaccurate."""
        pairs = [_arrays(chunk) for chunk in chunks]
        if len(pairs) > 1:
            rows = [[lanes_last(each, axes) for each in pair] for pair in pairs]
            axes = (rows[0][0].ndim - 1,)
            pairs = [tuple(cupy.concatenate(each, axis=-1) for each in zip(*rows, strict=True))]
        ((values, weights),) = pairs
        if weights.dtype.kind != "f" or not weights.size:
            return None
        n = math.prod(values.shape[axis] for axis in axes)
        each = _once(weights)
        largest = float(each.max())
        if not 1e-290 < largest < 1e290 / n:
            return None
        is_whole = n * largest < EXACT_UP_TO and all_true(cupy.rint(each) == each)
        slack = 0.0 if is_whole else (n + 8) * 2.0**-52
        return cls(values, weights, axes, slack, max(2**32 - 2 * n, 1) / (n * largest))

    @property
    def n(self) -> int:
        """The number of elements of a lane."""
        return math.prod(self.values.shape[axis] for axis in self.axes)

    @property
    def rows(self) -> tuple[Array, Array]:
        """Values and weights as tables with a row for each lane: copies, unless lanes are last."""
        values, weights = (
            lanes_last(each, self.axes).reshape(-1, self.n) for each in (self.values, self.weights)
        )
        return values, weights


def _arrays(chunk: Accompanied) -> tuple[Array, Array]:
    """Return the elements of a chunk, and their weights: 0 for those that are left out."""
    weights = chunk.weights
    assert weights is not None
    if chunk.keeps is not None:
        weights = cupy.where(chunk.keeps, weights, weights.dtype.type(0))
    return chunk.values, cupy.broadcast_to(as_weights(_once(weights)), chunk.shape)


def _once(array: Array) -> Array:
    """Take each element of a broadcast array once."""
    return array[tuple(slice(None if step else 1) for step in array.strides)]


class _Layout(NamedTuple):
    """Places of the elements of lanes, and of their weights, in memory."""

    values: Part
    weights: Part

    @classmethod
    def of(cls, table: Weighed) -> _Layout:
        (values,), (weights,) = (
            parts_in_three([each], table.axes) for each in (table.values, table.weights)
        )
        return cls(values, weights)

    @property
    def n_lanes(self) -> int:
        return self.values.shape[0] * self.values.shape[2]

    @property
    def is_side_by_side(self) -> bool:
        """True if neighbouring lanes are nearer to each other than rows are."""
        outer, row, _ = self.values.strides
        return self.values.shape[2] > 1 or row > outer

    def arguments(self, n_targets: int = 0, *how: float) -> tuple[Any, ...]:
        """Return the first arguments of a kernel: elements, weights, and `ReachLanes`."""
        _, n, inner = self.values.shape
        strides = *self.values.strides, *self.weights.strides
        sizes = self.n_lanes, inner, n, *strides, n_targets, *(how or (0.0, 1.0))
        told = np.array([sizes], REACH_LANES)
        return self.values.chunk, self.weights.chunk, cupy.asarray(told.view(np.uint8))


def _targets(table: Weighed, wanted: WantedQuantiles) -> list[tuple[float, bool]]:
    """List the shares to reach, and those to pass, which only exact sums tell from the former."""
    passes = wanted.method == "averaged_inverted_cdf" and table.slack == 0
    passed = [(q, True) for q in wanted.q if passes and 0 < q < 1]
    return [*((q, False) for q in wanted.q), *passed]


def _reached(table: Weighed, wanted: WantedQuantiles) -> Lanes | None:
    """Find the answers by the kernel, without sorting.

    None if there is no kernel for lanes so long, or for so many quantiles. Reads the elements once.
    Scratch: copies where lanes are not evenly spaced.
    """
    layout, targets = _Layout.of(table), _targets(table, wanted)
    dtype, shared = np.dtype(table.values.dtype), most_shared(cupy.cuda.Device().id)
    most = FEW if source.order_kernel(dtype, table.n, shared) else FEW_LONG
    if len(wanted.q) > most or wanted.method == lane_weights.TYPE_7:
        return None
    side_by_side = layout.is_side_by_side
    kernel = source.reach_kernel(dtype, table.n, shared, is_side_by_side=side_by_side)
    if kernel is None:
        return None
    n_lanes = layout.n_lanes
    record = np.array(targets, REACH_TARGET)
    found = cupy.empty((n_lanes, len(targets)), selection_dtype(dtype))
    n_valid, n_missing = cupy.empty((2, n_lanes), np.int64)
    is_unsure = cupy.empty(n_lanes, np.bool_)
    given = layout.arguments(len(targets), table.slack, table.scale)
    arguments = (*given, cupy.asarray(record.view(np.uint8)), found, n_valid, n_missing, is_unsure)
    made = kernel.defined(is_side_by_side=side_by_side)
    launch(dtype, "reach_lanes", *arguments, shared=kernel.shared, defined=made)
    place_of = {target: place for place, target in enumerate(targets)}
    places = [place_of.get((q, True), place_of[q, False]) for q in wanted.q]
    lower, upper = found[:, : len(wanted.q)], found[:, places]
    _decide(table, wanted, (lower, upper), is_unsure & (n_valid > 0))
    return Lanes(lower, upper, n_valid, n_missing)


def _decide(
    table: Weighed, wanted: WantedQuantiles, found: tuple[Array, Array], is_unsure: Array
) -> None:
    """Replace what was found of lanes that sums of floats cannot tell, by integers on the host."""
    lanes = cupy.flatnonzero(is_unsure)
    if lanes.size:
        some = SortedLanes.weighed(*(each[lanes].get() for each in table.rows))
        exact = lane_weights.pick(some, wanted)
        for mine, right in zip(found, (exact.lower, exact.upper), strict=True):
            mine[lanes] = cupy.asarray(right).astype(mine.dtype)


# --- Lanes that are sorted ------------------------------------------------------------------------


def _sorted(table: Weighed, kind: np.dtype[Any] | None, wanted: WantedQuantiles) -> Lanes | None:
    """Find the answers by sorting the lanes.

    Lanes that exceed shared memory are sorted as floats of a kind; None if no kind holds them.
    Scratch: 4 bytes for each element.
    """
    layout, dtype = _Layout.of(table), np.dtype(table.values.dtype)
    given, n_lanes = layout.arguments(), layout.n_lanes
    kernel = source.order_kernel(dtype, table.n, most_shared(cupy.cuda.Device().id))
    if kernel is not None:
        counts, places = cupy.empty((2, n_lanes), np.int64), cupy.empty((n_lanes, table.n), "u4")
        made = kernel.defined(is_side_by_side=layout.is_side_by_side)
        launch(dtype, "reach_order", *given, places, *counts, shared=kernel.shared, defined=made)
    elif kind is not None:
        tiles = zip(*(_order(tile, kind) for tile in _tiles(table)), strict=True)
        places, counts = (cupy.concatenate(each, axis=-1) for each in tiles)
    else:
        return None
    means = cupy.empty((n_lanes, len(wanted.q)))
    lower = upper = means
    if wanted.method != lane_weights.TYPE_7:
        lower, upper = (cupy.empty(means.shape, selection_dtype(dtype)) for _ in range(2))
    is_unsure, shares = cupy.empty(n_lanes, np.bool_), cupy.asarray(np.array(wanted.q, np.float64))
    numbers = len(shares), lane_weights.METHODS.index(wanted.method), wanted.dtype.itemsize == 8
    arguments = (*given, places, counts[0], shares, *numbers)
    made = source.SORTED_KERNEL.defined(is_side_by_side=True)
    found = lower, upper, means, is_unsure
    launch(dtype, "reach_sorted", *arguments, *found, defined=made)
    _decide(table, wanted, (lower, upper), is_unsure)
    return Lanes(lower, upper, *counts)


def _tiles(table: Weighed) -> Iterator[Weighed]:
    """Yield some lanes, the next ones, and so on, each as a table with a row for each lane."""
    rows = table.rows
    step = max(TILE // max(table.n, 1), 1)
    for start in range(0, max(len(rows[0]), 1), step):
        values, weights = (each[start : start + step] for each in rows)
        yield table._replace(values=values, weights=weights, axes=(1,))


def _order(table: Weighed, kind: np.dtype[Any]) -> tuple[Array, Array]:
    """Find the places of the elements of each row in their order, one row behind the other.

    Elements that take no part are behind all others. Also returns the numbers of valid and of
    missing elements. Rows are brought in order by radix sorts of all rows together.
    """
    values, weighs = table.values.astype(kind, copy=False), table.weights > 0
    is_missing = cupy.isnan(values)
    takes = weighs & ~is_missing
    masks = takes, is_missing & weighs
    counts = cupy.stack([cupy.count_nonzero(mask, axis=1).astype(np.int64) for mask in masks])
    values = cupy.where(takes, values, kind.type(np.nan))
    n_rows, n = values.shape
    word = np.dtype(f"u{kind.itemsize}")
    bits, top = values.view(word).ravel(), word.type(1 << (8 * word.itemsize - 1))
    keys = bits ^ cupy.where(bits & top, word.type(~word.type(0)), top)
    row = cupy.repeat(cupy.arange(n_rows, dtype=np.uint32), n)
    if word.itemsize == 4:
        order = cupy.argsort(row.astype(np.uint64) << np.uint64(32) | keys)
    else:
        order = cupy.argsort(keys)
        order = order[cupy.argsort(row[order])]
    return (order % n).astype(np.uint32), counts


# --- Ends of lanes --------------------------------------------------------------------------------


def _ends(table: Weighed, low: Array, high: Array) -> tuple[Array, Array, dict[str, Array]]:
    """Find what lanes have at their ends, with float64 bounds beyond which elements are fliers.

    Returns the numbers and the extremes of ``reach_ends``, a row for each, and the columns of
    fliers. The host waits once, and twice if more than a fifth of all elements are fliers.
    """
    layout, dtype = _Layout.of(table), np.dtype(table.values.dtype)
    n_lanes = layout.n_lanes
    kernel = source.ends_kernel(table.n, n_lanes, is_side_by_side=layout.is_side_by_side)
    made = kernel.defined(is_side_by_side=layout.is_side_by_side)
    numbers, extremes = cupy.empty((5, n_lanes)), cupy.empty((4, n_lanes), dtype)
    is_unsure = cupy.empty(n_lanes, np.bool_)
    given, bounds = layout.arguments(), (cupy.ascontiguousarray(low), cupy.ascontiguousarray(high))
    room, n = n_lanes * table.n // FLIERS_SHARE + 1, -1
    while n < 0 or n > room:
        room = max(room, n)
        kinds = {"fliers": dtype, "flier_weights": np.float64, "sides": np.int64}
        fliers = {name: cupy.empty(room, kind) for name, kind in kinds.items()}
        told = cupy.zeros(1, np.uint64)
        places = (*(each.data.ptr for each in fliers.values()), room, told.data.ptr)
        record = cupy.asarray(np.array([places], FLIER_LIST).view(np.uint8))
        arguments = (*given, *bounds, record, numbers, extremes, is_unsure)
        launch(dtype, "reach_ends", *arguments, shared=kernel.shared, defined=made)
        n = int(told.get()[0])
    _decide_ends(table, bounds, numbers, is_unsure)
    return numbers, extremes, {name: each[:n].copy() for name, each in fliers.items()}


def _decide_ends(
    table: Weighed, bounds: tuple[Array, Array], numbers: Array, is_unsure: Array
) -> None:
    """Replace the numbers that sums of floats cannot round, by integers on the host."""
    unsure, kind = cupy.flatnonzero(is_unsure), selection_dtype(table.values.dtype)
    step = max(1, reference.TILE // table.n)
    for start in range(0, len(unsure), step):
        lanes = unsure[start : start + step]
        values, weights, low, high = (each[lanes].get() for each in (*table.rows, *bounds))
        some = SortedLanes.weighed(values.astype(kind, copy=False), weights)
        ends: Any = ends_of_sorted(some, Bounds(low, high, kind), 0)
        measures = ends.measure, ends.beyond_low.measure, ends.beyond_high.measure
        exact = *(each.rounded() for each in measures), *ends.moments.mean_and_std()
        numbers[:, lanes] = cupy.asarray(np.stack(exact))
