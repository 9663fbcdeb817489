"""Private copies of sources: what is copied, what waits, what stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.graph_manipulation import bind, wait_on

from dask_gpuselect import explain, median, sort
from dask_gpuselect.engine import source
from dask_gpuselect.engine.expressions import as_source
from dask_gpuselect.sorting import graph as sorting
from tests.backends import CUPY, NUMPY, Backend, param
from tests.data import normal
from tests.graphs import of_sources
from tests.sources import Source

is_in_memory = of_sources(lambda x: source.Source.of(x).is_in_memory)
is_in_process = of_sources(lambda x: source.Source.of(x).is_in_process)
private_copy = of_sources(source.private_copy)

Make = Callable[[Path], da.Array]


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


def scaled_by(answer: Callable[[da.Array], Any]) -> da.Array:
    x = da.from_array(normal(90), chunks=30)
    return x.map_blocks(scaled, by=answer(x), dtype=float)


def set_to_zero(x: da.Array) -> da.Array:
    x[x > 0.5] = 0
    return x


# Beside those that `test_loads.DERIVED` has.
SOURCES: dict[str, Make] = {
    "reader": lambda _: lazy(),
    "inline reader": lambda _: Source((12, 10)).lazy((5, 4), inline=True),
    "random": lambda _: da.random.default_rng(1).normal(size=(12, 10), chunks=5),
    "arange": lambda _: da.arange(100, chunks=30),
    "picked": lambda _: lazy()[:, [3, 1, 8]],
    "joined with memory": lambda _: da.concatenate([lazy(), lazy().persist()]),
    "on memory": lambda _: da.from_array(normal(100), chunks=30) + 1,
    "delayed": lambda _: da.from_delayed(dask.delayed(np.ones)(5), (5,), dtype=float) + 1,
    "zarr": lambda path: zarr_array(path),
    "flattened memory": lambda _: dask.optimize(da.from_array(normal(90), chunks=30) * 2)[0],
    "legacy": lambda _: legacy(),
    "0-d": lambda _: da.from_delayed(dask.delayed(np.float64)(3), (), dtype=float),
    "tensordot": lambda _: da.tensordot(lazy(), lazy().T, axes=1),
    "argument": lambda _: da.map_blocks(np.add, lazy(), dask.delayed(5), dtype=float),
    "lazy argument": lambda _: da.map_blocks(np.add, lazy(), dask.delayed(float)(5), dtype=float),
    "keyword": lambda _: lazy().map_blocks(scaled, by=dask.delayed(float)(5), dtype=float),
    "keyword of data": lambda _: lazy().map_blocks(scaled, by=dask.delayed(5), dtype=float),
    "keyword alone": lambda _: da.map_blocks(
        np.ones, shape=dask.delayed(int)(4), chunks=((4, 4),), dtype=float, meta=np.empty(0)
    ),
    "nested keyword": lambda _: nested_keyword(),
    "keyword of itself": lambda _: scaled_by(median),
    "keyword of a block": lambda _: scaled_by(lambda x: x.sum().to_delayed().item()),
    "waited for": lambda _: wait_on(lazy()),
    "bound": lambda _: bind(lazy(), dask.delayed(float)(5)),
    "two results": lambda _: da.apply_gufunc(
        lambda a: (a.min(-1), a.max(-1)), "(i)->(),()", lazy().rechunk((5, 10)), output_dtypes="dd"
    )[1],
    "masked": lambda _: set_to_zero(lazy()),
}


SOURCES_ON_A_GPU: dict[str, Make] = {
    "reader": lambda _: CUPY.mapped(lazy()),
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
def test_medians_of_any_graph(kind: Backend, make: Make, tmp_path: Path) -> None:
    x = made(make, tmp_path)
    theirs = kind.to_numpy(x.compute(scheduler="sync"))
    assert median(x).compute(scheduler="sync") == np.median(theirs)


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
    parts = [da.from_array(normal(9), chunks=3), da.ones(9, chunks=9).persist()]
    x = da.concatenate(parts)
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


@pytest.mark.gpu
def test_views_of_a_device_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``da.from_array(cupy_array, asarray=False)`` makes them: one read is enough, and sorting
    writes nothing to disk."""
    values = normal(1 << 21)
    x = da.from_array(CUPY.asarray(values), chunks=1 << 20, asarray=False)
    assert is_in_memory(x)
    assert explain(x).loads == 1

    def refused(*_: Any) -> Any:
        raise AssertionError("spilled")

    monkeypatch.setattr(sorting, "spill_file", refused)
    limits = {"dask_gpuselect.spill-limit": 1000, "dask_gpuselect.cache-limit": 0}
    with dask.config.set(limits):
        with pytest.raises(AssertionError, match="spilled"):
            sort(x.map_blocks(abs)).compute(scheduler="sync")
        ordered = sort(x).compute(scheduler="sync")
    assert float(median(x).compute()) == np.median(values)
    np.testing.assert_array_equal(CUPY.to_numpy(ordered), np.sort(values))


# --- What names say -------------------------------------------------------------------------------


@pytest.mark.legacy
def test_names_that_users_give_say_nothing() -> None:
    """Nothing is packed, staged, reduced or held because of what its layer is called."""
    for name in ("with-companions-7-mine", "to-gpu-mine", f"mine-{'0' * 32}r", "original-mine"):
        x = source.Source.of(da.ones((8, 4), chunks=2).map_blocks(np.negative, name=name))
        assert (x.element_bytes(), x.is_staged, x.is_in_memory) == (8, False, False)
        assert not source.is_reduction(x.name, x.dask.layers[x.name])


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
