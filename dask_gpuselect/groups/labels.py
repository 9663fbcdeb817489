"""From what a user says of groups to the number of the group of every element."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.arguments import check_most
from dask_gpuselect.arrays import to_host
from dask_gpuselect.engine.asking import ask_once
from dask_gpuselect.engine.groups import Grouping
from dask_gpuselect.engine.questions import OneLoadQuestion
from dask_gpuselect.engine.source import DaskArray, elemwise, map_blocks
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.labels import Labels, together, union

EMPTY = np.empty(0, np.int64)


# --- Where labels lie -----------------------------------------------------------------------------


def laid_out(by: Any, shape: tuple[int, ...], axes: tuple[int, ...], *, is_axis_given: bool) -> Any:
    """Labels with the axes of data of some shape, of size 1 along those where they do not differ.

    Raises
    ------
    ValueError
        For labels of another shape.
    """
    given, wanted = tuple(by.shape), tuple(shape[axis] for axis in axes)
    if len(given) == 1 and not is_axis_given and len(shape) > 1:
        raise ValueError(
            f"by is one-dimensional, and the data are of shape {shape}: axis must say along which "
            "of its axes the labels are"
        )
    if _fits(given, wanted):
        return by[tuple(slice(None) if axis in axes else None for axis in range(len(shape)))]
    full = (1,) * (len(shape) - len(given)) + given
    if len(full) == len(shape) and len(given) > 1 and _broadcasts(full, shape):
        return by[(None,) * (len(shape) - len(given))]
    raise ValueError(
        f"by has labels of shape {given}, which fit neither the data, of shape {shape}, nor their "
        f"axes {axes}, of shape {wanted}"
    )


def _fits(given: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Whether two shapes are equal as far as they are known."""
    return len(given) == len(wanted) and all(
        n == size or math.isnan(n) or math.isnan(size)
        for n, size in zip(given, wanted, strict=True)
    )


def _broadcasts(full: tuple[Any, ...], shape: tuple[Any, ...]) -> bool:
    return all(n == 1 or _fits((n,), (size,)) for n, size in zip(full, shape, strict=True))


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
    is_lazy = any(isinstance(each, DaskArray) for each in labels)
    kinds = tuple(each.dtype for each in labels)
    given = labels[0] if len(labels) == 1 else _together(labels, is_lazy=is_lazy)
    if groups is not None:
        names, told = _wanted(groups, kinds)
    elif is_lazy:
        _check_kinds(kinds)
        found = ask_once(given, DistinctLabels(given.dtype), "group-labels")
        return Grouping(given, math.nan, names=found, most=_most_labels(given.dtype)), found
    else:
        _check_kinds(kinds)
        names = kernels.distinct_labels(given)
        told = names if len(labels) == 1 else names.tolist()
    if not is_lazy:
        return Grouping(kernels.codes_among(given, names), len(names)), told
    how = {"names": names, "dtype": np.int32, "meta": np.empty(0, np.int32)}
    return Grouping(map_blocks(kernels.codes_among, given, **how), len(names)), told


def _most_labels(dtype: np.dtype[Any]) -> float:
    """How many different labels of a dtype there can be."""
    if dtype.kind == "b":
        return 2
    return 2.0 ** (8 * dtype.itemsize) if dtype.kind in "iu" else math.inf


def _together(labels: Sequence[Any], *, is_lazy: bool) -> Any:
    """Labels of several kinds as one, of as many parts."""
    if not is_lazy:
        return _together_on_host(*labels)
    meta = together([np.empty((0,) * each.ndim, each.dtype) for each in labels])
    return elemwise(_together_on_host, *labels, dtype=meta.dtype)


def _together_on_host(*labels: Any) -> Labels:
    return together([to_host(each) for each in labels])


def _wanted(groups: Any, kinds: Sequence[np.dtype[Any]]) -> tuple[Labels, Any]:
    """The labels of the groups that are wanted, checked, and as they are told."""
    if isinstance(groups, Sized):  # a range may be longer than memory
        check_most(len(groups), "the number of groups")
    if len(kinds) == 1:
        names = np.asarray(groups)
        if names.ndim != 1:
            raise ValueError(f"groups must be one-dimensional, not of shape {names.shape}")
        _check_kinds([names.dtype], "groups")
        told: Any = names
    else:
        told = [tuple(each) for each in groups]
        if any(len(each) != len(kinds) for each in told):
            raise ValueError(f"groups must be of {len(kinds)} labels each: one of each kind")
        parts = zip(*told, strict=True) if told else [()] * len(kinds)
        names = together([_as_kind(part, kind) for part, kind in zip(parts, kinds, strict=True)])
    values, times = np.unique(names, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"groups must be distinct, and {values[times > 1][0]!r} is there twice")
    return names, told


def _as_kind(labels: Sequence[Any], kind: np.dtype[Any]) -> Labels:
    """Labels as an array: of the dtype of others if there are none."""
    return np.asarray(labels) if len(labels) else np.empty(0, kind)


KINDS = "biufmMSUT"
KINDS_SAID = "numbers, bools, strings or dates"


def _check_kinds(kinds: Sequence[np.dtype[Any]], what: str = "labels") -> None:
    for kind in kinds:
        if kind.kind not in KINDS:
            hint = (
                ": numpy.asarray(x, dtype=str) makes strings of objects" if kind.kind == "O" else ""
            )
            raise TypeError(f"{what} must be {KINDS_SAID}, not {kind}{hint}")


@dataclass(frozen=True)
class DistinctLabels(OneLoadQuestion):
    """The labels that there are, ascending."""

    dtype: np.dtype[Any]

    def measure(self, chunk: Any, dtype: np.dtype[Any]) -> Labels:
        return kernels.distinct_labels(chunk)

    @staticmethod
    def merge(reports: Sequence[Labels]) -> Labels:
        return union(reports)

    def answer(self, report: Labels) -> Labels:
        return report

    def lazily(self, answer: DaskArray) -> DaskArray:
        found: DaskArray = map_blocks(
            _itself,
            answer,
            new_axis=0,
            chunks=((math.nan,),),
            dtype=self.dtype,
            meta=np.empty(0, self.dtype),
        )
        return found


def _itself(labels: Labels) -> Labels:
    return labels


def _check_distinct(names: Sequence[Hashable]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"groups must be distinct, and {twice!r} is there twice")


# --- Windows --------------------------------------------------------------------------------------


def grouping_by_windows(
    windows: Mapping[Any, Iterable[int]], groups: Any, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[Grouping, Any]:
    """The groups whose elements are given by their indices along the reduced axis of data of some
    shape."""
    if len(axes) != 1:
        raise ValueError("indices of groups are along one axis: axis must say along which")
    n = shape[axes[0]]
    if math.isnan(n):
        raise ValueError("the axis has chunks of unknown sizes: x.compute_chunk_sizes() finds them")
    wanted = list(windows) if groups is None else list(groups)
    _check_distinct(wanted)
    found = tuple(_places(windows.get(name, ()), name, n) for name in wanted)
    names = np.asarray(wanted)
    places = np.arange(n).reshape(tuple(n if i in axes else 1 for i in range(len(shape))))
    return Grouping(places, len(wanted), found), names if names.ndim == 1 else wanted


def _places(indices: Iterable[int], name: Any, n: int) -> IntArray:
    given = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if given.size == 0:
        return EMPTY
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise TypeError(f"the group {name!r} must be indices: integers in one dimension")
    places = given.astype(np.int64)
    if places.min() < -n or places.max() >= n:
        raise IndexError(f"the group {name!r} has indices outside of an axis of size {n}")
    places = np.where(places < 0, places + n, places)
    return places if (places[1:] > places[:-1]).all() else np.unique(places)
