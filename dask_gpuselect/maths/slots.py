"""Reports about every slot: each is as of all elements of an array of its own.

A group of elements is such a slot. What is done with reports about all elements is done with those
of each slot, by the same functions: see `over_slots`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self, TypeVar, cast

from dask_gpuselect.maths.cuts import Arrays

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class Slots(Arrays):
    """A report, or anything else, for each slot.

    Parameters
    ----------
    of : dict
        By the numbers of slots.
    rest : object
        The same for all other slots: they have no elements here.
    """

    of: dict[int, Any]
    rest: Any

    def __getitem__(self, slot: int | None) -> Any:
        """That of a slot; of None the rest."""
        return self.rest if slot is None else self.of.get(slot, self.rest)

    def parts(self) -> list[Any]:
        return [*self.of.values(), self.rest]

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Merge the reports of each slot."""
        return cast(Self, over_slots(merged)(parts))


def over_slots(function: Function) -> Function:
    """Make a function take reports about every slot, alone or in lists: it is called for each slot,
    and the results are `Slots`. Without such arguments it is called as it is."""

    @wraps(function)
    def call(*given: Any, **how: Any) -> Any:
        every = {slot for each in given for slots in _slots_in(each) for slot in slots.of}
        if not any(_slots_in(each) for each in given):
            return function(*given, **how)

        def at(slot: int | None) -> Any:
            return function(*(_at(each, slot) for each in given), **how)

        return Slots({slot: at(slot) for slot in sorted(every)}, at(None))

    return cast(Function, call)


def _slots_in(given: Any) -> list[Slots]:
    """The reports about every slot that an argument is, or has."""
    if isinstance(given, list | tuple):
        return [each for each in given if isinstance(each, Slots)]
    return [given] if isinstance(given, Slots) else []


def _at(given: Any, slot: int | None) -> Any:
    """What an argument has of one slot."""
    if isinstance(given, list | tuple) and _slots_in(given):
        return [_at(each, slot) for each in given]
    return given[slot] if isinstance(given, Slots) else given


def merged(parts: Sequence[Any]) -> Any:
    """Merge reports of one type."""
    return type(parts[0]).merge(parts)


def every(report: Any) -> list[Any]:
    """A report about all elements, or those about each slot."""
    return list(report.of.values()) if isinstance(report, Slots) else [report]
