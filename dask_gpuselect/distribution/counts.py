"""Exact numbers of elements below and up to some points.

Points at ranks take two loads, points at given values one load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.distribution.cdf import EmpiricalDistribution
from dask_gpuselect.maths.candidates import SIDES
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.finish import counts_at, order_statistics, unsigned_zero
from dask_gpuselect.maths.keys import from_keys
from dask_gpuselect.strategies.probes import Extent
from dask_gpuselect.strategies.spaces import VALUE


def of_chunk(points: NDArray[Any], chunk: Any, dtype: np.dtype[Any]) -> EmpiricalDistribution:
    """Count a chunk of any shape at some points and at its extremes. Read it twice.

    Parameters
    ----------
    points : ndarray of a `keys.selection_dtype`
        Ascending and distinct.
    chunk : array
        Its array says that it is of that dtype.
    dtype : dtype
        Dtype of the array.
    """
    bound = kernels.of(chunk, dtype)
    extent: Any = kernels.answer_probe(bound, dtype, Extent(VALUE))
    keys = np.array([extent.least, extent.largest] if extent.n_valid else [], np.uint64)
    ends = np.union1d(points, unsigned_zero(from_keys(keys, points.dtype)))
    tally = kernels.tally(bound, dtype, Brackets(ends, np.zeros(len(ends) + 1, np.bool_)), 0)
    assert tally is not None  # nothing is gathered
    return EmpiricalDistribution(ends, tally.below, tally.upto, tally.n_valid, tally.n_missing)


def merge(partials: Sequence[EmpiricalDistribution]) -> EmpiricalDistribution:
    """Add up the counts of all parts at the points that they have in common.

    At the extremes of the others, those of a part without such a point are known as well: it has no
    elements around them.
    """
    points = np.unique(np.concatenate([part.points for part in partials]))
    is_known = is_common = np.ones(len(points), np.bool_)
    below, upto = np.zeros((2, len(points)), np.int64)
    for part in partials:
        first, behind = (part.points.searchsorted(points, side) for side in SIDES)
        at_most, at_least = np.append(part.below, part.n_valid), np.append(0, part.upto)
        below, upto = below + at_most[first], upto + at_least[behind]
        is_own = first < behind
        is_common = is_common & is_own
        is_known = is_known & (is_own | (at_most[first] == at_least[behind]))
    numbers = (sum(getattr(part, name) for part in partials) for name in ("n_valid", "n_missing"))
    known = EmpiricalDistribution(points[is_known], below[is_known], upto[is_known], *numbers)
    return at(known, is_common[is_known])


def at(counts: EmpiricalDistribution, is_wanted: NDArray[np.bool_]) -> EmpiricalDistribution:
    """Take some of the points, and the extremes of the elements."""
    some, takes = np.flatnonzero(counts.upto > counts.below), is_wanted.copy()
    takes[some[:1]] = takes[some[-1:]] = True
    columns = {name: getattr(counts, name)[takes] for name in ("points", "below", "upto")}
    return replace(counts, **columns)


def even_ranks(n: int, k: int) -> IntArray:
    """Return the distinct ones of `k` ranks from 0 to ``n - 1``, as evenly spaced as possible.

    At most ``ceil((n - 1) / (k - 1)) - 1`` other ranks are between two neighbours.
    """
    k = min(k, max(n, 2))  # there are no more ranks than elements
    step, rest = divmod(max(n - 1, 0), k - 1)
    places = np.arange(min(k, n))
    # They ascend, as each is at least one step behind the one before. Not
    # ``places * (n - 1) // (k - 1)``, whose product may overflow.
    return places * step + places * rest // (k - 1)


def count_at_ranks(brackets: Brackets, tally: Tally, ranks: IntArray) -> EmpiricalDistribution:
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
    below, upto = counts_at(brackets, tally, points, ordered)
    return EmpiricalDistribution(points, below, upto, tally.n_valid, tally.n_missing)
