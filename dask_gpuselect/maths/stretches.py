"""Many ranks of very many chunks, divided into stretches of neighbouring ranks.

A merge in a tree that hands on K pivots makes each bracket wider by one in K of the elements that
the tree is about (see `coarse`). With P ranks in one tree, the brackets hold P / K of all elements.
So if there are more ranks than a small part of K, they are divided into stretches, each with a tree
of its own. That tree is about the elements between the first and the last rank of its stretch, so a
bracket gets wider only by one in K of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_gpuselect.maths.cached import tally_by
from dask_gpuselect.maths.coarse import cells_of, cuts_of_tally
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally


def joined(each: Sequence[Brackets]) -> Brackets:
    """Merge the brackets of all stretches."""
    ends = np.unique(np.concatenate([own.ends for own in each]))
    wanted = np.zeros(len(ends) + 1, np.bool_)
    for own in each:
        wanted |= own.wanted[cells_of(own, ends)]
    return Brackets(ends, wanted)


def cuts_of_counts(together: Brackets, tally: Tally) -> Cuts:
    """Make exact cuts of all chunks at the ends of brackets, from their tally.

    They tell which of the cells has each rank.
    """
    counts = tally.below, tally.upto, tally.n_valid, tally.n_missing
    return Cuts.of_chunk(together.ends, *counts)


def tally_of_stretch(together: Brackets, tallies: Sequence[Tally], own: Brackets) -> Tally:
    """Compute the tally of some chunks together at the brackets of a stretch.

    It follows from the tally of each chunk at the brackets of all stretches, whose candidates
    ascend.
    """
    return Tally.merge([tally_by(together, tally, own) for tally in tallies])


def cuts_of_stretches(
    together: Brackets, tallies: Sequence[Tally], each: Sequence[Brackets], most: int
) -> list[Cuts]:
    """Make the cuts of some chunks together for each stretch, at about `most` of its candidates."""
    # One stretch after the other: all tallies together are as large as all candidates.
    return [cuts_of_tally(own, tally_of_stretch(together, tallies, own), most) for own in each]
