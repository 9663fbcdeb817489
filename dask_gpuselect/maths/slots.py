"""Partial results for every slot, each as if the slot were an array of its own.

A group of elements is such a slot. Functions of the partial results of all elements are applied to
those of each slot: see `over_slots`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self, TypeVar, cast

from dask_gpuselect.maths.cuts import Arrays, merge

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class Slots(Arrays):
    """Partial results, or other values, of each slot.

    Parameters
    ----------
    of : dict
        Values by the numbers of slots.
    rest : object
        Value of every other slot: these have no elements here.
    """

    of: dict[int, Any]
    rest: Any

    def __getitem__(self, slot: int | None) -> Any:
        """Return the value of a slot; that of the rest for None."""
        return self.rest if slot is None else self.of.get(slot, self.rest)

    def parts(self) -> list[Any]:
        return [*self.of.values(), self.rest]

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Merge the partial results of each slot."""
        return cast(Self, over_slots(merge)(parts))


def over_slots(function: Function) -> Function:
    """Make a function accept `Slots` as arguments, alone or in lists.

    Then it is called for each slot, and the results are `Slots`. Without such arguments it is
    called as it is.
    """

    @wraps(function)
    def call(*given: Any, **how: Any) -> Any:
        every = {slot for each in given for slots in _slots_in(each) for slot in slots.of}
        if not any(_slots_in(each) for each in given):
            return function(*given, **how)

        def at(slot: int | None) -> Any:
            return function(*(at_slot(each, slot) for each in given), **how)

        return Slots({slot: at(slot) for slot in sorted(every)}, at(None))

    return cast(Function, call)


def _slots_in(given: Any) -> list[Slots]:
    """List the `Slots` that an argument is or contains."""
    if isinstance(given, list | tuple):
        return [each for each in given if isinstance(each, Slots)]
    return [given] if isinstance(given, Slots) else []


def at_slot(given: Any, slot: int | None) -> Any:
    """Replace `Slots` in an argument by their values for one slot."""
    if isinstance(given, list | tuple) and _slots_in(given):
        return [at_slot(each, slot) for each in given]
    return given[slot] if isinstance(given, Slots) else given


def every(partial_result: Any) -> list[Any]:
    """List a partial result of all elements, or those of each slot."""
    return (
        list(partial_result.of.values()) if isinstance(partial_result, Slots) else [partial_result]
    )
