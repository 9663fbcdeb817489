"""Box plots of many lanes at once: what is beyond each lane's fences, and what follows.

The quartiles of a lane, which are found first, say where its fences are. One look at its elements
then counts what is beyond them, finds the nearest ones inside and the extremes, keeps the most
extreme fliers, and adds up the elements and their squares, exactly. Parts of a lane are looked at
one by one, and what is known of them put together. All tables are on the host, with a row for each
lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_cuts import LaneQuestion
from dask_gpuselect.maths.moments import Digits, LaneMoments


class BoxesQuestion(LaneQuestion, Protocol):
    """What a box plot asks of every lane: its quantiles `Rule.q`, and what lies at its ends."""

    @property
    def rule(self) -> Rule: ...

    @property
    def omits_nan(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class LaneQuantiles(Arrays):
    """The quantiles `Rule.q` of each lane, ``(n_q, n_lanes)``, and how many elements it has."""

    q: FloatArray
    n_valid: IntArray
    n_missing: IntArray


@dataclass(frozen=True, eq=False)
class Fences(Arrays):
    """Where to look in each lane.

    Parameters
    ----------
    low, high : ndarray of float64, shape (n_lanes,)
        Between which the whiskers end. Nothing is beyond NaN.
    dtype : dtype
        Of the elements.
    """

    low: FloatArray
    high: FloatArray
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, q: FloatArray, rule: Rule, dtype: np.dtype[Any]) -> Fences:
        """From the quantiles `rule.q` of each lane, shape (n_q, n_lanes)."""
        low, high = rule.fences(q)
        return cls(low, high, dtype)

    def __getitem__(self, lanes: slice) -> Fences:
        return Fences(self.low[lanes], self.high[lanes], self.dtype)


@dataclass(frozen=True, eq=False)
class Fliers(Arrays):
    """The most extreme fliers of one side.

    Parameters
    ----------
    n : ndarray of int64, shape (n_lanes,)
        How many there are.
    kept : ndarray of int64, shape (n_lanes,)
        How many of them are here.
    elements : ndarray, shape (kept.sum(),)
        Lane by lane, the most extreme first.
    """

    n: IntArray
    kept: IntArray
    elements: NDArray[Any]

    @classmethod
    def most_extreme(
        cls, n: IntArray, found: IntArray, elements: NDArray[Any], most: int, *, is_high: bool
    ) -> Fliers:
        """At most so many of each lane, of which `found` elements are given, lane by lane."""
        order = np.lexsort((elements, np.repeat(np.arange(len(found)), found)))
        stops = np.cumsum(found)
        kept = np.minimum(found, most)
        lane = np.repeat(np.arange(len(found)), kept)
        step = np.arange(len(lane)) - np.repeat(np.cumsum(kept) - kept, kept)
        place = stops[lane] - 1 - step if is_high else (stops - found)[lane] + step
        return cls(n, kept, unsigned_zero(elements[order[place]]))

    @classmethod
    def merge(cls, parts: Sequence[Fliers], most: int, *, is_high: bool) -> Fliers:
        """Those of several parts of the same lanes."""
        lane = np.concatenate([np.repeat(np.arange(len(part.kept)), part.kept) for part in parts])
        elements = np.concatenate([part.elements for part in parts])
        n, found = (sum(getattr(part, name) for part in parts) for name in ("n", "kept"))
        order = np.argsort(lane, kind="stable")
        return cls.most_extreme(n, found, elements[order], most, is_high=is_high)


@dataclass(frozen=True, eq=False)
class LaneEnds(Arrays):
    """What is beyond the fences of each lane, in a part of the data or in all.

    Parameters
    ----------
    n_valid, n_missing : ndarray of int64, shape (n_lanes,)
    least, most : ndarray, shape (n_lanes,)
        The extremes; the largest and the smallest number of the dtype where nothing is valid.
    low, high : ndarray, shape (n_lanes,)
        The nearest elements inside the fences, or as above where there is none.
    fliers_low, fliers_high : Fliers
    moments : LaneMoments
    """

    n_valid: IntArray
    n_missing: IntArray
    least: NDArray[Any]
    most: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    fliers_low: Fliers
    fliers_high: Fliers
    moments: LaneMoments

    @classmethod
    def merge(cls, parts: Sequence[LaneEnds], most: int) -> LaneEnds:
        """Those of several parts of the same lanes, with so many fliers of each side."""
        if len(parts) == 1:
            return parts[0]
        columns = {
            field.name: [getattr(part, field.name) for part in parts] for field in fields(cls)
        }
        return cls(
            np.sum(columns["n_valid"], axis=0),
            np.sum(columns["n_missing"], axis=0),
            np.min(columns["least"], axis=0),
            np.max(columns["most"], axis=0),
            np.min(columns["low"], axis=0),
            np.max(columns["high"], axis=0),
            Fliers.merge(columns["fliers_low"], most, is_high=False),
            Fliers.merge(columns["fliers_high"], most, is_high=True),
            LaneMoments.merge(columns["moments"]),
        )

    @classmethod
    def joined(cls, pieces: Sequence[LaneEnds]) -> LaneEnds:
        """Those of some lanes, and of the next."""
        joined: LaneEnds = _joined(pieces)
        return joined


def _joined(pieces: Sequence[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    if isinstance(pieces[0], Digits):
        return Digits.joined(pieces)
    columns = (_joined([getattr(p, field.name) for p in pieces]) for field in fields(pieces[0]))
    return type(pieces[0])(*columns)
