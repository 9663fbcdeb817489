"""What a strategy can ask of the data in one read, and what comes back.

A `Probe` is what a strategy proposes: pivots, bins, or a few elements drawn at random. Each chunk
answers with a `Report`, and the reports of all chunks merge into one. Counts are int64 and exact,
and they alone move a bracket; sums are float64, and only suggest the next pivot.

Elements are told by their ordered keys (`dask_gpuselect.maths.keys`), as Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.keys import extreme_keys
from dask_gpuselect.strategies.spaces import VALUE, Space

KeyArray = NDArray[np.uint64]

NO_KEY_BELOW = -1  # stands for the largest of no elements


def no_key_above(dtype: np.dtype[Any]) -> int:
    """Stands for the least of no elements."""
    return extreme_keys(dtype)[1] + 1


# --- What is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """The least and the largest element, and the total of all coordinates, by value or by key."""

    space: Space


@dataclass(frozen=True)
class Points:
    """Counts at pivots, the elements next to each, and how far all others are from it.

    Parameters
    ----------
    keys : tuple of int
        The pivots, ascending and distinct.
    space : Space or None
        Where distances are measured; None: they are not wanted.
    """

    keys: tuple[int, ...]
    space: Space | None = None


@dataclass(frozen=True)
class KeyBins:
    """Counts in bins of equally many keys: bin i holds the keys from ``origin + (i << shift)``.

    `shift` is less than the bits of a key.
    """

    origin: int
    shift: int
    n_bins: int

    def edge(self, i: int) -> int:
        """The first key of bin i, or behind the last one."""
        return self.origin + (i << self.shift)


@dataclass(frozen=True)
class LinearBins:
    """Counts in bins of values that are equally wide, of the elements between two keys.

    The bin of an element x is ``floor((x - start) * slope)`` in float64, and at most the last
    (Alabi et al. 2012, equation 1). Both operations round, but never out of order.

    Parameters
    ----------
    lo, hi : int
        Keys of the first and the last element that is binned.
    start : float
        The value of `lo`.
    slope : float
        Bins for a difference of 1; finite and positive.
    n_bins : int
    dtype : dtype
        A `selection_dtype`.
    """

    lo: int
    hi: int
    start: float
    slope: float
    n_bins: int
    dtype: np.dtype[Any]

    def edge(self, i: int) -> int:
        """The least key whose element would be in bin i or a later one, or behind `hi`."""
        first, last = self.lo, self.hi + 1
        while first < last:
            middle = (first + last) // 2
            if self._bin(middle) >= i:
                last = middle
            else:
                first = middle + 1
        return first

    def _bin(self, key: int) -> int:
        place = (VALUE.coordinate(key, self.dtype) - self.start) * self.slope
        return min(int(place), self.n_bins - 1)


@dataclass(frozen=True)
class Draw:
    """Some elements at hashed places, of those strictly between two keys.

    Parameters
    ----------
    lo, hi : int
        Keys.
    size : int
        How many places are looked at; perhaps fewer elements come.
    turn : int
        Other places for every number.
    """

    lo: int
    hi: int
    size: int
    turn: int


@dataclass(frozen=True)
class Copy:
    """From here on only what is inside the bracket is wanted: a plain array is copied there. No
    report comes, and the chunks of a dask array stay as they are."""


Bins = KeyBins | LinearBins
Measure = Extent | Points | KeyBins | LinearBins | Draw
Probe = Measure | Copy


# --- What comes back ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What every report says of the elements that were read, but for `Drawn`.

    Parameters
    ----------
    n_valid, n_missing : int
        How many elements, and how many NaN or NaT.
    """

    n_valid: int
    n_missing: int

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The report of all chunks together."""
        names = [field.name for field in fields(cls)]
        columns = {name: [getattr(part, name) for part in parts] for name in names}
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(**{name: MERGED.get(name, sum)(column) for name, column in columns.items()})


@dataclass(frozen=True)
class ExtentReport(Report):
    """`Extent`'s: keys, and the total of all coordinates."""

    least: int
    largest: int
    total: float


@dataclass(frozen=True, eq=False)
class PointsReport(Report):
    """`Points`'s, a number for each pivot.

    Parameters
    ----------
    below, upto : ndarray of int64
        How many elements are < and <= the pivot.
    previous, next : tuple of int
        Keys of the largest element < the pivot and the least > it; `NO_KEY_BELOW` and
        `no_key_above` where there is none.
    low, high : ndarray of float64
        Distances to the pivot of all elements below, and above. 0 if they were not asked for.
    """

    below: IntArray
    upto: IntArray
    previous: tuple[int, ...]
    next: tuple[int, ...]
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class BinsReport(Report):
    """That of `KeyBins` and `LinearBins`: elements before the first bin, and in each."""

    n_before: int
    counts: IntArray


@dataclass(frozen=True, eq=False)
class Drawn(Report):
    """`Draw`'s: keys, in any order. It has looked at few elements, so its counts are 0."""

    keys: KeyArray


def _of_each(choose: Callable[..., int], parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(choose, zip(*parts, strict=True)))


MERGED: Mapping[str, Callable[..., Any]] = {
    "least": min,
    "largest": max,
    "previous": partial(_of_each, max),
    "next": partial(_of_each, min),
    "keys": np.concatenate,
    **dict.fromkeys(("below", "upto", "low", "high", "counts"), partial(np.sum, axis=0)),
}
"""How what several chunks report becomes one, by its name; all else is summed."""
