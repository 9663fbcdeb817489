"""Calls of a function, noted while a test runs, computations, refused, and conditions, awaited."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import dask.threaded
import pytest
from dask.local import SynchronousExecutor


def noted(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    note: Callable[..., Any],
    notes: list[Any] | None = None,
) -> list[Any]:
    """Replace a function by one that notes each call, and return the list of notes.

    Tasks of an earlier test that ended by an error have ended before.

    Parameters
    ----------
    owner : module or class
        What has the function, under that name.
    note : callable
        From the answer and the arguments to what is noted.
    notes : list, optional
        Where to note; by default a new list.
    """
    wait_for_threads()
    calls: list[Any] = [] if notes is None else notes
    function = getattr(owner, name)

    def noting(*args: Any, **how: Any) -> Any:
        answer = None  # of a call that fails
        try:
            answer = function(*args, **how)
            return answer
        finally:
            calls.append(note(answer, *args, **how))

    patch.setattr(owner, name, noting)
    return calls


class TwoInTurn(SynchronousExecutor):
    """Begin two tasks before the result of either is known, as two threads do that never wait."""

    _max_workers = 2


DEADLINE = 300
"""Seconds that nothing takes unless it hangs, on a machine that has much else to do."""


def wait_until(is_so: Callable[[], Any]) -> None:
    """Wait for a condition that other threads or processes bring about."""
    end = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < end, "hang"
        time.sleep(0.01)


def wait_for_threads() -> None:
    """Wait until no thread of dask works on a task of an earlier call of this thread, or has its
    result: an error ends a call before its other tasks."""
    pools = dask.threaded.pools.get(threading.current_thread(), {})
    for pool in filter(None, [dask.threaded.default_pool, *pools.values()]):
        together = threading.Barrier(pool._max_workers, timeout=DEADLINE)
        for each in [pool.submit(together.wait) for _ in range(pool._max_workers)]:
            each.result()


def collect() -> None:
    """Collect garbage, and what threads of dask have."""
    wait_for_threads()
    gc.collect()


class ComputedError(AssertionError):
    """A call computed something."""


def refuse(*_: Any, **__: Any) -> Any:
    """Compute nothing, as a scheduler or as a callback of one."""
    raise ComputedError("something was computed")
