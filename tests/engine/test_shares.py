"""Columns whose lanes are divided among several tasks: one load, and the answers of one task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, quantile
from dask_gpuselect.engine import plans
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad
from tests.data import normal, uniform
from tests.sources import Source

pytestmark = pytest.mark.any_dask

SHAPE = (41, 23, 30)
CHUNKS = ((20, 1, 20), (23,), (30,))
DAYS = np.arange(41) % 5
WINDOWS = {day: np.flatnonzero(abs(np.arange(41) % 7 - day) < 2) for day in range(1, 6)}

ASKED: Mapping[str, Callable[[da.Array, int], Any]] = {
    "quantile": lambda x, axis: quantile(x, [0.1, 0.5], axis=axis),
    "keepdims": lambda x, axis: quantile(x, 0.5, axis=axis, keepdims=True),
    "box": lambda x, axis: describe_boxplot(x, axis=axis),
    "mad": lambda x, axis: mad(x, axis=axis),
    "weights": lambda x, axis: quantile(
        x, 0.3, axis=axis, weights=1 + uniform(x.size).reshape(x.shape), method="inverted_cdf"
    ),
    "where": lambda x, axis: quantile(x, 0.3, axis=axis, where=normal(x.size).reshape(x.shape) > 0),
}
GROUPED: Mapping[str, Callable[[da.Array], Any]] = {
    "groups": lambda x: groupby(x, DAYS, axis=0).quantile([0.2, 0.9]),
    "boxes of groups": lambda x: groupby(x, DAYS, axis=0).describe_boxplot(),
    "windows": lambda x: groupby(x, WINDOWS, axis=0).median(),
    "labels that differ": lambda x: groupby(x, _checkered(x), axis=0, groups=[0, 1, 2]).median(),
}


def _checkered(x: da.Array) -> da.Array:
    labels = np.add.outer(np.arange(x.shape[0]), np.arange(x.shape[1]))[..., None] % 3
    return da.from_array(np.broadcast_to(labels, x.shape).copy(), chunks=x.chunks)


@pytest.fixture
def divides(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whether chunks as small as those of tests are divided."""
    return lambda is_wanted: monkeypatch.setattr(plans, "SHARE_BYTES", 1 if is_wanted else 1 << 40)


def assert_same(found: Any, wanted: Any) -> None:
    if not hasattr(wanted, "to_dict"):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        return
    others = wanted.to_dict()
    for name, value in found.to_dict().items():
        if not np.asarray(value).dtype.hasobject:
            np.testing.assert_array_equal(value, others[name], err_msg=name)
            continue
        for fliers, those in zip(value.flat, others[name].flat, strict=True):
            np.testing.assert_array_equal(fliers, those, err_msg=name)


def both(
    divides: Callable[[bool], None], ask: Callable[[da.Array], Any], chunks: Any
) -> tuple[Source, Any, Any]:
    """The source of the divided one, its answer, and that of one task."""
    divides(True)
    source = Source(SHAPE, "f4")
    found = dask.compute(ask(source.lazy(chunks)), scheduler="threads", num_workers=3)[0]
    divides(False)
    return source, found, dask.compute(ask(Source(SHAPE, "f4").lazy(chunks)), scheduler="sync")[0]


@pytest.mark.parametrize(
    ("name", "axis"), [*itertools.product(ASKED, [0, 1, (0, 2)]), *((name, 0) for name in GROUPED)]
)
def test_answers_in_one_load(divides: Callable[[bool], None], name: str, axis: Any) -> None:
    chunks = CHUNKS if axis == 0 else ((41,), (10, 13), (30,)) if axis == 1 else (20, 23, 13)
    ask = GROUPED.get(name) or partial(ASKED[name], axis=axis)
    source, found, wanted = both(divides, ask, chunks)
    assert_same(found, wanted)
    assert set(source.loads.values()) == {1}
