"""Fingerprints of NumPy chunks: as fast as memory is read, once Numba has compiled them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.compiling import kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.draws import mixed_word

MASK = (1 << 64) - 1
STATES = 1024  # states that take words in turn: enough for NumPy to mix them in one call
LAST = 8
PIECE = 1 << 15  # elements that are summed at a time: they and their scratch stay in a cache
# The odd constants of Steele, Lea and Flood's SplitMix64 (2014), and 2**64 divided by the golden
# ratio.
ODD, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MOST_IN_TURN = 32  # arrays; NumPy's iterators take 32, or 64 in later versions

Words = NDArray[np.uint64]


def mixed_in(start: int, chunk: Any) -> int:
    """Return 64 bits that depend on a number and on all bytes of a chunk, in C order.

    States take the words in turn. Then every eighth state is joined by xor, and the eight results
    are mixed one after the other.
    """
    given = np.require(to_host(chunk), requirements=["C", "A"]).reshape(-1).view(np.uint8)
    n_words = len(given) // 8
    states = _first_states(start, min(STATES, max(n_words, 1)))
    _mix(given[: 8 * n_words].view(np.uint64), states)
    # States are hashed before they are combined: otherwise changes of the highest bits of two
    # elements now and then cancelled.
    ended = np.zeros(-(-len(states) // LAST) * LAST, np.uint64)
    ended[: len(states)] = mixed_word(states)
    states = np.bitwise_xor.reduce(ended.reshape(-1, LAST), axis=0)
    word = mixed(int.from_bytes(given[8 * n_words :].tobytes(), "little") ^ len(given))
    for state in states.tolist():
        word = mixed(((word ^ state) * ODD) & MASK)
    return word


def summed(start: int, columns: Sequence[Any]) -> int:
    """Return 64 bits that depend on a number and on the elements of some arrays, in any order.

    The elements at the same place of all arrays are hashed together; the place itself is not.

    Parameters
    ----------
    columns : sequence of array
        At least one array of unsigned integers; all have one shape.
    """
    return mixed((start ^ _sum([to_host(each) for each in columns])) & MASK)


def mixed(word: int) -> int:
    """Hash a word by the last step of SplitMix64: every bit depends on all bits of the word."""
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


def _first_states(start: int, n: int) -> Words:
    answer: Words = mixed_word(np.arange(1, n + 1, dtype=np.uint64) * ODD + np.uint64(start & MASK))
    return answer


def _mix_by_numpy(words: Words, states: Words) -> None:
    """Mix words into states by NumPy; see `_mix`."""
    up, down, odd = np.uint64(29), np.uint64(35), np.uint64(ODD)
    for start in range(0, len(words), len(states)):
        some = states[: len(words) - start]
        some ^= words[start : start + len(states)]
        high = some << up
        some >>= down
        some |= high
        some *= odd


def _pieces(columns: Sequence[NDArray[Any]]) -> Iterator[list[NDArray[Any]]]:
    """Yield all elements of some arrays of one shape, a few at a time, as contiguous arrays."""
    in_place = all(each.flags.c_contiguous and each.flags.aligned for each in columns)
    if in_place or len(columns) > MOST_IN_TURN:
        flat = [np.require(each, requirements=["C", "A"]).reshape(-1) for each in columns]
        for i in range(0, flat[0].size, PIECE):
            yield [each[i : i + PIECE] for each in flat]
        return
    flags: Any = ["external_loop", "buffered", "zerosize_ok"]
    each: Any = [["readonly", "contig", "aligned"]] * len(columns)
    pieces: Any = np.nditer(list(columns), flags, each, order="K", buffersize=PIECE)
    for piece in pieces:
        yield list(piece) if len(columns) > 1 else [piece]


def _sum(columns: Sequence[NDArray[Any]]) -> int:
    """Sum the hashes of the elements at each place, modulo 2**64."""
    last, total = len(columns) - 1, 0
    hashes = np.zeros(PIECE, np.uint64)
    for piece in _pieces(columns):
        own = hashes[: len(piece[0])]
        for i, words in enumerate(piece):
            sum_ = _hash(words, i > 0, i == last, own)
        total += int(sum_)
    return total & MASK


def _hash_by_numpy(words: Words, has_others: bool, is_last: bool, hashes: Words) -> Any:
    """Hash words by NumPy; see `_hash`."""
    hashes[:] = mixed_word((hashes if has_others else np.uint64(0)) ^ words)
    return hashes.sum(dtype=np.uint64) if is_last else 0


@until_compiled(_hash_by_numpy)
@kernel_of("u8 u4 u2 u1")
def _hash(words: t.Values, has_others: bool, is_last: bool, hashes: t.LongWords) -> Any:
    """Hash words together with the hashes of others at their places, if there are any.

    The hashes of the last words are summed and not written.
    """
    total = np.uint64(0)
    for i in range(words.size):
        word = mixed_word((hashes[i] if has_others else np.uint64(0)) ^ np.uint64(words[i]))
        if is_last:
            total += word
        else:
            hashes[i] = word
    return total


@until_compiled(_mix_by_numpy)
@kernel_of("u8")
def _mix(words: t.Values, states: t.Out) -> None:
    """Mix words into states in place: each state takes every n-th word, n being their number."""
    up, down = np.uint64(29), np.uint64(35)
    odd = np.uint64(0x9E3779B97F4A7C15)
    for start in range(0, words.size, states.size):
        run = words[start : start + states.size]  # contiguous, as the compiler sees
        for i in range(run.size):
            one = states[i] ^ run[i]
            states[i] = ((one << up) | (one >> down)) * odd
