"""Moving windows of dask's Series and DataFrames, beside pandas."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import dask_gpuselect.dataframe  # noqa: F401 -- registers `exact`
from dask_gpuselect.kernels import compiling

RANDOM = np.random.default_rng(7)
VALUES = RANDOM.integers(0, 50, 90).astype("f8")
VALUES[RANDOM.random(90) < 0.1] = np.nan
SERIES = pd.Series(VALUES, pd.date_range("2026-01-01", periods=90), name="n")


def frame(unit: str = "ns") -> pd.DataFrame:
    """Rows at irregular hours, some at the same."""
    hours = np.sort(np.random.default_rng(8).integers(0, 70, 60))
    index = pd.DatetimeIndex(pd.to_datetime("2026-01-01") + pd.to_timedelta(hours, "h"))
    columns = {"a": VALUES[:60], "b": np.arange(60)[::-1].astype("f4") % 17, "c": np.arange(60) % 7}
    return pd.DataFrame(columns, index.as_unit(unit))


def divided(rows: Any, sizes: list[int]) -> Any:
    """A lazy frame of partitions of such sizes."""
    ends = np.cumsum([0, *sizes])
    parts = [rows.iloc[i:j] for i, j in itertools.pairwise(ends.tolist())]
    return dd.from_map(lambda part: part, parts, meta=rows.iloc[:0])


@pytest.mark.parametrize("sizes", [[60], [*[1] * 9, 51], [0, 3, 0, 0, 20, 37, 0]])
@pytest.mark.parametrize("window", [8, "7h", "1h", "90D"])
@pytest.mark.parametrize("closed", ["right", "left", "both", "neither"])
def test_frames_of_any_partitions(sizes: list[int], window: Any, closed: str) -> None:
    df = frame("s" if closed == "both" else "ns")
    if closed in ("left", "neither"):
        df = df[~df.index.duplicated()]  # of which pandas before 3 has other windows
        sizes = [min(sizes[0], len(df)), *sizes[1:]]
    kinds = {"d": df["a"].astype("Int64"), "e": df["a"].astype("double[pyarrow]")}
    df, lazy = df.assign(d=df["a"], e=df["a"]), divided(df.assign(**kinds), sizes)
    for least in (1, 3):
        how: dict[str, Any] = {"closed": closed, "min_periods": least}
        theirs, ours = df.rolling(window, **how), lazy.exact.rolling(window, **how)
        for actual, expected in (
            (ours.median(), theirs.median()),
            (ours.quantile(0.3), theirs.quantile(0.3)),
            (ours.quantile(0.3, method="higher"), theirs.quantile(0.3, interpolation="higher")),
            (ours.max(), theirs.max()),
            (ours.iqr(), theirs.quantile(0.75) - theirs.quantile(0.25)),
        ):
            answer = actual.compute()
            assert actual.npartitions == len(sizes)
            assert answer.dtypes.to_list() == actual.dtypes.to_list() == ["f8", "f4", *["f8"] * 3]
            expected = expected.astype(dict(zip("abcde", answer.dtypes, strict=True)))
            pd.testing.assert_frame_equal(answer, expected, check_freq=False)


@pytest.mark.parametrize("window", [9, "7h"])
def test_windows_around_their_row(window: Any) -> None:
    df = frame()
    theirs = df.rolling(window, center=True, min_periods=1).median()
    actual = divided(df, [30, 3, 2, 25]).exact.rolling(window, center=True, min_periods=1).median()
    pd.testing.assert_frame_equal(actual.compute(), theirs.astype({"b": "f4"}), check_freq=False)
    short = divided(df, [1] * 60).exact.rolling(window * 2, center=True).median()
    with pytest.raises(ValueError, match=r"beyond the 4 partitions .* df.repartition"):
        short.compute(scheduler="sync")


FIXED = ["D", "3D", "2h", "90min", "3D12h", pd.Timedelta("3D"), timedelta(days=3)]
FIXED += [pd.offsets.Day(3), pd.offsets.Hour(30), np.timedelta64(3, "D")]


@pytest.mark.parametrize("window", FIXED, ids=repr)
def test_every_fixed_time_of_pandas(window: Any) -> None:
    df = frame()
    actual = divided(df, [30, 30]).exact.rolling(window).median().compute()
    theirs = pd.Timedelta(window) if isinstance(window, np.timedelta64) else window
    expected = df.rolling(theirs).median().astype({"b": "f4"})
    pd.testing.assert_frame_equal(actual, expected, check_freq=False)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("window", ["1s", "1500ms", "2500ms", "2600ms", "1h1ms"])
def test_times_finer_than_the_index(window: str, center: bool) -> None:
    """They are rounded to its unit, as by pandas."""
    seconds = pd.date_range("2026-01-01", periods=40, freq="s").as_unit("s")
    s = pd.Series(VALUES[:40], seconds)
    how: dict[str, Any] = {"center": center, "closed": "both"}
    actual = divided(s, [20, 5, 15]).exact.rolling(window, **how).median().compute()
    pd.testing.assert_series_equal(actual, s.rolling(window, **how).median(), check_freq=False)


def test_weeks_are_no_fixed_times() -> None:
    lazy = divided(frame(), [30, 30])
    for window in ("W", "3B", "MS", "1000000D", pd.offsets.Week(2)):
        with pytest.raises(ValueError, match='a fixed time, such as "7D", not'):
            lazy.exact.rolling(window)


def deviation(x: NDArray[Any]) -> Any:
    return np.nanmedian(abs(x - np.nanmedian(x)))


@pytest.mark.parametrize("large", [0, np.inf])
def test_kernels_of_windows_of_time(large: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few rows and many; an index of durations; deviations."""
    monkeypatch.setattr(compiling, "LARGE", large)
    rows = RANDOM.integers(-500, 500, 3000).astype("f8")
    rows[RANDOM.random(3000) < 0.05] = np.nan
    index = pd.to_timedelta(np.cumsum(RANDOM.integers(0, 4, 3000)), "min")
    s = pd.Series(rows, index)
    exact = dd.from_pandas(s, npartitions=3).exact
    for window in ("9min", "400min"):
        actual = exact.rolling(window, min_periods=2).quantile([0.1, 0.5]).compute()
        theirs = s.rolling(window, min_periods=2)
        assert actual.columns.to_list() == [0.1, 0.5]
        np.testing.assert_allclose(actual[0.1], theirs.quantile(0.1), rtol=1e-12)
        np.testing.assert_array_equal(actual[0.5], theirs.median())
        mad = exact.rolling(window).mad(scale=1.0).compute()
        np.testing.assert_array_equal(mad, s.rolling(window).apply(deviation, raw=True))


def test_partitions_are_read_once() -> None:
    reads: list[int] = []

    def read(i: int) -> pd.Series:
        reads.append(i)
        return SERIES.iloc[30 * i : 30 * i + 30]

    s = dd.from_map(read, range(3), meta=SERIES.iloc[:0])
    result = s.exact.rolling(5, center=True)
    assert not reads
    result.mad(scale=1.0).compute(scheduler="sync")
    assert sorted(reads) == [0, 1, 2]
    s.exact.rolling("70D").quantile([0.1, 0.5]).compute(scheduler="sync")
    assert sorted(reads) == [0, 0, 1, 1, 2, 2]


def test_rows_in_no_order_are_refused_and_dates_left_out() -> None:
    unordered = dd.from_map(lambda s: s, [SERIES.iloc[50:], SERIES.iloc[:50]])
    with pytest.raises(ValueError, match="need an ascending index"):
        unordered.exact.rolling("3D").median().compute(scheduler="sync")
    mixed = dd.from_pandas(frame().assign(d=frame().index), npartitions=2)
    assert list(mixed.exact.rolling(3, numeric_only=True).max().columns) == ["a", "b", "c"]
