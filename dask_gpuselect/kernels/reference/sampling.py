"""Samples, and the brackets that follow from them: the reference.

Functions that ask for other kernels ask those of the array's own backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.kernels.reference.selection import tally
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.cuts import Brackets, IntArray, RanksOf, Tally
from dask_gpuselect.maths.envelope import guess_brackets
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import pilot_room


def sample(values: Array, size: int) -> NDArray[Any]:
    """Draw valid elements at `size` random places, one in each of as many equal stretches.

    Returns
    -------
    ndarray
        On the host. Fewer than `size` if some are NaN. The same in every call.
    """
    places = random_places(values.shape[0], size)
    drawn: NDArray[Any] = to_host(namespace(values).take(values, like(places, values)))
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


def random_places(n: int, size: int, random: Any = 0) -> NDArray[np.int64]:
    """Return `size` random places among n, one in each of as many equal stretches.

    `random` is a seed or a generator.
    """
    starts = np.arange(size + 1) * n // max(size, 1)
    return np.random.default_rng(random).integers(starts[:-1], starts[1:])


def sorted_sample(values: Array, size: int) -> tuple[Array, float]:
    """Return at least `size` elements at random places, ascending, on the array's device.

    NaN may come last. Also returns the share of all places that were drawn.
    """
    drawn = backend_for(values).sampling.sample(values, size)
    return np.sort(drawn), size / max(values.shape[0], 1)


def pilot(values: Array, size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Find brackets by a sample, and tally the array there.

    Parameters
    ----------
    values : array, shape (n,)
        Elements.
    size : int
        Size of the sample.
    ranks : callable
        Maps a number of elements to the wanted ranks.

    Returns
    -------
    brackets : Brackets
        They hold the wanted elements with near certainty.
    tally : Tally or None
        None if there are many more candidates than the sample lets expect.
    """
    own = backend_for(values)
    ordered = np.sort(own.sampling.sample(values, size))
    brackets, share = guess_brackets(ordered.take, len(ordered), *ranks(len(ordered)))
    return brackets, own.selection.tally(values, brackets, pilot_room(share, values.shape[0]))


def tally_and_sums(
    values: Array, brackets: Brackets, most: int, ranks: Callable[[int], IntArray]
) -> tuple[Tally | None, Moments]:
    """Tally an array at some brackets, and sum it exactly.

    The candidates may stay on its device.

    Parameters
    ----------
    values, brackets, most
        As for `selection.tally`.
    ranks : callable
        Maps a number of elements to the ranks that will be wanted first: a device may select them
        in the same pass.
    """
    del ranks
    own = backend_for(values)
    return own.selection.tally(values, brackets, most), own.moments.moments(values, brackets.ends)


def guess_and_sums(*_: Any, **__: Any) -> None:
    """Find brackets by a sorted sample, tally the array there and sum it, without the host.

    None if the host has to find the brackets, and always for arrays on the host.
    """


def is_best_whole(values: Array, times: int = 1) -> bool:
    """Return whether all elements of an array in memory are best taken as candidates.

    Here it is False: one more read is faster. `times` tells how many times as much a question costs
    among candidates as ranks do.
    """
    return False


def whole(values: Array, ranks: Callable[[int], Any]) -> Tally:
    """Tally a bracket of everything, for the elements of some ranks."""
    host = to_host(values).ravel()
    everything = Brackets(host[:0], np.ones(1, np.bool_))
    tallied = tally(values, everything, host.size)
    assert tallied is not None
    return tallied
