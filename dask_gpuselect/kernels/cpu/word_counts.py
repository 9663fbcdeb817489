"""How often each word of one or two bytes occurs: a loop that kernels call.

Processors compare the lower 12 bits of addresses before they let a load pass a store. Words that
differ in their upper bits alone, as of bytes that were shifted, would wait for each other: 6 ns an
element, where others take 0.3. So words of two bytes are counted at places that differ in the lower
bits too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels, types
from dask_gpuselect.maths.cuts import IntArray

SHIFT = 7  # of 16 bits: twice is 14, and what was done is undone by doing it three times more


def is_word(scalar: Any) -> bool:
    """Whether elements of a type of Numba's are words that are counted."""
    return scalar in (types.uint8, types.uint16)


@called_by_kernels
def count_words(words: Any, counts: Any) -> None:
    """Add to counts at the places of words: 0.3 to 1 ns an element, where `numpy.bincount` takes 3
    to 5. Several tables, for words that come in a row, were no faster on the whole."""
    if counts.size <= 256:
        for i in range(words.size):
            counts[words[i]] += 1
    else:
        for i in range(words.size):
            word = words[i]
            counts[word ^ (word >> np.uint16(SHIFT))] += 1


@called_by_kernels
def place_of(word: Any, n_words: Any) -> Any:
    """Where a word is counted, of so many that there are."""
    return word ^ (word >> SHIFT) if n_words > 256 else word


def words_at(places: IntArray, n_words: int) -> IntArray:
    """Which words are counted at some places."""
    if n_words <= 256:
        return places
    return places ^ (places >> SHIFT) ^ (places >> 2 * SHIFT)
