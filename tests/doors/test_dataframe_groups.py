"""Exact order statistics of the groups of dask's DataFrames, beside pandas' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

import dask_gpuselect.dataframe  # noqa: F401 -- registers the accessors
from dask_gpuselect import describe_boxplot
from dask_gpuselect.engine import frames as engine_frames
from dask_gpuselect.maths.cuts import ChunksChangedError
from tests.data import hashed
from tests.doors.test_dataframe import COLUMNS, INTERPOLATIONS, PARTITIONS, Counting, loads_of
from tests.graphs import tasks_of
from tests.spies import noted

Q = [0.9, 0.25, 0.5]
N = 400


def values(kind: str) -> pd.Series:
    """A column of a dtype, with what is missing where there is room for it."""
    return COLUMNS[kind].sample(N, replace=True, random_state=1).reset_index(drop=True)


WORDS = [f"k{i:03}" for i in np.random.default_rng(3).permutation(20)]
PLACES = np.random.default_rng(4).integers(0, 20, N)
SOME = np.where(PLACES % 7 == 3, None, np.array(WORDS, object)[PLACES])
DAYS = pd.date_range("1969-12-25", periods=20).to_numpy()[PLACES]

KEYS: dict[str, pd.Series] = {
    "int": pd.Series(PLACES * 7 - 30),
    "uint8": pd.Series(PLACES, dtype="uint8"),
    "bool": pd.Series(PLACES > 9),
    "float": pd.Series(PLACES / 3 - 2),
    "NaN": pd.Series(np.where(PLACES % 5 == 0, np.nan, PLACES)),
    "Int64": pd.Series(PLACES, dtype="Int64").where(PLACES % 5 > 0),
    "Float64": pd.Series(PLACES / 2, dtype="Float64").where(PLACES % 5 > 0),
    "boolean": pd.Series(PLACES > 9, dtype="boolean").where(PLACES % 5 > 0),
    "int32[pyarrow]": pd.Series(PLACES, dtype="int32[pyarrow]").where(PLACES % 5 > 0),
    "str": pd.Series(SOME, dtype="str"),
    "object": pd.Series(SOME, dtype=object),
    "string": pd.Series(SOME, dtype="string"),
    "string[pyarrow]": pd.Series(SOME, dtype=pd.ArrowDtype(pa.string())),
    "dates": pd.Series(DAYS).where(PLACES % 5 > 0),
    "time zone": pd.Series(DAYS).dt.tz_localize("Europe/Berlin"),
    "differences": pd.Series(DAYS - DAYS[0]),
    "category": pd.Series(pd.Categorical(SOME, categories=WORDS + ["none of these"])),
    "ordered": pd.Series(pd.Categorical(SOME, categories=WORDS, ordered=True)),
}


def keyed(kind: str, n: int = 3, **others: Any) -> tuple[Any, pd.DataFrame]:
    """Frames with keys "k" of a kind, numbers "b", floats "v" and other columns."""
    columns = {"k": KEYS[kind], "b": PLACES // 7, "v": hashed(np.arange(N)), **others}
    return frames(pd.DataFrame(columns), n)


def frames(df: pd.DataFrame, n: int = 3) -> tuple[Any, pd.DataFrame]:
    """A lazy frame, and all of it as dask has it: strings of PyArrow."""
    x = dd.from_pandas(df, npartitions=n, sort=False)
    return x, x.compute()


def each_alone(expected: Any, groups: Any, ask: Callable[[Any], Any]) -> Any:
    """Replace pandas' answer about groups by those about the elements of each of them alone.

    pandas 2.2 takes NaT for an element of groups, and of "nearest" not NumPy's element at a half.
    """
    actual = pd.concat([pd.Series(ask(own.dropna())) for _, own in groups])
    return actual.set_axis(expected.index).astype(expected.dtype).rename(expected.name)


ROOTS = {"one root": "1 GiB", "several roots": "100 MB"}
"""The limit of a root."""


@pytest.fixture
def roots(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether there are several."""
    limit = ROOTS[request.param]
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        yield limit == "100 MB"


by_roots = pytest.mark.parametrize("roots", ROOTS, indirect=True)


def n_roots(answer: Any) -> int:
    return sum("-bracket-each-" in key[0] for key in tasks_of(answer) if isinstance(key, tuple))


# --- As pandas has it -----------------------------------------------------------------------------


@pytest.mark.few(7)
@by_roots
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("dropna", [True, False])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_those_of_pandas(kind: str, dropna: bool, sort: bool, roots: bool) -> None:
    x, df = keyed(kind, 5 if roots else 3)
    how: dict[str, Any] = {"sort": sort, "dropna": dropna}
    theirs = df.groupby("k", observed=True, **how)["v"]
    ours = x.exact.groupby("k", **how)["v"]
    assert (n_roots(ours.median()) > 1) == roots
    assert_series_equal(ours.quantile(Q).compute(), theirs.quantile(Q), rtol=1e-14)
    assert_series_equal(ours.count().compute(), theirs.count())
    both = ["b", "k"]
    expected = df.groupby(both, observed=True, **how)[["v"]].median()
    assert_frame_equal(x.exact.groupby(both, **how)[["v"]].median().compute(), expected)


@pytest.mark.few(4)
@by_roots
@pytest.mark.parametrize(
    "keys", [["b", "c", "k"], ["c", "b", "k"], ["b", "k", "c"], ["k", "c", "b", "d"]]
)
def test_categories_between_other_keys(keys: list[str], roots: bool) -> None:
    x, df = keyed("int", c=KEYS["category"], b=KEYS["bool"], d=KEYS["ordered"])
    expected = df.groupby(keys, observed=True)["v"].median()
    assert_series_equal(x.exact.groupby(keys)["v"].median().compute(), expected)


@pytest.mark.parametrize("kind", ["float64", "Float64", "double[pyarrow]", "float[pyarrow]"])
def test_zeros_of_both_signs_are_one_key(kind: str) -> None:
    keys = pd.Series([0.0, -0.0, 1.0, None, -0.0, 1.0]).astype(kind)
    df = pd.DataFrame({"k": keys, "v": [1, 2, 4, 8, 16, 32]})
    x = dd.from_pandas(df, npartitions=2)
    result = x.exact.groupby("k")["v"].median().compute()
    assert result.to_dict() == {0.0: 2, 1.0: 18}
    assert result.index.dtype == keys.dtype


def test_columns_of_several_levels() -> None:
    df = pd.DataFrame({("k", 0): [1, 2, 1, 2], ("v", 0): [1, 2, 3, 4], ("v", 1): [1, 5, 7, 9]})
    df.columns = df.columns.set_names(["word", "number"])
    x, df = frames(df)
    theirs, ours = df.groupby([("k", 0)]), x.exact.groupby([("k", 0)])
    assert_frame_equal(ours.median().compute(), theirs.median())
    assert_frame_equal(ours.quantile(Q).compute(), theirs.quantile(Q))


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_a_few_partitions_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_frames, "AT_ONCE", 8)
    made = noted(monkeypatch, engine_frames.KeyNames, "_together", lambda _, parts: len(parts))
    x, df = keyed(kind, 20)
    for by, sort in (("k", True), ("k", False), (["b", "k"], False)):
        how: dict[str, Any] = {"sort": sort, "dropna": False}
        result = x.exact.groupby(by, **how)["v"].median().compute(scheduler="sync")
        assert_series_equal(result, df.groupby(by, observed=True, **how)["v"].median())
    assert len(made) > 6
    assert max(made) < 20


@pytest.mark.few(6)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_quantiles_are_those_of_pandas(kind: str, interpolation: str) -> None:
    x, df = frames(pd.DataFrame({"k": PLACES, "v": values(kind)}))
    for q in (0.3, Q):
        try:
            expected = df.groupby("k")["v"].quantile(q, interpolation=interpolation)
        except TypeError as error:
            if "No matching signature" not in str(error):
                raise
            pytest.skip("pandas 3.0 has no quantiles of groups of PyArrow's milliseconds")
        if interpolation == "nearest":
            nearest = partial(pd.Series.quantile, q=q, interpolation="nearest")
            expected = each_alone(expected, df.groupby("k")["v"], nearest)
        actual = x.exact.groupby("k")["v"].quantile(q, interpolation=interpolation)
        if kind == "uint64" and interpolation in ("lower", "higher", "nearest"):
            expected = expected.astype("uint64")
        if kind in ("dates", "time zone", "timestamp[ms][pyarrow]") and interpolation == "linear":
            expected = expected.dt.round("s")  # pandas cuts what it has rounded: a unit too low
        assert actual.dtype == expected.dtype
        assert actual.name == expected.name
        assert_series_equal(actual.compute(), expected)


@pytest.mark.few(12)
@pytest.mark.parametrize("kind", [*COLUMNS, "bool", "boolean", "bool[pyarrow]", "float16"])
def test_medians_and_counts_are_those_of_pandas(kind: str) -> None:
    v = values(kind) if kind in COLUMNS else pd.Series(PLACES > 9, dtype=kind)
    x, df = frames(pd.DataFrame({"k": PLACES % 6, "v": v}))
    for name in ("median", "count"):
        theirs = df.groupby("k")["v"]
        expected = getattr(theirs, name)()
        if name == "median" and kind != "bool[pyarrow]":  # which has a median in groups alone
            expected = each_alone(expected, theirs, pd.Series.median)
        actual = getattr(x.exact.groupby("k")["v"], name)()
        assert actual.dtype == expected.dtype
        assert_series_equal(actual.compute(), expected)


def test_frames_are_as_pandas_has_them() -> None:
    df = pd.DataFrame({"k": PLACES, "s": KEYS["str"], "v": hashed(np.arange(N))})
    df = df.assign(w=values("Int64"), d=values("dates"), f=df["v"].astype("f4"))
    x, df = frames(df)
    for by in ("k", ["s", "k"]):
        ours, theirs = x.exact.groupby(by), df.groupby(by)
        for columns in (["v"], ["w", "v"], ["f", "d"]):
            assert_frame_equal(ours[columns].quantile(Q).compute(), theirs[columns].quantile(Q))
            expected = theirs[columns].median()
            for name in columns:
                expected[name] = each_alone(expected[name], theirs[name], pd.Series.median)
            assert_frame_equal(ours[columns].median().compute(), expected)
        for q in (0.3, Q):
            actual = ours.quantile(q, numeric_only=True)
            expected = theirs.quantile(q, numeric_only=True)
            assert_series_equal(actual.dtypes, expected.dtypes)
            assert_frame_equal(actual.compute(), expected)
        assert_frame_equal(
            ours.median(numeric_only=True).compute(), theirs.median(numeric_only=True)
        )
        assert_frame_equal(ours.count().compute(), theirs.count())


def test_groups_of_nothing_but_missing_elements_are_there() -> None:
    for kind in ("float64", "Int64", "M8[s]", "double[pyarrow]", "boolean"):
        v = pd.Series([None, None, 1, 0, 1], dtype=kind)
        x, df = frames(pd.DataFrame({"k": ["a", "a", "b", "b", "b"], "v": v}), 2)
        result = x.exact.groupby("k")["v"].median().compute()
        assert_series_equal(result, df.groupby("k")["v"].median())
        assert result.isna().tolist() == [True, False]
        assert (result["a"] is pd.NA) == (kind in ("Int64", "double[pyarrow]", "boolean"))
        assert x.exact.groupby("k")["v"].count().compute().tolist() == [0, 3]


# --- Partitions -----------------------------------------------------------------------------------

ASKS = {
    "a column": ("ac", lambda x: x.exact.groupby("c")["a"].quantile(Q)),
    "several columns": ("abs", lambda x: x.exact.groupby("s")[["a", "b"]].median()),
    "all columns": ("abcs", lambda x: x.exact.groupby(["s", "c"]).quantile(Q, numeric_only=True)),
    "counts": ("abcs", lambda x: x.exact.groupby("c").count()),
}


@by_roots
@pytest.mark.parametrize("name", ASKS)
def test_every_partition_is_loaded_twice(name: str, roots: bool) -> None:
    """For counts once."""
    assert loads_of(*ASKS[name]) == [1 if name == "counts" else 2] * PARTITIONS


def test_partitions_of_unknown_length_and_empty_ones() -> None:
    x, df = keyed("str", 8, w=values("Int64"))
    few, expected = x[x["v"] > 0.99], df[df["v"] > 0.99]
    assert 0 in few.map_partitions(len).compute().tolist()
    assert_frame_equal(
        few.exact.groupby("k").quantile(Q).compute(), expected.groupby("k").quantile(Q)
    )
    assert_frame_equal(few.exact.groupby("k").count().compute(), expected.groupby("k").count())


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["int", "str", "dates", "category"])
def test_of_no_rows(kind: str) -> None:
    x, df = keyed(kind)
    x, df = x[x["v"] > 2], df[df["v"] > 2]
    for by in ("k", ["k", "b"]):
        theirs = df.groupby(by, observed=True)["v"]
        ours = x.exact.groupby(by)["v"]
        for actual, expected in (
            (ours.median(), theirs.median()),
            (ours.count(), theirs.count()),
            (ours.quantile(Q), theirs.median()),
        ):
            assert len(actual.compute()) == 0
            assert actual.compute().dtype == expected.dtype
            assert actual.compute().index.names[: len(expected.index.names)] == expected.index.names


def test_categories_that_partitions_do_not_share() -> None:
    parts = [
        pd.DataFrame({"k": pd.Categorical(list("ab")), "v": [1.0, 2]}),
        pd.DataFrame({"k": pd.Categorical(list("cab")), "v": [3.0, 5, 4]}),
    ]
    x = dd.from_map(lambda part: part, parts, meta=parts[0].iloc[:0])
    result = x.exact.groupby("k")["v"].median().compute()
    assert result.to_dict() == {"a": 3.0, "b": 3.0, "c": 3.0}


class InAnyOrder(Counting):
    """Has the rows of each partition in another order at each load."""

    def __call__(self, i: int, columns: list[str] | None = None) -> pd.DataFrame:
        frame = super().__call__(i, columns)
        return frame.sample(frac=1, random_state=self.counts[i])


@pytest.mark.few(4)
@by_roots
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("by", ["c", "s", ["s", "c"]])
def test_rows_in_another_order_are_the_same(
    by: str | list[str], roots: bool, *, sort: bool
) -> None:
    """Groups are numbered otherwise then, where they are in the order in which they appear."""
    source, df = InAnyOrder(), Counting().lazy().compute()
    actual = source.lazy().exact.groupby(by, sort=sort)[["a", "b"]].median()
    actual, expected = actual.compute(), df.groupby(by)[["a", "b"]].median()
    assert source.loads == [2] * PARTITIONS
    assert_frame_equal(actual.sort_index(), expected)


class Changing(Counting):
    """Has other rows in a partition when it is read again."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def __call__(self, i: int, columns: list[str] | None = None) -> pd.DataFrame:
        frame = super().__call__(i, columns)
        return self.change(frame.copy()) if i == 3 and self.counts[i] > 1 else frame


CHANGES = {
    "elements": lambda frame: frame.assign(a=frame["a"] / 2),
    "numbers of keys": lambda frame: frame.assign(c=frame["c"].iloc[::-1].to_numpy()),
    "a new key": lambda frame: frame.assign(c=(frame["c"] + 1000).astype("i4")),
    "rows": lambda frame: frame.iloc[1:],
    "partners": lambda frame: frame.assign(a=frame["a"].iloc[::-1].to_numpy()),
}


@pytest.mark.few(7)
@by_roots
@pytest.mark.parametrize("name", CHANGES)
def test_changes_between_loads_are_noticed(name: str, roots: bool) -> None:
    answer = Changing(CHANGES[name]).lazy().exact.groupby("c")["a"].median()
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\)"):
        answer.compute(scheduler="sync")


# --- As people type it ----------------------------------------------------------------------------


def typed() -> tuple[Any, pd.DataFrame]:
    v = pd.Series(hashed(np.arange(N))).where(PLACES % 4 > 0)
    i = pd.Series(np.arange(N) % 50, dtype="Int64").where(np.arange(N) % 9 > 0)
    return keyed("str", v=v, i=i, c=KEYS["category"])


def test_columns_are_attributes() -> None:
    x, df = typed()
    groups = x.exact.groupby("k")
    assert_series_equal(groups.v.median().compute(), df.groupby("k").v.median())
    assert "v" in dir(groups)
    assert "v" not in dir(groups.v)


def test_keys_may_be_series() -> None:
    x, df = typed()
    for ours, theirs in (
        (x.k, df.k),
        ([x["b"], "k"], ["b", "k"]),
        ([x.c, (x.b % 2).rename("odd")], [df.c, (df.b % 2).rename("odd")]),
    ):
        expected = df.groupby(theirs, observed=True)["v"].median()
        assert_series_equal(x.exact.groupby(ours)["v"].median().compute(), expected)


@pytest.mark.parametrize(
    ("columns", "func"),
    [
        ("v", "median"),
        ("v", ["median", "count"]),
        (["v", "i"], ["count", "median"]),
        (["v", "i"], {"v": "median", "i": ["count", "quantile"]}),
        (["v", "i"], {"v": "median", "i": "count"}),
        (["v", "i"], "quantile"),
    ],
)
def test_aggregates_are_those_of_pandas(columns: Any, func: Any) -> None:
    x, df = typed()
    actual = x.exact.groupby("k")[columns].agg(func)
    expected = df.groupby("k")[columns].agg(func)
    check: Any = assert_series_equal if expected.ndim == 1 else assert_frame_equal
    check(actual.compute(), expected)
    check(actual._meta, expected.iloc[:0])


@pytest.mark.few(3)
@pytest.mark.parametrize("keys", ["k", "c", ["c", "b"]])
@pytest.mark.parametrize("columns", ["v", ["i", "v"], None])
def test_descriptions_are_those_of_pandas(columns: Any, keys: Any) -> None:
    x, df = typed()
    ours, theirs = x.exact.groupby(keys), df.groupby(keys, observed=True)
    own = [name for name in ("b", "v", "i") if name not in keys] if columns is None else columns
    actual = (ours if columns is None else ours[columns]).describe()
    expected = theirs[own].describe()
    expected.index = theirs.size().index  # pandas 2.2 forgets categories without rows
    assert_frame_equal(actual.compute(), expected)
    assert_frame_equal(actual._meta, expected.iloc[:0])


@pytest.mark.parametrize(("keys", "column"), [("k", "v"), ("c", "i"), (["b", "k"], "v")])
def test_boxes_of_groups(keys: Any, column: str) -> None:
    x, df = typed()
    boxes = x.exact.groupby(keys)[column].describe_boxplot(whis=0.5).compute()
    groups = df.groupby(keys, observed=True)[column]
    assert boxes.labels == tuple(map(str, groups.size().index.to_list()))
    for box, (_, own) in zip(boxes, groups, strict=True):
        alone = describe_boxplot(own.dropna().to_numpy(dtype="f8"), whis=0.5)[0]
        for name in ("n", "q1", "med", "q3", "mean", "whislo", "whishi", "n_low", "fliers"):
            np.testing.assert_array_equal(getattr(box, name), getattr(alone, name))


def test_days_of_pyarrow() -> None:
    """pandas has no quantiles of groups of these, but medians."""
    days = pd.Series(DAYS).dt.date.where(PLACES % 5 > 0).astype(pd.ArrowDtype(pa.date32()))
    x, df = keyed("int", d=days)
    result = x["d"].exact.quantile(Q, "lower").compute()
    assert_series_equal(result, days.quantile(Q, "lower").rename("d"))
    assert_series_equal(x.exact.groupby("d")["v"].median().compute(), df.groupby("d")["v"].median())
    medians = x.exact.groupby("b")["d"].median().compute()
    assert medians.dtype == days.dtype
    assert medians[1] in [pd.Timestamp(day).date() for day in np.unique(DAYS)]
