"""Selection by one digit of the ordered keys after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dask_gpuselect.maths.keys import key_at
from dask_gpuselect.strategies.known import SELECT, Reply, Search, Sorting
from dask_gpuselect.strategies.probes import Copy, KeyBins, Points, bins_bytes

COPY_FROM = 1 << 22
"""Number of elements from which on the paper copies them (section 2.2)."""


@dataclass(frozen=True)
class Radix:
    """Radix selection: each round counts the values of one more digit.

    Parameters
    ----------
    bits : int, default 8
        Bits of a digit, from 1 to 11. The paper has 4.
    copies : bool, optional
        True if the elements that share the digit are copied before the next round ("radixSelect");
        False if all elements are read again ("inplace radixSelect", which changes the elements in
        place: here they are only read). Default: the paper's rule, copies from 2**22 elements on.
    sort_below : int
        See `Strategy`.
    sorts : Sorting
        See `Strategy`.

    Notes
    -----
    Source: Alabi et al. 2012, section 2.2, algorithms 2 and 3. Reads: one for each digit.

    Rounds: at most 32 / bits or 64 / bits, on any data; one more if two neighbouring ranks have
    different digits. Weak spot: if data share leading digits (``[1, 2]``), all elements stay in the
    bracket for many rounds. The number of rounds is bounded all the same, and such a round with
    copies copies all elements.
    """

    bits: int = 8
    copies: bool | None = None
    sort_below: int = 1
    sorts: Sorting = SELECT
    opening: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 11:
            raise ValueError(f"bits must be from 1 to 11, not {self.bits}")

    @property
    def rounds(self) -> int:
        return -(-64 // self.bits) + 1

    def reply_bytes(self, n_chunks: int, size: int) -> int:
        return bins_bytes(1 << self.bits, n_chunks, self.rounds)

    def search(self, reply: Reply) -> Search:
        known = reply.known
        shift = 8 * known.dtype.itemsize
        copies = known.n >= COPY_FROM if self.copies is None else self.copies
        origin = 0
        while True:
            bits = min(self.bits, shift)
            shift -= bits
            bins = KeyBins(origin, shift, 1 << bits)
            known, (i, j) = yield bins
            if i != j:
                known, _ = yield Points((key_at(bins.edge(j), known.dtype),))
            origin = bins.edge(i)
            if copies:
                yield Copy()
