"""Groups of all elements of which the first load keeps what the second would ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect.engine import keeping
from dask_gpuselect.groups import groupby
from tests.features.test_groups_of_all import alone
from tests.sources import Source

pytestmark = [pytest.mark.filterwarnings("ignore:All-NaN"), pytest.mark.any_dask]

N, N_CHUNKS, N_GROUPS = 30_000, 60, 5
Q = [0.25, 0.5, 0.75]


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    """Each chunk is a part."""
    with dask.config.set({"dask_gpuselect.column-limit": "100 kB"}):
        yield


def data_and_labels() -> tuple[Source, Source, Any]:
    data, by = Source((N * N_CHUNKS,)), Source((N * N_CHUNKS,))
    return data, by, (by.lazy(N) * 99991 % N_GROUPS).astype(np.int32)


def two_loads() -> Any:
    return dask.config.set({"dask_gpuselect.cache-limit": 0})


ASKED: dict[str, Callable[[Any], Any]] = {
    "median": lambda grouped: grouped.median(),
    "quartiles": lambda grouped: grouped.quantile(Q),
    "iqr": lambda grouped: grouped.iqr(),
    "count": lambda grouped: grouped.count(),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("groups", [None, range(5), [3, 1, 99]])
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_nearly_one_load_of_mixed_data(name: str, groups: Any, scheduler: str) -> None:
    """Of the data and of the labels, of which all groups are known before or not."""
    ask = ASKED[name]
    data, by, labels = data_and_labels()
    with dask.config.set(scheduler=scheduler, num_workers=2):
        actual = ask(groupby(data.lazy(N), labels, groups=groups)).compute()
        assert data.loads == by.loads
        assert sum(data.loads.values()) <= 1.4 * N_CHUNKS
        assert max(data.loads.values()) <= 2
        with two_loads():
            expected = ask(groupby(data.lazy(N), labels, groups=groups)).compute()
    assert sum(data.loads.values()) >= 3 * N_CHUNKS
    np.testing.assert_array_equal(actual, expected)


def test_parts_of_several_chunks_of_uneven_sizes() -> None:
    n, chunk = 1_000_000, 3456
    data, labels = Source((n,)), (np.random.default_rng(7).random(n) * 3).astype(int)
    with dask.config.set({"dask_gpuselect.column-limit": "400 kB", "num_workers": 2}):
        result = groupby(data.lazy(chunk), da.from_array(labels, chunks=chunk)).median().compute()
    np.testing.assert_array_equal(result, alone(data.whole(), labels, np.median))
    assert sum(data.loads.values()) <= 1.5 * len(data.loads)


# --- Why all chunks are loaded twice, and where it is kept ---------------------------------------


def test_explain_says_what_is_kept_or_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _, labels = data_and_labels()
    x = data.lazy(N)

    def shown(labels: Any = labels, **how: Any) -> str:
        return str(groupby(x, labels, **how).explain())

    assert shown().startswith("groups: reads each chunk once or twice; ")
    assert shown().endswith("; caches at most 1.00 GiB per process")
    assert groupby(x, labels).explain().cached_bytes == 1 << 30
    assert "twice, because groups are many; " in shown(groups=range(65))
    assert "twice, because chunks share work; " in shown(labels.rechunk(N + 1))
    with two_loads():
        assert "twice, because cache-limit is 0; " in shown()
    with dask.config.set({"dask_gpuselect.root-limit": "100 kB"}):
        assert "twice, because groups are many; " in shown(groups=range(60))
    with dask.config.set({"dask_gpuselect.column-limit": "9 MB"}):
        assert "twice, because parts of several chunks are few; " in shown()
    monkeypatch.setattr(keeping, "MOST_PARTS", N_CHUNKS - 1)
    assert "twice, because parts are many; " in shown()


def test_it_may_wait_on_disk(written: list[int]) -> None:
    data, _, labels = data_and_labels()
    with dask.config.set({"dask_gpuselect.cache-limit": 1, "dask_gpuselect.cache-spill": True}):
        result = groupby(data.lazy(N), labels).median().compute(scheduler="sync")
    np.testing.assert_array_equal(result, alone(data.whole(), labels.compute(), np.median))
    assert sum(data.loads.values()) <= 1.25 * N_CHUNKS
    assert len(written) > N_CHUNKS
