"""The questions of the matrix: a row for each, with its definition and the arguments it is asked
with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import dask_gpuselect
from dask_gpuselect import robust
from tests import oracle
from tests.matrix import definitions
from tests.matrix.axes import MEASURES, MISSING, SLOTS, Random

WEIGHTED_METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")

ALL = ("all", *SLOTS)  # most code is about all elements
GROUPS = tuple(name for name, slots in SLOTS.items() if slots.groups)


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
    slots, measures, missing : tuple of str
        Rows of the other tables that it goes with.
    loads : int
        How often it reads a chunk at most, asked about all elements.
    loads_along : int
        How often it reads a chunk along an axis, for each time that `explain` says.
    """

    name: str
    function: Callable[..., Any] | None
    definition: definitions.Definition
    draw: Callable[[Random, str, bool], dict[str, Any]]
    kinds: str = "biufmM"
    slots: tuple[str, ...] = ALL
    measures: tuple[str, ...] = ("count",)
    missing: tuple[str, ...] = MISSING
    loads: int = 2
    loads_along: int = 1

    @property
    def is_box(self) -> bool:
        return self.definition is definitions.box


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


def draw_k(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {"k": pick(random, [0, 1, [0, 2, 1], [3]])}


def draw_box(random: Random, kind: str, weighs: bool) -> dict[str, Any]:
    return {
        "whis": pick(random, [1.5, 1.5, 1.5, 0, 0.3, 3, (5, 95), (0, 100)]),
        "method": pick(random, WEIGHTED_METHODS if weighs else ["linear", *oracle.METHODS]),
        "nan_policy": pick(random, ["omit", "omit", "propagate"]),
        "autorange": random.random() < 0.2,
        "max_fliers": pick(random, [1000, 1000, 0, 3]),
    }


def _quantiles(name: str, draw: Any, **how: Any) -> Question:
    function = getattr(dask_gpuselect, name)
    return Question(name, function, definitions.quantiles, draw, **how)


def _spread(name: str, definition: Any, draw: Any, **how: Any) -> Question:
    return Question(name, getattr(robust, name), definition, draw, kinds="iuf", **how)


QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        _quantiles("median", draw_nothing, kinds="biuf"),
        _quantiles("nanmedian", draw_nothing, kinds="biuf"),
        _quantiles("quantile", draw_quantile, measures=MEASURES),
        _quantiles("nanquantile", draw_quantile, measures=MEASURES),
        _quantiles("percentile", draw_percentile, measures=MEASURES),
        _quantiles("nanpercentile", draw_percentile, measures=MEASURES),
        _spread("mad", definitions.mad, draw_mad, loads=3, loads_along=2),
        _spread("nanmad", definitions.mad, draw_mad, loads=3, loads_along=2),
        _spread("iqr", definitions.iqr, draw_iqr),
        _spread("naniqr", definitions.iqr, draw_iqr),
        Question("count", None, definitions.count, draw_nothing, slots=GROUPS),
        Question(
            "order_statistic",
            dask_gpuselect.order_statistic,
            definitions.order_statistic,
            draw_k,
            slots=("all",),
        ),
        Question(
            "describe_boxplot",
            dask_gpuselect.describe_boxplot,
            definitions.box,
            draw_box,
            kinds="iuf",
            measures=MEASURES,
            loads=3,
            loads_along=2,
        ),
    )
}
