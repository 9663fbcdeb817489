"""Elements that a device sorts: the answers about groups and about all are those of the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, kernels
from dask_gpuselect.boxplot import Box
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.companions import Accompanied
from tests.backends import CUPY
from tests.kernels.test_groups_kernels import elements

pytestmark = [pytest.mark.gpu, pytest.mark.any_dask]

N, N_GROUPS = 6000, 6
LABELS = np.random.default_rng(3).choice([-1, 0, 1, 1, 1, 2, 3, 4, 5], N)
Weights = Callable[[np.random.Generator], NDArray[Any]]
WEIGHTS: dict[str, Weights] = {
    "float32": lambda random: random.random(N).astype("f4"),
    "tiny": lambda random: random.integers(0, 9, N) * 2.0**-1074,
    "subnormal float32": lambda random: (random.random(N) * 1e-40).astype("f4"),
    "wide": lambda random: random.random(N) * 2.0 ** random.integers(-60, 60, N),
    "integers beyond 2**53": lambda random: random.integers(0, 2**61, N),
    "one heavy": lambda random: np.where(np.arange(N) == 17, 1e6, 1.0),
    "bools": lambda random: random.random(N) < 0.7,
}


def assert_same_boxes(found: Any, wanted: Any) -> None:
    for box, other in zip(found.boxes, wanted.boxes, strict=True):
        for field in fields(Box):
            each = getattr(box, field.name), getattr(other, field.name)
            np.testing.assert_array_equal(*each, err_msg=f"{box.label} {field.name}")


def both(
    ask: Callable[..., Any], values: NDArray[Any], n_more: int = 0, **beside: NDArray[Any] | None
) -> tuple[Any, Any]:
    """The answer on a device and on the host, with `n_more` groups without elements."""
    given = {name: each for name, each in beside.items() if each is not None}
    there = {name: CUPY.asarray(each) for name, each in given.items()}
    device, host = (
        groupby(each, LABELS, groups=range(N_GROUPS + n_more))
        for each in (CUPY.asarray(values), values)
    )
    return ask(device, **there), ask(host, **given)


@pytest.mark.few(4)
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u8", "u1", "f2"])
def test_weighted_groups(dtype: str, kind: str, is_masked: bool) -> None:
    random = np.random.default_rng(5)
    weights, values = WEIGHTS[kind](random), elements(dtype, N)
    where = random.random(N) < 0.6 if is_masked else None
    q = [0, 0.1, 0.5, 0.77, 1]
    for method in ("inverted_cdf", "averaged_inverted_cdf", "linear"):

        def quantiles(grouped: Any, method: str = method, **how: Any) -> Any:
            return grouped.nanquantile(q, method=method, **how)

        found, wanted = both(quantiles, values, weights=weights, where=where)
        np.testing.assert_array_equal(CUPY.to_numpy(found), wanted, err_msg=method)
    for whis, most in ((1.5, 3), ((5, 95), 1000)):

        def boxes(grouped: Any, whis: Any = whis, most: int = most, **how: Any) -> Any:
            options = {"whis": whis, "max_fliers": most, "nan_policy": "omit"}
            return grouped.describe_boxplot(**options, **how)

        assert_same_boxes(*both(boxes, values, 1, weights=weights, where=where))
        assert_same_boxes(*both(boxes, values, 1, where=where))


def test_missing_elements_and_weights() -> None:
    values = np.where(LABELS == 2, np.nan, elements("f8", N))
    weights = np.where(LABELS == 3, 0.0, 1.0)
    with pytest.raises(ValueError, match="all zero"):
        both(lambda grouped, **how: grouped.quantile(0.5, **how), values, weights=weights)
    with pytest.raises(ValueError, match="non-negative"):
        both(lambda grouped, **how: grouped.quantile(0.5, **how), values, weights=-weights)


def test_weights_of_all_magnitudes_are_tabled_on_the_host() -> None:
    weights = 2.0 ** np.linspace(-1000, 1000, N)
    chunk = Accompanied(*map(CUPY.asarray, (np.ones(N), np.ones(N, bool), weights, LABELS)))
    assert kernels.sorted_runs([chunk], np.dtype("f8"), N_GROUPS) is None
    found, wanted = both(
        lambda grouped, **how: grouped.quantile(0.5, method="inverted_cdf", **how),
        np.arange(N, dtype="f8"),
        weights=weights,
    )
    np.testing.assert_array_equal(CUPY.to_numpy(found), wanted)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "f2"])
def test_a_weighted_box_of_all_elements(dtype: str, kind: str) -> None:
    random = np.random.default_rng(5)
    values, weights, where = elements(dtype, N), WEIGHTS[kind](random), random.random(N) < 0.6
    for policy in ("omit", "propagate"):
        found, wanted = (
            describe_boxplot(
                asarray(values), weights=asarray(weights), where=asarray(where), nan_policy=policy
            )
            for asarray in (CUPY.asarray, np.asarray)
        )
        assert_same_boxes(found, wanted)


def test_a_weighted_box_of_nothing() -> None:
    for where, message in ((np.ones(3, bool), "all zero"), (np.zeros(3, bool), None)):
        each = [CUPY.asarray(each) for each in (np.ones(3), np.zeros(3), where)]
        if message is None:
            assert describe_boxplot(each[0], weights=each[1], where=each[2]).boxes[0].n == 0
            continue
        with pytest.raises(ValueError, match=message):
            describe_boxplot(each[0], weights=each[1], where=each[2])
