"""What is asked of a column of a frame: its quantiles and its description, as plain values that a
frame is made of. None stands for a missing answer: nothing is warned of, as in pandas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import masked
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ranks import Method, ranks
from dask_gpuselect.quantiles.questions import Quantiles

Found = Callable[[IntArray], NDArray[Any]]


@dataclass(frozen=True)
class ColumnQuantiles(Quantiles):
    """Quantiles of a column: an array, or None if they are missing."""

    @classmethod
    def of(
        cls, q: tuple[float, ...], method: Method, dtype: np.dtype[Any], *, skips_missing: bool
    ) -> ColumnQuantiles:
        """The quantiles of elements of a dtype; a TypeError for one that has none."""
        return cls(q, method.name, skips_missing, dtype, answer_dtype(dtype, method))

    def answer_by(self, n_valid: int, n_missing: int, found: Found) -> Any:
        if n_valid == 0 or (n_missing and not self.skips_missing):
            return None
        if self.dtype.kind in "mM" and not self._method.discrete:
            return self._between_dates(n_valid, found)
        return super().answer_by(n_valid, n_missing, found)

    def _between_dates(self, n: int, found: Found) -> NDArray[Any]:
        """What lies between two dates, exactly, cut to a whole unit towards 0 as pandas has it."""
        wanted = ranks(n, np.array(self.q), self._method)
        lower, upper = found(np.stack([wanted.lower, wanted.upper]))
        return self._mixed(lower, upper, wanted.weight)

    def lane_answer(self, found: Lanes) -> NDArray[Any]:
        """Of every lane; masked where none of its elements takes part."""
        values = self.lane_values(found)
        return masked(values, np.broadcast_to(found.n_valid == 0, values.shape))

    def lane_values(self, found: Lanes) -> NDArray[Any]:
        if self.dtype.kind not in "mM" or self._method.discrete:
            return super().lane_values(found)
        weight = self.wanted_of_lanes(np.maximum(found.n_valid, 1)).weight
        return self._mixed(found.lower.T, found.upper.T, weight)

    def _mixed(
        self, lower: NDArray[Any], upper: NDArray[Any], weight: NDArray[np.float64]
    ) -> NDArray[Any]:
        """What is between two dates each, by its weight; of a median halfway."""
        low, high = lower.view(np.int64), upper.view(np.int64)
        weights = np.broadcast_to(0.5 if self._method.averages else weight, low.shape)
        mixed = np.array(low)
        for at in zip(*np.nonzero(low != high), strict=True):
            first, last = int(low[at]), int(high[at])
            mixed[at] = int(first + (last - first) * Fraction(float(weights[at])))
        return mixed.view(self.dtype)


def answer_dtype(dtype: np.dtype[Any], method: Method) -> np.dtype[Any]:
    """The dtype that quantiles of a column are found in: pandas mixes dates, too, and mixes floats
    in float64."""
    if dtype.kind in "mM":
        return dtype.newbyteorder("=")
    return result_dtype(dtype, method, weak_q=False)


@dataclass(frozen=True)
class HowMany(Quantiles):
    """The number of elements of an array."""

    def answer_by(self, n_valid: int, n_missing: int, found: Found) -> Any:
        return n_valid


HOW_MANY = HowMany((), "lower", True, np.dtype(np.uint8), np.dtype(np.uint8))


class Described(NamedTuple):
    """What `Description` answers: `values` are the quantiles, or None without elements."""

    n: int
    mean: float
    std: float
    values: NDArray[Any] | None


@dataclass(frozen=True)
class Description(ColumnQuantiles):
    """The quantiles of a column, its number of elements, mean and sample deviation."""

    wants_sums: ClassVar[bool] = True

    def look(self, brackets: Brackets, tally: Tally) -> Any:
        return tally.n_valid, super().look(brackets, tally)

    def finish(
        self, found: Any, more: Brackets | None, tally: Tally | None, sums: Moments | None
    ) -> Described:
        assert sums is not None
        n, values = found
        return Described(n, sums.mean_and_std()[0], sums.sample_std(), values)
