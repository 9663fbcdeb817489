"""From what a user says of groups to the number of the group of every element."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.engine.groups import Grouping
from dask_gpuselect.engine.source import DaskArray, map_blocks
from dask_gpuselect.maths.cuts import IntArray

Labels = NDArray[Any]
Flags = NDArray[np.bool_]


# --- Where labels lie -----------------------------------------------------------------------------


def laid_out(by: Any, shape: tuple[int, ...], axes: tuple[int, ...], *, is_axis_given: bool) -> Any:
    """Labels in the shape of the reduced axes, or of size 1 along some of them, of data of some
    shape.

    Raises
    ------
    ValueError
        For labels of another shape, and for those that differ along an axis that is not reduced.
    """
    given, wanted = tuple(by.shape), tuple(shape[axis] for axis in axes)
    if len(given) == 1 and not is_axis_given and len(shape) > 1:
        raise ValueError(
            f"by is one-dimensional, and the data are of shape {shape}: axis must say along which "
            "of its axes the labels are"
        )
    if given == wanted:
        return by
    if len(given) <= len(shape):
        full = (1,) * (len(shape) - len(given)) + given
        if all(n in (1, size) for n, size in zip(full, shape, strict=True)) and len(given) > 1:
            differs = [i for i, n in enumerate(full) if n > 1 and i not in axes]
            if differs:
                raise ValueError(
                    f"by has labels that differ along axis {differs[0]}, which is not reduced: "
                    "each lane has to have the same"
                )
            return by.reshape(tuple(full[axis] for axis in axes))
    raise ValueError(
        f"by has labels of shape {given}, which fit neither the data, of shape {shape}, nor their "
        f"axes {axes}, of shape {wanted}"
    )


# --- Labels ---------------------------------------------------------------------------------------


def grouping_by_labels(labels: Sequence[Any], groups: Any) -> tuple[Grouping, Any]:
    """The groups of elements of one label each, or of one for each of several kinds, and what the
    groups are called.

    Parameters
    ----------
    labels : sequence of array
        See `laid_out`.
    groups : sequence or None
        What the groups are called that are wanted, in this order.
    """
    if len(labels) > 1:
        return _combined(labels, groups)
    (given,) = labels
    if not isinstance(given, DaskArray):
        codes, names = numbered(given, groups)
        return Grouping(codes, len(names)), names
    if groups is None:
        raise ValueError("by is lazy: groups must say which labels there are")
    names = _names(groups)
    codes = map_blocks(partial(_codes_among, names=names), given, dtype=np.int64, meta=EMPTY)
    return Grouping(codes, len(names)), names


EMPTY = np.empty(0, np.int64)


def _codes_among(labels: Any, names: Labels) -> IntArray:
    return numbered(to_host(labels), names)[0]


def numbered(labels: Labels, groups: Any) -> tuple[IntArray, Labels]:
    """The number of the group of each label, -1 for none, and what the groups are called: all
    labels but NaN and NaT, ascending, unless that is said."""
    is_none = _is_missing(labels)
    if groups is None:
        check_labels(labels)
        names, inverse = np.unique(labels[~is_none], return_inverse=True)
        codes = np.full(labels.shape, -1)
        codes[~is_none] = inverse
        return codes, names
    names = _names(groups)
    ordered = np.sort(names)
    if not (names.size and labels.size):
        return np.full(labels.shape, -1), names
    place = np.minimum(np.searchsorted(ordered, labels), len(names) - 1)
    codes = np.argsort(names, kind="stable")[place]
    return np.where((ordered[place] == labels) & ~is_none, codes, -1), names


def _names(groups: Any) -> Labels:
    """What groups are called, checked."""
    names = np.asarray(groups)
    if names.ndim != 1:
        raise ValueError(f"groups must be one-dimensional, not of shape {names.shape}")
    if names.dtype.kind not in KINDS:
        raise TypeError(f"groups must be {KINDS_SAID}, not {names.dtype}")
    values, times = np.unique(names, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"groups must be distinct, and {values[times > 1][0]!r} is there twice")
    return names


KINDS = "biufmMSUT"
KINDS_SAID = "numbers, bools, strings or dates"


def check_labels(labels: Labels) -> None:
    """Raise for labels that are measurements rather than labels."""
    if labels.dtype.kind not in KINDS:
        raise TypeError(f"labels must be {KINDS_SAID}, not {labels.dtype}")
    if labels.dtype.kind == "f":
        some = labels[np.isfinite(labels)]
        if (some != np.floor(some)).any():
            raise ValueError(
                "the labels are floats with fractions: groups must say which of them are wanted; "
                "numpy.digitize makes bins of them"
            )


def _is_missing(labels: Labels) -> Flags:
    """NaN and NaT, which are in no group."""
    if labels.dtype.kind == "f":
        return np.asarray(np.isnan(labels))
    if labels.dtype.kind in "mM":
        return np.asarray(np.isnat(labels))
    return np.zeros(labels.shape, np.bool_)


def _combined(labels: Sequence[Any], groups: Any) -> tuple[Grouping, list[tuple[Any, ...]]]:
    """The groups of combinations of labels that are there, in the order of the first, then of the
    second."""
    if any(isinstance(each, DaskArray) for each in labels):
        raise TypeError("by is lazy: labels of several kinds must be known, so compute them first")
    shape = np.broadcast_shapes(*(each.shape for each in labels))
    found = [numbered(np.broadcast_to(each, shape), None) for each in labels]
    sizes = [len(names) for _, names in found]
    is_none = np.any([codes < 0 for codes, _ in found], axis=0)
    if 0 in sizes:
        present, parts = EMPTY, tuple(EMPTY for _ in sizes)
        codes = np.full(is_none.shape, -1)
    else:
        together = np.ravel_multi_index([np.maximum(codes, 0) for codes, _ in found], sizes)
        present, inverse = np.unique(together[~is_none], return_inverse=True)
        codes = np.full(is_none.shape, -1)
        codes[~is_none] = inverse
        parts = np.unravel_index(present, sizes)
    each = zip(*(names[at] for (_, names), at in zip(found, parts, strict=True)), strict=True)
    names = list(each)
    if groups is None:
        return Grouping(codes, len(names)), names
    wanted = [tuple(each) for each in groups]
    _check_distinct(wanted)
    place = {name: i for i, name in enumerate(wanted)}
    number = np.array([*(place.get(name, -1) for name in names), -1])
    return Grouping(number[codes], len(wanted)), wanted


def _check_distinct(names: Sequence[Hashable]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"groups must be distinct, and {twice!r} is there twice")


# --- Windows --------------------------------------------------------------------------------------


def grouping_by_windows(
    windows: Mapping[Any, Iterable[int]], groups: Any, shape: tuple[int, ...]
) -> tuple[Grouping, Any]:
    """The groups whose elements are given by their indices along the reduced axis."""
    if len(shape) != 1:
        raise ValueError("indices of groups are along one axis: axis must say along which")
    (n,) = shape
    if math.isnan(n):
        raise ValueError("the axis has chunks of unknown sizes: x.compute_chunk_sizes() finds them")
    wanted = list(windows) if groups is None else list(groups)
    _check_distinct(wanted)
    found = tuple(_places(windows.get(name, ()), name, n) for name in wanted)
    names = np.asarray(wanted)
    return Grouping(np.arange(n), len(wanted), found), names if names.ndim == 1 else wanted


def _places(indices: Iterable[int], name: Any, n: int) -> IntArray:
    given = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if given.size == 0:
        return EMPTY
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise TypeError(f"the group {name!r} must be indices: integers in one dimension")
    places = given.astype(np.int64)
    if places.min() < -n or places.max() >= n:
        raise IndexError(f"the group {name!r} has indices outside of an axis of size {n}")
    return np.unique(np.where(places < 0, places + n, places))
