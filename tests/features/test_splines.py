"""Monotone splines: continuous, monotone to the last bit, the papers' own functions."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_gpuselect.distribution import MonotoneQuadraticSpline, MonotoneRationalSpline
from tests.backends import Backend
from tests.features.test_isotonic import EPS, Floats

pytestmark = pytest.mark.any_dask  # of no dask arrays

# Figure 1 of Beliakov and Liu: the data of Akima that Fritsch, Carlson, Gregory and Delbourgo use.
AKIMA = (
    [0.0, 2.0, 3.0, 5.0, 6.0, 8.0, 9.0, 11.0, 12.0, 14.0, 15.0],
    [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.5, 15.0, 50.0, 60.0, 85.0],
)


KINDS: dict[str, Callable[[Floats, Floats], tuple[Any, Any]]] = {
    "random": lambda x, y: (x, y),
    "flat and steep": lambda x, y: (x, np.round(y) + 1e-3 * y),
    "flats": lambda x, y: (x, np.round(2 * y)),
    "outliers": lambda x, y: (x, np.sinh(9 * y)),
    "jumps": lambda x, y: (np.round(x, 1), y),
    "jumps and flats": lambda x, y: (np.round(x), np.round(y)),
    "descending": lambda x, y: (x, -y),
    "Akima": lambda x, y: AKIMA,
    "two": lambda x, y: ([1.0, 3.0], [2.0, 7.0]),
    "one jump": lambda x, y: ([1.0, 1.0], [2.0, 7.0]),
    "line": lambda x, y: (np.arange(9.0), np.arange(9.0) * 3),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def points(name: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(len(name))
    x, y = KINDS[name](np.sort(rng.normal(size=40)), np.sort(rng.normal(size=40)))
    return np.asarray(x), np.asarray(y)


def on(backend: Backend, ask: Callable[..., Any]) -> Callable[..., Any]:
    """Ask with arrays of NumPy about those of a backend."""
    return lambda z, *how: backend.to_numpy(ask(backend.asarray(z), *how))


def quadratic(x: Any, y: Any, **options: Any) -> MonotoneQuadraticSpline:
    return MonotoneQuadraticSpline(x, y, **options)


def rational(x: Any, y: Any, **options: Any) -> MonotoneRationalSpline:
    """With slopes of all sizes."""
    given = 10.0 ** np.random.default_rng(len(x)).uniform(-3, 3, len(x))
    given[::4] = 0
    return MonotoneRationalSpline(x, y, given if y[-1] >= y[0] else -given, **options)


both = pytest.mark.parametrize("make", [quadratic, rational])


def between(x: Floats, each: int = 33) -> Floats:
    """Ascending: the points, their neighbours, and some in every interval."""
    inner = (x[:-1, None] + np.diff(x)[:, None] * np.linspace(0, 1, each)).ravel()
    beside = [np.nextafter(x, x[0] - 1), np.nextafter(x, x[-1] + 1)]
    return np.sort(np.concatenate([x, *beside, inner])).clip(x[0], x[-1])


# --- Monotone, and through the points -------------------------------------------------------------


def check_monotone(spline: Any, x: Floats, y: Floats, z: Floats) -> None:
    """Exactly, and between the ends of each interval."""
    values = spline(z)
    sign = -1 if y[-1] < y[0] else 1
    assert np.isfinite(values).all()
    assert (sign * values[1:] >= sign * values[:-1]).all()
    ends = np.append(x[1:] != x[:-1], True)  # the last ones of those that are equal
    np.testing.assert_array_equal(spline(x[ends]), y[ends])
    before = np.searchsorted(x, z, side="right") - 1
    after = np.minimum(before + 1, len(x) - 1)
    assert (sign * values >= sign * y[before]).all()
    assert (sign * values <= sign * y[after]).all()
    assert (sign * spline(z, 1) >= 0).all()


@both
@every_kind
def test_monotone(make: Any, kind: str, backend: Backend) -> None:
    x, y = points(kind)
    spline = make(backend.asarray(x), backend.asarray(y))
    check_monotone(on(backend, spline), x, y, between(x))


sizes = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-8, 8).map(float),
    st.integers(-1074, 1023).map(lambda e: 2.0**e),
    st.integers(-1074, 1023).map(lambda e: -(2.0**e)),
    st.floats(0.5, 2),
)


@given(st.data(), st.integers(2, 8))
def test_monotone_whatever_the_numbers(data: st.DataObject, n: int) -> None:
    """Denormal widths, widths and rises that overflow, slopes from 0 to the largest."""
    x = np.sort(data.draw(st.lists(sizes, min_size=n, max_size=n)))
    y = np.sort(data.draw(st.lists(sizes, min_size=n, max_size=n)))
    slopes = np.abs(data.draw(st.lists(sizes, min_size=n, max_size=n)))
    splines: list[Any] = [MonotoneRationalSpline(x, y, slopes)]
    if not ((x == x[0]).all() and (y == y[0]).all()):
        splines.append(MonotoneQuadraticSpline(x, y))
    with np.errstate(over="ignore"):
        z = between(x / 2, 9) * 2
        v = np.clip(between(y / 2, 9) * 2, y[0], y[-1])
    z = np.clip(z, x[0], x[-1])
    for spline in splines:
        check_monotone(spline, x, y, z)
        places = spline.inverse(v)
        first = np.minimum(np.searchsorted(y, v, side="left"), n - 1)
        assert (places <= x[first]).all()
        assert (places >= x[np.maximum(first - 1, 0)]).all()
        # Nowhere a NaN.
        with np.errstate(over="ignore"):
            outside = np.array([-np.inf, x[0] - np.abs(x[0]) / 9, np.inf])
        assert not np.isnan(spline(z, 2)).any()
        assert not np.isnan(spline(outside)).any()


def test_steps_larger_than_a_float(backend: Backend) -> None:
    big = 1.7e308
    slack = 4 * EPS * big  # some eps of the rise
    for make in (quadratic, lambda x, y: MonotoneRationalSpline(x, y, [1, 1])):
        spline = make(backend.asarray([-big, big]), backend.asarray([-big, big]))
        z = np.array([-big, -big / 2, 0, big / 4, big])
        for ask in (spline, spline.inverse):
            np.testing.assert_allclose(on(backend, ask)(z), z, rtol=0, atol=slack)
        np.testing.assert_allclose(on(backend, spline)(z, 1), 1, rtol=4 * EPS)


@both
def test_the_last_point_is_met(make: Any) -> None:
    """Whose y is lost in the rise to it."""
    spline = make([0, 1, 2, 2], [-2, -1, 1e-200, 1e-190])
    assert float(spline(2)) == 1e-190
    assert float(make([0, 1, 2], [-2, -1, 1e-200])(2)) == 1e-200
    assert float(spline.inverse(1e-190)) == 2


# --- As the papers define them --------------------------------------------------------------------


class Piece(NamedTuple):
    """A quotient of two polynomials of the distance from its begin, in rational numbers."""

    begin: Fraction
    above: tuple[Fraction, ...]
    below: tuple[Fraction, ...] = (Fraction(1), Fraction(0), Fraction(0))

    def at(self, z: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        """Return the value and two derivatives."""
        way = z - self.begin
        (n, dn, ddn), (d, dd, ddd) = (
            (a + way * (b + way * c), b + 2 * way * c, 2 * c)
            for a, b, c in (self.above, self.below)
        )
        slope = (dn - n / d * dd) / d
        return n / d, slope, (ddn - 2 * slope * dd - n / d * ddd) / d


def quadratic_pieces(x: Floats, y: Floats, *, is_printed: bool = False) -> list[Piece]:
    """Two of each interval: the paper's section 2.1, with its formula put right."""
    at, values, delta = exactly(x, y)
    inner = [2 * a * b / (a + b) if a * b > 0 else Fraction(0) for a, b in pairwise(delta)]
    ends = [2 * delta[i] - (inner[i] if inner else delta[i]) for i in (0, -1)]
    first, last = (
        d if d * delta[i] > 0 else Fraction(0) for i, d in zip((0, -1), ends, strict=True)
    )
    pieces = []
    for i, (mean, (d, d_next)) in enumerate(
        zip(delta, pairwise([first, *inner, last]), strict=True)
    ):
        h, knot = at[i + 1] - at[i], (at[i] + at[i + 1]) / 2
        if (d_next - mean) * (d - mean) < 0:
            knot = at[i + 1] + (d - mean) * h / (d_next - d)
        way = knot - at[i]
        middle = 2 * mean - d_next + (d_next - d) * way / h
        bend = (middle - d) / (2 * way)
        value = values[i] + d * way + (bend if is_printed else bend * way**2)
        pieces.append(Piece(at[i], (values[i], d, bend)))
        pieces.append(Piece(knot, (value, middle, (d_next - middle) / (2 * (h - way)))))
    return pieces


def rational_pieces(x: Floats, y: Floats, slopes: Floats) -> list[Piece]:
    """One of each interval."""
    at, values, delta = exactly(x, y)
    pieces = []
    for i, (mean, (p, p_next)) in enumerate(
        zip(delta, pairwise(map(Fraction, slopes.tolist())), strict=True)
    ):
        h, bend = at[i + 1] - at[i], p + p_next - 2 * mean
        below = (mean, bend / h, -bend / h**2)
        rise = (Fraction(0), p * mean, mean * (mean - p) / h)
        above = tuple(values[i] * a + b for a, b in zip(below, rise, strict=True))
        pieces.append(Piece(at[i], above, below))
    return pieces


def exactly(x: Floats, y: Floats) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Return the points, and the mean slopes between them."""
    at, values = ([*map(Fraction, a.tolist())] for a in (x, y))
    ends = zip(pairwise(at), pairwise(values), strict=True)
    return at, values, [(d - c) / (b - a) for (a, b), (c, d) in ends]


STRICT = ("random", "flat and steep", "outliers", "descending", "two", "line")
BY_DEFINITION = [(quadratic, kind) for kind in (*STRICT, "flats", "Akima")]


@pytest.mark.parametrize(("make", "kind"), BY_DEFINITION + [(rational, kind) for kind in STRICT])
def test_as_the_papers_define_them(make: Any, kind: str) -> None:
    """Continuous in value and slope, in rational numbers; and rounded a few times."""
    x, y = points(kind)
    spline = make(x, y)
    pieces = quadratic_pieces(x, y) if make is quadratic else rational_pieces(x, y, spline.slopes)
    for piece, after in pairwise(pieces):
        assert piece.at(after.begin)[:2] == after.at(after.begin)[:2]
    z, begins = between(x, 9), [piece.begin for piece in pieces]
    at = [pieces[bisect_right(begins, each) - 1].at(each) for each in map(Fraction, z.tolist())]
    value, slope, bend = np.array(at).astype(float).T
    # Points and knots are rounded: a steep piece then misses the value, and a bent one the slope.
    room = np.abs(y).max() + np.abs(slope * z)
    assert (np.abs(spline(z) - value) <= 2 * EPS * room).all()
    assert (np.abs(spline(z, 1) - slope) <= 4 * EPS * (np.abs(slope) + np.abs(bend * z))).all()
    inside = np.abs(z[:, None] - np.array(begins, float)).min(axis=1) > 1e-9
    np.testing.assert_allclose(
        spline(z, 2)[inside], bend[inside], rtol=1e-12, atol=EPS * np.abs(bend).max()
    )


@pytest.mark.parametrize("kind", ["random", "flats", "descending", "two", "line"])
def test_a_quadratic_tells_its_pieces(kind: str) -> None:
    """In the paper's terms. Of two knots that coincide the first has no piece."""
    x, y = points(kind)
    spline = quadratic(x, y)
    assert (np.diff(spline.t) >= 0).all()
    np.testing.assert_array_equal(spline.t[::2], x)
    j = np.flatnonzero(np.diff(spline.t) > 0)
    for way in (0, np.diff(spline.t)[j] / 3):
        z = spline.t[j] + way
        value = spline.alpha[j] + way * (spline.beta[j] + spline.gamma[j] * way)
        slope = spline.beta[j] + 2 * spline.gamma[j] * way
        room = 8 * EPS * (np.abs(y).max() + np.abs(slope * z))
        assert (np.abs(spline(z) - value) <= room).all()
        room = 8 * EPS * (np.abs(slope) + np.abs(2 * spline.gamma[j] * z))
        assert (np.abs(spline(z, nu=1) - slope) <= room).all()
    twice = np.flatnonzero(np.diff(spline.t) == 0)
    for of_piece in (spline.alpha, spline.beta, spline.gamma):
        assert len(of_piece) == 2 * (len(x) - 1)
        np.testing.assert_array_equal(of_piece[twice], of_piece[twice + 1])


def test_the_printed_formula_is_not_continuous() -> None:
    """The value at the added knot as printed lacks a factor (t - x)**2 in its last term."""
    pieces = quadratic_pieces(*points("random"), is_printed=True)
    assert any(a.at(b.begin)[0] != b.at(b.begin)[0] for a, b in pairwise(pieces))


# --- What is known of the answers -----------------------------------------------------------------


@both
@pytest.mark.parametrize("powers", [(3, 5), (-200, 400), (300, -600)])
def test_units_do_not_matter(make: Any, powers: tuple[int, int]) -> None:
    """Powers of two scale everything exactly."""
    x, y = points("flat and steep")
    a, b = (2.0**e for e in powers)
    z = np.linspace(x[0] - 1, x[-1] + 1, 999)
    spline = make(x, y)
    if make is rational:
        scaled: Any = MonotoneRationalSpline(a * x, b * y, spline.slopes * (b / a))
    else:
        scaled = make(a * x, b * y)
        np.testing.assert_array_equal(scaled.t, a * spline.t)
    np.testing.assert_array_equal(scaled(a * z), b * spline(z))
    np.testing.assert_array_equal(scaled(a * z, nu=1), b / a * spline(z, nu=1))
    v = np.linspace(y[0], y[-1], 999)
    np.testing.assert_array_equal(scaled.inverse(b * v), a * spline.inverse(v))


@pytest.mark.parametrize(("step", "shift"), [(0.1, 0.0), (0.1, 1e5), (1e-9, 1.0)])
def test_points_on_a_line_are_not_told_from_it(step: float, shift: float) -> None:
    """Rounded points of a line, and then a bend: the knot is where it is for exact points."""
    y = np.array([0.0, 1, 2, 3, 7, 8, 9])
    exact = quadratic(np.arange(7.0), y)
    rounded = quadratic(shift + step * np.arange(7), shift + step * y)
    assert (np.diff(shift + step * y) / np.diff(shift + step * np.arange(7)) != np.diff(y)).any()
    noise = 8 * EPS * (1 + shift / step)
    np.testing.assert_allclose((rounded.t - shift) / step, exact.t, atol=noise)


def test_knots_where_slopes_are_nearly_equal() -> None:
    """The quotient of differences that tend to 0 stays in the interval."""
    for bend in 2.0 ** -np.arange(2, 60):
        x, y = np.arange(6.0), np.cumsum([0, 1, 1 + bend, 1 + 3 * bend, 1 + 7 * bend, 1])
        spline = quadratic(x, y)
        assert (spline.t[1::2] >= x[:-1]).all()
        assert (spline.t[1::2] < x[1:]).all()
        z = np.linspace(0, 5, 301)
        assert np.abs(spline(z) - np.interp(z, x, y)).max() <= bend + 8 * EPS


# --- Jumps, flat parts, few points ----------------------------------------------------------------


@both
def test_jumps(make: Any, backend: Backend) -> None:
    """Continuous from the right; what lies before is as steep as at the end of a steep interval."""
    x, y = [0.0, 1, 1, 1, 2, 2], [0.0, 1, 2, 3, 4, 5]
    spline = make(backend.asarray(x), backend.asarray(y))
    assert on(backend, spline)([0, 1, 2]).tolist() == [0, 3, 5]
    near = on(backend, spline)([np.nextafter(1, 0), np.nextafter(2, 0)])
    np.testing.assert_allclose(near, [1, 4], rtol=1e-12)
    inverse = on(backend, spline.inverse)([1.5, 2, 3, 4.5, 5, 1, 4])
    np.testing.assert_array_equal(inverse, [1, 1, 1, 2, 2, 1, 2])
    if make is quadratic:
        steep = quadratic([0, 1, 1 + 1e-13, 2], [0, 1, 3, 4])
        z = np.linspace(0, 2, 99)
        z = z[np.abs(z - 1) > 1e-6]
        np.testing.assert_allclose(quadratic([0, 1, 1, 2], [0, 1, 3, 4])(z), steep(z), atol=1e-12)


def test_jumps_at_the_ends() -> None:
    spline = quadratic([0, 0, 1, 1], [1, 2, 3, 4])
    assert spline([-1, 0, 0.5, 1, 2]).tolist() == [1, 2, 2.5, 4, 4]
    assert spline([-1, 2], nu=1).tolist() == [0, 0]
    assert spline.inverse([0.9, 1, 1.5, 4, 4.1]).tolist()[1:4] == [0, 0, 1]


def test_repeated_points_say_nothing() -> None:
    x, y = points("random")
    many = np.repeat(np.arange(len(x)), np.arange(len(x)) % 3 + 1)
    z = between(x)
    np.testing.assert_array_equal(quadratic(x[many], y[many])(z), quadratic(x, y)(z))
    slopes = rational(x, y).slopes
    twice = MonotoneRationalSpline(x[many], y[many], slopes[many])
    np.testing.assert_array_equal(twice(z), rational(x, y)(z))


# --- The inverse ----------------------------------------------------------------------------------


@both
@every_kind
def test_inverse(make: Any, kind: str, backend: Backend) -> None:
    x, y = points(kind)
    spline = make(backend.asarray(x), backend.asarray(y))
    at, inverse = on(backend, spline), on(backend, spline.inverse)
    v = between(np.sort(y), 19)
    result = inverse(v)
    reached = at(result)
    assert result.min() == x[0]
    assert result.max() <= x[-1]
    # Where z is rounded, a steep spline does not meet v better than that.
    steep = np.nan_to_num(np.abs(at(result, 1)), posinf=0)
    sign = -1 if y[-1] < y[0] else 1
    low, high = (
        at(np.nextafter(result, way), 0, "constant") for way in (-sign * np.inf, sign * np.inf)
    )
    slack = 8 * EPS * (np.abs(y).max() + np.abs(x).max() * steep)
    assert (v >= low - slack).all()
    assert (v <= high + slack).all()
    is_jump = np.isin(result, x[1:][np.diff(x) == 0])
    assert (np.abs(reached - v) <= slack)[~is_jump].all()
    assert np.isnan(inverse([y[0] - sign, y[-1] + sign, np.nan])).all()
    # Of a flat part the first point.
    flat = np.flatnonzero(np.diff(y) == 0)
    first = np.array([x[np.flatnonzero(y == level)[0]] for level in y[flat]])
    np.testing.assert_array_equal(inverse(y[flat]), first)


@both
def test_inverse_of_tiny_shares(make: Any) -> None:
    """Nothing cancels: near the first point the inverse is as exact as elsewhere."""
    x, y = np.array([0.0, 1, 3, 4]), np.array([0.0, 5, 6, 10])
    spline = make(x, y) if make is quadratic else MonotoneRationalSpline(x, y, [7, 1, 1, 2])
    slope = float(spline(0.0, nu=1))
    z = 10.0 ** -np.arange(20, 200, 20.0)
    if make is rational:
        np.testing.assert_allclose(spline.inverse(slope * z), z, rtol=1e-14)
        np.testing.assert_allclose(spline(z), slope * z, rtol=1e-14)
    else:
        np.testing.assert_allclose(spline.inverse(slope * z), z, rtol=0, atol=4 * EPS)
        convex = quadratic([0, 1, 2, 3], [0, 1, 4, 9])
        at_start = float(convex(0.0, nu=1))
        np.testing.assert_allclose(convex.inverse(at_start * z), z, rtol=1e-14)


# --- Conventions ----------------------------------------------------------------------------------


@both
def test_shapes_and_kinds(make: Any, backend: Backend) -> None:
    x, y = points("random")
    spline = make(backend.asarray(x.astype("f4")), backend.asarray(y))
    for shape in ((), (1,), (0,), (2, 3), (2, 0, 4)):
        z = backend.asarray(np.full(shape, 0.25, "f4"))
        for result in (spline(z), spline(z, nu=2), spline.inverse(z)):
            assert type(result) is backend.array_type
            assert result.shape == shape
            assert result.dtype == np.float64
    assert np.isnan(on(backend, spline)([np.nan, 0.0])).tolist() == [True, False]
    assert type(spline(0.5)) is backend.array_type
    assert type(spline.x) is backend.array_type


@both
def test_derivatives_as_functions(make: Any) -> None:
    x, y = points("Akima")
    spline = pickle.loads(pickle.dumps(make(x, y)))
    z = between(x)
    np.testing.assert_array_equal(spline.derivative()(z), spline(z, nu=1))
    np.testing.assert_array_equal(spline.derivative(2)(z), spline(z, nu=2))
    np.testing.assert_array_equal(spline.derivative()(z, nu=1), spline(z, nu=2))
    np.testing.assert_array_equal(spline.derivative().derivative()(z), spline(z, nu=2))
    assert np.isnan(spline.derivative()(x[0] - 1, extrapolate=False))


@both
def test_extrapolation(make: Any, backend: Backend) -> None:
    x, y = points("random")
    outside = np.array([x[0] - 2, x[-1] + 3])
    ends = make(x, y)(x[[0, -1]], nu=1)
    continued = y[[0, -1]] + ends * [-2, 3]
    wanted: dict[Any, list[Any]] = {
        True: [continued, ends, [0, 0]],
        False: [[np.nan] * 2] * 3,
        "constant": [y[[0, -1]], [0, 0], [0, 0]],
    }
    plain = make(backend.asarray(x), backend.asarray(y))
    for how, answers in wanted.items():
        spline = make(backend.asarray(x), backend.asarray(y), extrapolate=how)
        for nu, answer in enumerate(answers):
            for actual in (on(backend, spline)(outside, nu), on(backend, plain)(outside, nu, how)):
                np.testing.assert_allclose(actual, answer, rtol=1e-13)
    far = make(x, y)(np.array([-np.inf, np.inf]))
    for value, end, slope in zip(far, y[[0, -1]], ends, strict=True):
        assert np.isinf(value) if slope else value == end
