"""The ways people already type: `x.exact.median()`, always; and while `enable` is in force, methods
of dask arrays, dask's functions and NumPy's."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import Axis, holds_lazy
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.passes import Plan
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.quantiles import order_statistics
from dask_gpuselect.sorting import binning
from dask_gpuselect.sorting import functions as sorting
from dask_gpuselect.sorting.functions import Chunks, Spill
from dask_gpuselect.strategies import Strategy

Function = TypeVar("Function", bound=Callable[..., Any])

# --- The accessor ---------------------------------------------------------------------------------


def _as(function: Callable[..., Any]) -> Callable[[Function], Function]:
    """The documentation of the function of which this is the method."""

    def documented(method: Function) -> Function:
        method.__doc__ = (
            f"`dask_gpuselect.{function.__name__}` of this array, its first argument.\n\n"
            f"{inspect.getdoc(function)}"
        )
        return method

    return documented


class Exact:
    """Exact order statistics of a dask array: ``x.exact``.

    Every dask array has it once `dask_gpuselect` is imported. The name says what dask's own
    functions are not: they raise, take the reduced axes in one piece, or are approximate.

    Parameters
    ----------
    array : dask array

    See Also
    --------
    enable : the same as methods of the array itself.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_gpuselect
    >>> da.arange(11, chunks=3).exact.quantile(0.25).compute()
    np.float64(2.5)
    """

    def __init__(self, array: da.Array) -> None:
        self._array = array

    def __repr__(self) -> str:
        return f"<exact order statistics of {self._array!r}>"

    @_as(quantiles.median)
    def median(self, axis: Axis = None, *, keepdims: bool = False) -> da.Array:
        found: da.Array = quantiles.median(self._array, axis, keepdims=keepdims)
        return found

    @_as(quantiles.nanmedian)
    def nanmedian(self, axis: Axis = None, *, keepdims: bool = False) -> da.Array:
        found: da.Array = quantiles.nanmedian(self._array, axis, keepdims=keepdims)
        return found

    @_as(quantiles.quantile)
    def quantile(
        self,
        q: ArrayLike,
        axis: Axis = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
        weights: Any = None,
        strategy: Strategy | str | None = None,
    ) -> da.Array:
        how: dict[str, Any] = {"method": method, "keepdims": keepdims}
        how |= {"weights": weights, "strategy": strategy}
        found: da.Array = quantiles.quantile(self._array, q, axis, **how)
        return found

    @_as(quantiles.nanquantile)
    def nanquantile(
        self,
        q: ArrayLike,
        axis: Axis = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
        weights: Any = None,
    ) -> da.Array:
        how = {"method": method, "keepdims": keepdims, "weights": weights}
        found: da.Array = quantiles.nanquantile(self._array, q, axis, **how)
        return found

    @_as(quantiles.percentile)
    def percentile(
        self,
        q: ArrayLike,
        axis: Axis = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
        weights: Any = None,
    ) -> da.Array:
        how = {"method": method, "keepdims": keepdims, "weights": weights}
        found: da.Array = quantiles.percentile(self._array, q, axis, **how)
        return found

    @_as(quantiles.nanpercentile)
    def nanpercentile(
        self,
        q: ArrayLike,
        axis: Axis = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
        weights: Any = None,
    ) -> da.Array:
        how = {"method": method, "keepdims": keepdims, "weights": weights}
        found: da.Array = quantiles.nanpercentile(self._array, q, axis, **how)
        return found

    @_as(order_statistics.order_statistic)
    def order_statistic(
        self, k: int | ArrayLike, *, strategy: Strategy | str | None = None
    ) -> da.Array:
        found: da.Array = order_statistics.order_statistic(self._array, k, strategy=strategy)
        return found

    @_as(boxplot.describe_boxplot)
    def describe_boxplot(
        self,
        axis: Axis = None,
        *,
        whis: float | tuple[float, float] = 1.5,
        nan_policy: str = "omit",
        autorange: bool = False,
        max_fliers: int = 1000,
        labels: Sequence[str] | None = None,
        method: str = "linear",
    ) -> Boxplot:
        return boxplot.describe_boxplot(
            self._array,
            axis,
            whis=whis,
            nan_policy=nan_policy,
            autorange=autorange,
            max_fliers=max_fliers,
            labels=labels,
            method=method,
        )

    @_as(sorting.sort)
    def sort(
        self, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
    ) -> da.Array:
        how: dict[str, Any] = {"chunks": chunks, "spill": spill, "split_every": split_every}
        found: da.Array = sorting.sort(self._array, **how)
        return found

    @_as(sorting.argsort)
    def argsort(
        self, *, chunks: Chunks = None, spill: Spill = None, split_every: int | None = None
    ) -> da.Array:
        how: dict[str, Any] = {"chunks": chunks, "spill": spill, "split_every": split_every}
        found: da.Array = sorting.argsort(self._array, **how)
        return found

    @_as(sorting.sort_by)
    def sort_by(
        self,
        *values: Any,
        chunks: Chunks = None,
        spill: Spill = None,
        split_every: int | None = None,
    ) -> tuple[da.Array, ...]:
        how: dict[str, Any] = {"chunks": chunks, "spill": spill, "split_every": split_every}
        return sorting.sort_by(self._array, *values, **how)

    @_as(binning.quantile_bins)
    def quantile_bins(self, n_bins: int, *, method: str = "linear") -> da.Array:
        found: da.Array = binning.quantile_bins(self._array, n_bins, method=method)
        return found

    @_as(binning.digitize)
    def digitize(self, bins: Any, *, right: bool = False) -> da.Array:
        found: da.Array = binning.digitize(self._array, bins, right=right)
        return found

    @_as(quantiles.explain)
    def explain(self, q: ArrayLike = 0.5, axis: Axis = None) -> Plan:
        return quantiles.explain(self._array, q, axis)


class _Accessor:
    """What pandas, xarray and dask.dataframe register theirs as: an attribute of the class that is
    made for the array that it is asked of; the class itself where there is none."""

    def __get__(self, array: da.Array | None, owner: type[da.Array]) -> Any:
        return Exact if array is None else Exact(array)


def register(name: str = "exact") -> None:
    """Give every dask array the accessor, unless it has another attribute of that name."""
    known = inspect.getattr_static(da.Array, name, None)
    if isinstance(known, _Accessor):
        return
    if known is not None:
        warnings.warn(
            f"dask arrays have an attribute {name!r} already: it is left as it is", stacklevel=2
        )
        return
    setattr(da.Array, name, _Accessor())


register()


# --- In place of dask's functions -----------------------------------------------------------------

OURS: Mapping[str, Callable[..., Any]] = {
    "median": quantiles.median,
    "nanmedian": quantiles.nanmedian,
    "quantile": quantiles.quantile,
    "nanquantile": quantiles.nanquantile,
    "percentile": quantiles.percentile,
    "nanpercentile": quantiles.nanpercentile,
}
"""Functions that dask has by the same names."""

METHODS = (*OURS, "describe_boxplot")

MEDIANS = ("median", "nanmedian")

# NumPy's, after the array.
MEDIAN: tuple[str, ...] = ("axis", "out", "overwrite_input", "keepdims")
QUANTILE: tuple[str, ...] = ("q", "axis", "out", "overwrite_input", "method", "keepdims")


def _named(name: str, positional: Sequence[Any]) -> dict[str, Any]:
    """Arguments behind the array by their names: NumPy's order, but for what can only be dask's."""
    second = positional[1] if len(positional) > 1 else None
    if name in MEDIANS:
        is_dask = isinstance(second, bool | np.bool_)
        names = ("axis", "keepdims", "out") if is_dask else MEDIAN
    else:
        is_dask = isinstance(second, str)
        names = ("q", "method", "internal_method") if is_dask else QUANTILE
    if len(positional) > len(names):
        raise TypeError(f"{name}() takes at most {len(names) + 1} positional arguments")
    return dict(zip(names, positional, strict=False))


# What an argument that ours does not take says if it says nothing.
NOTHING = {
    "out": None,
    "overwrite_input": False,
    "interpolation": None,
    "internal_method": "default",
}


def _routed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Ours, for what it knows; dask's own for all else."""
    ours = OURS[name]
    known = set(inspect.signature(ours).parameters)

    @wraps(ours)
    def function(a: Any, *positional: Any, **named: Any) -> Any:
        if not isinstance(a, da.Array):
            return original(a, *positional, **named)
        asked = {**_named(name, positional), **named}
        if asked.get("keepdims") is np._NoValue:
            del asked["keepdims"]
        said = {key: value for key, value in asked.items() if key in known}
        more = {key: value for key, value in asked.items() if key not in known}
        is_all = all(key in NOTHING and _is(value, NOTHING[key]) for key, value in more.items())
        if (
            not is_all
            or holds_lazy(said.get("q"))
            or said.get("weights") is not None
            or np.ndim(said.get("q", 0)) > 1
        ):
            return original(a, *positional, **named)
        try:
            return ours(a, **said)
        except TypeError:  # of objects, complex numbers, masked arrays: dask has an answer to some
            return original(a, *positional, **named)

    return function


def _is(value: Any, nothing: Any) -> bool:
    return value is nothing or (isinstance(value, str | bool) and value == nothing)


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
    """Whether dask's functions are replaced, and by what they were.

    They are as long as there are users: one for each call of `enable`, which stays until its own
    context ends. An epoch ends with `disable`, and with it all of its users.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.epoch = 0
        self.originals: list[tuple[ModuleType | type, str, Any]] = []

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
        if self.users and not self.originals:
            self._replace()
        elif not self.users:
            for owner, name, original in reversed(self.originals):
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
            self.originals = []

    def _replace(self) -> None:
        for name in OURS:
            original = getattr(da, name)
            self._set(da, name, _routed(name, original))
        for name in METHODS:
            self._set(da.Array, name, _method(name))

    def _set(self, owner: ModuleType | type, name: str, value: Any) -> None:
        self.originals.append((owner, name, inspect.getattr_static(owner, name, None)))
        setattr(owner, name, value)


def _method(name: str) -> Callable[..., Any]:
    accessor = getattr(Exact, name)

    @wraps(accessor)
    def method(self: da.Array, *positional: Any, **named: Any) -> Any:
        return getattr(Exact(self), name)(*positional, **named)

    return method


_state = _State()


def enable() -> Enabled:
    """Answer ``x.median()``, ``da.median(x)`` and ``np.median(x)`` of dask arrays exactly.

    Adds `median`, `nanmedian`, `quantile`, `nanquantile`, `percentile`, `nanpercentile` and
    `describe_boxplot` to dask arrays as methods, and puts ours in the place of dask's functions of
    the first six names: `dask.array.median` and so on, to which NumPy sends its own.

    Returns
    -------
    Enabled
        A context manager. Ours stay in place until its context ends, or, if it is not used as one,
        until `disable`.

    See Also
    --------
    disable

    Notes
    -----
    Nothing else changes. What is no dask array, what ours do not take (``out``,
    ``overwrite_input``, ``interpolation``, ``internal_method``, ``weights``, q of two dimensions),
    and dtypes that they do not know, go to dask's own function, which answers or raises as it did.

    Each call counts. Dask has its functions back, the very objects, when the context of every call
    has ended, so contexts may be nested and those of several threads overlap. A call that is no
    context does not end, and no context ends it: only `disable` does, which ends all, in all
    threads. A context that `disable` has ended changes nothing at its end.

    Functions that were imported by name, as by ``from dask.array import median``, are not reached.

    Examples
    --------
    >>> import numpy as np
    >>> import dask.array as da
    >>> with enable():
    ...     np.median(da.arange(10, chunks=3)).compute()
    np.float64(4.5)
    """
    return Enabled(_state)


def disable() -> None:
    """Give dask its functions back, in all threads, and take the methods away.

    See Also
    --------
    enable
    """
    _state.disable()
