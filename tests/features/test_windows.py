"""Moving windows: beside windows that are unfolded, pandas, xarray and scipy.ndimage."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dask_gpuselect.windows import rolling

ndimage = pytest.importorskip("scipy.ndimage")

RANDOM = np.random.default_rng(52)
PADDED = {None: "constant", "reflect": "symmetric", "mirror": "reflect", "nearest": "edge"}
PADDED["wrap"] = "wrap"


def some(shape: tuple[int, ...], dtype: str = "f8", *, nan: float = 0.1) -> NDArray[Any]:
    """Few values, so that there are ties; some of them NaN."""
    values = RANDOM.integers(-9, 9, shape) if np.dtype(dtype).kind != "u" else None
    found = (RANDOM.integers(0, 50, shape) if values is None else values).astype(dtype)
    if found.dtype.kind == "f":
        found += RANDOM.random(shape).round(1).astype(dtype)
        found[RANDOM.random(shape) < nan] = np.nan
    return found


def unfolded(
    x: NDArray[Any], windows: dict[int, int], *, center: bool = False, boundary: str | None = None
) -> NDArray[Any]:
    """The windows of every element, with NaN for what is beyond the ends, along a last axis."""
    widths = [(0, 0)] * x.ndim
    for axis, size in windows.items():
        after = (size - 1) // 2 if center else 0
        widths[axis] = (size - 1 - after, after)
    how: dict[str, Any] = {} if boundary else {"constant_values": np.nan}
    padded = np.pad(x.astype("f8"), widths, PADDED[boundary], **how)  # type: ignore[call-overload]
    found = sliding_window_view(padded, tuple(windows.values()), axis=tuple(windows))
    return found.reshape(*x.shape, -1)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


# --- Answers --------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(SIZES, min_size=1, max_size=3),
    st.data(),
    st.booleans(),
    st.sampled_from(["f8", "f4", "u1", "i2"]),
)
def test_windows_of_any_chunks_are_those_that_are_unfolded(
    chunks: list[list[int]], data: Any, center: bool, dtype: str
) -> None:
    x = some(tuple(map(sum, chunks)), dtype)
    axes = data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    windows = {axis: data.draw(st.integers(1, 9)) for axis in sorted(axes)}
    boundary = data.draw(st.sampled_from([None, "reflect", "nearest", "mirror", "wrap"]))
    method = data.draw(st.sampled_from(["linear", "lower", "hazen", "higher", "midpoint"]))
    lazy = da.from_array(x, chunks=tuple(map(tuple, chunks)))
    about = rolling(lazy, windows, center=center, boundary=boundary)
    if x.size == 0:
        assert about.median().compute().shape == x.shape
        return
    every = unfolded(x, windows, center=center, boundary=boundary)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for found, expected in (
            (about.median(), np.median(every, -1)),
            (about.nanmedian(), np.nanmedian(every, -1)),
            (about.quantile(0.3, method=method), np.quantile(every, 0.3, -1, method=method)),
            (about.nanquantile([0, 0.9]), np.nanquantile(every, [0, 0.9], -1)),
            (about.nanmin(), np.nanmin(every, -1)),
            (about.max(), np.max(every, -1)),
            (about.count(), np.isfinite(every).sum(-1)),
            (about.iqr(), np.subtract(*np.quantile(every, [0.75, 0.25], -1))),
        ):
            answer = found.compute()
            assert answer.dtype == found.dtype
            assert answer.shape == found.shape
            rounded = expected.astype(found.dtype)
            np.testing.assert_array_equal(answer, rounded)
