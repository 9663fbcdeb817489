"""Lanes of CuPy chunks. Kernels read NaN for masked elements, or find them in a copy of each chunk.

In the copy, integers are floats if these represent all of them; otherwise lanes are groups. On the
host are handled: lanes with masks or weights that are read in parts.
Lanes without companions are in `plain_lanes`, weighted ones in `weighed_lanes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import any_true
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, values_of, with_companions
from dask_gpuselect.kernels.cpu import lanes as host
from dask_gpuselect.kernels.cuda import lane_boxes, plain_lanes, weighed_lanes
from dask_gpuselect.kernels.cuda.chunk import distances_from, floating, quotients_from
from dask_gpuselect.kernels.cuda.launch import Array, launch
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.keys import EXACT_UP_TO, selection_dtype
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes
from dask_gpuselect.maths.ranks import Ranks


def _answer_masked(column: ChunkColumn, question: LaneOrder) -> Array:
    """Answer a question for every masked lane, on the device; see `reference.lanes.answer_lanes`.

    Scratch: a copy of every chunk, of four bytes an element or more. None for floats in lanes side
    by side, if chunks and masks are dense and no lane is without a valid element.
    """
    chunks = column.chunks
    if chunks[0].weights is not None or not column.size:
        answers = None
        if all(chunk.size for chunk in chunks):
            answers = weighed_lanes.answer_lanes(column, question)
        return host.answer_lanes(column, question) if answers is None else answers
    keeps, wide = [chunk.keeps for chunk in chunks], floating_of(column)
    if wide is None:
        each = [keeps_of(chunk) for chunk in chunks]
        return plain_lanes.answers_of_groups(column.as_type(), question, each)
    if len(chunks) == 1 and keeps[0] is not None:
        answers = plain_lanes.answers_of_few(column.as_type(), question, keeps[0])
        if answers is not None:
            return answers
    if all(each is not None for each in keeps):
        among = _AmongFloats(question, wide)
        pair = plain_lanes.answers_of_masked(column.as_type(wide), keeps, among)
        if pair is not None and not any(among.noted) and (question.skips_missing or not pair[1]):
            return pair[0].astype(question.dtype, copy=False)
    return _answers(column, *blanked_column(column, wide), question)


def _masked_boxes(
    column: ChunkColumn, question: LaneOrder, rule: Rule, *, omits_nan: bool
) -> LaneBoxes | None:
    """Compute the box plot of every masked or weighted lane, on the device.

    See `reference.lanes.box_lanes`. Scratch: a copy of every chunk, of four bytes an element or
    more. None also if a lane of integers has no element, and where NaN that are not masked make
    boxes NaN.
    """
    chunks, dtype, axes = column
    wide, is_weighted = floating_of(column), chunks[0].weights is not None
    if wide is None or (is_weighted and not all(chunk.size for chunk in chunks)):
        return None
    if is_weighted:
        if dtype.kind != "f" and dtype.itemsize == 8:
            some = [replace(chunk, values=chunk.values.astype(wide)) for chunk in chunks]
            column = ChunkColumn(some, wide, axes)
        boxes = weighed_lanes.box_lanes(column, question, rule, omits_nan=omits_nan)
    else:
        blanked, is_any_missing = blanked_column(column, wide)
        has_missing = is_any_missing()
        if has_missing and not omits_nan:
            return None
        boxes = lane_boxes.box_lanes(blanked, question, rule, omits_nan=True)
    if boxes is None or (dtype.kind != "f" and not bool(boxes.n_valid.all())):
        return None
    elements = ("least", "most", "low", "high", "fliers")
    own = {name: getattr(boxes, name).astype(dtype, copy=False) for name in elements}
    if not is_weighted:
        own["n_left_out"] = boxes.n - boxes.n_valid
        if has_missing:
            own["n_left_out"] = counted([~keeps_of(chunk) for chunk in chunks], axes)
    answer: LaneBoxes | None = replace(boxes, **own)
    return answer


def _answer_masked_groups(
    column: ChunkColumn, question: LaneOrder, places: Callable[[], Sequence[IntArray]]
) -> Array | None:
    """Answer a question for every group of every masked lane, on the device.

    See `reference.lanes.answer_group_lanes`. Scratch: a copy of every chunk, of four bytes an
    element or more. None also if unmasked NaN must be distinguished from masked elements.
    """
    chunks = column.chunks
    is_weighted = chunks[0].weights is not None
    if not is_weighted and all(chunk.keeps is None for chunk in chunks):
        column = column._replace(chunks=[chunk.values for chunk in chunks])
        return plain_lanes.answer_group_lanes(column, question, places)
    wide = None if is_weighted else floating_of(column)
    if wide is None:
        return None
    (blanked, is_any_missing), rows = blanked_column(column, wide), places()
    among = _AmongFloats(question, wide)
    answers = plain_lanes.answer_group_lanes(blanked, among, lambda: rows)
    if answers is None:
        return None
    is_any_none = any(among.noted) or not all(map(len, rows))
    if (is_any_none or not question.skips_missing) and is_any_missing():
        return None
    if is_any_none:
        none, nothing = np.zeros(1, np.int64), np.zeros((1, question.n_answers), column.dtype)
        value = question.lane_answer(Lanes(nothing, nothing, none, none))  # or it raises
        if not np.isnan(value).all():
            return None
    return answers.astype(question.dtype, copy=False)


answer_lanes = with_companions(_answer_masked)(plain_lanes.answer_lanes)
answers_and_ends = host.answers_and_ends  # where lanes are no groups either
answer_group_lanes = with_companions(_answer_masked_groups)(plain_lanes.answer_group_lanes)
box_lanes = with_companions(_masked_boxes)(lane_boxes.box_lanes)
lane_ends = with_companions(host.lane_ends)(plain_lanes.lane_ends)
deviations, quotients = distances_from, quotients_from


def floating_of(column: ChunkColumn) -> np.dtype[Any] | None:
    """Return a floating dtype that represents all elements of a column; None if there is none."""
    if not column.size:
        return None
    wide = floating(column.dtype)
    return np.dtype(np.float64) if wide is None and all(map(_fits, column.chunks)) else wide


def _fits(chunk: Any) -> bool:
    """Return whether float64 represents all integers of a chunk that take part."""
    keeps, values = getattr(chunk, "keeps", None), values_of(chunk)
    some = values if keeps is None else cupy.where(keeps, values, 0)
    return not some.size or int(some.min()) >= -EXACT_UP_TO and int(some.max()) <= EXACT_UP_TO


def keeps_of(chunk: Accompanied) -> Array:
    return cupy.ones(chunk.shape, bool) if chunk.keeps is None else chunk.keeps


def blanked_column(
    column: ChunkColumn, wide: np.dtype[Any]
) -> tuple[ChunkColumn, Callable[[], bool]]:
    """Return a column with NaN for the elements that masks leave out.

    Also return a function that finds out whether an element that takes part is NaN.
    """
    pairs = [_blanked_chunk(chunk, wide) for chunk in column.chunks]

    def is_any_missing() -> bool:
        return any(
            any_true(cupy.isnan(values)) if flag is None else bool(flag.get()[0])
            for values, flag in pairs
        )

    return ChunkColumn([values for values, _ in pairs], wide, column.axes), is_any_missing


def _blanked_chunk(chunk: Accompanied, wide: np.dtype[Any]) -> tuple[Array, Array | None]:
    """Return a chunk with NaN for what its mask leaves out, and a flag on the device.

    The flag is not 0 if an element that takes part is NaN. It is None if the chunk has no mask.
    """
    values = chunk.values.astype(wide, copy=False)
    if chunk.keeps is None:
        return values, None
    # By a kernel: `cupy.where`, `isnan` and `&` took 5.5 ms of 3.8e8 float32, which it copies in
    # 0.9, and CuPy takes denormal float32 for zeros.
    values, keeps = map(cupy.ascontiguousarray, (values, chunk.keeps))
    filled, flag = cupy.empty_like(values), cupy.zeros(1, np.uint32)
    is_aligned = values.data.ptr % 16 == keeps.data.ptr % 16 == 0
    n_vectors = values.nbytes // 16 if is_aligned else 0
    launch(wide, "blank_masked", values, keeps, values.size, n_vectors, filled, flag)
    return filled, flag


def _answers(
    column: ChunkColumn,
    blanked: ChunkColumn,
    is_any_missing: Callable[[], bool],
    question: LaneOrder,
) -> Array:
    chunks, dtype, axes = column
    values = blanked.chunks
    among = _AmongFloats(question, np.dtype(values[0].dtype))
    answers = plain_lanes.answer_lanes(blanked, among)
    is_any_none = len(answers) > 0 and any_true(cupy.isnan(answers[:1]))
    if not (len(answers) and (is_any_none or is_any_missing())):
        return answers.astype(question.dtype, copy=False)
    n_unmasked = counted([keeps_of(chunk) for chunk in chunks], axes)
    n_valid = counted([each == each for each in values], axes)
    is_none, is_missing = n_valid == 0, n_unmasked > n_valid
    if not question.skips_missing:
        answers = cupy.where(is_missing, answers.dtype.type(np.nan), answers)
    answers = answers.astype(question.dtype, copy=False)
    # Lanes without a valid element: the question answers one lane of each kind.
    kinds = {n: is_none & (is_missing == n) for n in (0, 1)}
    some = np.array([n for n, lanes in kinds.items() if any_true(lanes)], np.int64)
    if len(some):
        nothing = np.zeros((len(some), question.n_answers), selection_dtype(dtype))
        of_kinds = question.lane_answer(Lanes(nothing, nothing, np.zeros_like(some), some))
        for n, column in zip(some.tolist(), of_kinds.T, strict=True):
            answers = cupy.where(kinds[n], cupy.asarray(column)[:, None], answers)
    return answers


def counted(masks: Sequence[Array], axes: tuple[int, ...]) -> Array:
    """Count the true elements in each lane, of all parts together."""
    return sum(cupy.count_nonzero(mask, axis=axes) for mask in masks).ravel()


@dataclass(frozen=True)
class _AmongFloats:
    """A question about lanes, asked of floats in which NaN are masked elements.

    It does not warn, but notes whether lanes have no valid element.
    """

    question: LaneOrder
    wide: np.dtype[Any]
    noted: list[bool] = field(default_factory=list, compare=False)

    @property
    def n_answers(self) -> int:
        return self.question.n_answers

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.question.dtype if self.question.mixes else self.wide

    @property
    def mixes(self) -> int:
        return self.question.mixes

    @property
    def skips_missing(self) -> bool:
        return True

    def wanted_of_lanes(self, n: IntArray) -> Ranks:
        return self.question.wanted_of_lanes(n)

    def lane_ranks(self, n: IntArray) -> tuple[IntArray, IntArray]:
        return self.question.lane_ranks(n)

    def lane_answer(self, lanes: Lanes) -> NDArray[Any]:
        return self.lane_values(lanes)

    def lane_values(self, lanes: Lanes) -> NDArray[Any]:
        # Missing elements are those left out. A lane of nothing else is NaN, whatever answers it
        # in the end: an error, a value that fills it, or NaN of a dtype that has none.
        is_none = lanes.n_valid == 0
        if is_none.all():
            return np.full((self.n_answers, len(is_none)), np.nan, self.dtype)
        lanes = replace(lanes, n_missing=np.zeros_like(lanes.n_missing))
        values = self.question.lane_values(lanes).astype(self.dtype)
        return np.where(is_none, self.dtype.type(np.nan), values)

    def warn_missing(self, *, is_empty: bool, is_all_missing: bool) -> None:
        """Note whether lanes have no valid element; the caller warns, since it knows the masks."""
        self.noted.append(is_all_missing)
