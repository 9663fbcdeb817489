"""Classes of keys, which divide the groups of a table among several tasks.

Equal keys are in one class, in every process, whatever their dtype in each partition: 1, 1.0 and
True, a date in seconds and in nanoseconds, a word of Python and of PyArrow. Keys are equal if
pandas' groupby treats them as one key once partitions are one table. Unequal keys may share a
class.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Forms = NDArray[np.uint64]
Form = Callable[[NDArray[np.object_]], Forms]
"""Type of a function from objects of one type to a number for each."""

MISSING = np.uint64(0xD1B54A32D192ED03)
# Form of objects that no rule here covers. All of them are in one class.
OTHER = np.uint64(0x8CB92BA72F3D8DD7)

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def classes(index: Any, n: int) -> NDArray[np.uint16]:
    """Return the class of each key: a number below `n`.

    Parameters
    ----------
    index : pandas.Index
        Keys; a `MultiIndex` if there are several for each row.
    n : int
        Number of classes.
    """
    mixed: Forms = np.zeros(len(index), np.uint64)
    for form in _of_columns(index):
        mixed = _mixed(mixed + form)
    return (mixed % np.uint64(n)).astype(np.uint16)


def _of_columns(index: Any) -> list[Forms]:
    if not isinstance(index, pd.MultiIndex):
        return [forms(index)]
    pairs = zip(index.levels, index.codes, strict=True)
    return [_of_codes(level, np.asarray(codes)) for level, codes in pairs]


def _of_codes(values: Any, codes: NDArray[Any]) -> Forms:
    """Return the forms of values that codes stand for, -1 for a missing value."""
    by_code: Forms = np.append(forms(values), MISSING)[codes]
    return by_code


def forms(values: Any) -> Forms:
    """Return a number for each key of an index, the same for equal keys."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _of_codes(values.categories, np.asarray(values.codes))
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _of_dates(values.tz_convert(None).to_numpy())
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return _of_dates(values.to_numpy())
    if dtype.kind in "biuf" and hasattr(dtype, "numpy_dtype"):  # nullable, or of PyArrow
        present = values.array.fillna(False if dtype.kind == "b" else 0)
        known = _of_numbers(np.asarray(present.to_numpy(dtype=dtype.numpy_dtype)))
        return np.where(np.asarray(values.isna(), np.bool_), MISSING, known)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return _of_numbers(values.to_numpy())
    return _of_objects(np.asarray(values, dtype=object))


def _of_numbers(values: NDArray[Any]) -> Forms:
    """Return the float64 bits of numbers, because pandas compares integers with floats as float64.

    Integers beyond 2**53 share their form with their neighbours.
    """
    floats = values.astype(np.float64) + 0.0  # zeros of both signs have one form
    return np.where(np.isnan(floats), MISSING, floats.view(np.uint64))


def _of_dates(values: NDArray[Any]) -> Forms:
    """Return the forms of dates or time differences, from whole seconds and nanoseconds.

    So no date overflows, whatever its unit.
    """
    unit, _ = np.datetime_data(values.dtype)
    seconds, rest = np.divmod(values.view(np.int64), PER_SECOND[unit])
    nanoseconds = rest * (PER_SECOND["ns"] // PER_SECOND[unit])
    parts = _mixed(seconds.astype(np.uint64)) + nanoseconds.astype(np.uint64)
    return np.where(np.isnat(values), MISSING, parts)


def _mixed(x: Forms) -> Forms:
    """Hash numbers so that every bit depends on all bits (the last step of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# --- Objects --------------------------------------------------------------------------------------


def _of_objects(values: NDArray[np.object_]) -> Forms:
    by_object = np.full(len(values), OTHER)
    by_object[pd.isna(values)] = MISSING
    some = np.flatnonzero(by_object == OTHER)
    kinds = [type(value) for value in values[some]]
    for kind in set(kinds):
        # The order of rules matters: np.timedelta64 is a `numbers.Number`, too. np.bool_ is not.
        form = next((form for kinds_of, form in RULES if issubclass(kind, kinds_of)), None)
        if form is not None:
            own = some[np.fromiter((each is kind for each in kinds), np.bool_, len(kinds))]
            by_object[own] = form(values[own])
    return by_object


def _of_words(values: NDArray[np.object_]) -> Forms:
    """Hash strings with a hash that is the same in every process; Python's own is not."""
    words = np.empty(len(values), object)
    words[:] = [str.__str__(value) for value in values]  # a subclass of str becomes an equal str
    return np.asarray(pd.util.hash_array(words, categorize=False))


def _of_python_numbers(values: NDArray[np.object_]) -> Forms:
    return _of_numbers(np.array([_as_float(value) for value in values], np.float64))


def _as_float(value: Any) -> float:
    """Return the float nearest to a number, or to its real part: the same for all equal numbers."""
    real: Any = value.real if isinstance(value, numbers.Complex) else value
    try:
        return float(real)
    except OverflowError:
        return float("inf") if real > 0 else float("-inf")


def _of_moments(values: NDArray[np.object_]) -> Forms:
    return np.array([_of_moment(value) for value in values], np.uint64)


def _of_moment(value: Any) -> np.uint64:
    """Return the form of a date or a time difference, equal to that in an array."""
    try:
        is_date = isinstance(value, date | np.datetime64)
        moment: Any = pd.Timestamp(value) if is_date else pd.Timedelta(value)
    except (ValueError, OverflowError):  # out of pandas' range, so no key of pandas equals it
        return OTHER
    naive = moment if not is_date or moment.tz is None else moment.tz_convert(None)
    form: np.uint64 = _of_dates(np.array([naive.asm8]))[0]
    return form


RULES: list[tuple[tuple[type, ...], Form]] = [
    ((str,), _of_words),
    ((date, timedelta, np.datetime64, np.timedelta64), _of_moments),
    ((bool, np.bool_, numbers.Number), _of_python_numbers),
]
