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
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.sorting.graph import Chunks, SortPlan, Spill, column, sorted_columns

Sizes = tuple[float, ...]


@same_kind
@public("x")
def sort(
    x: Any, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
) -> Any:
    """Sort a one-dimensional dask array, reading each chunk two or three times.

    The chunks of the result have exactly the sizes that are asked for.

    Parameters
    ----------
    x : dask array, or array_like
        One-dimensional: of bool, integers, float16, float32 or float64, datetime64 or timedelta64;
        of any chunks, sizes known or not. Chunks are NumPy's or CuPy's. A plain array is sorted at
        once, in kind.
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
        NumPy's nor CuPy's, and for what is no array.
    ValueError
        At the call, for more dimensions than one, chunks that do not fit, `chunks` where the size
        is unknown, and a `split_every` below 2; while computing, for chunks that hold another
        number of elements than the shape says.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    OSError
        While computing, if the directory cannot be written to, or has no room.

    See Also
    --------
    argsort, sort_by, quantile_bins
    dask_gpuselect.sorting.radix_sort.radix_sort : the distributed radix sort, for comparison.

    Notes
    -----
    Loads: each chunk is read at most three times. Chunks in memory are read in place. The first one
    or two loads find the splitters, the elements at the ranks where the chunks of the result begin,
    by the cuts of `quantile`. Elements of one or two bytes take one load for this, because all
    values are counted. The first load keeps elements, so that others may need no second: for M
    chunks in the result, nearly all chunks of mixed data are read twice in all if M is less than
    about ``sqrt(n) / 150``, and three times from about ``sqrt(n) / 64`` on. The last load divides
    the elements of each chunk among the chunks of the result; elements that equal a splitter are
    divided by count. Then NumPy's sort sorts each chunk of the result. It is 4 to 7 times as fast
    for 64 bits if the processor has AVX2, and faster with AVX-512.

    Memory: of a task, the chunk and two copies of it, or the pieces of a chunk of the result and
    two copies of these. Besides, all pieces together, which are as large as `x`: on disk, or in the
    memory of the workers. For P chunks in, M out and n elements, the splitters take about
    ``40 * sqrt(P * n * M)`` bytes in one place. With CuPy chunks their candidates wait on the
    device, in room for about a hundredth of the elements. Pieces on disk lie in a file without a
    name: its room is given back when the last piece has been taken, and when the process ends,
    however it does. A directory that is kept in memory (``tmpfs``) saves nothing. Nor does a file
    of a process of dask's scheduler of processes, where all results go through the first process,
    and each task that hands on a piece is sent a whole chunk: use threads, or a cluster.

    Tasks: P * M that hand on a piece, up to 65,536. Of more, pieces go through groups of about
    ``sqrt(M)`` chunks of the result, in about ``2 * P * sqrt(M)`` tasks: 200,000 for 2,000 chunks
    in and out, in 2 s and 150 MB at the call, and 2,100,000 for 10,000, in 25 s and 1.5 GB. There
    all pieces are moved, and written to disk, twice, though each file is given back with its group.

    The result does not depend on the chunks of `x`.

    References
    ----------
    G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs",
    introduction: data are split at quantiles into chunks that are sorted independently. There the
    quantiles are approximate, and so are the sizes of the chunks; here both are exact.

    Examples
    --------
    >>> import dask.array as da
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
    plan = SortPlan.of("sort", x, (), chunks, spill, split_every)
    return column(sorted_columns(plan, x, dtype), plan, 0, x, dtype)


@same_kind
@public("x")
def argsort(
    x: Any, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
) -> Any:
    """Indices that sort a one-dimensional dask array; equal elements keep their order.

    Parameters
    ----------
    x, chunks, spill, split_every
        As for `sort`.

    Returns
    -------
    dask array, or an array like `x`
        int64: what ``numpy.argsort(x, kind="stable")`` is.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError, OSError
        As `sort` does.

    See Also
    --------
    sort, sort_by

    Notes
    -----
    Loads and memory: as of `sort`, with 8 bytes an element more on disk and 16 in a task, which may
    hold three copies of its pieces. Keys and places are sorted together, as words of 64 bits. To
    take other arrays in this order, use `sort_by`, which moves them along: an index that is a dask
    array takes all of one into memory.

    Examples
    --------
    >>> import dask.array as da
    >>> argsort(da.from_array([3, 1, 2, 1], chunks=2)).compute()
    array([1, 3, 2, 0])
    """
    x, dtype = _key(x, "argsort")
    if not isinstance(x, DaskArray):
        return ordering.stable_order(ordering.keys_of(x, dtype))
    plan = SortPlan.of("argsort", x, (), chunks, spill, split_every, wants_places=True)
    return column(sorted_columns(plan, x, dtype), plan, 0, x, np.dtype(np.int64))


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
        Of any dtype, as long as the key along their first axis, and in as many chunks of the same
        sizes; further axes have one chunk.
    chunks, spill, split_every
        As for `sort`; chunks are those of the first axis.

    Returns
    -------
    tuple of dask arrays, or of arrays like `key`
        The key, as `sort` gives it, and each of the values, taken in the order ``argsort(key)``.
        Computed together, by ``dask.compute(*found)`` or ``da.store``, they share all work.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError, OSError
        As `sort` does; a ValueError at the call for values of another length or other chunks; while
        computing, where sizes were unknown.

    See Also
    --------
    sort, argsort

    Notes
    -----
    Loads: two to three of the key, as of `sort`, and one of the others, in the last: what key and
    values have in common, for instance the reading of a table, is done as often as the key is
    loaded.

    Memory: as of `sort`, with the values beside the key and 8 bytes an element more in a task,
    which may hold three copies of its pieces. Where pieces go through groups of chunks, their
    places go along, with 8 bytes an element more on disk.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> age, name = da.from_array([30, 20, 30, 10], chunks=2), da.from_array(list("abcd"), chunks=2)
    >>> found = sort_by(age, name)
    >>> dask.compute(*found)
    (array([10, 20, 30, 30]), array(['d', 'b', 'a', 'c'], dtype='<U1'))
    """
    key, dtype = _key(key, "sort_by")
    if not isinstance(key, DaskArray):
        return _sorted_now(key, dtype, values)
    payload = tuple(_value(value, key) for value in values)
    plan = SortPlan.of("sort-by", key, payload, chunks, spill, split_every)
    merged = sorted_columns(plan, key, dtype, payload)
    found = [column(merged, plan, 0, key, dtype)]
    for i, value in enumerate(payload, start=1):
        found.append(column(merged, plan, i, value, value.dtype))
    return tuple(found)


def _sorted_now(key: Any, dtype: np.dtype[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """`sort_by` of plain arrays."""
    if any(is_dask_collection(value) for value in values):
        raise TypeError("a lazy value needs a lazy key: make it one by da.from_array")
    given = [value if is_array(value) else np.asarray(value) for value in values]
    for value in given:
        if value.shape[:1] != key.shape:
            raise ValueError(
                f"each of the values must have as many elements or rows as the key, "
                f"{key.shape[0]}, and one is of shape {value.shape}"
            )
    keys = ordering.keys_of(key, dtype)
    order = ordering.stable_order(keys)
    return ordering.elements_of(keys[order], dtype), *(value[order] for value in given)


# --- Checking arguments ---------------------------------------------------------------------------


def _key(x: Any, name: str) -> tuple[Any, np.dtype[Any]]:
    """What is sorted, and the dtype of the result."""
    x = as_array(x)
    radix.check_kind(getattr(x, "_meta", x), name)
    if x.ndim != 1:
        raise ValueError(
            f"{name} takes one-dimensional arrays, and this has {x.ndim} dimensions: ravel() it"
        )
    try:
        return x, result_dtype(x.dtype, METHODS["lower"], weak_q=True)
    except TypeError:
        raise TypeError(
            f"{name} takes bool, integers, float16 to float64, datetime64 and timedelta64, "
            f"not {x.dtype}"
        ) from None


def _value(value: Any, key: DaskArray) -> DaskArray:
    """A dask array that goes along with the key."""
    value = as_array(value)
    if not isinstance(value, DaskArray):
        is_known = not math.isnan(key.size) and value.shape[:1] == key.shape
        value = from_array(value, chunks=(*key.chunks, *value.shape[1:]) if is_known else -1)
    radix.check_kind(value._meta, "sort_by")
    found: DaskArray = value
    if _goes_along(found.chunks, key.chunks):
        return found
    raise ValueError(
        f"each of the values must have the chunks of the key, {key.chunks}, along its first axis, "
        f"and one chunk along others, and one has {value.chunks}"
    )


def _goes_along(chunks: tuple[Sizes, ...], of_key: tuple[Sizes, ...]) -> bool:
    if not chunks or any(len(sizes) > 1 for sizes in chunks[1:]):
        return False
    (key,), own = of_key, chunks[0]
    if math.isnan(sum(own)) or math.isnan(sum(key)):
        return len(own) == len(key)  # the sizes show while computing
    return own == key
