"""The ways people already type: `x.exact.median()`, always; and while `enable` is in force, methods
of dask arrays, dask's functions and NumPy's."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import ModuleType, TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

from dask_gpuselect import forks
from dask_gpuselect.arguments import holds_lazy, is_masked
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.engine.expressions import homes, is_lazy_array
from dask_gpuselect.groups import functions as groups
from dask_gpuselect.optional import after_import
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.quantiles import order_statistics
from dask_gpuselect.sorting import binning
from dask_gpuselect.sorting import functions as sorting

P = ParamSpec("P")
T = TypeVar("T")

# --- The accessor ---------------------------------------------------------------------------------


def _method(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Exact, P], T]:
    """The method of `Exact` that passes its array to a function, as the first argument."""

    def method(self: Exact, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self._array, *args, **kwargs)

    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [own, *list(signature.parameters.values())[1:]]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    method.__name__ = function.__name__
    method.__qualname__ = f"Exact.{function.__name__}"
    method.__doc__ = (
        f"`dask_gpuselect.{function.__name__}` of this array, its first argument.\n\n"
        f"{inspect.getdoc(function)}"
    )
    return method


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

    def __init__(self, array: Any) -> None:
        self._array = array

    def __repr__(self) -> str:
        return f"<exact order statistics of {self._array!r}>"

    median = _method(quantiles.median)
    nanmedian = _method(quantiles.nanmedian)
    quantile = _method(quantiles.quantile)
    nanquantile = _method(quantiles.nanquantile)
    percentile = _method(quantiles.percentile)
    nanpercentile = _method(quantiles.nanpercentile)
    order_statistic = _method(order_statistics.order_statistic)
    describe_boxplot = _method(boxplot.describe_boxplot)
    sort = _method(sorting.sort)
    argsort = _method(sorting.argsort)
    sort_by = _method(sorting.sort_by)
    quantile_bins = _method(binning.quantile_bins)
    digitize = _method(binning.digitize)
    explain = _method(quantiles.explain)
    groupby = _method(groups.groupby)


class _Accessor:
    """What pandas, xarray and dask.dataframe register theirs as: an attribute of the class that is
    made for the array that it is asked of; the class itself where there is none."""

    def __get__(self, array: Any, owner: type) -> Any:
        return Exact if array is None else Exact(array)


def register(name: str = "exact") -> None:
    """Give every dask array the accessor, unless it has another attribute of that name."""
    for home in homes():
        known = inspect.getattr_static(home.Array, name, None)
        if known is None:
            setattr(home.Array, name, _Accessor())
        elif not isinstance(known, _Accessor):
            warnings.warn(
                f"arrays of {home.__name__} have an attribute {name!r} already: it is left as it "
                "is",
                stacklevel=2,
            )


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


class Orders(NamedTuple):
    """The names of a function's arguments behind the array, in the orders that people know."""

    numpy: tuple[str, ...]
    dask: tuple[str, ...]
    told_by: tuple[type, ...]
    """Types of the second argument that only dask's order allows."""


MEDIAN = Orders(
    ("axis", "out", "overwrite_input", "keepdims"), ("axis", "keepdims", "out"), (bool, np.bool_)
)
QUANTILE = Orders(
    ("q", "axis", "out", "overwrite_input", "method", "keepdims"),
    ("q", "method", "internal_method"),
    (str,),
)
ORDERS = dict.fromkeys(OURS, QUANTILE) | {"median": MEDIAN, "nanmedian": MEDIAN}


def _named(name: str, positional: Sequence[Any]) -> dict[str, Any]:
    """Arguments behind the array by their names: NumPy's order, but for what can only be dask's."""
    orders = ORDERS[name]
    is_dask = len(positional) > 1 and isinstance(positional[1], orders.told_by)
    names = orders.dask if is_dask else orders.numpy
    if len(positional) > len(names):
        raise TypeError(f"{name}() takes at most {len(names) + 1} positional arguments")
    return dict(zip(names, positional, strict=False))


# What an argument that ours does not take says if it says nothing.
NOTHING = {"out": None, "overwrite_input": False, "internal_method": "default"}


# What dask's own functions ignore or refuse, as they ignore the mask of an array.
LOST = ("weights", "where", "nodata", "fill_value")


DASKS_PERCENTILE = 'internal_method="dask"'


def _told(more: Mapping[str, Any]) -> str:
    return ", ".join(more) if more else "q that is lazy"


def _routed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Ours, for what it knows; dask's own for all else."""
    ours = OURS[name]
    known = set(inspect.signature(ours).parameters)

    @wraps(ours)
    def function(a: Any, *positional: Any, **named: Any) -> Any:
        if not is_lazy_array(a):
            return original(a, *positional, **named)
        asked = {**_named(name, positional), **named}
        if asked.get("keepdims") is np._NoValue:
            del asked["keepdims"]
        asked = _with_method(name, asked)
        said = {key: value for key, value in asked.items() if key in known}
        more = {key: value for key, value in asked.items() if key not in known}
        is_all = all(key in NOTHING and _is(value, NOTHING[key]) for key, value in more.items())
        is_lazy = holds_lazy(said.get("q"))
        is_approximate = name == "percentile" and a.ndim == 1  # what dask would answer
        if is_all and is_lazy and is_approximate:
            raise approximate_instead(
                TypeError("q must be known when the graph is built: compute it first, q.compute()"),
                DASKS_PERCENTILE,
            )
        is_ours = is_all and not is_lazy
        leaves_out = is_masked(a) or any(said.get(key) is not None for key in LOST)
        if leaves_out and not is_ours:
            raise TypeError(f"{name}() of masked or weighted elements takes no {_told(more)}")
        if not is_ours:
            return original(a, *positional, **named)
        try:
            return ours(a, **said)
        except TypeError as error:  # of objects and complex numbers: dask has an answer to some
            if leaves_out:
                raise
            if name == "percentile" and a.dtype.kind not in "SU":  # strings are dask's alone
                raise approximate_instead(error, DASKS_PERCENTILE) from error
            if is_approximate:
                warnings.warn(
                    "da.percentile of strings is dask's own, which is approximate", stacklevel=2
                )
            return original(a, *positional, **named)

    return function


def _with_method(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Arguments with `interpolation`, as NumPy and dask called it, as `method`."""
    if "interpolation" not in asked or "median" in name:
        return asked
    interpolation = asked.pop("interpolation")
    if interpolation is None:
        return asked
    if asked.get("method", "linear") not in ("linear", interpolation):
        raise TypeError(f"{name}() takes method or interpolation, which is its former name")
    return {**asked, "method": interpolation}


def approximate_instead(error: TypeError, how: str) -> TypeError:
    """The error of a call that dask would answer by an approximation, and how to ask for that."""
    return TypeError(f"{error}; {how} asks for dask's own answer, which is approximate")


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
        self.lock = forks.lock()
        self.users = 0
        self.epoch = 0
        self.originals: list[tuple[ModuleType | type, str, Any]] = []
        self.further: list[tuple[type, str, Callable[[Any], Any]]] = []

    def add(self, owner: type, name: str, routed: Callable[[Any], Any]) -> None:
        with self.lock:
            self.further.append((owner, name, routed))
            if self.originals:
                self._set(owner, name, routed(getattr(owner, name)))

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
        for home in homes():
            for name in OURS:
                self._set(home, name, _routed(name, getattr(home, name)))
            for name in METHODS:
                self._set(home.Array, name, _array_method(name))
        for owner, name, routed in self.further:
            self._set(owner, name, routed(getattr(owner, name)))

    def _set(self, owner: ModuleType | type, name: str, value: Any) -> None:
        self.originals.append((owner, name, inspect.getattr_static(owner, name, None)))
        setattr(owner, name, value)


def _array_method(name: str) -> Callable[..., Any]:
    accessor = getattr(Exact, name)

    @wraps(accessor)
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        return getattr(Exact(self), name)(*positional, **named)

    return method


_state = _State()


def also_replace(owner: type, name: str, routed: Callable[[Any], Any]) -> None:
    """Have `enable` replace a method of another class, from now on if it is in force.

    Parameters
    ----------
    owner, name : type, str
        The class, and its method.
    routed : callable
        From the method to what takes its place.
    """
    _state.add(owner, name, routed)


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
    xarray's weighted quantiles, and medians and quantiles of groups. `dask.dataframe` and xarray
    may be imported before this call or after it.

    Calls that this package does not support still go to dask's own function: arrays that are not
    dask's, and calls with what this table names. No answer is an approximation that was not asked
    for, but for percentiles of strings, of which a warning says so. ``interpolation`` is taken for
    ``method``. Masked arrays and calls with ``weights``, ``where``, ``nodata`` or ``fill_value``
    never go to dask, because dask's functions ignore masks, and some of them ignore weights. This
    package answers them or raises.

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
    """Import the door of dask.dataframe, above this one, unless nobody is a user any more."""
    if _state.users:
        importlib.import_module("dask_gpuselect.dataframe")


def _open_xarray() -> None:
    """Import the door of xarray likewise."""
    if _state.users:
        importlib.import_module("dask_gpuselect.xarray")


def disable() -> None:
    """Undo every `enable`, in all threads: dask has its own functions back.

    See Also
    --------
    enable
    """
    _state.disable()
