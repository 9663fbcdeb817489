"""Docstrings: their examples run, and their first lines can be read alone."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dask_gpuselect

PACKAGE = Path(dask_gpuselect.__file__).parent
WITH_EXAMPLES = [
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.few(8)
@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples(module: str) -> None:
    public = {name: getattr(dask_gpuselect, name) for name in dask_gpuselect.__all__}
    results = doctest.testmod(
        importlib.import_module(f"dask_gpuselect.{module}"), extraglobs=public
    )
    assert results.attempted > 0
    assert results.failed == 0


# --- First lines ----------------------------------------------------------------------------------

MODULES = ("", ".distribution", ".groups", ".neighbors", ".robust", ".windows", ".xarray")
MODULES += (".dataframe",)


def documented() -> Iterator[tuple[str, Any]]:
    """Public functions and classes, and the methods that these define."""
    for part in MODULES:
        module = importlib.import_module(f"dask_gpuselect{part}")
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"{module.__name__}.{name}", thing
            for method, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not method.startswith("_") and (callable(value) or isinstance(value, property)):
                    yield f"{module.__name__}.{name}.{method}", value


DOCUMENTED = dict(documented())
NO_SENTENCE = r"^(The same|It |They |Those |See |Likewise|Not to|Of )|APPROXIMATE|ESTIMATE|\bours\b"


@pytest.mark.any_dask
@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_first_line_can_be_read_alone(name: str) -> None:
    """It is the first paragraph, a sentence, and needs no neighbour."""
    text = inspect.getdoc(DOCUMENTED[name])
    assert text is not None
    first, *rest = text.splitlines()
    assert first.endswith(".")
    assert not rest or not rest[0].strip(), f"the first paragraph goes on: {rest[0]}"
    assert not re.search(NO_SENTENCE, first), first


def test_docstrings_are_found() -> None:
    assert len(DOCUMENTED) > 100


# Functions of one array that share parts of their docstrings.
OF_ARRAYS = ("median", "nanmedian", "quantile", "nanquantile", "percentile", "nanpercentile")
OF_ARRAYS += ("order_statistic", "robust.mad", "robust.nanmad", "robust.iqr", "robust.naniqr")
OF_ARRAYS += ("robust.trimmed_mean", "robust.nantrimmed_mean")


@pytest.mark.any_dask
@pytest.mark.parametrize("name", OF_ARRAYS)
def test_no_docstring_speaks_of_arguments_that_the_function_lacks(name: str) -> None:
    function = DOCUMENTED[f"dask_gpuselect.{name}"]
    parameters, text = inspect.signature(function).parameters, function.__doc__ or ""
    others = {"method", "strategy"} - parameters.keys()
    assert not [each for each in others if f"`{each}`" in text.replace("``", "")]
    named = {word for word in ("q", "weights") if re.search(rf"\b{word}\b", text)}
    assert named == parameters.keys() & {"q", "weights"}
    grouped = DOCUMENTED.get(f"dask_gpuselect.xarray.ExactGroupBy.{name.split('.')[-1]}")
    if grouped is not None:
        assert ("weights" in (grouped.__doc__ or "")) == ("weights" in parameters)
