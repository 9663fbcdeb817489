"""A distributed radix sort of a dask array, the baseline for comparisons with selection.

::

    x ──> keys ──┬─> histograms ──merge──> scan ──┐
                 └────────────> split <───────────┘
                                  │ a piece for each chunk
                                placed ──> the same for the next digit ──> ... ──> elements

There is a pass for each digit, from the least significant one on.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize

from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.exchange import Stages, exchanged
from dask_gpuselect.engine.graphs import each_chunk, in_one_place
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels import radix
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.maths.scans import Run, cut_positions, joined_runs

MOST_BITS = 16  # bits of a digit: its histogram has 2**16 numbers, 512 KiB for each chunk


def radix_sort(x: DaskArray, *, bits: int = MOST_BITS) -> DaskArray:
    """Sort a dask array with the distributed radix sort of Spafford et al.

    This is a baseline for comparisons: `quantile` and `order_statistic` need no sorted data and are
    faster, and `sort` sorts arrays that are larger than memory.

    Parameters
    ----------
    x : dask array
        Of bool, integers, float16, float32 or float64, datetime64 or timedelta64, of any shape and
        chunks. Chunk sizes may be unknown. Chunks are NumPy or CuPy arrays.
    bits : int, default 16
        The width of a digit, 1 to 16. The sort takes ``ceil(bits of an element / bits)`` passes.

    Returns
    -------
    dask array
        One-dimensional. It has a chunk of the same size for each chunk of `x`, in C order. NaN and
        NaT come last, zeros are positive, and the byte order is native.

    Raises
    ------
    TypeError
        At the call, for objects that are not dask arrays, for complex, object and string data, for
        chunks that are neither NumPy's nor CuPy's, and for `bits` that is not an integer; while
        computing, for masked chunks.
    ValueError
        At the call, for `bits` out of range.

    See Also
    --------
    sort : Sorts arrays that are larger than memory, reading each chunk two or three times.
    dask_gpuselect.sorted_boxes.describe_sorted : Box plots of the sorted array.

    Notes
    -----
    Algorithm 1 of [1]_: step 1 is a histogram of each chunk, steps 2 to 6 are
    `scans.cut_positions`, and step 7 is the exchange of pieces and a local sort.

    Reads: each chunk is read once. Its keys, of the size of the elements, then stay in memory.

    Memory: a worker holds, for each chunk that it works on, the chunk and its pieces, and 10 bytes
    an element for the order of its digits. All chunks are in memory together, twice during an
    exchange, in addition to `x` if that is in memory. The scan takes ``24 * 2**bits`` bytes a chunk
    in one task.

    Tasks: for P chunks, P² tasks hand on a piece in every pass, up to 256 chunks: for 16 chunks of
    64-bit elements 1,024. For more chunks, pieces go through groups of chunks, by about
    ``2 * P**1.5`` tasks in every pass, and all keys are moved twice.

    The weakness of the method is that it moves data: in each pass nearly every key may go to
    another chunk, even if the data are sorted (III.C.2 of [1]_). Here nothing is moved if the keys
    are in order already, or in the pass of a digit that all keys have in common. Data that are
    nearly sorted are moved completely.

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
        raise TypeError(f"x must be a dask array, not {type(x).__name__}: pass da.from_array(x)")
    bits = operator.index(bits)
    if not 1 <= bits <= MOST_BITS:
        raise ValueError(f"bits must be from 1 to {MOST_BITS}, not {bits}")
    x = entered(x)
    radix.check_kind(x._meta)
    dtype = result_dtype(x.dtype, METHODS["lower"], weak_q=True)
    keys = each_chunk(radix.keys_of, "radix-sort-keys", [x], dtype=dtype)
    runs = each_chunk(radix.run_of, "radix-sort-runs", [keys])
    in_order = in_one_place([runs], _ascends, "radix-sort-ascends")
    for shift in range(0, radix.key_bits(dtype), bits):
        keys = _one_pass(keys, in_order, shift, bits)
    elements = each_chunk(radix.elements_of, "radix-sort", [keys], dtype=dtype)
    sizes = tuple(math.prod(block) for block in itertools.product(*x.chunks))
    meta = meta_from_array(x._meta, ndim=1, dtype=dtype)
    return DaskArray(elements.dask, elements.name, (sizes,), meta=meta)


def _ascends(runs: list[Run]) -> bool:
    """Return whether all keys ascend."""
    return joined_runs(runs).ascends


def _one_pass(keys: DaskArray, in_order: DaskArray, shift: int, bits: int) -> DaskArray:
    """Sort the keys by a digit; equal digits keep their order."""
    token = tokenize(keys.name, shift, bits)
    stages = Stages.of(keys.npartitions, (1,) * keys.npartitions, in_order=True)
    digit: dict[str, Any] = {"shift": shift, "bits": bits}
    counts = each_chunk(_histogram, "radix-sort-histogram", [keys], [in_order], **digit)
    cuts = in_one_place([counts], _scan, "radix-sort-scan")
    how = digit | {"block_ids": True, "grid": keys.numblocks, "steps": stages.steps}
    pieces = each_chunk(_split, "radix-sort-split", [keys], [cuts], **how)
    # The exchange has a task for each piece, which the scheduler moves to the worker that needs it,
    # as the simple shuffle of dask.dataframe does. Dask's own shuffles cannot be used:
    #
    # - dask.array.shuffle, slicing and rechunking (P2P or not) need each element's destination when
    #   the graph is built. Here it is known after the scan.
    # - The shuffles of dask.dataframe take the destination from a column of the data: one number
    #   more for each key, in pandas' memory and not the GPU's. P2P needs no P² tasks, but it runs
    #   only on distributed, and joins pieces as they arrive, while the sort by a digit must keep
    #   the order.
    # - The stages of dask.dataframe join pieces for several chunks in the order of their arrival.
    #   Ours keep the order of the chunks: see `exchange.Stages`.
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
        cuts=cuts,
        grouping=stages,
    )


def _histogram(keys: Any, in_order: bool, *, shift: int, bits: int) -> IntArray | None:
    """Count the values of a digit in a chunk; None if all keys are in order."""
    return None if in_order else radix.count_digit(keys, shift, bits)


def _scan(counts: list[IntArray | None]) -> IntArray | None:
    """Find where chunks are cut, from their histograms; None if all keys are in order."""
    table = [rows for rows in counts if rows is not None]
    return cut_positions(np.stack(table)) if table else None


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
    """Cut a chunk into pieces in the order of the digit, one for each group of chunks.

    If all keys are in order, its own group gets the whole chunk, and the others None.
    """
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
    """Cut the keys that a batch of chunks has sent to a group into pieces for its chunks."""
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


def _place(pieces: list[Any], shift: int, bits: int, are_ordered: bool) -> Any:  # noqa: FBT001
    """Return the keys of all pieces of a chunk, in the order of the digit.

    Keys with equal digits keep their order. With `are_ordered`, each piece is in that order
    already, because it comes from one chunk. Otherwise pieces went through groups, and are made of
    parts from several chunks.
    """
    given = [piece for piece in pieces if piece is not None]
    if len(given) < len(pieces):
        (whole,) = given  # nothing was moved
        return whole
    filled = [piece for piece in given if piece.shape[0]]
    keys = radix.joined(filled or given[:1])
    return keys if are_ordered and len(filled) <= 1 else radix.by_digit(keys, shift, bits)
