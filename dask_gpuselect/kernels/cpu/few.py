"""Lanes of few elements: many of them side by side, sorted by one network of exchanges.

A function call for each lane would take as long as sorting it. Instead the first elements of some
thousand lanes are one row of a table, their second elements the next, and each exchange of a
sorting network is one minimum and one maximum of two rows. NumPy does these for every dtype with
vector instructions, so nothing is compiled. Only the exchanges that the wanted ranks depend on are
made: none for lanes of one element, one for the median of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import (
    LaneOrder,
    Lanes,
    RanksOfLanes,
    ranks_of_each,
    values_if_missing,
)

TILE = 1 << 18  # bytes of lanes that are sorted side by side
WHOLE_TILE = 1 << 22
"""Bytes of lanes that are sorted one by one. With 4 MiB, box plots of lanes of 1,095 float32 take
5.7 ns an element and a median 4.1; with 256 KiB, 9.3 and 4.7, as Python is called for each
table."""

BLOCK = 512
"""Elements of a lane that are laid side by side at once: one cache line of each stays in the cache
until its other elements are laid. 1,095 float32 take 0.75 ns an element so, and 1.3 at once; 3,650
take 0.9 and 2.5."""

ALIKE = 1 << 11
"""Distance of the elements of a lane, in bytes, whose multiples fall into one or two sets of the
cache. The elements of 256 lanes are then copied first: 365 float32 take 1.1 ns instead of 3.1, and
3,650 take 1.3 instead of 7.5."""

MOST = {1: 64, 2: 32, 4: 12, 8: 7}
"""Largest number of elements of a lane that is sorted here, by the size of an element in bytes.
Longer lanes are sorted faster one by one. Float64 takes 4 ns an element in lanes of four and 9 in
lanes of eight; a sort for each lane takes 14 and 7.5."""

Row = NDArray[Any]


def is_few(parts: Sequence[NDArray[Any]]) -> bool:
    """Return whether lanes have so few elements that they are best sorted here."""
    n = sum(part.shape[-1] for part in parts)
    return 0 < n <= MOST[parts[0].dtype.itemsize] and math.prod(parts[0].shape[:-1]) > 0


def answer_lanes(parts: Sequence[NDArray[Any]], question: LaneOrder) -> NDArray[Any]:
    """Answer a question for every lane, ``(n_answers, n_lanes)``.

    This goes tile by tile: the arithmetic that turns elements into answers takes longer than
    selecting them if its arrays do not fit in the cache.
    """
    parts = [part for part in parts if part.shape[-1]]
    shape = parts[0].shape[:-1]
    answers = np.empty((question.n_answers, math.prod(shape)), question.dtype)
    if len(parts) == 1 and parts[0].shape[-1] == 1 and len(answers):
        _answer_itself(parts[0].reshape(-1), question, answers)
        return answers
    is_any_missing = False
    start = 0
    select = selector(sum(part.shape[-1] for part in parts), question.lane_ranks)
    for table in _columns(parts):
        lanes_ = select(table)
        stop = start + len(lanes_.n_valid)
        answers[:, start:stop] = question.lane_values(lanes_)
        if not lanes_.is_complete:
            is_any_missing = is_any_missing or bool((lanes_.n_valid == 0).any())
        start = stop
    question.warn_missing(is_empty=False, is_all_missing=is_any_missing)
    return answers


def _answer_itself(values: NDArray[Any], question: LaneOrder, answers: NDArray[Any]) -> None:
    """Answer a question for lanes of one element each by that element, NaN and NaT included."""
    if values.dtype.kind == "f":
        np.add(values, 0.0, out=answers[0], casting="unsafe")  # +0.0 for -0.0
    else:
        np.copyto(answers[0], values, casting="unsafe")
    answers[1:] = answers[0]
    if question.skips_missing and values.dtype.kind in "fMm":
        is_missing = np.isnan(values)
        if is_missing.any():
            question.warn_missing(is_empty=False, is_all_missing=True)
            answers[:, is_missing] = values_if_missing(question, values.dtype)


def sorted_tiles(parts: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield tables of sorted lanes; see `reference.lanes.sorted_lanes`."""
    for table in _columns(parts):
        table, n_missing = _without_missing(table)
        n = len(table)
        rows = np.empty(table.shape[::-1], table.dtype)
        for k, row in enumerate(_exchanged(table, exchanges(n, tuple(range(n))))):
            rows[:, k] = row
            if n_missing is not None:
                rows[n_missing >= n - k, k] = _missing_of(table.dtype)
        yield rows


def selector(n: int, ranks: RanksOfLanes) -> Callable[[NDArray[Any]], Lanes]:
    """Make a function that selects the wanted ranks in the columns of tables of n rows."""
    lower, upper = (each[:, 0] for each in ranks(np.array([n])))
    network = exchanges(n, tuple(np.union1d(lower, upper).tolist()))
    return partial(_select, lower=lower, upper=upper, network=network, ranks=ranks)


def _select(
    table: NDArray[Any],
    lower: IntArray,
    upper: IntArray,
    network: Sequence[Exchange],
    ranks: RanksOfLanes,
) -> Lanes:
    """Select the elements of the wanted ranks in every column of a table.

    `lower` and `upper` are the ranks in lanes without missing elements, and `network` is for these.
    """
    n, n_lanes = table.shape
    table, n_missing = _without_missing(table)
    if n_missing is None:
        rows = _exchanged(table, network)
        first = _stacked(rows, lower, table).T
        second = first if (lower == upper).all() else _stacked(rows, upper, table).T
        n_valid, none = (np.broadcast_to(np.int64(count), n_lanes) for count in (n, 0))
        return Lanes(first, second, n_valid, none)
    ordered = np.stack(_exchanged(table, exchanges(n, tuple(range(n)))))
    first, second = ordered[lower], ordered[upper]
    # Lanes with missing elements have other ranks.
    touched = np.flatnonzero(n_missing)
    n_valid = n - n_missing
    for elements, own in zip((first, second), ranks_of_each(n_valid[touched], ranks), strict=True):
        elements[:, touched] = ordered[own.T, touched]
    return Lanes(first.T, second.T, n_valid, n_missing)


def _stacked(rows: Sequence[Row], places: IntArray, like: NDArray[Any]) -> NDArray[Any]:
    """Return some of the rows as a table; a view if it is a single row."""
    if len(places) == 1:
        answer: NDArray[Any] = rows[places[0]][None]
        return answer
    table = np.empty((len(places), like.shape[1]), like.dtype)
    for row, place in zip(table, places.tolist(), strict=True):
        row[:] = rows[place]
    return table


# --- Missing elements -----------------------------------------------------------------------------


def _without_missing(table: NDArray[Any]) -> tuple[NDArray[Any], IntArray | None]:
    """Replace each NaN and NaT by the largest value, and count them in each lane.

    The wanted ranks are below those of the replaced elements. The counts are None if none is
    missing.
    """
    if table.dtype.kind not in "fMm":
        return table, None
    is_missing = np.isnan(table)
    if not is_missing.any():
        return table, None
    largest: Any = np.inf
    if table.dtype.kind in "Mm":
        largest = np.array(np.iinfo(np.int64).max).view(table.dtype)
    n_missing = np.count_nonzero(is_missing, axis=0)
    return np.where(is_missing, largest, table), np.asarray(n_missing, np.int64)


def _missing_of(dtype: np.dtype[Any]) -> Any:
    return np.nan if dtype.kind == "f" else np.array("NaT", dtype)


# --- The network ----------------------------------------------------------------------------------


Exchange = tuple[int, int, bool, bool]
"""Two rows that are exchanged: the lesser elements go to the first, the greater to the second. The
flags tell which of the two results is needed."""


@lru_cache(maxsize=256)
def exchanges(n: int, wanted: tuple[int, ...]) -> tuple[Exchange, ...]:
    """Return the exchanges that put the elements of the wanted ranks among n in their places.

    These are Batcher's merge exchange (Knuth, volume 3, algorithm 5.2.2M) without the exchanges
    that no wanted rank depends on.
    """
    needed = set(wanted)
    needed_exchanges = []
    for first, second in reversed(list(_merge_exchange(n))):
        if first in needed or second in needed:
            needed_exchanges.append((first, second, first in needed, second in needed))
            needed |= {first, second}
    return tuple(reversed(needed_exchanges))


def _merge_exchange(n: int) -> Iterator[tuple[int, int]]:
    top = 1 << max((n - 1).bit_length() - 1, 0)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            for i in range(n - d):
                if i & p == r:
                    yield i, i + d
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2


def _exchanged(table: NDArray[Any], network: Sequence[Exchange]) -> list[Row]:
    """Apply the exchanges to the rows of a table, and return the rows in order.

    They lie in the table's memory, in any order, and in one additional row.
    """
    if table.dtype.kind in "Mm":
        return [row.view(table.dtype) for row in _exchanged(table.view(np.int64), network)]
    rows = list(table)
    spare = np.empty_like(table[0])
    for first, second, with_lesser, with_greater in network:
        a, b = rows[first], rows[second]
        if not with_greater:
            np.minimum(a, b, out=a)
        elif not with_lesser:
            np.maximum(a, b, out=b)
        else:
            np.minimum(a, b, out=spare)
            np.maximum(a, b, out=b)
            rows[first], spare = spare, a
    return rows


# --- Tiles ----------------------------------------------------------------------------------------


def _columns(parts: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield all lanes as tables with one column per lane, all in the same memory."""
    parts = [part for part in parts if part.shape[-1]]
    size = sum(part.shape[-1] for part in parts) * parts[0].dtype.itemsize
    most = TILE // max(size, 4)  # at least 4 bytes: answers are float64
    return tiles(parts, most=most, are_columns=True)


def tiles(
    parts: Sequence[Any],
    put: Callable[[NDArray[Any], Any], None] | None = None,
    most: int | None = None,
    *,
    are_columns: bool = False,
    dtype: np.dtype[Any] | None = None,
) -> Iterator[NDArray[Any]]:
    """Yield all lanes as tables with one row per lane; each reuses the memory of the one before.

    Parameters
    ----------
    parts : sequence of parts
        Parts of lanes as for `reference.lanes.sorted_lanes`, or whatever `put` takes.
    put : callable
        ``(tile, piece of a part)``: writes the piece into the tile. By default `lay`.
    most : int, optional
        Number of lanes of a table; by default as many as fit in `WHOLE_TILE` bytes.
    are_columns : bool, optional
        True for one column per lane.
    dtype : dtype, optional
        That of the tables; by default that of the parts.
    """
    shape = parts[0].shape[:-1]
    n = sum(part.shape[-1] for part in parts)
    dtype = dtype or parts[0].dtype
    most = most or max(1, WHOLE_TILE // max(n * dtype.itemsize, 1))
    memory = np.empty(min(most, math.prod(shape)) * n, dtype)
    if not math.prod(shape):
        yield memory.reshape(0, n)
        return
    for place in slabs(shape, most):
        slab = parts[0][place].shape[:-1]
        tile = memory[: math.prod(slab) * n].reshape((n, *slab) if are_columns else (*slab, n))
        lanes_of_tile = np.moveaxis(tile, 0, -1) if are_columns else tile
        start = 0
        for part in parts:
            stop = start + part.shape[-1]
            (put or lay)(lanes_of_tile[..., start:stop], part[place])
            start = stop
        yield tile.reshape((n, -1) if are_columns else (math.prod(slab), n))


def lay(tile: NDArray[Any], part: NDArray[Any]) -> None:
    """Copy lanes ``(*lanes, n)`` into a tile, in blocks if the tile has them side by side."""
    n, step, size = tile.shape[-1], part.strides[-1], tile.itemsize
    if tile.strides[-1] != size or step == size:
        np.copyto(tile, part)
        return
    is_alike = part.ndim == 2 and part.strides[0] == size and step % ALIKE == 0 and n > 32
    copy = _lay_by_two_copies if is_alike else np.copyto
    for start in range(0, n, BLOCK):
        copy(tile[..., start : start + BLOCK], part[..., start : start + BLOCK])


def _lay_by_two_copies(tile: NDArray[Any], part: NDArray[Any]) -> None:
    n_lanes, n = tile.shape
    between = np.empty((n, 256 + 64 // tile.itemsize), tile.dtype)  # an odd number of cache lines
    for start in range(0, n_lanes, 256):
        some = part[start : start + 256]
        rows = between[:, : len(some)]
        np.copyto(rows, some.T)
        np.copyto(tile[start : start + 256], rows.T)


def slabs(shape: tuple[int, ...], most: int) -> Iterator[tuple[int | slice, ...]]:
    """Yield indices that divide an array into slabs of at most `most` elements, in C order."""
    axis, inner = len(shape), 1
    while axis > 0 and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield ()
        return
    step = max(1, most // inner)
    for outer in np.ndindex(*shape[: axis - 1]):
        for start in range(0, shape[axis - 1], step):
            yield (*outer, slice(start, start + step))
