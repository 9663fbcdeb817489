"""Probes: questions of a strategy to the data in one read, and the results.

A `Probe` is what a strategy proposes: pivots, bins, or a few elements drawn at random. Each chunk
answers with a `ProbeResult`, and the results of all chunks are merged into one. Counts are int64
and exact, and only they move a bracket. Sums are float64, and only suggest the next pivot.

Elements are represented by their ordered keys (`dask_gpuselect.maths.keys`), as Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.keys import extreme_keys
from dask_gpuselect.strategies.spaces import VALUE, Space

KeyArray = NDArray[np.uint64]

NO_KEY_BELOW = -1  # largest key if there are no elements


def no_key_above(dtype: np.dtype[Any]) -> int:
    """Return a key that stands for the least of no elements."""
    return extreme_keys(dtype)[1] + 1


# --- Probes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """Probe of the least and the largest element, and the total of all coordinates in a space."""

    space: Space


@dataclass(frozen=True)
class Points:
    """Probe of counts at pivots, of neighbouring elements, and of distances of all others.

    Parameters
    ----------
    keys : tuple of int
        The pivots, ascending and distinct.
    space : Space or None
        Scale on which distances are measured; None if they are not wanted.
    """

    keys: tuple[int, ...]
    space: Space | None = None


@dataclass(frozen=True)
class KeyBins:
    """Probe of counts in bins of equally many keys: bin i begins at key ``origin + (i << shift)``.

    `shift` is less than the bits of a key.
    """

    origin: int
    shift: int
    n_bins: int

    def edge(self, i: int) -> int:
        """Return the first key of bin i, or the key behind the last bin."""
        return self.origin + (i << self.shift)


@dataclass(frozen=True)
class LinearBins:
    """Probe of counts in bins of equally wide ranges of values, of the elements between two keys.

    The bin of an element x is ``floor((x - start) * slope)`` in float64, and at most the last
    (Alabi et al. 2012, equation 1). Both operations round, but never out of order.

    Parameters
    ----------
    lo, hi : int
        Keys of the first and the last element that is binned.
    start : float
        Value of `lo`.
    slope : float
        Number of bins for a difference of 1; finite and positive.
    n_bins : int
        Number of bins.
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
        """Find the least key whose element would be in bin i or later, or the key behind `hi`."""
        first, last = self.lo, self.hi + 1
        while first < last:
            middle = (first + last) // 2
            place = (VALUE.coordinate(middle, self.dtype) - self.start) * self.slope
            if min(int(place), self.n_bins - 1) >= i:
                last = middle
            else:
                first = middle + 1
        return first


@dataclass(frozen=True)
class Draw:
    """Probe of elements at hashed places that lie strictly between two keys.

    Parameters
    ----------
    lo, hi : int
        Keys.
    size : int
        Number of places that are read; fewer elements may be found.
    turn : int
        Number of the draw: each one has other places.
    """

    lo: int
    hi: int
    size: int
    turn: int


COPY: Final = "copy"
"""Proposed in place of a probe: from here on only the elements inside the bracket are wanted.

They are copied out of a plain array. There is no result, and the chunks of a dask array stay as
they are.
"""

Bins = KeyBins | LinearBins
Measure = Extent | Points | KeyBins | LinearBins | Draw
Probe = Measure | Literal["copy"]


# --- Results --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeResult:
    """Base of results: numbers of the elements that were read. They are 0 in `Drawn`.

    Parameters
    ----------
    n_valid, n_missing : int
        Number of valid elements, and of NaN or NaT.
    """

    n_valid: int
    n_missing: int

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Merge the results of all chunks."""
        names = [field.name for field in fields(cls)]
        columns = {name: [getattr(part, name) for part in parts] for name in names}
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(**{name: MERGED.get(name, sum)(column) for name, column in columns.items()})


@dataclass(frozen=True)
class ExtentResult(ProbeResult):
    """Result of `Extent`: keys, and the total of all coordinates."""

    least: int
    largest: int
    total: float


@dataclass(frozen=True, eq=False)
class PointsResult(ProbeResult):
    """Result of `Points`, with an entry for each pivot.

    Parameters
    ----------
    below, upto : ndarray of int64
        Number of elements that are < and <= the pivot.
    previous, next : tuple of int
        Keys of the largest element < the pivot and the least > it; `NO_KEY_BELOW` and
        `no_key_above` where there is none.
    low, high : ndarray of float64
        Sum of the distances to the pivot of all elements below, and above. 0 if they are not
        wanted.
    """

    below: IntArray
    upto: IntArray
    previous: tuple[int, ...]
    next: tuple[int, ...]
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class BinsResult(ProbeResult):
    """Result of `KeyBins` or `LinearBins`: number of elements before the first bin, and in each."""

    n_before: int
    counts: IntArray


@dataclass(frozen=True, eq=False)
class Drawn(ProbeResult):
    """Result of `Draw`: keys, in any order.

    Its counts are 0, because only few elements were read.
    """

    keys: KeyArray


OF_RESULT = 200
"""Bytes of the result of a probe in a chunk, beside its counts."""


def points_bytes(n_points: int, rounds: int, n_chunks: int, size: int) -> int:
    """Compute the bytes of the results of pivots, of all chunks and of the rounds before."""
    return (OF_RESULT + 32 * n_points) * (n_chunks + rounds)


def bins_bytes(n_bins: int, rounds: int, n_chunks: int, size: int) -> int:
    """Compute the bytes of the results of bins, of which replies have next to nothing.

    A round may have a pivot instead.
    """
    merged = (OF_RESULT + 8 * n_bins) * (n_chunks + 1)
    return max(merged, points_bytes(1, rounds, n_chunks, size))


def drawn_bytes(
    n_drawn: int, draws: int, n_points: int, rounds: int, n_chunks: int, size: int
) -> int:
    """Compute the bytes of all elements that are drawn, and of the pivots chosen from them."""
    return 8 * draws * min(n_drawn, size) + points_bytes(n_points, rounds, n_chunks, size)


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
"""Functions that merge the fields of several chunks' results, by name; other fields are summed."""
