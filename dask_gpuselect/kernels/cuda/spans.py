"""Load 2: counts at the ends of brackets, and candidates. The host side of ``spans.cu``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import parts_of
from dask_gpuselect.kernels.cpu import spans as cpu
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.candidates import (
    FEW_PLACES,
    SELECTION,
    most_selected,
    select,
    selected,
    start_selection,
)
from dask_gpuselect.kernels.cuda.chunk import (
    FEW,
    Chunk,
    Elements,
    distances_from,
    masked,
    n_unmasked,
    on_host,
)
from dask_gpuselect.kernels.cuda.launch import Array, launch, on_device, places_in
from dask_gpuselect.kernels.cuda.moments import N_SUMS, moments, moments_of
from dask_gpuselect.kernels.cuda.only_lane import BOX_RESULTS
from dask_gpuselect.kernels.cuda.source import cut_for
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.candidates import SIDES, Candidates, Counts, Sort
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally, extremes_of
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.moments import Moments

# Candidates that NumPy partitions in a millisecond: 2e7 took it 300 ms, and a GPU 15 with the copy.
WORTH_MOVING = 1 << 16

Span = tuple[int, int]
"""The first and the last segment of a run that is counted as one; see `_spans`."""


@dataclass(frozen=True, eq=False)
class DeviceCandidates(Candidates):
    """Candidates on a device, in ascending order or not."""

    known: Mapping[int, Any] = field(default_factory=dict)
    """Elements that are selected already, by their places."""
    select_many: Callable[[Array, IntArray], NDArray[Any] | None] | None = None
    """Function from the elements and many places to what a sort puts there, or to None."""

    def elements_at(self, places: IntArray) -> NDArray[Any]:
        """Return the elements at the given places of the sorted candidates, on the host.

        Scratch: 0.1 MB; for more than `FEW_PLACES`, what sorting takes.
        """
        found = None if self.select_many is None else self.select_many(self.elements, places)
        if found is not None:
            return found
        if self.is_ordered:
            return reference.elements_at(self.elements, places)
        if all(place in self.known for place in places.tolist()):
            return np.array([self.known[place] for place in places.tolist()], self.dtype)
        few = np.unique(places)
        if few.size > FEW_PLACES:
            return self.ordered().elements_at(places)
        return select(self.elements, few)[np.searchsorted(few, places)]

    def on_host(self) -> NDArray[Any]:
        """Return all candidates, in no particular order."""
        return np.asarray(self.elements.get())

    def counts(self, values: NDArray[Any]) -> Counts:
        """Count the elements below, and up to, each of some values.

        Reads the elements once for every `source.MOST_ENDS` values, unless they are sorted.
        """
        if self.is_ordered:
            below, upto = (reference.places_of(self.elements, values, side) for side in SIDES)
            return below, upto
        nothing = Brackets(
            values.astype(self.dtype, copy=False), np.zeros(len(values) + 1, np.bool_)
        )
        tallied = tally_on_device(self.elements, nothing, 0)
        assert tallied is not None
        return tallied.below, tallied.upto

    def distances(self, centre: Any) -> DeviceCandidates:
        return DeviceCandidates(distances_from(self.elements, centre, centre.dtype))

    def with_more(self, elements: NDArray[Any]) -> DeviceCandidates:
        more = on_device(elements).view(self.dtype)
        return DeviceCandidates(cupy.concatenate([self.elements, more]))

    def ordered(self, by: Sort = cupy.sort) -> DeviceCandidates:
        return self if self.is_ordered else DeviceCandidates(by(self.elements), is_ordered=True)


def tally(values: Elements, brackets: Brackets, most: int) -> Tally | None:
    """Count elements at the ends and gather candidates; see `reference.selection.tally`.

    `values` are as for `cuts`. Reads the chunk once for every 1,024 ends. Scratch on the device:
    `most` elements.
    """
    if values.size <= FEW:
        return cpu.tally(on_host(values), brackets, most)
    tallied = tally_on_device(values, brackets, most)
    return tallied and replace(tallied, candidates=Candidates(tallied.candidates.on_host()))


Ranks = Callable[[int], IntArray] | None
"""Function from a number of elements to the ranks that will be wanted first, if they are known."""


def tally_in_place(
    values: Elements, brackets: Brackets, most: int, ranks: Ranks = None
) -> Tally | None:
    """Count elements at the ends; candidates stay on the device. Scratch: `most` elements.

    The elements of the ranks are selected as in `tally_and_sums`.
    """
    if len(brackets.ends) > source.MOST_ENDS:
        return tally_on_device(values, brackets, most)
    return _tally_few(values, brackets, most, ranks)[0]


def merged(parts: Sequence[Tally]) -> Tally:
    """Merge the tallies of all parts; the candidates are on the current device if they are many."""
    if sum(len(part.candidates) for part in parts) < WORTH_MOVING:
        return Tally.merge(parts)
    nothing = Candidates(np.empty(0, parts[0].candidates.dtype))
    counts = Tally.merge([replace(part, candidates=nothing) for part in parts])
    elements = cupy.concatenate([cupy.asarray(part.candidates.elements) for part in parts])
    return replace(counts, candidates=DeviceCandidates(elements))


def tally_on_device(values: Elements, brackets: Brackets, most: int) -> Tally | None:
    """Count elements at the ends, with candidates on the device; None if more than `most`."""
    if len(brackets.ends) <= source.MOST_ENDS + 1:
        return _tally_few(values, brackets, most)[0]
    some, others = split(brackets, source.MOST_ENDS)
    first = tally_on_device(values, some, most)
    second = first and tally_on_device(values, others, most - len(first.candidates))
    return first and second and joined(first, second)


def split(brackets: Brackets, k: int) -> tuple[Brackets, Brackets]:
    """Split brackets behind k ends; the last of these is counted again, where the others begin."""
    ends, wanted = brackets.ends, brackets.wanted
    cells = np.append(wanted[:k], False), np.append(False, wanted[k:])
    return Brackets(ends[:k], cells[0]), Brackets(ends[k - 1 :], cells[1])


def joined(first: Tally, second: Tally) -> Tally:
    """Join the tallies of two parts that `split` made; the candidates stay on the device."""
    elements = [each.candidates.elements for each in (first, second)]
    made: dict[str, Any] = {"candidates": DeviceCandidates(cupy.concatenate(elements))}
    names = ["below", "upto"]
    if first.weights is not None:
        made["weights"] = cupy.concatenate([first.weights, second.weights])
        names += ["weight_below", "weight_upto"]
    for name in names:
        columns = getattr(first, name), getattr(second, name)[1:]
        is_exact = isinstance(columns[0], ExactSums)
        made[name] = (ExactSums.joined if is_exact else np.concatenate)(columns)
    return replace(first, **made)


def tally_and_sums(
    values: Elements, brackets: Brackets, most: int, ranks: Ranks
) -> tuple[Tally | None, Moments]:
    """Count elements at the ends, with candidates on the device, and sum the array exactly.

    See `reference.sampling.tally_and_sums`. The elements of the ranks are selected without waiting
    for the counts, which must then prove them. Reads the chunk once. Scratch: `most` elements.
    """
    if len(brackets.ends) > source.MOST_ENDS:
        sums = Moments.merge([moments(part, brackets.ends) for part in parts_of(values)])
        return tally_on_device(values, brackets, most), sums
    tally, summed, n = _tally_few(values, brackets, most, ranks, is_summed=True)
    return tally, moments_of(summed, n)


def _tally_few(
    values: Elements,
    brackets: Brackets,
    most: int,
    ranks: Ranks = None,
    *,
    is_summed: bool = False,
) -> tuple[Tally | None, IntArray, int]:
    """Tally an array at few ends.

    Return the tally, the digits of sums if it is summed, and the number of unmasked elements.
    """
    layout, sheet = _sheet_of(brackets)
    n, form = n_unmasked(values), 0
    wanted = np.empty(0, np.int64) if ranks is None else ranks(n)
    is_located = layout.kind != "ends" and len(wanted) <= most_selected()
    n_ranks = len(wanted) if is_located else 0
    sheet["ranks"][:n_ranks] = wanted[:n_ranks]
    if is_summed:
        pieces, sheet["top"] = cut_for(brackets.ends, np.dtype(values.dtype))
        form = sheet["form"] = form_of(pieces, is_keyed=layout.kind == "placed")
    device_sheet = on_device(sheet, 8 * N_SUMS * is_summed)
    candidates = room_for(most, values)
    start_tally(values, layout, device_sheet, candidates, form)
    if n_ranks:
        start_located(candidates, layout, device_sheet, n_ranks)
    host = device_sheet.get()
    return tally_with(host, layout, candidates, n, n_ranks), sums_behind(host, layout), n


def tally_with(host: Any, layout: Layout, candidates: Array, n: int, n_ranks: int) -> Tally | None:
    """Read the tally of n elements, with those of the wanted ranks, from a copy of the sheet."""
    sheet = host[: layout.dtype.itemsize].view(layout.dtype)[0]
    tally = tally_of(sheet, layout, candidates, n)
    if tally is None or not n_ranks:
        return tally
    known = selected(sheet["selection"], n_ranks, candidates.dtype)
    return replace(tally, candidates=DeviceCandidates(tally.candidates.elements, known=known))


def sums_behind(host: Any, layout: Layout) -> IntArray:
    """Return the sums behind a copy of a sheet, a row."""
    size = layout.dtype.itemsize
    sums: IntArray = host[None, size : size + 8 * N_SUMS].view(np.int64)
    return sums


def form_of(pieces: int, *, is_keyed: bool) -> int:
    """Return the number of the form of the kernel that counts and sums elements.

    `pieces` is the number of pieces into which elements are cut. `is_keyed` says whether the table
    of many ends has steps that are even in the bits of floats.
    """
    return 2 * pieces + is_keyed


def room_for(most: int, values: Elements) -> Array:
    """Take device memory for candidates."""
    return cupy.empty(most, selection_dtype(np.dtype(values.dtype)))


def _sheet_of(brackets: Brackets) -> tuple[Layout, Any]:
    """Make spans of brackets, and a sheet that describes them to a kernel."""
    ends = brackets.ends
    spans, kind = _spans(brackets)
    layout = layout_of(ends.dtype, spans, len(ends), kind)
    sheet = blank_sheet(layout)
    sheet["ends"], sheet["wanted"] = ends, brackets.wanted
    for bounds, (first, last) in zip(sheet["bounds"], spans, strict=False):
        if first % 2:
            bounds[0] = ends[first // 2]
        if last % 2:
            bounds[1] = ends[last // 2]
    return layout, sheet


def start_tally(
    values: Elements,
    layout: Layout,
    device_sheet: Array,
    candidates: Array,
    form: int = 0,
) -> None:
    """Start the kernel.

    With a form of `form_of` it also sums the elements, if the sheet has the same one; the sums need
    room behind the sheet.
    """
    dtype = np.dtype(values.dtype)
    at = places_in(device_sheet, layout.dtype)
    names = ("bounds", "segments", "ends", "wanted", "is_in_vain", "form")
    places = [at[name] for name in names]
    outs = (len(layout.spans), layout.n_ends, at["below"], candidates, candidates.size)
    into = (at["top"], np.uint64(device_sheet.data.ptr + layout.dtype.itemsize))
    kind = source.SPANS_ARE[layout.kind]
    made = (("SPANS", layout.room), ("SPANS_ARE", kind), *masked(values))
    if form:
        pieces, is_keyed = divmod(form, 2)
        made = (("SUMMED", 1), ("PIECES", pieces), ("KEYED", is_keyed), *made)
    memory = source.tally_memory(dtype, layout.n_ends)
    if layout.kind == "placed":
        memory += 4 + (4 << source.TABLE_BITS)
    for part in parts_of(values):  # which add to the same counts and sums
        arguments = (*Chunk.of(part), *places, *outs, *into)
        launch(dtype, "tally", *arguments, shared=memory, defined=made)


def start_located(candidates: Array, layout: Layout, device_sheet: Array, n_ranks: int) -> None:
    """Start the selection of the elements of the ranks on a sheet, after its tally."""
    at = places_in(device_sheet, layout.dtype)
    where = (candidates.size, at["ranks"], n_ranks, at["selection"])
    if layout.kind == "placed":
        given = (at["held"], at["wanted"], layout.n_ends, at["n_found"], *where)
        launch(candidates.dtype, "locate_placed", *given, blocks=1)
    else:
        places = [at[name] for name in ("below", "n_found", "held", "segments")]
        launch(candidates.dtype, "locate", *places, len(layout.spans), *where, blocks=1)
    start_selection(candidates, at["selection"], n_ranks)


def tally_of(sheet: Any, layout: Layout, candidates: Array, size: int) -> Tally | None:
    """Read a tally of `size` elements from a sheet; None if the candidates had no room."""
    n_missing, n_found = int(sheet["n_missing"]), int(sheet["n_found"])
    if n_found > candidates.size:
        return None
    inside = sheet["held"]
    before = np.zeros_like(inside)  # elements before each segment
    for (first, last), n_below in zip(layout.spans, sheet["below"], strict=False):
        counts = inside[first : last + 1]
        before[first : last + 1] = n_below + np.cumsum(counts) - counts
    below = before[1::2]
    gathered = DeviceCandidates(candidates[:n_found])
    return Tally(below, below + inside[1::2], gathered, size - n_missing, n_missing)


def _spans(brackets: Brackets) -> tuple[tuple[Span, ...], str]:
    """Return runs of segments, wanted cells and ends, that are counted as one each, and their kind.

    Segment 2j is cell j, and segment 2j + 1 is end j. One run has all segments if there are more
    than a few, or if some has several cells.
    """
    n_ends = len(brackets.ends)
    counted = np.ones(2 * n_ends + 3, np.bool_)
    counted[1:-1:2] = brackets.wanted
    counted[[0, -1]] = False
    borders = np.flatnonzero(counted[1:] != counted[:-1]).reshape(-1, 2)
    spans = tuple((int(first), int(stop) - 1) for first, stop in borders)
    if len(spans) > source.FEW_SPANS or any(last - first > 1 + first % 2 for first, last in spans):
        return ((0, 2 * n_ends),), "placed"
    return spans, "cells" if brackets.wanted.any() else "ends"


class Layout(NamedTuple):
    """Layout of a sheet, which holds the input of a kernel and its results.

    It is one piece of memory, so that one copy goes to the device and one comes back.
    """

    dtype: np.dtype[Any]
    spans: tuple[Span, ...]
    room: int  # the number of spans that the kernel is made for
    n_ends: int
    kind: str  # of the kernel; if it is "placed", a table finds the cells of one span of everything


@lru_cache
def layout_of(
    dtype: np.dtype[Any], spans: tuple[Span, ...], n_ends: int, kind: str, n_places: int = 0
) -> Layout:
    room = next(n for n in source.SPANS if n >= len(spans))
    fields = [
        ("bounds", dtype, (room, 2)),
        ("segments", "i4", (room, 2)),
        ("wanted", "?", (n_ends + 1,)),
        # Fields of a pilot: the sample's elements at the ends, a flag for an unusual sample, whose
        # elements are misplaced, and the answer.
        ("sample", SELECTION),
        ("is_in_vain", "u8"),
        ("n_drawn", "u8"),
        ("top", "i4"),  # of sums: at which power of two elements are cut
        ("form", "i4"),  # of the kernel that sums; 0 if the sample is not of the usual kind
        ("ranks", "i8", (source.MOST_SELECTED,)),
        ("places", "i8", (n_places,)),  # of the ends in a sorted sample
        ("ends", dtype, (n_ends,)),
        ("selection", SELECTION),
        # `totals` of the kernel:
        ("below", "i8", (room,)),
        ("n_missing", "i8"),
        ("n_found", "i8"),
        ("held", "i8", (2 * n_ends + 1,)),  # by each segment
        ("box", BOX_RESULTS),  # of all elements; sums and listed elements are behind it
    ]
    return Layout(np.dtype(fields, align=True), spans, room, n_ends, kind)


def blank_sheet(layout: Layout) -> Any:
    """Make a record of the layout, with spans that hold all elements."""
    sheet = np.zeros((), layout.dtype)
    dtype = sheet["bounds"].dtype
    least, most = extremes_of(dtype)
    # A span of nothing, if none is left: what is below it is also up to it.
    sheet["bounds"] = most, np.nextafter(most, least) if dtype.kind == "f" else most - dtype.type(1)
    n_spans = len(layout.spans)
    sheet["bounds"][:n_spans] = least, most
    sheet["segments"][:n_spans] = np.array(layout.spans, np.int32).reshape(-1, 2)
    return sheet
