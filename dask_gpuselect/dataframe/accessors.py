"""The accessor ``exact`` of dask's Series and DataFrames, and replacements of their own methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.extensions import register_dataframe_accessor, register_series_accessor
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import as_accompanied, check_known, public, unexpected
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.dataframe.groups import ExactFrameGroupBy, grouped
from dask_gpuselect.dataframe.windows import ExactFrameRolling, RowsOf
from dask_gpuselect.engine.asking import Asking, ask_each
from dask_gpuselect.engine.frames import (
    Column,
    columns_as_arrays,
    elements,
    float_kind,
    lazily,
    numbers_as_arrays,
    rows,
)
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.maths.ranks import MEDIAN, Method, check_method
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.quantiles.columns import ColumnQuantiles, Described
from dask_gpuselect.quantiles.functions import probabilities
from dask_gpuselect.routing import approximate_instead, replaces

Q = ArrayLike


class ExactSeries(Advising):
    """Exact order statistics of a dask Series: ``s.exact``.

    Parameters
    ----------
    series : dask Series
        Of numbers, bool, dates or time differences: NumPy's, nullable or pyarrow-backed. It may
        have any number of partitions of any length.

    See Also
    --------
    ExactDataFrame : The accessor of a DataFrame.
    dask_gpuselect.quantile : Quantiles of dask arrays.

    Notes
    -----
    Reads: each partition is read at most twice, and this column alone if the source can read single
    columns. A call computes nothing. Memory: for each thread, a partition and the part of it that
    is used, and the memory of `dask_gpuselect.quantile` for chunks.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_gpuselect.dataframe
    >>> s = dd.from_pandas(pd.Series(range(1, 101), name="n"), npartitions=3)
    >>> s.exact.quantile([0.25, 0.5, 0.75]).compute()
    0.25    25.75
    0.50    50.50
    0.75    75.25
    Name: n, dtype: float64
    """

    def __init__(self, series: Any) -> None:
        self._series = series

    def __repr__(self) -> str:
        return f"<exact order statistics of the dask Series {self._series.name!r}>"

    def _advice(self, name: str) -> str:
        return its_own(type(self._series), name, "s") or super()._advice(name)

    @public()
    def quantile(self, q: Q = 0.5, interpolation: str = "linear", method: str | None = None) -> Any:
        """Return exact quantiles, as ``pandas.Series.quantile`` does.

        Parameters
        ----------
        q : float or 1-D array_like of floats, default 0.5
            In [0, 1].
        interpolation : str, default "linear"
            pandas' "linear", "lower", "higher", "midpoint" or "nearest", or another of the thirteen
            methods of ``numpy.quantile``.
        method : str, optional
            NumPy's name of `interpolation`, which it overrides.

        Returns
        -------
        dask Scalar, or dask Series
            For several q, a Series with q as its index and the name of the column. Missing elements
            are left out; without others the result is missing. "lower", "higher", "nearest",
            "inverted_cdf" and "closest_observation" keep the dtype of the column; the others
            give float64, Float64 (Float32 for Float32), or double[pyarrow]. Dates stay dates.

        Raises
        ------
        TypeError
            At the call, for strings, categories, objects, periods, decimals, complex and sparse
            columns; for a bool column with a method that interpolates; for a lazy q.
        ValueError
            At the call, for a q outside [0, 1] or of two dimensions or more, or an unknown method.
        ChunksChangedError
            While computing, if a partition differs between two reads.

        See Also
        --------
        dask_gpuselect.quantile : Quantiles of dask arrays.

        Notes
        -----
        Each partition is read at most twice, for any number of q.

        pandas' dtypes may depend on the data; here they do not. A quantile of an Int64 column that
        is a whole number stays a float, and a float32 column gives float64 with or without NaN. A
        quantile between two dates is rounded to the nearest unit; pandas rounds it to 53 bits, and
        truncates it. The median of dates is truncated to a whole unit, as in pandas.
        """
        chosen = check_method(method or interpolation)
        return _quantiles(self._series, [Column.of(self._series._meta)], q, chosen)

    @public()
    def median(self, skipna: bool = True) -> Any:
        """Return the exact median, as ``pandas.Series.median`` does.

        Parameters
        ----------
        skipna : bool, default True
            Whether missing elements are left out. Otherwise one of them makes the result missing.

        Returns
        -------
        dask Scalar
            float16 and float32 keep their dtype, all other numbers give float64. Dates stay dates.

        Raises
        ------
        TypeError, ChunksChangedError
            As `quantile` does.

        Notes
        -----
        Each partition is read at most twice.
        """
        columns = [Column.of(self._series._meta)]
        return _quantiles(self._series, columns, 0.5, MEDIAN, skipna=bool(skipna))

    @public()
    def describe(self, percentiles: Sequence[float] | None = None) -> Any:
        """Return count, mean, standard deviation, extremes and percentiles, as pandas' `describe`.

        Parameters
        ----------
        percentiles : sequence of float, optional
            In [0, 1]; the quartiles by default.

        Returns
        -------
        dask Series
            Of float64, Float64 or double[pyarrow]. The standard deviation has n - 1 degrees of
            freedom. The mean and the standard deviation are those of exact arithmetic, rounded
            once.

        Raises
        ------
        TypeError
            At the call, for a column that is not of integers or floats.
        ValueError
            At the call, for percentiles outside [0, 1] or repeated ones.
        ChunksChangedError
            While computing, if a partition differs between two reads.

        Notes
        -----
        Each partition is read at most twice, for all statistics together.
        """
        return _describe(self._series, [Column.of(self._series._meta)], percentiles)

    @public()
    def describe_boxplot(self, **how: Any) -> Boxplot:
        """Return statistics of a box plot of this Series.

        Parameters
        ----------
        **how
            For `dask_gpuselect.describe_boxplot`, except `axis`.

        Returns
        -------
        Boxplot
            One box, with the name of the column. Nullable integers are described as float64.

        Raises
        ------
        TypeError, ValueError
            As `dask_gpuselect.describe_boxplot` does, and for a column that is not of integers or
            floats.

        Notes
        -----
        Each partition is read at most twice; a third time if many elements lie near a fence.
        """
        return _describe_boxplot(self._series, [Column.of(self._series._meta)], how)

    @public()
    def rolling(
        self,
        window: Any,
        min_periods: int | None = None,
        center: bool = False,
        closed: str | None = None,
    ) -> ExactFrameRolling:
        """Return moving windows of rows, as ``pandas.Series.rolling`` does.

        Parameters
        ----------
        window : int, str or timedelta
            The number of rows in a window; or a time, such as "30D". Then the index must have dates
            or time differences that ascend.
        min_periods : int, optional
            The number of elements that must not be missing in a window for an answer other than
            NaN. The default is all for a number of rows, and 1 for a time.
        center : bool, default False
            If True, a window is centred on its row; if False, it ends with its row.
        closed : {"right", "left", "both", "neither"}, optional
            Which ends belong to a window; "right" by default.

        Returns
        -------
        ExactFrameRolling
            With the methods `median`, `quantile`, `mad`, `iqr`, `min` and `max`.

        Raises
        ------
        TypeError
            At the call, for a Series that is not of numbers, for a window that is neither an
            integer nor a time, and for a window of time if the index has no dates.
        ValueError
            At the call, for a window below 1, or a time that is not fixed, such as "ME".
            While computing, for a window of time if the index does not ascend; with
            ``center=True``, if a window reaches beyond the next four partitions.

        Notes
        -----
        Each partition is read once. Its windows also need the last rows of the partitions before
        it, which may have any size. Infinite elements count as they are; pandas treats them as
        missing.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask.dataframe as dd
        >>> import dask_gpuselect.dataframe
        >>> days = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-09", "2026-01-10"])
        >>> s = dd.from_pandas(pd.Series([5.0, 1.0, 4.0, 2.0], days), npartitions=2)
        >>> s.exact.rolling("7D").median().compute().tolist()
        [5.0, 3.0, 4.0, 3.0]
        """
        rows = RowsOf.of(self._series._meta, window, min_periods, center, closed)
        return ExactFrameRolling(self._series, [Column.of(self._series._meta)], rows)


class ExactDataFrame(Advising):
    """Exact order statistics of the columns of a dask DataFrame: ``df.exact``.

    Parameters
    ----------
    frame : dask DataFrame
        It may have any number of partitions of any length.

    See Also
    --------
    ExactSeries : The accessor of a Series.
    ExactFrameGroupBy : Groups of rows.

    Notes
    -----
    Reads: each partition is read at most twice for all columns of a call, without other columns if
    the source can read single columns. A call computes nothing.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_gpuselect.dataframe
    >>> df = pd.DataFrame({"n": range(1, 101), "half": [i / 2 for i in range(1, 101)]})
    >>> dd.from_pandas(df, npartitions=3).exact.quantile(0.25).compute()
    n       25.750
    half    12.875
    Name: 0.25, dtype: float64
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self._frame.columns))
        return f"<exact order statistics of a dask DataFrame of {names}>"

    def __getitem__(self, columns: Any) -> Any:
        """Return the accessor of one column, or of a list of columns."""
        return self._frame[columns].exact

    def _advice(self, name: str) -> str:
        if name in self._frame.columns:
            return f'type df.exact["{name}"], or df.exact.groupby(keys)["{name}"]'
        return its_own(type(self._frame), name, "df") or super()._advice(name)

    @public()
    def quantile(
        self,
        q: Q = 0.5,
        axis: int | str = 0,
        numeric_only: bool = False,
        interpolation: str = "linear",
        method: str | None = None,
    ) -> Any:
        """Return exact quantiles of every column, as ``pandas.DataFrame.quantile`` does.

        Parameters
        ----------
        q : float or 1-D array_like of floats, default 0.5
            In [0, 1].
        axis : {0, "index"}
            Quantiles of rows are dask's own, ``df.quantile(q, axis=1)``, which is exact.
        numeric_only : bool, default False
            Whether to leave out columns that are neither numbers nor bool.
        interpolation, method : str
            As for a Series.

        Returns
        -------
        dask Series, or dask DataFrame
            For one q a Series named by it, with the names of the columns as its index. For several,
            a DataFrame with q as its index.

        Raises
        ------
        TypeError, ValueError, ChunksChangedError
            As for a Series; a ValueError for another axis.

        Notes
        -----
        Each partition is read at most twice, for all columns and q.
        """
        _check_axis(axis)
        frame, columns = self._columns(numeric_only=numeric_only)
        return _quantiles(frame, columns, q, check_method(method or interpolation))

    @public()
    def median(self, axis: int | str = 0, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the exact median of every column, as ``pandas.DataFrame.median`` does.

        Parameters
        ----------
        axis, numeric_only
            As for `quantile`.
        skipna : bool, default True
            Whether missing elements are left out. Otherwise one makes its column's median missing.

        Returns
        -------
        dask Series
            With the names of the columns as its index.

        Raises
        ------
        TypeError, ValueError, ChunksChangedError
            As `quantile` does.

        Notes
        -----
        Each partition is read at most twice, for all columns.
        """
        _check_axis(axis)
        frame, columns = self._columns(numeric_only=numeric_only)
        return _quantiles(frame, columns, 0.5, MEDIAN, skipna=bool(skipna))

    @public()
    def describe(self, percentiles: Sequence[float] | None = None) -> Any:
        """Return count, mean, standard deviation, extremes and percentiles of each numeric column.

        The answer looks like that of ``pandas.DataFrame.describe``. Numeric columns are those of
        integers and floats.

        Parameters
        ----------
        percentiles : sequence of float, optional
            In [0, 1]; the quartiles by default.

        Returns
        -------
        dask DataFrame
            A column for each numeric one; see `ExactSeries.describe`. Dates are left out.

        Raises
        ------
        TypeError
            At the call, if there is no numeric column.
        ValueError, ChunksChangedError
            As for a Series.

        Notes
        -----
        Each partition is read at most twice, for all statistics together.
        """
        frame, columns = self._numbers()
        return _describe(frame, columns, percentiles)

    @public()
    def describe_boxplot(self, **how: Any) -> Boxplot:
        """Return statistics of a box plot for each column of integers or floats.

        Parameters
        ----------
        **how
            For `dask_gpuselect.describe_boxplot`, except `axis`.

        Returns
        -------
        Boxplot
            With the names of the columns. Nullable integers are described as float64.

        Raises
        ------
        TypeError, ValueError
            As `dask_gpuselect.describe_boxplot` does, and a TypeError if there is no such column.

        Notes
        -----
        Each partition is read at most twice for all columns. A column with many elements near a
        fence is read a third time.
        """
        frame, columns = self._numbers()
        return _describe_boxplot(frame, columns, how)

    @public()
    def rolling(
        self,
        window: Any,
        min_periods: int | None = None,
        center: bool = False,
        closed: str | None = None,
        numeric_only: bool = False,
    ) -> ExactFrameRolling:
        """Return moving windows of rows, as ``pandas.DataFrame.rolling`` does.

        Parameters
        ----------
        window, min_periods, center, closed
            As for `ExactSeries.rolling`.
        numeric_only : bool, default False
            Whether to leave out columns that are neither numbers nor bool.

        Returns
        -------
        ExactFrameRolling
            Its methods answer for every column, in one read of every partition.

        Raises
        ------
        TypeError, ValueError
            As for a Series; for a column that is not of numbers.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask.dataframe as dd
        >>> import dask_gpuselect.dataframe
        >>> df = pd.DataFrame({"n": [4, 1, 3, 9], "x": [0.5, 2.0, 1.0, 4.0]})
        >>> dd.from_pandas(df, npartitions=2).exact.rolling(3).median().compute()
             n    x
        0  NaN  NaN
        1  NaN  NaN
        2  3.0  1.0
        3  3.0  2.0
        """
        rows = RowsOf.of(self._frame._meta, window, min_periods, center, closed)
        frame, columns = self._columns(numeric_only=numeric_only)
        return ExactFrameRolling(frame, columns, rows)

    def groupby(
        self,
        by: Any,
        *,
        sort: bool = True,
        observed: bool = True,
        dropna: bool = True,
        **others: Any,
    ) -> ExactFrameGroupBy:
        """Divide the rows into groups by keys, for quantiles of each group.

        Parameters
        ----------
        by : name of a column, lazy Series, or list of them
            Of any dtype that pandas groups by. A Series that is not a column of the frame needs a
            name of its own, and the partitions of the frame.
        sort : bool, default True
            Whether groups ascend; otherwise they are in the order in which they appear.
        observed : bool, default True
            Only categories that occur make groups. False is not supported.
        dropna : bool, default True
            Whether rows whose keys are missing are left out; otherwise they are groups too.
        **others
            Not supported: other arguments of pandas, such as `as_index`. An answer has the keys as
            its index; type ``answer.reset_index()`` for columns.

        Returns
        -------
        ExactFrameGroupBy
            With the methods `quantile`, `median`, `count`, `agg`, `describe` and
            `describe_boxplot`.

        Raises
        ------
        KeyError, ValueError
            For a key that is not a column, or is repeated; for a Series without a name of its own;
            for ``observed=False``.
        TypeError
            For a lazy key that is not a Series, for frames of cuDF, and for `others`.

        Notes
        -----
        Each partition is read at most twice, for any number of groups: see `ExactFrameGroupBy`.
        Nothing is shuffled, so groups may be larger than any partition.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask.dataframe as dd
        >>> import dask_gpuselect.dataframe
        >>> df = pd.DataFrame({"shop": ["a", "b"] * 50, "sales": range(100)})
        >>> shops = dd.from_pandas(df, npartitions=3).exact.groupby("shop")
        >>> shops["sales"].median().compute()
        shop
        a    49.0
        b    50.0
        Name: sales, dtype: float64
        """
        for each in others:
            raise unexpected("groupby", each)
        check_known(observed, "observed")
        if not observed:
            raise ValueError(
                "observed must be True: only categories that occur make groups; compute the answer "
                "and type answer.reindex(categories) to add the others"
            )
        return grouped(self._frame, by, sort, dropna)

    def _columns(self, *, numeric_only: bool) -> tuple[Any, list[Column]]:
        """Return the frame of the columns to ask about, and these columns."""
        meta = _by_place(self._frame)
        if numeric_only:
            meta = meta.select_dtypes(["number", "bool"], exclude=["timedelta"])
        return self._only(meta)

    def _numbers(self) -> tuple[Any, list[Column]]:
        """Return the frame of the columns of numbers, and these columns; raise without any."""
        meta = _by_place(self._frame).select_dtypes("number", exclude=["timedelta"])
        if not len(meta.columns):
            raise TypeError(
                "the frame has no column of integers or floats to describe: its "
                "dtypes are "
                f"{', '.join(sorted(set(map(str, self._frame._meta.dtypes))))}"
            )
        return self._only(meta)

    def _only(self, meta: Any) -> tuple[Any, list[Column]]:
        """Return the frame of some columns, given by their places, and these columns.

        dask cannot separate columns that share a name: then all columns are read.
        """
        names, places = self._frame._meta.columns, list(meta.columns)
        frame = self._frame
        if names.is_unique:
            frame, places = frame[list(names[places])], list(range(len(places)))
        metas = [frame._meta.iloc[:, place] for place in places]
        return frame, [Column.of(own, place) for own, place in zip(metas, places, strict=True)]


def _by_place(frame: Any) -> Any:
    """Return the meta of a frame with the places of its columns as names."""
    meta = frame._meta
    return meta.set_axis(range(len(meta.columns)), axis=1)


def _check_axis(axis: int | str) -> None:
    """Raise unless the axis is that of the rows."""
    if axis not in (0, "index"):
        raise ValueError(
            f"axis must be 0, not {axis!r}: for rows, type df.quantile(q, axis=1), which is exact"
        )


# --- Questions ------------------------------------------------------------------------------------


def _quantiles(
    frame: Any, columns: list[Column], q: Any, method: Method, *, skipna: bool = True
) -> Any:
    """Ask for quantiles of some columns, or for medians, in the form of pandas' answers."""
    label = "median" if method is MEDIAN else "quantile"
    given, is_scalar = probabilities(q)
    wanted = tuple(given.tolist())
    questions = [
        ColumnQuantiles.of(wanted, method, column.dtype, skips_missing=skipna) for column in columns
    ]
    answers = _ask(frame, columns, questions, elements if skipna else rows, label)
    name = wanted[0] if is_scalar and method is not MEDIAN else None
    finish = partial(
        _as_quantiles,
        columns=columns,
        names=_names(frame, columns),
        q=wanted,
        is_scalar=is_scalar,
        name=name,
    )
    # Typical answers, for the meta: zeros of the dtypes of the answers.
    meta = finish([np.zeros(len(wanted), question.dtype) for question in questions])
    return lazily(answers, finish, _empty(meta), label)


def _describe(frame: Any, columns: list[Column], percentiles: Sequence[float] | None) -> Any:
    """Ask for the description of some columns."""
    for column in columns:
        if column.dtype.kind not in "iuf":
            raise TypeError(f"describe needs columns of integers or floats, not {column.kind}")
    # pandas checks, sorts and names the percentiles.
    index = list(pd.Series([0.0, 1.0]).describe(percentiles=percentiles).index)
    shares = {0.25, 0.5, 0.75} if percentiles is None else set(map(float, percentiles))
    if len(index) > 5 + len(shares):  # pandas before 3 adds the median
        shares.add(0.5)
    q = (0.0, *sorted(shares), 1.0)
    linear = check_method("linear")
    how = {"skips_missing": True, "is_described": True}
    questions = [ColumnQuantiles.of(q, linear, column.dtype, **how) for column in columns]
    answers = _ask(frame, columns, questions, elements, "describe")
    finish = partial(_as_description, columns=columns, names=_names(frame, columns), index=index)
    meta = finish([(1, 0.0, 0.0, np.zeros(len(q))) for _ in columns])
    return lazily(answers, finish, _empty(meta), "describe")


def _describe_boxplot(frame: Any, columns: list[Column], how: dict[str, Any]) -> Boxplot:
    """Ask for the boxes of some columns."""
    if "axis" in how:
        raise TypeError(
            "axis is not supported: a box describes all elements of a column; leave out axis"
        )
    arrays = numbers_as_arrays(frame, columns)
    names = _names(frame, columns)
    given: Any = dict(zip(map(str, names), arrays, strict=True))
    if len(given) < len(arrays):
        given, how = arrays, {"labels": list(map(str, names))} | how
    elif frame.ndim == 1 and frame.name is None:
        given = arrays
    return boxplot.describe_boxplot(given, **how)


def _ask(
    frame: Any,
    columns: list[Column],
    questions: Sequence[Question],
    take: Callable[..., Any],
    label: str,
) -> list[Any]:
    """Ask a question about each column, whose elements are taken by a function, in shared loads."""
    wanted = [(column.place, partial(take, dtype=column.dtype)) for column in columns]
    arrays = columns_as_arrays(frame, wanted)
    return ask_each(
        [
            Asking(as_accompanied(array), question, (0,))
            for array, question in zip(arrays, questions, strict=True)
        ],
        label,
    )


# --- Answers in pandas' form ----------------------------------------------------------------------


def _names(frame: Any, columns: Sequence[Column]) -> Any:
    """Return an index of the names of some columns; for a Series its own name."""
    if frame.ndim == 1:
        return pd.Index([frame.name])
    return frame._meta.columns[[column.place for column in columns]]


def _as_quantiles(
    values: list[Any],
    columns: list[Column],
    names: Any,
    q: tuple[float, ...],
    is_scalar: bool,
    name: Hashable,
) -> Any:
    """Return quantiles in the form of pandas' answer."""
    answers = [column.answered(each, len(q)) for column, each in zip(columns, values, strict=True)]
    index = pd.Index(q, dtype=np.float64)
    result = _framed(answers, columns, names, index)
    if not is_scalar:
        return result
    return result.iloc[0].rename(name) if result.ndim == 2 else result.iloc[0]


def _as_description(
    described: list[Described], columns: list[Column], names: Any, index: list[str]
) -> Any:
    """Return descriptions in the form of pandas' answer."""
    answers = []
    for column, (n, mean, std, values) in zip(columns, described, strict=True):
        rest = [None] * (len(index) - 3) if values is None else values.tolist()
        numbers = pd.array([n, mean, std, *rest], dtype=float_kind(column.kind))
        answers.append(pd.Series(numbers))
    return _framed(answers, columns, names, pd.Index(index))


def _framed(answers: list[Any], columns: list[Column], names: Any, index: Any) -> Any:
    """Return the answers about columns as a Series or a DataFrame."""
    if len(columns) == 1 and columns[0].place is None:  # a Series
        return answers[0].set_axis(index).rename(names[0])
    frame = pd.DataFrame(dict(enumerate(answers))).set_axis(index)
    return frame.set_axis(names, axis=1)


def _empty(result: Any) -> Any:
    """Return the meta of a result."""
    return result.iloc[:0] if isinstance(result, pd.Series | pd.DataFrame) else result


# --- In place of dask's methods -------------------------------------------------------------------


@replaces("quantile", dd.Series, dd.DataFrame)
def quantile(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace dask's `quantile`.

    dask's own answers for rows (``axis=1``), and if an approximate method is asked for.
    """
    if len(args) > len(_ORDER[self.ndim]):
        return original(self, *args, **kwargs)  # which raises
    arguments = dict(zip(_ORDER[self.ndim], args, strict=False)) | kwargs
    method = arguments.pop("method", "default")
    if method in ("dask", "tdigest") or arguments.get("axis", 0) not in (0, "index"):
        return original(self, *args, **kwargs)
    if method != "default":
        arguments["method"] = method
    try:
        return _exact(self).quantile(**arguments)
    except TypeError as error:
        with suppress(TypeError):  # dask has no answer either
            original(self, *args, **kwargs)  # may raise another error
            error = approximate_instead(error, 'method="dask"')
        raise error


_ORDER = {1: ("q", "method"), 2: ("q", "axis", "numeric_only", "method")}
"""Positional arguments of dask's own methods, by the dimensions of the collection."""


@replaces("median", dd.Series, dd.DataFrame)
def median(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace dask's `median`, which raises for columns.

    dask's own answers for rows (``axis=1``).
    """
    arguments = dict(zip(("axis", "numeric_only"), args, strict=False)) | kwargs
    if arguments.get("axis", 0) not in (0, "index"):
        return original(self, *args, **kwargs)
    return _exact(self).median(**arguments)


@replaces("describe", dd.Series, dd.DataFrame)
def describe(
    original: Any,
    self: Any,
    split_every: Any = False,
    percentiles: Any = None,
    percentiles_method: str = "default",
    include: Any = None,
    exclude: Any = None,
) -> Any:
    """Replace dask's `describe` for columns of numbers.

    dask's own answers for other columns, with a warning if it is approximate.
    """
    own = partial(original, self, split_every, percentiles, percentiles_method, include, exclude)
    if percentiles_method != "default":
        return own()
    meta = self._meta.to_frame() if self.ndim == 1 else self._meta
    numbers = meta.select_dtypes("number", exclude=["timedelta"])
    dates = meta.select_dtypes(["datetime", "datetimetz", "timedelta"])
    is_all = len(numbers.columns) == len(meta.columns) if self.ndim == 1 else not len(dates.columns)
    if include is None is exclude and len(numbers.columns) and is_all:
        return _exact(self).describe(percentiles)
    if len(numbers.columns) or len(dates.columns):
        warnings.warn(
            "dask computes describe() of this collection, and its percentiles are approximate: "
            "type x.exact.describe() for exact ones of the columns of numbers",
            stacklevel=3,
        )
    return own()


def _exact(collection: Any) -> Any:
    """Return the accessor of a Series or a DataFrame."""
    return (ExactDataFrame if collection.ndim == 2 else ExactSeries)(collection)


register_series_accessor("exact")(ExactSeries)
register_dataframe_accessor("exact")(ExactDataFrame)
