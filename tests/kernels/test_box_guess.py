"""The brackets of a box that a device finds by itself in a sorted sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied, Several
from dask_gpuselect.maths.boxes import BoxGuess, Rule, box_guess, first_ranks
from dask_gpuselect.maths.finish import are_gathered, order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from tests.backends import CUPY
from tests.data import hashed, normal, uniform
from tests.kernels.test_moments import numbers_of

N, SIZE = 60_000, 20_000
RULE = Rule(1.5, autorange=False, max_fliers=50, method="linear")


def replaced(value: float, share: float) -> NDArray[np.float64]:
    return np.where(hashed(np.arange(N) + 7) < share, value, normal(N))


USUAL: dict[str, Callable[[], NDArray[Any]]] = {
    "normal float32": lambda: normal(N).astype("f4"),
    "normal float64": lambda: 1e6 + normal(N),
    "normal float16": lambda: (100 * normal(N)).astype("f2"),
    "uniform": lambda: uniform(N).astype("f4"),
    "large": lambda: (1e38 * uniform(N)).astype("f4"),
    "sorted": lambda: np.sort(normal(N)),
    "int32": lambda: (1e5 * normal(N)).astype("i4"),
    "uint64": lambda: (1e18 * (9 + normal(N))).astype("u8"),
    "few fliers": lambda: np.where(hashed(np.arange(N)) < 0.002, 1e9 + uniform(N), normal(N)),
    "few zeros": lambda: replaced(0.0, 0.0002),
}
UNUSUAL: dict[str, Callable[[], NDArray[Any]]] = {
    "constant": lambda: np.full(N, 3.0),
    "tied": lambda: np.floor(10 * uniform(N)),
    "a tied quartile": lambda: replaced(0.6745, 0.01),
    "a tied tail": lambda: replaced(5.0, 0.004),
    "lognormal": lambda: np.exp(3 * normal(N)),
    "some NaN": lambda: replaced(np.nan, 0.001),
    "infinite quartile": lambda: replaced(np.inf, 0.3),
    "of all magnitudes": lambda: 10.0 ** (200 * uniform(N) - 100),
    "too small to sum fast": lambda: 1e-300 * normal(N),
    "too small for float32": lambda: (1e-37 * normal(N)).astype("f4"),
}


def guessed(chunk: Any, dtype: Any, guess: BoxGuess, most: int = N) -> Any:
    sample, _ = kernels.sorted_sample(chunk, dtype, SIZE)
    ranks = partial(first_ranks, RULE)
    return sample, kernels.guess_and_sums(chunk, dtype, sample, guess, most, ranks)


def usual_guess() -> BoxGuess:
    found = box_guess(RULE, SIZE)
    assert found is not None
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("name", USUAL)
def test_usual_data(name: str, n_parts: int) -> None:
    values = USUAL[name]()
    dtype = selection_dtype(values.dtype)
    parts = tuple(map(CUPY.asarray, np.array_split(values, n_parts)))
    chunk = parts[0] if n_parts == 1 else Several(parts)
    guess = usual_guess()
    sample, found = guessed(chunk, values.dtype, guess)
    assert found is not None
    brackets, tally, sums = found
    drawn = CUPY.to_numpy(sample)
    np.testing.assert_array_equal(brackets.ends[1:-1], drawn[[*guess.places]])
    assert brackets.wanted.tolist() == [True, False] * 4 + [True]
    assert brackets.is_whole
    # What the fences may be, by the quartiles' brackets: the first elements of the sample inside.
    low, high = brackets.ends[2].astype(float), brackets.ends[5].astype(float)
    reach = 1.5 * (high - low)
    assert brackets.ends[0] == drawn[drawn.astype(float) >= low - reach][0]
    assert brackets.ends[-1] == drawn[drawn.astype(float) <= high + reach][-1]

    there = CUPY.asarray(values)
    assert numbers_of(sums) == numbers_of(kernels.moments(there, brackets.ends, values.dtype))
    wanted = kernels.tally(there, values.dtype, brackets, N)
    assert wanted is not None
    for each in ("below", "upto", "n_valid", "n_missing"):
        np.testing.assert_array_equal(getattr(tally, each), getattr(wanted, each), each)
    mine, others = (np.sort(one.candidates.on_host()) for one in (tally, wanted))
    np.testing.assert_array_equal(mine, others)
    ranks = first_ranks(RULE, N)
    ranks = ranks[are_gathered(brackets, tally, ranks)]
    expected = np.sort(values)[ranks].astype(dtype)
    np.testing.assert_array_equal(order_statistics(brackets, tally, ranks), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_data(name: str) -> None:
    values = UNUSUAL[name]()
    sample, found = guessed(CUPY.asarray(values), values.dtype, usual_guess())
    assert found is None
    assert (np.diff(CUPY.to_numpy(sample)[:100]) >= 0).all()  # as it was


@pytest.mark.gpu
def test_candidates_without_room_leave_the_sums() -> None:
    values = normal(N)
    _, (brackets, tally, sums) = guessed(CUPY.asarray(values), values.dtype, usual_guess(), most=10)
    assert tally is None
    assert numbers_of(sums) == numbers_of(kernels.moments(values, brackets.ends, values.dtype))


@pytest.mark.gpu
def test_masks_and_many_ranks_are_for_the_host() -> None:
    values = CUPY.asarray(normal(N))
    keeps = CUPY.asarray(hashed(np.arange(N)) < 0.9)
    assert guessed(Accompanied(values, keeps), np.dtype("f8"), usual_guess())[1] is None
    sample, _ = kernels.sorted_sample(values, np.dtype("f8"), SIZE)
    many = kernels.guess_and_sums(
        values, np.dtype("f8"), sample, usual_guess(), N, lambda n: np.arange(1000)
    )
    assert many is None


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, 1 << 22])
@pytest.mark.parametrize("whis", [0.0, 1.5, 3.0, (0.05, 0.95)])
def test_what_a_device_is_told(whis: Any, size: int) -> None:
    guess = box_guess(Rule(whis, autorange=False, max_fliers=10, method="weibull"), size)
    if isinstance(whis, tuple) or size <= 100:
        assert guess is None
        return
    assert guess is not None
    places = np.array(guess.places)
    assert (np.diff(places) > 0).all()
    quartiles = size * np.array([0.25, 0.5, 0.75])
    assert (places[::2] < quartiles).all()
    assert (quartiles < places[1::2]).all()
    assert 0 < guess.most_beyond < 0.0125 * size
    assert guess.most_tied == size // 1000
