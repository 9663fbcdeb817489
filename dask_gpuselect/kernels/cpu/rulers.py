"""Counts of NumPy chunks at the bars of a ruler, compiled by Numba.

The cell of an element is a few vectorised operations, and counting it one addition: 1.6e7 float64
take 24 ms by one thread, where the tree of `cells` takes 86, and their sum 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    Types,
    by_types,
    called_by_kernels,
    compiles,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.tree import RUN
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.rulers import Ruler

FLUSH = 1 << 30  # elements after which counts move from 32 to 64 bits


@until_compiled(reference.counts_by)
def counts_by(values: NDArray[Any], ruler: Ruler) -> tuple[IntArray, IntArray] | None:
    """How many elements are below and up to each bar; see `reference.selection.counts_by`."""
    if values.size <= SORT_AT_MOST:
        return None
    bars = np.append(ruler.bars, ruler.bars[-1:])  # behind the last one nothing is counted as equal
    how: tuple[Any, ...]
    if ruler.is_by_key:
        words = values.view(f"i{values.dtype.itemsize}")
        kernel, how = _compiled(_count_by_key, values.dtype), (words, ruler.start, ruler.step)
    else:
        kernel, how = _compiled_floats(_count_by_value, values.dtype), (ruler.start, ruler.step)
    total, equal, n_missing = kernel(values, *how, bars)
    total[0] -= n_missing
    upto = np.cumsum(total[:-1])
    # Of bars that are equal, as where steps are finer than the elements, the first one has counted.
    return upto - equal[ruler.bars.searchsorted(ruler.bars)], upto


def _count_by_value(x: Any, start: Any, step: Any, bars: Any) -> Any:
    total = np.zeros(bars.size, np.int64)
    equal = np.zeros(bars.size, np.int64)
    counts = np.zeros((2, bars.size), np.int64)
    cell = np.empty(RUN, np.int32)
    words = np.empty(RUN, np.int64)
    last = x.dtype.type(bars.size - 1)
    zero = x.dtype.type(0)
    n_missing = 0
    for begin in range(0, x.size, FLUSH):
        end = min(begin + FLUSH, x.size)
        for first in range(begin, end, RUN):
            run = x[first : min(first + RUN, end)]
            for k in range(run.size):
                place = (run[k] - start) * step
                place = place if place > zero else zero  # and so is NaN
                cell[k] = np.int32(place if place < last else last)
            n_missing += _count(run, bars, cell, words, counts)
        _flush(counts, total, equal)
    return total, equal, n_missing


def _count_by_key(x: Any, bits: Any, start: Any, shift: Any, bars: Any) -> Any:
    total = np.zeros(bars.size, np.int64)
    equal = np.zeros(bars.size, np.int64)
    counts = np.zeros((2, bars.size), np.int64)
    cell = np.empty(RUN, np.int32)
    words = np.empty(RUN, np.int64)
    last = np.uint64(bars.size - 1)
    by = np.uint64(shift)
    n_missing = 0
    for begin in range(0, x.size, FLUSH):
        end = min(begin + FLUSH, x.size)
        for first in range(begin, end, RUN):
            stop = min(first + RUN, end)
            run = x[first:stop]
            of_run = bits[first:stop]
            for k in range(run.size):
                key = _key(run[k], of_run[k])
                place = np.uint64(key - start) >> by
                place = place if place < last else last
                cell[k] = np.int32(place if key >= start and not is_missing(run[k]) else 0)
            n_missing += _count(run, bars, cell, words, counts)
        _flush(counts, total, equal)
    return total, equal, n_missing


@by_types
def _key(value: Any, bits: Any) -> Any:
    """The key of an element, by its bits as a signed integer, less that of zero."""
    if isinstance(value, types.Float):
        top = value.bitwidth - 1
        rest = (1 << top) - 1
        return lambda value, bits: np.int64(bits ^ ((bits >> top) & rest) if value != 0 else 0)
    if value.signed:
        return lambda value, bits: np.int64(bits)
    least = -(1 << (value.bitwidth - 1))
    return lambda value, bits: np.int64(bits ^ least)


@called_by_kernels
def _count(run: Any, bars: Any, cell: Any, words: Any, counts: Any) -> Any:
    """Count a run by its cells: all elements in the low half of a word, those that equal the bar in
    its high half. Two copies, so that equal cells in a row do not wait for each other."""
    n_missing = 0
    for k in range(run.size):
        n_missing += is_missing(run[k])
    for k in range(run.size):
        words[k] = 1 + (np.int64(run[k] == bars[cell[k]]) << 32)
    for k in range(0, run.size - 1, 2):
        counts[0, cell[k]] += words[k]
        counts[1, cell[k + 1]] += words[k + 1]
    if run.size % 2:
        counts[0, cell[run.size - 1]] += words[run.size - 1]
    return n_missing


@called_by_kernels
def _flush(counts: Any, total: Any, equal: Any) -> None:
    for copy in range(2):
        for i in range(total.size):
            total[i] += counts[copy, i] & 0xFFFFFFFF
            equal[i] += counts[copy, i] >> 32
            counts[copy, i] = 0


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    del values_out
    scalar: Any = values.dtype
    signed = getattr(types, f"int{scalar.bitwidth}")
    bits = types.Array(signed, 1, "C", readonly=True)
    return {_count_by_key: (values, bits, types.int64, types.int64, values)}


@compiles
def _compiled_floats(values: types.Array, values_out: types.Array) -> Types:
    del values_out
    return {_count_by_value: (values, values.dtype, values.dtype, values)}
