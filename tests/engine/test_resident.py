"""CuPy chunks that one device holds: one task answers."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, explain, median, quantile, sort, to_gpu
from dask_gpuselect.boxplot import tables
from dask_gpuselect.engine import columns, graphs, pilot, source
from dask_gpuselect.engine.source import Source
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths import boxes
from tests.backends import CUPY, kernel_module, own_module
from tests.data import normal, uniform
from tests.engine.test_pilot import watched_guesses
from tests.graphs import names_of
from tests.kernels.test_cuda_answers import launched
from tests.limits import configured
from tests.sources import Source as Counted
from tests.spies import noted

pytestmark = [pytest.mark.gpu, pytest.mark.legacy]

N = 30_000
UNEVEN = ((13_000, 0, 1, 16_999),)
Q = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


@pytest.fixture
def small_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 500, worth it from the first element on."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 500)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    monkeypatch.setattr(kernel_module("cuda", "sampling"), "is_best_whole", lambda *_: False)


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each guess held."""
    return watched_guesses(monkeypatch)


def computed(answer: Any) -> Any:
    return CUPY.to_numpy(answer.compute(scheduler="sync"))


def is_one_task(answer: da.Array, x: da.Array) -> bool:
    """Whether an answer adds one task to those of the data, and to those that check each chunk."""
    added = names_of(answer) - names_of(x)
    return len({name for name in added if not name.startswith("checked-")}) == 1


def test_a_guess_is_made_and_holds(small_pilots: None, guesses: list[bool]) -> None:
    x = CUPY.held(normal(N), 7_000)
    assert computed(median(x)) == np.median(normal(N))
    assert guesses == [True]


def test_a_guess_that_fails_costs_reads_and_no_answer(
    small_pilots: None, guesses: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = own_module("cuda", "sampling")
    monkeypatch.setattr(sampling, "_plan", sampling._plan.__wrapped__)  # remembers brackets
    above = (np.array([498]), np.array([500]))
    monkeypatch.setattr(sampling, "pilot_bracket", lambda first, last, size: above)
    x = CUPY.held(normal(N), UNEVEN)
    assert computed(median(x)) == np.median(normal(N))
    assert guesses == [False]


def test_masked_chunks_are_read_in_place(small_pilots: None) -> None:
    """One task takes them, with what goes with them."""
    values, keeps = normal(N), np.arange(N) % 3 > 0
    x, where = CUPY.held(values, 7_000), CUPY.held(keeps, 7_000)
    weights = CUPY.held(np.random.default_rng(2).random(N), 7_000)
    for how in ({"where": where}, {"weights": weights, "method": "inverted_cdf"}):
        names = names_of(quantile(x, 0.5, **how))
        for each in (x, where, weights):
            names -= names_of(each)
        doors = ("checked-", "with-companions-")
        assert len([name for name in names if not name.startswith(doors)]) == 1
    with configured(root_limit="100 kB", cache_limit=0):
        assert len(names_of(quantile(x, 0.5, weights=weights, method="inverted_cdf"))) > 10


def test_views_of_an_array_are_held() -> None:
    values = normal(N).reshape(100, 300)
    x = da.from_array(CUPY.asarray(values), chunks=(33, 100), asarray=False)
    assert Source.of(x).is_on_one_device
    plan = explain(x, Q)
    assert (plan.name, plan.loads, plan.n_chunks) == ("resident", 1, 12)
    assert computed(median(x)) == np.median(values)


def test_several_arrays() -> None:
    """One task answers about each, and arrays are not compared element by element."""
    arrays = [CUPY.held(normal(N) + i, 7_000) for i in range(3)]
    boxes = describe_boxplot([*arrays, arrays[0] + 1], max_fliers=0)
    medians = [float(each.med) for each in dask.compute(boxes, scheduler="sync")[0]]
    assert medians == [float(np.median(normal(N) + i)) for i in (0, 1, 2, 1)]


def test_what_is_not_held() -> None:
    """Chunks that tasks make, chunks of the host, and elements that weigh."""
    x = CUPY.held(normal(N), 7_000)
    assert Source.of(x).is_on_one_device
    for other in (x + 1, da.from_array(normal(N), chunks=7_000), da.concatenate([x, x + 1])):
        assert not Source.of(other).is_on_one_device
    weights = CUPY.held(np.ones(N), 7_000)
    assert not is_one_task(quantile(x, 0.5, weights=weights, method="inverted_cdf"), x)


def test_chunks_on_two_devices_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    x = CUPY.held(normal(N), 15_000)
    devices = iter([0, 1])
    monkeypatch.setattr(source, "gpu_of", lambda array: next(devices))
    assert not Source.of(x).is_on_one_device


# --- Chunks that tasks make -----------------------------------------------------------------------


def test_chunks_that_stay_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Counted((N,))
    x = to_gpu(file.lazy(7_000))
    plan = explain(x, Q)
    assert (plan.name, plan.loads, plan.task_bytes) == ("resident", 1, 8 * N)
    expected = np.quantile(file.values((slice(None),)), Q)
    file.counts.clear()
    np.testing.assert_array_equal(computed(quantile(x, Q)), expected)
    assert set(file.counts.values()) == {1}
    with configured(column_limit="1 kB", root_limit=0):
        assert groupby(x, np.arange(N) % 3).explain(describe_boxplot).name == "column"
        assert explain(x, weights=CUPY.held(np.ones(N), 7_000)).name == "resident"
    for limit in (0, 8 * N - 1):
        with dask.config.set({"dask_gpuselect.cache-limit": limit}):
            assert explain(x, Q).name == "bracket"
    monkeypatch.setattr(graphs, "runs_in_threads", lambda: False)  # as on a cluster
    assert explain(x, Q).name == "bracket"
    assert explain(x.astype("u1"), Q).name == "counts"


def test_one_task_sorts_what_one_device_holds() -> None:
    a = normal(N)
    a[::7] = a[3]
    for x in (CUPY.held(a, 7_000), CUPY.lazy(a, UNEVEN)):
        answer = sort(x, chunks=(N // 3, 0, N - N // 3))
        assert answer.chunks == ((N // 3, 0, N - N // 3),)
        assert len([name for name in names_of(answer) if name.startswith("sort-")]) == 2
        np.testing.assert_array_equal(computed(answer), np.sort(a))
        for part in answer.partitions:
            assert part.compute().base is None
        assert len(names_of(sort(x, spill=False))) > len(names_of(answer))
    wrong = da.Array(x.dask, x.name, ((13_000, 1, 1, 16_999),), meta=x._meta)
    with pytest.raises(ValueError, match="give the array the right chunks"):
        sort(wrong).compute(scheduler="sync")


@pytest.mark.parametrize("limit", ["10 MB", "1 kB"])
def test_boxes_stay_on_the_device_of_chunks_that_fit_it(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are copied to the host when they are used; the tables of several chunks, too."""
    values = normal(8 * 700).reshape(8, 20, 35).astype("f4")
    x = CUPY.held(values, (8, (9, 11), 12))
    copied = noted(monkeypatch, tables, "to_host", lambda _, column: np.shape(column))
    with configured(cache_limit=limit):
        (boxes,) = describe_boxplot(x, 0, max_fliers=1).compute(scheduler="sync").tables
    assert bool(copied) == (limit == "1 kB")
    assert boxes.shape == (20, 35)
    (right,) = describe_boxplot(values, 0, max_fliers=1).tables
    restored = pickle.loads(pickle.dumps(boxes))
    for name in (*tables.COLUMNS, "fliers"):
        np.testing.assert_array_equal(getattr(boxes, name), getattr(right, name), name)
        np.testing.assert_array_equal(getattr(restored, name), getattr(right, name), name)
    assert copied


@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_groups_of_a_chunk_are_measured_together(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer than six kernels start for each of thirty groups, in three loads of three chunks."""
    monkeypatch.setattr(boxes, "ROOM", 0)  # so that fences take a third load
    monkeypatch.setattr(boxes, "LEAST_ROOM", 0)
    third = noted(monkeypatch, columns, "_measured_unless", lambda found, *_, **__: found.value)
    a, by = normal(N) / uniform(N), np.maximum(np.arange(N) % 60 - 30, 0)
    a = a if dtype == "f8" else (1000 * a).astype(dtype)
    for beside in ({}, {"weights": uniform(N) * 2.0 ** normal(N)}):
        lazy = {name: CUPY.lazy(own, UNEVEN) for name, own in beside.items()}
        with configured(column_limit="1 kB", cache_limit=0):
            asked = groupby(CUPY.lazy(a, UNEVEN), by, groups=range(30)).describe_boxplot(**lazy)
        assert len(launched(partial(asked.compute, scheduler="sync"), monkeypatch)) < 6 * 30
        expected = groupby(a, by, groups=range(30)).describe_boxplot(**beside)
        assert repr(asked.compute(scheduler="sync")) == repr(expected)
    assert any(found is not None for found in third)
