"""Exact order statistics of dask.dataframe's collections, beside pandas' own."""

from __future__ import annotations

import importlib
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.dataframe.utils import assert_eq
from pandas.testing import assert_frame_equal, assert_series_equal

import dask_gpuselect.dataframe  # noqa: F401 -- registers the accessors
from dask_gpuselect import describe_boxplot, enable
from dask_gpuselect.engine import frames
from dask_gpuselect.optional import after_import
from tests.data import hashed
from tests.processes import python

PARTITIONS, ROWS = 4, 500
Q = [0.25, 0.5, 0.75]

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")

NUMBERS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
SOME = [3, None, 4, 1, None, 9, 2, 6, 5, 3, 5]
DATES = pd.to_datetime(["2020-01-01", None, "1969-12-31", "2021-03-28", "2020-06-01"] * 2)

COLUMNS: dict[str, pd.Series] = {
    **{kind: pd.Series(NUMBERS, dtype=kind) for kind in ("int8", "int64", "uint64", "float64")},
    "nan": pd.Series(SOME, dtype="float64"),
    **{
        kind: pd.Series(SOME, dtype=kind)
        for kind in ("Int64", "UInt8", "Float32", "Float64", "int16[pyarrow]", "double[pyarrow]")
    },
    "dates": pd.Series(DATES).dt.as_unit("ms"),
    "time zone": pd.Series(DATES).dt.tz_localize("Europe/Berlin").dt.as_unit("ms"),
    "differences": pd.Series(DATES - DATES[0]).dt.as_unit("ms"),
    "timestamp[ms][pyarrow]": pd.Series(DATES).astype("timestamp[ms][pyarrow]"),
}


class Counting:
    """Reads a partition of a frame, and counts how often it does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[int] = Counter()
        self.columns: set[str] = set()

    def __call__(self, i: int, columns: list[str] | None = None) -> pd.DataFrame:
        with self.lock:
            self.counts[i] += 1
            self.columns.update(columns or list("abcs"))
        frame = partition(i)
        return frame if columns is None else frame[columns]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, id(self)

    def lazy(self) -> Any:
        return dd.from_map(self, range(PARTITIONS), meta=partition(0).iloc[:0])

    @property
    def loads(self) -> list[int]:
        return [self.counts[i] for i in range(PARTITIONS)]


def partition(i: int) -> pd.DataFrame:
    numbers = hashed(np.arange(ROWS) + ROWS * i)
    b = pd.Series((numbers * 1e6).astype("i8"), dtype="Int64")
    b[::7] = None
    return pd.DataFrame(
        {"a": numbers, "b": b, "c": (numbers * 50).astype("i4"), "s": pd.Series(["s"] * ROWS)}
    )


def whole() -> pd.DataFrame:
    return pd.concat([partition(i) for i in range(PARTITIONS)])


def same(actual: Any, expected: Any) -> None:
    """Equal, of the same type, or both missing."""
    if expected is pd.NA or expected is pd.NaT:
        assert actual is expected
        return
    assert actual == expected or (actual != actual and expected != expected)  # noqa: PLR0124
    assert type(actual) is type(expected)


# --- Quantiles ------------------------------------------------------------------------------------


def test_quartiles_of_uneven_shards() -> None:
    whole = pd.Series(range(1, 101), name="n")
    shards = dd.from_delayed(
        [dask.delayed(whole[part]) for part in (slice(33), slice(33, 66), slice(66, 100))],
        meta=whole[:0],
    )
    result = shards.exact.quantile(Q)
    assert shards.quantile(Q).compute().tolist() != [25.75, 50.5, 75.25]
    assert abs(shards.quantile(0.25).compute() - 25.75) > 5
    assert shards.exact.quantile(0.25).compute() == 25.75
    assert_series_equal(result.compute(), whole.quantile(Q))
    assert_eq(result, whole.quantile(Q), check_divisions=False)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_quantiles_are_those_of_pandas(kind: str, interpolation: str) -> None:
    s = COLUMNS[kind].rename("x")
    q = [0.9, 0.3, 0.5, 0.5, 0.0, 1.0]
    expected = s.quantile(q, interpolation=interpolation)
    actual = dd.from_pandas(s, npartitions=3).exact.quantile(q, interpolation=interpolation)
    assert actual.dtype == expected.dtype
    if kind == "timestamp[ms][pyarrow]":  # whose dates before 1970 are cut the other way
        expected, computed = expected.iloc[:4], actual.compute().iloc[:4]
        assert_series_equal(computed, expected)
    elif interpolation == "nearest" and "pyarrow" in kind:  # which rounds halves up
        assert_series_equal(
            actual.compute(),
            s.convert_dtypes().quantile(q, interpolation="nearest").astype(s.dtype),
        )
    else:
        assert_series_equal(actual.compute(), expected)
    expected = s.quantile([0.3], interpolation=interpolation).iloc[0]
    if kind in ("Int64", "UInt8") and interpolation in ("linear", "midpoint"):
        expected = np.float64(expected)  # which pandas makes an integer where it is whole
    actual = dd.from_pandas(s, npartitions=3).exact.quantile(0.3, interpolation=interpolation)
    same(actual.compute(), expected)


WIDE = pd.Series([2**62 + 1, 2**62 + 3, None], dtype="Int64")
BITS: list[tuple[Any, str, dict[float, int]]] = [
    (WIDE, "lower", {0.5: 2**62 + 1, 1.0: 2**62 + 3}),
    (pd.Series([2**64 - 1, 2**64 - 3], dtype="uint64"), "lower", {0: 2**64 - 3, 1: 2**64 - 1}),
    (np.array([2**60 + 1, 2**60 + 4], "M8[ns]"), "linear", {0.5: 2**60 + 2}),
    (np.array([-3, -2], "M8[ns]"), "linear", {0.5: -2}),
    *(
        (np.array([0, 10], dtype), "linear", {0.7: 7, 0.36: 4, 0.75: 8, 0.25: 2, 0.5: 5})
        for dtype in ("M8[s]", "m8[s]", "M8[ns]", "m8[ns]")
    ),
]
"""Elements, a method, and quantiles: between two dates the nearest unit."""


@pytest.mark.parametrize(("elements", "method", "wanted"), BITS)
def test_nothing_is_rounded_to_53_bits(
    elements: Any, method: str, wanted: dict[float, int]
) -> None:
    """Of a column, and of the groups of a frame."""
    x = dd.from_pandas(pd.DataFrame({"k": 1, "v": elements}), npartitions=2)
    for of in (x["v"].exact, x.exact.groupby("k")["v"]):
        actual = of.quantile([*wanted], method).compute()
        numbers = actual.to_numpy().view("i8") if actual.dtype.kind in "mM" else actual
        assert numbers.tolist() == [*wanted.values()]
        if method == "linear":
            both = (of.median().compute(), of.quantile(0.5).compute())
            median, half = (pd.Series([*np.atleast_1d(each)]).max() for each in both)
            assert median == half


def test_bool_elements_are_chosen_and_not_mixed() -> None:
    for kind in ("bool", "boolean", "bool[pyarrow]"):
        s = dd.from_pandas(pd.Series([True, False, True, True], dtype=kind), npartitions=2)
        assert s.exact.quantile(0.4, "lower").compute()
        assert s.exact.quantile([0.0], "lower").compute().dtype == kind
        with pytest.raises(TypeError, match="interpolate"):
            s.exact.quantile(0.5)


def test_frames_are_as_pandas_has_them() -> None:
    df = whole().drop(columns="s")
    x = dd.from_pandas(df, npartitions=4, sort=False)
    assert_frame_equal(x.exact.quantile(Q).compute(), df.quantile(Q))
    assert_series_equal(x.exact.quantile(0.3).compute(), df.quantile(0.3))
    assert_frame_equal(
        x.exact.quantile([0.5], interpolation="lower").compute(),
        df.quantile([0.5], interpolation="lower"),
    )
    for lazy in (x.exact.quantile(Q), x.exact.quantile(0.3), x.exact.median()):
        meta, computed = lazy._meta, lazy.compute()
        assert type(meta) is type(computed)
        np.testing.assert_equal(np.array(meta.dtypes), np.array(computed.dtypes))


def test_an_index_has_quantiles() -> None:
    index = dd.from_pandas(pd.DataFrame(index=pd.Index(NUMBERS, name="i")), npartitions=3).index
    expected = pd.Series(NUMBERS, name="i").quantile(Q)
    assert_series_equal(dask_gpuselect.dataframe.ExactSeries(index).quantile(Q).compute(), expected)


# --- Medians --------------------------------------------------------------------------------------


@pytest.mark.parametrize("skipna", [True, False])
@pytest.mark.parametrize("kind", [*COLUMNS, "bool", "boolean", "float16", "float32"])
def test_medians_are_those_of_pandas(kind: str, skipna: bool) -> None:
    s = COLUMNS[kind] if kind in COLUMNS else pd.Series([True, False, True, True], dtype=kind)
    actual = dd.from_pandas(s, npartitions=3).exact.median(skipna=skipna).compute()
    expected = s.median(skipna=skipna)
    if isinstance(expected, datetime):  # what pandas 2 makes of PyArrow's, and 3 a Timestamp
        expected = pd.Timestamp(expected)
    # Of NaN, pandas before 3.1 makes a Python float.
    expected = np.float64(expected) if kind == "nan" else expected
    same(actual, expected)


# --- Descriptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("percentiles", [None, [0.9, 0.1, 1 / 3], []])
@pytest.mark.parametrize("kind", ["int8", "int64", "nan", "Int64", "Float32", "int16[pyarrow]"])
def test_descriptions_are_those_of_pandas(kind: str, percentiles: list[float] | None) -> None:
    s = COLUMNS[kind].rename("x")
    actual = dd.from_pandas(s, npartitions=3).exact.describe(percentiles)
    expected = s.describe(percentiles=percentiles)
    assert actual.dtype == expected.dtype
    assert_series_equal(actual.compute(), expected, rtol=1e-15 if kind != "Float32" else 1e-6)


def test_the_deviation_does_not_cancel() -> None:
    s = pd.Series([1e15 + 1, 1e15 + 2, 1e15 + 3])
    assert dd.from_pandas(s, npartitions=3).exact.describe().compute()["std"] == 1.0


def test_box_plots_have_the_names_of_columns_and_count_what_is_missing() -> None:
    df = whole()
    boxes = dd.from_pandas(df, npartitions=4, sort=False).exact.describe_boxplot(whis=2).compute()
    assert boxes.labels == ("a", "b", "c")
    for name in "abc":
        own = df[name].dropna().astype("f8")
        assert boxes[name].med == own.median()
        assert (boxes[name].n, boxes[name].n_nan) == (len(own), df[name].isna().sum())
    (box,) = dd.from_pandas(df["b"], npartitions=2, sort=False).exact.describe_boxplot().compute()
    assert (box.label, box.q1) == ("b", df["b"].quantile(0.25))


# --- Partitions -----------------------------------------------------------------------------------

CALLS = {
    "a column": ("a", lambda x: x["a"].exact.quantile(Q)),
    "two columns": ("ac", lambda x: x[["a", "c"]].exact.quantile(Q)),
    "all columns": ("abc", lambda x: x.exact.quantile(Q, numeric_only=True)),
    "with what is missing": ("abc", lambda x: x.exact.median(skipna=False, numeric_only=True)),
    "description": ("abc", lambda x: x.exact.describe()),
    "boxes": ("abc", lambda x: x.exact.describe_boxplot()),
}
"""Calls, and which columns they want."""


@pytest.mark.parametrize("name", CALLS)
def test_every_partition_is_loaded_twice(name: str) -> None:
    assert loads_of(*CALLS[name]) == [2] * PARTITIONS


def loads_of(columns: str, ask: Callable[[Any], Any]) -> list[int]:
    """Return the loads of a call, which has none before it is computed, nor of other columns."""
    source = Counting()
    answer = ask(source.lazy())
    assert source.loads == [0] * PARTITIONS
    answer.compute()
    assert source.columns == set(columns)
    return source.loads


def test_partitions_of_unknown_length_and_empty_ones() -> None:
    df = pd.DataFrame({"a": [1.0, 2, 7, 4, 9, 3], "b": pd.array([1, 2, None, 4, 5, 6])})
    x = dd.from_pandas(df, npartitions=6)
    few = x[x["a"] > 3]
    expected = df[df["a"] > 3]
    assert_frame_equal(few.exact.quantile(Q).compute(), expected.quantile(Q))
    assert_frame_equal(few.exact.describe().compute(), expected.describe())


@pytest.mark.filterwarnings("ignore:.*Array.__init__ is deprecated")  # of pandas 2, by itself
@pytest.mark.parametrize("kind", COLUMNS)
def test_without_elements_answers_are_missing(kind: str) -> None:
    s = COLUMNS[kind].rename("x")
    none = dd.from_pandas(s, npartitions=3)
    none = none[none.isna() & ~none.isna()]
    expected = s[:0].quantile(0.5)
    actual = none.exact.quantile(0.5).compute()
    assert pd.isna(actual)
    if actual is not pd.NA or expected is pd.NA:  # pandas 2 says NaN of no integers, and NA of some
        same(actual, expected)
    assert none.exact.quantile([0.2, 0.5]).compute().isna().tolist() == [True, True]
    assert pd.isna(none.exact.median().compute())
    if s.dtype.kind in "iuf":
        assert_series_equal(none.exact.describe().compute(), s[:0].describe())


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "s",
    [
        pd.Series(["a", "b"]),
        pd.Series(["a", "b"], dtype="category"),
        pd.Series([1j, 2]),
        pd.Series(pd.period_range("2020", "2021", freq="Y")),
        pd.Series([1, 0], dtype="Sparse[int]"),
        pd.Series([Decimal(1)] * 2, dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
    ],
    ids=lambda s: str(s.dtype),
)
def test_columns_without_quantiles_are_refused_at_the_call(s: pd.Series) -> None:
    x = dd.from_pandas(s, npartitions=2).exact
    for ask in (x.quantile, x.median, x.describe, x.describe_boxplot):
        with pytest.raises(TypeError, match=r"this column .*it must have numbers or dates"):
            ask()


# --- In place of dask's ---------------------------------------------------------------------------


def test_enabled_methods_are_exact() -> None:
    df = whole().drop(columns="s")
    x = dd.from_pandas(df, npartitions=4, sort=False)
    before = [vars(each).copy() for each in (dd.Series, dd.DataFrame)]
    assert x["a"].quantile(0.3).compute() != df["a"].quantile(0.3)
    with enable():
        assert_series_equal(x["a"].quantile(Q).compute(), df["a"].quantile(Q))
        assert_frame_equal(x.quantile(Q).compute(), df.quantile(Q))
        assert x["a"].median().compute() == df["a"].median()
        assert_series_equal(x.median().compute(), df.median())
        assert x["c"].quantile(0.3, method="lower").compute() == df["c"].quantile(0.3, "lower")
        assert_frame_equal(x.describe().compute(), df.describe())
        assert_series_equal(x["a"].describe().compute(), df["a"].describe())
        result = x.describe(percentiles=[0.1]).compute()
        assert_frame_equal(result, x.exact.describe([0.1]).compute())
    assert before == [vars(each) for each in (dd.Series, dd.DataFrame)]
    with pytest.raises(NotImplementedError):
        x["a"].median()


def test_enabled_methods_leave_to_dask_what_is_its_own() -> None:
    df = whole()[["a", "c"]]
    x = dd.from_pandas(df, npartitions=4, sort=False)
    asks = [
        lambda: x["a"].quantile(Q, method="dask"),
        lambda: x["a"].quantile(Q, "dask"),
        lambda: x.quantile(0.5, axis=1),
    ]
    before = [ask().compute() for ask in asks]
    with enable():
        for ask, expected in zip(asks, before, strict=True):
            assert_series_equal(ask().compute(), expected)
        with pytest.raises(TypeError, match='q is masked.* method="dask" asks for dask'):
            x["a"].quantile(np.ma.array([0.1234]))
        with pytest.raises(ValueError, match="not supported with string series"):
            dd.from_pandas(whole()["s"], npartitions=2, sort=False).quantile(0.5)
        with pytest.raises(TypeError, match=r'bool does not support.*x.astype\("int8"\)$'):
            (x["a"] > 0).quantile(0.1234)


def test_other_descriptions_are_dasks() -> None:
    df = pd.DataFrame({"a": np.arange(9.0), "d": pd.to_datetime(["2024-01-01"] * 9)})
    x = dd.from_pandas(df, npartitions=2)
    with enable():
        for ask in (x.describe, x["d"].describe, lambda: x.describe(include="all")):
            with pytest.warns(
                UserWarning, match=r"its percentiles are approximate: type x\.exact\.desc"
            ):
                ask()
        x["a"].describe(percentiles_method="dask")
        words = dd.from_pandas(pd.Series(["a", "b", "a"]), npartitions=2)
        assert words.describe().compute()["count"] == 3


def test_what_happens_after_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_later.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    observed: list[int] = []
    after_import("imported_later", lambda: observed.append(sys.modules["imported_later"].value))
    after_import("imported_never", lambda: observed.append(0))
    assert not observed
    module = importlib.import_module("imported_later")
    assert observed == [1]
    assert "exec_module" not in vars(module.__spec__.loader)
    importlib.reload(module)
    assert observed == [1]
    after_import("imported_later", lambda: observed.append(2))  # it is there: at once
    assert observed == [1, 2]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("imported_never")


SCRIPT = """
import os, sys
import dask_gpuselect
assert "dask.dataframe" not in sys.modules
dask_gpuselect.enable()
if (child := os.fork()) == 0:
    dask_gpuselect.disable()
    import dask.dataframe
    assert "dask_gpuselect.dataframe" not in sys.modules
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
import pandas as pd
import dask.dataframe as dd
s = dd.from_pandas(pd.Series([1.0, 2.0, 4.0, 8.0]), npartitions=2)
assert s.quantile(0.5).compute() == 3
dask_gpuselect.disable()
own = dd.Series.quantile
with dask_gpuselect.enable():
    assert dd.Series.quantile is not own
assert dd.Series.quantile is own
"""


def test_what_is_imported_when() -> None:
    """Nothing is replaced by what is imported after the end."""
    python("-c", SCRIPT)


# --- Accessors ------------------------------------------------------------------------------------


def test_accessors_show_what_they_are_of() -> None:
    frame = dd.from_pandas(pd.DataFrame({"n": [1.0, 2.0], 7: [3, 4]}), npartitions=2)
    assert repr(frame.exact) == "<exact order statistics of a dask DataFrame of 'n', 7>"
    for column in (frame["n"].exact, frame.exact["n"]):
        assert repr(column) == "<exact order statistics of the dask Series 'n'>"
    assert repr(frame.exact[["n"]]) == "<exact order statistics of a dask DataFrame of 'n'>"


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        pd.MultiIndex.from_tuples([("x", 0), ("x", 1), ("y", 0)], names=["word", "number"]),
        ["a", "b", "a"],
    ],
)
def test_names_of_columns_are_kept(names: Any) -> None:
    """Names of several levels, and those that columns share."""
    df = pd.DataFrame([[1.0, 2.0, 7.0], [3.0, 4.0, 5.0]]).set_axis(names, axis=1)
    x = dd.from_map(lambda i: df.iloc[i : i + 1], [0, 1], meta=df.iloc[:0])
    assert_series_equal(x.exact.quantile(0.25).compute(), df.quantile(0.25))
    assert_frame_equal(x.exact.quantile([0.25, 0.5]).compute(), df.quantile([0.25, 0.5]))
    assert_series_equal(x.exact.median(skipna=False).compute(), df.median())
    assert_frame_equal(x.exact.describe().compute(), df.describe())
    boxes = x.exact.describe_boxplot().compute()
    assert boxes.labels == tuple(map(str, df.columns))
    assert [box.med for box in boxes] == [2, 3, 6]
    assert len(x.exact.describe_boxplot(labels=["1", "2", "3"]).compute()["2"].fliers) == 0


def test_columns_that_share_a_name_with_words() -> None:
    df = pd.DataFrame([["a", 1, 2], ["b", 3, 5]]).set_axis(["k", "v", "v"], axis=1)
    df = df.astype({"k": "str"})
    x = dd.from_map(lambda i: df.iloc[i : i + 1], [0, 1], meta=df.iloc[:0])
    result = x.exact.quantile(0.5, numeric_only=True).compute()
    assert_series_equal(result, df.quantile(0.5, numeric_only=True))


def test_boxes_of_a_column_by_the_public_function() -> None:
    s = pd.Series([1.0, 2.0, None, 9.0], name="v")
    lazy = dd.from_pandas(s, npartitions=2)
    (box,) = describe_boxplot(lazy, whis=2).compute()
    assert (box.label, box.n, box.med) == ("v", 3, 2)
    (unnamed,) = describe_boxplot(lazy.rename(None).astype("Int64")).compute()
    assert (unnamed.label, unnamed.n) == (None, 3)
    with pytest.raises(TypeError, match="it must have numbers or dates"):
        describe_boxplot(lazy.astype("str"))


def test_cudf_is_refused() -> None:
    like_cudf = type("DataFrame", (), {"__module__": "cudf.core.dataframe"})
    with pytest.raises(TypeError, match=r"type df.to_backend\('pandas'\) first"):
        frames.Column.of(like_cudf())
