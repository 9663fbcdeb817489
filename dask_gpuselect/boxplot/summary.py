"""`Boxplot`, the answer of `describe_boxplot`: computed, read and drawn."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.boxplot.tables import BOX_COLUMNS, Box, Boxes, column_of
from dask_gpuselect.engine.collection import LazyCollection, tasks_of
from dask_gpuselect.engine.grid import joined
from dask_gpuselect.engine.source import DaskArray, merged
from dask_gpuselect.optional import Advising, axes, needs

SHOWN = 40  # boxes that are printed; if there are more, the first and last `SHOWN_ENDS`
SHOWN_ENDS = 5
# Plotly's names of statistics, and ours.
PLOTLY = {"q1": "q1", "median": "med", "q3": "q3", "lowerfence": "whislo", "upperfence": "whishi"}
PLOTLY |= {"mean": "mean", "sd": "std"}
# Plotly's names of methods. It takes the medians of two halves, which for an odd number of elements
# both have the median (inclusive) or not (exclusive). For an even number it interpolates otherwise.
PLOTLY_METHODS = {"hazen": "linear", "linear": "inclusive", "weibull": "exclusive"}


@dataclass(frozen=True)
class BoxSource:
    """The array that some boxes describe.

    Parameters
    ----------
    name : str or None
        Name of the array.
    method : str
        How quartiles are interpolated.
    shape : tuple of int or NaN
        Shape of its boxes: that of the array without the reduced axes.
    grid : tuple of int
        Number of tables along each axis.
    groups : tuple of str, optional
        Names of the groups that the boxes describe.
    group_axis : int
        The axis of the boxes along which the groups are.
    """

    name: str | None
    method: str
    shape: tuple[float, ...] = ()
    grid: tuple[int, ...] = ()
    groups: tuple[str, ...] | None = None
    group_axis: int = 0

    @property
    def size(self) -> float:
        return math.prod(self.shape)

    def label(self, place: int, shape: tuple[int, ...]) -> str | None:
        """Return the label of a box, by its number among boxes of some shape."""
        index = list(map(int, np.unravel_index(place, shape)))
        name = self.name if self.groups is None else self.groups[index.pop(self.group_axis)]
        return name if name is None or not index else f"{name}[{', '.join(map(str, index))}]"


class Boxplot(Advising, LazyCollection):
    """The boxes of one or several arrays: lazy until computed, then a sequence of `Box`.

    `describe_boxplot` makes it. Before ``compute()`` it is a dask collection. Methods that need the
    statistics compute them first if necessary.

    See Also
    --------
    describe_boxplot : Makes it.
    Box : One of its boxes.
    """

    if TYPE_CHECKING:  # dask's own is not annotated

        def compute(self, **kwargs: Any) -> Boxplot: ...

    def __init__(
        self,
        graph: Any,
        keys: list[Any],
        sources: tuple[BoxSource, ...],
        labels: tuple[str, ...] | None,
        tables: tuple[Boxes, ...] | None = None,
    ) -> None:
        super().__init__(graph, keys, sources, labels)
        self._sources, self._given, self._tables = sources, labels, tables

    @classmethod
    def of(
        cls, answers: Sequence[Any], sources: Sequence[BoxSource], labels: Sequence[str] | None
    ) -> Boxplot:
        """Make the boxes of some arrays, of dask arrays of tables, or of one table for each."""
        given = None if labels is None else tuple(labels)
        if not any(isinstance(answer, DaskArray) for answer in answers):
            boxplot = cls(None, [], tuple(sources), given, tuple(answers))
        else:
            gridded = zip(sources, answers, strict=True)
            sources = [replace(source, grid=answer.numblocks) for source, answer in gridded]
            boxplot = cls(*tasks_of(answers), tuple(sources), given)
        if not any(math.isnan(size) for source in sources for size in source.shape):
            boxplot.check_labels()
        return boxplot

    def of_groups(self, names: Any, axis: int) -> Boxplot:
        """Return the boxes of one array with the names of its groups.

        Parameters
        ----------
        names : sequence, or dask array
            The names of the groups.
        axis : int
            The axis along which the groups are.
        """
        (source,) = self._sources
        source = replace(source, group_axis=axis)
        if isinstance(names, DaskArray):
            graph, keys = merged(names, graph=self._graph), tasks_of([names])[1]
            return Boxplot(graph, [*self._keys, *keys], (source,), self._given)
        # `str` takes 300 ns for an integer of NumPy, and 100 for one of Python.
        are_integers = isinstance(names, np.ndarray) and names.dtype.kind in "iu"
        given = names.tolist() if are_integers else names
        source = replace(source, groups=tuple(map(str, given)))
        return Boxplot(self._graph, self._keys, (source,), self._given, self._tables)

    def check_labels(self) -> None:
        """Raise if labels were given and there is not one for each box."""
        if self._given is not None and len(self._given) != len(self):
            raise ValueError(
                f"labels must have one label for each box: pass {len(self)}, not {len(self._given)}"
            )

    def _advice(self, name: str) -> str:
        name = {"median": "med"}.get(name, name)
        if name not in BOX_COLUMNS:
            return ""
        return (
            f"it is a sequence of boxes, type boxplot[0].{name} for the first of them, or "
            f'boxplot.to_dict()["{name}"] for all'
        )

    # --- As a dask collection ---------------------------------------------------------------------

    @staticmethod
    def _finish(
        results: list[Any], sources: tuple[BoxSource, ...], labels: tuple[str, ...] | None
    ) -> Boxplot:
        results, names = results[: len(sources)], results[len(sources) :]
        tables = [
            joined(each, source.grid, Boxes.concatenated)
            for each, source in zip(results, sources, strict=True)
        ]
        if names:  # of groups: those of one array
            groups = tuple(str(name) for part in names[0] for name in part)
            sources = (replace(sources[0], groups=groups),)
        boxplot = Boxplot(None, [], sources, labels, tuple(tables))
        boxplot.check_labels()
        return boxplot

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        tables = self._tables or ()
        columns = [[getattr(table, field.name) for field in fields(table)] for table in tables]
        return (*super().__dask_tokenize__(), columns)

    # --- As a sequence ----------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[Boxes, ...]:
        """The boxes of each array, computed first if necessary."""
        return self._tables if self._tables is not None else self.computed().tables

    def computed(self) -> Boxplot:
        """Return this summary with its boxes, computed first if necessary."""
        return self.compute() if self._tables is None else self

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes, computed first if necessary; along an axis in C order."""
        return tuple(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the boxes: of one array, without its reduced axes; of several, one axis."""
        n = len(self)  # an error if it is unknown
        shape = self._sources[0].shape if self._tables is None else self._tables[0].shape
        return (n,) if len(self._sources) > 1 or shape == () else tuple(map(int, shape))

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The label of each box."""
        computed = self.computed()
        return tuple(map(computed._label, range(len(computed))))

    def __len__(self) -> int:
        if self._tables is not None:
            return sum(table.size for table in self._tables)
        size = sum(source.size for source in self._sources)
        if math.isnan(size):
            raise TypeError(  # the class of errors that tuple() and list() ignore
                "the number of boxes is unknown until they are computed: type boxplot.compute()"
            )
        return int(size)

    def __iter__(self) -> Iterator[Box]:
        computed = self.computed()
        return (computed[i] for i in range(len(computed)))

    @overload
    def __getitem__(self, which: int | str | tuple[int, ...]) -> Box: ...

    @overload
    def __getitem__(self, which: slice) -> tuple[Box, ...]: ...

    def __getitem__(self, which: int | str | tuple[int, ...] | slice) -> Box | tuple[Box, ...]:
        computed = self.computed()
        if isinstance(which, slice):
            return tuple(computed[i] for i in range(len(computed))[which])
        if isinstance(which, str):
            if which not in computed.labels:
                raise KeyError(
                    f"no box has the label {which!r}: boxplot.labels lists the labels, and "
                    "boxplot[0] is the first box"
                )
            which = computed.labels.index(which)
        elif isinstance(which, tuple):
            try:
                which = int(np.ravel_multi_index(which, computed.shape))
            except ValueError:
                raise IndexError(
                    f"box {which} does not exist: the shape of the boxes is {computed.shape}"
                ) from None
        i, n = operator.index(which), len(computed)
        if not -n <= i < n:
            raise IndexError(f"box {i} does not exist: the number of boxes is {n}")
        i %= n
        table, place = computed._place(i)
        return computed.tables[table].box(place, computed._label(i))

    def _place(self, i: int) -> tuple[int, int]:
        """Return the number of the table of a box, and the number of the box in that table."""
        table = int(self._ends.searchsorted(i, side="right"))
        return table, i - int(self._ends[table]) + self.tables[table].size

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """The number of the first box behind each table."""
        return np.cumsum([table.size for table in self.tables])

    def _label(self, i: int) -> str | None:
        """Return the label of a box, or None."""
        if self._given is not None:
            return self._given[i]
        table, place = self._place(i)
        return self._sources[table].label(place, self.tables[table].shape)

    def _shown(self, i: int, label: str | None) -> str:
        """Return the label of a box, or its index."""
        if label is not None:
            return label
        return ", ".join(map(str, np.unravel_index(i, self.shape)))

    # --- To draw ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Return a dict with an array for each statistic, of the shape of the boxes.

        Labels and fliers are arrays of objects.

        The ends of whiskers of 64-bit integers are exact in `Box`. Here they are float64 if a
        whisker ends at a quartile. A column is of objects if it has integers that float64 would
        round, and NaN or floats of other boxes.
        """
        computed = self.computed()
        labels = np.empty(len(computed), object)
        labels[:] = computed.labels
        tables = [table.columns() for table in computed.tables]
        every = {"label": labels}
        for name in tables[0]:
            every[name] = column_of([table[name].reshape(-1) for table in tables])
        return {name: column.reshape(computed.shape) for name, column in every.items()}

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with a row for each box, and a column for each statistic.

        Its index has the labels of the boxes; without labels their numbers, in C order. Columns are
        those of `to_dict`.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        with needs("pandas", "to_dataframe", but="; to_dict() needs nothing"):
            import pandas
        columns = {name: each.reshape(-1) for name, each in self.to_dict().items()}
        labels = columns.pop("label")
        index = None if all(label is None for label in labels) else labels
        return pandas.DataFrame(columns, index=index)

    def to_bxp(self) -> list[dict[str, Any]]:
        """Return the list that `matplotlib.axes.Axes.bxp` draws: a dict for each box.

        The dicts are those of `matplotlib.cbook.boxplot_stats`, with the most extreme fliers,
        at most `max_fliers` of each side.
        """
        names = ("mean", "iqr", "cilo", "cihi", "whislo", "whishi", "fliers", "q1", "med", "q3")
        drawn = []
        for box in self:
            stats = {name: getattr(box, name) for name in names}
            drawn.append(stats if box.label is None else {"label": box.label, **stats})
        return drawn

    def to_plotly(self) -> dict[str, Any]:
        """Return keyword arguments for `plotly.graph_objects.Box`: a list for each statistic.

        Plotly draws these quartiles as they are. ``quartilemethod`` names the method of Plotly that
        gives these quartiles, if there is one.
        """
        computed = self.computed()
        boxes = computed.boxes
        method = PLOTLY_METHODS.get(self._sources[0].method)
        return ({} if method is None else {"quartilemethod": method}) | {
            **{name: [getattr(box, own) for box in boxes] for name, own in PLOTLY.items()},
            "notchspan": [box.cihi - box.med for box in boxes],
            "x": [computed._shown(i, box.label) for i, box in enumerate(boxes)],
        }

    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the boxes with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on; those of a new figure by default.
        **kwargs
            Arguments of `matplotlib.axes.Axes.bxp`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes. If fliers were left out, their number is written beyond those drawn.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes(ax)
        computed = self.computed()
        if not len(computed):  # which matplotlib cannot draw
            return ax
        drawn = ax.bxp(computed.to_bxp(), **kwargs)
        if kwargs.get("showfliers", True):
            for artist, box in zip(drawn["medians"], computed, strict=True):
                _label_left_out(ax, artist, box)
        return ax

    # --- To read ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self._tables is None:
            return f"<Boxplot {self._outline()}, not computed: type boxplot.compute()>"
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
        """Return the names of the arrays and the numbers of boxes, as far as they are known."""
        if self._given is not None:
            return f"of {', '.join(self._given)}"
        if len(self._sources) == 1 and self._sources[0].name is None:
            shape = self._sources[0].shape
            if any(map(math.isnan, shape)):
                return "of an unknown number of boxes"
            return (
                f"of {' x '.join(str(int(size)) for size in shape)} boxes" if shape else "of 1 box"
            )
        parts = []
        for i, source in enumerate(self._sources):
            name = str(i) if source.name is None else source.name
            sizes = ["unknown" if math.isnan(size) else str(int(size)) for size in source.shape]
            parts.append(f"{name} ({' x '.join(sizes)} boxes)" if sizes else name)
        return f"of {', '.join(parts)}"

    def _rows(self) -> list[list[str] | None]:
        """Return a row of names, and a row for each box; None for boxes that are left out."""
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


def _label_left_out(ax: Any, median: Any, box: Box) -> None:
    """Write the number or weight of the fliers of a box if not all are drawn."""
    is_low = box.fliers < box.whislo
    number = np.ones(len(is_low)) if box.flier_weights is None else box.flier_weights
    template = "{:,} fliers" if box.flier_weights is None else "fliers of weight {:.6g}"
    sides = (
        (float(number[is_low].sum()), box.n_low, box.min, -6),
        (float(number[~is_low].sum()), box.n_high, box.max, 6),
    )
    is_upright = len(set(median.get_ydata())) == 1  # the line of the median lies across its box
    middle = float(np.mean(median.get_xdata() if is_upright else median.get_ydata()))
    for shown, counted, end, away in sides:
        if counted > shown and not math.isclose(counted, shown):
            place, offset = (middle, float(end)), (0, away)
            across, along = ("center", "bottom" if away > 0 else "top")
            if not is_upright:
                place, offset = place[::-1], offset[::-1]
                across, along = ("left" if away > 0 else "right", "center")
            ax.annotate(
                template.format(counted),
                place,
                xytext=offset,
                textcoords="offset points",
                ha=across,
                va=along,
                fontsize="small",
            )


def _aligned(rows: list[list[str]]) -> list[list[str]]:
    """Pad the cells of each column to one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
