"""An order in which to take chunks, of which every first part is spread evenly over all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dask_gpuselect.maths.cuts import IntArray

GOLDEN = (math.sqrt(5) - 1) / 2
NEAR = 12  # steps around it are tried


@dataclass(frozen=True)
class ChunkOrder:
    """The order of so many chunks: each is so many behind the one before, around the end.

    Parameters
    ----------
    n : int
        How many chunks there are.
    step : int
        Without a common divisor with `n`.

    Notes
    -----
    Whatever number is taken from the start, the gaps between the chunks have at most three lengths
    (Sós 1958). These differ least where the continued fraction of step / n has small quotients, as
    that of the golden section has. So do mostly the gaps in rows and columns of a grid, of which
    bisection would take all that is in its first column before anything else.
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
        """The numbers of the chunks that are taken from the start-th on."""
        return np.arange(start, stop, dtype=np.int64) * self.step % max(self.n, 1)

    def turns(self) -> IntArray:
        """For each chunk when it is taken: the first one at 0."""
        found = np.empty(self.n, np.int64)
        found[self.chunks(0, self.n)] = np.arange(self.n)
        return found


def _largest_quotient(a: int, b: int) -> int:
    """Of the continued fraction of a / b, where a is not larger."""
    largest = 0
    while a:
        quotient, rest = divmod(b, a)
        largest = max(largest, quotient)
        a, b = rest, a
    return largest
