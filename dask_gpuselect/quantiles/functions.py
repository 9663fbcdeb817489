"""Medians and quantiles: what users call. Arguments are checked here, and the plan is chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import (
    Axis,
    as_accompanied,
    each_of,
    for_each,
    held_in,
    if_all_left_out,
    public,
    reduced_axes,
    same_kind,
)
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.engine.asking import Asking, ask, ask_each, plan, unfolded
from dask_gpuselect.engine.groups import Grouped
from dask_gpuselect.engine.plans import Plan
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.interpolation import is_weak, precision_of, result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, Method, check_method
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.quantiles.questions import Filled, Quantiles, check_not_empty
from dask_gpuselect.quantiles.weighted import WeightedQuantiles, check_weighted_method
from dask_gpuselect.strategies import Strategy, strategy_of


@same_kind
@public(many=("a", "where"))
def median(
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
    fill_value: Any = None,
) -> Any:
    """Exact median of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    a : dask array, or array_like
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64; of any shape and
        chunks, sizes known or not. Chunks may be NumPy, CuPy or other array-API arrays. A plain
        array is answered at once, in kind.
        For a dict of arrays, or a list that contains dask arrays, the answer is a dict or list.
        Answers about all elements share the loads of what the arrays have in common. `where` and
        `weights` may then be one for all, or a dict or list with one for each.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    keepdims : bool, default False
        Whether the reduced axes stay, with size 1.
    where : array of bool, optional
        Elements take part only where it is True. A NumPy, CuPy or dask array whose shape broadcasts
        to that of `a`, with any chunks.
    nodata : scalar or 1-D array_like, optional
        Elements that equal one of these are left out. They are compared in the dtype of `a`, so
        uint16 stays uint16. NaN and NaT count as equal to themselves.
    fill_value : scalar, optional
        The answer where no element takes part, of its dtype and without a warning: where all are
        masked, `where` is False, or equal `nodata`; of an empty array and of an empty group. By
        default that is NaN, NaT or masked, and an IndexError for answers that are integers.

    Returns
    -------
    dask array, or an array or scalar like `a`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16, float32, datetime64 and
        timedelta64 keep their type, all else gives float64, as ``numpy.median`` does.
        NaN if any element is NaN; with a RuntimeWarning, if there are no elements or all are
        left out. Masked elements of a masked array are left out, and the answer is masked where all
        are masked.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays; for a `where` that is not of bool, and a
        `nodata` of another kind than the data.
    numpy.exceptions.AxisError, ValueError
        At the call, for an axis that does not exist; for a `where` that does not broadcast, or
        whose sizes are unknown and whose chunks do not match; for a `nodata` that the dtype cannot
        hold, and a `fill_value` that the dtype of the answer cannot; for a ``dask_gpuselect.column-limit`` that is too small for any plan.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    nanmedian, quantile

    Notes
    -----
    Loads, of all elements: each chunk of a lazy array is read at most twice, for any data. Chunks in
    memory (persisted, ``from_array``) are read in place. The call computes nothing.

    Chunks of a `where` are loaded together with those of `a`, and as often. Work that both share is
    done once for both. `where` is rechunked to the chunks of `a`; `a` is never rechunked.

    Along some of the axes: nothing is rechunked. An output chunk is made of a column of chunks. If
    the column is a single chunk or fits ``dask_gpuselect.column-limit`` (dask config; 1 GiB), one
    task takes it: each chunk is read once, and a worker holds a column for each of its threads. A
    larger column is taken in slabs or in parts that fit. This mostly takes two loads (see
    `explain`), and one if q is so near 0 or 1 that the elements that can answer fit the limit. A
    worker then holds a part for each of its threads, and the reports of the parts, which fit the
    limit too. Scratch for NumPy chunks is 1 MB, or 3 lanes. CuPy chunks are read in place. Those
    whose axes are not evenly spaced are copied, and so are all if ``axis`` names axes that are not
    neighbours.

    Memory: a worker holds, for each of its threads, one chunk and scratch of at most two. Each
    chunk of n elements returns about sqrt(n) pivots (40 bytes each) and about as many candidates.
    The first loads of a process keep up to ``dask_gpuselect.keep-limit`` (dask config; 1 GiB; on a
    worker of `distributed` at most a tenth of its memory). A chunk of which enough was kept is
    loaded once; for mixed data this is nearly every chunk. If all pivots together exceed
    ``dask_gpuselect.root-limit`` (dask config; 1 GiB), only those that may matter are gathered in
    one place.
    A CuPy chunk has at most 8,192 pivots, and n / 9,000 candidates where that is more; of 8 bytes
    an element, 4,096 and n / 5,000.
    Data in memory that are read once (up to 2**28 elements) have 0.9 % of candidates instead.

    Algorithm: each chunk contributes a bundle of cutting planes of the objective ``sum |x - y|``
    (Beliakov 2011, section IV; one bundle for each chunk: Birge & Louveaux 1988). Their sum proves a
    bracket around each order statistic. A second load counts and gathers the elements in the
    bracket. No method needs fewer than two loads in so little memory (Munro & Paterson 1980).

    The mean of the two middle elements has the bits of ``numpy.median`` for float64. For float32
    and float16 it is computed in float64 and rounded once. It neither overflows nor turns equal
    infinities into NaN. Integers beyond 2**53 are averaged exactly and rounded once. The mean of
    two dates or time differences is cut to a whole unit towards the epoch or 0, as pandas does.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(median(x).compute())
    500000.0
    >>> float(median(abs(x - median(x))).compute())
    250000.0
    """  # noqa: E501
    how: dict[str, Any] = {"keepdims": keepdims, "where": where, "nodata": nodata}
    how["fill_value"] = fill_value
    return ask_quantiles("median", a, 0.5, axis, MEDIAN, **how)


@same_kind
@documented_like(median)
@public(many=("a", "where"))
def nanmedian(
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
    fill_value: Any = None,
) -> Any:
    """Exact median of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `a`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16, float32, datetime64 and
        timedelta64 keep their type, all else gives float64, as ``numpy.nanmedian`` does.
        NaN, with a RuntimeWarning, if every element is NaN or there is none.

    {Raises}

    See Also
    --------
    median, nanquantile

    Notes
    -----
    {Loads}

    {Chunks}

    {Along}

    {Memory}

    NaN is counted in the first load, so ignoring it takes no further load. See `median` for the
    algorithm.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(nanmedian(da.where(x < 10, float("nan"), x)).compute())
    500005.0
    """
    how: dict[str, Any] = {"keepdims": keepdims, "where": where, "nodata": nodata}
    how["fill_value"] = fill_value
    return ask_quantiles("nanmedian", a, 0.5, axis, MEDIAN, skips_missing=True, **how)


@same_kind
@documented_like(median)
@public(many=("a", "weights", "where"))
def quantile(
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
    """Exact quantiles of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    a : dask array, or array_like
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64; of any shape and
        chunks, sizes known or not. Chunks may be NumPy, CuPy or other array-API arrays. A plain
        array is answered at once, in kind.
        For a dict of arrays, or a list that contains dask arrays, the answer is a dict or list.
        Answers about all elements share the loads of what the arrays have in common. `where` and
        `weights` may then be one for all, or a dict or list with one for each.
    q : float or array_like of floats
        In [0, 1], of any shape. All of them share the loads.
    {axis}
    method : str, default "linear"
        One of ``numpy.quantile``'s thirteen: "inverted_cdf", "averaged_inverted_cdf",
        "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "linear",
        "median_unbiased", "normal_unbiased" (definitions 1 to 9 of Hyndman & Fan 1996), "lower",
        "higher", "midpoint", "nearest". With weights: "inverted_cdf", "averaged_inverted_cdf" or
        "linear".
    {keepdims}
    weights : array of real numbers, optional
        What each element weighs: of the shape of `a`, or of that of its axes `axis`, in order.
        NumPy, CuPy or dask, with any chunks. Elements of weight 0 take no part, even if they are
        NaN.
    {where}
    {nodata}
    {fill_value}
    strategy : Strategy or str, optional
        A selection method of `dask_gpuselect.strategies`, or its name, to find the elements by, of
        all axes; by default the cuts of the notes. See `order_statistic` for loads and memory.

    Returns
    -------
    dask array, or an array or scalar like `a`
        Of the shape that is left, with sizes of 1 for `keepdims`, and the axes of q first.
        The discrete methods (inverted_cdf, closest_observation, lower, higher, nearest) choose an
        element and keep its type. Dates stay dates. The others, as ``numpy.quantile``, keep float16
        and float32 if q is a Python number, and give what NumPy promotes data and q to if q is an
        array or number of NumPy's of less precision than float64; else float64.
        NaN (NaT) if any element is; with a RuntimeWarning, if all are left out. Of a masked array,
        which leaves out what it masks: masked where that is all.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays; for bool with a method that would
        interpolate, and for dates with weights and "linear"; for a q that is complex, a string or
        lazy; for a `where` that is not of bool, a `nodata` of another kind than the data, weights
        that are not real, and weights of another shape without an axis.
    ValueError
        At the call, for a q outside [0, 1] or NaN, or an unknown method,
        or another than three with weights; for a `where` or weights of a shape that does not fit,
        or whose sizes are unknown and whose chunks do not match; for a `nodata` that the dtype
        cannot hold, and a `fill_value` that the answer's cannot; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan; for an unknown strategy, or
        one with only some of the axes, or with weights. While computing, for weights that are
        negative, NaN or infinite, and for elements that all weigh 0.
    IndexError
        For an empty array: at the call if its size is known, else while computing. For integers of
        which all are left out, with a method that chooses an element. Never with `fill_value`.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    nanquantile, percentile, median

    Notes
    -----
    Loads, of all elements: each chunk of a lazy array is read at most twice, for any data and any
    number of q. Chunks in memory (persisted, ``from_array``) are read in place, and large ones
    usually once. The call computes nothing.

    {Chunks}

    {Along}

    Memory: a worker holds, for each of its threads, one chunk and scratch of at most two. Each
    chunk of n elements returns about sqrt(n) pivots (40 bytes each) and about as many candidates
    for each q; for more than 8 q, ``sqrt(n * len(q))`` of both. If all pivots together exceed
    ``dask_gpuselect.root-limit`` (dask config; 1 GiB), only those that may matter are gathered in
    one place.
    A CuPy chunk has at most 8,192 pivots, and n / 9,000 candidates where that is more; of 8 bytes
    an element, 4,096 and n / 5,000.
    Data in memory that are read once (up to 2**28 elements and 8 q) have 0.9 % of candidates for
    each q instead.

    {Algorithm}

    Weights: with F(x) the sum of the weights of the elements up to x, and W that of all,
    "inverted_cdf" is the smallest x with ``F(x) >= q * W``; "averaged_inverted_cdf" the mean of
    that and the next larger element where both sides are equal; and "linear" the mean over a window
    of the weight, from ``q * (W - s)`` on and ``s`` wide, where s is the sum of squares of the
    weights, divided by W (type 7 with Kish's effective sample size, as ``xarray`` has it). The sums
    are exact, whatever the chunks; both sides are compared as float64. So weights that are counts
    give what ``numpy.repeat`` would. NumPy adds up rounded numbers: of 1 to 6, each of weight 0.3,
    it finds the median 4, which is 3. Chunks have twice as many pivots, and as many candidates as
    without weights where these are alike; see `maths.weight_brackets`. An array in memory, not of
    dask, is read once by the first two methods, unless a few elements have most of the weight: then
    three times or more.

    Interpolation has the bits of ``numpy.quantile`` for float64 data and integers up to 2**53.
    For float32 and float16 it is that of the data as float64, rounded once; NumPy, which computes
    in the data's dtype, may differ in the last bit. It is exact where NumPy's arithmetic loses the
    answer: between equal infinities, where the difference of neighbours overflows (also of narrow
    integers), for integers beyond 2**53, and for float32 q past 2**24 elements. See
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
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> quantile(x, [0.25, 0.5, 0.75]).compute()
    array([250000., 500000., 750000.])
    """
    how: dict[str, Any] = {"keepdims": keepdims, "weights": weights, "fill_value": fill_value}
    how |= {"where": where, "nodata": nodata, "strategy": strategy}
    return ask_quantiles("quantile", a, q, axis, method, **how)


@same_kind
@documented_like(quantile)
@public(many=("a", "weights", "where"))
def nanquantile(
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
) -> Any:
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
        Of the shape that is left, with sizes of 1 for `keepdims`, and the axes of q first.
        Types are those of `quantile`. NaN (NaT), with a RuntimeWarning, if every
        element is or there is none.

    Raises
    ------
    {TypeError}
    ValueError
        At the call, for a q outside [0, 1] or NaN, or an unknown method;
        for a ``dask_gpuselect.column-limit`` that is too small for any plan; for what `quantile`
        says of weights, `where`, `nodata` and `fill_value`.
    IndexError
        While computing, for an array of unknown size that proves empty, if the answer's type has no
        NaN.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    quantile, nanpercentile, nanmedian

    Notes
    -----
    {Loads}

    {Chunks}

    {Along}

    {Memory}

    See `quantile` for the algorithm.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> nanquantile(x, [0.25, 0.5, 0.75]).compute()
    array([250000., 500000., 750000.])
    """
    how: dict[str, Any] = {"keepdims": keepdims, "weights": weights, "fill_value": fill_value}
    how |= {"where": where, "nodata": nodata, "skips_missing": True}
    return ask_quantiles("nanquantile", a, q, axis, method, **how)


@same_kind
@documented_like(nanquantile)
@public(many=("a", "weights", "where"))
def percentile(
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
) -> Any:
    """Exact percentiles of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    {a}
    q : float or array_like of floats
        In [0, 100]. All of them share the loads.
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
        Of the shape that is left, with sizes of 1 for `keepdims`, and the axes of q first.
        Types are those of `quantile`. NaN (NaT) if any element is.

    Raises
    ------
    {TypeError}
    ValueError
        At the call, for a q outside [0, 100] or NaN, or an unknown
        method; for a ``dask_gpuselect.column-limit`` that is too small for any plan; for what
        `quantile` says of weights, `where`, `nodata` and `fill_value`.
    IndexError
        For an empty array: at the call if its size is known, else while computing.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    quantile, nanpercentile

    {Notes}

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> percentile(x, [25, 50, 75]).compute()
    array([250000., 500000., 750000.])
    """
    how: dict[str, Any] = {"keepdims": keepdims, "weights": weights, "fill_value": fill_value}
    how |= {"where": where, "nodata": nodata, "scale": 100}
    return ask_quantiles("percentile", a, q, axis, method, **how)


@same_kind
@documented_like(percentile)
@public(many=("a", "weights", "where"))
def nanpercentile(
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
) -> Any:
    """Exact percentiles of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `a`
        Of the shape that is left, with sizes of 1 for `keepdims`, and the axes of q first.
        Types are those of `quantile`. NaN (NaT), with a RuntimeWarning, if every
        element is or there is none.

    Raises
    ------
    {TypeError}
    {ValueError}
    IndexError
        While computing, for an array of unknown size that proves empty, if the answer's type has no
        NaN.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    percentile, nanquantile

    {Notes}

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> nanpercentile(x, [25, 50, 75]).compute()
    array([250000., 500000., 750000.])
    """
    how: dict[str, Any] = {"keepdims": keepdims, "weights": weights, "fill_value": fill_value}
    how |= {"where": where, "nodata": nodata, "skips_missing": True, "scale": 100}
    return ask_quantiles("nanpercentile", a, q, axis, method, **how)


@public("a", "weights", "where")
def explain(
    a: DaskArray,
    q: ArrayLike = 0.5,
    axis: Axis = None,
    *,
    weights: Any = None,
    where: Any = None,
    nodata: Any = None,
) -> Plan:
    """Tell how quantiles of a dask array would be computed: the plan, its loads and its memory.

    Parameters
    ----------
    a : dask array
        Of any dtype that has quantiles.
    q : float or array_like of floats, default 0.5
        In [0, 1], as for `quantile`: how many there are matters.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    weights, where, nodata : optional
        As for `quantile`: their bytes count.

    Returns
    -------
    Plan
        Frozen. Printed it is one line; ``plan.table()`` is a table, which a notebook shows as it
        is, with the number of loads and the time in units of that of ``x.sum()``. It has:

        - ``name``, which is part of the names of the answer's layers. Of all elements: "bracket",
          one to two loads; "guess", one read of data in memory; "held", one read by one task of
          CuPy chunks that one device holds; "counts", one load of elements of one or two bytes,
          whose values are all counted, or weighed. Along an axis: "lanes", each chunk has whole
          lanes; "counts" again, of few long lanes, and of few groups of all elements; "column", one
          task takes all chunks of an output chunk, or slabs of them: a load for each slab; "tails",
          it takes a part of them at a time, in one load, and keeps the elements near the ends of
          lanes; "passes", it takes a part of them at a time, several times.
        - ``loads`` of every chunk, at most. Chunks in memory are read in place. "guess" and "held"
          fall back to two reads more in one of about 150,000 cases.
        - ``task_bytes``: of the chunks that one task takes at most, without scratch. Labels of groups
          that are as many as elements count.
        - ``gathered_bytes``: of the reports that come to one place; about, of all elements, and at
          most, along an axis. Where ``dask_gpuselect.root-limit`` (dask config; 1 GiB) is too low
          for all pivots, those that come there do not include what cannot matter.
        - ``root_bytes``: what the largest task that takes reports holds at its peak, about; of all
          elements in two loads, else 0.
        - ``waiting_bytes``: of reports that wait on all workers together because they are too many
          for one place.
        - ``kept_bytes``: of what the first loads of a process may keep, so that a chunk need not be
          loaded again: ``dask_gpuselect.keep-limit`` (dask config; 1 GiB; on a worker of
          `distributed` a tenth of its memory at most). 0 if each chunk takes two loads;
          ``why`` then says why.
        - ``advice``, of plans along an axis that take several loads: which limit or which chunks
          would take one. It ends the ``str``.

        Bytes are -1 where chunk sizes are unknown.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `quantile` does; and a TypeError for a plain array, which is answered at once.

    See Also
    --------
    median, quantile

    Notes
    -----
    Loads: none. Sizes decide, and of all elements also whether chunks share what they are made of:
    the source's tasks are looked at, which takes four seconds for 60,000 chunks. The graph is not
    built: its tasks are counted by a formula.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> x = da.ones((3650, 2000, 2000), chunks=(365, 250, 250), dtype="f4")
    >>> print(explain(x, [0.25, 0.5, 0.75]))
    bracket: one to two loads; chunks of 87.02 MiB a task; reports of 116.60 MiB in one place; 1.00 GiB kept in a process, at most
    >>> print(explain(x, axis=0))
    column: one load; chunks of 870.23 MiB a task; reports of 0 B in one place
    >>> with dask.config.set({"dask_gpuselect.column-limit": "200 MiB"}):
    ...     plan = explain(x, axis=0)
    >>> plan.name, plan.loads
    ('passes', 2)
    >>> plan.advice.partition(", ")[0]
    'one load with a column-limit of 870.23 MiB'
    >>> print(explain(x, [0.25, 0.5, 0.75]).table())
    plan                  bracket
    loads of every chunk  one to two loads
    chunks in one task    87.02 MiB
    reports in one place  116.60 MiB
    kept in a process     1.00 GiB at most
    loads of all chunks   1,280 at most
    time                  1 to 2 × that of x.sum(), where reading takes longest
    """  # noqa: E501
    array = a.array if isinstance(a, Grouped) else a
    if not isinstance(array, DaskArray):
        kind = type(array).__name__
        raise TypeError(
            f"expected a dask array, not a {kind}: explain tells the plan of a lazy array"
        )
    method = "lower" if weights is None else "inverted_cdf"
    how: dict[str, Any] = {"weights": weights, "where": where, "nodata": nodata}
    about, question, axes, _ = _asked(a, q, axis, method, **how)
    found = plan(Asking(about, question, axes))
    kept = [array.numblocks[axis] for axis in range(array.ndim) if axis not in (axes or ())]
    return replace(
        found,
        n_chunks=array.npartitions,
        n_columns=1 if axes is None else math.prod(kept),
        is_in_memory=Source.of(array).is_in_memory,
    )


# --- Checking arguments -------------------------------------------------------------------------


def ask_quantiles(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str | Method,
    *,
    keepdims: bool,
    strategy: Strategy | str | None = None,
    weights: Any = None,
    where: Any = None,
    **how: Any,
) -> Any:
    """What all six functions do: check, and ask about each array.

    `name` is part of the names of layers; q is in ``[0, scale]``. What answers where no element
    takes part is that of the arrays, unless it is said by `fill_value`, or by `if_none`.
    """
    chosen = None if strategy is None else strategy_of(strategy)
    if chosen is not None and weights is not None:
        raise ValueError("a strategy selects among elements that weigh the same: leave out one")
    arrays, together = each_of(a)
    of_each: dict[str, Any] = {"n": len(arrays), "is_several": together is not None}
    each_weights = for_each(weights, a, name="weights", **of_each)
    each_where = for_each(where, a, name="where", **of_each)
    askings = []
    for array, own, mask in zip(arrays, each_weights, each_where, strict=True):
        about, question, axes, is_scalar = _asked(
            array, q, axis, method, weights=own, where=mask, **how
        )
        form: dict[str, Any] = {"keepdims": keepdims, "is_scalar": is_scalar}
        askings.append(Asking(about, question, axes, question.dtype, **form))
    if chosen is None:
        answers = ask_each(askings, name)
    else:
        answers = [ask(each, name, chosen) for each in askings]
    if np.ndim(q) > 1:
        answers = [unfolded(each, np.shape(q), name) for each in answers]
    return answers[0] if together is None else together(answers)


def _asked(
    a: Any,
    q: Any,
    axis: Axis,
    method: str | Method,
    *,
    skips_missing: bool = False,
    scale: int = 1,
    weights: Any = None,
    where: Any = None,
    nodata: Any = None,
    fill_value: Any = None,
    if_none: Filled | None = None,
) -> tuple[Any, Quantiles | WeightedQuantiles, tuple[int, ...], bool]:
    """The array, the question, the reduced axes, and whether q is a scalar: all are checked."""
    is_weighted = weights is not None
    none: str | Filled = if_none or if_all_left_out(a, where, nodata)
    a = as_accompanied(a, where, nodata, weights, axis)
    check = check_weighted_method if is_weighted else check_method
    chosen = method if isinstance(method, Method) else check(method)
    shares, is_scalar = probabilities(q, scale, any_shape=True)
    axes = reduced_axes(axis, a.ndim)
    source_dtype = numpy_dtype(a)
    if is_weighted and chosen.name == "linear" and source_dtype.kind in "mM":
        raise TypeError(
            f"weighted quantiles by method linear are sums, and {source_dtype} elements are never "
            'added up: use method="inverted_cdf" or "averaged_inverted_cdf"'
        )
    dtype = result_dtype(source_dtype, chosen, weak_q=is_weak(q), q_dtype=precision_of(q))
    if fill_value is not None:
        values = _fill_values(fill_value, dtype, len(shares))
        none = Filled(values, is_masked=none == "masked")
    if none == "empty" and _has_empty_lanes(a.shape, axes) and len(shares):
        check_not_empty(chosen, skips_missing=skips_missing)
        dtype = dtype if dtype.kind in "fMm" else np.dtype(np.float64)  # for NaN, as NumPy
    ask_for = WeightedQuantiles if is_weighted else Quantiles
    about = tuple(shares.tolist()), chosen.name, skips_missing, source_dtype, dtype
    return a, ask_for(*about, if_none=none), axes, is_scalar


def _fill_values(fill_value: Any, dtype: np.dtype[Any], n: int) -> tuple[Any, ...]:
    """For each of `n` answers what it is where no element takes part."""
    if np.ndim(fill_value):
        shape = np.shape(fill_value)
        raise ValueError(f"fill_value must be a scalar, and is of shape {shape}")
    return (held_in(fill_value, dtype, "fill_value", "the answer")[0],) * n


def probabilities(q: Any, scale: int = 1, *, any_shape: bool = False) -> tuple[FloatArray, bool]:
    """q as float64 in [0, 1], one-dimensional, and whether it was a scalar."""
    given = np.asarray(q)
    if given.size and given.dtype.kind not in "biuf":
        raise TypeError(f"q must be real, not {given.dtype}")
    if given.ndim > 1 and not any_shape:
        raise ValueError(f"q must be a scalar or one-dimensional, not of shape {given.shape}")
    values = given.astype(np.float64)
    outside = ~((values >= 0) & (values <= scale))  # NaN too
    if outside.any():
        value = values[outside][0]
        is_percent = scale == 1 and 2 <= value <= 100
        hint = f": pass {value / 100:g} for {value:g} %" if is_percent else ""
        raise ValueError(f"q must lie in [0, {scale}], and {value} does not{hint}")
    return (values / scale).reshape(-1), given.ndim == 0


def _has_empty_lanes(shape: tuple[Any, ...], axes: tuple[int, ...]) -> bool:
    """Whether there are lanes along these axes, and they are known to have no elements."""
    n = math.prod(shape[axis] for axis in axes)
    n_lanes = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    return bool(n == 0 and n_lanes != 0)
