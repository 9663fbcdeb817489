"""Box plots of elements that weigh, against fractions, matplotlib's rules and `numpy.repeat`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import Box, describe_boxplot, explain
from dask_gpuselect.engine import loads as two_loads
from dask_gpuselect.maths import boxes
from dask_gpuselect.quantiles.weighted import WEIGHTED
from tests.data import cluster_at_the_fence, normal, uniform
from tests.features.test_boxplot import Shaped
from tests.kernels.test_weighing import WEIGHTS
from tests.matrix import definitions
from tests.matrix.laws import same
from tests.spies import noted


def box_of(values: NDArray[Any], weights: NDArray[Any], method: str, **more: Any) -> dict[str, Any]:
    """The box by definition."""
    takes = weights > 0
    slot = definitions.Slot(values[takes], weights[takes], int((~takes).sum()))
    how: dict[str, Any] = {"whis": 1.5, "max_fliers": 1000, "autorange": False}
    how |= {"nan_policy": "omit", "method": method} | more
    return definitions.box("describe_boxplot", slot, values.dtype, **how)


def assert_box(box: Box, expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        actual = getattr(box, name)
        np.testing.assert_array_equal(actual, value, err_msg=name)
    assert isinstance(box.n, float)


# --- All elements ---------------------------------------------------------------------------------


def test_sums_that_no_float64_holds() -> None:
    """What depends on shares alone is right."""
    for x in (np.arange(4.0), da.from_array(np.arange(4.0), chunks=2)):
        (box,) = describe_boxplot(x, weights=np.full(4, 1.7e308), method="inverted_cdf").compute()
        assert (box.n, box.q1, box.med, box.q3) == (np.inf, 0, 1, 2)


def test_a_box_of_weights_far_apart_holds_what_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact sum of such weights has 64 digits, and a thousand fliers of each side have one."""
    sizes = noted(monkeypatch, two_loads, "_resolve", lambda box, *_, **__: len(pickle.dumps(box)))
    x, w = (da.from_array(WEIGHTS[k](16_000), 2_000) for k in ("lognormal", "every magnitude"))
    describe_boxplot(x, weights=w).compute(scheduler="sync")
    assert sizes[0] < explain(x, lambda x: describe_boxplot(x, weights=w)).gathered_bytes


# --- Loads ----------------------------------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize("loads", [2, 3])
@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.usefixtures("nothing_kept")
def test_two_loads_and_a_third_where_it_is_needed(
    method: str, loads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: tuple[Any, ...] = np.exp, lambda u: 1 / (0.01 + u)  # the heaviest first
    if loads == 3:  # the fence is far away, where much else is; or all weigh nearly the same
        shapes = (lambda u: cluster_at_the_fence(u + 0.008), lambda u: 1 + u / 10_000)
        monkeypatch.setattr(boxes, "ROOM", 0)
        monkeypatch.setattr(boxes, "LEAST_ROOM", 8)
    source, weights = (Shaped(9_000, shape) for shape in shapes)
    arguments: dict[str, Any] = {"method": method, "max_fliers": 10}
    (box,) = describe_boxplot(source.lazy(1100), weights=weights.lazy(1100), **arguments).compute()
    everything = (slice(None),)
    assert_box(box, box_of(source.values(everything), weights.values(everything), **arguments))
    assert {*source.loads.values()} == {*weights.loads.values()} == {loads}


# --- Several arrays, and what is refused ----------------------------------------------------------


def test_weights_of_each_array() -> None:
    a, b = normal(500), normal(300)
    v, w = WEIGHTS["uniform"](500), WEIGHTS["lognormal"](300)
    mask = uniform(300) < 0.5
    alone = [describe_boxplot(a, weights=v), describe_boxplot(b, weights=w)]
    lazy = [da.from_array(a, chunks=90), b]
    for result in (
        describe_boxplot(lazy, weights=[v, da.from_array(w, chunks=50)]),
        describe_boxplot([a, b], weights=(v, w)),
        describe_boxplot({"a": lazy[0], "b": b}, weights={"b": w, "a": v}, labels=["", " "]),
    ):
        for box, (one,) in zip(result, alone, strict=True):
            same([box], [one])
    _, second = describe_boxplot([a, b], weights=[v, w], where=[True, mask])
    (one,) = describe_boxplot(b, weights=w, where=mask)
    same([second], [one])
    both = describe_boxplot([b, 2 * b], weights=w)
    assert both[1].med == 2 * both[0].med == 2 * alone[1][0].med


# --- To read --------------------------------------------------------------------------------------


def test_it_can_be_read_and_drawn() -> None:
    values = np.append(normal(500), [50.0, 60.0, 70.0])
    weights = np.full(503, 0.5)
    result = describe_boxplot(da.from_array(values, chunks=100), weights=weights, max_fliers=2)
    assert result.to_dict()["flier_weights"][0].tolist()[-2:] == [0.5, 0.5]
    assert "251.5" in repr(result.compute())
    drawn = result.plot()
    assert [each.get_text() for each in drawn.texts][-1] == f"fliers of weight {result[0].n_high:g}"
    assert "flier_weights" not in describe_boxplot(values).to_dict()
