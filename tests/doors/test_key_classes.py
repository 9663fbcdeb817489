"""Groups of a DataFrame's rows in several roots: the class of a key is that of all equal keys."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_series_equal

import dask_gpuselect.dataframe  # noqa: F401 -- registers the accessors
from dask_gpuselect.engine import group_tables
from dask_gpuselect.engine.key_classes import classes, forms
from tests.data import hashed
from tests.doors.test_dataframe_groups import PLACES, frames, n_roots
from tests.processes import python
from tests.spies import noted

MANY = 1 << 16
ROOTS = {"dask_gpuselect.root-limit": "100 MB"}


@pytest.fixture(autouse=True)
def several_roots() -> Any:
    with dask.config.set(ROOTS):
        yield


# --- Classes --------------------------------------------------------------------------------------

NOW = pd.Timestamp("2021-03-04 05:06:07")
EQUAL: dict[str, list[Any]] = {
    "integers and floats": [
        pd.Index([1, 0, -3], dtype=dtype)
        for dtype in ("int8", "int64", "Int64", "float32", "float64", "Float32", "int16[pyarrow]",
                      "double[pyarrow]", object)
    ],
    "zeros of both signs": [pd.Index([0.0]), pd.Index([-0.0]), pd.Index([0]), pd.Index([False])],
    "what is beyond 2**53": [
        pd.Index([2**53, 2**60]), pd.Index([2.0**53, 2.0**60]),
        pd.Index([2**53, 2**60], dtype="uint64"), pd.Index([2**53, 2**60], dtype=object),
    ],
    "bools": [pd.Index([True, False]), pd.Index([1, 0]), pd.Index([True, False], dtype=object),
              pd.Index([True, False], dtype="boolean"), pd.Index([1.0, 0.0])],
    "other numbers": [pd.Index([0.5]), pd.Index([Fraction(1, 2)]), pd.Index([Decimal("0.5")]),
                      pd.Index([0.5 + 0j]), pd.Index([np.float32(0.5)], dtype=object)],
    "dates": [
        *(pd.DatetimeIndex([NOW]).as_unit(unit) for unit in ("s", "ms", "us", "ns")),
        pd.Index([NOW.to_pydatetime()], dtype=object), pd.Index([NOW], dtype=object),
        pd.Index([np.datetime64(NOW, "s")], dtype=object),
        pd.Index([NOW], dtype=pd.ArrowDtype(pa.timestamp("us"))),
    ],
    "moments of other zones": [
        pd.DatetimeIndex([NOW.tz_localize("UTC")]).tz_convert(zone)
        for zone in ("UTC", "Europe/Berlin", "Asia/Tokyo")
    ],
    "differences": [
        *(pd.TimedeltaIndex([pd.Timedelta("3h")]).as_unit(unit) for unit in ("s", "ns")),
        pd.Index([datetime.timedelta(hours=3)], dtype=object),
        pd.Index([np.timedelta64(3, "h")], dtype=object),
    ],
    "words": [
        pd.Index(["a", "ä", ""], dtype=dtype)
        for dtype in (object, "str", "string", pd.ArrowDtype(pa.string()), "category")
    ],
    "categories in another order": [
        pd.CategoricalIndex(["b", "a"], categories=["a", "b"]),
        pd.CategoricalIndex(["b", "a"], categories=["c", "b", "a"]), pd.Index(["b", "a"]),
    ],
    "missing": [
        pd.Index([np.nan]), pd.Index([None], dtype=object), pd.Index([pd.NA], dtype="Int64"),
        pd.Index([pd.NaT]), pd.Index([pd.NA], dtype="string"), pd.Index([np.nan], dtype="str"),
        pd.CategoricalIndex([None], categories=["a"]), pd.Index([pd.NA], dtype="int8[pyarrow]"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_keys_have_one_class(name: str) -> None:
    first, *others = EQUAL[name]
    for other in others:
        np.testing.assert_array_equal(forms(other), forms(first), err_msg=repr(other))
        pairs = [pd.MultiIndex.from_arrays([each, np.arange(len(each))]) for each in (first, other)]
        np.testing.assert_array_equal(*(classes(pair, MANY) for pair in pairs))


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans() | st.none()))
def test_what_pandas_has_for_one_key_has_one_class(keys: list[Any]) -> None:
    """Of objects, and of the column that pandas makes of them."""
    column = pd.Series(keys, dtype=object)
    result = classes(pd.Index(keys, dtype=object), MANY)
    number = column.groupby(column, dropna=False, sort=False).ngroup()
    assert pd.Series(result).groupby(number.to_numpy()).nunique().le(1).all()
    inferred = pd.Index(column.infer_objects())
    np.testing.assert_array_equal(classes(inferred, MANY), result)


def test_keys_are_spread() -> None:
    """Sixteen classes have about as many of a thousand keys each, of any kind."""
    kinds = {
        "numbers": pd.Index(np.arange(1000)),
        "floats": pd.Index(np.arange(1000) / 8),
        "words": pd.Index([f"k{i}" for i in range(1000)]),
        "days": pd.date_range("2000-01-01", periods=1000),
        "pairs": pd.MultiIndex.from_product([range(10), range(100)]),
    }
    for name, index in kinds.items():
        sizes = np.bincount(classes(index, 16), minlength=16)
        assert sizes.min() > 20, name
        assert sizes.max() < 130, name


def test_objects_that_no_rule_knows_are_together() -> None:
    keys = [(1, 2), b"a", frozenset([3]), pd.Period("2020-01"), datetime.date(9999, 12, 31)]
    assert len(set(classes(pd.Index(keys[:4], dtype=object), MANY).tolist())) == 1
    assert len(classes(pd.Index(keys, dtype=object), MANY)) == 5


@pytest.mark.slow
def test_classes_do_not_depend_on_the_process() -> None:
    """As Python's hashes of words do."""
    code = (
        "import pandas as pd; from dask_gpuselect.engine.key_classes import classes;"
        "print(classes(pd.Index(['a', 'b', 1, None, 2.5], dtype=object), 1 << 16).tolist())"
    )
    assert len({python("-c", code, PYTHONHASHSEED=seed) for seed in ("1", "2")}) == 1


# --- Roots ----------------------------------------------------------------------------------------


MIXED = {
    "integers, then floats": (np.array([1, 2, 3]), np.array([2.0, 1.0, 0.5])),
    # Two keys, and one once floats of another partition are beside.
    "integers beyond 2**53, then floats": (
        np.array([2**53, 2**53 + 1, 4]),
        np.array([0.5, 2.0**53, 4.0]),
    ),
    "bytes, then words of them": (np.array([1, 2, 3], "i1"), np.array([3, 300, 1], "i8")),
    "integers, then missing": (np.array([1, 2, 3]), np.array([1, np.nan, 2])),
    "words, then None": (np.array(["a", "b", "c"], object), np.array(["c", None, "a"], object)),
    "seconds, then nanoseconds": (
        np.array(["2020-01-01", "2020-01-02", "NaT"], "M8[s]"),
        np.array(["2020-01-02", "2020-01-03", "2020-01-01"], "M8[ns]"),
    ),
}


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("name", MIXED)
def test_partitions_of_other_dtypes(name: str, sort: bool) -> None:
    parts = [
        pd.DataFrame({"k": k, "v": hashed(np.arange(3) + i)}) for i, k in enumerate(MIXED[name])
    ]
    x = dd.from_map(lambda i: parts[i], range(2), meta=parts[0].iloc[:0])
    expected = x.compute().groupby("k", sort=sort, dropna=False)["v"].median()
    groups = x.exact.groupby("k", sort=sort, dropna=False)["v"]
    assert n_roots(groups.median()) > 1
    assert_series_equal(groups.median().compute(), expected)


def test_a_root_holds_the_reports_of_its_class_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def size(_: Any, question: Any, partials: Any, *others: Any) -> int:
        return sum(each.__sizeof__() for each in partials)

    sizes = noted(monkeypatch, group_tables.GroupedColumns, "bracketed", size)
    n = 20_000
    df = pd.DataFrame({"k": np.random.default_rng(1).integers(0, n, n), "v": hashed(np.arange(n))})
    x, df = frames(df, 4)
    grouped = x.exact.groupby("k")["v"]
    most = {}
    for limit in ("1 GiB", "100 MB"):
        sizes.clear()
        with dask.config.set({"dask_gpuselect.root-limit": limit}):
            result = grouped.median().compute(scheduler="sync")
        assert_series_equal(result, df.groupby("k")["v"].median())
        most[limit] = len(sizes), max(sizes)
    roots, bytes_of_one = most["100 MB"]
    assert most["1 GiB"][0] == 1
    assert roots == 11  # 4 partitions of 128 MiB, reported twice
    assert bytes_of_one < 1.5 * most["1 GiB"][1] / roots


def test_tasks_do_not_grow_with_the_square_of_partitions() -> None:
    df = pd.DataFrame({"k": PLACES, "v": PLACES / 3})
    with dask.config.set({"dask_gpuselect.root-limit": 1}):
        for n in (2, 300):
            x = dd.from_map(lambda _: df, range(n), meta=df.iloc[:0])
            roots = n_roots(x.exact.groupby("k")["v"].median())
            assert roots == min(group_tables.MOST_ROOTS, group_tables.MOST_PARTIALS // n)
