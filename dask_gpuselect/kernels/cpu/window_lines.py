"""Steps of windows of consecutive elements along one axis, for `window_blocks`.

A block of few distinct values is not sorted: its values are numbered in their order, and a window
counts its elements by them. Otherwise it marks ranks, 64 in a word. A word of marks and a count are
units that are treated alike: the window's elements in units before the current one are known, and
the wanted element is near.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels
from dask_gpuselect.kernels.cpu.bits import first_bit, last_bit, n_bits, nan_key, nth_bit

FEW = 256  # distinct values of a block that are counted, or more if a window has as many elements
MANY = 4095  # at most
SLOTS = 1 << 14  # places where a value may be found


@called_by_kernels
def numbered(given: Any, first: Any, limit: Any, slots: Any, values: Any, ranks: Any) -> Any:
    """Give a number to each distinct key of a block, and write those of all keys into `ranks`.

    The block begins at `first`. Return how many distinct keys there are, which are then in
    `values`, and how many elements are valid. `MANY` is the number of elements that are not. With
    more than `limit` distinct keys, or an eighth of all, or if they are hard to find, return 0.
    """
    keys, has_missing = given
    n_values, n, n_left = 0, 0, 4 * ranks.size
    missing = ~keys.dtype.type(0)
    limit = min(limit, 16 + ranks.size // 8)
    width = last_bit(np.uint64(limit)) + 3
    last = np.uint64((1 << width) - 1)
    slots[: (1 << width)] = -1
    for i in range(ranks.size):
        key = keys[first + i]
        if has_missing and key == missing:
            ranks[i] = MANY
            continue
        n += 1
        slot = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - width)
        while slots[slot] >= 0 and values[slots[slot]] != key:
            slot = (slot + np.uint64(1)) & last
            n_left -= 1
        if slots[slot] < 0:
            if n_values >= limit or n_left < 0:
                return 0, 0
            values[n_values] = key
            slots[slot] = n_values
            n_values += 1
        ranks[i] = slots[slot]
    return n_values, n


@called_by_kernels
def _changed(unit: Any, rank: Any, by: Any, counts: Any) -> Any:
    """Return a unit with an element more or less."""
    if counts is None:
        return unit ^ (np.uint64(1) << (rank & np.uint64(63)))
    return unit + np.uint64(by)


@called_by_kernels
def _inside(unit: Any, counts: Any) -> Any:
    """Count the elements in a unit."""
    return n_bits(unit) if counts is None else np.int64(unit)


@called_by_kernels
def _beyond(unit: Any, bit: Any, left: Any, counts: Any) -> Any:
    """Return what a unit holds beyond an element, which is followed by `left` - 1 others."""
    return unit & (~np.uint64(1) << np.uint64(bit)) if counts is None else np.uint64(left > 1)


@called_by_kernels
def walk_line(
    block: Any, sizes: Any, wanted_of: Any, to: Any, outs: Any, counts: Any, lacks: Any
) -> None:
    """Move the window through a block, and find its elements of two ranks.

    Elements that take no part have a rank beyond all others: a branch would be mispredicted.
    `counts` is None if units are words of marks, True if they are counts. `lacks` is None if all
    elements take part.
    """
    keys, ranks, units, n = block
    size, n_windows = sizes
    lower, upper, has_upper = wanted_of
    out_lower, out_upper = outs[0][to : to + n_windows], outs[1][to : to + n_windows]
    shift = np.uint64(6 if counts is None else 0)
    n_units = (n + 63) // 64 if counts is None else n
    units[:n_units] = 0
    units[n_units] = ~np.uint64(0)
    end, nothing = np.uint64(n), nan_key(keys)
    below, n_in_window = np.int64(0), np.int64(0)
    if counts is not None and n == 1:  # else each step would wait for the same count
        for j in range(1 - size, n_windows):
            n_in_window += ranks[j + size - 1] < 1
            if j >= 0:
                out_lower[j] = out_upper[j] = keys[0] if lower[n_in_window] >= 0 else nothing
                n_in_window -= ranks[j] < 1
        return
    own = np.uint64(n_units // 2)
    wanted, second = lower[size], upper[size]
    for j in range(1 - size, n_windows):
        rank = np.uint64(ranks[j + size - 1])
        unit = rank >> shift
        units[unit] = _changed(units[unit], rank, 1, counts)
        below += unit < own
        if lacks is not None:
            n_in_window += rank < end
        if j < 0:
            continue
        if lacks is not None:
            wanted, second = lower[n_in_window], upper[n_in_window]
        if wanted >= 0:
            while below > wanted:
                own -= np.uint64(1)
                below -= _inside(units[own], counts)
            inside = _inside(units[own], counts)
            while below + inside <= wanted:
                below += inside
                own += np.uint64(1)
                inside = _inside(units[own], counts)
            bit = nth_bit(units[own], wanted - below) if counts is None else 0
            place = (own << shift) + np.uint64(bit)
            out_lower[j] = keys[place]
            if has_upper:
                if second > wanted:
                    bits, other = _beyond(units[own], bit, below + inside - wanted, counts), own
                    while bits == 0:
                        other += np.uint64(1)
                        bits = units[other]
                    bit = first_bit(bits) if counts is None else 0
                    place = (other << shift) + np.uint64(bit)
                out_upper[j] = keys[place]
        else:
            out_lower[j] = out_upper[j] = nothing
        rank = np.uint64(ranks[j])
        unit = rank >> shift
        units[unit] = _changed(units[unit], rank, -1, counts)
        below -= unit < own
        if lacks is not None:
            n_in_window -= rank < end
