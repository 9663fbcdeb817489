"""Answers about groups whose elements are sorted together, by group and then by value.

The elements of a group are a run of that order. Few places tell a quantile or a box plot of a run,
so the elements can stay on a device: each question is asked about all runs together.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import PartialBox, Rule, values_inside
from dask_gpuselect.maths.cuts import UNKNOWN, Brackets, FloatArray, IntArray, Tally, extremes_of
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.host_runs import gathered
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds, Outermost
from dask_gpuselect.maths.lane_weights import picked
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.orders import GatheredRuns, OrderedRuns, lost
from dask_gpuselect.maths.ragged import by_ranks
from dask_gpuselect.maths.tables import ahead, slices_of


class Runs(OrderedRuns):
    """Runs about which all questions can be asked."""

    @property
    @abstractmethod
    def home(self) -> Any:
        """An array of the kind of the elements, on their device."""

    @abstractmethod
    def boxes(self, question: LaneOrder, rule: Rule) -> LaneBoxes | None:
        """Compute the box plot of each run; None where `answers_and_ends` has to do it.

        The boxes of runs without elements are undefined.
        """

    @abstractmethod
    def distances(self, centre: Any, dtype: np.dtype[Any]) -> Runs:
        """Sort the distances of all elements without weights from the centre of their run."""

    @abstractmethod
    def moments(self, near: NDArray[Any]) -> Moments:
        """Sum the elements of each run exactly; `near` are some values of their usual size."""

    @abstractmethod
    def sums_between(self, first: IntArray, stop: IntArray, near: NDArray[Any]) -> ExactSums:
        """Sum the finite elements of each run between two places; see `moments`."""


def answered(runs: Runs, question: Any) -> NDArray[Any]:
    """Answer a question about the order of lanes for each run: ``(n_answers, n_runs)``."""
    if runs.has_weights:
        lanes = picked(runs, question.wanted)
    else:
        lanes = by_ranks(question.lane_ranks, runs)
    answers: NDArray[Any] = question.lane_answer(lanes)
    return answers


def answers_and_ends(
    runs: Runs, question: Any, bounds_of: BoundsOf, most: int
) -> tuple[FloatArray, LaneEnds]:
    """Answer a question for each run, and collect the elements beyond bounds from the answers."""
    answers = answered(runs, question).astype(np.float64)
    return answers, ends_and_moments(runs, np.stack(bounds_of(answers)), most)


def ends_and_moments(runs: Runs, bounds: Bounds, most: int) -> LaneEnds:
    """Find the elements beyond the bounds of each run as `ends` does, and its exact sums."""
    own = ends(runs, bounds, most)
    near = np.concatenate([own.least, own.low, own.high, own.most])
    return replace(own, moments=runs.moments(near))


# --- Ends -----------------------------------------------------------------------------------------


def places_inside(order: OrderedRuns | GatheredRuns, bounds: Bounds) -> tuple[IntArray, IntArray]:
    """Find the places where the elements inside the bounds of each run begin and end.

    A place is -1 if the elements near the bound were not gathered.
    """
    starts, stops, n_runs = order.starts, order.stops, len(order.stops)
    values, is_none = values_inside(bounds, order.dtype)
    every = np.arange(2 * n_runs)
    inner, outer = order.find(every % n_runs, values.ravel(), every >= n_runs).reshape(2, -1)
    # No value is on the inner side of a bound: all elements are beyond it, or none if it is NaN.
    is_nan = np.isnan(bounds)
    none = np.where(is_nan, [starts, stops], [stops, starts])
    return np.where(is_none[0], none[0], inner), np.where(is_none[1], none[1], outer)


def ends(order: OrderedRuns | GatheredRuns, bounds: Bounds, most: int) -> LaneEnds:
    """Find the elements beyond the bounds of each run, at most `most` on each side.

    The measure beyond one side is None if elements near the bound of any run were not gathered; of
    that run the most extreme elements are listed, wherever the bound is. Moments are left out.

    Raises
    ------
    ChunksChangedError
        If other elements that are wanted were not gathered.
    """
    n_valid, starts, stops = order.n_valid, order.starts, order.stops
    least, largest = extremes_of(order.dtype)
    inner, outer = places_inside(order, bounds)
    n_low = np.minimum(np.where(inner < 0, n_valid, inner - starts), most)
    n_high = np.minimum(np.where(outer < 0, n_valid, stops - outer), most)
    is_some, is_number = n_valid > 0, ~np.isnan(bounds)
    singles = (
        (starts, is_some, largest),
        (stops - 1, is_some, least),
        (inner, (inner >= 0) & (inner < stops) & is_number[0], largest),
        (outer - 1, (outer > starts) & is_number[1], least),
    )
    places = [place[some] for place, some, _ in singles]
    places += [ahead(starts, n_low), ahead(stops - 1, n_high, -1)]
    found = unsigned_zero(order.elements(np.concatenate(places)))
    *each, low, high = (found[own] for own in slices_of(np.array([*map(len, places)])))
    columns: list[Any] = []
    for own, (_, some, none) in zip(each, singles, strict=True):
        columns.append(np.full(len(n_valid), none, order.dtype))
        columns[-1][some] = own
    measure, *beyond = _measure_beyond(order, inner, outer)
    columns.append(_outermost(order, beyond[0], n_low, low, is_high=False))
    columns.append(_outermost(order, beyond[1], n_high, high, is_high=True))
    n_left_out = order.n_idle
    if isinstance(order, OrderedRuns):
        n_left_out = n_left_out + order.n_left_out
    columns = [n_valid, order.n_missing, n_left_out, measure, *columns, UNKNOWN]
    return LaneEnds(*columns)


def completed(box: PartialBox, brackets: Brackets, tally: Tally, *, rule: Rule) -> PartialBox:
    """Complete a box after the third load, which gathers the elements near its fences."""
    (q, known), order = box, gathered(brackets, tally)
    inner, outer = places_inside(order, np.stack(rule.fences(q[:, None])))
    _, *beyond = _measure_beyond(order, inner, outer)
    n = inner - order.starts, order.stops - outer
    new: dict[str, Any] = {}
    for i, (name, nearest) in enumerate((("low", inner), ("high", outer - 1))):
        side: Outermost = getattr(known, f"beyond_{name}")
        if side.measure is not None:  # elements near this fence are not gathered again
            continue
        if beyond[i] is None:
            raise lost()
        takes = side.counts.cumsum() - side.counts < min(int(n[i][0]), rule.max_fliers)
        weights = None if side.weights is None else side.weights[takes]
        about = side.elements[takes], side.counts[takes], weights
        new[f"beyond_{name}"] = Outermost(beyond[i], np.array([np.count_nonzero(takes)]), *about)
        if n[i] < order.n_valid:
            new[name] = unsigned_zero(order.elements(nearest))
    return q, replace(known, **new)


def _measure_beyond(
    order: OrderedRuns | GatheredRuns, inner: IntArray, outer: IntArray
) -> tuple[Any, Any, Any]:
    """Count or weigh all elements of each run, those before `inner`, and those from `outer` on.

    One of these is None if a place is -1.
    """
    starts, stops = order.starts, order.stops
    if not order.has_weights:
        beyond: list[Any] = [inner - starts, stops - outer]
        measure: Any = order.n_valid
    else:
        n, places = len(starts), [starts, np.maximum(inner, 0), np.maximum(outer, 0), stops]
        before = order.weights_before(np.concatenate(places))
        first, low, high, last = (before[slice(i * n, (i + 1) * n)] for i in range(4))
        measure, beyond = last - first, [low - first, last - high]
    pairs = zip(beyond, (inner, outer), strict=True)
    return measure, *(None if (place < 0).any() else own for own, place in pairs)


def _outermost(
    order: OrderedRuns | GatheredRuns,
    measure: Any,
    n: IntArray,
    elements: NDArray[Any],
    *,
    is_high: bool,
) -> Outermost:
    """List the values of the `n` most extreme elements of each run, given in that order.

    Without weights each element is a value of its own. Otherwise all equal elements are weighed
    together.
    """
    if not order.has_weights:
        return Outermost(measure, n, elements, np.ones(len(elements), np.uint8))
    run = np.repeat(np.arange(len(n)), n)
    is_new = np.ones(len(run) + 1, np.bool_)
    is_new[1:-1] = (elements[1:] != elements[:-1]) | (run[1:] != run[:-1])
    edges = np.flatnonzero(is_new)
    values, of_value = elements[edges[:-1]], run[edges[:-1]]
    sizes = np.bincount(of_value, minlength=len(n))
    # Elements follow one another from the first or the last place of their run.
    passed = edges - np.append(np.cumsum(n) - n, 0)[np.append(of_value, 0)]
    passed = passed[:-1], passed[:-1] + np.diff(edges)
    # Further elements may equal the last value of a run.
    last = (np.cumsum(sizes) - 1)[sizes > 0]
    far = order.find(of_value[last], values[last], np.full(len(last), not is_high))
    if is_high:
        starts, stops = (order.stops[of_value] - each for each in reversed(passed))
        starts[last] = far
    else:
        starts, stops = (order.starts[of_value] + each for each in passed)
        stops[last] = far
    return Outermost(measure, sizes, values, stops - starts, _weights_between(order, starts, stops))


# Digits of the sums that are made together, of few places if weights are far apart: the digits of
# 2,000 sums of weights of all magnitudes take a megabyte.
DIGITS = 1 << 15


def _weights_between(
    order: OrderedRuns | GatheredRuns, starts: IntArray, stops: IntArray
) -> FloatArray:
    """Sum the weights between pairs of places, rounded once."""
    sums = order.weights_at(starts).astype(np.float64)
    # Few extremes are equal, so most of these sums are the weight of one element.
    some = np.flatnonzero((stops - starts > 1) | np.isnan(sums))
    _, weights = order.sums_of(np.arange(len(order.n_valid)))
    n_digits = len(weights.in_digits().digits)
    most = max(DIGITS // max(2 * n_digits, 1), 1)
    for i in range(0, len(some), most):
        own = some[i : i + most]
        before = order.weights_before(np.concatenate([starts[own], stops[own]]))
        sums[own] = (before[len(own) :] - before[: len(own)]).rounded()
    return sums


def trimmed_sums(runs: Runs, n_cut: IntArray) -> tuple[NDArray[Any], ExactSums]:
    """Sum the elements of each run without the `n_cut` least and as many of the largest.

    Also return the least and the largest that are left, in two rows; undefined for empty runs.
    """
    first, stop = runs.starts + n_cut, runs.stops - n_cut
    places = np.concatenate([first, stop - 1, runs.starts, runs.stops - 1])
    elements = runs.elements(places.clip(0)).reshape(4, -1)
    near = elements[:, runs.n_valid > 0].ravel()
    return elements[:2], runs.sums_between(first, stop, near)


def clipped_ends(runs: Runs, cuts: NDArray[Any]) -> LaneEnds:
    """Return the ends of each run, with the sums of its elements clipped at two cuts of its own."""
    n = len(runs.n_valid)
    run, limits = np.tile(np.arange(n), 2), np.nan_to_num(cuts.ravel()).astype(runs.dtype)
    inner, outer = runs.find(run, limits, np.repeat([False, True], n)).reshape(2, -1)
    own = ends_and_moments(runs, np.full((2, n), np.nan), 1)
    assert isinstance(own.moments, Moments)
    near = np.concatenate([own.least, own.most])
    within = runs.sums_between(inner, np.maximum(inner, outer), near[np.tile(runs.n_valid > 0, 2)])
    numbers = np.where(np.isfinite(cuts.ravel()), cuts.ravel(), 0).astype(runs.dtype)
    beyond = np.concatenate([inner - runs.starts, runs.stops - outer])
    total = within + ExactSums.of(run, n, numbers, beyond)
    return replace(own, moments=replace(own.moments, total=total))
