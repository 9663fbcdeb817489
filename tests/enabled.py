"""A plugin for pytest: all tests with dask's functions replaced by ours."""

from __future__ import annotations

import pytest

from dask_gpuselect import enable

NOT_AS_BEFORE = {
    "test_quantile_func_family_with_axis_none": "dask raises",
    "test_median_does_not_rechunk_if_whole_axis_in_one_chunk[1-median]": "asserts a rechunk",
    "test_median_does_not_rechunk_if_whole_axis_in_one_chunk[1-nanmedian]": "the same",
    "test_percentile[dask]": "of strings: they are approximate, and a warning says so",
    "test_percentile[tdigest]": "the same",
    "test_nanquantile_all_nan": "dask does not warn where NumPy does",
}
"""Dask's own tests that do not pass, and why; all variants, where none is named."""

NOT_OURS = {
    "test_quantile_weights_non_last_axis": "96 cases of what `test_quantile_weights` asks in 32",
}
"""What takes long, and asks no more than another test."""


def pytest_configure() -> None:
    enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = {item: {item.name, item.name.partition("[")[0]} for item in items}
    items[:] = [item for item in items if not names[item] & {*NOT_AS_BEFORE, *NOT_OURS}]
