"""Quantiles and boxes of groups of CuPy chunks, from the elements near guessed answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.groups import (
    FIRST_ROOM,
    Keys,
    fits_shared,
    gathered_ahead,
    guessed_ahead,
    keys_of,
    value_counts,
)
from dask_gpuselect.kernels.cuda.labels import masked_codes
from dask_gpuselect.kernels.cuda.launch import Array, beside, most_shared
from dask_gpuselect.kernels.cuda.moments import (
    N_SUMS,
    rounded_moments,
    squares_ahead,
    start_moments_of_groups,
)
from dask_gpuselect.kernels.cuda.runs import (
    BANDS,
    SortedRuns,
    bytes_of_boxes,
    draw_boxes,
    flat_codes,
    flat_mask,
    joined_columns,
    joined_flat,
    limbs_for,
    weighted_boxes,
    with_weights,
)
from dask_gpuselect.kernels.cuda.weighing import (
    AsRead,
    drawn_from,
    has_room,
    in_bands,
    in_order,
    moments_of_groups_ahead,
)
from dask_gpuselect.kernels.reference.selection import elements_of
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, IntArray
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, Wholes
from dask_gpuselect.maths.group_guess import sample_size
from dask_gpuselect.maths.keys import from_keys
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes
from dask_gpuselect.maths.lane_weights import TYPE_7, WantedQuantiles, picked
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.orders import GatheredRuns
from dask_gpuselect.maths.sizes import PILOT_SIGMA

MOST_DIGITS = 3  # of weights that are summed by groups in shared memory
# Bytes of weighted elements, and more for each quantile of each group, with fewer of which sorting
# is as fast. On an H200, medians of 2**25 float32 by 18 groups take 4.8 ms guessed and 5.7 sorted,
# of 2**28 10 and 47; nine quantiles of 2**26 by 300 groups take 14 both ways.
WORTH_GUESSING = 3 << 25
WORTH_OF_SHARE = 3 << 14


def quantiles_of_groups(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int, wanted: WantedQuantiles
) -> Lanes | None:
    """Find weighted quantiles of each group by guessed brackets; see `reference.runs`.

    Reads elements, weights and labels once, the last two twice, and sorts a sample and the elements
    in the brackets. None if that would not pay, or fails.

    Scratch: 4 bytes for each element, and 24 for each that is sorted.
    """
    found = _near_shares(chunks, dtype, n_groups, wanted)
    try:
        return None if found is None else picked(found[0], wanted)
    except ChunksChangedError:  # a guess was wrong
        return None


Near = tuple[GatheredRuns, Array, Callable[[], Moments] | None]
"""Elements of groups in guessed brackets, with numbers as of `in_bands`.

And a function that waits for the moments of groups if there is a rule.
"""


def _near_shares(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    n_groups: int,
    wanted: WantedQuantiles,
    rule: Rule | None = None,
) -> Near | None:
    """Gather the elements of groups in guessed brackets; see `quantiles_of_groups`.

    With a `rule`, also gather those beyond its fences, and start to sum all elements.
    """
    n, n_q = sum(chunk.size for chunk in chunks), len(wanted.q)
    least = WORTH_GUESSING + n_groups * n_q * WORTH_OF_SHARE
    size, expected = sample_size(n, n_groups, n_q)
    is_worth = n * max(dtype.itemsize, 4) >= least and size + expected <= n // 2
    if not (n_q and n_groups and is_worth):
        return None
    values, codes, keeps = joined_columns(chunks, dtype)
    given, is_mean = with_weights(chunks, values, keeps), wanted.method == TYPE_7
    fits = partial(fits_shared, values.dtype, n_groups, 2 * n_q + (0 if rule is None else 2))
    if not fits(1):
        return None
    numbers, extent = in_bands(given, codes, n_groups)
    part = values, numbers
    sample = keys_of([part], n_groups, size / n, none=BANDS * n_groups)
    order, (_, weights) = sample.order(), drawn_from(given, len(sample))
    sample, scaled = sample.taken(order), weights.take(order) / weights.max()
    how = PILOT_SIGMA, cupy.cumsum(scaled), cupy.cumsum(scaled * scaled), size / n * is_mean
    unit, n_bits = extent()
    n_digits = -(-n_bits // DIGIT)
    if n_digits > MOST_DIGITS or not fits(n_digits):
        return None
    whis, tops = (0.0, None) if rule is None else (rule.whis, cupy.empty(n_groups, np.int32))
    guess = sample, np.array(wanted.q), how, whis, tops
    room = max(2 * expected, int(FIRST_ROOM * n))
    weighing = given.weights, unit, n_digits, cupy.empty(room, given.weights.dtype)
    tallied = guessed_ahead([part], n_groups, guess, room, weighing)
    squares: Callable[[], ExactSums] | None = partial(ExactSums.zeros, (n_groups,))
    if is_mean:
        squares = squares_ahead(given.weights, numbers, n_groups, unit + n_bits)
    if squares is None or rule is not None and not has_room(given, n_groups):
        return None
    tally = tallied()
    if tally is None or is_mean and tally[2].any():  # missing elements have weights, too
        return None
    sheet, counts, n_missing, candidates = tally
    brackets = Brackets(
        from_keys(sheet["ends"], candidates.dtype),
        sheet["wanted"],
        n_ends=np.full(n_groups, len(sheet["ends"]) // n_groups),
    )
    digits = sheet["sums"].view(np.int64).reshape(n_digits + 1, 2, -1).transpose(0, 2, 1)
    sums = ExactSums.carried(0, digits.reshape(n_digits + 1, -1)).shifted(unit).running()
    weights, n_taken = weighing[-1][: len(candidates)], counts[:, 0] * brackets.wanted
    there = _gathered(candidates, weights, n_taken, unit, n_bits)
    moments = None
    if rule is not None:
        moments = beside(partial(moments_of_groups_ahead, given, numbers, n_groups))
    found = GatheredRuns(brackets, counts, sums, squares(), n_missing, 0 * n_missing, there)
    if not (found.n_valid + n_missing).all():
        found = replace(found, n_idle=_count_bands(numbers, n_groups)[2])
    return found, numbers, moments


def _gathered(keys: Keys, weights: Array, n: IntArray, unit: int, n_bits: int) -> SortedRuns:
    """Sort elements that were gathered, with their cells as numbers; `n` are in each cell."""
    order, size, none = keys.order(), len(keys), 0 * n
    given = AsRead(keys.keys, weights, None, size)
    _, ordered, whole = in_order(given, order, 0, unit, limbs_for(n_bits, size))
    running = Wholes(unit, [limb[None] for limb in whole]).running()
    return SortedRuns(keys.dtype, n, none, none, none, keys.taken(order), ordered, running)


def _count_bands(numbers: Array, n_groups: int) -> IntArray:
    """Count the elements of each band and group, ``(BANDS, n_groups)``; see `in_bands`."""
    counts = cupy.bincount(numbers + 1, minlength=BANDS * n_groups + 1)
    return np.asarray(counts[1:].get()).reshape(-1, n_groups)[:BANDS]


def _weighted_boxes_of_groups(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    n_groups: int,
    question: Any,
    rule: Rule,
) -> LaneBoxes | None:
    """Compute the box of each group with weights by guessed brackets; see `boxes_of_groups`.

    Reads what `quantiles_of_groups` does, and elements, weights and labels once more to sum them.
    """
    wanted: WantedQuantiles = question.wanted
    if isinstance(rule.whis, tuple):
        return None
    found = _near_shares(chunks, dtype, n_groups, wanted, rule)
    if found is None:
        return None
    order, numbers, moments = found
    assert moments is not None
    n_valid, n_left_out = order.n_valid, 0 * order.n_valid
    if (n_valid + order.n_missing).sum() < numbers.size:
        codes = joined_flat([flat_codes(chunk) for chunk in chunks])
        is_left_out = (numbers >= 2 * n_groups).view(np.uint8)
        n_left_out = value_counts([(is_left_out, codes)], n_groups, 2)[:, 1]
    try:
        return weighted_boxes(order, n_left_out, question, rule, moments)
    except ChunksChangedError:  # a guess was wrong
        return None


def boxes_of_groups(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    n_groups: int,
    question: LaneOrder,
    rule: Rule,
) -> LaneBoxes | None:
    """Compute the box of each group by guessed brackets; see `reference.runs.boxes_of_groups`.

    Reads elements and codes twice, and sorts a sample, the elements near the quartiles, and those
    beyond the fences. None if that would not pay, or fails.
    """
    if not n_groups:
        return None
    if chunks[0].weights is not None:
        return _weighted_boxes_of_groups(chunks, dtype, n_groups, question, rule)
    parts, n_left_out = [], np.zeros(n_groups, np.int64)
    for chunk in chunks:
        values, codes = joined_flat([elements_of(chunk.values, dtype)[0]]), flat_codes(chunk)
        if chunk.keeps is not None:
            keeps = joined_flat([flat_mask(chunk)])
            n_left_out += value_counts([(keeps.view(np.uint8), codes)], n_groups, 2)[:, 0]
            codes = masked_codes(codes, keeps)
        parts.append((values, codes))
    shared = most_shared(cupy.cuda.Device().id)
    way = source.group_sums(np.dtype(parts[0][0].dtype), n_groups, shared)
    if way is None:
        return None
    tops = cupy.empty(n_groups, np.int32)
    wait = gathered_ahead(parts, n_groups, np.array(rule.q), rule.whis, tops)
    if wait is None:
        return None
    first = bytes_of_boxes(n_groups)
    result = cupy.zeros(first + 8 * n_groups * N_SUMS, np.uint8)
    sums = result[first:].view(np.uint64)
    start_moments_of_groups(parts, n_groups, tops, sums, way)
    found = wait()
    if found is None:
        return None
    about, n_missing, candidates = found
    n_valid, kind = about.n_valid, candidates.dtype
    # The device has added up meanwhile; sorting waits for it.
    runs = SortedRuns(
        kind, n_valid, n_missing, n_left_out, 0 * n_valid, candidates.ordered(), None, None
    )
    last = max(n_valid.sum() - 1, 0)

    def places_of(ranks: IntArray) -> IntArray | None:
        return about.places(np.minimum(ranks, last))

    drawn = draw_boxes(runs, question, rule, about.edges, places_of, result)
    if drawn is None:
        return None
    columns, host = drawn
    if not about.holds(columns["n_low"], columns["n_high"]):
        return None
    digits = host[first:].view(np.int64).reshape(n_groups, N_SUMS)
    mean, deviation = rounded_moments(digits, n_valid + n_missing)
    return LaneBoxes(**columns, mean=mean, deviation=deviation)
