"""Weighted elements of NumPy chunks, in both loads, compiled by Numba.

For 1e7 normal float64 with float64 weights on one thread, `weighed` and `cuts` take 1.5 times as
long as `cells.cuts` without weights (12.7 and 8.4 ns an element). Weights that are not float64 are
integers beyond 2**53, and rare: the reference handles them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.compiling import kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.cells import OVERSAMPLING, SORT_AT_MOST
from dask_gpuselect.kernels.cpu.draws import sample
from dask_gpuselect.kernels.cpu.moments import plus_product
from dask_gpuselect.kernels.cpu.products import moments as moments
from dask_gpuselect.kernels.cpu.products import products as products
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.selection import flat
from dask_gpuselect.kernels.cpu.spans import tally_by, weigh
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, find_places, tree_of
from dask_gpuselect.kernels.reference import weighing as reference
from dask_gpuselect.kernels.reference.selection import HEAVY, gathered_cells
from dask_gpuselect.kernels.reference.weighing import in_units
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.keys import EXACT_UP_TO
from dask_gpuselect.maths.weights import NEGATIVE, NOT_FINITE

# --- Elements that take part ----------------------------------------------------------------------


def _by_numpy(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return what `reference.weighing.weighed` does, in a form that kernels take too."""
    *arrays, n_missing = reference.weighed(chunk, dtype)
    values, weights = (np.require(array, None, ["C", "A"]) for array in arrays)
    return values, weights, n_missing


@until_compiled(_by_numpy)
def weighed(
    chunk: Accompanied, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.float64], int]:
    """Return valid elements of positive weight, and the weights; see `reference.weighing.weighed`.

    These are views of contiguous arrays if every element is valid, unmasked and of positive weight.
    Then they are only read once.
    """
    weights = chunk.companions["weights"]
    if weights.dtype.kind in "iu" and weights.max(initial=0) > EXACT_UP_TO:
        return reference.weighed(chunk, dtype)
    # In the order of memory, so that a transposed chunk is not copied.
    axes = np.argsort([-abs(stride) for stride in chunk.values.strides], kind="stable").tolist()
    values = flat(np.ascontiguousarray(chunk.values.transpose(axes)), dtype)
    weights = np.require(weights.transpose(axes).ravel(), np.float64, ["C", "A"])
    has_nat = dtype.kind in "Mm"
    if chunk.keeps is not None:
        keeps = chunk.keeps.transpose(axes).ravel()
    elif _all_take_part(values, weights, has_nat):
        return values, weights, 0
    else:
        keeps = np.broadcast_to(True, values.shape)
    out, out_weights = np.empty_like(values), np.empty_like(weights)
    n, n_missing, n_negative, n_not_finite = _take_part(
        values, weights, keeps, has_nat, out, out_weights
    )
    if n_negative:
        raise ValueError(NEGATIVE)
    if n_not_finite:
        raise ValueError(NOT_FINITE)
    return out[:n], out_weights[:n], n_missing


@kernel
def _all_take_part(x: t.Values, weights: t.Reals, has_nat: bool) -> Any:
    """Return whether all weights are positive and finite, and no element is missing."""
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        run_weights = weights[start : min(start + RUN, x.size)]
        n_out = 0
        for k in range(run.size):
            is_usual = (run_weights[k] > 0) & (run_weights[k] < np.inf)
            n_out += (not is_usual) | is_missing(run[k], has_nat)
        if n_out:
            return False
    return True


@kernel
def _take_part(
    x: t.Values,
    weights: t.Reals,
    keeps: t.StridedFlags,
    has_nat: bool,
    out: t.Out,
    out_weights: t.Floats,
) -> Any:
    """Write the valid elements of positive weight and their weights, and count the others.

    Returns the number written, and those of missing elements, negative weights and non-finite
    weights.
    """
    n, n_missing, n_negative, n_not_finite = 0, 0, 0, 0
    for k in range(x.size):
        weight, is_used = weights[k], keeps[k]
        n_negative += is_used & (weight < 0)
        n_not_finite += is_used & (not weight < np.inf)
        weighs, is_none = is_used & (weight > 0), is_missing(x[k], has_nat)
        n_missing += weighs & is_none
        out[n], out_weights[n] = x[k], weight
        n += weighs & (not is_none)
    return n, n_missing, n_negative, n_not_finite


# --- Load 1 ---------------------------------------------------------------------------------------


@until_compiled(reference.cuts)
def cuts(values: NDArray[Any], weights: NDArray[np.float64], n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at sampled pivots; see `reference.weighing.cuts`.

    Reads the chunk once, and its weights twice or three times. Scratch: about 200 bytes for each
    pivot, and twice the elements of heavy cells.
    """
    if weights.dtype != np.float64:
        return reference.cuts(values, weights, n_pivots)
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    # The unit of whole weights: there are less than 2**62 of them in all.
    unit = (math.frexp(total)[1] if total < np.inf else 1024 + len(weights).bit_length()) - 61
    pivots = values[:0]
    if len(values) > SORT_AT_MOST:
        pivots = _sample_pivots(values, weights, unit, total / n_pivots, n_pivots)
    scale = math.ldexp(1.0, -unit // 2), math.ldexp(1.0, -unit - -unit // 2)
    inside, equal, square = _classify(values, weights, tree_of(pivots), *scale)
    upto = np.cumsum(inside + equal, axis=0)
    totals, upto = upto[-1], upto[: len(pivots)]
    below = upto - equal[: len(pivots)]
    measured = pivots, below, upto, totals
    pivots, below, upto = _with_heavy_split(measured, values, weights, unit, n_pivots)
    return reference.cuts_of_chunk(pivots, below, upto, totals, unit, square)


def _even_places(units: IntArray, totals: IntArray, n_steps: int) -> IntArray:
    """Return the places among sorted elements at which steps end.

    The share of a step in the number of elements and its share in the weight add up to ``2 /
    n_steps``, or the step is one heavy element. `totals` holds the whole number and weight.
    """
    shares = np.arange(1, len(units) + 1) / totals[0] + np.cumsum(units) / max(totals[1], 1)
    return np.flatnonzero(np.diff(np.floor(shares * (n_steps / 2)), prepend=0))


RARELY = 16  # elements this many times as heavy as all of a sample are few, if there are any


def _sample_pivots(
    values: NDArray[Any], weights: NDArray[np.float64], unit: int, share: float, n_pivots: int
) -> NDArray[Any]:
    """Choose about twice `n_pivots` distinct pivots, at even steps through a sorted sample.

    All elements that weigh more than a share are pivots too. Without them, cells would be too
    heavy, and dividing these takes one more pass: 22 ns an element instead of 13 for 1e7 elements
    with lognormal weights (sigma 3).
    """
    n_steps = 1 << ((2 * n_pivots + 1).bit_length() - 1)  # one more than a tree has nodes
    size = min(OVERSAMPLING * n_steps, len(values))
    drawn, drawn_weights = sample(values, size), sample(weights, size)  # at the same places
    heavy = values[:0]
    if drawn_weights.max() > share / RARELY:
        heavy = values[weights > share]
    order = np.argsort(drawn)
    units = in_units(np.minimum(drawn_weights, share)[order], unit)
    places = _even_places(units, np.array([size, units.sum()]), n_steps)
    return np.unique(np.concatenate([drawn[order[places[: n_steps - 1]]], heavy]))


Measured = tuple[NDArray[Any], IntArray, IntArray, IntArray]
"""Pivots; the numbers of elements and their weights below and up to each; and those of all."""


def _with_heavy_split(
    cuts: Measured, values: NDArray[Any], weights: NDArray[np.float64], unit: int, n_pivots: int
) -> tuple[NDArray[Any], IntArray, IntArray]:
    """Divide the cells that hold more than `HEAVY` times their share, at exactly even steps.

    A share is one of the elements or of the weight; both are columns of the tables. Without a
    pivot, the only cell is divided.
    """
    pivots, below, upto, totals = cuts
    before = np.concatenate([np.zeros((1, 2), np.int64), upto])
    inside = np.concatenate([below, totals[np.newaxis]]) - before
    most = HEAVY * np.maximum(totals / n_pivots, 1) if len(pivots) else 0
    heavy = np.flatnonzero((inside > most).any(axis=1))
    if len(heavy) == 0:
        return pivots, below, upto
    inside_heavy, own_weights = values, weights
    if len(pivots):
        gather = partial(tally, values, weights)
        gathered = gathered_cells(gather, pivots, heavy, int(inside[heavy, 0].sum()))
        inside_heavy, own_weights = gathered.candidates.on_host(), gathered.weights
    order = np.argsort(inside_heavy)
    inside_heavy, units = inside_heavy[order], in_units(own_weights[order], unit)

    within = np.unique(inside_heavy[_even_places(units, totals, 2 * n_pivots)])
    sums = np.zeros((len(inside_heavy) + 1, 2), np.int64)
    sums[1:, 0], sums[1:, 1] = np.arange(1, len(inside_heavy) + 1), np.cumsum(units)
    cell = np.searchsorted(pivots, within)
    base = before[cell] - sums[np.append(0, np.searchsorted(inside_heavy, pivots))[cell]]
    all_pivots = np.concatenate([pivots, within])
    order = np.argsort(all_pivots)
    return (
        all_pivots[order],
        np.concatenate([below, base + sums[np.searchsorted(inside_heavy, within)]])[order],
        np.concatenate([upto, base + sums[np.searchsorted(inside_heavy, within, "right")]])[order],
    )


@kernel
def _classify(x: t.Values, weights: t.Reals, tree: Tree, a: float, b: float) -> Any:
    """Sum the cells of x: those below each pivot, and those equal to it.

    Returns the number of elements and their weight in whole units, ``weight * a * b`` rounded down,
    and the sum of the squares of the weights before rounding.

    The places of a whole run are looked up first: 9.5 ns an element, and 12.3 if each is looked up
    when its element is added.
    """
    _, pivots, _ = tree
    # Two copies for even and odd elements, as in `spans`.
    sums = np.zeros((2, 2 * pivots.size, 2), np.int64)
    place = np.empty(RUN, np.uint32)
    units = np.empty(RUN, np.int64)
    square = 0.0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        run_weights = weights[start : min(start + RUN, x.size)]
        find_places(run, tree, place)
        for k in range(run.size):
            exact = run_weights[k] * a * b
            units[k] = np.int64(exact)
            square = plus_product(square, exact, exact)
        for k in range(run.size):
            sums[k & 1, place[k], 0] += 1
            sums[k & 1, place[k], 1] += units[k]
    both = sums[0] + sums[1]
    return both[::2], both[1::2], square


# --- Load 2 ---------------------------------------------------------------------------------------


@until_compiled(reference.tally)
def tally(
    values: NDArray[Any], weights: NDArray[np.float64], brackets: Brackets, most: int
) -> Tally | None:
    """Count and weigh elements at the ends exactly and gather candidates.

    See `reference.weighing.tally`. Scratch: `most` elements and their weights.
    """
    if weights.dtype != np.float64:
        return reference.tally(values, weights, brackets, most)
    return tally_by(weigh, values, weights, brackets, most)
