"""Answers about groups from the elements near guessed answers. The reference guesses nothing."""

from __future__ import annotations

from typing import Any


def quantiles_of_groups(*_: Any, **__: Any) -> None:
    """Find weighted quantiles of each group, as `Lanes`; None where sorting all is as fast.

    Parameters
    ----------
    chunks, dtype, n_groups
        As for `reference.runs.sorted_runs`.
    wanted : WantedQuantiles
        Quantiles and method.
    """


def boxes_of_groups(*_: Any, **__: Any) -> None:
    """Compute the box of each group, as `LaneBoxes`; None where sorting all elements is as fast.

    Parameters
    ----------
    chunks, dtype, n_groups
        As for `reference.runs.sorted_runs`.
    question : LaneOrder
        How the quantiles of `rule` follow from elements.
    rule : Rule
        How boxes are drawn.
    """
