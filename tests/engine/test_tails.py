"""Quantiles near the ends of lanes of columns that do not fit: exact, and in one load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import explain, nanquantile, quantile
from dask_gpuselect.engine import lane_plans
from dask_gpuselect.groups import groupby
from tests.data import normal, uniform
from tests.engine.test_lane_passes import N, limited, share
from tests.oracle import METHODS

pytestmark = pytest.mark.any_dask


def plan_of(x: da.Array, q: Any, axis: Any = 0) -> Any:
    plan = explain(x, q, axis=axis)
    assert (plan.name, plan.loads) == ("tails", 1)
    return plan


# --- Answers, in one load -------------------------------------------------------------------------

DAYS = np.where(np.arange(N) % 11 == 3, 9, np.arange(N) // 17 % 4)
KEEPS = uniform(N * 42).reshape(N, 6, 7) < np.array([0.9, 0.5, 0.02, 1.0, 0.7, 0.3])[:, None]
ASKED: Mapping[str, Callable[[Any], Any]] = {
    "keepdims": lambda x: quantile(x, 0.95, axis=0, keepdims=True),
    "masked": lambda x: quantile(x, [0.02, 0.96], axis=0, where=KEEPS, method="inverted_cdf"),
    "nodata": lambda x: nanquantile(x, 0.98, axis=0, where=KEEPS, nodata=7),
    "groups": lambda x: groupby(x, DAYS, axis=0, groups=[9, 2, 0, 7, 3]).nanquantile([0.03, 0.95]),
    **{m: lambda x, m=m: quantile(x, [0.01, 0.05, 0.95, 1.0], 0, method=m) for m in METHODS},
}


def elements(dtype: str) -> NDArray[Any]:
    """Elements of lanes: what is left out is told from NaN, and from the largest integer."""
    a = (normal(N * 42) * 100).reshape(N, 6, 7).astype(dtype)
    a[::9, 3] = np.inf if dtype == "f8" else np.iinfo(dtype).max
    if dtype == "f8":
        a[::11, 4] = np.nan
    return a


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_answers(dtype: str, shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a load for all with the same companions, by one task for a column or by several."""
    if shares:
        monkeypatch.setattr(lane_plans, "SHARE_BYTES", 1)
    a, loads = elements(dtype), Counter[Any]()

    def read(block: Any, block_id: tuple[int, ...]) -> Any:
        loads[block_id] += 1
        return block

    x = da.from_array(a, chunks=(25, 3, 7)).map_blocks(read, dtype=dtype, meta=a[:0, :0, :0])
    with limited(share(x, 0, "60%")):
        assert (plan_of(x, 0.95).shares > 1) == shares
        found = [ask(x) for ask in ASKED.values()]
        assert groupby(x, DAYS, axis=0).explain([0.03, 0.95]).name == "tails"
    found = dask.compute(*found, scheduler="threads" if shares else "sync", num_workers=3)
    for (name, ask), each in zip(ASKED.items(), found, strict=True):
        np.testing.assert_array_equal(each, ask(a), err_msg=name, strict=True)
    # Without companions, with a mask, with what it and nodata leave, and with labels.
    assert set(loads.values()) == {4}


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
    held = da.from_array(a, chunks=(20, 12))
    x = held.map_blocks(np.copy, dtype="f8")
    with limited(share(x, 0, "50%")):
        assert plan_of(x, 0.9)
        for q in (0.5, [0.2, 0.8], [0.1, 0.5]):
            assert explain(x, q, axis=0).name != "tails"
        assert explain(held, 0.9, axis=0).name != "tails"
        assert explain(x[a[:, 0] > 0.5], 0.9, axis=0).name == "tails"  # sizes are known
        assert explain(x[x[:, 0] > 0.5], 0.9, axis=0).name == "column"
        how: dict[str, Any] = {"weights": uniform(N), "method": "inverted_cdf"}
        assert "tails" not in quantile(x, 0.9, axis=0, **how).name
        labels = da.from_array(DAYS, chunks=20)
        assert groupby(x, labels, axis=0, groups=range(10)).explain(0.9).name != "tails"
    assert explain(x, 0.9, axis=0).name == "column"
