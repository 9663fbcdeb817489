"""Labels of groups: the distinct ones, and the place of each label among some.

A label of several parts, of several kinds of labels, is an element of a structured array: its
fields are compared in their order. NaN, NaT and masked elements are no labels. Among objects, None
and the NA of pandas are none either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import IntArray

Labels = NDArray[Any]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]

# Integers in a range of at most so many values for each label are looked up in a table: 1e6 labels
# take 2 ms, and sorted 60.
TABLE = 4
LEAST_TABLE = 1 << 16


def is_missing(labels: Labels) -> Flags:
    """Mark the labels that are missing, or that have a missing part."""
    labels, mask = _unmasked(labels)
    if mask is not None:
        return mask | is_missing(labels)
    if labels.dtype.names:
        parts = [is_missing(labels[name]) for name in labels.dtype.names]
        return np.asarray(np.any(parts, axis=0))
    if labels.dtype.kind in "fmM":
        return np.asarray(labels != labels)
    if labels.dtype.kind == "O":
        flags = np.fromiter(map(_is_none, labels.flat), np.bool_, labels.size)
        return flags.reshape(labels.shape)
    return np.zeros(labels.shape, np.bool_)


def _is_none(label: Any) -> bool:
    """Return whether an object is None, NaN, NaT or NA."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # the NA of pandas raises for the truth of a comparison
        return True


def _unmasked(labels: Labels) -> tuple[Labels, Flags | None]:
    """Split labels into plain labels and their mask, None without one."""
    if not isinstance(labels, np.ma.MaskedArray):
        return labels, None
    mask: Labels = np.ma.getmaskarray(labels)
    if mask.dtype.names:
        mask = np.any([mask[name] for name in mask.dtype.names], axis=0)
    return np.ma.getdata(labels), np.asarray(mask)


def distinct(labels: Labels) -> Labels:
    """Find the distinct labels, ascending.

    Raises
    ------
    ValueError
        For floats with fractions, which are measurements rather than labels.
    TypeError
        For objects that have no order.
    """
    labels, mask = _unmasked(labels)
    if mask is not None:
        labels = labels[~mask]
    if labels.dtype.kind == "O":
        return _distinct_objects(labels)
    table = _table(labels)
    if table is not None:
        least, flags = table
        return (np.flatnonzero(flags) + least).astype(labels.dtype)
    if labels.dtype.names:
        return _distinct_together(labels)
    some = labels[~is_missing(labels)]
    if labels.dtype.kind == "f" and (some != np.floor(some)).any():  # infinity equals its floor
        raise ValueError(FRACTIONS)
    return _ascending(some)


FRACTIONS = (
    "the labels are floats with fractions: pass groups=, the labels that are wanted, or bins of "
    "them, numpy.digitize(by, edges)"
)


def _distinct_objects(labels: Labels) -> Labels:
    every = {label for label in labels.flat if not _is_none(label)}
    if any(isinstance(label, float | np.floating) and label % 1 > 0 for label in every):
        raise ValueError(FRACTIONS)
    try:
        return as_objects(sorted(every))
    except TypeError:
        kinds = sorted({type(label).__name__ for label in every})
        raise TypeError(
            f"the labels are objects without an order, of the types {', '.join(kinds)}: convert "
            "them to one type, or pass groups=, the labels that are wanted"
        ) from None


def as_objects(labels: Iterable[Any]) -> Labels:
    """Put objects, which may be sequences themselves, into a one-dimensional array."""
    every = list(labels)
    objects = np.empty(len(every), object)
    objects[:] = every
    return objects


def union(several: Sequence[Labels]) -> Labels:
    """Merge several arrays of distinct labels into one, ascending."""
    together = np.concatenate(several)
    return _ascending(together) if together.dtype.kind in "SUT" else distinct(together)


def _ascending(labels: Labels) -> Labels:
    """Sort labels and drop repeated ones.

    `numpy.unique` hashes them first, which takes ten times as long where there are millions.
    """
    ordered = np.sort(labels)
    is_first = np.append(np.True_, ordered[1:] != ordered[:-1])[: len(ordered)]
    return np.asarray(ordered[is_first])


def codes_among(labels: Labels, names: Labels) -> Codes:
    """Find the place of each label among distinct names in any order, or -1."""
    labels, mask = _unmasked(labels)
    if mask is not None:
        return np.where(mask, -1, codes_among(labels, names)).astype(np.int32)
    if not (names.size and labels.size):
        return np.full(labels.shape, -1, np.int32)
    if names.dtype.names:
        return _codes_together(labels, names)
    if "O" in (labels.dtype.kind, names.dtype.kind):
        return _codes_of_objects(labels, names)
    if labels.dtype != names.dtype and names.dtype.kind not in "SUT":
        names, is_exact = _exactly(names, labels.dtype)
        if not is_exact.all():
            codes = codes_among(labels, names[is_exact])
            return np.append(np.flatnonzero(is_exact), -1).astype(np.int32)[codes]
    if labels.dtype.kind == names.dtype.kind == "b":
        labels, names = labels.view(np.uint8), names.view(np.uint8)
    if labels.dtype.kind in "iu" and names.dtype.kind in "iu":
        least, largest = int(names.min()), int(names.max())
        if least == 0 and largest == len(names) - 1 and is_numbering(names, labels):
            numbers: Codes = labels.astype(np.int32, copy=False)
            return numbers
        if largest - least < TABLE * (labels.size + names.size) + LEAST_TABLE:
            return _looked_up(labels, names, least, largest)
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    place = np.minimum(np.searchsorted(ordered, labels), len(names) - 1)
    codes = np.where(ordered[place] == labels, order[place], -1)
    return np.where(is_missing(labels), -1, codes).astype(np.int32)


def _codes_of_objects(labels: Labels, names: Labels) -> Codes:
    places = {name: i for i, name in enumerate(names.tolist()) if not _is_none(name)}
    codes = np.fromiter((places.get(label, -1) for label in labels.flat), np.int32, labels.size)
    return codes.reshape(labels.shape)


def _exactly(names: Labels, dtype: np.dtype[Any]) -> tuple[Labels, Flags]:
    """Convert names to the dtype of labels, and mark those that are converted exactly.

    No label equals any of the others. NumPy compares integers with floats, and with integers of the
    other sign, as float64, where numbers beyond 2**53 equal their neighbours.
    """
    with np.errstate(all="ignore"):
        converted = _converted(names, dtype)
        is_exact = np.asarray(_converted(converted, names.dtype) == names)
        if names.dtype.kind in "biuf":
            is_exact &= (converted < 0) == (names < 0)
    for ends, floats in ((dtype, names), (names.dtype, converted)):
        if floats.dtype.kind == "f" and ends.kind in "iu":  # overflow depends on the processor
            info = np.iinfo(ends)
            is_exact &= (floats >= float(info.min)) & (floats < 2.0 ** (info.bits - (info.min < 0)))
    return converted, is_exact


def _converted(values: Labels, dtype: np.dtype[Any]) -> Labels:
    try:
        return values.astype(dtype)
    except OverflowError:  # raised for dates since NumPy 2.5
        if values.size == 1:
            return np.full(values.shape, "NaT", dtype)
        return np.concatenate([_converted(each, dtype) for each in np.split(values, values.size)])


def is_numbering(names: Labels, labels: Labels) -> bool:
    """Return whether distinct names are 0, 1, ..., and all labels are among them.

    That takes a third of the time of a look-up.
    """
    is_among = int(labels.min()) >= 0 and int(labels.max()) < len(names)
    return is_among and bool((names[1:] > names[:-1]).all())


def _looked_up(labels: Labels, names: Labels, least: int, largest: int) -> Codes:
    """Find codes of integers in a narrow range, by a table of all numbers in it."""
    table = np.full(largest - least + 3, -1, np.int32)
    table[_differences(names, least - 1)] = np.arange(len(names))
    info = np.iinfo(labels.dtype)
    # One number before the range and one behind it stand for all numbers beyond.
    low, high = max(least - 1, info.min), min(largest + 1, info.max)
    within = np.clip(labels, labels.dtype.type(low), labels.dtype.type(high))
    return table[_differences(within, least - 1)]


def _differences(labels: Labels, least: int) -> IntArray:
    """Subtract a number that is near to the integers, which may not fit int64."""
    return (labels.astype(np.uint64) - np.uint64(least % 2**64)).view(np.int64)


def _table(labels: Labels) -> tuple[int, Flags] | None:
    """Find the least of integers in a narrow range, and flags of the numbers from there on."""
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
    """Combine labels of several parts, from arrays that broadcast to one shape.

    The result is masked if one of the parts is.
    """
    parts = [np.asanyarray(each) for each in parts]
    shape = np.broadcast_shapes(*(each.shape for each in parts))
    combined = np.empty(shape, [(f"f{i}", each.dtype) for i, each in enumerate(parts)])
    masks = []
    for i, each in enumerate(parts):
        combined[f"f{i}"], mask = _unmasked(each)
        masks += [] if mask is None else [mask]
    if not masks:
        return combined
    mask = np.broadcast_to(np.any(np.broadcast_arrays(*masks), axis=0), shape)
    return np.ma.MaskedArray(combined, mask)


def _distinct_together(labels: Labels) -> Labels:
    fields = labels.dtype.names or ()
    names = [distinct(labels[field]) for field in fields]
    codes = _place_of(labels, names)
    some = distinct(codes[codes >= 0])
    combined = np.empty(len(some), labels.dtype)
    sizes = [len(each) for each in names]
    if len(some):
        for field, each, place in zip(fields, names, np.unravel_index(some, sizes), strict=True):
            combined[field] = each[place]
    return combined


def _codes_together(labels: Labels, names: Labels) -> Codes:
    each = [distinct(names[field]) for field in names.dtype.names or ()]
    return codes_among(_place_of(labels, each), _place_of(names, each))


def _place_of(labels: Labels, names: Sequence[Labels]) -> IntArray:
    """Compute the place of labels in the product of the names of all parts.

    It is -1 if a part is none of the names.
    """
    place = np.zeros(labels.shape, np.int64)
    is_none = np.zeros(labels.shape, np.bool_)
    for field, each in zip(labels.dtype.names or (), names, strict=True):
        codes = codes_among(labels[field], each)
        is_none |= codes < 0
        place = place * len(each) + codes
    place[is_none] = -1
    return place
