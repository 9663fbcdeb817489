"""Networks of windows of few elements: the host side of ``window_networks.cu``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dask_gpuselect.kernels.cuda.source import PAD_AXES, record
from dask_gpuselect.kernels.cuda.window_axes import WindowKernel, axes_of, fill
from dask_gpuselect.maths.window_networks import Node, Step, comparisons
from dask_gpuselect.maths.windows import Frame, Piecewise, WindowOrder, ranks_by_count

EACH = {1: 8}  # windows of a thread that share comparisons, by the ranks that are wanted; else:
EACH_OF_MORE = 4
MOST, MOST_IN_ROW = 121, 63  # elements of a window; of one along a single axis
MOST_KEYS = 160  # words of 4 bytes for the elements of a thread
MOST_WORK, MOST_TEXT = 1060, 2200  # minima and maxima for a window, and for all of a thread
MOST_ANSWERS = 8


def networks(
    padding: tuple[Piecewise, ...], frame: Frame, order: WindowOrder, dtype: Any, *, is_masked: bool
) -> WindowKernel | None:
    """Return how networks answer windows of a chunk; None if other kernels are faster."""
    axes, n = axes_of(padding, frame), frame.n
    n_windows = math.prod(axis.n for axis in axes)
    most = max(n_windows, math.prod(axis.padding.n for axis in axes))
    if n > MOST or order.n_answers > MOST_ANSWERS or len(axes) > PAD_AXES or most >> 31:
        return None
    # The shared axis is not the last, if there is another: neighbouring threads lie along the last
    # one, and read neighbouring elements.
    ways = [d for d, axis in enumerate(axes) if axis.window > 1 and axis.step == 1]
    shared = max(ways, key=lambda d: (d < len(axes) - 1, d), default=len(axes) - 1)
    marks = np.ones([axis.window for axis in axes], bool)
    if frame.footprint is not None:
        marks = np.reshape(frame.footprint, marks.shape)
    marks = np.moveaxis(marks, shared, -1)
    fastest = len(axes) - 1 - (shared < len(axes) - 1)
    axes.append(axes.pop(shared))
    own = axes[-1]
    rows = marks.reshape(-1, own.window)
    lower, upper, _ = ranks_by_count(order, n)
    varies = is_masked or (dtype.kind == "f" and order.skips_missing)
    least = min(max(order.least, 1), n) if varies else n
    asked = np.unique([lower[:, least:], upper[:, least:]]).tolist()
    wanted = tuple(range(n) if order.deviates else asked)
    footprint = None if marks.all() else tuple(marks.reshape(-1).tolist())
    network = comparisons(marks.shape, footprint, wanted, crosses=True)
    words = max(dtype.itemsize // 4, 1)
    each = min(EACH.get(len(wanted), EACH_OF_MORE) if own.step == 1 else 1, own.n)
    while each > 1 and _text(*network, each).count(";") * words > MOST_TEXT:
        each //= 2
    text = _text(*network, each)
    lacks = is_masked or dtype.kind == "f"
    is_side_by_side = dtype.itemsize <= 2 and not lacks and fastest < len(axes) - 1
    side = 1
    if is_side_by_side and axes[fastest].step == 1 and axes[fastest].n > 1:
        side = 4 // dtype.itemsize
    pairs = 2 if side > 1 or (dtype.itemsize <= 2 and own.step == 1 and own.n > each) else 1
    run = each * pairs if side == 1 else each
    n_keys = len(rows) * (each * pairs + own.window - 1) * words
    is_long = len(rows) == 1 and n > MOST_IN_ROW
    if is_long or text.count(";") * words > MOST_WORK * each * pairs or n_keys > MOST_KEYS * pairs:
        return None
    defined = (
        *(("AXES", len(axes)), ("FASTEST", fastest), ("ROWS", len(rows)), ("SIZE", own.window)),
        *(("SHARING", each), ("PAIRS", pairs), ("LACKS", int(lacks))),
        *(("SIDE", side), ("WIDTH", axes[fastest].window)),
        *(("PLACES", n), ("N_ANSWERS", order.n_answers), ("N_WANTED", len(wanted))),
        ("COORDINATES", _list(each for row in np.ndindex(marks.shape[:-1]) for each in (*row, 0))),
        *zip(("NEEDED", "BITS_OF"), map(_list, _counted(rows, run)), strict=True),
        *(("WANTED", _list(wanted)), ("NETWORK", text)),
    )
    made = np.zeros((), record("window_networks.cu", "Columns"))
    fill(made["axes"], axes)
    for d, (axis, *_) in enumerate(axes):
        made["first"][d] = max(axis.low, axis.before - axis.shift)
        made["last"][d] = min(axis.high, axis.before + axis.n - axis.shift) - axes[d].window
    made["last"][len(axes) - 1] -= run - 1
    if side > 1:  # words of the row alone are read
        reach = axes[fastest].window + side - 1
        made["first"][fastest] += side - 1
        made["last"][fastest] -= side - 1 + (reach + 2 * side - 2) // side * side - reach
    each_run = np.ones(len(axes), np.int64)
    each_run[fastest], each_run[-1] = side, run
    runs = -(-made["axes"]["shape"][: len(axes)] // each_run)
    made["runs"][: len(axes)] = runs
    made["n_tasks"] = n_tasks = math.prod(runs.tolist())
    return "window_networks", made, defined, {"n_threads": n_tasks}


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
        lines.append(f"DEVIATE({k});")
    return "".join(lines)
