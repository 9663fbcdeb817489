"""What all elements of each value weigh in every group of NumPy chunks, compiled by Numba.

A weight is added to the digits of its value from its own exponent on, so no sum is rounded. A table
has a few digits for each value that there can be: those that the weights of a part need, which is
mostly five of 64 bits. Where weights differ so much that these would be too many, the part is
taken several times, each time the weights of some exponents. Of 4e6 normal elements with float64
weights in [0, 1) on one thread it takes 3.1 ns for each uint8 and 4.4 for each int16 (5.1 and 6.5
with squares), and `weighing.cuts`, of the first of two loads, 3.8 and 7.0. Of int16 in 12 groups it
takes 19 ns: their table does not fit a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import Types, compiles, types, until_compiled
from dask_gpuselect.kernels.cpu.moments import CARRY_EVERY, add_at, carry, whole_of
from dask_gpuselect.kernels.cpu.weighing import add_product
from dask_gpuselect.kernels.cpu.word_counts import is_word
from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.kernels.reference.groups import WeighedWords
from dask_gpuselect.maths.moments import SQUARE_DIGITS
from dask_gpuselect.maths.value_weights import WordWeights
from dask_gpuselect.maths.weights import NEGATIVE, NOT_FINITE

__all__ = ["value_weights"]

ROOM = 1 << 23  # bytes of a table that is worth it, whatever it is of
LEAST_DIGITS = 5  # that a table has room for: exponents that differ by 64
EXPONENTS = 1 << 11


def value_weights(
    parts: Iterable[WeighedWords],
    n_groups: int,
    n_words: int,
    squared: NDArray[np.bool_] | None,
) -> Iterator[WordWeights]:
    """See `reference.groups.value_weights`. Scratch: 48 bytes for each value that there can be of
    each group, or 8 MiB."""
    sums = _Sums(n_groups, n_words, squared)
    for part in parts:
        yield from _add_part(sums, part)
    yield from sums.taken()


class _Sums:
    """Tables of sums, growing by a part with each call: mostly one.

    Parameters
    ----------
    n_groups, n_words : int
    squared : ndarray of bool, or None
        Of which words the squares of the weights are added up too.
    """

    def __init__(self, n_groups: int, n_words: int, squared: NDArray[np.bool_] | None) -> None:
        self.n_groups, self.n_words, self.squared = n_groups, n_words, squared
        self.most = max(ROOM // (8 * n_groups * n_words) - 1, LEAST_DIGITS)
        self.squares = np.zeros((n_groups, 0 if squared is None else SQUARE_DIGITS), np.int64)
        self.others = np.zeros((n_groups, 2), np.int64)
        self.first, self.table = 0, np.zeros((0, 1), np.int64)
        self.is_new, self.n_added = True, 0

    def spans(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Digits from the first to the last, exclusive, in spans that fit a table. In each begin
        the weights whose lowest bits are in all of its digits but the last two."""
        step = self.most - 2
        while first < stop - 2:
            yield first, min(first + step + 2, stop)
            first += step

    def has_room(self, first: int, stop: int) -> bool:
        return bool(self.table.size) and (
            self.first <= first and stop <= self.first + self.table.shape[1] - 1
        )

    def begin(self, first: int, stop: int) -> None:
        """Make room for these digits, in a table of which nothing has been added up yet."""
        # The least of the weights of a part may be less than that of the part before.
        low = max(first - 1, 0) if stop - first < self.most else first
        self.first = low
        self.table = np.zeros((self.n_groups * self.n_words, stop - low + 1), np.int64)

    def taken(self) -> Iterator[WordWeights]:
        """What has been added up, which is forgotten; nothing if that is nothing."""
        if not self.table.size and not self.others.any() and not self.is_new:
            return
        rows = np.flatnonzero(self.table[:, 0])
        table = self.table if len(rows) == len(self.table) else self.table[rows]
        squares = self.squares if self.squares.shape[1] else None
        found = rows, table[:, 0], table[:, 1:], self.first, squares, *self.others.T
        self.squares, self.others = np.zeros_like(self.squares), np.zeros_like(self.others)
        self.table, self.is_new, self.n_added = np.zeros((0, 1), np.int64), False, 0
        del table, rows
        yield WordWeights(*found)


def _add_by_numpy(sums: _Sums, part: WeighedWords) -> Iterator[WordWeights]:
    return reference.value_weights([part], sums.n_groups, sums.n_words, sums.squared)


@until_compiled(_add_by_numpy)
def _add_part(sums: _Sums, part: WeighedWords) -> Iterator[WordWeights]:
    """Add a part; what has to be taken out of the tables for that, before the next is added."""
    if part[1].dtype != np.float64:  # integers beyond 2**53
        return _add_by_numpy(sums, part)
    dtype = part[0].dtype
    return _added(sums, part, _compiled(_exponents, dtype), _compiled(_add, dtype))


def _added(sums: _Sums, part: WeighedWords, exponents: Any, add: Any) -> Iterator[WordWeights]:
    words, weights, keeps, codes = part
    words, weights = (np.require(each, requirements=["C", "A"]) for each in (words, weights))
    for start in range(0, max(words.size, 1), CARRY_EVERY):
        some = slice(start, start + CARRY_EVERY)
        bits = weights[some].view(np.int64)
        given = words[some], bits, _kept(keeps, words.size)[some], codes[some]
        is_there = np.flatnonzero(exponents(bits, np.zeros(EXPONENTS, np.bool_)))
        digits = np.array([whole_of(int(each) << 52)[1] >> 5 for each in is_there], np.int64)
        first, stop = (int(digits[0]), int(digits[-1]) + 3) if len(digits) else (0, 3)
        counts_others = True
        for low, high in sums.spans(first, stop):
            begins = (digits >= low) & (digits < high - 2)
            if not begins.any() and not counts_others:
                continue
            if not sums.has_room(low, high) or sums.n_added + words.size > CARRY_EVERY:
                if sums.table.size:
                    yield from sums.taken()
                sums.begin(low, high)
            squared = np.empty(0, np.bool_) if sums.squared is None else sums.squared
            tables = squared, sums.table, sums.squares, sums.others
            n_negative, n_not_finite = add(
                *given, sums.n_words, sums.first, low, high - 2, counts_others, *tables
            )
            if n_negative:
                raise ValueError(NEGATIVE)
            if n_not_finite:
                raise ValueError(NOT_FINITE)
            counts_others = False
        sums.n_added += min(words.size - start, CARRY_EVERY)


def _kept(keeps: Any, n: int) -> Any:
    return np.broadcast_to(np.True_, n) if keeps is None else keeps


def _exponents(bits: Any, found: Any) -> Any:
    """Which exponents the positive and finite weights have."""
    for k in range(bits.size):
        if bits[k] > 0:
            found[bits[k] >> 52] = True
    found[found.size - 1] = False  # infinite, or NaN
    return found


def _add(
    words: Any,
    bits: Any,
    keeps: Any,
    codes: Any,
    n_words: Any,
    first: Any,
    low: Any,
    high: Any,
    counts_others: Any,
    squared: Any,
    table: Any,
    squares: Any,
    others: Any,
) -> Any:
    """Add the weights whose lowest bits are in some digits, each to the row of its word and group,
    which has their number first; count those that are none."""
    n_negative, n_not_finite = 0, 0
    infinite = np.int64(0x7FF) << 52
    for k in range(words.size):
        code = codes[k]
        if code < 0:
            continue
        if not keeps[k]:
            others[code, 1] += counts_others
            continue
        number = bits[k]
        if number <= 0 or number >= infinite:
            is_zero = number << 1 == 0
            others[code, 0] += counts_others & is_zero
            # The sign bit of a NaN says nothing.
            is_negative = (number < 0) & (number & np.int64(0x7FFFFFFFFFFFFFFF) <= infinite)
            n_negative += is_negative & (not is_zero)
            n_not_finite += (not is_negative) & (not is_zero)
            continue
        whole, begin = whole_of(number)
        digit = begin >> 5
        if digit < low or digit >= high:
            continue
        row = table[code * n_words + np.int64(words[k])]
        row[0] += 1
        add_at(row, first - 1, whole, begin)
        if squared.size and squared[words[k]]:
            size = np.uint64(whole)
            add_product(squares[code], size, size, 2 * begin, False)
    if squared.size:
        for row in squares:
            carry(row)
    return n_negative, n_not_finite


@compiles
def _compiled(words: types.Array, _: types.Array) -> Types:
    if not is_word(words.dtype):
        return {}
    bits = types.Array(types.int64, 1, "C", readonly=True)
    keeps = types.Array(types.boolean, 1, "A", readonly=True)
    codes = types.Array(types.int32, 1, "A", readonly=True)
    flags = types.Array(types.boolean, 1, "C", readonly=True)
    tables, size, flag = 3 * (types.Array(types.int64, 2, "C"),), types.int64, types.boolean
    return {
        _exponents: (bits, types.Array(types.boolean, 1, "C")),
        _add: (words, bits, keeps, codes, size, size, size, size, flag, flags, *tables),
    }
