"""Measurements of strategies in NumPy chunks: compiled by Numba, one read for each probe.

One shared test compares them with the reference, `measures`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.bits import key_of
from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.maths.cuts import extremes_of
from dask_gpuselect.maths.keys import to_keys
from dask_gpuselect.strategies import probes
from dask_gpuselect.strategies.spaces import element

PIECE = 1 << 16  # elements whose logarithms are computed at a time


def answer_probe(values: NDArray[Any], probe: probes.Measure) -> probes.ProbeResult:
    """Answer a probe; see `measures.answer_probe`."""
    answer: probes.ProbeResult = MEASURES[type(probe)](values, probe)
    return answer


def _extent(values: NDArray[Any], probe: probes.Extent) -> probes.ExtentResult:
    ends, by_key = _ends(values.dtype), probe.space.name == "key"
    origin = np.uint64(probe.space.origin if by_key else 0)
    total, n_missing = _measure_extent(values, _bits(values), origin, by_key, ends)
    n_valid = values.size - n_missing
    if n_valid == 0:
        return probes.ExtentResult(
            0, n_missing, probes.no_key_above(values.dtype), probes.NO_KEY_BELOW, 0.0
        )
    least, largest = to_keys(ends).tolist()
    return probes.ExtentResult(n_valid, n_missing, least, largest, total)


def _ends(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the largest number and the least, the starting values of a minimum and a maximum."""
    return np.array(extremes_of(dtype)[::-1], dtype)


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return values.view(f"i{values.dtype.itemsize}")


def _points(values: NDArray[Any], probe: probes.Points) -> probes.PointsResult:
    if probe.space is not None and probe.space.name == "log":
        return _points_by_log(values, probe)
    by_key = probe.space is not None and probe.space.name == "key"
    rows = []
    for key in probe.keys:
        ends, pivot = _ends(values.dtype), element(key, values.dtype)
        about = pivot, np.uint64(key), by_key, ends
        below, n_equal, n_missing, *sums = _measure_point(values, _bits(values), *about)
        following, previous = to_keys(ends).tolist()
        rows.append((below, below + n_equal, n_missing, previous, following, *sums))
    return measures.points_of(values.size, values.dtype, probe.space, rows)


def _points_by_log(values: NDArray[Any], probe: probes.Points) -> probes.PointsResult:
    """Measure points by logarithms, with NumPy in pieces: the logarithms take most of the time."""
    pieces = (values[i : i + PIECE] for i in range(0, max(values.size, 1), PIECE))
    return probes.PointsResult.merge(
        [cast(probes.PointsResult, measures.answer_probe(p, probe)) for p in pieces]
    )


def _key_bins(values: NDArray[Any], probe: probes.KeyBins) -> probes.BinsResult:
    origin, shift = np.uint64(probe.origin), np.uint64(probe.shift)
    counts, n_before, n_missing = _count_keys(values, _bits(values), origin, shift, probe.n_bins)
    return probes.BinsResult(values.size - n_missing, n_missing, n_before, counts)


def _linear_bins(values: NDArray[Any], probe: probes.LinearBins) -> probes.BinsResult:
    lo, hi = (element(key, values.dtype) for key in (probe.lo, probe.hi))
    counts, n_before, n_missing = _count_linear(
        values, lo, hi, probe.start, probe.slope, probe.n_bins
    )
    return probes.BinsResult(values.size - n_missing, n_missing, n_before, counts)


def _drawn(values: NDArray[Any], probe: probes.Draw) -> probes.Drawn:
    return measures.drawn(values[measures.places_of(values.size, probe)], probe)


MEASURES = measures.by_probe(_extent, _points, _key_bins, _linear_bins, _drawn)


# --- Kernels ------------------------------------------------------------------------------------


@called_by_kernels
def _distance(value: Any, bits: Any, origin: Any, from_key: Any, by_key: Any) -> Any:
    """Return the signed distance of an element from a value, or that of their keys, as float64."""
    if not by_key:
        return np.float64(value) - np.float64(origin)
    key = key_of(value, bits)
    return np.float64(key - from_key) if key >= from_key else -np.float64(from_key - key)


@kernel
def _measure_extent(x: t.Values, bits: t.Bits, origin: t.Word, by_key: bool, ends: t.Out) -> Any:
    """Find the extremes, and sum the elements, or the distances of their keys from an origin."""
    least, largest = ends[0], ends[1]
    total, n_missing = 0.0, 0
    for i in range(x.size):
        value = x[i]
        is_missing = value != value
        n_missing += is_missing
        least = value if value < least else least
        largest = value if value > largest else largest
        total += 0.0 if is_missing else _distance(value, bits[i], 0.0, origin, by_key)
    ends[0], ends[1] = least, largest
    return total, n_missing


@kernel
def _measure_point(
    x: t.Values, bits: t.Bits, pivot: t.Value, key: t.Word, by_key: bool, ends: t.Out
) -> Any:
    """Count at a pivot, and sum distances from it, or those of keys."""
    following, previous = ends[0], ends[1]
    n_below = n_equal = n_missing = 0
    low = high = 0.0
    for i in range(x.size):
        value = x[i]
        is_below, is_above = value < pivot, value > pivot
        n_below += is_below
        n_equal += value == pivot
        n_missing += value != value
        previous = value if is_below and value > previous else previous
        following = value if is_above and value < following else following
        distance = _distance(value, bits[i], pivot, key, by_key)
        low -= distance if is_below else 0.0
        high += distance if is_above else 0.0
    ends[0], ends[1] = following, previous
    return n_below, n_equal, n_missing, low, high


@kernel
def _count_keys(x: t.Values, bits: t.Bits, origin: t.Word, shift: t.Word, n_bins: int) -> Any:
    counts = np.zeros(n_bins, np.int64)
    n_before = n_missing = 0
    for i in range(x.size):
        value = x[i]
        if value != value:
            n_missing += 1
            continue
        key = key_of(value, bits[i])
        if key < origin:
            n_before += 1
            continue
        place = (key - origin) >> shift
        if place < np.uint64(n_bins):
            counts[np.int64(place)] += 1
    return counts, n_before, n_missing


@kernel
def _count_linear(
    x: t.Values, lo: t.Value, hi: t.Value, start: float, slope: float, n_bins: int
) -> Any:
    counts = np.zeros(n_bins, np.int64)
    n_before = n_missing = 0
    for i in range(x.size):
        value = x[i]
        n_missing += value != value
        n_before += value < lo
        if lo <= value <= hi:
            place = np.int64((np.float64(value) - start) * slope)
            counts[place if place < n_bins else n_bins - 1] += 1
    return counts, n_before, n_missing
