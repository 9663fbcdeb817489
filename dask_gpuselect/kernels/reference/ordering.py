"""Sorting of one chunk on its own device: the reference.

Keys are those of `radix.keys_of`, unsigned integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.kernels.radix import elements_of as elements_of
from dask_gpuselect.kernels.radix import keys_of, stable_places
from dask_gpuselect.maths.cuts import IntArray


@dataclass(frozen=True)
class Dealt:
    """Elements of a chunk in the order in which they are cut into pieces and sent away.

    Parameters
    ----------
    keys : array, or list of arrays
        In one array, or in pieces. Elements before the first mark come first, then those that
        equal it, those before the second, and so on; NaN and NaT last. Elements between marks keep
        their order, or ascend, or, if no order is asked, are in any order.
    order : array of int64, optional
        Former places of the elements, if asked. None if they were not moved, or not asked.
    below, upto : ndarray of int64
        Numbers of elements before each mark, and up to it; on the host.
    """

    keys: Array | list[Array]
    order: Array | None
    below: IntArray
    upto: IntArray


def sort(keys: Array) -> None:
    """Sort keys in place."""
    keys.sort()


def stable_order(keys: Array) -> Array:
    """Return the places of the keys in ascending order, those of equal keys ascending; int64."""
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
    """Order keys so that they can be cut into pieces at marks.

    Parameters
    ----------
    values : array
        Elements, or keys: see `keys_of`.
    marks : ndarray
        Elements, ascending, none missing; on the host.
    dtype : dtype
        Dtype of the elements.
    has_order : bool
        True if other arrays are sorted along.
    known : tuple of (ndarray of int64, ndarray of int64)
        Expected `below` and `upto`, by which a kernel may allocate memory.
    ends : ndarray of int64, optional
        Places at which the keys are cut: a kernel may put each piece into an array of its own.
    """
    del known, ends
    keys = keys_of(values, dtype) if values.dtype == dtype else values
    return dealt_by_sorting(keys, like(keys_of(marks, dtype), keys), has_order=has_order)


def dealt_by_sorting(keys: Array, marks: Array, *, has_order: bool) -> Dealt:
    """Sort keys, and count them at the keys of the marks."""
    order = stable_order(keys) if has_order else None
    ordered = namespace(keys).sort(keys) if order is None else keys[order]
    return in_order(ordered, order, marks)


def in_order(keys: Array, order: Array | None, marks: Array) -> Dealt:
    """Count ascending keys at the keys of the marks."""
    below, upto = (
        to_host(keys.searchsorted(marks, side=side)).astype(np.int64) for side in ("left", "right")
    )
    return Dealt(keys, order, below, upto)
