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
from dask_gpuselect.kernels.cpu.bits import first_bit, n_bits, nan_key, nth_bit

FEW = 256  # distinct values of a block that are counted
SLOTS = 10  # bits of the places where a value may be found


@called_by_kernels
def numbered(buffers: Any, places: Any, n: Any, slots: Any, ranks: Any) -> Any:
    """Give a number to each value of the first n keys, and write those of all keys into `ranks`.

    Return how many there are, which are then the first keys, or 0 if they seem to be many.
    """
    n_values, n_left = 0, 4 * n
    for i in range(slots.size):
        slots[i] = -1
    for i in range(ranks.size):
        ranks[i] = FEW  # for those that are missing
    for i in range(n):
        key = buffers[0, i]
        slot = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - SLOTS)
        while slots[slot] >= 0 and buffers[1, slots[slot]] != key:
            slot = (slot + np.uint64(1)) & np.uint64((1 << SLOTS) - 1)
            n_left -= 1
        if slots[slot] < 0:
            if n_values >= FEW or n_values > 16 + i // 16 or n_left < 0:
                return 0
            buffers[1, n_values] = key
            slots[slot] = n_values
            n_values += 1
        ranks[places[0, i]] = slots[slot]
    for i in range(n_values):
        buffers[0, i] = buffers[1, i]
        places[0, i] = i
    return n_values


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
def walk_line(
    block: Any, size: Any, n_windows: Any, wanted_of: Any, to: Any, outs: Any, counts: Any
) -> None:
    """Move the window through a block, and find its elements of two ranks.

    Elements that take no part have a rank beyond all others: a branch would be mispredicted.
    `counts` is None if units are words of marks, True if they are counts.
    """
    keys, ranks, units, n = block
    lower, upper, has_upper, is_whole = wanted_of
    out_lower, out_upper = outs[0][to : to + n_windows], outs[1][to : to + n_windows]
    if counts is not None and is_whole and n == 1 and lower[size] >= 0:
        out_lower[:] = out_upper[:] = keys[0]
        return
    shift = np.uint64(6 if counts is None else 0)
    n_units = (n + 63) // 64 if counts is None else n
    units[:n_units] = 0
    units[n_units] = ~np.uint64(0)
    end, nothing = np.uint64(n), nan_key(keys)
    own = np.uint64(n_units // 2)
    below, n_in_window = np.int64(0), np.int64(0)
    for j in range(1 - size, n_windows):
        rank = np.uint64(ranks[j + size - 1])
        unit = rank >> shift
        units[unit] = _changed(units[unit], rank, 1, counts)
        below += unit < own
        n_in_window += rank < end
        if j < 0:
            continue
        wanted = lower[size] if is_whole else lower[n_in_window]  # sooner known
        if wanted >= 0:
            while below > wanted:
                own -= np.uint64(1)
                below -= _inside(units[own], counts)
            inside = _inside(units[own], counts)
            while below + inside <= wanted:
                below += inside
                own += np.uint64(1)
                inside = _inside(units[own], counts)
            if counts is None:
                bit = nth_bit(units[own], wanted - below)
                place = 64 * np.int64(own) + bit
            else:
                place = np.int64(own)
            out_lower[j] = keys[place]
            if has_upper:
                other = own
                if upper[n_in_window] > wanted:
                    if counts is None:
                        bits = units[own] & (~np.uint64(1) << np.uint64(bit))
                    else:
                        bits = np.uint64(below + inside > wanted + 1)
                    while bits == 0:
                        other += np.uint64(1)
                        bits = units[other]
                    place = np.int64(other)
                    if counts is None:
                        place = 64 * place + first_bit(bits)
                out_upper[j] = keys[place]
        else:
            out_lower[j] = out_upper[j] = nothing
        rank = np.uint64(ranks[j])
        unit = rank >> shift
        units[unit] = _changed(units[unit], rank, -1, counts)
        below -= unit < own
        n_in_window -= rank < end
