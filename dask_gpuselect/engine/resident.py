"""Answers about data in memory, or in that of a device, without a task for each chunk."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.devices import memory_bytes
from dask_gpuselect.engine import graphs, pilot, settings
from dask_gpuselect.engine.answers import AnswerAxes, Form
from dask_gpuselect.engine.counting import answer_by_values
from dask_gpuselect.engine.partials import Proven, sums_of
from dask_gpuselect.engine.questions import LaneQuestion, Question, answered, everything
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import ChunkColumn, kept_there, parts_of, values_of
from dask_gpuselect.kernels.registry import Backend
from dask_gpuselect.kernels.values import value_counts
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally, merge
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.runs import Runs
from dask_gpuselect.maths.sizes import MOST_SORTED, pilot_room
from dask_gpuselect.maths.value_counts import is_countable

DEVICE_SHARE = 16
"""By default, all chunks of an array may take 1 / DEVICE_SHARE of the memory of a device."""


def fit_one_device(arrays: Sequence[DaskArray], more: float = 0) -> bool:
    """Return whether one device may hold all chunks of some arrays, and `more` bytes.

    They fit `cache-limit` together, and are there already, or made there by tasks in this process:
    workers of a cluster would send them to one of them.
    """
    sources = list(map(Source.of, arrays))
    made = [x for x in sources if not x.is_on_one_device]
    if any(not x.is_on_device or x.is_in_memory for x in made):
        return False
    if made and not graphs.runs_in_threads():
        return False
    n_bytes = more + sum(x.size * x.element_bytes() for x in sources)
    return bool(n_bytes <= device_limit())  # False if unknown


def device_limit() -> int:
    """Return the most bytes of chunks that stay on a device for one task."""
    return settings.n_bytes("cache-limit", memory_bytes() // DEVICE_SHARE)


def answer_in_memory(
    values: Any, dtype: np.dtype[Any], question: Question, share: int | None = None
) -> Any:
    """Answer a question about all elements of an array, or of `Several`.

    Values are counted if that is fastest. Otherwise the data are selected in place.
    """
    if not is_best_counted(values, dtype, question):
        return answer_in_place(values, dtype, question, share)
    return answer_by_values(value_counts(values, dtype), question)


def is_best_counted(values: Any, dtype: np.dtype[Any], question: Question) -> bool:
    """Return whether counting every value is the fastest way to answer, for an array in memory.

    `Several` are read in place: on an H100, a box plot of 2^28 uint16 in 8 chunks took 10 ms more
    by counts, because the host waits for each of them.
    """
    if len(parts_of(values)) > 1 or not (question.measures.counts and is_countable(dtype)):
        return False
    if not kernels.is_on_device(values):
        return True
    # The median of 2^29 uint16 takes 1.0 ms by a sample and one read on an H200, and 2.1 by counts,
    # which take two reads; for uint8 both take as long. The host sums 2^16 counted values in 3 to 8
    # ms: a box plot of 2^26 float16 took 9.4 ms by counts and takes 1.1, of int16 3.7 and 1.0, and
    # a trimmed mean of float16 8.3 and 2.9. Those of integers and `mad` are faster by counts.
    is_about_ranks = question.in_memory.ranks_of_sample(math.prod(values.shape)) is not None
    sums = question.measures.sums
    is_slow = sums is everything or (sums is not None and dtype.kind == "f")
    return not is_about_ranks and not (dtype.itemsize > 1 and is_slow)


def answer_in_place(
    values: Any, dtype: np.dtype[Any], question: Question, share: int | None = None
) -> Any:
    """Answer a question about all elements of an array, or of `Several`, without counting values.

    This takes a sample and one read if the sample guesses well, and otherwise two or three reads,
    with the pivots of a `share`: by default the question's own. A device sorts what it cannot
    guess. It copies what a mask keeps, unless the question is about quantiles alone: a box of 2^26
    masked float32 took 4.7 ms otherwise, of which the kernels took 0.6.
    """
    size, ranks = math.prod(values.shape), question.in_memory.ranks_of_sample
    if ranks(size) is None or ranks(size) != ranks(size + 1):  # not of shares, whatever the size
        kept = kept_there(values)
        if kept is not None:
            answer = answer_in_memory(kept, dtype, question, share)
            added = np.array(kept.size - size)  # negative
            return answer.less_left_out(added) if hasattr(answer, "less_left_out") else answer
    bound = kernels.of(values, dtype)
    alone = question.in_memory.alone(values, dtype) if size else None
    if alone is not None:
        return alone
    guessed = pilot.guess_now(bound, question)
    sums: Moments | None = None
    if isinstance(guessed, LaneBoxes):
        return question.in_memory.of_box(guessed)
    if guessed is not None:
        guess, tally, later = guessed
        room = pilot_room(pilot.GUESSED, bound.size)
        gather = partial(kernels.tally, bound, dtype, most=room)
        resolved = pilot.settled(guess, tally, question, gather)
        sums = later() if callable(later) else later
        if resolved is not None:
            sums = sums or sums_of(bound, guess, dtype, question.measures.sums)
            return question.finish(resolved, sums)
    of_run = question.in_memory.of_run
    if of_run is not None and bound.is_on_device and bound.size <= MOST_SORTED:
        answer = _answer_sorted(parts_of(values), dtype, of_run)
        if answer is not None:
            return answer
    parts, share = bound.parts, share or question.costs.share
    cuts: Cuts = merge([kernels.cuts(part, dtype, share) for part in parts])
    brackets = question.bracket(cuts)
    sums = sums or sums_of(bound, brackets, dtype, question.measures.sums)
    return answered(question, brackets, partial(_tally, parts, dtype, cuts), sums)


def _answer_sorted(
    parts: Sequence[Any], dtype: np.dtype[Any], of_run: Callable[[Runs], Any]
) -> Any | None:
    """Answer a question by sorting all elements on their device; None if that is not best."""
    run = kernels.runs.sorted_runs(parts, dtype, 1)
    return None if run is None or not run.n_valid[0] else of_run(run)


def _tally(parts: Sequence[Backend], dtype: np.dtype[Any], cuts: Cuts, brackets: Brackets) -> Tally:
    """Measure all parts at brackets that their cuts prove."""
    proven = Proven.by(cuts, brackets, (len(parts),))
    tallies = [proven.tally(part, (i,), dtype) for i, part in enumerate(parts)]
    return tallies[0] if len(tallies) == 1 else kernels.merged(tallies, parts[0].chunk)


def answer_resident(
    chunks: Sequence[Any], dtype: np.dtype[Any], question: Question, form: Form, share: int
) -> Any:
    """Answer a question about all elements of chunks that are in the memory of one device."""
    chunks = [chunk for chunk in chunks if math.prod(chunk.shape)] or chunks[:1]
    return form.made(answer_in_memory(kernels.together(chunks), dtype, question, share))


LONG = 1 << 21
"""Least elements of a weighted lane on the host that is selected.

Shorter ones are sorted. It is more for box plots and for many answers, which take longer. Weighted
quartiles of a lane of 2^22 float32 take 24 ns an element, and 79 if it is sorted.
"""


def answer_block(
    chunks: Sequence[Any], dtype: np.dtype[Any], question: LaneQuestion, shape: AnswerAxes
) -> Any:
    """Compute a block of the answer about every lane from the chunks of its column.

    Long lanes with weights are answered as arrays in memory.
    """
    first, of_each = chunks[0], question.by_slot if isinstance(question, Question) else None
    if of_each is None or not _are_selected(ChunkColumn(chunks, dtype, shape.axes), question):
        return question.block(chunks, dtype, shape)
    places = ([slice(None)] if i in shape.axes else range(n) for i, n in enumerate(first.shape))
    lanes = (kernels.together([chunk[at] for chunk in chunks]) for at in itertools.product(*places))
    answers = [answer_in_memory(lane, dtype, of_each.question) for lane in lanes]
    return question.blocks.restored(of_each.together(answers), first.shape, shape)


def _are_selected(column: ChunkColumn, question: Any) -> bool:
    """Return whether lanes with weights are selected, each as an array in memory."""
    is_usual = question.measures.weights and isinstance(values_of(column.chunks[0]), np.ndarray)
    times = max(1 + (question.measures.sums is not None), question.n_answers >> 7)
    return is_usual and min(column.n, column.size) >= LONG * times
