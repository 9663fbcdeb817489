"""The gallery: its scripts run on small data and check their answers; its pictures are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tests.docs.programs import EXAMPLES, ROOT, example, module_of

pytestmark = pytest.mark.any_dask  # of examples

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")

# Options that make the data small, and what the script says when its check has passed. Other
# scripts have tests of their own.
SCRIPTS = {
    "climatology": (["--years", "3", "--size", "3"], "at one pixel equal NumPy's"),
    "dataframe_column": (["--months", "3", "--rows", "1500"], "of hours equal those of pandas"),
    "display_stretch": (["--depth", "4", "--size", "64"], "of both channels equal NumPy's"),
    "out_of_core_gpu": (["--gigabytes", "0.01", "--chunks", "20"], "the quartiles are exact"),
    "calcium_baseline": (["--frames", "310", "--size", "32"], "of four pixels equals NumPy's"),
    "robust_scaling": (["--rows", "2000"], "the scaled features equal NumPy's"),
    "zonal_statistics": (["--size", "64", "--zones", "5"], "quartiles of 5 districts equal"),
    "cloud_mask": (
        ["--dates", "12", "--bands", "2", "--size", "64", "--every", "5"],
        "answers of this package and of xarray are equal",
    ),
    "monthly_medians": (["--small"], "192 medians and the quartiles of 4 boxes equal NumPy's"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_checks_its_answers_and_draws(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, output = SCRIPTS[name]
    picture = tmp_path / "picture.png"
    assert example(name).main([*arguments, "--output", str(picture)]) == 0
    assert output in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


BAD = {name: [[told[0][0], "0"]] for name, told in SCRIPTS.items() if len(told[0]) > 1} | {
    "cloud_mask": [["--dates", "0"], ["--size", "8"], ["--threads", "0"]],
    "median_composite": [["--dates", "0"], ["--size", "8"], ["--every", "0"]],
    "monthly_medians": [["--years", "0"], ["--size", "8"], ["--threads", "0"]],
    "robust_regression": [["--rows", "99"]],
    "in_situ": [["--size", "64"], ["--steps", "3", "--every", "4"], ["--workers", "0"]],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sizes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in BAD[name]:
        with pytest.raises(SystemExit):
            example(name).main(arguments)
        assert "needs" in capsys.readouterr().err


def test_wrong_zones_are_noticed(tmp_path: Path) -> None:
    zones = example("zonal_statistics")
    zones.make_stores(tmp_path, 64, 3)
    both = [da.from_zarr(tmp_path / f"{name}.zarr") for name in ("elevation", "districts")]
    medians, boxes = zones.statistics(*both, 3)
    in_memory = [each.compute() for each in both]
    assert (in_memory[0] == zones.NODATA).any()
    zones.check(*in_memory, medians, boxes)
    with pytest.raises(AssertionError):
        zones.check(*in_memory, np.nextafter(medians, np.inf), boxes)


# --- The page -------------------------------------------------------------------------------------


def test_every_script_is_on_the_page() -> None:
    linked = set(re.findall(r"\]\(\.\./examples/(\w+)\.py\)", PAGE))
    assert linked == {path.stem for path in EXAMPLES.glob("*.py") if path.stem != "__init__"}


def test_every_example_has_a_picture_a_snippet_and_a_script() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:-1]
    assert len(sections) > 9
    for section in sections:
        assert len(re.findall(r"^!\[.+\]\(\w+\.(?:jpg|png)\)$", section, re.MULTILINE)) == 1
        assert len(re.findall(r"^```python$", section, re.MULTILINE)) == 1


def test_pictures_are_small() -> None:
    pictures = [ROOT / "docs" / name for name in re.findall(r"\]\((\w+\.(?:jpg|png))\)", PAGE)]
    sizes = [path.stat().st_size for path in pictures]
    assert max(sizes) < 150_000
    assert sum(sizes) < 1_500_000


def snippets() -> Iterator[tuple[str, str]]:
    """The code of each section, by the script that it links."""
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:-1]:
        (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        (name,) = re.findall(r"\]\(\.\./examples/(\w+)\.py\)", section)
        yield name, code


def test_snippets_use_what_the_scripts_use() -> None:
    """Each public function of a snippet is in the script that its section links."""
    for name, code in snippets():
        script = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                assert all(re.search(rf"\b{each.name}\b", script) for each in node.names)
            elif isinstance(node, ast.Attribute):
                assert node.attr in script, (name, node.attr)


def days() -> xr.DataArray:
    """Two years at two places."""
    times = pd.date_range("2023-01-01", "2024-12-31")
    values = np.random.default_rng(0).standard_normal((len(times), 2))
    return xr.DataArray(values, {"time": times}, ("time", "place")).chunk(time=100)


def of_clouds() -> dict[str, Any]:
    scenes = da.from_array(np.arange(24, dtype="u2").reshape(4, 2, 3), chunks=2)
    return {"scenes": scenes, "clouds": scenes > 20}


def of_zones() -> dict[str, Any]:
    numbers = np.random.default_rng(0).integers(0, 30, (40, 50))
    return {
        "dask": dask,
        "elevation": da.from_array(numbers * 2, chunks=20),
        "districts": da.from_array(numbers, chunks=20),
    }


def of_fares() -> dict[str, Any]:
    table = pd.DataFrame({"fare": np.arange(48.0), "hour": np.arange(48) % 24})
    return {"df": dd.from_pandas(table, npartitions=3)}


def of_rows() -> dict[str, Any]:
    x = da.random.default_rng(0).standard_normal((200, 3), chunks=(50, 3))
    return {"x": x, "y": x.sum(axis=1)}


# What the snippets are about, by the scripts of their sections.
DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "climatology": lambda: {"a": days(), "last": days().sel(time="2024").compute()},
    "monthly_medians": lambda: {"days": days().data, "months": days().time.dt.month.values},
    "cloud_mask": of_clouds,
    "median_composite": lambda: {"stack": da.ones((5, 4, 4), chunks=2)},
    "zonal_statistics": of_zones,
    "flights": lambda: {
        "delay": da.arange(60, chunks=20),
        "carrier": da.arange(60, chunks=20) % 3,
        "codes": "ABC",
    },
    "dataframe_column": of_fares,
    "display_stretch": lambda: {"volume": da.ones((2, 4, 8, 8), chunks=4, dtype="u2")},
    "robust_scaling": of_rows,
    "calcium_baseline": lambda: {"movie": da.ones((320, 4, 4), chunks=(80, 2, 4), dtype="u2")},
    "robust_regression": of_rows,
    "out_of_core_gpu": of_rows,
}


def test_every_snippet_has_data() -> None:
    assert list(DATA) == list(dict(snippets()))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.gpu] if "gpu" in name else []) for name in DATA],
)
def test_the_snippet_runs(name: str) -> None:
    """And what it makes can be computed."""
    given = DATA[name]()
    names = dict(given)
    exec(dict(snippets())[name], names)
    made = {key: value for key, value in names.items() if key not in given}
    dask.compute({key: value for key, value in made.items() if dask.is_dask_collection(value)})


def test_the_picture_of_a_gpu_is_of_what_was_measured(tmp_path: Path) -> None:
    drawn = module_of(ROOT / "docs" / "gpu_picture.py").draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (sentence,) = re.findall(r"Quartiles of [^.]*?used", PAGE)
    memory = [f"{value:.0f} GiB" for value in drawn["memory"].values()]
    assert re.findall(r"\d+ GiB", sentence) == memory
    assert drawn["seconds"]["quartiles, two reads"] > drawn["seconds"]["x.sum(), one read"]
