"""Windows of few elements: networks of comparisons over many windows at a time.

The elements at one place of many windows in a row are contiguous, so that each comparison is one of
vectors. See `maths.window_networks` for the comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import by_types, kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.scalars import mean_of
from dask_gpuselect.kernels.cpu.window_blocks import Outs
from dask_gpuselect.kernels.cpu.window_code import ROW, Code, code_of, run_code
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.window_networks import Node, Step, comparisons
from dask_gpuselect.maths.windows import (
    Frame,
    Piecewise,
    Shape,
    WindowOrder,
    WindowRanks,
    ranks_by_count,
    unpadded,
)

MOST = 121  # elements of a window
MOST_WORK = 1800  # bytes written for an answer of a window, twice as many for several sides
FEW = 4  # numbers of valid elements that share a network
LEAST_RUN = 8  # windows in a row; with fewer, blocks are faster


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
    n_results : int
        Number of minima and maxima.
    rows : dict
        The rows of such values. The first rows are those of the window.
    n_rows : int
        Number of rows.
    n_window_rows : int
        Number of those of the window.
    reach : int
        How far a window reaches beyond its first element in each of them.
    answers : dict
        For each rank, its value and shift; of a row, or of the last stage without a shift.
    """

    key: tuple[Any, ...]
    stages: list[list[Step]]
    n_results: int
    rows: dict[int, int]
    n_rows: int
    n_window_rows: int
    reach: int
    answers: dict[int, Node]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that the network finds."""
        return tuple(self.answers)

    @classmethod
    def fitting(
        cls, padded: Shape, itemsize: int, frame: Frame, order: WindowOrder, least: int
    ) -> Network | None:
        """Return the network for windows of a padded array; None if other kernels are faster.

        `least` is the fewest elements of a window that the network finds ranks of.
        """
        is_short = frame.shape(padded)[-1] < LEAST_RUN
        if not 1 <= frame.n <= MOST or frame.step[-1] != 1 or is_short:
            return None
        if least < frame.n:  # rounded, so that few networks are made
            least = max(least // FEW * FEW, 1)
        return _fitting(frame, order, least, itemsize)

    @classmethod
    def laid(
        cls,
        n_window_rows: int,
        steps: list[Step],
        answers: dict[int, Node],
        key: tuple[Any, ...],
        reach: int,
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
        ends = answers.values()
        if not stages or any(
            moved and of_value[number] == len(stages) - 1 for number, moved in ends
        ):
            stages.append([])  # a stage reads no shifted value that it makes
        n_results = sum((low >= 0) + (high >= 0) for *_, low, high in steps)
        return cls(key, stages, n_results, rows, n_rows, n_window_rows, reach, answers)


@lru_cache(maxsize=64)  # slabs ask the same again and again
def _fitting(frame: Frame, order: WindowOrder, least: int, itemsize: int) -> Network | None:
    """Return the network for windows of at least `least` valid elements, if it is worth it."""
    lower, upper, _ = ranks_by_count(order, frame.n)
    wanted = np.unique([lower[:, least:], upper[:, least:]]).tolist()
    if order.deviates:  # any element may be at the wanted distance
        wanted = range(frame.n)
    made = network(frame.size, frame.footprint, tuple(wanted))
    n_sides = sum(n > 1 for n in frame.size)
    most = MOST_WORK * (1 + (n_sides > 1)) * (order.n_answers + order.deviates)
    return made if made.n_results * itemsize <= most else None


@lru_cache(maxsize=64)
def network(
    size: tuple[int, ...], footprint: tuple[bool, ...] | None, wanted: tuple[int, ...]
) -> Network:
    """Return the shortest network that is known for some ranks of a window."""
    n_rows, steps, answers = comparisons(size, footprint, wanted)
    return Network.laid(n_rows, steps, answers, (size, footprint, wanted), size[-1] - 1)


# --- Windows --------------------------------------------------------------------------------------


def whole_elements(
    made: Network,
    words: NDArray[Any],
    padding: tuple[Piecewise, ...],
    frame: Frame,
    order: WindowOrder,
) -> list[NDArray[Any]]:
    """Find the two elements of each answer in windows that lack none, ``(n_answers, n_windows)``.

    There is one array if both elements always are one.

    Parameters
    ----------
    made : Network
        That of `fitting`.
    words : ndarray
        The elements, none of which is missing, or their keys.
    padding : tuple of Piecewise
        What the elements that windows reach stand for along each axis.
    frame : Frame
        The windows.
    order : WindowOrder
        The wanted ranks.
    """
    ranks = WindowRanks.of(order, frame.n, is_whole=True)
    sides = (ranks.lower, ranks.upper)[: 1 + ranks.has_upper]
    wanted = tuple(int(rank) for side in sides for rank in side[:, -1])
    code, last = code_of(made, wanted, words.dtype), padding[-1]
    shape = frame.shape(tuple(each.size for each in padding))
    out = np.empty((len(wanted), math.prod(shape[:-1]), shape[-1]), words.dtype)
    scratch = np.empty(code.n_scratch, np.uint8)
    room = address_of(scratch)
    first, n_behind, start, columns = _ends(last, made.reach)
    n = shape[-1] - first - n_behind
    parts = [(words, start, [(0, first, n)])] if n else []
    if columns.size:
        ends = np.take(words, columns, axis=-1)
        moved = first + made.reach if first else 0
        behind = (moved, shape[-1] - n_behind, n_behind)
        parts.append((ends, 0, [each for each in ((0, 0, first), behind) if each[-1]]))
    for own, column, runs in parts:
        rows, owner = rows_of(code, own, padding[:-1], frame, column)
        for moved, begin, n in runs:
            to = out[..., begin : begin + n]
            rows += moved * words.itemsize
            code.run(address_of(rows), len(rows), n, room, address_of(to), *to.strides[1::-1])
        del owner
    flat = out.reshape(len(wanted), -1)
    return [flat[i : i + order.n_answers] for i in range(0, len(wanted), order.n_answers)]


def deviations(
    made: Network, values: NDArray[Any], frame: Frame, order: WindowOrder
) -> list[NDArray[Any]]:
    """Find the two distances of each answer in windows of floats, none of which is missing.

    See `whole_elements`; here, `made` sorts a window, and no window reaches beyond the ends.
    """
    ranks, shape = WindowRanks.of(order, frame.n, is_whole=True), frame.shape(values.shape)
    outs = ranks.room(math.prod(shape), values.dtype)
    code = code_of(made, made.ranks, values.dtype)
    rows, owner = rows_of(code, values, unpadded(values.shape)[:-1], frame, 0)
    reached = ranks.lower[0, -1] + 1, ranks.upper[0, -1] + 1
    flat = outs[0].reshape(-1), outs[-1].reshape(-1)
    _deviate(owner, rows, shape[-1], code[1:3], len(made.ranks), reached, flat)
    return outs


def found_of(made: Network, n: int) -> IntArray:
    """Return the number of each rank among those that a network finds in windows of n elements."""
    numbers = np.full(n, -1, np.int64)
    numbers[list(made.ranks)] = range(len(made.ranks))
    return numbers


def rows_of(
    code: Code,
    words: NDArray[Any],
    padding: Sequence[Piecewise],
    frame: Frame,
    column: int,
) -> tuple[IntArray, NDArray[Any]]:
    """Return the addresses of the rows of windows, ``(n, n_window_rows)``, and what owns them.

    Rows behind which code may read elements that are not there are copied. `padding` is that of all
    axes but the last, along which windows begin at a column.
    """
    n_row = words.shape[-1] * words.itemsize
    most = words.nbytes - n_row - code.n_beyond
    flat = words.reshape(-1)
    # The stride of an axis of one element may be any number, as in ``x[::-1]`` of one row.
    strides = flat.reshape(words.shape).strides
    places, is_last, first = places_of(tuple(padding), strides, frame.size, frame.step, most)
    rest = flat[first // words.itemsize :]
    copied = np.empty(rest.size + code.n_beyond // words.itemsize, words.dtype)
    copied[: rest.size] = rest
    moved = column * words.itemsize
    own, others = address_of(words) + moved, address_of(copied) + moved - first
    addresses = places + own
    addresses[is_last] += others - own
    return addresses, copied


def address_of(array: NDArray[Any]) -> int:
    """Return where an array lies; `ctypes` takes ten times as long."""
    address: int = array.__array_interface__["data"][0]
    return address


@lru_cache(maxsize=8)  # of at most 1 MiB each
def places_of(
    padding: tuple[Piecewise, ...], strides: Shape, size: Shape, step: Shape, most: int
) -> tuple[IntArray, NDArray[np.bool_], int]:
    """Return where the rows of windows are, which lie behind `most`, and the first of these."""
    rows = np.zeros((1, 1), np.int64)
    for axis, stride, n, each in zip(padding, strides, size, step, strict=False):
        firsts = np.arange(0, axis.size - n + 1, each)
        along = axis.places()[firsts[:, None] + np.arange(n)] * stride
        rows = (rows[:, None, :, None] + along[:, None]).reshape(len(rows) * len(along), -1)
    is_last = rows > most
    n_bytes = strides[0] * padding[0].n if padding else 0
    return rows, is_last, int(rows.min(where=is_last, initial=n_bytes))


@lru_cache(maxsize=32)
def _ends(axis: Piecewise, reach: int) -> tuple[int, int, int, IntArray]:
    """Divide windows along an axis into those that reach padding, before and behind, and others.

    Returns
    -------
    first, n_behind : int
        Numbers of windows that reach padding before and behind.
    start : int
        The element at which the first of them begins.
    columns : ndarray
        The elements that windows before reach, then those of windows behind.
    """
    before, inner, behind = axis.within(0, axis.size)
    n = max(axis.size - reach, 0)
    first = min(len(before), n)
    n_behind = min(len(behind), n - first)
    places = axis.places()
    parts = (
        places[: first + reach if first else 0],
        places[n - n_behind if n_behind else axis.size :],
    )
    return first, n_behind, inner.start, np.concatenate(parts)


@by_types
def per_byte(keys: Any, n_bytes: Any) -> Any:
    """Return how many keys have a number of bytes, a constant for the compiler."""
    size = keys.dtype.bitwidth // 8
    return lambda keys, n_bytes: n_bytes // size


@kernel_of("f8 f4")
def _deviate(
    values: t.Values,
    rows: t.IntRows,
    length: int,
    code: tuple[int, int],
    size: int,
    reached: tuple[int, int],
    outs: Outs,
) -> None:
    """Sort windows in runs, and find how far as many elements as two ranks say reach.

    The n nearest elements are neighbours in sorted order: of all n neighbours, they reach least.
    """
    room, kind = per_byte(values, ROW), values.dtype.type
    found, scratch = np.empty((size, room), values.dtype), np.empty(code[1], np.uint8)
    centres = np.empty(room, values.dtype)
    for row in range(rows.shape[0]):
        for start in range(0, length, room):
            stop = min(room, length - start)
            run_code(code[0], rows[row] + start * values.itemsize, stop, scratch, found)
            low, high = found[(size - 1) // 2], found[size // 2]
            for j in range(stop):
                centre = kind(mean_of(low[j], high[j]))
                centres[j] = centre if np.isfinite(centre) else kind(np.nan)
            for side in range(1 + (reached[0] < reached[1])):
                own = (outs[1] if side else outs[0])[row * length + start :]
                for i in range(size - reached[side] + 1):
                    low, high = found[i], found[i + reached[side] - 1]
                    for j in range(stop):
                        down, up = centres[j] - low[j], high[j] - centres[j]
                        distance = up if down < up else down
                        own[j] = own[j] if own[j] < distance and i > 0 else distance
