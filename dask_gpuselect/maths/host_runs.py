"""Runs of elements on the host, and what the two loads measure of runs: cuts and tallies.

A run is a slot. Its elements may be those of a few chunks, or candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import (
    ADVICE,
    Brackets,
    ChunksChangedError,
    Cuts,
    FloatArray,
    IntArray,
    totals,
)
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, Wholes
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.lane_weights import WantedQuantiles
from dask_gpuselect.maths.ragged import Bracketed, CellTally
from dask_gpuselect.maths.runs import GatheredRuns, OrderedRuns, picked
from dask_gpuselect.maths.tables import ahead, bisected
from dask_gpuselect.maths.weights import UNITS

WORD = 16  # bits of the numbers by which NumPy sorts without comparing


@dataclass(frozen=True, eq=False)
class HostRuns(OrderedRuns):
    """Runs of elements with weights, on the host.

    Parameters
    ----------
    values, weights : ndarray, shape (n,)
        Elements of weight above 0 in order, and their weights as float64 or int64.
    """

    values: NDArray[Any]
    weights: NDArray[Any]

    has_weights = True

    @classmethod
    def of(
        cls,
        values: NDArray[Any],
        weights: NDArray[Any],
        run: NDArray[Any],
        n_runs: int,
        n_missing: IntArray | None = None,
        n_idle: IntArray | None = None,
    ) -> Self:
        """Sort elements by the number of their run, and by value."""
        n_valid = np.bincount(run, minlength=n_runs)
        order = np.argsort(values)
        for shift in range(0, max(n_runs - 1, 0).bit_length(), WORD):
            word = (run[order] >> shift).astype(np.uint16)
            order = order[np.argsort(word, kind="stable")]
        none = np.zeros(n_runs, np.int64)
        missing, idle = (none if each is None else each for each in (n_missing, n_idle))
        return cls(values.dtype, n_valid, missing, none, idle, values[order], weights[order])

    @cached_property
    def _running(self) -> Wholes:
        return Wholes.of(self.weights[None]).running()

    @property
    def unit(self) -> int:
        return self._running.exponent // DIGIT

    def find(self, run: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        def goes_on(places: IntArray) -> NDArray[np.bool_]:
            elements = self.elements(places)
            return np.asarray((elements < values) | upto & (elements == values))

        return bisected(self.starts[run], self.stops[run], goes_on)

    def elements(self, places: IntArray) -> NDArray[Any]:
        if not len(self.values):
            return np.zeros(places.shape, self.dtype)
        return self.values[np.minimum(places, len(self.values) - 1)]

    def weights_at(self, places: IntArray) -> NDArray[Any]:
        return self.weights[places]

    def weights_before(self, places: IntArray) -> ExactSums:
        if not len(self.values):
            return ExactSums.zeros(places.shape)
        return self._running.at(places, np.zeros_like(places))

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        return self._running.reach(sums)

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self._sums(self.starts, self.stops, self.weights)[slot]

    def squares_in(self, slot: IntArray, unit: IntArray) -> FloatArray:
        run = np.repeat(np.arange(len(self.n_valid)), self.n_valid)
        own = np.zeros(len(self.n_valid), np.int64)
        own[slot] = unit
        scaled = np.ldexp(self.weights.astype(np.float64), -own[run])
        sums = np.zeros(len(own))
        np.add.at(sums, run, scaled * scaled)
        return sums[slot]

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        return self._sums(starts, stops, self.values)

    def _sums(self, starts: IntArray, stops: IntArray, factors: NDArray[Any]) -> ExactSums:
        """Sum factor times weight between pairs of places."""
        sizes = np.maximum(stops - starts, 0)
        at = ahead(starts, sizes)
        pair = np.repeat(np.arange(len(sizes)), sizes)
        return ExactSums.of(pair, len(sizes), factors[at], self.weights[at])


# --- Measures of runs -----------------------------------------------------------------------------


def cuts_of_runs(runs: OrderedRuns, n_pivots: IntArray) -> Cuts:
    """Measure the cuts of each run, also of those without elements.

    Pivots are at even steps by count, and at even steps by weight, `n_pivots` of either kind.
    """
    every = np.arange(len(runs.n_valid))
    run, pivots, below, upto = _pivots(runs, n_pivots)
    before, weight = runs.sums_of(every)
    sums = runs.weights_before(np.concatenate([below, upto])) - before[np.tile(run, 2)]
    numbers, places = weight.leading()
    unit = np.where(numbers > 0, np.frexp(numbers)[1] + DIGIT * places - UNITS, 0)
    square = runs.squares_in(every, unit)
    sums_below, sums_upto = sums.in_units(unit[np.tile(run, 2)]).reshape(2, -1)
    sizes, totals = np.bincount(run, minlength=len(every)), weight.in_units(unit)
    below, upto = (each - runs.starts[run] for each in (below, upto))
    of_counts = Cuts(pivots, below, upto, sizes, runs.n_valid, runs.n_missing)
    return of_counts.with_weights(sums_below, sums_upto, totals, unit, square)


def _pivots(runs: OrderedRuns, n: IntArray) -> tuple[IntArray, NDArray[Any], IntArray, IntArray]:
    """Choose `n` pivots of each run of either kind; see `cuts_of_runs`.

    Return the run of each pivot, the pivots, and the places behind the elements below and up to
    each of them.
    """
    run = np.repeat(np.arange(len(n)), n)
    step = ahead(np.zeros_like(n), n)
    by_count = runs.starts[run] + step * (runs.n_valid[run] - 1) // np.maximum(n[run] - 1, 1)
    before, weight = runs.sums_of(run)
    by_weight = runs.reach(run, before + weight.share_of((step + 1) / n[run]))
    places = np.sort(np.concatenate([by_count, by_weight]), kind="stable")
    values, run = runs.elements(places), runs.stops.searchsorted(places, side="right")
    is_new = np.ones(len(places), np.bool_)
    is_new[1:] = (values[1:] != values[:-1]) | (run[1:] != run[:-1])
    run, pivots = run[is_new], values[is_new]
    return run, pivots, *sides(runs, run, pivots)


def sides(runs: OrderedRuns, run: IntArray, values: NDArray[Any]) -> IntArray:
    """Find the places behind the elements of a run below each value, and up to it."""
    upto = np.repeat([False, True], len(run))
    return runs.find(np.tile(run, 2), np.tile(values, 2), upto).reshape(2, -1)


def tally_of_runs(runs: OrderedRuns, brackets: Brackets) -> CellTally:
    """Tally each run at the brackets of the slot of its number."""
    every, first = np.arange(brackets.n_slots), brackets.first_cell
    run = np.repeat(every, np.diff(brackets.first_end))
    below, upto = sides(runs, run, brackets.ends)
    # Each cell begins behind the elements up to an end, and stops before those of the next one.
    begins, stops = np.empty((2, len(brackets.wanted)), np.int64)
    of_end = np.arange(len(run)) + run
    begins[first[:-1]], begins[of_end + 1] = runs.starts, upto
    stops[of_end], stops[first[1:] - 1] = below, runs.stops
    edges = np.stack([begins, stops], axis=1).ravel()
    counts = np.diff(edges, append=edges[-1:]).reshape(-1, 2)
    before = runs.weights_before(np.append(edges, edges[-1:]))
    sizes = counts[:, 0] * brackets.wanted
    places = ahead(begins, sizes)
    of_cells = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    square, products = ExactSums.zeros(every.shape), None
    if brackets.summed is not None:
        square = runs.squares_of(every)
        products = runs.products(begins * brackets.summed, stops * brackets.summed)
    return CellTally.of_weights(
        counts,
        before[1:] - before[:-1],
        (runs.elements(places), of_cells, runs.weights_at(places)),
        square,
        runs.n_idle,
        products,
    )


def order_statistics_by_weight(
    tallies: Sequence[CellTally], about: Bracketed, wanted: WantedQuantiles
) -> Lanes:
    """Find the weighted quantiles of every slot from the tallies of all parts, a lane for each.

    Raises
    ------
    ChunksChangedError
        If they lie outside their brackets, or if a slot has another number of elements than by the
        cuts.
    """
    tally, brackets = CellTally.merge(tallies), about.brackets
    n_cells, n_slots = len(brackets.wanted), brackets.n_slots
    found = GatheredRuns(
        brackets,
        tally.counts(n_cells),
        tally.sums(n_cells),
        tally.squares.at_places(tally.slots, n_slots),
        about.n_missing,
        totals(tally.slots, tally.n_idle, n_slots),
        HostRuns.of(tally.candidates, tally.weights, tally.of_cells, n_cells),
        None if tally.products is None else tally.products.at_places(tally.cells, n_cells),
    )
    about.check(found.n_valid)
    try:
        return picked(found, wanted)
    except LookupError as error:
        raise ChunksChangedError(
            f"the data have changed since the first read: {error.args[0]}. {ADVICE}"
        ) from None
