"""Ask for windows of an array: lazily for a lazy array, eagerly for others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.arrays import in_kind, numpy_dtype
from dask_gpuselect.engine.halos import Halo, in_memory, with_halos
from dask_gpuselect.engine.plans import Plan, choose, described, known_bytes
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.kernels.radix import check_kind
from dask_gpuselect.maths.windows import Frame, RowWindows
from dask_gpuselect.windows.questions import WindowQuestion, answer_windows, form_of

# Each element beyond the ends has an index in the graph, and each turn at an end a slice of each
# chunk. With three chunks of 20 elements, 10^6 took 15 s, and 10^8 all memory.
FARTHEST = 1 << 20


def frame_of(reaches: Sequence[Halo], footprint: tuple[bool, ...] | None = None) -> Frame:
    """Return the window that reaches as far as halos say along each axis."""
    size, step = zip(*((reach.size, reach.step) for reach in reaches), strict=True)
    return Frame(size, step, footprint)


def each_axis(
    value: Any, axes: Sequence[int], name: str, error: type[Exception] = ValueError
) -> tuple[Any, ...]:
    """Return a value for each axis that windows lie along.

    Raises
    ------
    error
        If there is another number of values.
    """
    if isinstance(value, str) or np.ndim(value) == 0:
        return (value,) * len(axes)
    if len(value) != len(axes):
        raise error(f"{name} must be one value, or one for each of {len(axes)} axes, not {value}")
    return tuple(value)


def ask_windows(
    label: str,
    array: Any,
    reaches: Sequence[Halo] | RowWindows,
    question: WindowQuestion | None,
    *,
    is_one: bool = True,
    footprint: tuple[bool, ...] | None = None,
    fill: Any = None,
) -> Any:
    """Answer the windows of each element.

    Parameters
    ----------
    label : str
        Of the names of layers.
    array : dask array, array or Accompanied
    reaches : sequence of Halo, or RowWindows
        How far windows reach along each axis; or windows of the elements of an array in memory.
    question : WindowQuestion or None
        None asks how many valid elements there are.
    is_one : bool
        Whether answers have no axis for several quantiles.
    footprint : tuple of bool, optional
        Which places of a window count.
    fill : scalar, optional
        What is beyond the ends; see `with_halos`.
    """
    check_kind(values_of(getattr(array, "_meta", array)), "a moving window")
    if isinstance(reaches, RowWindows):
        assert question is not None
        answers = kernels.windows.answer_rows(array, numpy_dtype(array), reaches, question)
        return answers[0] if is_one else answers
    reaches = tuple(reaches)
    dtype = numpy_dtype(array)
    windows, result, new_axes = _windows(
        reaches, footprint, question, dtype, array.shape, is_one=is_one
    )
    if isinstance(array, DaskArray):
        plan = choose(_plan(array, reaches, math.prod(new_axes) * result.itemsize))
        label = f"{label}-{plan.name}"
        return with_halos(windows, label, array, reaches, result, fill, new_axes)
    answers = windows(in_memory(array, reaches, fill))
    return in_kind(answers, answers)


@lru_cache(maxsize=64)  # a small image takes less time
def _windows(
    reaches: tuple[Halo, ...],
    footprint: tuple[bool, ...] | None,
    question: WindowQuestion | None,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    *,
    is_one: bool,
) -> tuple[Callable[[Any], Any], np.dtype[Any], tuple[int, ...]]:
    """Return what answers windows of padded chunks, the dtype of answers, and their new axes."""
    for axis, (reach, n) in enumerate(zip(reaches, shape, strict=True)):
        if max(reach.before, reach.after) > max(n, FARTHEST):
            raise ValueError(
                f"windows of {reach.size} elements reach too far beyond x, which has {n} elements "
                f"along axis {axis}: pass a window of at most {max(n, FARTHEST)}, or for rolling "
                "boundary=None"
            )
    how: dict[str, Any] = {"question": question, "dtype": dtype, "is_one": is_one}
    windows = partial(answer_windows, frame=frame_of(reaches, footprint), **how)
    return windows, *form_of(question, is_one=is_one)


def _plan(x: DaskArray, reaches: Sequence[Halo], answer_bytes: int) -> Plan:
    """Plan windows: a task takes a chunk, and of its neighbours what the windows reach.

    A block of answers may be larger than its chunk, and a task holds both.
    """
    taken = answers = 1
    for sizes, reach in zip(x.chunks, reaches, strict=True):
        taken *= max(sizes) + reach.before + reach.after
        answers *= -(-max(sizes) // reach.step)
    task_bytes = known_bytes(taken * Source.of(x).element_bytes() + answers * answer_bytes)
    return described(Plan("windows", 1, task_bytes, 0), x)
