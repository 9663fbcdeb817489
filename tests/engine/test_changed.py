"""A source that differs between the two loads: an error that names the chunk, never a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, median, nanmedian, quantile
from tests.backends import Backend
from tests.sources import changing

Floats = NDArray[np.float64]
Change = Callable[[Floats, int], Floats]


def second(change: Callable[[Floats], Floats]) -> Change:
    """Change the second load alone."""
    return lambda values, load: change(values) if load == 2 else values


def with_nan(values: Floats) -> Floats:
    return np.where(np.arange(values.size) < 5, np.nan, values)


CHANGES: dict[str, tuple[Change, str]] = {
    "fewer elements": (
        second(lambda values: values[2:]),
        r"chunk \(3,\) held \d+00 valid elements on the first load and \d+98 on the second",
    ),
    "more elements": (
        second(lambda values: np.append(values, 0.5)),
        r"chunk \(3,\) held \d+00 valid elements on the first load and \d+01 on the second",
    ),
    "other content": (
        second(lambda values: values / 2),
        # Which of the two is noticed first depends on the pivots.
        r"chunk \(3,\) held \d+ to \d+ elements (below|up to) 0\.\d+ on the first load and \d+ on"
        r"|chunk \(3,\) holds more elements between the brackets' ends on the second load",
    ),
    "all in the bracket": (
        second(lambda values: np.full_like(values, 0.5)),
        r"chunk \(3,\) holds more elements between the brackets' ends on the second load",
    ),
    "now nan": (
        second(with_nan),
        r"chunk \(3,\) held \d+00 valid elements on the first load and \d+95 on the second",
    ),
}


@pytest.mark.parametrize("size", [1000, 20_000])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_the_changed_chunk_is_named(
    backend: Backend, change: str, scheduler: str, size: int, tmp_path: Path
) -> None:
    """Whether it was sorted or classified."""
    alter, message = CHANGES[change]
    x = backend.mapped(changing(alter, directory=tmp_path, size=size))
    with pytest.raises(ChunksChangedError, match=message) as caught:
        median(x).compute(scheduler=scheduler)
    assert "`.persist()` the array first" in str(caught.value)


TIES = np.repeat([0.0, 2.0, 1.0], [300, 300, 400])


@pytest.mark.parametrize("to", [0.5, 1.5])
def test_copies_of_the_answer_become_something_else(
    backend: Backend, to: float, tmp_path: Path
) -> None:
    """The median is 1 and its copies are only counted. Some of them lost to one side show in the
    count below 1 or in the count up to 1, and in nothing else."""
    fewer = np.append(TIES[:-10], np.full(10, to))
    x = changing(
        lambda _, load: TIES if load == 1 else fewer, directory=tmp_path, chunk=0, n_chunks=1
    )
    with pytest.raises(ChunksChangedError) as caught:
        median(backend.mapped(x)).compute(scheduler="sync")
    counts = re.match(
        r"chunk \(0,\) held (\d+) to (\d+) .* and (\d+) on the sec", str(caught.value)
    )
    assert counts
    least, most, found = map(int, counts.groups())
    assert not least <= found <= most


def test_the_rank_leaves_its_bracket(backend: Backend, tmp_path: Path) -> None:
    """A chunk changes within what its counts prove, and the median moves all the same.

    Chunk 0 has its 31 pivots at 0, 1, 2, ... and 32 elements or so between two of them: on the
    first load just below the next pivot, on the second just above the last. Chunk 1 is small enough
    to be known in full and lies in the middle cell, so that the first load's distances prove the
    median to be in chunk 1.
    """
    place = np.arange(1000)
    pivots = np.arange(31) * 999 // 30
    cell = np.searchsorted(pivots, place, side="right") - 1.0
    between = np.where(np.isin(place, pivots), 0, 0.001 + place * 1e-6)
    moved = np.where(between > 0, 0.99, 0)
    x = changing(
        lambda _, load: cell + between + (moved if load == 1 else 0),
        directory=tmp_path,
        chunk=0,
        n_chunks=1,
    )
    known = backend.held(15 + np.linspace(0.1, 0.9, 16), -1)
    with pytest.raises(ChunksChangedError, match=r"left the brackets .* `.persist\(\)`"):
        median(da.concatenate([backend.mapped(x), known])).compute(scheduler="sync")


@pytest.mark.parametrize("size", [1000, 20_000])
def test_only_the_number_of_nan_changes(backend: Backend, size: int, tmp_path: Path) -> None:
    """The valid elements are the same, the missing ones are more."""
    more = second(lambda values: np.append(values, np.nan))
    x = backend.mapped(changing(more, directory=tmp_path, size=size))
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\) held 0 missing \(NaN or NaT\) el"):
        nanmedian(x).compute()


def test_persisting_fixes_the_data(backend: Backend, tmp_path: Path) -> None:
    x = backend.mapped(changing(second(lambda values: values / 2), directory=tmp_path)).persist()
    ours, values = (backend.to_numpy(made.compute()) for made in (median(x), x))
    assert ours == np.median(values)


def test_an_unseeded_source_never_gives_a_wrong_number(backend: Backend) -> None:
    """Every load of twenty chunks is drawn anew, the same number of elements each time."""
    rng = np.random.default_rng()
    drawn = da.zeros(20_000, chunks=1000).map_blocks(
        lambda block: rng.random(block.size), dtype=np.float64, meta=np.empty(0)
    )
    with pytest.raises(ChunksChangedError, match=r"persist"):
        quantile(backend.mapped(drawn), np.linspace(0.05, 0.95, 19)).compute(scheduler="sync")


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_source_that_shrinks_between_the_loads(
    backend: Backend, scheduler: str, tmp_path: Path
) -> None:
    """All of a chunk is gone, so that the wanted rank is beyond the end of what is left."""
    x = changing(second(lambda values: values[:0]), directory=tmp_path, chunk=0, n_chunks=1)
    with pytest.raises(ChunksChangedError, match=r"chunk \(0,\) held 1000 valid .* and 0 on the"):
        quantile(backend.mapped(x), 1).compute(scheduler=scheduler)


def test_what_changes_is_named_in_all_dimensions(backend: Backend, tmp_path: Path) -> None:
    x = changing(second(lambda values: values / 2), directory=tmp_path, chunk=5)
    x._chunks = ((1000,) * 6,)
    with pytest.raises(ChunksChangedError, match=r"^chunk \(1, 2, 0\) held"):
        median(backend.mapped(x).reshape(2, 3000, 1)).compute(scheduler="sync")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as made:
        yield made


@pytest.mark.parametrize("change", CHANGES)
def test_on_a_cluster(backend: Backend, client: Client, change: str, tmp_path: Path) -> None:
    alter, message = CHANGES[change]
    x = backend.mapped(changing(alter, directory=tmp_path))
    with pytest.raises(ChunksChangedError, match=message):
        client.compute(median(x)).result(timeout=60)
