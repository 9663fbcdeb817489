"""Partial results about slots whose elements are sorted together, by slot and then by value.

Each run of `runs` is a slot, and the last one, which has no elements, stands for all other slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import NO_SUMS, Brackets, IntArray, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.host_runs import cuts_of_runs, sides
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.runs import Runs
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.maths.slots import Slots, at_slot
from dask_gpuselect.maths.tables import ahead, slices_of


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
    """Measure the cuts of each slot; see `kernels.cuts`."""
    n = np.array([pivot_count(size, share) for size in given.runs.n_valid.tolist()])
    of_runs, slots = cuts_of_runs(given.runs, n).of_each_chunk(), given.slots()
    return _by_slot(slots, [of_runs[i] for i in given.runs_of(slots).tolist()])


def tally(given: SortedSlots, brackets: Slots, most: Slots | int) -> Slots:
    """Tally each slot at its brackets; see `kernels.tally`."""
    runs, slots = given.runs, given.slots(brackets)
    asked: list[Brackets] = [brackets[slot] for slot in slots]
    number, n_ends = given.runs_of(slots), np.array([len(each.ends) for each in asked])
    run, first = np.repeat(number, n_ends), np.cumsum(n_ends) - n_ends
    below, upto = sides(runs, run, np.concatenate([each.ends for each in asked]))
    before, weight = runs.sums_of(np.arange(len(runs.n_valid)))
    sums = runs.weights_before(np.concatenate([below, upto])) - before[np.tile(run, 2)]
    # Each cell begins behind the elements up to an end, and stops before those of the next one.
    begins = np.insert(upto, first, runs.starts[number])
    stops = np.insert(below, first + n_ends, runs.stops[number])
    n_cells, wanted = n_ends + 1, np.concatenate([each.wanted for each in asked])
    sizes = (stops - begins) * wanted
    n = np.add.reduceat(sizes, first + np.arange(len(first)))
    fits = n <= [at_slot(most, slot) for slot in slots]
    places = ahead(begins, sizes * np.repeat(fits, n_cells))
    squares, products = _products(runs, begins, stops, asked)
    ones, counts = np.ones_like(number), ("n_valid", "n_missing", "n_left_out", "n_idle")
    columns: dict[str, Sequence[Any]] = {
        "below": _pieces(below - runs.starts[run], n_ends),
        "upto": _pieces(upto - runs.starts[run], n_ends),
        "candidates": _pieces(runs.elements(places), n * fits),
        "weights": _pieces(runs.weights_at(places), n * fits),
        "weight_below": sums[: len(run)].pieces(n_ends),
        "weight_upto": sums[len(run) :].pieces(n_ends),
        "weight": weight[number].pieces(ones),
        "square": squares[number].pieces(ones),
        "products": products.pieces(n_cells if len(products) else 0 * n_cells),
    }
    columns |= {name: getattr(runs, name)[number].tolist() for name in counts}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    parts = [_tally_of(**row) if each else None for each, row in zip(fits, rows, strict=True)]
    return _by_slot(slots, parts)


def _tally_of(candidates: NDArray[Any], **columns: Any) -> Tally:
    return Tally(candidates=Candidates(candidates, is_ordered=True), **columns)


def _pieces(column: NDArray[Any], sizes: IntArray) -> list[NDArray[Any]]:
    """Split a column into pieces of these sizes."""
    return [column[own] for own in slices_of(sizes)]


def _products(
    runs: Runs, begins: IntArray, stops: IntArray, asked: Sequence[Brackets]
) -> tuple[ExactSums, ExactSums]:
    """Sum squares of weights in each run, and elements times weights in the summed cells.

    Without such cells the squares are 0, and the table of products is empty.
    """
    every = np.arange(len(runs.n_valid))
    if all(each.summed is None for each in asked):
        return ExactSums.zeros(every.shape), NO_SUMS
    some = np.concatenate(
        [0 * each.wanted if each.summed is None else each.summed for each in asked]
    )
    return runs.squares_of(every), runs.products(begins * some, stops * some)


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
