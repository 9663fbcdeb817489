"""What client, scheduler, root and workers hold at 1e12 elements; prints Markdown.

    python asv_bench/at_scale.py plans
    python asv_bench/at_scale.py reports
    python asv_bench/at_scale.py trees
    python asv_bench/at_scale.py roots --chunks 1_000_000 --size 1_000_000
    python asv_bench/at_scale.py client --chunks 1_000 10_000 100_000
    python asv_bench/at_scale.py client --chunks 1_000_000 --questions median

`plans` tells what `explain` says of 1e12 float64 in chunks of 1e6 to 1e8, for each question.

`reports` holds the formulas of docs/scale.md against what is there: the bytes that chunks of 1e4 to
1e7 elements report, and the peak of the task that takes those of 10 to 1,000 chunks. It ends with 1
if one exceeds its formula.

`trees` merges reports of 10 to 10,000 chunks in the tree, and holds what a bracket has of all
elements, and the peak of a merge, against their formulas: of elements, of what they weigh, and of
groups. It ends with 1 if one exceeds its formula.

`roots` runs the tasks through which all reports of so many chunks come to one place, each in a
process of its own, with arguments from a file. No chunk is made: see `scale_simulation`. Where a
task takes parts that others have made, one of them is made, and repeated.

`client` builds, optimises and orders the graph of each question, and pickles it, in a process of
its own. 1_000_000 chunks take 10 to 13 GB and
four to seven minutes.
"""

from __future__ import annotations

import argparse
import gc
import io
import multiprocessing
import pickle
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.order
import numpy as np
from compare import say, table
from scale_simulation import (
    MEGABYTE,
    Measured,
    Model,
    lazy,
    max_rss,
    measured,
    question_of,
    written,
)

from dask_gpuselect import describe_boxplot, kernels, quantile, sort
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine import plans, settings
from dask_gpuselect.engine.exchange import Stages
from dask_gpuselect.engine.loads import _find_brackets
from dask_gpuselect.engine.narrowing import (
    _bracket_if_any,
    _coarse,
    _cuts_of_candidates,
    _expected,
    _proven,
)
from dask_gpuselect.engine.partials import Gathered, Proven
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.coarse import merged_coarsely
from dask_gpuselect.maths.cuts import Cuts, Tally
from dask_gpuselect.maths.ragged import Wanted, bracket_slots
from dask_gpuselect.maths.sizes import (
    COARSE_EVERY,
    IN_GROUP_EVERY,
    PIVOT_BYTES,
    PIVOT_WORK,
    Narrowing,
    merge_levels,
    pivot_count,
    plan_group_narrowing,
)
from dask_gpuselect.maths.weights import PIVOT_WORK as WEIGHT_PIVOT_WORK
from dask_gpuselect.quantiles.weighted import WeightedQuantiles
from dask_gpuselect.sorting.graph import EDGES_WORK, SortPlan, SplitterQuestion, _places_of

GIGABYTE = 1e9
F8 = np.dtype(np.float64)
Q = (0.25, 0.5, 0.75)
N = 10**12
SIZES = (10**8, 10**7, 10**6)
MOST_SORTED = 10**4
"""Chunks: of more a sort has too many tasks for any scheduler."""

# Of each chunk and task, as `client` and `scale_simulation.py scheduler` measure it.
CLIENT_BYTES, TASKS, TASK_BYTES, TASK_SECONDS = 10_000, 2.1, 2_700, 0.003


def described(x: da.Array) -> Any:
    return describe_boxplot(x)


def labels_of(x: da.Array, n_groups: int) -> da.Array:
    """A label for each element, of the chunks of x."""
    return x.map_blocks(_labels, n_groups, dtype=np.int64)


def _labels(block: Any, n_groups: int) -> Any:
    return np.arange(block.size) % n_groups


ASKED: dict[str, Callable[[da.Array], Any]] = {
    "median": lambda x: quantile(x, 0.5),
    "quartiles": lambda x: quantile(x, Q),
    "101 quantiles": lambda x: quantile(x, np.linspace(0, 1, 101)),
    "box": described,
    "ecdf of 1,001 points": lambda x: ecdf(x, 1001),
    "weighted quartiles": lambda x: quantile(x, Q, weights=abs(x), method="inverted_cdf"),
    "weighted box": lambda x: describe_boxplot(x, weights=abs(x)),
    "three boxes": lambda x: describe_boxplot([x, 2 * x, abs(x)]),
    "median of 12 groups": lambda x: groupby(x, labels_of(x, 12), groups=range(12)).median(),
    "median of 1,000 groups": lambda x: groupby(x, labels_of(x, 1000), groups=range(1000)).median(),
    "median of unknown groups": lambda x: groupby(x, labels_of(x, 12)).median(),
    "sort": sort,
}
SQUARE = "sort"
"""Of P chunks it has about 2 P**1.5 tasks."""


# --- Plans ----------------------------------------------------------------------------------------


def questions() -> dict[str, Question]:
    rule = Rule(1.5, False, 1000, "linear")
    return {
        "median": question_of([0.5]),
        "quartiles": question_of(Q),
        "101 quantiles": question_of(np.linspace(0, 1, 101).tolist()),
        "1,001 quantiles": question_of(np.linspace(0, 1, 1001).tolist()),
        "box": BoxQuestion.of(rule, F8, omits_nan=True),
        "weighted quartiles": WeightedQuantiles(Q, "inverted_cdf", False, F8, F8),
        "weighted box plot": BoxQuestion.of(rule, F8, omits_nan=True, weighs=True),
    }


def of_plan(x: da.Array, question: Question) -> tuple[int, int, int]:
    """Bytes that are gathered, that the root holds, and that wait."""
    return plans._at_root(x, question, plans.narrowing_of(x, question))


def of_groups(n_chunks: int, size: int, n_groups: int) -> tuple[int, int, int]:
    """The same of the median of so many groups."""
    sizes, limit = np.full(n_chunks, size), settings.n_bytes("root-limit")
    result = plan_group_narrowing(sizes, n_groups, 1, F8.itemsize, limit)
    assert result is not None
    return result.gathered, result.work, result.waiting


def of_sort(x: da.Array) -> tuple[int, int, int]:
    """The same of a sort into as many chunks, with the table of what goes where."""
    n_chunks = x.npartitions
    question = SplitterQuestion(n_chunks, x.chunks[0])
    gathered, root, waiting = of_plan(x, question)
    stages = Stages.of(n_chunks, x.chunks[0])
    plan = SortPlan("sort", x.dtype, question, stages, False, False, None, 256, False)
    places = max(len(numbers) for numbers, _ in _places_of(plan, n_chunks))
    n_sent = 24 * (n_chunks * len(stages.steps) + max(stages.n_batches, 1) * n_chunks)
    return gathered, max(root, EDGES_WORK * n_chunks * places, 2 * n_sent), waiting


def tell_plans() -> None:
    rows = []
    for size in SIZES:
        n_chunks = N // size
        x = da.zeros(N, chunks=size)
        bytes_of = {name: of_plan(x, each) for name, each in questions().items()}
        for n_groups in (12, 1000):
            bytes_of[f"median of {n_groups:,} groups"] = of_groups(n_chunks, size, n_groups)
        if n_chunks <= MOST_SORTED:
            bytes_of["sort into as many chunks"] = of_sort(x)
        for name, (gathered, root, waiting) in bytes_of.items():
            rows.append(
                [
                    name,
                    f"{n_chunks:,} of {size:,}",
                    f"{gathered / GIGABYTE:.2f} GB",
                    f"{root / GIGABYTE:.2f} GB" if root else "",
                    f"{waiting / GIGABYTE:,.0f} GB" if waiting else "",
                ]
            )
    say(table(["question", "chunks", "reports in one place", "root", "wait on all workers"], rows))
    rows = [
        [
            f"{N // size:,} of {size:,}",
            f"{CLIENT_BYTES * N / size / GIGABYTE:.2f} GB",
            f"{TASKS * TASK_BYTES * N / size / GIGABYTE:.2f} GB",
            f"{TASKS * TASK_SECONDS * N / size / 60:.0f} min",
            f"{3 * 8 * size / GIGABYTE:.2f} GB",
        ]
        for size in SIZES
    ]
    head = ["chunks", "client", "scheduler", "its time", "a thread of a worker, at most"]
    say(table(head, rows))


# --- Reports, against their formulas --------------------------------------------------------------


def tell_reports() -> bool:
    """Whether all formulas hold."""
    fine = True
    rows = []
    for size in (10**4, 10**5, 10**6, 10**7):
        chunk = np.random.default_rng(0).normal(size=size)
        cuts = kernels.cuts(chunk, F8, 1)
        most = PIVOT_BYTES * pivot_count(size)
        result = sum(np.asarray(getattr(cuts, name)).nbytes for name in PER_PIVOT)
        fine &= result <= most
        rows.append([f"{size:,}", f"{result:,} B", f"{most:,} B", f"{len(pickle.dumps(cuts)):,} B"])
    say(table(["elements of a chunk", "its report", "formula", "pickled"], rows))
    rows = []
    for n_chunks in (10, 100, 1000):
        model = Model(n_chunks, 10**6, pivot_count(10**6))
        with tempfile.TemporaryDirectory() as directory:
            path = written([model.cuts(i) for i in range(n_chunks)], Path(directory) / "parts")
            _, peak = measured(_prove, path, question_of(Q), n_chunks)
        most = PIVOT_WORK * n_chunks * pivot_count(10**6)
        fine &= peak.arrays <= most + FIXED
        times = f"{peak.seconds:.2f} s"
        rows.append([f"{n_chunks:,}", _mb(peak.arrays), _mb(most), times])
    say(table(["chunks of 1e6", "peak of the bracket's task", "formula", "time"], rows))
    return fine


PER_PIVOT = "pivots", "below", "upto"
SHARES_OF = 500  # chunks
FIXED = 2_000_000  # bytes of modules and small things


def _mb(n: float) -> str:
    return f"{n / MEGABYTE:,.1f} MB"


def _prove(parts: list[Cuts | None], question: Question, n_chunks: int) -> int:
    proven = _find_brackets(parts, question, (n_chunks,))
    assert proven is not None
    return len(proven.brackets.ends)


# --- Trees ----------------------------------------------------------------------------------------

PIVOTS, MOST, UNIT = 63, 2048, 20  # of a report, of a merge, and of weights


def tell_trees(numbers: Sequence[int]) -> bool:
    """Whether brackets are no wider than their formula says, and merges hold no more."""
    fine = True
    rows = []
    for name, tree in TREES.items():
        for n_chunks in numbers:
            share, most, peak, room = tree(Model(n_chunks, 10**6, PIVOTS))
            fine &= share <= most and peak <= room
            shares = (f"{100 * each:.3f} %" for each in (share, most))
            rows.append([name, f"{n_chunks:,}", *shares, _mb(peak), _mb(room)])
    head = [
        "tree of",
        "chunks",
        "in the bracket of a median",
        "formula",
        "peak of a merge",
        "formula",
    ]
    say(table(head, rows))
    return fine


Tree = tuple[float, float, float, float]
"""The share of a bracket, what the formula says of it, the peak of a merge, and its formula."""


def _tree(
    model: Model, reports: Sequence[Any], merge: Callable[..., Any], widening: float
) -> tuple[Any, float, float]:
    """What is left of reports; which share of all elements the formula lets a bracket have; and the
    peak of the last merge."""
    while len(reports) > COARSE_EVERY:
        lots = range(0, len(reports), COARSE_EVERY)
        reports = [merge(reports[i : i + COARSE_EVERY], MOST) for i in lots]
    tracemalloc.start()
    result = merge(reports, MOST)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    merges = merge_levels(model.n_chunks, COARSE_EVERY)
    return result, 2 * 1.09 / PIVOTS + widening * merges / MOST, peak


def _in_wanted(model: Model, ends: Any, wanted: Any) -> float:
    cells = np.flatnonzero(wanted)
    return sum(model.share_between(*ends[cell - 1 : cell + 1]) for cell in cells)


def _tree_of_counts(model: Model) -> Tree:
    partials = [model.cuts(i) for i in range(model.n_chunks)]
    result, most, peak = _tree(model, partials, merged_coarsely, 1.0)
    brackets = question_of([0.5]).bracket(result)
    share = _in_wanted(model, brackets.ends, brackets.wanted)
    return share, most, peak, PIVOT_WORK * COARSE_EVERY * MOST


def _tree_of_weights(model: Model) -> Tree:
    """Each element weighs a whole unit and a half."""
    partials = [_weighing(model.cuts(i)) for i in range(model.n_chunks)]
    result, most, peak = _tree(model, partials, merged_coarsely, 2.0)
    brackets = WeightedQuantiles((0.5,), "inverted_cdf", False, F8, F8).bracket(result)
    share = _in_wanted(model, brackets.ends, brackets.wanted)
    return share, most, peak, WEIGHT_PIVOT_WORK * COARSE_EVERY * MOST


def _weighing(cuts: Cuts) -> Cuts:
    units = 3 << UNIT - 1
    n = int(cuts.n_valid[0])
    sums = cuts.below * units, cuts.upto * units, n * units
    return cuts.with_weights(*sums, -UNIT, n * float(units) ** 2)


GROUPS = 3


def _tree_of_groups(model: Model) -> Tree:
    """Each chunk has as many elements of each group, and the formula is of one of them."""
    partials = [_of_groups(model.cuts(i)) for i in range(model.n_chunks)]
    result, most, peak = _tree(model, partials, merged_coarsely, float(GROUPS))
    own = bracket_slots([result], GROUPS, Wanted.of_ranks(_median)).brackets.by_slot()(0)
    share = _in_wanted(model, own.ends, own.wanted)
    return share, most, peak, PIVOT_WORK * COARSE_EVERY * MOST


def _of_groups(cuts: Cuts) -> Cuts:
    runs = np.arange(GROUPS)
    every = (np.tile(each, GROUPS) for each in (cuts.sizes, cuts.n_valid, cuts.n_missing))
    at_pivots = (np.tile(each, GROUPS) for each in (cuts.pivots, cuts.below, cuts.upto))
    return Cuts.of_runs(runs, *every, *at_pivots)


def _median(n: Any) -> tuple[Any, Any]:
    return (n // 2)[None], (n // 2)[None]


TREES: dict[str, Callable[[Model], Tree]] = {
    "elements": _tree_of_counts,
    "weights": _tree_of_weights,
    f"{GROUPS} groups": _tree_of_groups,
}


# --- Roots ----------------------------------------------------------------------------------------


def tell_roots(n_chunks: int, size: int, q: Sequence[float]) -> bool:
    """Whether each task stays below the limit."""
    question = question_of(q)
    x = da.zeros(n_chunks * size, chunks=size)
    plan = plans.narrowing_of(x, question)
    if plan is None:
        print(f"{plan}: scale_simulation.py root measures that")
        return True
    rows: list[list[str]] = []
    peaks: list[float] = []

    def tell(name: str, what: str, found: Measured) -> None:
        rows.append(found.row(name, what))
        peaks.append(found.arrays)

    print(f"{n_chunks:,} chunks of {size:,} float64, {len(q)} quantiles. Plan: {plan}.\n")
    with tempfile.TemporaryDirectory() as directory:
        _tell_cuts(n_chunks, size, question, plan, Path(directory) / "parts", tell)
    say(table(["task", "takes", "peak of arrays", "of the process", "time"], rows))
    return max(peaks) <= 1 << 30


Tell = Callable[[str, str, Measured], None]


def _tell_cuts(
    n_chunks: int, size: int, question: Any, plan: Narrowing, path: Path, tell: Tell
) -> None:
    n_pivots = (1 << pivot_count(size, plan.share).bit_length() - 1) - 1
    model = Model(n_chunks, size, n_pivots)
    in_group = -(-n_chunks // plan.groups)
    cuts = [model.cuts(i) for i in range(in_group)]
    written(cuts, path)
    few, result = measured(_few_of_group, path, plan.coarse)
    tell("cuts of a group, merged", f"{in_group:,} chunks, {in_group * n_pivots:,} pivots", result)
    parts = [few] * COARSE_EVERY
    n_parts = -(-plan.groups // COARSE_EVERY)
    written(parts, path)
    merged, result = measured(_merge, path, plan.coarse)
    tell("merge", f"{COARSE_EVERY} groups, {sum(map(_n_pivots, parts)):,} pivots", result)
    at_root = [merged] * n_parts
    written(at_root, path)
    # Each part is that of 32 groups, and the last of fewer: of the whole, about.
    brackets, result = measured(_bracket, path, question)
    tell("bracket", f"{n_parts} parts, {sum(map(_n_pivots, at_root)):,} pivots", result)
    written(cuts, path)
    expected, result = measured(_expect, path, brackets, n_chunks)
    tell("what is expected of a group's chunks", f"{in_group:,} chunks", result)
    every = [expected] * plan.groups
    written(every, path)
    del cuts, every
    proven, result = measured(_put_together, path, brackets, n_chunks)
    tell("of all chunks", f"{plan.groups * in_group:,} chunks", result)
    # The chunks of one group stand for all where shares are asked for.
    few_chunks = Model(min(in_group, SHARES_OF), size, n_pivots)
    _tell_candidates(few_chunks, n_chunks * size, proven, question, plan, path, tell)


def _n_pivots(cuts: Cuts) -> int:
    return len(cuts.pivots)


def _few_of_group(parts: list[Any], most: int) -> Any:
    return _coarse(parts, most=most, every=IN_GROUP_EVERY)


def _merge(parts: list[Any], most: int) -> Any:
    return _coarse(parts, most=most)


def _bracket(parts: list[Any], question: Question) -> Any:
    return _bracket_if_any(parts, question)


def _expect(parts: list[Cuts], brackets: Any, n_chunks: int) -> Any:
    return _expected(parts, brackets, n_chunks=n_chunks)


def _put_together(parts: list[Any], brackets: Any, n_chunks: int) -> Proven:
    proven = _proven(parts, brackets, (n_chunks,), None)
    assert proven is not None
    return proven


def _tell_candidates(
    model: Model,
    n: int,
    proven: Proven,
    question: Any,
    plan: Narrowing,
    path: Path,
    tell: Tell,
) -> None:
    """As many candidates as are in the brackets, of one group; the others are as many."""
    brackets = proven.brackets
    shares = [
        model.share_between(*brackets.ends[cell - 1 : cell + 1])
        for cell in np.flatnonzero(brackets.wanted)
    ]
    n_candidates = int(sum(shares) * n)
    in_group = -(-n // plan.groups)
    random = np.random.default_rng(3)
    uniform = np.concatenate(
        [
            random.uniform(*brackets.ends[cell - 1 : cell + 1], max(int(share * in_group), 1))
            for cell, share in zip(np.flatnonzero(brackets.wanted), shares, strict=True)
        ]
    )
    found_of = _tally_of_group(model, brackets, uniform, in_group)
    written([found_of], path)
    few, result = measured(_few_candidates, path, proven, plan.coarse)
    tell("candidates of a group", f"{len(uniform):,} of {n_candidates:,}", result)
    written([few] * COARSE_EVERY, path)
    merged, result = measured(_merge, path, plan.coarse)
    tell("merge", f"{COARSE_EVERY} groups, {COARSE_EVERY * _n_pivots(few):,} pivots", result)
    left = n_candidates
    for _ in range(plan.rounds):
        left = max(left * 5 * len(question.q) // plan.coarse, 1)
    drawn = random.uniform(*brackets.ends[[0, -1]], left)
    written([Gathered(Tally(*_none(brackets), Candidates(drawn), n, 0))], path)
    _, result = measured(_selected, path, question)
    tell("elements at the wanted ranks", f"{left:,} candidates", result)
    del merged


def _none(brackets: Any) -> tuple[Any, Any]:
    return np.zeros(len(brackets.ends), np.int64), np.zeros(len(brackets.ends), np.int64)


def _tally_of_group(model: Model, brackets: Any, candidates: Any, n: int) -> Gathered:
    below = np.array([int(n * model.share_between(-1.0, float(end))) for end in brackets.ends])
    cells = np.searchsorted(np.sort(candidates), brackets.ends)
    inside = np.diff(cells, prepend=0)
    for i in range(1, len(below)):  # consistent with the candidates
        if brackets.wanted[i]:
            below[i] = below[i - 1] + 1 + inside[i]
    return Gathered(Tally(below, below + 1, Candidates(candidates), n, 0))


def _few_candidates(parts: list[Gathered], proven: Proven, most: int) -> Any:
    return _cuts_of_candidates(parts[0], proven, most=most)


def _selected(parts: list[Gathered], question: Any) -> float:
    tally = Gathered.merge(parts).tally
    assert tally is not None
    places = np.arange(2 * len(question.q)) * len(tally.candidates) // (2 * len(question.q))
    return float(tally.candidates.elements_at(places)[0])


# --- The client -----------------------------------------------------------------------------------


class Counted(io.RawIOBase):
    """A file that keeps nothing but its size."""

    def __init__(self) -> None:
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        n = memoryview(data).nbytes
        self.size += n
        return n


def tell_client(
    numbers: Sequence[int], size: int, names: Sequence[str], most: int, *, collects: bool
) -> None:
    head = ["question", "chunks", "tasks", "build", "optimise", "order", "peak", "graph, pickled"]
    *lines, _ = table(head, [])
    say(iter(lines))
    for name in names:
        for n_chunks in numbers:
            if name != SQUARE or n_chunks <= most:
                given = (name, n_chunks, size, collects)
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    (*_, line, _) = table(head, [pool.apply(client_row, given)])
                say(iter([line]))
    print()
    print("Times are of the processor. Peak: what the process has grown by, all of this together.")


def client_row(name: str, n_chunks: int, size: int, collects: bool = True) -> list[str]:
    if not collects:
        gc.disable()
    before = max_rss()
    x = lazy(n_chunks, size)
    times = [time.process_time()]
    answer = ASKED[name](x)
    times.append(time.process_time())
    (optimized,) = dask.optimize(answer)
    graph = dict(optimized.__dask_graph__())
    times.append(time.process_time())
    dask.order.order(graph)
    times.append(time.process_time())
    grown = max_rss() - before
    file = Counted()
    pickle.Pickler(file, protocol=5).dump(list(graph.items())[:: max(len(graph) // 10_000, 1)])
    pickled = file.size * max(len(graph) // 10_000, 1)
    return [
        name,
        f"{n_chunks:,}",
        f"{len(graph):,}",
        *(f"{each:.1f} s" for each in np.diff(times)),
        f"{grown:,.0f} MB, {grown * 1000 / n_chunks:.1f} kB a chunk",
        f"{pickled / MEGABYTE:,.1f} MB",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", choices=["plans", "reports", "trees", "roots", "client"])
    parser.add_argument("--chunks", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--size", type=int, default=10**6, help="elements of a chunk")
    parser.add_argument("--q", type=float, nargs="+", default=list(Q))
    parser.add_argument("--questions", nargs="+", default=list(ASKED), choices=list(ASKED))
    parser.add_argument("--most", type=int, default=1_000, help="chunks that are sorted")
    parser.add_argument("--no-gc", action="store_true", help="the client without gc")
    args = parser.parse_args()
    if args.what == "plans":
        tell_plans()
        return 0
    if args.what == "reports":
        return int(not tell_reports())
    if args.what == "trees":
        return int(not tell_trees((10, 100, 1_000, 10_000)))
    if args.what == "roots":
        return int(not all([tell_roots(n, args.size, args.q) for n in args.chunks]))
    tell_client(args.chunks, args.size, args.questions, args.most, collects=not args.no_gc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
