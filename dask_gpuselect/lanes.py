"""Quantiles along some axes: one for every lane, the elements that differ in these axes alone.

Two plans, by the chunks, and both are one load:

- *lanes*: the reduced axes are in one chunk, so every chunk has all of its lanes;
- *column*: the chunks of one output block, its column, fit `column_limit`, and one task takes them
  all. Nothing is rechunked, and the output has the input's other chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

import dask.array as da
import numpy as np
from dask import config
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.utils import format_bytes, parse_bytes

from dask_gpuselect import kernels
from dask_gpuselect.kernels.generic import Lanes, like

COLUMN_LIMIT = "1 GiB"
"""Of the chunks that one task takes, unless the config value ``dask_gpuselect.column-limit`` says
otherwise (bytes, or a string such as ``"500 MB"``)."""


class LaneQuestion(Protocol):
    """What is asked of every lane. Deterministically tokenizable, and picklable."""

    @property
    def n_answers(self) -> int:
        """How many answers a lane has."""

    def lane_ranks(self, n: Any) -> tuple[Any, Any]:
        """The two ranks of each answer among `n` valid elements, for an array of such numbers:
        of shape ``(n_answers, len(n))``."""

    def lane_answer(self, found: Lanes) -> np.ndarray[Any, Any]:
        """The answers, ``(n_answers, *lanes)``, on the host."""


def ask_lanes(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    keepdims: bool,
    is_scalar: bool,
) -> da.Array:
    """The lazy answer to a question about every lane of a dask array, in one load.

    Parameters
    ----------
    axes : tuple of int
        The reduced ones, ascending; not all of them.
    keepdims, is_scalar : bool
        Whether reduced axes stay, with size 1; whether the axis of the answers is left out.
    """
    column = column_bytes(x, axes)
    limit = column_limit()
    if column > limit:
        raise NotImplementedError(
            f"a reduction along axes {axes} of columns of {format_bytes(int(column))}, more than "
            f"dask_gpuselect.column-limit ({format_bytes(limit)}), is not implemented yet: raise "
            "the limit, or make the chunks smaller along the other axes"
        )
    plan = "lanes" if all(x.numblocks[axis] == 1 for axis in axes) else "column"
    every = tuple(range(x.ndim))
    answers, kept = x.ndim, [axis for axis in every if axis not in axes]
    out = [] if is_scalar else [answers]
    new_axes = {} if is_scalar else {answers: question.n_answers}
    for axis in every:
        if axis in kept:
            out.append(axis)
        elif keepdims:
            out.append(x.ndim + 1 + axis)
            new_axes[x.ndim + 1 + axis] = 1
    result: da.Array = da.blockwise(
        partial(
            _answer_block,
            dtype=x.dtype,
            question=question,
            axes=axes,
            keepdims=keepdims,
            squeeze=is_scalar,
        ),
        tuple(out),
        x,
        every,
        name=f"{label}-{plan}-{tokenize(x.name, question, axes, keepdims, is_scalar)}",
        new_axes=new_axes,
        concatenate=False,
        dtype=dtype,
        meta=meta_from_array(x._meta, ndim=len(out), dtype=dtype),
    )
    return result


def ask_lanes_now(
    array: Any,
    dtype: np.dtype[Any],
    question: LaneQuestion,
    axes: tuple[int, ...],
    *,
    keepdims: bool,
    is_scalar: bool,
) -> np.ndarray[Any, Any]:
    """The answer for an array in memory, on the host."""
    found = kernels.lanes([array], dtype, axes, question.lane_ranks)
    return _shaped(question.lane_answer(found), axes, keepdims=keepdims, squeeze=is_scalar)


def column_bytes(x: da.Array, axes: tuple[int, ...]) -> float:
    """Bytes of the largest column of chunks; 0 if it is not known."""
    sizes = (
        sum(x.chunks[axis]) if axis in axes else max(x.chunks[axis], default=0)
        for axis in range(x.ndim)
    )
    found = math.prod(sizes) * x.dtype.itemsize
    return 0 if math.isnan(found) else found


def column_limit() -> int:
    """In bytes, from dask's config."""
    return int(parse_bytes(config.get("dask_gpuselect.column-limit", COLUMN_LIMIT)))


def _answer_block(
    column: Any,
    *,
    dtype: np.dtype[Any],
    question: LaneQuestion,
    axes: tuple[int, ...],
    keepdims: bool,
    squeeze: bool,
) -> Any:
    """One output block, from the chunks of its column: nested lists, where an axis has several."""
    chunks = list(_flat(column))
    found = kernels.lanes(chunks, dtype, axes, question.lane_ranks)
    answer = _shaped(question.lane_answer(found), axes, keepdims=keepdims, squeeze=squeeze)
    return answer if isinstance(chunks[0], np.ndarray) else like(answer, chunks[0])


def _flat(nested: Any) -> Iterator[Any]:
    if isinstance(nested, list):
        for part in nested:
            yield from _flat(part)
    else:
        yield nested


def _shaped(
    answer: np.ndarray[Any, Any], axes: tuple[int, ...], *, keepdims: bool, squeeze: bool
) -> np.ndarray[Any, Any]:
    """With the reduced axes back, and without the first if there is but one answer."""
    if keepdims:
        answer = np.expand_dims(answer, tuple(axis + 1 for axis in axes))
    return answer[0] if squeeze else answer
