"""The reference kernels: any array of the array API standard, no compiled code.

Every fast kernel is pinned to these by one shared test. They sort the chunk, so they are slower
than the kernels written for a kind of chunk, and need scratch of two chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    as_float64,
    as_type,
    concatenate,
    is_kind,
    like,
    namespace,
    to_host,
)
from dask_gpuselect.kernels.reference import bitonic, measures
from dask_gpuselect.maths.cuts import (
    Brackets,
    Cuts,
    FloatArray,
    IntArray,
    RanksOf,
    Tally,
    extremes_of,
    guess_brackets,
)
from dask_gpuselect.maths.lane_boxes import Fences, Fliers, LaneEnds
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, join, pick
from dask_gpuselect.maths.moments import LaneMoments, Moments, sums_of_rows
from dask_gpuselect.maths.sizes import pilot_room
from dask_gpuselect.strategies.probes import Measure, Report

Array = Any  # an array-API array


def cuts(values: Array, n_pivots: int) -> Cuts:
    """The cuts of a chunk at pivots spread evenly over its own order statistics, extremes among
    them.

    Parameters
    ----------
    values : array, shape (n,)
        Of a real floating or integer dtype.
    n_pivots : int
        How many pivots to choose, at least 1. Equal ones are merged.

    Returns
    -------
    Cuts
        Of this one chunk, on the host.
    """
    ordered, n_missing = _sort_valid(values)
    n_valid = ordered.shape[0]
    positions = like(even_positions(n_valid, n_pivots), ordered)
    pivots = np.unique(to_host(namespace(ordered).take(ordered, positions)))
    return Cuts.of_chunk(pivots, *_measure(ordered, pivots), n_valid, n_missing)


def measure(values: Array, pivots: NDArray[Any]) -> tuple[IntArray, IntArray, FloatArray]:
    """Counts below and up to each of the ascending `pivots`, and the distances of its cell: see
    `Cuts`."""
    return _measure(_sort_valid(values)[0], pivots)


def tally(values: Array, brackets: Brackets, most: int) -> Tally | None:
    """Count a chunk at the ends of `brackets` and gather its candidates.

    Parameters
    ----------
    values : array, shape (n,)
        As for `cuts`.
    brackets : Brackets
        On the host.
    most : int
        How many candidates there can be.

    Returns
    -------
    Tally or None
        On the host; None if there are more candidates than `most`.
    """
    ordered, n_missing = _sort_valid(values)
    n_valid = ordered.shape[0]
    below, upto = _counts(ordered, brackets.ends)
    starts = np.append(np.int64(0), upto)[brackets.wanted]
    stops = np.append(below, np.int64(n_valid))[brackets.wanted]
    if int((stops - starts).sum()) > most:
        return None
    pieces = [to_host(ordered[int(a) : int(b)]) for a, b in zip(starts, stops, strict=True)]
    candidates = np.concatenate([brackets.ends[:0], *pieces])
    return Tally(below, upto, candidates, n_valid, n_missing)


def sample(values: Array, size: int) -> NDArray[Any]:
    """Valid elements at `size` random places, one in each of as many equal stretches.

    Returns
    -------
    ndarray
        On the host. Fewer than `size` if some are NaN. The same in every call.
    """
    starts = np.arange(size + 1) * values.shape[0] // max(size, 1)
    places = np.random.default_rng(0).integers(starts[:-1], starts[1:])
    drawn: NDArray[Any] = to_host(namespace(values).take(values, like(places, values)))
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


def sorted_sample(values: Array, size: int) -> tuple[Array, float]:
    """Valid elements at `size` random places or more, ascending, on the array's device; and which
    share of all places these are."""
    return np.sort(sample(values, size)), size / max(values.shape[0], 1)


def moments(values: Array, near: NDArray[Any]) -> Moments:
    """Exact sums of a chunk and of its squares.

    Parameters
    ----------
    values : array, any shape
    near : ndarray
        Some values of the kind that it holds.

    Returns
    -------
    Moments
    """
    del near
    host = np.asarray(to_host(values)).reshape(1, -1)
    found = _moments_of_rows(host)
    n, n_high, n_low = (int(count[0]) for count in (found.n, found.n_high, found.n_low))
    return Moments(n, n_high, n_low, found.total.number(0), found.square.number(0))


def _moments_of_rows(rows: NDArray[Any]) -> LaneMoments:
    is_finite = np.isfinite(rows)
    n, n_high, n_low = (
        np.count_nonzero(mask, axis=1).astype(np.int64)
        for mask in (is_finite, rows == math.inf, rows == -math.inf)
    )
    return LaneMoments(n, n_high, n_low, *sums_of_rows(rows))


def pilot(values: Array, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Brackets that a sample suggests, and the tally there.

    Parameters
    ----------
    size : int
        Of the sample.
    ranks : callable
        Which order statistics are wanted, of any number of elements.

    Returns
    -------
    brackets : Brackets
        They hold what is wanted with near certainty.
    tally : Tally or None
        None if there are many more candidates than the sample lets expect.
    """
    return pilot_from(sample(values, size), partial(tally, values), values.shape[0], ranks)


def pilot_from(
    drawn: NDArray[Any],
    tally: Callable[[Brackets, int], Tally | None],
    n: int,
    ranks: RanksOf,
) -> tuple[Brackets, Tally | None]:
    """The same from a sample on the host, in any order, of n elements."""
    ordered = np.sort(drawn)
    brackets, share = guess_brackets(ordered.take, len(ordered), *ranks(len(ordered)))
    return brackets, tally(brackets, pilot_room(share, n))


def lanes(parts: Sequence[Array], ranks: RanksOfLanes) -> Lanes:
    """The elements of some ranks in every lane.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        The elements of each lane are those of all parts, in any order.
    ranks : callable
        See `lane_cuts.RanksOfLanes`.

    Returns
    -------
    Lanes
        In C order of the lanes.
    """
    return join([pick(rows, ranks) for rows in sorted_lanes(parts)])


def sorted_lanes(parts: Sequence[Array]) -> Iterator[NDArray[Any]]:
    """All lanes, each sorted with NaN and NaT last, in tables on the host with a row for each.

    Parameters
    ----------
    parts : sequence of arrays
        As for `lanes`.

    Yields
    ------
    ndarray, shape (some, n)
        Of the next lanes, in C order; at least one table. It may be overwritten by the next.
    """
    whole = concatenate(parts, -1) if len(parts) > 1 else parts[0]
    ordered = np.asarray(to_host(namespace(whole).sort(whole, axis=-1)))
    yield ordered.reshape(math.prod(ordered.shape[:-1]), ordered.shape[-1])


def lane_ends(
    parts: Sequence[Array],
    fences: Fences,
    most: int,
    widened: Callable[[Array], Array] = as_float64,
    moments_of: Callable[[Array], LaneMoments] | None = None,
) -> LaneEnds:
    """What is beyond the fences of every lane.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `lanes`.
    fences : Fences
        Of the lanes, in C order.
    most : int
        How many fliers of each side are kept.
    widened : callable
        Makes float64 of the array's elements, denormal ones too.
    moments_of : callable, optional
        The exact sums of every row of a table; by default `moments_on_host`.

    Returns
    -------
    LaneEnds
        On the host.
    """
    n = sum(part.shape[-1] for part in parts)
    whole = concatenate(parts, -1) if len(parts) > 1 else parts[0]
    rows = namespace(whole).reshape(whole, (math.prod(whole.shape[:-1]), n))
    step = max(1, TILE // max(n, 1))
    return LaneEnds.joined(
        [
            _ends_of_rows(
                rows[i : i + step, ...],
                fences[i : i + step],
                most,
                widened,
                moments_of or moments_on_host,
            )
            for i in range(0, max(rows.shape[0], 1), step)
        ]
    )


TILE = 1 << 22  # elements that are looked at together, each as some fifteen float64


def _ends_of_rows(
    rows: Array,
    fences: Fences,
    most: int,
    widened: Callable[[Array], Array],
    moments_of: Callable[[Array], LaneMoments],
) -> LaneEnds:
    xp = namespace(rows)
    values = widened(rows)
    low, high = (like(fence, rows)[:, None] for fence in (fences.low, fences.high))
    is_valid = values == values
    is_low, is_high = values < low, values > high
    least, largest = extremes_of(fences.dtype)
    n_valid, n_low, n_high = (_counted(mask) for mask in (is_valid, is_low, is_high))

    n = rows.shape[1]

    # Of float64, for CuPy takes denormal float32 for zeros.
    exact = values if is_kind(rows, "real floating") else rows

    def nearest(mask: Array, other: Any, find: Callable[..., Array]) -> NDArray[Any]:
        if n == 0:
            return np.full(len(n_valid), other)
        found = find(xp.where(mask, exact, other.item()), axis=1)
        return np.asarray(to_host(found), other.dtype)

    low_fliers, high_fliers = (
        Fliers.most_extreme(count, count, to_host(rows[mask]), most, is_high=is_upper)
        for mask, count, is_upper in ((is_low, n_low, False), (is_high, n_high, True))
    )
    return LaneEnds(
        n_valid,
        n - n_valid,
        nearest(is_valid, largest, xp.min),
        nearest(is_valid, least, xp.max),
        nearest(values >= low, largest, xp.min),
        nearest(values <= high, least, xp.max),
        low_fliers,
        high_fliers,
        moments_of(rows),
    )


def _counted(mask: Array) -> IntArray:
    return np.asarray(to_host(namespace(mask).sum(as_type(mask, "int64"), axis=1)), np.int64)


def moments_on_host(rows: Array) -> LaneMoments:
    """Exact sums of each row, and of its squares."""
    return _moments_of_rows(np.asarray(to_host(rows)))


def is_best_whole(values: Array) -> bool:
    """Whether all elements of an array in memory had best be candidates: no, a read is faster."""
    return False


def whole(values: Array, ranks: RanksOf) -> Tally:
    """The tally of a bracket of everything, for the elements of some ranks."""
    host = to_host(values).ravel()
    everything = Brackets(host[:0], np.ones(1, np.bool_))
    found = tally(values, everything, host.size)
    assert found is not None
    return found


merged = Tally.merge  # this is the host

tally_in_place = tally  # candidates leave the array's device


HEAVY = 4  # a cell of more than this many times its share is split again


def heavy_cells(
    below: IntArray, upto: IntArray, n_valid: int, share: int
) -> tuple[IntArray, IntArray, IntArray]:
    """The open cells between pivots that hold more than `HEAVY` times their share, from the counts
    at the pivots; and of every cell how many elements are inside and before it."""
    before = np.append(np.int64(0), upto)
    inside = np.append(below, n_valid) - before
    # Without a pivot, because the sample saw no valid element, all that there is is too much.
    return np.flatnonzero(inside > (HEAVY * share if len(below) else 0)), inside, before


def even_positions(n: int, count: int) -> IntArray:
    """At most `count` distinct positions spread evenly over ``range(n)``, its first and last among
    them."""
    if n <= count:
        return np.arange(n, dtype=np.int64)
    # Exact in Python's integers, whatever n.
    steps = max(count - 1, 1)
    return np.array([i * (n - 1) // steps for i in range(count)], dtype=np.int64)


def _measure(ordered: Array, pivots: NDArray[Any]) -> tuple[IntArray, IntArray, FloatArray]:
    below, upto = _counts(ordered, pivots)
    starts = np.append(np.int64(0), upto)[:-1]
    distance = np.full(len(below), np.nan)  # the first cell has no lower end: unknown
    for i in range(1, len(below)):
        distance[i] = _distance(ordered[int(starts[i]) : int(below[i])], pivots[i])
    return below, upto, distance


def report(values: Array, probe: Measure) -> Report:
    """What a strategy's probe finds in a chunk, on the host; see `measures.report`."""
    return measures.report(np.asarray(to_host(values)).reshape(-1), probe)


def sorted_copy(array: Array) -> Array:
    """All elements of a one-dimensional array, ascending."""
    return namespace(array).sort(array)


def bitonic_sorted(values: Array, sub_array: int) -> Array:
    """A one-dimensional array sorted by a bitonic network and merges; see `bitonic`."""
    return bitonic.sorted_by_network(np.asarray(to_host(values)), sub_array)


def elements_at(array: Array, places: IntArray) -> NDArray[Any]:
    """Some elements of a one-dimensional array, on the host."""
    return np.asarray(to_host(namespace(array).take(array, like(places, array))))


def _counts(ordered: Array, values: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """How many elements of a sorted array are below, and up to, each value."""
    xp = namespace(ordered)
    wanted = like(values, ordered)
    below, upto = (xp.searchsorted(ordered, wanted, side=side) for side in ("left", "right"))
    return to_host(below).astype(np.int64), to_host(upto).astype(np.int64)


def _distance(cell: Array, pivot: Any) -> float:
    """Sum of ``pivot - x`` over the elements of a sorted cell, to the accuracy that `Cuts`
    states."""
    if cell.shape[0] == 0:
        return 0.0
    xp = namespace(cell)
    if is_kind(cell, "real floating"):
        with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN mean unknown
            return float(xp.sum(float(pivot) - as_type(cell, "float64")))
    if int(pivot) - int(cell[0]) > 2**63 - 1:
        return float("nan")  # the differences overflow every dtype of the standard
    wide = as_type(cell, "uint64" if pivot.dtype == np.uint64 else "int64")
    return float(xp.sum(as_type(int(pivot) - wide, "float64")))


def _sort_valid(values: Array) -> tuple[Array, int]:
    """The elements that are no NaN, ascending, and the number of those that are."""
    xp = namespace(values)
    n_missing = 0
    if is_kind(values, "real floating"):
        is_missing = xp.isnan(values)
        n_missing = int(xp.count_nonzero(is_missing))
        if n_missing:
            values = values[~is_missing]
    return xp.sort(values), n_missing
