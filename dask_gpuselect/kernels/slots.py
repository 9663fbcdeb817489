"""Division of a chunk into one chunk for each slot."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from dask_gpuselect.arrays import is_cupy, like, namespace, to_host, usual
from dask_gpuselect.devices import memory_bytes
from dask_gpuselect.kernels.companions import Accompanied, as_codes
from dask_gpuselect.kernels.registry import backend_for, of
from dask_gpuselect.maths.run_slots import SortedSlots
from dask_gpuselect.maths.slots import Slots, over_slots

Function = TypeVar("Function", bound=Callable[..., Any])

SHARE = 16  # a chunk that is sorted with its weights takes up to 66 bytes for each element of 8


def in_slots(chunk: Any, dtype: np.dtype[Any]) -> Any:
    """Divide a chunk by its labels into slots, as `apart` does or sorted together.

    Kernels are bound to a chunk without labels. Elements with weights are sorted together where
    kernels do that and the device has room: with 18 slots of 2^23 elements, one slot after the
    other takes two to four times as long. What is divided already is returned unchanged.
    """
    if isinstance(chunk, Slots | SortedSlots):
        return chunk
    if not isinstance(chunk, Accompanied) or chunk.labels is None:
        return of(chunk, dtype)
    if chunk.weights is None or not is_cupy(chunk.values):
        return apart(chunk)
    runs = None
    if chunk.nbytes <= memory_bytes() // SHARE:
        n_slots = _n_slots(as_codes(chunk.labels, chunk.values))
        sort = backend_for(chunk).runs.sorted_runs
        runs = sort([chunk], dtype, n_slots + 1)
    return apart(chunk) if runs is None else SortedSlots(runs)


def _n_slots(codes: Any) -> int:
    return max(int(codes.max()) + 1, 0) if math.prod(codes.shape) else 0


def apart(chunk: Accompanied) -> Slots:
    """Divide a chunk by its labels into a chunk for each slot, one-dimensional and without labels.

    Labels are numbers of slots; -1 means no slot.
    """
    arrays = {"values": chunk.values} | chunk.companions
    flat = {name: namespace(array).reshape(array, (-1,)) for name, array in arrays.items()}
    codes = flat.pop("labels")
    codes = as_codes(codes, chunk.values) if is_cupy(chunk.values) else to_host(codes)
    order, sizes = backend_for(codes).groups.places_in_groups(codes, _n_slots(codes))
    taken = {name: _taken(array, order) for name, array in flat.items()}
    some = Accompanied(**taken)
    stops = np.cumsum(sizes)
    of = {slot: some[stops[slot] - sizes[slot] : stops[slot]] for slot in np.flatnonzero(sizes)}
    return Slots({int(slot): own for slot, own in of.items()}, some[:0])


def group_codes(chunk: Accompanied) -> Any:
    """Return the group of each element, by its label, and -1 for masked ones.

    The codes are on the labels' CUDA device, else on the host.
    """
    labels, keeps = chunk.labels, chunk.keeps
    assert labels is not None
    codes = usual(labels).reshape(-1)
    if keeps is None:
        return codes
    keeps = keeps if is_cupy(codes) else to_host(keeps)
    return backend_for(codes).labels.masked_codes(codes, keeps.reshape(-1))


def _taken(array: Any, order: Any) -> Any:
    if isinstance(array, np.ndarray) or is_cupy(array):
        return array[order]
    return namespace(array).take(array, like(order, array))


def each_slot(of_sorted: Callable[..., Any]) -> Callable[[Function], Function]:
    """Call a function of a chunk and its dtype for each slot of the chunk, if it has labels.

    See `over_slots`. `of_sorted` answers for `SortedSlots`, which need no dtype.
    """

    def decorated(function: Function) -> Function:
        of_each = over_slots(function)

        @wraps(function)
        def call(chunk: Any, dtype: np.dtype[Any], *given: Any, **how: Any) -> Any:
            slots = in_slots(chunk, dtype)
            if isinstance(slots, SortedSlots):
                return of_sorted(slots, *given, **how)
            return of_each(slots, dtype, *given, **how)

        return cast(Function, call)

    return decorated
