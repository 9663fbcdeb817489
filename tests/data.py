"""The data that breaks quantile algorithms, as one list, independent of any chunking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Maker = Callable[[int], NDArray[Any]]


def hashed(index: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) for every index, the same whatever chunk it is made in (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform(n: int) -> NDArray[np.float64]:
    return hashed(np.arange(n))


def normal(n: int) -> NDArray[np.float64]:
    angle = hashed(np.arange(n) + (1 << 40)) * 2 * np.pi
    return np.sqrt(-2 * np.log1p(-uniform(n))) * np.cos(angle)


def _mixed(n: int, share: float, special: float) -> NDArray[np.float64]:
    """Normal data, a share of which is one special value."""
    return np.where(hashed(np.arange(n) + (1 << 41)) < share, special, normal(n))


def _integers(n: int, dtype: str) -> NDArray[Any]:
    """All of an integer dtype's range."""
    bits = (uniform(n) * 2**32).astype(np.uint64) << np.uint64(32) | (normal(n) * 2**20).astype(
        np.int64
    ).view(np.uint64)
    return (
        bits.astype(dtype)
        if np.dtype(dtype).itemsize == 8
        else (bits >> np.uint64(32)).astype(dtype)
    )


FLOATS: Mapping[str, Maker] = {
    "normal": normal,
    "lognormal": lambda n: np.exp(3 * normal(n)),
    "sorted": lambda n: np.sort(normal(n)),
    "reversed": lambda n: np.sort(normal(n))[::-1],
    "trended": lambda n: normal(n) + np.arange(n) / max(n, 1) * 20,
    "organ pipe": lambda n: np.minimum(np.arange(n), np.arange(n)[::-1]).astype(float),
    "periodic": lambda n: (np.arange(n) % 64).astype(float),
    "constant": lambda n: np.full(n, 3.25),
    "two values": lambda n: np.where(uniform(n) < 0.5, -1.0, 2.0),
    "tied": lambda n: np.floor(uniform(n) * 10),
    "half tied": lambda n: _mixed(n, 0.5, 0.25),
    "zipf": lambda n: np.floor(np.minimum((1 - uniform(n)) ** -2.0, 1e15)),
    "outliers": lambda n: _mixed(n, 0.01, 1e20),
    "huge": lambda n: (
        np.where(uniform(n) < 0.5, -1.0, 1.0) * (1.5 + hashed(np.arange(n) + 7) / 4) * 1e308
    ),
    "denormal": lambda n: np.floor(normal(n) * 1000) * 5e-324,
    "denormal float32": lambda n: np.floor(normal(n) * 1000) * 2.0**-149,
    "offset": lambda n: 1e9 + normal(n),
    "bucket killer": lambda n: 2.0 ** (uniform(n) * 64 - 32),
    "scales": lambda n: normal(n) * 10.0 ** (np.arange(n) % 7 * 5),
    "around two": lambda n: 2.0 + normal(n) * 1e-3,
    "every binade": lambda n: np.copysign(2.0 ** (uniform(n) * 2090 - 1070), normal(n)),
    "infinite": lambda n: np.where(uniform(n) < 0.3, np.inf, _mixed(n, 0.3, -np.inf)),
    "all inf": lambda n: np.full(n, np.inf),
    "signed zeros": lambda n: np.where(uniform(n) < 0.5, -0.0, 0.0),
    "zero and denormal": lambda n: np.where(
        uniform(n) < 0.5, -0.0, np.where(uniform(n) < 0.7, 0.0, 5e-324)
    ),
}
"""Floating-point data without NaN: from a number of elements to float64 of that shape."""

MISSING: Mapping[str, Maker] = {
    "some nan": lambda n: _mixed(n, 0.1, np.nan),
    "nearly all nan": lambda n: _mixed(n, 0.999, np.nan),
    "one valid": lambda n: np.where(np.arange(n) == n // 3, 1.5, np.nan),
    "all nan": lambda n: np.full(n, np.nan),
    "nan and inf": lambda n: np.where(uniform(n) < 0.2, np.inf, _mixed(n, 0.3, np.nan)),
}
"""The same with NaN."""

INTEGERS: Mapping[str, Callable[[int, str], NDArray[Any]]] = {
    "whole range": _integers,
    "least": lambda n, dtype: np.full(n, np.iinfo(dtype).min, dtype),
    "largest": lambda n, dtype: np.full(n, np.iinfo(dtype).max, dtype),
    "ends": lambda n, dtype: np.where(
        uniform(n) < 0.5,
        np.array(np.iinfo(dtype).min, dtype),
        np.array(np.iinfo(dtype).max, dtype),
    ),
    "mostly largest": lambda n, dtype: np.where(
        uniform(n) < 0.9, np.array(np.iinfo(dtype).max, dtype), _integers(n, dtype)
    ),
    "few": lambda n, dtype: (uniform(n) * 10).astype(dtype),
    "around a power of two": lambda n, dtype: (
        (1 + normal(n) / 100) * 2.0 ** (8 * np.dtype(dtype).itemsize - 2)
    ).astype(dtype),
}
"""Integer data: from a number of elements and a dtype."""


def two_halves(u: NDArray[Any]) -> NDArray[Any]:
    """From numbers in [0, 1): half of the elements about 0 and half about 1e6. Until the median is
    known, half of all elements may be the median deviation."""
    return np.where(u < 0.5, u, 1e6 + u)


def cluster_at_the_fence(u: NDArray[Any]) -> NDArray[Any]:
    """From numbers in [0, 1): the third quartile lies just behind a gap. Until it is known, the
    fence may lie anywhere among the many elements further up."""
    return np.where(u < 0.7475, u, np.where(u < 0.77, 10 + u, 20 + 40 * (u - 0.77)))


INTEGER_DTYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def make(name: str, dtype: str, n: int) -> NDArray[Any]:
    """Data of some name in a dtype: of `FLOATS`, `MISSING` or `INTEGERS`, or "bools"."""
    if name == "bools":
        return uniform(n) < 0.4
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if name in INTEGERS and np.dtype(dtype).kind in "mM":  # the least int64 is NaT
            return INTEGERS[name](n, "i8").view(dtype)
        if name in INTEGERS:
            return INTEGERS[name](n, dtype)
        return (FLOATS | MISSING)[name](n).astype(dtype)


def names_of(dtype: str) -> list[str]:
    """Of the data that there is in a dtype."""
    if dtype == "?":
        return ["two values", "zero and denormal", "constant"]
    return [*FLOATS, *MISSING] if dtype[0] == "f" else [*INTEGERS]


def cases_of(*dtypes: str) -> list[tuple[str, str]]:
    """List all data of some dtypes: names, and dtypes."""
    return [(name, dtype) for dtype in dtypes for name in names_of(dtype)]


def valid(a: NDArray[Any]) -> NDArray[Any]:
    """The elements but for NaN, ascending."""
    ordered = np.sort(a, axis=None)
    return ordered[~np.isnan(ordered)] if a.dtype.kind == "f" else ordered
