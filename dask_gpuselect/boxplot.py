"""`describe_boxplot`: Tukey's summary of data that fits nowhere, and what draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any

import dask.array as da
import numpy as np
from dask.array.optimization import optimize
from dask.base import DaskMethodsMixin, is_dask_collection
from dask.threaded import get as threaded_get
from numpy.typing import NDArray

from dask_gpuselect import passes
from dask_gpuselect.boxes import (
    NOTCH,
    BoxBrackets,
    Found,
    Rule,
    bracket_fences,
    bracket_from_cuts,
    bracket_from_sample,
    look,
    look_again,
)
from dask_gpuselect.cuts import Brackets, Cuts, Tally
from dask_gpuselect.interpolation import result_dtype
from dask_gpuselect.kernels import as_dtype, numpy_dtype
from dask_gpuselect.moments import Moments
from dask_gpuselect.quantiles import as_array
from dask_gpuselect.ranks import check_method

__all__ = ["Box", "Boxplot", "describe_boxplot"]


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


@dataclass(frozen=True)
class BoxQuestion:
    """See `passes.Follower`."""

    rule: Rule
    omits_nan: bool
    source_dtype: np.dtype[Any]

    def guess(self, ordered: NDArray[Any], rate: float) -> BoxBrackets:
        return bracket_from_sample(ordered, rate, self.rule)

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
        self, found: Found | Tally, more: Brackets | None, tally: Tally | None, sums: Moments
    ) -> Box:
        if isinstance(found, Tally):
            return self._without_elements(0, found.n_missing)
        if found.n_missing and not self.omits_nan:
            return self._without_elements(found.n, found.n_missing)
        if more is not None and tally is not None:
            found = look_again(found, more, tally)
        assert found.below is not None
        assert found.above is not None
        q1, med, q3 = (float(value) for value in found.q[:3])
        whislo, whishi = found.ends()
        mean, std = sums.mean_and_std()
        with np.errstate(invalid="ignore", over="ignore"):
            iqr = float(np.float64(q3) - q1)
            notch = NOTCH * iqr / math.sqrt(found.n)
        kept = self.rule.max_fliers
        fliers = np.concatenate(
            [found.low[: min(found.below, kept)], found.high[: min(found.above, kept)]]
        )
        least, most = as_dtype(np.array([found.low[0], found.high[0]]), self.source_dtype).tolist()
        return Box(
            label=None,
            n=found.n,
            n_nan=found.n_missing,
            min=least,
            q1=q1,
            med=med,
            q3=q3,
            max=most,
            mean=mean,
            std=std,
            iqr=iqr,
            whislo=whislo,
            whishi=whishi,
            cilo=med - notch,
            cihi=med + notch,
            n_low=found.below,
            n_high=found.above,
            fliers=as_dtype(fliers, self.source_dtype),
        )

    def _without_elements(self, n: int, n_nan: int) -> Box:
        none = np.empty(0, self.source_dtype)
        unknown: dict[str, Any] = {field.name: math.nan for field in fields(Box)}
        known = {"label": None, "n": n, "n_nan": n_nan, "n_low": 0, "n_high": 0, "fliers": none}
        return Box(**{**unknown, **known})


class Boxplot(DaskMethodsMixin):
    """Boxes: a dask collection until they are computed, then a sequence of `Box`.

    Methods that need the statistics compute them if they are not there yet. Not to be made by
    hand: see `describe_boxplot`.
    """

    def __init__(
        self,
        labels: Sequence[str | None],
        *,
        boxes: Sequence[Box] | None = None,
        graph: Any = None,
        keys: Sequence[Hashable] = (),
    ) -> None:
        self._labels = tuple(labels)
        self._boxes = None if boxes is None else tuple(boxes)
        self._graph = graph
        self._keys = tuple(keys)

    # --- As a dask collection ---------------------------------------------------------------------

    def __dask_graph__(self) -> Any:
        return self._graph

    def __dask_keys__(self) -> list[Hashable]:
        return list(self._keys)

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(key[0]) for key in self._keys))  # type: ignore[index]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        if self._boxes is None:
            return (type(self).__name__, self._labels, self._keys)
        return (type(self).__name__, [tuple(box.to_dict().values()) for box in self._boxes])

    __dask_optimize__ = staticmethod(optimize)
    __dask_scheduler__ = staticmethod(threaded_get)

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _labelled, (self._labels,)

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuilt, (self._labels, self._keys)

    # --- As a sequence ----------------------------------------------------------------------------

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes, computed now if need be."""
        if self._boxes is not None:
            return self._boxes
        computed: Boxplot = self.compute()  # type: ignore[no-untyped-call]
        return computed.boxes

    def __len__(self) -> int:
        return len(self._labels)

    def __iter__(self) -> Iterator[Box]:
        return iter(self.boxes)

    def __getitem__(self, which: int | str) -> Box:
        if isinstance(which, str):
            if which not in self._labels:
                raise KeyError(which)
            which = self._labels.index(which)
        return self.boxes[which]

    # --- To draw ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """A column for each statistic, with a row for each box; fliers as objects."""
        columns: dict[str, NDArray[Any]] = {}
        for field in fields(Box):
            values = [getattr(box, field.name) for box in self.boxes]
            if field.name in ("label", "fliers"):
                column = np.empty(len(values), object)
                column[:] = values
            else:
                column = np.array(values)
            columns[field.name] = column
        return columns

    def to_bxp(self) -> list[dict[str, Any]]:
        """What `matplotlib.axes.Axes.bxp` draws: a dict for each box, as
        `matplotlib.cbook.boxplot_stats` gives, with the fliers that were kept."""
        names = ("mean", "iqr", "cilo", "cihi", "whislo", "whishi", "fliers", "q1", "med", "q3")
        drawn = []
        for box in self.boxes:
            stats = {name: getattr(box, name) for name in names}
            drawn.append(stats if box.label is None else {"label": box.label, **stats})
        return drawn

    def to_plotly(self) -> dict[str, Any]:
        """Keyword arguments for `plotly.graph_objects.Box`: a list for each statistic."""
        boxes = self.boxes
        return {
            "q1": [box.q1 for box in boxes],
            "median": [box.med for box in boxes],
            "q3": [box.q3 for box in boxes],
            "lowerfence": [box.whislo for box in boxes],
            "upperfence": [box.whishi for box in boxes],
            "mean": [box.mean for box in boxes],
            "sd": [box.std for box in boxes],
            "notchspan": [box.cihi - box.med for box in boxes],
            "x": [str(i) if box.label is None else box.label for i, box in enumerate(boxes)],
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
        """
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot needs matplotlib: pip install matplotlib") from error
        if ax is None:
            _, ax = pyplot.subplots()
        drawn = ax.bxp(self.to_bxp(), **kwargs)
        for artist, box in zip(drawn["medians"], self.boxes, strict=True):
            middle = float(np.mean(artist.get_xdata()))
            kept_low = int((box.fliers < box.whislo).sum())
            for kept, counted, above in (
                (kept_low, box.n_low, False),
                (len(box.fliers) - kept_low, box.n_high, True),
            ):
                if counted > kept:
                    ax.annotate(
                        f"{counted:,} fliers",
                        (middle, float(box.max if above else box.min)),
                        xytext=(0, 6 if above else -6),
                        textcoords="offset points",
                        ha="center",
                        va="bottom" if above else "top",
                        fontsize="small",
                    )
        return ax

    # --- To read ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self._boxes is None:
            labels = ", ".join(
                str(i) if label is None else label for i, label in enumerate(self._labels)
            )
            return f"<Boxplot of {len(self)}, not computed: {labels}>"
        return "\n".join("  ".join(row) for row in _aligned(self._rows()))

    def _repr_html_(self) -> str:
        if self._boxes is None:
            return f"<code>{escape(repr(self))}</code>"
        head, *rows = self._rows()
        cells = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"]
        cells += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        return f"<table>{''.join(cells)}</table>"

    def _rows(self) -> list[list[str]]:
        """A row of names, and one for each box."""
        names = ["n", "n_nan", "min", "whislo", "q1", "med", "q3", "whishi", "max"]
        names += ["mean", "std", "n_low", "n_high"]
        rows = [["", *names]]
        for i, box in enumerate(self.boxes):
            cells = [getattr(box, name) for name in names]
            rows.append(
                [
                    str(i) if box.label is None else box.label,
                    *(f"{cell:,}" if isinstance(cell, int) else f"{cell:.6g}" for cell in cells),
                ]
            )
        return rows


def _labelled(boxes: Sequence[Box], labels: Sequence[str | None]) -> Boxplot:
    named = [replace(box, label=label) for box, label in zip(boxes, labels, strict=True)]
    return Boxplot(labels, boxes=named)


def _rebuilt(
    graph: Any,
    labels: Sequence[str | None],
    keys: Sequence[Any],
    rename: Mapping[str, str] | None = None,
) -> Boxplot:
    names = rename or {}
    keys = [(names.get(key[0], key[0]), *key[1:]) for key in keys]
    return Boxplot(labels, graph=graph, keys=keys)


def _aligned(rows: list[list[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def describe_boxplot(
    a: Any,
    axis: None = None,
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
    axis : None
        All elements of an array are one box.
    whis : float or (float, float), default 1.5
        The whiskers end at the last elements within `whis` interquartile ranges from the box, or
        at the elements within these percentiles.
    nan_policy : {"omit", "propagate"}
        NaN is left out and counted, **or**, with ``"propagate"``, makes every statistic of its box
        NaN, as in matplotlib.
    autorange : bool
        Whether the whiskers reach the extremes where the interquartile range is 0.
    max_fliers : int
        How many fliers of each side are kept, the most extreme ones. All are counted.
    labels : sequence of str, optional
        A label for each box.
    method : str
        How quartiles are interpolated: see `quantile`.

    Returns
    -------
    Boxplot
        For a dask array nothing is computed yet.

    Raises
    ------
    TypeError
        For arrays that are not of real numbers, dates among them.
    ValueError
        For `whis`, `nan_policy`, `max_fliers`, `labels` or `method` that make no sense.
    NotImplementedError
        For an `axis`.
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
    those arrays alone where more elements lie about a fence than 4 for each pivot. Data in memory
    is read once for the box, guessed by a sample and proven by the counts, and once for its sums.

    Memory: as for `quantile`, and `max_fliers` elements and those of a cell on each side.

    Semantics are those of ``matplotlib.cbook.boxplot_stats`` on float64, with the mean and standard
    deviation rounded once, whatever the chunks.

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
    if axis is not None:
        raise NotImplementedError("describe_boxplot along an axis is not implemented yet")
    rule = _rule(whis, autorange, max_fliers, method)
    if nan_policy not in ("omit", "propagate"):
        raise ValueError(f'nan_policy must be "omit" or "propagate", not {nan_policy!r}')
    arrays, names = _arrays(a, labels)
    for array in arrays:
        if numpy_dtype(array).kind in "bmM":
            raise TypeError(f"a box plot needs numbers, not {numpy_dtype(array)}")
        result_dtype(numpy_dtype(array), check_method(method), weak_q=False)
    questions = [BoxQuestion(rule, nan_policy == "omit", numpy_dtype(array)) for array in arrays]
    if not any(isinstance(array, da.Array) for array in arrays):
        boxes = [
            passes.ask_more_now(array, question.source_dtype, question)
            for array, question in zip(arrays, questions, strict=True)
        ]
        return _labelled(boxes, names)
    lazy = [array if isinstance(array, da.Array) else da.from_array(array) for array in arrays]
    graph, keys = passes.ask_more(lazy, questions, "boxplot")
    return Boxplot(names, graph=graph, keys=keys)


def _rule(whis: Any, autorange: bool, max_fliers: int, method: str) -> Rule:
    check_method(method)
    if max_fliers < 0:
        raise ValueError(f"max_fliers must not be negative, and {max_fliers} is")
    given = np.asarray(whis, np.float64)
    if given.shape == (2,):
        if not ((given >= 0) & (given <= 100)).all() or given[0] > given[1]:
            raise ValueError(f"whis must be two ascending percentiles, not {whis}")
        low, high = (given / 100).tolist()
        return Rule((low, high), autorange, max_fliers, method)
    if given.shape != () or not given >= 0:
        raise ValueError(f"whis must be a number that is not negative, or two, not {whis}")
    return Rule(float(given), autorange, max_fliers, method)


def _arrays(a: Any, labels: Sequence[str] | None) -> tuple[list[Any], list[str | None]]:
    """The arrays, and a label or None for each."""
    names: list[str | None]
    if isinstance(a, Mapping):
        names, arrays = [str(key) for key in a], list(a.values())
    elif isinstance(a, list | tuple) and any(
        np.ndim(item) or is_dask_collection(item) for item in a
    ):
        names, arrays = [None] * len(a), list(a)
    else:
        names, arrays = [None], [a]
    if labels is not None:
        if len(labels) != len(arrays):
            raise ValueError(f"{len(labels)} labels for {len(arrays)} boxes")
        names = list(labels)
    return [as_array(array) for array in arrays], names
