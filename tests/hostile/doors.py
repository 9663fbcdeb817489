"""Functions that the matrix does not ask: how their arguments are drawn, and what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import dask_gpuselect as ours
from dask_gpuselect import distribution, neighbors
from dask_gpuselect.strategies import STRATEGIES
from tests import oracle
from tests.features.test_binning import counted
from tests.features.test_ecdf import assert_bounds, assert_counts
from tests.features.test_neighbors import nearest_by_definition
from tests.matrix import axes
from tests.matrix.axes import Array, Random
from tests.matrix.laws import Broken, same
from tests.matrix.questions import draw_quantile, pick

Drawn = tuple[dict[str, Any], dict[str, Array]]
"""Arguments, and those of them that are arrays beside the first one."""


@dataclass(frozen=True)
class Door:
    """A public function.

    Parameters
    ----------
    ask : callable
        ``(x, **arguments) -> answer``.
    draw : callable
        ``(random, a) -> arguments, arrays``.
    verify : callable
        ``(found, a, **arguments)``: raises an error if it is wrong, of some elements.
    kinds : str
        Of dtypes, as `numpy.dtype.kind`.
    loads : int
        How often a chunk is loaded at most.
    fit : callable
        ``(random, a) -> a`` as the function takes them.
    sizes_known : bool
        Whether sizes of chunks have to be.
    """

    ask: Callable[..., Any]
    draw: Callable[[Random, Array], Drawn]
    verify: Callable[..., None]
    kinds: str = "biufmM"
    loads: int = 3
    fit: Callable[[Random, Array], Array] = lambda random, a: a.ravel()
    sizes_known: bool = False


def holds(truth: Any, what: str) -> None:
    if not np.all(truth):
        raise Broken(what)


def as_it_is(random: Random, a: Array) -> Array:
    return a


# --- Strategies -----------------------------------------------------------------------------------


def draw_strategy(random: Random, a: Array) -> Drawn:
    asked = draw_quantile(random, a.dtype.kind, False)
    return asked | {"strategy": pick(random, [*STRATEGIES])}, {}


def verify_quantile(found: Any, a: Array, *, q: Any, method: str, **_: Any) -> None:
    same(found, oracle.expected("quantile", a, q, method), "by definition")


def draw_rank(random: Random, a: Array) -> Drawn:
    k: Any = int(random.integers(-a.size, a.size)) if a.size else 0
    k = pick(random, [k, [k, 0, k], np.array([k, k]), [], np.int16(0)])
    return {"k": k, "strategy": pick(random, [None, *STRATEGIES])}, {}


def verify_rank(found: Any, a: Array, *, k: Any, strategy: Any) -> None:
    same(found, np.sort(a, axis=None)[np.asarray(k, int)], f"by definition, {strategy}")


# --- Distributions, sorting and bins --------------------------------------------------------------


def draw_points(random: Random, a: Array) -> Drawn:
    values = np.unique(a[a == a].ravel()[:20])
    return {"points": pick(random, [1001, 2, 3, 17, values, values.tolist()])}, {}


def verify_ecdf(found: Any, a: Array, *, points: Any) -> None:
    a = a.ravel()
    assert_counts(found, a, points, "by definition")
    if found.n_valid and (a.dtype.kind != "f" or np.isfinite(a[a == a]).all()):
        assert_bounds(found, a, "by definition")


def draw_sort(random: Random, a: Array) -> Drawn:
    chunks = pick(random, [None, None, max(1, len(a) // 3), -1, "1 kiB"])
    spill, split = pick(random, [None, True, False]), pick(random, [None, None, 2, 3, 5])
    return {"chunks": chunks, "spill": spill, "split_every": split}, {}


def draw_sort_by(random: Random, a: Array) -> Drawn:
    dtype = pick(random, [*axes.DTYPES, "U3", "c16", "i4,f8", "O"])
    return draw_sort(random, a)[0], {"value": random.integers(0, 99, len(a)).astype(dtype)}


def verify_sort(found: Any, a: Array, **_: Any) -> None:
    same(found, np.sort(a), "by definition")
    zeros = np.asarray(found)[np.asarray(found) == 0] if a.dtype.kind == "f" else np.zeros(1)
    holds(~np.signbit(zeros), "negative zeros")


def verify_argsort(found: Any, a: Array, **_: Any) -> None:
    same(found, np.argsort(a, kind="stable"), "by definition")


def verify_sort_by(found: Any, a: Array, *, value: Array, **_: Any) -> None:
    same(found[0], np.sort(a), "key")
    holds(np.asarray(found[1]) == value[np.argsort(a, kind="stable")], "value")


def draw_digitize(random: Random, a: Array) -> Drawn:
    bins = np.unique(a[a == a].ravel()[:20])[:: pick(random, [1, -1])]
    return {"right": bool(random.random() < 0.5)}, {"bins": bins}


def verify_digitize(found: Any, a: Array, *, bins: Array, right: bool) -> None:
    few = a.ravel()[:300]
    if a.dtype.kind in "mM":
        few, bins = few.view("i8"), bins.view("i8")
        if (a != a).any():
            return None  # where they go is told by the documentation, and a test of its own
    return same(np.ravel(found)[:300], np.array(counted(few, bins, right=right), int), "by counts")


def draw_bins(random: Random, a: Array) -> Drawn:
    methods = ["linear", "lower"] if a.dtype.kind in "iuf" else ["lower"]
    return {"n_bins": int(random.integers(1, 30)), "method": pick(random, methods)}, {}


def verify_bins(found: Any, a: Array, *, n_bins: int, method: str) -> None:
    q = np.arange(n_bins + 1) / n_bins
    same(found, oracle.expected("nanquantile", a, q, method), "by definition")


# --- Neighbours -----------------------------------------------------------------------------------


def as_table(random: Random, a: Array) -> Array:
    """Make finite rows."""
    a = a.ravel()[: int(random.integers(1, 600))]
    a = np.nan_to_num(a) if a.dtype.kind == "f" else a
    p = int(random.integers(1, 5))
    a = a[: len(a) // p * p].reshape(-1, p)
    return np.ascontiguousarray(np.repeat(a, 2, axis=0)) if a.size else np.ones((9, 1), a.dtype)


def draw_neighbors(random: Random, a: Array) -> Drawn:
    few = a[random.integers(0, len(a), int(random.integers(1, 5)))]
    few = few if random.random() < 0.5 else np.ascontiguousarray(few[::-1] + few.dtype.type(1))
    return {"k": int(random.integers(1, min(len(a), 8)))}, {"Q": few}


def verify_neighbors(found: Any, a: Array, *, Q: Array, k: int) -> None:
    wanted = nearest_by_definition(a, Q, k)
    same(found[1], wanted.index, "neighbours")
    same(found[0], wanted.distances, "distances")


def ask_others(x: Any, k: int) -> Any:
    return neighbors.NearestNeighbors(n_neighbors=k).fit(x).kneighbors()


def verify_others(found: Any, a: Array, *, k: int) -> None:
    """Look whether the rows themselves are left out, and nothing else."""
    places = nearest_by_definition(a, a, k + 1).index.tolist()
    wanted = [[j for j in row if j != i][:k] for i, row in enumerate(places)]
    same(found[1], np.array(wanted), "neighbours")


DOORS: Mapping[str, Door] = {
    "quantile by strategy": Door(ours.quantile, draw_strategy, verify_quantile, "iufmM", 10**6),
    "order_statistic": Door(
        ours.order_statistic, draw_rank, verify_rank, loads=10**6, fit=as_it_is, sizes_known=True
    ),
    "ecdf": Door(distribution.ecdf, draw_points, verify_ecdf, "biuf", 2, as_it_is),
    "sort": Door(ours.sort, draw_sort, verify_sort, sizes_known=True),
    "argsort": Door(ours.argsort, draw_sort, verify_argsort, sizes_known=True),
    "sort_by": Door(
        lambda x, value, **how: ours.sort_by(x, value, **how), draw_sort_by, verify_sort_by,
        sizes_known=True,
    ),
    "digitize": Door(ours.digitize, draw_digitize, verify_digitize, loads=1, fit=as_it_is),
    "quantile_bins": Door(ours.quantile_bins, draw_bins, verify_bins, "iufmM", 2, as_it_is),
    "kneighbors": Door(
        neighbors.kneighbors, draw_neighbors, verify_neighbors, "biuf", 1, as_table
    ),
    "neighbours of rows": Door(
        ask_others, lambda random, a: ({"k": int(random.integers(1, min(len(a), 6)))}, {}),
        verify_others, "iuf", 2, as_table, sizes_known=True,
    ),
}  # fmt: skip
