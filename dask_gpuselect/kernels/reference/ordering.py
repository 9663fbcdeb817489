"""What sorting does to one chunk, on its own device: the reference.

Keys are those of `radix.keys_of`, unsigned integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.kernels.radix import elements_of, keys_of, stable_places
from dask_gpuselect.maths.cuts import IntArray

__all__ = ["Dealt", "dealt", "elements_of", "in_order", "keys_of", "sort", "stable_order"]


@dataclass(frozen=True)
class Dealt:
    """Elements of a chunk as they are sent away.

    Parameters
    ----------
    keys : array, or list of arrays
        In one piece, or in pieces. Those before the first of some marks come first, then those that
        equal it, those before the second, and so on; NaN and NaT last. Among themselves they are as
        they were, or ascend, or, without an order, are in any.
    order : array of int64, optional
        Where they were, if that is asked for. None if they were not moved, or if it is not.
    below, upto : ndarray of int64
        How many come before each mark, and up to and with it; on the host.
    """

    keys: Array | list[Array]
    order: Array | None
    below: IntArray
    upto: IntArray


def sort(keys: Array) -> None:
    """Sort keys in place."""
    keys.sort()


def stable_order(keys: Array) -> Array:
    """The places of the keys in ascending order, those of equal ones ascending; int64."""
    return stable_places(keys).astype(np.int64, copy=False)


def dealt(
    values: Array,
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
    ends: IntArray | None = None,
) -> Dealt:
    """Keys in the order in which they are cut into pieces.

    Parameters
    ----------
    values : array
        Elements, or keys: see `keys_of`.
    marks : ndarray
        Elements, ascending, none missing; on the host.
    dtype : dtype
        Of the elements.
    has_order : bool
        Whether other arrays go along.
    known : tuple of (ndarray of int64, ndarray of int64)
        What `below` and `upto` should be; a kernel may make room by them.
    ends : ndarray of int64, optional
        Where the keys are to be cut: a kernel may put each piece into an array of its own.
    """
    del known, ends
    keys = keys_of(values, dtype) if values.dtype == dtype else values
    order = stable_order(keys) if has_order else None
    ordered = namespace(keys).sort(keys) if order is None else keys[order]
    return in_order(ordered, order, like(keys_of(marks, dtype), keys))


def in_order(keys: Array, order: Array | None, marks: Array) -> Dealt:
    """Keys that ascend, where they were, and the keys of the marks."""
    below, upto = (
        to_host(keys.searchsorted(marks, side=side)).astype(np.int64) for side in ("left", "right")
    )
    return Dealt(keys, order, below, upto)
