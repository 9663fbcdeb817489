"""What happens to one chunk.

The functions here take chunks of any kind, and hand them to the kernels for that kind: see
`registry.backend_for`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    all_true,
    checked,
    is_kind,
    like,
    namespace,
    numpy_dtype,
)
from dask_gpuselect.kernels.companions import (
    Accompanied,
    CodesOf,
    Several,
    as_codes,
    checked_chunk,
    group_codes,
    parts_of,
    values_of,
)
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.kernels.protocols import Backend, Weighing
from dask_gpuselect.kernels.reference.lower_sets import exponent_of as exponent_of
from dask_gpuselect.kernels.reference.lower_sets import running_minimum as running_minimum
from dask_gpuselect.kernels.reference.lower_sets import scaled as scaled
from dask_gpuselect.kernels.reference.selection import elements_at as elements_at
from dask_gpuselect.kernels.reference.selection import elements_of as elements_in_order
from dask_gpuselect.kernels.reference.selection import valid_in as valid_in
from dask_gpuselect.kernels.reference.weighing import with_others
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.kernels.slots import each_slot
from dask_gpuselect.kernels.slots import in_slots as in_slots
from dask_gpuselect.kernels.slots import is_on_device as is_on_device
from dask_gpuselect.maths import group_cuts as group_cuts_
from dask_gpuselect.maths import lane_cuts as lane_cuts_
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.boxes import BoxGuess, Rule
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, RanksOf, Tally
from dask_gpuselect.maths.group_cuts import GroupBrackets, GroupCuts, GroupTally
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.labels import Labels
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneOrder,
    Lanes,
    LaneTally,
    RanksOfLanes,
)
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.nearest import Nearest, NearestRows
from dask_gpuselect.maths.rulers import Ruler, pivots_inside, ruled_cuts
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.maths.slots import over_slots
from dask_gpuselect.maths.tails import LaneTails, TailSizes
from dask_gpuselect.maths.weights import WeightedBrackets, WeightedCuts, WeightedTally
from dask_gpuselect.maths.windows import Frame, RowWindows, WindowOrder
from dask_gpuselect.strategies import probes
from dask_gpuselect.strategies.known import Sorting

# --- All elements ---------------------------------------------------------------------------------


@one_way
def elements_of(chunk: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """The elements of a chunk as its kernels take them, without NaT, and the number of NaT."""
    if isinstance(chunk, Several):
        parts, n_nat = zip(*(elements_of(part, dtype) for part in chunk.parts), strict=True)
        return Several(parts), sum(n_nat)
    chunk = checked_chunk(chunk, dtype)
    selection = backend_for(chunk).selection
    takes = selection.kept if isinstance(chunk, Accompanied) else selection.elements_of
    return takes(chunk, dtype)


@one_way
@each_slot
def cuts(chunk: Any, dtype: np.dtype[Any], share: int) -> Cuts:
    """The cuts of a chunk of any shape, at so many pivots as `sizes.pivot_count` says."""
    if _is_weighted(chunk):
        return _weighted_cuts(chunk, dtype, share)
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).selection.cuts(values, pivot_count(math.prod(values.shape), share))
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat else found


@one_way
def tally_and_cuts(
    chunk: Any, dtype: np.dtype[Any], share: int, ruler: Ruler, brackets: Brackets, most: int
) -> tuple[Tally, Cuts | None] | None:
    """The tally of a chunk without weights at some brackets, and its cuts: inside these at pivots
    of its own, and elsewhere at bars of a ruler.

    None if it has more than `most` candidates, or where that is no faster than both apart; and no
    cuts if a cell elsewhere would hold too much.
    """
    values, n_nat = elements_of(chunk, dtype)
    selection = backend_for(values).selection
    measured = selection.tally_by_ruler(values, ruler, brackets, most)
    if measured is None or not measured[0].n_valid:
        return None
    found, below, upto = measured
    whole = _with_others(found, chunk, n_nat)
    assert whole is not None
    n_pivots = pivot_count(math.prod(values.shape), share)
    inside = selection.cuts(found.candidates.on_host(), pivots_inside(n_pivots))
    return whole, ruled_cuts(ruler, below, upto, brackets, whole, inside, n_pivots)


@one_way
@each_slot
def tally(chunk: Any, dtype: np.dtype[Any], brackets: Brackets, most: int) -> Tally | None:
    """The tally of a chunk of any shape; None if it has more than `most` candidates."""
    if _is_weighted(chunk):
        return _weighted_tally(chunk, dtype, brackets, most)
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).selection.tally(values, brackets, most)
    return _with_others(found, chunk, n_nat)


@one_way
@each_slot
def tally_in_place(chunk: Any, dtype: np.dtype[Any], brackets: Brackets, most: int) -> Tally | None:
    """The tally of a chunk of any shape, with candidates that stay on its device; None if there are
    more than `most`."""
    if _is_weighted(chunk):
        chunk = checked_chunk(chunk, dtype)
        return backend_for(chunk).weighing.tally_in_place(chunk, dtype, brackets, most)
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).selection.tally_in_place(values, brackets, most)
    return _with_others(found, chunk, n_nat)


def _with_others(found: Tally | None, chunk: Any, n_nat: int) -> Tally | None:
    """A tally with the elements that its kernel has not seen: NaT, and those that are left out."""
    if found is None or not (n_nat or isinstance(chunk, Accompanied | Several)):
        return found
    n_missing = found.n_missing + n_nat
    n_left_out = math.prod(chunk.shape) - found.n_valid - n_missing
    return replace(found, n_missing=n_missing, n_left_out=n_left_out)


def _is_weighted(chunk: Any) -> bool:
    return isinstance(chunk, Accompanied) and chunk.weights is not None


def _weighed(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Weighing, Any, Any, int]:
    """The kernels for a chunk with weights, its elements that take part, their weights, and how
    many are missing."""
    chunk = checked_chunk(chunk, dtype)
    kernel = backend_for(chunk).weighing
    return kernel, *kernel.weighed(chunk, dtype)


def _weighted_cuts(chunk: Accompanied, dtype: np.dtype[Any], share: int) -> WeightedCuts:
    kernel, values, weights, n_missing = _weighed(chunk, dtype)
    found = kernel.cuts(values, weights, pivot_count(math.prod(values.shape), share))
    return replace(found, n_missing=found.n_missing + n_missing)


def _weighted_tally(
    chunk: Accompanied, dtype: np.dtype[Any], brackets: Brackets, most: int
) -> WeightedTally | None:
    kernel, values, weights, n_missing = _weighed(chunk, dtype)
    found = kernel.tally(values, weights, brackets, most)
    if found is None:
        return None
    found = with_others(found, chunk, n_missing)
    if not isinstance(brackets, WeightedBrackets):
        return found
    square = moments(weights, found.weights, numpy_dtype(weights)).square
    products = kernel.products(values, weights, brackets.ends, brackets.summed)
    return replace(found, square=square, products=products)


@one_way
@over_slots
def merged(parts: Sequence[Tally], array: Any) -> Tally:
    """The tally of all parts together, with its candidates where selecting is fastest, for answers
    of the kind of `array`: many of them on the GPU, where they came from. Those that weigh are on
    the host."""
    weighted = [part for part in parts if isinstance(part, WeightedTally)]
    if weighted:
        return WeightedTally.merge(weighted)
    return backend_for(array).selection.merged(parts)


@one_way
@each_slot
def moments(chunk: Any, near: NDArray[Any], dtype: np.dtype[Any]) -> Moments:
    """Exact sums of a chunk, of each element as often as it weighs. `near` has some values of the
    kind that it holds: how fast the sums are depends on them, and nothing else."""
    if _is_weighted(chunk):
        kernel, *elements, _ = _weighed(chunk, dtype)
        return kernel.moments(*elements)
    values, _ = elements_of(chunk, dtype)
    kernel_of = backend_for(values).moments.moments
    found = [kernel_of(part, near) for part in parts_of(values)]
    return found[0] if len(found) == 1 else Moments.merge(found)


def report(chunk: Any, dtype: np.dtype[Any], probe: probes.Measure) -> probes.Report:
    """What a strategy's probe finds in a chunk of any shape."""
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).measures.report(values, probe)
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat else found


def ordered(candidates: Candidates, sorting: Sorting) -> Candidates:
    """Candidates as a strategy brings them in order, before some of them are selected."""
    if not sorting.is_whole:
        return candidates
    if not sorting.sub_array:
        return candidates.ordered()
    by_network = backend_for(candidates.elements).bitonic.bitonic_sorted
    return candidates.ordered(partial(by_network, sub_array=sorting.sub_array))


# --- Arrays in memory -----------------------------------------------------------------------------


@one_way
def sample(chunk: Any, dtype: np.dtype[Any], rate: float) -> NDArray[Any]:
    """Valid elements at hashed places of a chunk, about `rate` of all, on the host."""
    values, _ = elements_of(chunk, dtype)
    n: int = math.prod(values.shape)
    return backend_for(values).sampling.sample(values, min(n, math.ceil(rate * n)))


@one_way
def sorted_sample(array: Any, dtype: np.dtype[Any], size: int) -> tuple[Any, float]:
    """Elements at `size` hashed places of an array or more, ascending, on its device, of which NaN
    may be the last (see `valid_in`); and which share of all places these are. A `WeightedSample`,
    of valid elements, if the array has weights."""
    if _is_weighted(array):
        array = checked_chunk(array, dtype)
        return backend_for(array).weighing.sorted_sample(array, dtype, size)
    values, _ = elements_of(array, dtype)
    return backend_for(values).sampling.sorted_sample(values, min(size, math.prod(values.shape)))


@one_way
def pilot(
    array: Any, dtype: np.dtype[Any], size: int, ranks: RanksOf
) -> tuple[Brackets, Tally | None]:
    """Brackets by a sample of `size` elements or more, and the tally there, with candidates that
    stay on the array's device."""
    values, n_nat = elements_of(array, dtype)
    size = min(size, math.prod(values.shape))
    brackets, found = backend_for(values).sampling.pilot(values, size, ranks)
    return brackets, _with_others(found, array, n_nat)


@one_way
def tally_and_sums(
    array: Any,
    dtype: np.dtype[Any],
    brackets: Brackets,
    most: int,
    ranks: Callable[[int], IntArray],
) -> tuple[Tally | None, Moments]:
    """The tally of an array whose elements do not weigh, with candidates that stay on its device,
    None if there are more than `most`; and exact sums. `ranks` are those that will be wanted first,
    of so many elements."""
    values, n_nat = elements_of(array, dtype)
    found, sums = backend_for(values).sampling.tally_and_sums(values, brackets, most, ranks)
    return _with_others(found, array, n_nat), sums


@one_way
def guess_and_sums(
    array: Any,
    dtype: np.dtype[Any],
    sample: Any,
    guess: BoxGuess,
    most: int,
    ranks: Callable[[int], IntArray],
) -> tuple[Brackets, Tally | None, Moments] | None:
    """Brackets that an array's device finds in a sorted sample by itself, and `tally_and_sums`
    there; None if it does not, or if the sample is not of the usual kind."""
    values, n_nat = elements_of(array, dtype)
    found = backend_for(values).sampling.guess_and_sums(values, sample, guess, most, ranks)
    if found is None:
        return None
    brackets, tally, sums = found
    return brackets, _with_others(tally, array, n_nat), sums


def is_best_whole(array: Any) -> bool:
    """Whether an array is so small that all its elements are best taken for candidates."""
    values = values_of(array)
    return backend_for(values).sampling.is_best_whole(values)


def is_best_counted(array: Any) -> bool:
    """Whether an array of countable elements had best be counted, where ranks are all that is
    asked, and not sampled."""
    values = values_of(array)
    return backend_for(values).sampling.is_best_counted(values)


def together(arrays: Sequence[Any]) -> Any:
    """Several arrays of one kind and dtype as one: as they lie, or copied where all of them are so
    small that all elements are best taken for candidates."""
    if len(arrays) == 1:
        return arrays[0]
    several = Several(tuple(arrays))
    if any(isinstance(array, Accompanied) for array in arrays) or not is_best_whole(several):
        return several
    xp = namespace(arrays[0])
    return xp.concatenate([array.reshape(-1) for array in arrays])


@one_way
def whole(array: Any, dtype: np.dtype[Any], ranks: RanksOf) -> tuple[Brackets, Tally]:
    """A bracket of everything, and the tally there, for the elements of some ranks."""
    values, n_nat = elements_of(array, dtype)
    found = backend_for(values).sampling.whole(values, ranks)
    everything = Brackets(np.empty(0, selection_dtype(dtype)), np.ones(1, np.bool_))
    tally = _with_others(found, array, n_nat)
    assert tally is not None
    return everything, tally


# --- Lanes ----------------------------------------------------------------------------------------


@one_way
def answer_lanes(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], question: LaneOrder
) -> Any:
    """The answers for every lane along `axes`, of all chunks together, ``(n_answers, n_lanes)``, in
    kind; see `lanes`."""
    backend, chunks = _bound(chunks, dtype)
    return backend.lanes.answer_lanes(chunks, dtype, axes, question)


@one_way
def answer_group_lanes(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    places: Callable[[], Sequence[IntArray]],
) -> Any | None:
    """The answers for every group of every lane; None where it is as fast to ask about one group
    after the other. See `reference.lanes.answer_group_lanes`."""
    if any(chunk.weights is not None for chunk in chunks):
        return None
    how: dict[str, Any] = {"axes": axes, "question": question, "places": places}
    has_masks = any(chunk.keeps is not None for chunk in chunks)
    backend, some = _bound(chunks if has_masks else [chunk.values for chunk in chunks], dtype)
    return backend.lanes.answer_group_lanes(some, dtype, **how)


def deviations(chunk: Any, centre: Any, dtype: np.dtype[Any]) -> Any:
    """The distances of elements from the centres of their lanes, of that dtype, in kind; see
    `reference.lanes.deviations`."""
    if isinstance(chunk, Accompanied):
        return replace(chunk, values=deviations(chunk.values, centre, dtype))
    centre = centre.data if isinstance(centre, np.ma.MaskedArray) else centre
    return backend_for(chunk).lanes.deviations(chunk, centre, dtype)


def answer_only_lane(array: Any, dtype: np.dtype[Any], question: LaneOrder) -> Any | None:
    """The answers about all elements of an array in memory, in kind, if they are found fastest at
    once; see `reference.lanes.answer_only_lane`."""
    if isinstance(array, Accompanied):
        return None
    return backend_for(array).lanes.answer_only_lane(checked(array, dtype), question)


def box_lanes(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    rule: Rule,
    *,
    omits_nan: bool,
) -> LaneBoxes | None:
    """The finished box plot of every lane, of the kind of the chunks; None where `answers_and_ends`
    is as fast. See `reference.lanes.box_lanes`."""
    if isinstance(chunks[0], Accompanied):
        return None
    backend, chunks = _bound(chunks, dtype)
    return backend.lanes.box_lanes(chunks, dtype, axes, question, rule, omits_nan=omits_nan)


@one_way
def answers_and_ends(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    bounds_of: BoundsOf,
    most: int,
) -> tuple[NDArray[np.float64], LaneEnds]:
    """The answers for every lane as float64, on the host, and what is beyond bounds that they make,
    with at most so many elements of each side."""
    backend, chunks = _bound(chunks, dtype)
    return backend.lanes.answers_and_ends(chunks, dtype, axes, question, bounds_of, most)


@one_way
def lane_ends(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], bounds: Bounds, most: int
) -> LaneEnds:
    """What is beyond the bounds of every lane, with the values of at most so many elements of each
    side."""
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lanes.lane_ends(parts, bounds, most)


def _bound(chunks: Sequence[Any], dtype: np.dtype[Any]) -> tuple[Backend, list[Any]]:
    """The kernels for some chunks, with companions or without, and the chunks as they take them."""
    chunks = [checked_chunk(chunk, dtype) for chunk in chunks]
    return backend_for(chunks[0]), chunks


def _in_parts(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...]
) -> tuple[Backend, list[Any]]:
    """The kernels for some chunks, and these as parts of lanes."""
    backend, chunks = _bound(chunks, dtype)
    return backend, backend.lanes.parts_of(chunks, dtype, axes)


# --- Moving windows -------------------------------------------------------------------------------


@one_way
def answer_windows(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """The answers of each window of a padded chunk, ``(n, *shape)``, in kind; see
    `reference.windows`."""
    chunk = checked_chunk(chunk, dtype)
    return backend_for(chunk).windows.answer(chunk, dtype, frame, order)


@one_way
def answer_row_windows(
    values: Any, dtype: np.dtype[Any], windows: RowWindows, order: WindowOrder
) -> Any:
    """Answer windows of rows whose sizes differ, ``(n, n_windows)``, in kind; see
    `reference.windows`."""
    values = checked_chunk(values, dtype)
    return backend_for(values).windows.answer_rows(values, dtype, windows, order)


@one_way
def window_counts(chunk: Any, frame: Frame) -> Any:
    """How many valid elements each window of a padded chunk holds, in kind."""
    found, _ = backend_for(chunk).windows.counts(chunk, frame)
    return namespace(found).asarray(found, copy=True)


# --- Groups of all elements -----------------------------------------------------------------------


def distinct_labels(labels: Any) -> Labels:
    """The labels that there are, ascending, on the host; see `maths.labels.distinct`."""
    return backend_for(labels).labels.distinct(labels)


def codes_among(labels: Any, names: Labels) -> Any:
    """The number of each label among names, on the device of the labels or on the host; see
    `maths.labels.codes_among`."""
    return backend_for(labels).labels.codes_among(labels, names)


@one_way
def group_cuts(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    codes_of: CodesOf,
    n_groups: int,
    share: int,
) -> GroupCuts:
    """The cuts of every group in some chunks together."""
    parts, n_nat = _in_groups(chunks, dtype, codes_of, n_groups)
    found = backend_for(chunks[0]).groups.cuts(parts, n_groups, share)
    return (
        found
        if n_nat is None
        else GroupCuts.merge([found, GroupCuts.of_missing(n_nat, found.pivots.dtype)])
    )


@one_way
def group_tally(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    codes_of: CodesOf,
    brackets: GroupBrackets,
) -> GroupTally:
    """The counts of some chunks at the brackets of all groups, and candidates."""
    parts, _ = _in_groups(chunks, dtype, codes_of, brackets.n_groups)
    return backend_for(chunks[0]).groups.tally(parts, brackets)


@one_way
def group_elements(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    codes_of: CodesOf,
    n_groups: int,
    ranks: RanksOfLanes,
) -> Lanes:
    """The elements of some ranks in every group of all chunks, as of so many lanes."""
    parts, n_nat = _in_groups(chunks, dtype, codes_of, n_groups)
    found = backend_for(chunks[0]).groups.elements(parts, n_groups, ranks)
    return found if n_nat is None else replace(found, n_missing=found.n_missing + n_nat)


@one_way
def places_in_groups(codes: NDArray[Any], n_groups: int) -> tuple[IntArray, IntArray]:
    """The places of the elements of each group, by the codes of all elements on the host; see
    `reference.groups.places_in_groups`."""
    return backend_for(codes).groups.places_in_groups(codes, n_groups)


@one_way
def window_lanes(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    atoms: Atoms,
    ranks: RanksOfLanes,
) -> Lanes | None:
    """The elements of some ranks in every window of every lane; None where it is as fast to take
    one window after the other. See `reference.groups.window_lanes`."""
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.groups.window_lanes(parts, atoms, ranks)


@one_way
def found_in_groups(tallies: Sequence[GroupTally], brackets: GroupBrackets) -> Lanes:
    """The wanted elements of all groups, as of so many lanes."""
    sort = backend_for(brackets.ends).groups.sorted_in_groups
    return group_cuts_.found_in_groups(tallies, brackets, sort)


def _in_groups(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], codes_of: CodesOf, n_groups: int
) -> tuple[list[tuple[Any, Any]], NDArray[np.int64] | None]:
    """The elements of chunks and the number of the group of each; and of dates, how many NaT each
    group has, which are in none then."""
    parts = []
    n_nat = np.zeros(n_groups, np.int64)
    for chunk in chunks:
        values, _ = elements_in_order(checked(chunk.values, dtype), dtype)
        codes = group_codes(chunk, codes_of)
        if dtype.kind in "mM":
            is_nat = values == np.iinfo(np.int64).min
            n_nat += np.bincount(codes[is_nat & (codes >= 0)], minlength=n_groups)
            codes = np.where(is_nat, np.int32(-1), codes)
        parts.append((values, as_codes(codes, values)))
    return parts, n_nat if dtype.kind in "mM" else None


# --- Lanes in passes, whose reports are on the host or a device -----------------------------------


@one_way
def lane_cuts(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: Any | None,
    m: int,
) -> Any:
    """The cuts of every lane at `m` ranks, inside its brackets if there are any; see
    `reference.lane_passes.cuts`."""
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lane_passes.cuts(parts, brackets, m)


@one_way
def lane_tally(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], brackets: Any
) -> Any:
    """What every lane has at its brackets, and candidates; see `reference.lane_passes.tally`."""
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lane_passes.tally(parts, brackets)


@one_way
def lane_tails(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: None,
    sizes: TailSizes,
) -> LaneTails:
    """The tails of every lane. No brackets are needed."""
    del brackets
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lane_passes.tails(parts, sizes)


@one_way
def merge_lane_tails(parts: Sequence[LaneTails], sizes: TailSizes) -> LaneTails:
    """The tails of several parts of lanes together."""
    if len(parts) == 1:
        return parts[0]
    kernels = backend_for(parts[0].kept).lane_passes
    n_unused = np.sum([part.n_unused for part in parts], axis=0)
    found = kernels.tails([part.kept for part in parts], sizes, n_unused)
    counts = {
        name: np.sum([getattr(part, name) for part in parts], axis=0)
        for name in ("n_valid", "n_missing")
    }
    return replace(found, **counts)


@one_way
def merge_lane_cuts(parts: Sequence[LaneCuts], m: int) -> LaneCuts:
    """What is known of several parts of lanes together, at `m` ranks; see `lane_cuts.merge`."""
    return lane_cuts_.merge(parts, m, backend_for(parts[0].low).lane_passes.bracketed)


@one_way
def narrowed_lane_brackets(
    parts: Sequence[LaneCuts], brackets: LaneBrackets | None, ranks: RanksOfLanes
) -> LaneBrackets:
    """The brackets that the cuts of a pass prove, inside those of the pass before if there was one;
    see `lane_cuts.find_lane_brackets` and `lane_cuts.narrow`."""
    kernels = backend_for(parts[0].low).lane_passes
    if brackets is None:
        return kernels.find_lane_brackets(parts, ranks)
    return lane_cuts_.narrow(parts, brackets, kernels.bracketed)


@one_way
def merge_lane_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """The tally of several parts of lanes together."""
    return backend_for(parts[0].candidates).lane_passes.merge_tallies(parts)


@one_way
def answers_of_tally(tally: LaneTally, brackets: LaneBrackets, order: LaneOrder) -> Any | None:
    """The answers ``(n_answers, n_lanes)`` that `LaneOrder.lane_answer` has, where the tally is;
    None where they are found as fast by `order_statistics_of_lanes`."""
    return backend_for(tally.candidates).lane_passes.answers(tally, brackets, order)


@one_way
def order_statistics_of_lanes(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """The elements of the wanted ranks, on the host; see `lane_cuts.order_statistics`."""
    return backend_for(tally.candidates).lane_passes.order_statistics(tally, brackets)


# --- Rows -----------------------------------------------------------------------------------------


def nearest(rows: Any, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """The nearest rows of some queries, of a chunk ``(n, p)``, on the host; see
    `reference.distances.nearest`."""
    return backend_for(rows).distances.nearest(rows, queries, k, tile_elements)


def nearest_in_place(rows: Any, queries: Any, k: int, tile_elements: int) -> NearestRows:
    """The nearest rows of some finite queries, an array of any kind, of an array ``(n, p)``: on its
    device, if that is CuPy's."""
    return backend_for(rows).distances.nearest_in_place(rows, queries, k, tile_elements)


def is_finite(values: Any) -> bool:
    """Whether no element is NaN or infinite."""
    if not is_kind(values, "real floating"):
        return True
    return all_true(namespace(values).isfinite(values))


def taken(values: Any, places: NDArray[np.int64]) -> Any:
    """The rows at some places, of their kind."""
    return namespace(values).take(values, like(places, values), axis=0)
