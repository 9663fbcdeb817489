"""Measurements of strategies in CuPy chunks: the host side of ``measures.cu``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cpu import measures as cpu_measures
from dask_gpuselect.kernels.cuda.chunk import FEW, Chunk, Elements, compressed, on_host
from dask_gpuselect.kernels.cuda.launch import Array, blocks_at_once, launch
from dask_gpuselect.kernels.cuda.source import COUNTERS, SPACES, record
from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.strategies import probes
from dask_gpuselect.strategies.spaces import Space

COUNTED = record("measures.cu", "Counted")


def answer_probe(values: Elements, probe: probes.Measure) -> probes.ProbeResult:
    """Answer a probe; see `measures.answer_probe`. Reads the chunk once for each pivot."""
    values = compressed(values)
    if values.size <= FEW:
        return cpu_measures.answer_probe(on_host(values), probe)
    result: probes.ProbeResult = MEASURES[type(probe)](values, probe)
    return result


def _counted(
    values: Array, name: str, space: str, n_sums: int, arguments: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Run a kernel; return its counts and extreme keys, and its sums over all blocks."""
    made = (("SPACE", SPACES[space]),)
    dtype = np.dtype(values.dtype)
    blocks = blocks_at_once(dtype, name, made)
    sheet = np.dtype([("counted", COUNTED), ("sums", "f8", (blocks, n_sums))])
    out = cupy.zeros(sheet.itemsize, np.uint8)
    arguments = (*Chunk.of(values), *arguments, out, out[COUNTED.itemsize :])
    launch(dtype, name, *arguments, blocks=blocks, defined=made)
    back = out.get().view(sheet)[0]
    with np.errstate(over="ignore", invalid="ignore"):
        return back["counted"], back["sums"].sum(axis=0)


def _extent(values: Array, probe: probes.Extent) -> probes.ExtentResult:
    origin = int(probe.space.origin)
    counted, sums = _counted(values, "extent", probe.space.name, 1, (origin,))
    n_missing = int(counted["n_missing"])
    n_valid = values.size - n_missing
    if not n_valid:
        above = probes.no_key_above(selection_dtype(values.dtype))
        return probes.ExtentResult(0, n_missing, above, probes.NO_KEY_BELOW, 0.0)
    least, largest = int(~counted["not_next"]), int(counted["previous"])
    return probes.ExtentResult(n_valid, n_missing, least, largest, float(sums[0]))


def _points(values: Array, probe: probes.Points) -> probes.PointsResult:
    rows = [_point(values, key, probe.space) for key in probe.keys]
    return measures.points_of(values.size, selection_dtype(values.dtype), probe.space, rows)


def _point(values: Array, key: int, space: Space | None) -> tuple[Any, ...]:
    """Measure one pivot; return the numbers that `measures.points_of` takes."""
    name, at, origin = "none", 0.0, 0.0
    if space is not None:
        name, at = space.name, space.coordinate(key, selection_dtype(values.dtype))
        origin = float(space.origin) if name == "log" else 0.0
    counted, sums = _counted(values, "point", name, 2, (key, at, origin))
    below, above, n_missing = (int(counted[field]) for field in ("n_below", "n_above", "n_missing"))
    keys = int(counted["previous"]), int(~counted["not_next"])
    return below, values.size - n_missing - above, n_missing, *keys, *sums


def _key_bins(values: Array, probe: probes.KeyBins) -> probes.BinsResult:
    bits = 8 * selection_dtype(values.dtype).itemsize
    # In C++ as in Numba, shifting by all bits is not defined.
    n_bins = probe.n_bins if probe.shift < bits else 1
    shift = min(probe.shift, bits - 1)
    return _binned(values, "count_keys", (probe.origin, shift, n_bins), n_bins, probe.n_bins)


def _linear_bins(values: Array, probe: probes.LinearBins) -> probes.BinsResult:
    arguments = (probe.lo, probe.hi, probe.start, probe.slope, probe.n_bins)
    return _binned(values, "count_linear", arguments, probe.n_bins, probe.n_bins)


def _binned(
    values: Array, name: str, arguments: tuple[Any, ...], n_bins: int, n_wanted: int
) -> probes.BinsResult:
    totals = cupy.zeros(2 + n_bins, np.uint64)
    shared = 4 * max(COUNTERS, n_bins)
    launch(np.dtype(values.dtype), name, *Chunk.of(values), *arguments, totals, shared=shared)
    host = totals.get().astype(np.int64)
    n_before, n_missing = host[:2].tolist()
    counts = np.zeros(n_wanted, np.int64)
    counts[:n_bins] = host[2:]
    return probes.BinsResult(values.size - n_missing, n_missing, n_before, counts)


def _drawn(values: Array, probe: probes.Draw) -> probes.Drawn:
    places = np.unravel_index(measures.places_of(values.size, probe), values.shape)
    elements = values[tuple(map(cupy.asarray, places))]
    return measures.drawn(on_host(elements), probe)


MEASURES = measures.by_probe(_extent, _points, _key_bins, _linear_bins, _drawn)
