"""Exact sums of NumPy chunks and of their squares, by Numba; see `moments`.

Elements are taken in blocks. In a block they are cut into pieces of 22 bits at fixed places below a
power of two that is larger than most of them (Rump's ExtractVector; Demmel & Nguyen's indexed
sums). The pieces, and the products of two of them, are multiples of known powers of two. They are
so small that a block of them adds up in float64 without rounding, in any order, so that the
compiler may vectorise the sums. An element with bits above or below the pieces contributes nothing
there and is added by itself: digit by digit, or, in a large chunk, to sums of its own exponent,
which are added to the digits at the end (Neal's large superaccumulator). A sample decides where a
block is cut. That affects only the speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    by_types,
    called_by_kernels,
    called_with,
    kernel_of,
    renamed,
    until_compiled,
)
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.scalars import append
from dask_gpuselect.kernels.reference import moments as reference
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    OFFSET,
    SQUARE_DIGITS,
    SQUARE_POINT,
    TOTAL_DIGITS,
    TOTAL_POINT,
    ExactSums,
)
from dask_gpuselect.maths.moments import Moments

# Elements of a block: 512 products of two pieces, each of at most 2**44 units, add up to at most
# 2**53. With 2,048 elements and smaller pieces, most blocks of normal data have elements that do
# not fit, and sums take 1.5 times as long.
BLOCK = 512
WIDTH = 23  # bits of a piece
MOST_PIECES = 4
N_SUMS = MOST_PIECES + MOST_PIECES * (MOST_PIECES + 1) // 2  # of pieces, and of products of two
PART = 1 << 17  # elements in a cache of the processor
RUNS = 1 << 12  # whose digits are there together, of 2 KB each
LARGEST = 400  # largest exponent at which blocks are cut; its negative is the smallest
CARRY_EVERY = 1 << 27  # elements after which 64-bit digits could overflow
SAMPLED = 32  # elements of a block that are sampled to choose where it is cut
# From LARGE elements on, sums of each exponent are worth their 20 us if many elements are added by
# themselves. They have room for SPILL_EVERY elements.
LARGE, SPILL_EVERY = 1 << 13, 1 << 20
EXPONENTS, SUMS_OF_EACH = 1 << 11, 8  # five sums of each, padded to a cache line
# Approximate cost of an element in nanoseconds: cut into 2, 3 or 4 pieces, or added by itself.
COSTS = (0.0, 0.0, 0.4, 0.7, 1.2)
ALONE = 10.0
TOO_MANY = BLOCK // 16  # elements of a block added by themselves, above which to choose a new cut
AGAIN = 16  # blocks after which choosing again is worth the time
MASK = np.int64(0xFFFFFFFF)
UMASK = np.uint64(0xFFFFFFFF)
USHIFT = np.uint64(32)
ZERO = np.float64(0)
ZEROTH, ONE, TWO, THREE, FOUR = (np.uint64(i) for i in range(5))


@until_compiled(reference.moments)
def moments(
    values: NDArray[Any], near: Any = None, cells: NDArray[np.bool_] | None = None
) -> Moments:
    """Sum a chunk exactly; see `reference.moments.moments`. Reads it once."""
    if cells is None:
        return moments_of_runs(values, np.array([values.size]))
    if values.dtype.kind != "f":
        some = values[reference.in_cells(values, near, cells)]
        return moments_of_runs(some, np.array([some.size]))
    tables, others, n_some = _tables_for(1), np.zeros((1, 3), np.int64), 0
    for size, part in _parts(values, near, cells):
        stops = np.array([[0], [part.size]])
        _add_floats(part[np.newaxis], *stops, tables, others, _least_pieces(values))
        n_some += size
    return moments_of(n_some, others.T, *tables[::2])


@until_compiled(reference.moments_of_runs)
def moments_of_runs(values: NDArray[Any], stops: IntArray, near: Any = None) -> Moments:
    """Sum each of some runs of elements exactly; see `reference.moments.moments_of_runs`."""
    starts = np.concatenate([stops[:1] * 0, stops[:-1]])
    n, rows, pieces = stops - starts, values[np.newaxis], []
    if values.dtype.kind != "f":
        none = np.zeros_like(n)
        return Moments(n, none, none, *sums_of_sorted(rows, starts, stops))
    for i in range(0, max(len(n), 1), RUNS):
        own = slice(i, i + RUNS)
        tables, others = _tables_for(len(n[own])), np.zeros((len(n[own]), 3), np.int64)
        _add_floats(rows, starts[own], stops[own], tables, others, _least_pieces(values))
        pieces.append(moments_of(n[own], others.T, *tables[::2]))
    return Moments.joined(pieces)


def _tables_for(n: int) -> tuple[IntArray, int, IntArray, int]:
    """Make tables for the digits of all sums of n runs, as `_add_floats` takes them."""
    return np.zeros((n, TOTAL_DIGITS), np.int64), 0, np.zeros((n, SQUARE_DIGITS), np.int64), 0


def _parts(
    values: NDArray[Any], near: NDArray[Any], cells: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield parts of a chunk with zeros for the elements outside some cells, and the number inside.

    Zeros change no sum. Leaving elements out, or `np.where`, takes four times as long as the sums.
    """
    word = np.dtype(f"i{values.itemsize}")
    for start in range(0, values.size, PART):
        part = values[start : start + PART]
        is_some = reference.in_cells(part, near, cells)
        words = part.view(word) & -is_some.astype(word)
        yield int(np.count_nonzero(is_some)), words.view(part.dtype)


def moments_of(n: IntArray | int, others: IntArray, total: IntArray, square: IntArray) -> Moments:
    """Return the moments of lanes of n elements from the digits of their sums, a row for each lane.

    `others` holds the numbers of elements that are inf, -inf and NaN, in three rows.
    """
    sums = ExactSums.of_table(total, TOTAL_POINT), ExactSums.of_table(square, SQUARE_POINT)
    return Moments(n - others.sum(axis=0), others[0], others[1], *sums)


def _least_pieces(values: NDArray[Any]) -> int:
    """Return the number of pieces that hold most elements."""
    return 2 if values.dtype.itemsize < 8 else 3


# --- Floats: blocks -------------------------------------------------------------------------------


@called_with(fastmath={"reassoc"})
def plus(a: Any, b: Any) -> Any:
    """Add two floats so that the compiler may reorder sums and vectorise: they are exact."""
    return a + b


@called_with(fastmath={"reassoc", "contract"})
def plus_product(total: Any, a: Any, b: Any) -> Any:
    """Add a product to a float, in one instruction where there is one.

    The product is exact, and sums may be reordered.
    """
    return total + a * b


@kernel_of("f8 f4")
def _add_floats(
    rows: t.Rows,
    first: t.StridedInts,
    stop: t.StridedInts,
    tables: tuple[t.IntTable, int, t.IntTable, int],
    others: t.IntTable,
    least: int,
) -> None:
    """Add up the finite elements of every row, from `first` to `stop`, and count the others.

    If there is one row, all these stretches are in it.
    `tables` has the digits of the sums and of the sums of squares of each row, each with the number
    of the first. The first block is cut below the larger of the row's ends: sorted rows mostly fit.
    """
    scratch = _scratch()
    one, bits, _, _ = scratch
    total, first_total, square, first_square = tables
    of_each = np.zeros((0, SUMS_OF_EACH), np.int64)
    for i in range(first.size):
        x = rows[min(i, rows.shape[0] - 1), first[i] : stop[i]]
        if x.size == 0:
            continue
        digits = total[i], first_total, square[i], first_square
        one[0] = max(abs(x[0]), abs(x[x.size - 1]))
        top = np.int64(((bits[0] >> 52) & 0x7FF) - 1022)
        chosen = top, np.int64(least if abs(top) <= LARGEST else 0)
        again = 0
        for start in range(0, x.size, BLOCK):
            run = x[start : min(start + BLOCK, x.size)]
            n_alone = _add_run(run, chosen, digits, others[i], scratch, of_each)
            if n_alone > TOO_MANY and start >= again and start + BLOCK < x.size:
                chosen = _chosen(x[start + BLOCK : start + 2 * BLOCK], least, scratch)
                again = start + AGAIN * BLOCK
                if of_each.shape[0] == 0 and x.size - start >= LARGE:
                    of_each = np.zeros((EXPONENTS, SUMS_OF_EACH), np.int64)
            if start % SPILL_EVERY == SPILL_EVERY - BLOCK:
                _spill(of_each, digits)
            if start % CARRY_EVERY == CARRY_EVERY - BLOCK:
                carry(total[i])
                carry(square[i])
        _spill(of_each, digits)


@called_by_kernels
def _scratch() -> Any:
    """Allocate room for elements that are added by themselves, their bits and marks, and sums."""
    alone = np.empty(BLOCK, np.float64)
    return alone, alone.view(np.int64), np.zeros(BLOCK, np.uint8), np.empty(N_SUMS, np.float64)


@called_by_kernels
def carry(digits: Any) -> None:
    for i in range(digits.size - 1):
        digits[i + 1] += digits[i] >> 32
        digits[i] &= MASK


@called_by_kernels
def _add_run(run: Any, chosen: Any, digits: Any, others: Any, scratch: Any, of_each: Any) -> Any:
    """Add a block cut at a power of two, and return how many elements were added by themselves.

    These are added to the sums of each exponent if there are any, else to the digits. `chosen` is
    the power and the number of pieces, and `digits` are those of the sum and of the sum of squares,
    each with the number of the first.
    """
    top, n_pieces = chosen
    alone, bits, marks, sums = scratch
    n_fit = np.int64(0)
    if n_pieces:
        least = least_of(run, top, n_pieces)
        most = math.ldexp(1.0, top)
        n_fit = cut_up(run, top, n_pieces, least, sums)
        n_alone = _leave(run, least, most, alone, marks) if n_fit < run.size else 0
    else:
        n_alone = run.size
        for i in range(run.size):
            alone[i] = run[i]
    if n_fit:
        _add_pieces(sums, top, n_pieces, digits)
    if of_each.shape[0]:
        _add_to_exponents(bits[:n_alone], of_each, others)
    else:
        for i in range(n_alone):
            _add_one(bits[i], digits, others)
    return n_alone


@called_by_kernels
def _unit(top: Any, piece: Any) -> Any:
    """Return the exponent of the unit of a piece: pieces are multiples of it. They count from 0."""
    return top + 1 - WIDTH * (piece + 1)


@by_types
def _last_bit(run: Any) -> Any:
    """Return the largest distance between the first and the last bit of an element."""
    bits = 52 if run.dtype.bitwidth == 64 else 23
    return lambda run: bits


@called_by_kernels
def _fits(v: Any, least: Any, most: Any) -> Any:
    """Return whether the pieces can represent an element. Zeros add nothing, and do not count."""
    size = abs(v)
    return (size <= most) & (size >= least)


def _cutter(n_pieces: int) -> Any:
    """Make a function that cuts a block into `n_pieces` pieces and adds these up.

    Code for more pieces is removed when it is compiled. `sums` gets the sums of MOST_PIECES pieces,
    then those of the products of the first with each, of the second with it and later ones, and so
    on.
    """
    cutters = tuple(1.5 * 2.0 ** (53 - WIDTH * (piece + 1)) for piece in range(3))

    def cut(run: Any, least: Any, most: Any, sums: Any) -> Any:
        first, second, third = most * cutters[0], most * cutters[1], most * cutters[2]
        sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
        aa, ab, ac, ad, bb, bc, bd, cc, cd, dd = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        n_fit = np.int64(0)
        for i in range(run.size):
            v = np.float64(run[i])
            fits = _fits(v, least, most)
            n_fit += np.int64(fits)
            v = v if fits else ZERO
            a = (v + first) - first
            b = v - a
            if n_pieces > 2:
                rest = b
                b = (rest + second) - second
                c = rest - b
                if n_pieces > 3:
                    rest = c
                    c = (rest + third) - third
                    d = rest - c
                    sd = plus(sd, d)
                    ad, bd = plus_product(ad, a, d), plus_product(bd, b, d)
                    cd, dd = plus_product(cd, c, d), plus_product(dd, d, d)
                sc = plus(sc, c)
                ac, bc = plus_product(ac, a, c), plus_product(bc, b, c)
                cc = plus_product(cc, c, c)
            sa, sb = plus(sa, a), plus(sb, b)
            aa, ab, bb = plus_product(aa, a, a), plus_product(ab, a, b), plus_product(bb, b, b)
        sums[0], sums[1], sums[2], sums[3] = sa, sb, sc, sd
        sums[4], sums[5], sums[6], sums[7] = aa, ab, ac, ad
        sums[8], sums[9], sums[10], sums[11], sums[12], sums[13] = bb, bc, bd, cc, cd, dd
        return n_fit

    return called_by_kernels(renamed(cut, f"_cut_in_{n_pieces}"))


_cut_in_two, _cut_in_three, _cut_in_four = _cutter(2), _cutter(3), _cutter(4)


@called_by_kernels
def least_of(run: Any, top: Any, n_pieces: Any) -> Any:
    """Return a power of two from which on floats are multiples of the unit of the last piece."""
    return math.ldexp(1.0, _unit(top, n_pieces - 1) + _last_bit(run))


@called_by_kernels
def cut_up(run: Any, top: Any, n_pieces: Any, least: Any, sums: Any) -> Any:
    """Cut a block below a power of two, and add up the pieces of elements that are not too small.

    Returns the number of these elements. See `_cutter`.
    """
    most = math.ldexp(1.0, top)
    if n_pieces == 2:
        return _cut_in_two(run, least, most, sums)
    if n_pieces == 3:
        return _cut_in_three(run, least, most, sums)
    return _cut_in_four(run, least, most, sums)


@called_by_kernels
def _add_pieces(sums: Any, top: Any, n_pieces: Any, digits: Any) -> None:
    """Add the sums of the pieces, and then those of their products, to the digits."""
    total, first_total, square, first_square = digits
    place = MOST_PIECES
    for i in range(n_pieces):
        unit = _unit(top, i)
        whole = np.int64(sums[i] * math.ldexp(1.0, -unit))
        add_at(total, first_total, whole, unit + 32 * TOTAL_POINT)
        for j in range(i, n_pieces):
            both = unit + _unit(top, j)
            whole = np.int64(sums[place + j - i] * math.ldexp(1.0, -both))
            add_at(square, first_square, whole, both + 32 * SQUARE_POINT + (1 if j > i else 0))
        place += MOST_PIECES - i


@called_by_kernels
def add_at(digits: Any, first: Any, number: Any, begin: Any) -> None:
    """Add a number of at most 63 bits to digits, its lowest bit at bit `begin`."""
    i, shift = np.uint64((begin >> 5) - first), begin & 31  # unsigned: it is never negative
    sign = number >> 63  # a branch would be mispredicted every other time
    size = (number ^ sign) - sign
    low, high = (size & MASK) << shift, (size >> 32) << shift
    digits[i] += ((low & MASK) ^ sign) - sign
    digits[i + ONE] += (((low >> 32 & MASK) + (high & MASK)) ^ sign) - sign
    digits[i + TWO] += ((high >> 32) ^ sign) - sign


@called_by_kernels
def add_product(digits: Any, a: Any, b: Any, begin: Any, is_negative: Any) -> None:
    """Add a product of two 64-bit numbers to digits, its lowest bit at bit `begin`.

    The product has four digits, and a fifth after the shift.
    """
    first, second = a & UMASK, a >> USHIFT
    third, fourth = b & UMASK, b >> USHIFT
    own, top = first * third, second * fourth
    cross, other = first * fourth, second * third
    middle = (own >> USHIFT) + (cross & UMASK) + (other & UMASK)
    upper = (middle >> USHIFT) + (cross >> USHIFT) + (other >> USHIFT) + (top & UMASK)
    last = (upper >> USHIFT) + (top >> USHIFT)
    # `i` is unsigned, as it is never negative. The sign is applied without a branch, which would be
    # mispredicted for data of both signs. A loop over the digits takes twice as long.
    i, shift = np.uint64(begin >> 5), np.uint64(begin & 31)
    sign = -np.int64(is_negative)
    a, b = (own & UMASK) << shift, (middle & UMASK) << shift
    c, d = (upper & UMASK) << shift, last << shift
    digits[i] += (np.int64(a & UMASK) ^ sign) - sign
    digits[i + ONE] += (np.int64((a >> USHIFT) + (b & UMASK)) ^ sign) - sign
    digits[i + TWO] += (np.int64((b >> USHIFT) + (c & UMASK)) ^ sign) - sign
    digits[i + THREE] += (np.int64((c >> USHIFT) + (d & UMASK)) ^ sign) - sign
    digits[i + FOUR] += (np.int64(d >> USHIFT) ^ sign) - sign


# --- Floats: one by one ---------------------------------------------------------------------------


@called_by_kernels
def _leave(run: Any, least: Any, most: Any, alone: Any, marks: Any) -> Any:
    """Collect the elements that the pieces cannot represent, and return their number.

    In normal data one element in a thousand does not fit.
    """
    for i in range(run.size):
        marks[i] = np.uint8((run[i] != 0) & (not _fits(np.float64(run[i]), least, most)))
    return append(run, marks, alone, 0)


@called_by_kernels
def whole_of(bits: Any) -> Any:
    """Return a finite float64 as a whole number of units of its last bit, and that bit's place.

    The number has no sign. The place is that in sums.
    """
    exponent = (bits >> 52) & 0x7FF
    whole = bits & 0xFFFFFFFFFFFFF
    if exponent:
        whole |= np.int64(1) << 52
    else:
        exponent = 1
    return whole, exponent + OFFSET


@called_by_kernels
def _add_one(bits: Any, digits: Any, others: Any) -> None:
    """Add a float64 and its square to the digits, or count it if it is not finite."""
    if (bits >> 52) & 0x7FF == 0x7FF:
        others[2 if bits & 0xFFFFFFFFFFFFF else 0 if bits > 0 else 1] += 1
        return
    total, first_total, square, first_square = digits
    whole, begin = whole_of(bits)
    add_at(total, first_total, -whole if bits < 0 else whole, begin)
    add_product(square, np.uint64(whole), np.uint64(whole), 2 * begin - 32 * first_square, False)


@called_by_kernels
def _add_to_exponents(bits: Any, of_each: Any, others: Any) -> None:
    """Add float64 and their squares, without shifts, to the sums of their exponents."""
    for each in bits:
        exponent = (each >> 52) & 0x7FF
        if exponent == 0x7FF:
            others[2 if each & 0xFFFFFFFFFFFFF else 0 if each > 0 else 1] += 1
            continue
        sign = each >> 63
        low = np.uint64(each) & UMASK
        high = np.uint64((each >> 32) & 0xFFFFF | np.int64(exponent > 0) << 20)
        own, cross, upper = low * low, np.uint64(2) * low * high, high * high
        i = np.uint64(exponent)
        of_each[i, ZEROTH] += (np.int64(low) ^ sign) - sign
        of_each[i, ONE] += (np.int64(high) ^ sign) - sign
        of_each[i, TWO] += np.int64(own & UMASK)
        of_each[i, THREE] += np.int64((own >> USHIFT) + (cross & UMASK))
        of_each[i, FOUR] += np.int64((cross >> USHIFT) + upper)  # at most 2**43


@called_by_kernels
def _spill(of_each: Any, digits: Any) -> None:
    """Add the sums of each exponent to the digits, and reset them."""
    total, first_total, square, first_square = digits
    for exponent in range(of_each.shape[0]):
        sums = of_each[exponent]
        if sums[2] | sums[3] | sums[4]:  # sums of squares, which do not cancel
            begin = max(exponent, 1) + OFFSET
            add_at(total, first_total, sums[0], begin)
            add_at(total, first_total, sums[1], begin + 32)
            add_at(square, first_square, sums[2], 2 * begin)
            add_at(square, first_square, sums[3], 2 * begin + 32)
            add_at(square, first_square, sums[4], 2 * begin + 64)
            sums[:] = 0


@called_by_kernels
def _chosen(run: Any, least: Any, scratch: Any) -> Any:
    """Choose the power of two and the number of pieces by which to cut blocks like this one."""
    one, bits, _, _ = scratch
    tops = np.empty(SAMPLED, np.int64)
    size = 0
    for i in range(min(SAMPLED, run.size)):
        one[0] = run[i * run.size // min(SAMPLED, run.size)]
        exponent = (bits[0] >> 52) & 0x7FF
        if 0 < exponent < 0x7FF:
            tops[size] = exponent - 1022
            size += 1
    best, best_top, best_pieces = ALONE * size, np.int64(0), np.int64(0)
    for n_pieces in range(least, MOST_PIECES + 1):
        room = WIDTH * n_pieces - 2 - _last_bit(run)
        for j in range(size):
            n_fit, lowest = 0, tops[j]
            for i in range(size):
                if tops[j] - room <= tops[i] <= tops[j]:
                    n_fit += 1
                    lowest = min(lowest, tops[i])
            cost = COSTS[n_pieces] * size + ALONE * (size - n_fit)
            # Half of the spare bits go to the top, but at most two; the others stay at the bottom.
            top = tops[j] + min((room - (tops[j] - lowest)) // 2, 2)
            if cost < best and abs(top) <= LARGEST:
                best, best_top, best_pieces = cost, top, np.int64(n_pieces)
    return best_top, best_pieces


# --- Integers -------------------------------------------------------------------------------------


@by_types
def _add_integers(run: Any, total: Any, square: Any) -> Any:
    """Add up at most `CARRY_EVERY` integers, and their squares."""
    return _add_long if run.dtype.bitwidth == 64 else _add_short


@called_by_kernels
def _add_short(run: Any, total: Any, square: Any) -> None:
    """Add up integers of at most 32 bits, and their squares."""
    sum_ = np.int64(0)
    low, high = np.uint64(0), np.uint64(0)
    for i in range(run.size):
        v = np.int64(run[i])
        own = np.uint64(v * v)
        sum_ += v
        low += own & UMASK
        high += own >> USHIFT
    total[0] += sum_ & MASK
    total[1] += sum_ >> 32
    _add_sum(square, 0, low)
    _add_sum(square, 1, high)


@called_by_kernels
def _add_long(run: Any, total: Any, square: Any) -> None:
    """Add up 64-bit integers and their squares."""
    s_low, s_high = np.int64(0), np.int64(0)
    a, b, c, d = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(run.size):
        of_sum, size = _sum_and_size(run[i])
        s_low += of_sum[0]
        s_high += of_sum[1]
        low, high = size & UMASK, size >> USHIFT
        own, cross, upper = low * low, low * high, high * high
        a += own & UMASK
        b += (own >> USHIFT) + np.uint64(2) * (cross & UMASK)
        c += np.uint64(2) * (cross >> USHIFT) + (upper & UMASK)
        d += upper >> USHIFT
    total[0] += s_low & MASK
    total[1] += (s_low >> 32) + (s_high & MASK)
    total[2] += s_high >> 32
    _add_sum(square, 0, a)
    _add_sum(square, 1, b)
    _add_sum(square, 2, c)
    _add_sum(square, 3, d)


@called_by_kernels
def _add_sum(digits: Any, i: Any, number: Any) -> None:
    digits[i] += np.int64(number & UMASK)
    digits[i + 1] += np.int64(number >> USHIFT)


@by_types
def _sum_and_size(value: Any) -> Any:
    """Return two 32-bit digits of an integer, the upper one with its sign, and its magnitude."""
    if value.signed:
        return lambda value: (
            (value & MASK, value >> 32),
            np.uint64(-value) if value < 0 else np.uint64(value),
        )
    return lambda value: ((np.int64(value & UMASK), np.int64(value >> USHIFT)), value)


# --- Lanes ----------------------------------------------------------------------------------------


def _sums_by_numpy(
    rows: NDArray[Any], first: IntArray, stop: IntArray
) -> tuple[ExactSums, ExactSums]:
    place = np.arange(rows.shape[1])
    lane, at = np.nonzero((place >= first[:, None]) & (place < stop[:, None]))
    sums = Moments.of(rows[lane, at], lane, len(rows))
    return sums.total, sums.square


@until_compiled(_sums_by_numpy)
def sums_of_sorted(
    rows: NDArray[Any], first: IntArray, stop: IntArray
) -> tuple[ExactSums, ExactSums]:
    """Sum the finite elements of sorted rows, from `first` to `stop`, and their squares."""
    dtype = rows.dtype
    if dtype.kind != "f":
        total, square = np.zeros((len(first), 3), np.int64), np.zeros((len(first), 6), np.int64)
        _add_integer_rows(rows, first, stop, total, square)
        return ExactSums.of_table(total, 0), ExactSums.of_table(square, 0)
    low, high = _exponents(rows, first, stop)
    # The digits reach from the lowest unit of a piece to the highest digit that is touched.
    lowest = max(low - 1022 + 1 - MOST_PIECES * WIDTH + DIGIT * TOTAL_POINT, 0)
    highest = high - 1022 + 2 + 1 - WIDTH + DIGIT * TOTAL_POINT
    first_total, first_square = lowest >> 5, 2 * lowest >> 5
    stop_total = (highest >> 5) + 3
    stop_square = max((2 * highest + 1 >> 5) + 3, (2 * (high + OFFSET) >> 5) + 5)
    total = np.zeros((len(rows), stop_total - first_total), np.int64)
    square = np.zeros((len(rows), stop_square - first_square), np.int64)
    tables, others = (total, first_total, square, first_square), np.zeros((len(rows), 3), np.int64)
    _add_floats(rows, first, stop, tables, others, _least_pieces(rows))
    return (
        ExactSums.of_table(total, TOTAL_POINT - first_total),
        ExactSums.of_table(square, SQUARE_POINT - first_square),
    )


@kernel_of("f8 f4")
def _exponents(rows: t.Rows, first: t.StridedInts, stop: t.StridedInts) -> Any:
    """Return the least and largest biased exponent of all nonzero elements; 1 if there are none."""
    one = np.empty(1, np.float64)
    bits = one.view(np.int64)
    low, high = np.int64(2046), np.int64(1)
    for i in range(rows.shape[0]):
        row = rows[i, first[i] : stop[i]]
        below = np.searchsorted(row, row.dtype.type(0), "left")
        upto = np.searchsorted(row, row.dtype.type(0), "right")
        for j in (0, below - 1, upto, row.size - 1):
            if 0 <= j < row.size and row[j] != 0:
                one[0] = row[j]
                exponent = max((bits[0] >> 52) & 0x7FF, 1)
                low, high = min(low, exponent), max(high, exponent)
    return min(low, high), high


@kernel_of("i8 i4 i2 i1 u8 u4 u2 u1")
def _add_integer_rows(
    rows: t.Rows, first: t.StridedInts, stop: t.StridedInts, total: t.IntTable, square: t.IntTable
) -> None:
    """Add up the elements of every row, from `first` to `stop`, as `_add_floats` does."""
    for i in range(first.size):
        row = rows[min(i, rows.shape[0] - 1)]
        for start in range(first[i], stop[i], CARRY_EVERY):
            run = row[start : min(start + CARRY_EVERY, stop[i])]
            _add_integers(run, total[i], square[i])
