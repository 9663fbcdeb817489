"""Box plots from counts: which elements are gathered, and the box that they make.

Plain NumPy on the host.

A fence is as uncertain as the quartiles that it depends on. While the quartiles are bracketed, a
fence lies in an interval. Elements beyond that interval are counted, and elements inside it are
gathered. The whisker ends at the nearest element on the near side of the fence, which lies at the
next pivot or before it, so it is gathered as well. The quartiles, whiskers and the most extreme
fliers are then order statistics of known ranks, proven by the counts as all others are
(`finish.order_statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import (
    UNKNOWN,
    Brackets,
    Cuts,
    FloatArray,
    IntArray,
    Tally,
    extremes_of,
)
from dask_gpuselect.maths.envelope import Envelope, tied_inside
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import are_counted, counts_at, order_statistics
from dask_gpuselect.maths.host_runs import gathered
from dask_gpuselect.maths.lane_cuts import ElementOrder
from dask_gpuselect.maths.lane_ends import LaneEnds, Measure, Outermost
from dask_gpuselect.maths.ranks import METHODS, Ranks, ranks_of
from dask_gpuselect.maths.sizes import PILOT_SIGMA, pilot_bracket
from dask_gpuselect.maths.weight_brackets import WeightEnvelope, no_brackets
from dask_gpuselect.maths.weight_finish import GatheredRuns

QUARTILES = (0.25, 0.5, 0.75)
NOTCH = 1.57  # half the width of a notch is this times iqr / sqrt(n) (McGill, Tukey & Larsen 1978)


@dataclass(frozen=True)
class Rule:
    """Rule by which boxes are drawn.

    Parameters
    ----------
    whis : float or tuple of 2 floats
        Length of the whiskers beyond the box in interquartile ranges, or the two quantiles, in [0,
        1], at which they end.
    autorange : bool
        True if the whiskers reach the extremes where the interquartile range is 0.
    max_fliers : int
        Number of fliers that are listed on each side, the most extreme ones.
    method : str
        Method of interpolation, a key of `ranks.METHODS`.
    """

    whis: float | tuple[float, float]
    autorange: bool
    max_fliers: int
    method: str

    @property
    def q(self) -> tuple[float, ...]:
        """Quantiles that the box needs: quartiles, and those of the whiskers if given."""
        return QUARTILES + (self.whis if isinstance(self.whis, tuple) else ())

    def ranks(self, n: int) -> Ranks:
        """Find the ranks from which the quantiles `q` of n elements are interpolated."""
        return ranks_of(self.q, METHODS[self.method], n)

    def fences(self, q: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute the fences, beyond which elements are fliers, from the quantiles `Rule.q`.

        `q` has shape ``(n_q, ...)``, and each fence the shape of one quantile.

        No whisker ends inside the box. Where `whis` is a pair of quantiles between the quartiles,
        or where the fence is NaN because quartiles are infinite, the end of the box is the fence.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            iqr = q[2] - q[0]
            if isinstance(self.whis, tuple):
                low, high = q[3], q[4]
            else:
                low, high = q[0] - self.whis * iqr, q[2] + self.whis * iqr
            low, high = np.fmin(low, q[0]), np.fmax(high, q[2])
        is_open = (iqr == 0) & self.autorange
        return np.where(is_open, -np.inf, low), np.where(is_open, np.inf, high)

    def fence_bounds(
        self, least: NDArray[np.float64], most: NDArray[np.float64]
    ) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Compute intervals that hold the lower and the upper fence, from bounds of the quantiles.

        Rounding is monotonic, so bounds that hold for real numbers hold for their rounded sums too.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(self.whis, tuple):
                low, high = (least[3], most[3]), (least[4], most[4])
            else:
                widest = self.whis * (most[2] - least[0])
                narrowest = self.whis * np.maximum(least[2] - most[0], 0.0)
                low = (least[0] - widest, most[0] - narrowest)
                high = (least[2] + narrowest, most[2] + widest)
            # Infinite quartiles make these sums NaN: then nothing is known, and the interval is
            # open.
            low_end, high_end = np.fmax(low[0], -np.inf), np.fmin(high[1], np.inf)
            low = (np.minimum(low_end, least[0]), np.fmin(low[1], most[0]))
            high = (np.fmax(high[0], least[2]), np.maximum(high_end, most[2]))
        return low, high


# --- Which elements to gather ---------------------------------------------------------------------


def bracket_box(
    envelope: Envelope,
    rule: Rule,
    lo: IntArray,
    hi: IntArray,
    tied: IntArray,
    room: int,
    made_of: tuple[IntArray, IntArray] | None = None,
    most_beyond: float | None = None,
) -> Brackets:
    """Choose the cells whose elements are gathered for a box.

    They hold the quartiles and fliers, and the whiskers unless too much lies near a fence.

    Parameters
    ----------
    envelope : Envelope
        Bounds for at least one element.
    rule : Rule
    lo, hi : ndarray of int64, shape (n_q,)
        Positions in the envelope between which the quantiles `rule.q` lie:
        see `Envelope.positions`.
    tied : ndarray of int64
        Positions of further values that many elements may equal. They are counted where they lie
        inside brackets.
    room : int
        Largest number of elements that may be gathered near a fence.
    made_of : tuple of two ndarrays of int64, optional
        Positions between which the elements lie from which the quantiles are interpolated. Default:
        (lo, hi].
    most_beyond : float, optional
        If there are at most so many elements beyond a fence, all of them are gathered. Default: a
        part of the room.

    Returns
    -------
    Brackets
    """
    values, size = envelope.values, len(envelope.values)
    low, high = rule.fence_bounds(*_known_range(values, lo, hi))
    # The cell of a fence includes the nearest element on its inner side, which is the next value of
    # the envelope at the latest.
    low_cells = _first_from(values, low[0]) - 1, min(_first_from(values, low[1]), size)
    high_cells = _last_to(values, high[0]), _last_to(values, high[1]) + 1
    k = min(max(rule.max_fliers, 1), envelope.most)
    # The most extreme elements are wanted only as far inwards as a fence can be.
    extremes = (
        (-1, min(envelope.lowest(k), low_cells[1])),
        (max(envelope.highest(k), high_cells[0]), size),
    )
    lo, hi = (lo, hi) if made_of is None else made_of
    # Gather everything beyond a fence if that is little: then elements are compared with fewer
    # ends.
    most_beyond = room * LITTLE if most_beyond is None else most_beyond
    beyond = ((-1, low_cells[1]), (high_cells[0], size))
    spared = [values[:0], values[:0]]
    cells = []
    for side, (begin, end) in enumerate((low_cells, high_cells)):
        if envelope.most_between(*beyond[side]) <= most_beyond:
            cells.append(beyond[side])
            continue
        cells.append(extremes[side])
        if end - begin > 1 and envelope.most_between(begin, end) > room:
            spared[side] = values[max(begin, 0) : end + 1]
        else:
            cells.append((begin, end))
    begins, ends = np.array(cells, np.int64).T
    lo, hi = np.concatenate([lo, begins]), np.concatenate([hi, ends])
    is_inside = ((tied[:, None] > lo) & (tied[:, None] < hi)).any(axis=1)
    brackets = Brackets.covering(values, lo, hi, counted=tied[is_inside])
    return replace(brackets, spared=tuple(spared) if any(map(len, spared)) else None)


# Elements that may be gathered near a fence, for each pivot. Of 1e7 normal float64 in 10 chunks
# about 4 lie there for each pivot; of lognormal ones with a sigma of 3, up to 7.
ROOM = 16
LEAST_ROOM = 1 << 14
LITTLE = 0.25  # of that room: up to here everything beyond a fence is gathered


def room_of(cuts: Cuts) -> int:
    """Return how many elements may be gathered near a fence, by the number of pivots."""
    return max(ROOM * len(cuts.pivots), LEAST_ROOM)


def bracket_from_cuts(
    cuts: Cuts, rule: Rule, room: int | None = None, most_beyond: float | None = None
) -> Brackets:
    """Choose the cells whose elements are gathered for a box, from the cuts of all chunks.

    Up to `room` elements may be gathered near a fence; by default as `room_of` says.
    `most_beyond` is as for `bracket_box`.
    """
    if not cuts.n_valid.any():
        return no_brackets(cuts, rule.method if cuts.weighs else "")
    weights = WeightEnvelope.of(cuts) if cuts.weighs else None
    if weights is None:
        envelope = Envelope.of(cuts)
        wanted = rule.ranks(envelope.least)
        q_lo, q_hi = lo, hi = envelope.positions(wanted.lower, wanted.upper)
        tied = tied_inside(envelope, lo, hi)
    else:
        envelope = weights.counts
        lo, hi = weights.positions(rule.q, rule.method)
        # A quantile is between the first and the last element from which it is computed.
        q_lo, q_hi = lo.reshape(len(rule.q), -1)[:, 0], hi.reshape(len(rule.q), -1)[:, -1]
        tied = weights.tied_inside(lo, hi)
    room = room_of(cuts) if room is None else room
    brackets = bracket_box(envelope, rule, q_lo, q_hi, tied, room, (lo, hi), most_beyond)
    return weights.with_sums(brackets, lo, hi, rule.method) if weights else brackets


def narrower_box(brackets: Brackets, cuts: Cuts, rule: Rule) -> Brackets:
    """Narrow the brackets of a box by the cuts of all chunks at some of the candidates.

    Elements near a fence that were not gathered (`Brackets.spared`) stay so.
    """
    n = int(cuts.n_valid.sum())
    if not n:
        return brackets
    return narrower(brackets, bracket_from_cuts(cuts, rule, room=n, most_beyond=-math.inf))


SAMPLED_ROOM = 0.05  # share of a sample that may lie near a fence
HEAVY_SHARE = 1000  # a value that more than one in so many elements equal is counted, not gathered


def bracket_from_sample(taken: NDArray[Any], size: int, rate: float, rule: Rule) -> Brackets:
    """Choose the cells to gather for a box with near certainty, from a random sample.

    Nothing is proven: the counts of the next load tell whether the brackets hold.

    Parameters
    ----------
    taken : ndarray
        Elements at `rungs_of` the sorted sample.
    size : int
        Number of elements of the sample.
    rate : float
        Share of all elements that is in the sample.
    rule : Rule

    Returns
    -------
    Brackets
    """
    if size == 0:
        return Brackets(taken, np.ones(1, np.bool_))
    likely, sampled = envelopes_of_sample(taken, size)
    wanted = rule.ranks(size)
    lo, hi = likely.positions(wanted.lower, wanted.upper)
    times = sampled.lower - sampled.below
    heavy = np.flatnonzero(times > max(size // HEAVY_SHARE, 1))
    few = replace(rule, max_fliers=math.ceil(rule.max_fliers * rate))
    return bracket_box(likely, few, lo, hi, heavy, int(SAMPLED_ROOM * size))


@dataclass(frozen=True, slots=True, eq=False)
class BoxGuess:
    """Places in a sorted sample where a device finds the ends of a box's brackets.

    With these a device does by itself what `bracket_from_sample` does in the usual case, without a
    wait for the host. The brackets are one about each fence, wherever the quartiles are in their
    brackets, three about the quartiles, and one of the most extreme elements on each side. Their
    ends ascend, but those of the outer brackets may be equal.

    Parameters
    ----------
    places : tuple of 6 ints
        Places of the ends of the quartiles' brackets.
    rule : Rule
        The whiskers are some interquartile ranges long.
    order : ElementOrder
        How the quartiles follow from elements.
    n_extreme : int
        Number of sampled elements that may be among the most extreme ones of a side.
    most_near : int
        Largest number of sampled elements that may be near a fence.
    most_tied : int
        Largest number of sampled elements that may equal each other inside a bracket.
    """

    places: tuple[int, ...]
    rule: Rule
    order: ElementOrder
    n_extreme: int
    most_near: int
    most_tied: int

    @property
    def n_ends(self) -> int:
        return len(self.places) + 6

    @staticmethod
    def brackets(ends: NDArray[Any]) -> Brackets:
        """Make the brackets from their ends."""
        return Brackets(ends, np.arange(len(ends) + 1) % 2 == 0)


@lru_cache(maxsize=16)  # arrays of the same size are asked about again and again
def box_guess(rule: Rule, order: ElementOrder, size: int, rate: float) -> BoxGuess | None:
    """Prepare a guess for a device, for a sample of `size` elements; None in unusual cases.

    `order` tells how quartiles follow from elements, and `rate` is the share of all elements that
    is in the sample.
    """
    if isinstance(rule.whis, tuple) or size == 0:
        return None
    wanted = rule.ranks(size)
    lo, hi = pilot_bracket(wanted.lower, wanted.upper, size)
    if lo[0] < 0 or hi[-1] >= size or (lo[1:] <= hi[:-1]).any():
        return None
    most_near = int(SAMPLED_ROOM * size)
    first = np.arange(most_near)
    n_extreme = int(np.searchsorted(_least(first, size), math.ceil(max(rule.max_fliers, 1) * rate)))
    if n_extreme == most_near:
        return None
    places = tuple(np.stack([lo, hi], axis=1).ravel().tolist())
    return BoxGuess(places, rule, order, n_extreme, most_near, max(size // HEAVY_SHARE, 1))


def envelopes_of_sample(taken: NDArray[Any], size: int) -> tuple[Envelope, Envelope]:
    """Make bounds from a sorted random sample of at least one element, taken at `rungs_of`.

    Returns bounds that nearly certainly hold for all elements, in units of sampled elements, and
    the exact numbers of the sample itself.
    """
    first, last, least_upto, most_upto, most_below = _expected_of_distinct(size)
    is_new = taken[1:] != taken[:-1]
    if not is_new.all():
        # The first of equal values has the count below them, and the last the count up to them.
        begins, ends = np.append(True, is_new), np.append(is_new, True)
        taken, first, most_below = taken[begins], first[begins], most_below[begins]
        last, least_upto, most_upto = last[ends], least_upto[ends], most_upto[ends]
    likely = Envelope(taken, least_upto, most_below, size, most_upto)
    return likely, Envelope(taken, last, first, size)


def likely_envelope(values: NDArray[Any], first: IntArray, last: IntArray, size: int) -> Envelope:
    """Make bounds that nearly certainly hold for all elements, from those of a random sample.

    Of its `size` elements, at most `first` are below each of some distinct values, and at least
    `last` up to it.
    """
    return Envelope(values, _least(last, size), _most(first, size), size)


# Samples of the same size occur again and again, and this is most of the time an envelope takes.
@lru_cache(maxsize=16)
def _expected_of_distinct(size: int) -> tuple[IntArray, ...]:
    """Count the sampled elements before and up to each rung, where no two rungs are equal.

    Also return bounds that these counts make likely: the least and the largest count up to the
    rung, and the largest count below it.
    """
    first = np.concatenate([np.arange(size)[part] for part in rungs_of(size)])
    last, upto = first + 1, np.append(first[1:], size)
    expected = first, last, _least(last, size), _most(upto, size), _most(first, size)
    for array in expected:
        array.setflags(write=False)
    return expected


def rungs_of(size: int) -> tuple[slice, slice, slice]:
    """Choose the places in a sorted sample at which its elements are enough for an envelope.

    All places near the ends, where few elements are fliers. Between them, steps of a twentieth of
    the uncertainty of a place. With a sample of 2**18 elements the brackets take 0.4 ms, with all
    places 7.7 ms.
    """
    begin = min(size, 512)
    end = max(size - 512, begin)
    return slice(0, begin), slice(begin, end, max(size >> 12, 1)), slice(end, size)


def _least(places: IntArray, size: int) -> IntArray:
    """Bound from below where ascending places in a sample nearly certainly are among all."""
    return np.maximum.accumulate(places - _reach(places, size))


def _most(places: IntArray, size: int) -> IntArray:
    """Bound from above where ascending places in a sample nearly certainly are among all."""
    return np.minimum.accumulate((places + _reach(places, size))[::-1])[::-1]


def _reach(places: IntArray, size: int) -> IntArray:
    """Bound how far a place in a sample nearly certainly is from its place among all elements."""
    share = places / size
    reach = PILOT_SIGMA * (np.sqrt(size * share * (1 - share)) + 1)
    return np.ceil(reach).astype(np.int64)


def bracket_fences(brackets: Brackets, box: PartialBox, *, rule: Rule) -> Brackets | None:
    """Bracket the fences, now known, among the spared values; None if the box is complete."""
    q, ends = box
    is_open = [each.measure is None for each in (ends.beyond_low, ends.beyond_high)]
    if not any(is_open):
        return None
    pairs = zip(brackets.spared, is_open, strict=True)
    low, high = (each if is_one else each[:0] for each, is_one in pairs)
    values = np.unique(np.concatenate([low, high]))
    low_fence, high_fence = map(float, rule.fences(q))
    cells = []
    if len(low):
        first = _first_from(values, low_fence)
        cells.append((first - 1, first))
    if len(high):
        last = _last_to(values, high_fence)
        cells.append((last, last + 1))
    lo, hi = np.array(cells, np.int64).T
    return Brackets.covering(values, lo, hi, counted=lo[:0])


def _known_range(
    values: NDArray[Any], lo: IntArray, hi: IntArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute bounds of quantiles that are interpolated between elements in cells (lo, hi]."""
    size = len(values)
    least = np.where(lo < 0, -np.inf, values[np.maximum(lo, 0)].astype(np.float64))
    most = np.where(hi >= size, np.inf, values[np.minimum(hi, size - 1)].astype(np.float64))
    with np.errstate(over="ignore"):  # the next number after the largest is inf
        # Interpolation may round to a number beyond both of its neighbours.
        return np.nextafter(least, -np.inf), np.nextafter(most, np.inf)


def _first_from(values: NDArray[Any], fence: float) -> int:
    """Find the position of the first of ascending values that is not below a fence."""
    wanted = smallest_from(fence, values.dtype)
    return len(values) if wanted is None else int(np.searchsorted(values, wanted, side="left"))


def _last_to(values: NDArray[Any], fence: float) -> int:
    """Find the position of the last of ascending values that is not above a fence, or -1."""
    wanted = largest_to(fence, values.dtype)
    return -1 if wanted is None else int(np.searchsorted(values, wanted, side="right")) - 1


def smallest_from(fence: float, dtype: np.dtype[Any]) -> Any:
    """Find the smallest value of a dtype that as float64 is not below a fence, if there is one."""
    if math.isnan(fence):
        return None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            value = dtype.type(fence)
        return value if float(value) >= fence else np.nextafter(value, dtype.type(np.inf))
    info = np.iinfo(dtype)
    if float(info.max) < fence:
        return None
    return dtype.type(_first_integer(fence, info) if float(info.min) < fence else info.min)


def largest_to(fence: float, dtype: np.dtype[Any]) -> Any:
    """Find the largest value of a dtype that as float64 is not above a fence, if there is one."""
    if math.isnan(fence):
        return None
    if dtype.kind == "f":
        return -smallest_from(-fence, dtype)
    info = np.iinfo(dtype)
    if float(info.min) > fence:
        return None
    if float(info.max) <= fence:
        return dtype.type(info.max)
    return dtype.type(_first_integer(math.nextafter(fence, math.inf), info) - 1)


def _first_integer(fence: float, info: Any) -> int:
    """Find the first integer of a dtype that as float64 is not below a fence, by bisection.

    At least one integer of the dtype must be below the fence.
    """
    first, last = info.min, info.max  # always: `first` is below the fence, and `last` is not
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if float(middle) < fence else (first, middle)
    return int(last)


# --- The box from what was gathered ---------------------------------------------------------------


PartialBox = tuple[NDArray[np.float64], LaneEnds]
"""Quantiles `Rule.q` of all elements, and their ends as those of one lane, without moments.

The measure beyond a fence is None while the elements near it were not gathered. Until then the most
extreme elements of that side are listed, wherever the fence is.
"""


def first_ranks(rule: Rule, n: int) -> IntArray:
    """Return distinct ranks that are known to be wanted: for quantiles, and of the last fliers."""
    if n == 0:
        return np.empty(0, np.int64)
    wanted, k = rule.ranks(n), _most_listed(rule, n)
    return np.unique(np.concatenate([wanted.lower, wanted.upper, [k - 1, n - k]]))


def _most_listed(rule: Rule, n: int) -> int:
    """Return how many of the most extreme of n elements are listed on each side, at least one."""
    return min(max(rule.max_fliers, 1), n)


def resolve(
    brackets: Brackets,
    tally: Tally,
    rule: Rule,
    q: NDArray[np.float64],
    order: GatheredRuns | None = None,
) -> PartialBox:
    """Find the fliers and whiskers for quantiles `Rule.q`, as far as they were gathered.

    `order` is given if the elements have weights. Raises `ChunksChangedError` if the brackets do
    not hold what they should.
    """
    n, most, dtype = tally.n_valid, _most_listed(rule, tally.n_valid), tally.candidates.dtype
    numbers, fences = _numbers_beyond(brackets, tally, rule, q)
    n_low, n_high = (most if each is None else min(max(each, 1), most) for each in numbers)
    ranks = np.concatenate([np.arange(n_low), np.arange(n - 1, n - 1 - n_high, -1)])
    elements, inside = _with_whiskers(brackets, tally, fences, numbers, ranks)
    low, high = elements[:n_low], elements[n_low:]
    counts = [_one(each) for each in (n, tally.n_missing, tally.n_left_out)]
    nothing = extremes_of(dtype)[::-1]
    extremes = (low[:1], high[:1]) if n else np.zeros((2, 1), dtype)
    nearest = (
        _one(none if each is None else each, dtype)
        for each, none in zip(inside, nothing, strict=True)
    )
    sides = [Outermost(UNKNOWN, _one(len(e)), e, np.ones(len(e), np.int64)) for e in (low, high)]
    sides = _with_fliers(tally, sides, numbers, rule, order)
    measure = tally.weight if tally.weighs else counts[0]
    columns: list[Any] = [*counts, measure, *extremes, *nearest, *sides, UNKNOWN]
    return q, LaneEnds(*columns)


def _one(value: Any, dtype: Any = np.int64) -> NDArray[Any]:
    return np.array([value], dtype)


def _with_fliers(
    tally: Tally,
    sides: Sequence[Outermost],
    numbers: Sequence[int | None],
    rule: Rule,
    order: GatheredRuns | None,
) -> list[Outermost]:
    """Measure the elements beyond each fence, and list fliers, where their number is known."""
    measures: Sequence[Measure] = [_one(each or 0) for each in numbers]
    if order is not None:
        sides, measures = _weighed(order, tally, sides, numbers)
    listed = []
    for side, measure, number in zip(sides, measures, numbers, strict=True):
        most = min(number or 0, rule.max_fliers)
        # Without weights each element is a value of its own.
        takes: Any = slice(most) if order is None else side.counts.cumsum() - side.counts < most
        elements, counts = side.elements[takes], side.counts[takes]
        weights = None if side.weights is None else side.weights[takes]
        some = Outermost(measure, _one(len(elements)), elements, counts, weights)
        listed.append(side if number is None else some)
    return listed


def _weighed(
    order: GatheredRuns,
    tally: Tally,
    sides: Sequence[Outermost],
    numbers: Sequence[int | None],
) -> tuple[Sequence[Outermost], Sequence[ExactSums]]:
    """Weigh what is beyond the fences, and the distinct values of both sides if not done yet."""
    n, is_new = tally.n_valid, sides[0].weights is None
    ends = np.array([numbers[0] or 0, n - (numbers[1] or 0)])
    sums = order.weights_before(ends)
    measures = sums[:1], tally.weight - sums[1:]
    if not is_new:
        return sides, measures
    (low, n_low), (high, n_high) = (_distinct(each.elements) for each in sides)
    k, n_behind = len(low), n - n_high.cumsum()
    starts = np.concatenate([n_low.cumsum() - n_low, n_behind])
    stops = starts + np.concatenate([n_low, n_high])
    if k:  # further elements may equal the last value of a side
        last = np.array([low[-1], high[-1]])
        (_, starts[-1]), (stops[k - 1], _) = counts_at(order.brackets, tally, last)
    weights = _weights_between(order, starts, stops)
    of_low, of_high = (low, n_low, weights[:k]), (high, n_high, weights[k:])
    return [Outermost(UNKNOWN, _one(len(each[0])), *each) for each in (of_low, of_high)], measures


def _distinct(elements: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct values of sorted elements, and how often each occurs."""
    is_first = np.ones(len(elements) + 1, np.bool_)
    is_first[1:-1] = elements[1:] != elements[:-1]
    edges = np.flatnonzero(is_first)
    return elements[edges[:-1]], edges[1:] - edges[:-1]


# Digits of the sums that are made together, of few places if weights are far apart: the digits of
# 2,000 sums of weights of all magnitudes take a megabyte.
DIGITS = 1 << 15


def _weights_between(order: GatheredRuns, starts: IntArray, stops: IntArray) -> FloatArray:
    """Sum the weights between pairs of places, rounded once."""
    sums = order.weights_at(starts)
    # Few extremes are equal, so most of these sums are the weight of one element.
    some = np.flatnonzero((stops - starts > 1) | np.isnan(sums))
    most = max(DIGITS // max(2 * len(order.before.in_digits().digits), 1), 1)
    for i in range(0, len(some), most):
        own = some[i : i + most]
        before = order.weights_before(np.concatenate([starts[own], stops[own]]))
        sums[own] = (before[len(own) :] - before[: len(own)]).rounded()
    return sums


def _numbers_beyond(
    brackets: Brackets, tally: Tally, rule: Rule, q: NDArray[np.float64]
) -> tuple[list[int | None], tuple[float, ...]]:
    """Count the elements beyond each fence, and return the fences.

    A number is None if the elements near the fence were not gathered.
    """
    n, dtype, fences = tally.n_valid, brackets.ends.dtype, tuple(map(float, rule.fences(q)))
    inner = smallest_from(fences[0], dtype), largest_to(fences[1], dtype)
    values = np.array(sorted({each for each in inner if each is not None}), dtype)
    is_known = are_counted(brackets, tally, values)
    below, upto = counts_at(brackets, tally, values)
    numbers: list[int | None] = []
    for fence, value, beyond in zip(fences, inner, (below, n - upto), strict=True):
        if value is None:  # nothing is beyond NaN, and otherwise everything is
            numbers.append(0 if math.isnan(fence) else n)
        else:
            place = values.searchsorted(value)
            numbers.append(int(beyond[place]) if is_known[place] else None)
    return numbers, fences


def _with_whiskers(
    brackets: Brackets,
    tally: Tally,
    fences: Sequence[float],
    numbers: Sequence[int | None],
    ranks: IntArray,
) -> tuple[NDArray[Any], tuple[Any, Any]]:
    """Find the elements of some ranks, and the nearest elements inside fences.

    These are None where the number of elements beyond the fence is, or if there are none.
    """
    n = tally.n_valid
    has = [
        number is not None and number < n and not math.isnan(fence)
        for number, fence in zip(numbers, fences, strict=True)
    ]
    inner = [number or 0 for number in numbers]
    own = np.array([inner[0], n - 1 - inner[1]])[has]
    elements = order_statistics(brackets, tally, np.concatenate([ranks, own]))
    nearest = iter(elements[len(ranks) :])
    low, high = (next(nearest) if each else None for each in has)
    return elements[: len(ranks)], (low, high)


def resolve_again(box: PartialBox, brackets: Brackets, tally: Tally, *, rule: Rule) -> PartialBox:
    """Complete a box after the third load, which gathers the elements near its fences."""
    q, ends = box
    sides = ends.beyond_low, ends.beyond_high
    found, fences = _numbers_beyond(brackets, tally, rule, q)
    # Elements near a fence that was known before are not gathered.
    numbers = [n if side.measure is None else None for side, n in zip(sides, found, strict=True)]
    _, inside = _with_whiskers(brackets, tally, fences, numbers, np.empty(0, np.int64))
    nearest = zip(("low", "high"), inside, strict=True)
    new: dict[str, Any]
    new = {name: _one(each, ends.low.dtype) for name, each in nearest if each is not None}
    tally = tally.in_order() if tally.weighs else tally
    order = gathered(brackets, tally) if tally.weighs else None
    low, high = _with_fliers(tally, sides, numbers, rule, order)
    return q, replace(ends, **new, beyond_low=low, beyond_high=high)
