"""Bins with equal numbers of elements, and the bin of each element."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize

from dask_gpuselect.arguments import (
    Axis,
    as_array,
    as_integer,
    check_most,
    each_of,
    public,
    same_kind,
)
from dask_gpuselect.arrays import to_host
from dask_gpuselect.engine.plans import choose, plan_once
from dask_gpuselect.engine.source import DaskArray, from_array
from dask_gpuselect.kernels import bins as kernel
from dask_gpuselect.kernels import radix
from dask_gpuselect.quantiles.functions import nanquantile

MOST_BINS = 1 << 20  # an edge takes 4 µs when the graph is made


@same_kind
@public(many=("x", "where"))
def quantile_bins(
    x: Any,
    n_bins: int,
    axis: Axis = None,
    *,
    method: str = "linear",
    where: Any = None,
    nodata: Any = None,
) -> Any:
    """Return the edges of bins with equal numbers of elements: exact quantiles.

    Parameters
    ----------
    x : dask array, or array_like
        As for `quantile`, of any shape; a dict or list of arrays too.
    n_bins : int
        From 1 to 2**20.
    axis : None, int or tuple of ints, optional
        Axes along which bins are made; all of them by default. 0 makes bins for each column of a
        table.
    method : str, default "linear"
        As for `quantile`. With "lower", "higher", "nearest" or "inverted_cdf" the edges are
        elements of `x`, of its dtype.
    where, nodata : optional
        Which elements take part, and which are left out, as for `quantile`:
        ``where=da.isfinite(x)``.

    Returns
    -------
    dask array, or an array like `x`
        The exact quantiles at ``0, 1 / n_bins, ..., 1``, ascending, from the minimum to the
        maximum, of shape ``(n_bins + 1,)`` and the axes that are left. NaN and NaT are left out.
        Edges are equal if elements tie: no edges can separate these, and bins between equal edges
        are empty.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError
        As `quantile` does. At the call, a ValueError for fewer bins than one or more than 2**20,
        and a TypeError for a number of bins that is not an integer.

    See Also
    --------
    digitize : The bin of each element.
    quantile : Quantiles, also weighted.
    sort : Sorted arrays.

    Notes
    -----
    Reads and memory: as for `nanquantile` with as many quantiles. Along axes, many quantiles may
    need more than one does: ``explain(x, quantile_bins, axis, n_bins=64)`` shows the plan.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import digitize, quantile_bins
    >>> x = da.arange(1000, chunks=100)
    >>> edges = quantile_bins(x, 4)
    >>> edges.compute()
    array([  0.  , 249.75, 499.5 , 749.25, 999.  ])
    >>> da.bincount(digitize(x, edges[1:-1])).compute()
    array([250, 250, 250, 250])
    >>> columns = da.stack([x, -2 * x], axis=1)
    >>> quantile_bins(columns, 2, axis=0).compute()
    array([[    0. , -1998. ],
           [  499.5,  -999. ],
           [  999. ,     0. ]])
    """
    n_bins = as_integer(n_bins, "n_bins")
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}")
    check_most(n_bins, "n_bins", MOST_BINS)
    each_of(x, "x")  # refuses a list of lazy numbers under this name
    return nanquantile(
        x, np.arange(n_bins + 1) / n_bins, axis, method=method, where=where, nodata=nodata
    )


@same_kind
@public("x", "bins")
def digitize(x: Any, bins: Any, *, right: bool = False) -> Any:
    """Return the indices of the bins of the elements, as `numpy.digitize`; bins may be lazy.

    Parameters
    ----------
    x : dask array, or array_like
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64, of any shape and
        chunks. Chunk sizes may be unknown. Chunks are NumPy or CuPy arrays.
    bins : dask array, or array_like
        One-dimensional, and ascending, as those of `quantile_bins`, or descending. Neighbours may
        be equal. Every task is sent all of them.
    right : bool, default False
        Whether a bin includes its right edge instead of its left edge.

    Returns
    -------
    dask array, or an array like `x`
        int64, of the shape and chunks of `x`: the number of bins that are ``<= x``, or ``< x`` if
        `right`. If bins descend, the number of bins that are ``> x``, or ``>= x``. Missing elements
        (NaN or NaT) are above all bins, as in NumPy.

    Raises
    ------
    TypeError
        At the call, for data or bins that cannot be ordered or compared with each other.
    ValueError
        At the call, for bins that are not one-dimensional, that have missing values, or that
        neither ascend nor descend; for lazy bins the last two while computing. While computing, for
        dates that the finer unit of data and bins cannot represent.

    See Also
    --------
    quantile_bins : Bins with equal numbers of elements.
    numpy.digitize : The function for arrays in memory.

    Notes
    -----
    Reads: each chunk of `x` is read once. Memory: a task holds the chunk, the answer and one more
    copy of the chunk.

    Integers are compared with float bins exactly, where NumPy rounds those above 2**53.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import digitize
    >>> x = da.from_array([0.2, 6.4, 3.0, 1.6], chunks=2)
    >>> digitize(x, [0.0, 1.0, 2.5, 4.0, 10.0]).compute()
    array([1, 4, 3, 2])
    """
    x, bins = as_array(x, "x"), as_array(bins, "bins")
    if bins.ndim != 1:
        raise ValueError(
            f"bins must be one-dimensional, not of shape {bins.shape}: pass bins.ravel()"
        )
    for array in (x, bins):
        radix.check_kind(getattr(array, "_meta", array), "digitize")
    kernel.check_dtypes(x.dtype, bins.dtype)
    if not isinstance(bins, DaskArray):
        kernel.check_edges(to_host(bins))
        if not isinstance(x, DaskArray):
            return kernel.digitized(x, bins, right=right)
    x = x if isinstance(x, DaskArray) else from_array(x, asarray=False)
    name = f"digitize-{choose(plan_once(x)).name}-{tokenize(x, bins, right)}"
    how: dict[str, Any] = {"dtype": np.int64, "meta": meta_from_array(x._meta, dtype=np.int64)}
    return x.map_blocks(kernel.digitized, edges=bins, right=right, name=name, **how)
