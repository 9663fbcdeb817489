"""`trimmed_mean`: the mean of what is left when the least and the largest elements are cut off."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arguments import Axis, as_accompanied, if_all_left_out, reduced_axes
from dask_gpuselect.arrays import Array, all_true, in_kind, like, namespace, numpy_dtype, to_host
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.questions import (
    LaneLoad,
    LaneLoads,
    LaneQuestion,
    Measures,
    RankQuestion,
    counting,
    of_merged,
)
from dask_gpuselect.kernels.companions import ChunkColumn, values_of
from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import order_statistics, sum_of_ranks
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes, check_lanes_unchanged, join
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds
from dask_gpuselect.maths.moments import LANES, Moments, means
from dask_gpuselect.maths.ranks import MEDIAN, Applied
from dask_gpuselect.maths.runs import Runs, clipped_ends, trimmed_sums
from dask_gpuselect.maths.trimmed import TrimmedLanes, end_of
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.quantiles.documentation import statistic
from dask_gpuselect.quantiles.questions import Quantiles
from dask_gpuselect.quiet import quiet
from dask_gpuselect.robust.spread import mad, mean_dtype


def _trimmed_mean(
    name: str,
    x: Any,
    proportiontocut: float = 0.1,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    nodata: Any = None,
) -> Any:
    """Ask for trimmed means along axes, by the function of a name."""
    if not isinstance(proportiontocut, int | float | np.integer | np.floating):
        kind = type(proportiontocut).__name__
        raise TypeError(f"proportiontocut must be a number in [0, 0.5), not a {kind}")
    if not 0 <= proportiontocut < 0.5:
        raise ValueError(f"proportiontocut must be a number in [0, 0.5), not {proportiontocut}")
    if_none = if_all_left_out(x, where, nodata)
    x = as_accompanied(x, where, nodata)
    dtype, skips_missing = mean_dtype(x, "a trimmed mean needs"), name == "nantrimmed_mean"
    mean = Quantiles((0.5,), MEDIAN.name, skips_missing, dtype, dtype, if_none=if_none)
    share = float(proportiontocut)
    question = TrimmedMean(share, _cuts(share, numpy_dtype(x)), mean)
    asking = Asking(x, question, reduced_axes(axis, x.ndim), dtype, keepdims=keepdims)
    return ask(asking, name.replace("_", "-"))


@statistic(_trimmed_mean, "x", "where", like=mad)
def trimmed_mean() -> None:
    """Exact mean of what is left when a share of the elements is cut off at each end.

    Parameters
    ----------
    {x}
    proportiontocut : float, default 0.1
        Share of the elements that is cut off at each end, at least 0 and below 0.5: of n elements
        the ``int(proportiontocut * n)`` smallest and as many of the largest.
    {axis}
    {keepdims}
    {where}
    {nodata}

    Returns
    -------
    dask array, or an array or scalar like `x`
        The shape is that of `x` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16 and float32 keep their dtype, all others give float64. The answer is NaN
        if any element is NaN, and NaN with a RuntimeWarning if there are no elements or all are
        left out. Masked elements of a masked array are left out, and the answer is masked where all
        are masked. The answer is infinite if infinite elements of one sign are left after the cut,
        and NaN if infinities of both signs are.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays, and for dates; for a `proportiontocut`
        that is lazy or not a number; for a `where` whose dtype is not bool.
    ValueError
        At the call, for a `proportiontocut` outside [0, 0.5); for a
        ``dask_gpuselect.column-limit`` that is too small for any plan.
    {numpy.exceptions.AxisError}
    {ChunksChangedError}
    {MemoryError}

    See Also
    --------
    nantrimmed_mean : The trimmed mean that ignores NaN.
    mad : The median absolute deviation, a measure of spread.
    iqr : The interquartile range, another measure of spread.

    Notes
    -----
    Reads, of all elements: each chunk of a lazy array is read at most twice. Chunks in memory are
    read in place, and only once if the brackets that a sample guesses contain both cuts.

    Along some of the axes: each chunk is read as often as by `quantile`, mostly once, and once more
    if a column of chunks exceeds ``dask_gpuselect.column-limit`` (dask config; 1 GiB).

    Memory: as for `quantile`, and a copy of the elements of a chunk that lie between the brackets.
    If columns are read in passes, a task also holds the exact sums of its 1-D slices, mostly about
    200 bytes for each.

    The sum of the elements that are left is exact. It is divided, and rounded once to the dtype of
    the result. So the answer is the same to the last bit for any chunks. In columns of CuPy chunks
    that are read in passes, CuPy compares elements, and treats denormal float32 as zeros.

    Algorithm: the first read finds brackets of the smallest and of the largest element that are
    left. The second read adds up the elements between the brackets, and gathers those inside.
    Counts prove which of these are left, and how many of those that equal a cut.

    References
    ----------
    J. W. Tukey, "The future of data analysis", 1962. Conventions are those of
    ``scipy.stats.trim_mean``, except that `axis` is None by default.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import trimmed_mean
    >>> x = da.from_array([1.0, 2.0, 3.0, 4.0, 1e300], chunks=2)
    >>> float(trimmed_mean(x, 0.2).compute())
    3.0
    """


@statistic(_trimmed_mean, "x", "where", like=trimmed_mean)
def nantrimmed_mean() -> None:
    """Exact mean of what is left when a share is cut off at each end, ignoring NaN.

    {Parameters}

    Returns
    -------
    dask array, or an array or scalar like `x`
        The shape is that of `x` without the reduced axes, or with sizes of 1 for them if
        `keepdims`. float16 and float32 keep their dtype, all others give float64. The answer is
        NaN, with a RuntimeWarning, if every element is NaN or there is none. It is infinite if
        infinite elements of one sign are left after the cut, and NaN if infinities of both signs
        are.

    {Raises}

    See Also
    --------
    trimmed_mean : The trimmed mean that is NaN if any element is.
    nanmad : The median absolute deviation that ignores NaN.
    naniqr : The interquartile range that ignores NaN.

    Notes
    -----
    {Reads}

    {Along}

    {Memory}

    NaN are left out first: n is the number of the other elements.

    {The}

    {Algorithm}

    {References}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import nantrimmed_mean
    >>> x = da.from_array([1.0, 2.0, 3.0, float("nan"), 1e300], chunks=2)
    >>> float(nantrimmed_mean(x, 0.25).compute())
    2.5
    """


PIECE = 1 << 20  # elements of lanes that are clipped and summed together


# --- Questions ------------------------------------------------------------------------------------


def _cut_ranks(proportion: float, n: IntArray, q: FloatArray) -> FloatArray:
    """Compute the ranks of both elements of `_cuts` among n elements, for q = 0 and q = 1."""
    n_cut = np.floor(proportion * n)
    return np.asarray(np.where(q > 0, n - 1 - n_cut, n_cut))


def _cuts(proportion: float, source: np.dtype[Any]) -> Quantiles:
    """Return the question about the least and the largest element that stay."""
    about = True, source, source.newbyteorder("=")
    position = Applied(_cut_ranks, (proportion,))
    return Quantiles((0.0, 1.0), "lower", *about, position=position, warns=False)  # the mean warns


def _between_cuts(brackets: Brackets) -> NDArray[np.bool_]:
    """Mark the open cells between the brackets of both cuts."""
    if brackets.summed is not None:  # narrowed ones have more cells
        return brackets.summed
    between = ~brackets.wanted
    between[[0, -1]] = False
    return between


def _total(elements: Any, near: NDArray[Any]) -> ExactSums:
    """Sum some elements exactly; `near` are some values of their usual size."""
    total: ExactSums = kernels.moments(elements, numpy_dtype(elements), near).total
    return total


@dataclass(frozen=True)
class TrimmedMean(RankQuestion, LaneQuestion):
    """The trimmed mean of all elements, or of every lane.

    Of all elements, those between the brackets of the cuts are summed where they are. Those in the
    brackets, and the ends of these, are summed once the cuts are known.

    In lanes, elements beyond the cuts are replaced by these. Then the sum has as many of each cut
    too many as elements are cut off at that end, however many elements equal the cut.

    Parameters
    ----------
    proportion : float
        Share of the elements that is cut off at each end.
    cuts : Quantiles
        The least and the largest element that stay.
    mean : Quantiles
        A single quantile, which says what answers if no element does.
    """

    proportion: float
    cuts: Quantiles
    mean: Quantiles

    measures: ClassVar[Measures] = Measures(sums=_between_cuts)
    takes_runs: ClassVar[bool] = True
    n_answers = 1

    @property
    def order(self) -> Quantiles:
        return self.cuts

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        return self.cuts.ranks(n)

    def n_cut(self, n: IntArray) -> IntArray:
        """Compute how many of n elements are cut off at each end."""
        return np.asarray(np.floor(self.proportion * n), np.int64)

    def bracket(self, cuts: Cuts) -> Brackets:
        brackets = super().bracket(cuts)
        return replace(brackets, summed=_between_cuts(brackets))

    def resolve(self, brackets: Brackets, tally: Tally) -> Any:
        n = tally.n_valid
        none = self.mean.answer_if_none(n, tally.n_missing)
        if none is not None:
            return none
        n_cut = int(self.n_cut(np.array(n)))
        ends = order_statistics(brackets, tally, np.array([n_cut, n - 1 - n_cut]))
        if ends[0] == ends[1] or not np.isfinite(ends).all():
            return end_of(ends, self.mean.dtype).reshape(1)
        total = sum_of_ranks(brackets, tally, n_cut, n - n_cut, partial(_total, near=ends))
        return total, np.array([n - 2 * n_cut])

    def finish(self, resolved: Any, sums: Moments | None) -> NDArray[Any]:
        if isinstance(resolved, np.ndarray):
            return resolved
        assert sums is not None
        total, n = resolved
        return means(n, total + sums.total, self.mean.dtype)

    @property
    def loads(self) -> LaneLoads:
        return replace(super().loads, n_brackets=2, counts=counting(self._counted))

    @property
    def further(self) -> LaneLoad:
        # It sums the elements of every lane, clipped at its cuts, which are known.
        merge = partial(LaneEnds.merge, most=1)
        functions = self.measure_clipped, merge, of_merged(merge, self.means_by_ends)
        return LaneLoad(*functions, name="clipped", merge_every=8, width=2)

    def measure_clipped(self, column: ChunkColumn, known: Lanes) -> LaneEnds:
        """Sum the elements of every lane, clipped at its cuts."""
        return self.clipped_ends(column, self.cuts.lane_answer(known))

    def means_by_ends(self, ends: LaneEnds, known: Lanes) -> Any:
        """Return the mean of each lane."""
        check_lanes_unchanged([ends], known)
        return self.mean.lane_answer(self.means(ends, self.cuts.lane_answer(known)))

    def answer(self, column: ChunkColumn) -> Any:
        as_groups = self.as_groups(column)
        if as_groups is not None:
            return as_groups
        first = column.chunks[0]
        if isinstance(first, Runs):
            ends, total = trimmed_sums(first, self.n_cut(first.n_valid))
            return in_kind(self.mean.lane_answer(self._divided(total, ends, first)), first.home)
        cuts = kernels.lanes.answer_lanes(column, self.cuts)
        found = kernels.lanes.trimmed_lanes(column, cuts, self.proportion, self.mean.dtype)
        if found is not None:
            return in_kind(self._by_kernel(found, column, cuts), values_of(first))
        lanes = self._by_exact_sums(column, to_host(cuts))
        return in_kind(self.mean.lane_answer(lanes), values_of(first))

    def _by_kernel(self, found: TrimmedLanes, column: ChunkColumn, cuts: Array) -> Array:
        """Complete the means that a kernel has found by exact sums, and where nothing is valid."""
        mean, answer, n_valid = self.mean, found.means, found.n_valid
        unsure = namespace(answer).flatnonzero(~found.is_sure & (n_valid > 0))
        n = column.n
        step = max(PIECE // max(n, 1), 1)  # so that copies of few lanes are there at a time
        for some in (unsure[i : i + step] for i in range(0, len(unsure), step)):
            few = kernels.some_lanes(column, some)
            exact = self._by_exact_sums(few, to_host(cuts[:, some])).lower[:, 0]
            answer[some] = like(exact, answer)
        n_missing = n - n_valid - found.n_left_out
        if not mean.skips_missing:
            answer[n_missing > 0] = np.nan
        if mean.if_none == "masked" or not all_true(n_valid > 0):
            each, *counts = map(to_host, (answer, n_valid, n_missing))
            return mean.lane_answer(Lanes(each[:, None], each[:, None], *counts))
        return answer[None]

    def _by_exact_sums(self, column: ChunkColumn, ends: NDArray[Any]) -> Lanes:
        """Compute the mean of each lane from the exact sum of its clipped elements."""
        chunks, dtype, axes = column
        # In pieces of lanes, so that copies and exact sums of few lanes are there at a time.
        axis = next(axis for axis in range(chunks[0].ndim) if axis not in axes)
        size, n_lanes = chunks[0].shape[axis], ends.shape[1]
        n_elements = sum(math.prod(chunk.shape) for chunk in chunks)
        n = min(max(n_elements // PIECE, n_lanes // LANES, 1), max(size, 1))
        pieces = []
        for i in range(n):
            some = slice(size * i // n, size * (i + 1) // n)
            own = ends[
                :, n_lanes * some.start // max(size, 1) : n_lanes * some.stop // max(size, 1)
            ]
            parts = [chunk[(*(slice(None),) * axis, some, ...)] for chunk in chunks]
            clipped = self.clipped_ends(ChunkColumn(parts, dtype, axes), own)
            pieces.append(self.means(clipped, own))
        return join(pieces)

    def _counted(self, counts: ValueCounts, known: None = None) -> Any:
        """Return the means of lanes, by the counts of all values that occur."""
        cuts = self.cuts.lane_answer(counts.order_statistics(self.cuts.lane_ranks))
        clipped = counts.mapped(lambda values, lanes: kernels.clipped(values, *cuts[:, lanes]))
        ends = clipped.ends(_no_bounds(cuts), 1)
        return self.mean.lane_answer(self.means(ends, cuts))

    def clipped_ends(self, column: ChunkColumn, ends: NDArray[Any]) -> LaneEnds:
        """Sum the elements of every lane, clipped at its cuts."""
        chunks, dtype, axes = column
        if isinstance(chunks[0], Runs):
            return clipped_ends(chunks[0], ends)
        sizes = [1 if axis in axes else size for axis, size in enumerate(chunks[0].shape)]
        low, high = ends.reshape(2, *sizes)
        clipped = [kernels.clipped(chunk, low, high) for chunk in chunks]
        own = ChunkColumn(clipped, dtype, axes)
        answer: LaneEnds = kernels.lanes.lane_ends(own, _no_bounds(ends), 1)
        return answer

    @quiet()
    def means(self, ends: LaneEnds, cuts: NDArray[Any]) -> Lanes:
        """Compute the mean of each lane from the sum of its clipped elements, and the cuts."""
        assert isinstance(ends.moments, Moments)
        n_lanes, n_cut = len(ends.n_valid), self.n_cut(ends.n_valid)
        cut_off = np.where(np.isfinite(cuts), cuts, 0).astype(selection_dtype(cuts.dtype)).ravel()
        lane = np.tile(np.arange(n_lanes), 2)
        total = ends.moments.total - ExactSums.of(lane, n_lanes, cut_off, np.tile(n_cut, 2))
        return self._divided(total, cuts, ends)

    @quiet()
    def _divided(self, total: ExactSums, cuts: NDArray[Any], lanes: LaneEnds | Runs) -> Lanes:
        """Compute the mean of each lane from the sum of what is left, and from the cuts."""
        n = lanes.n_valid
        answer = means(n - 2 * self.n_cut(n), total, self.mean.dtype)
        is_finite = np.isfinite(cuts).all(axis=0)
        answer = np.where(is_finite, answer, end_of(cuts, self.mean.dtype))[:, None]
        return Lanes(answer, answer, n, lanes.n_missing)


def _no_bounds(cuts: NDArray[Any]) -> Bounds:
    """Make bounds of each lane that nothing is beyond."""
    return np.full((2, cuts.shape[1]), np.nan)
