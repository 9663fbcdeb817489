"""Kernels that processes keep on disk for each other."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

from dask_gpuselect.kernels import compiling, cpu
from dask_gpuselect.kernels.cpu import typed as t

pytestmark = pytest.mark.any_dask  # of kernels alone

# The name of a function in compiled code, and the number that a process counts functions by.
DEFINED = re.compile(r'^define [^@]*@"?(\S*?)B\d+v(\d+)(\S*?)"?\(', re.MULTILINE)
MODULES = [each.name for each in iter_modules(cpu.__path__)]


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_functions_of_a_kernel_have_names_of_their_own(module: str) -> None:
    # The number tells two functions of one name and types apart in this process alone. A kernel
    # that a process has kept may mean one function by the symbol of another. Three ways to cut a
    # block were once such functions: a deviation of 259 for one of 998.
    importlib.import_module(f"dask_gpuselect.kernels.cpu.{module}")
    kernels = compiling.kernels_for(np.dtype("f4"), {module})
    if not kernels:
        pytest.skip("no kernels, or of other dtypes")
    for kernel, _ in kernels:
        signature = compiling.signature_of(kernel, np.dtype("f4"))
        compiled = compiling.numba().njit(signature, nogil=True)(kernel)
        (code,) = compiled.inspect_llvm().values()
        numbers = defaultdict(set)
        for before, number, after in DEFINED.findall(code):
            numbers[before, after].add(number)
        assert numbers
        # A function of a module's own name may be compiled twice: its code is the same.
        made = [name for name in numbers if "_3clocals_3" in name[0]]
        assert [name for name in made if len(numbers[name]) > 1] == []


def test_a_kernel_is_compiled_by_its_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of numbers, arrays and tuples; for the dtypes that are named, and no others."""
    monkeypatch.setattr(compiling, "_declared", [])

    @compiling.kernel_of("f4 f8")
    def add(given: tuple[t.Values, t.Ints], times: int, is_negative: bool) -> Any:
        values, places = given
        total = 0.0
        for place in places:
            total += times * values[place]
        return -total if is_negative else total

    for dtype in ("f8", "f4"):
        values = np.arange(5, dtype=dtype)
        values.flags.writeable = False
        assert add((values, np.array([1, 4])), 2, True) == -10.0
        ((_, build),) = compiling.kernels_for(np.dtype(dtype), {"test_compiling"})
        assert build() is not None
    assert compiling.kernels_for(np.dtype("i4"), {"test_compiling"}) == []
