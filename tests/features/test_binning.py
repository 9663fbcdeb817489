"""Bins of equal numbers of elements, and which bin an element is in."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import digitize

pytestmark = pytest.mark.usefixtures("in_this_thread")


def test_dates() -> None:
    days = np.array(["2020-01-01", "2020-06-01", "NaT", "2021-01-01"], "M8[D]")
    edges = np.array(["2020-01-01T12", "2020-12-31T12"], "M8[h]")
    assert digitize(da.from_array(days, chunks=2), edges).compute().tolist() == [0, 1, 2, 2]
    assert digitize(edges, days[:2]).tolist() == [1, 2]
    waits = np.array([3, 1, "NaT"], "m8[s]")
    assert digitize(waits, np.array([2000], "m8[ms]")).tolist() == [1, 0, 1]
    assert digitize(waits.astype("m8[ns]"), np.array([2], "m8[s]")).tolist() == [1, 0, 1]
    far, near = np.array(["3000-01-01"], "M8[s]"), np.array(["2020-01-01"], "M8[ns]")
    for x, edges in ((far, near), (near, far)):
        with pytest.raises(ValueError, match="one unit"):
            digitize(x, edges)
