"""A source that differs between the two loads: an error that names the chunk, never a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, median, nanmedian, quantile
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
        r"chunk \(3,\) held 1000 valid elements on the first load and 998 on the second",
    ),
    "more elements": (
        second(lambda values: np.append(values, 0.5)),
        r"chunk \(3,\) held 1000 valid elements on the first load and 1001 on the second",
    ),
    "other content": (
        second(lambda values: values / 2),
        r"chunk \(3,\) held \d+ to \d+ elements up to 0\.\d+ on the first load and \d+ on the",
    ),
    "all in the bracket": (
        second(lambda values: np.full_like(values, 0.5)),
        r"chunk \(3,\) holds more elements between the brackets' ends on the second load",
    ),
    "now nan": (
        second(with_nan),
        r"chunk \(3,\) held 1000 valid elements on the first load and 995 on the second",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_the_changed_chunk_is_named(change: str, scheduler: str, tmp_path: Path) -> None:
    alter, message = CHANGES[change]
    x = changing(alter, directory=tmp_path)
    with pytest.raises(ChunksChangedError, match=message) as caught:
        median(x).compute(scheduler=scheduler)
    assert "`.persist()` the array first" in str(caught.value)


def test_only_the_number_of_nan_changes(tmp_path: Path) -> None:
    """The valid elements are the same, the missing ones are more."""
    x = changing(second(lambda values: np.append(values, np.nan)), directory=tmp_path)
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\) held 0 missing \(NaN or NaT\) el"):
        nanmedian(x).compute()


def test_persisting_fixes_the_data(tmp_path: Path) -> None:
    x = changing(second(lambda values: values / 2), directory=tmp_path).persist()
    assert median(x).compute() == np.median(x.compute())


def test_an_unseeded_source_never_gives_a_wrong_number() -> None:
    """Every load of twenty chunks is drawn anew, the same number of elements each time."""
    rng = np.random.default_rng()
    drawn = da.zeros(20_000, chunks=1000).map_blocks(
        lambda block: rng.random(block.size), dtype=np.float64, meta=np.empty(0)
    )
    with pytest.raises(ChunksChangedError, match=r"persist"):
        quantile(drawn, np.linspace(0.05, 0.95, 19)).compute(scheduler="sync")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as made:
        yield made


def test_on_a_cluster(client: Client, tmp_path: Path) -> None:
    alter, message = CHANGES["other content"]
    with pytest.raises(ChunksChangedError, match=message):
        median(changing(alter, directory=tmp_path)).compute(scheduler=client)
