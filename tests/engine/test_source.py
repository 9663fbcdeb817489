"""Private copies of sources: what is copied, what waits, what stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.blockwise import Blockwise
from dask.graph_manipulation import bind, wait_on
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_gpuselect import explain, median, sort
from dask_gpuselect.engine import source
from dask_gpuselect.engine.expressions import as_source
from dask_gpuselect.sorting import graph as sorting
from tests.backends import CUPY, NUMPY, Backend, param
from tests.data import normal
from tests.graphs import of_sources, tasks_of
from tests.sources import Source

is_in_memory = of_sources(source.is_in_memory)
is_in_process = of_sources(source.is_in_process)
private_copy = of_sources(source.private_copy)

Make = Callable[[Path], da.Array]

TURN = "turn-1"


def turn_graph() -> MaterializedLayer:
    return MaterializedLayer({TURN: DataNode(TURN, "the turn has come")})


def zarr_array(path: Path) -> da.Array:
    da.from_array(normal(120).reshape(12, 10), chunks=(5, 4)).to_zarr(path / "a.zarr")
    return da.from_zarr(path / "a.zarr")


def legacy() -> da.Array:
    """A graph as people write it by hand: tuples, keys as strings, a key that names another."""
    graph = {
        ("x", 0): (np.ones, 3),
        ("x", 1): (np.add, "base", 1),
        ("x", 2): ("other", 0),
        "base": (np.arange, 4),
        ("other", 0): (np.multiply, ("x", 1), 2),
    }
    return source.DaskArray(graph, "x", ((3, 4, 4),), dtype=float)


def lazy() -> da.Array:
    return Source((12, 10)).lazy((5, 4))


def scaled(block: Any, by: float) -> Any:
    return block * by


def nested_keyword() -> da.Array:
    try:
        return lazy().map_blocks(
            lambda block, by: block * by[0]["by"], by=[{"by": dask.delayed(float)(5)}], dtype=float
        )
    except AttributeError as error:
        if "'List' object has no attribute 'items'" not in str(error):
            raise
        pytest.skip("dask 2025.1 itself takes no dict in a list as a keyword")


def of_ones(n: int) -> Any:
    return np.ones(n)


def set_to_zero(x: da.Array) -> da.Array:
    x[x > 0.5] = 0
    return x


SOURCES: dict[str, Make] = {
    "reader": lambda _: lazy(),
    "inline reader": lambda _: Source((12, 10)).lazy((5, 4), inline=True),
    "random": lambda _: da.random.default_rng(1).normal(size=(12, 10), chunks=5),
    "arange": lambda _: da.arange(100, chunks=30),
    "arithmetic": lambda _: lazy() * 2 + 1,
    "rechunked": lambda _: lazy().rechunk((3, 10)),
    "sliced": lambda _: lazy()[1:9, ::3],
    "picked": lambda _: lazy()[:, [3, 1, 8]],
    "boolean": lambda _: lazy()[lazy() > 0.5],
    "overlapped": lambda _: da.overlap.overlap(lazy(), depth=1, boundary="reflect"),
    "stacked": lambda _: da.stack([lazy(), lazy() + 1]),
    "joined with memory": lambda _: da.concatenate([lazy(), lazy().persist()]),
    "on memory": lambda _: da.from_array(normal(100), chunks=30) + 1,
    "delayed": lambda _: da.from_delayed(dask.delayed(np.ones)(5), (5,), dtype=float) + 1,
    "zarr": lambda path: zarr_array(path),
    "flattened": lambda _: dask.optimize(lazy() + 1)[0],
    "flattened memory": lambda _: dask.optimize(da.from_array(normal(90), chunks=30) * 2)[0],
    "legacy": lambda _: legacy(),
    "0-d": lambda _: da.from_delayed(dask.delayed(np.float64)(3), (), dtype=float),
    "tensordot": lambda _: da.tensordot(lazy(), lazy().T, axes=1),
    "argument": lambda _: da.map_blocks(np.add, lazy(), dask.delayed(5), dtype=float),
    "lazy argument": lambda _: da.map_blocks(np.add, lazy(), dask.delayed(float)(5), dtype=float),
    "keyword": lambda _: lazy().map_blocks(scaled, by=dask.delayed(float)(5), dtype=float),
    "keyword of data": lambda _: lazy().map_blocks(scaled, by=dask.delayed(5), dtype=float),
    "keyword alone": lambda _: da.map_blocks(
        of_ones, n=dask.delayed(int)(4), chunks=((4, 4),), dtype=float, meta=np.empty(0)
    ),
    "nested keyword": lambda _: nested_keyword(),
    "waited for": lambda _: wait_on(lazy()),
    "bound": lambda _: bind(lazy(), dask.delayed(float)(5)),
    "two results": lambda _: da.apply_gufunc(
        lambda a: (a.min(-1), a.max(-1)), "(i)->(),()", lazy().rechunk((5, 10)), output_dtypes="dd"
    )[1],
    "masked": lambda _: set_to_zero(lazy()),
}


SOURCES_ON_A_GPU: dict[str, Make] = {
    "reader": lambda _: CUPY.mapped(lazy()),
    "arithmetic": lambda _: CUPY.mapped(lazy()) * 2 + 1,
    "rechunked": lambda _: CUPY.mapped(lazy()).rechunk((3, 10)),
    "boolean": lambda _: CUPY.mapped(lazy())[CUPY.mapped(lazy()) > 0.5],
    "sliced by dask": lambda _: da.from_array(CUPY.asarray(normal(99)), chunks=30, asarray=False),
    "on memory": lambda _: CUPY.held(normal(100), 30) + 1,
    "joined with memory": lambda _: da.concatenate(
        [CUPY.mapped(lazy()), CUPY.held(normal(90).reshape(9, 10), 4)]
    ),
    "zarr": lambda path: CUPY.mapped(zarr_array(path)),
}

every_source = pytest.mark.parametrize(
    ("kind", "make"),
    [
        param(kind, kind, make, id=f"{kind}-{name}")
        for kind, sources in ((NUMPY, SOURCES), (CUPY, SOURCES_ON_A_GPU))
        for name, make in sources.items()
    ],
)


def waiting_copy(x: da.Array) -> da.Array:
    """A copy after the turn, whose graph holds the turn as well."""
    copy = private_copy(x, "a seed", after=TURN, after_layer=TURN)
    if copy.name == as_source(x).name:
        return x
    graph = HighLevelGraph(
        {**copy.dask.layers, TURN: turn_graph()}, {**copy.dask.dependencies, TURN: set()}
    )
    graph.validate()
    return source.DaskArray(graph, copy.name, copy.chunks, meta=copy._meta)


def made(make: Make, path: Path) -> da.Array:
    """A source, if it is one of those that a package of expressions can make and compute."""
    if da.Array is source.DaskArray:
        return make(path)
    try:
        x = make(path)
        x.compute(scheduler="sync")
    except Exception as error:
        pytest.skip(f"the source itself fails: {error!r}")
    return x


@every_source
def test_a_copy_is_the_same_array(kind: Backend, make: Make, tmp_path: Path) -> None:
    x = made(make, tmp_path)
    copy = waiting_copy(x)
    assert copy.chunks == x.chunks or np.isnan(x.shape).any()
    assert copy.dtype == x.dtype
    assert type(copy._meta) is type(x._meta)
    theirs, copied = (kind.to_numpy(array.compute(scheduler="sync")) for array in (x, copy))
    np.testing.assert_array_equal(copied, theirs)
    assert median(x).compute(scheduler="sync") == np.median(theirs)


@every_source
def test_a_copy_shares_data_only_and_waits(kind: Backend, make: Make, tmp_path: Path) -> None:
    x = made(make, tmp_path)
    original, copy = tasks_of(as_source(x)), tasks_of(waiting_copy(x))
    for key in original.keys() & copy.keys():
        assert isinstance(original[key], DataNode), key
    for key, task in copy.items():
        if isinstance(task, DataNode):
            continue
        assert task.dependencies, key
        needs = {need for need in task.dependencies if not isinstance(copy[need], DataNode)}
        assert needs or TURN in task.dependencies, f"{key} waits for nothing"


@every_source
def test_copies_of_one_seed_are_one(kind: Backend, make: Make, tmp_path: Path) -> None:
    x = made(make, tmp_path)
    assert private_copy(x, "a").name == private_copy(x, "a").name != private_copy(x, "b").name
    assert set(private_copy(x, "a").dask) == set(private_copy(x, "a").dask)


@pytest.mark.legacy
def test_blockwise_layers_stay_symbolic() -> None:
    copy = private_copy(Source((4,)).lazy(1) * 2 + 1, "a", after=TURN, after_layer=TURN)
    kinds = [type(layer) for layer in copy.dask.layers.values()]
    assert kinds.count(Blockwise) == 3
    assert all(
        not layer.is_materialized()
        for layer in copy.dask.layers.values()
        if isinstance(layer, Blockwise)
    )


def test_chunks_in_memory_are_not_copied(backend: Backend) -> None:
    for x in (backend.held(normal(100), 30), backend.mapped(lazy()).persist()):
        assert private_copy(x, "a", after=TURN, after_layer=TURN).name == as_source(x).name


@pytest.mark.legacy
@pytest.mark.parametrize("reduce", [da.mean, da.sum, da.var, median])
@pytest.mark.usefixtures("nothing_kept")
def test_small_results_of_reductions_are_shared(reduce: Callable[[da.Array], da.Array]) -> None:
    x = lazy()
    result = reduce(x)
    copy = private_copy(x - result, "a", after=TURN, after_layer=TURN)
    assert result.name in copy.dask.layers
    # What the reduction needs is there as it was, beside the copy.
    assert set(result.dask.layers) <= set(copy.dask.layers)
    # The difference, the reader, the file under another name, and the file.
    assert len(copy.dask.layers) == len(result.dask.layers) + 4


@pytest.mark.legacy
def test_large_results_of_reductions_are_copied() -> None:
    x = Source((12, 1000)).lazy((2, 10))
    result = x.sum(axis=0)  # 8,000 bytes, where a chunk has 160
    copy = private_copy(x - result, "a", after=TURN, after_layer=TURN)
    assert result.name not in copy.dask.layers


@pytest.mark.legacy
def test_annotations_stay() -> None:
    """Of symbolic and of materialised layers, and no layer gets another's."""
    with dask.annotate(retries=3):
        x = lazy() + 1
    with dask.annotate(resources={"GPU": 1}):
        x = x.rechunk((3, 3))
    copy = private_copy(x * 2, "a", after=TURN, after_layer=TURN)
    annotations = {
        name.partition("-")[0]: layer.annotations for name, layer in copy.dask.layers.items()
    }
    assert annotations["add"] == annotations["array"] == {"retries": 3}
    assert annotations["rechunk"] == {"resources": {"GPU": 1}}
    assert annotations["mul"] is None


@pytest.mark.legacy
def test_a_reader_is_left_as_dask_knows_it() -> None:
    """Dask fuses slices into its own reading functions, and into no other."""
    copy = tasks_of(waiting_copy(lazy()))
    readers = [
        task for task in copy.values() if isinstance(task, Task) and "getter" in str(task.func)
    ]
    assert len(readers) == 9
    # Of what is read they hold the key and no task. In dask 2025.1 an alias holds it.
    assert all(isinstance(task.args[0], TaskRef | Alias) for task in readers)


# --- What is in memory ----------------------------------------------------------------------------


def mapped_file(path: Path) -> Any:
    return np.memmap(path / "a.dat", dtype="f8", mode="w+", shape=(100,))


class Plain(np.ndarray):  # type: ignore[type-arg]
    """A subclass, which may be read from anywhere."""


IN_MEMORY: dict[str, tuple[Callable[[Path], Any], dict[str, Any], bool]] = {
    "an array": (lambda _: normal(100), {}, True),
    "behind a lock": (lambda _: normal(100), {"lock": True}, True),
    "a view behind a lock": (lambda _: normal(300)[::3], {"lock": True}, True),
    "a file": (mapped_file, {}, False),
    "a part of a file": (lambda path: mapped_file(path)[::2], {}, False),
    "a subclass": (lambda _: normal(100).view(Plain), {}, False),
    "an array-like": (lambda _: Source((100,)), {"asarray": False}, False),
}


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_views_of_memory_are_in_memory(kind: str, inline: bool, tmp_path: Path) -> None:
    """By what `da.from_array` has been given: arrays, and no files."""
    make, how, expected = IN_MEMORY[kind]
    x = da.from_array(make(tmp_path), chunks=30, inline_array=inline, **how)
    assert is_in_memory(x) is expected
    assert not is_in_memory(x + 1)


def test_arrays_one_behind_the_other_are_in_memory() -> None:
    held = [da.from_array(normal(9), chunks=3), da.ones(9, chunks=9).persist()]
    x = da.concatenate(held)
    assert is_in_memory(x)
    assert is_in_process(x)
    assert is_in_memory(da.concatenate([x, x]))
    assert not is_in_memory(da.concatenate([x, x + 1]))
    np.testing.assert_array_equal(median(x).compute(), np.median(x.compute()))


def test_a_view_of_a_file_is_no_memory(tmp_path: Path) -> None:
    assert source._is_plain(normal(3)[::2])
    for view in (mapped_file(tmp_path), np.asarray(mapped_file(tmp_path))):
        assert not source._is_plain(view)
        assert not source._is_plain(view[5:][::2])


def check_views(x: da.Array, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One read is enough, and sorting writes nothing to disk."""
    assert is_in_memory(x)
    assert explain(x).loads == 1

    def refused(*_: Any) -> Any:
        raise AssertionError("spilled")

    monkeypatch.setattr(sorting, "spill_file", refused)
    with dask.config.set({"dask_gpuselect.spill-limit": 1000}):
        with pytest.raises(AssertionError, match="spilled"):
            sort(x.map_blocks(abs)).compute(scheduler="sync")
        return median(x).compute(), sort(x).compute(scheduler="sync")


def test_plan_and_answer_of_views(monkeypatch: pytest.MonkeyPatch) -> None:
    values = normal(1 << 21)
    middle, ordered = check_views(da.from_array(values, chunks=1 << 20, lock=True), monkeypatch)
    assert float(middle) == np.median(values)
    np.testing.assert_array_equal(ordered, np.sort(values))


@pytest.mark.gpu
def test_views_of_a_device_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``da.from_array(cupy_array, asarray=False)`` makes them."""
    values = normal(1 << 21)
    x = da.from_array(CUPY.asarray(values), chunks=1 << 20, asarray=False)
    middle, ordered = check_views(x, monkeypatch)
    assert float(middle) == np.median(values)
    np.testing.assert_array_equal(CUPY.to_numpy(ordered), np.sort(values))


# --- Chunks that one task makes each --------------------------------------------------------------


def in_one(x: da.Array) -> Any:
    """A private copy, and whether each of its chunks is made by one task."""
    x = as_source(x)
    copy = source.private_copy(x, "a copy")
    joined = source.in_one_task_each(copy, x)
    np.testing.assert_array_equal(
        joined.compute(scheduler="sync"), x.compute(scheduler="sync"), strict=True
    )
    assert joined.name == copy.name
    return joined, joined is not copy


@pytest.mark.legacy
def test_chunks_are_made_by_one_task_each() -> None:
    readers = [Source((n, 10)).lazy((5, 4)) for n in (12, 7)]
    joined, is_joined = in_one((da.concatenate(readers) * 2).map_blocks(np.negative))
    assert is_joined
    layer = joined.dask.layers[joined.name]
    assert len(layer) == joined.npartitions
    others = {key for task in layer.values() for key in task.dependencies}
    assert {key.partition("-")[0] for key in others} == {"original"}


@pytest.mark.legacy
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[2:, ::2],  # dask reads no more than that
        lambda x: x.rechunk((3, 10)),
        lambda x: x + x[::-1],  # made of the same chunks
        lambda x: x + Source((12, 10)).lazy((5, 4)),  # of two
        lambda x: x.persist(scheduler="sync"),
    ],
    ids=["slices", "rechunked", "shared", "two arrays", "in memory"],
)
def test_other_chunks_are_left_to_dask(change: Callable[[da.Array], da.Array]) -> None:
    assert not in_one(change(Source((12, 10)).lazy((5, 4))))[1]


@pytest.mark.legacy
def test_tasks_that_are_far_behind_or_have_annotations_are_left_to_dask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Source((12, 10)).lazy((5, 4))
    with dask.annotate(priority=1):
        annotated = x + 1
    assert not in_one(annotated)[1]
    far = x
    for _ in range(source.MOST_DEEP):
        far = far + 1
    assert not in_one(far)[1]
    monkeypatch.setattr(source, "MOST_IN_ONE", 3)
    assert not in_one(x + 1)[1]
