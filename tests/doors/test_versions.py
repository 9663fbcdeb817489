"""What `show_versions` prints."""

from __future__ import annotations

import platform
import runpy
from importlib.metadata import version

import dask
import numpy as np
import pytest

from dask_gpuselect import show_versions

pytestmark = pytest.mark.any_dask


def test_versions_and_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with dask.config.set({"dask_gpuselect.cache-limit": "17 MiB"}):
        show_versions()
    printed = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert printed["Python"].startswith(platform.python_version())
    assert int(printed["CPUs"]) >= 1
    assert printed["numpy"] == np.__version__
    assert printed["dask"] == dask.__version__
    assert printed["numba"] == version("numba")
    assert printed["dask_gpuselect.cache-limit"] == "17 MiB"
    assert printed["CUDA devices"]
    assert "None" not in {
        printed[name] for name in printed if not name.startswith("dask_gpuselect")
    }


def test_the_command_line_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("dask_gpuselect", run_name="__main__")  # as python -m
    assert f"numpy: {np.__version__}" in capsys.readouterr().out.splitlines()
