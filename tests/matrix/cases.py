"""A case: drawn from the tables, asked lazily and at once, made smaller, and told as a script."""

from __future__ import annotations

import importlib
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
from dask.callbacks import Callback
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect.arrays import is_cupy
from dask_gpuselect.engine import exchange, lane_plans
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels import compiling
from dask_gpuselect.kernels.cpu import windows
from dask_gpuselect.maths import boxes
from tests.backends import CUPY, NUMPY, STRICT, Backend
from tests.matrix import axes, definitions
from tests.matrix.questions import (
    QUESTIONS,
    Question,
    draw_strategy,
    filter_arguments,
    pick,
    rolled,
)
from tests.oracle import FUNCTIONS
from tests.sources import Reading
from tests.spies import refuse, wait_for_threads

Array = NDArray[Any]
Chunks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Case:
    """Everything that a question is asked about, and how.

    Parameters
    ----------
    row : dict of str
        The row of each table, by the name of the table.
    values : ndarray or masked array
    chunks : tuple of tuple of int
        Of the values; companions are divided by `companion_cuts`.
    asked : dict
        Arguments of the question.
    beside : dict of ndarray
        "weights", "where" and "labels", each of a shape that the question takes.
    nodata : scalar or ndarray, optional
        One value, or several.
    groups : list, optional
        The labels that are asked for; None for all that are there.
    windows : dict, optional
        Places along the reduced axis, in place of labels.
    """

    row: Mapping[str, str]
    values: Array
    chunks: Chunks
    asked: Mapping[str, Any]
    beside: Mapping[str, Array]
    nodata: Any = None
    groups: list[Any] | None = None
    windows: Mapping[str, list[int]] | None = None
    keepdims: bool = False
    seed: tuple[int, int] = (0, 0)

    @property
    def question(self) -> Question:
        return QUESTIONS[self.row["question"]]

    @property
    def backend(self) -> Backend:
        """The kind of its arrays."""
        return {"CuPy": CUPY, "standard": STRICT}.get(self.row.get("arrays", ""), NUMPY)

    @property
    def is_on_device(self) -> bool:
        """Whether its arrays are CuPy's."""
        return self.backend is CUPY

    @property
    def layout(self) -> str:
        """How values and companions lie in memory."""
        return "C" if np.ma.isMA(self.values) else self.row.get("layout", "C")

    @property
    def slots(self) -> axes.Slots:
        return axes.SLOTS[self.row["slots"]]

    @property
    def axis(self) -> Any:
        return self.slots.axis(self.values.ndim)

    @property
    def axes(self) -> tuple[int, ...]:
        """The reduced axes, ascending, none negative."""
        every = range(self.values.ndim)
        if self.axis is None:
            return tuple(every)
        return tuple(sorted({every[i] for i in np.atleast_1d(self.axis).tolist()}))

    def full(self, name: str) -> Array | None:
        """A companion in the shape of the values."""
        result = self.beside.get(name)
        if result is None:
            return None
        if result.ndim < self.values.ndim and name != "where":  # of the reduced axes, in order
            shape = [n if i in self.axes else 1 for i, n in enumerate(self.values.shape)]
            result = result.reshape(shape)
        return np.broadcast_to(result, self.values.shape)

    @cached_property
    def elements(self) -> definitions.Elements:
        """What the definitions look at."""
        takes_part = self.full("where")
        is_left_out = np.ma.getmaskarray(self.values)
        values = np.ma.getdata(self.values)
        for value in () if self.nodata is None else np.atleast_1d(self.nodata):
            is_nodata = values == value if value == value else values != values
            is_left_out = is_left_out | is_nodata
        # What may be left out, as far as is known at the call, decides the dtype of moving windows.
        is_lazy = isinstance(self.values, np.ma.MaskedArray) and self.row["home"] != "plain"
        may_be_left_out = self.question.moves and (is_lazy or self.nodata is not None)
        if may_be_left_out or is_left_out.any():
            takes_part = ~is_left_out & (True if takes_part is None else takes_part)
        labels = self.full("labels")
        groups = None
        if labels is not None:
            there = np.unique(labels[labels == labels])
            groups = tuple(there if self.groups is None else self.groups)
        if self.windows is not None:
            groups = tuple(self.windows)
        return definitions.Elements(
            values, self.axes, self.full("weights"), takes_part, labels, groups, self.windows
        )

    def expected(self) -> Any:
        """Return the answer, or raise `Refused`."""
        if isinstance(self._expected, definitions.Refused):
            raise self._expected
        return self._expected

    @cached_property
    def _expected(self) -> Any:
        about = self.elements
        if not about.values.size:  # NumPy has no quantile of nothing either
            return definitions.Refused(IndexError, ValueError)
        is_lazy = "lazy" in self.slots.groups and self.row["home"] != "plain"
        if about.groups == () and not is_lazy:
            return definitions.Refused(ValueError)
        question = self.question
        with warnings.catch_warnings(action="ignore"):  # of what is missing
            try:
                result = definitions.answer(question.definition, question.name, about, **self.asked)
            except definitions.Refused as refused:
                return refused
        if self.keepdims:
            lead = np.ndim(result) - (self.values.ndim - len(self.axes))
            result = np.expand_dims(result, tuple(lead + i for i in self.axes))
        return result


# --- Drawing --------------------------------------------------------------------------------------


def tables_of(name: str) -> Mapping[str, tuple[str, ...]]:
    """The rows of all tables that go with a question."""
    question = QUESTIONS[name]
    return {
        "slots": question.slots,
        "measure": question.measures,
        "weights of": axes.WEIGHTS_OF,
        "missing": question.missing,
        "mask": tuple(axes.MASKS),
        "dtype": tuple(d for d in axes.DTYPES if np.dtype(d).kind in question.kinds),
        "shape": question.shapes,
        "cuts": tuple(axes.CUTS),
        "companion cuts": ("alike", *axes.CUTS),
        "home": axes.HOMES,
        "scheduler": axes.SCHEDULERS,
        "limits": tuple(axes.LIMITS),
        "parts": tuple(axes.PARTS),
        "kernels": axes.KERNELS,
        "focus": axes.FOCUS,
        "layout": tuple(axes.LAYOUTS),
        "bits": axes.BITS,
        "sizes": ("usual", "small"),
        "source": tuple(axes.SOURCES),
        "route": axes.ROUTES,
        "finish": ("compute", *axes.FINISHES),
        "config": tuple(axes.CONFIG),
        "floating-point errors": ("ignore", "raise"),
        "ways": axes.WAYS,
        "asked": axes.ASKED,
        "labels": ("integers", *axes.LABELS),
    }


def drawn(seed: int, start: int = 0, step: int = 1) -> Iterator[Case]:
    """Draw cases for ever: numbers start, start + step, ... of a seed."""
    number = -1
    for row in axes.decks(tuple(QUESTIONS), tables_of, seed):
        number += 1
        if number % step == start:
            yield made(row, seed, number)


def pinned(seed: int, start: int, step: int, each: int = 4) -> Iterator[Case]:
    """Draw every `step`-th of the cases of pinned rows, a few of each."""
    for number in range(start, each * len(axes.PINNED), step):
        row = [*axes.PINNED.values()][number // each]
        random = np.random.default_rng([seed, number, 98])
        dealt = {name: pick(random, rows) for name, rows in tables_of(row["question"]).items()}
        yield made(dealt | dict(row), seed, 100_000 + number)


def fitting(row: Mapping[str, str], random: axes.Random) -> dict[str, str]:
    """Replace the rows that do not go with each other, and those that a focus names."""
    tables = tables_of(row["question"])
    focus = axes.FOCI.get(row["focus"], {})
    row = dict(row) | {k: v for k, v in focus.items() if v in tables.get(k, ())}

    def keep(table: str, options: Any) -> None:
        if row[table] not in options:
            row[table] = pick(random, options)

    if row["measure"] != "count":
        keep("dtype", [d for d in axes.DTYPES if np.dtype(d).kind in "iufmM"])
    moves = QUESTIONS[row["question"]].moves
    if row["dtype"] not in (axes.COMPILED_WINDOWS if moves else axes.COMPILED):
        row["kernels"] = "NumPy"
    if row["kernels"] == "compiled" or row["home"] == "expression":
        row["layout"] = "C"  # another layout is another kernel to compile
    if row["question"] == "radix_sort" and row["home"] in ("plain", "expression"):
        row["home"] = "tasks"  # it takes arrays of dask alone
    if row["dtype"] == "?" and "nodata" in row["missing"]:
        row["missing"] = "where"
    slots_ = axes.SLOTS[row["slots"]]
    least = next(n for n in range(5) if slots_.fits(n))
    ndims = dict.fromkeys(axes.SHAPES, 0) | axes.DIMENSIONS
    if ndims[row["shape"]] < least:
        row["shape"] = pick(random, [name for name, n in ndims.items() if n >= least])
    if "lazy" in slots_.groups and "along" in slots_.groups:
        # Documented: one task holds a lane, which must fit the limit.
        keep("limits", [name for name in axes.LIMITS if "columns" not in name])
    if row["shape"] == "0-d" and row["missing"] == "masked":
        row["missing"] = "where"  # dask does not declare that such an array is masked
    if row["home"] == "unknown sizes":
        # A companion must be of the same unknown chunks.
        row["companion cuts"], row["weights of"] = "alike", "elements"
        if row["missing"] == "where broadcast":
            row["missing"] = "where"
        if slots_.groups or row["shape"] == "0-d":
            row["home"] = "tasks"
    if moves and row["home"] == "unknown sizes":
        row["home"] = "tasks"  # windows reach so many elements
    if row["question"] == "sort_by" and row["home"] in ("unknown sizes", "expression"):
        row["home"] = "tasks"  # places are of known sizes, and of dask
    return row


def made(row: Mapping[str, str], seed: int, number: int) -> Case:
    """Make the case of a row."""
    random = np.random.default_rng([seed, number, 99])
    row = fitting(row, random)
    question = QUESTIONS[row["question"]]
    shape = axes.SHAPES[row["shape"]](random)
    n = int(np.prod(shape))
    named = row.get("data")
    row["data"] = pick(random, axes.distributions(row["dtype"]))
    if random.random() < 0.5:
        row["data"] = axes.FEW
    wanted = axes.FOCI.get(row["focus"], {}).get("data", named)
    if wanted in axes.distributions(row["dtype"]):
        row["data"] = wanted
    with np.errstate(all="ignore"):
        values = axes.elements(row["data"], row["dtype"], n, random).reshape(shape)
    weighs = row["measure"] != "count"
    arguments = question.draw(random, values.dtype.kind, weighs)
    if row["question"] == "quantile" and row["slots"] == "all" and not weighs:
        arguments["strategy"] = draw_strategy(random)
    if row["asked"] == "elements":
        arguments["bins"] = np.sort(
            random.choice(values.ravel(), 3).astype(pick(random, ["i8", "f8"]))
        )
    if row["asked"] == "large windows":
        large = {"size": [9, 12, 5], "marks": None}
        arguments |= large if "size" in arguments else {"window": [5, 7, 6], "step": 1}
    if row["asked"] == "tenths":
        arguments |= {"q": (np.arange(11) / 10).tolist(), "method": "averaged_inverted_cdf"}
    if row["asked"] == "near the ends":
        unit = 100 if "percentile" in question.name else 1
        q = np.asarray(arguments["q"]) / unit
        arguments["q"] = (unit * np.where(q < 0.5, q / 20, 1 - (1 - q) / 20)).tolist()
    is_quantile = question.definition is definitions.quantiles
    if is_quantile and (row["asked"] == "filled" or random.random() < 0.2):
        arguments["fill_value"] = np.array(1, row["dtype"])[()]
    if row["home"] == "unknown sizes":
        arguments.pop("chunks", None)
    other = None
    if not row["focus"]:
        other = axes.other_elements(row["bits"], row["dtype"], n, np.random.default_rng(number))
    case = Case(
        row,
        values,
        axes.chunks_of(shape, row["cuts"], random),
        arguments,
        {},
        keepdims=question.keeps_dims
        and not axes.SLOTS[row["slots"]].groups
        and random.random() < 0.3,
        seed=(seed, number),
    )
    case = _with_companions(case, random)
    if other is None or np.ma.isMA(case.values):
        return case
    return replace(case, row={**case.row, "data": row["bits"]}, values=other.reshape(shape))


def on_device(case: Case) -> Case | None:
    """The same case of CuPy arrays; None where there are no such."""
    row = {**case.row, "arrays": "CuPy", "layout": "C", "route": "function", "finish": "compute"}
    row["source"] = "plain"
    if row["home"] == "expression":
        row["home"] = "tasks"
    arrays = case.values, *case.beside.values()
    is_possible = all(CUPY.supports(a.dtype) for a in arrays) and not np.ma.isMA(case.values)
    return replace(case, row=row) if is_possible else None


def of_standard(case: Case) -> Case | None:
    """The same case of arrays of the array API standard, in memory; None where there are none."""
    row = {**case.row, "arrays": "standard", "home": "plain", "layout": "C"}
    some = {definitions.quantiles, definitions.mad, definitions.iqr, definitions.order_statistic}
    some.add(definitions.trimmed_mean)
    is_possible = case.values.dtype.kind in "biuf" and case.values.dtype != np.float16
    is_possible &= case.question.definition in some
    is_possible &= not (case.slots.groups or np.ma.isMA(case.values))
    return replace(case, row=row) if is_possible else None


def _with_companions(case: Case, random: axes.Random) -> Case:
    beside: dict[str, Array] = {}
    row, values = case.row, case.values
    shape = values.shape
    along = tuple(shape[i] for i in case.axes)
    if case.slots.groups == "windows":
        case = replace(case, windows=_windows(along[0], random))
    elif case.slots.groups:
        of = along if "along" in case.slots.groups else shape
        labels = random.integers(0, pick(random, [1, 3, 9]), int(np.prod(of))).reshape(of)
        named = axes.LABELS[row["labels"]]
        beside["labels"] = named(labels)
        are_named = row["labels"] not in ("bools", "all missing")
        if "lazy" not in case.slots.groups and random.random() < 0.3 and are_named:
            case = replace(case, groups=[*named(np.array([2, 0, 7]))])
    if row["measure"] != "count":
        weigh = axes.WEIGHTS[row["measure"]]
        if row["weights of"] == "axes" and case.axis is not None:
            beside["weights"] = weigh(np.zeros(int(np.prod(along))), random).reshape(along)
        else:
            beside["weights"] = weigh(values.ravel(), random).reshape(shape)
    draw_mask = axes.MASKS[row["mask"]]
    if "where" in row["missing"]:
        is_broadcast = row["missing"] == "where broadcast" and shape
        about = values[0] if is_broadcast and len(values) else values
        beside["where"] = draw_mask(about.ravel(), random).reshape(about.shape)
    if row["missing"] == "masked":
        mask = ~draw_mask(values.ravel(), random).reshape(shape)
        case = replace(case, values=np.ma.masked_array(values, mask))
    if "nodata" in row["missing"] and values.size:
        is_missing = values.dtype.kind == "f" and random.random() < 0.4
        nodata = values.dtype.type("nan") if is_missing else pick(random, values.ravel())
        if random.random() < 0.4:
            nodata = np.array([nodata, *random.choice(values.ravel(), 2)], values.dtype)
        case = replace(case, nodata=nodata)
    return replace(case, beside=beside)


def _windows(n: int, random: axes.Random) -> dict[str, list[int]]:
    """Windows of places along an axis: some that go on at its begin, one empty, one of all."""
    width = int(random.integers(1, n + 2))
    windows = {
        f"from {start}": sorted({(start + i) % n for i in range(min(width, n))})
        for start in random.integers(0, max(1, n), pick(random, [2, 12])).tolist()
        if n
    }
    return windows | {"none": [], "all": [*range(n)]}


# --- Asking ---------------------------------------------------------------------------------------


class Counted(Reading):
    """An array that is read by chunks, and counts how often.

    Parameters
    ----------
    values : ndarray
    changed : callable, optional
        ``(values of a chunk, its place, number of its load) -> values``.
    """

    def __init__(self, values: Array, changed: Callable[[Array, Any, int], Array] | None = None):
        super().__init__(values.shape, values.dtype)
        self.values, self.changed = values, changed

    def __getitem__(self, index: Any) -> Array:
        index = index if isinstance(index, tuple) else (index,)
        place = tuple((i.start, i.stop) if isinstance(i, slice) else i for i in index)
        with self.lock:
            self.counts[place] += 1
            n = self.counts[place]
        result = self.values[index]
        result = result.copy() if self.values.flags.carray else result  # others lie as they should
        return result if self.changed is None else self.changed(result, place, n)

    def lazy(self, chunks: Any) -> da.Array:
        meta = self.values[(slice(0, 0),) * self.ndim] if self.ndim else self.dtype.type()
        return da.from_array(self, chunks=chunks, meta=meta, asarray=False)

    @property
    def most(self) -> int:
        """How often the chunk was read that was read most often. Chunks without elements are left
        out: several can be at one place."""
        return max(self.each, default=0)

    @property
    def each(self) -> set[int]:
        """How often chunks with elements were read."""
        return {n for place, n in self.counts.items() if self._has_elements(place)}

    def _has_elements(self, place: Any) -> bool:
        return all(end[0] < end[1] for end in place if isinstance(end, tuple))


def _identity(block: Array) -> Array:
    return block


def _second(block: Array, other: Array) -> Array:
    return other


@dataclass
class Lazy:
    """The lazy arrays of a case, and the sources that count their loads."""

    values: Any
    beside: dict[str, Any]
    sources: dict[str, Counted]


def lazily(case: Case, changed: Any = None) -> Lazy:
    """Make the lazy arrays of a case."""
    home = case.row["home"]
    sources: dict[str, Counted] = {}

    def source(name: str, a: Array, chunks: Chunks) -> Any:
        a = axes.laid_out(a, case.layout)
        if home in ("memory", "persisted"):
            is_other = name == "values" and home == "memory" and a.ndim and not np.ma.isMA(a)
            return axes.SOURCES[case.row.get("source", "plain") if is_other else "plain"](a, chunks)
        sources[name] = Counted(a, changed if name == "values" else None)
        return sources[name].lazy(chunks)

    if home == "expression":
        import dask_array

        x = dask_array.from_array(case.values, chunks=case.chunks)
        made = dask_array.from_array
    else:
        x, made = source("values", case.values, case.chunks), da.from_array
    beside: dict[str, Any] = {}
    random = np.random.default_rng(case.seed)
    for name, a in case.beside.items():
        is_alike = case.row["companion cuts"] == "alike" and a.shape == case.values.shape
        cuts = case.row["cuts" if case.row["companion cuts"] == "alike" else "companion cuts"]
        chunks = case.chunks if is_alike else axes.chunks_of(a.shape, cuts, random)
        if name == "labels" and "lazy" not in case.slots.groups:
            beside[name] = a
        elif home == "expression":
            beside[name] = made(a, chunks=chunks)
        else:
            lazy = source(name, a, chunks)
            if home == "shared" and is_alike and a.ndim:
                lazy = da.map_blocks(_second, x, lazy, dtype=a.dtype, meta=np.empty(0, a.dtype))
            beside[name] = lazy
    if case.is_on_device:
        arrays = (x, *beside.values())  # labels in memory stay where they are
        x, *others = (CUPY.mapped(a) if isinstance(a, da.Array) else a for a in arrays)
        beside = dict(zip(beside, others, strict=True))
        if home == "memory":
            x = x.persist(scheduler="sync")
    if home == "persisted":
        x = x.persist(scheduler="sync")
    if home == "unknown sizes":
        hide = partial(_hidden, n=case.values.ndim)
        x, beside = hide(x), {name: hide(a) for name, a in beside.items()}
    return Lazy(x, beside, sources)


def _hidden(x: Any, n: int) -> Any:
    """An array of the same chunks, whose sizes along the first axis dask does not know."""
    chunks = ((np.nan,) * len(x.chunks[0]), *x.chunks[1:])
    return x.map_blocks(_identity, chunks=chunks, dtype=x.dtype, meta=x._meta)


def grouped(case: Case, values: Any, beside: Mapping[str, Any]) -> Any:
    """Divide the elements into the groups of a case."""
    by = beside["labels"] if case.windows is None else case.windows
    return groupby(values, by, case.axis, groups=case.groups)


def ask(case: Case, values: Any, beside: Mapping[str, Any]) -> Any:
    """Call the function of a question."""
    how: dict[str, Any] = dict(case.asked)
    how |= {name: beside[name] for name in ("weights", "where") if name in beside}
    if case.nodata is not None:
        how["nodata"] = case.nodata
    if case.keepdims:
        how["keepdims"] = True
    if case.slots.groups:
        return getattr(grouped(case, values, beside), case.question.name)(**how)
    function = case.question.function
    assert function is not None
    if case.question.takes_axis:
        how["axis"] = case.axis
    if not isinstance(values, da.Array):
        return function(values, **how)
    return _routed(case, values, function, how)


def _routed(case: Case, x: da.Array, function: Callable[..., Any], how: dict[str, Any]) -> Any:
    """Call the function, the accessor's method, or the function of dask that ours replaces."""
    name, route = case.question.name, case.row.get("route", "function")
    is_public = function.__module__.startswith("dask_gpuselect")
    if route == "accessor" and is_public and hasattr(x.exact, name):
        return getattr(x.exact, name)(**how)
    if (
        route == "replaced"
        and name in FUNCTIONS
        and how.keys() <= {"q", "method", "axis", "keepdims"}
    ):
        with dask_gpuselect.enable():
            return getattr(da, name)(x, **how)
    return function(x, **how)


@contextmanager
def surroundings(case: Case) -> Iterator[None]:
    """Set the limits, the scheduler, the kernels and the sizes of a case. A warning breaks a law,
    but for NumPy's own."""
    large = 0 if case.row["kernels"] == "compiled" else np.inf
    limits, parts = axes.LIMITS[case.row["limits"]], axes.PARTS[case.row["parts"]]
    config = {f"dask_gpuselect.{name}": value for name, value in limits.items()}
    config |= axes.CONFIG[case.row.get("config", "as it is")]
    errors: Any = case.row.get("floating-point errors", "ignore")
    with (
        warnings.catch_warnings(record=True) as given,
        np.errstate(all=errors),
        ExitStack() as stack,
        patch.multiple(compiling, LARGE=large, PATIENCE=np.inf),
        patch.object(lane_plans, "ONE_TASK", parts.task),
        patch.object(exchange, "PAIRS", parts.pairs),
        patch.object(boxes, "ROOM", parts.room),
        patch.multiple(windows, SLAB=parts.slab, ROWS=parts.slab >> 7),
    ):
        for name, value in axes.SIZES[case.row.get("sizes", "usual")].items():
            module, _, attribute = f"dask_gpuselect.{name}".rpartition(".")
            stack.enter_context(patch.object(importlib.import_module(module), attribute, value))
        if case.row.get("ways") and case.row["kernels"] == "compiled":
            turns = itertools.cycle([True, False, False, True, True])
            by_turns = patch.object(compiling, "_is_by_kernels", lambda *_: next(turns))
            stack.enter_context(by_turns)
        warnings.simplefilter("always")
        with dask.config.set({"scheduler": case.row["scheduler"], "num_workers": 2} | config):
            try:
                yield
            finally:
                wait_for_threads()  # or tasks that an error has left would warn in the next case
    WARNED[:] = [f"{each.category.__name__}: {each.message}" for each in given]
    for text in WARNED:
        assert NUMPYS_WARNINGS.search(text), f"a warning: {text}"


WARNED: list[str] = []
"""The warnings of the case that was computed last."""
NUMPYS_WARNINGS = re.compile(
    "All-NaN slice|Mean of empty slice|not settled after|use of fork|large graph|full garbage"
    "|Computing mixed collections"  # of expressions, and boxes, which are none
)


def computed(case: Case, lazy: Lazy | None = None) -> Any:
    """The answer to a case, computed."""
    with surroundings(case):
        if case.row["home"] == "plain" and case.backend is not NUMPY:
            make = case.backend.asarray
            beside = {name: make(a) for name, a in case.beside.items()}
            return _in_kind(case, ask(case, make(case.values), beside))
        if case.row["home"] == "plain":
            return ask(case, axes.laid_out(case.values, case.layout), case.beside)
        lazy = lazy or lazily(case)
        with Callback(start=refuse):
            answer = ask(case, lazy.values, lazy.beside)
        (result,) = axes.FINISHES[case.row.get("finish", "compute")](answer)
        _as_declared(answer, result)
        return _in_kind(case, result)


def _in_kind(case: Case, result: Any) -> Any:
    """Return an array of the kind of the case's as NumPy's, and other answers as they are."""
    is_array = hasattr(result, "dtype") and hasattr(result, "shape")
    return case.backend.to_numpy(result) if is_array else result


def _as_declared(answer: Any, result: Any) -> None:
    """Compare what an answer said of itself with what it is."""
    is_array = hasattr(answer, "_meta") and hasattr(answer, "chunks")
    if not is_array or result is np.ma.masked:  # that constant is float64, whatever is masked
        return
    assert answer.dtype == result.dtype == answer._meta.dtype, (answer.dtype, result.dtype)
    assert is_cupy(answer._meta) == is_cupy(result), (type(answer._meta), type(result))
    pairs = zip(answer.shape, np.shape(result), strict=True)
    assert all(n == m or n != n for n, m in pairs), (answer.shape, np.shape(result))


# --- Smaller cases --------------------------------------------------------------------------------


def smaller(case: Case, fails: Callable[[Case], bool], most: int = 120) -> Case:
    """Make a failing case as simple as it can be, and still fail."""
    tried = 0
    progress = True
    while progress:
        progress = False
        for attempt in _simpler(case):
            tried += 1
            if tried > most:
                return case
            if fails(attempt):
                case, progress = attempt, True
                break
    return case


def _simpler(case: Case) -> Iterator[Case]:
    simple = {
        "layout": "C",
        "parts": "64 MiB",
        "home": "memory",
        "scheduler": "sync",
        "limits": "defaults",
        "sizes": "usual",
        "source": "plain",
        "route": "function",
        "finish": "compute",
        "config": "as it is",
        "floating-point errors": "ignore",
        "ways": "",
    }
    for table, value in simple.items():
        if case.row.get(table, value) != value:
            yield replace(case, row={**case.row, table: value})
    for name in ("where", "weights"):
        if name in case.beside:
            yield replace(case, beside={k: v for k, v in case.beside.items() if k != name})
    if case.nodata is not None:
        yield replace(case, nodata=None)
    if case.keepdims:
        yield replace(case, keepdims=False)
    if np.ndim(case.asked.get("q", 0)) and case.question.definition is definitions.quantiles:
        for q in np.ravel(case.asked["q"]).tolist():
            yield replace(case, asked={**case.asked, "q": q})
    for axis, n in enumerate(case.values.shape):
        if case.windows is not None and axis in case.axes:
            continue  # windows tell places
        for part in (slice(n // 2), slice(n // 2, n), slice(n - 1), slice(1, n)) if n > 1 else ():
            yield _cut(case, axis, part)
        sizes = case.chunks[axis]
        if len(sizes) > 1:
            joined = (sizes[0] + sizes[1], *sizes[2:])
            yield replace(case, chunks=(*case.chunks[:axis], joined, *case.chunks[axis + 1 :]))


def _cut(case: Case, axis: int, part: slice) -> Case:
    """Leave a part of an axis."""
    n = case.values.shape[axis]
    index = (slice(None),) * axis + (part,)

    def cut(name: str, a: Array) -> Array:
        if a.shape == case.values.shape:
            return a[index]
        missing = case.values.ndim - a.ndim
        if name == "where":  # it broadcasts from the last axis on
            return a[(slice(None),) * (axis - missing) + (part,)] if axis >= missing else a
        of = case.axes.index(axis) if axis in case.axes else None
        return a if of is None else a[(slice(None),) * of + (part,)]

    ends = np.clip(np.cumsum([0, *case.chunks[axis]]) - part.indices(n)[0], 0, None)
    size = len(range(*part.indices(n)))
    sizes = tuple(np.diff(np.minimum(ends, size)).tolist())
    chunks = (*case.chunks[:axis], sizes, *case.chunks[axis + 1 :])
    beside = {name: cut(name, a) for name, a in case.beside.items()}
    return replace(case, values=case.values[index], chunks=chunks, beside=beside)


# --- Scripts --------------------------------------------------------------------------------------


def _code(a: Any) -> str:
    """Python text that makes an array."""
    if isinstance(a, np.ma.MaskedArray):
        return f"np.ma.masked_array({_code(a.data)}, {_code(np.ma.getmaskarray(a))})"
    if a.dtype.kind in "mM":
        return f"np.array({a.view('i8').tolist()}).view('{a.dtype.str}')"
    return f"np.array({a.tolist()}, '{a.dtype.str}')".replace("nan", "np.nan").replace(
        "inf", "np.inf"
    )


def script(case: Case, problem: str) -> str:
    """Tell a case as a script that fails by itself, and needs nothing but the package."""
    limits = {f"dask_gpuselect.{k}": v for k, v in axes.LIMITS[case.row["limits"]].items()}
    shapes = {"a": case.values, **{k: np.asarray(v) for k, v in case.beside.items()}}
    lines = [
        f"# {case.question.name}: " + ", ".join(f"{k}: {v}" for k, v in case.row.items()),
        f"# seed {case.seed[0]}, number {case.seed[1]}: {problem.splitlines()[0]}",
        "import dask, dask.array as da, numpy as np, dask_gpuselect",
        "from dask_gpuselect import distribution, groups, robust, windows",
    ]
    for name, a in shapes.items():
        lines.append(f"{name} = {_code(a)}.reshape({a.shape})")
    if case.layout != "C":
        lines.append(f"a = {axes.LAYOUTS[case.layout]}")
    lines.append(f"x = da.from_array(a, chunks={case.chunks}).map_blocks(lambda block: block)")
    lines.append(f"with dask.config.set({ {'scheduler': case.row['scheduler'], **limits} }):")
    lines.append(f"    print({_call(case)}.compute())")
    try:
        lines.append(f"print('expected', {str(case.expected()).splitlines()!r})")
    except definitions.Refused as refused:
        lines.append(f"print('expected', '{' or '.join(kind.__name__ for kind in refused.kinds)}')")
    return "\n".join(lines)


def _call(case: Case) -> str:
    """Python text that asks the question of `x`."""
    left_out = ["where=where"] if "where" in case.beside else []
    left_out += [f"nodata={_code(np.asarray(case.nodata))}"] if case.nodata is not None else []
    name = case.question.name
    if case.question.definition is definitions.rolling:
        about, arguments = rolled(case.asked, case.axes)
        text = ", ".join(["x", *_arguments(about), *left_out])
        return (
            f"windows.rolling({text}).{case.asked['statistic']}({', '.join(_arguments(arguments))})"
        )
    if case.question.definition is definitions.rank_filter:
        about = filter_arguments(case.asked, case.axes)
        return f"windows.{name}({', '.join(['x', *_arguments(about)])})"
    how = _arguments(case.asked) + (["weights=weights"] if "weights" in case.beside else [])
    how += left_out
    how += ["keepdims=True"] if case.keepdims else []
    if case.slots.groups:
        by = "labels" if case.windows is None else case.windows
        grouped = f"groups.groupby(x, {by}, {case.axis}, groups={case.groups})"
        return f"{grouped}.{name}({', '.join(how)})"
    axis = [f"axis={case.axis}"] if case.question.takes_axis else []
    call = f"{case.question.module}.{name}({', '.join(['x', *axis, *how])})"
    if name == "sort_by":
        call = call.replace("(x", "(x, da.arange(x.size, chunks=x.chunks)") + "[1]"
    return call


def _arguments(arguments: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_literal(value)}" for name, value in arguments.items()]


def _literal(value: Any) -> str:
    return _code(value) if isinstance(value, np.ndarray) else repr(value)
