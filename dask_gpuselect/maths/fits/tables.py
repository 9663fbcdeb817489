"""Tables of rows in memory, and the computations of several fits of them.

The arrays are NumPy's or CuPy's, and the same code serves both. Arrays that grow with the rows stay
where the rows are. Arrays that grow with the fits alone are on the host: coefficients, objectives,
normal equations. So a step on a device waits for it only twice, for any number of fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray

FAR = 1e150  # rows farther out have squares that overflow: steps leave them out
MOST_PRODUCTS = 1 << 22  # numbers: 32 MiB
BLOCK = 1 << 18  # products of a matrix product that OpenBLAS computes in one thread


@dataclass(frozen=True, slots=True, eq=False)
class Tables(Arrays):
    """Tables of n rows each, G of them; every fit belongs to one.

    Parameters
    ----------
    columns : array, shape (p, G, n)
        Columns of the design.
    near : array, shape (p, G, n)
        The columns, but zeros for the rows that are farther out than `FAR`.
    target : array, shape (G, n)
        Target of each row.
    """

    columns: Array
    near: Array
    target: Array

    @classmethod
    def of(cls, design: Array, target: Array) -> Tables:
        """Make a single table from a design of shape (n, p)."""
        xp = namespace(design)
        columns = xp.ascontiguousarray(design.T)[:, None, :]
        is_near = abs(columns).max(axis=0) < FAR
        near = columns if bool(is_near.all()) else xp.where(is_near, columns, 0.0)
        return cls(columns, near, target[None, :])

    @property
    def p(self) -> int:
        return int(self.columns.shape[0])

    @property
    def n(self) -> int:
        return int(self.columns.shape[2])

    def taken(self, rows: IntArray) -> Tables:
        """Make tables of some rows of the first one, shape (G, n)."""
        where = like(rows, self.target)
        columns = self.columns[:, 0, :][:, where]
        is_same = self.near is self.columns
        near = columns if is_same else self.near[:, 0, :][:, where]
        return Tables(columns, near, self.target[0, :][where])

    def on_host(self) -> list[tuple[FloatArray, FloatArray]]:
        """Copy each table to the host, as a design of shape (n, p) and a target."""
        designs, targets = to_host(self.columns).transpose(1, 2, 0), to_host(self.target)
        return list(zip(np.ascontiguousarray(designs), targets, strict=True))

    def residuals(self, thetas: FloatArray, which: IntArray) -> Array:
        """Compute the residuals, shape (F, n), of fits, shape (F, p), of tables in ascending order.

        The operations are those of the kernels, in the same order, so that results have the same
        bits.
        """
        grid = Grid.of(which, len(self.target))
        at = like(grid.spread(thetas), self.target)
        rest = self.target[:, None, :] - self.columns[0][:, None, :] * at[..., 0, None]
        for i in range(1, self.p):
            rest -= self.columns[i][:, None, :] * at[..., i, None]
        return grid.flat(rest)

    def normal_equations(
        self, residuals: Array, weights: Array, which: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Compute the normal equations of fits, shapes (F, p, p) and (F, p).

        They are the weighted sums of products of the columns, and of the columns and the residuals.

        Notes
        -----
        For many fits the products of the columns are computed once, and one matrix product sums
        them. With 65,536 rows and 6 columns that takes 9 ms for ten fits, and fit by fit 11. For
        one fit it takes 4, and by itself 1.
        """
        xp, grid = namespace(residuals), Grid.of(which, len(self.target))
        used = xp.where(weights > 0, residuals, 0.0)
        is_many = grid.shape[1] > self.p and self.near.size * self.p <= MOST_PRODUCTS
        sums = to_host((self._by_products if is_many else self._by_fits)(xp, used, weights, grid))
        return sums[..., :-1], sums[..., -1]

    def _by_products(self, xp: Any, used: Array, weights: Array, grid: Grid) -> Array:
        near = self.near.transpose(1, 0, 2)
        products = (near[:, :, None, :] * near[:, None, :, :]).reshape(len(near), -1, self.n)
        of_fits = grid.spread(weights)
        grams = _summed_products(of_fits, products).reshape(*grid.shape, self.p, self.p)
        moments = _summed_products(of_fits * grid.spread(used), near)
        return grid.flat(xp.concatenate([grams, moments[..., None]], axis=-1))

    def _by_fits(self, xp: Any, used: Array, weights: Array, grid: Grid) -> Array:
        sums = []
        for i, table in enumerate((grid.places // grid.shape[1]).tolist()):
            near = self.near[:, table, :]
            weighted = near * weights[i]
            sums.append(xp.concatenate([weighted @ near.T, (weighted @ used[i])[:, None]], axis=1))
        return xp.stack(sums)


def _summed_products(a: Array, b: Array) -> Array:
    """Compute ``a @ b.swapaxes(1, 2)`` for shapes (G, S, n) and (G, K, n), by blocks of rows.

    Small blocks keep a BLAS from using threads, which took three times the processor's time where
    other processes are busy. A device has more parallel work with blocks.
    """
    n, n_fits, n_sums = a.shape[2], a.shape[1], b.shape[1]
    size = min(max(BLOCK // (n_fits * n_sums), 32), n)
    whole = n - n % size

    def blocks(each: Array) -> Array:
        return each[..., :whole].reshape(*each.shape[:2], -1, size).transpose(0, 2, 1, 3)

    products = (blocks(a) @ blocks(b).swapaxes(2, 3)).sum(axis=1)
    return products + a[..., whole:] @ b[..., whole:].swapaxes(1, 2) if whole < n else products


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Grid of tables by fits, with room for the most fits that a table has.

    Parameters
    ----------
    shape : tuple of 2 ints
        Number of tables, and of fits of a table.
    places : ndarray of int64, shape (F,)
        Places of the fits in the flat grid, ascending.
    """

    shape: tuple[int, int]
    places: IntArray

    @classmethod
    def of(cls, which: IntArray, n_tables: int) -> Grid:
        """Make the grid of fits of tables in ascending order."""
        ranks = np.arange(len(which)) - np.searchsorted(which, which)
        n_fits = int(ranks.max()) + 1
        return cls((n_tables, n_fits), which * n_fits + ranks)

    @property
    def is_full(self) -> bool:
        return len(self.places) == self.shape[0] * self.shape[1]

    def spread(self, of_fits: Array) -> Array:
        """Put a row of each fit, shape (F, n), into the grid, and zeros where there is no fit."""
        n = of_fits.shape[1]
        if self.is_full:
            return of_fits.reshape(*self.shape, n)
        out = namespace(of_fits).zeros((self.shape[0] * self.shape[1], n))
        out[like(self.places, of_fits)] = of_fits
        return out.reshape(*self.shape, n)

    def flat(self, gridded: Array) -> Array:
        """Take the rows of the fits out of the grid."""
        flat = gridded.reshape(-1, *gridded.shape[2:])
        return flat if self.is_full else flat[like(self.places, flat)]
