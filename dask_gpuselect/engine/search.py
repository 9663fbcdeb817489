"""Run a strategy on an array in memory: a loop that ends as soon as the ranks are proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, IntArray, RanksOf, Tally
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import extreme_keys, from_keys, selection_dtype
from dask_gpuselect.strategies.known import Known, Reply, Strategy, contradiction
from dask_gpuselect.strategies.probes import Copy, Draw, Measure, ProbeResult


@dataclass
class Trace:
    """The cost of a search.

    Parameters
    ----------
    rounds : int
        Number of measurements.
    reads : float
        Elements read, in units of the array's size.
    gathered : int
        Number of elements that were copied to be sorted.
    """

    rounds: int = 0
    reads: float = 0.0
    gathered: int = 0


@dataclass(frozen=True)
class Selected:
    """The elements of the wanted ranks, and the numbers of valid and of missing elements."""

    n_valid: int
    n_missing: int
    elements: dict[int, Any]
    trace: Trace = field(compare=False)

    def at(self, ranks: IntArray) -> NDArray[Any]:
        """Return the elements of some of the wanted ranks."""
        dtype = next(iter(self.elements.values())).dtype
        elements = [self.elements[rank] for rank in ranks.ravel().tolist()]
        return unsigned_zero(np.array(elements, dtype).reshape(ranks.shape))


class _MissingError(Exception):
    """Raised with the numbers of valid and missing elements, if there are fewer than assumed."""


def select_now(values: Any, dtype: np.dtype[Any], ranks: RanksOf, strategy: Strategy) -> Selected:
    """Select the elements of some ranks of an array in memory.

    Parameters
    ----------
    values : array
        Array of NumPy, CuPy or the array API, of any shape.
    dtype : dtype
        Dtype of the array.
    ranks : callable
        Function from the number of valid elements to the first and the last rank of each wanted
        pair; see `cuts.RanksOf`.
    strategy : Strategy

    Notes
    -----
    Each pair is searched for itself. Scratch: what a strategy copies or leaves to be sorted, at
    most as many elements as there are, twice.
    """
    trace, size = Trace(), math.prod(values.shape)
    array = _Array(values, dtype, trace, size)
    opened = None if strategy.opening is None else array.measure(strategy.opening)
    n_valid, n_missing = (size, 0) if opened is None else (opened.n_valid, opened.n_missing)
    for _ in range(2):
        elements: dict[int, Any] = {}
        try:
            for first, last in pairs_of(*ranks(n_valid)):
                known = Known.at_first(first, last, n_valid, selection_dtype(dtype))
                elements |= _search(array, known, opened, strategy)
        except _MissingError as counted:
            n_valid, n_missing = counted.args
        except ChunksChangedError:
            break
        else:
            return Selected(n_valid, n_missing, elements, trace)
    raise ChunksChangedError(
        "the array was changed by another thread while it was searched: pass a copy, a.copy()"
    )


def pairs_of(first: IntArray, last: IntArray) -> list[tuple[int, int]]:
    """Return the distinct pairs of neighbouring or equal ranks, sorted."""
    return sorted(set(zip(first.tolist(), last.tolist(), strict=True)))


@dataclass
class _Array:
    """An array, or a copy of a part of one, that counts how often it is read."""

    values: Any
    dtype: np.dtype[Any]
    trace: Trace
    whole: int

    def measure(self, probe: Measure) -> ProbeResult:
        self.trace.rounds += 1
        if not isinstance(probe, Draw):
            self._count_read()
        return kernels.answer_probe(self.values, self.dtype, probe)

    def gathered(self, brackets: Brackets, most: int) -> Tally:
        """Gather the elements strictly inside the brackets, on the array's device."""
        self._count_read()
        tally = kernels.tally_in_place(self.values, self.dtype, brackets, most)
        if tally is None:
            raise contradiction()
        self.trace.gathered += len(tally.candidates)
        return tally

    def _count_read(self) -> None:
        self.trace.reads += math.prod(self.values.shape) / max(self.whole, 1)


def _search(array: _Array, known: Known, opened: Any, strategy: Strategy) -> dict[int, Any]:
    ranks, whole = (known.first, known.last), array
    if opened is not None:
        assert strategy.opening is not None
        known = known.updated(strategy.opening, opened)
    search = strategy.search(Reply(known, opened))
    probe = next(search, None) if _goes_on(known, strategy) else None
    rounds = int(opened is not None)
    while probe is not None and rounds < strategy.rounds:
        if isinstance(probe, Copy):
            array, known = _copied(array, known)
            reply = Reply(known, None)
        else:
            counts = array.measure(probe)
            if array is whole and not isinstance(probe, Draw) and counts.n_valid != known.n:
                raise _MissingError(counts.n_valid, counts.n_missing)
            reply = known.replied(probe, counts)
            known = reply.known
            rounds += 1
        probe = _sent(search, reply) if _goes_on(known, strategy) else None
    if known.is_settled:
        assert known.lower is not None
        assert known.upper is not None
        lower, upper = from_keys(np.array([known.lower, known.upper], np.uint64), known.dtype)
    else:
        lower, upper = _sorted_inside(array, known, strategy, is_whole=array is whole)
    return dict(zip(ranks, (lower, upper), strict=True))


def _goes_on(known: Known, strategy: Strategy) -> bool:
    return not known.is_settled and known.inside > strategy.sort_below


def _sent(search: Any, reply: Reply) -> Any:
    try:
        return search.send(reply)
    except StopIteration:
        return None


def _copied(array: _Array, known: Known) -> tuple[_Array, Known]:
    """Copy the elements inside the bracket, and restrict what is known to them."""
    if known.inside == known.n:
        return array, known
    tally = array.gathered(brackets_of([known]), known.inside)
    array.trace.gathered -= len(tally.candidates)  # these will not be sorted
    inner = replace(
        known,
        first=known.first - known.before,
        last=known.last - known.before,
        n=known.inside,
        before=0,
    )
    return replace(array, values=tally.candidates.elements, dtype=known.dtype), inner


def _sorted_inside(
    array: _Array, known: Known, strategy: Strategy, *, is_whole: bool
) -> NDArray[Any]:
    """Return the wanted elements after sorting all that are left inside the bracket."""
    tally = array.gathered(brackets_of([known]), known.inside)
    if is_whole and tally.n_valid != known.n:
        raise _MissingError(tally.n_valid, tally.n_missing)
    if len(tally.candidates) != known.inside:
        raise contradiction()
    places = np.array([known.first, known.last]) - known.before
    return kernels.ordered(tally.candidates, strategy.sorts).elements_at(places)


def brackets_of(wanted: list[Known]) -> Brackets:
    """Return the open intervals of several brackets, joined where they overlap.

    A bracket whose element is found contributes that element as an end, where it is only counted.
    """
    dtype = wanted[0].dtype
    least, largest = extreme_keys(dtype)
    open_ = [(known.lo, known.hi) for known in wanted if not known.is_settled]
    elements = {known.lower for known in wanted if known.lower is not None}
    keys = sorted({key for ends in open_ for key in ends if least <= key <= largest} | elements)
    starts = [least - 1, *keys]
    is_wanted = [any(lo <= start < hi for lo, hi in open_) for start in starts]
    return Brackets(from_keys(np.array(keys, np.uint64), dtype), np.array(is_wanted, np.bool_))
