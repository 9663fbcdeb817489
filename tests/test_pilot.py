"""Data in memory: a guess from a sample, proven by one read, with the guaranteed plan behind."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import median, nanquantile, passes, quantile
from dask_gpuselect.cuts import Brackets, Tally, guess_brackets
from dask_gpuselect.finish import holds
from dask_gpuselect.kernels import cpu, generic
from dask_gpuselect.strategies import pilot_bracket
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS, MISSING, normal
from tests.sources import Source

N = 20_000
Q = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


@pytest.fixture
def small_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 500, worth it from the first element on."""
    monkeypatch.setattr(passes, "PILOT_SIZE", 500)
    monkeypatch.setattr(passes, "PILOT_WORTH", 1)


@pytest.fixture
def misses(small_pilots: None, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Guesses that gather what is above the sample, and so never hold; what became of each."""

    def guess(ordered: Any, question: Any) -> passes.Guess:
        ends = np.unique(generic.to_host(ordered)[[0, -1]])
        return passes.Guess(Brackets(ends, np.array([False, False, True])), 0.0)

    monkeypatch.setattr(passes, "_guess", guess)
    outcomes: list[bool] = []
    settle = passes._settle

    def watched(*args: Any, **kwargs: Any) -> Any:
        settled = settle(*args, **kwargs)
        outcomes.append(settled is not None)
        return settled

    monkeypatch.setattr(passes, "_settle", watched)
    return outcomes


def plan(answer: da.Array) -> str:
    return "pilot" if any("-guess-" in name for name in answer.dask.layers) else "two loads"


def compute(answer: Any) -> Any:
    return answer.compute(scheduler="sync") if isinstance(answer, da.Array) else answer


def forms(values: Any) -> list[Any]:
    """In chunks in order, in sorted chunks of uneven sizes, and plain."""
    ordered = np.sort(values)
    return [
        da.from_array(values, chunks=3000),
        da.from_array(ordered, chunks=((11_000, 0, 1, 8_999),)),
        values,
    ]


@pytest.mark.usefixtures("small_pilots")
@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
def test_floats(name: str) -> None:
    values = (FLOATS | MISSING)[name](N)
    valid = values[~np.isnan(values)]
    if len(valid) == 0:
        return
    expected = np.quantile(valid, Q, method="lower") + 0.0
    for form in forms(values):
        found = nanquantile(form, Q, method="lower")
        assert isinstance(found, np.ndarray) or plan(found) == "pilot"
        np.testing.assert_array_equal(compute(found), expected)


@pytest.mark.usefixtures("small_pilots")
@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, dtype: str) -> None:
    values = INTEGERS[name](N, dtype)
    for form in forms(values):
        found = compute(quantile(form, Q, method="higher"))
        np.testing.assert_array_equal(found, np.quantile(values, Q, method="higher"))


@pytest.mark.usefixtures("small_pilots")
def test_nan_propagates() -> None:
    values = np.where(np.arange(N) == 777, np.nan, normal(N))
    for form in forms(values)[::2]:
        assert np.isnan(compute(quantile(form, Q))).all()


@pytest.mark.parametrize("name", ["normal", "tied", "half tied", "outliers", "infinite"])
def test_a_miss_falls_back_to_the_guaranteed_plan(name: str, misses: list[bool]) -> None:
    values = FLOATS[name](N)
    for form in forms(values):
        found = compute(quantile(form, Q, method="lower"))
        np.testing.assert_array_equal(found, np.quantile(values, Q, method="lower") + 0.0)
    assert misses == [False] * 3


def test_a_guess_that_holds_is_all_that_runs(
    small_pilots: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts, where the guess holds, are never taken of the pivots."""

    def fail(*args: Any) -> Any:
        raise AssertionError("the guaranteed plan ran")

    monkeypatch.setattr(cpu, "cuts", fail)
    monkeypatch.setattr(generic, "cuts", fail)
    for form in forms(normal(N)):
        assert compute(median(form)) == np.median(normal(N))


def test_the_plan_is_chosen_by_the_chunks() -> None:
    values = np.zeros(3 * passes.PILOT_WORTH, np.int8)
    assert plan(median(da.from_array(values, chunks=passes.PILOT_WORTH))) == "pilot"
    assert plan(median(da.from_array(values, chunks=passes.PILOT_WORTH - 1))) == "two loads"
    assert plan(median(da.from_array(values, chunks=passes.PILOT_WORTH) + 1)) == "two loads"
    lazy = Source((passes.PILOT_WORTH,)).lazy(passes.PILOT_WORTH)
    assert plan(median(lazy)) == "two loads"
    assert plan(median(lazy.persist())) == "pilot"
    many = np.linspace(0, 1, 9)
    assert plan(quantile(da.from_array(values, chunks=-1), many[1:])) == "pilot"
    assert plan(quantile(da.from_array(values, chunks=-1), many)) == "two loads"
    unknown = da.from_array(values, chunks=passes.PILOT_WORTH)
    unknown = unknown[unknown == 0].persist()
    assert plan(median(unknown)) == "two loads"


def test_arrays_of_any_size_do_not_meet_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot gathers a share of all elements, so past a size there is none."""
    monkeypatch.setattr(passes, "PILOT_MOST", 2 * passes.PILOT_WORTH)
    values = np.zeros(2 * passes.PILOT_WORTH + 1, np.int8)
    assert plan(median(da.from_array(values[:-1], chunks=-1))) == "pilot"
    assert plan(median(da.from_array(values, chunks=-1))) == "two loads"


def test_guesses_hold() -> None:
    """A thousand and one quantiles of each, none missed, and few candidates."""
    for name in ("normal", "lognormal", "tied", "zipf", "half tied", "sorted"):
        values = np.sort(FLOATS[name](400_000))
        sample = generic.ordered_sample(values, 20_000)
        first = np.linspace(0, len(sample) - 1, 1001).astype(np.int64)
        ranks = np.linspace(0, len(values) - 1, 1001).astype(np.int64)
        for sampled, rank in zip(first[::50], ranks[::50], strict=True):
            rank_of = np.array([sampled])
            brackets, share = guess_brackets(sample.take, len(sample), rank_of, rank_of)
            tally = generic.tally(values, brackets, len(values))
            assert tally is not None
            assert holds(brackets, tally, np.array([rank]))
            assert len(tally.candidates) <= 0.12 * len(values)
            assert len(tally.candidates) <= share * len(values) + 8000


def test_pilot_brackets_are_open_at_the_ends() -> None:
    ranks = np.array([0, 50, 99])
    lo, hi = pilot_bracket(ranks, ranks, 100)
    assert lo.tolist()[0] == -1
    assert hi.tolist()[2] == 100
    assert (lo < ranks).all()
    assert (hi > ranks).all()


@pytest.mark.parametrize("kernel", [cpu, generic])
def test_samples(kernel: Any) -> None:
    values = normal(10_000)
    values[::10] = np.nan
    drawn = kernel.sample(values, 1000)
    assert np.isin(drawn, values).all()
    assert 850 < len(drawn) < 950
    np.testing.assert_array_equal(drawn, kernel.sample(values, 1000))
    assert len(kernel.sample(values[:0], 0)) == 0
    assert abs(np.median(kernel.sample(np.arange(10**6), 10_000)) - 5e5) < 500


def test_a_guess_of_nothing() -> None:
    """No valid element was drawn: nothing is held, unless there is none at all."""
    nothing = np.empty(0, np.int64)
    brackets, share = guess_brackets(np.empty(0).take, 0, nothing, nothing)
    assert share == 0
    assert isinstance(brackets, Brackets)
    tally = generic.tally(normal(100), brackets, 100)
    assert isinstance(tally, Tally)
    assert not holds(brackets, tally, np.array([50]))
