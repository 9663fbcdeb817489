"""The example of a cloud-free picture: it finds the surface, and says what is missing."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zarr

pytestmark = pytest.mark.any_dask  # of an example

SCRIPT = Path(__file__).parents[2] / "examples" / "median_composite.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("median_composite", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_median_finds_the_surface(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "composite.png"
    arguments = ["--dates", "60", "--size", "96", "--every", "7", "--output", str(picture)]
    assert example.main([*arguments, "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "plan:  column: one load" in told
    assert picture.read_bytes().startswith(b"\x89PNG")
    errors = dict(re.findall(r"^  (.*?)\s+(0\.\d+)   ", told, flags=re.MULTILINE))
    median = float(errors.pop("median of all dates"))
    assert len(errors) == 3
    assert median < 0.1 * min(map(float, errors.values()))

    (path,) = tmp_path.glob("*.zarr")
    stack = zarr.open_array(path, mode="r")
    assert stack.shape == (60, 3, 96, 96)
    assert stack.chunks == (7, 3, 32, 32)
    values = np.asarray(stack[:])
    assert 0.02 < np.isnan(values).mean() < 0.5
    assert 0.1 < np.nanmean(values > 0.6) < 0.5


def test_a_store_is_made_once(example: ModuleType, tmp_path: Path) -> None:
    arguments = ["--dates", "3", "--size", "32", "--output", str(tmp_path / "a.png")]
    arguments += ["--folder", str(tmp_path)]
    for _ in range(2):
        assert example.main(arguments) == 0
    (path,) = tmp_path.glob("*.zarr")
    made = path.stat().st_mtime_ns
    assert example.main(arguments) == 0
    assert path.stat().st_mtime_ns == made


def test_without_matplotlib(
    example: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert example.main([]) == 1
    assert "pip install '.[gallery]'" in capsys.readouterr().err


def test_bad_sizes(example: ModuleType) -> None:
    for arguments in (["--dates", "0"], ["--size", "8"], ["--every", "0"]):
        with pytest.raises(SystemExit):
            example.main(arguments)
