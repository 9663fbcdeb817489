"""Selection by sorting everything, and taking the element at the rank."""

from __future__ import annotations

from dataclasses import dataclass

from dask_gpuselect.strategies.known import SORT, Reply, Search, Sorting

SUB_ARRAYS = tuple(1 << i for i in range(6, 13))


@dataclass(frozen=True)
class SortAndChoose:
    """Sort all elements, and choose the one with the wanted rank.

    Parameters
    ----------
    sorts : Sorting
        See `Strategy`.
    sort_below : int
        See `Strategy`.

    Notes
    -----
    Source: Alabi et al. 2012, section 2.1, algorithm 1 (sort&choose); "radix sort on GPU" of
    Beliakov 2011, tables I and II. The sort is NumPy's, or CuPy's, which is a radix sort. It takes
    no round, and a copy of all elements. If a dask array is too large to gather, the default engine
    finds the answer.
    """

    sorts: Sorting = SORT
    sort_below: int = 0
    opening: None = None
    rounds = 0

    def reply_bytes(self, n_chunks: int, size: int) -> int:
        return 0

    def search(self, reply: Reply) -> Search:
        return
        yield  # makes this a generator


@dataclass(frozen=True)
class BitonicMerge:
    """Sort sub-arrays with a bitonic network, and merge them.

    Parameters
    ----------
    sub_array : int, default 2048
        Number of elements of each, a power of two from 64 to 4096. In table 2 they are 256 to 2048.
    sort_below : int
        See `Strategy`.

    Notes
    -----
    Source: Alyafi & Khalid, section 4.1: sub-arrays are sorted in shared memory, by a block of
    threads each. Weak spot: the paper merges sequentially, one element at a time. Here all threads
    merge pairs of runs, and each finds by binary search where its part begins. It takes no round,
    and a copy of all elements. If a dask array is too large to gather, the default engine finds the
    answer.
    """

    sub_array: int = 2048
    sort_below: int = 0
    opening: None = None
    rounds = 0

    def __post_init__(self) -> None:
        if self.sub_array not in SUB_ARRAYS:
            raise ValueError(
                f"sub_array must be a power of two from {SUB_ARRAYS[0]} to {SUB_ARRAYS[-1]}, "
                f"not {self.sub_array}"
            )

    @property
    def sorts(self) -> Sorting:
        return Sorting(is_whole=True, sub_array=self.sub_array)

    reply_bytes = SortAndChoose.reply_bytes
    search = SortAndChoose.search
