"""Partition of chunks for a sort: which elements go to which chunk of the sorted array.

It follows from the counts of two loads by arithmetic with ranks. The chunks of a sorted array begin
at given ranks, and the elements there are the *splitters*. An element goes by its own value. If it
ties with a splitter, it goes by its place among all such elements: those of earlier chunks come
first, as in a stable sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import (
    ADVICE,
    Arrays,
    Brackets,
    ChunksChangedError,
    IntArray,
    Joined,
    Tally,
)
from dask_gpuselect.maths.finish import counts_at


@dataclass(frozen=True, slots=True, eq=False)
class Splitters(Joined):
    """Ranks and elements at which the chunks of the sorted array begin, except the first chunk.

    Parameters
    ----------
    starts : ndarray of int64, shape (K,)
        Ascending ranks, repeated for empty chunks.
    values : ndarray, shape (V,), V <= K, dtype of the chunks
        Elements of the first V ranks. The splitters of the others are missing (NaN or NaT).
    """

    starts: IntArray
    values: NDArray[Any]

    def some(self, which: IntArray) -> Splitters:
        """Take some of the splitters, by their ascending numbers."""
        return Splitters(self.starts[which], self.values[which[which < len(self.values)]])


@dataclass(frozen=True, slots=True, eq=False)
class Edges(Joined):
    """Places of the splitters among the sorted elements of one chunk, or of several, a row each.

    Parameters
    ----------
    left, right : ndarray of int64, shape (B, K)
        Number of elements of the chunk before the splitter, and up to and including it. Missing
        ones come last.
    sizes : ndarray of int64, shape (B,)
        Number of all elements of the chunk.
    """

    left: IntArray
    right: IntArray
    sizes: IntArray

    @classmethod
    def of_chunk(cls, brackets: Brackets, tally: Tally, splitters: Splitters) -> Self:
        """Compute the edges of one chunk from its tally of the second load."""
        marks, which = np.unique(splitters.values, return_inverse=True)
        left, right = (each[which] for each in counts_at(brackets, tally, marks))
        n_missing = len(splitters.starts) - len(splitters.values)
        size = tally.n_valid + tally.n_missing
        left = np.append(left, np.full(n_missing, tally.n_valid, np.int64))
        right = np.append(right, np.full(n_missing, size, np.int64))
        return cls(left[None], right[None], np.array([size], np.int64))

    def some(self, which: IntArray) -> Self:
        """Take the edges at some of the splitters, by their numbers."""
        return type(self)(self.left[:, which], self.right[:, which], self.sizes)

    def of_chunks(self, chunks: IntArray) -> Self:
        """Take some of the chunks, by their numbers, in that order."""
        return type(self)(self.left[chunks], self.right[chunks], self.sizes[chunks])


@dataclass(frozen=True, slots=True, eq=False)
class Table(Arrays):
    """Places at which the sorted elements of every chunk are cut into pieces.

    Parameters
    ----------
    cuts : ndarray of int64, shape (B, K + 2)
        Chunk i sends elements ``[i, j]`` to before ``[i, j + 1]`` to chunk j of the result.
    offsets : ndarray of int64, shape (B,)
        Number of elements in all chunks before.
    edges : Edges
    values : ndarray, shape (V,)
        Values of the splitters.
    groups : list of list of Division
        For each group of chunks of the result, where each batch of chunks is cut; empty without
        groups. The table then has the ends of the groups alone.
    """

    cuts: IntArray
    offsets: IntArray
    edges: Edges
    values: NDArray[Any]
    groups: Sequence[Sequence[Division]] = ()

    @classmethod
    def of(cls, edges: Edges, splitters: Splitters) -> Self:
        """Cut all chunks into pieces.

        Ties with a splitter are dealt out in the order of the chunks: as many of them go to the
        chunks before the splitter as its rank requires.
        """
        ties = edges.right - edges.left
        wanted = splitters.starts - edges.left.sum(axis=0)
        if ((wanted < 0) | (wanted > ties.sum(axis=0))).any():
            raise ChunksChangedError(
                f"the chunks have other elements than the second read counted. {ADVICE}"
            )
        cuts = dealt(edges.left, edges.right, edges.sizes, splitters.starts)
        return cls(cuts, np.cumsum(edges.sizes) - edges.sizes, edges, splitters.values)

    def division(self, chunks: int | slice, steps: Sequence[int]) -> Division:
        """Divide the elements that some chunks send to a range of chunks of the result.

        The range goes from the first of `steps` to before the last, and is cut at the others.
        """
        at = np.asarray(steps)
        inner = at[1:-1] - 1  # splitter 0 is the begin of chunk 1
        cuts = np.atleast_2d(self.cuts[chunks])[:, at]
        first, last = cuts[:, :1], cuts[:, -1:]
        inner = inner[inner < len(self.values)]
        below, upto = (
            (np.clip(np.atleast_2d(side[chunks])[:, inner], first, last) - first).sum(axis=0)
            for side in (self.edges.left, self.edges.right)
        )
        return Division((cuts - first).sum(axis=0), self.values[inner], below, upto)


def dealt(left: IntArray, right: IntArray, sizes: IntArray, starts: IntArray) -> IntArray:
    """Cut the sorted elements of each chunk where some ranks among all elements are.

    Parameters
    ----------
    left, right : ndarray of int64, shape (B, K)
        Number of elements of the chunk before the element of each rank, and up to and including it.
    sizes : ndarray of int64, shape (B,)
        Number of elements of each chunk.
    starts : ndarray of int64, shape (K,)
        Ascending ranks.

    Returns
    -------
    ndarray of int64, shape (B, K + 2)
        From 0 to the size of the chunk. Elements that equal one at a rank are dealt out in the
        order of the chunks.
    """
    ties = right - left
    prior = np.cumsum(ties, axis=0) - ties
    cuts = left + np.clip(starts - left.sum(axis=0) - prior, 0, ties)
    return np.concatenate([np.zeros_like(sizes)[:, None], cuts, sizes[:, None]], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Division(Arrays):
    """Places at which some elements are cut, once they are sorted.

    Parameters
    ----------
    ends : ndarray of int64, shape (pieces + 1,)
        From 0 to the number of the elements.
    values : ndarray
        Splitters between the pieces that are not missing.
    below, upto : ndarray of int64
        Number of the elements before each splitter, and up to and including it, by the second load.
    """

    ends: IntArray
    values: NDArray[Any]
    below: IntArray
    upto: IntArray
