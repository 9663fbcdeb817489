"""Axes of padded chunks and of the answers of their windows, as kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dask_gpuselect.kernels.cuda.source import Defined
from dask_gpuselect.maths.windows import Frame, Piecewise, strides_of

WindowKernel = tuple[str, Any, Defined, dict[str, int]]
"""Name of a kernel of windows, a record that describes the windows, and how it is compiled.

The last item says how it is started: `shared` bytes of a block, or `n_threads` with work. By
default, there are as many threads as run at the same time.
"""


class Axis(NamedTuple):
    """An axis of a chunk and of its answers, with the distances of neighbours in both."""

    padding: Piecewise
    stride: int
    n: int  # answers
    place: int
    window: int
    step: int

    def extent(self, outs: int) -> int:
        """Count the elements that some windows reach."""
        return (outs - 1) * self.step + self.window

    @property
    def is_free(self) -> bool:
        """True if windows are as the chunk along it."""
        own = self.padding
        is_padded = own.size != own.n or own.low or own.shift or own.before
        return (self.window, self.step) == (1, 1) and not is_padded


def axes_of(padding: tuple[Piecewise, ...], frame: Frame) -> list[Axis]:
    """Return the axes of a chunk; free neighbours are one."""
    axes: list[Axis] = []
    shape = frame.shape(tuple(axis.size for axis in padding))
    strides = strides_of(tuple(axis.n for axis in padding)).tolist()
    about = padding, strides, shape, strides_of(shape).tolist(), frame.size, frame.step
    for axis in map(Axis._make, zip(*about, strict=True)):
        if axes and axes[-1].is_free and axis.is_free:
            n = axes.pop().n * axis.n
            plain = axis.padding._replace(size=n, high=n, n=n)
            axis = axis._replace(padding=plain, n=n)
        axes.append(axis)
    return axes


def fill(made: Any, axes: Sequence[Axis]) -> None:
    """Fill a record of `Axes`."""
    padding, *own = zip(*axes, strict=True)
    made["n_windows"] = math.prod(own[1])
    names = *Piecewise._fields, "strides", "shape", "places", "windows", "steps"
    for name, values in zip(names, (*zip(*padding, strict=True), *own), strict=True):
        if name in made.dtype.names:
            made[name][: len(axes)] = values
