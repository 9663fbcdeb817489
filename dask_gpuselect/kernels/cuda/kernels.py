"""The functions of `Kernels` for CuPy chunks."""

from dask_gpuselect.kernels.cuda.bitonic import bitonic_sorted
from dask_gpuselect.kernels.cuda.cells import MOST_PIVOTS, cuts
from dask_gpuselect.kernels.cuda.lanes import lane_ends
from dask_gpuselect.kernels.cuda.measures import report
from dask_gpuselect.kernels.cuda.moments import moments
from dask_gpuselect.kernels.cuda.sampling import pilot, sample, sorted_sample
from dask_gpuselect.kernels.cuda.selection import Candidates
from dask_gpuselect.kernels.cuda.spans import merged, tally, tally_in_place
from dask_gpuselect.kernels.generic import lanes, sorted_lanes

SELECT_WHOLE = 1 << 22  # elements of an array up to which a pilot is not worth it

__all__ = [
    "MOST_PIVOTS",
    "SELECT_WHOLE",
    "Candidates",
    "bitonic_sorted",
    "cuts",
    "lane_ends",
    "lanes",
    "merged",
    "moments",
    "pilot",
    "report",
    "sample",
    "sorted_lanes",
    "sorted_sample",
    "tally",
    "tally_in_place",
]
