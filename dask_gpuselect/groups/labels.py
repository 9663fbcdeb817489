"""From what a user says of groups to the number of the group of every element."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_gpuselect import kernels
from dask_gpuselect.arguments import check_most
from dask_gpuselect.arrays import is_array, to_host, usual
from dask_gpuselect.engine.asking import ask_once
from dask_gpuselect.engine.expressions import as_source, is_lazy_array
from dask_gpuselect.engine.groups import Grouping
from dask_gpuselect.engine.questions import OneLoadQuestion
from dask_gpuselect.engine.source import DaskArray, elemwise, map_blocks
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.labels import Labels, as_objects, together, union

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


@dataclass(frozen=True, eq=False)
class LabelKind:
    """One kind of labels.

    Parameters
    ----------
    labels : array or dask array
        Masked where they are missing, if their dtype cannot say that.
    categories : ndarray, optional
        What the labels stand for, if they are numbers of these.
    """

    labels: Any
    categories: Labels | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what groups are called."""
        found: np.dtype[Any] = (self.labels if self.categories is None else self.categories).dtype
        return found

    def known(self, called: Labels) -> Labels:
        """The labels of groups that are called so. No label is -1."""
        if self.categories is None:
            return called
        return kernels.codes_among(called, self.categories)  # type: ignore[no-any-return]

    @property
    def is_plain(self) -> bool:
        """Whether labels can go with the data as they are, rather than their groups' numbers."""
        is_masked = isinstance(getattr(self.labels, "_meta", self.labels), np.ma.MaskedArray)
        return not is_masked and self.labels.dtype.kind != "O"


def is_column(by: Any) -> bool:
    """Whether labels are a column or an index, of pandas or lazy ones of dask."""
    pandas, lazy = sys.modules.get("pandas"), sys.modules.get("dask.dataframe")
    if pandas is None:
        return False
    known = (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    return isinstance(by, known) or (lazy is not None and isinstance(by, lazy.Series | lazy.Index))


def labels_of_each_kind(by: Any) -> list[Any]:
    """The labels of each kind, of what may be a tuple of them or an index of several levels."""
    if isinstance(by, tuple):
        return list(by)
    if is_column(by) and hasattr(by, "get_level_values") and by.nlevels > 1:
        return [by.get_level_values(level) for level in range(by.nlevels)]
    return [by]


def as_kind(by: Any) -> LabelKind:
    """Labels as a user says them."""
    if is_lazy_array(by):
        return LabelKind(_without_null_strings(as_source(by)))
    if is_column(by):
        from dask_gpuselect.engine import frames  # which imports pandas

        lazy = is_dask_collection(by)
        return LabelKind(*(frames.labels_as_array(by) if lazy else frames.labels_of(by)))
    if isinstance(by, np.ma.MaskedArray):
        return LabelKind(by)
    return LabelKind(_without_null_strings(usual(by) if is_array(by) else _listed_labels(by)))


def _without_null_strings(labels: Any) -> Any:
    """Labels as objects, if they are NumPy's strings of any length some of which may be missing."""
    may_miss = labels.dtype.kind == "T" and hasattr(labels.dtype, "na_object")
    return labels.astype(object) if may_miss else labels


def _listed_labels(labels: Any) -> Labels:
    """Labels as an array. NumPy makes strings of whatever is beside strings in a list, and 'nan' of
    NaN."""
    found = np.asarray(labels)
    if found.dtype.kind not in "SU" or hasattr(labels, "dtype"):
        return found
    objects = np.asarray(labels, object)
    return found if all(isinstance(each, str | bytes) for each in objects.flat) else objects


def grouping_by_labels(kinds: Sequence[LabelKind], groups: Any) -> tuple[Grouping, Any]:
    """The groups of elements of one label each, or of one for each of several kinds, and what the
    groups are called.

    Parameters
    ----------
    kinds : sequence of Kind
        Laid out: see `laid_out`.
    groups : sequence or None
        What the groups are called that are wanted, in this order.
    """
    for kind in kinds:
        _check_dtype(kind.labels.dtype)
    is_lazy = any(isinstance(kind.labels, DaskArray) for kind in kinds)
    given = kinds[0].labels if len(kinds) == 1 else _together(kinds, is_lazy=is_lazy)
    if groups is not None:
        names, told = _wanted(groups, kinds)
    elif is_lazy:
        return _found_later(given, kinds)
    else:
        names = kernels.distinct_labels(given)
        told = _called(names, [kind.categories for kind in kinds])
        told = told if len(kinds) == 1 else _as_tuples(told)
    if not is_lazy:
        return Grouping(kernels.codes_among(given, names), len(names)), told
    how = {"names": names, "dtype": np.int32, "meta": np.empty((0,) * given.ndim, np.int32)}
    return Grouping(map_blocks(kernels.codes_among, given, **how), len(names)), told


def _found_later(given: DaskArray, kinds: Sequence[LabelKind]) -> tuple[Grouping, DaskArray]:
    """The groups of lazy labels, of which nobody says which there are, and what they are called."""
    found = ask_once(given, DistinctLabels(given.dtype), "group-labels")
    grouping = Grouping(given, math.nan, names=found, most=_most_labels(given.dtype))
    if not all(kind.is_plain for kind in kinds):
        grouping = grouping.numbered
    if all(kind.categories is None for kind in kinds):
        return grouping, found
    categories = [kind.categories for kind in kinds]
    meta = _called(np.empty(0, given.dtype), categories)
    how: dict[str, Any] = {"categories": categories, "dtype": meta.dtype, "meta": meta}
    return grouping, map_blocks(_called, found, **how)


def _called(names: Labels, categories: Sequence[Labels | None]) -> Labels:
    """What groups are called whose labels are known; of several kinds of labels by fields."""
    if len(categories) > 1:
        fields = zip(names.dtype.names or (), categories, strict=True)
        return together([_called(names[field], [each]) for field, each in fields])
    (own,) = categories
    return names if own is None else own[names]


def _as_tuples(names: Labels) -> list[tuple[Any, ...]]:
    """The same as tuples. Dates stay NumPy's, of which Python has no nanoseconds."""
    parts = [_as_list(names[field]) for field in names.dtype.names or ()]
    return list(zip(*parts, strict=True))


def _as_list(names: Labels) -> list[Any]:
    return list(names) if names.dtype.kind in "mM" else names.tolist()


def _most_labels(dtype: np.dtype[Any]) -> float:
    """How many different labels of a dtype there can be."""
    if dtype.kind == "b":
        return 2
    return 2.0 ** (8 * dtype.itemsize) if dtype.kind in "iu" else math.inf


def _together(kinds: Sequence[LabelKind], *, is_lazy: bool) -> Any:
    """Labels of several kinds as one, of as many parts."""
    labels = [kind.labels for kind in kinds]
    if not is_lazy:
        return _together_on_host(*labels)
    metas = [getattr(each, "_meta", each) for each in labels]
    meta = together([_on_host(each)[(slice(0),) * each.ndim] for each in metas])
    return elemwise(_together_on_host, *labels, dtype=meta.dtype)


def _together_on_host(*labels: Any) -> Labels:
    return together([_on_host(each) for each in labels])


def _on_host(labels: Any) -> Labels:
    """Labels as a NumPy array, which keeps its mask."""
    found: Labels = labels if isinstance(labels, np.ndarray) else to_host(labels)
    return found


def _wanted(groups: Any, kinds: Sequence[LabelKind]) -> tuple[Labels, Any]:
    """The labels of the groups that are wanted, checked, and as they are told."""
    if isinstance(groups, Sized):  # a range may be longer than memory
        check_most(len(groups), "the number of groups")
    if len(kinds) == 1:
        (kind,) = kinds
        told: Any = _names(groups, kind.dtype)
        _check_distinct(_as_list(told))
        return kind.known(told), told
    told = [_parts(each, len(kinds)) for each in groups]
    _check_distinct(told)
    columns = zip(*told, strict=True) if told else [()] * len(kinds)
    pairs = zip(columns, kinds, strict=True)
    return together([kind.known(_names(part, kind.dtype)) for part, kind in pairs]), told


def _parts(name: Any, n: int) -> tuple[Any, ...]:
    """The label of each kind of a group."""
    if isinstance(name, str | bytes) or not isinstance(name, Iterable):
        raise TypeError(f"groups must be tuples of {n} labels, one of each kind, and not {name!r}")
    found = tuple(name)
    if len(found) != n:
        raise ValueError(f"groups must be of {n} labels each, one of each kind, and not {name!r}")
    return found


# What labels are by the kinds of their dtypes, and such a label.
SAID = {
    **dict.fromkeys("biuf", ("numbers", "0")),
    "M": ("dates", 'numpy.datetime64("2025-01-31")'),
    "m": ("time differences", 'numpy.timedelta64(1, "D")'),
    "S": ("bytes", 'b"a"'),
    **dict.fromkeys("UT", ("strings", '"a"')),
    "O": ("objects", '"a"'),
}


def _check_dtype(dtype: np.dtype[Any], what: str = "labels") -> None:
    if dtype.kind not in SAID:
        raise TypeError(f"{what} must be numbers, bools, strings or dates, not {dtype}")


def _names(groups: Any, dtype: np.dtype[Any]) -> Labels:
    """Names of groups as an array, if they can be labels of a dtype."""
    if dtype.kind == "O":
        return as_objects(groups)
    found = _listed_labels(groups)
    if found.dtype.kind == "O":  # of pandas, which has strings so
        found = _listed_labels(found.tolist())
    if found.ndim != 1:
        raise ValueError(f"groups must be one-dimensional, not of shape {found.shape}")
    if not found.size:
        return np.empty(0, dtype)
    if dtype.kind in "mM" and found.dtype.kind == "O":
        found = np.array([_as_moment(each) for each in groups])
    _check_dtype(found.dtype, "groups")
    (wanted, such), (said, _) = SAID[dtype.kind], SAID[found.dtype.kind]
    if said != wanted:
        raise TypeError(
            f"groups must be {wanted}, as the labels are, of dtype {dtype}, and not {said}: "
            f"groups=[{such}], for instance"
        )
    return found


def _as_moment(value: Any) -> Any:
    """A date or time difference of Python or pandas as NumPy's."""
    for name in ("to_datetime64", "to_timedelta64"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, timedelta):
        return np.timedelta64(value)
    return np.datetime64(value) if isinstance(value, date) else value


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
        (twice, _), *_ = Counter(names).most_common(1)
        raise ValueError(f"groups must be distinct, and {twice!r} is there twice")


# --- Windows --------------------------------------------------------------------------------------


def grouping_by_windows(
    windows: Mapping[Any, Any], groups: Any, shape: tuple[int, ...], axes: tuple[int, ...]
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


def _places(indices: Any, name: Any, n: int) -> IntArray:
    if isinstance(indices, slice):
        indices = np.arange(n)[indices]
    elif not isinstance(indices, Iterable):
        raise TypeError(f"the group {name!r} must be a sequence of indices, or a slice")
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
