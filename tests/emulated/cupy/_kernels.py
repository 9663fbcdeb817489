"""Kernels that are written in CUDA C++."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from . import compiler
from ._arrays import ndarray
from .cuda import driver

# --- Modules --------------------------------------------------------------------------------------


class RawModule:
    def __init__(
        self, *, code: str, backend: str = "nvrtc", options: tuple[str, ...] = (), **_: Any
    ) -> None:
        self.code = code

    def get_function(self, name: str) -> Function:
        return Function(self.code, name)


class Function:
    def __init__(self, code: str, name: str) -> None:
        self.name = name
        self.compiled = compiler.Compiled(code, name)
        self.n_static = self.compiled.static[1] - self.compiled.static[0]
        self.max_dynamic_shared_size_bytes = driver.FREE - self.n_static
        self.ptr = len(driver.functions)
        driver.functions.append(self)

    @property
    def kernel(self) -> Function:
        return self

    def __call__(
        self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, stream: Any = None
    ) -> None:
        grid, block = ((*sizes, 1, 1)[:3] for sizes in (grid, block))
        driver.check(self, grid, block, shared_mem)
        sizes = self.compiled.sizes
        if len(args) != len(sizes):
            raise TypeError(f"{self.name} takes {len(sizes)} arguments, not {len(args)}")
        # What is behind an argument that is too short is anything.
        values = [_bytes_of(a) for a in args]
        for i, (value, size) in enumerate(zip(values, sizes, strict=True)):
            if len(value) != size:
                raise TypeError(f"argument {i} of {self.name} has {size} bytes, not {len(value)}")
        places = [ctypes.create_string_buffer(value, len(value)) for value in values]
        # Kernels load vectors from them.
        aligned = [np.zeros(size + 16, np.uint8) for size in sizes]
        addresses = []
        for target, value in zip(aligned, places, strict=True):
            start = target.ctypes.data + -target.ctypes.data % 16
            ctypes.memmove(start, value, len(value))
            addresses.append(start)
        self.compiled(addresses, grid, block, shared_mem)


def _bytes_of(argument: Any) -> bytes:
    """An argument as CuPy passes it."""
    if isinstance(argument, ndarray):
        return np.uint64(argument.data.ptr).tobytes()
    if isinstance(argument, np.ndarray) and argument.size == 1:
        return argument.tobytes()
    if isinstance(argument, np.generic):
        return argument.tobytes()
    if isinstance(argument, bool | int | float | complex):
        return np.asarray(argument).tobytes()
    raise TypeError(f"a kernel cannot be given {type(argument)}")


# --- Elementwise kernels and reductions -----------------------------------------------------------

NAMES = {"?": "bool", "e": "_Float16", "f": "float", "d": "double"}


def _name(dtype: np.dtype[Any]) -> str:
    """Of a type in C++."""
    integers = {1: "signed char", 2: "short", 4: "int", 8: "long long"}
    if dtype.kind in "iu":
        name = integers[dtype.itemsize]
        return name if dtype.kind == "i" else "unsigned " + name.removeprefix("signed ")
    return NAMES[dtype.char]


class _Parameter:
    def __init__(self, text: str) -> None:
        *raw, self.kind, self.name = text.split()
        self.is_raw = raw == ["raw"]

    def dtype(self, generic: dict[str, np.dtype[Any]]) -> np.dtype[Any]:
        return generic[self.kind] if len(self.kind) == 1 else np.dtype(self.kind)


def _parameters(text: str) -> list[_Parameter]:
    return [_Parameter(each) for each in text.split(",") if each.strip()]


class _Kernel:
    """What elementwise kernels and reductions share."""

    def __init__(self, inputs: str, outputs: str, name: str, preamble: str) -> None:
        self.inputs, self.outputs = _parameters(inputs), _parameters(outputs)
        self.name, self.preamble = name, preamble

    def prepared(self, args: Any) -> tuple[dict[str, np.dtype[Any]], list[Any]]:
        """What the generic types are, and the inputs broadcast."""
        generic: dict[str, np.dtype[Any]] = {}
        for parameter, argument in zip(self.inputs, args, strict=False):
            if len(parameter.kind) == 1 and hasattr(argument, "dtype"):
                generic.setdefault(parameter.kind, argument.dtype)
        given = []
        for parameter, argument in zip(self.inputs, args, strict=False):
            if isinstance(argument, np.ndarray):
                raise TypeError(f"Unsupported type {type(argument)}")
            host = argument._host if isinstance(argument, ndarray) else argument
            dtype = parameter.dtype(generic)
            if parameter.is_raw and host.dtype != dtype:
                raise TypeError(f"{self.name}: {parameter.name} is {host.dtype}, not {dtype}")
            given.append(np.asarray(host, dtype))
        flat = [a for a, p in zip(given, self.inputs, strict=True) if not p.is_raw]
        shape = np.broadcast_shapes(*(a.shape for a in flat))
        return generic, [
            np.ascontiguousarray(a if p.is_raw else np.broadcast_to(a, shape))
            for a, p in zip(given, self.inputs, strict=True)
        ]

    def run(self, generic: dict[str, np.dtype[Any]], arrays: list[Any], n: int, body: str) -> None:
        types = "".join(f"typedef {_name(dtype)} {kind};\n" for kind, dtype in generic.items())
        run = _compiled(f"{types}{self.preamble}", body)
        run(ctypes.c_longlong(n), (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)))

    def declared(self, generic: dict[str, np.dtype[Any]], parameter: _Parameter, place: int) -> str:
        kind = _name(parameter.dtype(generic))
        own = f"(({kind}*)arguments[{place}])"
        if parameter.is_raw:
            return f"{kind}* {parameter.name} = {own};\n"
        reference = "&" if parameter in self.outputs else ""
        return f"{kind}{reference} {parameter.name} = {own}[i];\n"


@functools.cache
def _compiled(before: str, body: str) -> Any:
    run = f'extern "C" void run(long long n, void** arguments) {{\n{body}\n}}\n'
    text = f"namespace {{\n{before}\n}}\n{run}"
    compiler.runtime()
    path = compiler.library('#include "cuda.hpp"\n' + compiler.translated(text), compiler.ALONE)
    return ctypes.CDLL(str(path)).run


class ElementwiseKernel(_Kernel):
    def __init__(
        self, inputs: str, outputs: str, operation: str, name: str = "", preamble: str = ""
    ) -> None:
        super().__init__(inputs, outputs, name, preamble)
        self.operation = operation

    def __call__(self, *args: Any) -> ndarray:
        generic, given = self.prepared(args[: len(self.inputs)])
        shape = next(a.shape for a, p in zip(given, self.inputs, strict=True) if not p.is_raw)
        targets = list(args[len(self.inputs) :])
        if not targets:
            targets = [ndarray(shape, p.dtype(generic)) for p in self.outputs]
        for target in targets:
            assert target.flags.c_contiguous, "outputs that are not contiguous are not emulated"
        parameters = [*self.inputs, *self.outputs]
        lines = [self.declared(generic, p, place) for place, p in enumerate(parameters)]
        body = f"for (long long i = 0; i < n; ++i) {{\n{''.join(lines)}{self.operation};\n}}"
        arrays = [*given, *(target._host for target in targets)]
        self.run(generic, arrays, int(np.prod(shape, dtype=np.int64)), body)
        return targets[0]  # type: ignore[no-any-return]


class ReductionKernel(_Kernel):
    def __init__(
        self, inputs: str, outputs: str, map_: str, reduce: str, post: str, identity: str,
        name: str = "", reduce_type: Any = None, reduce_dims: bool = True, preamble: str = "",
    ) -> None:  # fmt: skip
        super().__init__(inputs, outputs, name, preamble)
        self.map, self.reduce, self.post, self.identity = map_, reduce, post, identity

    def __call__(self, *args: Any, axis: Any = None) -> ndarray:
        generic, given = self.prepared(args)
        # Those that stay first.
        ndim = given[0].ndim
        reduced = [a % ndim for a in (range(ndim) if axis is None else np.atleast_1d(axis))]
        others = [a for a in range(ndim) if a not in reduced]
        given = [np.ascontiguousarray(a.transpose(*others, *reduced)) for a in given]
        (output,) = self.outputs
        target = ndarray([given[0].shape[a] for a in range(len(others))], output.dtype(generic))
        each = np.array(np.prod(given[0].shape[len(others) :], dtype=np.int64))
        kind = _name(target.dtype)
        lines = [self.declared(generic, p, place) for place, p in enumerate(self.inputs)]
        body = (
            f"long long each = *(long long*)arguments[{len(given) + 1}];\n"
            f"for (long long j = 0; j < n; ++j) {{\n{kind} a = {self.identity};\n"
            f"for (long long i = j * each; i < (j + 1) * each; ++i) {{\n{''.join(lines)}"
            f"{kind} b = {self.map};\na = {self.reduce};\n}}\n"
            f"{kind}& {output.name} = (({kind}*)arguments[{len(given)}])[j];\n{self.post};\n}}"
        )
        self.run(generic, [*given, target._host, each], target.size, body)
        return target
