"""Candidates: the elements that lie in brackets, on the host or on a device.

The mathematics asks them questions. Candidates in host memory answer here with NumPy; those on a
device answer with kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Sort = Callable[[Any], Any]
"""Function from an array to its elements in ascending order."""
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
Side = Literal["left", "right"]
SIDES: Final[tuple[Side, Side]] = "left", "right"

# Up to so many places, partitioning is faster than sorting: 3.7 million float64 take 37 ms at eight
# places, and 63 ms sorted.
FEW_PLACES = 16
# Up to so many elements, sorting is faster than partitioning at any places: of 4,000 float64, two
# places take 36 us instead of 59. Those of less than 4 bytes take longer to sort.
FEW_ELEMENTS = 1 << 12
# Up to so many values, counting is faster than sorting, except among few elements: among 674,000
# float64, four values take 1.4 ms instead of 9.4.
FEW_VALUES = 4
# NumPy partitions elements of at least so many bytes with SIMD instructions, at one place a call.
VECTOR_BYTES = 4


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates, valid elements in ascending order or not, in host memory.

    Kernels of a device derive from them those that are there.
    """

    elements: Any
    is_ordered: bool = False

    # Pickling takes 6 us beside the 25 of the array; the method of a dataclass takes 18.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(vars(self).values())

    def __len__(self) -> int:
        return int(self.elements.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.elements.dtype
        return dtype

    @property
    def nbytes(self) -> int:
        return int(self.elements.nbytes)

    def on_host(self) -> NDArray[Any]:
        """Return all elements on the host."""
        return np.asarray(self.elements)

    def elements_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Return the elements that sorting would put at some places, on the host."""
        if self.is_ordered:
            return np.asarray(self.elements[places])
        if not len(places):
            return np.asarray(self.elements[:0])
        if len(self) <= FEW_ELEMENTS and self.dtype.itemsize >= VECTOR_BYTES:
            return np.asarray(np.sort(self.elements)[places])
        wanted = np.sort(places, axis=None)
        is_apart = np.diff(wanted) > 1  # a run of places has two that are partitioned
        first, last = wanted[np.append(True, is_apart)], wanted[np.append(is_apart, True)]
        few = np.union1d(first, last)
        if len(few) > FEW_PLACES:
            return np.asarray(np.sort(self.elements)[places])
        elements = partitioned(self.elements.copy(), few)
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            elements[begin : end + 1].sort()
        return np.asarray(elements[places])

    def counts(self, values: NDArray[Any]) -> Counts:
        """Count the elements below, and up to, each of some values.

        They are ascending and distinct, unless the candidates are sorted.
        """
        if not self.is_ordered and len(values) <= FEW_VALUES:
            pairs = [
                (np.count_nonzero(self.elements < each), np.count_nonzero(self.elements <= each))
                for each in values
            ]
            below, upto = np.array(pairs, np.int64).reshape(-1, 2).T
            return below, upto
        elements = self.ordered().elements
        below, upto = (elements.searchsorted(values, side) for side in SIDES)
        return below, upto

    def distances(self, centre: Any) -> Candidates:
        """Compute the distances from a floating-point number, in its dtype, on the same device."""
        with np.errstate(over="ignore", invalid="ignore"):
            return Candidates(np.abs(self.elements.astype(centre.dtype) - centre))

    def with_more(self, elements: NDArray[Any]) -> Candidates:
        """Add a few elements."""
        return Candidates(np.concatenate([self.elements, elements]))

    def ordered(self, by: Sort = np.sort) -> Candidates:
        """Sort the candidates, with the fastest sort unless another one is given."""
        return self if self.is_ordered else Candidates(by(self.elements), is_ordered=True)


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
