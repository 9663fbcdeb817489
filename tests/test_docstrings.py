"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["boxplot", "interpolation", "quantiles", "ranks"])
def test_examples(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"dask_gpuselect.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
