"""Time and reads of robust fits, beside one pass of least squares over the same rows.

Sizes are those of the claims in RESULTS.md; ``BENCH_SHRINK`` divides them. A load costs nothing
where time is measured: chunks are views of rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_gpuselect.robust import LeastMedianOfSquares, LeastTrimmedSquares

from .common import THREADS, Floats, Seconds, shrunk, unit

ROWS, COLUMNS, CHUNKS = 10_000_000, 5, 16
SHARES = (0.0, 0.45)  # of outliers

ESTIMATORS: Mapping[str, type[Any]] = {
    "least trimmed squares": LeastTrimmedSquares,
    "least median of squares": LeastMedianOfSquares,
}


def contaminated(
    n: int, p: int, share: float, dtype: str = "f8", seed: int = 2006
) -> tuple[Floats, Floats]:
    """Rows of the plane ``1 + x_1 + 2 x_2 ...`` with normal errors, and a cluster of bad leverage
    points."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, p))
    y = x @ np.arange(1, p + 1) + 1 + random.standard_normal(n)
    is_bad = random.random(n) < share
    x[is_bad] += 5
    y[is_bad] = -50
    return x.astype(dtype, copy=False), y.astype(dtype, copy=False)


# asv sets up again before each sample.
rows_of = lru_cache(maxsize=1)(contaminated)


def in_chunks(x: Floats, y: Floats, chunks: int) -> tuple[da.Array, da.Array]:
    size = -(-len(x) // chunks)
    return da.from_array(x, chunks=(size, -1)), da.from_array(y, chunks=size)


def least_squares(x: Any, y: Any) -> Any:
    """The normal equations, which are one pass."""
    both = (x.T @ x, x.T @ y)
    return dask.compute(*both) if isinstance(x, da.Array) else both


def fitted(name: str, x: Any, y: Any) -> Any:
    return ESTIMATORS[name](random_state=0).fit(x, y)


@cache
def compile_rows() -> None:
    rows = in_chunks(*contaminated(70_000, COLUMNS, 0.1), 2)
    for name in ESTIMATORS:
        fitted(name, *rows)


class Regression(Seconds):
    """Ten million rows of five columns."""

    params = (("least squares", *ESTIMATORS), SHARES)
    param_names = ("fit", "outliers")

    def setup(self, fit: str, outliers: float) -> None:
        compile_rows()
        n = max(shrunk(ROWS), 2_000)
        self.rows = in_chunks(*rows_of(n, COLUMNS, outliers), CHUNKS)
        calls: Mapping[str, Callable[..., Any]] = {"least squares": least_squares}
        self.call = calls.get(fit, lambda x, y: fitted(fit, x, y))

    def time_fit(self, fit: str, outliers: float) -> None:
        with dask.config.set(scheduler="threads", num_workers=THREADS):
            self.call(*self.rows)

    @unit("reads")
    def track_loads(self, fit: str, outliers: float) -> int:
        result = self.call(*self.rows)
        return int(getattr(result, "n_passes_", 1))
