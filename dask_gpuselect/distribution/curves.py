"""Base of cumulative distributions: monotone splines between some points."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect.arguments import check_known, on_host, public
from dask_gpuselect.distribution.quadratic import MonotoneQuadraticSpline
from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.optional import axes

DRAWN = 2000  # approximate number of steps of a drawn curve

evaluates = public(instead="for a dask array z, type z.map_blocks(distribution.cdf, dtype=float)")


class Curve:
    """Base of both kinds of distribution: a spline between some points."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            check_known(getattr(self, field.name), field.name)

    @property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The abscissae and ordinates that the spline goes through."""
        raise NotImplementedError

    @cached_property
    def spline(self) -> MonotoneQuadraticSpline | None:
        """The spline through the `knots`; None if there is nothing between them."""
        x, y = self.knots
        is_any = len(x) > 1 and x[0] < x[-1]
        return MonotoneQuadraticSpline(x, y, extrapolate=False) if is_any else None

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, without cached values that follow from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _at(self, z: NDArray[Any], nu: int = 0) -> FloatArray:
        """Evaluate the spline, or its slope; NaN beyond its knots."""
        z = z.astype(np.float64)
        return np.full_like(z, np.nan) if self.spline is None else self.spline(z, nu)

    def _where(self, y: FloatArray) -> FloatArray:
        """Return the least abscissa at which the spline reaches `y`; NaN if there is none."""
        return np.full_like(y, np.nan) if self.spline is None else self.spline.inverse(y)


def checked_shares(p: ArrayLike) -> FloatArray:
    """Return shares as float64 on the host, or raise if one is outside [0, 1]."""
    shares = on_host(p)
    outside = ~((shares >= 0) & (shares <= 1))  # NaN too
    if outside.any():
        raise ValueError(f"p must be in [0, 1], not {shares[outside].flat[0]}")
    return shares.astype(np.float64)


def plotted(x: FloatArray, y: FloatArray, ax: Any, **kwargs: Any) -> Any:
    """Draw a curve of shares with matplotlib."""
    ax = axes(ax)
    ax.plot(x, y, **kwargs)
    ax.set(xlabel="x", ylabel="share of the elements up to x")
    return ax
