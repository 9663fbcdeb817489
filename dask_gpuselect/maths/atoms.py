"""Overlapping windows as unions of atoms: sets of places that no window divides.

For example, the five-day windows around the days of a year have the days as atoms. An atom is
sorted once, and the result serves every window that contains the atom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dask_gpuselect.maths.cuts import IntArray

EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Atoms:
    """Atoms of some windows, and the atoms that make up each window.

    Parameters
    ----------
    places : ndarray of int64
        Places of the elements that are in any window, atom by atom.
    starts : ndarray of int64, shape (n_atoms + 1,)
        Start of each atom in `places`, and the end of the last one.
    members : ndarray of int64
        Numbers of the atoms of each window, window by window.
    first_member : ndarray of int64, shape (n_windows + 1,)
        Start of each window in `members`, and the end of the last one.
    """

    places: IntArray
    starts: IntArray
    members: IntArray
    first_member: IntArray

    @property
    def sizes(self) -> IntArray:
        """Number of elements of each window."""
        stops = np.append(np.int64(0), np.cumsum(np.diff(self.starts)[self.members]))
        return np.diff(stops[self.first_member])

    def windows(self) -> Iterator[IntArray]:
        """Yield the places of the elements of each window, atom by atom."""
        each = np.split(self.places, self.starts[1:-1])
        for first, last in pairwise(self.first_member):
            yield np.concatenate([EMPTY, *(each[atom] for atom in self.members[first:last])])

    @cached_property
    def by_size(self) -> list[tuple[IntArray, IntArray]]:
        """Windows of equally many elements, with the places of these, ``(n, n_windows)``."""
        windows, sizes = list(self.windows()), self.sizes
        order = np.argsort(sizes, kind="stable")
        alike = np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1)
        return [(own, np.stack([windows[window] for window in own], axis=1)) for own in alike]

    @classmethod
    def of(cls, windows: Sequence[IntArray], n: int) -> Atoms | None:
        """Find the atoms of windows of distinct places below `n`; None if the check below fails.

        Each window gets a random number. Places in the same windows have the same sum of these
        numbers. Places in different windows nearly certainly have different sums, and the sizes of
        the windows that are built from the atoms check that.
        """
        # Sums of random numbers stand for sets of windows: comparing one integer for each place is
        # faster than comparing sets.
        marks = np.random.default_rng(0).integers(1, 1 << 63, len(windows), dtype=np.uint64)
        mark_of = np.zeros(n, np.uint64)
        for window, mark in zip(windows, marks, strict=True):
            mark_of[window] += mark
        order = np.argsort(mark_of, kind="stable")
        some = order[mark_of[order] > 0]
        begins = np.flatnonzero(np.diff(mark_of[some], prepend=np.uint64(0)))
        starts = np.append(begins, len(some))
        atom_of = np.full(n, -1)
        atom_of[some] = np.repeat(np.arange(len(begins)), np.diff(starts))
        members = [np.unique(atom_of[window]) for window in windows]
        first_member = np.append(0, np.cumsum([len(each) for each in members], dtype=np.int64))
        atoms = cls(some, starts, np.concatenate([EMPTY, *members]), first_member)
        is_right = np.array_equal(atoms.sizes, [len(window) for window in windows])
        return atoms if is_right else None
