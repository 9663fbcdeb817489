"""What users see of plans, groups and long calls: text, notebooks, progress and the dashboard."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
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
    result = dict(zip(cells[::2], cells[1::2], strict=True))
    assert result == plan.rows
    assert result["plan"] == "bracket"
    assert result["reads of each chunk"] == "once or twice"
    assert result["chunks per task"] == "3.91 kiB"
    assert result["reads of all chunks"] == "16 at most"
    assert result["time"].startswith("about 1 to 2 × ")


def test_a_plan_at_the_prompt() -> None:
    for plan in (gs.explain(stored()), gs.explain(stored(), axis=0)):
        assert repr(plan) == f"<plan {plan}>"
        assert plan.reads == plan.loads == {"bracket": 2, "column": 1}[plan.name]


def test_a_plan_as_text() -> None:
    lines = gs.explain(stored(), axis=0).table().splitlines()
    assert lines[0].split() == ["plan", "column"]
    assert lines[-1].split(maxsplit=1) == [
        "time",
        "about 1 × x.sum(), if reading dominates",
    ]
    assert len({re.search("  +", line).end() for line in lines}) == 1  # type: ignore[union-attr]


def test_advice_is_in_the_table() -> None:
    stack = da.ones((3650, 2000, 2000), chunks=(365, 250, 250), dtype="f4")
    with dask.config.set({"dask_gpuselect.column-limit": "200 MiB"}):
        plan = gs.explain(stack, axis=0)
    assert plan.loads == 2
    assert plan.rows["advice"] == plan.advice
    assert plan.rows["time"].startswith("about 2 × ")
    plan = gs.explain(stack)  # all plans have these
    assert (plan.advice, plan.disk_bytes) == ("", 0)


def test_no_time_is_told_where_loads_take_none() -> None:
    assert "time" not in gs.explain(da.ones(10**7, chunks=10**6).persist()).rows


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
    """As `tqdm.dask.TqdmCallback` counts: of how many tasks how many have been done."""
    n_tasks: list[int] = []
    done: list[Any] = []

    def begin(_: Any, state: Any) -> None:
        n_tasks.append(len(state["ready"]) + len(state["waiting"]))

    with Callback(start_state=begin, posttask=lambda key, *_: done.append(key)):
        ask(stored())
    assert len(done) == sum(n_tasks) > 8


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
    result = {key_split(key) for key in QUESTIONS[name](stored()).__dask_graph__()}
    assert all(re.fullmatch("[a-z]+([-_][a-z]+)*", each) for each in result), result
    assert any(each.split("-")[0] == name for each in result), result
