"""Features of any size for a model: scaled by median and quartiles, put into bins of equal numbers
of rows, or spread evenly from 0 to 1. Answers are those of scikit-learn's RobustScaler,
KBinsDiscretizer and QuantileTransformer in memory."""

from typing import Any

import dask.array as da
import numpy as np

from dask_gpuselect import nanquantile, quantile_bins


def robust_scaled(x: Any) -> Any:
    """Each column less its median, divided by its interquartile range, NaN left out.

    The three quartiles of all columns share one pass over ``x``, and the scaling takes another.
    """
    q1, med, q3 = nanquantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = q3 - q1
    return (x - med) / da.where(spread > 0, spread, 1)  # a constant column is only centred


def ordinal_bins(x: Any, n_bins: int) -> Any:
    """In which of the bins of its column each element is, from 0 on."""
    edges = quantile_bins(x, n_bins, axis=0)
    return x.map_blocks(_binned, edges=edges[1:-1], dtype=np.int64)


def _binned(chunk: Any, edges: Any) -> Any:
    pairs = zip(chunk.T, edges.T, strict=True)
    return np.stack([np.digitize(column, own) for column, own in pairs], axis=1)


def uniform(x: Any, n_quantiles: int) -> Any:
    """The share of its column that is below each element, interpolated between quantiles. Where
    several quantiles are equal, it is in the middle of their shares. NaN stays."""
    shares = np.linspace(0, 1, n_quantiles)
    quantiles = nanquantile(x, shares, axis=0)
    return x.map_blocks(_shares_below, quantiles=quantiles, shares=shares, dtype=np.float64)


def _shares_below(chunk: Any, quantiles: Any, shares: Any) -> Any:
    found = np.empty(chunk.shape)
    for below, column, own in zip(found.T, chunk.T, quantiles.T, strict=True):
        rising = np.interp(column, own, shares)
        falling = np.interp(-column, -own[::-1], -shares[::-1])
        below[...] = 0.5 * (rising - falling)
        below[column == own[-1]] = 1
        below[column == own[0]] = 0
    return found


if __name__ == "__main__":
    rng = da.random.default_rng(0)
    x = rng.standard_normal((1_000_000, 20), chunks=(100_000, 20)) ** 3 * np.arange(1, 21) + 5
    scaled = robust_scaled(x)
    q1, med, q3 = np.quantile(scaled.compute(), [0.25, 0.5, 0.75], axis=0)
    print(f"medians up to {abs(med).max():.1e}; quartile ranges {(q3 - q1).min():.6f} or more")
    numbers = [np.bincount(column) for column in ordinal_bins(x, 8).compute().T]
    print(f"rows in each bin: {np.min(numbers)} to {np.max(numbers)}")
    evenly = uniform(x, 1000).compute()
    print(f"quartiles of evenly spread columns {np.quantile(evenly, [0.25, 0.5, 0.75]).round(4)}")
