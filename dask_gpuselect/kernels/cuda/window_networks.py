"""Networks of windows of few elements: the host side of ``window_networks.cu``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dask_gpuselect.kernels.cuda.source import Defined, record
from dask_gpuselect.maths.window_networks import Node, Step, comparisons
from dask_gpuselect.maths.windows import Frame, Shape, WindowOrder, ranks_by_count, strides_of

EACH = 4  # windows of a thread that share comparisons
MOST = 121  # elements of a window
MOST_KEYS = 160  # words of 4 bytes for the elements of a thread
MOST_ANSWERS = 8


class Piecewise(NamedTuple):
    """Map the elements of a padded chunk to those of the chunk, along an axis.

    See ``padding.cuh`` for the fields.
    """

    size: int
    low: int
    high: int
    shift: int
    before: int
    n: int
    first_before: int
    step_before: int
    first_behind: int
    step_behind: int

    @property
    def is_plain(self) -> bool:
        """True if the padded chunk is the chunk."""
        return self.size == self.n and not (self.low or self.shift or self.before)


class _Axis(NamedTuple):
    """An axis of a chunk and of its answers, with the distances of neighbours in both."""

    padding: Piecewise
    stride: int
    n_answers: int
    place: int
    window: int
    step: int

    @property
    def is_free(self) -> bool:
        """True if windows are as the chunk along it."""
        return (self.window, self.step) == (1, 1) and self.padding.is_plain


class Networks(NamedTuple):
    """Answer windows by networks.

    Parameters
    ----------
    record : ndarray
        What the kernel takes.
    defined : tuple
        The definitions with which it is compiled.
    n_tasks : int
        Number of threads that have work.
    """

    record: Any
    defined: Defined
    n_tasks: int


def fill_padding(made: Any, padding: Sequence[Piecewise], strides: Sequence[int]) -> None:
    """Fill the record of a `Padding`."""
    sizes, *columns = zip(*padding, strict=True)
    made["n_axes"], made["n_padded"] = len(padding), math.prod(sizes)
    names = "sizes", "strides", *Piecewise._fields[1:]
    for name, values in zip(names, (sizes, strides, *columns), strict=True):
        made[name][: len(values)] = values


@lru_cache(maxsize=64)
def networks(
    padding: tuple[Piecewise, ...], frame: Frame, order: WindowOrder, dtype: Any, *, is_masked: bool
) -> Networks | None:
    """Return how networks answer windows of a chunk; None if other kernels are faster."""
    shape = frame.shape(tuple(axis.size for axis in padding))
    n_windows, n = math.prod(shape), frame.n
    is_large = max(n_windows, math.prod(axis.n for axis in padding)) >= 1 << 31
    if n > MOST or order.deviates or order.n_answers > MOST_ANSWERS or is_large:
        return None
    axes = _axes(padding, frame, shape)
    shared = _shared(axes)
    marks = np.ones([axis.window for axis in axes], bool)
    if frame.footprint is not None:
        marks = np.reshape(frame.footprint, marks.shape)
    marks = np.moveaxis(marks, shared, -1)
    fastest = len(axes) - 1 - (shared < len(axes) - 1)
    axes.append(axes.pop(shared))
    own = axes[-1]
    each = min(EACH if own.step == 1 else 1, own.n_answers)
    pairs = 2 if dtype.itemsize <= 2 and own.step == 1 and own.n_answers > each else 1
    run = each * pairs
    rows = marks.reshape(-1, own.window)
    if rows.shape[0] * (run + own.window - 1) * max(dtype.itemsize // 4, 1) > MOST_KEYS * pairs:
        return None
    lower, upper, _ = ranks_by_count(order, n)
    varies = is_masked or (dtype.kind == "f" and order.skips_missing)
    least = min(max(order.least, 1), n) if varies else n
    wanted = tuple(np.unique([lower[:, least:], upper[:, least:]]).tolist())
    footprint = None if marks.all() else tuple(marks.reshape(-1).tolist())
    text = _text(*comparisons(marks.shape, footprint, wanted), each)
    defined = (
        *(("AXES", len(axes)), ("FASTEST", fastest), ("ROWS", len(rows)), ("SIZE", own.window)),
        *(("SHARING", each), ("PAIRS", pairs), ("LACKS", int(is_masked or dtype.kind == "f"))),
        *(("PLACES", n), ("N_ANSWERS", order.n_answers), ("N_WANTED", len(wanted))),
        ("SIZES", _list(axis.window for axis in axes)),
        ("MOST_SIZE", max(marks.shape[:-1], default=1)),
        ("COORDINATES", _list(each for row in np.ndindex(marks.shape[:-1]) for each in (*row, 0))),
        *zip(("NEEDED", "BITS_OF"), map(_list, _counted(rows, run)), strict=True),
        *(("WANTED", _list(wanted)), ("NETWORK", text)),
        *(
            (name, _list(wanted.index(rank) for rank in ranks[:, n].tolist()))
            for name, ranks in (("LOWER", lower), ("UPPER", upper))
        ),
    )
    made = np.zeros((), record("window_networks.cu", "Columns"))
    own_padding, strides, sizes, places, _, steps = zip(*axes, strict=True)
    fill_padding(made["padding"], own_padding, strides)
    first = [max(each.low, each.before - each.shift) for each in own_padding]
    last = [min(each.high, each.before + each.n - each.shift) for each in own_padding]
    names = "shape", "places", "steps", "first", "last"
    for name, values in zip(names, (sizes, places, steps, first, last), strict=True):
        made[name][: len(axes)] = values
    n_runs = -(-own.n_answers // run)
    n_tasks = n_windows // own.n_answers * n_runs
    made["n_runs"], made["n_tasks"], made["n_windows"] = n_runs, n_tasks, n_windows
    return Networks(made, defined, n_tasks)


def _axes(padding: tuple[Piecewise, ...], frame: Frame, shape: Shape) -> list[_Axis]:
    """Return the axes of a chunk; free neighbours are one."""
    axes: list[_Axis] = []
    strides = strides_of(tuple(axis.n for axis in padding)).tolist()
    about = padding, strides, shape, strides_of(shape).tolist(), frame.size, frame.step
    for axis in map(_Axis._make, zip(*about, strict=True)):
        if axes and axes[-1].is_free and axis.is_free:
            n = axes.pop().n_answers * axis.n_answers
            plain = axis.padding._replace(size=n, high=n, n=n)
            axis = axis._replace(padding=plain, n_answers=n)
        axes.append(axis)
    return axes


def _shared(axes: Sequence[_Axis]) -> int:
    """Choose the axis along which windows share comparisons: not the last, if there is another.

    Neighbouring threads lie along the last one, and read neighbouring elements.
    """
    ways = [d for d, axis in enumerate(axes) if axis.window > 1 and axis.step == 1]
    return max(ways, key=lambda d: (d < len(axes) - 1, d), default=len(axes) - 1)


def _counted(rows: Any, run: int) -> tuple[list[int], list[int]]:
    """Mark the elements of a run that any window counts, and those of each, as bits of words."""
    n_rows, size = rows.shape
    counted = np.zeros((run, n_rows, run + size - 1), bool)
    for k in range(run):
        counted[k, :, k : k + size] = rows
    flat = counted.reshape(run, -1)
    flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 32)))
    words = np.packbits(flat, axis=1, bitorder="little").view("<u4")
    return counted.any(axis=0).astype(int).reshape(-1).tolist(), words.reshape(-1).tolist()


def _list(numbers: Iterable[int]) -> str:
    """Return numbers as the items of an array in C."""
    return ",".join(map(str, numbers))


def _text(n_rows: int, steps: Sequence[Step], answers: dict[int, Node], each: int) -> str:
    """Write comparisons in C, for some windows one after the other; each of them once."""
    of_value = {number: step for step in steps for number in step[4:]}
    known: dict[Node, str] = {}
    lines = []

    def name_of(number: int, at: int) -> str:
        if number < n_rows:
            return f"items[{number}][{at}]"
        if (number, at) not in known:
            first, moved, second, also_moved, low, _ = of_value[number]
            pair = f"({name_of(first, moved + at)},{name_of(second, also_moved + at)})"
            known[number, at] = f"value_{number}_{at}"
            function = "lesser" if number == low else "larger"
            lines.append(f"Item {known[number, at]}={function}{pair};")
        return known[number, at]

    for k in range(each):
        for i, (_, (number, moved)) in enumerate(sorted(answers.items())):
            lines.append(f"chosen[{k}][{i}]={name_of(number, moved + k)};")
    return "".join(lines)
