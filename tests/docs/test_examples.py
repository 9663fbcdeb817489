"""Examples of the gallery that make their own data: what they print, draw and store is true."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from tests.docs.programs import example

pytestmark = pytest.mark.any_dask  # of examples

ROWS, CHUNK = 80_000, 30_000


BAD = {
    "cloud_mask": (["--dates", "0"], ["--size", "8"], ["--threads", "0"]),
    "median_composite": (["--dates", "0"], ["--size", "8"], ["--every", "0"]),
    "monthly_medians": (["--years", "0"], ["--size", "8"], ["--threads", "0"]),
    "robust_regression": (["--rows", "99"],),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sizes(name: str) -> None:
    for arguments in BAD[name]:
        with pytest.raises(SystemExit):
            example(name).main(arguments)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("median_composite", "matplotlib"),
        ("robust_regression", "matplotlib"),
        ("robust_regression", "sklearn"),
    ],
)
def test_what_is_not_installed(
    name: str, missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert example(name).main([]) == 1
    assert "pip install '.[gallery]'" in capsys.readouterr().err


# --- cloud_mask.py --------------------------------------------------------------------------------


@pytest.mark.slow
def test_clouds_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = example("cloud_mask")
    pytest.importorskip("xarray")
    picture = tmp_path / "clouds.png"
    arguments = ["--dates", "12", "--bands", "2", "--size", "64", "--every", "5"]
    assert program.main([*arguments, "--output", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "answers of ours and of xarray are equal" in told
    (row,) = (line.split() for line in told.splitlines() if line.startswith("ours"))
    assert float(row[1]) > 0
    loads, of_the_mask = map(int, row[3:])
    assert loads == 1
    assert 1 <= of_the_mask <= 2 * 2  # at most twice for each band
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_scenes_have_clouds_and_edges() -> None:
    program = example("cloud_mask")
    rng = np.random.default_rng(0)
    fields = [program.smooth(rng, 64, cells) for cells in (9, 5, 7)]
    made = [program.scene(*fields, date, 12, 3) for date in range(12)]
    scenes, clouds = (np.stack(each) for each in zip(*made, strict=True))
    assert (scenes.shape, scenes.dtype) == ((12, 3, 64, 64), np.dtype("u2"))
    assert 0.1 < clouds.mean() < 0.6
    assert 0.02 < (scenes == 0).mean() < 0.5
    hidden = np.broadcast_to(clouds, scenes.shape) & (scenes != 0)
    assert scenes[hidden].min() > scenes[~hidden].mean()


# --- median_composite.py --------------------------------------------------------------------------


def test_the_median_finds_the_surface(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = example("median_composite")
    picture = tmp_path / "composite.png"
    arguments = ["--dates", "60", "--size", "96", "--every", "7", "--output", str(picture)]
    assert program.main([*arguments, "--folder", str(tmp_path)]) == 0
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


def test_a_store_is_made_once(tmp_path: Path) -> None:
    program = example("median_composite")
    arguments = ["--dates", "3", "--size", "32", "--output", str(tmp_path / "a.png")]
    arguments += ["--folder", str(tmp_path)]
    for _ in range(2):
        assert program.main(arguments) == 0
    (path,) = tmp_path.glob("*.zarr")
    made = path.stat().st_mtime_ns
    assert program.main(arguments) == 0
    assert path.stat().st_mtime_ns == made


# --- monthly_medians.py ---------------------------------------------------------------------------


@pytest.mark.slow
def test_months_are_numpys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = example("monthly_medians")
    picture = tmp_path / "months.png"
    assert program.main(["--small", "--output", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "192 medians and the quartiles of 4 boxes are NumPy's" in told
    north, south = (line for line in told.splitlines() if line.startswith("45°"))
    assert "°C in Jul;" in north
    assert "°C in Jan;" in south
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_planet_has_seasons_and_clouds() -> None:
    program = example("monthly_medians")
    planet = program.Planet(24)
    days = np.stack([planet.day(i, i / 365) for i in range(0, 365, 10)])
    assert days.dtype == np.float32
    assert 0.2 < planet.is_land.mean() < 0.5
    north = days[:, (planet.latitude > 45) & (planet.latitude < 55)]
    winter, summer = (np.median(north[part]) for part in (np.s_[:6], np.s_[17:23]))
    assert summer > winter + 10
    clear = np.median(days, axis=0)
    is_cloudy = days[:, 10:14] < clear[10:14] - 25
    assert 0.02 < is_cloudy.mean() < 0.4  # less than half: a median is not moved


def test_wrong_medians_are_noticed() -> None:
    program = example("monthly_medians")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(365, 12, 24)).astype("f4")
    months = program.dates(1).astype("M8[M]").astype(np.int64) % 12
    right = np.stack([np.median(values[months == month], axis=0) for month in range(12)])
    x = da.from_array(values, chunks=100)
    assert program.check(x, months, right) == right[:, ::3, ::6].size
    right[3, 0, 0] = np.nextafter(right[3, 0, 0], np.float32(9))
    with pytest.raises(AssertionError):
        program.check(x, months, right)


# --- robust_regression.py -------------------------------------------------------------------------


def test_both_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = example("robust_regression")
    monkeypatch.setattr(program, "CHUNK", CHUNK)
    picture = tmp_path / "fits.png"
    arguments = ["--rows", str(ROWS), "--store", str(tmp_path), "--picture", str(picture)]
    assert program.main(arguments) == 0
    told = capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = re.findall(r"^(?:intercept|\d)" + r"\s+(-?\d+\.\d{4})" * 3 + "$", told, re.MULTILINE)
    planted, least, trimmed = np.array(lines, float).T
    np.testing.assert_array_equal(planted, [program.INTERCEPT, *program.PLANTED])
    assert abs(planted - trimmed).max() < 0.05
    assert abs(planted - least).max() > 2

    store = zarr.open_group(tmp_path / "rows.zarr", mode="r")
    assert store["X"].shape == (ROWS, 10)
    assert store["X"].chunks == (CHUNK, 10)
    x, y, is_outlier = (np.asarray(store[name][:]) for name in ("X", "y", "is_outlier"))
    expected, *_ = np.linalg.lstsq(np.column_stack([np.ones(ROWS), x]), y)
    np.testing.assert_allclose(least, expected, rtol=0, atol=1e-4)
    counts = re.search(r"([\d,]+) of the ([\d,]+) outliers, and ([\d,]+) others", told)
    assert counts is not None
    found, outliers, others = (int(text.replace(",", "")) for text in counts.groups())
    assert found == outliers == np.count_nonzero(is_outlier) > 0.38 * ROWS
    assert others < 100


def test_least_squares_loads_every_chunk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what a pass of the fit is compared with."""
    program = example("robust_regression")
    monkeypatch.setattr(program, "CHUNK", CHUNK)
    x, y, _ = program.write(tmp_path / "rows.zarr", ROWS)
    loads = []

    def counted(part: NDArray[np.float64]) -> NDArray[np.float64]:
        loads.append(len(part))
        return part

    program.least_squares(x.map_blocks(counted, dtype=x.dtype, meta=x._meta), y)
    assert sorted(loads) == [ROWS % CHUNK, CHUNK, CHUNK]
