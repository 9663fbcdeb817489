"""CuPy chunks: kernels in CUDA C++, compiled by NVRTC once for each dtype.

Every kernel reads a chunk once and in place, whatever its strides, and the host waits once for what
it found. ``elements.cuh`` says how a chunk is read, ``cuts.cu`` is load 1 and ``tally.cu`` load 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.cuts import (
    Brackets,
    Cuts,
    FloatArray,
    IntArray,
    RanksOf,
    Tally,
    exact_gap,
    guess_brackets,
)
from dask_gpuselect.devices import check_device
from dask_gpuselect.kernels import cpu, generic
from dask_gpuselect.kernels.cuda_source import (
    CHOOSE_THREADS,
    DIGIT,
    MOST_ENDS,
    MOST_RANKS,
    SELECT_THREADS,
    SPANS,
    TALLY_THREADS,
    Sizes,
    choose_memory,
    classify_memory,
    digits,
    file_of,
    from_keys,
    key_size,
    n_slots,
    select_memory,
    selected_dtype,
    sizes_for,
    source,
    tally_memory,
)
from dask_gpuselect.strategies import pilot_bracket, pilot_room

Array = Any  # a CuPy array
P = ParamSpec("P")
T = TypeVar("T")

FEW = 1 << 14  # elements up to which copying them to the host is as fast
FEW_PLACES = 48  # wanted elements up to which selecting them is faster than sorting all
SELECT_WHOLE = 1 << 22  # elements of an array up to which a pilot is not worth it
SAMPLE_TIMES = 4  # as many for each bracket: half as wide for 20 microseconds more
HEAVY = 4  # a cell of more than this many times its share is split again
MOST_PIVOTS = 1024  # cells of a share smaller than this part of a chunk are not promised

BUCKET = np.dtype([("edge", "u8"), ("pivot", "u8"), ("shift", "u4"), ("has_pivot", "u4")])
SELECTION = np.dtype(
    [
        ("n", "i8"),
        ("places", "i8", MOST_RANKS),
        ("ranks", "i8", MOST_RANKS),
        ("prefixes", "u8", MOST_RANKS),
        ("n_finished", "u8"),
    ],
    align=True,
)
OUTSIDE = 255  # a bucket's shift if it is outside all windows
OFFSET_BITS = 12
UNIT = 2.0 ** (np.arange(256) - OFFSET_BITS)  # of an offset's leading bits, by its bucket's shift
TINY = 1e-320  # more than what rounding takes away where numbers are denormal


def _advised(kernel: Callable[P, T]) -> Callable[P, T]:
    """The same, with an error that says what to do if the device has too little memory."""

    @wraps(kernel)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return kernel(*args, **kwargs)
        except cupy.cuda.memory.OutOfMemoryError as error:
            cupy.get_default_memory_pool().free_all_blocks()
            raise MemoryError(
                f"{error}. Make the chunks smaller (x.rechunk), or let fewer threads share a GPU: "
                "each holds a chunk and scratch of at most two."
            ) from error

    return wrapped


@_advised
def cuts(values: Array, n_pivots: int) -> Cuts:
    """The cuts of a chunk at sampled pivots; see `generic.cuts`.

    Parameters
    ----------
    values : cupy.ndarray
        Of any shape and strides, of bool, integers, float16, float32 or float64.
    n_pivots : int
        About how many pivots to choose; no more than there are buckets: 8,192 of 4 bytes and
        4,096 of 8 with the shared memory of compute capability 9.0.

    Notes
    -----
    Reads the chunk once. Scratch on the device: 0.8 MB; and as much as the heavy cells hold, where
    the sample's buckets do not separate the data (two clusters within one binade, each narrower
    than a 4,096th of it).
    """
    if values.size <= FEW:
        return cpu.cuts(_on_host(values), n_pivots)
    cells = _cells(values, n_pivots, None)
    if cells is None:  # the sample spans hundreds of binades
        if values.dtype.itemsize < 8:  # where CuPy takes denormal numbers for zeros
            return cpu.cuts(_on_host(values), n_pivots)
        return generic.cuts(as_selected(values.ravel()), n_pivots)
    cells.distance[:1] = np.nan  # the first cell has no lower end: unknown
    m = len(cells.pivots)
    return Cuts.of_chunk(
        cells.pivots,
        cells.below,
        cells.upto,
        cells.distance[:m],
        cells.n_valid,
        cells.n_missing,
        slack=cells.slack[:m],
    )


@_advised
def tally(values: Array, brackets: Brackets, most: int) -> Tally | None:
    """Counts at the ends and candidates; see `generic.tally`.

    `values` are as for `cuts`. Reads the chunk once for every 1,024 ends. Scratch on the device:
    `most` elements.
    """
    if values.size <= FEW:
        return cpu.tally(_on_host(values), brackets, most)
    found = tally_on_device(values, brackets, most)
    return found and replace(found, candidates=generic.to_host(found.candidates))


@_advised
def tally_in_place(values: Array, brackets: Brackets, most: int) -> Tally | None:
    """As `tally`, with the candidates left on the device. Scratch: `most` elements."""
    return _in_place(tally_on_device(values, brackets, most))


def _in_place(found: Tally | None, known: Mapping[int, Any] | None = None) -> Tally | None:
    return found and replace(found, candidates=Candidates(found.candidates, known or {}))  # type: ignore[arg-type]


@_advised
def merged(parts: Sequence[Tally]) -> Tally:
    """The tally of all parts together, its candidates on the current device."""
    counts = Tally.merge([replace(part, candidates=part.candidates[:0]) for part in parts])
    candidates = cupy.concatenate([cupy.asarray(part.candidates) for part in parts])
    return replace(counts, candidates=Candidates(candidates))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Candidates:
    """Candidates on the device: none is missing."""

    elements: Array
    known: Mapping[int, Any] = field(default_factory=dict)
    """Elements that have been selected already, by their places."""

    def __len__(self) -> int:
        return int(self.elements.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.elements.dtype
        return dtype

    def elements_at(self, places: IntArray) -> NDArray[Any]:
        """The elements that sorting would put at the given places, on the host.

        Scratch: 0.1 MB; for more than `FEW_PLACES`, what sorting takes.
        """
        if all(place in self.known for place in places.tolist()):
            return np.array([self.known[place] for place in places.tolist()], self.dtype)
        few = np.unique(places)
        if few.size > FEW_PLACES:
            return np.asarray(cupy.sort(self.elements).take(cupy.asarray(places)).get())
        return _select(self.elements, few)[np.searchsorted(few, places)]


@_advised
def sample(values: Array, size: int) -> NDArray[Any]:
    """Valid elements at `size` hashed places, on the host; see `generic.sample`."""
    drawn: NDArray[Any] = _drawn(values, size).get()
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


@_advised
def pilot(values: Array, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Brackets by a sample of at least `size`, and the tally there with the candidates left on the
    device; see `generic.pilot`.

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
    ordered = _drawn(values, size)
    ordered.sort()
    if ordered.dtype.kind == "f":
        ordered = ordered[: ordered.size - int(cupy.isnan(ordered).sum())]  # NaN is last
    brackets, share = guess_brackets(
        lambda at: ordered.take(cupy.asarray(at)).get(), ordered.size, *ranks(ordered.size)
    )
    return brackets, tally_in_place(values, brackets, pilot_room(share, values.size))


def _pilot_on_device(
    values: Array, size: int, ranks: RanksOf
) -> tuple[Brackets, Tally | None] | None:
    """The same, with all kernels started at once: brackets by the sample, the tally there, and the
    elements of the wanted ranks, which the tally's counts are to prove. Between them the device
    would wait 0.5 ms for the host.

    None for more than three brackets, for brackets that overlap, if the sample has missing
    elements, or if so many are tied that there are more candidates than expected.
    """
    dtype = selected_dtype(np.dtype(values.dtype))
    plan = _plan(ranks, values.size, size, dtype)
    if plan is None:
        return None
    spans, layout = plan.spans, plan.layout
    told = _told(plan.sheet)
    at = layout.places(told)

    drawn = _drawn(values, size, at["has_missing"])
    _start_selection(drawn, at["sample"], layout.n_ends)
    keys = at["sample"] + np.uint64(_offsets(SELECTION)["prefixes"])
    first_end = at["bounds"] + np.uint64(dtype.itemsize * (not plan.is_end[0]))
    arguments: tuple[Any, ...] = (keys, np.int32(layout.n_ends), first_end)
    _launch(dtype, "guess", 32, arguments, blocks=1)
    candidates = _start_tally(values, layout, told, "cells", pilot_room(plan.share, values.size))
    places = [at[name] for name in ("below", "n_found", "held", "segments")]
    numbers = (np.int32(len(spans)), np.uint64(candidates.size))
    arguments = (*places, *numbers, at["ranks"], np.int32(plan.n_ranks), at["selection"])
    _launch(dtype, "locate", 32, arguments, blocks=1)
    _start_selection(candidates, at["selection"], plan.n_ranks)

    sheet = told.get().view(layout.dtype)[0]
    tally = _tally_of(sheet, spans, candidates, values.size)
    if sheet["has_missing"] or tally is None:
        return None
    ends = sheet["bounds"][: len(spans)].ravel()[plan.is_end]
    brackets, tally = _without_repeated(Brackets(ends, plan.wanted), tally)
    return brackets, _in_place(tally, _selected(sheet["selection"], plan.n_ranks, dtype))


def _without_repeated(brackets: Brackets, tally: Tally) -> tuple[Brackets, Tally]:
    """The same with distinct ends, and without the cells of nothing between equal ones."""
    is_new = brackets.ends[1:] != brackets.ends[:-1]
    if is_new.all():
        return brackets, tally
    ends = np.concatenate([[True], is_new])
    cells = np.concatenate([[True], is_new, [True]])
    found = replace(tally, below=tally.below[ends], upto=tally.upto[ends])
    return Brackets(brackets.ends[ends], brackets.wanted[cells]), found


class Plan(NamedTuple):
    """Of a pilot: all that does not depend on the elements."""

    spans: list[tuple[int, int]]
    layout: Layout
    sheet: Any
    is_end: NDArray[np.bool_]  # whether each bracket has a low and a high end
    wanted: NDArray[np.bool_]
    share: float
    n_ranks: int


@lru_cache  # for arrays of one size are asked the same again and again, and this takes 0.1 ms
def _plan(ranks: RanksOf, n: int, size: int, dtype: np.dtype[Any]) -> Plan | None:
    lo, hi = pilot_bracket(*ranks(size), size)
    wanted_ranks = np.unique(ranks(n))
    n_brackets, n_ranks = len(lo), len(wanted_ranks)
    if not 0 < max(2 * n_brackets, n_ranks) <= MOST_RANKS or (lo[1:] <= hi[:-1]).any():
        return None
    is_end = np.stack([lo >= 0, hi < size], axis=1).ravel()
    n_ends = int(is_end.sum())
    segments = np.where(is_end, 2 * np.cumsum(is_end) - 1, [0, 2 * n_ends] * n_brackets)
    spans = [(int(first), int(last)) for first, last in segments.reshape(-1, 2)]
    layout = _layout(dtype, n_brackets, n_ends)
    sheet = _sheet(layout, spans)
    sheet["sample"]["n"] = size
    sheet["sample"]["ranks"][:n_ends] = np.stack([lo, hi], axis=1).ravel()[is_end]
    sheet["ranks"][:n_ranks] = wanted_ranks
    wanted = np.zeros(n_ends + 1, np.bool_)
    wanted[[(first + 1) // 2 for first, _ in spans]] = True
    share = float((hi - lo).sum() / size)
    return Plan(spans, layout, sheet, is_end, wanted, share, n_ranks)


def _drawn(values: Array, size: int, has_missing: np.uint64 | None = None) -> Array:
    """The elements at `size` hashed places, NaN among them, which the kernel tells."""
    drawn = cupy.empty(size, selected_dtype(values.dtype))
    if size:
        told = cupy.empty(1, np.uint64) if has_missing is None else has_missing
        arguments = (*Chunk.of(values), np.int64(size), drawn, told)
        blocks = -(-size // TALLY_THREADS)
        _launch(values.dtype, "sample", TALLY_THREADS, arguments, blocks=blocks)
    return drawn


# --- Load 1: buckets ----------------------------------------------------------------------------


class Cells(NamedTuple):
    """The cuts of some elements, and the distances of one cell more: the last, to a value above
    all."""

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    distance: FloatArray
    slack: FloatArray
    n_valid: int
    n_missing: int


def _cells(values: Array, n_pivots: int, above: Any) -> Cells | None:
    """The cells of the elements, which are below the value `above` if that is not None.

    None if the elements spread over more slots than buckets can serve.
    """
    report = _classify(values, n_pivots)
    if report is None:
        return None
    return _split_heavy(_assemble(report, values.dtype, above), values, n_pivots, above)


def _classify(values: Array, n_pivots: int) -> Any:
    """What the kernels of ``cuts.cu`` find, on the host: a record of `_report_dtype`."""
    dtype = np.dtype(values.dtype)
    sizes = _sizes(dtype, cupy.cuda.Device().id)
    chunk = Chunk.of(values)
    windows = cupy.empty(n_slots(dtype), np.uint64)
    pivots = cupy.empty(sizes.buckets, f"u{key_size(dtype)}")
    # One piece of memory for all that goes back to the host: one copy, one wait.
    layout = _report_dtype(sizes.buckets)
    report = cupy.zeros(layout.itemsize, np.uint8)
    at = {name: np.uint64(report.data.ptr + offset) for name, offset in _offsets(layout).items()}

    # A bucket in three has no pivot of its own, or lies beyond the data in its slot.
    aim = min(sizes.buckets, n_pivots + n_pivots // 2)
    shared = choose_memory(dtype, sizes)
    places = (windows, pivots, at["buckets"], at["n_buckets"])
    _launch(dtype, "choose", CHOOSE_THREADS, (*chunk, np.uint32(aim), *places), shared, blocks=1)
    shared = classify_memory(dtype, sizes)
    places = (windows, pivots, at["n_buckets"], at["counts"])
    _launch(dtype, "classify", sizes.threads, (*chunk, *places), shared)
    found = report.get().view(layout)[0]
    return found if found["n_buckets"] else None


@cache
def _report_dtype(buckets: int) -> np.dtype[Any]:
    """`Totals` of ``cuts.cu``, and what it says of the buckets."""
    return np.dtype(
        [
            ("counts", "i8", (3, buckets)),  # of elements below, at and above the bucket's pivot
            ("sums", "i8", (2, buckets)),  # of the offsets of those below and above
            ("far", "f8", buckets),  # distances to the pivot of what is outside the windows
            ("n_missing", "i8"),
            ("n_buckets", "i8"),
            ("buckets", BUCKET, buckets),
        ]
    )


@lru_cache
def _offsets(record: np.dtype[Any]) -> dict[str, int]:
    return {name: entry[1] for name, entry in (record.fields or {}).items()}


def _assemble(report: Any, dtype: np.dtype[Any], above: Any) -> Cells:
    """The cells between the pivots, from what was counted in the buckets.

    Cell j, which ends at pivot j, has what is below the pivot in that pivot's own bucket, all of
    the buckets before that have no pivot, and what is above the pivot before in its bucket.
    """
    n = int(report["n_buckets"])
    buckets = report["buckets"][:n]
    below, at, over = report["counts"][:, :n]
    has_pivot = buckets["has_pivot"].astype(bool)
    below = np.where(has_pivot, below, below + at + over)
    at, over = np.where(has_pivot, at, 0), np.where(has_pivot, over, 0)
    cell = np.cumsum(has_pivot) - has_pivot  # of what is below the bucket's pivot
    cell_over = cell + has_pivot

    inside = np.zeros(int(has_pivot.sum()) + 1, np.int64)
    np.add.at(inside, cell, below)
    np.add.at(inside, cell_over, over)
    equal = at[has_pivot]
    upto = np.cumsum(inside[:-1] + equal)

    pivots = from_keys(buckets["pivot"][has_pivot], dtype)
    ends = np.append(pivots, pivots[:0] if above is None else pivots.dtype.type(above))
    edges = from_keys(buckets["edge"], dtype)
    distance, slack = np.zeros((2, len(inside)))
    unit = UNIT[buckets["shift"]]
    is_rounded = buckets["shift"] > OFFSET_BITS
    is_far = buckets["shift"] == OUTSIDE
    with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN mean unknown
        step = exact_gap(edges, from_keys(buckets["edge"] + np.uint64(1), dtype))  # of one key
        for cells, counts, sums in ((cell, below, 0), (cell_over, over, 1)):
            found = np.flatnonzero((counts > 0) & (cells < len(ends)))
            count, to = counts[found].astype(np.float64), cells[found]
            offsets = report["sums"][sums][found] * unit[found]
            # The bits behind the first OFFSET_BITS of each are lost: half a unit, give or take.
            lost = count * unit[found] * (is_rounded[found] / 2)
            whole = count * exact_gap(edges[found], ends[to])
            apart = whole - (offsets + lost) * step[found]
            rounding = 2.0**-48 * whole + TINY
            if not np.isfinite(apart).all():  # nearly as wide as the dtype's range
                mean = edges[found] + (offsets + lost) / count * step[found]
                far_apart = count * (ends[to] - mean)
                rounding = np.where(np.isfinite(apart), rounding, 2.0**-48 * far_apart)
                apart = np.where(np.isfinite(apart), apart, far_apart)
            is_outside = is_far[found]
            far = report["far"][found]
            np.add.at(distance, to, np.where(is_outside, far, apart))
            error = np.where(
                is_outside, 2.0**-52 * (count + 8) * far, lost * step[found] + rounding
            )
            np.add.at(slack, to, error)
        distance = np.maximum(distance, 0.0)
    n_valid = int(inside.sum() + equal.sum())
    return Cells(pivots, upto - equal, upto, distance, slack, n_valid, int(report["n_missing"]))


def _split_heavy(cells: Cells, values: Array, n_pivots: int, above: Any) -> Cells:
    """Divide the cells that hold more than `HEAVY` times their share."""
    share = max(cells.n_valid // min(n_pivots, MOST_PIVOTS), 1)
    before = np.append(np.int64(0), cells.upto)
    inside = np.append(cells.below, cells.n_valid) - before
    # Without a pivot, because the sample saw no valid element, all that there is is too much.
    heavy = np.flatnonzero(inside > (HEAVY * share if len(cells.pivots) else 0))
    if len(heavy) == 0:
        return cells
    distance, slack = cells.distance.copy(), cells.slack.copy()
    parts = [cells]
    ends = np.append(cells.pivots, cells.pivots[:0] if above is None else above)
    for j in heavy:
        held = _gather_cell(cells.pivots, int(j), values, int(inside[j]))
        within = _cells_of_gathered(held, -(-int(inside[j]) // share) + 1, ends[j : j + 1])
        parts.append(within._replace(below=within.below + before[j], upto=within.upto + before[j]))
        # The cell now ends at the last of its own pivots; what is behind that ends where it did.
        distance[j], slack[j] = within.distance[-1], within.slack[-1]
    parts[0] = cells._replace(distance=distance, slack=slack)
    return _merged(parts)


def _gather_cell(pivots: NDArray[Any], j: int, values: Array, size: int) -> Array:
    """The elements of open cell j between the pivots, on the device."""
    ends = pivots[max(j - 1, 0) : j + 1]
    wanted = np.zeros(len(ends) + 1, np.bool_)
    wanted[1 if j else 0] = True
    found = tally_on_device(values, Brackets(ends, wanted), size)
    if found is None:
        raise RuntimeError("the chunk changed while it was read: another thread writes to it")
    return found.candidates


def _cells_of_gathered(held: Array, n_pivots: int, above: NDArray[Any]) -> Cells:
    """The cells of a heavy cell's elements. `above` is empty, or the one value they end at."""
    if held.size > FEW:
        cells = _cells(held, n_pivots, above[0] if len(above) else None)
        if cells is not None:
            return cells
    found = cpu.cuts_of_sorted(np.sort(held.get()), n_pivots, 0)
    # Its extremes are pivots: nothing is before the first or behind the last.
    distance, slack = np.append(found.distance, 0.0), np.append(found.slack, 0.0)
    distance[0] = slack[0] = 0.0
    return Cells(found.pivots, found.below, found.upto, distance, slack, held.size, 0)


def _merged(parts: list[Cells]) -> Cells:
    """The first part's cells with those of the others among them."""
    first = parts[0]
    pivots = np.concatenate([part.pivots for part in parts])
    order = np.argsort(pivots)
    return first._replace(
        pivots=pivots[order],
        below=np.concatenate([part.below for part in parts])[order],
        upto=np.concatenate([part.upto for part in parts])[order],
        distance=np.append(
            np.concatenate([part.distance[:-1] for part in parts])[order], first.distance[-1]
        ),
        slack=np.append(
            np.concatenate([part.slack[:-1] for part in parts])[order], first.slack[-1]
        ),
    )


# --- Load 2: spans ------------------------------------------------------------------------------


def tally_on_device(values: Array, brackets: Brackets, most: int) -> Tally | None:
    """As `tally`, with the candidates left on the device."""
    ends, wanted = brackets.ends, brackets.wanted
    parts: list[Tally] = []
    for start in range(0, max(len(ends), 1), MOST_ENDS):
        # The last end of the group before is counted again: it is where the first cell begins.
        first = max(start - 1, 0)
        stop = min(start + MOST_ENDS, len(ends))
        cells = wanted[first : stop + 1].copy()
        cells[0] &= start == 0
        cells[-1] &= stop == len(ends)
        part = _tally_few(values, Brackets(ends[first:stop], cells), most)
        if part is None:
            return None
        most -= part.candidates.size
        parts.append(
            part if start == 0 else replace(part, below=part.below[1:], upto=part.upto[1:])
        )
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        below=np.concatenate([part.below for part in parts]),
        upto=np.concatenate([part.upto for part in parts]),
        candidates=cupy.concatenate([part.candidates for part in parts]),
    )


def _tally_few(values: Array, brackets: Brackets, most: int) -> Tally | None:
    ends = brackets.ends
    spans = _spans(brackets)
    layout = _layout(ends.dtype, len(spans), len(ends))
    sheet = _sheet(layout, spans)
    sheet["ends"], sheet["wanted"] = ends, brackets.wanted
    for bounds, (first, last) in zip(sheet["bounds"], spans, strict=False):
        if first % 2:
            bounds[0] = ends[first // 2]
        if last % 2:
            bounds[1] = ends[last // 2]
    told = _told(sheet)
    candidates = _start_tally(values, layout, told, _kinds(brackets, spans), most)
    return _tally_of(told.get().view(layout.dtype)[0], spans, candidates, values.size)


def _start_tally(values: Array, layout: Layout, told: Array, kinds: str, most: int) -> Array:
    """Start the kernel; returns the memory for candidates."""
    dtype = np.dtype(values.dtype)
    candidates = cupy.empty(most, selected_dtype(dtype))
    at = layout.places(told)
    places = [at[name] for name in ("bounds", "segments", "ends", "wanted", "has_missing")]
    counts = (np.int32(layout.n_spans), np.int32(layout.n_ends))
    arguments = (*Chunk.of(values), *places, *counts, at["below"], candidates, np.uint64(most))
    memory = tally_memory(dtype, layout.n_ends)
    _launch(dtype, f"tally_{kinds}_{layout.room}", TALLY_THREADS, arguments, memory)
    return candidates


def _tally_of(
    sheet: Any, spans: list[tuple[int, int]], candidates: Array, size: int
) -> Tally | None:
    """The tally from what the kernel wrote on its sheet; None if the candidates found no room."""
    n_missing, n_found = int(sheet["n_missing"]), int(sheet["n_found"])
    if n_found > candidates.size:
        return None
    found = sheet["held"]
    before = np.zeros_like(found)  # elements before each segment
    for (first, last), n_below in zip(spans, sheet["below"], strict=False):
        held = found[first : last + 1]
        before[first : last + 1] = n_below + np.cumsum(held) - held
    below = before[1::2]
    return Tally(below, below + found[1::2], candidates[:n_found], size - n_missing, n_missing)


def _spans(brackets: Brackets) -> list[tuple[int, int]]:
    """Runs of segments that are counted each: wanted cells and ends. All of them if they are many.

    Segment 2j is cell j, and segment 2j + 1 is end j.
    """
    n_segments = 2 * len(brackets.ends) + 1
    counted = np.ones(n_segments + 2, np.bool_)
    counted[1:-1:2] = brackets.wanted
    counted[[0, -1]] = False
    borders = np.flatnonzero(counted[1:] != counted[:-1]).reshape(-1, 2)
    spans = [(int(first), int(stop) - 1) for first, stop in borders]
    return spans if len(spans) <= SPANS[-1] else [(0, n_segments - 1)]


def _kinds(brackets: Brackets, spans: list[tuple[int, int]]) -> str:
    """Which of the kernels can tell the segments of these spans apart."""
    if not brackets.wanted.any() and len(spans) == len(brackets.ends):
        return "ends"
    is_simple = all(last - first <= 1 + first % 2 for first, last in spans)
    return "cells" if is_simple else "any"


class Layout(NamedTuple):
    """Where a sheet has what: all that a kernel is told, and what it finds. In one piece of memory,
    for one copy there and one back."""

    dtype: np.dtype[Any]
    n_spans: int
    room: int  # the number of spans that the kernel is made for
    n_ends: int

    def places(self, told: Array) -> dict[str, np.uint64]:
        start = told.data.ptr
        return {name: np.uint64(start + offset) for name, offset in _offsets(self.dtype).items()}


@lru_cache
def _layout(dtype: np.dtype[Any], n_spans: int, n_ends: int) -> Layout:
    room = next(n for n in SPANS if n >= n_spans)
    fields = [
        ("bounds", dtype, (room, 2)),
        ("segments", "i4", (room, 2)),
        ("ends", dtype, (n_ends,)),
        ("wanted", "?", (n_ends + 1,)),
        # Of a pilot: the sample's elements at the ends, whether some are missing, and the answer.
        ("sample", SELECTION),
        ("has_missing", "u8"),
        ("ranks", "i8", (MOST_RANKS,)),
        ("selection", SELECTION),
        # `totals` of the kernel:
        ("below", "i8", (room,)),
        ("n_missing", "i8"),
        ("n_found", "i8"),
        ("held", "i8", (2 * n_ends + 1,)),  # by each segment
    ]
    return Layout(np.dtype(fields, align=True), n_spans, room, n_ends)


def _sheet(layout: Layout, spans: list[tuple[int, int]]) -> Any:
    """A record of the layout, with all spans open."""
    sheet = np.zeros((), layout.dtype)
    dtype = sheet["bounds"].dtype
    least, most = _extremes(dtype)
    # A span of nothing, if none is left: what is below it is also up to it.
    sheet["bounds"] = most, _before(most, dtype)
    sheet["bounds"][: len(spans)] = least, most
    sheet["segments"][: len(spans)] = np.array(spans, np.int32).reshape(-1, 2)
    return sheet


def _told(sheet: Any) -> Array:
    """A sheet on the device, as bytes."""
    return cupy.asarray(sheet.reshape(1).view(np.uint8))


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _before(value: Any, dtype: np.dtype[Any]) -> Any:
    """The next smaller number of a dtype."""
    return np.nextafter(dtype.type(value), dtype.type(-np.inf)) if dtype.kind == "f" else value - 1


# --- Selecting ----------------------------------------------------------------------------------


def _select(elements: Array, places: IntArray) -> NDArray[Any]:
    """The elements that sorting would put at these places. Reads them once for each digit of their
    keys: 3 times for 4 bytes, 6 for 8."""
    parts: dict[int, Any] = {}
    for start in range(0, len(places), MOST_RANKS):
        ranks = places[start : start + MOST_RANKS]
        selection = np.zeros((), SELECTION)
        selection["n"] = elements.size
        selection["places"][: len(ranks)] = selection["ranks"][: len(ranks)] = ranks
        told = _told(selection)
        _start_selection(elements, np.uint64(told.data.ptr), len(ranks))
        parts |= _selected(told.get().view(SELECTION)[0], len(ranks), elements.dtype)
    return np.array([parts[place] for place in places.tolist()], elements.dtype)


def _start_selection(elements: Array, selection: np.uint64, n_ranks: int) -> None:
    dtype = np.dtype(elements.dtype)
    totals = cupy.zeros(n_ranks << DIGIT, np.uint64)
    for shift, bits in digits(dtype):
        arguments = (elements, selection, totals, *map(np.int32, (n_ranks, shift, bits)))
        _launch(dtype, "select_digit", SELECT_THREADS, arguments, select_memory(n_ranks))


def _selected(selection: Any, n_ranks: int, dtype: np.dtype[Any]) -> dict[int, Any]:
    """Elements by their places."""
    places = selection["places"][:n_ranks].tolist()
    return dict(zip(places, from_keys(selection["prefixes"][:n_ranks], dtype), strict=True))


# --- Elements -----------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Where the elements of an array lie, as the kernels are told; in any order."""

    pointer: np.uint64
    size: np.int64
    layout: Any  # on the device, for `place_of` of ``elements.cuh``; null if contiguous

    @classmethod
    def of(cls, values: Array) -> Chunk:
        pointer = values.data.ptr
        itemsize = values.dtype.itemsize
        dimensions: list[list[int]] = []  # size and stride, the widest first
        for size, stride in zip(values.shape, values.strides, strict=True):
            if size != 1:
                pointer += min(stride, 0) * (size - 1)
                dimensions.append([size, abs(stride) // itemsize])
        # Broadcast dimensions come first: the others may still be one.
        dimensions.sort(key=lambda d: d[1] or 1 << 62, reverse=True)
        merged: list[list[int]] = []
        for size, stride in dimensions:
            if merged and merged[-1][1] == size * stride:
                merged[-1] = [merged[-1][0] * size, stride]
            else:
                merged.append([size, stride])
        if not merged or (len(merged) == 1 and merged[0][1] == 1):
            return cls(np.uint64(pointer), np.int64(values.size), np.uint64(0))
        sizes, strides = zip(*merged, strict=True)
        layout = cupy.asarray(np.array([len(merged), *sizes, *strides], np.int64))
        return cls(np.uint64(pointer), np.int64(values.size), layout)


def as_selected(values: Array) -> Array:
    """The elements in that dtype: a copy where they are of another."""
    return values.astype(selected_dtype(values.dtype), copy=False)


def _on_host(values: Array) -> NDArray[Any]:
    host = values.get().ravel(order="K")
    return np.ascontiguousarray(host.astype(selected_dtype(host.dtype), copy=False))


# --- Kernels ------------------------------------------------------------------------------------


@cache
def _sizes(dtype: np.dtype[Any], device: int) -> Sizes:
    attribute = cupy.cuda.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
    shared = cupy.cuda.runtime.deviceGetAttribute(attribute, device)
    sizes = sizes_for(dtype, shared)
    if sizes is None:
        raise RuntimeError(
            f"the CUDA device has {shared >> 10} KiB of shared memory a block, less than the "
            "kernels need: compute capability 7.0 or later. Move the chunks to the host "
            "(x.map_blocks(cupy.asnumpy))."
        )
    return sizes


def _launch(
    dtype: np.dtype[Any],
    name: str,
    threads: int,
    arguments: tuple[Any, ...],
    shared: int = 0,
    *,
    blocks: int = 0,
) -> None:
    """Start a kernel with some bytes of shared memory; as many blocks as run at once by default."""
    kernel, at_once = _prepared(dtype, name, threads, shared, cupy.cuda.Device().id)
    kernel((blocks or at_once,), (threads,), arguments, shared_mem=shared)


@cache
def _prepared(
    dtype: np.dtype[Any], name: str, threads: int, shared: int, device: int
) -> tuple[Any, int]:
    """A kernel, and the number of its blocks that the device runs at the same time."""
    kernel = _module(file_of(name), dtype, device).get_function(name)
    if shared > kernel.max_dynamic_shared_size_bytes:
        kernel.max_dynamic_shared_size_bytes = shared
    occupancy = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    each = occupancy(kernel.kernel.ptr, threads, shared)
    attribute = cupy.cuda.runtime.cudaDevAttrMultiProcessorCount
    return kernel, int(each * cupy.cuda.runtime.deviceGetAttribute(attribute, device))


@cache
def _module(file: str, dtype: np.dtype[Any], device: int) -> Any:
    check_device()
    code = source(file, dtype, _sizes(dtype, device))
    return cupy.RawModule(code=code, backend="nvrtc", options=("--std=c++17",))
