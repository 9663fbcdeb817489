"""A distributed radix sort of a dask array, the baseline that selection is compared with.

::

    x ──> keys ──┬─> histograms ──merge──> scan ──┐
                 └────────────> split <───────────┘
                                  │ a piece for each chunk
                                placed ──> the same for the next digit ──> ... ──> elements

Once a digit, from the least significant on.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Hashable
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize

from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.exchange import Stages, exchanged
from dask_gpuselect.engine.graphs import each_chunk, reduced
from dask_gpuselect.engine.source import DaskArray, TaskRef
from dask_gpuselect.kernels import radix
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.maths.scans import Run, cut_positions, joined_runs

MOST_BITS = 16  # of a digit: its histogram has 2**16 numbers, 512 KiB for each chunk


def radix_sort(x: DaskArray, *, bits: int = MOST_BITS) -> DaskArray:
    """Sort a dask array with the distributed radix sort of Spafford et al.

    A baseline: `quantile` and `order_statistic` need no sorted data and are faster. It is of use
    where the sorted array itself is wanted, and fits the memory of the cluster.

    Parameters
    ----------
    x : dask array
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64; of any shape and
        chunks, sizes known or not. Chunks are NumPy's or CuPy's.
    bits : int, default 16
        The width of a digit, 1 to 16: the sort takes ``ceil(bits of an element / bits)`` passes.

    Returns
    -------
    dask array
        One-dimensional, a chunk for each of `x` in C order, with as many elements. NaN and NaT come
        last, zeros are positive, and the byte order is native.

    Raises
    ------
    TypeError
        At the call, for what is no dask array, for complex, object and string data, and for chunks
        that are neither NumPy's nor CuPy's; while computing, for masked ones.
    ValueError, TypeError
        At the call, for `bits` out of range, or no integer.

    See Also
    --------
    dask_gpuselect.sorting.sorted_boxes.describe_sorted

    Notes
    -----
    Algorithm 1 of [1]_, with its steps where they are done: 1 a histogram of each chunk, 2 to 6 in
    `scans.cut_positions`, 7 the exchange of pieces and a local sort.

    Loads: one of every chunk. Its keys, of the elements' size, then stay in memory.

    Memory of a worker: for each chunk that it works on, the chunk and its pieces, and 10 bytes an
    element for the order of its digits. All chunks are there at once, and in an exchange twice,
    besides `x` where that is held. The scan takes ``24 * 2**bits`` bytes a chunk in one task.

    Steps: for P chunks, P² tasks that hand on a piece in every pass, up to 256 chunks: for 16
    chunks of 64-bit elements 1,024. From then on pieces go through groups of chunks, by about
    ``2 * P**1.5`` tasks in every pass, and all keys are moved twice.

    The weak spot of the method is that it moves data: in each pass nearly every key may go to
    another chunk, and of sorted data as many as of any other (III.C.2 of [1]_). What is in order
    already is noticed here, and nothing moves; neither does it in the pass of a digit that all keys
    have in common. Data that is nearly sorted is moved in full.

    References
    ----------
    .. [1] K. Spafford, "Identification of Quartiles and Outliers with a Distributed Heterogeneous
       Radix Sort", sections II.A and II.B.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array([3, 1, 2, 1, 0], chunks=2)
    >>> radix_sort(x).compute()
    array([0, 1, 1, 2, 3])
    """
    if not isinstance(x, DaskArray):
        raise TypeError(f"radix_sort needs a dask array, not {type(x).__name__}")
    bits = operator.index(bits)
    if not 1 <= bits <= MOST_BITS:
        raise ValueError(f"bits must be from 1 to {MOST_BITS}, and {bits} is not")
    x = entered(x)
    radix.check_kind(x._meta)
    dtype = result_dtype(x.dtype, METHODS["lower"], weak_q=True)
    keys = each_chunk(radix.keys_of, f"radix-sort-keys-{tokenize(x.name)}", [x], dtype=dtype)
    in_order = _is_in_order(keys)
    for shift in range(0, radix.key_bits(dtype), bits):
        keys = _one_pass(keys, in_order, shift, bits)
    name = f"radix-sort-{tokenize(keys.name)}"
    elements = each_chunk(radix.elements_of, name, [keys], dtype=dtype)
    sizes = tuple(math.prod(block) for block in itertools.product(*x.chunks))
    meta = meta_from_array(x._meta, ndim=1, dtype=dtype)
    return DaskArray(elements.dask, name, (sizes,), meta=meta)


def _is_in_order(keys: DaskArray) -> DaskArray:
    """One task: whether nothing has to be moved."""
    runs = each_chunk(radix.run_of, f"radix-sort-runs-{tokenize(keys.name)}", [keys])
    name = f"radix-sort-ascends-{tokenize(runs.name)}"
    return reduced(runs, "radix-sort-runs-merge", joined_runs, _ascends, name)


def _ascends(runs: list[Run]) -> bool:
    return joined_runs(runs).ascends


def _one_pass(keys: DaskArray, in_order: DaskArray, shift: int, bits: int) -> DaskArray:
    """The keys in the order of a digit, those with equal ones as they were."""
    token = tokenize(keys.name, shift, bits)
    stages = Stages.of(keys.npartitions, (1,) * keys.npartitions, in_order=True)
    counts = each_chunk(
        _histogram, f"radix-sort-histogram-{token}", [keys], [in_order], shift=shift, bits=bits
    )
    cuts = reduced(counts, "radix-sort-histogram-merge", _stack, _scan, f"radix-sort-scan-{token}")
    pieces = each_chunk(
        _split,
        f"radix-sort-split-{token}",
        [keys],
        [cuts],
        block_ids=True,
        grid=keys.numblocks,
        steps=stages.steps,
        shift=shift,
        bits=bits,
    )
    return _exchange(pieces, cuts, stages, token, shift, bits)


def _histogram(keys: Any, in_order: bool, *, shift: int, bits: int) -> IntArray | None:
    return None if in_order else radix.count_digit(keys, shift, bits)[None]


def _stack(counts: list[IntArray | None]) -> IntArray | None:
    """The histograms of some chunks, a row each; None if nothing is to be moved."""
    found = [rows for rows in counts if rows is not None]
    return np.concatenate(found) if found else None


def _scan(counts: list[IntArray | None]) -> IntArray | None:
    table = _stack(counts)
    return None if table is None else cut_positions(table)


def _split(
    keys: Any,
    cuts: IntArray | None,
    place: tuple[int, ...],
    *,
    grid: tuple[int, ...],
    steps: tuple[int, ...],
    shift: int,
    bits: int,
) -> list[Any]:
    """The pieces of a chunk, one for each group of chunks: in the order of the digit, or all of it
    to its own and None to the others if nothing is to be moved."""
    own = 0
    for i, n in zip(place, grid, strict=True):
        own = own * n + int(i)
    if cuts is None:
        return [keys if first <= own < stop else None for first, stop in itertools.pairwise(steps)]
    ordered = radix.by_digit(keys, shift, bits)
    ends = cuts[own][list(steps)].tolist()
    return [ordered[a:b] for a, b in itertools.pairwise(ends)]


def _regroup(
    pieces: list[Any], batch: int, group: int, cuts: IntArray | None, grouping: Stages
) -> list[Any]:
    """The pieces for each chunk of a group, of what a batch of chunks has sent to the group."""
    first, stop = grouping.steps[group : group + 2]
    begin = grouping.batch(batch).start
    chunks = range(begin, begin + len(pieces))
    if cuts is None:
        own = dict(zip(chunks, pieces, strict=True))
        return [own.get(j) for j in range(first, stop)]
    ends = cuts[chunks.start : chunks.stop, first : stop + 1]
    ends = (ends - ends[:, :1]).tolist()
    return [
        radix.joined([piece[of[j] : of[j + 1]] for piece, of in zip(pieces, ends, strict=True)])
        for j in range(stop - first)
    ]


# The exchange is dask's own: a task for each piece, which the scheduler moves to the worker that
# needs it, as the simple shuffle of dask.dataframe does. None of dask's shuffles serves as it is:
#
# - dask.array.shuffle, slicing and rechunking (P2P or not) want each element's destination when the
#   graph is built. Here it is known after the scan.
# - The shuffles of dask.dataframe take it from a column of the data: one destination more for each
#   key, in pandas' memory and not the GPU's. P2P, which spares the P² tasks, runs on distributed
#   alone, and joins pieces as they arrive, while a digit's sort must keep the order of the ones
#   before it.
# - Its stages join what is meant for several chunks in the order in which it arrives; ours keep the
#   order of the chunks. See `exchange.Stages`.
def _exchange(
    pieces: DaskArray, cuts: DaskArray, stages: Stages, token: Hashable, shift: int, bits: int
) -> DaskArray:
    """Each chunk takes its pieces from all chunks and puts them in order."""
    return exchanged(
        pieces,
        stages,
        f"radix-sort-placed-{token}",
        f"radix-sort-piece-{token}",
        _place,
        shift,
        bits,
        not stages.n_batches,
        regroup=_regroup,
        cuts=TaskRef((cuts.name,)),
        grouping=stages,
    )


def _place(pieces: list[Any], shift: int, bits: int, are_ordered: bool) -> Any:  # noqa: FBT001
    """The keys of all pieces of a chunk, in the order of the digit; equal ones stay in order.

    Each piece is in that order by itself if `are_ordered`: it comes from one chunk, and not through
    groups, where it is put together of those of several.
    """
    given = [piece for piece in pieces if piece is not None]
    if len(given) < len(pieces):
        (whole,) = given  # nothing was moved
        return whole
    filled = [piece for piece in given if piece.shape[0]]
    keys = radix.joined(filled or given[:1])
    return keys if are_ordered and len(filled) <= 1 else radix.by_digit(keys, shift, bits)
