"""A case: how it is drawn, asked and judged."""

from __future__ import annotations

import linecache
import logging
import os
import pickle
import re
import select
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
from dask.callbacks import Callback

import dask_gpuselect as ours
from dask_gpuselect.distribution import EmpiricalDistribution
from tests import oracle
from tests.hostile import dice
from tests.hostile.dice import Array, Dice, Held, Surroundings
from tests.hostile.doors import DOORS, SPOILS, Arguments, Beside, Broken, Door, holds, same

UNLIKE = ("robust fits", "spline", "rational spline", "noisy shares")  # points may not be equal
EAGER = ("robust fits", "neighbour estimators")  # `fit` computes
PACKAGE = os.path.dirname(ours.__file__) + os.sep
OF_OTHERS = ("/sklearn/", "/numpy/", "/dask/array/")  # whose checks of arguments are ours too
CLEAN = (TypeError, ValueError, IndexError, NotImplementedError, OSError, ImportError, MemoryError)
CLEAR = re.compile(  # what Python and NumPy say of their own accord, and well
    "cannot be interpreted as an integer|inhomogeneous shape|str, bytes or os.PathLike|No such file"
)
EXPECTED_WARNINGS = re.compile(
    "All-NaN slice|Mean of empty slice|not settled after|use of fork|large graph|full garbage"
    "|invalid value encountered in reduce"  # of scikit-learn, in its sum of huge numbers
)


@dataclass(frozen=True)
class Case:
    """What is asked of which data, and in what surroundings.

    Parameters
    ----------
    calls : tuple of (str, dict)
        Names of doors, and arguments; asked of one array, and computed together or one by one.
    spoiled : str
        What makes no sense in them; "" if all does.
    """

    a: Any
    calls: tuple[tuple[str, Arguments], ...]
    mode: str
    layout: str
    chunks: Any
    other_chunks: Any
    source: str
    unknown: int | None
    surroundings: Surroundings
    spoiled: str = ""

    def __repr__(self) -> str:
        with np.printoptions(threshold=60, edgeitems=4):
            lines = [f"{name} = {value!r}" for name, value in vars(self).items()]
        a = self.a
        about = f"{a.dtype} {a.shape}" if isinstance(a, np.ndarray) else type(a).__name__
        return "\n    ".join([f"{about}", *lines])


def is_taken(door: Door, a: Array, first: Door) -> bool:
    kind = {"u": "i", "M": "m"}.get(a.dtype.kind, a.dtype.kind)
    fits = kind in door.kinds and door.ndim[0] <= a.ndim <= door.ndim[1]
    return fits and door.fit is first.fit and door.divided == first.divided


def drawn(seed: int, number: int) -> Case:
    """The case of that number."""
    d = Dice(seed, number)
    names = [*DOORS]
    name = d.pick(names)
    door = DOORS[name]
    a = dice.drawn_data(d, dice.drawn_shape(d, *door.ndim), dice.drawn_dtype(d, door.kinds))
    a = door.fit(d, a)
    layout = d.pick(dice.LAYOUTS)
    layout = "C" if layout == "broadcast" and name in UNLIKE else layout
    a = np.array(dice.laid_out(a, layout), a.dtype) if layout == "broadcast" else a
    surroundings = Surroundings.drawn(d)
    calls = [(name, door.draw(d, a))]
    for _ in range(d.pick([0, 0, 0, 0, 1, 2])):
        more = [n for n in names if is_taken(DOORS[n], a, door) and DOORS[n].how == door.how]
        if more:
            calls.append((other := d.pick(more), DOORS[other].draw(d, a)))
    mode = d.pick(["lazy"] * 3 + ["plain"]) if door.how == "either" else door.how
    if mode == "plain":
        calls = [(n, arguments) for n, arguments in calls if DOORS[n].how != "lazy"]
    chunks, others = (dice.drawn_chunks(d, a.shape, door.divided) for _ in range(2))
    if name == "boxes of groups" and len(a) == 1:
        chunks = others = ((1,),)  # dask compares one element with the empty chunks beside it
    source = d.pick(dice.SOURCES) if door.divided > 1 else d.pick(["counted", "memory", "mapped"])
    if is_known := any(DOORS[n].sizes_known for n, _ in calls):
        source = "counted" if source == "selected" else source
    may_hide = a.ndim and door.divided > 1 and not is_known
    unknown = d.number(0, a.ndim - 1) if may_hide and d.chance(0.1) else None
    if source == "selected" or unknown is not None:
        calls = [(n, k | {key: v for key, v in DOORS[n].unsized.items()}) for n, k in calls]
    case = Case(a, tuple(calls), mode, layout, chunks, others, source, unknown, surroundings)
    return spoilt(d, case) if d.chance(0.15) else case


def spoilt(d: Dice, case: Case) -> Case:
    """The first call alone, with an argument or the data made senseless."""
    name, arguments = case.calls[0]
    if not DOORS[name].spoils:
        return case
    what = d.pick(["data", *DOORS[name].spoils * 2])
    options = senseless(name, what, case.mode, np.shape(case.a))
    return spoilt_by(case, what, d.pick(options)) if options else case


def senseless(name: str, what: str, mode: str, shape: tuple[int, ...]) -> Sequence[Any]:
    """What makes no sense as an argument, or as the data."""
    if what != "data":
        return (
            () if mode == "plain" and what in ("chunks", "split_every", "spill") else SPOILS[what]
        )
    kinds = [np.zeros(shape, kind) for kind in ("c16", "O", "U3", "V8", "i4,f8")]
    kinds += [] if DOORS[name].how == "plain" else [np.zeros(shape, "g")]  # rounded there
    masked = np.ma.masked_array(np.zeros(shape), np.zeros(shape, bool))
    options = [*kinds, *([] if DOORS[name].takes_masks else [masked])]
    if mode == "lazy":
        return options
    ragged = [] if name == "describe_boxplot" else [[[1.0], [2, 3]], {}]  # those are boxes
    return [*options, *ragged, None, "abc", 1j, {1, 2}, object(), b"x"]


def spoilt_by(case: Case, what: str, value: Any) -> Case:
    name, arguments = case.calls[0]
    given = {key: its for key, its in arguments.items() if key != "strategy"}
    plain = replace(case.surroundings, route="function", finish="compute", forked=False)
    text = re.sub(r"\s+|0x\w+", " ", f"{what}={value!r}")[:60]
    case = replace(case, surroundings=plain, calls=((name, given),), spoiled=text)
    if what == "data":
        return replace(case, a=value, layout="C", source="memory", unknown=None)
    return replace(case, calls=((name, given | {what: value}),))


# --- Asking ---------------------------------------------------------------------------------------


def lazily(case: Case, chunks: Any, source: str) -> tuple[da.Array, Held | None, Any]:
    """The array, what counts its loads, and how an array beside it is made."""
    a = dice.laid_out(case.a, case.layout) if isinstance(case.a, np.ndarray) else case.a
    counts = source in ("counted", "mapped") and a.ndim
    held = Held(a) if counts else None
    x = dice.lazy_source(a, chunks, source, held)
    if case.unknown is not None and case.unknown < x.ndim:
        x = x.map_blocks(lambda block: block, dtype=x.dtype, meta=x._meta)
        x._chunks = tuple(
            (np.nan,) * len(sizes) if i == case.unknown else sizes
            for i, sizes in enumerate(x.chunks)
        )

    def beside(value: Beside) -> Any:
        if value.chunks is None:
            return value.a
        if value.chunks != "along":
            return da.from_array(value.a, chunks=value.chunks)
        others = tuple((n,) for n in value.a.shape[1:])
        if source == "selected":
            return dice.lazy_source(value.a, (chunks[0], *others), source)
        if not np.isnan(x.shape[0]):
            return da.from_array(value.a, chunks=(x.chunks[0], *others))
        own = tuple(n for n in chunks[0] if n) or (0,) if source == "turned" else chunks[0]
        y = da.from_array(value.a, chunks=(own, *others))
        y._chunks = (x.chunks[0], *y.chunks[1:])
        return y

    return x, held, beside


def asked(x: Any, name: str, arguments: Arguments, route: str) -> Any:
    """By the function, the accessor, dask's function or NumPy's while ours are in their place."""
    if isinstance(x, da.Array) and route == "exact" and hasattr(x.exact, name):
        return getattr(x.exact, name)(**arguments)
    if isinstance(x, da.Array) and route in ("enabled", "numpy") and name in oracle.FUNCTIONS:
        with ours.enable():
            return getattr(da if route == "enabled" else np, name)(x, **arguments)
    return DOORS[name].ask(x, **arguments)


def begun(dsk: Any) -> None:
    raise Broken("computed at the call")


def finished(answers: list[Any], how: str) -> list[Any]:
    if how == "together":
        return list(dask.compute(*answers))
    if how == "parallel":
        with ThreadPoolExecutor(3) as pool:
            first, *others = pool.map(lambda _: dask.compute(*answers), range(3))
        for other in others:
            compare(first, other, "in another thread")
        return list(first)
    if how == "persist":
        answers = list(dask.persist(*answers))
    elif how == "optimize":
        answers = list(dask.optimize(*answers))
    elif how == "pickle":
        answers = [cloudpickle.loads(cloudpickle.dumps(answer)) for answer in answers]
    return [dask.compute(answer)[0] for answer in answers]


def in_child(ask: Any) -> Any:
    """What a forked process answers, within half a minute."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = pickle.dumps(ask())
        except BaseException as error:
            found = pickle.dumps(Broken(f"in a forked process: {error!r}"))
        with os.fdopen(write, "wb") as file:
            file.write(found)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        is_there = select.select([file], [], [], 30)[0]
        found = file.read() if is_there else b""
    if not is_there:
        os.kill(child, 9)
    os.waitpid(child, 0)
    if not found:
        raise Broken("hangs in a forked process")
    answer = pickle.loads(found)
    if isinstance(answer, Broken):
        raise answer
    return answer


@contextmanager
def without_warnings() -> Iterator[None]:
    """None are given, and nothing is logged."""
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


def values_of(arguments: Arguments) -> Arguments:
    return {k: v.a if isinstance(v, Beside) else v for k, v in arguments.items()}


def judge(case: Case) -> None:
    """Raise whatever is wrong."""
    before = pickle.dumps(case.a) if isinstance(case.a, np.ndarray) else None
    if case.spoiled:
        return judge_refusal(case)
    found = ask_all(case)
    for (name, arguments), answer in zip(case.calls, found, strict=True):
        if not isinstance(answer, Refused):
            with np.errstate(all="ignore"):
                DOORS[name].verify(answer, case.a, **values_of(arguments))
    if before is not None and pickle.dumps(case.a) != before:
        raise Broken("the data were changed")
    simple = replace(case, surroundings=Surroundings(), layout="C", unknown=None)
    if all(DOORS[name].same_bits for name, _ in case.calls) and case.mode == "lazy":
        again = ask_all(replace(simple, chunks=case.other_chunks, source="memory"))
        compare(found, again, "other chunks")
        if all(DOORS[name].how == "either" for name, _ in case.calls):
            compare(found, ask_all(replace(simple, mode="plain")), "plain")
    return None


class Refused:
    """In the place of an answer: what had to be refused was."""


def ask_all(case: Case) -> list[Any]:
    surroundings = case.surroundings
    with surroundings.entered(), without_warnings():
        if case.mode == "plain":
            a = dice.laid_out(case.a, case.layout)

            def ask() -> list[Any]:
                return [one(case, call, lambda n, k: asked(a, n, values_of(k), "function"))
                        for call in case.calls]  # fmt: skip

            found = in_child(ask) if surroundings.forked else ask()
            return [dask.compute(answer)[0] for answer in found]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, held, beside = lazily(case, case.chunks, case.source)

        def lazily_asked(name: str, given: Arguments) -> Any:
            lazy = {k: beside(v) if isinstance(v, Beside) else v for k, v in given.items()}
            if name in EAGER:
                return asked(x, name, lazy, surroundings.route)
            with Callback(start=begun):
                answer = asked(x, name, lazy, surroundings.route)
            holds(held is None or held.most == 0, "loaded at the call")
            return answer

        answers = [one(case, call, lazily_asked) for call in case.calls]
        limit = 0.0
        if held is not None and not any(refusal(case, c) for c in case.calls):
            limit = sum(DOORS[name].loads(x, **values_of(given)) for name, given in case.calls)
        # Refused while computing, where sizes were unknown at the call.
        found = []
        if surroundings.finish == "together" and not any(refusal(case, c) for c in case.calls):
            *found, itself = finished([*answers, x], "together")
            same(itself.astype(case.a.dtype), case.a, "the array itself")
        else:
            for call, answer in zip(case.calls, answers, strict=True):
                how = "compute" if surroundings.finish == "together" else surroundings.finish
                found.append(
                    one(
                        case,
                        call,
                        lambda *_, f=answer, how=how: finished([f], how)[0],
                        is_last=True,
                    )
                )
        # Dask loads twice what is optimised together and computed together afterwards.
        is_counted = (
            held and limit and surroundings.finish not in ("optimize", "together", "parallel")
        )
        if is_counted and not surroundings.cached:
            holds(held.most <= limit, f"{held.most} loads, and {limit} at most are documented")
        for answer, value in zip(answers, found, strict=True):
            declared(answer, value)
        return found


def refusal(case: Case, call: tuple[str, Arguments]) -> Any:
    name, given = call
    return DOORS[name].refusal(case.a, **values_of(given))


def one(case: Case, call: tuple[str, Arguments], ask: Any, is_last: bool = True) -> Any:
    """An answer, or that it was refused, as it had to be."""
    kind = refusal(case, call)
    if kind is None:
        return ask(*call)
    try:
        return ask(*call)
    except kind as error:
        check_clean(error)
        return Refused()


def declared(answer: Any, value: Any) -> None:
    if isinstance(answer, tuple) and isinstance(value, tuple):
        for each, its in zip(answer, value, strict=True):
            declared(each, its)
    elif isinstance(answer, da.Array) and not isinstance(value, Refused):
        holds(isinstance(value, np.ndarray | np.generic), f"a {type(value)}")
        holds(answer.dtype == value.dtype, f"declared {answer.dtype}, and is {value.dtype}")
        holds(answer._meta.dtype == value.dtype, f"meta {answer._meta.dtype}, and {value.dtype}")
        is_same = len(answer.shape) == len(value.shape) and all(
            n == m or n != n for n, m in zip(answer.shape, value.shape, strict=True)
        )
        holds(is_same, f"declared {answer.shape}, and is {value.shape}")


def compare(found: list[Any], again: list[Any], what: str) -> None:
    for one, other in zip(found, again, strict=True):
        if isinstance(one, Refused) or isinstance(other, Refused):
            continue
        for a, b in zip(leaves(one), leaves(other), strict=True):
            same(a, b, what)


def leaves(found: Any) -> list[Any]:
    """All numbers of an answer, as arrays."""
    if isinstance(found, ours.Boxplot):
        return [value for box in found for key, value in box.to_dict().items() if key != "label"]
    if isinstance(found, EmpiricalDistribution):
        return [found.points, found.below, found.upto, found.n_valid, found.n_missing]
    if isinstance(found, tuple | list):
        return [leaf for each in found for leaf in leaves(each)]
    return [found]


# --- Refusing -------------------------------------------------------------------------------------


def judge_refusal(case: Case) -> None:
    """What makes no sense has to be refused, by an error that was raised on purpose."""
    ((name, arguments),) = case.calls
    try:
        with case.surroundings.entered(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if case.mode == "plain":
                asked(case.a, name, values_of(arguments), "function")
            else:
                x, _, beside = lazily(case, case.chunks, "memory")
                lazy = {k: beside(v) if isinstance(v, Beside) else v for k, v in arguments.items()}
                with Callback(start=begun) if name not in EAGER else warnings.catch_warnings():
                    found = asked(x, name, lazy, "function")
                dask.compute(found)
    except Broken:
        raise
    except Exception as error:
        return check_clean(error)
    raise Broken(f"not refused: {name}: {case.spoiled}")


def check_clean(error: Exception) -> None:
    """Raise what is no error that a reader of its message can use."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    is_meant = line.startswith("raise") or any(part in frame.filename for part in OF_OTHERS)
    is_meant |= bool(CLEAR.search(str(error)))
    if not isinstance(error, CLEAN) or not is_meant or not str(error):
        raise error


# --- Failures -------------------------------------------------------------------------------------


def signature(error: BaseException, case: Case) -> str:
    """What failures have in common that have one cause."""
    name = "+".join(sorted({name for name, _ in case.calls}))
    ours_only = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)
    ]
    place = ""
    if ours_only and not isinstance(error, Broken):
        place = f" in {ours_only[-1].filename.removeprefix(PACKAGE)}:{ours_only[-1].name}"
    text = re.sub(r"-?\d[\d.e+-]*|nan|inf", "#", str(error).split("\n")[0])[:110]
    spoiled = f" [{case.spoiled}]" if case.spoiled else ""
    if place:
        return f"{type(error).__name__}{place}: {text}"
    return f"{type(error).__name__}: {name}{spoiled}: {text}"


def failure_of(case: Case) -> BaseException | None:
    try:
        judge(case)
    except Exception as error:
        return error
    return None
