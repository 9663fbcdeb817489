"""Lanes of CuPy chunks that are read in parts.

The host side of ``lane_passes.cu``, which measures parts, and of ``lane_reports.cu`` and
``lane_answers.cu``, which merge their partial results. Partial results are on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import ChunkColumn, with_companions
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.lane_stack import LaneStack, wanted_of
from dask_gpuselect.kernels.cuda.launch import Array, filled, launch, on_device
from dask_gpuselect.kernels.reference import lane_passes as reference
from dask_gpuselect.maths import lane_cuts
from dask_gpuselect.maths.cuts import ADVICE, ChunksChangedError, IntArray
from dask_gpuselect.maths.lane_cuts import (
    MOST_COUNTS,
    LaneBrackets,
    LaneCuts,
    LaneOrder,
    Lanes,
    LaneTally,
    RanksOfLanes,
    moved,
)
from dask_gpuselect.maths.sizes import tally_room

BRACKETS, COUNTS = (source.record("lane_passes.cu", name) for name in ("Brackets", "Counts"))
KNOWN, FACTS = (source.record("lane_reports.cuh", name) for name in ("Known", "Facts"))


CUTS: source.Defined = (("ANSWER", 0), ("IS_TALLY", 0))
TALLY: source.Defined = (("ANSWER", 0), ("IS_TALLY", 1))
"""Definitions for the results of ``lane_passes.cu``."""


@with_companions(reference.cuts)
def cuts(parts: Sequence[Array], brackets: LaneBrackets | None, m: int) -> Any:
    """Measure the cuts of every lane at `m` ranks; see `reference.lane_passes.cuts`.

    Reads device memory once. The reference measures lanes too long for shared memory.
    """
    measurable = _measurable(parts)
    if measurable is None:
        known = brackets and moved(brackets, cupy.asnumpy)
        return moved(reference.cuts(parts, known, m), cupy.asarray)
    stack, kernel = measurable
    n_questions = 1 if brackets is None else brackets.low.shape[1]
    pivots = cupy.empty((stack.n_lanes, n_questions, m), stack.dtype)
    counts = _counts(stack.n_lanes, n_questions, "n_valid", "n_missing", "before", "inside")
    ends = _ends_of(brackets, stack.dtype)
    record = filled(BRACKETS, **ends, n_questions=n_questions, n_ranks=m)
    stack.start(kernel, record, filled(COUNTS, **counts), None, pivots, defined=CUTS)
    n_valid, n_missing, n_before, n_inside = counts.values()
    return LaneCuts(pivots, pivots, n_inside, n_before, n_valid, n_missing)


@with_companions(reference.tally)
def tally(parts: Sequence[Array], brackets: LaneBrackets) -> Any:
    """Tally every lane at its brackets, with candidates; see `reference.lane_passes.tally`.

    Reads device memory once if there is a small bound of the elements in a bracket. Otherwise it
    reads twice, to count and to gather, and the host waits in between to allocate memory.
    """
    measurable = _measurable(parts)
    if measurable is None:
        on_host = reference.tally(parts, moved(brackets, cupy.asnumpy))
        return moved(on_host, cupy.asarray)
    (stack, kernel), n_questions = measurable, brackets.low.shape[1]
    names = "n_valid", "n_missing", "below", "before", "inside", "upto"
    counts = _counts(stack.n_lanes, n_questions, *names)
    *_, room = brackets.sizes or (None,)
    ends = _ends_of(brackets, stack.dtype)
    record = filled(BRACKETS, **ends, n_questions=n_questions, n_ranks=room or 0)
    where, inside = filled(COUNTS, **counts), counts["inside"].ravel()
    candidates = cupy.empty((inside.size, room or 0), stack.dtype)
    stack.start(kernel, record, where, None, candidates, defined=TALLY)
    if room is None:
        stops = cupy.cumsum(inside)
        candidates = cupy.empty(int(stops[-1]), stack.dtype)
        if candidates.size:
            stack.start(kernel, record, where, stops - inside, candidates, defined=TALLY)
    n_valid, n_missing, below, n_before, n_inside, upto = counts.values()
    return LaneTally(below, n_before, n_inside, upto, candidates, n_valid, n_missing)


def bracketed(parts: Sequence[LaneCuts], lower: IntArray, upper: IntArray) -> tuple[Array, Array]:
    """Find the bounds that the pivots of all parts prove for some ranks, on the device.

    See `lane_cuts.bracketed`.
    """
    k, dtype = lower.shape[-1], np.dtype(parts[0].low.dtype)
    shape = (*parts[0].n_inside.shape, k)
    low, high = cupy.empty(shape, dtype), cupy.empty(shape, dtype)
    if low.size:
        columns = [(part.low, part.high, part.n_inside, part.low.shape[-1]) for part in parts]
        records, refs = _records(columns)
        ranks = [cupy.ascontiguousarray(each) for each in (lower, upper)]
        given = (records, len(parts), *ranks, low.size // k, k, low, high)
        launch(dtype, "reports_bracket", *given, n_threads=2 * low.size)
        del refs
    return low, high


def find_lane_brackets(parts: Sequence[LaneCuts], ranks: RanksOfLanes) -> LaneBrackets:
    """Find the brackets of some ranks after the first pass; see `lane_cuts.find_lane_brackets`.

    The host waits once, for the numbers of valid elements, from which the ranks follow.
    """
    facts = _no_facts()
    n_valid, n_missing = _sums(parts, ("n_valid", "n_missing"), facts)
    _, _, least, most, *_ = _read(facts)
    if not 0 <= most - least < MOST_COUNTS:
        return lane_cuts.find_lane_brackets(parts, ranks, bracketed)
    pair = ranks(np.maximum(np.arange(least, most + 1), 1))
    n_questions, span = len(pair[0]), int((pair[1] - pair[0]).max(initial=0)) + 1
    lower, upper = (_of_lanes(each, n_valid, least) for each in pair)
    low, high = bracketed(parts, lower[:, None], upper[:, None])
    room = None
    if all(part.low is part.high for part in parts):  # none is made of others
        width = min(part.low.shape[-1] for part in parts)
        itemsize = low.dtype.itemsize
        room = tally_room(most, len(parts), width, n_questions, span, itemsize)
    known = lower, upper, n_valid, n_missing, (least, most, room)
    return LaneBrackets(low[:, 0], high[:, 0], *known)


def _of_lanes(ranks: IntArray, n_valid: Array, least: int) -> Array:
    """Return the ranks of each lane, from a table for `least` valid elements and more."""
    if ranks.size == 1:
        return cupy.full((len(n_valid), 1), ranks.item(), np.int64)
    return cupy.asarray(np.ascontiguousarray(ranks.T))[n_valid - least]


def merge_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """Merge the tallies of several parts, on the device; see `lane_cuts.merge_tallies`."""
    if len(parts) == 1:
        return parts[0]
    names = "n_valid", "n_missing", "below", "before", "n_inside", "upto"
    n_valid, n_missing, below, n_before, n_inside, upto = _sums(parts, names)
    dtype = np.dtype(parts[0].candidates.dtype)
    rooms = [part.candidates.shape[1] for part in parts if part.candidates.ndim == 2]
    if rooms:  # all bounds are of all parts together
        starts, room = None, rooms[0]
        candidates = cupy.empty((n_inside.size, room), dtype)
    else:
        starts, room = cupy.cumsum(n_inside.ravel()) - n_inside.ravel(), 0
        candidates = cupy.empty(sum(part.candidates.size for part in parts), dtype)
    if candidates.size:
        records, refs = _records([(part.candidates, part.n_inside, *_ends(part)) for part in parts])
        given = (records, len(parts), starts, room, n_inside.size, candidates)
        launch(dtype, "reports_merge", *given, n_threads=8 * n_inside.size)
        del refs
    return LaneTally(below, n_before, n_inside, upto, candidates, n_valid, n_missing)


def _ends(tally: LaneTally) -> tuple[Any, int]:
    """Return where the candidates of each bracket end, or None and the capacity of each."""
    if tally.candidates.ndim == 2:
        return None, tally.candidates.shape[1]
    return cupy.cumsum(tally.n_inside.ravel()), 0


def answers(tally: LaneTally, brackets: LaneBrackets, order: LaneOrder) -> Array | None:
    """Answer a question from a tally, on the device; see `reference.lane_passes.answers`.

    None where the host does not know that every lane has an element, and for integers beyond 2**53
    between which the answers interpolate.
    """
    least, most, _ = brackets.sizes or (0, 0, None)
    if not least or not tally.n_inside.size:
        return None
    n_lanes, dtype = len(tally.n_valid), np.dtype(tally.candidates.dtype)
    wanted, tables = wanted_of(order, least, most)
    known, refs = _known(tally, brackets)
    out = cupy.empty((order.n_answers, n_lanes), order.dtype)
    facts, how = _no_facts(), {"n_threads": 32 * out.size, "defined": source.answered(order)}
    launch(dtype, "answers_of_tally", known, wanted, n_lanes, out, facts, **how)
    has_changed, *_, too_wide = _read(facts)
    del refs, tables
    if has_changed:
        _on_host(tally, brackets)  # which raises
    return None if too_wide else out


def order_statistics(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """Return the elements of the wanted ranks, on the host; see `lane_cuts.order_statistics`."""
    shape, dtype = tally.n_inside.shape, np.dtype(tally.candidates.dtype)
    if not tally.n_inside.size:
        return _on_host(tally, brackets)
    known, refs = _known(tally, brackets)
    lower, upper = cupy.empty(shape, dtype), cupy.empty(shape, dtype)
    facts = _no_facts()
    given = known, lower.size, shape[1], lower, upper, facts
    launch(dtype, "reports_select", *given, n_threads=32 * lower.size)
    has_changed, any_missing, least, most, *_ = _read(facts)
    del refs
    if has_changed:
        return _on_host(tally, brackets)  # which raises
    elements = lower.get(), upper.get()
    if least == most and not any_missing:  # one number for all
        counts = [np.broadcast_to(np.int64(n), len(tally.n_valid)) for n in (least, 0)]
        return Lanes(*elements, *counts)
    columns_of_lanes: tuple[Array, ...] = (tally.n_valid, tally.n_missing)
    return Lanes(*elements, *(column.get() for column in columns_of_lanes))


def _known(tally: LaneTally, brackets: LaneBrackets) -> tuple[Any, list[Array]]:
    """Make a record of a tally and its brackets for a kernel; also return the arrays it points to.

    The arrays must live until the kernel has started.
    """
    stops, room = _ends(tally)
    of_tally = ("below", "before", "upto", "n_valid", "n_missing", "candidates")
    columns = {name: getattr(tally, name) for name in of_tally}
    columns |= {name: getattr(brackets, name) for name in ("lower", "upper", "low", "high")}
    columns |= {"known_valid": brackets.n_valid, "known_missing": brackets.n_missing}
    columns |= {"inside": tally.n_inside} | ({} if stops is None else {"stops": stops})
    refs = {name: cupy.ascontiguousarray(column) for name, column in columns.items()}
    return filled(KNOWN, **refs, room=room), list(refs.values())


def _no_facts() -> Array:
    return on_device(filled(FACTS, least=np.iinfo(np.uint64).max))


def _read(facts: Array) -> tuple[int, ...]:
    """Read the flags of a kernel; the host waits for them."""
    numbers: tuple[int, ...] = facts.get().view(FACTS)[0].item()
    return numbers


def _on_host(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    tally, brackets = moved(tally, cupy.asnumpy), moved(brackets, cupy.asnumpy)
    if tally.candidates.ndim == 2:
        n_inside, room = tally.n_inside.reshape(-1, 1), tally.candidates.shape[1]
        if (n_inside > room).any():
            raise ChunksChangedError(
                f"a 1-D slice has other elements than in the first read. {ADVICE}"
            )
        tally = replace(tally, candidates=tally.candidates[np.arange(room) < n_inside])
    return lane_cuts.order_statistics(tally, brackets)


def _sums(parts: Sequence[Any], names: Sequence[str], facts: Array | None = None) -> list[Array]:
    """Sum some tables over all parts by one launch.

    With `facts`, the kernel also writes flags, and the first two tables must be n_valid and
    n_missing.
    """
    tables = [[getattr(part, name) for part in parts] for name in names]
    sums = [cupy.empty(table[0].shape, np.int64) for table in tables]
    columns = [(out.size, out, *table) for out, table in zip(sums, tables, strict=True)]
    (records, refs), most = _records(columns), max(out.size for out in sums)
    if most:
        given = records, len(names), len(parts), facts
        launch(np.dtype(np.int64), "reports_sum", *given, n_threads=most)
    del refs
    return sums


def _records(columns: Sequence[tuple[Any, ...]]) -> tuple[Array, list[Array]]:
    """Make records of arrays' addresses and sizes for a kernel, and return the arrays too.

    The records are on the device, one for each column. The arrays must live until the kernel has
    started. The address of None is 0.
    """
    refs = [
        [cupy.ascontiguousarray(each) if hasattr(each, "dtype") else each for each in column]
        for column in columns
    ]
    addresses = [
        [each.data.ptr if hasattr(each, "dtype") else each or 0 for each in column]
        for column in refs
    ]
    return on_device(np.array(addresses, np.uint64)), [each for column in refs for each in column]


def _measurable(parts: Sequence[Array]) -> tuple[LaneStack, source.LaneKernel] | None:
    """Return the lanes of a part and the kernel that measures them; None if there is none."""
    if not sum(part.size for part in parts):
        return None
    stack = LaneStack.of(ChunkColumn(parts, parts[0].dtype, (parts[0].ndim - 1,)))
    kernel = stack.kernel(most_runs=1) if stack.n < 1 << 31 else None
    return None if kernel is None else (stack, kernel._replace(name="passes_of_lanes"))


def _ends_of(brackets: LaneBrackets | None, dtype: np.dtype[Any]) -> dict[str, Array]:
    """Return the ends of brackets as arrays on the device; none if there are no brackets."""
    ends = {} if brackets is None else {"low": brackets.low, "high": brackets.high}
    return {name: cupy.ascontiguousarray(cupy.asarray(end), dtype) for name, end in ends.items()}


def _counts(n_lanes: int, n_questions: int, *names: str) -> dict[str, Array]:
    """Allocate tables of counts for every lane and question."""
    shapes = dict.fromkeys(("n_valid", "n_missing"), (n_lanes,))
    table = (n_lanes, n_questions)
    return {name: cupy.empty(shapes.get(name, table), np.int64) for name in names}
