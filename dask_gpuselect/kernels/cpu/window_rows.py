"""Windows of rows whose sizes differ, which stay sorted as they move.

A window that moves takes out the elements that leave it and puts in those that enter. The cost of a
move grows with the size of the window, but what is moved lies side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.window_blocks import Ranks
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.windows import RowWindows, WindowOrder, WindowRanks

ROUND = 16  # elements that are compared together; a window has room for more behind it


def elements(
    keys: NDArray[Any], windows: RowWindows, order: WindowOrder, n_valid: IntArray
) -> list[NDArray[Any]]:
    """Find the keys of the two elements of each answer; see `window_networks.elements`."""
    ranks = WindowRanks.of(order, windows.n, is_whole=False)
    outs = ranks.room(len(windows.begins), keys.dtype)
    about = (windows.begins, windows.ends, n_valid, tuple(ranks))
    _move(keys, *about, (outs[0], outs[-1]))
    return outs


@kernel_of("u8 u4 u2 u1")
def _move(
    keys: t.Values,
    begins: t.Places,
    ends: t.Places,
    n_valid: t.Places,
    ranks: Ranks,
    outs: tuple[t.Table, t.Table],
) -> None:
    """Move a window along rows, sorted. Keys that are the last of all stand behind it."""
    lower, upper, _ = ranks
    out_lower, out_upper = outs
    window = np.empty(lower.shape[1] + 2 * ROUND, keys.dtype)
    window[:] = ~keys.dtype.type(0)
    size, begin, end = 0, 0, 0
    for j in range(begins.size):
        if begins[j] >= end:  # nothing stays
            window[:size] = window[window.size - 1]
            size, begin, end = 0, begins[j], begins[j]
        while begin < begins[j]:
            size = _changed(window, size, keys[begin], -1)
            begin += 1
        while end < ends[j]:
            size = _changed(window, size, keys[end], 1)
            end += 1
        for question in range(lower.shape[0]):
            out_lower[question, j] = window[lower[question, n_valid[j]]]
            out_upper[question, j] = window[upper[question, n_valid[j]]]


@called_by_kernels
def _place(window: Any, size: Any, key: Any) -> Any:
    """Count the elements of a window that are less than a key."""
    start, n = 0, size
    while n > 4 * ROUND:
        half = n // 2
        start = start + half if window[start + half - 1] < key else start
        n -= half
    kind = window.dtype.type
    count = kind(0)
    some = window[start : start + (n + ROUND - 1) // ROUND * ROUND]
    for i in range(some.size):
        count += kind(some[i] < key)
    return start + np.int64(count)


@called_by_kernels
def _changed(window: Any, size: Any, key: Any, by: Any) -> Any:
    """Put an element into a window, or take it out; return its size."""
    if key == window[window.size - 1]:
        return size
    place = _place(window, size, key)
    some = window[place : size + 1]
    if by < 0:
        for i in range(some.size - 1):
            some[i] = some[i + 1]
    else:
        for i in range(some.size - 1, 0, -1):
            some[i] = some[i - 1]
        window[place] = key
    return size + by
