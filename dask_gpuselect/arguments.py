"""Validation of the arguments of public functions.

A call computes nothing. So an argument that is not data must be known when the graph is built. It
is refused if it is lazy, or contains lazy values at any depth, because Python and NumPy would
compute them. It is also refused if it is masked, because NumPy would use the values under the mask.
Data are refused if they are a list of lazy arrays, a lazy collection other than a dask array, or an
array with a unit.
"""

from __future__ import annotations

import inspect
import operator
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
    FILL_ROWS,
    Array,
    agree,
    as_numpy,
    check_no_unit,
    check_not_masked,
    gpu_of,
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
from dask_gpuselect.maths.interpolation import conversion_of, no_quantiles_of
from dask_gpuselect.optional import check_is_data
from dask_gpuselect.quiet import quiet

Axis = int | Sequence[int] | None
P = ParamSpec("P")
T = TypeVar("T")

# MAD and IQR of the standard normal distribution. A spread divided by one of them estimates the
# standard deviation of normal data.
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
    "dim": "pass axis=; for xarray objects, import dask_gpuselect.xarray and call "
    'a.exact.median("time")',
    "interpolation": "NumPy and this package call it method",
    "out": "assign the answer; store a lazy one with answer.to_zarr(path)",
    "overwrite_input": "leave it out; the data are never overwritten",
    "as_index": "leave it out, and type answer.reset_index() for the keys as columns",
    "axis": "leave it out; for arrays, median, quantile, describe_boxplot, mad, iqr, trimmed_mean "
    "and groupby take one",
    "center": "leave it out; mad takes the deviations from the median",
    "kind": "leave it out; argsort and sort_by keep the order of equal elements",
    "nan_policy": "the nan-variants leave out NaN: nanmad, naniqr, nantrimmed_mean",
    "rng": "type q=(0.25, 0.75), fractions instead of percent",
}
"""Hints for an argument that a function does not take: which other functions take it."""
# Types of values that contain nothing. A list may have millions of them, and is not searched.
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), np.float64, np.int64})


def plain_types(*values: Any) -> tuple[tuple[type, ...], ...] | None:
    """Return the types of values and of what tuples contain; None if some are not plain.

    With them in the key of a cache, it tells 1 and True apart.
    """
    types = [tuple(map(type, each)) if type(each) is tuple else (type(each),) for each in values]
    return tuple(types) if all(map(PLAIN.issuperset, types)) else None


class SameKind(Protocol[P]):
    """Type of a function that returns an array of the kind that it was given.

    Type checkers and editors see this type. A plain array may give a NumPy scalar, which is typed
    as an array without dimensions.
    """

    @property
    def __name__(self) -> str: ...

    @overload
    def __call__(self, a: DaskArray, /, *args: P.args, **kwargs: P.kwargs) -> DaskArray: ...

    @overload
    def __call__(self, a: NDArray[Any], /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...

    @overload
    def __call__(self, a: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


def same_kind(function: Callable[Concatenate[Any, P], Any]) -> SameKind[P]:
    """Tell type checkers that a function returns the kind of array that it is given."""
    return cast(SameKind[P], function)


def public(
    *data: str, many: str | tuple[str, ...] = (), instead: str = FIRST
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public function: check its arguments, and silence NumPy's floating-point errors.

    Parameters
    ----------
    *data : str
        Names of the parameters that may be dask arrays.
    many : str or tuple of str
        Names of the parameters that may also be a list, a tuple or a dict of arrays.
    instead : str
        Advice in the error for a lazy argument. ``{name}`` stands for the name of the argument.
    """
    several = (many,) if isinstance(many, str) else many

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
        names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
        taken = {each.name for each in parameters}
        by_name = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        needed = [
            each for each in names if signature.parameters[each].default is inspect.Parameter.empty
        ]
        is_method = names[:1] == ["self"]

        @wraps(function)
        def entered(*args: P.args, **kwargs: P.kwargs) -> T:
            if len(args) > len(names) and not rest:
                raise too_many(function.__name__, names, by_name)
            for name in kwargs:
                if not (takes_any or name in taken):
                    raise unexpected(function.__name__, name)
            if is_method:
                check_parameters(args[0])
            named = [*zip(chain(names, repeat(rest)), args, strict=False), *kwargs.items()]
            for name in needed[len(args) :]:
                if name not in kwargs:
                    raise TypeError(f"{function.__name__}() needs the argument {name}")
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
                return _by_sources(kind, function, args, kwargs)

        return entered

    return decorate


def too_many(function: str, names: Sequence[str], by_name: Sequence[str]) -> TypeError:
    """Return the error for too many positional arguments, which says what to pass by name."""
    taken = ", ".join(name for name in names if name != "self")
    others = ", ".join(f"{name}=" for name in by_name)
    return TypeError(
        f"{function}({taken}) takes no further positional arguments: "
        + (f"pass others by name, {others}" if others else "leave out others")
    )


def unexpected(function: str, name: str) -> TypeError:
    """Return Python's error for an argument that a function does not take, with a hint.

    It is raised before the value of the argument is checked.
    """
    hint = f": {ELSEWHERE[name]}" if name in ELSEWHERE else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def _kind_of(given: Mapping[str, Any]) -> ExpressionType | None:
    """Return the expression type of the lazy arrays among arguments; None if they have none."""
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
            f"{one} is an array of {of_one}, and {other} is an array of {of_other}: use arrays of "
            "one package; dask_array.core.from_graph(x.dask, x._meta, x.chunks, [], x.name) "
            "converts an array x of dask.array to dask_array"
        )
    return next(iter(kinds), None)


def _by_sources(
    kind: ExpressionType, function: Callable[..., T], args: Any, kwargs: Mapping[str, Any]
) -> T:
    """Call a function with dask arrays instead of expression arrays, and convert its answer back.

    Arrays that an estimator has as attributes are converted too. Expressions that the function
    hands back are those that were given.
    """
    given: dict[str, Any] = {}  # by the names of their sources

    def source(array: Any) -> DaskArray:
        made: DaskArray = as_source(array)
        given[made.name] = array
        return made

    def expression(array: DaskArray) -> Any:
        return given[array.name] if array.name in given else as_expression(array, kind)

    args, kwargs = replaced((args, kwargs), kind.is_instance, source)
    result: Any = function(*args, **kwargs)
    if hasattr(result, "get_params"):
        own = {name: value for name, value in vars(result).items() if isinstance(value, DaskArray)}
        vars(result).update({name: expression(value) for name, value in own.items()})
    answer: T = replaced(result, lambda each: isinstance(each, DaskArray), expression)
    return answer


def replaced(value: Any, is_one: Callable[[Any], bool], function: Callable[[Any], Any]) -> Any:
    """Apply a function to selected values in nested tuples, lists and dicts."""
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
    """Return the arrays of an argument that may contain several."""
    if isinstance(value, Grouped):
        return [value.array]
    if isinstance(value, Mapping) and not is_dask_collection(value):
        return list(value.values())
    is_several = isinstance(value, list | tuple) and not PLAIN.issuperset(map(type, value))
    return value if is_several else [value]


def each_of(a: Any, name: str = "a") -> tuple[list[Any], Callable[[list[Any]], Any] | None]:
    """Return the arrays of an argument, and a function that makes a dict or list of their answers.

    The function is None for a single array. A list is several arrays if one of them is lazy.
    Otherwise it is one array, as in NumPy.
    """
    if isinstance(a, dict):
        if not a:
            raise ValueError(f"{name} is an empty dict: pass at least one array")
        return list(a.values()), lambda answers: dict(zip(a, answers, strict=True))
    if isinstance(a, list | tuple) and any(is_lazy_array(each) and each.ndim for each in a):
        return list(a), list
    check_data(a, name)
    if isinstance(a, list | tuple):
        shapes = list(dict.fromkeys(each.shape for each in a if isinstance(each, np.ndarray)))
        if len(shapes) > 1:
            raise ValueError(
                f"{name} is a list of NumPy arrays of different shapes, {shapes[0]} and "
                f"{shapes[1]}, and a list of NumPy arrays counts as one array: pass a dict of "
                "arrays to get a dict of answers"
            )
    return [a], None


def holds_arrays(a: Any) -> bool:
    """Return whether a value is a list of arrays, rather than one array."""
    return isinstance(a, list | tuple) and any(
        is_dask_collection(item) or np.ndim(item) for item in a
    )


def for_each(companion: Any, a: Any, *, n: int, name: str, is_several: bool) -> list[Any]:
    """Return the companion of each of `n` arrays: one for all of them, or one for each.

    Parameters
    ----------
    companion : object
        One array, or a list or dict of arrays.
    a : object
        The argument with the data.
    n : int
        Number of arrays in `a`.
    name : str
        Name of the parameter, for errors.
    is_several : bool
        True if `a` is a list or a dict of arrays.
    """
    if isinstance(companion, Mapping) and not is_dask_collection(companion):
        if not (isinstance(a, Mapping) and companion.keys() == a.keys()):
            raise ValueError(
                f"{name} is a dict, and the data are not a dict with the same keys: pass one array "
                f"of {name} for all, or a dict with the keys of the data"
            )
        return [companion[key] for key in a]
    if not (holds_arrays(companion) and is_several):
        check_data(companion, name)
        return [companion] * n
    if len(companion) != n:
        raise ValueError(
            f"{name} has {len(companion)} arrays, and the data have {n}: pass one array for all, "
            "or one for each"
        )
    return list(companion)


def _leaves(value: Any) -> Iterator[Any]:
    """Yield a value, or the values that it contains at any depth.

    Values that can neither be lazy nor have a unit are left out.
    """
    values: Iterable[Any]
    if is_dask_collection(value):
        yield value
        return
    if isinstance(value, Mapping):
        values = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        values = () if PLAIN.issuperset(map(type, value)) else value
    elif type(value) is np.ndarray:
        values = value.flat if value.dtype == object else ()
    else:
        yield value
        return
    for each in values:
        if type(each) not in PLAIN:
            yield from _leaves(each)


def holds_lazy(value: Any) -> bool:
    """Return whether a value is lazy, or contains lazy values at any depth."""
    return any(map(is_dask_collection, _leaves(value)))


def as_integer(value: Any, name: str) -> int:
    """Return an argument as an int; raise if it is no integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def check_most(number: int, name: str, most: int = MOST) -> None:
    """Raise if an argument asks for more objects in memory than is reasonable."""
    if number > most:
        raise ValueError(f"{name} must be at most {most:,}, not {number:,}")


def check_known(value: Any, name: str, instead: str = FIRST) -> None:
    """Raise for an argument that is masked, lazy or has a unit, or contains lazy values."""
    if type(value) in PLAIN:
        return
    for leaf in _leaves(value):
        check_no_unit(leaf, name)
        if isinstance(leaf, np.ma.MaskedArray):  # NumPy takes what is under the mask
            raise TypeError(f"{name} is masked: pass its unmasked values, {name}.compressed()")
        if is_dask_collection(leaf):
            raise TypeError(
                f"{name} must be known at the call, and is lazy: {instead.format(name=name)}"
                if leaf is value
                else f"{name} must be known at the call, and contains lazy values: "
                f"compute them first, {name}, = dask.compute({name})"
            )


def check_data(value: Any, name: str) -> None:
    """Raise for data that are not an array.

    Raise also for a lazy collection other than a dask array, for a list that contains lazy values,
    and for an array with a unit.
    """
    if type(value) in PLAIN:
        return
    if gpu_of(value) is not None:  # neither lazy, nor with a unit
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
                f"{name} must be a dask array, not a {kind}: pass its array (x.data of xarray, "
                "x.values of dask.dataframe), or import dask_gpuselect.xarray or "
                "dask_gpuselect.dataframe and type x.exact.median()"
                if leaf is value
                else f"{name} is a {kind} that contains lazy values, which the call would compute: "
                f"pass one dask array, da.stack({name})"
            )


def _inside(value: Any) -> Any:
    """Return the array inside an object with named dimensions; None for other objects."""
    return getattr(value, "data", None) if hasattr(type(value), "dims") else None


def check_parameters(estimator: Any) -> None:
    """Raise for parameters of an estimator that are lazy or masked, or have a unit."""
    if hasattr(type(estimator), "get_params"):
        for name, value in estimator.get_params(deep=False).items():
            check_known(value, name)


def as_array(a: Any, name: str = "", of: str = "real numbers") -> Any:
    """Return data as a dask array, a NumPy array, or another array of the array API.

    `name` is that of the argument, for errors, and `of` says what its elements must be.
    """
    if isinstance(a, DaskArray):
        return entered(a)
    if gpu_of(a) is not None:
        return a
    check_not_masked(a, name=name)
    if is_array(a) and not isinstance(a, np.ndarray | np.generic):
        return a
    host = as_numpy(a)  # of NumPy's scalars and subclasses too
    if not isinstance(a, np.ndarray) and host.ndim == 0 and host.dtype.kind in "OSU":
        needed = f"{name} must be an array of {of}"
        if not name:
            needed = "expected an array of real numbers, bools or dates"
        raise TypeError(f"{needed}, not {type_name(a)}")
    return host


def as_entered(a: Any, name: str) -> Any:
    """Return rows whose chunks are checked as they are read, or plain rows that are not masked."""
    if isinstance(a, DaskArray):
        return entered(a, name, FILL_ROWS)
    check_not_masked(a, FILL_ROWS)
    return a


def is_masked(a: Any) -> bool:
    """Return whether an array, or each chunk of a dask array, is masked."""
    return isinstance(getattr(a, "_meta", a), np.ma.MaskedArray)


def if_all_left_out(a: Any, where: Any, nodata: Any) -> str:
    """Return how to answer if no element takes part, as `Quantiles.if_none` says it."""
    if isinstance(a, Grouped):  # groups may be empty
        return "masked" if is_masked(a.array) else "missing"
    is_whole = (where is None or where is True) and nodata is None
    return "masked" if is_masked(a) else "empty" if is_whole else "missing"


def as_accompanied(
    a: Any, where: Any = None, nodata: Any = None, weights: Any = None, axis: Axis = None
) -> Any:
    """Return data as `as_array` does, together with their mask and their weights.

    Parameters
    ----------
    a : array
        May be masked. Masked elements are left out.
    where : array of bool, optional
        Elements take part where it is True. It broadcasts to the shape of `a`.
    nodata : scalar or sequence, optional
        Elements that equal one of these values are left out.
    weights : array of real numbers, optional
        Of the shape of `a`, or of the shape of its axes `axis`.
    axis : int or sequence of int, optional
        The axes of `a` that `weights` has.

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
        where = _companion(where, "where", "bool, such as x > 3")
        if numpy_dtype(where).kind != "b":
            raise TypeError(
                f"where must have dtype bool, not {numpy_dtype(where)}: pass where.astype(bool)"
            )
    if weights is not None:
        weights = _laid_out(_companion(weights, "weights"), array, axis)
    if nodata is not None:
        if problem := no_quantiles_of(numpy_dtype(array)):
            raise TypeError(problem)
        nodata = converted_exactly(nodata, numpy_dtype(array), "nodata", "the data")
    return accompanied(array, where, weights, nodata)


def _without_masked(a: Any) -> Any:
    """Convert a masked array to a plain one with a mask beside it."""
    if isinstance(a, DaskArray):
        return entered(a, may_be_masked=True)
    return Accompanied(as_numpy(np.ma.getdata(a)), ~np.ma.getmaskarray(a))


def _companion(array: Any, name: str, of: str = "real numbers") -> Any:
    """Return a mask or weights as an array."""
    return array if isinstance(array, DaskArray) else as_array(array, name, of)


def _laid_out(weights: Any, array: Any, axis: Axis) -> Any:
    """Return weights with the axes of the data, of size 1 along axes that they do not have."""
    if numpy_dtype(weights).kind not in "biuf":
        raise TypeError(
            f"weights must be real numbers, not of dtype {numpy_dtype(weights)}: pass "
            "weights.astype(float)"
        )
    if agree(weights.shape, array.shape):
        return weights
    if axis is None:
        raise TypeError(
            "Axis must be specified when shapes of a and weights differ: a has shape "
            f"{array.shape}, and weights {weights.shape}; pass axis=, the axes that the weights "
            "are along"
        )
    axes = axes_in_order(axis, array.ndim)
    if tuple(weights.shape) != tuple(array.shape[each] for each in axes):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis: weights "
            f"have shape {weights.shape}, and a has {tuple(array.shape[each] for each in axes)} "
            f"along axis {axis}"
        )
    order = tuple(np.argsort(axes).tolist())
    is_lazy = isinstance(weights, DaskArray)
    ascending = weights.transpose(order) if is_lazy else transposed(weights, order)
    return ascending[tuple(slice(None) if i in axes else None for i in range(array.ndim))]


def scale_factor(scale: float | str, normal: float, dtype: np.dtype[Any]) -> float:
    """Return the number by which a spread is divided."""
    if isinstance(scale, str):
        if scale != "normal":
            raise ValueError(f'scale must be "normal" or a number, not {scale!r}')
        return normal
    if not isinstance(scale, int | float | np.integer | np.floating):
        raise TypeError(f'scale must be "normal" or a number, not a {type(scale).__name__}')
    factor = float(scale)
    with np.errstate(all="ignore"):
        rounded = dtype.type(factor)
    if not (np.isfinite(rounded) and rounded > 0):
        raise ValueError(f"scale must be positive and finite in {dtype}, not {scale}")
    return factor


def converted_exactly(given: Any, dtype: np.dtype[Any], name: str, owner: str) -> NDArray[Any]:
    """Convert values to a one-dimensional array of a dtype, or raise if it cannot hold them."""
    native = dtype.newbyteorder("=")
    values = np.atleast_1d(np.asarray(as_integers(given, native)))
    if values.ndim > 1:
        raise ValueError(f"{name} must be a scalar or one-dimensional, not of shape {values.shape}")
    if values.size == 0:
        return np.empty(0, native)
    expected = f"{name} must fit {native}, the dtype of {owner}"
    if values.dtype.kind == "O" and all(isinstance(value, int) for value in values):
        largest = max(values, key=abs)  # it has more than 64 bits
        if native.kind != "f" or abs(largest) > int(np.finfo(native).max):
            raise ValueError(f"{expected}, and {largest} does not")
        values = values.astype(native)
    dates = {each.kind for each in (values.dtype, native)} & set("mM")
    if (dates and values.dtype.kind != native.kind) or values.dtype.kind not in "biufmM":
        raise TypeError(f"{name} must have the dtype of {owner}, {native}, not {values.dtype}")
    with np.errstate(all="ignore"):
        converted = values.astype(native)
    is_exact = (converted == values) | (converted != converted)
    if native.kind == "f":  # a number that is rounded, as NumPy does where it compares
        is_exact |= np.isfinite(converted) & np.isfinite(values)
    elif native.kind in "iu" and values.dtype.kind == "f":
        # float64 has no largest integer of 64 bits, but the one behind it.
        is_exact &= values < int(np.iinfo(native).max) + 1
    if not is_exact.all():
        raise ValueError(f"{expected}, and {values[~is_exact][0]} does not")
    return converted


def as_integers(given: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a list of integers that a dtype can hold to that dtype; return others unchanged.

    NumPy would convert some integers beyond int64 to float64, and round them.
    """
    if dtype.kind in "iu" and isinstance(given, list | tuple):
        limits = np.iinfo(dtype)
        if all(isinstance(n, int | np.integer) and limits.min <= n <= limits.max for n in given):
            return np.array(given, dtype)
    return given


def check_real(array: Any, name: str, most_bits: int = 0) -> None:
    """Raise unless an array has real numbers, and at most `most_bits` bits if that is given."""
    dtype = numpy_dtype(array)
    if dtype.kind not in "biuf" or 0 < most_bits < 8 * dtype.itemsize:
        limit = f" of at most {most_bits} bits" if most_bits else ""
        raise TypeError(f"{name} must have real numbers{limit}, not {dtype}{conversion_of(dtype)}")


def check_table(array: Any, name: str) -> None:
    """Raise unless an array has rows and columns, with all columns in one chunk.

    scikit-learn's own tests ask for some of the words in the errors.
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
            f"{name} has {array.numblocks[1]} chunks along the features, and must have one: pass "
            f"{name}.rechunk({{1: -1}})"
        )


def reduced_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return the reduced axes in ascending order."""
    return tuple(range(ndim)) if axis is None else tuple(sorted(axes_in_order(axis, ndim)))


def axes_in_order(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Normalise axes to numbers from 0 on, in the given order."""
    try:
        return normalize_axis_tuple(axis, ndim)
    except TypeError:
        is_name = isinstance(axis, str)  # a dimension of xarray
        advice = f": for xarray objects, type a.exact.median({axis!r})" if is_name else ""
        raise TypeError(
            f"axis must be None, an integer or a tuple of integers, not {axis!r}{advice}"
        ) from None


def real(xp: Any, values: Any, name: str) -> Array:
    """Return a copy of real numbers as float64."""
    array = xp.asarray(values)
    check_real(array, name)
    return array.astype(np.float64)


def on_host(argument: Any) -> NDArray[Any]:
    """Return real numbers as a NumPy array."""
    is_other = is_array(argument) and not isinstance(argument, np.ndarray | np.generic)
    host = np.asarray(to_host(argument) if is_other else argument)
    if host.dtype.kind not in "biuf":
        raise TypeError(f"expected real numbers, not {host.dtype}: pass a.astype(float)")
    return host
