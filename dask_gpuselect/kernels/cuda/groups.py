"""Elements of groups in CuPy chunks: the host side of ``groups.cu``. See `reference.groups`.

Elements and codes stay on the device. One radix sort orders the elements of all groups, by keys
that have the group before the value. If only few elements are wanted, a sample guesses brackets,
and only the elements in these are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda.launch import (
    Array,
    coded,
    copied_ahead,
    held,
    launch,
    most_shared,
    offsets,
    on_device,
    places_in,
)
from dask_gpuselect.kernels.cuda.moments import moments_of_runs
from dask_gpuselect.kernels.cuda.source import (
    STATIC,
    Defined,
    groups_memory,
    key_size,
    pieces_of,
    words_memory,
)
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.group_guess import WIDTH, GatheredGroups, sample_size, shares_of
from dask_gpuselect.maths.keys import from_keys, to_keys
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ragged import CellTally, pivot_counts, ranks_in_one_order

Parts = Sequence[tuple[Array, Array]]

# With fewer bytes of elements, and as many more for each group, sorting is as fast. On an H200 a
# sort of 2**20 keys takes 0.06 ms of the device. A guess for boxes of 18 groups of 2**24 float32
# takes 0.5 ms of it instead of 1.25, and a call for medians 2.5 ms instead of 3.1.
WORTH_GUESSING = 1 << 24
WORTH_OF_GROUP = 1 << 15
LONG_LANE = 1 << 22  # elements of a lane that are worth a kernel launch of its own
SLACK = 1.25  # room for candidates, as a multiple of the expected number
BEYOND_ROOM = 1 / 4  # room for elements beyond the fences of boxes, as a part of all elements
MOST_ROWS = 6  # times that elements are read to tally groups, some groups each time
FIRST_ROOM = 1 / 4  # room for candidates of given brackets, as a part of all elements


@dataclass(frozen=True)
class Keys:
    """Elements as unsigned integers in the same order, each with the number of a group or cell.

    If they are ordered, they are the part of `Candidates` that is asked here.

    Parameters
    ----------
    keys : array of uint64
        Keys. Elements of up to 4 bytes have the number in the upper half.
    numbers : array of uint32 or None
        The number of each element, for elements of 8 bytes.
    dtype : dtype
        The dtype of the elements.
    """

    keys: Array
    numbers: Array | None
    dtype: np.dtype[Any]

    @classmethod
    def room(cls, size: int, dtype: np.dtype[Any]) -> Keys:
        numbers = cupy.empty(size, np.uint32) if dtype.itemsize == 8 else None
        return cls(cupy.empty(size, np.uint64), numbers, dtype)

    def __len__(self) -> int:
        return int(self.keys.size)

    def taken(self, places: Any) -> Keys:
        """Return the keys at some places, or those of a slice."""
        numbers = None if self.numbers is None else self.numbers[places]
        return Keys(self.keys[places], numbers, self.dtype)

    def ordered(self) -> Keys:
        """Sort by number, then by value; in place if possible."""
        if self.numbers is None:
            self.keys.sort()
            return self
        return self.taken(self.order())

    def order(self) -> Array:
        """Return the places of the keys by number, then by value."""
        order = self.keys.argsort()
        if self.numbers is None:
            return order
        return order[self.numbers[order].argsort()]  # CuPy's argsort is stable

    def stops(self, n: int) -> IntArray:
        """Count the sorted elements whose number is below 1, 2, ..., n."""
        table, numbers = self.numbers, cupy.arange(1, n + 1, dtype=np.uint32)
        if table is None:
            table, numbers = self.keys, numbers.astype(np.uint64) << np.uint64(32)
        return np.asarray(cupy.searchsorted(table, numbers).get())

    def elements_at(self, places: IntArray) -> NDArray[Any]:
        """Return the elements at some places of ordered keys, on the host."""
        if not self.keys.size:
            return np.zeros(places.shape, self.dtype)
        keys = self.keys.take(on_device(places).view(np.int64)).get()
        return from_keys(keys, self.dtype).reshape(places.shape)

    def on_host(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Return the elements and the number of each, on the host."""
        keys = self.keys.get()
        numbers = keys >> np.uint64(32) if self.numbers is None else self.numbers.get()
        return from_keys(keys, self.dtype), numbers.astype(np.int32)


def cuts(parts: Parts, n_groups: int, share: int) -> Cuts:
    """Measure the cuts of every group; see `reference.groups.cuts`.

    Scratch: 8 bytes for each element, and as much again to sort them.
    """
    parts, dtype = _ready(parts), _dtype(parts)
    keys, n_valid, n_missing = _in_groups(parts, n_groups)
    groups = np.flatnonzero(n_valid + n_missing)
    n = n_valid[groups]
    stops = np.cumsum(np.stack([n, pivot_counts(n, share)]), axis=1)
    start, first = cupy.asarray(np.pad(stops, ((0, 0), (1, 0))))
    n_pivots = int(stops[1, -1]) if len(groups) else 0
    table, is_new = cupy.empty((3, n_pivots), np.int64), cupy.empty(n_pivots, np.bool_)
    if n_pivots:
        runs = keys.keys, start, first, len(groups)
        launch(dtype, "groups_pivots", *runs, n_pivots, None, 0, 0, *table, is_new)
    del keys
    key, below, upto = (each[is_new].get() for each in table)
    so_far = cupy.zeros(n_pivots + 1, np.int64)
    so_far[1:] = cupy.cumsum(is_new, dtype=np.int64)
    sizes = np.diff(so_far[first].get())
    pivots = from_keys(key.view(np.uint64), dtype)
    return Cuts.of_runs(groups, sizes, n, n_missing[groups], pivots, below, upto)


def tally(parts: Parts, brackets: Brackets) -> CellTally:
    """Tally every group at its brackets; see `reference.groups.tally`.

    Reads elements and codes once, or twice if more than a quarter of all are candidates.
    """
    parts, n = _ready(parts), sum(values.size for values, _ in parts)
    counts, candidates, n_candidates = _tallied(parts, brackets, int(FIRST_ROOM * n) + 1)
    if candidates is None:
        counts, candidates, _ = _tallied(parts, brackets, n_candidates)
    assert candidates is not None
    return CellTally.of_counts(counts, *candidates.on_host())


def moments(parts: Parts, brackets: Brackets) -> Moments:
    """Sum the valid elements of every group exactly; see `reference.groups.moments`.

    Scratch: 24 bytes for each element.
    """
    values, codes = map(cupy.concatenate, zip(*_ready(parts), strict=True))
    order, sizes = places_in_groups(codes, brackets.n_slots)
    return moments_of_runs(values[order], np.cumsum(sizes), brackets.ends)


def places_in_groups(codes: Array, n_groups: int) -> tuple[Array, IntArray]:
    """Return the places of the elements of each group, on the device.

    See `reference.groups.places_in_groups`.
    """
    counts = cupy.bincount(codes.astype(np.int32) + 1, minlength=n_groups + 1).get()
    return cupy.argsort(codes)[int(counts[0]) :], counts[1:].astype(np.int64)


def elements(parts: Parts, n_groups: int, ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every group; see `reference.groups.elements`.

    Notes
    -----
    Reads elements and codes once, and sorts a sample and the elements in the brackets that it
    guesses. If these would be as many as all elements, or if a guess fails, it sorts all of them.

    Scratch: for 2**28 float32 in 1,000 groups three quarters of the elements' bytes, and 19 bytes
    for each element if all are sorted.
    """
    parts = _ready(parts)
    lanes = _by_guess(parts, n_groups, ranks)
    if lanes is not None:
        return lanes
    keys, n_valid, n_missing = _in_groups(parts, n_groups)
    places = ranks_in_one_order(n_valid, ranks)
    lower, upper = (keys.elements_at(each).T for each in places)
    return Lanes(lower, upper, n_valid, n_missing)


def value_counts(parts: Iterable[tuple[Array, Array]], n_groups: int, n_words: int) -> IntArray:
    """Count every value in every group; see `reference.groups.value_counts`.

    Reads words and codes once.
    """
    table = cupy.zeros(n_groups * n_words, np.uint64)
    for words, codes in parts:
        words, codes = cupy.ascontiguousarray(words), cupy.ascontiguousarray(codes)
        _count_words(words, codes, 1, n_groups, n_words, table)
    return np.asarray(table.get().view(np.int64).reshape(n_groups, n_words))


def lane_counts(rows: Array, keeps: Array | None, n_words: int) -> IntArray | None:
    """Count every value in every lane; see `reference.groups.lane_counts`.

    Few long lanes are counted one by one, because each can then use all shared memory.
    """
    n_lanes, n = rows.shape
    if n >= LONG_LANE or not rows.size:
        return None
    codes = None
    if keeps is not None:
        lane = cupy.arange(n_lanes, dtype=np.int32)[:, None]
        codes = cupy.ascontiguousarray(cupy.where(keeps, lane, np.int32(-1)))
    table = cupy.zeros(n_lanes * n_words, np.uint64)
    _count_words(cupy.ascontiguousarray(rows), codes, n, n_lanes, n_words, table)
    return np.asarray(table.get().view(np.int64).reshape(n_lanes, n_words))


def _count_words(
    words: Array, codes: Any, width: int, n_groups: int, n_words: int, table: Array
) -> None:
    """Add the counts of every word in every group to a table.

    Without codes, consecutive runs of `width` elements are the groups.
    """
    if not words.size:
        return
    given, n_bytes = (words, codes, words.size, width), words_memory(n_groups, n_words)
    fits = _fits(n_bytes)
    how: dict[str, Any] = {"shared": n_bytes * fits, "defined": _defined(fits, 0) + coded(codes)}
    launch(words.dtype, "groups_words", *given, n_groups, n_words, table, **how)


def _fits(n_bytes: int) -> bool:
    return n_bytes + STATIC <= most_shared(cupy.cuda.Device().id)


def _defined(in_shared: bool, steps: int) -> Defined:
    return ("IN_SHARED", int(in_shared)), ("END_STEPS", steps)


def _by_guess(parts: Parts, n_groups: int, ranks: RanksOfLanes) -> Lanes | None:
    """Find the elements by brackets that a sample guesses; None if that would not pay, or fails."""
    n = sum(values.size for values, _ in parts)
    shares = shares_of(ranks, max(n // max(n_groups, 1), 1))
    wait = gathered_ahead(parts, n_groups, shares)
    found = None if wait is None else wait()
    if found is None:
        return None
    about, n_missing, candidates = found
    candidates = candidates.ordered()  # while the host finds the places
    wanted = ranks_in_one_order(about.n_valid, ranks)
    places = about.places(np.concatenate(wanted))
    if places is None:  # the brackets do not hold: a miss
        return None
    both = unsigned_zero(candidates.elements_at(places)).T
    return Lanes(both[:, : len(shares)], both[:, len(shares) :], about.n_valid, n_missing)


Gathered = tuple[GatheredGroups, IntArray, Keys]
"""The elements of groups near wanted ones, which are the keys once ordered, and their places.

Between both: the number of missing elements of each group.
"""


def gathered_ahead(
    parts: Parts,
    n_groups: int,
    shares: NDArray[np.float64],
    whis: float | tuple[float, float] = 0.0,
    tops: Array | None = None,
) -> Callable[[], Gathered | None] | None:
    """Start to gather the elements of each group near some shares of it, which a sample brackets.

    Returns a function that waits, which returns None without room for all; or None if it would not
    pay. With `tops`, all elements that may be beyond the fences of a box are gathered too; see
    `groups_guess`.
    """
    n, dtype = sum(values.size for values, _ in parts), _dtype(parts)
    n_ends = 2 * len(shares) + (0 if tops is None else 2)
    size, expected = sample_size(n, n_groups, len(shares))
    room = n_ends * n_groups + min(int(SLACK * expected), n) + 1
    if tops is not None:
        room += int(BEYOND_ROOM * n)
    # If too few groups at once have tables that fit in shared memory, sorting all is as fast.
    fits = fits_shared(dtype, n_groups, n_ends)
    is_worth = n * dtype.itemsize >= WORTH_GUESSING + n_groups * WORTH_OF_GROUP
    if not (n_ends and fits and is_worth and size + expected <= n // 2):
        return None
    sample = keys_of(parts, n_groups, size / n).ordered()
    guess = sample, shares, (WIDTH, None, None, 0), whis, tops
    tallied = guessed_ahead(parts, n_groups, guess, room)

    def wait() -> Gathered | None:
        found = tallied()
        if found is None:
            return None
        sheet, counts, n_missing, candidates = found
        counts = np.ascontiguousarray(counts.reshape(n_groups, -1, 2))
        about = GatheredGroups(counts, sheet["wanted"].reshape(n_groups, -1))
        return about, n_missing, candidates

    return wait


Guess = tuple[Keys, NDArray[np.float64], tuple[Any, ...], Any, Array]
"""Input of `groups_guess`.

A sample in order; shares; the width of brackets in standard deviations, and running sums of the
sample's weights and of their squares with its rate, or None; and, if boxes are wanted, `Rule.whis`
and room for a number of each group, or None.
"""


def guessed_ahead(
    parts: Parts, n_groups: int, guess: Guess, room: int, weighing: tuple[Any, ...] = ()
) -> Callable[[], tuple[Any, IntArray, IntArray, Keys] | None]:
    """Start to guess brackets, to count elements of groups at these, and to gather candidates.

    `weighing` has weights, the exponent of a unit of which these are multiples, the most digits of
    32 bits that they have in it (see `fits_shared`), and room for those of the candidates. Then
    elements have numbers as of `weighing.in_bands`, and their ends are no candidates.

    Returns a function that waits for the ends, the wanted cells and, with weights, sums in a record
    of `_sheet_of`; the numbers of elements in each cell and of those that equal its upper end,
    ``(n_cells, 2)``; the number of missing elements of each group; and the candidates in any order,
    with their cells as numbers. Or for None if the candidates exceed `room`.
    """
    (sample, shares, how, whis, tops), taken = guess, Keys.room(room, _dtype(parts))
    dtype, each, n_digits = taken.dtype, 2 * len(shares) + (0 if tops is None else 2), 0
    n_ends, ends = each * n_groups, (taken.keys, taken.numbers)
    if weighing:
        n_digits, ends = weighing[2] + 1, (None, None)
    record = _sheet_of(dtype, n_ends, n_groups, len(shares), n_digits)
    sheet = on_device(shares, record.itemsize - shares.nbytes)
    at = places_in(sheet, record)
    given = sample.keys, sample.numbers, len(sample), n_groups, at["shares"], len(shares), *how
    fences = (0.0, 1) if isinstance(whis, tuple) else (whis, 0)
    into = at["ends"], at["first"], at["wanted"], at["totals"], *ends, tops
    made: dict[str, Any] = {"shared": each * (key_size(dtype) + 4), "blocks": n_groups}
    made["defined"] = (("PIECES", pieces_of(dtype)),)
    launch(dtype, "groups_guess", *given, *fences, *into, **made)
    if weighing:
        weighing = *weighing[:3], at["sums"], weighing[3]
    counting = _counting(dtype, _even_ends(n_groups, each), n_digits)
    _start_tally(parts, at, (n_groups, n_ends), taken, counting, weighing)
    copy = copied_ahead(sheet)

    def wait() -> tuple[Any, IntArray, IntArray, Keys] | None:
        found = copy()[: record.itemsize].view(record)[0]
        numbers, n_cells = found["totals"].view(np.int64), n_ends + n_groups
        if numbers[0] > room:
            return None
        counts = numbers[1 : 1 + 2 * n_cells].reshape(2, n_cells).T
        return found, counts, numbers[1 + 2 * n_cells :], taken.taken(slice(int(numbers[0])))

    return wait


def _in_groups(parts: Parts, n_groups: int, rate: float = 1) -> tuple[Keys, IntArray, IntArray]:
    """Sort the elements of some parts, or of a sample, by group and by value.

    Missing elements come behind, also by group. Also returns the number of valid and of missing
    elements of each group.
    """
    keys = keys_of(parts, n_groups, rate).ordered()
    counts = np.diff(keys.stops(2 * n_groups), prepend=0)
    return keys, counts[:n_groups], counts[n_groups:]


def keys_of(
    parts: Parts, n_groups: int, rate: float = 1, *, none: int | None = None, shift: int = 0
) -> Keys:
    """Make the keys of the elements of some parts, or of a sample; see `_in_groups`.

    `none` is the number of elements in no group, by default behind those of missing elements. Keys
    may be shifted, with places below them.
    """
    none = 2 * n_groups if none is None else none
    dtype = _dtype(parts)
    sizes = [int(np.ceil(values.size * rate)) for values, _ in parts]
    keys, stop = Keys.room(sum(sizes), dtype), 0
    for (values, codes), size in zip(parts, sizes, strict=True):
        start, stop = stop, stop + size
        if size:
            given = values, codes, values.size, size, n_groups, none, shift
            own = keys.taken(slice(start, stop))
            into = own.keys, own.numbers
            launch(dtype, "groups_keys", *given, *into, defined=coded(codes))
    return keys


def fits_shared(dtype: np.dtype[Any], n_groups: int, n_ends: int, n_digits: int = -1) -> bool:
    """Return whether shared memory has room to tally groups of `n_ends` ends each, few at once.

    Sums of weights have `n_digits` digits and one more.
    """
    return bool(_counting(dtype, _even_ends(n_groups, n_ends), n_digits + 1).shared)


def _even_ends(n_groups: int, n_ends: int) -> IntArray:
    """Return the first end of each group, and the number of all, if each group has `n_ends`."""
    return n_ends * np.arange(n_groups + 1)


def _tallied(parts: Parts, brackets: Brackets, room: int) -> tuple[IntArray, Keys | None, int]:
    """Count elements at brackets, and gather candidates.

    Returns the numbers of elements in each cell and of those that equal its upper end, ``(n_cells,
    2)``; the candidates in any order, with their cells as numbers, or None if there was no room for
    all; and the number of candidates.
    """
    dtype, n_groups, n_ends = _dtype(parts), brackets.n_slots, len(brackets.ends)
    taken = Keys.room(room, dtype)
    tables = np.zeros((), _sheet_of(dtype, n_ends, n_groups))
    tables["first"], tables["wanted"] = brackets.first_end, brackets.wanted
    tables["ends"] = to_keys(brackets.ends)
    sheet = on_device(tables)
    at = places_in(sheet, tables.dtype)
    _start_tally(parts, at, (n_groups, n_ends), taken, _counting(dtype, brackets.first_end))
    sums = sheet[offsets(tables.dtype)["totals"] :].get().view(np.int64)
    n, counts = int(sums[0]), sums[1:][: 2 * (n_ends + n_groups)].reshape(2, -1).T
    return counts, taken.taken(slice(n)) if n <= room else None, n


class GroupsAtOnce(NamedTuple):
    """Choice of how to start `groups_tally`.

    It has tables of `at_once` groups at a time in `shared` bytes, or of all groups in device memory
    if `shared` is 0. It searches in `steps` steps.
    """

    at_once: int
    shared: int = 0
    steps: int = 0


def _counting(dtype: np.dtype[Any], first_end: IntArray, n_digits: int = 0) -> GroupsAtOnce:
    """Choose how to tally groups, each with the ends from its first one on."""
    n_groups = len(first_end) - 1
    steps = int(np.diff(first_end).max(initial=0)).bit_length()  # to search the ends of one group
    for n_rows in range(1, MOST_ROWS + 1):
        at_once = -(-n_groups // n_rows)
        edges = first_end[[*range(0, n_groups, at_once or 1), n_groups]]
        most = int(np.diff(edges).max(initial=0))
        n_bytes = groups_memory(dtype, at_once, most, steps, n_digits)
        if _fits(n_bytes):
            return GroupsAtOnce(at_once, n_bytes, steps)
    return GroupsAtOnce(n_groups)


def _sheet_of(
    dtype: np.dtype[Any], n_ends: int, n_groups: int, n_shares: int = 0, n_digits: int = 0
) -> np.dtype[Any]:
    """Return the dtype of what `groups_guess` and `groups_tally` read and write."""
    n_cells = n_ends + n_groups
    key = f"u{key_size(dtype)}"  # Key of ``elements.cuh``
    fields: list[Any] = [("shares", np.float64, (n_shares,)), ("ends", key, (n_ends,))]
    fields += [("first", np.int32, (n_groups + 1,)), ("wanted", np.bool_, (n_cells,))]
    fields += [("totals", np.uint64, (1 + 2 * n_cells + n_groups,))]
    fields += [("sums", np.uint64, (n_digits, 2 * n_cells))]
    return np.dtype(fields, align=True)


def _start_tally(
    parts: Parts,
    at: dict[str, Any],
    sizes: tuple[int, int],
    taken: Keys,
    how: GroupsAtOnce,
    weighed: tuple[Any, ...] = (),
) -> None:
    """Start to count elements at brackets, and to gather candidates as far as there is room.

    `at` are the places of a sheet, and `sizes` the numbers of groups and of ends.
    """
    brackets = at["ends"], at["first"], at["wanted"], *sizes, how.at_once, at["totals"]
    rows = max(-(-sizes[0] // max(how.at_once, 1)), 1)
    way = *_defined(how.shared > 0, how.steps), ("ROWS", int(rows > 1))
    into = taken.keys, taken.numbers, len(taken), *(weighed or (None, 0, 0, None, None))
    of_weights = (("WEIGHTED", 1), *held(weighed[0])) if weighed else ()
    for values, codes in parts:
        if values.size:
            given = values, codes, values.size, *brackets, *into
            defined = *way, *coded(codes), *of_weights
            made: dict[str, Any] = {"shared": how.shared, "rows": rows, "defined": defined}
            launch(taken.dtype, "groups_tally", *given, **made)


def _dtype(parts: Parts) -> np.dtype[Any]:
    dtype: np.dtype[Any] = parts[0][0].dtype
    return dtype


def _ready(parts: Parts) -> Parts:
    """Return elements and codes as contiguous arrays, which the kernels need."""
    return [(cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)) for a, b in parts]
