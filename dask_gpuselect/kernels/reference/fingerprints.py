"""Fingerprints of chunks of any kind: equal to those of the same elements on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.cpu import fingerprints as cpu


def mixed_in(start: int, chunk: Any) -> int:
    """Return 64 bits that depend on a number and on every bit of a chunk, in C order."""
    return cpu.mixed_in(start, np.asarray(to_host(chunk)))


begun = mixed_in  # on the host, a fingerprint is always finished
ended = list


def summed(start: int, columns: Sequence[Any]) -> int:
    """Return 64 bits that depend on a number and on the elements of some arrays, in any order.

    The elements at the same place of all arrays are hashed together.
    """
    return cpu.summed(start, [np.asarray(to_host(column)) for column in columns])
