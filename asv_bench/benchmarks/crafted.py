"""A lane made for the samples that selecting it will draw, to be as slow as can be.

It has to know their places: the hash, and what it is salted with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu.long_lanes import FEW_LEFT, SAMPLED


def hashed(i: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64, as in the kernel."""
    with np.errstate(over="ignore"):
        i = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        i = (i ^ (i >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        i = (i ^ (i >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return i ^ (i >> np.uint64(31))


def salt_of(seed: int) -> Callable[[int], int]:
    """That of a sweep over n elements."""
    return lambda n: int(hashed(np.array([seed + n], np.uint64))[0] >> np.uint64(2))


def killer(n: int, rank: int, salt: Callable[[int], int], most_sweeps: int) -> NDArray[np.float64]:
    """Elements such that each sample, at places that are known beforehand, has the least of all
    that are left, so that a sweep is rid of few: some 40 of however many."""
    values = np.full(n, np.inf)
    left = np.arange(n)
    following = 0.0
    for _ in range(most_sweeps):
        m = len(left)
        if m <= FEW_LEFT or rank < 0:
            break
        n_sampled = SAMPLED // 2 if m < 2000 else SAMPLED
        i = np.arange(n_sampled)
        start = i * m // n_sampled
        length = (i + 1) * m // n_sampled - start
        within = hashed((salt(m) + i).astype(np.uint64)) % length.astype(np.uint64)
        drawn = left[start + within.astype(np.int64)]
        new = drawn[np.isinf(values[drawn])]
        values[new] = following + np.arange(len(new))
        following += len(new)
        place = (rank + 0.5) / m * n_sampled
        reach = 1.5 * np.sqrt(place * (1 - place / n_sampled)) + 1
        upto = np.sort(values[drawn])[min(int(place + reach), n_sampled - 1)]
        taken = values[left] > upto
        rank -= m - int(taken.sum())
        left = left[taken]
    rest = np.isinf(values)
    values[rest] = following + np.random.default_rng(5).permutation(int(rest.sum()))
    return values
