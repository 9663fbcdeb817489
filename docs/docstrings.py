"""Check the docstrings of the public names with numpydoc: `make lint`.

The names are those of `api.rst`, and the checks those of `pyproject.toml`. The objects are
imported, because some docstrings are put together from parts.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from numpydoc.validate import validate

HERE = Path(__file__).parent

# Functions make these objects, or their fields are not meant for users: parameters of their
# constructors need no words.
NOT_CONSTRUCTED = {
    "dask_gpuselect.Boxplot",
    "dask_gpuselect.dataframe.ExactFrameGroupBy",
    "dask_gpuselect.distribution.LazyDistribution",
    "dask_gpuselect.groups.GroupBy",
    "dask_gpuselect.windows.Rolling",
}


def public_names(text: str) -> Iterator[str]:
    """Yield the full names in the tables of the API reference."""
    module = ""
    for line in text.splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(r"   ([\w.]+)", line):
            yield f"{module}.{found[1]}"


def problems(name: str, checks: set[str]) -> Iterator[str]:
    """Yield what numpydoc says of the docstring of a name."""
    skipped = {"PR01"} if name in NOT_CONSTRUCTED else set()
    for code, message in validate(name)["errors"]:
        if code in checks - skipped:
            yield f"{name}: {code} {message}"


def main() -> int:
    """Print all problems; return 1 if there are any."""
    sys.path.insert(0, str(HERE.parent))  # of this checkout, not of an installed package
    config = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    checks = set(config["tool"]["numpydoc_validation"]["checks"])
    names = list(public_names((HERE / "api.rst").read_text()))
    found = [problem for name in names for problem in problems(name, checks)]
    print("\n".join(found) or f"{len(names)} public docstrings: all checks passed")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
