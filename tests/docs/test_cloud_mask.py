"""The example of scenes under clouds: the mask is needed, and costs one load."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.any_dask  # of an example

SCRIPT = Path(__file__).parents[2] / "examples" / "cloud_mask.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cloud_mask", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_clouds_are_left_out(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xarray")
    picture = tmp_path / "clouds.png"
    arguments = ["--dates", "12", "--bands", "2", "--size", "64", "--every", "5"]
    assert example.main([*arguments, "--output", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "answers of ours and of xarray are equal" in told
    (row,) = (line.split() for line in told.splitlines() if line.startswith("ours"))
    assert float(row[1]) > 0
    loads, of_the_mask = map(int, row[3:])
    assert loads == 1
    assert 1 <= of_the_mask <= 2 * 2  # at most twice for each band
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_scenes_have_clouds_and_edges(example: ModuleType) -> None:
    rng = np.random.default_rng(0)
    fields = [example.smooth(rng, 64, cells) for cells in (9, 5, 7)]
    made = [example.scene(*fields, date, 12, 3) for date in range(12)]
    scenes, clouds = (np.stack(each) for each in zip(*made, strict=True))
    assert (scenes.shape, scenes.dtype) == ((12, 3, 64, 64), np.dtype("u2"))
    assert 0.1 < clouds.mean() < 0.6
    assert 0.02 < (scenes == 0).mean() < 0.5
    hidden = np.broadcast_to(clouds, scenes.shape) & (scenes != 0)
    assert scenes[hidden].min() > scenes[~hidden].mean()


def test_bad_sizes(example: ModuleType) -> None:
    for arguments in (["--dates", "0"], ["--size", "8"], ["--threads", "0"]):
        with pytest.raises(SystemExit):
            example.main(arguments)
