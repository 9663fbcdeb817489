"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

import dask_gpuselect


@pytest.mark.parametrize(
    "module",
    [
        "boxplot.describe",
        "dataframe.accessors",
        "distribution.cdf",
        "distribution.empirical",
        "distribution.estimated",
        "distribution.isotonic",
        "distribution.quadratic",
        "distribution.rational",
        "groups.functions",
        "maths.interpolation",
        "maths.ranks",
        "methods",
        "neighbors.estimators",
        "neighbors.functions",
        "quantiles.functions",
        "robust.regression",
        "robust.spread",
        "sorting.binning",
        "sorting.functions",
        "xarray.accessors",
        "xarray.groups",
    ],
)
def test_examples(module: str) -> None:
    public = {name: getattr(dask_gpuselect, name) for name in dask_gpuselect.__all__}
    results = doctest.testmod(
        importlib.import_module(f"dask_gpuselect.{module}"), extraglobs=public
    )
    assert results.attempted > 0
    assert results.failed == 0
