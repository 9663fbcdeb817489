"""Kernels that are compiled before they are needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_gpuselect as gs
from dask_gpuselect import distribution, neighbors, robust
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels import compiling
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from dask_gpuselect.strategies import STRATEGIES
from dask_gpuselect.warm import SUBJECTS, _kernels
from dask_gpuselect.windows import median_filter, rolling
from tests.engine.test_processes import run
from tests.limits import limited

pytestmark = pytest.mark.any_dask
SLOW, OTHERS = pytest.mark.slow, ("f4", "i2", "u4", "m8[s]", "?")

N = 60_000
MANY = np.linspace(0, 1, 60)
Q, METHOD = [0.1, 0.5], "inverted_cdf"  # that bools and dates have too
quantile = partial(gs.quantile, method=METHOD)


class Data:
    """Elements of a dtype: in memory, all in chunks, in columns, as rows; and what goes along."""

    def __init__(self, dtype: str) -> None:
        whole = np.random.default_rng(0).normal(100, 20, N)
        self.plain = whole > 100 if dtype == "?" else whole.astype("i8").astype(dtype)
        self.x = da.from_array(self.plain, chunks=20_000)
        self.table = da.from_array(self.plain.reshape(2000, 30), chunks=(500, 15))
        self.rows = da.from_array(self.plain.reshape(-1, 3), chunks=(5000, 3))
        self.labels = da.from_array(np.arange(N) % 7, chunks=20_000)
        self.weights = (self.labels + 1) * 1.5
        self.keeps = self.labels > 0

    def of_table(self, beside: Any) -> Any:
        return beside.reshape(2000, 30).rechunk(self.table.chunks)


Asked = Callable[[Data], Any]

ELEMENTS: dict[str, Asked] = {
    "quantile": lambda d: quantile(d.x, Q),
    "many": lambda d: quantile(d.x, MANY),
    "where": lambda d: quantile(d.x, Q, where=d.keeps),
    "in memory": lambda d: quantile(d.plain, Q),
    "many in memory": lambda d: quantile(d.plain, MANY),
    "weights": lambda d: quantile(d.x, Q, weights=d.weights),
    "many weights": lambda d: quantile(d.x, MANY, weights=d.weights),
    "order statistic": lambda d: gs.order_statistic(d.x, 100),
    "groups": lambda d: groupby(d.x, d.labels).quantile(Q, method=METHOD),
    "few groups": lambda d: groupby(d.x, d.labels, groups=range(7)).quantile(Q, method=METHOD),
    "many groups": lambda d: groupby(d.x, d.labels * 1000).quantile(Q, method=METHOD),
    "groups in memory": lambda d: groupby(d.plain, np.arange(N) % 7).quantile(Q, method=METHOD),
    "sort": lambda d: gs.sort(d.x),
    "argsort": lambda d: gs.argsort(d.x),
    "sort_by": lambda d: gs.sort_by(d.x, d.labels),
    "radix_sort": lambda d: radix_sort(d.x),
    "digitize": lambda d: gs.digitize(d.x, np.sort(d.plain[:5])),
}
ELEMENTS |= {name: lambda d, name=name: quantile(d.x, Q, strategy=name) for name in STRATEGIES}
LANES: dict[str, Asked] = {
    "axis": lambda d: quantile(d.table, Q, axis=0),
    "axis where": lambda d: quantile(d.table, Q, axis=0, where=d.of_table(d.keeps)),
    "axis weights": lambda d: quantile(d.table, Q, axis=0, weights=d.of_table(d.weights)),
    "windows": lambda d: rolling(d.table, 40, 0).nanquantile(Q, method=METHOD),
    "small windows": lambda d: median_filter(d.table, 3),
    "rows": lambda d: quantile(d.plain.reshape(2, -1), Q, axis=1),
    "axis groups": lambda d: groupby(d.table, np.arange(2000) % 12, axis=0).quantile(
        Q, method=METHOD
    ),
}
NUMBERS: dict[str, Asked] = {
    "median": lambda d: gs.median(d.x),
    "boxes": lambda d: gs.describe_boxplot(d.x).to_dict(),
    "boxes in memory": lambda d: gs.describe_boxplot(d.plain).to_dict(),
    "boxes with weights": lambda d: gs.describe_boxplot(d.x, weights=d.weights).to_dict(),
    "boxes of groups": lambda d: groupby(d.x, d.labels).describe_boxplot().to_dict(),
    "sorted boxes": lambda d: describe_sorted(gs.sort(d.x)),
    "mad": lambda d: robust.mad(d.x),
    "mad of groups": lambda d: groupby(d.x, d.labels).mad(),
    "iqr": lambda d: robust.iqr(d.x),
    "trimmed mean": lambda d: robust.trimmed_mean(d.x),
    "ecdf": lambda d: distribution.ecdf(d.x, 100),
    "bins": lambda d: gs.quantile_bins(d.x, 5),
    "kneighbors": lambda d: neighbors.kneighbors(d.rows, d.plain[:30].reshape(-1, 3), 2),
    "trimmed squares": lambda d: robust.LeastTrimmedSquares().fit(d.rows, d.rows[:, 0]).coef_,
    "median of squares": lambda d: robust.LeastMedianOfSquares().fit(d.rows, d.rows[:, 0]).coef_,
}
LANES_OF_NUMBERS: dict[str, Asked] = {
    "axis boxes": lambda d: gs.describe_boxplot(d.table, axis=0).to_dict(),
    "axis boxes where": lambda d: gs.describe_boxplot(
        d.table, axis=0, where=d.of_table(d.keeps)
    ).to_dict(),
    "axis boxes with weights": lambda d: gs.describe_boxplot(
        d.table, axis=0, weights=d.of_table(d.weights)
    ).to_dict(),
    "axis mad": lambda d: robust.mad(d.table, axis=0),
    "axis iqr": lambda d: robust.iqr(d.table, axis=0),
    "axis trimmed mean": lambda d: robust.trimmed_mean(d.table, axis=0),
    "windows mad": lambda d: rolling(d.table, 4, 0, min_periods=2).nanmad(),
}


class Seen(dict[Hashable, Any]):
    """The kernels of this process, and which of them were asked for."""

    def __init__(self, kernels: dict[Hashable, Any]) -> None:
        super().__init__(kernels)
        self.asked: set[Any] = set()

    def get(self, key: Hashable, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


@pytest.mark.legacy
@pytest.mark.filterwarnings("ignore")  # what is asked is not what matters here
@pytest.mark.parametrize("dtype", ["f8", *(pytest.param(each, marks=SLOW) for each in OTHERS)])
def test_no_other_kernel_is_asked_for(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a function of any subject: after `warm`, nothing is compiled. And which way a call takes
    is decided where it begins, and not by each step of its own."""
    given = Data(dtype)
    decided = set[str]()

    def decide(kind: Any, size: int) -> bool:
        decided.add(f"{kind[0].__module__}.{kind[0].__name__}")
        return True

    monkeypatch.setattr(compiling, "_is_by_kernels", decide)
    is_number = given.plain.dtype.kind in "iuf"
    monkeypatch.setattr(compiling, "_kernels", Seen(compiling._kernels))
    questions = [*ELEMENTS.values(), *(NUMBERS.values() if is_number else [])]
    of_lanes = [*LANES.values(), *(LANES_OF_NUMBERS.values() if is_number else [])]
    for ask in (*questions, *of_lanes):
        dask.compute(ask(given), scheduler="sync")
    with limited(given.table.nbytes // 8):  # in passes
        for ask in of_lanes:
            dask.compute(ask(given), scheduler="sync")
    assert not {each for each in decided if each.startswith("dask_gpuselect.kernels.cpu")}
    warmed = {build.args for build in _kernels([np.dtype(dtype)], SUBJECTS).values()}
    assert isinstance(compiling._kernels, Seen)
    assert len(compiling._kernels.asked) > 20
    # Networks belong to one window each: LLVM makes them in some hundredths of a second.
    asked = {key for key in compiling._kernels.asked if key[0] != "network"}
    assert asked - warmed == set()


@pytest.mark.slow
def test_progress_and_a_second_call(tmp_path: Any) -> None:
    """Everything is there when the call returns; the next process finds it on disk."""
    script = """
import logging
import numpy as np, dask_gpuselect
class Lines(logging.Handler):
    def emit(self, record):
        print(record.getMessage().split(" in ")[0])
log = logging.getLogger("dask_gpuselect")
log.addHandler(Lines())
log.setLevel("INFO")
told = []
dask_gpuselect.warm(["u1"], ["neighbors"], progress=lambda *about: told.append(about))
assert [done for done, *_ in told] == list(range(1, len(told) + 1))
assert {total for _, total, _ in told} == {len(told)}
assert "distances._search of uint8" in {name for *_, name in told}
print(len(told))
"""
    own = {"NUMBA_CACHE_DIR": str(tmp_path)}
    line, total = run(script, **own).splitlines()
    assert line == f"compiled {total} kernel{'s' * (int(total) > 1)} for uint8"
    assert run(script, **own) == f"{total}\n"


def test_overlapping_calls_change_no_setting() -> None:
    def state() -> Any:
        return dict(dask.config.config), compiling.LARGE, compiling.PATIENCE

    before = state()
    threads = [
        threading.Thread(target=lambda: gs.warm(["f8"] * 3, ["neighbors"])) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert state() == before
    for thread in threads:
        thread.join()
    assert state() == before


def test_one_dtype_and_one_subject_need_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A string is a dtype, and not a sequence of them: NumPy knows "f" and "8"."""
    module, chosen = sys.modules["dask_gpuselect.warm"], []
    monkeypatch.setattr(module, "_kernels", lambda *given: chosen.append(given) or {})
    for dtype in ("f8", "float64", np.dtype("f8"), np.float64, float):
        gs.warm(dtype, "neighbors")
        gs.warm([dtype], ["neighbors"])
    assert chosen == [([np.dtype("f8")], ["neighbors"])] * 10
