"""What `describe_boxplot` answers: boxes as columns of statistics, and the collection that is
computed, read and drawn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from dask.array.optimization import optimize
from dask.base import DaskMethodsMixin
from dask.threaded import get as threaded_get
from numpy.typing import NDArray

from dask_gpuselect.arrays import as_dtype
from dask_gpuselect.maths.boxes import NOTCH, Rule
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_boxes import LaneEnds
from dask_gpuselect.optional import axes
from dask_gpuselect.quiet import quiet

SHOWN = 40  # boxes that are printed; of more, the first and the last
SHOWN_ENDS = 5
# Plotly's names. Its two halves of an odd number of elements have, with the median in both or in
# neither, these medians; of an even number it interpolates otherwise.
PLOTLY_METHODS = {"hazen": "linear", "linear": "inclusive", "weibull": "exclusive"}


@dataclass(frozen=True, eq=False)
class Box:
    """The statistics of one box.

    Parameters
    ----------
    label : str or None
    n, n_nan : int
        Elements that are not NaN, and those that are.
    min, q1, med, q3, max, mean, std, iqr : float
        The standard deviation is that of all elements, as `numpy.std`.
    whislo, whishi : float
        Ends of the whiskers.
    cilo, cihi : float
        Ends of the notch, ``med -+ 1.57 iqr / sqrt(n)``.
    n_low, n_high : int
        Fliers below and above the whiskers, exactly.
    fliers : ndarray
        Of both sides the most extreme, ``max_fliers`` of each at most: those below ascending, then
        those above descending.
    """

    label: str | None
    n: int
    n_nan: int
    min: Any
    q1: float
    med: float
    q3: float
    max: Any
    mean: float
    std: float
    iqr: float
    whislo: Any
    whishi: Any
    cilo: float
    cihi: float
    n_low: int
    n_high: int
    fliers: NDArray[Any]

    def to_dict(self) -> dict[str, Any]:
        """The statistics by their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


# --- Columns --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Boxes(Arrays):
    """Boxes of any shape: one of all elements, or one for every lane, without labels.

    Parameters
    ----------
    n, n_nan, n_low, n_high : ndarray of int64
        As in `Box`.
    min, max : ndarray, dtype of the data
    q1, med, q3, mean, std : ndarray of float64
    low, high : ndarray, dtype of the data
        The nearest elements inside the fences; NaN where there are none.
    kept_low, kept_high : ndarray of int64
        How many fliers of each side are here.
    fliers : ndarray, one-dimensional, dtype of the data
        Those of one box after the other, in C order, each as in `Box`.
    """

    n: IntArray
    n_nan: IntArray
    min: NDArray[Any]
    q1: NDArray[np.float64]
    med: NDArray[np.float64]
    q3: NDArray[np.float64]
    max: NDArray[Any]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    low: NDArray[Any]
    high: NDArray[Any]
    n_low: IntArray
    n_high: IntArray
    kept_low: IntArray
    kept_high: IntArray
    fliers: NDArray[Any]

    @classmethod
    def of_lanes(
        cls,
        q: FloatArray,
        ends: LaneEnds,
        shape: tuple[int, ...],
        rule: Rule,
    ) -> Boxes:
        """A box for every lane, from the quantiles `Rule.q` and what lies at their ends."""
        mean, std = ends.moments.mean_and_std()
        low, high = ends.fliers_low, ends.fliers_high
        lanes = [np.repeat(np.arange(len(side.kept)), side.kept) for side in (low, high)]
        both = np.argsort(np.concatenate(lanes), kind="stable")
        inside = [ends.low, ends.high]
        if ends.low.dtype.kind == "f":  # nothing is inside a fence of infinite quartiles
            inside = [
                np.where(np.isnan(fence), fence, nearest).astype(nearest.dtype)
                for fence, nearest in zip(rule.fences(q), inside, strict=True)
            ]
        columns = {
            "n": ends.n_valid,
            "n_nan": ends.n_missing,
            "min": unsigned_zero(ends.least),
            "q1": q[0],
            "med": q[1],
            "q3": q[2],
            "max": unsigned_zero(ends.most),
            "mean": mean,
            "std": std,
            **dict(zip(("low", "high"), map(unsigned_zero, inside), strict=True)),
            "n_low": low.n,
            "n_high": high.n,
            "kept_low": low.kept,
            "kept_high": high.kept,
        }
        return cls(
            **{name: column.reshape(shape) for name, column in columns.items()},
            fliers=np.concatenate([low.elements, high.elements])[both],
        )

    @classmethod
    def concatenated(cls, tables: Sequence[Boxes], axis: int) -> Boxes:
        """Tables of shapes that differ along an axis, one behind the other."""
        if len(tables) == 1:
            return tables[0]
        columns = {
            name: np.concatenate([getattr(table, name) for table in tables], axis)
            for name in COLUMNS
        }
        # Where each table's boxes are among all of them: their fliers go there.
        first = itertools.accumulate((table.n.size for table in tables), initial=0)
        numbers = [
            np.arange(start, start + table.n.size).reshape(table.n.shape)
            for start, table in zip(first, tables, strict=False)
        ]
        place = np.argsort(np.concatenate(numbers, axis), axis=None)
        of_box = [np.ravel(table.kept_low + table.kept_high) for table in tables]
        box = np.repeat(place, np.concatenate(of_box))
        fliers = np.concatenate([table.fliers for table in tables])
        return cls(**columns, fliers=fliers[np.argsort(box, kind="stable")])

    @classmethod
    def assembled(cls, tables: Sequence[Boxes], grid: tuple[int, ...]) -> Boxes:
        """All tables of a grid, which are given in C order."""
        if not grid:
            return tables[0]
        inner = math.prod(grid[1:])
        rows = [
            cls.assembled(tables[i * inner : (i + 1) * inner], grid[1:]) for i in range(grid[0])
        ]
        return cls.concatenated(rows, axis=-len(grid))

    def in_dtype(self, dtype: np.dtype[Any]) -> Boxes:
        """With elements, that were of `selection_dtype`, in the dtype of the data."""
        names = ("min", "max", "low", "high", "fliers")
        return replace(self, **{name: as_dtype(getattr(self, name), dtype) for name in names})

    def without_missing(self, *, omits_nan: bool) -> Boxes:
        """With NaN for the statistics of boxes that have no elements, or, if they are not left out,
        any NaN; and without their fliers."""
        is_missing = self.n == 0
        if not omits_nan:
            is_missing = is_missing | (self.n_nan > 0)
        if not is_missing.any():
            return self
        columns = {}
        for name in ("min", "q1", "med", "q3", "max", "mean", "std", "low", "high"):
            column = getattr(self, name)
            # An integer's box has no elements if it is missing: then none has in all the table.
            column = np.array(column, column.dtype if column.dtype.kind == "f" else np.float64)
            column[is_missing] = np.nan
            columns[name] = column
        for name in ("n_low", "n_high", "kept_low", "kept_high"):
            columns[name] = np.where(is_missing, 0, getattr(self, name))
        kept = np.repeat(~is_missing.ravel(), np.ravel(self.kept_low + self.kept_high))
        return replace(self, **columns, fliers=self.fliers[kept])

    # Kept: each box of many asks for its own.
    @cached_property
    def iqr(self) -> NDArray[np.float64]:
        with quiet():
            return np.asarray(self.q3 - self.q1)

    @cached_property
    def notch(self) -> NDArray[np.float64]:
        """Half its height."""
        with quiet():
            return np.asarray(NOTCH * self.iqr / np.sqrt(self.n))

    def columns(self) -> dict[str, NDArray[Any]]:
        """The statistics of `Box` by their names, but for the labels; fliers as objects."""
        with quiet():
            notch = self.notch
            known = {name: getattr(self, name) for name in COLUMNS} | {
                "iqr": self.iqr,
                "whislo": np.where(_is_nan(self.low) | (self.low > self.q1), self.q1, self.low),
                "whishi": np.where(_is_nan(self.high) | (self.high < self.q3), self.q3, self.high),
                "cilo": self.med - notch,
                "cihi": self.med + notch,
            }
        fliers = np.empty(self.n.size, object)
        fliers[:] = [self.fliers_of(i) for i in range(self.n.size)]
        known["fliers"] = fliers.reshape(self.n.shape)
        return {field.name: known[field.name] for field in fields(Box) if field.name in known}

    def box(self, i: int, label: str | None) -> Box:
        """The one of that number, in C order."""
        it = {name: getattr(self, name).reshape(-1)[i].item() for name in COLUMNS}
        q1, med, q3 = it["q1"], it["med"], it["q3"]
        notch = float(self.notch.reshape(-1)[i])
        return Box(
            label=label,
            n=it["n"],
            n_nan=it["n_nan"],
            min=it["min"],
            q1=q1,
            med=med,
            q3=q3,
            max=it["max"],
            mean=it["mean"],
            std=it["std"],
            iqr=float(self.iqr.reshape(-1)[i]),
            # As in matplotlib, no whisker ends within the box: where nothing is inside a fence but
            # beyond the box's end, the whisker is that end. Python compares integers exactly.
            whislo=q1 if it["low"] != it["low"] or it["low"] > q1 else it["low"],
            whishi=q3 if it["high"] != it["high"] or it["high"] < q3 else it["high"],
            cilo=med - notch,
            cihi=med + notch,
            n_low=it["n_low"],
            n_high=it["n_high"],
            fliers=self.fliers_of(i),
        )

    def fliers_of(self, i: int) -> NDArray[Any]:
        """Those of one box."""
        return self.fliers[self._stops[i] : self._stops[i + 1]]

    @cached_property
    def _stops(self) -> IntArray:
        """Where the fliers of each box begin, and where all end."""
        return np.append(np.int64(0), np.cumsum(self.kept_low + self.kept_high))


def _is_nan(values: NDArray[Any]) -> Any:
    return values != values


COLUMNS = tuple(field.name for field in fields(Boxes) if field.name != "fliers")


# --- The collection -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How the boxes of one array come from tasks, and what they are called.

    Parameters
    ----------
    name : str or None
        Of the array.
    method : str
        How quartiles are interpolated.
    shape : tuple of int or NaN
        Of its boxes: its own, without the reduced axes.
    grid : tuple of int
        How many tables lie along each axis.
    """

    name: str | None
    method: str
    shape: tuple[float, ...] = ()
    grid: tuple[int, ...] = ()

    @property
    def size(self) -> float:
        return math.prod(self.shape)


class Boxplot(DaskMethodsMixin):
    """Boxes: a dask collection until they are computed, then a sequence of `Box`.

    Methods that need the statistics compute them if they are not there yet. Not to be made by
    hand: see `describe_boxplot`.
    """

    def __init__(
        self,
        layouts: Sequence[Layout],
        labels: Sequence[str] | None = None,
        *,
        tables: Sequence[Boxes] | None = None,
        graph: Any = None,
        keys: Sequence[Sequence[Hashable]] = (),
    ) -> None:
        self._layouts = tuple(layouts)
        self._given = None if labels is None else tuple(labels)
        self._tables = None if tables is None else tuple(tables)
        self._graph = graph
        self._keys = tuple(tuple(each) for each in keys)

    # --- As a dask collection ---------------------------------------------------------------------

    def __dask_graph__(self) -> Any:
        return self._graph

    def __dask_keys__(self) -> list[list[Hashable]]:
        return [list(each) for each in self._keys]

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(key[0]) for each in self._keys for key in each))  # type: ignore[index]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        if self._tables is None:
            return (type(self).__name__, self._layouts, self._given, self._keys)
        columns = [
            [getattr(table, field.name) for field in fields(table)] for table in self._tables
        ]
        return (type(self).__name__, self._layouts, self._given, columns)

    __dask_optimize__ = staticmethod(optimize)
    __dask_scheduler__ = staticmethod(threaded_get)

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _computed, (self._layouts, self._given)

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuilt, (self._layouts, self._given, self._keys)

    # --- As a sequence ----------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[Boxes, ...]:
        """The boxes of each array, computed now if need be."""
        return self._tables if self._tables is not None else self.computed().tables

    def computed(self) -> Boxplot:
        """The same, with its boxes."""
        if self._tables is not None:
            return self
        found: Boxplot = self.compute()  # type: ignore[no-untyped-call]
        return found

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes, computed now if need be; along an axis in C order."""
        return tuple(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the boxes: that of the array without the reduced axes; of several arrays, one axis."""
        if len(self._layouts) > 1:
            return (len(self),)
        shape = self._layouts[0].shape if self._tables is None else self._tables[0].n.shape
        return (len(self),) if shape == () else tuple(map(int, shape))

    @property
    def labels(self) -> tuple[str | None, ...]:
        """Of each box."""
        found = self.computed()
        return tuple(found._label(i, box) for i, box in enumerate(found._places()))

    def __len__(self) -> int:
        if self._tables is not None:
            return sum(table.n.size for table in self._tables)
        size = sum(layout.size for layout in self._layouts)
        if math.isnan(size):
            raise ValueError("how many boxes there are is not known before they are computed")
        return int(size)

    def __iter__(self) -> Iterator[Box]:
        found = self.computed()
        for i, (which, place) in enumerate(found._places()):
            yield found.tables[which].box(place, found._label(i, (which, place)))

    def __getitem__(self, which: int | str | tuple[int, ...]) -> Box:
        found = self.computed()
        if isinstance(which, str):
            if which not in found.labels:
                raise KeyError(which)
            which = found.labels.index(which)
        elif isinstance(which, tuple):
            which = int(np.ravel_multi_index(which, found.shape))
        i = range(len(found))[which]
        first = 0
        for number, table in enumerate(found.tables):
            if i < first + table.n.size:
                return table.box(i - first, found._label(i, (number, i - first)))
            first += table.n.size
        raise IndexError(which)

    def _places(self) -> Iterator[tuple[int, int]]:
        """The table of each box, and its number there."""
        for number, table in enumerate(self.tables):
            for i in range(table.n.size):
                yield number, i

    def _label(self, i: int, place: tuple[int, int]) -> str | None:
        if self._given is not None:
            return self._given[i]
        name, shape = self._layouts[place[0]].name, self.tables[place[0]].n.shape
        return name if name is None or shape == () else f"{name}[{_index(place[1], shape)}]"

    def _shown(self, i: int, label: str | None) -> str:
        if label is not None:
            return label
        return _index(i, self.shape)

    # --- To draw ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """An array for each statistic, of the shape of the boxes; labels and fliers as objects.

        Ends of whiskers of 64-bit integers are exact in `Box`, and here float64 where quartiles are
        among them.
        """
        found = self.computed()
        labels = np.empty(len(found), object)
        labels[:] = found.labels
        columns = [table.columns() for table in found.tables]
        if len(columns) > 1:
            columns = [
                {
                    name: np.concatenate([c[name].reshape(-1) for c in columns])
                    for name in columns[0]
                }
            ]
        every = {"label": labels} | columns[0]
        return {name: column.reshape(found.shape) for name, column in every.items()}

    def to_bxp(self) -> list[dict[str, Any]]:
        """What `matplotlib.axes.Axes.bxp` draws: a dict for each box, as
        `matplotlib.cbook.boxplot_stats` gives, with the fliers that were kept."""
        names = ("mean", "iqr", "cilo", "cihi", "whislo", "whishi", "fliers", "q1", "med", "q3")
        drawn = []
        for box in self:
            stats = {name: getattr(box, name) for name in names}
            drawn.append(stats if box.label is None else {"label": box.label, **stats})
        return drawn

    def to_plotly(self) -> dict[str, Any]:
        """Keyword arguments for `plotly.graph_objects.Box`: a list for each statistic.

        Plotly draws these quartiles as they are; ``quartilemethod`` says which of its own methods
        they are by, where it has one.
        """
        found = self.computed()
        boxes = found.boxes
        method = PLOTLY_METHODS.get(self._layouts[0].method)
        return ({} if method is None else {"quartilemethod": method}) | {
            "q1": [box.q1 for box in boxes],
            "median": [box.med for box in boxes],
            "q3": [box.q3 for box in boxes],
            "lowerfence": [box.whislo for box in boxes],
            "upperfence": [box.whishi for box in boxes],
            "mean": [box.mean for box in boxes],
            "sd": [box.std for box in boxes],
            "notchspan": [box.cihi - box.med for box in boxes],
            "x": [found._shown(i, box.label) for i, box in enumerate(boxes)],
        }

    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the boxes with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            A new figure's by default.
        **kwargs
            For `matplotlib.axes.Axes.bxp`.

        Returns
        -------
        matplotlib.axes.Axes
            Where fliers were left out, their number is written beyond those drawn.

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        ax = axes(ax)
        found = self.computed()
        drawn = ax.bxp(found.to_bxp(), **kwargs)
        if kwargs.get("showfliers", True):
            for artist, box in zip(drawn["medians"], found, strict=True):
                _tell_left_out(ax, artist, box)
        return ax

    # --- To read ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self._tables is None:
            return f"<Boxplot {self._outline()}, not computed>"
        rows = self._rows()
        lines = ["  ".join(row) for row in _aligned([row for row in rows if row])]
        if None in rows:
            lines.insert(rows.index(None), f"... ({len(self):,} boxes)")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self._tables is None:
            return f"<code>{escape(repr(self))}</code>"
        rows = self._rows()
        names = rows[0] or []
        cells = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in names)}</tr>"]
        for row in rows[1:]:
            if row is None:
                cells.append(f"<tr><td colspan={len(names)}>... ({len(self):,} boxes)</td></tr>")
            else:
                cells.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
        return f"<table>{''.join(cells)}</table>"

    def _outline(self) -> str:
        """Of which arrays, and how many boxes, as far as that is known."""
        if self._given is not None:
            return f"of {', '.join(self._given)}"
        parts = []
        for i, layout in enumerate(self._layouts):
            name = str(i) if layout.name is None else layout.name
            sizes = ["unknown" if math.isnan(size) else str(int(size)) for size in layout.shape]
            parts.append(f"{name} ({' x '.join(sizes)} boxes)" if sizes else name)
        return f"of {', '.join(parts)}"

    def _rows(self) -> list[list[str] | None]:
        """A row of names, and one for each box; None for those that are left out."""
        names = ["n", "n_nan", "min", "whislo", "q1", "med", "q3", "whishi", "max"]
        names += ["mean", "std", "n_low", "n_high"]
        rows: list[list[str] | None] = [["", *names]]
        size = len(self)
        for i in range(size):
            if size > SHOWN and SHOWN_ENDS <= i < size - SHOWN_ENDS:
                if i == SHOWN_ENDS:
                    rows.append(None)
                continue
            box = self[i]
            cells = [getattr(box, name) for name in names]
            shown = (f"{cell:,}" if isinstance(cell, int) else f"{cell:.6g}" for cell in cells)
            rows.append([self._shown(i, box.label), *shown])
        return rows


def _tell_left_out(ax: Any, median: Any, box: Box) -> None:
    """Write how many fliers there are, where not all are drawn."""
    kept_low = int((box.fliers < box.whislo).sum())
    sides = (
        (kept_low, box.n_low, box.min, -6),
        (len(box.fliers) - kept_low, box.n_high, box.max, 6),
    )
    is_upright = len(set(median.get_ydata())) == 1  # the line of the median lies across its box
    middle = float(np.mean(median.get_xdata() if is_upright else median.get_ydata()))
    for kept, counted, end, away in sides:
        if counted > kept:
            place, offset = (middle, float(end)), (0, away)
            across, along = ("center", "bottom" if away > 0 else "top")
            if not is_upright:
                place, offset = place[::-1], offset[::-1]
                across, along = ("left" if away > 0 else "right", "center")
            ax.annotate(
                f"{counted:,} fliers",
                place,
                xytext=offset,
                textcoords="offset points",
                ha=across,
                va=along,
                fontsize="small",
            )


def _index(i: int, shape: tuple[int, ...]) -> str:
    """Of a box, as it is written in brackets."""
    return ", ".join(map(str, np.unravel_index(i, shape)))


def _computed(
    tables: Sequence[Sequence[Boxes]], layouts: Sequence[Layout], labels: Sequence[str] | None
) -> Boxplot:
    found = [
        Boxes.assembled(each, layout.grid) for each, layout in zip(tables, layouts, strict=True)
    ]
    return with_tables(found, layouts, labels)


def with_tables(
    tables: Sequence[Boxes], layouts: Sequence[Layout], labels: Sequence[str] | None
) -> Boxplot:
    """The computed collection."""
    boxplot = Boxplot(layouts, labels, tables=tables)
    check_labels(labels, len(boxplot))
    return boxplot


def check_labels(labels: Sequence[str] | None, n_boxes: int) -> None:
    if labels is not None and len(labels) != n_boxes:
        raise ValueError(f"{len(labels)} labels for {n_boxes} boxes")


def _rebuilt(
    graph: Any,
    layouts: Sequence[Layout],
    labels: Sequence[str] | None,
    keys: Sequence[Sequence[Any]],
    rename: Mapping[str, str] | None = None,
) -> Boxplot:
    names = rename or {}
    renamed = [[(names.get(key[0], key[0]), *key[1:]) for key in each] for each in keys]
    return Boxplot(layouts, labels, graph=graph, keys=renamed)


def _aligned(rows: list[list[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
