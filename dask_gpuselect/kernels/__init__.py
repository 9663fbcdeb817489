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

from dask_gpuselect.arrays import all_true, is_kind, like, namespace, numpy_dtype, to_host, usual
from dask_gpuselect.kernels.companions import (
    Accompanied,
    ChunkColumn,
    Several,
    as_codes,
    each_array,
    parts_of,
    values_of,
)
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.kernels.reference.at_once import rows_of_lanes
from dask_gpuselect.kernels.reference.lower_sets import exponent_of as exponent_of
from dask_gpuselect.kernels.reference.lower_sets import running_minimum as running_minimum
from dask_gpuselect.kernels.reference.lower_sets import scaled as scaled
from dask_gpuselect.kernels.reference.moments import in_cells as in_cells
from dask_gpuselect.kernels.reference.selection import elements_at as elements_at
from dask_gpuselect.kernels.reference.selection import elements_of as elements_in_order
from dask_gpuselect.kernels.reference.selection import valid_in as valid_in
from dask_gpuselect.kernels.reference.weighing import tally_in_order as tally_in_order
from dask_gpuselect.kernels.reference.weighing import tally_in_place as tally_on_host
from dask_gpuselect.kernels.registry import Backend, backend_for, passing
from dask_gpuselect.kernels.registry import is_on_device as is_on_device
from dask_gpuselect.kernels.registry import of as of
from dask_gpuselect.kernels.stretches import group_codes, stretches_of_groups
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, RanksOf, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.host_runs import HostRuns, cuts_of_runs, in_slots, tally_of_runs
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ragged import Bracketed, CellTally, Wanted, pivot_counts
from dask_gpuselect.maths.rulers import Ruler, pivots_inside, ruled_cuts
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.maths.windows import Frame, WindowOrder
from dask_gpuselect.strategies import probes
from dask_gpuselect.strategies.known import Strategy

# --- Functions that only pass a call on; those of the reference describe them ---------------------

distances = passing("distances", "nearest", "nearest_in_place")
groups = passing("groups", "places_in_groups", of_parts=("window_lanes",))
labels = passing("labels", "distinct", "codes_among")
lane_passes = passing(
    "lane_passes",
    *("answers", "merge_cuts", "merge_tails", "merge_tallies", "narrowed", "order_statistics"),
    of_parts=("cuts", "tally", "tails"),
)
lanes = passing(
    "lanes",
    *("answer_group_lanes", "answer_lanes", "answers_and_ends", "box_lanes", "lane_deviations"),
    *("quotients", "trimmed_lanes"),
    of_parts=("lane_ends",),
    alone=("answer_only_lane", "box_alone"),
)
near = passing("near", "boxes_of_groups", "quantiles_of_groups")
runs = passing("runs", "sorted_runs")
sampling = passing("sampling", "is_best_whole")
weighing = passing("weighing", "near_shares")
windows = passing("windows", "answer_rows", "padded", "valid_counts")


def _of_elements(path: str, of_weighted: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Make a function of a chunk and its dtype, for a kernel of unweighted elements.

    `of_weighted` is the function of the kernels of a weighted chunk, if there is one.
    """
    purpose, function = path.split(".")

    def call(chunk: Any, dtype: np.dtype[Any], *others: Any, **how: Any) -> Any:
        bound = of(chunk, dtype)
        if of_weighted and bound.is_weighted:
            return of_weighted(bound, *others, **how)
        kernel = getattr(getattr(bound, purpose), function)
        return _with_others(kernel(bound.elements[0], *others, **how), bound)

    call.__name__ = call.__qualname__ = function  # by which graphs send it to processes
    return one_way(call)


# --- All elements ---------------------------------------------------------------------------------


@one_way
def cuts(chunk: Any, dtype: np.dtype[Any], share: int) -> Cuts:
    """Measure the cuts of a chunk of any shape, at as many pivots as `sizes.pivot_count` says."""
    bound = of(chunk, dtype)
    kernel = bound.weighing if bound.is_weighted else bound.selection
    *elements, n_nat = bound.elements
    measured: Cuts = kernel.cuts(*elements, pivot_count(math.prod(elements[0].shape), share))
    return replace(measured, n_missing=measured.n_missing + n_nat) if n_nat else measured


@one_way
def tally_and_cuts(
    chunk: Any, dtype: np.dtype[Any], share: int, ruler: Ruler, brackets: Brackets, most: int
) -> tuple[Tally, Cuts | None] | None:
    """Tally an unweighted chunk at some brackets and measure its cuts, in one pass.

    Inside the brackets, the cuts are at pivots of the chunk's own; elsewhere, at the bars of a
    ruler. None if the chunk has more than `most` candidates, or where one pass is no faster than
    two. The cuts are None if a cell outside the brackets would hold too many elements.
    """
    bound = of(chunk, dtype)
    values = bound.elements[0]
    both = bound.selection.tally_by_ruler(values, ruler, brackets, most)
    if both is None or not both[0].n_valid:
        return None
    whole, below, upto = _with_others(both, bound)
    n_pivots = pivot_count(math.prod(values.shape), share)
    inside = bound.selection.cuts(whole.candidates.on_host(), pivots_inside(n_pivots))
    return whole, ruled_cuts(ruler, below, upto, brackets, whole, inside, n_pivots)


def _with_others(answer: Any, bound: Backend) -> Any:
    """Add to the tallies of an answer the number of NaT and of masked elements."""
    if isinstance(answer, tuple):
        return tuple(_with_others(each, bound) for each in answer)
    n_nat, is_some = bound.elements[1], isinstance(bound.chunk, Accompanied | Several)
    if not (isinstance(answer, Tally) and (n_nat or is_some)):
        return answer
    n_missing = answer.n_missing + n_nat
    n_left_out = bound.size - answer.n_valid - n_missing
    return replace(answer, n_missing=n_missing, n_left_out=n_left_out)


def _weighted_tally(bound: Backend, brackets: Brackets, most: int) -> Tally | None:
    tally = tally_on_host(bound, brackets, most)
    if tally is None or brackets.summed is None:
        return tally
    values, weights, _ = bound.elements
    n = math.prod(weights.shape)
    square = _squares(weights, to_host(weights[:: max(n // 64, 1)]))
    products = bound.weighing.products(values, weights, brackets.ends, brackets.summed)
    return replace(tally, square=square, products=products)


tally: Callable[..., Tally | None] = _of_elements("selection.tally", _weighted_tally)
"""Tally a chunk of any shape at some brackets; None if it has more candidates than a number.

Its arguments are the chunk, its dtype, the brackets and that number.
"""

tally_in_place: Callable[..., Tally | None] = _of_elements(
    "selection.tally_in_place",
    lambda bound, *others, **how: bound.weighing.tally_in_place(bound, *others, **how),
)
"""Tally a chunk as `tally` does, and leave the candidates on its device.

It also takes the function of `tally_and_sums` that tells the ranks that will be wanted first.
"""


@one_way
def weight_squares(
    chunk: Any, dtype: np.dtype[Any], near: NDArray[Any]
) -> Callable[[Tally], ExactSums]:
    """Start to sum the squares of the weights of a chunk on its device.

    Returns a function that waits for those of the valid elements, given the tally of the chunk.
    `near` holds some weights of the usual size.
    """
    bound = of(chunk, dtype)
    weights, keeps = bound.chunk.weights, bound.chunk.keeps
    sum_all = None
    if numpy_dtype(weights).kind == "f":
        every = of(Accompanied(weights, keeps), numpy_dtype(weights))
        values, sums = every.elements[0], every.moments
        sum_all = partial(sums.moments, values, near)
        if every.is_on_device:
            sum_all = sums.moments_ahead(values, near)

    def of_valid(tally: Tally) -> ExactSums:
        if sum_all is None or tally.n_missing:
            return _squares(bound.elements[1], near)
        squares: ExactSums = sum_all().square  # those of elements without weight are 0
        return squares

    return of_valid


def _squares(weights: Any, near: NDArray[Any]) -> ExactSums:
    return moments(weights, numpy_dtype(values_of(weights)), near).square


@one_way
def merged(parts: Sequence[Tally], array: Any) -> Tally:
    """Merge the tallies of several parts, for an answer of the kind of `array`.

    Candidates end up where selecting is fastest: many of them stay on the GPU that they came from.
    Weighted ones are on the host.
    """
    weighted = [part for part in parts if part.weighs]
    if weighted:
        return Tally.merge(weighted)
    answer: Tally = backend_for(array).selection.merged(parts)
    return answer


@one_way
def moments(
    chunk: Any, dtype: np.dtype[Any], near: NDArray[Any], cells: NDArray[np.bool_] | None = None
) -> Moments:
    """Sum a chunk exactly, each element multiplied by its weight.

    `near` holds some values of the usual size of the elements. The speed of the sums depends on it;
    the result does not. With `cells`, only the elements in these open cells between the values of
    `near` are summed, without weights; see `reference.moments.in_cells`.
    """
    bound = of(chunk, dtype)
    if bound.is_weighted:
        return weighted_moments_ahead(bound, dtype)()
    sums = [bound.moments.moments(part, near, cells) for part in parts_of(bound.elements[0])]
    return sums[0] if len(sums) == 1 else Moments.merge(sums)


@one_way
def weighted_moments_ahead(chunk: Any, dtype: np.dtype[Any]) -> Callable[[], Moments]:
    """Start to sum a chunk with weights on its device; return a function that waits for `moments`.

    On the host the function does everything.
    """
    bound = of(chunk, dtype)
    waits: Callable[[], Moments] = bound.weighing.moments_ahead(bound)
    return waits


def answer_probe(chunk: Any, dtype: np.dtype[Any], probe: probes.Measure) -> probes.ProbeResult:
    """Measure what a strategy's probe asks of a chunk of any shape."""
    bound = of(chunk, dtype)
    values, n_nat = bound.elements
    answer: probes.ProbeResult = bound.measures.answer_probe(values, probe)
    return replace(answer, n_missing=answer.n_missing + n_nat) if n_nat else answer


def ordered(candidates: Candidates, strategy: Strategy) -> Candidates:
    """Order candidates as a strategy asks, before some of them are selected."""
    if not strategy.sub_array:
        return candidates.ordered() if strategy.sorts else candidates
    by_network = backend_for(candidates.elements).bitonic.bitonic_sorted
    return candidates.ordered(partial(by_network, sub_array=strategy.sub_array))


# --- Arrays in memory -----------------------------------------------------------------------------


@one_way
def sample(chunk: Any, dtype: np.dtype[Any], rate: float) -> NDArray[Any]:
    """Take valid elements at hashed places of a chunk, about a share `rate` of all, to the host."""
    bound = of(chunk, dtype)
    values = bound.elements[0]
    n: int = math.prod(values.shape)
    answer: NDArray[Any] = bound.sampling.sample(values, min(n, math.ceil(rate * n)))
    return answer


@one_way
def sorted_sample(
    array: Any, dtype: np.dtype[Any], size: int, *, n_answers: int = 1
) -> tuple[Any, float]:
    """Return at least `size` elements at hashed places of an array, ascending, on its device.

    NaN may come last (see `valid_in`). Also returns the share of all places that were drawn. For an
    array with weights the elements are a `WeightedSample`, which has valid elements only, and which
    is measured for many answers, where a kernel does that.
    """
    bound = of(array, dtype)
    sampled: tuple[Any, float]
    if bound.is_weighted:
        sampled = bound.weighing.sorted_sample(bound, size, n_answers=n_answers)
    else:
        values = bound.elements[0]
        sampled = bound.sampling.sorted_sample(values, min(size, math.prod(values.shape)))
    return sampled


@one_way
def pilot(
    array: Any, dtype: np.dtype[Any], size: int, ranks: RanksOf
) -> tuple[Brackets, Tally | None]:
    """Find brackets by a sample of at least `size` elements, and tally the array at these.

    The candidates stay on the array's device.
    """
    bound = of(array, dtype)
    values = bound.elements[0]
    sampled = bound.sampling.pilot(values, min(size, math.prod(values.shape)), ranks)
    answer: tuple[Brackets, Tally | None] = _with_others(sampled, bound)
    return answer


tally_and_sums: Callable[..., tuple[Tally | None, Moments]] = _of_elements(
    "sampling.tally_and_sums"
)
"""Tally an unweighted array and sum it exactly, in one pass where that is faster.

Besides the array and its dtype it takes brackets, the largest number of candidates, and a function
that maps a number of elements to the ranks that will be wanted first. The candidates stay on the
array's device; the tally is None if there are too many.
"""

guess_and_sums = _of_elements("sampling.guess_and_sums")
"""Find brackets from a sorted sample on the array's device, tally the array there and sum it.

Besides the array and its dtype it takes the sample, a `BoxGuess`, and the largest number of
candidates. It returns the box alone if the device has found all of it. None if the device cannot do
all that without the host, or if the sample is not of the usual kind. See `tally_and_sums`.
"""


def together(arrays: Sequence[Any]) -> Any:
    """Treat several arrays of one kind and dtype as one.

    They are copied together if they have weights, or if all of them are small enough for
    `is_best_whole`. Otherwise they stay where they are.
    """
    if len(arrays) == 1:
        return arrays[0]
    if isinstance(arrays[0], Accompanied) and arrays[0].weights is not None:
        parts = [{"values": each.values} | each.companions for each in arrays]
        every = {name: _one_behind_other([part[name] for part in parts]) for name in parts[0]}
        return Accompanied(**every)
    several = Several(tuple(arrays))
    is_masked = any(isinstance(array, Accompanied) for array in arrays)
    if is_masked or not sampling.is_best_whole(several):
        return several
    return _one_behind_other(arrays)


def _one_behind_other(arrays: Sequence[Any]) -> Any:
    return namespace(arrays[0]).concatenate([array.reshape(-1) for array in arrays])


@one_way
def whole(array: Any, dtype: np.dtype[Any], ranks: Callable[[int], Any]) -> tuple[Brackets, Tally]:
    """Take a whole array as one bracket and tally it there, for the elements of some ranks."""
    bound = of(array, dtype)
    tally = _with_others(bound.sampling.whole(bound.elements[0], ranks), bound)
    return Brackets(np.empty(0, selection_dtype(dtype)), np.ones(1, np.bool_)), tally


# --- Lanes ----------------------------------------------------------------------------------------


def deviations(chunk: Any, centre: Any, dtype: np.dtype[Any]) -> Any:
    """Return the distance of each element from the centre of its lane, of `dtype`, in kind.

    See `reference.lanes.deviations`.
    """
    if isinstance(chunk, Accompanied):
        return replace(chunk, values=deviations(chunk.values, centre, dtype))
    centre = centre.data if isinstance(centre, np.ma.MaskedArray) else centre
    return backend_for(chunk).lanes.deviations(chunk, centre, dtype)


def as_rows(column: ChunkColumn) -> ChunkColumn:
    """Make each lane of a column a row: views where lanes are contiguous, and copies elsewhere."""
    rows = partial(rows_of_lanes, axes=column.axes)
    return ChunkColumn([each_array(chunk, rows) for chunk in column.chunks], column.dtype, (1,))


def some_lanes(column: ChunkColumn, lanes: IntArray) -> ChunkColumn:
    """Copy some lanes of a column, each to a row."""
    some = partial(taken, places=lanes)
    chunks = [each_array(chunk, some) for chunk in as_rows(column).chunks]
    return ChunkColumn(chunks, column.dtype, (1,))


def clipped(chunk: Any, low: Any, high: Any) -> Any:
    """Replace the elements of each lane beyond two bounds by these; NaN stay.

    The bounds, of any kind, broadcast to the chunk.
    """
    if isinstance(chunk, Accompanied):
        return replace(chunk, values=clipped(chunk.values, low, high))
    xp = namespace(chunk)
    is_bool = is_kind(chunk, "bool")  # the standard has no largest of two bools
    larger, less = (xp.logical_or, xp.logical_and) if is_bool else (xp.maximum, xp.minimum)
    return less(larger(chunk, like(low, chunk)), like(high, chunk))


# --- Moving windows -------------------------------------------------------------------------------


def _work_of_windows(
    chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder
) -> tuple[np.dtype[Any], int]:
    """Return the dtype of the elements, and the size of NumPy's work, which sorts each window.

    A window of fewer than 64 elements counts as one element, as in other calls.
    """
    return dtype, math.prod(frame.shape(tuple(chunk.shape))) * max(frame.n // 32, 1)


@partial(one_way, about=_work_of_windows)
def answer_windows(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer a question for each window of a padded chunk; ``(n, *shape)``, in kind.

    See `reference.windows`.
    """
    return backend_for(chunk).windows.answer(chunk, dtype, frame, order)


# --- Groups of all elements -----------------------------------------------------------------------

# Labels of chunks are numbers of groups, -1 for none.


@one_way
def group_cuts(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    n_groups: int,
    share: int,
) -> Cuts:
    """Measure the cuts of every group in some chunks together."""
    if chunks[0].weights is not None:
        return _weighed_cuts(chunks, dtype, n_groups, share)
    parts, n_nat = _in_groups(chunks, dtype, n_groups)
    measured: Cuts = backend_for(chunks[0]).groups.cuts(parts, n_groups, share)
    if n_nat is None:
        return measured
    return Cuts.merge([measured, Cuts.of_missing(n_nat, measured.pivots.dtype)])


@one_way
def group_tally(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], brackets: Brackets, *, sums: bool = False
) -> CellTally:
    """Tally some chunks at the brackets of all groups, with candidates, and with sums if asked."""
    if chunks[0].weights is not None:
        answer, moments_of = _weighed_tally(chunks, dtype, brackets, sums=sums)
    else:
        parts, _ = _in_groups(chunks, dtype, brackets.n_slots)
        groups = backend_for(chunks[0]).groups
        answer, moments_of = groups.tally(parts, brackets), partial(groups.moments, parts, brackets)
    if not sums:
        return answer
    n_all = np.zeros(brackets.n_slots, np.int64)
    for chunk in chunks:
        places = usual(chunk.labels).reshape(-1).astype(np.int32) + 1  # those of no group at 0
        n_all += to_host(namespace(places).bincount(places, minlength=len(n_all) + 1))[1:]
    return answer.with_sums(n_all, moments_of())


def _weighed_cuts(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int, share: int
) -> Cuts:
    pieces = []
    for first, _, given in stretches_of_groups(together(chunks), dtype, n_groups):
        if isinstance(given, Accompanied):
            pieces.append(cuts(given, dtype, share).as_run(first))
            continue
        own = cuts_of_runs(given, pivot_counts(given.n_valid, share))
        slots = np.arange(first, first + len(own.sizes), dtype=np.int32)
        some = np.flatnonzero(own.n_valid + own.n_missing)
        pieces.append(replace(own, slots=slots).of_chunks(some).packed())
    return Cuts.merge(pieces)


def _weighed_tally(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], brackets: Brackets, *, sums: bool
) -> tuple[CellTally, Callable[[], Moments]]:
    pieces, summed, of_slots = [], [], brackets.by_slot()
    for first, last, given in stretches_of_groups(together(chunks), dtype, brackets.n_slots):
        own = of_slots(first, last)
        if isinstance(given, Accompanied):
            of_all = tally(given, dtype, own, given.size)
            assert of_all is not None  # there is room for all elements
            measured = CellTally.of_tally(own, of_all)
        else:
            measured = tally_of_runs(given, own)
        pieces.append(measured.moved(first, int(brackets.first_cell[first])))
        if sums:
            summed.append(_sums_of_stretch(given, dtype, own))
    return CellTally.merge(pieces), partial(Moments.joined, summed)


def _sums_of_stretch(given: Any, dtype: np.dtype[Any], brackets: Brackets) -> Moments:
    """Sum the elements of each group of a stretch exactly."""
    if isinstance(given, Accompanied):
        return moments(given, dtype, brackets.ends)
    if not isinstance(given, HostRuns):
        of_runs: Moments = given.moments(brackets.ends)
        return of_runs
    weighing = backend_for(given.values).weighing
    sums: Moments = weighing.moments(given.values, given.weights, given.stops)
    return sums


@one_way
def group_elements(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    n_groups: int,
    ranks: RanksOfLanes,
) -> Lanes:
    """Find the elements of some ranks in every group of all chunks, one lane per group."""
    parts, n_nat = _in_groups(chunks, dtype, n_groups)
    lanes = backend_for(chunks[0]).groups.elements(parts, n_groups, ranks)
    answer: Lanes = lanes if n_nat is None else replace(lanes, n_missing=lanes.n_missing + n_nat)
    return answer


@one_way
def order_statistics_of_groups(
    tallies: Sequence[CellTally], about: Bracketed, wanted: Wanted
) -> Lanes:
    """Find the wanted elements of all groups from their tallies, one lane per group."""
    brackets, tally = about.brackets, CellTally.merge(tallies)
    order = in_slots(tally, about, backend_for(brackets.ends).groups.in_groups)
    return wanted.find(order, tally.sums_of_slots(brackets.n_slots) if about.is_whole else None)


def _in_groups(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int
) -> tuple[list[tuple[Any, Any]], NDArray[np.int64] | None]:
    """Return the elements and group codes of each chunk, and the number of NaT in each group.

    The numbers are None if the elements are not dates. NaT get the code -1, which is no group.
    """
    parts = []
    n_nat = np.zeros(n_groups, np.int64)
    for chunk in chunks:
        values, _ = elements_in_order(chunk.values, dtype)
        codes = group_codes(chunk)
        if dtype.kind in "mM":
            is_nat = values == np.iinfo(np.int64).min
            n_nat += np.bincount(codes[is_nat & (codes >= 0)], minlength=n_groups)
            codes = np.where(is_nat, np.int32(-1), codes)
        parts.append((values, as_codes(codes, values)))
    return parts, n_nat if dtype.kind in "mM" else None


# --- Rows -----------------------------------------------------------------------------------------


def is_finite(values: Any) -> bool:
    """Return whether no element is NaN or infinite."""
    if not is_kind(values, "real floating"):
        return True
    return all_true(namespace(values).isfinite(values))


def taken(values: Any, places: NDArray[np.int64]) -> Any:
    """Return the rows at some places, in kind."""
    return namespace(values).take(values, like(places, values), axis=0)
