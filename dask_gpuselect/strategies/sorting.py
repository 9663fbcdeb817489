"""Selection by sorting everything, and taking the element at the rank."""

from __future__ import annotations

from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies.known import Search, Strategy
from dask_gpuselect.strategies.probes import points_bytes

SUB_ARRAYS = tuple(1 << i for i in range(6, 13))
NO_REPLIES = Applied(points_bytes, (0, 0))
"""But counts when what is left is gathered."""


def SortAndChoose() -> Strategy:
    """Make the method that sorts all elements, and chooses the one with the wanted rank.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Alabi et al. 2012, section 2.1, algorithm 1 (sort&choose); "radix sort on GPU" of
    Beliakov 2011, tables I and II. The sort is NumPy's, or CuPy's, which is a radix sort. It takes
    no round, and a copy of all elements. If a dask array is too large to gather, the default engine
    finds the answer.
    """
    return Strategy("sortandchoose", _ask_nothing, 0, NO_REPLIES, sorts=True)


def _ask_nothing(known: object, opened: None) -> Search:
    yield from ()


def BitonicMerge(sub_array: int = 2048) -> Strategy:
    """Make the method that sorts sub-arrays with a bitonic network, and merges them.

    Parameters
    ----------
    sub_array : int, default 2048
        Number of elements of each, a power of two from 64 to 4096. In table 2 they are 256 to 2048.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Alyafi & Khalid, section 4.1: sub-arrays are sorted in shared memory, by a block of
    threads each. Weak spot: the paper merges sequentially, one element at a time. Here all threads
    merge pairs of runs, and each finds by binary search where its part begins. It takes no round,
    and a copy of all elements. If a dask array is too large to gather, the default engine finds the
    answer.
    """
    if sub_array not in SUB_ARRAYS:
        raise ValueError(
            f"sub_array must be a power of two from {SUB_ARRAYS[0]} to {SUB_ARRAYS[-1]}, "
            f"not {sub_array}"
        )
    how = "bitonicmerge", _ask_nothing, 0, NO_REPLIES
    return Strategy(*how, sorts=True, sub_array=sub_array)
