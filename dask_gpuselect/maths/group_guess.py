"""Brackets of groups that a sample guesses; the counts must prove them.

Plain NumPy on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, IntArray
from dask_gpuselect.maths.lane_cuts import RanksOfLanes

# Standard deviations from the wanted rank to either end of a bracket. With 10^5 groups, one bracket
# fails in every 17th call.
WIDTH = 5


def sample_size(n: int, n_groups: int, n_answers: int) -> tuple[int, int]:
    """Choose the sample size with the fewest sampled elements and candidates together.

    Returns it and the expected number of candidates among `n` elements.

    With s elements sampled of each of g groups, a bracket holds about ``WIDTH / sqrt(s)`` of a
    group's elements, so all sampled and all candidates are ``g s + n WIDTH / sqrt(s)``.
    """
    wide = WIDTH * max(n_answers, 1)
    size = math.ceil((n * wide * math.sqrt(n_groups) / 2) ** (2 / 3))
    each = max(size / n_groups, 1)
    share = wide / math.sqrt(each) + 2 * (WIDTH + 1) * max(n_answers, 1) / each
    return size, math.ceil(n * min(share, 1))


def guess_group_brackets(
    n: IntArray, ranks: RanksOfLanes, elements_at: Callable[[IntArray], NDArray[Any]]
) -> Brackets:
    """Bracket the wanted order statistics of every group with near certainty, by a sample.

    Parameters
    ----------
    n : ndarray of int64, shape (G,)
        Number of valid elements of each group in a random sample.
    ranks : callable
        Function from numbers of elements to the lower and upper ranks that are wanted.
    elements_at : callable
        Function from places in the sample, ordered by group and value, to the elements there.
    """
    lower, upper = (np.broadcast_to(each, (len(each), len(n))) for each in ranks(np.maximum(n, 1)))
    middle = (lower + upper + 1) / 2
    spread = np.sqrt(np.maximum(middle * (1 - middle / np.maximum(n, 1)), 0))
    width = np.ceil(WIDTH * spread).astype(np.int64) + WIDTH
    # Place -1 is open below, place n open above.
    low, high = np.maximum(lower - width, -1), np.minimum(upper + width, n)
    places = np.sort(np.concatenate([low, high]), axis=0).T
    # True if a bracket covers the cell before, between or behind the places of a group.
    covered = np.zeros((len(n), places.shape[1] + 1), np.bool_)
    for each_low, each_high in zip(low, high, strict=True):
        covered[:, 1:-1] |= (each_low[:, None] <= places[:, :-1]) & (
            places[:, 1:] <= each_high[:, None]
        )
    is_end = (places >= 0) & (places < n[:, None])
    group, column = np.nonzero(is_end)
    elements = elements_at(places[is_end] + (np.cumsum(n) - n)[group])
    # Equal elements make one end, as no element lies between them.
    is_new = np.append(np.True_, (group[1:] != group[:-1]) | (elements[1:] != elements[:-1]))[
        : len(group)
    ]
    group, column, ends = group[is_new], column[is_new], elements[is_new]
    n_ends = np.bincount(group, minlength=len(n)).astype(np.int64)
    wanted = np.zeros(len(ends) + len(n), np.bool_)
    wanted[np.arange(len(ends)) + group] = covered[group, column]
    behind = np.count_nonzero(places < n[:, None], axis=1)
    wanted[np.cumsum(n_ends + 1) - 1] = covered[np.arange(len(n)), behind]
    return Brackets(ends, wanted, n_ends=n_ends)
