"""Distributions of data as smooth monotone functions."""

from __future__ import annotations

from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.distribution.splines import MonotoneQuadraticSpline, MonotoneRationalSpline

__all__ = ["MonotoneQuadraticSpline", "MonotoneRationalSpline", "isotonic_regression"]
