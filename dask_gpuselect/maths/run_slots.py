"""Partial results about slots whose elements are sorted together, by slot and then by value.

Each run of `runs` is a slot, and the last one, which has no elements, stands for all other slots.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import NO_SUMS, Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.runs import Runs, ahead
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.maths.slots import Slots, at_slot
from dask_gpuselect.maths.weights import UNITS


@dataclass(frozen=True, eq=False)
class SortedSlots:
    """The slots of a chunk with weights, sorted together.

    Parameters
    ----------
    runs : Runs
        A run for each slot, and one for the rest.
    """

    runs: Runs

    def slots(self, *others: Slots) -> list[Any]:
        """List the slots that have elements here, or are among others; None for the rest."""
        runs = self.runs
        n = runs.n_valid + runs.n_missing + runs.n_left_out + runs.n_idle
        return [*sorted({*np.flatnonzero(n).tolist()}.union(*(each.of for each in others))), None]

    def runs_of(self, slots: Sequence[Any]) -> IntArray:
        """Return the numbers of the runs of some slots."""
        rest = len(self.runs.n_valid) - 1
        return np.array([rest if slot is None else min(slot, rest) for slot in slots])


def _by_slot(slots: Sequence[Any], parts: Sequence[Any]) -> Slots:
    return Slots(dict(zip(slots[:-1], parts[:-1], strict=True)), parts[-1])


def cuts(given: SortedSlots, share: int) -> Slots:
    """Measure the cuts of each slot; see `kernels.cuts`.

    Pivots are at even steps by count, and at even steps by weight.
    """
    runs = given.runs
    every = np.arange(len(runs.n_valid))
    run, pivots, below, upto = _pivots(runs, share)
    before, weight = runs.sums_of(every)
    sums = runs.weights_before(np.concatenate([below, upto])) - before[np.tile(run, 2)]
    numbers, places = weight.leading()
    unit = np.where(numbers > 0, np.frexp(numbers)[1] + DIGIT * places - UNITS, 0)
    numbers, places = runs.squares_of(every).leading()
    square = np.ldexp(numbers, DIGIT * places - 2 * unit)
    sums_below, sums_upto = sums.in_units(unit[np.tile(run, 2)]).reshape(2, -1)
    totals, edges = weight.in_units(unit), run.searchsorted(np.append(every, len(every)))
    slots, parts = given.slots(), []
    for i in given.runs_of(slots).tolist():
        own, start = slice(edges[i], edges[i + 1]), runs.starts[i]
        counts = int(runs.n_valid[i]), int(runs.n_missing[i])
        of_counts = Cuts.of_chunk(pivots[own], below[own] - start, upto[own] - start, *counts)
        sums_of = sums_below[own], sums_upto[own]
        parts.append(of_counts.with_weights(*sums_of, totals[i], unit[i], square[i]))
    return _by_slot(slots, parts)


def _pivots(runs: Runs, share: int) -> tuple[IntArray, NDArray[Any], IntArray, IntArray]:
    """Choose pivots of each run; see `cuts`.

    Return the run of each pivot, the pivots, and the places behind the elements below and up to
    each of them.
    """
    n = np.array([pivot_count(size, share) for size in runs.n_valid.tolist()])
    run = np.repeat(np.arange(len(n)), n)
    step = ahead(np.zeros(len(n), np.int64), n, 1)
    by_count = runs.starts[run] + step * (runs.n_valid[run] - 1) // np.maximum(n[run] - 1, 1)
    before, weight = runs.sums_of(run)
    by_weight = runs.reach(run, before + weight.share_of((step + 1) / n[run]))
    places = np.sort(np.concatenate([by_count, by_weight]), kind="stable")
    values, run = runs.elements(places), runs.stops.searchsorted(places, side="right")
    is_new = np.ones(len(places), np.bool_)
    is_new[1:] = (values[1:] != values[:-1]) | (run[1:] != run[:-1])
    run, pivots = run[is_new], values[is_new]
    return run, pivots, *_sides(runs, run, pivots)


def _sides(runs: Runs, run: IntArray, values: NDArray[Any]) -> IntArray:
    """Find the places behind the elements of a run below each value, and up to it."""
    upto = np.repeat([False, True], len(run))
    return runs.find(np.tile(run, 2), np.tile(values, 2), upto).reshape(2, -1)


def tally(given: SortedSlots, brackets: Slots, most: Slots | int) -> Slots:
    """Tally each slot at its brackets; see `kernels.tally`."""
    runs, slots = given.runs, given.slots(brackets)
    asked: list[Brackets] = [brackets[slot] for slot in slots]
    number = given.runs_of(slots)
    edges = np.append(0, np.cumsum([len(each.ends) for each in asked]))
    run = np.repeat(number, np.diff(edges))
    below, upto = _sides(runs, run, np.concatenate([each.ends for each in asked]))
    before, weight = runs.sums_of(np.arange(len(runs.n_valid)))
    sums = runs.weights_before(np.concatenate([below, upto])) - before[np.tile(run, 2)]
    # Each cell begins behind the elements up to an end, and stops before those of the next one.
    own = [slice(*each) for each in itertools.pairwise(edges.tolist())]
    begins = [np.append(runs.starts[i], upto[at]) for i, at in zip(number, own, strict=True)]
    stops = [np.append(below[at], runs.stops[i]) for i, at in zip(number, own, strict=True)]
    gathered = _gathered(runs, begins, stops, asked, [at_slot(most, slot) for slot in slots])
    squares, products = _products(runs, begins, stops, asked)
    parts: list[Tally | None] = []
    for i, (at, candidates) in enumerate(zip(own, gathered, strict=True)):
        if candidates is None:
            parts.append(None)
            continue
        elements, weights = candidates
        n_valid, n_missing, n_left_out, n_idle = (
            int(n[number[i]]) for n in (runs.n_valid, runs.n_missing, runs.n_left_out, runs.n_idle)
        )
        tallied = Tally(
            below[at] - runs.starts[number[i]],
            upto[at] - runs.starts[number[i]],
            Candidates(elements, is_ordered=True),
            n_valid,
            n_missing,
            n_left_out=n_left_out,
            n_idle=n_idle,
            weights=weights,
            weight_below=sums[at],
            weight_upto=sums[len(run) + at.start : len(run) + at.stop],
            weight=weight[number[i : i + 1]],
            square=squares[number[i : i + 1]],
            products=products[at.start + i : at.stop + i + 1],
        )
        parts.append(tallied)
    return _by_slot(slots, parts)


def _gathered(
    runs: Runs,
    begins: Sequence[IntArray],
    stops: Sequence[IntArray],
    asked: Sequence[Brackets],
    most: Sequence[int],
) -> list[tuple[NDArray[Any], NDArray[Any]] | None]:
    """Return the elements and weights in the wanted cells of each slot; None for more than `most`.

    The places of the elements of a cell are those from its begin to its stop.
    """
    first = [begin[each.wanted] for each, begin in zip(asked, begins, strict=True)]
    sizes = [stop[each.wanted] for each, stop in zip(asked, stops, strict=True)]
    sizes = [stop - begin for begin, stop in zip(first, sizes, strict=True)]
    fits = [n.sum() <= room for n, room in zip(sizes, most, strict=True)]
    sizes = [n * does for n, does in zip(sizes, fits, strict=True)]
    places = ahead(np.concatenate(first), np.concatenate(sizes), 1)
    edges = np.cumsum([n.sum() for n in sizes])[:-1]
    columns = (np.split(each, edges) for each in (runs.elements(places), runs.weights_at(places)))
    pairs = zip(*columns, strict=True)
    return [pair if does else None for pair, does in zip(pairs, fits, strict=True)]


def _products(
    runs: Runs, begins: Sequence[IntArray], stops: Sequence[IntArray], asked: Sequence[Brackets]
) -> tuple[ExactSums, ExactSums]:
    """Sum squares of weights in each run, and elements times weights in the summed cells.

    Without such cells the squares are 0, and the table of products is empty.
    """
    every = np.arange(len(runs.n_valid))
    if all(each.summed is None for each in asked):
        return ExactSums.zeros(every.shape), NO_SUMS
    none = [np.zeros(len(each.wanted), np.bool_) for each in asked]
    masks = [
        each.summed if each.summed is not None else no for each, no in zip(asked, none, strict=True)
    ]
    some = np.concatenate(masks)
    places = (np.where(some, np.concatenate(each), 0) for each in (begins, stops))
    return runs.squares_of(every), runs.products(*places)


def moments(given: SortedSlots, near: Slots, cells: Any = None) -> Slots:
    """Sum the elements of each slot exactly; see `kernels.moments`.

    Box plots alone ask for sums of slots, and these are of all cells.
    """
    assert cells is None or not any(each is not None for each in (*cells.of.values(), cells.rest))
    slots = given.slots()
    sums = given.runs.moments(np.concatenate([near[slot] for slot in slots]))
    columns: list[Any] = [getattr(sums, each.name) for each in fields(Moments)]
    numbers = given.runs_of(slots).tolist()
    return _by_slot(slots, [Moments(*(each[i : i + 1] for each in columns)) for i in numbers])
