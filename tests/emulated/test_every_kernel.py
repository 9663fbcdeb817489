"""Public functions of CuPy arrays, so that kernels of every kind run at least once: a small part of
what the tests marked `gpu` ask, for machines without a GPU. Answers are those of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, nanquantile, order_statistic, quantile, sort
from dask_gpuselect.engine.pilot import PILOT_WORTH
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.cuda.source import kernels
from dask_gpuselect.neighbors import kneighbors
from dask_gpuselect.robust import mad, nantrimmed_mean
from dask_gpuselect.strategies import STRATEGIES
from dask_gpuselect.windows import percentile_filter, rolling
from tests.backends import CUPY, kernel_module, own_module
from tests.data import make, normal, uniform
from tests.features import test_isotonic
from tests.kernels import test_weighing
from tests.limits import limited
from tests.maths import test_fits
from tests.matrix.laws import same_computed
from tests.spies import noted

pytestmark = pytest.mark.gpu
Q = [0.0, 0.1, 0.5, 0.77, 1.0]
N = 60_000
CHUNK = 20_000  # elements: fewer than 2**14 go to the host


def held(x: Any, chunks: Any) -> da.Array:
    return da.from_array(x, chunks=chunks, asarray=False)


def in_chunks(x: Any, chunks: Any = CHUNK) -> da.Array:
    """Chunks that tasks make, so that one device does not hold them."""
    return held(x, chunks).map_blocks(
        type(x).copy, dtype=x.dtype, meta=x.reshape(-1)[:0].reshape((0,) * x.ndim)
    )


box_of = partial(describe_boxplot, max_fliers=50)


def weights_of(x: Any) -> Any:
    weights = abs(x.astype("f8")) + 0.25
    weights[x != x] = 1
    return weights


def ask_weighted(x: Any) -> Any:
    weights = in_chunks(weights_of(x))
    return nanquantile(in_chunks(x), Q, weights=weights, method="inverted_cdf")


def grouped(x: Any, made: Callable[[Any], Any] = in_chunks) -> Any:
    labels = np.arange(N) * 7 % 5
    by = made(CUPY.asarray(labels) if isinstance(x, CUPY.array_type) else labels)
    return groupby(made(x), by, groups=range(5))


def ask_runs(x: Any) -> Any:
    groups, how = grouped(x, lambda x: x), {"where": x != 1, "weights": weights_of(x)}
    trimmed = groups.nantrimmed_mean(0.2)
    return trimmed, groups.mad(), groups.nanquantile(0.5, **how), groups.describe_boxplot(**how)


ALL_ELEMENTS = {
    "quantiles": lambda x: nanquantile(in_chunks(x), Q),
    "at once": lambda x: nanquantile(x, [0.1, 0.5]),
    "box": lambda x: box_of(in_chunks(x)),
    "masked": lambda x: nanquantile(in_chunks(x), Q, where=in_chunks(x > x.dtype.type(0))),
    "weighted": ask_weighted,
    "groups": lambda x: grouped(x).nanquantile([0.25, 0.5]),
    "groups at once": ask_runs,
    "trimmed groups": lambda x: grouped(x).nantrimmed_mean(0.2),
    "spread": lambda x: (mad(in_chunks(x)), nantrimmed_mean(x, 0.2, where=x != 1)),
    "sorted": lambda x: sort(in_chunks(x)),
}


STARTS = {
    "test_all_elements[quantiles-some nan]": "choose classify place tally",
    "test_all_elements[at once-some nan]": "only",
    "test_all_elements[box-some nan]": "mark moments",
    "test_all_elements[masked-some nan]": "kept",
    "test_all_elements[weighted-some nan]": "weigh",
    "test_all_elements[groups-some nan]": "groups label",
    "test_all_elements[sorted-some nan]": "deal words",
    "test_sorted_at_once": "keys words",
    "test_other_dtypes[f2]": "tabulate",
    "test_lanes[30]": "lanes boxes",
    "test_lanes[400]": "lanes boxes finish sum",
    "test_lanes[60000]": "long groups",
    "test_lanes_in_parts": "passes reports answers",
    "test_chunks_whose_sample_is_worth_it": "sample select tally",
    "test_box_at_once[some nan]": "tally locate",
    "test_box_at_once[normal]": "guess tally locate sampled",
    "test_box_at_once[small]": "only",
    "test_strategies[kelley]": "extent point",
    "test_strategies[radix]": "count",
    "test_strategies[bitonic_merge]": "bitonic merge",
    "test_lanes_with_companions": "blank reach sort",
    "test_neighbours": "near",
    "test_trimmed_means[f4]": "trim",
    "test_windows[40-f4]": "window",
    "test_what_other_modules_hold_to_a_reference": "rows sets",
}
"""The kernels, by the first words of their names, that tests have to start."""


@pytest.fixture(autouse=True)
def started(request: pytest.FixtureRequest) -> Iterator[None]:
    """See that a test starts what it is there for."""
    from dask_gpuselect.kernels.cuda import launch

    with pytest.MonkeyPatch.context() as patch:
        names = noted(patch, launch, "_prepared", lambda _, dtype, name, *args: name)
        yield
    names = [name.partition("_")[0] for name in names]
    assert set(names) >= set(STARTS.get(request.node.name, "").split())


def test_every_kernel_has_a_test() -> None:
    assert set(" ".join(STARTS.values()).split()) == {name.partition("_")[0] for name in kernels()}


def assert_as_numpy(ask: Callable[[Any], Any], values: Any) -> None:
    same_computed(ask(CUPY.asarray(values)), ask(values))


@pytest.mark.usefixtures("nothing_kept")  # and so no chunks stay on the device
@pytest.mark.parametrize("name", ["some nan", "tied"])
@pytest.mark.parametrize("question", ALL_ELEMENTS)
def test_all_elements(question: str, name: str) -> None:
    if name == "some nan" and question == "spread":
        name = "normal"
    assert_as_numpy(ALL_ELEMENTS[question], make(name, "f4", N))


def test_sorted_at_once() -> None:
    assert_as_numpy(sort, make("some nan", "f4", N))


def test_lanes_with_companions() -> None:
    """Of lanes with a mask, and of lanes with weights."""
    values, mask = normal(2400).reshape(60, 40), uniform(2400).reshape(60, 40) > 0.2
    values[3, 5] = np.nan
    weights, how = uniform(60), {"axis": 0, "method": "inverted_cdf"}
    for x in (values, values.T.copy().T):
        assert_as_numpy(lambda x: nanquantile(x, Q, axis=0, where=of_kind(mask, x)), x)
        for q in (Q, 0.3):  # sorted, and bisected
            assert_as_numpy(lambda x, q=q: nanquantile(x, q, weights=of_kind(weights, x), **how), x)


def of_kind(array: Any, like: Any) -> Any:
    """The array as one of the kind of another."""
    return CUPY.asarray(array) if isinstance(like, CUPY.array_type) else array


@pytest.mark.parametrize("dtype", ["f2", "i2", "u1", "i8"])
def test_other_dtypes(dtype: str) -> None:
    values = (50 * normal(N)).astype(dtype) if dtype != "u1" else (200 * uniform(N)).astype(dtype)
    assert_as_numpy(ALL_ELEMENTS["quantiles"], values)
    assert_as_numpy(ALL_ELEMENTS["box"], values)


@pytest.mark.parametrize("n", [7, 30, 100, 400, 12_000, 60_000])
def test_lanes(n: int) -> None:
    n_lanes = 5 if n < 10_000 else 2
    rows = make("some nan", "f4", n_lanes * n).reshape(n_lanes, n)
    for values in (rows, np.asfortranarray(rows)):
        assert_as_numpy(lambda x: nanquantile(x, Q, axis=1), values)
    assert_as_numpy(lambda x: nanquantile(in_chunks(x, (n_lanes, n // 3 + 1)), 0.3, axis=1), rows)
    assert_as_numpy(lambda x: box_of(x, 1), np.concatenate([rows, rows**21]))
    codes = np.broadcast_to(CUPY.asarray(np.zeros(1, "i4")), 9)  # of a chunk with one label
    assert kernel_module("cuda", "runs").as_codes(codes, codes).flags.c_contiguous


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2"])
def test_trimmed_means(dtype: str) -> None:
    rows = make("some nan" if dtype[0] == "f" else "tied", dtype, 24 * 300).reshape(24, 300)
    for axis in (0, 1):
        ask = partial(nantrimmed_mean, proportiontocut=0.2, axis=axis)
        assert_as_numpy(ask, rows)
        assert_as_numpy(lambda x, ask=ask: ask(x, where=of_kind(np.eye(*x.shape) == 0, x)), rows)


def test_chunks_whose_sample_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module("cuda", "sampling"), "is_best_whole", lambda *_: False)
    values = make("normal", "f4", 2 * PILOT_WORTH)
    assert_as_numpy(lambda x: quantile(held(x, PILOT_WORTH), 0.3), values)
    assert_as_numpy(lambda x: box_of(held(x, PILOT_WORTH)), values)


@pytest.mark.parametrize("kind", ["some nan", "normal", "small"])
def test_box_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "small":  # as if they were larger
        sampling = kernel_module("cuda", "sampling")
        monkeypatch.setattr(sampling, "is_best_whole", lambda *_: False)
        monkeypatch.setattr(kernel_module("cuda", "lanes"), "box_alone", lambda *_: None)
    values = make("normal", "f4", N) if kind == "small" else make(kind, "f4", PILOT_WORTH)
    for _ in range(2):  # by the device, and by the host
        assert_as_numpy(box_of, values)
        monkeypatch.setattr(own_module("cuda", "sampling"), "_is_box_known", lambda *_: False)


def test_lanes_in_parts() -> None:
    rows = make("normal", "f4", 40 * 900).reshape(40, 900)
    with limited("20 kB"):
        assert_as_numpy(
            lambda x: quantile(in_chunks(x, (40, 100)).map_blocks(abs), 0.3, axis=1), rows
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies(strategy: str) -> None:
    for name in ("normal", "tied"):
        how = {"k": [0, N // 3, N - 1], "strategy": strategy}
        assert_as_numpy(partial(order_statistic, **how), make(name, "f4", N))
    assert_as_numpy(lambda x: order_statistic(in_chunks(x), **how), make(name, "f4", N))


def test_neighbours() -> None:
    rows = make("normal", "f4", 3 * 1_000).reshape(1_000, 3)
    assert_as_numpy(lambda x: kneighbors(x, rows[:9].astype("f8"), 4), rows)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2", "i8", "f2"])
@pytest.mark.parametrize("window", [(3, 3), (7, 6), 40])
def test_windows(dtype: str, window: Any) -> None:
    x = make("tied", dtype, 3_000).reshape(50, 60)
    axis = 1 if window == 40 else None
    for name in ("median", "nanmedian", "iqr", "mad", "count", "max"):
        assert_as_numpy(lambda x, name=name: getattr(rolling(x, window, axis), name)(), x)
    assert_as_numpy(lambda x: rolling(x, window, axis, min_periods=2).nanquantile(Q), x)
    assert_as_numpy(lambda x: percentile_filter(in_chunks(x, (20, 33)), 8.0, 5, nan="omit"), x)
    centred = ({"center": True, "boundary": mode} for mode in ("mirror", "nearest", "wrap"))
    for how in ({"step": 7}, {"closed": "left"}, {"closed": "neither", "step": 3}, *centred):
        assert_as_numpy(lambda x, how=how: rolling(x, window, axis, **how).nanmedian(), x)
    row = x.reshape(-1)[:5]  # as many elements once they are padded, but others
    assert_as_numpy(lambda x: rolling(x, 2, step=3).nanmedian(), row)
    disk, chequered = np.hypot(*np.ogrid[-1:1:9j, -1:1:8j]) <= 1, np.indices((13, 15)).sum(0) % 2
    for footprint in (disk, chequered, np.tile(chequered, 4))[: 3 if dtype == "f4" else 2]:
        assert_as_numpy(lambda x, marks=footprint: percentile_filter(x, 30.0, footprint=marks), x)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "u2"])
@pytest.mark.parametrize("window", [{0: 2100}, {0: 1500, 1: 2}, {0: 9, 1: 5, 2: 3}])
def test_windows_in_several_tiles(dtype: str, window: dict[int, int]) -> None:
    """Ask for windows that need large tiles, and for those of a mask."""
    shape = {1: (2600,), 2: (1600, 3), 3: (20, 24, 8)}[len(window)]
    x = make("some nan" if dtype[0] == "f" else "tied", dtype, int(np.prod(shape))).reshape(shape)

    def ask(x: Any, where: Any = None) -> Any:
        where = None if where is None else of_kind(where, x)
        return rolling(x, window, where=where, min_periods=3).nanquantile([0.3, 0.5])

    assert_as_numpy(ask, x)
    assert_as_numpy(partial(ask, where=uniform(x.size).reshape(shape) > 0.3), x)


def test_what_other_modules_hold_to_a_reference() -> None:
    test_fits.test_kernels_agree(CUPY, "ties", 3000, True)
    test_isotonic.test_lower_sets("trend", "integers")
    test_weighing.test_large_chunks(test_weighing.CUDA, "float32", "mixed", "f4")
