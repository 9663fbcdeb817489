"""Division of a chunk into one chunk for each slot."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from dask_gpuselect.arrays import is_cupy, like, namespace, to_host
from dask_gpuselect.kernels.companions import Accompanied, CodesOf, as_codes, parts_of, values_of
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.slots import Slots, over_slots

Function = TypeVar("Function", bound=Callable[..., Any])


def in_slots(chunk: Any) -> Any:
    """Divide a chunk by its labels into a chunk for each slot, one-dimensional and without labels.

    Labels are numbers of slots; -1 means no slot. A chunk without labels is returned unchanged.
    """
    if not isinstance(chunk, Accompanied) or chunk.labels is None:
        return chunk
    arrays = {"values": chunk.values} | chunk.companions
    flat = {name: namespace(array).reshape(array, (-1,)) for name, array in arrays.items()}
    codes = flat.pop("labels")
    codes = as_codes(codes, chunk.values) if is_cupy(chunk.values) else to_host(codes)
    n_slots = int(codes.max()) + 1 if chunk.size else 0
    order, sizes = backend_for(codes).groups.places_in_groups(codes, max(n_slots, 0))
    taken = {name: _taken(array, order) for name, array in flat.items()}
    some = Accompanied(**taken)
    stops = np.cumsum(sizes)
    of = {slot: some[stops[slot] - sizes[slot] : stops[slot]] for slot in np.flatnonzero(sizes)}
    return Slots({int(slot): own for slot, own in of.items()}, some[:0])


def group_codes(chunk: Accompanied, codes_of: CodesOf) -> Any:
    """Return the group of each element, -1 for masked ones.

    The codes are on the labels' CUDA device, else on the host.
    """
    labels, keeps = chunk.labels, chunk.keeps
    assert labels is not None
    codes = codes_of(labels if is_cupy(labels) else to_host(labels)).reshape(-1)
    if keeps is None:
        return codes
    keeps = keeps if is_cupy(codes) else to_host(keeps)
    return backend_for(codes).labels.masked_codes(codes, keeps.reshape(-1))


def _taken(array: Any, order: Any) -> Any:
    if isinstance(array, np.ndarray) or is_cupy(array):
        return array[order]
    return namespace(array).take(array, like(order, array))


def is_on_device(array: Any) -> bool:
    """Return whether an array, a chunk with companions, or several are on a CUDA device (CuPy)."""
    return is_cupy(values_of(parts_of(array)[0]))


def each_slot(function: Function) -> Function:
    """Call a function of a chunk for each slot of the chunk, if it has labels.

    The chunk is the first argument. See `over_slots`.
    """
    of_each = over_slots(function)

    @wraps(function)
    def call(chunk: Any, *given: Any, **how: Any) -> Any:
        return of_each(in_slots(chunk), *given, **how)

    return cast(Function, call)
