"""Compile kernels in advance, for example while a container image is built.

Type ``python -m dask_gpuselect.warm float32 float64``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

from dask_gpuselect.kernels import compiling, cpu
from dask_gpuselect.maths.keys import selection_dtype

__all__ = ["SUBJECTS", "warm"]

_ELEMENTS = (
    "draws",
    "fingerprints",
    "moments",
    "rulers",
    "selection",
    "spans",
    "word_counts",
)
_SORTED = frozenset({"row_networks"})
_LANES = (
    "lane_ends",
    "lane_passes",
    "lane_nearest",
    "trimmed",
    *_SORTED,
)
_WINDOWS = frozenset(
    {
        "bits",
        "windows",
        "window_blocks",
        "window_columns",
        "window_floats",
        "window_networks",
        "window_rows",
    }
)

SUBJECTS: Mapping[str, frozenset[str]] = {
    "quantiles": frozenset({*_ELEMENTS, "groups"}),
    "axis": frozenset({*_LANES, "fingerprints", "moments"}),
    "boxes": frozenset({*_ELEMENTS, *_LANES, "groups"}),
    "weights": frozenset(
        {*_ELEMENTS, "weighing", "products", "lane_ends", "weighed_lanes", *_SORTED}
    ),
    "groups": frozenset({*_ELEMENTS, *_LANES, "groups"}),
    "sorting": frozenset({"ordering", "bits", "fingerprints", "word_counts"}),
    "strategies": frozenset({"measures", *_ELEMENTS}),
    "regression": frozenset({"residuals", *_ELEMENTS}),
    "neighbors": frozenset({"distances"}),
    "windows": _WINDOWS,
}
"""For each subject, the modules of `kernels.cpu` that have its kernels."""

Progress = Callable[[int, int, str], object]


def warm(
    dtypes: Iterable[Any] = ("float32", "float64"),
    subjects: Iterable[str] = tuple(SUBJECTS),
    *,
    progress: Progress | None = None,
) -> None:
    """Compile the kernels for NumPy chunks of some dtypes, and cache them on disk.

    The call returns when all kernels are compiled. After it, no function of this package compiles
    anything for these dtypes, in this process or in a later one, but for the comparisons of a
    moving window, some hundredths of a second for each size of it. Without it, the first calls
    with large arrays wait for the kernels that they need.

    The kernels are cached in the first of these folders that is writable: the folder in the
    environment variable ``NUMBA_CACHE_DIR``, ``__pycache__`` beside the package, and a folder of
    the user (on Linux ``~/.cache/numba``).

    Parameters
    ----------
    dtypes : dtype or iterable of dtypes, optional
        The dtypes of the arrays that will be passed to functions of this package.
    subjects : str or iterable of str, optional
        Any of "quantiles", "axis", "boxes", "weights", "groups", "sorting", "strategies",
        "regression", "neighbors" and "windows"; all by default.
    progress : callable, optional
        Called as ``progress(done, total, name)`` after each kernel.

    Raises
    ------
    ValueError
        For an unknown subject.
    TypeError
        For a dtype that is not a number, a bool, a date or a time difference.

    Notes
    -----
    A dtype takes one to two minutes for all subjects, and less than a second if all kernels are on
    disk already. `quantile_bins`, `mad` and other functions that follow from order statistics
    belong to "quantiles" and, along an axis, to "axis".

    Examples
    --------
    >>> import dask_gpuselect
    >>> dask_gpuselect.warm(["float64"], ["neighbors"])
    """
    chosen = [subjects] if isinstance(subjects, str) else list(subjects)
    unknown = [subject for subject in chosen if subject not in SUBJECTS]
    if unknown:
        raise ValueError(
            f"subjects must be among {', '.join(map(repr, SUBJECTS))}, and {unknown[0]!r} is none "
            "of them"
        )
    given = [dtypes] if isinstance(dtypes, str | np.dtype | type) else dtypes
    wanted = _kernels([_dtype(each) for each in given], chosen)
    with compiling.logged_together():
        for done, (name, build) in enumerate(wanted.items(), 1):
            build()
            if progress is not None:
                progress(done, len(wanted), name)


def _dtype(given: Any) -> np.dtype[Any]:
    """Return a dtype, or raise if there are no kernels for it."""
    dtype: np.dtype[Any] = np.dtype(given)
    if dtype.kind not in "biufmM" or selection_dtype(dtype).itemsize > 8:
        raise TypeError(
            f"there are no kernels for {dtype}: dtypes must be bool, integers, floats of at most "
            "64 bits, datetime64 or timedelta64"
        )
    return dtype


def _kernels(
    dtypes: Iterable[np.dtype[Any]], subjects: Iterable[str]
) -> dict[str, Callable[[], compiling.Kernel]]:
    """Return a function for each kernel that compiles it, by the kernel's name."""
    for each in iter_modules(cpu.__path__):
        import_module(f"{cpu.__name__}.{each.name}")  # which registers its kernels
    modules = frozenset[str]().union(*(SUBJECTS[subject] for subject in subjects))
    kernels = {}
    for dtype in dtypes:
        for of, some in _compared(dtype):
            chosen = modules if some is None else modules & some
            for kernel, build in compiling.kernels_for(of, chosen):
                name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__} of {of}"
                kernels[name] = build
    return kernels


_WORDS = frozenset({"groups", "ordering", "selection", "word_counts"})
_SORTING = frozenset({"ordering"})
_OF_DEVIATIONS = frozenset(
    {
        "draws",
        "lane_passes",
        "lane_nearest",
        "moments",
        "residuals",
        "rulers",
        "spans",
        "window_networks",
    }
)


def _compared(dtype: np.dtype[Any]) -> Iterator[tuple[np.dtype[Any], frozenset[str] | None]]:
    """Yield the dtypes in which kernels compare elements of a dtype, with the kernels' modules.

    The modules are None for all of them.
    """
    selected = selection_dtype(dtype)
    yield selected, None
    size = selected.itemsize
    if size <= 2:
        yield np.dtype(f"u{size}"), _WORDS | _WINDOWS
        yield np.dtype(f"i{size}"), _SORTED
        yield np.dtype(np.int32), frozenset({"lane_passes"})
    else:
        yield np.dtype(f"u{size}"), _SORTING | _WINDOWS
        yield np.dtype(f"i{size}"), _SORTING | _SORTED
    if selected != np.float64:
        yield np.dtype(np.float64), _OF_DEVIATIONS
    if dtype.kind == "b":
        yield dtype, frozenset({"distances"})
    if dtype == np.float16:
        yield np.dtype(np.uint16), _WINDOWS
    if dtype.kind in "biu" and size < 8:
        yield np.dtype(np.uint64), _WINDOWS  # distances from medians
        yield np.dtype(f"u{2 * size}"), frozenset({"window_blocks"})  # masked elements
        for floats in (np.float32, np.float64)[size // 4 :]:
            yield np.dtype(floats), frozenset({"window_floats"})
    yield np.dtype(np.uint8), frozenset({"windows"})  # marks
    yield np.dtype(np.int64), frozenset({"groups"}) | _SORTING  # places
    yield np.dtype(np.uint64), _SORTING
    for word in ("u1", "u2", "u4", "u8"):  # words of elements, masks, weights and labels
        yield np.dtype(word), frozenset({"fingerprints"})
