"""Fingerprints of NumPy chunks, compiled by Numba: as fast as memory is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import jit, once

MASK = (1 << 64) - 1
STATES = 8
# The odd constants of Steele, Lea and Flood's SplitMix64 (2014), and 2**64 divided by the golden
# ratio.
ODD, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed_in(start: int, chunk: NDArray[Any]) -> int:
    """64 bits that a number and the bytes of a chunk, in C order, have a part in: by eight states
    that take a word in turn; then the states, one after another."""
    given = np.require(chunk, requirements=["C", "A"]).reshape(-1).view(np.uint8)
    n_words = len(given) // 8
    states = np.array([mixed((start + (i + 1) * ODD) & MASK) for i in range(STATES)], np.uint64)
    if n_words:
        _compiled()(given[: 8 * n_words].view(np.uint64), states)
    found = mixed(int.from_bytes(given[8 * n_words :].tobytes(), "little") ^ len(given))
    for state in states.tolist():
        found = mixed(((found ^ state) * ODD) & MASK)
    return found


def mixed(word: int) -> int:
    """A word all of whose bits depend on all bits of another: SplitMix64's last step."""
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


@once
def _compiled() -> Any:
    words = types.Array(types.uint64, 1, "C", readonly=True)
    return jit(_mix, (words, types.Array(types.uint64, 1, "C")))


def _mix(words: Any, states: Any) -> None:
    # Eight chains, for each step of one waits for the step before it.
    a, b, c, d = states[0], states[1], states[2], states[3]
    e, f, g, h = states[4], states[5], states[6], states[7]
    odd = np.uint64(0x9E3779B97F4A7C15)
    up, down = np.uint64(29), np.uint64(35)
    n = len(words)
    whole = n - n % 8
    for i in range(0, whole, 8):
        a, b, c, d = a ^ words[i], b ^ words[i + 1], c ^ words[i + 2], d ^ words[i + 3]
        e, f, g, h = e ^ words[i + 4], f ^ words[i + 5], g ^ words[i + 6], h ^ words[i + 7]
        a, b = ((a << up) | (a >> down)) * odd, ((b << up) | (b >> down)) * odd
        c, d = ((c << up) | (c >> down)) * odd, ((d << up) | (d >> down)) * odd
        e, f = ((e << up) | (e >> down)) * odd, ((f << up) | (f >> down)) * odd
        g, h = ((g << up) | (g >> down)) * odd, ((h << up) | (h >> down)) * odd
    states[0], states[1], states[2], states[3] = a, b, c, d
    states[4], states[5], states[6], states[7] = e, f, g, h
    for i in range(whole, n):
        one = states[i - whole] ^ words[i]
        states[i - whole] = ((one << up) | (one >> down)) * odd
