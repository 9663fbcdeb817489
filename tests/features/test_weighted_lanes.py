"""Weighted quantiles of every lane along some axes, whatever the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.companions import accompanied
from dask_gpuselect.engine.lanes import ask_lanes
from dask_gpuselect.engine.plans import LanePlan, plan_lanes
from dask_gpuselect.quantiles.weighted_lanes import WeightedLaneQuantiles
from tests.backends import Backend
from tests.oracle import weighted_lanes

Q = (0.1, 0.5, 0.9)
SHAPE = (2000, 2, 4)
METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")

rng = np.random.default_rng(3)


def asked(
    a: Any,
    weights: Any,
    method: str = "inverted_cdf",
    *,
    keeps: Any = None,
    limit: float | None = None,
) -> tuple[LanePlan, Any]:
    """The plan for some quantiles of lanes along the first axis, and the lazy answer."""
    x = accompanied(a, keeps, weights)
    source = np.dtype(x.dtype).newbyteorder("=")
    dtype = source if method == "inverted_cdf" or source.kind == "f" else np.dtype("f8")
    question = WeightedLaneQuantiles(Q, method, False, x.dtype, dtype, if_none="missing")
    shape = AnswerAxes(x.ndim, (0,), False, False)
    with dask.config.set({"dask_gpuselect.column-limit": int(limit or 1 << 30)}):
        return plan_lanes(x, (0,), question), ask_lanes(x, question, "weighted", shape, dtype)


def drawn(dtype: str = "f8") -> NDArray[Any]:
    return (rng.normal(size=SHAPE) * 100).astype(dtype)


def weights_of() -> NDArray[np.float64]:
    return np.where(rng.random(SHAPE) < 0.1, 0.0, rng.lognormal(0, 1, SHAPE))


COLUMN = SHAPE[0] * 2 * 2 * 16  # bytes, of chunks (_, 2, 2)
PLANS: dict[str, tuple[Any, float | None]] = {
    "lanes": ((-1, 2, 1), None),
    "column": ((200, 2, 2), None),
    "column of slabs": ((200, 2, 2), COLUMN * 0.7),
    "passes": ((200, 2, 2), COLUMN * 0.4),
    "slabs in passes": ((200, 2, 2), COLUMN * 0.2),
}


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("plan", PLANS)
def test_every_plan(backend: Backend, plan: str, method: str) -> None:
    a, weights = drawn(), weights_of()
    chunks, limit = PLANS[plan]
    x = backend.lazy(a, chunks)
    how, lazy = asked(x, backend.lazy(weights, chunks), method=method, limit=limit)
    assert how.name == plan.split()[-1].replace("slabs", "column")
    assert (how.slabs > 1) == ("slabs" in plan)
    assert lazy.chunks[1:] == x.chunks[1:]
    found = lazy.compute(scheduler="sync")
    assert isinstance(found, backend.array_type)
    assert (found.dtype, found.shape) == (lazy.dtype, lazy.shape)
    wanted = weighted_lanes(a, weights, (0,), Q, method)
    np.testing.assert_array_equal(backend.to_numpy(found), wanted)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [None, COLUMN * 0.4])
def test_broadcast_weights(limit: float | None, method: str) -> None:
    """Those of an axis, of any dtype, or of a plane."""
    a = drawn("f4")
    x = da.from_array(a, chunks=(200, 2, 2)).map_blocks(np.copy)
    for weights in (
        np.cos(np.linspace(-1.5, 1.5, 2000))[:, None, None],
        rng.integers(0, 5, (2000, 1, 1)).astype("u1"),
        rng.random((2000, 1, 1)).astype("f4"),
        rng.random((2000, 1, 1)) < 0.5,
        rng.random((2, 1)),
        rng.random(4).astype(">f8"),
        rng.integers(2**53, 2**62, (2000, 1, 4)),
    ):
        _, lazy = asked(x, weights, method=method, limit=limit)
        _, whole = asked(da.from_array(a), np.broadcast_to(weights, a.shape).copy(), method=method)
        np.testing.assert_array_equal(lazy.compute(scheduler="sync"), whole.compute())


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, COLUMN * 0.4])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"Weights must be non-negative\."),
        (np.nan, r"Weights included NaN, inf or were all zero\."),
        (np.inf, r"Weights included NaN, inf or were all zero\."),
        (0.0, r"Weights included NaN, inf or were all zero\."),
    ],
)
def test_wrong_weights(weight: float, message: str, limit: float | None) -> None:
    weights = np.ones(SHAPE)
    weights[:, 1, 2] = weight
    x = da.from_array(drawn(), chunks=(200, 2, 2)).map_blocks(np.copy)
    _, lazy = asked(x, weights, limit=limit)
    with pytest.raises(ValueError, match=message):
        lazy.compute(scheduler="sync")


def test_weights_that_are_too_large() -> None:
    _, lazy = asked(da.from_array(drawn(), chunks=500), np.full(1, 2**63, np.uint64))
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        lazy.compute()


@pytest.mark.parametrize("changes", ["data", "weights"])
def test_changed_chunks_are_named(tmp_path: Path, changes: str) -> None:
    def read(block: NDArray[Any], block_id: tuple[int, ...]) -> NDArray[Any]:
        if block_id != (3, 0, 1):
            return block
        mark = tmp_path / "read"
        if mark.exists():
            return block + 1e-3
        mark.touch()
        return block

    a, weights = (da.from_array(each, chunks=(200, 2, 2)) for each in (drawn(), weights_of()))
    if changes == "data":
        a = a.map_blocks(read, dtype="f8", meta=np.empty((0, 0, 0)))
    else:
        weights = weights.map_blocks(read, dtype="f8", meta=np.empty((0, 0, 0)))
    plan, lazy = asked(a, weights, limit=COLUMN * 0.4)
    assert plan.name == "passes"
    with pytest.raises(ChunksChangedError, match=r"chunk \(3, 0, 1\) held other elements"):
        lazy.compute(scheduler="sync")
