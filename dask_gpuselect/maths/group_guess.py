"""Brackets of groups that a sample guesses; the counts must prove them.

Plain NumPy on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, IntArray, covered
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
    # Each group has a place before its sample, which is open below, and one behind, open above.
    first, begin = np.cumsum(n) - n, np.cumsum(n + 2) - n - 1
    low = begin + np.maximum(lower - width, -1)
    high = begin + np.minimum(upper + width, n)
    ends = np.unique(np.concatenate([begin - 1, begin + n, low.ravel(), high.ravel()]))
    group = np.searchsorted(begin, ends + 1, "right") - 1
    place, is_before_end = ends - begin[group], covered(ends, low.ravel(), high.ravel())[:-1]
    is_end = (place >= 0) & (place < n[group])
    owner = group[is_end]
    elements = elements_at(first[owner] + place[is_end])
    # Equal elements make one end, as no element lies between them.
    is_new = np.append(np.True_, (owner[1:] != owner[:-1]) | (elements[1:] != elements[:-1]))
    is_new = is_new[: len(owner)]
    takes = place == n[group]  # the last cell of each group
    takes[is_end] = is_new
    n_ends = np.bincount(owner[is_new], minlength=len(n)).astype(np.int64)
    return Brackets(elements[is_new], is_before_end[takes], n_ends=n_ends)
