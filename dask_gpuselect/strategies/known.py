"""Known facts about one or two neighbouring order statistics, and how counts narrow their bracket.

Only integer counts move a bracket: rounding in a strategy's sums may cost rounds, but never changes
the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dask_gpuselect.maths.cuts import ADVICE, ChunksChangedError
from dask_gpuselect.maths.keys import extreme_keys, key_at, unused_key
from dask_gpuselect.strategies import probes


def contradiction() -> ChunksChangedError:
    """Make the error for a result that contradicts an earlier one."""
    return ChunksChangedError(f"the chunks have changed between two reads: counts differ. {ADVICE}")


@dataclass(frozen=True)
class Known:
    """Bracket of the elements of the ranks `first` and `last`.

    Parameters
    ----------
    first, last : int
        Ranks, 0-based; equal, or neighbours.
    n : int
        Number of valid elements.
    lo, hi : int
        Keys. Both elements lie strictly between them, unless they are found.
    before, inside : int
        Number of elements up to `lo`, and strictly between `lo` and `hi`.
    dtype : dtype
        A `keys.selection_dtype`.
    lower, upper : int or None
        Keys of the two elements once they are found.
    is_proven : bool
        True if a single result proves them. Several results do so only if the data have not changed
        in between.
    """

    first: int
    last: int
    n: int
    lo: int
    hi: int
    before: int
    inside: int
    dtype: np.dtype[Any]
    lower: int | None = None
    upper: int | None = None
    is_proven: bool = False

    @classmethod
    def at_first(cls, first: int, last: int, n: int, dtype: np.dtype[Any]) -> Self:
        """Make the bracket of all elements, before anything is known."""
        assert 0 <= first <= last <= first + 1
        assert last < n
        least, largest = extreme_keys(dtype)
        return cls(first, last, n, least - 1, largest + 1, 0, n, dtype)

    @property
    def is_settled(self) -> bool:
        return self.lower is not None

    @property
    def least(self) -> int:
        """Least key that an element inside may have."""
        return key_at(self.lo + 1, self.dtype)

    @property
    def largest(self) -> int:
        """Largest key that an element inside may have. No `hi` is behind an unused key."""
        return self.hi - 1

    @property
    def target(self) -> float:
        """Number of elements up to a value between the wanted ones, or up to the middle of one."""
        return (self.first + self.last + 1) / 2

    def replied(self, probe: probes.Measure, measured: probes.ProbeResult) -> Reply:
        """Update the known facts by what a probe measured, and make the reply to the strategy."""
        known = self.updated(probe, measured)
        if isinstance(measured, probes.BinsResult):
            return known, self._bins_of(measured)
        return known, measured

    def updated(self, probe: probes.Measure, measured: probes.ProbeResult) -> Known:
        """Update the known facts by what a probe measured."""
        if isinstance(measured, probes.ExtentResult):
            self._check(measured.n_valid)
            return self._updated_by_extent(measured.least, measured.largest)
        if isinstance(measured, probes.PointsResult):
            assert isinstance(probe, probes.Points)
            self._check(measured.n_valid)
            known = self
            for i, key in enumerate(probe.keys):
                if not known.is_settled:
                    counts = int(measured.below[i]), int(measured.upto[i])
                    known = known._updated_by_point(
                        key, *counts, measured.previous[i], measured.next[i]
                    )
            return known
        if isinstance(measured, probes.BinsResult):
            assert not isinstance(probe, probes.Points)
            return self._updated_by_bins(probe, measured)  # type: ignore[arg-type]
        return self

    def _updated_by_extent(self, least: int, largest: int) -> Known:
        known = self._narrowed(least - 1, largest + 1, 0, self.n, is_alone=True)
        if self.last == 0:
            return known._settled(least, least)
        return known._settled(largest, largest) if self.first == self.n - 1 else known

    def _updated_by_point(
        self, key: int, below: int, upto: int, previous: int, next_: int
    ) -> Known:
        if upto == self.first == self.last:
            return self._settled(next_, next_)
        if below - 1 == self.first == self.last:
            return self._settled(previous, previous)
        if upto <= self.first:  # nothing lies between the pivot and the next element
            return self._narrowed(next_ - 1, self.hi, upto, self.before + self.inside)
        if below > self.last:
            return self._narrowed(self.lo, previous + 1, self.before, below)
        return self._settled(
            previous if self.first < below else key, next_ if self.last >= upto else key
        )

    def _updated_by_bins(self, bins: probes.Bins, measured: probes.BinsResult) -> Known:
        self._check(measured.n_valid)
        upto = measured.n_before + np.cumsum(measured.counts)
        i, j = self._bins_of(measured)
        if self.first < measured.n_before or j >= len(measured.counts):
            raise contradiction()
        before = int(upto[i] - measured.counts[i])
        edges = bins.edge(i) - 1, bins.edge(j + 1)
        return self._narrowed(*edges, before, int(upto[j]), is_alone=True)

    def _bins_of(self, measured: probes.BinsResult) -> tuple[int, int]:
        """Find the bins of the wanted elements."""
        upto = measured.n_before + np.cumsum(measured.counts)
        i, j = (int(np.searchsorted(upto, rank, side="right")) for rank in (self.first, self.last))
        return i, j

    def _narrowed(
        self, lo: int, hi: int, before: int, upto: int, *, is_alone: bool = False
    ) -> Known:
        """Narrow the bracket, which never gets wider; `upto` elements are below `hi`.

        `is_alone` is True if a single result says all of this.
        """
        is_alone = is_alone and self.lo <= lo and hi <= self.hi
        if lo < self.lo:
            lo, before = self.lo, self.before
        if hi > self.hi:
            hi, upto = self.hi, self.before + self.inside
        if not before <= self.first <= self.last < upto or hi - lo < 2:
            raise contradiction()
        # A narrower bracket has no more elements on either side than the wider one.
        if before < self.before or upto > self.before + self.inside:
            raise contradiction()
        unused = unused_key(self.dtype)  # the ends of brackets are elements
        lo, hi = lo - (lo == unused), hi + (hi == unused)
        known = replace(self, lo=lo, hi=hi, before=before, inside=upto - before)
        if known.least < known.largest:
            return known
        return known._settled(known.least, known.least, is_alone=is_alone)

    def _settled(self, lower: int, upper: int, *, is_alone: bool = True) -> Known:
        if not self.lo < lower <= upper < self.hi:
            raise contradiction()
        return replace(self, lower=lower, upper=upper, is_proven=is_alone)

    def _check(self, n_valid: int) -> None:
        if n_valid != self.n:
            raise contradiction()


Reply = tuple[Known, Any]
"""Reply to a probe: the known facts, and the result.

The result of bins is the pair of bins that have the wanted elements.
"""

Search = Generator[probes.Probe, Reply, None]


@dataclass(frozen=True)
class Strategy:
    """A selection method, for `order_statistic`.

    A strategy proposes what to measure next, from what is known. It does not receive the elements,
    and need not prove anything. When it ends, or has used all its rounds, the elements left in the
    bracket are gathered and sorted. If they are too many to gather, the default engine finds the
    answer.

    Parameters
    ----------
    name : str
        Name in plans and in the names of layers: letters alone, as `key_split` keeps these.
    search : callable
        ``(known, opened)``: a generator of probes, from what is known at first and the result of
        `opening`. Each ``yield`` returns a `Reply`. Given the same replies, it must propose the
        same probes. It is not resumed once the wanted elements are found.
    rounds : int
        Largest number of measurements, including the opening.
    reply_bytes : callable
        ``(n_chunks, size)``: bound of the bytes of the results of `n_chunks` chunks in a round, and
        of all replies, for one pair of ranks of an array of `size` elements.
    opening : Measure, optional
        Probe to begin with, whatever is wanted.
    sort_below : int
        Number of elements in the bracket up to which the search ends, and they are gathered; for
        example, ``dataclasses.replace(Kelley(), sort_below=1000)``.
    sorts : bool
        True if all gathered elements are sorted; otherwise the wanted ones are selected.
    sub_array : int
        Size of the sub-arrays that a bitonic network sorts; 0 for the fastest sort.
    """

    name: str
    search: Callable[[Known, Any], Search] = field(repr=False)
    rounds: int
    reply_bytes: Callable[[int, int], int] = field(repr=False)
    opening: probes.Measure | None = None
    sort_below: int = 0
    sorts: bool = False
    sub_array: int = 0
