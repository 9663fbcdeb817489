"""Messages of errors: they say what was given, what is allowed, and what to type."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import array_api_strict as xp
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import xarray as xr

import dask_gpuselect.dataframe  # noqa: F401 -- df.exact
import dask_gpuselect.xarray  # noqa: F401 -- a.exact
from dask_gpuselect import (
    describe_boxplot,
    digitize,
    enable,
    explain,
    median,
    percentile,
    quantile,
    quantile_bins,
    sort,
    sort_by,
    to_gpu,
    warm,
)
from dask_gpuselect.arguments import MOST
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.expressions import as_source
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths import ranks
from dask_gpuselect.robust import LeastTrimmedSquares, iqr, mad
from dask_gpuselect.robust.questions import DeviationQuestion
from dask_gpuselect.robust.regression import MOST_STARTS
from dask_gpuselect.sorting.binning import MOST_BINS
from dask_gpuselect.strategies import Kelley
from dask_gpuselect.windows import median_filter, rolling
from tests.limits import limited
from tests.messages_table import Message, table
from tests.oracle import MIXED
from tests.refusals import Refusals, messages_of

X = da.arange(12, chunks=4).astype(float)
A = xr.DataArray(X, dims="time", coords={"time": np.arange(12)})
DF = dd.from_pandas(pd.DataFrame({"s": list("abc"), "v": [1.0, 2.0, 3.0]}), npartitions=2)
MORE = DF.assign(h=DF["v"].astype("f2"), b=DF["v"] > 1, k=DF["v"] // 2)
GROUPS = MORE.exact.groupby("k")
TWICE = dd.from_map(lambda _: DF.compute(), [0], meta=DF._meta).rename(columns={"s": "v"})
DAYS = dd.from_pandas(pd.DataFrame({"d": pd.date_range("2026-01-01", periods=4), "v": 1.0}), 2)
DAILY = dd.from_pandas(pd.Series(np.arange(4.0), pd.date_range("2026-01-01", periods=4)), 2)
MONTHS = A.assign_coords(time=pd.date_range("2026-01-01", periods=12).astype("M8[ns]"))
YEARS = xr.DataArray(
    np.ones((730, 1)),
    {"time": pd.date_range("2001-01-01", periods=730).astype("M8[ns]"), "station": ["a"]},
    ("time", "station"),
)
LAZY_Q = da.from_array([0.5], chunks=1)
OUTSIDE = (1.5, -0.25, -5e-324, np.inf, np.nextafter(1, 2))


def two_dtypes(limit: str, name: str) -> Any:
    """Ask for groups whose key is a bool in one partition, and an integer in another."""
    parts = [pd.DataFrame({"k": k, "v": [1.0, 2.0]}) for k in ([True, False], [1, 5])]
    frame = dd.from_map(lambda i: parts[i], range(2), meta=parts[0].iloc[:0])
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        answer = getattr(frame.exact.groupby("k")["v"], name)()
    return answer.compute(scheduler="sync")


def deviations() -> Asking:
    """Return the question of `mad`, which takes no strategy: no public function passes one on."""
    return Asking(as_source(X), DeviationQuestion.of(X.dtype, 1.0, skips_missing=False), (0,))


def no_room() -> Any:
    """Ask for boxes of columns of chunks that no plan can divide far enough."""
    with limited(8):
        return groupby(da.zeros((12, 2), chunks=(4, 1)), da.zeros(12, int, chunks=4), 0).median()


def unknown_size() -> Any:
    """Ask for medians along an axis while a setting is no size."""
    with dask.config.set({"dask_gpuselect.column-limit": "much"}):
        return median(da.zeros((12, 2), chunks=(4, 1)), axis=0)


MISTAKES: Refusals = {
    TypeError: {
        "no variable of integers or floats": lambda: xr.Dataset().exact.describe_boxplot(),
        "q must be real numbers, not of dtype <U4 ... pass for example 0.5": [
            lambda: A.exact.quantile("time", 0.5),
            lambda: A.exact.rolling(time=3).quantile("time"),
        ],
        **{
            f"q must be real numbers, not of dtype {dtype} ... : pass for example ": [
                partial(quantile, X, q) for q in some
            ]
            for dtype, some in (
                ("complex128", [[0.5, 0.5j]]),
                ("<U3", ["0.5"]),
                ("object", [None, {0.5}]),
                ("timedelta64", [np.timedelta64(1, "s")]),
            )
        },
        **{
            f"unexpected keyword argument '{name}'{advice}": partial(median, X, **{name: None})
            for name, advice in (
                ("out", ": assign the answer"),
                ("overwrite_input", ": leave it out"),
                ("interpolation", ": ... call it method"),
                ("dtype", ""),
            )
        },
        "axis must be None, an integer or a tuple of integers": [
            partial(median, X, axis) for axis in ("0", 0.5, [0.0, 1.0])
        ],
        "integer ... 'time': for xarray ... median": [
            lambda: median(X, "time"),
            lambda: quantile(X.reshape(3, 4), 0.5, "time", weights=np.ones(4)),
        ],
        "need an array of real numbers, bools or dates, not complex64": lambda: median(
            xp.ones((2,), dtype=xp.complex64)
        ),
        'would interpolate ... bool does not support ... method="lower"': [
            partial(quantile, X > 3, 0.5, method=method) for method in MIXED
        ],
        'method="linear" with weights does not support datetime64[s] ... : use method=': lambda: (
            quantile(X.astype("M8[s]"), 0.5, weights=np.ones(12))
        ),
        "float": lambda: YEARS.exact.groupby_dayofyear(window=1.5),
        "has dates": lambda: YEARS.exact.groupby_dayofyear("station"),
        "no kernels for complex128": lambda: warm([complex]),
        "no kernels for object": lambda: warm([object]),
        "'float33' not understood": lambda: warm("float33"),
        "q must be known at the call": [
            lambda: quantile(X, dask.delayed(0.5)),
            lambda: quantile(X, da.zeros(())),
            lambda: DF["v"].exact.quantile(DF["v"].mean()),
            lambda: GROUPS["v"].quantile(DF["v"].mean()),
        ],
        "q must be known ... : compute it first, q.compute": [
            partial(take_q, LAZY_Q)
            for take_q in (
                X.exact.percentile,
                X.exact.explain,
                groupby(X, [0, 1] * 6).quantile,
                A.exact.quantile,
                A.to_dataset(name="v").exact.quantile,
                A.exact.groupby((A.time % 2).rename("g")).quantile,
                DF.exact.quantile,
                DF["v"].exact.quantile,
                GROUPS.quantile,
                lambda q: iqr(X, q=q),
            )
        ],
        "integers or floats, not bool": (DF["v"] > 0).exact.describe,
        "no column of integers or floats": DF[["s"]].exact.describe,
        "axis is not supported ... leave out axis": lambda: DF["v"].exact.describe_boxplot(axis=0),
        "column 's' (dtype str ... numeric_only=True": [
            DF.exact.quantile,
            DF.exact.median,
            GROUPS.median,
            GROUPS.quantile,
            GROUPS["s"].median,
            GROUPS[["v", "s"]].quantile,
        ],
        "pandas does not support this for these groups": [GROUPS[k].quantile for k in "bh"],
        "no column of numbers": lambda: GROUPS[["s"]].median(numeric_only=True),
        "'median', 'quantile', 'count', not 'mean': type  ... dask's own": lambda: GROUPS["v"].agg(
            ["median", "mean"]
        ),
        "func must be a str or a list of str": lambda: GROUPS["v"].agg({"v": "median"}),
        "one selected column, not 4: type groups[": GROUPS.describe_boxplot,
        "column 's' ... : it must have numbers": GROUPS["s"].describe_boxplot,
        "an index of dates or durations, not": lambda: DF["v"].exact.rolling("1D"),
        "rolling windows need numbers, not datetime64 ... numeric_only=True": [
            lambda: DAYS["d"].exact.rolling(3),
            lambda: DAYS.exact.rolling(3),
        ],
        "all elements of each variable ... ds[name].exact.describe_boxplot(dim)": [
            lambda: A.to_dataset(name="v").exact.describe_boxplot(dim="time"),
            lambda: A.to_dataset(name="v").exact.describe_boxplot(axis=0),
        ],
        "a number of elements, not '7D': pass for example 7": [
            lambda: A.exact.rolling(time="7D"),
            lambda: A.exact.rolling({"time": "7D"}),
        ],
        "no dimension has that name: type ... windows.rolling(a.data, {axis: size}, ": [
            lambda: A.exact.rolling(time=3, closed="left"),
            lambda: A.exact.rolling({"time": 3}, step=2),
        ],
        "for each variable": lambda: (
            MONTHS.to_dataset(name="v").exact.groupby("time.month").describe_boxplot()
        ),
        "axis is not supported ... pass dim=": lambda: A.exact.median(axis=0),
        "keepdims is not supported ... pass dim=": lambda: A.exact.quantile(0.5, keepdims=True),
        "by must be known ... name of a column ... df.assign(key=...)": lambda: DF.exact.groupby(
            DF["v"].values
        ),
        "methods of groups take no strategy ... leave out": lambda: groupby(
            X, [0, 1] * 6, 0
        ).quantile(0.5, strategy="kelley"),
        "strategy= is not supported for this function ... leave it out": lambda: ask(
            deviations(), "mad", Kelley()
        ),
        "q is masked ... pass its unmasked values, q.compressed()": lambda: quantile(
            X, np.ma.array([0.5])
        ),
        "must be a dask array, not a DataArray ... x.data of xarray": lambda: median(A),
        "must be a dask array, not ndarray ... pass da.from_array(a)": lambda: explain(np.ones(3)),
        "where must have dtype bool, not float64 ... pass where.astype(bool)": lambda: median(
            X, where=np.ones(12)
        ),
        "where must be an array of bool, such as x > 3, not str": lambda: median(X, where="x > 3"),
        "weights must be real numbers ... complex128 ... pass weights.astype(float)": lambda: (
            quantile(X, 0.5, weights=1j * np.ones(12))
        ),
        "integers or floats, not bool ... pass x.astype('int8')": lambda: iqr(X > 3),
        "weights must be an array of real numbers, not str": lambda: quantile(X, 0.5, weights="w"),
        "bins must be an array of real numbers, not str": lambda: digitize(X, "quartiles"),
        "where is masked ... fill the masked elements first": lambda: median(
            X.compute(), where=np.ma.array([True] * 12)
        ),
        "a has shape (3, 4) ... weights (4,) ... pass axis=": lambda: quantile(
            X.reshape(3, 4), 0.5, weights=np.ones(4)
        ),
        "weighted elements does not take out: pass arguments of dask_gpuselect.perc": lambda: (
            replaced_percentile(out=1, weights=np.ones(12))
        ),
        "method='lower' ... interpolation='higher' ... pass method alone": lambda: (
            replaced_percentile(method="lower", interpolation="higher")
        ),
        "groups must be numbers ... not strings ... groups=[0]": lambda: groupby(
            X, [0, 1] * 6, 0, groups=["a"]
        ),
        "dtypes in different partitions ... df.astype({key: ...})": [
            partial(two_dtypes, limit, name)
            for limit in ("1 GiB", "20 MB")  # one root, and several
            for name in ("median", "count")
        ],
        "box plots need integers or floats ... not datetime64[s] ... pass x.astype('int64')": (
            lambda: describe_boxplot(X.astype("M8[s]"))
        ),
        "sort takes bool, integers ... not complex128: pass a.real": lambda: sort(X + 0j),
        "size must be an integer, not 2.5": lambda: median_filter(X, size=2.5),  # type: ignore[arg-type]
        "x of dtype float64 ... datetime64[D] ... bins.astype(x.dtype)": lambda: digitize(
            X, np.array(["2025-01-01"], "M8[D]")
        ),
        "takes a dask array, not list: ... type cupy.asarray(x)": lambda: to_gpu([1, 2]),
        "unexpected keyword argument 'axis': leave it out; for arrays, median": [
            lambda: sort(X, axis=0),
            lambda: DF["v"].exact.quantile(0.5, axis=0),
        ],
        "'as_index': ... type answer.reset_index()": partial(DF.exact.groupby, "v", as_index=False),
        "unexpected keyword argument 'center': leave it out": lambda: mad(X, center=np.mean),
        "mad() got an unexpected keyword argument 'center'": lambda: A.exact.mad(center=0),
        "iqr() got an unexpected keyword": lambda: A.exact.rolling(time=3).iqr(center=0),
        "nanmad(dim) takes no further positional": lambda: A.exact.nanmad("time", True),
        "trimmed_mean(dim) takes no further positional ... by name, proportiontocut=, where=": [
            lambda: xr.DataArray(X, dims="t").exact.trimmed_mean("t", 0.1),
            lambda: xr.DataArray(X, dims="t").exact.groupby("t").trimmed_mean("t", 0.1),
        ],
        "median(a, axis) takes no further positional ... others by name, keepdims=, where=": [
            lambda: median(X, 0, True),  # type: ignore[call-overload]
            lambda: X.exact.median(0, True),
        ],
        "count() takes no further positional arguments: leave out others": (
            lambda: DF.exact.groupby("v").count(1)
        ),
        "mad() takes no further ... scale=, keep_attrs=": lambda: A.exact.rolling(time=3).mad("t"),
        "quantile() got multiple values": lambda: A.exact.rolling(time=3).quantile(0.5, q=0.5),
        "mad() needs the argument x": lambda: mad(scale=1.0),  # type: ignore[call-overload]
        "type a.median(), a.explain(q) or another": lambda: explain(groupby(X, [0, 1] * 6, 0)),
    },
    ValueError: {
        **{
            f"q must be in [0, {most}], not {float(q)}": partial(ask_q, X, [most / 2, q])
            for ask_q, most, some in ((quantile, 1, OUTSIDE), (percentile, 100, (100.5, -1)))
            for q in (*some, np.nan)
        },
        f"'Linear' is not a valid method. Use one of: {', '.join(ranks.METHODS)}": lambda: quantile(
            X, 0.5, method="Linear"
        ),
        "Only methods inverted_cdf, ... weights. Got: hazen": lambda: quantile(
            X, 0.5, weights=np.ones(12), method="hazen"
        ),
        "Shape of weights must be consistent with sh": lambda: quantile(
            X.reshape(3, 4), 0.5, 0, weights=np.ones(5)
        ),
        **{
            f"scalar or one-dimensional, not of shape {np.shape(q)}": [
                partial(A.exact.quantile, q),
                partial(DF["v"].exact.quantile, q),
            ]
            for q in ([[0.5]], np.zeros((2, 3)), np.zeros((0, 3)))
        },
        "repeated axis": lambda: median(X, (0, -1)),
        "a is an empty dict: pass at": [partial(ask, {}) for ask in (median, describe_boxplot)],
        "n_bins must be at most 1,048,576, not 1,048,577": lambda: quantile_bins(X, MOST_BINS + 1),
        "points must be at most 16,777,216, not 16,777,217": lambda: ecdf(X, MOST + 1),
        "the number of groups must be at most 16,777,216": lambda: groupby(
            X, da.arange(12, chunks=4), groups=range(10**9)
        ),
        f"n_starts must be at most {MOST_STARTS:,}": lambda: LeastTrimmedSquares(
            n_starts=MOST_STARTS + 1
        ).fit(np.ones((9, 2)), np.arange(9)),
        "at least 1": lambda: YEARS.exact.groupby_dayofyear(window=0),
        "window must be smaller than 400": lambda: YEARS.exact.groupby_dayofyear(window=400),
        "must ascend": lambda: YEARS[::-1].exact.groupby_dayofyear(),
        "one axis": lambda: YEARS.exact.groupby_dayofyear().median(...),
        "q must be in [0, 1]": [
            lambda: DF["v"].exact.quantile(1.5),
            lambda: GROUPS["v"].quantile(1.5),
            lambda: DF["v"].exact.rolling(3).quantile(8),
        ],
        "'nonsense'": [
            lambda: DF["v"].exact.quantile(0.5, interpolation="nonsense"),
            lambda: GROUPS["v"].quantile(0.5, interpolation="nonsense"),
        ],
        "axis must be 0": lambda: DF.exact.quantile(0.5, axis=1),
        "percentiles": lambda: DF["v"].exact.describe([0.5, 2]),
        "at least one column, and distinct ones": [
            lambda: DF.exact.groupby([]),
            lambda: DF.exact.groupby(["s", "s"]),
        ],
        "not 's': pass by.rename(\"key\")": lambda: DF.exact.groupby(DF["s"].isna()),
        "observed must be True ... type answer.reindex": lambda: DF.exact.groupby(
            "s", observed=False
        ),
        "must be distinct": lambda: TWICE.exact.groupby("v"),
        "describe and describe_boxplot need ... sort=True ... leave out sort and dropna": [
            lambda: DF.exact.groupby("s", sort=False)["v"].describe_boxplot(),
            lambda: MORE.astype({"k": "Int64"}).exact.groupby("k", dropna=False)["v"].describe(),
        ],
        "window must be 1 or more": lambda: DF["v"].exact.rolling(0),
        "q must be a scalar for a DataFrame": lambda: DF[["v"]].exact.rolling(3).quantile([0.5]),
        "q must be a scalar or one-dimensional": lambda: DF["v"].exact.rolling(3).quantile([[0.5]]),
        "a fixed time, such as \"7D\", not 'ME'": lambda: DAILY.exact.rolling("ME"),
        "window must be a time above 0": lambda: DAILY.exact.rolling("-1D"),
        'closed must be "right"': lambda: DAILY.exact.rolling("1D", closed="x"),
        "not found": [
            lambda: A.exact.describe_boxplot(["time", "nowhere"]),
            lambda: MONTHS.exact.groupby("time.month").median(["time", "nowhere"]),
        ],
        "exact": lambda: A.exact.median(where=A.isel(time=slice(1, None)) > 0),
        "where has dimensions": lambda: A.exact.median(where=xr.DataArray([True], dims="z")),
        "not 99.5: pass 0.995 for 99.5 %": lambda: quantile(X, [0.5, 99.5]),
        "strategy= is not supported along an axis ... leave out axis or strategy": lambda: quantile(
            X.reshape(3, 4), 0.5, axis=0, strategy="kelley"
        ),
        "strategy= does not support weights ... leave out strategy or weights": lambda: quantile(
            X, 0.5, weights=np.ones(12), strategy="kelley"
        ),
        "q must be in [0, 1], not 25 ... pass 0.25 for 25 %": [
            partial(ask, X, 25) for ask in (quantile, explain)
        ],
        "by is one-dimensional ... shape (3, 4) ... pass axis=": lambda: groupby(
            X.reshape(3, 4), [0, 1, 1]
        ),
        "All-zero footprint ... pass one with a True element": lambda: median_filter(
            X, footprint=[False, False]
        ),
        "one label for each box ... pass 1, not 2": lambda: describe_boxplot(X, labels=["a", "b"]),
        "chunks must not be given ... x.compute_chunk_sizes() ... leave out chunks": lambda: sort(
            X[X > 3], chunks=2
        ),
        "not ((4, 4, 4), (1, 1)): type value.rechunk((key.chunks[0], *value.shape[1:]))": lambda: (
            sort_by(X, X[:, None].repeat(2, axis=1).rechunk((4, 1)))
        ),
        "bins must ascend or descend ... sort": lambda: digitize(X, [1.0, 3.0, 2.0]),
        "two ascending numbers ... such as (0.25, 0.75) ... not (0.75, 0.25)": lambda: iqr(
            X, q=(0.75, 0.25)
        ),
        "x has 2 dimensions ... pass axis= ... {0: 5}": lambda: rolling(X.reshape(3, 4), 3),
        "chunks of known sizes ... type x.compute_chunk_sizes() first": lambda: rolling(
            X[X > 3], 3
        ).median(),
        "must be among ... 'quantiles' ... 'sorting' ... 'sums' is none": lambda: warm(
            ["f8"], ["sums"]
        ),
        "column-limit is 8 B ... columns of 3 chunks ... increase it ... dask.config.set(": no_room,
        "column-limit must be a number of bytes ... such as '500 MB' ... not 'much'": unknown_size,
    },
    AttributeError: {
        "'mean': type df.groupby(keys).mean()": lambda: GROUPS.mean(),
        "'q1': it is a sequence of boxes ... boxplot[0].q1 ... boxplot.to_dict()[\"q1\"]": lambda: (
            describe_boxplot(X).q1
        ),
        "'median': it is a sequence of boxes ... boxplot[0].med": lambda: (
            describe_boxplot(X).median
        ),
        "'mean': type trimmed_mean(0.0)": lambda: groupby(X, [0, 1] * 6).mean(),
        "'sum': it has count, describe_boxplot ... trimmed_mean": lambda: groupby(
            X, [0, 1] * 6
        ).sum(),
        "'mean': type x.mean(), its own method": lambda: X.exact.mean(),
        "'mean': type a.mean(), its own method": lambda: A.exact.mean(),
        "'mean': type a.groupby(...).mean(), its": lambda: A.exact.groupby("time").mean(),
        "'mean': type a.rolling(...).mean(), its": lambda: A.exact.rolling(time=3).mean(),
        "'mean': type s.mean(), its own method": lambda: DF["v"].exact.mean(),
        "'mean': type df.mean(), its own method": lambda: DF.exact.mean(),
        "'w': the frame has no such column, and it has agg, count": lambda: DF.exact.groupby("s").w,
        "'v' is selected already, and it has agg, count": lambda: DF.exact.groupby("s")["v"].v,
        '\'v\': type df.exact["v"], or df.exact.groupby(keys)["v"]': lambda: DF.exact.v,
        "'w': it has describe, describe_boxplot": lambda: DF.exact.w,
        "'time': it has describe_boxplot, explain": lambda: A.exact.time,
        "'mean': it has count, iqr, mad, max,": lambda: rolling(X, 3).mean(),
        "'mean': type df.rolling(window).mean(), its own method": lambda: (
            DF["v"].exact.rolling(2).mean()
        ),
    },
    np.exceptions.AxisError: {
        "axis 0 is out of bounds": [
            partial(ask, a, axis=0)
            for ask in (median, partial(quantile, q=0.5))
            for a in (da.zeros(()), np.array(1.0), 1.0)
        ],
        "axis 2 is out of bounds for array of dimension 2": [
            lambda axis=axis: median(X.reshape(3, 4), axis) for axis in (2, (0, 1, 2))
        ],
    },
    IndexError: {
        "selected already ... in one list": lambda: GROUPS["v"]["v"],
        "all elements are left out ... int64 has no NaN ... take fill_value=": lambda: quantile(
            X.astype(int), 0.5, method="lower", where=False
        ).compute(),
        "box 1 does not exist ... is 1": lambda: describe_boxplot(X)[1],
        "empty array ... quantile ... take fill_value=": lambda: iqr(np.zeros(0)),
    },
    KeyError: {
        "by must be the name of a column, ['s', 'v'] ... Series ... df.assign(key=...)": [
            partial(DF.exact.groupby, by)
            for by in ("nothing", ["s", "nothing"], len, [["s"]], pd.Series([1, 1, 2]))
        ],
        "nothing": lambda: GROUPS["nothing"],
    },
}


def replaced_percentile(**how: Any) -> Any:
    """Call dask's function while it is replaced."""
    with enable():
        return da.percentile(X, 50, **how)


test_messages = messages_of(MISTAKES)


# --- Every message --------------------------------------------------------------------------------

RIDDLE = re.compile(r"^(what|of|that|those|these|none|where(?! must)|if|how)\b", re.IGNORECASE)
ENGINE = re.compile(r"\b(lane|companion|load|report|at once|one place)s?\b")


def told(row: Message) -> str:
    """Return the text of a message without the code in it."""
    return re.sub(r"\{.*?\}|`.*?`", "{}", row.text)


def test_every_message_has_its_subject_and_the_words_of_numpy_and_dask() -> None:
    """The words of the engine are for its code: a user reads chunks, masks, weights, 1-D slices."""
    rows = [row for row in table() if " " in row.text]
    assert len(rows) > 250
    assert {"ValueError", "TypeError", "RuntimeWarning"} <= {row.exception for row in rows}
    assert [row for row in rows if RIDDLE.match(told(row))] == []
    assert [row for row in rows if ENGINE.search(told(row))] == []
