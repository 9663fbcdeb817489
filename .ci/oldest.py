"""The oldest packages that pyproject.toml allows, as constraints for pip.

    python .ci/oldest.py test > constraints.txt

For each requirement of the package and of the extras that are named, a line with the version that
its lower bound says. `make test-oldest` installs them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[[^]]*\])?(?P<how>>=|==)(?P<version>[\w.]+)( *;(?P<marker>.*))?"
)
# What our requirements need in turn is the newest that they allow, but for what they do not stand.
BESIDE = {
    "pyparsing": "<3.3",  # matplotlib 3.10 uses names that later ones deprecate
}


def oldest(requirements: Sequence[str]) -> Iterator[str]:
    """Yield the constraint of each requirement, which must have a lower bound."""
    for requirement in requirements:
        found = REQUIREMENT.fullmatch(requirement)
        if found is None:
            raise ValueError(f"a requirement must be NAME>=VERSION, and is {requirement!r}")
        yield f"{found['name']}=={found['version']}"


def constraints(extras: Sequence[str], pyproject: Path = PYPROJECT) -> list[str]:
    """Return the constraints of the package, of some extras, and of packages in `BESIDE`."""
    project = tomllib.loads(pyproject.read_text())["project"]
    more = [line for extra in extras for line in project["optional-dependencies"][extra]]
    beside = [f"{name}{bound}" for name, bound in BESIDE.items()]
    return sorted({*oldest([*project["dependencies"], *more]), *beside})


if __name__ == "__main__":
    print("\n".join(constraints(sys.argv[1:])))
