"""The exact trimmed mean of an array of any size, in two reads: a statistic of your own."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arguments import as_array, public
from dask_gpuselect.arrays import namespace
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.questions import RankQuestion
from dask_gpuselect.maths.cuts import Brackets, Tally
from dask_gpuselect.maths.finish import order_statistics


@dataclass(frozen=True)
class TrimmedMean(RankQuestion):
    """The question: which elements are at the two cuts, and what is the sum between them."""

    cut: float
    wants_sums: ClassVar[bool] = True

    def ranks(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        k = int(self.cut * n)
        ends = np.array([k, n - 1 - k][: 2 * n], np.int64)
        return ends, ends

    def summed(self, chunk: Any, brackets: Brackets) -> Any:
        """Return the elements between the two brackets, which are not gathered."""
        xp, flat = namespace(chunk), chunk.reshape(-1)
        ends, wanted = xp.asarray(brackets.ends), xp.asarray(brackets.wanted)
        cell = xp.searchsorted(ends, flat)
        is_end = cell != xp.searchsorted(ends, flat, side="right")
        return flat[(cell > 0) & (cell < len(ends)) & ~wanted[cell] & ~is_end]

    def look(self, brackets: Brackets, tally: Tally) -> tuple[Fraction, int]:
        """Sum the elements that stay in or at the ends of brackets; count all that stay."""
        n, k = tally.n_valid, int(self.cut * tally.n_valid)
        cells = np.stack([np.append(0, tally.upto), np.append(tally.below, n)], axis=1)
        inside = [range(max(a, k), min(b, n - k)) for a, b in cells[brackets.wanted].tolist()]
        ranks = np.array([rank for some in inside for rank in some], np.int64)
        total = sum(map(Fraction, order_statistics(brackets, tally, ranks).tolist()), Fraction(0))
        stay = np.minimum(tally.upto, n - k) - np.maximum(tally.below, k)
        for end, count in zip(brackets.ends.tolist(), stay.tolist(), strict=True):
            total += Fraction(end) * max(count, 0)
        return total, 0 if tally.n_missing else n - 2 * k

    def finish(self, found: Any, more: Any, tally: Any, sums: Any) -> Any:
        (units,) = sums.total.integers(-34)  # of 2**(32 * -34)
        total = found[0] + Fraction(units, 2 ** (32 * 34))
        return np.array([float(total / found[1]) if found[1] else np.nan])


@public("x")
def trimmed_mean(x: Any, cut: float) -> Any:
    """Return the mean without the share ``cut``, in [0, 0.5), of the elements at each end."""
    x = as_array(x)
    return ask(Asking(x, TrimmedMean(cut), tuple(range(x.ndim)), np.dtype("f8")), "trimmed-mean")


if __name__ == "__main__":
    x = da.random.default_rng(0).standard_cauchy(10_000_000, chunks=1_000_000)
    print(f"mean {x.mean().compute():.6f}, trimmed mean {trimmed_mean(x, 0.1).compute():.6f}")
