"""What a user sees: the names, their signatures and documentation, and what importing costs."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dask_gpuselect
from tests.oracle import FUNCTIONS, METHODS
from tests.processes import python

pytestmark = pytest.mark.any_dask  # of the package by itself

PACKAGE = Path(dask_gpuselect.__file__).parent
CONFIG = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())

every_function = pytest.mark.parametrize("function", FUNCTIONS)


# --------------------------------------------------------------------------------------------------
# Names
# --------------------------------------------------------------------------------------------------


OTHERS = """
Box Boxplot ChunksChangedError Plan argsort describe_boxplot digitize disable enable explain
order_statistic quantile_bins show_versions sort sort_by to_gpu warm
"""


def test_all_is_complete_and_sorted() -> None:
    assert dask_gpuselect.__all__ == sorted([*FUNCTIONS, *OTHERS.split()])
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dask_gpuselect")
        for alias in node.names
    }
    later = set(dask_gpuselect._SUBPACKAGES)
    assert imported == set(dask_gpuselect.__all__)
    assert later == {
        alias.name
        for node in tree.body
        if isinstance(node, ast.If)
        for imports in node.body
        if isinstance(imports, ast.ImportFrom)
        for alias in imports.names
    }, "type checkers see what __getattr__ imports"


def test_tab_lists_the_public_names() -> None:
    shown = [name for name in dir(dask_gpuselect) if not name.startswith("_")]
    assert shown == sorted([*dask_gpuselect.__all__, *dask_gpuselect._SUBPACKAGES])
    with pytest.raises(AttributeError, match="no attribute 'medain'"):
        dask_gpuselect.medain  # noqa: B018
    with pytest.raises(AttributeError, match=r"'mad': type dask_gpuselect\.robust\.mad$"):
        dask_gpuselect.mad  # noqa: B018


@pytest.mark.parametrize("name", dask_gpuselect._SUBPACKAGES)
def test_tab_lists_the_public_names_of_subpackages(name: str) -> None:
    """Those that are imported on demand too."""
    module = getattr(dask_gpuselect, name)
    assert [each for each in dir(module) if not each.startswith("_")] == sorted(module.__all__)


def test_version() -> None:
    """It is written once, and the build reads it."""
    assert "version" in CONFIG["project"]["dynamic"]
    assert CONFIG["tool"]["hatch"]["version"]["path"] == "dask_gpuselect/__init__.py"
    assert [int(part) for part in dask_gpuselect.__version__.split(".")[:2]]


# --------------------------------------------------------------------------------------------------
# Signatures
# --------------------------------------------------------------------------------------------------

LEFT_OUT = "where=None, nodata=None, fill_value=None"
MEDIANS = f"a, axis=None, *, keepdims=False, {LEFT_OUT}"
QUANTILES = f"a, q, axis=None, *, method='linear', keepdims=False, weights=None, {LEFT_OUT}"


@every_function
def test_signature(function: str) -> None:
    signature = inspect.signature(getattr(dask_gpuselect, function))
    plain = signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
        return_annotation=signature.empty,
    )
    wanted = MEDIANS if "median" in function else QUANTILES
    wanted += ", strategy=None" if function == "quantile" else ""
    assert str(plain) == f"({wanted})"
    assert all(p.annotation is not p.empty for p in signature.parameters.values())
    assert signature.return_annotation is not signature.empty


@pytest.mark.parametrize("name", ["mad", "nanmad"])
def test_documentation_says_first_what_differs_from_scipy(name: str) -> None:
    text = inspect.getdoc(getattr(dask_gpuselect.robust, name)) or ""
    first = text.split("\n\n")[1]
    assert "scipy.stats.median_abs_deviation" in first
    assert "scale=1.0" in first


@every_function
def test_arguments_have_numpys_names(function: str) -> None:
    theirs = inspect.signature(getattr(np, function)).parameters
    ours = dict(inspect.signature(getattr(dask_gpuselect, function)).parameters)
    # `where` is NumPy's word in other reductions, and `fill_value` in other functions.
    for name in ("strategy", "where", "nodata", "fill_value"):
        ours.pop(name, None)
    assert set(ours) <= set(theirs)
    defaults = {name: parameter.default for name, parameter in theirs.items()}
    changed = {name for name in ours if ours[name].default != defaults[name]}
    assert changed <= {"keepdims"}  # theirs is a private object that means False


# --------------------------------------------------------------------------------------------------
# Documentation
# --------------------------------------------------------------------------------------------------


@every_function
def test_docstring(function: str) -> None:
    """numpydoc sees to the sections and the parameters: `make lint`."""
    text = inspect.getdoc(getattr(dask_gpuselect, function)) or ""
    _, *parts = re.split(r"\n(\w+)\n-+\n", text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    errors = {"TypeError", "AxisError", "ValueError", "ChunksChangedError"}
    errors |= set() if "median" in function else {"IndexError"}
    assert not [error for error in errors if error not in sections["Raises"]]
    words = {"reads", "twice", "memory"}
    assert not [word for word in words if word not in sections["Notes"].lower()]


def test_docstrings_say_what_matters() -> None:
    assert not [method for method in METHODS if method not in dask_gpuselect.quantile.__doc__]
    assert "persist" in inspect.getdoc(dask_gpuselect.ChunksChangedError)


# --------------------------------------------------------------------------------------------------
# Imports
# --------------------------------------------------------------------------------------------------

HEAVY = {"numba", "cupy", "distributed", "xarray", "pandas"}
HEAVY |= {"matplotlib", "scipy", "sklearn", "zarr"}
MAY_IMPORT = {
    r"xarray\..*": {"xarray"},
    r"dataframe\..*|engine\.(frames|key_classes|row_halos)": {"pandas"},
    r"robust\.regression|neighbors\.estimators": {"sklearn"},
    r"kernels\.cuda\.(?!(backend|source|window_axes|window_networks|window_tiles)$).*": {"cupy"},
}
"""At the top of modules of these names, of the heavy packages."""


def modules_after(code: str) -> set[str]:
    """The top-level packages that some code imports in a fresh interpreter, but for what dask.array
    imports: some versions import CuPy."""
    code = f"import json, sys, dask.array\nknown = {{*sys.modules}}\n{code}\n"
    code += "print(json.dumps(sorted({m.split('.')[0] for m in {*sys.modules} - known})))"
    return set(json.loads(python("-c", code).splitlines()[-1]))


def test_import_is_light() -> None:
    """Nor is anything else needed for a name of the package, or for `to_gpu`."""
    accesses = "; ".join(f"dask_gpuselect.{name}" for name in dask_gpuselect._SUBPACKAGES)
    code = f"""
import sys
import dask.array
before = {{*sys.modules}}
sys.modules["cupy"] = None
import dask_gpuselect, dask_gpuselect.staging
heavy = {{*{HEAVY}}} & {{*sys.modules}} - before - {{"cupy"}}
assert not heavy, heavy
assert not {{"numba", "distributed"}} & before
{accesses}
from dask_gpuselect import *
"""
    assert "sklearn" not in modules_after(code)


@pytest.mark.parametrize(
    ("name", "missing", "advice"),
    [
        ("xarray", ["xarray"], "xarray: pip install xarray"),
        ("dataframe", ["pandas", "pyarrow"], "pandas: pip install 'dask[dataframe]'"),
        ("dataframe", ["pyarrow"], "PyArrow: pip install 'dask[dataframe]'"),
    ],
)
def test_what_is_not_installed(name: str, missing: list[str], advice: str) -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing}))
try:
    import dask_gpuselect.{name}
except ImportError as error:
    print(error)
"""
    assert python("-c", code) == f"dask_gpuselect.{name} needs {advice}\n"


@pytest.mark.slow
def test_a_lazy_call_is_light() -> None:
    """Kernels are imported by the task that needs them."""
    code = """
import dask.array as da
import dask_gpuselect
x = da.ones((100, 100), chunks=30)
dask_gpuselect.quantile(x, [0.25, 0.5]), x - dask_gpuselect.nanmedian(abs(x), keepdims=True)
"""
    assert not {"numba", "cupy", "distributed"} & modules_after(code)
    compute = "dask_gpuselect.median(x).compute(scheduler='sync')"
    assert "numba" not in modules_after(code + compute), "NumPy is fast enough for few elements"
    at_once = "from dask_gpuselect.kernels import compiling\ncompiling.LARGE = 0\n"
    assert "numba" in modules_after(code + at_once + compute)


@pytest.mark.slow
def test_neighbors_are_light() -> None:
    """The estimators, and scikit-learn with them, come when they are asked for."""
    code = """
import dask.array as da
from dask_gpuselect.neighbors import kneighbors
kneighbors(da.ones((10, 2), chunks=5), da.ones((3, 2)), 1)
"""
    assert not {"numba", "cupy", "sklearn"} & modules_after(code)
    assert "numba" in modules_after(code + "kneighbors([[1], [2]], [[3]], 1)")
    assert "sklearn" in modules_after("from dask_gpuselect.neighbors import NearestNeighbors")


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [PACKAGE.name]
    assert "Typing :: Typed" in CONFIG["project"]["classifiers"]


ONLY_THESE: dict[str, tuple[str, set[str]]] = {
    "how dask writes a graph down": (
        r"dask\.(_task_spec|blockwise|core|delayed|graph_manipulation|highlevelgraph|layers"
        r"|optimization).*|dask_gpuselect\.engine\.source\.(Alias|DataNode|List|Task).*",
        {
            "neighbors.search",
            *(f"sorting.{name}" for name in ("graph", "sorted_boxes", "radix_sort")),
            *(f"engine.{name}" for name in (
                "collection", "columns", "door", "exchange", "expressions", "frames", "rounds",
                "halos", "keeping", "narrowing", "loads", "pilot", "graphs", "reads", "scratch",
                "shuffles", "slots", "source", "group_loads", "row_halos", "moves",
            )),
        },
    ),
    "names of dask that are not public": (
        r"dask(\.\w+)*\._.*",
        {"engine.graphs", "engine.source", "engine.expressions"},
    ),
    "that graphs have layers, and which arrays these make": (
        r"dask\.(highlevelgraph|blockwise|layers).*|dask\.array(\.core\.Array)?",
        {"engine.graphs", "engine.source", "engine.expressions"},
    ),
}  # fmt: skip
"""What modules may know, by what they import: its pattern, and which of them."""


@cache
def modules() -> dict[str, Path]:
    """The modules of the package, by the name within it; a subpackage by its own."""
    result = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        result[name.removesuffix(".__init__")] = path
    return result


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> frozenset[str]:
    """The full names of all that a file imports, wherever it does."""
    return frozenset(imported_by(parsed(path)))


def imported_by(tree: ast.AST) -> Iterator[str]:
    """The full names of all that code imports; ``a.b`` for ``from a import b``.

    Also modules that are named in a call of ``import_module``.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, f"{module}: a relative import"
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module")):
                (name,) = node.args
                if isinstance(name, ast.JoinedStr):  # a module of the package itself
                    package = ast.unparse(name.values[0])
                    assert package in ("__package__", "{__package__}", "{cpu.__name__}"), package
                    continue
                assert isinstance(name, ast.Constant), "an import of a computed name"
                yield name.value


# Nothing but NumPy and the standard library. That folders are layers, that features are independent
# and that kernels know nothing of dask is written in pyproject.toml, and `make lint` sees to it.
# `arrays` is among them, for it takes CuPy's module from an array and imports NumPy alone.
PURE = [
    name
    for name in modules()
    if name.startswith(("maths", "strategies"))
    or name in ("arrays", "quiet", "units", "robust.deviations")
]


def test_the_mathematics_needs_numpy_alone() -> None:
    for name in PURE:
        outside = {each.split(".")[0] for each in imports(modules()[name])}
        assert outside <= {*sys.stdlib_module_names, "numpy", PACKAGE.name}, name


def test_few_modules_stand_at_the_top() -> None:
    """Beside those that Python itself looks for."""
    top = {name for name in modules() if (PACKAGE / f"{name}.py").is_file()}
    assert len(top - {"__init__", "__main__"}) <= 13


@pytest.mark.parametrize("what", ONLY_THESE)
def test_only_few_modules_know(what: str) -> None:
    pattern, may = ONLY_THESE[what]
    knows = {
        name
        for name, path in modules().items()
        if any(re.fullmatch(pattern, each) for each in imports(path))
    }
    assert knows <= may


def test_kernels_know_nothing_of_dask() -> None:
    """Nor what they import by name, which `import-linter` does not see."""
    for name, path in modules().items():
        if name.startswith("kernels"):
            assert not [each for each in imports(path) if each.split(".")[0] == "dask"], name


def test_optional_packages_are_imported_lazily() -> None:
    """At the top of a module only by the kernels that are compiled with them."""
    for name, path in modules().items():
        tops = ast.Module(
            [n for n in parsed(path).body if isinstance(n, ast.Import | ast.ImportFrom)], []
        )
        packages = {each.split(".")[0] for each in imported_by(tops)} & HEAVY
        may = [some for pattern, some in MAY_IMPORT.items() if re.fullmatch(pattern, name)]
        assert packages == set().union(*may), name
