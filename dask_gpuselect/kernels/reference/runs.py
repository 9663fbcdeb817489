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


def quantiles_of_groups(*_: Any, **__: Any) -> None:
    """Find weighted quantiles of each group, as `Lanes`; None where sorting all is as fast.

    Parameters
    ----------
    chunks, dtype, n_groups
        As for `sorted_runs`.
    wanted : WantedQuantiles
        Quantiles and method.
    """


def boxes_of_groups(*_: Any, **__: Any) -> None:
    """Compute the box of each group, as `LaneBoxes`; None where sorting all elements is as fast.

    Parameters
    ----------
    chunks, dtype, n_groups
        As for `sorted_runs`.
    question : LaneOrder
        How the quantiles of `rule` follow from elements.
    rule : Rule
        How boxes are drawn.
    """
