"""What the doors of the package, its public functions and methods, do with every argument.

A call computes nothing. So whatever is no data has to be known, and is refused if it is lazy, or
holds what is lazy at any depth: Python and NumPy would compute it at a glance. So it is if it is
masked: NumPy would take what is under the mask. Data is refused if
it is a list of lazy arrays, or of another kind of lazy collection than a dask array, or has a unit.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from itertools import chain, repeat
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np
from dask.base import is_dask_collection
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    Array,
    as_numpy,
    check_no_unit,
    check_not_masked,
    is_array,
    numpy_dtype,
    to_host,
    transposed,
    type_name,
)
from dask_gpuselect.engine.companions import accompanied, as_lazy
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.expressions import (
    ExpressionType,
    as_expression,
    as_source,
    is_lazy_array,
    kind_of,
)
from dask_gpuselect.engine.groups import Grouped
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.optional import check_is_data
from dask_gpuselect.quiet import quiet

Axis = int | Sequence[int] | None
P = ParamSpec("P")
T = TypeVar("T")

# Of the standard normal distribution: what divides a spread so that it estimates the deviation.
NORMAL_MAD = 0.6744897501960817
NORMAL_IQR = 1.3489795003921634

MOST = 1 << 24  # points or groups that a number may ask for: 128 MiB of float64
FIRST = "compute it first, {name}.compute()"
WEIGHTED = (
    "quantile, percentile, their nan-variants and describe_boxplot take weights, and "
    "quantile(a, 0.5, weights=weights) is a weighted median"
)
ELSEWHERE = {
    "weights": WEIGHTED,
    "fill_value": "median, quantile, percentile and their nan-variants take it",
    "strategy": "order_statistic and quantile take one",
    "skipna": "the nan-variants leave out NaN: nanmedian, nanquantile, ...",
    "dim": "of xarray objects x.exact takes it (import dask_gpuselect.xarray)",
    "interpolation": "NumPy and this package call it method",
}
"""What takes an argument that some function does not."""
# Of these a list may have millions, and none holds anything.
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), np.float64, np.int64})


class SameKind(Protocol[P]):
    """A function of an array that answers with an array of the same kind, as type checkers and
    editors see it. What comes of a plain array may be a NumPy scalar, which is typed as an array of
    no dimensions."""

    @property
    def __name__(self) -> str: ...

    @overload
    def __call__(self, a: DaskArray, /, *args: P.args, **kwargs: P.kwargs) -> DaskArray: ...

    @overload
    def __call__(self, a: NDArray[Any], /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...

    @overload
    def __call__(self, a: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


def same_kind(function: Callable[Concatenate[Any, P], Any]) -> SameKind[P]:
    """A decorator that says this of a function, which stays what it is."""
    return cast(SameKind[P], function)


def public(
    *data: str, many: str | tuple[str, ...] = (), instead: str = FIRST
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator of a public function or method: its arguments are checked, and NumPy's
    floating-point errors in it are ours.

    Parameters
    ----------
    *data : str
        The parameters that may be dask arrays.
    many : str or tuple of str
        Those that may be a list, a tuple or a dict of them too.
    instead : str
        What an error advises for an argument that is lazy.
    """

    several = (many,) if isinstance(many, str) else many

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(function).parameters.values()
        names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
        taken = {each.name for each in parameters}
        is_method = names[:1] == ["self"]

        @wraps(function)
        def entered(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if not (takes_any or name in taken):
                    raise _unexpected(function.__name__, name)
            if is_method:
                check_parameters(args[0])
            named = [*zip(chain(names, repeat(rest)), args, strict=False), *kwargs.items()]
            for name, value in named:
                if name in several:
                    for each in _each(value):
                        check_data(each, name)
                elif name in data:
                    check_data(value, name)
                elif name != "self":
                    check_known(value, name, instead)
            given = {name: value for name, value in named if name in (*data, *several)}
            kind = _kind_of(given) or (_kind_of(vars(args[0])) if is_method else None)
            with quiet():
                if kind is None:
                    return function(*args, **kwargs)
                sources = _Sources(kind)
                known: Any = replaced((args, kwargs), kind.is_instance, sources.source)
                found: T = sources.answered(function(*known[0], **known[1]))
                return found

        return entered

    return decorate


def _unexpected(function: str, name: str) -> TypeError:
    """Python's own error, but before anything is said of the argument's value, and with a hint."""
    hint = f": {ELSEWHERE[name]}" if name in ELSEWHERE else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def _kind_of(given: Mapping[str, Any]) -> ExpressionType | None:
    """Of which expressions all lazy arrays among some arguments are; None without expressions."""
    kinds: dict[ExpressionType | None, str] = {}
    for name, value in given.items():
        for each in _each(value):
            if is_lazy_array(each):
                kinds.setdefault(kind_of(each), name)
    if len(kinds) > 1:
        (one, of_one), (other, of_other) = [
            (name, "dask.array" if kind is None else kind.name) for kind, name in kinds.items()
        ][:2]
        raise TypeError(
            f"{one} is an array of {of_one}, and {other} one of {of_other}: make both by the same "
            "package; dask_array.core.from_graph(x.dask, x._meta, x.chunks, [], x.name) makes an "
            "array x of dask.array one of dask_array"
        )
    return next(iter(kinds), None)


class _Sources:
    """Expression arrays of a call as the engine knows them, and its answers as expressions."""

    def __init__(self, kind: ExpressionType) -> None:
        self.kind = kind
        self.given: dict[str, Any] = {}  # by the names of their sources

    def source(self, array: Any) -> DaskArray:
        found: DaskArray = as_source(array)
        self.given[found.name] = array
        return found

    def answer(self, array: DaskArray) -> Any:
        """An expression of an array: the given one, if it is handed back."""
        given = self.given.get(array.name)
        return as_expression(array, self.kind) if given is None else given

    def answered(self, found: Any) -> Any:
        """What a function found, with expressions for arrays; an estimator with those it keeps."""
        if hasattr(found, "get_params"):
            for name, value in vars(found).items():
                if isinstance(value, DaskArray):
                    setattr(found, name, self.answer(value))
        return replaced(found, lambda each: isinstance(each, DaskArray), self.answer)


def replaced(value: Any, is_one: Callable[[Any], bool], function: Callable[[Any], Any]) -> Any:
    """A value, or what it is made of by tuples, lists and dicts, with a function of some of it."""
    if is_one(value):
        return function(value)
    if isinstance(value, Grouped):
        return replace(value, array=replaced(value.array, is_one, function))
    if type(value) is dict:
        return {key: replaced(each, is_one, function) for key, each in value.items()}
    if isinstance(value, list | tuple) and not PLAIN.issuperset(map(type, value)):
        parts = [replaced(each, is_one, function) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _each(value: Any) -> Iterable[Any]:
    """The arrays of what may be several."""
    if isinstance(value, Grouped):
        return [value.array]
    if isinstance(value, Mapping) and not is_dask_collection(value):
        return list(value.values())
    is_several = isinstance(value, list | tuple) and not PLAIN.issuperset(map(type, value))
    return value if is_several else [value]


def each_of(a: Any, name: str = "a") -> tuple[list[Any], Callable[[list[Any]], Any] | None]:
    """The arrays that are asked about, and what makes a dict or list of the answers; None for one
    array.

    A list is several arrays if one of them is lazy. Otherwise it is one array, as NumPy has it.
    """
    if isinstance(a, dict):
        if not a:
            raise ValueError(f"{name} is an empty dict: there is no array to ask about")
        return list(a.values()), lambda answers: dict(zip(a, answers, strict=True))
    if isinstance(a, list | tuple) and any(is_lazy_array(each) and each.ndim for each in a):
        return list(a), list
    check_data(a, name)
    if isinstance(a, list | tuple):
        shapes = list(dict.fromkeys(each.shape for each in a if isinstance(each, np.ndarray)))
        if len(shapes) > 1:
            raise ValueError(
                f"{name} is a list of arrays of shapes {shapes[0]} and {shapes[1]}, and a list of "
                "plain arrays is one array, as in NumPy: pass a dict of them for an answer of each"
            )
    return [a], None


def holds_arrays(a: Any) -> bool:
    """Whether this is a list of arrays, rather than one array."""
    return isinstance(a, list | tuple) and any(
        is_dask_collection(item) or np.ndim(item) for item in a
    )


def for_each(companion: Any, a: Any, *, n: int, name: str, is_several: bool) -> list[Any]:
    """The companion of each of `n` arrays: one for all, or as many as there are arrays.

    Parameters
    ----------
    a : object
        What the arrays are given as.
    is_several : bool
        Whether these are several.
    """
    if isinstance(companion, Mapping) and not is_dask_collection(companion):
        if not (isinstance(a, Mapping) and companion.keys() == a.keys()):
            raise ValueError(f"{name} may be a dict if the arrays are, with the same keys")
        return [companion[key] for key in a]
    if not (holds_arrays(companion) and is_several):
        check_data(companion, name)
        return [companion] * n
    if len(companion) != n:
        raise ValueError(f"{name} must be one array, or one for each: {len(companion)} for {n}")
    return list(companion)


def _leaves(value: Any) -> Iterator[Any]:
    """What a value is, or holds at any depth; without what can neither be lazy nor have a unit."""
    held: Iterable[Any]
    if is_dask_collection(value):
        yield value
        return
    if isinstance(value, Mapping):
        held = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        held = () if PLAIN.issuperset(map(type, value)) else value
    elif type(value) is np.ndarray:
        held = value.flat if value.dtype == object else ()
    else:
        yield value
        return
    for each in held:
        if type(each) not in PLAIN:
            yield from _leaves(each)


def holds_lazy(value: Any) -> bool:
    """Whether something is lazy, or holds what is, at any depth."""
    return any(map(is_dask_collection, _leaves(value)))


def check_most(number: int, name: str, most: int = MOST) -> None:
    """Raise for a number of things of which each takes memory, if it is absurd."""
    if number > most:
        raise ValueError(f"{name} must be at most {most:,}, and is {number:,}")


def check_known(value: Any, name: str, instead: str = FIRST) -> None:
    """Raise for an argument that is lazy, holds what is lazy, has a unit, or is masked."""
    if type(value) in PLAIN:
        return
    for leaf in _leaves(value):
        check_no_unit(leaf, name)
        if isinstance(leaf, np.ma.MaskedArray):  # NumPy takes what is under the mask
            raise TypeError(f"{name} is masked: pass what is not, {name}.compressed()")
        if is_dask_collection(leaf):
            raise TypeError(
                f"{name} must be known when the graph is built: {instead.format(name=name)}"
                if leaf is value
                else f"{name} must be known when the graph is built, and holds lazy values: "
                "compute these first, by dask.compute"
            )


def check_data(value: Any, name: str) -> None:
    """Raise for data that is no array and known, that is lazy and no dask array, that holds lazy
    values in a list, or that has a unit."""
    if type(value) in PLAIN:
        return
    if isinstance(value, Grouped):
        value = value.array
    if is_lazy_array(value):
        check_no_unit(value._meta, name)
        return
    check_is_data(value, name)
    for leaf in _leaves(value):
        check_is_data(leaf, name)
        check_no_unit(leaf, name)
        check_no_unit(_inside(leaf), name)
        if is_dask_collection(leaf):
            kind = type(value).__name__
            raise TypeError(
                f"expected a dask array, not a {kind}: pass its array (x.data of xarray, x.values "
                "of dask.dataframe), or use x.exact (import dask_gpuselect.xarray or .dataframe)"
                if leaf is value
                else f"{name} is a {kind} that holds lazy values, which would be computed at the "
                f"call: da.stack({name}) makes a dask array of them"
            )


def _inside(value: Any) -> Any:
    """The array that one with named dimensions is made of."""
    return getattr(value, "data", None) if hasattr(type(value), "dims") else None


def check_parameters(estimator: Any) -> None:
    """Raise for parameters of an estimator that are lazy or masked, or have a unit."""
    if hasattr(estimator, "get_params"):
        for name, value in estimator.get_params(deep=False).items():
            check_known(value, name)


def as_array(a: Any) -> Any:
    """A dask array, a plain NumPy array, or another array of the array API."""
    if isinstance(a, DaskArray):
        return entered(a)
    check_not_masked(a)
    if is_array(a) and not isinstance(a, np.ndarray | np.generic):
        return a
    found = as_numpy(a)  # of NumPy's scalars and subclasses too
    if not isinstance(a, np.ndarray) and found.ndim == 0 and found.dtype.kind in "OSU":
        raise TypeError(f"need an array of real numbers, not {type_name(a)}")
    return found


def is_masked(a: Any) -> bool:
    """Whether an array, or each chunk of one, is masked."""
    return isinstance(getattr(a, "_meta", a), np.ma.MaskedArray)


def if_all_left_out(a: Any, where: Any, nodata: Any) -> str:
    """What answers are where no element takes part: as `Quantiles.if_none` has it."""
    if isinstance(a, Grouped):  # groups may be empty
        return "masked" if is_masked(a.array) else "missing"
    is_whole = (where is None or where is True) and nodata is None
    return "masked" if is_masked(a) else "empty" if is_whole else "missing"


def as_accompanied(
    a: Any, where: Any = None, nodata: Any = None, weights: Any = None, axis: Axis = None
) -> Any:
    """What `as_array` gives, with what leaves out some of its elements, and with their weights.

    Parameters
    ----------
    a : array
        Masked arrays too: what is masked is left out.
    where : array of bool, optional
        Only where it is True elements take part. It broadcasts to the shape of `a`.
    nodata : scalar or sequence, optional
        Elements that equal one of these are left out.
    weights : array of real numbers, optional
        Of the shape of `a`, or of the shape of its axes `axis`.

    Returns
    -------
    dask array, array or Accompanied
    """
    if isinstance(a, Grouped):
        return replace(a, array=as_accompanied(a.array, where, nodata, weights, axis))
    if where is True:
        where = None
    if is_masked(a) and any(isinstance(each, DaskArray) for each in (where, weights)):
        a = as_lazy(a)  # so that answers are known to be masked before they are computed
    array = _without_masked(a) if is_masked(a) else as_array(a)
    if where is not None:
        where = _companion(where)
        if numpy_dtype(where).kind != "b":
            raise TypeError(f"where must be of bool, not of {numpy_dtype(where)}")
    if weights is not None:
        weights = _laid_out(_companion(weights), array, axis)
    if nodata is not None:
        nodata = held_in(nodata, numpy_dtype(array), "nodata", "the data")
    return accompanied(array, where, weights, nodata)


def _without_masked(a: Any) -> Any:
    """A masked array as one with a mask as its companion."""
    if isinstance(a, DaskArray):
        return entered(a, may_be_masked=True)
    return Accompanied(as_numpy(np.ma.getdata(a)), ~np.ma.getmaskarray(a))


def _companion(array: Any) -> Any:
    """A companion as an array."""
    return array if isinstance(array, DaskArray) else as_array(array)


def _laid_out(weights: Any, array: Any, axis: Axis) -> Any:
    """Weights with the axes of the data, those that they have no part in of size 1."""
    if numpy_dtype(weights).kind not in "biuf":
        raise TypeError(f"weights must be real numbers, not of {numpy_dtype(weights)}")
    if weights.ndim == array.ndim and all(
        size == wanted or math.isnan(size) or math.isnan(wanted)
        for size, wanted in zip(weights.shape, array.shape, strict=True)
    ):
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = _axes(axis, array.ndim)
    if tuple(weights.shape) != tuple(array.shape[each] for each in axes):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    order = tuple(np.argsort(axes).tolist())
    is_lazy = isinstance(weights, DaskArray)
    ascending = weights.transpose(order) if is_lazy else transposed(weights, order)
    return ascending[tuple(slice(None) if i in axes else None for i in range(array.ndim))]


def scale_factor(scale: float | str, normal: float, dtype: np.dtype[Any]) -> float:
    """What to divide a spread by."""
    if isinstance(scale, str):
        if scale != "normal":
            raise ValueError(f'scale must be "normal" or a number, not {scale!r}')
        return normal
    if not isinstance(scale, int | float | np.integer | np.floating):
        raise TypeError(f'scale must be "normal" or a number, not a {type(scale).__name__}')
    factor = float(scale)
    with np.errstate(all="ignore"):
        found = dtype.type(factor)
    if not (np.isfinite(found) and found > 0):
        raise ValueError(f"scale must be positive and finite, in {dtype}, and {scale} is not")
    return factor


def held_in(given: Any, dtype: np.dtype[Any], name: str, owner: str) -> NDArray[Any]:
    """Values of an argument as an array of one dimension, of the dtype of what is named as its
    owner; raises unless that holds them."""
    values = np.atleast_1d(np.asarray(given))
    if values.ndim > 1:
        raise ValueError(f"{name} must be a scalar or one-dimensional, not of shape {values.shape}")
    native = dtype.newbyteorder("=")
    if values.size == 0:
        return np.empty(0, native)
    expected = f"{name} must be a value of dtype {native}, as {owner}"
    if values.dtype.kind == "O" and all(isinstance(value, int) for value in values):
        raise ValueError(f"{expected}, not {values[0]}")  # beyond 64 bits
    dates = {each.kind for each in (values.dtype, native)} & set("mM")
    if (dates and values.dtype.kind != native.kind) or values.dtype.kind not in "biufmM":
        raise TypeError(f"{name} must be of the dtype of {owner}, {native}, not {values.dtype}")
    with np.errstate(all="ignore"):
        found = values.astype(native)
    is_exact = (found == values) | (found != found)
    if native.kind == "f":  # a number that is rounded, as NumPy does where it compares
        is_exact |= np.isfinite(found) & np.isfinite(values)
    if not is_exact.all():
        raise ValueError(f"{expected}, not {values[~is_exact][0]}")
    return found


def check_real(array: Any, name: str, most_bits: int = 0) -> None:
    """Raise unless an array is of real numbers, of at most so many bits if that is said."""
    dtype = numpy_dtype(array)
    if dtype.kind not in "biuf" or 0 < most_bits < 8 * dtype.itemsize:
        limit = f" of at most {most_bits} bits" if most_bits else ""
        raise TypeError(f"{name} must be of real numbers{limit}, not {dtype}")


def check_table(array: Any, name: str) -> None:
    """Raise unless an array has rows and columns, the columns in one chunk.

    scikit-learn demands some of the words.
    """
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be two-dimensional, of shape (rows, features): "
            f"Expected 2D array, got {array.ndim}D: reshape your data"
        )
    if array.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is "
            f"required: {name}"
        )
    if isinstance(array, DaskArray) and array.numblocks[1] != 1:
        raise ValueError(
            f"{name} has {array.numblocks[1]} chunks along the features, and needs one: "
            "x.rechunk({1: -1})"
        )


def reduced_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The reduced axes, ascending."""
    return tuple(range(ndim)) if axis is None else tuple(sorted(_axes(axis, ndim)))


def _axes(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Some axes, counted from the first, in the order in which they are given."""
    try:
        return normalize_axis_tuple(axis, ndim)
    except TypeError:
        raise TypeError(
            f"axis must be None, an integer or a tuple of integers, not {axis!r}"
        ) from None


def real(xp: Any, values: Any, name: str) -> Array:
    """A copy as float64."""
    array = xp.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    return array.astype(np.float64)


def on_host(argument: Any) -> NDArray[Any]:
    """Real numbers as a NumPy array."""
    is_other = is_array(argument) and not isinstance(argument, np.ndarray | np.generic)
    host = np.asarray(to_host(argument) if is_other else argument)
    if host.dtype.kind not in "biuf":
        raise TypeError(f"expected real numbers, not {host.dtype}")
    return host
