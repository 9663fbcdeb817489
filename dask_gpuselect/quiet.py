"""NumPy's floating-point errors in our own arithmetic are no concern of the user's.

Overflow, infinity minus itself and denormal numbers are met on the way to right answers: the next
number after zero is denormal. What `numpy.seterr` says, to raise or to warn, is for the arithmetic
of users, in their functions that we call and in the sources of their arrays.

All that calls compiled kernels is in `quiet`. So this is where Numba's word for a Ctrl-C is
translated: if the signal comes while a kernel's arguments or results are converted, CPython makes a
SystemError of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

# What `numpy.errstate` was where our outermost function was entered; None outside of it.
_outside: ContextVar[dict[str, Any] | None] = ContextVar("_outside", default=None)


@contextmanager
def quiet() -> Iterator[None]:
    """Our own arithmetic: a context, or a decorator of what a user calls or a task runs.

    Tasks need it of their own, for a setting of one thread or process is not that of others.
    """
    if _outside.get() is not None:  # NumPy is quiet already
        yield
        return
    token = _outside.set(dict(np.geterr()))
    try:
        with np.errstate(all="ignore"):
            yield
    except SystemError as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        _outside.reset(token)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether a Ctrl-C is at the beginning of a chain of errors of the interpreter's own."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)


@contextmanager
def outside() -> Iterator[None]:
    """The arithmetic of a user's function that ours calls: what NumPy does is again as it was."""
    before = _outside.get()
    if before is None:
        yield
        return
    token = _outside.set(None)
    try:
        with np.errstate(**before):
            yield
    finally:
        _outside.reset(token)


def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function for tasks that does the same, as `quiet` around it; it can be pickled."""
    return partial(_run, function)


def _run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with quiet():
        return function(*args, **kwargs)
