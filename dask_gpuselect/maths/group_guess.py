"""Brackets of groups that a sample guesses; the counts must prove them.

Plain NumPy on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import RanksOfLanes

# Standard deviations from the wanted rank to either end of a bracket. With 10^5 groups, one bracket
# fails in every 17th call.
WIDTH = 5


def sample_size(n: int, n_groups: int, n_answers: int) -> tuple[int, int]:
    """Choose the sample size with the fewest sampled elements and candidates together.

    Returns it and the expected number of candidates among `n` elements.

    With s elements sampled of each of g groups, a bracket holds about ``WIDTH / sqrt(s)`` of a
    group's elements, so all sampled and all candidates are ``g s + n WIDTH / sqrt(s)``.
    """
    wide = WIDTH * max(n_answers, 1)
    size = math.ceil((n * wide * math.sqrt(n_groups) / 2) ** (2 / 3))
    each = max(size / n_groups, 1)
    share = wide / math.sqrt(each) + 2 * (WIDTH + 1) * max(n_answers, 1) / each
    return size, math.ceil(n * min(share, 1))


def shares_of(ranks: RanksOfLanes, n: int) -> NDArray[np.float64]:
    """Return where the wanted elements lie in a group, as shares of its elements, if it has n.

    A sample is bracketed around these shares, so nothing depends on how well they fit.
    """
    lower, upper = ranks(np.array([n]))
    return (lower[:, 0] + upper[:, 0] + 1) / (2 * n)


@dataclass(frozen=True, eq=False)
class GatheredGroups:
    """Where the elements of groups are that were gathered in the cells between guessed ends.

    All groups have the same number of cells, and an end behind each but the last. The elements of
    wanted cells lie in the order of cells and values, and behind those of a cell its end.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_groups, n_cells, 2)
        Number of elements in each cell, and of those that equal its upper end.
    wanted : ndarray of bool, shape (n_groups, n_cells)
    """

    counts: IntArray
    wanted: NDArray[np.bool_]

    @cached_property
    def n_valid(self) -> IntArray:
        return np.asarray(self.counts.sum(axis=(1, 2)))

    def places(self, ranks: IntArray) -> IntArray | None:
        """Find the places of elements by their ranks among those of all groups in order.

        `ranks` has a column for each group, and the places of groups without elements are
        arbitrary. Return None if one of the elements was not gathered.
        """
        n_valid, upto = self.n_valid, self.counts.cumsum()
        if not n_valid.any():
            return None
        segment = upto.searchsorted(ranks, side="right")
        is_cell = segment % 2 == 0
        is_there = self.wanted.take(segment // 2) | ~is_cell
        if not (is_there | (n_valid == 0)).all():
            return None
        within = (ranks - (upto - self.counts.ravel())[segment]) * (is_cell & is_there)
        return np.asarray(self.starts.take(segment) + within)

    @cached_property
    def runs(self) -> IntArray:
        """Where the places of each group's elements start and stop, shape (4, n_groups).

        Then up to where all its least elements are there, and from where on all its largest.
        """
        upto = self._sizes.cumsum().reshape(len(self.counts), -1)
        starts, counts = self.starts.reshape(upto.shape), self.counts.reshape(upto.shape)
        lost = counts > 0
        start = starts[:, :1]
        stop = np.where(lost, upto, start).max(axis=1, keepdims=True)
        lost[:, ::2] &= ~self.wanted
        lost[:, 1::2] = False
        first, last = (
            np.where(lost, starts, stop).min(axis=1),
            np.where(lost, starts, start).max(axis=1),
        )
        return np.stack([start[:, 0], stop[:, 0], first, last])

    def holds(self, n_low: IntArray, n_high: IntArray) -> bool:
        """Return whether all of so many least and largest elements are there, and the next ones.

        The numbers are those of places.
        """
        start, stop, first, last = self.runs
        inner, outer = start + n_low, stop - n_high
        is_low = (inner < first) | (first == stop)
        is_high = (outer > last) | (last == start)
        ranks = self._ranks(np.stack([start, inner, outer, stop]))
        is_each = np.diff(ranks, axis=0)[::2] == [n_low, n_high]
        return bool(is_low.all() and is_high.all() and is_each.all())

    def _ranks(self, places: IntArray) -> IntArray:
        """Find the ranks of places among the elements of all groups in order."""
        starts = self.starts
        segment = starts.searchsorted(places, side="right") - 1
        first = self.counts.cumsum() - self.counts.ravel()
        return np.asarray(first[segment] + places - starts[segment])

    @cached_property
    def starts(self) -> IntArray:
        """The place of each cell and of each end, one behind the other."""
        return np.asarray(self._sizes.cumsum() - self._sizes.ravel())

    @cached_property
    def _sizes(self) -> IntArray:
        """Number of places of each cell and of each end; there is none behind the last cell."""
        sizes = np.ones(self.counts.shape, np.int64)
        sizes[..., 0] = self.counts[..., 0] * self.wanted
        sizes[:, -1, 1] = 0
        return sizes
