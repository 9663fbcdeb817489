"""Moving windows of NumPy chunks, slab by slab.

Small windows use the networks of `window_networks`, others the blocks of `window_blocks`. Both find
elements by their keys.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.kernels.compiling import Types, compiles, types, until_compiled
from dask_gpuselect.kernels.cpu import window_blocks, window_networks
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.windows import Frame, WindowOrder

SLAB = 1 << 16  # windows that are answered together: their elements stay in the cache

counts = reference.counts


@until_compiled(reference.answer)
def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer a question for each window, in kind; see `reference.windows.answer`."""
    if order.deviates and order.dtype.itemsize < 4:
        return reference.answer(chunk, dtype, frame, order)
    most = max(SLAB, math.ceil(16 * 2.5 ** len(frame.size)) * frame.n)
    return reference.in_slabs(_answer_slab, chunk, dtype, frame, order, most)


def _answer_slab(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    shape = frame.shape(tuple(chunk.shape))
    n_valid, n_missing = (each.reshape(-1) for each in counts(chunk, frame))
    if order.deviates:
        dtype = order.dtype  # distances are found in the dtype of the answers
    keys, keeps = _keys(chunk, dtype)
    is_whole = 0 in n_valid.strides
    if window_networks.takes(keys, frame) and not order.deviates:
        given = keys if keeps is None else np.where(keeps, keys, ~keys.dtype.type(0))
        found = window_networks.elements(given, frame, order, None if is_whole else n_valid)
    else:
        found = window_blocks.elements(
            keys, keeps, dtype.kind in "fmM", frame, order, is_whole=is_whole
        )
    of = np.ndarray.view if order.deviates else _elements_of
    lower = upper = of(found[0], dtype).T
    if found[1] is not found[0]:
        upper = of(found[1], dtype).T
    lanes = Lanes(lower, upper, n_valid, n_missing)
    return order.finished(order.lane_values(lanes), n_valid).reshape(-1, *shape)


def _keys(chunk: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the keys of a chunk, NaN and NaT as the last key, and its mask."""
    values = values_of(chunk).astype(dtype.newbyteorder("="), copy=False)
    words = np.ascontiguousarray(values).view(f"u{dtype.itemsize}")
    keeps = chunk.keeps if isinstance(chunk, Accompanied) else None
    if dtype.kind in "bu":
        return words, keeps
    keys = np.empty_like(words)
    about = (*_kind_of(dtype), keys.reshape(-1))
    _compiled(_to_keys, words.dtype)(words.reshape(-1), *about)
    return keys, keeps


def _elements_of(keys: NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """Turn keys into elements in place, in the dtype in which they are selected."""
    if dtype.kind not in "bu":
        kind, sign, _ = _kind_of(dtype)
        _compiled(_from_keys, keys.dtype)(keys.reshape(-1), kind, sign)
    wide = selection_dtype(dtype)
    native = wide if dtype.kind in "bmM" else dtype.newbyteorder("=")
    return keys.view(native)


def _kind_of(dtype: np.dtype[Any]) -> tuple[int, Any, Any]:
    """Describe elements for kernels: their kind as a number, the sign bit, and infinity."""
    kind = np.dtype(f"u{dtype.itemsize}").type
    sign = kind(1 << (8 * dtype.itemsize - 1))
    is_float = dtype.kind == "f"
    infinity = np.array(np.inf, dtype.newbyteorder("=")).view(kind)[()] if is_float else kind(0)
    return "ifmM".index(dtype.kind), sign, infinity


def _to_keys(words: Any, kind: Any, sign: Any, infinity: Any, keys: Any) -> None:
    """Write integers in the order of the elements, the keys of `radix.keys_of`, in one pass."""
    one = words.dtype.type(1)
    for i in range(words.size):
        word = words[i]
        if kind == 0:
            keys[i] = word ^ sign
        elif kind == 1:
            size = word & ~sign
            key = ~word if word & sign else word | sign
            key = sign if size == 0 else key
            keys[i] = ~(sign ^ sign) if size > infinity else key
        else:
            keys[i] = (word ^ sign) - one


def _from_keys(keys: Any, kind: Any, sign: Any) -> None:
    """Turn keys into the words of elements, in place."""
    one = keys.dtype.type(1)
    for i in range(keys.size):
        key = keys[i]
        if kind == 0:
            keys[i] = key ^ sign
        elif kind == 1:
            keys[i] = key ^ sign if key & sign else ~key
        else:
            keys[i] = (key + one) ^ sign


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    word = values.dtype
    if word not in (types.uint8, types.uint16, types.uint32, types.uint64):
        return {}
    return {
        _to_keys: (values, types.int64, word, word, values_out),
        _from_keys: (values_out, types.int64, word),
    }
