"""Fingerprints of NumPy chunks: as fast as memory is read, once Numba has compiled them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import Types, compiles, types, until_compiled

MASK = (1 << 64) - 1
STATES = 1024  # each takes every so many words: enough for NumPy to mix them in one call
LAST = 8
# The odd constants of Steele, Lea and Flood's SplitMix64 (2014), and 2**64 divided by the golden
# ratio.
ODD, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Words = NDArray[np.uint64]


def mixed_in(start: int, chunk: NDArray[Any]) -> int:
    """64 bits that a number and the bytes of a chunk, in C order, have a part in: by states that
    take a word in turn; then the states, of which each eighth is joined."""
    given = np.require(chunk, requirements=["C", "A"]).reshape(-1).view(np.uint8)
    n_words = len(given) // 8
    states = _first_states(start, min(STATES, max(n_words, 1)))
    _mix(given[: 8 * n_words].view(np.uint64), states)
    # States are mixed well before they are joined: as they are, changes of the highest bits of two
    # elements undid each other now and then.
    ended = np.zeros(-(-len(states) // LAST) * LAST, np.uint64)
    ended[: len(states)] = _mixed_each(states)
    states = np.bitwise_xor.reduce(ended.reshape(-1, LAST), axis=0)
    found = mixed(int.from_bytes(given[8 * n_words :].tobytes(), "little") ^ len(given))
    for state in states.tolist():
        found = mixed(((found ^ state) * ODD) & MASK)
    return found


begun = mixed_in  # they are never on their way
ended = list


def mixed(word: int) -> int:
    """A word all of whose bits depend on all bits of another: SplitMix64's last step."""
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


def _mixed_each(words: Words) -> Words:
    """`mixed` of each."""
    for shift, factor in ((30, FIRST), (27, SECOND)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def _first_states(start: int, n: int) -> Words:
    return _mixed_each(np.arange(1, n + 1, dtype=np.uint64) * np.uint64(ODD) + _word(start))


def _word(number: int) -> np.uint64:
    return np.uint64(number & MASK)


def _mix_by_numpy(words: Words, states: Words) -> None:
    """See `_mix_words`."""
    up, down, odd = np.uint64(29), np.uint64(35), np.uint64(ODD)
    for start in range(0, len(words), len(states)):
        some = states[: len(words) - start]
        some ^= words[start : start + len(states)]
        high = some << up
        some >>= down
        some |= high
        some *= odd


@until_compiled(_mix_by_numpy)
def _mix(words: Words, states: Words) -> None:
    """Mix words into states, in place: each takes every so many of them, in turn."""
    _compiled(_mix_words, words.dtype)(words, states)


@compiles
def _compiled(words: types.Array, states: types.Array) -> Types:
    return {_mix_words: (words, states)} if words.dtype == types.uint64 else {}


def _mix_words(words: Any, states: Any) -> None:
    up, down = np.uint64(29), np.uint64(35)
    odd = np.uint64(0x9E3779B97F4A7C15)
    for start in range(0, words.size, states.size):
        run = words[start : start + states.size]  # whose places the compiler sees to be in order
        for i in range(run.size):
            one = states[i] ^ run[i]
            states[i] = ((one << up) | (one >> down)) * odd
