"""Cuts of load 1, brackets that they prove, and tallies of load 2.

Everything here is frozen, pure and plain NumPy on the host: no dask, no GPU. Counts and ranks are
int64.

The objective of an order statistic, f(y) = sum |x - y|, is a sum over chunks. So each chunk can
tell at a pivot p its part of the slope: how many elements are below p, and how many up to p. These
are the *cuts* of Kelley's method (Beliakov 2011, section IV); every chunk contributing its own
bundle of cuts is its multicut form (Birge & Louveaux 1988). Their sum bounds the number of elements
up to any y from both sides, which is all a bracket needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.exact_sums import ExactSums, joined_weights, sum_of
from dask_gpuselect.maths.tables import Arrays as Arrays
from dask_gpuselect.maths.tables import FloatArray as FloatArray
from dask_gpuselect.maths.tables import IntArray as IntArray
from dask_gpuselect.maths.tables import Joined as Joined
from dask_gpuselect.maths.tables import ahead
from dask_gpuselect.maths.tables import merge as merge
from dask_gpuselect.maths.tables import merge_all as merge_all
from dask_gpuselect.maths.tables import merge_any as merge_any

RanksOf = Callable[[int], tuple[IntArray, IntArray]]
"""Function from a number of elements to the first and last ranks that are wanted among them."""

ADVICE = "The source is not reproducible: `.persist()` the array first."


class ChunksChangedError(RuntimeError):
    """Raised if a chunk differs between two reads, so that there is no exact answer.

    It is raised while computing, and names the chunk by its place in the grid. The source is not
    reproducible: for example an unseeded random function, or a file that is being written. Type
    ``x.persist()`` or ``x.to_zarr(...)`` to fix the data.

    Notes
    -----
    An answer that is returned is exact for one version of every chunk, never for a mixture of two.
    Functions ensure this in one of two ways.

    If the counts of a single read prove the answer, they are compared with those of the other read.
    This is so for quantiles and order statistics of all elements, `quantile_bins`, `ecdf`, and the
    results of `sort`, `argsort` and `sort_by`. A change that cannot alter the answer may leave all
    counts as they are, and then is no error.

    If the answer depends on several reads, each one is compared with the one before by a 64-bit
    fingerprint of every chunk, a hash of all its bits. Any change of an element is then an error,
    even one that would not alter the answer. It stays unnoticed with a probability of 2**-64. Data
    that dask has in memory is not compared where it is read in place.

    The question decides whether the order of the elements matters. It matters for quantiles and box
    plots along an axis in several passes, `mad` along an axis, robust fits and their `support_`,
    and a search for neighbours among the rows themselves. It does not matter for questions about
    all elements and about groups of them: `describe_boxplot`, `mad` with a third read, strategies,
    and groups of the rows of a DataFrame. There a chunk may have its elements in another order at
    each read, as partitions have after a shuffle on disk. Each element must keep its own mask,
    weight and label.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Cuts(Joined):
    """Cuts of one chunk, or of several, chunk after chunk.

    The pivots of a chunk divide its valid elements (neither NaN nor NaT) into those equal to a
    pivot and those in the open cells before, between and behind the pivots. Nothing else of the
    data is retained.

    If there are several slots, a *run* is in the place of a chunk: the elements of one slot in a
    chunk, or in several chunks.

    Parameters
    ----------
    pivots : ndarray, shape (P,), dtype of the chunks
        Ascending and distinct within a chunk. No NaN.
    below, upto : ndarray of int64, shape (P,)
        Number of valid elements of the chunk that are < and <= the pivot. Exact.
    sizes : ndarray of int64, shape (B,)
        Number of pivots of each chunk. A chunk without valid elements has none, others have at
        least one.
    n_valid, n_missing : ndarray of int64, shape (B,)
        Number of valid elements, and of NaN or NaT, of each chunk.
    least : ndarray of int64, shape (P,), optional
        Lower bound of the number that is <= the pivot, if `below` and `upto` are upper bounds: see
        `maths.coarse`. None if they are exact.
    slots : ndarray of int32, shape (B,), optional
        Slot of each run. None if there is one slot.
    doubt : float
        Share of all elements by which the counts of all chunks together may be off. It is 0, except
        for the expected cuts of `maths.chunk_sample`.
    weight_below, weight_upto : ndarray of int64, shape (P,), optional
        Upper bounds of the weight of the elements < and <= the pivot, in units of ``2**unit``. None
        if elements have no weights; then all columns below are None, too. Elements of weight 0 are
        left out of everything.
    weight_least : ndarray of int64, shape (P,), optional
        Lower bound of the weight of the elements <= the pivot.
    weight, weight_most : ndarray of int64, shape (B,), optional
        Lower and upper bound of the weight of all valid elements of each chunk.
    unit : ndarray of int64, shape (B,), optional
        Exponent of each chunk's unit.
    square : ndarray of float64, shape (B,), optional
        Sum of the squares of the weights of valid elements, in units of ``2**(2 * unit)``, in which
        none overflows. Its relative error is at most ``(n + SQUARE_ROUNDINGS) * 2**-52`` for a
        chunk of n valid elements, whatever the order of adding them up.

    Notes
    -----
    If there are slots, the counts are unsigned integers with as few bytes as possible, because
    there may be as many runs as elements. `unpacked` converts them to int64. The least and the
    largest element of a run are among its pivots.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    sizes: IntArray
    n_valid: IntArray
    n_missing: IntArray
    least: IntArray | None = field(default=None, kw_only=True)
    slots: NDArray[np.int32] | None = field(default=None, kw_only=True)
    doubt: float = field(default=0.0, kw_only=True)
    weight_below: Any = field(default=None, kw_only=True)
    weight_upto: Any = field(default=None, kw_only=True)
    weight_least: Any = field(default=None, kw_only=True)
    weight: Any = field(default=None, kw_only=True)
    weight_most: Any = field(default=None, kw_only=True)
    unit: Any = field(default=None, kw_only=True)
    square: Any = field(default=None, kw_only=True)

    OF_CHUNKS: ClassVar[frozenset[str]] = frozenset(
        {"sizes", "n_valid", "n_missing", "slots", "weight", "weight_most", "unit", "square"}
    )
    """Names of the columns with one entry for each chunk; the others have one for each pivot."""

    COUNTS: ClassVar[frozenset[str]] = frozenset(
        {"below", "upto", "least", "sizes", "n_valid", "n_missing"}
    )
    """Names of the columns of counts."""

    SUMS: ClassVar[frozenset[str]] = frozenset(
        {"weight_below", "weight_upto", "weight_least", "weight", "weight_most"}
    )
    """Names of the columns of bounds of weights."""

    @property
    def weighs(self) -> bool:
        """True if the cuts have weights."""
        return self.weight is not None

    @property
    def least_upto(self) -> IntArray:
        """Least number of valid elements of the chunk that are <= the pivot."""
        return self.upto if self.least is None else self.least

    @classmethod
    def of_chunk(
        cls,
        pivots: NDArray[Any],
        below: IntArray,
        upto: IntArray,
        n_valid: int,
        n_missing: int,
    ) -> Self:
        """Make the cuts of a single chunk."""
        counts = (len(pivots), n_valid, n_missing)
        sizes, valid, missing = (np.array([count], np.int64) for count in counts)
        return cls(pivots, below, upto, sizes, valid, missing)

    def with_weights(
        self, below: IntArray, upto: IntArray, weight: Any, unit: Any, square: Any
    ) -> Self:
        """Add weights to exact cuts, each rounded down to units of ``2**unit`` of its chunk.

        `below` and `upto` are the sums at the pivots, and `weight` is that of all elements of a
        chunk. A sum of n weights is too low by less than n units.
        """
        totals, units = (np.array(each, np.int64).reshape(-1) for each in (weight, unit))
        return replace(
            self,
            weight_below=below + self.below,
            weight_upto=upto + self.upto,
            weight_least=upto,
            weight=totals,
            weight_most=totals + self.n_valid,
            unit=units,
            square=np.array(square, np.float64).reshape(-1),
        )

    def of_chunks(self, chunks: IntArray, starts: IntArray | None = None) -> Self:
        """Take some chunks, by their numbers, in that order; `starts` are as of `starts()`."""
        if starts is None:
            starts = self.starts()
        sizes = self.sizes[chunks].astype(np.int64, copy=False)
        pivots = ahead(starts[chunks], sizes)
        columns = {
            name: column[chunks if name in self.OF_CHUNKS else pivots]
            for name, column in self.by_name().items()
        }
        return replace(self, **columns)

    def at_pivots(self, some: NDArray[Any], sizes: IntArray, **columns: Any) -> Self:
        """Take some of the pivots; `sizes` are the new numbers of pivots. Replace `columns`."""
        taken = {
            name: column[some]
            for name, column in self.by_name().items()
            if name not in self.OF_CHUNKS | columns.keys()
        }
        return replace(self, **taken, **columns, sizes=sizes)

    def starts(self) -> IntArray:
        """Find the index of the first pivot of each chunk."""
        return np.asarray(np.cumsum(self.sizes, dtype=np.int64) - self.sizes)

    # --- For slots: see `maths.ragged` ---

    @classmethod
    def of_runs(
        cls,
        slots: IntArray,
        sizes: IntArray,
        n_valid: IntArray,
        n_missing: IntArray,
        pivots: NDArray[Any],
        below: IntArray,
        upto: IntArray,
    ) -> Self:
        """Make the cuts of runs, with packed counts."""
        at_pivots, of_runs = (pivots, below, upto), (sizes, n_valid, n_missing)
        return cls(*at_pivots, *of_runs, slots=slots.astype(np.int32)).packed()

    @classmethod
    def of_missing(cls, counts: IntArray, dtype: np.dtype[Any]) -> Self:
        """Make runs without valid elements, from the number of missing elements of each slot."""
        slots = np.flatnonzero(counts)
        none, nothing = np.zeros(len(slots), np.int64), np.empty(0, np.int64)
        pivots = np.empty(0, dtype)
        return cls.of_runs(slots, none, none, counts[slots], pivots, nothing, nothing)

    def as_run(self, slot: int) -> Self:
        """Return the cuts of a single chunk as those of a run."""
        return replace(self, slots=np.array([slot], np.int32)).packed()

    def packed(self) -> Self:
        """Convert the counts to unsigned integers with as few bytes as possible."""
        return self._converted(packed)

    def unpacked(self) -> Self:
        """Convert the counts to int64."""
        return self._converted(lambda counts: counts.astype(np.int64, copy=False))

    def _converted(self, convert: Callable[[IntArray], NDArray[Any]]) -> Self:
        counts = {name: each for name, each in self.by_name().items() if name in self.COUNTS}
        columns: dict[str, Any] = {name: convert(each) for name, each in counts.items()}
        return replace(self, **columns)

    def in_slots(self, n_slots: int) -> tuple[IntArray, IntArray]:
        """Count the valid and the missing elements of each slot."""
        valid, missing = (
            totals(self.slots, each, n_slots) for each in (self.n_valid, self.n_missing)
        )
        return valid, missing

    def each(self, slots: NDArray[Any]) -> Iterator[tuple[int, Self]]:
        """Yield each of some slots with its cuts, as those of an array of its own."""
        assert self.slots is not None
        order = np.argsort(self.slots, kind="stable")
        edges = (self.slots[order].searchsorted(slots, side) for side in ("left", "right"))
        starts = self.starts()
        for slot, first, last in zip(*(each.tolist() for each in (slots, *edges)), strict=True):
            yield slot, replace(self.of_chunks(order[first:last], starts).unpacked(), slots=None)

    def among(self, edges: Sequence[int]) -> list[Self]:
        """Split the runs by slots between each two edges; slots are numbered anew from 0."""
        assert self.slots is not None
        starts = self.starts()
        pieces = []
        for first, last in itertools.pairwise(edges):
            runs = np.flatnonzero((self.slots >= first) & (self.slots < last))
            piece = self.of_chunks(runs, starts)
            pieces.append(replace(piece, slots=self.slots[runs] - np.int32(first)))
        return pieces

    # --- For expected cuts: see `maths.chunk_sample` ---

    @property
    def mass(self) -> tuple[IntArray, IntArray, IntArray]:
        """Measure whose shares quantiles are: up to the pivots, below them, and of each chunk.

        It is the weight in each chunk's unit, bounded from above, or the number of elements.
        """
        if self.weighs:
            return self.weight_upto, self.weight_below, self.weight_most
        return self.upto, self.below, self.n_valid

    def times(self, factors: FloatArray) -> Self:
        """Scale the sums of each chunk by a factor, rounded."""
        shares = factors / factors.max()  # only the ratios of weights matter
        columns: dict[str, Any] = {}
        for name, column in self.by_name().items():
            if name in self.COUNTS - {"sizes"} | self.SUMS:
                scale = shares if name in self.SUMS else factors
                scale = scale if name in self.OF_CHUNKS else np.repeat(scale, self.sizes)
                columns[name] = multiplied(column, scale)
        if self.weighs:
            columns["square"] = self.square * shares
        return replace(self, **columns)


def packed(counts: IntArray) -> NDArray[Any]:
    """Convert counts to unsigned integers with as few bytes as possible."""
    most = int(counts.max(initial=0))
    return counts.astype(np.min_scalar_type(most), copy=False)


def totals(slots: NDArray[Any] | None, counts: NDArray[Any], n_slots: int) -> IntArray:
    """Add up counts for each slot, exactly."""
    assert slots is not None
    sums = np.zeros(n_slots, np.int64)
    np.add.at(sums, slots, counts.astype(np.int64, copy=False))
    return sums


def multiplied(counts: IntArray, factors: FloatArray) -> IntArray:
    """Multiply counts by factors, and round."""
    return np.rint(counts * factors).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Brackets(Joined):
    """Intervals proven to hold the wanted order statistics, as cells between counted values.

    A bracket (lo, hi] is a run of neighbouring cells and their ends. Overlapping brackets share
    cells. Values known to be tied are ends, so they are counted and never gathered.

    Several slots follow one another. A slot of k ends has k + 1 cells of its own.

    Parameters
    ----------
    ends : ndarray, shape (E,), dtype of the chunks
        Ascending and distinct within a slot: values at which load 2 counts exactly.
    wanted : ndarray of bool, shape (E + 1,), or (E + S,) for S slots
        True if the elements of open cell j, between ``ends[j - 1]`` and ``ends[j]``, are
        candidates. The first cell of a slot is open below, the last one above.
    n_ends : ndarray of int64, shape (S,), optional
        Number of ends of each slot. None if there is one slot.
    summed : ndarray of bool, of the shape of `wanted`, optional
        True if products of element and weight are added up in open cell j. None of these cells is
        wanted, and each of them is between two ends. None if nothing asks for products.
    spared : object, optional
        Knowledge about elements that a further load may gather, because there was no room for them
        here.
    inner : ndarray of bool, of the shape of `wanted`, optional
        True for the open cells between the shells about a median, whose elements are at most as far
        from it as the middle distances.
    """

    ends: NDArray[Any]
    wanted: NDArray[np.bool_]
    n_ends: IntArray | None = field(default=None, kw_only=True)
    summed: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    spared: Any = field(default=None, kw_only=True)
    inner: Any = field(default=None, kw_only=True)

    @property
    def is_whole(self) -> bool:
        """True if the brackets leave nothing out for want of room."""
        return self.spared is None

    @property
    def needed(self) -> NDArray[np.bool_]:
        """Mask of the open cells for which a tally has more than the number of elements."""
        return self.wanted if self.summed is None else self.wanted | self.summed

    @classmethod
    def covering(cls, values: NDArray[Any], lo: IntArray, hi: IntArray, counted: IntArray) -> Self:
        """Make the brackets (lo, hi], given as positions among distinct ascending `values`.

        Position -1 is open below, ``len(values)`` open above. `counted` are positions of further
        values to make ends, such as heavily tied ones.
        """
        given = np.concatenate([lo[lo >= 0], counted, hi[hi < len(values)]])
        ends = distinct_places(given, len(values))
        return cls(values[ends], covered(ends, lo, hi))

    def places_inside(self, below: IntArray, upto: IntArray, n: int) -> IntArray:
        """Find the places in wanted cells among n ascending elements, counted at the ends.

        `below` and `upto` are the numbers of elements below each end, and up to it.
        """
        starts, stops = np.append(0, upto)[self.wanted], np.append(below, n)[self.wanted]
        return ahead(starts, stops - starts)

    # --- For slots: see `maths.ragged` ---

    @property
    def n_slots(self) -> int:
        return 1 if self.n_ends is None else len(self.n_ends)

    @property
    def first_end(self) -> IntArray:
        """Index of the first end of each slot, and the number of all ends."""
        if self.n_ends is None:
            return np.array([0, len(self.ends)])
        return np.append(np.int64(0), np.cumsum(self.n_ends))

    @property
    def first_cell(self) -> IntArray:
        """Index of the first cell of each slot, and the number of all cells."""
        return self.first_end + np.arange(self.n_slots + 1)

    @property
    def slot_of_cell(self) -> IntArray:
        return np.repeat(np.arange(self.n_slots), np.diff(self.first_cell))

    def end_behind(self, cells: IntArray) -> IntArray:
        """Find the index of the end behind each of some cells, none of which is a slot's last."""
        return cells if self.n_ends is None else cells - self.slot_of_cell[cells]

    def by_slot(self) -> Callable[..., Brackets]:
        """Return a function from the number of a slot to the slot's own brackets.

        With a second number, it returns those of several slots, up to that one.
        """
        ends, cells = self.first_end.tolist(), self.first_cell.tolist()

        def of_slots(slot: int, stop: int | None = None) -> Brackets:
            last, n_ends = slot + 1 if stop is None else stop, self.n_ends
            own = slice(cells[slot], cells[last])
            summed = None if self.summed is None else self.summed[own]
            some = None if stop is None or n_ends is None else n_ends[slot:stop]
            of_some = self.ends[ends[slot] : ends[last]], self.wanted[own]
            return Brackets(*of_some, n_ends=some, summed=summed)

        return of_slots

    @classmethod
    def of_each(cls, every: Sequence[Self]) -> Self:
        """Join the brackets of one or more slots."""
        n_ends = [np.array([len(own.ends)], np.int64) for own in every]
        return cls.merge([replace(own, n_ends=n) for own, n in zip(every, n_ends, strict=True)])


def distinct_places(places: IntArray, n: int) -> IntArray:
    """Sort some of `n` places and drop repeated ones.

    A table of flags does that for 4 million places among as many in 10 ms; NumPy's hashing takes a
    second.
    """
    if len(places) < n // 64:
        return np.unique(places)
    flags = np.zeros(n, np.bool_)
    flags[places] = True
    return np.flatnonzero(flags)


def covered(ends: IntArray, lo: IntArray, hi: IntArray) -> NDArray[np.bool_]:
    """Mark the cells between ascending `ends` that lie between a `lo` and its `hi`.

    Each `lo` and `hi` is an end, or is beyond all of them.
    """
    # Count, at each cell, the brackets that begin and end there. A cell is covered if more brackets
    # have begun than ended.
    count = np.zeros(len(ends) + 2, np.int64)
    np.add.at(count, np.searchsorted(ends, lo, side="right"), 1)
    np.add.at(count, np.searchsorted(ends, hi, side="left") + 1, -1)
    return np.asarray(np.cumsum(count)[:-1] > 0)


NO_SUMS, ZERO = ExactSums.zeros((0,)), ExactSums.zeros((1,))
UNKNOWN: Any = None  # takes the fewest bytes in a tally without weights


@dataclass(frozen=True, slots=True, eq=False)
class Tally(Arrays):
    """Counts and candidates that load 2 finds at some brackets, in one chunk or several together.

    If elements have weights, their weight stands beside their number.

    Parameters
    ----------
    below, upto : ndarray of int64, shape (E,)
        Number of valid elements < and <= each end. Exact.
    candidates : Candidates, dtype of the chunks
        Elements of the wanted cells.
    n_valid, n_missing, n_left_out : int
        Number of valid elements, of NaN or NaT, and of elements that take no part, such as masked
        ones, and NaN of weight 0.
    n_idle : int
        Number of valid elements of weight 0; a chunk with any weight may count NaN of weight 0,
        too.
    weights : array of float64 or int64, shape (C,), optional
        Weights of the candidates, in their order, on the host or the device as they are. None
        without weights; then the sums below are None, too. Merged and finished tallies have both on
        the host.
    weight_below, weight_upto : ExactSums, shape (E,)
        Weight of the valid elements < and <= each end.
    weight : ExactSums, shape (1,)
        Weight of all valid elements.
    square : ExactSums, shape (1,)
        Sum of the squares of the weights; 0 if nothing asked for it.
    products : ExactSums, shape (E + 1,)
        Sums of element times weight in the cells that are `Brackets.summed`; empty at other
        brackets.
    """

    below: IntArray
    upto: IntArray
    candidates: Candidates
    n_valid: int
    n_missing: int
    n_left_out: int = field(default=0, kw_only=True)
    n_idle: int = field(default=0, kw_only=True)
    weights: Any = field(default=None, kw_only=True)
    weight_below: ExactSums = field(default=UNKNOWN, kw_only=True)
    weight_upto: ExactSums = field(default=UNKNOWN, kw_only=True)
    weight: ExactSums = field(default=UNKNOWN, kw_only=True)
    square: ExactSums = field(default=UNKNOWN, kw_only=True)
    products: ExactSums = field(default=UNKNOWN, kw_only=True)

    @classmethod
    def of_segments(
        cls,
        counts: IntArray,
        sums: ExactSums | None,
        candidates: Candidates,
        weights: Any = None,
        n_missing: int = 0,
        **others: Any,
    ) -> Self:
        """Make a tally from the number of the elements in each segment, and their weight if known.

        Segments are cells, and the ends between them.
        """
        upto = counts.cumsum()
        if sums is not None:
            running = sums.running()[1:]
            others |= {"weight_below": running[:-1:2], "weight_upto": running[1::2]}
            others |= {"weight": running[-1:], "weights": weights}
            others = {"square": ZERO, "products": NO_SUMS} | others
        return cls(upto[:-1:2], upto[1::2], candidates, int(counts.sum()), n_missing, **others)

    def segments(self) -> tuple[IntArray, ExactSums]:
        """Count the elements in each cell and at the end behind it: ``(n_cells, 2)``.

        Also return the weight before each cell and each of these ends, and of all, in one row.
        """
        counts = np.zeros((len(self.below) + 1, 2), np.int64)
        counts[:, 0] = np.append(self.below, self.n_valid) - np.append(0, self.upto)
        counts[:-1, 1] = self.upto - self.below
        if not self.weighs:
            return counts, NO_SUMS
        n = len(self.below)
        order = np.full(2 * n + 3, 2 * n + 1)
        order[0], order[1:-2:2], order[2:-2:2] = 0, np.arange(1, n + 1), np.arange(n + 1, 2 * n + 1)
        before = ExactSums.joined([ZERO, self.weight_below, self.weight_upto, self.weight])
        return counts, before[order]

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Merge the tallies of all parts. Candidates move to the host unless there is one part."""
        if len(parts) == 1:
            return parts[0]
        columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(cls)}
        candidates, weights = columns.pop("candidates"), columns.pop("weights")
        merged = {name: sum_of(each) for name, each in columns.items() if each[0] is not None}
        if parts[0].weighs:
            merged["weights"] = joined_weights(weights)
        elements = np.concatenate([each.on_host() for each in candidates])
        return cls(candidates=Candidates(elements), **merged)

    @property
    def weighs(self) -> bool:
        """True if the tally has weights."""
        return self.weights is not None

    def in_order(self) -> Self:
        """Sort the candidates, with their weights on the host if there are any."""
        if not self.weighs:
            return replace(self, candidates=self.candidates.ordered())
        elements, weights = self.columns()
        if not (self.candidates.is_ordered or (elements[1:] >= elements[:-1]).all()):
            order = np.argsort(elements, kind="stable")
            elements, weights = elements[order], weights[order]
        candidates = Candidates(elements, is_ordered=True)
        return replace(self, candidates=candidates, weights=weights)

    def columns(self) -> list[NDArray[Any]]:
        """List the columns that describe the candidates, on the host."""
        return [self.candidates.on_host(), *([self.weights] if self.weighs else [])]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        """Replace the candidates by these columns."""
        elements, *weights = columns
        own: dict[str, Any] = {"weights": weights[0]} if weights else {}
        return replace(self, candidates=Candidates(elements), **own)

    @property
    def candidate_bytes(self) -> int:
        """Size of the candidates in bytes, wherever they are."""
        of_weights = int(self.weights.nbytes) if self.weighs else 0
        return len(self.candidates) * self.candidates.dtype.itemsize + of_weights


def extremes_of(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a dtype."""
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)
