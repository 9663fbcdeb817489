"""Candidates: the elements that lie in brackets, on the host or on a device.

The mathematics asks them questions. Candidates in host memory answer here with NumPy; those on a
device answer with kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Sort = Callable[[Any], Any]
"""Function from an array to its elements in ascending order."""
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
Side = Literal["left", "right"]
Survey = tuple[int, NDArray[Any], NDArray[Any]]
"""Number of elements in an interval, and the least and the largest of them.

The latter two are arrays of one element, or empty.
"""

Listed = tuple[Any, Any, int]
"""Interval [low, high], and the most elements to find in it.

If it holds more elements than that, it is undefined which of them are found.
"""

# Up to so many places, partitioning is faster than sorting: 3.7 million float64 take 37 ms at eight
# places, and 63 ms sorted.
FEW_PLACES = 16
# NumPy partitions elements of at least so many bytes with SIMD instructions, at one place a call.
VECTOR_BYTES = 4


class Candidates(Protocol):
    """Protocol of candidates: valid elements in no particular order."""

    @property
    def elements(self) -> Any:
        """One-dimensional array of the elements, on the host or the device."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def on_host(self) -> NDArray[Any]:
        """Copy all elements to the host."""

    def elements_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Return the elements that sorting would put at some places, on the host."""

    def survey(
        self, intervals: Sequence[Sequence[tuple[Any, Any]]], listed: Sequence[Listed]
    ) -> tuple[Sequence[Survey], Sequence[NDArray[Any]]]:
        """Survey the elements in intervals, and list those of the intervals `listed`, on the host.

        There are at most four intervals to survey, grouped with their neighbours, and at most two
        in `listed`.
        """

    def counts(self, values: NDArray[Any]) -> Counts:
        """Count the elements below, and up to, each of some ascending distinct values."""

    def distances(self, centre: Any) -> Candidates:
        """Compute the distances from a floating-point number, in its dtype, on the same device."""

    def with_more(self, elements: NDArray[Any]) -> Candidates:
        """Add a few elements."""

    def ordered(self, by: Sort = ...) -> OrderedCandidates:
        """Sort the candidates, with the fastest sort unless another one is given."""


class OrderedCandidates(Candidates, Protocol):
    """Protocol of candidates in ascending order."""

    def places(self, values: NDArray[Any], side: Side) -> NDArray[np.int64]:
        """Count the elements below, or up to, each value, as `numpy.searchsorted` does."""


@dataclass(frozen=True, slots=True, eq=False)
class HostCandidates:
    """Candidates in host memory, in ascending order or not."""

    elements: NDArray[Any]
    is_ordered: bool = False

    # Pickling takes 6 us beside the 25 of the array; the method of a dataclass takes 18.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.elements, self.is_ordered)

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
        if self.is_ordered:
            return np.asarray(self.elements[places])
        few = np.unique(places)
        if len(few) > FEW_PLACES:
            return np.asarray(np.sort(self.elements)[places])
        if not len(few):
            return self.elements[:0]
        return np.asarray(partitioned(self.elements.copy(), few)[places])

    def survey(
        self, intervals: Sequence[Sequence[tuple[Any, Any]]], listed: Sequence[Listed]
    ) -> tuple[Sequence[Survey], Sequence[NDArray[Any]]]:
        surveys = []
        for neighbours in filter(None, intervals):
            # Few elements are near a fence, so find these first: of 2.7 million float64 all
            # questions took 65 ms, and now take 11.
            low, high = min(each[0] for each in neighbours), max(each[1] for each in neighbours)
            near = _within(self.elements, low, high)
            surveys += [_survey(_within(near, *each)) for each in neighbours]
        return surveys, [_within(self.elements, low, high) for low, high, _ in listed]

    def counts(self, values: NDArray[Any]) -> Counts:
        ordered = self.ordered()
        return ordered.places(values, "left"), ordered.places(values, "right")

    def distances(self, centre: Any) -> HostCandidates:
        with np.errstate(over="ignore", invalid="ignore"):
            return HostCandidates(np.abs(self.elements.astype(centre.dtype) - centre))

    def with_more(self, elements: NDArray[Any]) -> HostCandidates:
        return HostCandidates(np.concatenate([self.elements, elements]))

    def ordered(self, by: Sort = np.sort) -> HostCandidates:
        return self if self.is_ordered else HostCandidates(by(self.elements), is_ordered=True)

    def places(self, values: NDArray[Any], side: Side) -> NDArray[np.int64]:
        return np.asarray(self.elements.searchsorted(values, side))


def partitioned(values: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    """Partition values in place so that some places hold what sorting would put there.

    The places are ascending and distinct. There is one call for each place, among the elements left
    between its neighbours: in one call for all places NumPy uses no SIMD instructions. With
    AVX-512, 674,000 float64 at eight places took 17.6 ms in one call and take 4.4.
    """
    if values.dtype.itemsize < VECTOR_BYTES:
        values.partition(places)
        return values
    _partition_between(values, places.tolist(), 0)
    return values


def _partition_between(values: NDArray[Any], places: list[int], first: int) -> None:
    """Partition values whose first one is at place `first` of all values."""
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
