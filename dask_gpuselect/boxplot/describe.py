"""`describe_boxplot`: Tukey's summary of data that fits nowhere."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from dask.base import is_dask_collection

from dask_gpuselect.arguments import Axis, as_array, public, reduced_axes
from dask_gpuselect.arrays import numpy_dtype
from dask_gpuselect.boxplot.lanes import ask_boxes, boxes_now
from dask_gpuselect.boxplot.summary import (
    COLUMNS,
    Box,
    Boxes,
    Boxplot,
    Layout,
    check_labels,
    with_tables,
)
from dask_gpuselect.engine import passes
from dask_gpuselect.engine.source import Key
from dask_gpuselect.kernels.reference.selection import elements_at
from dask_gpuselect.maths.boxes import (
    BoxBrackets,
    Found,
    Rule,
    bracket_fences,
    bracket_from_cuts,
    bracket_from_sample,
    look,
    look_again,
)
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ranks import METHODS, check_method
from dask_gpuselect.quantiles.questions import Quantiles

__all__ = ["Box", "Boxplot", "describe_boxplot"]


@dataclass(frozen=True)
class BoxQuestion:
    """See `passes.Follower`."""

    rule: Rule
    omits_nan: bool
    source_dtype: np.dtype[Any]

    share: ClassVar[int] = 1
    wants_sums: ClassVar[bool] = True
    third: ClassVar[str] = "fences"

    def guess(self, ordered: Any, rate: float) -> BoxBrackets:
        take = partial(elements_at, ordered)
        return bracket_from_sample(take, int(ordered.shape[0]), rate, self.rule)

    def bracket(self, cuts: Cuts) -> BoxBrackets:
        return bracket_from_cuts(cuts, self.rule)

    def settle(self, guess: Brackets, tally: Tally) -> Found | Tally | None:
        found = self.look(guess, tally)
        return found if self.more(guess, found) is None else None

    def look(self, brackets: Brackets, tally: Tally) -> Found | Tally:
        if tally.n_valid == 0:
            return tally
        return look(brackets, tally, self.rule)

    def more(self, brackets: Brackets, found: Found | Tally) -> Brackets | None:
        if isinstance(found, Tally) or found.is_complete:
            return None
        assert isinstance(brackets, BoxBrackets)
        is_unknown = (found.below is None, found.above is None)
        spared = [
            values if wanted else values[:0]
            for values, wanted in zip(brackets.spared, is_unknown, strict=True)
        ]
        return bracket_fences(tuple(spared), found.fences)

    def finish(
        self,
        found: Found | Tally,
        more: Brackets | None,
        tally: Tally | None,
        sums: Moments | None,
    ) -> Boxes:
        if isinstance(found, Tally):
            return self._without_elements(found.n_missing)
        if more is not None and tally is not None:
            found = look_again(found, more, tally)
        assert found.below is not None
        assert found.above is not None
        assert sums is not None
        low, high = (np.nan if value is None else value for value in found.whiskers)
        mean, std = sums.mean_and_std()
        kept = [min(count, self.rule.max_fliers) for count in (found.below, found.above)]
        numbers = (found.n, found.n_missing, found.below, found.above, *kept)
        n, n_nan, n_low, n_high, kept_low, kept_high = (np.array(i, np.int64) for i in numbers)
        boxes = Boxes(
            n=n,
            n_nan=n_nan,
            min=np.array(found.low[0]),
            q1=found.q[0, ...],
            med=found.q[1, ...],
            q3=found.q[2, ...],
            max=np.array(found.high[0]),
            mean=np.array(mean),
            std=np.array(std),
            low=np.array(low, found.low.dtype),
            high=np.array(high, found.low.dtype),
            n_low=n_low,
            n_high=n_high,
            kept_low=kept_low,
            kept_high=kept_high,
            fliers=np.concatenate([found.low[:kept_low], found.high[:kept_high]]),
        )
        return boxes.in_dtype(self.source_dtype).without_missing(omits_nan=self.omits_nan)

    def _without_elements(self, n_missing: int) -> Boxes:
        none, nan = np.array(0, np.int64), np.array(np.nan)
        counts = dict.fromkeys(("n", "n_low", "n_high", "kept_low", "kept_high"), none)
        rest = {name: nan for name in COLUMNS if name not in counts}
        n_nan = np.array(n_missing, np.int64)
        return Boxes(
            **(rest | counts | {"n_nan": n_nan}),
            fliers=np.empty(0, self.source_dtype.newbyteorder("=")),
        )


@dataclass(frozen=True)
class LaneBoxQuestion(Quantiles):
    """See `lane_boxes.BoxesQuestion`: what is asked of every lane."""

    rule: Rule
    omits_nan: bool

    @classmethod
    def of(cls, rule: Rule, source_dtype: np.dtype[Any], *, omits_nan: bool) -> LaneBoxQuestion:
        method = METHODS[rule.method]
        dtype = source_dtype.newbyteorder("=") if method.discrete else np.dtype(np.float64)
        return cls(rule.q, rule.method, True, source_dtype, dtype, rule, omits_nan)

    def tell_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        """Nothing: the boxes tell how many elements they have."""


@public(many="a")
def describe_boxplot(
    a: Any,
    axis: Axis = None,
    *,
    whis: float | tuple[float, float] = 1.5,
    nan_policy: str = "omit",
    autorange: bool = False,
    max_fliers: int = 1000,
    labels: Sequence[str] | None = None,
    method: str = "linear",
) -> Boxplot:
    """Box plot statistics of arrays of any size, exactly.

    Parameters
    ----------
    a : array, or list or dict of arrays
        Of any shape, of integers or floats of up to 64 bits, NumPy or CuPy; a box for each. If one
        of them is a dask array, all are described lazily, else at once. Labels are the keys of a
        dict.
    axis : None, int or tuple of ints, optional
        Axes to reduce: one box for every lane along them. By default all elements of an array are
        one box.
    whis : float or (float, float), default 1.5
        The whiskers end at the last elements within `whis` interquartile ranges from the box, or
        at the last ones within these percentiles; at the box's end if there are none outside of it.
    nan_policy : {"omit", "propagate"}
        NaN is left out and counted, **or**, with ``"propagate"``, makes every statistic of its box
        NaN, as in matplotlib.
    autorange : bool
        Whether the whiskers reach the extremes where the interquartile range is 0.
    max_fliers : int
        How many fliers of each side are kept, the most extreme ones. All are counted.
    labels : sequence of str, optional
        A label for each box; along an axis in C order.
    method : str
        How quartiles are interpolated: see `quantile`.

    Returns
    -------
    Boxplot
        For a dask array nothing is computed yet.

    Raises
    ------
    TypeError
        For arrays that are not of real numbers, dates among them; for a `whis` that is no number, a
        `max_fliers` that is no integer, and `labels` that are no sequence.
    ValueError
        For `whis`, `nan_policy`, `max_fliers`, `labels` or `method` that make no sense.
    numpy.exceptions.AxisError
        If `axis` is out of range.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    MemoryError, RuntimeError
        For CuPy chunks: out of device memory; a device or driver that is too old.

    See Also
    --------
    quantile

    Notes
    -----
    Loads: two of every chunk, for all boxes of what several arrays have in common; a third one of
    those arrays alone where more elements lie about a fence than 16 for each pivot. Data in memory
    is read once for the box, guessed by a sample and proven by the counts, and once for its sums;
    large plain NumPy arrays by several threads. Along an axis: those of `quantile`, for each array
    by itself, and one more where a column of chunks does not fit ``dask_gpuselect.column-limit``.

    Memory: as for `quantile`, and `max_fliers` elements and those of a cell on each side; along an
    axis so many for every lane, and about 200 bytes for each; up to 1.7 KB where its float64 are
    of all magnitudes.

    Semantics are those of ``matplotlib.cbook.boxplot_stats`` on float64: no whisker ends inside the
    box, and a flier is what lies beyond its end. The mean and the standard deviation (of all
    elements, as `numpy.std`) are those of exact arithmetic, each rounded once: they do not depend
    on chunks, order, device or scheduler, whatever cancels, and squares neither overflow nor
    underflow. With an infinity they are what NumPy gives: an infinite mean, or NaN.

    References
    ----------
    J. W. Tukey, "Exploratory Data Analysis", 1977. R. McGill, J. W. Tukey and W. A. Larsen,
    "Variations of Box Plots", 1978: the notches. The brackets are those of `quantile`.

    Examples
    --------
    >>> import dask.array as da
    >>> box = describe_boxplot(da.arange(101, chunks=10)).compute()[0]
    >>> box.q1, box.med, box.q3, box.whislo, box.whishi
    (25.0, 50.0, 75.0, 0, 100)
    """
    rule = _rule(whis, autorange, max_fliers, method)
    if labels is not None and not isinstance(labels, Iterable):
        raise TypeError(f"labels must be a sequence of str, not {labels!r}")
    if nan_policy not in ("omit", "propagate"):
        raise ValueError(f'nan_policy must be "omit" or "propagate", not {nan_policy!r}')
    arrays, names = _arrays(a)
    asked = [_asked(array, axis, rule, omits_nan=nan_policy == "omit") for array in arrays]
    layouts = [
        Layout(name, method, tuple(s for i, s in enumerate(each.array.shape) if i not in each.axes))
        for name, each in zip(names, asked, strict=True)
    ]
    if not any(isinstance(array, da.Array) for array in arrays):
        return with_tables([each.now() for each in asked], layouts, labels)
    tables, keys, grids = _ask(asked)
    layouts = [replace(layout, grid=grid) for layout, grid in zip(layouts, grids, strict=True)]
    lazy = Boxplot(layouts, labels, graph=passes.together(tables), keys=keys)
    if not any(math.isnan(size) for layout in layouts for size in layout.shape):
        check_labels(labels, len(lazy))
    return lazy


@dataclass(frozen=True)
class _Asked:
    """An array, and what is asked of it."""

    array: Any
    axes: tuple[int, ...]
    whole: BoxQuestion
    lane: LaneBoxQuestion

    @property
    def is_whole(self) -> bool:
        return len(self.axes) == int(self.array.ndim)

    def now(self) -> Boxes:
        dtype = self.whole.source_dtype
        if self.is_whole:
            found: Boxes = passes.ask_more_now(self.array, dtype, self.whole)
            return found
        return boxes_now(self.array, dtype, self.lane, self.axes)


def _asked(array: Any, axis: Axis, rule: Rule, *, omits_nan: bool) -> _Asked:
    dtype = numpy_dtype(array)
    if dtype.kind in "bmM":
        raise TypeError(f"a box plot needs numbers, not {dtype}")
    result_dtype(dtype, METHODS[rule.method], weak_q=False)  # raises for others that are not
    lane = LaneBoxQuestion.of(rule, dtype, omits_nan=omits_nan)
    return _Asked(array, reduced_axes(axis, array.ndim), BoxQuestion(rule, omits_nan, dtype), lane)


def _ask(asked: list[_Asked]) -> tuple[list[da.Array], list[list[Key]], list[tuple[int, ...]]]:
    """The lazy boxes of each array: arrays of tables, the keys of these, and the grids they lie
    in."""
    lazy = [
        each.array if isinstance(each.array, da.Array) else da.from_array(each.array)
        for each in asked
    ]
    keys: list[list[Key]] = [[] for _ in asked]
    grids: list[tuple[int, ...]] = [() for _ in asked]
    whole = [i for i, each in enumerate(asked) if each.is_whole]
    questions = [asked[i].whole for i in whole]
    tables = passes.ask_more([lazy[i] for i in whole], questions, "boxplot")
    for i, table in zip(whole, tables, strict=True):
        keys[i] = [(table.name,)]
    for i, (x, each) in enumerate(zip(lazy, asked, strict=True)):
        if not each.is_whole:
            found, keys[i], grids[i] = ask_boxes(x, each.lane, "boxplot", each.axes)
            tables += found
    return tables, keys, grids


def _rule(whis: Any, autorange: bool, max_fliers: int, method: str) -> Rule:
    check_method(method)
    try:
        max_fliers = operator.index(max_fliers)
    except TypeError:
        raise TypeError(f"max_fliers must be an integer, not {max_fliers!r}") from None
    if max_fliers < 0:
        raise ValueError(f"max_fliers must not be negative, and {max_fliers} is")
    if (kind := np.asarray(whis).dtype).kind not in "biuf":
        raise TypeError(f"whis must be a real number, or two, not {kind}")
    given = np.asarray(whis, np.float64)
    if given.shape == (2,):
        if not ((given >= 0) & (given <= 100)).all() or given[0] > given[1]:
            raise ValueError(f"whis must be two ascending percentiles, not {whis}")
        low, high = (given / 100).tolist()
        return Rule((low, high), autorange, max_fliers, method)
    if given.shape != () or not given >= 0:
        raise ValueError(f"whis must be a number that is not negative, or two, not {whis}")
    return Rule(float(given), autorange, max_fliers, method)


def _arrays(a: Any) -> tuple[list[Any], list[str | None]]:
    """The arrays, and a name or None for each."""
    names: list[str | None]
    if isinstance(a, Mapping):
        names, arrays = [str(key) for key in a], list(a.values())
    elif isinstance(a, list | tuple) and any(
        np.ndim(item) or is_dask_collection(item) for item in a
    ):
        names, arrays = [None] * len(a), list(a)
    else:
        names, arrays = [None], [a]
    return [as_array(array) for array in arrays], names
