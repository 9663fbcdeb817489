"""What is known of many lanes at once, and the brackets that it proves.

A part of the data tells, for every lane, its order statistics at even ranks. Those of all parts
bracket every order statistic of the lane: where the pivots of a part lie among those of the others
does not matter, only how many elements are certainly before and behind. A part that says no more
than "that of rank t lies between `low` and `high`" will do as well, so what is known of several
parts takes the same form, and can be cut down to few ranks again (a mergeable summary, Agarwal et
al. 2012, section 3).

All tables are on the host, or all on one device, whose arrays NumPy's functions know. They have
lanes along their first axis, questions along the second: the
questions part ways when each lane has a bracket for each of them. Numbers of elements are int64.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums, taken
from dask_gpuselect.maths.ranks import Ranks

RanksOfLanes = Callable[[IntArray], tuple[IntArray, IntArray]]
"""From numbers of valid elements, shape ``(k,)``, to the two ranks of each answer among so many,
shapes ``(n_questions, k)``."""


class LaneOrder(Protocol):
    """The order statistics that are asked of every lane. Hashable, picklable, and deterministically
    tokenizable."""

    def __hash__(self) -> int: ...

    @property
    def n_answers(self) -> int:
        """How many answers a lane has."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the answers."""

    @property
    def mixes(self) -> int:
        """How the two elements make an answer: 0 it is the lower, 1 their mean, 2 by weight."""

    @property
    def skips_missing(self) -> bool:
        """Whether NaN is left out; otherwise one of them makes the answers of its lane NaN."""

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        """The elements that answer, and their weights, of each number of valid elements; shape
        ``(n_answers, len(n))``, or the same for all."""

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        """The two ranks of each answer, of each number of valid elements: a `RanksOfLanes`."""

    def lane_answer(self, found: Lanes) -> NDArray[Any]:
        """The answers, ``(n_answers, n_lanes)``, with warnings of lanes that have none."""

    def lane_values(self, found: Lanes) -> NDArray[Any]:
        """The answers, ``(n_answers, n_lanes)``, without warnings."""

    def tell_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        """Warn of lanes that have no element, or no valid one."""


FindBrackets = Callable[
    [Sequence["LaneCuts"], IntArray, IntArray], tuple[NDArray[Any], NDArray[Any]]
]
"""From the cuts of some parts and the first and last ranks to the ends of brackets: `bracketed`."""

TILE = 1 << 17
"""Entries of tables that are ordered together: 5 MB with their order and sums."""


@dataclass(frozen=True, eq=False)
class LaneCuts(Arrays):
    """Order statistics at even ranks, of a part of the data or of several.

    Of the elements strictly inside the brackets of an earlier pass, or, in the first, of all.

    Parameters
    ----------
    low, high : ndarray, shape (n_lanes, n_questions, m)
        The order statistic of rank ``even_ranks(n_inside, m)[..., j]`` lies in ``[low[..., j],
        high[..., j]]``. One array for both if all are known. Of no meaning where nothing is inside.
    n_inside, n_before : ndarray, shape (n_lanes, n_questions)
        Elements inside; elements up to the lower end.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        All elements that are no NaN or NaT, and those that are.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    n_inside: IntArray
    n_before: IntArray
    n_valid: IntArray
    n_missing: IntArray


@dataclass(frozen=True)
class LaneSizes:
    """What the host knows of lanes whose tables are on a device, so that it need not wait for them.

    Parameters
    ----------
    least, most : int
        No lane has fewer, and none more, valid elements.
    room : int or None
        No bracket has more elements strictly inside, of all parts together, and a table of so many
        for every bracket is small enough. None if that is not so.
    """

    least: int
    most: int
    room: int | None


@dataclass(frozen=True, eq=False)
class LaneBrackets(Arrays):
    """Where the two order statistics of each question and lane are: both in ``[low, high]``.

    Parameters
    ----------
    low, high : ndarray, shape (n_lanes, n_questions)
        Elements of the lane; any value where it has no valid element.
    lower, upper : ndarray of int64, shape (n_lanes, n_questions)
        Their ranks.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        Of all the data.
    sizes : LaneSizes, optional
        Where tables are on a device.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    lower: IntArray
    upper: IntArray
    n_valid: IntArray
    n_missing: IntArray
    sizes: LaneSizes | None = None


@dataclass(frozen=True, eq=False)
class LaneTally(Arrays):
    """Counts of a part of the data at the ends of brackets, and its elements strictly inside.

    Parameters
    ----------
    below, n_before, n_inside, upto : ndarray, shape (n_lanes, n_questions)
        Elements below the lower end, up to it, inside, and up to the upper end.
    candidates : ndarray, shape (n_inside.sum(),) or (n_inside.size, room)
        Those inside: one bracket after the other, in the order of `n_inside`. On a device perhaps a
        row for each bracket, of which `n_inside` count.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        As in `LaneCuts`.
    """

    below: IntArray
    n_before: IntArray
    n_inside: IntArray
    upto: IntArray
    candidates: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray


@dataclass(frozen=True, eq=False)
class Lanes(Arrays):
    """What is found in every lane.

    Parameters
    ----------
    lower, upper : ndarray, shape (n_lanes, n_questions)
        The elements at the two ranks; any value where the lane has no valid element.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        As in `LaneCuts`.
    """

    lower: NDArray[Any]
    upper: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray

    @property
    def is_complete(self) -> bool:
        """Whether the lanes are known, without looking at them, to have elements and miss none: one
        number, broadcast, stands for all of them."""
        counts = self.n_valid, self.n_missing
        is_one = len(self.n_valid) > 0 and all(count.strides == (0,) for count in counts)
        return is_one and bool(self.n_valid[0] > 0 and self.n_missing[0] == 0)


Table = TypeVar("Table", bound=Any)


def join(pieces: Sequence[Table]) -> Table:
    """Put what is known of some lanes, and of the next, behind one another."""
    first: Any = pieces[0]
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(first, ExactSums):
        return cast(Table, ExactSums.joined(cast(list[ExactSums], pieces)))
    if not isinstance(first, Arrays):
        return cast(Table, np.concatenate(pieces) if hasattr(first, "nbytes") else first)
    columns = {each.name: [getattr(p, each.name) for p in pieces] for each in fields(first)}  # type: ignore[arg-type]
    # The ends of brackets may be one array: it stays one.
    joined = {tuple(map(id, column)): join(column) for column in columns.values()}
    named = {name: joined[tuple(map(id, column))] for name, column in columns.items()}
    return cast(Table, type(first)(**named))


def moved(table: Table, move: Callable[[Any], Any]) -> Table:
    """Move every array: to the host, for instance."""
    columns = _columns_of(table)
    own = {id(column): move(column) for column in columns.values()}  # one array stays one
    return replace(table, **{name: own[id(column)] for name, column in columns.items()})


def lanes_between(table: Table, start: int, stop: int) -> Table:
    """Take what is known of some of the lanes, where there is a row for each."""
    return some_lanes(table, slice(start, stop))


def some_lanes(table: Table, lanes: slice | IntArray) -> Table:
    """Take what is known of lanes by their numbers, where there is a row for each."""
    columns = _columns_of(table)
    return replace(table, **{name: column[lanes] for name, column in columns.items()})


def _columns_of(table: Any) -> dict[str, Any]:
    """Name what has a row for each lane."""
    columns = {each.name: getattr(table, each.name) for each in fields(table)}
    return {name: each for name, each in columns.items() if hasattr(each, "nbytes")}


def even_ranks(n: IntArray, m: int) -> IntArray:
    """The `m` ranks that are spread evenly over ``range(n)``, its first and last among them; some
    are repeated where there are fewer. A new last axis."""
    return np.arange(m, like=n) * np.maximum(n - 1, 0)[..., None] // max(m - 1, 1)


def last_of(dtype: np.dtype[Any]) -> Any:
    """What is sorted behind all elements, or is no smaller than any: it stands for those that are
    left out."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return np.array("NaT" if dtype.kind in "Mm" else np.nan, dtype)


def ranks_of_each(n_valid: IntArray, ranks: RanksOfLanes) -> tuple[IntArray, IntArray]:
    """The ranks for every lane, shape ``(n_lanes, n_questions)``: of few numbers of elements."""
    counts, place = distinct(n_valid)
    lower, upper = (np.asarray(rank.T, like=place) for rank in ranks(np.maximum(counts, 1)))
    return lower.take(place, axis=0), upper.take(place, axis=0)  # half the time of an index


MOST_COUNTS = 1 << 12


def distinct(n_valid: IntArray) -> tuple[IntArray, IntArray]:
    """Numbers among which are all those of a table, ascending, on the host, and the place of each:
    `numpy.unique` where they differ much, which sorts. Of lanes that have equally many, one."""
    if n_valid.size == 0:
        return np.empty(0, np.int64), n_valid
    if isinstance(n_valid, np.ndarray) and n_valid.strides == (0,):  # one number, broadcast
        return n_valid[:1], np.broadcast_to(np.int64(0), n_valid.shape)
    least, most = int(n_valid.min()), int(n_valid.max())
    if most - least < MOST_COUNTS:
        return np.arange(least, most + 1), n_valid - least
    counts, place = np.unique(n_valid, return_inverse=True)
    if not isinstance(counts, np.ndarray):  # they are on a device
        counts = np.array(counts.tolist(), np.int64)
    return counts, place


# --- Parts together -------------------------------------------------------------------------------


def merge(parts: Sequence[LaneCuts], m: int, find: FindBrackets | None = None) -> LaneCuts:
    """What is known of several parts together, at `m` ranks.

    If each part of ``n_p`` elements has ``m_p`` ranks, then at most ``sum((n_p - 1) / (m_p - 1))``
    elements more than before are strictly inside a bracket at either side of its rank.
    """
    n_inside = total("n_inside", parts)
    ranks = even_ranks(n_inside, m)
    find = find or bracketed
    return LaneCuts(
        *find(parts, ranks, ranks), n_inside, total("n_before", parts), *known_of_all(parts)
    )


def find_lane_brackets(
    parts: Sequence[LaneCuts], ranks: RanksOfLanes, find: FindBrackets | None = None
) -> LaneBrackets:
    """The brackets of some ranks after the first pass."""
    n_valid, n_missing = known_of_all(parts)
    lower, upper = ranks_of_each(n_valid, ranks)
    low, high = (find or bracketed)(parts, lower[:, None], upper[:, None])
    return LaneBrackets(low[:, 0], high[:, 0], lower, upper, n_valid, n_missing)


def narrow(
    parts: Sequence[LaneCuts], brackets: LaneBrackets, find: FindBrackets | None = None
) -> LaneBrackets:
    """The brackets after one pass more, over what is inside the brackets before."""
    n_valid, n_missing = check_lanes_unchanged(parts, brackets)
    n_before, n_inside = total("n_before", parts), total("n_inside", parts)
    places = brackets.lower - n_before, brackets.upper - n_before
    last = np.maximum(n_inside - 1, 0)
    lower, upper = (np.clip(place, 0, last)[..., None] for place in places)
    low, high = (
        _or_end(place, n_inside, found[..., 0], brackets)
        for place, found in zip(places, (find or bracketed)(parts, lower, upper), strict=True)
    )
    known = brackets.lower, brackets.upper, n_valid, n_missing, brackets.sizes
    return LaneBrackets(low, high, *known)


def merge_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """The tally of several parts together."""
    if len(parts) == 1:
        return parts[0]
    sizes = [part.n_inside.reshape(-1) for part in parts]
    bracket = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
    candidates = np.concatenate([part.candidates for part in parts])
    return LaneTally(
        total("below", parts),
        total("n_before", parts),
        total("n_inside", parts),
        total("upto", parts),
        candidates[np.argsort(bracket, kind="stable")],
        *known_of_all(parts),
    )


def order_statistics(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """The elements of the wanted ranks, by the tally of all parts, which proves them.

    Raises
    ------
    ChunksChangedError
        If a bracket does not hold its ranks.
    """
    n_valid, n_missing = check_lanes_unchanged([tally], brackets)
    holds = (tally.below <= brackets.lower) & (brackets.upper < tally.upto)
    if not holds[n_valid > 0].all():
        raise ChunksChangedError(f"a 1-D slice has other elements than in the first read. {ADVICE}")
    places = brackets.lower - tally.n_before, brackets.upper - tally.n_before
    last = np.maximum(tally.n_inside - 1, 0)
    found = _select(tally, np.stack([np.clip(place, 0, last) for place in places], axis=-1))
    lower, upper = (
        _or_end(place, tally.n_inside, found[..., i], brackets) for i, place in enumerate(places)
    )
    return Lanes(lower, upper, n_valid, n_missing)


def total(name: str, parts: Sequence[Any]) -> IntArray:
    """The sum of one table over all parts."""
    return functools.reduce(operator.add, [getattr(part, name) for part in parts])


def known_of_all(parts: Sequence[Any]) -> tuple[IntArray, IntArray]:
    """Count the valid and the missing elements of all parts together."""
    return total("n_valid", parts), total("n_missing", parts)


def check_lanes_unchanged(parts: Sequence[Any], known: Any) -> tuple[IntArray, IntArray]:
    """The numbers of all elements of each lane, if they are those that are known of the first
    load."""
    found = known_of_all(parts)
    for kind, first, now in zip(
        ("valid", "missing (NaN or NaT)"),
        (known.n_valid, known.n_missing),
        found,
        strict=True,
    ):
        if not np.array_equal(first, now):
            lane = np.flatnonzero(first != now)[0]
            raise ChunksChangedError(
                f"a 1-D slice had {first[lane]} {kind} elements in the first read and {now[lane]} "
                f"in a later one. {ADVICE}"
            )
    return found


def _or_end(
    place: IntArray, n_inside: IntArray, inside: NDArray[Any], brackets: LaneBrackets
) -> NDArray[Any]:
    """What is found inside, or an end of the bracket if the rank is before or behind."""
    found: NDArray[Any] = np.where(place < n_inside, inside, brackets.high)
    return np.where(place < 0, brackets.low, found)


def _select(tally: LaneTally, wanted: IntArray) -> NDArray[Any]:
    """The candidates of some ranks of each bracket, shape ``(n_lanes, n_questions, k)``."""
    sizes, at = tally.n_inside.reshape(-1), as_rows(wanted)
    stops = np.cumsum(sizes)
    found = np.zeros(at.shape, tally.candidates.dtype)
    for rows in table_tiles(len(sizes), int(sizes.max(initial=1))):
        size, stop = sizes[rows], stops[rows]
        if not size.any():
            continue
        table = np.full((len(size), size.max()), last_of(found.dtype))
        table[np.arange(table.shape[1]) < size[:, None]] = tally.candidates[
            stop[0] - size[0] : stop[-1]
        ]
        table.sort(axis=1)
        found[rows] = np.take_along_axis(table, at[rows], axis=1)
    return found.reshape(wanted.shape)


# --- What pivots prove ----------------------------------------------------------------------------


def bracketed(
    parts: Sequence[LaneCuts], lower: IntArray, upper: IntArray
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The largest pivots known not to be behind the order statistics of ranks `lower`, and the
    smallest known not to be before those of ranks `upper`; shape ``(n_lanes, n_questions, k)``."""
    k = lower.shape[-1]
    lows, highs = ([as_rows(getattr(part, end)) for part in parts] for end in ("low", "high"))
    n = [part.n_inside.reshape(-1) for part in parts]
    lower, upper = as_rows(lower), as_rows(upper)
    found = np.empty((2, len(lower), k), lows[0].dtype)
    widths = [table.shape[1] for table in lows]
    for rows in table_tiles(len(lower), sum(widths)):
        ranks = [even_ranks(size[rows], m) for size, m in zip(n, widths, strict=True)]
        for end, tables, wanted in ((0, lows, lower), (1, highs, upper)):
            pivots = np.concatenate([table[rows] for table in tables], axis=1)
            find = _last_not_behind if end == 0 else _first_not_before
            found[end, rows] = find(pivots, ranks, [size[rows] for size in n], wanted[rows])
    shape = (*parts[0].n_inside.shape, k)
    return found[0].reshape(shape), found[1].reshape(shape)


def _last_not_behind(
    pivots: NDArray[Any], ranks: list[IntArray], n: list[IntArray], wanted: IntArray
) -> NDArray[Any]:
    """In each row, the largest pivot that at most `wanted` elements can be below.

    Of the elements of a part, at most t are below the pivot of rank t, and so below any value up to
    it; behind the last pivot, all.
    """
    steps = [
        np.diff(rank, append=size[:, None], axis=1) for rank, size in zip(ranks, n, strict=True)
    ]
    order = np.argsort(pivots, axis=1, kind="stable")
    sorted_steps = np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1)
    below = np.cumsum(sorted_steps, axis=1) - sorted_steps
    return taken(pivots, taken(order, _search(below, wanted, "right") - 1))


def _first_not_before(
    pivots: NDArray[Any], ranks: list[IntArray], n: list[IntArray], wanted: IntArray
) -> NDArray[Any]:
    """In each row, the smallest pivot that at least ``wanted + 1`` elements must be up to."""
    steps = [
        np.diff(np.minimum(rank + 1, size[:, None]), prepend=0, axis=1)
        for rank, size in zip(ranks, n, strict=True)
    ]
    order = np.argsort(pivots, axis=1, kind="stable")
    upto = np.cumsum(np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1), axis=1)
    at = np.minimum(_search(upto, wanted + 1, "left"), pivots.shape[1] - 1)
    return taken(pivots, taken(order, at))


def _search(table: IntArray, wanted: IntArray, side: Literal["left", "right"]) -> IntArray:
    """`searchsorted` in every row of a table of numbers from 0."""
    apart = max(table.max(initial=0), wanted.max(initial=0)) + 1
    base = np.arange(len(table))[:, None]
    every = (table + base * apart).reshape(-1)
    found: IntArray = np.searchsorted(every, wanted + base * apart, side) - base * table.shape[1]
    return found


def as_rows(table: NDArray[Any]) -> NDArray[Any]:
    """One row for each lane and question."""
    return table.reshape(math.prod(table.shape[:-1]), table.shape[-1])


def table_tiles(n_rows: int, width: int) -> Iterator[slice]:
    """Rows of a table of that width which are ordered together."""
    step = max(1, TILE // width)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
