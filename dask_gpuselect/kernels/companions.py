"""Chunks with their companions: masks, weights and labels, one for each element, read with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from dask_gpuselect.arrays import Array, all_true, checked, is_cupy, like, namespace, to_host

AnyKernel = TypeVar("AnyKernel", bound=Callable[..., Any])
WORDS = (1, 2, 4, 8)  # bytes of unsigned integers

MOST_STACKED = 64
"""Largest number of chunks of a column that a device reads in place. More are joined by a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Accompanied:
    """A chunk, or an array in memory, with its companions.

    Companions have the shape of the elements. They may be broadcast views of smaller arrays.

    Parameters
    ----------
    values : array
        Elements.
    keeps : array of bool, optional
        Mask: True for elements that take part; all of them by default.
    weights : array of real numbers, optional
        Weight of each element; all equal by default.
    labels : array of int64, optional
        Labels that groups are made of; no kernel reads them.
    """

    values: Array
    keeps: Array | None = None
    weights: Array | None = None
    labels: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def companions(self) -> dict[str, Array]:
        """The companions that are given, by name."""
        given = {"keeps": self.keeps, "weights": self.weights, "labels": self.labels}
        return {name: array for name, array in given.items() if array is not None}

    @property
    def nbytes(self) -> int:
        arrays = (self.values, *self.companions.values())
        return sum(int(getattr(array, "nbytes", 0)) for array in arrays)

    def __sizeof__(self) -> int:
        return 64 + self.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Send broadcast views small, and broadcast them again where they arrive."""
        few = {name: (unstretched(each), each.shape) for name, each in self.companions.items()}
        return _received, (self.values, few)

    def __getitem__(self, index: Any) -> Any:
        """Return some of the elements, with their companions."""
        return each_array(self, lambda array: array[index])


def each_array(chunk: Any, function: Callable[[Array], Array]) -> Any:
    """Apply a function to the values of a chunk and to each of its companions."""
    if not isinstance(chunk, Accompanied):
        return function(chunk)
    arrays = {name: function(array) for name, array in chunk.companions.items()}
    return replace(chunk, values=function(chunk.values), **arrays)


def kept(values: Array, keeps: Array) -> Array:
    """Copy the elements of a CuPy array that a mask keeps."""
    words = values.view(f"u{values.dtype.itemsize}")  # CuPy takes denormal float32 for zeros
    return words[keeps].view(values.dtype)


def kept_there(chunk: Any) -> Array | None:
    """Copy the elements of a CuPy array that its mask keeps; None for any other chunk."""
    values, keeps = unpaired(chunk)
    if keeps is None or len(chunk.companions) > 1 or not is_cupy(values):
        return None
    return kept(values, keeps)


def _received(values: Array, few: dict[str, tuple[Array, tuple[int, ...]]]) -> Accompanied:
    """Restore a chunk that another process has sent."""
    companions = {name: stretched(array, shape) for name, (array, shape) in few.items()}
    return Accompanied(values, **companions)


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """Arrays on one device that are treated as one without a copy.

    Kernels run over all of them without waiting for the host in between.

    Parameters
    ----------
    parts : tuple of array
        At least one array, all of one dtype; or all `Accompanied`, with masks only.
    """

    parts: tuple[Any, ...]

    @property
    def size(self) -> int:
        return sum(math.prod(part.shape) for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def dtype(self) -> Any:
        return self.parts[0].dtype

    @property
    def nbytes(self) -> int:
        return sum(int(part.nbytes) for part in self.parts)


MOST_COPIED = 1 << 30
"""Most bytes of long lanes that a device copies to rows; larger ones are read where they are."""


class ChunkColumn(NamedTuple):
    """Some chunks, and the lanes along the reduced axes of all of them together.

    Parameters
    ----------
    chunks : sequence of chunks
        Their shapes are equal except along `axes`.
    dtype : dtype
        The dtype of the dask array.
    axes : tuple of int
        Reduced axes, ascending. Lanes are numbered in C order of the other axes.
    """

    chunks: Sequence[Any]
    dtype: np.dtype[Any]
    axes: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)

    @property
    def n(self) -> int:
        """The number of elements of a lane; 0 for those of `maths.runs.Runs`."""
        return sum(math.prod(chunk.shape[axis] for axis in self.axes) for chunk in self.chunks)

    @property
    def are_rows(self) -> bool:
        """True if lanes extend along the last axes."""
        return not self.axes or self.axes[0] == len(self.chunks[0].shape) - len(self.axes)

    @property
    def may_be_rows(self) -> bool:
        """True if lanes are rows, or small enough for a device to copy them to rows."""
        return self.are_rows or self.size * self.dtype.itemsize <= MOST_COPIED

    def as_type(self, dtype: np.dtype[Any] | None = None) -> ChunkColumn:
        """Return the elements in a dtype, by default in that of the dask array."""
        dtype = self.dtype if dtype is None else dtype
        chunks = [values_of(chunk).astype(dtype, copy=False) for chunk in self.chunks]
        return ChunkColumn(chunks, dtype, self.axes)


def parts_of(values: Any) -> tuple[Any, ...]:
    """Return the parts of `Several`, or else the array or chunk itself."""
    return values.parts if isinstance(values, Several) else (values,)


def values_of(chunk: Any) -> Array:
    """Return the elements of a chunk, without its companions."""
    return chunk.values if isinstance(chunk, Accompanied) else chunk


def unpaired(chunk: Any) -> tuple[Array, Array | None]:
    """Return the elements of a chunk, and its mask if it has one."""
    return (chunk.values, chunk.keeps) if isinstance(chunk, Accompanied) else (chunk, None)


def with_companions(function: Callable[..., Any]) -> Callable[[AnyKernel], AnyKernel]:
    """Decorate a function of chunks: call another one instead if the chunks have companions."""

    def choose(alone: AnyKernel) -> AnyKernel:
        @wraps(alone)
        def call(chunks: Any, *arguments: Any, **others: Any) -> Any:
            first = chunks.chunks[0] if isinstance(chunks, ChunkColumn) else chunks[0]
            chosen = function if isinstance(first, Accompanied) else alone
            return chosen(chunks, *arguments, **others)

        return cast(AnyKernel, call)

    return choose


def checked_chunk(chunk: Any, dtype: np.dtype[Any]) -> Any:
    """Check that kernels take the kind and dtype of a chunk, with companions or without.

    See `arrays.checked`.
    """
    if isinstance(chunk, Accompanied):
        values = checked(chunk.values, dtype)
        return chunk if values is chunk.values else replace(chunk, values=values)
    return checked(chunk, dtype)


def words_of(chunk: Any, dtype: np.dtype[Any]) -> Any:
    """Return a NumPy or CuPy chunk with unsigned integers of the same bits as elements."""
    values, keeps = unpaired(chunk)
    words = values.astype(dtype.newbyteorder("="), copy=False).view(f"u{dtype.itemsize}")
    return words if keeps is None else Accompanied(words, keeps)


def copied(chunk: Any) -> Any:
    """Copy a chunk and its companions."""
    if not isinstance(chunk, Accompanied):
        return namespace(chunk).asarray(chunk, copy=True)
    arrays = {
        name: stretched(copied(unstretched(array)), array.shape)
        for name, array in chunk.companions.items()
    }
    return replace(chunk, values=copied(chunk.values), **arrays)


def unstretched(array: Array) -> Array:
    """Return an array with size 1 along axes of stride 0, along which it is a broadcast view.

    Arrays that do not tell their strides are returned unchanged. Labels of days, for example,
    become one number per day instead of one per element.
    """
    strides: Any = getattr(array, "strides", None)
    if not strides or 0 in array.shape:
        return array
    return array[tuple(slice(1) if step == 0 else slice(None) for step in strides)]


def stretched(array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of the given shape, as a broadcast view if it has another."""
    if tuple(array.shape) == tuple(shape):
        return array
    return namespace(array).broadcast_to(array, shape)


def without_repeats(array: Array) -> Array:
    """Return a NumPy or CuPy array with size 1 along axes along which all slices are bit-identical.

    Unlike `unstretched`, this depends on the values alone: a broadcast view and a copy of it give
    the same result. All slices are compared only if the first and the last are identical.
    """
    array = unstretched(array)
    for axis, size in enumerate(array.shape):
        first, last = (_at(array, axis, slice(i, i + 1)) for i in (0, size - 1))
        if size > 1 and _are_same(first, last) and _are_same(first, array):
            array = first
    return array


def as_words(array: Array) -> list[Array]:
    """Return the elements of a NumPy or CuPy array as unsigned integers of the same bits.

    An element of more than 8 bytes becomes one element of each of several arrays.
    """
    size = array.dtype.itemsize
    if size in WORDS:
        return [array.view(f"u{size}")]
    own, xp = unstretched(array), namespace(array)
    wide = xp.zeros((*own.shape, -(-size // 8) * 8), np.uint8)
    flat = xp.ascontiguousarray(own).reshape(-1)
    wide[..., :size] = flat.view(np.uint8).reshape(*own.shape, size)
    words = wide.view(np.uint64)
    return [stretched(words[..., i], array.shape) for i in range(words.shape[-1])]


def _at(array: Array, axis: int, some: slice) -> Array:
    return array[(slice(None),) * axis + (some,)]


def _are_same(a: Array, b: Array) -> bool:
    """Return whether all bits are the same, with broadcasting."""
    size = a.dtype.itemsize
    word = f"u{size}" if size in WORDS else f"V{size}"  # V for strings and records
    return all_true(a.view(word) == b.view(word))


# --- Labels ---------------------------------------------------------------------------------------


def as_codes(codes: Any, values: Any) -> Any:
    """Convert codes to int32 where the elements are; on a device they may have fewer bytes."""
    if not isinstance(values, np.ndarray) and is_cupy(values) and is_cupy(codes):
        is_short = codes.dtype.kind == "i" and codes.itemsize < 4
        own = codes if is_short else codes.astype(np.int32, copy=False)
        return namespace(own).ascontiguousarray(own)  # and no broadcast view
    return like(np.require(to_host(codes), np.int32, ["C", "A"]), values)
