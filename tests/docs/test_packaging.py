"""What the package says of itself is the same everywhere: version, dependencies, Python."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import dask_gpuselect

pytestmark = pytest.mark.any_dask

ROOT = Path(__file__).parents[2]
# Names on conda-forge that are not those on PyPI. dask-core has no other package that `dask[array]`
# needs but NumPy, and conda-forge's CuPy is for all versions of CUDA.
CONDA = {
    "dask": "dask-core",
    "matplotlib": "matplotlib-base",
    "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy",
}
# Extras that are for work on the package, or for GPUs of which conda-forge knows other names.
NOT_CONSTRAINED = {"bench", "demo", "dev", "docs", "expressions", "gallery", "test"}


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def recipe() -> Any:
    return yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))


def by_conda_name(requirements: list[str]) -> dict[str, str]:
    """Versions by the names of packages on conda-forge."""
    parsed = [Requirement(each) for each in requirements]
    return {CONDA.get(each.name, each.name): str(each.specifier) for each in parsed}


def versions(lines: list[str]) -> dict[str, str]:
    """Versions by the names in a recipe."""
    return {name: spec for name, _, spec in (line.partition(" ") for line in lines)}


def test_the_recipe_needs_what_the_package_needs(project: Any, recipe: Any) -> None:
    run = versions(recipe["requirements"]["run"])
    assert run.pop("python") == ">=${{ python_min }}"
    assert run == by_conda_name(project["dependencies"])
    host = versions(recipe["requirements"]["host"])
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert by_conda_name(build["requires"]).items() <= host.items()
    assert recipe["context"]["python_min"] == project["requires-python"].removeprefix(">=")


def test_the_recipe_constrains_what_extras_name(project: Any, recipe: Any) -> None:
    extras = project["optional-dependencies"]
    lines = [line for name in extras.keys() - NOT_CONSTRAINED for line in extras[name]]
    wanted = by_conda_name(lines)
    wanted.pop("dask-core")  # needed already
    wanted.pop("dask-cuda")  # pins dask, in a package of its own
    assert versions(recipe["requirements"]["run_constraints"]) == wanted


def test_the_recipe_is_of_this_package(project: Any, recipe: Any) -> None:
    assert recipe["context"]["name"] == project["name"]
    assert recipe["context"]["version"] == dask_gpuselect.__version__
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    assert [recipe["about"]["license_file"]] == project["license-files"]
    assert recipe["build"]["noarch"] == "python"
    for test in recipe["tests"]:
        for file in test.get("files", {}).get("source", ()):
            assert (ROOT / file).exists()


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == dask_gpuselect.__version__
    assert citation["title"] == dask_gpuselect.__name__


def test_the_pythons_that_are_named_are_those_supported(project: Any) -> None:
    lowest = Version(project["requires-python"].removeprefix(">="))
    named = [
        Version(line.rpartition(" ")[2])
        for line in project["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    assert min(named) == lowest
    assert [each.minor for each in named] == list(range(lowest.minor, lowest.minor + len(named)))
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert f"| Python | {lowest} to {max(named)} |" in page


def test_the_support_page_has_the_oldest_versions(project: Any) -> None:
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w -]+) \| ([\d.]+)(?: to [\d.]+)? \|", page, re.MULTILINE))
    extras = project["optional-dependencies"]
    lines = [line for name in extras.keys() - NOT_CONSTRAINED for line in extras[name]]
    for line in project["dependencies"] + lines:
        each = Requirement(line)
        name = "CuPy" if each.name.startswith("cupy") else each.name
        assert str(each.specifier) == f">={rows[name]}", name
