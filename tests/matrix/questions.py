"""The questions of the matrix: a row for each, with its definition and the arguments it is asked
with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import is_dask_collection

import dask_gpuselect
from dask_gpuselect import distribution, robust, windows
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.strategies import STRATEGIES
from tests import oracle
from tests.backends import kind_of
from tests.matrix import definitions
from tests.matrix.axes import MEASURES, MISSING, SHAPES, SLOTS, Random

WEIGHTED_METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")

ALL = ("all", *SLOTS)  # most code is about all elements
GROUPS = tuple(name for name, slots in SLOTS.items() if slots.groups)
LANES = tuple(name for name in ALL if name not in GROUPS)
MOVING = ("tens", "short", "map", "map", "wide map", "stack", "stack", "one element", "no element")
ONE_AXIS = ("long", "long", "tens", "short")


@dataclass(frozen=True)
class Question:
    """A public function, and what is true of its answers.

    Parameters
    ----------
    name : str
        Of the function; a method of the same name answers for groups.
    function : callable or None
        None if there are only answers for groups.
    definition : callable
        See `definitions`.
    draw : callable
        ``(random, dtype kind, has weights) -> arguments``.
    kinds : str
        Of dtypes, as `numpy.dtype.kind`.
    slots, measures, missing, shapes : tuple of str
        Rows of the other tables that it goes with.
    is_about_places : bool
        Whether the answer depends on the order of the elements.
    loads : int
        How often it reads a chunk at most, asked about all elements.
    reads : callable, optional
        ``(bytes of an element, arguments) -> number``: how often it reads every chunk, asked about
        all elements, if nothing is cached and few elements are candidates.
    """

    name: str
    function: Callable[..., Any] | None
    definition: definitions.Definition
    draw: Callable[[Random, str, bool], dict[str, Any]]
    kinds: str = "biufmM"
    slots: tuple[str, ...] = ALL
    measures: tuple[str, ...] = ("count",)
    missing: tuple[str, ...] = MISSING
    shapes: tuple[str, ...] = tuple(SHAPES)
    is_about_places: bool = False
    loads: int = 2
    reads: Callable[[int, Mapping[str, Any]], int] | None = None

    @property
    def is_box(self) -> bool:
        return self.definition is definitions.box

    @property
    def moves(self) -> bool:
        """Whether its windows move over the array, which keeps its shape."""
        return self.definition in definitions.OF_WINDOWS

    @property
    def takes_axis(self) -> bool:
        return self.slots != ("all",)

    @property
    def keeps_dims(self) -> bool:
        some = definitions.quantiles, definitions.mad, definitions.iqr, definitions.trimmed_mean
        return self.function is not None and self.definition in some

    @property
    def module(self) -> str:
        """The module that has the function, in the package."""
        homes = {"robust": robust, "distribution": distribution}
        return next((k for k, home in homes.items() if hasattr(home, self.name)), "dask_gpuselect")


def twice(itemsize: int, arguments: Mapping[str, Any]) -> int:
    """Say how often elements are read of which two neighbours are known; few values are counted."""
    return 1 if itemsize <= 2 else 2


def thrice(itemsize: int, arguments: Mapping[str, Any]) -> int:
    return 1 + twice(itemsize, arguments)


def reads_of_ecdf(itemsize: int, arguments: Mapping[str, Any]) -> int:
    """Say how often elements are read that are counted at some ranks, or at given points."""
    return 1 if np.ndim(arguments["points"]) else twice(itemsize, arguments)


def pick(random: Random, options: Any) -> Any:
    return options[int(random.integers(len(options)))]


def draw_share(random: Random) -> float:
    return float(pick(random, [0.5, 0.25, 0.0, 1.0, 0.1, 0.3, 0.7, 1 - 2.0**-53, random.random()]))


def draw_q(random: Random) -> Any:
    some = [draw_share(random) for _ in range(int(random.integers(1, 6)))]
    return pick(
        random,
        [some[0], some[0], some, np.array(some), [0.25, 0.5, 0.75], np.linspace(0, 1, 11), [some]],
    )


def draw_quantile(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    methods = WEIGHTED_METHODS if weighs else oracle.DISCRETE if kind == "b" else oracle.METHODS
    if kind in "bmM" and weighs:
        methods = WEIGHTED_METHODS[:1]
    method = pick(random, methods)
    if random.random() < 0.5 and not weighs and kind != "b":
        method = "linear"
    return {"q": draw_q(random), "method": method}


def draw_percentile(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    drawn = draw_quantile(random, kind, weighs)
    q = np.asarray(drawn["q"]) * 100
    return drawn | {"q": q.tolist()}


def draw_nothing(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {}


def draw_mad(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {"scale": pick(random, [1.0, 1, "normal", 2])}


def draw_iqr(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    q = pick(random, [(0.25, 0.75), (0.0, 1.0), (0.1, 0.9)])
    method = pick(random, ["linear", "linear", *oracle.METHODS])
    return draw_mad(random, kind, weighs) | {"q": q, "method": method}


def draw_cut(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {"proportiontocut": pick(random, [0, 0.1, 0.2, 0.25, 0.4, 0.49])}


def draw_k(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {"k": pick(random, [0, 1, [0, 2, 1], [3]]), "strategy": draw_strategy(random)}


def draw_strategy(random: Random) -> str | None:
    """A strategy, which answers the same in another way, or none."""
    return pick(random, [None, pick(random, [*STRATEGIES])])


def draw_chunks(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {
        "chunks": pick(random, [None, None, 70, 1000, -1]),
        "spill": pick(random, [None, False, True]),
        "split_every": pick(random, [None, None, 2, 3]),
    }


def draw_bins(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    methods = oracle.DISCRETE if kind == "b" else ("linear", *oracle.METHODS)
    return {"n_bins": pick(random, [1, 2, 3, 10, 40]), "method": pick(random, methods)}


def draw_edges(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    """Edges of any dtype: of small numbers, and where floats get coarse and integers end."""
    dtype = np.dtype(pick(random, ["f8", "f4", "f2", "i8", "u8", "i1", "u4", "?"]))
    near = [0, 0.5, 1, 3, 3, 4.5, 127, 128, -1, 2**24 + 1, 2**53, 2**53 + 1, -(2**63), 2**63, 2**64]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [int(x) for x in near if info.min <= x <= info.max] + [info.max, info.max - 1]
    with np.errstate(over="ignore"):
        edges = np.sort(random.permutation(np.array(near, dtype))[: int(random.integers(6))])
    return {"bins": edges[:: pick(random, [1, -1])], "right": random.random() < 0.5}


def draw_points(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    values = {"b": [1], "f": [0.1, 3.0, -1.0, 1.0, 1]}.get(kind, [3, 0, 100, 3])
    return {"points": pick(random, [2, 3, 9, 101, values])}


def draw_bits(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {"bits": pick(random, [8, 11, 16])}


def sort_by(x: Any, **how: Any) -> Any:
    """Let the places of the elements go along with them."""
    places, kind = np.arange(x.size), kind_of(x)
    lazy = is_dask_collection(x)
    beside = kind.mapped(da.from_array(places, chunks=x.chunks)) if lazy else kind.asarray(places)
    return dask_gpuselect.sort_by(x, beside, **how)[1]


def draw_windows(random: Random) -> dict[str, Any]:
    """Windows along at most three axes: of few elements, or of more than a chunk."""
    closed = pick(random, [None, None, "right", "left", "both", "neither"])
    sizes = pick(random, [[1, 2, 3, 4, 5], [3, 3, 2], [2, 7, 12, 40]])
    window = [max(pick(random, sizes), 2 if closed == "neither" else 1) for _ in range(3)]
    return {
        "window": window,
        "center": random.random() < 0.5,
        "min_periods": pick(random, [None, None, 0, 1, min(window) - (closed == "neither")]),
        "boundary": pick(random, [None, None, "reflect", "mirror", "nearest", "wrap"]),
        "closed": closed,
        "step": pick(random, [1, 1, 2, 3]),
    }


def draw_rolling(*statistics: str) -> Callable[[Random, str, bool], dict[str, Any]]:
    """Draw one of some statistics, that leaves NaN out or not, with its arguments and windows."""
    draws: dict[str, Any] = {"quantile": draw_quantile, "percentile": draw_percentile}
    draws |= {"mad": draw_mad, "iqr": draw_iqr}

    def draw(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
        name = pick(random, statistics)
        if name == "median" and kind in "mM":
            name = "quantile"  # NumPy has no median of dates
        arguments = draws.get(name, draw_nothing)(random, kind, weighs)
        if name == "iqr":
            arguments["q"] = (0.25, 0.75)
        if np.ndim(arguments.get("q", 0)) > 1:
            arguments["q"] = np.ravel(arguments["q"]).tolist()
        prefix = "nan" if name != "count" and random.random() < 0.5 else ""
        return {"statistic": prefix + name} | draw_windows(random) | arguments

    return draw


def rolled(arguments: Mapping[str, Any], along: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    """The arguments of `rolling` and those of its method."""
    names = ("center", "min_periods", "boundary", "closed", "step", "where", "nodata")
    about = {name: arguments[name] for name in names if name in arguments}
    how = {k: v for k, v in arguments.items() if k not in (*names, "statistic", "window")}
    if arguments["statistic"].endswith("iqr"):
        del how["q"]
    return {"window": tuple(arguments["window"][: len(along)]), "axis": along} | about, how


def roll(x: Any, axis: Any, **arguments: Any) -> Any:
    """Ask a statistic of moving windows; axis=None is along all axes."""
    about, how = rolled(arguments, axes_of(axis, x.ndim))
    return getattr(windows.rolling(x, **about), arguments["statistic"])(**how)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that are meant, ascending, none negative."""
    every = tuple(range(ndim))
    return every if axis is None else tuple(sorted({every[i] for i in np.atleast_1d(axis)}))


def draw_filter(name: str) -> Callable[[Random, str, bool], dict[str, Any]]:
    def draw(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
        size = [int(random.integers(1, 6)) for _ in range(3)]
        modes = ["reflect", "mirror", "nearest", "wrap", "constant"]
        arguments = {
            "size": size,
            "marks": pick(random, [None, None, int(random.integers(9))]),
            "mode": pick(random, modes),
            "cval": 2 if kind not in "mM" else np.array(2, f"{kind}8[ns]")[()],
            "origin": [int(random.integers(-(n // 2), (n - 1) // 2 + 1)) for n in size],
            "nan": pick(random, ["propagate", "omit"]),
        }
        if name == "rank_filter":
            arguments["rank"] = pick(random, [0, -1])
        if name == "percentile_filter":
            arguments["percentile"] = pick(random, [0, 8, 50, 62.5, 100, -20])
        return arguments

    return draw


def filter_arguments(arguments: Mapping[str, Any], along: tuple[int, ...]) -> dict[str, Any]:
    """The arguments of a filter of images."""
    sizes = arguments["size"][: len(along)]
    of: dict[str, Any] = {"size": tuple(sizes)}
    if arguments["marks"] is not None:
        of = {"footprint": definitions.footprint_of(sizes, arguments["marks"])}
    how = {k: v for k, v in arguments.items() if k not in ("size", "marks")}
    return of | how | {"origin": tuple(arguments["origin"][: len(along)]), "axes": along}


def filtered(name: str) -> Callable[..., Any]:
    """What asks one of the filters; axis=None is along all axes."""

    def ask(x: Any, axis: Any, **arguments: Any) -> Any:
        return getattr(windows, name)(x, **filter_arguments(arguments, axes_of(axis, x.ndim)))

    return ask


def draw_box(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {
        "whis": pick(
            random, [1.5, 1.5, 1.5, 0, 0.3, 3, (5, 95), (0, 100), (30, 40), (50, 50), (80, 100)]
        ),
        "method": pick(random, WEIGHTED_METHODS if weighs else ["linear", *oracle.METHODS]),
        "nan_policy": pick(random, ["omit", "omit", "propagate"]),
        "autorange": random.random() < 0.2,
        "max_fliers": pick(random, [1000, 1000, 0, 3]),
    }


def _quantiles(name: str, draw: Any, **how: Any) -> Question:
    function = getattr(dask_gpuselect, name)
    return Question(name, function, definitions.quantiles, draw, **how)


def _of_one_axis(name: str, function: Any, definition: Any, draw: Any, **how: Any) -> Question:
    how = {"slots": ("all",), "missing": ("nothing",), "shapes": ONE_AXIS} | how
    return Question(name, function, definition, draw, **how)


def _moving(name: str, function: Any, definition: Any, draw: Any, **how: Any) -> Question:
    how = {"slots": LANES, "shapes": MOVING, "is_about_places": True, "loads": 1} | how
    return Question(name, function, definition, draw, **how)


def _spread(name: str, definition: Any, draw: Any, **how: Any) -> Question:
    how = {"kinds": "iuf", "reads": twice} | how
    return Question(name, getattr(robust, name), definition, draw, **how)


THREE: dict[str, Any] = {"loads": 3, "reads": thrice}
QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        _quantiles("median", draw_nothing, kinds="biuf"),
        _quantiles("nanmedian", draw_nothing, kinds="biuf"),
        _quantiles("quantile", draw_quantile, measures=MEASURES),
        _quantiles("nanquantile", draw_quantile, measures=MEASURES),
        _quantiles("percentile", draw_percentile, measures=MEASURES),
        _quantiles("nanpercentile", draw_percentile, measures=MEASURES),
        _spread("mad", definitions.mad, draw_mad, loads=3),
        _spread("nanmad", definitions.mad, draw_mad, loads=3),
        _spread("iqr", definitions.iqr, draw_iqr),
        _spread("naniqr", definitions.iqr, draw_iqr),
        *(
            _spread(name, definitions.trimmed_mean, draw_cut, kinds="biuf", loads=3)
            for name in ("trimmed_mean", "nantrimmed_mean")
        ),
        Question("count", None, definitions.count, draw_nothing, slots=GROUPS),
        Question(
            "order_statistic",
            dask_gpuselect.order_statistic,
            definitions.order_statistic,
            draw_k,
            slots=("all",),
        ),
        Question(
            "quantile_bins",
            dask_gpuselect.quantile_bins,
            definitions.bins,
            draw_bins,
            slots=LANES,
        ),
        Question(
            "ecdf",
            distribution.ecdf,
            definitions.ecdf,
            draw_points,
            kinds="biuf",
            slots=("all",),
            missing=("nothing",),
            reads=reads_of_ecdf,
        ),
        _of_one_axis("sort", dask_gpuselect.sort, definitions.in_order, draw_chunks, **THREE),
        *(
            _of_one_axis(
                name, function, definitions.order, draw_chunks, is_about_places=True, **THREE
            )
            for name, function in (("argsort", dask_gpuselect.argsort), ("sort_by", sort_by))
        ),
        _of_one_axis("radix_sort", radix_sort, definitions.in_order, draw_bits, loads=1),
        _of_one_axis(
            "digitize",
            dask_gpuselect.digitize,
            definitions.digitize,
            draw_edges,
            kinds="biuf",
            is_about_places=True,
            loads=1,
        ),
        Question(
            "describe_boxplot",
            dask_gpuselect.describe_boxplot,
            definitions.box,
            draw_box,
            kinds="iuf",
            measures=MEASURES,
            loads=3,
        ),
        *(
            _moving(f"rolling {name}", roll, definitions.rolling, draw_rolling(*some), kinds=kinds)
            for name, some, kinds in (
                ("quantile", ("median", "quantile", "percentile"), "biufmM"),
                ("spread", ("mad", "iqr"), "iuf"),
                ("extremes", ("min", "max", "count"), "biufmM"),
            )
        ),
        *(
            _moving(
                name,
                filtered(name),
                definitions.rank_filter,
                draw_filter(name),
                missing=("nothing",),
            )
            for name in ("median_filter", "percentile_filter", "rank_filter")
        ),
    )
}
