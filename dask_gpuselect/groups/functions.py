"""`groupby`: quantiles and other statistics of each group of elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from dask_gpuselect.arguments import (
    Axis,
    as_accompanied,
    check_data,
    check_known,
    public,
    reduced_axes,
)
from dask_gpuselect.arrays import as_type, like, namespace, to_host
from dask_gpuselect.boxplot.describe import describe_boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.expressions import as_source, is_lazy_array
from dask_gpuselect.engine.groups import Grouped, Grouping
from dask_gpuselect.engine.plans import Plan, html_table
from dask_gpuselect.engine.questions import LaneLoad, LaneLoads, LaneQuestion, counting, of_merged
from dask_gpuselect.groups.labels import (
    as_kind,
    grouping_by_labels,
    grouping_by_windows,
    is_column,
    labels_of_each_kind,
    laid_out,
)
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, values_of
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.sizes import PartialBytes
from dask_gpuselect.optional import Advising
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.quantiles.documentation import as_method
from dask_gpuselect.robust import spread, trimmed

SHOWN = 10  # names of groups
INSTEAD = {
    "mean": "trimmed_mean(0.0), the exact mean",
    "min": 'quantile(0.0, method="lower")',
    "max": 'quantile(1.0, method="higher")',
    "std": "describe_boxplot(max_fliers=0), whose boxes have it",
}
"""Advice for statistics that groups do not have by that name."""


def groupby(a: Any, by: Any, axis: Axis = None, *, groups: Any = None) -> GroupBy:
    """Divide the elements of an array into groups by labels, for quantiles of each group.

    Parameters
    ----------
    a : dask array or array_like
        Of any kind that `quantile` takes. Chunks need not match groups.
    by : array, tuple of arrays, or dict
        Labels: integers, bools, strings, dates, objects of one type, or floats without fractions.
        Elements with missing labels are in no group: NaN, NaT, None, pandas' NA, and masked labels.

        - a one-dimensional array, along `axis`: for example the month of each day;
        - an array of the shape of the reduced axes, or whose shape broadcasts to that of `a`: for
          example the zones of a map, the same for all dates;
        - a tuple of several of these: a group for each combination that occurs;
        - a dict from each group to its indices along `axis`, or to a slice: an element may be in
          several groups.

        Labels may be NumPy, CuPy or dask arrays, a pandas Series, Index or Categorical, or a dask
        Series; they are matched by position. For lazy labels without `groups`, the number of groups
        is unknown until they are computed, and so is the size of answers along their axis.
    axis : None, int or tuple of ints, optional
        The axes to reduce; all of them by default.
    groups : sequence, optional
        The labels of the wanted groups, in this order. Elements with other labels are left out. The
        answer for a group without elements is NaN, or the `fill_value` of the method. By default,
        the groups are all labels that occur, in ascending order; categories keep their own order.

    Returns
    -------
    GroupBy
        With the methods `median`, `quantile`, `percentile`, `mad`, `iqr` and `trimmed_mean`, their
        nan-variants, `count`, `describe_boxplot` and `explain`, and the labels as `groups`.

    Raises
    ------
    TypeError
        For labels of another kind, or indices that are not integers; for `groups` of another kind
        than the labels, such as strings for numbers; for labels that are objects without an order,
        if `groups` is not given.
    ValueError
        For labels of a shape that does not fit, or that are floats with fractions without `groups`
        (for dask arrays while computing); for one-dimensional labels without `axis`, unless the
        data have one dimension; for repeated `groups`; if it is known that there is no group at
        all. By the methods, for a ``dask_gpuselect.column-limit`` that is too small for any plan.
    IndexError
        For indices beyond the axis.

    See Also
    --------
    quantile : Quantiles of all elements, or along axes.
    describe_boxplot : Box plots of all elements, or along axes.

    Notes
    -----
    Reads, of all elements: data and labels are read at most twice, for any number of groups. Data
    whose chunks have similar distributions, with up to 64 groups, are read about once, because
    elements of the first read are cached. A box plot or a trimmed mean takes one
    more read, and `mad` takes four in
    all. The labels alone are read once for the `groups` of lazy labels, and once more for answers
    if they are objects, categories or masked. Elements of one and two bytes are read once for all
    of these if there are few groups: the counts, 9 to 12 bytes for each possible value of each
    group, must not exceed the bytes of a task's data, and four times the counts must not exceed
    ``dask_gpuselect.root-limit``. Values of weighted elements are not counted.

    Along some of the axes, each chunk is read as often as by the same function without groups (see
    `quantile`). For lazy labels without `groups`, the labels alone are read once more. If a column
    of chunks exceeds ``dask_gpuselect.column-limit``, it is read once for each slab of its 1-D
    slices. Labels that several chunks share are read once for all reads, if all labels are smaller
    than one chunk.

    Memory, of all elements: a task takes parts of 64 MiB (for CuPy chunks, of
    ``dask_gpuselect.column-limit``), their labels, and a copy of both. CuPy chunks that fit
    ``dask_gpuselect.cache-limit`` with their labels and weights, by default a sixteenth of the
    memory of the device, are one part. Sorting it there takes 66 bytes for each float32 element
    with weights, and without weights about as many bytes as the chunks. For each group that has n
    elements in a part, the part returns about sqrt(n) pivots and as many candidates. If these
    exceed ``dask_gpuselect.root-limit`` (dask config; 1 GiB), up to 512 tasks each take some of
    the groups; if labels are lazy and `groups` is not given, one task takes all. Along some of
    the axes: the chunks of a task, their labels, and a copy of the largest group in them, or two
    copies of several groups of one size, of at most 8 MiB together or, of CuPy chunks, about 256
    MiB.

    Algorithm: if elements are ordered by label and then by value, a group is a range of ranks. So
    the cuts of all groups together prove brackets around every wanted rank of every group, as those
    of `quantile` do.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.groups import groupby
    >>> x = da.from_array([[1, 2], [3, 4], [5, 6], [7, 8]], chunks=(2, 1))
    >>> seasons = groupby(x, ["dry", "wet", "dry", "dry"], axis=0)
    >>> seasons.groups
    array(['dry', 'wet'], dtype='<U3')
    >>> seasons.median().compute()
    array([[5., 6.],
           [3., 4.]])
    """
    check_data(a, "a")
    check_known(axis, "axis")
    check_known(groups, "groups")
    axes, grouping, names = _grouping(a, by, axis, groups)
    if not grouping.n_groups:
        raise ValueError("there are no groups: every label in by is missing, or groups=[] is empty")
    return GroupBy(a, axes, grouping, names)


REFUSED = ("axis", "keepdims", "strategy")


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of `GroupBy` that calls a function of arrays for each group."""

    def method(self: GroupBy, /, *args: Any, **how: Any) -> Any:
        return self._ask(function, *args, **how)

    return as_method(method, function, "GroupBy", "Call `{name}` for each group.", without=REFUSED)


class GroupBy(Advising):
    """The groups of an array, with methods for quantiles of each group; made by `groupby`.

    Each method takes the arguments of the function with its name, except the array, `axis` and
    `keepdims`. In the answer, the axis of the groups replaces the first reduced axis. The axis of q
    comes first.

    Attributes
    ----------
    groups : ndarray, list of tuples, or dask array
        The labels of the groups, in order. If labels are lazy and `groups` was not given, a dask
        array of unknown size; labels of several kinds are then the fields of its elements.

    See Also
    --------
    groupby : Makes it.
    """

    def __init__(self, array: Any, axes: tuple[int, ...], grouping: Grouping, groups: Any) -> None:
        self._array, self._axes, self._grouping = array, axes, grouping
        self.groups = groups

    def __repr__(self) -> str:
        number = "unknown" if self._grouping.is_lazy else len(self)
        return f"<{number} groups along {self._axes} of {self._array!r}>"

    def _repr_html_(self) -> str:
        """Show the groups, then the array as it shows itself."""
        number = "unknown" if self._grouping.is_lazy else f"{len(self):,}"
        rows = {"groups": number, "axes": ", ".join(map(str, self._axes))}
        if not self._grouping.is_lazy:
            names = [str(name) for name in itertools.islice(self.groups, SHOWN)]
            rows["names"] = ", ".join(names) + (", ..." if len(self) > SHOWN else "")
        known = getattr(self._array, "_repr_html_", None)  # NumPy's arrays have none
        shown = known() if known else f"<code>{escape(repr(self._array))}</code>"
        return html_table(rows) + shown

    def __len__(self) -> int:
        return len(self.groups)

    def _advice(self, name: str) -> str:
        return f"type {INSTEAD[name]}" if name in INSTEAD else super()._advice(name)

    median = _method(quantiles.median)
    nanmedian = _method(quantiles.nanmedian)
    quantile = _method(quantiles.quantile)
    nanquantile = _method(quantiles.nanquantile)
    percentile = _method(quantiles.percentile)
    nanpercentile = _method(quantiles.nanpercentile)
    mad = _method(spread.mad)
    nanmad = _method(spread.nanmad)
    iqr = _method(spread.iqr)
    naniqr = _method(spread.naniqr)
    trimmed_mean = _method(trimmed.trimmed_mean)
    nantrimmed_mean = _method(trimmed.nantrimmed_mean)
    explain: Callable[..., Plan] = _method(quantiles.explain)

    def _ask(self, function: Callable[..., Any], *args: Any, **how: Any) -> Any:
        """Call a function of arrays for each group."""
        refused = how.keys() & REFUSED
        if refused:
            raise TypeError(
                f"methods of groups take no {sorted(refused)[0]}: pass axis to "
                "groupby, and leave out keepdims and strategy"
            )
        return function(Grouped(self._array, self._grouping), *args, axis=self._axes, **how)

    def count(self, *, where: Any = None, nodata: Any = None) -> Any:
        """Return each group's number of elements that take part and are not NaN, as int64."""
        return self._ask(_count, where=where, nodata=nodata)

    def describe_boxplot(self, **how: Any) -> Boxplot:
        """Return a box for each group, labelled with it: `dask_gpuselect.describe_boxplot`."""
        boxes: Boxplot = self._ask(describe_boxplot, **how)
        names = as_source(self.groups) if is_lazy_array(self.groups) else self.groups
        return boxes.of_groups(names, self._axes[0])


@public("a", "where")
def _count(a: Any, *, axis: Axis, where: Any, nodata: Any) -> Any:
    """Count the elements of each lane or group that take part."""
    array = as_accompanied(a, where, nodata)
    return ask(Asking(array, LaneCounts(), reduced_axes(axis, a.ndim), np.dtype(np.int64)), "count")


def _grouping(a: Any, by: Any, axis: Axis, groups: Any) -> tuple[tuple[int, ...], Grouping, Any]:
    """Return the reduced axes, the groups along them, and the names of the groups."""
    shape = tuple(a.shape) if hasattr(a, "shape") else np.shape(a)
    axes = reduced_axes(axis, len(shape))
    if not axes:
        raise ValueError(
            "groupby needs at least one axis, and "
            + ("axis is empty: pass axis=0" if shape else "the array has no dimensions")
        )
    if isinstance(by, Mapping):
        check_known(dict(by), "by")
        return axes, *grouping_by_windows(by, groups, shape, axes)
    several = labels_of_each_kind(by)
    if not several:
        raise ValueError("by is an empty tuple: pass at least one array of labels")
    for each in several:
        if not is_column(each):
            check_data(each, "by")
    kinds = [as_kind(each) for each in several]
    how: dict[str, Any] = {"is_axis_given": axis is not None}
    kinds = [replace(each, labels=laid_out(each.labels, shape, axes, **how)) for each in kinds]
    return axes, *grouping_by_labels(kinds, groups)


# --- The question of how many elements take part --------------------------------------------------


@dataclass(frozen=True)
class LaneCounts(LaneQuestion):
    """Number of elements of every lane that take part and are not NaN or NaT, as a question."""

    @property
    def order(self) -> Any:
        return self

    n_answers = 1

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        """Return no ranks: lanes have the number of their elements without order statistics."""
        none = np.empty((0, len(n)), np.int64)
        return none, none

    def answer(self, column: ChunkColumn) -> Any:
        return like(_counted(column)[None], values_of(column.chunks[0]))

    def answer_groups(self, *about: Any) -> None:
        """Return None: each group is counted by itself."""

    @property
    def loads(self) -> LaneLoads:
        return LaneLoads(
            narrow=LaneLoad(_counted, _sum, _sum),
            last=LaneLoad(_counted, _sum, of_merged(_sum, _without_elements)),
            n_brackets=1,
            partial_bytes=lambda dtype: PartialBytes(8),
            counts=counting(self._counted),
        )

    def finished(self, lanes: Lanes) -> Any:
        return lanes.n_valid[None]


def _counted(column: ChunkColumn, known: Any = None, m: int = 0) -> IntArray:
    """Count the elements of each lane in all chunks together; on the host, ``(n_lanes,)``."""
    counts = []
    for chunk in column.chunks:
        values: Any = values_of(chunk)
        takes = values == values  # and not NaN or NaT
        if isinstance(chunk, Accompanied) and chunk.keeps is not None:
            takes = takes & chunk.keeps
        n = namespace(values).sum(as_type(takes, "int64"), axis=column.axes)
        counts.append(to_host(n).reshape(-1))
    return np.asarray(sum(counts[1:], counts[0]), np.int64)


def _sum(partials: Sequence[IntArray], known: Any = None, m: int = 0) -> IntArray:
    """Add up the counts of several parts."""
    return np.asarray(np.sum(partials, axis=0))


def _without_elements(counts: IntArray, known: Any) -> Lanes:
    """Return counts as the result of lanes, without order statistics."""
    none = np.empty((len(counts), 0))
    return Lanes(none, none, counts, np.zeros_like(counts))
