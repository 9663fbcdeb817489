"""Distances of the elements of a window from its median, in a set of marks among sorted elements.

The nearest elements are those between two bounds, of which one window's are near the next one's.
Where they are far, as in the first window, words of marks are passed as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels
from dask_gpuselect.kernels.cpu.bits import first_bit, last_bit, n_bits
from dask_gpuselect.kernels.cpu.scalars import mean_of

FAR = 16  # moves of bounds, and two for each element that enters, until words are passed


@called_by_kernels
def nearest(block: Any, middle: Any, about: Any, near: Any) -> Any:
    """Find the distances of two ranks from the median of a window, and where such elements are.

    Parameters
    ----------
    block : tuple
        The sorted elements of a block, marks of those in the window and behind all, and the number
        of words.
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
    kind = values.dtype.type
    other = middle if n_in_window % 2 else _first_from(words, middle + 1)
    centre = kind(mean_of(values[middle], values[other]))
    if not np.isfinite(np.float64(centre)):
        return near, (kind(np.nan), kind(np.nan))
    none, end, n_moves = kind(np.inf), 64 * n_words, -1
    while True:
        n_moves += 1
        if n_moves in (0, far):
            if n_moves > 0 or start == stop:
                start, stop = _passed(block, middle, centre, wanted)
            n = _n_between(words, start, stop)
            below, lowest = _last_before(words, start), _first_from(words, start)
            highest, above = _last_before(words, stop), _first_from(words, stop)
        to_below = abs(kind(values[below] - centre)) if below >= 0 else none
        to_above = abs(kind(values[above] - centre)) if above < end else none
        if n <= wanted:  # the nearer one of those beside them joins
            n += 1
            if below < 0 or to_above < to_below:
                highest, above = above, _first_from(words, above + 1)
            else:
                lowest, below = below, _last_before(words, below)
            continue
        to_low = abs(kind(values[lowest] - centre))
        to_high = abs(kind(values[highest] - centre))
        is_less = n > wanted + 1
        if to_below < to_high or (is_less and to_low <= to_high):
            above, highest = highest, _last_before(words, highest)
        elif to_above < to_low or is_less:
            below, lowest = lowest, _first_from(words, lowest + 1)
        else:
            break
        n -= 1
    first = second = max(to_low, to_high)
    if upper > wanted:
        second = min(to_below, to_above)
    return (lowest, highest + 1), (first, second)


@called_by_kernels
def _below(rank: Any) -> Any:
    """Return the bits of a word that stand for lower ranks than one."""
    return (np.uint64(1) << np.uint64(rank & 63)) - np.uint64(1)


@called_by_kernels
def _n_between(words: Any, start: Any, stop: Any) -> Any:
    """Count the marks from one rank to before another."""
    n = n_bits(words[stop >> 6] & _below(stop)) - n_bits(words[start >> 6] & _below(start))
    own = words[start >> 6 : stop >> 6]
    for i in range(own.size):
        n += n_bits(own[i])
    return n


@called_by_kernels
def _first_from(words: Any, rank: Any) -> Any:
    """Find the first marked rank from one on; the word behind all others is marked."""
    word = rank >> 6
    bits = words[word] & ~_below(rank)
    while bits == 0:
        word += 1
        bits = words[word]
    return 64 * word + first_bit(bits)


@called_by_kernels
def _last_before(words: Any, rank: Any) -> Any:
    """Find the last marked rank before one, or -1."""
    word = rank >> 6
    bits = words[word] & _below(rank)
    while bits == 0:
        if word == 0:
            return -1
        word -= 1
        bits = words[word]
    return 64 * word + last_bit(bits)


@called_by_kernels
def _passed(block: Any, middle: Any, centre: Any, wanted: Any) -> Any:
    """Pass words of which all elements are among the nearest; return bounds of these."""
    values, words, n_words = block
    end, nothing, n = 64 * n_words, np.uint64(0), 0
    low, high = middle, _first_from(words, middle + 1)
    while True:
        own = low & ~63, high & ~63  # the first ranks of words
        lows = (
            words[low >> 6] & (_below(low) << np.uint64(1) | np.uint64(1)) if low >= 0 else nothing
        )
        highs = words[high >> 6] & ~_below(high) if high < end else nothing
        if n + n_bits(lows) + n_bits(highs) > wanted:
            return low + 1, high
        is_low = high == end
        if low >= 0 and high < end:
            down = centre - values[own[0] + first_bit(lows)]
            is_low = down <= values[own[1] + last_bit(highs)] - centre
        n += n_bits(lows if is_low else highs)
        if is_low:
            low = _last_before(words, own[0])
        else:
            high = _first_from(words, own[1] + 64)
