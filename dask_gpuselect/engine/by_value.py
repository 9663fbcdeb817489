"""What one load reports of data that have so few values that all can be counted, or weighed.

A question says which of the two answers it; plans, graphs and groups look at nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect.kernels import values
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_value_counts import LaneValueCounts
from dask_gpuselect.maths.value_counts import ValueCounts, is_countable, most_values
from dask_gpuselect.maths.value_weights import ValueWeights


@dataclass(frozen=True)
class ByValue:
    """What is known of every value.

    Parameters
    ----------
    name : str
        Of the layers that find it.
    why : str
        Why one load is enough.
    of_chunk : callable
        ``(chunk, dtype)``: the report of all elements of a chunk.
    merge : callable
        ``(reports)``: that of several together.
    of_lanes : callable
        ``(chunks, dtype, axes)``: the report of every lane of some chunks.
    of_groups : callable
        ``(chunks, dtype, codes_of, n_groups)``: that of every group.
    merge_lanes : callable
        ``(reports)``: that of several together, of lanes or of groups.
    usual_bytes, most_bytes : int
        Of a report for each value, beside the value: as a rule, and at most.
    on_devices : bool
        Whether CuPy chunks are taken too.
    """

    name: str
    why: str
    of_chunk: Callable[..., Any]
    merge: Callable[..., Any]
    of_lanes: Callable[..., Any]
    of_groups: Callable[..., Any]
    merge_lanes: Callable[..., Any]
    usual_bytes: int
    most_bytes: int
    on_devices: bool

    def takes(self, dtype: np.dtype[Any], *, is_on_device: bool) -> bool:
        """Whether elements of a dtype have few values, and chunks are of a kind that is taken."""
        return is_countable(dtype) and (self.on_devices or not is_on_device)

    def report_bytes(self, dtype: np.dtype[Any], n: float = math.inf) -> int:
        """What a report takes of a lane of n elements, as a rule."""
        n = most_values(dtype) if math.isnan(n) else min(n, most_values(dtype))
        return int(n) * (selection_dtype(dtype).itemsize + self.usual_bytes)

    def most_report_bytes(self, dtype: np.dtype[Any]) -> int:
        """What the report of a lane takes at most."""
        return most_values(dtype) * (selection_dtype(dtype).itemsize + self.most_bytes)


COUNT_BYTES = 8

# A sum of weights that differ by less than 2**60 has up to 10 digits of two bytes; while it is
# added up, 40 bytes. One of any float64 has 136 digits.
SUM_BYTES = 40
MOST_SUM_BYTES = COUNT_BYTES + 2 * 136

COUNTS = ByValue(
    "value-counts",
    "values are few, and all are counted",
    values.value_counts,
    ValueCounts.merge,
    values.lane_value_counts,
    values.group_value_counts,
    LaneValueCounts.merge,
    COUNT_BYTES,
    COUNT_BYTES,
    on_devices=True,
)


def _weights_of_chunk(chunk: Any, dtype: np.dtype[Any], *, with_squares: bool) -> ValueWeights:
    axes = tuple(range(chunk.ndim))
    return values.lane_value_weights([chunk], dtype, axes, with_squares=with_squares)


def _weights(name: str, *, with_squares: bool) -> ByValue:
    how: dict[str, Any] = {"with_squares": with_squares}
    return ByValue(
        name,
        "values are few, and all are weighed",
        partial(_weights_of_chunk, **how),
        ValueWeights.merge,
        partial(values.lane_value_weights, **how),
        partial(values.group_value_weights, **how),
        ValueWeights.merge,
        SUM_BYTES,
        MOST_SUM_BYTES,
        on_devices=False,
    )


WEIGHTS = _weights("value-weights", with_squares=False)
WEIGHTS_AND_SQUARES = _weights("value-weights-squares", with_squares=True)
"""For windows, which are as wide as the squares of the weights say."""
