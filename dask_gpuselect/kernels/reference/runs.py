"""Runs: the elements of each group of some chunks, sorted together. The reference.

The reference answers None: tables whose rows are groups are then as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.kernels.companions import Accompanied
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
