"""Box plots of lanes that a device finishes: the text of the kernels on the host, and all of it on
a device."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot
from dask_gpuselect.boxplot.questions import LaneBoxQuestion
from dask_gpuselect.boxplot.tables import COLUMNS, Boxes
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from tests.backends import CUPY, kernel_module
from tests.cuda_on_host import ASM, compiled, pointer
from tests.data import FLOATS, INTEGERS, MISSING, make

RULES = {
    "usual": Rule(1.5, False, 1000, "linear"),
    "few fliers": Rule(0.5, True, 2, "hazen"),
    "none": Rule(1.5, False, 0, "lower"),
    "percentiles": Rule((0.05, 0.9), False, 3, "inverted_cdf"),
}
BOXES = (
    "const Stack* stack, const Wanted* wanted, const Drawn* drawn, const Columns* columns, "
    "const Fliers* fliers, LaneSums* sums, Told* told"
)
FINISH = (
    "const LaneSums* sums, i64 n_lanes, u32 n, int omits_missing, const Columns* columns, "
    "Told* told"
)
START = "run_block([=] {{ {}({}); }});"
EACH_TILE = "for (blockIdx.x = 0; blockIdx.x * LANES < stack->n_lanes; ++blockIdx.x) "
RECORDS = ("stack", "wanted", "drawn", "columns", "fliers")


def rows_of(name: str, dtype: str, n_lanes: int, n: int) -> NDArray[Any]:
    """Lanes of some data, each of which begins elsewhere in it."""
    return make(name, dtype, n_lanes * n).reshape(n_lanes, n)


def expected(rows: NDArray[Any], rule: Rule, *, omits_nan: bool) -> Boxes:
    question = LaneBoxQuestion.of(rule, rows.dtype, omits_nan=omits_nan)
    with np.errstate(all="ignore"):
        about = ([rows], rows.dtype, (1,), question, rule.fences, rule.max_fliers)
        q, ends = reference.answers_and_ends(*about)
        return question.boxes(q, ends, rows.shape, rows.dtype, AnswerAxes(2, (1,), False, True))


def assert_same(found: Boxes, wanted: Boxes) -> None:
    for name in (*COLUMNS, "fliers"):
        mine, theirs = getattr(found, name), getattr(wanted, name)
        assert isinstance(mine, np.ndarray)
        assert mine.dtype == theirs.dtype, name
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


class OnHost:
    """The kernels for lanes of one length and layout."""

    def __init__(self, folder: Path, dtype: str, n: int, *, side_by_side: bool) -> None:
        kind = np.dtype(dtype)
        how: dict[str, Any] = {"side_by_side": side_by_side, "most_runs": 1}
        selecting = source.lane_kernel(kind, n, 227 << 10, **how)
        assert selecting is not None
        kernel = source.box_kernel(kind, selecting)
        finish = kernel._replace(name="finish_of_lanes", threads=32)
        self.lanes = kernel.lanes
        self.runs = []
        for file, declared, made, loop in (
            ("lane_boxes.cu", BOXES, kernel, EACH_TILE),
            ("lane_finish.cu", FINISH, finish, ""),
        ):
            names = [each.split()[-1].lstrip("*") for each in declared.split(",")]
            passed = ", ".join(("*" if name in RECORDS else "") + name for name in names)
            wrapper = (
                f'extern "C" void run({declared}) {{ {loop}{START.format(made.name, passed)} }}'
            )
            (place := folder / made.name).mkdir()
            more = dict(made.defined) | {"LISTED": 0}
            how = {"header": "lanes_on_host.hpp", "replaced": ASM, "threads": made.threads}
            self.runs.append(compiled(place, file, dtype, more, [wrapper], **how).run)
        self.group = dict(kernel.defined)["GROUP"]

    def boxes(self, rows: NDArray[Any], rule: Rule, *, omits_nan: bool) -> tuple[Boxes | None, int]:
        """The boxes, and how many means and deviations are unsure: these are the expected ones.
        None for integers beyond 2**53 that are to be mixed."""
        n_lanes, n = rows.shape
        question = LaneBoxQuestion.of(rule, rows.dtype, omits_nan=omits_nan)
        stack = np.zeros((), source.STACK)
        parts = np.array_split(rows, 2, axis=1) if n > 40 and self._is_behind(rows) else [rows]
        stop = 0
        for told, part in zip(stack["parts"], parts, strict=False):
            stop += part.shape[1]
            told["data"], told["stop"] = part.ctypes.data, stop
            told["outer"], told["row"] = (stride // rows.itemsize for stride in part.strides)
            told["inner"] = told["outer"]
        behind = self._is_behind(rows)
        stack["n_parts"], stack["n"], stack["n_lanes"], stack["one"] = len(parts), n, n_lanes, 1
        stack["n_inner"] = 1 if behind else n_lanes
        first_v = 0 if rows.dtype.kind == "f" else n
        counts = np.arange(first_v, n + 1)
        wanted_of = question.wanted_of_lanes(np.maximum(counts, 1))
        shape = (question.n_answers, len(counts))
        lower, upper, weight = (np.broadcast_to(each, shape).T for each in wanted_of)
        ranks = np.ascontiguousarray(np.stack([lower, upper], axis=-1), np.int32)
        weights = np.ascontiguousarray(weight)
        wanted = np.zeros((), source.WANTED)
        wanted["ranks"], wanted["weights"] = ranks.ctypes.data, weights.ctypes.data
        wanted["first_v"], wanted["n_answers"] = first_v, question.n_answers
        wanted["mixes"], wanted["skips_missing"] = question.mixes, True
        drawn = np.zeros((), source.DRAWN)
        drawn["by_quantiles"] = isinstance(rule.whis, tuple)
        drawn["whis"] = 0.0 if isinstance(rule.whis, tuple) else rule.whis
        drawn["autorange"], drawn["omits_missing"] = rule.autorange, omits_nan
        drawn["most_fliers"] = rule.max_fliers
        types = {"q": "f8", "mean": "f8", "deviation": "f8", "is_unsure": "u1"}
        types |= dict.fromkeys(("n_valid", "n_low", "n_high"), "u4")
        columns = {
            name: np.zeros(
                (question.n_answers, n_lanes) if name == "q" else n_lanes,
                types.get(name, rows.dtype),
            )
            for name in source.BOX_COLUMNS
        }
        where, told = np.zeros((), source.BOX_TABLE), np.zeros((), source.TOLD)
        for name, column in columns.items():
            where[name] = column.ctypes.data
        n_starts = n_lanes if self.group > 32 else -(-n_lanes // self.lanes)
        starts, counts = np.zeros((2, n_starts), np.int64)
        fliers, places = np.zeros(rows.size, rows.dtype), np.zeros((), source.FLIERS)
        places["elements"], places["room"] = fliers.ctypes.data, len(fliers)
        places["starts"], places["counts"] = starts.ctypes.data, counts.ctypes.data
        sums = np.zeros(n_lanes * source.LANE_SUMS, np.uint8)
        box, finish = self.runs
        box(*map(pointer, (stack, wanted, drawn, where, places, sums, told)))
        if told["too_wide"]:
            return None, 0
        if self.group > 1:
            numbers = (ctypes.c_int64(n_lanes), ctypes.c_uint32(n), ctypes.c_int(omits_nan))
            finish(pointer(sums), *numbers, pointer(where), pointer(told))
        kept = sum(
            np.minimum(columns[name].astype(np.int64), rule.max_fliers)
            for name in ("n_low", "n_high")
        )
        assert kept.sum() == counts.sum() == told["n_fliers"]
        fliers = fliers[: int(told["n_fliers"])]
        unsure = columns.pop("is_unsure") > 0
        assert unsure.sum() == told["n_unsure"]
        other = expected(rows, rule, omits_nan=omits_nan)
        columns["mean"][unsure] = other.mean[unsure]
        columns["deviation"][unsure] = other.std[unsure]
        places = {"fliers": fliers, "starts": starts, "counts": counts}
        found = LaneBoxes(n=n, **columns, **places, most_fliers=rule.max_fliers)
        return Boxes.finished(found, (n_lanes,), rows.dtype), int(unsure.sum())

    @staticmethod
    def _is_behind(rows: NDArray[Any]) -> bool:
        return rows.strides[1] == rows.itemsize


# By a thread, by parts of a warp, by two warps.
CASES = [
    ("f8", 24, True),
    ("f4", 7, False),
    ("f8", 365, True),
    ("f4", 365, False),
    ("i8", 24, False),
    ("u8", 100, True),
    ("i4", 100, False),
    ("i2", 9, True),
    ("u1", 300, False),
    ("f4", 3650, True),
    ("f8", 2000, False),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(("dtype", "n", "side_by_side"), CASES)
@pytest.mark.slow
def test_the_text_on_the_host(dtype: str, n: int, side_by_side: bool, tmp_path: Path) -> None:
    kernels = OnHost(tmp_path, dtype, n, side_by_side=side_by_side)
    names = [*FLOATS, *MISSING] if dtype[0] == "f" else list(INTEGERS)
    if n > 1000:  # of many threads, which take turns
        names = [name for name in names if name in ("normal", "infinite", "some nan", "zipf")]
    n_lanes = 301 if n < 50 else 33 if n < 400 else 3
    for i, name in enumerate(names):
        rows = rows_of(name, dtype, n_lanes, n)
        if side_by_side:
            rows = np.asfortranarray(rows)
        for j, rule in enumerate(RULES.values()):
            if n > 100 and j != i % len(RULES):
                continue
            for omits_nan in (True, False):
                found, n_unsure = kernels.boxes(rows, rule, omits_nan=omits_nan)
                if found is None:
                    assert dtype in ("i8", "u8")
                    continue
                assert_same(found, expected(rows, rule, omits_nan=omits_nan))
                if name in ("normal", "tied", "constant", "outliers", "few"):
                    assert n_unsure == 0 or name == "outliers"


MANY_FLIERS = {
    "both sides": Rule(0.0, False, 1 << 20, "linear"),
    "a seventh": Rule(1.5, False, 1 << 20, "linear"),
    "a few of them": Rule(0.5, False, 5, "linear"),
}


def rows_of_fliers(n_lanes: int, n: int) -> NDArray[np.float64]:
    """Lanes many of whose elements are beyond the fences of `MANY_FLIERS`."""
    i = np.arange(n)
    skewed = np.exp(3 * make("normal", "f8", n_lanes * n)).reshape(n_lanes, n)
    rows = [*skewed, -skewed[0], np.sort(skewed[0]), np.floor(skewed[0])]
    # Every 8th to 64th: those of one thread.
    rows += [np.where(i % step == step // 2, 1e6 + i, i % 7) for step in (8, 16, 32, 64)]
    rows += [np.where(i % 9 == 8, np.inf, -i), np.where(i % 9 == 8, -np.inf, i % 2)]
    rows += [np.where(i < n // 5, np.nan, skewed[0]), np.where(i == 0, 1.0, np.nan)]
    return np.array(rows)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("dtype", "n", "side_by_side"),
    [("f4", 64, True), ("f4", 365, True), ("f8", 366, False), ("f4", 3650, False)],
)
@pytest.mark.slow
def test_many_fliers_on_the_host(dtype: str, n: int, side_by_side: bool, tmp_path: Path) -> None:
    kernels = OnHost(tmp_path, dtype, n, side_by_side=side_by_side)
    rows = rows_of_fliers(3, n).astype(dtype)
    if side_by_side:
        rows = np.asfortranarray(rows)
    for rule in MANY_FLIERS.values():
        found, _ = kernels.boxes(rows, rule, omits_nan=True)
        assert found is not None
        wanted = expected(rows, rule, omits_nan=True)
        assert len(wanted.fliers) > len(rows) * min(rule.max_fliers // 2, n // 20)
        assert_same(found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [31, 33, 47, 48, 49, 63, 65, 365, 1023, 1025, 3650])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_many_fliers(dtype: str, n: int) -> None:
    import cupy

    box_lanes = kernel_module("cuda", "lanes").box_lanes
    rows = rows_of_fliers(8, n).astype(dtype)
    for chunk, axis in ((cupy.asarray(rows), 1), (cupy.asarray(np.ascontiguousarray(rows.T)), 0)):
        for rule in MANY_FLIERS.values():
            question = LaneBoxQuestion.of(rule, rows.dtype, omits_nan=True)
            found = box_lanes([chunk], rows.dtype, (axis,), question, rule, omits_nan=True)
            boxes = Boxes.finished(found, (len(rows),), rows.dtype)
            assert_same(boxes, expected(rows, rule, omits_nan=True))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2, 7, 24, 32, 33, 64, 100, 365, 1000, 3650, 20_000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "i4", "u8", "i8"])
def test_as_the_reference(dtype: str, n: int) -> None:
    import cupy

    names = [*FLOATS, *MISSING] if dtype[0] == "f" else list(INTEGERS)
    box_lanes = kernel_module("cuda", "lanes").box_lanes
    for i, name in enumerate(names):
        rows = rows_of(name, dtype, 400 if n <= 400 else 7, n)
        device = cupy.asarray(rows)
        layouts = [
            ([device], (1,)),
            ([cupy.ascontiguousarray(device.T)], (0,)),
            ([device[:, : n // 3], device[:, n // 3 :]], (1,)),
        ]
        for j, rule in enumerate(RULES.values()):
            if n > 32 and j != i % len(RULES):
                continue
            for omits_nan in (True, False):
                question = LaneBoxQuestion.of(rule, rows.dtype, omits_nan=omits_nan)
                wanted = expected(rows, rule, omits_nan=omits_nan)
                for chunks, axes in layouts:
                    how = {"omits_nan": omits_nan}
                    found = box_lanes(chunks, rows.dtype, axes, question, rule, **how)
                    if found is None:  # integers beyond 2**53
                        assert dtype in ("i8", "u8")
                        continue
                    boxes = Boxes.finished(found, (len(rows),), rows.dtype)
                    assert_same(boxes, wanted)


@pytest.mark.gpu
def test_columns_stay_on_the_device_until_someone_looks() -> None:
    import cupy

    rows = rows_of("some nan", "f4", 500, 24)
    boxplot = describe_boxplot(cupy.asarray(rows), axis=1)
    (table,) = boxplot.tables
    assert table.shape == boxplot.shape == (500,)
    assert len(boxplot) == 500
    waiting = set(COLUMNS) - set(vars(table))
    assert waiting == set(COLUMNS)
    other = describe_boxplot(rows, axis=1)
    assert table.med.tolist() == other.tables[0].med.tolist()
    assert "med" in vars(table)
    assert "q1" not in vars(table)
    assert_same(table, other.tables[0])
    mine, theirs = boxplot.to_dict(), other.to_dict()
    for name in set(theirs) - {"fliers", "label"}:
        np.testing.assert_array_equal(mine[name], theirs[name])


@pytest.mark.gpu
def test_boxes_of_lazy_chunks_come_to_the_host() -> None:
    rows = rows_of("lognormal", "f4", 500, 60)
    lazy = CUPY.lazy(rows, (200, 25))
    (found,) = describe_boxplot(lazy, axis=1).compute().tables
    (wanted,) = describe_boxplot(rows, axis=1).tables
    assert_same(found, wanted)
