"""Settings of the package that many tests set, and the memory that calls take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import dask


def configured(**settings: Any) -> Any:
    """Set settings of the package, by their names with underscores."""
    names = {name: f"dask_gpuselect.{name.replace('_', '-')}" for name in settings}
    return dask.config.set({names[name]: value for name, value in settings.items()})


def limited(to: int | str) -> Any:
    """Limit columns of chunks, none of which is written to disk or stays on a device."""
    return configured(column_limit=to, scratch_directory=False, cache_limit=0)


def peak_of(function: Callable[..., Any], *args: Any, enough: float = 0, **how: Any) -> float:
    """Return the bytes that a call takes at most, measured until they are less than `enough`, and
    at most three times."""
    # Other threads allocate meanwhile, but not each time as much: the least is the call's own.
    peaks: list[float] = []
    while len(peaks) < 3 and min(peaks, default=enough) >= enough:
        tracemalloc.start()
        function(*args, **how)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(peaks)
