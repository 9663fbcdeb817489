"""Every benchmark once, on a little data: none is found broken when it is wanted."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import LocalCluster

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "asv_bench"
PREFIXES = ("time_", "peakmem_", "track_")

# As asv imports them, and as the script does: from the folder, which is no package.
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(SUITE))
    common = importlib.import_module("benchmarks.common")
    peers = importlib.import_module("benchmarks.peers")
    boxplot = importlib.import_module("benchmarks.boxplot")
    accompanied = importlib.import_module("benchmarks.companions")
    grouped = importlib.import_module("benchmarks.groups")
    lanes = importlib.import_module("benchmarks.lanes")
    nearest = importlib.import_module("benchmarks.neighbors")
    regression = importlib.import_module("benchmarks.robust")
    quantiles = importlib.import_module("benchmarks.quantiles")
    selection = importlib.import_module("benchmarks.selection")
    selecting = importlib.import_module("benchmarks.strategies")
    sorting = importlib.import_module("benchmarks.sorting")
    spread = importlib.import_module("benchmarks.spread")
    strategies = importlib.import_module("strategies")
    strategy_plots = importlib.import_module("strategy_plots")
    companions = importlib.import_module("companions")
    compare = importlib.import_module("compare")
    neighbors = importlib.import_module("neighbors")
    robust = importlib.import_module("robust")
    ecdf = importlib.import_module("ecdf")
    isotonic = importlib.import_module("isotonic")
    sorted_arrays = importlib.import_module("sorted_arrays")
    splines = importlib.import_module("splines")
    weak_scaling = importlib.import_module("weak_scaling")


def cases() -> Iterator[Any]:
    """Every benchmark with each value of each parameter; marked slow, with each combination."""
    modules = (
        accompanied,
        boxplot,
        grouped,
        lanes,
        nearest,
        quantiles,
        regression,
        selecting,
        sorting,
    )
    modules = (*modules, spread)
    suites = (inspect.getmembers(module, inspect.isclass) for module in modules)
    for class_name, suite in itertools.chain(*suites):
        for name, _ in inspect.getmembers(suite, inspect.isfunction):
            if name.startswith(PREFIXES):
                params = getattr(suite, "params", ())
                n_values = max(map(len, params), default=1)
                few = [tuple(of[i % len(of)] for of in params) for i in range(n_values)]
                for values in itertools.product(*params):
                    label = "-".join([f"{class_name}.{name}", *map(str, values)])
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
    assert source.loads == [0, 0, 0]
    assert x.chunks == ((334, 334, 332),)
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


@pytest.mark.slow
def test_compare_quartiles(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(["--elements", "20_000", "--repeat", "2"], capsys)
    for name, peer in peers.PEERS.items():
        found = [row for row in rows if row[0] == f"`{peer.call}`"]
        assert len(found) == len(common.SPEED)
        for row in found:
            assert row[1] == peer.finds
            assert row[2].startswith("" if name == "x.sum" else ["approx", "exact"][peer.exact])
            assert all(float(cell) > 0 for cell in row[4:])
    summary = rows[-len(common.SPEED) :]
    assert [row[0] for row in summary] == list(common.SPEED)
    assert rows[0][:2] == ["cores", "CPU"]


def test_compare_notices_a_wrong_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = peers.Peer("wrong", lambda values, q: q, "quantiles", exact=True, lazy=False)
    monkeypatch.setitem(peers.PEERS, "x.sum", wrong)
    arguments = ["--elements", "1000", "--repeat", "1", "--distributions", "normal"]
    assert compare.main([*arguments, "--peers", "x.sum"]) == 1
    assert "x.sum answered" in capsys.readouterr().err


def test_compare_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(["--candidates", "--elements", "32_000", "--pivots", "16", "64"], capsys)
    found = [row for row in rows if row[0] in common.DISTRIBUTIONS]
    assert [row[0] for row in found[::2]] == list(compare.DESIGNED)
    for _, _, counts, most_by_counts, distances, most, *_ in found:
        assert float(distances) <= float(counts) <= float(most_by_counts) <= 1.3
        assert float(most) <= float(most_by_counts)


def stand_alone(script: str, *arguments: str) -> list[list[str]]:
    """The rows that a script prints, started as a user does."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(SUITE / script), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout)


def test_compare_stands_alone() -> None:
    arguments = ["--elements", "1000", "--repeat", "1", "--distributions", "sorted"]
    rows = stand_alone("compare.py", *arguments, "--peers", "np.quantile")
    assert [row[0] for row in rows][-1] == "sorted"


ONE_LOAD = ["--repeat", "1", "--chunks", "12", "--size", "500"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "kinds",
        pytest.param("questions", marks=pytest.mark.slow),
        pytest.param("stores", marks=pytest.mark.slow),
    ],
)
def test_one_load_stands_alone(part: str, tmp_path: Path) -> None:
    options = {
        "kinds": ["--picture", str(tmp_path / "loads.png")],
        "questions": [],
        "stores": ["--store", str(tmp_path), "--gigabytes", "0.0001", "--chunk-mb", "0.01"],
    }
    rows = stand_alone("one_load.py", part, *ONE_LOAD, *options[part])
    names = {
        "kinds": {"mixed", "sorted", "clouds"},
        "questions": {"median", "mad", "weights"},
        "stores": {"zstd, level 9", "50 ms a chunk"},
    }
    assert {row[0] for row in rows} >= names[part]
    assert part != "kinds" or (tmp_path / "loads.png").exists()


def test_boxes_of_clustered_data_take_a_third_load() -> None:
    for distribution, loads in (("normal", 2), ("clustered", 3)):
        source = common.Source.generated(distribution, 200_000, 2)
        common.compute(boxplot.describe_boxplot(source.lazy()))
        assert source.loads == [loads, loads]


@pytest.mark.slow
def test_gpu_cluster_without_gpus() -> None:
    size = ["--gpus", "1", "--elements", "40_000", "--chunks", "4", "--repeat", "1"]
    rows = {row[0]: row for row in stand_alone("gpu_cluster.py", "--cpu", *size, "--profile")}
    assert float(rows["`x.sum()`"][5]) == 1
    assert rows["`quantile(x, q)`"][-1] == "0"  # no chunk is sent
    assert rows["`quantile-cuts`"][1] == "4"


@pytest.mark.slow
def test_axis() -> None:
    rows = stand_alone("axis.py", "--shape", "20", "8", "9", "--chunks", "6", "4", "9")
    ours = [
        row for row in rows if row[0].startswith(("`median(x", "`quantile(x", "`nanquantile(x"))
    ]
    assert len(ours) == 3
    assert all(float(row[-1]) == 1 for row in ours)
    called = {row[0] for row in rows}
    for question in lanes.LANE_PEERS:
        assert {f"`{peer.call}`" for peer in lanes.available(question).values()} <= called


@pytest.mark.slow
def test_axis_within_memory() -> None:
    rows = stand_alone("axis.py", "--memory", "--megabytes", "500", "--times", "1")
    _, sums, ours = rows[-3:]
    assert sums[0] == "`x.sum(axis=0)`"
    assert ours[0] == "`median(x, axis=0)`"
    assert 0 < float(ours[2]) <= 1


@pytest.mark.slow
def test_columns_around_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_SHRINK", "20")
    some = ["--shapes", "long lanes", "--questions", "median", "--ratios", "0.5", "1.5", "10"]
    rows = stand_alone("column_limits.py", *some, "--repeat", "1")
    assert [row[0] for row in rows[-3:]] == ["0.5", "1.5", "10"]
    assert [row[1] for row in rows[-3:]] == ["column, 1", "column, 2", "passes, 1"]
    assert all(float(row[-2]) <= float(row[-1]) for row in rows[-3:])


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
    pictures = list(strategy_plots.draw(strategies.read([written]), tmp_path))
    assert len(pictures) == (table != "bitonic")
    assert all(0 < path.stat().st_size < 100_000 for path in pictures)


def test_papers_tables_leave_out_what_takes_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tables", "beliakov", "--sizes", "6", "9", "--repeats", "1", "--budget", "1e-9"]
    rows = tables_of([*arguments, "--methods", "bucket", "--dtypes", "float32"], capsys)
    assert any(row[0] == "bucket" and row[-1].endswith(" at 2^6") for row in rows)


@pytest.mark.slow
def test_sorting() -> None:
    rows = stand_alone("sorting.py", "--elements", "2000", "--chunks", "4", "--repeat", "1")
    for bits in (8, 11, 16):
        found = [row for row in rows if row[0] == f"`radix_sort(x, bits={bits})`"]
        assert len(found) == 3
        assert all(float(cell) > 0 for row in found for cell in row[1:])
    assert [row[:2] for row in rows[-9::3]] == [
        [name, "8"] for name in ("uniform", "sorted", "two exchanged")
    ]
    assert all(0 < int(row[-1].removesuffix("%")) <= 100 for row in rows[-9:])


def test_sorted_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--elements", "4000", "--chunks", "4", "--repeat", "1"]
    assert sorted_arrays.main([*sizes, "--data", "zipf"]) == 0
    rows = rows_of(capsys.readouterr().out)
    found = {row[0]: row[1:] for row in rows if row[0].startswith("`")}
    assert {"`sort(x)`", "`sort(x, spill=True)`", "`argsort(x)`", "`radix_sort(x)`"} <= set(found)
    assert all(float(cell) > 0 for row in found.values() for cell in row if cell)
    assert found["`sort(x)`"][-1] == "1.000"


# --- Weak scaling -------------------------------------------------------------------------------


@pytest.fixture
def _workers_in_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They are there at once, and send over sockets as others do. None takes a chunk of another to
    save time, as it would of chunks so small."""

    def started(n_workers: int, *, on_gpus: bool) -> LocalCluster:
        assert not on_gpus
        options = {"processes": False, "protocol": "tcp://", "dashboard_address": ":0"}
        return LocalCluster(n_workers=n_workers, threads_per_worker=1, **options)

    monkeypatch.setattr(weak_scaling, "started", started)
    config = {
        "distributed.scheduler.bandwidth": 1_000_000,
        "distributed.scheduler.unknown-task-duration": "1ms",
        "distributed.scheduler.work-stealing": False,
    }
    with dask.config.set(config):
        yield


SCALED = ["--cpu", "--mb", "1", "--chunks", "2", "--repeat", "1"]


@pytest.mark.usefixtures("_workers_in_threads")
@pytest.mark.slow
def test_weak_scaling(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written, picture = tmp_path / "figures.json", tmp_path / "pictures" / "scaling.png"
    for workers in ("1", "2"):  # the second appends
        arguments = ["--workers", workers, "--order", "random", "--json", str(written)]
        assert weak_scaling.main([*SCALED, *arguments]) == 0
    rows = {row[0]: row for row in rows_of(capsys.readouterr().out)}  # of two workers
    records = {(each.workers, each.method): each for each in weak_scaling.read([written])}
    assert list(records) == [(n, method) for n in (1, 2) for method in weak_scaling.METHODS]
    for (workers, _), each in records.items():
        assert (each.kind, each.chunks, each.nbytes) == ("CPU", 2 * workers, workers << 20)
        assert each.outliers > 0
        assert each.chunks_sent == [0]
        assert all(seconds > 0 for seconds in each.seconds)
        assert all(sent > 8 * each.outliers for sent in each.to_client)
        assert all((sent > 0) == (workers > 1) for sent in each.between)
    ours, sort = (records[2, method].between[0] for method in weak_scaling.METHODS)
    # Four passes, and in each of them half of the keys.
    assert sort > 2 * records[2, "radix sort"].nbytes > 10 * ours
    assert float(rows["radix sort"][5]) == pytest.approx(sort / 1e6, abs=1e-3)
    assert weak_scaling.main(["--plot", str(written), "--out", str(picture)]) == 0
    assert 0 < picture.stat().st_size < 100_000


# --- Nearest neighbours -------------------------------------------------------------------------


@pytest.mark.slow
def test_neighbors_beside_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rows", "1000", "--features", "3", "5", "--k", "4", "--queries", "10"]
    assert neighbors.main([*sizes, "--many", "1", "20", "--repeat", "1"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert [row[1] for row in rows if row[0] == "1,000"] == ["3", "5"]
    assert all(float(cell) > 0 for row in rows if row[0] == "1,000" for cell in row[3:])
    assert [row[-1] for row in rows if row[0] in ("0", "1e+06", "1e+08")] == ["0.00%"] * 3


def test_the_comparison_of_robust_fits(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rows", "8000", "--cases", "2:0.45", "--repeat", "1"]
    assert robust.main(sizes) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 8,000")]
    assert len(lines) == 6
    for line in lines:
        *_, fit, _, _, loads, steps, found = (cell.strip() for cell in line.strip("|").split("|"))
        if fit != "least median of squares":  # which needs more rows to be so near
            assert found == ("yes" if fit == "least trimmed squares" else "")
        assert int(loads) == 1  # all rows are a sample
        assert int(steps or 1) >= 1


# --- Empirical distributions --------------------------------------------------------------------


def test_errors_and_splitters_of_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["normal", "Zipf, a = 1.5"]
    sizes = ["--elements", "3000", "--points", "5", "101", "--parts", "8", "--samples", "500"]
    assert ecdf.main([*sizes, "--repeat", "1", "--data", *names]) == 0
    rows = [row for row in rows_of(capsys.readouterr().out) if row[0] in names]
    assert [row[0] for row in rows] == names * 3
    for _, *cells in rows[:2]:
        found, stated = (list(map(float, cells[i::2])) for i in (0, 1))
        assert all(a <= b for a, b in zip(found, stated, strict=True))
        assert stated[1] < 0.01 < stated[0] <= 0.25
    few, many, counted, _, sampled, exact = map(float, rows[2][1:])
    assert few > many > exact == 1
    assert sampled > counted
    assert all(float(cell) > 0 for row in rows[4:] for cell in row[1:])


# --- Distributions ------------------------------------------------------------------------------


def test_isotonic_regression_beside_scipy(capsys: pytest.CaptureFixture[str]) -> None:
    assert isotonic.main(["--sizes", "300", "3000", "--repeat", "1"]) == 0
    rows = rows_of(capsys.readouterr().out)[-8:]
    assert [row[0] for row in rows[::2]] == list(isotonic.DATA)
    assert all(float(cell) >= 0 for row in rows for cell in row[2:])


def test_splines_beside_scipy(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--points", "30", "--sizes", "50", "--places", "100", "--repeat", "1"]
    assert splines.main(sizes) == 0
    rows = rows_of(capsys.readouterr().out)
    errors = [row for row in rows if row[0] in splines.FUNCTIONS]
    assert len(errors) == 2 * len(splines.FUNCTIONS)
    # With true slopes the errors are the least.
    assert sum(float(row[4]) < float(row[6]) for row in errors) >= 10
    assert all(float(cell) > 0 for cell in rows[-1][2:])


# --- Companions ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("table", ["masks", "weights"])
def test_companions_in_processes(table: str) -> None:
    rows = stand_alone(
        "companions.py", table, "--elements", "20000", "--chunks", "3", "--repeat", "1"
    )
    found = {row[0]: row[1:] for row in rows}
    names = companions.OWN[table][1]
    assert set(names) <= set(found)
    assert all(float(found[name][0]) > 0 for name in names)


@pytest.mark.slow
def test_companions_of_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    assert companions.main(["lanes", "--shape", "12", "9", "8", "--repeat", "1"]) == 0
    found = {row[0]: row[1:] for row in rows_of(capsys.readouterr().out)}
    assert all(float(found[name][0]) > 0 for name in ("plain", "where=", "weights="))


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
