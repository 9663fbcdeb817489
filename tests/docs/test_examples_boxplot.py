"""The examples that draw and store box plots: what they print, draw and store is true."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import LocalCluster
from matplotlib.image import imread

from tests.docs.programs import EXAMPLES, example
from tests.processes import python

pytestmark = pytest.mark.any_dask  # of examples

SIZE, STEPS, EVERY = 160, 6, 2


# --------------------------------------------------------------------------------------------------
# flights.py
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def flights(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, with small chunks and flights that need nothing installed."""
    pytest.importorskip("pandas")
    module = example("flights")
    rng = np.random.default_rng(2013)
    delay = np.round(rng.standard_t(2, 9_000) * 20 - 5)
    delay[rng.random(delay.size) < 0.03] = np.nan
    carrier = rng.choice(3, delay.size, p=[0.85, 0.14, 0.01]).astype(np.int8)
    made = module.Flights(delay, carrier, ["AB", "CD", "EF"], ["Abe", "A long name of one", "Eff"])
    monkeypatch.setattr(module, "CHUNK", 1_000)
    monkeypatch.setattr(module, "read_flights", lambda: made)
    return module


def test_the_table_and_the_picture_of_flights(
    flights: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flights.main(["--dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "All 4 boxes equal np.nanquantile and matplotlib.cbook.boxplot_stats exactly" in output

    assert is_drawn(tmp_path / "boxplot.png")
    assert f"saved {tmp_path / 'boxplot.png'}" in output
    assert zarr.open_array(tmp_path / "flights.zarr", path="arr_delay", mode="r").shape == (9_000,)


def is_drawn(picture: Path) -> bool:
    """Whether the picture has boxes filled with their colour, and something beside them."""
    pixels = np.round(imread(picture)[..., :3] * 255).astype(int)
    is_filled = (pixels == [176, 196, 222]).all(axis=-1)  # lightsteelblue
    return pixels.shape == (700, 1400, 3) and 0.01 < is_filled.mean() < 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda delay: np.sort(delay)[::-1], "AB: the quartiles"),
        (lambda delay: np.where(delay == np.nanmax(delay), 9e9, delay), "all: the range"),
        (lambda delay: np.where(np.isnan(delay), -5, delay), "all: the number with"),
        (lambda delay: np.where(delay > 300, -5, delay), "all: the number of fliers"),
    ],
)
def test_flights_that_differ_are_found(
    flights: ModuleType,
    change: Any,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The store holds other flights than the answers are checked against."""
    made = flights.read_flights()
    other = flights.Flights(change(made.delay), made.carrier, made.codes, made.names)
    write = flights.write_store
    monkeypatch.setattr(flights, "write_store", lambda _, path: write(other, path))
    assert flights.main(["--dir", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "boxplot.png").exists()


# --------------------------------------------------------------------------------------------------
# in_situ.py
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def in_situ(workers: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, on workers that are there already and stay."""
    module = example("in_situ")
    monkeypatch.setattr(module, "start_cluster", lambda _, *, gpu: nullcontext(workers))
    return module


def options(path: Path, *more: str) -> list[str]:
    sizes = ["--size", str(SIZE), "--steps", str(STEPS), "--every", str(EVERY)]
    return [*sizes, "--out", str(path), *more]


def test_what_a_simulation_stores(
    in_situ: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "boxes.jsonl"
    assert in_situ.main(options(path)) == 0
    output = capsys.readouterr().out
    lines = path.read_text().splitlines(keepends=True)
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]
    written, avoided = path.stat().st_size, len(lines) * SIZE**2 * 8
    assert f"\n{written:,} bytes written" in output
    assert f"\n{avoided:,} bytes avoided" in output
    assert "equals NumPy's of the gathered field exactly" in output


@pytest.mark.parametrize("key", ["min", "q3", "whishi", "n_high", "fliers"])
@pytest.mark.slow
def test_a_wrong_line_is_found(
    in_situ: ModuleType,
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write = in_situ.line

    def wrong(number: int, box: Any) -> str:
        stored = json.loads(write(number, box))
        stored[key] = stored[key][1:] if key == "fliers" else np.nextafter(stored[key], np.inf)
        return json.dumps(stored) + "\n"

    monkeypatch.setattr(in_situ, "line", wrong)
    assert in_situ.main(options(tmp_path / "boxes.jsonl")) == 1
    assert f"DIFFERENT FROM NUMPY\n  {key} is" in capsys.readouterr().err


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit, match=r"pip install cupy-cuda13x dask-cuda"):
        example("in_situ").start_cluster(None, gpu=True)


@pytest.mark.slow
def test_as_a_program(tmp_path: Path) -> None:
    """With workers in processes of their own, which import nothing of the example."""
    path = tmp_path / "boxes.jsonl"
    printed = python(EXAMPLES / "in_situ.py", "--workers", "1", *options(path), cwd=tmp_path)
    assert "equals NumPy's of the gathered field exactly" in printed
    assert len(path.read_text().splitlines()) == 3
