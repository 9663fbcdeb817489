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
from dask_gpuselect.robust import mad
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


@pytest.mark.parametrize("n", [0, 1, 30, 9_001, N])
def test_mad_of_small_arrays(n: int) -> None:
    """They are not taken as candidates as a whole."""
    values = normal(N)[:n].astype("f4")
    np.testing.assert_array_equal(to_host(mad(CUPY.asarray(values))), mad(values))


def test_mad_selects_the_median_before_the_host_knows_the_tally(
    sampled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "PILOT_SIGMA", 4)
    monkeypatch.setattr(pilot, "PILOT_SIZE", 5 * N)
    values = normal(10 * N)
    x = CUPY.asarray(values)
    started = launched(lambda: mad(x), monkeypatch)
    selected = ["select_digit"] * 6
    assert [name for name in started if name != "place"] == [
        *("sample", "tally", "locate", *selected, *selected)
    ]
    assert to_host(mad(x)) == mad(values)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_candidates_of_many_brackets_are_sampled(
    dtype: str, sampled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are fewer than expected, as with ties, too."""
    monkeypatch.setattr(sizes, "PILOT_SIGMA", 3)
    own_module("cuda", "sampling")._plan.cache_clear()
    values, q = (1e4 * normal(N)).astype(dtype), np.arange(1, 17) / 17
    few = np.where(values > 0, values, np.round(values / 3000) * 3000).astype(dtype)
    for a in (values, few):
        answer = to_host(nanquantile(CUPY.asarray(a), q))
        np.testing.assert_array_equal(answer, nanquantile(a, q))


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


@pytest.mark.parametrize(
    ("n", "n_zeros", "n_kernels"),
    [(0, 3, 1), (40, 0, 1), (9000, 5, 3), (40, 50_000, 1), (99_999, 9, 0)],
)
def test_records_are_arguments_of_kernels(
    n: int, n_zeros: int, n_kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = own_module("cuda", "launch")
    record = np.append(np.arange(n) % 250 + 1, np.zeros(n_zeros)).astype(np.uint8)
    started = launched(lambda: launch.on_device(record, 7, room=2), monkeypatch)
    assert started == ["place"] * n_kernels
    passed = to_host(launch.on_device(record, 7, room=2))
    assert len(passed) == n + n_zeros + 9
    np.testing.assert_array_equal(passed[:-2], np.append(record, np.zeros(7)))
