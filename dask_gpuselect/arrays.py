"""Arrays of any kind: their namespace, moving them to the host, and what a chunk has to be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # an array-API array


def namespace(array: Array) -> Any:
    """The array-API namespace of an array. CuPy's arrays do not name theirs, which is cupy."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


def is_array(value: object) -> bool:
    """Whether `namespace` knows the array's functions.

    Arrays of `sparse` name their namespace too; the standard's have DLPack beside it.
    """
    is_standard = hasattr(value, "__array_namespace__") and hasattr(value, "__dlpack__")
    return is_standard or is_cupy(value)


def is_cupy(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy"


def gpu_of(array: object) -> int | None:
    """Return the number of the GPU that an array is on; None if it is on none."""
    return int(array.device.id) if is_cupy(array) else None  # type: ignore[attr-defined]


def namespace_of(*given: Any) -> Any:
    """Return cupy if any of these is one of its arrays, else numpy."""
    return namespace(next(filter(is_cupy, given), np.empty(0)))


def usual(array: Array) -> Array:
    """Return an array as dask and pandas know it: CuPy's as it is, any other as NumPy's."""
    return array if is_cupy(array) else to_host(array)


def is_kind(array: Array, kind: str) -> bool:
    """Whether an array is of a kind of dtype that the standard names, ``"real floating"`` or
    ``"bool"``."""
    if isinstance(array.dtype, np.dtype):
        return bool(array.dtype.kind == {"real floating": "f", "bool": "b"}[kind])
    return bool(namespace(array).isdtype(array.dtype, kind))


def as_type(array: Array, name: str) -> Array:
    """The array in the dtype of that name."""
    xp = namespace(array)
    return array.astype(name) if is_cupy(array) else xp.astype(array, getattr(xp, name))


def transposed(array: Array, axes: tuple[int, ...]) -> Array:
    """The array with its axes in another order. CuPy and NumPy have a method for it."""
    if isinstance(array, np.ndarray) or is_cupy(array):
        return array.transpose(axes)
    return namespace(array).permute_dims(array, axes)


def concatenate(arrays: Sequence[Array], axis: int) -> Array:
    """The arrays joined along an axis."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):  # NumPy's loses the masks
        return masked(np.ma.concatenate(list(arrays), axis))  # type: ignore[no-untyped-call]
    xp = namespace(arrays[0])
    return (xp.concatenate if is_cupy(arrays[0]) else xp.concat)(list(arrays), axis=axis)


def masked(values: Any, mask: Any = np.ma.nomask) -> np.ma.MaskedArray[Any, Any]:
    """A masked array, of values that may be masked already, with a fill value that its dtype has.

    NumPy's own default does not fit integers of one or two bytes, float16, and dates without a
    unit: distributed cannot send such arrays, and pickle cannot load them.
    """
    dtype = np.dtype(values.dtype)
    return np.ma.MaskedArray(values, mask, fill_value=_fill_value(dtype))


def fitted(array: Any) -> Any:
    """An array as it is, but for the fill value of one that is masked; see `masked`."""
    return masked(array) if isinstance(array, np.ma.MaskedArray) else array


def _fill_value(dtype: np.dtype[Any]) -> Any:
    """NumPy's default, or the largest value if that does not fit."""
    if dtype.kind in "mM":
        return np.array("NaT", dtype)[()]
    found = np.ma.default_fill_value(dtype)
    if dtype.kind == "f":
        return min(found, float(np.finfo(dtype).max))
    return min(found, np.iinfo(dtype).max) if dtype.kind in "iu" else found


def like(host: NDArray[Any], array: Array) -> Array:
    """A NumPy array as one of the kind, and on the device, of `array`."""
    if is_cupy(array):
        with array.device:
            if host.size == 1 and host.dtype.kind == "f":  # 15 us; a copy takes 55
                # As integers, for CuPy takes denormal float32 for zeros.
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
    found = xp.count_nonzero(flat[:whole].reshape(-1, COLUMNS), axis=0).sum()
    return int(found + flat[whole:].astype("i8").sum())


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
    """An answer found on the host, or on a device already, as an array of the kind of another.

    The other may be a chunk, or the meta of a dask array. What is no array, such as a number or a
    list, counts as NumPy's, and an answer without dimensions in NumPy's kind is a scalar.
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
    """A NumPy array of the same values."""
    if is_cupy(array):
        return array.get()
    try:
        return np.asarray(array)
    except (RuntimeError, TypeError):  # on a device that NumPy cannot read
        host = namespace(array).__array_namespace_info__().default_device()
        return np.asarray(array.to_device(host))


def as_float64(array: Array) -> Array:
    return as_type(array, "float64")


def no_array(value: object) -> str:
    """What an error says of something that is no array, and how sparse chunks become dense."""
    dense = next((name for name in ("toarray", "todense") if hasattr(value, name)), None)
    how = f"a.map_blocks(lambda b: b.{dense}(), dtype=a.dtype, meta=np.empty((0, 0)))"
    advice = "" if dense is None else f"; {how} makes sparse chunks dense"
    return f"neither NumPy nor CuPy, nor another array of the array API standard{advice}"


FILL_ELEMENTS = "fill the masked elements first, with NaN if a nan function is to leave them out"
FILL_ROWS = "fill the masked elements first, or leave out their rows"


def as_dtype(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Selected elements, of `selection_dtype`, as elements of `dtype` again."""
    return (
        values.view(dtype.newbyteorder("="))
        if dtype.kind in "bMm"
        else values.astype(dtype.newbyteorder("="))
    )


def check_not_masked(array: Any, advice: str = FILL_ELEMENTS) -> None:
    """Raise for a masked array: NumPy's own functions ignore the mask; and for one with a unit."""
    check_no_unit(array)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"masked arrays are not supported: {advice}")


def check_no_unit(array: Any, name: str = "an array") -> None:
    """Raise for a quantity, of pint, astropy, unyt and others: NumPy's functions would drop its
    unit, and take its numbers alone."""
    kind = type(array)
    # A quantity knows its unit, and converts itself to another one. So dates of pandas, which have
    # a unit of time, are none; attributes that are called so are none either.
    if not hasattr(kind, "to"):
        return
    for attribute in ("units", "unit"):
        unit = getattr(array, attribute, None)
        if unit is not None:
            numbers = "magnitude" if hasattr(kind, "magnitude") else "value"
            raise TypeError(
                f"{name} is a {kind.__name__} in {str(unit) or 'no unit'}, and the answer would "
                f"have none: pass its numbers, a.{numbers}, and give the answer its unit"
            )


def check_kind(array: Any, called: str = "arrays") -> None:
    """Raise for what is neither NumPy's nor of the array API.

    That a type has the standard's name for its namespace does not say that it keeps to it: arrays
    of `sparse` have that, and neither DLPack nor what selection needs.
    """
    if not isinstance(array, np.ndarray | np.generic) and not is_array(array):
        raise TypeError(f"{called} of type {type_name(array)} are not supported: {no_array(array)}")


def as_numpy(values: Any) -> NDArray[Any]:
    """What is no array of the array API as a NumPy array, but nothing that only seems to be one."""
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
    """The name of a value's type as one imports it."""
    kind = type(value)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def checked(
    chunk: Any, dtype: np.dtype[Any], called: str = "a chunk", advice: str = FILL_ELEMENTS
) -> Any:
    """The chunk as an array, if it is one that we know, and of the dtype that was promised."""
    if isinstance(chunk, np.generic | int | float | complex):
        chunk = np.asarray(chunk)
    check_no_unit(chunk, called)
    if isinstance(chunk, np.ma.MaskedArray):
        raise TypeError(f"masked arrays are not supported, and {called} is one: {advice}")
    if not isinstance(chunk, np.ndarray) and not is_array(chunk):
        raise TypeError(
            f"chunks of type {type_name(chunk)} are not supported, and {called} is one: "
            f"{no_array(chunk)}"
        )
    found = numpy_dtype(chunk)
    if not (found == dtype or _are_strings(found, dtype) or np.can_cast(found, dtype, "safe")):
        raise _another_dtype(called, found, dtype)
    return chunk


def _are_strings(found: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether both are strings: arrays seldom say how long the longest one is."""
    return found.kind == dtype.kind and dtype.kind in "SU"


def _another_dtype(called: str, found: np.dtype[Any], dtype: np.dtype[Any]) -> TypeError:
    return TypeError(
        f"{called} has dtype {found}, but its array says {dtype}: give the array the right dtype"
    )


def as_declared(chunk: Any, dtype: np.dtype[Any], called: str) -> Any:
    """A checked chunk in the dtype that was promised, if every element stays what it is: what NumPy
    calls safe rounds integers above ``2**53`` to float64, and wraps dates that a finer unit does
    not reach. NumPy's subclasses become plain."""
    if isinstance(chunk, np.ndarray):
        chunk = np.asarray(chunk)
    found = numpy_dtype(chunk)
    if found == dtype or _are_strings(found, dtype):
        return chunk
    if not isinstance(chunk, np.ndarray):
        converted = as_type(chunk, dtype.name)
    else:
        try:
            converted = chunk.astype(dtype)
        except OverflowError:  # of dates, since NumPy 2.5
            raise _another_dtype(called, found, dtype) from None
    may_differ = dtype.kind in "mM" or (dtype.kind == "f" and found.kind in "iu")
    if may_differ and not _is_same(chunk, converted, found):
        raise _another_dtype(called, found, dtype)
    return converted


def _is_same(chunk: Any, converted: Any, dtype: np.dtype[Any]) -> bool:
    """Whether what was converted is what it was made of."""
    if isinstance(chunk, np.ndarray) and dtype.kind in "mM":
        return bool(((converted.astype(dtype) == chunk) | np.isnat(chunk)).all())
    if dtype.itemsize < 8:  # a float holds all of them
        return True
    if any_true(converted >= 2.0 ** (63 if dtype.kind == "i" else 64)):  # rounded up to it
        return False
    return all_true(as_type(converted, dtype.name) == chunk)


def numpy_dtype(array: Any) -> np.dtype[Any]:
    """The dtype of an array as NumPy's; array-API dtypes print as ``<namespace>.<name>``."""
    if isinstance(array.dtype, np.dtype):
        return array.dtype
    return np.dtype(str(array.dtype).rpartition(".")[2])
