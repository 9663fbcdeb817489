"""Distributions of data as smooth monotone functions."""

from __future__ import annotations

from dask_gpuselect.distribution.cdf import EmpiricalDistribution, EstimatedDistribution
from dask_gpuselect.distribution.empirical import LazyDistribution, ecdf
from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.distribution.splines import MonotoneQuadraticSpline, MonotoneRationalSpline

__all__ = [
    "EmpiricalDistribution",
    "EstimatedDistribution",
    "LazyDistribution",
    "MonotoneQuadraticSpline",
    "MonotoneRationalSpline",
    "ecdf",
    "isotonic_regression",
]
