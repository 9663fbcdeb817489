"""Exact sums of the weights of NumPy chunks, and of their products with elements and squares.

Moments are summed in blocks, as `kernels.cpu.moments` does without weights: elements and weights
are cut into pieces of few bits at fixed places below the largest ones of the block. Products of two
pieces add up in float64 without rounding; carried into pieces again, they are multiplied by the
pieces of the elements for the squares. An element that pieces cannot represent, or whose weight
they cannot, is added by itself.

For 2^22 normal float32 with random float32 weights, this takes 11 ns an element, and 130 if each
is added by itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    by_types,
    called_by_kernels,
    kernel,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.moments import (
    CARRY_EVERY,
    RUNS,
    UMASK,
    USHIFT,
    add_at,
    add_product,
    carry,
    plus,
    plus_product,
    whole_of,
)
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, tree_of, walk
from dask_gpuselect.kernels.reference import weighing as reference
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.exact_sums import (
    CUBE_DIGITS,
    CUBE_POINT,
    DIGIT,
    SQUARE_DIGITS,
    SQUARE_POINT,
    TOTAL_DIGITS,
    TOTAL_POINT,
    ExactSums,
)
from dask_gpuselect.maths.moments import Moments

BLOCK = 256  # elements, whose pieces fit the first cache of a processor
WIDTH = 20  # bits of a piece: a block of products of two, with carries, adds up to less than 2**53
MOST_PIECES = 4
# The largest and the smallest exponent at which blocks are cut, and the least element: products of
# three pieces neither overflow nor lose bits.
LARGEST, SMALLEST = 200, 2.0**-500
EXACT = 2.0**53
CUTTERS = np.array([1.5 * 2.0 ** (52 - WIDTH * (i + 1)) for i in range(2 * MOST_PIECES)])
UNITS = np.array([2.0 ** (WIDTH * i) for i in range(3 * MOST_PIECES + 1)])  # of so many pieces in 1
ZERO = np.float64(0)


@until_compiled(reference.products)
def products(
    values: NDArray[Any],
    weights: NDArray[np.float64],
    ends: NDArray[Any],
    summed: NDArray[np.bool_],
) -> ExactSums:
    """Sum weights times elements exactly in some open cells; see `reference.weighing.products`."""
    if weights.dtype != np.float64:
        return reference.products(values, weights, ends, summed)
    if not summed.any():
        return ExactSums.zeros((len(summed),))
    digits = _add_products(values, weights, tree_of(ends), len(ends), summed)
    return ExactSums.of_table(digits, SQUARE_POINT)


@until_compiled(reference.moments)
def moments(
    values: NDArray[Any], weights: NDArray[np.float64], stops: IntArray | None = None
) -> Moments:
    """Sum a chunk exactly, each element times its weight; see `reference.weighing.moments`."""
    if weights.dtype != np.float64:
        return reference.moments(values, weights, stops)
    stops, pieces = np.array([values.size]) if stops is None else stops, []
    starts = np.concatenate([stops[:1] * 0, stops[:-1]])
    for i in range(0, max(len(stops), 1), RUNS):
        own = starts[i : i + RUNS], stops[i : i + RUNS]
        tables = [
            np.zeros((len(own[0]), n), np.int64)
            for n in (2, TOTAL_DIGITS, SQUARE_DIGITS, CUBE_DIGITS)
        ]
        _add_moments(values, weights, *own, *tables)
        pieces.append(moments_of_tables(tables[0].T, *tables[1:]))
    return Moments.joined(pieces)


def moments_of_tables(
    infinite: IntArray, weight: IntArray, total: IntArray, square: IntArray
) -> Moments:
    """Return the moments of lanes from the digits of their sums.

    The tables have rows of digits for the weights, the weights times the elements, and the weights
    times their squares. `infinite` holds the numbers of elements that are inf and -inf.
    """
    n_high, n_low = infinite
    return Moments(
        ExactSums.of_table(weight, TOTAL_POINT),
        n_high,
        n_low,
        ExactSums.of_table(total, SQUARE_POINT),
        ExactSums.of_table(square, CUBE_POINT),
    )


@kernel
def _add_products(x: t.Values, weights: t.Reals, tree: Tree, n_ends: int, summed: t.Flags) -> Any:
    """Return the digits of the sum of products in each wanted cell; 0 in others."""
    digits = np.zeros((summed.size, SQUARE_DIGITS), np.int64)
    cell = np.empty(RUN, np.uint32)
    one = np.empty(1, np.float64)
    _, ends, _ = tree
    leaf = np.uint32(ends.size)
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        walk(run, tree, cell)
        for k in range(run.size):
            i = np.int64(cell[k] - leaf)
            if summed[i] and not (i < n_ends and run[k] == ends[i]):
                size, begin, is_negative = whole_number(run[k], one)
                weight, begin_of_weight, _ = whole_number(weights[start + k], one)
                add_product(digits[i], size, weight, begin + begin_of_weight, is_negative)
        if start % CARRY_EVERY == 0:
            for row in digits:
                carry(row)
    return digits


# --- Moments: blocks ------------------------------------------------------------------------------


@kernel
def _add_moments(
    x: t.Values,
    weights: t.Reals,
    starts: t.Ints,
    stops: t.Ints,
    infinite: t.IntTable,
    weight_sum: t.IntTable,
    total: t.IntTable,
    square: t.IntTable,
) -> None:
    """Sum the weights of the finite elements of each run, and these times elements and squares.

    Count the elements that are inf and -inf.
    """
    room = room_for_block()
    for i in range(starts.size):
        own = slice(starts[i], stops[i])
        digits = weight_sum[i], total[i], square[i]
        infinite[i, 0], infinite[i, 1] = add_moments(x[own], weights[own], digits, room)


@called_by_kernels
def room_for_block() -> Any:
    """Allocate room for a block: elements, weights, marks, and pieces of these and of products."""
    v, w, product, is_alone = (
        np.empty(BLOCK),
        np.empty(BLOCK),
        np.empty(BLOCK),
        np.empty(BLOCK, np.bool_),
    )
    x_pieces, w_pieces = np.empty((MOST_PIECES, BLOCK)), np.empty((MOST_PIECES, BLOCK))
    return v, w, is_alone, x_pieces, w_pieces, product, np.empty((2 * MOST_PIECES, BLOCK))


@called_by_kernels
def add_moments(x: Any, weights: Any, digits: Any, room: Any) -> Any:
    """Add elements to the digits of the sums of weights, products, and products with squares.

    Returns the numbers of elements that are inf and -inf, which are left out.
    """
    is_alone = room[2]
    one = np.empty(1, np.float64)
    n_high, n_low = 0, 0
    for start in range(0, x.size, BLOCK):
        run = x[start : min(start + BLOCK, x.size)]
        own = weights[start : start + run.size]
        if start % CARRY_EVERY == 0:
            for each in digits:
                carry(each)
        if not _add_block(run, own, digits, room):
            continue
        for i in range(run.size):
            if is_alone[i] and np.isfinite(run[i]):
                _add_alone(run[i], own[i], one, digits)
            elif is_alone[i]:
                n_high += run[i] > 0
                n_low += run[i] < 0
    return n_high, n_low


@called_by_kernels
def _add_block(x: Any, weights: Any, digits: Any, room: Any) -> Any:
    """Add the elements of a block that pieces represent, with their weights; mark the others.

    Returns whether there are others.
    """
    v, w, is_alone, x_pieces, w_pieces, product, z_pieces = room
    n, n_alone = x.size, 0
    largest, heaviest = ZERO, ZERO
    for i in range(n):
        value = np.float64(x[i])
        fits = _is_usual(x[i], value) & (weights[i] >= SMALLEST)
        is_alone[i] = not fits
        n_alone += not fits
        v[i] = value if fits else ZERO
        w[i] = weights[i] if fits else ZERO
        largest, heaviest = max(largest, abs(v[i])), max(heaviest, w[i])
    top, top_weight = math.frexp(largest)[1], math.frexp(heaviest)[1]
    if abs(top) > LARGEST or abs(top_weight) > LARGEST or heaviest == 0:
        is_alone[:n] = True
        return True
    n_x, n_w = _cut(v[:n], -top, x_pieces), _cut(w[:n], -top_weight, w_pieces)
    if n_x > MOST_PIECES or n_w > MOST_PIECES:
        n_x, n_w = min(n_x, MOST_PIECES), min(n_w, MOST_PIECES)
        for i in range(n):
            if v[i] != 0 or w[i] != 0:
                is_alone[i] = True
                n_alone += 1
                x_pieces[:n_x, i] = 0
                w_pieces[:n_w, i] = 0
    _multiply(x_pieces, n_x, w_pieces, n_w, product[:n], z_pieces)
    weight_sum, total, square = digits
    for i in range(n_w):
        _add_whole(weight_sum, _sum_of(w_pieces[i][:n]), i + 1, top_weight, TOTAL_POINT)
    both = top + top_weight
    for i in range(n_x + n_w):
        _add_whole(total, _sum_of(z_pieces[i][:n]), i + 1, both, SQUARE_POINT)
        for j in range(n_x):
            own = _dot(z_pieces[i][:n], x_pieces[j][:n])
            _add_whole(square, own, i + j + 2, both + top, CUBE_POINT)
    return n_alone > 0


@by_types
def _is_usual(x: Any, value: Any) -> Any:
    """Return whether an element is as large as its float64, and finite and not too small."""

    def of_float(x: Any, value: Any) -> Any:
        return (abs(value) < np.inf) & ((abs(value) >= SMALLEST) | (value == 0))

    def of_integer(x: Any, value: Any) -> Any:
        return abs(value) < EXACT

    return of_float if isinstance(x, types.Float) else of_integer


@called_by_kernels
def _cut(v: Any, exponent: Any, pieces: Any) -> Any:
    """Cut numbers, times a power of two that leaves at most 1, into pieces; leave the rest in `v`.

    Returns the number of pieces that are not 0, and one more if there is a rest.
    """
    scale = math.ldexp(1.0, exponent)
    for i in range(v.size):
        v[i] *= scale
    for k in range(MOST_PIECES):
        if _cut_off(v, CUTTERS[k], pieces[k]) == 0:
            return k + 1
    return MOST_PIECES + 1


@called_by_kernels
def _cut_off(v: Any, cutter: Any, pieces: Any) -> Any:
    """Cut the next piece off numbers; return the sum of the sizes of what is left."""
    rest = 0.0
    for i in range(v.size):
        piece = (v[i] + cutter) - cutter
        left = v[i] - piece
        v[i] = left
        pieces[i] = piece
        rest = plus(rest, abs(left))
    return rest


@called_by_kernels
def _multiply(
    x_pieces: Any, n_x: Any, w_pieces: Any, n_w: Any, product: Any, z_pieces: Any
) -> None:
    """Multiply numbers in pieces; the products are as many pieces as both numbers together."""
    z_pieces[0] = 0
    for k in range(n_x + n_w - 1):
        product[:] = 0
        for i in range(max(0, k - n_x + 1), min(n_w, k + 1)):
            _add_products_of(w_pieces[i], x_pieces[k - i], product)
        _carry_up(product, CUTTERS[k], z_pieces[k], z_pieces[k + 1])


@called_by_kernels
def _add_products_of(some: Any, others: Any, product: Any) -> None:
    for j in range(product.size):
        product[j] = plus_product(product[j], some[j], others[j])


@called_by_kernels
def _carry_up(product: Any, cutter: Any, high: Any, low: Any) -> None:
    for j in range(product.size):
        above = (product[j] + cutter) - cutter
        high[j] += above
        low[j] = product[j] - above


@called_by_kernels
def _sum_of(pieces: Any) -> Any:
    total = 0.0
    for each in pieces:
        total = plus(total, each)
    return total


@called_by_kernels
def _dot(pieces: Any, others: Any) -> Any:
    total = 0.0
    for i in range(pieces.size):
        total = plus_product(total, pieces[i], others[i])
    return total


@called_by_kernels
def _add_whole(digits: Any, number: Any, n_pieces: Any, top: Any, point: Any) -> None:
    """Add a multiple of the unit of some piece below a power of two to the digits of a sum."""
    whole = np.int64(number * UNITS[n_pieces])
    if whole:
        add_at(digits, 0, whole, top - WIDTH * n_pieces + DIGIT * point)


# --- Moments: one by one --------------------------------------------------------------------------


@called_by_kernels
def _add_alone(value: Any, weight: Any, one: Any, digits: Any) -> None:
    """Add a weight and its products with a finite element and with its square."""
    weight_sum, total, square = digits
    own, begin, _ = whole_number(weight, one)
    size, begin_of_size, is_negative = whole_number(value, one)
    add_at(weight_sum, 0, np.int64(own), begin)
    add_product(total, size, own, begin_of_size + begin, is_negative)
    low, high = _squared(size)
    begin = 2 * begin_of_size + begin
    add_product(square, low, own, begin, False)
    if high:
        add_product(square, high, own, begin + 64, False)


@called_by_kernels
def _squared(size: Any) -> Any:
    """Return the square of a 64-bit number in two words."""
    low, high = size & UMASK, size >> USHIFT
    own, cross = low * low, low * high
    middle = (own >> USHIFT) + np.uint64(2) * (cross & UMASK)
    upper = high * high + np.uint64(2) * (cross >> USHIFT) + (middle >> USHIFT)
    return (own & UMASK) | ((middle & UMASK) << USHIFT), upper


@by_types
def whole_number(value: Any, one: Any) -> Any:
    """Return a finite number as magnitude, place of its lowest bit in sums, and sign.

    The sign is True if the number is negative.
    """

    def of_float(value: Any, one: Any) -> Any:
        one[0] = value
        whole, begin = whole_of(one.view(np.int64)[0])
        return np.uint64(whole), begin, value < 0

    def of_integer(value: Any, one: Any) -> Any:
        size = np.uint64(value)
        return np.uint64(0) - size if value < 0 else size, DIGIT * TOTAL_POINT, value < 0

    return of_float if isinstance(value, types.Float) else of_integer
