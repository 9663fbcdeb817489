"""Compiling kernels by Numba: once for each dtype, kept on disk for the next process.

Numba takes half a second to import, and a kernel up to two seconds to compile. Nobody waits for
that to see the median of a small array. A function that NumPy can do as well is marked
`until_compiled`: NumPy does it first. Once NumPy has taken `PATIENCE` seconds in a process, a
thread imports Numba and compiles what has been asked for, while work goes on. Later calls take the
compiled kernels. Answers are the same either way.

Nothing else in this package asks Numba to keep what it has compiled. The folder is the one that
`NUMBA_CACHE_DIR` names, or `__pycache__` beside the sources, or one of the user's. Where none can
be written, as in a container with a read-only file system, or the disk is full, every process
compiles its kernels anew: seconds, and the same answers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from dask_gpuselect import forks

if TYPE_CHECKING:
    from numba import types
else:

    class _Types:
        """The types of Numba, which is imported when the first one is asked for."""

        def __getattr__(self, name: str) -> Any:
            from numba import types

            return getattr(types, name)

    types = _Types()

__all__ = [
    "Kernel",
    "Types",
    "at_once",
    "by_types",
    "called_by_kernels",
    "called_with",
    "compiled",
    "compiles",
    "forget",
    "intrinsic",
    "jit",
    "jit_when_called",
    "numba",
    "ready",
    "types",
    "until_compiled",
    "wait",
]

Kernel = Callable[..., Any]
Types = dict[Kernel, tuple[Any, ...]]
"""Those of the arguments of each kernel."""
Signatures = Callable[[Any, Any], Types]
"""From the types of an array that is read and of one that is written, those of each kernel."""
AnyKernel = TypeVar("AnyKernel", bound=Kernel)

PATIENCE = 0.25  # seconds of NumPy's work in a process, after which kernels are compiled


# One kernel at a time, and each once: Numba has such a lock too. No process is copied while it is
# held.
_building = forks.lock()

# --- Numba ----------------------------------------------------------------------------------------

_awaiting_numba: list[Callable[[], object]] = []
"""What is told to Numba once it is imported."""


def numba() -> Any:
    """Numba, once it has been told of all functions that kernels call."""
    with _building:
        import numba

        while _awaiting_numba:
            _awaiting_numba.pop(0)()
    return numba


def called_by_kernels(function: AnyKernel) -> AnyKernel:
    """A decorator: a function that kernels may call."""
    return called_with()(function)


def called_with(**options: Any) -> Callable[[AnyKernel], AnyKernel]:
    """A decorator with Numba's options: a function that kernels may call."""

    def keep(function: AnyKernel) -> AnyKernel:
        def tell() -> object:
            from numba.extending import register_jitable

            return register_jitable(**options)(function) if options else register_jitable(function)

        _awaiting_numba.append(tell)
        return function

    return keep


def by_types(choose: Kernel) -> Kernel:
    """A decorator: a function that kernels alone can call, by one that chooses what it does for the
    types of its arguments."""

    @wraps(choose)
    def stub(*arguments: Any) -> Any:
        raise NotImplementedError("compiled only")

    def tell() -> object:
        from numba.extending import overload

        return overload(stub, strict=False)(choose)

    _awaiting_numba.append(tell)
    return stub


def intrinsic(typed: Kernel) -> Any:
    """What kernels call for instructions of their own; see `numba.extending.intrinsic`."""
    from numba.extending import intrinsic

    return intrinsic(typed)


# --- Kernels --------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A kernel, and how it is compiled."""

    key: Hashable
    build: Callable[[], Kernel]


_kernels: dict[Hashable, Kernel] = {}


class NotCompiledError(Exception):
    """A kernel is not compiled, and there is another way than to wait for it."""


def ready(key: Hashable, build: Callable[[], Kernel]) -> Kernel:
    """A kernel that is compiled: at once, unless the caller is `until_compiled`."""
    found = _kernels.get(key)
    if found is not None:
        return found
    wanted = Wanted(key, build)
    if _this_thread.can_do_without and not _background.has_failed(wanted):
        _background.want(wanted)
        raise NotCompiledError
    return _built(wanted)


def _built(wanted: Wanted) -> Kernel:
    with _building:
        if wanted.key not in _kernels:
            _kernels[wanted.key] = wanted.build()
        return _kernels[wanted.key]


def compiled(kernel: Kernel, dtype: np.dtype[Any], signatures: Signatures) -> Kernel:
    """A kernel compiled for one dtype: once in a process, and kept on disk for the next.

    Read-only arrays are another type to Numba; a signature that asks for no more than reading
    accepts both.
    """
    found = _kernels.get((kernel, dtype, signatures))
    if found is not None:
        return found
    return ready((kernel, dtype, signatures), partial(_compile, kernel, dtype, signatures))


def _compile(kernel: Kernel, dtype: np.dtype[Any], signatures: Signatures) -> Kernel:
    scalar = numba().from_dtype(dtype)
    values = types.Array(scalar, 1, "C", readonly=True)
    signature = signatures(values, types.Array(scalar, 1, "C"))[kernel]
    return jit(kernel, signature)


def compiles(signatures: Signatures) -> Callable[[Kernel, np.dtype[Any]], Kernel]:
    """A decorator: `compiled`, by the signatures that a function gives."""
    return partial(compiled, signatures=signatures)


def jit(kernel: Kernel, signature: tuple[Any, ...]) -> Kernel:
    """A kernel compiled for the types of its arguments, kept on disk if that can be."""
    njit = numba().njit
    found: Any = None
    # Whatever it is that cannot be written or read: an error of the kernel itself comes again.
    with suppress(Exception):
        found = njit(nogil=True, cache=True)(kernel)
        found.compile(signature)
    if found is not None and found.signatures == [signature]:
        # It may not have been written, but it is there.
        found.disable_compile()
        return cast(Kernel, found)
    # Or two processes that compiled a kernel for two dtypes at the same time have written to one
    # file, and it is the other's.
    return cast(Kernel, njit(signature, nogil=True)(kernel))


def jit_when_called(kernel: Kernel) -> Kernel:
    """A decorator: compile a kernel for the types of the arguments of a call, when that comes."""
    kept = cache(lambda: numba().njit(nogil=True, cache=True)(kernel))
    plain = cache(lambda: numba().njit(nogil=True)(kernel))

    @wraps(kernel)
    def call(*arguments: Any) -> Any:
        try:
            return kept()(*arguments)
        except Exception:  # as in `jit`
            return plain()(*arguments)

    return call


# --- Until then -----------------------------------------------------------------------------------


class _ThisThread(threading.local):
    """Whether the function that a thread is in has another way, if a kernel is not compiled."""

    can_do_without = False


_this_thread = _ThisThread()
_is_patient = True


@contextmanager
def at_once() -> Iterator[None]:
    """Every kernel is compiled when it is first asked for, in every thread: nothing is done by
    NumPy instead."""
    global _is_patient
    before, _is_patient = _is_patient, False
    try:
        yield
    finally:
        _is_patient = before


def until_compiled(by_numpy: Callable[..., Any]) -> Callable[[AnyKernel], AnyKernel]:
    """A decorator: what does the same without a kernel, until all kernels of a function are there.

    The function must change none of its arguments before it has asked for its kernels.
    """

    def choose(by_kernels: AnyKernel) -> AnyKernel:
        @wraps(by_kernels)
        def call(*arguments: Any, **others: Any) -> Any:
            before = _this_thread.can_do_without
            _this_thread.can_do_without = _is_patient
            try:
                return by_kernels(*arguments, **others)
            except NotCompiledError:
                pass
            finally:
                _this_thread.can_do_without = before
            begin = time.thread_time()
            found = by_numpy(*arguments, **others)
            _background.spend(time.thread_time() - begin)
            return found

        return cast(AnyKernel, call)

    return choose


class _Background:
    """A thread that compiles what is wanted: there is one while there is work for it.

    The process waits for it to end, for LLVM must not be cut off, but no longer than for the kernel
    that is at hand.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[Hashable, Wanted] = {}
        self._failed: set[Hashable] = set()
        self._spent = 0.0
        self._thread: threading.Thread | None = None

    def want(self, wanted: Wanted) -> None:
        self._wanted.setdefault(wanted.key, wanted)

    def has_failed(self, wanted: Wanted) -> bool:
        """Whether it could not be compiled: whoever needs it tries again, and sees why."""
        return wanted.key in self._failed

    def spend(self, seconds: float) -> None:
        """Note that NumPy has taken so long for what kernels would have done."""
        with self._lock:
            self._spent += seconds
            if self._spent < PATIENCE or not self._wanted or self._thread is not None:
                return
            self._thread = threading.Thread(target=self._work, name="dask-gpuselect-compiling")
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter ends, or there are too many threads
                self._thread = None

    def wait(self) -> None:
        """Until nothing is being compiled."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                _built(wanted)
            except Exception:  # seen by whoever needs it
                self._failed.add(wanted.key)
            self._wanted.pop(wanted.key, None)

    def _next(self) -> Wanted | None:
        with self._lock:
            found = next(iter(self._wanted.values()), None)
            if found is None or not threading.main_thread().is_alive():
                self._thread = found = None
            return found


_background = _Background()


def forget() -> None:
    """Forget all kernels: they are compiled again, or read from the disk."""
    _kernels.clear()


def wait() -> None:
    """Wait for kernels that are being compiled in the background."""
    _background.wait()


def _after_fork() -> None:
    """A child has no thread that compiles."""
    global _background
    _background = _Background()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
