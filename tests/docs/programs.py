"""Programs of the repository that are in no package: examples, pictures, scripts."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.processes import ROOT

EXAMPLES, SUITE = ROOT / "examples", ROOT / "asv_bench"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def module_of(path: Path) -> ModuleType:
    """Run a program as a module, and hand it back."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # While it runs, dataclasses look their module up, and a program those beside it.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        patch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
    return module


def example(name: str) -> ModuleType:
    return module_of(EXAMPLES / f"{name}.py")


def benchmark(name: str) -> ModuleType:
    """Import a benchmark or a program, as asv does, from the folder, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SUITE))
        return importlib.import_module(name)
