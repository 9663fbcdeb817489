"""Questions about every window, asked lazily of a lazy array, and eagerly of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.arrays import (
    any_true,
    as_type,
    in_kind,
    is_kind,
    like,
    namespace,
    numpy_dtype,
    to_host,
)
from dask_gpuselect.engine.halos import Halo, in_memory, with_halos
from dask_gpuselect.engine.plans import Plan, choose, described, known_bytes
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.kernels.radix import check_kind
from dask_gpuselect.maths.envelope import exact_gap
from dask_gpuselect.maths.windows import Frame, RowWindows
from dask_gpuselect.quantiles.questions import Quantiles, missing_of


@dataclass(frozen=True)
class WindowQuestion(Quantiles):
    """Quantiles of every window, of its elements or of their distances from its median.

    It gives no warnings, because windows of too few elements are expected.

    Parameters
    ----------
    result : dtype
        Of the answers.
    least : int
        How many valid elements a window needs; with fewer it is answered by NaN.
    deviates : bool
        True if quantiles are those of distances.
    is_gap : bool
        True if the answer is the difference of two quantiles.
    scale : float
        What the answers are divided by.
    """

    result: np.dtype[Any]
    least: int = field(default=1, kw_only=True)
    deviates: bool = field(default=False, kw_only=True)
    is_gap: bool = field(default=False, kw_only=True)
    scale: float = field(default=1.0, kw_only=True)
    warns: bool = field(default=False, kw_only=True)

    lane_answer = Quantiles.lane_values

    def finished(  # type: ignore[override]
        self, answers: Any, n_valid: Any, *, is_scaled: bool = False
    ) -> Any:
        """Return the answers by the order statistics of all windows: see `WindowOrder`."""
        if self.is_gap:
            answers = _gap(answers)
            answers /= self.scale
        if answers.dtype != self.result:
            answers = as_type(answers, self.result.name)
        if self.scale != 1 and not (self.is_gap or is_scaled):
            answers = answers / self.result.type(self.scale)
        # Kernels answer NaN for windows without elements.
        if n_valid is not None and (self.least > 1 or self.dtype.kind in "bui"):
            is_few = n_valid < max(self.least, 1)
            if any_true(is_few):
                missing = np.full(1, missing_of(self.result), self.result)
                answers = namespace(answers).where(is_few, like(missing, answers), answers)
        return answers


def _gap(pair: Any) -> Any:
    """Subtract the lower quantiles from the upper ones, as one row of float64."""
    if is_kind(pair, "real floating"):
        gap = as_type(pair[1:], "float64")  # a copy
        gap -= pair[:1]
        return gap
    low, high = to_host(pair)
    gap = exact_gap(low, high)[None]
    return namespace(pair).asarray(gap)


def form_of(
    question: WindowQuestion | None, *, is_one: bool
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype of answers, and the size of their axis for several quantiles, if any."""
    if question is None:
        return np.dtype(np.int64), ()
    return question.result, () if is_one else (question.n_answers,)


def answer_windows(
    chunk: Any, *, frame: Frame, question: WindowQuestion | None, dtype: np.dtype[Any], is_one: bool
) -> Any:
    """Answer all windows of a padded chunk.

    Parameters
    ----------
    chunk : array or Accompanied
    frame : Frame
    question : WindowQuestion or None
        None asks how many valid elements there are.
    dtype : dtype
        Of the elements.
    is_one : bool
        Whether answers have no axis for several quantiles.
    """
    shape = frame.shape(tuple(chunk.shape))
    if 0 in shape:
        result, new_axes = form_of(question, is_one=is_one)
        return like(np.empty((*new_axes, *shape), result), values_of(chunk))
    if question is None:
        return kernels.windows.valid_counts(chunk, frame)
    answers = kernels.answer_windows(chunk, dtype, frame, question)
    return answers[0] if is_one else answers


# --- Ask for windows ------------------------------------------------------------------------------

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
