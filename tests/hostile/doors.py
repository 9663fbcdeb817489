"""Functions of rows, which the matrix does not ask: how their arguments are drawn, and what is
right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect import neighbors
from tests.features.test_neighbors import nearest_by_definition
from tests.matrix.axes import Array, Random
from tests.matrix.laws import same

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
        ``(random, rows) -> arguments, arrays``.
    verify : callable
        ``(found, rows, **arguments)``: raises an error if it is wrong.
    kinds : str
        Of dtypes, as `numpy.dtype.kind`.
    loads : int
        How often a chunk is loaded at most.
    sizes_known : bool
        Whether sizes of chunks have to be.
    """

    ask: Callable[..., Any]
    draw: Callable[[Random, Array], Drawn]
    verify: Callable[..., None]
    kinds: str
    loads: int
    sizes_known: bool = False


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
    "kneighbors": Door(neighbors.kneighbors, draw_neighbors, verify_neighbors, "biuf", 1),
    "neighbours of rows": Door(
        ask_others, lambda random, a: ({"k": int(random.integers(1, min(len(a), 6)))}, {}),
        verify_others, "iuf", 2, sizes_known=True,
    ),
}  # fmt: skip
