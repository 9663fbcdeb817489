"""An order of chunks in which the first k are spread evenly over all of them, for every k."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dask_gpuselect.maths.cuts import IntArray

GOLDEN = (math.sqrt(5) - 1) / 2
NEAR = 12  # how many steps on each side of the golden section are tried


@dataclass(frozen=True)
class ChunkOrder:
    """Order of n chunks: each one is `step` chunks behind the one before, modulo n.

    Parameters
    ----------
    n : int
        Number of chunks.
    step : int
        Coprime to `n`.

    Notes
    -----
    However many chunks are taken from the start, the gaps between them have at most three lengths
    (Sós 1958). These differ least where the continued fraction of step / n has small quotients, as
    that of the golden section has. The gaps in rows and columns of a grid are then mostly even too.
    Bisection would take the whole first column of a grid before anything else.
    """

    n: int
    step: int = 1

    @classmethod
    def evenly(cls, n: int) -> Self:
        near = max(round(n * GOLDEN), 1)
        steps = range(max(near - NEAR, 1), min(near + NEAR, max(n - 1, 1)) + 1)
        apart = [step for step in steps if math.gcd(step, n) == 1]
        return cls(n, min(apart, key=lambda step: (_largest_quotient(step, n), abs(step - near))))

    def chunks(self, start: int, stop: int) -> IntArray:
        """Return the numbers of the chunks that are taken at turns `start` to `stop`."""
        return np.arange(start, stop, dtype=np.int64) * self.step % max(self.n, 1)

    def turns(self) -> IntArray:
        """Compute for each chunk at which turn it is taken, counted from 0."""
        turn_of = np.empty(self.n, np.int64)
        turn_of[self.chunks(0, self.n)] = np.arange(self.n)
        return turn_of


def _largest_quotient(a: int, b: int) -> int:
    """Find the largest quotient of the continued fraction of a / b, for a <= b."""
    largest = 0
    while a:
        quotient, rest = divmod(b, a)
        largest = max(largest, quotient)
        a, b = rest, a
    return largest
