"""Fingerprints of chunks of any kind: those of the same elements on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.cpu import fingerprints as cpu


def mixed_in(start: int, chunk: Any) -> int:
    """64 bits that a number and every bit of a chunk, in C order, have a part in."""
    return cpu.mixed_in(start, np.asarray(to_host(chunk)))


begun = mixed_in  # they are never on their way
ended = list


def summed(start: int, columns: Sequence[Any]) -> int:
    """64 bits that a number has a part in, and the elements of some arrays: those at the same place
    together, whatever place that is."""
    return cpu.summed(start, [np.asarray(to_host(column)) for column in columns])
