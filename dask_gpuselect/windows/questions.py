"""Questions about every window: quantiles, and statistics that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import any_true, as_type, is_kind, like, namespace, to_host
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.envelope import exact_gap
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.ranks import Ranks
from dask_gpuselect.maths.windows import Frame
from dask_gpuselect.quantiles.questions import Quantiles, missing_of


@dataclass(frozen=True)
class WindowQuestion:
    """Ask for quantiles of every window, of its elements or of their distances from its median.

    Parameters
    ----------
    quantiles : Quantiles
    result : dtype
        Of the answers.
    least : int
        How many valid elements a window needs; with fewer it is answered by NaN.
    deviates : bool
        True if quantiles are those of distances.
    is_gap : bool
        True if the answer is the difference of two quantiles.
    scale : float
        What the answers are divided by.
    """

    quantiles: Quantiles
    result: np.dtype[Any]
    least: int = 1
    deviates: bool = False
    is_gap: bool = False
    scale: float = 1.0

    @property
    def n_answers(self) -> int:
        return self.quantiles.n_answers

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.quantiles.dtype

    @property
    def mixes(self) -> int:
        return self.quantiles.mixes

    @property
    def skips_missing(self) -> bool:
        return self.quantiles.skips_missing

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        return self.quantiles.wanted_of_lanes(n)

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        return self.quantiles.lane_ranks(n)

    def lane_answer(self, order: Lanes) -> NDArray[Any]:
        return self.lane_values(order)

    def lane_values(self, order: Lanes) -> NDArray[Any]:
        return self.quantiles.lane_values(order)

    def warn_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        """Give no warning: windows of too few elements are expected."""

    def finished(self, answers: Any, n_valid: Any) -> Any:
        if self.is_gap:
            answers = _gap(answers) / self.scale
        if answers.dtype != self.result:
            answers = as_type(answers, self.result.name)
        if self.scale != 1 and not self.is_gap:
            answers = answers / self.result.type(self.scale)
        # Kernels answer NaN for windows without elements.
        if n_valid is not None and (self.least > 1 or self.dtype.kind in "bui"):
            counts = n_valid[:1] if 0 in n_valid.strides else n_valid
            is_few = counts < max(self.least, 1)
            if any_true(is_few):
                missing = np.full(1, missing_of(self.result), self.result)
                answers = namespace(answers).where(is_few, like(missing, answers), answers)
        return answers


def _gap(pair: Any) -> Any:
    """Subtract the lower quantiles from the upper ones, as one row of float64."""
    if is_kind(pair, "real floating"):
        wide = as_type(pair, "float64")
        return wide[1:] - wide[:1]
    low, high = to_host(pair)
    gap = exact_gap(low, high)[None]
    return namespace(pair).asarray(gap)


@dataclass(frozen=True)
class WindowAnswers:
    """Answer all windows of a padded chunk.

    Parameters
    ----------
    frame : Frame
    question : WindowQuestion or None
        None asks how many valid elements there are.
    dtype : dtype
        Of the elements.
    is_one : bool
        True if answers have no axis for several quantiles.
    """

    frame: Frame
    question: WindowQuestion | None
    dtype: np.dtype[Any]
    is_one: bool

    def __call__(self, chunk: Any) -> Any:
        shape = self.frame.shape(tuple(chunk.shape))
        if 0 in shape:
            values = values_of(chunk)
            return like(np.empty((*self.new_axes, *shape), self.result), values)
        if self.question is None:
            return kernels.window_counts(chunk, self.frame)
        answers = kernels.answer_windows(chunk, self.dtype, self.frame, self.question)
        return answers[0] if self.is_one else answers

    @property
    def new_axes(self) -> tuple[int, ...]:
        return () if self.is_one or self.question is None else (self.question.n_answers,)

    @property
    def result(self) -> np.dtype[Any]:
        return np.dtype(np.int64) if self.question is None else self.question.result


@dataclass(frozen=True)
class RankOf(Quantiles):
    """Ask for the element of one rank of every window, as ``scipy.ndimage`` counts it.

    Parameters
    ----------
    rank : int, float or None
        A rank among `size` elements, from the end if it is negative; as a float a percentage; None
        is the upper one in the middle.
    size : int
        How many elements a whole window holds.
    """

    rank: int | float | None
    size: int

    def __post_init__(self) -> None:
        if isinstance(self.rank, int) and not -self.size <= self.rank < self.size:
            raise RuntimeError(
                "rank not within filter footprint size: it must be from "
                f"{-self.size} to {self.size - 1}, not {self.rank}"
            )

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        n = np.asarray(n, np.int64)
        if self.rank is None:
            rank = n // 2
        elif isinstance(self.rank, float):
            rank = n - 1 if self.rank == 100 else (n * self.rank / 100.0).astype(np.int64)
        else:
            own = self.rank % self.size
            rank = np.rint(own * (n - 1) / max(self.size - 1, 1)).astype(np.int64)
        rank = np.broadcast_to(rank, n.shape)[None]
        return Ranks(rank, rank, np.zeros(rank.shape))
