"""The example of months: its planet has seasons and clouds, and its answers are NumPy's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import dask.array as da
import numpy as np
import pytest

pytestmark = pytest.mark.any_dask  # of an example

SCRIPT = Path(__file__).parents[2] / "examples" / "monthly_medians.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("monthly_medians", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_months_are_numpys(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "months.png"
    assert example.main(["--small", "--output", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "192 medians and the quartiles of 4 boxes are NumPy's" in told
    north, south = (line for line in told.splitlines() if line.startswith("45°"))
    assert "°C in Jul;" in north
    assert "°C in Jan;" in south
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_planet_has_seasons_and_clouds(example: ModuleType) -> None:
    planet = example.Planet(24)
    days = np.stack([planet.day(i, i / 365) for i in range(0, 365, 10)])
    assert days.dtype == np.float32
    assert 0.2 < planet.is_land.mean() < 0.5
    north = days[:, (planet.latitude > 45) & (planet.latitude < 55)]
    winter, summer = (np.median(north[part]) for part in (np.s_[:6], np.s_[17:23]))
    assert summer > winter + 10
    clear = np.median(days, axis=0)
    is_cloudy = days[:, 10:14] < clear[10:14] - 25
    assert 0.02 < is_cloudy.mean() < 0.4  # less than half: a median is not moved


def test_wrong_medians_are_noticed(example: ModuleType) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(365, 12, 24)).astype("f4")
    months = example.dates(1).astype("M8[M]").astype(np.int64) % 12
    right = np.stack([np.median(values[months == month], axis=0) for month in range(12)])
    x = da.from_array(values, chunks=100)
    assert example.check(x, months, right) == right[:, ::3, ::6].size
    right[3, 0, 0] = np.nextafter(right[3, 0, 0], np.float32(9))
    with pytest.raises(AssertionError):
        example.check(x, months, right)


def test_bad_sizes(example: ModuleType) -> None:
    for arguments in (["--years", "0"], ["--size", "8"], ["--threads", "0"]):
        with pytest.raises(SystemExit):
            example.main(arguments)
