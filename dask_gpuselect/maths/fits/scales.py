"""Number of rows that a fit describes, and the scale of its residuals."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

NORMAL = NormalDist()

# Pison, Van Aelst & Willems 2002, section 4: log(1 - E) for the uncorrected scale E of standard
# normal samples is a - b log(n). By coverage 0.5 and 0.875, without and with an intercept. For one
# column the table has a and b. For more columns it has (numerator, exponent) at n = 3 p^2 and 5
# p^2, from which they follow.
_ONE_COLUMN = {
    False: ((-0.0181777452315321, 0.697629772271099), (-0.310122738776431, 1.06241615923172)),
    True: ((0.630869217886906, 0.650789250442946), (0.565065391014791, 1.03044199012509)),
}
_MORE_COLUMNS = {
    False: (
        ((0.487338281979106, 0.405511279418594), (0.340762058011, 0.37972360544988)),
        ((0.251778730491252, 0.883966931611758), (0.146660023184295, 0.86292940340761)),
    ),
    True: (
        ((0.746945886714663, 0.56264937192689), (0.535478048924724, 0.543323462033445)),
        ((0.458580153984614, 1.12236071104403), (0.267178168108996, 1.1022478781154)),
    ),
}
_SIZES = (3, 5)  # n / p^2
_COVERAGES = (0.5, 0.875, 1.0)


def rows_covered(coverage: float | None, n: int, p: int) -> int:
    """Choose how many of n rows a fit of p parameters describes.

    For None or 0.5 it is the number with the highest breakdown point, ``(n + p + 1) // 2``; for 1
    all rows; in proportion between (Rousseeuw & Van Driessen 2006, section 3).
    """
    least = (n + p + 1) // 2
    if coverage is None:
        return min(least, n)
    return min(math.floor(2 * least - n + 2 * (n - least) * coverage), n)


def trimmed_scale(
    objective: float, h: int, n: int, p: int, *, coverage: float | None, has_intercept: bool
) -> float:
    """Estimate the scale from the sum of the h smallest squares.

    It estimates the standard deviation of normal errors (Croux & Rousseeuw 1992), in small samples
    too (Pison, Van Aelst & Willems 2002).
    """
    share = h / n
    if share < 1:
        q = NORMAL.inv_cdf((share + 1) / 2)
        variance = 1 - 2 * q * NORMAL.pdf(q) / share  # variance of the central share
    else:
        variance = 1.0
    coverage = _COVERAGES[0] if coverage is None else coverage
    about = p - has_intercept, n
    half, most = (_expected(*about, i, has_intercept=has_intercept) for i in (0, 1))
    correction = float(1 / np.interp(coverage, _COVERAGES, (half, most, 1.0)))
    return math.sqrt(objective / h / variance) * correction


def median_scale(t: float, h: int, n: int, p: int) -> float:
    """Estimate the scale from the h-th smallest absolute residual.

    For the median, this is 1.4826 (1 + 5 / (n - p)) times the residual (Rousseeuw & Leroy 1987,
    chapter 5, section 1).
    """
    share = min(h / n, 1 - 1 / (2 * n))
    return t / NORMAL.inv_cdf((1 + share) / 2) * (1 + 5 / (n - p))


def _expected(columns: int, n: int, i: int, *, has_intercept: bool) -> float:
    if columns == 1:
        a, b = _ONE_COLUMN[has_intercept][i]
    else:
        numbers, exponents = zip(*_MORE_COLUMNS[has_intercept][i], strict=True)
        y3, y5 = (
            math.log(number / columns**exponent)
            for number, exponent in zip(numbers, exponents, strict=True)
        )
        x3, x5 = (math.log(size * columns**2) for size in _SIZES)
        b = (y3 - y5) / (x5 - x3)
        a = y3 + b * x3
    return float(1 - math.exp(a) / n**b)
