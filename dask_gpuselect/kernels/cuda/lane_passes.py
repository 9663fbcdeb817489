"""Lanes of CuPy chunks that are taken in parts. The host side of ``lane_passes.cu``. Reports are on
the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

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
from dask_gpuselect.kernels.reference import lane_passes as reference
from dask_gpuselect.kernels.reference.lane_passes import bracketed, merge_tallies, tails
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import LaneBrackets, LaneCuts, LaneTally

__all__ = ["bracketed", "cuts", "merge_tallies", "tails", "tally"]

CUTS, COUNTS, CANDIDATES = range(3)
"""What a launch finds; PASS of ``lane_passes.cu``."""


@advised
def cuts(parts: Sequence[Array], brackets: LaneBrackets | None, m: int) -> LaneCuts:
    """The cuts of every lane at `m` ranks; see `reference.lane_passes.cuts`.

    Reads device memory once. The reference measures lanes too long for shared memory.
    """
    part = _Measured.of(parts, brackets)
    if part is None:
        return reference.cuts(parts, brackets, m)
    found = cupy.empty((part.n_lanes, part.n_questions, m), part.dtype)
    counts = part.counts("n_valid", "before", "inside")
    part.start(CUTS, m, counts, found)
    pivots, told = found.get(), part.on_host(counts)
    n_valid = told["n_valid"]
    return LaneCuts(
        pivots, pivots, told["inside"], told["before"], n_valid, part.n_elements - n_valid
    )


@advised
def tally(parts: Sequence[Array], brackets: LaneBrackets) -> LaneTally:
    """Counts of every lane at its brackets, and candidates; see `reference.lane_passes.tally`.

    Reads device memory twice: once to count, and once to gather.
    """
    part = _Measured.of(parts, brackets)
    if part is None:
        return reference.tally(parts, brackets)
    counts = part.counts("n_valid", "below", "before", "inside", "upto")
    part.start(COUNTS, 0, counts, cupy.empty(0, part.dtype))
    told = part.on_host(counts)
    candidates = cupy.empty(int(told["inside"].sum()), part.dtype)
    if candidates.size:
        stops = cupy.cumsum(counts["inside"].astype(np.int64).ravel())
        starts = stops - counts["inside"].ravel()
        part.start(CANDIDATES, 0, counts, candidates, starts)
    return LaneTally(
        told["below"],
        told["before"],
        told["inside"],
        told["upto"],
        candidates.get(),
        told["n_valid"],
        part.n_elements - told["n_valid"],
    )


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
        selecting = kernel_for(dtype, stack) if n < 1 << 31 else None
        if selecting is None:
            return None
        measured = cls(stack, selecting, dtype, whole)
        if brackets is not None:
            measured.n_questions = brackets.low.shape[1]
            measured.ends = [
                cupy.asarray(np.ascontiguousarray(end, dtype))
                for end in (brackets.low, brackets.high)
            ]
        return measured

    def counts(self, *names: str) -> dict[str, Array]:
        shapes = {"n_valid": (self.n_lanes,)}
        table = (self.n_lanes, self.n_questions)
        return {name: cupy.empty(shapes.get(name, table), np.uint32) for name in names}

    def on_host(self, counts: dict[str, Array]) -> dict[str, IntArray]:
        return {name: _as_int64(count.get()) for name, count in counts.items()}

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


def _as_int64(counts: NDArray[Any]) -> IntArray:
    return counts.astype(np.int64)


def _side_by_side(parts: list[Part]) -> list[Part]:
    """Parts with their lanes, the outer ones, as inner ones where that is how they lie: all of
    them, or none, for they have one layout."""
    if not source.are_side_by_side([(part.shape, part.strides) for part in parts]):
        return parts
    return [
        Part(part.chunk, (1, part.shape[1], part.shape[0]), (0, part.strides[1], part.strides[0]))
        for part in parts
    ]
