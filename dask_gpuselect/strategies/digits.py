"""Selection by one digit of the ordered keys after the other."""

from __future__ import annotations

from dask_gpuselect.maths.keys import key_at
from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies.known import Known, Search, Strategy
from dask_gpuselect.strategies.probes import COPY, KeyBins, Points, bins_bytes

COPY_FROM = 1 << 22
"""Number of elements from which on the paper copies them (section 2.2)."""


def Radix(bits: int = 8, copies: bool | None = None) -> Strategy:
    """Make radix selection: each round counts the values of one more digit.

    Parameters
    ----------
    bits : int, default 8
        Bits of a digit, from 1 to 11. The paper has 4.
    copies : bool, optional
        True if the elements that share the digit are copied before the next round ("radixSelect");
        False if all elements are read again ("inplace radixSelect", which changes the elements in
        place: here they are only read). Default: the paper's rule, copies from 2**22 elements on.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Alabi et al. 2012, section 2.2, algorithms 2 and 3. Reads: one for each digit.

    Rounds: at most 32 / bits or 64 / bits, on any data; one more if two neighbouring ranks have
    different digits. Weak spot: if data share leading digits (``[1, 2]``), all elements stay in the
    bracket for many rounds. The number of rounds is bounded all the same, and such a round with
    copies copies all elements.
    """
    if not 1 <= bits <= 11:
        raise ValueError(f"bits must be from 1 to 11, not {bits}")
    rounds = -(-64 // bits) + 1
    search, reply_bytes = Applied(_radix, (bits, copies)), Applied(bins_bytes, (1 << bits, rounds))
    return Strategy("radix", search, rounds, reply_bytes, sort_below=1)


def _radix(bits_of_digit: int, copies: bool | None, known: Known, opened: None) -> Search:
    shift = 8 * known.dtype.itemsize
    copies = known.n >= COPY_FROM if copies is None else copies
    origin = 0
    while True:
        bits = min(bits_of_digit, shift)
        shift -= bits
        bins = KeyBins(origin, shift, 1 << bits)
        known, (i, j) = yield bins
        if i != j:
            known, _ = yield Points((key_at(bins.edge(j), known.dtype),))
        origin = bins.edge(i)
        if copies:
            yield COPY
