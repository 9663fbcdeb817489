"""CuPy chunks that one device holds: one task answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
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
from dask_gpuselect.engine.source import Source
from dask_gpuselect.kernels.companions import Accompanied, Several
from dask_gpuselect.kernels.cuda.source import MOST_ENDS
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.robust import mad
from tests.backends import CUPY, kernel_module
from tests.data import FLOATS, MISSING, normal
from tests.engine.test_pilot import watched_guesses
from tests.graphs import names_of
from tests.kernels.test_moments import numbers_of

pytestmark = [pytest.mark.gpu, pytest.mark.legacy]

N = 30_000
UNEVEN = ((13_000, 0, 1, 16_999),)
Q = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


@pytest.fixture
def small_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 500, worth it from the first element on."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 500)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    monkeypatch.setattr(kernel_module("cuda", "sampling"), "is_best_whole", lambda *_: False)


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each guess held."""
    return watched_guesses(monkeypatch)


def computed(answer: Any) -> Any:
    return CUPY.to_numpy(answer.compute(scheduler="sync"))


def is_one_task(answer: da.Array, x: da.Array) -> bool:
    """Whether an answer adds one task to those of the data, and to those that check each chunk."""
    added = names_of(answer) - names_of(x)
    return len({name for name in added if not name.startswith("checked-")}) == 1


KEEPS = {share: np.random.default_rng(1).random(N) < share for share in (0.0, 0.01, 0.7, 1.0)}
WEIGHTS = np.random.default_rng(2).random(N)
ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "quantiles": lambda x, on: nanquantile(x, Q, method="lower"),
    "box": lambda x, on: describe_boxplot(x),
    "mad": lambda x, on: mad(x, scale=1.0),
    "many ranks": lambda x, on: order_statistic(x, np.arange(0, 200, 3)),
    **{
        f"a mask of {share}": lambda x, on, keeps=keeps: nanquantile(
            x, 0.5, where=on(keeps[: x.size])
        )
        for share, keeps in KEEPS.items()
    },
    "a masked box": lambda x, on: describe_boxplot(x, where=on(KEEPS[0.7][: x.size])),
    "weights, and a mask": lambda x, on: nanquantile(
        x, Q, weights=on(WEIGHTS[: x.size]), where=on(KEEPS[0.7][: x.size]), method="linear"
    ),
    "a weighted box": lambda x, on: describe_boxplot(x, weights=on(WEIGHTS[: x.size])),
}
INTEGERS = np.random.default_rng(1).integers(-3, 300, N).astype("i2")
DATA: dict[str, Any] = {name: make(N) for name, make in (FLOATS | MISSING).items()}
DATA |= {dtype: INTEGERS.astype(dtype) for dtype in ("u1", "i2", "f2")}
DATA |= {f"few {name}": make(900) for name, make in (FLOATS | MISSING).items()}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("small_pilots")
@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize("name", DATA)
def test_answers_are_those_in_host_memory(name: str, is_even: bool) -> None:
    values = DATA[name]
    chunks = 7_000 if is_even else UNEVEN if len(values) == N else ((500, 0, 1, 399),)
    x = CUPY.held(values, chunks)
    for what, ask in ASKED.items():
        found = ask(x, lambda keeps: CUPY.held(keeps, chunks))
        wanted = ask(values, lambda keeps: keeps)
        if "box" in what:
            assert repr(found.compute(scheduler="sync")[0]) == repr(wanted[0]), what
            continue
        assert "mask" in what or is_one_task(found, x), what
        np.testing.assert_array_equal(computed(found), wanted, err_msg=what)


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


def test_masked_chunks_are_read_in_place(small_pilots: None) -> None:
    """One task takes them, with what goes with them."""
    values, keeps = normal(N), np.arange(N) % 3 > 0
    x, where = CUPY.held(values, 7_000), CUPY.held(keeps, 7_000)
    weights = CUPY.held(WEIGHTS, 7_000)
    asked = {"where": where}, {"weights": weights, "method": "inverted_cdf"}
    for how in asked:
        names = names_of(quantile(x, 0.5, **how))
        for each in (x, where, weights):
            names -= names_of(each)
        doors = ("checked-", "with-companions-")
        assert len([name for name in names if not name.startswith(doors)]) == 1
    with dask.config.set({"dask_gpuselect.root-limit": "100 kB"}):
        assert len(names_of(quantile(x, 0.5, weights=weights, method="inverted_cdf"))) > 10


def test_views_of_an_array_are_held() -> None:
    values = normal(N).reshape(100, 300)
    x = da.from_array(CUPY.asarray(values), chunks=(33, 100), asarray=False)
    assert Source.of(x).is_on_one_device
    assert computed(median(x)) == np.median(values)


def test_what_is_not_held() -> None:
    """Chunks that tasks make, chunks of the host, and elements that weigh."""
    x = CUPY.held(normal(N), 7_000)
    assert Source.of(x).is_on_one_device
    assert not Source.of(x + 1).is_on_one_device
    assert not Source.of(da.from_array(normal(N), chunks=7_000)).is_on_one_device
    mixed = da.concatenate([x, x + 1])
    assert not Source.of(mixed).is_on_one_device
    weights = CUPY.held(np.ones(N), 7_000)
    weighted = quantile(x, 0.5, weights=weights, method="inverted_cdf")
    assert not is_one_task(weighted, x)


def test_chunks_on_two_devices_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    x = CUPY.held(normal(N), 15_000)
    found = iter([0, 1])
    monkeypatch.setattr(source, "gpu_of", lambda array: next(found))
    assert not Source.of(x).is_on_one_device


def test_the_plan_says_so() -> None:
    x = CUPY.held(normal(N), 7_000)
    plan = explain(x, Q)
    assert (plan.name, plan.loads, plan.n_chunks) == ("held", 1, 5)


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
    assert numbers_of(found[1]) == numbers_of(together[1])
    assert found[0] is not None
    assert together[0] is not None
    for name in ("below", "upto", "n_valid", "n_missing", "n_left_out"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(together[0], name), name)
    mine, wanted = (np.sort(tally.candidates.on_host()) for tally in (found[0], together[0]))
    np.testing.assert_array_equal(mine, wanted)
