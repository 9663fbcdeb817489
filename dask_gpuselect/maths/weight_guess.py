"""Guesses of brackets of weighted quantiles, from a sample of elements and their weights.

Narrower brackets are guessed in the same way among the candidates of wider ones. No guess has to be
right: the exact sums of a read prove whether the brackets hold. So the sums of the sample's weights
may be floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import SAMPLED_ROOM, Rule, bracket_box, likely_envelope
from dask_gpuselect.maths.cuts import (
    ADVICE,
    Brackets,
    ChunksChangedError,
    FloatArray,
    IntArray,
    Tally,
)
from dask_gpuselect.maths.envelope import brackets_at
from dask_gpuselect.maths.exact_sums import ExactSums, whole_needs
from dask_gpuselect.maths.finish import inside
from dask_gpuselect.maths.orders import GatheredRuns
from dask_gpuselect.maths.sizes import PILOT_SIGMA
from dask_gpuselect.maths.weight_finish import sums_reached, windows
from dask_gpuselect.maths.weights import PRODUCT_UNIT, WEIGHT_UNIT

FEW_ANSWERS = 20  # most quantiles of which the own weights of a sample leave few candidates


@dataclass(frozen=True, slots=True, eq=False)
class WeightedSample:
    """Random sample of weighted elements, sorted, in stretches of one element or more.

    Parameters
    ----------
    last : ndarray, shape (n,)
        Last element of each stretch, ascending.
    weights, squares : ndarray of float64, shape (n,)
        Sum of the weights of each stretch, and of their squares. They are scaled such that the
        largest weight is 1. Stretches of weight 0 are behind all others.
    largest : ndarray of float64, shape (n,)
        Largest weight of each stretch.
    counts : ndarray of int64, shape (n,)
        Number of elements of each stretch.
    is_measured : bool
        True if weights and counts are those of all elements, and not of the sample.
    """

    last: NDArray[Any]
    weights: FloatArray
    squares: FloatArray
    largest: FloatArray
    counts: IntArray
    is_measured: bool = False

    @classmethod
    def of(cls, ordered: NDArray[Any], weights: FloatArray) -> Self:
        """Make a sample with a stretch for every element, scaled so that no square overflows."""
        scaled = weights / weights.max(initial=0) if len(weights) else weights
        return cls(ordered, scaled, scaled * scaled, weights, np.ones(len(ordered), np.int64))

    def measured(self, counts: IntArray, weights: FloatArray, rate: float) -> Self:
        """Return the sample with the counts and weights of all elements instead of its own.

        They are those of segments whose ends are the last elements. The largest weight of the
        sample is 1, and `rate` is the share of all elements that is in the sample.
        """
        some = self.largest > 0
        upto = np.stack([counts, weights]).cumsum(axis=1)
        within = upto[:, 1::2][:, some]
        within[:, -1:] = upto[:, -1:]
        counts, weights = np.diff(within, prepend=0)
        squares, noise = self.squares[some] / rate, PILOT_SIGMA**2 * self.squares.sum()
        # The sample may lack a few elements that have much of the weight.
        lacks = (weights.sum() * rate - self.weights.sum()) ** 2 - noise
        squares[-1:] += max(lacks, 0) / rate**2
        columns = weights, squares, self.largest[some], counts.astype(np.int64)
        return type(self)(self.last[some], *columns, is_measured=True)

    def shares(
        self, q: Sequence[float], method: str, rate: float
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Estimate up to which shares of the weight the elements of some quantiles begin and end.

        Those of the method "linear" are in a window of the weight. `rate` is the share of all
        elements that is in the sample.
        """
        if method != "linear":
            return q, q
        weight = float(self.weights.sum()) or 1.0
        width = min(rate * float(self.squares.sum()) / weight**2, 1.0)
        first = [each * (1 - width) for each in q]
        return first, [each + width for each in first]

    def places(self, first: Sequence[float], last: Sequence[float]) -> tuple[int, Any, Any]:
        """Find places of stretches, (lo, hi], between which the elements at some shares lie.

        They nearly certainly do, from each first share to each last one. Place -1 is open below;
        the number of stretches with a weight, which is returned too, is open above.

        Notes
        -----
        The share of the sampled weight up to an element has a variance of
        ``((1 - q)**2 A + q**2 B) / W**2`` to first order. A is the sum of the squares of the
        weights up to there, B of the others, and W the sum of all weights. One more weight, the
        largest, accounts for one element more or less. Measured weights are only rounded.
        """
        upto, squares = np.cumsum(self.weights), np.cumsum(self.squares)
        if not len(upto) or not upto[-1] > 0:
            return 0, None, None
        n = int(upto.searchsorted(upto[-1])) + 1
        q = np.array([*first, *last], np.float64)
        sign = np.repeat([-PILOT_SIGMA, PILOT_SIGMA], len(first))
        share = q * upto[-1]
        below = squares[np.minimum(upto.searchsorted(share), n - 1)]
        doubt = np.sqrt((1 - q) ** 2 * below + q**2 * (squares[-1] - below)) + 1
        rounding = ROUNDING * float(self.counts.sum()) ** 2
        reach = sign * (rounding if self.is_measured else doubt)
        lo, hi = np.minimum(upto.searchsorted(share + reach), n).reshape(2, -1)
        return n, lo - 1, hi


def guess_share_brackets(
    sample: WeightedSample, first: Sequence[float], last: Sequence[float]
) -> Brackets:
    """Bracket the elements at some shares of all weights with near certainty.

    Parameters
    ----------
    sample : WeightedSample
    first, last : sequence of float
        A bracket is wanted from each first share to each last one.

    Returns
    -------
    Brackets
    """
    n, lo, hi = sample.places(first, last)
    return brackets_at(sample.last.take, n, lo, hi) if n else _everything(sample)


def guess_box_brackets(
    sample: WeightedSample,
    shares: tuple[Sequence[float], Sequence[float]],
    rate: float,
    rule: Rule,
    *,
    is_inside: bool = False,
) -> Brackets:
    """Choose the cells to gather for a weighted box with near certainty.

    Parameters
    ----------
    sample : WeightedSample
    shares : tuple of two sequences of float
        First and last shares of the weight, between which the quantiles `Rule.q` lie.
    rate : float
        Share of all elements that is in the sample.
    rule : Rule
    is_inside : bool
        True if the elements are candidates of brackets for the same box. Then the elements near the
        fences are always gathered again, and of those beyond only the most extreme ones.

    Returns
    -------
    Brackets
    """
    n, lo, hi = sample.places(*shares)
    if not n:
        return _everything(sample)
    last = sample.last[:n]
    is_last = np.append(last[1:] != last[:-1], True)
    ends, begins = np.flatnonzero(is_last), np.flatnonzero(np.append(True, is_last[:-1]))
    position = is_last.cumsum() - is_last
    upto = sample.counts[:n].cumsum()
    size = int(upto[-1])
    likely = likely_envelope(last[ends], upto[begins] - 1, upto[ends], size)
    lo = np.where(lo < 0, -1, position[lo])
    hi = np.where(hi == n, len(ends), position[np.minimum(hi, n - 1)])
    tied = np.flatnonzero(MOST_HEAVY * (ends - begins) > n)
    few = replace(rule, max_fliers=math.ceil(rule.max_fliers * rate))
    is_narrow = is_inside or sample.is_measured
    room, most_beyond = (size, 0.0) if is_narrow else (int(SAMPLED_ROOM * size), None)
    return bracket_box(likely, few, lo, hi, tied, room, most_beyond=most_beyond)


def _everything(sample: WeightedSample) -> Brackets:
    return Brackets(sample.last[:0], np.ones(1, np.bool_))


ROUNDING = 2.0**-58  # more than the doubt of n measured weights, divided by n**2 and the largest
MOST_HEAVY = 64  # a value that more than one in so many elements equal is counted, not gathered


def shares_inside(
    brackets: Brackets, tally: Tally, q: Sequence[float], method: str
) -> tuple[list[float], list[float]]:
    """Find shares of the candidates' weight that bracket the elements of some quantiles.

    They are shares up to the first and up to the last of these elements, among the candidates
    alone.

    Raises
    ------
    ChunksChangedError
        If one of the elements is neither a candidate nor an end.
    """
    order, total = GatheredRuns.of_tally(brackets, tally), tally.weight.integers(WEIGHT_UNIT)
    sums = ExactSums.of_integers(wanted_sums(total.item(), tally.square, q, method), WEIGHT_UNIT)
    cell, is_end = order.cells_reached(np.zeros(len(sums), np.int64), sums)
    if not (is_end | brackets.wanted[cell]).all():
        raise ChunksChangedError(
            f"the data have changed between two reads: guessed brackets do not hold. {ADVICE}"
        )
    edges, others = (each.integers(WEIGHT_UNIT) for each in (order.before, order.others))
    reached = np.where(is_end, edges[2 * cell + 2], sums.integers(WEIGHT_UNIT))
    shares = ((reached - others[cell + is_end]) / max(edges[-1] - others[-1], 1)).tolist()
    return shares[: len(q)], shares[len(q) :]


def wanted_sums(
    total: int, square: ExactSums, q: Sequence[float], method: str
) -> NDArray[np.object_]:
    """Find the whole sums that the first elements of some quantiles reach, and then the last ones.

    `total` is the weight of all elements, `square` the sum of its squares. Sums are in units of
    ``2**-POINT``.
    """
    if method == "linear":
        both = sums_reached(*windows(total, square.integers(PRODUCT_UNIT)[0], q))
    else:
        both = whole_needs(total, np.array(q, np.float64))
    return np.concatenate(both)


def refined(
    brackets: Brackets, tally: Tally, narrow: Brackets, narrow_tally: Tally
) -> tuple[Brackets, Tally]:
    """Add the ends of narrower brackets among the candidates to brackets, and to their tally.

    Parameters
    ----------
    brackets : Brackets
    tally : Tally
        Tally of all elements, at these brackets.
    narrow : Brackets
        Each end is one of the candidates.
    narrow_tally : Tally
        Tally of the candidates of `tally`, at the narrower brackets.

    Returns
    -------
    Brackets
    """
    ends = np.unique(np.concatenate([brackets.ends, narrow.ends]))
    cell, at = (np.searchsorted(each.ends, ends) for each in (brackets, narrow))
    is_old = np.isin(ends, brackets.ends)
    last = len(brackets.ends), len(narrow.ends)
    wanted = brackets.wanted[np.append(cell, last[0])] & narrow.wanted[np.append(at, last[1])]
    # All elements between the begin of a gathered cell and an end inside it are candidates.
    gathered = inside(tally) * brackets.wanted
    others = np.append(np.int64(0), tally.upto) - (gathered.cumsum() - gathered)
    order = GatheredRuns.of_tally(brackets, tally)
    other_weights = order.others[:-1].integers(WEIGHT_UNIT)

    def merged(was: NDArray[Any], new: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
        was, new = np.append(was, 0), np.append(new, 0)
        return np.where(is_old, was[cell], others[cell] + new[at])

    def merged_weights(*columns: ExactSums) -> ExactSums:
        was, new = (each.integers(WEIGHT_UNIT) for each in columns)
        return ExactSums.of_integers(merged(was, new, other_weights), WEIGHT_UNIT)

    return replace(brackets, ends=ends, wanted=wanted), replace(
        tally,
        below=merged(tally.below, narrow_tally.below, others),
        upto=merged(tally.upto, narrow_tally.upto, others),
        candidates=narrow_tally.candidates,
        weights=narrow_tally.weights,
        weight_below=merged_weights(tally.weight_below, narrow_tally.weight_below),
        weight_upto=merged_weights(tally.weight_upto, narrow_tally.weight_upto),
    )
