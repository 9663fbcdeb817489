"""The door that every chunk of a dask array comes through, whatever is asked of it.

What a function is given is a source: it says of which dtype, shape and kind its chunks are, and
only a worker sees what they are. So each function puts one layer on its source, whose tasks check
the chunk and hand it on. Copies of the source have copies of them, so that every load of every
function is checked by the same few lines. A task that takes one chunk checks it itself, see
`entrance`; with others dask fuses the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.arrays import FILL_ELEMENTS, as_declared, check_kind, check_not_masked, checked
from dask_gpuselect.engine.graphs import checked_by
from dask_gpuselect.engine.shuffles import shuffles_apart
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.kernels.companions import Accompanied

Place = tuple[int, ...]


def entered(
    x: DaskArray, name: str = "", advice: str = FILL_ELEMENTS, *, may_be_masked: bool = False
) -> Source:
    """An array whose chunks are checked as they are read: each is what the array says, or an error
    names it.

    Parameters
    ----------
    x : dask array
        Nothing is computed.
    name : str
        What the caller knows it by, for messages: "X", for instance.
    advice : str
        What to do with masked chunks.
    may_be_masked : bool
        Whether chunks may be masked: such chunks are handed on as `Accompanied`.

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


def _enter_masked(chunk: Any, declared: tuple[Place, tuple[float, ...]], *, check: Any) -> Any:
    keeps = (
        None
        if isinstance(chunk, np.ndarray) and np.ma.getmask(chunk) is np.ma.nomask
        else ~np.ma.getmaskarray(chunk)
    )
    return Accompanied(check(np.ma.getdata(chunk), declared), keeps)


def _enter(
    chunk: Any,
    declared: tuple[Place, tuple[float, ...]],
    *,
    dtype: np.dtype[Any],
    name: str,
    advice: str,
) -> Any:
    place, shape = declared
    called = f"chunk {tuple(map(int, place))}" + (f" of {name}" if name else "")
    chunk = checked(chunk, dtype, called, advice)
    found = tuple(map(int, chunk.shape))
    # A size that is not known is NaN, and equals none.
    if len(found) != len(shape) or any(
        size == size and size != own  # noqa: PLR0124
        for size, own in zip(shape, found, strict=True)
    ):
        raise ValueError(
            f"{called} has shape {found}, but its array says {_shown(shape)}: "
            "give the array the right chunks"
        )
    return as_declared(chunk, dtype, called)


def _shown(shape: tuple[float, ...]) -> str:
    sizes = ", ".join(f"{size:g}" if size == size else "?" for size in shape)  # noqa: PLR0124
    return f"({sizes}{',' * (len(shape) == 1)})"
