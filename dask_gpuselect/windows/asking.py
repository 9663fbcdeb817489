"""How windows of an array are asked: lazily of a lazy array, else at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask_gpuselect import kernels
from dask_gpuselect.arrays import in_kind, numpy_dtype
from dask_gpuselect.engine.halos import Halo, of_array, with_halos
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.windows import Frame, RowWindows
from dask_gpuselect.windows.questions import WindowAnswers, WindowQuestion


def frame_of(reaches: Sequence[Halo], footprint: tuple[bool, ...] | None = None) -> Frame:
    """Return the window that reaches so far along each axis."""
    size, step = zip(*((reach.size, reach.step) for reach in reaches), strict=True)
    return Frame(size, step, footprint)


def ask_windows(
    label: str,
    array: Any,
    reaches: Sequence[Halo] | RowWindows,
    question: WindowQuestion | None,
    *,
    is_one: bool = True,
    footprint: tuple[bool, ...] | None = None,
    fill: Any = None,
) -> Any:
    """Answer the windows of each element.

    Parameters
    ----------
    label : str
        Of the names of layers.
    array : dask array, array or Accompanied
    reaches : sequence of Halo, or RowWindows
        How far windows reach along each axis; or windows of the elements of an array in memory.
    question : WindowQuestion or None
        None asks how many valid elements there are.
    is_one : bool
        Whether answers have no axis for several quantiles.
    footprint : tuple of bool, optional
        Which places of a window count.
    fill : scalar, optional
        What is beyond the ends; see `with_halos`.
    """
    if isinstance(reaches, RowWindows):
        assert question is not None
        found = kernels.answer_row_windows(array, numpy_dtype(array), reaches, question)
        return found[0] if is_one else found
    windows = WindowAnswers(frame_of(reaches, footprint), question, numpy_dtype(array), is_one)
    if isinstance(array, DaskArray):
        how = (windows.result, fill, windows.new_axes)
        return with_halos(windows, label, array, reaches, *how)
    found = windows(of_array(array, reaches, fill))
    return in_kind(found, found)
