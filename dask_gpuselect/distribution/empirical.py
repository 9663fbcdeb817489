"""`ecdf`: the empirical distribution of the elements of an array of any size."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arguments import (
    as_array,
    as_integers,
    check_most,
    converted_exactly,
    on_host,
    public,
)
from dask_gpuselect.arrays import as_dtype, numpy_dtype
from dask_gpuselect.distribution.cdf import EmpiricalDistribution
from dask_gpuselect.engine.asking import Asking, ask, ask_once
from dask_gpuselect.engine.collection import LazyCollection
from dask_gpuselect.engine.plans import choose, plan_once
from dask_gpuselect.engine.questions import Costs, RankQuestion
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.candidates import SIDES
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.finish import counts_at, order_statistics, unsigned_zero
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.keys import from_keys, selection_dtype
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.maths.sizes import pivot_share
from dask_gpuselect.optional import Advising
from dask_gpuselect.strategies.probes import Extent
from dask_gpuselect.strategies.spaces import VALUE

# For 1e7 elements, 101 points took 0.6 times as long, with errors up to ten times as large; 10,001
# points took three times as long.
POINTS = 1001


@public("x")
def ecdf(x: Any, points: int | ArrayLike = POINTS) -> Any:
    """Find the distribution of all elements: exact at k points, approximate between them.

    Parameters
    ----------
    x : dask array or array_like
        Of dtype bool, integer, float16, float32 or float64. Any shape and any chunks, also of
        unknown sizes. Chunks may be NumPy, CuPy or other array-API arrays.
    points : int or 1-D array_like, default 1001
        An integer is the number of points, from 2 to 2**24. They are the elements at evenly spaced
        ranks, from the minimum to the maximum; equal elements make one point. With 1001 points,
        `cdf` is off by less than 0.1 % of the elements, for any data.
        An array has the values at which to count, in any order. They must be representable in the
        dtype of `x`; for floating-point data they are rounded to it. The minimum and the maximum
        are added to them.

    Returns
    -------
    LazyDistribution or EmpiricalDistribution
        For a dask array, a lazy `LazyDistribution`, whose ``compute()`` gives the
        `EmpiricalDistribution`. For an array in memory, the `EmpiricalDistribution`, eagerly.
        NaN is left out and counted. If all elements are NaN, the only points are the given values,
        and every share is NaN.

    Raises
    ------
    TypeError
        At the call, if `x` is complex, object, string, datetime or masked, if `points` is lazy or
        not of real numbers, or if the number of points is not an integer.
    ValueError
        At the call, if the number of points is below 2 or above 2**24, or if the given values are
        NaN, not one-dimensional, or not representable in the dtype of `x`.
    ChunksChangedError
        While computing, if a chunk differs between two reads.
    MemoryError, RuntimeError
        For CuPy chunks, if the device runs out of memory, or if the device or its driver is too
        old.

    See Also
    --------
    EmpiricalDistribution : The class with `cdf`, `quantile`, `pdf`, their bounds, and `plot`.
    dask_gpuselect.quantile : Exact quantiles.

    Notes
    -----
    Reads: each chunk of a lazy array is read at most twice for a number of points, and once for
    given values. The call computes nothing. Chunks in memory are read in place, usually once for up
    to 8 points. Points and counts are the same for any chunks, bit for bit.

    Memory: for each of its threads, a worker holds one chunk and scratch of at most two chunks. For
    a number of points, each chunk of n elements sends about ``sqrt(n * points)`` pivots, of 40
    bytes each, and about as many candidates. For given values, it sends 24 bytes for each value.

    Algorithm: Beliakov and Liu estimate a distribution by the shares of the data up to some values,
    and fit a monotone spline through them. Here the shares are exact. They are found as `quantile`
    finds its answer: cuts prove brackets of the wanted ranks, and a second read counts. See
    `EmpiricalDistribution` for the spline, and for elements that are equal.

    References
    ----------
    G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs", in
    R. Couturier (ed.), "Designing Scientific Applications on GPUs", 2013, sections 1 and 2.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.distribution import ecdf
    >>> x = da.arange(1_000_001, chunks=100_000) ** 2
    >>> d = ecdf(x, 101).compute()
    >>> d.max_error < 0.01, round(float(d.cdf(250_000_000_000)), 5)
    (True, 0.5)
    >>> d.quantile_bounds(0.505)
    (np.int64(250000000000), np.int64(260100000000))
    >>> ecdf(x, [10, 1000]).compute().upto.tolist()
    [1, 4, 32, 1000001]
    """
    x = as_array(x)
    dtype = _checked_dtype(numpy_dtype(x))
    if np.ndim(points) == 0:
        question = EvenRanks(_checked_number(points), dtype)
        return _distribution(ask(Asking(x, question, tuple(range(x.ndim))), "ecdf"))
    if isinstance(x, DaskArray):
        choose(plan_once(x))
    values = _checked_values(points, dtype)
    answer = partial(_at_values, values=values, dtype=dtype)
    return _distribution(ask_once(x, partial(of_chunk, values), merge, "ecdf-once", answer))


def _distribution(answer: Any) -> Any:
    """Wrap the task that makes a distribution; return a distribution unchanged."""
    return LazyDistribution.of(answer) if isinstance(answer, DaskArray) else answer


class LazyDistribution(Advising, LazyCollection):
    """An `EmpiricalDistribution` that is not computed yet: a dask collection.

    `ecdf` returns it for a dask array. ``compute()`` gives the `EmpiricalDistribution`, which has
    `cdf`, `quantile` and the other methods. ``dask.compute`` computes several of them together.

    See Also
    --------
    ecdf : Makes it.
    EmpiricalDistribution : The distribution once it is computed.
    """

    if TYPE_CHECKING:  # dask's own is not annotated

        def compute(self, **kwargs: Any) -> EmpiricalDistribution: ...

    @classmethod
    def of(cls, answer: DaskArray) -> Self:
        """Return the lazy distribution that a task makes."""
        return cls(answer.dask, [(answer.name,)])

    def _advice(self, name: str) -> str:
        is_there = hasattr(EmpiricalDistribution, name)
        return f"it is not computed yet, type compute().{name}" if is_there else ""

    @staticmethod
    def _finish(results: list[Any], *state: Any) -> Any:
        return results[0]

    def __repr__(self) -> str:
        return "<LazyDistribution, not computed>"


# --- At ranks: two reads --------------------------------------------------------------------------


@dataclass(frozen=True)
class EvenRanks(RankQuestion):
    """The elements at evenly spaced ranks, and the counts there, as a question.

    Parameters
    ----------
    k : int
        Number of ranks, at least 2.
    source_dtype : dtype
        Dtype of the array.
    """

    k: int
    source_dtype: np.dtype[Any]

    @property
    def costs(self) -> Costs:
        return Costs.of_ranks(1, pivot_share(self.k))

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        ranks = even_ranks(n, self.k)
        return ranks, ranks

    def resolve(self, brackets: Brackets, tally: Tally) -> EmpiricalDistribution:
        counts = count_at_ranks(brackets, tally, even_ranks(tally.n_valid, self.k))
        return _in_dtype(counts, self.source_dtype)


def _in_dtype(counts: EmpiricalDistribution, dtype: np.dtype[Any]) -> EmpiricalDistribution:
    """Convert the points of a distribution to the dtype of the data."""
    return replace(counts, points=as_dtype(counts.points, dtype))


# --- At given values: one read --------------------------------------------------------------------


def _at_values(
    counts: EmpiricalDistribution, values: NDArray[Any], dtype: np.dtype[Any]
) -> EmpiricalDistribution:
    """Return the counts at given values alone, ascending and distinct."""
    return _in_dtype(at(counts, np.isin(counts.points, values)), dtype)


# --- Checking arguments ---------------------------------------------------------------------------


def _checked_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype, or raise if a distribution cannot have it."""
    result_dtype(dtype, METHODS["lower"], weak_q=True)  # raises for dtypes without an order
    if dtype.kind in "mM":
        raise TypeError(
            f"x must have real numbers, not {dtype}: pass x.astype('int64'), in which NaT is the "
            "least number"
        )
    return dtype


def _checked_number(points: Any) -> int:
    """Return the number of points, or raise if it is not allowed."""
    try:
        number = operator.index(points)
    except TypeError:
        raise TypeError(
            f"points must be an integer (their number), or a sequence of values, not {points!r}"
        ) from None
    if number < 2:
        raise ValueError(f"points must be at least 2 (the minimum and the maximum), not {number}")
    check_most(number, "points")
    return number


def _checked_values(points: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return given values in `selection_dtype`, ascending and distinct, or raise."""
    values = converted_exactly(on_host(as_integers(points, dtype)), dtype, "points", "x")
    if dtype.kind == "f" and np.isnan(values).any():
        raise ValueError("points must not be NaN: pass points[~np.isnan(points)]")
    return unsigned_zero(np.unique(values.astype(selection_dtype(dtype))))


# --- Counts ---------------------------------------------------------------------------------------


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
