"""Box plots of many lanes, finished where the lanes are: columns of any kind of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
        Of the same dtype. Lane by lane the lowest, ascending, then the highest, descending.
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
    most_fliers: int

    @property
    def n_lanes(self) -> int:
        return int(self.n_valid.shape[0])


DRAWS_UP_TO = (1 << 31) - 1
"""How many elements a lane may have, and fliers of each side that are kept."""

BOX_DTYPE = np.dtype(np.float64)
"""Of quantiles, means and deviations."""
