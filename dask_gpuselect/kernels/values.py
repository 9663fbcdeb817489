"""What is counted and weighed value by value, of elements of one or two bytes: reports are on the
host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import checked, is_cupy, namespace, to_host
from dask_gpuselect.kernels.companions import (
    Accompanied,
    CodesOf,
    as_codes,
    checked_chunk,
    group_codes,
    values_of,
)
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.kernels.reference.groups import WeighedWords
from dask_gpuselect.kernels.reference.lanes import lanes_last
from dask_gpuselect.kernels.reference.weighing import WHOLE, as_weights
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.lane_value_counts import LaneValueCounts
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.maths.value_weights import ValueWeights, valid_words


@one_way
def value_counts(chunk: Any, dtype: np.dtype[Any]) -> ValueCounts:
    """How often each value occurs in a chunk of any shape, of a countable dtype."""
    chunk = checked_chunk(chunk, dtype)
    found = backend_for(chunk).selection.value_counts(chunk, dtype)
    n_left_out = math.prod(chunk.shape) - found.n_valid - found.n_missing
    return replace(found, n_left_out=n_left_out)


@one_way
def lane_value_counts(
    chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...]
) -> LaneValueCounts:
    """How often each value occurs in every lane along `axes`, of all chunks together, of a
    countable dtype. Scratch: a chunk, where lanes are side by side."""
    return LaneValueCounts.merge([_counts_of_chunk(chunk, dtype, axes) for chunk in chunks])


def _counts_of_chunk(chunk: Any, dtype: np.dtype[Any], axes: tuple[int, ...]) -> LaneValueCounts:
    values = values_of(chunk)
    rows = _rows_of_lanes(checked(values, dtype), axes)
    keeps = None
    if isinstance(chunk, Accompanied) and chunk.keeps is not None:
        keeps = _rows_of_lanes(chunk.keeps, axes)
    if is_cupy(values):
        n_words = 1 << 8 * dtype.itemsize
        table = backend_for(values).groups.lane_counts(_words(rows, dtype), keeps, n_words)
        if table is not None:
            n_left_out = rows.shape[1] - table.sum(axis=1)
            return LaneValueCounts.of_words(table, dtype, n_left_out)
    return LaneValueCounts.of_lanes(tuple(_counts_of_lanes(rows, keeps, dtype)), dtype)


@one_way
def lane_value_weights(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    *,
    with_squares: bool,
) -> ValueWeights:
    """What all elements of each value weigh in every lane along `axes`, of all chunks together, of
    a countable dtype; all elements are a lane along all axes. Scratch: a chunk with its weights as
    float64, where lanes are side by side, and 48 bytes for each value that there can be, of each
    lane."""
    n_lanes = math.prod(n for axis, n in enumerate(chunks[0].shape) if axis not in axes)

    def parts() -> Iterator[WeighedWords]:
        for chunk in chunks:
            values = _rows_of_lanes(_words_on_host(chunk.values, dtype), axes)
            lane = np.arange(n_lanes, dtype=np.int32)
            if n_lanes == 1:
                codes = np.broadcast_to(lane, values.size)  # of one number
            else:
                codes = np.repeat(lane, values.shape[-1])
            flat = _flat_lanes(chunk, axes)
            yield values.reshape(-1), _weights_on_host(flat), flat.keeps, codes

    return _value_weights(parts(), dtype, n_lanes, with_squares=with_squares)


def _flat_lanes(chunk: Accompanied, axes: tuple[int, ...]) -> Accompanied:
    """What goes with the elements of a chunk, lane by lane, on the host."""
    arrays = {"keeps": chunk.keeps, "weights": chunk.weights}
    turned = {
        name: _rows_of_lanes(to_host(array), axes).reshape(-1)
        for name, array in arrays.items()
        if array is not None
    }
    return Accompanied(turned["weights"], **turned)


def _counts_of_lanes(rows: Any, keeps: Any, dtype: np.dtype[Any]) -> Iterator[ValueCounts]:
    for i in range(rows.shape[0]):
        lane = rows[i, ...]
        yield value_counts(lane if keeps is None else Accompanied(lane, keeps[i, ...]), dtype)


def _rows_of_lanes(array: Any, axes: tuple[int, ...]) -> Any:
    """The lanes of an array as rows: a copy unless each is contiguous."""
    rows = lanes_last(array, axes)
    return namespace(rows).reshape(rows, (math.prod(rows.shape[:-1]), rows.shape[-1]))


@one_way
def group_value_counts(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], codes_of: CodesOf, n_groups: int
) -> LaneValueCounts:
    """How often each value occurs in every group of all chunks, of a countable dtype: reports are
    on the host.

    Scratch: the codes of a chunk, and 8 bytes for each value that there can be, of each group.
    """
    kernel = backend_for(_counted_as(chunks[0])).groups.value_counts

    def parts() -> Iterator[tuple[Any, Any]]:
        for chunk in chunks:
            words = _words(checked(chunk.values, dtype), dtype)
            yield words.reshape(-1), _codes_beside(chunk, codes_of)

    def left_out() -> Iterator[tuple[Any, Any]]:
        """Those elements as words that are all alike."""
        for chunk in chunks:
            if chunk.keeps is not None:
                others = namespace(chunk.keeps).logical_not(chunk.keeps)
                codes = _codes_beside(replace(chunk, keeps=others), codes_of)
                yield namespace(codes).zeros(codes.shape, dtype=np.uint8), codes

    table = kernel(parts(), n_groups, 1 << 8 * dtype.itemsize)
    return LaneValueCounts.of_words(table, dtype, kernel(left_out(), n_groups, 1)[:, 0])


def _counted_as(chunk: Accompanied) -> Any:
    """An array of the kind by whose kernels a chunk is counted: its own, or NumPy's."""
    return chunk.values if is_cupy(chunk.values) else np.empty(0)


def _codes_beside(chunk: Accompanied, codes_of: CodesOf) -> Any:
    """The number of the group of each element, -1 for those that are left out, of the kind by whose
    kernels they are counted."""
    kind, codes = _counted_as(chunk), group_codes(chunk, codes_of)
    return as_codes(codes if is_cupy(kind) else to_host(codes), kind)


def _words(values: Any, dtype: np.dtype[Any]) -> Any:
    """The bits of elements of a countable dtype as unsigned integers, of their shape: on their
    device if that is a CUDA device, else on the host."""
    values = values if is_cupy(values) else to_host(values)
    native = values.astype(dtype.newbyteorder("="), copy=False)
    return native.view(np.dtype(f"u{dtype.itemsize}"))


@one_way
def group_value_weights(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    codes_of: CodesOf,
    n_groups: int,
    *,
    with_squares: bool,
) -> ValueWeights:
    """What all elements of each value weigh in every group of all chunks, of a countable dtype: on
    the host.

    Scratch: the codes of a chunk and its weights as float64, and 48 bytes for each value that there
    can be, of each group.
    """

    def parts() -> Iterator[WeighedWords]:
        for chunk in chunks:
            keeps = None if chunk.keeps is None else to_host(chunk.keeps).reshape(-1)
            words = _words_on_host(chunk.values, dtype).reshape(-1)
            codes = group_codes(replace(chunk, keeps=None), codes_of)
            codes = as_codes(to_host(codes), words)
            takes = codes >= 0
            yield words, _weights_on_host(chunk, takes), keeps, codes

    return _value_weights(parts(), dtype, n_groups, with_squares=with_squares)


def _value_weights(
    parts: Iterator[WeighedWords], dtype: np.dtype[Any], n_groups: int, *, with_squares: bool
) -> ValueWeights:
    kernel = backend_for(np.empty(0)).groups.value_weights
    n_words = 1 << 8 * dtype.itemsize
    found = kernel(parts, n_groups, n_words, valid_words(dtype) if with_squares else None)
    return ValueWeights.merge([ValueWeights.of_words(each, dtype) for each in found])


def _words_on_host(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(_words(to_host(checked(values, dtype)), dtype))


def _weights_on_host(chunk: Accompanied, takes: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """The weights of a chunk, of one dimension, as kernels add them up: integers beyond 2**53 are
    checked, where those are that are taken and kept."""
    weights = np.asarray(to_host(chunk.weights))
    if weights.dtype.kind in "iu" and int(weights.max(initial=0)) > WHOLE:
        flat = weights.reshape(-1)
        for mask in (takes, None if chunk.keeps is None else to_host(chunk.keeps).reshape(-1)):
            flat = flat if mask is None else np.where(mask, flat, flat.dtype.type(0))
        return np.asarray(as_weights(flat))
    return np.require(weights, np.float64, ["C", "A"]).reshape(-1)
