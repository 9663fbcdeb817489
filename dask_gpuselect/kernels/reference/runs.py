"""Runs: the elements of each group of some chunks, sorted together. The reference.

The reference answers None: tables whose rows are groups are then as fast.
"""

from __future__ import annotations

from typing import Any


def sorted_runs(*_: Any, **__: Any) -> None:
    """Sort the elements of each group, as `maths.runs.Runs`.

    None where tables of groups are as fast.

    Parameters
    ----------
    chunks : sequence of Accompanied
        Chunks whose labels are numbers of groups, -1 for none. Without labels, all is one group.
    dtype : dtype
        The dtype of the dask array.
    n_groups : int
        Number of groups.
    """
