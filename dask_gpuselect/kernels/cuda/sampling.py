"""Samples of arrays in memory, and all steps that follow from one without waiting for the host."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate, compress
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import n_true
from dask_gpuselect.kernels.companions import Accompanied, Several, parts_of
from dask_gpuselect.kernels.cuda import source, spans
from dask_gpuselect.kernels.cuda.candidates import (
    FEW_PLACES,
    SELECTION,
    most_selected,
    select_few,
    start_selection,
)
from dask_gpuselect.kernels.cuda.chunk import Chunk, Elements, masked, n_unmasked
from dask_gpuselect.kernels.cuda.launch import (
    Array,
    copied_ahead,
    launch,
    offsets,
    on_device,
    places_in,
)
from dask_gpuselect.kernels.cuda.moments import N_SUMS, moments_of
from dask_gpuselect.kernels.cuda.only_box import box_of, most_listed
from dask_gpuselect.kernels.cuda.only_lane import MOST_READ, wanted_of
from dask_gpuselect.kernels.cuda.source import digits
from dask_gpuselect.maths.boxes import BoxGuess, first_ranks
from dask_gpuselect.maths.cuts import Brackets, IntArray, RanksOf, Tally
from dask_gpuselect.maths.envelope import guess_brackets
from dask_gpuselect.maths.finish import are_gathered, order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import pilot_bracket, pilot_room

# Largest size of a sample, in multiples of the requested one for each bracket. With 2, 4, 8 and 16
# the median of 2^30 float32 took 1.55, 1.52, 1.53 and 1.59 reads.
SAMPLE_TIMES = 4


# Brackets from which on the sample is as large as their number asks for, and their candidates are
# narrowed by a sample of their own; and how many candidates are worth that.
MANY = 12
WORTH_NARROWING = 1 << 22


def sample(values: Elements, size: int) -> NDArray[Any]:
    """Draw valid elements at `size` hashed places, on the host; see `reference.sampling.sample`."""
    drawn: NDArray[Any] = drawn_from(values, size).get()
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


def is_best_whole(values: Any, times: int = 1) -> bool:
    """Return whether all elements are best taken as candidates."""
    dtype = values.dtype
    return bool(times * len(digits(dtype)) * values.size * dtype.itemsize <= MOST_READ)


def whole(values: Elements, ranks: Callable[[int], Any]) -> Tally:
    """Tally a bracket of everything, with the elements of some ranks already selected.

    See `reference.sampling.whole`. Reads the array once for each digit.
    """
    no_ends = np.empty(0, selection_dtype(values.dtype))
    everything = Brackets(no_ends, np.ones(1, np.bool_))
    wanted = np.unique(ranks(values.size))
    if _is_dense(values) and values.dtype == no_ends.dtype and 0 < len(wanted) <= most_selected():
        known, n_missing = select_few(values, wanted)
        if not n_missing:
            counts = np.empty(0, np.int64)
            candidates = spans.DeviceCandidates(values.ravel(order="K"), known=known)
            return Tally(counts, counts, candidates, values.size, 0)
    tally = spans.tally_in_place(values, everything, values.size)
    assert tally is not None
    return tally


def _is_dense(values: Elements) -> bool:
    """Return whether the elements are one unmasked array without gaps."""
    is_one = not isinstance(values, Accompanied | Several)
    return is_one and bool(values.flags.c_contiguous or values.flags.f_contiguous)


def pilot(values: Elements, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Find brackets by a sample of at least `size`, and tally the array there, on the device.

    See `reference.sampling.pilot`.

    Notes
    -----
    Reads the chunk once. Scratch on the device: the candidates, and three times the sample, which
    has at most `SAMPLE_TIMES` times `size` elements for each bracket.
    """
    n = n_unmasked(values)
    n_brackets = len(ranks(n)[0])
    most = SAMPLE_TIMES * max(n_brackets, 1) * size
    size = min(max(size, n >> 8), most, n)
    if n_brackets > MANY:
        size = max(size, _sample_for(n_brackets, n))
    plan = _plan(ranks, n, size, selection_dtype(np.dtype(values.dtype))) if size else None
    guess = None if plan is None else _pilot_on_device(values, n, size, plan)
    brackets, tally = guess or _guessed(values, n, size, ranks)
    if tally is not None and n_brackets > MANY:
        candidates = spans.DeviceCandidates(tally.candidates.elements, select_many=_select_many)
        tally = replace(tally, candidates=candidates)
    return brackets, tally


def _guessed(values: Elements, n: int, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Guess brackets of n elements by a sorted sample, and count there."""
    ordered = _sorted(drawn_from(values, _tries(values, n, size)))
    brackets, share = guess_brackets(
        lambda at: ordered.take(cupy.asarray(at)).get(), ordered.size, *ranks(ordered.size)
    )
    return brackets, spans.tally_in_place(values, brackets, pilot_room(share, n))


def _sample_for(n_brackets: int, n: int) -> int:
    """Choose how many of n elements to sample for many brackets.

    Sorting a sampled element takes about four times as long as writing a candidate and reading it
    twice. Each bracket holds ``3.5 / sqrt(size)`` of all elements, on average over all quantiles.
    """
    return min(int((n_brackets * n / 2) ** (2 / 3)), n // 4)


def _select_many(candidates: Array, places: IntArray) -> NDArray[Any] | None:
    """Select the elements at the places, among the few that a sample of the candidates leaves.

    Reads the candidates once. Scratch: the sample, three times, and those few. None if they are too
    few to be worth it, or if the sample misleads.
    """
    wanted, n = np.unique(places), candidates.size
    if wanted.size <= most_selected() or n < WORTH_NARROWING:
        return None
    is_apart = np.diff(wanted) > 1  # neighbours, as of a quantile, share a bracket
    first, last = wanted[np.append(True, is_apart)], wanted[np.append(is_apart, True)]
    size = _sample_for(len(first), n)
    first, last = ((each * (size / n)).astype(np.int64) for each in (first, last))
    plan = _planned(*pilot_bracket(first, last, size), wanted[:0], size, candidates.dtype)
    guess = None if plan is None else _pilot_on_device(candidates, n, size, plan)
    if guess is None:
        return None
    brackets, tally = guess
    if wanted.size > FEW_PLACES:
        elements = tally.candidates.elements
        elements.sort()  # in place: `cupy.sort` takes a copy
        tally = replace(tally, candidates=spans.DeviceCandidates(elements, is_ordered=True))
    if not are_gathered(brackets, tally, wanted).all():
        return None
    return order_statistics(brackets, tally, wanted)[np.searchsorted(wanted, places)]


def _pilot_on_device(
    values: Elements, n: int, size: int, plan: PreparedPilot
) -> tuple[Brackets, Tally] | None:
    """Run a `pilot` for n unmasked elements by kernels that are all started without waiting.

    They find brackets by the sample, the tally there, and the elements of the wanted ranks, which
    the tally's counts must then prove. With the host in between, the device would wait 0.4 ms.

    None if the sample has missing elements or is too small, or if ties make more candidates than
    expected.
    """
    layout, dtype = plan.layout, plan.layout.dtype["ends"].base
    is_placed = layout.kind == "placed"
    device_sheet = on_device(plan.sheet)
    at = places_in(device_sheet, layout.dtype)

    drawn = cupy.empty(size, dtype)
    start_sample(values, _tries(values, n, size), drawn, at["is_in_vain"], at["n_drawn"])
    if is_placed:
        drawn.sort()
        launch(dtype, "guess_placed", drawn, at["places"], layout.n_ends, at["ends"], blocks=1)
    else:
        start_selection(drawn, at["sample"], layout.n_ends)
        keys = at["sample"] + np.uint64(offsets(SELECTION)["prefixes"])
        first_end = at["bounds"] + np.uint64(dtype.itemsize * (not plan.is_end[0]))
        launch(dtype, "guess", keys, layout.n_ends, first_end, blocks=1)
    candidates = spans.room_for(pilot_room(plan.share, n), values)
    spans.start_tally(values, layout, device_sheet, candidates)
    if plan.n_ranks:
        spans.start_located(candidates, layout, device_sheet, plan.n_ranks)
    del drawn

    host = device_sheet.get()
    sheet = host.view(layout.dtype)[0]
    tally = spans.tally_with(host, layout, candidates, n, plan.n_ranks)
    is_full = sheet["n_drawn"] >= size or not masked(values)
    if sheet["is_in_vain"] or not is_full or tally is None:
        return None
    bounds = sheet["bounds"][: len(layout.spans)].ravel()
    ends = sheet["ends"].copy() if is_placed else bounds[plan.is_end]
    return _without_repeated(Brackets(ends, plan.wanted), tally)


def _without_repeated(brackets: Brackets, tally: Tally) -> tuple[Brackets, Tally]:
    """Remove equal ends of brackets, and the empty cells between them."""
    is_new = brackets.ends[1:] != brackets.ends[:-1]
    if is_new.all():
        return brackets, tally
    ends = np.concatenate([[True], is_new])
    cells = np.concatenate([[True], is_new, [True]])
    fewer = replace(tally, below=tally.below[ends], upto=tally.upto[ends])
    return Brackets(brackets.ends[ends], brackets.wanted[cells]), fewer


class PreparedPilot(NamedTuple):
    """The part of a pilot that does not depend on the elements."""

    layout: spans.Layout
    sheet: Any
    is_end: NDArray[np.bool_]  # flags of the low and the high end of each bracket that exist
    wanted: NDArray[np.bool_]
    share: float
    n_ranks: int  # wanted ranks that are selected; 0 if they are too many


@lru_cache  # cached, as arrays of one size are asked repeatedly; it takes 0.1 ms
def _plan(ranks: RanksOf, n: int, size: int, dtype: np.dtype[Any]) -> PreparedPilot | None:
    return _planned(*pilot_bracket(*ranks(size), size), np.unique(ranks(n)), size, dtype)


def _planned(
    lo: IntArray, hi: IntArray, wanted_ranks: IntArray, size: int, dtype: np.dtype[Any]
) -> PreparedPilot | None:
    """Plan a pilot with brackets from places `lo` to `hi` of a sorted sample.

    None for brackets that overlap, and for too many of them.
    """
    n_brackets = len(lo)
    is_end = np.stack([lo >= 0, hi < size], axis=1).ravel()
    n_ends = int(is_end.sum())
    if not 0 < n_ends <= source.MOST_ENDS or (lo[1:] <= hi[:-1]).any():
        return None
    places = np.stack([lo, hi], axis=1).ravel()[is_end]
    n_ranks = len(wanted_ranks) if len(wanted_ranks) <= most_selected() else 0
    is_placed = n_brackets > source.FEW_SPANS or max(2 * n_brackets, n_ranks) > most_selected()
    segments = np.where(is_end, 2 * np.cumsum(is_end) - 1, [0, 2 * n_ends] * n_brackets)
    wanted = np.zeros(n_ends + 1, np.bool_)
    wanted[(segments[::2] + 1) // 2] = True
    pairs = [[0, 2 * n_ends]] if is_placed else segments.reshape(-1, 2).tolist()
    runs = tuple((first, last) for first, last in pairs)
    kind, n_places = ("placed", n_ends) if is_placed else ("cells", 0)
    layout = spans.layout_of(dtype, runs, n_ends, kind, n_places)
    sheet = spans.blank_sheet(layout)
    if is_placed:
        sheet["places"], sheet["wanted"] = places, wanted
    else:
        sheet["sample"]["n"], sheet["sample"]["ranks"][:n_ends] = size, places
    sheet["ranks"][:n_ranks] = wanted_ranks[:n_ranks]
    share = float((hi - lo).sum() / size)
    return PreparedPilot(layout, sheet, is_end, wanted, share, n_ranks)


def sorted_sample(values: Elements, size: int) -> tuple[Array, float]:
    """Draw a sorted sample on the device, larger for a larger array, with NaN last.

    See `reference.sampling`. Scratch: three times the sample, which has at most `SAMPLE_TIMES`
    times `size` elements.
    """
    size = min(max(size, values.size >> 8), SAMPLE_TIMES * size, values.size)
    drawn = drawn_from(values, size)
    drawn.sort()
    return drawn, size / max(values.size, 1)


def guess_and_sums(
    values: Elements, sample: Array, guess: BoxGuess, most: int
) -> tuple[Brackets, Tally | None, Moments] | LaneBoxes | None:
    """Find brackets by a sorted sample, tally the array there and sum it, without the host.

    See `reference.sampling.guess_and_sums`. Return the box alone if it is known then. None if the
    sample has missing elements, infinities or many ties, or if much of it is near a fence: then the
    array was not read. On an H100 the device waited 0.9 ms for a guess on the host, out of 5.5 ms
    for a box of 2^30 float32.
    """
    dtype, n = np.dtype(values.dtype), values.size
    plan = None if masked(values) else _plan_of_box(guess, n, np.dtype(sample.dtype))
    if plan is None:
        return None
    layout = plan.layout
    device_sheet = on_device(plan.sheet, 8 * N_SUMS, room=2 * plan.n_listed * sample.itemsize)
    at, pieces = places_in(device_sheet, layout.dtype), source.pieces_of(dtype)
    places = at["sample"] + np.uint64(offsets(SELECTION)["ranks"])
    numbers = guess.n_extreme, guess.most_near, guess.most_tied, guess.rule.whis
    into = at["ends"], at["top"], at["form"]
    given, made = (sample, sample.size, places, *numbers), (("PIECES", pieces),)
    launch(dtype, "guess_box", *given, *into, blocks=1, defined=made)
    form_at = offsets(layout.dtype)["form"]
    chosen = copied_ahead(device_sheet[form_at : form_at + 4].view(np.int32))
    candidates = spans.room_for(most, values)
    start = partial(spans.start_tally, values, layout, device_sheet, candidates)
    likely = spans.form_of(pieces, is_keyed=dtype.kind != "f")
    start(likely)
    form = int(chosen()[0])
    if form == 0:
        return None
    if form != likely:
        start(form)
    spans.start_located(candidates, layout, device_sheet, plan.n_ranks)
    if plan.wanted is not None:
        _start_box(candidates, plan, device_sheet, guess.rule.whis)
    host = device_sheet.get()
    sheet = host[: layout.dtype.itemsize].view(layout.dtype)[0]
    if _is_box_known(sheet, plan, candidates):
        box = box_of(host[offsets(layout.dtype)["box"] :], n, guess.rule, candidates.dtype)
        if box is not None:
            return box
    brackets = guess.brackets(sheet["ends"].copy())
    tally = spans.tally_with(host, layout, candidates, n, plan.n_ranks)
    sums = moments_of(spans.sums_behind(host, layout), n)
    return *((brackets, tally) if tally is None else _without_repeated(brackets, tally)), sums


class PreparedBox(NamedTuple):
    """The part of `guess_and_sums` that does not depend on the elements.

    `wanted` tells how quartiles follow from the selected elements; it is None if the kernel of
    ``sampled_box.cu`` cannot find the box. `n_listed` elements of each side are listed.
    """

    layout: spans.Layout
    sheet: Any
    n_ranks: int
    wanted: Any
    n_listed: int


@lru_cache(maxsize=16)  # 0.2 ms, while the device waits
def _plan_of_box(guess: BoxGuess, n: int, dtype: np.dtype[Any]) -> PreparedBox | None:
    """Plan the box of n elements; None if too many ranks are wanted.

    The sheet is for the brackets of the guess, whose ends the device finds.
    """
    ranks = first_ranks(guess.rule, n)
    if len(ranks) > most_selected():
        return None
    layout = spans.layout_of(dtype, ((0, 2 * guess.n_ends),), guess.n_ends, "placed")
    sheet = spans.blank_sheet(layout)
    sheet["wanted"] = guess.brackets(sheet["ends"]).wanted
    sheet["sample"]["ranks"][: len(guess.places)] = guess.places
    sheet["ranks"][: len(ranks)] = ranks
    k = most_listed(guess.order, n, guess.rule)
    wanted, _ = (k and wanted_of(guess.order, n, (k - 1, n - k))) or (None, 0)
    return PreparedBox(layout, sheet, len(ranks), wanted, 0 if wanted is None else k)


def _start_box(candidates: Array, plan: PreparedBox, device_sheet: Array, whis: Any) -> None:
    """Start the kernel that finds the rest of a box on a sheet, after its selection."""
    layout = plan.layout
    at, behind = places_in(device_sheet, layout.dtype), layout.dtype.itemsize + 8 * N_SUMS
    selected_keys = at["selection"] + np.uint64(offsets(SELECTION)["prefixes"])
    gathered = candidates, candidates.size, at["n_found"], at["form"], selected_keys
    counted = at["ends"], at["wanted"], at["held"], layout.n_ends
    into = at["box"], device_sheet[behind:], plan.n_listed
    made = (("ANSWER", 64), ("ONLY_MOST", len(plan.wanted["ranks"])))
    given = (*gathered, *counted, plan.wanted, whis, *into)
    launch(candidates.dtype, "sampled_box", *given, defined=made)


def _is_box_known(sheet: Any, plan: PreparedBox, candidates: Array) -> bool:
    """Return whether the counts of a tally prove the box that a kernel found in its candidates.

    The quartiles must be candidates. So must be the elements beyond the fence of each side, or the
    most extreme ones.
    """
    about, k, box = plan.wanted, plan.n_listed, sheet["box"]
    n_found = int(sheet["n_found"])
    if about is None or n_found > candidates.size or box["is_unknown"]:
        return False
    counts, is_wanted = sheet["held"].tolist(), sheet["wanted"].tolist()  # lists: few numbers
    upto = list(accumulate(counts))
    if upto[-1] != about["n"] or sum(compress(counts[::2], is_wanted)) != n_found:
        return False
    for place in (*about["lower"][:3].tolist(), *about["upper"][:3].tolist()):
        segment = bisect_right(upto, int(about["ranks"][place]))
        if segment % 2 or not is_wanted[segment // 2]:
            return False
    numbers = box["n_below"], box["n_above"]
    sides = zip(numbers, (counts[0], counts[-1]), box["n_listed"], strict=True)
    return all(tail >= k if n >= k else listed == n for n, tail, listed in sides)


def _sorted(drawn: Array) -> Array:
    """Sort a sample, and drop NaN."""
    drawn.sort()
    if drawn.dtype.kind != "f":
        return drawn
    return drawn[: drawn.size - n_true(cupy.isnan(drawn))]  # NaN is last


def drawn_from(values: Elements, size: int) -> Array:
    """Draw the unmasked elements at `size` hashed places, NaN included."""
    drawn = cupy.empty(size, selection_dtype(values.dtype))
    numbers = cupy.zeros(2, np.uint64)
    if size:
        start_sample(values, size, drawn, numbers[:1], numbers[1:])
    return drawn[: int(numbers[1])] if masked(values) else drawn


def start_sample(values: Elements, size: int, drawn: Array, has_missing: Any, n_drawn: Any) -> None:
    """Start the kernel that draws unmasked elements at `size` hashed places while there is room.

    It writes whether some are NaN, and for a masked array how many were drawn. Several arrays share
    the places in proportion to their sizes; the elements of each follow those of the one before.
    Each has other places: chunks are often alike, such as multiples of one, and elements at the
    same places of all of them would tell no more than those of one.
    """
    more = masked(values)
    first = n_before = 0
    for part in parts_of(values):
        n_before += part.size
        last = size * n_before // max(values.size, 1)
        if last == first:
            continue
        room = drawn if more else drawn[first:last]
        n = last - first
        given = (*Chunk.of(part), n, first, room.size, room, has_missing, n_drawn)
        launch(part.dtype, "sample", *given, n_threads=n, defined=more)
        first = last


def _tries(values: Elements, n: int, size: int) -> int:
    """Return how many places to read for `size` of n unmasked elements; nearly always enough."""
    if n == values.size:
        return size
    enough = (size + 6 * math.isqrt(size) + 64) * values.size // max(n, 1)
    return int(min(enough, values.size))
