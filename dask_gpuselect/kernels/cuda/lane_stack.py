"""The layout of lanes in memory, and the wanted ranks, as records for ``lanes.cuh``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import MOST_STACKED
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.launch import Array, most_shared
from dask_gpuselect.maths.lane_cuts import LaneOrder

MOST_BLOCKS = (1 << 31) - 1  # blocks of a grid


def kernel_for(dtype: np.dtype[Any], stack: Any, most_runs: int = 2) -> source.LaneKernel | None:
    """Choose the kernel that reads lanes of this length and layout once, a block for each tile.

    None if they are too long, or have more tiles than a grid has blocks.
    """
    side_by_side = bool(stack["n_inner"] > 1)
    shared = most_shared(cupy.cuda.Device().id)
    in_vectors = not side_by_side and _is_in_vectors(stack, 16 // dtype.itemsize)
    how: dict[str, Any] = {"side_by_side": side_by_side, "in_vectors": in_vectors}
    kernel = source.lane_kernel(dtype, int(stack["n"]), shared, most_runs=most_runs, **how)
    if kernel is None or -(-int(stack["n_lanes"]) // kernel.lanes) > MOST_BLOCKS:
        return None
    return kernel


def in_parts(stack: Any) -> source.Defined:
    """Return the definitions that compile a kernel for lanes of these chunks, with masks if any."""
    masked = source.KEEPS if stack["has_missing"] else ()
    return (("IN_PARTS", int(stack["n_parts"] > 1)), *masked)


def as_bytes(record: Any) -> Any:
    """Return a record as opaque bytes; CuPy would go through its fields one by one."""
    return record.reshape(1).view(f"V{record.itemsize}")[0]


def _is_in_vectors(stack: Any, size: int) -> bool:
    """Return whether every lane consists of whole 16-byte vectors of `size` elements."""
    part = stack["parts"][0]
    parts_fit = int(stack["n_parts"]) == 1 and int(part["row"]) == 1 and int(part["data"]) % 16 == 0
    return parts_fit and int(stack["n"]) % size == 0 and int(part["outer"]) % size == 0


class Part(NamedTuple):
    """A chunk as (outer, rows, inner) dimensions; strides are in elements."""

    chunk: Array
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]


def parts_in_three(chunks: Sequence[Array], axes: tuple[int, ...]) -> list[Part]:
    ndim = chunks[0].ndim
    if not axes:  # every element is a lane
        chunks, axes, ndim = [chunk[..., None] for chunk in chunks], (ndim,), ndim + 1
    if axes[-1] - axes[0] >= len(axes):  # other axes lie between the reduced ones
        kept = [axis for axis in range(ndim) if axis not in axes]
        chunks = [cupy.ascontiguousarray(chunk.transpose(*kept, *axes)) for chunk in chunks]
        axes = tuple(range(len(kept), ndim))
    if len(chunks) > MOST_STACKED:
        # Joined along the first of the axes: the chunks have all of the others.
        joined = [_as_rows(chunk, axes) for chunk in chunks]
        chunks, axes = [cupy.concatenate(joined, axis=1)], (1,)
    parts = [_part(chunk, axes) or _part(cupy.ascontiguousarray(chunk), axes) for chunk in chunks]
    return [part for part in parts if part is not None and part.shape[1]]


def _as_rows(chunk: Array, axes: tuple[int, ...]) -> Array:
    shape = chunk.shape
    outer, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
    return chunk.reshape(outer, math.prod(shape[axes[0] : axes[-1] + 1]), inner)


def _part(chunk: Array, axes: tuple[int, ...]) -> Part | None:
    """Return a chunk as a `Part`; None if one of its three dimensions would have uneven strides."""
    groups = (range(axes[0]), axes, range(axes[-1] + 1, chunk.ndim))
    even = [_even([(chunk.shape[i], chunk.strides[i]) for i in group]) for group in groups]
    if None in even:
        return None
    sizes, strides = zip(*even, strict=True)
    return Part(chunk, sizes, tuple(stride // chunk.itemsize for stride in strides))


def _even(dimensions: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Merge dimensions into one, and return its size and stride; None if strides are uneven."""
    dimensions = [(size, stride) for size, stride in dimensions if size != 1]
    for (_, wide), (size, stride) in zip(dimensions, dimensions[1:], strict=False):
        if wide != size * stride:
            return None
    return math.prod(size for size, _ in dimensions), dimensions[-1][1] if dimensions else 0


def stack_of(parts: list[Part], n: int) -> Any:
    outer, _, inner = parts[0].shape
    stack = np.zeros((), source.STACK)
    stop = 0
    for told, part in zip(stack["parts"], parts, strict=False):
        stop += part.shape[1]
        told["data"], told["stop"] = part.chunk.data.ptr, stop
        told["outer"], told["row"], told["inner"] = part.strides
    stack["n_parts"], stack["n"], stack["n_inner"] = len(parts), n, inner
    stack["n_lanes"] = outer * inner
    stack["one"] = 1
    return stack


def wanted_of(question: LaneOrder, first_v: int, tables: tuple[Array, Array]) -> Any:
    """Describe the wanted ranks, from tables for `first_v` valid elements and more."""
    wanted = np.zeros((), source.WANTED)
    wanted["ranks"], wanted["weights"] = (table.data.ptr for table in tables)
    wanted["first_v"], wanted["n_answers"] = first_v, question.n_answers
    wanted["mixes"], wanted["skips_missing"] = question.mixes, question.skips_missing
    return wanted


# Cached, because lanes of one size come repeatedly; floats have a row for every number of valid
# elements.
@lru_cache(maxsize=16)
def tables_of(question: LaneOrder, first_v: int, n: int, device: int) -> tuple[Array, Array]:
    """Return ranks and weights of the answers on the device; see `Wanted` of ``lanes.cuh``."""
    counts = np.arange(first_v, n + 1)
    wanted = question.wanted_of_lanes(np.maximum(counts, 1))
    shape = (question.n_answers, len(counts))
    lower, upper, weight = (np.broadcast_to(values, shape).T for values in wanted)
    ranks = np.stack([lower, upper], axis=-1)
    return cupy.array(ranks, np.int32, order="C"), cupy.array(weight, order="C")
