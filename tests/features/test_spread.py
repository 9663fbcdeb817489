"""`mad`, `iqr` and `trimmed_mean` against their definitions, and what they promise of loads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from dask_gpuselect import ChunksChangedError, kernels
from dask_gpuselect.engine import pilot
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.moments import means
from dask_gpuselect.robust import deviations, mad, nanmad, nantrimmed_mean, trimmed_mean
from dask_gpuselect.robust.questions import DeviationQuestion
from tests.backends import Backend
from tests.data import FLOATS, normal, two_halves, uniform
from tests.features.test_boxplot import Shaped
from tests.matrix import definitions
from tests.oracle import check
from tests.spies import noted

trimmed, nantrimmed = (partial(f, proportiontocut=0.1) for f in (trimmed_mean, nantrimmed_mean))


def formula(a: NDArray[Any]) -> Any:
    return definitions.mad("mad", definitions.Slot(a.ravel(), None, 0), a.dtype, scale=1.0)


def computed(x: da.Array) -> Any:
    return x.compute(scheduler="sync")


# --- Values ---------------------------------------------------------------------------------------


def by_steps(parts: list[NDArray[Any]], dtype: np.dtype[Any], n_pivots: int) -> tuple[Any, int]:
    """The deviation by the pure functions alone, with so many pivots a chunk; and how many elements
    were gathered at once, at most."""
    question = DeviationQuestion.of(dtype, 1.0, skips_missing=False)
    flat = [kernels.of(part, dtype).elements[0] for part in parts]
    cuts = Cuts.merge([reference.cuts(part, n_pivots) for part in flat])

    def tally(brackets: Any) -> Tally:
        results = [reference.tally(part, brackets, part.size) for part in flat]
        return Tally.merge([part for part in results if part is not None])

    brackets = question.bracket(cuts)
    gathered = tally(brackets)
    most = len(gathered.candidates)
    results = question.resolve(brackets, gathered)
    more = question.third.brackets(brackets, results)
    if more is not None:
        gathered = tally(more)
        most = max(most, len(gathered.candidates))
        results = question.third.resolve(results, more, gathered)
    return question.finish(results, None)[0], most


# --- NaN, infinity, nothing -----------------------------------------------------------------------


# --- Loads, and what is gathered ------------------------------------------------------------------


SHAPES: dict[str, tuple[Callable[[NDArray[Any]], NDArray[Any]], int]] = {
    "uniform": (lambda u: u, 2),
    "exponential": (lambda u: -np.log1p(-u), 2),
    "heavy tails": (lambda u: np.tan(np.pi * (u - 0.5)), 2),
    "constant": (lambda u: np.zeros_like(u), 2),
    "ten values": (lambda u: np.floor(u * 10), 2),
    "mostly one value": (lambda u: np.where(u < 0.6, 3.0, u), 2),
    "lognormal": (lambda u: np.exp(3 * ndtri(u)), 2),
    "tied at the distance": (
        lambda u: np.select([u < 0.1, u < 0.6, u < 0.9], [-10 - u, 2 * u - 0.2, 1.3], 10 + u),
        2,
    ),
    "infinite": (lambda u: np.where(u < 0.1, -np.inf, np.where(u > 0.8, np.inf, u)), 2),
    "no distance": (lambda u: np.where(u < 0.6, np.inf, u), 2),
    "two halves": (two_halves, 3),
    "lost in rounding": (lambda u: np.where(u < 0.5, -1e8 - u, u * 1e-20), 3),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.usefixtures("nothing_kept")
def test_loads_and_candidates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loads, a third where it must be, each of 60 times the square root of a chunk at most."""
    shape, loads = SHAPES[name]
    n, chunk = 350_000, 35_000
    function = (mad, nanmad)[len(name) % 2]
    source = Shaped(n, shape)
    lazy = function(source.lazy(chunk), scale=1.0)
    assert not source.loads
    tallies = noted(monkeypatch, kernels, "tally", lambda tally, *_, **__: len(tally.candidates))
    result = computed(lazy)
    assert set(source.loads.values()) == {loads}
    assert len(tallies) == (loads - 1) * n // chunk
    check(result, formula(source.whole()))
    for start in range(0, len(tallies), n // chunk):
        load = tallies[start : start + n // chunk]
        assert sum(load) <= 60 * n // chunk * chunk**0.5
    assert name not in ("constant", "ten values") or sum(tallies) == 0


def test_few_steps() -> None:
    """What all tasks are told for a third load is thinned, and answers as before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deviations, "ROOM", -1)
        patch.setattr(deviations, "LEAST_ROOM", -1)
        patch.setattr(deviations, "MOST_STEPS", 32)
        for name in ("normal", "tied", "half tied", "lognormal", "infinite"):
            a = FLOATS[name](20_000)
            result, most = by_steps(list(np.split(a, 4)), a.dtype, 100)
            check(result, formula(a), name)
            assert most <= len(a) / 2, name


# --- A source that changes ------------------------------------------------------------------------


def test_shells_that_do_not_hold_are_told() -> None:
    a = np.arange(1000.0)
    question = DeviationQuestion.of(a.dtype, 1.0, skips_missing=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deviations, "LEAST_ROOM", 0)
        brackets = question.bracket(Cuts.merge([reference.cuts(a, 30)]))
    assert brackets.spared is None
    # The middle where it was, and all others further away.
    b = 500 + (a - 500) * np.where(np.abs(a - 500) > 50, 3.0, 1.0)
    gathered = reference.tally(b, brackets, b.size)
    assert gathered is not None
    with pytest.raises(ChunksChangedError, match="middle distances"):
        question.resolve(brackets, gathered)


def test_elements_that_are_not_gathered_must_be_further() -> None:
    ends, wanted = np.array([-2.0, -1.0, 1.0, 5.0]), np.array([0, 1, 0, 1, 0], bool)
    inner = np.array([0, 0, 1, 0, 0], bool)
    brackets = Brackets(ends, wanted, inner=inner)
    at_four = Candidates(np.array([4.0]))
    # One further below than -2, one inside, and one at 4.
    tally = Tally(np.array([1, 1, 2, 3]), np.array([1, 1, 2, 3]), at_four, 3, 0)
    with pytest.raises(ChunksChangedError, match="middle distances"):
        deviations.distances_of_ranks(brackets, tally, np.float64(0), np.array([1]))
    without = Tally(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 2]), at_four, 2, 0)
    actual = deviations.distances_of_ranks(brackets, without, np.float64(0), np.array([1]))
    assert actual.tolist() == [4.0]


# --- Data in memory -------------------------------------------------------------------------------


def test_a_guess_that_leaves_the_median_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of ten magnitudes: the shells are looked for again once the median is known, and
    nothing is measured."""
    monkeypatch.setattr(pilot, "PILOT_WORTH", 2000)
    monkeypatch.setattr(pilot, "PILOT_SIZE", 6000)
    monkeypatch.setattr(deviations, "SAMPLED_ROOM", (0.1, 0.3, 0.6))
    monkeypatch.delattr(kernels, "cuts")
    clusters = np.floor(uniform(40_000) * 10)
    a = np.exp(60 * (clusters + 1e-3 * normal(40_000)))
    check(mad(a, scale=1.0), formula(a))
    check(mad(a[::2], scale=1.0), formula(a[::2]))


# --- Kinds of arrays ------------------------------------------------------------------------------


def test_large_arrays_of_any_kind(backend: Backend) -> None:
    """With candidates that stay on a device, and a third load."""
    n = 1 << (21 if backend.name == "cupy" else 17)
    for a in (normal(n), two_halves(uniform(n)), np.floor(uniform(n) * 10)):
        wanted = formula(a)
        check(backend.to_numpy(mad(backend.asarray(a), scale=1.0)), wanted)
        for x in (backend.held(a, n // 2), backend.lazy(a, n // 4)):
            check(backend.to_numpy(computed(mad(x, scale=1.0))), wanted)


# --- Trimmed means --------------------------------------------------------------------------------


def test_means_are_rounded_once() -> None:
    """A float64 halfway between two float32 does not tell which of them is nearer."""
    total = ExactSums.of(np.zeros(2, np.int64), 1, np.array([2.0 + 2.0**-23, 2.0**-60]))
    (result,) = means(np.array([2]), total, np.dtype("f4"))
    assert result == np.float32(1 + 2.0**-23)
    (nothing,) = means(np.array([0]), ExactSums.zeros((1,)), np.dtype("f8"))
    assert np.isnan(nothing)
