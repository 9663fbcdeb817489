"""Median absolute deviations from counts, in plain NumPy on the host.

The cuts bound the median, and so the number of elements within any distance of it. So they bound
the wanted distance from both sides. It is the distance of an element in one of two *shells*, one
below and one above the median. Nearer and further elements are counted. The elements in the shells
are gathered, and so are those that may be the median itself. If the median is so uncertain that the
shells have too many elements, they are gathered once the median is known.

Distances are those of NumPy's subtraction. Rounding is monotonic: on either side of the median, no
element has a smaller distance than one that is nearer to it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import envelopes_of_sample
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.coarse import cells_of, narrower
from dask_gpuselect.maths.cuts import (
    ADVICE,
    UNKNOWN,
    Brackets,
    ChunksChangedError,
    Cuts,
    IntArray,
    Tally,
)
from dask_gpuselect.maths.envelope import Envelope, tied_inside
from dask_gpuselect.maths.ranks import MEDIAN, ranks_of
from dask_gpuselect.maths.sizes import PILOT_SIGMA

# Number of elements that may be gathered in both shells, for each pivot. Of 1e7 float64 in 10
# chunks, normal data have at most 22, and lognormal data with a sigma of 3 at most 31.
ROOM = 40
LEAST_ROOM = 1 << 14
# Shares of a sample. Up to the last one, elements may be gathered. Up to the others, dividing the
# median's bracket further gains little: of normal data, 2.2 % are gathered; by eight parts 1.5 %,
# which take nine times as long to choose: 2 ms.
SAMPLED_ROOM = (0.03, 0.04, 0.1)
HEAVY_SHARE = 16  # a value that more than this part of the room has is counted, not gathered

# Numbers of parts into which the median's bracket is divided. Each part has shells of its own,
# about nearly the same median. For the lognormal data this leaves 165, 54 and 31 elements for each
# pivot, and takes 0.4, 3 and 11 ms.
PARTS = (1, 8, 32)
MANY_PARTS = 8  # if there are more, two of them are tried first to save time

FEW_TIED = 1 << 12  # ends of brackets, with ties, that are selected among candidates as elements

# Number of values of an envelope that stay for a third load. Chunks have fewer pivots.
MOST_STEPS = 1 << 16


# --- Brackets and shells --------------------------------------------------------------------------


@dataclass(frozen=True)
class Shells:
    """The shells that hold the middle distances, as positions among the values of an envelope.

    Parameters
    ----------
    outer : tuple of 2 ints
        All elements up to the first value and from the last value on are at least as far as the
        middle ones. -1 and the number of values mean that there is no such value.
    inner : tuple of 2 ints, or None
        All elements from the first to the last value are at most as far as the middle ones; None if
        there are none.
    tied : tuple of ints
        Values beyond the outer ones. All elements up to them have the same distance as the outer
        ones, if that is the wanted distance. So they are counted.
    """

    outer: tuple[int, int]
    inner: tuple[int, int] | None
    tied: tuple[int, ...]

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Pairs of positions between which elements are gathered.

        Large integers have the same rounded distance as their neighbours. If that is the middle
        distance, the outer positions may be in the wrong order, with nothing between them.
        """
        begin, end = self.outer
        cells = [(begin, end)]
        if self.inner is not None:
            cells = [(begin, self.inner[0]), (self.inner[1], end)]
        return [(lo, max(lo, hi)) for lo, hi in cells]

    @classmethod
    def union(cls, parts: Sequence[Shells]) -> Shells:
        """Return shells that hold the middle distances if any of the parts does."""
        begins, ends = zip(*(part.outer for part in parts), strict=True)
        inner = [part.inner for part in parts if part.inner is not None]
        between = None
        if len(inner) == len(parts):
            firsts, lasts = zip(*inner, strict=True)
            between = (max(firsts), min(lasts))
        is_none = between is None or between[0] > between[1]
        tied = tuple({position for part in parts for position in part.tied})
        return cls((min(begins), max(ends)), None if is_none else between, tied)


def shells_of(envelope: Envelope, low: Any, high: Any) -> Shells:
    """Return the shells about a median that is somewhere in [low, high].

    Parameters
    ----------
    envelope : Envelope
        Of at least one element.
    low, high : numbers of the dtype of the distances
        -inf and inf if nothing is known. They are equal if the median is known.

    Notes
    -----
    The signed distance of each value of the envelope from the median is at most `most` and at least
    `least`: its distances from `low` and `high`. Both ascend with the values. So elements between
    two values are within a distance for any median in [low, high], or for none.

    If the median is known, the shells have about twice as many elements as the envelope leaves
    uncertain at their ends, and those that are tied at the first distance that may be the wanted
    one: see `bracket_known`.
    """
    values, size = envelope.values, len(envelope.values)
    first, last = (envelope.most - 1) // 2, envelope.most // 2
    most, least = signed_distances(values, low), signed_distances(values, high)
    # The difference of infinities of one sign says nothing.
    most[np.isnan(most)], least[np.isnan(least)] = np.inf, -np.inf

    def may_pass_first(distance: Any) -> bool:
        end = int(least.searchsorted(distance, side="right"))
        begin = int(most.searchsorted(-distance, side="left")) - 1
        return envelope.most_between(begin, end) > first

    def has_last(distance: Any) -> bool:
        end = int(most.searchsorted(distance, side="right")) - 1
        begin = int(least.searchsorted(-distance, side="left"))
        return envelope.least_from(begin, end) > last

    # Each function changes only at one of these distances.
    near = _distance_before(may_pass_first, least, -most[::-1])
    far = _first_distance(has_last, most, -least[::-1])
    outer, tied = (-1, size), []
    if far is not None:
        begin = int(most.searchsorted(-far, side="right")) - 1
        outer = (begin, int(least.searchsorted(far, side="left")))
        first_tied = int(least.searchsorted(-far, side="left"))
        last_tied = int(most.searchsorted(far, side="right")) - 1
        tied += [first_tied] if first_tied <= begin else []
        tied += [last_tied] if last_tied >= outer[1] else []
    if near is None:
        return Shells(outer, None, tuple(tied))
    begin = int(least.searchsorted(-near, side="left"))
    end = int(most.searchsorted(near, side="right")) - 1
    return Shells(outer, (begin, end) if begin <= end else None, tuple(tied))


def signed_distances(values: NDArray[Any], centre: Any) -> NDArray[Any]:
    """Return ``values - centre`` as NumPy rounds it, in the dtype of the centre.

    Overflow is infinite. The difference of infinities of one sign is NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values.astype(centre.dtype) - centre)


def _first_distance(is_enough: Callable[[Any], bool], *ascending: NDArray[Any]) -> Any:
    """Return the smallest distance that is enough; None if there is none.

    All larger distances are enough too. It is zero, or one of the numbers in some ascending arrays.
    """
    zero = ascending[0].dtype.type(0)
    if is_enough(zero):
        return zero
    last, first = zero, None  # not enough, and enough: each array narrows the range for the next
    for each in ascending:
        begin = int(each.searchsorted(last, side="right"))
        end = len(each) if first is None else int(each.searchsorted(first, side="left"))
        place = bisect_left(each, True, begin, end, key=is_enough)
        last = each[place - 1] if place > begin else last
        first = each[place] if place < end else first
    return first


def _distance_before(is_enough: Callable[[Any], bool], *ascending: NDArray[Any]) -> Any:
    """Return the largest distance that is not enough; None if zero is enough."""
    first, dtype = _first_distance(is_enough, *ascending), ascending[0].dtype
    if first is None:
        return dtype.type(np.inf)
    return None if first == 0 else np.nextafter(first, dtype.type(0))


def _without(cells: Sequence[tuple[int, int]], run: tuple[int, int]) -> list[tuple[int, int]]:
    """Return cells without the part from the first to the last value of a run."""
    left = []
    for lo, hi in cells:
        if lo < run[1] and run[0] < hi:
            left += [(lo, max(run[0], lo)), (min(run[1], hi), hi)]
        else:
            left.append((lo, hi))
    return left


def bracket_median_and_shells(
    envelope: Envelope,
    lo: IntArray,
    hi: IntArray,
    counted: IntArray,
    rooms: tuple[int, int, int],
    dtype: np.dtype[Any],
) -> Brackets:
    """Return the brackets of the elements to gather before the median is known.

    Parameters
    ----------
    envelope : Envelope
        Of at least one element.
    lo, hi : ndarray of int64, shape (1,)
        Positions in the envelope between which the median lies: see `Envelope.positions`.
    counted : ndarray of int64
        Positions of values to count in any case.
    rooms : tuple of 3 ints
        The first two: numbers of elements in the shells up to which the bracket of the median is
        not divided, or not further. The last one: the number that may be gathered at all.
    dtype : dtype
        Dtype of the distances.
    """
    shells = _shells_with_room(envelope, int(lo[0]), int(hi[0]), rooms, dtype)
    if shells is None:
        return replace(_covering(envelope, lo, hi, counted), spared=_few_steps(envelope))
    begins, ends = np.array(shells.cells, np.int64).T
    heavy = _heavy_inside(envelope, begins, ends, rooms[-1])
    lo, hi = np.concatenate([lo, begins]), np.concatenate([hi, ends])
    counted = np.concatenate([counted, heavy, np.array(shells.tied, np.int64)])
    return _covering(envelope, lo, hi, counted, shells.inner)


def _shells_with_room(
    envelope: Envelope, lo: int, hi: int, rooms: tuple[int, int, int], dtype: np.dtype[Any]
) -> Shells | None:
    """Return the shells about a median between two positions; None if there is no room."""
    for n_parts, room in zip(PARTS, rooms, strict=True):
        parts = _parts_of_interval(envelope, lo, hi, n_parts, dtype)
        # If the first and the last part alone have too many elements, the others are skipped.
        for some in (parts[:: len(parts) - 1], parts) if len(parts) > MANY_PARTS else (parts,):
            shells = Shells.union([shells_of(envelope, *part) for part in some])
            most = _most_gathered(envelope, shells, rooms[-1])
            if most > rooms[-1]:
                break
        if most <= room:
            return shells
    return None


def _parts_of_interval(
    envelope: Envelope, lo: int, hi: int, n_parts: int, dtype: np.dtype[Any]
) -> list[tuple[Any, Any]]:
    """Divide the interval between two positions into parts, one of which has the median."""
    values, size = envelope.values, len(envelope.values)
    low = values[lo].astype(dtype) if lo >= 0 else dtype.type(-np.inf)
    high = values[hi].astype(dtype) if hi < size else dtype.type(np.inf)
    if hi < size and envelope.most_between(-1, hi) <= (envelope.most - 1) // 2:
        low = high  # no element below `high` has the rank
    known = values[max(lo, 0) : hi + 1].astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.linspace(0, len(known) - 1, n_parts + 1)
        inner = np.interp(steps[1:-1], np.arange(len(known)), known).astype(dtype)
    inner = np.sort(inner[(inner > low) & (inner < high)])  # and not NaN
    points = [low, *inner, high]
    return list(itertools.pairwise(points))


def _covering(
    envelope: Envelope,
    lo: IntArray,
    hi: IntArray,
    counted: IntArray,
    inner: tuple[int, int] | None = None,
) -> Brackets:
    """Return brackets (lo, hi], with the cells that lie between the shells as inner ones.

    All elements from the first to the last value of `inner` are at most as far from the median as
    the middle distances. Elements of the other cells that are not wanted are at least as far.
    """
    brackets = Brackets.covering(envelope.values, lo, hi, counted=counted)
    is_inner = np.zeros_like(brackets.wanted)
    if inner is not None:
        first, last = brackets.ends.searchsorted(envelope.values[list(inner)])
        is_inner[first + 1 : last + 1] = True
    return replace(brackets, inner=is_inner)


def _heavy_inside(envelope: Envelope, begins: IntArray, ends: IntArray, room: int) -> IntArray:
    """Return positions inside cells of values that many elements certainly have."""
    heavy = np.flatnonzero(envelope.lower - envelope.below > room // HEAVY_SHARE)
    is_inside = (heavy[:, None] > begins) & (heavy[:, None] < ends)
    return heavy[is_inside.any(axis=1)]


def _most_gathered(envelope: Envelope, shells: Shells, room: int) -> int:
    """Return an upper bound on the elements in shells that do not have a heavy value."""
    begins, ends = np.array(shells.cells, np.int64).T
    heavy = _heavy_inside(envelope, begins, ends, room)
    # A sample gives the estimate itself, without the likely error.
    estimate = replace(envelope, sigma=0.0)
    most = sum(estimate.most_between(lo, hi) for lo, hi in shells.cells)
    return most - int((envelope.lower[heavy] - envelope.below[heavy]).sum())


def _few_steps(envelope: Envelope) -> Envelope:
    """Thin out an envelope to values about one in `MOST_STEPS` of all elements apart.

    It is sent to every task of the second load.
    """
    steps: Any = slice(None)
    if len(envelope.values) > MOST_STEPS:
        wanted = envelope.most * np.arange(1, MOST_STEPS // 2 + 1) // (MOST_STEPS // 2)
        upto, below = (
            np.minimum(bounds.searchsorted(wanted), len(bounds) - 1)
            for bounds in (envelope.lower, envelope.below)
        )
        steps = np.unique(np.concatenate([upto, below]))
    columns = {name: getattr(envelope, name)[steps] for name in ("values", "lower", "below")}
    return replace(envelope, **columns, upper=UNKNOWN, position=UNKNOWN)


def _median_in(envelope: Envelope) -> tuple[IntArray, IntArray]:
    """Find positions between which the median lies, one of each; see `Envelope.positions`."""
    wanted = ranks_of((0.5,), MEDIAN, envelope.most)
    return envelope.positions(wanted.lower, wanted.upper)


def bracket_from_cuts(cuts: Cuts, dtype: np.dtype[Any], room: int | None = None) -> Brackets:
    """Return the brackets that the second load gathers, by the cuts of all chunks.

    They hold up to `room` elements in all, by default as many as these cuts make likely.
    """
    if not cuts.n_valid.any():
        return Brackets(cuts.pivots[:0], np.zeros(1, np.bool_), inner=np.zeros(1, np.bool_))
    envelope = Envelope.of(cuts)
    lo, hi = _median_in(envelope)
    tied = tied_inside(envelope, lo, hi)
    likely = max(ROOM * len(cuts.pivots), LEAST_ROOM)
    rooms = (LEAST_ROOM, likely, likely) if room is None else (room, room, room)
    return bracket_median_and_shells(envelope, lo, hi, tied, rooms, dtype)


def narrower_deviations(brackets: Brackets, cuts: Cuts, dtype: np.dtype[Any]) -> Brackets:
    """Narrow brackets by the cuts of all chunks at some of the gathered candidates.

    Shells that were spared stay so.
    """
    if not cuts.n_valid.any():
        return brackets
    envelope = Envelope.of(cuts)
    lo, hi = _median_in(envelope)
    (median,) = _parts_of_interval(envelope, int(lo[0]), int(hi[0]), 1, dtype)
    shells = shells_of(envelope, *median)
    counted = np.append(tied_inside(envelope, lo, hi), np.array(shells.tied, np.int64))
    if brackets.is_whole:
        begins, ends = np.array(shells.cells, np.int64).T
        lo, hi = np.append(lo, begins), np.append(hi, ends)
    return _inside_both(brackets, _covering(envelope, lo, hi, counted, shells.inner))


def narrower_about(brackets: Brackets, cuts: Cuts, centre: Any) -> Brackets:
    """Narrow the shells about a median that is known, by the cuts of all chunks at candidates."""
    return _inside_both(brackets, bracket_known(Envelope.of(cuts), centre))


def _inside_both(brackets: Brackets, other: Brackets) -> Brackets:
    both = narrower(brackets, other)
    before, now = cells_of(brackets, both.ends), cells_of(other, both.ends)
    inner = (brackets.inner[before] | other.inner[now]) & ~both.wanted
    return replace(both, inner=inner)


def bracket_from_sample(taken: NDArray[Any], size: int, dtype: np.dtype[Any]) -> Brackets:
    """Return brackets that nearly certainly hold the answer, from elements of a sample.

    The elements are those at `boxes.rungs_of`. Nothing is proven: the counts show whether it holds.
    """
    if size == 0:
        return Brackets(taken, np.ones(1, np.bool_), inner=np.zeros(1, np.bool_))
    likely, sampled = envelopes_of_sample(taken, size)
    lo, hi = _median_in(likely)
    few, some, most = (int(share * size) for share in SAMPLED_ROOM)
    heavy = _heavy_inside(sampled, lo, hi, most)
    expected = Envelope(sampled.values, sampled.lower, sampled.below, size, sigma=PILOT_SIGMA)
    return bracket_median_and_shells(expected, lo, hi, heavy, (few, some, most), dtype)


def bracket_known(spared: Envelope, centre: Any) -> Brackets:
    """Return the brackets of the third load: the shells about a median that is known.

    The first values behind the inner elements that may have the wanted distance may be many. They
    are counted, and so are elements between two values of the same distance.
    """
    shells = shells_of(spared, centre, centre)
    cells = shells.cells
    for run in _first_behind(signed_distances(spared.values, centre), shells.inner):
        cells = _without(cells, run)
    begins, ends = np.array(cells, np.int64).T
    tied = np.array(shells.tied, np.int64)
    return _covering(spared, begins, ends, tied, shells.inner)


def _first_behind(distances: NDArray[Any], inner: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return the runs of the nearest distance that is not among the inner ones.

    `distances` are signed and ascend. A run is its first and last position. There is at most one on
    either side.
    """
    sizes = np.abs(distances)
    behind = sizes if inner is None else np.delete(sizes, slice(inner[0], inner[1] + 1))
    if not len(behind):
        return []
    nearest = behind.min()
    runs = [
        (int(distances.searchsorted(one, "left")), int(distances.searchsorted(one, "right")) - 1)
        for one in sorted({-nearest, nearest})
    ]
    return [run for run in runs if run[0] <= run[1]]


# --- Distances of ranks ---------------------------------------------------------------------------


def distances_of_ranks(
    brackets: Brackets, tally: Tally, centre: Any, wanted: IntArray
) -> NDArray[Any]:
    """Return the distances from the median that have some ranks among all distances.

    Parameters
    ----------
    brackets : Brackets
        With shells.
    tally : Tally
        Of all chunks, at these brackets.
    centre : number of the dtype of the distances
        The median, finite.
    wanted : ndarray of int64, any shape
        The ranks.

    Raises
    ------
    ChunksChangedError
        If the shells do not hold them: the load read other data than the first.

    Notes
    -----
    The elements of a cell that is not gathered are counted, and the distances of its ends bound
    theirs. The answer is exact if no such cell is on both sides of it.
    """
    signed = signed_distances(brackets.ends, centre)
    inside = np.append(tally.below, tally.n_valid) - np.append(np.int64(0), tally.upto)
    nearest, furthest = _bounds_of_cells(signed)
    is_counted = ~brackets.wanted & (inside > 0)
    is_known = is_counted & (nearest == furthest)
    is_inner = is_counted & ~is_known & brackets.inner
    is_outer = is_counted & ~is_known & ~brackets.inner
    ties = tally.upto - tally.below
    places = wanted - inside[is_inner].sum()
    n_placed = len(tally.candidates) + ties.sum() + inside[is_known].sum()
    is_gathered = inside[brackets.wanted].sum() == len(tally.candidates)
    if is_gathered and places.min() >= 0 and places.max() < n_placed:
        points = np.concatenate([np.abs(signed), nearest[is_known]])
        weights = np.concatenate([ties, inside[is_known]])
        gathered = tally.candidates.distances(centre)
        distances = _at_places(gathered, points, weights, places)
        least = furthest[is_inner].max(initial=0)
        if least <= distances.min() and distances.max() <= nearest[is_outer].min(initial=np.inf):
            return distances
    raise ChunksChangedError(
        "the data have changed since the first read: the middle distances from the median are "
        f"outside their brackets. {ADVICE}"
    )


def _bounds_of_cells(signed: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the largest distance of elements in each open cell.

    `signed` are the signed distances of the ends.
    """
    infinity = np.array([np.inf], signed.dtype)
    left, right = np.concatenate([-infinity, signed]), np.concatenate([signed, infinity])
    nearest = np.maximum(np.maximum(left, -right), 0)
    return nearest, np.maximum(np.abs(left), np.abs(right))


def _at_places(
    gathered: Candidates, points: NDArray[Any], weights: IntArray, places: IntArray
) -> NDArray[Any]:
    """Return the elements at some places of a sorted sequence that is not sorted here.

    The sequence has the gathered numbers, and a few points that occur many times (`weights`).
    """
    if weights.sum() <= FEW_TIED:  # faster than counting, on hosts and devices
        elements = gathered.with_more(np.repeat(points, weights)).elements_at(places.ravel())
        return elements.reshape(places.shape)
    points, which = np.unique(points, return_inverse=True)
    ties = np.zeros(len(points) + 1, np.int64)
    np.add.at(ties, which, weights)
    n_before = ties.cumsum() - ties  # of the points before each one
    below, upto = gathered.counts(points)
    behind = np.append(upto, len(gathered)) + n_before + ties
    point = behind[:-1].searchsorted(places, side="right")  # the first one at or behind a place
    is_point = places >= (np.append(below, len(gathered)) + n_before)[point]
    elements = np.empty(places.shape, gathered.dtype)
    elements[is_point] = points[point[is_point]]
    within = places[~is_point] - n_before[point[~is_point]]
    elements[~is_point] = gathered.elements_at(within)
    return elements
