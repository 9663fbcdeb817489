"""Lazy answers in daily life: futures and pictures."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import dask.array as da
import graphviz
import numpy as np
import pytest
from distributed import Client

from dask_gpuselect import describe_boxplot, median
from tests.sources import Source

pytestmark = pytest.mark.usefixtures("nothing_kept")


def lazy() -> da.Array:
    return Source((60_000,)).lazy(7000)


def test_futures(cluster_here: Client) -> None:
    x = lazy()
    future = cluster_here.compute(median(x))
    boxes = cluster_here.compute(describe_boxplot(x))
    assert future.result() == np.median(Source((60_000,)).values((slice(None),)))
    assert boxes.result()[0].med == future.result()
    held = cluster_here.persist(describe_boxplot(x))
    assert repr(held.compute()) == repr(boxes.result())


# --- Pictures of the graph ------------------------------------------------------------------------

PICTURES = [
    (
        median,
        {
            "original-array": 1,
            "quantile-cuts": 9,
            "median-bracket": 1,
            "median-candidates": 9,
            "median": 1,
        },
    ),
    (
        lambda x: median(da.stack([x, x]), axis=0),
        {"array": 9, "stack-checked": 18, "checked": 18, "median-column": 9},
    ),
]


@pytest.mark.legacy
@pytest.mark.parametrize(("question", "tasks"), PICTURES)
def test_a_picture_of_the_tasks(
    question: Any, tasks: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine chunks: a circle for each task, named as in a progress display, and a box with the
    number of the chunk for what it gives, and for the source. Graphviz need not be installed."""
    monkeypatch.setattr(graphviz.Digraph, "pipe", lambda self, format: self.source.encode())
    question(lazy()).visualize(filename=str(tmp_path / "graph.dot"), optimize_graph=True)
    drawn = (tmp_path / "graph.dot").read_text()
    nodes = re.findall(r'^\t(\S+) \[label=("[^"]*"|\w+) ([^]]*)', drawn, re.M)
    circles = [label.strip('"') for _, label, style in nodes if "shape=circle" in style]
    boxes = [label.strip('"') for _, label, style in nodes if "shape=circle" not in style]
    assert Counter(circles) == tasks
    assert len(boxes) == len(circles) + 1
    assert all(re.fullmatch(r"[\d, ()]*", label) for label in boxes)
    ends = re.findall(r"^\t(\S+) -> (\S+)$", drawn, re.M)
    assert {end for arrow in ends for end in arrow} == {name for name, *_ in nodes}
