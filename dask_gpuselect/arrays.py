"""Arrays of any kind: their namespace, copies to the host, and the checks of a chunk."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # an array-API array


def namespace(array: Array) -> Any:
    """Return the array-API namespace of an array.

    CuPy's arrays do not name theirs: it is the module cupy.
    """
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


def agree(shape: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two shapes are equal as far as they are known: unknown sizes are NaN."""
    return len(shape) == len(other) and all(
        n == size or math.isnan(n) or math.isnan(size) for n, size in zip(shape, other, strict=True)
    )


def is_array(value: object) -> bool:
    """Return whether `namespace` knows the functions of an array.

    Arrays of `sparse` name their namespace too; arrays of the standard also have DLPack.
    """
    is_standard = hasattr(value, "__array_namespace__") and hasattr(value, "__dlpack__")
    return is_standard or is_cupy(value)


def is_cupy(value: object) -> bool:
    """Return whether a value is an array of CuPy."""
    return type(value).__module__.partition(".")[0] == "cupy"


def gpu_of(array: object) -> int | None:
    """Return the number of the GPU that an array is on; None if it is on none."""
    return int(array.device.id) if is_cupy(array) else None  # type: ignore[attr-defined]


def namespace_of(*given: Any) -> Any:
    """Return cupy if any of these is one of its arrays, else numpy."""
    return namespace(next(filter(is_cupy, given), np.empty(0)))


def usual(array: Array) -> Array:
    """Return an array as dask and pandas know it: CuPy's as it is, any other as NumPy's."""
    return array if type(array) is np.ndarray or is_cupy(array) else to_host(array)


def is_kind(array: Array, kind: str) -> bool:
    """Return whether an array's dtype is of a kind, ``"real floating"`` or ``"bool"``.

    The names are those of the array API standard.
    """
    if isinstance(array.dtype, np.dtype):
        return bool(array.dtype.kind == {"real floating": "f", "bool": "b"}[kind])
    return bool(namespace(array).isdtype(array.dtype, kind))


def as_type(array: Array, name: str) -> Array:
    """Convert an array to the dtype of a name."""
    xp = namespace(array)
    return array.astype(name) if is_cupy(array) else xp.astype(array, getattr(xp, name))


def transposed(array: Array, axes: tuple[int, ...]) -> Array:
    """Return an array with its axes in another order.

    CuPy and NumPy have a method for it.
    """
    if isinstance(array, np.ndarray) or is_cupy(array):
        return array.transpose(axes)
    return namespace(array).permute_dims(array, axes)


def concatenate(arrays: Sequence[Array], axis: int) -> Array:
    """Join arrays along an axis."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):  # NumPy's loses the masks
        return masked(np.ma.concatenate(list(arrays), axis))  # type: ignore[no-untyped-call]
    xp = namespace(arrays[0])
    return (xp.concatenate if is_cupy(arrays[0]) else xp.concat)(list(arrays), axis=axis)


def masked(values: Any, mask: Any = np.ma.nomask) -> np.ma.MaskedArray[Any, Any]:
    """Return a masked array whose fill value its dtype can hold.

    `values` may be masked already. NumPy's own default does not fit integers of one or two bytes,
    float16, and dates without a unit: distributed cannot send such arrays, and pickle cannot load
    them.
    """
    dtype = np.dtype(values.dtype)
    return np.ma.MaskedArray(values, mask, fill_value=_fill_value(dtype))


def fitted(array: Any) -> Any:
    """Give a masked array a fill value that fits, as `masked` does; return others as they are."""
    return masked(array) if isinstance(array, np.ma.MaskedArray) else array


def _fill_value(dtype: np.dtype[Any]) -> Any:
    """Return NumPy's default fill value, or the largest value of the dtype if that is less."""
    if dtype.kind in "mM":
        return np.array("NaT", dtype)[()]
    default = np.ma.default_fill_value(dtype)
    if dtype.kind == "f":
        return min(default, float(np.finfo(dtype).max))
    return min(default, np.iinfo(dtype).max) if dtype.kind in "iu" else default


def like(host: NDArray[Any], array: Array) -> Array:
    """Convert a NumPy array to the kind of `array`, on its device."""
    if isinstance(array, np.ndarray):
        return np.asarray(host)
    if is_cupy(array):
        with array.device:
            if host.size == 1 and host.dtype.kind == "f":  # 15 us; a copy takes 55
                # Integers stand for the bits, because CuPy takes denormal float32 for zeros.
                bits = host.view(f"u{host.dtype.itemsize}")
                return namespace(array).full(bits.shape, bits.item(), bits.dtype).view(host.dtype)
            return namespace(array).asarray(host)
    return namespace(array).asarray(host, device=array.device)


# Columns of a mask whose true elements are counted; see `n_true`.
COLUMNS = 1 << 12


def n_true(mask: Array) -> int:
    """Count the true elements of a mask.

    The first `cupy.count_nonzero` of all elements, `any` and `all` of a process that finds no
    compiled kernels on disk compile one for 4 s each, which includes CUB (on an H200, CUDA 13);
    counts of columns take 0.2 s.
    """
    if not is_cupy(mask):
        return int(namespace(mask).count_nonzero(mask))
    xp, flat = namespace(mask), mask.reshape(-1)
    whole = flat.size // COLUMNS * COLUMNS
    counted = xp.count_nonzero(flat[:whole].reshape(-1, COLUMNS), axis=0).sum()
    return int(counted + flat[whole:].astype("i8").sum())


def any_true(mask: Array) -> bool:
    """Return whether any element of a mask is true; see `n_true`."""
    if not is_cupy(mask):
        return bool(namespace(mask).any(mask))
    return mask.size > 0 and bool(mask.view("u1").max())


def all_true(mask: Array) -> bool:
    """Return whether all elements of a mask are true; see `n_true`."""
    if not is_cupy(mask):
        return bool(namespace(mask).all(mask))
    return mask.size == 0 or bool(mask.view("u1").min())


def in_kind(answer: Any, kind: Any) -> Any:
    """Convert an answer, found on the host or a device, to the kind of another array.

    The other may be a chunk, or the meta of a dask array. A number or a list counts as NumPy's. In
    NumPy's kind, an answer without dimensions is a scalar.
    """
    if is_cupy(answer):
        if is_cupy(kind):
            return answer
        answer = to_host(answer)
    if isinstance(kind, np.ma.MaskedArray):
        answer = masked(np.asanyarray(answer))
    if isinstance(kind, np.ndarray | np.generic) or not is_array(kind):
        return answer[()]
    return like(answer, kind)


def to_host(array: Array) -> Any:
    """Return a NumPy array of the same values."""
    if not isinstance(array, np.ndarray) and is_cupy(array):
        return array.get()
    try:
        return np.asarray(array)
    except (RuntimeError, TypeError):  # on a device that NumPy cannot read
        host = namespace(array).__array_namespace_info__().default_device()
        return np.asarray(array.to_device(host))


def as_float64(array: Array) -> Array:
    """Convert an array to float64."""
    return as_type(array, "float64")


def no_array(value: object) -> str:
    """Return the advice of an error about a type that is no array, such as sparse chunks."""
    dense = next((name for name in ("toarray", "todense") if hasattr(value, name)), None)
    how = f"a.map_blocks(lambda b: b.{dense}(), dtype=a.dtype, meta=np.empty((0, 0)))"
    advice = "" if dense is None else f"; {how} makes sparse chunks dense"
    return f"use NumPy, CuPy or another array of the array API standard{advice}"


FILL_ELEMENTS = "fill the masked elements first, with NaN if a nan function is to leave them out"
FILL_ROWS = "fill the masked elements first, or leave out their rows"


def as_dtype(values: NDArray[Any], dtype: np.dtype[Any], *, copy: bool = True) -> NDArray[Any]:
    """Convert selected elements, of `selection_dtype`, back to the dtype of the data."""
    native = dtype.newbyteorder("=")
    return values.view(native) if dtype.kind in "bMm" else values.astype(native, copy=copy)


def check_not_masked(array: Any, advice: str = FILL_ELEMENTS, name: str = "") -> None:
    """Raise for a masked array, whose mask NumPy's functions ignore, and for one with a unit."""
    check_no_unit(array, name or "an array")
    if isinstance(array, np.ma.MaskedArray):
        subject = f"{name} is masked, and " if name else ""
        raise TypeError(f"{subject}masked arrays are not supported: {advice}")


def check_no_unit(array: Any, name: str = "an array") -> None:
    """Raise for a quantity, as of pint, astropy or unyt.

    NumPy's functions would take its numbers and drop its unit.
    """
    kind = type(array)
    # A quantity knows its unit, and converts itself to another one by a method `to`. Dates of
    # pandas have a unit of time, but no such method.
    if not hasattr(kind, "to"):
        return
    for attribute in ("units", "unit"):
        unit = getattr(array, attribute, None)
        if unit is not None:
            numbers = "magnitude" if hasattr(kind, "magnitude") else "value"
            raise TypeError(
                f"{name} is a {kind.__name__} with unit {str(unit) or 'none'}, which the answer "
                f"would lose: pass its numbers, a.{numbers}, and give the answer its unit"
            )


def check_kind(array: Any, called: str = "arrays") -> None:
    """Raise for an object that is neither a NumPy array nor an array of the array API.

    A type with the standard's attribute for its namespace need not keep to the standard: arrays of
    `sparse` have that attribute, but neither DLPack nor what selection needs.
    """
    if not isinstance(array, np.ndarray | np.generic) and not is_array(array):
        raise TypeError(f"{called} of type {type_name(array)} are not supported: {no_array(array)}")


def as_numpy(values: Any) -> NDArray[Any]:
    """Convert a value that is not an array of the array API to a NumPy array.

    Raise for objects that look like an array and that NumPy cannot convert.
    """
    if hasattr(values, "__array_namespace__") or (
        hasattr(values, "shape") and hasattr(values, "dtype") and not hasattr(values, "__array__")
    ):
        check_kind(values)
    if hasattr(values, "__cuda_array_interface__"):
        raise TypeError(
            f"arrays of type {type_name(values)} are not supported on a GPU: pass cupy.asarray(a), "
            "which copies nothing"
        )
    return np.asarray(values)


def type_name(value: object) -> str:
    """Return the name of a value's type, as one imports it."""
    kind = type(value)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def checked(
    chunk: Any, dtype: np.dtype[Any], called: str = "a chunk", advice: str = FILL_ELEMENTS
) -> Any:
    """Return a chunk as an array, or raise if its type or dtype is not as its array says."""
    if is_plain(chunk, dtype):
        return chunk
    if isinstance(chunk, np.generic | int | float | complex):
        chunk = np.asarray(chunk)
    check_not_masked(chunk, advice, called)
    if not isinstance(chunk, np.ndarray) and not is_array(chunk):
        raise TypeError(
            f"{called} is of type {type_name(chunk)}, which is not supported: {no_array(chunk)}"
        )
    given = numpy_dtype(chunk)
    if not (given == dtype or _are_strings(given, dtype) or np.can_cast(given, dtype, "safe")):
        raise _another_dtype(called, given, dtype)
    return chunk


def is_plain(chunk: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a chunk is NumPy's or CuPy's, no subclass, and of a dtype."""
    return (type(chunk) is np.ndarray or is_cupy(chunk)) and chunk.dtype == dtype


def _are_strings(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether both dtypes are strings of the same kind.

    Their lengths may differ: arrays seldom say how long the longest string is.
    """
    return given.kind == dtype.kind and dtype.kind in "SU"


def _another_dtype(called: str, given: np.dtype[Any], dtype: np.dtype[Any]) -> TypeError:
    """Return the error for a chunk of another dtype than its array says."""
    return TypeError(
        f"{called} has dtype {given}, but its array says {dtype}: give the array the right dtype"
    )


def as_declared(chunk: Any, dtype: np.dtype[Any], called: str) -> Any:
    """Convert a checked chunk to the dtype of its array, or raise if an element would change.

    NumPy calls some conversions safe that change elements: integers above ``2**53`` are rounded to
    float64, and dates beyond the range of a finer unit wrap. Subclasses of NumPy's arrays become
    plain.
    """
    if isinstance(chunk, np.ndarray):
        chunk = np.asarray(chunk)
    given = numpy_dtype(chunk)
    if given == dtype or _are_strings(given, dtype):
        return chunk
    if not isinstance(chunk, np.ndarray):
        converted = as_type(chunk, dtype.name)
    else:
        try:
            converted = chunk.astype(dtype)
        except OverflowError:  # of dates, since NumPy 2.5
            raise _another_dtype(called, given, dtype) from None
    may_differ = dtype.kind in "mM" or (dtype.kind == "f" and given.kind in "iu")
    if may_differ and not _is_same(chunk, converted, given):
        raise _another_dtype(called, given, dtype)
    return converted


def _is_same(chunk: Any, converted: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a converted chunk has the elements of the original."""
    if isinstance(chunk, np.ndarray) and dtype.kind in "mM":
        return bool(((converted.astype(dtype) == chunk) | np.isnat(chunk)).all())
    if dtype.itemsize < 8:  # a float holds all of them
        return True
    if any_true(converted >= 2.0 ** (63 if dtype.kind == "i" else 64)):  # rounded up to it
        return False
    return all_true(as_type(converted, dtype.name) == chunk)


def numpy_dtype(array: Any) -> np.dtype[Any]:
    """Return the dtype of an array as NumPy's.

    Dtypes of the array API print as ``<namespace>.<name>``.
    """
    if isinstance(array.dtype, np.dtype):
        return array.dtype
    return np.dtype(str(array.dtype).rpartition(".")[2])
