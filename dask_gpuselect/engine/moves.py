"""Columns of chunks whose lanes dask moves between the workers of a cluster.

::

    source ──copy──> values, companions ──P2P rechunk──> tiles ──pack──> answer

This is for clusters what `scratch` is for threads: dask's peer-to-peer rechunk writes what a worker
receives to its disk, and makes tiles, all of some lanes, when all chunks of a column are there.
Each chunk is loaded once. Companions are moved like the values, those that are broadcast with size
1 along these axes.
"""

from __future__ import annotations

import itertools
from functools import lru_cache, partial
from typing import Any

import numpy as np
from dask.base import tokenize
from dask.utils import format_bytes

from dask_gpuselect.arrays import in_kind, to_host
from dask_gpuselect.engine.columns import first_load
from dask_gpuselect.engine.graphs import (
    is_on_a_worker,
    packed_by,
    worker_directory,
    worker_memory,
    workers_here,
)
from dask_gpuselect.engine.scratch import (
    Carried,
    Scratch,
    check_room,
    companion_of,
    cuts_of,
    explained,
)
from dask_gpuselect.engine.source import (
    Companion,
    DaskArray,
    Key,
    Step,
    Task,
    TaskRef,
    extended,
    map_blocks,
)
from dask_gpuselect.kernels.companions import Accompanied, stretched, values_of


def in_moved_tiles(x: DaskArray, axes: tuple[int, ...], how: Scratch) -> DaskArray:
    """Make an array of the lanes of `x` in tiles, by dask's P2P rechunk.

    Questions about the same array along the same axes share its one load.

    Parameters
    ----------
    axes : tuple of int
        The reduced ones, along which a tile is whole.
    how : Scratch
    """
    source, carried = first_load(x, axes), Carried.by(x, axes)
    cuts = cuts_of(x, axes, how.tile)
    chunks = tuple(tuple(cut.stop - cut.start for _, cut in each) for each in cuts)
    values = _moved(_values(source, carried, how), chunks, how)
    moved = [_moved(_companion(source, carried, c), chunks, how) for c in carried.companions]
    kind = x._meta.data if isinstance(x._meta, np.ma.MaskedArray) else x._meta
    pack = partial(_packed, names=[each.name for each in carried.companions], kind=kind)
    step = Step("pack", pack, carried.companions)
    name = f"{source.name}-moved-{tokenize(axes, how)}"
    return packed_by(step, x, [values, *moved], name, chunks)


def _values(source: DaskArray, carried: Carried, how: Scratch) -> DaskArray:
    """Make an array of the elements of each chunk, without its companions."""
    return map_blocks(
        partial(_values_to_move, carried=carried, name=source.name, how=how),
        source,
        name=f"{source.name}-values-to-move-{tokenize(how)}",
        dtype=source.dtype,
        meta=np.empty((0,) * source.ndim, source.dtype),
    )


def _values_to_move(chunk: Any, *, carried: Carried, name: str, how: Scratch) -> Any:
    """Return the elements of a chunk, on the host, as P2P takes them."""
    if not is_on_a_worker():
        raise RuntimeError(
            "the plan 'p2p' moves chunks between the workers of dask.distributed, and no worker "
            "runs its tasks: compute the answer on the cluster; or, before you call the function, "
            "close the client or name the scheduler by dask.config.set(scheduler='threads')"
        )
    carried.check(chunk)
    _check_worker(name, worker_directory(), how)
    values = to_host(values_of(chunk))
    _check_disk(worker_directory(), 2 * values.nbytes)
    return values


@lru_cache(maxsize=1 << 10)
def _check_worker(name: str, where: str, how: Scratch) -> None:
    """Raise if the worker that runs this task has no room for its share of an array.

    This is done once for each array and directory of a worker, at the first chunk.
    """
    del name
    n_here, n_workers, n_threads = workers_here()
    _check_disk(where, how.disk_bytes * n_here / n_workers)
    if n_threads * how.task_bytes > (memory := worker_memory()):
        raise MemoryError(
            f"{n_threads} threads of a worker may take {format_bytes(how.task_bytes)} each, and "
            f"its memory limit is {format_bytes(int(memory))}: set dask_gpuselect.column-limit to "
            f"{format_bytes(int(memory) // (2 * n_threads))}, or start workers with fewer threads "
            "(--nthreads) or more memory (--memory-limit)"
        )


def _check_disk(where: str, n_bytes: float) -> None:
    """Raise if the disk of a worker has less free space than it needs.

    The error of P2P, which comes later, names no setting of this package.
    """
    try:
        check_room(where, n_bytes)
    except OSError as error:
        advice = "Start more workers, or workers with larger disks (--local-directory)"
        raise explained(error, where, advice) from None


def _companion(source: DaskArray, carried: Carried, companion: Companion) -> DaskArray:
    """Make an array of a companion.

    Along the axes that it is broadcast along it has one chunk, of size 1.
    """
    name = f"{source.name}-{companion.name}-to-move"
    along, chunks = [], []
    for axis, sizes in enumerate(source.chunks):
        is_shared = axis in companion.stretched
        along.append((carried.firsts[axis],) if is_shared else range(len(sizes)))
        chunks.append((1,) if is_shared else sizes)
    tasks: dict[Key, Task] = {}
    for index, place in zip(np.ndindex(*map(len, along)), itertools.product(*along), strict=True):
        key = (name, *index)
        tasks[key] = Task(key, _companion_to_move, TaskRef((source.name, *place)), companion)
    graph = extended(source.dask, name, tasks, {source.name})
    return DaskArray(graph, name, tuple(chunks), dtype=companion.dtype)


def _companion_to_move(chunk: Any, companion: Companion) -> Any:
    """Return a companion of a chunk, on the host, as P2P takes it."""
    return to_host(companion_of(chunk, companion))


def _moved(array: DaskArray, tiles: tuple[tuple[int, ...], ...], how: Scratch) -> DaskArray:
    """Rechunk an array to tiles, but for axes of size 1."""
    chunks = tuple(
        own if own == (1,) else wanted for own, wanted in zip(array.chunks, tiles, strict=True)
    )
    moved: DaskArray = array.rechunk(chunks, method="p2p", block_size_limit=how.n_bytes)
    return moved


def _packed(values: Any, *companions: Any, names: list[str], kind: Any) -> Any:
    """Put a tile and its companions together again, in the kind of the chunks."""
    values = in_kind(values, kind)
    packed = {
        name: stretched(in_kind(array, kind), values.shape)
        for name, array in zip(names, companions, strict=True)
    }
    return Accompanied(values, **packed) if packed else values
