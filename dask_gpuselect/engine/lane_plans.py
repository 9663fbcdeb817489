"""Choose the plan for an answer along some axes, by the sizes of chunks.

There are eight:

- *lanes*: no reduced axis is divided into chunks, so every chunk has whole lanes: one load;
- *counts*: elements of one or two bytes, in few long lanes, or in few groups of all elements. Each
  chunk counts all values of its lanes, or adds up their weights: one load of one chunk at a time;
- *column*: the chunks of one output block, its column, fit `column-limit`, and one task takes all
  of them: one load;
- *tails*: the column is larger, and the question is about quantiles near the ends of lanes, such as
  0.9. It is read in parts that fit. Each part returns the smallest and largest elements of every
  lane, as many as the answer may need: one load;
- *scratch*: the column is larger, so that it would take several loads. Each chunk is written to
  local disk when it arrives, and the lanes are read back in tiles: one load;
- *p2p*: the same on a cluster of `distributed`, where dask's peer-to-peer rechunk moves the lanes
  between workers: one load;
- *groups*: groups of all elements, in more chunks than one task takes: two loads, as for *bracket*;
- *passes*: the column is larger. It is read in parts that fit, several times: each pass narrows the
  bracket of every lane, and the last one gathers what is inside. Sizes alone determine the number
  of passes, which is mostly two. If there is too little memory for each lane for passes to
  converge, the lanes of each chunk are read in slabs, one after the other. A column on the devices
  of several workers is read by each of them, in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from dask.utils import format_bytes

from dask_gpuselect.engine import settings
from dask_gpuselect.engine.grid import (
    Homes,
    homes_of,
    lane_sizes,
    numbers_of_slabs,
    other_axes,
    runs,
    slab_axis,
)
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.engine.groups import GroupedLanes
from dask_gpuselect.engine.keeping import limits, why_groups_twice
from dask_gpuselect.engine.plans import (
    COUNTED,
    AnyPlan,
    ElementPlan,
    Plan,
    bytes_of_sums,
    bytes_of_weight,
    known_bytes,
)
from dask_gpuselect.engine.questions import LaneQuestion
from dask_gpuselect.engine.reads import Reads
from dask_gpuselect.engine.resident import device_limit, fit_one_device
from dask_gpuselect.engine.scratch import Carried, Scratch, disk, least_loads, tile_of
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import MOST_STACKED
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.ragged import SlotRoom
from dask_gpuselect.maths.sizes import (
    MORE_LOADS,
    MOST_ROOTS,
    SENT_CANDIDATE,
    TALLIES_EVERY,
    TWO_COUNTS,
    Narrowing,
    PartialBytes,
    Passes,
    nearest_to_the_best,
    pass_cost,
    plan_group_narrowing,
    plan_merging,
    plan_one_pass,
    plan_passes,
    sent_in_one_pass,
    waiting_partials,
)
from dask_gpuselect.maths.value_counts import counts_bytes, is_countable
from dask_gpuselect.maths.weights import WEIGHT_BYTES

ONE_TASK = 1 << 26
"""Most bytes of elements in one task if there is a single lane.

This lets several threads share it.
"""


@dataclass(frozen=True, repr=False)
class LanePlan(Plan):
    """The plan for a reduction along some axes.

    Parameters
    ----------
    slabs : int
        Number of slabs of every chunk, each loaded on its own.
    parts : tuple of (int, int)
        First chunk and end (exclusive) of each part of a column, in C order of the reduced axes;
        empty if a column is read as a whole.
    passes : Passes
        The passes before the last.
    n_roots : int
        Number of tasks among which the aggregation of groups is divided; 0 if the question is not
        about groups of all elements.
    narrowing : Narrowing or None
        How partial results about groups are merged on their way; None if they are not.
    shares : int
        Number of tasks among which the lanes of a column are divided, which share one load.
    scratch : Scratch or None
        How columns are written to disk; None if they are not.
    homes : tuple
        The parts of each column, if there is one for each worker that has some of its chunks.
    """

    slabs: int = 1
    parts: tuple[tuple[int, int], ...] = ()
    passes: Passes = Passes((), 2)
    n_roots: int = 0
    narrowing: Narrowing | None = None
    shares: int = 1
    scratch: Scratch | None = None
    homes: Homes = ()

    def __str__(self) -> str:
        return f"{super().__str__()}{_clause(self._on_disk)}{_clause(self.advice)}"

    @property
    def _on_disk(self) -> str:
        if self.scratch is None:
            return ""
        place = self.scratch.where
        where = "moved between workers, on their disks" if place is None else f"on disk, in {place}"
        return f"{format_bytes(self.disk_bytes)} {where}"

    @property
    def rows(self) -> dict[str, str]:
        more = {"written once": self._on_disk, "advice": self.advice}
        return super().rows | {name: text for name, text in more.items() if text}


# Elements in whose time a task is run: of a column, 200 us at 10 ns each.
TASK = 20_000


@dataclass(frozen=True)
class _Lanes:
    """A question about the lanes of an array, with the sizes of its columns of chunks.

    Parameters
    ----------
    x : Source
    axes : tuple of int
        Reduced axes, ascending.
    question : LaneQuestion
    is_one_lane : bool
        True if all elements are one lane.
    may_write : bool
        True if columns may be written to disk.
    """

    x: Source
    axes: tuple[int, ...]
    question: LaneQuestion
    is_one_lane: bool
    may_write: bool

    @cached_property
    def chunks(self) -> list[int]:
        """The number of elements of a lane in each chunk of a column."""
        return lane_sizes(self.x, self.axes)

    @cached_property
    def n_lanes(self) -> int:
        """The number of lanes of the widest column."""
        return math.prod(max(self.x.chunks[axis], default=0) for axis in self.other_axes)

    @cached_property
    def itemsize(self) -> int:
        """The bytes of an element with its companions, as tasks hold it."""
        return self.x.element_bytes(self.question.task_dtype(self.x.dtype))

    @property
    def column_bytes(self) -> int:
        return sum(self.chunks) * self.n_lanes * self.itemsize

    @property
    def answer_bytes(self) -> int:
        """The bytes that a task takes for the answers about a lane."""
        return ANSWER_BYTES * self.question.slots.n * self.question.n_answers

    @property
    def takes_passes(self) -> bool:
        """True if columns can be read in passes: by groups, only those with steps of their own."""
        is_grouped = isinstance(self.question, GroupedLanes)
        return self.question.slots.are_known and not (
            is_grouped and self.question.composed is not None
        )

    @property
    def other_axes(self) -> list[int]:
        """The axes that are not reduced."""
        return other_axes(self.x, self.axes)


def plan_lanes(
    x: DaskArray,
    axes: tuple[int, ...],
    question: LaneQuestion,
    *,
    is_one_lane: bool = False,
    may_write: bool = True,
) -> LanePlan:
    """Plan a question about every lane.

    A column that is too large is divided into slabs that fit, with a load for each, or read in
    passes, or both. The cost of a load is unknown. So the plan is the one that comes closest to the
    best of the others at any cost of a load, counting loads (at most twice the fewest) and the time
    spent on elements. For data in memory, loads cost nothing. Chunks in the memory of a device are
    taken as one column if kernels do not need a copy of them.

    Raises
    ------
    ValueError
        If the limit is too small for any.
    """
    lanes = _Lanes(Source.of(x), axes, question, is_one_lane, may_write)
    plan = _plan_columns(lanes)
    if plan.task_bytes < 0:
        return plan
    # A block of the answer has 8 bytes for each number, or more if elements have more.
    each = max(8, lanes.x.dtype.itemsize) * question.slots.n * question.n_answers
    return replace(plan, task_bytes=max(plan.task_bytes, known_bytes(lanes.n_lanes * each)))


def _plan_columns(lanes: _Lanes) -> LanePlan:
    """Plan a question about every lane, for tasks that hold chunks."""
    question, n_chunks = lanes.question, len(lanes.chunks)
    if lanes.is_one_lane:
        counted = _plan_counts_of_groups(lanes)
        if counted is not None:
            return counted
    if isinstance(question, GroupedElements) and n_chunks > 1:
        return _plan_groups(lanes, question)
    if n_chunks == 1:
        return LanePlan("lanes", 1, known_bytes(lanes.column_bytes), 0)
    parts = [(i, i + 1) for i in range(n_chunks)]
    if not lanes.is_one_lane:
        counted = _plan_counts(lanes, parts, lanes.chunks, lanes.n_lanes, COUNTS_SHARE)
        if counted is not None:
            return counted
    limits = [column_limit()]
    if lanes.is_one_lane and lanes.takes_passes:
        limits.insert(0, one_lane_limit(lanes.x))  # this limit may be too low for many groups
    for limit in limits:
        plan = _plan_within(lanes, limit)
        if plan is not None:
            return plan
    raise ValueError(
        f"dask_gpuselect.column-limit is {format_bytes(column_limit())}, which is too small for "
        f"columns of {n_chunks} chunks with {format_bytes(lanes.column_bytes)} in all: increase "
        "it, for example by dask.config.set({'dask_gpuselect.column-limit': "
        f"'{format_bytes(lanes.column_bytes)}'}}){_clause(_advice_on_labels(lanes))}"
    )


def _plan_within(lanes: _Lanes, limit: int) -> LanePlan | None:
    """Plan columns of several chunks, for tasks that hold at most `limit` bytes.

    Return None if no plan fits.
    """
    x, axes, question, chunks = lanes.x, lanes.axes, lanes.question, lanes.chunks
    by_workers = _plan_by_workers(lanes, limit)
    if by_workers is not None:
        return by_workers
    is_known_larger = lanes.column_bytes > limit
    if not is_known_larger or _is_taken_in_place(lanes):
        return LanePlan("column", 1, known_bytes(lanes.column_bytes), 0, shares=_shares(lanes))
    limit = max(limit, max(chunks) * lanes.n_lanes * lanes.itemsize)
    # If data are in memory, loads cost nothing, and slabs take each element once.
    if not (lanes.is_one_lane or x.is_on_device or x.is_in_memory):
        in_tails = _plan_tails(lanes, limit)
        if in_tails is not None:
            return in_tails
    widest = max(x.chunks[slab_axis(x, axes)])
    least = math.inf  # loads that are known to be enough
    plans: list[tuple[int, float, LanePlan]] = []
    for slabs in numbers_of_slabs(sum(chunks) * lanes.itemsize, lanes.n_lanes, widest, limit):
        plan = _plan_slab(lanes, lanes.n_lanes // widest * -(-widest // slabs), limit)
        if plan is not None:
            loads = _all_loads(question, plan.loads) if plan.parts else 1
            least = min(least, slabs * loads)
            in_slabs = replace(plan, slabs=slabs, loads=slabs * loads)
            # The work: reads of each element, and tasks, which are one for each load of each chunk.
            work = (
                loads * question.loads.pass_time * question.slots.pass_factor if plan.parts else 1.0
            )
            work += slabs * loads * TASK * len(chunks) / (sum(chunks) * lanes.n_lanes)
            plans.append((slabs * loads, work, in_slabs))
        if slabs >= MORE_LOADS * least and not x.is_in_memory:
            break  # more slabs are more loads
    loads, _, best = (0, 0.0, None)
    if plans:
        loads, _, best = (
            min(plans, key=itemgetter(1)) if x.is_in_memory else nearest_to_the_best(plans)
        )
    is_often = best is None or loads >= least_loads()
    if is_often and (written := _plan_scratch(lanes, limit, loads)) is not None:
        return written
    room = _room_advice(lanes) if is_often else ""
    advice = _advice(lanes), room, _advice_on_labels(lanes)
    return best and replace(best, advice="; ".join(filter(None, advice)))


def _all_loads(question: LaneQuestion, n: int) -> int:
    """Return the number of all loads in passes, which take `n` for order statistics."""
    return n * (1 + (question.composed is not None)) + (question.loads.further is not None)


# Bytes of a tile, at most: of a year of hourly maps of (721, 1440) float32, five rows of each map.
TILE = 1 << 28

# Bytes of a tile on a local disk that suffice. Its memory is new to the process, and a virtual
# machine may have to find it first: box plots of 1.4 GiB took 0.24 s less with it than with 88 MiB.
LOCAL_TILE = 3 << 24

# Bytes of each map in a tile that are worth a read of their own.
RUN_BYTES = 1 << 15

# Bytes that a task takes for each answer about a lane, beside its elements, as tracemalloc counts:
# five-day windows of a year of days are 365 answers about 365 elements, in float64, of which some
# wait.
ANSWER_BYTES = 96


def _plan_scratch(lanes: _Lanes, limit: int, loads: int) -> LanePlan | None:
    """Plan to write columns to disk, if passes would take `loads` loads, or cannot answer (0).

    Return None if the question does not allow it, or if there is no space.
    """
    x, lane_bytes = lanes.x, sum(lanes.chunks) * lanes.itemsize
    place, disk_bytes = _disk(lanes), Carried.by(x, lanes.axes).n_bytes(x)
    where, room = place or (None, -1.0)
    if lane_bytes > limit or disk_bytes > room:
        return None
    # Several for each thread, as far as they are worth a task.
    most = lanes.n_lanes * (lane_bytes + lanes.answer_bytes) // COLUMNS
    if where is not None:
        most = min(most, max(LOCAL_TILE, RUN_BYTES * sum(lanes.chunks)))
    most = min(limit, TILE, max(most, SHARE_BYTES))
    tile = tile_of(x, lanes.axes, most // (lane_bytes + lanes.answer_bytes))
    tile_lanes = math.prod(size for axis, size in enumerate(tile) if axis not in lanes.axes)
    task_bytes = max(tile_lanes * lane_bytes, max(lanes.chunks) * lanes.n_lanes * lanes.itemsize)
    # Companions that all lanes of a column share: every tile on a local disk gets them whole.
    shared = (each for each in x.companions if {*lanes.other_axes} <= {*each.stretched})
    shared_bytes = sum(lanes.chunks) * sum(each.dtype.itemsize for each in shared)
    return LanePlan(
        "p2p" if where is None else "scratch",
        1,
        task_bytes,
        0 if where is None else shared_bytes,
        scratch=Scratch(tile, most, where, int(disk_bytes), task_bytes),
        disk_bytes=int(disk_bytes),
        why=f"passes would take {loads}" if loads else "passes find no answer",
    )


def _disk(lanes: _Lanes) -> tuple[str | None, float] | None:
    """Find the disk that columns may be written to, as `disk` does; None if they may not."""
    is_written = lanes.may_write and not (lanes.is_one_lane or lanes.x.is_in_memory)
    return disk() if is_written else None


def _room_advice(lanes: _Lanes) -> str:
    """Return advice on how to get columns written to disk, if only space is missing."""
    place, n = _disk(lanes), int(Carried.by(lanes.x, lanes.axes).n_bytes(lanes.x))
    where, room = place or (None, math.inf)
    if n <= room:
        return ""
    some = f"{format_bytes(n)}, with as much room in {where or 'the disks of the workers'}"
    return f"or set scratch-limit to {some}"


def with_labels(
    plan: AnyPlan, x: DaskArray, question: LaneQuestion, labels: np.dtype[Any]
) -> AnyPlan:
    """Add the bytes of labels, one for each element, to those of a plan.

    They do not influence the choice of the plan.
    """
    is_as_read = plan.name == "counts" or isinstance(plan, ElementPlan)
    dtype = x.dtype if is_as_read else question.task_dtype(x.dtype)
    each = Source.of(x).element_bytes(dtype)
    n = plan.task_bytes // each
    return plan if plan.task_bytes < 0 else replace(plan, task_bytes=n * (each + labels.itemsize))


# Bytes of lanes that every device's kernels of box plots take without a copy of the chunks.
BOXED_IN_PLACE = 48 << 10


def _is_taken_in_place(lanes: _Lanes) -> bool:
    """Return whether a column needs no more memory than its chunks, which may all be in memory.

    That is so if kernels can read CuPy chunks in place: the reduced axes are adjacent, and there
    are not many chunks.
    """
    x, axes, question = lanes.x, lanes.axes, lanes.question
    is_plain = x.is_on_device and question.by_order and x.made_by.does != "pack"
    itemsize = max(x.dtype.itemsize, 4)
    # Integers that no float64 holds are mixed on the host, by a copy of the chunks.
    may_copy = x.dtype.kind in "iu" and itemsize == 8
    may_copy |= question.loads.further is not None and sum(lanes.chunks) * itemsize > BOXED_IN_PLACE
    is_adjacent = axes[-1] - axes[0] < len(axes)
    is_few = len(lanes.chunks) <= MOST_STACKED
    is_in_place = is_plain and not may_copy and is_adjacent and is_few
    return is_in_place and (x.is_in_process or fit_one_device([x]))


# Bytes whose sending takes longer than another load on devices: on two H200s, 0.04 s by TCP.
WORTH_SENDING = 1 << 26

# Bytes of the lanes of a part that every device's kernels measure in shared memory.
MEASURED_IN_PLACE = 24 << 10


def _plan_by_workers(lanes: _Lanes, limit: int) -> LanePlan | None:
    """Plan one pass in which every worker of a cluster measures the chunks that it has.

    Return None unless columns of chunks are on the devices of several workers, and kernels measure
    them in place, and less is sent so than if one worker took each column.
    """
    x, question, chunks = lanes.x, lanes.question, lanes.chunks
    if not (x.is_in_memory and is_fast(x) and x.nbytes >= WORTH_SENDING and lanes.may_write):
        return None
    is_plain = x.made_by.does != "pack" and not (x.dtype.kind in "iu" and x.dtype.itemsize == 8)
    is_simple = question.by_order and question.loads.further is None and question.composed is None
    is_one = question.slots.are_known and question.slots.n == 1 and question.slots.windows is None
    if x.is_in_process or not (is_plain and is_simple and is_one):
        return None
    homes = homes_of(x, lanes.axes) or ()
    sizes = [[sum(chunks[i] for i in part) for part in parts] for parts in homes]
    divided = [each for each in sizes if len(each) > 1]
    longest = max(map(max, sizes), default=0)
    n_stacked = max((len(part) for parts in homes for part in parts), default=0)
    is_in_place = longest * lanes.itemsize <= MEASURED_IN_PLACE and n_stacked <= MOST_STACKED
    if not (divided and is_in_place):
        return None
    n_lanes, itemsize, n_brackets = lanes.n_lanes, lanes.itemsize, max(question.loads.n_brackets, 1)
    given = n_brackets, limit // n_lanes, PartialBytes(itemsize)
    plans = [plan_one_pass(each, *given, candidate=SENT_CANDIDATE, few=0) for each in divided]
    if None in plans:
        return None
    width = max(plan.widths[0] for plan in plans if plan)
    gathered = max(plan.gathered for plan in plans if plan)
    moved = sum(sum(each) - max(each) for each in divided) * itemsize * n_lanes
    sent = sum(sent_in_one_pass(each, n_brackets, itemsize, width) for each in divided) * n_lanes
    if moved - sent < WORTH_SENDING:
        return None
    passes = Passes((width,), max(map(len, sizes)), gathered)
    about = longest * n_lanes * itemsize, gathered * n_lanes, 1, (), passes
    why = "columns have chunks on several workers"
    return LanePlan("passes", 2, *about, homes=homes, why=why)


def is_fast(x: Source) -> bool:
    """Return whether reading a chunk once more takes much less time than sending it."""
    return x.is_on_device


def _clause(advice: str) -> str:
    return advice and f"; {advice}"


def _plan_groups(lanes: _Lanes, question: GroupedElements) -> LanePlan:
    """Plan a question about groups of all elements: one load if one task can hold all, else two."""
    x, chunks, itemsize = lanes.x, lanes.chunks, lanes.itemsize
    total, limit = sum(chunks), one_lane_limit(x)
    if total * itemsize <= limit:
        return LanePlan("column", 1, total * itemsize, 0)
    parts, sizes = _parts_of_one_lane(chunks, limit, itemsize)
    task_bytes = -1 if math.isnan(total) else max(sizes) * itemsize
    itemsize, limit = selection_dtype(x.dtype).itemsize, settings.n_bytes("root-limit")
    gathered = question.root_bytes_of(sizes, itemsize)
    how: dict[str, Any] = {}
    if question.weighs:
        how, itemsize = {"pivot": question.pivot, "halves": 2}, itemsize + WEIGHT_BYTES
    n_roots = max(-(-gathered // max(limit, 1)), 1)
    about = np.array(sizes), question.slots.n, max(question.loads.n_brackets, 1), itemsize, limit
    narrowing = plan_group_narrowing(*about, too_many=n_roots, **how)
    if narrowing is None:
        if (room := room_of_groups(x, question, len(parts))) is not None:
            n_roots = max(n_roots, -(-question.slots.n // max(room.slots, 1)))
        n_roots = min(n_roots, question.slots.n, MOST_ROOTS)
        gathered, work, waiting = gathered // n_roots, gathered // n_roots, 0
    else:
        n_roots, waiting = narrowing.stretches, narrowing.waiting
        gathered, work = narrowing.gathered, narrowing.work
    loads, further = _all_loads(question, 2), question.loads.further
    why = why_groups_twice(Reads(x), len(parts), n_roots, keeps=question.keeps)
    return LanePlan(
        "groups",
        loads,
        task_bytes,
        max(gathered, _further_bytes(lanes, len(parts), question.slots.n)),
        1,
        tuple(parts),
        n_roots=n_roots,
        narrowing=narrowing,
        cached_bytes=0 if why else limits().n_bytes,
        root_bytes=work,
        waiting_bytes=waiting,
        why=why,
        may_end=further is not None and further.is_done is not None,
    )


def room_of_groups(x: DaskArray, question: GroupedElements, n_parts: int) -> SlotRoom | None:
    """Return how much one task may gather to answer all of a question about groups at once.

    It holds the candidates, and exact sums of each group in each part. None if those are not asked
    for.
    """
    wanted = question.of_group.wanted_of_group
    if wanted is None or wanted.whole is None:
        return None
    limit = settings.n_bytes("root-limit") // 2
    n_candidates = limit // (Source.of(x).element_bytes(x.dtype) + OF_CELL)
    return SlotRoom(limit // (n_parts * bytes_of_sums(x)), n_candidates)


OF_CELL = np.dtype(np.int32).itemsize  # bytes of the cell of a candidate, beside the element
# Bytes of `maths.lane_ends.LaneEnds` for a lane, without sums and fliers, and of what is known; and
# of a flier beside its value: how often it occurs.
ENDS_BYTES, FLIER_BYTES = 144, 8


def _further_bytes(lanes: _Lanes, n_parts: int, n_lanes: int) -> int:
    """Return the most bytes of the partial results of a further load in one task."""
    if (further := lanes.question.loads.further) is None:
        return 0
    x, n, size = lanes.x, min(n_parts, further.merge_every), sum(lanes.chunks)
    of_lane = n * (ENDS_BYTES + bytes_of_sums(x))
    most = math.inf if math.isnan(size) else lanes.question.slots.elements(size)
    of_flier = selection_dtype(x.dtype).itemsize + FLIER_BYTES + bytes_of_weight(x)
    return n_lanes * int(of_lane + min(n * further.width, most) * of_flier)


def _parts_of_one_lane(
    chunks: Sequence[int], most: float, itemsize: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Divide the chunks of a single lane into parts of `most` bytes, and return their sizes.

    Chunks of unknown sizes are parts of their own, and counted as dask's configured chunk size.
    """
    if math.isnan(sum(chunks)):
        n = settings.chunk_bytes() // itemsize
        return [(i, i + 1) for i in range(len(chunks))], [n] * len(chunks)
    parts = list(runs(chunks, int(most // itemsize)))
    return parts, [sum(chunks[start:stop]) for start, stop in parts]


# Counts of lanes take at most this share of what they are of.
COUNTS_SHARE = 0.25

# The same share for groups. If all values of 6e7 uint16 occur equally often, so that counts take as
# many bytes as the elements, counting took 1.46 s and two loads took 2.30. With a fifth as many
# counts it was 0.36 and 1.09 s.
GROUP_COUNTS_SHARE = 1.0

# Bytes of elements that are worth a task which counts them: 4 ms at 1 ns each.
COUNTED_AT_ONCE = 1 << 22

# The same on a device, which takes chunks of that size as fast as larger ones.
COUNTED_ON_DEVICE = 1 << 28


def _plan_counts_of_groups(lanes: _Lanes) -> LanePlan | None:
    """Plan to count all values of every group of all elements; return None if that is no option.

    Parts are as large as fits, and well larger than their counts.
    """
    x, question, chunks = lanes.x, lanes.question, lanes.chunks
    if question.loads.counts is None or not math.isfinite(question.slots.at_most):
        return None
    itemsize, total = x.element_bytes(), sum(chunks)
    of_partial = question.slots.at_most * counts_bytes(x.dtype)
    worth = COUNTED_ON_DEVICE if x.is_on_device else COUNTED_AT_ONCE
    most = min(max(4 * of_partial / GROUP_COUNTS_SHARE, worth), one_lane_limit(x))
    parts, sizes = _parts_of_one_lane(chunks, most, itemsize)
    counted = _plan_counts(lanes, parts, sizes, 1, GROUP_COUNTS_SHARE)
    return replace(counted, task_bytes=-1) if counted and math.isnan(total) else counted


def _plan_counts(
    lanes: _Lanes,
    parts: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    n_lanes: int,
    share: float,
) -> LanePlan | None:
    """Plan to count all values of every lane or group, in one load of one part at a time.

    Return None if the counts exceed the given `share` of a part, or `root-limit`.

    For each lane there are at most as many counts as possible values, in a part and in all. One
    task merges `TALLIES_EVERY` of these partial results.
    """
    x, question = lanes.x, lanes.question
    if question.loads.counts is None or not is_countable(x.dtype):
        return None
    itemsize, n_counted = x.element_bytes(), n_lanes * question.slots.at_most
    of_partial = n_counted * counts_bytes(x.dtype)
    gathered = min(len(parts), TALLIES_EVERY) * of_partial
    part_bytes = n_lanes * itemsize * sum(sizes) / len(parts)
    is_little = of_partial <= share * part_bytes  # not if that is not known
    if not (is_little and gathered <= settings.n_bytes("root-limit")):
        return None
    task_bytes = max(sizes) * n_lanes * itemsize
    passes = Passes((), TALLIES_EVERY, int(gathered))
    about = task_bytes, int(gathered), 1, tuple(parts), passes
    return LanePlan("counts", 1, *about, why=COUNTED)


def _plan_tails(lanes: _Lanes, limit: int) -> LanePlan | None:
    """Plan to keep the tails of lanes, if those of all waiting parts fit the limit."""
    question, chunks, n_lanes = lanes.question, lanes.chunks, lanes.n_lanes
    tails = question.loads.tails(sum(chunks))
    if tails is None:
        return None
    row_bytes = n_lanes * lanes.itemsize
    parts = tuple(runs(chunks, limit // row_bytes))
    largest = max(sum(chunks[start:stop]) for start, stop in parts)
    dtype = selection_dtype(question.task_dtype(lanes.x.dtype))
    of_lane = tails.width * dtype.itemsize + question.slots.n * TWO_COUNTS
    partial_result = n_lanes * of_lane
    merge_every = plan_merging(len(parts), limit // partial_result)
    if merge_every is None:
        return None
    waiting = waiting_partials(len(parts), merge_every)
    return LanePlan(
        "tails",
        1,
        largest * row_bytes,
        waiting * partial_result,
        1,
        parts,
        Passes((), merge_every, waiting * of_lane),
        shares=_shares(lanes),
    )


def _advice_on_labels(lanes: _Lanes) -> str:
    """Return advice on how to make passes possible, where groups are not known before."""
    is_of_use = not lanes.question.slots.are_known and lanes.question.composed is None
    return "groups= (the labels that there are) makes passes possible" if is_of_use else ""


def _advice(lanes: _Lanes) -> str:
    """Return advice on how to get one load."""
    x, axes = lanes.x, lanes.axes
    if x.is_in_memory:
        return ""
    whole = ", ".join(f"{i}: {-1 if i in axes else repr('auto')}" for i in range(x.ndim))
    return (
        f"to read each chunk once, set column-limit to {format_bytes(int(lanes.column_bytes))}, "
        f"or rechunk({{{whole}}})"
    )


# Where there are fewer columns than this, several tasks answer each: threads without a column of
# their own would wait. How many threads there will be is not known.
COLUMNS = 16

# Bytes of a chunk that are worth a task of their own: 2 ms of sorting, for 0.2 ms.
SHARE_BYTES = 1 << 20


def _shares(lanes: _Lanes) -> int:
    """Return the number of tasks among which to divide the lanes of a column.

    Each of them takes at most `column-limit` for its answers, as far as lanes can be divided.
    """
    x, chunk_bytes = lanes.x, lanes.column_bytes / len(lanes.chunks)
    if x.is_on_device or math.isnan(chunk_bytes):
        return 1
    n_columns = math.prod(x.numblocks[axis] for axis in lanes.other_axes)
    most = min(COLUMNS // n_columns, chunk_bytes // SHARE_BYTES)
    least = -(-lanes.answer_bytes * lanes.n_lanes // max(column_limit(), 1))
    return int(max(min(max(most, least), max(x.chunks[slab_axis(x, lanes.axes)])), 1))


def _plan_slab(lanes: _Lanes, n_lanes: int, limit: int) -> LanePlan | None:
    """Plan `n_lanes` of the lanes of each chunk; return None if no plan fits."""
    question, chunks, row_bytes = lanes.question, lanes.chunks, n_lanes * lanes.itemsize
    if sum(chunks) * row_bytes <= limit:
        return LanePlan("column", 1, sum(chunks) * row_bytes, 0)
    if not lanes.takes_passes:
        return None
    n_each = n_lanes * question.slots.n
    room, n_brackets = limit // n_each, max(question.loads.n_brackets, 1)
    partial_result = question.loads.partial_bytes(lanes.x.dtype)

    def plan(parts: tuple[tuple[int, int], ...], one_pass: bool) -> tuple[float, LanePlan] | None:
        whole = [sum(chunks[start:stop]) for start, stop in parts]
        sizes = [question.slots.elements(n) for n in whole]
        plan_these = plan_one_pass if one_pass else plan_passes
        passes = plan_these(sizes, n_brackets, room, partial_result)
        if passes is None:
            return None
        further = _further_bytes(lanes, len(parts), n_each)
        loads, gathered = len(passes.widths) + 1, max(passes.gathered * n_each, further)
        planned = LanePlan("passes", loads, max(whole) * row_bytes, gathered, 1, parts, passes)
        return pass_cost(sizes, n_each, partial_result.itemsize, passes), planned

    every = [tuple(runs(chunks, (limit >> i) // row_bytes)) for i in range(PART_SIZES)]
    options = [each for parts in every if (each := plan(parts, one_pass=True))]
    if options:
        return min(options, key=itemgetter(0))[1]
    largest = plan(every[0], one_pass=False)
    return largest and largest[1]


PART_SIZES = 6  # sizes of parts that are tried: the limit, half of it, a quarter, ...


def column_limit() -> int:
    """Return the setting `column-limit`, in bytes."""
    return settings.n_bytes("column-limit")


def one_lane_limit(x: Source) -> int:
    """Return the most bytes that one task takes if there is a single lane."""
    limit = column_limit()
    # A device is faster with all of it: of 64 chunks of 2^23 float32, box plots by 18 zones took
    # 0.14 s in one task and 3.2 s chunk by chunk, and weighted medians 0.27 and 7.3 s, on an H200.
    if not x.is_on_device:
        return min(limit, ONE_TASK)
    return max(limit, device_limit()) if fit_one_device([x]) else limit
