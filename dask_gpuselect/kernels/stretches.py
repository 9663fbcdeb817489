"""Division of a chunk with weights into stretches of groups, and the groups of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from dask_gpuselect.arrays import is_cupy, to_host, usual
from dask_gpuselect.devices import memory_bytes
from dask_gpuselect.kernels.companions import Accompanied, each_array
from dask_gpuselect.kernels.reference.selection import elements_of as elements_in_order
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.host_runs import HostRuns

Function = TypeVar("Function", bound=Callable[..., Any])

SHARE = 16  # a chunk that is sorted with its weights takes up to 66 bytes for each element of 8


LARGE = 1 << 12  # elements of a group that is measured alone, by kernels that need not sort
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
    # Stretches between groups that are measured alone should not be of one or two groups.
    are_alike = len(order) * 2 >= np.count_nonzero(sizes) * LARGE
    most, first = LARGE // 4 if are_alike else LARGE, 0
    if not n_groups:
        yield 0, 0, _host_runs(some, sizes, dtype)
    while first < n_groups:
        last = first + 1
        if sizes[first] <= most:
            large = np.flatnonzero(sizes[first:] > most)[:1] + first
            last = int(stops.searchsorted(starts[first] + AT_ONCE, "right"))
            last = max(min(last, *large.tolist(), n_groups), first + 1)
        own = some[starts[first] : stops[last - 1]]
        if sizes[first] > most:
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
