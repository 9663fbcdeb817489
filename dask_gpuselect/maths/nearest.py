"""Nearest rows of queries: their order, how to merge them, and predictions from them.

Pure functions and frozen data on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, to_host
from dask_gpuselect.quiet import outside

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = str | Callable[[Floats], Any] | None

# A squared distance outside [TINY, infinity) is computed again, from scaled differences.
TINY = 2.0**-900
UP = 2.0**600  # scale of differences whose squares are below TINY
DOWN = 2.0**-600  # scale of rows and queries whose squared distance overflows
SMALL, NORMAL, LARGE = -1, 0, 1


@dataclass(frozen=True)
class Nearest:
    """Nearest rows of every query, ascending by (level, squared, index).

    Parameters
    ----------
    level : int8 array, shape (n_queries, m)
        `SMALL`, `NORMAL` or `LARGE`: how `squared` was scaled.
    squared : float64 array, shape (n_queries, m)
        Squares of the distances, which are multiplied by ``UP`` first if they are small, and by
        ``DOWN`` if they are large.
    index : int64 array, shape (n_queries, m)
        Numbers of the rows, from 0.
    n_rows : int
        Number of rows that were searched; 0 before all of them were.
    """

    level: Array
    squared: Array
    index: Array
    n_rows: int = 0

    @property
    def k(self) -> int:
        """Number of rows that are known of each query."""
        return int(self.index.shape[1])

    @classmethod
    def merge(cls, parts: Sequence[Nearest], k: int) -> Nearest:
        """Find the `k` nearest among the rows of all parts, which are numbered part after part."""
        starts = np.cumsum([0, *(part.n_rows for part in parts)])
        level, squared = (
            np.concatenate([getattr(part, name) for part in parts], axis=1)
            for name in ("level", "squared")
        )
        moved = [part.index + start for part, start in zip(parts, starts[:-1], strict=True)]
        index = np.concatenate(moved, axis=1)
        # A stable sort: rows at equal distances stay in the order of the parts, and so of their
        # numbers.
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
        """Copy what is on a device to the host."""
        level, squared, index = map(to_host, (self.level, self.squared, self.index))
        return Nearest(level, squared, index, self.n_rows)

    @property
    def distances(self) -> Array:
        """Distances of the rows, correctly rounded from `squared`."""
        roots: Floats = np.sqrt(self.squared)
        if self.level.any():
            scale = np.array([1 / UP, 1.0, 1 / DOWN])
            with np.errstate(over="ignore", under="ignore"):
                roots *= scale[self.level + 1]
        return roots

    def without_themselves(self) -> Nearest:
        """Drop one row for each query i: row i itself if it is there, else the last one."""
        n, m = self.index.shape
        is_other = self.index != np.arange(n)[:, None]
        is_other[is_other.all(axis=1), m - 1 :] = False
        level, squared, index = (
            array[is_other].reshape(n, m - 1) for array in (self.level, self.squared, self.index)
        )
        return Nearest(level, squared, index, self.n_rows)


# --- Regression and classification --------------------------------------------------------------


def weights_of(distances: Floats, weights: Weights) -> Floats | None:
    """Compute the weight of every neighbour; None if all have the same.

    Parameters
    ----------
    distances : float64 array, shape (n_queries, k)
    weights : {"uniform", "distance"}, callable or None
        "distance" is the inverse of the distance. If a query has neighbours at distance 0, these
        have weight 1 and the others 0. A callable takes `distances` and returns an array of their
        shape.
    """
    if weights in (None, "uniform"):
        return None
    if callable(weights):
        with outside():
            return np.asarray(weights(distances), np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        inverses: Floats = 1.0 / distances
    is_at = np.isinf(inverses)
    has_one = is_at.any(axis=1)
    inverses[has_one] = is_at[has_one]
    return inverses


def check_length(y: NDArray[Any], n_rows: float) -> None:
    """Raise, in scikit-learn's words, unless there are as many values as rows.

    NaN as `n_rows` means that the number is not known yet.
    """
    if n_rows == n_rows and len(y) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: [{n_rows}, {len(y)}]"
        )


def means(nearest: Nearest, y: NDArray[Any], weights: Weights) -> NDArray[Any]:
    """Compute weighted means of the neighbours' values.

    Parameters
    ----------
    nearest : Nearest
    y : array, shape (n_rows,) or (n_rows, n_outputs)
        Values of all rows.
    weights : {"uniform", "distance"}, callable or None

    Returns
    -------
    array, shape (n_queries,) or (n_queries, n_outputs)
        Of a floating-point dtype.

    Raises
    ------
    ValueError
        If `y` has another number of rows.
    """
    check_length(y, nearest.n_rows)
    known = y[nearest.index]  # (n_queries, k) or (n_queries, k, n_outputs)
    counts = weights_of(nearest.distances, weights)
    answer: NDArray[Any]
    if counts is None:
        answer = np.mean(known, axis=1)
        return answer
    shaped = counts if y.ndim == 1 else counts[:, :, None]
    answer = np.sum(known * shaped, axis=1) / np.sum(shaped, axis=1)
    return answer


def votes(nearest: Nearest, numbers: Ints, n_classes: int, weights: Weights) -> Floats:
    """Add up the weights of the neighbours of each class.

    Parameters
    ----------
    nearest : Nearest
    numbers : int array, shape (n_rows,)
        Number of each row's class.
    n_classes : int
    weights : {"uniform", "distance"}, callable or None

    Returns
    -------
    float64 array, shape (n_queries, n_classes)

    Raises
    ------
    ValueError
        If all neighbours of a query have weight 0, or `numbers` has another number of rows.
    """
    check_length(numbers, nearest.n_rows)
    counts = weights_of(nearest.distances, weights)
    if counts is None:
        counts = np.ones(nearest.index.shape)
    elif not counts.any(axis=1).all():
        raise ValueError(
            "All neighbors of some sample is getting zero weights: give weights that are not 0"
        )
    class_votes = np.zeros((len(nearest.index), n_classes))
    every = np.arange(len(class_votes))
    for place, of_one in zip(nearest.index.T, counts.T, strict=True):
        class_votes[every, numbers[place]] += of_one
    return class_votes


def majority(
    nearest: Nearest, numbers: Ints, classes: tuple[NDArray[Any], ...], weights: Weights
) -> NDArray[Any]:
    """Choose the class with the most votes, the first one of a tie.

    Parameters
    ----------
    nearest : Nearest
    numbers : int array, shape (n_rows, n_outputs)
        Numbers of each row's classes.
    classes : tuple of arrays
        Names of the classes for each output.
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
    """Compute the share of each class in the votes for one output, for each query."""
    class_votes = votes(nearest, numbers[:, output], n_classes, weights)
    class_votes /= class_votes.sum(axis=1, keepdims=True)
    return class_votes
