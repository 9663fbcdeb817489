"""Weighted quantiles of every lane along some axes, whatever the plan."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.companions import accompanied
from dask_gpuselect.engine.lanes import ask_lanes
from dask_gpuselect.engine.plans import LanePlan, plan_lanes
from dask_gpuselect.quantiles.weighted_lanes import WeightedLaneQuantiles

Q = (0.1, 0.5, 0.9)
SHAPE = (2000, 2, 4)

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


COLUMN = SHAPE[0] * 2 * 2 * 16  # bytes, of chunks (_, 2, 2)


# --- Answers --------------------------------------------------------------------------------------


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
