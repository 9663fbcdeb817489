"""`kneighbors`: the nearest rows of some queries."""

from __future__ import annotations

from typing import Any

from dask_gpuselect.arguments import as_entered, as_integer, check_real, check_table, public
from dask_gpuselect.arrays import as_numpy, is_array
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.neighbors.search import Answer, Search, answers, check_k


@public("X", "Q")
def kneighbors(X: Any, Q: Any, k: int) -> tuple[Any, Any]:
    """Find the exact k nearest rows of each query by Euclidean distance, reading each chunk once.

    Every distance is computed; there is no approximate index.

    Parameters
    ----------
    X : dask array or array_like, shape (n, p)
        The rows to search. The dtype is bool, integer, float16, float32 or float64, and all values
        are finite. A dask array has chunks along the first axis only. Their sizes may be unknown.
        Chunks may be NumPy, CuPy or other array-API arrays.
    Q : dask array or array_like, shape (n_queries, p)
        The queries. The same rules apply as for `X`.
    k : int
        The number of neighbours of each query, from 1 to n.

    Returns
    -------
    distances : array, shape (n_queries, k)
        float64, ascending along each row. A lazy dask array of one chunk if `X` or `Q` is a dask
        array. Otherwise an array of the same kind as `X`.
    indices : array, shape (n_queries, k)
        int64. The row numbers in `X` that belong to `distances`. Lazy in the same cases.

    Raises
    ------
    TypeError
        At the call, if an array is complex, object, string or masked, or if `k` is not an integer.
    ValueError
        At the call, if an array is not two-dimensional, if it has no features, if `X` and `Q`
        differ in the number of features, if a dask array has several chunks along the features, or
        if `k` is below 1 or above n.
        While computing, if a chunk holds NaN or infinity (the error names the chunk), or if `k` is
        above n and n was unknown at the call.

    See Also
    --------
    dask_gpuselect.neighbors.NearestNeighbors : This search as a scikit-learn estimator.

    Notes
    -----
    Exactness: a distance is the square root of the sum of squared differences. The sum is taken in
    float64, feature after feature. Rows are ordered by this sum, and rows with equal sums by their
    row number. So the answer is the same to the last bit for any chunks and on any device. If a sum
    overflows or is below ``2**-900``, it is computed again from scaled differences: data near 1e200
    or 1e-200 are ordered correctly too. All values are converted to float64, which rounds only
    integers above ``2**53``.

    Reads: each chunk of `X` is read once, for any number of queries, and each chunk of `Q` once.
    Distances and indices that are computed together share these reads.

    Memory: a worker holds, for each thread, one chunk and one tile of distances (queries by rows).
    A tile has at most ``dask_gpuselect.distance-limit`` bytes (dask config; 64 MiB, or 512 MiB for
    CuPy chunks), and up to five more arrays of its size are needed. NumPy chunks need only 1 MiB
    for this. In addition, the queries are in memory in one piece, as float64, and each chunk
    returns 17 bytes for each query and neighbour.

    Algorithm: for NumPy chunks, all distances are computed by differences. For other chunks, a
    matrix product, or a kernel on a GPU, finds the rows that may be near. Its rounding error is
    bounded. Every row that is not proven to be too far is compared again by differences.

    References
    ----------
    G. Beliakov, "Parallel calculation of the median and order statistics on GPUs with application
    to robust regression", 2011, section VI. As in the paper, the k-th smallest distance is a
    threshold, and only rows within it are compared further.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.neighbors import kneighbors
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
    distances, indices = answers(Search(X, Q, k), [Answer.distances(k), Answer.indices(k)])
    return distances, indices


# --- Arguments ----------------------------------------------------------------------------------


def as_rows(a: Any, name: str) -> Any:
    """Return a two-dimensional array of real numbers, or raise an error that names it."""
    a = as_entered(a, name)
    a = a if isinstance(a, DaskArray) or is_array(a) else as_numpy(a)
    check_real(a, name, most_bits=64)
    check_table(a, name)
    return a


def as_k(k: Any, name: str = "k") -> int:
    """Return a number of neighbours as an int, or raise."""
    n = as_integer(k, name)
    if n < 1:
        raise ValueError(f"{name} must be at least 1. Expected n_neighbors > 0. Got {n}")
    return n


def check_features(X: Any, Q: Any) -> None:
    """Raise unless the queries have as many features as the rows."""
    if Q.shape[1] != X.shape[1]:
        raise ValueError(
            f"Q has {Q.shape[1]} features, but X has {X.shape[1]}: pass queries with the features "
            "of X"
        )
