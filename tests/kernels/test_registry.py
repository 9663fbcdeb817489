"""Backends: folders of modules whose functions are those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import Parameter, isfunction, signature
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

from dask_gpuselect.kernels import reference, registry
from tests.backends import CUPY, NUMPY, param

PURPOSES = [each.name for each in iter_modules(reference.__path__)]


def definitions(purpose: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Kernels that a module of the reference defines, by name."""
    module = import_module(f"{reference.__name__}.{purpose}")
    for name, function in vars(module).items():
        if isfunction(function) and not name.startswith("_"):
            yield name, function


@pytest.mark.parametrize("folder", ["cpu", param(CUPY, "cuda", id="cuda")])
def test_kernels_have_the_parameters_of_the_reference(folder: str) -> None:
    for purpose in PURPOSES:
        kernels = getattr(registry.backend_of(folder), purpose)
        for name, function in definitions(purpose):
            wanted = list(signature(function).parameters.values())
            own = list(signature(getattr(kernels, name)).parameters.values())
            if wanted[0].kind is Parameter.VAR_POSITIONAL:  # returns None, whatever the arguments
                continue
            shared = [each.name for each in own[: len(wanted)]]
            assert shared == [each.name for each in wanted][: len(own)], f"{purpose}.{name}"
            others = [*wanted[len(own) :], *own[len(wanted) :]]
            assert all(each.default is not Parameter.empty for each in others), f"{purpose}.{name}"


@pytest.mark.parametrize("backend", [param(kind, kind, id=kind.name) for kind in (NUMPY, CUPY)])
def test_a_folder_without_a_kernel_has_the_one_of_the_reference(backend: Any) -> None:
    kernels = registry.backend_for(backend.asarray(np.zeros(1)))
    from dask_gpuselect.kernels.reference import lane_passes, selection

    assert kernels.lane_passes.cuts is not lane_passes.cuts
    assert kernels.selection.tally is not selection.tally
    assert registry.backend_of("reference").selection.tally is selection.tally
    with pytest.raises(AttributeError, match="no_kernel"):
        _ = kernels.selection.no_kernel
    with pytest.raises(ModuleNotFoundError):
        _ = kernels.no_purpose
