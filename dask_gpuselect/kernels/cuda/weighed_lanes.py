"""Weighted lanes of CuPy chunks: sorted on the device, with running sums of weights as floats.

These sums decide nearly every answer, and are exact if the weights are integers. Lanes for which
they cannot decide are handled on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.arrays import all_true, any_true
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cuda.launch import Array
from dask_gpuselect.kernels.reference.at_once import lanes_last
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths import lane_weights
from dask_gpuselect.maths.lane_cuts import Lanes, join
from dask_gpuselect.maths.sorted_lanes import SortedLanes

# Elements that are sorted together, with 40 bytes of scratch each.
TILE = 1 << 27
WHOLE = 2.0**53  # integers up to here are numbers of float64


def answer_lanes(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], axes: tuple[int, ...], question: Any
) -> Array | None:
    """Answer a question for every lane, ``(n_answers, n_lanes)``, on the device.

    None where the host answers: by the estimator of type 7, about dates and integers of eight
    bytes, and if weights are integers beyond 2**53 or close to the largest or least float64.
    """
    wanted, kind = question.wanted, _sorted_as(dtype)
    if wanted.method == lane_weights.TYPE_7 or kind is None:
        return None
    tables = [[lanes_last(each, axes) for each in _arrays(chunk, kind)] for chunk in chunks]
    if any(weights.dtype.kind != "f" for _, weights in tables):
        return None
    found: list[Lanes] = []
    n = sum(values.shape[-1] for values, _ in tables)
    for tile in _tiles(tables, n):
        some = _pick(*tile, wanted)
        if some is None:
            return None
        found.append(some)
    lanes = found[0] if len(found) == 1 else join(found)
    is_chosen = wanted.method == "inverted_cdf" or not any_true(lanes.lower != lanes.upper)
    if is_chosen and all_true(lanes.n_valid > 0) and not any_true(lanes.n_missing > 0):
        lower = lanes.lower if lanes.lower.dtype.kind != "f" else lanes.lower + 0.0
        return lower.T.astype(question.dtype)
    names = "lower", "upper", "n_valid", "n_missing"
    return cupy.asarray(question.finished(Lanes(*(getattr(lanes, each).get() for each in names))))


def _sorted_as(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the floating dtype in which elements are sorted; None if the host handles them."""
    if dtype.kind == "f":
        return np.dtype(f"f{max(dtype.itemsize, 4)}")
    if dtype.kind in "iub" and dtype.itemsize <= 4:
        return np.dtype("f4" if dtype.itemsize <= 2 else "f8")
    return None


def _arrays(chunk: Accompanied, kind: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the elements of a chunk as floats, and their weights, 0 for masked elements."""
    weights = chunk.weights
    assert weights is not None
    if chunk.keeps is not None:
        weights = cupy.where(chunk.keeps, weights, weights.dtype.type(0))
    return chunk.values.astype(kind, copy=False), cupy.broadcast_to(
        as_weights(weights), chunk.shape
    )


def _tiles(tables: Sequence[Sequence[Array]], n: int) -> Iterator[tuple[Array, Array]]:
    """Yield elements and weights of consecutive lanes, each as a table."""
    flat = [[each.reshape(-1, each.shape[-1]) for each in pair] for pair in tables]
    n_lanes, step = len(flat[0][0]), max(TILE // max(n, 1), 1)
    for start in range(0, max(n_lanes, 1), step):
        lanes = slice(start, start + step)
        values, weights = (
            cupy.concatenate([pair[i][lanes] for pair in flat], axis=1) for i in range(2)
        )
        yield values, weights


def _pick(values: Array, weights: Array, wanted: lane_weights.WantedQuantiles) -> Lanes | None:
    """Find the elements that answer for each lane, on the device; None for unusual weights.

    These are weights close to the largest or least float64, and lanes in which nothing has a
    weight.
    """
    n = values.shape[1]
    largest = float(weights.max()) if weights.size else 0.0
    if not n or not 1e-290 < largest < 1e290 / n:
        return None
    weighs, is_missing = weights > 0, cupy.isnan(values)
    takes = weighs & ~is_missing
    n_valid, n_missing = (
        cupy.count_nonzero(mask, axis=1).astype(np.int64) for mask in (takes, is_missing & weighs)
    )
    if any_true((n_valid == 0) & (n_missing == 0)):
        return None  # nothing weighs anything, or all is left out: the host tells them apart
    filled = cupy.where(takes, values, values.dtype.type(np.inf))
    order = _order(filled)
    ordered = cupy.take_along_axis(filled, order, axis=1)
    own = cupy.take_along_axis(cupy.where(takes, weights, 0.0), order, axis=1)
    sums = cupy.cumsum(own, axis=1, dtype=np.float64)
    weight = sums[:, -1]
    is_whole = n * largest < WHOLE and all_true(cupy.rint(own) == own)
    slack = 0.0 if is_whole else weight * ((n + 8) * 2.0**-52)
    shape = len(values), len(wanted.q)
    lower, upper = cupy.empty(shape, values.dtype), cupy.empty(shape, values.dtype)
    is_sure = cupy.ones(len(values), bool)
    with_next = wanted.method == "averaged_inverted_cdf"
    for i, q in enumerate(wanted.q):
        share = weight * q
        place = cupy.count_nonzero(sums < (share - slack)[:, None], axis=1)
        if q == 0:
            place = cupy.zeros_like(place)
        elif q == 1:
            place = cupy.maximum(n_valid - 1, 0)
        passed = place
        if is_whole and with_next and 0 < q < 1:
            passed = cupy.count_nonzero(sums <= share[:, None], axis=1)
        elif not is_whole and 0 < q < 1:
            is_sure &= _at(sums, place) > share + slack
        lower[:, i], upper[:, i] = _at(ordered, place), _at(ordered, passed)
    rows = cupy.flatnonzero(~is_sure & (n_valid > 0))
    if rows.size:
        some = SortedLanes.weighed(values[rows].get(), weights[rows].get())
        exact = lane_weights.pick(some, wanted)
        lower[rows], upper[rows] = cupy.asarray(exact.lower), cupy.asarray(exact.upper)
    return Lanes(lower, upper, n_valid, n_missing)


def _at(table: Array, place: Array) -> Array:
    """Return an element of each row: the last one for places beyond it."""
    place = cupy.minimum(place, table.shape[1] - 1)
    return cupy.take_along_axis(table, place[:, None], axis=1)[:, 0]


def _order(values: Array) -> Array:
    """Return the places that sort each row of floats, by radix sorts of all rows together."""
    n_rows, n = values.shape
    word = np.dtype(f"u{values.dtype.itemsize}")
    bits, top = values.view(word).ravel(), word.type(1 << (8 * word.itemsize - 1))
    keys = bits ^ cupy.where(bits & top, word.type(~word.type(0)), top)
    row = cupy.repeat(cupy.arange(n_rows, dtype=np.uint32), n)
    if word.itemsize == 4:
        order = cupy.argsort(row.astype(np.uint64) << np.uint64(32) | keys)
    else:
        order = cupy.argsort(keys)
        order = order[cupy.argsort(row[order])]
    return order.reshape(n_rows, n) - cupy.arange(n_rows)[:, None] * n
