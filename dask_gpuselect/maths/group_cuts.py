"""Order statistics of groups that are scattered over all elements, in two loads.

The elements of all groups in one order, by group and then by value: in it a group is a stretch of
ranks, and an order statistic of a group is one of the whole. So the cuts of a *run*, the elements
that a group has in a part of the data, are those of a chunk, and the brackets, their proofs and the
candidates are those of all elements (`envelope`, `finish`), whatever the number of groups.

A few large groups are looked at one by one, each as an array of its own: what is known of a group
is then what is known of all elements of that array (`GroupCuts.each`, `GroupBrackets.each`,
`GroupTally.each`).

Plain NumPy on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import (
    ADVICE,
    AtPivots,
    Brackets,
    ChunksChangedError,
    Cuts,
    IntArray,
    Joined,
    Tally,
)
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import from_keys, to_keys
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes

SortedInGroups = Callable[[NDArray[Any], NDArray[np.int32], int], NDArray[Any]]
"""From elements, the number of the group of each and the number of groups to the elements group by
group, each group's ascending."""

# Runs of up to so many elements report all of them: pivots of some would be hardly fewer.
FEW = 4

# Pivots that brackets are found of at once: 250 MB of scratch.
AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class GroupCuts(AtPivots):
    """The cuts of runs.

    Parameters
    ----------
    groups : ndarray of int32, shape (R,)
        The number of the group of each run.
    sizes : ndarray of unsigned integers, shape (R,)
        Pivots of each run, the least and the largest element among them; none if it has no valid
        element.
    n_valid, n_missing : ndarray of unsigned integers, shape (R,)
        Elements of each run that are no NaN or NaT, and those that are.
    pivots : ndarray, shape (P,), dtype of the elements
        Ascending and distinct within a run.
    below, upto : ndarray of unsigned integers, shape (P,)
        How many elements of the run are < and <= the pivot.

    Notes
    -----
    Unsigned integers have as few bytes as hold them: there may be as many runs as elements.
    """

    groups: NDArray[np.int32]
    sizes: NDArray[Any]
    n_valid: NDArray[Any]
    n_missing: NDArray[Any]
    pivots: NDArray[Any]
    below: NDArray[Any]
    upto: NDArray[Any]

    OF_CHUNKS: ClassVar[frozenset[str]] = frozenset({"groups", "sizes", "n_valid", "n_missing"})

    @classmethod
    def of_runs(
        cls,
        groups: IntArray,
        sizes: IntArray,
        n_valid: IntArray,
        n_missing: IntArray,
        pivots: NDArray[Any],
        below: IntArray,
        upto: IntArray,
    ) -> GroupCuts:
        return cls(
            groups.astype(np.int32),
            packed(sizes),
            packed(n_valid),
            packed(n_missing),
            pivots,
            packed(below),
            packed(upto),
        )

    @classmethod
    def of_missing(cls, counts: IntArray, dtype: np.dtype[Any]) -> GroupCuts:
        """Runs of nothing but so many missing elements of each group."""
        groups = np.flatnonzero(counts)
        none = np.zeros(len(groups), np.int64)
        return cls.of_runs(
            groups, none, none, counts[groups], np.empty(0, dtype), none[:0], none[:0]
        )

    def among(self, edges: Sequence[int]) -> list[GroupCuts]:
        """The runs of the groups between each two edges, and their groups numbered from there."""
        starts = self.starts()
        pieces = []
        for first, last in itertools.pairwise(edges):
            runs = np.flatnonzero((self.groups >= first) & (self.groups < last))
            piece = self.of_chunks(runs, starts)
            pieces.append(replace(piece, groups=piece.groups - np.int32(first)))
        return pieces

    def as_chunks(self, unknown: Cuts) -> Cuts:
        """The runs as chunks, by their cuts but for what this knows more."""
        return unknown

    def each(self, groups: NDArray[Any]) -> Iterator[tuple[int, Cuts]]:
        """The numbers of some groups, and the cuts of each alone: every run is a chunk."""
        order = np.argsort(self.groups, kind="stable")
        edges = (self.groups[order].searchsorted(groups, side) for side in ("left", "right"))
        starts = self.starts()
        for group, first, last in zip(*(each.tolist() for each in (groups, *edges)), strict=True):
            yield group, runs_as_chunks(self.of_chunks(order[first:last], starts))

    def ranges(self, n_groups: int) -> Iterator[tuple[Self, int, int]]:
        """Those of some groups, of the next, and so on: of few enough pivots at once, unless one
        group alone has more."""
        if len(self.pivots) <= AT_ONCE:
            yield self, 0, n_groups
            return
        stops = np.cumsum(totals(self.groups, self.sizes, n_groups))
        order = np.argsort(self.groups, kind="stable")
        ordered = self.groups[order]
        starts = self.starts()
        first = 0
        while first < n_groups:
            done = stops[first - 1] if first else 0
            last = max(int(np.searchsorted(stops, done + AT_ONCE, side="right")), first + 1)
            runs = order[slice(*np.searchsorted(ordered, [first, last]))]
            yield self.of_chunks(runs, starts), first, last
            first = last


@dataclass(frozen=True, slots=True, eq=False)
class GroupBrackets(Joined):
    """Brackets of the order statistics of all groups, one group after the other.

    A group of k ends has k + 1 *cells*: before, between and behind them.

    Parameters
    ----------
    ends : ndarray, shape (E,), dtype of the elements
        Ascending and distinct within a group.
    n_ends : ndarray of int64, shape (G,)
        Of each group.
    wanted : ndarray of bool, shape (E + G,)
        Whether the elements of each cell are candidates.
    lower, upper : ndarray of int64, shape (n_questions, G)
        The ranks of each group that are wanted.
    n_valid, n_missing : ndarray of int64, shape (G,)
        Of all parts.
    """

    ends: NDArray[Any]
    n_ends: IntArray
    wanted: NDArray[np.bool_]
    lower: IntArray
    upper: IntArray
    n_valid: IntArray
    n_missing: IntArray

    @property
    def n_groups(self) -> int:
        return len(self.n_valid)

    @property
    def first_end(self) -> IntArray:
        """Where the ends of each group begin, and where all end."""
        return np.append(np.int64(0), np.cumsum(self.n_ends))

    @property
    def first_cell(self) -> IntArray:
        """Where the cells of each group begin."""
        return np.asarray(np.cumsum(self.n_ends + 1) - self.n_ends - 1)

    @property
    def group_of_cell(self) -> IntArray:
        return np.repeat(np.arange(self.n_groups), self.n_ends + 1)

    @classmethod
    def of_nothing(cls, n_groups: int, dtype: np.dtype[Any]) -> GroupBrackets:
        """Brackets of groups of which nothing is asked, nor known."""
        none = np.zeros(n_groups, np.int64)
        wanted = np.zeros(n_groups, np.bool_)
        return cls(np.empty(0, dtype), none, wanted, none[None], none[None], none, none)

    def each(self) -> Callable[[int], tuple[Brackets, slice]]:
        """From the number of a group to its brackets alone, and where its cells are."""
        ends, cells, n_ends = (
            each.tolist() for each in (self.first_end, self.first_cell, self.n_ends)
        )

        def of_group(group: int) -> tuple[Brackets, slice]:
            n = n_ends[group]
            own = slice(cells[group], cells[group] + n + 1)
            return Brackets(self.ends[ends[group] : ends[group] + n], self.wanted[own]), own

        return of_group

    def with_each(self, some: Mapping[int, Brackets]) -> GroupBrackets:
        """These with other brackets of some groups, by their numbers."""
        of_group = self.each()
        each = [
            some[group] if group in some else of_group(group)[0] for group in range(self.n_groups)
        ]
        return replace(
            self,
            ends=np.concatenate([self.ends[:0], *(own.ends for own in each)]),
            n_ends=np.array([len(own.ends) for own in each], np.int64),
            wanted=np.concatenate([self.wanted[:0], *(own.wanted for own in each)]),
        )

    def among(self, edges: Sequence[int]) -> list[GroupBrackets]:
        """Those of the groups between each two edges."""
        first_end, pieces = self.first_end, []
        for first, last in itertools.pairwise(edges):
            begin, end = int(first_end[first]), int(first_end[last])
            groups = slice(first, last)
            pieces.append(
                GroupBrackets(
                    self.ends[begin:end],
                    self.n_ends[groups],
                    self.wanted[begin + first : end + last],
                    self.lower[:, groups],
                    self.upper[:, groups],
                    self.n_valid[groups],
                    self.n_missing[groups],
                )
            )
        return pieces


@dataclass(frozen=True, slots=True, eq=False)
class GroupTally(Joined):
    """Counts of parts in the cells of brackets and at their ends, and candidates.

    Parameters
    ----------
    cells : ndarray of int32
        Those that have elements, or whose upper end has; a cell may be there several times.
    inside, equal : ndarray of unsigned integers
        How many elements are in the cell, and how many equal its upper end; see `GroupCuts`.
    candidates : ndarray, dtype of the elements
        The elements of the wanted cells.
    of_cells : ndarray of int32
        The cell of each candidate.
    """

    cells: NDArray[np.int32]
    inside: NDArray[Any]
    equal: NDArray[Any]
    candidates: NDArray[Any]
    of_cells: NDArray[np.int32]

    @classmethod
    def of_counts(
        cls, counts: IntArray, candidates: NDArray[Any], of_cells: NDArray[np.int32]
    ) -> GroupTally:
        """By the counts of all cells: in them and at their upper ends, shape ``(cells, 2)``."""
        cells = np.flatnonzero(counts.any(axis=1))
        inside, equal = map(packed, counts[cells].T)
        return cls(cells.astype(np.int32), inside, equal, candidates, of_cells)

    def each(self, brackets: GroupBrackets) -> Iterator[tuple[int, Brackets, Tally]]:
        """The number of each group that has elements, its brackets alone and its tally at them."""
        n_cells = len(brackets.wanted)
        inside, equal = (totals(self.cells, each, n_cells) for each in (self.inside, self.equal))
        order = np.argsort(self.of_cells, kind="stable")
        starts = self.of_cells[order].searchsorted(np.append(brackets.first_cell, n_cells))
        of_group = brackets.each()
        for group in range(brackets.n_groups):
            own, cells = of_group(group)
            stops = np.stack([inside[cells], equal[cells]], axis=1).ravel().cumsum()
            n = int(stops[-1])
            if n:
                some = self.candidates[order[starts[group] : starts[group + 1]]]
                yield group, own, Tally(stops[:-2:2], stops[1:-1:2], HostCandidates(some), n, 0)

    @classmethod
    def of_each(cls, brackets: GroupBrackets, some: Mapping[int, Tally]) -> GroupTally:
        """By the tallies of some groups, which alone have elements, at their brackets alone."""
        counts = np.zeros((len(brackets.wanted), 2), np.int64)
        candidates, of_cells = [brackets.ends[:0]], [np.empty(0, np.int32)]
        of_group = brackets.each()
        for group, tally in some.items():
            own, cells = of_group(group)
            counts[cells, 0] = np.append(tally.below, tally.n_valid) - np.append(0, tally.upto)
            counts[cells, 1][:-1] = tally.upto - tally.below
            candidates.append(tally.candidates.on_host())
            of_cells.append((own.ends.searchsorted(candidates[-1]) + cells.start).astype(np.int32))
        return cls.of_counts(counts, np.concatenate(candidates), np.concatenate(of_cells))

    def columns(self) -> list[NDArray[Any]]:
        """What is known of each candidate."""
        return [self.candidates, self.of_cells]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        """The tally with these candidates instead."""
        candidates, of_cells = columns
        return replace(self, candidates=candidates, of_cells=of_cells)

    @property
    def held_bytes(self) -> int:
        """Of the candidates."""
        return int(self.candidates.nbytes) + int(self.of_cells.nbytes)

    def among(self, brackets: GroupBrackets, edges: Sequence[int]) -> list[GroupTally]:
        """Those of the groups between each two edges, and their cells numbered from there."""
        first_end, pieces = brackets.first_end, []
        for first, last in itertools.pairwise(edges):
            begin, end = int(first_end[first]) + first, int(first_end[last]) + last
            some = (self.cells >= begin) & (self.cells < end)
            taken = (self.of_cells >= begin) & (self.of_cells < end)
            pieces.append(
                GroupTally(
                    self.cells[some] - np.int32(begin),
                    self.inside[some],
                    self.equal[some],
                    self.candidates[taken],
                    self.of_cells[taken] - np.int32(begin),
                )
            )
        return pieces


def pivot_counts(n: IntArray, share: int) -> IntArray:
    """How many pivots runs of so many elements get: about as `sizes.pivot_count` says, but without
    the least number that pays for a task."""
    root = np.sqrt(n * share).astype(np.int64)
    return np.asarray(np.minimum(n, np.maximum(root, FEW)))


def packed(counts: IntArray) -> NDArray[Any]:
    """Counts as unsigned integers of as few bytes as hold them."""
    most = int(counts.max(initial=0))
    return counts.astype(np.min_scalar_type(most), copy=False)


def totals(groups: NDArray[Any], counts: NDArray[Any], n_groups: int) -> IntArray:
    """The sums of counts of each group, exact."""
    found = np.zeros(n_groups, np.int64)
    np.add.at(found, groups, counts.astype(np.int64, copy=False))
    return found


def find_group_brackets(
    parts: Sequence[GroupCuts], n_groups: int, ranks: RanksOfLanes
) -> GroupBrackets:
    """Brackets of the wanted order statistics of every group.

    Parameters
    ----------
    parts : sequence of GroupCuts
        Of all data.
    n_groups : int
    ranks : callable
        From numbers of elements to the lower and upper ranks that are wanted of so many.
    """
    cuts = GroupCuts.merge(parts)
    n_valid = totals(cuts.groups, cuts.n_valid, n_groups)
    n_missing = totals(cuts.groups, cuts.n_missing, n_groups)
    pair = ranks(np.maximum(n_valid, 1))
    lower, upper = (np.broadcast_to(each, (len(each), n_groups)) for each in pair)
    found = []
    for some, first, last in cuts.ranges(n_groups):
        n = n_valid[first:last]
        has = np.flatnonzero(n)
        before = (np.cumsum(n) - n)[has]
        wanted = ((each[:, first + has] + before).ravel() for each in (lower, upper))
        brackets, of_group = _brackets(some, *wanted)
        n_ends = np.bincount(of_group - first, minlength=last - first)
        # The cell behind the last end of a group and that before the first of the next are one in
        # the whole; the first of them is never wanted, unless it has no elements.
        cell = np.arange(len(brackets.ends) + last - first)
        cell -= np.repeat(np.arange(last - first), n_ends + 1)
        rows = lower[:, first:last], upper[:, first:last], n, n_missing[first:last]
        found.append(GroupBrackets(brackets.ends, n_ends, brackets.wanted[cell], *rows))
    together = GroupBrackets.merge(found)
    if len(together.wanted) > np.iinfo(np.int32).max:
        raise ValueError(
            f"{n_groups} groups have {len(together.ends)} ends of brackets, more than fit int32: "
            "ask for fewer quantiles in one call"
        )
    return together


def _brackets(cuts: GroupCuts, first: IntArray, last: IntArray) -> tuple[Brackets, IntArray]:
    """The brackets of some ranks of all elements in the order of groups and values, with values as
    ends; and the group of each end."""
    keys, value_of = _composite(np.repeat(cuts.groups, cuts.sizes), cuts.pivots)
    whole = replace(runs_as_chunks(cuts), pivots=keys)
    found = find_brackets(whole, first, last, use_distances=False)
    of_group = (found.ends >> np.uint64(32)).astype(np.int64)
    return Brackets(value_of(found.ends & np.uint64(0xFFFFFFFF)), found.wanted), of_group


def runs_as_chunks(cuts: GroupCuts) -> Cuts:
    """The cuts of runs as those of chunks, whose distances are unknown."""
    unknown = np.broadcast_to(np.float64("nan"), cuts.pivots.shape)
    below, upto = cuts.below.astype(np.int64), cuts.upto.astype(np.int64)
    rows = (each.astype(np.int64) for each in (cuts.sizes, cuts.n_valid, cuts.n_missing))
    return cuts.as_chunks(Cuts(cuts.pivots, below, upto, unknown, unknown, *rows))


def _composite(
    groups: IntArray, values: NDArray[Any]
) -> tuple[NDArray[np.uint64], Callable[[NDArray[np.uint64]], NDArray[Any]]]:
    """Keys in the order of groups, then of values; and from the lower half of a key to its value.

    That half is the value's own key, or, where this is too long, its place among the values there
    are.
    """
    high = groups.astype(np.uint64) << np.uint64(32)
    if values.dtype.itemsize <= 4:
        return high | to_keys(values), lambda low: from_keys(low, values.dtype)
    distinct, place = np.unique(values, return_inverse=True)
    return high | place.astype(np.uint64), lambda low: distinct[low.astype(np.int64)]


def found_in_groups(
    parts: Sequence[GroupTally], brackets: GroupBrackets, by: SortedInGroups
) -> Lanes:
    """The wanted order statistics of every group, as of so many lanes.

    Raises
    ------
    ChunksChangedError
        If a rank lies outside its bracket.
    """
    tally = GroupTally.merge(parts)
    n_cells = len(brackets.wanted)
    inside, equal = (totals(tally.cells, each, n_cells) for each in (tally.inside, tally.equal))
    candidates = by(tally.candidates, tally.of_cells, n_cells)
    found = located(inside, equal, brackets)
    if found is None or inside[brackets.wanted].sum() != len(candidates):
        raise ChunksChangedError(
            "the data have changed since the first read: wanted ranks are outside their brackets. "
            f"{ADVICE}"
        )
    both = np.concatenate([candidates, brackets.ends])  # a negative place counts from the end
    return lanes_at(found, lambda places: both[places], brackets)


def located(
    inside: IntArray, equal: IntArray, brackets: GroupBrackets
) -> tuple[IntArray, IntArray] | None:
    """Where the lower and the upper elements that are wanted of each group are; None if the
    brackets do not hold them all.

    Parameters
    ----------
    inside, equal : ndarray of int64, shape (n_cells,)
        How many elements are in each cell, and how many equal its upper end.
    brackets : GroupBrackets

    Returns
    -------
    tuple of 2 ndarray of int64, shape (n_questions, n_groups)
        Of groups that have elements. Places among all candidates, ordered by cells and values;
        negative ones are those of ends, counted from the last.
    """
    every = np.add.reduceat(inside + equal, brackets.first_cell)
    if not np.array_equal(every, brackets.n_valid):
        return None
    stops = np.stack([inside, equal], axis=1).ravel().cumsum()  # in the order of groups and values
    held = inside * brackets.wanted
    # From a rank that is in a cell to the place among the candidates.
    shift = (held.cumsum() - held) - (stops[::2] - inside)
    end = np.arange(len(inside)) - brackets.group_of_cell - len(brackets.ends)
    is_some = brackets.n_valid > 0
    before = (np.cumsum(brackets.n_valid) - brackets.n_valid)[is_some]
    places = []
    for ranks in (brackets.lower, brackets.upper):
        rank = ranks[:, is_some] + before
        segment = stops.searchsorted(rank, side="right")
        cell, is_end = segment // 2, segment % 2 == 1
        if not (is_end | brackets.wanted[cell]).all():
            return None
        places.append(np.where(is_end, end[cell], rank + shift[cell]))
    return places[0], places[1]


def lanes_at(
    found: tuple[IntArray, IntArray],
    elements_at: Callable[[IntArray], NDArray[Any]],
    brackets: GroupBrackets,
) -> Lanes:
    """The elements at places that `located` gives, as of so many lanes."""

    def elements(places: IntArray) -> NDArray[Any]:
        table = np.zeros((len(places), brackets.n_groups), brackets.ends.dtype)
        table[:, brackets.n_valid > 0] = elements_at(places)
        return unsigned_zero(table).T

    lower = elements(found[0])
    upper = lower if np.array_equal(*found) else elements(found[1])
    return Lanes(lower, upper, brackets.n_valid, brackets.n_missing)
