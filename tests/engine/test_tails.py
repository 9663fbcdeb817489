"""Quantiles near the ends of lanes of columns that do not fit: exact, and in one load."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import explain, quantile
from dask_gpuselect.groups import groupby
from tests.data import uniform
from tests.engine.test_lane_passes import N, limited, share

pytestmark = pytest.mark.any_dask


def plan_of(x: da.Array, q: Any, axis: Any = 0) -> Any:
    plan = explain(x, q, axis=axis)
    assert (plan.name, plan.loads) == ("tails", 1)
    return plan


DAYS = np.where(np.arange(N) % 11 == 3, 9, np.arange(N) // 17 % 4)


# --- Plans ----------------------------------------------------------------------------------------


def test_it_is_explained() -> None:
    x = da.zeros((1000, 10, 10), chunks=(100, 5, 5)).map_blocks(np.copy)
    with limited("100 kB"):
        assert str(explain(x, 0.9, axis=0)) == (
            "tails: reads each chunk once; 97.66 kiB of chunks per task; "
            "40.62 kiB of partial results in one task"
        )


def test_where_it_is_not_taken() -> None:
    """Ranks in the middle, columns that fit, data in memory, unknown sizes, weights."""
    a = uniform(N * 12).reshape(N, 12)
    resident = da.from_array(a, chunks=(20, 12))
    x = resident.map_blocks(np.copy, dtype="f8")
    with limited(share(x, 0, "50%")):
        assert plan_of(x, 0.9)
        for q in (0.5, [0.2, 0.8], [0.1, 0.5]):
            assert explain(x, q, axis=0).name != "tails"
        assert explain(resident, 0.9, axis=0).name != "tails"
        assert explain(x[a[:, 0] > 0.5], 0.9, axis=0).name == "tails"  # sizes are known
        assert explain(x[x[:, 0] > 0.5], 0.9, axis=0).name == "column"
        how: dict[str, Any] = {"weights": uniform(N), "method": "inverted_cdf"}
        assert "tails" not in quantile(x, 0.9, axis=0, **how).name
        labels = da.from_array(DAYS, chunks=20)
        assert groupby(x, labels, axis=0, groups=range(10)).explain(0.9).name != "tails"
    assert explain(x, 0.9, axis=0).name == "column"
