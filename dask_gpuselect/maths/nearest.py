"""The nearest rows of some queries: their order, how those of chunks are merged, and what
regression and classification make of them. Pure functions and frozen data on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.quiet import outside

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = str | Callable[[Floats], Any] | None

# A squared distance outside [TINY, infinity) is taken again of differences times a power of two.
TINY = 2.0**-900
UP = 2.0**600  # of differences whose squares are below TINY
DOWN = 2.0**-600  # of rows and queries whose distance squared overflows
SMALL, NORMAL, LARGE = -1, 0, 1


class NearestRows(Protocol):
    """The nearest rows of every query, wherever they are: `Nearest`, or the same on a device."""

    @property
    def distances(self) -> Any:
        """float64, shape (n_queries, m), ascending in every row."""

    @property
    def index(self) -> Any:
        """int64, shape (n_queries, m)."""

    def on_host(self) -> Nearest: ...


@dataclass(frozen=True)
class Nearest:
    """The nearest rows of every query, ascending by (level, squared, index).

    Parameters
    ----------
    level : int8 array, shape (n_queries, m)
        `SMALL`, `NORMAL` or `LARGE`: how `squared` was scaled.
    squared : float64 array, shape (n_queries, m)
        Squares of the distances; of ``UP`` times the distance if it is small, and of ``DOWN`` times
        it if it is large.
    index : int64 array, shape (n_queries, m)
        Of the rows, from 0.
    n_rows : int
        Of which these are the nearest.
    """

    level: NDArray[np.int8]
    squared: Floats
    index: Ints
    n_rows: int

    @classmethod
    def merge(cls, parts: Sequence[Nearest], k: int) -> Nearest:
        """The `k` nearest of the rows of all parts, one part's rows after the other's."""
        starts = np.cumsum([0, *(part.n_rows for part in parts)])
        level, squared = (
            np.concatenate([getattr(part, name) for part in parts], axis=1)
            for name in ("level", "squared")
        )
        moved = [part.index + start for part, start in zip(parts, starts[:-1], strict=True)]
        index = np.concatenate(moved, axis=1)
        # Stable: equal ones stay in the order of the parts, which is that of their rows.
        order = np.argsort(squared, axis=1, kind="stable")
        if level.any():
            by_level = np.argsort(np.take_along_axis(level, order, 1), axis=1, kind="stable")
            order = np.take_along_axis(order, by_level, 1)
        order = order[:, :k]
        return cls(
            np.take_along_axis(level, order, 1),
            np.take_along_axis(squared, order, 1),
            np.take_along_axis(index, order, 1),
            int(starts[-1]),
        )

    def on_host(self) -> Nearest:
        return self

    @property
    def distances(self) -> Floats:
        """The distances of the rows, correctly rounded from `squared`."""
        roots: Floats = np.sqrt(self.squared)
        if self.level.any():
            scale = np.array([1 / UP, 1.0, 1 / DOWN])
            with np.errstate(over="ignore", under="ignore"):
                roots *= scale[self.level + 1]
        return roots

    def without_themselves(self) -> Nearest:
        """One row fewer for each query, query i being row i: that row if it is among them, else
        the last."""
        n, m = self.index.shape
        is_other = self.index != np.arange(n)[:, None]
        is_other[is_other.all(axis=1), m - 1 :] = False
        level, squared, index = (
            array[is_other].reshape(n, m - 1) for array in (self.level, self.squared, self.index)
        )
        return Nearest(level, squared, index, self.n_rows)


# --- Regression and classification --------------------------------------------------------------


def weights_of(distances: Floats, weights: Weights) -> Floats | None:
    """What every neighbour counts; None if all count the same.

    Parameters
    ----------
    distances : float64 array, shape (n_queries, k)
    weights : {"uniform", "distance"}, callable or None
        By "distance", the inverse; of a query that has neighbours at distance 0, these count 1 and
        the others nothing. A callable takes `distances` and returns an array of their shape.
    """
    if weights in (None, "uniform"):
        return None
    if callable(weights):
        with outside():
            return np.asarray(weights(distances), np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        found: Floats = 1.0 / distances
    is_at = np.isinf(found)
    has_one = is_at.any(axis=1)
    found[has_one] = is_at[has_one]
    return found


def check_length(y: NDArray[Any], n_rows: float) -> None:
    """Raise, in scikit-learn's words, unless there are as many values as rows; NaN rows are not
    known yet."""
    if n_rows == n_rows and len(y) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: [{n_rows}, {len(y)}]"
        )


def means(nearest: Nearest, y: NDArray[Any], weights: Weights) -> NDArray[Any]:
    """The weighted means of what is known of the neighbours.

    Parameters
    ----------
    nearest : Nearest
    y : array, shape (n_rows,) or (n_rows, n_outputs)
        Of all rows.
    weights : {"uniform", "distance"}, callable or None

    Returns
    -------
    array, shape (n_queries,) or (n_queries, n_outputs)
        Floating.

    Raises
    ------
    ValueError
        If `y` is of another number of rows.
    """
    check_length(y, nearest.n_rows)
    known = y[nearest.index]  # (n_queries, k) or (n_queries, k, n_outputs)
    counts = weights_of(nearest.distances, weights)
    found: NDArray[Any]
    if counts is None:
        found = np.mean(known, axis=1)
        return found
    shaped = counts if y.ndim == 1 else counts[:, :, None]
    found = np.sum(known * shaped, axis=1) / np.sum(shaped, axis=1)
    return found


def votes(nearest: Nearest, numbers: Ints, n_classes: int, weights: Weights) -> Floats:
    """The summed weights of the neighbours of each class.

    Parameters
    ----------
    nearest : Nearest
    numbers : int array, shape (n_rows,)
        Of each row's class.
    n_classes : int
    weights : {"uniform", "distance"}, callable or None

    Returns
    -------
    float64 array, shape (n_queries, n_classes)

    Raises
    ------
    ValueError
        If all neighbours of a query count nothing, or `numbers` is of another number of rows.
    """
    check_length(numbers, nearest.n_rows)
    counts = weights_of(nearest.distances, weights)
    if counts is None:
        counts = np.ones(nearest.index.shape)
    elif not counts.any(axis=1).all():
        raise ValueError(
            "All neighbors of some sample is getting zero weights: give weights that are not 0"
        )
    found = np.zeros((len(nearest.index), n_classes))
    every = np.arange(len(found))
    for place, of_one in zip(nearest.index.T, counts.T, strict=True):
        found[every, numbers[place]] += of_one
    return found


def majority(
    nearest: Nearest, numbers: Ints, classes: tuple[NDArray[Any], ...], weights: Weights
) -> NDArray[Any]:
    """The classes with the most votes, the first of those with as many.

    Parameters
    ----------
    nearest : Nearest
    numbers : int array, shape (n_rows, n_outputs)
        Of each row's classes.
    classes : tuple of arrays
        For each output.
    weights : {"uniform", "distance"}, callable or None

    Returns
    -------
    array, shape (n_queries, n_outputs), or (n_queries,) for a single output
    """
    chosen = [
        names[np.argmax(votes(nearest, of_one, len(names), weights), axis=1)]
        for names, of_one in zip(classes, numbers.T, strict=True)
    ]
    return np.stack(chosen, axis=1) if len(chosen) > 1 else chosen[0]


def shares(
    nearest: Nearest, numbers: Ints, output: int, n_classes: int, weights: Weights
) -> Floats:
    """The votes of the classes of one output, summing to 1 for each query; see `votes`."""
    found = votes(nearest, numbers[:, output], n_classes, weights)
    found /= found.sum(axis=1, keepdims=True)
    return found
