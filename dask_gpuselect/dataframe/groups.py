"""Exact order statistics of the groups of a dask DataFrame's rows: ``df.exact.groupby(keys)``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from dask.dataframe.utils import meta_nonempty
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import as_accompanied, public
from dask_gpuselect.engine.frames import (
    Column,
    KeyOrder,
    columns_as_arrays,
    is_cudf,
    keyed,
    lazily,
    present,
    rows,
)
from dask_gpuselect.engine.group_tables import GroupedColumns, ask_counts, ask_table, table
from dask_gpuselect.engine.group_values import Named
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.ranks import MEDIAN, Method, check_method
from dask_gpuselect.quantiles.columns import ColumnQuantiles
from dask_gpuselect.quantiles.functions import probabilities

Of = Callable[[Any], Any]


class ExactGroupBy:
    """The groups of the rows of a dask DataFrame, made by ``df.exact.groupby(keys)``.

    ``groups["v"]`` and ``groups[["v", "w"]]`` name the columns that are asked about, as in pandas.
    By default these are all but the keys.

    Notes
    -----
    Loads: two of every partition for all columns and quantiles, and for the names of the groups; of
    the keys and the columns that are asked about alone, where the source can read these alone. No
    row moves to another partition, and a group may be larger than any. Nothing is computed by a
    call.

    Memory: a partition for each thread, and a copy of its columns. Of each group that has n rows in
    a partition come about sqrt(n) pivots, and as many candidates, for each column, and the group's
    key: of groups of which a partition has a row or two, all rows. Where such reports might exceed
    ``dask_gpuselect.root-limit`` (dask config; 1 GiB), if each partition were of dask's
    ``array.chunk-size``, up to 64 tasks look at them, each at the groups of some keys. What they
    find comes to one place: the keys, two numbers and a few sizes for each group, column and q.
    """

    def __init__(
        self, frame: Any, keys: Sequence[Hashable], order: KeyOrder, columns: Any = None
    ) -> None:
        self._frame, self._keys, self._order, self._columns = frame, tuple(keys), order, columns

    def __repr__(self) -> str:
        return f"<groups by {list(self._keys)} of {self._frame!r}>"

    @public()
    def __getitem__(self, columns: Any) -> ExactGroupBy:
        """The same groups, of one column or of several in a list."""
        if self._columns is not None:
            raise IndexError(f"the columns are chosen already: {self._columns!r}")
        chosen = ExactGroupBy(self._frame, self._keys, self._order, columns)
        chosen._by_pandas()  # which raises for a column that is not there
        return chosen

    @public()
    def quantile(
        self,
        q: ArrayLike = 0.5,
        interpolation: str = "linear",
        numeric_only: bool = False,
        method: str | None = None,
    ) -> Any:
        """Exact quantiles of every group, as pandas' ``groupby(...).quantile`` gives them.

        Parameters
        ----------
        q : float or 1-D array_like of floats, default 0.5
            In [0, 1].
        interpolation : str, default "linear"
            pandas' "linear", "lower", "higher", "midpoint" or "nearest", or another of the thirteen
            methods of ``numpy.quantile``.
        numeric_only : bool, default False
            Whether to leave out columns that are neither numbers nor bool.
        method : str, optional
            The same as `interpolation` by NumPy's word for it; it overrides `interpolation`.

        Returns
        -------
        dask Series or DataFrame
            A Series for one column that is chosen by its name, else a DataFrame; of one partition.
            Its index is that of the groups, for several q with q as a further level. Dtypes are
            those of pandas' groups. Missing elements are left out; without others the answer is
            missing.

        Raises
        ------
        TypeError
            At the call, for columns of strings, categories, objects and others without quantiles,
            and where pandas has none of groups: of bool and float16.
        ValueError
            At the call, for a q outside [0, 1], or an unknown method.
        ChunksChangedError
            While computing, if a partition differs between two loads.

        Notes
        -----
        Two loads of every partition, for all columns and q.

        Numbers are those of ``numpy.quantile`` of the group, which pandas' may miss by the last
        bits: it selects integers as float64. uint64 elements stay uint64 where pandas makes int64
        of them.
        """
        chosen = check_method(method or interpolation)
        given, is_scalar = probabilities(q)
        word = "lower" if chosen.discrete else "linear"

        def by_pandas(groups: Any) -> Any:
            how = {"numeric_only": True} if numeric_only else {}
            return groups.quantile(0.5 if is_scalar else [0.5], interpolation=word, **how)

        wanted = tuple(given.tolist())
        return self._asked(wanted, chosen, by_pandas, numeric_only, "quantile", is_scalar=is_scalar)

    @public()
    def median(self, numeric_only: bool = False) -> Any:
        """Exact median of every group, as pandas' ``groupby(...).median`` gives it.

        Parameters
        ----------
        numeric_only : bool, default False
            Whether to leave out columns that are neither numbers nor bool.

        Returns
        -------
        dask Series or DataFrame
            As of `quantile`, for one q. float16 and float32 keep their type.

        Raises
        ------
        TypeError, ChunksChangedError
            As `quantile` does; bool and float16 have medians.

        Notes
        -----
        Two loads of every partition, for all columns.
        """

        def by_pandas(groups: Any) -> Any:
            return groups.median(numeric_only=numeric_only)

        return self._asked((0.5,), MEDIAN, by_pandas, numeric_only, "median", is_scalar=True)

    @public()
    def count(self) -> Any:
        """How many elements of every group are not missing, as pandas' ``groupby(...).count``.

        Returns
        -------
        dask Series or DataFrame
            Of int64, for columns of any dtype; see `quantile`.

        Notes
        -----
        One load of every partition.
        """
        expected = self._by_pandas(lambda groups: groups.count())
        places, frame = self._answered(expected)
        rows_of = self._table(frame, [(place, present) for place in places])
        return self._lazily(ask_counts(rows_of, "group-count"), _counts, expected, frame, "count")

    def _asked(
        self,
        q: tuple[float, ...],
        method: Method,
        by_pandas: Of,
        numeric_only: bool,
        label: str,
        *,
        is_scalar: bool,
    ) -> Any:
        if not numeric_only:
            for name in self._chosen:
                Column.of(self._frame._meta[name])  # raises for what has no quantiles
        expected = self._by_pandas(by_pandas)
        places, frame = self._answered(expected)
        if not places:
            raise TypeError("there is no column of numbers to ask about")
        columns = [Column.of(frame._meta.iloc[:, place], place) for place in places]
        dtypes = [_as_numbers(column) for column in columns]
        questions = [ColumnQuantiles.of(q, method, dtype, skips_missing=True) for dtype in dtypes]
        rows_of = self._table(frame, list(zip(places, map(rows, dtypes), strict=True)))
        expected = _without_loss(expected, columns, method)
        answer = ask_table(rows_of, GroupedColumns(tuple(questions), tuple(dtypes)), label)
        finish = partial(
            _quantiles, columns=columns, q=None if is_scalar else q, is_chosen=method.discrete
        )
        return self._lazily(answer, finish, expected, frame, label)

    @property
    def _chosen(self) -> list[Hashable]:
        """The columns that are asked about."""
        if self._columns is None:
            return [name for name in self._frame.columns if name not in self._keys]
        return self._columns if isinstance(self._columns, list) else [self._columns]

    def _by_pandas(self, ask: Of = lambda groups: None) -> Any:
        """What pandas answers about a few typical rows: names, dtypes and levels, or its error."""
        groups = meta_nonempty(self._frame._meta).groupby(
            list(self._keys), sort=self._order.sort, dropna=self._order.dropna, observed=True
        )
        groups = groups if self._columns is None else groups[self._columns]
        try:
            return ask(groups)
        except TypeError as error:
            raise TypeError(f"pandas does not answer this of these groups: {error}") from error

    def _answered(self, expected: Any) -> tuple[list[int], Any]:
        """The places of the columns of an answer in the frame of these and the keys; the frame."""
        names = list(expected.columns) if expected.ndim == 2 else [self._columns]
        needed = list(dict.fromkeys([*self._keys, *names]))
        return [needed.index(name) for name in names], self._frame[needed]

    def _table(self, frame: Any, columns: Sequence[tuple[int, Of]]) -> DaskArray:
        """The keys and some columns, which are loaded together."""
        places = range(len(self._keys))
        arrays = columns_as_arrays(frame, [(None, keyed(places, self._order)), *columns])
        return table(arrays[0], [as_accompanied(array) for array in arrays[1:]])

    def _lazily(
        self, answer: DaskArray, values: Callable[..., Any], expected: Any, frame: Any, label: str
    ) -> Any:
        made = partial(_as_pandas, values=values, keys=self._keys, meta=expected.iloc[:0])
        return lazily([answer], made, expected.iloc[:0], frame, f"group-{label}")


def grouped(frame: Any, by: Any, sort: bool, dropna: bool) -> ExactGroupBy:
    """The groups of a frame's rows, all arguments checked."""
    names = list(frame.columns)
    if len(set(names)) < len(names):
        raise ValueError("the names of the columns must be distinct")
    if is_cudf(frame._meta):
        raise TypeError("groups of cuDF's frames are not supported")
    keys = by if isinstance(by, list) else [by]
    for key in keys:
        if not isinstance(key, Hashable) or key not in names:
            raise KeyError(f"no column is called {key!r}: groups are told by the names of columns")
    if not keys or len(set(keys)) < len(keys):
        raise ValueError(f"keys must be distinct columns, at least one, and not {keys}")
    return ExactGroupBy(frame, keys, KeyOrder(bool(sort), bool(dropna)))


def _as_numbers(column: Column) -> np.dtype[Any]:
    """The dtype that elements of a column are looked at in: bool as integers, as pandas has it."""
    return np.dtype(np.uint8) if column.dtype.kind == "b" else column.dtype


def _without_loss(expected: Any, columns: Sequence[Column], method: Method) -> Any:
    """What pandas is expected to answer, but for uint64, which it makes int64 whatever it loses."""
    if not method.discrete:
        return expected
    wide = [i for i, column in enumerate(columns) if column.kind == np.dtype(np.uint64)]
    if expected.ndim == 1:
        return expected.astype(np.uint64) if wide else expected
    return expected.astype({expected.columns[i]: np.uint64 for i in wide})


# --- As pandas has it -----------------------------------------------------------------------------


def _as_pandas(
    found: list[Named], values: Callable[..., Any], keys: tuple[Hashable, ...], meta: Any
) -> Any:
    """The Series or DataFrame that is answered, of the dtypes of its meta."""
    (named,) = found
    index = named.names.index.set_names(list(keys))
    answers, index = values(named.value, index)
    if meta.ndim == 1:
        return answers[0].astype(meta.dtype).set_axis(index).rename(meta.name)
    dtypes = meta.dtypes.to_list()
    cast = {i: each.astype(dtypes[i]) for i, each in enumerate(answers)}
    return pd.DataFrame(cast).set_axis(index).set_axis(meta.columns, axis=1)


def _counts(found: Sequence[Any], index: Any) -> tuple[list[Any], Any]:
    return [pd.Series(counts) for counts in found], index


def _quantiles(
    found: Sequence[Any],
    index: Any,
    columns: Sequence[Column],
    q: tuple[float, ...] | None,
    is_chosen: bool,
) -> tuple[list[Any], Any]:
    """The answers about each column, group after group, and their index."""
    answers = []
    for column, masked in zip(columns, found, strict=True):
        values = masked.data.T.reshape(-1)
        if is_chosen and column.dtype.kind == "b":
            values = values.astype(np.bool_)
        answer = column.answered(values, len(values))
        is_gone = masked.mask.T.reshape(-1)
        answers.append(answer.mask(is_gone) if is_gone.any() else answer)
    return answers, index if q is None else _with_level(index, q)


def _with_level(index: Any, q: tuple[float, ...]) -> Any:
    """An index with each of some q for each of its entries, as pandas makes it."""
    place, level = pd.Index(q, dtype=np.float64).factorize()
    n = len(index)
    is_several = isinstance(index, pd.MultiIndex)
    levels = list(index.levels) if is_several else [index]
    codes = list(index.codes) if is_several else [np.arange(n)]
    return pd.MultiIndex(
        levels=[*levels, level],
        codes=[*(np.repeat(each, len(q)) for each in codes), np.tile(place, n)],
        names=[*index.names, None],
    )
