"""Isotonic regression of CuPy arrays by minimum lower sets: the host side of ``lower_sets.cu``.

They run in parallel. For every start, take the smallest of the averages from the start up to each
later element. The answer at an element is the largest of these over the starts up to it. Averages
are quotients of differences of prefix sums. These sums are pairs of float64, because differences of
single ones could cancel all digits.
"""

from __future__ import annotations

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda.launch import Array, launch

FLOAT64 = np.dtype(np.float64)
FACTS_BYTES = 24

# Up to this many elements, lower sets are faster than copies to the host and back. For 1e4
# ascending elements with noise they take 0.5 times as long, for 3e4 1.2 times; for descending ones
# 2 and 6.
BEST_UPTO = 1 << 14


def lower_sets(y: Array, weights: Array | None = None) -> Array:
    """Return the isotonic regression of y, ascending, by least squares.

    Parameters
    ----------
    y : cupy.ndarray of float64, shape (n,)
        Finite.
    weights : cupy.ndarray of float64, shape (n,), optional
        Positive and finite.

    Returns
    -------
    cupy.ndarray of float64, shape (n,)

    Notes
    -----
    O(n**2) averages. The host does not wait, which would take most of the time for few elements.
    Scratch: five arrays like y.
    """
    n = y.size
    if n == 0:
        return y
    y = cupy.ascontiguousarray(y)
    weights = None if weights is None else cupy.ascontiguousarray(weights)
    sums = [cupy.empty(n + 1) for _ in range(2 if weights is None else 4)]
    sums += [None] * (4 - len(sums))
    facts, smallest = cupy.empty(FACTS_BYTES, np.uint8), cupy.empty(n, np.uint64)
    launch(FLOAT64, "sets_sums", y, weights, n, *sums, facts, smallest, blocks=1)
    made = (("WEIGHTED", int(weights is not None)),)
    launch(FLOAT64, "sets_smallest", *sums, n, facts, smallest, defined=made)
    launch(FLOAT64, "sets_largest", smallest, n, facts, blocks=1)
    return smallest.view(np.float64)
