"""Arrays that are expressions, of dask-array, or of dask where its query planning is on: every
public function takes them, answers with them, and loads no more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array
import numpy as np
import pytest
from dask._task_spec import DataNode
from dask.core import flatten

from dask_gpuselect import describe_boxplot, enable, median, quantile, sort, sort_by
from dask_gpuselect.engine.expressions import LowLevel, as_source, kind_of
from dask_gpuselect.engine.source import DaskArray, from_array
from dask_gpuselect.neighbors import KNeighborsRegressor, NearestNeighbors, kneighbors
from dask_gpuselect.robust import LeastTrimmedSquares
from tests.calls import Call, calls
from tests.data import normal
from tests.graphs import names_of
from tests.processes import ROOT, python
from tests.sources import Source

da: Any = dask.array
DASK_IS_ON = hasattr(da, "array_expr_enabled") and da.array_expr_enabled()  # dask 2025.1 has none
if not DASK_IS_ON:
    da = pytest.importorskip("dask_array")

SHAPE, CHUNKS = (60, 50), (25, 20)
CALLS = calls()


def counted() -> tuple[Source, Any]:
    source = Source(SHAPE)
    # Without a `meta` it reads to know.
    return source, da.from_array(source, chunks=CHUNKS, meta=np.empty((0, 0)))


# --------------------------------------------------------------------------------------------------
# Every public function
# --------------------------------------------------------------------------------------------------


def values_of(result: Any) -> Any:
    """An answer, computed, in lists and tuples of plain arrays and numbers."""
    is_object_array = isinstance(result, np.ndarray) and result.dtype.kind == "O"
    if isinstance(result, tuple | list) or is_object_array:
        return [values_of(each) for each in result]
    if hasattr(result, "get_params"):
        return [
            [name, values_of(value)]
            for name, value in sorted(vars(result).items())
            if not hasattr(value, "dtype") or name != "random_state"
        ]
    if dask.is_dask_collection(result):
        return values_of(result.compute())
    if hasattr(result, "to_dict"):
        return [[name, values_of(value)] for name, value in result.to_dict().items()]
    if hasattr(result, "upto"):
        return [result.points, result.below, result.upto]
    return result


def arrays_in(result: Any) -> list[Any]:
    """The lazy arrays of an answer."""
    if isinstance(result, tuple | list):
        return [array for each in result for array in arrays_in(each)]
    if hasattr(result, "get_params"):
        return [array for each in vars(result).values() for array in arrays_in(each)]
    return [result] if isinstance(result, DaskArray | da.Array) else []


def asked(call: Call, make: Callable[..., Any]) -> Any:
    data = {
        key: make(value, chunks=(2, *value.shape[1:])) if isinstance(value, np.ndarray) else value
        for key, value in call.data.items()
    }
    return call(**data)


# The accessor's own array is no argument; `explain` answers with no array.
DATA = [
    name
    for name, call in CALLS.items()
    if any(isinstance(each, np.ndarray) for each in call.data.values()) and "exact" not in name
]


@pytest.mark.parametrize("name", DATA)
def test_every_function_answers_in_kind(name: str) -> None:
    call = CALLS[name]
    actual, expected = asked(call, da.from_array), asked(call, from_array)
    assert [type(each) for each in arrays_in(actual)] == [da.Array] * len(arrays_in(expected))
    np.testing.assert_equal(values_of(actual), values_of(expected))


def test_estimators_keep_what_they_are_given() -> None:
    a = normal(400).reshape(100, 4)
    x, y = da.from_array(a[:, :3], chunks=(30, 3)), da.from_array(a[:, 3], chunks=30)
    fitted = LeastTrimmedSquares(n_starts=20, n_best=2, random_state=0).fit(x, y)
    assert type(fitted.support_) is type(fitted.predict(x)) is da.Array
    plain = LeastTrimmedSquares(n_starts=20, n_best=2, random_state=0).fit(a[:, :3], a[:, 3])
    np.testing.assert_array_equal(fitted.support_.compute(), plain.support_)
    assert fitted.score(x, y) == pytest.approx(plain.score(a[:, :3], a[:, 3]), rel=1e-12)
    actual = NearestNeighbors(n_neighbors=2).fit(x).kneighbors(a[:5, :3])
    assert [type(each) for each in actual] == [da.Array, da.Array]
    assert type(KNeighborsRegressor(2).fit(x, a[:, 3]).predict(x)) is da.Array
    again = NearestNeighbors(n_neighbors=2).fit(from_array(a[:, :3], chunks=(30, 3))).fit(x)
    assert type(again.kneighbors(a[:5, :3])[0]) is da.Array
    assert type(again.fit(a[:, :3]).kneighbors(a[:5, :3])[0]) is np.ndarray
    expected = kneighbors(a[:, :3], a[:5, :3], 2)
    for mine, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(mine.compute(), other)


# --------------------------------------------------------------------------------------------------
# The promise
# --------------------------------------------------------------------------------------------------

QUESTIONS: Mapping[str, tuple[Callable[[Any], Any], int]] = {
    "median": (median, 2),
    "sort": (lambda x: sort(x.ravel() if hasattr(x, "ravel") else x[:, 0]), 3),
    "what is derived": (lambda x: median(abs(x * 2 - 1)), 2),
    "beside the source": (lambda x: x - median(x), 3),
    "in itself": (lambda x: median(abs(x - median(x))), 4),
    "with a mean": (lambda x: median(x - x.mean()), 3),
    "with means": (lambda x: median(x - x.mean(axis=0)), 3),
    "lanes in one column": (lambda x: median(x, axis=0), 1),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.usefixtures("nothing_kept")
def test_loads(name: str) -> None:
    source, x = counted()
    ask, most = QUESTIONS[name]
    answer = ask(x)
    assert not source.loads
    (result,) = dask.compute(answer)
    assert set(source.loads.values()) == {most}
    del result


def test_data_in_memory_are_read_in_place() -> None:
    source, x = counted()
    persisted = x.persist()
    assert set(source.loads.values()) == {1}
    median(persisted).compute()
    quantile(persisted, [0.3, 0.4]).compute()
    assert set(source.loads.values()) == {1}
    resident = da.from_array(normal(100), chunks=30)
    nodes = as_source(resident).dask.values()
    assert len(nodes) == 4
    assert all(isinstance(node, DataNode) for node in nodes)


def test_on_a_cluster(cluster_here: Any) -> None:
    x = da.from_array(normal(10_000), chunks=3000)
    assert median(x).compute() == np.median(normal(10_000))
    persisted = (x + 1).persist()
    assert median(persisted).compute() == np.median(normal(10_000) + 1)
    assert quantile(persisted, [0.5]).compute() == np.median(normal(10_000) + 1)


# --------------------------------------------------------------------------------------------------
# The accessor, and while enabled
# --------------------------------------------------------------------------------------------------


def test_enable_reaches_them() -> None:
    x = da.from_array(normal(1000).reshape(20, 50), chunks=(7, 20))
    before = [getattr(da, name) for name in ("median", "nanquantile")]
    with enable():
        assert da.median(x).compute() == np.median(normal(1000))
        assert x.median().compute() == np.median(normal(1000))
        assert x.percentile(30).compute() == np.percentile(normal(1000), 30)
        np.testing.assert_array_equal(
            da.nanquantile(x, [0.1, 0.2], axis=0).compute(),
            np.nanquantile(normal(1000).reshape(20, 50), [0.1, 0.2], axis=0),
        )
        if da is not dask.array:  # whose expressions do not tell NumPy what to call
            assert np.median(x).compute() == np.median(normal(1000))
    assert [getattr(da, name) for name in ("median", "nanquantile")] == before
    assert not hasattr(x, "describe_boxplot")


# --------------------------------------------------------------------------------------------------
# Mixed inputs
# --------------------------------------------------------------------------------------------------


def test_mixed_inputs_are_refused_with_a_way_out() -> None:
    a = normal(100)
    key, value = da.from_array(a, chunks=30), from_array(-a, chunks=30)
    with pytest.raises(TypeError, match="key is an array of dask.array, and values one of|key is"):
        sort_by(value, key)
    with pytest.raises(TypeError, match="from_graph"):
        describe_boxplot([key, value])
    with pytest.raises(TypeError, match="use arrays of one package"):
        LeastTrimmedSquares().fit(key[:, None], value)
    if da is not dask.array:
        made = da.core.from_graph(value.dask, value._meta, value.chunks, [], value.name)
        result = sort_by(key, made)[1]
        np.testing.assert_array_equal(result.compute(), -np.sort(a))


# --------------------------------------------------------------------------------------------------
# How
# --------------------------------------------------------------------------------------------------


def test_an_array_that_is_none_is_left_alone() -> None:
    x = from_array(normal(100), chunks=30)
    assert as_source(x) is x
    assert kind_of(x) is None
    assert type(median(x)) is DaskArray


def test_the_tasks_of_an_answer_are_made_when_they_are_wanted() -> None:
    _, x = counted()
    tasks = LowLevel(median(as_source(x)))
    assert "tasks" not in vars(tasks)
    assert len(tasks) > 18
    assert {*tasks} >= {*flatten(tasks.array.__dask_keys__())}
    assert {name.split("-")[0] for name in names_of(median(x))} >= {"median", "quantile"}


@pytest.mark.slow
@pytest.mark.skipif(DASK_IS_ON, reason="it is on")
def test_with_query_planning() -> None:
    """All of this file once more, in a process in which dask's own arrays are expressions."""
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", __file__)
    python(*command, DASK_ARRAY__QUERY_PLANNING="True", PYTHONPATH=str(ROOT))
