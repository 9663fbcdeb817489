"""Samples, and the brackets that they suggest: the reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.kernels.reference.moments import moments
from dask_gpuselect.kernels.reference.selection import tally
from dask_gpuselect.maths.boxes import BoxGuess
from dask_gpuselect.maths.cuts import Brackets, IntArray, RanksOf, Tally
from dask_gpuselect.maths.envelope import guess_brackets
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import pilot_room


def sample(values: Array, size: int) -> NDArray[Any]:
    """Valid elements at `size` random places, one in each of as many equal stretches.

    Returns
    -------
    ndarray
        On the host. Fewer than `size` if some are NaN. The same in every call.
    """
    starts = np.arange(size + 1) * values.shape[0] // max(size, 1)
    places = np.random.default_rng(0).integers(starts[:-1], starts[1:])
    drawn: NDArray[Any] = to_host(namespace(values).take(values, like(places, values)))
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


def sorted_sample(values: Array, size: int) -> tuple[Array, float]:
    """Elements at `size` random places or more, ascending, on the array's device, of which NaN may
    be the last; and which share of all places these are."""
    return np.sort(sample(values, size)), size / max(values.shape[0], 1)


def pilot(values: Array, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Brackets that a sample suggests, and the tally there.

    Parameters
    ----------
    size : int
        Of the sample.
    ranks : callable
        Which order statistics are wanted, of any number of elements.

    Returns
    -------
    brackets : Brackets
        They hold what is wanted with near certainty.
    tally : Tally or None
        None if there are many more candidates than the sample lets expect.
    """
    return pilot_from(sample(values, size), partial(tally, values), values.shape[0], ranks)


def pilot_from(
    drawn: NDArray[Any],
    tally: Callable[[Brackets, int], Tally | None],
    n: int,
    ranks: RanksOf,
) -> tuple[Brackets, Tally | None]:
    """Brackets that a sample of n elements suggests, which is on the host, and the tally there."""
    ordered = np.sort(drawn)
    brackets, share = guess_brackets(ordered.take, len(ordered), *ranks(len(ordered)))
    return brackets, tally(brackets, pilot_room(share, n))


def tally_and_sums(
    values: Array, brackets: Brackets, most: int, ranks: Callable[[int], IntArray]
) -> tuple[Tally | None, Moments]:
    """The tally at some brackets, whose candidates may stay on the array's device, and exact sums.

    Parameters
    ----------
    ranks : callable
        Which order statistics will be wanted first, of so many elements: a device may select them
        at once.
    """
    del ranks
    return tally(values, brackets, most), moments(values, brackets.ends)


def guess_and_sums(
    values: Array, sample: Array, guess: BoxGuess, most: int, ranks: Callable[[int], IntArray]
) -> tuple[Brackets, Tally | None, Moments] | None:
    """Brackets by a sorted sample, and `tally_and_sums` there, without waiting for the host; None
    if they are to be found on the host, and always for arrays there."""
    return None


def is_best_whole(values: Array) -> bool:
    """Whether all elements of an array in memory had best be candidates: no, a read is faster."""
    return False


def is_best_counted(values: Array) -> bool:
    """Whether an array in memory whose values are countable had best be counted, where ranks are
    all that is asked, and not sampled."""
    return True


def whole(values: Array, ranks: RanksOf) -> Tally:
    """The tally of a bracket of everything, for the elements of some ranks."""
    host = to_host(values).ravel()
    everything = Brackets(host[:0], np.ones(1, np.bool_))
    found = tally(values, everything, host.size)
    assert found is not None
    return found
