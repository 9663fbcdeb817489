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

from dask_gpuselect.maths.boxes import Rule, largest_to, smallest_from
from dask_gpuselect.maths.cuts import FloatArray, IntArray, extremes_of
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, ranks_of_each
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds, Outermost
from dask_gpuselect.maths.lane_weights import picked
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.tables import ahead
from dask_gpuselect.maths.weight_finish import GatheredRuns, OrderedRuns


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
    lanes = picked(runs, question.wanted) if runs.has_weights else _by_ranks(runs, question)
    answers: NDArray[Any] = question.lane_answer(lanes)
    return answers


def answers_and_ends(
    runs: Runs, question: Any, bounds_of: BoundsOf, most: int
) -> tuple[FloatArray, LaneEnds]:
    """Answer a question for each run, and collect the elements beyond bounds from the answers."""
    answers = answered(runs, question).astype(np.float64)
    return answers, ends(runs, np.stack(bounds_of(answers)), most)


# --- Quantiles ------------------------------------------------------------------------------------


def _by_ranks(runs: OrderedRuns, question: LaneOrder) -> Lanes:
    """Take the elements of the ranks that a question wants."""
    starts, n_valid = runs.starts[:, None], runs.n_valid
    places = np.stack(ranks_of_each(np.maximum(n_valid, 1), question.lane_ranks))
    lower, upper = runs.elements((places + starts).ravel()).reshape(places.shape)
    return Lanes(lower, upper, n_valid, runs.n_missing)


# --- Ends -----------------------------------------------------------------------------------------


def places_inside(runs: OrderedRuns | GatheredRuns, bounds: Bounds) -> tuple[IntArray, IntArray]:
    """Find the places where the elements inside the bounds of each run begin and end."""
    n_runs = len(runs.stops)
    (lowest, highest), is_none = _inside(np.asarray(bounds), runs.dtype)
    upto = np.repeat([False, True], n_runs)
    run = np.tile(np.arange(n_runs), 2)
    inner, outer = runs.find(run, np.concatenate([lowest, highest]), upto).reshape(2, -1)
    # No value is on the inner side of a bound: all elements are beyond it, or none if it is NaN.
    inner, outer = np.where(is_none, [runs.stops, runs.starts], [inner, outer])
    is_number = ~np.isnan(bounds)
    return np.where(is_number[0], inner, runs.starts), np.where(is_number[1], outer, runs.stops)


def _inside(bounds: FloatArray, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Find the smallest value from each lower bound and the largest to each upper one, in two rows.

    Also return a mask of the bounds that have none.
    """
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = bounds.astype(dtype)
        own, ends = values.astype(np.float64), np.array([[np.inf], [-np.inf]], dtype)
        is_beyond = np.stack([own[0] < bounds[0], own[1] > bounds[1]])
        values = np.where(is_beyond, np.nextafter(values, ends), values)
        return np.where(np.isnan(bounds), ends, values), np.isnan(bounds)
    found = [
        [value_of(each, dtype) for each in row.tolist()]
        for value_of, row in zip((smallest_from, largest_to), bounds, strict=True)
    ]
    is_none = np.array([[each is None for each in row] for row in found])
    pairs = zip(found, extremes_of(dtype)[::-1], strict=True)
    filled = [[end if each is None else each for each in row] for row, end in pairs]
    return np.array(filled, dtype), is_none


def ends(runs: Runs, bounds: Bounds, most: int) -> LaneEnds:
    """Find the elements beyond the bounds of each run, at most `most` on each side.

    Runs have no weights: see `Runs.boxes`.
    """
    assert not runs.has_weights
    n_valid, starts, stops = runs.n_valid, runs.starts, runs.stops
    least, largest = extremes_of(runs.dtype)
    (inner, outer), is_number = places_inside(runs, bounds), ~np.isnan(bounds)
    n_low, n_high = np.minimum(inner - starts, most), np.minimum(stops - outer, most)
    low_places, high_places = ahead(starts, n_low), ahead(stops - 1, n_high, -1)
    singles = np.concatenate([starts, stops - 1, inner, outer - 1])
    elements = runs.elements(np.concatenate([singles.clip(0), low_places, high_places]))
    single, low, high = np.split(elements, np.cumsum([len(singles), len(low_places)]))
    least_of, most_of, low_of, high_of = single.reshape(4, -1)
    is_inside = inner < stops, outer > starts
    return LaneEnds(
        n_valid,
        runs.n_missing,
        runs.n_left_out + runs.n_idle,
        n_valid,
        np.where(n_valid > 0, least_of, largest),
        np.where(n_valid > 0, most_of, least),
        np.where(is_inside[0] & is_number[0], low_of, largest),
        np.where(is_inside[1] & is_number[1], high_of, least),
        _outermost(inner - starts, n_low, low, most, is_high=False),
        _outermost(stops - outer, n_high, high, most, is_high=True),
        runs.moments(np.concatenate([least_of, low_of, high_of, most_of])),
    )


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
    own = ends(runs, np.full((2, n), np.nan), 1)
    assert isinstance(own.moments, Moments)
    near = np.concatenate([own.least, own.most])
    within = runs.sums_between(inner, np.maximum(inner, outer), near[np.tile(runs.n_valid > 0, 2)])
    numbers = np.where(np.isfinite(cuts.ravel()), cuts.ravel(), 0).astype(runs.dtype)
    beyond = np.concatenate([inner - runs.starts, runs.stops - outer])
    total = within + ExactSums.of(run, n, numbers, beyond)
    return replace(own, moments=replace(own.moments, total=total))


def _outermost(
    measure: IntArray, n: IntArray, elements: NDArray[Any], most: int, *, is_high: bool
) -> Outermost:
    """List the values of the `n` most extreme elements of each run, the most extreme first."""
    order = np.arange(len(elements))
    if is_high:  # ascending within a run, as `Outermost` wants it
        order = ahead(np.cumsum(n) - 1, n, -1)
    run = np.repeat(np.arange(len(n)), n)
    return Outermost.of(measure, run, elements[order], most, is_high=is_high)
