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
Survey = tuple[int, NDArray[Any], NDArray[Any]]
"""How many elements an interval holds, and the least and the largest of them: arrays of one element
each, or empty."""

# Up to here partitioning is faster: 3.7 million float64 at six places in 61 ms, sorted in 225.
FEW_PLACES = 16


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

    def between(self, low: Any, high: Any, most: int) -> NDArray[Any]:
        """The elements in [low, high], which are at most so many, on the host."""

    def surveys(self, intervals: Sequence[tuple[Any, Any]]) -> Sequence[Survey]:
        """What lies in each interval [low, high]; there is at least one interval."""

    def inside(self, low: Any, high: Any) -> Candidates | None:
        """Those in (low, high), or None where it is no faster to select among them."""

    def ordered(self, by: Sort = ...) -> OrderedCandidates:
        """The candidates sorted, by the fastest sort there is unless another is given."""


class OrderedCandidates(Candidates, Protocol):
    """Elements that ascend."""

    def places(self, values: NDArray[Any], side: Literal["left", "right"]) -> NDArray[np.int64]:
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
        return np.asarray(np.partition(self.elements, few)[places])

    def between(self, low: Any, high: Any, most: int) -> NDArray[Any]:
        del most
        return _within(self.elements, low, high)

    def surveys(self, intervals: Sequence[tuple[Any, Any]]) -> Sequence[Survey]:
        # Few are about a fence: of 2.7 million float64 all that was asked took 65 ms, now 11.
        low, high = min(each[0] for each in intervals), max(each[1] for each in intervals)
        near = self.between(low, high, len(self))
        return [_survey(_within(near, *each)) for each in intervals]

    def inside(self, low: Any, high: Any) -> HostCandidates:
        elements = self.elements
        return HostCandidates(elements.compress((elements > low) & (elements < high)))

    def ordered(self, by: Sort = np.sort) -> OrderedHostCandidates:
        return OrderedHostCandidates(by(self.elements))


class OrderedHostCandidates(HostCandidates):
    """Candidates in the host's memory that ascend."""

    __slots__ = ()

    def elements_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self.elements[places])

    def ordered(self, by: Sort = np.sort) -> OrderedHostCandidates:
        return self

    def places(self, values: NDArray[Any], side: Literal["left", "right"]) -> NDArray[np.int64]:
        return np.asarray(self.elements.searchsorted(values, side))


def _within(elements: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    return elements.compress((elements >= low) & (elements <= high))


def _survey(inside: NDArray[Any]) -> Survey:
    if not len(inside):
        return 0, inside, inside
    return len(inside), inside.min(keepdims=True), inside.max(keepdims=True)
