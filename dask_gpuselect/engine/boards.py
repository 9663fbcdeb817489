"""Boards on which tasks of one process share cuts, so that the first load can cache candidates.

The tasks of a load post the cuts of their chunks on a board. Later tasks read from it a guess of
the brackets, and cache the elements inside: see `maths.chunk_sample`. A board lives in one process,
as long as any partial result of its load does. No task waits for a board, and no answer depends on
it: a task that finds an empty board caches nothing.

The bytes that a process caches are bounded, summed over all boards.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self
from weakref import WeakValueDictionary, finalize

import numpy as np

from dask_gpuselect import forks
from dask_gpuselect.engine.graphs import worker_memory
from dask_gpuselect.engine.marks import NO_MARKS, Marks
from dask_gpuselect.engine.spill import Spilled, directory_of, spill_file
from dask_gpuselect.maths.chunk_sample import MOST_SAMPLED, ChunkSample, Guess
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, Tally, merge
from dask_gpuselect.maths.envelope import thinned
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ragged import CellTally
from dask_gpuselect.maths.rulers import Ruler

logger = logging.getLogger("dask_gpuselect")

# Most pivots of a chunk on a board, and of all chunks in a guess.
PIVOTS, ALL_PIVOTS = 1 << 9, 1 << 15
# Number of chunks that may guess alone. When every chunk did so until there was a common guess,
# images with varying cloud cover cached a tenth of all elements in vain and took 1.5× the time.
MOST_ALONE = 8

WORKER_SHARE = 10  # a worker of `distributed` caches at most 1 / WORKER_SHARE of its memory


NO_GUESS = Guess(None, 1.0, 1.0)


@dataclass(eq=False)
class Board:
    """The cuts of some chunks of an array, and the guess of the brackets that follows from them.

    Parameters
    ----------
    keep : callable
        Function from the cuts of all chunks to the brackets that their second load would gather.
    n_chunks : int
        Number of chunks of the array.
    share : int
        As for `sizes.pivot_count`.
    first : int
        Number of chunks after which the first guess is made.
    has_ruler : bool
        True if chunks that cache the elements inside a guess can be measured by a ruler.

    Attributes
    ----------
    guess : Guess
        The current guess of the brackets, from the chunks posted so far.
    """

    keep: Callable[[Cuts], Brackets]
    n_chunks: int
    share: int
    first: int = 2
    has_ruler: bool = True

    def __post_init__(self) -> None:
        self._more = math.isqrt(self.share)  # times as many pivots as for a single rank
        self._lock = threading.Lock()
        self._cuts_of: dict[int, Cuts] = {}
        self._next, self._is_guessing, self._are_alike = self.first, False, True
        self.guess = NO_GUESS

    def put(self, chunk: int, cuts: Cuts) -> Guess:
        """Post the cuts of a chunk, by its number, and return the current guess."""
        with self._lock:
            is_final = min(self.n_chunks, MOST_SAMPLED) < max(self._next, len(self._cuts_of) + 1)
            if is_final or chunk in self._cuts_of:
                return self.guess
            self._cuts_of[chunk] = self._thinned(cuts)
            is_due = len(self._cuts_of) >= self._next and not self._is_guessing
            if is_due:
                posted, before, self._is_guessing = dict(self._cuts_of), self.guess, True
        if not is_due:
            return self.guess
        guess = self._guessed(posted, before.ruler)
        with self._lock:
            self._is_guessing = False
            self._next = guess.next_after(len(posted))
            self._are_alike &= not guess.is_far
            if self.guess.ruler is None and before.ruler is not None:  # dropped in the meantime
                guess = replace(guess, ruler=None)
            self.guess = guess = guess.or_before(self.guess)
        return guess

    def guess_for(self, cuts: Cuts) -> Guess:
        """Return the guess for a chunk with these cuts.

        Before there is a common guess, this is a guess by the chunk alone, until chunks turn out to
        differ.
        """
        is_alone = self.guess is NO_GUESS and len(self._cuts_of) <= MOST_ALONE
        if not is_alone or not self._are_alike:
            return self.guess
        return ChunkSample(cuts, np.zeros(1, np.int64), self.n_chunks).guess_alone(self.keep)

    def drop_ruler(self, ruler: Ruler) -> None:
        """Stop measuring chunks by a ruler that was too coarse for one of them."""
        with self._lock:
            if self.guess.ruler is ruler:
                self.guess = replace(self.guess, ruler=None)
                self._next = 2 * len(self._cuts_of) + 1

    def _guessed(self, sampled: dict[int, Cuts], ruler: Ruler | None) -> Guess:
        places = sorted(sampled)
        parts = [sampled[place] for place in places]
        cuts = merge(parts)
        sample = ChunkSample(cuts, np.array(places, np.int64), self.n_chunks)
        guess = sample.guess(self.keep, ALL_PIVOTS * self._more)
        if guess.brackets is None or not guess.brackets.is_whole or not self.has_ruler:
            return guess
        return replace(guess, ruler=sample.ruler(self.share) if ruler is None else ruler)

    def _thinned(self, cuts: Cuts) -> Cuts:
        return thinned(cuts, max(-(-len(cuts.pivots) // (PIVOTS * self._more)), 1))


_boards: WeakValueDictionary[str, Board] = WeakValueDictionary()
_boards_lock = forks.lock()


def board(name: str, *how: Any) -> Board:
    """Return the board of that name in this process, or make one from the parameters of `Board`.

    The board lives as long as somebody refers to it.
    """
    with _boards_lock:
        own = _boards.get(name)
        if own is None:
            own = _boards[name] = Board(*how)
        return own


# --- Cached results -----------------------------------------------------------------------------


class Room:
    """The number of bytes that a process uses for what it caches."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._taken = 0
        # The garbage collector may call `give_back` at any time, in a thread that holds any lock.
        # So `give_back` takes no lock: two locks in different orders could deadlock around a fork.
        self._returned: deque[int] = deque()

    @property
    def taken(self) -> int:
        with self._lock:
            while self._returned:
                self._taken -= self._returned.popleft()
            return self._taken

    def take(self, n: int, limit: float) -> bool:
        """Reserve `n` bytes if the total stays within the limit, and return whether it did."""
        with self._lock:
            fits = self.taken + n <= limit
            self._taken += n if fits else 0
            return fits

    def give_back(self, n: int) -> None:
        self._returned.append(n)


room = Room()
"""The `Room` of this process."""


class Hold:
    """A reservation of bytes that lasts as long as this object."""

    def __init__(self, n: int) -> None:
        finalize(self, room.give_back, n)

    @classmethod
    def of(cls, n: int, limit: float) -> Hold | None:
        """Reserve `n` bytes; return None if there is no room."""
        return cls(n) if room.take(n, limit) else None


@dataclass(frozen=True)
class Limits:
    """Limits of what may be cached, in memory and on disk.

    Parameters
    ----------
    n_bytes : int
        Bytes in the memory of a process.
    spill : str or None
        Directory for what exceeds that, "" for dask's. None if nothing is cached on disk.
    """

    n_bytes: int
    spill: str | None

    def of_process(self) -> float:
        """Return the number of bytes that this process may cache in memory."""
        return min(self.n_bytes, worker_memory() / WORKER_SHARE)


@cache
def _log_unwritable(directory: str, error: str) -> None:
    """Log once for each directory that nothing can be written there."""
    message = "chunks that do not fit into memory are not kept on disk in %s, but read again: %s"
    logger.warning(message, directory, error)


@dataclass(frozen=True, eq=False)
class Cached(Arrays):
    """Cached tally of a chunk at guessed brackets, from the first load.

    Parameters
    ----------
    brackets : Brackets
        Brackets that were guessed.
    tally : Tally or CellTally
        Tally of the chunk at these brackets; without candidates if they are on disk.
    hold : Hold or None
        Reservation for the candidates in memory.
    spilled : tuple of Spilled
        The columns of the candidates, if they are on disk.
    sums : Moments or None
        Exact sums, if the question wants them.
    marks : ndarray of uint64
        Fingerprints of the chunk, for a question that may have one load more.
    """

    brackets: Brackets
    tally: Any
    hold: Hold | None
    spilled: tuple[Spilled, ...] = ()
    sums: Moments | None = None
    marks: Marks = field(default_factory=lambda: NO_MARKS)

    @classmethod
    def of(cls, brackets: Brackets, tally: Tally | CellTally, limits: Limits) -> Self | None:
        """Cache a tally; return None if there is no room.

        Candidates that do not fit into memory are written to disk.
        """
        if hold := Hold.of(tally.candidate_bytes, limits.of_process()):
            return cls(brackets, tally, hold)
        if limits.spill is None:
            return None
        columns = tally.columns()
        directory = directory_of(limits.spill)
        try:
            file = spill_file("kept", directory)
            spilled = tuple(file.write(column) for column in columns)
        except OSError as error:
            # The answer does not depend on the cache: a chunk that is not cached is loaded again.
            _log_unwritable(directory, error.strerror or str(error))
            return None
        rest = tally.with_columns([column[:0] for column in columns])
        return cls(brackets, rest, None, spilled)

    def whole(self) -> Any:
        """Return the tally with its candidates."""
        if not self.spilled:
            return self.tally
        return self.tally.with_columns([column.read() for column in self.spilled])

    def __reduce__(self) -> tuple[Any, ...]:
        return _brought, (self.brackets, self.whole(), self.sums, self.marks)


def _brought(brackets: Brackets, tally: Any, sums: Moments | None, marks: Marks) -> Cached:
    """Make the cache of a tally that came from another process, even beyond the limit."""
    hold = Hold.of(tally.candidate_bytes, np.inf)
    return Cached(brackets, tally, hold, sums=sums, marks=marks)
