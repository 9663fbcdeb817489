"""What users see of plans, groups and long calls: text, notebooks, progress and the dashboard."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode
from dask.callbacks import Callback
from dask.utils import key_split

import dask_gpuselect as gs
from dask_gpuselect.groups import groupby

pytestmark = pytest.mark.any_dask


class Cells(HTMLParser):
    """The cells of tables, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("th", "td"):
            self.cells[-1] += data


def stored() -> Any:
    """An array that is not in memory."""
    return da.from_array(np.arange(4000.0).reshape(40, 100), chunks=(10, 50)).map_blocks(abs)


def test_a_plan_is_a_table_in_notebooks() -> None:
    plan = gs.explain(stored(), [0.1, 0.9])
    cells = Cells(plan._repr_html_()).cells
    found = dict(zip(cells[::2], cells[1::2], strict=True))
    assert found == plan.rows
    assert found["plan"] == "bracket"
    assert found["loads of every chunk"] == "one to two loads"
    assert found["chunks in one task"] == "3.91 kiB"
    assert found["loads of all chunks"] == "16 at most"
    assert found["time"].startswith("1 to 2 × ")


def test_a_plan_as_text() -> None:
    lines = gs.explain(stored(), axis=0).table().splitlines()
    assert lines[0].split() == ["plan", "column"]
    assert lines[-1].split(maxsplit=1) == [
        "time",
        "1 × that of x.sum(), where reading takes longest",
    ]
    assert len({re.search("  +", line).end() for line in lines}) == 1  # type: ignore[union-attr]


Q3 = [0.25, 0.5, 0.75]
LABELS = np.arange(400) % 12
EACH = da.from_array(np.arange(30_000) % 5, chunks=100)
LIMITS: dict[str, dict[str, Any]] = {
    "twice": {"keep-limit": 0},
    "narrowed": {"root-limit": "20 kiB"},
    "passes": {"column-limit": 40_000},
    "groups": {"column-limit": 40_000},
}
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "few": ((400,), (100,)),
    "lanes": ((40, 400), (40, 20)),
    "column": ((400, 400), (20, 20)),
    "passes": ((4000, 100), (100, 20)),
    "groups": ((30_000,), (100,)),
    "groups, axis": ((400, 400), (20, 20)),
}


def grouped(x: Any) -> Any:
    return groupby(x, EACH, groups=range(5)) if x.ndim == 1 else groupby(x, LABELS, 0)


@pytest.mark.few(5)
@pytest.mark.legacy
@pytest.mark.parametrize("name", [*SHAPES, "kept", "twice", "narrowed", "counts"])
def test_tasks_are_about_those_of_the_graph(name: str) -> None:
    shape, chunks = SHAPES.get(name, ((40_000,), (100,)))
    dtype = "u1" if name == "counts" else "f8"
    x = da.random.default_rng(0).integers(0, 9, shape, chunks=chunks, dtype="i8").astype(dtype)
    limits = {f"dask_gpuselect.{key}": value for key, value in LIMITS.get(name, {}).items()}
    with dask.config.set(limits):
        if "groups" in name:
            groups = grouped(x)
            plan, answer = groups.explain(Q3), groups.quantile(Q3)
        else:
            axis = None if x.ndim == 1 else 0
            plan, answer = gs.explain(x, Q3, axis=axis), gs.quantile(x, Q3, axis=axis)
        ours = n_ours(answer, x)
    assert ours / 1.1 < plan.tasks < ours * 1.1 + 5
    assert plan.rows["tasks"] == f"about {plan.tasks:,}, and those of the array"


def n_ours(answer: Any, *arrays: Any) -> int:
    """How many tasks the optimized graph of an answer has beside those of the arrays."""
    (answer,) = dask.optimize(answer)
    tasks = dict(answer.__dask_graph__()).items()
    given = {key_split(key) for array in (*arrays, EACH) for key in dict(array.dask)} | {"array"}
    return sum(
        key_split(key) not in given and not isinstance(task, Alias | DataNode)
        for key, task in tasks
    )


@pytest.mark.few(4)
@pytest.mark.legacy
@pytest.mark.parametrize("keep", ["0 B", "1 GiB"])
@pytest.mark.parametrize("root", ["0 B", "2 kiB", "20 kiB"])
@pytest.mark.parametrize(("n", "q"), [(400, Q3), (20, 0.5), (1300, Q3)])
def test_tasks_of_looks_trees_and_rounds(n: int, q: Any, root: str, keep: str) -> None:
    """Where cuts are narrowed on their way to one place, and candidates where they wait."""
    x = da.random.default_rng(0).random(200 * n, chunks=200)
    with dask.config.set({"dask_gpuselect.root-limit": root, "dask_gpuselect.keep-limit": keep}):
        plan, answer = gs.explain(x, q), gs.quantile(x, q)
        assert plan.waiting_bytes > 0
        assert plan.tasks == n_ours(answer, x)


@pytest.mark.few(1)
@pytest.mark.legacy
@pytest.mark.parametrize("keep", ["0 B", "1 GiB"])
@pytest.mark.parametrize("root", ["2 kiB", "20 kiB", "200 kiB", "1 GiB"])
@pytest.mark.parametrize("column", ["1 kiB", "8 kiB"])
@pytest.mark.parametrize("n_groups", [1, 5, 100])
def test_tasks_of_groups_in_several_places(
    n_groups: int, column: str, root: str, keep: str
) -> None:
    x = da.random.default_rng(0).random(60_000, chunks=200)
    labels = da.from_array(np.arange(60_000) % n_groups, chunks=200)
    limits = {"root-limit": root, "keep-limit": keep, "column-limit": column}
    with dask.config.set({f"dask_gpuselect.{name}": value for name, value in limits.items()}):
        groups = groupby(x, labels, groups=range(n_groups))
        plan, answer = groups.explain(Q3), groups.quantile(Q3)
        assert plan.name == "groups"
        assert plan.tasks == n_ours(answer, x, labels)


def test_advice_is_in_the_table() -> None:
    stack = da.ones((3650, 2000, 2000), chunks=(365, 250, 250), dtype="f4")
    with dask.config.set({"dask_gpuselect.column-limit": "200 MiB"}):
        plan = gs.explain(stack, axis=0)
    assert plan.loads == 2
    assert plan.rows["advice"] == plan.advice  # type: ignore[attr-defined]
    assert plan.rows["time"].startswith("2 × ")


def test_no_time_is_told_where_loads_take_none() -> None:
    assert "time" not in gs.explain(da.ones(10**7, chunks=10**6).persist()).rows


def test_sizes_that_are_unknown() -> None:
    x = stored().ravel()
    plan = gs.explain(x[x > 5])
    assert plan.rows["chunks in one task"] == "an unknown number of bytes"


@pytest.mark.parametrize("is_lazy", [True, False])
def test_groups_in_notebooks(is_lazy: bool) -> None:
    x = stored() if is_lazy else stored().compute()
    labels = np.array([f"<{i}>" for i in np.arange(40) % 12])
    html = groupby(x, labels, axis=0)._repr_html_()
    cells = Cells(html.partition("</table>")[0] + "</table>").cells
    assert cells[:4] == ["groups", "12", "axes", "0"]
    assert cells[5].startswith("<0>, <10>, <11>, <1>, ")
    assert cells[5].endswith(", ...")


def test_groups_of_lazy_labels_in_notebooks() -> None:
    labels = da.from_array(np.arange(40) % 3, chunks=10)
    assert "unknown" in groupby(stored(), labels, axis=0)._repr_html_()


def test_boxes_in_notebooks() -> None:
    boxes = gs.describe_boxplot({"a<b": stored()})
    assert "a&lt;b" in boxes._repr_html_()
    assert "a<b" in Cells(boxes.compute()._repr_html_()).cells


# --------------------------------------------------------------------------------------------------
# Progress
# --------------------------------------------------------------------------------------------------


class Counted(Callback):  # type: ignore[misc]
    """As `tqdm.dask.TqdmCallback` counts: of how many tasks how many have been done."""

    def __init__(self) -> None:
        super().__init__(start_state=self.begin, posttask=self.step)
        self.n_tasks = self.n_done = 0

    def begin(self, _: Any, state: Any) -> None:
        self.n_tasks += sum(len(state[kind]) for kind in ("ready", "waiting"))

    def step(self, *_: Any) -> None:
        self.n_done += 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: gs.median(x).compute(),
        lambda x: gs.describe_boxplot(x).boxes,
        lambda x: gs.distribution.ecdf(x).compute(),
        lambda x: groupby(x, np.arange(40) % 3, axis=0).median().compute(),
    ],
)
def test_callbacks_of_dask_see_the_tasks(ask: Any) -> None:
    with Counted() as progress:
        ask(stored())
    assert progress.n_done == progress.n_tasks > 8


QUESTIONS = {
    "quantile": lambda x: gs.quantile(x, [0.1, 0.9]),
    "median": lambda x: gs.median(x, axis=0),
    "sort": lambda x: gs.sort(x.ravel()),
    "boxplot": lambda x: gs.describe_boxplot(x),
    "mad": lambda x: gs.robust.mad(x),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_names_on_the_dashboard_are_words(name: str) -> None:
    """Those by which the dashboard groups tasks; the first word is that of the function."""
    found = {key_split(key) for key in QUESTIONS[name](stored()).__dask_graph__()}
    assert all(re.fullmatch("[a-z]+([-_][a-z]+)*", each) for each in found), found
    assert any(each.split("-")[0] == name for each in found), found
