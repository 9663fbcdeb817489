"""Box plots along axes: every lane's box is that of the lane by itself, in the loads told."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import Box, describe_boxplot
from tests.data import normal
from tests.matrix.laws import same

pytestmark = pytest.mark.any_dask  # the graphs are those of quantiles along axes


def alone(a: NDArray[Any]) -> list[Box]:
    """The box of each lane along the first axis, of all its elements: another plan."""
    lanes = np.ascontiguousarray(a.reshape(len(a), -1).T)
    return [describe_boxplot(lane)[0] for lane in lanes]


def test_shapes_labels_and_columns() -> None:
    a = normal(50 * 3 * 4).reshape(50, 3, 4)
    a[:, 0, 0] = 1e6
    lazy = describe_boxplot(da.from_array(a, chunks=(20, 2, 4)), 0)
    assert (lazy.shape, len(lazy)) == ((3, 4), 12)
    result = lazy.compute()
    assert not isinstance(result.tables, list)
    columns = result.to_dict()
    np.testing.assert_array_equal(columns["med"], np.quantile(a, 0.5, axis=0))
    np.testing.assert_array_equal(columns["min"], a.min(axis=0))
    np.testing.assert_allclose(columns["iqr"], np.ptp(np.quantile(a, [0.25, 0.75], 0), axis=0))
    assert all(column.shape == (3, 4) for column in columns.values())
    assert columns["whishi"][1, 2] == result[1, 2].whishi == result[6].whishi
    np.testing.assert_array_equal(columns["fliers"][2, 3], result[-1].fliers)
    assert result[1, 2].label is None
    assert "1, 2" in repr(result)
    assert repr(pickle.loads(pickle.dumps(lazy)).compute()) == repr(result)
    for beyond, shown in ((12, "12"), (-13, "-13"), ((3, 0), ".3, 0."), ((0,), ".0,.")):
        with pytest.raises(IndexError, match=f"box {shown} does not exist: .* is (12|.3, 4.)"):
            result[beyond]


def test_several_arrays() -> None:
    a, b = normal(60).reshape(20, 3), normal(40).reshape(20, 2) + 5
    result = describe_boxplot({"a": da.from_array(a, chunks=(7, 2)), "b": b}, axis=0).compute()
    assert result.labels == ("a[0]", "a[1]", "a[2]", "b[0]", "b[1]")
    assert result.shape == (5,)
    same(result, alone(a) + alone(b))
    assert repr(result["b[1]"]) == repr(result[4])
    beside_none = describe_boxplot({"none": a[:, :0], "b": b, "nothing": b[:, :0]}, axis=0)
    assert [box.label for box in beside_none] == ["b[0]", "b[1]"]
    same(beside_none, alone(b))
    assert result.to_dict()["label"].tolist() == list(result.labels)
    named = describe_boxplot(a, 0, labels=["x", "y", "z"])
    assert [box.label for box in named] == ["x", "y", "z"]
    for array in (a, da.from_array(a, chunks=5)):
        with pytest.raises(ValueError, match="one label for each box: pass 3, not 2"):
            describe_boxplot(array, 0, labels=["x", "y"])


@pytest.mark.parametrize("lanes", [(3,), (1, 2), (2, 1), (1, 1, 1)])
def test_integers_stay_exact_beside_boxes_of_nothing(lanes: tuple[int, ...]) -> None:
    """NaN stands for the least of no integer, which float64 has and some integers are not."""
    a = np.array([[7, 0, 2**60 + 1]])
    result = describe_boxplot(da.from_array(a, chunks=((1,), lanes)), 0, nodata=0).compute()
    assert repr(result.to_dict()["min"].tolist()) == f"[7, nan, {2**60 + 1}]"
    beside_floats = describe_boxplot({"floats": [0.5], "integers": a[0, 2:]}).to_dict()
    assert beside_floats["max"].tolist() == [0.5, 2**60 + 1]


def test_unknown_sizes() -> None:
    """Along a lane, and how many lanes there are."""
    a = normal(300).reshape(100, 3)
    x = da.from_array(a, chunks=(30, 2))
    some = x[x[:, 0] > 0]
    same(describe_boxplot(some, 0).compute(), alone(a[a[:, 0] > 0]))
    lazy = describe_boxplot(some, 1)
    assert "of an unknown number of boxes, not computed" in repr(lazy)
    with pytest.raises(TypeError, match="number of boxes is unknown"):
        _ = lazy.shape  # which asks for len(lazy)
    same(lazy.boxes, tuple(alone(a[a[:, 0] > 0].T)))
    with pytest.raises(ValueError, match="one label for each box: pass [0-9]+, not 1$"):
        describe_boxplot(some, 1, labels=["a"]).compute()


def test_many_boxes_are_not_all_printed() -> None:
    result = describe_boxplot(normal(5000).reshape(5, 1000), 0)
    lines = repr(result).splitlines()
    assert len(lines) == 12
    assert lines[6] == "... (1,000 boxes)"
    assert lines[-1].split()[0] == "999"
    html = result._repr_html_()
    assert html.count("<tr>") == 12
    assert "1,000 boxes" in html


def test_each_lane_has_the_moments_that_it_has_alone() -> None:
    """A negative sum of few digits stands beside one of many."""
    values = np.array([[-1.3], [np.finfo("f4").max]], np.float32)
    rows = np.where(np.arange(66_000) % 2 > 0, values, np.float32(np.nan))
    result = describe_boxplot(rows, axis=1).to_dict()
    np.testing.assert_array_equal(result["mean"], values[:, 0].astype(float))
    np.testing.assert_array_equal(result["std"], [0.0, 0.0])
