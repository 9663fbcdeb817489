"""Arrays as CuPy's, over memory of the host: no NumPy arrays, and none by themselves."""

from __future__ import annotations

import builtins
import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .cuda import memory
from .cuda._device import Device

DTYPES = "?bBhHiIlLqQefdFD"
SCALARS = int | float | complex | bool | np.generic


def checked(dtype: Any) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.char not in DTYPES or not kind.isnative:
        raise ValueError(f"Unsupported dtype {kind}")
    return kind


class Flags:
    def __init__(self, host: np.ndarray[Any, Any], is_own: bool) -> None:
        self.c_contiguous, self.f_contiguous = host.flags.c_contiguous, host.flags.f_contiguous
        self.owndata, self.forc, self.fnc = is_own, host.flags.forc, host.flags.fnc

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


class ndarray:
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: Any = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        dtype = checked(dtype)
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if memptr is None:
            memptr = memory.alloc(int(np.prod(shape, dtype=object)) * dtype.itemsize)
        self._host = np.ndarray(shape, dtype, memptr.bytes, memptr.offset, strides, order)
        self.base: ndarray | None = None

    # --- Where it is ---

    @property
    def data(self) -> memory.MemoryPointer:
        own = root(self._host)
        return memory.MemoryPointer(own, self._host.ctypes.data - own.memory.ptr)

    @property
    def device(self) -> Device:
        return Device(0)

    @property
    def flags(self) -> Flags:
        return Flags(self._host, self.base is None)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        is_plain = self._host.flags.c_contiguous
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": 1,
            "version": 3,
            "strides": None if is_plain else self.strides,
            "data": (self._host.ctypes.data, False),
        }

    # --- To the host ---

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        if out is None:
            return np.array(self._host, order=order)  # type: ignore[call-overload]
        out[...] = self._host
        return out

    def set(self, host: np.ndarray[Any, Any], stream: Any = None) -> None:
        if host.dtype != self.dtype or host.shape != self.shape:
            raise ValueError("dtype or shape mismatch")
        self._host[...] = host

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __int__(self) -> int:
        return int(self._host)

    def __index__(self) -> int:
        return operator.index(self._host)

    def __reduce__(self) -> Any:
        return asarray, (self.get(order="A"),)

    def __deepcopy__(self, _: Any) -> ndarray:
        return self.copy()  # type: ignore[no-any-return]

    # --- Elements ---

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self._host)))

    def __getitem__(self, index: Any) -> Any:
        return wrapped(self._host[_index(index)], self)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            if not (isinstance(index, slice) and index == slice(None)) and index is not Ellipsis:
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        elif not isinstance(value, ndarray | np.ndarray | SCALARS):
            value = np.asarray(value)
        self._host[_index(index)] = value._host if isinstance(value, ndarray) else value

    def fill(self, value: Any) -> None:
        self[...] = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._host.shape = shape

    # --- NumPy's functions ---

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not builtins.all(isinstance(x, ndarray | np.ndarray | SCALARS) for x in inputs):
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return called(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        cupy = sys.modules[__package__]
        if not builtins.all(issubclass(kind, ndarray | np.ndarray) for kind in types):
            return NotImplemented
        try:
            module = functools.reduce(getattr, func.__module__.split(".")[1:], cupy)
            own = getattr(module, func.__name__)
        except AttributeError:
            return NotImplemented
        return own(*args, **kwargs)


def root(host: Any) -> Any:
    """The array over the whole memory of an array; None if it is other memory than the device's."""
    while host is not None and not isinstance(host, memory.Bytes):
        host = getattr(host, "base", None)
    return host


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    return index._host if isinstance(index, ndarray) else index


def wrapped(result: Any, source: Any = None) -> Any:
    """What NumPy found as CuPy would give it: a view of an array, or a new array."""
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(wrapped(each, source) for each in result))
    if isinstance(result, list | tuple):
        return type(result)(wrapped(each, source) for each in result)
    if not isinstance(result, np.ndarray | np.generic):
        return result
    if isinstance(source, ndarray) and result is source._host:
        return source
    if isinstance(result, np.ndarray) and root(result) is not None:
        out = object.__new__(ndarray)
        out._host, out.base = result, source
        return out
    out = ndarray(result.shape, result.dtype, order="F" if _is_fortran(result) else "C")
    out._host[...] = result
    return out


def _is_fortran(array: Any) -> bool:
    return array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous


def unwrapped(argument: Any) -> Any:
    if isinstance(argument, ndarray):
        return argument._host
    if isinstance(argument, np.ndarray):
        raise TypeError(f"Unsupported type {type(argument)}")
    if isinstance(argument, list | tuple):
        return type(argument)(map(unwrapped, argument))
    return argument


def called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function of NumPy, of arrays of this kind."""
    out = kwargs.get("out")
    with np.errstate(all="ignore"):  # a device tells nobody
        result = function(*map(unwrapped, args), **{k: unwrapped(v) for k, v in kwargs.items()})
    if isinstance(out, ndarray):
        return out
    first = next((a for a in args if isinstance(a, ndarray)), None)
    return wrapped(result, first)


def delegated(function: Callable[..., Any], gives_number: bool = False) -> Callable[..., Any]:
    @functools.wraps(function)
    def own(*args: Any, **kwargs: Any) -> Any:
        result = called(function, args, kwargs)
        return wrapped(np.asarray(result)) if gives_number and isinstance(result, int) else result

    return own


# --- Methods and operators ------------------------------------------------------------------------

METHODS = (
    "all any argmax argmin argpartition argsort astype choose clip compress conj copy cumprod "
    "cumsum diagonal dot flatten max mean min nonzero partition prod ravel repeat reshape round "
    "searchsorted sort squeeze std sum swapaxes take trace transpose var view"
)
ATTRIBUTES = "T dtype imag itemsize nbytes ndim real size strides"
BINARY = "add sub mul truediv floordiv mod pow lshift rshift and or xor matmul"
COMPARISONS = "lt le eq ne gt ge"
UNARY = "neg pos abs invert"
TO_HOST = "item tolist __bool__ __float__ __complex__ __repr__ __str__ __format__ __len__"


def _method(name: str) -> Any:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if name in ("sort", "argsort") and kwargs.get("kind") not in (None, "stable"):
            raise ValueError("kind cannot be specified")
        args = tuple(asarray(a) if isinstance(a, np.ndarray) else a for a in args)  # as `take` does
        if name in ("sort", "argsort"):
            kwargs["kind"] = "stable"
        return called(getattr(np.ndarray, name), (self, *args), kwargs)

    return method


def _operator(name: str, reflected: bool = False) -> Any:
    function = getattr(operator, name if name in COMPARISONS.split() else f"__{name}__")

    def method(self: ndarray, other: Any) -> Any:
        if not isinstance(other, ndarray | np.ndarray | SCALARS):
            return NotImplemented
        return called(function, (other, self) if reflected else (self, other), {})

    return method


def _in_place(name: str) -> Any:
    function = getattr(operator, f"__i{name}__")

    def method(self: ndarray, other: Any) -> ndarray:
        called(function, (self, other), {})
        return self

    return method


def _of_host(name: str) -> Any:
    return lambda self, *args: getattr(self._host, name)(*args)


for _name in TO_HOST.split():
    setattr(ndarray, _name, _of_host(_name))
for _name in METHODS.split():
    setattr(ndarray, _name, _method(_name))
for _name in ATTRIBUTES.split():
    _get = (lambda name: lambda self: wrapped(getattr(self._host, name), self))(_name)
    setattr(ndarray, _name, property(_get))
for _name in BINARY.split():
    setattr(ndarray, f"__{_name}__", _operator(_name))
    setattr(ndarray, f"__r{_name}__", _operator(_name, reflected=True))
    setattr(ndarray, f"__i{_name}__", _in_place(_name))
for _name in COMPARISONS.split():
    setattr(ndarray, f"__{_name}__", _operator(_name))
for _name in UNARY.split():
    _unary = (lambda function: lambda self: called(function, (self,), {}))(getattr(operator, _name))
    setattr(ndarray, f"__{_name}__", _unary)


# --- Making arrays --------------------------------------------------------------------------------


def array(
    values: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    blocking: bool = False,
) -> ndarray:
    if isinstance(values, ndarray):
        host = values._host
        is_same = (dtype is None or host.dtype == dtype) and order in ("K", "A", None)
        if is_same and not copy and host.ndim >= ndmin:
            return values
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
    elif isinstance(values, list | tuple):
        host = np.asarray(_on_host(values))
    elif hasattr(values, "__cuda_array_interface__"):
        raise TypeError(f"other arrays of a device, {type(values)}, are not emulated")
    else:
        host = np.asarray(values)
    made = np.array(
        host, checked(host.dtype if dtype is None else dtype), order=order or "K", ndmin=ndmin
    )
    return wrapped(made)  # type: ignore[no-any-return]


def _on_host(values: Any) -> Any:
    if isinstance(values, list | tuple):
        return [_on_host(each) for each in values]
    return values._host if isinstance(values, ndarray) else values


def asarray(
    values: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    copy: bool | None = None,
    blocking: bool = False,
) -> ndarray:
    return array(values, dtype, copy=copy, order=order)


def asnumpy(
    values: Any, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
) -> Any:
    if isinstance(values, ndarray):
        return values.get(stream, order, out)
    return np.asarray(values, order=order)  # type: ignore[call-overload]


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    out = ndarray(
        shape, np.asarray(_on_host(fill_value)).dtype if dtype is None else dtype, order=order
    )
    out.fill(fill_value)
    return out


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, dtype, order)


def empty_like(
    prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    # Its memory says whether it is of the device, and has to be new.
    like = np.empty_like(prototype._host, dtype, order, shape=shape)  # type: ignore[call-overload]
    return wrapped(like)  # type: ignore[no-any-return]


def ascontiguousarray(values: Any, dtype: Any = None) -> ndarray:
    if isinstance(values, ndarray) and values.flags.c_contiguous and dtype in (None, values.dtype):
        return values
    return array(values, dtype, order="C")


def asfortranarray(values: Any, dtype: Any = None) -> ndarray:
    if isinstance(values, ndarray) and values.flags.f_contiguous and dtype in (None, values.dtype):
        return values
    return array(values, dtype, order="F")
