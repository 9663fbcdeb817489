"""The example of robust regression: the planted plane is found, and drawn."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import zarr

SCRIPT = Path(__file__).parents[1] / "examples" / "robust_regression.py"


def test_both_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("robust_regression", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.CHUNK = 30_000
    picture = tmp_path / "fits.png"
    arguments = ["--rows", "80000", "--store", str(tmp_path), "--picture", str(picture)]
    assert example.main(arguments) == 0
    told = capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = re.findall(r"^(?:intercept|\d)" + r"\s+(-?\d+\.\d{4})" * 3 + "$", told, re.MULTILINE)
    planted, least, trimmed = (list(map(float, column)) for column in zip(*lines, strict=True))
    assert planted == [example.INTERCEPT, *example.PLANTED]
    assert max(abs(a - b) for a, b in zip(planted, trimmed, strict=True)) < 0.05
    assert max(abs(a - b) for a, b in zip(planted, least, strict=True)) > 2
    counts = re.search(r"([\d,]+) of the ([\d,]+) outliers, and ([\d,]+) others", told)
    assert counts is not None
    found, outliers, others = (int(text.replace(",", "")) for text in counts.groups())
    assert found == outliers > 0.38 * 80_000
    assert others < 100
    store = zarr.open_group(tmp_path / "rows.zarr", mode="r")
    assert store["X"].shape == (80_000, 10)
    assert store["X"].chunks == (30_000, 10)
