"""Every public function and method, how it is called, and which of its arguments may be lazy.

`calls` and `public` look at the package itself, so that nothing new can be forgotten: whoever adds
a function or an argument finds it here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

import dask_gpuselect
import dask_gpuselect.dataframe
import dask_gpuselect.xarray
from dask_gpuselect import accessor, distribution, groups, neighbors, robust, windows
from dask_gpuselect.distribution import (
    EmpiricalDistribution,
    EstimatedDistribution,
    MonotoneQuadraticSpline,
    MonotoneRationalSpline,
    ecdf,
)


@dataclass(frozen=True)
class Call:
    """How something is called.

    Parameters
    ----------
    function : callable
        Of named arguments.
    data : dict
        Arguments that may be dask arrays, as plain arrays.
    known : dict
        All others.
    computes : tuple of str
        Those of the data that are computed at the call if they are lazy, as is documented.
    """

    function: Callable[..., Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)
    computes: tuple[str, ...] = ()

    def __call__(self, **changed: Any) -> Any:
        return self.function(**{**self.data, **self.known, **changed})


A = np.array([[3.0, 1.0], [2.0, 5.0], [4.0, 0.5], [0.0, 9.0], [7.0, 2.5], [6.0, 8.0]])
LANE = A.ravel()

NEEDED: dict[str, Any] = {
    "q": 0.5,
    "k": 1,
    "n_bins": 3,
    "n_neighbors": 2,
    "window": 3,
    "rank": 1,
    "percentile": 30.0,
    "size": 3,
    "func": "median",
    **dict.fromkeys("zpv", 0.5),
}
"""By the name of an argument without a default: a value that makes sense."""


def asked(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter that is no data, or a value that makes sense."""
    is_needed = parameter.default is parameter.empty or parameter.name == "size"
    return NEEDED[parameter.name] if is_needed else parameter.default


# Which arguments of a function are data.
DATA: dict[str, dict[str, Any]] = {
    "sort": {"x": LANE},
    "argsort": {"x": LANE},
    "digitize": {"x": A, "bins": np.array([1.0, 2.0])},
    "kneighbors": {"X": A, "Q": A[:2]},
}
NAMES_OF_DATA = ("a", "x")
COMPANIONS = ("weights", "where")


MODULES = {
    "": dask_gpuselect,
    "robust.": robust,
    "neighbors.": neighbors,
    "distribution.": distribution,
    "groups.": groups,
    "windows.": windows,
}


def _function(name: str, function: Callable[..., Any]) -> Call:
    parameters = inspect.signature(function).parameters
    data = DATA.get(name) or {key: A for key in parameters if key in NAMES_OF_DATA}
    data |= {key: None for key in COMPANIONS if key in parameters}
    known = {
        key: asked(parameter)
        for key, parameter in parameters.items()
        if key not in data and parameter.kind is not parameter.VAR_KEYWORD
    }
    return Call(function, data, known)


def _sort_by(key: Any, values: Any, **how: Any) -> Any:
    return dask_gpuselect.sort_by(key, values, **how)


def _methods_called(
    path: str, names: Iterable[str], make: Callable[[str], Any], more: Mapping[str, Any] = {}
) -> Iterator[tuple[str, Call]]:
    """Call methods of what is made for each of their names; more goes to those that hand it on."""
    for name in names:
        parameters = inspect.signature(getattr(make(name), name)).parameters.items()
        some = {key: p for key, p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        handed_on = more if len(some) < len(parameters) else {}
        data = {k: SECOND.get(k) for k in (*some, *handed_on) if k in (*SECOND, *COMPANIONS)}
        known = {key: value for key, value in handed_on.items() if key not in data}
        known |= {key: asked(p) for key, p in some.items() if key not in data}

        def ask(name: str = name, **how: Any) -> Any:
            answer = getattr(make(name), name)(**how)
            return answer.median() if name == "groupby" else answer

        yield f"{path}.{name}", Call(ask, data, known)


def _groups(name: str) -> Any:
    return groups.groupby(da.from_array(A, chunks=2), np.arange(6) % 2, 0)


def _windows(name: str) -> Any:
    return windows.rolling(da.from_array(A, chunks=2), (3, 2))


def _exact(name: str) -> Any:
    return da.from_array(LANE if "sort" in name else A, chunks=2).exact


def _quadratic(name: str) -> MonotoneQuadraticSpline:
    return MonotoneQuadraticSpline([0.0, 1.0, 2.0], [0.0, 1.0, 5.0])


HOW = {"n_neighbors": 2, "return_distance": True}
FITS = {"predict": ({"X": A[:, :1]}, {}, ())}
FITS["score"] = (
    {"X": A[:, :1], "y": A[:, 1], "sample_weight": None},
    {},
    ("X", "y", "sample_weight"),
)
OF_ROWS = {"kneighbors": ({"X": A[:2]}, HOW, ())}
OF_ROWS |= {name: ({"X": A[:2]}, {}, ()) for name in ("predict", "predict_proba")}
ESTIMATORS = {
    (robust, "LeastTrimmedSquares", "LeastMedianOfSquares"): (
        {"n_starts": 3, "random_state": 0}, {"X": A[:, :1], "y": A[:, 1]}, ("X", "y"), FITS,
    ),
    (neighbors, "NearestNeighbors", "KNeighborsRegressor", "KNeighborsClassifier"): (
        {"n_neighbors": 2}, {"X": A, "y": np.arange(6) % 2}, ("y",), OF_ROWS,
    ),
}  # fmt: skip
"""By module and names: parameters, what they are fitted to, what of it is computed, and methods."""


def _estimators() -> Iterator[tuple[str, Call]]:
    for (module, *names), (few, rows, computes, methods) in ESTIMATORS.items():
        for name in names:
            make = getattr(module, name)
            path = f"{module.__name__.partition('.')[2]}.{name}"
            asks = {key: p.default for key, p in inspect.signature(make).parameters.items()} | few

            def fit(X: Any, y: Any, make: Any = make, **how: Any) -> Any:
                return make(**how).fit(X, y)

            yield f"{path}.fit", Call(fit, rows, asks, computes)
            for what, (data, known, computed) in methods.items():

                def ask(make: Any = make, few: Any = few, rows: Any = rows, what: str = what,
                        **how: Any) -> Any:  # fmt: skip
                    return getattr(make(**few).fit(**rows), what)(**how)

                if hasattr(make, what):
                    yield f"{path}.{what}", Call(ask, data, known, computed)


def calls() -> dict[str, Call]:
    """By their names in the package; ``exact`` is the accessor of dask arrays."""
    every = {
        f"{path}{name}": _function(name, getattr(module, name))
        for path, module in MODULES.items()
        for name in module.__all__
        if inspect.isfunction(getattr(module, name)) and name not in SPECIAL
    }
    how = dict.fromkeys(("chunks", "spill", "split_every"))
    labels = {"a": A, "by": np.arange(12).reshape(A.shape) % 3}
    every["groups.groupby"] = Call(
        lambda **how: groups.groupby(**how).median(), labels, {"axis": None, "groups": [0, 2]}
    )
    of_groups = ("median", "nanmedian", "mad", "nanmad", "iqr", "naniqr", "count")
    of_groups += ("trimmed_mean", "nantrimmed_mean")
    weighed = ("quantile", "nanquantile", "percentile", "nanpercentile")
    for names, more in (
        ((*of_groups, "describe_boxplot"), ("where", "nodata")),
        (weighed, (*COMPANIONS, "nodata")),
    ):
        every |= _methods_called("groups.GroupBy", names, _groups, dict.fromkeys(more))
    about = {"window": (3, 2), "center": False, "step": 1}
    about |= dict.fromkeys(("axis", "min_periods", "boundary", "closed", "nodata"))
    every["windows.rolling"] = Call(
        lambda **how: windows.rolling(**how).median(), {"x": A, "where": None}, about
    )
    of_windows = tuple(_methods(windows.Rolling))
    every |= _methods_called("windows.Rolling", of_windows, _windows)
    every["sort_by"] = Call(_sort_by, {"key": LANE, "values": LANE}, how)
    lazy = {"a": da.from_array(A, chunks=2)}
    lazy |= dict.fromkeys(COMPANIONS)
    known = {"q": 0.5, "axis": None, "nodata": None}
    every["explain"] = Call(dask_gpuselect.explain, lazy, known)
    spline = {"y": [1.0, 3.0, 2.0], "weights": None, "loss": "absolute", "increasing": True}
    every["distribution.isotonic_regression"] = Call(distribution.isotonic_regression, {}, spline)
    every |= dict(_estimators())
    of_arrays = [name for name in vars(accessor.Exact) if not name.startswith("_")]
    of_arrays.remove("rolling")  # which needs a window for each axis
    every |= _methods_called("exact", of_arrays, _exact)
    every["exact.rolling"] = Call(
        lambda **how: _exact("rolling").rolling(**how).median(), {"where": None}, about
    )
    for make, names in (
        (lambda _: ecdf(A, 5), ("cdf", "cdf_bounds", "pdf", "quantile", "quantile_bounds")),
        (
            lambda _: EstimatedDistribution.from_noisy([0, 1, 2], [0.1, 0.5, 0.9]),
            ("cdf", "pdf", "quantile"),
        ),
        (_quadratic, ("__call__", "derivative", "inverse")),
        (
            lambda _: MonotoneRationalSpline([0.0, 1.0], [0.0, 1.0], [1.0, 1.0]),
            ("__call__", "derivative", "inverse"),
        ),
        (lambda _: _quadratic("").derivative(), ("__call__", "derivative")),
    ):
        every |= _methods_called(f"distribution.{type(make('')).__name__}", names, make)
    noisy = {"points": [0, 1, 2], "proportions": [0.1, 0.5, 0.9], "weights": None}
    every["distribution.EstimatedDistribution.from_noisy"] = Call(
        EstimatedDistribution.from_noisy, {}, noisy
    )
    every["distribution.EstimatedDistribution"] = Call(
        EstimatedDistribution, {}, {"points": np.array([0.0, 1.0]), "shares": np.array([0.0, 1.0])}
    )
    one = np.array([1])
    counts = {"points": np.array([0.5]), "below": 0 * one, "upto": one}
    counts |= {"n_valid": 1, "n_missing": 0}
    every["distribution.EmpiricalDistribution"] = Call(EmpiricalDistribution, {}, counts)
    knots = {"x": [0.0, 1.0], "y": [0.0, 1.0], "extrapolate": True}
    every["distribution.MonotoneQuadraticSpline"] = Call(MonotoneQuadraticSpline, {}, knots)
    knots = knots | {"slopes": [1.0, 1.0]}
    every["distribution.MonotoneRationalSpline"] = Call(MonotoneRationalSpline, {}, knots)
    every |= _of_xarray()
    every |= _of_frames()
    return every


SECOND = {"bins": [1.0, 2.0], "by": np.arange(12).reshape(A.shape) % 3}
SPECIAL = {"groupby", "to_gpu", "enable", "disable", "sort_by", "explain", "isotonic_regression"}
SPECIAL |= {"show_versions", "warm", "rolling"}


XARRAY = ("median", "nanmedian", "quantile", "nanquantile", "percentile", "nanpercentile")
XARRAY += ("mad", "nanmad", "iqr", "naniqr", "trimmed_mean", "nantrimmed_mean")
OF_BOXES = {"whis": 1.5, "nan_policy": "omit", "autorange": False, "max_fliers": 10, "labels": None}
OF_BOXES |= {"method": "linear"}
DAY = np.timedelta64(86_400_000_000_000, "ns")


def _of_xarray() -> dict[str, Call]:
    import xarray as xr

    methods: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what is needed, and what may be
        name: ({}, {"dim": None, "nodata": None, "keep_attrs": None}) for name in XARRAY
    }
    for name in XARRAY:
        methods[name][1].update({"q": 0.5, "method": "linear"} if name.endswith("ile") else {})
    methods |= {
        "explain": ({}, {"q": 0.5, "dim": None}),
        "describe_boxplot": ({}, OF_BOXES | {"dim": None}),
        "groupby": ({"group": "n"}, {}),
        "groupby_bins": ({"group": "n"}, {"bins": 2}),
        "resample": ({"n": "2D"}, {}),
        "groupby_dayofyear": ({}, {"dim": "n", "window": 1}),
        "rolling": (
            {"n": 3},
            {"dim": None, "min_periods": 1, "center": False, "boundary": None, "nodata": None},
        ),
    }
    made = {}
    for name, (needed, known) in methods.items():

        def ask(kind: str, name: str = name, needed: Any = needed, **how: Any) -> Any:
            n = np.arange(len(LANE))
            n = n if name == "groupby_bins" else np.datetime64("2025-01-01", "ns") + n * DAY
            data = da.from_array(LANE, chunks=5)
            array = xr.DataArray(data, coords={"n": n}, dims="n", name="a")
            exact = (array.to_dataset() if kind == "Dataset" else array).exact
            answer = getattr(exact, name)(**needed, **how)
            is_asked = "group" in name or name in ("resample", "rolling")
            return answer.median() if is_asked else answer

        for kind in ("DataArray", "Dataset"):
            its = OF_BOXES if (name, kind) == ("describe_boxplot", "Dataset") else known
            made[f"xarray.Exact{kind}.{name}"] = Call(partial(ask, kind), {}, its)
    return made


def _of_frames() -> dict[str, Call]:
    import dask.dataframe as dd
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame({"a": LANE}), npartitions=2)
    keyed = frame.assign(k=frame["a"] // 3)
    made: dict[str, Call] = {}
    methods = ("quantile", "median", "describe", "describe_boxplot")
    for exact, names in (
        (frame["a"].exact, methods),
        (frame.exact, methods),
        (keyed.exact.groupby("k"), ("quantile", "median", "describe_boxplot", "agg")),
    ):
        path = f"dataframe.{type(exact).__name__}"
        made |= _methods_called(path, names, lambda _, exact=exact: exact, OF_BOXES)
    about = {"window": 2, "min_periods": None, "center": False, "closed": None}
    made["dataframe.ExactSeries.rolling"] = Call(
        lambda **how: frame["a"].exact.rolling(**how).median(), {}, about
    )
    made["dataframe.ExactDataFrame.rolling"] = Call(
        lambda **how: frame.exact.rolling(**how).median(), {}, about | {"numeric_only": False}
    )

    def of_groups(by: Any = "k", **how: Any) -> Any:
        return keyed.exact.groupby(by, **how).median()

    grouping = {"by": "k", "sort": True, "dropna": True}
    made["dataframe.ExactDataFrame.groupby"] = Call(of_groups, {}, grouping)
    return made


# What has no arguments but numbers and axes of matplotlib, is not made by hand, or needs a GPU.
WITHOUT = SPECIAL | {"Box", "Boxplot", "ChunksChangedError", "Plan", "groups.GroupBy"}
WITHOUT |= {"distribution.LazyDistribution", "distribution.SplineDerivative"}
WITHOUT |= {"windows.Rolling"}
WITHOUT -= {"sort_by", "explain", "rolling"}
METHODS_WITHOUT = {"plot"}
MADE = ("GroupBy", "Rolling")  # by `groupby` and `rolling`
# What hands its arguments to a function that is called here by itself, and answers with no array.
HANDED_ON = {"groups.GroupBy.explain"}


def public() -> set[str]:
    """The names of everything that a user may call with arguments."""
    names = set()
    for path, module in MODULES.items():
        for name in module.__all__:
            item = getattr(module, name)
            if f"{path}{name}" in WITHOUT and name not in ("SplineDerivative", *MADE):
                continue
            if name in MADE:
                names |= {f"{path}{name}.{method}" for method in _methods(item)}
                continue
            if not inspect.isclass(item) or not hasattr(item, "get_params"):
                names.add(f"{path}{name}")  # an estimator keeps what it is given for `fit`
            if inspect.isclass(item):
                names |= {f"{path}{name}.{method}" for method in _methods(item)}
    names |= {f"exact.{name}" for name in vars(accessor.Exact) if not name.startswith("_")}
    for kind in (dask_gpuselect.xarray.ExactDataArray, dask_gpuselect.xarray.ExactDataset):
        names |= {f"xarray.{kind.__name__}.{name}" for name in _methods(kind)}
    frames = dask_gpuselect.dataframe
    for kind in (frames.ExactSeries, frames.ExactDataFrame, frames.ExactFrameGroupBy):
        names |= {f"dataframe.{kind.__name__}.{name}" for name in _methods(kind)}
    return names - HANDED_ON


def _methods(kind: type) -> Iterator[str]:
    for name, method in inspect.getmembers(kind, callable):
        is_public = name == "__call__" or not name.startswith("_")
        module = getattr(method, "__module__", None) or ""  # of methods of scikit-learn its own
        if not is_public or name in METHODS_WITHOUT or not module.startswith("dask_gpuselect"):
            continue
        try:
            parameters = inspect.signature(method).parameters
        except ValueError:
            continue
        if set(parameters) - {"self", "args", "kwargs"}:
            yield name
