"""The kernels for CuPy chunks by purpose: CUDA kernels, or else those of the reference."""

from dataclasses import replace

from dask_gpuselect.kernels.cuda import (
    bitonic,
    distances,
    fingerprints,
    groups,
    labels,
    lane_passes,
    lanes,
    lower_sets,
    measures,
    moments,
    ordering,
    residuals,
    runs,
    sampling,
    selection,
    weighing,
    windows,
)
from dask_gpuselect.kernels.reference import backend as reference

BACKEND = replace(
    reference.BACKEND,
    selection=selection,
    sampling=sampling,
    moments=moments,
    measures=measures,
    bitonic=bitonic,
    distances=distances,
    lanes=lanes,
    lane_passes=lane_passes,
    groups=groups,
    runs=runs,
    labels=labels,
    residuals=residuals,
    lower_sets=lower_sets,
    fingerprints=fingerprints,
    ordering=ordering,
    weighing=weighing,
    windows=windows,
)
