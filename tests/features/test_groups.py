"""`groupby`: each group's answer is that of its elements alone, in the loads of an answer without
groups."""

from __future__ import annotations

import datetime
import pickle
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from dask_gpuselect.groups import groupby
from tests.data import normal, uniform
from tests.limits import limited
from tests.refusals import Refusal, each_of

pytestmark = pytest.mark.any_dask  # the graphs are those of quantiles along axes

SHAPE = (60, 5, 6)
LABELS = np.floor(uniform(60) * 4).astype(int)
A = np.arange(24.0).reshape(6, 4)


def data() -> NDArray[Any]:
    return 100 * normal(int(np.prod(SHAPE))).reshape(SHAPE)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_boxes_have_the_names_of_groups(axis: Any) -> None:
    a, names = A[:4, :4], ["a", "b", "b", "a"]
    by = names if isinstance(axis, int) else [names] * 4
    for labels in (np.array(by), np.array(by, object), da.from_array(np.array(by), chunks=3)):
        lazy = groupby(da.from_array(a, chunks=3), labels, axis).describe_boxplot()
        boxes = lazy.compute()
        if axis == 0:
            assert boxes.labels == tuple(f"{name}[{i}]" for name in "ab" for i in range(4))
        elif axis == 1:
            assert boxes.labels == tuple(f"{name}[{i}]" for i in range(4) for name in "ab")
        else:
            assert boxes.labels == ("a", "b")
            assert boxes["b"].med == np.median(a[np.array(by) == "b"])


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_names_of_several_kinds_can_be_handed_back(unit: str) -> None:
    days = np.array(["2020-01-01", "2020-01-02"] * 3, f"M8[{unit}]")
    by = (days, np.array([0, 0, 0, 1, 1, 1]))
    x = da.arange(6, chunks=2)
    result = groupby(x, by)
    assert [day for day, _ in result.groups] == [days[0], days[0], days[1], days[1]]
    again = groupby(x, by, groups=result.groups)
    np.testing.assert_array_equal(again.median().compute(), [1, 4, 1, 4])


def test_dates_of_python_and_pandas_name_groups() -> None:
    hours = np.array(["2020-01-01T00", "2020-01-01T12", "2020-01-02T00"], "M8[h]")
    wanted = [datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 1, 12)]
    assert groupby(np.arange(3), hours, groups=wanted).count().tolist() == [1, 1]
    wanted = [pd.Timestamp(2020, 1, 1, 12), pd.Timestamp(2020, 1, 1, 12, 1)]
    assert groupby(np.arange(3), hours, groups=wanted).count().tolist() == [1, 0]
    spans = groupby(np.arange(3), hours - hours[0], groups=[datetime.timedelta(hours=12)])
    assert spans.count().tolist() == [1]


def masked_labels(is_lazy: bool) -> Any:
    mask = np.zeros(len(LABELS), bool)
    mask[::3] = True
    labels = np.ma.MaskedArray(LABELS, mask)
    return da.from_array(labels, chunks=7) if is_lazy else labels


@pytest.mark.parametrize("groups", [None, [0, 1, 2, 3]])
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("is_one_of_two", [False, True])
def test_masked_labels_are_in_no_group(
    is_one_of_two: bool, is_lazy: bool, axis: int | None, groups: Any
) -> None:
    by = masked_labels(is_lazy)
    if is_one_of_two:
        by = (by, np.zeros(len(LABELS), int))
        groups = groups and [(group, 0) for group in groups]
    a = data() if axis == 0 else data()[:, 0, 0]
    left = np.where(np.arange(len(LABELS)) % 3 == 0, -1, LABELS)
    wanted = [np.median(a[left == group], axis=0) for group in range(4)]
    actual = groupby(da.from_array(a, chunks=20), by, axis, groups=groups).median()
    np.testing.assert_array_equal(actual.compute(), wanted)


def test_nothing_is_under_the_mask() -> None:
    """No group is made of what only masked elements are labelled with."""
    labels = np.ma.MaskedArray([7, 1, 1], [True, False, False])
    assert groupby(np.arange(3), labels).groups.tolist() == [1]


def test_windows_may_be_slices() -> None:
    result = groupby(A, {"a": slice(2), "b": slice(-2, None)}, 0).median()
    np.testing.assert_array_equal(result, [A[:2].mean(axis=0), A[-2:].mean(axis=0)])


def test_zones_of_a_map() -> None:
    """Labels of two axes, of each date; lazy ones too, of other chunks."""
    a, zones = data(), np.floor(uniform(30) * 3).astype(int).reshape(5, 6)
    x = da.from_array(a, chunks=(17, 3, 4))
    wanted = np.stack([np.median(a[:, zones == each], axis=1) for each in range(3)], axis=1)
    for by in (zones, zones[None], da.from_array(zones, chunks=(2, 6))):
        for axes in ((1, 2), (-1, 1)):
            actual = groupby(x, by, axes, groups=[0, 1, 2]).median()
            assert actual.shape == (60, 3)
            np.testing.assert_array_equal(actual.compute(), wanted)
    for_all_dates = [np.median(a[:, zones == each]) for each in range(3)]
    np.testing.assert_array_equal(groupby(x, zones).median().compute(), for_all_dates)


def test_some_windows_by_indices_from_the_end() -> None:
    a = data()
    windows = {f"day {i}": [(i + j) % 60 for j in range(-2, 3)] for i in range(0, 60, 7)}
    few = groupby(a, windows, 0, groups=["day 7", "day 0"])
    np.testing.assert_array_equal(few.median()[1], np.median(a[windows["day 0"]], axis=0))
    negative = groupby(a, {"end": [-1, -2, -1], "none": ()}, 0)
    assert negative.count()[:, 0, 0].tolist() == [2, 0]


# --- Loads ----------------------------------------------------------------------------------------


def test_passes_count_every_group_as_a_lane() -> None:
    """What parts report of all groups fits the limit: months of thirty years of a map."""
    x = da.zeros((10957, 180, 360), chunks=(365, 180, 360), dtype="f4")
    for n_groups in (1, 4, 12, 40):
        grouped = groupby(x, np.arange(10957) % n_groups, 0)
        with limited("1 GiB"):
            plan = grouped.explain([0.1, 0.9])
            assert max(plan.task_bytes, plan.gathered_bytes) <= 2**30
    windows = {day: np.arange(day, day + 300) for day in range(0, 10_000, 100)}
    with dask.config.set({"dask_gpuselect.scratch-directory": False}):
        assert groupby(x, windows, 0).explain().name == "column"


def test_tasks_do_not_carry_the_labels() -> None:
    """A graph is as large as one of quantiles, but for what makes the labels."""
    x = da.from_array(normal(40_000).reshape(-1, 4), chunks=(500, 1))
    labels = np.arange(10_000) % 3
    for by in (labels, da.from_array(labels, chunks=1000)):
        result = groupby(x, by, 0, groups=[0, 1, 2]).median()
        tasks = [
            task for key, task in result.dask.items() if str(key[0]).startswith("median-column")
        ]
        assert len(tasks) == 4
        assert max(len(pickle.dumps(task)) for task in tasks) < 20_000


# --- What is refused ------------------------------------------------------------------------------

ONE = [1] * 6
TWO = (ONE, ONE)
DAYS = np.full(6, "2025-01-31", "M8[D]")
SHAPES = r"\(3,\): pass labels of shape \(6,\), the size of the data along axis 0, or "
TUPLES = "tuples of 2 labels, one of each kind, not "
OF_DAYS = r'must be dates, .* not strings: .*groups=\[numpy.datetime64\("2025-01-31"\)\]'
NO_ORDER = "without an order, of the types int, str: convert"
OBJECTS = "must be numbers, .* not objects"

# The labels, the axis, the class of the error, its message, and the groups.
BAD: list[tuple[Any, ...]] = [
    ([1, 2, 3], 0, ValueError, f"by has shape {SHAPES}"),
    (ONE, 1, ValueError, r"shape \(4,\), .* axis 1, or"),
    ("month", 0, ValueError, 'pass the labels, such as df."month".'),
    (ONE, 0, ValueError, "distinct, and .*1", [1, 1]),
    (np.arange(6) / 4, 0, ValueError, "floats with fractions"),
    ([1j] * 6, 0, TypeError, "labels must be .* not complex"),
    ([None] * 6, 0, ValueError, "no groups: every"),
    (np.array([1, "a"] * 3, object), 0, TypeError, NO_ORDER),
    (np.array([1, 0.5] * 3, object), 0, ValueError, "floats with fractions"),
    ((), 0, ValueError, "by is an empty tuple"),
    (np.ones((6, 4), int), (), ValueError, "axis is empty"),
    (TWO, 0, TypeError, f"{TUPLES}0", [0, 1]),
    (TWO, 0, TypeError, f"{TUPLES}'ab'", ["ab"]),
    (TWO, 0, ValueError, rf"{TUPLES}\(1, 2, 3\)", [(1, 2, 3)]),
    (DAYS, 0, TypeError, OF_DAYS, ["2025-01-31"]),
    (["1"] * 6, 0, TypeError, "must be strings, .* not numbers", [1]),
    (["1"] * 6, 0, TypeError, "must be strings, .* not objects", ["a", 1]),
    ((ONE, ["a"] * 6), 0, TypeError, OBJECTS, [(1, "a"), ("1", "a")]),
    ({"a": 3}, 0, TypeError, "'a'\\] must be a sequence of indices or a slice"),
    (ONE, 0, ValueError, "one-dimensional, not of shape", [[1]]),
    ({"a": [6]}, 0, IndexError, "the axis has size 6"),
    ({"a": [0.5]}, 0, TypeError, "'a'\\] must be integers in one dimension"),
    ({"a": [1]}, None, ValueError, "along one axis"),
    (ONE, 2, np.exceptions.AxisError, "out of bounds"),
    ([np.nan] * 6, 0, ValueError, "there are no groups"),
    (ONE, 0, ValueError, "there are no groups", []),
]
REFUSED: list[Refusal] = [
    *((partial(groupby, A, row[0], row[1], groups=(*row, None)[4]), *row[2:4]) for row in BAD),
    (lambda: groupby(np.float64(1), np.array(1)), ValueError, "no dimension"),
    (lambda: groupby(A, ONE, 0).median(axis=0), TypeError, "take no axis"),
]


@each_of(REFUSED)
def test_what_is_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
