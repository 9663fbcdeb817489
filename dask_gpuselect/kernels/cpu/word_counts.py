"""Counts of words of one or two bytes.

Processors compare the lower 12 bits of addresses before they let a load pass a store. Words that
differ only in their upper bits, such as bytes that were shifted left, would wait for each other: 6
ns an element instead of 0.3. So words of two bytes are counted at places that differ in the lower
bits too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.maths.cuts import IntArray

SHIFT = 7  # of 16 bits


@until_compiled(lambda words, n_words: np.bincount(words, minlength=n_words))
def counts_of_words(words: NDArray[Any], n_words: int) -> IntArray:
    """Count each of `n_words` words: 0.3 to 1 ns an element, where `numpy.bincount` takes 3 to 5.

    Several tables, to speed up runs of equal words, were no faster on the whole.
    """
    counts = np.zeros(n_words, np.int64)
    _count_words(words, counts)
    answer: IntArray = counts[place_of(np.arange(n_words), n_words)]
    return answer


def place_of(word: Any, n_words: int) -> Any:
    """Return the place at which a word is counted, in a table of `n_words`."""
    return word ^ (word >> SHIFT) if n_words > 256 else word


@kernel_of("u2 u1")
def _count_words(words: t.Values, counts: t.Ints) -> None:
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
