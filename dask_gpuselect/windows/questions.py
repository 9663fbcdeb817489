"""Questions about every window: quantiles, and statistics that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.arrays import any_true, as_type, is_kind, like, namespace, to_host
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.maths.envelope import exact_gap
from dask_gpuselect.maths.windows import Frame
from dask_gpuselect.quantiles.questions import Quantiles, missing_of


@dataclass(frozen=True)
class WindowQuestion(Quantiles):
    """Quantiles of every window, of its elements or of their distances from its median.

    It gives no warnings, because windows of too few elements are expected.

    Parameters
    ----------
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

    result: np.dtype[Any]
    least: int = field(default=1, kw_only=True)
    deviates: bool = field(default=False, kw_only=True)
    is_gap: bool = field(default=False, kw_only=True)
    scale: float = field(default=1.0, kw_only=True)
    warns: bool = field(default=False, kw_only=True)

    lane_answer = Quantiles.lane_values

    def finished(  # type: ignore[override]
        self, answers: Any, n_valid: Any, *, is_scaled: bool = False
    ) -> Any:
        """Return the answers by the order statistics of all windows: see `WindowOrder`."""
        if self.is_gap:
            answers = _gap(answers)
            answers /= self.scale
        if answers.dtype != self.result:
            answers = as_type(answers, self.result.name)
        if self.scale != 1 and not (self.is_gap or is_scaled):
            answers = answers / self.result.type(self.scale)
        # Kernels answer NaN for windows without elements.
        if n_valid is not None and (self.least > 1 or self.dtype.kind in "bui"):
            is_few = n_valid < max(self.least, 1)
            if any_true(is_few):
                missing = np.full(1, missing_of(self.result), self.result)
                answers = namespace(answers).where(is_few, like(missing, answers), answers)
        return answers


def _gap(pair: Any) -> Any:
    """Subtract the lower quantiles from the upper ones, as one row of float64."""
    if is_kind(pair, "real floating"):
        gap = as_type(pair[1:], "float64")  # a copy
        gap -= pair[:1]
        return gap
    low, high = to_host(pair)
    gap = exact_gap(low, high)[None]
    return namespace(pair).asarray(gap)


def form_of(
    question: WindowQuestion | None, *, is_one: bool
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype of answers, and the size of their axis for several quantiles, if any."""
    if question is None:
        return np.dtype(np.int64), ()
    return question.result, () if is_one else (question.n_answers,)


def answer_windows(
    chunk: Any, *, frame: Frame, question: WindowQuestion | None, dtype: np.dtype[Any], is_one: bool
) -> Any:
    """Answer all windows of a padded chunk.

    Parameters
    ----------
    chunk : array or Accompanied
    frame : Frame
    question : WindowQuestion or None
        None asks how many valid elements there are.
    dtype : dtype
        Of the elements.
    is_one : bool
        Whether answers have no axis for several quantiles.
    """
    shape = frame.shape(tuple(chunk.shape))
    if 0 in shape:
        result, new_axes = form_of(question, is_one=is_one)
        return like(np.empty((*new_axes, *shape), result), values_of(chunk))
    if question is None:
        return kernels.windows.valid_counts(chunk, frame)
    answers = kernels.answer_windows(chunk, dtype, frame, question)
    return answers[0] if is_one else answers
