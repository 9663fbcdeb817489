"""The dask graph of one load: every value is counted, of data that have so few.

::

    source ──copy──> counts of values ──merge──> answer

The counts do not depend on what is asked, so several questions about one array share them by key.
No chunk is loaded again, so none can change in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.source import DaskArray, private_copy
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.value_counts import ValueCounts, is_countable, most_values


def is_counted(dtype: np.dtype[Any], question: Question) -> bool:
    """Whether counts of all values answer a question about all elements of that dtype.

    On two threads, 4e7 uint8 in ten chunks took 18 ms in memory, for 44 by a guess, and 22 ms where
    they had to be made, for 192 in two loads; uint16 28 and 62, 25 and 188.
    """
    return is_countable(dtype) and not question.weighs


def gathered_bytes(x: DaskArray, most: float) -> int:
    """What the counts take that come to one place, of chunks of at most so many elements."""
    n_values = most_values(x.dtype)
    n_values = n_values if math.isnan(most) else min(n_values, int(most))
    parts = min(x.npartitions, graphs.split_every(None, graphs.MERGE_EVERY))
    found: int = parts * n_values * (COUNT_BYTES + selection_dtype(x.dtype).itemsize)
    return found


COUNT_BYTES = 8


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
        counts.append(_counts_of(x, among))
        name = f"{label}-{tokenize(counts[-1].name, question, form.shape)}"
        told = {"question": question, "form": form}
        finishes.append(graphs.Finish(_answer, name, told, form.place))
    answers = graphs.reduced_together(counts, "value-counts-merge", ValueCounts.merge, finishes)
    return [form.lazy(answer) for form, answer in zip(forms, answers, strict=True)]


def _counts_of(x: DaskArray, among: str | None = None) -> DaskArray:
    """The counts of every chunk, in the chunks' own grid."""
    source = private_copy(x, f"load 1 of {among or x.name}")
    name = f"value-counts-{tokenize(source.name, x.dtype)}"
    return graphs.each_chunk(kernels.value_counts, name, [source], dtype=x.dtype)


def _answer(parts: list[ValueCounts], question: Question, form: Form) -> Any:
    return form.made(answer_by_counts(ValueCounts.merge(parts), question))


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


class Bracketing(Protocol):
    """What the loads themselves have to know of a question."""

    @property
    def share(self) -> int: ...

    def bracket(self, cuts: Cuts) -> Brackets: ...


def tallies_by_counts(
    x: DaskArray, question: Bracketing, label: str
) -> tuple[DaskArray, DaskArray]:
    """The brackets of a question, and the tally of every chunk there, by one load."""
    counts = _counts_of(x)
    name = f"{label}-bracket-{tokenize(counts.name, question)}"
    how = (counts, "value-counts-merge", ValueCounts.merge, _bracketed, name)
    bracket = graphs.reduced(*how, question=question)
    name = f"{label}-candidates-{tokenize(counts.name, bracket.name)}"
    return bracket, graphs.each_chunk(ValueCounts.tally, name, [counts], [bracket])


def _bracketed(parts: list[ValueCounts], question: Bracketing) -> Brackets:
    return question.bracket(ValueCounts.merge(parts).cuts())
