"""Protocols of a backend: the functions that the kernels for one kind of chunk offer.

A backend is a folder with one module for each protocol, and a `backend.py` that lists them. The
docstrings of `kernels.reference` define the functions. Tests hold the other backends to them. A
result "in kind" is an array of the same library, on the same device, as the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference.ordering import Dealt
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.boxes import BoxGuess, Rule
from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray, RanksOf, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.fits.concentration import RowTally
from dask_gpuselect.maths.fits.designs import Design
from dask_gpuselect.maths.labels import Labels
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import (
    ElementOrder,
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
from dask_gpuselect.maths.ragged import CellTally
from dask_gpuselect.maths.rulers import Ruler
from dask_gpuselect.maths.runs import Runs
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from dask_gpuselect.maths.tails import LaneTails, TailSizes
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.maths.weight_guess import WeightedSample
from dask_gpuselect.maths.windows import Frame, RowWindows, WindowOrder
from dask_gpuselect.strategies.probes import Measure, Report

MOST_STACKED = 64
"""Largest number of chunks of a column that a device reads in place. More are joined by a copy."""

Chunk = Any
"""A chunk of any shape, after `arrays.checked`."""
Values = Any
"""The elements of a chunk, as `Selection.elements_of` returns them."""
Part = Any
"""A part of lanes, shape ``(*lanes, n)``, with its mask and weights if it has some, as
`LaneKernels.parts_of` returns it."""


class Selection(Protocol):
    """Counts of elements between pivots, and the elements between the ends of brackets."""

    def elements_of(self, chunk: Chunk, dtype: np.dtype[Any]) -> tuple[Values, int]: ...

    def unmasked(self, chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Values, int]: ...

    def cuts(self, values: Values, n_pivots: int) -> Cuts: ...

    def value_counts(self, chunk: Chunk, dtype: np.dtype[Any]) -> ValueCounts: ...

    def tally(self, values: Values, brackets: Brackets, most: int) -> Tally | None: ...

    def tally_by_ruler(
        self, values: Values, ruler: Ruler, brackets: Brackets, most: int
    ) -> tuple[Tally, IntArray, IntArray] | None: ...

    def tally_in_place(self, values: Values, brackets: Brackets, most: int) -> Tally | None: ...

    def merged(self, parts: Sequence[Tally]) -> Tally: ...


class Weighing(Protocol):
    """Weighted elements: counts, sums of weights, and candidates.

    Masked elements and elements of weight zero are left out. Partial results are on the host,
    except the candidates of `tally_in_place`.
    """

    def weighed(self, chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Values, Values, int]: ...

    def cuts(self, values: Values, weights: Values, n_pivots: int) -> Cuts: ...

    def tally(
        self, values: Values, weights: Values, brackets: Brackets, most: int
    ) -> Tally | None: ...

    def tally_in_place(
        self, chunk: Accompanied, dtype: np.dtype[Any], brackets: Brackets, most: int
    ) -> Tally | None: ...

    def sorted_sample(
        self, chunk: Accompanied, dtype: np.dtype[Any], size: int
    ) -> tuple[WeightedSample, float]: ...

    def products(
        self, values: Values, weights: Values, ends: NDArray[Any], summed: NDArray[np.bool_]
    ) -> ExactSums: ...

    def moments(self, values: Values, weights: Values) -> Moments: ...


class Sampling(Protocol):
    """Samples of arrays in memory, and the brackets, tallies and sums that follow from them."""

    def sample(self, values: Values, size: int) -> NDArray[Any]: ...

    def sorted_sample(self, values: Values, size: int) -> tuple[Any, float]: ...

    def pilot(self, values: Values, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]: ...

    def tally_and_sums(
        self, values: Values, brackets: Brackets, most: int, ranks: Callable[[int], IntArray]
    ) -> tuple[Tally | None, Moments]: ...

    def guess_and_sums(
        self,
        values: Values,
        sample: Values,
        guess: BoxGuess,
        most: int,
        ranks: Callable[[int], IntArray],
    ) -> tuple[Brackets, Tally | None, Moments] | None: ...

    def is_best_whole(self, values: Values, times: int = 1) -> bool: ...

    def is_best_counted(self, values: Values) -> bool: ...

    def whole(self, values: Values, ranks: Callable[[int], Any]) -> Tally: ...


class AddsUp(Protocol):
    """Exact sums of elements and of their squares."""

    def moments(self, values: Values, near: NDArray[Any]) -> Moments: ...

    def in_cells(self, values: Any, ends: NDArray[Any], cells: NDArray[np.bool_]) -> Any: ...


class Measures(Protocol):
    """Measurements that strategies ask for."""

    def report(self, values: Values, probe: Measure) -> Report: ...


class Bitonic(Protocol):
    """Sorting by a bitonic network."""

    def bitonic_sorted(self, values: Values, sub_array: int) -> Any: ...


class LaneKernels(Protocol):
    """Lanes whose elements are all in memory.

    Chunks may have masks and weights: either all of them or none. An unweighted element counts as
    weight 1; only chunks with weights are asked about weights.
    """

    def parts_of(
        self, chunks: Sequence[Chunk], dtype: np.dtype[Any], axes: tuple[int, ...]
    ) -> list[Part]: ...

    def answer_lanes(
        self,
        chunks: Sequence[Chunk],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        question: LaneOrder,
    ) -> Any: ...

    def answer_group_lanes(
        self,
        chunks: Sequence[Chunk],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        question: LaneOrder,
        places: Callable[[], Sequence[IntArray]],
    ) -> Any | None: ...

    def answer_only_lane(self, values: Chunk, question: ElementOrder) -> Any | None: ...

    def box_lanes(
        self,
        chunks: Sequence[Chunk],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        question: LaneOrder,
        rule: Rule,
        *,
        omits_nan: bool,
    ) -> LaneBoxes | None: ...

    def answers_and_ends(
        self,
        chunks: Sequence[Chunk],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        question: LaneOrder,
        bounds_of: BoundsOf,
        most: int,
    ) -> tuple[FloatArray, LaneEnds]: ...

    def lanes(self, parts: Sequence[Part], ranks: RanksOfLanes) -> Lanes: ...

    def sorted_lanes(self, parts: Sequence[Part]) -> Iterator[SortedLanes]: ...

    def lane_ends(self, parts: Sequence[Part], bounds: Bounds, most: int) -> LaneEnds: ...

    def deviations(self, chunk: Chunk, centre: Any, dtype: np.dtype[Any]) -> Any: ...


class Groups(Protocol):
    """Elements in groups; each chunk comes with the group codes of its elements.

    See `reference.groups`.
    """

    def cuts(self, parts: Sequence[tuple[Values, Values]], n_groups: int, share: int) -> Cuts: ...

    def tally(self, parts: Sequence[tuple[Values, Values]], brackets: Brackets) -> CellTally: ...

    def elements(
        self, parts: Sequence[tuple[Values, Values]], n_groups: int, ranks: RanksOfLanes
    ) -> Lanes: ...

    def value_counts(
        self, parts: Iterable[tuple[Values, Values]], n_groups: int, n_words: int
    ) -> IntArray: ...

    def lane_counts(self, rows: Values, keeps: Values | None, n_words: int) -> IntArray | None: ...

    def places_in_groups(self, codes: NDArray[Any], n_groups: int) -> tuple[IntArray, IntArray]: ...

    def sorted_in_groups(
        self, values: NDArray[Any], codes: NDArray[np.int32], n_groups: int
    ) -> NDArray[Any]: ...

    def window_lanes(
        self, parts: Sequence[Part], atoms: Atoms, ranks: RanksOfLanes
    ) -> Lanes | None: ...


class RunKernels(Protocol):
    """The elements of each group of some chunks, sorted together; see `reference.runs`."""

    def sorted_runs(
        self, chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int
    ) -> Runs | None: ...


class LabelKernels(Protocol):
    """Labels of elements: the distinct ones, on the host, and codes of elements among these.

    Codes are on the device of the labels, or on the host.
    """

    def distinct(self, labels: Any) -> Labels: ...

    def codes_among(self, labels: Any, names: Labels) -> Any: ...


class Windows(Protocol):
    """Windows that move over a padded chunk; see `reference.windows`."""

    def counts(self, chunk: Chunk, frame: Frame) -> tuple[Any, Any]: ...

    def answer(
        self, chunk: Chunk, dtype: np.dtype[Any], frame: Frame, order: WindowOrder
    ) -> Any: ...

    def answer_rows(
        self, values: Chunk, dtype: np.dtype[Any], windows: RowWindows, order: WindowOrder
    ) -> Any: ...


class LanePasses(Protocol):
    """Lanes that are read in parts, as `LaneKernels.parts_of` makes them.

    Partial results and answers are on the device of the chunks. Order statistics, and everything
    about chunks with masks or weights, are on the host.
    """

    def cuts(self, parts: Sequence[Part], brackets: Any | None, m: int) -> Any: ...

    def tally(self, parts: Sequence[Part], brackets: Any) -> Any: ...

    def tails(
        self, parts: Sequence[Part], sizes: TailSizes, n_unused: IntArray | None = None
    ) -> LaneTails: ...

    def bracketed(
        self, parts: Sequence[LaneCuts], lower: IntArray, upper: IntArray
    ) -> tuple[NDArray[Any], NDArray[Any]]: ...

    def find_lane_brackets(
        self, parts: Sequence[LaneCuts], ranks: RanksOfLanes
    ) -> LaneBrackets: ...

    def merge_tallies(self, parts: Sequence[LaneTally]) -> LaneTally: ...

    def answers(self, tally: LaneTally, brackets: LaneBrackets, order: LaneOrder) -> Any | None: ...

    def order_statistics(self, tally: LaneTally, brackets: LaneBrackets) -> Lanes: ...


class Residuals(Protocol):
    """Counts and sums over the rows of two chunks, for linear fits."""

    def row_tallies(
        self,
        x: Chunk,
        y: Chunk,
        design: Design,
        thetas: FloatArray,
        ends: Sequence[FloatArray],
        most: Sequence[int],
        *,
        with_sums: bool,
    ) -> list[RowTally]: ...

    def absolute_residuals(self, x: Chunk, y: Chunk, design: Design, theta: FloatArray) -> Any: ...


class Distances(Protocol):
    """The nearest rows of queries."""

    def nearest(self, rows: Chunk, queries: FloatArray, k: int, tile_elements: int) -> Nearest: ...

    def nearest_in_place(
        self, rows: Chunk, queries: Any, k: int, tile_elements: int
    ) -> NearestRows: ...


class LowerSets(Protocol):
    """Isotonic regression on the device of an array, of at most `BEST_UPTO` elements."""

    @property
    def BEST_UPTO(self) -> int: ...

    def lower_sets(self, y: Any, weights: Any = None) -> Any: ...


class BegunFingerprint(Protocol):
    """A fingerprint that a device may still be computing."""

    words: Any  # an array of the device


class Fingerprints(Protocol):
    """Fingerprints of chunks: 64 bits that depend on every element."""

    def mixed_in(self, start: int, chunk: Chunk) -> int: ...

    def begun(self, start: int, chunk: Chunk) -> int | BegunFingerprint: ...

    def summed(self, start: int, columns: Sequence[Chunk]) -> int | BegunFingerprint: ...

    def ended(self, all_begun: Sequence[Any]) -> list[int]: ...


class Ordering(Protocol):
    """Sorting of one chunk: its keys, sorted or cut into pieces."""

    def keys_of(self, chunk: Chunk, dtype: np.dtype[Any]) -> Any: ...

    def elements_of(self, keys: Any, dtype: np.dtype[Any]) -> Any: ...

    def sort(self, keys: Any) -> None: ...

    def stable_order(self, keys: Any) -> Any: ...

    def dealt(
        self,
        values: Any,
        marks: NDArray[Any],
        dtype: np.dtype[Any],
        *,
        has_order: bool,
        known: tuple[IntArray, IntArray],
        ends: IntArray | None = None,
    ) -> Dealt: ...


@dataclass(frozen=True)
class Backend:
    """All kernels for one kind of chunk: a module for each purpose.

    mypy checks each module against its protocol where a `Backend` is made.
    """

    selection: Selection
    weighing: Weighing
    sampling: Sampling
    moments: AddsUp
    measures: Measures
    bitonic: Bitonic
    lanes: LaneKernels
    lane_passes: LanePasses
    groups: Groups
    runs: RunKernels
    labels: LabelKernels
    residuals: Residuals
    distances: Distances
    lower_sets: LowerSets
    fingerprints: Fingerprints
    ordering: Ordering
    windows: Windows
