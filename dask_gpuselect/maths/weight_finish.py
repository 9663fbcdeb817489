"""Weighted quantiles from the candidates and their weights: exact decisions, and their proof."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Brackets, ChunksChangedError, IntArray, Tally
from dask_gpuselect.maths.exact_sums import ExactSums, quotient
from dask_gpuselect.maths.weights import (
    POINT,
    PRODUCT_UNIT,
    WEIGHT_UNIT,
)

DIGITS = 53  # of a float64, in bits

# The candidates' sums are stored exactly behind every so many of them. Between, they are added up
# where they are wanted. A thousand quantiles of 1e6 candidates take 1.0 s, five take 0.4.
BLOCK = 512


def reached_and_passed(q: float, weight: int) -> tuple[int, int]:
    """Find the least sums of weights that reach the share q of all weights, and that exceed it.

    Weights are whole units. Sums and share are exact, and compared when each is rounded to 53 bits.
    A user's 0.1 is a little more than a tenth as a float, and yet of ten equal elements the first
    one is wanted. NumPy rounds the share where it counts elements, so weights that are counts give
    the same result as repeated elements. The share 1 is that of all elements, however little the
    last one weighs.
    """
    if q in (0.0, 1.0):
        return (weight, weight) if q else (1, 1)
    numerator, denominator = q.as_integer_ratio()
    # Two more bits, for the sums halfway between that share and its neighbours of 53 bits.
    product = numerator * weight << DIGITS + 2
    shift = product.bit_length() - DIGITS
    leading, rest = divmod(product, 1 << shift)
    half = 1 << (shift - 1)
    leading += rest > half or (rest == half and leading % 2)
    is_even = leading % 2 == 0
    # Below a power of two, neighbours are closer. Above one that the share was rounded up to, they
    # are farther.
    below = (leading << 2) - (1 if leading == 1 << (DIGITS - 1) else 2)
    above = (leading << 2) + (4 if leading == 1 << DIGITS else 2)
    bounds = (below << (shift - 2), above << (shift - 2))
    scale = denominator << DIGITS + 2
    # A sum exactly halfway is rounded to the even neighbour.
    reached, passed = (
        -(-bound // scale) if has_tie else bound // scale + 1
        for bound, has_tie in zip(bounds, (is_even, not is_even), strict=True)
    )
    return min(max(reached, 1), weight), min(passed, weight)


@dataclass(frozen=True)
class FirstReached:
    """The first element up to which the elements reach some weight, and its place.

    Parameters
    ----------
    value : element
        Element, in the dtype of the chunks.
    place : int
        Place among the sorted candidates; for an end, the number of candidates before it.
    before, upto : int
        Weight of the elements before it and up to it; for an end, up to all elements equal to it.
    segment : int
        Number of its segment: even for a cell, odd for an end. See `maths.finish`.
    """

    value: Any
    place: int
    before: int
    upto: int
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The window of the weight over which a quantile of type 7 averages; see `window_means`.

    Parameters
    ----------
    low, high : int
        Where it begins and ends, in units of a unit of weight divided by `scale`.
    scale : int
        The weight of all elements times the denominator of the share.
    """

    low: int
    high: int
    scale: int

    @classmethod
    def of(cls, q: float, weight: int, square: int) -> Self:
        """Make the window of the share q, from the sums of all weights and of their squares."""
        numerator, denominator = q.as_integer_ratio()
        low = numerator * (weight * weight - square)
        return cls(low, low + square * denominator, weight * denominator)

    @property
    def needs(self) -> tuple[int, int]:
        """The least weights up to the first and the last element of the window."""
        return self.low // self.scale + 1, -(-self.high // self.scale)

    def mean(
        self, first: FirstReached, last: FirstReached, between: int, dtype: np.dtype[Any]
    ) -> Any:
        """Compute the mean from both ends and the sum of products of the elements between them.

        The mean is rounded once.
        """
        if first.value == last.value:
            return first.value
        if not (np.isfinite(first.value) and np.isfinite(last.value)):
            with np.errstate(invalid="ignore"):  # -inf and inf are NaN
                return first.value + last.value
        total = whole(first.value.item()) * (first.upto * self.scale - self.low)
        total += whole(last.value.item()) * (self.high - last.before * self.scale)
        total += between * self.scale
        return quotient(total, (self.high - self.low) << POINT, dtype)


@dataclass(frozen=True, eq=False)
class InOrder:
    """Sorted candidates of the second load, with sums of weights.

    Parameters
    ----------
    brackets : Brackets
    tally : Tally
        Tally of all chunks, at these brackets.
    elements, weights : ndarray
        Candidates, sorted, and their weights.
    starts : ndarray of int64, shape (E + 1,)
        Number of candidates before each cell.
    borders : list of int
        Weight of the elements up to the end of each segment.
    candidates_before : list of int
        Weight of the candidates before each cell.
    blocks : list of int
        Weight of the candidates up to the end of each block.
    """

    brackets: Brackets
    tally: Tally
    elements: NDArray[Any]
    weights: NDArray[Any]
    starts: IntArray
    borders: list[int]
    candidates_before: list[int]
    blocks: list[int]

    @classmethod
    def of(cls, brackets: Brackets, tally: Tally) -> Self:
        held = inside(tally) * brackets.wanted
        if held.sum() != len(tally.candidates):
            raise _left()
        ordered, weights = tally.in_order()
        assert weights is not None
        elements = ordered.on_host()
        block = np.arange(len(weights)) // BLOCK
        blocks = ExactSums.of(block, -(-len(weights) // BLOCK), weights).running()[1:]
        below = ExactSums.joined([tally.weight_below, tally.weight])
        cells = below.integers(WEIGHT_UNIT).tolist()
        borders = _interleaved(cells, tally.weight_upto.integers(WEIGHT_UNIT).tolist())
        cells = [upto - begin for begin, upto in zip([0, *borders[1::2]], cells, strict=True)]
        gathered = accumulate(np.where(brackets.wanted, np.array(cells, object), 0).tolist())
        return cls(
            brackets,
            tally,
            elements,
            weights,
            held.cumsum() - held,
            borders,
            [0, *gathered],
            blocks.integers(WEIGHT_UNIT).tolist(),
        )

    @property
    def weight(self) -> int:
        """Weight of all elements."""
        return self.borders[-1]

    def reaching(self, weights: Sequence[int]) -> list[FirstReached]:
        """Find the first elements up to which the elements weigh at least each given weight.

        Each weight is at least 1 and at most that of all elements.

        Raises
        ------
        ChunksChangedError
            If one of them is not among the candidates: load 2 read other data than load 1.
        """
        found: dict[int, FirstReached] = {}
        at = -1  # the block of the previous weight
        for weight in sorted(set(weights)):
            segment = bisect_left(self.borders, weight)
            begin = self.borders[segment - 1] if segment else 0
            cell, is_end = divmod(segment, 2)
            if is_end:
                place, value = int(self.starts[cell + 1]), self.brackets.ends[cell]
                found[weight] = FirstReached(value, place, begin, self.borders[segment], segment)
                continue
            if not self.brackets.wanted[cell]:
                raise _left()
            # `beside` converts a weight to the weight among the candidates alone.
            beside = self.candidates_before[cell] - begin
            block = bisect_left(self.blocks, weight + beside)
            if block != at:
                before, at = self._sums_in(block), block
            size = min(BLOCK, len(self.weights) - block * BLOCK)
            i = bisect_left(range(size + 1), weight + beside, 1, key=before)
            place = block * BLOCK + i - 1
            ends = before(i - 1) - beside, before(i) - beside
            found[weight] = FirstReached(self.elements[place], place, *ends, segment)
        return [found[weight] for weight in weights]

    def below(self, value: Any) -> int:
        """Compute the weight of the elements below a value.

        The value must be an end, or lie in a cell that was gathered or is empty.
        """
        return self._before(value, 0, "left")

    def upto(self, value: Any) -> int:
        """Compute the weight of the elements up to a value; see `below`."""
        return self._before(value, 1, "right")

    def _before(self, value: Any, upto: int, side: Literal["left", "right"]) -> int:
        ends = self.brackets.ends
        cell = int(ends.searchsorted(value))
        if cell < len(ends) and ends[cell] == value:
            return self.borders[2 * cell + upto]
        begin = self.borders[2 * cell - 1] if cell else 0
        place = int(self.elements.searchsorted(value, side))
        block, rest = divmod(place, BLOCK)
        before = self._sums_in(block)(rest)
        # An empty cell has no candidates.
        return begin + (before - self.candidates_before[cell] if self.brackets.wanted[cell] else 0)

    def at(self, values: NDArray[Any]) -> ExactSums:
        """Compute the weight of the elements that equal each of some ascending distinct values."""
        ends, tally = self.brackets.ends, self.tally
        held = slice(
            self.elements.searchsorted(values[0]),
            self.elements.searchsorted(values[-1], "right"),
        )
        some, weights = self.elements[held], self.weights[held]
        place = values.searchsorted(some)
        is_one = values[place] == some
        found = ExactSums.of(place[is_one], len(values), weights[is_one])
        end = np.minimum(ends.searchsorted(values), max(len(ends) - 1, 0))
        if len(ends):
            at_ends = (tally.weight_upto - tally.weight_below)[end]
            found += at_ends.where(ends[end] == values)
        return found

    def _sums_in(self, block: int) -> Callable[[int], int]:
        """Return a function from n to the weight of the candidates before a block, and n in it."""
        some = self.weights[block * BLOCK : (block + 1) * BLOCK]
        start = self.blocks[block - 1] if block else 0
        sums = ExactSums.of(np.arange(len(some)), len(some), some).running()
        return lambda n: start + sums[n].integers(WEIGHT_UNIT).item()


def shares(
    order: InOrder, q: Sequence[float], *, with_next: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Find the first elements up to which shares q of all weights are reached.

    With `with_next`, also find those up to which the shares are exceeded. They are the next larger
    ones where the first weigh exactly the share.
    """
    needs, later = zip(*(reached_and_passed(each, order.weight) for each in q), strict=True)

    def values(weights: Sequence[int]) -> NDArray[Any]:
        return np.array([each.value for each in order.reaching(weights)], order.brackets.ends.dtype)

    reached = values(needs)
    return reached, values(later) if with_next else reached


def window_means(order: InOrder, q: Sequence[float], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Compute weighted quantiles of type 7: the means of windows of the weight.

    The window of q begins behind the weight ``q (W - S/W)`` and is ``S/W`` wide, where W is the sum
    of all weights and S that of their squares: Kish's effective number of elements is W*W/S. Of n
    equal weights it begins behind ``q (n - 1)`` elements and is one element wide.

    Returns
    -------
    ndarray of `dtype`, shape (n_q,)
        Each exact and rounded once.

    References
    ----------
    A. Akinshin, "Weighted quantile estimators", arXiv:2304.07265, 2023.
    """
    square = order.tally.square.integers(PRODUCT_UNIT).item()
    windows = [Window.of(each, order.weight, square) for each in q]
    ends = order.reaching([window.needs[i] for i in (0, 1) for window in windows])
    between = Products.of(order, ends)
    answers = np.empty(len(q), dtype)
    pairs = zip(windows, ends[: len(q)], ends[len(q) :], strict=True)
    for i, (window, first, last) in enumerate(pairs):
        is_whole = np.isfinite(first.value) and np.isfinite(last.value)
        product = between.of_window(first, last) if is_whole and first.value != last.value else 0
        answers[i] = window.mean(first, last, product, dtype)
    return answers


@dataclass(frozen=True, eq=False)
class Products:
    """Sums of element times weight, over all finite elements that the second load knows.

    Parameters
    ----------
    segments : list of int
        Sum over all segments before each one.
    starts : ndarray of int64
        Number of candidates before each cell.
    places : ndarray of int64
        Some places among the sorted candidates, ascending.
    candidates : list of int
        Sum over the candidates before each of these places.
    unknown : ndarray of int64
        Number of unknown segments before each one.
    """

    segments: list[int]
    starts: IntArray
    places: IntArray
    candidates: list[int]
    unknown: IntArray

    @classmethod
    def of(cls, order: InOrder, ends: Sequence[FirstReached]) -> Self:
        """Compute the sums between some elements; cells that are not gathered may be summed."""
        brackets, tally = order.brackets, order.tally
        at = np.array([end.place for end in ends], np.int64)
        places = np.unique(np.concatenate([[0], order.starts, at, at + 1]))
        places = places[places <= len(order.elements)]
        finite = np.flatnonzero(np.isfinite(order.elements))
        group = places.searchsorted(finite, side="right")
        some = order.elements[finite], order.weights[finite]
        sums = ExactSums.of(group, len(places) + 1, *some).running()[1:]
        candidates = sums.integers(PRODUCT_UNIT).tolist()

        n_cells = len(brackets.wanted)
        stops = [*order.starts[1:], len(order.elements)]
        known = np.array(candidates, object)
        at_cells = known[places.searchsorted(stops)] - known[places.searchsorted(order.starts)]
        if len(tally.products):
            at_cells += tally.products.integers(PRODUCT_UNIT)
        # An infinite end is the end of a window, and never between two ends.
        values = np.where(np.isfinite(brackets.ends), brackets.ends, 0).tolist()
        at_ends = (tally.weight_upto - tally.weight_below).integers(WEIGHT_UNIT)
        at_ends *= [whole(value) for value in values]
        is_unknown = (inside(tally) > 0) & ~brackets.asked
        unknown = np.zeros(2 * n_cells, np.int64)
        unknown[1::2] = is_unknown.cumsum()
        unknown[2::2] = unknown[1:-1:2]
        segments = [*accumulate(_interleaved(at_cells.tolist(), at_ends.tolist()), initial=0)]
        return cls(segments, order.starts, places, candidates, unknown)

    def of_window(self, first: FirstReached, last: FirstReached) -> int:
        """Compute the sum over the elements behind the first one and before the last."""
        if self.unknown[last.segment] > self.unknown[first.segment]:
            raise _left()
        begin = self._before(first, int(first.segment % 2 == 0))
        if first.segment % 2:
            begin = self.segments[first.segment + 1]
        return self._before(last, 0) - begin

    def _before(self, found: FirstReached, more: int) -> int:
        """Compute the sum over all elements before one, and over `more` candidates from it on."""
        before = self.segments[found.segment]
        if found.segment % 2:
            return before
        places = found.place + more, self.starts[found.segment // 2]
        stop, start = (self.candidates[self.places.searchsorted(place)] for place in places)
        return before + stop - start


def inside(tally: Tally) -> IntArray:
    """Count the elements in each cell."""
    return np.append(tally.below, tally.n_valid) - np.append(np.int64(0), tally.upto)


def whole(number: float) -> int:
    """Convert a finite number to units of ``2**-POINT``."""
    numerator, denominator = number.as_integer_ratio()
    return numerator << (POINT + 1 - denominator.bit_length())


def _interleaved(cells: list[int], ends: list[int]) -> list[int]:
    """Interleave values of cells with values of the ends between them."""
    every = [0] * (len(cells) + len(ends))
    every[::2], every[1::2] = cells, ends
    return every


def _left() -> ChunksChangedError:
    return ChunksChangedError(
        "the data have changed since the first read: wanted weights are outside their brackets. "
        f"{ADVICE}"
    )
