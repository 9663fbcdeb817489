"""Box plots of many lanes, finished where the lanes are: columns of any kind of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays

Column = Any  # an array of the kind of the chunks


@dataclass(frozen=True, eq=False)
class LaneBoxes(Arrays):
    """The statistics of every lane, with NaN and no fliers where there is no box.

    Parameters
    ----------
    n : int
        Elements of each lane, missing ones among them.
    n_valid, n_low, n_high : array of uint32, shape (n_lanes,)
        Elements that are not NaN; those beyond the lower and the upper fence.
    q : array of float64, shape (n_q, n_lanes)
        The quantiles `Rule.q`.
    mean, deviation : array of float64, shape (n_lanes,)
        Of the exact sums, each rounded once.
    least, most, low, high : array, shape (n_lanes,)
        The extremes, and the nearest elements inside the fences. Of the dtype of the chunks.
    fliers : array
        Of the same dtype. Lane by lane the lowest, ascending, then the highest, descending; but
        those of some consecutive lanes before or behind those of others.
    starts, counts : array of int64
        Where the fliers of some consecutive lanes begin, of the next ones, and so on; and how many
        they are.
    most_fliers : int
        How many there are of each side of a lane, at most.
    """

    n: int
    n_valid: Column
    n_low: Column
    n_high: Column
    q: Column
    mean: Column
    deviation: Column
    least: Column
    most: Column
    low: Column
    high: Column
    fliers: Column
    starts: Column
    counts: Column
    most_fliers: int

    @property
    def n_lanes(self) -> int:
        return int(self.n_valid.shape[0])


DRAWS_UP_TO = (1 << 31) - 1
"""How many elements a lane may have, and fliers of each side that are kept."""


def in_order(
    fliers: NDArray[Any], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[Any]:
    """Fliers in the order of their lanes; see `LaneBoxes`."""
    before = np.cumsum(counts) - counts
    return fliers[np.repeat(starts - before, counts) + np.arange(len(fliers))]
