"""`mad` and `iqr`: measures of spread that outliers do not change."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect.arguments import (
    NORMAL_IQR,
    NORMAL_MAD,
    Axis,
    as_accompanied,
    if_all_left_out,
    reduced_axes,
    scale_factor,
)
from dask_gpuselect.arrays import as_type, in_kind, is_kind, masked, numpy_dtype, to_host
from dask_gpuselect.engine.asking import Asking, ask, mapped
from dask_gpuselect.maths.envelope import exact_gap
from dask_gpuselect.maths.interpolation import check_numbers, result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, check_method
from dask_gpuselect.quantiles.documentation import statistic
from dask_gpuselect.quantiles.functions import ask_quantiles, median, quantile
from dask_gpuselect.quiet import quiet
from dask_gpuselect.robust.questions import DeviationQuestion

# The answer without elements for integers, which have no NaN: a descending pair, which no quantiles
# are.
NO_PAIR = 1, 0


def _mad(
    name: str,
    x: Any,
    axis: Axis = None,
    *,
    scale: float | str = "normal",
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
) -> Any:
    """Ask for deviations along axes, by the function of a name."""
    if_none = if_all_left_out(x, where, nodata)
    x = as_accompanied(x, where, nodata)
    dtype = mean_dtype(x, "median absolute deviations need")
    factor = scale_factor(scale, NORMAL_MAD, dtype)
    how: dict[str, Any] = {"skips_missing": name == "nanmad"}
    question = DeviationQuestion.of(numpy_dtype(x), factor, if_none, **how)
    axes = reduced_axes(axis, x.ndim)
    return ask(Asking(x, question, axes, dtype, keepdims=keepdims), name)


def mean_dtype(x: Any, needs: str) -> np.dtype[Any]:
    """Return the dtype of the mean of two elements, or raise for dates and what has no order."""
    source = numpy_dtype(x)
    if source.kind in "mM":
        raise TypeError(f"{needs} numbers, not {source}: pass x.astype('int64'), if none is NaT")
    return result_dtype(source, MEDIAN, weak_q=True)


@statistic(_mad, "x", "where", like=median)
def mad() -> None:
    """Exact median absolute deviation, by default scaled to estimate a standard deviation.

    The default differs from that of ``scipy.stats.median_abs_deviation``: here ``scale="normal"``,
    there ``scale=1.0``. So by default the result is 1.4826 times SciPy's. Pass ``scale=1.0`` for
    the same number. By default, the answer is for all elements; `axis` names the axes to reduce.

    Parameters
    ----------
    x : dask array, or array_like
        Of bool, integers, float16, float32 or float64, of any shape and chunks. Chunk sizes may be
        unknown. Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered
        eagerly, by an array of its kind.
    {axis}
    scale : "normal" or float, default "normal"
        The number by which the result is divided, in the dtype of the result. "normal" is
        0.6744897501960817, so that the result estimates the standard deviation of normal data. With
        1.0, the default of SciPy, the result is not scaled.
    {keepdims}
    {where}
    {nodata}

    Returns
    -------
    dask array, or an array or scalar like `x`
        The shape is that of `x` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16 and float32 keep their dtype, all others give float64. The answer is NaN
        if any element is NaN, and NaN with a RuntimeWarning if there are no elements or all are
        left out. Masked elements of a masked array are left out, and the answer is masked where all
        are masked. The answer is NaN where the median is infinite, because infinities have no
        distance from each other.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays, and for dates; for a scale that is not a
        number; for a `where` whose dtype is not bool.
    ValueError
        At the call, for a scale that is not positive and finite in the dtype of the result; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    nanmad : The deviation that ignores NaN.
    iqr : The interquartile range, another measure of spread.
    median : The median, from which the deviations are measured.

    Notes
    -----
    Reads, of all elements: each chunk of a lazy array is read twice, while ``median(abs(x -
    median(x)))`` reads it four times. It is read a third time if the median is so uncertain after
    the first read that more than 40 elements for each pivot could be the answer, for example if the
    data consist of two halves far apart. It is never read more often. Chunks in memory are read in
    place, and only once if the bracket that a sample guesses contains the answer.

    Along some of the axes: each chunk is read once if the chunks of a column, in the dtype of the
    result, fit ``dask_gpuselect.column-limit`` (dask config; 1 GiB), or the column is a single
    chunk. A larger column is read as often as for two medians, mostly four times:
    ``explain(x, mad, axis=0)`` shows how often.

    Memory: as for `median`. One task holds up to 40 more elements for each pivot. For data in
    memory that are read once, these are 4 % of normal data, and at most 11 % of any data. For a
    third read, up to 65,536 values are sent to all tasks. Along an axis, each task holds a copy of
    the column in the dtype of the result. If a mask leaves out elements of a whole CuPy array, the
    others are copied.

    Before the division, the value equals ``np.median(np.abs(x - np.median(x)))`` bit for bit, in
    NumPy's own dtypes: float32 are subtracted in float32, and integers and bool in float64. It
    differs where `median` does: means of two elements do not overflow, and medians of integers
    beyond 2**53 are rounded once. Along an axis, CuPy chunks are subtracted by CuPy, which treats
    denormal float32 as zeros.

    Algorithm: the counts of the first read bound the median, and so the number of elements within
    any distance of it. So the answer is proven to lie in one of two ranges, one on each side of the
    median. The second read gathers the elements in both ranges and in the bracket of the median.
    Counts prove the answer.

    References
    ----------
    F. R. Hampel, "The influence curve and its role in robust estimation", 1974. Except for the
    default of `scale`, conventions are those of ``scipy.stats.median_abs_deviation``. The brackets
    are those of `median`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import mad
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(mad(x, scale=1.0).compute())
    250000.0
    """


@statistic(_mad, "x", "where", like=mad)
def nanmad() -> None:
    """Exact median absolute deviation, ignoring NaN, scaled as `mad`.

    The default differs from that of ``scipy.stats.median_abs_deviation``: here ``scale="normal"``,
    there ``scale=1.0``. So by default the result is 1.4826 times SciPy's.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `x`
        The shape is that of `x` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16 and float32 keep their dtype, all others give float64. NaN, with a
        RuntimeWarning, if every element is NaN or there is none. NaN where the median is infinite
        or NaN, because infinities have no distance from each other.

    {Raises}

    See Also
    --------
    mad : The deviation that is NaN if any element is.
    naniqr : The interquartile range that ignores NaN.
    nanmedian : The median that ignores NaN.

    Notes
    -----
    {Reads}

    {Along}

    {Memory}

    NaN are counted in the first read, so ignoring them takes no further read.

    Before the division, the value has the bits of ``np.median(np.abs(x - np.median(x)))`` of the
    elements that are not NaN, in NumPy's own dtypes: float32 are subtracted in float32, and
    integers and bool in float64. It differs where `median` does: means of two elements do not
    overflow, and medians of integers beyond 2**53 are rounded once. Along an axis, CuPy chunks are
    subtracted by CuPy, which treats denormal float32 as zeros.

    {Algorithm}

    References
    ----------
    F. R. Hampel, "The influence curve and its role in robust estimation", 1974. Except for the
    default of `scale`, conventions are those of ``scipy.stats.median_abs_deviation`` with
    ``nan_policy="omit"``. The brackets are those of `median`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import nanmad
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(nanmad(da.where(x < 10, float("nan"), x), scale=1.0).compute())
    249998.0
    """


def _iqr(
    name: str,
    x: Any,
    axis: Axis = None,
    *,
    q: Sequence[float] = (0.25, 0.75),
    method: str = "linear",
    scale: float | str = 1.0,
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
) -> Any:
    """Ask for both quantiles along axes, and subtract them lazily, by the function of a name."""
    source = numpy_dtype(as_accompanied(x, where, nodata))
    check_method(method)
    check_numbers(source, "interquartile ranges")
    result_dtype(source, METHODS[method], weak_q=False)  # raises for dtypes without quantiles
    dtype = source.newbyteorder("=") if source.kind == "f" else np.dtype(np.float64)
    factor = scale_factor(scale, NORMAL_IQR, np.dtype(np.float64))
    if np.shape(q) != (2,) or not q[0] <= q[1]:
        raise ValueError(
            f"q must be two ascending numbers in [0, 1], such as (0.25, 0.75), not {q}"
        )
    if_none, skips_missing = if_all_left_out(x, where, nodata), name == "naniqr"
    how: dict[str, Any] = {"keepdims": keepdims, "where": where, "nodata": nodata}
    is_chosen = METHODS[method].discrete and source.kind in "iu"
    if is_chosen and (if_none == "missing" or (if_none == "empty" and skips_missing)):
        how["fill"] = NO_PAIR
    pair = ask_quantiles(
        "quantile", x, np.array(q), axis, method, skips_missing=skips_missing, **how
    )
    return mapped(pair, partial(_difference, dtype=dtype, scale=factor), name, dtype, drop_axis=0)


@statistic(_iqr, "x", "where", like=quantile)
def iqr() -> None:
    """Exact interquartile range of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    x : dask array, or array_like
        Of integers, float16, float32 or float64, of any shape and chunks. Chunk sizes may be
        unknown. Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered
        eagerly, by an array of its kind.
    {axis}
    q : sequence of 2 floats, default (0.25, 0.75)
        The quantiles whose difference is taken, ascending, in [0, 1].
    method : str, default "linear"
        How the quantiles are interpolated: one of the methods of `quantile`.
    scale : "normal" or float, default 1.0
        The number by which the result is divided. "normal" is 1.3489795003921634, so that the range
        between the quartiles estimates the standard deviation of normal data.
    {keepdims}
    {where}
    {nodata}

    Returns
    -------
    dask array, or an array or scalar like `x`
        The shape is that of `x` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16 and float32 keep their dtype, all others give float64. NaN if any
        element is NaN. NaN with a RuntimeWarning if all elements are left out. Masked elements of a
        masked array are left out, and the answer is masked where all are masked. NaN between two
        infinities of one sign, as in SciPy.

    Raises
    ------
    TypeError
        At the call, for bool, complex, object and string arrays, and for dates; for a q that is
        complex, a string or lazy; for a scale that is not a number; for a `where` whose dtype is
        not bool.
    ValueError
        At the call, for a q that is not two ascending numbers in [0, 1]; for an unknown method; for
        a scale that is not positive and finite; for a ``dask_gpuselect.column-limit`` that is too
        small for any plan.
    IndexError
        For an empty array: at the call if its size is known, else while computing.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    naniqr : The range that ignores NaN.
    mad : The median absolute deviation, another measure of spread.
    quantile : The quantiles themselves.

    Notes
    -----
    Reads and memory are those of `quantile`, for both quantiles together: for all elements, every
    chunk of a lazy array is read at most twice; along an axis once, if a column of chunks fits
    ``dask_gpuselect.column-limit``.

    The quantiles, their difference and the division are computed in float64, and rounded once to
    the dtype of the result. For float64 data the result is ``np.subtract(*np.quantile(x, [q[1],
    q[0]]))``, divided by the scale. Integers that a discrete method chooses are subtracted exactly,
    where NumPy's difference may overflow.

    References
    ----------
    Conventions are those of ``scipy.stats.iqr``. The algorithm is that of `quantile`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import iqr
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(iqr(x).compute())
    500000.0
    """


@statistic(_iqr, "x", "where", like=iqr)
def naniqr() -> None:
    """Exact interquartile range of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `x`
        The shape is that of `x` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16 and float32 keep their dtype, all others give float64. NaN, with a
        RuntimeWarning, if every element is NaN or there is none. NaN between two infinities of one
        sign, as in SciPy.

    Raises
    ------
    {TypeError}
    {ValueError}
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    iqr : The range that is NaN if any element is.
    nanmad : The median absolute deviation that ignores NaN.
    nanquantile : The quantiles themselves, ignoring NaN.

    Notes
    -----
    {Reads}

    NaN are counted in the first read, so ignoring them takes no further read.

    The quantiles, their difference and the division are computed in float64, and rounded once to
    the dtype of the result. For float64 data the result is ``np.subtract(*np.nanquantile(x, [q[1],
    q[0]]))``, divided by the scale. Integers that a discrete method chooses are subtracted exactly,
    where NumPy's difference may overflow.

    References
    ----------
    Conventions are those of ``scipy.stats.iqr`` with ``nan_policy="omit"``. The algorithm is that
    of `quantile`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import naniqr
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(naniqr(da.where(x < 10, float("nan"), x)).compute())
    499995.0
    """


@quiet()
def _difference(pair: Any, *, dtype: np.dtype[Any], scale: float) -> Any:
    """Subtract the lower of two quantiles from the upper one, and divide by the scale."""
    if isinstance(pair, np.ma.MaskedArray):
        gap = _difference(pair.data, dtype=dtype, scale=scale)
        return masked(gap, np.ma.getmaskarray(pair)[0, ...])[()]
    if is_kind(pair, "real floating"):
        wide = as_type(pair, "float64")
        with np.errstate(all="ignore"):
            return as_type((wide[1, ...] - wide[0, ...]) / scale, dtype.name)
    low, high = to_host(pair)
    gap = np.asarray(exact_gap(low, high) / scale)
    is_none = low > high
    if is_none.any():
        warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
        gap = np.where(is_none, np.nan, gap)
    return in_kind(gap, pair)
