"""Questions about a column of a frame: its quantiles and its description.

Answers are plain values, from which frames are made. None stands for a missing answer, without a
warning, as in pandas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import masked
from dask_gpuselect.engine.questions import Measures, everything
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ranks import Method
from dask_gpuselect.quantiles.questions import Quantiles

ElementsAt = Callable[[IntArray], NDArray[Any]]

Described = tuple[int, float, float, NDArray[Any] | None]
"""Number of elements, mean, sample deviation, and the quantiles, or None without elements."""


@dataclass(frozen=True)
class ColumnQuantiles(Quantiles):
    """Quantiles of a column: an array, or None if they are missing.

    A quantile between two dates is rounded to the nearest unit.

    Parameters
    ----------
    is_described : bool
        True if the answer is `Described`.
    """

    is_described: bool = field(default=False, kw_only=True)

    nearest: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        q: tuple[float, ...],
        method: Method,
        dtype: np.dtype[Any],
        *,
        skips_missing: bool,
        is_described: bool = False,
    ) -> ColumnQuantiles:
        """Return the question about elements of a dtype, or raise if it has no quantiles.

        As in pandas, floats are interpolated in float64.
        """
        answer = result_dtype(dtype, method, weak_q=False)
        how = q, method.name, skips_missing, dtype, answer
        return cls(*how, is_described=is_described)

    @property
    def measures(self) -> Measures:
        return Measures(sums=everything if self.is_described else None)

    def resolve(self, brackets: Brackets, tally: Tally) -> Any:
        is_missing = tally.n_left_out > 0 and not self.skips_missing
        values = None if is_missing else super().resolve(brackets, tally)
        return (tally.n_valid, values) if self.is_described else values

    def finish(self, resolved: Any, sums: Moments | None) -> Any:
        if sums is None:
            return resolved
        n, values = resolved
        (mean,), (std,) = sums.mean_and_std()[0], sums.sample_std()
        return n, mean, std, values

    def answer_by(self, n_valid: int, n_missing: int, elements_at: ElementsAt) -> Any:
        if n_valid == 0 or (n_missing and not self.skips_missing):
            return None
        return super().answer_by(n_valid, n_missing, elements_at)

    def lane_answer(self, lanes: Lanes) -> NDArray[Any]:
        """Return the answer of every lane; masked where no element takes part."""
        values = self.lane_values(lanes)
        return masked(values, np.broadcast_to(lanes.n_valid == 0, values.shape))
