"""Calls of a function, noted while a test runs, and computations, refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dask.threaded
import pytest


def noted(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    note: Callable[..., Any],
    notes: list[Any] | None = None,
) -> list[Any]:
    """Replace a function by one that notes each call, and return the list of notes.

    Parameters
    ----------
    owner : module or class
        What has the function, under that name.
    note : callable
        From the answer and the arguments to what is noted.
    notes : list, optional
        Where to note; by default a new list.
    """
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


def wait_for_threads() -> None:
    """Wait until no thread of dask works on a task of an earlier call."""
    if (pool := dask.threaded.default_pool) is not None:
        together = threading.Barrier(pool._max_workers)
        for each in [pool.submit(together.wait, 60) for _ in range(pool._max_workers)]:
            each.result()


class ComputedError(AssertionError):
    """A call computed something."""


def refuse(*_: Any, **__: Any) -> Any:
    """Compute nothing, as a scheduler or as a callback of one."""
    raise ComputedError("something was computed")
