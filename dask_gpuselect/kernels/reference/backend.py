"""All kernels for chunks of the array API."""

from dask_gpuselect.kernels.protocols import Backend
from dask_gpuselect.kernels.reference import (
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

BACKEND = Backend(
    selection=selection,
    weighing=weighing,
    sampling=sampling,
    moments=moments,
    measures=measures,
    bitonic=bitonic,
    lanes=lanes,
    lane_passes=lane_passes,
    groups=groups,
    runs=runs,
    labels=labels,
    residuals=residuals,
    distances=distances,
    lower_sets=lower_sets,
    fingerprints=fingerprints,
    ordering=ordering,
    windows=windows,
)
