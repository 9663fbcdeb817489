"""The k-th smallest element, by at most two reads of each chunk or by a strategy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect.arguments import as_accompanied, if_all_left_out, public, same_kind
from dask_gpuselect.arrays import as_dtype, numpy_dtype
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.questions import ElementQuestion
from dask_gpuselect.maths.cuts import Brackets, IntArray, RanksOf
from dask_gpuselect.maths.envelope import guess_brackets
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.ranks import METHODS, Applied, Ranks
from dask_gpuselect.strategies import Strategy, strategy_of


@same_kind
@public("a", "where")
def order_statistic(
    a: Any,
    k: int | ArrayLike,
    *,
    where: Any = None,
    nodata: Any = None,
    strategy: Strategy | str | None = None,
) -> Any:
    """Exact k-th smallest element of an array; by default each chunk is read at most twice.

    Parameters
    ----------
    a : dask array, or array_like
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64, of any shape and
        chunks. Chunk sizes may be unknown. Chunks may be NumPy, CuPy or other array-API arrays. A
        plain array is answered eagerly, by an array of its kind.
    k : int or 1-D array_like of ints
        Ranks from 0. Negative ranks count from the end, which needs a known size. All ranks share
        the reads. If elements are left out, ranks are those among the others.
    where : array of bool, optional
        Elements take part only where it is True. A NumPy, CuPy or dask array whose shape broadcasts
        to that of `a`, with any chunks.
    nodata : scalar or sequence, optional
        Elements that equal one of these values, of the dtype of `a`, are left out. Masked elements
        are left out too.
    strategy : Strategy or str, optional
        A selection method of `dask_gpuselect.strategies`, or its name: "kelley", "bisection",
        "golden_section", "brent_minimize", "brent_root", "radix", "bucket", "randomized",
        "quickselect", "sort_and_choose" or "bitonic_merge". By default the algorithm of `quantile`.

    Returns
    -------
    dask array, or an array or scalar like `a`
        Of the shape of `k` and the dtype of `a`. It equals ``numpy.sort(a, axis=None)[k]``. NaN and
        NaT come last.

    Raises
    ------
    TypeError
        At the call, for complex, object and string arrays; for a k that is not an integer; if
        `strategy` is neither a Strategy nor a str; for a `where` whose dtype is not bool, and a
        `nodata` of another kind than the data.
    ValueError
        At the call, for a k of two dimensions or more; for a negative k if the size of the array is
        unknown or elements are left out; for an unknown name of a strategy; for a `where` that does
        not broadcast, and a `nodata` that the dtype cannot hold.
    IndexError
        For a k that is not the rank of an element: at the call if the size is known, else while
        computing.
    ChunksChangedError
        While computing, if a chunk differs between two reads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    quantile : Quantiles, which are order statistics or means of two.

    Notes
    -----
    Reads, without a strategy: each chunk of a lazy array is read at most twice, as by `quantile`.

    With a strategy, a chunk of a dask array is read at most once for each of the strategy's
    ``rounds``, once more if the strategy needs a first read, once to gather the elements left
    inside the brackets, and twice by the default algorithm if these are too many to gather. The
    number of rounds is fixed when the graph is built; a round that is not needed reads nothing.
    Chunks in memory are read in place. For a plain array, the loop ends as soon as the rank is
    proven.

    Memory: as for `quantile`. If a mask leaves out elements of a whole CuPy array, the others are
    copied. With a strategy, each chunk returns its counts (8 bytes a bin, 232 a pivot), and all
    chunks together at most ``65,536 + 4 * sqrt(chunks * elements)`` elements for each k. If the
    counts for all k may exceed ``dask_gpuselect.root-limit`` (dask config; 1 GiB) in one task, the
    default algorithm answers without the strategy. The graph has a task for each chunk and round,
    of about 5 kB. For a plain array, at most two copies.

    With every strategy, integer counts alone prove the answer: see `strategies`.

    References
    ----------
    G. Beliakov, "Parallel calculation of the median and order statistics on GPUs with application
    to robust regression", 2011, section IV: the cutting planes. The default algorithm has one
    bundle of them for each chunk. J. I. Munro and M. S. Paterson, "Selection and sorting with
    limited storage", 1980: two reads are the fewest. Each strategy names its own source.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import order_statistic
    >>> x = da.arange(1_000_001, chunks=100_000)[::-1]
    >>> int(order_statistic(x, 10).compute())
    10
    >>> order_statistic(x, [1, -1], strategy="kelley").compute()
    array([      1, 1000000])
    """
    chosen = None if strategy is None else strategy_of(strategy)
    is_whole = if_all_left_out(a, where, nodata) == "empty"
    a = as_accompanied(a, where, nodata)
    source = numpy_dtype(a)
    dtype = result_dtype(source, METHODS["lower"], weak_q=True)
    ranks, shape = _ranks_of(k, math.prod(a.shape) if is_whole else math.nan)
    question = OrderStatistics(ranks, source, dtype)
    axes, is_scalar = tuple(range(a.ndim)), shape == ()
    return ask(Asking(a, question, axes, dtype, is_scalar=is_scalar), "order-statistic", chosen)


def _ranks_of(k: int | ArrayLike, size: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks from 0, checked if the number of elements is known, and the shape of `k`."""
    given = np.asarray(k)
    if given.dtype == object and all(isinstance(rank, int) for rank in given.flat):
        raise IndexError(f"k must fit int64, and {k!r} does not")
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(
            f"k must be an integer, not {given.dtype}: pass a rank from 0 on, or a fraction "
            "to quantile(a, q)"
        )
    if given.ndim > 1:
        raise ValueError(f"k must be a scalar or one-dimensional, not of shape {given.shape}")
    ranks = [int(rank) for rank in given.ravel().tolist()]
    if math.isnan(size):
        if min(ranks, default=0) < 0:
            raise ValueError(
                f"k must not be negative, not {min(ranks)}, because the number of elements that "
                "take part is unknown: if only chunk sizes are unknown, type "
                "x.compute_chunk_sizes() first"
            )
        return tuple(ranks), given.shape
    for rank in ranks:
        if not -size <= rank < size:
            raise IndexError(f"k={rank} is out of range: there are {size} elements, counted from 0")
    return tuple(rank % int(size) for rank in ranks), given.shape


@dataclass(frozen=True)
class OrderStatistics(ElementQuestion):
    """Elements of some ranks of a whole array, as a question.

    Parameters
    ----------
    k : tuple of int
        Ranks from 0. Missing elements have the last ranks.
    source_dtype : dtype
        Dtype of the array.
    dtype : dtype
        Dtype of the answer.
    """

    k: tuple[int, ...]
    source_dtype: np.dtype[Any]
    dtype: np.dtype[Any]

    mixes: ClassVar[int] = 0

    @property
    def order(self) -> OrderStatistics:
        return self

    @property
    def n_answers(self) -> int:
        return len(self.k)

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        ranks = np.array(sorted({rank for rank in self.k if rank < n}), np.int64)
        return ranks, ranks

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        ranks = np.minimum(np.array(self.k, np.int64)[:, None], n - 1)
        return Ranks(ranks, ranks, np.zeros(ranks.shape))

    def _guess(self, ordered: NDArray[Any], rate: float) -> Brackets:
        ranks = _ranks_of_sample(self.k, rate, len(ordered))
        return guess_brackets(ordered.take, len(ordered), *ranks)[0]

    def ranks_of_sample(self, n: int) -> RanksOf:
        return Applied(_expected_ranks, (self.k, n))

    def answer_by(
        self, n_valid: int, n_missing: int, elements_at: Callable[[IntArray], NDArray[Any]]
    ) -> NDArray[Any]:
        k = np.array(self.k, np.int64)
        if (beyond := k[k >= n_valid + n_missing]).size:
            raise IndexError(
                f"k={beyond[0]} is out of range: there are {n_valid + n_missing} elements, "
                "counted from 0"
            )
        is_valid = k < n_valid
        answer = np.empty(len(k), self.dtype)
        if not is_valid.all():
            answer[:] = np.nan if self.dtype.kind == "f" else "NaT"
        if is_valid.any():
            answer[is_valid] = as_dtype(elements_at(k[is_valid]), self.source_dtype)
        return answer


def _expected_ranks(k: tuple[int, ...], n: int, size: int) -> tuple[IntArray, IntArray]:
    """Return the expected ranks in a sample of elements that have ranks `k` among all `n` elements.

    A sample of all elements has the same ranks.
    """
    return _ranks_of_sample(k, size / max(n, 1), size)


def _ranks_of_sample(k: tuple[int, ...], rate: float, size: int) -> tuple[IntArray, IntArray]:
    """Return the first and last ranks of elements in a sample that was taken at a rate."""
    last = size - 1
    ranks = sorted({rank if rate == 1 else min(int(rank * rate), last) for rank in k if size})
    return np.array(ranks, np.int64), np.array(ranks, np.int64)
