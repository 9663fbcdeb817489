"""Many groups of all elements: as rows of tables, and as each is by itself."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect.engine.group_batches import MOST, SPARE, stretches
from dask_gpuselect.groups import groupby
from dask_gpuselect.quantiles.questions import Quantiles
from tests.data import normal, uniform

pytestmark = pytest.mark.any_dask

N = 30_000
PLANS: dict[str, tuple[int, dict[str, str]]] = {
    "one load": (300, {}),
    "parts": (30, {"dask_gpuselect.column-limit": "200 kB"}),
}


def test_calls_do_not_grow_with_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    answer = Quantiles.lane_answer

    def counted(self: Quantiles, found: Any) -> Any:
        calls.append(len(found.n_valid))
        return answer(self, found)

    monkeypatch.setattr(Quantiles, "lane_answer", counted)
    x = da.from_array(normal(N), chunks=4211)
    groupby(x, np.arange(N) % 2000, groups=np.arange(2000)).describe_boxplot().compute(
        scheduler="sync"
    )
    assert sum(calls) == 2000
    assert len(calls) < 10


def test_tables_are_filled_well() -> None:
    """Every group is in one stretch, in order, and padding is bounded."""
    sizes = np.floor(1 / (uniform(3000) + 1e-6)).astype(np.int64)
    sizes[1234] = 3 * MOST
    found = list(stretches(sizes))
    assert [first for first, _ in found] == [0, *(last for _, last in found[:-1])]
    assert found[-1][1] == len(sizes)
    for first, last in found:
        n = sizes[first:last]
        room, filled = int(n.max()) * len(n), int(n.sum())
        assert len(n) == 1 or room <= MOST
        assert len(n) == 1 or room - filled <= max(SPARE, filled // 4)
    assert list(stretches(sizes[:0])) == [(0, 0)]
