"""A box plot's statistics from a sorted dask array: quartiles by position, fliers by binary search.

::

    ordered ──> ends ──merge──> places ──> quartiles ──merge──> fences ──> searches ──merge──> box
                                                                               └────> fliers

The ends of all chunks show which chunks have the fences. Only these chunks are searched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from dask.base import tokenize

from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.graphs import each_chunk, in_one_place
from dask_gpuselect.engine.source import DaskArray, Task, TaskRef, extended
from dask_gpuselect.kernels import elements_at
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.interpolation import check_numbers, interpolate, result_dtype
from dask_gpuselect.maths.ranks import METHODS, Ranks, ranks_of

LINEAR = METHODS["linear"]


@dataclass(frozen=True, eq=False)
class SortedBox:
    """The statistics of one box, each a dask array; `dask.compute` computes them together.

    Parameters
    ----------
    n, n_nan : dask array of int64, without dimensions
        Numbers of elements that are not NaN, and of those that are.
    q1, med, q3, iqr, whislo, whishi : dask array of float64, without dimensions
        As in `Box`; NaN if all elements are.
    n_low, n_high : dask array of int64, without dimensions
        Numbers of fliers below and above the whiskers.
    fliers_low, fliers_high : dask array, one-dimensional
        All fliers, ascending: slices of the sorted array, of unknown size until computed.

    See Also
    --------
    describe_sorted : Makes it.
    """

    n: DaskArray
    n_nan: DaskArray
    q1: DaskArray
    med: DaskArray
    q3: DaskArray
    iqr: DaskArray
    whislo: DaskArray
    whishi: DaskArray
    n_low: DaskArray
    n_high: DaskArray
    fliers_low: DaskArray
    fliers_high: DaskArray


def describe_sorted(ordered: DaskArray, whis: float = 1.5) -> SortedBox:
    """Return quartiles, whiskers and fliers of a sorted array.

    Parameters
    ----------
    ordered : dask array
        One-dimensional, of integers or floats, ascending with NaN last, as
        `dask_gpuselect.radix_sort.radix_sort` and `sort` return it. Persist it if possible: its
        chunks stay in memory until the fences are known.
    whis : float, default 1.5
        The whiskers end at the last elements within `whis` interquartile ranges from the box.

    Returns
    -------
    SortedBox
        The statistics that `describe_boxplot` has for the data. Nothing is computed yet.

    Raises
    ------
    TypeError
        For data that are not real numbers.
    ValueError
        At the call, for more than one dimension or a negative `whis`; while computing, if the ends
        of the chunks do not ascend.

    See Also
    --------
    describe_boxplot : Box plots of data that are not sorted.

    Notes
    -----
    The algorithm of section I.A of [1]_: the quartiles in constant time from their positions, the
    fliers by a binary search for each fence (II.B). The elements at the quartiles are read, and in
    the two chunks that have the fences one element for each step of a search.

    The paper takes the mean of two elements for every quartile between them. Here it is
    ``numpy.quantile``'s linear interpolation, as in `describe_boxplot`. The whiskers are
    float64, as in ``Boxplot.to_dict()``.

    References
    ----------
    .. [1] K. Spafford, "Identification of Quartiles and Outliers with a Distributed Heterogeneous
       Radix Sort", sections I.A and II.B.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> (box,) = dask.compute(describe_sorted(da.from_array([0, 1, 2, 3, 4, 90], chunks=4)))
    >>> float(box.q1), float(box.med), float(box.q3), box.fliers_high
    (1.25, 2.5, 3.75, array([90]))
    """
    if not isinstance(ordered, DaskArray):
        raise TypeError(
            f"ordered must be a sorted dask array, not {type(ordered).__name__}: pass "
            "da.from_array(ordered)"
        )
    if ordered.ndim != 1:
        raise ValueError(f"ordered must be one-dimensional, not of shape {ordered.shape}")
    if not whis >= 0:
        raise ValueError(f"whis must be a number of at least 0, not {whis}")
    dtype = numpy_dtype(ordered)
    check_numbers(dtype, "box plots")
    result_dtype(dtype, LINEAR, weak_q=False)  # raises for other unsupported dtypes
    rule = Rule(float(whis), autorange=False, max_fliers=0, method=LINEAR.name)
    return _box_of(entered(ordered), rule)


def _box_of(ordered: DaskArray, rule: Rule) -> SortedBox:
    """Build the graph of the statistics of a sorted array."""
    token = tokenize(ordered.name, rule)
    ends = each_chunk(_ends, "sorted-ends", [ordered])
    starts = in_one_place([ends], _starts, "sorted-places")
    how: dict[str, Any] = {"block_ids": True, "q": rule.q}
    picked = each_chunk(_pick, "sorted-elements", [ordered], [starts], **how)
    about: dict[str, Any] = {"starts": starts, "q": rule.q}
    quartiles = in_one_place([picked], _quartiles, "sorted-quartiles", **about)
    inside = each_chunk(_inside, "sorted-search", [ordered, ends], [quartiles], rule=rule)
    box = in_one_place([inside], _statistics, "sorted-box", quartiles=quartiles)
    numbers = {name: _number(box, name, token) for name in COUNTS + REALS}
    low, high = (_fliers(ordered, inside, side) for side in ("low", "high"))
    return SortedBox(**numbers, fliers_low=low, fliers_high=high)


COUNTS = ("n", "n_nan", "n_low", "n_high")
REALS = ("q1", "med", "q3", "iqr", "whislo", "whishi")


def _number(box: DaskArray, name: str, token: str) -> DaskArray:
    """Return one statistic as an array."""
    key = (f"sorted-{name}-{token}",)
    tasks = {key: Task(key, getitem, TaskRef((box.name,)), name)}
    dtype = np.int64 if name in COUNTS else np.float64
    return DaskArray(
        extended(box.dask, key[0], tasks, {box.name}), key[0], (), meta=np.empty((), dtype)
    )


def _fliers(ordered: DaskArray, inside: DaskArray, side: str) -> DaskArray:
    """Return the elements of all chunks that are beyond a fence, as a dask array."""
    how = f"sorted-fliers-{side}", [ordered, inside]
    slices = each_chunk(_beyond, *how, is_high=side == "high")
    unknown = ((np.nan,) * ordered.npartitions,)
    return DaskArray(slices.dask, slices.name, unknown, meta=ordered._meta)


# --- Quartiles ------------------------------------------------------------------------------------


class SortedPart(NamedTuple):
    """The elements of a sorted chunk from one place to before another.

    `n` is the number of elements of the chunk that are not NaN, and `n_nan` the number of NaN. The
    first and the last element of the part are None if there is none.
    """

    n: int
    n_nan: int
    start: int
    stop: int
    first: Any
    last: Any


def _ends(chunk: Any) -> SortedPart:
    """Return the elements of a sorted chunk that are not NaN."""
    size = int(chunk.shape[0])
    n = size
    if size and _is_nan(_element(chunk, size - 1)):
        n = bisect_left(range(size), True, key=lambda i: _is_nan(_element(chunk, i)))
    if n == 0:
        return SortedPart(0, size, 0, 0, None, None)
    return SortedPart(n, size - n, 0, n, _element(chunk, 0), _element(chunk, n - 1))


def _element(chunk: Any, i: int) -> Any:
    """Return one element, on the host."""
    return elements_at(chunk, np.array([i]))[0]


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN."""
    return bool(value != value)


def _starts(ends: list[SortedPart]) -> IntArray:
    """Return the rank of the first element of each chunk, and the number of all elements.

    Raise unless the ends of the chunks ascend.
    """
    filled = [each for each in ends if each.n or each.n_nan]
    for one, other in pairwise(filled):
        if other.n and (one.n_nan or one.last > other.first):
            raise ValueError(
                "ordered is not sorted, because the ends of its chunks do not ascend: pass sort(x)"
            )
    return np.append(np.int64(0), np.cumsum([each.n for each in ends], dtype=np.int64))


def _wanted(starts: IntArray, q: tuple[float, ...]) -> Ranks:
    """Return the ranks of the neighbours of the quartiles."""
    return ranks_of(q, LINEAR, max(int(starts[-1]), 1))


def _pick(
    chunk: Any, starts: IntArray, block: tuple[int, ...], *, q: tuple[float, ...]
) -> dict[int, Any]:
    """Return the elements of wanted ranks that are in a chunk, by their ranks."""
    start, stop = starts[int(block[0]) :][:2].tolist()
    wanted = _wanted(starts, q)
    neighbours = {*wanted.lower.tolist(), *wanted.upper.tolist()}
    here = sorted(rank for rank in neighbours if start <= rank < stop)
    if not here:
        return {}
    return dict(zip(here, unsigned_zero(elements_at(chunk, np.array(here) - start)), strict=True))


def _quartiles(parts: list[dict[int, Any]], starts: IntArray, q: tuple[float, ...]) -> FloatArray:
    """Interpolate the quartiles."""
    if starts[-1] == 0:
        return np.full(len(q), np.nan)
    picked = {rank: element for part in parts for rank, element in part.items()}
    *sides, weight = _wanted(starts, q)
    lower, upper = (np.array([picked[rank] for rank in side.tolist()]) for side in sides)
    return interpolate(lower, upper, weight, LINEAR, np.dtype(np.float64))


# --- Whiskers and fliers --------------------------------------------------------------------------


def _inside(chunk: Any, own: SortedPart, quartiles: FloatArray, *, rule: Rule) -> SortedPart:
    """Return the elements of a chunk inside the fences.

    If a fence is NaN, nothing is beyond or inside it.
    """
    low, high = map(float, rule.fences(quartiles))
    start = _first(chunk, own, lambda value: value >= low)
    stop = _first(chunk, own, lambda value: value > high)
    is_low, is_high = low == low, high == high
    first = _element(chunk, start) if is_low and start < own.n else None
    last = _element(chunk, stop - 1) if is_high and stop else None
    where = start if is_low else 0, stop if is_high else own.n
    return SortedPart(own.n, own.n_nan, *where, first, last)


def _first(chunk: Any, ends: SortedPart, holds: Callable[[float], bool]) -> int:
    """Return the number of the first element, as float64, for which a condition holds.

    It holds for all elements after it.
    """
    if ends.n == 0 or holds(float(ends.first)):
        return 0
    if not holds(float(ends.last)):
        return ends.n
    return bisect_left(range(ends.n), True, key=lambda i: holds(float(_element(chunk, i))))


def _statistics(parts: list[SortedPart], quartiles: FloatArray) -> dict[str, Any]:
    """Return the statistics of a box by their names."""
    q1, med, q3 = quartiles[:3].tolist()
    with np.errstate(over="ignore", invalid="ignore"):
        iqr = quartiles[2] - quartiles[0]
    reals = (q1, med, q3, iqr, *_whiskers(parts, q1, q3))
    of_parts = [(part.n, part.n_nan, part.start, part.n - part.stop) for part in parts]
    counts = map(sum, zip(*of_parts, strict=True))
    return {
        **{name: np.int64(number) for name, number in zip(COUNTS, counts, strict=True)},
        **{name: np.float64(number) for name, number in zip(REALS, reals, strict=True)},
    }


def _whiskers(parts: list[SortedPart], q1: float, q3: float) -> tuple[float, float]:
    """Return the ends of the whiskers, none of which ends inside the box, as in matplotlib."""
    low = next((part.first.item() for part in parts if part.first is not None), q1)
    high = next((part.last.item() for part in reversed(parts) if part.last is not None), q3)
    # A zero is positive, as those of describe_boxplot are.
    return float(q1 if low > q1 else low) + 0.0, float(q3 if high < q3 else high) + 0.0


def _beyond(chunk: Any, inside: SortedPart, *, is_high: bool) -> Any:
    """Return the fliers of a chunk on one side of the fences."""
    return chunk[inside.stop : inside.n] if is_high else chunk[: inside.start]
