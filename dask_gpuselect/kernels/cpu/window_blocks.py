"""Windows of any size, as sets of marks among the sorted elements of a block.

A block holds some windows and all elements that they reach. Its elements are sorted, and each is
known by its rank in the block. One bit for each rank says whether it is in the current window. When
the window moves, bits of entering elements are set and those of leaving ones cleared; the element
of a wanted rank in the window is then few words away from the last one. So the size of a window
matters little along one axis, and of a window along several axes only its side matters (Suomela
2014); where many elements enter at once, `window_sets` moves whole columns. Masks, NaN and
footprints of any form only change which bits are set.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.bits import (
    as_floats,
    first_bit,
    last_bit,
    n_bits,
    nan_key,
    nth_bit,
)
from dask_gpuselect.kernels.cpu.scalars import insert
from dask_gpuselect.kernels.cpu.window_deviations import FAR, nearest
from dask_gpuselect.kernels.cpu.window_lines import FEW, MANY, SLOTS, numbered, walk_line
from dask_gpuselect.kernels.cpu.window_sets import RANKS, takes, walk_columns
from dask_gpuselect.maths.windows import Frame, WindowOrder, WindowRanks, strides_of

LEAST_BLOCK = 4096  # windows of a block; 16 KiB of ranks
LONG = 1 << 15  # windows of a block whose values are counted
DIGITS = 3  # digits by which elements are sorted at first


def _walk_of(shape: tuple[int, ...], frame: Frame) -> tuple[Any, ...]:
    """Describe the walk of a window along all axes but the first, as arrays of int64 for kernels.

    Returns
    -------
    shape : ndarray
        Shape of the padded array: the batch, and each axis of the window.
    size, step, tile : ndarray
        Size and step of the window, and places of a block, along each axis of the window.
    of_block : ndarray
        Strides of a block. That of the last axis, along which windows move, is the largest, so that
        elements that enter a window are contiguous.
    whole, entering, leaving : ndarray
        Places in a block, relative to the first of the window, of all elements of a window, and of
        those that it gains and loses by one move along the last axis.
    inner : ndarray
        Places of a window along all its axes but the last two.
    """
    tile, *moves = _moves(shape[1:], frame)
    return *(np.array(each, np.int64) for each in (shape, frame.size, frame.step, tile)), *moves


@lru_cache(maxsize=16)
def _moves(padded: tuple[int, ...], frame: Frame) -> tuple[Any, ...]:
    """Return the places of a block, their strides, and where the elements of a window lie in it.

    The last four are the places of a whole window, of those that a move gains and loses, and along
    all axes but the last two.
    """
    tile = _tile(padded, frame)
    extents = tuple(n + size - 1 for n, size in zip(tile, frame.size, strict=True))
    marks = np.ones(frame.size, bool)
    if frame.footprint is not None:
        marks = np.array(frame.footprint).reshape(frame.size)
    nothing = np.zeros((*frame.size[:-1], 1), bool)
    before = np.concatenate([nothing, marks[..., :-1]], axis=-1)
    behind = np.concatenate([marks[..., 1:], nothing], axis=-1)
    strides = np.roll(strides_of((extents[-1], *extents[:-1])), -1)
    offsets = (np.argwhere(each) @ strides for each in (marks, marks & ~behind, marks & ~before))
    inner = np.array(list(np.ndindex(*frame.size[:-2])), np.int64) @ strides[:-2]
    return tile, strides, *offsets, inner


def _tile(padded: tuple[int, ...], frame: Frame) -> list[int]:
    """Choose how many places a block has along each axis.

    Where windows are twice as long there are twice as many, so that the elements that they reach
    beyond the block are a like part of all.
    """
    share = (LEAST_BLOCK / math.prod(frame.size)) ** (1 / len(frame.size))
    least = 2.5 if len(frame.size) < 3 else 1.5
    tile = []
    for n, size, step in zip(padded, frame.size, frame.step, strict=True):
        places = n - size + 1
        n_tiles = -(-places // math.ceil(size * max(share, least)))
        tile.append(-(-places // (n_tiles * step)) * step)
    return tile


def elements(
    keys: NDArray[Any], has_missing: bool, frame: Frame, order: WindowOrder, least: int
) -> list[NDArray[Any]]:
    """Find the keys of the two elements of each answer in every window, ``(n_answers, n_windows)``.

    There is one array if both elements always are one. For distances they hold their words.
    `has_missing` says that elements with the last key take no part. Windows of fewer than `least`
    others get the key of NaN.
    """
    axes, given, own = laid_out(keys, frame)
    ranks = WindowRanks.of(order, own.n, is_whole=not has_missing)
    lower = np.where(np.arange(own.n + 1) < max(least, 1), np.int64(-1), ranks.lower)
    shape = frame.shape(keys.shape)
    outs = ranks.room(math.prod(shape), keys.dtype)
    flat = [each.reshape(-1) for each in outs]
    about = (lower, *ranks[1:]), (flat[0], flat[-1])
    of_keys = given.reshape(-1), has_missing
    if own.step == (1,) and own.footprint is None and not order.deviates:
        most = _tile(given.shape[1:], own)[0]
        sizes = *given.shape, own.size[0], most
        _along_lines(of_keys, sizes, _scratch(most, own.size[0] - 1, keys.dtype), *about)
    else:
        find = _by_distances if order.deviates else _by_columns if takes(own) else _by_marks
        find(of_keys, _walk_of(given.shape, own), *about)
    return [restored(each, axes, shape) for each in outs]


def _scratch(most: int, more: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], ...]:
    """Make what `_along_lines` needs for as many windows; Numba would compile it in 0.3 s.

    It is keys, places, ranks, digits, units and slots. `more` elements follow those that windows
    begin with.
    """
    room = most + more
    return (
        np.empty((2, max(room, MANY)), dtype),
        np.empty((2, max(room, MANY)), np.int32),
        np.empty(max(most, LONG) + more, np.int32),
        np.empty((dtype.itemsize, 256), np.int32),
        np.zeros(max(room // 64, MANY) + 3, np.uint64),  # the last one has what takes no part
        np.empty(SLOTS, np.int32),
    )


def laid_out(keys: NDArray[Any], frame: Frame) -> tuple[tuple[int, ...], NDArray[Any], Frame]:
    """Move the axes along which windows have size 1 to the front, and the longest side to the end.

    Return the order of the axes, the keys with axes of size 1 as one batch, and the frame of the
    other axes.
    """
    axes = tuple(sorted(range(keys.ndim), key=lambda axis: (frame.size[axis], frame.step[axis])))
    moved = frame.moved(axes)
    n_batch = min(
        sum(size == step == 1 for size, step in zip(frame.size, frame.step, strict=True)),
        keys.ndim - 1,
    )
    given = np.ascontiguousarray(keys.transpose(axes))
    own = Frame(moved.size[n_batch:], moved.step[n_batch:], frame.footprint and moved.footprint)
    batch, rest = given.shape[:n_batch], given.shape[n_batch:]
    return axes, given.reshape(math.prod(batch), *rest), own


def restored(answers: NDArray[Any], axes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return answers, ``(n_answers, n_windows)``, for axes that have been moved as if they had not.

    `shape` is that of the answers before.
    """
    back = (0, *(axis + 1 for axis in np.argsort(axes).tolist()))
    moved = (shape[axis] for axis in axes)
    return answers.reshape(-1, *moved).transpose(back).reshape(answers.shape)


Ranks = tuple[t.IntRows, t.IntRows, int]
"""The fields of `WindowRanks`."""
Outs = tuple[t.Out, t.Out]
"""Keys of the lower and of the upper elements of answers."""
Of = t.Places
Given = tuple[t.Values, bool]
"""Keys, and whether the last of all stands for elements that take no part."""
Scratch = tuple[t.Table, t.CodeTable, t.CodesOut, t.CodeTable, t.LongWords, t.CodesOut]
"""Keys, places, ranks, digits, units and slots: see `_scratch`."""
Walk = tuple[Of, Of, Of, Of, Of, Of, Of, Of, Of]
"""Shape, sizes, strides and ways of a walk: see `_walk_of`."""


@kernel_of("u8 u4 u2 u1")
def _by_marks(given: Given, walk: Walk, ranks_of: Ranks, outs: Outs) -> None:
    """Find the elements of all windows by moving marks."""
    _walk(given, walk, ranks_of, outs, _move_marks, None)


@kernel_of("u8 u4 u2 u1")
def _along_lines(
    given: Given, sizes: tuple[int, int, int, int], scratch: Scratch, ranks_of: Ranks, outs: Outs
) -> None:
    """Find the elements of all windows of consecutive elements; see `window_lines`.

    `sizes` are those of the array, of windows and of blocks.
    """
    n_rows, n_keys, size, most = sizes
    keys, has_missing = given
    buffers, places, ranks, digits, units, slots = scratch
    lower, upper, has_upper = ranks_of
    out_lower, out_upper = outs
    n_places = n_keys - size + 1
    few = min(max(size, FEW), MANY)
    for row in range(n_rows):
        first, until = 0, 0  # before `until` there are many values
        while first < n_places:
            begin, to = row * n_keys + first, row * n_places + first
            key, run, n_values, n = keys[begin], 1, 0, 0
            while first + run < n_keys and keys[begin + run] == key:
                run += 1
            if run >= size:  # the next windows hold one value
                own = run - size + 1
                is_valid = not (has_missing and key == ~keys.dtype.type(0))
                for at in range(to, out_lower.size, n_rows * n_places):
                    has_answer = is_valid and lower[at // (n_rows * n_places), size] >= 0
                    out_lower[at : at + own] = key if has_answer else nan_key(keys)
                    out_upper[at : at + own] = out_lower[at]
                first += own
                continue
            if first >= until:
                n_blocks = -(-(n_places - first) // (ranks.size - size + 1))
                own = -(-(n_places - first) // n_blocks)  # alike: a short block has few values
                reach = own + size - 1
                n_values, n = numbered(given, begin, few, slots, buffers[0], ranks[:reach])
                until = first + own
            if n_values > 0:
                for i in range(n_values):
                    places[0, i] = i
                side = _sort(buffers, places, digits, n_values)
                slots[MANY] = units.size - 1
                for i in range(n_values):
                    slots[places[side, i]] = i
                for i in range(reach):
                    ranks[i] = slots[ranks[i]]
            else:
                own = min(most, n_places - first)
                reach = own + size - 1
                n = _gather_row(given, (begin, reach, 0, 1), buffers, places, 0)
                side = _sort(buffers, places, digits, n)
                for i in range(reach):
                    ranks[i] = 64 * (units.size - 1)
                for i in range(n):
                    ranks[places[side, i]] = i
            for question in range(lower.shape[0]):
                of = lower[question], upper[question], has_upper
                at = question * n_rows * n_places + to
                block = buffers[side], ranks, units, n_values or n
                if n_values > 0 and n == reach:
                    walk_line(block, (size, own), of, at, outs, True, None)
                elif n_values > 0:
                    walk_line(block, (size, own), of, at, outs, True, True)
                elif n == reach:
                    walk_line(block, (size, own), of, at, outs, None, None)
                else:
                    walk_line(block, (size, own), of, at, outs, None, True)
            first += own


@kernel_of("u8 u4 u2 u1")
def _by_columns(given: Given, walk: Walk, ranks_of: Ranks, outs: Outs) -> None:
    """Find the elements of all windows by sets of their columns."""
    _walk(given, walk, ranks_of, outs, walk_columns, None)


@kernel_of("u8 u4")
def _by_distances(given: Given, walk: Walk, ranks_of: Ranks, outs: Outs) -> None:
    """Find the words of distances in all windows by moving marks."""
    _walk(given, walk, ranks_of, outs, _move_marks, True)


@called_by_kernels
def _walk(given: Any, walk: Any, ranks_of: Any, outs: Any, find: Any, deviates: Any) -> None:
    """Find what is asked of all windows, block by block, by a function; see `_walk_of`.

    Each way has a kernel of its own, because compiling all of them takes long.
    """
    keys, _ = given
    shape, size, step, tile, of_block, whole, entering, leaving, inner = walk
    d = size.size
    extents = tile + size - 1
    room = 1
    for a in range(d):
        room *= extents[a]
    buffers = np.empty((2, room), keys.dtype)
    places = np.empty((2, room), np.int32)
    ranks = np.empty(room + RANKS, np.int32)
    digits = np.empty((keys.itemsize, 256), np.int32)
    words = np.zeros((room + 63) // 64 + 2, np.uint64)  # the last one has what takes no part
    n_places = np.empty(d, np.int64)  # places of windows, with those that steps skip
    n_tiles = np.empty(d, np.int64)
    strides = np.ones(d, np.int64)  # strides of the padded array
    of_out = np.ones(d, np.int64)
    every, n_out = 1, 1
    for a in range(d - 1, -1, -1):
        n_places[a] = shape[a + 1] - size[a] + 1
        n_tiles[a] = (n_places[a] + tile[a] - 1) // tile[a]
        every *= n_tiles[a]
        if a < d - 1:
            strides[a] = strides[a + 1] * shape[a + 2]
            of_out[a] = of_out[a + 1] * ((n_places[a + 1] - 1) // step[a + 1] + 1)
        n_out *= (n_places[a] - 1) // step[a] + 1
    n_padded = strides[0] * shape[1]
    own = np.empty(d, np.int64)  # places of this block
    for number in range(shape[0] * every):
        batch = number // every
        rest = number % every
        start = batch * n_padded
        out = batch * n_out
        for a in range(d - 1, -1, -1):
            first = rest % n_tiles[a] * tile[a]
            rest //= n_tiles[a]
            own[a] = min(tile[a], n_places[a] - first)
            start += first * strides[a]
            out += first // step[a] * of_out[a]
        layout = start, own, size, strides, of_block
        ranks[:] = 64 * (words.size - 1)
        n, is_whole = _gather(given, layout, buffers, places)
        side = _sort(buffers, places, digits, n)
        for i in range(n):
            ranks[places[side, i]] = i
        block_of = buffers[side], buffers[1 - side], ranks, words, n, is_whole
        find(block_of, (own, of_out, walk), ranks_of, out, shape[0] * n_out, outs, deviates)


@called_by_kernels
def _gather(given: Any, layout: Any, buffers: Any, places: Any) -> Any:
    """Copy the valid elements of a block with their places in it.

    Return how many there are, and whether all are valid.
    """
    start, own, size, strides, of_block = layout
    d = size.size
    n_rows = 1
    for a in range(d - 1):
        n_rows *= own[a] + size[a] - 1
    length = own[d - 1] + size[d - 1] - 1
    n = 0
    for row in range(n_rows):
        rest, first, place = row, start, 0
        for a in range(d - 2, -1, -1):
            extent = own[a] + size[a] - 1
            i = rest % extent
            rest //= extent
            first += i * strides[a]
            place += i * of_block[a]
        row_of = first, length, place, of_block[d - 1]
        n = _gather_row(given, row_of, buffers, places, n)
    return n, n == n_rows * length


@called_by_kernels
def _gather_row(given: Any, row_of: Any, buffers: Any, places: Any, n: Any) -> Any:
    """Copy the valid elements of a row of a block behind the first n; return how many there are."""
    keys, has_missing = given
    first, length, place, stride = row_of
    missing = ~keys.dtype.type(0)
    if not has_missing:
        for i in range(length):
            buffers[0, n + i] = keys[first + i]
            places[0, n + i] = place + i * stride
        return n + length
    for i in range(length):
        key = keys[first + i]
        buffers[0, n] = key
        places[0, n] = place
        place += stride
        n += key != missing
    return n


@called_by_kernels
def _sort(buffers: Any, places: Any, digits: Any, n: Any) -> Any:
    """Sort the first n keys with their places; return the index of the buffer that holds them.

    The highest bits that differ are sorted by three digits, and the rest by insertion if that takes
    few moves: 9 ns an element for 5,000 float64, where sorting by eight digits takes 25.
    """
    kind = buffers.dtype.type
    low, high = ~kind(0), kind(0)
    for i in range(n):
        low = min(low, buffers[0, i])
        high = max(high, buffers[0, i])
    n_bits = last_bit(np.uint64(high ^ low)) + 1 if n > 0 and high != low else 0
    shift = max(n_bits - 8 * DIGITS, 0)
    side = _sort_by_digits(buffers, places, digits, n, 0, shift, n_bits)
    if shift > 0 and not insert(buffers[side], places[side], n, 4 * n):
        side = _sort_by_digits(buffers, places, digits, n, side, 0, n_bits)
    return side


@called_by_kernels
def _sort_by_digits(
    buffers: Any, places: Any, digits: Any, n: Any, side: Any, shift: Any, n_bits: Any
) -> Any:
    """Sort keys by their bits from `shift` on, digit by digit."""
    kind = buffers.dtype.type
    byte = kind(255)
    n_digits = (n_bits - shift + 7) // 8
    digits[:n_digits] = 0
    for i in range(n):
        key = buffers[side, i] >> kind(shift)
        for digit in range(n_digits):
            digits[digit, key & byte] += 1
            key = key >> kind(7) >> kind(1)  # two shifts, because a byte cannot be shifted by 8
    for digit in range(n_digits):
        own = kind(shift + 8 * digit)
        total = 0
        for value in range(256):
            count = digits[digit, value]
            digits[digit, value] = total
            total += count
        keys, to_keys = buffers[side], buffers[1 - side]
        own_places, to_places = places[side], places[1 - side]
        for i in range(n):
            key = keys[i]
            value = (key >> own) & byte
            to = digits[digit, value]
            digits[digit, value] = to + 1
            to_keys[to] = key
            to_places[to] = own_places[i]
        side = 1 - side
    return side


@called_by_kernels
def _move_marks(
    block: Any, moves: Any, ranks_of: Any, out: Any, n_windows: Any, outs: Any, deviates: Any
) -> None:
    """Find elements of windows of a block by marks, or their distances; see `_walk_block`."""
    lower, upper, has_upper = ranks_of
    if deviates is not None:
        keys, decoded, _, _, n, _ = block
        kind = keys.dtype.type
        sign = ~(~kind(0) >> kind(1))
        for i in range(n):
            decoded[i] = keys[i] ^ sign if keys[i] & sign else ~keys[i]
    for question in range(lower.shape[0]):
        wanted = lower[question], upper[question], has_upper
        _walk_block(block, moves, wanted, deviates, question * n_windows + out, outs)


@called_by_kernels
def _walk_block(block: Any, moves: Any, wanted_of: Any, deviates: Any, out: Any, outs: Any) -> None:
    """Move the window through a block, row by row, and find its elements of two ranks.

    `below` is the number of elements of the window whose ranks are in words before the current one.
    Elements that take no part have a rank beyond all others: a branch would be mispredicted.
    `deviates` is None if distances are not asked, which Numba then does not compile.
    """
    keys, decoded, ranks, words, n, is_whole = block
    own, of_out, (_, _, step, _, of_block, whole, entering, leaving, _) = moves
    lower, upper, has_upper = wanted_of
    out_lower, out_upper = outs
    d = own.size
    if deviates is not None:
        values = as_floats(decoded)
        first_out, second_out = as_floats(out_lower), as_floats(out_upper)
    n_words = (n + 63) // 64
    n_rows = 1
    for a in range(d - 1):
        n_rows *= (own[a] - 1) // step[a] + 1
    length, every = own[d - 1], step[d - 1]
    word = n_words // 2
    near = 0, 0  # see `nearest`
    words[n_words] = ~np.uint64(0)
    nothing = nan_key(keys)
    for row in range(n_rows):
        rest, first, to = row, 0, out
        for a in range(d - 2, -1, -1):
            most = (own[a] - 1) // step[a] + 1
            i = rest % most
            rest //= most
            first += i * step[a] * of_block[a]
            to += i * of_out[a]
        words[:n_words] = 0
        n_in_window, below = 0, 0
        for i in range(whole.size):
            rank = ranks[first + whole[i]]
            words[rank >> 6] ^= np.uint64(1) << np.uint64(rank & 63)
            below += (rank >> 6) < word
            n_in_window += rank < n
        until = 0
        for j in range(length):
            if j > 0:
                for i in range(leaving.size):
                    rank = ranks[first + leaving[i]]
                    words[rank >> 6] ^= np.uint64(1) << np.uint64(rank & 63)
                    below -= (rank >> 6) < word
                    n_in_window -= rank < n
                first += of_block[d - 1]
                for i in range(entering.size):
                    rank = ranks[first + entering[i]]
                    words[rank >> 6] ^= np.uint64(1) << np.uint64(rank & 63)
                    below += (rank >> 6) < word
                    n_in_window += rank < n
            if until > 0:
                until -= 1
                continue
            until = every - 1
            wanted = lower[whole.size] if is_whole else lower[n_in_window]  # sooner known
            if wanted >= 0:
                while below > wanted:
                    word -= 1
                    below -= n_bits(words[word])
                inside = n_bits(words[word])
                while below + inside <= wanted:
                    below += inside
                    word += 1
                    inside = n_bits(words[word])
                own_bit = nth_bit(words[word], wanted - below)
                if deviates is not None:
                    middle = 64 * word + own_bit
                    block_of = values, words, n_words
                    about = n_in_window, wanted, upper[n_in_window], FAR + 2 * leaving.size
                    near, distances = nearest(block_of, middle, about, near)
                    first_out[to], second_out[to] = distances
                    to += 1
                    continue
                out_lower[to] = keys[64 * word + own_bit]
                if has_upper:
                    other = word
                    bits = words[word] & (~np.uint64(0) << np.uint64(own_bit))
                    if upper[n_in_window] > wanted:
                        bits &= bits - np.uint64(1)
                        while bits == 0:
                            other += 1
                            bits = words[other]
                    out_upper[to] = keys[64 * other + first_bit(bits)]
            else:
                out_lower[to] = out_upper[to] = nothing
            to += 1
