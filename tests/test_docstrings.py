"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

import dask_gpuselect


@pytest.mark.parametrize(
    "module",
    [
        "binning",
        "boxplot",
        "distribution.cdf",
        "distribution.empirical",
        "distribution.isotonic",
        "distribution.splines",
        "interpolation",
        "methods",
        "neighbors.estimators",
        "neighbors.search",
        "quantiles",
        "ranks",
        "robust.regression",
        "robust.spread",
        "sorting",
        "xarray",
    ],
)
def test_examples(module: str) -> None:
    public = {name: getattr(dask_gpuselect, name) for name in dask_gpuselect.__all__}
    results = doctest.testmod(
        importlib.import_module(f"dask_gpuselect.{module}"), extraglobs=public
    )
    assert results.attempted > 0
    assert results.failed == 0
