"""Lanes whose elements weigh: sorted in tiles, with their weights beside them.

Weights are often one number for many elements, as of each row of a map: they are laid out for one
tile at a time, and never for a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host, transposed
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu.few import slabs
from dask_gpuselect.kernels.cpu.lane_weight_ends import ends_of_sorted
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths import lane_weight_cuts, lane_weights
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_ends import Bounds
from dask_gpuselect.maths.lane_weight_cuts import WeightBrackets, WeightCuts, WeightTally
from dask_gpuselect.maths.lane_weight_ends import WeightedLaneEnds
from dask_gpuselect.maths.lane_weights import SortedLanes, Wanted, WeighedLanes

TILE = 1 << 18  # elements that are sorted together

Table = TypeVar("Table", WeighedLanes, WeightCuts, WeightTally)


def pick(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], axes: tuple[int, ...], wanted: Wanted
) -> WeighedLanes:
    """What answers, in every lane along `axes`, of all chunks together, on the host.

    Parameters
    ----------
    chunks : sequence of Accompanied
        Of one shape but for `axes`, each with weights.
    dtype : dtype
        What their array says they are.
    """
    return _of_each(sorted_lanes(chunks, dtype, axes), partial(lane_weights.pick, wanted=wanted))


def cuts(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: WeightBrackets | None,
    m: int,
) -> WeightCuts:
    """The cuts of every lane, inside its brackets if there are any."""
    measure = partial(lane_weight_cuts.cuts_of_sorted, m=m)
    return _of_each(sorted_lanes(chunks, dtype, axes), measure, brackets)


def tally(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    brackets: WeightBrackets,
) -> WeightTally:
    """Sums of the weights of every lane at its brackets, and candidates."""
    return _of_each(sorted_lanes(chunks, dtype, axes), lane_weight_cuts.tally_of_sorted, brackets)


def ends(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    bounds: Bounds,
    most: int,
) -> WeightedLaneEnds:
    """What is beyond the bounds of every lane, with the values of at most so many elements of each
    side."""
    found, start = [], 0
    for table in sorted_lanes(chunks, dtype, axes):
        stop = start + len(table.values)
        found.append(ends_of_sorted(table, bounds[start:stop], most))
        start = stop
    return WeightedLaneEnds.joined(found)


def pick_and_ends(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    wanted: Wanted,
    bounds_of: Callable[[WeighedLanes], Bounds],
    most: int,
) -> tuple[WeighedLanes, WeightedLaneEnds]:
    """What answers, and what is beyond the bounds that it makes. Lanes are sorted once."""
    picked, found = [], []
    for table in sorted_lanes(chunks, dtype, axes):
        picked.append(lane_weights.pick(table, wanted))
        found.append(ends_of_sorted(table, bounds_of(picked[-1]), most))
    return lane_weight_cuts.join(picked), WeightedLaneEnds.joined(found)


def _of_each(
    tables: Iterator[SortedLanes],
    measure: Callable[..., Table],
    brackets: WeightBrackets | None = None,
) -> Table:
    """What is measured of one table of lanes after the other, each with its brackets if there are
    any."""
    found, start = [], 0
    for table in tables:
        stop = start + len(table.values)
        found.append(measure(table, *([brackets[start:stop]] if brackets else [])))
        start = stop
    return lane_weight_cuts.join(found)


def sorted_lanes(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], axes: tuple[int, ...]
) -> Iterator[SortedLanes]:
    """All lanes in tables with a row for each, in C order of the other axes; at least one.

    Scratch: a tile, and its order.
    """
    kept = tuple(axis for axis in range(chunks[0].ndim) if axis not in axes)
    weights = [weights_of(chunk) for chunk in chunks]
    exact = np.dtype(np.int64 if any(each.dtype.kind == "i" for each in weights) else np.float64)
    wanted = dtype.newbyteorder("=") if dtype.kind in "mM" else selection_dtype(dtype)
    tables = [
        (wanted, [chunk.values for chunk in chunks]),
        (exact, weights),
        (np.dtype(np.bool_), [_keeps(chunk) for chunk in chunks]),
    ]
    if all(chunk.keeps is None for chunk in chunks):
        del tables[2]
    turned = [(kind, [transposed(each, (*kept, *axes)) for each in of]) for kind, of in tables]
    shape = tuple(chunks[0].shape[axis] for axis in kept)
    n = sum(math.prod(chunk.shape[axis] for axis in axes) for chunk in chunks)
    for place in slabs(shape, max(1, TILE // max(n, 1))) if math.prod(shape) else [()]:
        yield SortedLanes.of(*(_tile(of, place, len(axes), n, kind) for kind, of in turned))


def _tile(
    parts: Sequence[Any], place: tuple[int | slice, ...], n_axes: int, n: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Some lanes of all parts, side by side in a table with a row for each."""
    some = [part[(*place, ...)] for part in parts]
    n_lanes = math.prod(some[0].shape[:-n_axes])
    table = np.empty((n_lanes, n), dtype)
    start = 0
    for piece in some:
        stop = start + math.prod(piece.shape[-n_axes:])
        table[:, start:stop].reshape(piece.shape)[...] = to_host(piece)
        start = stop
    return table


def _keeps(chunk: Accompanied) -> Any:
    return np.broadcast_to(True, chunk.shape) if chunk.keeps is None else chunk.keeps


def weights_of(chunk: Accompanied) -> NDArray[Any]:
    """The weights of a chunk on the host, checked; see `reference.weighing.weighed`."""
    weights = np.asarray(to_host(chunk.weights))
    # One of each, if they are broadcast.
    few = weights[tuple(slice(None, None if step else 1) for step in weights.strides)]
    if chunk.keeps is not None and few.size and not (few.min() >= 0 and few.max() < np.inf):
        few = np.where(to_host(chunk.keeps), weights, few.dtype.type(0))
    return np.broadcast_to(as_weights(few), chunk.shape)
