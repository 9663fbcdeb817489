"""Bins of the elements of a NumPy or CuPy chunk, on the chunk's own device.

Elements and edges are compared by their keys, see `radix.keys_of`. An edge that the chunk's dtype
cannot represent is replaced by a neighbour that it can, which divides the elements in the same way:
so integers above 2**53 are compared with float64 edges exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, as_declared, like, namespace, to_host
from dask_gpuselect.kernels.radix import keys_of
from dask_gpuselect.maths.interpolation import conversion_of, no_quantiles_of
from dask_gpuselect.quiet import quiet


def check_dtypes(elements: np.dtype[Any], edges: np.dtype[Any]) -> None:
    """Raise a TypeError if elements and edges of these dtypes cannot be compared."""
    kinds = {elements.kind, edges.kind}
    is_wide = max(elements.itemsize, edges.itemsize) > 8
    if is_wide or not (kinds <= set("biuf") or kinds in ({"M"}, {"m"})):
        other = ": convert one of them, for example bins.astype(x.dtype)"
        advice = conversion_of(elements) if no_quantiles_of(elements) else other
        raise TypeError(
            f"x of dtype {elements} cannot be compared with bins of dtype {edges}{advice}"
        )


def check_edges(edges: NDArray[Any]) -> None:
    """Raise a ValueError if edges are missing, or neither ascend nor descend."""
    if (edges != edges).any():  # noqa: PLR0124 - NaN and NaT
        raise ValueError("bins must not be missing (NaN or NaT): pass bins[~numpy.isnan(bins)]")
    if not ((edges[1:] >= edges[:-1]).all() or (edges[1:] <= edges[:-1]).all()):
        raise ValueError("bins must ascend or descend: pass numpy.sort(bins)")


@quiet()
def digitized(chunk: Array, edges: Any, *, right: bool) -> Array:
    """Return what ``numpy.digitize`` returns, as int64 of the chunk's shape.

    Parameters
    ----------
    chunk : NumPy or CuPy array
        Elements, of any shape.
    edges : array
        Edges, one-dimensional, on any device.
    right : bool
        True if a bin includes its right edge.
    """
    edges = to_host(edges)
    check_edges(edges)
    if len(edges) and edges[0] > edges[-1]:
        return len(edges) - digitized(chunk, edges[::-1], right=right)
    dtype = chunk.dtype.newbyteorder("=")
    if dtype.kind in "mM" and dtype != edges.dtype:
        dtype = np.promote_types(dtype, edges.dtype)
        chunk, edges = _in_unit(chunk, dtype), _in_unit(edges, dtype)
    n_below, inside = as_elements(edges, dtype, right=right)
    keys = keys_of(chunk, dtype)
    wanted = like(keys_of(inside, dtype), chunk)
    side = "left" if right else "right"
    numbers = n_below + wanted.searchsorted(keys, side=side).astype(np.int64)
    if dtype.kind in "fmM":
        numbers = namespace(chunk).where(keys == ~keys.dtype.type(0), len(edges), numbers)
    return numbers.reshape(chunk.shape)


def _in_unit(dates: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert dates to a finer unit; raise a ValueError if one is out of its range."""
    try:
        converted: NDArray[Any] = as_declared(dates, dtype, "")
    except TypeError:
        raise ValueError(
            f"dates of {dates.dtype} are compared as {dtype}, and some are beyond its range: "
            "convert x and bins to one unit first"
        ) from None
    return converted


def as_elements(
    edges: NDArray[Any], dtype: np.dtype[Any], *, right: bool
) -> tuple[int, NDArray[Any]]:
    """Convert edges to elements of a dtype that divide the elements in the same way.

    Returns the number of edges below all elements of the dtype, and the converted edges without
    these. With `right`, each becomes the largest element that is ``<=`` the edge: the same elements
    are below both. Otherwise it becomes the least that is ``>=`` the edge: the same elements are up
    to both.
    """
    if edges.dtype == dtype or dtype.kind in "mM":
        return 0, edges.astype(dtype)
    if edges.dtype.kind == "b":
        edges = edges.astype(np.uint8)
    if dtype.kind == "f":
        return 0, _rounded(edges, dtype, right=right)
    whole = edges if edges.dtype.kind in "iu" else (np.floor if right else np.ceil)(edges)
    limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = map(int, limits)
    is_low = whole < low if edges.dtype.kind in "iu" else whole.astype(np.float64) < float(low)
    if edges.dtype.kind in "iu":
        is_high = whole > high
    else:  # float(high) may be high + 1
        is_high = whole.astype(np.float64) >= float(high) + (float(high) == high)
    inside = whole[~(is_low | is_high)].astype(dtype)
    n_low, n_high = int(is_low.sum()), int(is_high.sum())
    if right:  # no element of the dtype is <= such an edge: it is below all of them
        return n_low, np.concatenate([inside, np.full(n_high, high, dtype)])
    # An edge above the dtype's range has no element at or above it, and is left out.
    return 0, np.concatenate([np.full(n_low, low, dtype), inside])


def _rounded(edges: NDArray[Any], dtype: np.dtype[Any], *, right: bool) -> NDArray[Any]:
    """Round edges to the next floats of a dtype: down if `right`, else up."""
    with np.errstate(over="ignore"):
        near = edges.astype(dtype)
    if edges.dtype.kind == "f":
        order = (near > edges).astype(np.int8) - (near < edges)
    else:
        order = np.zeros(len(edges), np.int8)
        for i in np.flatnonzero(near.astype(np.float64) != edges.astype(object)):
            value = float(near[i])
            order[i] = 1 if value > int(edges[i]) else -1
    beyond = order > 0 if right else order < 0
    towards = dtype.type(-np.inf if right else np.inf)
    with np.errstate(over="ignore"):
        return np.where(beyond, np.nextafter(near, towards), near)
