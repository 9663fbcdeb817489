"""Graph of one load that counts every value, for dtypes that have few values.

::

    source ──copy──> counts of values ──merge──> answer

The counts do not depend on the question, so several questions about one array share them by key. No
chunk is loaded again, so none can change in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.partials import Gathered
from dask_gpuselect.engine.questions import ArrayQuestion, Question, answered
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels.values import value_counts
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.value_counts import ValueCounts, counts_bytes, is_countable


def takes_counts(x: DaskArray, question: Question) -> bool:
    """Return whether one load that counts all values can answer a question about a dask array.

    On two threads, 4e7 uint8 in ten chunks took 18 ms in memory (44 ms by a guess), and 22 ms when
    made by tasks (192 ms in two loads). With uint16 it was 28 ms (62 ms) and 25 ms (188 ms).
    """
    return question.measures.counts and is_countable(x.dtype)


def gathered_bytes(x: DaskArray, most: float) -> int:
    """Return the bytes of the counts that one task merges, for chunks of up to `most` elements."""
    return int(graphs.most_merged(x) * counts_bytes(x.dtype, most))


def ask_counts(requests: Sequence[ArrayQuestion], plans: Sequence[object]) -> list[DaskArray]:
    """Answer questions about all elements of arrays that are loaded together, lazily."""
    del plans
    finishes: list[graphs.Finish] = []
    for each in requests:
        arguments = {"question": each.question, "form": each.form}
        finishes.append((_answer, each.label, arguments, each.form.key_index))
    counts = list(map(_counts_of, requests))
    answers = graphs.reduced_together(counts, ValueCounts.merge, finishes)
    return [each.form.lazy(answer) for each, answer in zip(requests, answers, strict=True)]


def _counts_of(request: ArrayQuestion) -> DaskArray:
    """Count the values of every chunk, in the chunks' own grid.

    Questions about the same array share these tasks by key.
    """
    dtype = request.x.dtype
    return graphs.each_chunk(value_counts, "value-counts", [request.source], dtype=dtype)


def _answer(parts: list[Any], question: Question, form: Form) -> Any:
    return form.made(answer_by_values(ValueCounts.merge(parts), question))


def answer_by_values(counts: ValueCounts, question: Question) -> Any:
    """Answer a question from the counts of all values, as if these were the results of loads."""
    brackets, sums = question.bracket(counts.cuts()), None
    if question.measures.sums is not None:
        cells, some = question.measures.sums(brackets), slice(None)
        if cells is not None:
            some = kernels.in_cells(counts.values, brackets.ends, cells)
        sums = counts.moments(some)
    return answered(question, brackets, counts.tally, sums)


# --- Brackets and the tally of every chunk --------------------------------------------------------


def gathered_by_counts(request: ArrayQuestion) -> tuple[DaskArray, DaskArray]:
    """Return the brackets of a question and the tally of every chunk there, by one load.

    The tally of each chunk is in a list of one `Gathered`.
    """
    counts, question, label = _counts_of(request), request.question, request.label
    bracket = graphs.reduced(
        counts, ValueCounts.merge, _bracketed, f"{label}-bracket", question=question
    )
    return bracket, graphs.each_chunk(_gathered_of, f"{label}-candidates", [counts], [bracket])


def _bracketed(parts: list[ValueCounts], question: Question) -> Brackets:
    return question.bracket(ValueCounts.merge(parts).cuts())


def _gathered_of(counts: ValueCounts, brackets: Brackets) -> list[Gathered]:
    return [Gathered(counts.tally(brackets))]
