"""The laws of the matrix: each raises `Broken` for a case that breaks it.

A law about a transformation (other chunks, permuted elements, ...) asks the package twice. The law
`right` asks it once, and compares with the definitions.
"""

from __future__ import annotations

import linecache
import re
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dask
import numpy as np
from dask.callbacks import Callback
from dask.utils import key_split
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect import Box, Boxplot, ChunksChangedError
from dask_gpuselect.arrays import to_host
from dask_gpuselect.boxplot.tables import Boxes
from dask_gpuselect.distribution import EmpiricalDistribution
from dask_gpuselect.engine.boards import Board
from dask_gpuselect.engine.keeping import FirstPartial
from dask_gpuselect.engine.marks import Slab
from dask_gpuselect.engine.scratch import OnDisk, Stack, Tile
from dask_gpuselect.kernels.companions import Accompanied
from tests import oracle
from tests.matrix import axes, cases, definitions
from tests.matrix.cases import Case, Lazy, ask, computed, grouped, lazily, surroundings

Array = NDArray[Any]


class Broken(AssertionError):  # noqa: N818 -- it is what a law is
    """A law does not hold."""


@dataclass(frozen=True)
class Law:
    """A law, and which cases it is about."""

    check: Callable[[Case], None]
    applies: Callable[[Case], bool] = lambda case: True


# --- Comparing ------------------------------------------------------------------------------------


def same(actual: Any, expected: Any, what: str = "an answer") -> None:
    """Compare bits: dtype, shape, every element; all NaN are equal, and so are the two zeros."""
    if isinstance(actual, tuple | list):
        for one, other in zip(actual, expected, strict=True):
            same(one, other, what)
        return None
    if isinstance(actual, Boxplot):
        return same_boxes(actual, expected, what)
    if isinstance(actual, Box):
        return same_boxes([actual], [expected], what)
    if isinstance(actual, EmpiricalDistribution):
        (fields,) = expected if isinstance(expected, list) else (vars(expected),)
        for name in ("points", "below", "upto", "n_valid", "n_missing"):
            same(getattr(actual, name), fields[name], f"{what}, {name}")
        return None
    is_masked = isinstance(actual, np.ma.MaskedArray) or actual is np.ma.masked
    actual, expected = _plain(actual), _plain(expected)
    if not is_masked and actual.dtype != expected.dtype:
        raise Broken(f"{what}: {actual.dtype}, not {expected.dtype}")
    if actual.shape != expected.shape:
        raise Broken(f"{what}: shape {actual.shape}, not {expected.shape}")
    with np.errstate(all="ignore"):
        is_same = (actual == expected) | ((actual != actual) & (expected != expected))
    if not np.all(is_same):
        i = tuple(np.argwhere(~is_same)[0].tolist())
        raise Broken(f"{what}: {actual[i]!r}, not {expected[i]!r}, at {i}")
    return None


def same_computed(actual: Any, expected: Any, what: str = "an answer") -> None:
    """Compute two answers by themselves, and compare their bits."""
    one, other = (dask.compute(each, scheduler="sync")[0] for each in (actual, expected))
    same(one, other, what)


def is_same(actual: Any, expected: Any) -> bool:
    """Return whether two answers have the same bits."""
    try:
        same(actual, expected)
    except (Broken, ValueError, TypeError):
        return False
    return True


def _plain(answer: Any) -> Array:
    """Make an array of an answer, on the host, in which NaN stands for what is masked."""
    if isinstance(answer, np.ma.MaskedArray):
        lost = np.array("NaT", answer.dtype) if answer.dtype.kind in "mM" else np.nan
        if answer.dtype.kind in "fmM":
            return np.asarray(answer.filled(lost))
        return np.asarray(answer.filled(0))
    return np.asarray(to_host(answer))


def same_boxes(actual: Any, expected: Any, what: str, but: str = "label") -> None:
    """Compare boxes with others, or with the dicts of the definitions, but for a statistic."""
    if len(actual) != len(expected):
        raise Broken(f"{what}: {len(actual)} boxes, not {len(expected)}")
    if isinstance(actual, Boxplot) and isinstance(expected, Boxplot):
        columns = _columns(expected)
        for name, column in _columns(actual).items():
            if name != but:
                same(column, columns[name], f"{what}, {name}")
        return
    for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
        for name, value in (other if isinstance(other, dict) else other.to_dict()).items():
            if name in ("label", but):
                continue
            statistic = np.asarray(getattr(one, name))
            if name != "fliers":  # which alone have the dtype of the elements
                statistic = statistic.astype(np.asarray(value).dtype)
            same(statistic, value, f"{what}, box {i}, {name}")


def _columns(boxes: Boxplot) -> dict[str, Array]:
    """List the statistics of all boxes by name; fliers one behind the other, and how many."""
    columns = {name: np.ravel(each) for name, each in boxes.to_dict().items() if name != "label"}
    for name in columns.keys() & {"fliers", "flier_weights"}:
        columns[f"sizes of {name}"] = np.array([np.size(each) for each in columns[name]])
        columns[name] = np.concatenate([*map(np.ravel, columns[name])] or [()])
    return columns


# --- Laws of one answer ---------------------------------------------------------------------------


def right(case: Case) -> None:
    """Compare with the definitions: values, dtype, shape, what was declared, and refusals. Loads
    are counted on the way."""
    lazy = lazily(case) if _is_lazy(case) else None
    try:
        wanted = case.expected()
    except definitions.Refused as refused:
        try:
            actual = computed(case, lazy)
        except refused.kinds as error:
            check_clean(error)
            return
        if not case.values.size:
            warns(case)
            if (theirs := _numpys(case)) is not None:
                same(actual, _for_each_q(case, theirs[0]), "NumPy's of nothing")
        if isinstance(case.values, np.ma.MaskedArray) or not case.values.size:
            return  # what is masked can say so, and an empty array may be NaN
        raise Broken(f"not refused: {actual!r}") from None
    before = np.ma.getdata(case.values).tobytes()
    actual = computed(case, lazy)
    same(actual, wanted, "by definition")
    warns(case)
    if np.ma.getdata(case.values).tobytes() != before:
        raise Broken("the data were changed")
    _seen[:] = [(case, actual)]
    if lazy is not None and lazy.sources and case.values.size and _has_plan(case):
        loads(case, lazy)


NOTHING, ALL_NAN = "Mean of empty slice", "All-NaN slice encountered"
WARN = {definitions.quantiles, definitions.mad, definitions.iqr, definitions.trimmed_mean}
WARN |= {definitions.bins}


def warns(case: Case) -> None:
    """Compare the warnings of the answer just computed with NumPy's, if it has the function, and
    else with those of slots without a valid element. There is one about one slot."""
    if np.ma.isMA(case.values):
        return  # an answer can be masked
    warned = _about_nothing(cases.WARNED)
    theirs = _numpys(case)
    expected = _warnings_of_slots(case) if theirs is None else theirs[1]
    is_one_slot = case.axis is None and not case.slots.groups
    if {*warned} != expected or (is_one_slot and len(warned) > 1):
        raise Broken(f"warnings {warned}, not {expected}")


def _about_nothing(texts: Iterable[str]) -> list[str]:
    """List how often texts have one of the two warnings."""
    return [each for each in (NOTHING, ALL_NAN) for text in texts if each in text]


def _numpys(case: Case) -> tuple[Any, set[str]] | None:
    """Ask NumPy's function of the same name, if it takes all that goes with the case; return the
    answer and the warnings."""
    is_masked = case.nodata is not None or np.ma.isMA(case.values)
    others = case.beside or case.slots.groups or is_masked or "fill_value" in case.asked
    name = case.question.name
    if others or name not in oracle.FUNCTIONS or case.values.dtype.kind in "mM":
        return None
    arguments = {key: case.asked[key] for key in ("q", "method") if key in case.asked}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result = getattr(np, name)(case.values, axis=case.axis, keepdims=case.keepdims, **arguments)
    return result, {*_about_nothing([str(each.message) for each in given])}


def _for_each_q(case: Case, mean: Any) -> Any:
    """Make the answers for an empty array of NumPy's one: it is the mean of no element, in one
    dtype, however many q there are. Ours have the shape and dtype of other quantiles."""
    q, name = case.asked.get("q"), case.question.name
    dtype = oracle.expected_dtype(name, case.values.dtype, q, case.asked.get("method", ""))
    if np.size(mean) and dtype.kind != "f":
        dtype = np.dtype(np.float64)  # for NaN
    shape = np.shape(q) if oracle.takes_q(name) else ()
    return np.full((*shape, *np.shape(mean)), np.nan if np.size(mean) else 0, dtype)


def _warnings_of_slots(case: Case) -> set[str]:
    """List the warnings about slots without elements, or without valid ones if NaN are skipped."""
    is_filled = case.asked.get("fill_value") is not None
    if case.question.definition not in WARN or is_filled:
        return set()
    skips = case.question.name.startswith("nan") or case.question.definition is definitions.bins
    slots = [slot.values for slot in case.elements.slots()]
    if any(not len(v) or (skips and (v != v).all()) for v in slots):
        return {ALL_NAN if case.values.size or "where" in case.beside else NOTHING}
    return set()


_seen: list[tuple[Case, Any]] = []
"""The case that was right last, and its answer."""


CLEAN = (TypeError, ValueError, IndexError, NotImplementedError, OSError, ImportError, MemoryError)
OF_OTHERS = ("/sklearn/", "/numpy/", "/dask/array/")  # whose checks of arguments are ours too
CLEAR = re.compile(  # what Python and NumPy say of their own accord, and well
    "cannot be interpreted as an integer|inhomogeneous shape|str, bytes or os.PathLike|No such file"
)


def check_clean(error: Exception) -> None:
    """Raise what is no error that a reader of its message can use."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    is_meant = line.startswith("raise") or any(part in frame.filename for part in OF_OTHERS)
    is_meant |= bool(CLEAR.search(str(error)))
    if not isinstance(error, CLEAN) or not is_meant or not str(error):
        raise Broken(f"unclear: {type(error).__name__}: {error}") from error


def answered(case: Case) -> Any:
    """The answer to a case, which is not asked once more if it was right just now."""
    for earlier, actual in _seen:
        if earlier is case:
            return actual
    return computed(case)


def loads(case: Case, lazy: Lazy) -> None:
    """Compare loads with those that a docstring states about all elements, and with those that
    `explain` says of the call; companions are loaded as often."""
    actual = {name: source.most for name, source in lazy.sources.items()}
    plan = plan_of(case, lazy)
    most = plan.reads
    if case.axis is None and not case.slots.groups and not case.asked.get("strategy"):
        most = min(most, case.question.loads)
    for name, n in actual.items():
        # Labels alone are read for their names, and once more for those of boxes; and with them
        # the chunks that they are made of.
        names_labels = name == "labels" or case.row["home"] == "shared"
        if n > most + 2 * (names_labels and "lazy" in case.slots.groups):
            raise Broken(f"{n} loads of {name}, {case.question.loads} are stated, and {plan}")
    if _reads_exactly(case):
        assert case.question.reads is not None
        wanted = case.question.reads(case.values.itemsize, case.asked)
        if (counts := lazy.sources["values"].each) not in (set(), {wanted}):
            raise Broken(f"{counts} reads of chunks, not {wanted} of each")
    n = actual.get("values", 0)  # none are counted in other processes
    if not n or case.row["home"] == "shared":
        return
    if case.asked.get("strategy") and max(actual.values()) > n:
        raise Broken(f"{actual} loads: companions are loaded as often as what they are of")
    if n < plan._least_loads:
        raise Broken(f"{n} loads, and explain says: {plan}")
    is_of_quantiles = case.question.definition is definitions.quantiles
    if is_of_quantiles and plan.name == "groups" and actual.get("labels", n) != n:
        raise Broken(f"{actual['labels']} loads of labels, and {n} of what they are of")


def _reads_exactly(case: Case) -> bool:
    """Tell whether every chunk is read as often as a question says: several chunks that tasks make,
    of all elements, of which nothing is cached and few are left out of the first guess."""
    row = case.row
    is_of_all = case.axis is None and not case.slots.groups and "weights" not in case.beside
    is_read = row["home"] == "tasks" and "nothing kept" in row["limits"]
    is_usual = row["sizes"] == "usual"
    is_divided = any(len(sizes) > 1 for sizes in case.chunks)
    return bool(case.question.reads and is_of_all and is_read and is_usual and is_divided)


def plan_of(case: Case, lazy: Lazy) -> dask_gpuselect.Plan:
    """The plan that `explain` tells of the call itself."""
    with surroundings(case):
        return dask_gpuselect.explain(lazy.values, lambda x: ask(case, x, lazy.beside))


OVERHEAD = 1000, 200
"""Bytes of partial results beside what plans count: of all, and for each chunk and quantile."""


def bytes_stated(case: Case) -> None:
    """Watch what every task is sent: at most the partial results and chunks that `explain` says."""
    case = replace(case, row={**case.row, "scheduler": "sync"})
    lazy = lazily(case)
    plan = plan_of(case, lazy)
    some = [np.size(case.asked.get("q", 0)), case.asked.get("n_bins", 0)]
    some += [np.max(case.asked.get("points", 0))]
    n, overhead = lazy.values.npartitions * int(max(some)), OVERHEAD
    most = {"partial results": plan.gathered_bytes, "chunks": plan.task_bytes}
    most["memory for a tile"] = plan.task_bytes
    if plan.name == "sort":
        most["partial results"] += plan.task_bytes  # the pieces of a chunk of the result
    if case.row["home"] != "tasks" or case.beside or case.windows is not None:
        del most["chunks"]  # several tasks share them, or join those of other arrays
    sources = (lazy.values, *lazy.beside.values())
    of_source = ("original-", *{key_split(key) for x in sources for key in _graph_of(x)})

    def begin(key: Any, graph: Any, state: Any) -> None:
        if key_split(key).startswith(of_source) or JOINS.search(key_split(key)):
            return
        sent = [state["cache"][each] for each in state["dependencies"][key]]
        chunks = [each for each in sent if isinstance(each, CHUNKS)]
        others = [each for each in sent if not isinstance(each, (*CHUNKS, Boxes))]
        others = [each for each in others if not _is_of_group(each)]
        pools = _pools(others)
        results = _bytes_of(others, set(map(id, pools)))
        sizes = {"chunks": _bytes_of(chunks), "partial results": results}
        for name, given in (sizes | {"memory for a tile": _bytes_of(pools)}).items():
            if most.get(name, -1) >= 0 and given > most[name] + overhead[0] + overhead[1] * n:
                raise Broken(f"{key_split(key)} gets {given} bytes of {name}, and {plan}")

    with surroundings(case):
        answer = ask(case, lazy.values, lazy.beside)
        with Callback(pretask=begin):
            dask.compute(answer)


JOINS = re.compile("^finalize|^with-companions|-(shares|slabs|tiles)-")
"""Names of tasks that join blocks of an answer, or arrays with their companions."""


def _graph_of(x: Any) -> Any:
    return x.__dask_graph__() if dask.is_dask_collection(x) else ()


CHUNKS = (np.ndarray, Accompanied, Slab, Tile)


def _pools(sent: Iterable[Any]) -> list[Any]:
    """Memory of earlier tiles, which the next tiles of columns on disk take, and of answers."""
    columns = [each for each in sent if isinstance(each, OnDisk)]
    stacks = [part for each in columns for part in (each.values, *each.companions.values())]
    unused = (each.unused for each in stacks if isinstance(each, Stack))
    return [*unused, *(each.blocks for each in columns)]


def _is_of_group(a: Any) -> bool:
    """Whether these are elements that a process has cached, which have a limit of their own."""
    return isinstance(a, FirstPartial) and isinstance(a.cuts, list)


def _bytes_of(a: Any, visited: set[int] | None = None) -> int:
    """The bytes of all arrays of an object, each once."""
    visited = set() if visited is None else visited
    place = a.ctypes.data if isinstance(a, np.ndarray) and a.dtype != object else id(a)
    if place in visited:
        return 0
    visited.add(place)
    if isinstance(a, np.ndarray) and a.dtype != object:
        return a[tuple(slice(None if step else 1) for step in a.strides)].nbytes
    parts: Any = ()
    if isinstance(a, np.ndarray | list | tuple):
        parts = np.ravel(a).tolist() if isinstance(a, np.ndarray) else a
    elif isinstance(a, dict):
        parts = a.values()
    elif type(a).__module__ == Board.__module__:
        return 0  # one of the process
    elif type(a).__module__.startswith("dask_gpuselect"):
        slots = [name for kind in type(a).__mro__ for name in getattr(kind, "__slots__", ())]
        parts = [getattr(a, name, None) for name in (*getattr(a, "__dict__", ()), *slots)]
    return sum(_bytes_of(part, visited) for part in parts)


def ascends(case: Case) -> None:
    """Ask for ascending q, and look whether the answers ascend."""
    q = np.sort(np.ravel([*np.ravel(case.asked["q"]), 0.0, 0.3, 1.0]))
    if "percentile" in case.question.name:
        q = np.sort(np.append(q, 100.0))
    actual = np.asarray(_plain(computed(replace(case, asked={**case.asked, "q": q}))))
    with np.errstate(all="ignore"):
        if (actual[1:] < actual[:-1]).any():
            raise Broken(f"quantiles descend: {actual}")


# --- Laws of two answers --------------------------------------------------------------------------


def any_chunks(case: Case) -> None:
    """Ask with other chunks and limits."""
    random = np.random.default_rng([*case.seed, 5])
    chunks = axes.chunks_of(case.values.shape, "odd", random)
    row = {**case.row, "home": "tasks", "limits": "defaults", "companion cuts": "odd"}
    same(computed(replace(case, chunks=chunks, row=row)), answered(case), "other chunks")


def any_order(case: Case) -> None:
    """Permute the elements of every slot, with their companions."""
    random = np.random.default_rng([*case.seed, 6])
    if case.axis is None and all(a.shape == case.values.shape for a in case.beside.values()):
        order = random.permutation(case.values.size)
        mixed = {k: a.ravel()[order].reshape(a.shape) for k, a in case.beside.items()}
        values = case.values.ravel()[order].reshape(case.values.shape)
    else:
        values, mixed = case.values, dict(case.beside)
        for axis in case.axes:
            order = random.permutation(values.shape[axis])
            values = (
                np.ma.take(values, order, axis) if np.ma.isMA(values) else values.take(order, axis)
            )
            mixed = {k: _permuted(case, k, a, axis, order) for k, a in mixed.items()}
    same(computed(replace(case, values=values, beside=mixed)), answered(case), "another order")


def _permuted(case: Case, name: str, a: Array, axis: int, order: Array) -> Array:
    if a.shape == case.values.shape:
        return a.take(order, axis)
    if name == "where":
        at = axis - (case.values.ndim - a.ndim)
        return a.take(order, at) if at >= 0 and a.shape[at] > 1 else a
    return a.take(order, case.axes.index(axis))


def counts_repeat(case: Case) -> None:
    """Weigh by whole numbers, and repeat every element as often without weights."""
    places = np.repeat(np.arange(case.values.size), case.beside["weights"].ravel())
    other = _taken(case, places, "weights", measure="count")
    same(_or_error(replace(case, keepdims=False)), _or_error(other), "counts, repeated")


def _taken(case: Case, places: Array, but: str, **row: str) -> Case:
    """Take elements at some places, with their companions but for one, in two chunks."""
    values = case.values.ravel()[places]
    beside = {k: a.ravel()[places] for k, a in case.beside.items() if k != but}
    n = len(values) // 2, len(values) - len(values) // 2
    about: dict[str, Any] = {"values": values, "beside": beside, "chunks": (n,), "keepdims": False}
    return replace(case, row={**case.row, **row}, **about)


IN_MEMORY = {"home": "memory", "limits": "defaults"}


def _or_error(case: Case) -> Any:
    """The answer, or 0 where it is refused: elements that all weigh 0, or none."""
    try:
        return answered(case)
    except (IndexError, ValueError):
        return np.zeros(())


def groups_alone(case: Case) -> None:
    """Ask about each group by itself, of the elements that have its label."""
    about = case.elements
    assert about.groups is not None
    actual = answered(case)
    for i, group in enumerate(about.groups):
        places = np.flatnonzero(case.beside["labels"] == group)
        if not len(places):
            continue
        one = _taken(case, places, "labels", slots="all", **IN_MEMORY)
        wanted = computed(replace(one, groups=None))
        if case.question.is_box:
            same_boxes([actual[i]], wanted, f"group {group}")
        else:
            same(actual[..., i], wanted, f"group {group} alone")


def names_of_labels(case: Case) -> None:
    """Ask which groups there are: labels are read once for that, and nothing else is."""
    lazy = lazily(case)
    with surroundings(case):
        dask.compute(grouped(case, lazy.values, lazy.beside).groups)
    actual = {name: source.most for name, source in lazy.sources.items()}
    if actual != dict.fromkeys(actual, 0) | {"labels": 1}:
        raise Broken(f"loads for names of groups: {actual}")


def masks_compress(case: Case) -> None:
    """Leave out what a mask leaves out before asking."""
    takes_part = case.full("where")
    if takes_part is None or not takes_part.any():
        return
    other = _taken(case, np.flatnonzero(takes_part), "where", **IN_MEMORY)
    actual, wanted = _or_error(replace(case, keepdims=False)), _or_error(other)
    if case.question.is_box and not isinstance(actual, np.ndarray):
        same_boxes(actual, wanted, "compressed", but="n_left_out")
    else:
        same(actual, wanted, "compressed")


def changes_named(case: Case) -> None:
    """Change one chunk from some load on, in several ways: the answer is that of one version of the
    chunk, or an error that names it. In passes along an axis there is always an error."""
    lazy = lazily(case)
    before = computed(case, lazy)
    at = _place_of(case)
    most = lazy.sources["values"].most
    is_quantile = case.question.definition is definitions.quantiles
    is_in_passes = case.axis is not None and is_quantile and plan_of(case, lazy).name == "passes"
    random = np.random.default_rng([*case.seed, 7])
    _refused_if_undeclared(case, at, random, before)
    if most < 2:
        return
    others = {name: RARE_CHANGES[name] for name in random.permutation([*RARE_CHANGES])[:2].tolist()}
    for name, way in (CHANGES | others).items():
        first = 2 if name in CHANGES else int(random.integers(2, most + 1))

        def changed(values: Array, place: Any, n: int, way: Any = way, first: int = first) -> Array:
            return way(values) if place == at and n >= first else values

        whole = case.values.copy()
        index = tuple(slice(*ends) for ends in at)
        other = way(whole[index])
        altered = lazily(case, changed)
        try:
            actual = computed(case, altered)
        except (ChunksChangedError, ValueError) as error:
            if not (isinstance(error, ChunksChangedError) or other.shape != whole[index].shape):
                raise
            if not re.search(r"chunks? \(?\d", str(error)):
                raise Broken(f"no chunk is named: {error}") from None
            continue
        if altered.sources["values"].counts[at] < first:
            continue  # the first load has cached what the second would read
        if other.shape != whole[index].shape:
            raise Broken(f"a chunk of another shape, and no error: {name}")
        whole[index] = other
        if is_in_passes and whole.tobytes() != case.values.tobytes():
            raise Broken("a chunk changed between two passes, and there is no error")
        try:
            same(actual, before, "a changed chunk")
        except Broken:
            same(actual, _or_error(replace(case, values=whole)), "a changed chunk, and no error")


def _refused_if_undeclared(case: Case, at: Any, random: axes.Random, before: Any) -> None:
    """Let one chunk be what its array does not say that it is: an error names it, unless it is
    never read, because no window reaches it."""
    ways = UNDECLARED[:ON_DEVICE] if case.is_on_device else UNDECLARED
    way = ways[int(random.integers(len(ways)))]

    def changed(values: Array, place: Any, n: int) -> Any:
        return way(values) if place == at else values

    try:
        actual = computed(case, lazily(case, changed))
    except (TypeError, ValueError) as error:
        if not re.search(r"chunks? \(?\d", str(error)):
            raise Broken(f"no chunk is named: {error}") from None
        return
    counted = replace(case, row={**case.row, "finish": "compute"})  # copies by pickle count apart
    altered = lazily(counted, changed)
    computed(counted, altered)
    if altered.sources["values"].counts[at]:
        raise Broken(f"what was not declared is answered: {actual!r}")
    same(actual, before, "beside a chunk that is not read")


def _larger(values: Array) -> Array:
    """Values of which the smallest are the largest."""
    middle = np.partition(values, values.size // 2, axis=None)[values.size // 2]
    return np.where(values <= middle, values + values.dtype.type(50), values)


def _smaller(values: Array) -> Array:
    """Values of which the largest are the smallest."""
    middle = np.partition(values, values.size // 2, axis=None)[values.size // 2]
    return np.where(values >= middle, values - values.dtype.type(50), values)


def _one_missing(values: Array) -> Array:
    """Values of which one is missing, where the dtype has a NaN, and else the largest."""
    actual = values.copy()
    is_float = values.dtype.kind == "f"
    actual.flat[values.size // 2] = np.nan if is_float else np.iinfo(values.dtype).max
    return actual


def _within_a_cell(values: Array) -> Array:
    """Values of which two neighbours lie closer, which no count at another element tells."""
    actual = values.copy()
    i, j = np.argsort(values, axis=None)[values.size // 2 : values.size // 2 + 2]
    with np.errstate(invalid="ignore", under="ignore"):  # infinities, and the least numbers
        gap = actual.flat[j] / 4 - actual.flat[i] / 4  # within range, of integers too
        step = values.dtype.type(gap)
        actual.flat[i], actual.flat[j] = actual.flat[i] + step, actual.flat[j] - step
    return actual


def _copies_moved(values: Array) -> Array:
    """Values of which some copies of the median become what is next to it."""
    middle = np.partition(values, values.size // 2, axis=None)[values.size // 2]
    copies = np.flatnonzero(values == middle)
    actual = values.copy()
    actual.flat[copies[: len(copies) // 2]] = middle - values.dtype.type(middle > 0)
    return actual


def _doubled(values: Array) -> Array:
    """Values of which the second half of the rows is the first one again."""
    actual = values.copy()
    half = len(values) // 2
    actual[len(values) - half :] = values[:half]
    return actual


CHANGES: Mapping[str, Callable[[Array], Array]] = {
    "larger": _larger,
    "smaller": _smaller,
    "one missing": _one_missing,
    "mirrored": np.flip,
}
RARE_CHANGES: Mapping[str, Callable[[Array], Array]] = {
    "within a cell": _within_a_cell,
    "copies moved": _copies_moved,
    "doubled": _doubled,
    "negative": lambda values: -values,
    "alike": lambda values: np.full_like(values, np.sort(values, None)[values.size // 2]),
    "longer": lambda values: np.concatenate([values, values[:1]]),
    "shorter": lambda values: values[:-1],
    "empty": lambda values: values[:0],
}
"""Changes of which each case has two."""
UNDECLARED: tuple[Callable[[Array], Any], ...] = (
    lambda values: values + 1j,
    lambda values: values[..., None],
    lambda values: values.astype("U3"),
    lambda values: np.ma.masked_greater(values, values.flat[0]),
    lambda values: values.tolist(),
)
"""Changes to what an array does not say that its chunks are."""
ON_DEVICE = 2  # of these, the first ones that arrays of a device can have


def _place_of(case: Case) -> tuple[tuple[int, int], ...]:
    """The largest chunk."""
    place = []
    for sizes in case.chunks:
        i = int(np.argmax(sizes))
        place.append((sum(sizes[:i]), sum(sizes[: i + 1])))
    return tuple(place)


SCRATCH, COPY_ALL = 400_000, ("sort_and_choose", "bitonic_merge")
"""Bytes that a task may take beside chunks: reports, Python's objects, NumPy's buffers. And the
strategies that copy all elements to one task."""


def memory_stated(case: Case) -> None:
    """Watch what every task allocates: a chunk and its companions, and scratch of at most two; of
    moving windows an answer for each element and quantile."""
    reps = -(-100_000 // max(1, case.values.size))
    values = np.tile(case.values.ravel(), reps)
    beside = {k: np.tile(a.ravel(), reps) for k, a in case.beside.items()}
    n = len(values)
    row = {**case.row, "home": "tasks", "scheduler": "sync", "limits": "nothing kept"}
    row |= {"kernels": "compiled", "layout": "C"}  # NumPy answers about small arrays alone
    row |= {"sizes": "usual", "config": "as it is", "ways": ""}
    if case.question.moves:
        row["parts"] = "1 kB"  # else slabs of windows are larger than these chunks
    larger = replace(
        case, row=row, values=values, beside=beside, chunks=((n // 4,) * 3 + (n - n // 4 * 3,),)
    )
    chunk = sum(a[: n // 4].nbytes for a in (values, *beside.values()))
    n_answers = np.size(case.asked.get("q", 0)) if case.question.moves else 1
    stated = (2 + n_answers) * chunk + SCRATCH
    computed(larger)  # what is made once in a process is made
    lazy = lazily(larger)
    with surroundings(larger):
        answer = ask(larger, lazy.values, lazy.beside)
        if case.question.moves:
            # Else the last task joins answers as large as the array. Infinities have no sum.
            answer = answer.any()
        dask.compute(answer)  # its tasks load or compile the kernels that they choose
        # Other threads of the process allocate meanwhile, but not each time as much: what is taken
        # by a task is the least of several measurements.
        for _ in range(3):
            if (taken := _peak_of_tasks(answer)) <= stated:
                return
    raise Broken(f"a task takes {taken} bytes, of chunks of {chunk}")


def _peak_of_tasks(answer: Any) -> int:
    """Compute an answer, and return how many bytes the process allocates during a task, at most."""
    at_begin, most = 0, 0

    def begin(key: Any, graph: Any, state: Any) -> None:
        nonlocal at_begin
        tracemalloc.reset_peak()
        at_begin = tracemalloc.get_traced_memory()[0]

    def end(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        nonlocal most
        most = max(most, tracemalloc.get_traced_memory()[1] - at_begin)

    tracemalloc.start()
    try:
        with Callback(pretask=begin, posttask=end):
            dask.compute(answer)
    finally:
        tracemalloc.stop()
    return most


# --- The list -------------------------------------------------------------------------------------


def _is_lazy(case: Case) -> bool:
    return case.row["home"] != "plain"


def _is_answered(case: Case) -> bool:
    try:
        case.expected()
    except definitions.Refused:
        return False
    return True


def _is_flat(case: Case) -> bool:
    """Tell whether all elements are one stretch: companions have the shape of the values."""
    shapes = {a.shape for a in case.beside.values()}
    return case.axis is None and shapes <= {case.values.shape} and case.values.ndim > 0


def _has_plan(case: Case) -> bool:
    return case.question.name != "radix_sort"


def _keeps_order(case: Case) -> bool:
    return _is_answered(case) and _is_lazy(case)


LAWS: Mapping[str, Law] = {
    "right": Law(right),
    "any chunks": Law(any_chunks, _keeps_order),
    "any order": Law(
        any_order,
        lambda c: (
            _keeps_order(c)
            and c.row["home"] != "expression"
            and c.windows is None
            and not c.question.is_about_places
        ),
    ),
    "q ascends": Law(
        ascends,
        lambda c: (
            "q" in c.asked and c.question.definition is definitions.quantiles and _is_answered(c)
        ),
    ),
    "counts repeat": Law(
        counts_repeat,
        lambda c: (
            c.row["measure"] == "counts"
            and _is_flat(c)
            and not c.question.is_box
            and c.asked.get("method") != "linear"
            and _is_answered(c)
        ),
    ),
    "groups alone": Law(
        groups_alone,
        lambda c: (
            "labels" in c.beside
            and _is_flat(c)
            and c.question.function is not None
            and _is_answered(c)
        ),
    ),
    "names of groups": Law(
        names_of_labels,
        lambda c: (
            "lazy" in c.slots.groups
            and c.row["home"] == "tasks"
            and c.groups is None
            and _is_answered(c)
        ),
    ),
    "masks compress": Law(
        masks_compress,
        lambda c: (
            c.row["missing"] == "where"
            and _is_flat(c)
            and not c.slots.groups
            and not c.question.moves
            and "where" in c.beside
            and c.values.size > 0
        ),
    ),
    "changes named": Law(
        changes_named,
        lambda c: (
            c.row["home"] == "tasks"
            and c.row["data"] not in axes.BITS
            and c.values.dtype.kind in "iuf"
            and c.values.size > 20
            and not np.ma.isMA(c.values)
            and _is_answered(c)
        ),
    ),
    "bytes": Law(
        bytes_stated,
        lambda c: (
            _keeps_order(c)
            and c.row["home"] != "expression"
            and _has_plan(c)
            and not c.is_on_device
            and c.values.size > 0
        ),
    ),
    "memory": Law(
        memory_stated,
        lambda c: (
            _is_flat(c)
            and not c.slots.groups
            and not np.ma.isMA(c.values)
            and c.values.size > 0
            and c.row["dtype"] in axes.COMPILED
            and not (c.is_on_device or c.question.is_box)
            and c.question.definition is not definitions.order  # which takes 16 bytes more
            and c.question.name != "radix_sort"  # whose memory is not stated
            and c.asked.get("strategy") not in COPY_ALL
            and c.asked.get("chunks") is None
            and _is_answered(c)
        ),
    ),
}


def problem_of(case: Case, law: str) -> BaseException | None:
    """The error of a case that breaks a law."""
    try:
        if LAWS[law].applies(case):
            LAWS[law].check(case)
    except Exception as error:
        return error
    return None


__all__ = ["LAWS", "Broken", "Law", "problem_of"]
