"""Bad input is refused by name: at the call where it can be, before anything is computed."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask.base import DaskMethodsMixin

import dask_gpuselect
import dask_gpuselect.dataframe
import dask_gpuselect.xarray
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, mad
from tests.backends import CUPY
from tests.oracle import FUNCTIONS, takes_q

pytestmark = pytest.mark.usefixtures("in_this_thread")


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------


def test_q_in_percent() -> None:
    for q in (1.5, 101, np.nan):  # no percentage, or more likely a mistake of another kind
        with pytest.raises(ValueError, match=rf"not {float(q)}$"):
            dask_gpuselect.quantile(da.ones(5), q)


@pytest.mark.parametrize("name", ["weights", "fill_value", "strategy", "anything"])
def test_what_a_function_does_not_take_is_no_matter_of_its_value(name: str) -> None:
    """An argument that is lazy and unknown is unknown first of all; the error says who takes it."""
    x = da.ones(4, chunks=2)
    hints = {"weights": r"quantile\(a, 0.5, weights=weights\)", "fill_value": "take it"}
    functions = (mad, iqr, dask_gpuselect.sort, dask_gpuselect.digitize)
    asks = [partial(function, x) for function in functions]
    if name != "fill_value":
        grouped = groupby(x, [0, 0, 1, 1])
        asks += [partial(dask_gpuselect.median, x), x.exact.nanmedian]
        asks += [grouped.median, xr.DataArray(x, dims="x").exact.median] * (name != "strategy")
    for ask in asks:
        with pytest.raises(TypeError, match=f"unexpected .* '{name}'.*{hints.get(name, '')}"):
            ask(**{name: x})


# --------------------------------------------------------------------------------------------------
# Data
# --------------------------------------------------------------------------------------------------


class Sparse:
    """As matrices of SciPy are."""

    shape, dtype, ndim = (3, 3), np.dtype(float), 2

    def toarray(self) -> Any:
        return np.ones(self.shape)


def test_sparse_chunks_are_to_be_made_dense() -> None:
    meta = np.empty((0, 0))
    lazy = da.ones((3, 3), chunks=3).map_blocks(lambda _: Sparse(), dtype=float, meta=meta)
    advice = r"a\.map_blocks\(lambda b: b\.toarray\(\), dtype=a\.dtype, meta="
    with pytest.raises(TypeError, match=advice):
        dask_gpuselect.median(lazy).compute()
    with pytest.raises(TypeError, match=advice):
        dask_gpuselect.median(Sparse())
    dense = lazy.map_blocks(lambda b: b.toarray(), dtype=lazy.dtype, meta=meta)
    assert dask_gpuselect.median(dense).compute() == 1


class Frame(DaskMethodsMixin):
    """Some other collection."""

    def __dask_graph__(self) -> Any:
        return {("frame", 0): 1.0}

    def __dask_keys__(self) -> Any:
        return [("frame", 0)]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("computed")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_collections(function: str) -> None:
    """Those of dask have advice of their own: see test_instead.py."""
    q = [0.5] if takes_q(function) else []
    with pytest.raises(TypeError, match="must be a dask array, not a Frame: pass its array"):
        getattr(dask_gpuselect, function)(Frame(), *q)


# --------------------------------------------------------------------------------------------------
# While it is computed: what chunks turn out to be is in tests/engine/test_door.py
# --------------------------------------------------------------------------------------------------


@pytest.mark.any_dask
@pytest.mark.legacy  # an expression of the same name is that of before, and calls what it called
@pytest.mark.parametrize("is_lazy", [False, True])
def test_ctrl_c_in_a_kernel(is_lazy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython makes a SystemError of it, or a chain of them, if Numba converts something then."""

    def kernel(*_: Any, **__: Any) -> Any:
        try:
            raise SystemError("array returned a result") from KeyboardInterrupt()
        except SystemError as error:
            raise SystemError("CPUDispatcher returned a result") from error

    def fails(*_: Any, **__: Any) -> Any:
        raise SystemError("of another kind")

    values = np.arange(20.0)
    given = da.from_array(values, chunks=10) if is_lazy else values
    for broken, result in [(kernel, KeyboardInterrupt), (fails, SystemError)]:
        monkeypatch.setattr(dask_gpuselect.kernels, "cuts", broken)
        with pytest.raises(result) as caught:
            dask.compute(dask_gpuselect.quantile(given, [0.2, 0.5, 0.7]))
        assert type(caught.value) is result


@pytest.mark.gpu
def test_too_little_memory_on_the_device() -> None:
    """The error says what to do, and what was taken is given back."""
    CUPY.free()
    a = CUPY.asarray(np.zeros(10_000_000))
    pool = CUPY.xp.get_default_memory_pool()
    pool.set_limit(size=pool.total_bytes())
    try:
        with pytest.raises(MemoryError, match=r"Use smaller chunks \(x\.rechunk\)"):
            dask_gpuselect.median(a)
    finally:
        pool.set_limit(size=0)
    assert CUPY.to_numpy(dask_gpuselect.median(a)) == 0
