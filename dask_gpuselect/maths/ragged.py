"""Order statistics of many slots in two loads: in one order, all slots are one array.

Sort all elements by slot and then by value: a slot is then a stretch of ranks, and an order
statistic of a slot is one of the whole. The cuts of a run, which is the elements of a slot in a
part of the data, are like those of a chunk. So brackets, proofs and candidates are those of one
large array (`envelope`, `finish`), whatever the number of slots. A group of elements is such a
slot.

Plain NumPy on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import SIDES, Candidates
from dask_gpuselect.maths.cuts import (
    ADVICE,
    NO_SUMS,
    Arrays,
    Brackets,
    ChunksChangedError,
    Cuts,
    IntArray,
    Joined,
    Tally,
    packed,
    totals,
)
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import from_keys, to_keys
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, ranks_of_each
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.orders import GatheredRuns, OrderedRuns

# Runs of up to so many elements have all of them as pivots: fewer pivots would save little.
FEW = 4

# Number of pivots from which brackets are found together: 250 MB of scratch.
AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Bracketed(Arrays):
    """Brackets of slots, and how many elements each slot has.

    Parameters
    ----------
    brackets : Brackets
        Brackets of all slots.
    n_valid, n_missing : ndarray of int64, shape (S,)
        Number of valid elements of each slot in all parts, and of NaN or NaT.
    is_whole : bool
        True if the brackets are those of `Wanted.whole`, whose answers need sums of all elements.
    """

    brackets: Brackets
    n_valid: IntArray
    n_missing: IntArray
    is_whole: bool = False

    def check(self, n_valid: IntArray) -> None:
        """Raise unless the slots have as many elements as by the cuts."""
        if not np.array_equal(n_valid, self.n_valid):
            raise ChunksChangedError(
                f"the data have changed since the first read: groups have other sizes. {ADVICE}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class CellTally(Joined):
    """Counts in the cells of brackets of slots, and the candidates: a `Tally` of few bytes.

    Only cells that have elements are listed, because a part of the data may have few of the slots.

    Parameters
    ----------
    cells : ndarray of int32
        Numbers of the cells that have elements, or whose upper end has. A cell may occur several
        times.
    inside, equal : ndarray of unsigned integers
        Number of elements in the cell, and of those that equal its upper end; see `Cuts`.
    candidates : ndarray, dtype of the elements
        Elements of the wanted cells.
    of_cells : ndarray of int32
        Cell of each candidate.
    weights : ndarray of float64 or int64, optional
        Weight of each candidate. None without weights; then all columns below are None, too.
    weight_inside, weight_equal : ExactSums, optional
        Weight of the elements that `inside` and `equal` count.
    products : ExactSums, optional
        Sums of element times weight in the cells that are `Brackets.summed`, and 0 in others. None
        at other brackets.
    slots : ndarray of int32, optional
        Slots that have elements here; a slot may occur several times.
    squares : ExactSums, optional
        Sum of the squares of the weights of each of `slots`; 0 if nothing asked for it.
    n_idle : ndarray of int64, optional
        Number of elements of weight 0 of each of `slots`.
    n_all : ndarray of int64, optional
        Number of all elements of each of `slots`, masked ones included. None, as `moments`, at
        brackets of which nothing asks for sums.
    moments : Moments, optional
        Exact sums of the valid elements of each of `slots`.
    """

    cells: NDArray[np.int32]
    inside: NDArray[Any]
    equal: NDArray[Any]
    candidates: NDArray[Any]
    of_cells: NDArray[np.int32]
    weights: Any = field(default=None, kw_only=True)
    weight_inside: Any = field(default=None, kw_only=True)
    weight_equal: Any = field(default=None, kw_only=True)
    products: Any = field(default=None, kw_only=True)
    slots: Any = field(default=None, kw_only=True)
    squares: Any = field(default=None, kw_only=True)
    n_idle: Any = field(default=None, kw_only=True)
    n_all: Any = field(default=None, kw_only=True)
    moments: Any = field(default=None, kw_only=True)

    OF_CANDIDATES: ClassVar[tuple[str, ...]] = "candidates", "of_cells", "weights"
    """Names of the columns that describe the candidates."""

    OF_SLOTS: ClassVar[tuple[str, ...]] = "slots", "squares", "n_idle", "n_all", "moments"
    """Names of the columns about slots; all others are about cells, or about candidates."""

    @classmethod
    def of_counts(
        cls, counts: IntArray, candidates: NDArray[Any], of_cells: NDArray[np.int32]
    ) -> CellTally:
        """Make a tally from counts of shape ``(cells, 2)``: inside a cell, and at its upper end."""
        cells = np.flatnonzero(counts.any(axis=1))
        inside, equal = map(packed, counts[cells].T)
        return cls(cells.astype(np.int32), inside, equal, candidates, of_cells)

    @classmethod
    def of_weights(
        cls,
        counts: IntArray,
        sums: ExactSums,
        candidates: Sequence[NDArray[Any]],
        squares: ExactSums,
        n_idle: IntArray,
        products: ExactSums | None,
    ) -> CellTally:
        """Make a tally with weights, of all cells and all slots.

        `sums` are those of the elements that are counted, in one row, and `candidates` the columns
        that describe the candidates.
        """
        *some, weights = candidates
        tally = cls.of_counts(counts, *some)
        cells, slots = tally.cells, np.flatnonzero(~squares.is_zero | (n_idle > 0))
        return replace(
            tally,
            weights=weights,
            weight_inside=sums[2 * cells],
            weight_equal=sums[2 * cells + 1],
            products=None if products is None else products[cells],
            slots=slots.astype(np.int32),
            squares=squares[slots],
            n_idle=n_idle[slots],
        )

    def with_sums(self, n_all: IntArray, moments: Moments) -> Self:
        """Add the number of all elements of each slot, and their exact sums."""
        slots, n_slots = np.flatnonzero(n_all), len(n_all)
        columns: dict[str, Any] = {"n_all": n_all[slots], "moments": moments[slots]}
        if self.weighs:
            columns["squares"] = self.squares.at_places(self.slots, n_slots)[slots]
            columns["n_idle"] = totals(self.slots, self.n_idle, n_slots)[slots]
        return replace(self, slots=slots.astype(np.int32), **columns)

    def without_sums(self) -> Self:
        """Leave out what `with_sums` adds."""
        slots = self.slots if self.weighs else None
        return replace(self, slots=slots, n_all=None, moments=None)

    def sums_of_slots(self, n_slots: int) -> tuple[IntArray, Moments]:
        """Return the number of all elements of each slot, and their exact sums."""
        moments: Moments = self.moments.at_places(self.slots, n_slots)
        return totals(self.slots, self.n_all, n_slots), moments

    @property
    def weighs(self) -> bool:
        """True if the tally has weights."""
        return self.weights is not None

    def counts(self, n_cells: int) -> IntArray:
        """Return the counts of all cells, as `of_counts` takes them."""
        both = (totals(self.cells, each, n_cells) for each in (self.inside, self.equal))
        return np.stack([*both], axis=1)

    def sums(self, n_cells: int) -> ExactSums:
        """Return the weights of all cells, as `of_weights` takes them."""
        cells = 2 * self.cells.astype(np.int64)
        inside: ExactSums = self.weight_inside.at_places(cells, 2 * n_cells)
        equal: ExactSums = self.weight_equal.at_places(cells + 1, 2 * n_cells)
        return inside + equal

    def each(self, brackets: Brackets) -> Iterator[tuple[int, Brackets, Tally]]:
        """Yield the number of each slot that has elements, its own brackets and its own tally."""
        edges, n_cells = brackets.first_cell, len(brackets.wanted)
        counts, about = self.counts(n_cells), self._about_slots(brackets)
        order = np.argsort(self.of_cells, kind="stable")
        starts = self.of_cells[order].searchsorted(edges)
        of_slot = brackets.by_slot()
        for slot in range(brackets.n_slots):
            places = order[starts[slot] : starts[slot + 1]]
            own = counts[edges[slot] : edges[slot + 1]]
            candidates = Candidates(self.candidates[places])
            tally = tally_of_cells(own, candidates, **about(slot, places))
            if tally.n_valid:
                yield slot, of_slot(slot), tally

    def _about_slots(self, brackets: Brackets) -> Callable[[int, IntArray], dict[str, Any]]:
        """Return a function that tells of a slot all that its tally has if there are weights.

        It takes the number of the slot and the places of its candidates.
        """
        if not self.weighs:
            return lambda slot, places: {}
        edges, n_cells, n_slots = brackets.first_cell, len(brackets.wanted), brackets.n_slots
        sums, squares = self.sums(n_cells), self.squares.at_places(self.slots, n_slots)
        n_idle = totals(self.slots, self.n_idle, n_slots)
        products = NO_SUMS
        if self.products is not None:
            products = self.products.at_places(self.cells, n_cells)

        def about(slot: int, places: IntArray) -> dict[str, Any]:
            first, last = edges[slot], edges[slot + 1]
            return {
                "sums": sums[2 * first : 2 * last - 1],
                "weights": self.weights[places],
                "square": squares[slot : slot + 1],
                "products": products[first:last],
                "n_idle": int(n_idle[slot]),
            }

        return about

    @classmethod
    def of_each(cls, brackets: Brackets, some: Mapping[int, Tally]) -> CellTally:
        """Make a tally from those of one or more slots; all other slots are empty."""
        first_cell, of_slot = brackets.first_cell, brackets.by_slot()
        each = (
            cls.of_tally(of_slot(slot), tally).moved(slot, int(first_cell[slot]))
            for slot, tally in some.items()
        )
        return cls.merge([*each])

    def moved(self, slot: int, cell: int) -> Self:
        """Add to the numbers of slots and of cells."""
        by = {"slots": np.int32(slot), "cells": np.int32(cell), "of_cells": np.int32(cell)}
        own = self.by_name()
        return replace(self, **{name: own[name] + n for name, n in by.items() if name in own})

    @property
    def empty(self) -> Self:
        """The tally of no elements."""
        return replace(self, **{name: column[:0] for name, column in self.by_name().items()})

    @classmethod
    def of_tally(cls, brackets: Brackets, tally: Tally) -> CellTally:
        """Make the tally of a single slot from one of an array."""
        counts, before = tally.segments()
        candidates = tally.candidates.on_host()
        of_cells = brackets.ends.searchsorted(candidates).astype(np.int32)
        if not tally.weighs:
            return cls.of_counts(counts, candidates, of_cells)
        products = tally.products if brackets.summed is not None else None
        about = tally.square, np.array([tally.n_idle], np.int64), products
        gathered = candidates, of_cells, tally.weights
        return cls.of_weights(counts, before[1:] - before[:-1], gathered, *about)

    def columns(self) -> list[NDArray[Any]]:
        """List the columns that describe the candidates."""
        every = (getattr(self, name) for name in self.OF_CANDIDATES)
        return [each for each in every if each is not None]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        """Replace the candidates by these columns."""
        named: dict[str, Any] = dict(zip(self.OF_CANDIDATES, columns, strict=False))
        return replace(self, **named)

    @property
    def candidate_bytes(self) -> int:
        """Size of the candidates in bytes."""
        return sum(int(column.nbytes) for column in self.columns())

    def among(self, brackets: Brackets, edges: Sequence[int]) -> list[CellTally]:
        """Split the tally by slots between each two edges; cells are numbered anew from 0."""
        cells, pieces = brackets.first_cell[list(edges)].tolist(), []
        for slots, (begin, end) in zip(
            itertools.pairwise(edges), itertools.pairwise(cells), strict=True
        ):
            among = {"cells": (begin, end), "of_cells": (begin, end), "slots": slots}
            some = {
                name: (numbers >= first) & (numbers < last)
                for name, (first, last) in among.items()
                if (numbers := getattr(self, name)) is not None
            }
            named = {name: "of_cells" for name in self.OF_CANDIDATES}
            named |= {name: "slots" for name in self.OF_SLOTS}
            own = {name: c[some[named.get(name, "cells")]] for name, c in self.by_name().items()}
            pieces.append(replace(self, **own).moved(-slots[0], -begin))
        return pieces


def tally_of_cells(
    counts: IntArray, candidates: Candidates, *, sums: ExactSums | None = None, **others: Any
) -> Tally:
    """Make the tally of one array from counts of its cells: inside each, and at its upper end.

    The cells may be those of several slots: no element equals the upper end of a slot's last cell.
    `sums` are the weights of what is counted, and `others` further columns of the tally.
    """
    return Tally.of_segments(counts.ravel()[:-1], sums, candidates, **others)


def pivot_counts(n: IntArray, share: int) -> IntArray:
    """Choose the number of pivots of runs of n elements.

    As `sizes.pivot_count`, but without the least number that pays for a task.
    """
    root = np.sqrt(n * share).astype(np.int64)
    return np.asarray(np.minimum(n, np.maximum(root, FEW)))


def ranks_in_one_order(n_valid: IntArray, ranks: RanksOfLanes) -> tuple[IntArray, IntArray]:
    """Find the two ranks of each answer of each slot among the elements of all slots in order.

    Shapes are ``(n_questions, n_slots)``. The ranks of a slot without elements are arbitrary, but
    exist unless all slots have none.
    """
    before, last = np.cumsum(n_valid) - n_valid, max(int(n_valid.sum()) - 1, 0)
    lower, upper = (
        np.minimum(np.broadcast_to(rank, (len(rank), len(before))) + before, last)
        for rank in ranks(np.maximum(n_valid, 1))
    )
    return lower, upper


Sums = tuple[IntArray, Moments]
"""Number of all elements of each slot, and their exact sums."""


@dataclass(frozen=True)
class Wanted:
    """Elements that are wanted of every slot, with the functions that bracket and find them.

    Parameters
    ----------
    ranges : callable
        ``(cuts, n_valid)``: the brackets of some slots, whose elements and pivots follow one
        another, by their numbers of elements.
    find : callable
        ``(order, sums)``: the elements that are wanted of every slot, a `Lanes`, from all elements
        in their order; with `Sums` if the brackets were those of `whole`, else None.
    weighs : bool
        True if elements have weights.
    whole : Question, optional
        A question about all elements of a slot that the elements are wanted for. Its `bracket` also
        takes the most elements that may be gathered in a slot, and the `SlotKeys` of pivots.
    is_done : callable, optional
        ``(known)``: whether `find` has found what a further load would find, too.
    """

    ranges: Callable[[Cuts, IntArray], Brackets]
    find: Callable[[GatheredRuns, Sums | None], Lanes]
    weighs: bool = False
    whole: Any = None
    is_done: Callable[[Any], bool] | None = None

    @classmethod
    def of_ranks(cls, ranks: RanksOfLanes) -> Self:
        """Want the elements of two ranks for each answer."""
        return cls(partial(_ranges_of_ranks, ranks), partial(by_ranks, ranks))

    def asks_whole(self, n_slots: int, room: SlotRoom | None) -> bool:
        """Return whether there is room to ask `whole` about so many slots."""
        return room is not None and self.whole is not None and 0 < n_slots <= room.slots


class SlotRoom(NamedTuple):
    """Most slots that `Wanted.whole` may be asked about, and most candidates of all of them."""

    slots: int
    candidates: int


def _ranges_of_ranks(ranks: RanksOfLanes, cuts: Cuts, n_valid: IntArray) -> Brackets:
    places = ranks_in_one_order(n_valid[n_valid > 0], ranks)
    return find_brackets(cuts, *(each.ravel() for each in places))


def by_ranks(
    ranks: RanksOfLanes, order: OrderedRuns | GatheredRuns, sums: Sums | None = None
) -> Lanes:
    """Find the elements of two ranks for each answer, in every slot or run."""
    some = np.flatnonzero(order.n_valid)
    table = np.zeros((2, len(order.n_valid), len(ranks(np.ones(1, np.int64))[0])), order.dtype)
    if len(some):
        places = np.stack(ranks_of_each(order.n_valid[some], ranks)) + order.starts[some, None]
        # Both are asked together: on a device each question takes a copy there and back.
        table[:, some] = unsigned_zero(order.elements(places.ravel())).reshape(places.shape)
    return Lanes(table[0], table[1], order.n_valid, order.n_missing)


def bracket_slots(
    parts: Sequence[Cuts], n_slots: int, wanted: Wanted, room: SlotRoom | None = None
) -> Bracketed:
    """Bracket what is wanted of every slot.

    Parameters
    ----------
    parts : sequence of Cuts
        Cuts of all data.
    n_slots : int
        Number of slots.
    wanted : Wanted
    room : SlotRoom, optional
        Default: there is none.
    """
    cuts = Cuts.merge(parts)
    n_valid, n_missing = cuts.in_slots(n_slots)
    most = None
    if room is not None and wanted.asks_whole(n_slots, room):
        most = room.candidates // n_slots
    edges = _edges(cuts, n_slots)
    pieces = [cuts] if len(edges) == 2 else cuts.among(edges)
    ranges = []
    for some, (first, last) in zip(pieces, itertools.pairwise(edges), strict=True):
        ranges.append(_brackets(some, n_valid[first:last], wanted, most))
    brackets = Brackets.merge(ranges)
    if len(brackets.wanted) > np.iinfo(np.int32).max:
        raise ValueError(
            f"{n_slots} groups have {len(brackets.ends)} ends of brackets, more than fit int32: "
            "ask for fewer quantiles in one call"
        )
    return Bracketed(brackets, n_valid, n_missing, is_whole=most is not None)


def _edges(cuts: Cuts, n_slots: int) -> list[int]:
    """Divide slots into ranges with about `AT_ONCE` pivots, unless a single slot has more."""
    if len(cuts.pivots) <= AT_ONCE:
        return [0, n_slots]
    upto = np.cumsum(totals(cuts.slots, cuts.sizes, n_slots))
    inner = np.searchsorted(upto, np.arange(AT_ONCE, upto[-1], AT_ONCE))
    return [*np.unique([0, *inner, n_slots]).tolist()]


def _brackets(cuts: Cuts, n_valid: IntArray, wanted: Wanted, most: int | None) -> Brackets:
    """Bracket what is wanted of a range of slots, from their cuts in one order.

    `most` is how many elements of a slot may be gathered for `Wanted.whole`; None if that is not
    asked.
    """
    assert cuts.slots is not None
    pivots, keys = SlotKeys.of(np.repeat(cuts.slots, cuts.sizes), cuts.pivots)
    whole = replace(cuts.unpacked(), pivots=pivots)
    if most is None:
        brackets = wanted.ranges(whole, n_valid)
    else:
        brackets = wanted.whole.bracket(whole, most, keys)
    return _of_slots(brackets, keys, len(n_valid))


def _of_slots(brackets: Brackets, keys: SlotKeys, n_slots: int) -> Brackets:
    """Divide the brackets of all slots in one order, whose ends are keys, among the slots."""
    n_ends = np.bincount(keys.slots(brackets.ends), minlength=n_slots)
    # In the whole, the cell behind the last end of a slot and the cell before the first end of the
    # next slot are one. The first of the two is never wanted, unless it is empty.
    cell = np.arange(len(brackets.ends) + n_slots) - np.repeat(np.arange(n_slots), n_ends + 1)
    summed = None if brackets.summed is None else brackets.summed[cell]
    ends = keys.values(brackets.ends)
    return Brackets(ends, brackets.wanted[cell], n_ends=n_ends, summed=summed)


@dataclass(frozen=True, slots=True, eq=False)
class SlotKeys:
    """Keys of the elements of slots in one order: by slot, then by value.

    The lower half of a key is the value's own key or, where that is too long, the place of the
    value among the distinct ones.

    Parameters
    ----------
    dtype : dtype
        Dtype of the elements.
    distinct : ndarray or None
        Distinct values, ascending. None for elements of at most 4 bytes.
    """

    dtype: np.dtype[Any]
    distinct: NDArray[Any] | None

    @classmethod
    def of(cls, slots: IntArray, values: NDArray[Any]) -> tuple[NDArray[np.uint64], SlotKeys]:
        """Make keys of some elements; also return these, to compare further elements with them."""
        high = slots.astype(np.uint64) << np.uint64(32)
        if values.dtype.itemsize <= 4:
            return high | to_keys(values), cls(values.dtype, None)
        distinct, place = np.unique(values, return_inverse=True)
        return high | place.astype(np.uint64), cls(values.dtype, distinct)

    @staticmethod
    def slots(keys: NDArray[np.uint64]) -> IntArray:
        """Return the slots of keys."""
        return (keys >> np.uint64(32)).astype(np.int64)

    def values(self, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the elements that have these keys."""
        low = keys & np.uint64(0xFFFFFFFF)
        if self.distinct is None:
            return from_keys(low, self.dtype)
        return self.distinct[low.astype(np.int64)]

    def behind(self, slots: IntArray, values: NDArray[Any], *, upto: bool) -> NDArray[np.uint64]:
        """Return the least key of an element of a slot that is not below a value.

        If it has to be above the value, `upto`, this may be the first key of the next slot.
        """
        high = slots.astype(np.uint64) << np.uint64(32)
        if self.distinct is None:
            return high + to_keys(values) + np.uint64(upto)
        return high + self.distinct.searchsorted(values, SIDES[upto]).astype(np.uint64)
