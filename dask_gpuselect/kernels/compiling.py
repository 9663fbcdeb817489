"""Compilation of kernels by Numba, once for each dtype, with a cache on disk.

Importing Numba takes half a second, and compiling a kernel up to three seconds. The median of a
small array need not wait for that: a function that NumPy can compute as well is marked
`until_compiled`. NumPy answers calls with small arrays, until it has spent `PATIENCE` seconds on
calls of one kind. Kernels answer all other calls. A kernel that is missing is loaded from disk or
compiled in the call that needs it, and a whole call is computed either by NumPy or by kernels. The
answers are identical.

Nothing else in this package uses Numba's cache. Its folder is `NUMBA_CACHE_DIR`, or `__pycache__`
beside the sources, or one of the user's. If none is writable, as in a container with a read-only
file system, or if the disk is full, every process compiles its kernels anew: it takes seconds, and
the answers are the same.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from dask_gpuselect import forks
from dask_gpuselect.maths.cuts import Arrays

if TYPE_CHECKING:
    from numba import types as types
else:
    from dask_gpuselect.kernels import numba_types as types

Kernel = Callable[..., Any]
AnyKernel = TypeVar("AnyKernel", bound=Kernel)

# Calls whose arrays have this many elements use kernels, even if these must be compiled first. With
# its second load and the work around it, NumPy takes up to 0.4 s longer than kernels for so many.
LARGE = 1_000_000
MANY = 1 << 10  # arguments and their parts, such as the partial results of slots
PATIENCE = 0.1  # seconds of NumPy's work on small arrays, after which calls of a kind use kernels

_logger = logging.getLogger("dask_gpuselect")

# Kernels are compiled one at a time, and each once; Numba has such a lock too. No process is forked
# while it is locked.
_building = forks.lock()

# --- Numba ----------------------------------------------------------------------------------------

_awaiting_numba: list[Callable[[], object]] = []
"""Registrations of functions that wait until Numba is imported."""


def numba() -> Any:
    """Import Numba, and register all functions that kernels call."""
    with _building:
        import numba

        while _awaiting_numba:
            _awaiting_numba.pop(0)()
    return numba


def called_with(**options: Any) -> Callable[[AnyKernel], AnyKernel]:
    """Decorate a function that kernels may call, with Numba's options."""

    def keep(function: AnyKernel) -> AnyKernel:
        def register() -> object:
            from numba.extending import register_jitable

            # With no option at all, it would take the function itself.
            return register_jitable(inline="never", **options)(function)

        _awaiting_numba.append(register)
        return function

    return keep


called_by_kernels = called_with()
"""Decorate a function that kernels may call."""


def by_types(choose: Kernel) -> Kernel:
    """Decorate a function that picks an implementation by the types of its arguments.

    Only kernels can call the result; see `numba.extending.overload`.
    """

    @wraps(choose)
    def stub(*arguments: Any) -> Any:
        raise NotImplementedError(f"{choose.__name__} can only be called by compiled kernels")

    def register() -> object:
        from numba.extending import overload

        return overload(stub, strict=False)(choose)

    _awaiting_numba.append(register)
    return stub


def intrinsic(typed: Kernel) -> Any:
    """Make an LLVM instruction that kernels can call; see `numba.extending.intrinsic`."""
    from numba.extending import intrinsic

    return intrinsic(typed)


def instructions(name: str, result: str, given: Sequence[str], write: Callable[..., Any]) -> Kernel:
    """Make a function that kernels can call from LLVM instructions.

    `write` writes them: it gets the builder and the values of the arguments, and returns that of
    the result. Types are names of Numba's.
    """

    def typed(context: Any, together: Any) -> Any:
        del context, together

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del signature
            each = (builder.extract_value(arguments[0], i) for i in range(len(given)))
            value = write(builder, *each)
            return context.get_dummy_value() if value is None else value

        own = types.Tuple([getattr(types, each) for each in given])
        return getattr(types, result)(own), generate

    def choose(*_: Any) -> Any:
        made = intrinsic(renamed(typed, f"_{name}"))
        return renamed(lambda *arguments: made(arguments), name)

    return by_types(renamed(choose, name))


# --- Kernels --------------------------------------------------------------------------------------


_kernels: dict[Hashable, Kernel] = {}


def ready(key: Hashable, build: Callable[[], Kernel]) -> Kernel:
    """Return a compiled kernel, and build it if no call has needed it before."""
    cached = _kernels.get(key)
    if cached is not None:
        return cached
    with _building:
        if key not in _kernels:
            _kernels[key] = build()
        return _kernels[key]


def compiled(kernel: Kernel, dtype: np.dtype[Any]) -> Kernel:
    """Compile a kernel for one dtype: once in a process, and cached on disk for the next.

    Numba gives read-only arrays a type of their own. A kernel for read-only arrays accepts both.
    """
    return ready((kernel, dtype), lambda: jit(kernel, signature_of(kernel, dtype)))


def is_ready(kernel: Kernel, dtype: np.dtype[Any]) -> bool:
    """Return whether a call of a kernel with elements of a dtype need not wait for it."""
    return (inspect.unwrap(kernel), dtype) in _kernels


def signature_of(kernel: Kernel, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return Numba's types of the parameters of a kernel for elements of a dtype."""
    scalar = numba().from_dtype(dtype)
    hints = get_type_hints(kernel, include_extras=True)
    hints.pop("return")
    return tuple(_type_of(hint, scalar) for hint in hints.values())


_declared: list[tuple[Kernel, Collection[str]]] = []
"""The kernels of all modules that have been imported, with their dtypes; none means all."""


@dataclass(frozen=True)
class Parameter:
    """Type of a parameter of a kernel: a number or an array.

    Parameters
    ----------
    dtype : str, optional
        Name of one of Numba's types, by default that of the elements. "int" and "uint" are as wide
        as an element.
    ndim : int, optional
        0 for a number.
    layout : str, optional
        "A" if it need not be contiguous.
    is_read : bool, optional
        True if the kernel does not write to it.
    least : int, optional
        Least number of bits of "int" and "uint".
    """

    dtype: str = ""
    ndim: int = 1
    layout: str = "C"
    is_read: bool = False
    least: int = 0

    def type_of(self, scalar: Any) -> Any:
        """Return Numba's type of the parameter for elements of a type."""
        width = max(scalar.bitwidth, self.least) if self.dtype in ("int", "uint") else ""
        own: Any = getattr(types, f"{self.dtype}{width}") if self.dtype else scalar
        layout: Any = self.layout
        return types.Array(own, self.ndim, layout, readonly=self.is_read) if self.ndim else own


def kernel_of(dtypes: str) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel for elements of some dtypes, such as "f4 f8", or "" for all.

    The kernel is compiled for the dtype of the first array among its arguments. The annotations of
    its parameters are numbers, types of `kernels.cpu.typed`, and tuples of these.
    """

    def typed(function: Kernel) -> Kernel:
        _declared.append((function, dtypes.split()))

        @wraps(function)
        def call(first: Any, *others: Any) -> Any:
            array = first[0] if isinstance(first, tuple) else first
            return compiled(function, array.dtype)(first, *others)

        return call

    return typed


kernel = kernel_of("")
_NUMBERS: dict[Any, Parameter] = {
    int: Parameter("int64", 0),
    float: Parameter("float64", 0),
    bool: Parameter("boolean", 0),
}


def renamed(function: Kernel, name: str, **types_: Any) -> Kernel:
    """Give a name of its own, and types of some parameters, to a function that a function makes.

    Numba tells functions of one name and the same types apart by a number, and every process counts
    from 1. Two processes that cache their kernels on disk may give one symbol to two of these
    functions. A third process that loads both kernels would then call one function in place of the
    other.
    """
    function.__name__ = function.__qualname__ = name
    function.__annotations__.update(types_)
    return function


def _type_of(hint: Any, scalar: Any) -> Any:
    """Return Numba's type of an annotated parameter."""
    if get_origin(hint) is tuple:
        return types.Tuple([_type_of(each, scalar) for each in get_args(hint)])
    parameter = _NUMBERS[hint] if hint in _NUMBERS else hint.__metadata__[0]
    return parameter.type_of(scalar)


def kernels_for(
    dtype: np.dtype[Any], modules: Collection[str]
) -> list[tuple[Kernel, Callable[[], Kernel]]]:
    """List the kernels of some modules for a dtype, each with a function that compiles it."""
    return [
        (kernel, partial(compiled, kernel, dtype))
        for kernel, dtypes in _declared
        if kernel.__module__.rpartition(".")[2] in modules
        if not dtypes or dtype.str[1:] in dtypes
    ]


Made = tuple[str, float, str | None]
"""A kernel that has been compiled: its dtype, the seconds that took, and its cache folder."""

_unlogged: ContextVar[list[Made] | None] = ContextVar("_unlogged", default=None)
"""Kernels that the current call has compiled so far; None outside of calls."""


@contextmanager
def logged_together() -> Iterator[list[Made]]:
    """Log all kernels that are compiled inside this context in one line, at its end."""
    made: list[Made] = []
    token = _unlogged.set(made)
    try:
        yield made
    finally:
        _unlogged.reset(token)
        if made:
            _log(made)


def _log(made: Sequence[Made]) -> None:
    message = "compiled %s for %s in %.1f s; %s. See dask_gpuselect.warm"
    number = "1 kernel" if len(made) == 1 else f"{len(made)} kernels"
    dtypes, seconds, folders = zip(*made, strict=True)
    folder = folders[-1]
    where = f"later processes find them in {folder}" if folder else "no folder could keep them"
    _logger.info(message, number, ", ".join(sorted(set(dtypes))), sum(seconds), where)


def jit(kernel: Kernel, signature: tuple[Any, ...]) -> Kernel:
    """Compile a kernel for the types of its arguments, and cache it on disk if possible."""
    begin = time.perf_counter()
    dispatcher, folder = _jit(kernel, signature)
    if not cast(Any, dispatcher).stats.cache_hits:
        dtype = str(getattr(signature[0], "dtype", signature[0]))
        made = dtype, time.perf_counter() - begin, folder
        unlogged = _unlogged.get()
        if unlogged is None:
            _log([made])
        else:
            unlogged.append(made)
    return dispatcher


def _jit(kernel: Kernel, signature: tuple[Any, ...]) -> tuple[Kernel, str | None]:
    """Compile a kernel; return it with its cache folder, None if it is not cached."""
    njit = numba().njit
    dispatcher: Any = None
    # Any error of reading or writing the cache is ignored; an error of the kernel itself is raised
    # again below.
    with suppress(Exception):
        dispatcher = njit(nogil=True, cache=True)(kernel)
        dispatcher.compile(signature)
    if dispatcher is not None and dispatcher.signatures == [signature]:
        # It may not have been cached, but it is compiled.
        dispatcher.disable_compile()
        return cast(Kernel, dispatcher), dispatcher.stats.cache_path
    # The cache failed, or it holds a kernel for another dtype: two processes that compile a kernel
    # for two dtypes at the same time may write to one file.
    return cast(Kernel, njit(signature, nogil=True)(kernel)), None


# --- NumPy or kernels for a whole call ------------------------------------------------------------


_numpy_seconds: ContextVar[float | None] = ContextVar("_numpy_seconds", default=None)
"""NumPy's seconds in the current call; infinity if kernels answer it, and None outside of calls."""


Kind = tuple[Kernel, Any]
"""A function and the dtype of its elements, which decide the path of a call with its size."""


def _dtype_and_size(*arguments: Any) -> tuple[Any, int]:
    """Return the dtype of the first array among the arguments of a call, and the size of all.

    Arrays may be inside sequences, such as chunks with their codes, and inside partial results.
    Not all are counted if some are large, or if they are many: then the call is as large.
    """
    dtype, size, n_seen = None, 0, 0
    waiting = list(reversed(arguments))
    while waiting and (dtype is None or size < LARGE):
        n_seen += 1
        if n_seen > MANY:
            return dtype, LARGE
        each = waiting.pop()
        if isinstance(each, list | tuple):
            waiting.extend(reversed(each))
            continue
        if isinstance(each, Arrays):
            waiting.extend(reversed(each.parts()))
            continue
        n, own = getattr(each, "size", None), getattr(each, "dtype", None)
        # Comparing dtypes of other libraries may warn, and no compiled kernel takes their arrays.
        if isinstance(n, int) and isinstance(own, np.dtype):
            dtype, size = own if dtype is None else dtype, size + n
    return dtype, size


_seconds: dict[Kind, float] = {}
"""NumPy's seconds in this process, by kind of call; infinity if kernels took one."""


def _is_by_kernels(kind: Kind, size: int) -> bool:
    return size >= LARGE or _seconds.get(kind, 0.0) > PATIENCE


def one_way(function: AnyKernel, about: Callable[..., tuple[Any, int]] | None = None) -> AnyKernel:
    """Decorate a function so that the kernels of one call are all compiled, or all by NumPy.

    If steps were mixed, one might get elements from another in a form that it does not take.
    `about` maps the arguments to the dtype of the elements and to the size of the work, if that is
    not the number of elements.
    """

    @wraps(function)
    def call(*arguments: Any, **others: Any) -> Any:
        if _numpy_seconds.get() is not None:
            return function(*arguments, **others)
        dtype, size = (about or _dtype_and_size)(*arguments)
        kind = function, dtype
        token = _numpy_seconds.set(np.inf if _is_by_kernels(kind, size) else 0.0)
        try:
            with logged_together():
                answer = function(*arguments, **others)
            seconds = _numpy_seconds.get() or 0.0
        finally:
            _numpy_seconds.reset(token)
        _seconds[kind] = _seconds.get(kind, 0.0) + seconds
        return answer

    return cast(AnyKernel, call)


def until_compiled(by_numpy: Callable[..., Any]) -> Callable[[AnyKernel], AnyKernel]:
    """Decorate a kernel with NumPy's version of it.

    NumPy answers if the call is too small to be worth loading or compiling the kernel.
    """

    def choose(by_kernels: AnyKernel) -> AnyKernel:
        @one_way
        @wraps(by_kernels)
        def call(*arguments: Any, **others: Any) -> Any:
            seconds = _numpy_seconds.get() or 0.0
            if seconds == np.inf:
                return by_kernels(*arguments, **others)
            # Earlier work is not timed: the first call of a process imports the kernels' modules.
            # What this call asks of other such functions is part of its own time.
            begin = time.thread_time() - seconds
            answer = by_numpy(*arguments, **others)
            _numpy_seconds.set(time.thread_time() - begin)
            return answer

        return cast(AnyKernel, call)

    return choose
