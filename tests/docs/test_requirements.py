"""What `pyproject.toml` requires, and the environment of its oldest versions."""

from __future__ import annotations

import os
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.docs.programs import PYPROJECT, ROOT, module_of

PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
# The version of dask that dask-cuda 26.10 pins.
DASK_OF_CUDA = "2026.7.1"
OLDEST = module_of(ROOT / ".ci" / "oldest.py")


def required(*extras: str) -> dict[str, Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return {line.name: line for line in map(Requirement, lines)}


def lower_bound(requirement: Requirement) -> Version:
    (bound,) = requirement.specifier
    assert bound.operator in (">=", "=="), requirement
    return Version(bound.version)


def test_constraints_are_the_lower_bounds() -> None:
    """As another parser reads them."""
    lines = OLDEST.constraints(["test"])
    beside = {name + bound for name, bound in OLDEST.BESIDE.items()}
    assert beside < set(lines)
    result = {line.name: lower_bound(line) for line in map(Requirement, {*lines} - beside)}
    assert result == {name: lower_bound(line) for name, line in required("test").items()}


@pytest.mark.parametrize("line", ["numpy", "numpy<3", "numpy>=2,<3", "numpy>=2 ,!=2.1"])
def test_a_requirement_without_a_lower_bound_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="a requirement must be NAME>=VERSION, and is 'numpy"):
        list(OLDEST.oldest([line]))


def test_extras_ask_for_what_is_tested() -> None:
    """A package has one lower bound, wherever it is required: no extra allows what no test has."""
    tested = {name: lower_bound(line) for name, line in required("test").items()}
    differ = {
        line.name
        for extra in EXTRAS
        for line in map(Requirement, EXTRAS[extra])
        if line.name in tested and lower_bound(line) != tested[line.name]
    }
    assert differ == set()


def test_dask_may_be_that_of_dask_cuda() -> None:
    """A later lower bound would leave GPUs behind."""
    assert lower_bound(required()["dask"]) <= Version(DASK_OF_CUDA)


def test_packages_that_need_a_later_dask_are_no_part_of_the_oldest() -> None:
    """dask-array needs dask 2025.4: pip would refuse to install it beside the oldest."""
    assert "dask-array" in required("expressions")
    assert "dask-array" not in required("test")


@pytest.mark.skipif("GPUSELECT_OLDEST" not in os.environ, reason="make test-oldest sets it")
def test_the_oldest_environment_has_the_oldest_packages() -> None:
    wanted = {
        name: lower_bound(line)
        for name, line in required("test").items()
        if line.marker is None or line.marker.evaluate({"extra": "test"})
    }
    assert {name: Version(version(name)) for name in wanted} == wanted
