"""`mad` and `iqr`: how far apart the middle half of the data is, whatever the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arguments import Axis, as_array, public, reduced_axes
from dask_gpuselect.arrays import as_type, is_kind, like, namespace, numpy_dtype, to_host
from dask_gpuselect.engine import passes
from dask_gpuselect.engine.graphs import places_of
from dask_gpuselect.engine.lane_plans import plan_lanes
from dask_gpuselect.engine.lanes import ask_columns, ask_columns_now, ask_lanes
from dask_gpuselect.engine.marks import InColumn, Seen, changed, marks_of
from dask_gpuselect.kernels.reference.selection import elements_at
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally, exact_gap
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, check_method
from dask_gpuselect.quantiles.functions import nanquantile, quantile
from dask_gpuselect.quantiles.questions import Quantiles
from dask_gpuselect.quiet import quiet
from dask_gpuselect.robust.deviations import (
    DeviationBrackets,
    around,
    bracket_from_cuts,
    bracket_from_sample,
    bracket_known,
    distances_of_ranks,
    signed_distances,
)

# Of the standard normal distribution: what divides a spread so that it estimates the deviation.
NORMAL_MAD = 0.6744897501960817
NORMAL_IQR = 1.3489795003921634


@public("x")
def mad(x: Any, axis: Axis = None, *, scale: float | str = "normal", keepdims: bool = False) -> Any:
    """Exact median absolute deviation of all elements in two loads, or along some axes.

    Parameters
    ----------
    x : dask array, or array_like
        Of bool, integers, float16, float32 or float64; of any shape and chunks, sizes known or
        not. Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at
        once, in kind.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    scale : "normal" or float, default "normal"
        What the result is divided by, in its own type. "normal" is 0.6744897501960817, so that the
        result estimates the standard deviation of normal data; 1.0 leaves the plain deviation.
    keepdims : bool, default False
        Whether the reduced axes stay, with size 1.

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN if any element is NaN, or, with a RuntimeWarning, if there is none.
        NaN where the median is infinite or NaN: infinities have no distance from each other.

    Raises
    ------
    TypeError
        At the call, for complex, object, string and masked arrays, and for datetimes; for a scale
        that is no number.
    ValueError
        At the call, for a scale that is not positive and finite in the type of the result; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

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
    return _mad("mad", x, axis, scale, keepdims=keepdims, skips_missing=False)


@public("x")
def nanmad(
    x: Any, axis: Axis = None, *, scale: float | str = "normal", keepdims: bool = False
) -> Any:
    """Exact median absolute deviation of all elements in two loads, NaN left out.

    Parameters
    ----------
    x : dask array, or array_like
        Of bool, integers, float16, float32 or float64; of any shape and chunks, sizes known or
        not. Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at
        once, in kind.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    scale : "normal" or float, default "normal"
        What the result is divided by, in its own type. "normal" is 0.6744897501960817, so that the
        result estimates the standard deviation of normal data; 1.0 leaves the plain deviation.
    keepdims : bool, default False
        Whether the reduced axes stay, with size 1.

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN, with a RuntimeWarning, if every element is NaN or there is none.
        NaN where the median is infinite or NaN: infinities have no distance from each other.

    Raises
    ------
    TypeError
        At the call, for complex, object, string and masked arrays, and for datetimes; for a scale
        that is no number.
    ValueError
        At the call, for a scale that is not positive and finite in the type of the result; for a
        ``dask_gpuselect.column-limit`` that is too small for any plan.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    mad, naniqr, nanmedian

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

    NaN is left out first, and counted in the first load: that costs nothing.

    The value before it is divided is bit for bit ``np.median(np.abs(x - np.median(x)))`` of the
    rest in NumPy's own types: float32 are subtracted in float32, and integers and bool in float64.
    It deviates where `median` does: means of two elements do not overflow, and medians of integers
    beyond 2**53 are rounded once. Along an axis CuPy chunks are subtracted by CuPy, to which
    denormal float32 are zeros.

    Algorithm: the cuts of the first load bound the median, and so how many elements are within any
    distance of it. That brackets the answer in two shells, which the second load gathers with the
    median's own bracket; counts prove it.

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
    return _mad("nanmad", x, axis, scale, keepdims=keepdims, skips_missing=True)


@public("x")
def iqr(
    x: Any,
    axis: Axis = None,
    *,
    q: Sequence[float] = (0.25, 0.75),
    method: str = "linear",
    scale: float | str = 1.0,
    keepdims: bool = False,
) -> Any:
    """Exact interquartile range of all elements in at most two loads, or along some axes.

    Parameters
    ----------
    x : dask array, or array_like
        Of integers, float16, float32 or float64; of any shape and chunks, sizes known or not.
        Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at once, in
        kind.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    q : sequence of 2 floats, default (0.25, 0.75)
        The quantiles whose difference is taken, ascending, in [0, 1].
    method : str, default "linear"
        How they are interpolated: one of those of `quantile`.
    scale : "normal" or float, default 1.0
        What the result is divided by. "normal" is 1.3489795003921634, so that the result of the
        quartiles estimates the standard deviation of normal data.
    keepdims : bool, default False
        Whether the reduced axes stay, with size 1.

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN if any element is.
        NaN between two infinities of one sign, as SciPy has it.

    Raises
    ------
    TypeError
        At the call, for bool, complex, object, string and masked arrays, and for datetimes; for a q
        that is complex, a string or lazy; for a scale that is no number.
    ValueError
        At the call, for a q that is not two ascending numbers in [0, 1]; for an unknown method; for
        a scale that is not positive and finite; for a ``dask_gpuselect.column-limit`` that is too
        small for any plan.
    IndexError
        For an empty array: at the call if its size is known, else while computing.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

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
    return _iqr("iqr", quantile, x, axis, q, method, scale, keepdims=keepdims)


@public("x")
def naniqr(
    x: Any,
    axis: Axis = None,
    *,
    q: Sequence[float] = (0.25, 0.75),
    method: str = "linear",
    scale: float | str = 1.0,
    keepdims: bool = False,
) -> Any:
    """Exact interquartile range of all elements in at most two loads, NaN left out.

    Parameters
    ----------
    x : dask array, or array_like
        Of integers, float16, float32 or float64; of any shape and chunks, sizes known or not.
        Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at once, in
        kind.
    axis : None, int or tuple of ints, optional
        Axes to reduce; all of them by default.
    q : sequence of 2 floats, default (0.25, 0.75)
        The quantiles whose difference is taken, ascending, in [0, 1].
    method : str, default "linear"
        How they are interpolated: one of those of `quantile`.
    scale : "normal" or float, default 1.0
        What the result is divided by. "normal" is 1.3489795003921634, so that the result of the
        quartiles estimates the standard deviation of normal data.
    keepdims : bool, default False
        Whether the reduced axes stay, with size 1.

    Returns
    -------
    dask array, or an array or scalar like `x`
        Of the shape that is left, with sizes of 1 for `keepdims`. float16 and float32 keep their
        type, all else gives float64.
        NaN, with a RuntimeWarning, if every element is NaN or there is none.
        NaN between two infinities of one sign, as SciPy has it.

    Raises
    ------
    TypeError
        At the call, for bool, complex, object, string and masked arrays, and for datetimes; for a q
        that is complex, a string or lazy; for a scale that is no number.
    ValueError
        At the call, for a q that is not two ascending numbers in [0, 1]; for an unknown method; for
        a scale that is not positive and finite; for a ``dask_gpuselect.column-limit`` that is too
        small for any plan.
    numpy.exceptions.AxisError
        At the call, for an axis that does not exist.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    iqr, nanmad, nanquantile

    Notes
    -----
    Loads and memory are those of `quantile`, for both quantiles together: of all elements every
    chunk of a lazy array at most twice; along an axis once, where a column of chunks fits
    ``dask_gpuselect.column-limit``.

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
    return _iqr("naniqr", nanquantile, x, axis, q, method, scale, keepdims=keepdims)


# --- Median absolute deviation: what is asked -----------------------------------------------------


@dataclass(frozen=True)
class QuietMedian(Quantiles):
    """The median of distances: whatever there is to warn of, that of the elements has told."""

    def tell_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Found:
    """What a load says: the median, and the answer before it is divided, or None if that takes one
    load more. Both one-dimensional, of one element."""

    median: NDArray[Any]
    deviation: NDArray[Any] | None


@dataclass(frozen=True)
class DeviationQuestion:
    """The median absolute deviation of all elements, see `passes.Follower`; or of lanes.

    Parameters
    ----------
    median : Quantiles
        Of the elements.
    distances : Quantiles
        The median of the distances.
    scale : float
        What this is divided by.
    """

    median: Quantiles
    distances: QuietMedian
    scale: float

    share: ClassVar[int] = 1
    wants_sums: ClassVar[bool] = False
    third: ClassVar[str] = "distances"

    @classmethod
    def of(cls, source: np.dtype[Any], scale: float, *, skips_missing: bool) -> DeviationQuestion:
        dtype = result_dtype(source, MEDIAN, weak_q=True)
        median = Quantiles((0.5,), MEDIAN.name, skips_missing, source, dtype)
        return cls(median, QuietMedian((0.5,), MEDIAN.name, skips_missing, dtype, dtype), scale)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.distances.dtype

    def guess(self, ordered: Any, rate: float) -> DeviationBrackets:
        del rate  # the sample's own ranks are those that are wanted
        take = partial(elements_at, ordered)
        return bracket_from_sample(take, int(ordered.shape[0]), self.dtype)

    def bracket(self, cuts: Cuts) -> DeviationBrackets:
        return bracket_from_cuts(cuts, self.dtype)

    def settle(self, guess: Brackets, tally: Tally) -> Found | None:
        found = self.look(guess, tally)
        return None if found.deviation is None else found

    def look(self, brackets: Brackets, tally: Tally) -> Found:
        assert isinstance(brackets, DeviationBrackets)

        def found(wanted: IntArray) -> NDArray[Any]:
            return order_statistics(*around(brackets, tally, wanted), wanted)

        median = self.median.answer_by(tally.n_valid, tally.n_missing, found)
        if not np.isfinite(median).all():
            return Found(median, np.full_like(median, np.nan))
        if brackets.spared is not None:
            return Found(median, None)
        return Found(median, self._deviation(median, brackets, tally))

    def more(self, brackets: Brackets, found: Found) -> DeviationBrackets | None:
        if found.deviation is not None:
            return None
        assert isinstance(brackets, DeviationBrackets)
        assert brackets.spared is not None
        return bracket_known(brackets.spared, found.median[0])

    def finish(
        self, found: Found, more: Brackets | None, tally: Tally | None, sums: Moments | None
    ) -> NDArray[Any]:
        del sums
        deviation = found.deviation
        if deviation is None:
            assert isinstance(more, DeviationBrackets)
            assert tally is not None
            deviation = self._deviation(found.median, more, tally)
        answer: NDArray[Any] = self.scaled(deviation)
        return answer

    def scaled(self, deviation: Any) -> Any:
        """Divided as SciPy does, in the type of the result."""
        with np.errstate(all="ignore"):
            return deviation / self.scale

    def _deviation(
        self, median: NDArray[Any], brackets: DeviationBrackets, tally: Tally
    ) -> NDArray[Any]:
        def found(wanted: IntArray) -> NDArray[Any]:
            return distances_of_ranks(brackets, tally, median[0], wanted)

        return self.distances.answer_by(tally.n_valid, 0, found)


def _mad(
    name: str, x: Any, axis: Axis, scale: float | str, *, keepdims: bool, skips_missing: bool
) -> Any:
    """What both functions do: check, and ask a lazy array lazily, any other at once."""
    x = as_array(x)
    axes = reduced_axes(axis, x.ndim)
    source = numpy_dtype(x)
    dtype = result_dtype(source, MEDIAN, weak_q=True)
    factor = _factor(scale, NORMAL_MAD, dtype)
    question = DeviationQuestion.of(source, factor, skips_missing=skips_missing)
    if len(axes) < x.ndim:
        return _mad_of_lanes(name, x, question, axes, keepdims=keepdims)
    shape = (1,) * x.ndim if keepdims else ()
    if isinstance(x, da.Array):
        (answer,) = passes.ask_more([x], [question], name)
        return _in_kind(name, answer, shape, meta_from_array(x._meta, ndim=len(shape), dtype=dtype))
    answer = passes.ask_more_now(x, source, question).reshape(shape)
    return answer[()] if isinstance(x, np.ndarray) else like(answer, x)


def _in_kind(name: str, answer: da.Array, shape: tuple[int, ...], meta: Any) -> da.Array:
    """The lazy answer, an object, as an array of the kind of `meta`."""
    result: da.Array = da.map_blocks(
        partial(passes.in_kind, shape=shape, meta=meta),
        answer,
        name=f"{name}-in-kind-{tokenize(answer.name, shape)}",
        new_axis=list(range(len(shape))) or None,
        chunks=tuple((size,) for size in shape),
        dtype=meta.dtype,
        meta=meta,
    )
    return result


def _factor(scale: float | str, normal: float, dtype: np.dtype[Any]) -> float:
    """What to divide by."""
    if isinstance(scale, str):
        if scale != "normal":
            raise ValueError(f'scale must be "normal" or a number, not {scale!r}')
        return normal
    if not isinstance(scale, int | float | np.integer | np.floating):
        raise TypeError(f'scale must be "normal" or a number, not a {type(scale).__name__}')
    factor = float(scale)
    with np.errstate(all="ignore"):
        found = dtype.type(factor)
    if not (np.isfinite(found) and found > 0):
        raise ValueError(f"scale must be positive and finite, in {dtype}, and {scale} is not")
    return factor


# --- Median absolute deviation along some axes ----------------------------------------------------


def _mad_of_lanes(
    name: str, x: Any, question: DeviationQuestion, axes: tuple[int, ...], *, keepdims: bool
) -> Any:
    source = numpy_dtype(x)
    answer = partial(_answer_column, source=source, question=question, axes=axes)
    if not isinstance(x, da.Array):
        found = ask_columns_now(x, answer, axes, keepdims=keepdims)
        return found[()] if isinstance(x, np.ndarray) else found
    # By the size that the distances have: bytes become float64.
    plan = plan_lanes(x.astype(question.dtype), axes, 1, lambda loads: 2 * loads)
    if plan.parts:
        return _in_passes(name, x, question, axes, keepdims=keepdims)
    return ask_columns(x, answer, plan, name, axes, question.dtype, keepdims=keepdims)


@quiet()
def _answer_column(
    chunks: Sequence[Any],
    *,
    source: np.dtype[Any],
    question: DeviationQuestion,
    axes: tuple[int, ...],
) -> Any:
    """The deviations ``(1, n_lanes)`` of every lane of all chunks together, in kind."""
    median = kernels.answer_lanes(chunks, source, axes, question.median)
    first = chunks[0]
    shape = [1 if axis in axes else size for axis, size in enumerate(first.shape)]
    centre = namespace(median).reshape(median, tuple(shape))
    distances = [_distances(chunk, centre, question) for chunk in chunks]
    found = kernels.answer_lanes(distances, question.dtype, axes, question.distances)
    return _finished(found, median, question)


@quiet()
def _distances(chunk: Any, centre: Any, question: DeviationQuestion) -> Any:
    """The distances of elements from the medians of their lanes; 0 where such a median is not
    finite, for the answer will be NaN there."""
    if isinstance(chunk, np.ndarray):
        distances = signed_distances(chunk, np.asarray(centre))
        np.abs(distances, out=distances)
        np.copyto(distances, 0, where=~np.isfinite(centre))
        return distances
    xp, wide = namespace(chunk), as_type(chunk, question.dtype.name)
    with np.errstate(over="ignore", invalid="ignore"):  # for those that are NumPy inside
        distances = xp.abs(wide - centre)
    return xp.where(xp.isfinite(centre), distances, xp.zeros_like(distances))


def _distances_of_same(
    chunk: Any,
    median: Seen,
    place: tuple[int, ...],
    *,
    question: DeviationQuestion,
    numblocks: tuple[int, ...],
    axes: tuple[int, ...],
) -> Any:
    """The distances from the medians, if they are the medians of this chunk and no other."""
    number = InColumn(numblocks, axes, place).number()
    if median.marks[number] != marks_of([chunk])[0]:
        raise changed(place)
    return _distances(chunk, median.value, question)


def _finished_seen(found: Any, median: Seen, question: DeviationQuestion) -> Any:
    return _finished(found, median.value, question)


@quiet()
def _finished(found: Any, median: Any, question: DeviationQuestion) -> Any:
    """What was found is divided, and NaN where the median is not finite."""
    xp = namespace(found)
    nan = xp.full_like(found, float("nan"))
    return xp.where(xp.isfinite(median), question.scaled(found), nan)


def _in_passes(
    name: str, x: da.Array, question: DeviationQuestion, axes: tuple[int, ...], *, keepdims: bool
) -> da.Array:
    """The median of the distances from the medians, each in as many loads as it takes."""
    dtype, every = question.dtype, tuple(range(x.ndim))
    how: dict[str, Any] = {"keepdims": True, "is_scalar": True}
    median = ask_lanes(x, question.median, f"{name}-median", axes, dtype, **how, seen=True)
    distances = da.blockwise(
        partial(_distances_of_same, question=question, numblocks=x.numblocks, axes=axes),
        every,
        x,
        every,
        median,
        every,
        places_of(x),
        every,
        name=f"{name}-distances-{tokenize(x.name, median.name)}",
        align_arrays=False,
        dtype=dtype,
        meta=meta_from_array(x._meta, dtype=dtype),
    )
    found = ask_lanes(distances, question.distances, name, axes, dtype, **how)
    deviations: da.Array = da.map_blocks(
        partial(_finished_seen, question=question),
        found,
        median,
        name=f"{name}-scaled-{tokenize(found.name, median.name, question)}",
        dtype=dtype,
        meta=found._meta,
    )
    return deviations if keepdims else deviations.squeeze(axes)


# --- Interquartile range --------------------------------------------------------------------------


def _iqr(
    name: str,
    find: Any,
    x: Any,
    axis: Axis,
    q: Sequence[float],
    method: str,
    scale: float | str,
    *,
    keepdims: bool,
) -> Any:
    x = as_array(x)
    source = numpy_dtype(x)
    check_method(method)
    if source.kind in "bmM":
        raise TypeError(f"an interquartile range needs numbers, not {source}")
    result_dtype(source, METHODS[method], weak_q=False)  # raises for what has no quantiles
    dtype = source.newbyteorder("=") if source.kind == "f" else np.dtype(np.float64)
    factor = _factor(scale, NORMAL_IQR, np.dtype(np.float64))
    if np.shape(q) != (2,) or not q[0] <= q[1]:
        raise ValueError(f"q must be two ascending numbers, not {q}")
    pair = find(x, np.array(q), axis, method=method, keepdims=keepdims)
    finish = partial(_difference, dtype=dtype, scale=factor)
    if not isinstance(pair, da.Array):
        difference = finish(pair)
        return difference[()] if isinstance(x, np.ndarray) else difference
    meta = meta_from_array(pair._meta, ndim=pair.ndim - 1, dtype=dtype)
    result: da.Array = da.map_blocks(
        finish,
        pair,
        drop_axis=0,
        name=f"{name}-{tokenize(pair.name, dtype, factor)}",
        dtype=dtype,
        meta=meta,
    )
    return result


@quiet()
def _difference(pair: Any, *, dtype: np.dtype[Any], scale: float) -> Any:
    """The upper one of two quantiles less the lower one, divided by the scale, in kind."""
    if is_kind(pair, "real floating"):
        wide = as_type(pair, "float64")
        with np.errstate(all="ignore"):
            return as_type((wide[1, ...] - wide[0, ...]) / scale, dtype.name)
    host = pair if isinstance(pair, np.ndarray) else to_host(pair)
    difference = np.asarray(exact_gap(host[0, ...], host[1, ...]) / scale)
    return difference[()] if isinstance(pair, np.ndarray) else like(difference, pair)
