"""Conversion of counts in the buckets of ``cells.cu`` to cells between pivots. Needs no CuPy."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import jit_when_called
from dask_gpuselect.kernels.cuda.source import OFFSET_BITS, OUTSIDE, record
from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.keys import from_keys

BUCKET = record("cells.cu", "Bucket")
TINY = 1e-320  # more than rounding takes away from subnormal numbers


class Cells(NamedTuple):
    """The cuts of some elements, and the distances of one more cell.

    That is the last cell; its distances are to a value above all elements.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    distance: FloatArray
    slack: FloatArray
    n_valid: int
    n_missing: int


@cache
def totals_dtype(buckets: int) -> np.dtype[Any]:
    """Return the dtype of `Totals` of ``cells.cu``, followed by its description of the buckets."""
    return np.dtype(
        [
            ("counts", "i8", (3, buckets)),  # of elements below, at, above the bucket's pivot
            ("sums", "i8", (2, buckets)),  # of the offsets of those below and above the pivot
            ("far", "f8", buckets),  # distances to the pivot of elements outside the windows
            ("n_missing", "i8"),
            ("n_buckets", "i8"),
            ("buckets", BUCKET, buckets),
        ]
    )


def assemble(sheet: Any, dtype: np.dtype[Any], above: Any) -> Cells:
    """Make the cells between the pivots from the counts in the buckets."""
    n = int(sheet["n_buckets"])
    buckets = sheet["buckets"][:n]
    has_pivot = buckets["has_pivot"].astype(bool)
    # A bucket beyond its slot's window contains no element, and its pivot may be anything.
    pivot_keys = buckets["pivot"][has_pivot]
    pivots = from_keys(pivot_keys, dtype)
    no_values = np.empty(0)
    edges = next_keys = ends = no_values
    if dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # edges of some empty buckets are NaN
            edges, next_keys, ends = (
                from_keys(keys, dtype).astype(np.float64)
                for keys in (buckets["edge"], buckets["edge"] + np.uint64(1), pivot_keys)
            )
    end_keys = pivot_keys
    if above is not None:
        ends = np.append(ends, float(above))
        first = 1 << (8 * dtype.itemsize - 1) if dtype.kind == "i" else 0
        last_key = 0 if dtype.kind == "f" else int(above) + first
        end_keys = np.append(pivot_keys, np.uint64(last_key))
    inside, equal, distance, slack = _add_up(
        buckets,
        sheet["counts"][:, :n],
        sheet["sums"][:, :n],
        sheet["far"][:n],
        edges,
        next_keys,
        ends,
        end_keys,
        len(pivots),
    )
    upto = np.cumsum(inside[:-1] + equal)
    n_valid = int(inside.sum() + equal.sum())
    return Cells(pivots, upto - equal, upto, distance, slack, n_valid, int(sheet["n_missing"]))


# Compiled, 7,800 buckets take 0.2 ms; 40 NumPy operations took 0.6, as long as a pass over 2^28
# elements takes on the device.
@jit_when_called
def _add_up(
    buckets: Any,
    counts: Any,
    sums: Any,
    far: Any,
    edges: Any,
    next_keys: Any,
    ends: Any,
    end_keys: Any,
    n_pivots: int,
) -> Any:
    """Add up the buckets of each cell: counts inside and at the pivot, distance and slack.

    Cell j, which ends at pivot j, consists of the elements below the pivot in the pivot's own
    bucket, of all buckets before it that have no pivot, and of the elements above the previous
    pivot in that one's bucket.

    `edges`, `next_keys` (the values of the keys after the edges) and `ends` are for floats;
    differences of integers are those of their keys. The cells' ends are the pivots, and one more if
    the last cell has an end.
    """
    inside = np.zeros(n_pivots + 1, np.int64)
    equal = np.zeros(n_pivots, np.int64)
    distance = np.zeros(n_pivots + 1)
    slack = np.zeros(n_pivots + 1)
    is_float = len(edges) > 0
    cell = 0
    for b in range(len(buckets)):
        shift = buckets[b].shift
        unit = 2.0 ** (np.float64(shift) - OFFSET_BITS)
        step = next_keys[b] - edges[b] if is_float else 1.0
        for side in range(2):
            count = counts[2 * side, b]
            if side == 0 and not buckets[b].has_pivot:
                count += counts[1, b] + counts[2, b]
            elif side == 1:
                if not buckets[b].has_pivot:
                    break
                equal[cell] = counts[1, b]
                cell += 1
            if count == 0:
                continue
            inside[cell] += count
            if cell == len(end_keys):
                continue
            if is_float:
                gap = ends[cell] - edges[b]
            else:
                gap = np.float64(end_keys[cell] - buckets[b].edge)
            if shift == OUTSIDE:
                distance[cell] += far[b]
                slack[cell] += 2.0**-52 * (count + 8) * far[b]
                continue
            # Bits of offsets after the first OFFSET_BITS are lost: on average half a unit for each
            # element.
            lost = count * unit * 0.5 if shift > OFFSET_BITS else 0.0
            offsets = sums[side, b] * unit + lost
            apart = count * gap - offsets * step
            rounding = 2.0**-48 * (count * gap) + TINY
            if is_float and not math.isfinite(apart):  # nearly as wide as the dtype's range
                apart = count * (ends[cell] - (edges[b] + offsets / count * step))
                rounding = 2.0**-48 * apart
            distance[cell] += apart
            slack[cell] += lost * step + rounding
    for j in range(n_pivots + 1):
        if distance[j] < 0:
            distance[j] = 0.0
    return inside, equal, distance, slack
