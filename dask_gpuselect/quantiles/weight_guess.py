"""Brackets of weighted quantiles, guessed from a sample of elements and their weights.

Nothing here has to be right: the exact sums of a read prove whether the brackets hold. So sums of
the sample's weights are floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.envelope import brackets_at
from dask_gpuselect.maths.sizes import PILOT_SIGMA


def guess_share_brackets(
    ordered: Array, weights: Array, first: Sequence[float], last: Sequence[float]
) -> Brackets:
    """Brackets that hold the elements at some shares of all weights with near certainty.

    Parameters
    ----------
    ordered, weights : array, shape (n,)
        A random sample of the elements, ascending, and what they weigh, on any device.
    first, last : sequence of float
        A bracket is wanted from each first share to each last one.

    Notes
    -----
    The sampled weight up to an element, by that of the whole sample, has a variance of
    ``((1 - q)**2 A + q**2 B) / W**2`` to first order: A is the sum of the squares of the weights up
    to there, B of the others, W the sum of all. A further weight, the largest, is for one more or
    less in the sample.
    """
    xp, n = namespace(ordered), int(ordered.shape[0])
    if not n:
        return Brackets(to_host(ordered), np.ones(1, np.bool_))
    # Scaled, so that no square overflows.
    scaled = weights / xp.max(weights)
    upto, squares = xp.cumsum(scaled), xp.cumsum(scaled * scaled)
    # Both ends at once: on a device each step takes as long for one number as for a thousand.
    q = like(np.array([*first, *last], np.float64), ordered)
    sign = like(np.repeat([-PILOT_SIGMA, PILOT_SIGMA], len(first)), ordered)
    share = q * upto[-1]
    below = squares[xp.clip(xp.searchsorted(upto, share), 0, n - 1)]
    reach = sign * (xp.sqrt((1 - q) ** 2 * below + q**2 * (squares[-1] - below)) + 1)
    lo, hi = to_host(xp.searchsorted(upto, share + reach)).astype(np.int64).reshape(2, -1)
    return brackets_at(lambda at: np.asarray(to_host(ordered[like(at, ordered)])), n, lo - 1, hi)
