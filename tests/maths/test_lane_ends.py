"""The most extreme elements of many lanes: against a sort of each."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.maths import lane_ends
from dask_gpuselect.maths.lane_ends import Outermost
from tests.data import INTEGERS, make, names_of

PADDED = lane_ends.PADDED


@pytest.mark.parametrize("padded", [0, PADDED, 1000])
@pytest.mark.parametrize("is_high", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u2"])
def test_those_of_several_parts(
    dtype: str, is_high: bool, padded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table, or by two keys: of lanes with none, few and many elements, and infinite ones."""
    monkeypatch.setattr(lane_ends, "PADDED", padded)
    names = [*INTEGERS] if dtype[0] in "iu" else [n for n in names_of(dtype) if "nan" not in n]
    for name in set(names) - {"one valid"}:
        parts, lanes = [], [[] for _ in range(5)]  # type: ignore[var-annotated]
        for i, found in enumerate(([3, 0, 40, 1, 0], [0, 0, 7, 90, 5], [2, 0, 0, 1, 0])):
            elements = np.roll(make(name, dtype, sum(found)), i)
            for lane, some in zip(lanes, np.split(elements, np.cumsum(found)[:-1]), strict=True):
                lane.append(some)
            counts = np.array(found, np.int64)
            parts.append(Outermost.of(counts, counts, elements, 50, is_high=is_high))
        merged = Outermost.merge(parts, 20, is_high=is_high)
        ordered = [np.sort(np.concatenate(lane)) for lane in lanes]
        expected = [(lane[::-1] if is_high else lane)[:20] for lane in ordered]
        np.testing.assert_array_equal(merged.n, list(map(len, ordered)))
        np.testing.assert_array_equal(merged.kept, list(map(len, expected)))
        np.testing.assert_array_equal(merged.elements, np.concatenate(expected))
