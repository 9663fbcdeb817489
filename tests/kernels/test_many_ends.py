"""Elements between many ends, quantiles from samples on a device, and boxes of small arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, kernels, nanquantile
from dask_gpuselect.arrays import to_host
from dask_gpuselect.engine import pilot
from dask_gpuselect.maths import sizes
from tests.backends import CUPY, own_module
from tests.data import hashed, make, names_of, normal
from tests.kernels.test_cuda_answers import launched

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

N = 20_011
NAMES = {
    "f4": ["normal", "lognormal", "constant", "two values", "some nan", "sorted"],
    "f8": ["normal", "outliers", "denormal"],
    "f2": ["normal", "some nan"],
    "u8": names_of("u8"),
    "i8": names_of("i8")[:2],
}


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow guesses by large samples, from the first element on."""
    sampling = own_module("cuda", "sampling")
    monkeypatch.setattr(sizes, "PILOT_SIGMA", 1.6)  # so that some miss
    monkeypatch.setattr(pilot, "LEAST_PILOT", N // 2)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    monkeypatch.setattr(sampling, "is_best_whole", lambda *_: False)
    monkeypatch.setattr(sampling, "WORTH_NARROWING", 500)
    monkeypatch.setattr(sampling, "_sample_for", lambda n_brackets, n: n // 2)
    own = own_module("cuda", "only_lane")
    monkeypatch.setattr(own, "MOST_READ", 0)


@pytest.mark.parametrize(
    ("dtype", "name"), [(dtype, name) for dtype, names in NAMES.items() for name in names]
)
@pytest.mark.parametrize("n_q", [6, 12, 40])
def test_many_quantiles_from_a_sample(sampled: None, dtype: str, name: str, n_q: int) -> None:
    values, q = make(name, dtype, N), np.arange(1, n_q + 1) / (n_q + 1)
    expected = np.nanquantile(values, q, method="lower")
    result = nanquantile(CUPY.asarray(values), q, method="lower")
    np.testing.assert_array_equal(to_host(result), expected)
    mask = hashed(np.arange(N)) < 0.7
    result = nanquantile(CUPY.asarray(values), q, method="lower", where=CUPY.asarray(mask))
    expected = np.nanquantile(values[mask], q, method="lower")
    np.testing.assert_array_equal(to_host(result), expected)


def test_a_guess_of_many_brackets_does_not_wait_for_the_host(
    sampled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = CUPY.asarray(normal(N).astype("f4"))
    started = launched(lambda: nanquantile(x, np.arange(1, 10) / 10), monkeypatch)
    assert [name for name in started if name != "place"][:3] == ["sample", "guess_placed", "tally"]


def test_alike_chunks_are_sampled_at_other_places() -> None:
    """A sample of chunks that are the same tells as much as one of different chunks."""
    chunk = CUPY.asarray(np.arange(4096, dtype="f4"))
    drawn = to_host(own_module("cuda", "sampling").drawn_from(kernels.together([chunk] * 8), 4096))
    assert len(drawn) == 4096
    assert len(np.unique(drawn)) > 2300  # of 8 times the same places, 512


@pytest.mark.parametrize("change", [None, np.nan, np.inf])
def test_two_launches_for_the_box_of_a_small_array(
    change: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = normal(1 << 16).astype("f4")
    if change is not None:
        values[77] = change
    x = CUPY.asarray(values)
    ask: Callable[[], Any] = lambda: describe_boxplot(x)  # noqa: E731
    ask()
    started = launched(ask, monkeypatch)
    assert started[:2] == ["only_lane", "only_box"]
    assert (len(started) == 2) == (change is not np.nan)
