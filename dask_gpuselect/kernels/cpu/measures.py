"""Measurements of strategies in NumPy chunks: compiled by Numba, one read for each probe.

One shared test compares them with the reference, `measures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import Types, by_types, called_by_kernels, compiles, types
from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.maths.keys import extreme_keys, to_keys
from dask_gpuselect.strategies import probes
from dask_gpuselect.strategies.spaces import element

COUNTERS = 4  # counters of each bin, by turns: equal elements do not wait for each other
PIECE = 1 << 16  # elements whose logarithms are computed at a time


def report(values: NDArray[Any], probe: probes.Measure) -> probes.Report:
    """Measure what a probe asks; see `measures.report`."""
    found: probes.Report = MEASURES[type(probe)](values, probe)
    return found


def _extent(values: NDArray[Any], probe: probes.Extent) -> probes.ExtentReport:
    ends, is_by_key = _ends(values.dtype), probe.space.name == "key"
    if is_by_key:
        arguments = (values, _words(values), np.uint64(int(probe.space.origin)))
        total, n_missing = _compiled(_extent_by_key, values.dtype)(*arguments, ends)
    else:
        total, n_missing = _compiled(_extent_by_value, values.dtype)(values, ends)
    n_valid = values.size - n_missing
    if n_valid == 0:
        return probes.ExtentReport(
            0, n_missing, probes.no_key_above(values.dtype), probes.NO_KEY_BELOW, 0.0
        )
    least, largest = to_keys(ends).tolist()
    return probes.ExtentReport(n_valid, n_missing, least, largest, total)


def _ends(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the largest number and the least, the starting values of a minimum and a maximum."""
    least, largest = (element(key, dtype) for key in extreme_keys(dtype))
    return np.array([largest, least], dtype)


def _words(values: NDArray[Any]) -> NDArray[Any]:
    return values.view(f"u{values.dtype.itemsize}")


def _points(values: NDArray[Any], probe: probes.Points) -> probes.PointsReport:
    if probe.space is not None and probe.space.name == "log":
        return _points_by_log(values, probe)
    dtype, n_pivots = values.dtype, len(probe.keys)
    below, upto = np.empty((2, n_pivots), np.int64)
    low, high = np.zeros((2, n_pivots))
    previous, following = [], []
    n_missing = 0
    for i, key in enumerate(probe.keys):
        ends = _ends(dtype)
        pivot = element(key, dtype)
        if probe.space is not None and probe.space.name == "key":
            by_key = _compiled(_point_by_key, dtype)
            found = by_key(values, _words(values), pivot, np.uint64(key), ends)
        else:
            found = _compiled(_point_by_value, dtype)(values, pivot, ends)
        below[i], n_equal, n_missing, low[i], high[i] = found
        upto[i] = below[i] + n_equal
        next_key, previous_key = to_keys(ends).tolist()
        previous.append(previous_key if below[i] else probes.NO_KEY_BELOW)
        following.append(
            next_key if upto[i] < values.size - n_missing else probes.no_key_above(dtype)
        )
    if probe.space is None:
        low[:] = high[:] = 0
    n_valid = values.size - n_missing
    return probes.PointsReport(
        n_valid, n_missing, below, upto, tuple(previous), tuple(following), low, high
    )


def _points_by_log(values: NDArray[Any], probe: probes.Points) -> probes.PointsReport:
    """Measure points by logarithms, with NumPy in pieces: the logarithms take most of the time."""
    pieces = (values[i : i + PIECE] for i in range(0, max(values.size, 1), PIECE))
    return probes.PointsReport.merge(
        [cast(probes.PointsReport, measures.report(p, probe)) for p in pieces]
    )


def _key_bins(values: NDArray[Any], probe: probes.KeyBins) -> probes.BinsReport:
    counts, n_before, n_missing = _compiled(_count_keys, values.dtype)(
        values,
        _words(values),
        np.uint64(probe.origin),
        np.uint64(probe.shift),
        probe.n_bins,
    )
    return probes.BinsReport(values.size - n_missing, n_missing, n_before, counts.sum(axis=0))


def _linear_bins(values: NDArray[Any], probe: probes.LinearBins) -> probes.BinsReport:
    lo, hi = (element(key, values.dtype) for key in (probe.lo, probe.hi))
    counts, n_before, n_missing = _compiled(_count_linear, values.dtype)(
        values, lo, hi, probe.start, probe.slope, probe.n_bins
    )
    return probes.BinsReport(values.size - n_missing, n_missing, n_before, counts.sum(axis=0))


def _drawn(values: NDArray[Any], probe: probes.Draw) -> probes.Drawn:
    return measures.drawn(values[measures.places_of(values.size, probe)], probe)


MEASURES: Mapping[type[Any], Callable[..., Any]] = {
    probes.Extent: _extent,
    probes.Points: _points,
    probes.KeyBins: _key_bins,
    probes.LinearBins: _linear_bins,
    probes.Draw: _drawn,
}


# --- Kernels ------------------------------------------------------------------------------------


@called_by_kernels
def _key(word: Any, sign: Any, is_signed: Any, is_float: Any) -> Any:
    """Return the ordered key of an element from its bits as uint64; see `keys.to_keys`."""
    if is_float:
        if word == sign:
            return sign  # -0.0, as +0.0
        return (sign + sign - np.uint64(1)) - word if word & sign else word | sign
    return word ^ sign if is_signed else word


def _extent_by_value(x: Any, ends: Any) -> Any:
    least, largest = ends[0], ends[1]
    total, n_missing = 0.0, 0
    for i in range(x.size):
        value = x[i]
        is_missing = value != value
        n_missing += is_missing
        least = value if value < least else least
        largest = value if value > largest else largest
        total += 0.0 if is_missing else np.float64(value)
    ends[0], ends[1] = least, largest
    return total, n_missing


def _extent_by_key(x: Any, words: Any, origin: Any, ends: Any) -> Any:
    sign, is_signed, is_float = _kind(x)
    least, largest = ends[0], ends[1]
    total, n_missing = 0.0, 0
    for i in range(x.size):
        value = x[i]
        is_missing = value != value
        n_missing += is_missing
        least = value if value < least else least
        largest = value if value > largest else largest
        key = _key(np.uint64(words[i]), sign, is_signed, is_float)
        total += 0.0 if is_missing else _distance(key, origin)
    ends[0], ends[1] = least, largest
    return total, n_missing


@called_by_kernels
def _distance(key: Any, origin: Any) -> Any:
    """Return the signed distance of a key from the origin, as float64."""
    return np.float64(key - origin) if key >= origin else -np.float64(origin - key)


@by_types
def _kind(x: Any) -> Any:
    """Return the key of zero, and whether elements are signed integers or floats."""
    sign = np.uint64(1 << (x.dtype.bitwidth - 1))
    is_float = isinstance(x.dtype, types.Float)
    is_signed = not is_float and x.dtype.signed
    return lambda x: (sign, is_signed, is_float)


def _point_by_value(x: Any, pivot: Any, ends: Any) -> Any:
    following, previous = ends[0], ends[1]
    n_below = n_equal = n_missing = 0
    low = high = 0.0
    centre = np.float64(pivot)
    for i in range(x.size):
        value = x[i]
        is_below, is_above = value < pivot, value > pivot
        n_below += is_below
        n_equal += value == pivot
        n_missing += value != value
        previous = value if is_below and value > previous else previous
        following = value if is_above and value < following else following
        distance = np.float64(value) - centre
        low -= distance if is_below else 0.0
        high += distance if is_above else 0.0
    ends[0], ends[1] = following, previous
    return n_below, n_equal, n_missing, low, high


def _point_by_key(x: Any, words: Any, pivot: Any, centre: Any, ends: Any) -> Any:
    sign, is_signed, is_float = _kind(x)
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
        key = _key(np.uint64(words[i]), sign, is_signed, is_float)
        low += np.float64(centre - key) if is_below else 0.0
        high += np.float64(key - centre) if is_above else 0.0
    ends[0], ends[1] = following, previous
    return n_below, n_equal, n_missing, low, high


def _count_keys(x: Any, words: Any, origin: Any, shift: Any, n_bins: Any) -> Any:
    sign, is_signed, is_float = _kind(x)
    counts = np.zeros((COUNTERS, n_bins), np.int64)
    n_before = n_missing = 0
    for i in range(x.size):
        value = x[i]
        if value != value:
            n_missing += 1
            continue
        key = _key(np.uint64(words[i]), sign, is_signed, is_float)
        if key < origin:
            n_before += 1
            continue
        place = (key - origin) >> shift
        if place < np.uint64(n_bins):
            counts[i % COUNTERS, np.int64(place)] += 1
    return counts, n_before, n_missing


def _count_linear(x: Any, lo: Any, hi: Any, start: Any, slope: Any, n_bins: Any) -> Any:
    counts = np.zeros((COUNTERS, n_bins), np.int64)
    n_before = n_missing = 0
    for i in range(x.size):
        value = x[i]
        n_missing += value != value
        n_before += value < lo
        if lo <= value <= hi:
            place = np.int64((np.float64(value) - start) * slope)
            counts[i % COUNTERS, min(place, n_bins - 1)] += 1
    return counts, n_before, n_missing


# --- Compilation --------------------------------------------------------------------------------


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    scalar: Any = values.dtype
    word: types.Type = getattr(types, f"uint{scalar.bitwidth}")
    words = types.Array(word, 1, "C", readonly=True)
    return {
        _extent_by_value: (values, values_out),
        _extent_by_key: (values, words, types.uint64, values_out),
        _point_by_value: (values, scalar, values_out),
        _point_by_key: (values, words, scalar, types.uint64, values_out),
        _count_keys: (values, words, types.uint64, types.uint64, types.int64),
        _count_linear: (values, scalar, scalar, types.float64, types.float64, types.int64),
    }
