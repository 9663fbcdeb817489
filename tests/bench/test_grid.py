"""The grid of timings: its cells, what it says of them, and two checkouts in turn."""

from __future__ import annotations

import pytest

from tests.docs.programs import benchmark
from tests.processes import ROOT, python

grid = benchmark("grid")

ONLY = "median, axis of 24, count, none, held, f4"
FAST = ["--elements", "4000", "--repeat", "1", "--only", ONLY]


def run(*arguments: str) -> str:
    return python("asv_bench/grid.py", *FAST, *arguments)


@pytest.mark.parametrize("gpu", [False, True])
def test_the_cells_that_were_found_by_hand_are_in_it(gpu: bool) -> None:
    """Each is as far from the first row of every table as two steps go."""
    cells = {str(cell) for cell in grid.cells(gpu=gpu)}
    for known in (
        "9 quantiles, all, count, none, held, f4, normal",
        "median, all, count, none, made by tasks, f4, normal",
        "median, axis of 24, count, where, held, f4, normal",
        "median, axis of 24, weights, none, held, f4, normal",
        'median, axis of 8, weights, "linear", none, held, f4, normal',
        "mad, all, count, none, held, f4, normal",
        "256 bins, all, count, none, held, f4, normal",
        "sort, all, count, none, held, f4, normal",
        "box, axis of 8, count, none, held, f4, normal",
        "median, 18 groups, weights, none, held, f4, normal",
    ):
        assert known in cells
    assert any(", staged, " in cell for cell in cells) == gpu


def test_no_cell_fails() -> None:
    """Of a few that have little in common."""
    bench = grid.Bench(4000, gpu=False)
    cells = grid.cells(gpu=False)
    for cell in cells[:: len(cells) // 20]:
        bench.call(cell)()
        peer = bench.peer(cell)
        assert peer is None or peer() is not None


@pytest.mark.slow
def test_it_prints_the_worst_cells_first_and_compares_checkouts() -> None:
    alone = run()
    figures = [
        float(line.split("|")[2].strip("* ")) for line in alone.splitlines() if "| median, " in line
    ]
    assert figures
    n_cells = alone.split("Findings")[0].count("| median, ")
    assert figures[:n_cells] == sorted(figures[:n_cells], reverse=True)
    assert f"{n_cells} of {n_cells} cells were timed" in alone
    both = run("--own-time", "--against", str(ROOT))
    assert f"{n_cells} cells: geometric mean" in both
