"""What type checkers and editors know of results: mypy reads this file, and pytest runs it."""

from __future__ import annotations

from typing import Any, assert_type

import dask.array as da
import numpy as np
import pytest
from dask.array.core import Array
from numpy.typing import NDArray

import dask_gpuselect as gs
from dask_gpuselect import Boxplot
from dask_gpuselect.engine.plans import Plan
from dask_gpuselect.groups import GroupBy
from dask_gpuselect.robust import iqr, mad, naniqr, nanmad, nantrimmed_mean, trimmed_mean

pytestmark = pytest.mark.any_dask


def test_dask_arrays_make_dask_arrays() -> None:
    x: Array = da.arange(10, chunks=5)
    results = [
        assert_type(gs.median(x), Array),
        assert_type(gs.nanmedian(x, axis=0, keepdims=True), Array),
        assert_type(gs.quantile(x, [0.1, 0.9], method="nearest"), Array),
        assert_type(gs.nanquantile(x, 0.5, where=x > 3), Array),
        assert_type(gs.percentile(x, 50), Array),
        assert_type(gs.nanpercentile(x, q=50), Array),
        assert_type(gs.order_statistic(x, 3), Array),
        assert_type(gs.sort(x), Array),
        assert_type(gs.argsort(x), Array),
        assert_type(gs.quantile_bins(x, 4), Array),
        assert_type(mad(x), Array),
        assert_type(nanmad(x), Array),
        assert_type(iqr(x), Array),
        assert_type(naniqr(x), Array),
        assert_type(trimmed_mean(x), Array),
        assert_type(nantrimmed_mean(x, 0.2), Array),
    ]
    assert all(hasattr(each, "compute") for each in results)
    assert_type(gs.describe_boxplot(x), Boxplot)
    assert_type(gs.describe_boxplot(x).compute()[0].n_high, float)
    assert_type(gs.explain(x), Plan)
    assert_type(gs.groups.groupby(x, np.arange(10) % 2), GroupBy)


def test_plain_arrays_make_plain_arrays() -> None:
    a: NDArray[np.int64] = np.arange(10).reshape(2, 5)
    assert assert_type(gs.median(a, axis=1), NDArray[Any]).tolist() == [2.0, 7.0]
    assert assert_type(gs.quantile(a, [0.0, 1.0]), NDArray[Any]).tolist() == [0, 9]
    assert float(assert_type(gs.median(a), NDArray[Any])) == 4.5


def test_others_are_as_they_were() -> None:
    many: dict[str, Any] = {"a": np.arange(3)}
    assert assert_type(gs.median(many["a"]), Any) == 1
    assert_type(gs.median([1, 2, 3]), Any)
