"""Windows are unions of atoms that no window divides."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_gpuselect.maths.atoms import Atoms

N = 12


@given(st.lists(st.sets(st.integers(0, N - 1)), max_size=8))
def test_windows_are_unions_of_atoms(windows: list[set[int]]) -> None:
    found = Atoms.of([np.array(sorted(each), np.int64) for each in windows], N)
    assert found is not None
    atoms = [
        set(found.places[a:b].tolist())
        for a, b in zip(found.starts[:-1], found.starts[1:], strict=True)
    ]
    assert all(atoms)
    assert sum(map(len, atoms)) == len(set().union(*windows))
    for i, window in enumerate(windows):
        own = found.members[found.first_member[i] : found.first_member[i + 1]].tolist()
        assert set().union(*(atoms[each] for each in own)) == window
        # Every other atom lies outside, and none could be larger: they differ in some window.
        assert all(atoms[j].isdisjoint(window) for j in range(len(atoms)) if j not in own)
    told_apart = {frozenset(i for i, w in enumerate(windows) if atom <= w) for atom in atoms}
    assert len(told_apart) == len(atoms)
    assert found.sizes.tolist() == [len(window) for window in windows]


def test_days_of_a_year() -> None:
    day = np.arange(4000) % 365
    windows = [np.flatnonzero((day - i + 2) % 365 < 5) for i in range(365)]
    found = Atoms.of(windows, 4000)
    assert found is not None
    assert len(found.starts) == 366
    assert (np.diff(found.first_member) == 5).all()
