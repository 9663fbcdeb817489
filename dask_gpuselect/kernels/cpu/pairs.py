"""Numbers that are the sum of two float64, for kernels: 106 bits without integer arithmetic.

A float that is rounded from a pair is correct if an error bound says so (Dekker 1971; Knuth, volume
2, 4.2.2). The error of an operation on pairs is less than `LOST` times the magnitude of its
operands' sum or product. Factors must be between 2**-400 and 2**400, or small beside others that
are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels, instructions

LOST = 2.0**-102
SMALL, LARGE = 2.0**-400, 2.0**400
LEAST = 2.0**-1074  # the least float


@called_by_kernels
def two_sum(a: Any, b: Any) -> Any:
    """Return a sum and its rounding error."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


@called_by_kernels
def added(total: Any, rest: Any, lost: Any, number: Any) -> Any:
    """Add a number to a pair that is not normal; also return a bound of all that has been lost."""
    total, more = two_sum(total, number)
    rest, least = two_sum(rest, more)
    return total, rest, lost + abs(least)


@called_by_kernels
def normal(high: Any, low: Any) -> Any:
    """Normalise a pair whose first number is the larger: the first becomes the nearest float."""
    total = high + low
    return total, low - (total - high)


fused = instructions(
    "fused", "float64", ["float64"] * 3, lambda builder, *factors: builder.fma(*factors)
)
"""Return ``a * b + c``, rounded once: one instruction, or a call where a CPU has none."""


@called_by_kernels
def two_product(a: Any, b: Any) -> Any:
    """Return a product and its rounding error."""
    product = a * b
    return product, fused(a, b, -product)


@called_by_kernels
def plus(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Add the pair (c, d) to the pair (a, b)."""
    high, low = two_sum(a, c)
    return normal(high, low + (b + d))


@called_by_kernels
def times(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Multiply the pair (a, b) by the pair (c, d)."""
    high, low = two_product(a, c)
    return normal(high, low + (a * d + b * c))


@called_by_kernels
def over(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Divide the pair (a, b) by the pair (c, d)."""
    first = np.divide(a, c)  # which tests no divisor, so that vectors are divided
    high, low = two_product(first, c)
    second = np.divide(((a - high) - low) + (b - first * d), c)
    return normal(first, second)


@called_by_kernels
def halves(power: Any) -> Any:
    """Return two factors whose product is ``2**power``, which may be too large for a float."""
    return math.ldexp(1.0, power // 2), math.ldexp(1.0, power - power // 2)


@called_by_kernels
def scaled(number: Any, power: Any) -> Any:
    """Multiply a number near 1 by ``2**power``; also return whether that surely rounds correctly.

    The number is rounded itself. Another rounding may be wrong if it is halfway between two
    multiples of the least float.
    """
    up, more = halves(power)
    result = number * up * more
    down, less = halves(-power)
    left = abs(number - result * down * less)
    return result, left == 0 or left != 0.5 * (LEAST * down * less)
