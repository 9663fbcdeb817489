"""The rank filters of images by their names in ``scipy.ndimage``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.arguments import Axis, as_array, public, reduced_axes, same_kind
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.engine.halos import Halo
from dask_gpuselect.maths.interpolation import no_quantiles_of
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.windows.asking import ask_windows, each_axis, frame_of
from dask_gpuselect.windows.questions import RankOf, WindowQuestion

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
        0 is the least element of a window, -1 the largest.
    size : int or tuple of int, optional
        Of the window, along all of `axes` or along each.
    footprint : array of bool, optional
        Which elements of the window count, instead of `size`.
    mode : str or sequence of str, default "reflect"
        What stands for elements beyond the ends, along all of `axes` or along each: "reflect",
        "constant", "nearest", "mirror" or "wrap", or their names that begin with "grid-".
    cval : scalar, default 0.0
        What is beyond the ends for the mode "constant".
    origin : int or sequence of int, default 0
        Positive numbers move the window towards the beginning.
    axes : int or tuple of int, optional
        The axes that the window lies along; all of them by default.
    nan : {"propagate", "omit"}, default "propagate"
        Whether NaN in a window makes its answer NaN, or is left out. Of the n valid elements of m
        then the one of rank ``round(rank (n - 1) / (m - 1))`` answers, NaN if there is none.

    Returns
    -------
    dask array, or an array like `x`
        Of its shape, chunks and dtype.

    Raises
    ------
    TypeError
        For arrays that `quantile` does not take.
    RuntimeError
        For neither a size nor a footprint, and for sizes, modes or origins that are not one for
        each axis; for a rank that no window has.
    ValueError
        For an origin outside of the window, a mode that is not listed, and chunks of unknown sizes.

    See Also
    --------
    median_filter : The upper median of each window.
    percentile_filter : A percentile of each window.
    rolling : Any quantiles of moving windows, by interpolation too.

    Notes
    -----
    Equal to ``scipy.ndimage.rank_filter`` where no element is NaN, for which that is not defined.
    Zeros of both signs count as equal, and are answered as +0.0. Loads and memory: as of `rolling`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.windows import rank_filter
    >>> rank_filter(da.from_array([4, 1, 3, 9, 2], chunks=2), 0, size=3).compute()
    array([1, 1, 1, 2, 2])
    """
    return _filtered("rank-filter", x, rank, size, footprint, mode, cval, origin, axes, nan)


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
        In [0, 100], or negative: counted from 100. The element of rank ``int(n * percentile /
        100)`` of n answers, as in SciPy; of any number for ``nan="omit"``.
    {size}
    {footprint}
    {mode}
    {cval}
    {origin}
    {axes}
    nan : {"propagate", "omit"}, default "propagate"
        Whether NaN in a window makes its answer NaN, or is left out.

    {Returns}

    {Raises}

    See Also
    --------
    median_filter : The upper median of each window.
    rank_filter : An element of each window by its rank.
    rolling : Any quantiles of moving windows, by interpolation too.

    Notes
    -----
    Equal to ``scipy.ndimage.percentile_filter`` where no element is NaN, for which that is not
    defined. Loads and memory: as of `rolling`.

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
    about = size, footprint, mode, cval, origin, axes, nan
    return _filtered("percentile-filter", x, share, *about)


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
    Equal to ``scipy.ndimage.median_filter`` where no element is NaN, for which that is not defined.
    Of an even number of elements, such as a window of 4, that is the upper one of the two in the
    middle; `rolling` has their mean. Loads and memory: as of `rolling`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.windows import median_filter
    >>> median_filter(da.from_array([4, 1, 3, 9, 2], chunks=2), size=3).compute()
    array([4, 3, 3, 3, 2])
    """
    return _filtered("median-filter", x, None, size, footprint, mode, cval, origin, axes, nan)


def _filtered(
    name: str,
    x: Any,
    rank: int | float | None,
    size: Sizes,
    footprint: Any,
    mode: str | Sequence[str],
    cval: float,
    origin: int | Sequence[int],
    axes: Axis,
    nan: str,
) -> Any:
    """Check the arguments of a filter, and ask its question.

    `rank` is an int, a percentage as a float, or None for the median.
    """
    x = as_array(x)
    source = numpy_dtype(x).newbyteorder("=")
    if message := no_quantiles_of(source):
        raise TypeError(message)
    if not x.ndim:
        raise ValueError("x has no dimensions: pass an array of at least one")
    if nan not in ("propagate", "omit"):
        raise ValueError(f'nan must be "propagate" or "omit", not {nan!r}')
    own = reduced_axes(axes, x.ndim)
    marks = None if footprint is None else np.asarray(footprint, bool)
    reaches = _reaches(x.ndim, own, size, marks, mode, origin)
    if marks is not None and not marks.any():
        raise ValueError("All-zero footprint is not supported.")
    places = None if marks is None or marks.all() else tuple(marks.ravel().tolist())
    n = frame_of(reaches, places).n
    wanted = RankOf((0.0,), METHODS["lower"].name, nan == "omit", source, source, rank=rank, size=n)
    question = WindowQuestion(wanted, source)
    fill = np.asarray(cval).astype(source)[()]
    return ask_windows(name, x, reaches, question, footprint=places, fill=fill)


def _reaches(
    ndim: int,
    axes: tuple[int, ...],
    size: Sizes,
    marks: Any,
    mode: str | Sequence[str],
    origin: int | Sequence[int],
) -> tuple[Halo, ...]:
    """Find how far windows reach along each axis of an array."""
    if marks is None and size is None:
        raise RuntimeError("no footprint or filter size provided: pass size= or footprint=")
    if marks is not None and marks.ndim != len(axes):
        raise RuntimeError(
            f"footprint.ndim ({marks.ndim}) must match len(axes) ({len(axes)}): pass axes="
        )
    given = {"size": size if marks is None else marks.shape, "mode": mode, "origin": origin}
    about = (each_axis(value, axes, name, RuntimeError) for name, value in given.items())
    found = [Halo(0, 0)] * ndim
    for axis, long, how, moved in zip(axes, *about, strict=True):
        n, shift = operator.index(long), operator.index(moved)
        if n < 1:
            raise ValueError(f"size must be 1 or more, not {n}")
        if how not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {how!r}")
        before = n // 2 + shift
        if not 0 <= before < n:
            raise ValueError(
                f"invalid origin {shift}: it must be from {-(n // 2)} to "
                f"{(n - 1) // 2} for a window of {n}"
            )
        found[axis] = Halo(before, n - 1 - before, 1, MODES[how])
    return tuple(found)
