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
from dask_gpuselect.arrays import type_name
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.frames import (
    Column,
    KeyOrder,
    check_pandas,
    columns_as_arrays,
    keyed,
    labels_taken,
    lazily,
    lazily_of,
    present,
    rows,
)
from dask_gpuselect.engine.group_elements import Named
from dask_gpuselect.engine.group_tables import GroupedColumns, ask_counts, ask_table, table
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.groups.functions import GroupBy
from dask_gpuselect.groups.labels import LabelKind, grouping_by_labels
from dask_gpuselect.maths.ranks import MEDIAN, Method, check_method
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.quantiles.columns import ColumnQuantiles
from dask_gpuselect.quantiles.functions import probabilities

Of = Callable[[Any], Any]


class ExactFrameGroupBy(Advising):
    """The groups of the rows of a dask DataFrame, made by ``df.exact.groupby(keys)``.

    ``groups["v"]`` and ``groups[["v", "w"]]`` select columns, as in pandas. By default all columns
    except the keys are selected.

    See Also
    --------
    ExactDataFrame.groupby : Makes it.
    dask_gpuselect.groups.groupby : Groups of dask arrays.

    Notes
    -----
    Reads: each partition is read at most twice for all columns and quantiles, and for the names of
    the groups. Only the keys and the selected columns are read if the source can read single
    columns. No row moves to another partition, and a group may be larger than any partition. A call
    computes nothing.

    Memory: for each thread, a partition and a copy of its columns. A group that has n rows in a
    partition returns about sqrt(n) pivots and as many candidates for each column, and its key; all
    rows if it has one or two. If these partial results might exceed ``dask_gpuselect.root-limit``
    (dask config; 1 GiB), assuming partitions of dask's ``array.chunk-size``, up to 64 tasks share
    them, each for the groups of some keys. One task gathers the results: the keys, two numbers and
    a few sizes for each group, column and q.
    """

    def __init__(
        self, frame: Any, keys: Sequence[Hashable], order: KeyOrder, columns: Any = None
    ) -> None:
        self._frame, self._keys, self._order, self._columns = frame, tuple(keys), order, columns

    def __repr__(self) -> str:
        return f"<groups by {list(self._keys)} of {self._frame!r}>"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and self._columns is None and name in self._frame.columns:
            return self[name]
        return super().__getattr__(name)  # type: ignore[misc]  # which raises

    def _advice(self, name: str) -> str:
        own = type(self._frame.groupby([*self._keys], observed=True))
        advice = its_own(own, name, "df.groupby(keys)")
        none = "the frame has no such column"
        none = none if self._columns is None else f"{self._columns!r} is selected already"
        return advice or f"{none}, and {super()._advice(name)}"

    def __dir__(self) -> list[str]:
        columns = [] if self._columns is not None else self._frame.columns
        names = (name for name in columns if isinstance(name, str) and name.isidentifier())
        return sorted({*super().__dir__(), *names})

    @public()
    def __getitem__(self, columns: Any) -> ExactFrameGroupBy:
        """Select one column, or several in a list."""
        if self._columns is not None:
            raise IndexError(
                f"columns are selected already, {self._columns!r}: select all of them in one list"
            )
        chosen = ExactFrameGroupBy(self._frame, self._keys, self._order, columns)
        chosen._by_pandas()  # raises for a column that does not exist
        return chosen

    @public()
    def quantile(
        self,
        q: ArrayLike = 0.5,
        interpolation: str = "linear",
        numeric_only: bool = False,
        method: str | None = None,
    ) -> Any:
        """Return exact quantiles of every group, as pandas' ``groupby(...).quantile`` does.

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
            NumPy's name of `interpolation`, which it overrides.

        Returns
        -------
        dask Series or DataFrame
            A Series for one column that is selected by its name, else a DataFrame; of one
            partition. Its index is that of the groups, for several q with q as a further level.
            Dtypes are those of pandas' groups. Missing elements are left out; without others the
            answer is missing.

        Raises
        ------
        TypeError
            At the call, for columns of strings, categories, objects and others without quantiles,
            and for bool and float16, which pandas does not support in groups.
        ValueError
            At the call, for a q outside [0, 1], or an unknown method.
        ChunksChangedError
            While computing, if a partition differs between two reads.

        Notes
        -----
        Each partition is read at most twice, for all columns and q.

        Answers are those of ``numpy.quantile`` of the group. pandas' answers may differ in the last
        bits, because it selects integers as float64. uint64 elements stay uint64, where pandas
        converts them to int64.
        """
        chosen = check_method(method or interpolation)
        given, is_scalar = probabilities(q)
        word = "lower" if chosen.discrete else "linear"

        def by_pandas(groups: Any) -> Any:
            if any(self._frame._meta[name].dtype == np.bool_ for name in self._chosen):
                # pandas 3 raises too; pandas 2.2 warns.
                raise TypeError("columns of bool have no quantiles: pass df.astype({name: 'int8'})")
            how = {"numeric_only": True} if numeric_only else {}
            return groups.quantile(0.5 if is_scalar else [0.5], interpolation=word, **how)

        wanted = tuple(given.tolist())
        return self._ask(wanted, chosen, by_pandas, numeric_only, "quantile", is_scalar=is_scalar)

    @public()
    def median(self, numeric_only: bool = False) -> Any:
        """Return the exact median of every group, as pandas' ``groupby(...).median`` does.

        Parameters
        ----------
        numeric_only : bool, default False
            Whether to leave out columns that are neither numbers nor bool.

        Returns
        -------
        dask Series or DataFrame
            As for `quantile`, for one q. float16 and float32 keep their dtype.

        Raises
        ------
        TypeError, ChunksChangedError
            As `quantile` does, but bool and float16 have medians.

        Notes
        -----
        Each partition is read at most twice, for all columns.
        """

        def by_pandas(groups: Any) -> Any:
            return groups.median(numeric_only=numeric_only)

        return self._ask((0.5,), MEDIAN, by_pandas, numeric_only, "median", is_scalar=True)

    @public()
    def count(self) -> Any:
        """Count the elements of every group that are not missing.

        The answer is that of pandas' ``groupby(...).count``.

        Returns
        -------
        dask Series or DataFrame
            Of int64, for columns of any dtype; see `quantile`.

        Notes
        -----
        Each partition is read once.
        """
        expected = self._by_pandas(lambda groups: groups.count())
        places, frame = self._answered(expected)
        rows_of = self._table(frame, [(place, present) for place in places])
        return self._lazily(ask_counts(rows_of, "group-count"), _counts, expected, "count")

    @public()
    def agg(self, func: Any) -> Any:
        """Return several statistics of every group, as pandas' ``groupby(...).agg`` does.

        Parameters
        ----------
        func : str, list of str, or dict of them by column
            "median", "quantile" (which is the median, as in pandas) and "count".

        Returns
        -------
        dask Series or DataFrame
            As in pandas: a list gives a column for each statistic, and one more level of columns
            for a DataFrame.

        Raises
        ------
        TypeError
            For another statistic: ``df.groupby(keys).agg`` of dask has exact means and sums.

        Notes
        -----
        Reads: those of each statistic, one after the other.
        """
        is_one = self._columns is not None and not isinstance(self._columns, list)
        if not isinstance(func, dict):
            if isinstance(func, str):
                _check_aggregated([func])
                return getattr(self, func)()
            func = {name: func for name in self._chosen}
        elif is_one:
            raise TypeError(
                "func must be a str or a list of str for one selected column, not a dict: select "
                "several columns, as groups[['v', 'w']], to pass a dict"
            )
        several = {name: [each] if isinstance(each, str) else each for name, each in func.items()}
        pairs = [(name, word) for name, words in several.items() for word in words]
        _check_aggregated([word for _, word in pairs])
        if is_one:
            columns = pd.Index([word for _, word in pairs])
        elif all(isinstance(each, str) for each in func.values()):
            columns = pd.Index(list(func), name=self._frame.columns.name)
        else:
            columns = pd.MultiIndex.from_tuples(pairs, names=[self._frame.columns.name, None])
        aggregated = [getattr(self._of(name), word)() for name, word in pairs]
        meta = _side_by_side(*(each._meta for each in aggregated), columns=columns)
        how = {"columns": columns, "meta": meta, "align_dataframes": False}
        return dd.map_partitions(_side_by_side, *aggregated, **how)

    def _of(self, column: Hashable) -> ExactFrameGroupBy:
        """Select one column, whether others are selected or not."""
        return ExactFrameGroupBy(self._frame, self._keys, self._order, column)

    @public()
    def describe(self) -> Any:
        """Return count, mean, standard deviation, extremes and quartiles of every group.

        Returns
        -------
        dask DataFrame
            As pandas' ``groupby(...).describe`` for columns of numbers. Others are left out unless
            they are selected. The mean is that of exact arithmetic, rounded once.

        Raises
        ------
        TypeError, ValueError
            As `describe_boxplot` does.

        Notes
        -----
        Reads: those of `describe_boxplot` for each column, and one more.
        """
        names = self._chosen
        if self._columns is None:
            numbers = set(self._frame._meta.select_dtypes("number", exclude=["timedelta"]).columns)
            names = [name for name in names if name in numbers]
        if not names:
            raise TypeError(
                "there is no column of integers or floats to describe: select one, as groups['v']"
            )
        boxes = [self._of(name).describe_boxplot(max_fliers=0) for name in names]
        chosen = self._columns if self._columns is not None else names
        alone = ExactFrameGroupBy(self._frame, self._keys, self._order, chosen)
        meta = alone._by_pandas(lambda groups: groups.describe()).iloc[:0]
        counts = self._of(names[0]).count()
        meta = meta.set_axis(counts._meta.index)  # pandas 2.2 forgets categories without rows
        return lazily_of([counts, *boxes], partial(_described, meta=meta), meta)

    @public("where", "weights")
    def describe_boxplot(self, **how: Any) -> Boxplot:
        """Return a box for each group of one column, labelled with the group.

        Parameters
        ----------
        **how
            For `dask_gpuselect.describe_boxplot`, except `axis`.

        Returns
        -------
        Boxplot
            In the order of the groups. Nullable integers stay integers; `n_left_out` counts missing
            ones.

        Raises
        ------
        TypeError, ValueError
            As `dask_gpuselect.describe_boxplot` does; for several columns; for ``sort=False`` or
            ``dropna=False``. While computing, for keys that are floats with fractions.

        Notes
        -----
        Each partition is read twice. The keys alone are read once before, and once more if they are
        strings, categories or nullable. All are read once more if many elements lie near a fence.
        """
        names = self._chosen
        if len(names) != 1:
            raise TypeError(
                "describe_boxplot needs one selected column, not "
                f'{len(names)}: type groups["{names[0]}"]'
            )
        if not all(self._order):
            raise ValueError(
                "describe and describe_boxplot need groupby(..., sort=True, dropna=True), the "
                "defaults: leave out sort and dropna"
            )
        needed = list(dict.fromkeys([*self._keys, *names]))
        frame = self._frame[needed]
        metas = [frame._meta[name] for name in self._keys]
        taken = [labels_taken(meta) for meta in metas]
        place = needed.index(names[0])
        column = Column.of(frame._meta[names[0]], place)
        column.check_numbers()
        wanted = [
            (needed.index(key), take) for key, (take, _) in zip(self._keys, taken, strict=True)
        ]
        wanted.insert(0, (place, partial(rows, dtype=column.dtype)))
        values, *labels = columns_as_arrays(frame, wanted)
        kinds = [LabelKind(each, own) for each, (_, own) in zip(labels, taken, strict=True)]
        return GroupBy(values, (0,), *grouping_by_labels(kinds, None)).describe_boxplot(**how)

    def _ask(
        self,
        q: tuple[float, ...],
        method: Method,
        by_pandas: Of,
        numeric_only: bool,
        label: str,
        *,
        is_scalar: bool,
    ) -> Any:
        """Ask for quantiles of the selected columns, in the form of pandas' answer."""
        if not numeric_only:
            for name in self._chosen:
                Column.of(self._frame._meta[name])  # raises for dtypes without quantiles
        expected = self._by_pandas(by_pandas)
        places, frame = self._answered(expected)
        if not places:
            raise TypeError(
                "there is no column of numbers: select others, as groups['v'], or pass "
                "numeric_only=False"
            )
        columns = [Column.of(frame._meta.iloc[:, place], place) for place in places]
        # As in pandas, bool is compared as integers.
        of_each = [column.dtype for column in columns]
        dtypes = [np.dtype(np.uint8) if dtype.kind == "b" else dtype for dtype in of_each]
        questions = [ColumnQuantiles.of(q, method, dtype, skips_missing=True) for dtype in dtypes]
        takes = [partial(rows, dtype=dtype) for dtype in dtypes]
        rows_of = self._table(frame, list(zip(places, takes, strict=True)))
        expected = _without_loss(expected, columns, method)
        answer = ask_table(rows_of, GroupedColumns(tuple(questions), tuple(dtypes)), label)
        finish = partial(
            _quantiles, columns=columns, q=None if is_scalar else q, is_chosen=method.discrete
        )
        return self._lazily(answer, finish, expected, label)

    @property
    def _chosen(self) -> list[Hashable]:
        """The selected columns."""
        if self._columns is None:
            return [name for name in self._frame.columns if name not in self._keys]
        return self._columns if isinstance(self._columns, list) else [self._columns]

    def _by_pandas(self, ask: Of = lambda groups: None) -> Any:
        """Return pandas' answer for a few typical rows: names, dtypes, levels, or its error."""
        sort, dropna = self._order
        groups = meta_nonempty(self._frame._meta).groupby(
            list(self._keys), sort=sort, dropna=dropna, observed=True
        )
        groups = groups if self._columns is None else groups[self._columns]
        try:
            return ask(groups)
        except (TypeError, NotImplementedError) as error:
            raise TypeError(f"pandas does not support this for these groups: {error}") from error

    def _answered(self, expected: Any) -> tuple[list[int], Any]:
        """Return the places of the answered columns in a frame with the keys, and that frame."""
        names = list(expected.columns) if expected.ndim == 2 else [self._columns]
        needed = list(dict.fromkeys([*self._keys, *names]))
        return [needed.index(name) for name in names], self._frame[needed]

    def _table(self, frame: Any, columns: Sequence[tuple[int, Of]]) -> DaskArray:
        """Return the keys and some columns, which are loaded together."""
        by_keys = partial(keyed, places=tuple(range(len(self._keys))), how=self._order)
        arrays = columns_as_arrays(frame, [(None, by_keys), *columns])
        return table(arrays[0], [as_accompanied(array) for array in arrays[1:]])

    def _lazily(
        self, answer: DaskArray, values: Callable[..., Any], expected: Any, label: str
    ) -> Any:
        """Return a lazy answer in the form of pandas'."""
        made = partial(_as_pandas, values=values, keys=self._keys, meta=expected.iloc[:0])
        return lazily([answer], made, expected.iloc[:0], f"group-{label}")


AGGREGATED = ("median", "quantile", "count")
"""Statistics that `ExactFrameGroupBy.agg` supports."""


def _described(counts: Any, *boxes: Boxplot, meta: Any) -> Any:
    """Return pandas' description of groups, by the counts of groups and their boxes."""
    columns = []
    for each in boxes:
        box = each.to_dict()
        n = box["n"].astype(np.float64)
        with np.errstate(all="ignore"):  # one element has no deviation
            std = np.where(n > 1, box["std"] * np.sqrt(n / (n - 1)), np.nan)
        rest = (box[name] for name in ("min", "q1", "med", "q3", "max"))
        columns += [n, box["mean"], std, *rest]
    table = pd.DataFrame(dict(enumerate(columns))).set_axis(counts.index)
    dtypes = dict(enumerate(meta.dtypes))
    return table.astype(dtypes).set_axis(meta.columns, axis=1)


def _check_aggregated(words: Sequence[Any]) -> None:
    """Raise unless `agg` supports all of some statistics."""
    for word in words:
        if word not in AGGREGATED:
            raise TypeError(
                f"agg supports {', '.join(map(repr, AGGREGATED))}, not {word!r}: type "
                "df.groupby(keys).agg, dask's own, which is exact for sums, means and extremes"
            )


def _side_by_side(*answers: Any, columns: Any) -> Any:
    """Return answers about the same groups as columns of one frame."""
    return pd.concat(answers, axis=1).set_axis(columns, axis=1)


def grouped(frame: Any, by: Any, sort: bool, dropna: bool) -> ExactFrameGroupBy:
    """Check the arguments of `groupby`, and return the groups of a frame's rows."""
    check_known(sort, "sort")
    check_known(dropna, "dropna")
    keys = list(by) if isinstance(by, list) else [by]
    for i, key in enumerate(keys):
        if isinstance(key, dd.Series):
            frame, keys[i] = _with_key(frame, key)
        else:
            check_known(
                key,
                "by",
                "pass the name of a column, or a Series; df.assign(key=...) adds a column",
            )
    names = list(frame.columns)
    if len(set(names)) < len(names):
        raise ValueError(
            f"names of columns must be distinct, not {names}: rename columns first, "
            "df.rename(columns=...)"
        )
    check_pandas(frame._meta)
    for key in keys:
        if not isinstance(key, Hashable) or key not in names:
            described = (
                repr(key) if isinstance(key, str | int) else f"an object of type {type_name(key)}"
            )
            raise KeyError(
                f"by must be the name of a column, {names}, a lazy Series, or a list of these, not "
                f"{described}: for other keys add a column first, df.assign(key=...)"
            )
    if not keys or len(set(keys)) < len(keys):
        raise ValueError(f"by must be at least one column, and distinct ones, not {keys}")
    return ExactFrameGroupBy(frame, keys, (bool(sort), bool(dropna)))


def _with_key(frame: Any, key: Any) -> tuple[Any, Hashable]:
    """Return a frame that has a lazy Series as a column, and the name of that column."""
    name = key.name
    if name in frame.columns and frame[name]._name == key._name:
        return frame, name
    if not isinstance(name, str) or name in frame.columns:
        raise ValueError(
            f"by is a Series that is not a column of the frame, and needs a name of its own, not "
            f'{name!r}: pass by.rename("key")'
        )
    return frame.assign(**{name: key}), name


def _without_loss(expected: Any, columns: Sequence[Column], method: Method) -> Any:
    """Return pandas' expected answer, but uint64 where pandas converts it to int64."""
    if not method.discrete:
        return expected
    wide = [i for i, column in enumerate(columns) if column.kind == np.dtype(np.uint64)]
    if expected.ndim == 1:
        return expected.astype(np.uint64) if wide else expected
    return expected.astype({expected.columns[i]: np.uint64 for i in wide})


# --- Answers in pandas' form ----------------------------------------------------------------------


def _as_pandas(
    answer: list[Named], values: Callable[..., Any], keys: tuple[Hashable, ...], meta: Any
) -> Any:
    """Return the Series or DataFrame of an answer, with the dtypes of its meta."""
    (named,) = answer
    index = named.names.index.set_names(list(keys))
    answers, index = values(named.value, index)
    if meta.ndim == 1:
        return answers[0].astype(meta.dtype).set_axis(index).rename(meta.name)
    dtypes = meta.dtypes.to_list()
    cast = {i: each.astype(dtypes[i]) for i, each in enumerate(answers)}
    return pd.DataFrame(cast).set_axis(index).set_axis(meta.columns, axis=1)


def _counts(counts_of_each: Sequence[Any], index: Any) -> tuple[list[Any], Any]:
    """Return the counts of each column as Series, and their index."""
    return [pd.Series(counts) for counts in counts_of_each], index


def _quantiles(
    of_columns: Sequence[Any],
    index: Any,
    columns: Sequence[Column],
    q: tuple[float, ...] | None,
    is_chosen: bool,
) -> tuple[list[Any], Any]:
    """Return the answers about each column, group after group, and their index."""
    answers = []
    for column, masked in zip(columns, of_columns, strict=True):
        values = masked.data.T.reshape(-1)
        if is_chosen and column.dtype.kind == "b":
            values = values.astype(np.bool_)
        answer = column.answered(values, len(values))
        is_gone = masked.mask.T.reshape(-1)
        answers.append(answer.mask(is_gone) if is_gone.any() else answer)
    return answers, index if q is None else _with_level(index, q)


def _with_level(index: Any, q: tuple[float, ...]) -> Any:
    """Return an index with each q for each of its entries, as pandas makes it."""
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
