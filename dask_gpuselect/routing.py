"""Functions and methods of dask, dask.dataframe and xarray that `enable` replaces."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from dask_gpuselect import forks
from dask_gpuselect.accessor import Exact
from dask_gpuselect.arguments import holds_lazy, is_masked
from dask_gpuselect.engine.expressions import homes, is_lazy_array
from dask_gpuselect.maths.interpolation import no_quantiles_of
from dask_gpuselect.quantiles import functions as quantiles

OURS: Mapping[str, Callable[..., Any]] = {
    "median": quantiles.median,
    "nanmedian": quantiles.nanmedian,
    "quantile": quantiles.quantile,
    "nanquantile": quantiles.nanquantile,
    "percentile": quantiles.percentile,
    "nanpercentile": quantiles.nanpercentile,
}
"""Functions of this package whose names dask has too."""

METHODS = (*OURS, "describe_boxplot")


Order = tuple[str, ...]

MEDIAN: tuple[Order, Order, tuple[type, ...]] = (
    ("axis", "out", "overwrite_input", "keepdims"),
    ("axis", "keepdims", "out"),
    (bool, np.bool_),
)
QUANTILE: tuple[Order, Order, tuple[type, ...]] = (
    ("q", "axis", "out", "overwrite_input", "method", "keepdims"),
    ("q", "method", "internal_method"),
    (str,),
)
ORDERS = dict.fromkeys(OURS, QUANTILE) | {"median": MEDIAN, "nanmedian": MEDIAN}
"""Names of a function's arguments after the array, in NumPy's order and in dask's, and types of the
second argument that only dask's order allows."""


# Default values of arguments that this package's functions do not take.
NOTHING = {"out": None, "overwrite_input": False, "internal_method": "default"}


# Arguments that dask's own functions ignore or refuse, as they ignore the mask of an array.
LOST = ("weights", "where", "nodata", "fill_value")


DASKS_PERCENTILE = 'internal_method="dask"'


def _routed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that replaces one of dask's.

    It calls this package's function for every call that this supports, and else dask's own. That is
    decided before the call.
    """
    ours = OURS[name]
    known = set(inspect.signature(ours).parameters)

    @wraps(ours)
    def function(a: Any, *positional: Any, **named: Any) -> Any:
        if not is_lazy_array(a):
            return original(a, *positional, **named)
        given = _arguments(name, positional, named)
        supported = {key: value for key, value in given.items() if key in known}
        beyond = [key for key in given if key not in known and not _is_nothing(key, given[key])]
        if not beyond and holds_lazy(supported.get("q")):
            beyond = ["q that is lazy"]
        problem = no_quantiles_of(a.dtype)
        if not beyond and not problem:
            return ours(a, **supported)
        if is_masked(a) or any(supported.get(key) is not None for key in LOST):
            instead = f"{', '.join(beyond)}: pass arguments of dask_gpuselect.{name}"
            reason = f"does not take {instead}" if beyond else f"is not possible: {problem}"
            raise TypeError(f"{name}() of masked or weighted elements {reason}")
        if name == "percentile":
            _check_not_approximate(a, beyond, problem)
        return original(a, *positional, **named)

    return function


def _check_not_approximate(a: Any, beyond: Sequence[str], problem: str) -> None:
    """Raise if dask would answer by approximate percentiles that nobody asked for.

    Warn where this package has no exact ones, as of strings.
    """
    if beyond == ["q that is lazy"] and a.ndim == 1:
        lazy = "q must be known at the call, and is lazy: compute it first, q.compute()"
        raise approximate_instead(TypeError(lazy), DASKS_PERCENTILE)
    if beyond:
        return
    if a.dtype.kind not in "SU":
        raise approximate_instead(TypeError(problem), DASKS_PERCENTILE)
    if a.ndim == 1:
        warnings.warn(
            "da.percentile of strings is computed by dask, and is approximate", stacklevel=3
        )


def _arguments(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments behind the array by the names that this package gives them.

    The order is NumPy's, unless the second argument can only be meant in dask's.
    """
    of_numpy, of_dask, only_dask = ORDERS[name]
    is_dask = len(positional) > 1 and isinstance(positional[1], only_dask)
    names = of_dask if is_dask else of_numpy
    if len(positional) > len(names):
        raise TypeError(
            f"{name}() takes at most {len(names) + 1} positional arguments, and got "
            f"{len(positional) + 1}"
        )
    given = {**dict(zip(names, positional, strict=False)), **named}
    if given.get("keepdims") is np._NoValue:
        del given["keepdims"]
    return _with_method(name, given)


def _with_method(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Rename the argument `interpolation`, NumPy's and dask's former name, to `method`."""
    if "interpolation" not in given or "median" in name:
        return given
    interpolation = given.pop("interpolation")
    if interpolation is None:
        return given
    if given.get("method", "linear") not in ("linear", interpolation):
        raise TypeError(
            f"{name}() got both method={given['method']!r} and interpolation={interpolation!r}, "
            "the former name of method: pass method alone"
        )
    return {**given, "method": interpolation}


def approximate_instead(error: TypeError, how: str) -> TypeError:
    """Return an error that also says how to ask for dask's approximate answer."""
    return TypeError(f"{error}; {how} asks for dask's own answer, which is approximate")


def _is_nothing(key: str, value: Any) -> bool:
    """Return whether an argument that this package does not take has its default value."""
    nothing = NOTHING.get(key, key)
    return value is nothing or (isinstance(value, str | bool) and value == nothing)


# --- Replaced functions ---------------------------------------------------------------------------


lock = forks.lock()
_originals: list[tuple[ModuleType | type, str, Any]] = []  # of what is replaced now
_further: list[tuple[type, str, Callable[[Any], Any]]] = []  # see `replaces`


def settle(*, is_wanted: bool) -> None:
    """Replace everything, or put everything back, unless that is done already."""
    with lock:
        if is_wanted and not _originals:
            for home in homes():
                for name in OURS:
                    _set(home, name, _routed(name, getattr(home, name)))
                for name in METHODS:
                    _set(home.Array, name, _array_method(name))
            for owner, name, routed in _further:
                _set(owner, name, routed(getattr(owner, name, None)))
        while _originals and not is_wanted:
            changed, name, original = _originals.pop()
            if original is None:
                delattr(changed, name)
            else:
                setattr(changed, name, original)


def _set(owner: ModuleType | type, name: str, value: Any) -> None:
    """Replace an attribute, and remember the original unless a base class has it."""
    is_own = isinstance(owner, ModuleType) or name in vars(owner)
    original = inspect.getattr_static(owner, name, None) if is_own else None
    _originals.append((owner, name, original))
    setattr(owner, name, value)


def _array_method(name: str) -> Callable[..., Any]:
    """Return the method of dask arrays that calls the method of `x.exact` of that name."""
    accessor = getattr(Exact, name)

    @wraps(accessor)
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        return getattr(Exact(self), name)(*positional, **named)

    return method


def replaces(name: str, *owners: type) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that replaces a method of some classes while `enable` is in force.

    It takes the replaced method first, or None if there is none, and then the method's arguments.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def routed(original: Callable[..., Any] | None) -> Callable[..., Any]:
            @wraps(original or function)
            def method(self: Any, *args: Any, **how: Any) -> Any:
                return function(original, self, *args, **how)

            return method

        for owner in owners:
            with lock:
                _further.append((owner, name, routed))
                if _originals:  # others are replaced already
                    _set(owner, name, routed(getattr(owner, name, None)))
        return function

    return decorate
