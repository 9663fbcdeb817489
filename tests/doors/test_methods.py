"""The accessor, and dask's and NumPy's functions while ours are in their place."""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from operator import attrgetter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect import accessor, disable, enable
from dask_gpuselect.accessor import Exact
from dask_gpuselect.routing import METHODS, OURS
from tests.data import normal
from tests.processes import in_threads, python
from tests.sources import Source
from tests.spies import noted, refuse

NAMES = list(OURS)


def asked(name: str) -> tuple[Any, ...]:
    """What the function wants beside the array."""
    return () if "median" in name else ([25, 50.0] if "percentile" in name else [0.25, 0.5],)


def data() -> NDArray[Any]:
    return normal(600).reshape(20, 30)


def dasks() -> dict[str, Any]:
    """Dask's functions, as they are now."""
    return {name: getattr(da, name) for name in NAMES}


# --- The accessor ---------------------------------------------------------------------------------


OTHERS = ("order_statistic", "explain", "sort", "argsort", "sort_by", "quantile_bins", "digitize")
SPREADS = ("mad", "nanmad", "iqr", "naniqr", "trimmed_mean", "nantrimmed_mean")
FUNCTIONS = [*METHODS, *OTHERS, *(f"robust.{name}" for name in SPREADS)]
FUNCTIONS += ["distribution.ecdf", "groups.groupby", "windows.rolling"]
FUNCTIONS += [f"windows.{name}_filter" for name in ("median", "percentile", "rank")]


def test_every_method_is_a_function() -> None:
    """Methods have the names of functions, and the subpackages whose functions they are theirs."""
    named = {name.split(".")[-1] for name in FUNCTIONS}
    assert named == {name for name in vars(Exact) if not name.startswith("_")}
    robust, windows = dask_gpuselect.robust, dask_gpuselect.windows
    assert {name for name in robust.__all__ if name[0].islower()} == set(SPREADS)
    assert {name for name in windows.__all__ if name[0].islower()} <= named


@pytest.mark.parametrize("full", FUNCTIONS)
def test_methods_take_what_functions_take(full: str) -> None:
    name = full.split(".")[-1]
    method = inspect.signature(getattr(Exact, name))
    function = inspect.signature(attrgetter(full)(dask_gpuselect))
    mine, theirs = (list(each.parameters.values())[1:] for each in (method, function))
    assert [(p.name, p.default, p.kind) for p in mine] == [
        (p.name, p.default, p.kind) for p in theirs
    ]
    assert (inspect.getdoc(getattr(Exact, name)) or "").startswith(f"Call `dask_gpuselect.{full}`")


def test_the_accessor_answers_as_functions_do() -> None:
    """The matrix asks those that it calls by their names."""
    x = da.from_array(data(), chunks=(7, 11))
    key, function = x.ravel(), dask_gpuselect.windows
    for actual, wanted in (
        (x.exact.rolling(5, 0).median(), function.rolling(x, 5, 0).median()),
        (x.exact.median_filter(3), function.median_filter(x, 3)),
        (key.exact.sort_by(-key)[1], -np.sort(data().ravel())),
    ):
        np.testing.assert_array_equal(actual.compute(), dask.compute(wanted)[0])


def test_the_accessor_is_found() -> None:
    x = da.ones(3)
    assert da.Array.exact is Exact
    assert "exact" in dir(x)
    assert set(METHODS) <= set(dir(x.exact))
    assert f"exact order statistics of {x!r}" in repr(x.exact)
    assert x.exact.describe_boxplot().compute()[0].med == 1
    assert "lanes" in str((x[None] * x[:, None]).exact.explain(axis=0))


def test_an_attribute_of_that_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    accessor.register()  # which it has
    monkeypatch.setattr(da.Array, "exactly", 3, raising=False)
    with pytest.warns(UserWarning, match="already"):
        accessor.register("exactly")
    assert da.Array.exactly == 3


# --- Enabled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_all_ways_lead_to_ours(name: str) -> None:
    a = data()
    source = Source((600, 50))
    x, y = da.from_array(a, chunks=(7, 11)), source.lazy((100, 50))
    with enable():
        for axis in (None, 1):
            wanted = getattr(dask_gpuselect, name)(x, *asked(name), axis)
            for way in (
                getattr(da, name)(x, *asked(name), axis),
                getattr(np, name)(x, *asked(name), axis),
                getattr(np, name)(x, *asked(name), axis=axis, keepdims=False),
                getattr(x, name)(*asked(name), axis),
            ):
                assert way.name == wanted.name
        getattr(np, name)(y, *asked(name)).compute()
        assert x.describe_boxplot(0).shape == (30,)
    assert not hasattr(x, "describe_boxplot")
    assert set(source.loads.values()) == {2}


def test_disabling_restores_the_very_same_objects() -> None:
    before, attributes = dasks(), set(vars(da.Array))
    enable()
    during = dasks()
    assert not any(during[name] is before[name] for name in NAMES)
    assert set(vars(da.Array)) - attributes == set(METHODS)
    enable()
    assert all(dasks()[name] is during[name] for name in NAMES)
    disable()
    assert all(dasks()[name] is before[name] for name in NAMES)
    assert set(vars(da.Array)) == attributes
    disable()
    assert all(dasks()[name] is before[name] for name in NAMES)


def is_on() -> bool:
    return hasattr(da.Array, "median")


# Steps, and after each whether ours are in place: "on" and "off" call `enable()` and `disable()`,
# "a=" makes a context and keeps it, "a(" enters it, made before or now, and "a)" leaves it.
STEPS = {
    "nested": "a( + b( + b) + a) -",
    "within": "on + a( + a) +",
    "ended inside": "a( + off - a) -",
    "enabled inside": "a( + on + a) + off -",
    "made before both are entered": "a= + b= + a( + b( + b) + a) -",
    "made before a call": "a= + on + a( + a) + off -",
    "made before another context": "a= + b( + b) + a( + a) -",
    "entered in itself": "a( + a( + a) + a) - a( + a) -",
    "ended, and others entered": "a( + off - b( + b) - a( + a) + a) -",
    "ended, and a later call": "a( + off - on + a) + off -",
}


@pytest.mark.parametrize("name", STEPS)
def test_contexts_end_what_they_began(name: str) -> None:
    made: dict[str, Any] = {}
    steps = STEPS[name].split()
    for step, wanted in zip(steps[::2], steps[1::2], strict=True):
        if step in ("on", "off"):
            (enable if step == "on" else disable)()
        else:
            context = made[step[0]] if step[0] in made else made.setdefault(step[0], enable())
            if step[1] == "(":
                context.__enter__()
            elif step[1] == ")":
                context.__exit__(None, None, None)
        assert is_on() == (wanted == "+"), step


def test_a_context_ends_with_an_error() -> None:
    with pytest.raises(KeyError), enable():
        raise KeyError
    assert not is_on()


@pytest.mark.parametrize("is_permanent", [False, True])
def test_many_threads_at_once(is_permanent: bool) -> None:
    """Each in contexts of its own, or one that all share: dask's functions are there again, or ours
    stay if somebody else has enabled them; and ours are there inside."""
    before = dasks()
    shared = enable()
    disable()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    observed: list[bool] = []

    def often(_: int) -> None:
        for _ in range(50):
            with enable():
                observed.append(is_on())
                with shared:
                    observed.append(is_on())
                observed.append(is_on())

    try:
        for _ in range(10):
            if is_permanent:
                enable()
            in_threads(6, often)
            assert is_on() == is_permanent
            disable()
            assert all(dasks()[name] is before[name] for name in NAMES)
    finally:
        sys.setswitchinterval(interval)
    assert len(observed) == 10 * 6 * 50 * 3
    assert all(observed)


# --- Arguments ------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of dask's own functions have been called."""
    called: list[str] = []
    for name in NAMES:
        noted(monkeypatch, da, name, lambda *_, name=name, **__: name, called)
    return called


def test_positional_arguments_are_numpys_or_dasks(calls: list[str]) -> None:
    a = data()
    x = da.from_array(a, chunks=(7, 11))
    lower, median = np.quantile(a, 0.3, 0, method="lower", keepdims=True), np.median(a, 0)
    with enable():
        for actual, wanted in (
            (np.quantile(x, 0.3, 0, None, False, "lower", True), lower),
            (np.median(x, 0, None, False, True), median[None]),
            (da.median(x, 0, True), median[None]),
            (da.percentile(x.ravel(), [30], "lower"), np.percentile(a, [30], method="lower")),
            (np.nanpercentile(x, 30, 1, None), np.nanpercentile(a, 30, 1)),
        ):
            np.testing.assert_array_equal(actual.compute(), wanted)
    assert not calls


@pytest.mark.legacy
def test_what_ours_does_not_know_is_dasks(calls: list[str]) -> None:
    x = da.from_array(data(), chunks=(20, 11))
    out = da.zeros(30)
    with enable():
        assert da.median(x, 0, out=out) is out
        assert calls == ["median"]
        da.percentile(x.ravel(), [50], internal_method="dask")
        with suppress(NotImplementedError):  # of dask; 2025.1 ignores the argument
            da.quantile(x, 0.5, axis=0, overwrite_input=True)
        assert calls == ["median", "percentile", "quantile"]
        with pytest.raises(TypeError):
            da.median(x, 0, out_of="nothing")
        with pytest.raises(TypeError, match="positional"):
            np.median(x, 0, None, False, True, 1)
        calls.clear()
        assert da.median(x.astype(complex), 0).dtype == complex
        assert calls == ["median"]
        with pytest.raises(ValueError, match="not a valid method"):
            np.quantile(x, 0.5, method="best")
        with pytest.raises(np.exceptions.AxisError):
            np.median(x, 2)
    np.testing.assert_array_equal(out.compute(), np.median(data(), 0))


def test_percentiles_are_not_handed_to_an_approximation(calls: list[str]) -> None:
    x = da.from_array(data().ravel(), chunks=70)
    dates = (x * 1e6).astype("M8[s]")
    q = da.from_array([12.0], chunks=1)
    with enable():
        with pytest.raises(TypeError, match='internal_method="dask" asks for dask.s own'):
            da.percentile(x.astype(object), [12.34])
        for lazy in (q, q[0], [q[0]]):
            for ask in (da.percentile, np.percentile):
                with pytest.raises(TypeError, match=r"q\.compute\(\); internal_method="):
                    ask(x, lazy)
        result = da.percentile(dates, [12.34]).compute()
        assert not calls
        da.percentile(x, q, internal_method="dask")
        assert calls == ["percentile"]
    np.testing.assert_array_equal(result, np.percentile(dates.compute(), [12.34]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ndim", [1, 2])
def test_errors_of_ours_are_raised(name: str, ndim: int, calls: list[str]) -> None:
    x, q = da.from_array(data() if ndim == 2 else data().ravel(), chunks=70), asked(name)
    with enable():
        ask = getattr(da, name)
        bad = {
            "axis must be": lambda: ask(x, *q, axis=0.5),
            "where must have dtype bool": lambda: ask(x, *q, where=x),
        }
        if "median" not in name:
            how = {"weights": x.astype("M8[s]"), "method": "inverted_cdf"}
            bad |= {
                "q is masked": lambda: ask(x, np.ma.array([0.5])),
                "q must be real": lambda: ask(x, "0.5"),
                "bool does not support": lambda: ask(x > 0, *q),
                "weights must": lambda: ask(x, *q, **how),
            }
        for message, call in bad.items():
            with pytest.raises(TypeError, match=message):
                call()
    assert not calls


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile", "nanpercentile"])
@pytest.mark.parametrize("ndim", [1, 2])
def test_interpolation_is_the_former_name_of_method(name: str, ndim: int, calls: list[str]) -> None:
    a = data() if ndim == 2 else data().ravel()
    x, q = da.from_array(a, chunks=(7, 11)[:ndim]), asked(name)
    how: dict[str, Any] = {"axis": 0} if ndim == 2 else {}
    wanted = getattr(np, name)(a, *q, method="lower", **how)
    with enable():
        for more in ({}, {"method": "linear"}, {"method": "lower"}):
            actual = getattr(da, name)(x, *q, interpolation="lower", **how, **more)
            np.testing.assert_array_equal(actual.compute(), wanted)
        actual = getattr(da, name)(x, *q, interpolation=None, method="lower", **how)
        np.testing.assert_array_equal(actual.compute(), wanted)
        with pytest.raises(TypeError, match="former name"):
            getattr(da, name)(x, *q, interpolation="lower", method="higher", **how)
    assert not calls


@pytest.mark.legacy
def test_percentiles_of_strings_say_that_they_are_approximate(calls: list[str]) -> None:
    x = da.from_array(np.array(["a", "a", "d", "d", "d", "e"]), chunks=3)
    with enable(), pytest.warns(UserWarning, match="approximate"):
        result = da.percentile(x, [0, 50, 100])
    assert result.compute().tolist() == ["a", "d", "e"]
    assert calls == ["percentile"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [None, 1])
def test_masked_arrays_are_never_dasks(name: str, axis: Any, calls: list[str]) -> None:
    """Dask's own functions ignore the mask."""
    a = data()
    a[::2] = -9999
    x = da.ma.masked_equal(da.from_array(a.T, chunks=(30, 11)), -9999)
    wanted = getattr(dask_gpuselect, name)(x[:, 1::2].map_blocks(np.ma.getdata), *asked(name), axis)
    with enable():
        for way in (getattr(da, name), getattr(np, name), lambda x, *q: getattr(x, name)(*q)):
            actual = way(x, *asked(name), axis) if axis else way(x, *asked(name))
            np.testing.assert_array_equal(actual.compute(), wanted.compute())
        with pytest.raises(TypeError, match="masked or weighted elements does not take out"):
            getattr(da, name)(x, *asked(name), axis=axis, out=da.zeros(3))
        with pytest.raises(TypeError, match="real numbers"):
            getattr(da, name)(x.astype(complex), *asked(name), axis=axis)
        with pytest.raises(TypeError, match="does not take overwrite_input"):
            getattr(da, name)(x, *asked(name), where=x > 0, overwrite_input=True)
    assert not calls


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_lazy_quantiles_are_dasks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours would have to compute them, and so does not look at them."""
    monkeypatch.setattr(da, name, lambda *_, **__: "dask's")
    calls = noted(monkeypatch, da, name, lambda *_, **__: name)
    x = da.from_array(data(), chunks=(20, 11))
    with enable(), dask.config.set(scheduler=refuse):
        for q in (x.min(), [0.5, x.min()]):
            assert getattr(da, name)(x, q) == "dask's"
            assert getattr(da, name)(x, q=q, axis=0) == "dask's"
    assert calls == [name] * 4


@pytest.mark.slow
@pytest.mark.any_dask
@pytest.mark.parametrize("tests", ["test_percentiles", "test_reductions"])
def test_dasks_own_tests_pass(tests: str) -> None:
    """But for those that `tests.enabled` names."""
    pytest.importorskip(f"dask.array.tests.{tests}")
    command = ["-m", "pytest", "--pyargs", f"dask.array.tests.{tests}", "-q"]
    command += ["-p", "tests.enabled", "-p", "no:cacheprovider", "-o", "filterwarnings=error"]
    command += ["-k", "median or quantile or percentile"]
    # A plugin that is installed may warn where it begins.
    assert " passed" in python(*command, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
