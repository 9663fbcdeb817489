"""Compiling kernels by Numba: once for each dtype, kept on disk for the next process.

Numba takes half a second to import, and a kernel up to three seconds to compile. Nobody waits for
that to see the median of a small array: a function that NumPy can do as well is marked
`until_compiled`. NumPy answers where the arrays of a call are small, until it has taken `PATIENCE`
seconds for calls of one kind. Kernels answer all else. One that is missing is loaded from the disk
or compiled in the call that needs it, and a call takes one way from its beginning to its end.
Answers are the same either way.

Nothing else in this package asks Numba to keep what it has compiled. The folder is the one that
`NUMBA_CACHE_DIR` names, or `__pycache__` beside the sources, or one of the user's. Where none can
be written, as in a container with a read-only file system, or the disk is full, every process
compiles its kernels anew: seconds, and the same answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from dask_gpuselect import forks
from dask_gpuselect.maths.cuts import Arrays

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
    "by_types",
    "called_by_kernels",
    "called_with",
    "compiled",
    "compiles",
    "forget",
    "intrinsic",
    "jit",
    "jit_when_called",
    "kernels_for",
    "numba",
    "one_way",
    "ready",
    "told_together",
    "types",
    "until_compiled",
]

Kernel = Callable[..., Any]
Types = dict[Kernel, tuple[Any, ...]]
"""Those of the arguments of each kernel."""
Signatures = Callable[[Any, Any], Types]
"""From the types of an array that is read and of one that is written, those of each kernel."""
AnyKernel = TypeVar("AnyKernel", bound=Kernel)

# Elements of the arrays of a call from which on kernels answer, whether they are there or not. With
# its second load and the work around it, NumPy takes up to 0.4 s more than kernels for so many.
LARGE = 1_000_000
PATIENCE = 0.1  # seconds of NumPy's work on small arrays, after which kernels take calls of a kind

_logger = logging.getLogger("dask_gpuselect")

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
        raise NotImplementedError(f"{choose.__name__} can only be called by compiled kernels")

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


_kernels: dict[Hashable, Kernel] = {}


def ready(key: Hashable, build: Callable[[], Kernel]) -> Kernel:
    """A kernel that is compiled: now, if no call has needed it before."""
    found = _kernels.get(key)
    if found is not None:
        return found
    with _building:
        if key not in _kernels:
            _kernels[key] = build()
        return _kernels[key]


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


_tables: list[Signatures] = []
"""Of all modules that have been imported."""


def compiles(signatures: Signatures) -> Callable[[Kernel, np.dtype[Any]], Kernel]:
    """A decorator: `compiled`, by the signatures that a function gives. It names the kernels that
    there are for a dtype, and no others."""
    _tables.append(signatures)
    return partial(compiled, signatures=signatures)


def kernels_for(
    dtype: np.dtype[Any], modules: Collection[str]
) -> list[tuple[Kernel, Callable[[], Kernel]]]:
    """The kernels of some modules for elements of a dtype, each with what compiles it."""
    scalar = numba().from_dtype(dtype)
    values, out = types.Array(scalar, 1, "C", readonly=True), types.Array(scalar, 1, "C")
    return [
        (kernel, partial(compiled, kernel, dtype, signatures))
        for signatures in _tables
        if signatures.__module__.rpartition(".")[2] in modules
        for kernel in signatures(values, out)
    ]


class _Made(NamedTuple):
    """A kernel that has been compiled: of which elements, in which time, and where it is kept."""

    dtype: str
    seconds: float
    folder: str | None


_untold: ContextVar[list[_Made] | None] = ContextVar("_untold", default=None)
"""What a call has compiled so far; None outside of calls."""


@contextmanager
def told_together() -> Iterator[list[_Made]]:
    """Tell what is compiled from here on in one line, at the end."""
    made: list[_Made] = []
    token = _untold.set(made)
    try:
        yield made
    finally:
        _untold.reset(token)
        if made:
            _tell(made)


def _tell(made: Sequence[_Made]) -> None:
    message = "compiled %s for %s in %.1f s; %s. See dask_gpuselect.warm"
    number = "1 kernel" if len(made) == 1 else f"{len(made)} kernels"
    dtypes = ", ".join(sorted({each.dtype for each in made}))
    folder = made[-1].folder
    kept = f"later processes find them in {folder}" if folder else "no folder could keep them"
    _logger.info(message, number, dtypes, sum(each.seconds for each in made), kept)


def jit(kernel: Kernel, signature: tuple[Any, ...]) -> Kernel:
    """A kernel compiled for the types of its arguments, kept on disk if that can be."""
    begin = time.perf_counter()
    found, folder = _jit(kernel, signature)
    if not cast(Any, found).stats.cache_hits:
        dtype = str(getattr(signature[0], "dtype", signature[0]))
        made = _Made(dtype, time.perf_counter() - begin, folder)
        untold = _untold.get()
        if untold is None:
            _tell([made])
        else:
            untold.append(made)
    return found


def _jit(kernel: Kernel, signature: tuple[Any, ...]) -> tuple[Kernel, str | None]:
    """The kernel, and the folder that it is kept in if there is one."""
    njit = numba().njit
    found: Any = None
    # Whatever it is that cannot be written or read: an error of the kernel itself comes again.
    with suppress(Exception):
        found = njit(nogil=True, cache=True)(kernel)
        found.compile(signature)
    if found is not None and found.signatures == [signature]:
        # It may not have been written, but it is there.
        found.disable_compile()
        return cast(Kernel, found), found.stats.cache_path
    # Or two processes that compiled a kernel for two dtypes at the same time have written to one
    # file, and it is the other's.
    return cast(Kernel, njit(signature, nogil=True)(kernel)), None


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


# --- One way for each call ------------------------------------------------------------------------


class _Way:
    """The way that a call takes: that of kernels, or of NumPy, and how long NumPy has worked."""

    def __init__(self, by_kernels: bool) -> None:
        self.by_kernels = by_kernels
        self.seconds = 0.0


_way: ContextVar[_Way | None] = ContextVar("_way", default=None)
"""That of the call at hand; None outside of calls."""


class _Call(NamedTuple):
    """A call, by what decides which way it takes."""

    function: Kernel
    dtype: Any
    size: int


def _call_of(function: Kernel, arguments: Any) -> _Call:
    """The dtype of the first array among the arguments, and the elements of all of them. Arrays may
    be in sequences, as chunks with their codes are, and in reports."""
    dtype, size = None, 0
    waiting = list(reversed(arguments))
    while waiting:
        each = waiting.pop()
        if isinstance(each, list | tuple):
            waiting.extend(reversed(each))
            continue
        if isinstance(each, Arrays):
            waiting.extend(reversed(each.parts()))
            continue
        n, own = getattr(each, "size", None), getattr(each, "dtype", None)
        # Those of other libraries warn where they are compared, and no kernel is for them.
        if isinstance(n, int) and isinstance(own, np.dtype):
            dtype, size = own if dtype is None else dtype, size + n
    return _Call(function, dtype, size)


class _Ways:
    """What has been done in this process so far, by kind of call: a function, and a dtype."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[Kernel, Any], float] = {}

    def is_by_kernels(self, call: _Call) -> bool:
        seconds = self._seconds.get(call[:2], 0.0)
        return call.size >= LARGE or seconds > PATIENCE

    def note(self, call: _Call, seconds: float) -> None:
        """Note that NumPy has taken so long for a call; infinity, that kernels have."""
        self._seconds[call[:2]] = self._seconds.get(call[:2], 0.0) + seconds


_ways = _Ways()


def one_way(function: AnyKernel) -> AnyKernel:
    """A decorator: what a call of this function asks of others is done by kernels or by NumPy, all
    of it. Otherwise one step may hand the other what it does not take."""

    @wraps(function)
    def call(*arguments: Any, **others: Any) -> Any:
        if _way.get() is not None:
            return function(*arguments, **others)
        about = _call_of(function, arguments)
        way = _Way(_ways.is_by_kernels(about))
        token = _way.set(way)
        try:
            with told_together():
                found = function(*arguments, **others)
        finally:
            _way.reset(token)
        _ways.note(about, np.inf if way.by_kernels else way.seconds)
        return found

    return cast(AnyKernel, call)


def until_compiled(by_numpy: Callable[..., Any]) -> Callable[[AnyKernel], AnyKernel]:
    """A decorator: what NumPy does instead, where a call is not worth the time that its kernels
    take to load or to compile."""

    def choose(by_kernels: AnyKernel) -> AnyKernel:
        @one_way
        @wraps(by_kernels)
        def call(*arguments: Any, **others: Any) -> Any:
            way = cast(_Way, _way.get())
            if way.by_kernels:
                return by_kernels(*arguments, **others)
            # Not what comes before: the first call of a process imports the kernels' modules. And
            # what NumPy's way asks of other such functions is in its own time.
            begin = time.thread_time() - way.seconds
            found = by_numpy(*arguments, **others)
            way.seconds = time.thread_time() - begin
            return found

        return cast(AnyKernel, call)

    return choose


def forget() -> None:
    """Forget all kernels: they are compiled again, or read from the disk."""
    _kernels.clear()
