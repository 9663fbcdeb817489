"""Distributions of data as smooth monotone functions."""

from dask_gpuselect.distribution.cdf import EmpiricalDistribution, EstimatedDistribution
from dask_gpuselect.distribution.empirical import LazyDistribution, ecdf
from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.distribution.splines import MonotoneQuadraticSpline, MonotoneRationalSpline
from dask_gpuselect.optional import listed

__all__ = [
    "EmpiricalDistribution",
    "EstimatedDistribution",
    "LazyDistribution",
    "MonotoneQuadraticSpline",
    "MonotoneRationalSpline",
    "ecdf",
    "isotonic_regression",
]

__dir__ = listed(__all__)
