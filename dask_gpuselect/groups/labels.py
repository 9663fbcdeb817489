"""From what a user says of groups to the number of the group of every element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.engine.groups import Grouping
from dask_gpuselect.maths.cuts import IntArray


def grouping_by_labels(
    labels: Sequence[NDArray[Any]], groups: Any, shape: tuple[int, ...]
) -> tuple[Grouping, Any]:
    """The groups of elements of one label each, or of several, and their labels.

    Parameters
    ----------
    labels : sequence of ndarray
        Each of `shape`. With several, a group is a combination of them that is there.
    groups : sequence, optional
        The labels of the groups that are wanted, in this order.
    shape : tuple of int
        Of the reduced axes.
    """
    flat = [np.asarray(each).reshape(-1) for each in labels]
    found = [_codes(each, None) for each in flat]
    if len(flat) == 1:
        codes, names = _codes(flat[0], groups)
        return Grouping(codes.reshape(shape), len(names)), names
    return _combined(found, groups, shape)


def _codes(labels: NDArray[Any], groups: Any) -> tuple[IntArray, NDArray[Any]]:
    """The number of each label among the groups, -1 for none, and the labels of the groups."""
    if groups is None:
        check_labels(labels)
        is_none = _is_missing(labels)
        names, inverse = np.unique(labels[~is_none], return_inverse=True)
        codes = np.full(len(labels), -1)
        codes[~is_none] = inverse
        return codes, names
    names = np.asarray(groups)
    if names.ndim != 1:
        raise ValueError(f"groups must be one-dimensional, not of shape {names.shape}")
    ordered, first, times = np.unique(names, return_index=True, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"groups must be distinct, and {ordered[times > 1][0]!r} is there twice")
    if not len(names) or not len(labels):
        return np.full(len(labels), -1), names
    place = np.minimum(np.searchsorted(ordered, labels), len(ordered) - 1)
    return np.where(ordered[place] == labels, first[place], -1), names


def check_labels(labels: NDArray[Any]) -> None:
    """Raise for labels that are measurements rather than labels."""
    if labels.dtype.kind == "f" and not (labels == np.floor(labels))[np.isfinite(labels)].all():
        raise ValueError(
            "labels are floats with fractions: groups says which of them are wanted, and "
            "numpy.digitize makes bins of them"
        )
    if labels.dtype.kind not in "biufmMSU":
        raise TypeError(f"labels must be integers, bools, strings or dates, not {labels.dtype}")


def _is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """NaN and NaT, which are in no group."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    return np.zeros(labels.shape, np.bool_)


def _combined(
    found: Sequence[tuple[IntArray, NDArray[Any]]], groups: Any, shape: tuple[int, ...]
) -> tuple[Grouping, list[tuple[Any, ...]]]:
    """The groups of combinations of labels, in the order of the first, then of the second."""
    sizes = [len(names) for _, names in found]
    is_none = np.any([codes < 0 for codes, _ in found], axis=0)
    together = np.ravel_multi_index([np.maximum(codes, 0) for codes, _ in found], sizes)
    present, inverse = np.unique(together[~is_none], return_inverse=True)
    codes = np.full(len(together), -1)
    codes[~is_none] = inverse
    parts = np.unravel_index(present, sizes)
    labels = zip(*(names[at] for (_, names), at in zip(found, parts, strict=True)), strict=True)
    names = [tuple(each) for each in labels]
    if groups is None:
        return Grouping(codes.reshape(shape), len(names)), names
    wanted = [tuple(each) for each in groups]
    if len(set(wanted)) < len(wanted):
        raise ValueError("groups must be distinct")
    place = {name: i for i, name in enumerate(wanted)}
    number = np.array([place.get(name, -1) for name in names] + [-1])
    return Grouping(number[codes].reshape(shape), len(wanted)), wanted


def grouping_by_windows(
    windows: Mapping[Any, Iterable[int]], groups: Any, n: int
) -> tuple[Grouping, NDArray[Any]]:
    """The groups whose elements are given by their indices along an axis of size `n`."""
    wanted = list(windows) if groups is None else list(groups)
    if len(set(wanted)) < len(wanted):
        raise ValueError("groups must be distinct")
    found = tuple(_places(windows.get(label, ()), label, n) for label in wanted)
    names = np.empty(len(wanted), object)
    names[:] = wanted
    plain = np.asarray(wanted)
    return Grouping(np.arange(n), len(wanted), found), plain if plain.ndim == 1 else names


def _places(indices: Iterable[int], label: Any, n: int) -> IntArray:
    given = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise TypeError(f"the group {label!r} must be indices, one-dimensional integers")
    places = given.astype(np.int64)
    if places.min() < -n or places.max() >= n:
        raise IndexError(f"the group {label!r} has indices outside of an axis of size {n}")
    return np.unique(np.where(places < 0, places + n, places))
