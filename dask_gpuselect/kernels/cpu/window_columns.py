"""Windows of keys of one byte, as sums of histograms of columns.

Each column of a window has a histogram. It follows a window down the rows: one element leaves it
and one enters. A window that moves along a row adds a column's histogram and subtracts another. So
the time does not depend on the size of the window (Perreault and Hébert 2007). 16 coarse bins are
always up to date; the 16 fine ones within a coarse bin only where an answer lies.

A word holds four counts of 16 bits, so that four are added at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.window_blocks import Outs, Ranks, laid_out, restored
from dask_gpuselect.maths.windows import Frame, WindowOrder, WindowRanks, strides_of

STRIPE = 512  # windows in a row whose columns are counted together: 300 KB
MOST = (1 << 16) - 1  # elements of a window
LEAST = 5  # elements of its second longest side; with fewer, blocks are faster
EACH = 0x0001000100010001  # one in each count of a word


def takes(keys: NDArray[Any], frame: Frame) -> bool:
    """Return whether windows of these keys are counted."""
    is_plain = frame.footprint is None and set(frame.step) == {1}
    sides = sorted(frame.size)
    return (
        keys.dtype == np.uint8
        and is_plain
        and frame.n <= MOST
        and len(sides) > 1
        and sides[-2] >= LEAST
    )


def elements(
    keys: NDArray[Any], keeps: NDArray[np.bool_] | None, frame: Frame, order: WindowOrder
) -> list[NDArray[Any]]:
    """Find the keys of the two elements of each answer; see `window_blocks.elements`."""
    axes, given, own = laid_out(keys, frame)
    marks = np.empty(0, np.uint8)
    if keeps is not None:
        marks = laid_out(keeps.view(np.uint8), frame)[1].reshape(-1)
    strides = strides_of(given.shape)
    answers = (given.shape[0], *own.shape(given.shape[1:]))
    starts = np.array(list(np.ndindex(*answers[:-2])), np.int64) @ strides[:-2]
    inner = np.array(list(np.ndindex(*own.size[:-2])), np.int64) @ strides[1:-2]
    ranks = WindowRanks.of(order, own.n, is_whole=keeps is None)
    outs = ranks.room(math.prod(answers), keys.dtype)
    about = (starts, inner, (*answers[-2:], *own.size[-2:]), tuple(ranks))
    flat = [each.reshape(-1) for each in outs]
    _count_columns(given.reshape(-1), marks, *about, (flat[0], flat[-1]))
    return [restored(each, axes, frame.shape(keys.shape)) for each in outs]


@kernel_of("u1")
def _count_columns(
    keys: t.Values,
    keeps: t.Marks,
    starts: t.Places,
    inner: t.Places,
    sizes: tuple[int, int, int, int],
    ranks: Ranks,
    outs: Outs,
) -> None:
    """Move windows along the rows of each plane, stripe by stripe.

    `sizes` holds the number of rows and of places in a row, and the height and width of a window.
    """
    n_rows, n_places, height, width = sizes
    lower, upper, has_upper = ranks
    out_lower, out_upper = outs
    length = n_places + width - 1
    room = min(STRIPE, n_places) + width - 1
    coarse, fine = np.empty((room, 4), np.uint64), np.empty((16, room, 4), np.uint64)
    n_valid = np.empty(room, np.int64)
    bins_of = coarse, fine, n_valid
    window = np.empty(4, np.uint64)  # the coarse bins of a window
    within = np.empty((16, 4), np.uint64)  # the fine bins of an earlier window, behind `until`
    until = np.empty(16, np.int64)
    total = starts.size * n_rows * n_places
    for plane in range(starts.size):
        for left in range(0, n_places, STRIPE):
            own = min(STRIPE, n_places - left)
            reach = own + width - 1
            coarse[:] = 0
            fine[:] = 0
            n_valid[:] = 0
            for row in range(1 - height, n_rows):
                for i in range(inner.size):
                    first = starts[plane] + inner[i] + left + (row + height - 1) * length
                    _change(keys, keeps, first, reach, 1, bins_of)
                    if row > 0:
                        _change(keys, keeps, first - height * length, reach, -1, bins_of)
                if row < 0:
                    continue
                window[:] = 0
                until[:] = -width
                n_in_window = 0
                for x in range(reach):
                    n_in_window += n_valid[x]
                    for i in range(4):
                        window[i] += coarse[x, i]
                    place = x - width + 1
                    if place < 0:
                        continue
                    to = (plane * n_rows + row) * n_places + left + place
                    for question in range(lower.shape[0]):
                        for second in range(1 + has_upper):
                            rank = (upper if second else lower)[question, n_in_window]
                            high, below = _bin_of(window, rank)
                            bins = within[high]
                            if 2 * (place - until[high]) >= width:
                                bins[:] = 0
                                for k in range(place, place + width):
                                    for i in range(4):
                                        bins[i] += fine[high, k, i]
                            else:
                                for k in range(until[high], place):
                                    for i in range(4):
                                        bins[i] += fine[high, k + width, i] - fine[high, k, i]
                            until[high] = place
                            low, _ = _bin_of(bins, rank - below)
                            key = np.uint8(16 * high + low) if n_in_window > 0 else np.uint8(0)
                            (out_upper if second else out_lower)[question * total + to] = key
                    n_in_window -= n_valid[place]
                    for i in range(4):
                        window[i] -= coarse[place, i]


@called_by_kernels
def _change(keys: Any, keeps: Any, first: Any, n: Any, by: Any, bins_of: Any) -> None:
    """Count the elements of a row in their columns, or take them out."""
    coarse, fine, n_valid = bins_of
    for x in range(n):
        if keeps.size > 0 and keeps[first + x] == 0:
            continue
        key = np.int64(keys[first + x])
        fine[key >> 4, x, (key >> 2) & 3] += np.uint64(by << (16 * (key & 3)))
        coarse[x, key >> 6] += np.uint64(by << (16 * ((key >> 4) & 3)))
        n_valid[x] += by


@called_by_kernels
def _bin_of(bins: Any, rank: Any) -> Any:
    """Find the bin of a rank among 16; return it with the number of elements before it."""
    below, word = np.int64(0), 0
    while word < 3:
        inside = np.int64((bins[word] * np.uint64(EACH)) >> np.uint64(48))
        if below + inside > rank:
            break
        below += inside
        word += 1
    rest, place = bins[word], 4 * word
    while place < 4 * word + 3:
        inside = np.int64(rest & np.uint64(0xFFFF))
        if below + inside > rank:
            break
        below += inside
        rest >>= np.uint64(16)
        place += 1
    return place, below
