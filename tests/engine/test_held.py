"""CuPy chunks that one device holds: one task answers."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import (
    describe_boxplot,
    explain,
    kernels,
    median,
    nanquantile,
    order_statistic,
    quantile,
)
from dask_gpuselect.engine import pilot, source
from dask_gpuselect.kernels.companions import Accompanied, Several
from dask_gpuselect.kernels.cuda.source import MOST_ENDS
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.robust import mad
from tests.backends import CUPY, kernel_module
from tests.data import FLOATS, MISSING, normal
from tests.engine.test_pilot import watched_guesses
from tests.graphs import names_of

pytestmark = [pytest.mark.gpu, pytest.mark.legacy]

N = 30_000
UNEVEN = ((13_000, 0, 1, 16_999),)
Q = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


@pytest.fixture
def small_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 500, worth it from the first element on."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 500)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    monkeypatch.setattr(kernel_module("cuda", "sampling"), "is_best_whole", lambda values: False)


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each guess held."""
    return watched_guesses(monkeypatch)


def computed(answer: Any) -> Any:
    return CUPY.to_numpy(answer.compute(scheduler="sync"))


def is_one_task(answer: da.Array, x: da.Array) -> bool:
    """Whether an answer adds one task to those of the data, and to those that check each chunk."""
    added = names_of(answer) - names_of(x)
    return len({name for name in added if not name.startswith(source.DOOR)}) == 1


@pytest.mark.usefixtures("small_pilots")
@pytest.mark.parametrize("chunks", [7_000, UNEVEN])
@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
def test_floats(name: str, chunks: Any) -> None:
    values = (FLOATS | MISSING)[name](N)
    valid = values[~np.isnan(values)]
    if not valid.size:
        return
    x = CUPY.held(values, chunks)
    found = nanquantile(x, Q, method="lower")
    assert is_one_task(found, x)
    np.testing.assert_array_equal(computed(found), np.quantile(valid, Q, method="lower") + 0.0)


@pytest.mark.usefixtures("small_pilots")
@pytest.mark.parametrize("dtype", ["u1", "i2", "f2"])
def test_data_of_few_values(dtype: str) -> None:
    values = np.random.default_rng(1).integers(-3, 300, N).astype("i2").astype(dtype)
    x = CUPY.held(values, UNEVEN)
    found = quantile(x, Q, method="lower")
    assert is_one_task(found, x)
    wide = values.astype("f8")
    np.testing.assert_array_equal(computed(found), np.quantile(wide, Q, method="lower"))
    (box,), (expected,) = (describe_boxplot(a).compute(scheduler="sync") for a in (x, values))
    for field in ("q1", "med", "q3", "whislo", "whishi", "mean", "std", "n_low", "n_high"):
        assert getattr(box, field) == getattr(expected, field), field
    np.testing.assert_array_equal(box.fliers, expected.fliers)


def test_a_guess_is_made_and_holds(small_pilots: None, guesses: list[bool]) -> None:
    x = CUPY.held(normal(N), 7_000)
    assert computed(median(x)) == np.median(normal(N))
    assert guesses == [True]


def test_a_guess_that_fails_costs_reads_and_no_answer(
    small_pilots: None, guesses: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = kernel_module("cuda", "sampling")
    monkeypatch.setattr(sampling, "_plan", sampling._plan.__wrapped__)  # remembers brackets
    above = (np.array([498]), np.array([500]))
    monkeypatch.setattr(sampling, "pilot_bracket", lambda first, last, size: above)
    x = CUPY.held(normal(N), UNEVEN)
    assert computed(median(x)) == np.median(normal(N))
    assert guesses == [False]


@pytest.mark.usefixtures("small_pilots")
@pytest.mark.parametrize("name", ["normal", "lognormal", "tied", "outliers"])
def test_boxes(name: str) -> None:
    values = FLOATS[name](N)
    x = CUPY.held(values, UNEVEN)
    boxes = describe_boxplot(x)
    (found,), (expected,) = boxes.compute(scheduler="sync"), describe_boxplot(values).compute()
    for field in ("q1", "med", "q3", "whislo", "whishi", "mean", "std", "n_low", "n_high"):
        assert getattr(found, field) == getattr(expected, field), field
    np.testing.assert_array_equal(found.fliers, expected.fliers)


@pytest.mark.usefixtures("small_pilots")
def test_deviations_and_many_ranks() -> None:
    values = normal(N)
    x = CUPY.held(values, 7_000)
    assert computed(mad(x, scale=1.0)) == np.median(abs(values - np.median(values)))
    ranks = np.arange(0, N, 300)
    found = computed(order_statistic(x, ranks))
    np.testing.assert_array_equal(found, np.sort(values)[ranks])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.7, 1.0])
def test_masks(share: float, small_pilots: None) -> None:
    values = normal(N)
    keeps = np.random.default_rng(1).random(N) < share
    x = CUPY.held(values, 7_000)
    answer = median(x, where=CUPY.held(keeps, 7_000))
    if not keeps.any():
        with pytest.warns(RuntimeWarning, match="All-NaN"):
            assert np.isnan(computed(answer))
        return
    assert computed(answer) == np.median(values[keeps])


def test_masked_chunks_are_read_in_place(small_pilots: None) -> None:
    """One task takes them, with what goes with them."""
    values, keeps = normal(N), np.arange(N) % 3 > 0
    x, where = CUPY.held(values, 7_000), CUPY.held(keeps, 7_000)
    names = names_of(median(x, where=where)) - names_of(x) - names_of(where)
    doors = (source.DOOR, source.PACKED)
    assert len([name for name in names if not name.startswith(doors)]) == 1


def test_nothing_and_next_to_nothing() -> None:
    x = CUPY.held(np.arange(3.0), ((1, 0, 2),))
    assert computed(median(x)) == 1
    with pytest.warns(RuntimeWarning, match="empty"):
        assert np.isnan(computed(median(CUPY.held(np.empty(0), -1))))


def test_views_of_an_array_are_held() -> None:
    values = normal(N).reshape(100, 300)
    x = da.from_array(CUPY.asarray(values), chunks=(33, 100), asarray=False)
    assert source.is_on_one_device(x)
    assert computed(median(x)) == np.median(values)


def test_chunks_of_unknown_sizes() -> None:
    x = CUPY.held(normal(N), 7_000)
    some = x[x > 0].persist(scheduler="sync")
    answer = median(some).compute(scheduler="sync")  # dask may think that it is NumPy's
    assert float(answer) == np.median(normal(N)[normal(N) > 0])


def test_what_is_not_held() -> None:
    """Chunks that tasks make, chunks of the host, and elements that weigh."""
    x = CUPY.held(normal(N), 7_000)
    assert source.is_on_one_device(x)
    assert not source.is_on_one_device(x + 1)
    assert not source.is_on_one_device(da.from_array(normal(N), chunks=7_000))
    mixed = da.concatenate([x, x + 1])
    assert not source.is_on_one_device(mixed)
    weights = CUPY.held(np.ones(N), 7_000)
    weighted = quantile(x, 0.5, weights=weights, method="inverted_cdf")
    assert not is_one_task(weighted, x)


def test_chunks_on_two_devices_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    x = CUPY.held(normal(N), 15_000)
    found = iter([0, 1])
    monkeypatch.setattr(source, "_device_of", lambda array: next(found))
    assert not source.is_on_one_device(x)


def test_the_plan_says_so() -> None:
    x = CUPY.held(normal(N), 7_000)
    plan = explain(x, Q)
    assert (plan.name, plan.loads, plan.n_chunks) == ("held", 1, 5)
    assert plan.tasks == 6


def test_accompanied_chunks_make_one_array() -> None:
    """Places of a sample are divided by sizes; what a mask keeps is drawn one after the other."""
    sampling = kernel_module("cuda", "sampling")
    values = np.arange(N, dtype="f8")
    keeps = np.arange(N) % 2 == 0
    cut = [0, 13_000, 13_001, N]
    parts = [slice(*each) for each in zip(cut, cut[1:], strict=False)]
    plain = Several(tuple(CUPY.asarray(values[part]) for part in parts))
    drawn = np.sort(sampling.drawn_from(plain, 3_000).get())
    assert len(np.unique(drawn)) == 3_000
    assert abs((drawn < 13_000).sum() - 1_300) <= 1
    masked = Several(
        tuple(Accompanied(CUPY.asarray(values[p]), CUPY.asarray(keeps[p])) for p in parts)
    )
    drawn = np.sort(sampling.drawn_from(masked, 3_000).get())
    assert 1_200 < len(drawn) < 1_800
    assert len(np.unique(drawn)) == len(drawn)
    assert not (drawn % 2).any()


@pytest.mark.parametrize("n_ends", [4, MOST_ENDS + 3])
@pytest.mark.parametrize("masked", [False, True])
def test_several_arrays_are_counted_and_summed_as_one(masked: bool, n_ends: int) -> None:
    values = normal(3 * 17_000).astype("f4")
    values[::1000] = np.nan
    keeps = np.arange(values.size) % 3 > 0
    ends = np.unique(np.quantile(values[values == values], np.linspace(0.1, 0.9, n_ends)))
    brackets = Brackets(ends.astype("f4"), np.arange(len(ends) + 1) % 4 == 1)

    def chunk_of(stretch: slice) -> Any:
        part = CUPY.asarray(values[stretch])
        return Accompanied(part, CUPY.asarray(keeps[stretch])) if masked else part

    parts = tuple(chunk_of(slice(start, stop)) for start, stop in ((0, 1), (1, 20_000)))
    several = Several((*parts, chunk_of(slice(20_000, None))))
    found, together = (
        kernels.tally_and_sums(
            chunk, values.dtype, brackets, values.size, lambda n: np.array([n // 4, n // 2])
        )
        for chunk in (several, chunk_of(slice(None)))
    )
    assert found[1] == together[1]
    assert found[0] is not None
    assert together[0] is not None
    for name in ("below", "upto", "n_valid", "n_missing", "n_left_out"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(together[0], name), name)
    mine, wanted = (np.sort(tally.candidates.on_host()) for tally in (found[0], together[0]))
    np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("n", [900, N])
@pytest.mark.parametrize("name", ["normal", "lognormal", "some nan"])
def test_masks_of_small_arrays(name: str, n: int) -> None:
    """All elements are candidates where a mask keeps some, too."""
    values = (FLOATS | MISSING)[name](n)
    keeps = np.arange(n) % 3 > 0
    x, where = (CUPY.held(a, n // 3) for a in (values, keeps))
    found = nanquantile(x, Q, method="lower", where=where)
    np.testing.assert_array_equal(computed(found), nanquantile(values[keeps], Q, method="lower"))
    boxes = describe_boxplot(x, where=where), describe_boxplot(values, where=keeps)
    assert repr(boxes[0].compute(scheduler="sync")[0]) == repr(boxes[1][0])


def test_few_elements_of_several_arrays_are_counted_on_the_host() -> None:
    values = normal(9_000)
    parts = [CUPY.asarray(part) for part in np.array_split(values, 3)]
    brackets = Brackets(np.array([-1.0, 1.0]), np.array([True, False, True]))
    found = kernels.tally(Several(tuple(parts)), values.dtype, brackets, 9_000)
    expected = kernels.tally(values, values.dtype, brackets, 9_000)
    assert found is not None
    assert expected is not None
    np.testing.assert_array_equal([found.below, found.upto], [expected.below, expected.upto])
    mine, others = (np.sort(each.candidates.on_host()) for each in (found, expected))
    np.testing.assert_array_equal(mine, others)
