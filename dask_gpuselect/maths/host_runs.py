"""Runs of elements on the host, and what the two loads measure of runs: cuts and tallies.

A run is a slot. Its elements may be those of a few chunks, or candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import (
    UNKNOWN,
    Brackets,
    Cuts,
    FloatArray,
    IntArray,
    Tally,
    covered,
    totals,
)
from dask_gpuselect.maths.exact_sums import DIGIT, LEAST, ExactSums, Wholes
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.lane_weights import WantedQuantiles, picked
from dask_gpuselect.maths.orders import GatheredRuns, OrderedRuns, lost
from dask_gpuselect.maths.ragged import Bracketed, CellTally, Sums, Wanted
from dask_gpuselect.maths.tables import ahead, bisected
from dask_gpuselect.maths.weight_brackets import find_weighted_brackets
from dask_gpuselect.maths.weights import UNITS

WORD = 16  # bits of the numbers by which NumPy sorts without comparing
# Sums of weights are stored before every so many elements. Between, they are added up where they
# are wanted.
BLOCK = 64
# Blocks that are added up together, and elements that are multiplied together.
AT_ONCE, STEP = 1 << 10, 1 << 18
# So few elements are one block: a question about blocks takes dozens of operations on small arrays,
# and adding up all of these elements as few as one question.
ONE_BLOCK = 1 << 17
# Weights that differ by more than this factor are added up one by one, because tables of whole
# numbers would have many digits.
FAR = 2.0**128


@dataclass(frozen=True, eq=False)
class HostRuns(OrderedRuns):
    """Runs of elements on the host.

    Parameters
    ----------
    values, weights : ndarray, shape (n,)
        Elements in order, and their weights as float64 or int64, above 0; None without weights.
    """

    values: NDArray[Any]
    weights: NDArray[Any]

    @property
    def has_weights(self) -> bool:
        return self.weights is not None

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
    def _least(self) -> float:
        """The smallest weight."""
        return float(self.weights.min()) if len(self.weights) else math.inf

    @property
    def unit(self) -> int:
        is_whole = self.weights.dtype.kind == "i" or not len(self.weights)
        return 0 if is_whole else max(math.frexp(self._least)[1] - 53, LEAST) // DIGIT

    @cached_property
    def _before(self) -> ExactSums:
        """The weight before each block, also before the last one, which is not full."""
        n, is_far = len(self.weights) // BLOCK, self.weights.max(initial=0) / FAR > self._least
        if not (n and (is_far or len(self.weights) > ONE_BLOCK)):
            return ExactSums.zeros((1,))
        own = self.weights[: n * BLOCK]
        if is_far:
            return ExactSums.of(np.arange(len(own)) // BLOCK, n, own).running()
        own = own.reshape(n, BLOCK)
        pieces = [Wholes.of(own[i : i + AT_ONCE]).sums() for i in range(0, n, AT_ONCE)]
        return ExactSums.joined(pieces).running()

    @cached_property
    def _only(self) -> Wholes:
        """The running sums of all elements, if they are one block."""
        return Wholes.of(self.weights[None]).running()

    def _in_blocks(self, block: IntArray) -> Iterator[tuple[IntArray, Wholes, IntArray]]:
        """Compute the running sums of the elements of some blocks, at most `AT_ONCE` at a time.

        Yields which of `block` are done, the running sums, and their rows.
        """
        blocks, row = np.unique(block, return_inverse=True)
        for i in range(0, len(blocks), AT_ONCE):
            at = BLOCK * blocks[i : i + AT_ONCE, None] + np.arange(BLOCK)
            own = np.where(at < len(self.weights), self.weights.take(at, mode="clip"), 0)
            some = np.flatnonzero((row >= i) & (row < i + AT_ONCE))
            yield some, Wholes.of(own).running(), row[some] - i

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
        if not len(self.weights):
            return np.zeros(places.shape)
        return self.weights[np.minimum(places, len(self.weights) - 1)]

    def weights_before(self, places: IntArray) -> ExactSums:
        if not min(len(self.weights), len(places)):
            return ExactSums.zeros(places.shape)
        if len(self._before) == 1:
            return self._only.at(places, np.zeros_like(places))
        block, n = np.divmod(places, BLOCK)
        order, pieces = [], []
        for some, running, row in self._in_blocks(block):
            order.append(some)
            pieces.append(running.at(n[some], row))
        within = ExactSums.joined(pieces)[np.argsort(np.concatenate(order))]
        return within + self._before[block]

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        if len(self._before) == 1:
            return self._only.reach(sums)
        block = self._before[1:].places_of(sums)
        rest, places = sums - self._before[block], BLOCK * block
        for some, running, row in self._in_blocks(block):
            places[some] += running.reach(rest[some], row)
        return places

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
        if sizes.sum() <= STEP:
            at = ahead(starts, sizes)
            pair = np.repeat(np.arange(len(sizes)), sizes)
            return ExactSums.of(pair, len(sizes), factors[at], self.weights[at])
        # Each element is taken once, a few at a time, and those outside all pairs never.
        stops, half = starts + sizes, STEP // 2
        steps = np.arange(starts.min(), stops.max(), half)
        edges = np.unique(np.concatenate([starts, stops, steps]))
        some = np.flatnonzero(covered(edges, starts, stops)[1:-1])
        upto = (edges[some + 1] - edges[some]).cumsum()
        lots = np.split(some, np.flatnonzero(np.diff(upto // half)) + 1)
        pieces = [self._sums(edges[each], edges[each + 1], factors) for each in lots]
        sums = ExactSums.joined(pieces).at_places(some, len(edges)).running()
        first, last = (edges.searchsorted(each) for each in (starts, stops))
        return sums[last] - sums[first]


@dataclass(frozen=True, eq=False)
class CandidateRuns(HostRuns):
    """Runs of elements without weights that ascend from run to run, in any order, anywhere.

    Parameters
    ----------
    candidates : Candidates
    """

    candidates: Candidates

    def find(self, run: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        if not len(values):
            return run
        if (values[1:] > values[:-1]).all():  # `unique` takes 30 us
            return np.where(upto, *self.candidates.counts(values)[::-1])
        distinct, place = np.unique(values, return_inverse=True)
        below, not_above = self.candidates.counts(distinct)
        return np.where(upto, not_above[place], below[place])

    def elements(self, places: IntArray) -> NDArray[Any]:
        return self.candidates.elements_at(places)


# --- Measures of runs -----------------------------------------------------------------------------


def cuts_of_runs(runs: OrderedRuns, n_pivots: IntArray) -> Cuts:
    """Measure the cuts of each run, also of those without elements.

    Pivots are at even steps by count, and at even steps by weight, `n_pivots` of either kind.
    """
    every = np.arange(len(runs.n_valid))
    run, pivots, below, upto = runs.pivots(n_pivots)
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


def tally_of_runs(runs: OrderedRuns, brackets: Brackets) -> CellTally:
    """Tally each run at the brackets of the slot of its number."""
    every, first = np.arange(brackets.n_slots), brackets.first_cell
    run = np.repeat(every, np.diff(brackets.first_end))
    below, upto = runs.sides(run, brackets.ends)
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


def gathered(brackets: Brackets, tally: Tally) -> GatheredRuns:
    """Put the elements of a single slot in order, from its tally.

    Raises
    ------
    ChunksChangedError
        If the tally has other candidates than it counted.
    """
    found = GatheredRuns.of_tally(brackets, tally)
    n = found.counts[:, 0] * brackets.wanted
    if n.sum() != len(tally.candidates):
        raise lost()
    dtype, none = tally.candidates.dtype, np.zeros_like(n)
    numbers = n, none, none, none
    if not tally.weighs:
        runs: HostRuns = CandidateRuns(dtype, *numbers, UNKNOWN, UNKNOWN, tally.candidates)
    else:
        values, weights = tally.in_order().columns()
        runs = HostRuns(dtype, *numbers, values, weights)
    return replace(found, runs=runs)


InGroups = Callable[[Sequence[tuple[Any, Any]], int], tuple[NDArray[Any], IntArray, IntArray]]
"""Function that sorts elements by group and value, from pairs of elements and group numbers.

Its other argument is the number of groups; `reference.groups.in_groups` describes it.
"""


def in_slots(tally: CellTally, about: Bracketed, by: InGroups) -> GatheredRuns:
    """Put the elements of all slots in order, from the tally of all parts.

    Raises
    ------
    ChunksChangedError
        If a slot has another number of elements than by the cuts, or other candidates than counted.
    """
    brackets, n_slots = about.brackets, about.brackets.n_slots
    n_cells = len(brackets.wanted)
    counts, n_missing, none = tally.counts(n_cells), about.n_missing, np.zeros(n_slots, np.int64)
    if not tally.weighs:
        ordered, n, _ = by([(tally.candidates, tally.of_cells)], n_cells)
        no_cells = np.zeros_like(n)
        runs = HostRuns(ordered.dtype, n, no_cells, no_cells, no_cells, ordered, UNKNOWN)
        found = GatheredRuns(brackets, counts, UNKNOWN, UNKNOWN, n_missing, none, runs)
    else:
        found = GatheredRuns(
            brackets,
            counts,
            tally.sums(n_cells).running(),
            tally.squares.at_places(tally.slots, n_slots),
            n_missing,
            totals(tally.slots, tally.n_idle, n_slots),
            HostRuns.of(tally.candidates, tally.weights, tally.of_cells, n_cells),
            None if tally.products is None else tally.products.at_places(tally.cells, n_cells),
        )
    about.check(found.n_valid)
    if not np.array_equal(found.runs.n_valid, counts[:, 0] * brackets.wanted):
        raise lost()
    return found


def wanted_by_weight(wanted: WantedQuantiles) -> Wanted:
    """Want weighted quantiles of every slot."""
    ranges, find = partial(_ranges_by_weight, wanted), partial(_picked, wanted)
    return Wanted(ranges, find, weighs=True)


def _ranges_by_weight(wanted: WantedQuantiles, cuts: Cuts, n_valid: IntArray) -> Brackets:
    return find_weighted_brackets(cuts, wanted.q, wanted.method)


def _picked(wanted: WantedQuantiles, order: GatheredRuns, sums: Sums | None) -> Lanes:
    return picked(order, wanted)
