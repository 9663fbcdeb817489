"""Exact numbers of elements below and up to some points.

Points at ranks take two loads, points at given values one load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.maths.cuts import Arrays, Brackets, IntArray, Tally
from dask_gpuselect.maths.finish import counts_at, order_statistics, unsigned_zero
from dask_gpuselect.maths.keys import from_keys
from dask_gpuselect.strategies.probes import Extent
from dask_gpuselect.strategies.spaces import VALUE


@dataclass(frozen=True, slots=True, eq=False)
class Counts(Arrays):
    """Exact counts at some points.

    Parameters
    ----------
    points : ndarray, shape (k,), of a `keys.selection_dtype`
        Ascending and distinct. The least and the largest element are among them, if there is any.
    below, upto : ndarray of int64, shape (k,)
        Numbers of elements < and <= each point.
    n_valid, n_missing : int
        Numbers of elements that are not NaN, and of NaN.
    """

    points: NDArray[Any]
    below: IntArray
    upto: IntArray
    n_valid: int
    n_missing: int


# --- At ranks -------------------------------------------------------------------------------------


def even_ranks(n: int, k: int) -> IntArray:
    """Return the distinct ones of `k` ranks from 0 to ``n - 1``, as evenly spaced as possible.

    At most ``ceil((n - 1) / (k - 1)) - 1`` other ranks are between two neighbours.
    """
    k = min(k, max(n, 2))  # there are no more ranks than elements
    step, rest = divmod(max(n - 1, 0), k - 1)
    places = np.arange(k if n else 0)
    # Not ``places * (n - 1) // (k - 1)``, whose product may overflow.
    return np.unique(places * step + places * rest // (k - 1))


def count_at_ranks(brackets: Brackets, tally: Tally, ranks: IntArray) -> Counts:
    """Return the elements of some ranks, and the counts there.

    Parameters
    ----------
    brackets : Brackets
        For all these ranks.
    tally : Tally
        Of all chunks, at these brackets.
    ranks : ndarray of int64
        With the first and the last rank; empty if there are no elements.

    Raises
    ------
    ChunksChangedError
        If a rank lies outside its bracket.
    """
    ordered = tally.candidates.ordered()
    elements = order_statistics(brackets, replace(tally, candidates=ordered), ranks)
    points = np.unique(elements)
    below, upto = counts_at(brackets, tally, points, ordered.places)
    return Counts(points, below, upto, tally.n_valid, tally.n_missing)


# --- At given values ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PointTally(Arrays):
    """The counts of one load at some points, for one chunk or for several together.

    Parameters
    ----------
    below, upto : ndarray of int64, shape (k,)
        Numbers of elements < and <= each point.
    extremes : ndarray, shape (2,) or (0,)
        The least and the largest element, if there is any.
    tied : ndarray of int64, of the shape of `extremes`
        Numbers of elements that equal each of them.
    n_valid, n_missing : int
        Numbers of elements that are not NaN, and of NaN.
    """

    below: IntArray
    upto: IntArray
    extremes: NDArray[Any]
    tied: IntArray
    n_valid: int
    n_missing: int

    @classmethod
    def of_chunk(cls, chunk: Any, points: NDArray[Any], dtype: np.dtype[Any]) -> Self:
        """Count a chunk of any shape, whose array says that it is of that dtype. Read it twice."""
        extent: Any = kernels.answer_probe(chunk, dtype, Extent(VALUE))
        keys = np.array([extent.least, extent.largest] if extent.n_valid else [], np.uint64)
        extremes = unsigned_zero(from_keys(keys, points.dtype))
        ends = np.union1d(points, extremes)
        nothing = np.zeros(len(ends) + 1, np.bool_)
        tally = kernels.tally(chunk, dtype, Brackets(ends, nothing), 0)
        assert tally is not None  # nothing is gathered
        at, outer = ends.searchsorted(points), ends.searchsorted(extremes)
        tied = (tally.upto - tally.below)[outer]
        counts = (tally.n_valid, tally.n_missing)
        return cls(tally.below[at], tally.upto[at], extremes, tied, *counts)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Return the tally of all parts together."""
        below, upto = (
            np.array([getattr(part, name) for part in parts]).sum(axis=0)
            for name in ("below", "upto")
        )
        ends = np.array([part.extremes for part in parts if len(part.extremes)])
        tied = np.array([part.tied for part in parts if len(part.extremes)])
        extremes, all_tied = parts[0].extremes[:0], parts[0].tied[:0]
        if len(ends):
            extremes = np.array([ends[:, 0].min(), ends[:, 1].max()])
            all_tied = np.where(ends == extremes, tied, 0).sum(axis=0)
        n_valid, n_missing = (
            sum(getattr(part, name) for part in parts) for name in ("n_valid", "n_missing")
        )
        return cls(below, upto, extremes, all_tied, n_valid, n_missing)

    def counts(self, points: NDArray[Any]) -> Counts:
        """Return the counts at the points and the extremes."""
        every, first = np.unique(np.concatenate([points, self.extremes]), return_index=True)
        at_extremes = np.array([0, self.n_valid - self.tied[-1]] if len(self.tied) else [], int)
        upto = np.array([self.tied[0], self.n_valid] if len(self.tied) else [], int)
        below, upto = (
            np.concatenate([counted, outer]).astype(np.int64)[first]
            for counted, outer in ((self.below, at_extremes), (self.upto, upto))
        )
        return Counts(every, below, upto, self.n_valid, self.n_missing)
