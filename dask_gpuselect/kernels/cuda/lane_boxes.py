"""Box plots of many lanes, finished on the device. The host side of ``lane_boxes.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.lane_stack import (
    MOST_BLOCKS,
    Part,
    as_bytes,
    in_parts,
    kernel_for,
    parts_in_three,
    stack_of,
    tables_of,
    wanted_of,
)
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch, most_shared
from dask_gpuselect.kernels.cuda.moments import moments_of_rows
from dask_gpuselect.kernels.reference.lanes import TILE
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import DRAWS_UP_TO, LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder

# One in this many elements may be a flier before lanes are read again. Of lognormal elements (sigma
# 3), 16 % are fliers.
FLIERS_SHARE = 5
FINISH_THREADS = 128

COLUMN_TYPES = {
    "q": "f8",
    "mean": "f8",
    "deviation": "f8",
    "n_valid": "u4",
    "n_low": "u4",
    "n_high": "u4",
    "is_unsure": "u1",
}
"""Dtypes of the columns that do not hold elements."""


@advised
def box_lanes(
    chunks: Sequence[Array],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    rule: Rule,
    *,
    omits_nan: bool,
) -> LaneBoxes | None:
    """Compute the box plot of every lane, on the chunks' device; see `reference.lanes.box_lanes`.

    Notes
    -----
    Reads device memory once, and a second time if more than a fifth of all elements are fliers. The
    host waits once for each. Scratch: room for that fifth. None where `lanes.answer_lanes` would
    not read lanes once, and for integers beyond 2**53 between which the answers interpolate. Sums
    are three float64 (four for 8-byte elements). Lanes whose sums do not fit in these, because
    their values have many magnitudes, are summed again by digits and rounded on the host.
    """
    if not sum(chunk.size for chunk in chunks):
        return None
    parts = parts_in_three([chunk.astype(dtype, copy=False) for chunk in chunks], axes)
    kind = np.dtype(parts[0].chunk.dtype)
    n = sum(part.shape[1] for part in parts)
    stack = stack_of(parts, n)
    # A kernel with two runs takes twice as long to compile, and is no faster for boxes.
    selecting = kernel_for(kind, stack, most_runs=1) if n <= DRAWS_UP_TO else None
    if selecting is None:
        return None
    kernel = source.box_kernel(kind, selecting)
    if kernel.shared + source.STATIC > most_shared(cupy.cuda.Device().id):
        return None
    first_v = 0 if kind.kind == "f" else n
    tables = tables_of(question, first_v, n, cupy.cuda.Device().id)
    drawn = _drawn(rule, omits_nan=omits_nan)
    drawing = _Drawing(kind, kernel, stack, wanted_of(question, first_v, tables), drawn)
    columns = drawing.columns(question.n_answers)
    told, fliers, starts, counts = drawing.fill(columns)
    if told["too_wide"]:
        return None
    if told["n_unsure"]:
        _sum_again(parts, columns)
    del columns["is_unsure"]
    return LaneBoxes(
        n=n,
        **columns,
        fliers=fliers[: int(told["n_fliers"])].copy(),
        starts=starts,
        counts=counts,
        most_fliers=int(drawn["most_fliers"]),
    )


@dataclass(frozen=True)
class _Drawing:
    """The records with which the kernels are started."""

    dtype: np.dtype[Any]
    kernel: source.LaneKernel
    stack: Any
    wanted: Any
    drawn: Any

    @property
    def n_lanes(self) -> int:
        return int(self.stack["n_lanes"])

    @property
    def group(self) -> int:
        """Number of threads for a lane."""
        return dict(self.kernel.defined)["GROUP"]

    def columns(self, n_q: int) -> dict[str, Array]:
        """Allocate the columns, by their names."""
        shapes = {"q": (n_q, self.n_lanes)}
        return {
            name: cupy.empty(shapes.get(name, self.n_lanes), COLUMN_TYPES.get(name, self.dtype))
            for name in source.BOX_COLUMNS
        }

    def fill(self, columns: dict[str, Array]) -> tuple[Any, Array, Array, Array]:
        """Fill the columns; return the kernel's flags, and the fliers of all lanes.

        Also returns where the fliers of each block of lanes start, and how many they are.
        """
        where = np.zeros((), source.BOX_TABLE)
        for name, column in columns.items():
            where[name] = column.data.ptr
        n_starts = self.n_lanes if self.group > 32 else -(-self.n_lanes // self.kernel.lanes)
        starts, counts = cupy.empty((2, n_starts), np.int64)
        sums = cupy.empty(0 if self.group == 1 else self.n_lanes * source.LANE_SUMS, np.uint8)
        told = cupy.empty(source.TOLD.itemsize, np.uint8)
        room = int(self.stack["n"]) * self.n_lanes // FLIERS_SHARE + 1
        while True:
            fliers = cupy.empty(room, self.dtype)
            places = np.zeros((), source.FLIERS)
            places["elements"], places["room"] = fliers.data.ptr, room
            places["starts"], places["counts"] = starts.data.ptr, counts.data.ptr
            told.fill(0)
            self._start(where, places, sums, told)
            found = told.get().view(source.TOLD)[0]
            if found["n_fliers"] <= room or found["too_wide"]:
                return found, fliers, starts, counts
            room = int(found["n_fliers"])
            del fliers

    def _start(self, where: Any, places: Any, sums: Array, told: Array) -> None:
        """Start the kernel with a block for each tile of lanes.

        If several threads have summed a lane, a second kernel with a thread for each lane finishes
        it.
        """
        kernel = self.kernel
        records = map(as_bytes, (self.stack, self.wanted, self.drawn, where, places))
        blocks = min(-(-self.n_lanes // kernel.lanes), MOST_BLOCKS)
        how: dict[str, Any] = {
            "blocks": blocks,
            "defined": (*in_parts(self.stack), *kernel.defined),
        }
        arguments: tuple[Any, ...] = (*records, sums, told)
        launch(self.dtype, kernel.name, kernel.threads, arguments, kernel.shared, **how)
        if self.group > 1:
            n, omits = np.uint32(self.stack["n"]), np.int32(self.drawn["omits_missing"])
            arguments = (sums, np.int64(self.n_lanes), n, omits, as_bytes(where), told)
            blocks = min(-(-self.n_lanes // FINISH_THREADS), MOST_BLOCKS)
            launch(self.dtype, "finish_of_lanes", FINISH_THREADS, arguments, blocks=blocks)


def _drawn(rule: Rule, *, omits_nan: bool) -> Any:
    drawn = np.zeros((), source.DRAWN)
    drawn["by_quantiles"] = isinstance(rule.whis, tuple)
    drawn["whis"] = 0.0 if isinstance(rule.whis, tuple) else rule.whis
    drawn["autorange"], drawn["omits_missing"] = rule.autorange, omits_nan
    drawn["most_fliers"] = min(rule.max_fliers, DRAWS_UP_TO)
    return drawn


def _sum_again(parts: Sequence[Part], columns: dict[str, Array]) -> None:
    """Compute the means and deviations that are unsure, from exact sums in digits."""
    n = sum(part.shape[1] for part in parts)
    unsure = cupy.flatnonzero(columns["is_unsure"])
    step = max(1, TILE // n)
    for start in range(0, len(unsure), step):
        lanes = unsure[start : start + step]
        rows = cupy.concatenate([_rows(part, lanes) for part in parts], axis=1)
        moments = moments_of_rows(rows.astype(selection_dtype(rows.dtype), copy=False))
        for name, numbers in zip(("mean", "deviation"), moments.mean_and_std(), strict=True):
            columns[name][lanes] = cupy.asarray(numbers)


def _rows(part: Part, lanes: Array) -> Array:
    """Return the elements of some lanes in a part, as rows."""
    strides = tuple(stride * part.chunk.itemsize for stride in part.strides)
    whole = cupy.lib.stride_tricks.as_strided(part.chunk, part.shape, strides)
    n_inner = part.shape[2]
    return whole[lanes // n_inner, :, lanes % n_inner]
