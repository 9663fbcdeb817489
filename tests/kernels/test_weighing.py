"""Elements that weigh: every backend reports the counts and the exact sums of weights that
integers give, on all adversarial data."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST
from dask_gpuselect.kernels.cpu.spans import FEW_ENDS
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.maths.weights import PRODUCT_UNIT, SQUARE_ROUNDINGS, WEIGHT_UNIT
from tests import backends
from tests.backends import CUPY, NUMPY, each
from tests.data import INTEGER_DTYPES, cases_of, hashed, make, normal, uniform

Weights = NDArray[Any]
IntArray = NDArray[np.int64]
ENDS = (0, 1, 5, 60)
FEW_STEPS = 4  # of count or weight that an open cell may hold, in shares of a pivot


class Kernel(backends.Kernel):
    """Kernels for elements that weigh, and the arrays that they take."""

    purpose = "weighing"

    def chunk(
        self, values: NDArray[Any], weights: Weights, keeps: NDArray[np.bool_] | None = None
    ) -> Accompanied:
        arrays = (values, keeps, weights)
        return Accompanied(*(None if x is None else self.backend.asarray(x) for x in arrays))

    def weighed(self, values: NDArray[Any], *beside: Any) -> tuple[Any, Any, int]:
        made: tuple[Any, Any, int] = self.module.weighed(self.chunk(values, *beside), values.dtype)
        return made


REFERENCE, CPU, CUDA = Kernel("reference", NUMPY), Kernel("cpu", NUMPY), Kernel("cuda", CUPY)
each_kernel = each(REFERENCE, CPU, Kernel("reference", CUPY), CUDA)

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


POINT = 1088
UNIT = 2**POINT


def exactly(numbers: NDArray[Any]) -> list[int]:
    """Finite numbers as whole ones of units of ``2**-POINT``."""
    ratios = (number.as_integer_ratio() for number in numbers.tolist())
    return [above * (UNIT // below) for above, below in ratios]


def upto(numbers: list[int]) -> NDArray[np.object_]:
    """The sums of the first numbers: of none, of one, and so on."""
    return np.array([*accumulate(numbers, initial=0)], np.object_)


class Exact:
    """Elements that take part, ascending, with what they weigh in units; and how many of the others
    are missing, weigh nothing and are left out."""

    def __init__(self, values: NDArray[Any], weights: Weights, keeps: Any = None) -> None:
        keep = np.ones(len(values), np.bool_) if keeps is None else keeps
        takes, is_missing = keep & (weights > 0), values != values
        self.numbers = [
            int(np.count_nonzero(x)) for x in (takes & is_missing, keep & (weights == 0), ~keep)
        ]
        values, weights = (each[takes & ~is_missing] for each in (values, weights))
        order = np.argsort(values, kind="stable")
        self.values = values[order].astype(selection_dtype(values.dtype))
        self.weights = weights[order]
        self.units = exactly(self.weights)
        self.sums = upto(self.units)

    def at(self, ends: NDArray[Any]) -> tuple[IntArray, IntArray]:
        """How many are below and up to each end."""
        below, upto = (np.searchsorted(self.values, ends, side) for side in ("left", "right"))
        return below, upto


def check_cuts(cuts: Cuts, exact: Exact, n_pivots: int) -> None:
    """Assert that cuts of elements that take part are right, and fine enough."""
    pivots, n, sums = cuts.pivots, len(exact.values), exact.sums
    assert pivots.dtype == exact.values.dtype
    assert (pivots[1:] > pivots[:-1]).all()
    assert (cuts.n_valid, cuts.n_missing, cuts.sizes) == ([n], [0], [len(pivots)])
    below, upto = exact.at(pivots)
    np.testing.assert_array_equal(cuts.below, below)
    np.testing.assert_array_equal(cuts.upto, upto)
    # In units of the chunk, each weight rounded down.
    unit = Fraction(2) ** (int(cuts.unit[0]) + POINT)
    counts = [*below.tolist(), *upto.tolist(), n]
    most = [*cuts.weight_below.tolist(), *cuts.weight_upto.tolist(), *cuts.weight_most.tolist()]
    for count, weight in zip(counts, most, strict=True):
        assert (weight - count) * unit <= sums[count]
        assert sums[count] < weight * unit or count == 0 == weight
    np.testing.assert_array_equal(cuts.weight_least, cuts.weight_upto - upto)
    np.testing.assert_array_equal(cuts.weight, cuts.weight_most - n)
    assert cuts.weight[0] < 2**62
    if n == 0:
        return
    # Units are so small that they hardly matter.
    assert sums[n] >= n * unit * 2**20 or sums[n] < 2**53 * UNIT
    square = sum(weight**2 for weight in exact.units)
    error = Fraction(n + SQUARE_ROUNDINGS, 2**52)
    assert abs(Fraction(float(cuts.square[0])) * unit**2 - square) <= square * error
    # No cell has much of the elements or of the weight.
    before, after = np.append(0, upto), np.append(below, n)
    assert (after - before).max() <= FEW_STEPS * n / n_pivots + 1
    assert max(sums[after] - sums[before]) <= FEW_STEPS * Fraction(sums[n], n_pivots) + n * unit
    assert len(pivots) <= 5 * n_pivots


def check_tally(tally: Tally | None, brackets: Brackets, exact: Exact) -> int:
    """Assert that a tally of elements that take part is what sums of integers give, and return how
    many candidates there are."""
    assert tally is not None
    n = len(exact.values)
    below, upto = exact.at(brackets.ends)
    np.testing.assert_array_equal(tally.below, below)
    np.testing.assert_array_equal(tally.upto, upto)
    assert tally.n_valid == n
    sums = tally.weight_below, tally.weight_upto, tally.weight
    for exact_sum, wanted in zip(sums, (below, upto, [n]), strict=True):
        assert exact_sum.integers(WEIGHT_UNIT).tolist() == exact.sums[wanted].tolist()
    left, right = (np.searchsorted(brackets.ends, exact.values, side) for side in ("left", "right"))
    takes = np.flatnonzero(brackets.wanted[left] & (left == right))
    candidates, weights = tally.candidates.on_host(), to_host(tally.weights)
    assert candidates.dtype == exact.values.dtype
    pairs = sorted(zip(candidates.tolist(), exactly(weights), strict=True))
    assert pairs == sorted((exact.values[i].item(), exact.units[i]) for i in takes)
    return len(pairs)


def check_moments(moments: Moments, exact: Exact) -> None:
    is_finite = np.isfinite(exact.values)
    weights = [exact.units[i] for i in np.flatnonzero(is_finite)]
    pairs = [*zip(exactly(exact.values[is_finite]), weights, strict=True)]
    assert isinstance(moments.n, ExactSums)
    sums = (
        each.integers(i * WEIGHT_UNIT)
        for i, each in enumerate((moments.n, moments.total, moments.square), 1)
    )
    for i, sum_ in enumerate(sums):
        assert sum_.tolist() == [sum(x**i * weight for x, weight in pairs)]
    assert moments.n_high == np.count_nonzero(exact.values == np.inf)
    assert moments.n_low == np.count_nonzero(exact.values == -np.inf)


def check_products(products: Any, ends: NDArray[Any], exact: Exact) -> None:
    """Assert that sums of weights times elements are right, in every second cell of finite ends."""
    summed = np.zeros(len(ends) + 1, np.bool_)
    summed[1:-1:2] = True
    below, upto = exact.at(ends)
    wanted = [0] * len(summed)
    for i in np.flatnonzero(summed):
        own = slice(upto[i - 1], below[i])
        pairs = zip(exactly(exact.values[own]), exact.units[own], strict=True)
        wanted[i] = sum(a * b for a, b in pairs)
    assert products(ends, summed).integers(PRODUCT_UNIT).tolist() == wanted


def check(
    kernel: Kernel, values: NDArray[Any], weights: Weights, keeps: Any = None, *, n_ends: Any = ENDS
) -> None:
    """Assert that all that a kernel reports of a chunk is right."""
    exact, n = Exact(values, weights, keeps), len(values)
    given = kernel.weighed(values, weights, keeps)[:2]
    n_pivots = max(pivot_count(len(exact.values)), 1)
    check_cuts(kernel.module.cuts(*given, n_pivots), exact, n_pivots)
    check_moments(kernel.module.moments(*given), exact)
    bound = kernels.of(kernel.chunk(values, weights, keeps), values.dtype)
    check_moments(kernel.module.moments_ahead(bound)(), exact)
    for number in n_ends:
        step = max(len(exact.values) // max(number, 1), 1)
        ends = np.unique(exact.values[step // 2 :: step][:number])
        brackets = Brackets(ends, hashed(np.arange(len(ends) + 1) + 3 * number) < 0.4)
        n_candidates = check_tally(kernel.module.tally(*given, brackets, n), brackets, exact)
        tally = kernel.module.tally_in_place(bound, brackets, n)
        assert check_tally(tally, brackets, exact) == n_candidates
        assert [tally.n_missing, tally.n_idle, tally.n_left_out] == exact.numbers
        if n_candidates:
            assert kernel.module.tally(*given, brackets, n_candidates - 1) is None
            assert kernel.module.tally_in_place(bound, brackets, n_candidates - 1) is None
        if len(ends := ends[np.isfinite(ends)]) > 1:
            check_products(partial(kernel.module.products, *given), ends, exact)


# --- Which elements take part ---------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, "Weights must be non-negative."),
        (-np.inf, "Weights must be non-negative."),
        (np.nan, "Weights included NaN, inf or were all zero."),
        (np.inf, "Weights included NaN, inf or were all zero."),
        (np.int64(-1), "Weights must be non-negative."),
        (np.uint64(2**63), r"Weights must be below 2\*\*63, not 9223372036854775808"),
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


OF_DTYPES = {"f8": "lognormal", "f4": "every magnitude", "i8": "uniform", "u1": "counts"}
CASES = cases_of("f8", "i8", "f4", "f2", *(each for each in INTEGER_DTYPES if each != "i8"))


@pytest.mark.few(2 * len(cases_of("f8", "i8")))
@each_kernel
@pytest.mark.parametrize(("data", "dtype"), CASES)
def test_reports_of_any_elements(kernel: Kernel, data: str, dtype: str) -> None:
    check(kernel, make(data, dtype, 200), WEIGHTS[OF_DTYPES.get(dtype, "beyond 2**53")](200))


# --- Large chunks ---------------------------------------------------------------------------------

LARGE: dict[str, Callable[[int], Weights]] = {
    "plain": lambda n: uniform(n) + 2.0**-1074,
    "some idle": lambda n: np.maximum(uniform(n) - 0.3, 0),
    **{name: WEIGHTS[name] for name in ("one heavy", "largest", "beyond 2**53", "float32")},
    "few heavy": lambda n: np.where(uniform(n) < 1e-4, 1e6, 1e-3),
    "of all magnitudes": lambda n: np.ldexp(
        1 + uniform(n), (uniform(n)[::-1] * 2000 - 1060).astype(int)
    ),
    "drifting": lambda n: np.ldexp(1 + uniform(n), np.arange(n) // 40 % 1800 - 900),
    "nearly all denormal": lambda n: np.where(hashed(np.arange(n)) < 0.001, 1e300, 5e-324),
    "whole": lambda n: (uniform(n) * 2.0**45).astype(np.int64) + 2**53,
    "int32": lambda n: np.floor(uniform(n) * 1000).astype(np.int32),
    "float16": lambda n: uniform(n).astype(np.float16),
    "denormal": lambda n: (uniform(n) * 1e-40).astype(np.float32),
}
N_LARGE = {CPU: SORT_AT_MOST + 1000, CUDA: 200_000}


def large(order: str, dtype: str, n: int) -> NDArray[Any]:
    """Elements about 100, some of them NaN if there is such."""
    values = (100 + 20 * normal(n)).astype(dtype)
    if order == "sorted":
        values = np.sort(values)
    elif order == "tied":
        values[uniform(n) < 0.5] = 100
    if values.dtype.kind == "f":
        values[::91] = np.nan
    return values


@pytest.mark.few(16)
@each(CPU, CUDA)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(
    ("order", "dtype"),
    [(order, dtype) for dtype in ("f8", "f4", "i4", "u1") for order in ("mixed", "sorted", "tied")]
    + [("mixed", "f2")],
)
def test_large_chunks(kernel: Kernel, name: str, order: str, dtype: str) -> None:
    """Of many runs and blocks, of few ends and of more than are compared with every element."""
    n = N_LARGE[kernel]
    keeps = uniform(n)[::-1] < 0.7
    for some in (None, keeps) if (name, order) == ("plain", "mixed") else (None,):
        check(kernel, large(order, dtype, n), LARGE[name](n), some, n_ends=(3, FEW_ENDS, 300))
