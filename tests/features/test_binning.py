"""Bins of equal numbers of elements, and which bin an element is in."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import digitize
from tests.backends import Backend
from tests.data import hashed, normal

pytestmark = pytest.mark.usefixtures("in_this_thread")


def elements(dtype: str, n: int) -> NDArray[Any]:
    """Few small ones, and what is at the ends and where floats get coarse."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return hashed(np.arange(n)) < 0.5
    if kind.kind == "f":
        special = [0.0, -0.0, np.inf, -np.inf, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300]
        with np.errstate(over="ignore"):
            return np.append(normal(n) * 3, [*special, 5e-324, 127.5, 128, 65504]).astype(kind)
    limits = np.iinfo(kind)
    few = np.floor(hashed(np.arange(n)) * 8).astype(kind) + limits.dtype.type(limits.min // 2)
    near = [limits.min, limits.max, limits.max - 1, min(2**53 + 1, limits.max), 0, 1, 5]
    return np.append(few, np.array(near, kind))


def counted(x: NDArray[Any], edges: NDArray[Any], *, right: bool) -> list[int]:
    """By Python's numbers, which are compared exactly."""
    bounds = edges.tolist()
    descends = bool(bounds) and bounds[0] > bounds[-1]
    found = []
    for value in x.tolist():
        if value != value:
            found.append(0 if descends else len(bounds))
        elif descends:
            found.append(sum(e >= value if right else e > value for e in bounds))
        else:
            found.append(sum(e < value if right else e <= value for e in bounds))
    return found


DTYPES = ("f8", "f4", "f2", "i8", "u8", "i1", "u4", "?")


@pytest.mark.any_dask
@pytest.mark.parametrize("of_edges", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_exactly(backend: Backend, dtype: str, of_edges: str) -> None:
    x, edges = elements(dtype, 20), np.sort(elements(of_edges, 5))
    if x.dtype.kind == "f":
        x = np.append(x, np.array(np.nan, x.dtype))
    lazy = backend.lazy(x, 9)
    for bounds in (edges, edges[::-1]):
        for right in (False, True):
            expected = counted(x, bounds, right=right)
            found = digitize(lazy, da.from_array(bounds, chunks=4), right=right)
            assert found.dtype == np.int64
            assert found.chunks == lazy.chunks
            assert backend.to_numpy(found.compute()).tolist() == expected
            plain = digitize(backend.asarray(x), bounds, right=right)
            assert backend.to_numpy(plain).tolist() == expected


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
