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
    each = max(size / max(n_groups, 1), 1)
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
    """Places of the elements of groups that were gathered in the cells between guessed ends.

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
        """Count the elements of each group."""
        return np.asarray(self.counts.sum(axis=(1, 2)))

    def places(self, ranks: IntArray) -> IntArray | None:
        """Find the places of elements by their ranks among those of all groups in order.

        `ranks` has a column for each group, and the places of groups without elements are
        arbitrary. Return None if one of the elements was not gathered.
        """
        if not self.n_valid.any():
            return None
        segment = (self._before + self.counts.ravel()).searchsorted(ranks, side="right")
        is_there = self._sizes.take(segment) > 0
        if not (is_there | (self.n_valid == 0)).all():
            return None
        within = (ranks - self._before[segment]) * (is_there & (segment % 2 == 0))
        return np.asarray(self._starts[segment] + within)

    @cached_property
    def edges(self) -> IntArray:
        """Find where the places of the elements of each group start and stop, in two rows."""
        # Ends that stand for open brackets equal no element. They are behind all others. Neither do
        # ends that equal another one, and these have places among the elements.
        starts = self._starts.reshape(self.counts.shape)
        stops = np.where(self.counts > 0, starts + self._sizes, starts[:, :1, :1])
        return np.stack([starts[:, 0, 0], stops.max(axis=(1, 2))])

    def holds(self, n_low: IntArray, n_high: IntArray) -> bool:
        """Return whether all of so many least and largest places, and the next, are all elements.

        Then as many elements come before and behind as places.
        """
        start, stop = self.edges
        inside = np.stack([start + n_low, np.maximum(stop - n_high - 1, start)])
        segment = self._starts.searchsorted(inside, side="right") - 1
        is_cell, counts = segment % 2 == 0, self.counts.ravel()
        before = self._before[segment] + (inside - self._starts[segment]) * is_cell
        n_before = before[0] - (self.n_valid.cumsum() - self.n_valid)
        n_behind = self.n_valid.cumsum() - (before + np.where(is_cell, 1, counts[segment]))[1]
        return bool((((n_before == n_low) & (n_behind == n_high)) | (self.n_valid == 0)).all())

    @cached_property
    def _before(self) -> IntArray:
        """Count the elements before each cell and each end, one behind the other."""
        return np.asarray(self.counts.cumsum() - self.counts.ravel())

    @cached_property
    def _starts(self) -> IntArray:
        """Find the place of each cell and of each end, one behind the other."""
        return np.asarray(self._sizes.cumsum() - self._sizes.ravel())

    @cached_property
    def _sizes(self) -> IntArray:
        """Count the places of each cell and of each end; there is none behind the last cell."""
        sizes = np.ones(self.counts.shape, np.int64)
        sizes[..., 0] = self.counts[..., 0] * self.wanted
        sizes[:, -1, 1] = 0
        return sizes
