"""Graph of a strategy: rounds of measurements, whose number is fixed in advance.

::

    source ──> opening ──merge──> progress ─┬─> round 1 ──merge──> progress ─┬─> ... ─┐
       │                                    │                                │        │
       └──────── read again only if a strategy still asks for something ─────┘        │
                                                                                      │
                       answer <── two loads <── answer or None <──merge── candidates ─┘

A dask graph has no branches. So the tasks of a round contain the tasks that read their chunk, and
read it only if the progress so far requires it. The elements that a strategy leaves are gathered if
they are few. Otherwise the two loads of `loads` find the answer, which read nothing in the other
case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs, settings
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.graphs import each_chunk, reduced
from dask_gpuselect.engine.loads import answer_unless, ask_together
from dask_gpuselect.engine.marks import NO_MARKS, KnownChunks, Marks, changed, marks_of
from dask_gpuselect.engine.partials import Resolved
from dask_gpuselect.engine.plans import ElementPlan, Plan, choose, plan_rest
from dask_gpuselect.engine.questions import ArrayQuestion, ElementQuestion
from dask_gpuselect.engine.reads import Reads, each_if_needed
from dask_gpuselect.engine.search import Selected, brackets_of, pairs_of
from dask_gpuselect.engine.source import DaskArray, Source, private_copy
from dask_gpuselect.maths.cuts import Tally, merge, merge_all
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.keys import from_keys, selection_dtype
from dask_gpuselect.maths.sizes import CANDIDATE_COPIES
from dask_gpuselect.strategies.known import Known, Reply, Strategy, contradiction
from dask_gpuselect.strategies.probes import COPY, Draw, Extent, Measure, ProbeResult
from dask_gpuselect.strategies.spaces import VALUE

# Most elements that are gathered for each wanted pair: see `_most_gathered`. Two loads gather about
# the square root.
GATHERED = 4
ALWAYS_GATHERED = 1 << 16


@dataclass(frozen=True)
class RankSearch:
    """One pair of ranks: the replies that the strategy got, and its next probe."""

    replies: tuple[Reply, ...]
    probe: Measure | None

    @property
    def known(self) -> Known:
        """The known facts, which include those of all replies."""
        return self.replies[-1][0]


@dataclass(frozen=True)
class Progress:
    """The progress of a strategy.

    Parameters
    ----------
    n_valid, n_missing : int
        Numbers of valid and of missing elements in all chunks.
    wanted : tuple of Wanted
        One search for each pair of ranks.
    elements : dict
        Elements that are found, by their ranks.
    marks : ndarray of uint64
        Fingerprints of all chunks, as the opening has read them; empty for chunks in memory, which
        do not change.
    numblocks : tuple of int
        Shape of the grid of chunks.
    room : int
        Most elements that may be gathered in all.
    """

    n_valid: int
    n_missing: int
    wanted: tuple[RankSearch, ...] = ()
    elements: dict[int, Any] = field(default_factory=dict)
    marks: Marks = field(default_factory=lambda: NO_MARKS)
    numblocks: tuple[int, ...] = ()
    room: int = int(np.iinfo(np.int64).max)

    @property
    def probes(self) -> list[Measure]:
        """The distinct probes to measure next."""
        return list(dict.fromkeys(each.probe for each in self.wanted if each.probe is not None))

    def same(self, chunk: Any, place: tuple[int, ...]) -> Any:
        """Return the chunk at a place after a check that the opening has read the same chunk."""
        if len(self.marks):
            known = self.marks[np.ravel_multi_index(tuple(map(int, place)), self.numblocks)]
            if known != marks_of([chunk], ordered=False)[0]:
                raise changed(place)
        return chunk

    @property
    def gathered(self) -> list[Known]:
        """The brackets to gather: those that contain few enough elements.

        It includes brackets whose element follows from two loads together. A last load counts that
        element, so that the answer is right even if the data have changed in between.
        """
        unproven = [each.known for each in self.wanted if not each.known.is_proven]
        most = _most_gathered(math.prod(self.numblocks), self.n_valid)
        most = min(most, self.room // max(len(unproven), 1))
        return [known for known in unproven if known.is_settled or known.inside <= most]


def plan_rounds(
    x: DaskArray, question: ElementQuestion, strategy: Strategy, rest: ElementPlan
) -> Plan:
    """Plan a question about all elements of a dask array, for a strategy.

    Loads: at most `strategy.rounds`, one more to count if it has no opening, one to gather what is
    left, and those of `rest`, the plan of the default engine, if that is too much. Chunks in memory
    are read in place.
    """
    return Plan(
        strategy.name,
        _n_rounds(strategy) + 2 + rest.loads,
        rest.task_bytes,
        max(rest.gathered_bytes, _sent_bytes(x, question.n_ranges, strategy)),
        root_bytes=rest.root_bytes,
        waiting_bytes=rest.waiting_bytes,
        ends_early=True,
    )


def _n_rounds(strategy: Strategy) -> int:
    """Return the number of rounds after the opening."""
    return strategy.rounds - (strategy.opening is not None)


def _room(x: DaskArray) -> int:
    """Return the most elements that may be gathered in all."""
    return settings.n_bytes("root-limit") // (CANDIDATE_COPIES * int(x.dtype.itemsize))


def _sent_bytes(x: DaskArray, n_pairs: int, strategy: Strategy) -> int:
    """Bound the bytes of the replies of a strategy in one task, and of what it leaves to gather.

    -1 if chunk sizes are unknown.
    """
    if math.isnan(x.size):
        return -1
    left = min(n_pairs * _most_gathered(x.npartitions, x.size), _room(x), x.size)
    return int(max(_reply_bytes(x, n_pairs, strategy), left * selection_dtype(x.dtype).itemsize))


def _reply_bytes(x: DaskArray, n_pairs: int, strategy: Strategy) -> int:
    """Bound the bytes of the replies in one task, which has the counts of the last load as well."""
    return n_pairs * strategy.reply_bytes(graphs.most_merged(x), x.size)


def _most_gathered(n_chunks: int, size: int) -> int:
    """Return the largest number of elements that are gathered for each wanted pair."""
    return ALWAYS_GATHERED + GATHERED * math.isqrt(n_chunks * size)


def ask_rounds(
    x: DaskArray, question: ElementQuestion, strategy: Strategy, label: str, form: Form
) -> DaskArray:
    """Answer a question about all elements of a dask array lazily, with a strategy.

    Without it, if its replies about so many ranks may exceed `root-limit` in one task.

    Parameters
    ----------
    x : dask array
        Chunks of any number and size, known or not, NumPy or CuPy.
    question : ElementQuestion
        What to find.
    strategy : Strategy
        Proposes the probes.
    label : str
        Prefix of the names of the layers.
    form : Form
        Form of the answer.
    """
    if _reply_bytes(x, question.n_ranges, strategy) > settings.n_bytes("root-limit"):
        return ask_together([ArrayQuestion(x, question, form, label)])[0]
    rest = plan_rest(x, question)
    plan = choose(plan_rounds(x, question, strategy, rest))
    opening = strategy.opening or Extent(VALUE)
    reads, label = Reads(x), f"{label}-{plan.name}"
    first = private_copy(x, f"load 1 of {x.name}")
    how: dict[str, Any] = {"probe": opening, "is_marked": not Source.of(x).is_in_memory}
    opened = each_chunk(_opening, f"{label}-opening", [first], dtype=x.dtype, **how)
    how = {"question": question, "strategy": strategy, "opening": opening, "dtype": x.dtype}
    how |= {"numblocks": x.numblocks, "room": _room(x)}
    progress = reduced(
        opened, partial(KnownChunks.merge, _merge_results), _opened, f"{label}-0", **how
    )
    again = partial(each_if_needed, dtype=x.dtype)
    for turn in range(1, _n_rounds(strategy) + 1):
        about = f"{label}-round{turn}", reads, [progress], attrgetter("probes")
        how = {"progress": progress, "strategy": strategy}
        measured = again(_measured, *about)
        progress = reduced(measured, _merge_results, _advanced, f"{label}-{turn}", **how)
    about = f"{label}-candidates", reads, [progress], attrgetter("gathered")
    how = {"progress": progress, "strategy": strategy, "question": question}
    settled = reduced(again(_gathered, *about), merge_all, _resolved, f"{label}-resolved", **how)
    return answer_unless(ArrayQuestion(x, question, form, label), rest, settled)


def _opening(chunk: Any, *, dtype: np.dtype[Any], probe: Measure, is_marked: bool) -> KnownChunks:
    counts = kernels.answer_probe(chunk, dtype, probe)
    return KnownChunks([counts], marks_of([chunk], ordered=False) if is_marked else NO_MARKS)


def _merge_results(parts: list[list[ProbeResult] | None]) -> list[ProbeResult] | None:
    """Merge the replies of all chunks to each probe; return None if there was no probe."""
    some = [part for part in parts if part is not None]
    return [merge(same) for same in zip(*some, strict=True)] if some else None


def _opened(
    parts: list[KnownChunks],
    *,
    question: ElementQuestion,
    strategy: Strategy,
    opening: Measure,
    dtype: np.dtype[Any],
    numblocks: tuple[int, ...],
    room: int,
) -> Progress:
    merged = KnownChunks.merge(_merge_results, parts)
    (opened,) = merged.value
    wanted = []
    for first, last in pairs_of(*question.ranks(opened.n_valid)):
        known = Known.at_first(first, last, opened.n_valid, selection_dtype(dtype))
        known = known.updated(opening, opened)
        replies: tuple[Reply, ...] = ((known, opened if strategy.opening else None),)
        wanted.append(RankSearch(replies, _next_probe(strategy, replies)))
    n = opened.n_valid, opened.n_missing
    return _settled(Progress(*n, tuple(wanted), {}, merged.marks, numblocks, room))


def _next_probe(strategy: Strategy, replies: tuple[Reply, ...]) -> Measure | None:
    """Return the next probe of the strategy.

    The strategy's generator is run again from its start, because a generator cannot be pickled.
    """
    known = replies[-1][0]
    if known.is_settled or known.inside <= strategy.sort_below:
        return None
    known, opened = replies[0]
    search = strategy.search(known, opened)
    try:
        probe = next(search)
        for each in [*replies[1:], None]:
            while probe == COPY:  # chunks are not copied
                probe = search.send((known, None))
            if each is not None:
                probe, known = search.send(each), each[0]
    except StopIteration:
        return None
    assert probe != COPY
    return probe


def _measured(
    chunk: Any, progress: Progress, place: Any, *, dtype: np.dtype[Any]
) -> list[ProbeResult]:
    chunk = progress.same(chunk, place)
    share = math.prod(np.shape(chunk)) / max(progress.n_valid + progress.n_missing, 1)
    return [kernels.answer_probe(chunk, dtype, _for_share(each, share)) for each in progress.probes]


def _for_share(probe: Measure, share: float) -> Measure:
    """Adapt a probe to a chunk with that share of all elements: a sample is reduced to its part."""
    return replace(probe, size=math.ceil(share * probe.size)) if isinstance(probe, Draw) else probe


def _advanced(
    parts: list[list[ProbeResult] | None], *, progress: Progress, strategy: Strategy
) -> Progress:
    measured = _merge_results(parts)
    if measured is None:
        return progress
    by_probe = dict(zip(progress.probes, measured, strict=True))
    wanted = tuple(_continued(each, by_probe, strategy) for each in progress.wanted)
    return _settled(replace(progress, wanted=wanted))


def _continued(
    each: RankSearch, results: dict[Measure, ProbeResult], strategy: Strategy
) -> RankSearch:
    if each.probe is None:
        return each
    replies = (*each.replies, each.known.replied(each.probe, results[each.probe]))
    return RankSearch(replies, _next_probe(strategy, replies))


def _settled(progress: Progress) -> Progress:
    """Add the elements of pairs that are found, and proven by one load, to `Progress.elements`."""
    elements = dict(progress.elements)
    for each in progress.wanted:
        known = each.known
        if known.is_proven and known.lower is not None and known.upper is not None:
            keys = np.array([known.lower, known.upper], np.uint64)
            elements |= zip((known.first, known.last), from_keys(keys, known.dtype), strict=True)
    return replace(progress, elements=elements)


# --- What is left: gathered, or found by the default engine --------------------------------------


def _gathered(chunk: Any, progress: Progress, place: Any, *, dtype: np.dtype[Any]) -> Tally:
    wanted = progress.gathered
    most = sum(known.inside for known in wanted if not known.is_settled)
    tally = kernels.tally(progress.same(chunk, place), dtype, brackets_of(wanted), most)
    if tally is None:
        raise contradiction()
    return tally


def _resolved(
    parts: list[Tally | None], *, progress: Progress, question: ElementQuestion, strategy: Strategy
) -> Resolved | None:
    """Resolve a question from the elements of a strategy; None if any of them is missing."""
    elements, tally, n = progress.elements, merge_all(parts), (progress.n_valid, progress.n_missing)
    if tally is not None:
        if tally.n_valid != progress.n_valid:
            raise contradiction()
        tally = replace(tally, candidates=kernels.ordered(tally.candidates, strategy))
        ranks = np.unique([[known.first, known.last] for known in progress.gathered])
        selected = order_statistics(brackets_of(progress.gathered), tally, ranks)
        elements = elements | dict(zip(ranks.tolist(), selected, strict=True))
    wanted = {rank for each in progress.wanted for rank in (each.known.first, each.known.last)}
    if not wanted <= elements.keys():
        return None
    return Resolved(question.answer_by(*n, Selected(*n, elements).at), None)
