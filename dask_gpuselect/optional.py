"""Packages that only some functions need: errors that say what to install.

Objects of other packages that are not arrays, and attributes that objects do not have: errors that
say what to type instead.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

# The name of each package, and the arguments of `pip install`. They work even if this package was
# not installed from an index.
PACKAGES = {
    "matplotlib": ("matplotlib", "matplotlib"),
    "pandas": ("pandas", "'dask[dataframe]'"),
    "pyarrow": ("PyArrow", "'dask[dataframe]'"),
    "scipy": ("SciPy", "scipy"),
    "sklearn": ("scikit-learn", "scikit-learn"),
    "xarray": ("xarray", "xarray"),
}


def on_demand(
    importer: str, names: Sequence[str], load: Callable[[], Any], package: str, *, but: str = ""
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that imports some names only when they are used.

    Parameters
    ----------
    importer : str
        Name of the module.
    names : sequence of str
        The names that it imports on demand.
    load : callable
        Imports and returns the module that defines these names.
    package, but : str
        The package that they need, and the end of the error without it, as for `needs`.
    """

    def imported(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {importer!r} has no attribute {name!r}")
        with needs(package, name, but=but):
            return getattr(load(), name)

    return imported


def listed(names: Sequence[str]) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a module, so that `<Tab>` lists its public names alone."""
    dunder = ("__all__", "__doc__", "__file__", "__name__")
    return lambda: sorted([*names, *dunder])


class _AfterImport(importlib.abc.MetaPathFinder):
    """Import hook that calls a function right after a given module is imported."""

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self.waiting:
            return None
        others = (each for each in sys.meta_path if each is not self)
        specs = (each.find_spec(fullname, path, target) for each in others)
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:
            return spec
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module: Any) -> None:
            delattr(loader, "exec_module")  # of this instance: that of its class is there again
            run(module)
            then = self.waiting.pop(fullname, None)
            if then is not None:
                then()

        setattr(loader, "exec_module", exec_module)  # noqa: B010 -- mypy refuses to assign it
        return spec


_after_import = _AfterImport()


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call a function right after a module is imported.

    It is called immediately if the module is imported already.
    """
    if name in sys.modules:
        then()
        return
    _after_import.waiting[name] = then
    if _after_import not in sys.meta_path:
        sys.meta_path.insert(0, _after_import)


@contextmanager
def needs(package: str, feature: str, *, but: str = "") -> Iterator[None]:
    """Turn the error of a missing package into one that says what to install.

    Parameters
    ----------
    package : str
        The package that is imported within the context.
    feature : str
        The name that needs it.
    but : str
        The end of the error: a way to do without the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is there, and something that it needs is not
        name, installed_by = PACKAGES[package]
        raise ImportError(f"{feature} needs {name}: pip install {installed_by}{but}") from error


def axes(ax: Any) -> Any:
    """Return the given axes or those of a new figure; raise an ImportError without matplotlib."""
    with needs("matplotlib", "plot"):
        from matplotlib import pyplot
    return pyplot.subplots()[1] if ax is None else ax


# --- Missing attributes ---------------------------------------------------------------------------


class Advising:
    """Base of classes whose errors for a missing attribute say what to type instead."""

    def _advice(self, name: str) -> str:
        """Return what to type instead of an attribute: by default, the names that there are."""
        names = [each for each in dir(type(self)) if not each.startswith("_")]
        return f"it has {', '.join(names)}"

    if not TYPE_CHECKING:  # type checkers know the attributes, and would take any other name then

        def __getattr__(self, name: str) -> Any:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and (advice := self._advice(name)):
                message += f": {advice}"
            raise AttributeError(message, name=name, obj=self)


def its_own(owner: type, name: str, written: str) -> str:
    """Return the advice to use a method of another package's object; "" if it has none.

    Parameters
    ----------
    owner : type
        The class of the object, which has no columns and coordinates as attributes.
    name : str
        Name of the method.
    written : str
        The object as a user writes it.
    """
    is_method = callable(getattr(owner, name, None))
    return f"type {written}.{name}(), its own method" if is_method else ""


# --- Objects that are no arrays -------------------------------------------------------------------

_OF_XARRAY = "after import dask_gpuselect.xarray"
_ITS_OWN = "type {name}.median(), its own method, which is exact"
_DELAYED = "pass da.from_delayed({name}, shape, dtype)"

# Advice by package and by a part of the type's name; the first part that is in the name counts. `x`
# is the object that the given one was made from, and `{name}` the parameter.
INSTEAD: dict[str, dict[str, str]] = {
    "xarray": {
        "GroupBy": f'type x.exact.groupby("time.month").median(), {_OF_XARRAY}',
        "Resample": f'type x.exact.resample(time="MS").median(), {_OF_XARRAY}',
        "Rolling": "type {name}.median() while enable() is active, or pass the last axis of "
        '{name}.construct("window").data',
        "Coarsen": "type {name}.median() while enable() is active, or pass an axis of "
        '{name}.construct(time=("step", "part")).data',
        "Weighted": f"type x.exact.quantile(q, weights=w), {_OF_XARRAY}",
        "Dataset": f"type {{name}}.exact.median(), {_OF_XARRAY}, or pass the array of one "
        'variable, {name}["temperature"].data',
        "DataTree": 'pass the array of one variable, {name}["temperature"].data',
    },
    "pandas": dict.fromkeys(
        ("GroupBy", "Resampler", "Rolling", "Expanding", "Exponential"), _ITS_OWN
    ),
    "polars": {
        "GroupBy": 'type {name}.agg(pl.col("a").median()), its own method, which is exact',
        "LazyFrame": 'pass one column, {name}.collect()["a"]',
        "Expr": "type {name}.median(), its own method, which is exact",
    },
    "dask": {
        "GroupBy": 'type df.exact.groupby("key")["a"].median(), after import '
        "dask_gpuselect.dataframe",
        "Rolling": _ITS_OWN,
        "Bag": 'pass {name}.to_dataframe(meta={{"a": float}})["a"].values',
        "Delayed": _DELAYED,
    },
    "distributed": {"Future": _DELAYED},
    "zarr": {
        "Group": 'pass one of its arrays, da.from_zarr({name}["temperature"])',
        "Array": "pass da.from_zarr({name}), which is read chunk by chunk",
    },
    "h5py": {
        "File": 'pass one of its datasets, da.from_array({name}["temperature"])',
        "Group": 'pass one of its datasets, da.from_array({name}["temperature"])',
        "Dataset": "pass da.from_array({name}), which is read chunk by chunk",
    },
    "netCDF4": {
        "Variable": "pass da.from_array({name}), which is read chunk by chunk",
        "Dataset": "open the file with xarray.open_dataset(path, chunks={{}})",
    },
    "builtins": dict.fromkeys(
        ("generator", "iterator", "map", "filter", "zip", "enumerate", "set", "dict_"),
        "pass list({name})",
    ),
    "pathlib": {"Path": "open it first, for example with da.from_zarr({name})"},
    "dask_gpuselect": dict.fromkeys(
        ("Exact", "GroupBy"), "type {name}.median(), {name}.explain(q) or another method of it"
    ),
}


def check_is_data(value: Any, name: str) -> None:
    """Raise for an object that is no array, if this module knows what to type instead.

    NumPy takes whatever it is given: it would load all of a Zarr array, iterate over the groups of
    a groupby, or make an array of one object, and its error would name none of them.

    Parameters
    ----------
    value : object
        An argument with data.
    name : str
        The name of its parameter.
    """
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    for part, advice in INSTEAD.get(package, {}).items():
        if part in kind.__name__:
            raise TypeError(
                f"expected an array, not {kind.__name__} of {package}: {advice.format(name=name)}"
            )
