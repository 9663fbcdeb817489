"""Counts of words of one or two bytes: loops that kernels call.

Processors compare the lower 12 bits of addresses before they let a load pass a store. Words that
differ only in their upper bits, such as bytes that were shifted left, would wait for each other: 6
ns an element instead of 0.3. So words of two bytes are counted at places that differ in the lower
bits too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels

SHIFT = 7  # of 16 bits


@called_by_kernels
def count_words(words: Any, counts: Any) -> None:
    """Count words at their places: 0.3 to 1 ns an element, where `numpy.bincount` takes 3 to 5.

    Several tables, to speed up runs of equal words, were no faster on the whole.
    """
    if counts.size <= 256:
        for i in range(words.size):
            counts[words[i]] += 1
    else:
        for i in range(words.size):
            word = words[i]
            counts[word ^ (word >> np.uint16(SHIFT))] += 1


@called_by_kernels
def count_in_turn(words: Any, counts: Any) -> None:
    """Count words in four tables by turns: in one, equal neighbours would wait for each other."""
    whole = words.size - words.size % 4
    for k in range(0, whole, 4):
        counts[0, words[k]] += 1
        counts[1, words[k + 1]] += 1
        counts[2, words[k + 2]] += 1
        counts[3, words[k + 3]] += 1
    for k in range(whole, words.size):
        counts[0, words[k]] += 1


@called_by_kernels
def place_of(word: Any, n_words: Any) -> Any:
    """Return the place at which a word is counted, in a table of `n_words`."""
    return word ^ (word >> SHIFT) if n_words > 256 else word
