"""Quantiles of small arrays by one launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from dask_gpuselect import median, order_statistic
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.quantiles.questions import Quantiles
from tests.backends import kernel_module
from tests.data import FLOATS, INTEGERS, make

QUESTIONS = (
    ((0.5,), "median"),
    ((0.25, 0.5, 0.75), "linear"),
    ((0.0, 0.9, 1.0), "lower"),
    (tuple(i / 10 for i in range(1, 10)), "linear"),
    (tuple(i / 20 for i in range(21)), "nearest"),
)


def question_of(q: tuple[float, ...], method: str, dtype: str) -> Quantiles:
    kind = np.dtype(dtype)
    answer = kind if method in ("lower", "nearest") else np.dtype(np.float64)
    return Quantiles(q, method, False, kind, answer)


def expected(question: Quantiles, values: Any) -> Any:
    """By a sort."""
    ordered, n = np.sort(values), np.array([values.size])
    lower, upper = (ordered[np.ravel(each)] for each in question.lane_ranks(n))
    return question.lane_answer(Lanes(lower[None], upper[None], n, n * 0))[:, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 65_536, 70_001, 1 << 20, (1 << 22) + 3])
@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "f8", "i1", "u2", "i4", "u8", "i8"])
def test_as_numpy(dtype: str, n: int) -> None:
    import cupy

    answer = kernel_module("cuda", "lanes").answer_only_lane
    names = ["bools"] if dtype == "?" else [*FLOATS] if dtype[0] == "f" else [*INTEGERS]
    for name in names if n <= 70_001 else names[:3]:
        values = make(name, dtype, n)
        for places in (slice(None), slice(1, None)):  # the second one is not aligned
            if not len(values[places]):
                continue
            for q, method in QUESTIONS:
                if dtype == "?" and method == "linear":
                    continue
                question = question_of(q, method, dtype)
                found = answer(cupy.asarray(values)[places], question)
                if found is None:
                    assert dtype in ("i8", "u8")
                    continue
                with np.errstate(all="ignore"):
                    wanted = expected(question, values[places])
                np.testing.assert_array_equal(found.get(), wanted, err_msg=name)
                assert found.dtype == wanted.dtype


@pytest.mark.gpu
@pytest.mark.parametrize("ask", [median, partial(order_statistic, k=[3, -1])])
def test_one_wait_and_one_launch(ask: Callable[[Any], Any]) -> None:
    import cupy

    from dask_gpuselect.kernels.cuda import launch

    x = cupy.random.default_rng(0).standard_normal(1 << 20, dtype="f4")
    ask(x)
    started, prepared = [], launch._prepared

    def noted(*args: Any) -> Any:
        started.append(args[1])
        return prepared(*args)

    launch._prepared = noted
    try:
        ask(x)
    finally:
        launch._prepared = prepared
    assert set(started) == {"only_lane"}
