"""What the package says of itself is the same everywhere: version, dependencies, Python."""

from __future__ import annotations

import re

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import dask_gpuselect
from tests.docs.programs import PYPROJECT, ROOT

pytestmark = pytest.mark.any_dask

PROJECT = PYPROJECT["project"]
RECIPE = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
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
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINED = [line for name in EXTRAS.keys() - NOT_CONSTRAINED for line in EXTRAS[name]]


def by_conda_name(requirements: list[str]) -> dict[str, str]:
    """Versions by the names of packages on conda-forge."""
    parsed = [Requirement(each) for each in requirements]
    return {CONDA.get(each.name, each.name): str(each.specifier) for each in parsed}


def versions(lines: list[str]) -> dict[str, str]:
    """Versions by the names in a recipe."""
    return {name: spec for name, _, spec in (line.partition(" ") for line in lines)}


def test_the_recipe_needs_what_the_package_needs() -> None:
    run = versions(RECIPE["requirements"]["run"])
    assert run.pop("python") == ">=${{ python_min }}"
    assert run == by_conda_name(PROJECT["dependencies"])
    host = versions(RECIPE["requirements"]["host"])
    assert by_conda_name(PYPROJECT["build-system"]["requires"]).items() <= host.items()
    assert RECIPE["context"]["python_min"] == PROJECT["requires-python"].removeprefix(">=")


def test_the_recipe_constrains_what_extras_name() -> None:
    wanted = by_conda_name(CONSTRAINED)
    wanted.pop("dask-core")  # needed already
    wanted.pop("dask-cuda")  # pins dask, in a package of its own
    assert versions(RECIPE["requirements"]["run_constraints"]) == wanted


def test_the_recipe_is_of_this_package() -> None:
    assert RECIPE["context"]["name"] == PROJECT["name"]
    assert RECIPE["context"]["version"] == dask_gpuselect.__version__
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert [RECIPE["about"]["license_file"]] == PROJECT["license-files"]
    assert RECIPE["build"]["noarch"] == "python"
    for test in RECIPE["tests"]:
        for file in test.get("files", {}).get("source", ()):
            assert (ROOT / file).exists()


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == dask_gpuselect.__version__
    assert citation["title"] == dask_gpuselect.__name__


def test_the_pythons_that_are_named_are_those_supported() -> None:
    lowest = Version(PROJECT["requires-python"].removeprefix(">="))
    named = [
        Version(line.rpartition(" ")[2])
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    assert min(named) == lowest
    assert [each.minor for each in named] == list(range(lowest.minor, lowest.minor + len(named)))
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert f"| Python | {lowest} to {max(named)} |" in page


def test_the_support_page_has_the_oldest_versions() -> None:
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w -]+) \| ([\d.]+)(?: to [\d.]+)? \|", page, re.MULTILINE))
    for line in PROJECT["dependencies"] + CONSTRAINED:
        each = Requirement(line)
        name = "CuPy" if each.name.startswith("cupy") else each.name
        assert str(each.specifier) == f">={rows[name]}", name
