"""Run functions in threads: the only module of this package that starts any.

The threads end with the call that needs them. None is kept for a later call: after a fork, the
child has the pool but not its threads, and would wait forever. Starting threads takes 0.1 ms; work
that is worth it takes much longer.
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

# From this amount of work on, several threads are faster.
WORTH = {
    # Elements to count or sum: 4e6 float64 take 40 ms with one thread and 35 ms with two; 1e8 take
    # 500 and 282 ms.
    "elements": 1 << 22,
    # Bytes of lanes: one thread takes 15 ms.
    "bytes of lanes": 1 << 23,
    # Elements of X in a fit: one thread takes 5 ms.
    "elements of rows": 1 << 20,
    # Products of rows, queries and features: a task takes 0.1 ms.
    "products": 1 << 22,
}


def threads_for(values: Any, work: float, kind: str) -> int:
    """Return how many threads may share an array in memory, for that much work (see `WORTH`).

    It is one, the calling thread, unless that is the main thread and the array is NumPy's: other
    threads may already run in parallel.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_worth = isinstance(values, np.ndarray) and is_main and work >= WORTH[kind]
    return n_workers() if is_worth else 1


class Threads(ThreadPoolExecutor):
    """A pool of threads that run each task in the context of the caller, with its `numpy.errstate`.

    A task that cannot be passed to a thread runs in the calling thread. That happens while the
    interpreter shuts down, in functions of `atexit`, and where the system gives no more threads.

    Parameters
    ----------
    n : int
        Number of threads.
    initializer : callable, optional
        Called by each thread before its first task.
    """

    def __init__(self, n: int, initializer: Callable[[], object] | None = None) -> None:
        super().__init__(n, "gpuselect", initializer)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(copy_context().run, partial(fn, *args, **kwargs))
        except RuntimeError:  # raised by the executor; errors of `fn` go to the future
            return _done_here(fn, *args, **kwargs)


def _done_here(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    done: Future[T] = Future()
    try:
        done.set_result(fn(*args, **kwargs))
    except BaseException as error:
        done.set_exception(error)
    return done


def each(function: Callable[[Each], T], items: Iterable[Each], n_threads: int) -> list[T]:
    """Apply a function to each item, in their order."""
    if n_threads == 1:
        return [function(item) for item in items]
    with Threads(n_threads) as threads:
        return list(threads.map(function, items))


def computed(graph: Mapping[Any, Any], keys: Sequence[Any], n_threads: int) -> tuple[Any, ...]:
    """Compute keys of a graph of arrays in memory, whatever the default scheduler is.

    Dask's callbacks are disabled: a registered cache would store results that are no collection of
    the user's, and find them again by names that need not be unique.
    """
    if n_threads == 1:
        return tuple(get_sync(graph, list(keys), callbacks=()))
    with Threads(n_threads) as threads:
        return tuple(threaded_get(graph, list(keys), pool=threads, callbacks=()))
