"""Distributions of data as smooth monotone functions."""

from __future__ import annotations

from dask_gpuselect.distribution.splines import MonotoneQuadraticSpline, MonotoneRationalSpline

__all__ = ["MonotoneQuadraticSpline", "MonotoneRationalSpline"]
