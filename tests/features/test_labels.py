"""Labels as tables have them: columns, indices and categories of pandas, and lazy ones of dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_gpuselect.groups import groupby

WORDS = ["wet", None, "dry", "wet", "hot", "dry", None, "dry"]
VALUES = np.array([1.0, 100.0, 3.0, 5.0, 7.0, 9.0, 200.0, 4.0])
ASCENDING = {"dry": 4.0, "hot": 7.0, "wet": 3.0}
ORDERED = pd.CategoricalDtype(["wet", "never", "dry", "hot"])
NUMBERS = pd.Series([2, None, 0, 2, 1, 0, None, 0], dtype="Int64")
OF_NUMBERS = {0: 4.0, 1: 7.0, 2: 3.0}
DATES = pd.Series(pd.to_datetime("2025-01-01") + pd.to_timedelta(NUMBERS.astype("f8"), unit="D"))
OF_DATES = dict(zip(pd.date_range("2025-01-01", periods=3), OF_NUMBERS.values(), strict=True))

COLUMNS: dict[str, tuple[Callable[[], Any], dict[Any, float]]] = {
    "objects": (lambda: pd.Series(WORDS, dtype=object), ASCENDING),
    "strings": (lambda: pd.Series(WORDS, dtype="str"), ASCENDING),
    "nullable strings": (lambda: pd.Series(WORDS, dtype="string"), ASCENDING),
    "strings of PyArrow": (lambda: pd.Series(WORDS, dtype="string[pyarrow]"), ASCENDING),
    "categories": (
        lambda: pd.Series(pd.Categorical(WORDS, dtype=ORDERED)),
        {word: ASCENDING[word] for word in ("wet", "dry", "hot")},
    ),
    "categories of numbers": (lambda: NUMBERS.astype("category"), OF_NUMBERS),
    "an index": (lambda: pd.Index(WORDS), ASCENDING),
    "nullable integers": (lambda: NUMBERS, OF_NUMBERS),
    "integers of PyArrow": (lambda: NUMBERS.astype("int64[pyarrow]"), OF_NUMBERS),
    "floats": (lambda: NUMBERS.astype("f8"), OF_NUMBERS),
    "dates": (lambda: DATES, OF_DATES),
    "dates of a zone": (
        lambda: DATES.dt.tz_localize("Asia/Tokyo"),
        {day.tz_localize("Asia/Tokyo"): found for day, found in OF_DATES.items()},
    ),
    "bins": (
        lambda: pd.cut(NUMBERS.astype("f8"), [-1, 0, 2]),
        {pd.Interval(-1, 0): 4.0, pd.Interval(0, 2): 5.0},
    ),
}
COLUMN = pytest.mark.parametrize("name", COLUMNS)


def lazy_column(column: Any) -> Any:
    """A lazy column, or the index of a lazy frame, of three partitions."""
    if not isinstance(column, pd.Index):
        return dd.from_pandas(column, npartitions=3, sort=False)
    frame = pd.DataFrame({"v": VALUES}, index=column)
    return dd.from_map(lambda i: frame.iloc[3 * i : 3 * i + 3], range(3), meta=frame.iloc[:0]).index


def as_given(names: Any, wanted: dict[Any, float]) -> None:
    """Names are those that were given: dates may be NumPy's."""
    assert [pd.Timestamp(name) if isinstance(name, np.datetime64) else name for name in names] == [
        *wanted
    ]


@COLUMN
def test_of_memory(name: str) -> None:
    column, wanted = COLUMNS[name][0](), COLUMNS[name][1]
    for labels in (column, column.array):
        actual = groupby(da.from_array(VALUES, chunks=3), labels)
        as_given(actual.groups, wanted)
        np.testing.assert_array_equal(actual.median().compute(), [*wanted.values()])
    again = groupby(VALUES, column, groups=[*wanted][::-1])
    np.testing.assert_array_equal(again.median(), [*wanted.values()][::-1])
    boxes = actual.describe_boxplot().compute()
    assert boxes.labels == tuple(map(str, actual.groups))


@COLUMN
@pytest.mark.parametrize("axis", [0, None])
def test_of_a_lazy_table(axis: int | None, name: str) -> None:
    column, wanted = COLUMNS[name][0](), COLUMNS[name][1]
    labels = lazy_column(column)
    sign = 1 if axis is None else np.array([1, -1])
    medians = np.multiply.outer([*wanted.values()], sign)
    x = lazy_column(pd.Series(VALUES)).values
    x = x if axis is None else x[:, None] * np.array([1, -1])
    actual = groupby(x, labels, axis)
    np.testing.assert_array_equal(actual.median().compute(), medians)
    as_given(actual.groups.compute(), wanted)
    again = groupby(x, labels, axis, groups=[*wanted][::-1])
    np.testing.assert_array_equal(again.median().compute(), medians[::-1])
    if axis is None:
        boxes = actual.describe_boxplot().compute()
        assert boxes.labels == tuple(map(str, actual.groups.compute()))


OBJECTS = [
    np.array([missing if word is None else word for word in WORDS], object)
    for missing in (None, np.nan, pd.NA)
]


@pytest.mark.parametrize(
    "words", [*OBJECTS, np.array(WORDS, np.dtypes.StringDType(na_object=None))]
)
@pytest.mark.parametrize("groups", [None, ["dry", "hot", "wet"]])
def test_arrays_with_missing_labels(groups: Any, words: Any) -> None:
    x = da.from_array(VALUES, chunks=3)
    for labels in (words, da.from_array(words, chunks=5), words.tolist()):
        result = groupby(x, labels, groups=groups).median()
        np.testing.assert_array_equal(result.compute(), [*ASCENDING.values()])


def test_combinations() -> None:
    """A group is missing where one of its labels is."""
    frame = pd.DataFrame({"v": VALUES, "word": pd.Categorical(WORDS, dtype=ORDERED), "n": NUMBERS})
    frame["half"] = pd.array([1, 1, None, 1, 1, 0, 1, 1], dtype="Int8")
    wanted = frame.groupby(["word", "half"], observed=True)["v"].median()
    lazy = dd.from_pandas(frame, npartitions=3)
    memory = groupby(VALUES, (frame.word, frame.half))
    assert memory.groups == [*wanted.index]
    np.testing.assert_array_equal(memory.median(), wanted)
    actual = groupby(lazy.v.values, (lazy.word, lazy.half))
    np.testing.assert_array_equal(actual.median().compute(), wanted)
    assert actual.groups.compute().tolist() == [*wanted.index]
    again = groupby(lazy.v.values, (lazy.word, lazy.half), groups=[*wanted.index])
    np.testing.assert_array_equal(again.median().compute(), wanted)
    levels = groupby(VALUES, frame.set_index(["word", "half"]).index)
    assert levels.groups == [*wanted.index]


def test_categories_that_partitions_do_not_share() -> None:
    parts = [pd.Series(pd.Categorical(list(word))) for word in ("ab", "bc", "cc")]
    lazy = dd.from_map(lambda i: parts[i], range(3), meta=parts[0].cat.as_unordered().iloc[:0])
    x = dd.from_map(lambda i: pd.Series(VALUES[2 * i : 2 * i + 2]), range(3)).values
    with pytest.raises(TypeError, match="a partition has other categories than the meta"):
        groupby(x, lazy).median().compute()
    result = groupby(x, lazy.cat.as_unknown())
    np.testing.assert_array_equal(result.median().compute(), [1, 51.5, 7])
    assert result.groups.compute().tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "groups",
    [
        pd.Index(["wet", "hot"]),
        pd.Series(["wet", "hot"], dtype="string"),
        pd.Categorical(["wet", "hot"]),
        np.array(["wet", "hot"], object),
    ],
)
def test_columns_of_groups(groups: Any) -> None:
    for labels in (["dry", "wet", "hot", "wet"], pd.Categorical(["dry", "wet", "hot", "wet"])):
        result = groupby(np.arange(4), labels, groups=groups)
        assert list(result.groups) == ["wet", "hot"]
        assert result.median().tolist() == [2, 2]


def test_a_column_of_unknown_size() -> None:
    lazy = dd.from_pandas(NUMBERS.astype("f8"), npartitions=3)
    x = da.from_array(VALUES, chunks=3)
    with pytest.raises(ValueError, match=r"to_dask_array\(lengths=True\) on a column"):
        groupby(x, lazy).median()
    result = groupby(x, lazy.to_dask_array(lengths=True)).median()
    np.testing.assert_array_equal(result.compute(), [*OF_NUMBERS.values()])


def test_a_category_that_is_wanted_and_not_there() -> None:
    result = groupby(VALUES, COLUMNS["categories"][0](), groups=["other", "never", "hot"])
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        medians = result.median()
    np.testing.assert_array_equal(medians, [np.nan, np.nan, 7])
