"""Candidates: the elements that lie in brackets, wherever they are.

The mathematics asks them for what it needs. Those in the host's memory answer here, by NumPy, and
those on a device by kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Sort = Callable[[Any], Any]
"""From an array to its elements in ascending order."""
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
Side = Literal["left", "right"]
Counter = Callable[[int, Side], int]
"""From the number of a value and a side to how many elements are below it, or up to it."""
Survey = tuple[int, NDArray[Any], NDArray[Any]]
"""How many elements an interval holds, and the least and the largest of them: arrays of one element
each, or empty."""

Kept = tuple[Any, Any, int]
"""An interval [low, high], and how many elements it holds at most: if there are more, which of them
are found is not said."""

# Up to so many places partitioning is faster than sorting: 3.7 million float64 at eight places in
# 37 ms, sorted in 63.
FEW_PLACES = 16
# NumPy partitions elements of at least so many bytes by vectors, at one place a call.
VECTOR_BYTES = 4


class Candidates(Protocol):
    """Elements in no particular order, none of them missing."""

    @property
    def elements(self) -> Any:
        """The array of them, one-dimensional, where it is."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def on_host(self) -> NDArray[Any]:
        """All of them, on the host."""

    def elements_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """The elements that sorting would put at some places, on the host."""

    def look(
        self, intervals: Sequence[Sequence[tuple[Any, Any]]], kept: Sequence[Kept]
    ) -> tuple[Sequence[Survey], Sequence[NDArray[Any]]]:
        """What lies in each interval [low, high], at most four, of which neighbours come together;
        and the elements in others, at most two, on the host."""

    def counts(self, values: NDArray[Any]) -> Counts:
        """How many elements are below, and up to, each of some values, ascending and distinct."""

    def counter(self, values: NDArray[Any]) -> Counter:
        """Make a function that counts the elements below the i-th of some values, or up to it."""

    def inside(self, low: Any, high: Any) -> Candidates | None:
        """Those in (low, high), or None where it is no faster to select among them."""

    def distances(self, centre: Any) -> Candidates:
        """Compute the distances from a floating-point number, in its dtype, on the same device."""

    def ordered(self, by: Sort = ...) -> OrderedCandidates:
        """The candidates sorted, by the fastest sort there is unless another is given."""


class OrderedCandidates(Candidates, Protocol):
    """Elements that ascend."""

    def places(self, values: NDArray[Any], side: Side) -> NDArray[np.int64]:
        """How many elements are below, or up to, each value; as `numpy.searchsorted`."""


@dataclass(frozen=True, slots=True, eq=False)
class HostCandidates:
    """Candidates in the host's memory."""

    elements: NDArray[Any]

    # 6 us beside the 25 of the array; as a dataclass does it, 18.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.elements,)

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.elements.dtype

    @property
    def nbytes(self) -> int:
        return self.elements.nbytes

    def on_host(self) -> NDArray[Any]:
        return self.elements

    def elements_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        few = np.unique(places)
        if len(few) > FEW_PLACES:
            return np.asarray(np.sort(self.elements)[places])
        if not len(few):
            return self.elements[:0]
        return np.asarray(partitioned(self.elements.copy(), few)[places])

    def look(
        self, intervals: Sequence[Sequence[tuple[Any, Any]]], kept: Sequence[Kept]
    ) -> tuple[Sequence[Survey], Sequence[NDArray[Any]]]:
        surveys = []
        for neighbours in filter(None, intervals):
            # Few are about a fence: of 2.7 million float64 all that was asked took 65 ms, now 11.
            low, high = min(each[0] for each in neighbours), max(each[1] for each in neighbours)
            near = _within(self.elements, low, high)
            surveys += [_survey(_within(near, *each)) for each in neighbours]
        return surveys, [_within(self.elements, low, high) for low, high, _ in kept]

    def counts(self, values: NDArray[Any]) -> Counts:
        ordered = self.ordered()
        return ordered.places(values, "left"), ordered.places(values, "right")

    def counter(self, values: NDArray[Any]) -> Counter:
        def count(i: int, side: Side) -> int:
            elements, value = self.elements, values[i]
            is_before = elements < value if side == "left" else elements <= value
            return int(np.count_nonzero(is_before))

        return count

    def inside(self, low: Any, high: Any) -> HostCandidates:
        elements = self.elements
        return HostCandidates(elements.compress((elements > low) & (elements < high)))

    def distances(self, centre: Any) -> HostCandidates:
        with np.errstate(over="ignore", invalid="ignore"):
            return HostCandidates(np.abs(self.elements.astype(centre.dtype) - centre))

    def ordered(self, by: Sort = np.sort) -> OrderedHostCandidates:
        return OrderedHostCandidates(by(self.elements))


class OrderedHostCandidates(HostCandidates):
    """Candidates in the host's memory that ascend."""

    __slots__ = ()

    def elements_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self.elements[places])

    def ordered(self, by: Sort = np.sort) -> OrderedHostCandidates:
        return self

    def places(self, values: NDArray[Any], side: Side) -> NDArray[np.int64]:
        return np.asarray(self.elements.searchsorted(values, side))


def partitioned(values: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    """The values, partitioned in place so that at some places, ascending and distinct, there are
    the elements that sorting would put there.

    A call for each place, among the elements that are left between its neighbours: in one call for
    all places NumPy uses no vectors. With AVX-512, 674,000 float64 at eight places took 17.6 ms in
    one call and take 4.4.
    """
    if values.dtype.itemsize < VECTOR_BYTES:
        values.partition(places)
        return values
    _partition_between(values, places.tolist(), 0)
    return values


def _partition_between(values: NDArray[Any], places: list[int], first: int) -> None:
    """Partition values of which the first one is at place `first`."""
    if places:
        middle = len(places) // 2
        place = places[middle] - first
        values.partition(place)
        _partition_between(values[:place], places[:middle], first)
        _partition_between(values[place + 1 :], places[middle + 1 :], places[middle] + 1)


def _within(elements: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    return elements.compress((elements >= low) & (elements <= high))


def _survey(inside: NDArray[Any]) -> Survey:
    if not len(inside):
        return 0, inside, inside
    return len(inside), inside.min(keepdims=True), inside.max(keepdims=True)
