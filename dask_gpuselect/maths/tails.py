"""Tails of many lanes at once: a fixed number of the least and of the largest elements of each.

A quantile near one end of a lane needs only elements of that tail, and their number is known before
any is read. So parts of lanes are processed one by one, and only their tails are cached. All tables
are on the host, with a row for each lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError, IntArray
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick

MOST = 1 << 49
"""Largest number of elements of a lane; positions are then rounded by less than a quarter."""


@dataclass(frozen=True)
class TailSizes:
    """Number of elements in the tails of a lane of known length.

    Parameters
    ----------
    n : int
        Number of elements of the lane, valid or not.
    low, high : int
        Number of the least and of the largest valid elements. Together no more than `n`.
    """

    n: int
    low: int
    high: int

    @classmethod
    def of_quantiles(cls, n: int, q: Sequence[float]) -> TailSizes:
        """Find tails with the elements of some quantiles, by any method and for any number missing.

        Among ``m`` valid elements, every method's position is from ``q m - 3 / 2`` to ``q m``, and
        its ranks are above the position less 1, and up to the position plus 1. So there are at most
        ``q m + 2`` elements up to the upper rank, and fewer than ``(1 - q) m + 5 / 2`` from the
        lower rank on. Neither is more for a smaller ``m``. Positions are rounded by less than a
        quarter.
        """
        shares = np.asarray(q, np.float64)
        low, high = np.floor(n * shares + 2.5), np.floor(n * (1 - shares) + 3)
        is_low = low <= high
        sizes = [int(of[some].max(initial=0)) for of, some in ((low, is_low), (high, ~is_low))]
        return cls(n, *sizes) if n <= MOST and sum(sizes) < n else cls(n, n, 0)

    def width(self, n: int) -> int:
        """Return how many of `n` elements are in the tails."""
        return min(n, self.low + self.high)


@dataclass(frozen=True, eq=False)
class LaneTails(Arrays):
    """Tails of every lane in a part of the data, or in several.

    Parameters
    ----------
    elements : ndarray, shape (n_lanes, width)
        The least and the largest valid elements of each lane, ascending, or all of them if there
        are no more than `width`. The rest of a row is arbitrary, and sorted last.
    n_valid, n_missing : ndarray of int64, shape (n_lanes,)
        Number of all valid elements, and of NaN or NaT.
    """

    elements: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray

    @property
    def n_unused(self) -> IntArray:
        """Number of places of each lane without an element."""
        width = np.int64(self.elements.shape[1])
        unused: IntArray = width - np.minimum(self.n_valid, width)
        return unused


def tails_of_sorted(lanes: SortedLanes, sizes: TailSizes) -> LaneTails:
    """Take the tails of lanes without weights."""
    rows, n_valid, n_missing = lanes.values, lanes.n_valid, lanes.n_missing
    n = rows.shape[1]
    width = sizes.width(n)
    if width == n:
        return LaneTails(rows.copy(), n_valid, n_missing)
    if (n_valid == n).all():
        tails = np.concatenate([rows[:, : sizes.low], rows[:, n - sizes.high :]], axis=1)
        return LaneTails(tails, n_valid, n_missing)
    place = np.arange(width)
    beyond = np.maximum(n_valid - width, 0)[:, None]
    at = np.where(place < sizes.low, place, place + beyond)
    return LaneTails(np.take_along_axis(rows, at, axis=1), n_valid, n_missing)


def lanes_in_tails(
    tails: LaneTails, known: None = None, *, ranks: RanksOfLanes, sizes: TailSizes
) -> Lanes:
    """Find the elements of some ranks in every lane.

    Raises
    ------
    ChunksChangedError
        If a lane has more elements than `sizes` has.
    """
    n_valid, n_missing = tails.n_valid, tails.n_missing
    if (n_valid + n_missing > sizes.n).any():
        raise ChunksChangedError(
            f"a 1-D slice has more elements than its size, {sizes.n}. {ADVICE}"
        )
    width = tails.elements.shape[1]

    def places(n: IntArray) -> tuple[IntArray, IntArray]:
        beyond = np.maximum(n - width, 0)
        lower, upper = (np.where(rank < sizes.low, rank, rank - beyond) for rank in ranks(n))
        return lower, upper

    return pick(SortedLanes(tails.elements, n_valid, n_missing, np.zeros_like(n_valid)), places)
