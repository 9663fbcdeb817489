"""The kinds of array that tests run over: NumPy's, and CuPy's where there is a CUDA device."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import devices
from dask_gpuselect.kernels import registry


class Backend:
    """One kind of array: how a test makes it, and how it sees the answers.

    Parameters
    ----------
    name : str
        Of the module, imported when it is first needed.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    @property
    def xp(self) -> Any:
        return importlib.import_module(self.name)

    @property
    def array_type(self) -> type[Any]:
        """Of chunks, and of answers that have dimensions."""
        kind: type[Any] = self.xp.ndarray
        return kind

    def supports(self, dtype: Any) -> bool:
        """Whether there are such arrays."""
        return True

    def asarray(self, values: Any) -> Any:
        return self.xp.asarray(values)

    def held(self, values: Any, chunks: Any) -> da.Array:
        """A dask array of chunks in memory."""
        return da.from_array(self.asarray(values), chunks=chunks, asarray=False)

    def lazy(self, values: Any, chunks: Any) -> da.Array:
        """A source that is no data in memory: each load makes the chunk anew."""
        x = self.asarray(values)
        source = da.from_array(x, chunks=chunks, asarray=False)
        meta = self.asarray(np.empty((0,) * x.ndim, x.dtype))
        return source.map_blocks(self.xp.copy, dtype=x.dtype, meta=meta)

    def mapped(self, x: da.Array) -> da.Array:
        """The same array with each chunk, once NumPy has loaded it, of this kind."""
        return x

    def to_numpy(self, answer: Any) -> Any:
        """An answer that is of this kind as NumPy gives it: a scalar if it has no dimensions."""
        assert isinstance(answer, np.ndarray | np.generic), type(answer)
        return answer

    def free(self) -> None:
        """Give back memory that is kept for later arrays."""


class CuPy(Backend):
    def __init__(self) -> None:
        super().__init__("cupy")

    def supports(self, dtype: Any) -> bool:
        """Neither dates nor extended precision, objects and big-endian numbers."""
        dtype = np.dtype(dtype)
        return dtype.kind in "biufc" and dtype.char not in "gG" and dtype.isnative

    def held(self, values: Any, chunks: Any) -> da.Array:
        # Dask slices a CuPy array in tasks: only when they have run is each chunk there by itself.
        return super().held(values, chunks).persist(scheduler="sync")

    def mapped(self, x: da.Array) -> da.Array:
        return x.map_blocks(self.xp.asarray)

    def to_numpy(self, answer: Any) -> Any:
        assert type(answer) is self.array_type, type(answer)
        return answer.get()[()]

    def free(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()

    @contextmanager
    def allocations(self) -> Iterator[list[int]]:
        """The sizes in bytes of all that this thread allocates on the device meanwhile."""
        sizes: list[int] = []
        allocate = self.xp.get_default_memory_pool().malloc

        def noted(size: int) -> Any:
            sizes.append(size)
            return allocate(size)

        with self.xp.cuda.using_allocator(noted):
            yield sizes


class Strict(Backend):
    """Arrays that offer nothing beyond the array API standard."""

    @property
    def array_type(self) -> type[Any]:
        return type(self.xp.zeros(1))

    def to_numpy(self, answer: Any) -> Any:
        assert isinstance(answer, self.array_type)
        return np.asarray(answer)


NUMPY, CUPY, STRICT = Backend("numpy"), CuPy(), Strict("array_api_strict")


def kind_of(x: Any) -> Backend:
    """Of which kind an array is, or says that its chunks are if it is lazy.

    Dask forgets that they are CuPy's where a mask of all dimensions selects elements.
    """
    chunk = x._meta if isinstance(x, da.Array) else x
    return CUPY if type(chunk).__module__.partition(".")[0] == "cupy" else NUMPY


@cache
def device_problem() -> str:
    """Why no test can run on a CUDA device here; empty if tests can."""
    try:
        devices.check_device()
    except (ImportError, RuntimeError) as error:
        return str(error)
    return ""


def param(backend: Backend, *values: Any, id: str | None = None) -> Any:
    """Values of parametrised arguments, marked `gpu` if they need CuPy."""
    marks = [pytest.mark.gpu] if backend is CUPY else []
    return pytest.param(*values, id=id, marks=marks)


def kernel_module(name: str, purpose: str = "selection") -> Any:
    """The kernels of a backend for one purpose, its own or the reference's."""
    return getattr(registry.backend_of(name), purpose)


def own_module(name: str, purpose: str) -> ModuleType:
    """The module of a backend for one purpose."""
    return importlib.import_module(f"dask_gpuselect.kernels.{name}.{purpose}")


@dataclass(frozen=True)
class Kernel:
    """A module of kernels, and the arrays that it takes.

    Parameters
    ----------
    name : str
        Of the module's backend, which is imported by the tests that need it.
    backend : Backend
        Whose arrays it takes.
    """

    name: str
    backend: Backend
    purpose: ClassVar[str] = "selection"

    def __str__(self) -> str:
        is_away = self.backend is CUPY and self.name != "cuda"
        return f"{self.name} on a GPU" if is_away else self.name

    @property
    def module(self) -> Any:
        return kernel_module(self.name, self.purpose)


def each(*kernels: Kernel) -> Any:
    """Parametrise a test over kernels."""
    return pytest.mark.parametrize(
        "kernel", [param(kernel.backend, kernel, id=str(kernel)) for kernel in kernels]
    )
