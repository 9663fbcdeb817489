"""Elements of NumPy chunks: counted between pivots, and gathered between the ends of brackets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, words_of
from dask_gpuselect.kernels.compiling import Types, compiles, types, until_compiled
from dask_gpuselect.kernels.cpu.cells import cuts
from dask_gpuselect.kernels.cpu.rulers import tally_by_ruler
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.cpu.word_counts import count_words, is_word, words_at
from dask_gpuselect.maths.cuts import IntArray, Tally
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.value_counts import ValueCounts

__all__ = [
    "cuts",
    "elements_of",
    "kept",
    "merged",
    "tally",
    "tally_by_ruler",
    "tally_in_place",
    "value_counts",
]

PIECE = 1 << 20  # elements that NumPy takes at once, for it makes copies

tally_in_place = tally  # this is the host
merged = Tally.merge


def elements_of(chunk: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """The elements of a chunk without NaT, and the number of NaT: a view of a contiguous chunk of a
    dtype that is compared as it is."""
    return without_nat(flat(chunk, dtype), dtype)


def without_nat(values: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """Elements of some dtype, as they are compared, without NaT; and the number of NaT."""
    if dtype.kind not in "Mm":
        return values, 0
    is_valid = values != np.iinfo(np.int64).min  # NaT
    n_nat = len(values) - int(np.count_nonzero(is_valid))
    return (values[is_valid], n_nat) if n_nat else (values, 0)


def flat(chunk: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """All elements of a chunk, as they are compared: in C order if it is contiguous in that."""
    values = np.asarray(chunk, dtype).ravel(order="K")
    if dtype.kind in "bMm":
        values = values.astype(dtype.newbyteorder("="), copy=False).view(selection_dtype(dtype))
    return np.require(values, selection_dtype(dtype), ["C", "A"])


def kept(chunk: Accompanied, dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """Those elements of a chunk that take part; see `reference.selection.kept`."""
    if chunk.keeps is None:
        return elements_of(chunk.values, dtype)
    if not (chunk.values.flags.c_contiguous and chunk.keeps.flags.c_contiguous):
        return elements_of(chunk.values[chunk.keeps], dtype)
    values = flat(chunk.values, dtype)
    found = np.empty_like(values)
    n = _compact_into(found, values, chunk.keeps.reshape(-1))
    return without_nat(found[:n], dtype)


def _compact_by_numpy(found: NDArray[Any], values: NDArray[Any], keeps: NDArray[np.bool_]) -> int:
    n = 0
    for i in range(0, values.size, PIECE):
        some = values[i : i + PIECE][keeps[i : i + PIECE]]
        found[n : n + some.size] = some
        n += some.size
    return n


@until_compiled(_compact_by_numpy)
def _compact_into(found: NDArray[Any], values: NDArray[Any], keeps: NDArray[np.bool_]) -> int:
    n: int = _compiled(_compact, values.dtype)(values, keeps, found)
    return n


def value_counts(chunk: NDArray[Any] | Accompanied, dtype: np.dtype[Any]) -> ValueCounts:
    """How often each value occurs; see `reference.selection.value_counts`."""
    words, _ = words_of(chunk, dtype, kept, elements_of)
    return ValueCounts.of_words(*_occurring(words, 1 << 8 * dtype.itemsize), dtype)


def _occurring_by_numpy(words: NDArray[Any], n_words: int) -> tuple[IntArray, IntArray]:
    table = np.zeros(n_words, np.int64)
    for i in range(0, words.size, PIECE):
        table += np.bincount(words[i : i + PIECE], minlength=n_words)
    places = np.flatnonzero(table)
    return places, table[places]


@until_compiled(_occurring_by_numpy)
def _occurring(words: NDArray[Any], n_words: int) -> tuple[IntArray, IntArray]:
    """The words that occur, in any order, and how often, of so many that there are."""
    counts = np.zeros(n_words, np.int64)
    _counting(_count_words, words.dtype)(words, counts)
    places = np.flatnonzero(counts)
    return words_at(places, n_words), counts[places]


def _count_words(words: Any, counts: Any) -> None:
    count_words(words, counts)


@compiles
def _counting(words: types.Array, _: types.Array) -> Types:
    counts = types.Array(types.int64, 1, "C")
    return {_count_words: (words, counts)} if is_word(words.dtype) else {}


def _compact(values: Any, keeps: Any, found: Any) -> int:
    """Move what is kept to the front of `found`, without branches: a fifth of the time of a mask
    as an index where the mask is random. Returns how many that are."""
    n = 0
    for i in range(values.size):
        found[n] = values[i]  # the next one overwrites it unless it is kept
        n += keeps[i]
    return n


@compiles
def _compiled(values: types.Array, scratch: types.Array) -> Types:
    keeps = types.Array(types.bool_, 1, "C", readonly=True)
    return {_compact: (values, keeps, scratch)}
