"""NumPy's floating-point errors in this package's own arithmetic are hidden from users.

Overflow, infinity minus itself and denormal numbers occur on the way to right answers: the next
number after zero is denormal. The settings of `numpy.seterr`, to raise or to warn, are for the
arithmetic of users, in their functions that we call and in the sources of their arrays.

All calls of compiled kernels are within `quiet`. So a Ctrl-C in a kernel is translated here: if the
signal comes while Numba converts a kernel's arguments or results, CPython raises a SystemError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

# The settings of `numpy.errstate` when our outermost function was entered; None outside of it.
_outside: ContextVar[dict[str, Any] | None] = ContextVar("_outside", default=None)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence NumPy's floating-point errors, as a context or a decorator.

    Public functions and tasks each use it: a setting of one thread or process is not that of
    others.
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
    """Return whether a chain of the interpreter's SystemErrors began with a Ctrl-C."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)


@contextmanager
def outside() -> Iterator[None]:
    """Restore the user's floating-point settings while a function of the user runs."""
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
    """Wrap a function for tasks in `quiet`; the result can be pickled."""
    return partial(_run, function)


def _run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function within `quiet`."""
    with quiet():
        return function(*args, **kwargs)
