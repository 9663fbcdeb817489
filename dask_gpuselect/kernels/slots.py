"""Division of a chunk into one chunk for each slot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from dask_gpuselect.arrays import is_cupy, like, namespace, to_host, usual
from dask_gpuselect.devices import memory_bytes
from dask_gpuselect.kernels.companions import Accompanied, as_codes, each_array
from dask_gpuselect.kernels.reference.selection import elements_of as elements_in_order
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.kernels.registry import backend_for, of
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.host_runs import HostRuns
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


LARGE = 1 << 14  # elements of a group that is measured alone, by kernels that need not sort
AT_ONCE = 1 << 18  # elements of smaller groups that are sorted together


def stretches_of_groups(
    chunk: Accompanied, dtype: np.dtype[Any], n_groups: int
) -> Iterator[tuple[int, int, Any]]:
    """Divide a chunk with weights by its labels into stretches of groups.

    Yields the first group of each, the end of the stretch, and the runs of its groups; or a chunk
    on the host if it is of a single large group. Labels are numbers of groups.
    """
    if is_cupy(chunk.values):
        runs = None
        if chunk.nbytes <= memory_bytes() // SHARE:
            runs = backend_for(chunk).runs.sorted_runs([chunk], dtype, n_groups)
        if runs is not None:
            yield 0, n_groups, runs
            return
    flat = each_array(chunk, lambda array: to_host(array).reshape(-1))
    order, sizes = backend_for(flat.labels).groups.places_in_groups(flat.labels, n_groups)
    some = each_array(replace(flat, labels=None), lambda array: array[order])
    stops = np.cumsum(sizes)
    starts = stops - sizes
    first = 0
    if not n_groups:
        yield 0, 0, _host_runs(some, sizes, dtype)
    while first < n_groups:
        last = first + 1
        if sizes[first] <= LARGE:
            large = np.flatnonzero(sizes[first:] > LARGE)[:1] + first
            last = int(stops.searchsorted(starts[first] + AT_ONCE, "right"))
            last = max(min(last, *large.tolist(), n_groups), first + 1)
        own = some[starts[first] : stops[last - 1]]
        if sizes[first] > LARGE:
            yield first, last, own
        else:
            yield first, last, _host_runs(own, sizes[first:last], dtype)
        first = last


def _host_runs(chunk: Accompanied, sizes: IntArray, dtype: np.dtype[Any]) -> HostRuns:
    """Sort the elements of groups of these sizes, which follow one another."""
    values, _ = elements_in_order(chunk.values, dtype)
    weights, run = chunk.weights, np.repeat(np.arange(len(sizes)), sizes)
    assert weights is not None
    if chunk.keeps is not None:
        values, weights, run = (each[chunk.keeps] for each in (values, weights, run))
    weights = as_weights(weights)
    is_missing = values == np.iinfo(np.int64).min if dtype.kind in "mM" else values != values
    weighs = weights > 0
    valid = weighs & ~is_missing
    counts = {"n_missing": weighs & is_missing, "n_idle": ~weighs & ~is_missing}
    n: Any = {name: np.bincount(run[each], minlength=len(sizes)) for name, each in counts.items()}
    return HostRuns.of(values[valid], weights[valid], run[valid], len(sizes), **n)


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
