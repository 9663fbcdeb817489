"""What is drawn: data, how they lie in memory, chunks, lazy sources, and the surroundings."""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

import dask
import dask.array as da
import numpy as np
from dask.callbacks import Callback
from distributed import Client
from numpy.typing import NDArray

from dask_gpuselect.engine import threads
from tests.data import INTEGER_DTYPES, make, names_of

Array = NDArray[Any]
FLOATS = ("f8", "f8", "f4", "f2")
DATES = ("M8[s]", "M8[ns]", "m8[ns]", "m8[D]")


class Dice:
    """Everything random in a case."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def number(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))


# --- Data -----------------------------------------------------------------------------------------

LONGEST = {
    "few": ((), (40,), (7, 6), (4, 3, 4), (3, 2, 3, 2)),
    "some": ((), (1500,), (50, 40), (13, 11, 12), (6, 5, 7, 7)),
    "many": ((), (50_000,), (400, 120), (50, 40, 25), (20, 10, 20, 12)),
}


def drawn_shape(d: Dice, least: int, most: int) -> tuple[int, ...]:
    ndim = d.pick([n for n in (0, 1, 1, 1, 2, 2, 2, 3, 4) if least <= n <= most])
    longest = LONGEST[d.pick(["few"] * 4 + ["some"] * 5 + ["many"])][ndim]
    shape = [d.number(1, size) if d.chance(0.8) else size for size in longest]
    if shape and d.chance(0.04):
        shape[d.number(0, ndim - 1)] = 0
    return tuple(shape)


def drawn_dtype(d: Dice, kinds: str) -> np.dtype[Any]:
    of_kind = {"b": ("?",), "f": FLOATS, "m": DATES, "i": INTEGER_DTYPES}
    return np.dtype(d.pick(of_kind[d.pick([k for k in kinds if k != "f"] + ["f", "f"])]))


def specials(dtype: np.dtype[Any]) -> Array:
    """Elements at which something changes."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        one = [0.0, 1, 1 + float(limits.eps), float(limits.max), float(limits.tiny), 2, 3, np.inf]
        one += [float(limits.smallest_subnormal), float(limits.max) / 2, 1 / 3, 7e4, 16_777_217]
        with np.errstate(over="ignore"):
            return np.array([*one, *(-x for x in one), np.nan]).astype(dtype)
    limits = np.iinfo("i8" if dtype.kind in "mM" else dtype)
    near = [0, 1, 2, 3, int(limits.max), int(limits.max) - 1, int(limits.min), int(limits.min) + 1]
    near += [min(2**53 + 1, int(limits.max)), min(2**24 + 1, int(limits.max)), int(limits.max) // 2]
    return np.array(near, "i8" if dtype.kind in "mM" else dtype).view(dtype)


def drawn_data(d: Dice, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    n = int(np.prod(shape, dtype=int))
    how = d.pick(["named", "named", "named", "few", "few", "all bits", "cancelling", "holes"])
    if how == "named" and dtype.kind not in "mM":
        a = make(d.pick(names_of(dtype.str[1:] if dtype.kind != "b" else "?")), dtype.str[1:], n)
        a = d.rng.permutation(a) if d.chance(0.5) else a
    elif how == "all bits" and dtype.kind != "b":
        a = np.frombuffer(d.rng.bytes(n * dtype.itemsize), dtype)
    elif how == "cancelling" and dtype.kind == "f":
        with np.errstate(over="ignore"):
            half = d.rng.normal(size=n) * 10.0 ** d.rng.integers(-30, 30, n)
            a = np.concatenate([half[: n // 2], -half[: n // 2], half[: n % 2]]).astype(dtype)
        a = d.rng.permutation(a)
    else:
        options = specials(dtype)
        if not d.chance(0.3):
            options = options[options == options]
        options = d.rng.choice(options, d.number(1, 6))
        a = d.rng.choice(options, n, p=d.rng.dirichlet(np.ones(len(options))))
    a = np.array(a.reshape(shape), dtype)
    if how == "holes" and dtype.kind == "f" and a.ndim:  # whole slices without an element
        places = d.rng.random(a.shape[(axis := d.number(0, a.ndim - 1))]) < 0.5
        np.moveaxis(a, axis, 0)[places] = np.nan
    return a


LAYOUTS = ("C", "C", "C", "F", "strided", "backwards", "field", "swapped", "read-only", "broadcast")


def laid_out(a: Array, layout: str) -> Array:
    """The same elements in memory otherwise."""
    if layout == "F":
        return a.copy(order="F")
    if layout == "swapped":
        return a.astype(a.dtype.newbyteorder(">"))
    if layout == "field":  # neither aligned nor contiguous
        table = np.zeros(a.shape, [("pad", "u1"), ("x", a.dtype)])
        table["x"] = a
        return table["x"]
    if layout == "read-only":
        a = a.copy()
        a.flags.writeable = False
        return a
    if a.ndim and layout == "strided":
        wide = np.repeat(a, 2, axis=-1)
        return wide[..., ::2]
    if a.ndim and layout == "backwards":
        return a[::-1].copy()[::-1]
    if a.ndim and layout == "broadcast":
        return np.broadcast_to(a[:1], a.shape) if len(a) else a
    return a


# --- Chunks and sources ---------------------------------------------------------------------------


def drawn_chunks(d: Dice, shape: tuple[int, ...], divided: int) -> tuple[tuple[int, ...], ...]:
    """Irregular, regular or single ones of the first `divided` axes; empty ones too."""

    def cut(size: int) -> tuple[int, ...]:
        how = d.pick(["whole", "regular", "any", "any", "any"])
        if how == "whole" or not size:
            return (size,) if d.chance(0.9) else (0, size, 0)
        if how == "regular":
            step = d.number(max(1, size // 12), size)
            return (step,) * (size // step) + ((size % step,) if size % step else ())
        places = np.sort(d.rng.integers(0, size + 1, d.number(1, 5)))
        return tuple(np.diff([0, *places.tolist(), size]).tolist())

    return tuple(cut(n) if i < divided else (n,) for i, n in enumerate(shape))


class Held:
    """An array that counts how often each part of it is loaded."""

    def __init__(self, a: Array) -> None:
        self.a, self.shape, self.dtype, self.ndim = a, a.shape, a.dtype, a.ndim
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    def __getitem__(self, index: Any) -> Array:
        part = self.a[index]
        with self.lock:
            self.counts[str(index)] += bool(part.size)
        return part

    @property
    def most(self) -> int:
        return max(self.counts.values(), default=0)


SOURCES = ("counted",) * 4 + ("memory", "mapped", "turned", "joined", "selected", "rechunked")


def lazy_source(a: Array, chunks: Any, source: str, held: Held | None = None) -> da.Array:
    """A dask array of these elements."""
    meta = np.empty((0,) * a.ndim, a.dtype)
    if source == "memory" or not a.ndim:
        return da.from_array(a, chunks=chunks)
    if source == "turned":
        first = tuple(n for n in chunks[0][::-1] if n) or (0,)  # dask loses data between empty ones
        return da.from_array(a[::-1], chunks=(first, *chunks[1:]))[::-1]
    if source == "joined":
        half = len(a) // 2
        return da.concatenate([da.from_array(a[:half]), da.from_array(a[half:])]).rechunk(chunks)
    if source == "selected":  # of sizes that are not known
        first = sum(chunks[0][:1])
        padded = np.insert(a, [0, first, len(a)], a.flat[0] if a.size else 0, axis=0)
        is_ours = np.ones(len(padded), bool)
        is_ours[[0, first + 1, len(a) + 2]] = False
        own = (first + 1, len(padded) - first - 1)
        # Dask selects wrongly where other axes have empty chunks.
        others = [tuple(n for n in sizes if n) or (0,) for sizes in chunks[1:]]
        x = da.from_array(padded, chunks=(own, *others))
        return x[da.from_array(is_ours, chunks=own)]
    held = Held(a) if held is None else held
    if source == "rechunked":
        return da.from_array(held, chunks=-1, meta=meta).rechunk(chunks)
    x = da.from_array(held, chunks=chunks, meta=meta)
    return x.map_blocks(np.copy, dtype=a.dtype, meta=meta) if source == "mapped" else x


# --- Surroundings ---------------------------------------------------------------------------------

SMALL = {
    "engine.threads.WORTH": dict.fromkeys(threads.WORTH, 64),
    "engine.pilot.LEAST_PILOT": 1 << 8,
    "engine.pilot.PILOT_WORTH": 1 << 10,
    "robust.fitting.SAMPLED": 300,
    "robust.deviations.LEAST_ROOM": 0,
    "maths.boxes.LEAST_ROOM": 0,
    "engine.rounds.ALWAYS_GATHERED": 64,
    "sorting.graph.PIECES_MERGED": 3,
}
"""Sizes from which on larger data are treated otherwise, made so small that ours are."""


@cache
def cluster() -> Client:
    """In this process, and the same for all cases; to be closed in the end."""
    return Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0")


class Hoard(Callback):  # type: ignore[misc]
    """What `dask.cache.Cache` does, with room for everything."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        super().__init__(start=self._begin, posttask=self._keep)

    def _begin(self, dsk: Any) -> None:
        for key in set(dsk) & set(self.data):
            dsk[key] = self.data[key]

    def _keep(self, key: Any, value: Any, dsk: Any, state: Any, worker: Any) -> None:
        self.data[key] = value


@dataclass(frozen=True)
class Surroundings:
    """In what a call is made, and how its answer is computed."""

    scheduler: str = "sync"
    raises: bool = False
    cached: bool = False
    small: bool = False
    route: str = "function"
    finish: str = "compute"
    forked: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def drawn(cls, d: Dice) -> Surroundings:
        config: dict[str, Any] = {}
        if d.chance(0.25):
            config["dask_gpuselect.column-limit"] = d.pick(["2 kB", "20 kB", 500, "1 MB", 1e5])
        if d.chance(0.2):
            config["split_every"] = d.pick([2, 3, 64, {0: 2}, {0: 2, 1: 3}])
        if d.chance(0.1):
            config["dask_gpuselect.spill-limit"] = d.pick([0, "1 kB", "1 GiB"])
        if d.chance(0.1):
            config["dask_gpuselect.distance-limit"] = d.pick([8, "1 kB", "1 MB"])
        if d.chance(0.1):
            config["num_workers"] = d.pick([1, 2, 7])
        if d.chance(0.1):
            config["optimization.fuse.active"] = d.pick([True, False])
        if d.chance(0.25):
            config["dask_gpuselect.root-limit"] = d.pick([0, 0, "20 kB", "1 GiB"])
        return cls(
            scheduler=d.pick(["sync"] * 20 + ["threads"] * 10 + ["distributed"]),
            raises=d.chance(0.3),
            cached=d.chance(0.1),
            small=d.chance(0.3),
            route=d.pick(["function"] * 4 + ["exact", "enabled", "numpy"]),
            finish=d.pick(
                ["compute"] * 3 + ["together", "persist", "optimize", "pickle", "parallel"]
            ),
            forked=d.chance(0.01),
            config=config,
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(dask.config.set(self.config))
            if self.scheduler == "distributed":
                stack.enter_context(cluster().as_current())
                stack.enter_context(dask.config.set(scheduler="distributed"))
            else:
                stack.enter_context(dask.config.set(scheduler=self.scheduler))
            if self.raises:
                stack.enter_context(np.errstate(all="raise"))
            if self.cached:
                stack.enter_context(Hoard())
            for name, value in SMALL.items() if self.small else ():
                module, _, attribute = f"dask_gpuselect.{name}".rpartition(".")
                owner = importlib.import_module(module)
                stack.enter_context(mock.patch.object(owner, attribute, value))
            yield
