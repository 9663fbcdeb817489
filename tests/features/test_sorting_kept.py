"""Sorted dask arrays of which the first load keeps what the second would count."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import argsort, sort, sort_by
from dask_gpuselect.engine import boards
from tests.features.test_groups_kept import DATA, Counted
from tests.sources import Source

N, N_CHUNKS = 15_000, 60
OUT = N * N_CHUNKS // 6  # elements of a chunk of the result

SORTS: dict[str, Callable[[da.Array], Any]] = {
    "sort": lambda x: sort(x, chunks=OUT),
    "argsort": lambda x: argsort(x, chunks=OUT),
    "sort_by": lambda x: sort_by(x, da.arange(x.size, chunks=N), chunks=OUT)[1],
    "uneven chunks": lambda x: sort(x, chunks=((0, 10, OUT, 5 * OUT - 10),)),
    "pieces on disk": lambda x: sort(x, chunks=OUT, spill=True),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SORTS)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_nearly_two_loads_of_mixed_data(name: str, scheduler: str) -> None:
    data = Source((N * N_CHUNKS,))
    with dask.config.set(scheduler=scheduler, num_workers=2):
        found = SORTS[name](data.lazy(N)).compute()
    # Threads that wait let some more chunks be read before there is a guess.
    assert sum(data.loads.values()) <= (2.15 if scheduler == "sync" else 2.3) * N_CHUNKS
    assert max(data.loads.values()) <= 3
    order = np.argsort(data.whole(), kind="stable")
    has_places = name in ("argsort", "sort_by")
    np.testing.assert_array_equal(found, order if has_places else data.whole()[order])


@pytest.mark.few(2)
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("knows_sizes", [True, False])
def test_any_data_in_three_loads_at_most(name: str, knows_sizes: bool) -> None:
    values = DATA[name](80_000)
    data = Counted(values)
    x = data.lazy(2000)
    how = {"chunks": 10_001}
    if not knows_sizes:
        x, how = x.copy(), {}
        x._chunks = ((np.nan,) * x.npartitions,)
    found = sort(x, **how).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.sort(values))
    assert data.most <= 3
    with dask.config.set({"dask_gpuselect.cache-limit": 0}):
        np.testing.assert_array_equal(sort(x, **how).compute(scheduler="sync"), found)


def test_nothing_is_held_behind() -> None:
    sort(Source((N * N_CHUNKS,)).lazy(N), chunks=OUT)[-1].compute()
    gc.collect()
    assert boards.room.taken == 0
    assert not boards._boards
