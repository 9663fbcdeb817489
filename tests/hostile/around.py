"""In what a call is made: what makes the array lazy, how the call is written, how its answer is
computed, and what else is set."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import cloudpickle
import dask
import dask.array as da
import numpy as np
from dask.callbacks import Callback
from distributed import Client

import dask_gpuselect as ours
from dask_gpuselect.distribution import EmpiricalDistribution
from dask_gpuselect.engine import threads as engine_threads
from tests import oracle
from tests.matrix.axes import Array, Random
from tests.matrix.cases import Counted
from tests.matrix.laws import Broken, same
from tests.matrix.questions import pick


def _turned(a: Array, chunks: Any) -> da.Array:
    first = tuple(n for n in chunks[0][::-1] if n) or (0,)  # dask loses data between empty ones
    return da.from_array(a[::-1], chunks=(first, *chunks[1:]))[::-1]


def _joined(a: Array, chunks: Any) -> da.Array:
    half = len(a) // 2
    return da.concatenate([da.from_array(a[:half]), da.from_array(a[half:])]).rechunk(chunks)


def _selected(a: Array, chunks: Any) -> da.Array:
    """Select the elements among others, which leaves sizes that are not known."""
    first = sum(chunks[0][:1])
    padded = np.insert(a, [0, first, len(a)], a.flat[0] if a.size else 0, axis=0)
    is_ours = np.ones(len(padded), bool)
    is_ours[[0, first + 1, len(a) + 2]] = False
    own = (first + 1, len(padded) - first - 1)
    # Dask selects wrongly where other axes have empty chunks.
    others = [tuple(n for n in sizes if n) or (0,) for sizes in chunks[1:]]
    return da.from_array(padded, chunks=(own, *others))[da.from_array(is_ours, chunks=own)]


class Held(Counted):
    """An array that hands out its own elements, as they lie in memory, and can be sent."""

    def __getitem__(self, index: Any) -> Array:
        with self.lock:
            self.counts[tuple((each.start, each.stop) for each in index)] += 1
        return self.values[index]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    @property
    def n_loaded(self) -> int:
        """Elements that were read."""
        return sum(n * math.prod(b - a for a, b in place) for place, n in self.counts.items())


SOURCES: Mapping[str, Callable[[Array, Any], da.Array]] = {
    "turned": _turned,
    "joined": _joined,
    "selected": _selected,
    "rechunked": lambda a, chunks: da.from_array(a, chunks=-1).rechunk(chunks),
}

SMALL = {
    "engine.threads.WORTH": dict.fromkeys(engine_threads.WORTH, 64),
    "engine.pilot.LEAST_PILOT": 1 << 8,
    "engine.pilot.PILOT_WORTH": 1 << 10,
    "robust.fitting.SAMPLED": 300,
    "robust.deviations.LEAST_ROOM": 0,
    "maths.boxes.LEAST_ROOM": 0,
    "engine.rounds.ALWAYS_GATHERED": 64,
    "sorting.graph.PIECES_MERGED": 3,
}
"""Sizes from which on larger data are treated otherwise, made so small that ours are."""

CONFIG: Mapping[str, tuple[Any, ...]] = {
    "split_every": (2, 3, 64, {0: 2}, {0: 2, 1: 3}),
    "dask_gpuselect.spill-limit": (0, "1 kB", "1 GiB"),
    "dask_gpuselect.distance-limit": (8, "1 kB", "1 MB"),
    "num_workers": (1, 2, 7),
    "optimization.fuse.active": (True, False),
}


@cache
def cluster() -> Client:
    """Start a cluster in this process, the same for all cases; to be closed in the end."""
    return Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0")


class Hoard(Callback):  # type: ignore[misc]
    """Keep every result, as `dask.cache.Cache` with room for everything."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        super().__init__(start=self._begin, posttask=self._keep)

    def _begin(self, dsk: Any) -> None:
        for key in set(dsk) & set(self.data):
            dsk[key] = self.data[key]

    def _keep(self, key: Any, value: Any, dsk: Any, state: Any, worker: Any) -> None:
        self.data[key] = value


@dataclass(frozen=True)
class Around:
    """In what a call is made, and how its answer is computed."""

    source: str = ""
    is_distributed: bool = False
    raises: bool = False
    cached: bool = False
    small: bool = False
    route: str = "function"
    finish: str = "compute"
    forked: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def drawn(cls, random: Random, home: str) -> Around:
        """Draw surroundings of an array of some home of the matrix."""
        chance = lambda share: bool(random.random() < share)  # noqa: E731
        others = tuple(SOURCES.keys() - {"selected"}) if home == "memory" else ()
        return cls(
            source=pick(random, ("selected", "") if home == "unknown sizes" else (*others, "")),
            is_distributed=chance(0.03),
            raises=chance(0.3),
            cached=chance(0.1),
            small=chance(0.3),
            route=pick(random, ("function",) * 4 + ("exact", "dask", "numpy")),
            finish=pick(random, ("compute",) * 3 + tuple(FINISHES)),
            forked=home == "plain" and chance(0.05),
            config={name: pick(random, some) for name, some in CONFIG.items() if chance(0.1)},
        )

    @property
    def loads_count(self) -> bool:
        """Tell whether sources are loaded as often as is documented: dask loads twice what is
        optimised together and computed together afterwards."""
        return not self.cached and self.finish not in ("optimize", "together", "parallel")

    @contextmanager
    def entered(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(dask.config.set(self.config))
            if self.is_distributed:
                stack.enter_context(cluster().as_current())
                stack.enter_context(dask.config.set(scheduler="distributed"))
            stack.enter_context(np.errstate(all="raise" if self.raises else "warn"))
            if self.cached:
                stack.enter_context(Hoard())
            for name, value in SMALL.items() if self.small else ():
                module, _, attribute = f"dask_gpuselect.{name}".rpartition(".")
                owner = importlib.import_module(module)
                stack.enter_context(patch.object(owner, attribute, value))
            yield

    def routed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Call the accessor, or the function of dask or NumPy that `enable` replaces."""

        def asked(x: Any, **how: Any) -> Any:
            is_public = function.__module__.startswith("dask_gpuselect")
            if self.route == "exact" and is_public and hasattr(x.exact, name):
                return getattr(x.exact, name)(**how)
            is_theirs = name in oracle.FUNCTIONS and not {"where", "weights", "nodata"} & how.keys()
            if self.route not in ("dask", "numpy") or not is_theirs:
                return function(x, **how)
            with ours.enable():
                return getattr(da if self.route == "dask" else np, name)(x, **how)

        return asked

    def finished(self, answers: list[Any]) -> list[Any]:
        """Compute answers."""
        return FINISHES.get(self.finish, _one_by_one)(answers)


# --- Computing ------------------------------------------------------------------------------------


def _one_by_one(answers: list[Any]) -> list[Any]:
    return [dask.compute(answer)[0] for answer in answers]


def _in_threads(answers: list[Any]) -> list[Any]:
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(lambda _: dask.compute(*answers), range(3))
    for other in others:
        for one, again in zip(leaves(first), leaves(other), strict=True):
            same(one, again, "in another thread")
    return list(first)


FINISHES: Mapping[str, Callable[[list[Any]], list[Any]]] = {
    "together": lambda answers: list(dask.compute(*answers)),
    "persist": lambda answers: _one_by_one(list(dask.persist(*answers))),
    "optimize": lambda answers: _one_by_one(list(dask.optimize(*answers))),
    "pickle": lambda answers: _one_by_one(pickle.loads(cloudpickle.dumps(answers))),
    "parallel": _in_threads,
}


def leaves(found: Any) -> list[Any]:
    """List all numbers of an answer, as arrays."""
    if isinstance(found, ours.Boxplot):
        return [value for box in found for key, value in box.to_dict().items() if key != "label"]
    if isinstance(found, EmpiricalDistribution):
        return [found.points, found.below, found.upto, found.n_valid, found.n_missing]
    return [leaf for each in found for leaf in leaves(each)] if type(found) is tuple else [found]


def in_child(ask: Callable[[], Any]) -> Any:
    """Ask in a forked process, which has half a minute."""
    fork = multiprocessing.get_context("fork")
    answer, told = fork.Pipe(duplex=False)

    def tell() -> None:
        try:
            told.send((ask(), None))
        except Exception as error:
            told.send((None, error))

    child = fork.Process(target=tell)
    child.start()
    try:
        if not answer.poll(30):
            raise Broken("hangs or ends in a forked process")
        found, error = answer.recv()
        if error is not None:
            raise error
        return found
    finally:
        child.kill()
        child.join()
