"""The exact trimmed mean of an array of any size, in two reads: a statistic of your own.

`dask_gpuselect.robust.trimmed_mean` is the same, with axes, masks, groups and NaN.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arguments import as_array, public
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.questions import Measures, RankQuestion
from dask_gpuselect.maths.cuts import Brackets, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import order_statistics, sum_of_ranks
from dask_gpuselect.maths.moments import means


def between_cuts(brackets: Brackets) -> NDArray[np.bool_]:
    """Mark the cells between the two brackets: all of their elements stay."""
    between = ~brackets.wanted
    between[[0, -1]] = False
    return between


@dataclass(frozen=True)
class TrimmedMean(RankQuestion):
    """The question: which elements are at the two cuts, and what is the sum between them."""

    cut: float
    measures: ClassVar[Measures] = Measures(sums=between_cuts)

    def ranks(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ranks of the smallest and the largest element that stay."""
        k = int(self.cut * n)
        ends = np.array([k, n - 1 - k][: 2 * n], np.int64)
        return ends, ends

    def resolve(self, brackets: Brackets, tally: Tally) -> tuple[ExactSums, int]:
        """Sum the elements that stay in the brackets; count all that stay."""
        n, k = tally.n_valid, int(self.cut * tally.n_valid)
        order_statistics(brackets, tally, self.ranks(n)[0])  # raises if data changed between reads
        return sum_of_ranks(brackets, tally, k, n - k), 0 if tally.n_missing else n - 2 * k

    def finish(self, resolved: Any, sums: Any) -> Any:
        total, n = resolved
        return means(np.array([n]), total + sums.total, np.dtype("f8"))


@public("x")
def trimmed_mean(x: Any, cut: float) -> Any:
    """Return the mean without the share ``cut``, in [0, 0.5), of the elements at each end."""
    x = as_array(x)
    return ask(Asking(x, TrimmedMean(cut), tuple(range(x.ndim)), np.dtype("f8")), "trimmed-mean")


if __name__ == "__main__":
    x = da.random.default_rng(0).standard_cauchy(10_000_000, chunks=1_000_000)
    print(f"mean {x.mean().compute():.6f}, trimmed mean {trimmed_mean(x, 0.1).compute():.6f}")
