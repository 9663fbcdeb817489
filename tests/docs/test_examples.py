"""Examples of the gallery that make their own data: what they print, draw and store is true."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr

from tests.docs.programs import EXAMPLES, example
from tests.processes import python

pytestmark = pytest.mark.any_dask  # of examples

ROWS, CHUNK = 80_000, 30_000


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


# --- median_composite.py --------------------------------------------------------------------------


def test_the_median_finds_the_surface(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = example("median_composite")
    picture = tmp_path / "composite.png"
    arguments = ["--dates", "60", "--size", "96", "--every", "7", "--output", str(picture)]
    assert program.main([*arguments, "--folder", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "plan:  column: reads each chunk once" in output
    assert picture.read_bytes().startswith(b"\x89PNG")
    errors = dict(re.findall(r"^  (.*?)\s+(0\.\d+)   ", output, flags=re.MULTILINE))
    median = float(errors.pop("median of all dates"))
    assert len(errors) == 3
    assert median < 0.1 * min(map(float, errors.values()))


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
    output = capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = re.findall(r"^(?:intercept|\d)" + r"\s+(-?\d+\.\d{4})" * 3 + "$", output, re.MULTILINE)
    planted, least, trimmed = np.array(lines, float).T
    np.testing.assert_array_equal(planted, [program.INTERCEPT, *program.PLANTED])
    assert abs(planted - trimmed).max() < 0.05
    assert abs(planted - least).max() > 2

    counts = re.search(r"([\d,]+) of the ([\d,]+) outliers, and ([\d,]+) others", output)
    assert counts is not None
    result, outliers, others = (int(text.replace(",", "")) for text in counts.groups())
    assert result == outliers > 0.38 * ROWS
    assert others < 100


# --- sorted_store.py ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_store_is_sorted(tmp_path: Path) -> None:
    """In a process of its own, whose memory is limited for good."""
    store = tmp_path / "made.zarr"
    command = [str(EXAMPLES / "sorted_store.py"), "--store", str(store), "--keep"]
    command += ["--gigabytes", "0.002", "--chunk-mb", "0.3", "--distribution", "integers"]
    printed = python(*command)
    assert "reads per chunk    3" in printed
    assert "the sorted store is the first one in ascending order" in printed
    made, result = (
        zarr.open_array(tmp_path / name, mode="r") for name in ("made.zarr", "sorted-made.zarr")
    )
    assert result.chunks == made.chunks
    np.testing.assert_array_equal(result[:], np.sort(made[:]))


def test_a_mistake_is_seen() -> None:
    program = example("sorted_store")
    values = np.random.default_rng(0).normal(size=100)
    ordered = np.sort(values)
    expected = program.summary(values)

    def shown(actual: np.ndarray) -> tuple[bool, bool]:
        parts = [program.summary(part) for part in np.array_split(actual, 4)]
        whole = program.joined(parts)
        return whole.ascends, whole[:2] == expected[:2]

    assert shown(ordered) == (True, True)
    assert shown(values) == (False, True)
    assert shown(np.concatenate([ordered[25:50], ordered[:25], ordered[50:]])) == (False, True)
    assert shown(np.append(ordered[0], ordered[:-1])) == (True, False)
    assert shown(ordered[:-1]) == (True, False)


def test_a_limit_that_is_too_low_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = example("sorted_store")

    def refuse(path: Path) -> None:
        raise MemoryError

    for name in ("limit_memory", "prepare", "forget"):
        monkeypatch.setattr(program, name, lambda *_: False)
    monkeypatch.setattr(program, "summary_of", refuse)
    assert program.main(["--store", str(tmp_path / "made.zarr"), "--limit-gb", "0.5"]) == 1
    assert "0.5 GB of memory are not enough: raise --limit-gb" in capsys.readouterr().err
