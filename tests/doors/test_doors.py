"""What holds for every public function and argument: a call computes nothing, units are refused,
and NumPy's floating-point errors are not the user's."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

from dask_gpuselect import (
    Boxplot,
    argsort,
    describe_boxplot,
    digitize,
    median,
    quantile,
    sort,
    sort_by,
)
from dask_gpuselect.distribution import EmpiricalDistribution, ecdf
from dask_gpuselect.neighbors import KNeighborsRegressor, kneighbors
from dask_gpuselect.quiet import outside
from dask_gpuselect.robust import LeastTrimmedSquares, mad
from tests.calls import Call, calls, public
from tests.oracle import FUNCTIONS
from tests.spies import refuse

pytestmark = pytest.mark.any_dask  # of calls, whose graphs others run

CALLS = calls()


def test_nothing_is_forgotten() -> None:
    missing = public() - set(CALLS)
    known = {"distribution.SplineDerivative.__call__", "distribution.SplineDerivative.derivative"}
    assert not missing
    assert set(CALLS) - public() <= known


@pytest.mark.parametrize("name", CALLS)
def test_every_call_works(name: str) -> None:
    CALLS[name]()


# --- A call computes nothing ----------------------------------------------------------------------


def scalar() -> da.Array:
    return da.from_array(np.arange(1.0, 5), chunks=2).min()


LAZY: dict[str, Callable[[], Any]] = {
    "a scalar": scalar,
    "an array": lambda: da.ones(3, chunks=2),
    "delayed": lambda: dask.delayed(1.0),
    "xarray": lambda: xr.DataArray(scalar()),
    "a list": lambda: [scalar(), 0.5],
    "a tuple": lambda: (0.25, scalar()),
    "a set": lambda: {dask.delayed(0.5)},
    "a dict": lambda: {"a": scalar()},
    "lists in lists": lambda: [[0.5, scalar()], [1.0, 2.0]],
    "a list of arrays": lambda: [da.ones(3, chunks=2), da.ones(3, chunks=2)],
    "a list of xarrays": lambda: [xr.DataArray(da.ones(3, chunks=2))],
    "an array of objects": lambda: _objects(dask.delayed(0.5)),
}


def _objects(value: Any) -> Any:
    objects = np.empty(2, object)
    objects[0], objects[1] = value, 1.0
    return objects


ARGUMENTS = [
    pytest.param(name, key, id=f"{name}-{key}")
    for name, call in CALLS.items()
    for key in [*call.data, *call.known]
]


@pytest.mark.few(129)
@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_a_call_computes_nothing(name: str, key: str) -> None:
    """What is lazy is refused by its name, or accepted, at any depth."""
    call = CALLS[name]
    answers = {}
    for kind, make in LAZY.items():
        value = make()
        if not (key in call.computes and isinstance(value, da.Array)):
            with dask.config.set(scheduler=refuse):
                answers[kind] = told(call, key, value)
    # A dask array may be refused for what it is. Quantiles and box plots take dicts of arrays, and
    # lists of them; lists of numbers alone box plots.
    may = {"a scalar", "an array"} if key in call.data else set()
    if key == "a" and "boxplot" in name:
        may |= {"a list", "a tuple", "a dict", "a list of arrays"}
    if key == "a" and name in FUNCTIONS or name == "quantile_bins":
        may |= {"a dict", "a list of arrays"}
    for kind in answers.keys() - may:
        assert re.match(rf"{key} |expected an? (dask )?array", answers[kind]), (kind, answers[kind])


def told(call: Call, key: str, value: Any) -> str:
    """The error that an argument is refused with."""
    try:
        call(**{key: value})
    except (TypeError, ValueError, IndexError, NotImplementedError) as error:
        return str(error)
    return "(it is accepted)"


def test_an_accessor_reads_no_lazy_labels() -> None:
    lazy = xr.DataArray(da.arange(3, chunks=2), dims="n")
    a = xr.DataArray(da.ones((3, 4), chunks=2), dims=("n", "m"))
    a = a.assign_coords(xr.Coordinates({"n": lazy.variable}, indexes={}))
    with dask.config.set(scheduler=refuse):
        boxes = a.exact.describe_boxplot("m")
    assert boxes.compute().labels == ("0", "1", "2") or boxes.compute().labels == (None,) * 3


# --- NumPy's floating-point errors ----------------------------------------------------------------

LARGEST = float(np.finfo("f8").max)
HOSTILE: dict[str, list[float]] = {
    "largest": [LARGEST, -LARGEST, LARGEST / 2, 1.0, -1.0, 0.0, LARGEST, -LARGEST],
    "far apart": [LARGEST, -LARGEST] * 4,
    "denormal": [5e-324, -5e-324, 0.0, 1e-310, 2e-320, 1.0, 5e-324, 2.3e-308],
    "infinite": [np.inf, -np.inf, 0.0, 1.0, 2.0, np.inf, -3.0, LARGEST],
    "missing": [np.nan, 1.0, 2.0, np.nan, np.inf, -np.inf, 5e-324, LARGEST],
    "all missing": [np.nan] * 8,
    "zeros": [0.0, -0.0] * 4,
    "small and large": [1e-200, 1e200, -1e-200, 1e154, 1e-160, 1.5e-160, 3.0, 4.0],
}
OURS_TO_TELL = "Mean of empty slice|All-NaN slice encountered"


def outcome(ask: Callable[[], Any], z: Any) -> str:
    """What is answered, to be compared, or the error."""
    try:
        (result,) = dask.compute(ask())
        return shown(result, z)
    except (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"


def shown(result: Any, z: Any) -> str:
    match result:
        case Boxplot():
            parts = [result, result.to_dict(), result.to_bxp(), result.to_plotly(), result.boxes]
            return repr(parts) + result._repr_html_()
        case EmpiricalDistribution():
            share = np.linspace(0, 1, 5)
            parts = [result, result.max_error, result.cdf(z), result.cdf_bounds(z), result.pdf(z)]
            parts += [result.quantile(share), result.knots]
            return repr(parts + [result.quantile_bounds(share) if result.n_valid else None])
        case list() | tuple():
            return repr([shown(each, z) for each in result])
    if hasattr(result, "get_params"):  # what a fit has found
        known = {key: value for key, value in vars(result).items() if key.endswith("_")}
        return repr(dask.compute(known)[0])
    return repr(result)


def same_in_silence(ask: Callable[[], Any], z: Any) -> None:
    """The same answer, or error of ours, whatever is said of floating-point errors."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("ignore")
        wanted = outcome(ask, z)
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", OURS_TO_TELL)
        for scheduler, state in (("sync", "raise"), ("threads", "warn"), ("threads", "raise")):
            # Threads of this pool do not take over what is said here, and so warn.
            with dask.config.set(scheduler=scheduler, pool=pool), np.errstate(all=state):
                assert outcome(ask, z) == wanted


# Arguments that matter, beside the first ones, and what they are.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "describe_boxplot": [{"whis": 1e308}],
    "robust.mad": [{"scale": 1e300}],
    "robust.iqr": [{"scale": 1e-300}],
    "distribution.ecdf": [{"points": [0.0, 1.0]}, {"points": 2}],
    "neighbors.KNeighborsRegressor.fit": [{"weights": "distance"}],
}
"""The matrix has other arguments, and raises floating-point errors too."""


def with_data(call: Call, name: str, values: Any, *, is_lazy: bool) -> dict[str, Any]:
    """The arguments of a call that are data, of hostile values."""

    def like(key: str, plain: Any) -> Any:
        if plain is None or "Classifier" in name and key == "y":
            return plain
        shape = np.shape(plain)
        if key == "bins":
            result = np.unique(values[~np.isnan(values)])
            result = result if result.size else np.array([0.0])
        else:
            result = np.resize(values, shape)
        if not (is_lazy and call.data and key not in call.computes):
            return result
        chunks = (2, -1) if result.ndim == 2 else 2
        return da.from_array(result, chunks=chunks if key != "bins" else -1)

    return {key: like(key, plain) for key, plain in call.data.items()}


@pytest.mark.few(15)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, "f8") for kind in HOSTILE), ("largest", "f4"), ("denormal", "f4"), ("missing", "f4")],
)
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.data])
def test_floating_point_errors_are_ours(name: str, kind: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        values = np.array(HOSTILE[kind]).astype(dtype)
    call = CALLS[name]
    for is_lazy in (False, True):
        data = with_data(call, name, values, is_lazy=is_lazy)
        for variant in [{}, *VARIANTS.get(name, [])]:
            same_in_silence(lambda: call(**{**data, **variant}), values)  # noqa: B023


def test_what_users_functions_do_is_theirs() -> None:
    """What `numpy.errstate` says holds in them, also where our own code calls them."""

    def noisy(block: Any) -> Any:
        return np.float64(1e308) * 10 + 0 * block

    x = da.ones((40, 2), chunks=(10, 2)).map_blocks(noisy, dtype="f8", meta=np.empty((0, 0)))
    y = np.ones(40)
    with dask.config.set(scheduler="sync"), np.errstate(over="raise"):
        for ask in (
            lambda: median(x).compute(),
            lambda: quantile(x, 0.5, strategy="kelley").compute(),
            lambda: describe_boxplot(x).compute(),
            lambda: LeastTrimmedSquares().fit(x, y),
            lambda: KNeighborsRegressor(2).fit(x[:, :1].rechunk(), x[:, 0]),
            lambda: (
                KNeighborsRegressor(2, weights=lambda d: d + noisy(1.0))
                .fit(y[:, None], y)
                .predict(y[:3, None])
            ),
        ):
            with pytest.raises(FloatingPointError, match="overflow"):
                ask()
    with outside():  # of nothing of ours
        assert np.geterr()["over"] == "warn"


# --- Units ----------------------------------------------------------------------------------------


class Convertible:
    """An object that has a unit."""

    def to(self, unit: str) -> Convertible:
        raise NotImplementedError


class Quantity(Convertible, np.ndarray):
    """As of astropy: an array of a kind of its own."""

    unit = property(lambda self: "m")
    value = property(lambda self: np.asarray(self))


class Noted(Convertible, np.ndarray):
    """As of unyt: each array has a unit as an attribute."""

    units: str | None = None


def noted(values: Any) -> Any:
    result = plain(values).view(Noted)
    result.units = "s"
    return result


class Wrapped(Convertible):
    """As of pint: it has an array."""

    units = property(lambda self: "second")

    def __init__(self, magnitude: Any) -> None:
        self._magnitude = magnitude
        self.shape, self.dtype, self.ndim = magnitude.shape, magnitude.dtype, magnitude.ndim

    magnitude = property(lambda self: self._magnitude)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._magnitude, dtype)


def with_unit(values: Any) -> Any:
    return plain(values).view(Quantity)


def plain(values: Any) -> Any:
    return np.asarray(values.compute() if hasattr(values, "compute") else values, "f8")


@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_units_are_refused(name: str, key: str) -> None:
    """By a message that says what to pass: the answer would have lost them."""
    call = CALLS[name]
    given = call.data[key] if key in call.data else call.known[key]
    numbers = np.array([1.0, 2.0]) if given is None or isinstance(given, str) else plain(given)
    quantities = {
        "Quantity with unit m": with_unit(numbers),
        "Noted with unit s": noted(numbers),
        "Wrapped with unit second": Wrapped(np.asarray(numbers)),
    }
    for kind, quantity in quantities.items():
        for value in (quantity, [quantity, quantity]):
            what = told(call, key, value)
            assert what.startswith(f"{key} is a {kind}, which the answer would lose"), what
            assert "a.value" in what or "a.magnitude" in what


KNOWN = [(name, key) for name, call in CALLS.items() for key in call.known]


@pytest.mark.parametrize(("name", "key"), KNOWN)
def test_masks_are_refused(name: str, key: str) -> None:
    """Of what is no data; NumPy would take what is under the mask."""
    call = CALLS[name]
    for value in (np.ma.masked, np.ma.masked_array([0.2, 0.8], [False, True]), [np.ma.masked, 0.5]):
        assert told(call, key, value) == (
            f"{key} is masked: pass its unmasked values, {key}.compressed()"
        )


def test_units_of_chunks_are_refused() -> None:
    a = np.arange(12.0).reshape(4, 3)
    x = da.from_array(with_unit(a), chunks=2, asarray=False)
    assert isinstance(x._meta, Quantity)
    with pytest.raises(
        TypeError, match=r"^a is a Quantity with unit m, .* pass its numbers, a.value, and "
    ):
        median(x)
    with pytest.raises(TypeError, match="is a Quantity with unit m"):
        sort(x[0])
    with pytest.raises(TypeError, match="is a Quantity with unit m"):
        kneighbors(x, a, 1)
    unsaid = da.from_array(a, chunks=(2, 3)).map_blocks(
        with_unit, dtype="f8", meta=np.empty((0, 0))
    )
    for lazy in (
        *(ask(unsaid, axis=axis) for ask in (median, describe_boxplot, mad) for axis in (None, 0)),
        *(ecdf(unsaid, *points) for points in ([], [[1.0]])),
        sort(unsaid[:, 0]),
        argsort(unsaid[:, 0]),
        sort_by(unsaid[:, 0], a[:, 0])[0],
        digitize(unsaid, [1.0]),
        quantile(unsaid, 0.5, strategy="kelley"),
        kneighbors(unsaid, a, 1)[0],
    ):
        with pytest.raises(TypeError, match="is a Quantity with unit m"):
            dask.compute(lazy)


def test_what_has_no_unit_is_no_quantity() -> None:
    """Attributes of that name, or a unit of time."""
    a = xr.DataArray(np.arange(5.0), attrs={"units": "m", "unit": "m"})
    assert median(a) == 2.0

    class Unitless(Quantity):
        unit = property(lambda self: None)

    assert median(np.arange(5.0).view(Unitless)) == 2.0
    with pytest.raises(TypeError, match="a is a Quantity with unit m"):
        median(xr.DataArray(with_unit(np.arange(5.0))))
