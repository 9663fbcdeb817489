"""Moving windows of dask's Series, beside pandas."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_gpuselect.dataframe  # noqa: F401 -- registers `exact`

RANDOM = np.random.default_rng(7)
VALUES = RANDOM.integers(0, 50, 90).astype("f8")
VALUES[RANDOM.random(90) < 0.1] = np.nan
INDEX = pd.date_range("2026-01-01", periods=90)


def series(dtype: str) -> pd.Series:
    return pd.Series(VALUES, INDEX, name="n").astype(dtype)


@pytest.mark.parametrize("how", [{}, {"center": True, "min_periods": 3}, {"closed": "left"}])
@pytest.mark.parametrize("dtype", ["f8", "f4", "Int64", "double[pyarrow]"])
def test_windows_are_those_of_pandas(dtype: str, how: dict[str, Any]) -> None:
    s = series(dtype)
    found = dd.from_pandas(s, npartitions=5).exact.rolling(8, **how)
    theirs = s.astype("f4" if dtype == "f4" else "f8").rolling(8, **how)
    for ours, expected in (
        (found.median(), theirs.median()),
        (found.quantile(0.3), theirs.quantile(0.3)),
        (found.quantile(0.3, method="lower"), theirs.quantile(0.3, interpolation="lower")),
        (found.max(), theirs.max()),
        (found.iqr(), theirs.quantile(0.75) - theirs.quantile(0.25)),
    ):
        answer = ours.compute()
        assert answer.dtype == ours.dtype == ("f4" if dtype == "f4" else "f8")
        pd.testing.assert_series_equal(answer, expected.astype(answer.dtype), check_freq=False)


def test_partitions_are_read_once() -> None:
    reads: list[int] = []

    def read(i: int) -> pd.Series:
        reads.append(i)
        return series("f8").iloc[30 * i : 30 * i + 30]

    s = dd.from_map(read, range(3), meta=series("f8").iloc[:0])
    found = s.exact.rolling(5, center=True)
    assert not reads
    found.mad(scale=1.0).compute(scheduler="sync")
    assert sorted(reads) == [0, 1, 2]


def test_what_makes_no_sense_is_refused() -> None:
    exact = dd.from_pandas(series("f8"), npartitions=2).exact
    with pytest.raises(ValueError, match="window must be 1 or more"):
        exact.rolling(0)
    with pytest.raises(ValueError, match="q must be a scalar"):
        exact.rolling(3).quantile([0.5])
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\]"):
        exact.rolling(3).quantile(8)
    dates = pd.Series(INDEX, name="d")
    with pytest.raises(TypeError, match="need a Series of numbers, not of datetime64"):
        dd.from_pandas(dates, npartitions=2).exact.rolling(3)
