"""Weights are summed by value and group without rounding, whatever they are."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu import value_weights as compiled
from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.value_weights import ValueWeights
from tests.data import uniform

N = 2400
UNIT = uniform(N)[::-1]
WEIGHTS: dict[str, NDArray[Any]] = {
    "floats": UNIT,
    "counts and none": np.floor(UNIT * 4).astype("i2"),
    "every magnitude": np.ldexp(0.5 + UNIT, np.floor(2090 * uniform(N)).astype(int) - 1073),
    "two magnitudes": np.where(np.arange(N) % 3 == 0, UNIT * 1e-300, UNIT * 1e300),
    "beyond 2**53": np.floor(UNIT * 2.0**61).astype("u8") * 4 + 1,
}
DTYPES = ("f2", "u1", "?", "i1", "u2", "i2")


def elements(dtype: str) -> NDArray[Any]:
    """With NaN, infinities and zeros of both signs, if there are such."""
    place = uniform(N)
    if dtype == "?":
        return place < 0.3
    if dtype != "f2":
        return np.floor((place - 0.4) * 300).astype(dtype)
    values = np.round((place - 0.5) * 40).astype("f2")
    values[::7], values[1::50], values[2::60] = -0.0, np.nan, np.inf
    values[3::70] = -np.inf
    return values


def exact(weight: Any) -> Fraction:
    return Fraction(int(weight)) if weight.dtype.kind in "iub" else Fraction(float(weight))


def expected(values: Any, weights: Any) -> dict[float, tuple[int, Fraction]]:
    """How many elements each value has that weigh anything, and what these weigh."""
    found: dict[float, tuple[int, Fraction]] = {}
    for value, weight in zip(values.astype("f8") + 0.0, weights, strict=True):
        if weight > 0 and value == value:
            n, total = found.get(float(value), (0, Fraction(0)))
            found[float(value)] = n + 1, total + exact(weight)
    return found


def assert_lane(found: ValueWeights, lane: int, values: Any, weights: Any) -> None:
    wanted = expected(values, weights)
    stop = int(np.cumsum(found.sizes)[lane])
    own = slice(stop - int(found.sizes[lane]), stop)
    assert found.values[own].tolist() == sorted(wanted)
    assert not np.signbit(found.values[own][found.values[own] == 0]).any()
    sums = found.weights.integers(-68)[own]
    for value, n, total in zip(found.values[own], found.counts[own], sums, strict=True):
        assert (int(n), Fraction(int(total), 1 << 1088)) == wanted[float(value)]
    square = sum(exact(weight) ** 2 for weight in weights[(weights > 0) & (values == values)])
    assert Fraction(int(found.squares.integers(-136)[lane]), 1 << 2176) == square
    wide = values.astype("f8")
    assert found.numbers.valid[lane] == sum(n for n, _ in wanted.values())
    assert found.numbers.missing[lane] == np.count_nonzero((wide != wide) & (weights > 0))
    assert found.numbers.idle[lane] == np.count_nonzero(weights == 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_groups(dtype: str) -> None:
    values, codes = elements(dtype), np.floor(uniform(N + 9)[9:] * 5).astype("i4") - 1
    keeps = uniform(N + 5)[5:] < 0.7
    for kind in WEIGHTS:
        weights = WEIGHTS[kind].copy()
        weights[codes < 0] = weights[~keeps] = 0 if kind == "beyond 2**53" else -1
        parts = zip(*(np.array_split(a, 3) for a in (values, keeps, weights, codes)), strict=True)
        chunks = [Accompanied(*part) for part in parts]
        for some in ([chunks], [[chunk] for chunk in chunks]):
            found = ValueWeights.merge(
                [
                    kernels.values.group_value_weights(
                        each, values.dtype, lambda labels: labels, 4, with_squares=True
                    )
                    for each in some
                ]
            )
            for group in range(4):
                own = (codes == group) & keeps
                assert_lane(found, group, values[own], weights[own])
                assert found.numbers.left_out[group] == ((codes == group) & ~keeps).sum()


@pytest.mark.parametrize(
    ("weight", "message"),
    [(-1.0, "non-negative"), (-np.inf, "non-negative"), (np.inf, "inf"), (-np.nan, "NaN")],
)
def test_what_is_no_weight(weight: float, message: str) -> None:
    weights = np.ones(9)
    weights[4] = weight
    for module in (reference, compiled):
        for codes in (np.zeros(9, "i4"), -(np.arange(9) == 4).astype("i4")):
            part = (np.zeros(9, "u1"), weights, None, codes)
            found = module.value_weights(iter([part]), 1, 256, None)
            if codes[4] < 0:  # of no group
                (one,) = found
                assert one.counts.tolist() == [8]
                continue
            with pytest.raises(ValueError, match=message):
                list(found)


def test_scratch_is_two_chunks() -> None:
    """Beside the report: of as many values as there can be, and weights of every magnitude."""
    n = 2_000_000
    values = np.resize(np.arange(1 << 16, dtype="u2"), n)
    weights = np.ldexp(0.5 + uniform(n), np.arange(n) % 2090 - 1073)
    chunk = Accompanied(values, None, weights)

    def ask() -> ValueWeights:
        return kernels.values.lane_value_weights([chunk], values.dtype, (0,), with_squares=True)

    ask()
    tracemalloc.start()
    report = ask()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.weights.digits.shape == (132, 1 << 16)
    assert kept <= 1.1 * report.__sizeof__()
    assert peak - kept <= 2 * (values.nbytes + weights.nbytes)


def test_nothing_at_all() -> None:
    for parts in ([], [(np.empty(0, "u2"), np.empty(0), None, np.empty(0, "i4"))]):
        (found,) = compiled.value_weights(iter(parts), 3, 1 << 16, None)
        told = ValueWeights.of_words(found, np.dtype("i2"))
        assert (told.sizes.tolist(), told.numbers.valid.tolist()) == ([0, 0, 0], [0, 0, 0])
