"""Fingerprints of chunks, which tell whether a chunk that is read again has changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from dask_gpuselect.arrays import is_cupy, to_host, usual
from dask_gpuselect.kernels.companions import Accompanied, as_words, values_of, without_repeats
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.kernels.registry import backend_for

BegunFingerprint = Any
"""A fingerprint that a device may still be computing. Its `words` are an array of the device."""


@one_way
def begun_fingerprint(chunk: Any, *, ordered: bool = True) -> int | BegunFingerprint:
    """Start a 64-bit fingerprint of a chunk: its shape, its dtype and every bit of it.

    `ended_fingerprints` finishes it; until then, nothing waits for a device. The elements are taken
    in C order if `ordered`, else in any order, each with its companions.

    A chunk that is read twice has the same fingerprint, wherever its elements and its companions
    lie in memory, and whether or not they are broadcast views. Another chunk has the same one with
    a probability of 2**-64, unless it was made for that: this is no cryptographic hash. Zeros of
    opposite sign differ, and so do NaN with different bits. If elements and their companions have
    only changed places, the fingerprint differs only if `ordered`.

    It reads the chunk once, and copies it only if it is `ordered` and not in C order. 1e6 float64
    take 0.9 ms if ordered and 1.0 if not, a thirtieth of what `cuts` takes; 1e6 uint8 take 0.2 and
    0.7 ms, and 1e6 float64 with a mask 1.1 and 2.2 (medians of 41 runs in turn).
    """
    if not ordered:
        return _begun_sum(_arrays_of(chunk))
    if isinstance(chunk, Accompanied):
        return _fingerprint_of_all(chunk)
    return backend_for(chunk).fingerprints.begun(_mixed_form(0, chunk), chunk)


@one_way
def fingerprint_of_rows(columns: Sequence[Any]) -> int:
    """Return the fingerprint of the rows of some columns, in any order.

    The columns have one length and may be `Accompanied`.
    """
    arrays = [array for column in columns for array in _arrays_of(column)]
    (bits,) = ended_fingerprints([_begun_sum(arrays)])
    return bits


def ended_fingerprints(begun: Sequence[int | BegunFingerprint]) -> list[int]:
    """Finish all of these fingerprints; the host waits once."""
    waiting = [each for each in begun if not isinstance(each, int)]
    if not waiting:
        return [each for each in begun if isinstance(each, int)]
    ended = iter(backend_for(waiting[0].words).fingerprints.ended(waiting))
    return [each if isinstance(each, int) else next(ended) for each in begun]


def _fingerprint_of_all(chunk: Accompanied) -> int:
    """Return the fingerprint of a chunk with its companions, in C order."""
    *companions, values = _arrays_of(chunk)
    start = 0
    # Companions are reduced to size 1 along axes along which they repeat themselves, whether they
    # are broadcast views or not: a broadcast mask then costs little.
    for array in (values, *map(without_repeats, companions)):
        start = backend_for(array).fingerprints.mixed_in(_mixed_form(start, array), array)
    return start


def _begun_sum(arrays: Sequence[Any]) -> int | BegunFingerprint:
    """Start the fingerprint of the elements at the same places of some arrays, in any order.

    `ended_fingerprints` finishes it.
    """
    if not all(map(is_cupy, arrays)):
        arrays = [to_host(array) for array in arrays]
    words = [each for array in arrays for each in as_words(array)]
    start = reduce(_mixed_form, arrays, 0)
    return backend_for(words[-1]).fingerprints.summed(start, words)


def _arrays_of(chunk: Any) -> list[Any]:
    """Return the companions of a chunk, followed by its elements."""
    companions = chunk.companions.values() if isinstance(chunk, Accompanied) else ()
    return [*map(_as_hashed, companions), values_of(chunk)]


def _as_hashed(companion: Any) -> Any:
    """Return a companion in the form that its fingerprint is made from."""
    companion = usual(companion)
    if companion.dtype.kind == "f" and companion.dtype.itemsize > 8:
        # Weights are used as float64, and padding bytes of long double may hold anything.
        companion = companion.astype(np.float64)
    return companion


def _mixed_form(start: int, chunk: Any) -> int:
    return _mixed_about(start, tuple(map(int, chunk.shape)), str(chunk.dtype))


@lru_cache
def _mixed_about(start: int, shape: tuple[int, ...], dtype: str) -> int:
    """Return a fingerprint of a shape and a dtype; cached, since most chunks share them."""
    head = np.frombuffer(repr((shape, dtype)).encode(), np.uint8)
    answer: int = backend_for(head).fingerprints.mixed_in(start, head)
    return answer
