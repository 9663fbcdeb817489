"""Box plots of elements that weigh, against fractions, matplotlib's rules and `numpy.repeat`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import Box, Boxplot, ChunksChangedError, describe_boxplot
from dask_gpuselect.maths import boxes
from dask_gpuselect.maths.boxes import QUARTILES, largest_to, smallest_from
from dask_gpuselect.quantiles.weighted import WEIGHTED
from tests.backends import Backend
from tests.data import FLOATS, INTEGERS, MISSING, make, normal, uniform
from tests.features.test_boxplot import Shaped, cluster_at_the_fence
from tests.kernels.test_weighing import WEIGHTS
from tests.oracle import root_of, weighted
from tests.sources import Source, changing

FLOAT = np.dtype("f8")
DISCRETE = "inverted_cdf"


def box_of(
    values: NDArray[Any],
    weights: NDArray[Any],
    method: str = "linear",
    whis: Any = 1.5,
    max_fliers: int = 1000,
    *,
    autorange: bool = False,
) -> dict[str, Any]:
    """The statistics of a box by fractions, and by the rules of matplotlib."""
    takes = (weights > 0) & (values == values)
    v, w = values[takes], [Fraction(weight) for weight in weights[takes].tolist()]
    ends = tuple(np.array(whis) / 100) if np.ndim(whis) else ()
    q1, med, q3, *percentiles = (
        float(weighted(v, weights[takes], q, method, FLOAT)) for q in (*QUARTILES, *ends)
    )
    with np.errstate(all="ignore"):
        iqr = np.float64(q3) - q1
        low, high = percentiles or (q1 - whis * iqr, q3 + whis * iqr)
    if iqr == 0 and autorange:
        low, high = -np.inf, np.inf
    low, high = np.fmin(low, q1), np.fmax(high, q3)
    first, last = smallest_from(low, v.dtype), largest_to(high, v.dtype)
    inside = [x for x in v if (first is None or x >= first) and (last is None or x <= last)]
    below = [first is None or x < first for x in v]
    above = [last is None or x > last for x in v]
    total = sum(w, Fraction(0))
    found = {
        "n": nearest_float(total), "n_nan": int(((weights > 0) & (values != values)).sum()),
        "min": v.min(), "max": v.max(), "q1": q1, "med": med, "q3": q3,
        "n_low": nearest_float(sum(itertools.compress(w, below), Fraction(0))),
        "n_high": nearest_float(sum(itertools.compress(w, above), Fraction(0))),
        "whislo": min(inside, default=q1), "whishi": max(inside, default=q3),
    }  # fmt: skip
    found["whislo"] = q1 if float(found["whislo"]) > q1 else found["whislo"]
    found["whishi"] = q3 if float(found["whishi"]) < q3 else found["whishi"]
    sides = [
        np.unique(np.sort(v[np.array(below, bool)])[:max_fliers]),
        np.unique(np.sort(v[np.array(above, bool)])[::-1][:max_fliers])[::-1],
    ]
    found["fliers"] = np.concatenate(sides)
    found["flier_weights"] = [
        nearest_float(sum((w[i] for i in np.flatnonzero(v == x)), Fraction(0)))
        for x in found["fliers"]
    ]
    if np.isfinite(v.astype(float)).all():
        exact = [Fraction(x) for x in v.tolist()]
        mean = sum(map(Fraction.__mul__, exact, w), Fraction(0)) / total
        square = sum((x * x * weight for x, weight in zip(exact, w, strict=True)), Fraction(0))
        found |= {"mean": float(mean), "std": root_of(square / total - mean * mean)}
    return found


def nearest_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return np.inf


def assert_box(box: Box, expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        found = getattr(box, name)
        np.testing.assert_array_equal(found, value, err_msg=name)
    assert isinstance(box.n, float)


def assert_same(found: Boxplot, wanted: Boxplot) -> None:
    for one, other in zip(found, wanted, strict=True):
        for name, value in other.to_dict().items():
            np.testing.assert_array_equal(getattr(one, name), value, err_msg=name)


# --- All elements ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_statistic_is_exact(name: str, method: str, backend: Backend) -> None:
    values, weights = np.round(normal(900) ** 3, 2), WEIGHTS[name](900)
    x, w = backend.lazy(values, 210), backend.lazy(weights, 400)
    asked: dict[str, Any] = {"method": method, "max_fliers": 30}
    lazy = describe_boxplot(x, weights=w, **asked)
    (box,) = lazy.compute()
    assert_box(box, box_of(values, weights, **asked))
    # The same at once.
    at_once = describe_boxplot(backend.asarray(values), weights=backend.asarray(weights), **asked)
    assert_same(at_once, lazy.compute())


RULES: dict[str, dict[str, Any]] = {
    "narrow": {"whis": 0.3, "max_fliers": 7},
    "no fliers": {"whis": 0, "max_fliers": 0},
    "autorange": {"whis": 0, "autorange": True},
    "percentiles": {"whis": (5, 95), "max_fliers": 20},
    "inside": {"whis": (30, 40)},
}


@pytest.mark.few(8)
@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u8", "i2", "u1"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_dtype_and_rule(rule: str, dtype: str, method: str) -> None:
    name = {"f": "normal", "u": "whole range", "i": "whole range"}[np.dtype(dtype).kind]
    values, weights = make(name, dtype, 400), WEIGHTS["lognormal"](400)
    (box,) = describe_boxplot(
        da.from_array(values, chunks=90), weights=weights, method=method, **RULES[rule]
    ).compute()
    assert_box(box, box_of(values, weights, method, **RULES[rule]))
    assert box.fliers.dtype == values.dtype


@pytest.mark.few(14)
@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_adversarial_data(name: str) -> None:
    values, weights = make(name, "f8", 500), WEIGHTS["one heavy"](500)
    for method in WEIGHTED:
        asked: dict[str, Any] = {"method": method, "max_fliers": 9}
        (box,) = describe_boxplot(
            da.from_array(values, chunks=77), weights=weights, **asked
        ).compute()
        if (values == values).any():
            assert_box(box, box_of(values, weights, **asked))
        else:
            assert (box.n, box.n_nan, box.n_low, len(box.fliers)) == (0, 500, 0, 0)
            assert np.isnan([box.med, box.mean, box.std, box.min, box.whislo]).all()
            assert box.flier_weights is not None


@pytest.mark.parametrize("method", WEIGHTED[:2])
@pytest.mark.parametrize("dtype", ["f8", "i4", "u8"])
def test_weights_that_are_counts_repeat_elements(dtype: str, method: Any) -> None:
    values = make("normal" if dtype == "f8" else "few", dtype, 3000)
    counts = np.floor(uniform(3000) * 4).astype("u1")
    asked: dict[str, Any] = {"method": method, "max_fliers": 10**6, "whis": 0.7}
    (theirs,) = describe_boxplot(np.repeat(values, counts), **asked)
    x = da.from_array(values, chunks=500)
    (box,) = describe_boxplot(x, weights=counts, **asked).compute()
    assert theirs.n_low > 0 or dtype != "f8"
    for name, value in theirs.to_dict().items():
        if name not in ("fliers", "n_left_out"):
            np.testing.assert_array_equal(getattr(box, name), value, err_msg=name)
    assert box.n_left_out == (counts == 0).sum()
    fliers, times = np.unique(theirs.fliers, return_counts=True)
    order = np.argsort(box.fliers)
    np.testing.assert_array_equal(box.fliers[order], fliers)
    assert box.flier_weights is not None
    np.testing.assert_array_equal(box.flier_weights[order], times)


def test_equal_weights_are_none() -> None:
    """The type 7 of equal weights is that of none."""
    values = normal(4001)
    theirs = describe_boxplot(values)[0]
    ours = describe_boxplot(da.from_array(values, chunks=700), weights=np.full(4001, 2.0))[0]
    for name in ("q1", "med", "q3", "mean", "std", "whislo", "whishi", "min", "max", "fliers"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    assert (ours.n, ours.n_low, ours.n_high) == (8002, 2 * theirs.n_low, 2 * theirs.n_high)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["tenths", "lognormal", "every magnitude", "one heavy"])
def test_ten_chunkings_have_one_box(name: str) -> None:
    values, weights = np.round(normal(6000), 2), WEIGHTS[name](6000)
    found = []
    for chunks in (1000, 999, 6000, 251, (1, 5999), (0, 6000), 3000, 4001, 77, (2000, 0, 4000)):
        sizes = chunks if isinstance(chunks, int) else (chunks,)
        x = da.from_array(values, chunks=sizes).map_blocks(np.copy)
        found.append(describe_boxplot(x, weights=weights, max_fliers=5).compute())
    order = np.argsort(weights)
    shuffled = da.from_array(values[order], chunks=700)
    found.append(describe_boxplot(shuffled, weights=weights[order], max_fliers=5).compute())
    for other in found[1:]:
        assert_same(other, found[0])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(-4, 4), st.floats(-1e3, 1e3, width=32)),
            st.one_of(st.integers(0, 3), st.floats(0, 1e6)),
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(WEIGHTED),
    st.integers(1, 12),
    st.integers(0, 4),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_elements_and_weights(
    pairs: list[tuple[float, float]], method: str, chunk: int, most: int
) -> None:
    values, weights = (np.array(each, float) for each in zip(*pairs, strict=True))
    x = da.from_array(values, chunks=chunk)
    lazy = describe_boxplot(x, weights=weights, method=method, max_fliers=most)
    if not (weights > 0).any():
        with pytest.raises(ValueError, match="all zero"):
            lazy.compute(scheduler="sync")
        return
    (box,) = lazy.compute(scheduler="sync")
    assert_box(box, box_of(values, weights, method, max_fliers=most))


def test_masks_and_weights() -> None:
    values, weights, mask = normal(2000), WEIGHTS["lognormal"](2000), uniform(2000) < 0.7
    x = da.from_array(values, chunks=300)
    (box,) = describe_boxplot(x, weights=weights, where=mask).compute()
    assert_box(box, box_of(values, np.where(mask, weights, 0)))
    assert box.n_left_out == (~mask).sum()
    idle = np.where(np.arange(2000) < 10, 0, weights)
    (box,) = describe_boxplot(x, weights=idle, where=mask).compute()
    assert box.n_left_out == (~mask | (idle == 0)).sum()


# --- Loads ----------------------------------------------------------------------------------------


def heaviest_first(u: NDArray[Any]) -> NDArray[Any]:
    return 1 / (0.01 + u)


def behind_a_gap(u: NDArray[Any]) -> NDArray[Any]:
    """The third quartile; so the fence is far away, where much else is."""
    return cluster_at_the_fence(u + 0.008)


def nearly_equal(u: NDArray[Any]) -> NDArray[Any]:
    return 1 + u / 10_000


@pytest.mark.few(2)
@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.usefixtures("nothing_kept")
def test_two_loads(method: str) -> None:
    source, weights = Shaped(9_000, np.exp), Shaped(9_000, heaviest_first)
    x, w = source.lazy(1100), weights.lazy(1100)
    (box,) = describe_boxplot(x, weights=w, method=method, max_fliers=100).compute()
    assert set(source.loads.values()) == {2}
    assert set(weights.loads.values()) == {2}
    everything = (slice(None),)
    expected = box_of(source.values(everything), weights.values(everything), method, max_fliers=100)
    assert_box(box, expected)


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("method", WEIGHTED)
def test_a_third_load_where_it_is_needed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "ROOM", 0)
    monkeypatch.setattr(boxes, "LEAST_ROOM", 8)
    source, weights = Shaped(9_000, behind_a_gap), Shaped(9_000, nearly_equal)
    asked: dict[str, Any] = {"method": method, "max_fliers": 10}
    (box,) = describe_boxplot(source.lazy(1100), weights=weights.lazy(1100), **asked).compute()
    everything = (slice(None),)
    assert_box(box, box_of(source.values(everything), weights.values(everything), **asked))
    assert {*source.loads.values(), *weights.loads.values()} == {3}


def test_boxes_share_loads() -> None:
    source, weights = Source((60_000,)), Source((60_000,))
    x, w = source.lazy(7000), weights.lazy(7000)
    both = describe_boxplot({"x": x, "double": 2 * x}, weights=w).compute()
    assert max(source.loads.values()) <= 2
    assert max(weights.loads.values()) <= 2
    assert both["double"].med == 2 * both["x"].med


def test_a_changing_weight_is_noticed(tmp_path: Path) -> None:
    def change(values: NDArray[Any], load: int) -> NDArray[Any]:
        return values * 3 if load == 2 else values + 1

    w = changing(change, directory=tmp_path)
    with pytest.raises(ChunksChangedError):
        describe_boxplot(w * 2, weights=w).compute(scheduler="sync")


# --- Lanes ----------------------------------------------------------------------------------------

SHAPE = (90, 4, 5)
LIMIT = "dask_gpuselect.column-limit"
PLANS = {"column": "1 GiB", "passes": "9 kB"}


def alone(a: NDArray[Any], w: NDArray[Any], **asked: Any) -> list[Box]:
    """The box of each lane along the first axis, of all its elements: another plan."""
    lanes, weights = (each.reshape(len(each), -1).T.copy() for each in (a, w))
    return [
        describe_boxplot(lane, weights=weight, **asked)[0]
        for lane, weight in zip(lanes, weights, strict=True)
    ]


def assert_lanes(found: Boxplot, wanted: list[Box]) -> None:
    assert len(found) == len(wanted)
    for box, other in zip(found, wanted, strict=True):
        assert_same_box(box, other)


@pytest.mark.few(3)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.parametrize("name", ["lognormal", "counts", "one heavy", "every magnitude"])
def test_lanes_are_as_alone(backend: Backend, name: str, method: str, plan: str) -> None:
    a = np.round(normal(1800) ** 3, 1).reshape(SHAPE)
    a[5:9, 1] = np.nan
    a[3, 2, 2], a[4, 2, 2], a[:, 3, 3] = np.inf, -np.inf, np.nan
    w = WEIGHTS[name](1800).reshape(SHAPE)
    asked: dict[str, Any] = {"method": method, "max_fliers": 6, "whis": 0.5}
    wanted = alone(a, w, **asked)
    with dask.config.set({LIMIT: PLANS[plan]}):
        x, v = backend.lazy(a, (31, 3, 4)), backend.lazy(w, (50, 4, 5))
        lazy = describe_boxplot(x, 0, weights=v, **asked)
        assert lazy.shape == (4, 5)
        assert_lanes(lazy.compute(), wanted)
    assert_lanes(
        describe_boxplot(backend.asarray(a), 0, weights=backend.asarray(w), **asked), wanted
    )


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", ["f4", "i8", "u8", "i2"])
@pytest.mark.parametrize("rule", RULES)
def test_lanes_of_any_dtype(rule: str, dtype: str, plan: str) -> None:
    a = make("normal" if dtype == "f4" else "whole range", dtype, 1800).reshape(SHAPE)
    w = WEIGHTS["beyond 2**53" if dtype == "i8" else "uniform"](1800).reshape(SHAPE)
    asked = RULES[rule] | {"method": DISCRETE}
    with dask.config.set({LIMIT: PLANS[plan]}):
        found = describe_boxplot(da.from_array(a, chunks=(31, 3, 4)), 0, weights=w, **asked)
        assert_lanes(found.compute(), alone(a, w, **asked))


@pytest.mark.parametrize("plan", PLANS)
def test_ties_where_fliers_are_cut_off(plan: str) -> None:
    """Few different values: what is kept ends among equal elements of all parts."""
    a = np.floor(uniform(1800) ** 3 * 9).reshape(SHAPE)
    w = WEIGHTS["lognormal"](1800).reshape(SHAPE)
    for most in (0, 1, 2, 7):
        asked: dict[str, Any] = {"max_fliers": most, "whis": 0, "method": DISCRETE}
        with dask.config.set({LIMIT: PLANS[plan]}):
            found = describe_boxplot(da.from_array(a, chunks=(31, 3, 4)), 0, weights=w, **asked)
            assert_lanes(found.compute(), alone(a, w, **asked))


def test_lanes_with_masks_and_weights_of_an_axis() -> None:
    a, w = normal(1800).reshape(SHAPE), WEIGHTS["uniform"](90)
    mask = uniform(1800).reshape(SHAPE) < 0.6
    found = describe_boxplot(da.from_array(a, chunks=(31, 3, 4)), 0, weights=w, where=mask)
    for place in np.ndindex(4, 5):
        index = (slice(None), *place)
        (wanted,) = describe_boxplot(a[index], weights=w, where=mask[index])
        assert_same_box(found[place], wanted)


@pytest.mark.parametrize("plan", PLANS)
def test_loads_of_lanes(plan: str) -> None:
    source, weights = Source((4000, 6)), Source((4000, 6))
    with dask.config.set({LIMIT: {"column": "1 GiB", "passes": "150 kB"}[plan]}):
        describe_boxplot(source.lazy((500, 6)), 0, weights=weights.lazy((700, 6))).compute()
    most = {"column": {1}, "passes": {3}}[plan]
    assert set(source.loads.values()) == most
    assert set(weights.loads.values()) == ({1} if plan == "column" else {3})


def test_a_lane_without_weight() -> None:
    w = np.ones((6, 2))
    w[:, 1] = 0
    with pytest.raises(ValueError, match="all zero"):
        describe_boxplot(np.ones((6, 2)), 0, weights=w)


# --- Several arrays, and what is refused ----------------------------------------------------------


def test_weights_of_each_array() -> None:
    a, b = normal(500), normal(300)
    v, w = WEIGHTS["uniform"](500), WEIGHTS["lognormal"](300)
    mask = uniform(300) < 0.5
    alone = [describe_boxplot(a, weights=v), describe_boxplot(b, weights=w)]
    lazy = [da.from_array(a, chunks=90), b]
    for found in (
        describe_boxplot(lazy, weights=[v, da.from_array(w, chunks=50)]),
        describe_boxplot([a, b], weights=(v, w)),
        describe_boxplot({"a": lazy[0], "b": b}, weights={"b": w, "a": v}, labels=["", " "]),
    ):
        for box, (one,) in zip(found, alone, strict=True):
            assert_same_box(box, one)
    _, second = describe_boxplot([a, b], weights=[v, w], where=[True, mask])
    (one,) = describe_boxplot(b, weights=w, where=mask)
    assert_same_box(second, one)
    both = describe_boxplot([b, 2 * b], weights=w)
    assert both[1].med == 2 * both[0].med == 2 * alone[1][0].med


def assert_same_box(box: Box, other: Box) -> None:
    for name, value in other.to_dict().items():
        if name != "label":
            np.testing.assert_array_equal(getattr(box, name), value, err_msg=name)


A = np.arange(10.0)
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "method": (
        lambda: describe_boxplot(A, weights=A + 1, method="hazen"),
        ValueError,
        "Only methods inverted_cdf, averaged_inverted_cdf, linear support weights. Got: hazen",
    ),
    "shape": (lambda: describe_boxplot(A, weights=A[:3]), TypeError, "shapes of a and weights"),
    "strings": (lambda: describe_boxplot(A, weights=["a"] * 10), TypeError, "real numbers"),
    "too few": (
        lambda: describe_boxplot([A, A], weights=[A + 1, A + 1, A + 1]),
        ValueError,
        "one for each: 3 for 2",
    ),
    "other names": (
        lambda: describe_boxplot({"a": A}, weights={"b": A}),
        ValueError,
        "with the same keys",
    ),
    "negative": (lambda: describe_boxplot(A, weights=A - 1), ValueError, "non-negative"),
    "nan": (lambda: describe_boxplot(A, weights=A * np.nan), ValueError, "included NaN"),
    "zero": (lambda: describe_boxplot(A, weights=A * 0), ValueError, "all zero"),
    "lazily negative": (
        lambda: describe_boxplot(da.from_array(A, chunks=3), weights=A - 1).compute(),
        ValueError,
        "non-negative",
    ),
    "lazily zero": (
        lambda: describe_boxplot(da.from_array(A, chunks=3), weights=A * 0).compute(),
        ValueError,
        "all zero",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    ask, error, message = BAD[name]
    with pytest.raises(error, match=message):
        ask()


# --- To read --------------------------------------------------------------------------------------


def test_it_can_be_read_and_drawn() -> None:
    values = np.append(normal(500), [50.0, 60.0, 70.0])
    weights = np.full(503, 0.5)
    found = describe_boxplot(da.from_array(values, chunks=100), weights=weights, max_fliers=2)
    table = found.to_dict()
    assert table["n"] == 251.5
    (weights_of_fliers,) = table["flier_weights"]
    assert weights_of_fliers.tolist()[-2:] == [0.5, 0.5]
    assert "251.5" in repr(found.compute())
    drawn = found.plot()
    assert [each.get_text() for each in drawn.texts][-1] == f"fliers of weight {found[0].n_high:g}"
    assert "flier_weights" not in describe_boxplot(values).to_dict()
    assert describe_boxplot(values)[0].flier_weights is None
    pieces = dask.compute(found, describe_boxplot(values))
    assert pieces[0][0].n == 251.5


def test_missing_values_propagate() -> None:
    values = np.where(np.arange(60) == 7, np.nan, normal(60))
    (box,) = describe_boxplot(values, weights=np.ones(60), nan_policy="propagate")
    assert (box.n, box.n_nan, len(box.fliers)) == (59, 1, 0)
    assert np.isnan([box.med, box.mean, box.whislo]).all()
    assert box.flier_weights is not None
    assert len(box.flier_weights) == 0
    unweighted = np.where(np.isnan(values), 0.0, 1.0)
    (box,) = describe_boxplot(values, weights=unweighted, nan_policy="propagate")
    assert (box.n, box.n_nan, box.n_left_out) == (59, 0, 1)
    assert box.med == np.nanmedian(values)


def test_all_integers_of_64_bits() -> None:
    for name in INTEGERS:
        values = make(name, "i8", 200)
        (box,) = describe_boxplot(values, weights=np.ones(200), method=DISCRETE)
        assert_box(box, box_of(values, np.ones(200), DISCRETE))
