"""Functions of one chunk: they pass a chunk of any kind to the kernels for that kind.

The kind of an array is its library, such as NumPy or CuPy. A result "in kind" is an array of the
same library, on the same device, as the chunk. See `registry.backend_for`.
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
from dask_gpuselect.kernels.protocols import AddsUp, Backend, Weighing
from dask_gpuselect.kernels.reference.lower_sets import exponent_of as exponent_of
from dask_gpuselect.kernels.reference.lower_sets import running_minimum as running_minimum
from dask_gpuselect.kernels.reference.lower_sets import scaled as scaled
from dask_gpuselect.kernels.reference.moments import in_cells as in_cells
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
    """Return the elements of a chunk for its kernels, without NaT, and the number of NaT."""
    if isinstance(chunk, Several):
        parts, n_nat = zip(*(elements_of(part, dtype) for part in chunk.parts), strict=True)
        return Several(parts), sum(n_nat)
    chunk = checked_chunk(chunk, dtype)
    selection = backend_for(chunk).selection
    takes = selection.unmasked if isinstance(chunk, Accompanied) else selection.elements_of
    return takes(chunk, dtype)


@one_way
@each_slot
def cuts(chunk: Any, dtype: np.dtype[Any], share: int) -> Cuts:
    """Measure the cuts of a chunk of any shape, at as many pivots as `sizes.pivot_count` says."""
    if _is_weighted(chunk):
        return _weighted_cuts(chunk, dtype, share)
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).selection.cuts(values, pivot_count(math.prod(values.shape), share))
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat else found


@one_way
def tally_and_cuts(
    chunk: Any, dtype: np.dtype[Any], share: int, ruler: Ruler, brackets: Brackets, most: int
) -> tuple[Tally, Cuts | None] | None:
    """Tally an unweighted chunk at some brackets and measure its cuts, in one pass.

    Inside the brackets, the cuts are at pivots of the chunk's own; elsewhere, at the bars of a
    ruler. None if the chunk has more than `most` candidates, or where one pass is no faster than
    two. The cuts are None if a cell outside the brackets would hold too many elements.
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
    """Tally a chunk of any shape; None if it has more than `most` candidates."""
    if _is_weighted(chunk):
        return _weighted_tally(chunk, dtype, brackets, most)
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).selection.tally(values, brackets, most)
    return _with_others(found, chunk, n_nat)


@one_way
@each_slot
def tally_in_place(chunk: Any, dtype: np.dtype[Any], brackets: Brackets, most: int) -> Tally | None:
    """Tally a chunk of any shape and leave the candidates on its device.

    None if there are more than `most`.
    """
    if _is_weighted(chunk):
        chunk = checked_chunk(chunk, dtype)
        return backend_for(chunk).weighing.tally_in_place(chunk, dtype, brackets, most)
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).selection.tally_in_place(values, brackets, most)
    return _with_others(found, chunk, n_nat)


def _with_others(found: Tally | None, chunk: Any, n_nat: int) -> Tally | None:
    """Add to a tally what its kernel has not seen: the number of NaT and of masked elements."""
    if found is None or not (n_nat or isinstance(chunk, Accompanied | Several)):
        return found
    n_missing = found.n_missing + n_nat
    n_left_out = math.prod(chunk.shape) - found.n_valid - n_missing
    return replace(found, n_missing=n_missing, n_left_out=n_left_out)


def _is_weighted(chunk: Any) -> bool:
    return isinstance(chunk, Accompanied) and chunk.weights is not None


def _weighed(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Weighing, Any, Any, int]:
    """Return the weighted kernels for a chunk, its elements, their weights, and the number missing.

    Masked elements and elements of weight zero are left out.
    """
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
    """Merge the tallies of several parts, for an answer of the kind of `array`.

    Candidates end up where selecting is fastest: many of them stay on the GPU that they came from.
    Weighted ones are on the host.
    """
    weighted = [part for part in parts if isinstance(part, WeightedTally)]
    if weighted:
        return WeightedTally.merge(weighted)
    return backend_for(array).selection.merged(parts)


@one_way
@each_slot
def moments(
    chunk: Any, near: NDArray[Any], dtype: np.dtype[Any], cells: NDArray[np.bool_] | None = None
) -> Moments:
    """Sum a chunk exactly, each element multiplied by its weight.

    `near` holds some values of the usual size of the elements. The speed of the sums depends on it;
    the result does not. With `cells`, only the elements in these open cells between the values of
    `near` are summed; see `reference.moments.in_cells`.
    """
    if _is_weighted(chunk):
        kernel, *elements, _ = _weighed(chunk, dtype)
        if cells is not None:
            is_some = backend_for(elements[0]).moments.in_cells(elements[0], near, cells)
            elements = [each[is_some] for each in elements]
        return kernel.moments(*elements)
    values, _ = elements_of(chunk, dtype)
    sums = backend_for(values).moments
    parts = parts_of(values)
    if cells is not None:
        parts = tuple(_elements_in_cells(part, near, cells, sums) for part in parts)
    found = [sums.moments(part, near) for part in parts]
    return found[0] if len(found) == 1 else Moments.merge(found)


def _elements_in_cells(
    part: Any, ends: NDArray[Any], cells: NDArray[np.bool_], kernel: AddsUp
) -> Any:
    """Take the elements in some open cells; see `reference.moments.in_cells`."""
    is_some = kernel.in_cells(values_of(part), ends, cells)
    if not isinstance(part, Accompanied):
        return part[is_some]
    return part.values[is_some if part.keeps is None else is_some & part.keeps]


def report(chunk: Any, dtype: np.dtype[Any], probe: probes.Measure) -> probes.Report:
    """Measure what a strategy's probe asks of a chunk of any shape."""
    values, n_nat = elements_of(chunk, dtype)
    found = backend_for(values).measures.report(values, probe)
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat else found


def ordered(candidates: Candidates, sorting: Sorting) -> Candidates:
    """Order candidates as a strategy asks, before some of them are selected."""
    if not sorting.is_whole:
        return candidates
    if not sorting.sub_array:
        return candidates.ordered()
    by_network = backend_for(candidates.elements).bitonic.bitonic_sorted
    return candidates.ordered(partial(by_network, sub_array=sorting.sub_array))


# --- Arrays in memory -----------------------------------------------------------------------------


@one_way
def sample(chunk: Any, dtype: np.dtype[Any], rate: float) -> NDArray[Any]:
    """Take valid elements at hashed places of a chunk, about a share `rate` of all, to the host."""
    values, _ = elements_of(chunk, dtype)
    n: int = math.prod(values.shape)
    return backend_for(values).sampling.sample(values, min(n, math.ceil(rate * n)))


@one_way
def sorted_sample(array: Any, dtype: np.dtype[Any], size: int) -> tuple[Any, float]:
    """Return at least `size` elements at hashed places of an array, ascending, on its device.

    NaN may come last (see `valid_in`). Also returns the share of all places that were drawn. For an
    array with weights the elements are a `WeightedSample`, which has valid elements only.
    """
    if _is_weighted(array):
        array = checked_chunk(array, dtype)
        return backend_for(array).weighing.sorted_sample(array, dtype, size)
    values, _ = elements_of(array, dtype)
    return backend_for(values).sampling.sorted_sample(values, min(size, math.prod(values.shape)))


@one_way
def pilot(
    array: Any, dtype: np.dtype[Any], size: int, ranks: RanksOf
) -> tuple[Brackets, Tally | None]:
    """Find brackets by a sample of at least `size` elements, and tally the array at these.

    The candidates stay on the array's device.
    """
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
    """Tally an unweighted array and sum it exactly, in one pass where that is faster.

    The candidates stay on the array's device; the tally is None if there are more than `most`.
    `ranks` maps a number of elements to the ranks that will be wanted first.
    """
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
    """Find brackets from a sorted sample on the array's device, tally the array there and sum it.

    None if the device cannot do all that without the host, or if the sample is not of the usual
    kind. See `tally_and_sums`.
    """
    values, n_nat = elements_of(array, dtype)
    found = backend_for(values).sampling.guess_and_sums(values, sample, guess, most, ranks)
    if found is None:
        return None
    brackets, tally, sums = found
    return brackets, _with_others(tally, array, n_nat), sums


def is_best_whole(array: Any) -> bool:
    """Return whether an array is so small that all its elements are best taken as candidates."""
    values = values_of(array)
    return backend_for(values).sampling.is_best_whole(values)


def is_best_counted(array: Any) -> bool:
    """Return whether an array of a countable dtype is counted faster than it is sampled.

    This holds if only ranks are asked.
    """
    values = values_of(array)
    return backend_for(values).sampling.is_best_counted(values)


def together(arrays: Sequence[Any]) -> Any:
    """Treat several arrays of one kind and dtype as one.

    They are copied together if all of them are small enough for `is_best_whole`. Otherwise they
    stay where they are.
    """
    if len(arrays) == 1:
        return arrays[0]
    several = Several(tuple(arrays))
    if any(isinstance(array, Accompanied) for array in arrays) or not is_best_whole(several):
        return several
    xp = namespace(arrays[0])
    return xp.concatenate([array.reshape(-1) for array in arrays])


@one_way
def whole(array: Any, dtype: np.dtype[Any], ranks: RanksOf) -> tuple[Brackets, Tally]:
    """Take a whole array as one bracket and tally it there, for the elements of some ranks."""
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
    """Answer a question for every lane along `axes` of all chunks together.

    Returns ``(n_answers, n_lanes)`` of the kind of the chunks; see `lanes`.
    """
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
    """Answer a question for every group of every lane.

    None where it is as fast to ask about one group after the other. See
    `reference.lanes.answer_group_lanes`.
    """
    if any(chunk.weights is not None for chunk in chunks):
        return None
    how: dict[str, Any] = {"axes": axes, "question": question, "places": places}
    has_masks = any(chunk.keeps is not None for chunk in chunks)
    backend, some = _bound(chunks if has_masks else [chunk.values for chunk in chunks], dtype)
    return backend.lanes.answer_group_lanes(some, dtype, **how)


def deviations(chunk: Any, centre: Any, dtype: np.dtype[Any]) -> Any:
    """Return the distance of each element from the centre of its lane, of `dtype`, in kind.

    See `reference.lanes.deviations`.
    """
    if isinstance(chunk, Accompanied):
        return replace(chunk, values=deviations(chunk.values, centre, dtype))
    centre = centre.data if isinstance(centre, np.ma.MaskedArray) else centre
    return backend_for(chunk).lanes.deviations(chunk, centre, dtype)


def answer_only_lane(array: Any, dtype: np.dtype[Any], question: LaneOrder) -> Any | None:
    """Answer a question about all elements of an array in memory, if one kernel does it fastest.

    None otherwise. The answers are of the kind of the array. See
    `reference.lanes.answer_only_lane`.
    """
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
    """Compute the finished box plot of every lane, of the kind of the chunks.

    None where `answers_and_ends` is as fast. See `reference.lanes.box_lanes`.
    """
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
    """Answer a question for every lane, and collect the elements beyond bounds from the answers.

    The answers are float64 on the host. At most `most` elements of each side of a lane are
    collected.
    """
    backend, chunks = _bound(chunks, dtype)
    return backend.lanes.answers_and_ends(chunks, dtype, axes, question, bounds_of, most)


@one_way
def lane_ends(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], bounds: Bounds, most: int
) -> LaneEnds:
    """Collect the elements beyond the bounds of every lane, at most `most` of each side."""
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lanes.lane_ends(parts, bounds, most)


def clipped(chunk: Any, low: Any, high: Any) -> Any:
    """Replace the elements of each lane beyond two bounds by these; NaN stay.

    The bounds, of any kind, broadcast to the chunk.
    """
    if isinstance(chunk, Accompanied):
        return replace(chunk, values=clipped(chunk.values, low, high))
    xp = namespace(chunk)
    return xp.minimum(xp.maximum(chunk, like(low, chunk)), like(high, chunk))


def _bound(chunks: Sequence[Any], dtype: np.dtype[Any]) -> tuple[Backend, list[Any]]:
    """Return the kernels for some chunks, and the chunks as these kernels take them."""
    chunks = [checked_chunk(chunk, dtype) for chunk in chunks]
    return backend_for(chunks[0]), chunks


def _in_parts(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...]
) -> tuple[Backend, list[Any]]:
    """Return the kernels for some chunks, and the chunks as parts of lanes."""
    backend, chunks = _bound(chunks, dtype)
    return backend, backend.lanes.parts_of(chunks, dtype, axes)


# --- Moving windows -------------------------------------------------------------------------------


@one_way
def answer_windows(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer a question for each window of a padded chunk; ``(n, *shape)``, in kind.

    See `reference.windows`.
    """
    chunk = checked_chunk(chunk, dtype)
    return backend_for(chunk).windows.answer(chunk, dtype, frame, order)


@one_way
def answer_row_windows(
    values: Any, dtype: np.dtype[Any], windows: RowWindows, order: WindowOrder
) -> Any:
    """Answer windows of rows whose sizes differ; see `reference.windows.answer_rows`.

    The answers, ``(n, n_windows)``, are in kind.
    """
    values = checked_chunk(values, dtype)
    return backend_for(values).windows.answer_rows(values, dtype, windows, order)


@one_way
def window_counts(chunk: Any, frame: Frame) -> Any:
    """Count the valid elements in each window of a padded chunk, in kind."""
    found, _ = backend_for(chunk).windows.counts(chunk, frame)
    return namespace(found).asarray(found, copy=True)


# --- Groups of all elements -----------------------------------------------------------------------


def distinct_labels(labels: Any) -> Labels:
    """Return the distinct labels, ascending, on the host; see `maths.labels.distinct`."""
    return backend_for(labels).labels.distinct(labels)


def codes_among(labels: Any, names: Labels) -> Any:
    """Return the position of each label among `names`, on the device of the labels or the host.

    See `maths.labels.codes_among`.
    """
    return backend_for(labels).labels.codes_among(labels, names)


@one_way
def group_cuts(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    codes_of: CodesOf,
    n_groups: int,
    share: int,
) -> GroupCuts:
    """Measure the cuts of every group in some chunks together."""
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
    """Tally some chunks at the brackets of all groups, with candidates."""
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
    """Find the elements of some ranks in every group of all chunks, one lane per group."""
    parts, n_nat = _in_groups(chunks, dtype, codes_of, n_groups)
    found = backend_for(chunks[0]).groups.elements(parts, n_groups, ranks)
    return found if n_nat is None else replace(found, n_missing=found.n_missing + n_nat)


@one_way
def places_in_groups(codes: NDArray[Any], n_groups: int) -> tuple[IntArray, IntArray]:
    """Return the places of the elements of each group, from the codes of all elements on the host.

    See `reference.groups.places_in_groups`.
    """
    return backend_for(codes).groups.places_in_groups(codes, n_groups)


@one_way
def window_lanes(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    atoms: Atoms,
    ranks: RanksOfLanes,
) -> Lanes | None:
    """Find the elements of some ranks in every window of every lane.

    None where it is as fast to take one window after the other. See
    `reference.groups.window_lanes`.
    """
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.groups.window_lanes(parts, atoms, ranks)


@one_way
def elements_of_groups(tallies: Sequence[GroupTally], brackets: GroupBrackets) -> Lanes:
    """Find the wanted elements of all groups from their tallies, one lane per group."""
    sort = backend_for(brackets.ends).groups.sorted_in_groups
    return group_cuts_.elements_of_groups(tallies, brackets, sort)


def _in_groups(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], codes_of: CodesOf, n_groups: int
) -> tuple[list[tuple[Any, Any]], NDArray[np.int64] | None]:
    """Return the elements and group codes of each chunk, and the number of NaT in each group.

    The numbers are None if the elements are not dates. NaT get the code -1, which is no group.
    """
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


# --- Lanes in parts, with partial results on the host or a device ---------------------------------


@one_way
def lane_cuts(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: Any | None,
    m: int,
) -> Any:
    """Measure the cuts of every lane at `m` ranks, inside its brackets if given.

    See `reference.lane_passes.cuts`.
    """
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lane_passes.cuts(parts, brackets, m)


@one_way
def lane_tally(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], brackets: Any
) -> Any:
    """Tally every lane at its brackets, with candidates; see `reference.lane_passes.tally`."""
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
    """Return the tails of every lane: its least and largest elements. `brackets` is ignored."""
    del brackets
    backend, parts = _in_parts(chunks, dtype, axes)
    return backend.lane_passes.tails(parts, sizes)


@one_way
def merge_lane_tails(parts: Sequence[LaneTails], sizes: TailSizes) -> LaneTails:
    """Merge the tails of several parts of lanes."""
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
    """Merge the cuts of several parts of lanes into cuts at `m` ranks; see `lane_cuts.merge`."""
    return lane_cuts_.merge(parts, m, backend_for(parts[0].low).lane_passes.bracketed)


@one_way
def narrowed_lane_brackets(
    parts: Sequence[LaneCuts], brackets: LaneBrackets | None, ranks: RanksOfLanes
) -> LaneBrackets:
    """Find the brackets that the cuts of a pass prove, inside those of the pass before if any.

    See `lane_cuts.find_lane_brackets` and `lane_cuts.narrow`.
    """
    kernels = backend_for(parts[0].low).lane_passes
    if brackets is None:
        return kernels.find_lane_brackets(parts, ranks)
    return lane_cuts_.narrow(parts, brackets, kernels.bracketed)


@one_way
def merge_lane_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """Merge the tallies of several parts of lanes."""
    return backend_for(parts[0].candidates).lane_passes.merge_tallies(parts)


@one_way
def answers_of_tally(tally: LaneTally, brackets: LaneBrackets, order: LaneOrder) -> Any | None:
    """Answer a question from the tally of every lane, on the tally's device.

    Returns ``(n_answers, n_lanes)`` as `LaneOrder.lane_answer` does; None where
    `order_statistics_of_lanes` is as fast.
    """
    return backend_for(tally.candidates).lane_passes.answers(tally, brackets, order)


@one_way
def order_statistics_of_lanes(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """Return the elements of the wanted ranks, on the host; see `lane_cuts.order_statistics`."""
    return backend_for(tally.candidates).lane_passes.order_statistics(tally, brackets)


# --- Rows -----------------------------------------------------------------------------------------


def nearest(rows: Any, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """Find the nearest rows of some queries in a chunk ``(n, p)``, on the host.

    See `reference.distances.nearest`.
    """
    return backend_for(rows).distances.nearest(rows, queries, k, tile_elements)


def nearest_in_place(rows: Any, queries: Any, k: int, tile_elements: int) -> NearestRows:
    """Find the nearest rows of some queries in an array ``(n, p)``, on its device if it is CuPy's.

    The queries are finite, an array of any kind.
    """
    return backend_for(rows).distances.nearest_in_place(rows, queries, k, tile_elements)


def is_finite(values: Any) -> bool:
    """Return whether no element is NaN or infinite."""
    if not is_kind(values, "real floating"):
        return True
    return all_true(namespace(values).isfinite(values))


def taken(values: Any, places: NDArray[np.int64]) -> Any:
    """Return the rows at some places, in kind."""
    return namespace(values).take(values, like(places, values), axis=0)
