"""Frozen bundles of arrays, and how partial results of one type are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
T = TypeVar("T")


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """List the names of the fields of a dataclass, which takes 8 us."""
    return tuple(each.name for each in fields(kind))


class Arrays:
    """Base of frozen bundles of arrays, with a size in bytes for the accounts of schedulers."""

    __slots__ = ()

    def parts(self) -> list[Any]:
        """List the arrays, and the other fields."""
        return [getattr(self, name) for name in _names(type(self))]  # type: ignore[arg-type]

    def __sizeof__(self) -> int:
        return 64 + sum(map(_size, self.parts()))


def slices_of(sizes: IntArray) -> list[slice]:
    """List the slices of consecutive pieces of these sizes."""
    stops = np.cumsum(sizes, dtype=np.int64)
    return [*map(slice, (stops - sizes).tolist(), stops.tolist())]


def ahead(first: IntArray, n: IntArray, step: int = 1) -> IntArray:
    """List `n` places of each piece, from a first one on."""
    before = np.cumsum(n, dtype=np.int64) - n
    return np.repeat(first - step * before, n) + np.arange(0, step * int(n.sum()), step)


def bisected(
    first: IntArray, last: IntArray, goes_on: Callable[[IntArray], NDArray[np.bool_]]
) -> IntArray:
    """Find the place in each stretch up to which a condition holds, by bisection of all together.

    The condition gets a place of each stretch; those of stretches that are done are arbitrary.
    """
    while (is_open := first < last).any():
        middle = (first + last) // 2
        is_before = goes_on(middle)
        first = np.where(is_open & is_before, middle + 1, first)
        last = np.where(is_open & ~is_before, middle, last)
    return first


def concatenated(column: Sequence[Any]) -> Any:
    """Concatenate arrays, or tables of exact sums; integers beside floats stay integers."""
    if not isinstance(column[0], np.ndarray):
        return column[0].joined(column)
    if {each.dtype.kind for each in column} == {"i", "f"}:  # of weights, all beyond 2**53
        column = [each.astype(np.int64, copy=False) for each in column]
    return np.concatenate(column)


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return value.__sizeof__() if isinstance(value, Arrays) else int(getattr(value, "nbytes", 8))


def merge(parts: Sequence[Any]) -> Any:
    """Merge partial results of one type."""
    return type(parts[0]).merge(parts)


def merge_any(parts: Sequence[T | None]) -> T | None:
    """Merge the partial results that are not None; return None if all are."""
    present = [part for part in parts if part is not None]
    return merge(present) if present else None


def merge_all(parts: Sequence[T | None]) -> T | None:
    """Merge partial results; return None if any of them is None."""
    return None if any(part is None for part in parts) else merge(parts)


class Joined(Arrays):
    """Base of tables whose columns are joined one by one.

    An optional column is None in all parts that are joined, or in none of them.
    """

    __slots__ = ()

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Join several parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        names = dict.fromkeys(name for part in parts for name in part.by_name())
        columns = {name: [getattr(part, name) for part in parts] for name in names}
        joined = {name: concatenated(column) for name, column in columns.items()}
        return replace(parts[0], **joined)  # type: ignore[type-var]

    def by_name(self) -> dict[str, Any]:
        """Return the columns by their names, without those that are None."""
        columns = {name: getattr(self, name) for name in _names(type(self))}  # type: ignore[arg-type]
        kinds = np.ndarray | Arrays
        return {name: each for name, each in columns.items() if isinstance(each, kinds)}
