"""Box plots of lanes that a device finishes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, median
from dask_gpuselect.boxplot.questions import LaneBoxQuestion
from dask_gpuselect.boxplot.tables import COLUMNS, Boxes
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.maths.boxes import Rule
from tests.backends import CUPY, kernel_module
from tests.data import FLOATS, INTEGERS, MISSING, make, uniform
from tests.kernels.reports import assert_same

RULES = {
    "usual": Rule(1.5, False, 1000, "linear"),
    "few fliers": Rule(0.5, True, 2, "hazen"),
    "none": Rule(1.5, False, 0, "lower"),
    "percentiles": Rule((0.05, 0.9), False, 3, "inverted_cdf"),
}


def rows_of(name: str, dtype: str, n_lanes: int, n: int) -> NDArray[Any]:
    """Lanes of some data, each of which begins elsewhere in it."""
    return make(name, dtype, n_lanes * n).reshape(n_lanes, n)


def expected(rows: NDArray[Any], rule: Rule, *, omits_nan: bool) -> Boxes:
    question = LaneBoxQuestion.of(rule, rows.dtype, omits_nan=omits_nan)
    with np.errstate(all="ignore"):
        about = ([rows], rows.dtype, (1,), question, rule.fences, rule.max_fliers)
        q, ends = reference.answers_and_ends(*about)
        return question.boxes(q, ends, rows.shape, rows.dtype, AnswerAxes(2, (1,), False, True))


NAMES = (*COLUMNS, "fliers")


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


def assert_boxes(
    rows: NDArray[Any], layouts: Sequence[tuple[Any, int]], rule: Rule, *, omits_nan: bool
) -> None:
    """Assert that a device answers as the reference, wherever its chunks lie."""
    question = LaneBoxQuestion.of(rule, rows.dtype, omits_nan=omits_nan)
    wanted = expected(rows, rule, omits_nan=omits_nan)
    for chunks, axis in layouts:
        found = kernel_module("cuda", "lanes").box_lanes(
            chunks, rows.dtype, (axis,), question, rule, omits_nan=omits_nan
        )
        if found is None:  # integers beyond 2**53
            assert rows.dtype.char in "lLqQ"
            continue
        assert_same(Boxes.finished(found, (len(rows),), rows.dtype), wanted, NAMES)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [31, 33, 47, 48, 49, 63, 65, 365, 1023, 1025, 3650])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_many_fliers(dtype: str, n: int) -> None:
    rows = rows_of_fliers(8, n).astype(dtype)
    device = CUPY.asarray(rows)
    for rule in MANY_FLIERS.values():
        layouts = [([device], 1), ([CUPY.xp.ascontiguousarray(device.T)], 0)]
        assert_boxes(rows, layouts, rule, omits_nan=True)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2, 7, 24, 32, 33, 64, 100, 365, 1000, 3650, 20_000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "i4", "u8", "i8"])
def test_as_the_reference(dtype: str, n: int) -> None:
    names = [*FLOATS, *MISSING] if dtype[0] == "f" else list(INTEGERS)
    for i, name in enumerate(names):
        rows = rows_of(name, dtype, 400 if n <= 400 else 7, n)
        device = CUPY.asarray(rows)
        layouts = [
            ([device], 1),
            ([CUPY.xp.ascontiguousarray(device.T)], 0),
            ([device[:, : n // 3], device[:, n // 3 :]], 1),
        ]
        rules = list(RULES.values())
        for rule in rules if n <= 32 else [rules[i % len(rules)]]:
            for omits_nan in (True, False):
                assert_boxes(rows, layouts, rule, omits_nan=omits_nan)


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
    assert_same(table, other.tables[0], NAMES)
    mine, theirs = boxplot.to_dict(), other.to_dict()
    for name in set(theirs) - {"fliers", "label"}:
        np.testing.assert_array_equal(mine[name], theirs[name])


@pytest.mark.gpu
def test_boxes_of_lazy_chunks_come_to_the_host() -> None:
    rows = rows_of("lognormal", "f4", 500, 60)
    lazy = CUPY.lazy(rows, (200, 25))
    (found,) = describe_boxplot(lazy, axis=1).compute().tables
    (wanted,) = describe_boxplot(rows, axis=1).tables
    assert_same(found, wanted, NAMES)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "i4", "i8"])
@pytest.mark.parametrize("n", [24, 365])
def test_masked_lanes(dtype: str, n: int) -> None:
    names = ["normal", "some nan", "lognormal"] if dtype[0] == "f" else [*INTEGERS][:2]
    device = kernel_module("cuda", "lanes")
    for name, is_any_empty, axis in product(names, (False, True), (0, 1)):
        rows = rows_of(name, dtype, 60, n)
        mask = uniform(rows.size).reshape(rows.shape) > 0.2
        mask[3] = not is_any_empty
        arrays = (rows, mask) if axis == 1 else (rows.T.copy(), mask.T.copy())
        values, where = map(CUPY.asarray, arrays)
        for policy in ("omit", "propagate"):
            asked = {"axis": axis, "nan_policy": policy}
            if dtype == "i8" and is_any_empty:  # their table has objects, with NaN among integers
                continue
            (found,) = describe_boxplot(values, where=where, **asked).tables
            (wanted,) = describe_boxplot(arrays[0], where=arrays[1], **asked).tables
            assert_same(found, wanted, NAMES)
        chunk = Accompanied(values, keeps=where)
        rule, kind = RULES["usual"], np.dtype(dtype)
        question = LaneBoxQuestion.of(rule, kind, omits_nan=True)
        how = {"omits_nan": True}
        made = device.box_lanes([chunk], kind, (axis,), question, rule, **how)
        # The host answers integers of eight bytes, and of which a lane has none.
        assert (made is None) == (dtype == "i8" or (dtype[0] != "f" and is_any_empty))


@pytest.mark.gpu
def test_a_long_masked_lane_is_selected_by_the_whole_device() -> None:
    from dask_gpuselect.kernels.cuda import launch

    values = make("normal", "f4", 1 << 16)
    mask = np.arange(values.size) % 7 != 3
    started, prepared = [], launch._prepared

    def noted(*args: Any) -> Any:
        started.append(args[1])
        return prepared(*args)

    launch._prepared = noted
    try:
        found = median(CUPY.asarray(values)[None], axis=1, where=CUPY.asarray(mask)[None])
    finally:
        launch._prepared = prepared
    assert started == ["only_lane"]
    assert found.get().tolist() == [np.median(values[mask])]
