"""Weighted elements of NumPy chunks: what the Numba kernels do with chunks of many runs and blocks,
and with any order of memory. What holds for all kernels is in `test_weighing`."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu import weighing
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST
from dask_gpuselect.kernels.cpu.spans import FEW_ENDS
from dask_gpuselect.kernels.reference import weighing as reference
from dask_gpuselect.kernels.reference.selection import HEAVY
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.weights import SQUARE_ROUNDINGS, WeightedCuts, WeightedTally
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS, hashed, make, normal, uniform

POINT = 1088  # a unit of exact sums is 2**-1088

WEIGHTS: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "uniform": lambda n: 1 - hashed(np.arange(n) + 77),
    "equal": lambda n: np.full(n, 0.1),
    "whole": lambda n: np.floor(uniform(n) * 9) + 1,
    "exponential": lambda n: -np.log1p(-hashed(np.arange(n) + 77)) + 1e-9,
    "lognormal": lambda n: np.exp(5 * normal(n + 3)[3:]),
    "all magnitudes": lambda n: 10.0 ** (hashed(np.arange(n) + 5) * 600 - 300),
    "denormal": lambda n: np.floor(uniform(n) * 1000 + 1) * 5e-324,
    "largest": lambda n: np.full(n, np.finfo("f8").max),
    "nearly all denormal": lambda n: np.where(hashed(np.arange(n)) < 0.001, 1e300, 5e-324),
    "one heavy": lambda n: np.where(np.arange(n) == n * 2 // 3, 1e6 * (n + 1), 1.5),
    "some heavy": lambda n: np.where(np.arange(n) % 997 == 5, 3e5, 1 + uniform(n)),
    "drifting": lambda n: np.ldexp(1 + uniform(n), np.arange(n) // 40 % 1800 - 900),
}

CASES = [
    *((name, dtype) for name in FLOATS for dtype in ("f8", "f4")),
    *((name, dtype) for name in INTEGERS for dtype in INTEGER_DTYPES),
]


def exact_of(weights: NDArray[np.float64]) -> NDArray[np.object_]:
    """Weights as whole numbers of units."""
    exact = [Fraction(weight) * 2**POINT for weight in weights.tolist()]
    return np.array([number.numerator for number in exact], np.object_)


class Exact:
    """What is below and up to any value, in numbers and in weight."""

    def __init__(self, values: NDArray[Any], weights: NDArray[np.float64]) -> None:
        order = np.argsort(values)
        self.ordered, self.weights = values[order], weights
        sums = [0]
        for weight in exact_of(weights[order]):
            sums.append(sums[-1] + weight)
        self.sums = np.array(sums, np.object_)
        self.total = sums[-1]

    def at(self, ends: NDArray[Any]) -> list[NDArray[Any]]:
        below, upto = (np.searchsorted(self.ordered, ends, side) for side in ("left", "right"))
        return [below, upto, self.sums[below], self.sums[upto]]

    @property
    def square(self) -> Fraction:
        return sum((Fraction(weight) ** 2 for weight in self.weights.tolist()), Fraction())


def assert_rounded_down(units: Any, exact: Any, unit: int, n: Any) -> None:
    """By less than a unit for each element."""
    shift = unit + POINT
    least = units << shift if shift >= 0 else units
    loss = exact - least if shift >= 0 else (exact << -shift) - least
    assert 0 <= loss <= max(n * (1 << max(shift, 0)) - 1, 0)


def assert_cuts(cuts: WeightedCuts, exact: Exact, n_pivots: int) -> None:
    n = len(exact.ordered)
    assert (cuts.pivots[1:] > cuts.pivots[:-1]).all()
    assert cuts.pivots.dtype == exact.ordered.dtype
    assert cuts.sizes.tolist() == [len(cuts.pivots)]
    assert (len(cuts.pivots) > 0) == (n > 0)
    assert (cuts.n_valid.tolist(), cuts.n_missing.tolist()) == ([n], [0])
    below, upto, weight_below, weight_upto = exact.at(cuts.pivots)
    np.testing.assert_array_equal(cuts.below, below)
    np.testing.assert_array_equal(cuts.upto, upto)
    unit, weight = int(cuts.unit[0]), int(cuts.weight[0])
    assert weight < 2**62
    assert_rounded_down(weight, exact.total, unit, n)
    for i in range(len(cuts.pivots)):
        assert_rounded_down(int(cuts.weight_below[i]), weight_below[i], unit, int(below[i]))
        assert_rounded_down(int(cuts.weight_upto[i]), weight_upto[i], unit, int(upto[i]))
    square = exact.square / Fraction(2) ** (2 * unit)
    assert abs(Fraction(float(cuts.square[0])) - square) <= square * (n + SQUARE_ROUNDINGS) / 2**52

    for low, high, total in (
        (cuts.upto, cuts.below, n),
        (cuts.weight_upto, cuts.weight_below, weight),
    ):
        inside = np.append(high, total) - np.append(np.int64(0), low)
        assert inside.max() <= HEAVY * max(total / n_pivots, 1)


def assert_tally(found: WeightedTally | None, exact: Exact, brackets: Brackets) -> None:
    assert found is not None
    n = len(exact.ordered)
    below, upto, weight_below, weight_upto = exact.at(brackets.ends)
    np.testing.assert_array_equal(found.below, below)
    np.testing.assert_array_equal(found.upto, upto)
    assert found.weight_below.tolist() == weight_below.tolist()
    assert found.weight_upto.tolist() == weight_upto.tolist()
    assert (found.weight, found.n_valid, found.n_missing) == (exact.total, n, 0)


def candidates_of(
    values: NDArray[Any], weights: NDArray[np.float64], brackets: Brackets
) -> list[tuple[Any, float]]:
    """The candidates with their weights, ascending."""
    cell = np.searchsorted(brackets.ends, values)
    is_end = (np.searchsorted(brackets.ends, values, "right")) > cell
    is_in = brackets.wanted[cell] & ~is_end
    return sorted(zip(values[is_in].tolist(), weights[is_in].tolist(), strict=True))


def brackets_at(values: NDArray[Any], n_ends: int, seed: int) -> Brackets:
    """Ends among the values and beside them, and cells wanted at random."""
    rng = np.random.default_rng(seed)
    some = rng.choice(values, n_ends) if len(values) else values[:0]
    if values.dtype.kind == "f" and len(some) > 2:
        with np.errstate(all="ignore"):
            some[1::3] = np.nextafter(some[1::3], values.dtype.type(np.inf))
    ends = np.unique(some)
    return Brackets(ends, rng.random(len(ends) + 1) < 0.4)


def assert_both_loads(values: NDArray[Any], weights: NDArray[np.float64]) -> None:
    n = len(values)
    n_pivots = min(n, max(16, math.isqrt(n))) or 1
    exact = Exact(values, weights)
    assert_cuts(weighing.cuts(values, weights, n_pivots), exact, n_pivots)
    for n_ends in (0, 6, FEW_ENDS, 40, 300):
        brackets = brackets_at(values, n_ends, n_ends)
        found = weighing.tally(values, weights, brackets, n)
        assert_tally(found, exact, brackets)
        assert found is not None
        wanted = candidates_of(values, weights, brackets)
        pairs = zip(found.candidates.on_host().tolist(), found.weights.tolist(), strict=True)
        assert sorted(pairs) == wanted
        if wanted:
            assert weighing.tally(values, weights, brackets, len(wanted) - 1) is None


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_both_loads_of_any_data(name: str, dtype: str) -> None:
    n = SORT_AT_MOST + 100
    values = make(name, dtype, n)
    assert_both_loads(values, WEIGHTS["exponential"](n))
    assert_both_loads(values[:300], WEIGHTS["exponential"](300))


def test_data_and_weights_go_together() -> None:
    """Of the largest elements, and of ties."""
    n = 50_000
    for values in (normal(n), np.floor(uniform(n) * 10), np.full(n, 2.5)):
        assert_both_loads(values, np.exp(4 * values) + 1e-3 * uniform(n) + 1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", ["f8", "f4", *INTEGER_DTYPES])
def test_products_are_exact(dtype: str) -> None:
    """Of any magnitude, in few cells and in many."""
    n = 5000
    names = ["every binade", "denormal", "outliers"] if dtype[0] == "f" else list(INTEGERS)
    for name in names:
        values = make(name, dtype, n)
        finite = values[np.isfinite(values)]
        for kind in ("all magnitudes", "largest", "whole"):
            weights = WEIGHTS[kind](n)
            for n_ends in (3, 100):
                ends = np.unique([finite.min(), *finite[:n_ends], finite.max()]).astype(dtype)
                summed = np.zeros(len(ends) + 1, np.bool_)
                summed[1:-1] = hashed(np.arange(len(ends) - 1)) < 0.7
                found = weighing.products(values, weights, ends, summed)
                wanted = reference.products(values, weights, ends, summed)
                assert found.tolist() == wanted.tolist()


# --- Elements that take part ----------------------------------------------------------------------


def weighed_of(
    values: NDArray[Any], weights: NDArray[Any], keeps: NDArray[np.bool_] | None
) -> tuple[list[tuple[Any, float]], int]:
    found, found_weights, n_missing = weighing.weighed(
        Accompanied(values, keeps, weights), values.dtype
    )
    assert found.dtype == selection_dtype(values.dtype)
    assert found_weights.dtype == np.float64
    assert found.ndim == found_weights.ndim == 1
    assert found.flags.c_contiguous
    assert found_weights.flags.c_contiguous
    return list(zip(found.tolist(), found_weights.tolist(), strict=True)), n_missing


def oracle(
    values: NDArray[Any], weights: NDArray[Any], keeps: NDArray[np.bool_] | None
) -> tuple[list[tuple[Any, float]], int]:
    wanted = selection_dtype(values.dtype)
    is_missing = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values)
    same = values.view(wanted) if values.dtype.kind in "mM" else values.astype(wanted)
    takes_part = (weights > 0) & (True if keeps is None else keeps)
    is_in = takes_part & ~is_missing
    pairs = zip(same[is_in].tolist(), weights[is_in].astype(float).tolist(), strict=True)
    return sorted(pairs), int((takes_part & is_missing).sum())


def test_weights_that_are_broadcast() -> None:
    x = normal(600).reshape(20, 30)
    x[3, 4] = np.nan
    rows = np.broadcast_to(WEIGHTS["uniform"](20)[:, np.newaxis], x.shape)
    columns = np.broadcast_to(WEIGHTS["whole"](30), x.shape)
    keeps = np.broadcast_to(np.arange(30) % 3 > 0, x.shape)
    for weights in (rows, columns, np.broadcast_to(2.5, x.shape)):
        for given in ((x, weights, None), (x.T, weights.T, None), (x, weights, keeps)):
            pairs, n_missing = weighed_of(*given)
            assert (sorted(pairs), n_missing) == oracle(*given)
