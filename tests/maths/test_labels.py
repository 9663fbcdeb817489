"""Labels: which there are, and their numbers, whatever their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_gpuselect.maths.labels import codes_among, distinct, is_missing, together, union

DTYPES = ["i1", "u1", "i4", "i8", "u8", "?", "f4", "U3", "M8[D]", "m8[s]"]


@pytest.mark.parametrize(
    ("labels", "names", "wanted"),
    [
        (["2020-01-01T12", "2020-01-02T00"], ["2020-01-02", "2020-01-01"], [-1, 0]),
        (["2020-01-01", "2020-01-02"], ["2020-01-01T12", "2020-01-02T00"], [-1, 1]),
        (["2020-01-01T00:00:00.000000000"], ["4020-01-01", "2020-01-01"], [1]),
        (["2020", "NaT"], ["2020-01", "NaT", "2020-02"], [0, -1]),
    ],
)
def test_dates_of_other_units(labels: list[str], names: list[str], wanted: list[int]) -> None:
    given = np.array(labels, "M8"), np.array(names, "M8")
    assert codes_among(*given).tolist() == wanted


def test_objects() -> None:
    class Unknown:
        """It is neither equal to itself nor not: pandas' NA, for instance."""

        def __ne__(self, other: object) -> Any:
            return self

        def __bool__(self) -> bool:
            raise TypeError

        __hash__ = object.__hash__

    labels = np.array(["b", None, "a", np.nan, Unknown(), "b"], object)
    assert is_missing(labels).tolist() == [False, True, False, True, True, False]
    assert distinct(labels).tolist() == ["a", "b"]
    assert codes_among(labels, np.array(["b", "c", "a"])).tolist() == [0, -1, 2, -1, -1, 0]
    assert codes_among(np.array(["a", "b"]), np.array(["b"], object)).tolist() == [-1, 0]
    assert union([distinct(labels), np.array(["c"], object)]).tolist() == ["a", "b", "c"]


def test_masked_labels() -> None:
    labels = np.ma.MaskedArray([5, 7, 5], [True, False, False])
    assert distinct(labels).tolist() == [5, 7]
    assert codes_among(labels, np.array([7, 5])).tolist() == [-1, 0, 1]
    both = together([np.array([1, 1, 2]), labels])
    assert is_missing(both).tolist() == [True, False, False]
    assert distinct(both).tolist() == [(1, 7), (2, 5)]
    assert codes_among(both, np.ma.getdata(both)).tolist() == [-1, 1, 2]


@given(st.data())
def test_labels_of_several_parts(draw: st.DataObject) -> None:
    n = draw.draw(st.integers(0, 20))
    first = draw.draw(hnp.arrays(np.int16, n, elements=st.integers(-2, 2)))
    second = draw.draw(hnp.arrays("U1", n, elements=st.sampled_from("abc")))
    both = together([first, second])
    names = distinct(both)
    wanted = sorted(set(zip(first.tolist(), second.tolist(), strict=True)))
    assert [(a, b) for a, b in names.tolist()] == wanted
    codes = codes_among(both, names[::-1])
    for code, a, b in zip(codes.tolist(), first.tolist(), second.tolist(), strict=True):
        assert names[::-1][code].tolist() == (a, b)


def test_fractions() -> None:
    with pytest.raises(ValueError, match="floats with fractions"):
        distinct(np.array([1.0, 1.5]))
    assert distinct(np.array([np.inf, 3.0, np.nan, -np.inf])).tolist() == [-np.inf, 3.0, np.inf]
    assert codes_among(np.array([0.5, np.nan, 2.0]), np.array([2.0, 0.5])).tolist() == [1, -1, 0]
