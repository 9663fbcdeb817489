"""What the tasks of one process tell each other, so that a load keeps what another would want.

A load's tasks put the cuts of their chunks on a board, and the next ones read there what to keep:
see `maths.seen`. A board lives in one process, and as long as any report of its load does. So
nobody waits for anything, and no answer depends on it: who finds an empty board keeps nothing.

What is kept in a process is bounded, whatever boards there are.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import forks
from dask_gpuselect.engine.graphs import worker_memory
from dask_gpuselect.engine.marks import Marks
from dask_gpuselect.engine.spill import Spilled, directory_of, spill_file
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, Tally
from dask_gpuselect.maths.envelope import thinned
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.rulers import Ruler
from dask_gpuselect.maths.seen import MOST_SEEN, Guess, Seen

logger = logging.getLogger("dask_gpuselect")

# Pivots of a chunk on a board, and of all chunks that a guess looks at.
PIVOTS, ALL_PIVOTS = 1 << 9, 1 << 15
# So many chunks may guess alone. Where all did as long as there was no guess, images with more and
# less cloud kept a tenth of everything for nothing, in half as much time again.
MOST_ALONE = 8

WORKER_SHARE = 10  # of the memory of a worker of `distributed` one part in so many is for this


NO_GUESS = Guess(None, 1.0, 1.0)


class Board:
    """The cuts of some chunks, and what they let expect.

    Parameters
    ----------
    keep : callable
        From the cuts of all chunks to what their second load might gather.
    n_chunks : int
        Of the array.
    share : int
        As for `sizes.pivot_count`.
    first : int
        After so many chunks there is a first guess.
    has_ruler : bool
        Whether chunks that keep what is inside a guess can be measured by a ruler.
    """

    def __init__(
        self,
        keep: Callable[[Cuts], Brackets],
        n_chunks: int,
        share: int,
        first: int = 2,
        has_ruler: bool = True,
    ) -> None:
        self._keep = keep
        self._n_chunks = n_chunks
        self._share = share
        self._has_ruler = has_ruler
        self._more = math.isqrt(share)  # times as many pivots as for a single rank
        self._lock = threading.Lock()
        self._seen: dict[int, Cuts] = {}
        self._next = first
        self._is_guessing = False
        self._are_alike = True
        self.guess = NO_GUESS
        """What to keep, by the chunks told so far."""

    def put(self, chunk: int, cuts: Cuts) -> Guess:
        """Tell the cuts of a chunk, by its number, and see what to keep."""
        with self._lock:
            if self._is_done or chunk in self._seen:
                return self.guess
            self._seen[chunk] = self._thinned(cuts)
            is_due = len(self._seen) >= self._next and not self._is_guessing
            if is_due:
                seen, before, self._is_guessing = dict(self._seen), self.guess, True
        if not is_due:
            return self.guess
        guess = self._guessed(seen, before.ruler)
        with self._lock:
            self._is_guessing = False
            self._next = guess.next_after(len(seen))
            self._are_alike &= not guess.is_far
            if self.guess.ruler is None and before.ruler is not None:  # it was dropped meanwhile
                guess = replace(guess, ruler=None)
            self.guess = guess = guess.or_before(self.guess)
        return guess

    def guess_for(self, cuts: Cuts) -> Guess:
        """What to keep of a chunk with these cuts: before there is a guess of all, one of its own,
        until chunks have shown that they differ."""
        is_alone = self.guess is NO_GUESS and len(self._seen) <= MOST_ALONE
        if not is_alone or not self._are_alike:
            return self.guess
        return Seen(cuts, np.zeros(1, np.int64), self._n_chunks).guess_alone(self._keep)

    @property
    def _is_done(self) -> bool:
        """Whether there will be no other guess."""
        return min(self._n_chunks, MOST_SEEN) < max(self._next, len(self._seen) + 1)

    def drop_ruler(self, ruler: Ruler) -> None:
        """Measure chunks by pivots again, for a ruler was too coarse for one."""
        with self._lock:
            if self.guess.ruler is ruler:
                self.guess = replace(self.guess, ruler=None)
                self._next = 2 * len(self._seen) + 1

    def _guessed(self, seen: dict[int, Cuts], ruler: Ruler | None) -> Guess:
        places = sorted(seen)
        parts = [seen[place] for place in places]
        cuts = type(parts[0]).merge(parts)
        found = Seen(cuts, np.array(places, np.int64), self._n_chunks)
        guess = found.guess(self._keep, ALL_PIVOTS * self._more)
        if guess.brackets is None or not guess.brackets.is_whole or not self._has_ruler:
            return guess
        return replace(guess, ruler=found.ruler(self._share) if ruler is None else ruler)

    def _thinned(self, cuts: Cuts) -> Cuts:
        return thinned(cuts, max(-(-len(cuts.pivots) // (PIVOTS * self._more)), 1))


_boards: WeakValueDictionary[str, Board] = WeakValueDictionary()
_boards_lock = forks.lock()


def board(name: str, *how: Any) -> Board:
    """The board of that name in this process, which lives as long as somebody holds it; made of
    the parameters of `Board` if there is none."""
    with _boards_lock:
        found = _boards.get(name)
        if found is None:
            found = _boards[name] = Board(*how)
        return found


# --- What is kept -------------------------------------------------------------------------------


class Room:
    """Bytes of a process that are taken by what it keeps."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._taken = 0
        # Who gives back may be the garbage collector, at any time, in a thread that holds any lock:
        # it must not wait for one, which a fork may hold that waits for the other.
        self._returned: deque[int] = deque()

    @property
    def taken(self) -> int:
        with self._lock:
            while self._returned:
                self._taken -= self._returned.popleft()
            return self._taken

    def take(self, n: int, limit: float) -> bool:
        """Take so many bytes, if no more than the limit are taken then."""
        with self._lock:
            fits = self.taken + n <= limit
            self._taken += n if fits else 0
            return fits

    def give_back(self, n: int) -> None:
        self._returned.append(n)


room = Room()
"""Of this process."""


class Hold:
    """Bytes that are taken as long as this lives, in whatever process."""

    def __init__(self, n: int) -> None:
        self._n = n
        finalize(self, room.give_back, n)

    @classmethod
    def of(cls, n: int, limit: float) -> Hold | None:
        """So many bytes, if there is room."""
        return cls(n) if room.take(n, limit) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _held, (self._n,)


def _held(n: int) -> Hold:
    """What comes from another process is here, whether there is room or not."""
    room.take(n, np.inf)
    return Hold(n)


@dataclass(frozen=True, eq=False)
class Aside:
    """Candidates that are not in their tally: they wait on disk or, where they have come from
    another process, in memory.

    Parameters
    ----------
    columns : tuple of Spilled or of ndarray
    hold : Hold, optional
        Of those in memory.
    """

    columns: tuple[Spilled, ...] | tuple[NDArray[Any], ...]
    hold: Hold | None = None

    def read(self) -> list[NDArray[Any]]:
        return [each.read() if isinstance(each, Spilled) else each for each in self.columns]

    @property
    def nbytes(self) -> int:
        """In memory."""
        return sum(each.nbytes for each in self.columns if not isinstance(each, Spilled))

    def __reduce__(self) -> tuple[Any, ...]:
        return _brought, tuple(self.read())


def _brought(*columns: NDArray[Any]) -> Aside:
    """What was on disk in another process, and is in memory here."""
    return Aside(columns, _held(sum(column.nbytes for column in columns)))


Held = Hold | Aside


@dataclass(frozen=True)
class Limits:
    """How much may be kept, and where.

    Parameters
    ----------
    n_bytes : int
        In the memory of a process.
    spill : str or None
        The directory where more than that may wait, "" for dask's; None if it is not kept.
    """

    n_bytes: int
    spill: str | None

    def of_process(self) -> float:
        """Bytes of this process that may be taken."""
        return min(self.n_bytes, worker_memory() / WORKER_SHARE)


@dataclass(frozen=True, eq=False)
class Kept(Arrays):
    """What the first load has kept of a chunk.

    Parameters
    ----------
    brackets : Brackets
        Those that were guessed.
    tally : Tally
        Of the chunk, at these; without candidates if they wait on disk.
    held : Hold or Aside
        Where the candidates are: in the tally, or beside it.
    sums : Moments or None
        Where the question wants them.
    marks : ndarray of uint64
        Of the chunk, for a question that may have one load more.
    """

    brackets: Brackets
    tally: Tally
    held: Held
    sums: Moments | None
    marks: Marks

    def whole(self) -> Tally:
        """The tally with its candidates."""
        if isinstance(self.held, Hold):
            return self.tally
        return self.tally.with_columns(self.held.read())


class Keepable(Protocol):
    """A tally, of whatever, that may be kept."""

    @property
    def held_bytes(self) -> int: ...

    def columns(self) -> list[NDArray[Any]]: ...

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self: ...


T = TypeVar("T", bound=Keepable)


@cache
def _told(directory: str, error: str) -> None:
    """Say once that a directory takes nothing: chunks are many."""
    told = "what does not fit into memory is not kept on disk in %s, but loaded again: %s"
    logger.warning(told, directory, error)


def held_tally(tally: T, limits: Limits) -> tuple[T, Held] | None:
    """A tally and where its candidates are; None if there is no room, in memory or on the disk."""
    if hold := Hold.of(tally.held_bytes, limits.of_process()):
        return tally, hold
    if limits.spill is None:
        return None
    columns = tally.columns()
    directory = directory_of(limits.spill)
    try:
        file = spill_file("kept", directory)
        held = Aside(tuple(file.write(column) for column in columns))
    except OSError as error:
        # The answer does not need it: a chunk that is not kept is loaded again.
        _told(directory, error.strerror or str(error))
        return None
    return tally.with_columns([column[:0] for column in columns]), held
