"""What `show_versions` prints."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import dask
import numpy as np
import pytest

from dask_gpuselect import show_versions

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.any_dask


def test_versions_and_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with dask.config.set({"dask_gpuselect.keep-limit": "17 MiB"}):
        show_versions()
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert said["Python"].startswith(platform.python_version())
    assert int(said["CPUs"]) >= 1
    assert said["numpy"] == np.__version__
    assert said["dask"] == dask.__version__
    assert said["numba"] == version("numba")
    assert said["dask_gpuselect.keep-limit"] == "17 MiB"
    assert said["CUDA devices"]
    assert "None" not in {said[name] for name in said if not name.startswith("dask_gpuselect")}


def test_the_command_line_shows_them() -> None:
    command = [sys.executable, "-m", "dask_gpuselect"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert f"numpy: {np.__version__}" in done.stdout.splitlines()
