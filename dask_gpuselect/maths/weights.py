"""Weighted elements: cuts and tallies with sums of weights beside the counts.

A quantile of weighted elements is the smallest x with F(x) >= q W, where F(x) is the sum of the
weights of the elements up to x, and W that of all. Both are sums of floats, and rounding must not
decide. So the first load adds up whole units of a chunk's own, with each weight rounded down, and
counts bound the loss. The second load adds up without rounding at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.maths.exact_sums import DIGIT, SQUARE_POINT, TOTAL_POINT

# Units of Python integers for sums of weights, and for sums of products of two: ``2**(32 * unit)``.
WEIGHT_UNIT, PRODUCT_UNIT = -TOTAL_POINT, -SQUARE_POINT
POINT = DIGIT * TOTAL_POINT

UNITS = 61  # bits of the sum of a chunk's weights in the unit of its cuts; it may have one more

SQUARE_ROUNDINGS = 16
"""Number of roundings of a sum of squares, in addition to one for each element."""

NEGATIVE = "Weights must be non-negative."
NOT_FINITE = "Weights included NaN, inf or were all zero."
"""Message as in NumPy."""


# Bytes of each pivot with its sums of weights; there are up to twice as many pivots as without
# weights. `PIVOT_WORK` is what `sizes.PIVOT_WORK` is without weights: of each of both, 174 to 267
# bytes were measured, and 308 where groups have two elements in a part.
PIVOT_BYTES, PIVOT_WORK = 2 * 56, 2 * 300
WEIGHT_BYTES = 8


def check_some_weigh(numbers: Any) -> None:
    """Raise if a slot has valid elements, all of weight 0, and no other elements.

    `numbers` has `n_valid`, `n_missing` and `n_idle`, each for one slot or for several.
    """
    if np.any((numbers.n_valid + numbers.n_missing == 0) & (numbers.n_idle > 0)):
        raise ValueError(NOT_FINITE)
