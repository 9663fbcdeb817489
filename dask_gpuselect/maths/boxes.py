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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray
from dask_gpuselect.maths.envelope import Envelope, tied_inside
from dask_gpuselect.maths.keys import EXACT_UP_TO
from dask_gpuselect.maths.lane_cuts import ElementOrder
from dask_gpuselect.maths.lane_ends import LaneEnds
from dask_gpuselect.maths.ragged import SlotKeys
from dask_gpuselect.maths.ranks import METHODS, Ranks, ranks, ranks_of
from dask_gpuselect.maths.sizes import PILOT_SIGMA, pilot_bracket
from dask_gpuselect.maths.weight_brackets import WeightEnvelope, no_brackets

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

    def ranks(self, n: int | IntArray) -> Ranks:
        """Find the ranks from which the quantiles `q` of n elements are interpolated.

        Those of several numbers are in columns.
        """
        if isinstance(n, int):
            return ranks_of(self.q, METHODS[self.method], n)
        return ranks(n, np.array(self.q)[:, None], self.method)

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
    room: int | IntArray,
    made_of: tuple[IntArray, IntArray] | None = None,
    most_beyond: float | None = None,
    keys: SlotKeys | None = None,
) -> Brackets:
    """Choose the cells whose elements are gathered for a box, or for that of each of many slots.

    They hold the quartiles and fliers, and the whiskers unless too much lies near a fence.

    Parameters
    ----------
    envelope : Envelope
        Bounds for at least one element. Where there are slots, for all of them in one order.
    rule : Rule
    lo, hi : ndarray of int64, shape (n_q,), or (n_q, S) for S slots that have elements
        Positions in the envelope between which the quantiles `rule.q` lie:
        see `Envelope.positions`.
    tied : ndarray of int64
        Positions of further values that many elements may equal. They are counted where they lie
        inside brackets.
    room : int, or ndarray of int64, shape (S,)
        Largest number of elements that may be gathered near a fence.
    made_of : tuple of two ndarrays of int64, optional
        Positions between which the elements lie from which the quantiles are interpolated. Default:
        (lo, hi].
    most_beyond : float, optional
        If there are at most so many elements beyond a fence, all of them are gathered. Default: a
        part of the room.
    keys : SlotKeys, optional
        Keys of the values of slots. None if there is one slot.

    Returns
    -------
    Brackets
    """
    values, n_q = envelope.values, len(rule.q)
    first, stop = edges = edges_of(values, keys)
    known = _known_range(values, keys, lo.reshape(n_q, -1), hi.reshape(n_q, -1), edges)
    # The cell of a fence includes the nearest element on its inner side, which is the next value of
    # the envelope at the latest.
    low, high = _positions(values, keys, edges, np.array(rule.fence_bounds(*known)))
    low_cells = low[0] - 1, np.minimum(low[1], stop)
    high_cells = high[0], high[1] + 1
    before, upto = envelope.least_upto(first - 1), envelope.most_below(stop)
    k = np.minimum(max(rule.max_fliers, 1), upto - before)
    # For the lower and the upper fence: all that can be beyond it, the most extreme elements as far
    # inwards as the fence can be, and the cell of the fence.
    pairs = (
        (first - 1, low_cells[1]),
        (high_cells[0], stop),
        (first - 1, np.minimum(envelope.lower.searchsorted(before + k), low_cells[1])),
        (np.maximum(envelope.below.searchsorted(upto - k, "right") - 1, high_cells[0]), stop),
        low_cells,
        high_cells,
    )
    begins, ends = map(np.stack, zip(*pairs, strict=True))
    n = envelope.most_below(ends) - envelope.least_upto(begins)
    # Gather everything beyond a fence if that is little: then elements are compared with fewer
    # ends.
    is_much = n[:2] > (room * LITTLE if most_beyond is None else most_beyond)
    is_spared = is_much & (ends[4:] - begins[4:] > 1) & (n[4:] > room)
    takes = np.concatenate([~is_much, is_much, is_much & ~is_spared])
    spared = None
    if keys is None and is_spared.any():
        spared = tuple(
            values[max(int(begin[0]), 0) : int(end[0]) + 1] if is_one else values[:0]
            for begin, end, is_one in zip(begins[4:], ends[4:], is_spared, strict=True)
        )
    lo, hi = (lo.ravel(), hi.ravel()) if made_of is None else made_of
    lo, hi = np.append(lo, begins[takes]), np.append(hi, ends[takes])
    # More brackets have begun before a value inside one than have ended up to it.
    is_inside = np.sort(lo).searchsorted(tied) > np.sort(hi).searchsorted(tied, "right")
    brackets = Brackets.covering(values, lo, hi, counted=tied[is_inside])
    return brackets if spared is None else replace(brackets, spared=spared)


Edges = tuple[IntArray, IntArray]
"""Positions of the first value of each slot that has any, and behind its last."""


def edges_of(values: NDArray[Any], keys: SlotKeys | None) -> Edges:
    """Find where the ascending values, or keys, of each slot are."""
    if keys is None:
        return np.zeros(1, np.int64), np.array([len(values)])
    first = np.flatnonzero(np.diff(keys.slots(values), prepend=np.int64(-1)))
    return first, np.append(first[1:], len(values))


def _positions(
    values: NDArray[Any], keys: SlotKeys | None, edges: Edges, bounds: FloatArray
) -> IntArray:
    """Find the first value of each slot from its lower bound, and the last to its upper one.

    In the shape of the bounds, ``(2, ..., S)``. Where there is none, it is a position beyond the
    slot.
    """
    first, stop = edges
    dtype = values.dtype if keys is None else keys.dtype
    (lowest, highest), is_none = values_inside(bounds, dtype)
    if keys is None:
        found = [values.searchsorted(lowest), values.searchsorted(highest, "right")]
    else:
        slots = keys.slots(values[first])
        wanted = keys.behind(slots, lowest, upto=False), keys.behind(slots, highest, upto=True)
        found = [values.searchsorted(each) for each in wanted]
    lower, upper = np.where(is_none[0], stop, found[0]), np.where(is_none[1], first, found[1])
    return np.stack([lower, upper - 1])


# Elements that may be gathered near a fence, for each pivot. Of 1e7 normal float64 in 10 chunks
# about 4 lie there for each pivot; of lognormal ones with a sigma of 3, up to 7.
ROOM = 16
LEAST_ROOM = 1 << 14
LITTLE = 0.25  # of that room: up to here everything beyond a fence is gathered


def room_of(cuts: Cuts, keys: SlotKeys | None = None, most: int | None = None) -> int | IntArray:
    """Return how many elements may be gathered near a fence, by the number of pivots.

    If pivots are `keys`, there is a number for each slot, at most a quarter of `most`.
    """
    if keys is None or most is None:
        return max(ROOM * len(cuts.pivots), LEAST_ROOM)
    n = np.bincount(keys.slots(cuts.pivots))
    n = n[n > 0]
    return np.minimum(np.maximum(ROOM * n, LEAST_ROOM // max(len(n), 1)), most // 4)


def bracket_from_cuts(
    cuts: Cuts,
    rule: Rule,
    room: int | IntArray | None = None,
    most_beyond: float | None = None,
    keys: SlotKeys | None = None,
) -> Brackets:
    """Choose the cells whose elements are gathered for a box, from the cuts of all chunks.

    Up to `room` elements may be gathered near a fence; by default as `room_of` says.
    `most_beyond` and `keys` are as for `bracket_box`; if there are slots, pivots are `keys`.
    """
    if not cuts.n_valid.any():
        return no_brackets(cuts, rule.method if cuts.weighs else "")
    weights = WeightEnvelope.of(cuts) if cuts.weighs else None
    if weights is None:
        envelope = Envelope.of(cuts)
        n: Any = envelope.least
        before: Any = 0
        if keys is not None:
            first, stop = edges_of(envelope.values, keys)
            before = envelope.least_upto(first - 1)
            n = envelope.most_below(stop) - before
        wanted = rule.ranks(n)
        lo, hi = envelope.positions(wanted.lower + before, wanted.upper + before)
        q_lo, q_hi, lo, hi = lo, hi, lo.ravel(), hi.ravel()
        tied = tied_inside(envelope, lo, hi)
    else:
        envelope = weights.counts
        lo, hi = weights.positions(rule.q, rule.method)
        # A quantile is between the first and the last element from which it is computed.
        shape = len(rule.q), -1, 1 + (rule.method == "linear")
        q_lo, q_hi = lo.reshape(shape)[..., 0], hi.reshape(shape)[..., -1]
        tied = weights.tied_inside(lo, hi)
    room = room_of(cuts) if room is None else room
    about = tied, room, (lo, hi), most_beyond, keys
    brackets = bracket_box(envelope, rule, q_lo, q_hi, *about)
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


PartialBox = tuple[FloatArray, LaneEnds]
"""Quantiles `Rule.q` of all elements, and their ends as those of one lane, without moments.

The measure beyond a fence is None while the elements near it were not gathered. Until then the most
extreme elements of that side are listed, wherever the fence is.
"""


def bracket_fences(brackets: Brackets, box: PartialBox, *, rule: Rule) -> Brackets | None:
    """Bracket the fences, now known, among the spared values; None if the box is complete."""
    q, ends = box
    is_open = [each.measure is None for each in (ends.beyond_low, ends.beyond_high)]
    if not any(is_open):
        return None
    spared = [
        each[: len(each) * is_one] for each, is_one in zip(brackets.spared, is_open, strict=True)
    ]
    values = np.unique(np.concatenate(spared))
    first, last = _positions(
        values, None, edges_of(values, None), np.stack(rule.fences(q[:, None]))
    )
    some = [i for i in range(2) if len(spared[i])]
    lo, hi = np.concatenate([first - 1, last])[some], np.concatenate([first, last + 1])[some]
    return Brackets.covering(values, lo, hi, counted=lo[:0])


def _known_range(
    values: NDArray[Any], keys: SlotKeys | None, lo: IntArray, hi: IntArray, edges: Edges
) -> tuple[FloatArray, FloatArray]:
    """Compute bounds of quantiles that are interpolated between elements in cells (lo, hi].

    Shapes are ``(n_q, S)`` for S slots.
    """
    first, stop = edges
    least, most = (
        values[each] if keys is None else keys.values(values[each])
        for each in (np.maximum(lo, first), np.minimum(hi, stop - 1))
    )
    with np.errstate(over="ignore"):  # the next number after the largest is inf
        # Interpolation may round to a number beyond both of its neighbours.
        return (
            np.nextafter(np.where(lo < first, -np.inf, least.astype(np.float64)), -np.inf),
            np.nextafter(np.where(hi >= stop, np.inf, most.astype(np.float64)), np.inf),
        )


def values_inside(
    bounds: FloatArray, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Find the smallest value of a dtype from each lower bound and the largest to each upper one.

    They are compared as float64. The first axis has lower and upper bounds. Also return a mask of
    the bounds that have no such value, as NaN.
    """
    is_nan = np.isnan(bounds)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = bounds.astype(dtype)
        are_beyond = (values[0] < bounds[0], np.inf), (values[1] > bounds[1], -np.inf)
        for own, (is_beyond, end) in zip(values, are_beyond, strict=True):
            if is_beyond.any():
                own[is_beyond] = np.nextafter(own[is_beyond], dtype.type(end))
        values[is_nan] = 0
        return values, is_nan
    info = np.iinfo(dtype)
    first, last = float(info.min), float(info.max)
    is_none = is_nan | np.stack([bounds[0] > last, bounds[1] < first])
    whole = np.where(is_nan, 0, np.stack([np.ceil(bounds[0]), np.floor(bounds[1])]))
    is_exact = np.abs(whole) <= EXACT_UP_TO
    values = np.where(is_exact | (dtype.itemsize < 8), whole, 0).clip(first, last).astype(dtype)
    # Integers of more than 53 bits are rounded to float64.
    for side, *place in np.argwhere(~is_exact & ~is_none & (dtype.itemsize == 8)).tolist():
        at = side, *place
        bound = float(bounds[at])
        if side == 0:
            values[at] = _first_integer(bound, info)
        elif bound >= last:
            values[at] = info.max
        else:
            values[at] = _first_integer(math.nextafter(bound, math.inf), info) - 1
    return values, is_none


def _first_integer(fence: float, info: Any) -> int:
    """Find the first integer of a dtype that as float64 is not below a fence, by bisection."""
    first, last = info.min - 1, info.max  # always: `first` is below the fence, and `last` is not
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if float(middle) < fence else (first, middle)
    return int(last)


def first_ranks(rule: Rule, n: int) -> IntArray:
    """Return distinct ranks that are known to be wanted: for quantiles, and of the last fliers."""
    if n == 0:
        return np.empty(0, np.int64)
    wanted, k = rule.ranks(n), min(max(rule.max_fliers, 1), n)
    return np.unique(np.concatenate([wanted.lower, wanted.upper, [k - 1, n - k]]))
