"""The reference kernels: any array of the array API standard, no compiled code.

Every fast kernel is pinned to these by one shared test. They sort the chunk, so they are slower
than the kernels written for a kind of chunk, and need scratch of two chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.cuts import Brackets, Cuts, FloatArray, IntArray, Tally

Array = Any  # an array-API array


def cuts(values: Array, n_pivots: int) -> Cuts:
    """The cuts of a chunk at pivots spread evenly over its own order statistics, extremes among
    them.

    Parameters
    ----------
    values : array, shape (n,)
        Of a real floating or integer dtype.
    n_pivots : int
        How many pivots to choose, at least 1. Equal ones are merged.

    Returns
    -------
    Cuts
        Of this one chunk, on the host.
    """
    ordered, n_missing = _sort_valid(values)
    n_valid = ordered.shape[0]
    pivots = _take(ordered, even_positions(n_valid, n_pivots))
    pivots = pivots[_is_first(pivots)]
    return Cuts.of_chunk(to_host(pivots), *_measure(ordered, pivots), n_valid, n_missing)


def measure(values: Array, pivots: Array) -> tuple[IntArray, IntArray, FloatArray]:
    """Counts below and up to each of the ascending `pivots`, and the distances of its cell: see
    `Cuts`."""
    return _measure(_sort_valid(values)[0], pivots)


def tally(values: Array, brackets: Brackets, most: int) -> Tally | None:
    """Count a chunk at the ends of `brackets` and gather its candidates.

    Parameters
    ----------
    values : array, shape (n,)
        As for `cuts`.
    brackets : Brackets
        On the host.
    most : int
        How many candidates there can be.

    Returns
    -------
    Tally or None
        On the host; None if there are more candidates than `most`.
    """
    ordered, n_missing = _sort_valid(values)
    n_valid = ordered.shape[0]
    ends = _like(brackets.ends, ordered)
    xp = namespace(ordered)
    below = to_host(xp.searchsorted(ordered, ends, side="left")).astype(np.int64)
    upto = to_host(xp.searchsorted(ordered, ends, side="right")).astype(np.int64)
    starts = np.append(np.int64(0), upto)[brackets.wanted]
    stops = np.append(below, np.int64(n_valid))[brackets.wanted]
    if int((stops - starts).sum()) > most:
        return None
    pieces = [to_host(ordered[int(a) : int(b)]) for a, b in zip(starts, stops, strict=True)]
    candidates = np.concatenate([brackets.ends[:0], *pieces])
    return Tally(below, upto, candidates, n_valid, n_missing)


def even_positions(n: int, count: int) -> IntArray:
    """At most `count` distinct positions spread evenly over ``range(n)``, its first and last among
    them."""
    if n <= count:
        return np.arange(n, dtype=np.int64)
    # Exact in Python's integers, whatever n.
    steps = max(count - 1, 1)
    return np.array([i * (n - 1) // steps for i in range(count)], dtype=np.int64)


def namespace(array: Array) -> Any:
    """The array-API namespace of an array."""
    return array.__array_namespace__()


def to_host(array: Array) -> Any:
    """A NumPy array of the same values."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _measure(ordered: Array, pivots: Array) -> tuple[IntArray, IntArray, FloatArray]:
    xp = namespace(ordered)
    below = to_host(xp.searchsorted(ordered, pivots, side="left")).astype(np.int64)
    upto = to_host(xp.searchsorted(ordered, pivots, side="right")).astype(np.int64)
    starts = np.append(np.int64(0), upto)[:-1]
    distance = np.full(len(below), np.nan)  # the first cell has no lower end: unknown
    for i in range(1, len(below)):
        distance[i] = _distance(ordered[int(starts[i]) : int(below[i])], pivots[i])
    return below, upto, distance


def _distance(cell: Array, pivot: Array) -> float:
    """Sum of ``pivot - x`` over the elements of a sorted cell, to the accuracy that `Cuts`
    states."""
    if cell.shape[0] == 0:
        return 0.0
    xp = namespace(cell)
    if xp.isdtype(cell.dtype, "real floating"):
        with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN mean unknown
            gaps = xp.astype(pivot, xp.float64) - xp.astype(cell, xp.float64)
            return float(xp.sum(gaps))
    if int(pivot) - int(cell[0]) > 2**63 - 1:
        return float("nan")  # the differences overflow every dtype of the standard
    wide = xp.uint64 if cell.dtype == xp.uint64 else xp.int64
    gaps = xp.astype(pivot, wide) - xp.astype(cell, wide)
    return float(xp.sum(xp.astype(gaps, xp.float64)))


def _sort_valid(values: Array) -> tuple[Array, int]:
    """The elements that are no NaN, ascending, and the number of those that are."""
    xp = namespace(values)
    n_missing = 0
    if xp.isdtype(values.dtype, "real floating"):
        is_missing = xp.isnan(values)
        n_missing = int(xp.count_nonzero(is_missing))
        if n_missing:
            values = values[~is_missing]
    return xp.sort(values), n_missing


def _is_first(ordered: Array) -> Array:
    """Whether an element of a sorted array differs from the one before."""
    xp = namespace(ordered)
    n = ordered.shape[0]
    return xp.concat([xp.ones(min(n, 1), dtype=xp.bool), ordered[1:] != ordered[:-1]])


def _take(array: Array, positions: IntArray) -> Array:
    return namespace(array).take(array, _like(positions, array))


def _like(host: Any, array: Array) -> Array:
    """A NumPy array as one of the kind, and on the device, of `array`."""
    return namespace(array).asarray(host, device=array.device)
