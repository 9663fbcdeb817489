"""The only way by which this package runs something in threads of its own.

The threads end with the call that needs them. None is kept for a later call, for after a fork the
child has the pool and not its threads, and waits for ever. Starting them takes 0.1 ms; what is
worth it takes many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np
from dask.local import get_sync
from dask.threaded import get as threaded_get

from dask_gpuselect.engine.settings import n_workers

P = ParamSpec("P")
T = TypeVar("T")
Each = TypeVar("Each")

# From so much on several threads gain.
WORTH = {
    # Elements of which something is counted or summed: 4e6 float64 take one thread 40 ms, two 35;
    # 1e8 take 500 and 282.
    "elements": 1 << 22,
    # Bytes of lanes: one thread takes 15 ms.
    "bytes of lanes": 1 << 23,
    # Elements of X that are fitted to: one thread takes 5 ms.
    "elements of rows": 1 << 20,
    # Products of rows, queries and features: a task takes 0.1 ms.
    "products": 1 << 22,
}


def threads_for(values: Any, work: float, kind: str) -> int:
    """How many threads may share an array in memory, by how much work it is (see `WORTH`).

    One, the thread that asks, unless that is the main thread and the array is NumPy's: another
    thread may have others beside it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_worth = isinstance(values, np.ndarray) and is_main and work >= WORTH[kind]
    return n_workers() if is_worth else 1


class Threads(ThreadPoolExecutor):
    """Some threads, in each task with the context of who asks, so with its `numpy.errstate`. What
    cannot be handed to one is done by the thread that asks.

    So it is while the interpreter shuts down, in functions of `atexit`, and where the system gives
    no more threads.

    Parameters
    ----------
    n : int
        How many.
    initializer : callable, optional
        Called by each thread before its first task.
    """

    def __init__(self, n: int, initializer: Callable[[], object] | None = None) -> None:
        super().__init__(n, "gpuselect", initializer)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(copy_context().run, partial(fn, *args, **kwargs))
        except RuntimeError:  # of the executor, for those of `fn` are the future's
            return _done_here(fn, *args, **kwargs)


def _done_here(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    done: Future[T] = Future()
    try:
        done.set_result(fn(*args, **kwargs))
    except BaseException as error:
        done.set_exception(error)
    return done


def each(function: Callable[[Each], T], items: Iterable[Each], n_threads: int) -> list[T]:
    """What a function makes of each item, in their order."""
    if n_threads == 1:
        return [function(item) for item in items]
    with Threads(n_threads) as threads:
        return list(threads.map(function, items))


def computed(graph: Mapping[Any, Any], keys: Sequence[Any], n_threads: int) -> tuple[Any, ...]:
    """Keys of a graph of arrays in memory, whatever scheduler is the default.

    Dask's callbacks hear nothing of it: a cache that is registered would keep what is no collection
    of the user's, and find it again by names that need not be unique.
    """
    if n_threads == 1:
        return tuple(get_sync(graph, list(keys), callbacks=()))
    with Threads(n_threads) as threads:
        return tuple(threaded_get(graph, list(keys), pool=threads, callbacks=()))
