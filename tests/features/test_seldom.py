"""Ways to an answer that the drawn cases of the matrix seldom take: each is as at once, of arrays
in memory, which takes another way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, explain, median, quantile
from dask_gpuselect.engine.marks import marks_of
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from tests.data import normal
from tests.matrix.laws import same

Q3 = [0.25, 0.5, 0.75]


@dataclass(frozen=True)
class Way:
    """A question about an array and one beside it, and what makes it take its way.

    Parameters
    ----------
    ask : callable
        ``(values, beside) -> answer``, of lazy arrays and of others.
    beside : callable
        From the values to what goes with them.
    shape, chunks : tuple of int
    limits : dict
        Of dask's config.
    """

    ask: Callable[[Any, Any], Any]
    beside: Callable[[NDArray[Any]], NDArray[Any]]
    shape: tuple[int, ...] = (1000, 2)
    chunks: tuple[int, ...] = (100, 2)
    dtype: str = "f8"
    limits: dict[str, Any] = field(default_factory=dict)


def some_weights(values: NDArray[Any]) -> NDArray[Any]:
    return np.arange(values.size).reshape(values.shape) * 7 % 11 / 4.0


def wide_weights(values: NDArray[Any]) -> NDArray[Any]:
    return np.exp2(np.arange(values.size).reshape(values.shape) % 5 * 500 - 1000.0)


def unused_weights(values: NDArray[Any]) -> NDArray[Any]:
    return np.where(values > 0, some_weights(values), -1.0)


def weighed(**how: Any) -> Callable[[Any, Any], Any]:
    return lambda x, w: quantile(x, Q3, weights=w, **how)


def boxes_of_groups(x: Any, mask: Any) -> Any:
    return groupby(x, np.arange(x.shape[0]) % 3, 0).describe_boxplot(where=mask)


def of_used(x: Any, w: Any) -> Any:
    return quantile(x, Q3, axis=0, weights=w, where=x > 0, method="inverted_cdf")


def halves(x: Any) -> Any:
    return groupby(x, np.arange(x.size) % 2)


THREE_PASSES = {"column-limit": 3000, "cache-limit": 0, "scratch-directory": False}
IN_A_TREE: dict[str, Any] = {"shape": (40_000,), "chunks": (800,)}
IN_A_TREE |= {"limits": {"root-limit": "20 kB", "column-limit": "30 kB"}}
WAYS = {
    "weighted boxes that are kept": Way(
        lambda x, w: describe_boxplot(x, weights=w), some_weights, (4000,), (200,)
    ),
    "a mask beside groups of lanes": Way(boxes_of_groups, lambda v: v > -1),
    "a mask beside groups of elements of lanes": Way(
        lambda x, mask: groupby(x, np.arange(2000).reshape(1000, 2) % 3, 0).describe_boxplot(
            where=mask
        ),
        lambda v: v > -1,
    ),
    "cuts of groups that weigh in a tree": Way(
        lambda x, w: halves(x).quantile(Q3, weights=w, method="linear"), some_weights, **IN_A_TREE
    ),
    "cuts of boxes of groups that weigh in a tree": Way(
        lambda x, w: halves(x).describe_boxplot(weights=w), some_weights, **IN_A_TREE
    ),
    "three passes": Way(lambda x, w: median(x, axis=0), some_weights, limits=THREE_PASSES),
    "three passes of integers": Way(
        lambda x, w: median(x, axis=0), some_weights, dtype="i8", limits=THREE_PASSES
    ),
    "three passes of what weighs": Way(
        weighed(axis=0, method="inverted_cdf"),
        some_weights,
        limits=THREE_PASSES | {"column-limit": 10_500},
    ),
    "weights of many bits": Way(
        weighed(axis=0, method="linear"), lambda v: (v > 0) * (1 << 60) + 1
    ),
    "weights of all magnitudes": Way(weighed(axis=0, method="linear"), wide_weights),
    "weights that are wrong where nothing takes part": Way(of_used, unused_weights),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_way(name: str) -> None:
    way = WAYS[name]
    values = (normal(int(np.prod(way.shape))) * 50 + 100 * (way.dtype == "u1")).reshape(way.shape)
    values = values.astype(way.dtype)
    beside = way.beside(values)
    x, y = (da.from_array(a, chunks=way.chunks).map_blocks(np.copy) for a in (values, beside))
    limits = {f"dask_gpuselect.{key}": value for key, value in way.limits.items()}
    with dask.config.set({"scheduler": "sync"} | limits):
        if "three passes" in name:
            how = {"weights": y} if "weighs" in name else {}
            assert explain(x, Q3 if how else 0.5, axis=0, **how).loads == 3
        actual = way.ask(x, y).compute()
    wanted = way.ask(values, beside)
    same(actual, wanted.compute() if hasattr(wanted, "compute") else wanted, name)


def test_boxes_of_nothing_that_is_sorted() -> None:
    box = describe_sorted(da.zeros(0, chunks=1))
    assert box.n == 0
    assert np.isnan(box.med)


def test_elements_wider_than_words_have_a_part_in_fingerprints() -> None:
    values = normal(20).view(complex)
    other = np.where(np.arange(10) == 4, values + 1e-9j, values)
    results = marks_of([values, values[::-1], other], ordered=False)
    assert results[0] == results[1] != results[2]


def test_the_size_of_a_chunk_is_that_of_all_that_goes_with_it() -> None:
    values = normal(100)
    assert sys.getsizeof(Accompanied(values, values > 0, values + 9)) > 2 * values.nbytes
