"""Cuts of many lanes at once, and the brackets that they prove.

The cuts of a part of the data are order statistics of every lane at even ranks. The cuts of all
parts bracket every order statistic of the lane. Only the number of elements that are surely before
and behind a pivot matters, not where the pivots of a part lie among those of others. It is enough
to know that the order statistic of rank t lies between `low` and `high`. So several parts together
take the same form, and can be reduced to few ranks again (a mergeable summary, Agarwal et al. 2012,
section 3).

All tables are on the host, or all on one device whose arrays NumPy's functions accept. They have
lanes along their first axis and questions along the second: in later passes each question has its
own bracket in each lane. Numbers of elements are int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums, joined_weights, search, sum_of, taken
from dask_gpuselect.maths.ranks import Ranks

if TYPE_CHECKING:
    from dask_gpuselect.maths.lane_weights import WantedQuantiles

RanksOfLanes = Callable[[IntArray], tuple[IntArray, IntArray]]
"""Function from numbers of valid elements to the two ranks of each answer.

The numbers have shape ``(k,)``, the ranks shape ``(n_questions, k)``.
"""


class ElementOrder(Protocol):
    """Protocol of answers that are made of one or two order statistics each.

    Hashable, picklable, and deterministically tokenizable.
    """

    def __hash__(self) -> int: ...

    @property
    def n_answers(self) -> int:
        """Number of answers of a lane."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the answers."""

    @property
    def mixes(self) -> int:
        """Code of how two elements make an answer: 0 the lower, 1 the mean, 2 by weight."""

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        """Find the ranks and weights of the answers for each number of valid elements.

        The shape is ``(n_answers, len(n))``, or broadcasts to it.
        """


class LaneOrder(ElementOrder, Protocol):
    """Protocol of the order statistics that are asked of every lane."""

    @property
    def skips_missing(self) -> bool:
        """True if NaN is left out; otherwise one NaN makes all answers of its lane NaN."""

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        """Find the two ranks of each answer for each number of elements: a `RanksOfLanes`."""

    def lane_answer(self, order: Lanes) -> NDArray[Any]:
        """Compute the answers, ``(n_answers, n_lanes)``, and warn of lanes that have none."""

    def lane_values(self, order: Lanes) -> NDArray[Any]:
        """Compute the answers, ``(n_answers, n_lanes)``, without warnings."""

    def warn_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        """Warn of lanes that have no element, or no valid one."""


FindBrackets = Callable[
    [Sequence["LaneCuts"], IntArray, IntArray], tuple[NDArray[Any], NDArray[Any]]
]
"""Function that finds brackets, with the arguments and results of `bracketed`."""

TILE = 1 << 17
"""Entries of tables that are sorted together: 5 MB with their order and sums."""


def _sent(table: Any) -> tuple[Any, ...]:
    """Pickle a table with int64 in as few bytes as hold them: mostly two."""
    columns = {each.name: getattr(table, each.name) for each in fields(table)}
    # Of a column that has two names there is one copy, before and after.
    narrowed = {id(column): _narrowed(column) for column in columns.values()}
    return _received, (type(table), {name: narrowed[id(columns[name])] for name in columns})


def _narrowed(column: Any) -> tuple[Any, bool]:
    """Return int64 that are not negative in a smaller dtype, and whether that has been done."""
    if getattr(column, "dtype", None) != np.int64 or not column.size:
        return column, False
    most = int(column.view(np.uint64).max())  # with a negative one, it is more than any other
    return (column.astype(np.min_scalar_type(most)), True) if most < 1 << 32 else (column, False)


def _received(kind: type[Any], columns: dict[str, tuple[Any, bool]]) -> Any:
    """Make a table again of the columns that `_sent` has narrowed."""
    each = {id(pair): pair[0].astype(np.int64) if pair[1] else pair[0] for pair in columns.values()}
    return kind(**{name: each[id(pair)] for name, pair in columns.items()})


@dataclass(frozen=True, eq=False)
class LaneCuts(Arrays):
    """Order statistics of lanes at even ranks, of one part of the data or several together.

    In the first pass they are those of all elements, later of the elements strictly inside the
    brackets of the pass before.

    Parameters
    ----------
    low, high : ndarray, shape (n_lanes, n_questions, m)
        The order statistic of rank ``even_ranks(n_inside, m)[..., j]`` lies in ``[low[..., j],
        high[..., j]]``. One array for both if all are known exactly. Arbitrary where nothing is
        inside.
    n_inside, n_before : ndarray, shape (n_lanes, n_questions)
        Number of elements inside, and up to the lower end.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        Number of all valid elements, and of NaN or NaT.
    below, upto : ndarray of float64, shape (n_lanes, n_questions, m), optional
        Given if elements have weights, as all that follows. Upper bound of the weight of the
        elements below each pivot, and lower bound of that of the elements up to it. `low` and
        `high` are then these pivots, ascending, at even steps by count and by weight; behind them
        where nothing is inside is `last_of`. Weights are floats, times `sorted_lanes.SCALE`;
        `lane_weights.narrowed` allows for their errors.
    before, until : ndarray of float64, shape (n_lanes, n_questions), optional
        Weight up to the lower end of each bracket, and below the upper end.
    weight, norm : ndarray of float64, shape (n_lanes,), optional
        Sum of all weights, and the root of the sum of their squares.
    """

    __reduce__ = _sent

    low: NDArray[Any]
    high: NDArray[Any]
    n_inside: IntArray
    n_before: IntArray
    n_valid: IntArray
    n_missing: IntArray
    below: Any = None
    upto: Any = None
    before: Any = None
    until: Any = None
    weight: Any = None
    norm: Any = None


LaneSizes = tuple[int, int, int | None]
"""Bounds of sizes that the host knows of tables on a device, to avoid waiting for them.

They are the smallest and the largest possible number of valid elements of a lane, and a bound of
the number of elements strictly inside a bracket, in all parts together, if a table of so many for
every bracket is small enough; otherwise None.
"""


@dataclass(frozen=True, eq=False)
class LaneBrackets(Arrays):
    """Brackets ``[low, high]`` that hold the two order statistics of each question and lane.

    Parameters
    ----------
    low, high : ndarray, shape (n_lanes, n_questions)
        Elements of the lane; arbitrary where it has no valid element.
    lower, upper : ndarray of int64, shape (n_lanes, n_questions), or None
        Ranks of the two order statistics; None with weights.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        Number of valid elements in all the data, and of NaN or NaT.
    sizes : LaneSizes, optional
        Given where tables are on a device.
    wanted : WantedQuantiles, optional
        Given with weights. For the estimator of type 7, there are first the brackets of the lower
        ends of all windows, then those of the upper ends.
    """

    __reduce__ = _sent

    low: NDArray[Any]
    high: NDArray[Any]
    lower: Any
    upper: Any
    n_valid: IntArray
    n_missing: IntArray
    sizes: LaneSizes | None = None
    wanted: WantedQuantiles | None = None

    @property
    def ends(self) -> tuple[NDArray[Any], ...]:
        """The two ends of each question's range and, if there are windows, of the gap in it.

        The elements in a gap are summed and are no candidates. Only windows of the estimator of
        type 7 have one.
        """
        n = self.low.shape[1] if self.wanted is None else len(self.wanted.q)
        gap = (self.high[:, :n], self.low[:, -n:]) if n < self.low.shape[1] else ()
        return self.low[:, :n], self.high[:, -n:], *gap


@dataclass(frozen=True, eq=False)
class LaneTally(Arrays):
    """Counts of a part of the data at the ends of lane brackets, and its elements strictly inside.

    Parameters
    ----------
    below, before, upto : ndarray of int64 or ExactSums, shape (n_lanes, n_questions)
        Number of elements, or their weight, below the lower end, up to it, and up to the upper end.
    n_inside : ndarray, shape (n_lanes, n_questions)
        Number of elements strictly inside; with windows, those that are not summed.
    candidates : ndarray, shape (n_inside.sum(),) or (n_inside.size, room)
        Elements strictly inside, one bracket after the other, in the order of `n_inside`. On a
        device there may instead be a row for each bracket, whose first `n_inside` entries count.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        As in `LaneCuts`.
    n_idle : ndarray of int64, shape (n_lanes,), optional
        As in `SortedLanes`. Given with weights, as all that follows.
    weights : ndarray, shape (n_inside.sum(),), optional
        Weights of the candidates.
    middle, product : ExactSums, shape (n_lanes, n_questions), optional
        Sums of the weights of the elements between the two ends of a window that are no candidates,
        and of weight times element.
    weight, square : ExactSums, shape (n_lanes,), optional
        Sum of the weights of all elements, and of their squares. The latter is computed only for
        the estimator of type 7.
    """

    __reduce__ = _sent

    below: Any
    before: Any
    n_inside: IntArray
    upto: Any
    candidates: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray
    n_idle: Any = None
    weights: Any = None
    middle: Any = None
    product: Any = None
    weight: Any = None
    square: Any = None


@dataclass(frozen=True, eq=False)
class Lanes(Arrays):
    """Pair of order statistics that answers each question in every lane.

    Parameters
    ----------
    lower, upper : ndarray, shape (n_lanes, n_questions)
        Elements at the two ranks; arbitrary where the lane has no valid element.
    n_valid, n_missing : ndarray, shape (n_lanes,)
        As in `LaneCuts`.
    """

    lower: NDArray[Any]
    upper: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray

    @property
    def is_complete(self) -> bool:
        """True if all lanes are known, without a pass over them, to have elements and miss none.

        That is so where one number, broadcast, stands for all lanes.
        """
        counts = self.n_valid, self.n_missing
        is_one = len(self.n_valid) > 0 and all(count.strides == (0,) for count in counts)
        return is_one and bool(self.n_valid[0] > 0 and self.n_missing[0] == 0)


def values_if_missing(question: LaneOrder, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the answers, ``(n_answers, 1)``, of a lane whose elements are all NaN or NaT."""
    nothing = np.zeros((1, question.n_answers), dtype)
    counts = np.zeros(1, np.int64), np.ones(1, np.int64)
    return question.lane_values(Lanes(nothing, nothing, *counts))


Table = TypeVar("Table", bound=Any)


def join(pieces: Sequence[Table]) -> Table:
    """Concatenate tables of consecutive batches of lanes; None if one of them is None."""
    if any(piece is None for piece in pieces):
        return cast(Table, None)
    first: Any = pieces[0]
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(first, ExactSums):
        return cast(Table, ExactSums.joined(cast(list[ExactSums], pieces)))
    if not isinstance(first, Arrays):
        return cast(Table, np.concatenate(pieces) if hasattr(first, "nbytes") else first)
    columns = {each.name: [getattr(p, each.name) for p in pieces] for each in fields(first)}  # type: ignore[arg-type]
    # The two ends of brackets may be the same array, which must not be copied twice.
    joined = {tuple(map(id, column)): join(column) for column in columns.values()}
    named = {name: joined[tuple(map(id, column))] for name, column in columns.items()}
    return cast(Table, type(first)(**named))


def moved(table: Table, move: Callable[[Any], Any]) -> Table:
    """Apply `move` to every array of a table, for example to move it to the host."""
    columns = _columns_of(table)
    own = {id(column): move(column) for column in columns.values()}  # shared arrays stay shared
    return replace(table, **{name: own[id(column)] for name, column in columns.items()})


def lanes_between(table: Table, start: int, stop: int) -> Table:
    """Take a range of the lanes from every array that has a row for each lane."""
    return some_lanes(table, slice(start, stop))


def some_lanes(table: Table, lanes: slice | IntArray) -> Table:
    """Take lanes by their numbers from an array, or all arrays of a table, with rows for lanes."""
    if hasattr(table, "nbytes"):
        return cast(Table, table[lanes])
    columns = _columns_of(table)
    return replace(table, **{name: column[lanes] for name, column in columns.items()})


def _columns_of(table: Any) -> dict[str, Any]:
    """Find the arrays of a table, by their names; each has a row for each lane."""
    columns = {each.name: getattr(table, each.name) for each in fields(table)}
    return {name: each for name, each in columns.items() if hasattr(each, "nbytes")}


def even_ranks(n: IntArray, m: int) -> IntArray:
    """Spread `m` ranks evenly over ``range(n)``, with its first and last among them.

    The ranks are a new last axis. Some are repeated where n is less than m.
    """
    return np.arange(m, like=n) * np.maximum(n - 1, 0)[..., None] // max(m - 1, 1)


def last_of(dtype: np.dtype[Any]) -> Any:
    """Return a value that sorts behind all elements, or that none exceeds, to fill tables with."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return np.array("NaT" if dtype.kind in "Mm" else np.nan, dtype)


def ranks_of_each(n_valid: IntArray, ranks: RanksOfLanes) -> tuple[IntArray, IntArray]:
    """Find the ranks for every lane, computed once for each distinct number of elements.

    The shape is ``(n_lanes, n_questions)``.
    """
    counts, place = distinct(n_valid)
    lower, upper = (np.asarray(rank.T, like=place) for rank in ranks(np.maximum(counts, 1)))
    return lower.take(place, axis=0), upper.take(place, axis=0)  # half the time of indexing


MOST_COUNTS, FEW_COUNTS = 1 << 12, 1 << 6


def distinct(n_valid: IntArray) -> tuple[IntArray, IntArray]:
    """Find ascending numbers on the host that include all of a table, and the place of each.

    Where the numbers are close together, a range of integers does; `numpy.unique`, which sorts, is
    for numbers that differ much, and for few numbers: the ranks of 99 quantiles of 4,000 numbers
    take 4 ms, and those of 18 0.1. Lanes that broadcast a single number need only that one.
    """
    if n_valid.size == 0:
        return np.empty(0, np.int64), n_valid
    if isinstance(n_valid, np.ndarray) and n_valid.strides == (0,):  # one number, broadcast
        return n_valid[:1], np.broadcast_to(np.int64(0), n_valid.shape)
    least, most = int(n_valid.min()), int(n_valid.max())
    is_small = isinstance(n_valid, np.ndarray) and most - least > FEW_COUNTS + n_valid.size
    if most - least < MOST_COUNTS and not is_small:
        return np.arange(least, most + 1), n_valid - least
    counts, place = np.unique(n_valid, return_inverse=True)
    if not isinstance(counts, np.ndarray):  # they are on a device
        counts = np.array(counts.tolist(), np.int64)
    return counts, place


# --- Several parts together -----------------------------------------------------------------------


def merge(parts: Sequence[LaneCuts], m: int, find: FindBrackets | None = None) -> LaneCuts:
    """Merge the cuts of several parts, at `m` ranks.

    If part p has ``n_p`` elements and ``m_p`` ranks, the merged cuts put at most ``sum((n_p - 1) /
    (m_p - 1))`` more elements strictly inside a bracket on either side of its rank.
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
    """Find the brackets of some ranks after the first pass."""
    n_valid, n_missing = known_of_all(parts)
    lower, upper = ranks_of_each(n_valid, ranks)
    low, high = (find or bracketed)(parts, lower[:, None], upper[:, None])
    return LaneBrackets(low[:, 0], high[:, 0], lower, upper, n_valid, n_missing)


def narrow(
    parts: Sequence[LaneCuts], brackets: LaneBrackets, find: FindBrackets | None = None
) -> LaneBrackets:
    """Find the brackets after one more pass over the elements inside the previous ones."""
    n_valid, n_missing = check_lanes_unchanged(parts, brackets)
    n_before, n_inside = total("n_before", parts), total("n_inside", parts)
    places = brackets.lower - n_before, brackets.upper - n_before
    last = np.maximum(n_inside - 1, 0)
    lower, upper = (np.clip(place, 0, last)[..., None] for place in places)
    low, high = (
        _or_end(place, n_inside, pivots[..., 0], brackets)
        for place, pivots in zip(places, (find or bracketed)(parts, lower, upper), strict=True)
    )
    known = brackets.lower, brackets.upper, n_valid, n_missing, brackets.sizes
    return LaneBrackets(low, high, *known)


def merge_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """Merge the tallies of several parts."""
    if len(parts) == 1:
        return parts[0]
    sizes = [part.n_inside.reshape(-1) for part in parts]
    bracket = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
    order = np.argsort(bracket, kind="stable")
    columns: dict[str, Any] = {"candidates": np.concatenate([each.candidates for each in parts])}
    if parts[0].weights is not None:
        columns["weights"] = joined_weights([each.weights for each in parts])
    columns = {name: column[order] for name, column in columns.items()}
    for name in (each.name for each in fields(LaneTally) if each.name not in columns):
        if getattr(parts[0], name) is not None:
            columns[name] = total(name, parts)
    return LaneTally(**columns)


def order_statistics(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """Find the elements of the wanted ranks, as the tally of all parts proves them.

    Raises
    ------
    ChunksChangedError
        If a bracket does not hold its ranks.
    """
    n_valid, n_missing = check_lanes_unchanged([tally], brackets)
    holds = (tally.below <= brackets.lower) & (brackets.upper < tally.upto)
    if not holds[n_valid > 0].all():
        raise ChunksChangedError(f"a 1-D slice has other elements than in the first read. {ADVICE}")
    places = brackets.lower - tally.before, brackets.upper - tally.before
    last = np.maximum(tally.n_inside - 1, 0)
    selected = _select(tally, np.stack([np.clip(place, 0, last) for place in places], axis=-1))
    lower, upper = (
        _or_end(place, tally.n_inside, selected[..., i], brackets) for i, place in enumerate(places)
    )
    return Lanes(lower, upper, n_valid, n_missing)


def total(name: str, parts: Sequence[Any]) -> Any:
    """Add up one table over all parts."""
    return sum_of([getattr(part, name) for part in parts])


def known_of_all(parts: Sequence[Any]) -> tuple[IntArray, IntArray]:
    """Count the valid and the missing elements of all parts together."""
    return total("n_valid", parts), total("n_missing", parts)


def check_lanes_unchanged(parts: Sequence[Any], known: Any) -> tuple[IntArray, IntArray]:
    """Check that every lane has as many elements as in the first load, and return their numbers."""
    counts = known_of_all(parts)
    for kind, first, now in zip(
        ("valid", "missing (NaN or NaT)"),
        (known.n_valid, known.n_missing),
        counts,
        strict=True,
    ):
        if not np.array_equal(first, now):
            lane = np.flatnonzero(first != now)[0]
            raise ChunksChangedError(
                f"a 1-D slice had {first[lane]} {kind} elements in the first read and {now[lane]} "
                f"in a later one. {ADVICE}"
            )
    return counts


def _or_end(
    place: IntArray, n_inside: IntArray, inside: NDArray[Any], brackets: LaneBrackets
) -> NDArray[Any]:
    """Return the elements inside, or an end of the bracket if the rank is before or behind."""
    elements: NDArray[Any] = np.where(place < n_inside, inside, brackets.high)
    return np.where(place < 0, brackets.low, elements)


def _select(tally: LaneTally, wanted: IntArray) -> NDArray[Any]:
    """Select the candidates of some ranks of each bracket, shape ``(n_lanes, n_questions, k)``."""
    sizes, at = tally.n_inside.reshape(-1), as_rows(wanted)
    stops = np.cumsum(sizes)
    selected = np.zeros(at.shape, tally.candidates.dtype)
    for rows in table_tiles(len(sizes), int(sizes.max(initial=1))):
        size, stop = sizes[rows], stops[rows]
        if not size.any():
            continue
        table = np.full((len(size), size.max()), last_of(selected.dtype))
        table[np.arange(table.shape[1]) < size[:, None]] = tally.candidates[
            stop[0] - size[0] : stop[-1]
        ]
        table.sort(axis=1)
        selected[rows] = np.take_along_axis(table, at[rows], axis=1)
    return selected.reshape(wanted.shape)


# --- Brackets from pivots -------------------------------------------------------------------------


def bracketed(
    parts: Sequence[LaneCuts], lower: IntArray, upper: IntArray
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Find the pivots that bracket order statistics, shape ``(n_lanes, n_questions, k)``.

    These are the largest pivots surely not behind the order statistics of ranks `lower`, and the
    smallest ones surely not before those of ranks `upper`.
    """
    shape, dtype = (*parts[0].n_inside.shape, lower.shape[-1]), parts[0].low.dtype
    lower, upper = as_rows(lower), as_rows(upper)
    bounds = np.empty((2, *lower.shape), dtype)
    are_known = all(part.low is part.high for part in parts)  # one table for both ends
    for rows in table_tiles(len(lower), sum(part.low.shape[-1] for part in parts)):
        _, pivots, below, upto = united(parts, rows)
        last = np.array(pivots.shape[1])
        bounds[0, rows] = taken(pivots, search(below, lower[rows], last, upto=True) - 1)
        if not are_known:
            _, pivots, _, upto = united(parts, rows, "high")
        bounds[1, rows] = taken(pivots, search(upto, upper[rows], last, upto=True))
    return bounds[0].reshape(shape), bounds[1].reshape(shape)


def united(parts: Sequence[LaneCuts], rows: slice, end: str = "low") -> tuple[Any, ...]:
    """Sort the pivots of some brackets of all parts, and bound the measure of all parts there.

    Returns the order of the pivots, the pivots, and the bounds below and up to each. `end` is the
    column of the pivots.
    """
    pivots = np.concatenate([as_rows(getattr(part, end))[rows] for part in parts], axis=1)
    order = np.argsort(pivots, axis=1, kind="stable")
    starts, stops, below, upto = zip(*(_bounds_of(part, rows) for part in parts), strict=True)
    bounds = most_below(order, below, stops), least_upto(order, upto, starts)
    return order, np.take_along_axis(pivots, order, axis=1), *bounds


def _bounds_of(part: LaneCuts, rows: slice) -> tuple[NDArray[Any], ...]:
    """Bound the measure of a part up to the ends of some brackets, and below and up to pivots."""
    size = part.n_inside.reshape(-1)[rows]
    if part.below is None:  # at most t elements are below the pivot of rank t
        ranks = even_ranks(size, part.low.shape[-1])
        return np.zeros_like(size), size, ranks, np.minimum(ranks + 1, size[:, None])
    ends = (each.reshape(-1)[rows] for each in (part.before, part.until))
    return *ends, *(as_rows(each)[rows] for each in (part.below, part.upto))


def most_below(order: IntArray, below: Sequence[IntArray], ends: Sequence[IntArray]) -> IntArray:
    """Bound from above the measure of all parts below their pivots, by the bounds of each part.

    A bound at the next pivot of a part, or at its end, holds before that pivot, too. Tables have
    rows of pivots; `order` sorts the pivots of all parts.
    """
    steps = [
        np.diff(each, append=end[:, None], axis=1) for each, end in zip(below, ends, strict=True)
    ]
    ordered = np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1)
    start = np.sum([each[:, :1] for each in below], axis=0)
    return np.asarray(start + np.cumsum(ordered, axis=1) - ordered)


def least_upto(order: IntArray, upto: Sequence[IntArray], starts: Sequence[IntArray]) -> IntArray:
    """Bound from below the measure of all parts up to their pivots, as `most_below` does.

    A bound at the last pivot of a part, or at its start, holds behind that pivot, too.
    """
    both = zip(upto, starts, strict=True)
    steps = [np.diff(each, prepend=start[:, None], axis=1) for each, start in both]
    ordered = np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1)
    return np.asarray(np.sum(starts, axis=0)[:, None] + np.cumsum(ordered, axis=1))


def as_rows(table: NDArray[Any]) -> NDArray[Any]:
    """Reshape a table to one row for each lane and question."""
    return table.reshape(math.prod(table.shape[:-1]), table.shape[-1])


def table_tiles(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows that are sorted together, for a table of some width."""
    step = max(1, TILE // width)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
