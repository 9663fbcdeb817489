"""Pack an array with its companions: masks, weights and labels that are aligned with the data.

They become one array, whose chunks are `Accompanied`. So a load reads the data and the companions
by one private copy of all their graphs, and work that they share is done once, such as ``x`` in
``where=(x != 0)``. Companions are rechunked to the data, never the data to companions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect.arrays import concatenate, is_array, like, namespace, to_host, usual
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.graphs import in_one_place, packed_by, places_of, tasks_of_each
from dask_gpuselect.engine.source import (
    Companion,
    DaskArray,
    Source,
    Step,
    extended,
    from_array,
    itself,
    largest_chunk_bytes,
    map_blocks,
)
from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.maths.cuts import Arrays


def accompanied(
    x: Any,
    keeps: Any = None,
    weights: Any = None,
    nodata: NDArray[Any] | None = None,
    labels: Any = None,
) -> Any:
    """Pack an array with its companions: a dask array if any of them is one, else `Accompanied`.

    Parameters
    ----------
    x : array
        Array of any kind, including dask arrays; or `Accompanied`.
    keeps, weights, labels : array, optional
        Mask, weights and labels, of shapes that broadcast to that of `x`. If the chunk sizes of
        dask arrays are unknown, their chunks have to match those of `x`.
    nodata : ndarray, optional
        Values of the dtype of `x`. Elements equal to one of them are left out.

    Raises
    ------
    ValueError
        If a companion cannot be broadcast, or sizes that are not known cannot be matched.
    """
    given = {"where": keeps, "weights": weights, "labels": labels}
    companions = {name: array for name, array in given.items() if array is not None}
    if not companions and nodata is None:
        return x
    names = tuple(companions)
    if not any(isinstance(array, DaskArray) for array in (x, *companions.values())):
        for name, array in companions.items():
            _check_shape(array, x, name)
        return _packed((), x, *companions.values(), stretched=_stretched(companions), nodata=nodata)
    if not isinstance(x, DaskArray):
        x = as_lazy(x)
    x = Source.of(x)
    matched = {name: _matched(array, x, name) for name, array in companions.items()}
    arrays = list(matched.values())
    token = tokenize(x.name, [array.name for array in arrays], names, nodata)
    taken = [_together_if_small(array, x) for array in arrays]
    pack = partial(_packed, stretched=_stretched(matched), nodata=nodata)
    step, grids = Step("pack", pack, _described(x, matched, nodata)), [places_of(x), x, *taken]
    return Source.of(packed_by(step, x, grids, f"with-companions-{token}", x.chunks))


# The names of arguments, as fields of `Accompanied`.
FIELDS = {"where": "keeps", "weights": "weights", "labels": "labels"}


def _described(
    x: Source, arrays: Mapping[str, DaskArray], nodata: NDArray[Any] | None
) -> tuple[Companion, ...]:
    """Describe the companions of the data, those that it has included."""
    described = {each.name: each for each in x.companions}
    for argument, array in arrays.items():
        pairs = enumerate(zip(array.shape, x.shape, strict=True))
        stretched = tuple(axis for axis, (own, wanted) in pairs if own == 1 != wanted)
        name = FIELDS[argument]
        if name == "keeps" and name in described:  # both masks must be True
            stretched = tuple(axis for axis in stretched if axis in described[name].stretched)
        described[name] = Companion(name, np.dtype(array.dtype), stretched)
    if nodata is not None:
        described["keeps"] = Companion("keeps", np.dtype(bool))
    return tuple(described.values())


def concatenated(chunks: Sequence[Any], axis: int) -> Any:
    """Join chunks along an axis, with their companions; a chunk without a mask is all kept."""
    values = [values_of(chunk) for chunk in chunks]
    packed = [chunk if isinstance(chunk, Accompanied) else Accompanied(chunk) for chunk in chunks]
    names = {name for chunk in packed for name in chunk.companions}
    companions = {
        name: [
            namespace(own).ones(own.shape, dtype=bool) if array is None else array
            for own, array in zip(values, [getattr(each, name) for each in packed], strict=True)
        ]
        for name in names
    }
    whole = concatenate(values, axis)
    each = {name: concatenate(arrays, axis) for name, arrays in companions.items()}
    return Accompanied(whole, **each) if each else whole


def as_one_lane(x: Any) -> Any:
    """Prepend an axis of size 1 to an array and its companions: all elements become one lane."""
    if not isinstance(x, DaskArray):
        return x[None]
    companions = tuple(
        replace(each, stretched=tuple(axis + 1 for axis in each.stretched))
        for each in Source.of(x).companions
    )
    lane = map_blocks(
        Step("pack", operator.itemgetter(None), companions),
        x,
        new_axis=0,
        chunks=((1,), *x.chunks),
        name=f"with-companions-{tokenize(x.name, 'as one lane')}",
        dtype=x.dtype,
        meta=x._meta[None],
    )
    return Source.of(lane)


def as_lazy(x: Any) -> DaskArray:
    """Convert an array in memory, possibly `Accompanied`, to a dask array."""
    if isinstance(x, DaskArray):
        return x
    if not isinstance(x, Accompanied):
        return from_array(x)
    packed: DaskArray = accompanied(from_array(x.values), x.keeps, x.weights, labels=x.labels)
    return packed


def _check_shape(array: Any, x: Any, name: str) -> None:
    """Raise a `ValueError` unless an array broadcasts to the shape of `x`.

    Unknown sizes match any size.
    """
    shape, wanted = tuple(array.shape), tuple(x.shape)
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    if len(shape) > len(wanted) or any(
        size not in (1, other) and not (math.isnan(size) or math.isnan(other))
        for size, other in pairs
    ):
        raise ValueError(
            f"{name} has shape {shape}, which does not broadcast to the shape of the data, {wanted}"
        )


def _matched(array: Any, x: DaskArray, name: str) -> DaskArray:
    """Return a companion as a dask array with the chunks of `x`, of size 1 if broadcast there."""
    _check_shape(array, x, name)
    missing = (None,) * (x.ndim - array.ndim)
    array = array[(*missing, ...)] if missing else array
    sizes = [
        1 if size == 1 != wanted else None
        for size, wanted in zip(array.shape, x.shape, strict=True)
    ]
    wanted = tuple(
        chunks if size is None else (1,) for size, chunks in zip(sizes, x.chunks, strict=True)
    )
    if not isinstance(array, DaskArray):
        if any(math.isnan(size) for chunks in wanted for size in chunks):
            raise ValueError(
                f"{name} is not a dask array, and the data have chunks of unknown sizes: type "
                f"x.compute_chunk_sizes() first, or pass {name} as a dask array with these chunks"
            )
        return entered(from_array(usual(array), chunks=wanted), name)
    matched = entered(_rechunked(array, wanted, name), name)
    return _read_once(matched) if _is_shared(matched, x) else matched


def _is_shared(array: DaskArray, x: DaskArray) -> bool:
    """Return whether a chunk of a companion serves several of the data, and is not in memory."""
    is_stretched = any(map(operator.lt, array.numblocks, x.numblocks))
    return is_stretched and not Source.of(array).is_in_memory


def _read_once(array: DaskArray) -> DaskArray:
    """Wrap an array whose chunks serve several of the data, so that each chunk is read once.

    Dask fuses the task that makes a chunk into all of its consumers, unless it is in a layer of
    another kind than blockwise.
    """
    name = f"shared-companion-{tokenize(array.name)}"
    tasks = tasks_of_each(itself, name, array.numblocks, [array.name])
    graph = extended(array.dask, name, tasks, {array.name})
    return DaskArray(graph, name, array.chunks, meta=array._meta)


@dataclass(frozen=True, eq=False)
class SmallCompanion(Arrays):
    """A companion that is smaller than a chunk of the data, with all of its chunks.

    Parameters
    ----------
    chunks : list of arrays
        The chunks, in C order.
    numblocks : tuple of int
        Shape of their grid: 1 along the axes along which the companion is broadcast.
    """

    chunks: list[Any]
    numblocks: tuple[int, ...]

    def at(self, place: tuple[int, ...]) -> Any:
        """Return the chunk that belongs to the chunk of the data at a place."""
        own = [i if n > 1 else 0 for i, n in zip(place, self.numblocks, strict=True)]
        return self.chunks[int(np.ravel_multi_index(own, self.numblocks))]


def _together_if_small(array: DaskArray, x: DaskArray) -> DaskArray:
    """Gather a small companion in a `SmallCompanion`, if its chunks serve several of the data.

    Its chunks are then read once for all loads. Otherwise dask would process the data row by row,
    following the companion's chunks, even where answers need columns, and hold all columns in
    memory.

    A companion that shares tasks with the data is read together with them instead.
    """
    small = array.nbytes <= largest_chunk_bytes(x)  # and not NaN
    has_common = any(name in x.dask.layers for name in array.dask.layers)
    if not _is_shared(array, x) or not small or has_common:
        return array
    label = "shared-companion-together"
    return in_one_place([array], SmallCompanion, label, numblocks=array.numblocks)


def _rechunked(array: DaskArray, wanted: tuple[tuple[float, ...], ...], name: str) -> DaskArray:
    for axis, (own, others) in enumerate(zip(array.chunks, wanted, strict=True)):
        is_unknown = [any(map(math.isnan, sizes)) for sizes in (own, others)]
        if any(is_unknown) and not (all(is_unknown) and len(own) == len(others)):
            raise ValueError(
                f"along axis {axis} the data have {_shown(others)} and {name} has {_shown(own)}, "
                "which cannot be matched: type compute_chunk_sizes() on both arrays first, or "
                "to_dask_array(lengths=True) on a column"
            )
    known = {axis: sizes for axis, sizes in enumerate(wanted) if not any(map(math.isnan, sizes))}
    # A peer-to-peer shuffle supports only NumPy chunks.
    method = "tasks" if Source.of(array).is_on_device else None
    result: DaskArray = array.rechunk(known, method=method)
    return result


def _shown(sizes: Sequence[float]) -> str:
    is_unknown = any(map(math.isnan, sizes))
    return f"{len(sizes)} chunks of {'unknown' if is_unknown else 'known'} sizes"


def _packed(
    place: tuple[int, ...],
    chunk: Any,
    *arrays: Any,
    stretched: Mapping[str, Sequence[int]],
    nodata: NDArray[Any] | None,
) -> Accompanied:
    """Pack a chunk with its companions, each broadcast along its axes in `stretched`."""
    first = chunk if isinstance(chunk, Accompanied) else Accompanied(chunk)
    values = first.values
    given = {
        name: _fitted(
            array.at(place) if isinstance(array, SmallCompanion) else array, values, name, axes
        )
        for (name, axes), array in zip(stretched.items(), arrays, strict=True)
    }
    keeps = [first.keeps, given.get("where")]
    if nodata is not None:
        keeps.append(_differs(values, nodata))
    some = [each for each in keeps if each is not None]
    every = some[0] if some else None
    for each in some[1:]:
        every = every & each
    more = {"weights": first.weights, "labels": first.labels} | given
    return Accompanied(values, every, more["weights"], more["labels"])


def _fitted(array: Any, values: Any, name: str, stretched: Sequence[int]) -> Any:
    """Convert a companion to the shape and kind of the elements, broadcast along some axes."""
    if isinstance(values, np.ndarray):
        array = array if isinstance(array, np.ndarray) else to_host(array)
    elif not (is_array(array) and type(array) is type(values)):
        array = like(np.array(to_host(array), order="C"), values)
    shape = tuple(map(int, values.shape))
    own_shape = tuple(map(int, array.shape))
    if own_shape == shape:
        return array
    # A chunk of one element in an array of unknown size is not broadcast.
    begin = len(shape) - len(own_shape)
    if any(own != shape[begin + i] and i not in stretched for i, own in enumerate(own_shape)):
        raise ValueError(
            f"a chunk of {name} has shape {own_shape}, and that of the data has shape "
            f"{shape}: they must have the same chunks"
        )
    return namespace(array).broadcast_to(array, shape)


def _stretched(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return, for each array, the axes along which its size is 1."""
    return {
        name: tuple(axis for axis, size in enumerate(array.shape) if size == 1)
        for name, array in arrays.items()
    }


def _differs(values: Any, nodata: NDArray[Any]) -> Any:
    """Return a mask of the elements that equal none of some values, NaN and NaT included."""
    every: Any = None
    # The array API compares arrays with Python numbers; NumPy dates need NumPy scalars.
    for value in nodata if isinstance(values.dtype, np.dtype) else nodata.tolist():
        is_other = values == values if value != value else values != value
        every = is_other if every is None else every & is_other
    return every
