"""Numbers that are the sum of two float64, for kernels: 106 bits without integer arithmetic.

A float that is rounded from a pair is correct if an error bound says so (Dekker 1971; Knuth, volume
2, 4.2.2). The error of an operation on pairs is less than `LOST` times the magnitude of its
operands' sum or product. Factors must be between 2**-400 and 2**400, or small beside others that
are.
"""

from __future__ import annotations

from typing import Any

from dask_gpuselect.kernels.compiling import called_by_kernels

LOST = 2.0**-102
SMALL, LARGE = 2.0**-400, 2.0**400


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


@called_by_kernels
def two_product(a: Any, b: Any) -> Any:
    """Return a product and its rounding error."""
    product = a * b
    wide = 134217729.0 * a  # 2**27 + 1
    a_high = wide - (wide - a)
    a_low = a - a_high
    wide = 134217729.0 * b
    b_high = wide - (wide - b)
    b_low = b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


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
    first = a / c
    high, low = two_product(first, c)
    second = (((a - high) - low) + (b - first * d)) / c
    return normal(first, second)
