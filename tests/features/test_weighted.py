"""Weighted quantiles of all elements: exact, and the same however the elements are cut up."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import explain, nanquantile, quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.quantiles.weighted import WEIGHTED, WeightedQuantiles
from tests.data import normal
from tests.kernels.test_weighing import WEIGHTS
from tests.limits import limited
from tests.spies import noted

# --- What takes no part ---------------------------------------------------------------------------


SHAPE = (300, 2, 4)
COLUMN = SHAPE[0] * 2 * 2 * 16  # bytes, of chunks (_, 2, 2)


@pytest.mark.parametrize("limit", [1 << 30, int(COLUMN * 0.4)], ids=["column", "passes"])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"Weights must be non-negative\."),
        (np.nan, r"Weights included NaN, inf or were all zero\."),
        (np.inf, r"Weights included NaN, inf or were all zero\."),
        (0.0, r"Weights included NaN, inf or were all zero\."),
        (2.0**63, r"below 2\*\*63"),
    ],
)
def test_wrong_weights_of_a_lane(weight: float, message: str, limit: int) -> None:
    weights = np.ones(SHAPE, np.uint64 if weight == 2.0**63 else np.float64)
    weights[:, 1, 2] = weight
    x = da.from_array(normal(2400).reshape(SHAPE), chunks=(30, 2, 2)).map_blocks(np.copy)
    with limited(limit):
        lazy = quantile(x, [0.1, 0.5, 0.9], 0, method="inverted_cdf", weights=weights)
        assert explain(x, 0.5, axis=0, weights=weights).name == (
            "passes" if limit < COLUMN else "column"
        )
    with pytest.raises(ValueError, match=message):
        lazy.compute(scheduler="sync")


def test_no_quantiles() -> None:
    for method in WEIGHTED:
        lazy = quantile(da.arange(5.0, chunks=2), (), method=method, weights=np.ones(5))
        assert lazy.compute().shape == (0,)


# --- Loads ----------------------------------------------------------------------------------------


def test_what_is_told_is_what_comes_to_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that `explain` gives bound the cuts, and are no more than three times theirs."""

    def size(_: Any, question: WeightedQuantiles, cuts: Any) -> int:
        columns = cuts.by_name().values()
        return sum(each.nbytes for each in columns if len(each) == len(cuts.pivots))

    sizes = noted(monkeypatch, WeightedQuantiles, "bracket", size)
    for name in ("equal", "lognormal"):
        x = da.from_array(normal(40_000), chunks=4000)
        w = da.from_array(WEIGHTS[name](40_000), chunks=4000)
        stated = explain(x, [0.5], weights=w).gathered_bytes
        quantile(x, [0.5], method="inverted_cdf", weights=w).compute(scheduler="sync")
        assert sizes[-1] <= stated <= 3 * sizes[-1]


# --- Lanes on a device ----------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(2, 5), (5, 2)])
def test_weights_of_0_are_refused_for_valid_elements_only(chunks: Any) -> None:
    """A slice of NaN is answered by NaN or by `fill_value`, whatever its elements weigh."""
    a, weights = np.ones((4, 5)), np.ones((4, 5))
    a[1], weights[1] = np.nan, 0
    x = da.from_array(a, chunks=chunks)
    by_rows: dict[str, Any] = {"weights": weights, "axis": 1}
    whole: dict[str, Any] = {"weights": weights[1]}
    for method in ("inverted_cdf", "linear"):
        for fill, answer in ((None, np.nan), (7.0, 7.0)):
            how: dict[str, Any] = {"method": method, "fill_value": fill}
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
                result = nanquantile(x, 0.5, **by_rows, **how).compute()
                np.testing.assert_array_equal(result, [1, answer, 1, 1])
                np.testing.assert_array_equal(nanquantile(x[1], 0.5, **whole, **how), answer)
                grouped = groupby(x[1], np.zeros(5, int)).nanquantile(0.5, **whole, **how)
                np.testing.assert_array_equal(grouped, [answer])
                np.testing.assert_array_equal(quantile(x[1], 0.5, **whole, **how), answer)
    a[1, 2] = 3
    x = da.from_array(a, chunks=chunks)
    for b, how in ((x, by_rows), (x[1], whole)):
        with pytest.raises(ValueError, match="all zero"):
            nanquantile(b, 0.5, **how, method="inverted_cdf", fill_value=7).compute()
