"""Windows of few elements: networks of comparisons over many windows at a time.

The elements at one place of many windows in a row are contiguous, so that each comparison is one of
vectors. See `maths.window_networks` for the comparisons.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import by_types, called_by_kernels, kernel_of, types
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.bits import as_floats
from dask_gpuselect.kernels.cpu.scalars import mean_of
from dask_gpuselect.kernels.cpu.window_blocks import Outs, Ranks
from dask_gpuselect.kernels.cpu.window_code import VECTOR, address_of, run_code
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.window_networks import Node, Step, comparisons
from dask_gpuselect.maths.windows import Frame, WindowOrder, WindowRanks, ranks_by_count, strides_of

MOST = 121  # elements of a window
MOST_WORK = 1800  # bytes written for an answer of a window, twice as many for several sides
FEW = 4  # numbers of valid elements that share a network
LEAST_RUN = 16  # windows in a row; with fewer, blocks are faster
ROW = 4096  # bytes of elements that are compared together
ROUND = 2 * VECTOR  # bytes to whose multiples a run is rounded


# --- Networks -------------------------------------------------------------------------------------


class Network(NamedTuple):
    """Comparisons that find elements of some ranks in windows.

    Values are numbered: the rows of the window come first.

    Parameters
    ----------
    key : tuple
        The window and the ranks.
    stages : list of list of tuple
        For each comparison, the two values with their shifts to the right, and the numbers of the
        lesser and of the larger one, -1 if nothing needs it. Values that are read with a shift, or
        by a later stage, are in rows.
    rows : dict
        The rows of such values. The first rows are those of the window.
    n_rows : int
        Number of rows.
    places : ndarray
        For each rank, its row and shift.
    """

    key: tuple[Any, ...]
    stages: list[list[Step]]
    rows: dict[int, int]
    n_rows: int
    places: IntArray

    @classmethod
    def fitting(
        cls, keys: NDArray[Any], frame: Frame, order: WindowOrder, n_valid: IntArray | None
    ) -> Network | None:
        """Return the network for windows of some keys; None if other kernels are faster."""
        is_short = frame.shape(keys.shape)[-1] < LEAST_RUN
        if not 1 <= frame.n <= MOST or frame.step[-1] != 1 or is_short:
            return None
        if order.deviates and n_valid is not None:
            return None
        least = frame.n
        if n_valid is not None:  # rounded, so that few networks are made
            least = max(int(n_valid.min(initial=least)) // FEW * FEW, 1)
        return _fitting(frame, order, least, keys.itemsize)

    @classmethod
    def laid(
        cls,
        n_window_rows: int,
        steps: list[Step],
        answers: dict[int, Node],
        key: tuple[Any, ...],
        n: int,
    ) -> Network:
        """Divide comparisons into stages, and give a row to each value that one leaves for later.

        A row is given again when no later stage reads it.
        """
        stages: list[list[Step]] = []
        of_value = dict.fromkeys(range(n_window_rows), 0)
        last = dict.fromkeys(range(n_window_rows), 0)  # the last stage that reads a row
        for step in steps:
            first, moved, second, also_moved, *results = step
            reads = ((first, moved), (second, also_moved))
            made = [(number, shift) for number, shift in reads if number >= n_window_rows]
            stage = max((of_value[number] + (shift > 0) for number, shift in made), default=0)
            stages += [[] for _ in range(stage + 1 - len(stages))]
            stages[stage].append(step)
            of_value |= dict.fromkeys(results, stage)
            for number, _ in made:  # steps of an earlier stage may follow
                if of_value[number] < stage:
                    last[number] = max(stage, last.get(number, 0))
        last |= {number: len(stages) for number, _ in answers.values()}
        rows = {number: number for number in range(n_window_rows)}
        free: list[int] = []
        n_rows = n_window_rows
        for i, stage_steps in enumerate(stages):
            for number in (number for step in stage_steps for number in step[4:] if number in last):
                if not free:
                    free.append(n_rows)
                    n_rows += 1
                rows[number] = free.pop()
            free += [rows[number] for number in rows if last[number] == i and of_value[number] < i]
        places = np.full((n, 2), -1, np.int64)
        for rank, (number, moved) in answers.items():
            places[rank] = rows[number], moved
        return cls(key, stages, rows, n_rows, places)


@lru_cache(maxsize=64)  # slabs ask the same again and again
def _fitting(frame: Frame, order: WindowOrder, least: int, itemsize: int) -> Network | None:
    """Return the network for windows of at least `least` valid elements, if it is worth it."""
    lower, upper, _ = ranks_by_count(order, frame.n)
    wanted = np.unique([lower[:, least:], upper[:, least:]]).tolist()
    if order.deviates:  # any element may be at the wanted distance
        wanted = range(frame.n)
    made = network(frame.size, frame.footprint, tuple(wanted))
    work = sum((low >= 0) + (high >= 0) for stage in made.stages for *_, low, high in stage)
    n_sides = sum(n > 1 for n in frame.size)
    most = MOST_WORK * (1 + (n_sides > 1)) * (order.n_answers + order.deviates)
    return made if work * itemsize <= most else None


@lru_cache(maxsize=64)
def network(
    size: tuple[int, ...], footprint: tuple[bool, ...] | None, wanted: tuple[int, ...]
) -> Network:
    """Return the shortest network that is known for some ranks of a window."""
    n_rows, steps, answers = comparisons(size, footprint, wanted)
    n = math.prod(size) if footprint is None else sum(footprint)
    return Network.laid(n_rows, steps, answers, (size, footprint, wanted), n)


# --- Windows --------------------------------------------------------------------------------------


def elements(
    made: Network,
    words: NDArray[Any],
    coding: tuple[int, Any],
    frame: Frame,
    order: WindowOrder,
    n_valid: IntArray | None,
) -> list[NDArray[Any]]:
    """Find the keys of the two elements of each answer in every window, ``(n_answers, n_windows)``.

    There is one array if both elements always are one. For distances they hold their words.

    Parameters
    ----------
    made : Network
        That of `fitting`.
    words : ndarray
        Words of the elements, or their keys; masked and missing ones have the last key.
    coding : tuple
        How words become keys; see `key_of`.
    frame : Frame
        The windows.
    order : WindowOrder
        The wanted ranks.
    n_valid : ndarray, optional
        Number of valid elements of each window; all of them by default.
    """
    shape = frame.shape(words.shape)
    ranks = WindowRanks.of(order, frame.n, is_whole=n_valid is None)
    outs = ranks.room(math.prod(shape), words.dtype)
    sizes = np.empty(0, np.int64) if n_valid is None else np.ascontiguousarray(n_valid)
    about = (np.array(shape), *places_of(words.shape, frame), frame.size[-1] - 1)
    flat = [each.reshape(-1) for each in outs]
    given = words.reshape(-1), *coding
    network = as_code(made, words, frame)
    if order.deviates:
        _deviate(*given, about, network, tuple(ranks), (flat[0], flat[-1]))
    else:
        _compare_windows(*given, about, sizes, network, tuple(ranks), (flat[0], flat[-1]))
    return outs


def as_code(
    made: Network, words: NDArray[Any], frame: Frame
) -> tuple[int, int, int, NDArray[np.int64]]:
    """Return the address of a network's code, the width and the number of its rows, and places.

    All rows begin where a vector does.
    """
    size = words.itemsize
    width = -(-(ROW + ROUND + 2 * (frame.size[-1] - 1) * size) // VECTOR) * VECTOR // size
    return address_of(made, size, width), width, made.n_rows, made.places


@lru_cache(maxsize=16)
def places_of(padded: tuple[int, ...], frame: Frame) -> tuple[IntArray, IntArray]:
    """Return the distances of neighbouring windows, and the places of the rows of the first."""
    strides = strides_of(padded)
    rows = np.array(list(np.ndindex(*frame.size[:-1])), np.int64) @ strides[:-1]
    return strides * frame.step, rows


@by_types
def per_byte(keys: Any, n_bytes: Any) -> Any:
    """Return how many keys have a number of bytes, a constant for the compiler."""
    size = keys.dtype.bitwidth // 8
    return lambda keys, n_bytes: n_bytes // size


@by_types
def as_ordered(keys: Any) -> Any:
    """View keys in the dtype in which they are compared: vectors of uint64 have no minimum."""
    if keys.dtype == types.uint64:
        return lambda keys: keys.view(np.int64)
    return lambda keys: keys


@by_types
def flip_of(keys: Any) -> Any:
    """Return what turns keys into those that are compared, and back, by exclusive or."""
    flip = np.int64(-(1 << 63)) if keys.dtype == types.int64 else keys.dtype(0)
    return lambda keys: flip


@called_by_kernels
def aligned(n: Any, like: Any) -> Any:
    """Make zeros that begin where a vector does: a sixth less time than anywhere."""
    every = np.zeros(n + per_byte(like, VECTOR), like.dtype)
    ahead = -every.ctypes.data % VECTOR // like.itemsize
    return every[ahead : ahead + n]


@called_by_kernels
def key_of(word: Any, kind: Any, sign: Any) -> Any:
    """Return the key of a word, as `radix.keys_of` has them; not of NaN.

    `kind` is -1 for keys, 0 for integers, 1 for floats, and more for dates.
    """
    last = word | ~word
    if kind < 0:
        return word
    if kind == 0:
        return word ^ sign
    if kind == 1:
        key = ~word if word & sign else word | sign
        return sign if word == sign else key
    return (word ^ sign) + last  # minus one


@called_by_kernels
def word_of(key: Any, sign: Any) -> Any:
    """Return the word of the float that has a key."""
    return key ^ sign if key & sign else ~key


@called_by_kernels
def starts_of(ranks: Any, places: Any, width: Any) -> Any:
    """Return where the row of each rank begins, by the question and the number of elements."""
    starts = np.empty_like(ranks)
    for question in range(ranks.shape[0]):
        for n in range(ranks.shape[1]):
            row, moved = places[ranks[question, n]]
            starts[question, n] = row * width + moved
    return starts


@called_by_kernels
def place_of(row: Any, shape: Any, strides: Any) -> Any:
    """Return the place of the first window of a row."""
    place = 0
    for a in range(shape.size - 2, -1, -1):
        place += row % shape[a] * strides[a]
        row //= shape[a]
    return place


@called_by_kernels
def compare_run(
    words: Any, coding: Any, row_places: Any, network: Any, rows: Any, run: Any
) -> None:
    """Run a network over windows in a row; a run begins at a place, and reaches some elements."""
    kind, sign, flip = coding
    address, width, _, _ = network
    first, length = run
    as_key, turn = rows.dtype.type, per_byte(words, ROUND)
    n = (length + turn - 1) // turn * turn
    for i in range(row_places.size):
        begin = first + row_places[i]
        source, own = words[begin : begin + length], rows[i * width :]
        for j in range(source.size):
            own[j] = as_key(key_of(source[j], kind, sign)) ^ flip
    run_code(address, rows.ctypes.data, n * words.itemsize)


@kernel_of("u8 u4 u2 u1")
def _compare_windows(
    words: t.Values,
    kind: int,
    sign: t.Value,
    layout: tuple[t.Places, t.Places, t.Places, int],
    sizes: t.Places,
    network: tuple[int, int, int, t.IntRows],
    ranks: Ranks,
    outs: Outs,
) -> None:
    """Run a network over windows in runs along the last axis, and take the elements of two ranks.

    Windows of a run reach `reach` elements beyond it.
    """
    shape, strides, row_places, reach = layout
    _, width, n_rows, places = network
    lower, upper, has_upper = ranks
    d = shape.size
    out_lower, out_upper = as_ordered(outs[0]), as_ordered(outs[1])
    flip = flip_of(out_lower)
    room = per_byte(words, ROW)
    rows = aligned(n_rows * width, out_lower)
    from_lower, from_upper = starts_of(lower, places, width), starts_of(upper, places, width)
    length, total = shape[d - 1], out_lower.size // lower.shape[0]
    for row in range(total // length):
        first = place_of(row, shape, strides)
        for start in range(0, length, room):
            stop = min(room, length - start)
            run = first + start, stop + reach
            compare_run(words, (kind, sign, flip), row_places, network, rows, run)
            to = row * length + start
            for question in range(lower.shape[0]):
                place = question * total + to
                lows, highs = out_lower[place : place + stop], out_upper[place : place + stop]
                if sizes.size > 0:
                    counts = sizes[to : to + stop]
                    for j in range(stop):
                        lows[j] = rows[from_lower[question, counts[j]] + j] ^ flip
                        if has_upper:
                            highs[j] = rows[from_upper[question, counts[j]] + j] ^ flip
                    continue
                own = rows[from_lower[question, lower.shape[1] - 1] :]
                for j in range(stop):
                    lows[j] = own[j] ^ flip
                if has_upper:
                    own = rows[from_upper[question, lower.shape[1] - 1] :]
                    for j in range(stop):
                        highs[j] = own[j] ^ flip


@kernel_of("u8 u4")
def _deviate(
    keys: t.Values,
    kind: int,
    sign: t.Value,
    layout: tuple[t.Places, t.Places, t.Places, int],
    network: tuple[int, int, int, t.IntRows],
    ranks: Ranks,
    outs: Outs,
) -> None:
    """Sort windows in runs, and find how far as many elements as two ranks say reach.

    The n nearest elements are neighbours in sorted order: of all n neighbours, they reach least.
    """
    shape, strides, row_places, reach = layout
    _, width, n_rows, places = network
    lower, upper, _ = ranks
    counts = lower[0, lower.shape[1] - 1] + 1, upper[0, lower.shape[1] - 1] + 1
    compared = as_ordered(outs[0])
    flip = flip_of(compared)
    room = per_byte(keys, ROW)
    rows = aligned(n_rows * width, compared)
    size, length = places.shape[0], shape[shape.size - 1]
    words = np.empty((size, width), keys.dtype)
    values, centres = as_floats(words), as_floats(np.empty(width, keys.dtype))
    as_value = values.dtype.type
    for row in range(compared.size // length):
        first = place_of(row, shape, strides)
        for start in range(0, length, room):
            stop = min(room, length - start)
            run = first + start, stop + reach
            compare_run(keys, (kind, sign, flip), row_places, network, rows, run)
            for rank in range(size):
                own, to_words = rows[places[rank, 0] * width + places[rank, 1] :], words[rank]
                for j in range(stop):
                    to_words[j] = word_of(own[j] ^ flip, sign)
            low, high = values[(size - 1) // 2], values[size // 2]
            for j in range(stop):
                centre = as_value(mean_of(low[j], high[j]))
                centres[j] = centre if np.isfinite(centre) else as_value(np.nan)
            for side in range(1 + (counts[0] < counts[1])):
                own = as_floats(outs[side])[row * length + start :]
                for i in range(size - counts[side] + 1):
                    low, high = values[i], values[i + counts[side] - 1]
                    for j in range(stop):
                        down, up = centres[j] - low[j], high[j] - centres[j]
                        distance = up if down < up else down
                        own[j] = own[j] if own[j] < distance and i > 0 else distance
