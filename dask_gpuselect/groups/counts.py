"""The question of how many elements of every lane take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect.arrays import as_type, like, namespace, to_host
from dask_gpuselect.engine.questions import LaneLoad, LaneLoads, LaneQuestion, counting, of_merged
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, values_of
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.sizes import PartialBytes


@dataclass(frozen=True)
class LaneCounts(LaneQuestion):
    """Number of elements of every lane that take part and are not NaN or NaT, as a question."""

    @property
    def order(self) -> Any:
        return self

    n_answers = 1

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        """Return no ranks: lanes have the number of their elements without order statistics."""
        none = np.empty((0, len(n)), np.int64)
        return none, none

    def answer(self, column: ChunkColumn) -> Any:
        return like(_counted(column)[None], values_of(column.chunks[0]))

    def answer_groups(self, *about: Any) -> None:
        """Return None: each group is counted by itself."""

    @property
    def loads(self) -> LaneLoads:
        return LaneLoads(
            narrow=LaneLoad(_counted, _sum, _sum),
            last=LaneLoad(_counted, _sum, of_merged(_sum, _without_elements)),
            n_brackets=1,
            partial_bytes=lambda dtype: PartialBytes(8),
            counts=counting(self._counted),
        )

    def finished(self, lanes: Lanes) -> Any:
        return lanes.n_valid[None]


def _counted(column: ChunkColumn, known: Any = None, m: int = 0) -> IntArray:
    """Count the elements of each lane in all chunks together; on the host, ``(n_lanes,)``."""
    counts = []
    for chunk in column.chunks:
        values: Any = values_of(chunk)
        takes = values == values  # and not NaN or NaT
        if isinstance(chunk, Accompanied) and chunk.keeps is not None:
            takes = takes & chunk.keeps
        n = namespace(values).sum(as_type(takes, "int64"), axis=column.axes)
        counts.append(to_host(n).reshape(-1))
    return np.asarray(sum(counts[1:], counts[0]), np.int64)


def _sum(partials: Sequence[IntArray], known: Any = None, m: int = 0) -> IntArray:
    """Add up the counts of several parts."""
    return np.asarray(np.sum(partials, axis=0))


def _without_elements(counts: IntArray, known: Any) -> Lanes:
    """Return counts as the result of lanes, without order statistics."""
    none = np.empty((len(counts), 0))
    return Lanes(none, none, counts, np.zeros_like(counts))
