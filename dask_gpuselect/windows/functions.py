"""`rolling`: exact statistics of windows that move over an array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dask_gpuselect.arguments import (
    NORMAL_IQR,
    NORMAL_MAD,
    Axis,
    as_accompanied,
    as_integer,
    axes_in_order,
    check_data,
    check_known,
    if_all_left_out,
    plain_types,
    public,
    scale_factor,
)
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.engine.halos import Halo
from dask_gpuselect.maths.interpolation import is_weak, precision_of, result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, Method, check_method
from dask_gpuselect.maths.windows import RowWindows
from dask_gpuselect.optional import Advising
from dask_gpuselect.quantiles.functions import probabilities
from dask_gpuselect.windows.questions import WindowQuestion, ask_windows, each_axis, frame_of

Window = int | Sequence[int] | Mapping[int, int]
MODES = {"reflect": "reflect", "mirror": "mirror", "nearest": "nearest", "wrap": "wrap"}
CLOSED = {None: (0, 0), "right": (0, 0), "left": (1, -1), "both": (1, 0), "neither": (0, -1)}
"""By how much a window begins earlier, and ends later, than one that is closed at its right."""


def rolling(
    x: Any,
    window: Window,
    axis: Axis = None,
    *,
    center: bool | Sequence[bool] = False,
    min_periods: int | None = None,
    boundary: str | None = None,
    closed: str | None = None,
    step: int | Sequence[int] = 1,
    where: Any = None,
    nodata: Any = None,
) -> Rolling:
    """Move a window over an array, for exact medians, quantiles and spreads of each position.

    Parameters
    ----------
    x : dask array or array_like
        Of any dtype that `quantile` takes. The chunk sizes must be known.
    window : int, tuple of int, or dict
        The number of elements in a window: an int for one axis, a tuple with one number for each
        of several axes, or a dict ``{axis: size}``.
    axis : int or tuple of int, optional
        The axes that the window moves along. Required if `window` is an int, unless `x` has one
        dimension. If `window` is a tuple, the default is the last axes. Leave it out if `window` is
        a dict.
    center : bool or tuple of bool, default False
        If True, a window is centred on its element; if False, it ends with its element. A window of
        an even size has one element more before its element than after it, as in xarray and pandas.
    min_periods : int, optional
        The number of elements that a window needs for an answer other than NaN. NaN and elements
        that are left out do not count. The default is `window`, as in pandas, and 1 for the methods
        whose names begin with nan.
    boundary : {None, "reflect", "mirror", "nearest", "wrap"}, optional
        How the array is extended beyond its ends, as `mode` of ``scipy.ndimage``. By default it is
        not extended, and windows are smaller at the ends.
    closed : {"right", "left", "both", "neither"}, optional
        Which ends belong to a window, as in pandas. With "left", a window ends before its own
        element. With "both", it has one element more than `window`, with "neither" one less.
    step : int or tuple of int, default 1
        The distance between the elements that have a window, as in pandas: 1 for every element, 2
        for every second one.
    where : array of bool, optional
        Only elements where it is True are used. It broadcasts to the shape of `x`.
    nodata : scalar or sequence, optional
        Elements that equal one of these are left out.

    Returns
    -------
    Rolling
        With the methods `median`, `quantile`, `percentile`, `mad` and `iqr`, their nan-variants,
        `min`, `max` and `count`.

    Raises
    ------
    TypeError
        For a window or a step that is not an integer. By the methods, for dtypes that `quantile`
        does not take.
    ValueError
        For a window below 1, one that has other axes than `axis`, or with a `boundary` one that
        reaches more than 2**20 elements beyond the ends and farther than `x` is long; for
        `min_periods` above the size of the window; for a `boundary` or `closed` that is not listed.
        By the methods, for unknown chunk sizes.

    See Also
    --------
    median_filter : The median filter of images.
    percentile_filter : The percentile filter of images.
    rank_filter : The rank filter of images.
    dask_gpuselect.quantile : Quantiles of all elements, or along axes.

    Notes
    -----
    Reads: each chunk is read once. The margins that windows need from neighbouring chunks are
    slices of the same read. Several statistics of one array that are computed together share the
    read.

    Memory: a task holds a chunk with its margins, and scratch memory of at most twice that. Slices
    that other tasks need stay in memory until these have run, and so do chunks that were read for a
    margin until their own windows are answered. Windows are never unfolded, as
    ``numpy.lib.stride_tricks.sliding_window_view`` would do. For NumPy chunks, blocks of elements
    are sorted once, and a window is a set of bits among their ranks (Suomela 2014, for images). So
    the time hardly depends on the size of the window, nor does that of `mad`. Windows of few
    elements are sorted by networks, and larger ones of bytes are sums of histograms of columns
    (Perreault and Hébert 2007). For CuPy chunks, large windows are found in wavelet matrices of
    tiles (Moroto and Umetani 2022). If chunks are much smaller than the window along an axis, each
    task needs many chunks: rechunk to a few times the window.

    Answers have the chunks of `x`, and the dtype that `quantile` gives. The discrete methods of
    `quantile` keep integers, unless a window may lack elements: near the ends without `boundary`
    if `min_periods` is more than 1, with `where` or `nodata`, and in masked arrays. (A masked array
    of NumPy with no masked element lacks none.) Then the answer is float64, which rounds integers
    beyond 2**53.

    References
    ----------
    J. Suomela, "Median filtering is equivalent to sorting", 2014, arXiv:1406.1717.
    S. Perreault and P. Hébert, "Median filtering in constant time", IEEE Transactions on Image
    Processing 16, 2389, 2007.
    Y. Moroto and N. Umetani, "Constant time median filter using 2D wavelet matrix", ACM
    Transactions on Graphics 41, 260, 2022.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.windows import rolling
    >>> x = da.from_array([5.0, 1.0, 4.0, float("nan"), 3.0, 2.0], chunks=2)
    >>> rolling(x, 3, center=True, min_periods=1).nanmedian().compute()
    array([3. , 4. , 2.5, 3.5, 2.5, 2.5])
    >>> rolling(x, 3).median().compute()
    array([nan, nan,  4., nan, nan, nan])
    """
    check_data(x, "x")
    check_known(nodata, "nodata")
    ndim = x.ndim if hasattr(x, "ndim") else np.ndim(x)
    sizes: Any = window
    keys, sizes = None, sizes.tolist() if type(sizes) is np.ndarray else sizes
    if type(window) is dict:
        keys, sizes = tuple(window), tuple(window.values())
    given = keys, sizes, axis, center, min_periods, boundary, closed, step
    types = plain_types(*given)
    found = _reaches.__wrapped__ if types is None else _reaches
    return Rolling(x, *found(types, ndim, *given), where, nodata)


@lru_cache(maxsize=64)
def _reaches(
    _types: Any,
    ndim: int,
    keys: tuple[int, ...] | None,
    window: Any,
    axis: Axis,
    center: Any,
    min_periods: int | None,
    boundary: str | None,
    closed: str | None,
    step: Any,
) -> tuple[tuple[Halo, ...], tuple[int, int]]:
    """Check the arguments of `rolling`; `keys` are those of a dict of windows.

    Return how far windows reach along each axis, and how many elements they need: for methods that
    heed NaN, and for those that ignore it.
    """
    window = window if keys is None else dict(zip(keys, window, strict=True))
    about = {"window": window, "axis": axis, "center": center, "min_periods": min_periods}
    for name, value in {**about, "boundary": boundary, "closed": closed, "step": step}.items():
        check_known(value, name)
    axes, sizes = _sizes(window, axis, ndim)
    how = (each_axis(center, axes, "center"), each_axis(step, axes, "step"))
    halos = [Halo(0, 0)] * ndim
    for own, size, is_centred, every in zip(axes, sizes, *how, strict=True):
        halos[own] = _reach(size, is_centred, every, boundary, closed)
    reaches, n = tuple(halos), math.prod(sizes)
    most = max(n, frame_of(reaches).n)
    if min_periods is not None and not 0 <= as_integer(min_periods, "min_periods") <= most:
        raise ValueError(
            f"min_periods must be from 0 to {most}, the size of the window, not {min_periods}"
        )
    return reaches, (n, 1) if min_periods is None else (min_periods, min_periods)


class Rolling(Advising):
    """Windows that move over an array, with methods for statistics of each; made by `rolling`.

    Methods whose names begin with nan ignore NaN. The others return NaN if a window contains NaN.
    """

    def __init__(
        self,
        x: Any,
        reaches: tuple[Halo, ...] | RowWindows,
        least: tuple[int, int],
        where: Any,
        nodata: Any,
    ) -> None:
        self._x, self._reaches = x, reaches
        self._least = least  # for methods that heed NaN, and for those that ignore it
        self._left_out = {"where": where, "nodata": nodata}

    def __repr__(self) -> str:
        lies = self._reaches
        size = lies.n if isinstance(lies, RowWindows) else tuple(reach.size for reach in lies)
        return f"<windows of {size} of {self._x!r}>"

    @property
    def reaches(self) -> Any:
        """The reach of windows along each axis."""
        return self._reaches

    def _ask(
        self, name: str, q: Any, method: str | Method, *, omits: bool = False, **how: Any
    ) -> Any:
        how |= {"reaches": self._reaches, "least": self._least[omits], "omits": omits}
        return _ask_statistic(self._x, name, q, method, **how, **self._left_out)

    def median(self) -> Any:
        """Return the median of each window: see `dask_gpuselect.median`."""
        return self._ask("median", 0.5, MEDIAN)

    def nanmedian(self) -> Any:
        """Return the median of each window, ignoring NaN: see `dask_gpuselect.nanmedian`."""
        return self._ask("median", 0.5, MEDIAN, omits=True)

    def quantile(self, q: Any, *, method: str = "linear") -> Any:
        """Return quantiles of each window: see `dask_gpuselect.quantile`.

        The axis of q, if it has one, comes first.
        """
        return self._ask("quantile", q, method)

    def nanquantile(self, q: Any, *, method: str = "linear") -> Any:
        """Return quantiles of each window, ignoring NaN: see `dask_gpuselect.nanquantile`."""
        return self._ask("quantile", q, method, omits=True)

    def percentile(self, q: Any, *, method: str = "linear") -> Any:
        """Return percentiles of each window: see `dask_gpuselect.percentile`."""
        return self._ask("percentile", q, method, percent=True)

    def nanpercentile(self, q: Any, *, method: str = "linear") -> Any:
        """Return percentiles of each window, ignoring NaN: see `dask_gpuselect.nanpercentile`."""
        return self._ask("percentile", q, method, omits=True, percent=True)

    def mad(self, *, scale: float | str = "normal") -> Any:
        """Return the median absolute deviation of each window: see `dask_gpuselect.robust.mad`."""
        return self._ask("mad", 0.5, MEDIAN, scale=scale)

    def nanmad(self, *, scale: float | str = "normal") -> Any:
        """Return the median absolute deviation of each window, ignoring NaN."""
        return self._ask("mad", 0.5, MEDIAN, scale=scale, omits=True)

    def iqr(self, *, method: str = "linear", scale: float | str = 1.0) -> Any:
        """Return the interquartile range of each window: see `dask_gpuselect.robust.iqr`."""
        return self._ask("iqr", (0.25, 0.75), method, scale=scale)

    def naniqr(self, *, method: str = "linear", scale: float | str = 1.0) -> Any:
        """Return the interquartile range of each window, ignoring NaN."""
        return self._ask("iqr", (0.25, 0.75), method, scale=scale, omits=True)

    def min(self) -> Any:
        """Return the smallest element of each window."""
        return self._ask("min", 0.0, METHODS["lower"])

    def nanmin(self) -> Any:
        """Return the smallest element of each window, ignoring NaN."""
        return self._ask("min", 0.0, METHODS["lower"], omits=True)

    def max(self) -> Any:
        """Return the largest element of each window."""
        return self._ask("max", 1.0, METHODS["lower"])

    def nanmax(self) -> Any:
        """Return the largest element of each window, ignoring NaN."""
        return self._ask("max", 1.0, METHODS["lower"], omits=True)

    def count(self) -> Any:
        """Return the number of elements of each window that are not NaN and not left out; int64."""
        return self._ask("count", 0.5, MEDIAN)


@public("x", "where")
def _ask_statistic(
    x: Any,
    name: str,
    q: Any,
    method: str | Method,
    *,
    where: Any,
    nodata: Any,
    **how: Any,
) -> Any:
    """Check what a method asks, and ask it."""
    if isinstance(x, np.ma.MaskedArray) and not np.ma.is_masked(x):
        x = np.ma.getdata(x)  # no window lacks an element, as of an array without a mask
    array = as_accompanied(x, where, nodata)
    how |= {"is_whole": if_all_left_out(x, where, nodata) == "empty"}
    types = plain_types(q, how.get("scale")) if isinstance(how["reaches"], tuple) else None
    asked = _asked.__wrapped__ if types is None else _asked
    reaches, question, is_one = asked(
        types, numpy_dtype(array), array.shape, name, q, method, **how
    )
    return ask_windows(f"rolling-{name}", array, reaches, question, is_one=is_one)


@lru_cache(maxsize=64)  # a small image takes less time than checking what is asked
def _asked(
    _types: Any,
    source: np.dtype[Any],
    shape: tuple[int, ...],
    name: str,
    q: Any,
    method: str | Method,
    *,
    reaches: tuple[Halo, ...] | RowWindows,
    least: int,
    omits: bool,
    is_whole: bool,
    percent: bool = False,
    scale: float | str = 1.0,
) -> tuple[tuple[Halo, ...] | RowWindows, WindowQuestion | None, bool]:
    """Check what a method asks: return how far windows reach, the question, and if it is one."""
    if not isinstance(reaches, RowWindows):
        reaches = tuple(map(Halo.within, reaches, shape))
        least = min(least, frame_of(reaches).n + 1)  # which no window has
    method = method if isinstance(method, Method) else check_method(method)
    shares, is_scalar = probabilities(q, 100 if percent else 1)
    is_one = is_scalar or name == "iqr"
    if name == "count":
        return reaches, None, is_one
    is_spread = name in ("mad", "iqr")
    if is_spread and source.kind in ("mM" if name == "mad" else "bmM"):
        raise TypeError(
            f"{name} needs numbers, not {source}: pass x.astype('int64'), if none is NaT"
        )
    result = dtype = result_dtype(source, method, weak_q=is_weak(q), q_dtype=precision_of(q))
    if name == "iqr" and source.kind == "f" and not method.discrete:
        dtype = np.dtype(np.float64)  # the difference of its quantiles is rounded once
    factor = 1.0
    if is_spread:
        result = source.newbyteorder("=") if source.kind == "f" else np.dtype(np.float64)
        about_scale = (NORMAL_MAD, result) if name == "mad" else (NORMAL_IQR, np.dtype(np.float64))
        factor = scale_factor(scale, *about_scale)
    may_lack = (
        not is_whole
        or isinstance(reaches, RowWindows)
        or least > frame_of(reaches).n
        or any(
            reach.mode is None and (least > 1 or min(reach.before, reach.after) < 0)
            for reach in reaches
            if reach != Halo(0, 0, reach.step)
        )
    )
    if may_lack and result.kind in "bui":
        result = np.dtype(np.float64)
    about = tuple(shares.tolist()), method.name, omits, dtype if name == "mad" else source, dtype
    how: dict[str, Any] = {"deviates": name == "mad", "is_gap": name == "iqr", "scale": factor}
    return reaches, WindowQuestion(*about, result, least=least, **how), is_one


# --- Windows along axes ---------------------------------------------------------------------------


def _reach(
    size: int, is_centred: bool, step: Any, boundary: str | None, closed: str | None
) -> Halo:
    """Find how far windows reach along an axis."""
    if boundary not in (None, *MODES):
        raise ValueError(f"boundary must be None or one of {', '.join(MODES)}, not {boundary!r}")
    if closed not in tuple(CLOSED):
        raise ValueError(f'closed must be "right", "left", "both" or "neither", not {closed!r}')
    _check_positive(step, "step")
    earlier, later = CLOSED[closed]
    after = (size - 1) // 2 if is_centred else 0
    reach = Halo(size - 1 - after + earlier, after + later, int(step), boundary)
    if reach.size < 1:
        raise ValueError(
            'window must be at least 2 with closed="neither": a window of 1 would be empty'
        )
    return reach


def _sizes(window: Window, axis: Axis, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes that windows reach along, and how far."""
    check_no_offset(window)
    if isinstance(window, Mapping):
        if axis is not None:
            raise ValueError(
                "axis must not be given with a dict of windows, whose keys are the axes: leave out "
                "axis"
            )
        axis, window = tuple(window), tuple(window.values())
    sizes = tuple(window) if isinstance(window, Sequence) else (window,)
    if axis is None:
        if not isinstance(window, Sequence) and ndim != 1:
            raise ValueError(
                f"x has {ndim} dimensions: pass axis=, or a dict of windows by axis, such as {{0: "
                "5}"
            )
        axis = tuple(range(ndim - len(sizes), ndim))
    given = axes_in_order(axis, ndim)
    if len(sizes) != len(given):
        raise ValueError(
            f"window has {len(sizes)} sizes, and axis {len(given)} axes: pass a size for each axis"
        )
    for size in sizes:
        _check_positive(size, "window")
    return given, tuple(int(size) for size in sizes)


def check_no_offset(window: Any) -> None:
    """Raise for a window, or a dict of windows, that is a time offset of pandas."""
    for size in window.values() if isinstance(window, Mapping) else (window,):
        if isinstance(size, str):
            raise TypeError(
                f"window must be a number of elements, not {size!r}: pass for example 7 for seven "
                "days of daily data"
            )


def _check_positive(value: Any, name: str) -> None:
    """Raise for a value that is no integer, or less than 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
