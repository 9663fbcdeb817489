"""The rank filters of images by their names in ``scipy.ndimage``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dask_gpuselect.arguments import (
    Axis,
    as_array,
    as_integer,
    axes_in_order,
    plain_types,
    public,
    same_kind,
)
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.engine.halos import Halo
from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.interpolation import no_quantiles_of
from dask_gpuselect.maths.ranks import METHODS, Applied
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.windows.questions import WindowQuestion, ask_windows, each_axis, frame_of

MODES = {
    "reflect": "reflect",
    "grid-mirror": "reflect",
    "mirror": "mirror",
    "nearest": "nearest",
    "wrap": "wrap",
    "grid-wrap": "wrap",
    "constant": None,
    "grid-constant": None,
}
Sizes = int | Sequence[int] | None


@same_kind
@public("x")
def rank_filter(
    x: Any,
    rank: int,
    size: Sizes = None,
    footprint: Any = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axis = None,
    nan: str = "propagate",
) -> Any:
    """Exact rank filter of a dask array: the element of one rank in the window of each element.

    Parameters
    ----------
    x : dask array or array_like
        Of any kind that `quantile` takes, any number of dimensions and chunks of known sizes.
    rank : int
        Position in the sorted window: 0 is the smallest element, -1 the largest.
    size : int or tuple of int, optional
        Size of the window: one number for all `axes`, or one for each.
    footprint : array of bool, optional
        Shape of the window, instead of `size`: elements where it is True are used.
    mode : str or sequence of str, default "reflect"
        How the array is extended beyond its ends, as in ``scipy.ndimage``: "reflect", "constant",
        "nearest", "mirror" or "wrap", or one of their names that begin with "grid-". One mode for
        all `axes`, or one for each.
    cval : scalar, default 0.0
        Value beyond the ends for the mode "constant".
    origin : int or sequence of int, default 0
        Shift of the window: positive numbers move it towards the beginning of the axis.
    axes : int or tuple of int, optional
        Axes of the window; all of them by default. The first size, mode, origin and axis of
        `footprint` are those of the first one, and so on.
    nan : {"propagate", "omit"}, default "propagate"
        "propagate": the answer of a window with NaN is NaN. "omit": NaN are left out. If n of the m
        elements of a window are left, the answer is the one of rank
        ``round(rank * (n - 1) / (m - 1))`` among them, or NaN if n is 0.

    Returns
    -------
    dask array, or an array like `x`
        The shape, chunks and dtype are those of `x`.

    Raises
    ------
    TypeError
        For arrays that `quantile` does not take, and for ranks, sizes and origins that are not
        integers.
    RuntimeError
        If neither `size` nor `footprint` is given; if the number of sizes, modes or origins is not
        the number of axes; for a rank that is not in the window. SciPy raises this type too.
    ValueError
        For a size below 1, or one that reaches more than 2**20 elements beyond the ends and farther
        than `x` is long; for an origin outside the window, a `cval` that is no scalar of the dtype
        of `x`, an unknown mode, and unknown chunk sizes.

    See Also
    --------
    median_filter : The upper median of each window.
    percentile_filter : A percentile of each window.
    rolling : Any quantiles of moving windows, by interpolation too.

    Notes
    -----
    Without NaN, the answer equals that of ``scipy.ndimage.rank_filter``, which is not defined for
    NaN. -0.0 and 0.0 count as equal, and the answer is 0.0. Reads and memory are those of
    `rolling`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.windows import rank_filter
    >>> rank_filter(da.from_array([4, 1, 3, 9, 2], chunks=2), 0, size=3).compute()
    array([1, 1, 1, 2, 2])
    """
    own = as_integer(rank, "rank")
    return _ask("rank-filter", x, own, size, footprint, mode, cval, origin, axes, nan)


@same_kind
@documented_like(rank_filter)
@public("x")
def percentile_filter(
    x: Any,
    percentile: float,
    size: Sizes = None,
    footprint: Any = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axis = None,
    nan: str = "propagate",
) -> Any:
    """Exact percentile filter of a dask array: an element of the window of each element.

    Parameters
    ----------
    {x}
    percentile : float
        From 0 to 100. Negative numbers count from 100: -10 means 90. The answer is the element of
        rank ``int(n * percentile / 100)`` among the n elements of the window, or the last, as in
        SciPy. With ``nan="omit"``, n is the number of elements that are not NaN.
    {size}
    {footprint}
    {mode}
    {cval}
    {origin}
    {axes}
    nan : {"propagate", "omit"}, default "propagate"
        "propagate": the answer of a window with NaN is NaN. "omit": NaN are left out.

    {Returns}

    {Raises}

    See Also
    --------
    median_filter : The upper median of each window.
    rank_filter : An element of each window by its rank.
    rolling : Any quantiles of moving windows, by interpolation too.

    Notes
    -----
    Without NaN, the answer equals that of ``scipy.ndimage.percentile_filter``, which is not defined
    for NaN. Reads and memory are those of `rolling`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.windows import percentile_filter
    >>> percentile_filter(da.from_array([4, 1, 3, 9, 2], chunks=2), 100, size=3).compute()
    array([4, 4, 9, 9, 9])
    """
    if not -100 <= percentile <= 100:
        raise RuntimeError(f"percentile must be from -100 to 100, not {percentile}")
    share = float(percentile + 100.0 if percentile < 0 else percentile)
    return _ask("percentile-filter", x, share, size, footprint, mode, cval, origin, axes, nan)


@same_kind
@documented_like(percentile_filter)
@public("x")
def median_filter(
    x: Any,
    size: Sizes = None,
    footprint: Any = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axis = None,
    nan: str = "propagate",
) -> Any:
    """Exact median filter of a dask array: the upper middle element of the window of each element.

    Parameters
    ----------
    {x}
    {size}
    {footprint}
    {mode}
    {cval}
    {origin}
    {axes}
    {nan}

    {Returns}

    {Raises}

    See Also
    --------
    percentile_filter : A percentile of each window.
    rank_filter : An element of each window by its rank.
    rolling : Any quantiles of moving windows, by interpolation too.

    Notes
    -----
    Without NaN, the answer equals that of ``scipy.ndimage.median_filter``, which is not defined for
    NaN. If a window has an even number of elements, such as 4, it is the upper one of the two in
    the middle; `rolling` returns their mean. Reads and memory are those of `rolling`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.windows import median_filter
    >>> median_filter(da.from_array([4, 1, 3, 9, 2], chunks=2), size=3).compute()
    array([4, 3, 3, 3, 2])
    """
    return _ask("median-filter", x, None, size, footprint, mode, cval, origin, axes, nan)


def _ask(name: str, x: Any, *given: Any) -> Any:
    """Check the arguments of a filter, and ask for the element of a rank of each window.

    The arguments are those of `rank_filter`. The rank is an int, a percentage as a float, or None
    for the median.
    """
    x = as_array(x)
    rank, size, footprint, *others = given
    marks = None
    if type(footprint) is np.ndarray and footprint.dtype.kind in "bui":
        marks = footprint.shape, footprint.astype(bool).tobytes()
        footprint = None
    own = rank, size, footprint, *others
    types = plain_types(*own)
    asked = _asked.__wrapped__ if types is None else _asked
    reaches, places, question, fill = asked(types, numpy_dtype(x), x.ndim, marks, *own)
    return ask_windows(name, x, reaches, question, footprint=places, fill=fill)


@lru_cache(maxsize=64)  # a small image takes less time than checking what is asked
def _asked(
    _types: Any,
    dtype: np.dtype[Any],
    ndim: int,
    known: tuple[tuple[int, ...], bytes] | None,
    *given: Any,
) -> tuple[tuple[Halo, ...], tuple[bool, ...] | None, WindowQuestion, Any]:
    """Check the arguments of a filter; `known` are the shape and the marks of a plain footprint.

    Return how far its windows reach, which of their places count, what is asked of them, and what
    is beyond the ends.
    """
    rank, size, footprint, mode, cval, origin, axes, nan = given
    source = dtype.newbyteorder("=")
    if message := no_quantiles_of(source):
        raise TypeError(message)
    if not ndim:
        raise ValueError("x has no dimensions: pass an array of at least one")
    if nan not in ("propagate", "omit"):
        raise ValueError(f'nan must be "propagate" or "omit", not {nan!r}')
    marks = None if footprint is None else np.asarray(footprint, bool)
    if known is not None:
        marks = np.frombuffer(known[1], bool).reshape(known[0])
    along = axes_in_order(range(ndim) if axes is None else axes, ndim)
    if marks is None and size is None:
        raise RuntimeError("no footprint or filter size provided: pass size= or footprint=")
    if marks is not None and marks.ndim != len(along):
        raise RuntimeError(
            f"footprint.ndim ({marks.ndim}) must match len(axes) ({len(along)}): pass axes="
        )
    own = {"size": size if marks is None else marks.shape, "mode": mode, "origin": origin}
    about = (each_axis(value, along, name, RuntimeError) for name, value in own.items())
    reaches = [Halo(0, 0)] * ndim
    for axis, *each in zip(along, *about, strict=True):
        reaches[axis] = _reach(*each)
    if marks is not None and not marks.any():
        raise ValueError("All-zero footprint is not supported: pass one with a True element")
    if marks is not None:
        marks = marks.transpose(np.argsort(along))
    places = None if marks is None or marks.all() else tuple(marks.ravel().tolist())
    n, is_percentage = frame_of(reaches, places).n, isinstance(rank, float)
    if isinstance(rank, int) and not -n <= rank < n:
        raise RuntimeError(
            f"rank not within filter footprint size: it must be from {-n} to {n - 1}, not {rank}"
        )
    how = METHODS["lower"].name, nan == "omit", source, source, source
    # Caches tell questions apart by `is_percentage`, because 10 equals 10.0.
    position = Applied(_rank_among, (rank, n, is_percentage))
    question = WindowQuestion((0.0,), *how, position=position)
    return tuple(reaches), places, question, _fill(cval, source)


def _rank_among(
    rank: int | float | None, size: int, is_percentage: bool, n: IntArray, q: FloatArray
) -> FloatArray:
    """Compute the rank of an element among n, as ``scipy.ndimage`` counts it.

    `rank` is a rank among the `size` elements of a whole window, from the end if it is negative; or
    a percentage; None is the upper one in the middle.
    """
    if rank is None:
        among: Any = n // 2
    elif is_percentage:
        among = n - 1 if rank == 100 else n * rank / 100.0
    else:
        among = np.rint(rank % size * (n - 1) / max(size - 1, 1))
    return np.broadcast_arrays(among, q)[0].astype(np.float64)


def _fill(cval: Any, dtype: np.dtype[Any]) -> Any:
    """Return the value beyond the ends as an element of the array, or raise."""
    try:
        return np.asarray(cval).astype(dtype).reshape(())[()]
    except (OverflowError, TypeError, ValueError):
        raise ValueError(
            f"cval must be a scalar that fits the elements of x, of dtype {dtype}, not {cval!r}"
        ) from None


def _reach(size: Any, mode: str, origin: Any) -> Halo:
    """Find how far windows reach along an axis."""
    n, shift = as_integer(size, "size"), as_integer(origin, "origin")
    if n < 1:
        raise ValueError(f"size must be 1 or more, not {n}")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    before = n // 2 + shift
    if not 0 <= before < n:
        raise ValueError(
            f"invalid origin {shift}: it must be from {-(n // 2)} to "
            f"{(n - 1) // 2} for a window of {n}"
        )
    return Halo(before, n - 1 - before, 1, MODES[mode])
