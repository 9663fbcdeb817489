"""Order statistics of groups that are scattered over all elements, in two loads.

Sort all elements by group and then by value: a group is then a stretch of ranks, and an order
statistic of a group is one of the whole. A *run* is the elements that a group has in a part of the
data. The cuts of a run are like those of a chunk. So brackets, proofs and candidates are those of
one large array (`envelope`, `finish`), whatever the number of groups.

A few large groups are treated one by one, each as an array of its own, with the plain classes for
all elements (`GroupCuts.each`, `GroupBrackets.each`, `GroupTally.each`).

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
"""Function that sorts elements group by group, ascending within each.

Arguments are the elements, the group number of each, and the number of groups.
"""

# Runs of up to so many elements have all of them as pivots: fewer pivots would save little.
FEW = 4

# Number of pivots from which brackets are found together: 250 MB of scratch.
AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class GroupCuts(AtPivots):
    """Cuts of runs, as columns.

    Parameters
    ----------
    groups : ndarray of int32, shape (R,)
        Number of the group of each run.
    sizes : ndarray of unsigned integers, shape (R,)
        Number of pivots of each run, the least and the largest element among them; 0 if the run has
        no valid element.
    n_valid, n_missing : ndarray of unsigned integers, shape (R,)
        Number of valid elements of each run, and of NaN or NaT.
    pivots : ndarray, shape (P,), dtype of the elements
        Ascending and distinct within a run.
    below, upto : ndarray of unsigned integers, shape (P,)
        Number of elements of the run that are < and <= the pivot.

    Notes
    -----
    Unsigned integers have as few bytes as possible, because there may be as many runs as elements.
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
        """Make runs without valid elements, from the number of missing elements of each group."""
        groups = np.flatnonzero(counts)
        none = np.zeros(len(groups), np.int64)
        return cls.of_runs(
            groups, none, none, counts[groups], np.empty(0, dtype), none[:0], none[:0]
        )

    def among(self, edges: Sequence[int]) -> list[GroupCuts]:
        """Split the runs by groups between each two edges; groups are numbered anew from 0."""
        starts = self.starts()
        pieces = []
        for first, last in itertools.pairwise(edges):
            runs = np.flatnonzero((self.groups >= first) & (self.groups < last))
            piece = self.of_chunks(runs, starts)
            pieces.append(replace(piece, groups=piece.groups - np.int32(first)))
        return pieces

    def as_chunks(self, unknown: Cuts) -> Cuts:
        """Return the runs as chunks, given their plain cuts; subclasses add what else they know."""
        return unknown

    def each(self, groups: NDArray[Any]) -> Iterator[tuple[int, Cuts]]:
        """Yield each of some groups with its cuts: its runs are the chunks of an array."""
        order = np.argsort(self.groups, kind="stable")
        edges = (self.groups[order].searchsorted(groups, side) for side in ("left", "right"))
        starts = self.starts()
        for group, first, last in zip(*(each.tolist() for each in (groups, *edges)), strict=True):
            yield group, runs_as_chunks(self.of_chunks(order[first:last], starts))

    def ranges(self, n_groups: int) -> Iterator[tuple[Self, int, int]]:
        """Split the runs into ranges of groups, as ``(cuts, first, last)``.

        A range has at most `AT_ONCE` pivots, unless a single group has more.
        """
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
        Number of ends of each group.
    wanted : ndarray of bool, shape (E + G,)
        True if the elements of the cell are candidates.
    lower, upper : ndarray of int64, shape (n_questions, G)
        Wanted ranks of each group.
    n_valid, n_missing : ndarray of int64, shape (G,)
        Number of valid elements of each group in all parts, and of NaN or NaT.
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
        """Index of the first end of each group, and the number of all ends."""
        return np.append(np.int64(0), np.cumsum(self.n_ends))

    @property
    def first_cell(self) -> IntArray:
        """Index of the first cell of each group."""
        return np.asarray(np.cumsum(self.n_ends + 1) - self.n_ends - 1)

    @property
    def group_of_cell(self) -> IntArray:
        return np.repeat(np.arange(self.n_groups), self.n_ends + 1)

    @classmethod
    def of_nothing(cls, n_groups: int, dtype: np.dtype[Any]) -> GroupBrackets:
        """Make brackets of groups without elements and without questions."""
        none = np.zeros(n_groups, np.int64)
        wanted = np.zeros(n_groups, np.bool_)
        return cls(np.empty(0, dtype), none, wanted, none[None], none[None], none, none)

    def each(self) -> Callable[[int], tuple[Brackets, slice]]:
        """Return a function from a group number to the group's own brackets and cells."""
        ends, cells, n_ends = (
            each.tolist() for each in (self.first_end, self.first_cell, self.n_ends)
        )

        def of_group(group: int) -> tuple[Brackets, slice]:
            n = n_ends[group]
            own = slice(cells[group], cells[group] + n + 1)
            return Brackets(self.ends[ends[group] : ends[group] + n], self.wanted[own]), own

        return of_group

    def with_each(self, some: Mapping[int, Brackets]) -> GroupBrackets:
        """Replace the brackets of some groups, given by their numbers."""
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
        """Split the brackets by groups between each two edges."""
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
    """Counts in the cells and at the ends of group brackets, and the candidates.

    Parameters
    ----------
    cells : ndarray of int32
        Numbers of the cells that have elements, or whose upper end has. A cell may occur several
        times.
    inside, equal : ndarray of unsigned integers
        Number of elements in the cell, and of those that equal its upper end; see `GroupCuts`.
    candidates : ndarray, dtype of the elements
        Elements of the wanted cells.
    of_cells : ndarray of int32
        Cell of each candidate.
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
        """Make a tally from counts of shape ``(cells, 2)``: inside a cell, and at its upper end."""
        cells = np.flatnonzero(counts.any(axis=1))
        inside, equal = map(packed, counts[cells].T)
        return cls(cells.astype(np.int32), inside, equal, candidates, of_cells)

    def each(self, brackets: GroupBrackets) -> Iterator[tuple[int, Brackets, Tally]]:
        """Yield the number of each group that has elements, its own brackets and its own tally."""
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
        """Make a tally from those of single groups; all other groups are empty."""
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
        """List the columns that describe the candidates."""
        return [self.candidates, self.of_cells]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        """Replace the candidates by these columns."""
        candidates, of_cells = columns
        return replace(self, candidates=candidates, of_cells=of_cells)

    @property
    def candidate_bytes(self) -> int:
        """Size of the candidates in bytes."""
        return int(self.candidates.nbytes) + int(self.of_cells.nbytes)

    def among(self, brackets: GroupBrackets, edges: Sequence[int]) -> list[GroupTally]:
        """Split the tally by groups between each two edges; cells are numbered anew from 0."""
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
    """Choose the number of pivots of runs of n elements.

    As `sizes.pivot_count`, but without the least number that pays for a task.
    """
    root = np.sqrt(n * share).astype(np.int64)
    return np.asarray(np.minimum(n, np.maximum(root, FEW)))


def packed(counts: IntArray) -> NDArray[Any]:
    """Convert counts to unsigned integers with as few bytes as possible."""
    most = int(counts.max(initial=0))
    return counts.astype(np.min_scalar_type(most), copy=False)


def totals(groups: NDArray[Any], counts: NDArray[Any], n_groups: int) -> IntArray:
    """Add up counts for each group, exactly."""
    found = np.zeros(n_groups, np.int64)
    np.add.at(found, groups, counts.astype(np.int64, copy=False))
    return found


def find_group_brackets(
    parts: Sequence[GroupCuts], n_groups: int, ranks: RanksOfLanes
) -> GroupBrackets:
    """Bracket the wanted order statistics of every group.

    Parameters
    ----------
    parts : sequence of GroupCuts
        Cuts of all data.
    n_groups : int
        Number of groups.
    ranks : callable
        Function from numbers of elements to the lower and upper ranks that are wanted.
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
        # In the whole, the cell behind the last end of a group and the cell before the first end of
        # the next group are one. The first of the two is never wanted, unless it is empty.
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
    """Bracket ranks of all elements, sorted by group and value; find the group of each end too."""
    keys, value_of = _composite(np.repeat(cuts.groups, cuts.sizes), cuts.pivots)
    whole = replace(runs_as_chunks(cuts), pivots=keys)
    found = find_brackets(whole, first, last, use_distances=False)
    of_group = (found.ends >> np.uint64(32)).astype(np.int64)
    return Brackets(value_of(found.ends & np.uint64(0xFFFFFFFF)), found.wanted), of_group


def runs_as_chunks(cuts: GroupCuts) -> Cuts:
    """Convert the cuts of runs to those of chunks, with unknown distances."""
    unknown = np.broadcast_to(np.float64("nan"), cuts.pivots.shape)
    below, upto = cuts.below.astype(np.int64), cuts.upto.astype(np.int64)
    rows = (each.astype(np.int64) for each in (cuts.sizes, cuts.n_valid, cuts.n_missing))
    return cuts.as_chunks(Cuts(cuts.pivots, below, upto, unknown, unknown, *rows))


def _composite(
    groups: IntArray, values: NDArray[Any]
) -> tuple[NDArray[np.uint64], Callable[[NDArray[np.uint64]], NDArray[Any]]]:
    """Make keys in the order of groups, then values; also return a function back to values.

    The function takes the lower halves of the keys.

    The lower half is the value's own key or, where that is too long, the place of the value among
    the distinct ones.
    """
    high = groups.astype(np.uint64) << np.uint64(32)
    if values.dtype.itemsize <= 4:
        return high | to_keys(values), lambda low: from_keys(low, values.dtype)
    distinct, place = np.unique(values, return_inverse=True)
    return high | place.astype(np.uint64), lambda low: distinct[low.astype(np.int64)]


def elements_of_groups(
    parts: Sequence[GroupTally], brackets: GroupBrackets, by: SortedInGroups
) -> Lanes:
    """Find the wanted order statistics of every group, one lane for each group.

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
    both = np.concatenate([candidates, brackets.ends])  # negative places index the ends
    return lanes_at(found, lambda places: both[places], brackets)


def located(
    inside: IntArray, equal: IntArray, brackets: GroupBrackets
) -> tuple[IntArray, IntArray] | None:
    """Locate the wanted elements of each group; None if the brackets do not hold them all.

    Parameters
    ----------
    inside, equal : ndarray of int64, shape (n_cells,)
        Number of elements in each cell, and of those that equal its upper end.
    brackets : GroupBrackets

    Returns
    -------
    tuple of 2 ndarray of int64, shape (n_questions, n_groups)
        Lower and upper elements of the groups that have elements, as places among all candidates,
        ordered by cell and value. Negative places count from the last end.
    """
    every = np.add.reduceat(inside + equal, brackets.first_cell)
    if not np.array_equal(every, brackets.n_valid):
        return None
    stops = np.stack([inside, equal], axis=1).ravel().cumsum()  # in the order of groups and values
    held = inside * brackets.wanted
    # Difference between the place of a candidate and its rank, for each cell.
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
    """Return the elements at the places that `located` gives, one lane for each group."""

    def elements(places: IntArray) -> NDArray[Any]:
        table = np.zeros((len(places), brackets.n_groups), brackets.ends.dtype)
        table[:, brackets.n_valid > 0] = elements_at(places)
        return unsigned_zero(table).T

    lower = elements(found[0])
    upper = lower if np.array_equal(*found) else elements(found[1])
    return Lanes(lower, upper, brackets.n_valid, brackets.n_missing)
