"""Weighted elements: the host side of ``weighing.cu``. See `reference.weighing`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu.products import moments_of_tables
from dask_gpuselect.kernels.cuda.chunk import FEW, as_float64
from dask_gpuselect.kernels.cuda.launch import (
    Array,
    coded,
    copied_ahead,
    held,
    launch,
    most_shared,
    on_device,
)
from dask_gpuselect.kernels.cuda.source import (
    KEEPS,
    Defined,
    add_memory,
    most_rounded_ends,
    weighed_sums,
    weighing,
)
from dask_gpuselect.kernels.cuda.spans import DeviceCandidates, joined, split
from dask_gpuselect.kernels.reference import weighing as reference
from dask_gpuselect.kernels.reference.selection import elements_of, even_positions, heavy_cells
from dask_gpuselect.kernels.registry import Backend
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.exact_sums import (
    CUBE_DIGITS,
    DIGIT,
    SQUARE_DIGITS,
    SQUARE_POINT,
    TOTAL_DIGITS,
    TOTAL_POINT,
    ExactSums,
)
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.weight_guess import FEW_ANSWERS, WeightedSample
from dask_gpuselect.maths.weights import (
    NEGATIVE,
    NOT_FINITE,
    POINT,
    PRODUCT_UNIT,
    UNITS,
    WEIGHT_UNIT,
)

SAMPLED = 1 << 16  # elements of the sample that pivots are chosen from

MOST_NEAR = 1 << 23  # elements that are sorted as fast as a sample of them narrows brackets
MOST_APART = 8  # elements from where an answer's weight begins to where it ends
STRETCHES = 1 << 11  # stretches of a sample for the host; a bracket of the median has 20
# Stretches whose weights are measured, and numbers of elements for which that takes less time than
# to narrow guesses: a median of 2^24 took 4.2 ms instead of 4.7, one of 2^25 3.4 instead of 3.2.
MEASURED, LEAST_MEASURED, MOST_MEASURED = 3 << 10, 1 << 21, 1 << 24
# Stretches of all elements for very many quantiles: for 500 of 2^24, sorting takes as long as to
# measure a sample and to narrow its guesses. For 99 it took 2.1 ms of the device instead of 0.75.
SORTED, MEASURED_ANSWERS = 1 << 16, 128
N_NUMBERS = 6  # numbers that `weigh_once` hands out before those of segments
LEAST = 2.0**-1074  # least positive float64

IS_NEGATIVE, LEAST_PLACE, MOST_PLACE = 1, -1074, 4096  # as in ``weighing.cu``


def weighed(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Array, Array, int]:
    """Return the elements that take part and their weights, without copies if all elements do.

    Reads the chunk once, or twice if some elements do not take part.
    """
    weights = chunk.weights
    assert weights is not None
    if weights.dtype.kind != "f" or dtype.kind in "mM" or not chunk.size:
        return reference.weighed(chunk, dtype)
    given = _as_read(chunk, dtype)
    assert given is not None
    values, weights = given.values, given.weights
    nothing = values[:0], cupy.empty(0, np.float64)
    n, n_missing, faults = _valid(given, *nothing)
    _check_faults(faults)
    if n == values.size:
        return values, as_float64(weights), n_missing
    taken = cupy.empty(n, values.dtype), cupy.empty(n, np.float64)
    _valid(given, *taken)
    return *taken, n_missing


def _check_faults(faults: int) -> None:
    """Raise an error for the flags of invalid weights."""
    if faults:
        raise ValueError(NEGATIVE if faults & IS_NEGATIVE else NOT_FINITE)


def _valid(given: AsRead, taken: Array, their_weights: Array) -> list[int]:
    """Copy the elements that take part, as far as there is room.

    Return the number of these, that of missing elements that weigh something, and the faults of
    weights.
    """
    counters = cupy.zeros(3, np.uint64)
    given.launch("weigh_valid", *given, taken, their_weights, taken.size, counters)
    numbers: list[int] = counters.get().tolist()
    return numbers


def in_bands(
    given: AsRead, codes: Array, n_groups: int
) -> tuple[Array, Callable[[], tuple[int, int]]]:
    """Make numbers of elements of groups from group and band; see `weigh_bands` of ``weighing.cu``.

    Also return a function that waits for the exponent of a unit of which all weights are multiples,
    and how many bits the largest has in it. It raises for invalid weights.
    """
    numbers, extent = cupy.empty(given.size, np.int32), cupy.zeros(3, np.uint32)
    arrays = given.weights, given.keeps, given.size, codes
    given.launch("weigh_bands", *arrays, n_groups, numbers, extent, more=coded(codes))
    copy = copied_ahead(extent)

    def wait() -> tuple[int, int]:
        faults, highest, lowest = map(int, copy())
        _check_faults(faults)
        unit = MOST_PLACE - lowest if highest else 0
        return unit + LEAST_PLACE, max(highest - unit, 0)

    return numbers, wait


def in_order(
    given: AsRead, order: Array, n_bits: int, unit: int, n_limbs: int
) -> tuple[Array | None, Array, Array]:
    """Return the keys above the places of an order, and the weights of the elements there.

    Places have `n_bits` bits, or all if that is 0. Also return the weights in units of ``2**unit``,
    as `Wholes.limbs` has them, one row each.
    """
    keys = cupy.empty(order.size, np.uint64) if n_bits else None
    ordered = cupy.empty(order.size, given.weights.dtype)
    whole = cupy.empty((n_limbs, order.size), np.int64)
    at = order, order.size, n_bits or 63, given.weights, unit, n_limbs
    given.launch("weigh_ordered", *at, keys, ordered, whole)
    return keys, ordered, whole


def cuts(values: Array, weights: Array, n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at sampled pivots; see `reference.weighing.cuts`.

    Reads the chunk once, or three times if few elements of a cell have much of the weight.
    """
    n = int(values.size)
    if n <= SAMPLED:
        return reference.cuts(values, weights, n_pivots)
    most = _most_ends(values)
    n_pivots = min(n_pivots, most // 7)  # twice, and up to five times in heavy cells
    given = AsRead.of(values, weights)
    drawn, their_weights = drawn_from(given, SAMPLED)
    order = drawn.argsort()
    sums = cupy.cumsum(their_weights[order], dtype=np.float64)
    shares = sums[-1] * cupy.asarray(np.arange(1, n_pivots) / n_pivots)
    by_weight = cupy.minimum(cupy.searchsorted(sums, shares), SAMPLED - 1)
    at = cupy.concatenate([cupy.asarray(even_positions(SAMPLED, n_pivots)), by_weight])
    pivots = np.unique(drawn[order[at]].get())
    unit, square = _measured(weights)
    counts, sums = _segments(given, pivots, unit)
    within = _in_heavy_cells(values, weights, pivots, (counts, sums), n_pivots)
    if len(within):
        pivots = np.unique(np.concatenate([pivots, within]))
        counts, sums = _segments(given, pivots, unit)
    counts, sums = np.cumsum(counts), np.cumsum(sums)
    of_counts = Cuts.of_chunk(pivots, counts[:-1:2], counts[1::2], n, 0)
    return of_counts.with_weights(sums[:-1:2], sums[1::2], int(sums[-1]), unit, square)


def _in_heavy_cells(
    values: Array,
    weights: Array,
    pivots: NDArray[Any],
    segments: tuple[IntArray, IntArray],
    n_pivots: int,
) -> NDArray[Any]:
    """Choose pivots inside the cells that hold too much by count or by weight."""
    heavy: set[int] = set()
    for sums in segments:
        upto = np.cumsum(sums)
        share = max(int(upto[-1]) // n_pivots, 1)
        heavy |= set(heavy_cells(upto[:-1:2], upto[1::2], int(upto[-1]), share)[0].tolist())
    if not heavy:
        return pivots[:0]
    wanted = np.zeros(len(pivots) + 1, np.bool_)
    wanted[list(heavy)] = True
    size = int(segments[0][::2][wanted].sum())
    taken, their_weights = reference.ordered_on_host(*_taken(values, weights, pivots, wanted, size))
    cell = np.searchsorted(pivots, taken)
    chosen = []
    for j in sorted(heavy):
        # The cell gets its share of the pivots by elements, or by weight if that is more.
        parts = max(int(sums[2 * j]) * n_pivots // max(int(sums.sum()), 1) for sums in segments)
        inside = cell == j
        chosen.append(reference.cuts(taken[inside], their_weights[inside], parts + 1).pivots)
    return np.concatenate(chosen)


def _measured(weights: Array) -> tuple[int, float]:
    """Measure the unit and the squares of weights; see `reference.weighing.measured`."""
    sums: Any = moments_of(weights, weights, [0], [weights.size])
    (total,), (square,) = sums.n.integers(WEIGHT_UNIT), sums.total.integers(PRODUCT_UNIT)
    unit = total.bit_length() - POINT - UNITS
    if weights.dtype.kind == "i":
        unit = max(unit, 0)
    lost = max(square.bit_length() - 64, 0)
    return unit, math.ldexp(square >> lost, lost + DIGIT * PRODUCT_UNIT - 2 * unit)


def tally(values: Array, weights: Array, brackets: Brackets, most: int) -> Tally | None:
    """Count and weigh elements exactly at the ends, and gather candidates in order on the host.

    See `reference.weighing.tally`. Reads the chunk as `tally_in_place` does.
    """
    given = AsRead.of(values, weights)
    if values.size <= FEW:
        return reference.tally(values, weights, brackets, most)
    tallied, _ = _tallied(given, brackets, most)
    return tallied and reference.tally_in_order(tallied)


def tally_in_place(
    bound: Backend, brackets: Brackets, most: int, ranks: Any = None
) -> Tally | None:
    """Count and weigh a chunk exactly, with candidates that stay on the device.

    See `reference.weighing.tally_in_place`. Reads elements and weights once, and weights of other
    dtypes than float32, float64 and int64 twice. Scratch on the device: `most` elements with
    float64 weights.
    """
    given = bound.once(_as_read)
    if given is None:
        return reference.tally_in_place(bound, brackets, most)
    tallied, n_masked = _tallied(given, brackets, most)
    n_unmasked = given.size - n_masked
    return tallied and reference.with_others(tallied, bound, tallied.n_missing, n_unmasked)


def _tallied(given: AsRead, brackets: Brackets, most: int) -> tuple[Tally | None, int]:
    """Tally elements; also return the number of masked ones."""
    if given.way(len(brackets.ends)) is None:
        return _tallied_twice(given, brackets, most)
    most = min(most, given.size)
    taken = cupy.empty(most, selection_dtype(given.values.dtype))
    their_weights = cupy.empty(most, np.int64 if given.is_whole else np.float64)
    ends = brackets.ends.astype(taken.dtype, copy=False)
    there = on_device(np.append(ends.view(np.uint8), brackets.wanted.view(np.uint8)))
    room = there[ends.nbytes :], taken, their_weights, most
    numbers, counts, digits, others = _weighed_at(given, there, len(ends), room)
    n_missing, _, n_gathered, n_masked, unit, is_direct = numbers
    if n_gathered > most:
        return None, n_masked
    sums = ExactSums.carried(0, digits).shifted(unit)
    if is_direct:
        sums += ExactSums.of_table(others.get(), TOTAL_POINT)
    candidates, own = DeviceCandidates(taken[:n_gathered]), their_weights[:n_gathered]
    return Tally.of_segments(counts, sums, candidates, own, n_missing), n_masked


def _tallied_twice(given: AsRead, brackets: Brackets, most: int) -> tuple[Tally | None, int]:
    """Tally at each half of the ends, which are too many for one read; see `_tallied`."""
    halves = split(brackets, len(brackets.ends) // 2)
    (first, n_masked), (second, _) = (_tallied(given, each, most) for each in halves)
    tallied = first and second and joined(first, second)
    return tallied if tallied and len(tallied.candidates) <= most else None, n_masked


def _segments(given: AsRead, ends: Any, unit: int) -> tuple[IntArray, IntArray]:
    """Count the elements of each segment, and sum their weights in units of ``2**unit``."""
    _, counts, (low, high, *_), _ = _weighed_at(given, cupy.asarray(ends), len(ends), None, unit)
    return counts, low + (high << DIGIT)


def _weighed_at(
    given: AsRead,
    ends: Array,
    n_ends: int,
    room: tuple[Array, Array, Array, int] | None,
    unit: int = 0,
) -> tuple[list[int], IntArray, IntArray, Array]:
    """Count and weigh the elements of each segment, and gather those in wanted cells.

    `room` has the cells that are wanted, and arrays for their elements and weights, with the number
    of places there. If it is None, weights are rounded down to units of ``2**unit``.

    Returns
    -------
    numbers : list of int
        Missing elements, faults, gathered elements, masked ones, the exponent of the unit of sums,
        and whether there are other weights.
    counts : ndarray of int64, shape (n_segments,)
    digits : ndarray of int64, shape (4, n_segments)
        Digits of the sums of weights in units, the lowest first.
    others : array of int64, shape (n_segments, n_digits)
        Digits of the sums of other weights, on the device.
    """
    is_rounded, n_segments = room is None, 2 * n_ends + 1
    way = given.way(n_ends, is_rounded=is_rounded)
    assert way is not None
    wanted, *places = room or (None, None, None, 0)
    n_own = N_NUMBERS + 5 * n_segments
    totals = cupy.zeros(n_own + (not is_rounded) * TOTAL_DIGITS * n_segments, np.int64)
    copies, shared, defined = way
    about = ends, n_ends, wanted, unit, copies, totals, *places
    given.launch("weigh_once", *given, *about, more=defined, shared=shared)
    own = totals[:n_own].get()
    numbers: list[int] = own[:N_NUMBERS].tolist()
    _check_faults(numbers[1])
    counts, *digits = own[N_NUMBERS:].reshape(n_segments, 5).T
    return numbers, counts, np.stack(digits), totals[n_own:].reshape(-1, TOTAL_DIGITS)


def sorted_sample(bound: Backend, size: int, *, n_answers: int = 1) -> tuple[WeightedSample, float]:
    """Draw a sorted sample with weights, reduced to a few stretches.

    The stretches of up to `MOST_MEASURED` elements are measured, which takes a read, and those of
    more for many quantiles: 99 of 2^28 took 51 ms instead of 335. For very many quantiles of fewer,
    the sample is all elements. See `reference.weighing.sorted_sample`.
    """
    given, n = bound.once(_as_read), bound.size
    if given is None or not n:
        return reference.sorted_sample(bound, size)
    is_many = n_answers > FEW_ANSWERS
    is_all = n_answers > MEASURED_ANSWERS and n <= MOST_MEASURED
    size = n if is_all else min(size, n)
    is_measured = is_many or LEAST_MEASURED < n <= MOST_MEASURED
    n_stretches = min(SORTED if is_all else MEASURED if is_measured else STRETCHES, size)
    rate = size / n
    drawn, weighs = drawn_from(given, size)
    stretches = cupy.empty((4, n_stretches), np.float64)
    last = stretches[3].view(drawn.dtype)[:n_stretches]
    sample = drawn.argsort(), drawn, weighs, size, n_stretches, stretches, last
    given.launch("weigh_stretches", *sample, n_threads=32 * n_stretches)
    most, sums, squares, ends = stretches.get()
    counts = np.diff(np.arange(n_stretches + 1) * size // n_stretches)
    largest, ends = max(most.max(), LEAST), ends.view(drawn.dtype)[:n_stretches]
    scale = most / largest
    columns = ends, sums * scale, squares * scale * scale, most, counts
    reduced = WeightedSample(*columns, is_measured=is_all)
    # Where most ends are tied, brackets hold few elements anyway.
    if is_all or not is_measured or 2 * np.count_nonzero(ends[1:] == ends[:-1]) > n_stretches:
        return reduced, rate
    # The sums fit into 63 bits if no weight is larger than those of the sample.
    share, exponent = math.frexp(largest)
    n_bits = n.bit_length() - 63
    counts, sums = _segments(given, last, exponent + n_bits)
    return reduced.measured(counts, sums * np.float64(2.0**n_bits / share), rate), 1.0


def drawn_from(given: AsRead, size: int) -> tuple[Array, Array]:
    """Draw elements at hashed places, and their weights as float64, 0 if they take no part."""
    drawn = cupy.empty(size, selection_dtype(given.values.dtype)), cupy.empty(size, np.float64)
    given.launch("weigh_drawn", *given, size, *drawn, n_threads=size)
    return drawn


def near_shares(
    chunk: Accompanied, first: Sequence[float], last: Sequence[float]
) -> NDArray[Any] | None:
    """Find elements near some shares of the weight; see `reference.weighing.near_shares`."""
    elements, weights, n = chunk.values, chunk.weights, chunk.size
    if weights is None or n > MOST_NEAR:
        return None
    order = elements.argsort()
    sums = cupy.cumsum(weights.take(order) / weights.max())  # no sum overflows
    shares = on_device(np.array([first, last])).view(np.float64)
    low, high = cupy.searchsorted(sums, shares * sums[-1]).get().reshape(2, -1)
    if (high - low > MOST_APART).any():
        return None
    places = (low[:, None] + np.arange(-1, MOST_APART + 2)).clip(
        0, np.minimum(high + 1, n - 1)[:, None]
    )
    return np.unique(elements.take(order.take(on_device(places).view(np.int64))).get())


class AsRead(NamedTuple):
    """Elements, weights and mask of a chunk as kernels read them, and the number of elements."""

    values: Array
    weights: Array
    keeps: Array | None
    size: int

    @classmethod
    def of(cls, values: Array, weights: Array, keeps: Array | None = None) -> AsRead:
        """Copy flat arrays that are not contiguous."""
        given = (values, weights, keeps)
        x, w, m = (None if each is None else cupy.ascontiguousarray(each) for each in given)
        return cls(x, w, m, values.size)

    @property
    def is_whole(self) -> bool:
        """True if the weights are integers."""
        return bool(self.weights.dtype.kind == "i")

    def way(self, n_ends: int, *, is_rounded: bool = False) -> tuple[int, int, Defined] | None:
        """Choose how `weigh_once` counts at so many ends, as `weighing`; None if it cannot."""
        dtypes = selection_dtype(self.values.dtype), self.weights.dtype
        shared = most_shared(cupy.cuda.Device().id)
        return weighing(*dtypes, n_ends, shared, is_rounded=is_rounded)

    def launch(self, name: str, *arguments: Any, more: Defined = (), **how: int) -> None:
        """Start a kernel that is compiled for these arrays."""
        made = *held(self.weights), *more
        defined = made if self.keeps is None else (*made, *KEEPS)
        launch(np.dtype(self.values.dtype), name, *arguments, defined=defined, **how)


def readable(weights: Array) -> Array:
    """Convert weights to a dtype that kernels read; those of uint64 must fit int64."""
    if weights.dtype.kind != "f":
        return weights.astype(np.int64, copy=False)
    return as_float64(weights) if weights.dtype == np.float16 else weights


def _as_read(chunk: Accompanied, dtype: np.dtype[Any]) -> AsRead | None:
    """Prepare a chunk for kernels; None if its weights may not fit int64."""
    weights, keeps = chunk.weights, chunk.keeps
    assert weights is not None
    if weights.dtype == np.uint64:
        return None
    weights = readable(weights)
    values, _ = elements_of(chunk.values, dtype)
    return AsRead.of(values, weights.ravel(), None if keeps is None else keeps.ravel())


def products(
    values: Array, weights: Array, ends: NDArray[Any], summed: NDArray[np.bool_]
) -> ExactSums:
    """Sum weights times elements exactly in some cells; see `reference.weighing.products`.

    Reads the chunk once, and the elements of these cells once for each cell.
    """
    if values.size <= FEW or len(ends) > _most_ends(values):
        return reference.products(values, weights, ends, summed)
    counts, _ = _segments(AsRead.of(values, weights), ends, 0)
    cells = np.flatnonzero(summed & (counts[::2] > 0))
    if not len(cells):
        return ExactSums.zeros(summed.shape)
    if len(cells) > 1:
        size = int(counts[::2][summed].sum())
        values, weights = _taken(values, weights, ends, summed, size)
    sides = np.stack([ends[cells - 1], ends[cells]], axis=1)
    zeros = np.zeros(len(cells), np.int64)
    place = np.zeros(len(summed), np.int64)
    place[cells] = 1 + np.arange(len(cells))
    every = products_of(values, weights, zeros, zeros + values.size, sides)
    return ExactSums.joined([ExactSums.zeros((1,)), every])[place]


def moments(values: Array, weights: Array) -> Moments:
    """Sum a chunk exactly, each element times its weight; see `reference.weighing.moments`.

    Reads the chunk once.
    """
    if values.size <= FEW:
        return reference.moments(values, weights)
    return moments_of(values, weights, [0], [values.size])


def moments_ahead(bound: Backend) -> Callable[[], Moments]:
    """Start to sum a whole chunk exactly; see `reference.weighing.moments_ahead`.

    Reads it once.
    """
    given = bound.once(_as_read)
    if given is None or bound.dtype.kind in "mM" or given.size <= FEW:
        return reference.moments_ahead(bound)
    return moments_of_parts_ahead(given, [0], [given.size])


DIGITS_OF = TOTAL_DIGITS, SQUARE_DIGITS, CUBE_DIGITS
MANY_PARTS = 500  # parts whose digits of 0 are not copied to the host: 10 MB for 9,000
SPARED = 16  # blocks that leave room for small kernels while all elements are summed


def moments_of(
    values: Array,
    weights: Array,
    starts: Sequence[int] | IntArray,
    stops: Sequence[int] | IntArray,
) -> Moments:
    """Sum the weights of parts of an array, and their products with the elements and their squares.

    All sums are exact.
    """
    return moments_of_parts_ahead(AsRead.of(values.ravel(), weights), starts, stops)()


def products_of(
    values: Array,
    weights: Array,
    starts: IntArray,
    stops: IntArray,
    sides: NDArray[Any] | None = None,
) -> ExactSums:
    """Sum the products of parts of an array with their weights; see `moments_of`.

    With two `sides` of each part, of the elements between them.
    """
    sums = _start_sums(AsRead.of(values.ravel(), weights), starts, stops, sides)
    digits, point = sums[:, TOTAL_DIGITS : TOTAL_DIGITS + SQUARE_DIGITS], SQUARE_POINT
    if len(digits) >= MANY_PARTS:
        some = cupy.flatnonzero(digits.any(axis=0)).get()
        first, stop = (some[0], some[-1] + 1) if len(some) else (0, 1)
        digits, point = digits[:, first:stop], point - int(first)
    table = copied_ahead(digits.ravel())().view(np.int64).reshape(digits.shape)
    return ExactSums.of_table(table, point)


def moments_of_parts_ahead(given: AsRead, starts: Any, stops: Any) -> Callable[[], Moments]:
    """Start what `moments_of` does; return a function that waits for it."""
    return _moments_in(_start_sums(given, starts, stops))


def _start_sums(given: AsRead, starts: Any, stops: Any, sides: NDArray[Any] | None = None) -> Array:
    """Start to sum parts of an array in `_tables`."""
    n_parts, upto = len(starts), np.cumsum(np.subtract(stops, starts))
    sums = _tables(n_parts)
    there = on_device(np.stack([starts, upto]).astype(np.int64)).view(np.int64)
    between = None if sides is None else on_device(sides)
    parts = there, there[n_parts:], n_parts, between
    arguments = *given[:3], *parts, sums
    given.launch("weigh_products", *arguments, shared=add_memory(), spared=SPARED)
    return sums


def has_room(given: AsRead, n_groups: int) -> bool:
    """Return whether shared memory has room for the groups of `moments_of_groups_ahead`."""
    return _tile_of_groups(given, n_groups) is not None


def _tile_of_groups(given: AsRead, n_groups: int) -> tuple[int, int] | None:
    item = given.values.dtype.itemsize + given.weights.dtype.itemsize
    return weighed_sums(item, n_groups, most_shared(cupy.cuda.Device().id))


def moments_of_groups_ahead(given: AsRead, numbers: Array, n_groups: int) -> Callable[[], Moments]:
    """Start to sum the elements of groups, as `moments_of` does for parts; see `has_room`.

    `numbers` are those of the groups, less than `n_groups`; others take no part. Returns a function
    that waits.
    """
    way = _tile_of_groups(given, n_groups)
    assert way is not None
    tile, shared = way
    sums = _tables(n_groups)
    groups = numbers, given.size, n_groups, tile
    given.launch("weigh_groups", *given[:2], *groups, sums, shared=shared, spared=SPARED)
    return _moments_in(sums)


def _tables(n: int) -> Array:
    """Allocate digits of the sums of parts, and three numbers for each; see `weigh_products`."""
    return cupy.zeros((n, sum(DIGITS_OF) + 3), np.uint64)


def _moments_in(sums: Array) -> Callable[[], Moments]:
    """Start to copy sums; return a function that waits for them, and raises for invalid weights."""
    wait = copied_ahead(sums.reshape(-1))

    def finish() -> Moments:
        host = wait().view(np.int64).reshape(sums.shape)
        *digits, others = np.split(host, np.cumsum(DIGITS_OF), axis=1)
        _check_faults(int(np.bitwise_or.reduce(others[:, 2])))
        return moments_of_tables(others[:, :2].T, *digits)

    return finish


def _taken(
    values: Array, weights: Array, ends: NDArray[Any], wanted: NDArray[np.bool_], size: int
) -> tuple[Array, Array]:
    """Gather the elements in the wanted cells, `size` in all, and their weights."""
    tallied, _ = _tallied(AsRead.of(values, weights), Brackets(ends, wanted), size)
    assert tallied is not None
    return tallied.candidates.elements, tallied.weights


def _most_ends(values: Array) -> int:
    """Return the number of ends at which `_segments` can count."""
    shared = most_shared(cupy.cuda.Device().id)
    return most_rounded_ends(selection_dtype(values.dtype), shared)
