"""The dask graph of one load: every value is counted, or weighed, of data that have so few.

::

    source ──copy──> reports by value ──merge──> answer

A question says what is reported of each value: see `by_value`. The reports do not depend on what
else is asked, so several questions about one array share them by key.
No chunk is loaded again, so none can change in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask.base import tokenize

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.by_value import COUNTS, ByValue
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.reports import Gathered
from dask_gpuselect.engine.source import DaskArray, Source, private_copy
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.maths.value_weights import ValueWeights


def takes_counts(x: DaskArray, question: Question) -> bool:
    """Whether one load that counts, or weighs, all values answers a question about all elements of
    a dask array.

    On two threads, 4e7 uint8 in ten chunks took 18 ms in memory, for 44 by a guess, and 22 ms where
    they had to be made, for 192 in two loads; uint16 28 and 62, 25 and 188.
    """
    return question.by_value.takes(x.dtype, is_on_device=Source.of(x).is_on_device)


def gathered_bytes(x: DaskArray, question: Question, most: float) -> int:
    """What the reports take that come to one place, of chunks of at most so many elements."""
    parts = min(x.npartitions, graphs.split_every(None, graphs.MERGE_EVERY))
    return int(parts * question.by_value.report_bytes(x.dtype, most))


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
    reports, finishes = [], []
    for x, question, form in zip(arrays, questions, forms, strict=True):
        reports.append(_reports_of(x, question.by_value, among))
        name = f"{label}-{tokenize(reports[-1].name, question, form.shape)}"
        told = {"question": question, "form": form}
        finishes.append(graphs.Finish(_answer, name, told, form.place))
    answers = graphs.reduced_together(reports, "value-counts-merge", _merged, finishes)
    return [form.lazy(answer) for form, answer in zip(forms, answers, strict=True)]


def _reports_of(x: DaskArray, by_value: ByValue, among: str | None = None) -> DaskArray:
    """The report of every chunk, in the chunks' own grid. Questions that want the same share it by
    key."""
    source = private_copy(x, f"load 1 of {among or x.name}")
    name = f"{by_value.name}-{tokenize(source.name, x.dtype)}"
    return graphs.each_chunk(by_value.of_chunk, name, [source], dtype=x.dtype)


def _merged(parts: list[Any]) -> Any:
    return type(parts[0]).merge(parts)


def _answer(parts: list[Any], question: Question, form: Form) -> Any:
    return form.made(answer_by_values(_merged(parts), question))


def answer_by_values(report: ValueCounts | ValueWeights, question: Question) -> Any:
    """The answer to a question, by its report of all values: as if that were loads."""
    brackets = question.brackets_by(report)
    found = question.look(brackets, report.tally(brackets))
    more = question.more(brackets, found)
    tally = None if more is None else report.tally(more)
    sums = None
    if question.wants_sums:
        # By the values that occur, as if these were the elements of a chunk.
        sums = report.among(question.summed(report.values, brackets)).moments()
    return question.finish(found, more, tally, sums)


# --- Brackets and the tally of every chunk --------------------------------------------------------


def gathered_by_counts(x: DaskArray, question: Question, label: str) -> tuple[DaskArray, DaskArray]:
    """The brackets of a question, and what is gathered of every chunk there, in a list of one: by
    one load."""
    counts = _reports_of(x, COUNTS)
    name = f"{label}-bracket-{tokenize(counts.name, question)}"
    how = (counts, "value-counts-merge", ValueCounts.merge, _bracketed, name)
    bracket = graphs.reduced(*how, question=question)
    name = f"{label}-candidates-{tokenize(counts.name, bracket.name)}"
    return bracket, graphs.each_chunk(_gathered_of, name, [counts], [bracket])


def _bracketed(parts: list[ValueCounts], question: Question) -> Brackets:
    return question.bracket(ValueCounts.merge(parts).cuts())


def _gathered_of(counts: ValueCounts, brackets: Brackets) -> list[Gathered]:
    return [Gathered(counts.tally(brackets))]
