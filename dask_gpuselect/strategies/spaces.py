"""Scales on which distances between elements are measured: by value, by key, or by a logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.keys import from_keys, key_at, to_keys

Name = Literal["value", "key", "log"]
NAMES: tuple[Name, ...] = ("value", "key", "log")


@dataclass(frozen=True)
class Space:
    """Scale of elements: a coordinate, in float64, that grows with the elements.

    An increasing transform of the data changes no order statistic. But it changes how far elements
    seem to be from each other, and so how fast a method converges (Beliakov 2011, section V.D).

    Parameters
    ----------
    name : {"value", "key", "log"}
        The element itself; its ordered key, by which no element is far from the others; the paper's
        ``log(1 + x - x_(1))``.
    origin : int or float
        Key, or for "log" value, from which coordinates count. 0 for "value".
    """

    name: Name
    origin: int | float = 0

    def coordinate(self, key: int, dtype: np.dtype[Any]) -> float:
        """Compute the coordinate of the element with a key."""
        if self.name == "key":
            return float(key - int(self.origin))
        value = float(element(key, dtype))
        if self.name == "value":
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.log1p(np.float64(value) - self.origin))

    def nearest(self, coordinate: float, dtype: np.dtype[Any], lo: int, hi: int) -> int:
        """Find the key of an element near a coordinate, strictly between two keys.

        There must be a key between them. The middle one is returned if the coordinate is not
        finite, because sums or differences have overflowed. It is also returned if both ends have
        the same coordinate: otherwise an end of the bracket would be tried again and again.
        """
        first, last = key_at(lo + 1, dtype), hi - 1
        is_below = self.coordinate(first, dtype) < self.coordinate(last, dtype)
        if not (is_below and math.isfinite(coordinate)):
            return key_at((first + last) // 2, dtype)
        return key_at(min(max(self._key(coordinate, dtype), first), last), dtype)

    def _key(self, coordinate: float, dtype: np.dtype[Any]) -> int:
        """Find the key of the element at a coordinate, up to rounding."""
        if self.name == "key":
            return int(self.origin) + int(coordinate)
        with np.errstate(over="ignore"):
            value = coordinate
            if self.name == "log":
                value = float(np.expm1(np.float64(coordinate)) + self.origin)
            if dtype.kind == "f":
                return int(to_keys(np.array([value]).astype(dtype))[0])
        ends = np.iinfo(dtype)
        whole = min(max(value, float(ends.min)), float(ends.max))
        return int(to_keys(np.array([min(math.floor(whole), ends.max)], dtype))[0])


# Cached because each round in a dask graph runs its search from the beginning again.
@lru_cache(maxsize=1 << 14)
def element(key: int, dtype: np.dtype[Any]) -> Any:
    """Return the element of a key, in its `keys.selection_dtype`."""
    return from_keys(np.array([key], np.uint64), dtype)[0]


def coordinates(space: Space, values: NDArray[Any], keys: NDArray[np.uint64]) -> NDArray[Any]:
    """Compute the coordinates of many elements, which are given by value and by key."""
    if space.name == "key":
        origin = np.uint64(int(space.origin))
        ahead, behind = keys - origin, origin - keys
        return np.where(keys >= origin, ahead.astype(np.float64), -behind.astype(np.float64))
    wide = values.astype(np.float64)
    if space.name == "value":
        return wide
    with np.errstate(all="ignore"):
        return np.log1p(wide - space.origin)


VALUE = Space("value")
