"""Measurements of strategies: every kind of probe, by NumPy on the host. The reference.

One shared test compares the kernels for NumPy and CuPy chunks with these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, to_host
from dask_gpuselect.kernels.reference.sampling import random_places
from dask_gpuselect.maths.keys import to_keys
from dask_gpuselect.strategies import probes
from dask_gpuselect.strategies.spaces import Space, coordinates, element


def answer_probe(values: Array, probe: probes.Measure) -> probes.ProbeResult:
    """Measure what a probe asks of a chunk, on the host.

    Parameters
    ----------
    values : array, any shape
        Elements of a `keys.selection_dtype`.
    probe : Measure
        See `strategies.probes`.
    """
    values = np.asarray(to_host(values)).reshape(-1)
    is_missing = values != values
    valid = values[~is_missing]
    answer: probes.ProbeResult = MEASURES[type(probe)](valid, int(is_missing.sum()), probe)
    return answer


def _extent(valid: NDArray[Any], n_missing: int, probe: probes.Extent) -> probes.ExtentResult:
    keys = to_keys(valid)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(coordinates(probe.space, valid, keys).sum())
    least, largest = extremes(keys, valid.dtype)
    return probes.ExtentResult(len(valid), n_missing, least, largest, total)


def extremes(keys: probes.KeyArray, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the largest key, or the values that stand for none."""
    if not len(keys):
        return probes.no_key_above(dtype), probes.NO_KEY_BELOW
    return int(keys.min()), int(keys.max())


def _points(valid: NDArray[Any], n_missing: int, probe: probes.Points) -> probes.PointsResult:
    keys = to_keys(valid)
    pivots = np.array(probe.keys, np.uint64)
    is_below, is_above = keys < pivots[:, None], keys > pivots[:, None]
    below = is_below.sum(axis=1)
    upto = len(keys) - is_above.sum(axis=1)
    low, high = np.zeros((2, len(pivots)))
    if probe.space is not None:
        at = coordinates(probe.space, valid, keys)
        with np.errstate(over="ignore", invalid="ignore"):
            for i, key in enumerate(probe.keys):
                distance = at - probe.space.coordinate(key, valid.dtype)
                low[i], high[i] = -distance[is_below[i]].sum(), distance[is_above[i]].sum()
    return probes.PointsResult(
        len(valid),
        n_missing,
        below.astype(np.int64),
        upto.astype(np.int64),
        tuple(extremes(keys[mask], valid.dtype)[1] for mask in is_below),
        tuple(extremes(keys[mask], valid.dtype)[0] for mask in is_above),
        low,
        high,
    )


def points_of(
    n: int, dtype: np.dtype[Any], space: Space | None, rows: Sequence[tuple[Any, ...]]
) -> probes.PointsResult:
    """Make the result of `Points` from the numbers that a kernel finds at each pivot.

    These are the numbers of elements below it, up to it and missing, of n in all; the keys of the
    previous and of the next element, which are arbitrary if there is none; and the sums of
    distances below and above, which are arbitrary without a space.
    """
    below, upto, missing, previous, following, low, high = zip(*rows, strict=True)
    n_valid = n - missing[0]
    sums = (np.zeros(len(rows)) if space is None else np.array(each) for each in (low, high))
    return probes.PointsResult(
        n_valid,
        missing[0],
        np.array(below, np.int64),
        np.array(upto, np.int64),
        tuple(k if m else probes.NO_KEY_BELOW for k, m in zip(previous, below, strict=True)),
        tuple(
            k if m < n_valid else probes.no_key_above(dtype)
            for k, m in zip(following, upto, strict=True)
        ),
        *sums,
    )


def _key_bins(valid: NDArray[Any], n_missing: int, probe: probes.KeyBins) -> probes.BinsResult:
    keys = to_keys(valid)
    origin = np.uint64(probe.origin)
    ahead = keys[keys >= origin] - origin
    bins = ahead >> np.uint64(probe.shift)
    bins = bins[bins < probe.n_bins]
    counts = np.bincount(bins.astype(np.int64), minlength=probe.n_bins)
    return probes.BinsResult(len(valid), n_missing, len(keys) - len(ahead), counts)


def _linear_bins(
    valid: NDArray[Any], n_missing: int, probe: probes.LinearBins
) -> probes.BinsResult:
    lo, hi = (element(key, valid.dtype) for key in (probe.lo, probe.hi))
    inside = valid[(valid >= lo) & (valid <= hi)].astype(np.float64)
    places = np.minimum(((inside - probe.start) * probe.slope).astype(np.int64), probe.n_bins - 1)
    counts = np.bincount(places, minlength=probe.n_bins)
    return probes.BinsResult(len(valid), n_missing, int((valid < lo).sum()), counts)


def _drawn(valid: NDArray[Any], n_missing: int, probe: probes.Draw) -> probes.Drawn:
    return drawn(valid[places_of(len(valid), probe)], probe)


def places_of(n: int, probe: probes.Draw) -> NDArray[np.int64]:
    """Return random places in random order, one in each of equal stretches."""
    random = np.random.default_rng(probe.turn)
    return random.permutation(random_places(n, min(probe.size, n), random))


def drawn(values: NDArray[Any], probe: probes.Draw) -> probes.Drawn:
    """Return the keys of the elements that lie in the probe's bracket."""
    keys = to_keys(values[values == values])
    is_inside = keys <= np.uint64(probe.hi - 1)  # the end may be 2**64
    if probe.lo >= 0:
        is_inside &= keys > np.uint64(probe.lo)
    return probes.Drawn(0, 0, keys[is_inside])


def by_probe(*measures: Callable[..., Any]) -> Mapping[type[Any], Callable[..., Any]]:
    """Map each kind of probe to the function that measures what it asks."""
    kinds = probes.Extent, probes.Points, probes.KeyBins, probes.LinearBins, probes.Draw
    return dict(zip(kinds, measures, strict=True))


MEASURES = by_probe(_extent, _points, _key_bins, _linear_bins, _drawn)
