"""Messages of errors: they say what was given, what is allowed, and what to type."""

from __future__ import annotations

import re
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dask_gpuselect.dataframe  # noqa: F401 -- df.exact
import dask_gpuselect.xarray  # noqa: F401 -- a.exact
from dask_gpuselect import (
    describe_boxplot,
    digitize,
    enable,
    explain,
    median,
    order_statistic,
    quantile,
    sort,
    sort_by,
    to_gpu,
    warm,
)
from dask_gpuselect.engine.asking import Asking, ask
from dask_gpuselect.engine.expressions import as_source
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr
from dask_gpuselect.robust.questions import DeviationQuestion
from dask_gpuselect.strategies import Kelley
from dask_gpuselect.windows import rolling
from tests.limits import limited
from tests.messages_table import Message, table
from tests.refusals import Refusal, each_of

X = da.arange(12, chunks=4).astype(float)
A = xr.DataArray(X, dims="time", coords={"time": np.arange(12)})
DF = dd.from_pandas(pd.DataFrame({"s": list("abc"), "v": [1.0, 2.0, 3.0]}), npartitions=2)


def two_dtypes() -> Any:
    """Ask for groups whose key is a bool in one partition, and an integer in another."""
    parts = [pd.DataFrame({"k": k, "v": [1.0, 2.0]}) for k in ([True, False], [1, 5])]
    frame = dd.from_map(lambda i: parts[i], range(2), meta=parts[0].iloc[:0])
    return frame.exact.groupby("k")["v"].median().compute(scheduler="sync")


def deviations() -> Asking:
    """Return the question of `mad`, which takes no strategy: no public function passes one on."""
    return Asking(as_source(X), DeviationQuestion.of(X.dtype, 1.0, skips_missing=False), (0,))


MISTAKES: list[Refusal] = [
    (lambda: A.exact.median(axis=0), TypeError, "axis is not supported ... pass dim="),
    (
        lambda: A.exact.quantile(0.5, keepdims=True),
        TypeError,
        "keepdims is not supported ... pass dim=",
    ),
    (
        lambda: DF.exact.groupby(DF["v"].values),
        TypeError,
        "by must be known ... name of a column ... df.assign(key=...)",
    ),
    (
        lambda: DF.exact.quantile(0.5),
        TypeError,
        "quantiles of column 's' ... dtype str ... pass numeric_only=True",
    ),
    (
        lambda: groupby(X, [0, 1] * 6, 0).quantile(0.5, strategy="kelley"),
        TypeError,
        "methods of groups take no strategy ... leave out",
    ),
    (
        lambda: ask(deviations(), "mad", Kelley()),
        TypeError,
        "strategy= is not supported for this function ... leave it out",
    ),
    (
        lambda: quantile(X.reshape(3, 4), 0.5, axis=0, strategy="kelley"),
        ValueError,
        "strategy= is not supported along an axis ... leave out axis or strategy",
    ),
    (
        lambda: quantile(X, 0.5, weights=np.ones(12), strategy="kelley"),
        ValueError,
        "strategy= does not support weights ... leave out strategy or weights",
    ),
    (
        lambda: order_statistic(X, 1, strategy="sorted"),
        ValueError,
        "unknown strategy 'sorted' ... choose from kelley",
    ),
    (lambda: quantile(X, 25), ValueError, "q must be in [0, 1], not 25 ... pass 0.25 for 25 %"),
    (
        lambda: quantile(X, np.ma.array([0.5])),
        TypeError,
        "q is masked ... pass its unmasked values, q.compressed()",
    ),
    (
        lambda: quantile(X, X.mean() / 12),
        TypeError,
        "q must be known ... compute it first, q.compute()",
    ),
    (lambda: median(A), TypeError, "must be a dask array, not a DataArray ... x.data of xarray"),
    (
        lambda: explain(np.ones(3)),
        TypeError,
        "must be a dask array, not ndarray ... pass da.from_array(a)",
    ),
    (
        lambda: median(X, where=np.ones(12)),
        TypeError,
        "where must have dtype bool, not float64 ... pass where.astype(bool)",
    ),
    (
        lambda: median(X, where="x > 3"),
        TypeError,
        "where must be an array of bool, such as x > 3, not str",
    ),
    (
        lambda: quantile(X, 0.5, weights="w"),
        TypeError,
        "weights must be an array of real numbers, not str",
    ),
    (lambda: digitize(X, "quartiles"), TypeError, "bins must be an array of real numbers, not str"),
    (
        lambda: median(X.compute(), where=np.ma.array([True] * 12)),
        TypeError,
        "where is masked ... fill the masked elements first",
    ),
    (
        lambda: describe_boxplot(X).q1,
        AttributeError,
        "'q1': it is a sequence of boxes ... boxplot[0].q1 ... boxplot.to_dict()[\"q1\"]",
    ),
    (
        lambda: describe_boxplot(X).median,
        AttributeError,
        "'median': it is a sequence of boxes ... boxplot[0].med",
    ),
    (lambda: groupby(X, [0, 1] * 6).mean(), AttributeError, "'mean': type trimmed_mean(0.0)"),
    (
        lambda: groupby(X, [0, 1] * 6).sum(),
        AttributeError,
        "'sum': it has count, describe_boxplot ... trimmed_mean",
    ),
    (lambda: X.exact.mean(), AttributeError, "'mean': type x.mean(), its own method"),
    (lambda: A.exact.mean(), AttributeError, "'mean': type a.mean(), its own method"),
    (
        lambda: A.exact.groupby("time").mean(),
        AttributeError,
        "'mean': type a.groupby(...).mean(), its own method",
    ),
    (
        lambda: A.exact.rolling(time=3).mean(),
        AttributeError,
        "'mean': type a.rolling(...).mean(), its own method",
    ),
    (lambda: DF["v"].exact.mean(), AttributeError, "'mean': type s.mean(), its own method"),
    (lambda: DF.exact.mean(), AttributeError, "'mean': type df.mean(), its own method"),
    (
        lambda: DF.exact.groupby("s").w,
        AttributeError,
        "'w': the frame has no such column, and it has agg, count",
    ),
    (
        lambda: DF.exact.groupby("s")["v"].v,
        AttributeError,
        "'v' is selected already, and it has agg, count",
    ),
    (lambda: DF.exact.v, AttributeError, "'v': it has describe, describe_boxplot"),
    (lambda: A.exact.time, AttributeError, "'time': it has describe_boxplot, explain"),
    (lambda: rolling(X, 3).mean(), AttributeError, "'mean': it has count, iqr, mad, max,"),
    (
        lambda: DF["v"].exact.rolling(2).mean(),
        AttributeError,
        "'mean': type df.rolling(window).mean(), its own method",
    ),
    (
        lambda: quantile(X.reshape(3, 4), 0.5, weights=np.ones(4)),
        TypeError,
        "a has shape (3, 4) ... weights (4,) ... pass axis=",
    ),
    (
        lambda: quantile(X.astype(int), 0.5, method="lower", where=False).compute(),
        IndexError,
        "all elements are left out ... int64 has no NaN ... pass fill_value=",
    ),
    (
        lambda: replaced_percentile(method="lower", interpolation="higher"),
        TypeError,
        "method='lower' ... interpolation='higher' ... pass method alone",
    ),
    (
        lambda: groupby(X.reshape(3, 4), [0, 1, 1]),
        ValueError,
        "by is one-dimensional ... shape (3, 4) ... pass axis=",
    ),
    (
        lambda: groupby(X, [0, 1] * 6, 0, groups=["a"]),
        TypeError,
        "groups must be numbers ... not strings ... groups=[0]",
    ),
    (two_dtypes, TypeError, "dtypes in different partitions ... df.astype({key: ...})"),
    (
        lambda: describe_boxplot(X, labels=["a", "b"]),
        ValueError,
        "one label for each box ... pass 1, not 2",
    ),
    (
        lambda: describe_boxplot(X.astype("M8[s]")),
        TypeError,
        "box plots need integers or floats ... not datetime64[s]",
    ),
    (
        lambda: sort(X[X > 3], chunks=2),
        ValueError,
        "chunks must not be given ... x.compute_chunk_sizes() ... leave out chunks",
    ),
    (
        lambda: sort_by(X, X.rechunk(6)),
        ValueError,
        "the chunks of the key, (4, 4, 4) ... not ((6, 6),) ... rechunk({0: key.chunks[0]})",
    ),
    (lambda: sort(X.reshape(3, 4)), ValueError, "not of shape (3, 4) ... pass x.ravel()"),
    (lambda: digitize(X, [1.0, 3.0, 2.0]), ValueError, "bins must ascend or descend ... sort"),
    (
        lambda: digitize(X, np.array(["2025-01-01"], "M8[D]")),
        TypeError,
        "x of dtype float64 ... datetime64[D] ... bins.astype(x.dtype)",
    ),
    (
        lambda: iqr(X, q=(0.75, 0.25)),
        ValueError,
        "two ascending numbers ... such as (0.25, 0.75) ... not (0.75, 0.25)",
    ),
    (
        lambda: rolling(X.reshape(3, 4), 3),
        ValueError,
        "x has 2 dimensions ... pass axis= ... {0: 5}",
    ),
    (
        lambda: rolling(X[X > 3], 3).median(),
        ValueError,
        "chunks of known sizes ... type x.compute_chunk_sizes() first",
    ),
    (lambda: to_gpu(np.ones(3)), TypeError, "not ndarray ... type cupy.asarray(x)"),
    (lambda: warm(["f8"], ["sums"]), ValueError, "'quantiles' ... 'sums' is none of them"),
    (
        lambda: too_small_columns(),
        ValueError,
        "column-limit is 8 B ... columns of 3 chunks ... increase it ... dask.config.set(",
    ),
    (
        lambda: unknown_size(),
        ValueError,
        "column-limit must be a number of bytes ... such as '500 MB' ... not 'much'",
    ),
    (
        lambda: DF.exact.groupby(pd.Series([1, 1, 2])),
        KeyError,
        "must be the name of a column, ['s', 'v'] ... Series ... df.assign(key=...)",
    ),
    (lambda: sort(X, axis=0), TypeError, "unexpected keyword argument 'axis' ... groupby take one"),
    (lambda: describe_boxplot(X).q1, AttributeError, "no attribute 'q1' ... boxplot[0].q1"),
    (lambda: describe_boxplot(X)[1], IndexError, "box 1 does not exist ... is 1"),
    (lambda: iqr(np.zeros(0)), IndexError, "empty array ... quantile ... take fill_value="),
    (
        lambda: A.to_dataset(name="v").exact.describe_boxplot("time"),
        TypeError,
        "all elements of each variable ... ds[name].exact.describe_boxplot(dim)",
    ),
    (lambda: median(X, where=len), TypeError, "where must be an array of bool ... not builtin"),
    (lambda: order_statistic(X, 12), IndexError, "k=12 is out of range ... 12 elements"),
]


def replaced_percentile(**how: Any) -> Any:
    """Call dask's function while it is replaced."""
    with enable():
        return da.percentile(X, 50, **how)


def too_small_columns() -> Any:
    """Ask for boxes of columns of chunks that no plan can divide far enough."""
    with limited(8):
        return groupby(da.zeros((12, 2), chunks=(4, 1)), da.zeros(12, int, chunks=4), 0).median()


def unknown_size() -> Any:
    """Ask for medians along an axis while a setting is no size."""
    with dask.config.set({"dask_gpuselect.column-limit": "much"}):
        return median(da.zeros((12, 2), chunks=(4, 1)), axis=0)


@each_of(MISTAKES)
def test_messages(call: Any, error: Any, message: str) -> None:
    """Each has its words, in this order."""
    words = ".*".join(map(re.escape, message.split(" ... ")))
    with pytest.raises(error, match=f"(?s){words}"):
        call()


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
