"""Data as recipes: steps that make normal data hostile, drawn and changed by a seed.

A recipe is its own short name: `repr` shows it, and the same recipe makes the same data everywhere.
Steps are drawn from few values each, so that a search has few ways to go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.chunk_order import ChunkOrder
from tests.data import FLOATS, MISSING, hashed, normal

Array = NDArray[Any]
Floats = NDArray[np.float64]
Step = tuple[Any, ...]
"""The name of a step, and its parameters."""

N_GROUPS = 18
SPECIALS = {
    "0": 0.0,
    "-0": -0.0,
    "1": 1.0,
    "inf": np.inf,
    "-inf": -np.inf,
    "nan": np.nan,
    "largest": 1.7e308,
    "subnormal": 5e-324,
}

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

    @cached_property
    def chunk(self) -> NDArray[np.int64]:
        """The number of the chunk of every element."""
        return np.repeat(np.arange(self.n_chunks), self.sizes)

    @property
    def turns(self) -> NDArray[np.int64]:
        """When each chunk is read, among all: from 0."""
        return ChunkOrder.evenly(self.n_chunks).turns()

    def numbers(self, salt: int) -> Floats:
        """A number in [0, 1) for every element."""
        return _numbers(self.n, salt)

    def of_chunks(self, salt: int) -> Floats:
        """The same for every chunk."""
        return _numbers(self.n_chunks, salt + 17)

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
    "one large": lambda n: np.where(np.arange(n) == n // 3, 10.0 * n, 1.0),
    "first large": lambda n: np.where(np.arange(n) == 0, 3.0 * n, 1.0),
    "large and small": lambda n: np.where(np.arange(n) % 2, 20.0, 1.0),
    "growing": lambda n: 1.5 ** np.arange(n, dtype=float),
    "shrinking": lambda n: 0.8 ** np.arange(n, dtype=float),
    "some empty": lambda n: np.where(np.arange(n) % 3, 1.0, 0.0),
    "any": lambda n: _numbers(n, 5) ** 4,
}
"""How large chunks are, beside each other."""


def frame(chunks: str, n: int, n_chunks: int) -> Frame:
    """So many elements in so many chunks."""
    ends = np.cumsum(CHUNKS[chunks](n_chunks))
    places = np.rint(ends / ends[-1] * n).astype(int)
    return Frame(tuple(np.diff(places, prepend=0).tolist()))


# --- Steps ----------------------------------------------------------------------------------------

SHARES = (1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)
SIZES = (1e-12, 1e-6, 1e-3, 0.03, 0.3, 1.0, 3.0, 30.0, 1e6)


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


def _dealt(x: Floats, at: Frame) -> Floats:
    """Put neighbours in order into different chunks."""
    return np.concatenate([np.sort(x)[i :: at.n_chunks] for i in range(at.n_chunks)])


ORDERS: Mapping[str, Callable[[Floats, Frame], Floats]] = {
    "ascending": lambda x, at: np.sort(x),
    "descending": lambda x, at: np.sort(x)[::-1],
    "within chunks": lambda x, at: x[np.lexsort((x, at.chunk))],
    "by turns": _by_turns,
    "organ pipe": lambda x, at: np.concatenate([np.sort(x)[::2], np.sort(x)[1::2][::-1]]),
    "dealt": _dealt,
    "zigzag": _zigzag,
}
PATTERNS: Mapping[str, Callable[[Frame], Array]] = {
    "trend": lambda at: np.arange(at.n_chunks) / at.n_chunks,
    "any": lambda at: at.of_chunks(1) - 0.5,
    "alternate": lambda at: np.arange(at.n_chunks) % 2 - 0.5,
    "few": lambda at: at.of_chunks(2) < 0.1,
    "last": lambda at: np.arange(at.n_chunks) == at.n_chunks - 1,
    "late": lambda at: at.turns >= at.n_chunks / 2,
    "latest": lambda at: at.turns >= at.n_chunks - 2,
    "all but the first": lambda at: at.turns >= 2,
    "all but the first few": lambda at: at.turns >= 6,
    "to and fro": lambda at: (at.turns >= 2) * (at.turns % 2 - 0.5),
    "away": lambda at: np.log2(1 + at.turns),
}
"""How chunks differ; those of turns are made for who guesses by the chunks that were read."""


def _marked(at: Frame, pattern: str) -> Array:
    return at.spread(PATTERNS[pattern](at) > 0)


def _payloads(x: Floats, at: Frame, salt: int) -> Floats:
    """Replace every NaN by one of any bits and sign."""
    bits = (at.numbers(salt) * 2.0**52).astype(np.uint64) << np.uint64(12)
    nan = (bits >> np.uint64(12) | np.uint64(0x7FF8 << 48)) ^ (bits << np.uint64(52))
    return np.where(x == x, x, (nan | np.uint64(0x7FF8 << 48)).view(np.float64))


def _cancelling(x: Floats, at: Frame) -> Floats:
    """Make the second half the first one of the other sign, so that sums cancel."""
    return np.concatenate([x[: at.n // 2], -x[: at.n // 2], x[: at.n % 2]])


SALTS = (1, 2, 3)
STEPS: Mapping[str, tuple[Callable[..., Floats], tuple[Sequence[Any], ...]]] = {
    "mixed": (
        lambda x, at, share, name, salt: np.where(at.numbers(salt) < share, SPECIALS[name], x),
        (SHARES, tuple(SPECIALS), SALTS),
    ),
    "scaled": (
        lambda x, at, share, factor, salt: np.where(at.numbers(salt) < share, x * factor, x),
        (SHARES, (-1.0, 1e-300, 1e-12, 1e-3, 1e3, 1e12, 1e300), SALTS),
    ),
    "tied": (lambda x, at, size: np.rint(x / size) * size, (SIZES,)),
    "clusters": (
        lambda x, at, n, size, salt: np.floor(at.numbers(salt) * n) + x * size,
        ((2, 3, 5, 10, 30, 100, 1000, 10_000), SIZES, SALTS),
    ),
    "power": (
        lambda x, at, by: np.copysign(np.abs(x) ** by, x),
        ((0.01, 0.1, 0.3, 3, 9, 30, 100),),
    ),
    "exponents": (_exponents, ((4, 60, 250, 2000), SALTS)),
    "exp": (lambda x, at, by: np.exp(by * x), ((0.1, 1, 3, 10, 60),)),
    "atom": (  # a tie beside what is there, near its middle
        lambda x, at, share, place, salt: np.where(at.numbers(salt) < share, place, x),
        (SHARES, (-1.0, -0.5, 0.0, 1e-9, 0.5), SALTS),
    ),
    "ordered": (lambda x, at, how: ORDERS[how](x, at), (tuple(ORDERS),)),
    "shifted": (
        lambda x, at, pattern, size: x + size * at.spread(PATTERNS[pattern](at).astype(float)),
        (tuple(PATTERNS), SIZES),
    ),
    "stretched": (
        lambda x, at, pattern, by: x * at.spread(2.0 ** (by * PATTERNS[pattern](at).astype(float))),
        (tuple(PATTERNS), (-30, -3, -0.3, 0.3, 3, 30, 300)),
    ),
    "squeezed": (  # some chunks are one value
        lambda x, at, pattern, place: np.where(_marked(at, pattern), place, x),
        (tuple(PATTERNS), (-0.5, 0.0, 0.5, 9.0)),
    ),
    "missing": (
        lambda x, at, pattern: np.where(_marked(at, pattern), np.nan, x),
        (tuple(PATTERNS),),
    ),
    "payloads": (_payloads, (SALTS,)),
    "cancelling": (_cancelling, ()),
    "named": (  # one of the list that all tests share
        lambda x, at, name: np.asarray((FLOATS | MISSING)[name](at.n), np.float64),
        ((*FLOATS, *MISSING),),
    ),
}
"""By name: from the data so far to the next, and the values of each parameter."""

WEIGHTS: Mapping[str, Callable[[Array, Frame], Array]] = {
    "alike": lambda x, at: at.numbers(4) + 0.5,
    "ones": lambda x, at: np.ones(at.n),
    "counts": lambda x, at: np.floor(at.numbers(4) * 10),
    "mostly 0": lambda x, at: (at.numbers(4) < 1e-3).astype(float),
    "one heavy": lambda x, at: np.where(np.arange(at.n) == at.n // 5, 1e12, 1.0),
    "all magnitudes": lambda x, at: 2.0 ** (at.numbers(4) * 2000 - 1000),
    "many magnitudes": lambda x, at: 2.0 ** (at.numbers(4) * 200 - 100),
    "subnormal": lambda x, at: np.floor(at.numbers(4) * 1000) * 5e-324,
    "heavy in few chunks": lambda x, at: at.spread(1e6 ** PATTERNS["few"](at).astype(float)),
    "heavy late": lambda x, at: at.spread(1e6 ** PATTERNS["late"](at).astype(float)),
    "by rank": lambda x, at: _ranks(x) ** 9 + 1e-9,
    "the middle": lambda x, at: np.where(np.abs(_ranks(x) - 0.5) < 1e-3, 1e6, 1.0),
    "not the middle": lambda x, at: np.where(np.abs(_ranks(x) - 0.5) < 0.3, 1e-6, 1.0),
}
"""From the data to their weights."""


LABELS: Mapping[str, Callable[[Array, Frame, int], Array]] = {
    "alike": lambda x, at, n: np.floor(at.numbers(6) * n).astype(np.int64),
    "in order": lambda x, at, n: np.arange(at.n) * n // at.n,
    "in turn": lambda x, at, n: np.arange(at.n) % n,
    "one": lambda x, at, n: np.where(np.arange(at.n) < n, np.arange(at.n), 0),
    "one of most": lambda x, at, n: np.where(
        at.numbers(7) < 0.9, n - 1, np.floor(at.numbers(6) * n)
    ).astype(np.int64),
    "few": lambda x, at, n: np.floor(at.numbers(6) * 2).astype(np.int64) * (n - 1),
    "zipf": lambda x, at, n: np.minimum(np.floor((1 - at.numbers(6)) ** -1.0) - 1, n - 1).astype(
        np.int64
    ),
    "by value": lambda x, at, n: np.minimum(_ranks(x) * n, n - 1).astype(np.int64),
    "by chunk": lambda x, at, n: at.chunk % n,
    "others late": lambda x, at, n: (
        np.floor(at.numbers(6) * n / 2).astype(np.int64)
        + at.spread(PATTERNS["late"](at)) * (n // 2)
    ),
}
"""From the data to the groups of elements, so many at most."""

MASKS: Mapping[str, Callable[[Array, Frame], Array]] = {
    "alike": lambda x, at: at.numbers(8) < 0.7,
    "all": lambda x, at: np.ones(at.n, bool),
    "none": lambda x, at: np.zeros(at.n, bool),
    "one": lambda x, at: np.arange(at.n) == at.n // 3,
    "few": lambda x, at: at.numbers(8) < 1e-3,
    "half": lambda x, at: at.numbers(8) < 0.5,
    "in turn": lambda x, at: np.arange(at.n) % 2 == 0,
    "some chunks": lambda x, at: at.spread(PATTERNS["few"](at)),
    "late": lambda x, at: at.spread(PATTERNS["late"](at)),
    "more and more": lambda x, at: at.numbers(8) < at.spread(2.0 ** -PATTERNS["away"](at)),
    "high": lambda x, at: _ranks(x) > 0.3,
    "ends": lambda x, at: np.abs(_ranks(x) - 0.5) > 0.3,
    "middle": lambda x, at: np.abs(_ranks(x) - 0.5) < 0.3,
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
                x = STEPS[name][0](x, at, *how)
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


MOST_STEPS = 4


class Breeder:
    """Draws recipes, and changes them.

    Parameters
    ----------
    rng : Generator
    needs : tuple of str
        What goes with the data; see `Made.beside`.
    """

    def __init__(self, rng: np.random.Generator, needs: tuple[str, ...] = ()) -> None:
        self._rng = rng
        self._others: dict[str, Mapping[str, Any]] = {"chunks": CHUNKS}
        self._others |= {name: BESIDE[name] for name in needs}

    def _pick(self, options: Sequence[Any]) -> Any:
        return options[int(self._rng.integers(len(options)))]

    def step(self) -> Step:
        name = self._pick([*STEPS])
        return (name, *(self._pick(options) for options in STEPS[name][1]))

    def new(self, dtype: str) -> Recipe:
        """Any recipe, in chunks alike more often than not."""
        steps = tuple(self.step() for _ in range(self._rng.integers(1, MOST_STEPS)))
        others = {name: self._pick([*options]) for name, options in self._others.items()}
        if self._rng.random() < 0.7:
            others["chunks"] = "even"
        return Recipe(dtype, steps, **others)

    def changed(self, recipe: Recipe) -> Recipe:
        """A recipe that differs in a step, in a parameter, or in what goes with the data."""
        steps, how = list(recipe.steps), self._rng.random()
        if how < 0.2:
            name = self._pick([*self._others])
            return replace(recipe, **{name: self._pick([*self._others[name]])})
        place = int(self._rng.integers(len(steps) + 1))
        if how < 0.4 and len(steps) < MOST_STEPS:
            steps.insert(place, self.step())
        elif how < 0.55 and len(steps) > 1:
            del steps[place % len(steps)]
        elif steps:
            place %= len(steps)
            name, *values = steps[place]
            options = STEPS[name][1]
            if how < 0.7 or not options:
                steps[place] = self.step()
            else:
                which = int(self._rng.integers(len(options)))
                values[which] = self._pick(options[which])
                steps[place] = (name, *values)
        return replace(recipe, steps=tuple(steps))
