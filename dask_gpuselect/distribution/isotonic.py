"""Isotonic regression: the ascending sequence nearest to a noisy one.

Nearest means by least squares or by least absolute deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_gpuselect.arguments import public, real
from dask_gpuselect.arrays import Array, all_true, like, namespace, namespace_of, to_host
from dask_gpuselect.kernels import exponent_of, running_minimum, scaled
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.optional import needs

WEIGHT_BITS = 59  # bits of the integer sum of all weights: twice the sum plus n must fit int64


@public()
def isotonic_regression(
    y: Any, weights: Any = None, *, loss: str = "squared", increasing: bool = True
) -> Array:
    """Find the ascending sequence that is nearest to y: isotonic regression.

    Parameters
    ----------
    y : array_like, shape (n,)
        Real, finite numbers. For a CuPy array the answer is a CuPy array.
    weights : array_like, shape (n,), optional
        The weight of each element, positive and finite. By default all weigh the same.
    loss : {"squared", "absolute"}, default "squared"
        What is minimised: the weighted sum of squared, or of absolute, differences from y. With
        "absolute", a far outlier counts no more than a near one.
    increasing : bool, default True
        False gives the nearest descending sequence.

    Returns
    -------
    array of float64, shape (n,)
        For "squared", the only solution. Its values are averages of elements of y. For "absolute"
        there can be several solutions. This is the smallest of them, also for descending sequences.
        Its values are elements of y: the lower median of each block.

    Raises
    ------
    TypeError
        If `y` or `weights` is lazy or not of real numbers.
    ValueError
        If `y`, `weights` or `loss` is not as described above.
    ImportError
        For "squared", if SciPy is not installed: ``pip install scipy``. CuPy arrays of up to 16,384
        elements do not need it.
    MemoryError
        If the device runs out of memory.

    See Also
    --------
    MonotoneQuadraticSpline : A smooth function through the result.
    scipy.optimize.isotonic_regression : Least squares with NumPy arrays.

    Notes
    -----
    Element k of the answer is ``max over i <= k of min over j >= k of the average of y[i] ...
    y[j]``, and for "absolute" of their lower median.

    "squared": SciPy pools adjacent violators on the host, in O(n). A CuPy array of up to 16,384
    elements stays on the device. There, each thread finds the smallest average that begins at its
    element (parallel minimum lower sets), in O(n**2) operations. Larger CuPy arrays are copied to
    the host and back. Both have an error of a few eps of the largest abs(y). On the device,
    averages come from sums of two float64 each. The error of these sums, relative to the largest
    abs(y), is about ``1e-30 * sum(weights) / min(weights)``.

    "absolute": the elements are divided by the value that they take in the answer, each time into
    the lower and the upper half of the values that are possible. A minimum of partial sums of
    weights says where to divide. All divisions of a step are made at once. NumPy and CuPy run the
    same array operations and give the same bits. This takes O(n log n) operations, and
    O(n log(n)**2) on a device. Weights are rounded to multiples of less than ``2**-57`` of their
    sum, and added as integers. Integer weights with a sum below ``2**58`` are not rounded.

    Nothing is read: y is in memory. Memory: about twenty arrays of the size of y.

    References
    ----------
    G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs",
    2013, section 3, for minimum lower sets. Q. F. Stout, "Isotonic regression via partitioning",
    2013, for "absolute".

    Examples
    --------
    >>> from dask_gpuselect.distribution import isotonic_regression
    >>> isotonic_regression([1, 3, 2, 4, 100, 5, 6], loss="absolute").tolist()
    [1.0, 2.0, 2.0, 4.0, 5.0, 5.0, 6.0]
    >>> isotonic_regression([1, 3, 2, 4, 100, 5, 6]).tolist()  # needs SciPy
    [1.0, 2.5, 2.5, 4.0, 37.0, 37.0, 37.0]
    """
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {loss!r}")
    xp = namespace_of(y, weights)
    y = real(xp, y, "y")
    if y.ndim != 1:
        raise ValueError(f"y must be one-dimensional, not of shape {y.shape}")
    if not all_true(xp.isfinite(y)):
        raise ValueError("y must be finite: leave out NaN and infinities first, y[np.isfinite(y)]")
    if weights is not None:
        weights = real(xp, weights, "weights")
        if weights.shape != y.shape:
            raise ValueError(f"weights must have the shape of y, {y.shape}, not {weights.shape}")
        if not all_true((weights > 0) & xp.isfinite(weights)):
            raise ValueError(
                "weights must be positive and finite: leave out the elements whose weights are "
                "not, as by y[weights > 0]"
            )
    if len(y) == 0:
        return y
    if weights is not None:  # scaled down only as far as a finite sum needs, so that few become 0
        weights = scaled(weights, -max(0, exponent_of(weights) + len(y).bit_length() - 1022))
    if increasing:
        return LOSSES[loss](y, weights)
    return LOSSES[loss](y[::-1], None if weights is None else weights[::-1])[::-1]


def _least_squares(y: Array, weights: Array | None) -> Array:
    """Return the ascending sequence nearest to y by least squares."""
    kernel = backend_for(y).lower_sets
    if len(y) <= kernel.BEST_UPTO:
        return kernel.lower_sets(y, weights)
    with needs("scipy", 'isotonic_regression(loss="squared")'):
        from scipy.optimize import isotonic_regression as pooled
    host, weights = to_host(y), None if weights is None else to_host(weights)
    exponent = exponent_of(host)  # so that no sum overflows
    return like(scaled(pooled(scaled(host, -exponent), weights=weights).x, exponent), y)


def _least_absolute(y: Array, weights: Array | None) -> Array:
    """Return the ascending sequence nearest to y by least absolute deviations.

    Segments of y have values between `low` and `high` in the answer, as ranks among all of y. Each
    is divided at the last place at which the elements above the middle rank are outweighed most.
    """
    xp = namespace(y)
    values, rank = xp.unique(y, return_inverse=True)
    n, rank = len(y), rank.reshape(-1)
    if weights is None:
        weights = xp.ones(n, np.int64)
    else:
        unit = scaled(weights, WEIGHT_BITS - math.frexp(float(weights.sum()))[1])
        weights = xp.maximum(xp.rint(unit), 1).astype(np.int64)
    behind = xp.cumsum(weights)
    low, high = xp.zeros(n, np.int64), xp.full(n, len(values) - 1, np.int64)
    is_head = xp.arange(n) == 0
    for _ in range((len(values) - 1).bit_length()):
        middle = (low + high) // 2
        votes = xp.where((low < high) & (rank > middle), weights, -weights)
        is_left = _is_left(votes, weights, behind, is_head)
        low = xp.where(is_left | (low == high), low, middle + 1)
        high = xp.where(is_left, middle, high)
        is_head[1:] |= is_left[:-1] & ~is_left[1:]
    return values[low]


def _is_left(votes: Array, weights: Array, behind: Array, is_head: Array) -> Array:
    """Return for each element whether a division of its segment puts it on the left.

    The division is behind the last element at which the partial sums of the segment's votes are
    least.
    """
    xp = namespace(votes)
    segment = xp.cumsum(is_head) - 1
    heads = xp.flatnonzero(is_head)
    ends = xp.append(heads[1:], len(votes)) - 1
    sums = xp.cumsum(votes)
    sums -= (sums - votes)[heads][segment]
    # The sums of each segment are shifted below those of the one before, by the weights of both, so
    # that one running minimum serves all.
    before = (behind - weights)[heads]
    shift = before + behind[ends] + xp.arange(len(heads))
    least = running_minimum(sums - shift[segment])[ends] + shift
    is_least = (sums == xp.minimum(least, 0)[segment]).astype(np.int64)
    n_before = xp.cumsum(is_least)
    return n_before[ends][segment] - n_before + is_least > 0


LOSSES: dict[str, Callable[[Array, Array | None], Array]] = {
    "squared": _least_squares,
    "absolute": _least_absolute,
}
