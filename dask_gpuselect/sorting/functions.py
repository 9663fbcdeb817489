"""Sorting one-dimensional dask arrays by their exact quantiles.

::

    x ──two loads──> splitters ──> edges of each chunk ──merge──> table ─┐
    │                                                                   │
    └───────────copy, waits for the table──> split <────────────────────┘
                                               │ a piece for each chunk of the result
                                             merged

The splitters are the elements at the ranks where the chunks of the result begin, so that these have
the sizes they are to have, whatever the data. What the second load has gathered about them also
says how many elements of each chunk are before and up to each: a chunk is cut into its pieces, ties
included, as soon as it is loaded for the third time. It is dealt out to them, not sorted: each
chunk of the result is sorted once. Where there are many chunks, pieces go through groups of them,
see `graphs.Stages`.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Alias, Task, TaskRef
from dask.array.core import normalize_chunks
from dask.array.utils import meta_from_array
from dask.base import is_dask_collection, tokenize
from dask.highlevelgraph import MaterializedLayer
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arguments import as_array, public
from dask_gpuselect.arrays import as_dtype, is_array, is_cupy, namespace, to_host
from dask_gpuselect.engine import settings
from dask_gpuselect.engine.graphs import Stages, each_chunk, exchanged, extended, reduced
from dask_gpuselect.engine.graphs import split_every as parts_merged
from dask_gpuselect.engine.passes import loads, merge_or_none
from dask_gpuselect.engine.source import is_in_memory, private_copy
from dask_gpuselect.engine.spill import Spilled, directory_of, in_kind, spill_file
from dask_gpuselect.kernels import ordering, radix
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Tally
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.partition import Division, Edges, Layout, Splitters, Table
from dask_gpuselect.maths.ranks import METHODS

Chunks = int | str | tuple[int, ...] | tuple[tuple[int, ...], ...] | None
Sizes = tuple[float, ...]
Spill = bool | str | os.PathLike[str] | None

SPILL_LIMIT = "1 GiB"
"""Of pieces that wait in memory, unless the config value ``dask_gpuselect.spill-limit`` says
otherwise."""
PIECES_MERGED = 256  # by one task


@public("x")
def sort(
    x: Any, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
) -> Any:
    """All elements in ascending order, in chunks of the sizes that are asked for, in three loads.

    Parameters
    ----------
    x : dask array, or array_like
        One-dimensional: of bool, integers, float16, float32 or float64, datetime64 or timedelta64;
        of any chunks, sizes known or not. Chunks are NumPy's or CuPy's. A plain array is sorted at
        once, in kind.
    chunks : int, str, tuple, optional
        Of the result, as dask has them: ``1_000_000``, ``"128 MiB"``, ``(3, 4, 3)``. By default all
        have one size but for the last, and there are at most as many as `x` has. Where the size of
        `x` is unknown there are as many, equal up to one element, and no others are to be had.
    spill : bool or path, optional
        Whether pieces wait on disk: in dask's ``temporary-directory``, or in this one. By default
        they do if `x` is neither in memory nor known to be smaller than the config value
        ``dask_gpuselect.spill-limit`` (1 GiB).
    split_every : int, optional
        How many pieces one task takes at most; 256 by default, whatever dask's config value of that
        name is. Of more, a tree of tasks joins the pieces for each chunk of the result.

    Returns
    -------
    dask array, or an array like `x`
        What ``numpy.sort(x)`` is: NaN and NaT come last. Zeros are positive, for -0.0 and 0.0 are
        equal; the byte order is native.

    Raises
    ------
    TypeError
        At the call, for complex, object, string and masked data, for chunks that are neither
        NumPy's nor CuPy's, and for what is no array.
    ValueError
        At the call, for more dimensions than one, chunks that do not fit, `chunks` where the size
        is unknown, and a `split_every` below 2; while computing, for chunks that hold another
        number of elements than the shape says.
    ChunksChangedError
        While computing, if a chunk differs between two loads.
    OSError
        While computing, if the directory cannot be written to, or has no room.

    See Also
    --------
    argsort, sort_by, quantile_bins
    dask_gpuselect.sorting.radix_sort.radix_sort : the distributed radix sort, for comparison.

    Notes
    -----
    Loads: three of every chunk; those in memory are read in place. Two find the splitters, the
    elements at the ranks where the chunks of the result begin, by the cuts of `quantile`. In the
    third the elements of each chunk are dealt out among the splitters, those that equal one by
    count. Then each chunk of the result is sorted: by NumPy's sort, which is 4 to 7 times as
    fast for 64 bits where the processor has AVX2, and faster with AVX-512.

    Memory: of a task, the chunk and two copies of it, or the pieces of a chunk of the result and
    two copies of these. Besides, all pieces together, which are as large as `x`: on disk, or in the
    memory of the workers. For P chunks in, M out and n elements, the splitters take about
    ``40 * sqrt(P * n * M)`` bytes in one place. Pieces on disk lie in a file without a name: its
    room is given back when the last piece has been taken, and when the process ends, however it
    does. A directory that is kept in memory (``tmpfs``) saves nothing. Nor does a file of a process
    of dask's scheduler of processes, where all results go through the first process, and each task
    that hands on a piece is sent a whole chunk: use threads, or a cluster.

    Tasks: P * M that hand on a piece, up to 65,536. Of more, pieces go through groups of about
    ``sqrt(M)`` chunks of the result, in about ``2 * P * sqrt(M)`` tasks: 200,000 for 2,000 chunks
    in and out, in 2 s and 150 MB at the call, and 2,100,000 for 10,000, in 25 s and 1.5 GB. There
    all pieces are moved, and written to disk, twice, though each file is given back with its group.

    The result does not depend on the chunks of `x`.

    References
    ----------
    G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs",
    introduction: data are split at quantiles into chunks that are sorted independently. There the
    quantiles are approximate, and so are the sizes of the chunks; here both are exact.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array([3.0, 1.0, float("nan"), 1.0, 0.0], chunks=2)
    >>> sort(x).compute()
    array([ 0.,  1.,  1.,  3., nan])
    >>> sort(x, chunks=3).chunks
    ((3, 2),)
    """
    x, dtype = _key(x, "sort")
    if not isinstance(x, da.Array):
        keys = ordering.keys_of(x, dtype).copy()
        ordering.sort(keys)
        return ordering.elements_of(keys, dtype)
    plan = Plan.of("sort", x, (), chunks, spill, split_every)
    return _column(_merged(plan, x, dtype), plan, 0, x, dtype)


@public("x")
def argsort(
    x: Any, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
) -> Any:
    """Where the elements of `sort` are in `x`, in three loads; equal ones in the order of `x`.

    Parameters
    ----------
    x, chunks, spill, split_every
        As for `sort`.

    Returns
    -------
    dask array, or an array like `x`
        int64: what ``numpy.argsort(x, kind="stable")`` is.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError, OSError
        As `sort` does.

    See Also
    --------
    sort, sort_by

    Notes
    -----
    Loads and memory: as of `sort`, with 8 bytes an element more on disk and 16 in a task, which may
    hold three copies of its pieces. Keys and places are sorted together, as words of 64 bits. To
    take other arrays in this order, use `sort_by`, which moves them along: an index that is a dask
    array takes all of one into memory.

    Examples
    --------
    >>> import dask.array as da
    >>> argsort(da.from_array([3, 1, 2, 1], chunks=2)).compute()
    array([1, 3, 2, 0])
    """
    x, dtype = _key(x, "argsort")
    if not isinstance(x, da.Array):
        return ordering.stable_order(ordering.keys_of(x, dtype))
    plan = Plan.of("argsort", x, (), chunks, spill, split_every)
    return _column(_merged(plan, x, dtype), plan, 0, x, np.dtype(np.int64))


@public("key", "values")
def sort_by(
    key: Any,
    *values: Any,
    chunks: Chunks = None,
    spill: Spill = None,
    split_every: int | None = None,
) -> tuple[Any, ...]:
    """A key in ascending order, and other arrays in the same order, in three loads of the key and
    one of the others; those of equal keys stay as they were.

    Parameters
    ----------
    key : dask array, or array_like
        As `x` of `sort`.
    *values : dask arrays, or array_like
        Of any dtype, as long as the key along their first axis, and in as many chunks of the same
        sizes; further axes have one chunk.
    chunks, spill, split_every
        As for `sort`; chunks are those of the first axis.

    Returns
    -------
    tuple of dask arrays, or of arrays like `key`
        The key, as `sort` gives it, and each of the values, taken in the order ``argsort(key)``.
        Computed together, by ``dask.compute(*found)`` or ``da.store``, they share all work.

    Raises
    ------
    TypeError, ValueError, ChunksChangedError, OSError
        As `sort` does; a ValueError at the call for values of another length or other chunks; while
        computing, where sizes were unknown.

    See Also
    --------
    sort, argsort

    Notes
    -----
    Loads: three of the key, as of `sort`, and one of the others, in the third: what key and values
    have in common, for instance the reading of a table, is done three times.

    Memory: as of `sort`, with the values beside the key and 8 bytes an element more in a task,
    which may hold three copies of its pieces. Where pieces go through groups of chunks, their
    places go along, with 8 bytes an element more on disk.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> age, name = da.from_array([30, 20, 30, 10], chunks=2), da.from_array(list("abcd"), chunks=2)
    >>> found = sort_by(age, name)
    >>> dask.compute(*found)
    (array([10, 20, 30, 30]), array(['d', 'b', 'a', 'c'], dtype='<U1'))
    """
    key, dtype = _key(key, "sort_by")
    if not isinstance(key, da.Array):
        return _sorted_now(key, dtype, values)
    payload = tuple(_value(value, key) for value in values)
    plan = Plan.of("sort-by", key, payload, chunks, spill, split_every)
    merged = _merged(plan, key, dtype, payload)
    found = [_column(merged, plan, 0, key, dtype)]
    for i, value in enumerate(payload, start=1):
        found.append(_column(merged, plan, i, value, value.dtype))
    return tuple(found)


def _sorted_now(key: Any, dtype: np.dtype[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """`sort_by` of plain arrays."""
    if any(is_dask_collection(value) for value in values):
        raise TypeError("a lazy value needs a lazy key: make it one by da.from_array")
    given = [value if is_array(value) else np.asarray(value) for value in values]
    for value in given:
        if value.shape[:1] != key.shape:
            raise ValueError(
                f"each of the values must have as many elements or rows as the key, "
                f"{key.shape[0]}, and one is of shape {value.shape}"
            )
    keys = ordering.keys_of(key, dtype)
    order = ordering.stable_order(keys)
    return ordering.elements_of(keys[order], dtype), *(value[order] for value in given)


# --- Checking arguments ---------------------------------------------------------------------------


def _key(x: Any, name: str) -> tuple[Any, np.dtype[Any]]:
    """What is sorted, and the dtype of the result."""
    x = as_array(x)
    radix.check_kind(getattr(x, "_meta", x), name)
    if x.ndim != 1:
        raise ValueError(
            f"{name} takes one-dimensional arrays, and this has {x.ndim} dimensions: ravel() it"
        )
    try:
        return x, result_dtype(x.dtype, METHODS["lower"], weak_q=True)
    except TypeError:
        raise TypeError(
            f"{name} takes bool, integers, float16 to float64, datetime64 and timedelta64, "
            f"not {x.dtype}"
        ) from None


def _value(value: Any, key: da.Array) -> da.Array:
    """A dask array that goes along with the key."""
    value = as_array(value)
    if not isinstance(value, da.Array):
        is_known = not math.isnan(key.size) and value.shape[:1] == key.shape
        value = da.from_array(value, chunks=(*key.chunks, *value.shape[1:]) if is_known else -1)
    radix.check_kind(value._meta, "sort_by")
    found: da.Array = value
    if _goes_along(found.chunks, key.chunks):
        return found
    raise ValueError(
        f"each of the values must have the chunks of the key, {key.chunks}, along its first axis, "
        f"and one chunk along others, and one has {value.chunks}"
    )


def _goes_along(chunks: tuple[Sizes, ...], of_key: tuple[Sizes, ...]) -> bool:
    if not chunks or any(len(sizes) > 1 for sizes in chunks[1:]):
        return False
    (key,), own = of_key, chunks[0]
    if math.isnan(sum(own)) or math.isnan(sum(key)):
        return len(own) == len(key)  # the sizes show while computing
    return own == key


@dataclass(frozen=True)
class Plan:
    """How a sorted array is put together; deterministically tokenizable.

    Parameters
    ----------
    label : str
        For the names of the layers.
    layout : Layout
        Of the result.
    stages : Stages
        How pieces get to the chunks of the result.
    has_places : bool
        Whether the elements' places go along with them: if they are asked for, or tell in which
        order pieces of batches are.
    wants_places : bool
        Whether they are all that is asked for.
    spill : str, optional
        The directory where pieces wait, "" for dask's. Without one they wait in memory.
    split_every : int
        Pieces that one task takes at most.
    """

    label: str
    layout: Layout
    stages: Stages
    has_places: bool
    wants_places: bool
    spill: str | None
    split_every: int

    @classmethod
    def of(
        cls,
        label: str,
        key: da.Array,
        payload: Sequence[da.Array],
        chunks: Chunks,
        spill: Spill,
        split_every: int | None,
    ) -> Plan:
        # dask's config value is about reductions: pieces are joined by copying them.
        every = PIECES_MERGED if split_every is None else parts_merged(split_every, PIECES_MERGED)
        if spill is None:
            spill = _is_worth_spilling(key, payload)
        if isinstance(spill, bool):
            spill = "" if spill else None
        directory = None if spill is None else os.fspath(spill)
        layout = _layout(key, chunks)
        stages = Stages.of(key.npartitions, layout.sizes or (1,) * layout.n_chunks)
        wants_places = label == "argsort"
        has_places = wants_places or bool(payload and stages.n_batches)
        return cls(label, layout, stages, has_places, wants_places, directory, every)


def _layout(x: da.Array, chunks: Chunks) -> Layout:
    if math.isnan(x.size):
        if chunks is not None:
            raise ValueError(
                "chunks of a sorted array of unknown size are as many as it has now: "
                "x.compute_chunk_sizes() finds the size"
            )
        return Layout(x.npartitions)
    if chunks is None:
        chunks = max(1, -(-x.size // x.npartitions))
    if isinstance(chunks, int) and chunks < 1 and chunks != -1:
        raise ValueError(f"chunks must be positive, or -1 for a single one, and {chunks} is not")
    (sizes,) = normalize_chunks(chunks, x.shape, dtype=x.dtype)
    return Layout(len(sizes), tuple(map(int, sizes)))


def _is_worth_spilling(key: da.Array, payload: Sequence[da.Array]) -> bool:
    arrays = (key, *payload)
    if all(is_in_memory(x) for x in arrays):
        return False
    limit = settings.n_bytes("spill-limit", SPILL_LIMIT)
    return not sum(x.nbytes for x in arrays) <= limit  # unknown sizes are not


# --- The table: what goes where -------------------------------------------------------------------


def _table(x: da.Array, plan: Plan) -> da.Array:
    """One task: where all chunks are cut, by two loads."""
    label, layout = plan.label, plan.layout
    bracket, tally = loads(x, layout, layout.share, label)
    splitters = reduced(
        tally,
        f"{label}-candidates-merge",
        merge_or_none,
        _find_splitters,
        f"{label}-splitters-{tokenize(tally.name, layout)}",
        brackets=TaskRef((bracket.name,)),
        layout=layout,
        meta=x._meta,
    )
    name = f"{label}-edges-{tokenize(splitters.name)}"
    edges = each_chunk(_edges, name, [tally], [bracket, splitters])
    return reduced(
        edges,
        f"{label}-edges-merge",
        Edges.merge,
        _make_table,
        f"{label}-table-{tokenize(name)}",
        splitters=TaskRef((splitters.name,)),
    )


def _find_splitters(parts: list[Tally], brackets: Brackets, layout: Layout, meta: Any) -> Splitters:
    return layout.splitters(brackets, kernels.merged(parts, meta))


def _edges(tally: Tally, brackets: Brackets, splitters: Splitters) -> Edges:
    return Edges.of_chunk(brackets, tally, splitters)


def _make_table(parts: list[Edges], splitters: Splitters) -> Table:
    return Table.of(Edges.merge(parts), splitters)


# --- Load 3: pieces -------------------------------------------------------------------------------


def _split(
    chunk: Any,
    *values_table_place: Any,
    dtype: np.dtype[Any],
    plan: Plan,
    file_name: str,
) -> list[tuple[Any, ...] | None]:
    """The pieces of a chunk, one for each chunk of the result: columns of sorted keys and of what
    goes along with them. None for one without elements."""
    *values, table, (place, *_) = values_table_place
    keys = ordering.keys_of(chunk, dtype)
    for value in values:
        if len(value) != len(keys):
            raise ValueError(
                f"chunk {place} of the key has {len(keys)} elements, and of a value {len(value)}"
            )
    division = table.division(int(place), plan.stages.steps)
    found = _in_pieces(keys, dtype, division, f"chunk ({place},)", bool(values) or plan.has_places)
    columns = [found.keys, *_ordered(found, values)]
    if plan.has_places:
        columns.append(ordering.places(found, table.offsets[place]))
    n_pieces = len(plan.stages.steps) - 1
    is_one = not plan.stages.n_batches  # else a group's room is given back with the group
    names = [file_name] if is_one else [f"{file_name}-{g}" for g in range(n_pieces)]
    return _kept(columns, division.ends, plan, names)


def _regrouped(
    pieces: list[tuple[Any, ...] | None],
    batch: int,
    group: int,
    table: Table,
    dtype: np.dtype[Any],
    plan: Plan,
    file_name: str,
) -> list[tuple[Any, ...] | None]:
    """The pieces for each chunk of a group, of what a batch of chunks has sent to the group."""
    first, stop = plan.stages.steps[group : group + 2]
    joined = _joined(pieces)
    if joined is None:
        return [None] * (stop - first)
    keys, *values = joined
    chunks = plan.stages.batch(batch)
    division = table.division(chunks, range(first, stop + 1))
    every = len(table.offsets)
    name = f"one of the chunks {', '.join(f'({i},)' for i in range(*chunks.indices(every)))}"
    found = _in_pieces(keys, dtype, division, name, bool(values))
    columns = [found.keys, *_ordered(found, values)]
    return _kept(columns, division.ends, plan, [f"{file_name}-{group}-regrouped"])


def _in_pieces(
    keys: Any, dtype: np.dtype[Any], division: Division, name: str, has_order: bool
) -> ordering.Dealt:
    """Keys piece by piece, if they are what the second load has counted."""
    marks = as_dtype(division.values, dtype)
    found = ordering.dealt(keys, marks, dtype, has_order=has_order)
    known = (division.below, division.upto)
    if len(keys) == division.ends[-1] and np.array_equal([found.below, found.upto], known):
        return found
    raise ChunksChangedError(
        f"{name} held other elements on the third load than on the second. "
        "The source is not reproducible: `.persist()` the array first."
    )


def _ordered(found: ordering.Dealt, values: Sequence[Any]) -> list[Any]:
    return list(values) if found.order is None else [value[found.order] for value in values]


def _kept(
    columns: Sequence[Any], ends: NDArray[np.int64], plan: Plan, names: Sequence[str]
) -> list[tuple[Any, ...] | None]:
    """Columns in pieces until these are taken, None for those without elements. On disk, in files
    of these names: one for all, or one for each piece.

    In memory they are copies, for a view would keep all of the column.
    """
    stops = list(itertools.pairwise(ends.tolist()))
    directory = None if plan.spill is None else directory_of(plan.spill)

    def of_column(column: Any) -> list[Any]:
        if directory is None or column.dtype.hasobject:
            return [column[a:b].copy() for a, b in stops]
        if len(names) == 1:
            whole = spill_file(names[0], directory).write(column)
            return [whole[a:b] for a, b in stops]
        return [
            spill_file(name, directory).write(column[a:b]) if a < b else None
            for name, (a, b) in zip(names, stops, strict=True)
        ]

    pieces = zip(*map(of_column, columns), strict=True)
    return [piece if a < b else None for piece, (a, b) in zip(pieces, stops, strict=True)]


# --- The exchange ---------------------------------------------------------------------------------


def _merged(
    plan: Plan, key: da.Array, dtype: np.dtype[Any], payload: Sequence[da.Array] = ()
) -> da.Array:
    """The chunks of the result, each a tuple of columns."""
    table = _table(key, plan)
    turn = {"after": (table.name,), "after_layer": table.name}
    sources = [private_copy(x, f"load 3 after {table.name}", **turn) for x in (key, *payload)]
    grids = [x if x.ndim == 1 else _rows(x) for x in sources]
    token = tokenize(plan, *(x.name for x in sources))
    split = each_chunk(
        _split,
        f"{plan.label}-split-{token}",
        grids,
        [table],
        block_ids=True,
        dtype=dtype,
        plan=plan,
        file_name=token,
    )
    return exchanged(
        split,
        plan.stages,
        f"{plan.label}-merged-{token}",
        f"{plan.label}-piece-{token}",
        _in_order,
        _empties(plan, key, dtype, payload),
        dtype,
        plan,
        regroup=_regrouped,
        join=_joined,
        every=plan.split_every,
        table=TaskRef((table.name,)),
        dtype=dtype,
        plan=plan,
        file_name=token,
    )


def _rows(x: da.Array) -> da.Array:
    """Its chunks, one along all axes but the first, in a grid of one dimension."""
    name = f"rows-{x.name}"
    keys = ((name, i) for i in range(x.numblocks[0]))
    layer = {key: Alias(key, (x.name, key[1], *[0] * (x.ndim - 1))) for key in keys}
    graph = extended(x.dask, name, MaterializedLayer(layer), {x.name})
    return da.Array(graph, name, x.chunks[:1], meta=np.empty(0, dtype=object))


def _empties(
    plan: Plan, key: da.Array, dtype: np.dtype[Any], payload: Sequence[da.Array]
) -> list[Any]:
    """The columns of a piece without elements."""
    keys = ordering.keys_of(key._meta, dtype)[:0].copy()
    places = [ordering.stable_order(keys)] if plan.has_places else []
    rows = (
        namespace(value._meta).empty((0, *value.shape[1:]), dtype=value.dtype) for value in payload
    )
    return [keys, *rows, *places]


def _joined(pieces: list[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """Pieces one behind the other, column by column."""
    given = [piece for piece in pieces if piece is not None]
    if not given:
        return None
    return tuple(map(_joined_column, zip(*given, strict=True)))


def _joined_column(parts: Sequence[Any]) -> Any:
    if not any(isinstance(part, Spilled) for part in parts):
        return radix.joined(list(parts))
    # Each is read to where it is to be: a list of all, and then the whole, would be twice as much.
    dtype = np.result_type(*{part.dtype for part in parts})  # of strings, that of the longest
    whole = np.empty((sum(part.shape[0] for part in parts), *parts[0].shape[1:]), dtype)
    stop = 0
    for part in parts:
        start, stop = stop, stop + part.shape[0]
        if isinstance(part, Spilled) and part.dtype == dtype:
            part.read_into(whole[start:stop])
        else:
            whole[start:stop] = part.read() if isinstance(part, Spilled) else to_host(part)
    first = parts[0]
    return in_kind(whole, first.is_cupy if isinstance(first, Spilled) else is_cupy(first))


def _in_order(
    pieces: list[tuple[Any, ...] | None], empties: list[Any], dtype: np.dtype[Any], plan: Plan
) -> tuple[Any, ...]:
    """The columns of a chunk of the result: of elements, unless only places are wanted, and what
    goes along with them."""
    keys, *values = _joined(pieces) or tuple(empties)
    if not values:
        ordering.sort(keys)
        return (ordering.elements_of(keys, dtype),)
    if plan.stages.n_batches:  # which are of chunks from all over the array
        by_place = ordering.stable_order(values[-1])
        order = by_place[ordering.stable_order(keys[by_place])]
    else:
        order = ordering.stable_order(keys)
    if plan.wants_places:
        return (values[0][order],)
    if plan.has_places:
        del values[-1]
    return ordering.elements_of(keys[order], dtype), *(value[order] for value in values)


def _column(merged: da.Array, plan: Plan, i: int, like: da.Array, dtype: np.dtype[Any]) -> da.Array:
    """One of the columns as an array, of rows as of `like`."""
    name = f"{plan.label}-{tokenize(merged.name, i)}"
    n_chunks, further = plan.layout.n_chunks, like.chunks[1:]
    layer = {}
    for j in range(n_chunks):
        key = (name, j, *[0] * len(further))
        layer[key] = Task(key, operator.getitem, TaskRef((merged.name, j)), i)
    graph = extended(merged.dask, name, MaterializedLayer(layer), {merged.name})
    sizes: tuple[float, ...] = plan.layout.sizes or (math.nan,) * n_chunks
    meta = meta_from_array(like._meta, dtype=dtype)
    return da.Array(graph, name, (sizes, *further), meta=meta)
