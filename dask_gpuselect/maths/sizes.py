"""Policies for the number of pivots and for passes; they know neither dask nor GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# Up to so many quantiles get as many pivots as one: their brackets are few beside the pivots, and
# the cuts of an array then serve all such calls by key.
FEW_QUANTILES = 8


# In the aggregating task a pivot takes `PIVOT_WORK` bytes, and a candidate 24. With as many pivots
# as candidates, the pivots would take ten times the bytes of the candidates. So there is a pivot
# for every fourth rank: with 1,001 quantiles of 1,000 chunks of 10,000 float64 the largest tasks of
# both loads take 242 and 239 MB, and the process grows by 298 MB instead of 395.
RANKS_OF_PIVOT = 4


def share_of_ranks(n_ranks: int) -> int:
    """Compute the factor by which a number of ranks multiplies the elements that pivots represent.

    With it, pivots and candidates take about as many bytes where they come together.
    """
    return max(1, n_ranks // RANKS_OF_PIVOT)


def pivot_share(n_q: int) -> int:
    """Compute the same factor for `n_q` quantiles: 1 if they are few."""
    return 1 if n_q <= FEW_QUANTILES else share_of_ranks(n_q)


LEAST_PIVOTS = 16


def pivot_count(n: int, share: int = 1) -> int:
    """Choose the number of pivots of a chunk of `n` elements: about sqrt(n * share).

    A chunk sends its pivots in load 1 and, for each quantile, about ``n / pivots`` candidates in
    load 2: the sum is least where both are the square root (Munro & Paterson 1980 prove that two
    passes need that much). At least `LEAST_PIVOTS`, so that small chunks are worth their task.
    """
    return min(n, max(LEAST_PIVOTS, math.isqrt(n * share)))


# --- Cuts of very many chunks ---------------------------------------------------------------------

# Peak bytes of the aggregating task for each pivot: the pivot's own, as many of the merged copy,
# and those of `envelope.Envelope`. At most 123 were measured for quantiles, box plots, `mad` and
# groups, and 134 where a merge takes what others hand on. The rest is for Python.
PIVOT_BYTES, PIVOT_WORK = 24, 160
# Kernels round `pivot_count` down to a power of two, so they make at least half as many.
FEWER_PIVOTS = 2
# Candidates as they come, the joined array, and the copy that is partitioned.
CANDIDATE_COPIES = 3
# A group of cuts may take one byte for so many bytes of the limit. `dask.order` takes time for each
# group and chunk: with 60,000 chunks 10 s for 2,400 groups, and 4.4 for 150.
GROUP_SHARE = 4
LEAST_GROUPS, MOST_GROUPS = 128, 4096
# A group of cuts is merged while all of them are in memory, so fewer at a time than separate parts.
IN_GROUP_EVERY = 16
# A group of candidates is in memory twice: as they come, and in order.
WAITING_COPIES = 2
# Number of merged parts that come to one task, and least number of pivots that they hand on. Each
# merge makes a bracket wider by one in `LEAST_COARSE` of all elements.
COARSE_EVERY, LEAST_COARSE = 32, 64
# Largest number of times that candidates are narrowed where they wait. At the default limit, each
# time leaves about a thousandth of a quantile's candidates.
MOST_ROUNDS = 6
# A tree has so many times as many pivots as ranks, if these can be divided among trees.
RANKS_SHARE = 256


@dataclass(frozen=True)
class Narrowing:
    """Plan that narrows the cuts of very many chunks before they come to one task.

    Parameters
    ----------
    share : int
        Factor for `pivot_count`: more pivots leave fewer candidates.
    groups : int
        Largest number of groups in which the cuts wait.
    gathered : int
        Approximate bytes of the pivots or candidates that come to one task.
    work : int
        Approximate peak bytes of that task.
    waiting : int
        Approximate bytes of the cuts and candidates that wait on all workers together.
    coarse : int
        Number of pivots that a merge hands on, of cuts and of candidates.
    rounds : int
        Number of times that candidates are narrowed where they wait, before they come.
    stretches : int
        Number of trees among which the ranges, or groups, are divided.
    lots : int
        Largest number of lots in which the cuts of groups come together, if there are several
        trees.
    """

    share: int
    groups: int
    gathered: int
    work: int = 0
    waiting: int = 0
    coarse: int = 0
    rounds: int = 0
    stretches: int = 1
    lots: int = 0


def fit_one_place(n_chunks: int, size: int, share: int, limit: int) -> bool:
    """Return whether one task may prove brackets with all pivots of all chunks.

    Parameters are as in `plan_narrowing`.
    """
    return PIVOT_WORK * n_chunks * pivot_count(size, share) <= limit


def share_of_one_place(
    n_chunks: int, size: int, n_ranges: int, share: int, itemsize: float, limit: int
) -> int:
    """Choose the largest share, up to `share`, whose pivots of all chunks fit one task.

    0 if those of one quantile or the candidates do not fit. Parameters are as in `plan_narrowing`.
    """
    if not fit_one_place(n_chunks, size, 1, limit):
        return 0
    n_pivots = limit // (PIVOT_WORK * max(n_chunks, 1))
    share = min(share, max(n_pivots**2 // max(size, 1), 1))
    candidates = n_ranges * n_chunks * (size // max(pivot_count(size, share), 1) + 1)
    return share if candidates * itemsize <= limit else 0


def plan_narrowing(
    n_chunks: int,
    size: int,
    n_ranges: int,
    share: int,
    itemsize: float,
    limit: int,
    *,
    is_known_large: bool = False,
    halves: int = 1,
    can_divide: bool = False,
) -> Narrowing | None:
    """Plan how to narrow the cuts of chunks of about `size` elements.

    Parameters
    ----------
    n_chunks : int
        Number of chunks.
    size : int
        Approximate number of elements of a chunk.
    n_ranges : int
        Number of ranges of values in which the pivots lie that matter; 0 if all of them may matter.
    share : int
        Factor for `pivot_count`, as the question has it.
    itemsize : float
        Bytes of a candidate.
    limit : int
        Largest number of bytes in one task.
    is_known_large : bool
        True if the pivots, or the candidates, are known not to fit one task.
    halves : int
        Number of ways in which the pivots that a merge hands on are spaced evenly: a bracket is
        wider by so many times as much.
    can_divide : bool
        True if each of some stretches of the ranges can have a tree of its own.

    Returns
    -------
    Narrowing or None
        None if the cuts need not be narrowed, or if any of them may matter.
    """
    is_large = is_known_large or not fit_one_place(n_chunks, size, share, limit)
    if not (is_large and n_ranges):
        return None
    limit = max(limit, 1)
    if not can_divide and n_ranges > FEW_QUANTILES:
        share = max(share, n_ranges)  # then about as many bytes of cuts wait as of candidates
    pivots, coarse = pivot_count(size, share), _handed_on(limit, PIVOT_WORK)
    cuts = PIVOT_BYTES * n_chunks * pivots
    of_group = n_chunks * pivots // min(_groups_of(cuts, limit), max(n_chunks, 1))
    merges = merge_levels(-(-of_group // coarse), IN_GROUP_EVERY)
    merges += merge_levels(min(_groups_of(cuts, limit), n_chunks), COARSE_EVERY)
    stretches = -(-n_ranges // max(coarse // RANKS_SHARE, 1)) if can_divide else 1
    about = n_ranges, pivots, coarse * stretches / halves, merges, limit * stretches
    before, rounds, left = _narrowed(itemsize * n_chunks * size, *about)
    left_to_wait, come = before if rounds else 0, math.ceil(left / stretches)
    waiting = max(cuts, left_to_wait)  # the cuts are gone when candidates come
    groups = _groups_of(waiting, limit)
    n_groups = min(groups, max(n_chunks, 1))
    of_group = cuts // n_groups + PIVOT_WORK * IN_GROUP_EVERY * coarse  # beside its own cuts
    of_group = max(of_group, WAITING_COPIES * left_to_wait // n_groups)
    gathered = max(PIVOT_BYTES * COARSE_EVERY * coarse, come)
    work = max(PIVOT_WORK * COARSE_EVERY * coarse, CANDIDATE_COPIES * come, of_group)
    return Narrowing(share, groups, gathered, work, waiting, coarse, rounds, stretches)


def _handed_on(limit: int, work: int) -> int:
    """Choose how many pivots a merge hands on, if the work for each takes so many bytes."""
    return max(limit // (2 * work * COARSE_EVERY), LEAST_COARSE)


def _narrowed(
    n_bytes: float, n_ranges: int, pivots: int, handed_on: float, merges: int, room: int
) -> tuple[int, int, float]:
    """Choose how often the candidates of an array, or of groups, are narrowed.

    Parameters
    ----------
    n_bytes : float
        Bytes of the candidates, if all elements were some.
    n_ranges, pivots : int
        Number of brackets of the array, or of a group, and of its pivots in a chunk.
    handed_on : float
        Number of its pivots that a merge hands on, of those that are evenly spaced in one way.
    merges : int
        Number of levels of merges.
    room : int
        Bytes that there are for the candidates where they come.

    Returns
    -------
    before, rounds, left : int, int, float
        Bytes of the candidates at first, how often they are narrowed, and the bytes that are left.
    """
    in_bracket = 1.09 * FEWER_PIVOTS / pivots + merges / handed_on
    before = left = n_bytes * min(n_ranges * in_bracket, 1)
    narrowing, rounds = handed_on / (n_ranges * (merges + 1)), 0
    while narrowing >= 2 and rounds < MOST_ROUNDS and CANDIDATE_COPIES * left > room:
        rounds, left = rounds + 1, left / narrowing
    return math.ceil(before), rounds, left


def _groups_of(waiting: int, limit: int) -> int:
    """Choose the number of groups among which waiting bytes are divided."""
    return min(max(GROUP_SHARE * waiting // limit, LEAST_GROUPS), MOST_GROUPS)


# --- Cuts of few large groups ---------------------------------------------------------------------

# Additional bytes for each pivot of a group, and for each candidate: the number of its group or
# cell.
GROUP_BYTES = 4
# Least number of pivots of a group that a merge hands on.
LEAST_OF_GROUP = 16
# Number of pivots of each group that are worth a tree; with fewer, groups are better divided among
# several.
ENOUGH_OF_GROUP = 1024
# Largest number of tasks among which groups are divided, and of those with a tree. Each part takes
# a task for each of them, and the time to build the graph grows with the square of their number:
# 512 tasks of 100 parts take 3 s, and as long to order; 128 with a tree and 50 parts take 1.5 s.
MOST_ROOTS, MOST_TREES = 512, 128


def plan_group_narrowing(
    sizes: NDArray[np.int64],
    n_groups: int,
    n_brackets: int,
    itemsize: int,
    limit: int,
    *,
    too_many: float = math.inf,
    pivot: tuple[int, int] = (PIVOT_BYTES, PIVOT_WORK),
    halves: int = 1,
) -> Narrowing | None:
    """Plan how to narrow the cuts of groups of about as many elements each.

    Parameters
    ----------
    sizes : ndarray of int64
        Number of elements of each part.
    n_groups : int
        Number of groups, and so of trees at most; 1 if that is not known.
    n_brackets : int
        Number of brackets of each group.
    itemsize : int
        Bytes of a candidate.
    limit : int
        Largest number of bytes in one task.
    too_many : float
        Number of trees that are too many.
    pivot : tuple of two ints
        Bytes of a pivot as it comes, and of the work for it: see `PIVOT_WORK`.
    halves : int
        As for `plan_narrowing`.

    Returns
    -------
    Narrowing or None
        With a tree for some of the groups in place of a stretch, and at most `MOST_TREES`.
        None if too many trees were needed.
    """
    limit, (pivot_bytes, pivot_work), n_parts = max(limit, 1), pivot, len(sizes)
    coarse = _handed_on(limit, pivot_work)
    n_roots = min(-(-n_groups // max(coarse // ENOUGH_OF_GROUP, 1)), n_groups)
    if n_roots >= too_many:
        return None
    n_roots = min(n_roots, MOST_TREES)
    coarse = max(coarse, LEAST_OF_GROUP * -(-n_groups // n_roots))
    pivots = max(math.isqrt(int(sizes.mean()) * pivot_share(n_brackets) // n_groups), 1)
    merges = merge_levels(n_parts, COARSE_EVERY)
    about = n_brackets, pivots, coarse * n_roots // n_groups / halves, merges, limit * n_roots
    before, rounds, left = _narrowed((itemsize + GROUP_BYTES) * int(sizes.sum()), *about)
    groups, come = _groups_of(before, limit), math.ceil(left / n_roots)
    lots = max(GROUP_SHARE * pivot_bytes * pivots * n_groups * n_parts // limit, LEAST_GROUPS)
    # The candidates of all roots are there twice, as they come and joined, before they are divided.
    of_lot = WAITING_COPIES * before // min(groups, n_parts)
    gathered = max(pivot_bytes * COARSE_EVERY * coarse, come)
    work = max(pivot_work * COARSE_EVERY * coarse, CANDIDATE_COPIES * come, of_lot)
    how = gathered, work, before if rounds else 0, coarse, rounds, n_roots, lots
    return Narrowing(pivot_share(n_brackets), groups, *how)


# A sample of so many elements brackets a rank to within one part in about 110 of all elements. It
# is read and sorted in less than a tenth of the time that one read of 1e8 elements takes.
PILOT_SIZE = 1 << 18

# Elements that a device sorts where it cannot guess; scratch: 50 bytes for each.
MOST_SORTED = 1 << 26

# Half the width of a bracket in standard deviations: one fails once in 150,000 times. The counts
# notice that, and it costs time.
PILOT_SIGMA = 4.5

# Room for candidates, in units of the number that the sample makes likely.
PILOT_ROOM = 1.25


def pilot_room(share: float, n: int) -> int:
    """Choose for how many candidates of n elements to make room, if a sample expects this share."""
    return min(n, math.ceil(PILOT_ROOM * share * n) + PILOT_SIZE)


def pilot_bracket(
    first: NDArray[np.int64], last: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find positions in a sorted random sample between which order statistics of the whole lie.

    They do so nearly certainly.

    Parameters
    ----------
    first, last : ndarray of int64
        Ranks of the sample itself, where the wanted quantiles would be.
    size : int
        Number of elements of the sample.

    Returns
    -------
    lo, hi : ndarray of int64
        From -1, open below, to `size`, open above. The number of sampled elements below a quantile
        q is binomial with standard deviation ``sqrt(size * q * (1 - q))``. Another `PILOT_SIGMA` is
        for the ends, where that distribution is not yet normal.
    """
    share = (first + last + 1) / (2 * size)
    reach = PILOT_SIGMA * (np.sqrt(size * share * (1 - share)) + 1)
    lo = np.maximum(np.floor(first - reach), -1).astype(np.int64)
    hi = np.minimum(np.ceil(last + reach), size).astype(np.int64)
    return lo, hi


def pilot_share(size: int) -> float:
    """Bound the share of all elements in a `pilot_bracket`, by the size of the sample."""
    return min((2 * PILOT_SIGMA * (math.sqrt(size) / 2 + 1) + 3) / max(size, 1), 1)


@dataclass(frozen=True)
class Passes:
    """Plan of the passes that narrow a column of chunks, taken in parts.

    Parameters
    ----------
    widths : tuple of int
        Number of ranks at which the parts are cut in each pass. After these passes, the elements
        that are left are gathered.
    merge_every : int
        Number of cuts that one task merges. For tallies, which lose nothing when they are merged,
        it is always `TALLIES_EVERY`.
    gathered : int
        Largest number of bytes of partial results in one task, for each lane.
    """

    widths: tuple[int, ...]
    merge_every: int
    gathered: int = 0


TWO_COUNTS = 16  # bytes


@dataclass(frozen=True)
class PartialBytes:
    """Bytes of the partial results of passes, for each lane.

    Parameters
    ----------
    itemsize : int
        Bytes of an element.
    pivot : int
        Bytes for each rank of a cut; by default those of an element.
    counts : int
        Bytes of the counts at one end of a bracket.
    """

    itemsize: int
    pivot: int = 0
    counts: int = TWO_COUNTS


def plan_passes(
    sizes: Sequence[int], n_questions: int, room: int, of: PartialBytes
) -> Passes | None:
    """Plan the fewest passes until the elements inside the brackets can be gathered.

    Parameters
    ----------
    sizes : sequence of int
        Number of elements of a lane in each part, none 0.
    n_questions : int
        Number of brackets of a lane.
    room : int
        Largest number of bytes in one task, for each lane.
    of : PartialBytes

    Returns
    -------
    Passes, or None
        None if there is so little room that some pass might not halve the elements inside.
    """
    plans = []
    for merge_every in (max(len(sizes), 2), 32, 8, 4):
        widths = _pass_widths(sizes, n_questions, room, of, merge_every)
        if widths:
            plans.append(Passes(widths, merge_every, room))
    return min(plans, key=lambda plan: len(plan.widths), default=None)


# Cost of a candidate in units of a pivot: it is searched for, copied twice and sorted. Ten chunks
# of 365 float32 a lane take the same time at 27 ranks, which gather least, and at 54. Two parts of
# 1,825 would have room for 1,483 ranks, and take five times as long at those.
CANDIDATE = 4


def plan_one_pass(
    sizes: Sequence[int],
    n_questions: int,
    room: int,
    of: PartialBytes,
    *,
    candidate: float = CANDIDATE,
    few: int = FEW_QUANTILES,
) -> Passes | None:
    """Plan one pass at as few ranks as cost least, if there is ample room.

    Parameters are as in `plan_passes`, and the cost of a candidate in units of a pivot. The plan is
    the same for up to `few` questions, so that those about one array share their cuts.
    """
    n = sum(sizes)
    most = max(n_questions, few)
    share = n_questions if n_questions > few else 1
    width = math.isqrt(int(4 * candidate * share * n) // len(sizes))
    if width < 2:
        return None
    left = 2 * _slack_of_parts(sizes, width)
    cuts = len(sizes) * (width * (of.pivot or of.itemsize) + 2 * of.counts)
    gathered = max(cuts, _tally_bytes(len(sizes), most, of.counts) + most * left * of.itemsize)
    if 2 * left > n or gathered > room:
        return None
    return Passes((width,), max(len(sizes), 2), gathered)


# The same if partial results are sent between workers. Of a part, about half the candidates that
# the bound allows are there, and those of the part where they are merged stay.
SENT_CANDIDATE = 0.5
SENT_COUNT = 2  # bytes of a count where it is sent: see `lane_cuts._sent`


def sent_in_one_pass(sizes: Sequence[int], n_questions: int, itemsize: int, width: int) -> int:
    """Estimate the bytes that are sent for each lane if the largest part is where all are merged.

    There are cuts, the brackets that they prove, counts, and about half the candidates that the
    bound allows.
    """
    cuts = width * itemsize + 4 * SENT_COUNT
    brackets = n_questions * (2 * itemsize + 2 * SENT_COUNT) + 2 * SENT_COUNT
    candidates = _slack_of_parts(sizes, width) * itemsize // len(sizes)
    tally = n_questions * (4 * SENT_COUNT + candidates) + 2 * SENT_COUNT
    return (len(sizes) - 1) * (cuts + brackets + tally)


def pass_cost(sizes: Sequence[int], n_lanes: int, itemsize: int, passes: Passes) -> float:
    """Estimate the cost of a choice of parts in one pass, in nanoseconds an element.

    It is the time to sort the parts, to process pivots and candidates, and to run tasks (0.5 ms).
    """
    n, longest, width = sum(sizes), max(sizes), passes.widths[0]
    sorting = 0.5 * itemsize * math.log2(max(longest / 128, 1))
    partials = 4 * (len(sizes) * width + CANDIDATE * 2 * n / width)
    return sorting + partials / n + 5e5 * len(sizes) / (n * n_lanes)


def _slack_of_parts(sizes: Sequence[int], width: int) -> int:
    """Bound the elements that cuts of parts add on one side of a rank: see `lane_cuts.merge`."""
    return sum(max(-(-(size - 1) // (width - 1)) - 1, 0) for size in sizes)


def _tally_bytes(n_parts: int, n_questions: int, counts: int) -> int:
    """Compute the bytes of the counts of all tallies in one task.

    These are the counts below, before, inside and up to each bracket, and those of the lane.
    """
    n_tallies = min(n_parts, TALLIES_EVERY) * merge_levels(n_parts, TALLIES_EVERY)
    return n_tallies * (2 * n_questions + 1) * counts


TALLIES_EVERY = 4  # number of tallies that one task merges


def most_inside(n: int, width: int, span: int) -> int:
    """Bound the number of elements strictly inside a bracket, by the bound of `lane_cuts.merge`.

    Lanes have at most `n` elements, parts are cut at `width` ranks or more, and a bracket is for
    `span` neighbouring ranks.
    """
    return min(span + 2 * (n // max(width - 1, 1)), n)


def tally_room(
    n: int, n_parts: int, width: int, n_questions: int, span: int, itemsize: int
) -> int | None:
    """Bound the elements inside a bracket as `most_inside` does; None if a table is too large.

    A table is too large if tallies with a row of so many for each bracket would take more bytes in
    one task than the cuts did, which `Passes.gathered` counts.
    """
    room = most_inside(n, width, span)
    tally = n_questions * room * itemsize + (2 * n_questions + 1) * TWO_COUNTS
    cuts = n_parts * (width * itemsize + 2 * TWO_COUNTS)
    return room if waiting_partials(n_parts, TALLIES_EVERY) * tally <= cuts else None


def _pass_widths(
    sizes: Sequence[int], n_questions: int, room: int, of: PartialBytes, merge_every: int
) -> tuple[int, ...] | None:
    levels = merge_levels(len(sizes), merge_every)
    # From each level of the tree as many parts wait as a merge takes; with a single level, all.
    at_once = min(len(sizes), merge_every) * levels
    # Before a merge, the two ends of a bracket are the same element, which is stored once.
    pivot = of.pivot or (of.itemsize if levels == 1 else 2 * of.itemsize)
    tallies = _tally_bytes(len(sizes), n_questions, of.counts)
    if tallies > room:
        return None
    inside, brackets = sum(sizes), 1
    widths: list[int] = []
    while not widths or tallies + n_questions * inside * of.itemsize > room:
        for_each = (room // at_once - of.counts) // brackets
        width = (for_each - of.counts) // pivot
        if width < 2:
            return None
        # The bound that `lane_cuts.merge` states, for the parts and for all merges but the last.
        slack = levels * (inside // (width - 1))
        if not widths and levels == 1:
            slack = _slack_of_parts(sizes, width)
        if 4 * slack > inside:
            return None
        widths.append(width)
        inside, brackets = 2 * slack, n_questions
    return tuple(widths)


# --- Partial results of one size, which are merged as they come ----------------------------------


def merge_levels(n_parts: int, every: int) -> int:
    """Count the levels of a tree that merges all parts into one, `every` at a time."""
    levels = 1
    while n_parts > every:
        n_parts = -(-n_parts // every)
        levels += 1
    return levels


def waiting_partials(n_parts: int, every: int) -> int:
    """Bound how many partial results wait to be merged, if parts are taken in their order.

    From each level all but one of those that are merged together wait, and the last.
    """
    return min(n_parts, (every - 1) * merge_levels(n_parts, every) + 1)


def plan_merging(n_parts: int, most: int) -> int | None:
    """Choose how many partial results to merge at a time, so that at most `most` of them wait.

    The more are merged at a time, the less often each one is merged. None if that is impossible.
    """
    some = (every for every in range(n_parts, 1, -1) if waiting_partials(n_parts, every) <= most)
    return next(some, None)


# Time of reading elements beside that of loading, which is slow, as a rule, for what does not fit
# into memory.
ELEMENTS_TIME = 0.75

# At most so many times the fewest loads are taken if elements are then read less often.
MORE_LOADS = 2

T = TypeVar("T")


def nearest_to_the_best(plans: Sequence[tuple[int, float, T]]) -> tuple[int, float, T]:
    """Return the plan whose worst slow-down against other plans is smallest.

    A plan comes with its loads and its time spent on elements. The slow-down is taken for both
    extremes: loads take all the time, or none. Ties go to fewer loads, and then to less time.
    """
    least = min(loads for loads, *_ in plans)
    some = [plan for plan in plans if plan[0] <= MORE_LOADS * least]
    least_work = min(plan[1] for plan in some)

    def how_far(plan: tuple[int, float, T]) -> tuple[float, int, float]:
        return max(plan[0] / least, ELEMENTS_TIME * plan[1] / least_work), plan[0], plan[1]

    return min(some, key=how_far)
