"""What happens to one chunk: the kernels for its kind of array, imported when the first such chunk
is met.

A kernel module offers the functions of `Kernels` on flat arrays of `selection_dtype`, or, for CuPy,
on chunks as they are; `reference` is what the others are pinned to.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    as_type,
    checked,
    is_cupy,
    is_kind,
    like,
    namespace,
    numpy_dtype,
    to_host,
    transposed,
)
from dask_gpuselect.kernels.reference import distances
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths import finish
from dask_gpuselect.maths import lane_cuts as lane_cuts_
from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, RanksOf, Tally
from dask_gpuselect.maths.fits.concentration import RowTally
from dask_gpuselect.maths.fits.designs import Design
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import BoxesQuestion, Fences, LaneEnds
from dask_gpuselect.maths.lane_cuts import (
    FindBrackets,
    LaneBrackets,
    LaneCuts,
    LaneQuestion,
    Lanes,
    LaneTally,
    RanksOfLanes,
    cuts_of_sorted,
    join,
    lanes_of,
    tally_of_sorted,
)
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.nearest import Nearest
from dask_gpuselect.maths.sizes import pivot_count
from dask_gpuselect.strategies import probes

# Candidates that NumPy partitions in a millisecond: 2e7 took it 300 ms, and a GPU 15 with the copy.
WORTH_MOVING = 1 << 16


Report = TypeVar("Report", LaneCuts, LaneTally)


class Kernels(Protocol):
    """The functions of a kernel module."""

    def cuts(self, values: Any, n_pivots: int) -> Cuts: ...

    def tally(self, values: Any, brackets: Brackets, most: int) -> Tally | None: ...

    def tally_in_place(self, values: Any, brackets: Brackets, most: int) -> Tally | None: ...

    def sample(self, values: Any, size: int) -> NDArray[Any]: ...

    def sorted_sample(self, values: Any, size: int) -> tuple[Any, float]: ...

    def is_best_whole(self, values: Any) -> bool: ...

    def whole(self, values: Any, ranks: RanksOf) -> Tally: ...

    def pilot(self, values: Any, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]: ...

    def moments(self, values: Any, near: NDArray[Any]) -> Moments: ...

    def report(self, values: Any, probe: probes.Measure) -> probes.Report: ...

    def bitonic_sorted(self, values: Any, sub_array: int) -> Any: ...

    def merged(self, parts: Sequence[Tally]) -> Tally: ...

    def lanes(self, parts: Sequence[Any], ranks: RanksOfLanes) -> Lanes: ...

    def sorted_lanes(self, parts: Sequence[Any]) -> Iterator[NDArray[Any]]: ...

    def lane_ends(self, parts: Sequence[Any], fences: Fences, most: int) -> LaneEnds: ...


def cuts(chunk: Any, dtype: np.dtype[Any], share: int) -> Cuts:
    """The cuts of a chunk of any shape.

    Parameters
    ----------
    chunk : array
        A chunk of a dask array, or a whole array.
    dtype : dtype
        What the array says its chunks are.
    share : int
        See `strategies.pivot_count`.
    """
    values, n_nat = _elements(chunk, dtype)
    found = _kernels_for(values).cuts(values, pivot_count(math.prod(values.shape), share))
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat else found


def tally(chunk: Any, dtype: np.dtype[Any], brackets: Brackets, most: int) -> Tally | None:
    """The tally of a chunk of any shape; None if it has more than `most` candidates."""
    values, n_nat = _elements(chunk, dtype)
    return _with_nat(_kernels_for(values).tally(values, brackets, most), n_nat)


def tally_in_place(chunk: Any, dtype: np.dtype[Any], brackets: Brackets, most: int) -> Tally | None:
    """As `tally`, with candidates that stay on the chunk's device; see
    `finish.order_statistics`."""
    values, n_nat = _elements(chunk, dtype)
    return _with_nat(_kernels_for(values).tally_in_place(values, brackets, most), n_nat)


def moments(chunk: Any, near: NDArray[Any], dtype: np.dtype[Any]) -> Moments:
    """Exact sums of a chunk. `near` has some values of the kind that it holds: how fast the sums
    are depends on them, and nothing else."""
    values, _ = _elements(chunk, dtype)
    return _kernels_for(values).moments(values, near)


def report(chunk: Any, dtype: np.dtype[Any], probe: probes.Measure) -> probes.Report:
    """What a strategy's probe finds in a chunk of any shape."""
    values, n_nat = _elements(chunk, dtype)
    found = _kernels_for(values).report(values, probe)
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat else found


def elements_at(candidates: Any, places: NDArray[np.int64], sorts: str | int) -> NDArray[Any]:
    """The elements that sorting candidates would put at some places, on the host.

    Parameters
    ----------
    sorts : "select", "sort", or int
        Whether all are sorted, and how: by a bitonic network of sub-arrays of so many elements.
    """
    if sorts == "select":
        return finish.elements_at(candidates, places)
    values = candidates if isinstance(candidates, np.ndarray) else candidates.elements
    if isinstance(sorts, int):
        return reference.elements_at(_kernels_for(values).bitonic_sorted(values, sorts), places)
    return reference.elements_at(reference.sorted_copy(values), places)


def is_best_whole(array: Any) -> bool:
    """Whether an array is so small that all its elements are best taken for candidates."""
    return _kernels_for(array).is_best_whole(array)


def whole(array: Any, dtype: np.dtype[Any], ranks: RanksOf) -> tuple[Brackets, Tally]:
    """A bracket of everything, and the tally there, for the elements of some ranks."""
    values, n_nat = _elements(array, dtype)
    found = _kernels_for(values).whole(values, ranks)
    everything = Brackets(np.empty(0, selection_dtype(dtype)), np.ones(1, np.bool_))
    return everything, replace(found, n_missing=found.n_missing + n_nat)


def merged(parts: Sequence[Tally], array: Any) -> Tally:
    """The tally of all parts together, with its candidates where selecting is fastest, for answers
    of the kind of `array`: many of them on the GPU, where they came from."""
    n_candidates = sum(len(part.candidates) for part in parts)
    if not is_cupy(array) or n_candidates < WORTH_MOVING:
        return Tally.merge(parts)
    return _kernels_for(array).merged(parts)


def answer_lanes(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], question: LaneQuestion
) -> Any:
    """The answers for every lane along `axes`, of all chunks together, ``(n_answers, n_lanes)``, in
    kind; see `lanes`."""
    chunks = [checked(chunk, dtype) for chunk in chunks]
    if is_cupy(chunks[0]) and sum(chunk.size for chunk in chunks):
        kernel = cast(Any, importlib.import_module("dask_gpuselect.kernels.cuda.lanes"))
        own = [chunk.astype(dtype, copy=False) for chunk in chunks]
        found = kernel.answer_lanes(own, axes, question)
        if found is not None:
            return found
    if isinstance(chunks[0], np.ndarray):
        kernel = cast(Any, importlib.import_module("dask_gpuselect.kernels.cpu.selection"))
        return kernel.answer_lanes(_lanes_of(chunks, dtype, axes), question)
    answer = question.lane_answer(lanes(chunks, dtype, axes, question.lane_ranks))
    return like(answer, chunks[0])


def lanes(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], ranks: RanksOfLanes
) -> Lanes:
    """The elements of some ranks in every lane along `axes`, of all chunks together.

    Parameters
    ----------
    chunks : sequence of arrays
        Of one shape but for `axes`.
    dtype : dtype
        What their array says they are.
    axes : tuple of int
        Ascending. Lanes are numbered in C order of the other axes.
    ranks : callable
        See `lane_cuts.RanksOfLanes`.
    """
    parts = _lanes_of(chunks, dtype, axes)
    return _kernels_for(parts[0]).lanes(parts, ranks)


def lane_cuts(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: LaneBrackets | None,
    m: int,
) -> LaneCuts:
    """The cuts of every lane at `m` ranks, inside its brackets if there are any."""
    parts = _lanes_of(chunks, dtype, axes)
    if isinstance(parts[0], np.ndarray) and parts[0].dtype.kind not in "Mm":
        found: LaneCuts = join(list(_cpu_lane_passes().cuts(parts, brackets, m)))
        return found
    measure = partial(cuts_of_sorted, m=m)
    return join(list(_in_turn(measure, chunks, dtype, axes, brackets)))


def lane_tally(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], brackets: LaneBrackets
) -> LaneTally:
    """Counts of every lane at its brackets, and candidates."""
    parts = _lanes_of(chunks, dtype, axes)
    if isinstance(parts[0], np.ndarray) and parts[0].dtype.kind not in "Mm":
        found: LaneTally = join(list(_cpu_lane_passes().tallies(parts, brackets)))
        return found
    return join(list(_in_turn(tally_of_sorted, chunks, dtype, axes, brackets)))


def merge_lane_cuts(parts: Sequence[LaneCuts], m: int) -> LaneCuts:
    """See `lane_cuts.merge`. Reports are on the host, whatever chunks they are of."""
    find: FindBrackets = _cpu_lane_passes().bracketed
    return lane_cuts_.merge(parts, m, find)


def find_lane_brackets(parts: Sequence[LaneCuts], ranks: RanksOfLanes) -> LaneBrackets:
    """See `lane_cuts.find_brackets`."""
    return lane_cuts_.find_brackets(parts, ranks, _cpu_lane_passes().bracketed)


def narrow_lane_brackets(parts: Sequence[LaneCuts], brackets: LaneBrackets) -> LaneBrackets:
    """See `lane_cuts.narrow`."""
    return lane_cuts_.narrow(parts, brackets, _cpu_lane_passes().bracketed)


def merge_lane_tallies(parts: Sequence[LaneTally]) -> LaneTally:
    """See `lane_cuts.merge_tallies`."""
    found: LaneTally = _cpu_lane_passes().merge_tallies(parts)
    return found


def _cpu_lane_passes() -> Any:
    return importlib.import_module("dask_gpuselect.kernels.cpu.lane_passes")


def lane_boxes(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], question: BoxesQuestion
) -> tuple[NDArray[np.float64], LaneEnds]:
    """The quantiles ``(n_q, n_lanes)`` of every lane, and what lies at its ends."""
    if all(isinstance(chunk, np.ndarray) for chunk in chunks):
        kernel = cast(Any, importlib.import_module("dask_gpuselect.kernels.cpu.selection"))
        found: tuple[Any, LaneEnds] = kernel.lane_boxes(_lanes_of(chunks, dtype, axes), question)
        return found
    q = to_host(answer_lanes(chunks, dtype, axes, question)).astype(np.float64)
    fences = Fences.of(q, question.rule, selection_dtype(dtype))
    return q, lane_ends(chunks, dtype, axes, fences, question.rule.max_fliers)


def lane_ends(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], fences: Fences, most: int
) -> LaneEnds:
    """What is beyond the fences of every lane, with at most so many fliers of each side."""
    parts = _lanes_of(chunks, dtype, axes)
    return _kernels_for(parts[0]).lane_ends(parts, fences, most)


def _in_turn(
    measure: Callable[..., Report],
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: LaneBrackets | None,
) -> Iterator[Report]:
    """What is measured of one table of lanes after the other, each with its brackets."""
    start = 0
    parts = _lanes_of(chunks, dtype, axes)
    for rows in _kernels_for(parts[0]).sorted_lanes(parts):
        stop = start + len(rows)
        yield measure(rows, None if brackets is None else lanes_of(brackets, start, stop))
        start = stop


def _lanes_of(chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...]) -> list[Any]:
    """The chunks as kernels take the parts of lanes."""
    return [_lanes_last(_comparable(checked(chunk, dtype), dtype), axes) for chunk in chunks]


def _lanes_last(chunk: Any, axes: tuple[int, ...]) -> Any:
    """A chunk with its reduced axes as one, the last: a view where that can be."""
    kept = [axis for axis in range(chunk.ndim) if axis not in axes]
    moved = transposed(chunk, (*kept, *axes))
    shape = (chunk.shape[axis] for axis in kept)
    n = math.prod(chunk.shape[axis] for axis in axes)
    return namespace(chunk).reshape(moved, (*shape, n))


def _comparable(chunk: Any, dtype: np.dtype[Any]) -> Any:
    """A chunk in a dtype that is sorted fast: the same order, and exact both ways."""
    wanted = selection_dtype(dtype)
    if not isinstance(chunk, np.ndarray):
        return chunk if numpy_dtype(chunk) == wanted else as_type(chunk, wanted.name)
    native = chunk.astype(dtype.newbyteorder("="), copy=False)
    # NumPy sorts NaT to the end, as it does NaN.
    return native if dtype.kind in "Mm" else native.astype(wanted, copy=False)


def _with_nat(found: Tally | None, n_nat: int) -> Tally | None:
    return replace(found, n_missing=found.n_missing + n_nat) if n_nat and found else found


def sample(chunk: Any, dtype: np.dtype[Any], rate: float) -> NDArray[Any]:
    """Valid elements at hashed places of a chunk, about `rate` of all, on the host."""
    values, _ = _elements(chunk, dtype)
    n: int = math.prod(values.shape)
    return _kernels_for(values).sample(values, min(n, math.ceil(rate * n)))


def sorted_sample(array: Any, dtype: np.dtype[Any], size: int) -> tuple[Any, float]:
    """Valid elements at `size` hashed places of an array or more, ascending, on its device; and
    which share of all places these are."""
    values, _ = _elements(array, dtype)
    return _kernels_for(values).sorted_sample(values, min(size, math.prod(values.shape)))


def pilot(
    array: Any, dtype: np.dtype[Any], size: int, ranks: RanksOf
) -> tuple[Brackets, Tally | None]:
    """Brackets by a sample of `size` elements or more, and the tally there, with candidates that
    stay on the array's device."""
    values, n_nat = _elements(array, dtype)
    size = min(size, math.prod(values.shape))
    brackets, found = _kernels_for(values).pilot(values, size, ranks)
    return brackets, _with_nat(found, n_nat)


def nearest(rows: Any, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """The nearest rows of some queries, of a chunk ``(n, p)``, on the host.

    See `distances.nearest`. Tiles of NumPy chunks have at most 512 elements.
    """
    if isinstance(rows, np.ndarray):
        kernel = cast(Any, importlib.import_module("dask_gpuselect.kernels.cpu.distances"))
        found: Nearest = kernel.nearest(rows, queries, k)
        return found
    return distances.nearest(rows, queries, k, tile_elements)


# --- Rows ---------------------------------------------------------------------------------------


class RowKernels(Protocol):
    """The functions of a module of kernels for the rows of two chunks; `residuals` is the
    reference."""

    def row_tallies(
        self,
        x: Any,
        y: Any,
        design: Design,
        thetas: FloatArray,
        ends: Sequence[FloatArray],
        most: Sequence[int],
        *,
        with_sums: bool,
    ) -> list[RowTally]: ...

    def absolute_residuals(self, x: Any, y: Any, design: Design, theta: FloatArray) -> Any: ...


def row_kernels_for(x: Any) -> RowKernels:
    if isinstance(x, np.ndarray):
        return cast(RowKernels, importlib.import_module("dask_gpuselect.kernels.cpu.residuals"))
    if is_cupy(x):
        return cast(RowKernels, importlib.import_module("dask_gpuselect.kernels.cuda.rows"))
    return cast(RowKernels, importlib.import_module("dask_gpuselect.kernels.reference.residuals"))


def is_finite(values: Any) -> bool:
    """Whether no element is NaN or infinite."""
    if not is_kind(values, "real floating"):
        return True
    xp = namespace(values)
    return bool(xp.all(xp.isfinite(values)))


def taken(values: Any, places: NDArray[np.int64]) -> NDArray[Any]:
    """The rows at some places, on the host."""
    if isinstance(values, np.ndarray):
        return values[places]
    found = namespace(values).take(values, like(places, values), axis=0)
    return cast(NDArray[Any], to_host(found))


# --- Which kernels, of which elements -----------------------------------------------------------


def _kernels_for(values: Any) -> Kernels:
    if isinstance(values, np.ndarray):
        return cast(Kernels, importlib.import_module("dask_gpuselect.kernels.cpu.selection"))
    if is_cupy(values):
        return cast(Kernels, importlib.import_module("dask_gpuselect.kernels.cuda.kernels"))
    return reference


def _elements(chunk: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """The elements of a chunk as its kernels take them, without NaT, and the number of NaT.

    A view where the chunk allows it: a contiguous one of a dtype that is compared as it is, and any
    CuPy array of the dtype that was promised.
    """
    chunk = checked(chunk, dtype)
    if isinstance(chunk, np.ndarray):
        return _flat_numpy(chunk, dtype)
    if is_cupy(chunk):
        return chunk.astype(dtype, copy=False), 0
    flat = namespace(chunk).reshape(chunk, (-1,))
    wanted = selection_dtype(dtype)
    return (flat if numpy_dtype(chunk) == wanted else as_type(flat, wanted.name)), 0


def _flat_numpy(chunk: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    flat = np.asarray(chunk, dtype).ravel(order="K")
    if dtype.kind in "bMm":
        flat = flat.astype(dtype.newbyteorder("="), copy=False).view(selection_dtype(dtype))
    values = np.require(flat, selection_dtype(dtype), ["C", "A"])
    if dtype.kind not in "Mm":
        return values, 0
    is_valid = values != np.iinfo(np.int64).min  # NaT
    n_nat = len(values) - int(np.count_nonzero(is_valid))
    return (values[is_valid], n_nat) if n_nat else (values, 0)
