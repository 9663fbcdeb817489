"""Runs: the elements of each group of some chunks, sorted together. The reference.

The reference answers None: tables whose rows are groups are then as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder
from dask_gpuselect.maths.runs import Runs


def sorted_runs(chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int) -> Runs | None:
    """Sort the elements of each group; None where tables of groups are as fast.

    Parameters
    ----------
    chunks : sequence of Accompanied
        Chunks whose labels are numbers of groups, -1 for none. Without labels, all is one group.
    dtype : dtype
        The dtype of the dask array.
    n_groups : int
        Number of groups.
    """
    return None


def boxes_of_groups(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    n_groups: int,
    question: LaneOrder,
    rule: Rule,
) -> LaneBoxes | None:
    """Compute the box of each group; None where sorting all elements is as fast.

    The first parameters are those of `sorted_runs`. `question` tells how the quantiles of `rule`
    follow from elements.
    """
    return None
