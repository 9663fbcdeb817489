"""Weighted elements: counts, sums of weights and candidates of one chunk. The reference.

Everything except the choice of elements happens on the host, by NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    Array,
    all_true,
    any_true,
    as_type,
    is_kind,
    like,
    n_true,
    namespace,
    numpy_dtype,
    to_host,
)
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference.sampling import random_places
from dask_gpuselect.kernels.reference.selection import elements_of, even_positions
from dask_gpuselect.kernels.registry import Backend
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.exact_sums import AT_ONCE, ExactSums
from dask_gpuselect.maths.keys import EXACT_UP_TO
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.weight_guess import WeightedSample
from dask_gpuselect.maths.weights import NEGATIVE, NOT_FINITE, UNITS


def weighed(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[Array, Array, int]:
    """Return the elements of a chunk that take part, and their weights.

    Parameters
    ----------
    chunk : Accompanied
        A chunk with weights, which are real numbers.
    dtype : dtype
        The dtype of the dask array.

    Returns
    -------
    values : array, shape (n,)
        Elements as `selection.elements_of` returns them, without NaN, NaT, those of weight zero and
        masked ones.
    weights : array of float64, or of int64 if one of them is beyond 2**53, shape (n,)
        Weight of each, all positive.
    n_missing : int
        Number of NaN and NaT that have a positive weight.

    Raises
    ------
    ValueError
        If a weight of an unmasked element is negative, NaN, infinite, or an integer of at least
        2**63.
    """
    flat = (math.prod(chunk.shape),)
    xp = namespace(chunk.values)
    values, _ = elements_of(chunk.values, dtype)
    weights = xp.reshape(chunk.weights, flat)
    if chunk.keeps is not None:
        keeps = xp.reshape(chunk.keeps, flat)
        values, weights = values[keeps], weights[keeps]
    weights = as_weights(weights)
    takes = weights > 0
    n_missing = 0
    if dtype.kind in "fmM":
        is_missing = _is_missing(values, dtype)
        n_missing = n_true(is_missing & takes)
        takes = takes & ~is_missing
    if all_true(takes):
        return values, weights, n_missing
    return values[takes], weights[takes], n_missing


def as_weights(weights: Array) -> Array:
    """Check weights; return them as float64, or as int64 if one of them is beyond 2**53."""
    xp = namespace(weights)
    if is_kind(weights, "real floating"):
        # NaN is neither, and both reductions return it.
        if math.prod(weights.shape) and not (xp.min(weights) >= 0) & (xp.max(weights) < xp.inf):
            raise ValueError(NEGATIVE if any_true(weights < 0) else NOT_FINITE)
    elif not is_kind(weights, "bool") and math.prod(weights.shape):
        if int(xp.min(weights)) < 0:
            raise ValueError(NEGATIVE)
        most = int(xp.max(weights))
        if most >= 2**63:
            raise ValueError(f"Weights must be below 2**63, not {most}: pass weights.astype(float)")
        if most > EXACT_UP_TO:
            return as_type(weights, "int64")
    return weights if numpy_dtype(weights) == np.float64 else as_type(weights, "float64")


def cuts(values: Array, weights: Array, n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at pivots at even steps by count, and at even steps by weight.

    Parameters
    ----------
    values, weights : array, shape (n,)
        Elements and weights that `weighed` returns.
    n_pivots : int
        Number of pivots to choose of either kind. Equal ones are merged. Between two of them there
        are neither more elements nor more weight than four steps of either kind.

    Returns
    -------
    Cuts
        Cuts of this one chunk, on the host.
    """
    values, weights = to_host(values), to_host(weights)
    n = len(values)
    order = np.argsort(values, kind="stable")
    ordered, weights = values[order], weights[order]
    del order
    unit, square = measured(weights)
    whole = in_units(weights, unit)
    upto = np.cumsum(whole, out=whole)
    weight = int(upto[-1]) if n else 0
    # Steps of whole units: a heavy element ends a step, whatever is around it.
    steps = [i * weight // n_pivots for i in range(1, n_pivots)] if n else []
    by_weight = np.searchsorted(upto, np.array(steps, np.int64))
    pivots = np.unique(ordered[np.concatenate([even_positions(n, n_pivots), by_weight])])
    sums = np.append(np.int64(0), upto)
    below, upto = (
        np.stack([places, sums[places]], axis=1)
        for places in (np.searchsorted(ordered, pivots, side) for side in ("left", "right"))
    )
    return cuts_of_chunk(pivots, below, upto, (n, weight), unit, square)


def cuts_of_chunk(
    pivots: NDArray[Any],
    below: IntArray,
    upto: IntArray,
    totals: Sequence[Any],
    unit: int,
    square: float,
) -> Cuts:
    """Return the cuts of one chunk from its numbers of elements and weights, side by side.

    The weights are whole units. `totals` holds the number and weight of all elements.
    """
    counts = Cuts.of_chunk(pivots, below[:, 0], upto[:, 0], totals[0], 0)
    return counts.with_weights(below[:, 1], upto[:, 1], totals[1], unit, square)


def measured(weights: NDArray[Any]) -> tuple[int, float]:
    """Return the exponent of the unit of weights, and the sum of their squares in units.

    The sum is in the square of the unit; see `Cuts.square`.
    """
    if not len(weights):
        return 0, 0.0
    # Scaled by the largest, so that neither sum overflows.
    top = math.frexp(float(weights.max()))[1]
    total = square = 0.0
    for begin in range(0, len(weights), AT_ONCE):
        scaled = np.ldexp(weights[begin : begin + AT_ONCE].astype(np.float64), -top)
        total += float(scaled.sum())
        square += float(np.square(scaled).sum())
    unit = top + math.frexp(total)[1] - UNITS
    if weights.dtype.kind == "i":
        unit = max(unit, 0)
    return unit, math.ldexp(square, 2 * (top - unit))


def in_units(weights: NDArray[Any], unit: int) -> IntArray:
    """Return the weights in units of ``2**unit``, rounded down."""
    if weights.dtype.kind == "i":
        return np.asarray(weights >> unit)
    answer: IntArray = np.ldexp(weights, -unit).astype(np.int64)
    return answer


def tally(values: Array, weights: Array, brackets: Brackets, most: int) -> Tally | None:
    """Count and weigh a chunk at the ends of `brackets`, and gather its candidates.

    Parameters
    ----------
    values, weights : array, shape (n,)
        Elements and weights that `weighed` returns.
    brackets : Brackets
        On the host.
    most : int
        Largest number of candidates.

    Returns
    -------
    Tally or None
        On the host; None if there are more candidates than `most`.
    """
    values, weights = to_host(values), to_host(weights)
    segment, is_inside = places(values, brackets.ends)
    takes = is_inside & brackets.wanted[segment // 2]
    if np.count_nonzero(takes) > most:
        return None
    n_segments = 2 * len(brackets.ends) + 1
    return Tally.of_segments(
        np.bincount(segment, minlength=n_segments),
        ExactSums.of(segment, n_segments, weights),
        Candidates(values[takes]),
        weights[takes],
    )


def ordered_on_host(elements: Array, weights: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sort elements on their device, and move them to the host with their weights."""
    if len(elements):
        xp = namespace(elements)
        order = xp.argsort(elements)
        elements, weights = xp.take(elements, order), xp.take(weights, order)
    return to_host(elements), to_host(weights)


def tally_in_order(tallied: Tally) -> Tally:
    """Sort the candidates of a tally on their device, and move them to the host with weights."""
    elements, weights = ordered_on_host(tallied.candidates.elements, tallied.weights)
    return replace(tallied, candidates=Candidates(elements), weights=weights)


def tally_in_place(
    bound: Backend, brackets: Brackets, most: int, ranks: Any = None
) -> Tally | None:
    """Tally a whole chunk, with candidates and their weights that may stay on its device.

    None if there are more than `most`. Raises as `weighed` does. `ranks` are ignored.
    """
    values, weights, n_missing = bound.elements
    tallied: Tally | None = bound.weighing.tally(values, weights, brackets, most)
    return tallied and with_others(tallied, bound, n_missing)


def with_others(
    tallied: Tally, bound: Backend, n_missing: int, n_unmasked: int | None = None
) -> Tally:
    """Add to a tally the number of missing, masked and weightless elements.

    NaN and NaT of weight 0 are left out, so that a slot of nothing else has no answer: an error is
    due where valid elements all weigh 0. Therefore they are told apart only if no element of the
    chunk has a positive weight.
    """
    chunk, dtype = bound.chunk, bound.dtype
    if n_unmasked is None:
        n_unmasked = chunk.size if chunk.keeps is None else n_true(chunk.keeps)
    n_idle = n_unmasked - tallied.n_valid - n_missing
    if n_idle == n_unmasked:
        is_missing = _is_missing(elements_of(chunk.values, dtype)[0], dtype)
        if chunk.keeps is not None:
            is_missing &= namespace(is_missing).reshape(chunk.keeps, is_missing.shape)
        n_idle -= n_true(is_missing)
    n_left_out = chunk.size - tallied.n_valid - n_missing - n_idle
    return replace(tallied, n_missing=n_missing, n_left_out=n_left_out, n_idle=n_idle)


def _is_missing(values: Array, dtype: np.dtype[Any]) -> Array:
    """Mark NaN, or NaT, in elements of `selection.elements_of`."""
    if dtype.kind in "mM":
        return values == np.iinfo(np.int64).min
    return values != values


def sorted_sample(bound: Backend, size: int, *, n_answers: int = 1) -> tuple[WeightedSample, float]:
    """Draw valid elements at `size` random places, ascending, with their weights.

    Also returns the share of all places that were drawn. Invalid weights are skipped: a later read
    of all of them raises. The sample is for `n_answers` quantiles, which may be so many that it
    takes a read to make it exact.
    """
    chunk, n, flat = bound.chunk, bound.size, (bound.size,)
    size = min(size, n)
    places = random_places(n, size)
    drawn = {}
    for name, array in {"values": chunk.values, **chunk.companions}.items():
        xp = namespace(array)
        drawn[name] = to_host(xp.take(xp.reshape(array, flat), like(places, array)))
    weights = drawn["weights"].astype(np.float64)
    takes = (weights > 0) & np.isfinite(weights) & drawn.get("keeps", True)
    sampled = Accompanied(drawn["values"][takes], None, weights[takes])
    values, weights, _ = weighed(sampled, bound.dtype)
    order = np.argsort(values)
    return WeightedSample.of(values[order], weights[order]), size / max(n, 1)


def near_shares(*_: Any, **__: Any) -> None:
    """Find elements at which some shares of the weight are probably reached, and their neighbours.

    They are distinct and ascending, from each first share to the last one. The sums may be rounded.
    None where a sample narrows brackets as fast.

    Parameters
    ----------
    chunk : Accompanied
        A chunk with weights.
    first, last : sequence of float
        Shares of the weight.
    """


def products(
    values: Array, weights: Array, ends: NDArray[Any], summed: NDArray[np.bool_]
) -> ExactSums:
    """Sum weights times elements exactly in some of the open cells between `ends`.

    Parameters
    ----------
    values, weights : array, shape (n,)
        Elements and weights that `weighed` returns.
    ends : ndarray, shape (E,)
        Ascending and distinct.
    summed : ndarray of bool, shape (E + 1,)
        True for the cells to sum; each is between two ends, so that its elements are finite.

    Returns
    -------
    ExactSums, shape (E + 1,)
        0 for other cells.
    """
    values, weights = to_host(values), to_host(weights)
    segment, is_inside = places(values, ends)
    takes = is_inside & summed[segment // 2]
    return ExactSums.of(segment[takes] // 2, len(summed), values[takes], weights[takes])


def moments(values: Array, weights: Array, stops: IntArray | None = None) -> Moments:
    """Sum a chunk exactly, each element times its weight; see `Moments`.

    Parameters
    ----------
    values, weights : array, shape (n,)
        Elements and weights that `weighed` returns.
    stops : ndarray of int64, optional
        Places behind runs of elements, which follow one another. Each run has sums of its own.
    """
    values, weights = to_host(values), to_host(weights)
    stops = np.array([len(values)]) if stops is None else stops
    run = np.repeat(np.arange(len(stops)), np.diff(stops, prepend=0))
    return Moments.of(values, run, len(stops), weights=weights)


def moments_ahead(bound: Backend) -> Callable[[], Moments]:
    """Start to sum a whole chunk exactly, as `moments` does.

    Returns a function that waits for the sums. It raises as `weighed` does.
    """
    return lambda: bound.weighing.moments(*bound.elements[:2])


def places(values: NDArray[Any], ends: NDArray[Any]) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the segment of each element, and whether it is in a cell.

    Even segments are cells, odd ones are ends.
    """
    segment = np.searchsorted(ends, values, side="left")
    segment += np.searchsorted(ends, values, side="right")
    return segment, segment % 2 == 0
