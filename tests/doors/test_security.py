"""What the package can reach outside of itself: the names in its sources, and what it does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.doors.test_public_api import PACKAGE, parsed
from tests.processes import python

pytestmark = pytest.mark.any_dask

SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}

# Of the standard library: what computes and knows nothing of files, processes, networks or code.
HARMLESS = """
__future__ abc bisect collections collections.abc concurrent.futures contextlib contextvars
dataclasses datetime fractions functools html inspect itertools logging math numbers operator queue
re statistics string textwrap threading types typing uuid warnings weakref
"""
# And what does, by the module that may: why it is there.
REACHING = {
    ("ctypes", "kernels/cpu/window_code.py"): "calls machine code that LLVM has made",
    ("ctypes", "kernels/cuda/launch.py"): "puts addresses of arguments where a kernel finds them",
    ("importlib", "engine/expressions.py"): "dask.array and dask_array, by their names",
    ("importlib", "neighbors/__init__.py"): "a module of this package, by its name",
    ("importlib", "robust/__init__.py"): "a module of this package, by its name",
    ("importlib.resources", "kernels/cuda/source.py"): "reads the package's own CUDA sources",
    ("mmap", "engine/source.py"): "asks whether an array is in memory or on disk",
    ("os", "engine/settings.py"): "os.PathLike and os.fspath",
    ("errno", "engine/scratch.py"): "the number of an error of a disk",
    ("os", "engine/spill.py"): "os.PathLike, os.fspath, os.getpid, os.preadv and os.pwrite",
    ("pathlib", "engine/scratch.py"): "which file systems are in memory, by /proc/mounts",
    ("shutil", "engine/scratch.py"): "how much of a disk is free",
    ("argparse", "warm/__main__.py"): "the command line of `python -m dask_gpuselect.warm`",
    ("importlib", "__init__.py"): "subpackages, by constant names",
    ("importlib", "kernels/registry.py"): "a module of this package, by its name",
    ("importlib.util", "kernels/registry.py"): "whether this package has a module of a name",
    ("importlib", "warm/__init__.py"): "modules of kernels of this package, by their names",
    ("pkgutil", "warm/__init__.py"): "the names of the modules of kernels",
    ("difflib", "engine/settings.py"): "the setting that may be meant",
    ("llvmlite", "kernels/cpu/row_networks.py"): "machine code of networks, made from numbers",
    ("llvmlite", "kernels/cpu/window_code.py"): "machine code of networks, made from numbers",
    ("llvmlite", "kernels/cpu/window_sets.py"): "machine code of sets, made from numbers",
    ("os", "forks.py"): "os.register_at_fork",
    ("pathlib", "engine/settings.py"): "where the file of the defaults is",
    ("time", "kernels/compiling.py"): "how long NumPy has taken, and Numba",
    ("time", "warm/__main__.py"): "how long kernels have taken so far",
    ("os", "sorting/graph.py"): "os.PathLike, of a directory",
    ("sys", "arrays.py"): "sys.modules: whether CuPy is imported",
    ("importlib.abc", "optional.py"): "is told of imports of dask.dataframe and xarray",
    ("sys", "boxplot/describe.py"): "sys.modules: whether dask.dataframe is imported",
    ("sys", "engine/shuffles.py"): "sys.modules: whether what shuffles is imported",
    ("sys", "groups/labels.py"): "sys.modules: whether pandas is imported",
    ("sys", "optional.py"): "sys.modules and sys.meta_path: what is imported, and will be",
    ("sys", "engine/graphs.py"): "sys.modules: whether distributed is imported",
    ("sys", "engine/expressions.py"): "sys.modules: whether dask_array is imported",
    ("importlib.metadata", "versions.py"): "the versions of packages, by constant names",
    ("platform", "versions.py"): "the versions of Python and of the system",
    ("tempfile", "engine/spill.py"): "the files that have no name",
}
# Of these modules, what may be used: they can do much more.
USED = {
    "os": {"PathLike", "fspath", "getpid", "preadv", "pwrite", "register_at_fork"},
    "shutil": {"disk_usage"},
    "sys": {"meta_path", "modules"},
    "tempfile": {"TemporaryFile", "gettempdir"},
    "importlib": {"abc", "import_module"},
    "importlib.abc": {"MetaPathFinder"},
    "importlib.util": {"find_spec"},
    "llvmlite": {"binding", "ir"},
    "pkgutil": {"iter_modules"},
    "importlib.metadata": {"PackageNotFoundError", "version"},
    "importlib.resources": {"files"},
    "platform": {"platform", "python_implementation", "python_version"},
    "mmap": {"mmap"},
    "secrets": {"randbits"},
}
OTHERS = """
cupy cupyx dask distributed matplotlib numba numpy pandas pyarrow scipy sklearn xarray
"""
# They run code, or read and write files.
BUILTINS = {"eval", "exec", "compile", "__import__", "open", "input", "breakpoint"}
# Of NumPy, CuPy, pandas and what has their functions.
LIBRARIES = {"np", "numpy", "cupy", "pd", "pandas", "xp", "xr", "pa", "pq"}
FILES = re.compile(r"loads?|loadtxt|genfromtxt|fromregex|save.*|memmap|open_.*|DataSource|read_.*")
# Of anything.
METHODS = {"tofile", "fromfile", "dumps", "to_pickle", "to_csv", "to_parquet", "popen", "Popen"}


@cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    """All of them, each with its module."""
    return tuple((name, node) for name, path in SOURCES.items() for node in ast.walk(parsed(path)))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def test_every_import_is_known() -> None:
    """A list of what may be, not of what may not: pickle, marshal, subprocess, socket, urllib and
    all else that reaches out is refused until somebody writes here why it is needed."""
    known = {*HARMLESS.split(), *OTHERS.split(), "dask_gpuselect"}
    result = {
        (module, name)
        for name, node in nodes()
        for module in imported(node)
        if not {module, module.partition(".")[0]} & known or module in USED
    }
    assert result == REACHING.keys()


def test_of_modules_that_reach_out_little_is_used() -> None:
    for name, node in nodes():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            allowed = USED.get(node.value.id)
            assert allowed is None or node.attr in allowed, f"{name}: {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and node.module in USED:
            names = {alias.name for alias in node.names}
            assert names <= USED[node.module], f"{name}: {ast.unparse(node)}"


def test_nothing_is_evaluated_loaded_or_opened() -> None:
    for name, node in nodes():
        if isinstance(node, ast.Name):
            assert node.id not in BUILTINS, f"{name}:{node.lineno}: {node.id}"
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute):
            assert called.attr not in METHODS, f"{name}:{called.lineno}: {called.attr}"
            is_of_library = isinstance(called.value, ast.Name) and called.value.id in LIBRARIES
            is_file = is_of_library and FILES.fullmatch(called.attr)
            assert not is_file, f"{name}:{called.lineno}: {ast.unparse(called)}"
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle", name
            assert node.arg != "cache" or name == "kernels/compiling.py", name


def test_what_cupy_compiles_is_the_packages_own() -> None:
    """CUDA sources are files of the package, with numbers and names of types put in, by one
    module; all other kernels are made when their module is imported, so before there are data."""
    makers = {name for name, node in nodes() if is_call(node, "RawModule", "RawKernel")}
    assert makers == {"kernels/cuda/launch.py"}
    kinds = ("ElementwiseKernel", "ReductionKernel", "fuse")
    made = Counter(name for name, node in nodes() if is_call(node, *kinds))
    at_import = Counter(
        name
        for name, path in SOURCES.items()
        for node in parsed(path).body
        if name in made and is_call(getattr(node, "value", None), *kinds)
    )
    assert made == at_import


def is_call(node: object, *names: str) -> bool:
    """Whether it calls an attribute of one of these names."""
    function = getattr(node, "func", None) if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr in names


# What Python tells of (`sys.addaudithook`), of a second call: kernels are compiled by then.
EVENTS = """
import sys
told = []
WATCHED = (
    "compile", "exec", "marshal.", "pickle.", "subprocess.", "os.system", "os.exec", "os.fork",
    "os.posix_spawn", "os.spawn", "socket.", "urllib.", "http.", "ftplib.", "smtplib.", "import",
    "open", "os.remove", "os.rename", "os.mkdir", "os.link", "os.symlink", "os.chmod", "ctypes.",
    "tempfile.", "shutil.", "webbrowser.", "os.putenv", "sqlite3.",
)
watching = False
def hook(event, arguments):
    if watching and event.startswith(WATCHED):
        told.append((event, arguments[:1], owner()))
def owner():  # which package is at work: the innermost that is not of Python itself
    frame = sys._getframe(2)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in sys.stdlib_module_names or package == "__main__":
            return package
        frame = frame.f_back
sys.addaudithook(hook)

import dask
import dask.array as da
import numpy as np
from dask_gpuselect import describe_boxplot, median, quantile, sort, sort_by
from dask_gpuselect.groups import groupby
values = np.random.default_rng(0).normal(size=4000)
x = da.from_array(values, chunks=500).map_blocks(np.copy)

def ask(spill):
    with dask.config.set(scheduler="sync"):
        median(values), median(x).compute(), quantile(x, [0.1, 0.9], weights=x * x).compute()
        describe_boxplot(x).compute(), groupby(x, np.arange(4000) % 7).median().compute()
        quantile(x.reshape(40, 100), 0.3, axis=0).compute()
        sort(x, spill=spill).compute()
        limits = {"dask_gpuselect.cache-limit": 1, "dask_gpuselect.cache-spill": spill}
        with dask.config.set(limits):
            median(x).compute()
"""


@pytest.mark.legacy  # it starts a process, in which expressions would be of another kind
def test_nothing_is_unpickled_evaluated_or_fetched_by_a_call(tmp_path: Path) -> None:
    """Nor is any file opened but those that wait on disk, whose names nobody chooses."""
    script = f"""{EVENTS}
ask({str(tmp_path)!r})
watching = True
ask({str(tmp_path)!r})
watching = False
import os
opened = [arguments[0] for event, arguments, _ in told if event == "open"]
assert opened, "something waits on disk"
for path in opened:
    is_unnamed = path == {str(tmp_path)!r}  # O_TMPFILE names the directory alone
    is_random = os.path.dirname(str(path)) == {str(tmp_path)!r}
    assert is_unnamed or is_random, path
for event, _, package in told:
    assert event in ("open", "os.remove") or package == "dask", (event, package)
print(*sorted({{event for event, _, package in told if package == "dask"}}))
"""
    printed = python("-c", script)
    # Dask pickles questions for the names of tasks, and looks at signatures, which Python parses.
    assert set(printed.split()) <= {"compile", "pickle.find_class"}
