"""`enable` and `disable`: whether functions of dask and xarray are replaced by this package's."""

from __future__ import annotations

from typing import Self

from dask_gpuselect.optional import after_import
from dask_gpuselect.routing import lock, settle

_in_force: set[Enabled] = set()


class Enabled:
    """The context manager that `enable` returns.

    Functions stay replaced until its context ends, or until `disable` is called. They are replaced
    while at least one call of `enable` is in force.
    """

    def __init__(self) -> None:
        self.depth = 0  # of nested contexts
        self._join(0)

    def __enter__(self) -> Self:
        # The call is in force already, unless its context has ended or `disable` has been called.
        self._join(1)
        return self

    def __exit__(self, *error: object) -> None:
        with lock:
            self.depth -= 1
            if not self.depth:
                _in_force.discard(self)
                _settle()

    def _join(self, depth: int) -> None:
        """Put the call in force, and count its open contexts."""
        with lock:
            _in_force.add(self)
            self.depth += depth
            _settle()


def _settle() -> None:
    """Replace dask's functions if a call is in force; else put them back."""
    settle(is_wanted=bool(_in_force))


def enable() -> Enabled:
    """Make ``x.median()``, ``da.median(x)`` and ``np.median(x)`` of dask arrays exact.

    It adds `median`, `nanmedian`, `quantile`, `nanquantile`, `percentile`, `nanpercentile` and
    `describe_boxplot` to dask arrays as methods. It replaces dask's functions with the first six
    names (`dask.array.median` and so on), which NumPy's functions call for dask arrays.

    Returns
    -------
    Enabled
        A context manager. The functions of this package stay in place until its context ends. If it
        is not used as a context manager, they stay until `disable` is called.

    See Also
    --------
    disable : Put dask's own functions back.
    accessor.Exact : The same functions as methods of ``x.exact``, which need no `enable`.

    Notes
    -----
    `quantile`, `median` and `describe` of dask's Series and DataFrames are replaced too. So are
    xarray's weighted quantiles, and its medians and quantiles of groups and of moving windows.
    `dask.dataframe` and xarray may be imported before this call or after it.

    Arrays of other packages, and the calls in the table below, still go to dask's own functions.
    The table decides before the call: an error of this package is raised and never handed to dask.
    No answer is approximate unless that was asked for, except percentiles of strings, which come
    with a warning. ``interpolation`` means ``method``. Masked arrays and calls with ``weights``,
    ``where``, ``nodata`` or ``fill_value`` never go to dask, because dask's functions ignore masks,
    and some of them ignore weights. This package answers them or raises.

    =========================== ============================ =======================================
    argument or dtype           function                     answered by
    =========================== ============================ =======================================
    ``out, overwrite_input``    all except percentile        dask: exact, or it raises
    ``out, overwrite_input``    percentile                   dask: it raises
    ``internal_method``         percentile                   dask: approximate, as requested
    lazy q                      all except percentile        dask: exact, or it raises
    lazy q                      percentile of one dimension  none: a TypeError
    complex numbers, objects    all except percentile        dask: exact, or it raises
    complex numbers, objects    percentile                   none: a TypeError
    strings                     percentile of one dimension  dask: approximate, with a warning
    =========================== ============================ =======================================

    Contexts may be nested, and contexts of several threads may overlap. Dask gets its own functions
    back when the last context ends. A call that is not used as a context manager stays in force
    until `disable`, which ends all calls and contexts in all threads. A context that `disable` has
    ended changes nothing when it exits.

    Functions that were imported by name before, as in ``from dask.array import median``, stay
    dask's.

    Examples
    --------
    >>> import numpy as np
    >>> import dask.array as da
    >>> from dask_gpuselect import enable
    >>> with enable():
    ...     np.median(da.arange(10, chunks=3)).compute()
    np.float64(4.5)
    """
    enabled = Enabled()
    after_import("dask.dataframe", _open_dataframe)
    after_import("xarray", _open_xarray)
    return enabled


def _open_dataframe() -> None:
    """Import the accessors of dask.dataframe, if functions are still to be replaced."""
    if _in_force:
        from dask_gpuselect import dataframe  # noqa: F401 -- it adds to what is replaced


def _open_xarray() -> None:
    """Import the accessors of xarray, if functions are still to be replaced."""
    if _in_force:
        from dask_gpuselect import xarray  # noqa: F401 -- likewise


def disable() -> None:
    """Undo every `enable`, in all threads: dask gets its own functions back.

    See Also
    --------
    enable : Replace dask's functions by those of this package.
    """
    with lock:
        _in_force.clear()
        _settle()
