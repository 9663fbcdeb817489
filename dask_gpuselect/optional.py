"""Packages that only some functions need, and what to do where one is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

NAMES = {"pandas": "pandas", "pyarrow": "PyArrow", "scipy": "SciPy", "sklearn": "scikit-learn"}
# What to type: it works whether or not this package came from an index.
INSTALLED_BY = {
    "pandas": "'dask[dataframe]'",
    "pyarrow": "'dask[dataframe]'",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
}


def on_demand(
    importer: str, names: Sequence[str], load: Callable[[], Any], package: str, *, but: str = ""
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module some of whose names need a package.

    Parameters
    ----------
    importer : str
        The module.
    names : sequence of str
        What it offers.
    load : callable
        Imports the module that has those names, when one is first asked for.
    package, but
        As for `needs`.
    """

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {importer!r} has no attribute {name!r}")
        with needs(package, name, but=but):
            return getattr(load(), name)

    return found


@contextmanager
def needs(package: str, what: str, *, but: str = "") -> Iterator[None]:
    """While importing a package for something: an ImportError that says what to install if it is
    missing, and what does not need it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is there, and something that it needs is not
        raise ImportError(
            f"{what} needs {NAMES[package]}: pip install {INSTALLED_BY[package]}{but}"
        ) from error


def axes(ax: Any) -> Any:
    """The axes that are given, or those of a new figure; an ImportError without matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1] if ax is None else ax
