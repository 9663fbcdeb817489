"""The rows of X and y, plain or in chunks, and passes over them that read every chunk once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.arrays import as_float64, concatenate, in_kind, namespace, to_host
from dask_gpuselect.engine import threads
from dask_gpuselect.engine.graphs import each_chunk, in_one_place, literals, reduced
from dask_gpuselect.engine.marks import KnownChunks, Marks, marks_of
from dask_gpuselect.engine.source import DaskArray, blockwise
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.cuts import ADVICE, ChunksChangedError, Cuts, FloatArray, IntArray
from dask_gpuselect.maths.fits.concentration import ResidualSums
from dask_gpuselect.maths.fits.designs import Design
from dask_gpuselect.quiet import outside, quiet

T = TypeVar("T")
Merge = Callable[[list[T]], T]


# --- Passes ---------------------------------------------------------------------------------------


def sample(rows: Rows, places: IntArray) -> tuple[Any, Any]:
    """Return the rows at some ascending places, in float64, and check that all rows are finite.

    Shapes (len(places), p) and (len(places),).
    """
    starts = np.cumsum([0, *rows.sizes])
    bounds = np.searchsorted(places, starts)
    own = [(i, places[bounds[i] : bounds[i + 1]] - starts[i]) for i in range(len(rows.sizes))]
    table = rows.at_hand(rows.run(_sample, partial(concatenate, axis=0), own, stays=rows.stays))
    return table[:, :-1], table[:, -1]


def _sample(x: Any, y: Any, own: tuple[int, IntArray], *, stays: bool) -> Any:
    """Take some rows of a chunk, and raise unless all its rows are finite."""
    number, places = own
    for name, values in (("X", x), ("y", y)):
        if not kernels.is_finite(values):
            raise ValueError(
                f"Input {name} contains NaN or infinity, in chunk {number}: leave out these rows"
            )
    some = kernels.taken(x, places), kernels.taken(y, places)[:, None]
    if not stays:
        some = to_host(some[0]), to_host(some[1])
    return concatenate([as_float64(each) for each in some], axis=1)


def tallies(rows: Rows, **about: Any) -> list[ResidualSums]:
    """Tally all rows for each of some fits, by the arguments of `kernels.residuals.row_tallies`."""
    return rows.run(_tallies, partial(_fit_by_fit, ResidualSums.merge), stays=rows.stays, **about)


def _tallies(x: Any, y: Any, own: None, *, stays: bool, **about: Any) -> list[ResidualSums]:
    """Tally the rows of a chunk for each of some fits."""
    tallied = backend_for(x).residuals.row_tallies(x, y, **about)
    return tallied if stays else [replace(each, rows=to_host(each.rows)) for each in tallied]


def _fit_by_fit(merge: Merge[T], parts: list[list[T]]) -> list[T]:
    """Merge the partial results of several chunks, each of which has one for every fit."""
    return [merge(list(of_one)) for of_one in zip(*parts, strict=True)]


def cuts(rows: Rows, design: Design, thetas: FloatArray) -> list[Cuts]:
    """Return the cuts of the absolute residuals of each of some fits."""
    return rows.run(_cuts, partial(_fit_by_fit, Cuts.merge), design=design, thetas=thetas)


def _cuts(x: Any, y: Any, own: None, *, design: Design, thetas: FloatArray) -> list[Cuts]:
    """Return the cuts of a chunk's absolute residuals, for each of some fits."""
    kernel = backend_for(x).residuals
    sizes = (kernel.absolute_residuals(x, y, design, theta) for theta in thetas)
    return [kernels.cuts(size, np.dtype(np.float64), 1) for size in sizes]


# --- Rows in memory -------------------------------------------------------------------------------


class PlainRows:
    """The rows of plain arrays. Several threads share the rows of NumPy arrays.

    Attributes
    ----------
    p : int
        Number of columns of X.
    sizes : list of int
        Number of rows of each chunk.
    n_passes : int
        Number of passes so far.
    stays : bool
        True if the rows that a pass gathers stay where they are, maybe on a device. Otherwise they
        are copied to the host.
    """

    stays = True

    def __init__(self, x: Any, y: Any) -> None:
        self.n_passes = 0
        n, p = x.shape
        self.p = p
        n_pieces = threads.threads_for(x, n * p, "elements of rows")
        bounds = [n * i // n_pieces for i in range(n_pieces + 1)]
        self.sizes = [b - a for a, b in itertools.pairwise(bounds)]
        self.pieces = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(bounds)]

    def run(
        self, measure: Callable[..., T], merge: Merge[T], own: Sequence[Any] = (), **arguments: Any
    ) -> T:
        """Measure all chunks by ``measure(x, y, own, **arguments)``, and merge the results.

        Each chunk may have an argument of its own. Results are merged in the order of the chunks.
        """
        self.n_passes += 1

        def of_piece(piece: tuple[tuple[Any, Any], Any]) -> T:
            rows, mine = piece
            return measure(*rows, mine, **arguments)

        pieces = zip(self.pieces, own or [None] * len(self.pieces), strict=True)
        return merge(threads.each(of_piece, pieces, len(self.pieces)))

    def at_hand(self, table: Any) -> Any:
        """Move a table of rows to where they are fitted: on a device if the rows are CuPy's."""
        return table

    def mapped(self, function: Callable[..., Any], label: str, **arguments: Any) -> Any:
        """Return the array of ``function(x, y, **arguments)``, a bool for every row.

        It is lazy if the rows are, and its name then begins with `label`.
        """
        parts = [function(*piece, **arguments) for piece in self.pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


# --- Rows in chunks -------------------------------------------------------------------------------


Own = tuple[int, int, tuple[int, ...] | None, Any]
"""The knowledge of a task about its chunk.

It has the chunk's number, its number of rows (-1 if unknown), the marks of X and y (None before the
first pass), and a value for this chunk alone.
"""


def _checked_marks(x: Any, y: Any, own: Own) -> Marks:
    """Return the marks of both chunks, or raise if they have changed since the first pass."""
    number, size, marks_before, _ = own
    if len(x) != len(y):
        raise ValueError(
            f"chunk {number} of X has {len(x)} rows, and that of y has {len(y)}: they must have "
            "the same chunks of rows"
        )
    if size not in (-1, len(x)):
        raise ChunksChangedError(
            f"chunk {number} of X has {len(x)} rows, and had {size} before. {ADVICE}"
        )
    marks = marks_of([x, y], ordered=True)
    for name, known, now in zip("Xy", marks_before or marks.tolist(), marks.tolist(), strict=True):
        if known != now:
            raise ChunksChangedError(
                f"chunk {number} of {name} had other rows in a later read than in the first. "
                f"{ADVICE}"
            )
    return marks


class LazyRows:
    """The rows of dask arrays in the same chunks, with all columns in each chunk.

    Attributes and methods are those of `PlainRows`.
    """

    stays = False  # they may come from other processes

    def __init__(self, x: DaskArray, y: DaskArray) -> None:
        self.x, self.y, self.p, self.n_passes = x, y[:, None], x.shape[1], 0
        self.marks: list[tuple[int, ...] | None] = [None] * x.numblocks[0]
        self.sizes = [-1] * x.numblocks[0]
        if math.isnan(sum(x.chunks[0]) + sum(y.chunks[0])):
            self.sizes = self.run(_size, np.concatenate).tolist()
        else:
            self.sizes = list(x.chunks[0])

    def run(
        self, measure: Callable[..., T], merge: Merge[T], own: Sequence[Any] = (), **arguments: Any
    ) -> T:
        self.n_passes += 1
        label = f"robust{measure.__name__.replace('_', '-')}"
        each = literals(f"{label}-own", self._about(own), (len(self.sizes), 1))
        grids = [self.x, self.y, each]
        parts = each_chunk(_of_chunk, label, grids, measure=measure, arguments=arguments)
        merge_all = partial(KnownChunks.merge, merge)
        merged = reduced(parts, merge_all, merge_all, f"{label}-all")
        with outside():  # the sources are the user's
            merged_value: KnownChunks = merged.compute()
        self.marks = [(int(x), int(y)) for x, y in merged_value.marks.reshape(-1, 2)]
        result: T = merged_value.value
        return result

    def at_hand(self, table: Any) -> Any:
        return in_kind(table, self.x._meta)

    def mapped(self, function: Callable[..., Any], label: str, **arguments: Any) -> Any:
        meta = namespace(self.x._meta).zeros((0,), dtype=bool)
        token = tokenize(self.x.name, self.y.name, self.sizes, self.marks, list(arguments.items()))
        about = self._about(())
        own = literals(f"{label}-own-{token}", about, (len(about),))
        rows = (self.x, (0, 1), self.y, (0, 1), own, (0,))
        how = {"name": f"{label}-{token}", "dtype": bool, "meta": meta, "align_arrays": False}
        return blockwise(
            _of_rows, (0,), *rows, function=function, concatenate=True, **how, **arguments
        )

    def _about(self, own: Sequence[Any]) -> list[Own]:
        """Return what each task knows of its chunk."""
        own = own or [None] * len(self.sizes)
        return list(zip(range(len(own)), self.sizes, self.marks, own, strict=True))


Rows = PlainRows | LazyRows
"""The rows of X and y that can be passed over."""


def _of_chunk(
    x: Any, y: Any, own: Own, *, measure: Callable[..., T], arguments: dict[str, Any]
) -> KnownChunks:
    """Measure a chunk, and return the result with the chunk's marks."""
    marks, value = _checked_marks(x, y, own), own[-1]
    return KnownChunks(measure(x, y[:, 0], value, **arguments), marks)


@quiet()
def _of_rows(x: Any, y: Any, own: Own, *, function: Callable[..., Any], **arguments: Any) -> Any:
    """Apply a function to the rows of a chunk that has not changed."""
    _checked_marks(x, y, own)
    return function(x, y[:, 0], **arguments)


def _size(x: Any, y: Any, own: None) -> IntArray:
    """Return the number of rows of a chunk."""
    return np.array([len(x)])


# --- One read, of rows that were not read before --------------------------------------------------


def squares(x: DaskArray, y: DaskArray, predict: Callable[[Any], Any]) -> FloatArray:
    """Return the sums of squares that a coefficient of determination needs, for each chunk.

    Columns of the result, ``(chunks, 4)``: the number of rows, the mean of y, and the sums of the
    squares of y's distances from that mean and from the predictions.
    """
    parts = each_chunk(_squares, "robust-squares", [x, y[:, None]], predict=predict)
    every = in_one_place([parts], np.concatenate, "robust-squares-all")
    with outside():  # the sources are the user's
        sums: FloatArray = every.compute()
    return sums


def _squares(x: Any, y: Any, *, predict: Callable[[Any], Any]) -> FloatArray:
    """Return the row of `squares` of one chunk."""
    values = as_float64(y[:, 0])
    residual, n = values - predict(x), len(values)
    mean = float(values.mean()) if n else 0.0
    distance = values - mean
    return np.array([[n, mean, float(distance @ distance), float(residual @ residual)]])
