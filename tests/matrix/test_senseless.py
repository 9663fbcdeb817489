"""Arguments and data that make no sense: each is refused at the call, by an error raised
on purpose."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback

from dask_gpuselect.sorting.radix_sort import radix_sort
from tests.calls import LANE, Call, calls
from tests.matrix.laws import Broken, check_clean
from tests.spies import refuse

SPOILS: Mapping[str, tuple[Any, ...]] = {
    "q": (1e9, -0.1, math.nan, math.inf, "a", None, 1j, [[999]], [0.5, math.nan], [None], object(),
          da.ones(3), [da.ones(()), 0.5], np.timedelta64(1), {}, "0.5", np.ma.masked),
    "axis": (99, -99, "0", 0.5, (0, 99), [0.0], object(), 1j, math.nan, "ab", (None,)),
    "method": ("Linear", None, 7, b"linear", ["linear"], {}, object(), math.nan),
    "k": (10**9, -(10**9), 0.5, "1", None, [[0]], math.nan, 2**70, [0, 2**70], 1j, object(), {}),
    "whis": (-1, math.nan, (5,), (95, 5), (0, 101), "a", None, (math.nan, 5), [1, 2, 3], 1j, {},
             object(), "15", (None, 5), [[1, 2]]),
    "max_fliers": (-1, 1.5, "3", None, math.nan, math.inf, 1j, [1], object()),
    "nan_policy": ("raise", None, 0, [], {}, math.nan),
    "labels": (["a"] * 99, 5, object(), math.nan),
    "scale": (0, -1, math.nan, math.inf, "norm", None, [1.0, 2.0], 1j, object(), {}, 1e400),
    "points": (1, 0, -5, 0.5, math.nan, "a", None, [math.nan], [[1]], [None], ["a"], 1j, object(),
               {}, [1j], da.ones(3), 10**9, 2**70),
    "n_bins": (0, -1, 2.5, "4", None, math.nan, [3], object(), 1j, 10**9, 2**70),
    "n_neighbors": (0, -1, 2.5, "4"),
    "n_starts": (0, -1, 2.5, "4", 10**9, 2**70),
    "groups": (range(10**9), [math.nan], "a", 5, [[1]]),
    "bins": ([[1]], ["a"], [math.nan], [1, 0, 2], None, 5, [1j], object(), {}, "a", [None]),
    "strategy": ("nope", 5, "", [], object(), {}, math.nan),
    "chunks": (0, "abc", (1, 1, 999_999), 0.5, ((1,), (2,)), object(), 1j, math.nan),
    "split_every": (1, 0, -1, 0.5, "a", {0: 1}, math.nan, [2], object(), 1j),
    "spill": ("/nonexistent/folder", 5, 0.5, object(), ["a"]),
    "bits": (0, 17, -1, 2.5, "8", None, math.nan, object()),
    "coverage": (0.2, 1.5, math.nan, "a", 1j, [0.5], object()),
}  # fmt: skip
"""By argument: what makes no sense as it."""
OF_LAZY = ("chunks", "split_every", "spill", "bits")
"""Arguments that only matter of lazy arrays."""

CALLS = {
    name: call
    for name, call in calls().items()
    if call.data and not name.startswith(("exact.", "groups.", "explain"))
} | {"radix_sort": Call(lambda x, bits: radix_sort(x, bits=bits), {"x": LANE}, {"bits": 16})}
SENSELESS = [
    (name, what)
    for name, call in CALLS.items()
    for what in ("data", *call.data, *call.known)
    # Estimators take the data that those of scikit-learn take, whose checks have all of them.
    if what in SPOILS or what == "data" and name.count(".") < 2
]


def options(name: str, what: str, *, is_lazy: bool) -> Sequence[Any]:
    """List what makes no sense as an argument of a call, or as its first array."""
    if what != "data":
        return SPOILS[what] if is_lazy or what not in OF_LAZY else ()
    shape = np.shape(next(iter(CALLS[name].data.values())))
    made: list[Any] = [np.zeros(shape, kind) for kind in ("c16", "O", "U3", "V8", "i4,f8")]
    made += [np.zeros(shape, "g")] if is_lazy else []  # which is rounded in memory
    if not {"where", "n_bins"} & {*CALLS[name].data, *CALLS[name].known}:
        made.append(np.ma.masked_array(np.zeros(shape), np.zeros(shape, bool)))
    if is_lazy:
        return made
    ragged = [] if name == "describe_boxplot" else [[[1.0], [2, 3]], {}]  # those are boxes
    return [*made, *ragged, None, "abc", 1j, {1, 2}, object(), b"x"]


def refused(name: str, what: str, value: Any, *, is_lazy: bool) -> None:
    """Ask what makes no sense, and check the error that comes of it.

    Raises
    ------
    Broken
        If the call does not refuse it, or computes something.
    """
    call = CALLS[name]
    first = next(iter(call.data))
    data = {key: its for key, its in call.data.items() if its is not None}
    data |= {first: value} if what == "data" else {}
    if is_lazy:
        data |= {
            key: da.from_array(its, chunks=2)
            for key, its in data.items()
            if isinstance(its, np.ndarray) and key not in call.computes
        }
    data |= {} if what == "data" else {what: value}
    try:
        with warnings.catch_warnings(action="ignore"):
            with Callback(start=refuse) if not call.computes else warnings.catch_warnings():
                result = call(**data)
            if what == "spill":  # a directory that does not exist is noticed by the first write
                dask.compute(result)
    except Broken:
        raise
    except Exception as error:
        return check_clean(error)
    raise Broken(f"not refused: {name}: {what}={value!r}")


@pytest.mark.parametrize(("name", "what"), SENSELESS)
def test_what_makes_no_sense_is_refused(name: str, what: str) -> None:
    """Of plain and of lazy arrays."""
    for is_lazy in (False, True):
        for value in options(name, what, is_lazy=is_lazy):
            refused(name, what, value, is_lazy=is_lazy)


def test_what_makes_sense_is_told_from_it() -> None:
    with pytest.raises(Broken, match="not refused: median: axis=0"):
        refused("median", "axis", 0, is_lazy=True)
