"""Pilot for data in memory: a sample guesses the brackets, and one read proves them by counts.

The tasks of the two loads then return immediately. They do work only if the guess missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import to_host
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.graphs import each_chunk, reduced
from dask_gpuselect.engine.partials import Gathered, Resolved, sums_of
from dask_gpuselect.engine.questions import (
    ArrayQuestion,
    Question,
    Summed,
    everything,
    fully_resolved,
)
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.registry import Backend
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Tally
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import PILOT_SIZE, pilot_room
from dask_gpuselect.maths.weight_guess import FEW_ANSWERS, refined

# One element in 2^PILOT_SHIFT of a plain array is sampled, but at least LEAST_PILOT elements. With
# samples of 2^15 and 2^18, the median of 2^22 float64 took 9 and 23 ms, that of 2^26 95 and 80 ms.
PILOT_SHIFT = 7
LEAST_PILOT = 1 << 14
# From this number of elements a chunk on, a pilot is worth the two tasks that it adds per chunk.
PILOT_WORTH = 4 * PILOT_SIZE
# Up to this number of elements, the candidates of a pilot fit in one task.
PILOT_MOST = 1 << 28
# Size of the sample of candidates that narrows brackets. As many candidates are sorted without
# narrowing: see `weighted.FEW_CANDIDATES`.
NARROWING = 1 << 17
MOST_WEIGHTED = 5000  # most weighted quantiles that are guessed
LEFT = 0.1  # largest share of weighted candidates: sorting more takes longer than two reads
# Candidates are narrowed if at most half are left. They are not tallied for that if more than this
# share of a thousand of them is left, an estimate that is off by 0.05 once in a thousand times.
LIKELY = 0.55
GUESSED = 0.2  # largest share of all elements that are candidates of a box plot of one array


def is_worth(size: float, n_chunks: int, question: Question) -> bool:
    """Return whether a pilot pays off for chunks in memory.

    Candidates must be few, and chunks large enough that a saved read counts, but not too large.
    """
    # Guesses for weighted elements are narrowed afterwards, which chunks are not.
    is_guessed = question.in_memory.guess is not None and not question.measures.weights
    is_guessed &= question.costs.share == 1
    return is_guessed and PILOT_WORTH * n_chunks <= size <= PILOT_MOST


def size_of_sample(x: DaskArray) -> int:
    """Return the number of elements in the sample of a pilot."""
    return int(min(PILOT_SIZE, x.size))


def ask_pilot(request: ArrayQuestion) -> DaskArray:
    """Make a task that returns the result of a guess; None if the guess missed."""
    x, question, label = request.x, request.question, request.label
    rate = PILOT_SIZE / x.size
    sample = each_chunk(kernels.sample, "quantile-sample", [x], dtype=x.dtype, rate=rate)
    how: dict[str, Any] = {"question": question, "rate": rate}
    guess = reduced(sample, np.concatenate, _guess_brackets, f"{label}-guess", **how)
    how = {"dtype": x.dtype, "summed": question.measures.sums}
    gathered = each_chunk(_gather, f"{label}-guess-candidates", [x], [guess], **how)
    how = {"guess": guess, "question": question, "form": request.form}
    return reduced(gathered, Gathered.merge, _settle, f"{label}-settled", **how)


def _guess_brackets(parts: list[NDArray[Any]], question: Question, rate: float) -> Brackets:
    guess = question.in_memory.guess
    assert guess is not None
    return guess(np.sort(np.concatenate(parts)), rate)


def _gather(
    chunk: Any, guess: Brackets, *, dtype: np.dtype[Any], summed: Summed | None
) -> Gathered:
    # In sorted data, one or two chunks have all candidates, so a whole chunk may be candidates.
    tally = kernels.tally(chunk, dtype, guess, most=math.prod(chunk.shape))
    return Gathered(tally, sums_of(chunk, guess, dtype, summed))


def _settle(
    parts: list[Gathered], guess: Brackets, question: Question, form: Form
) -> Resolved | None:
    whole = Gathered.whole(parts, form.kind)
    resolved = settled(guess, whole.tally, question, lambda _: None)
    return None if resolved is None else Resolved(resolved, whole.sums)


def settled(
    guess: Brackets,
    tally: Tally | None,
    question: Question,
    gather: Callable[[Brackets], Tally | None],
) -> Any:
    """Resolve a question from the tally at a guess; return None if the guess missed.

    If the question needs further brackets, `gather` measures the tally there, or returns None.
    """
    try:
        return None if tally is None else fully_resolved(question, guess, tally, gather)
    except ChunksChangedError:  # the brackets do not hold: a miss
        return None


Guessed = tuple[Brackets, Tally | None, Moments | Callable[[], Moments] | None]
"""Brackets that a sample guesses, with the tally and the sums of one read.

The tally is None if the candidates did not fit. The sums are None unless the read made them; a
function waits for sums that a device still makes.
"""


def guess_now(bound: Backend, question: Question) -> Guessed | LaneBoxes | None:
    """Guess brackets of an array and measure there, if it is small or a pilot pays off; else None.

    If a device has then found all of a box plot, return that.
    """
    ways, measures = question.in_memory, question.measures
    if ways.guess is None:
        return None
    dtype, size, is_on_device = bound.dtype, bound.size, bound.is_on_device
    ranks = ways.ranks_of_sample(size)
    first = ranks or ways.first_ranks
    times = None if measures.weights else ways.whole_times
    is_whole = times is not None and kernels.sampling.is_best_whole(bound.chunk, times)
    if is_whole and len(first(size)):
        return *kernels.whole(bound, dtype, first), None
    is_few = question.costs.share == 1
    if is_on_device:
        is_few |= ranks is not None or (measures.weights and question.n_answers <= MOST_WEIGHTED)
    if not is_few or size < PILOT_WORTH:
        return None
    if ranks is not None:
        sampled = min(PILOT_SIZE, max(size >> PILOT_SHIFT, LEAST_PILOT))
        return *kernels.pilot(bound, dtype, sampled, ranks), None
    n_answers = question.n_answers if measures.weights else 1
    sample, rate = kernels.sorted_sample(bound, dtype, PILOT_SIZE, n_answers=n_answers)
    if n_answers > FEW_ANSWERS and not sample.is_measured:
        return None
    room = pilot_room(GUESSED, size)
    sums_all = measures.sums is everything
    if sums_all and not measures.weights:
        there = ways.guess_there(math.prod(sample.shape), rate)
        if there is not None:
            measured: Any = kernels.guess_and_sums(bound, dtype, sample, there, room)
            if measured is not None:
                return measured  # type: ignore[no-any-return]
        guess = ways.guess(sample, rate)
        about = bound, dtype, guess, room, ways.first_ranks
        return guess, *kernels.tally_and_sums(*about)
    later = squares = None
    if sums_all and is_on_device:
        # The device sums while the host guesses brackets.
        later = kernels.weighted_moments_ahead(bound, dtype)
    if measures.squares:
        near = sample.largest[:: max(len(sample.largest) // 64, 1)]
        squares = kernels.weight_squares(bound, dtype, near)
    guess = ways.guess(sample, rate)
    tally = kernels.tally_in_place(bound, dtype, guess, room, ways.first_ranks)
    if squares is not None and tally is not None:
        tally = replace(tally, square=squares(tally))
    return *_narrowed(guess, tally, question), later


def _narrowed(
    brackets: Brackets, tally: Tally | None, question: Question
) -> tuple[Brackets, Tally | None]:
    """Narrow guessed brackets as far as the question wants, and return the tally there.

    The tally is None if the brackets do not hold, or if they contain too much and cannot be
    narrowed.
    """
    while tally is not None and tally.weighs:
        n, dtype = len(tally.candidates), tally.candidates.dtype
        pairs = Accompanied(tally.candidates.elements, weights=tally.weights)
        inside = kernels.of(pairs, dtype)
        about = inside, dtype, NARROWING
        sample = partial(kernels.sorted_sample, *about, n_answers=question.n_answers)
        try:
            narrow = question.in_memory.guess_inside(brackets, tally, sample)
        except ChunksChangedError:
            return brackets, None
        if narrow is None:
            return brackets, kernels.tally_in_order(tally)
        is_likely = _share_inside(tally.candidates.elements, narrow) < LIKELY
        inner = kernels.tally_in_place(inside, dtype, narrow, n // 2) if is_likely else None
        if inner is None:
            are_few = n <= LEFT * tally.n_valid + NARROWING
            return brackets, kernels.tally_in_order(tally) if are_few else None
        brackets, tally = refined(brackets, tally, narrow, inner)
    return brackets, tally


def _share_inside(elements: Any, brackets: Brackets) -> float:
    """Estimate which share of some elements lies inside brackets, from every so many of them."""
    if not brackets.wanted.any():
        return 0.0
    some = to_host(elements[:: max(len(elements) >> 10, 1)])
    cell = brackets.ends.searchsorted(some)
    is_end = cell < brackets.ends.searchsorted(some, "right")
    return float(np.mean(brackets.wanted[cell] & ~is_end))
