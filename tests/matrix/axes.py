"""The axes of the matrix: a table for each, so that a new feature is a new row.

A case takes one row of every table. `cases.drawn` deals each question its rows so that all come
equally often. A focus then replaces some of them, and so do rows that do not go with each other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cloudpickle
import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.engine import threads
from tests import data as shared
from tests.matrix.recipes import WORST

Array = NDArray[Any]
Random = np.random.Generator

# --- Elements -------------------------------------------------------------------------------------

DTYPES = (
    *("f8", "f8", "f8", "f4", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "u8"),
    *("?", "M8[s]", "m8[ns]", "m8[ns]"),
)
"""Most rounding shows in float64 alone, and uint64 are the integers that no other dtype holds."""

FEW = "few values"
"""Ties everywhere: the data of one in two cases, because most mistakes are made at ties."""

ONE_MISSING = "one missing"
"""Few values, and a single NaN or NaT."""

LARGE = "large integers"
"""Integers that are no floats: those of 8 bytes beyond 2**53."""


def elements(name: str, dtype: str, n: int, random: Random) -> Array:
    """Elements of a distribution, in an order of their own for every case."""
    if name == LARGE:
        width = [3000, 1 << 40][int(random.integers(2))]
        return np.iinfo(dtype).max - random.integers(0, width, n).astype(dtype)
    if name in (FEW, ONE_MISSING):
        result = random.integers(0, 6, n).astype(dtype)
        if dtype[0] in "fmM":
            missing = np.array("NaT" if dtype[0] in "mM" else "nan", dtype)
            is_missing = random.random(n) < 0.1
            if name == ONE_MISSING:
                is_missing = np.arange(n) == random.integers(max(1, n))
            result = np.where(is_missing, missing, result)
        return result
    result = shared.make(name, dtype, n)
    return result if name in ("sorted", "reversed", "trended") else random.permutation(result)


def distributions(dtype: str) -> tuple[str, ...]:
    """The names of the distributions that there are in a dtype."""
    if np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize == 8:
        return (FEW, LARGE, LARGE, LARGE, *shared.names_of(dtype))
    if dtype[0] in "fmM":
        return (FEW, ONE_MISSING, ONE_MISSING, *shared.names_of(dtype))
    return (FEW, *(("bools",) if dtype == "?" else shared.names_of(dtype)))


BITS = ("as named", "as named", "as named", "any", "a recipe")
"""Whether elements are of a distribution, of any bits there are, or of data made to be slow."""


def other_elements(bits: str, dtype: str, n: int, random: Random) -> Array | None:
    """Elements of no distribution; None where there are no such of a dtype."""
    if bits == "any" and dtype[0] == "f":
        return np.frombuffer(random.bytes(n * np.dtype(dtype).itemsize), dtype).copy()
    if bits == "a recipe" and dtype[0] in "fiu" and n:
        recipe = WORST[int(random.integers(len(WORST)))][-1]
        return replace(recipe, dtype=dtype).made(n, 9).values
    return None


# --- Shapes and chunks ----------------------------------------------------------------------------

SHAPES: Mapping[str, Callable[[Random], tuple[int, ...]]] = {
    "long": lambda r: (int(r.integers(200, 900)),),
    "tens": lambda r: (int(r.integers(1, 30)) * 10,),  # of which tenths are whole numbers
    "short": lambda r: (int(r.integers(1, 30)),),
    "tall map": lambda r: (int(r.integers(30, 70)) * 10, int(r.integers(1, 4))),
    "taller map": lambda r: (int(r.integers(70, 150)) * 10, int(r.integers(1, 3))),
    "map": lambda r: (int(r.integers(2, 40)), int(r.integers(2, 12))),
    "wide map": lambda r: (int(r.integers(2, 6)), int(r.integers(30, 90))),
    "stack": lambda r: (int(r.integers(3, 30)), int(r.integers(1, 6)), int(r.integers(1, 6))),
    "one element": lambda r: (1,) * int(r.integers(1, 3)),
    "0-d": lambda r: (),
    "no element": lambda r: (0,) if r.random() < 0.5 else (int(r.integers(1, 4)), 0),
}
DIMENSIONS = {
    **dict.fromkeys(("long", "tens", "short"), 1),
    **dict.fromkeys(("tall map", "taller map", "map", "wide map"), 2),
    "stack": 3,
}
"""How many dimensions shapes have at least, but for those that have none or one."""


def _parts(n: int, ends: Any) -> tuple[int, ...]:
    """The sizes between the ends that lie within an axis."""
    inner = sorted({int(end) for end in ends if 0 < end < n})
    return tuple(np.diff([0, *inner, n]).tolist()) or (n,)


CUTS: Mapping[str, Callable[[int, Random], tuple[int, ...]]] = {
    "whole": lambda n, r: (n,),
    "halves": lambda n, r: _parts(n, [n // 2]),
    "even": lambda n, r: _parts(n, range(0, n, max(1, n // 5))),
    "odd": lambda n, r: _parts(n, r.integers(0, n + 1, 4)),
    "ones": lambda n, r: (1,) * n if 0 < n <= 12 else _parts(n, [1, 2, n - 1]),
    "some empty": lambda n, r: (0, n // 3, 0, n - n // 3, 0),
    "many": lambda n, r: _parts(n, r.integers(0, n + 1, MOST_CHUNKS - 1)),
}
"""How an axis is divided: from its size to the sizes of the chunks along it."""

MOST_CHUNKS = 12
"""Of an array: more take longer, and find nothing more. The first load caches from 8 chunks on."""


def chunks_of(shape: tuple[int, ...], cuts: str, random: Random) -> tuple[tuple[int, ...], ...]:
    """Chunks of a shape, in which every axis is divided by the same rule, or not at all where that
    makes too many."""
    chunks: list[tuple[int, ...]] = []
    left = MOST_CHUNKS
    for n in shape:
        sizes = CUTS[cuts](n, random)
        sizes = sizes if len(sizes) <= left else (n,)
        chunks.append(sizes)
        left //= len(sizes)
    return tuple(chunks)


# --- Slots ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slots:
    """Which elements make one answer.

    Parameters
    ----------
    axis : callable
        From the number of dimensions to the reduced axes; None for all of them.
    groups : {"", "labels", "labels along", "lazy labels", "lazy labels along", "windows"}
        Labels of every element, or of the places along the only reduced axis; or windows of places
        along it, which overlap.
    """

    axis: Callable[[int], int | tuple[int, ...] | None]
    groups: str = ""

    def fits(self, ndim: int) -> bool:
        """Tell whether data of some dimensions have such slots."""
        if "along" in self.groups or self.groups == "windows":
            return ndim >= 1
        return ndim >= (1 if self.groups else 0) and (self.axis(ndim) is None or ndim >= 2)


SLOTS: Mapping[str, Slots] = {
    "all": Slots(lambda n: None),
    "first axis": Slots(lambda n: 0),
    "last axis": Slots(lambda n: -1),
    "outer axes": Slots(lambda n: (0, n - 1)),
    "groups": Slots(lambda n: None, "labels"),
    "groups, lazy labels": Slots(lambda n: None, "lazy labels"),
    "groups along the first axis": Slots(lambda n: 0, "labels along"),
    "groups along the last axis": Slots(lambda n: n - 1, "labels along"),
    "lazy groups along the first axis": Slots(lambda n: 0, "lazy labels along"),
    "windows along the first axis": Slots(lambda n: 0, "windows"),
    "windows along the last axis": Slots(lambda n: n - 1, "windows"),
    "groups of the last two axes": Slots(lambda n: tuple(range(max(0, n - 2), n)), "labels"),
}

LABELS: Mapping[str, Callable[[Array], Array]] = {
    "integers": lambda codes: codes,
    "bytes": lambda codes: (codes * 30).astype("u1"),
    "far apart": lambda codes: (codes - 4) * (2**62 // 4),
    "beyond int64": lambda codes: codes.astype("u8") << np.uint64(60),
    "bools": lambda codes: codes > 2,
    "some missing": lambda c: np.where((c == 1) & (c.max(initial=0) > 1), np.nan, c),
    "all missing": lambda codes: np.full(codes.shape, np.nan),
    "strings": lambda codes: (codes * 7).astype("U3"),
    "strings of bytes": lambda codes: (codes * 7).astype("S3"),
    "dates": lambda codes: np.array("2020-01-01", "M8[D]") + codes * 400,
}
"""From numbers of groups to their labels."""

# --- Measures and masks ---------------------------------------------------------------------------

WEIGHTS: dict[str, Callable[[Array, Random], Array]] = {
    "any weights": lambda v, r: r.random(v.size),
    "counts": lambda v, r: r.integers(0, 4, v.size),
    "mostly 0": lambda v, r: np.where(r.random(v.size) < 0.7, 0.0, r.random(v.size)),
    "0 of what is missing": lambda v, r: np.where(v == v, r.integers(1, 4, v.size), 0),
    "alike": lambda v, r: np.full(v.size, 0.1),
    "tenths": lambda v, r: r.integers(1, 4, v.size) / 10,
    "one heavy": lambda v, r: np.where(np.arange(v.size) == v.size // 3, 1e9, 1.0),
    "magnitudes": lambda v, r: np.exp2(r.integers(-60, 60, v.size)),
}
"""From the elements to their weights."""
MEASURES = ("count",) * 6 + tuple(WEIGHTS) + ("0 of what is missing",)
WEIGHTS |= {"beyond 2**53": lambda v, r: r.integers(1, 1 << 54, v.size)}
WEIGHTS_OF = ("elements", "axes")
"""Whether weights have the shape of the data, or that of the reduced axes."""

MISSING = ("nothing", "nothing", "where", "where broadcast", "masked", "nodata", "where and nodata")

MASKS: Mapping[str, Callable[[Array, Random], Array]] = {
    "most": lambda v, r: r.random(v.size) < 0.8,
    "half": lambda v, r: r.random(v.size) < 0.5,
    "few": lambda v, r: r.random(v.size) < 0.1,
    "all but what is missing": lambda v, r: v == v,
    "none": lambda v, r: np.zeros(v.size, bool),
    "all": lambda v, r: np.ones(v.size, bool),
}
"""From the elements to those that take part."""

# --- Surroundings ---------------------------------------------------------------------------------

HOMES = ("plain", "memory", "tasks", "tasks", "shared", "persisted", "unknown sizes", "expression")
"""Where chunks are: a NumPy array, one that dask divides, chunks that tasks make, chunks that share
their tasks with the array beside them, chunks in memory, of unknown sizes, and of an expression."""

SCHEDULERS = ("sync", "threads")

LAYOUTS: Mapping[str, str] = {
    "C": "a",
    "F": "a.copy(order='F')",
    "strided": "np.repeat(a, 2, -1)[..., ::2]",
    "backwards": "a[::-1].copy()[::-1]",
    "in a record": "np.rec.fromarrays([a != a, a], names='pad,x')['x']",  # not aligned either
    "swapped": "a.astype(a.dtype.newbyteorder('>'))",
    "read-only": "np.broadcast_to(a, a.shape)",
}
"""How elements lie in memory: what lays those of an array out so."""


def laid_out(a: Array, layout: str) -> Array:
    """Lay the same elements out in memory otherwise."""
    result: Array = eval(LAYOUTS[layout if a.ndim else "C"], {"np": np, "a": a})
    return result


class Parts(NamedTuple):
    """How many bytes a task takes that groups all elements, how many pairs of chunks sorts move
    pieces between without groups of chunks, how many elements for each pivot may be gathered near a
    fence, and how many moving windows are answered together."""

    task: int
    pairs: int
    room: int
    slab: int


PARTS: Mapping[str, Parts] = {
    "64 MiB": Parts(1 << 26, 1 << 16, 16, 1 << 16),
    "1 kB": Parts(1000, 10, 16, 1 << 10),
    "500 B": Parts(500, 0, 0, 16),
}

SIZES: Mapping[str, Mapping[str, Any]] = {
    "usual": {},
    "small": {
        "engine.threads.WORTH": dict.fromkeys(threads.WORTH, 64),
        "engine.pilot.PILOT_SIZE": 100,
        "engine.pilot.PILOT_WORTH": 1,
        "engine.pilot.LEAST_PILOT": 16,
        "engine.pilot.NARROWING": 30,
        "engine.resident.LONG": 10,
        "engine.graphs.MERGE_EVERY": 4,
        "engine.keeping.GROUPS": 2,
        "engine.lane_plans.GROUP_COUNTS_SHARE": np.inf,
        "engine.lane_plans.SHARE_BYTES": 1,
        "engine.rounds.ALWAYS_GATHERED": 64,
        "kernels.cpu.few.TILE": 1 << 10,
        "kernels.cpu.few.WHOLE_TILE": 100,
        "kernels.cpu.lanes.FEW": 1,
        "kernels.cpu.narrow.COUNTED": 20,
        "maths.boxes.LEAST_ROOM": 0,
        "quantiles.weighted.FEW_CANDIDATES": 20,
        "robust.deviations.LEAST_ROOM": 0,
        "robust.trimmed.PIECE": 200,
        "sorting.graph.PIECES_MERGED": 3,
        "sorting.graph.MANY": 0,
    },
    "no networks": {"kernels.cpu.window_networks.MOST": 0},
}
"""Sizes from which on larger data are treated otherwise: by threads, guessed from a sample, divided
among tasks, gathered in part."""

SOURCES: Mapping[str, Callable[[Array, Any], Any]] = {
    "plain": lambda a, chunks: da.from_array(a, chunks=chunks),
    # Dask loses elements of an array of empty chunks that it turns.
    "turned": lambda a, chunks: da.from_array(
        a[::-1], chunks=(tuple(n for n in chunks[0][::-1] if n) or (0,), *chunks[1:])
    )[::-1].rechunk(chunks),
    "joined": lambda a, chunks: da.concatenate(
        [da.from_array(half) for half in np.array_split(a, 2)]
    ).rechunk(chunks),
    "rechunked": lambda a, chunks: da.from_array(a, chunks=-1).rechunk(chunks),
}
"""What tasks of dask make chunks of an array in memory."""

ROUTES = ("function", "function", "accessor", "replaced")
"""The function, a method of ``x.exact``, or dask's function that ours replaces."""


def _pickled(lazy: Any) -> Any:
    """Pickle lazy arrays, and load them again."""
    pickled = cloudpickle.dumps(lazy)
    # NumPy gives masked float16 the fill value 1e20 when it loads them, which overflows. Arrays of
    # the package have one that fits: see `tests/features/test_masks.py`.
    with np.errstate(over="ignore"):
        return pickle.loads(pickled)


FINISHES: Mapping[str, Callable[..., Any]] = {
    "compute": dask.compute,
    "persist": lambda *found: dask.compute(*dask.persist(*found)),
    "optimize": lambda *found: dask.compute(*dask.optimize(*found)),
    "pickle": lambda *found: dask.compute(*_pickled(found)),
}
"""How lazy answers are computed."""

CONFIG: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "narrow merges": {"split_every": 2},
    "merges along axes": {"split_every": {0: 2, 1: 3}},
    "no fusion": {"optimization.fuse.active": False},
    "no root": {"dask_gpuselect.root-limit": 0},
}
"""Settings of dask itself, and as few pivots as plans allow."""

WAYS = ("", "", "by turns")
"""Whether calls are answered by kernels and by NumPy in turn, where kernels are compiled."""

KERNELS = ("NumPy", "compiled")
"""What answers about small arrays; compiled kernels of few dtypes, for compiling takes longest."""
COMPILED = ("f8",)
COMPILED_WINDOWS = (*COMPILED, "u1", "i1")

LIMITS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "nothing kept": {"cache-limit": 0},
    "little kept": {"cache-limit": 600},
    "kept on disk": {"cache-limit": 100, "cache-spill": True},
    "small root": {"root-limit": 4000},
    "small columns": {"column-limit": 6000, "scratch-directory": False},
    "small columns, nothing kept": {"scratch-directory": False}
    | {"column-limit": 6000, "cache-limit": 0},
    "small columns, written": {"column-limit": 700, "scratch-reads": 2},
}


# --- Where rows meet ------------------------------------------------------------------------------

PLAIN = {"missing": "nothing", "measure": "count"}
ELEMENTS = {"slots": "all", "shape": "long"} | PLAIN
CACHED = ELEMENTS | {"limits": "defaults", "home": "tasks", "cuts": "many", "kernels": "NumPy"}
FOCI: Mapping[str, Mapping[str, str]] = {
    "brackets": ELEMENTS | {"limits": "nothing kept", "home": "tasks"},
    "ties that are cached": CACHED | {"dtype": "f8", "data": "normal"},
    "ties of integers that are cached": CACHED | {"dtype": "i8", "data": "whole range"},
    "one missing": ELEMENTS | {"dtype": "f8", "data": ONE_MISSING},
    "passes": PLAIN
    | {"slots": "first axis", "shape": "taller map", "limits": "small columns", "home": "tasks"},
    "passes that keep nothing": PLAIN
    | {"slots": "first axis", "shape": "taller map", "home": "tasks", "dtype": "f8"}
    | {"limits": "small columns, nothing kept"},
    "lanes on disk": {"slots": "first axis", "shape": "map", "home": "tasks"}
    | {"limits": "small columns, written"},
    "groups of lanes on disk": {"slots": "groups along the first axis", "shape": "map"}
    | {"home": "tasks", "limits": "small columns, written"},
    "rounding in lanes": PLAIN
    | {"slots": "first axis", "shape": "map", "dtype": "f8", "data": "normal"},
    "lazy groups in parts": {"slots": "groups, lazy labels", "parts": "500 B", "home": "tasks"}
    | PLAIN,
    "many windows": {"slots": "windows along the last axis", "shape": "map", "dtype": "f8"} | PLAIN,
    "durations in lanes": {"slots": "groups along the first axis", "dtype": "m8[ns]"}
    | {"data": ONE_MISSING, "shape": "map"}
    | PLAIN,
    "shares that sums meet": {"slots": "all", "shape": "tens", "measure": "alike"}
    | {"missing": "nothing"},
    "windows over small chunks": {"slots": "first axis", "shape": "tens", "cuts": "odd"}
    | {"home": "tasks", "mask": "most"},
    "windows of bytes": {"dtype": "u1", "kernels": "compiled", "slots": "all", "shape": "map"},
    "compiled windows": {"dtype": "f8", "kernels": "compiled", "shape": "map", "data": FEW},
    "missing that weighs nothing": {"slots": "all", "measure": "0 of what is missing"}
    | {"dtype": "f8", "data": FEW, "missing": "nothing"},
}
"""Rows that decide something only together, which chance seldom brings. Half of all cases have one
of these, as far as the question goes with it."""
ASKED = ("any",)
"""What is asked; in pinned rows alone shares "near the ends", means at "tenths", "large windows",
edges at "elements", and answers that are "filled" where there are none."""
FOCUS = ("",) * len(FOCI) + tuple(FOCI)


UNCACHED = ELEMENTS | {"limits": "nothing kept", "home": "tasks", "cuts": "many", "focus": ""}
NO_ROOT = UNCACHED | {"config": "no root", "sizes": "small"}
IN_PASSES = {"slots": "first axis", "shape": "taller map", "limits": "small columns", "focus": ""}
TAILS = IN_PASSES | {"home": "tasks", "asked": "near the ends", "cuts": "many", "dtype": "f8"}
BY_COLUMNS = {"kernels": "compiled", "slots": "all", "shape": "map", "home": "plain", "focus": ""}
BY_COLUMNS |= {"sizes": "no networks", "asked": "large windows", "measure": "count"}
NO_GROUPS = {"slots": "groups, lazy labels", "labels": "all missing", "focus": ""}
PINNED: Mapping[str, Mapping[str, str]] = {
    "medians without a root": NO_ROOT | {"question": "median"},
    "deviations without a root": NO_ROOT | {"question": "nanmad"},
    "boxes without a root": NO_ROOT | {"question": "describe_boxplot"},
    "weighted boxes without a root": NO_ROOT
    | {"question": "describe_boxplot", "measure": "any weights"},
    "weights without a root": NO_ROOT | {"question": "quantile", "measure": "one heavy"},
    "groups without a root": NO_ROOT | {"question": "nanquantile", "slots": "groups, lazy labels"},
    "weights that are guessed": ELEMENTS
    | {"question": "quantile", "measure": "any weights", "home": "plain", "sizes": "small"},
    "weights that are cached": UNCACHED
    | {"question": "quantile", "measure": "one heavy", "limits": "defaults", "data": "infinite"},
    "tails of lanes": PLAIN | TAILS | {"question": "percentile"},
    "tails of groups": PLAIN
    | TAILS
    | {"question": "nanquantile", "dtype": "i8", "slots": "groups along the first axis"},
    "heavy weights in passes": IN_PASSES
    | {"question": "quantile", "home": "tasks", "measure": "one heavy", "missing": "nothing"},
    "weighted dates in lanes": {"question": "quantile", "measure": "counts", "dtype": "M8[s]"}
    | {"slots": "first axis", "shape": "map", "focus": ""},
    "integers that weigh in lanes": {"question": "quantile", "measure": "beyond 2**53"}
    | {"slots": "first axis", "shape": "map", "dtype": "f8", "focus": ""},
    "windows of infinities": ELEMENTS
    | {"question": "quantile", "measure": "alike", "shape": "short", "dtype": "f8"}
    | {"data": "infinite", "focus": ""},
    "halves in groups": {"question": "describe_boxplot", "slots": "groups", "dtype": "f2"}
    | {"missing": "where and nodata", "home": "tasks", "sizes": "small", "focus": ""},
    "weighted boxes by threads": {"question": "describe_boxplot", "measure": "any weights"}
    | {"slots": "first axis", "shape": "map", "home": "plain", "sizes": "small", "focus": ""},
    "strategies without a root": NO_ROOT | {"question": "order_statistic"},
    "tails by several tasks": PLAIN | TAILS | {"question": "quantile", "sizes": "small"},
    "large windows of masked integers": BY_COLUMNS
    | {"question": "rolling quantile", "dtype": "i2", "missing": "where", "mask": "half"},
    "windows of bytes by columns": BY_COLUMNS
    | {"question": "rolling quantile", "dtype": "i1", "missing": "where"},
    "ranks of bytes by columns": BY_COLUMNS | {"question": "rank_filter", "dtype": "u1"},
    "tails of missing elements": TAILS
    | {"question": "nanquantile", "missing": "where and nodata", "measure": "count"},
    "shares that are rounded up to a sum": {"question": "quantile", "measure": "alike"}
    | {"slots": "all", "shape": "tens", "dtype": "f8", "data": "normal", "missing": "nothing"}
    | {"asked": "tenths", "focus": ""},
    "groups in a tree": NO_ROOT
    | {"question": "nanquantile", "slots": "groups, lazy labels", "limits": "small columns"}
    | {"parts": "1 kB"},
    "lanes of nothing but NaN that are filled": {"question": "nanquantile", "asked": "filled"}
    | {"slots": "first axis", "shape": "wide map", "measure": "count", "focus": ""}
    | {"dtype": "f8", "data": FEW, "bits": "as named", "missing": "where", "mask": "half"},
    "sorts in a tree": NO_ROOT | {"question": "sort_by", "limits": "defaults", "parts": "1 kB"},
    "labels of a byte": {"question": "quantile", "slots": "groups, lazy labels", "labels": "bytes"}
    | {"dtype": "u1", "focus": ""},
    "edges that float64 does not tell apart": {"question": "digitize", "asked": "elements"}
    | {"dtype": "i8", "data": LARGE, "bits": "as named", "shape": "long", "focus": ""},
    "quantiles of no element": PLAIN
    | {"question": "nanquantile", "slots": "all", "shape": "no element", "focus": ""},
    "halves that are pickled": {"question": "nanquantile", "dtype": "f2", "missing": "masked"}
    | {"home": "memory", "finish": "pickle", "floating-point errors": "raise", "focus": ""},
    "long lanes that weigh": {"question": "quantile", "measure": "any weights", "sizes": "small"}
    | {"slots": "first axis", "shape": "map", "home": "tasks", "cuts": "whole", "focus": ""},
    "medians of no groups": NO_GROUPS | {"question": "median", "measure": "count"},
    "boxes of no groups": NO_GROUPS | {"question": "describe_boxplot", "measure": "counts"},
}
"""Questions and rows that meet too seldom even with a focus."""


def decks(
    questions: tuple[str, ...],
    tables_of: Callable[[str], Mapping[str, tuple[str, ...]]],
    seed: int,
) -> Iterator[dict[str, str]]:
    """Deal questions for ever, each with a row of all its tables.

    Questions are shuffled anew once all were dealt, and so are the rows of each question's tables:
    every question soon comes with every row.
    """

    def dealt(rows: tuple[str, ...], *number: int) -> Iterator[str]:
        random = np.random.default_rng([seed, *number])
        while True:
            for i in random.permutation(len(rows)):
                yield rows[i]

    of_question = {
        question: {
            name: dealt(rows, i, j) for j, (name, rows) in enumerate(tables_of(question).items())
        }
        for i, question in enumerate(questions)
    }
    for question in dealt(questions):
        yield {"question": question} | {k: next(deck) for k, deck in of_question[question].items()}
