"""`mad` and `iqr`: how far apart the middle half of the data is, whatever the rest."""

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
    public,
    reduced_axes,
    same_kind,
    scale_factor,
)
from dask_gpuselect.arrays import as_type, in_kind, is_kind, masked, numpy_dtype, to_host
from dask_gpuselect.engine.asking import Asking, ask, mapped
from dask_gpuselect.maths.envelope import exact_gap
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, check_method
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.quantiles.functions import ask_quantiles, median, quantile
from dask_gpuselect.quantiles.questions import Filled
from dask_gpuselect.quiet import quiet
from dask_gpuselect.robust.questions import DeviationQuestion

# Two integers that are no quantiles, for these ascend: where there is no element, and no NaN.
NO_PAIR = Filled((1, 0))


@same_kind
@documented_like(median)
@public("x", "where")
def mad(
    x: Any,
    axis: Axis = None,
    *,
    scale: float | str = "normal",
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
) -> Any:
    """Exact median absolute deviation of all elements, or along axes.

    Parameters
    ----------
    x : dask array, or array_like
        Of bool, integers, float16, float32 or float64; of any shape and chunks, sizes known or
        not. Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at
        once, in kind.
    {axis}
    scale : "normal" or float, default "normal"
        What the result is divided by, in its own type. "normal" is 0.6744897501960817, so that the
        result estimates the standard deviation of normal data; 1.0 leaves the plain deviation.
    {keepdims}
    {where}
    {nodata}

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN if any element is NaN; with a RuntimeWarning, if there are no elements or all are
        left out. Masked elements of a masked array are left out, and the answer is masked where all
        are masked.
        NaN where the median is infinite or NaN: infinities have no distance from each other.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays, and for datetimes; for a scale that is
        no number; for a `where` that is not of bool.
    ValueError
        At the call, for a scale that is not positive and finite in the type of the result; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    nanmad, iqr, median

    Notes
    -----
    Loads, of all elements: every chunk of a lazy array twice, where ``median(abs(x - median(x)))``
    takes four; a third time where the median is so uncertain after the first load that more
    elements than 40 for each pivot could be the answer, as between two halves far apart. Never
    more. Chunks in memory are read in place, and once where a sample's guess holds.

    Along some of the axes: one load where the chunks of a column, of the type of the result, fit
    ``dask_gpuselect.column-limit`` (dask config; 1 GiB), or it is a single one. A larger column
    takes the loads of two medians, mostly four (see `explain`, for ``x.astype(float)``).

    Memory: as for `median`, and up to 40 elements more for each pivot, in one place; of data in
    memory that are read once, 4 % of normal data and 11 % of any. For a third load up to
    65,536 values that all tasks are told. Along an axis, a column once more, of the type of the
    result.

    The value before it is divided is bit for bit ``np.median(np.abs(x - np.median(x)))``
    in NumPy's own types: float32 are subtracted in float32, and integers and bool in float64. It
    deviates where `median` does: means of two elements do not overflow, and medians of integers
    beyond 2**53 are rounded once. Along an axis CuPy chunks are subtracted by CuPy, to which
    denormal float32 are zeros.

    Algorithm: the cuts of the first load bound the median, and so how many elements are within any
    distance of it. That brackets the answer in two shells, which the second load gathers with the
    median's own bracket; counts prove it.

    References
    ----------
    F. R. Hampel, "The influence curve and its role in robust estimation", 1974. Conventions are
    those of ``scipy.stats.median_abs_deviation``. The brackets are those of `median`.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(mad(x, scale=1.0).compute())
    250000.0
    """
    left_out = where, nodata
    return _mad("mad", x, axis, scale, left_out, keepdims=keepdims, skips_missing=False)


@same_kind
@documented_like(mad)
@public("x", "where")
def nanmad(
    x: Any,
    axis: Axis = None,
    *,
    scale: float | str = "normal",
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
) -> Any:
    """Exact median absolute deviation of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN, with a RuntimeWarning, if every element is NaN or there is none.
        NaN where the median is infinite or NaN: infinities have no distance from each other.

    {Raises}

    See Also
    --------
    mad, naniqr, nanmedian

    Notes
    -----
    {Loads}

    {Along}

    {Memory}

    NaN is left out first, and counted in the first load: that costs nothing.

    The value before it is divided is bit for bit ``np.median(np.abs(x - np.median(x)))`` of the
    rest in NumPy's own types: float32 are subtracted in float32, and integers and bool in float64.
    It deviates where `median` does: means of two elements do not overflow, and medians of integers
    beyond 2**53 are rounded once. Along an axis CuPy chunks are subtracted by CuPy, to which
    denormal float32 are zeros.

    {Algorithm}

    References
    ----------
    F. R. Hampel, "The influence curve and its role in robust estimation", 1974. Conventions are
    those of ``scipy.stats.median_abs_deviation`` with
    ``nan_policy="omit"``. The brackets are those of `median`.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(nanmad(da.where(x < 10, float("nan"), x), scale=1.0).compute())
    249998.0
    """
    left_out = where, nodata
    return _mad("nanmad", x, axis, scale, left_out, keepdims=keepdims, skips_missing=True)


@same_kind
@documented_like(quantile)
@public("x", "where")
def iqr(
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
    """Exact interquartile range of all elements (each chunk is read at most twice), or along axes.

    Parameters
    ----------
    x : dask array, or array_like
        Of integers, float16, float32 or float64; of any shape and chunks, sizes known or not.
        Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at once, in
        kind.
    {axis}
    q : sequence of 2 floats, default (0.25, 0.75)
        The quantiles whose difference is taken, ascending, in [0, 1].
    method : str, default "linear"
        How they are interpolated: one of those of `quantile`.
    scale : "normal" or float, default 1.0
        What the result is divided by. "normal" is 1.3489795003921634, so that the result of the
        quartiles estimates the standard deviation of normal data.
    {keepdims}
    {where}
    {nodata}

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN if any element is; with a RuntimeWarning, if all are left out.
        Of a masked array, which leaves out what it masks: masked where that is all.
        NaN between two infinities of one sign, as SciPy has it.

    Raises
    ------
    TypeError
        At the call, for bool, complex, object and string arrays, and for datetimes; for a q that is
        complex, a string or lazy; for a scale that is no number; for a `where` that is not of bool.
    ValueError
        At the call, for a q that is not two ascending numbers in [0, 1]; for an unknown method; for
        a scale that is not positive and finite; for a ``dask_gpuselect.column-limit`` that is too
        small for any plan.
    {IndexError}
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    naniqr, mad, quantile

    Notes
    -----
    Loads and memory are those of `quantile`, for both quantiles together: of all elements every
    chunk of a lazy array at most twice; along an axis once, where a column of chunks fits
    ``dask_gpuselect.column-limit``.

    The quantiles, their difference and the division are float64, and rounded once to the type of
    the result: of float64 data it is ``np.subtract(*np.quantile(x, [q[1], q[0]]))``, divided.
    Elements of integers that a discrete method chooses are subtracted exactly, where NumPy's
    difference may overflow.

    References
    ----------
    Conventions are those of ``scipy.stats.iqr``. The algorithm is that of `quantile`.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(iqr(x).compute())
    500000.0
    """
    how: dict[str, Any] = {"keepdims": keepdims, "where": where, "nodata": nodata}
    return _iqr("iqr", x, axis, q, method, scale, how)


@same_kind
@documented_like(iqr)
@public("x", "where")
def naniqr(
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
    """Exact interquartile range of all elements, or along axes, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN, with a RuntimeWarning, if every element is NaN or there is none.
        NaN between two infinities of one sign, as SciPy has it.

    Raises
    ------
    {TypeError}
    {ValueError}
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    iqr, nanmad, nanquantile

    Notes
    -----
    {Loads}

    NaN is counted in the first load: leaving it out costs nothing.

    The quantiles, their difference and the division are float64, and rounded once to the type of
    the result: of float64 data it is ``np.subtract(*np.nanquantile(x, [q[1], q[0]]))``, divided.
    Elements of integers that a discrete method chooses are subtracted exactly, where NumPy's
    difference may overflow.

    References
    ----------
    Conventions are those of ``scipy.stats.iqr`` with ``nan_policy="omit"``. The algorithm is that
    of `quantile`.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(1_000_001, chunks=100_000)
    >>> float(naniqr(da.where(x < 10, float("nan"), x)).compute())
    499995.0
    """
    how: dict[str, Any] = {"keepdims": keepdims, "where": where, "nodata": nodata}
    return _iqr("naniqr", x, axis, q, method, scale, how)


# --- Checking arguments ---------------------------------------------------------------------------


def _mad(
    name: str,
    x: Any,
    axis: Axis,
    scale: float | str,
    left_out: tuple[Any, Any],
    *,
    keepdims: bool,
    skips_missing: bool,
) -> Any:
    """What both functions do: check, and ask."""
    if_none = if_all_left_out(x, *left_out)
    x = as_accompanied(x, *left_out)
    source = numpy_dtype(x)
    if source.kind in "mM":
        raise TypeError(f"a median absolute deviation needs numbers, not {source}")
    dtype = result_dtype(source, MEDIAN, weak_q=True)
    factor = scale_factor(scale, NORMAL_MAD, dtype)
    question = DeviationQuestion.of(source, factor, if_none, skips_missing=skips_missing)
    axes = reduced_axes(axis, x.ndim)
    return ask(Asking(x, question, axes, dtype, keepdims=keepdims), name)


def _iqr(
    name: str,
    x: Any,
    axis: Axis,
    q: Sequence[float],
    method: str,
    scale: float | str,
    how: dict[str, Any],
) -> Any:
    source = numpy_dtype(as_accompanied(x, how["where"], how["nodata"]))
    check_method(method)
    if source.kind in "bmM":
        raise TypeError(f"an interquartile range needs numbers, not {source}")
    result_dtype(source, METHODS[method], weak_q=False)  # raises for what has no quantiles
    dtype = source.newbyteorder("=") if source.kind == "f" else np.dtype(np.float64)
    factor = scale_factor(scale, NORMAL_IQR, np.dtype(np.float64))
    if np.shape(q) != (2,) or not q[0] <= q[1]:
        raise ValueError(f"q must be two ascending numbers, not {q}")
    if_none = if_all_left_out(x, how["where"], how["nodata"])
    skips_missing = name == "naniqr"
    about: dict[str, Any] = {**how, "skips_missing": skips_missing}
    is_chosen = METHODS[method].discrete and source.kind in "iu"
    if is_chosen and (if_none == "missing" or (if_none == "empty" and skips_missing)):
        about["if_none"] = NO_PAIR
    pair = ask_quantiles("quantile", x, np.array(q), axis, method, **about)
    return mapped(pair, partial(_difference, dtype=dtype, scale=factor), name, dtype, drop_axis=0)


@quiet()
def _difference(pair: Any, *, dtype: np.dtype[Any], scale: float) -> Any:
    """The upper one of two quantiles less the lower one, divided by the scale, in kind."""
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
