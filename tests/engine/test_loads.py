"""How often chunks are loaded, and what a call does not do."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_gpuselect
from dask_gpuselect import median, nanquantile, order_statistic, quantile
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.strategies import Kelley
from tests.backends import Backend, kind_of
from tests.data import normal
from tests.graphs import names_of, tasks_of
from tests.processes import python
from tests.sources import Source
from tests.spies import ComputedError, refuse

pytestmark = pytest.mark.usefixtures("nothing_kept")

SHAPE, CHUNKS = (60, 50), (25, 20)
N_CHUNKS = 9


def loads(source: Source, n_chunks: int = N_CHUNKS) -> set[int]:
    """The different numbers of loads of its chunks, which expressions may read in other parts."""
    assert da.Array is not DaskArray or len(source.loads) == n_chunks
    return set(source.loads.values())


def computable(x: da.Array) -> da.Array:
    """An array, unless dask's query planning has lost a part of its graph."""
    known = set(x.__dask_graph__())
    if any(task.dependencies - known for task in tasks_of(x).values()):
        pytest.skip("the source itself fails")
    return x


DERIVED: dict[str, Callable[[da.Array], da.Array]] = {
    "arithmetic": lambda x: abs(x * 2 - 1),
    "rechunked": lambda x: x.rechunk((60, 10)),
    "merged": lambda x: x.rechunk(-1),
    "reshaped": lambda x: x.ravel(),
    "sliced": lambda x: x[1:, ::2],
    "unknown sizes": lambda x: x[x > 0.5],
    "overlapping": lambda x: da.overlap.overlap(x, depth=1, boundary="reflect"),
    "overlapping 1-d": lambda x: x.ravel().map_overlap(lambda b: b, depth=2, boundary=0),
    "stacked": lambda x: da.stack([x, x + 1]),
    "joined": lambda x: da.concatenate([x, x.T], axis=None),
    "transposed": lambda x: x.T,
    "float32": lambda x: x.astype("f4"),
    "flattened graph": lambda x: dask.optimize(x + 1)[0],
    "lazy argument": lambda x: computable(
        x.map_blocks(lambda b, k: b * k, k=dask.delayed(float)(3), dtype=float, meta=x._meta)
    ),
    "no fusion": lambda x: x.map_blocks(np.sin).map_blocks(np.cos),
}


def test_only_what_is_needed_is_loaded(backend: Backend) -> None:
    source, other = Source(SHAPE), Source(SHAPE)
    x = source.lazy(CHUNKS)
    ours = median(backend.mapped(x[3, 7])).compute()
    assert backend.to_numpy(ours) == source.whole()[3, 7]
    median(backend.mapped(x[30:35, 2:12])).compute()
    assert source.loads in ({place: 2, "30:35,2:12": 2} for place in ("3,7", "3:4,7:8"))
    median(backend.mapped(da.concatenate([other.lazy(CHUNKS)[1:], x]))).compute()
    assert loads(other) == {2}


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("derivation", DERIVED)
def test_two_loads_of_what_an_array_derives_from(
    backend: Backend, derivation: str, inline: bool
) -> None:
    source = Source(SHAPE)
    x = DERIVED[derivation](backend.mapped(source.lazy(CHUNKS, inline=inline)))
    result = kind_of(x).to_numpy(median(x).compute())
    assert loads(source) == {2}
    assert result == np.median(backend.to_numpy(x.compute()))


SEVERAL: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a use of the array beside its median": (lambda x, of: x - of.median(x), 3),
    # The inner median is computed once, not once for each load of the outer one.
    "deviation": (lambda x, of: of.median(abs(x - of.median(x))), 4),
    # Calls in one computation share the first load: k calls take k + 1.
    "three calls": (lambda x, of: of.median(x) + of.quantile(x, 0.9) * of.quantile(x, 0.1), 4),
    "calls that ask the same": (lambda x, of: of.median(x) * of.median(x), 2),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_loads_of_several_questions(backend: Backend, name: str) -> None:
    ask, expected = SEVERAL[name]
    source = Source(SHAPE)
    answer = ask(backend.mapped(source.lazy(CHUNKS)), dask_gpuselect)
    np.testing.assert_array_equal(backend.to_numpy(answer.compute()), ask(source.whole(), np))
    assert loads(source) == {expected}


@pytest.mark.parametrize(("chunks", "expected"), [((5, 20), 2), ((20, 10), 1)])
def test_a_use_of_the_array_beside_its_medians_along_an_axis(
    backend: Backend, chunks: tuple[int, int], expected: int
) -> None:
    """A chunk that holds whole lanes is used for both; of several, none waits for the others."""
    source = Source((20, 20))
    x = backend.mapped(source.lazy(chunks))
    centred = backend.to_numpy((x - median(x, axis=0)).compute())
    # An expression of x reads it by tasks of its own.
    assert set(source.loads.values()) == {expected if da.Array is DaskArray else 2}
    whole = source.whole()
    np.testing.assert_array_equal(centred, whole - np.median(whole, axis=0))


# --- Data in memory -----------------------------------------------------------------------------


@pytest.mark.legacy
def test_arrays_in_memory_are_read_in_place() -> None:
    x = da.from_array(normal(1000), chunks=100)
    graph = dict(median(x).dask)
    assert {key for key in graph if key[0] == x.name} == set(x.dask)
    chunks = [value for value in graph.values() if isinstance(value, np.ndarray)]
    assert len(chunks) == 10
    assert all(value is x.dask[key] for key, value in graph.items() if key in x.dask)


def test_persisted_chunks_are_read_in_place(backend: Backend) -> None:
    source = Source(SHAPE)
    x = backend.mapped(source.lazy(CHUNKS)).persist()
    backend.to_numpy(median(x).compute())
    backend.to_numpy((x - median(x)).compute())
    assert loads(source) == {1}


# --- Laziness -----------------------------------------------------------------------------------


def test_a_call_takes_no_scheduler(backend: Backend) -> None:
    """Not even one that says nothing to callbacks."""

    x = backend.mapped(Source(SHAPE).lazy(CHUNKS))
    with dask.config.set(scheduler=refuse):
        answer = median(abs(x[x > 0.5] - median(x)))
        with pytest.raises(ComputedError):
            answer.compute()


def test_graphs_of_many_chunks_are_small() -> None:
    (optimised,) = dask.optimize(quantile(Source((2_000,)).lazy(1), [0.25, 0.5, 0.75]))
    # A task a chunk and load, a merge for sixteen of them, and a few more; of expressions one more
    # for each, which reads it.
    of_chunk = 2 if da.Array is DaskArray else 4
    assert len(optimised.__dask_graph__()) < of_chunk * 2_000 * (1 + 1 / 15) + 50


# --- Names --------------------------------------------------------------------------------------

PROGRAM = """
import dask.array as da
from dask_gpuselect import median, quantile
x = da.arange(1000, chunks=100) + 1
for answer in (median(x), quantile(x, [0.1, 0.5]), quantile(x, [0.1, 0.5], method="lower")):
    print(*sorted(map(str, answer.dask)), answer.name)
"""


def test_keys_are_the_same_in_every_process() -> None:
    """Here, and in one with other hashes of words."""
    env = {"PYTHONHASHSEED": "1", "DASK_DASK_GPUSELECT__CACHE_LIMIT": "0"}
    there = python("-c", PROGRAM, **env)
    with redirect_stdout(io.StringIO()) as here:
        exec(PROGRAM, {})
    assert there == here.getvalue() != ""


def test_keys_follow_what_is_asked() -> None:
    x = Source(SHAPE).lazy(CHUNKS)
    y = Source(SHAPE, "f4").lazy(CHUNKS)
    assert median(x).name == median(x).name
    keeps = normal(3000).reshape(SHAPE) > 0
    assert median(x, where=keeps).name == median(x, where=keeps.copy()).name
    with_masks: list[dict[str, Any]] = [
        *({"where": keeps}, {"where": ~keeps}, {"where": keeps, "nodata": 0.0}),
        *({"nodata": nodata} for nodata in (0.0, 1.0, [0.0, 1.0])),
    ]
    strategies = ("kelley", "bisection", Kelley(iterations=3))
    one, same = (order_statistic(x, [3, 4], strategy=Kelley()) for _ in range(2))
    assert {*dict(one.dask)} == {*dict(same.dask)}
    answers = [
        median(x),
        median(y),
        median(x, keepdims=True),
        quantile(x, 0.5),
        quantile(x, [0.5]),
        quantile(x, 0.6),
        quantile(x, 0.5, method="lower"),
        nanquantile(x, 0.5),
        *(median(x, **how) for how in with_masks),
        *(order_statistic(x, k) for k in ([3, 4], [3, 5])),
        *(order_statistic(x, [3, 4], strategy=each) for each in strategies),
        order_statistic(y, [3, 4], strategy="kelley"),
    ]
    assert len({answer.name for answer in answers}) == len(answers)
    cuts = {name for a in answers for name in names_of(a) if name.startswith("quantile-cuts-")}
    assert (
        len({name for name in cuts if "merge" not in name}) == 2 + 6
    )  # of x, of y, and of each mask
