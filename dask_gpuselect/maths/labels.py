"""Labels of elements: which there are, and the number of each among some.

A label of several parts, of several kinds of labels, is a structured array: by its fields, in their
order. NaN and NaT are no labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import IntArray

Labels = NDArray[Any]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]

# Integers in a range of so many for each label are looked up in a table: of 1e6 labels in 2 ms;
# sorting them takes 60.
TABLE = 4
LEAST_TABLE = 1 << 16


def is_missing(labels: Labels) -> Flags:
    """Which labels are NaN or NaT, or have such a part."""
    if labels.dtype.names:
        parts = [is_missing(labels[name]) for name in labels.dtype.names]
        return np.asarray(np.any(parts, axis=0))
    if labels.dtype.kind in "fmM":
        return np.asarray(labels != labels)
    return np.zeros(labels.shape, np.bool_)


def distinct(labels: Labels) -> Labels:
    """The labels that there are, ascending.

    Raises
    ------
    ValueError
        For floats with fractions, which are measurements rather than labels.
    """
    table = _table(labels)
    if table is not None:
        least, flags = table
        return (np.flatnonzero(flags) + least).astype(labels.dtype)
    if labels.dtype.names:
        return _distinct_together(labels)
    some = labels[~is_missing(labels)]
    if labels.dtype.kind == "f" and (some != np.floor(some)).any():  # infinity equals its floor
        raise ValueError(
            "the labels are floats with fractions: groups must say which of them are wanted; "
            "numpy.digitize makes bins of them"
        )
    return _ascending(some)


def union(several: Sequence[Labels]) -> Labels:
    """All labels of several arrays of distinct ones, ascending."""
    together = np.concatenate(several)
    return _ascending(together) if together.dtype.kind in "SUT" else distinct(together)


def _ascending(labels: Labels) -> Labels:
    """Distinct labels in order; NumPy's own hashes them first, which takes ten times as long where
    there are millions."""
    ordered = np.sort(labels)
    is_first = np.append(np.True_, ordered[1:] != ordered[:-1])[: len(ordered)]
    return np.asarray(ordered[is_first])


def codes_among(labels: Labels, names: Labels) -> Codes:
    """The place of each label among distinct names, in any order; -1 where it is none of them."""
    if not (names.size and labels.size):
        return np.full(labels.shape, -1, np.int32)
    if names.dtype.names:
        return _codes_together(labels, names)
    if labels.dtype.kind == names.dtype.kind == "b":
        labels, names = labels.view(np.uint8), names.view(np.uint8)
    if labels.dtype.kind in "iu" and names.dtype.kind in "iu":
        least, largest = int(names.min()), int(names.max())
        if least == 0 and largest == len(names) - 1 and is_numbering(names, labels):
            codes: Codes = labels.astype(np.int32, copy=False)
            return codes
        if largest - least < TABLE * (labels.size + names.size) + LEAST_TABLE:
            return _looked_up(labels, names, least, largest)
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    place = np.minimum(np.searchsorted(ordered, labels), len(names) - 1)
    codes = np.where(ordered[place] == labels, order[place], -1)
    return np.where(is_missing(labels), -1, codes).astype(np.int32)


def is_numbering(names: Labels, labels: Labels) -> bool:
    """Whether distinct names are 0, 1, ..., and all labels are among them: a third of the time of
    looking them up."""
    is_among = int(labels.min()) >= 0 and int(labels.max()) < len(names)
    return is_among and bool((names[1:] > names[:-1]).all())


def _looked_up(labels: Labels, names: Labels, least: int, largest: int) -> Codes:
    """The same of integers in a narrow range, by a table of all numbers in it."""
    table = np.full(largest - least + 3, -1, np.int32)
    table[_differences(names, least - 1)] = np.arange(len(names))
    info = np.iinfo(labels.dtype)
    # One before the range and one behind it stand for all that is beyond.
    low, high = max(least - 1, info.min), min(largest + 1, info.max)
    if low > info.max or high < info.min:
        return np.full(labels.shape, -1, np.int32)
    within = np.clip(labels, labels.dtype.type(low), labels.dtype.type(high))
    return table[_differences(within, least - 1)]


def _differences(labels: Labels, least: int) -> IntArray:
    """Integers less a number that is near to them."""
    if labels.dtype == np.uint64 and least >= 0:
        return (labels - np.uint64(least)).astype(np.int64)
    return labels.astype(np.int64) - least


def _table(labels: Labels) -> tuple[int, Flags] | None:
    """Of integers in a narrow range the least, and which of those behind it there are."""
    if labels.dtype.kind not in "iu" or not labels.size:
        return None
    least, largest = int(labels.min()), int(labels.max())
    if largest - least >= TABLE * labels.size + LEAST_TABLE or largest > np.iinfo(np.int64).max:
        return None
    flags = np.zeros(largest - least + 1, np.bool_)
    flags[_differences(labels, least)] = True
    return least, flags


# --- Labels of several parts ----------------------------------------------------------------------


def together(parts: Sequence[Labels]) -> Labels:
    """Labels of several parts, from arrays of each that broadcast to one shape."""
    parts = [np.asarray(each) for each in parts]
    shape = np.broadcast_shapes(*(each.shape for each in parts))
    found = np.empty(shape, [(f"f{i}", each.dtype) for i, each in enumerate(parts)])
    for i, each in enumerate(parts):
        found[f"f{i}"] = each
    return found


def _distinct_together(labels: Labels) -> Labels:
    fields = labels.dtype.names or ()
    names = [distinct(labels[field]) for field in fields]
    codes = _place_of(labels, names)
    some = distinct(codes[codes >= 0])
    found = np.empty(len(some), labels.dtype)
    sizes = [len(each) for each in names]
    if len(some):
        for field, each, place in zip(fields, names, np.unravel_index(some, sizes), strict=True):
            found[field] = each[place]
    return found


def _codes_together(labels: Labels, names: Labels) -> Codes:
    each = [distinct(names[field]) for field in names.dtype.names or ()]
    return codes_among(_place_of(labels, each), _place_of(names, each))


def _place_of(labels: Labels, names: Sequence[Labels]) -> IntArray:
    """Where labels are in the product of those of each part, -1 for those with a part that is none
    of them."""
    place = np.zeros(labels.shape, np.int64)
    is_none = np.zeros(labels.shape, np.bool_)
    for field, each in zip(labels.dtype.names or (), names, strict=True):
        codes = codes_among(labels[field], each)
        is_none |= codes < 0
        place = place * len(each) + codes
    place[is_none] = -1
    return place
