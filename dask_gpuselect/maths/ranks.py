"""Ranks and weights of quantiles: the thirteen methods as a table of data.

Every method defines where in the sorted data ``x[0] <= ... <= x[n-1]`` the quantile lies, as a real
*position* counted from 0, and how far the answer is from the element below that position towards
the one above it, as a *weight*. `ranks` turns the two into integers that a selection can use.

The formulas are those of NumPy, evaluated in the same order, so that the ranks and weights are
NumPy's bit for bit. Unlike NumPy's they are float64 whatever the dtype of q: past 2**24 elements, a
float32 position would name the wrong one.

References
----------
.. [1] R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", The American
   Statistician 50(4), 361-365, 1996. https://doi.org/10.1080/00031305.1996.10473566
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MAX_COUNT", "MEDIAN", "METHODS", "Method", "Ranks", "check_method", "ranks"]

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]

MAX_COUNT: Final = 2**53
"""Largest number of elements whose ranks are all float64 numbers."""


# --- Positions: function of (n, q) to the position of the quantile, in ranks counted from 0 ------


def _count(n: Counts, q: Reals) -> Reals:
    """Compute the position at which the share of elements up to and including it reaches q."""
    return n * q - 1


def _count_less_half(n: Counts, q: Reals) -> Reals:
    """Compute the position half an element before the one at which the share reaches q."""
    return n * q - 1 - 0.5


def _span(n: Counts, q: Reals) -> Reals:
    """Compute the position at the share q of the way from the first element to the last."""
    return (n - 1) * q


@dataclass(frozen=True)
class Applied:
    """Function with its first arguments.

    It is equal for equal arguments, which a `functools.partial` is not. So results that are cached
    for it are found again.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, *others: Any) -> Any:
        return self.function(*self.arguments, *others)


def _plotting(alpha: float, beta: float, n: Counts, q: Reals) -> Reals:
    """Compute a position, if ``x[k]`` has the share ``(k + 1 - alpha) / (n + 1 - alpha - beta)``.

    Hyndman and Fan write it ``n q + m`` with ``m = alpha + q (1 - alpha - beta)``, counting from 1.
    The two parameters are equal in a symmetric method.
    """
    return n * q + (alpha + q * (1 - alpha - beta)) - 1


# --- Weights: 0 for the element at or below a position, 1 for the next, between for a mixture ----


def _down(position: Reals) -> Reals:
    """Choose the element at or below the position."""
    return np.zeros_like(position)


def _up(position: Reals) -> Reals:
    """Choose the element at or above the position."""
    return np.ceil(position) - np.floor(position)


def _up_or_average(position: Reals) -> Reals:
    """Choose the element above; exactly at an element, average it and the next."""
    return np.where(position == np.floor(position), 0.5, 1.0)


def _up_or_odd(position: Reals) -> Reals:
    """Choose the element above; exactly at an element, this one if its rank is odd, else the next.

    Counted from 1, as Hyndman and Fan count, these are the even ranks.
    """
    floor = np.floor(position)
    return np.where((position == floor) & (floor % 2 == 1), 0.0, 1.0)


def _round(position: Reals) -> Reals:
    """Choose the nearer element; at equal distance, the one of even rank."""
    return np.rint(position) - np.floor(position)


def _halfway(position: Reals) -> Reals:
    """Average the elements below and above; exactly at an element, choose it."""
    return np.where(position == np.floor(position), 0.0, 0.5)


def _fraction(position: Reals) -> Reals:
    """Weigh the element above by the distance of the position from the element below."""
    return position - np.floor(position)


# --- The table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """Definition of a sample quantile.

    Attributes
    ----------
    name : str
        Name for users.
    discrete : bool
        True if the answer always is an element of the data: every weight is 0 or 1.
    position : callable
        ``(n, q) -> position`` of the quantile among n elements, in ranks counted from 0. It may lie
        before the first element or after the last; `ranks` then takes that element.
    weigh : callable
        ``position -> weight`` of the element above the position against the one below.
    averages : bool
        True if two elements are averaged as ``(a + b) / 2``, as the median does, and not by linear
        interpolation. The two differ in rounding.
    """

    name: str
    discrete: bool
    position: Callable[[Counts, Reals], Reals]
    weigh: Callable[[Reals], Reals]
    averages: bool = False


METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method("inverted_cdf", True, _count, _up),
            Method("averaged_inverted_cdf", False, _count, _up_or_average),
            Method("closest_observation", True, _count_less_half, _up_or_odd),
            Method("interpolated_inverted_cdf", False, Applied(_plotting, (0, 1)), _fraction),
            Method("hazen", False, Applied(_plotting, (1 / 2, 1 / 2)), _fraction),
            Method("weibull", False, Applied(_plotting, (0, 0)), _fraction),
            # The parameters (1, 1) in exact arithmetic; this form rounds less.
            Method("linear", False, _span, _fraction),
            Method("median_unbiased", False, Applied(_plotting, (1 / 3, 1 / 3)), _fraction),
            Method("normal_unbiased", False, Applied(_plotting, (3 / 8, 3 / 8)), _fraction),
            Method("lower", True, _span, _down),
            Method("higher", True, _span, _up),
            Method("midpoint", False, _span, _halfway),
            Method("nearest", True, _span, _round),
        )
    }
)
"""The thirteen methods of ``numpy.quantile`` by name.

The first nine are Hyndman and Fan's, in their order; then come four more.
"""

MEDIAN: Final = Method("median", False, _span, _halfway, averages=True)
"""The median, at q = 0.5: it has ranks ``(n - 1) // 2`` and ``n // 2``."""


def check_method(name: str) -> Method:
    """Look up a method by its name.

    Parameters
    ----------
    name : str
        One of the keys of `METHODS`.

    Returns
    -------
    Method
        The entry of the table.

    Raises
    ------
    ValueError
        If there is no such method; the message lists those there are.
    """
    try:
        return METHODS[name]
    except (KeyError, TypeError):  # a list, for example, is not hashable
        raise ValueError(
            f"{name!r} is not a valid method. Use one of: {', '.join(METHODS)}"
        ) from None


# --- Ranks --------------------------------------------------------------------------------------


class Ranks(NamedTuple):
    """Two ranks and a weight that give a quantile: ``(1 - weight) x[lower] + weight x[upper]``.

    Attributes
    ----------
    lower, upper : ndarray of int64
        Ranks counted from 0, ``0 <= lower <= upper <= min(lower + 1, n - 1)``.
    weight : ndarray of float64
        ``0 <= weight < 1``, and 0 exactly where ``lower == upper``: an element that has no part in
        the answer is never asked for.
    """

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    weight: NDArray[np.float64]


def ranks(n: int | NDArray[np.int64], q: ArrayLike, method: str | Method) -> Ranks:
    """Find the order statistics of n elements that give the quantiles q.

    Parameters
    ----------
    n : int or ndarray of int64
        The number of elements, from 1 to `MAX_COUNT`; an array of counts, say one a lane,
        broadcasts against q.
    q : array_like of float64
        The quantiles wanted, in [0, 1].
    method : str or Method
        A name in `METHODS`, or an entry such as `MEDIAN`.

    Returns
    -------
    Ranks
        Two ranks and a weight for every q, in the shape of q (broadcast against n).

    Raises
    ------
    ValueError
        If the method is not known, n is out of its range, or a q is NaN or outside [0, 1].

    Notes
    -----
    Interpolated as NumPy does (`dask_gpuselect.maths.interpolation.interpolate`), the elements at
    these ranks give ``numpy.quantile(x, q, method=method)`` bit for bit. NumPy's own ranks differ
    where it makes no difference to finite data: it also fetches a neighbour of weight 0, whose
    infinity can turn the answer into NaN.

    Beyond 2**52 elements a position has no room for a fraction, and NumPy's ``closest_observation``
    can step past the last element; then the rank is that of the last element.

    Examples
    --------
    >>> lower, upper, weight = ranks(10, [0.25, 1.0], "linear")
    >>> lower.tolist(), upper.tolist(), weight.tolist()
    ([2, 9], [3, 9], [0.25, 0.0])
    >>> ranks(10, 0.25, "nearest").lower.item()
    2
    """
    rule = check_method(method) if isinstance(method, str) else method
    counts = np.asarray(n, dtype=np.int64)
    shares = np.asarray(q, dtype=np.float64)
    if not np.all((counts >= 1) & (counts <= MAX_COUNT)):
        raise ValueError(f"n must be from 1 to 2**53, not {n}")
    if not np.all((shares >= 0) & (shares <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")

    position = np.asarray(rule.position(counts, shares))
    last = counts - 1
    below = np.clip(np.floor(position), 0, last).astype(np.int64)
    # Before the first element, and from the last one on, that element alone is the answer.
    weight = np.where((position >= 0) & (position < last), rule.weigh(position), 0.0)
    lower = np.asarray(below + (weight == 1))
    weight = np.where(weight == 1, 0.0, weight)
    return Ranks(lower, np.asarray(lower + (weight > 0)), weight)


# --- Cached ranks ---------------------------------------------------------------------------------

T = TypeVar("T")
Wanted = Callable[[tuple[float, ...], Method, int], T]
REMEMBERED = 512  # most quantiles of a question whose ranks are cached


def remembered(function: Wanted[T]) -> Wanted[T]:
    """Cache the results of a function for few quantiles; for many they would take much memory.

    Ranks for arrays of one size are needed again and again, and three calls for a median take 0.2
    ms: as long as a GPU takes to read 1e9 bytes.
    """
    cached = lru_cache(maxsize=128)(function)

    @wraps(function)
    def wrapper(q: tuple[float, ...], method: Method, n: int) -> T:
        return (cached if len(q) <= REMEMBERED else function)(q, method, n)

    return wrapper


@remembered
def ranks_of(q: tuple[float, ...], method: Method, n: int) -> Ranks:
    """Find ranks as `ranks` does, for one number of elements. The arrays must not be written to."""
    return ranks(n, np.array(q), method)
