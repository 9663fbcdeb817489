"""Conversion of a user's labels to the number of the group of every element."""

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
from dask_gpuselect.arrays import agree, is_array, to_host, usual
from dask_gpuselect.engine.asking import ask_once
from dask_gpuselect.engine.expressions import as_source, is_lazy_array
from dask_gpuselect.engine.groups import Grouping
from dask_gpuselect.engine.source import DaskArray, elemwise, itself, map_blocks
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.labels import Labels, as_objects, together, union

EMPTY = np.empty(0, np.int64)


# --- Axes of labels -------------------------------------------------------------------------------


def laid_out(by: Any, shape: tuple[int, ...], axes: tuple[int, ...], *, is_axis_given: bool) -> Any:
    """Give labels the axes of the data, of size 1 where they do not differ.

    Raises
    ------
    ValueError
        For labels whose shape does not fit the data.
    """
    given, wanted = tuple(by.shape), tuple(shape[axis] for axis in axes)
    if not given:
        raise ValueError(
            "by must be an array with a label for each element, not a single value: pass the "
            'labels, such as df["month"] or times.month; names work only in '
            'df.exact.groupby("month") and, for xarray, a.exact.groupby("time.month")'
        )
    if len(given) == 1 and not is_axis_given and len(shape) > 1:
        raise ValueError(
            f"by is one-dimensional, and the data have shape {shape}: pass axis=, the axis of the "
            "data that the labels are along"
        )
    if agree(given, wanted):
        return by[tuple(slice(None) if axis in axes else None for axis in range(len(shape)))]
    full = (1,) * (len(shape) - len(given)) + given
    if len(full) == len(shape) and len(given) > 1 and _broadcasts(full, shape):
        return by[(None,) * (len(shape) - len(given))]
    raise ValueError(
        f"by has shape {given}: pass labels of shape {wanted}, the size of the data along axis "
        f"{axes[0] if len(axes) == 1 else axes}, or labels that broadcast to the data, {shape}"
    )


def _broadcasts(full: tuple[Any, ...], shape: tuple[Any, ...]) -> bool:
    """Return whether a shape broadcasts to another, as far as they are known."""
    return all(n == 1 or agree((n,), (size,)) for n, size in zip(full, shape, strict=True))


# --- Labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelKind:
    """One kind of labels, such as the months or the stations.

    Parameters
    ----------
    labels : array or dask array
        Masked where they are missing, if their dtype has no missing value.
    categories : ndarray, optional
        The names of groups by number, if the labels are numbers of categories.
    """

    labels: Any
    categories: Labels | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the names of groups."""
        dtype: np.dtype[Any] = (self.labels if self.categories is None else self.categories).dtype
        return dtype

    def known(self, called: Labels) -> Labels:
        """Return the labels of groups of some names; -1 for a name that is no category."""
        if self.categories is None:
            return called
        return kernels.labels.codes_among(called, self.categories)  # type: ignore[no-any-return]

    @property
    def is_plain(self) -> bool:
        """Whether labels can accompany the data as they are, rather than as group numbers."""
        is_masked = isinstance(getattr(self.labels, "_meta", self.labels), np.ma.MaskedArray)
        return not is_masked and self.labels.dtype.kind != "O"


def is_column(by: Any) -> bool:
    """Return whether labels are a column or an index of pandas, or a lazy one of dask."""
    pandas, lazy = sys.modules.get("pandas"), sys.modules.get("dask.dataframe")
    if pandas is None:
        return False
    known = (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    return isinstance(by, known) or (lazy is not None and isinstance(by, lazy.Series | lazy.Index))


def labels_of_each_kind(by: Any) -> list[Any]:
    """Return the labels of each kind, from a tuple or an index of several levels."""
    if isinstance(by, tuple):
        return list(by)
    if is_column(by) and hasattr(by, "get_level_values") and by.nlevels > 1:
        return [by.get_level_values(level) for level in range(by.nlevels)]
    return [by]


def as_kind(by: Any) -> LabelKind:
    """Convert labels as a user gives them."""
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
    """Convert NumPy's strings of any length to objects, if some may be missing."""
    may_miss = labels.dtype.kind == "T" and hasattr(labels.dtype, "na_object")
    return labels.astype(object) if may_miss else labels


def _listed_labels(labels: Any) -> Labels:
    """Convert listed labels to an array, as objects if not all of them are strings.

    NumPy would convert other objects beside strings to strings, such as NaN to 'nan'.
    """
    array = np.asarray(labels)
    if array.dtype.kind not in "SU" or hasattr(labels, "dtype"):
        return array
    objects = np.asarray(labels, object)
    return array if all(isinstance(each, str | bytes) for each in objects.flat) else objects


def grouping_by_labels(kinds: Sequence[LabelKind], groups: Any) -> tuple[Grouping, Any]:
    """Return the groups of elements by their labels, and the names of the groups.

    Parameters
    ----------
    kinds : sequence of LabelKind
        With the axes of the data: see `laid_out`. Groups are combinations of labels if there are
        several.
    groups : sequence or None
        The names of the wanted groups, in this order.
    """
    for kind in kinds:
        _check_dtype(kind.labels.dtype)
    is_lazy = any(isinstance(kind.labels, DaskArray) for kind in kinds)
    given = kinds[0].labels if len(kinds) == 1 else _together(kinds, is_lazy=is_lazy)
    if groups is not None:
        names, shown = _wanted(groups, kinds)
    elif is_lazy:
        return _lazy_groups(given, kinds)
    else:
        names = kernels.labels.distinct(given)
        shown = _called(names, [kind.categories for kind in kinds])
        shown = shown if len(kinds) == 1 else _as_tuples(shown)
    if not is_lazy:
        return Grouping(kernels.labels.codes_among(given, names), len(names)), shown
    how = {"names": names, "dtype": np.int32, "meta": np.empty((0,) * given.ndim, np.int32)}
    return Grouping(map_blocks(kernels.labels.codes_among, given, **how), len(names)), shown


def _distinct(chunk: Any, dtype: np.dtype[Any]) -> Labels:
    names: Labels = kernels.labels.distinct(chunk)
    return names


def _lazy_groups(given: DaskArray, kinds: Sequence[LabelKind]) -> tuple[Grouping, DaskArray]:
    """Return the groups of lazy labels and their names, which are found while computing."""
    found = ask_once(given, _distinct, union, "group-labels")
    about = {"new_axis": 0, "chunks": ((math.nan,),), "meta": np.empty(0, given.dtype)}
    names: DaskArray = map_blocks(itself, found, dtype=given.dtype, **about)
    grouping = Grouping(given, math.nan, names=names, most=_most_labels(given.dtype))
    if not all(kind.is_plain for kind in kinds):
        grouping = grouping.numbered
    if all(kind.categories is None for kind in kinds):
        return grouping, names
    categories = [kind.categories for kind in kinds]
    meta = _called(np.empty(0, given.dtype), categories)
    how: dict[str, Any] = {"categories": categories, "dtype": meta.dtype, "meta": meta}
    return grouping, map_blocks(_called, names, **how)


def _called(names: Labels, categories: Sequence[Labels | None]) -> Labels:
    """Return the names of groups of known labels; those of several kinds of labels as fields."""
    if len(categories) > 1:
        fields = zip(names.dtype.names or (), categories, strict=True)
        return together([_called(names[field], [each]) for field, each in fields])
    (own,) = categories
    return names if own is None else own[names]


def _as_tuples(names: Labels) -> list[tuple[Any, ...]]:
    """Return names with fields as tuples.

    Dates stay NumPy's, because Python's have no nanoseconds.
    """
    parts = [_as_list(names[field]) for field in names.dtype.names or ()]
    return list(zip(*parts, strict=True))


def _as_list(names: Labels) -> list[Any]:
    """Return names as a list of Python's objects; dates stay NumPy's."""
    return list(names) if names.dtype.kind in "mM" else names.tolist()


def _most_labels(dtype: np.dtype[Any]) -> float:
    """Return how many different labels a dtype can have."""
    if dtype.kind == "b":
        return 2
    return 2.0 ** (8 * dtype.itemsize) if dtype.kind in "iu" else math.inf


def _together(kinds: Sequence[LabelKind], *, is_lazy: bool) -> Any:
    """Combine labels of several kinds to one array with a field for each."""
    labels = [kind.labels for kind in kinds]
    if not is_lazy:
        return _together_on_host(*labels)
    metas = [getattr(each, "_meta", each) for each in labels]
    meta = together([_on_host(each)[(slice(0),) * each.ndim] for each in metas])
    return elemwise(_together_on_host, *labels, dtype=meta.dtype)


def _together_on_host(*labels: Any) -> Labels:
    """Combine labels of several kinds on the host."""
    return together([_on_host(each) for each in labels])


def _on_host(labels: Any) -> Labels:
    """Return labels as a NumPy array, which keeps its mask."""
    host: Labels = labels if isinstance(labels, np.ndarray) else to_host(labels)
    return host


def _wanted(groups: Any, kinds: Sequence[LabelKind]) -> tuple[Labels, Any]:
    """Return the labels of the wanted groups, checked, and their names for the user."""
    if isinstance(groups, Sized):  # a range may be longer than memory
        check_most(len(groups), "the number of groups")
    if len(kinds) == 1:
        (kind,) = kinds
        names: Any = _names(groups, kind.dtype)
        _check_distinct(_as_list(names))
        return kind.known(names), names
    names = [_parts(each, len(kinds)) for each in groups]
    _check_distinct(names)
    columns = zip(*names, strict=True) if names else [()] * len(kinds)
    pairs = zip(columns, kinds, strict=True)
    return together([kind.known(_names(part, kind.dtype)) for part, kind in pairs]), names


def _parts(name: Any, n: int) -> tuple[Any, ...]:
    """Return the label of each kind of a group."""
    if isinstance(name, str | bytes) or not isinstance(name, Iterable):
        raise TypeError(f"groups must be tuples of {n} labels, one of each kind, not {name!r}")
    parts = tuple(name)
    if len(parts) != n:
        raise ValueError(f"groups must be tuples of {n} labels, one of each kind, not {name!r}")
    return parts


# By the kind of a dtype: the word for such labels, and an example.
LABEL_WORDS = {
    **dict.fromkeys("biuf", ("numbers", "0")),
    "M": ("dates", 'numpy.datetime64("2025-01-31")'),
    "m": ("time differences", 'numpy.timedelta64(1, "D")'),
    "S": ("bytes", 'b"a"'),
    **dict.fromkeys("UT", ("strings", '"a"')),
    "O": ("objects", '"a"'),
}


def _check_dtype(dtype: np.dtype[Any], name: str = "labels") -> None:
    """Raise unless labels can have this dtype."""
    if dtype.kind not in LABEL_WORDS:
        raise TypeError(f"{name} must be numbers, bools, strings or dates, not {dtype}")


def _names(groups: Any, dtype: np.dtype[Any]) -> Labels:
    """Convert names of groups to an array, or raise if labels of the dtype cannot have them."""
    if dtype.kind == "O":
        return as_objects(groups)
    names = _listed_labels(groups)
    if names.dtype.kind == "O":  # pandas has strings as objects
        names = _listed_labels(names.tolist())
    if names.ndim != 1:
        raise ValueError(f"groups must be one-dimensional, not of shape {names.shape}")
    if not names.size:
        return np.empty(0, dtype)
    if dtype.kind in "mM" and names.dtype.kind == "O":
        names = np.array([_as_moment(each) for each in groups])
    _check_dtype(names.dtype, "groups")
    (wanted, example), (word, _) = LABEL_WORDS[dtype.kind], LABEL_WORDS[names.dtype.kind]
    if word != wanted:
        raise TypeError(
            f"groups must be {wanted}, as the labels, which have dtype {dtype}, not {word}: type "
            f"for example groups=[{example}]"
        )
    return names


def _as_moment(value: Any) -> Any:
    """Convert a date or time difference of Python or pandas to NumPy's."""
    for name in ("to_datetime64", "to_timedelta64"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, timedelta):
        return np.timedelta64(value)
    return np.datetime64(value) if isinstance(value, date) else value


def _check_distinct(names: Sequence[Hashable]) -> None:
    """Raise if a group is named twice."""
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise ValueError(f"groups must be distinct, and {twice!r} occurs twice")


# --- Windows --------------------------------------------------------------------------------------


def grouping_by_windows(
    windows: Mapping[Any, Any], groups: Any, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[Grouping, Any]:
    """Return the groups whose elements are given by indices along an axis, and their names.

    `shape` is that of the data.
    """
    if len(axes) != 1:
        raise ValueError(
            "by is a dict of indices along one axis: pass axis=, the number of that axis"
        )
    n = shape[axes[0]]
    if math.isnan(n):
        raise ValueError(
            "by is a dict of indices, and the axis has chunks of unknown sizes: type "
            "x.compute_chunk_sizes() first"
        )
    wanted = list(windows) if groups is None else list(groups)
    _check_distinct(wanted)
    places_of_each = tuple(_places(windows.get(name, ()), name, n) for name in wanted)
    names = np.asarray(wanted)
    places = np.arange(n).reshape(tuple(n if i in axes else 1 for i in range(len(shape))))
    return Grouping(places, len(wanted), places_of_each), names if names.ndim == 1 else wanted


def _places(indices: Any, name: Any, n: int) -> IntArray:
    """Return the indices of a group as ascending distinct integers from 0."""
    if isinstance(indices, slice):
        indices = np.arange(n)[indices]
    elif not isinstance(indices, Iterable):
        raise TypeError(f"by[{name!r}] must be a sequence of indices or a slice, not {indices!r}")
    given = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if given.size == 0:
        return EMPTY
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise TypeError(
            f"by[{name!r}] must be integers in one dimension, not of dtype "
            f"{given.dtype} and shape {given.shape}"
        )
    places = given.astype(np.int64)
    if places.min() < -n or places.max() >= n:
        raise IndexError(
            f"by[{name!r}] has indices from {places.min()} to {places.max()}, and the axis has "
            f"size {n}"
        )
    places = np.where(places < 0, places + n, places)
    return places if (places[1:] > places[:-1]).all() else np.unique(places)
