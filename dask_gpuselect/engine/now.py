"""Answer questions about arrays in memory, by the same steps as the graphs."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import masked
from dask_gpuselect.engine import pilot, threads
from dask_gpuselect.engine.answers import AnswerAxes, Form
from dask_gpuselect.engine.loads import Measured, Merged, ask_once, ask_together
from dask_gpuselect.engine.questions import ArrayQuestion, LaneQuestion, Question
from dask_gpuselect.engine.resident import answer_block, answer_in_memory, is_best_counted
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels.companions import values_of

T = TypeVar("T")

# --- All elements ---------------------------------------------------------------------------------


def answer_now(values: Any, dtype: np.dtype[Any], question: Question) -> Any:
    """Answer a question about all elements of an array in memory.

    Several threads share a large NumPy array, unless the question is about ranks alone and counting
    values does not answer it.
    """
    size = math.prod(values.shape)
    n_threads = threads.threads_for(values, size, "elements")
    if n_threads > 1 and (
        question.in_memory.ranks_of_sample(size) is None or is_best_counted(values, dtype, question)
    ):
        x, form = _in_pieces(values, n_threads), Form((), None, values[:0])
        (answer,) = ask_together([ArrayQuestion(x, question, form, "now")])
        return _by_threads(answer, n_threads)
    return answer_in_memory(values, dtype, question)


def _in_pieces(values: NDArray[Any], n_threads: int) -> DaskArray:
    """Return a NumPy array as a dask array of views, which `n_threads` threads may share."""
    flat = values.ravel(order="K")
    pieces = np.array_split(flat, max(min(4 * n_threads, flat.size // pilot.PILOT_WORTH), 1))
    # da.from_array would make a copy. The name is unique to this call, so that no cache
    # of results by keys mistakes one array for another.
    name = f"pieces-{uuid.uuid4().hex}"
    tasks = {(name, i): piece for i, piece in enumerate(pieces)}
    return DaskArray(tasks, name, (tuple(map(len, pieces)),), meta=flat[:0])


def _by_threads(answer: DaskArray, n_threads: int) -> Any:
    """Compute the object that a task returns."""
    return threads.computed(answer.dask, [(answer.name,)], n_threads)[0]


def answer_once_now(
    values: Any,
    dtype: np.dtype[Any],
    measure: Measured,
    merge: Merged,
    answer: Callable[[Any], Any],
) -> Any:
    """Answer from partial results of an array in memory; see `asking.ask_once`.

    Several threads share a large NumPy array.
    """
    n_threads = threads.threads_for(values, math.prod(values.shape), "elements")
    if n_threads > 1:
        lazy = ask_once(_in_pieces(values, n_threads), measure, merge, answer, "now")
        return _by_threads(lazy, n_threads)
    return answer(measure(values, dtype))


# --- Lanes ----------------------------------------------------------------------------------------


def answer_lanes_now(
    array: Any, dtype: np.dtype[Any], question: LaneQuestion, shape: AnswerAxes, *, is_object: bool
) -> Any:
    """Answer a question about every lane of an array in memory, in kind.

    Several threads share a large NumPy array.

    Parameters
    ----------
    is_object : bool
        True if the answer is an object and not an array.
    """
    axis, pieces = _pieces(array, shape.axes)
    place = shape.labels.index(axis)
    whole: list[NDArray[Any]] = []
    lock = threading.Lock()

    def answer(piece: Any, start: int) -> Any:
        part = answer_block([piece], dtype, question, shape)
        if is_object or len(pieces) == 1:
            return part
        # All threads fill one array. With short lanes, joining the pieces takes twice the time.
        before, (size, *behind) = part.shape[:place], part.shape[place:]
        with lock:
            if not whole:
                every = np.empty((*before, array.shape[axis], *behind), part.dtype)
                is_masked = isinstance(part, np.ma.MaskedArray)
                whole.append(masked(every, np.zeros(every.shape, bool)) if is_masked else every)
        whole[0][(slice(None),) * place + (slice(start, start + size),)] = part
        return whole[0]

    parts = _in_threads(answer, array, axis, pieces)
    return question.blocks.joined(parts, place) if is_object else parts[0]


def _pieces(array: Any, axes: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
    """Return the axis along which to divide an array, and the ranges of the pieces.

    There are several pieces if the array is a large NumPy array.
    """
    axis = max(
        (axis for axis in range(array.ndim) if axis not in axes), key=lambda i: array.shape[i]
    )
    n, n_threads = array.shape[axis], _threads_for(array)
    if n_threads == 1:
        return axis, [(0, n)]
    worth = threads.WORTH["bytes of lanes"]
    n_pieces = min(array.nbytes // worth + 1, 4 * n_threads)
    # With many answers, more pieces: fresh memory for the answers of a large piece costs more than
    # the pieces do.
    n_lanes = math.prod(size for i, size in enumerate(array.shape) if i not in axes)
    n_pieces = min(max(n_pieces, 8 * n_lanes // worth), n)
    return axis, [(n * i // n_pieces, n * (i + 1) // n_pieces) for i in range(n_pieces)]


def _threads_for(array: Any) -> int:
    values = values_of(array)
    return threads.threads_for(values, getattr(values, "nbytes", 0), "bytes of lanes")


def _in_threads(
    answer: Callable[[Any, int], T], array: Any, axis: int, pieces: Sequence[tuple[int, int]]
) -> list[T]:
    """Apply a function to each piece of an array and its start: by several threads if several."""
    if len(pieces) == 1:
        return [answer(array, 0)]

    def answer_piece(piece: tuple[int, int]) -> T:
        return answer(array[(slice(None),) * axis + (slice(*piece),)], piece[0])

    return threads.each(answer_piece, pieces, _threads_for(array))
