"""Data made to be slow, as recipes: steps that make normal data hostile.

A search for data that are slow has found them, with many more steps than those that are left here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.chunk_sample import ChunkOrder
from tests.data import FLOATS, MISSING, hashed, normal

Array = NDArray[Any]
Floats = NDArray[np.float64]
Step = tuple[Any, ...]
"""The name of a step, and its parameters."""

N_GROUPS = 18
SPECIALS = {"inf": np.inf, "nan": np.nan, "subnormal": 5e-324}

# --- Where elements are ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """Elements in chunks.

    Parameters
    ----------
    sizes : tuple of int
        Elements of each chunk.
    """

    sizes: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def n_chunks(self) -> int:
        return len(self.sizes)

    @property
    def turns(self) -> NDArray[np.int64]:
        """When each chunk is read, among all: from 0."""
        return ChunkOrder.evenly(self.n_chunks).turns()

    def numbers(self, salt: int) -> Floats:
        """A number in [0, 1) for every element."""
        return _numbers(self.n, salt)

    def spread(self, of_chunks: Array) -> Array:
        """Something of every chunk, for all its elements."""
        return np.repeat(of_chunks, self.sizes)


@lru_cache(maxsize=24)
def _numbers(n: int, salt: int) -> Floats:
    return hashed(np.arange(n) + (salt << 42))


@lru_cache(maxsize=2)
def _normal(n: int) -> Floats:
    return normal(n)


CHUNKS: Mapping[str, Callable[[int], Floats]] = {
    "even": lambda n: np.ones(n),
    "growing": lambda n: 1.5 ** np.arange(n, dtype=float),
    "shrinking": lambda n: 0.8 ** np.arange(n, dtype=float),
    "any": lambda n: _numbers(n, 5) ** 4,
}
"""How large chunks are, beside each other."""


def frame(chunks: str, n: int, n_chunks: int) -> Frame:
    """So many elements in so many chunks."""
    ends = np.cumsum(CHUNKS[chunks](n_chunks))
    places = np.rint(ends / ends[-1] * n).astype(int)
    return Frame(tuple(np.diff(places, prepend=0).tolist()))


# --- Steps ----------------------------------------------------------------------------------------


def _exponents(x: Floats, at: Frame, span: int, salt: int) -> Floats:
    return np.copysign(2.0 ** ((at.numbers(salt) - 0.5) * span), x)


def _by_turns(x: Floats, at: Frame) -> Floats:
    """Order elements so that chunks ascend in the order in which they are read."""
    sizes, turn = np.array(at.sizes), np.argsort(at.turns)
    starts = np.empty(len(sizes), np.int64)
    starts[turn] = np.cumsum(sizes[turn]) - sizes[turn]
    return np.sort(x)[np.arange(at.n) - at.spread(np.cumsum(sizes) - sizes) + at.spread(starts)]


def _zigzag(x: Floats, at: Frame) -> Floats:
    ordered, out = np.sort(x), np.empty_like(x)
    out[::2], out[1::2] = ordered[: (at.n + 1) // 2], ordered[(at.n + 1) // 2 :][::-1]
    return out


ORDERS: Mapping[str, Callable[[Floats, Frame], Floats]] = {
    "descending": lambda x, at: np.sort(x)[::-1],
    "by turns": _by_turns,
    "zigzag": _zigzag,
}
PATTERNS: Mapping[str, Callable[[Frame], Array]] = {
    "last": lambda at: np.arange(at.n_chunks) == at.n_chunks - 1,
    "late": lambda at: at.turns >= at.n_chunks / 2,
    "all but the first": lambda at: at.turns >= 2,
    "all but the first few": lambda at: at.turns >= 6,
    "away": lambda at: np.log2(1 + at.turns),
}
"""How chunks differ; those of turns are made for who guesses by the chunks that were read."""


def _marked(at: Frame, pattern: str) -> Array:
    return at.spread(PATTERNS[pattern](at) > 0)


STEPS: Mapping[str, Callable[..., Floats]] = {
    "mixed": lambda x, at, share, name, salt: np.where(at.numbers(salt) < share, SPECIALS[name], x),
    "scaled": lambda x, at, share, factor, salt: np.where(at.numbers(salt) < share, x * factor, x),
    "tied": lambda x, at, size: np.rint(x / size) * size,
    "clusters": lambda x, at, n, size, salt: np.floor(at.numbers(salt) * n) + x * size,
    "power": lambda x, at, by: np.copysign(np.abs(x) ** by, x),
    "exponents": _exponents,
    "exp": lambda x, at, by: np.exp(by * x),
    # A tie beside what is there, near its middle.
    "atom": lambda x, at, share, place, salt: np.where(at.numbers(salt) < share, place, x),
    "ordered": lambda x, at, how: ORDERS[how](x, at),
    "shifted": lambda x, at, pattern, size: x + size * at.spread(PATTERNS[pattern](at) * 1.0),
    "stretched": lambda x, at, pattern, by: x * at.spread(2.0 ** (by * PATTERNS[pattern](at))),
    # Some chunks are one value.
    "squeezed": lambda x, at, pattern, place: np.where(_marked(at, pattern), place, x),
    "missing": lambda x, at, pattern: np.where(_marked(at, pattern), np.nan, x),
    # One of the list that all tests share.
    "named": lambda x, at, name: np.asarray((FLOATS | MISSING)[name](at.n), np.float64),
}
"""By name: from the data so far, and the parameters of the step, to the next."""

WEIGHTS: Mapping[str, Callable[[Array, Frame], Array]] = {
    "alike": lambda x, at: at.numbers(4) + 0.5,
    "ones": lambda x, at: np.ones(at.n),
    "mostly 0": lambda x, at: (at.numbers(4) < 1e-3).astype(float),
    "one heavy": lambda x, at: np.where(np.arange(at.n) == at.n // 5, 1e12, 1.0),
    "many magnitudes": lambda x, at: 2.0 ** (at.numbers(4) * 200 - 100),
    "subnormal": lambda x, at: np.floor(at.numbers(4) * 1000) * 5e-324,
    "heavy late": lambda x, at: at.spread(1e6 ** PATTERNS["late"](at).astype(float)),
    "not the middle": lambda x, at: np.where(np.abs(_ranks(x) - 0.5) < 0.3, 1e-6, 1.0),
}
"""From the data to their weights."""


LABELS: Mapping[str, Callable[[Array, Frame, int], Array]] = {
    "alike": lambda x, at, n: np.floor(at.numbers(6) * n).astype(np.int64),
    "zipf": lambda x, at, n: np.minimum(np.floor((1 - at.numbers(6)) ** -1.0) - 1, n - 1).astype(
        np.int64
    ),
}
"""From the data to the groups of elements, so many at most."""

MASKS: Mapping[str, Callable[[Array, Frame], Array]] = {
    "alike": lambda x, at: at.numbers(8) < 0.7,
    "all": lambda x, at: np.ones(at.n, bool),
    "none": lambda x, at: np.zeros(at.n, bool),
}
"""From the data to those that take part."""


BESIDE: Mapping[str, Mapping[str, Callable[..., Array]]] = {
    "weights": WEIGHTS,
    "labels": LABELS,
    "where": MASKS,
}


def _ranks(x: Array) -> Floats:
    """Where each element is in order, from 0 to 1."""
    place = np.empty(len(x))
    place[np.argsort(x, kind="stable")] = np.arange(len(x))
    return place / max(len(x), 1)


# --- Recipes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """How data are made.

    Parameters
    ----------
    dtype : str
    steps : tuple of Step
        What is done to normal data, one step after the other.
    chunks, weights, labels, where : str
        Names in `CHUNKS`, `WEIGHTS`, `LABELS` and `MASKS`.
    """

    dtype: str
    steps: tuple[Step, ...] = ()
    chunks: str = "even"
    weights: str = "alike"
    labels: str = "alike"
    where: str = "alike"

    @property
    def normal(self) -> Recipe:
        """What it is measured against."""
        return Recipe(self.dtype)

    def made(self, n: int, n_chunks: int) -> Made:
        """So many elements in so many chunks."""
        at = frame(self.chunks, n, n_chunks)
        x = _normal(n)
        with np.errstate(all="ignore"):
            for name, *how in self.steps:
                x = STEPS[name](x, at, *how)
            values = in_dtype(x, np.dtype(self.dtype))
        return Made(values, at, self)


@dataclass(frozen=True, eq=False)
class Made:
    """What a recipe has made."""

    values: Array
    at: Frame
    recipe: Recipe

    def beside(self, name: str, n_groups: int = N_GROUPS) -> Array:
        """Make what goes with them, of a name in `BESIDE`."""
        more = (n_groups,) if name == "labels" else ()
        return BESIDE[name][getattr(self.recipe, name)](self.values, self.at, *more)


def in_dtype(x: Floats, dtype: np.dtype[Any]) -> Array:
    """Floating-point data in a dtype: of integers, 32 deviations are all there is to either
    side."""
    if dtype.kind == "f":
        return x.astype(dtype)
    if dtype.kind == "b":
        return x > 0
    limits = np.iinfo(dtype)
    middle = 0.0 if limits.min else 2.0 ** (limits.bits - 1)
    y = np.where(x == x, x, 0.0) * 2.0 ** (limits.bits - 6) + middle
    is_large = y >= float(limits.max)
    y = np.clip(y, float(limits.min), np.nextafter(float(limits.max), 0.0))
    return np.where(is_large, limits.max, y.astype(dtype)).astype(dtype)


# --- The worst ------------------------------------------------------------------------------------


def _of(
    *steps: Step,
    weights: str = "alike",
    labels: str = "alike",
    where: str = "alike",
    dtype: str = "f8",
    chunks: str = "even",
) -> Recipe:
    return Recipe(dtype, steps, chunks, weights, labels, where)


BINADES = ("named", "every binade")
SPREAD = (("exponents", 2000, 2), ("ordered", "descending"), ("power", 0.01))
WORST: tuple[tuple[str, str, Recipe], ...] = (
    ("box", "lazy", _of(("stretched", "all but the first", 30), ("exponents", 2000, 3))),
    ("box", "plain", _of(("exp", 3), ("mixed", 0.7, "subnormal", 1))),
    ("box", "persisted", _of(("exponents", 2000, 3))),
    ("mad", "lazy", _of(("exp", 60))),
    ("mad", "plain", _of(("clusters", 10, 0.001, 1), ("exp", 60))),
    ("mad", "persisted", _of(("tied", 30.0), ("named", "bucket killer"))),
    ("linear weights", "lazy", _of(("clusters", 100, 1e6, 3), weights="one heavy")),
    ("linear weights", "plain", _of(("clusters", 100, 1e6, 3), weights="one heavy")),
    ("weights", "plain", _of(("power", 30), ("exp", 1), weights="not the middle")),
    ("weights", "lazy", _of(("ordered", "by turns"), weights="not the middle")),
    ("weighted box", "lazy", _of(("scaled", 0.3, 1e3, 3), weights="heavy late")),
    ("weighted box", "plain", _of(("exponents", 60, 1), weights="one heavy")),
    ("few weighted lanes", "plain", _of(("mixed", 0.01, "nan", 2), weights="subnormal")),
    (
        "few weighted lanes",
        "plain",
        _of(("missing", "last"), chunks="shrinking", weights="mostly 0"),
    ),
    (
        "many weighted lanes",
        "lazy",
        _of(("power", 100), ("missing", "late"), weights="heavy late"),
    ),
    (
        "many weighted lanes",
        "plain",
        _of(("named", "nan and inf"), chunks="growing", weights="ones"),
    ),
    ("weighted lane boxes", "plain", _of(weights="many magnitudes")),
    ("short lanes", "plain", _of(("named", "nan and inf"))),
    ("lane box passes", "lazy", _of(("stretched", "last", 300), BINADES)),
    ("lane boxes", "lazy", _of(("exponents", 2000, 2))),
    ("group boxes", "lazy", _of(("exponents", 2000, 2), labels="zipf")),
    ("many lane boxes", "lazy", _of(("exponents", 2000, 2))),
    ("many lane boxes", "plain", _of(("exponents", 2000, 2))),
    ("short lane boxes", "plain", _of(("exponents", 2000, 2))),
    ("short lane boxes", "lazy", _of(("exponents", 2000, 2))),
    ("short lane boxes", "plain", _of(("scaled", 1.0, 1e-310, 3))),
    ("many group boxes", "lazy", _of(("exponents", 2000, 2))),
    ("group boxes", "plain", _of(("shifted", "away", 30.0), ("scaled", 0.5, 1e300, 3))),
    ("quartiles", "lazy", _of(("mixed", 1e-5, "nan", 1))),
    ("quartiles", "persisted", _of(("mixed", 0.7, "nan", 1), ("power", 100))),
    ("quartiles", "plain", _of(("tied", 0.03), ("clusters", 5, 1e6, 2))),
    ("percentiles", "plain", _of(("exp", 0.1), ("missing", "away"))),
    ("lanes", "plain", _of(("atom", 0.5, 1e-9, 3), ("scaled", 1e-5, 1e-300, 3))),
    ("lanes", "lazy", _of(("squeezed", "late", -0.5), ("ordered", "zigzag"))),
    ("box", "plain", _of(("exponents", 2000, 2), ("power", 0.01), dtype="i2")),
    ("masked box", "plain", _of(*SPREAD, where="all", dtype="i2", chunks="growing")),
    ("masked quartiles", "plain", _of(("exp", 10), ("ordered", "by turns"), dtype="i2")),
    ("masked mad", "plain", _of(("power", 3), ("clusters", 3, 1e6, 2), where="all", dtype="i2")),
    ("masked lanes", "plain", _of(("atom", 0.001, 1e-9, 2), where="none", dtype="i2")),
    ("lanes", "plain", _of(("named", "one valid"), ("atom", 0.1, 0.0, 3), dtype="i2")),
    ("lane boxes", "plain", _of(("missing", "all but the first few"), dtype="i2")),
)
"""Questions and plans of `costs`, and the recipes of their data. Each took longest beside normal
data, or made most work; those that are mended stay here, so that they stay so."""
