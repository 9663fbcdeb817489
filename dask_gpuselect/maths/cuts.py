"""Cuts of load 1, brackets that they prove, and tallies of load 2.

Everything here is frozen, pure and plain NumPy on the host: no dask, no GPU. Counts and ranks are
int64.

The objective of an order statistic, f(y) = sum |x - y|, is a sum over chunks. So each chunk can
tell at a pivot p its part of the slope (how many elements are below p, and how many up to p) and
its part of the value (the distances to p of the elements below). These are the *cuts* of Kelley's
method (Beliakov 2011, section IV); every chunk contributing its own bundle of cuts is its multicut
form (Birge & Louveaux 1988). Their sum bounds the number of elements up to any y from both sides,
which is all a bracket needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates, HostCandidates

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
T = TypeVar("T")
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


class Arrays:
    """Base of frozen bundles of arrays, with a size in bytes for the accounts of schedulers."""

    __slots__ = ()

    def parts(self) -> list[Any]:
        """List the arrays, and the other fields."""
        return [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]

    def __sizeof__(self) -> int:
        return 64 + sum(map(_size, self.parts()))


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    return value.__sizeof__() if isinstance(value, Arrays) else int(getattr(value, "nbytes", 8))


def merge(parts: Sequence[Any]) -> Any:
    """Merge partial results of one type."""
    return type(parts[0]).merge(parts)


def merge_any(parts: Sequence[T | None]) -> T | None:
    """Merge the partial results that are not None; return None if all are."""
    found = [part for part in parts if part is not None]
    return merge(found) if found else None


def merge_all(parts: Sequence[T | None]) -> T | None:
    """Merge partial results; return None if any of them is None."""
    return None if any(part is None for part in parts) else merge(parts)


class Joined(Arrays):
    """Base of tables whose columns are joined one by one."""

    __slots__ = ()

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Join several parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        cls = type(parts[0])
        columns = ([getattr(part, name) for part in parts] for name in cls.column_names())
        return cls(*(np.concatenate(column, axis=-1) for column in columns))

    @classmethod
    def column_names(cls) -> list[str]:
        return [each.name for each in fields(cls) if not each.kw_only]  # type: ignore[arg-type]

    def by_name(self) -> dict[str, Any]:
        """Return the columns by their names."""
        return {name: getattr(self, name) for name in self.column_names()}


class AtPivots(Joined):
    """Base of cuts: counts of chunks at pivots of their own, chunk after chunk.

    Instead of a chunk there may be a run, which is the elements of a group in a part of the data.
    """

    __slots__ = ()

    sizes: NDArray[Any]
    """Number of pivots of each chunk."""

    OF_CHUNKS: ClassVar[frozenset[str]]
    """Names of the columns with one entry for each chunk; the others have one for each pivot."""

    def of_chunks(self, chunks: IntArray, starts: IntArray | None = None) -> Self:
        """Take some chunks, by their numbers, in that order; `starts` are as of `starts()`."""
        if starts is None:
            starts = self.starts()
        sizes = self.sizes[chunks].astype(np.int64, copy=False)
        pivots = np.repeat(starts[chunks] - (np.cumsum(sizes) - sizes), sizes)
        pivots += np.arange(len(pivots))
        columns = {
            name: getattr(self, name)[chunks if name in self.OF_CHUNKS else pivots]
            for name in self.column_names()
        }
        return replace(self, **columns)  # type: ignore[type-var]

    def at_pivots(self, some: NDArray[Any], sizes: IntArray, **columns: NDArray[Any]) -> Self:
        """Take some of the pivots; `sizes` are the new numbers of pivots. Replace `columns`."""
        kept = {
            name: getattr(self, name)[some]
            for name in self.column_names()
            if name not in self.OF_CHUNKS | columns.keys()
        }
        return replace(self, **kept, **columns, sizes=sizes)  # type: ignore[type-var]

    def starts(self) -> IntArray:
        """Find the index of the first pivot of each chunk."""
        return np.asarray(np.cumsum(self.sizes, dtype=np.int64) - self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Cuts(AtPivots):
    """Cuts of one chunk, or of several, chunk after chunk.

    The pivots of a chunk divide its valid elements (neither NaN nor NaT) into those equal to a
    pivot and those in the open cells before, between and behind the pivots. Nothing else of the
    data is retained.

    Parameters
    ----------
    pivots : ndarray, shape (P,), dtype of the chunks
        Ascending and distinct within a chunk. No NaN.
    below, upto : ndarray of int64, shape (P,)
        Number of valid elements of the chunk that are < and <= the pivot. Exact.
    distance : ndarray of float64, shape (P,)
        Sum of ``pivot - x`` over the elements x of the open cell that ends at the pivot. NaN or inf
        (the first cell, infinite or overflowing data): unknown.
    slack : ndarray of float64, shape (P,)
        Largest distance of the exact sum from `distance`, in either direction.
    sizes : ndarray of int64, shape (B,)
        Number of pivots of each chunk. A chunk without valid elements has none, others have at
        least one.
    n_valid, n_missing : ndarray of int64, shape (B,)
        Number of valid elements, and of NaN or NaT, of each chunk.
    doubt : float
        Share of all elements by which the counts of all chunks together may be off. It is 0, except
        for the expected cuts of `maths.seen`.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    distance: FloatArray
    slack: FloatArray
    sizes: IntArray
    n_valid: IntArray
    n_missing: IntArray
    doubt: float = field(default=0.0, kw_only=True)

    OF_CHUNKS: ClassVar[frozenset[str]] = frozenset({"sizes", "n_valid", "n_missing"})

    @property
    def least_upto(self) -> IntArray:
        """Least number of valid elements of the chunk that are <= the pivot."""
        return self.upto

    @classmethod
    def of_chunk(
        cls,
        pivots: NDArray[Any],
        below: IntArray,
        upto: IntArray,
        distance: FloatArray | None,
        n_valid: int,
        n_missing: int,
        *,
        slack: FloatArray | None = None,
    ) -> Self:
        """Make the cuts of a single chunk.

        By default `slack` is that of a plain sum in float64: all terms are positive, so its
        relative error is at most ``(c + 8) * 2**-53`` for c elements, however far from zero the
        data lies. Without `distance`, both are unknown.
        """
        if distance is None:
            distance = slack = np.full(len(pivots), np.nan)
        if slack is None:
            inside = below - np.append(np.int64(0), upto)[:-1]
            with np.errstate(over="ignore", invalid="ignore"):
                slack = distance * ((inside + 8) * 2.0**-52)  # twice that, for its own rounding
        counts = (len(pivots), n_valid, n_missing)
        sizes, valid, missing = (np.array([count], np.int64) for count in counts)
        return cls(pivots, below, upto, distance, slack, sizes, valid, missing)

    # --- For expected cuts: see `maths.seen` ---

    def by_mass(self) -> Cuts:
        """Return the cuts of the measure whose shares quantiles are: here the count itself."""
        return self

    def times(self, factors: FloatArray) -> Self:
        """Scale the counts of each chunk by a factor, rounded. Distances become unknown."""
        at_pivots = np.repeat(factors, self.sizes)
        return replace(
            self,
            below=multiplied(self.below, at_pivots),
            upto=multiplied(self.upto, at_pivots),
            n_valid=multiplied(self.n_valid, factors),
            n_missing=multiplied(self.n_missing, factors),
            distance=np.full_like(self.distance, np.nan),
        )


def multiplied(counts: IntArray, factors: FloatArray) -> IntArray:
    """Multiply counts by factors, and round."""
    return np.rint(counts * factors).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Brackets(Arrays):
    """Intervals proven to hold the wanted order statistics, as cells between counted values.

    A bracket (lo, hi] is a run of neighbouring cells and their ends. Overlapping brackets share
    cells. Values known to be tied are ends, so they are counted and never gathered.

    Parameters
    ----------
    ends : ndarray, shape (E,), dtype of the chunks
        Ascending and distinct: values at which load 2 counts exactly.
    wanted : ndarray of bool, shape (E + 1,)
        True if the elements of open cell j, between ``ends[j - 1]`` and ``ends[j]``, are
        candidates. The first cell is open below, the last one above.
    """

    ends: NDArray[Any]
    wanted: NDArray[np.bool_]

    tells_more: ClassVar[bool] = False
    """True if a tally at these brackets has more than counts and candidates."""

    @property
    def is_whole(self) -> bool:
        """True if the brackets leave nothing out for want of room."""
        return True

    @property
    def asked(self) -> NDArray[np.bool_]:
        """Mask of the open cells for which a tally has more than the number of elements."""
        return self.wanted

    @classmethod
    def covering(cls, values: NDArray[Any], lo: IntArray, hi: IntArray, counted: IntArray) -> Self:
        """Make the brackets (lo, hi], given as positions among distinct ascending `values`.

        Position -1 is open below, ``len(values)`` open above. `counted` are positions of further
        values to make ends, such as heavily tied ones.
        """
        given = np.concatenate([lo[lo >= 0], counted, hi[hi < len(values)]])
        ends = distinct_places(given, len(values))
        return cls(values[ends], covered(ends, lo, hi))


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


@dataclass(frozen=True, slots=True, eq=False)
class Tally(Arrays):
    """Counts and candidates that load 2 finds at some brackets, in one chunk or several together.

    Parameters
    ----------
    below, upto : ndarray of int64, shape (E,)
        Number of valid elements < and <= each end. Exact.
    candidates : Candidates, dtype of the chunks
        Elements of the wanted cells.
    n_valid, n_missing, n_left_out : int
        Number of valid elements, of NaN or NaT, and of elements that take no part, such as masked
        ones.
    """

    below: IntArray
    upto: IntArray
    candidates: Candidates
    n_valid: int
    n_missing: int
    n_left_out: int = field(default=0, kw_only=True)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Merge the tallies of all parts. Candidates move to the host unless there is one part."""
        if len(parts) == 1:
            return parts[0]
        candidates = np.concatenate([part.candidates.on_host() for part in parts])
        return cls(
            below=np.sum([part.below for part in parts], axis=0, dtype=np.int64),
            upto=np.sum([part.upto for part in parts], axis=0, dtype=np.int64),
            candidates=HostCandidates(candidates),
            n_valid=sum(part.n_valid for part in parts),
            n_missing=sum(part.n_missing for part in parts),
            n_left_out=sum(part.n_left_out for part in parts),
        )

    def columns(self) -> list[NDArray[Any]]:
        """List the columns that describe the candidates, on the host."""
        return [self.candidates.on_host()]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        """Replace the candidates by these columns."""
        return replace(self, candidates=HostCandidates(columns[0]))

    @property
    def candidate_bytes(self) -> int:
        """Size of the candidates in bytes, wherever they are."""
        return len(self.candidates) * self.candidates.dtype.itemsize


def extremes_of(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a dtype."""
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)
