"""Find which workers of a cluster have the chunks of each column.

If several workers have chunks of a column, each of them can measure its own in place. Then only
cuts, brackets and candidates are sent between them, instead of chunks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dask_gpuselect.engine.grid import column, columns
from dask_gpuselect.engine.source import Source, is_future, steps_of

Homes = tuple[tuple[tuple[int, ...], ...], ...]
"""For each column in C order its parts: the numbers of the chunks that a worker has."""


def homes_of(x: Source, axes: tuple[int, ...]) -> Homes | None:
    """Divide each column of an array on a cluster into parts, one for each worker.

    The scheduler is asked, and nothing is computed. None if a chunk is not on a worker yet.
    """
    worker = _workers(x)
    if worker is None:
        return None
    homes = []
    for place in columns(x, axes):
        parts: dict[str, list[int]] = {}
        for i, chunk in enumerate(column(x, axes, place)):
            parts.setdefault(worker[chunk], []).append(i)
        homes.append(tuple(map(tuple, parts.values())))
    return tuple(homes)


def _workers(x: Source) -> dict[tuple[int, ...], str] | None:
    """Return the worker that has each chunk, by the place of the chunk; None if one is nowhere."""
    layers, name = x.dask.layers, x.name
    while next(steps_of(layers[name])).does == "check":
        (name,) = x.dask.dependencies[name]
    futures: dict[Any, Any] = {key: each for key, each in layers[name].items() if is_future(each)}
    client = getattr(next(iter(futures.values()), None), "client", None)
    if len(futures) < x.npartitions or client is None or client.asynchronous:
        return None
    where: dict[Any, Sequence[str]] = client.who_has(list(futures.values()))
    copies = {key[1:]: where.get(each.key) or [] for key, each in futures.items()}
    if not all(copies.values()):
        return None
    # Of the workers that have a copy, take the one that has most chunks.
    n_chunks = Counter(itertools.chain.from_iterable(where.values()))
    return {
        place: max(some, key=lambda each: (n_chunks[each], each)) for place, some in copies.items()
    }
