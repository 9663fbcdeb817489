"""The example of robust regression: the planted plane is found, and drawn."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

pytestmark = pytest.mark.any_dask  # of an example

SCRIPT = Path(__file__).parents[2] / "examples" / "robust_regression.py"
ROWS, CHUNK = 80_000, 30_000


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("robust_regression", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CHUNK", CHUNK)
    return module


def test_both_fits(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "fits.png"
    arguments = ["--rows", str(ROWS), "--store", str(tmp_path), "--picture", str(picture)]
    assert example.main(arguments) == 0
    told = capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = re.findall(r"^(?:intercept|\d)" + r"\s+(-?\d+\.\d{4})" * 3 + "$", told, re.MULTILINE)
    planted, least, trimmed = np.array(lines, float).T
    np.testing.assert_array_equal(planted, [example.INTERCEPT, *example.PLANTED])
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


def test_least_squares_loads_every_chunk_once(example: ModuleType, tmp_path: Path) -> None:
    """It is what a pass of the fit is compared with."""
    x, y, _ = example.write(tmp_path / "rows.zarr", ROWS)
    loads = []

    def counted(part: NDArray[np.float64]) -> NDArray[np.float64]:
        loads.append(len(part))
        return part

    example.least_squares(x.map_blocks(counted, dtype=x.dtype, meta=x._meta), y)
    assert sorted(loads) == [ROWS % CHUNK, CHUNK, CHUNK]


@pytest.mark.parametrize("missing", ["matplotlib", "sklearn"])
def test_what_is_not_installed(
    missing: str,
    example: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert example.main([]) == 1
    assert "pip install '.[gallery]'" in capsys.readouterr().err
