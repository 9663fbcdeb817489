"""Selection methods on arrays in memory, without dask or threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, kernels
from dask_gpuselect.engine.search import Selected, select_now
from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.maths.keys import extreme_keys, key_at, to_keys
from dask_gpuselect.strategies import Strategy
from dask_gpuselect.strategies.known import Known
from dask_gpuselect.strategies.probes import (
    Extent,
    ExtentResult,
    KeyBins,
    LinearBins,
    Points,
    PointsResult,
    ProbeResult,
)
from dask_gpuselect.strategies.spaces import VALUE, Space
from tests.data import FLOATS, INTEGERS, MISSING, make
from tests.selecting import VARIANTS, extreme_ranks

FEW = settings(max_examples=40)

every_strategy = pytest.mark.parametrize("label", VARIANTS)


def assert_exact(values: NDArray[Any], first: int, last: int, strategy: Strategy) -> Selected:
    """Search the elements of a rank or of two, and return what that costs."""
    wanted = np.array([first]), np.array([last])
    result = select_now(values, values.dtype, lambda n: wanted, strategy)
    ordered = np.sort(values[values == values])
    assert result.elements == {first: ordered[first], last: ordered[last]}
    # Without an opening, the first measurement may tell that elements are missing.
    assert result.rounds <= strategy.rounds + (result.n_missing > 0)
    return result


# --------------------------------------------------------------------------------------------------
# All strategies, on all data
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FLOATS, *MISSING, *INTEGERS])
@every_strategy
def test_every_strategy_is_exact(label: str, name: str) -> None:
    strategy = VARIANTS[label]
    for dtype in ("i8", "i2", "u8", "u1") if name in INTEGERS else ("f8", "f4"):
        for n in (1, 2, 150):
            values = make(name, dtype, n)
            for first, last in extreme_ranks(int((values == values).sum())):
                assert_exact(values, first, last, strategy)


BY_KEY = ("bisection", "BrentRoot key", "BrentMinimize key", "GoldenSection key", "radix", "bucket")


@pytest.mark.parametrize("label", [*BY_KEY, "randomized", "quickselect", "Kelley key"])
def test_rounds_do_not_depend_on_the_data(label: str) -> None:
    """Where distances are those of keys, no data takes many more rounds than its bits."""
    most = {"radix": 9, "Kelley key": 8, "randomized": 8}.get(label, 25)
    for name in FLOATS:
        for first, last in extreme_ranks(1000):
            trace = assert_exact(FLOATS[name](1000), first, last, VARIANTS[label])
            assert trace.rounds <= most, name


# --------------------------------------------------------------------------------------------------
# Sums only suggest
# --------------------------------------------------------------------------------------------------


def with_sums(
    result: ProbeResult, wrong: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> ProbeResult:
    """The report with other sums: the counts stay."""
    if isinstance(result, ExtentResult):
        return replace(result, total=float(wrong(np.array([result.total]))[0]))
    if isinstance(result, PointsResult):
        return replace(result, low=wrong(result.low), high=wrong(result.high))
    return result


GARBAGE: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "nan": lambda sums: sums * np.nan,
    "inf": lambda sums: sums + np.inf,
    "-inf": lambda sums: sums - np.inf,
    "zero": lambda sums: sums * 0,
    "negative": lambda sums: -1e3 * sums - 1,
    "huge": lambda sums: sums + 1e308,
}


@pytest.mark.parametrize("garbage", GARBAGE)
@every_strategy
def test_sums_that_are_garbage_cost_rounds_only(
    label: str, garbage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_probe = kernels.answer_probe
    wrong = lambda *about: with_sums(answer_probe(*about), GARBAGE[garbage])  # noqa: E731
    monkeypatch.setattr(kernels, "answer_probe", wrong)
    for name, dtype in (("normal", "f8"), ("outliers", "f4"), ("tied", "f8"), ("few", "u1")):
        values = make(name, dtype, 200)
        for first, last in extreme_ranks(200):
            assert_exact(values, first, last, VARIANTS[label])


# --------------------------------------------------------------------------------------------------
# What is known
# --------------------------------------------------------------------------------------------------


def elements(dtype: str) -> st.SearchStrategy[Any]:
    if dtype[0] in "iu":
        return hnp.from_dtype(np.dtype(dtype))
    width: Any = 8 * np.dtype(dtype).itemsize
    special = st.sampled_from([0.0, -0.0, np.inf, -np.inf, 1.0, float(np.finfo(dtype).tiny)])
    return st.one_of(special, st.floats(width=width, allow_nan=False))


@st.composite
def both_arrays(draw: st.DrawFn) -> Any:
    """Two arrays of a few elements of any dtype, with ties, and with elements in common."""
    dtype = draw(st.sampled_from(["f8", "f4", "i8", "u8", "i1", "u2"]))
    values = draw(st.lists(elements(dtype), min_size=1, max_size=8))
    n = draw(st.integers(1, 30))
    places = hnp.arrays("u1", n, elements=st.integers(0, len(values) - 1))
    return tuple(np.array(values, dtype)[draw(places)] for _ in range(2))


@st.composite
def pairs(draw: st.DrawFn, n: int) -> tuple[int, int]:
    """A rank, or two neighbouring ones."""
    first = draw(st.integers(0, n - 1))
    return first, draw(st.sampled_from([first, min(first + 1, n - 1)]))


@st.composite
def probes(draw: st.DrawFn, values: NDArray[Any]) -> Any:
    """Any probe, about the values or far from them."""
    dtype = values.dtype
    least, largest = extreme_keys(dtype)
    key = st.sampled_from(to_keys(values).tolist()) | st.integers(least, largest)
    key = key.map(lambda k: key_at(k, dtype))
    kind = draw(st.sampled_from(["extent", "points", "key bins"]))
    space = draw(st.sampled_from([VALUE, Space("key", draw(key)), Space("log", 0.0)]))
    if kind == "extent":
        return Extent(space)
    if kind == "points":
        return Points(tuple(sorted(draw(st.sets(key, min_size=1, max_size=3)))), space)
    shift = draw(st.integers(0, 8 * dtype.itemsize))
    return KeyBins(draw(key), shift, draw(st.integers(1, 32)))


@FEW
@given(data=st.data(), both=both_arrays())
def test_reports_of_other_data_contradict_or_say_what_is_so(
    data: st.DataObject, both: tuple[NDArray[Any], NDArray[Any]]
) -> None:
    """What one report proves is so of the data that it is about, whatever was known before."""
    values, other = both
    first, last = data.draw(pairs(len(values)))
    known = Known.at_first(first, last, len(values), values.dtype)
    for source in (values, other, other, other, other):
        probe = data.draw(probes(source))
        try:
            known = known.updated(probe, measures.answer_probe(source, probe))
        except ChunksChangedError:
            return
        if known.is_settled:
            break
    if known.is_proven:
        keys = np.sort(to_keys(source)).tolist()
        assert (known.lower, known.upper) == (keys[first], keys[last])


def told(known: Known, values: NDArray[Any], *probes: Any) -> Known:
    for probe in probes:
        known = known.updated(probe, measures.answer_probe(values, probe))
    return known


def key(value: float) -> int:
    return int(to_keys(np.array([value], np.float64))[0])


CONTRADICTIONS: dict[str, tuple[NDArray[np.float64], Any]] = {
    "another number": (np.arange(11.0), Extent(VALUE)),
    "fewer at a pivot": (np.arange(9.0), Points((key(3),))),
    "all further up": (np.arange(10.0) + 100, Extent(VALUE)),
    "all further down": (np.arange(10.0) - 100, Points((key(0),))),
    "more below": (np.repeat([0.0, 7.0], [8, 2]), Points((key(1),))),
    "none in the bins": (np.arange(10.0) + 100, KeyBins(key(0), 50, 8)),
    "all before the bins": (np.arange(10.0) - 100, KeyBins(key(1), 50, 1024)),
    "none between": (
        np.repeat([0.0, 90.0], 5),
        LinearBins(key(3), key(7), 3.0, 1.0, 4, np.dtype("f8")),
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(name: str) -> None:
    """Ranks 4 and 5 of 0 to 9 lie between 2 and 8, and then something else is reported."""
    known = Known.at_first(4, 5, 10, np.dtype("f8"))
    known = told(known, np.arange(10.0), Points((key(2), key(8))))
    assert (known.before, known.inside) == (3, 5)
    with pytest.raises(ChunksChangedError):
        told(known, *CONTRADICTIONS[name])


def test_a_number_that_two_loads_show_is_not_proven() -> None:
    known = Known.at_first(4, 4, 10, np.dtype("f8"))
    ties = np.repeat([0.0, 1.0, 2.0], [3, 4, 3])
    known = told(known, ties, Points((key(0.5),)))
    assert not known.is_settled
    known = told(known, ties, Points((key(1.5),)))
    assert known.is_settled
    assert not known.is_proven
    both = Known.at_first(4, 4, 10, np.dtype("f8"))
    assert told(both, ties, Points((key(0.5), key(1), key(1.5)))).is_proven
    assert told(both, ties, KeyBins(key(1), 0, 1)).is_proven


# --------------------------------------------------------------------------------------------------
# Keys
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinate", [np.nan, np.inf, -np.inf])
def test_a_coordinate_that_is_none_is_the_middle_key(coordinate: float) -> None:
    lo, hi = key(1.0), key(4.0)
    assert VALUE.nearest(coordinate, np.dtype("f8"), lo, hi) == (lo + hi) // 2
