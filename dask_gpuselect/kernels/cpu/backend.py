"""The kernels for NumPy chunks by purpose: compiled ones, or else those of the reference."""

from dataclasses import replace

from dask_gpuselect.kernels.cpu import (
    distances,
    fingerprints,
    groups,
    lane_passes,
    lanes,
    measures,
    moments,
    ordering,
    residuals,
    sampling,
    selection,
    weighing,
    windows,
)
from dask_gpuselect.kernels.reference import backend as reference

BACKEND = replace(
    reference.BACKEND,
    selection=selection,
    weighing=weighing,
    sampling=sampling,
    moments=moments,
    measures=measures,
    lanes=lanes,
    lane_passes=lane_passes,
    groups=groups,
    residuals=residuals,
    distances=distances,
    fingerprints=fingerprints,
    ordering=ordering,
    windows=windows,
)
