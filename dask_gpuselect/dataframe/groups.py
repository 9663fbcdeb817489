"""Exact order statistics of the groups of a dask DataFrame's rows: ``df.exact.groupby(keys)``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.utils import meta_nonempty
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import as_accompanied, check_known, public
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.frames import (
    Column,
    KeyOrder,
    columns_as_arrays,
    is_cudf,
    keyed,
    labels_taken,
    lazily,
    lazily_of,
    present,
    rows,
)
from dask_gpuselect.engine.group_tables import GroupedColumns, ask_counts, ask_table, table
from dask_gpuselect.engine.group_values import Named
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.groups.functions import GroupBy
from dask_gpuselect.groups.labels import LabelKind, grouping_by_labels
from dask_gpuselect.maths.ranks import MEDIAN, Method, check_method
from dask_gpuselect.quantiles.columns import ColumnQuantiles
from dask_gpuselect.quantiles.functions import probabilities

Of = Callable[[Any], Any]


class ExactFrameGroupBy:
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

    def __getattr__(self, name: str) -> ExactFrameGroupBy:
        if not name.startswith("_") and self._columns is None and name in self._frame.columns:
            found: ExactFrameGroupBy = self[name]
            return found
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}, and the frame no such "
            "column to choose"
        )

    def __dir__(self) -> list[str]:
        columns = [] if self._columns is not None else self._frame.columns
        names = (name for name in columns if isinstance(name, str) and name.isidentifier())
        return sorted({*super().__dir__(), *names})

    @public()
    def __getitem__(self, columns: Any) -> ExactFrameGroupBy:
        """The same groups, of one column or of several in a list."""
        if self._columns is not None:
            raise IndexError(f"the columns are chosen already: {self._columns!r}")
        chosen = ExactFrameGroupBy(self._frame, self._keys, self._order, columns)
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
            if any(self._frame._meta[name].dtype == np.bool_ for name in self._chosen):
                raise TypeError("bool has no quantiles")  # pandas 3 says so, and 2.2 warns
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

    @public()
    def agg(self, func: Any) -> Any:
        """Several of these statistics of every group, as pandas' ``groupby(...).agg`` gives them.

        Parameters
        ----------
        func : str, list of str, or dict of them by column
            "median", "quantile" (the median by pandas' other name) and "count".

        Returns
        -------
        dask Series or DataFrame
            As pandas has it: for a list a column for each, of a DataFrame a level more of columns.

        Raises
        ------
        TypeError
            For another statistic: ``df.groupby(keys).agg`` of dask has exact means and sums.

        Notes
        -----
        Loads: those of each statistic, one after the other.
        """
        is_one = self._columns is not None and not isinstance(self._columns, list)
        if not isinstance(func, dict):
            if isinstance(func, str):
                _check_aggregated([func])
                return getattr(self, func)()
            func = {name: func for name in self._chosen}
        elif is_one:
            raise TypeError("a dict is by columns, and one is chosen already: pass a list")
        several = {name: [each] if isinstance(each, str) else each for name, each in func.items()}
        pairs = [(name, word) for name, words in several.items() for word in words]
        _check_aggregated([word for _, word in pairs])
        if is_one:
            columns = pd.Index([word for _, word in pairs])
        elif all(isinstance(each, str) for each in func.values()):
            columns = pd.Index(list(func), name=self._frame.columns.name)
        else:
            columns = pd.MultiIndex.from_tuples(pairs, names=[self._frame.columns.name, None])
        found = [getattr(self._of(name), word)() for name, word in pairs]
        meta = _side_by_side(*(each._meta for each in found), columns=columns)
        how = {"columns": columns, "meta": meta, "align_dataframes": False}
        return dd.map_partitions(_side_by_side, *found, **how)

    def _of(self, column: Hashable) -> ExactFrameGroupBy:
        """The same groups, of one column whether others are chosen or not."""
        return ExactFrameGroupBy(self._frame, self._keys, self._order, column)

    @public()
    def describe(self) -> Any:
        """Count, mean, standard deviation, extremes and quartiles of every group.

        Returns
        -------
        dask DataFrame
            As pandas' ``groupby(...).describe`` of columns of numbers: others are left out unless
            they are chosen. The mean is that of exact arithmetic, rounded once.

        Raises
        ------
        TypeError, ValueError
            As of `describe_boxplot`, of which these numbers are.

        Notes
        -----
        Loads: those of `describe_boxplot` for each column, and one.
        """
        names = self._chosen
        if self._columns is None:
            numbers = set(self._frame._meta.select_dtypes("number", exclude=["timedelta"]).columns)
            names = [name for name in names if name in numbers]
        if not names:
            raise TypeError("there is no column of numbers to describe")
        chosen = self._columns if self._columns is not None else names
        alone = ExactFrameGroupBy(self._frame, self._keys, self._order, chosen)
        meta = alone._by_pandas(lambda groups: groups.describe()).iloc[:0]
        boxes = [self._of(name).describe_boxplot(max_fliers=0) for name in names]
        counts = self._of(names[0]).count()
        meta = meta.set_axis(counts._meta.index)  # pandas 2.2 forgets categories without rows
        return lazily_of([counts, *boxes], partial(_described, meta=meta), meta)

    @public("where", "weights")
    def describe_boxplot(self, **how: Any) -> Boxplot:
        """A box for each group of one column, which the group labels.

        Parameters
        ----------
        **how
            For `dask_gpuselect.describe_boxplot`, but no `axis`.

        Returns
        -------
        Boxplot
            In the order of the groups.

        Raises
        ------
        TypeError, ValueError
            As `dask_gpuselect.describe_boxplot` does; for several columns; for groups in the order
            in which they appear, and of missing keys. While computing, for keys that are floats
            with fractions.

        Notes
        -----
        Two loads of every partition; one before of the keys alone, and one more of them if they are
        strings, categories or nullable; one after if many elements lie about a fence.
        """
        names = self._chosen
        if len(names) != 1:
            raise TypeError(f'name one column, as groups["{names[0]}"], and not {len(names)}')
        if not (self._order.sort and self._order.dropna):
            raise ValueError("boxes are of sorted groups, without missing keys")
        needed = list(dict.fromkeys([*self._keys, *names]))
        frame = self._frame[needed]
        metas = [frame._meta[name] for name in self._keys]
        taken = [labels_taken(meta) for meta in metas]
        place = needed.index(names[0])
        column = Column.of(frame._meta[names[0]], place)
        if column.dtype.kind not in "iuf":
            raise TypeError(f"a box plot needs numbers, not {column.kind}")
        wanted = [
            (needed.index(key), take) for key, (take, _) in zip(self._keys, taken, strict=True)
        ]
        values, *labels = columns_as_arrays(frame, [(place, rows(column.dtype)), *wanted])
        kinds = [LabelKind(each, own) for each, (_, own) in zip(labels, taken, strict=True)]
        return GroupBy(values, (0,), *grouping_by_labels(kinds, None)).describe_boxplot(**how)

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
        except (TypeError, NotImplementedError) as error:
            raise TypeError(f"pandas does not answer this of these groups: {error!r}") from error

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


AGGREGATED = ("median", "quantile", "count")
"""What `ExactFrameGroupBy.agg` takes."""


def _described(counts: Any, *boxes: Boxplot, meta: Any) -> Any:
    """What pandas describes of groups, by a Series about them and their boxes."""
    columns = []
    for each in boxes:
        box = each.to_dict()
        n = box["n"].astype(np.float64)
        with np.errstate(all="ignore"):  # one element has no deviation
            std = np.where(n > 1, box["std"] * np.sqrt(n / (n - 1)), np.nan)
        rest = (box[name] for name in ("min", "q1", "med", "q3", "max"))
        columns += [n, box["mean"], std, *rest]
    found = pd.DataFrame(dict(enumerate(columns))).set_axis(counts.index)
    dtypes = dict(enumerate(meta.dtypes))
    return found.astype(dtypes).set_axis(meta.columns, axis=1)


def _check_aggregated(words: Sequence[Any]) -> None:
    for word in words:
        if word not in AGGREGATED:
            raise TypeError(
                f"agg takes {', '.join(map(repr, AGGREGATED))}, and not {word!r}: dask's own "
                "df.groupby(keys).agg is exact for sums, means and extremes"
            )


def _side_by_side(*found: Any, columns: Any) -> Any:
    """Answers about the same groups as columns of one frame."""
    return pd.concat(found, axis=1).set_axis(columns, axis=1)


def grouped(frame: Any, by: Any, sort: bool, dropna: bool) -> ExactFrameGroupBy:
    """The groups of a frame's rows, all arguments checked."""
    check_known(sort, "sort")
    check_known(dropna, "dropna")
    keys = list(by) if isinstance(by, list) else [by]
    for i, key in enumerate(keys):
        if isinstance(key, dd.Series):
            frame, keys[i] = _with_key(frame, key)
        else:
            check_known(key, "by", "name a column, or pass a lazy Series of the frame")
    names = list(frame.columns)
    if len(set(names)) < len(names):
        raise ValueError("the names of the columns must be distinct")
    if is_cudf(frame._meta):
        raise TypeError("groups of cuDF's frames are not supported")
    for key in keys:
        if not isinstance(key, Hashable) or key not in names:
            raise KeyError(f"no column is called {key!r}: groups are told by the names of columns")
    if not keys or len(set(keys)) < len(keys):
        raise ValueError(f"keys must be distinct columns, at least one, and not {keys}")
    return ExactFrameGroupBy(frame, keys, KeyOrder(bool(sort), bool(dropna)))


def _with_key(frame: Any, key: Any) -> tuple[Any, Hashable]:
    """A frame that has a lazy Series as a column, and what this is called there."""
    name = key.name
    if name in frame.columns and frame[name]._name == key._name:
        return frame, name
    if not isinstance(name, str) or name in frame.columns:
        raise ValueError(
            f"a key that is no column needs a name of its own, and not {name!r}: "
            'by.rename("key") gives it one'
        )
    return frame.assign(**{name: key}), name


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
