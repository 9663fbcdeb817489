"""Exact sums of NumPy chunks and of their squares by NumPy alone, about 20 ns an element.

They are used until Numba has compiled `moments`. Elements are cut into pieces of 17 bits at fixed
places below a power of two. The pieces are whole numbers, and so small that a block of them, and of
products of two of them, adds up in float64 without rounding, in any order. So one matrix product
computes all sums of products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.exact_sums import DIGIT, SQUARE_POINT, ExactSums
from dask_gpuselect.maths.moments import Moments

BLOCK = 1 << 15  # elements: the sum of as many products of two pieces is at most 2**49
WIDTH = 17  # bits of a piece
N_PIECES = 6
REACH = N_PIECES * WIDTH - 53  # binades; elements smaller by more than that are cut at other places


def moments(values: NDArray[Any], near: Any = None) -> Moments:
    """Sum a chunk exactly; see `reference.moments.moments`. Scratch: a few blocks."""
    del near
    blocks = [_of_block(values[i : i + BLOCK]) for i in range(0, max(values.size, 1), BLOCK)]
    return Moments.merge(blocks)


def _of_block(values: NDArray[Any]) -> Moments:
    n_high = n_low = 0
    if values.dtype.kind == "f":
        is_finite = np.isfinite(values)
        if not is_finite.all():
            n_high, n_low = (int(np.count_nonzero(values == end)) for end in (np.inf, -np.inf))
            values = values[is_finite]
    total = square = 0
    for pieces, unit in _cut(values):
        sums = pieces.sum(axis=1).tolist()
        products = (pieces @ pieces.T).tolist()
        for i, (one, row) in enumerate(zip(sums, products, strict=True)):
            total += _shifted(int(one), DIGIT * SQUARE_POINT + unit[i])
            for j, other in enumerate(row):
                square += _shifted(int(other), DIGIT * SQUARE_POINT + unit[i] + unit[j])
    n, above, below = (np.array([count], np.int64) for count in (values.size, n_high, n_low))
    sums = (ExactSums.of_integers([each], -SQUARE_POINT) for each in (total, square))
    return Moments(n, above, below, *sums)


def _cut(values: NDArray[Any]) -> Iterator[tuple[FloatArray, list[int]]]:
    """Cut elements: yield tables with one row for each piece, and the exponents of the rows' units.

    One table holds elements of similar size.
    """
    if values.dtype.kind != "f" and values.dtype.itemsize == 8:
        halves = [(values >> 16 * i) & 0xFFFF for i in range(3)]
        yield np.array([*halves, values >> 48], np.float64), [0, 16, 32, 48]
        return
    numbers = values.astype(np.float64)
    numbers = numbers[numbers != 0]
    while numbers.size:
        exponents = np.frexp(numbers)[1]
        top = int(exponents.max())
        is_near = exponents > top - REACH
        near = numbers if is_near.all() else numbers[is_near]
        rest = np.ldexp(near, WIDTH - top)  # less than 2**17
        pieces = np.empty((N_PIECES, near.size))
        for piece in pieces:
            np.trunc(rest, out=piece)
            rest -= piece
            rest *= 1 << WIDTH
        yield pieces, [top - WIDTH * (i + 1) for i in range(N_PIECES)]
        numbers = numbers[~is_near]


def _shifted(number: int, bits: int) -> int:
    """Multiply a number by a power of two; the product is a whole number."""
    return number << bits if bits >= 0 else number >> -bits
