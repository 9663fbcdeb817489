"""Answers about CuPy arrays are those about NumPy arrays, to the last bit: a row for each kind of
question, of shapes at which other kernels take over, in every dtype and of all adversarial data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, kernels, median, nanquantile, order_statistic, quantile
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.boxplot.tables import COLUMNS
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.robust import mad, trimmed_mean
from tests.backends import CUPY, own_module
from tests.data import hashed, make, names_of, normal, uniform
from tests.matrix.laws import same_computed
from tests.spies import noted

pytestmark = [pytest.mark.gpu, pytest.mark.legacy, pytest.mark.filterwarnings("ignore")]

Array = NDArray[Any]
Ask = Callable[..., Any]
Q = [0.0, 0.25, 0.5, 0.75, 0.99999, 1.0]
DTYPES = ("f4", "f8", "f2", "i1", "u2", "i4", "u8", "i8")
SOME = ("f4", "f8", "f2", "i2", "u1", "i8")


# --- Data -----------------------------------------------------------------------------------------


def of_fliers(n_lanes: int, n: int) -> Array:
    """Lanes many of whose elements are beyond their fences: every 8th to 64th are those of one
    thread."""
    i = np.arange(n)
    skewed = np.exp(3 * normal(n_lanes * n)).reshape(n_lanes, n)
    rows = [*skewed, -skewed[0], np.sort(skewed[0]), np.floor(skewed[0])]
    rows += [np.where(i % step == step // 2, 1e6 + i, i % 7) for step in (8, 16, 32, 64)]
    rows += [np.where(i % 9 == 8, np.inf, -i), np.where(i % 9 == 8, -np.inf, i % 2)]
    rows += [np.where(i < n // 5, np.nan, skewed[0]), np.where(i == 0, 1.0, np.nan)]
    return np.array(rows)


def of_one_digit(n_lanes: int, n: int) -> Array:
    """Lanes whose keys have digits that are all the same, or those of NaN."""
    own = np.arange(n_lanes)[:, None] * 1.7 - 3 + np.zeros(n)
    half = uniform(n_lanes * n).reshape(n_lanes, n) < 0.5
    one = np.arange(n) == n // 3
    rows = [own, np.where(one, 99.0, own), np.where(one, -99.0, own), np.where(one, np.nan, own)]
    rows += [np.where(half, 1.0, 1.0 + 2.0**-20), np.where(half, np.nan, np.inf)]
    rows += [np.where(half, np.nan, own), np.where(half, np.nan, float(np.finfo("f4").max))]
    return np.concatenate(rows)


def replaced(n: int, value: float, share: float) -> Array:
    return np.where(hashed(np.arange(n) + 7) < share, value, normal(n))


def of_tied_quartiles(n_lanes: int, n: int) -> Array:
    """Elements about which a sample guesses wrongly: ties at a quartile or in a tail."""
    rows = [(0.6745, 0.01), (5.0, 0.004), (np.nan, 0.001), (np.inf, 0.3), (0.0, 0.0002)]
    return np.array([replaced(n, *each) for each in rows] + [1e-300 * normal(n), np.full(n, 3.0)])


def lanes_of(name: str, dtype: str, n_lanes: int, n: int) -> Array:
    """Rows of some data, each of which begins elsewhere in it."""
    if name not in CRAFTED:
        return make(name, dtype, n_lanes * n).reshape(n_lanes, n)
    with np.errstate(all="ignore"):
        rows = CRAFTED[name](n_lanes, n)
        return (rows if dtype[0] == "f" else np.nan_to_num(rows)).astype(dtype)


CRAFTED = {
    "many fliers": of_fliers,
    "digits that are the same": of_one_digit,
    "tied quartiles": of_tied_quartiles,
}

# --- Questions ------------------------------------------------------------------------------------

MASK = {"where": lambda a: uniform(a.size).reshape(a.shape) > 0.2}
WEIGHTS: Mapping[str, Callable[[Array], Array]] = {
    "float32": lambda a: uniform(a.size).reshape(a.shape).astype("f4") + np.float32(0.1),
    "counts": lambda a: np.floor(uniform(a.size).reshape(a.shape) * 5) + 1,
    "tenths": lambda a: np.full(a.shape, 0.1),
    "nearly the largest": lambda a: np.full(a.shape, 1e300),
    "tiny": lambda a: (1 + np.floor(uniform(a.size) * 9)).reshape(a.shape) * 2.0**-1074,
    "all magnitudes": lambda a: 2.0 ** (120 * uniform(a.size).reshape(a.shape) - 60),
    "beyond 2**53": lambda a: (uniform(a.size) * 2.0**61).astype("i8").reshape(a.shape) | 1,
    "of each lane": lambda a: np.broadcast_to(1 + uniform(a.shape[-1]), a.shape),
}
METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")
RULES: list[dict[str, Any]] = [
    {"whis": 1.5, "max_fliers": 1000},
    {"whis": 0.5, "autorange": True, "max_fliers": 2, "method": "hazen"},
    {"whis": (5, 90), "max_fliers": 3, "method": "inverted_cdf"},
    {"whis": 0.0, "max_fliers": 1 << 20, "nan_policy": "propagate"},
    {"max_fliers": 0, "autorange": True},
]
ALL: dict[str, Ask] = {
    "quantiles": lambda x, axis, **how: nanquantile(x, Q, axis, method="lower", **how),
    "nine quantiles": lambda x, axis, **how: quantile(x, np.arange(1, 10) / 10, axis, **how),
    "many quantiles": lambda x, axis, **how: quantile(x, np.arange(21) / 20, axis, **how),
    **{
        f"boxes {i}": lambda x, axis, rule=rule, **how: describe_boxplot(x, axis, **rule, **how)
        for i, rule in enumerate(RULES)
    },
}
OF_LONG = ALL | {"trimmed": lambda x, axis, **how: trimmed_mean(x, 0.1, axis, **how)}
OF_ONE: dict[str, Ask] = ALL | {
    "mad": lambda x, axis, **how: mad(x, scale=1.0, **how),
    "ranks": lambda x, axis, **how: order_statistic(x, np.arange(0, min(x.size, 200), 3), **how),
}


def by_method(q: Any) -> dict[str, Ask]:
    return {
        m: lambda x, axis, m=m, **how: nanquantile(x, q, axis, method=m, **how) for m in METHODS
    }


WEIGHTED: dict[str, Ask] = {
    **by_method(Q),
    **{
        f"boxes, {method}": lambda x, axis, method=method, policy=policy, **how: describe_boxplot(
            x, axis, nan_policy=policy, method=method, max_fliers=3, **how
        )
        for method, policy in zip(METHODS, ("omit", "propagate", "omit"), strict=True)
    },
}


MANY = by_method(np.linspace(0, 1, 40))


def in_groups(questions: Mapping[str, Ask], of_places: bool) -> dict[str, Ask]:
    """Ask of groups, of all elements or along an axis."""

    def grouped(x: Any, axis: int | None) -> Any:
        if of_places:
            return groupby(x, np.arange(x.shape[axis or 0]) * 7 % 12, axis)
        return groupby(x, (np.arange(x.size) * 7919 % 7).reshape(x.shape) - 1, groups=range(6))

    def of(name: str) -> Ask:
        def ask(x: Any, axis: int, **how: Any) -> Any:
            kind, _, method = name.partition(", ")
            if kind == "boxes":
                how |= {"method": method or "linear"}
                return grouped(x, axis).describe_boxplot(max_fliers=3, **how)
            if kind == "mad":
                return grouped(x, axis).mad(scale=1.0, **how)
            method = name if name in METHODS else "lower"
            return grouped(x, axis).nanquantile([0, 0.1, 0.5, 1], method=method, **how)

        return ask

    return {name: of(name) for name in questions or ("boxes", "quantiles", "mad")}


@dataclass(frozen=True)
class Row:
    """Questions about lanes, side by side and one behind the other.

    Parameters
    ----------
    asked : dict of callable
        ``(array, axis, **companions) -> answer``.
    lengths : tuple of int
        Of lanes.
    beside : dict of callable
        From the array to its companions, by the name of the argument.
    data : tuple of str
        Names of `CRAFTED`; all data that there are in a dtype without them.
    n_lanes : int
        1 is asked about all elements.
    chunks : tuple of int
        Along the lanes, of an array whose chunks the device holds; a plain array without them.
    """

    asked: Mapping[str, Ask]
    lengths: tuple[int, ...]
    dtypes: tuple[str, ...] = SOME
    beside: Mapping[str, Callable[[Array], Array]] | None = None
    data: tuple[str, ...] = ()
    n_lanes: int = 11
    chunks: tuple[int, ...] = ()


ONE = (1, 2, 3, 1000, 65_536, 70_001, 1 << 20, (1 << 22) + 3)
UNEVEN = (13_000, 0, 1, 16_999)
ROWS: Mapping[str, Row] = {
    "one lane": Row(OF_ONE, ONE[:6], DTYPES, n_lanes=1),
    "one large lane": Row(ALL, ONE[6:], SOME, data=("tied quartiles",), n_lanes=1),
    "short lanes": Row(ALL, (1, 2, 7, 24, 32, 33, 64, 100, 365), DTYPES, n_lanes=60),
    "long lanes": Row(OF_LONG, (1000, 3650, 20_000, 66_000), DTYPES[:2], n_lanes=3),
    "fliers": Row(ALL, (31, 48, 49, 65, 365, 1023, 1025), ("f4", "f8"), data=("many fliers",)),
    "digits": Row(ALL, (5_000, 66_000), SOME, data=("digits that are the same",), n_lanes=3),
    "masked lanes": Row(ALL, (24, 365), DTYPES, MASK, n_lanes=60),
    "held chunks": Row(OF_ONE, (30_000,), SOME, n_lanes=1, chunks=UNEVEN),
    "a masked lane": Row(OF_ONE, ONE[3:5], SOME, MASK, n_lanes=1),
    "masked held chunks": Row(ALL, (30_000,), SOME, MASK, n_lanes=1, chunks=UNEVEN),
    "groups": Row(in_groups({}, False), (6000,), SOME, n_lanes=1),
    "groups of lanes": Row(in_groups({}, True), (730,), SOME, n_lanes=5),
    "masked groups of lanes": Row(in_groups({}, True), (100,), SOME, MASK, n_lanes=5),
    **{
        f"{weights} weights, {where}": Row(
            asked, (6000,) if n == 1 else (7, 400), SOME, {"weights": WEIGHTS[weights]}, (), n
        )
        for weights in WEIGHTS
        for where, n, asked in (
            ("all", 1, WEIGHTED),
            ("groups", 1, in_groups(WEIGHTED, False)),
            ("lanes", 12, WEIGHTED),
        )
    },
    "masked weights, lanes": Row(
        WEIGHTED, (33, 300), SOME, MASK | {"weights": WEIGHTS["all magnitudes"]}, (), 12
    ),
    "masked weights of each lane": Row(
        WEIGHTED, (24, 300), ("f4", "u4"), MASK | {"weights": WEIGHTS["of each lane"]}, (), 12
    ),
    **{
        f"many quantiles of {weights} weights": Row(
            MANY, (7, 400, 1290), SOME, {"weights": WEIGHTS[weights]}, ("tied quartiles",), 12
        )
        for weights in ("tenths", "counts", "float32", "of each lane")
    },
    "long weighted lanes": Row(
        WEIGHTED | {f"many, {method}": MANY[method] for method in ("inverted_cdf", "linear")},
        (17_000, 66_000),
        ("f4", "f8"),
        {"weights": WEIGHTS["float32"]},
        ("tied quartiles",),
        2,
    ),
    "integers that weigh, lanes": Row(
        WEIGHTED, (40, 400), ("i8", "i2"), {"weights": WEIGHTS["counts"]}, (), 12
    ),
}

LIMITS = {
    "groups": "engine.group_elements.SHORT engine.group_elements.SHORT_WEIGHED",
    "long lanes": "kernels.cuda.plain_lanes.WORTH_OF_GROUP engine.questions.LONG",
    "long weighted lanes": "kernels.cuda.weighed_lanes.LONG kernels.cuda.weighed_lanes.TILE",
}


def layouts(row: Row, a: Array) -> Iterator[tuple[Array, int | None]]:
    """Yield an array, with its lanes one behind the other and side by side, and their axis."""
    if row.n_lanes == 1:
        yield from ((each, None) for each in a)
        return
    yield a, 1
    yield np.ascontiguousarray(a.T), 0


def there(row: Row, a: Array) -> Any:
    """The same array on the device."""
    return CUPY.held(a, (row.chunks,)) if row.chunks else CUPY.asarray(a)


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, row in ROWS.items() for dtype in row.dtypes]
)
def test_answers_are_those_of_numpy(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also groups that are sorted together or rows of tables, and long lanes as groups."""
    names = next((LIMITS[key] for key in LIMITS if name.endswith(key)), "")
    for limit in (0, 1 << 40) if names else (0,):
        for each in names.split():
            monkeypatch.setattr(f"dask_gpuselect.{each}", limit)
        compare(ROWS[name], dtype)


def compare(row: Row, dtype: str) -> None:
    """Compare the answers about all data of a row on the device with those of NumPy arrays."""
    for data, n in itertools.product(row.data or names_of(dtype), row.lengths):
        for a, axis in layouts(row, lanes_of(data, dtype, row.n_lanes, n)):
            beside = {key: of(a) for key, of in (row.beside or {}).items()}
            given = {key: there(row, each) for key, each in beside.items()}
            for question, ask in row.asked.items():
                answers = ask(there(row, a), axis, **given), ask(a, axis, **beside)
                same_computed(*answers, f"{question} of {data}, {n}, axis {axis}")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("dtype", SOME)
def test_a_device_guesses_weighted_answers_of_groups(
    dtype: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a sample, if that brackets few enough; also of lanes, and of groups without elements."""
    near = own_module("cuda", "near")
    monkeypatch.setattr(near, "WORTH_GUESSING", -(1 << 40))
    monkeypatch.setattr(near, "sample_size", lambda n, *_: (n // 4, n // 4))
    for each in ("engine.group_elements.SHORT_WEIGHED", "kernels.cuda.weighed_lanes.LONG"):
        monkeypatch.setattr(f"dask_gpuselect.{each}", 0)
    known = noted(monkeypatch, near.GatheredRuns, "elements", lambda found, *_: found is not None)
    drawn = noted(monkeypatch, near, "weighted_boxes", lambda found, *_: found is not None)
    beside = MASK | {"weights": WEIGHTS[weights]}
    data = ("nan and inf", "tied quartiles", *names_of(dtype)[::9])
    boxes = {f"boxes, {method}": ask for method, ask in by_method(Q).items()}
    for asked, n_lanes in ((in_groups(by_method(Q) | boxes, False), 1), (by_method(Q), 3)):
        compare(
            Row(asked, (700, 9000), beside=beside, data=data[: 4 // n_lanes], n_lanes=n_lanes),
            dtype,
        )
    is_summed = weights not in ("all magnitudes", "nearly the largest")
    assert any(known) >= is_summed
    assert any(drawn) >= is_summed


# --- Passes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [365, 1500, 3650, 12_000])
@pytest.mark.parametrize("dtype", SOME)
def test_lanes_in_passes(dtype: str, n: int) -> None:
    """Of chunks that tasks make on the device, in parts that are laid out otherwise too."""
    limits = {"dask_gpuselect.scratch-directory": False}
    for i, name in enumerate(names_of(dtype)):
        a = np.ascontiguousarray(lanes_of(name, dtype, 20 + i, n).T)
        parts = np.array_split(a, [1, n // 5, n // 2, n // 2 + 1])
        pieces = [
            da.from_array(CUPY.asarray(np.asarray(part, order=order)), chunks=-1, asarray=False)
            for part, order in zip(parts, "FCFCC", strict=True)  # type: ignore[arg-type]
        ]
        x = da.concatenate(pieces).map_blocks(lambda c: c, dtype=a.dtype, meta=pieces[0]._meta)
        for divided in (3, 12):
            with dask.config.set(limits | {"dask_gpuselect.column-limit": a.nbytes // divided}):
                some = ("quantiles", "nine quantiles", "boxes 0")
                answers = {each: ALL[each](x, 0) for each in some}
            for each, answer in answers.items():
                same_computed(answer, ALL[each](a, 0), f"{each} of {name}")


# --- What a device does ---------------------------------------------------------------------------


def launched(ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that a question starts."""
    from dask_gpuselect.kernels.cuda import launch

    with monkeypatch.context() as patch:
        started = noted(patch, launch, "_prepared", lambda _, dtype, name, *args: name)
        ask()
    return started


@pytest.mark.parametrize("ask", [median, partial(order_statistic, k=[3, -1])])
def test_one_launch_for_a_small_array(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    x = CUPY.asarray(normal(1 << 20).astype("f4"))
    ask(x)
    assert set(launched(lambda: ask(x), monkeypatch)) == {"only_lane"}


GUESSED: dict[str, Callable[[Array], Array]] = {
    "normal": lambda x: x,
    "lognormal": np.exp,
    "lognormal(3)": lambda x: np.exp(3 * x),
    "the same, negative": lambda x: -np.exp(3 * x),
    "fliers on one side": lambda x: np.where(x > 2, 1e6 + x, -0.0 * x),
    "without fliers": np.tanh,
    "a few": lambda x: np.where(np.abs(x) > 4, 1e30 * x, np.tanh(x)),
}


@pytest.mark.parametrize("rule", [{}, {"max_fliers": 3, "whis": 0.3, "method": "weibull"}])
@pytest.mark.parametrize("kind", GUESSED)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "i8", "u2"])
def test_a_device_guesses_boxes_by_a_sample(
    dtype: str, kind: str, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one read, without the host: not of many ties. Those of groups are right in any case."""
    scale = 1.0 if dtype[0] == "f" else 200.0
    with np.errstate(all="ignore"):
        a = np.nan_to_num(scale * GUESSED[kind](normal(150_000))).astype(dtype)
    described = {"whis": 1.5, "autorange": False, "max_fliers": 1000, "method": "linear"} | rule
    question = BoxQuestion.of(Rule(**described), np.dtype(dtype), omits_nan=True)
    x = CUPY.asarray(a)
    sample, rate = kernels.sorted_sample(x, x.dtype, 1 << 15)
    there = question.in_memory.guess_there(sample.size, rate)
    assert there is not None
    (right,) = describe_boxplot(a, **rule).tables
    monkeypatch.setattr(own_module("cuda", "groups"), "WORTH_GUESSING", -(1 << 40))
    codes = np.arange(a.size) % (99 if dtype == "f8" else 3)  # whose sums exceed shared memory
    zones = [groupby(each, codes).describe_boxplot(**rule) for each in (x, a)]
    same_computed(*zones, kind)
    for is_known in (True, False):  # by the device, or by the host from the tally
        if not is_known:
            monkeypatch.setattr(own_module("cuda", "sampling"), "_is_box_known", lambda *_: False)
        measured = kernels.guess_and_sums(x, x.dtype, sample, there, x.size // 2)
        if measured is None:  # ties, or much of the sample may be near a fence
            assert dtype[0] != "f" or dtype == "f2" or kind == "fliers on one side" or rule
            return
        if isinstance(measured, LaneBoxes):
            assert is_known
            box = question.in_memory.of_box(measured)
        else:
            assert not is_known or dtype[0] != "f"
            brackets, tally, sums = measured
            box = question.finish(question.resolve(brackets, tally), sums)
        for name in (*COLUMNS, "fliers"):
            np.testing.assert_array_equal(getattr(box, name), getattr(right, name), name)


def test_a_long_masked_lane_takes_the_whole_device(monkeypatch: pytest.MonkeyPatch) -> None:
    x, mask = CUPY.asarray(normal(1 << 16).astype("f4")), CUPY.asarray(np.arange(1 << 16) % 7 != 3)
    assert launched(lambda: median(x[None], 1, where=mask[None]), monkeypatch) == ["only_lane"]


@pytest.mark.parametrize(("n", "dtype"), [(24, "f2"), (365, "f4"), (365, "u1"), (12_500, "f4")])
def test_a_kernel_reads_masks_of_lanes_side_by_side(
    n: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one chunk or several, without a copy; by one, if NaN that are left in count."""
    a = (100 * uniform(5 * n)).reshape(n, 5).astype(dtype)
    keeps = uniform(5 * n).reshape(n, 5) > 0.3
    expected = np.nanquantile(np.where(keeps, a, np.nan).astype("f8"), 0.3, axis=0, method="lower")
    x, where = CUPY.asarray(a), CUPY.asarray(keeps)
    ask = partial(quantile, q=0.3, axis=0, method="lower")
    (name,) = launched(lambda: ask(x, where=where), monkeypatch)
    assert name == ("lanes_select" if n < 12_000 else "long_lanes")
    np.testing.assert_array_equal(CUPY.to_numpy(ask(x, where=where)), expected.astype(dtype))
    sizes = ((n // 3, n - n // 3), -1)
    of_chunks = ask(CUPY.held(a, sizes), where=CUPY.held(keeps, sizes))
    np.testing.assert_array_equal(CUPY.to_numpy(of_chunks.compute()), expected.astype(dtype))
    if dtype == "f4":
        keeps[:, 1], a[3, 2:4], keeps[3, 2:4] = False, np.nan, [False, True]
        result = CUPY.to_numpy(ask(CUPY.asarray(a), where=CUPY.asarray(keeps)))
        assert np.isnan(result).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("by", [None, np.arange(24) % 7])
def test_columns_stay_on_the_device_until_someone_looks(
    by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of equal size take one launch."""
    x = CUPY.asarray(lanes_of("some nan", "f4", 500, 24))
    ask = partial(describe_boxplot, x, axis=1) if by is None else groupby(x, by, 1).describe_boxplot
    (table,), shape = ask().tables, (500,) if by is None else (500, 7)
    assert not set(COLUMNS) & set(vars(table))
    assert table.med.shape == shape
    assert set(COLUMNS) & set(vars(table)) == {"med"}
    assert launched(ask, monkeypatch).count("boxes_of_lanes") == len(shape)


def test_boxes_of_lazy_chunks_come_to_the_host() -> None:
    rows = lanes_of("lognormal", "f4", 500, 60)
    for ask in (describe_boxplot, in_groups({}, True)["boxes"]):
        same_computed(ask(CUPY.lazy(rows, (200, 25)), 1), ask(rows, 1))


def test_weights_that_are_none_are_refused_on_a_device() -> None:
    """But not groups and lanes that a mask leaves out."""
    x, labels = CUPY.asarray(normal(600)), np.arange(600) % 6
    for weights, message in ((labels != 3, "all zero"), (-np.ones(600), "non-negative")):
        with pytest.raises(ValueError, match=message):
            groupby(x, labels).quantile(0.5, weights=CUPY.asarray(weights * 1.0))
    nothing = CUPY.asarray(np.zeros(600))
    with pytest.raises(ValueError, match="all zero"):
        describe_boxplot(x, weights=nothing)
    assert describe_boxplot(x, weights=nothing, where=nothing > 0)[0].n == 0
    rows, own = x.reshape(100, 6), CUPY.asarray((labels != 3).reshape(100, 6) * 1.0)
    for n_q in (1, 40):  # many are found in sorted lanes
        how: dict[str, Any] = {"method": "inverted_cdf", "weights": own}
        ask = partial(quantile, rows, np.linspace(0, 1, n_q), 0, **how)
        with pytest.raises(ValueError, match="all zero"):
            ask()
        is_missing = np.isnan(CUPY.to_numpy(ask(where=own > 0))).any(axis=0)
        np.testing.assert_array_equal(is_missing, np.arange(6) == 3)
