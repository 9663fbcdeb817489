"""Exact sums: of all kernels against fractions, and correctly rounded at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.cpu import moments as cpu_moments
from dask_gpuselect.kernels.cuda.source import LEAST_TOP, MOST_TOP, cut_for, digits_for
from dask_gpuselect.kernels.reference import moments as reference
from dask_gpuselect.maths import moments as rounding
from dask_gpuselect.maths.exact_sums import DIGIT, SQUARE_POINT, TOTAL_POINT
from dask_gpuselect.maths.moments import Moments, rounded_root
from tests.backends import Backend
from tests.data import make, names_of, normal, uniform
from tests.oracle import root_of
from tests.spies import noted


def cancelling(n: int) -> NDArray[np.float64]:
    """Normal data between pairs that cancel it."""
    a = normal(n)
    a[: n // 4] = 1e25
    a[n // 4 : n // 4 * 2] = -1e25
    return a


HOSTILE: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "cancelling": cancelling,
    "three": lambda n: np.resize([1e60, -1e60, 1e-5], n),
    "squares overflow": lambda n: normal(n) * 1e300,
    "squares underflow": lambda n: normal(n) * 1e-300,
    "all magnitudes": lambda n: np.ldexp(normal(n), (uniform(n) * 2000 - 1000).astype(int)),
    "drifting": lambda n: np.ldexp(normal(n), np.arange(n) // 8 % 1800 - 900),
    "few wide": lambda n: np.exp(15 * normal(n)),
    "wide": lambda n: np.exp(60 * normal(n)),
}


def all_data(n: int, dtype: str) -> Iterator[tuple[str, NDArray[Any]]]:
    with np.errstate(all="ignore"):
        for name in names_of(dtype):
            yield name, make(name, dtype, n)
        for name, of in HOSTILE.items() if dtype[0] == "f" else ():
            yield name, of(n).astype(dtype)


Numbers = tuple[int, int, int, int, int]


def exact(values: NDArray[Any]) -> Numbers:
    """The numbers of finite elements, of inf and of -inf, and the sums by Python's fractions."""
    is_float = values.dtype.kind == "f"
    finite = [Fraction(x) for x in values.ravel().tolist() if not is_float or math.isfinite(x)]
    n_high, n_low = (int((values == end).sum()) if is_float else 0 for end in (np.inf, -np.inf))
    total = sum(finite, Fraction()) * 2 ** (DIGIT * TOTAL_POINT)
    square = sum((x * x for x in finite), Fraction()) * 2 ** (DIGIT * SQUARE_POINT)
    assert total.denominator == square.denominator == 1
    return len(finite), n_high, n_low, int(total), int(square)


def numbers_of(moments: Moments, lane: int = 0) -> Numbers:
    """The same of what is found of a lane."""
    total, square = moments.total.integers(-TOTAL_POINT), moments.square.integers(-SQUARE_POINT)
    columns = moments.n, moments.n_high, moments.n_low, total, square
    n, n_high, n_low, of_all, of_squares = (int(column[lane]) for column in columns)
    return n, n_high, n_low, of_all, of_squares


# --- Sums -----------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "dtype", ["f8", "i2", "f4", "f2", "i1", "i4", "i8", "u1", "u2", "u4", "u8"]
)
@pytest.mark.parametrize("n", [513, 1, 2, 3, 511, 512, 5000])
def test_sums_are_exact(n: int, dtype: str, backend: Backend) -> None:
    """Of every kernel, whatever the data."""
    for name, a in all_data(n, dtype) if dtype != "f2" else [("halves", normal(n).astype("f2"))]:
        wanted = exact(a) if n < 1000 else numbers_of(reference.moments(a, a))
        moments = kernels.moments(backend.asarray(a), a.dtype, a[:50])
        for each in (moments, reference.moments(a, a)):
            assert numbers_of(each) == wanted, name


@pytest.mark.parametrize("value", [np.finfo("f8").max, -np.finfo("f8").max, 2.0**-1022 - 5e-324])
def test_sums_of_an_exponent_are_spilled_in_time(value: float) -> None:
    """Of more elements of one exponent, all bits set, than its sums have room for."""
    n = 2 * cpu_moments.SPILL_EVERY + 1000
    one, moments = exact(np.array([value])), cpu_moments.moments(np.full(n, value))
    assert numbers_of(moments) == tuple(n * number for number in one)


def test_sums_of_all_exponents() -> None:
    """Of a chunk so large that each exponent has sums of its own, with what is not finite."""
    a = HOSTILE["all magnitudes"](4 * cpu_moments.LARGE)
    a[::5] = np.resize([np.inf, -np.inf, np.nan, 5e-324, -0.0, -(2.0**-1023)], len(a[::5]))
    assert numbers_of(cpu_moments.moments(a)) == exact(a) == numbers_of(reference.moments(a, a))


# --- Mean and standard deviation ------------------------------------------------------------------


@settings(max_examples=100)
@given(
    numerator=st.integers(0, 2**300),
    denominator=st.integers(1, 2**300),
    exponent=st.integers(-1900, 1700),
)
def test_roots_are_rounded_correctly(numerator: int, denominator: int, exponent: int) -> None:
    up, down = max(exponent, 0), max(-exponent, 0)
    x = Fraction(numerator << up, denominator << down)
    assert rounded_root(numerator << up, denominator << down) == root_of(x)
    # Ties, to even: the squares of numbers of 54 bits.
    tie = numerator % 2**52 | 2**52
    middle = 2 * tie + 1
    assert rounded_root(middle**2, 4) == (tie if tie % 2 == 0 else tie + 1)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The lanes that need integers of any length."""
    return noted(monkeypatch, rounding, "rounded", lambda _, *numbers: numbers)


def wide_rows(n: int) -> dict[str, NDArray[np.float64]]:
    """Rows of which some or all digits lie far apart, and which cancel, tie or underflow."""
    x = normal(60 * n).reshape(60, n)
    u, v = (uniform(60 * n + k)[k:].reshape(60, n) for k in (7, 11))
    far = np.ldexp(x, (u * 2000 - 1000).astype(int))
    row = np.ldexp(1.0, (u[:, :1] * 1800 - 900).astype(int))
    ties = np.zeros((60, n))
    ties[:, 0] = 1
    ties[:, 1 % n] = 2.0**-53 * np.rint(6 * u[:, 0] - 3)
    ties[:, 2 % n] = np.ldexp(np.rint(2 * v[:, 0] - 1), -600)
    return {
        "far": far,
        "far by rows": x * row,
        "less far": np.ldexp(x, (u[:, :1] * 900 - 450 + v * 500).astype(int)),
        "zeros": np.where(v < 0.5, 0.0, far),
        "alike and far": np.where(v < 0.7, row * (1 + np.rint(6 * u - 3) * 2.0**-52), far * 1e-300),
        "two values": np.where(v < 0.5, far[:, :1], far[:, -1:]),
        "opposite": np.where(np.arange(n) % 2, -1.0, 1.0)
        * np.repeat(far[:, : n // 2 + 1], 2, 1)[:, :n],
        "ties": ties,
        "subnormal": np.ldexp(x, (-1076 + 50 * u).astype(int)),
    }


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 32])
def test_leading_digits_are_enough(
    n: int, slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means and deviations of wide lanes are those of fractions, and few of them need integers."""
    monkeypatch.setattr(rounding, "_are_integers_faster", lambda *_: False)
    for name, rows in wide_rows(n).items():
        slow.clear()
        pairs = np.stack(reference.moments_of_rows(rows).mean_and_std(), axis=1)
        for row, mine in zip(rows, pairs, strict=True):
            numbers = [Fraction(x) for x in row.tolist()]
            mean = sum(numbers) / n
            spread = sum((x - mean) ** 2 for x in numbers) / n
            assert mine.tolist() == [float(mean), root_of(spread)], (name, row)
        assert len(slow) <= 20, (name, len(slow))  # all ties but those of whole numbers


# --- CUDA -----------------------------------------------------------------------------------------


def test_where_floats_are_cut_on_a_device() -> None:
    f8, f4 = np.dtype("f8"), np.dtype("f4")
    assert cut_for(normal(999), f8)[0] == 3
    assert cut_for(normal(999), f4)[0] == 2
    assert cut_for(normal(999) * 1e38, f4) == (2, MOST_TOP)
    assert cut_for(normal(999) * 1e-44, f4) == (2, LEAST_TOP)
    assert cut_for(normal(999), np.dtype("f2")) == cut_for(np.empty(0), np.dtype("f2")) == (2, 16)
    assert cut_for(np.exp(4 * normal(999)), f8)[0] == 4
    for near in (np.empty(0), np.zeros(3), np.array([np.inf, np.nan]), np.full(9, 1e300)):
        assert cut_for(near, f8) == (3, 0)
    # Brackets of a lognormal box: with pieces up to 2**7 one in 19 elements is too large.
    box = np.exp2([-24, -3, -2.9, 0, 0.1, 3, 3.1, 4.2, 4.3, 17])
    pieces, top = cut_for(box, f8)
    assert pieces == 4
    assert 17 <= top <= 20
    assert cut_for(box[::-1] * 2.0**90, f4)[1] >= 107
    pieces, top = cut_for(np.append(normal(999), [1e20] * 5), f8)
    assert (pieces, 1 <= top <= 5) == (3, True)


def test_digits_of_rows_on_a_device() -> None:
    for a in (normal(99), HOSTILE["all magnitudes"](99), np.array([5e-324, 1.7e308]), np.ones(1)):
        sizes = np.abs(a[a != 0])
        spans = digits_for(a.dtype, (sizes.min(), sizes.max()))
        exact, points = reference.moments(a, a), (TOTAL_POINT, SQUARE_POINT)
        for (first, n), sums, point in zip(spans, (exact.total, exact.square), points, strict=True):
            size = sums.magnitude()
            assert first <= size.first + point
            assert size.first + point + len(size.digits) <= first + n
