"""Elements that weigh: cuts and tallies with sums of weights beside the counts.

A quantile of weighted elements is the smallest x with F(x) >= q W, where F(x) is the sum of the
weights of the elements up to x, and W that of all. Both are sums of floats that no rounding may
decide. So the first load adds up whole units of a chunk's own, each weight rounded down, and counts
bound what is lost; and the second load adds up without rounding at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Cuts, FloatArray, IntArray, Tally

ExactSums = NDArray[np.object_]
"""Python's integers, in units of ``2**-1088`` as those of `maths.moments`: exact, whatever is
added."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedCuts(Cuts):
    """Cuts that say how much the elements weigh, beside how many there are.

    Elements of weight 0 are left out of all of it.

    Parameters
    ----------
    weight_below, weight_upto : ndarray of int64, shape (P,)
        Sums of the weights of the elements < and <= the pivot, each weight rounded down to whole
        units of ``2**unit``: the exact sum is at least that, and less than `below` or `upto` units
        more.
    weight : ndarray of int64, shape (B,)
        The same of all valid elements of each chunk; below 2**62.
    unit : ndarray of int64, shape (B,)
        The exponent of each chunk's unit.
    square : ndarray of float64, shape (B,)
        The sum of the squares of the weights of valid elements, in units of ``2**(2 * unit)``, in
        which none overflows; to a relative error of 2**-20.
    """

    weight_below: IntArray
    weight_upto: IntArray
    weight: IntArray
    unit: IntArray
    square: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTally(Tally):
    """A tally that says how much the elements weigh, beside how many there are.

    Parameters
    ----------
    weight_below, weight_upto : ndarray of Python's integers, shape (E,)
        Exact sums of the weights of the valid elements < and <= each end.
    weight : int
        The exact sum of the weights of all valid elements, in the same units.
    weights : ndarray of float64 or int64, shape (C,)
        Of the candidates, in their order; on the host.
    """

    weight_below: ExactSums
    weight_upto: ExactSums
    weight: int
    weights: NDArray[Any]

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The tally of all parts together."""
        raise NotImplementedError
