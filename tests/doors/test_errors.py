"""Bad input is refused by name: at the call where it can be, before anything is computed."""

from __future__ import annotations

from functools import partial
from typing import Any

import array_api_strict as xp
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.base import DaskMethodsMixin

import dask_gpuselect
import dask_gpuselect.dataframe
import dask_gpuselect.xarray
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, mad, spread
from tests.backends import CUPY, Backend
from tests.features.test_quantiles import untouchable
from tests.oracle import FUNCTIONS, METHODS, MIXED, takes_q

pytestmark = pytest.mark.usefixtures("in_this_thread")

QUANTILES = tuple(filter(takes_q, FUNCTIONS))

every_function = pytest.mark.parametrize("function", FUNCTIONS)
functions_of_q = pytest.mark.parametrize("function", QUANTILES)


def call(function: str, a: Any, *arguments: Any, **options: Any) -> Any:
    """With a q of 0.5 if none is given and one is needed."""
    if takes_q(function) and not arguments and "q" not in options:
        arguments = (0.5,)
    return getattr(dask_gpuselect, function)(a, *arguments, **options)


def arrays(backend: Backend, dtype: Any = "f8", shape: tuple[int, ...] = (4, 5)) -> list[Any]:
    """A lazy array that must not be loaded, and one in memory."""
    return [untouchable(backend, shape, dtype, 2), backend.asarray(np.zeros(shape, dtype))]


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------

Wrong = tuple[dict[str, Any], type[Exception], str]


def outside(most: int, *cases: tuple[Any, str]) -> list[Wrong]:
    message = rf"q must be in \[0, {most}\], not %s"
    return [({"q": q}, ValueError, message % named) for q, named in cases]


SHARES = outside(
    1, (1.5, "1.5"), (-0.25, "-0.25"), (-5e-324, "-5e-324"), (50, "50.0"), (np.inf, "inf"),
    (np.nextafter(1, 2), "1.0000000000000002"), ([0.5, np.nan], "nan"), ([0.5, 2, 3], "2.0"),
)  # fmt: skip
PERCENTAGES = outside(
    100, (100.5, "100.5"), (-1, "-1.0"), ([50, np.nan], "nan"), ([0, 101], "101.0")
)
OF_Q: list[Wrong] = [
    *(
        ({"q": q}, TypeError, f"q must be real numbers, not of dtype {named}.*: pass for example ")
        for q, named in (
            ([0.5, 0.5j], "complex128"), ("0.5", "<U3"), (None, "object"), ({0.5}, "object"),
            (np.timedelta64(1, "s"), "timedelta64"),
        )
    ),
    *(
        ({"q": q}, TypeError, r"q must be known at the call, and is lazy: compute it first, q\.")
        for q in (da.zeros(3, chunks=1), da.zeros(()), dask.delayed(0.5))
    ),
]  # fmt: skip
OF_WEIGHTS: list[Wrong] = [
    ({"weights": np.ones((4, 5)), "method": "hazen"}, ValueError,
     "Only methods inverted_cdf, .* weights. Got: hazen"),
    ({"weights": np.ones(5)}, TypeError, "Axis must be specified when shapes of a and weights"),
    ({"weights": np.ones(5), "axis": 0}, ValueError, "Shape of weights must be consistent with sh"),
    ({"weights": np.ones(5), "axis": "time"}, TypeError, "integer .* 'time': for xarray .*median"),
    ({"weights": np.ones((4, 5), complex)}, TypeError, "weights must be real .* dtype complex128"),
]  # fmt: skip
OF_ALL: list[Wrong] = [
    *(
        ({"axis": axis}, np.exceptions.AxisError, f"axis {named} is out of bounds for .* 2")
        for axis, named in ((2, 2), (-3, -3), ((0, 1, 2), 2), ([-4], -4))
    ),
    *(({"axis": axis}, ValueError, "repeated axis") for axis in ((0, 0), (0, 1, -1), (-1, -1))),
    *(
        ({"axis": axis}, TypeError, "axis must be None, an integer or a tuple of integers")
        for axis in ("0", 0.5, [0.0, 1.0])
    ),
    *(
        ({name: None}, TypeError, f"unexpected keyword argument '{name}'{advice}")
        for name, advice in (
            ("out", ": assign the answer"),
            ("overwrite_input", ": leave it out"),
            ("interpolation", ": .* call it method"),
            ("dtype", "$"),
        )
    ),
]
WRONG = [
    *((function, *wrong) for function in ("quantile", "nanquantile") for wrong in SHARES),
    *((function, *wrong) for function in ("percentile", "nanpercentile") for wrong in PERCENTAGES),
    *((function, *wrong) for function in QUANTILES for wrong in OF_Q + OF_WEIGHTS),
    *((function, *wrong) for function in FUNCTIONS for wrong in OF_ALL),
]


@pytest.mark.parametrize(("function", "options", "error", "message"), WRONG)
def test_wrong_arguments(
    backend: Backend,
    function: str,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    for a in arrays(backend):
        with pytest.raises(error, match=message):
            call(function, a, **options)


def test_q_in_percent() -> None:
    for q in (1.5, 101, np.nan):  # no percentage, or more likely a mistake of another kind
        with pytest.raises(ValueError, match=rf"not {float(q)}$"):
            dask_gpuselect.quantile(da.ones(5), q)


@pytest.mark.parametrize(
    ("q", "shape"), [([[0.5]], "1, 1"), (np.zeros((2, 3)), "2, 3"), (np.zeros((0, 3)), "0, 3")]
)
def test_q_of_many_dimensions(q: Any, shape: str) -> None:
    """Which labelled data have no names for."""
    a = xr.DataArray(da.ones(5, chunks=2), dims="x")
    s = dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1)
    for ask in (a.exact.quantile, s.exact.quantile):
        with pytest.raises(ValueError, match=rf"scalar or one-dimensional, not of shape \({shape}"):
            ask(q)


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
# axis, method, weights, and what is not offered
# --------------------------------------------------------------------------------------------------


@every_function
def test_axis_of_no_dimension(backend: Backend, function: str) -> None:
    for a in (backend.mapped(da.zeros(())), backend.asarray(1.0), 1.0):
        with pytest.raises(np.exceptions.AxisError, match="axis 0 is out of bounds"):
            call(function, a, axis=0)


@pytest.mark.parametrize(
    "method", ["Linear", "median", "", "interpolate", None, 7, b"linear", ["linear"], {}]
)
@functions_of_q
def test_unknown_method(backend: Backend, function: str, method: Any) -> None:
    for a in arrays(backend):
        with pytest.raises(ValueError, match="is not a valid method") as error:
            call(function, a, method=method)
        message, listed = str(error.value).split(". Use one of: ")
        assert message.startswith(repr(method))
        assert sorted(listed.split(", ")) == sorted(METHODS)


# --------------------------------------------------------------------------------------------------
# Data
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["c8", "c16", "O", "S3", "U3", "V3", "i4,f8", np.longdouble], ids=str
)
@every_function
def test_dtype_of_no_real_numbers(backend: Backend, function: str, dtype: Any) -> None:
    for a in arrays(backend, dtype):
        for method in {"method": METHODS[0]}, {}:
            options = method if takes_q(function) else {}
            with pytest.raises(
                TypeError, match="need an array of real numbers, bools or dates, not "
            ) as error:
                call(function, a, **options)
            assert str(np.dtype(dtype)) in str(error.value)


def test_complex_array_api() -> None:
    with pytest.raises(
        TypeError, match="need an array of real numbers, bools or dates, not complex64"
    ):
        dask_gpuselect.median(xp.ones((2,), dtype=xp.complex64))


@pytest.mark.parametrize("method", MIXED)
@functions_of_q
def test_bools_are_not_interpolated(backend: Backend, function: str, method: str) -> None:
    for a in [*arrays(backend, "?"), [True, False], xp.asarray([True])]:
        with pytest.raises(
            TypeError, match=f"^method='{method}' would interpolate .* bool does not support"
        ) as error:
            call(function, a, method=method)
        assert 'method="lower"' in str(error.value)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]"])
def test_dates_are_not_added_up(backend: Backend, dtype: str) -> None:
    named = np.dtype(dtype).name.replace("[", r"\[")
    sums = f'method="linear" with weights does not support {named}.*: use method="inverted_cdf" or'
    for a in arrays(backend, dtype):
        with pytest.raises(TypeError, match=sums):
            dask_gpuselect.quantile(a, 0.5, weights=np.ones(a.shape))
        for function in (spread.mad, spread.iqr):
            with pytest.raises(TypeError, match=f"need (numbers|integers or floats), not {named}"):
                function(a)


class Sparse:
    """As matrices of SciPy are."""

    shape, dtype, ndim = (3, 3), np.dtype(float), 2

    def toarray(self) -> Any:
        return np.ones(self.shape)


def test_sparse_chunks_are_to_be_made_dense() -> None:
    lazy = da.ones((3, 3), chunks=3).map_blocks(
        lambda _: Sparse(), dtype=float, meta=np.ones((0, 0))
    )
    told = r"a\.map_blocks\(lambda b: b\.toarray\(\), dtype=a\.dtype, meta="
    with pytest.raises(TypeError, match=told):
        dask_gpuselect.median(lazy).compute()
    with pytest.raises(TypeError, match=told):
        dask_gpuselect.median(Sparse())
    dense = lazy.map_blocks(lambda b: b.toarray(), dtype=lazy.dtype, meta=np.empty((0, 0)))
    assert dask_gpuselect.median(dense).compute() == 1


class Frame(DaskMethodsMixin):
    """Some other collection."""

    def __dask_graph__(self) -> Any:
        return {("frame", 0): 1.0}

    def __dask_keys__(self) -> Any:
        return [("frame", 0)]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("computed")


@every_function
def test_other_collections(function: str) -> None:
    """Those of dask have advice of their own: see test_instead.py."""
    with pytest.raises(TypeError, match="must be a dask array, not a Frame: pass its array"):
        call(function, Frame())


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
    for broken, found in [(kernel, KeyboardInterrupt), (fails, SystemError)]:
        monkeypatch.setattr(dask_gpuselect.kernels, "cuts", broken)
        with pytest.raises(found) as told:
            dask.compute(dask_gpuselect.quantile(given, [0.2, 0.5, 0.7]))
        assert type(told.value) is found


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
