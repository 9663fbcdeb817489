"""On clusters of processes, one for each GPU where there are any: what crosses the wire, whether
chunks stay where they are, and workers that spill."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

from dask_gpuselect import quantile
from dask_gpuselect.engine import graphs, pilot
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.sizes import PILOT_SIZE, pilot_bracket, pivot_count
from tests.backends import CUPY, NUMPY, Backend, device_problem
from tests.graphs import names_of
from tests.processes import python
from tests.spies import wait_until

Q = [0.25, 0.5, 0.75]
N_CHUNKS, CHUNK = 16, pilot.PILOT_WORTH  # of float64: 128 MiB
LIMIT = 32 << 20  # bytes that a worker which spills may keep

PLANS = ("two loads", "pilot")


def n_devices() -> int:
    if device_problem():
        return 0
    return int(CUPY.xp.cuda.runtime.getDeviceCount())


class Place(NamedTuple):
    """What a cluster is made of."""

    backend: Backend
    n_workers: int

    def __str__(self) -> str:
        return f"{self.backend.name}-{self.n_workers}"


ON_GPUS = [pytest.mark.gpu, pytest.mark.device]  # by dask-cuda


def places(*n_gpus: int) -> list[Any]:
    """Two processes on the CPU, and each of these numbers of GPUs, as far as there are so many."""
    gpus = [Place(CUPY, n) for n in n_gpus if n <= n_devices()]
    return [
        pytest.param(Place(NUMPY, 2), id="numpy-2"),
        *(pytest.param(place, id=str(place), marks=ON_GPUS) for place in gpus),
    ]


@contextmanager
def started(place: Place, **options: Any) -> Iterator[Client]:
    """A worker for each GPU, or in processes of one thread each, that move no chunk to save time.

    The scheduler moves a chunk if its worker has more to do than the move is thought to take, and
    takes half a second for tasks that it has never seen. Chunks as small as these would move.
    """
    config = {
        "distributed.scheduler.bandwidth": 1_000_000,
        "distributed.scheduler.unknown-task-duration": "1ms",
        "distributed.scheduler.work-stealing": False,
    }
    with warnings.catch_warnings(), dask.config.set(config):
        if place.backend is CUPY:
            warnings.filterwarnings("ignore", "Cannot get CPU affinity")  # in a virtual machine
            from dask_cuda import LocalCUDACluster as Cluster

        else:
            Cluster = LocalCluster
            options["threads_per_worker"] = 1
        cluster = Cluster(n_workers=place.n_workers, dashboard_address=":0", **options)
    with cluster, Client(cluster) as client:
        yield client


class Data(NamedTuple):
    """A lazy array and its quartiles, by NumPy."""

    x: da.Array
    expected: Any


@pytest.fixture(scope="module")
def normal() -> Data:
    x = da.random.default_rng(2011).standard_normal(N_CHUNKS * CHUNK, chunks=CHUNK)
    return Data(x, np.quantile(x.compute(scheduler="threads"), Q))


@pytest.fixture(scope="module", params=places(1, 2, 4))
def place(request: pytest.FixtureRequest) -> Place:
    return request.param


@pytest.fixture(scope="module")
def client(place: Place) -> Iterator[Client]:
    with started(place) as client:
        yield client


@pytest.fixture(scope="module")
def resident(client: Client, place: Place, normal: Data) -> da.Array:
    """The data in the workers' memory."""
    x = place.backend.mapped(normal.x)
    workers = sorted(client.scheduler_info()["workers"])
    keys = [("resident", i) for i in range(N_CHUNKS)]
    chunks = {
        key: client.submit(
            load, block, key=key, workers=[workers[i % place.n_workers]], allow_other_workers=False
        )
        for i, (key, block) in enumerate(zip(keys, x.blocks, strict=True))
    }
    wait(list(chunks.values()))
    for i, key in enumerate(keys):
        assert client.who_has()[key] == (workers[i % place.n_workers],)
    return DaskArray(chunks, "resident", x.chunks, meta=x._meta)


def load(block: da.Array) -> Any:
    return block.compute(scheduler="sync")


# --- What is sent -------------------------------------------------------------------------------


class Sent(NamedTuple):
    """What workers have sent, to one another or to the client."""

    wire: int
    """Bytes, as they were written to the connections."""
    objects: Mapping[Any, int]
    """By key, the bytes that each object has in memory."""


def forget(client: Client) -> None:
    """Begin a new account of what is sent."""

    def clear(dask_worker: Any) -> None:
        dask_worker.transfer_outgoing_log.clear()

    client.run(clear)


def sent(client: Client) -> Sent:
    """What was sent since `forget`."""

    def read(dask_worker: Any) -> list[dict[str, Any]]:
        return list(dask_worker.transfer_outgoing_log)

    entries = [entry for log in client.run(read).values() for entry in log]
    objects = {key: size for entry in entries for key, size in entry["keys"].items()}
    # Distributed's word for all that was written, compressed or not.
    return Sent(sum(entry["compressed"] for entry in entries), objects)


def most_sent(x: da.Array, plan: str) -> float:
    """Bytes that may cross the wire.

    From each chunk: once a level of the tree, its cuts (24 bytes a pivot), and its candidates; once
    more its cuts, if its second load is elsewhere. Or a sample and what that leaves to gather.
    Twice that, for pivots and samples fall unevenly.
    """
    n_chunks, item = x.npartitions, x.dtype.itemsize
    levels = math.ceil(math.log(n_chunks, graphs.MERGE_EVERY))
    if plan == "pilot":
        middle = np.array([math.floor(q * (PILOT_SIZE - 1)) for q in Q])
        lo, hi = pilot_bracket(middle, middle + 1, PILOT_SIZE)
        candidates = int((hi - lo).sum()) / PILOT_SIZE * x.size
        all_sent = levels * (PILOT_SIZE + candidates) * item
        n_objects = 4 * n_chunks  # the sample, the counts, and the word that no more is needed
    else:
        n_pivots = pivot_count(x.chunksize[0])
        cuts = n_pivots * (item + 16)
        candidates = len(Q) * 1.09 * x.chunksize[0] / n_pivots * item
        all_sent = n_chunks * ((levels + 1) * cuts + levels * candidates)
        n_objects = 3 * n_chunks
    framing = 4096  # bytes around an object
    return 2 * all_sent + n_objects * framing


def ask(x: da.Array, plan: str, monkeypatch: pytest.MonkeyPatch) -> da.Array:
    """The quartiles by this plan."""
    if plan != "pilot":
        monkeypatch.setattr(pilot, "PILOT_WORTH", math.inf)
    answer = quantile(x, Q)
    assert (plan == "pilot") == any("-guess-" in name for name in names_of(answer))
    return answer


@pytest.mark.slow
def test_a_lazy_source_stays_where_it_is_loaded(
    client: Client, place: Place, normal: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only cuts and candidates cross the wire."""
    x = place.backend.mapped(normal.x)
    forget(client)
    ours = client.compute(ask(x, "two loads", monkeypatch)).result()
    np.testing.assert_array_equal(place.backend.to_numpy(ours), normal.expected)
    transfers = sent(client)
    assert transfers.wire <= most_sent(x, "two loads") < x.nbytes / 16
    assert max(transfers.objects.values()) < x.nbytes / x.npartitions / 16
    assert place.n_workers == 1 or len(transfers.objects) > 1  # or nothing was noted


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_chunks_in_memory_are_used_in_place(
    client: Client,
    place: Place,
    resident: da.Array,
    normal: Data,
    plan: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is read where it is, by the worker that has it, and stays on that worker alone."""
    before = client.who_has(resident)
    assert {len(workers) for workers in before.values()} == {1}
    forget(client)
    ours = client.compute(ask(resident, plan, monkeypatch)).result()
    np.testing.assert_array_equal(place.backend.to_numpy(ours), normal.expected)
    transfers = sent(client)
    assert not transfers.objects.keys() & set(resident.__dask_keys__())
    assert transfers.wire <= most_sent(resident, plan) < resident.nbytes / 4
    assert client.who_has(resident) == before
    assert place.n_workers == 1 or len(transfers.objects) > 1  # or nothing was noted

    del ours
    # Nothing else is kept.
    wait_until(lambda: sum(map(len, client.has_what().values())) <= resident.npartitions)


@pytest.mark.slow
def test_gathering_chunks_would_be_noticed(
    client: Client, place: Place, resident: da.Array
) -> None:
    """Dask's own median over all axes exceeds what the tests above allow, on several workers."""
    forget(client)
    client.compute(da.median(resident.rechunk(-1), axis=0)).result()
    transfers = sent(client)
    is_noticed = transfers.wire > max(most_sent(resident, plan) for plan in PLANS)
    assert is_noticed == (place.n_workers > 1)
    assert is_noticed == (max(transfers.objects.values()) >= resident.nbytes / resident.npartitions)


# --- Workers that spill -------------------------------------------------------------------------


def spilling() -> list[Any]:
    """Places, and the options of clusters whose workers keep at most `LIMIT` of the data."""
    places = [pytest.param(Place(NUMPY, 2), {"memory_limit": LIMIT}, id="numpy-2")]
    for n in (1, 2):
        place = Place(CUPY, n)
        kinds: dict[str, dict[str, Any]] = {"plain": {}}
        if importlib.util.find_spec("rmm"):
            kinds["rmm"] = {"rmm_pool_size": "1GiB"}
        for name, options in kinds.items():
            if n <= n_devices():
                every = {"device_memory_limit": LIMIT, **options}
                param = pytest.param(place, every, id=f"{place}-{name}", marks=ON_GPUS)
                places.append(param)
    return places


@pytest.mark.slow
@pytest.mark.parametrize(("place", "options"), spilling())
def test_workers_that_spill(
    place: Place, options: dict[str, Any], normal: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data is larger than what the workers may keep, by either plan."""
    # The size of the data decides, and not that of the process, which is larger from the start.
    config = {
        f"distributed.worker.memory.{name}": False for name in ("spill", "pause", "terminate")
    }
    config["distributed.worker.memory.target"] = 1.0
    with dask.config.set(config), started(place, **options) as client:
        x = client.persist(place.backend.mapped(normal.x))
        wait(x)
        for plan in PLANS:
            with monkeypatch.context() as patch:
                ours = client.compute(ask(x, plan, patch)).result()
            np.testing.assert_array_equal(place.backend.to_numpy(ours), normal.expected)
            resident = place.n_workers * LIMIT
            least = (x.nbytes - resident) // (x.nbytes // x.npartitions)
            assert sum(client.run(count_spilled).values()) >= least > 0


def count_spilled(dask_worker: Any) -> int:
    """How many objects a worker has set aside."""
    data = dask_worker.data
    if hasattr(data, "device_keys"):  # of dask-cuda
        return sum(key not in data.device for key in data.device_keys)
    return len(data.disk)


# --- The example --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "environment"),
    [
        pytest.param("LocalCluster: numpy chunks", {"CUDA_VISIBLE_DEVICES": ""}, id="numpy"),
        pytest.param("LocalCUDACluster: cupy chunks", {}, id="cupy", marks=ON_GPUS),
    ],
)
def test_the_example(kind: str, environment: dict[str, str]) -> None:
    printed = python("examples/gpu_cluster.py", "2e5", **environment)
    assert printed.startswith(kind)
    lines = printed.splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [f"quantile {q}" for q in (0.25, 0.5, 0.75)]
    assert all(", exact: " in line for line in lines), printed
