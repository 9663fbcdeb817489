"""The dask graph of one load: every value is counted, or weighed, of data that have so few.

::

    source ──copy──> counts of values ──merge──> answer

The counts do not depend on what is asked, so several questions about one array share them by key.
No chunk is loaded again, so none can change in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.arrays import is_cupy
from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.reports import Gathered
from dask_gpuselect.engine.source import DaskArray, private_copy
from dask_gpuselect.maths.cuts import Brackets, Tally
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.value_counts import (
    ValueCounts,
    every_value,
    is_countable,
    most_values,
)
from dask_gpuselect.maths.weights import WeightedTally, moments_of_values


def is_counted(dtype: np.dtype[Any], question: Question) -> bool:
    """Whether counts of all values answer a question about all elements of that dtype.

    On two threads, 4e7 uint8 in ten chunks took 18 ms in memory, for 44 by a guess, and 22 ms where
    they had to be made, for 192 in two loads; uint16 28 and 62, 25 and 188.
    """
    return is_countable(dtype) and not question.weighs


def is_weighed(x: DaskArray, question: Question) -> bool:
    """Whether exact sums of the weights of all values answer a question about all elements.

    Of one byte alone. Of two bytes the digits of the sums take 71 MB in a task: 4e6 uint16 took
    0.55 s, and as many uint8 0.03 s. In CuPy chunks sums at so many ends were not measured.
    """
    is_byte = x.dtype.kind in "biu" and x.dtype.itemsize == 1
    return question.weighs and is_byte and not is_cupy(x._meta)


def takes_counts(x: DaskArray, question: Question) -> bool:
    """Whether one load that counts, or weighs, all values answers a question about all elements of
    a dask array."""
    return is_counted(x.dtype, question) or is_weighed(x, question)


def gathered_bytes(x: DaskArray, question: Question, most: float) -> int:
    """What the counts take that come to one place, of chunks of at most so many elements."""
    parts = min(x.npartitions, graphs.split_every(None, graphs.MERGE_EVERY))
    n_values = most_values(x.dtype)
    if question.weighs:
        return int(parts * n_values * SUMS_BYTES)
    n_values = n_values if math.isnan(most) else min(n_values, int(most))
    found: int = parts * n_values * (COUNT_BYTES + selection_dtype(x.dtype).itemsize)
    return found


COUNT_BYTES = 8
SUMS_BYTES = 2 * (COUNT_BYTES + 8 + 176)  # two counts, and two sums of weights in Python's integers


def ask_counts(
    arrays: Sequence[DaskArray],
    questions: Sequence[Question],
    forms: Sequence[Form],
    label: str,
    among: str | None,
) -> list[DaskArray]:
    """The lazy answers to questions about all elements of arrays that are loaded together.

    Parameters
    ----------
    arrays, questions, forms : sequences
        Of each answer.
    label : str
        For the names of the layers.
    among : str or None
        What the arrays are called together, if there are several.
    """
    counts, finishes = [], []
    for x, question, form in zip(arrays, questions, forms, strict=True):
        counts.append(_weighed_of(x, question, among) if question.weighs else _counts_of(x, among))
        name = f"{label}-{tokenize(counts[-1].name, question, form.shape)}"
        told = {"question": question, "form": form}
        finishes.append(graphs.Finish(_answer, name, told, form.place))
    answers = graphs.reduced_together(counts, "value-counts-merge", _merged, finishes)
    return [form.lazy(answer) for form, answer in zip(forms, answers, strict=True)]


def _counts_of(x: DaskArray, among: str | None = None) -> DaskArray:
    """The counts of every chunk, in the chunks' own grid."""
    source = private_copy(x, f"load 1 of {among or x.name}")
    name = f"value-counts-{tokenize(source.name, x.dtype)}"
    return graphs.each_chunk(kernels.value_counts, name, [source], dtype=x.dtype)


def _weighed_of(x: DaskArray, question: Question, among: str | None) -> DaskArray:
    """The tally of every chunk at all values that there are, in the chunks' own grid."""
    source = private_copy(x, f"load 1 of {among or x.name}")
    brackets = question.brackets_at(every_value(selection_dtype(x.dtype)))
    # Questions that want the same sums share them by key.
    name = f"weight-sums-{tokenize(source.name, x.dtype, type(brackets).__name__)}"
    held = graphs.held(f"{name}-at", [brackets], ())
    return graphs.each_chunk(_weighed, name, [source], [held], dtype=x.dtype)


def _weighed(chunk: Any, brackets: Brackets, *, dtype: np.dtype[Any]) -> Tally:
    found = kernels.tally(chunk, dtype, brackets, 0)
    assert found is not None  # nothing is gathered
    return found


def _merged(parts: list[Any]) -> Any:
    return type(parts[0]).merge(parts)


def _answer(parts: list[Any], question: Question, form: Form) -> Any:
    counts = _merged(parts)
    by = answer_by_weights if question.weighs else answer_by_counts
    return form.made(by(counts, question))


def answer_by_weights(tally: WeightedTally, question: Question) -> Any:
    """The answer to a question about elements that weigh, by a tally at all values that there
    are."""
    brackets = question.brackets_at(every_value(tally.candidates.dtype))
    found = question.look(brackets, tally)
    sums = moments_of_values(brackets.ends, tally) if question.wants_sums else None
    return question.finish(found, None, None, sums)


def answer_by_counts(counts: ValueCounts, question: Question) -> Any:
    """The answer to a question, by the counts of all values: as if they were loads."""
    brackets = question.bracket(counts.cuts())
    found = question.look(brackets, counts.tally(brackets))
    more = question.more(brackets, found)
    tally = None if more is None else counts.tally(more)
    sums = None
    if question.wants_sums:
        # By the values that occur, as if these were the elements of a chunk.
        sums = counts.among(question.summed(counts.values, brackets)).moments()
    return question.finish(found, more, tally, sums)


# --- Brackets and the tally of every chunk --------------------------------------------------------


def gathered_by_counts(x: DaskArray, question: Question, label: str) -> tuple[DaskArray, DaskArray]:
    """The brackets of a question, and what is gathered of every chunk there, in a list of one: by
    one load."""
    counts = _counts_of(x)
    name = f"{label}-bracket-{tokenize(counts.name, question)}"
    how = (counts, "value-counts-merge", ValueCounts.merge, _bracketed, name)
    bracket = graphs.reduced(*how, question=question)
    name = f"{label}-candidates-{tokenize(counts.name, bracket.name)}"
    return bracket, graphs.each_chunk(_gathered_of, name, [counts], [bracket])


def _bracketed(parts: list[ValueCounts], question: Question) -> Brackets:
    return question.bracket(ValueCounts.merge(parts).cuts())


def _gathered_of(counts: ValueCounts, brackets: Brackets) -> list[Gathered]:
    return [Gathered(counts.tally(brackets))]
