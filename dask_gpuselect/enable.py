"""Whether functions of dask, dask.dataframe and xarray lead to those of this package."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from dask_gpuselect import forks
from dask_gpuselect.optional import after_import
from dask_gpuselect.routing import replacements


class Enabled:
    """What `enable` returns: one user of ours, until the context ends that it is entered for, or
    until `disable`."""

    def __init__(self, state: _State) -> None:
        self.state = state
        self.epoch: int | None = None  # since which it is a user
        self.depth = 0
        state.join(self, depth=0)

    def __enter__(self) -> Self:
        # It is a user already, but where its context has ended, or `disable` has been called.
        self.state.join(self, depth=1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.state.leave(self)


class _State:
    """The users of ours: one for each call of `enable`, which stays until its own context ends.

    Functions are replaced as long as there are users. An epoch ends with `disable`, and with it all
    of its users.
    """

    def __init__(self) -> None:
        self.lock = forks.lock()
        self.users = 0
        self.epoch = 0

    def join(self, user: Enabled, *, depth: int) -> None:
        with self.lock:
            if user.epoch != self.epoch:
                user.epoch = self.epoch
                self.users += 1
            user.depth += depth
            self._settle()

    def leave(self, user: Enabled) -> None:
        with self.lock:
            user.depth -= 1
            if user.depth:
                return
            if user.epoch == self.epoch:
                self.users -= 1
            user.epoch = None
            self._settle()

    def disable(self) -> None:
        with self.lock:
            self.users = 0
            self.epoch += 1
            self._settle()

    def _settle(self) -> None:
        replacements.settle(is_wanted=self.users > 0)


_state = _State()


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
    disable

    Notes
    -----
    `quantile`, `median` and `describe` of dask's Series and DataFrames are replaced too, and
    xarray's weighted quantiles, and medians and quantiles of groups and of moving windows.
    `dask.dataframe` and xarray may be imported before this call or after it.

    Calls that this package does not support still go to dask's own function: arrays that are not
    dask's, and calls with what this table names. No answer is an approximation that was not asked
    for, but for percentiles of strings, of which a warning says so. ``interpolation`` is taken for
    ``method``. Which function answers is decided by this table before the call: an error of this
    package is raised and never handed to dask. Masked arrays and calls with ``weights``, ``where``,
    ``nodata`` or ``fill_value`` never go to dask, because dask's functions ignore masks, and some
    of them ignore weights. This package answers them or raises.

    =========================== ============================ =======================================
    what                        of                           goes to
    =========================== ============================ =======================================
    ``out, overwrite_input``    all but percentile           dask: exact, or it raises
    ``out, overwrite_input``    percentile                   dask: it raises
    ``internal_method``         percentile                   dask: approximate, as is asked
    lazy q                      all but percentile           dask: exact, or it raises
    lazy q                      percentile of one dimension  nobody: a TypeError
    complex numbers, objects    all but percentile           dask: exact, or it raises
    complex numbers, objects    percentile                   nobody: a TypeError
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
    >>> with enable():
    ...     np.median(da.arange(10, chunks=3)).compute()
    np.float64(4.5)
    """
    enabled = Enabled(_state)
    after_import("dask.dataframe", _open_dataframe)
    after_import("xarray", _open_xarray)
    return enabled


def _open_dataframe() -> None:
    """Import the door of dask.dataframe, unless nobody is a user any more."""
    if _state.users:
        from dask_gpuselect import dataframe  # noqa: F401 -- it adds to what is replaced


def _open_xarray() -> None:
    """Import the door of xarray likewise."""
    if _state.users:
        from dask_gpuselect import xarray  # noqa: F401 -- likewise


def disable() -> None:
    """Undo every `enable`, in all threads: dask has its own functions back.

    See Also
    --------
    enable
    """
    _state.disable()
