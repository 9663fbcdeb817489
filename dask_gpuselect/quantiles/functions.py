"""Medians and quantiles: the public functions, which check their arguments and build questions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import (
    Axis,
    as_accompanied,
    converted_exactly,
    each_of,
    for_each,
    if_all_left_out,
    public,
    reduced_axes,
)
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.engine.asking import Asking, ask, ask_each, unfolded
from dask_gpuselect.engine.groups import data_of
from dask_gpuselect.engine.plans import Plan, explained
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.interpolation import is_weak, precision_of, result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, Method, check_method
from dask_gpuselect.quantiles.documentation import statistic
from dask_gpuselect.quantiles.questions import Quantiles, check_not_empty
from dask_gpuselect.quantiles.weighted import WeightedQuantiles, check_weighted_method
from dask_gpuselect.strategies import Strategy, strategy_of


def _median(
    name: str,
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
    fill_value: Any = None,
) -> Any:
    """Ask for medians along axes, by the function of a name."""
    how: dict[str, Any] = {"keepdims": keepdims, "where": where, "nodata": nodata}
    how |= {"fill_value": fill_value, "skips_missing": name == "nanmedian"}
    return ask_quantiles(name, a, 0.5, axis, MEDIAN, **how)


@statistic(_median, many=("a", "where"))
def median() -> None:
    """Exact median of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    a : dask array, or array_like
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64, of any shape and
        chunks. Chunk sizes may be unknown. Chunks may be NumPy, CuPy or other array-API arrays. For
        a plain array, the answer is computed eagerly and is an array of the same kind. For a dict
        of arrays, or a list that contains dask arrays, the answer is a dict or a list. Answers
        about all elements share the reads of chunks that the arrays have in common. `where` may
        then be one array for all, or a dict or list with one for each.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    keepdims : bool, default False
        Whether the reduced axes stay, with size 1.
    where : array of bool, optional
        Only elements where it is True are used; the others are left out. A NumPy, CuPy or dask
        array whose shape broadcasts to that of the data, with any chunks.
    nodata : scalar or 1-D array_like, optional
        Elements that equal one of these are left out. They are compared in the dtype of the data,
        so uint16 stays uint16. Here, NaN and NaT equal themselves.
    fill_value : scalar, optional
        The answer if no element is used: if all elements are masked, left out by `where` or equal
        to `nodata`, and for an empty array or group. For functions that ignore NaN, also if all
        elements are NaN. It must fit the dtype of the answer. No
        warning is given. By default, the answer is then NaN, NaT or masked; if the dtype of the
        answer is an integer, an IndexError is raised.

    Returns
    -------
    dask array, or an array or scalar like `a`
        The shape is that of `a` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16, float32, datetime64 and timedelta64 keep their dtype, all others give
        float64, as ``numpy.median`` does. The answer is NaN if any element is NaN, and NaN with a
        RuntimeWarning if there are no elements or all are left out. Masked elements of a masked
        array are left out, and the answer is masked where all are masked.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays; for a `where` whose dtype is not bool;
        for a `nodata` of another kind than the data.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    ValueError
        At the call, for a `where` that does not broadcast, or whose chunk sizes are unknown and
        whose chunks do not match; for a `nodata` that the dtype of `a` cannot hold, and a
        `fill_value` that the dtype of the answer cannot hold; for a ``dask_gpuselect.column-limit``
        that is too small for any plan.
    ChunksChangedError
        While computing, if a chunk differs between two reads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    nanmedian : The median that ignores NaN.
    quantile : Any quantiles.

    Notes
    -----
    Reads, of all elements: each chunk of a lazy array is read at most twice, for any data. Chunks
    in memory (persisted, ``from_array``) are read in place. The call computes nothing.

    Chunks of `where` are read together with those of `a`, and as often. Tasks that both depend on
    run once for each read. `where` is rechunked to the chunks of `a`; `a` is never rechunked.

    Along some of the axes: nothing is rechunked. A chunk of the answer depends on a column of
    chunks of `a`. If the column is a single chunk or fits ``dask_gpuselect.column-limit`` (dask
    config; 1 GiB), one task computes it: each chunk is read once, and a worker holds a column for
    each of its threads. The chunks of a larger column are also read once: they are written to a
    temporary file as they are read, and their 1-D slices are read back, or, on a cluster, they move
    between workers by dask's peer-to-peer rechunk. Without a disk, and on a cluster if two reads
    are enough, the column is divided into slabs (pieces across the other axes) or parts (some of
    its chunks) that fit, and each chunk is read twice or more: see `explain`. A worker then holds a
    part for each of its threads, and the partial results of the parts, which fit the limit too.
    Scratch memory for NumPy chunks is 1 MB, or three 1-D slices if these are larger. CuPy chunks
    are read in place, but they are copied if their axes are not evenly spaced, or if ``axis`` names
    axes that are not neighbours.

    Memory: a worker holds, for each of its threads, one chunk and scratch of at most two. Each
    chunk of n elements returns about sqrt(n) pivots (24 bytes each) and about as many candidates.
    While chunks are first read, each process caches up to ``dask_gpuselect.cache-limit`` (dask
    config; 1 GiB; on a worker of `distributed` at most a tenth of its memory) of their elements. A
    chunk is read once if enough of it was cached. If chunks have similar distributions, that is
    nearly every chunk. CuPy chunks that fit that limit together (by default a sixteenth of the
    memory of their device) stay there until one task answers. If all pivots together exceed
    ``dask_gpuselect.root-limit`` (dask config; 1 GiB), only those that may matter are gathered in
    one task. A CuPy chunk has at most 8,192 pivots, and n / 9,000 candidates if that is more. For
    elements of 8 bytes, these numbers are 4,096 and n / 5,000. Data in memory that are read once
    (up to 2**28 elements) have 0.9 % of candidates instead.

    Algorithm: each chunk contributes a bundle of cutting planes of the objective ``sum |x - y|``
    (Beliakov 2011, section IV; one bundle for each chunk: Birge & Louveaux 1988). Their sum proves
    a bracket around each order statistic. A second read counts and gathers the elements in the
    bracket. No method needs fewer than two reads in so little memory (Munro & Paterson 1980).

    The mean of the two middle elements equals ``numpy.median`` bit for bit for float64. For float32
    and float16 it is computed in float64 and rounded once. It neither overflows nor turns equal
    infinities into NaN. Integers beyond 2**53 are averaged exactly and rounded once. The mean of
    two dates or time differences is truncated to a whole unit towards the epoch or 0, as in pandas.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import median
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(median(x).compute())
    500000.0
    >>> float(median(abs(x - median(x))).compute())
    250000.0
    """


@statistic(_median, many=("a", "where"), like=median)
def nanmedian() -> None:
    """Exact median of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `a`
        The shape is that of `a` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16, float32, datetime64 and timedelta64 keep their dtype, all others give
        float64, as ``numpy.nanmedian`` does. NaN, with a RuntimeWarning, if every element is NaN or
        there is none.

    {Raises}

    See Also
    --------
    median : The median that is NaN if any element is.
    nanquantile : Any quantiles, ignoring NaN.

    Notes
    -----
    {Reads}

    {Chunks}

    {Along}

    {Memory}

    NaN are counted in the first read, so ignoring them takes no further read. See `median` for the
    algorithm.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import nanmedian
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(nanmedian(da.where(x < 10, float("nan"), x)).compute())
    500005.0
    """


def _quantile(
    name: str,
    a: Any,
    q: ArrayLike,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
    where: Any = None,
    nodata: Any = None,
    fill_value: Any = None,
    strategy: Strategy | str | None = None,
) -> Any:
    """Ask for quantiles or percentiles along axes, by the function of a name."""
    how: dict[str, Any] = {"keepdims": keepdims, "weights": weights, "fill_value": fill_value}
    how |= {"where": where, "nodata": nodata, "skips_missing": name.startswith("nan")}
    how |= {"strategy": strategy, "scale": 100 if name.endswith("percentile") else 1}
    return ask_quantiles(name, a, q, axis, method, **how)


QUANTILES = ("a", "weights", "where")
ALONE: Final[Any] = {"many": QUANTILES, "without": ("strategy",)}


@statistic(_quantile, many=QUANTILES, like=median)
def quantile() -> None:
    """Exact quantiles of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    a : dask array, or array_like
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64, of any shape and
        chunks. Chunk sizes may be unknown. Chunks may be NumPy, CuPy or other array-API arrays. For
        a plain array, the answer is computed eagerly and is an array of the same kind. For a dict
        of arrays, or a list that contains dask arrays, the answer is a dict or a list. Answers
        about all elements share the reads of chunks that the arrays have in common. `where` and
        `weights` may then be one array for all, or a dict or list with one for each.
    q : float or array_like of floats
        In [0, 1], of any shape. All of them share the reads.
    {axis}
    method : str, default "linear"
        One of ``numpy.quantile``'s thirteen: "inverted_cdf", "averaged_inverted_cdf",
        "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "linear",
        "median_unbiased", "normal_unbiased" (definitions 1 to 9 of Hyndman & Fan 1996), "lower",
        "higher", "midpoint", "nearest". With weights: "inverted_cdf", "averaged_inverted_cdf" or
        "linear".
    {keepdims}
    weights : array of real numbers, optional
        The weight of each element. The shape is that of `a`, or that of its axes `axis`, in this
        order. A NumPy, CuPy or dask array, with any chunks. Elements of weight 0 take no part, even
        if they are NaN.
    {where}
    {nodata}
    {fill_value}
    strategy : Strategy or str, optional
        A selection method of `dask_gpuselect.strategies`, or its name. Only for all elements,
        without weights. By default the algorithm of the notes. See `order_statistic` for reads and
        memory.

    Returns
    -------
    dask array, or an array or scalar like `a`
        The axes of q come first. Then follows the shape of `a` without the reduced axes, or with
        sizes of 1 for them if `keepdims`. The discrete methods (inverted_cdf, closest_observation,
        lower, higher, nearest) choose an element and keep its dtype. Dates stay dates. The other
        methods do as ``numpy.quantile``: they keep float16 and float32 if q is a Python number; if
        q is a NumPy array or number of less precision than float64, they give the dtype that NumPy
        promotes data and q to; else float64. NaN (NaT) if any element is. NaN with a RuntimeWarning
        if all elements are left out. Masked elements of a masked array are left out, and the answer
        is masked where all are masked.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays; for bool with a method that would
        interpolate, and for dates with weights and "linear"; for a q that is complex, a string or
        lazy; for a `where` whose dtype is not bool, a `nodata` of another kind than the data,
        weights that are not real, and weights of another shape without an axis.
    ValueError
        At the call, for a q outside [0, 1] or NaN; for an unknown method, or one that does not
        support weights, with weights; for a `where` or weights of a shape that does not fit, or
        whose chunk sizes are unknown and whose chunks do not match; for a `nodata` that the dtype
        of `a` cannot hold, and a `fill_value` that the dtype of the answer cannot hold; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan; for an unknown strategy, or
        a strategy with only some of the axes or with weights. While computing, for weights that are
        negative, NaN or infinite, and if the weights of all valid elements are 0.
    IndexError
        For an empty array: at the call if its size is known, else while computing. For integers
        that are all left out, with a method that chooses an element. Never with `fill_value`.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    nanquantile : Quantiles that ignore NaN.
    percentile : Quantiles with q in percent.
    median : The quantile of 0.5, by the mean of the two middle elements.

    Notes
    -----
    Reads, of all elements: each chunk of a lazy array is read at most twice, for any data and any
    number of q. Chunks in memory (persisted, ``from_array``) are read in place, and large ones
    usually once. The call computes nothing.

    {Chunks}

    {Along}
    If q is so near 0 or 1 that the elements that can be the answer fit the limit, a larger column
    is read once without a disk.

    Memory: a worker holds, for each of its threads, one chunk and scratch of at most two. Each
    chunk of n elements returns about sqrt(n) pivots (24 bytes each) and about as many candidates
    for each q; for more than 8 q, ``sqrt(n * len(q))`` of both. If all pivots together exceed
    ``dask_gpuselect.root-limit`` (dask config; 1 GiB), only those that may matter are gathered in
    one task. A CuPy chunk has at most 8,192 pivots, and n / 9,000 candidates if that is more. For
    elements of 8 bytes, these numbers are 4,096 and n / 5,000. Data in memory that are read once
    (up to 2**28 elements and 8 q) have 0.9 % of candidates for each q instead.

    {Algorithm}

    Weights: let F(x) be the sum of the weights of the elements up to x, and W the sum of all
    weights. "inverted_cdf" is the smallest x with ``F(x) >= q * W``. "averaged_inverted_cdf" is the
    mean of that x and the next larger element if ``F(x) == q * W``, else that x. "linear" is the
    mean over a window of the cumulated weight that begins at ``q * (W - s)`` and is ``s`` wide,
    where s is the sum of the squares of the weights, divided by W (type 7 with Kish's effective
    sample size, as in xarray). The sums are exact for any chunks; ``F(x)`` and ``q * W`` are
    compared as float64. So weights that are counts give the answer of ``numpy.repeat``. NumPy adds
    up rounded numbers: of the numbers 1 to 6, each of weight 0.3, it finds the median 4, but the
    median is 3. With weights, chunks have twice as many pivots, and as many candidates as without
    weights if all weights are similar; see `maths.weight_brackets`. A plain array in memory is read
    once by the first two methods, but three times or more if a few elements have most of the
    weight.

    Interpolation gives the same bits as ``numpy.quantile`` for float64 data and integers up to
    2**53. For float32 and float16 data, it is computed in float64 and rounded once; NumPy, which
    computes in the data's dtype, may differ in the last bit. It is exact where NumPy's arithmetic
    loses the answer: between equal infinities, where the difference of neighbours overflows (also
    of narrow integers), for integers beyond 2**53, and for float32 q past 2**24 elements. See
    `dask_gpuselect.maths.interpolation.interpolate`.

    References
    ----------
    G. Beliakov, "Parallel calculation of the median and order statistics on GPUs with application
    to robust regression", 2011. R. J. Hyndman and Y. Fan, "Sample quantiles in statistical
    packages", 1996. J. I. Munro and M. S. Paterson, "Selection and sorting with limited storage",
    1980. A. Akinshin, "Weighted quantile estimators", arXiv:2304.07265, 2023.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import quantile
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> quantile(x, [0.25, 0.5, 0.75]).compute()
    array([250000., 500000., 750000.])
    """


@statistic(_quantile, **ALONE, like=quantile)
def nanquantile() -> None:
    """Exact quantiles of all elements, or along axes, ignoring NaN.

    Parameters
    ----------
    {a}
    {q}
    {axis}
    method : str, default "linear"
        One of ``numpy.quantile``'s thirteen: see `quantile`.
    {keepdims}
    {weights}
    {where}
    {nodata}
    {fill_value}

    Returns
    -------
    dask array, or an array or scalar like `a`
        The shape and dtype are those of `quantile`. NaN (NaT), with a RuntimeWarning, if every
        element is NaN (NaT) or there is none. For an empty array and several q, that is NaN for
        each q, where NumPy returns a single NaN.

    Raises
    ------
    {TypeError}
    ValueError
        At the call, for a q outside [0, 1] or NaN, or an unknown method; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan; for `weights`, `where`,
        `nodata` and `fill_value` as `quantile` does.
    IndexError
        While computing, for an array of unknown size that turns out to be empty, if the dtype of
        the answer has no NaN.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    quantile : Quantiles that are NaN if any element is.
    nanpercentile : Quantiles with q in percent, ignoring NaN.
    nanmedian : The median that ignores NaN.

    Notes
    -----
    {Reads}

    {Chunks}

    {Along}

    {Memory}

    See `quantile` for the algorithm.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import nanquantile
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> nanquantile(x, [0.25, 0.5, 0.75]).compute()
    array([250000., 500000., 750000.])
    """


@statistic(_quantile, **ALONE, like=nanquantile)
def percentile() -> None:
    """Exact percentiles of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    {a}
    q : float or array_like of floats
        In [0, 100], of any shape: 50 is the median, and 0.5 is half a percent, as in NumPy. All of
        them share the reads.
    {axis}
    {method}
    {keepdims}
    {weights}
    {where}
    {nodata}
    {fill_value}

    Returns
    -------
    dask array, or an array or scalar like `a`
        The shape and dtype are those of `quantile`. NaN (NaT) if any element is.

    Raises
    ------
    {TypeError}
    ValueError
        At the call, for a q outside [0, 100] or NaN, or an unknown method; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan; for `weights`, `where`,
        `nodata` and `fill_value` as `quantile` does.
    IndexError
        For an empty array: at the call if its size is known, else while computing.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    quantile : Quantiles with q from 0 to 1.
    nanpercentile : Percentiles that ignore NaN.

    {Notes}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import percentile
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> percentile(x, [25, 50, 75]).compute()
    array([250000., 500000., 750000.])
    """


@statistic(_quantile, **ALONE, like=percentile)
def nanpercentile() -> None:
    """Exact percentiles of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `a`
        The shape and dtype are those of `quantile`. NaN (NaT), with a RuntimeWarning, if every
        element is NaN (NaT) or there is none. For an empty array and several q, that is NaN for
        each q, where NumPy returns a single NaN.

    Raises
    ------
    {TypeError}
    {ValueError}
    IndexError
        While computing, for an array of unknown size that turns out to be empty, if the dtype of
        the answer has no NaN.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    percentile : Percentiles that are NaN if any element is.
    nanquantile : Quantiles with q from 0 to 1, ignoring NaN.

    {Notes}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import nanpercentile
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> nanpercentile(x, [25, 50, 75]).compute()
    array([250000., 500000., 750000.])
    """


@public("a", "weights", "where")
def explain(
    a: DaskArray,
    q: ArrayLike | Callable[..., Any] = 0.5,
    axis: Axis = None,
    *,
    strategy: Strategy | str | None = None,
    weights: Any = None,
    where: Any = None,
    nodata: Any = None,
    **options: Any,
) -> Plan:
    """Return the plan by which a dask array's question would be answered: reads and memory.

    Parameters
    ----------
    a : dask array
        Of any dtype that has quantiles.
    q : float, array_like of floats, or callable, default 0.5
        The question. Numbers in [0, 1] ask for quantiles, as for `quantile`; how many there are
        matters. A callable is a function of this package, such as `describe_boxplot`,
        `robust.mad`, `sort` or `quantile_bins`, or one that calls it:
        ``lambda x: rolling(x, 5).median()``.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    strategy, weights, where, nodata : optional
        As for `quantile`. The bytes of arrays count as part of the chunks.
    **options
        Further arguments of the function: ``explain(x, quantile_bins, n_bins=64)``.

    Returns
    -------
    Plan
        Printed, it is one line. ``plan.table()`` is a table, which a notebook shows, with the
        number of reads, and the time in units of that of ``x.sum()``. Its attributes:

        - ``name``: one of the names below, which is a part of the names of the answer's layers. With
          a strategy, the name is that of the strategy, which may end before all its reads; if its
          results may exceed ``root-limit``, it is not used, and the name is that of the plan
          without it.
        - ``reads``: number of reads of every chunk, at most. Chunks in memory are read in place.
          "guess" and "resident" need two more reads in one of about 150,000 cases.
        - ``task_bytes``: bytes of the chunks that one task takes at most, without scratch. Labels
          of groups are included if there are as many as elements.
        - ``gathered_bytes``: bytes of the partial results that one task gathers: an estimate for
          all elements, and a maximum along an axis. If the pivots exceed
          ``dask_gpuselect.root-limit`` (dask config; 1 GiB), irrelevant ones are dropped first.
        - ``root_bytes``: estimated peak memory of the largest task that takes partial results, for
          all elements in two reads; else 0.
        - ``waiting_bytes``: bytes of partial results that wait on all workers together because one
          task cannot gather them all.
        - ``cached_bytes``: bytes that a process may cache from the first reads, so that a chunk need
          not be read again: ``dask_gpuselect.cache-limit`` (dask config; 1 GiB by default; on a
          worker of `distributed` at most a tenth of its memory). 0 if each chunk is read twice;
          ``why`` then has the reason.
        - ``disk_bytes``: bytes that are written to disk, once, by "scratch" and "p2p"; else 0.
        - ``advice``: for plans along an axis that read chunks several times, the limit or the
          chunks with which one read is enough. The printed line ends with it.

        Bytes are -1 if chunk sizes are unknown.

        Plans for all elements:

        - "bracket" reads each chunk once or twice.
        - "guess" reads data in memory once.
        - "resident" reads CuPy chunks once, in one task, if they are, or can stay, in the memory of
          one device.
        - "counts" reads elements of one or two bytes once, and counts every value.

        Plans along an axis, and for groups:

        - "lanes" reads chunks of whole 1-D slices once.
        - "counts" counts every value, for few long slices and for few groups of all elements.
        - "column" takes all chunks of an output chunk in one task, or slabs of them, and reads them
          once for each slab.
        - "tails" takes some of the chunks at a time, reads them once, and returns the elements near
          the ends of slices.
        - "scratch" reads chunks once, writes them to local disk, and reads whole slices back.
        - "p2p" does the same on a cluster, by dask's peer-to-peer rechunk.
        - "passes" takes some of the chunks at a time, several times.

        Plans of other functions:

        - "sort" reads each chunk once more than it takes to find where the chunks of the result
          begin.
        - "windows" and "once" read each chunk once, and gather next to nothing.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `quantile` or the function does; and a TypeError for a plain array, which has no plan,
        and for a function that asks this package nothing.

    See Also
    --------
    median : The median itself.
    quantile : The quantiles themselves.

    Notes
    -----
    Reads: none. The call is made and ends where its plan is chosen, so the plan is the one that
    would run. The plan depends on sizes, and for all elements also on whether chunks depend on the
    same tasks. To find that out, the tasks of the source are searched, which takes four seconds for
    60,000 chunks. The graph is not built, but for a median absolute deviation in passes, which is
    composed of two medians.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> from dask_gpuselect import describe_boxplot, explain
    >>> x = da.ones((3650, 2000, 2000), chunks=(365, 250, 250), dtype="f4")
    >>> print(explain(x, [0.25, 0.5, 0.75]))
    bracket: reads each chunk once or twice; 87.02 MiB of chunks per task; 69.98 MiB of partial results in one task; caches at most 1.00 GiB per process
    >>> explain(x, describe_boxplot).reads, explain(x, describe_boxplot, axis=0).name
    (3, 'column')
    >>> print(explain(x, axis=0))
    column: reads each chunk once; 870.23 MiB of chunks per task; no partial results
    >>> less = {"dask_gpuselect.column-limit": "200 MiB", "dask_gpuselect.scratch-directory": False}
    >>> with dask.config.set(less):
    ...     plan = explain(x, axis=0)
    >>> plan.name, plan.reads
    ('passes', 2)
    >>> plan.advice
    "to read each chunk once, set column-limit to 870.23 MiB, or rechunk({0: -1, 1: 'auto', 2: 'auto'})"
    >>> print(explain(x, [0.25, 0.5, 0.75]).table())
    plan                         bracket
    reads of each chunk          once or twice
    chunks per task              87.02 MiB
    partial results in one task  69.98 MiB
    cached per process           1.00 GiB at most
    reads of all chunks          1,280 at most
    time                         about 1 to 2 × x.sum(), if reading dominates
    """  # noqa: E501
    array = data_of(a)
    if not isinstance(array, DaskArray):
        kind = type(array).__name__
        raise TypeError(
            f"a must be a dask array, not {kind}: explain describes the plan of a lazy array; "
            "pass da.from_array(a)"
        )
    given = {"axis": axis, "strategy": strategy, "weights": weights, "where": where}
    how = {name: value for name, value in (given | {"nodata": nodata}).items() if value is not None}
    if callable(q):
        name = getattr(q, "__name__", repr(q))
        if _lacks_quantiles(q):
            raise TypeError(
                f"explain passes no quantiles to {name}: pass these instead, explain(a, [0.25, "
                f"0.5]), or functools.partial({name}, q=[0.25, 0.5])"
            )
        planned = explained(partial(q, a, **how, **options))
    elif options:
        raise TypeError(f"explain takes {next(iter(options))} only with a function: pass it as q")
    else:
        method, name = "lower" if weights is None else "inverted_cdf", "quantile"
        about: dict[str, Any] = {"keepdims": False, "axis": None, **how}
        planned = explained(partial(ask_quantiles, name, a, q, method=method, **about))
    if planned is None:
        raise TypeError(
            f"{name} has no plan of this package: pass a function that asks for order statistics, "
            "such as dask_gpuselect.robust.mad"
        )
    return planned


def _lacks_quantiles(function: Callable[..., Any]) -> bool:
    """Return whether a function needs an argument q."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of a builtin function
        return False
    return "q" in parameters and parameters["q"].default is inspect.Parameter.empty


# --- Checking arguments -------------------------------------------------------------------------


def ask_quantiles(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str | Method,
    *,
    strategy: Strategy | str | None = None,
    weights: Any = None,
    where: Any = None,
    **how: Any,
) -> Any:
    """Check the arguments of the six public functions, and ask about each array.

    Parameters
    ----------
    name : str
        A part of the names of the graph's layers.
    a, q, axis, method, keepdims, strategy, weights, where
        As of `quantile`, with q in ``[0, scale]``.
    **how
        For `_asking_of`. `fill_value` or `fill` is the answer where no element takes part;
        by default that follows from the kind of the arrays.
    """
    if strategy is not None and weights is not None:
        raise ValueError("strategy= does not support weights: leave out strategy or weights")
    chosen = None if strategy is None else strategy_of(strategy)
    arrays, together = each_of(a)
    of_each: dict[str, Any] = {"n": len(arrays), "is_several": together is not None}
    each_weights = for_each(weights, a, name="weights", **of_each)
    each_where = for_each(where, a, name="where", **of_each)
    askings = [
        _asking_of(array, q, axis, method, weights=own, where=mask, **how)
        for array, own, mask in zip(arrays, each_weights, each_where, strict=True)
    ]
    if chosen is None:
        answers = ask_each(askings, name)
    else:
        answers = [ask(each, name, chosen) for each in askings]
    if np.ndim(q) > 1:
        answers = [unfolded(each, np.shape(q), name) for each in answers]
    return answers[0] if together is None else together(answers)


def _asking_of(
    a: Any,
    q: Any,
    axis: Axis,
    method: str | Method,
    *,
    keepdims: bool,
    skips_missing: bool = False,
    scale: int = 1,
    weights: Any = None,
    where: Any = None,
    nodata: Any = None,
    fill_value: Any = None,
    fill: tuple[Any, ...] | None = None,
) -> Asking:
    """Check the arguments, and return the question about an array."""
    is_weighted = weights is not None
    if_none = if_all_left_out(a, where, nodata)
    a = as_accompanied(a, where, nodata, weights, axis)
    check = check_weighted_method if is_weighted else check_method
    chosen = method if isinstance(method, Method) else check(method)
    shares, is_scalar = probabilities(q, scale, any_shape=True)
    axes = reduced_axes(axis, a.ndim)
    source_dtype = numpy_dtype(a)
    if is_weighted and chosen.name == "linear" and source_dtype.kind in "mM":
        raise TypeError(
            f'method="linear" with weights does not support {source_dtype}, because it adds up '
            'elements: use method="inverted_cdf" or "averaged_inverted_cdf"'
        )
    dtype = result_dtype(source_dtype, chosen, weak_q=is_weak(q), q_dtype=precision_of(q))
    if fill_value is not None:
        fill = _fill_values(fill_value, dtype, len(shares))
    if fill is None and if_none == "empty" and _has_empty_lanes(a.shape, axes) and len(shares):
        check_not_empty(chosen, skips_missing=skips_missing)
        dtype = dtype if dtype.kind in "fMm" else np.dtype(np.float64)  # for NaN, as in NumPy
    ask_for = WeightedQuantiles if is_weighted else Quantiles
    about = tuple(shares.tolist()), chosen.name, skips_missing, source_dtype, dtype
    question = ask_for(*about, if_none=if_none, fill=fill)
    return Asking(a, question, axes, dtype, keepdims=keepdims, is_scalar=is_scalar)


def _fill_values(fill_value: Any, dtype: np.dtype[Any], n: int) -> tuple[Any, ...]:
    """Return the fill value of each of `n` answers, in their dtype."""
    if np.ndim(fill_value):
        shape = np.shape(fill_value)
        raise ValueError(f"fill_value must be a scalar, not of shape {shape}")
    return (converted_exactly(fill_value, dtype, "fill_value", "the answer")[0],) * n


def probabilities(q: Any, scale: int = 1, *, any_shape: bool = False) -> tuple[FloatArray, bool]:
    """Return q as one-dimensional float64 in [0, 1], and whether it was a scalar."""
    given = np.asarray(q)
    if given.size and given.dtype.kind not in "biuf":
        raise TypeError(
            f"q must be real numbers, not of dtype {given.dtype}: pass for example {scale / 2:g}"
        )
    if given.ndim > 1 and not any_shape:
        raise ValueError(f"q must be a scalar or one-dimensional, not of shape {given.shape}")
    values = given.astype(np.float64)
    outside = ~((values >= 0) & (values <= scale))  # NaN too
    if outside.any():
        value = values[outside][0]
        is_percent = scale == 1 and 2 <= value <= 100
        hint = f": pass {value / 100:g} for {value:g} %" if is_percent else ""
        raise ValueError(f"q must be in [0, {scale}], not {value}{hint}")
    return (values / scale).reshape(-1), given.ndim == 0


def _has_empty_lanes(shape: tuple[Any, ...], axes: tuple[int, ...]) -> bool:
    """Return whether there are lanes along these axes that are known to be empty."""
    n = math.prod(shape[axis] for axis in axes)
    n_lanes = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    return bool(n == 0 and n_lanes != 0)
