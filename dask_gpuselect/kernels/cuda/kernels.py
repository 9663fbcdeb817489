"""The functions of `Kernels` for CuPy chunks."""

from dask_gpuselect.kernels.cuda.bitonic import bitonic_sorted
from dask_gpuselect.kernels.cuda.cells import MOST_PIVOTS, cuts
from dask_gpuselect.kernels.cuda.lanes import lane_ends
from dask_gpuselect.kernels.cuda.measures import report
from dask_gpuselect.kernels.cuda.moments import moments
from dask_gpuselect.kernels.cuda.sampling import is_best_whole, pilot, sample, sorted_sample, whole
from dask_gpuselect.kernels.cuda.selection import Candidates
from dask_gpuselect.kernels.cuda.spans import merged, tally, tally_in_place
from dask_gpuselect.kernels.reference.selection import lanes, sorted_lanes

__all__ = [
    "MOST_PIVOTS",
    "Candidates",
    "bitonic_sorted",
    "cuts",
    "is_best_whole",
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
    "whole",
]
