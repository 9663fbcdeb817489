"""Windows that move over an array: their elements, and the ranks that answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import LaneOrder

Shape = tuple[int, ...]
Corner = tuple[slice, ...]


class WindowOrder(LaneOrder, Protocol):
    """Protocol of the order statistics that are asked of every window, as of a lane."""

    @property
    def deviates(self) -> bool:
        """True if they are those of distances of elements from their median, in `dtype`."""

    @property
    def least(self) -> int:
        """The number of valid elements that a window needs."""

    @property
    def scale(self) -> float:
        """Return the number that divides distances and differences of two quantiles."""

    def finished(self, answers: Any, n_valid: Any, *, is_scaled: bool = False) -> Any:
        """Return the answers, ``(n, n_windows)``, by the order statistics of all windows.

        `n_valid` is the number of valid elements of each window; None if windows of fewer than
        `least` are NaN. `is_scaled` says that distances are divided by `scale`. In kind.
        """


class Frame(NamedTuple):
    """Describe a window that moves over a padded array, beyond whose ends it never reaches.

    Parameters
    ----------
    size : tuple of int
        Size of the window along each axis.
    step : tuple of int
        Step of the window along each axis.
    footprint : tuple of bool, optional
        True for the places of the window that count, in C order; all of them by default.
    """

    size: Shape
    step: Shape
    footprint: tuple[bool, ...] | None = None

    @property
    def n(self) -> int:
        """Number of elements of a window."""
        return math.prod(self.size) if self.footprint is None else sum(self.footprint)

    @lru_cache(maxsize=64)  # noqa: B019  # a frame is data
    def shape(self, padded: Shape) -> Shape:
        """Return the shape of the answers."""
        sizes = zip(padded, self.size, self.step, strict=True)
        return tuple(max((n - size) // step + 1, 0) for n, size, step in sizes)

    def places(self) -> IntArray:
        """Return the places of the elements of the first window, ``(n, ndim)``, in C order."""
        every = np.array(list(np.ndindex(*self.size)), np.int64).reshape(-1, len(self.size))
        return every if self.footprint is None else every[np.array(self.footprint, bool)]

    def moved(self, axes: Shape) -> Frame:
        """Return the frame of an array with its axes in another order."""
        footprint = self.footprint
        if footprint is not None:
            marks = np.array(footprint).reshape(self.size).transpose(axes)
            footprint = tuple(marks.reshape(-1).tolist())
        size, step = (tuple(each[axis] for axis in axes) for each in (self.size, self.step))
        return Frame(size, step, footprint)

    def slabs(
        self, padded: Shape, most: int, outside: Sequence[tuple[int, int]] | None = None
    ) -> Iterator[tuple[Corner, Corner]]:
        """Yield parts of the padded array with the places of their answers, about `most` each.

        They are cut along axes of size 1 in the window, if that is enough. `outside` says how many
        elements are padding at both ends of each axis: windows that reach it are parts of their
        own, if they are few.
        """
        answers = self.shape(padded)
        length, left = list(answers), math.prod(answers)
        for axis in sorted(range(len(answers)), key=lambda axis: (self.size[axis], -answers[axis])):
            if left <= most:
                break
            others = left // answers[axis]
            length[axis] = max(1, most // max(others, 1))
            left = others * length[axis]
        inner = [(0, n) for n in answers]
        if outside is not None:
            about = list(zip(padded, outside, self.size, self.step, strict=True))
            own = [(-(-a // step), (n - b - size) // step + 1) for n, (a, b), size, step in about]
            if 2 * math.prod(max(b - a, 0) for a, b in own) > math.prod(answers):
                inner = own
        along = (
            [0, *range(start, stop, max(each, 1)), stop, n]
            for (start, stop), each, n in zip(inner, length, answers, strict=True)
        )
        pieces = ([(a, b) for a, b in itertools.pairwise(points) if a < b] for points in along)
        for corner in itertools.product(*pieces):
            out = tuple(slice(*piece) for piece in corner)
            given = zip(out, self.size, self.step, strict=True)
            yield (
                tuple(slice(o.start * s, (o.stop - 1) * s + size) for o, size, s in given),
                out,
            )


class Piecewise(NamedTuple):
    """Map the elements of a padded chunk to those of the chunk, along an axis.

    Parameters
    ----------
    size : int
        Number of elements of the padded chunk.
    low, high : int
        Those before `low` and from `high` on stand for none.
    shift : int
        What is added to the number of an element before those are counted that stand before or
        behind the chunk's.
    before, n : int
        Number of elements that stand before those of the chunk, and of these.
    first_before, step_before, first_behind, step_behind : int
        The elements of the chunk that those before and behind it stand for.
    """

    size: int
    low: int
    high: int
    shift: int
    before: int
    n: int
    first_before: int = 0
    step_before: int = 0
    first_behind: int = 0
    step_behind: int = 0

    @classmethod
    def plain(cls, size: int, outside: tuple[int, int] = (0, 0)) -> Piecewise:
        """Describe a chunk that no elements stand before or behind, with those outside of it."""
        low, high = outside[0], size - outside[1]
        return cls(size, low, high, -low, 0, high - low)

    def outside(self, start: int, stop: int) -> tuple[int, int]:
        """Count the elements from `start` to before `stop` that stand for none, at both ends."""
        before = min(stop, self.low) - min(start, self.low)
        return before, max(stop, self.high) - max(start, self.high)

    def within(self, start: int, stop: int) -> tuple[IntArray, slice, IntArray]:
        """Return what the elements from `start` to before `stop` stand for, if for any.

        They are those before the chunk's, in the chunk and behind it.
        """
        start, stop = max(start, self.low), min(stop, self.high)
        begin = min(max(self.before - self.shift, start), max(start, stop))
        end = min(max(self.before + self.n - self.shift, begin), max(begin, stop))
        before = np.arange(start, begin) + self.shift
        behind = np.arange(end, stop) + self.shift - self.before - self.n
        ahead = self.shift - self.before
        return (
            self.first_before + self.step_before * before,
            slice(begin + ahead, end + ahead),
            self.first_behind + self.step_behind * behind,
        )

    def places(self) -> IntArray:
        """Return what all elements stand for; none stands for nothing."""
        before, inner, behind = self.within(0, self.size)
        return np.concatenate([before, np.arange(inner.start, inner.stop), behind])


@lru_cache(maxsize=16)
def unpadded(shape: Shape) -> tuple[Piecewise, ...]:
    """Return the padding of an array that has none."""
    return tuple(map(Piecewise.plain, shape))


@dataclass(frozen=True, eq=False)
class RowWindows:
    """Windows of rows whose sizes differ.

    Parameters
    ----------
    begins, ends : ndarray of int64
        The first row of each window, and the row behind its last one; both ascend.
    """

    begins: IntArray
    ends: IntArray

    @property
    def n(self) -> int:
        """Count the rows of the largest window."""
        return int((self.ends - self.begins).max(initial=0))

    def sums(self, marks: NDArray[Any]) -> IntArray:
        """Count the marks in each window."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(marks, dtype=np.int64)])
        counts: IntArray = before[self.ends] - before[self.begins]
        return counts


@lru_cache(maxsize=16)  # slabs ask the same again and again
def ranks_by_count(order: LaneOrder, n: int) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
    """Return two ranks and a weight for each answer among 0, 1, ... n elements.

    They are of shape ``(n_answers, n + 1)``, must not be written to, and for no element are those
    of one.
    """
    wanted = order.wanted_of_lanes(np.maximum(np.arange(n + 1), 1))
    shape = (order.n_answers, n + 1)
    lower, upper, weight = (np.broadcast_to(each, shape) for each in wanted)
    return (
        np.ascontiguousarray(lower, np.int64),
        np.ascontiguousarray(upper, np.int64),
        np.ascontiguousarray(weight, np.float64),
    )


class WindowRanks(NamedTuple):
    """The ranks of the two elements of each answer in windows of 0, 1, ... n elements.

    Parameters
    ----------
    lower, upper : ndarray
        Of shape ``(n_answers, n + 1)``.
    has_upper : int
        1 if some answer needs two elements.
    """

    lower: IntArray
    upper: IntArray
    has_upper: int

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, order: LaneOrder, n: int, *, is_whole: bool) -> WindowRanks:
        """Return the ranks for windows of at most n elements; of n only if all are whole."""
        lower, upper, _ = ranks_by_count(order, n)
        last = slice(-1, None) if is_whole else slice(None)
        return cls(lower, upper, int((lower[:, last] != upper[:, last]).any()))

    def room(self, n_windows: int, dtype: np.dtype[Any]) -> list[NDArray[Any]]:
        """Make arrays for both elements, ``(n_answers, n_windows)``; one if they never differ."""
        return [np.empty((len(self.lower), n_windows), dtype) for _ in range(1 + self.has_upper)]


def strides_of(shape: Shape) -> IntArray:
    """Count the elements between neighbours along each axis, in C order."""
    every = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return np.array(every, np.int64)
