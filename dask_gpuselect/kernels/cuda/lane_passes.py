"""Lanes of CuPy chunks that are taken in parts. The host side of ``lane_passes.cu``, which measures
parts, and of ``lane_reports.cu``, which puts their reports together. Reports are on the device."""

from __future__ import annotations

from collections.abc import Sequence
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
)
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch
from dask_gpuselect.kernels.cuda.source import REPORT_THREADS
from dask_gpuselect.kernels.reference import lane_passes as reference
from dask_gpuselect.kernels.reference.lane_passes import tails
from dask_gpuselect.maths import lane_cuts
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    Lanes,
    LaneTally,
    known_of_all,
    moved,
    total,
)

__all__ = ["bracketed", "cuts", "merge_tallies", "order_statistics", "tails", "tally"]

CUTS, COUNTS, CANDIDATES = range(3)
"""What a launch finds; PASS of ``lane_passes.cu``."""


@advised
def cuts(parts: Sequence[Array], brackets: LaneBrackets | None, m: int) -> LaneCuts:
    """The cuts of every lane at `m` ranks; see `reference.lane_passes.cuts`.

    Reads device memory once. The reference measures lanes too long for shared memory.
    """
    part = _Measured.of(parts, brackets)
    if part is None:
        known = brackets and moved(brackets, cupy.asnumpy)
        return moved(reference.cuts(parts, known, m), cupy.asarray)
    found = cupy.empty((part.n_lanes, part.n_questions, m), part.dtype)
    counts = part.counts("n_valid", "before", "inside")
    part.start(CUTS, m, counts, found)
    n_valid = counts["n_valid"]
    n_missing = part.n_elements - n_valid
    return LaneCuts(found, found, counts["inside"], counts["before"], n_valid, n_missing)


@advised
def tally(parts: Sequence[Array], brackets: LaneBrackets) -> LaneTally:
    """Counts of every lane at its brackets, and candidates; see `reference.lane_passes.tally`.

    Reads device memory twice: once to count, and once to gather.
    """
    part = _Measured.of(parts, brackets)
    if part is None:
        on_host = reference.tally(parts, moved(brackets, cupy.asnumpy))
        return moved(on_host, cupy.asarray)
    counts = part.counts("n_valid", "below", "before", "inside", "upto")
    part.start(COUNTS, 0, counts, cupy.empty(0, part.dtype))
    stops = cupy.cumsum(counts["inside"].ravel())
    candidates = cupy.empty(int(stops[-1]), part.dtype)
    if candidates.size:
        part.start(CANDIDATES, 0, counts, candidates, stops - counts["inside"].ravel())
    n_valid, below, n_before, n_inside, upto = counts.values()
    n_missing = part.n_elements - n_valid
    return LaneTally(below, n_before, n_inside, upto, candidates, n_valid, n_missing)


@advised
def bracketed(parts: Sequence[LaneCuts], lower: IntArray, upper: IntArray) -> tuple[Array, Array]:
    """What the pivots of all parts prove of some ranks, on the device; see
    `lane_cuts.bracketed`."""
    k, dtype = lower.shape[-1], np.dtype(parts[0].low.dtype)
    shape = (*parts[0].n_inside.shape, k)
    low, high = cupy.empty(shape, dtype), cupy.empty(shape, dtype)
    if low.size:
        columns = [(part.low, part.high, part.n_inside) for part in parts]
        records, held = _records(columns, [part.low.shape[-1] for part in parts])
        ranks = [cupy.ascontiguousarray(each) for each in (lower, upper)]
        sizes = (np.int64(low.size // k), np.int64(k))
        arguments = (records, np.int32(len(parts)), *ranks, *sizes, low, high)
        _launch(dtype, "reports_bracket", arguments, 2 * low.size)
        del held
    return low, high


@advised
def merge_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """The tally of several parts together, on the device; see `lane_cuts.merge_tallies`."""
    if len(parts) == 1:
        return parts[0]
    below, n_before, n_inside, upto = (
        total(name, parts) for name in ("below", "n_before", "n_inside", "upto")
    )
    dtype = np.dtype(parts[0].candidates.dtype)
    candidates = cupy.empty(sum(part.candidates.size for part in parts), dtype)
    if candidates.size:
        columns = [
            (part.candidates, part.n_inside, cupy.cumsum(part.n_inside.ravel())) for part in parts
        ]
        records, held = _records(columns)
        starts = cupy.cumsum(n_inside.ravel()) - n_inside.ravel()
        arguments = (records, np.int32(len(parts)), starts, np.int64(starts.size), candidates)
        _launch(dtype, "reports_merge", arguments, 8 * starts.size)
        del held
    return LaneTally(below, n_before, n_inside, upto, candidates, *known_of_all(parts))


@advised
def order_statistics(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """The elements of the wanted ranks, on the host; see `lane_cuts.order_statistics`."""
    shape, dtype = tally.n_inside.shape, np.dtype(tally.candidates.dtype)
    if not tally.n_inside.size:
        return _on_host(tally, brackets)
    columns = {
        **{"below": tally.below, "before": tally.n_before, "inside": tally.n_inside},
        **{"upto": tally.upto, "n_valid": tally.n_valid, "n_missing": tally.n_missing},
        **{"stops": cupy.cumsum(tally.n_inside.ravel()), "candidates": tally.candidates},
        **{"lower": brackets.lower, "upper": brackets.upper},
        **{"known_valid": brackets.n_valid, "known_missing": brackets.n_missing},
        **{"low": brackets.low, "high": brackets.high},
    }
    known, held = np.zeros((), source.REPORT_KNOWN), []
    for name, column in columns.items():
        held.append(cupy.ascontiguousarray(column))
        known[name] = held[-1].data.ptr
    lower, upper = cupy.empty(shape, dtype), cupy.empty(shape, dtype)
    told = cupy.asarray(np.array([0, 0, np.iinfo(np.uint64).max, 0], np.uint64))
    sizes = (np.int64(lower.size), np.int64(shape[1]))
    arguments = (as_bytes(known), *sizes, lower, upper, told)
    _launch(dtype, "reports_select", arguments, 32 * lower.size)
    has_changed, any_missing, least, most = told.get().tolist()
    if has_changed:
        return _on_host(tally, brackets)  # which raises
    found = lower.get(), upper.get()
    if least == most and not any_missing:  # one number for all
        counts = [np.broadcast_to(np.int64(n), len(tally.n_valid)) for n in (least, 0)]
        return Lanes(*found, *counts)
    columns_of_lanes: tuple[Array, ...] = (tally.n_valid, tally.n_missing)
    return Lanes(*found, *(column.get() for column in columns_of_lanes))


def _on_host(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    on_host = moved(tally, cupy.asnumpy), moved(brackets, cupy.asnumpy)
    return lane_cuts.order_statistics(*on_host)


def _records(
    columns: Sequence[tuple[Array, ...]], sizes: Sequence[int] = ()
) -> tuple[Array, list[Array]]:
    """The addresses of the arrays of each part, and its size if there is one, as the records of a
    kernel on the device; and the arrays, which have to live until it has started."""
    held = [cupy.ascontiguousarray(each) for column in columns for each in column]
    addresses = np.array([each.data.ptr for each in held], np.uint64).reshape(len(columns), -1)
    if sizes:
        addresses = np.column_stack([addresses, np.array(sizes, np.uint64)])
    return cupy.asarray(addresses), held


def _launch(dtype: np.dtype[Any], name: str, arguments: tuple[Any, ...], n_threads: int) -> None:
    blocks = min(-(-n_threads // REPORT_THREADS), MOST_BLOCKS)
    launch(dtype, name, REPORT_THREADS, arguments, blocks=blocks)


class _Measured:
    """A part of lanes and the brackets where it is measured, on the device."""

    def __init__(
        self, stack: Any, selecting: source.LaneKernel, dtype: np.dtype[Any], held: Any
    ) -> None:
        self.stack, self.selecting, self.dtype, self.held = stack, selecting, dtype, held
        self.n_lanes, self.n_elements = int(stack["n_lanes"]), int(stack["n"])
        self.ends: list[Array] = []
        self.n_questions = 1

    @classmethod
    def of(cls, parts: Sequence[Array], brackets: LaneBrackets | None) -> _Measured | None:
        """None where the kernels cannot measure it."""
        if not sum(part.size for part in parts):
            return None
        whole = _side_by_side(parts_in_three(parts, (parts[0].ndim - 1,)))
        dtype = np.dtype(parts[0].dtype)
        n = sum(part.shape[1] for part in whole)
        stack = stack_of(whole, n)
        selecting = kernel_for(dtype, stack, most_runs=1) if n < 1 << 31 else None
        if selecting is None:
            return None
        measured = cls(stack, selecting, dtype, whole)
        if brackets is not None:
            measured.n_questions = brackets.low.shape[1]
            measured.ends = [
                cupy.ascontiguousarray(cupy.asarray(end), dtype)
                for end in (brackets.low, brackets.high)
            ]
        return measured

    def counts(self, *names: str) -> dict[str, Array]:
        shapes = {"n_valid": (self.n_lanes,)}
        table = (self.n_lanes, self.n_questions)
        return {name: cupy.empty(shapes.get(name, table), np.int64) for name in names}

    def start(
        self,
        what: int,
        m: int,
        counts: dict[str, Array],
        found: Array,
        starts: Array | None = None,
    ) -> None:
        brackets, where = np.zeros((), source.PASS_BRACKETS), np.zeros((), source.PASS_COUNTS)
        for name, end in zip(("low", "high"), self.ends, strict=False):
            brackets[name] = end.data.ptr
        brackets["n_questions"], brackets["n_ranks"] = self.n_questions, m
        for name, count in counts.items():
            where[name] = count.data.ptr
        kernel = self.selecting
        defined = (*in_parts(self.stack), *kernel.defined, ("ANSWER", 0), ("PASS", what))
        records = map(as_bytes, (self.stack, brackets, where))
        arguments = (*records, np.uint64(0) if starts is None else starts, found)
        blocks = min(-(-self.n_lanes // kernel.lanes), MOST_BLOCKS)
        how: dict[str, Any] = {"blocks": blocks, "defined": defined}
        launch(self.dtype, "passes_of_lanes", kernel.threads, arguments, kernel.shared, **how)


def _side_by_side(parts: list[Part]) -> list[Part]:
    """Parts with their lanes, the outer ones, as inner ones where that is how they lie: all of
    them, or none, for they have one layout."""
    if not source.are_side_by_side([(part.shape, part.strides) for part in parts]):
        return parts
    return [
        Part(part.chunk, (1, part.shape[1], part.shape[0]), (0, part.strides[1], part.strides[0]))
        for part in parts
    ]
