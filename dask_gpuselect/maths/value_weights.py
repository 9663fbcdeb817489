"""What all elements of each value weigh together, in every lane or group, of data that have so few
values that all can be weighed.

Sums of weights are exact: see `exact_sums`. All elements are one lane. Plain NumPy on the host; see
`value_counts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import Arrays, Brackets, IntArray, extremes_of
from dask_gpuselect.maths.exact_sums import DIGIT, MASK, Running, Sums
from dask_gpuselect.maths.group_cuts import packed
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_ends import Bounds
from dask_gpuselect.maths.lane_weight_ends import HeavyEnds, WeightedLaneEnds
from dask_gpuselect.maths.lane_weights import Items, Numbers, Wanted, WeighedLanes
from dask_gpuselect.maths.moments import DIGIT as WIDE
from dask_gpuselect.maths.moments import SQUARE_POINT, TOTAL_POINT, Moments
from dask_gpuselect.maths.value_counts import (
    FLOAT16_POINT,
    most_values,
    places_of_values,
)
from dask_gpuselect.maths.weights import POINT, ExactSums, WeightedTally

AT_ONCE = 1 << 12  # values whose digits are narrowed together
CELLS = 1 << 18  # of a table of lanes that are answered together, unless one alone has more


class WordWeights(NamedTuple):
    """What a kernel finds: the weights of words of bits, each in a group.

    Parameters
    ----------
    rows : ndarray of int64, shape (U,)
        Those that occur: ``group * n_words + word``, ascending and distinct.
    counts : ndarray of int64, shape (U,)
        How many elements each is.
    digits : ndarray of int64, shape (U, n_digits)
        What these weigh: digits of 32 bits, from number `first` of `moments` on. They may be larger
        than that, for carries wait.
    first : int
    squares : ndarray of int64, shape (n_groups, SQUARE_DIGITS), or None
        The sums of the squares of the weights of each group, as of `moments`, of those words that
        are asked for; None if none are.
    n_idle, n_left_out : ndarray of int64, shape (n_groups,)
        Elements that weigh nothing, and those that are left out.
    """

    rows: IntArray
    counts: IntArray
    digits: IntArray
    first: int
    squares: IntArray | None
    n_idle: IntArray
    n_left_out: IntArray


@dataclass(frozen=True, eq=False)
class ValueWeights(Arrays):
    """The valid elements of many lanes that weigh anything, of some chunks, by their values.

    Parameters
    ----------
    sizes : ndarray of unsigned integers, shape (n_lanes,)
        How many values occur in each lane.
    values : ndarray of a `selection_dtype`, shape (P,)
        Those that occur, lane by lane; ascending and distinct within a lane. No NaN.
    counts : ndarray of unsigned integers, shape (P,)
        How often each of them does.
    weights : Sums, shape (P,)
        What all elements of each weigh.
    squares : Sums, shape (n_lanes,)
        The sums of the squares of the weights; zeros if they are not wanted.
    numbers : Numbers
    """

    sizes: NDArray[Any]
    values: NDArray[Any]
    counts: NDArray[Any]
    weights: Sums
    squares: Sums
    numbers: Numbers

    # --- From what kernels find, and several together ---------------------------------------------

    @classmethod
    def of_words(cls, found: WordWeights, dtype: np.dtype[Any]) -> Self:
        """Those of elements of a countable dtype."""
        n_lanes, n_words = len(found.n_idle), 1 << 8 * dtype.itemsize
        lanes, words = np.divmod(found.rows, n_words)
        values = words.astype(f"u{dtype.itemsize}").view(dtype.newbyteorder("="))
        is_missing = values != values
        missing = _sums_of_lanes(np.where(is_missing, found.counts, 0), lanes, n_lanes)
        some, kind = np.flatnonzero(~is_missing), selection_dtype(dtype)
        # Zeros of both signs have one place.
        keys = lanes[some] * most_values(kind) + places_of_values(values[some].astype(kind))
        order = np.argsort(keys, kind="stable")
        keys, some = keys[order], some[order]
        weights = _narrow(found.digits, 2 * (found.first - TOTAL_POINT), some)
        squares = Sums.zeros((n_lanes,))
        if found.squares is not None:
            squares = _narrow(found.squares, -2 * SQUARE_POINT, np.arange(n_lanes))
        zero = np.zeros(n_lanes, np.int64)
        numbers = Numbers(zero, missing, found.n_idle, found.n_left_out)
        part = keys, values[some].astype(kind), found.counts[some], weights
        return cls._of_parts([part], kind, squares, numbers)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The weights of all parts together."""
        if len(parts) == 1:
            return parts[0]
        kind = parts[0].values.dtype
        each = [
            (
                part.lanes * most_values(kind) + places_of_values(part.values),
                part.values,
                part.counts,
                part.weights,
            )
            for part in parts
        ]
        squares = Sums.sum([part.squares for part in parts])
        return cls._of_parts(each, kind, squares, Numbers.sum([part.numbers for part in parts]))

    @classmethod
    def _of_parts(
        cls,
        parts: Sequence[tuple[IntArray, NDArray[Any], NDArray[Any], Sums]],
        kind: np.dtype[Any],
        squares: Sums,
        numbers: Numbers,
    ) -> Self:
        """Of values of some parts, each by its number among those of all lanes: these ascend in a
        part, and zeros of both signs may have one."""
        n_lanes = len(numbers.valid)
        is_there = np.zeros(n_lanes * most_values(kind), np.bool_)
        for keys, *_ in parts:
            is_there[keys] = True
        every = np.flatnonzero(is_there)
        place_of = np.cumsum(is_there, dtype=np.int64)
        del is_there
        values, counts = np.zeros(len(every), kind), np.zeros(len(every), np.int64)
        places = []
        for keys, own, number, _ in parts:
            places.append(place_of[keys] - 1)
            values[places[-1]] = own
            np.add.at(counts, places[-1], number.astype(np.int64))
        del place_of
        lanes = every // most_values(kind)
        weights = _sums_at(places, [part[-1] for part in parts], len(every))
        valid = _sums_of_lanes(counts, lanes, n_lanes)
        numbers = replace(numbers, valid=valid)
        sizes = np.bincount(lanes, minlength=n_lanes)
        return cls(packed(sizes), values + kind.type(0), packed(counts), weights, squares, numbers)

    def spread(self, places: IntArray, n_lanes: int) -> Self:
        """The same as some of `n_lanes`, which are at these ascending places."""

        def among(own: NDArray[Any]) -> NDArray[Any]:
            found = np.zeros((*own.shape[:-1], n_lanes), own.dtype)
            found[..., places] = own
            return found

        numbers = self.numbers
        columns = numbers.valid, numbers.missing, numbers.idle, numbers.left_out
        return replace(
            self,
            sizes=among(self.sizes),
            squares=Sums(self.squares.first, among(self.squares.digits)),
            numbers=Numbers(*map(among, columns)),
        )

    @property
    def n_lanes(self) -> int:
        return len(self.sizes)

    @cached_property
    def _stops(self) -> IntArray:
        """Where the values of each lane end."""
        return np.cumsum(self.sizes, dtype=np.int64)

    @property
    def lanes(self) -> IntArray:
        """The lane of each value."""
        return np.repeat(np.arange(self.n_lanes), self.sizes)

    # --- All elements: one lane -------------------------------------------------------------------

    @property
    def _exact(self) -> ExactSums:
        """What the elements of each value weigh, in the units of `WeightedTally`."""
        return self.weights.integers(-POINT // DIGIT)

    def tally(self, brackets: Brackets) -> WeightedTally:
        """What a load would find at all values of the only lane."""
        numbers, exact, counts = self.numbers, self._exact, self.counts.astype(np.int64)
        upto, weight_upto = np.cumsum(counts), np.cumsum(exact)
        square = self.squares.integers(-2 * POINT // DIGIT)
        n_cells = len(brackets.wanted)
        return WeightedTally(
            upto - counts,
            upto,
            HostCandidates(self.values[:0]),
            int(numbers.valid[0]),
            int(numbers.missing[0]),
            weight_upto - exact,
            weight_upto,
            int(weight_upto[-1]) if len(exact) else 0,
            np.empty(0),
            n_left_out=int(numbers.left_out[0]),
            n_idle=int(numbers.idle[0]),
            square=int(square[0]),
            products=np.zeros(n_cells, object),
        )

    def among(self, values: NDArray[Any]) -> Self:
        """The elements of some of the values: of all, as yet."""
        assert values is self.values
        return self

    def moments(self) -> Moments:
        """The exact sums of all elements."""
        (found,) = self._moments()
        return found

    # --- Lanes ------------------------------------------------------------------------------------

    def found(self, wanted: Wanted) -> WeighedLanes:
        """What answers some questions about every lane."""
        self.numbers.check()
        shape = self.n_lanes, len(wanted.q)
        dtype = wanted.dtype if wanted.method == "linear" else self.values.dtype
        lower, upper = np.zeros(shape, dtype), np.zeros(shape, dtype)
        for rows in self._tables():
            items = self._items(rows)
            for i, q in enumerate(wanted.q):
                lower[rows, i], upper[rows, i] = items.answer(q, wanted)
        return WeighedLanes(lower, upper, self.numbers)

    def _tables(self) -> Iterator[IntArray]:
        """Lanes that have elements, so many at once that a table of their values is small."""
        some = np.flatnonzero(self.sizes)
        start = 0
        while start < len(some):
            sizes = np.maximum.accumulate(self.sizes[some[start:]].astype(np.int64))
            fits = sizes * np.arange(1, len(sizes) + 1) <= CELLS
            n = max(int(np.count_nonzero(fits)), 1)
            yield some[start : start + n]
            start += n

    def _items(self, rows: IntArray) -> Items:
        """The values of some lanes in the rows of a table."""
        n = self.sizes[rows].astype(np.int64)
        place = np.arange(int(n.max()))
        is_one = place < n[:, None]
        at = np.where(is_one, (self._stops[rows] - n)[:, None] + place, 0)
        digits = np.where(is_one, self.weights.digits[:, at], 0).astype(np.int64)
        bits = 48 if int(place.size).bit_length() <= 15 else 32
        step = bits // DIGIT
        limbs = []
        for i in range(0, len(digits), step):
            limb = np.zeros(at.shape, np.int64)
            for j, digit in enumerate(digits[i : i + step]):
                limb |= digit << DIGIT * j
            limbs.append(limb.cumsum(axis=1))
        for low, high in zip(limbs[:-1], limbs[1:], strict=True):
            high += low >> bits
            low &= (1 << bits) - 1
        running = Running(DIGIT * self.weights.first, bits, limbs)
        square = self.squares[rows]
        return Items(self.values[at], running, Sums.zeros(n.shape), n, running.at(n), square)

    def ends(self, bounds: Bounds, most: int) -> WeightedLaneEnds:
        """What is beyond the bounds of every lane, with the values of so many elements of each
        side."""
        self.numbers.check()
        values, lanes, exact = self.values, self.lanes, self._exact
        wide = values.astype(np.float64)
        low, high = bounds.low[lanes], bounds.high[lanes]
        least, largest = extremes_of(values.dtype)
        counts = self.counts.astype(np.int64)
        moments = self._moments()

        def extreme(takes: NDArray[np.bool_], other: Any, ufunc: Any) -> NDArray[Any]:
            found = np.full(self.n_lanes, other, values.dtype)
            ufunc.at(found, lanes[takes], values[takes])
            return found

        def beyond(takes: NDArray[np.bool_], *, is_high: bool) -> HeavyEnds:
            some = np.flatnonzero(takes)
            if is_high:  # lanes ascend, each with its largest first
                some = some[::-1][np.argsort(lanes[some[::-1]], kind="stable")]
            before = np.cumsum(counts[some]) - counts[some]
            own = lanes[some]
            # As long as fewer elements of the lane are more extreme.
            is_kept = before - before[np.searchsorted(own, own)] < most
            kept = some[is_kept]
            return HeavyEnds(
                _exact_of_lanes(exact[takes], lanes[takes], self.n_lanes),
                np.bincount(lanes[kept], minlength=self.n_lanes),
                values[kept],
                counts[kept],
                exact[kept],
            )

        every = np.ones(len(values), np.bool_)
        columns = ("n", "total", "square")
        finite, total, square = (
            np.array([getattr(each, name) for each in moments], object) for name in columns
        )
        return WeightedLaneEnds(
            numbers=self.numbers,
            least=extreme(every, largest, np.minimum),
            most=extreme(every, least, np.maximum),
            low=extreme(wide >= low, largest, np.minimum),
            high=extreme(wide <= high, least, np.maximum),
            weight=_exact_of_lanes(exact, lanes, self.n_lanes),
            beyond_low=beyond(wide < low, is_high=False),
            beyond_high=beyond(wide > high, is_high=True),
            n_high=_sums_of_lanes(np.where(wide == np.inf, counts, 0), lanes, self.n_lanes),
            n_low=_sums_of_lanes(np.where(wide == -np.inf, counts, 0), lanes, self.n_lanes),
            finite=finite,
            total=total,
            square=square,
        )

    def _moments(self) -> list[Moments]:
        """The exact sums of every lane."""
        point = FLOAT16_POINT if self.values.dtype.kind == "f" else 0
        is_finite = np.isfinite(self.values)
        # Whole numbers: of float16, which float32 multiplies exactly.
        finite = np.where(is_finite, self.values, 0).astype(np.float64)
        numbers = np.ldexp(finite, point).astype(np.int64).astype(object)
        weights = np.where(is_finite, self._exact, 0)
        products = weights * numbers
        counts = self.counts.astype(np.int64)
        n_high, n_low = (
            _sums_of_lanes(np.where(self.values == end, counts, 0), self.lanes, self.n_lanes)
            for end in (np.inf, -np.inf)
        )
        sums = (
            _exact_of_lanes(each, self.lanes, self.n_lanes)
            for each in (weights, products, products * numbers)
        )
        return [
            Moments(n, high, low, total << POINT - point, square << 2 * POINT - 2 * point)
            for n, total, square, high, low in zip(
                *(each.tolist() for each in (*sums, n_high, n_low)), strict=True
            )
        ]


def valid_words(dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which words of bits are no NaN, of a countable dtype."""
    words = np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}")
    if dtype.kind != "f":
        return np.ones(len(words), np.bool_)
    values = words.view(dtype.newbyteorder("="))
    return np.asarray(values == values)


def _narrow(digits: IntArray, first: int, rows: IntArray) -> Sums:
    """Sums of digits of 32 bits in some rows, with digits of 16 bits from number `first` on: some
    rows at a time, for digits that wait to be carried are of 64 bits."""
    n = digits.shape[1]
    found = np.empty((2 * n + 4, len(rows)), np.uint16)
    for start in range(0, len(rows), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        own = digits[rows[some]]
        carry = np.zeros(len(own), np.int64)
        for i in range(n):
            whole = own[:, i] + carry
            found[2 * i, some], found[2 * i + 1, some] = whole & MASK, (whole >> DIGIT) & MASK
            carry = whole >> WIDE
        for j in range(4):
            found[2 * n + j, some] = (carry >> DIGIT * j) & MASK
    return Sums(first, found).packed()


def _sums_at(places: Sequence[IntArray], parts: Sequence[Sums], n: int) -> Sums:
    """The sums of the numbers of all parts at each of `n` places, digit by digit: one row of 64
    bits is all that waits."""
    some = [part for part in parts if len(part.digits)]
    if not some:
        return Sums.zeros((n,)).packed()
    first = min(part.first for part in some)
    # Above the highest digit of all is what is carried.
    n_digits = max(part.first + len(part.digits) for part in some) - first + 1
    digits = np.empty((n_digits, n), np.uint16)
    row = np.zeros(n, np.int64)
    for i in range(n_digits):
        for at, part in zip(places, parts, strict=True):
            own = i - (part.first - first)
            if 0 <= own < len(part.digits):
                np.add.at(row, at, part.digits[own].astype(np.int64))
        digits[i] = row & MASK
        row >>= DIGIT
    return Sums(first, digits).trimmed()


def _sums_of_lanes(counts: IntArray, lanes: IntArray, n_lanes: int) -> IntArray:
    found = np.zeros(n_lanes, np.int64)
    np.add.at(found, lanes, counts)
    return found


def _exact_of_lanes(numbers: ExactSums, lanes: IntArray, n_lanes: int) -> ExactSums:
    found = np.zeros(n_lanes, object)
    np.add.at(found, lanes, numbers)
    return found
