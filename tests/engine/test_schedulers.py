"""The same answer, bit for bit, under every scheduler. See `tests/faults` for what goes wrong."""

from __future__ import annotations

from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client

from dask_gpuselect import ChunksChangedError, median, quantile, sort
from tests.backends import Backend, kind_of
from tests.sources import Source, changing
from tests.spies import DEADLINE

Q = [0.0, 0.25, 0.5, 0.75, 1.0]
SHAPE, CHUNKS = (90, 80), (20, 30)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_kept")
def test_the_scheduler_of_processes(tmp_path: Path) -> None:
    """NumPy's chunks alone: a process that is forked has lost its parent's CUDA devices."""
    source = Source(SHAPE, log=tmp_path / "log")
    x = source.lazy(CHUNKS)
    with dask.config.set(scheduler="processes", num_workers=2):
        np.testing.assert_array_equal(quantile(x, Q).compute(), np.quantile(source.whole(), Q))
        assert set(source.loads.values()) == {2}
        assert len(source.loads) == 15
        ordered = sort(x[:, 3], chunks=35, spill=True).compute()
        np.testing.assert_array_equal(ordered, np.sort(source.whole()[:, 3]))
        furthest = (x - median(x)).max().compute()
        assert furthest == (source.whole() - np.median(source.whole())).max()


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["workers", "worker_here"], ids=["cluster", "threads"])
def test_distributed(
    backend: Backend, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with Client(request.getfixturevalue(kind), set_as_default=kind == "workers") as cluster:
        assert_a_cluster_is_right(cluster, backend, tmp_path)


def assert_a_cluster_is_right(cluster: Client, backend: Backend, tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "log")
    x = backend.mapped(source.lazy(CHUNKS))
    whole = source.whole()
    ours = backend.to_numpy(cluster.compute(quantile(x, Q)).result(timeout=DEADLINE))
    np.testing.assert_array_equal(ours, np.quantile(whole, Q))
    assert len(source.loads) == 15
    assert max(source.loads.values()) <= 2


def test_persisted_on_a_cluster(backend: Backend, cluster: Client, tmp_path: Path) -> None:
    """Futures are read where they are."""
    source = Source(SHAPE, log=tmp_path / "log")
    x = cluster.persist(backend.mapped(source.lazy(CHUNKS)))
    whole = source.whole()
    ours = cluster.compute(median(x)).result(timeout=DEADLINE)
    assert backend.to_numpy(ours) == np.median(whole)
    larger = x[x > 0.5] * 2
    ours = cluster.compute(quantile(larger, Q)).result(timeout=DEADLINE)
    theirs = np.quantile(whole[whole > 0.5] * 2, Q)
    np.testing.assert_array_equal(kind_of(larger).to_numpy(ours), theirs)
    assert set(source.loads.values()) == {1}


def test_a_changed_chunk_is_named_by_another_process(
    backend: Backend, cluster: Client, tmp_path: Path
) -> None:
    x = backend.mapped(changing(lambda values, load: values / load, directory=tmp_path))
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\) had .* `.persist\(\)` the array"):
        cluster.compute(median(x)).result(timeout=DEADLINE)
