"""Denormal numbers in threads that take them for zero."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

ROOM = 256  # bytes for `fenv_t`, of which no system has so many
DEFAULT = ctypes.c_void_p(-1)  # `FE_DFL_ENV` of glibc and musl


def keeping_denormals(function: Function) -> Function:
    """Decorate a function of floats that compares denormal numbers in every thread.

    A library that was built with ``-ffast-math`` has the thread that loads it take them for zero.
    The setting of the thread is restored. On systems other than Linux it is left alone.
    """
    if sys.platform != "linux":
        return function

    @wraps(function)
    def call(*arguments: Any) -> Any:
        before = setting()
        use(DEFAULT)
        try:
            return function(*arguments)
        finally:
            use(before)

    return call  # type: ignore[return-value]


def setting() -> Any:
    """Return how this thread computes with floats."""
    room = ctypes.create_string_buffer(ROOM)
    _library().fegetenv(room)
    return room


def use(setting: Any) -> None:
    """Let this thread compute in another way."""
    _library().fesetenv(setting)


@lru_cache(maxsize=1)
def _library() -> ctypes.PyDLL:
    """Return the library of C for floats."""
    try:
        return ctypes.PyDLL("libm.so.6")
    except OSError:  # musl has one library for all
        return ctypes.PyDLL(None)
