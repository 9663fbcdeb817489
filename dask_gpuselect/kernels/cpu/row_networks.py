"""Lanes of some hundred elements, sorted side by side by one network, compiled by Numba.

The elements at one place of several lanes are one vector, so that each comparison is a minimum and
a maximum of two vectors. A network sorts runs of 8 and merges them, as Batcher's bitonic sort does
(Knuth, volume 3, section 5.3.4), three steps at a time: eight vectors stay in registers meanwhile.
Elements are compared as signed integers.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels import compiling
from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of, types
from dask_gpuselect.kernels.cpu import typed as t

VECTOR = 32  # bytes that are compared together
MOST = {1: 1 << 10, 2: 1 << 10, 4: 1 << 10, 8: 1 << 6}
"""Largest number of elements of a lane that is sorted here, by the size of an element in bytes: the
vectors of more do not stay in the cache. AVX2 has no minimum of integers of eight bytes."""

WORTH = 1 << 27
"""Elements after which kernels are worth loading, if that has not been done: NumPy takes 2 to 3 ns
longer for each of them, and importing Numba takes half a second."""

_seen: Counter[int] = Counter()
"""Elements that NumPy has sorted meanwhile, by their size in bytes."""


def are_faster(n: int, n_lanes: int, dtype: np.dtype[Any]) -> bool:
    """Return whether networks sort lanes of n elements faster than NumPy does."""
    size = dtype.itemsize
    if dtype.kind not in "iuf" or not 1 < n <= MOST[size] or n_lanes < VECTOR:
        return False
    if not compiling.is_ready(_sort_columns, np.dtype(f"i{size}")):
        _seen[size] += n * n_lanes
        if _seen[size] < WORTH:
            return False
    return size <= 2 or _has_short_vectors()


@cache
def _has_short_vectors() -> bool:
    """Return whether this processor has AVX2, and not AVX-512, with which NumPy is as fast.

    NumPy takes 4.8 ns an element of 365 float32 with AVX2, where networks take 2.6, and 1.6 with
    AVX-512.
    """
    compiling.numba()
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return bool(features.get("avx2") and not features.get("avx512f"))


def sort_columns(table: NDArray[Any]) -> None:
    """Sort the columns of a contiguous table of numbers in place, with NaN last."""
    if table.shape[1] < VECTOR:
        table.sort(axis=0)
        return
    size, kind = table.itemsize, table.dtype.kind
    bits = np.dtype(f"i{size}")
    least, most = np.iinfo(bits).min, np.iinfo(bits).max
    # The bits of negative floats descend, and those of NaN are beyond those of infinity.
    flips = least if kind == "u" else 0, most if kind == "f" else 0
    largest = np.array(np.inf, table.dtype).view(bits) if kind == "f" else most
    _sort_columns(table.view(bits), tuple(map(bits.type, (*flips, largest, most))))


@kernel_of("i8 i4 i2 i1")
def _sort_columns(table: t.Table, how: tuple[t.Value, t.Value, t.Value, t.Value]) -> None:
    """Sort columns of bits, which `how` turns into keys: see `sort_columns`."""
    sign, rest, largest, most = how
    n, n_lanes = table.shape
    width, top, words = VECTOR // table.itemsize, 8 * table.itemsize - 1, table.reshape(-1)
    if sign or rest:
        for i in range(words.size):
            bits = words[i] ^ sign
            words[i] = most if (bits & rest) > largest else bits ^ ((bits >> top) & rest)
    room = 8
    while room < n:
        room *= 2
    keys = np.empty(room * width, table.dtype)
    for start in range(0, n_lanes, width):
        first = min(start, n_lanes - width)  # sorting lanes again does no harm
        for j in range(n):
            place = j * n_lanes + first
            _move(words, keys, place, place, 0, j * width - place)
        keys[n * width :] = most
        _sort(keys, n * width, width)
        for j in range(n):
            place = j * n_lanes + first
            _move(keys, words, j * width, j * width, 0, place - j * width)
    if sign or rest:
        for i in range(words.size):
            words[i] = words[i] ^ ((words[i] >> top) & rest) ^ sign


Pairs = tuple[tuple[int, int], ...]
"""Places of vectors among eight that are compared: the lesser elements go to the first."""

BY_4: Pairs = ((0, 4), (1, 5), (2, 6), (3, 7))
BY_2: Pairs = ((0, 2), (1, 3), (4, 6), (5, 7))
BY_1: Pairs = ((0, 1), (2, 3), (4, 5), (6, 7))
MIRRORED_4: Pairs = ((0, 3), (1, 2), (4, 7), (5, 6))
MIRRORED_8: Pairs = ((0, 7), (1, 6), (2, 5), (3, 4))


def _network(name: str, pairs: Pairs) -> Any:
    """Make a function that compares eight vectors of an array.

    Its arguments are the array and that which gets the results; the places of elements where four
    vectors begin and where the other four do, and the distance of the four; and how much farther on
    the results begin.
    """

    def typed(context: Any, source: Any, target: Any, i: Any, j: Any, step: Any, shift: Any) -> Any:
        del context, i, j, step, shift

        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            from llvmlite import ir

            size = source.dtype.bitwidth // 8
            vector = ir.VectorType(ir.IntType(8 * size), VECTOR // size).as_pointer()
            pointers = []
            for kind, array, shift in ((source, given[0], 0), (target, given[1], given[5])):
                data = context.make_array(kind)(context, builder, array).data
                for place in given[2:4]:
                    place = builder.add(place, shift) if shift else place
                    for _ in range(4):
                        pointers.append(builder.bitcast(builder.gep(data, [place]), vector))
                        place = builder.add(place, given[4])
            vectors = [builder.load(each, align=size) for each in pointers[:8]]
            for i, j in pairs:
                a, b = vectors[i], vectors[j]
                is_less = builder.icmp_signed("<", a, b)
                vectors[i] = builder.select(is_less, a, b)
                vectors[j] = builder.select(is_less, b, a)
            for each, pointer in zip(vectors, pointers[8:], strict=True):
                builder.store(each, pointer, align=size)
            return context.get_dummy_value()

        return types.void(source, target, *[types.int64] * 4), generate

    def choose(source: Any, target: Any, i: Any, j: Any, step: Any, shift: Any) -> Any:
        del source, target, i, j, step, shift
        made = compiling.intrinsic(compiling.renamed(typed, f"_{name}"))

        def compare(source: Any, target: Any, i: Any, j: Any, step: Any, shift: Any) -> None:
            made(source, target, i, j, step, shift)

        return compiling.renamed(compare, name)

    return compiling.by_types(compiling.renamed(choose, name))


_move = _network("move", ())
_sort_eight = _network("sort_eight", BY_1 + MIRRORED_4 + BY_1 + MIRRORED_8 + BY_2 + BY_1)
_merge = _network("merge", MIRRORED_8 + BY_2 + BY_1)
_three_steps = _network("three_steps", BY_4 + BY_2 + BY_1)
_two_steps = _network("two_steps", BY_2 + BY_1)
_last_step = _network("last_step", BY_1)


@called_by_kernels
def _sort(keys: Any, stop: Any, one: Any) -> None:
    """Sort vectors of `one` elements each; those behind `stop` are the largest.

    There are eight, or another power of two.
    """
    for i in range(0, stop, 8 * one):
        _sort_eight(keys, keys, i, i + 4 * one, one, 0)
    size = 8 * one  # of the runs that are sorted
    while size < stop:
        step = size // 4
        for start in range(0, stop - size, 2 * size):
            mirrored = start + 2 * size - one - 3 * step
            for i in range(0, step, one):
                _merge(keys, keys, start + i, mirrored - i, step, 0)
        gap = size // 8
        while gap >= 4 * one:
            step = gap // 4
            for start in range(0, stop, 2 * gap):
                for i in range(start, start + step, one):
                    _three_steps(keys, keys, i, i + gap, step, 0)
            gap //= 8
        for i in range(0, stop, 8 * one):
            if gap == 2 * one:
                _two_steps(keys, keys, i, i + 4 * one, one, 0)
            elif gap == one:
                _last_step(keys, keys, i, i + 4 * one, one, 0)
        size *= 2
