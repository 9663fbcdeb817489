"""`describe_boxplot`: box-plot statistics of arrays of any size."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from dask_gpuselect.arguments import (
    Axis,
    as_accompanied,
    as_integer,
    each_of,
    for_each,
    holds_arrays,
    public,
    reduced_axes,
)
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.boxplot.summary import Boxplot, BoxSource
from dask_gpuselect.engine.asking import Asking, ask_each, by_group
from dask_gpuselect.engine.groups import Grouped, data_of
from dask_gpuselect.engine.resident import fit_one_device
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.interpolation import check_numbers, result_dtype
from dask_gpuselect.maths.ranks import METHODS, check_method
from dask_gpuselect.quantiles.weighted import check_weighted_method


def _takes_columns(function: Callable[..., Boxplot]) -> Callable[..., Boxplot]:
    """Decorate a function of arrays, so that it takes a lazy column of a table too."""

    @wraps(function)
    def entered(a: Any, *args: Any, **how: Any) -> Boxplot:
        lazy = sys.modules.get("dask.dataframe")
        if lazy is None or not isinstance(a, lazy.Series):
            return function(a, *args, **how)
        from dask_gpuselect.engine import frames  # which imports pandas

        (array,) = frames.numbers_as_arrays(a, [frames.Column.of(a._meta)])
        return function(array if a.name is None else {str(a.name): array}, *args, **how)

    return entered


@_takes_columns
@public(many=("a", "where", "weights"))
def describe_boxplot(
    a: Any,
    axis: Axis = None,
    *,
    whis: float | tuple[float, float] = 1.5,
    nan_policy: str = "omit",
    autorange: bool = False,
    max_fliers: int = 1000,
    labels: Sequence[str] | None = None,
    method: str = "linear",
    weights: Any = None,
    where: Any = None,
    nodata: Any = None,
) -> Boxplot:
    """Exact statistics of box plots, of arrays of any size.

    Parameters
    ----------
    a : array, or list or dict of arrays
        Of any shape, of integers or floats of up to 64 bits, with NumPy or CuPy chunks. Each array
        gives one box. If one of them is a dask array, all boxes are lazy, else they are computed
        eagerly. The keys of a dict are labels. A dask Series may be passed too; its name is the
        label.
    axis : None, int or tuple of ints, optional
        Axes to reduce: one box for every 1-D slice along them. By default all elements of an array
        give one box.
    whis : float or (float, float), default 1.5
        A number: the whiskers end at the last elements within `whis` interquartile ranges from the
        box. Two numbers: they end at the last elements within these two percentiles, for example
        ``(5, 95)``. A whisker without such elements ends at the box.
    nan_policy : {"omit", "propagate"}, default "omit"
        With "omit", NaN are left out and counted. With "propagate", NaN make every statistic of
        their box NaN, as in matplotlib.
    autorange : bool, default False
        Whether the whiskers reach the extremes if the interquartile range is 0.
    max_fliers : int, default 1000
        The number of fliers in the answer on each side: the most extreme ones. All are counted.
    labels : sequence of str, optional
        A label for each box; along an axis in C order.
    method : str, default "linear"
        How quartiles are interpolated: see `quantile`. With weights: "inverted_cdf",
        "averaged_inverted_cdf" or "linear".
    weights : array of real numbers, optional
        The weight of each element. The shape is that of every array, or that of its reduced axes. A
        NumPy, CuPy or dask array, with any chunks. For several arrays, one for all, or a list or
        dict with one for each. The quartiles are weighted (see `quantile`), `n` is the sum of the
        weights, and the mean, the standard deviation, the notch and the numbers of fliers are
        weighted too. Elements of weight 0 are left out.
    where : array of bool, optional
        Only elements where it is True are used. It broadcasts to the shape of every array. A NumPy,
        CuPy or dask array, with any chunks. For several arrays, one for all, or a list or
        dict with one for each.
    nodata : scalar or sequence, optional
        Elements that equal one of these values, of the dtype of the data, are left out.

    Returns
    -------
    Boxplot
        A sequence of `Box`. For a dask array nothing is computed yet.

    Raises
    ------
    TypeError
        For arrays that are not of real numbers, such as dates; for a `whis` that is not a number, a
        `max_fliers` that is not an integer, and `labels` that are not a sequence; for a `where`
        whose dtype is not bool, and weights that are not real.
    ValueError
        For values of `whis`, `nan_policy`, `max_fliers`, `labels` or `method` that are not allowed;
        for a `where` or weights of a shape that does not fit, and a `nodata` that the dtype cannot
        hold. While computing, for weights that are negative, NaN or infinite, and if all weights
        are 0.
    numpy.exceptions.AxisError
        If `axis` is out of range.
    ChunksChangedError
        While computing, if a chunk differs between two reads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    quantile : Exact quantiles, which are the edges of the boxes.

    Notes
    -----
    Reads: each chunk is read at most twice for all boxes together, even if several arrays share it.
    If more than 16 elements for each pivot lie near a fence of an array, this array is read a third
    time. NumPy arrays in memory are read once for the box, which a sample guesses and the counts
    prove, and once for its sums; a CuPy array is read once for both. Several threads read large
    plain NumPy arrays. Along an axis, each array is read as often as by `quantile`, and once more
    if a column of chunks exceeds ``dask_gpuselect.column-limit``.

    Memory: as for `quantile`, and on each side `max_fliers` elements and those of one cell (the
    range between two neighbouring pivots). Along an axis, this holds for every 1-D slice, with
    about 200 bytes more for each, and up to 1.7 KB if its float64 are of all magnitudes. With
    weights, as for `quantile` with weights. If a mask leaves out elements of a whole CuPy array,
    the others are copied. The boxes of a plain CuPy array along an axis, and of groups along it,
    stay on the device: some 80 bytes and the fliers for each. A column of them is copied to the
    host when it is first used. So do those of CuPy chunks that fit ``dask_gpuselect.cache-limit``
    together with their boxes, if one process computes them.

    Statistics are those of ``matplotlib.cbook.boxplot_stats`` on float64: no whisker ends inside
    the box, and an element beyond the end of a whisker is a flier. The mean and the standard
    deviation (of all elements, as `numpy.std`) come from exact sums and are rounded once. They do
    not depend on chunks, order, device or scheduler, and squares neither overflow nor underflow. If
    there is an infinity, they are those of NumPy: an infinite mean, or NaN.

    Weights: all sums of weights are exact, and each is rounded once. Fliers are the values of the
    `max_fliers` most extreme elements of each side. Equal ones are listed once, with their total
    weight. If weights are counts, the box is that of the elements repeated by `numpy.repeat`, for
    all methods except "linear": see `quantile`.

    References
    ----------
    J. W. Tukey, "Exploratory Data Analysis", 1977. R. McGill, J. W. Tukey and W. A. Larsen,
    "Variations of Box Plots", 1978: the notches. The brackets are those of `quantile`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import describe_boxplot
    >>> box = describe_boxplot(da.arange(101, chunks=10)).compute()[0]
    >>> box.q1, box.med, box.q3, box.whislo, box.whishi
    (25.0, 50.0, 75.0, 0, 100)
    >>> counts = [5, 9, 6, 1]
    >>> box = describe_boxplot([1, 2, 3, 9], weights=counts, method="inverted_cdf")[0]
    >>> box.n, box.med, box.fliers, box.flier_weights
    (21.0, 2.0, array([9]), array([1.]))
    """
    rule = _rule(whis, autorange, max_fliers, method)
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable | None):
        raise TypeError(f"labels must be a sequence of str, not {labels!r}")
    if nan_policy not in ("omit", "propagate"):
        raise ValueError(f'nan_policy must be "omit" or "propagate", not {nan_policy!r}')
    arrays, names = _arrays(a)
    if weights is not None:
        check_weighted_method(method)
    given = {"where": where, "weights": weights}
    is_several = isinstance(a, Mapping) or holds_arrays(a)
    how: dict[str, Any] = {"n": len(arrays), "is_several": is_several}
    companions = (for_each(each, a, name=name, **how) for name, each in given.items())
    described = [
        as_accompanied(array, its_where, nodata, its_weights, axis)
        for array, its_where, its_weights in zip(arrays, *companions, strict=True)
    ]
    is_lazy = any(isinstance(data_of(each), DaskArray) for each in described)
    about: dict[str, Any] = {"omits_nan": nan_policy == "omit", "weighs": weights is not None}
    askings = [by_group(_asking(each, axis, rule, is_lazy=is_lazy, **about)) for each in described]
    sources = [
        BoxSource(name, method, each.shape_of_lanes)
        for name, each in zip(names, askings, strict=True)
    ]
    return Boxplot.of(ask_each(askings, "boxplot"), sources, labels)


def _asking(array: Any, axis: Axis, rule: Rule, *, is_lazy: bool, **about: Any) -> Asking:
    """Return the question about the boxes of an array, or raise if its dtype has none.

    `is_lazy` is True if any of the arrays that are asked about together is.
    """
    dtype = numpy_dtype(array)
    check_numbers(dtype, "box plots")
    result_dtype(dtype, METHODS[rule.method], weak_q=False)  # raises for other unsupported dtypes
    axes = reduced_axes(axis, array.ndim)
    stays = not is_lazy or _may_stay(array, axes, rule)
    return Asking(array, BoxQuestion.of(rule, dtype, stays=stays, **about), axes)


LANE_BYTES = 72  # of the box of a lane on a device, besides its fliers


def _may_stay(array: Any, axes: tuple[int, ...], rule: Rule) -> bool:
    """Return whether the boxes of all lanes, or of their groups, and the chunks fit one device."""
    x, n_groups = data_of(array), array.grouping.n_groups if isinstance(array, Grouped) else 1
    if not isinstance(x, DaskArray):
        return False
    sizes = [size for axis, size in enumerate(x.shape) if axis not in axes]
    if not (sizes and Source.of(x).is_on_device) or math.isnan(n_groups):
        return False
    n = math.prod(x.shape[axis] for axis in axes)
    fliers = min(2 * rule.max_fliers * n_groups, n) * x.dtype.itemsize
    return fit_one_device([x], math.prod(sizes) * (n_groups * LANE_BYTES + fliers))


def _rule(whis: Any, autorange: bool, max_fliers: int, method: str) -> Rule:
    """Check the arguments that say where quartiles, fences and fliers are."""
    check_method(method)
    max_fliers = as_integer(max_fliers, "max_fliers")
    if max_fliers < 0:
        raise ValueError(f"max_fliers must be 0 or more, not {max_fliers}")
    if (kind := np.asarray(whis).dtype).kind not in "biuf":
        raise TypeError(
            f"whis must be a number, or two percentiles such as (5, 95), not of dtype {kind}"
        )
    given = np.asarray(whis, np.float64)
    if given.shape == (2,):
        if not ((given >= 0) & (given <= 100)).all() or given[0] > given[1]:
            raise ValueError(f"whis must be two ascending percentiles in [0, 100], not {whis}")
        low, high = (given / 100).tolist()
        return Rule((low, high), autorange, max_fliers, method)
    if given.shape != () or not given >= 0:
        raise ValueError(
            f"whis must be a number >= 0, or two percentiles such as (5, 95), not {whis}"
        )
    return Rule(float(given), autorange, max_fliers, method)


def _arrays(a: Any) -> tuple[list[Any], list[str | None]]:
    """Return the arrays, and a name or None for each."""
    if isinstance(a, Mapping):
        return each_of(dict(a))[0], [str(key) for key in a]
    arrays = list(a) if holds_arrays(a) else [a]
    return arrays, [None] * len(arrays)
