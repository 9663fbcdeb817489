"""Questions about quantiles of an array: the ranks that answer them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import as_dtype, masked
from dask_gpuselect.engine.questions import (
    ElementQuestion,
    LaneLoad,
    LaneLoads,
    LaneQuestion,
    counting,
)
from dask_gpuselect.maths.cuts import IntArray, RanksOf
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.interpolation import interpolate
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, distinct
from dask_gpuselect.maths.ranks import (
    MEDIAN,
    METHODS,
    Applied,
    Method,
    Ranks,
    ranks,
    ranks_of,
    remembered,
)
from dask_gpuselect.maths.tails import TailSizes

EMPTY = "an empty array has no quantiles"
FILL = "quantile, percentile and their nan-variants take fill_value=, the answer in this case"


@dataclass(frozen=True)
class QuantileFields:
    """The fields of questions about quantiles, weighted or not.

    Parameters
    ----------
    q : tuple of float
        In [0, 1].
    method : str
        A name in `METHODS`, or ``"median"``.
    skips_missing : bool
        True if NaN and NaT are left out. Otherwise one of them, if it is weighted of positive
        weight, makes every answer missing.
    source_dtype : dtype
        Dtype of the array.
    dtype : dtype
        Dtype of the answer.
    if_none : {"empty", "missing", "masked"}
        The answers where no element takes part: those of NumPy for an empty array, those for an
        array that is all NaN, or masked.
    fill : tuple of scalars, optional
        The answers there, if they are given: one for each q, in the dtype of the answers. They are
        in a masked array if `if_none` is "masked".
    warns : bool
        False if another question about the same elements warns of those that are missing.
    """

    q: tuple[float, ...]
    method: str
    skips_missing: bool
    source_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    if_none: str = field(default="empty", kw_only=True)
    fill: tuple[Any, ...] | None = field(default=None, kw_only=True)
    warns: bool = field(default=True, kw_only=True)

    @property
    def n_answers(self) -> int:
        return len(self.q)


@dataclass(frozen=True)
class Quantiles(QuantileFields, ElementQuestion, LaneQuestion):
    """Quantiles of all elements of an array, or of every lane, as a question.

    Parameters
    ----------
    position : callable, optional
        As of a `Method`, in place of that of the method.
    """

    position: Callable[[Any, Any], Any] | None = field(default=None, kw_only=True)

    nearest: ClassVar[bool] = False  # for dates, see `interpolate`

    @property
    def _method(self) -> Method:
        method = MEDIAN if self.method == MEDIAN.name else METHODS[self.method]
        return method if self.position is None else replace(method, position=self.position)

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        return _wanted_pairs(self.q, self._method, n)

    def ranks_of_sample(self, n: int) -> RanksOf:
        return Applied(_wanted_pairs, (self.q, self._method))

    def answer_by(
        self, n_valid: int, n_missing: int, elements_at: Callable[[IntArray], NDArray[Any]]
    ) -> NDArray[Any]:
        none = self.answer_if_none(n_valid, n_missing)
        if none is not None:
            return none
        wanted = ranks_of(self.q, self._method, n_valid)
        lower, upper = as_dtype(
            elements_at(np.stack([wanted.lower, wanted.upper])), self.source_dtype
        )
        return interpolate(
            lower, upper, wanted.weight, self._method, self.dtype, nearest=self.nearest
        )

    def answer_if_none(self, n_valid: int, n_missing: int) -> NDArray[Any] | None:
        """Return the answer without elements, with NumPy's warning or error; else None."""
        if not self.q:
            return np.empty(0, self.dtype)
        if n_valid and (self.skips_missing or not n_missing):
            return None
        if n_valid == n_missing == 0 and self.if_none == "empty" and self.fill is None:
            check_not_empty(self._method, skips_missing=self.skips_missing)
        nothing = np.zeros((1, len(self.q)), selection_dtype(self.source_dtype))
        counts = (np.array([n]) for n in (n_valid, n_missing))
        return self.lane_answer(Lanes(nothing, nothing, *counts))[:, 0]

    @property
    def order(self) -> LaneOrder:
        return self

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        wanted = self.wanted_of_lanes(n)
        return wanted.lower, wanted.upper

    def lane_answer(self, order: Lanes) -> NDArray[Any]:
        if self.fill is not None:
            answer = self.lane_values(order)
            return masked(answer) if self.if_none == "masked" else answer
        is_missing = order.n_valid == 0
        is_empty = is_missing & (order.n_missing == 0)
        if self.if_none == "masked":
            answer = self.lane_values(order)
            return masked(answer, np.broadcast_to(is_empty, answer.shape))
        if is_missing.any():
            is_all_missing = bool((is_missing & ~is_empty).any())
            self.warn_missing(is_empty=bool(is_empty.any()), is_all_missing=is_all_missing)
        return self.lane_values(order)

    def lane_values(self, order: Lanes) -> NDArray[Any]:
        weight: Any = 0.5
        if self.mixes == 2:  # others need no weight
            counts, place = distinct(order.n_valid)
            weight = self.wanted_of_lanes(np.maximum(counts, 1)).weight
            if len(counts) > 1:
                weight = weight.take(place, axis=1)  # half the time of indexing
        is_one = order.upper is order.lower
        # Mixtures have no -0.0, and new memory for a copy takes longer than they do.
        clean = unsigned_zero if is_one or self.mixes < 2 else np.asarray
        lower = as_dtype(clean(order.lower.T), self.source_dtype, copy=False)
        upper = lower
        if not is_one:
            upper = as_dtype(clean(order.upper.T), self.source_dtype, copy=False)
        answer = interpolate(lower, upper, weight, self._method, self.dtype, nearest=self.nearest)
        if order.is_complete:
            return answer
        is_missing = order.n_valid == 0
        if not self.skips_missing:
            is_missing |= order.n_missing > 0
        if is_missing.any() and len(answer):
            answer = np.array(answer)
            answer[:, is_missing] = missing_of(self.dtype)
            if self.fill is not None:
                # Functions that skip NaN and NaT leave these out.
                is_filled = (order.n_valid == 0) & (self.skips_missing | (order.n_missing == 0))
                answer[:, is_filled] = np.array(self.fill, self.dtype)[:, None]
        return answer

    @property
    def mixes(self) -> int:
        return 0 if self._method.discrete else 1 if self._method.averages else 2

    def warn_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        if not self.warns or self.fill is not None:
            return
        is_left_out = is_empty and self.if_none == "missing"
        if is_empty and self.q:
            if self.dtype.kind in "biu":
                reason = "all elements are left out" if is_left_out else EMPTY
                raise IndexError(f"{reason}, and {self.dtype} has no NaN for the answer: {FILL}")
            if not is_left_out:
                warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=3)
        if is_left_out or (is_all_missing and self.skips_missing):
            warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=3)

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        """Return the ranks for each number of elements, in columns.

        Mostly there is one number, that of all lanes.
        """
        if len(n) != 1:
            return ranks(n, np.array(self.q)[:, None], self._method)
        wanted = ranks_of(self.q, self._method, int(n[0]))
        return Ranks(wanted.lower[:, None], wanted.upper[:, None], wanted.weight[:, None])

    @property
    def loads(self) -> LaneLoads:
        return replace(super().loads, tails=self._tails, counts=counting(self._counted))

    def _tails(self, n: int) -> LaneLoad | None:
        return LaneLoad.of_tails(TailSizes.of_quantiles(n, self.q), self.order) if self.q else None


@remembered
def _wanted_pairs(q: tuple[float, ...], method: Method, n: int) -> tuple[IntArray, IntArray]:
    """Return the distinct pairs of first and last ranks."""
    if n == 0 or not q:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    wanted = ranks_of(q, method, n)
    first, last = np.unique(np.stack([wanted.lower, wanted.upper]), axis=1)
    return first, last


def missing_of(dtype: np.dtype[Any]) -> Any:
    """Return the value for a missing answer: NaN or NaT.

    It is 0 for answers that are masked and whose dtype has neither.
    """
    return {"f": np.nan, "m": "NaT", "M": "NaT"}.get(dtype.kind, 0)


def check_not_empty(method: Method, *, skips_missing: bool) -> None:
    """Raise for an empty array if NumPy does.

    NumPy raises for quantiles, and returns NaN for medians and nan-functions.
    """
    if method is not MEDIAN and not skips_missing:
        raise IndexError(f"{EMPTY}: {FILL}")
