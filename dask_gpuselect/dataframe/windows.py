"""Moving windows of dask's Series and DataFrames: ``s.exact.rolling(30)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from dask_gpuselect.arguments import check_known, public
from dask_gpuselect.engine.frames import Column
from dask_gpuselect.engine.row_halos import RowReach, bounds, with_rows_around
from dask_gpuselect.maths.windows import RowWindows
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.quantiles.documentation import as_method
from dask_gpuselect.windows import Rolling, rolling


@dataclass(frozen=True)
class RowsOf:
    """Say which rows the windows of a frame hold.

    Parameters
    ----------
    window : int or Timedelta
        A number of rows, or a span of the index.
    min_periods : int
    center : bool
    closed : str or None
    """

    window: Any
    min_periods: int
    center: bool
    closed: str | None

    @classmethod
    def of(
        cls, meta: Any, window: Any, min_periods: int | None, center: bool, closed: str | None
    ) -> RowsOf:
        """Check how windows of a frame are given, by an empty part of it."""
        if not isinstance(window, str | timedelta | np.timedelta64 | pd.offsets.BaseOffset):
            least = window if min_periods is None else min_periods
            rolling(np.empty(0), window, center=center, min_periods=least, closed=closed)
            return cls(int(window), least, center, closed)
        if not isinstance(meta.index, pd.DatetimeIndex | pd.TimedeltaIndex):
            kind = meta.index.dtype
            raise TypeError(
                f"windows of time need an index of dates or durations, not {kind}: type "
                "df.set_index(...) first, or pass a number of rows"
            )
        rolling(np.empty(0), 2, closed=closed)  # raises for what makes no sense
        try:
            span = _span(window).as_unit(meta.index.unit)  # rounded, as by pandas
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f'window must be rows or a fixed time, such as "7D", not {window!r}'
            ) from error
        if span <= pd.Timedelta(0):
            raise ValueError(f"window must be a time above 0, not {window!r}")
        return cls(span, 1 if min_periods is None else min_periods, center, closed)

    @property
    def reach(self) -> RowReach:
        """The reach of windows from their row."""
        if isinstance(self.window, pd.Timedelta):
            half = (self.window / 2).ceil(self.window.unit) if self.center else 0
            return RowReach(self.window, half)
        (halo,) = rolling(np.empty(0), self.window, center=self.center, closed=self.closed).reaches
        return RowReach(max(halo.before, 0), max(halo.after, 0))

    def windows(self, values: Any, index: Any) -> Rolling:
        """Move the windows over a column of some rows."""
        if not isinstance(self.window, pd.Timedelta):
            how: dict[str, Any] = {"center": self.center, "closed": self.closed}
            return rolling(values, self.window, min_periods=self.min_periods, **how)
        ends = bounds(index, self.window, self.closed or "right", center=self.center)
        return Rolling(values, RowWindows(*ends), (self.min_periods, self.min_periods), None, None)


def _span(window: Any) -> pd.Timedelta:
    """Return a fixed time; raise for one whose length depends on the date, such as a month."""
    if isinstance(window, np.timedelta64):
        return pd.Timedelta(window)
    # pandas 3.0 refuses `pd.Timedelta(offset)` of days, which `rolling` accepts.
    return pd.Timedelta(pd.tseries.frequencies.to_offset(window).nanos)


def _statistic(function: Callable[..., Any], statistic: str) -> Callable[..., Any]:
    """Return the method for a statistic of each window."""

    @public()
    def method(self: ExactFrameRolling, **how: Any) -> Any:
        return self._ask(function.__name__, **how)

    summary = f"Return the {statistic} of each window."
    return as_method(method, function, "ExactFrameRolling", summary)


class ExactFrameRolling(Advising):
    """Moving windows of a dask Series or DataFrame, made by ``df.exact.rolling(30)``.

    Missing elements are left out. The answer of a window with fewer than `min_periods` other
    elements is NaN. Answers are float64, or float32 for float32 columns. They have the index and
    the partitions of the frame.

    Parameters
    ----------
    frame : dask Series or DataFrame
        The columns whose windows are wanted.
    columns : sequence of Column
        What is known of each column.
    rows : RowsOf
        The rows of each window.

    See Also
    --------
    ExactSeries.rolling : Makes it.
    dask_gpuselect.windows.rolling : Moving windows of dask arrays.

    Notes
    -----
    Each partition is read once, for all columns of a call.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_gpuselect.dataframe
    >>> s = dd.from_pandas(pd.Series([5.0, 1.0, 4.0, 9.0]), npartitions=2)
    >>> s.exact.rolling(3, min_periods=2).median().compute().tolist()
    [nan, 3.0, 4.0, 4.0]
    """

    def __init__(self, frame: Any, columns: Sequence[Column], rows: RowsOf) -> None:
        for column in columns:
            if column.dtype.kind not in "biuf":
                raise TypeError(
                    f"rolling windows need numbers, not {column.kind}: for a DataFrame pass "
                    "numeric_only=True, which leaves such columns out"
                )
        self._frame, self._columns, self._rows = frame, tuple(columns), rows

    def __repr__(self) -> str:
        return f"<exact statistics of windows of {self._rows.window} of {self._frame!r}>"

    def _advice(self, name: str) -> str:
        own = its_own(type(self._frame.rolling(1)), name, "df.rolling(window)")
        return own or super()._advice(name)

    median = _statistic(Rolling.median, "median")
    mad = _statistic(Rolling.mad, "median absolute deviation")
    iqr = _statistic(Rolling.iqr, "interquartile range")
    min = _statistic(Rolling.min, "least element")
    max = _statistic(Rolling.max, "largest element")

    @public()
    def quantile(self, q: Any, *, method: str = "linear") -> Any:
        """Return quantiles of each window, by one of the methods of ``numpy.quantile``.

        Parameters
        ----------
        q : float or 1-D array_like of floats
            In [0, 1]. Several q of a Series make a DataFrame with a column for each; a DataFrame
            takes one.
        method : str, default "linear"
            One of the thirteen methods of ``numpy.quantile``.

        Returns
        -------
        dask Series or DataFrame
            With the index and the partitions of the frame.
        """
        check_known(q, "q")
        if np.ndim(q) and self._frame.ndim == 2:
            raise ValueError(
                f"q must be a scalar for a DataFrame, not {q}: for several quantiles select a "
                "column, as df['v'].exact.rolling(3).quantile([0.1, 0.9])"
            )
        rolling(np.empty(0), 1).quantile(q, method=method)  # raises for what makes no sense
        several = tuple(np.asarray(q, np.float64).tolist()) if np.ndim(q) else None
        q = float(q) if several is None else several
        return self._ask("quantile", several, q=q, method=method)

    def _ask(self, name: str, several: tuple[float, ...] | None = None, **how: Any) -> Any:
        """Ask for a statistic of every column that leaves out missing elements."""
        answer = partial(
            _answered,
            columns=self._columns,
            windows=self._rows,
            name=f"nan{name}",
            how=how,
            several=several,
        )
        meta = answer(self._frame._meta, 0, 0)
        return with_rows_around(answer, f"rolling-{name}", self._frame, self._rows.reach, meta)


def _answered(
    rows: Any,
    start: int,
    stop: int,
    *,
    columns: tuple[Column, ...],
    windows: RowsOf,
    name: str,
    how: dict[str, Any],
    several: tuple[float, ...] | None,
) -> Any:
    """Answer the windows of some rows, from the number `start` to before `stop`."""
    index = rows.index[start:stop]
    by_column = []
    for column in columns:
        given = rows if column.place is None else rows.iloc[:, column.place]
        dtype = column.dtype if column.dtype == np.float32 else np.dtype(np.float64)
        values = given.to_numpy(dtype=dtype, na_value=np.nan)
        answers = getattr(windows.windows(values, rows.index), name)(**how)
        by_column.append(answers[..., start:stop].astype(dtype, copy=False))
    if columns and columns[0].place is None:
        (answers,) = by_column
        if several is None:
            return pd.Series(answers, index, name=rows.name)
        return pd.DataFrame(answers.T, index, pd.Index(several, dtype=np.float64))
    frame = pd.DataFrame(dict(enumerate(by_column)), index)
    return frame.set_axis(rows.columns[[column.place for column in columns]], axis=1)
