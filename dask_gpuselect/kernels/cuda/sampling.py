"""A sample of an array, and all that follows from it without waiting: for arrays in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda.candidates import (
    SELECTION,
    DeviceCandidates,
    select_few,
    selected,
    start_selection,
)
from dask_gpuselect.kernels.cuda.chunk import Chunk
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch, offsets, on_device
from dask_gpuselect.kernels.cuda.source import MOST_RANKS, TALLY_THREADS, digits
from dask_gpuselect.kernels.cuda.spans import (
    Layout,
    blank_sheet,
    layout_of,
    start_tally,
    tally_in_place,
    tally_of,
)
from dask_gpuselect.maths.cuts import Brackets, RanksOf, Tally
from dask_gpuselect.maths.envelope import guess_brackets
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.sizes import pilot_bracket, pilot_room

# As many for each bracket. With 2, 4, 8 and 16 the median of 2^30 float32 took 1.55, 1.52, 1.53 and
# 1.59 reads.
SAMPLE_TIMES = 4


@advised
def sample(values: Array, size: int) -> NDArray[Any]:
    """Valid elements at `size` hashed places, on the host; see `reference.sampling.sample`."""
    drawn: NDArray[Any] = drawn_from(values, size).get()
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


# Bytes, once for each digit, up to which selecting among all elements is faster than a sample and
# what follows from it, with twice as many kernels: 2^25 float32, 2^23 float64.
WHOLE_READS = 3 << 27


def is_best_whole(values: Array) -> bool:
    """Whether all elements had best be candidates."""
    return bool(len(digits(values.dtype)) * values.nbytes <= WHOLE_READS)


@advised
def whole(values: Array, ranks: RanksOf) -> Tally:
    """The tally of a bracket of everything, with the elements of some ranks selected already; see
    `reference.sampling.whole`. Reads the array once for each digit."""
    no_ends = np.empty(0, selection_dtype(values.dtype))
    wanted = np.unique(ranks(values.size))
    is_dense = values.flags.c_contiguous or values.flags.f_contiguous
    if is_dense and values.dtype == no_ends.dtype and 0 < len(wanted) <= MOST_RANKS:
        known, n_missing = select_few(values, wanted)
        if not n_missing:
            counts = np.empty(0, np.int64)
            candidates = DeviceCandidates(values.ravel(order="K"), known)
            return Tally(counts, counts, candidates, values.size, 0)
    everything = Brackets(no_ends, np.ones(1, np.bool_))
    tally = tally_in_place(values, everything, values.size)
    assert tally is not None
    return tally


@advised
def pilot(values: Array, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Brackets by a sample of at least `size`, and the tally there with the candidates left on the
    device; see `reference.sampling.pilot`.

    Notes
    -----
    Reads the chunk once. Scratch on the device: the sample, at most `SAMPLE_TIMES` times `size` for
    each bracket, three times; and the candidates.
    """
    n_brackets = len(ranks(values.size)[0])
    most = SAMPLE_TIMES * max(n_brackets, 1) * size
    size = min(max(size, values.size >> 8), most, values.size)
    found = _pilot_on_device(values, size, ranks)
    if found:
        return found
    ordered = _sorted(drawn_from(values, size))
    brackets, share = guess_brackets(
        lambda at: ordered.take(cupy.asarray(at)).get(), ordered.size, *ranks(ordered.size)
    )
    return brackets, tally_in_place(values, brackets, pilot_room(share, values.size))


def _pilot_on_device(
    values: Array, size: int, ranks: RanksOf
) -> tuple[Brackets, Tally | None] | None:
    """What `pilot` answers, with all kernels started at once: brackets by the sample, the tally
    there, and the elements of the wanted ranks, which the tally's counts are to prove. Between
    them the device would wait 0.4 ms for the host.

    None for more than three brackets, for brackets that overlap, if the sample has missing
    elements, or if so many are tied that there are more candidates than expected.
    """
    dtype = selection_dtype(np.dtype(values.dtype))
    plan = _plan(ranks, values.size, size, dtype)
    if plan is None:
        return None
    spans, layout = plan.spans, plan.layout
    told = on_device(plan.sheet)
    at = layout.places(told)

    drawn = drawn_from(values, size, at["has_missing"])
    start_selection(drawn, at["sample"], layout.n_ends)
    keys = at["sample"] + np.uint64(offsets(SELECTION)["prefixes"])
    first_end = at["bounds"] + np.uint64(dtype.itemsize * (not plan.is_end[0]))
    arguments: tuple[Any, ...] = (keys, np.int32(layout.n_ends), first_end)
    launch(dtype, "guess", 32, arguments, blocks=1)
    candidates = start_tally(values, layout, told, "cells", pilot_room(plan.share, values.size))
    places = [at[name] for name in ("below", "n_found", "held", "segments")]
    numbers = (np.int32(len(spans)), np.uint64(candidates.size))
    arguments = (*places, *numbers, at["ranks"], np.int32(plan.n_ranks), at["selection"])
    launch(dtype, "locate", 32, arguments, blocks=1)
    start_selection(candidates, at["selection"], plan.n_ranks)

    sheet = told.get().view(layout.dtype)[0]
    tally = tally_of(sheet, spans, candidates, values.size)
    if sheet["has_missing"] or tally is None:
        return None
    ends = sheet["bounds"][: len(spans)].ravel()[plan.is_end]
    brackets, tally = _without_repeated(Brackets(ends, plan.wanted), tally)
    known = selected(sheet["selection"], plan.n_ranks, dtype)
    found = DeviceCandidates(tally.candidates.elements, known)
    return brackets, replace(tally, candidates=found)


def _without_repeated(brackets: Brackets, tally: Tally) -> tuple[Brackets, Tally]:
    """The brackets with distinct ends, and without the cells of nothing between equal ones."""
    is_new = brackets.ends[1:] != brackets.ends[:-1]
    if is_new.all():
        return brackets, tally
    ends = np.concatenate([[True], is_new])
    cells = np.concatenate([[True], is_new, [True]])
    found = replace(tally, below=tally.below[ends], upto=tally.upto[ends])
    return Brackets(brackets.ends[ends], brackets.wanted[cells]), found


class PreparedPilot(NamedTuple):
    """Of a pilot: all that does not depend on the elements."""

    spans: list[tuple[int, int]]
    layout: Layout
    sheet: Any
    is_end: NDArray[np.bool_]  # whether each bracket has a low and a high end
    wanted: NDArray[np.bool_]
    share: float
    n_ranks: int


@lru_cache  # for arrays of one size are asked the same again and again, and this takes 0.1 ms
def _plan(ranks: RanksOf, n: int, size: int, dtype: np.dtype[Any]) -> PreparedPilot | None:
    lo, hi = pilot_bracket(*ranks(size), size)
    wanted_ranks = np.unique(ranks(n))
    n_brackets, n_ranks = len(lo), len(wanted_ranks)
    if not 0 < max(2 * n_brackets, n_ranks) <= MOST_RANKS or (lo[1:] <= hi[:-1]).any():
        return None
    is_end = np.stack([lo >= 0, hi < size], axis=1).ravel()
    n_ends = int(is_end.sum())
    segments = np.where(is_end, 2 * np.cumsum(is_end) - 1, [0, 2 * n_ends] * n_brackets)
    spans = [(int(first), int(last)) for first, last in segments.reshape(-1, 2)]
    layout = layout_of(dtype, n_brackets, n_ends)
    sheet = blank_sheet(layout, spans)
    sheet["sample"]["n"] = size
    sheet["sample"]["ranks"][:n_ends] = np.stack([lo, hi], axis=1).ravel()[is_end]
    sheet["ranks"][:n_ranks] = wanted_ranks
    wanted = np.zeros(n_ends + 1, np.bool_)
    wanted[[(first + 1) // 2 for first, _ in spans]] = True
    share = float((hi - lo).sum() / size)
    return PreparedPilot(spans, layout, sheet, is_end, wanted, share, n_ranks)


@advised
def sorted_sample(values: Array, size: int) -> tuple[Array, float]:
    """A sorted sample on the device, larger for a larger array; see `reference.sampling`.

    Scratch: the sample, at most `SAMPLE_TIMES` times `size`, three times.
    """
    size = min(max(size, values.size >> 8), SAMPLE_TIMES * size, values.size)
    return _sorted(drawn_from(values, size)), size / max(values.size, 1)


def _sorted(drawn: Array) -> Array:
    """Those that are not missing, ascending."""
    drawn.sort()
    if drawn.dtype.kind != "f":
        return drawn
    return drawn[: drawn.size - int(cupy.isnan(drawn).sum())]  # NaN is last


def drawn_from(values: Array, size: int, has_missing: np.uint64 | None = None) -> Array:
    """The elements at `size` hashed places, NaN among them, which the kernel tells."""
    drawn = cupy.empty(size, selection_dtype(values.dtype))
    if size:
        told = cupy.empty(1, np.uint64) if has_missing is None else has_missing
        arguments = (*Chunk.of(values), np.int64(size), drawn, told)
        blocks = -(-size // TALLY_THREADS)
        launch(values.dtype, "sample", TALLY_THREADS, arguments, blocks=blocks)
    return drawn
