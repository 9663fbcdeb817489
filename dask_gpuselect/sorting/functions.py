"""`sort`, `argsort` and `sort_by`: one-dimensional arrays in ascending order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_gpuselect.arguments import as_array, public, same_kind
from dask_gpuselect.arrays import is_array
from dask_gpuselect.engine.source import DaskArray, from_array
from dask_gpuselect.kernels import ordering, radix
from dask_gpuselect.maths.interpolation import conversion_of, result_dtype
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.sorting.graph import (
    Chunks,
    SortPlan,
    Spill,
    column,
    sorted_columns,
    sorted_keys,
)

Sizes = tuple[float, ...]


@same_kind
@public("x")
def sort(
    x: Any, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
) -> Any:
    """Sort a one-dimensional dask array, reading each chunk two or three times.

    The chunks of the result have exactly the requested sizes.

    Parameters
    ----------
    x : dask array, or array_like
        One-dimensional, of bool, integers, float16, float32 or float64, datetime64 or timedelta64,
        of any chunks. Chunk sizes may be unknown. Chunks are NumPy or CuPy arrays. A plain array is
        sorted eagerly, to an array of its kind.
    chunks : int, str, tuple, optional
        Chunks of the result, as in dask: ``1_000_000``, ``"128 MiB"``, ``(3, 4, 3)``. By default
        all have the same size except the last, and there are at most as many as `x` has. If the
        size of `x` is unknown, there are as many as `x` has, of equal sizes up to one element, and
        `chunks` is not allowed.
    spill : bool or path, optional
        Whether pieces wait on disk. True for dask's ``temporary-directory``; or a directory. By
        default they wait on disk unless `x` is in memory, or known to be smaller than the config
        value ``dask_gpuselect.spill-limit`` (1 GiB).
    split_every : int, optional
        How many pieces one task takes at most; 256 by default, and independent of dask's config
        value of that name. If there are more, a tree of tasks joins the pieces for each chunk.

    Returns
    -------
    dask array, or an array like `x`
        Equal to ``numpy.sort(x)``: NaN and NaT come last. Because -0.0 equals 0.0, all zeros become
        0.0. The byte order is native.

    Raises
    ------
    TypeError
        At the call, for complex, object, string and masked data, for chunks that are neither
        NumPy's nor CuPy's, and for objects that are not arrays.
    ValueError
        At the call, for more dimensions than one, chunks that do not fit, `chunks` if the size
        is unknown, and a `split_every` below 2; while computing, for chunks that have another
        number of elements than the shape says.
    ChunksChangedError
        While computing, if a chunk differs between two reads.
    OSError
        While computing, if the directory cannot be written to, or has no room.

    See Also
    --------
    argsort : The indices that sort an array.
    sort_by : Several arrays in the order of one.
    quantile_bins : Bins with equal numbers of elements.
    dask_gpuselect.radix_sort.radix_sort : The distributed radix sort, for comparison.

    Notes
    -----
    Reads: each chunk is read at most three times. Chunks in memory are read in place. CuPy chunks
    that fit ``dask_gpuselect.cache-limit`` (dask config; a sixteenth of the memory of the device)
    together are read once, and sorted there by one task, unless `spill` is given. For others, the
    first one or two reads find the splitters, the elements at the ranks where the chunks of the
    result begin, by the cuts of `quantile`. Elements of one or two bytes take one read for this,
    because all values are counted. Elements of the first read are cached, which may save the
    second: for M chunks in the result of n elements, nearly all chunks are read twice in all if M
    is less than about ``sqrt(n) / 150`` and chunks have similar distributions, and three times from
    about ``sqrt(n) / 64`` on. The last read divides the elements of each chunk among the chunks of
    the result; elements that equal a splitter are divided by count. Then NumPy's sort sorts each
    chunk of the result. It is 4 to 7 times as fast for 64 bits if the processor has AVX2, and
    faster with AVX-512.

    Memory: a task holds a chunk and two copies of it, or the pieces of a chunk of the result and
    two copies of these. All pieces together, which are as large as `x`, are on disk or in the
    memory of the workers. For P chunks in, M out and n elements, the splitters take about
    ``40 * sqrt(P * n * M)`` bytes in one task. With CuPy chunks their candidates wait on the
    device, in room for about a hundredth of the elements. Pieces on disk are in a file without a
    name: its space is freed when the last piece has been read, and when the process ends in any
    way. A directory in memory (``tmpfs``) saves no memory. With dask's scheduler "processes", files
    save no memory either, because all results go through the first process, and each task that
    hands on a piece is sent a whole chunk: use threads, or a cluster.

    Tasks: P * M tasks hand on a piece, up to 65,536. If there were more, pieces go through groups
    of about ``sqrt(M)`` chunks of the result, in about ``2 * P * sqrt(M)`` tasks: 200,000 for 2,000
    chunks in and out, in 2 s and 150 MB at the call, and 2,100,000 for 10,000, in 25 s and 1.5 GB.
    All pieces are then moved, and written to disk, twice, and each file is freed with its group.

    The result does not depend on the chunks of `x`.

    References
    ----------
    G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs",
    introduction: data are split at quantiles into chunks that are sorted independently. There the
    quantiles are approximate, and so are the sizes of the chunks; here both are exact.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import sort
    >>> x = da.from_array([3.0, 1.0, float("nan"), 1.0, 0.0], chunks=2)
    >>> sort(x).compute()
    array([ 0.,  1.,  1.,  3., nan])
    >>> sort(x, chunks=3).chunks
    ((3, 2),)
    """
    x, dtype = _key(x, "sort")
    if not isinstance(x, DaskArray):
        keys = ordering.keys_of(x, dtype).copy()
        ordering.sort(keys)
        return ordering.elements_of(keys, dtype)
    plan = SortPlan.of("sort", x, dtype, (), chunks, spill, split_every)
    return sorted_keys(plan, x)


@same_kind
@public("x")
def argsort(
    x: Any, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
) -> Any:
    """Return the indices that sort a one-dimensional dask array; equal elements keep their order.

    Parameters
    ----------
    x : dask array, or array_like
        As for `sort`.
    chunks : int, str, tuple, optional
        As for `sort`.
    spill : bool or path, optional
        As for `sort`.
    split_every : int, optional
        As for `sort`.

    Returns
    -------
    dask array, or an array like `x`
        int64, equal to ``numpy.argsort(x, kind="stable")``.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError, OSError
        As `sort` does.

    See Also
    --------
    sort : The sorted array itself.
    sort_by : Other arrays in this order.

    Notes
    -----
    Reads and memory: as for `sort`, with 8 bytes an element more on disk and 16 in a task, which
    may hold three copies of its pieces. Keys and positions are sorted together, as words of 64
    bits. To take other arrays in this order, use `sort_by`, which moves them together with the key:
    indexing by a dask array loads all of an array into memory.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import argsort
    >>> argsort(da.from_array([3, 1, 2, 1], chunks=2)).compute()
    array([1, 3, 2, 0])
    """
    x, dtype = _key(x, "argsort")
    if not isinstance(x, DaskArray):
        return ordering.stable_order(ordering.keys_of(x, dtype))
    plan = SortPlan.of("argsort", x, dtype, (), chunks, spill, split_every, wants_places=True)
    return sorted_keys(plan, x)


@public("key", "values")
def sort_by(
    key: Any,
    *values: Any,
    chunks: Chunks = None,
    spill: Spill = None,
    split_every: int | None = None,
) -> tuple[Any, ...]:
    """Sort a key, and reorder other arrays in the same way; rows with equal keys keep their order.

    Each chunk of the key is read two or three times, and each chunk of the other arrays once.

    Parameters
    ----------
    key : dask array, or array_like
        As `x` of `sort`.
    *values : dask arrays, or array_like
        Of any dtype. Along their first axis they have the length and the chunks of the key, and one
        chunk along other axes.
    chunks : int, str, tuple, optional
        As for `sort`, along the first axis.
    spill : bool or path, optional
        As for `sort`.
    split_every : int, optional
        As for `sort`.

    Returns
    -------
    tuple of dask arrays, or of arrays like `key`
        The sorted key, and each of the values in the order ``argsort(key)``. Compute them together,
        by ``dask.compute(*results)`` or ``da.store``, so that they share all tasks.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError, OSError
        As `sort` does; a ValueError for values of another length or other chunks, at the call, or
        while computing if sizes are unknown.

    See Also
    --------
    sort : One array.
    argsort : The indices that sort an array.

    Notes
    -----
    Reads: the key is read two or three times, as by `sort`, and the others once, with the last read
    of the key. Tasks that key and values share, for example the reading of a table, run as often as
    the key is read.

    Memory: as for `sort`, with the values in addition to the key and 8 bytes an element more in a
    task, which may hold three copies of its pieces. If pieces go through groups of chunks, they
    include positions, with 8 bytes an element more on disk.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> from dask_gpuselect import sort_by
    >>> age, name = da.from_array([30, 20, 30, 10], chunks=2), da.from_array(list("abcd"), chunks=2)
    >>> results = sort_by(age, name)
    >>> dask.compute(*results)
    (array([10, 20, 30, 30]), array(['d', 'b', 'a', 'c'], dtype='<U1'))
    """
    key, dtype = _key(key, "sort_by")
    if not isinstance(key, DaskArray):
        return _sorted_now(key, dtype, values)
    payload = tuple(_value(value, key) for value in values)
    plan = SortPlan.of("sort-by", key, dtype, payload, chunks, spill, split_every)
    if not payload:
        return (sorted_keys(plan, key),)
    merged = sorted_columns(plan, key, payload)
    columns = [column(merged, plan, 0, key, dtype)]
    for i, value in enumerate(payload, start=1):
        columns.append(column(merged, plan, i, value, value.dtype))
    return tuple(columns)


def _sorted_now(key: Any, dtype: np.dtype[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """Sort plain arrays by a plain key, as `sort_by` does."""
    if any(is_dask_collection(value) for value in values):
        raise TypeError("values are lazy and the key is not: pass da.from_array(key)")
    given = [value if is_array(value) else np.asarray(value) for value in values]
    for value in given:
        _check_rows(value, key)
    keys = ordering.keys_of(key, dtype)
    order = ordering.stable_order(keys)
    return ordering.elements_of(keys[order], dtype), *(value[order] for value in given)


# --- Checking arguments ---------------------------------------------------------------------------


def _key(x: Any, name: str) -> tuple[Any, np.dtype[Any]]:
    """Return the array to sort, and the dtype of the result, or raise if it cannot be sorted."""
    x = as_array(x)
    radix.check_kind(getattr(x, "_meta", x), name)
    if x.ndim != 1:
        raise ValueError(
            f"{name} takes one-dimensional arrays, not of shape {x.shape}: pass x.ravel()"
        )
    try:
        return x, result_dtype(x.dtype, METHODS["lower"], weak_q=True)
    except TypeError:
        raise TypeError(
            f"{name} takes bool, integers, float16 to float64, datetime64 and timedelta64, "
            f"not {x.dtype}{conversion_of(x.dtype)}"
        ) from None


def _check_rows(value: Any, key: Any) -> None:
    """Raise unless an array has as many rows as the key, or either number is unknown."""
    rows = value.shape[:1]
    if rows != key.shape and not any(map(math.isnan, (*rows, *key.shape))):
        raise ValueError(
            f"values must have as many rows as the key, {key.shape[0]}, not shape {value.shape}"
        )


def _value(value: Any, key: DaskArray) -> DaskArray:
    """Return an array to reorder as a dask array, or raise if its chunks are not the key's."""
    value = as_array(value, "values")
    _check_rows(value, key)
    if not isinstance(value, DaskArray):
        is_known = not math.isnan(key.size)
        value = from_array(value, chunks=(*key.chunks, *value.shape[1:]) if is_known else -1)
    radix.check_kind(value._meta, "sort_by")
    array: DaskArray = value
    if _goes_along(array.chunks, key.chunks):
        return array
    raise ValueError(
        f"values must have the chunks of the key, {key.chunks[0]}, along their first axis and one "
        f"along others, not {value.chunks}: type value.rechunk((key.chunks[0], *value.shape[1:]))"
    )


def _goes_along(chunks: tuple[Sizes, ...], of_key: tuple[Sizes, ...]) -> bool:
    """Return whether an array has the key's chunks along its first axis, and one along others."""
    if not chunks or any(len(sizes) > 1 for sizes in chunks[1:]):
        return False
    (key,), own = of_key, chunks[0]
    if math.isnan(sum(own)) or math.isnan(sum(key)):
        return len(own) == len(key)  # the sizes are checked while computing
    return own == key
