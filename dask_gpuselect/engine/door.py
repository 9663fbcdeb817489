"""Check every chunk of a dask array as it is read.

A public function gets an array that declares the dtype, shape and kind of its chunks. Only a worker
sees the chunks themselves. So each function puts one layer on its source, whose tasks check a chunk
and pass it on. Copies of the source copy that layer, so every load of every function runs the same
check. A task that takes one chunk runs the check itself (see `graphs._entrance`). In other cases
dask fuses the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.arrays import (
    FILL_ELEMENTS,
    agree,
    as_declared,
    check_kind,
    check_not_masked,
    checked,
    is_plain,
)
from dask_gpuselect.engine.graphs import checked_by
from dask_gpuselect.engine.reads import ChunkPlace
from dask_gpuselect.engine.shuffles import shuffles_apart
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import Accompanied


def entered(
    x: DaskArray, name: str = "", advice: str = FILL_ELEMENTS, *, may_be_masked: bool = False
) -> Source:
    """Return a source that checks every chunk as it is read; an error names a chunk that differs.

    Parameters
    ----------
    x : dask array
        Array to check. Nothing is computed.
    name : str
        Name of the array in messages, such as "X".
    advice : str
        Text that says what to do with masked chunks.
    may_be_masked : bool
        True if chunks may be masked. Masked chunks are passed on as `Accompanied`.

    Returns
    -------
    Source
        Its chunks are NumPy arrays and no subclasses, CuPy's, or others of the array API, none
        masked, of the dtype and, where that is known, the shape that `x` declares. Chunks of
        another dtype are converted if every element stays what it is.

    Raises
    ------
    TypeError
        For chunks of a kind that is not supported, if the array says so.
    """
    if (source := Source.of(x)).made_by.does == "check":
        return source
    is_masked = may_be_masked and isinstance(x._meta, np.ma.MaskedArray)
    if not is_masked:
        check_not_masked(x._meta, advice)
    check_kind(x._meta)
    own = f"checked-{tokenize(x.name, x.dtype, x.chunks, name, advice, is_masked)}"
    check: Callable[..., Any] = partial(_enter, dtype=x.dtype, name=name, advice=advice)
    check = partial(_enter_masked, check=check) if is_masked else check
    return checked_by(check, shuffles_apart(x), own)


def _enter_masked(chunk: Any, declared: tuple[ChunkPlace, tuple[float, ...]], *, check: Any) -> Any:
    is_whole = isinstance(chunk, np.ndarray) and np.ma.getmask(chunk) is np.ma.nomask
    keeps = None if is_whole else ~np.ma.getmaskarray(chunk)
    return Accompanied(check(np.ma.getdata(chunk), declared), keeps)


def _enter(
    chunk: Any,
    declared: tuple[ChunkPlace, tuple[float, ...]],
    *,
    dtype: np.dtype[Any],
    name: str,
    advice: str,
) -> Any:
    place, shape = declared
    called = f"chunk {tuple(map(int, place))}" + (f" of {name}" if name else "")
    is_usual = is_plain(chunk, dtype)
    chunk = chunk if is_usual else checked(chunk, dtype, called, advice)
    own_shape = tuple(map(int, chunk.shape))
    if not agree(own_shape, shape):
        raise ValueError(
            f"{called} has shape {own_shape}, but its array says {_shown(shape)}: "
            "give the array the right chunks"
        )
    return chunk if is_usual else as_declared(chunk, dtype, called)


def _shown(shape: tuple[float, ...]) -> str:
    sizes = ", ".join(f"{size:g}" if size == size else "?" for size in shape)  # noqa: PLR0124
    return f"({sizes}{',' * (len(shape) == 1)})"
