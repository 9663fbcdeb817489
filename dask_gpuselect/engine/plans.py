"""Choose the plan for an answer, by the sizes of chunks and by the tasks that make them.

For all elements there are four plans:

- *counts*: elements of one or two bytes. Each chunk counts all its values, or adds up their
  weights: one load;
- *guess*: all chunks are in memory. A sample guesses the brackets, and one read proves them;
- *held*: all chunks are CuPy arrays in the memory of one device, or tasks make them there and they
  fit `cache-limit`. One task reads them in place, as if they were one array. Few elements with
  weights are copied together;
- *bracket*: two loads, with a bracket between them. A chunk of which the first load has cached
  enough is not loaded again: see `keeping`. If there are so many chunks that their cuts exceed
  `root-limit` in one task, the cuts are narrowed on the way there.

Along some axes there are eight:

- *lanes*: no reduced axis is divided into chunks, so every chunk has whole lanes: one load;
- *counts*: elements of one or two bytes, in few long lanes, or in few groups of all elements. Each
  chunk counts all values of its lanes, or adds up their weights: one load of one chunk at a time;
- *column*: the chunks of one output block, its column, fit `column-limit`, and one task takes all
  of them: one load;
- *tails*: the column is larger, and the question is about quantiles near the ends of lanes, such as
  0.9. It is read in parts that fit. Of each part, the smallest and largest elements of every lane
  are kept, as many as the answer may need: one load;
- *scratch*: the column is larger, so that it would take several loads. Each chunk is written to
  local disk when it arrives, and the lanes are read back in tiles: one load;
- *p2p*: the same on a cluster of `distributed`, where dask's peer-to-peer rechunk moves the lanes
  between workers: one load;
- *groups*: groups of all elements, in more chunks than one task takes: two loads, as for *bracket*;
- *passes*: the column is larger. It is read in parts that fit, several times: each pass narrows the
  bracket of every lane, and the last one gathers what is inside. Sizes alone determine the number
  of passes, which is mostly two. If there is too little memory for each lane for passes to
  converge, the lanes of each chunk are read in slabs, one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from dask.utils import format_bytes

from dask_gpuselect.engine import pilot, settings
from dask_gpuselect.engine.counting import gathered_bytes, takes_counts
from dask_gpuselect.engine.grid import (
    lane_sizes,
    numbers_of_slabs,
    other_axes,
    runs,
    slab_axis,
)
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.engine.groups import GroupedLanes
from dask_gpuselect.engine.keeping import GROUPS, Keeping, limits, why_groups_twice, why_twice
from dask_gpuselect.engine.questions import LaneQuestion, Question
from dask_gpuselect.engine.reads import Reads
from dask_gpuselect.engine.resident import fit_one_device
from dask_gpuselect.engine.scratch import (
    Carried,
    Disk,
    Scratch,
    disk,
    least_loads,
    tile_of,
)
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import MOST_STACKED
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.sizes import (
    CANDIDATE_COPIES,
    LEAST_OF_GROUP,
    MORE_LOADS,
    MOST_SORTED,
    PIVOT_BYTES,
    PIVOT_WORK,
    TALLIES_EVERY,
    TWO_COUNTS,
    Narrowing,
    Passes,
    fit_one_place,
    nearest_to_the_best,
    pass_cost,
    pivot_count,
    plan_group_narrowing,
    plan_merging,
    plan_narrowing,
    plan_one_pass,
    plan_passes,
    share_of_one_place,
    waiting_partials,
)
from dask_gpuselect.maths.value_counts import counts_bytes, is_countable

AnyPlan = TypeVar("AnyPlan", bound="Plan")

ONE_TASK = 1 << 26
"""Most bytes of elements in one task if there is a single lane.

This lets several threads share it.
"""

PILOT_SHARE = 0.009  # of all elements are candidates of a guess, for each quantile


@dataclass(frozen=True, repr=False)
class Plan:
    """The plan by which an answer is computed: its name, reads and memory.

    `explain` makes it. ``print(plan)`` shows it in one line, and ``plan.table()`` as a table.

    Parameters
    ----------
    name : str
        Name of the plan, which is a part of the names of the tasks: see `explain`.
    loads : int
        The same as `reads`.
    task_bytes : int
        Most bytes of chunks in one task, without scratch; -1 if chunk sizes are unknown.
    gathered_bytes : int
        Bytes of the partial results that one task aggregates: an estimate for all elements, and a
        maximum along an axis. -1 if unknown.
    cached_bytes : int
        Bytes that the first reads in a process may cache, so that a chunk need not be read again.
    root_bytes : int
        Estimated peak memory of the task that aggregates; 0 if unknown.
    waiting_bytes : int
        Bytes of partial results that wait on all workers together, if they are too many for one
        task.
    why : str
        Reason for the number of reads: why every chunk is read a second time if nothing is cached,
        or why one read is enough if values are counted.
    n_chunks : int
        Number of chunks of the array; -1 if unknown.
    n_columns : int
        Number of columns of chunks, one for each chunk of the answer; 1 for all elements.
    is_in_memory : bool
        True if `explain` has found all chunks in memory.
    shuffle : str
        How often a dask shuffle that makes the chunks runs, and where it stores data; "" if there
        is none.
    """

    name: str
    loads: int
    task_bytes: int
    gathered_bytes: int
    cached_bytes: int = field(default=0, kw_only=True)
    root_bytes: int = field(default=0, kw_only=True)
    waiting_bytes: int = field(default=0, kw_only=True)
    why: str = field(default="", kw_only=True, compare=False)
    n_chunks: int = field(default=-1, kw_only=True, compare=False)
    n_columns: int = field(default=1, kw_only=True, compare=False)
    is_in_memory: bool = field(default=False, kw_only=True, compare=False)
    shuffle: str = field(default="", kw_only=True, compare=False)

    @property
    def reads(self) -> int:
        """Number of reads of every chunk, at most. Chunks in memory are read in place."""
        return self.loads

    def __str__(self) -> str:
        gathered = "no partial results"
        if self.gathered_bytes:
            gathered = f"{_shown_bytes(self.gathered_bytes)} of partial results in one task"
        parts = [
            f"{self.name}: reads each chunk {self._loads_in_words()}",
            f"{_shown_bytes(self.task_bytes)} of chunks per task",
            gathered,
        ]
        if self.waiting_bytes:
            parts.append(f"{format_bytes(self.waiting_bytes)} waiting on all workers")
        if self.cached_bytes:
            parts.append(f"caches at most {format_bytes(self.cached_bytes)} per process")
        if self.shuffle:
            parts.append(f"the shuffle runs {self.shuffle}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<plan {self}>"

    def _loads_in_words(self) -> str:
        loads = _times_in_words(self.loads)
        if self.cached_bytes:
            return f"{_times_in_words(self.loads - 1)} or {loads}"
        return f"{loads}, because {self.why}" if self.why else loads

    @property
    def rows(self) -> dict[str, str]:
        """The plan as the rows of a table: names and descriptions."""
        rows = {
            "plan": self.name,
            "reads of each chunk": self._loads_in_words(),
            "chunks per task": _shown_bytes(self.task_bytes),
            "partial results in one task": _shown_bytes(self.gathered_bytes),
        }
        if self.shuffle:
            rows["shuffle runs"] = self.shuffle
        if self.cached_bytes:
            rows["cached per process"] = f"{format_bytes(self.cached_bytes)} at most"
        if self.n_chunks >= 0:
            most = self.n_chunks * self.loads
            rows["reads of all chunks"] = f"{most:,}{' at most' if self.cached_bytes else ''}"
        if not self.is_in_memory:  # where loads take no time
            least = self.loads - 1 if self.cached_bytes else self.loads
            often = f"{least} to {self.loads}" if self.cached_bytes else f"{least}"
            rows["time"] = f"about {often} × x.sum(), if reading dominates"
        return rows

    def table(self) -> str:
        """Return the rows as text, one in each line."""
        width = max(map(len, self.rows))
        return "\n".join(f"{name:{width}}  {told}" for name, told in self.rows.items())

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{escape(name)}</th><td>{escape(told)}</td></tr>"
            for name, told in self.rows.items()
        )
        return f"<table>{''.join(rows)}</table>"


def _shown_bytes(n: int) -> str:
    return "an unknown number of bytes" if n < 0 else format_bytes(n)


def _times_in_words(n: int) -> str:
    """Return "once", "twice" or "n times"."""
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


def known_bytes(n: float) -> int:
    """Convert a number of bytes to an integer: -1 for NaN, which stands for unknown sizes."""
    return -1 if math.isnan(n) else int(n)


@dataclass(frozen=True, repr=False)
class ElementPlan(Plan):
    """The plan for a question about all elements.

    Parameters
    ----------
    narrowing : Narrowing or None
        How cuts are narrowed on their way to one task, if they are too many.
    keeping : Keeping or None
        How the first load caches what the second would ask for; None if each chunk takes two loads.
        It is the same for arrays that are loaded together.
    """

    narrowing: Narrowing | None = field(default=None, kw_only=True, compare=False)
    keeping: Keeping | None = field(default=None, kw_only=True, compare=False)


def plan_all(x: DaskArray, question: Question) -> ElementPlan:
    """Plan a question about all elements of an array that is loaded alone."""
    x = Source.of(x)
    if is_resident(x, question) or stays_on_device([x], [question]):
        n_bytes = _guessed_bytes(x, question)
        if question.weighs:
            n_bytes = known_bytes(_copied_bytes(x, question))
        in_task = _chunk_bytes(x) if x.is_in_memory else known_bytes(x.size * x.element_bytes())
        return ElementPlan("held", 1, in_task, n_bytes)
    (plan,) = plan_together([x], [question])
    return plan


def plan_together(arrays: Sequence[DaskArray], questions: Sequence[Question]) -> list[ElementPlan]:
    """Plan questions about all elements of arrays that are loaded together.

    If the values of all arrays can be counted, this takes one load.
    """
    pairs = list(zip(map(Source.of, arrays), questions, strict=True))
    if all(takes_counts(*pair) for pair in pairs):
        return [_plan_one_load(x) for x, _ in pairs]
    narrowings = [narrowing_of(*pair, among=len(pairs)) for pair in pairs]
    reads = Reads(*(x for x, _ in pairs))
    why, keeping = why_twice(reads, questions), None
    if not why:
        keeping = Keeping.of(reads, [GROUPS, *(each.groups for each in narrowings if each)])
    return [
        _plan_two_loads(*pair, narrowing, keeping, why)
        for pair, narrowing in zip(pairs, narrowings, strict=True)
    ]


COUNTED = "values are few, and all are counted"


def _plan_one_load(x: Source) -> ElementPlan:
    gathered = gathered_bytes(x, _most_elements(x))
    return ElementPlan("counts", 1, _chunk_bytes(x), gathered, why=COUNTED)


def _plan_two_loads(
    x: Source,
    question: Question,
    narrowing: Narrowing | None,
    keeping: Keeping | None,
    why: str,
) -> ElementPlan:
    if x.is_in_memory and pilot.is_worth(x.size, x.npartitions, question):
        # If it is right, the tasks of two loads return at once.
        return ElementPlan("guess", 1, _chunk_bytes(x), _guessed_bytes(x, question))
    gathered, work, waiting = _at_root(x, question, narrowing)
    return ElementPlan(
        "bracket",
        2,
        _chunk_bytes(x),
        gathered,
        cached_bytes=0 if keeping is None else keeping.limits.n_bytes,
        root_bytes=work,
        waiting_bytes=waiting,
        why=why,
        narrowing=narrowing,
        keeping=keeping,
    )


def _most_elements(x: DaskArray) -> float:
    """Return the number of elements of the largest chunk, by the largest sizes along each axis."""
    found: float = math.prod(max(sizes, default=0) for sizes in x.chunks)
    return found


def _chunk_bytes(x: Source) -> int:
    return known_bytes(_most_elements(x) * x.element_bytes())


def _guessed_bytes(x: DaskArray, question: Question) -> int:
    return known_bytes(PILOT_SHARE * question.n_answers * x.nbytes)


def is_resident(x: DaskArray, question: Question) -> bool:
    """Return whether one task can answer, because one device holds all chunks in its memory.

    With a task for each chunk, each would wait for the host: quartiles of 2^30 float32 in 8 chunks
    took 35 ms on an H100, of which kernels ran for 6 ms.
    """
    x = Source.of(x)
    return x.is_on_one_device and share_of_one_task(x, question) > 0


def share_of_one_task(x: DaskArray, question: Question) -> int:
    """Return the share of the pivots of a task that answers about all chunks on one device.

    0 if no task can: with many slots, and with more pivots or copies than `root-limit`.
    """
    if question.n_slots > 1:
        return 0
    if question.weighs:  # elements and weights are copied together
        fits = _copied_bytes(x, question) <= settings.n_bytes("root-limit")
        return question.share if fits and x.size <= MOST_SORTED else 0
    about, limit, itemsize = _for_root(x, question)
    return share_of_one_place(*about, question.n_ranges, question.share, itemsize, limit)


def stays_on_device(arrays: Sequence[DaskArray], questions: Sequence[Question]) -> bool:
    """Return whether chunks that tasks make on a device stay there until one task has answered."""
    if not fit_one_device(arrays):
        return False
    # Counting takes one load, too.
    pairs = zip(arrays, questions, strict=True)
    return all(share_of_one_task(*each) and not takes_counts(*each) for each in pairs)


def _copied_bytes(x: DaskArray, question: Question) -> float:
    n_bytes: float = question.root_bytes(selection_dtype(x.dtype))[1]
    return n_bytes * float(x.size)


def _at_root(x: DaskArray, question: Question, narrowing: Narrowing | None) -> tuple[int, int, int]:
    """Return the bytes of partial results in one task, of its peak, and of what waits on workers.

    They are -1, 0 and 0 if unknown.
    """
    if math.isnan(x.size):
        return -1, 0, 0
    for_pivot, for_candidate = question.root_bytes(selection_dtype(x.dtype))
    if narrowing is not None:
        found = np.array([narrowing.gathered, narrowing.work, narrowing.waiting])
        gathered, work, waiting = (found * for_pivot // PIVOT_BYTES).tolist()
        return gathered, work, waiting
    pivots = 0
    for alike in itertools.product(*(Counter(sizes).items() for sizes in x.chunks)):
        size, n = math.prod(size for size, _ in alike), math.prod(n for _, n in alike)
        pivots += n * pivot_count(size, question.n_slots * question.share)
    candidates = pivots * -(-question.n_answers // question.share)
    work = PIVOT_WORK * for_pivot // PIVOT_BYTES * pivots
    gathered = max(for_pivot * pivots, for_candidate * candidates)
    return gathered, max(work, CANDIDATE_COPIES * for_candidate * candidates), 0


def _for_root(
    x: DaskArray, question: Question, among: int = 1
) -> tuple[tuple[int, int], int, float]:
    """Return the number and size of chunks, `root-limit` and the bytes of a candidate.

    Bytes are in units of those of a pivot: of pivots with more columns so many fewer fit.
    """
    for_pivot, for_candidate = question.root_bytes(selection_dtype(x.dtype))
    limit = settings.n_bytes("root-limit") * PIVOT_BYTES // (for_pivot * among)
    size = x.size / max(x.npartitions, 1)
    if math.isnan(size):
        size = settings.chunk_bytes() / selection_dtype(x.dtype).itemsize
    return (x.npartitions, math.ceil(size)), limit, for_candidate * PIVOT_BYTES / for_pivot


def narrowing_of(x: DaskArray, question: Question, *, among: int = 1) -> Narrowing | None:
    """Return how the cuts of all chunks are narrowed before one task takes them; None if they fit.

    The limit is shared by `among` arrays that are loaded together, because one task takes the cuts
    of all. Their candidates do not wait: with a tree for each array, dask would process all chunks
    for the first array before it starts with the next.

    Chunks of unknown sizes are assumed to have dask's configured ``array.chunk-size``.

    Raises
    ------
    ValueError
        If `root-limit` is set to what is no size.
    """
    about, limit, itemsize = _for_root(x, question, among)
    n_slots = question.n_slots
    share = n_slots * question.share
    if fit_one_place(*about, share, limit):
        return None  # and a question may have a million ranges to count
    found = plan_narrowing(
        *about,
        question.n_ranges,
        share,
        itemsize,
        limit,
        can_wait=among == 1 and question.narrows_candidates,
        halves=1 + question.weighs,
        can_divide=among == 1 and question.divides,
    )
    if found is None or n_slots == 1:
        return found
    # Of each slot a part of the pivots.
    coarse = max(found.coarse // n_slots, LEAST_OF_GROUP)
    return replace(found, share=max(found.share // n_slots, 1), coarse=coarse)


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
    advice : str
        Text that says how to get one load instead of several.
    scratch : Scratch or None
        How columns are written to disk; None if they are not.
    disk_bytes : int
        Most bytes on disk at any time.
    """

    slabs: int = 1
    parts: tuple[tuple[int, int], ...] = ()
    passes: Passes = Passes((), 2)
    n_roots: int = 0
    narrowing: Narrowing | None = None
    shares: int = 1
    advice: str = field(default="", compare=False)
    scratch: Scratch | None = None
    disk_bytes: int = 0

    def __str__(self) -> str:
        return f"{super().__str__()}{_clause(self._on_disk)}{_clause(self.advice)}"

    @property
    def _on_disk(self) -> str:
        if self.scratch is None:
            return ""
        place = self.scratch.where
        told = "moved between workers, on their disks" if place is None else f"on disk, in {place}"
        return f"{format_bytes(self.disk_bytes)} {told}"

    @property
    def rows(self) -> dict[str, str]:
        more = {"written once": self._on_disk, "advice": self.advice}
        return super().rows | {name: told for name, told in more.items() if told}


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
    def takes_passes(self) -> bool:
        """True if columns can be read in passes: by groups, only those with steps of their own."""
        is_grouped = isinstance(self.question, GroupedLanes)
        return self.question.slots.are_known and not (is_grouped and self.question.composes)

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
    n_chunks = len(lanes.chunks)
    if is_one_lane:
        counted = _plan_counts_of_groups(lanes)
        if counted is not None:
            return counted
    if isinstance(question, GroupedElements) and n_chunks > 1:
        return _plan_groups(lanes, question)
    if n_chunks == 1:
        return LanePlan("lanes", 1, known_bytes(lanes.column_bytes), 0)
    parts = [(i, i + 1) for i in range(n_chunks)]
    if not is_one_lane:
        counted = _plan_counts(lanes, parts, lanes.chunks, lanes.n_lanes, COUNTS_SHARE)
        if counted is not None:
            return counted
    limits = [column_limit()]
    if is_one_lane and lanes.takes_passes:
        limits.insert(0, one_lane_limit(lanes.x))  # which may be too little for many groups
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
    is_known_larger = lanes.column_bytes > limit
    if not is_known_larger or _is_taken_in_place(lanes):
        return LanePlan("column", 1, known_bytes(lanes.column_bytes), 0, shares=_shares(lanes))
    limit = max(limit, max(chunks) * lanes.n_lanes * lanes.itemsize)
    # Of data in memory, loads cost nothing, and slabs look at each element once.
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
            loads = question.loads_in_passes(plan.loads) if plan.parts else 1
            least = min(least, slabs * loads)
            found = replace(plan, slabs=slabs, loads=slabs * plan.loads)
            # Elements that are looked at, and tasks, which are one for each load of each chunk.
            looks = loads * question.pass_time * question.slots.pass_factor if plan.parts else 1.0
            looks += slabs * loads * TASK * len(chunks) / (sum(chunks) * lanes.n_lanes)
            plans.append((slabs * loads, looks, found))
        if slabs >= MORE_LOADS * least and not x.is_in_memory:
            break  # more slabs are more loads
    loads, _, best = (0, 0.0, None)
    if plans:
        loads, _, best = (
            min(plans, key=itemgetter(1)) if x.is_in_memory else nearest_to_the_best(plans)
        )
    if best is None or loads >= least_loads():
        written = _plan_scratch(lanes, limit, loads)
        if written is not None:
            return written
        if best is not None:
            best = replace(best, advice=_room_advice(lanes))
    if best is None:
        return None
    advice = _advice(lanes) + _clause(best.advice) + _clause(_advice_on_labels(lanes))
    return replace(best, advice=advice.removeprefix("; "))


# Bytes of a tile, at most: of a year of hourly maps of (721, 1440) float32, five rows of each map.
TILE = 1 << 28

# Bytes that a task takes for each answer about a lane, beside its elements: five-day windows of
# three years of days are 365 answers about 1,095 elements, in float64, of which some wait.
ANSWER_BYTES = 48


def _plan_scratch(lanes: _Lanes, limit: int, loads: int) -> LanePlan | None:
    """Plan to write columns to disk, if passes would take `loads` loads, or cannot answer (0).

    Return None if the question does not allow it, or if there is no space.
    """
    x, lane_bytes = lanes.x, sum(lanes.chunks) * lanes.itemsize
    found, disk_bytes = _disk(lanes), Carried.by(x, lanes.axes).n_bytes(x)
    if found is None or lane_bytes > limit or disk_bytes > found.room:
        return None
    # Several for each thread, as far as they are worth a task.
    most = min(limit, TILE, max(lanes.column_bytes // COLUMNS, SHARE_BYTES))
    answers = lanes.question.slots.n * lanes.question.n_answers
    tile = tile_of(x, lanes.axes, most // (lane_bytes + ANSWER_BYTES * answers))
    tile_lanes = math.prod(size for axis, size in enumerate(tile) if axis not in lanes.axes)
    task_bytes = max(tile_lanes * lane_bytes, max(lanes.chunks) * lanes.n_lanes * lanes.itemsize)
    return LanePlan(
        found.plan,
        1,
        task_bytes,
        0,
        scratch=Scratch(tile, most, found.where),
        disk_bytes=int(disk_bytes),
        why=f"passes would take {loads}" if loads else "passes find no answer",
    )


def _disk(lanes: _Lanes) -> Disk | None:
    """Find the disk that columns may be written to; None if they may not."""
    is_written = lanes.may_write and not (lanes.is_one_lane or lanes.x.is_in_memory)
    return disk() if is_written else None


def _room_advice(lanes: _Lanes) -> str:
    """Return advice on how to get columns written to disk, if only space is missing."""
    found, n = _disk(lanes), int(Carried.by(lanes.x, lanes.axes).n_bytes(lanes.x))
    if found is None or n <= found.room:
        return ""
    return f"or set scratch-limit to {format_bytes(n)}, with as much room in {found.told}"


def with_labels(
    plan: AnyPlan, x: DaskArray, question: LaneQuestion, labels: np.dtype[Any]
) -> AnyPlan:
    """Add the bytes of labels, one for each element, to what a plan reports.

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
    may_copy |= question.further is not None and sum(lanes.chunks) * itemsize > BOXED_IN_PLACE
    is_adjacent = axes[-1] - axes[0] < len(axes)
    is_few = len(lanes.chunks) <= MOST_STACKED
    is_in_place = is_plain and not may_copy and is_adjacent and is_few
    return is_in_place and (x.is_in_process or fit_one_device([x]))


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
    gathered = work = question.root_bytes_of(sizes, itemsize)
    n_roots, waiting = max(-(-gathered // max(limit, 1)), 1), 0
    narrowing: Narrowing | None
    in_tree = plan_group_narrowing(
        np.array(sizes), question.slots.n, max(question.n_brackets, 1), itemsize, limit
    )
    if in_tree.stretches < n_roots:
        narrowing = in_tree
        n_roots, waiting = narrowing.stretches, narrowing.waiting
        gathered, work = narrowing.gathered * n_roots, narrowing.work * n_roots
    else:
        narrowing, n_roots = None, min(n_roots, question.slots.n)
    loads = question.loads_in_passes(2)
    why = why_groups_twice(Reads(x), len(parts), n_roots, keeps=question.keeps)
    return LanePlan(
        "groups",
        loads,
        task_bytes,
        gathered // n_roots,
        1,
        tuple(parts),
        n_roots=n_roots,
        narrowing=narrowing,
        cached_bytes=0 if why else limits().n_bytes,
        root_bytes=work // n_roots,
        waiting_bytes=waiting,
        why=why,
    )


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

# Those of groups. Where of 6e7 uint16 all values occur alike, and so many counts take as many bytes
# as what they are of, counting took 1.46 s and two loads 2.30; of a fifth as many 0.36 and 1.09.
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
    if not question.counts_values or not math.isfinite(question.slots.at_most):
        return None
    itemsize, total = x.element_bytes(), sum(chunks)
    of_report = question.slots.at_most * counts_bytes(x.dtype)
    worth = COUNTED_ON_DEVICE if x.is_on_device else COUNTED_AT_ONCE
    most = min(max(4 * of_report / GROUP_COUNTS_SHARE, worth), one_lane_limit(x))
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
    if not (question.counts_values and is_countable(x.dtype)):
        return None
    itemsize, n_counted = x.element_bytes(), n_lanes * question.slots.at_most
    of_report = n_counted * counts_bytes(x.dtype)
    gathered = min(len(parts), TALLIES_EVERY) * of_report
    part_bytes = n_lanes * itemsize * sum(sizes) / len(parts)
    is_little = of_report <= share * part_bytes  # not if that is not known
    if not (is_little and gathered <= settings.n_bytes("root-limit")):
        return None
    task_bytes = max(sizes) * n_lanes * itemsize
    passes = Passes((), TALLIES_EVERY, int(gathered))
    about = task_bytes, int(gathered), 1, tuple(parts), passes
    return LanePlan("counts", 1, *about, why=COUNTED)


def _plan_tails(lanes: _Lanes, limit: int) -> LanePlan | None:
    """Plan to keep the tails of lanes, if those of all waiting parts fit the limit."""
    question, chunks, n_lanes = lanes.question, lanes.chunks, lanes.n_lanes
    tails = question.tails(sum(chunks))
    if tails is None:
        return None
    row_bytes = n_lanes * lanes.itemsize
    parts = tuple(runs(chunks, limit // row_bytes))
    largest = max(sum(chunks[start:stop]) for start, stop in parts)
    dtype = selection_dtype(question.task_dtype(lanes.x.dtype))
    of_lane = tails.n_kept * dtype.itemsize + question.slots.n * TWO_COUNTS
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
    is_of_use = not lanes.question.slots.are_known and not lanes.question.composes
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
    """Return the number of tasks among which to divide the lanes of a column."""
    x, chunk_bytes = lanes.x, lanes.column_bytes / len(lanes.chunks)
    if x.is_on_device or not chunk_bytes >= SHARE_BYTES:  # or not known
        return 1
    n_columns = math.prod(x.numblocks[axis] for axis in lanes.other_axes)
    most = min(COLUMNS // n_columns, chunk_bytes // SHARE_BYTES)
    return int(max(min(most, max(x.chunks[slab_axis(x, lanes.axes)])), 1))


def _plan_slab(lanes: _Lanes, n_lanes: int, limit: int) -> LanePlan | None:
    """Plan `n_lanes` of the lanes of each chunk; return None if no plan fits."""
    question, chunks, row_bytes = lanes.question, lanes.chunks, n_lanes * lanes.itemsize
    if sum(chunks) * row_bytes <= limit:
        return LanePlan("column", 1, sum(chunks) * row_bytes, 0)
    if not lanes.takes_passes:
        return None
    n_each = n_lanes * question.slots.n
    room, n_brackets = limit // n_each, max(question.n_brackets, 1)
    partial_result = question.partial_bytes(lanes.x.dtype)

    def plan(parts: tuple[tuple[int, int], ...], one_pass: bool) -> tuple[float, LanePlan] | None:
        whole = [sum(chunks[start:stop]) for start, stop in parts]
        sizes = [question.slots.elements(n) for n in whole]
        passes = (plan_one_pass if one_pass else plan_passes)(
            sizes, n_brackets, room, **partial_result
        )
        if passes is None:
            return None
        loads, gathered = len(passes.widths) + 1, passes.gathered * n_each
        found = LanePlan("passes", loads, max(whole) * row_bytes, gathered, 1, parts, passes)
        return pass_cost(sizes, n_each, partial_result["itemsize"], passes), found

    every = [tuple(runs(chunks, (limit >> i) // row_bytes)) for i in range(PART_SIZES)]
    found = [each for parts in every if (each := plan(parts, one_pass=True))]
    if found:
        return min(found, key=itemgetter(0))[1]
    largest = plan(every[0], one_pass=False)
    return largest and largest[1]


PART_SIZES = 6  # of parts that are tried: the limit, half of it, a quarter, ...


def column_limit() -> int:
    """Return the setting `column-limit`, in bytes."""
    return settings.n_bytes("column-limit")


def one_lane_limit(x: Source) -> int:
    """Return the most bytes that one task takes if there is a single lane."""
    limit = column_limit()
    # A device is as fast with all of it: weighted quartiles of 2,000 groups of 2^24 float32 took
    # 1.1 s in one task, and 3.1 s in passes.
    return limit if x.is_on_device else min(limit, ONE_TASK)
