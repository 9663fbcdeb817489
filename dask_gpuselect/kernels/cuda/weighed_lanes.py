"""Weighted lanes of CuPy chunks: the host side of ``weighed_*.cu``.

Sums of weights are floats, or several floats together, which are exact. The host finds the answers
that they cannot tell by integers. ``weighed_sorts.cu`` sorts lanes for several quantiles or means,
``weighed_buckets.cu`` sorts parts of lanes that exceed shared memory, and ``weighed_shares.cu``
finds each quantile by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.arrays import all_true, any_true, namespace
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, unstretched
from dask_gpuselect.kernels.cuda import plain_lanes, source
from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.lane_boxes import FLIERS_SHARE, drawn_by
from dask_gpuselect.kernels.cuda.lane_stack import (
    Part,
    marked_lanes,
    numbers_of_rows,
    parts_in_three,
)
from dask_gpuselect.kernels.cuda.launch import Array, blocks_at_once, launch, most_shared, on_device
from dask_gpuselect.kernels.cuda.near import quantiles_of_groups
from dask_gpuselect.kernels.cuda.runs import sorted_runs
from dask_gpuselect.kernels.reference.at_once import lanes_last
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths import lane_weights
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.keys import EXACT_UP_TO, selection_dtype
from dask_gpuselect.maths.lane_boxes import DRAWS_UP_TO, LaneBoxes
from dask_gpuselect.maths.lane_cuts import Lanes, join, moved
from dask_gpuselect.maths.lane_ends import ends_of_sorted
from dask_gpuselect.maths.lane_weights import WantedQuantiles, picked
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from dask_gpuselect.maths.weights import NOT_FINITE

REACH_LANES = source.record("weighed_lanes.cu", "ReachLanes")
REACH_TARGET = source.record("weighed_shares.cu", "ReachTarget")
FLIER_LIST = source.record("weighed_lanes.cu", "FlierList")
# Elements of a lane from which on lanes are sorted in runs, and of the lanes that are sorted
# together, with 48 bytes of scratch each or more.
LONG, TILE = 1 << 21, 1 << 26
GUESSED_TILE = 1 << 28  # elements of lanes that are sampled together, with 13 bytes of scratch each
# Lanes half as long are sorted in runs for more quantiles: 99 of 64 lanes of 2^20 float32 take 16
# ms so, and 40 by a block for each lane, but nine 14 and 10.
LONG_FOR = 16
# Quantiles from which on lanes are sorted once, unless these are means over windows: of lanes up to
# SHORT_UP_TO, and longer ones. Sorting takes as long as 3 and as 6 quantiles, and of elements of 8
# bytes as long as 2: five quantiles of 3,650 float64 took 8.3 ms, and 3.6 by sorting.
MANY, MANY_WIDE = (3, 6), 2
SHORT_UP_TO = 1024
FEW_WEIGHTS = 1 << 16  # weights that are checked on the host
MOST_DECIDED = 1 << 14  # elements of lanes whose ends the host decides if pairs of floats do not
SORTED_AGAIN = (
    1 << 24
)  # elements of lanes that are sorted together because sums of floats do not decide


def answer_lanes(column: ChunkColumn, question: Any) -> Array | None:
    """Find the answers ``(n_answers, n_lanes)`` on the chunks' device.

    None where the host answers: about dates, and where weights are larger than 2**53 or nearly as
    large, or small, as float64 can be. Raises if all valid elements of a lane have weight 0.
    """
    reached = _reached_or_sorted(column, question.wanted)
    if reached is None:
        return None
    _, lanes, is_plain = reached
    return _answers(lanes, question, is_plain=is_plain)


def box_lanes(
    column: ChunkColumn, question: Any, rule: Rule, *, omits_nan: bool
) -> LaneBoxes | None:
    """Compute the weighted box plot of every lane on the chunks' device.

    None where `answer_lanes` is None, and for long lanes. Not for integers of 8 bytes. Reads
    elements and weights once more than `answer_lanes`, and those of lanes with fliers twice more.
    """
    dtype = column.dtype
    reached = None if column.n >= LONG else _reached_or_sorted(column, question.wanted)
    if reached is None:
        return None
    table, lanes, is_plain = reached
    q = as_float64(_answers(lanes, question, is_plain=is_plain))
    is_none = None
    if not is_plain:  # selecting by a mask waits for the device
        is_none = lanes.n_valid == 0
        if dtype.kind != "f" and any_true(is_none):
            return None
        if not omits_nan:
            is_none |= lanes.n_missing > 0
        q[:, is_none] = np.nan
    numbers, extremes, fliers = _ends(table, cupy.ascontiguousarray(q), rule)
    if dtype.kind == "f" and is_none is not None:
        extremes[:2, is_none], numbers[3:, is_none] = np.nan, np.nan
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


def _reached_or_sorted(
    column: ChunkColumn, wanted: WantedQuantiles
) -> tuple[Weighed, Lanes, bool] | None:
    """Join chunks, and find the elements that answer each lane; None as for `answer_lanes`.

    Also returns whether all lanes have elements and miss none. The columns of lanes are contiguous.
    """
    chunks, dtype, axes = column
    table = None if dtype.kind in "mM" else Weighed.of(chunks, axes)
    if table is None:
        return None
    reached = _reached(table, wanted)
    if reached is None:
        lanes = _sorted(table, wanted)
        is_plain = not any_true((lanes.n_valid == 0) | (lanes.n_missing != 0))
    else:
        lanes, is_plain = reached
    if not is_plain and any_true(lanes.n_missing < 0):
        raise ValueError(NOT_FINITE)
    return table, lanes, is_plain


def _answers(lanes: Lanes, question: Any, *, is_plain: bool) -> Array:
    """Compute the answers ``(n_answers, n_lanes)`` from the elements between which they lie."""
    lower, upper = lanes.lower.T, lanes.upper.T
    answers = _in_dtype(lower, question.dtype)
    if lanes.upper is not lanes.lower:
        word = f"u{lower.itemsize}"  # CuPy takes denormal float32 for zeros
        is_other = (lower.view(word) != upper.view(word)).any(axis=0) & (lanes.n_valid > 0)
        others = cupy.flatnonzero(is_other)
        if others.size:
            answers[:, others] = _finished(lanes, question, others)
    if is_plain:
        return answers
    # Lanes without elements, and those with NaN, have the answers of one of them.
    none, missing = lanes.n_valid == 0, lanes.n_missing > 0
    kinds = [none & ~missing, none & missing]
    if not question.skips_missing:
        kinds.append(~none & missing)
    firsts = [(some, cupy.flatnonzero(some)[:1]) for some in kinds]
    firsts = [(some, first) for some, first in firsts if first.size]
    if firsts:
        kind_answers = _finished(lanes, question, cupy.concatenate([first for _, first in firsts]))
        for i, (some, _) in enumerate(firsts):
            answers = cupy.where(some, kind_answers[:, i, None], answers)
    return answers


def _finished(lanes: Lanes, question: Any, some: Array) -> Array:
    """Answer some lanes on the host: the question knows what means and lanes with NaN answer."""
    names = "lower", "upper", "n_valid", "n_missing"
    return cupy.asarray(
        question.finished(Lanes(*(getattr(lanes, each)[some].get() for each in names)))
    )


def _in_dtype(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert elements to a dtype, with denormal float32."""
    if dtype == np.float64:
        return as_float64(values)
    return values.astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Weighed:
    """The lanes of some chunks together, and where they are in memory.

    Parameters
    ----------
    values, weights : cupy.ndarray
        Of one shape. Weights are float64, -0.0 for elements that are left out, and may be
        broadcast.
    keeps : cupy.ndarray, optional
        A mask of the same shape.
    axes : tuple of int
        The reduced ones.
    is_whole : bool
        Whether sums of weights are exact.
    largest : float
        The largest weight.
    """

    values: Array
    weights: Array
    keeps: Array | None
    axes: tuple[int, ...]
    is_whole: bool
    largest: float

    @classmethod
    def of(cls, chunks: Sequence[Accompanied], axes: tuple[int, ...]) -> Weighed | None:
        """Join chunks; None where sums of their weights may overflow or be inaccurate."""
        arrays = [(chunk.values, *_weights_of(chunk), chunk.keeps) for chunk in chunks]
        if len(arrays) > 1:
            rows = [
                [lanes_last(each, axes) for each in (values, _masked(weights, keeps))]
                for values, weights, _, keeps in arrays
            ]
            axes = (rows[0][0].ndim - 1,)
            joined = [cupy.concatenate(each, axis=-1) for each in zip(*rows, strict=True)]
            arrays = [(*joined, joined[1], None)]
        ((values, weights, each, keeps),) = arrays
        if weights.dtype.kind != "f" or not weights.size:
            return None
        n = math.prod(values.shape[axis] for axis in axes)
        largest = float(each.max())
        if not 1e-290 < largest < 1e290 / n:
            return None
        # Few of the weights mostly tell that some are not whole.
        checked = each[(slice(8),) * each.ndim], each
        is_whole = n * largest < EXACT_UP_TO and all(
            all_true(namespace(some).rint(some) == some) for some in checked
        )
        return cls(values, weights, keeps, axes, is_whole, largest)

    def without_mask(self) -> Weighed:
        """Weigh masked elements with -0.0. Scratch: a weight for each element."""
        if self.keeps is None:
            return self
        return replace(self, weights=_masked(self.weights, self.keeps), keeps=None)

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

    @cached_property
    def parts(self) -> tuple[Part, Part, Part | None]:
        """Places of the elements of lanes, of their weights, and of their mask, in memory."""
        arrays = [self.values, self.weights, *([] if self.keeps is None else [self.keeps])]
        values, weights, *keeps = (parts_in_three([each], self.axes)[0] for each in arrays)
        return values, weights, keeps[0] if keeps else None

    @property
    def n_lanes(self) -> int:
        n_outer, _, n_inner = self.parts[0].shape
        return n_outer * n_inner

    @property
    def is_side_by_side(self) -> bool:
        """True if neighbouring lanes are nearer to each other than rows are."""
        values, _, _ = self.parts
        outer, row, _ = values.strides
        return values.shape[2] > 1 or row > outer

    @property
    def are_weights_common(self) -> bool:
        outer, _, inner = self.parts[1].strides
        return not (outer or inner)

    def defined(self, kernel: source.LaneKernel, defined: source.Defined = ()) -> source.Defined:
        return (*kernel.defined, *(() if self.keeps is None else source.KEEPS), *defined)

    def start(self, kernel: source.LaneKernel, name: str, *arguments: Any, **how: Any) -> None:
        """Start a kernel by its name. The first arguments are those of `arguments`."""
        how["defined"] = self.defined(kernel, how.get("defined", ()))
        kind = np.dtype(self.parts[0].chunk.dtype)
        launch(kind, name, *arguments, shared=kernel.shared, **how)

    def arguments(self, n_targets: int = 0, *how: float) -> tuple[Any, ...]:
        """Return the first arguments of a kernel: elements, weights, mask, and `ReachLanes`."""
        values, weights, keeps = self.parts
        _, n, inner = values.shape
        strides, mask = [*values.strides, *weights.strides, 0, 0, 0], None
        if keeps is not None:
            strides[6:], mask = keeps.strides, keeps.chunk.view(np.uint8)
        sizes = self.n_lanes, inner, n, *strides, n_targets, *(how or (0.0, 1.0))
        record = np.array([sizes], REACH_LANES)
        return values.chunk, weights.chunk, mask, on_device(record)


def _weights_of(chunk: Accompanied) -> tuple[Array, Any]:
    """Return the weight of each element of a chunk, whether a mask leaves it out or not.

    Also returns each weight once: on the host if these are few, so that the device is waited for
    once.
    """
    assert chunk.weights is not None
    own: Array = unstretched(chunk.weights)
    once = as_weights(own.get() if own.size <= FEW_WEIGHTS else own)
    if once.dtype.kind == "f" and once.size and once.view(np.int64).min() < 0:
        once = once + 0  # without -0.0
        own = cupy.asarray(once)
    elif once.dtype != own.dtype:
        own = cupy.asarray(once)
    return cupy.broadcast_to(own, chunk.shape), once


def _masked(weights: Array, keeps: Array | None) -> Array:
    return weights if keeps is None else cupy.where(keeps, weights, weights.dtype.type(-0.0))


def _targets(wanted: WantedQuantiles, *, tells_passed: bool) -> list[tuple[float, bool]]:
    """List the shares to reach, and those to pass if the kernel can tell these from the former."""
    passes = wanted.method == "averaged_inverted_cdf" and tells_passed
    passed = [(q, True) for q in wanted.q if passes and 0 < q < 1]
    return [*((q, False) for q in wanted.q), *passed]


def _reached(table: Weighed, wanted: WantedQuantiles) -> tuple[Lanes, bool] | None:
    """Find the answers by kernels that sum pairs of floats, and whether all lanes are complete.

    None for long lanes. Reads the elements once. Scratch: copies where lanes are not evenly spaced.
    """
    if table.n >= LONG >> (len(wanted.q) > LONG_FOR):
        return None
    dtype = np.dtype(table.values.dtype)
    about = dtype, table.n, most_shared(cupy.cuda.Device().id)
    how: dict[str, Any] = {"is_side_by_side": table.is_side_by_side}
    is_mean = wanted.method == lane_weights.TYPE_7
    # Weights times this have a sum below 2**32.
    scale = max(2**32 - 2 * table.n, 1) / (table.n * table.largest)
    many = MANY_WIDE if dtype.itemsize == 8 else MANY[table.n > SHORT_UP_TO]
    if is_mean or len(wanted.q) >= many:
        is_common = table.are_weights_common
        way, kernel = "sort_and_reach", source.sort_kernel(*about, **how, is_common=is_common)
    else:
        way, kernel = "reach_lanes", source.reach_kernel(*about, **how)
    if kernel is None:  # weights times this have at most 64 bits
        way, kernel = "select_and_reach", source.select_kernel(*about, **how)
        scale = 2.0 ** min(64 - math.frexp(table.largest)[1], 1000)
    assert kernel is not None
    n_lanes = table.n_lanes
    n_valid, n_missing = cupy.empty((2, n_lanes), np.int64)
    is_unsure, flags = cupy.empty(n_lanes, np.bool_), cupy.zeros(2, np.uint32)
    results: list[Any] = [n_valid, n_missing, is_unsure, flags]
    made: dict[str, Any] = {"defined": (("MEANS", int(is_mean)),)}
    if way == "select_and_reach":
        made["blocks"] = blocks_at_once(dtype, way, table.defined(kernel, **made), kernel.shared)
        results.append(cupy.empty(made["blocks"] * kernel.lanes * table.n, np.uint16))
    targets = _targets(wanted, tells_passed=table.is_whole or way != "reach_lanes")
    narrow = np.float32 if wanted.dtype == np.float32 else np.float64
    answers = cupy.empty((len(targets), n_lanes), narrow if is_mean else selection_dtype(dtype))
    # Each thread adds so many weights one after the other, and its sum is merged ten times.
    each = -(-table.n // (kernel.threads // kernel.lanes))
    slack = 0.0 if table.is_whole else (each + 16) * 2.0**-52
    given = table.arguments(len(targets), slack, scale)
    records = on_device(np.array(targets, REACH_TARGET))
    table.start(kernel, way, *given, records, wanted.dtype.itemsize, answers, *results, **made)
    lower = upper = answers[: len(wanted.q)].T
    if wanted.method == "averaged_inverted_cdf":
        place_of = {target: place for place, target in enumerate(targets)}
        upper = answers[[place_of.get((q, True), place_of[q, False]) for q in wanted.q]].T
    is_any_unsure, is_any_other = flags.get().tolist()
    if is_any_unsure:
        for some in marked_lanes(is_unsure, table.n, SORTED_AGAIN):
            rows = _some(table, some)
            exact = _sorted(rows, wanted)
            for mine, right in zip((lower, upper), (exact.lower, exact.upper), strict=True):
                mine[some] = right
    return Lanes(lower, upper, n_valid, n_missing), not is_any_other


def _some(table: Weighed, lanes: Array) -> Weighed:
    """Copy some lanes, as a table with a row for each of them."""
    values, weights, keeps = (part and part.rows(lanes) for part in table.parts)
    rows = replace(table, values=values, weights=weights, keeps=keeps, axes=(1,))
    return rows.without_mask()


def _decided(table: Weighed, wanted: WantedQuantiles) -> Lanes:
    """Find the answers of lanes by integers on the host."""
    values, weights = (each.get() for each in table.rows)
    exact = lane_weights.pick(SortedLanes.weighed(values, weights), wanted)
    dtype = selection_dtype(table.values.dtype)
    if wanted.method == lane_weights.TYPE_7:
        dtype = np.dtype(np.float64)
    lower, upper = (cupy.asarray(each).astype(dtype) for each in (exact.lower, exact.upper))
    return Lanes(lower, upper, cupy.asarray(exact.n_valid), cupy.asarray(exact.n_missing))


# --- Lanes that are sorted ------------------------------------------------------------------------


def _sorted(table: Weighed, wanted: WantedQuantiles) -> Lanes:
    """Find the answers by sorting the lanes.

    Scratch: 4 bytes for each element; in lanes that exceed shared memory, that of `sorted_runs`.
    """
    table = table.without_mask()
    dtype = np.dtype(table.values.dtype)
    given, n_lanes = table.arguments(), table.n_lanes
    how: dict[str, Any] = {"is_side_by_side": table.is_side_by_side}
    kernel = source.sort_kernel(dtype, table.n, most_shared(cupy.cuda.Device().id), **how)
    if kernel is None or table.n >= LONG:
        return join([_in_groups(tile, wanted) for tile in _tiles(table, GUESSED_TILE)])
    counts, places = cupy.empty((2, n_lanes), np.int64), cupy.empty((n_lanes, table.n), "u4")
    table.start(kernel, "sort_and_place", *given, places, *counts)
    means = cupy.empty((len(wanted.q), n_lanes))
    lower = upper = means
    if wanted.method != lane_weights.TYPE_7:
        lower, upper = (cupy.empty(means.shape, selection_dtype(dtype)) for _ in range(2))
    is_unsure, shares = cupy.empty(n_lanes, np.bool_), on_device(np.array(wanted.q, np.float64))
    numbers = len(wanted.q), lane_weights.METHODS.index(wanted.method), wanted.dtype.itemsize == 8
    elements, weights, _, about = given
    arguments = elements, weights, about, places, counts[0], shares, *numbers
    table.start(source.SORTED_KERNEL, "reach_sorted", *arguments, lower, upper, means, is_unsure)
    lanes = cupy.flatnonzero(is_unsure & (counts[0] > 0))
    if lanes.size:
        exact = _decided(_some(table, lanes), wanted)
        for mine, right in zip((lower, upper), (exact.lower, exact.upper), strict=True):
            mine[:, lanes] = right.T
    answer_lower = lower.T
    answer_upper = upper.T if wanted.method == "averaged_inverted_cdf" else answer_lower
    return Lanes(answer_lower, answer_upper, *counts)


def _tiles(table: Weighed, size: int) -> Iterator[Weighed]:
    """Yield some lanes, the next ones, and so on, as tables with rows, of about `size` elements."""
    rows = table.rows
    step = max(size // max(table.n, 1), 1)
    for start in range(0, max(len(rows[0]), 1), step):
        values, weights = (each[start : start + step] for each in rows)
        yield replace(table, values=values, weights=weights, axes=(1,))


def _in_groups(table: Weighed, wanted: WantedQuantiles) -> Lanes:
    """Find the answers of the rows of a table, each as a group, by a sample or by sorting."""
    lanes = quantiles_of_groups(*_as_groups(table), wanted)
    if lanes is None:
        return join([_in_runs(tile, wanted) for tile in _tiles(table, TILE)])
    return moved(lanes, cupy.asarray)


def _in_runs(table: Weighed, wanted: WantedQuantiles) -> Lanes:
    """Find the answers of the rows of a table by exact running sums of all weights, in order."""
    runs = sorted_runs(*_as_groups(table))
    if runs is None:
        return _decided(table, wanted)
    return moved(picked(runs, wanted), cupy.asarray)


def _as_groups(table: Weighed) -> tuple[list[Accompanied], np.dtype[Any], int]:
    """Return a chunk in which each row of a table is a group, its dtype, and their number."""
    values, weights = table.rows
    chunk = Accompanied(values, ~cupy.signbit(weights), weights, numbers_of_rows(values))
    return [chunk], values.dtype, len(values)


# --- Ends of lanes --------------------------------------------------------------------------------


def _ends(table: Weighed, q: Array, rule: Rule) -> tuple[Array, Array, dict[str, Array]]:
    """Find what lanes have at their ends, with the quantiles from which their fences follow.

    Returns the numbers and the extremes of ``reach_ends``, a row for each, and the columns of
    fliers. The host waits once, and twice if more than a fifth of all elements are fliers.
    """
    dtype, n_lanes = np.dtype(table.values.dtype), table.n_lanes
    kernel = source.ends_kernel(table.n, n_lanes, is_side_by_side=table.is_side_by_side)
    numbers, extremes = cupy.empty((5, n_lanes)), cupy.empty((4, n_lanes), dtype)
    is_unsure = cupy.empty(n_lanes, np.bool_)
    given = table.arguments()
    bounds = q, len(q), drawn_by(rule)
    room = n_lanes * table.n // FLIERS_SHARE + 1
    ways = [(("IN_PAIRS", 1),), (("IN_PAIRS", 0),)]
    while ways:
        kinds = {"fliers": dtype, "flier_weights": np.float64, "sides": np.int64}
        fliers = {name: cupy.empty(room, kind) for name, kind in kinds.items()}
        counter = cupy.zeros(2, np.uint64)
        places = (*(each.data.ptr for each in fliers.values()), room, counter.data.ptr)
        record = on_device(np.array([places], FLIER_LIST))
        arguments = (*given, *bounds, record, numbers, extremes, is_unsure)
        table.start(kernel, "reach_ends", *arguments, defined=ways[0])
        n, n_unsure = counter.tolist()
        if n > room:
            room = n
        elif n_unsure * table.n <= MOST_DECIDED:
            break
        else:
            del ways[0]
    if n_unsure:
        _decide_ends(table, (q, rule), numbers, is_unsure)
    return numbers, extremes, {name: each[:n].copy() for name, each in fliers.items()}


def _decide_ends(
    table: Weighed, known: tuple[Array, Rule], numbers: Array, is_unsure: Array
) -> None:
    """Replace the numbers that sums of floats cannot round, by integers on the host."""
    q, rule = known
    kind = selection_dtype(table.values.dtype)
    for lanes in marked_lanes(is_unsure, table.n, plain_lanes.TILE):
        values, weights = (each.get() for each in _some(table, lanes).rows)
        own = np.stack(rule.fences(q[:, lanes].get()))
        some = SortedLanes.weighed(values.astype(kind, copy=False), weights)
        ends: Any = ends_of_sorted(some, own, 0)
        measures = ends.measure, ends.beyond_low.measure, ends.beyond_high.measure
        exact = *(each.rounded() for each in measures), *ends.moments.mean_and_std()
        numbers[:, lanes] = cupy.asarray(np.stack(exact))
