"""`kneighbors`: the nearest rows of some queries."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from dask_gpuselect.arguments import check_real, check_table, public
from dask_gpuselect.arrays import FILL_ROWS, as_numpy, check_not_masked, is_array
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.neighbors.graph import Answer, NeighborSearch, check_k, distances_of, indices_of


@public("X", "Q")
def kneighbors(X: Any, Q: Any, k: int) -> tuple[Any, Any]:
    """Exact k nearest rows of each query by Euclidean distance, reading each chunk once.

    Parameters
    ----------
    X : dask array or array_like, shape (n, p)
        The rows, of bool, integers, float16, float32 or float64, all finite, in chunks along the
        first axis, of sizes known or not. Chunks may be NumPy, CuPy or other array-API arrays.
    Q : dask array or array_like, shape (n_queries, p)
        The queries, likewise.
    k : int
        How many rows of each are wanted, from 1 to n.

    Returns
    -------
    distances : dask array, or an array like `X`, shape (n_queries, k)
        float64, ascending. Lazy, of one chunk, if `X` or `Q` is a dask array; else answered at
        once, in kind.
    indices : dask array, or an array like `X`, shape (n_queries, k)
        int64: the numbers of the rows.

    Raises
    ------
    TypeError
        At the call, for complex, object, string and masked arrays and for a k that is no integer.
    ValueError
        At the call, for arrays that are not two-dimensional, without features or with different
        numbers of them; for a dask array of several chunks along the features; for a k below 1 or
        above n. While computing, for NaN and infinity, naming the chunk; for a k above n where n is
        not known before.

    See Also
    --------
    dask_gpuselect.neighbors.NearestNeighbors

    Notes
    -----
    Exact: a distance is the root of the sum, feature after feature, of squared differences in
    float64, and rows are ordered by that sum, equal ones by their numbers. The answer is the same
    to the last bit under any chunking and on any device. Sums that overflow, or are below
    ``2**-900``, are taken again of differences times a power of two, and compared as such: data
    about 1e200 or 1e-200 is answered as well. Everything is converted to float64, which changes
    integers above ``2**53`` alone.

    Loads: one of every chunk of `X`, for any number of queries, and one of every chunk of `Q`.
    Distances and indices computed together share it.

    Memory of a worker: for each thread a chunk and one tile of distances, queries by rows, of at
    most ``dask_gpuselect.distance-limit`` (dask config; 64 MiB, of CuPy chunks 512 MiB), with up to
    five others of its size in between; NumPy chunks need 1 MiB. Beside that the queries, which are
    gathered in one piece of float64, and 17 bytes for each query, neighbour and chunk.

    NumPy chunks are compared by differences alone. For others the product of matrices says which
    rows may be near; its error (cancellation) is bounded, and what it does not prove to be far is
    compared by differences: see `kernels.distances`.

    References
    ----------
    G. Beliakov, "Parallel calculation of the median and order statistics on GPUs with application
    to robust regression", 2011, section VI: the k-th distance is a threshold, and what is no
    further is reduced.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(12, chunks=4).reshape(-1, 1) ** 2
    >>> distances, indices = kneighbors(x, [[10], [50]], 2)
    >>> indices.compute()
    array([[3, 2],
           [7, 6]])
    >>> distances.compute()
    array([[ 1.,  6.],
           [ 1., 14.]])
    """
    X, Q = as_rows(X, "X"), as_rows(Q, "Q")
    k = as_k(k)
    check_features(X, Q)
    check_k(k, X.shape[0], Q.shape[0])
    distances, indices = NeighborSearch(X, Q, k).answers(
        [
            Answer(distances_of, np.dtype(np.float64), (k,)),
            Answer(indices_of, np.dtype(np.int64), (k,)),
        ]
    )
    return distances, indices


# --- Arguments ----------------------------------------------------------------------------------


def as_rows(a: Any, name: str) -> Any:
    """An array of real numbers of two dimensions; an error that names it if it is none."""
    if isinstance(a, DaskArray):
        a = entered(a, name, FILL_ROWS)
    else:
        check_not_masked(a, FILL_ROWS)
        a = a if is_array(a) else as_numpy(a)
    check_real(a, name, most_bits=64)
    check_table(a, name)
    return a


def as_k(k: Any, name: str = "k") -> int:
    """A number of neighbours."""
    try:
        n = operator.index(k)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {k!r}") from None
    if n < 1:
        raise ValueError(f"{name} must be at least 1. Expected n_neighbors > 0. Got {n}")
    return n


def check_features(X: Any, Q: Any) -> None:
    """Raise unless the queries have as many features as the rows."""
    if Q.shape[1] != X.shape[1]:
        raise ValueError(f"Q has {Q.shape[1]} features, and X has {X.shape[1]}")
