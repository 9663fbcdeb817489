"""Run a strategy on an array in memory: a loop that ends as soon as the ranks are proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.registry import Backend
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, IntArray, RanksOf, Tally
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import extreme_keys, from_keys, selection_dtype
from dask_gpuselect.strategies.known import Known, Reply, Strategy, contradiction
from dask_gpuselect.strategies.probes import COPY, Draw, Measure, ProbeResult


@dataclass
class Selected:
    """The elements of the wanted ranks, and the cost of the search.

    Parameters
    ----------
    n_valid, n_missing : int
        Numbers of valid and of missing elements; all are valid until one is read that is not.
    elements : dict
        The elements by their ranks.
    rounds : int
        Number of measurements.
    reads : float
        Elements read, in units of the array's size.
    gathered : int
        Number of elements that were copied to be sorted.
    """

    n_valid: int
    n_missing: int = 0
    elements: dict[int, Any] = field(default_factory=dict)
    rounds: int = 0
    reads: float = 0.0
    gathered: int = 0

    def at(self, ranks: IntArray) -> NDArray[Any]:
        """Return the elements of some of the wanted ranks."""
        dtype = next(iter(self.elements.values())).dtype
        elements = [self.elements[rank] for rank in ranks.ravel().tolist()]
        return unsigned_zero(np.array(elements, dtype).reshape(ranks.shape))


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
    found = Selected(math.prod(values.shape))
    array, opened = _Array(kernels.of(values, dtype), found, found.n_valid), None
    if strategy.opening is not None:
        opened = array.measure(strategy.opening)
    for _ in range(2):
        n_valid, found.elements = found.n_valid, {}
        try:
            for first, last in pairs_of(*ranks(n_valid)):
                known = Known.at_first(first, last, n_valid, selection_dtype(dtype))
                found.elements |= _search(array, known, opened, strategy)
        except ChunksChangedError:
            if found.n_valid == n_valid:
                break
            # Without an opening, the search itself has noticed that elements are missing.
        else:
            return found
    raise ChunksChangedError(
        "the array was changed by another thread while it was searched: pass a copy, a.copy()"
    )


def pairs_of(first: IntArray, last: IntArray) -> list[tuple[int, int]]:
    """Return the distinct pairs of neighbouring or equal ranks, sorted."""
    return sorted(set(zip(first.tolist(), last.tolist(), strict=True)))


@dataclass
class _Array:
    """An array, or a copy of a part of one, that counts how often it is read."""

    bound: Backend
    found: Selected
    size: int
    is_whole: bool = True

    def measure(self, probe: Measure) -> ProbeResult:
        counts = kernels.answer_probe(self.bound, self.bound.dtype, probe)
        self.found.rounds += 1
        if not isinstance(probe, Draw):
            self._note_read(counts)
        return counts

    def gathered(self, known: Known) -> Tally:
        """Gather the elements strictly inside a bracket, on the array's device."""
        brackets = brackets_of([known])
        tally = kernels.tally_in_place(self.bound, self.bound.dtype, brackets, known.inside)
        if tally is None:
            raise contradiction()
        self._note_read(tally)
        self.found.gathered += len(tally.candidates)
        return tally

    def _note_read(self, counts: ProbeResult | Tally) -> None:
        self.found.reads += self.bound.size / max(self.size, 1)
        if self.is_whole:
            self.found.n_valid, self.found.n_missing = counts.n_valid, counts.n_missing


def _search(array: _Array, known: Known, opened: Any, strategy: Strategy) -> dict[int, Any]:
    ranks = known.first, known.last
    if opened is not None:
        assert strategy.opening is not None
        known = known.updated(strategy.opening, opened)
    search = strategy.search(known, opened)
    probe = next(search, None) if _goes_on(known, strategy) else None
    rounds = int(opened is not None)
    while probe is not None and rounds < strategy.rounds:
        measured = None
        if probe == COPY:
            array, known = _copied(array, known)
        else:
            known, measured = known.replied(probe, array.measure(probe))
            rounds += 1
        probe = _sent(search, (known, measured)) if _goes_on(known, strategy) else None
    if known.is_settled:
        assert known.lower is not None
        assert known.upper is not None
        lower, upper = from_keys(np.array([known.lower, known.upper], np.uint64), known.dtype)
    else:
        lower, upper = _sorted_inside(array, known, strategy)
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
    tally = array.gathered(known)
    array.found.gathered -= len(tally.candidates)  # these will not be sorted
    inner = replace(
        known,
        first=known.first - known.before,
        last=known.last - known.before,
        n=known.inside,
        before=0,
    )
    bound = kernels.of(tally.candidates.elements, known.dtype)
    return replace(array, bound=bound, is_whole=False), inner


def _sorted_inside(array: _Array, known: Known, strategy: Strategy) -> NDArray[Any]:
    """Return the wanted elements after sorting all that are left inside the bracket."""
    tally = array.gathered(known)
    if tally.n_valid != known.n or len(tally.candidates) != known.inside:
        raise contradiction()
    places = np.array([known.first, known.last]) - known.before
    return kernels.ordered(tally.candidates, strategy).elements_at(places)


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
