"""Box plots of many lanes, finished on the device. The host side of ``lane_boxes.cu``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import ChunkColumn
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.lane_stack import LaneStack, marked_lanes, wanted_of
from dask_gpuselect.kernels.cuda.launch import Array, filled, launch, most_shared
from dask_gpuselect.kernels.cuda.moments import moments_of_rows
from dask_gpuselect.kernels.cuda.plain_lanes import TILE
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import DRAWS_UP_TO, LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder

# One in this many elements may be a flier before lanes are read again. Of lognormal elements (sigma
# 3), 16 % are fliers.
FLIERS_SHARE = 5
COLUMNS = source.fields_of("lane_columns.cuh", "Columns")
FLIERS = source.record("lane_boxes.cu", "Fliers")
DRAWN, WHERE, FACTS = (
    source.record("lane_columns.cuh", name) for name in ("Drawn", "Columns", "Facts")
)


def box_lanes(
    column: ChunkColumn, question: LaneOrder, rule: Rule, *, omits_nan: bool
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
    if not column.size:
        return None
    stack = LaneStack.of(column.as_type())
    dtype, n, n_lanes = stack.dtype, stack.n, stack.n_lanes
    # A kernel with two runs takes twice as long to compile, and is no faster for boxes.
    selecting = stack.kernel(most_runs=1) if n <= DRAWS_UP_TO else None
    if selecting is None:
        return None
    kernel = source.box_kernel(dtype, selecting)
    if kernel.shared + source.STATIC > most_shared(cupy.cuda.Device().id):
        return None
    wanted, refs = wanted_of(question, 0 if dtype.kind == "f" else n, n)
    drawn, shapes = drawn_by(rule, omits_nan=omits_nan), {"q": (question.n_answers, n_lanes)}
    columns = {
        name: cupy.empty(shapes.get(name, n_lanes), source.TYPES.get(kind, dtype))
        for kind, _, name, _ in COLUMNS
    }
    facts, fliers, starts, counts = _filled(stack, kernel, (wanted, drawn), columns)
    del refs
    if facts["flags"]["too_wide"]:
        return None
    if facts["n_unsure"]:
        _sum_again(stack, columns)
    del columns["is_unsure"]
    return LaneBoxes(
        n=n,
        **columns,
        fliers=fliers[: int(facts["n_fliers"])].copy(),
        starts=starts,
        counts=counts,
        most_fliers=int(drawn["most_fliers"]),
    )


def _filled(
    stack: LaneStack,
    kernel: source.LaneKernel,
    how: tuple[Any, Any],
    columns: dict[str, Array],
) -> tuple[Any, Array, Array, Array]:
    """Fill the columns; return the kernel's flags, and the fliers of all lanes.

    Also returns where the fliers of each block of lanes start, and how many they are. `how` has the
    records of the wanted ranks and of the rule. If several threads have summed a lane, a second
    kernel with a thread for each lane finishes it.
    """
    n_lanes, group = stack.n_lanes, dict(kernel.defined)["GROUP"]
    where = filled(WHERE, **columns)
    n_starts = n_lanes if group > 32 else stack.n_tiles(kernel)
    starts, counts = cupy.empty((2, n_starts), np.int64)
    sums = cupy.empty(0 if group == 1 else n_lanes * source.LANE_SUMS, np.uint8)
    facts = cupy.empty(FACTS.itemsize, np.uint8)
    room = stack.n * n_lanes // FLIERS_SHARE + 1
    while True:
        fliers = cupy.empty(room, stack.dtype)
        places = filled(FLIERS, elements=fliers, room=room, starts=starts, counts=counts)
        facts.fill(0)
        stack.start(kernel, *how, where, places, sums, facts)
        if group > 1:
            given = sums, n_lanes, stack.n, how[1]["omits_missing"], where, facts
            launch(stack.dtype, "finish_of_lanes", *given, n_threads=n_lanes)
        host = facts.get().view(FACTS)[0]
        if host["n_fliers"] <= room or host["flags"]["too_wide"]:
            return host, fliers, starts, counts
        room = int(host["n_fliers"])
        del fliers


def drawn_by(rule: Rule, *, omits_nan: bool = True) -> Any:
    """Describe the rule of boxes to a kernel."""
    by_quantiles = isinstance(rule.whis, tuple)
    numbers = {"by_quantiles": by_quantiles, "whis": 0.0 if by_quantiles else rule.whis}
    most = min(rule.max_fliers, DRAWS_UP_TO)
    flags = {"autorange": rule.autorange, "omits_missing": omits_nan}
    return filled(DRAWN, **numbers, **flags, most_fliers=most)


def _sum_again(stack: LaneStack, columns: dict[str, Array]) -> None:
    """Compute the means and deviations that are unsure, from exact sums in digits."""
    for lanes in marked_lanes(columns["is_unsure"], stack.n, TILE):
        rows = cupy.concatenate([part.rows(lanes) for part in stack.parts], axis=1)
        moments = moments_of_rows(rows.astype(selection_dtype(rows.dtype), copy=False))
        for name, numbers in zip(("mean", "deviation"), moments.mean_and_std(), strict=True):
            columns[name][lanes] = cupy.asarray(numbers)
