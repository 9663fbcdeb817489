"""A hostile case: one of the matrix, or of a function that the matrix does not ask, of other data
and in other surroundings. It is judged by the laws of the matrix."""

from __future__ import annotations

import linecache
import logging
import os
import pickle
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import dask.array as da
import numpy as np
from dask.callbacks import Callback

import dask_gpuselect as ours
from tests.hostile.around import SOURCES, Around, Held, in_child, leaves
from tests.hostile.doors import DOORS, Door, as_table
from tests.hostile.recipes import Breeder
from tests.hostile.senseless import SENSELESS, options, refused
from tests.matrix import axes, cases, laws
from tests.matrix.campaign import LIMIT_TOO_SMALL
from tests.matrix.cases import Case, Lazy
from tests.matrix.laws import Broken, same
from tests.matrix.questions import QUESTIONS, pick

PACKAGE = os.path.dirname(ours.__file__) + os.sep
OF_OTHERS = ("/sklearn/", "/numpy/", "/dask/array/")  # whose checks of arguments are ours too
CLEAN = (TypeError, ValueError, IndexError, NotImplementedError, OSError, ImportError, MemoryError)
CLEAR = re.compile(  # what Python and NumPy say of their own accord, and well
    "cannot be interpreted as an integer|inhomogeneous shape|str, bytes or os.PathLike|No such file"
)
EXPECTED_WARNINGS = re.compile(
    "All-NaN slice|Mean of empty slice|not settled after|use of fork|large graph|full garbage"
    "|Computing mixed collections"  # of expressions, and boxes, which are none
    "|invalid value encountered in reduce"  # of scikit-learn, in its sum of huge numbers
)
LAWS = ("any chunks", "any order", "q ascends", "counts repeat", "groups alone", "masks compress")
"""Beside `right`: those that only compare answers."""

LARGER = {
    "long": lambda r: (int(r.integers(1000, 20_000)),),
    "map": lambda r: (int(r.integers(50, 400)), int(r.integers(2, 30))),
    "stack": lambda r: tuple(r.integers(2, 9, 4).tolist()),
}
"""Shapes in place of smaller ones of the matrix."""


@dataclass(frozen=True)
class Hostile:
    """What is asked of which data, and in what surroundings.

    Parameters
    ----------
    case : Case
        Of the matrix, with arguments of its question or of the door.
    around : Around
    door : str
        In `DOORS`; "" for the question of the case.
    law : str
        Of the matrix, beside `right`.
    spoiled : tuple
        Instead of all this: a call, the argument that makes no sense, and what it is.
    """

    case: Case
    around: Around = Around()
    door: str = ""
    law: str = "right"
    spoiled: tuple[str, str, Any] | None = None

    @property
    def name(self) -> str:
        return self.spoiled[0] if self.spoiled else self.door or self.case.question.name


# --- Drawing --------------------------------------------------------------------------------------


def drawn(seed: int, number: int) -> Hostile:
    """Draw the case of that number."""
    random = np.random.default_rng([seed, number])
    name = pick(random, [*QUESTIONS, *DOORS])
    door = DOORS.get(name)
    row = {"question": "order_statistic" if door else name}
    row |= {k: pick(random, rows) for k, rows in cases.tables_of(row["question"]).items()}
    if door is not None:
        row |= {"missing": "nothing", "companion cuts": "whole", "focus": ""}
        row["dtype"] = pick(random, [d for d in axes.DTYPES if np.dtype(d).kind in door.kinds])
        homes = [home for home in axes.HOMES if home not in ("plain", "shared", "expression")]
        homes = ["plain"] if random.random() < 0.25 else homes
        row["home"] = pick(random, [h for h in homes if not door.sizes_known or "unk" not in h])
    # Fractions of many elements, as of boxes, take long.
    is_large = random.random() < 0.1 and name != "describe_boxplot"
    with patch.dict(axes.SHAPES, LARGER if is_large else {}):
        case = cases.made(row, seed, number)
    case = with_hostile_data(case, random)
    if door is not None:
        case = of_door(door, case, random)
    around = Around.drawn(random, case.row["home"])
    if np.ma.isMA(case.values) or case.beside or not case.values.ndim:
        around = replace(around, source="")
    hostile = Hostile(case, around, "" if door is None else name)
    if random.random() < 0.1:
        call, what = pick(random, SENSELESS)
        values = options(call, what, is_lazy=row["home"] != "plain")
        return replace(hostile, spoiled=(call, what, pick(random, values))) if values else hostile
    if door is None:
        hostile = replace(hostile, law=pick(random, LAWS))
    return hostile


def with_hostile_data(case: Case, random: axes.Random) -> Case:
    """Draw other elements for every second case: of a recipe, or of any bits."""
    kind, shape, n = case.values.dtype.kind, case.values.shape, case.values.size
    if kind not in "biuf" or np.ma.isMA(case.values) or not n or random.random() < 0.5:
        return case
    if kind == "f" and random.random() < 0.2:
        values = np.frombuffer(random.bytes(case.values.nbytes), case.values.dtype)
    else:
        values = Breeder(random).new(case.row["dtype"]).made(n, 9).values
    row = {**case.row, "data": "hostile"}
    return replace(case, row=row, values=np.array(values).reshape(shape))


def of_door(door: Door, case: Case, random: axes.Random) -> Case:
    """Give a case the data and arguments of a door."""
    a = as_table(random, np.ma.getdata(case.values))
    chunks = (axes.chunks_of(a.shape, case.row["cuts"], random)[0], (a.shape[1],))
    asked, beside = door.draw(random, a)
    row = {**case.row, "companion cuts": "whole" if "Q" in beside else "alike"}
    return replace(case, row=row, values=a, chunks=chunks, asked=asked, beside=beside, nodata=None)


# --- Asking ---------------------------------------------------------------------------------------


def lazily(case: Case, *, around: Around) -> Lazy:
    """Make the lazy arrays of a case, of sources that can be sent."""
    with warnings.catch_warnings(), patch.object(cases, "Counted", Held):
        warnings.simplefilter("ignore")
        lazy = cases.lazily(case)
        source = SOURCES.get(around.source if case.row["home"] != "tasks" else "")
        x = (
            lazy.values
            if source is None
            else source(axes.laid_out(case.values, case.layout), case.chunks)
        )
    return Lazy(x, lazy.beside, lazy.sources if around.loads_count else {})


def asked(case: Case, x: Any, beside: Any, *, around: Around, door: Door | None) -> Any:
    """Ask by the function, the accessor, or what is called when ours are in its place."""
    if door is not None:
        return door.ask(x, **case.asked, **beside)
    question = case.question
    if isinstance(x, da.Array) and question.function is not None:
        routed = replace(question, function=around.routed(question.name, question.function))
        with patch.dict(QUESTIONS, {question.name: routed}):
            return cases.ask(case, x, beside)
    return cases.ask(case, x, beside)


def computed(case: Case, lazy: Lazy | None = None, *, hostile: Hostile) -> Any:
    """Ask and compute a case in the surroundings of a hostile one."""
    around = hostile.around
    door = DOORS.get(hostile.door)
    ask = partial(asked, around=around, door=door)
    try:
        with cases.surroundings(case), around.entered(), without_warnings():
            if case.row["home"] == "plain":
                now = partial(ask, case, axes.laid_out(case.values, case.layout), case.beside)
                return in_child(now) if around.forked else now()
            lazy = lazy or lazily(case, around=around)
            with Callback(start=cases._refuse):
                answer = ask(case, lazy.values, lazy.beside)
            is_masked = np.ma.isMA(case.values)  # which warns of its own where dask joins it
            together = [lazy.values] * (around.finish == "together" and not is_masked)
            found, *itself = around.finished([answer, *together])
            cases._as_declared(answer, found)
    except CLEAN as error:
        check_clean(error)
        raise
    if itself:
        same(np.asarray(itself[0]).astype(case.values.dtype), case.values, "the array itself")
    return found


@contextmanager
def without_warnings() -> Iterator[None]:
    """Look whether a warning is given, or something logged."""
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("distributed").addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            yield
    finally:
        logging.getLogger("distributed").removeHandler(handler)
    for text in (*(f"{each.category.__name__}: {each.message}" for each in told), *logged):
        if not EXPECTED_WARNINGS.search(text):
            raise Broken(f"warning: {text}")


# --- Judging --------------------------------------------------------------------------------------


def judge(hostile: Hostile) -> None:
    """Raise whatever is wrong."""
    case, before = hostile.case, pickle.dumps(hostile.case.values)
    if hostile.spoiled:
        is_lazy = case.row["home"] != "plain"
        return refused(*hostile.spoiled, check_clean, is_lazy=is_lazy, values=case.values)
    made = {"lazily": partial(lazily, around=hostile.around)}
    made["computed"] = partial(computed, hostile=hostile)
    try:
        with patch.multiple(laws, **made):
            if hostile.door:
                judge_door(hostile)
            else:
                laws.LAWS["right"].check(case)
                law = laws.LAWS[hostile.law]
                if hostile.law != "right" and law.applies(case):
                    law.check(case)
    except ValueError as error:
        if LIMIT_TOO_SMALL not in str(error):
            raise
    if pickle.dumps(case.values) != before:
        raise Broken("the data were changed")
    return None


def judge_door(hostile: Hostile) -> None:
    """Judge what the matrix does not ask."""
    case, door = hostile.case, DOORS[hostile.door]
    lazy = lazily(case, around=hostile.around)
    try:
        found = computed(case, lazy, hostile=hostile)
    except (IndexError, ValueError):
        if case.values.size:
            raise
        return  # as NumPy, of nothing
    if case.values.size:
        with np.errstate(all="ignore"):
            door.verify(found, case.values, **case.asked, **case.beside)
    if (source := lazy.sources.get("values")) is not None and source.most > door.loads:
        raise Broken(f"{source.most} loads, and {door.loads} are stated")
    for home in ("tasks", "plain"):
        chunks = axes.chunks_of(case.values.shape, "odd", np.random.default_rng(case.seed))
        chunks = (chunks[0], *case.chunks[1:]) if case.values.ndim else ()
        again = computed(
            replace(case, chunks=chunks, row={**case.row, "home": home}), hostile=hostile
        )
        for one, other in zip(leaves(found), leaves(again), strict=True):
            same(one, other, f"{home}, other chunks")


def check_clean(error: Exception) -> None:
    """Raise what is no error that a reader of its message can use."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    is_meant = line.startswith("raise") or any(part in frame.filename for part in OF_OTHERS)
    is_meant |= bool(CLEAR.search(str(error)))
    if not isinstance(error, CLEAN) or not is_meant or not str(error):
        raise Broken(f"unclear: {type(error).__name__}: {error}") from error


# --- Failures -------------------------------------------------------------------------------------


def failure_of(hostile: Hostile) -> BaseException | None:
    try:
        judge(hostile)
    except Exception as error:
        return error
    return None


def signature(error: BaseException, hostile: Hostile) -> str:
    """Tell what failures have in common that have one cause."""
    trace = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in trace if frame.filename.startswith(PACKAGE)]
    text = re.sub(r"-?\d[\d.e+-]*|nan|inf", "#", str(error).split("\n")[0])[:110]
    if places and not isinstance(error, Broken):
        place = f"{places[-1].filename.removeprefix(PACKAGE)}:{places[-1].name}"
        return f"{type(error).__name__} in {place}: {text}"
    return f"{type(error).__name__}: {hostile.name}: {text}"
