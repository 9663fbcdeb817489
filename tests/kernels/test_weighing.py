"""Elements that weigh: every backend reports the counts and the exact sums of weights that
fractions give, on all adversarial data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.maths.weights import SQUARE_ROUNDINGS, WeightedCuts, WeightedTally
from tests.backends import CUPY, NUMPY, Backend, kernel_module, param
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS, MISSING, make, uniform

Weights = NDArray[Any]
FEW_STEPS = 4  # of count or weight that an open cell may hold, in shares of a pivot


@dataclass(frozen=True)
class Kernel:
    """Kernels for elements that weigh, and the arrays that they take."""

    name: str
    backend: Backend

    def __str__(self) -> str:
        return self.name if self.backend is NUMPY or self.name == "cuda" else f"{self.name} on GPU"

    @property
    def module(self) -> Any:
        return kernel_module(self.name, "weighing")

    def weighed(
        self, values: NDArray[Any], weights: Weights, keeps: NDArray[np.bool_] | None = None
    ) -> tuple[Any, Any, int]:
        arrays = (None if x is None else self.backend.asarray(x) for x in (values, keeps, weights))
        found: tuple[Any, Any, int] = self.module.weighed(Accompanied(*arrays), values.dtype)
        return found


REFERENCE, CPU = Kernel("reference", NUMPY), Kernel("cpu", NUMPY)
KERNELS = [REFERENCE, CPU, Kernel("reference", CUPY), Kernel("cuda", CUPY)]
each_kernel = pytest.mark.parametrize(
    "kernel", [param(kernel.backend, kernel, id=str(kernel)) for kernel in KERNELS]
)

WEIGHTS: dict[str, Callable[[int], Weights]] = {
    "equal": lambda n: np.ones(n),
    "tenths": lambda n: np.full(n, 0.1),
    "uniform": uniform,
    "counts": lambda n: np.floor(uniform(n) * 5),
    "lognormal": lambda n: np.exp(3 * np.random.default_rng(1).normal(size=n)),
    "one heavy": lambda n: np.where(np.arange(n) == n // 3, n, 1.0),
    "denormal": lambda n: np.floor(uniform(n) * 9) * 5e-324,
    "largest": lambda n: np.where(uniform(n) < 0.5, 1.7e308, 5e-324),
    "every magnitude": lambda n: 10.0 ** (600 * uniform(n) - 300),
    "float32": lambda n: uniform(n).astype(np.float32),
    "bool": lambda n: uniform(n) < 0.5,
    "uint8": lambda n: (uniform(n) * 200).astype(np.uint8),
    "beyond 2**53": lambda n: (uniform(n) * 2**62).astype(np.int64) | 1,
}


def exactly(weights: Weights) -> list[Fraction]:
    return [Fraction(weight) for weight in weights.tolist()]


UNIT = 2**1088


def taking_part(
    values: NDArray[Any], weights: Weights, keeps: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.bool_], int]:
    """Which elements take part, and how many of the others are missing and weigh something."""
    takes = (weights > 0) & (True if keeps is None else keeps)
    is_missing = values != values
    return takes & ~is_missing, int(np.count_nonzero(takes & is_missing))


def check_cuts(cuts: WeightedCuts, values: NDArray[Any], weights: Weights, n_pivots: int) -> None:
    """Assert that cuts of elements that take part are right, and fine enough."""
    order = np.argsort(values, kind="stable")
    values, exact = values[order], np.array([0, *np.cumsum(exactly(weights[order]))], object)
    pivots, n = cuts.pivots, len(values)
    assert pivots.dtype == values.dtype
    assert (pivots[1:] > pivots[:-1]).all()
    assert (cuts.n_valid, cuts.n_missing, cuts.sizes) == ([n], [0], [len(pivots)])
    np.testing.assert_array_equal(cuts.below, np.searchsorted(values, pivots, "left"))
    np.testing.assert_array_equal(cuts.upto, np.searchsorted(values, pivots, "right"))
    unit = Fraction(2) ** int(cuts.unit[0])
    counts = [*cuts.below, *cuts.upto, n]
    for count, least in zip(
        counts, [*cuts.weight_below, *cuts.weight_upto, *cuts.weight], strict=True
    ):
        assert least * unit <= exact[count]
        assert exact[count] < (int(least) + int(count)) * unit or count == 0 == least
    assert cuts.weight[0] < 2**62
    if n == 0:
        return
    # Units are so small that they hardly matter.
    assert exact[n] >= n * unit * 2**20 or exact[n] < 2**53
    square = sum(weight**2 for weight in exactly(weights))
    error = Fraction(n + SQUARE_ROUNDINGS, 2**52)
    assert abs(Fraction(cuts.square[0]) * unit**2 - square) <= square * error
    # No cell has much of the elements or of the weight.
    before, after = np.append(0, cuts.upto), np.append(cuts.below, n)
    assert (after - before).max() <= FEW_STEPS * n / n_pivots + 1
    inside = exact[after] - exact[before]
    assert max(inside) <= FEW_STEPS * exact[n] / n_pivots + n * unit
    assert len(pivots) <= 5 * n_pivots


def check_tally(
    tally: WeightedTally, brackets: Brackets, values: NDArray[Any], weights: Weights
) -> None:
    """Assert that a tally of elements that take part is what fractions give."""
    exact = np.array([weight * UNIT for weight in exactly(weights)], object)
    assert (tally.n_valid, tally.n_missing) == (len(values), 0)
    for i, end in enumerate(brackets.ends):
        assert tally.below[i] == np.count_nonzero(values < end)
        assert tally.upto[i] == np.count_nonzero(values <= end)
        assert tally.weight_below[i] == exact[values < end].sum()
        assert tally.weight_upto[i] == exact[values <= end].sum()
    assert tally.weight == exact.sum()
    assert all(isinstance(sum_, int) for sum_ in [tally.weight, *tally.weight_upto])
    ends = brackets.ends
    left, right = (np.searchsorted(ends, values, side) for side in ("left", "right"))
    takes = brackets.wanted[left] & (left == right)
    candidates = tally.candidates.on_host()
    assert candidates.dtype == values.dtype
    found = sorted(zip(candidates.tolist(), exactly(tally.weights), strict=True))
    assert found == sorted(zip(values[takes].tolist(), exactly(weights[takes]), strict=True))


def brackets_of(values: NDArray[Any], n_ends: int, wanted: slice) -> Brackets:
    """Some elements as ends, and some of the cells between."""
    ends = np.unique(values[:: max(len(values) // max(n_ends, 1), 1)][:n_ends])
    is_wanted = np.zeros(len(ends) + 1, np.bool_)
    is_wanted[wanted] = True
    return Brackets(ends, is_wanted)


def check(kernel: Kernel, values: NDArray[Any], weights: Weights) -> None:
    """Assert that all that a kernel reports of a chunk is right."""
    mine = taking_part(values, weights)[0]
    elements, weighs = values.astype(selection_dtype(values.dtype))[mine], weights[mine]
    given = kernel.weighed(values, weights)[:2]
    n_pivots = max(pivot_count(len(elements)), 1)
    check_cuts(kernel.module.cuts(*given, n_pivots), elements, weighs, n_pivots)
    for n_ends, wanted in ((0, slice(1)), (1, slice(0)), (5, slice(1, None, 2)), (60, slice(9))):
        brackets = brackets_of(elements, n_ends, wanted)
        found = kernel.module.tally(*given, brackets, len(elements))
        check_tally(found, brackets, elements, weighs)
        n_candidates = len(found.candidates)
        if n_candidates:
            assert kernel.module.tally(*given, brackets, n_candidates - 1) is None
        check_products(kernel, given, brackets.ends, elements, weighs)


def check_products(
    kernel: Kernel, given: Any, ends: NDArray[Any], values: NDArray[Any], weights: Weights
) -> None:
    if values.dtype.kind == "f":
        ends = ends[np.isfinite(ends)]
    if len(ends) < 2:
        return
    summed = np.zeros(len(ends) + 1, np.bool_)
    summed[1:-1:2] = True
    found = kernel.module.products(*given, ends, summed)
    for i, is_summed in enumerate(summed):
        inside = np.zeros(len(values), np.bool_)
        if is_summed:
            inside = (values > ends[i - 1]) & (values < ends[i])
        pairs = zip(exactly(values[inside]), exactly(weights[inside]), strict=True)
        assert found[i] == sum(a * b for a, b in pairs) * UNIT**2


# --- Which elements take part ---------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("dtype", ["f2", "f4", "?", *INTEGER_DTYPES])
def test_elements_are_of_the_dtype_they_are_compared_in(kernel: Kernel, dtype: str) -> None:
    values = np.array([1, 0, 1, 1], dtype)
    weights = np.broadcast_to(np.array([1.0, 2, 0, 1]), 4)
    elements, weighs, _ = kernel.weighed(values, weights)
    if kernel.name != "cuda":
        assert to_host(elements).dtype == selection_dtype(np.dtype(dtype))
    assert to_host(elements).tolist() == [1, 0, 1]
    assert to_host(weighs).tolist() == [1, 2, 1]


@pytest.mark.parametrize("kernel", [REFERENCE, CPU], ids=str)
@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]"])
def test_dates(kernel: Kernel, dtype: str) -> None:
    values = np.array([5, "NaT", 3, "NaT"], dtype)
    elements, weights, n_missing = kernel.weighed(values, np.array([1.0, 2, 1, 0]))
    assert elements.tolist() == [5, 3]
    assert weights.tolist() == [1, 1]
    assert n_missing == 1


@each_kernel
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, "Weights must be non-negative."),
        (-np.inf, "Weights must be non-negative."),
        (np.nan, "Weights included NaN, inf or were all zero."),
        (np.inf, "Weights included NaN, inf or were all zero."),
        (np.int64(-1), "Weights must be non-negative."),
        (np.uint64(2**63), r"Weights must be below 2\*\*63, and one is 9223372036854775808"),
    ],
)
def test_weights_that_are_none(kernel: Kernel, weight: Any, message: str) -> None:
    values = np.array([1.0, np.nan, 3])
    weights = np.full(3, 1, np.asarray(weight).dtype)
    weights[1] = weight  # of an element that is missing
    with pytest.raises(ValueError, match=message):
        kernel.weighed(values, weights)
    elements, _, n_missing = kernel.weighed(values, weights, np.array([True, False, True]))
    assert to_host(elements).tolist() == [1, 3]
    assert n_missing == 0


# --- What is reported of them ---------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("n", [0, 1, 2, 3000])
@pytest.mark.parametrize("name", WEIGHTS)
def test_reports_of_any_weights(kernel: Kernel, name: str, n: int) -> None:
    check(kernel, make("normal", "f8", n), WEIGHTS[name](n))


@pytest.mark.few(12)
@each_kernel
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("data", [*FLOATS, *MISSING])
def test_reports_of_floats(kernel: Kernel, data: str, dtype: str) -> None:
    check(kernel, make(data, dtype, 500), WEIGHTS["lognormal"](500))


@each_kernel
@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("data", INTEGERS)
def test_reports_of_integers(kernel: Kernel, data: str, dtype: str) -> None:
    name = "uniform" if dtype == "i8" else "beyond 2**53"
    check(kernel, make(data, dtype, 500), WEIGHTS[name](500))


def check_moments(kernel: Kernel, values: NDArray[Any], weights: Weights) -> None:
    taken, their_weights, _ = kernel.weighed(values, weights)
    found = kernel.module.moments(taken, their_weights)
    takes, _ = taking_part(values, weights)
    pairs = list(zip(values[takes].tolist(), exactly(weights[takes]), strict=True))
    finite = [(Fraction(x), weight) for x, weight in pairs if np.isfinite(x)]
    assert found.n == sum(weight for _, weight in finite) * UNIT
    assert found.total == sum(x * weight for x, weight in finite) * UNIT**2
    assert found.square == sum(x * x * weight for x, weight in finite) * UNIT**3
    assert found.n_high == sum(x == np.inf for x, _ in pairs)
    assert found.n_low == sum(x == -np.inf for x, _ in pairs)


@pytest.mark.few(4)
@each_kernel
@pytest.mark.parametrize("name", WEIGHTS)
def test_moments_of_any_weights(kernel: Kernel, name: str) -> None:
    check_moments(kernel, make("normal", "f8", 300), WEIGHTS[name](300))
    check_moments(kernel, make("whole range", "u8", 300), WEIGHTS[name](300))


@each_kernel
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("data", [*FLOATS, *MISSING])
def test_moments_of_floats(kernel: Kernel, data: str, dtype: str) -> None:
    with np.errstate(over="ignore"):
        values = make(data, dtype, 200)
    check_moments(kernel, values, WEIGHTS["every magnitude"](200))


@each_kernel
@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("data", INTEGERS)
def test_moments_of_integers(kernel: Kernel, data: str, dtype: str) -> None:
    check_moments(kernel, make(data, dtype, 200), WEIGHTS["lognormal"](200))
