"""Moving windows of dask's Series: ``s.exact.rolling(30)``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from dask_gpuselect.arguments import public
from dask_gpuselect.engine.frames import Column
from dask_gpuselect.quiet import quietly
from dask_gpuselect.windows import rolling


class ExactSeriesRolling:
    """Exact statistics of moving windows of a dask Series, as of pandas' ``s.rolling(30)``.

    Missing elements are left out. The answer for a window with fewer than `min_periods` others is
    NaN. Answers are float64, and float32 for float32, with the index and the partitions of the
    Series.

    Parameters
    ----------
    series : dask Series
        A Series of numbers.
    window : int
        Number of rows of a window.
    min_periods : int, optional
        Number of rows that must not be missing; by default `window`.
    center : bool
        True if a window lies around its row instead of ending with it.
    closed : str, optional
        The ends that a window includes.
    """

    def __init__(
        self, series: Any, window: int, min_periods: int | None, center: bool, closed: str | None
    ) -> None:
        kind = Column.of(series._meta).dtype
        if kind.kind not in "biuf":
            raise TypeError(f"rolling windows need a Series of numbers, not of {kind}")
        self._series = series
        self._dtype = kind if kind == np.float32 else np.dtype(np.float64)
        least = window if min_periods is None else min_periods
        self._how: dict[str, Any] = {"center": center, "min_periods": least, "closed": closed}
        self._window = window
        (self._reach,) = rolling(np.empty(0), window, **self._how)._reaches

    def __repr__(self) -> str:
        return f"<exact statistics of windows of {self._window} of {self._series!r}>"

    def median(self) -> Any:
        """Return the median of each window."""
        return self._asked("nanmedian")

    @public()
    def quantile(self, q: float, *, method: str = "linear") -> Any:
        """Return a quantile of each window, by a method of ``numpy.quantile``."""
        if np.ndim(q):
            raise ValueError(
                f"q must be a scalar, not of shape {np.shape(q)}: call quantile once for each q"
            )
        rolling(np.empty(0), 1).quantile(
            q, method=method
        )  # raises for arguments that are not allowed
        return self._asked("nanquantile", q=q, method=method)

    @public()
    def mad(self, *, scale: float | str = "normal") -> Any:
        """Return the median absolute deviation of each window: `dask_gpuselect.robust.mad`."""
        return self._asked("nanmad", scale=scale)

    @public()
    def iqr(self, *, method: str = "linear") -> Any:
        """Return the interquartile range of each window."""
        return self._asked("naniqr", method=method)

    def min(self) -> Any:
        """Return the minimum of each window."""
        return self._asked("nanmin")

    def max(self) -> Any:
        """Return the maximum of each window."""
        return self._asked("nanmax")

    def _asked(self, name: str, **asked: Any) -> Any:
        """Ask for a statistic of windows that reach into neighbouring partitions."""
        ask = partial(_answered, window=self._window, how=self._how, name=name, asked=asked)
        meta = pd.Series(np.empty(0, self._dtype), self._series._meta.index, name=self._series.name)
        before, after = (max(n, 0) for n in (self._reach.before, self._reach.after))
        part = partial(ask, dtype=self._dtype)
        return self._series.map_overlap(quietly(part), before, after, meta=meta)


def _answered(
    column: Any, *, window: int, how: Any, name: str, asked: Any, dtype: np.dtype[Any]
) -> pd.Series:
    """Return the statistic of the windows of some rows."""
    rows = column.to_numpy(dtype=dtype, na_value=np.nan)
    found = getattr(rolling(rows, window, **how), name)(**asked)
    return pd.Series(found.astype(dtype, copy=False), column.index, name=column.name)
