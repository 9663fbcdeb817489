"""Every benchmark once, on a little data: none is found broken when it is wanted."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs.programs import SUITE, benchmark
from tests.processes import ROOT, python

PREFIXES = ("time_", "peakmem_", "track_")


SUITES = [benchmark(f"benchmarks.{path.stem}") for path in (SUITE / "benchmarks").glob("[!_]*.py")]
common, peers, boxplot, lanes, selection = (
    benchmark(f"benchmarks.{name}") for name in ("common", "peers", "boxplot", "lanes", "selection")
)
strategies, companions, compare = map(benchmark, ("strategies", "companions", "compare"))


def cases() -> Iterator[Any]:
    """Every benchmark with each value of each parameter; marked slow, with each combination."""
    classes = {suite for each in SUITES for _, suite in inspect.getmembers(each, inspect.isclass)}
    for suite in sorted(classes, key=lambda suite: suite.__name__):
        for name, _ in inspect.getmembers(suite, inspect.isfunction):
            if name.startswith(PREFIXES):
                params = getattr(suite, "params", ())
                n_values = max(map(len, params), default=1)
                few = [tuple(of[i % len(of)] for of in params) for i in range(n_values)]
                for values in itertools.product(*params):
                    label = "-".join([f"{suite.__name__}.{name}", *map(str, values)])
                    marks = [] if values in few else [pytest.mark.slow]
                    yield pytest.param(suite, name, values, id=label.replace(" ", ""), marks=marks)


CASES = list(cases())


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_SHRINK", "1000")


@pytest.mark.few(2)
@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize(("suite", "name", "values"), CASES)
def test_benchmark_runs(suite: type, name: str, values: tuple[Any, ...]) -> None:
    benchmark = suite()
    benchmark.setup(*values)
    result = getattr(benchmark, name)(*values)
    if name.startswith("track_"):
        assert result >= 0
        assert getattr(suite, name).unit
    else:
        assert result is None


def test_benchmarks_are_found() -> None:
    names = {case.values[1] for case in CASES}
    assert {name.partition("_")[0] + "_" for name in names} == set(PREFIXES)
    assert {"track_loads", "track_num_tasks", "track_candidates", "track_reads"} <= names


def test_parameters_are_named() -> None:
    for case in CASES:
        suite, name, values = case.values
        assert len(values) == len(suite.param_names)
        for function in (suite.setup, getattr(suite, name)):
            assert tuple(inspect.signature(function).parameters)[1:] == suite.param_names


def test_configuration() -> None:
    configuration = json.loads((SUITE / "asv.conf.json").read_text())
    assert (SUITE / configuration["benchmark_dir"] / "quantiles.py").exists()
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for name in ("env_dir", "results_dir", "html_dir"):
        assert f"asv_bench/{configuration[name]}/" in ignored


# --- The source ---------------------------------------------------------------------------------


def test_source_counts_loads() -> None:
    source = common.Source.generated("normal", 1000, 3)
    x = source.lazy()
    assert (x.chunks, source.loads) == (((334, 334, 332),), [0, 0, 0])
    x.sum().compute()
    assert source.loads == [1, 1, 1]
    x[:10].compute()
    assert source.loads == [2, 1, 1]


# --- The comparison -----------------------------------------------------------------------------


def rows_of(output: str) -> list[list[str]]:
    """The cells of all lines of all tables."""
    lines = [line for line in output.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def run(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    assert compare.main(arguments) == 0
    return rows_of(capsys.readouterr().out)


def test_compare_notices_a_wrong_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = peers.Peer("wrong", lambda values, q: q, "quantiles", exact=True, lazy=False)
    monkeypatch.setitem(peers.PEERS, "x.sum", wrong)
    arguments = ["--elements", "1000", "--repeat", "1", "--distributions", "normal"]
    assert compare.main([*arguments, "--peers", "x.sum"]) == 1
    assert "x.sum answered" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "pivots", "limit"),
    [
        ("32_000", ("16", "64"), 1.3),  # of few elements in a cell, chance moves the pivots
        pytest.param("6_400_000", ("64", "256"), 1.1, marks=pytest.mark.slow),
    ],
)
def test_compare_candidates(
    size: str, pivots: tuple[str, ...], limit: float, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(["--candidates", "--elements", size, "--pivots", *pivots], capsys)
    measured = [row for row in rows if row[0] in common.DISTRIBUTIONS]
    assert [row[0] for row in measured[::2]] == list(compare.DESIGNED)
    for _, _, mean, most in measured:
        assert float(mean) <= float(most) <= limit


def stand_alone(script: str, *arguments: str) -> list[list[str]]:
    """The rows that a script prints, started as a user does."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return rows_of(python(SUITE / script, *arguments, PYTHONPATH=path))


# --- The papers' tables -------------------------------------------------------------------------

TINY = ["--sizes", "8", "--repeats", "1"]


def tables_of(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    assert strategies.main(arguments) == 0
    return rows_of(capsys.readouterr().out)


def test_papers_data_are_as_defined() -> None:
    def shares(name: str, n: int = 1000) -> tuple[int, int]:
        x = selection.make_data(name, "float64", n)
        return int((x < 50).sum()), int((x == 10).sum())

    assert [shares(f"mixture {i}")[0] for i in (1, 2, 4, 5)] == [666, 501, 666, 501]
    assert shares("mixture 3")[1] == 100
    powers = 2.0 ** np.arange(-32, 33)
    killer = selection.make_data("bucket killer", "float64", 1000)
    assert set(powers) <= set(killer.tolist())
    assert np.sort(killer)[-64] == 2.0**-31
    zero = selection.make_data("near machine zero", "float64", 1000)
    with np.errstate(over="ignore", divide="ignore"):
        assert np.isinf(1024 / np.ptp(zero))
    assert len(set(selection.alabi_ks(1 << 13))) == 25


@pytest.mark.parametrize("table", ["beliakov", "adversarial", "bitonic", "k", "alabi"])
@pytest.mark.slow
def test_papers_tables(table: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    few = ["--methods", "sort&choose", "bucket", "Kelley", "`quantile`", "`np.partition`"]
    arguments = ["--tables", table, *TINY, "--json", str(written)]
    rows = tables_of([*arguments, *few, "--dtypes", "float32"], capsys)
    content = json.loads(written.read_text())
    assert content["failures"] == []
    assert all(record["ms"] for record in content["records"])
    assert {record["dtype"] for record in content["records"]} == {"float32"}
    # The tables of the file are those that were printed, but for the machine's.
    assert tables_of(["--from", str(written)], capsys) == rows[3:]
    pictures = list(benchmark("strategy_plots").draw(strategies.read([written]), tmp_path))
    assert len(pictures) == (table != "bitonic")
    assert all(0 < path.stat().st_size < 100_000 for path in pictures)


def test_papers_tables_leave_out_what_takes_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tables", "beliakov", "--sizes", "6", "9", "--repeats", "1", "--budget", "1e-9"]
    rows = tables_of([*arguments, "--methods", "bucket", "--dtypes", "float32"], capsys)
    assert any(row[0] == "bucket" and row[-1].endswith(" at 2^6") for row in rows)


# --- Weak scaling -------------------------------------------------------------------------------


@pytest.mark.slow
def test_weak_scaling(tmp_path: Path) -> None:
    """What was measured is stored, and drawn from the file."""
    written, picture = tmp_path / "figures.json", tmp_path / "pictures" / "scaling.png"
    sizes = ["--cpu", "--mb", "1", "--chunks", "2", "--repeat", "1", "--workers", "2"]
    rows = stand_alone("weak_scaling.py", *sizes, "--json", str(written))
    assert {row[0] for row in rows} >= {*benchmark("weak_scaling").METHODS}
    stand_alone("weak_scaling.py", "--plot", str(written), "--out", str(picture))
    assert 0 < picture.stat().st_size < 100_000


# --- Programs that print a table ------------------------------------------------------------------

ONE = ["--repeat", "1"]
SOME = [*ONE, "--elements", "2000", "--chunks", "4"]
ROWS = ["--rows", "1000", "--features", "3", "5", "--k", "4", "--queries", "9", "--many", "20"]
POINTS = ["--points", "5", "101", "--parts", "8", "--samples", "500", "--data", "normal"]
PLACES = ["--points", "30", "--sizes", "50", "--places", "100"]
LIMITS = ["--shapes", "long lanes", "--questions", "median", "--ratios", "0.5", "1.5", "10"]
PROGRAMS: dict[str, tuple[str, Sequence[str], set[str]]] = {
    "sorted arrays": (
        "sorted_arrays", [*SOME, "--data", "zipf"],
        {"`sort(x)`", "`sort(x, spill=True)`", "`argsort(x)`", "`radix_sort(x)`"},
    ),
    "distributions": ("ecdf", [*ONE, "--elements", "3000", *POINTS], {"normal"}),
    "isotonic": ("isotonic", [*ONE, "--sizes", "300", "3000"], {*benchmark("isotonic").DATA}),
    "splines": ("splines", [*ONE, *PLACES], {*benchmark("splines").FUNCTIONS}),
}  # fmt: skip
LOADS = [*ONE, "--chunks", "12", "--size", "500"]
STORES = ["--gigabytes", "0.0001", "--chunk-mb", "0.01"]
SLOW: dict[str, tuple[str, Sequence[str], set[str]]] = {
    "peers": ("compare", [*ONE, "--elements", "1000", "--distributions", "sorted"], {"sorted"}),
    "kinds": ("one_load", ["kinds", *LOADS], {"mixed", "sorted", "clouds"}),
    "questions": ("one_load", ["questions", *LOADS], {"median", "mad", "weights"}),
    "maps": ("maps", ["small", "--maps", "40"], {"x.sum(axis=0)", "quantile, 1 read", "by hand"}),
    "two bytes": ("few_values", ["--gigabytes", "0.001", "--repeat", "1"], {"uint8", "uint16"}),
    "stores": ("one_load", ["stores", *LOADS, *STORES], {"zstd, level 9", "50 ms a chunk"}),
    "robust fits": ("robust", [*ONE, "--rows", "4000", "--cases", "2:0.45"], {"4,000"}),
    "neighbours": ("neighbors", [*ONE, *ROWS], {"1,000", "0", "1e+06", "1e+08"}),
    "sorting": ("sorting", SOME, {f"`radix_sort(x, bits={n})`" for n in (8, 11, 16)}),
    "axis": (
        "axis", ["--shape", "20", "8", "9", "--chunks", "6", "4", "9"],
        {f"`{peer.call}`" for q in lanes.LANE_PEERS for peer in lanes.available(q).values()},
    ),
    "axis within memory": (
        "axis", ["--memory", "--megabytes", "500", "--times", "1"],
        {"`x.sum(axis=0)`", "`median(x, axis=0)`"},
    ),
    "column limits": ("column_limits", [*ONE, *LIMITS], {"0.5", "1.5", "10"}),
    "no GPU": (
        "gpu_cluster", ["--cpu", "--gpus", "1", "--profile", *SOME],
        {"`x.sum()`", "`quantile-cuts`"},
    ),
    "masks": ("companions", ["masks", *SOME], {*companions.OWN["masks"][1]}),
    "weights": ("companions", ["weights", *SOME], {*companions.OWN["weights"][1]}),
    "lanes": (
        "companions", [*ONE, "lanes", "--shape", "12", "9", "8"], {"plain", "where=", "weights="}
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [*PROGRAMS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_program(
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Those that are slow are started as a user does."""
    program, arguments, wanted = (PROGRAMS | SLOW)[name]
    arguments = [*arguments, *(["--store", str(tmp_path)] if name == "stores" else [])]
    if name in SLOW:
        monkeypatch.setenv("BENCH_SHRINK", "20")
        rows = stand_alone(f"{program}.py", *arguments)
    else:
        assert benchmark(program).main(arguments) == 0
        rows = rows_of(capsys.readouterr().out)
    named = [row for row in rows if row[0] in wanted]
    assert {row[0] for row in named} == wanted
    numbers = [cell for row in named for cell in row[1:] if re.fullmatch(r"[\d.]+", cell)]
    assert len(numbers) >= len(named)
    assert any(float(cell) > 0 for cell in numbers)


# --- Companions ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_companions_of_ten_chunkings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ["chunkings", "--elements", "2000"]
    assert companions.main(sizes) == 0
    rows = [row for row in rows_of(capsys.readouterr().out) if row[0].startswith("(")]
    assert len(rows) == 20
    assert len({row[0] for row in rows}) == 10
    changing = itertools.count()
    monkeypatch.setattr(companions, "compute", lambda *_: np.float64(next(changing)))
    assert companions.main(sizes) == 1
    assert "depend on the chunks" in capsys.readouterr().err
