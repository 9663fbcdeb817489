"""Distances of the elements of a window from its median, in a set of marks among sorted elements.

The nearest elements are those between two bounds, of which one window's are near the next one's.
Where they are far, as in the first window, words of marks are passed as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels
from dask_gpuselect.kernels.cpu.bits import first_bit, last_bit, n_bits

FAR = 8  # moves of bounds, and one for each element that enters, until words are passed


@called_by_kernels
def nearest(block: Any, middle: Any, about: Any, near: Any) -> Any:
    """Find the distances of two ranks from the median of a window, and where such elements are.

    Parameters
    ----------
    block : tuple
        The sorted elements of a block, marks of those in the window, and the number of their words.
    middle : int
        The rank in the block of the lower element in the middle.
    about : tuple of int
        The number of elements in the window, the two ranks of distances, and the number of moves
        of bounds after which words are passed.
    near : tuple of int
        The first rank in the block of the nearest elements of an earlier window, and the rank
        behind the last one.
    """
    values, words, n_words = block
    n_in_window, wanted, upper, far = about
    start, stop = near
    n = _n_between(words, start, stop)
    kind = values.dtype.type
    a = np.float64(values[middle])
    b = a
    if n_in_window % 2 == 0:
        b = np.float64(values[_first_from(words, n_words, middle + 1)])
    total = a + b
    centre = kind(total / 2 if np.isfinite(total) else a / 2 + b / 2)
    if not np.isfinite(np.float64(centre)):
        return near, (kind(np.nan), kind(np.nan))
    none, end = kind(np.inf), 64 * n_words
    is_far, n_moves = start == stop, 0
    below, lowest, highest, above = _around(words, n_words, start, stop)
    while True:
        if is_far:
            start, stop = _passed(block, middle, centre, wanted)
            n = _n_between(words, start, stop)
            below, lowest, highest, above = _around(words, n_words, start, stop)
            is_far = False
        to_below = abs(kind(values[below] - centre)) if below >= 0 else none
        to_above = abs(kind(values[above] - centre)) if above < end else none
        if n <= wanted:
            n += 1
            if above < end and (below < 0 or to_above < to_below):
                highest, above = above, _first_from(words, n_words, above + 1)
            else:
                lowest, below = below, _last_before(words, below)
        else:
            to_low = abs(kind(values[lowest] - centre))
            to_high = abs(kind(values[highest] - centre))
            is_less = n > wanted + 1
            if to_below < to_high or (is_less and to_low <= to_high):
                above, highest = highest, _last_before(words, highest)
                if not is_less:
                    lowest, below = below, _last_before(words, below)
            elif to_above < to_low or is_less:
                below, lowest = lowest, _first_from(words, n_words, lowest + 1)
                if not is_less:
                    highest, above = above, _first_from(words, n_words, above + 1)
            else:
                break
            n -= is_less
        n_moves += 1
        is_far = n_moves == far
    first = second = max(to_low, to_high)
    if upper > wanted:
        second = min(to_below, to_above)
    return (lowest, highest + 1), (first, second)


@called_by_kernels
def _around(words: Any, n_words: Any, start: Any, stop: Any) -> Any:
    """Return the last element before bounds, the first and last within, and the first behind."""
    lowest, highest = _first_from(words, n_words, start), _last_before(words, stop)
    return _last_before(words, start), lowest, highest, _first_from(words, n_words, stop)


@called_by_kernels
def _n_between(words: Any, start: Any, stop: Any) -> Any:
    """Count the marks from one rank to before another."""
    n = 0
    own = words[start >> 6 : stop >> 6]
    for i in range(own.size):
        n += n_bits(own[i])
    n += n_bits(words[stop >> 6] & ~(~np.uint64(0) << np.uint64(stop & 63)))
    return n - n_bits(words[start >> 6] & ~(~np.uint64(0) << np.uint64(start & 63)))


@called_by_kernels
def _first_from(words: Any, n_words: Any, rank: Any) -> Any:
    """Find the first marked rank from one on; there may be none."""
    word = rank >> 6
    if word >= n_words:
        return 64 * n_words
    bits = words[word] & (~np.uint64(0) << np.uint64(rank & 63))
    while bits == 0:
        word += 1
        if word >= n_words:
            return 64 * n_words
        bits = words[word]
    return 64 * word + first_bit(bits)


@called_by_kernels
def _last_before(words: Any, rank: Any) -> Any:
    """Find the last marked rank before one, or -1."""
    word = (rank - 1) >> 6
    if word < 0:
        return -1
    bits = words[word] & (~np.uint64(0) >> np.uint64(63 - ((rank - 1) & 63)))
    while bits == 0:
        word -= 1
        if word < 0:
            return -1
        bits = words[word]
    return 64 * word + last_bit(bits)


@called_by_kernels
def _passed(block: Any, middle: Any, centre: Any, wanted: Any) -> Any:
    """Pass words of which all elements are among the nearest; return bounds of these."""
    values, words, n_words = block
    word = middle >> 6
    upto = ~np.uint64(0) >> np.uint64(63 - (middle & 63))
    low_word, low = word, words[word] & upto
    high_word, high = word, words[word] & ~upto
    n = 0
    while high == 0 and high_word + 1 < n_words:
        high_word += 1
        high = words[high_word]
    while n + n_bits(low) + n_bits(high) <= wanted:
        is_low = high == 0
        if low != 0 and high != 0:
            down = centre - values[64 * low_word + first_bit(low)]
            is_low = down <= values[64 * high_word + last_bit(high)] - centre
        if is_low:
            n += n_bits(low)
            low = np.uint64(0)
            while low == 0 and low_word > 0:
                low_word -= 1
                low = words[low_word]
        else:
            n += n_bits(high)
            high = np.uint64(0)
            while high == 0 and high_word + 1 < n_words:
                high_word += 1
                high = words[high_word]
    start = 64 * low_word + last_bit(low) + 1 if low != 0 else 0
    stop = 64 * high_word + first_bit(high) if high != 0 else 64 * n_words
    return start, stop
