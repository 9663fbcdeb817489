"""Quantiles along axes of columns that do not fit: exact, in the loads that are told before."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, explain, median, nanquantile, quantile
from dask_gpuselect.engine import lanes, marks
from dask_gpuselect.kernels import fingerprints
from tests.backends import CUPY
from tests.data import FLOATS
from tests.limits import limited
from tests.sources import Source
from tests.spies import noted

N = 600


def share(x: da.Array, axis: int, percent: str) -> int:
    """That share of the largest column, in bytes."""
    sizes = (size if i == axis else max(x.chunks[i]) for i, size in enumerate(x.shape))
    return int(np.prod(list(sizes))) * x.dtype.itemsize * int(percent.rstrip("%")) // 100


# --- Plans ----------------------------------------------------------------------------------------


def test_two_loads_are_enough_for_most() -> None:
    """Of a column ten times the limit, if a lane has some thousands of elements in it; and three,
    if some hundreds."""
    x = da.zeros((20_000, 250, 250), chunks=(500, 250, 250), dtype="f4")
    with limited("500 MB"):
        assert explain(x, axis=0).loads == 2
        assert explain(x, [0.25, 0.5, 0.75], axis=0).loads == 2
    with limited("50 MB"):
        assert explain(x, axis=0).loads == 6  # a chunk is 125 MB
    x = da.zeros((2920, 2048, 1024), chunks=(73, 1024, 1024), dtype="f4")
    with limited("1 GiB"):
        assert explain(x, axis=0).loads == 3


def made_on_a_device(a: NDArray[Any], n_chunks: int = 5) -> da.Array:
    """Chunks along the first axis that tasks make."""
    parts = [CUPY.asarray(part) for part in np.array_split(a, n_chunks)]
    resident = [da.from_array(part, chunks=-1, asarray=False) for part in parts]
    meta = parts[0][:0, :0]
    return da.concatenate(resident).map_blocks(lambda chunk: chunk, dtype=a.dtype, meta=meta)


@pytest.mark.gpu
@pytest.mark.emulated
def test_a_device_is_waited_for_four_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the fingerprints of each load, the numbers of elements, and the answers: by no task that
    looks at a chunk, and the answers stay where they are."""
    import cupy

    waits: list[str] = []
    a = FLOATS["normal"](3650 * 6).astype("f4").reshape(3650, 6)
    x = made_on_a_device(a)
    with limited(a.nbytes // 3):
        assert explain(x, axis=0).name == "passes"
        lazy = median(x, axis=0)
    for name in ("get", "item", "tolist", "__int__", "__bool__"):
        noted(monkeypatch, cupy.ndarray, name, lambda *_, name=name, **__: name, waits)
    result = lazy.compute(scheduler="sync")
    assert len(waits) == 4
    monkeypatch.undo()
    np.testing.assert_array_equal(CUPY.to_numpy(result), np.median(a, axis=0))


@pytest.mark.gpu
def test_a_stream_of_a_thread_is_waited_for() -> None:
    """What another stream has begun, a task of another thread would not wait for."""
    import cupy

    chunk = CUPY.asarray(FLOATS["normal"](1_001))
    begun = fingerprints.begun_fingerprint(chunk)
    assert not isinstance(begun, int)
    with cupy.cuda.Stream(non_blocking=True):
        assert [fingerprints.begun_fingerprint(chunk)] == fingerprints.ended_fingerprints([begun])


@pytest.mark.any_dask
@pytest.mark.gpu
def test_columns_in_the_memory_of_a_device_take_one_load() -> None:
    """However large: their kernels need no memory of their own. Not where they copy chunks."""
    a = FLOATS["normal"](N * 60).astype("f4").reshape(N, 12, 5)
    parts = np.array_split(a, 5)
    resident = [da.from_array(CUPY.asarray(part), chunks=-1, asarray=False) for part in parts]
    x = da.concatenate(resident)
    with limited(share(x, 0, "17%")):
        assert str(explain(x, axis=0)).startswith("column: reads each chunk once")
        medians = median(x, axis=0).compute(scheduler="sync")
        boxes = describe_boxplot(x, axis=0).compute(scheduler="sync")
        assert explain(x.map_blocks(abs), axis=0).loads > 1
        assert explain(x, axis=(0, 2)).loads > 1
        assert explain(x.astype("i8").persist(scheduler="sync"), axis=0).loads > 1
        masked = nanquantile(x, 0.5, axis=0, where=x > 0).compute(scheduler="sync")
    np.testing.assert_array_equal(CUPY.to_numpy(medians), np.median(a, axis=0))
    np.testing.assert_array_equal(boxes.to_dict()["med"], np.median(a.astype("f8"), axis=0))
    wanted = np.nanquantile(np.where(a > 0, a, np.nan), 0.5, axis=0)
    np.testing.assert_array_equal(CUPY.to_numpy(masked), wanted)


def test_slabs_of_what_is_in_memory_are_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are fingerprints taken of what cannot change."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("looked at")

    monkeypatch.setattr(marks, "begun_fingerprint", refused)
    monkeypatch.setattr(fingerprints, "begun_fingerprint", refused)
    monkeypatch.setattr(lanes, "copied", refused)
    a = FLOATS["normal"](N * 10_000).astype("f4").reshape(N, 10_000)
    x = da.from_array(a, chunks=(100, 10_000))
    with limited(share(x, 0, "40%")):
        result = median(x, axis=0).compute(scheduler="sync")
        with pytest.raises(AssertionError, match="looked at"):
            median(x.map_blocks(np.copy), axis=0).compute(scheduler="sync")
    np.testing.assert_array_equal(result, np.median(a, axis=0))


def test_plans_are_explained() -> None:
    x = da.zeros((1000, 10, 10), chunks=(100, 5, 5))
    assert str(explain(x, axis=0)) == (
        "column: reads each chunk once; 195.31 kiB of chunks per task; no partial results"
    )
    whole_lanes = explain(x.rechunk((1000, 5, 5)), axis=0)
    assert (whole_lanes.name, whole_lanes.loads, whole_lanes.task_bytes) == ("lanes", 1, 200_000)
    assert explain(x, axis=0) == explain(x, 0.1, axis=[0])
    with limited("100 kB"):
        assert str(explain(x, axis=0)) == (
            "passes: reads each chunk twice; 97.66 kiB of chunks per task; "
            "44.53 kiB of partial results in one task; to read each chunk once, "
            "set column-limit to 195.31 kiB, or rechunk({0: -1, 1: 'auto', 2: 'auto'})"
        )
    whole = explain(x, [0.1, 0.2])
    assert (whole.name, whole.loads, whole.task_bytes) == ("bracket", 2, 20_000)
    assert 24 * 50 * 40 <= whole.gathered_bytes <= 24 * 50 * 60
    resident = explain(da.zeros(10**7, chunks=5 * 10**6).persist())
    assert (resident.name, resident.loads) == ("guess", 1)
    assert explain(da.zeros(3, dtype="M8[s]")).loads == 2
    with pytest.raises(np.exceptions.AxisError):
        explain(da.ones(3), axis=1)


def test_unknown_sizes_are_explained() -> None:
    x = da.zeros((1000, 10, 10), chunks=(100, 5, 5))
    some = x[:, da.ones(10, chunks=5) > 0]
    plan = explain(some, axis=0)
    assert (plan.name, plan.loads, plan.task_bytes) == ("column", 1, -1)
    assert "an unknown number of bytes" in str(plan)
    plan = explain(some)
    assert (plan.name, plan.loads, plan.task_bytes, plan.gathered_bytes) == ("bracket", 2, -1, -1)


def test_first_loads_are_shared() -> None:
    """Several questions about one array, computed together: the first of each passes, every load of
    slabs."""
    for limit, name, loads in ((5000, "column", 2), (4000, "passes", 4)):
        source = Source((N, 4))
        x = source.lazy((20, 2))
        with limited(limit):
            lazy = [
                median(x, axis=0),
                quantile(x, [0.4, 0.45], axis=0),
                nanquantile(x, 0.6, axis=0),
            ]
            plans = [explain(x, q, axis=0) for q in (0.5, [0.4, 0.45])]
        assert [(plan.name, plan.loads) for plan in plans] == [(name, 2)] * 2
        dask.compute(*lazy)
        assert set(source.loads.values()) == {loads}
