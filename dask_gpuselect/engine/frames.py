"""Columns of lazy frames as dask arrays, and answers about them as lazy frames.

This module contains what depends on dask.dataframe and on pandas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from dask.base import get_name_from_key, tokenize
from dask.core import flatten
from dask.dataframe.dispatch import concat
from dask.dataframe.utils import has_known_categories
from numpy.typing import NDArray

from dask_gpuselect.arrays import masked
from dask_gpuselect.engine.collection import tasks_of
from dask_gpuselect.engine.expressions import LowLevel
from dask_gpuselect.engine.graphs import objects
from dask_gpuselect.engine.group_tables import Keyed
from dask_gpuselect.engine.key_classes import classes
from dask_gpuselect.engine.shuffles import needed, shared_by_shuffles
from dask_gpuselect.engine.source import (
    Alias,
    DaskArray,
    DoneOnce,
    Graph,
    GraphNode,
    Key,
    List,
    Step,
    Task,
    TaskRef,
    convert_legacy_graph,
    extended,
    is_future,
    is_reduction,
)
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.quiet import quietly

Tasks = dict[Key, GraphNode]

# --- The kinds of columns -------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column whose elements have an order.

    Parameters
    ----------
    place : int or None
        Position in the frame; None for a Series.
    kind : dtype
        Dtype of the column, of pandas or NumPy.
    dtype : dtype
        NumPy dtype of its elements.
    """

    place: int | None
    kind: Any
    dtype: np.dtype[Any]

    def check_numbers(self) -> None:
        """Raise for a column of bool, dates or time differences, which have no box plots."""
        if self.dtype.kind not in "iuf":
            raise TypeError(
                f"box plots need integers or floats, not {self.kind}: leave out the column, or "
                "convert it first, column.astype('int64')"
            )

    @classmethod
    def of(cls, meta: Any, place: int | None = None) -> Column:
        """Describe the column that an empty one stands for.

        Raises
        ------
        TypeError
            For strings, categories, objects, periods, decimals, complex and sparse numbers, and for
            columns of cuDF.
        """
        check_pandas(meta)
        if (dtype := _elements(meta.dtype)) is None:
            name = "this column" if meta.name is None else f"column {meta.name!r}"
            raise TypeError(
                f"cannot compute quantiles of {name} (dtype {meta.dtype}): it must have numbers or "
                "dates; for a DataFrame pass numeric_only=True"
            )
        return cls(place, meta.dtype, dtype)

    def answered(self, values: NDArray[Any] | None, n: int) -> pd.Series:
        """Return some of n answers as a Series of pandas' dtype; all are missing if None is given.

        Numbers that are not elements of their column are float64. pandas makes some of these int64
        where they are whole, and float32 where a float32 column has a NaN.
        """
        kind = self.kind
        if values is None:
            if not isinstance(kind, np.dtype):
                return pd.Series([None] * n, dtype=kind)
            return pd.Series([None] * n, dtype=kind if kind.kind in "fmM" else np.float64)
        if isinstance(kind, pd.DatetimeTZDtype):
            return pd.Series(values).dt.tz_localize("UTC").dt.tz_convert(kind.tz)
        if isinstance(kind, np.dtype):
            return pd.Series(values)
        if values.dtype == self.dtype or (kind.kind == "f" and not _is_arrow(kind)):
            return pd.Series(values, dtype=kind)
        return pd.Series(values, dtype=float_kind(kind))


def float_kind(kind: Any) -> Any:
    """Return the dtype that pandas gives to floating-point statistics of a column."""
    if isinstance(kind, np.dtype):
        return np.dtype(np.float64)
    return pd.ArrowDtype(_arrow().float64()) if _is_arrow(kind) else pd.Float64Dtype()


def _elements(kind: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a column's elements; None if it has no order statistics."""
    if isinstance(kind, pd.DatetimeTZDtype):
        return np.dtype(f"M8[{kind.unit}]")
    if _is_arrow(kind):
        arrow, types = kind.pyarrow_dtype, _arrow().types
        if types.is_date32(arrow):  # pandas converts these to Python objects
            return np.dtype("M8[D]")
        is_known = (types.is_integer, types.is_floating, types.is_boolean)
        is_date = (types.is_timestamp, types.is_duration)
        dtype = kind.numpy_dtype if any(f(arrow) for f in (*is_known, *is_date)) else None
    else:
        dtype = kind if isinstance(kind, np.dtype) else getattr(kind, "numpy_dtype", None)
    is_ordered = dtype is not None and dtype.kind in "biufmM" and dtype.itemsize <= 8
    return dtype if is_ordered else None


def _is_arrow(kind: Any) -> bool:
    return isinstance(kind, pd.ArrowDtype)


def _arrow() -> Any:
    import pyarrow

    return pyarrow


def check_pandas(meta: Any) -> None:
    """Raise for a column or a frame of cuDF, given an empty one."""
    if type(meta).__module__.partition(".")[0] == "cudf":
        raise TypeError("frames of cuDF are not supported: type df.to_backend('pandas') first")


# --- Columns as arrays ----------------------------------------------------------------------------


def columns_as_arrays(
    frame: Any, wanted: Sequence[tuple[int | None, Callable[[Any], Any]]]
) -> list[Any]:
    """Return a one-dimensional dask array for each of some columns, made from its partitions.

    Parameters
    ----------
    frame : dask DataFrame or Series
        Only the wanted columns: all of its columns are read.
    wanted : sequence
        Pairs of a column's position in the frame (None for all of the frame) and a function that
        makes an array of one of its partitions, such as `elements`.

    Notes
    -----
    All arrays are made from the same tasks, those of the frame after dask's own optimization. So
    questions about several columns together load each partition once for all of them.
    """
    graph, keys, source = partitions_of(frame.optimize())
    arrays = []
    for place, take in wanted:
        name = f"column-{tokenize(keys, place, take)}"
        tasks = {
            (name, i): Task((name, i), _taken, TaskRef(key), place, take)
            for i, key in enumerate(keys)
        }
        meta = take(_at(frame._meta, place))
        unknown = ((np.nan,) * len(keys),)
        meta = meta if hasattr(meta, "dtype") else np.empty(0, object)
        arrays.append(DaskArray(extended(graph, name, tasks, {source}), name, unknown, meta=meta))
    return arrays


def elements(column: Any, dtype: np.dtype[Any]) -> Any:
    """Return the elements of a column: missing ones as NaN or NaT, or else left out."""
    if isinstance(column.dtype, np.dtype):  # no copy; the door checks the dtype
        return column.to_numpy() if len(column) else np.empty(0, dtype)
    if dtype.kind in "biu":
        return column.dropna().to_numpy(dtype=dtype)
    if dtype == np.dtype("M8[D]"):  # date32, which pandas does not convert to NumPy dates
        seconds = pd.ArrowDtype(_arrow().timestamp("s"))
        return column.astype(seconds).to_numpy(dtype="M8[s]").astype(dtype)
    if dtype.kind in "mM":
        return column.to_numpy(dtype=dtype)
    return column.to_numpy(dtype=dtype, na_value=np.nan)


def rows(column: Any, dtype: np.dtype[Any]) -> Any:
    """Return the elements of a column, row by row: missing ones as NaN or NaT, or else masked.

    The dtype of a bool column may be given as an integer.
    """
    is_masked = dtype.kind in "biu" and not isinstance(column.dtype, np.dtype)
    if not is_masked:
        is_bool = column.dtype == np.bool_
        return column.to_numpy(dtype=dtype) if is_bool else elements(column, dtype)
    is_gone = column.isna()
    present = column.fillna(False if column.dtype.kind == "b" else 0)
    return masked(present.to_numpy(dtype=dtype), is_gone.to_numpy(dtype=np.bool_))


def present(column: Any) -> NDArray[np.bool_]:
    """Return a mask of the elements of a column that are not missing."""
    is_present: NDArray[np.bool_] = column.notna().to_numpy(dtype=np.bool_)
    return is_present


def numbers_as_arrays(frame: Any, columns: Sequence[Column]) -> list[DaskArray]:
    """Return an array of numbers for each of some columns, without missing elements.

    Nullable integers become float64.

    Raises
    ------
    TypeError
        For columns that are of no numbers.
    """
    wanted = []
    for column in columns:
        column.check_numbers()
        is_masked = column.dtype.kind in "iu" and not isinstance(column.kind, np.dtype)
        dtype = np.dtype(np.float64) if is_masked else column.dtype
        wanted.append((column.place, partial(elements, dtype=dtype)))
    return columns_as_arrays(frame, wanted)


# --- Labels ---------------------------------------------------------------------------------------


def labels_of(column: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the labels in a column or index, and the categories if labels are category codes.

    Missing integers, bools and categories are masked.
    """
    column = pd.Series(column)
    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        return np.ma.MaskedArray(codes, codes < 0), np.ma.getdata(labels_of(kind.categories)[0])
    dtype = _elements(kind)
    has_zone = getattr(getattr(kind, "pyarrow_dtype", kind), "tz", None) is not None
    if dtype is None or has_zone:
        return column.to_numpy(dtype=object), None
    return rows(column, dtype), None


def labels_as_array(column: Any) -> tuple[DaskArray, NDArray[Any] | None]:
    """Return the labels in a lazy column or index as a dask array, and its known categories.

    Unknown categories are not converted to codes.
    """
    take, categories = labels_taken(column._meta)
    (labels,) = columns_as_arrays(column, [(None, take)])
    return labels, categories


def labels_taken(meta: Any) -> tuple[Callable[[Any], Any], NDArray[Any] | None]:
    """Return a function that takes the labels of a partition's column, and its known categories.

    `meta` is an empty column.
    """
    meta = pd.Series(meta)
    is_of_categories = isinstance(meta.dtype, pd.CategoricalDtype)
    is_known = is_of_categories and has_known_categories(meta)
    known = meta.dtype.categories if is_known else None
    as_objects = is_of_categories and not is_known
    take = partial(_labels_in, categories=known, as_objects=as_objects)
    return take, labels_of(meta)[1] if is_known else None


def _labels_in(column: Any, categories: Any, as_objects: bool) -> NDArray[Any]:
    """Return the labels in a partition, as codes of the categories if these are known."""
    column = pd.Series(column)
    if categories is None:
        return labels_of(column.astype(object) if as_objects else column)[0]
    if isinstance(column.dtype, pd.CategoricalDtype) and column.cat.categories.equals(categories):
        codes = column.cat.codes.to_numpy()
    else:
        codes = categories.get_indexer(column)
    if (codes[column.notna()] < 0).any():
        raise TypeError(
            "a partition has other categories than the meta of its column: type "
            "by.cat.as_unknown() or by.cat.as_known() first"
        )
    return np.ma.MaskedArray(codes, codes < 0)


# --- Keys of rows ---------------------------------------------------------------------------------

AT_ONCE = 1 << 22
"""Number of keys that are compared at a time, unless four times the known ones are more."""

KeyOrder = tuple[bool, bool]
"""Whether groups of keys ascend, or else come by appearance; and whether missing keys are dropped.

These are the arguments `sort` and `dropna` of pandas.
"""


@dataclass(frozen=True, eq=False)
class KeyNames:
    """The names of groups of rows: one key, or one row of keys, for each, in a pandas index.

    Parameters
    ----------
    index : pandas.Index
        Distinct keys; a MultiIndex if there are several in a row.
    how : KeyOrder
        How the keys are grouped.
    """

    index: Any
    how: KeyOrder

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        return int(self.index.memory_usage())

    def places(self, others: KeyNames) -> IntArray:
        """Return the position of each of `others` among these names, -1 for absent ones."""
        positions: IntArray = self.index.get_indexer(others.index).astype(np.int64)
        return positions

    @classmethod
    def union(cls, parts: Sequence[KeyNames]) -> KeyNames:
        """Return the distinct keys of all parts, in the order of answers.

        This takes a few parts at a time, so that no table has the keys of all.
        """
        first, *others = _that_add(parts)
        some, size = [first], 0
        for part in others:
            some.append(part)
            size += len(part)
            if size > max(AT_ONCE, 4 * len(some[0])):
                some, size = [cls._together(some)], 0
        return cls._together(some)

    @classmethod
    def _together(cls, parts: Sequence[KeyNames]) -> KeyNames:
        how = parts[0].how
        return cls(_grouped(_rows_of_all(parts), how).size().index, how)

    def take(self, places: IntArray) -> KeyNames:
        """Return the names at some positions."""
        some = self.index.take(places)
        if isinstance(some, pd.MultiIndex):  # its levels would keep all keys in memory
            some = some.remove_unused_levels()
        return KeyNames(some, self.how)

    def classes(self, n: int) -> NDArray[np.uint16]:
        """Return the class of each name, one of `n`: the same for equal names in every chunk."""
        return classes(self.index, n)

    @classmethod
    def joined(cls, parts: Sequence[KeyNames], order: IntArray) -> Keyed:
        """Return the names of all parts in the order of answers, and each name's new position.

        Parameters
        ----------
        parts : sequence of KeyNames
            Names that have none in common.
        order : ndarray of int64
            Order of first appearance of the names, as positions in the concatenated parts.
        """
        return _numbered(_rows_of_all(parts).take(order), parts[0].how)

    def hashes(self) -> NDArray[np.uint64]:
        """Return a hash of each name."""
        keys = self.index.to_frame(index=False)
        hashed: NDArray[np.uint64] = pd.util.hash_pandas_object(keys, index=False).to_numpy()
        return hashed


def _grouped(keys: Any, how: KeyOrder) -> Any:
    """Group the rows of a frame of keys with pandas."""
    sort, dropna = how
    return keys.groupby(list(keys.columns), sort=sort, dropna=dropna, observed=True)


def _numbered(keys: Any, how: KeyOrder) -> Keyed:
    """Return the group of each row of a frame of keys."""
    groups = _grouped(keys, how)
    codes = groups.ngroup().to_numpy()  # floats if some are missing
    codes = np.where(codes == codes, codes, -1).astype(np.int32)
    return Keyed(codes, KeyNames(groups.size().index, how))


def _that_add(parts: Sequence[KeyNames]) -> list[KeyNames]:
    """Return the parts that have keys, or whose dtypes occur in no part before.

    The dtypes of all parts decide the dtypes of the combined keys.
    """
    known: set[Any] = set()
    adding = []
    for part in parts:
        dtypes = tuple(getattr(part.index, "dtypes", [part.index.dtype]))
        if len(part) or dtypes not in known:
            adding.append(part)
        known.add(dtypes)
    return adding


def _rows_of_all(parts: Sequence[KeyNames]) -> Any:
    """Concatenate the keys of all parts.

    This takes one key at a time, because dask's `concat`, which knows categories that parts do not
    share, would move these keys behind the others.
    """
    tables = [part.index.to_frame(index=False) for part in parts]
    columns = [
        concat([table[[name]] for table in tables], ignore_index=True) for name in tables[0].columns
    ]
    return pd.concat(columns, axis=1)


def keyed(partition: Any, places: tuple[int, ...], how: KeyOrder) -> Keyed:
    """Group a partition's rows by the columns at some positions."""
    keys = pd.DataFrame({i: _as_key(partition.iloc[:, at]) for i, at in enumerate(places)})
    _, dropna = how
    numbered = _numbered(keys, (False, dropna))  # all groups are sorted later, together
    return Keyed(numbered.codes, KeyNames(numbered.names.index, how))


def _as_key(column: Any) -> Any:
    """Normalize a column to how keys are compared: 0.0 equals -0.0, which PyArrow tells apart."""
    is_of_floats = _is_arrow(column.dtype) and column.dtype.kind == "f"
    return column.mask((column == 0).fillna(False), 0.0) if is_of_floats else column


def _taken(partition: Any, place: int | None, take: Callable[[Any], Any]) -> Any:
    return take(_at(partition, place))


def _at(partition: Any, place: int | None) -> Any:
    return partition if place is None else partition.iloc[:, place]


def partitions_of(optimized: Any) -> tuple[Graph, list[Key], str]:
    """Return the graph of an optimized frame, the keys of its partitions, and their layer.

    A result that all partitions need, such as the mean in ``s - s.mean()``, is computed once for
    all loads, and so is a shuffle. If partitions are made from the same tasks as these, each load
    runs those tasks itself.
    """
    keys, given = list(flatten(optimized.__dask_keys__())), dict(optimized.__dask_graph__())
    name = f"frame-{tokenize(keys)}"
    futures = {key: value for key, value in given.items() if is_future(value)}
    tasks = {key: task for key, task in convert_legacy_graph(given).items() if key not in futures}
    shared = _shared(tasks, len(keys)) | shared_by_shuffles(tasks)
    graph, needs = Graph({}, {}), set[str]()
    if futures:
        graph, needs = extended(graph, f"{name}-futures", futures, set()), {f"{name}-futures"}
    if shared:
        once = DoneOnce(needed(tasks, shared))
        graph, needs = extended(graph, f"{name}-once", once, needs), needs | {f"{name}-once"}
    return extended(graph, name, needed(tasks, keys, shared), needs), keys, name


def _shared(tasks: Tasks, n: int) -> set[Key]:
    """Return the results of reductions, dask's or ours, that at least half of n partitions need.

    Nothing else is shared, because partitions may be large, and a partition may be made from
    several others.
    """
    users = Counter(need for task in tasks.values() for need in task.dependencies)
    often = (key for key, uses in users.items() if uses >= max(2, n / 2))
    return {key for key in often if key in tasks and _is_reduced(key, tasks)}


def _is_reduced(key: Key, tasks: Tasks) -> bool:
    """Return whether a task makes the result of a reduction, or is an alias of it."""
    task = tasks[key]
    own = task.target if isinstance(task, Alias) else key
    return is_reduction(get_name_from_key(own), tasks.get(own))


# --- Answers as frames ----------------------------------------------------------------------------


def lazily(
    answers: Sequence[DaskArray], finish: Callable[[list[Any]], Any], meta: Any, name: str
) -> Any:
    """Return the lazy Series, DataFrame or Scalar that a function makes from some answers.

    Parameters
    ----------
    answers : sequence of dask arrays
        Arrays of one object each.
    finish : callable
        Function from these objects to an object of pandas. Deterministically tokenizable.
    meta : object
        Empty result.
    name : str
        Prefix of the names of the result's tasks.
    """
    graph, keys = tasks_of(answers)
    own = f"{name}-{tokenize(keys, finish)}"
    references = List(*(TaskRef(key) for each in keys for key in each))
    tasks = {(own, 0): Task((own, 0), Step("reduce", quietly(finish)), references)}
    graph = extended(graph, own, tasks, {answer.name for answer in answers})
    made = LowLevel(objects(graph, own, (1,)))
    return dd.from_graph(made, meta, (None, None), made.keys_of_blocks, name)


def lazily_of(collections: Sequence[Any], finish: Callable[..., Any], meta: Any) -> Any:
    """Return the lazy DataFrame that a function makes from the results of some collections."""
    return dd.from_delayed([delayed(finish)(*collections)], meta=meta, verify_meta=False)
