"""Decide how to answer a question: lazily or eagerly, globally or by lane, with a strategy or not.

No other module makes this decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.arrays import in_kind, namespace, numpy_dtype
from dask_gpuselect.engine import loads, shuffles
from dask_gpuselect.engine.answers import AnswerAxes, Form
from dask_gpuselect.engine.columns import LaneRequest
from dask_gpuselect.engine.companions import accompanied, as_lazy, as_one_lane
from dask_gpuselect.engine.group_elements import GroupedElements, GroupsOfAll
from dask_gpuselect.engine.groups import Grouped, GroupedLanes, Grouping, data_of
from dask_gpuselect.engine.lane_plans import with_labels
from dask_gpuselect.engine.lanes import ask_lanes
from dask_gpuselect.engine.now import answer_lanes_now, answer_now, answer_once_now
from dask_gpuselect.engine.plans import Plan, adjusted, described
from dask_gpuselect.engine.questions import (
    ArrayQuestion,
    ElementQuestion,
    LaneQuestion,
)
from dask_gpuselect.engine.rounds import ask_rounds
from dask_gpuselect.engine.search import select_now
from dask_gpuselect.engine.source import DaskArray, itself, map_blocks
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.strategies import Strategy


@dataclass(frozen=True)
class Asking:
    """An array, a question about it, and the form of the answer.

    Parameters
    ----------
    array : dask array, or another array
        The result of `arguments.as_array`; or `Grouped`, before `by_group` is applied.
    question : Question
        What is asked. For groups this may be a `LaneQuestion` alone.
    axes : tuple of int
        Reduced axes, ascending.
    dtype : dtype or None
        Dtype of the answer. None if it is an object or, along some axes, an array of objects.
    keepdims, is_scalar : bool
        True if the reduced axes stay, with size 1; true if the answer has no axis for several
        answers.
    grouping : Grouping, optional
        Groups of the lanes, if the question is asked of each group.
    is_one_lane : bool
        As for `AnswerAxes`.
    """

    array: Any
    question: Any
    axes: tuple[int, ...]
    dtype: np.dtype[Any] | None = None
    keepdims: bool = False
    is_scalar: bool = True
    grouping: Grouping | None = None
    is_one_lane: bool = False

    @property
    def is_lazy(self) -> bool:
        return isinstance(self.array, DaskArray)

    @property
    def is_whole(self) -> bool:
        """True if the question is about all elements."""
        return len(self.axes) == int(self.array.ndim)

    @property
    def shape(self) -> AnswerAxes:
        n_groups = None if self.grouping is None else self.grouping.n_groups
        form = self.keepdims, self.is_scalar, n_groups, self.is_one_lane
        return AnswerAxes(self.array.ndim, self.axes, *form)

    @property
    def lanes(self) -> LaneQuestion:
        """The question about every lane, or about every group of every lane."""
        lanes = lanes_of(self.question)
        if self.grouping is None:
            return lanes
        # The labels are loaded with the data, so no task needs a copy of them.
        grouping = replace(self.grouping, codes=None, names=None)
        whole = GroupedElements if are_stretches(lanes, grouping) else GroupsOfAll
        return (whole if self.is_one_lane else GroupedLanes)(lanes, grouping)

    @property
    def shape_of_lanes(self) -> tuple[float, ...]:
        """The shape of the answer without the axis for several answers."""
        shape = self.shape if self.is_scalar else replace(self.shape, is_scalar=True)
        sizes = [self.array.shape[i] if i < self.array.ndim else 1 for i in shape.labels]
        if self.grouping is not None:
            sizes[shape.group_axis] = self.grouping.n_groups
        return tuple(sizes)

    @property
    def form(self) -> Form:
        """The form of an answer about all elements."""
        new = self.shape.new_axes(self.question.n_answers)
        sizes = tuple(new[label] for label in self.shape.labels)
        kind = self.array._meta if self.is_lazy else values_of(self.array)
        return Form(() if self.dtype is None else sizes, self.dtype, kind)


def lanes_of(question: Any) -> LaneQuestion:
    """Return the question about every lane, for reductions along some axes."""
    if isinstance(question, LaneQuestion):
        return question
    raise TypeError(f"{type(question).__name__} is not supported along an axis")


def ask(asking: Asking, label: str, strategy: Strategy | None = None) -> Any:
    """Answer a question: lazily for a dask array, eagerly and in kind for any other array.

    Parameters
    ----------
    asking : Asking
    label : str
        Prefix of the names of the layers.
    strategy : Strategy, optional
        Method that selects the elements, instead of the engine.
    """
    if strategy is None:
        return ask_each([asking], label)[0]
    question = _of_strategy(asking)
    if asking.is_lazy:
        with adjusted(partial(_described, given=asking, asking=asking)):
            return ask_rounds(asking.array, question, strategy, label, asking.form)
    dtype = numpy_dtype(asking.array)
    selected = select_now(asking.array, dtype, question.ranks, strategy)
    return asking.form.made(question.answer_by(selected.n_valid, selected.n_missing, selected.at))


def _of_strategy(asking: Asking) -> ElementQuestion:
    """Return the question of an `Asking` that a strategy can answer."""
    question = asking.question
    if isinstance(asking.array, Grouped):
        raise ValueError("strategy= is not supported for groups: leave it out")
    if not asking.is_whole:
        raise ValueError("strategy= is not supported along an axis: leave out axis or strategy")
    if not isinstance(question, ElementQuestion):
        raise TypeError("strategy= is not supported for this function: leave it out")
    return question


def ask_each(askings: Sequence[Asking], label: str) -> list[Any]:
    """Answer questions about several arrays: lazily if any of them is a dask array, else eagerly.

    Questions about all elements share the loads of whatever the arrays have in common.
    """
    given = askings
    askings = [by_group(each) for each in askings]
    if not any(each.is_lazy for each in askings):
        return [_answer_now(each) for each in askings]
    with adjusted(partial(_described, given=given[0], asking=askings[0])):
        return _ask_lazily(askings, label)


def _ask_lazily(askings: Sequence[Asking], label: str) -> list[Any]:
    lazy = [each if each.is_lazy else replace(each, array=as_lazy(each.array)) for each in askings]
    wholes = [each for each in lazy if each.is_whole]
    questions = [ArrayQuestion(each.array, each.question, each.form, label) for each in wholes]
    wholly = iter(loads.ask_together(questions))
    return [next(wholly) if each.is_whole else _ask_lanes(each, label) for each in lazy]


def by_group(asking: Asking) -> Asking:
    """Replace a `Grouped` array by one that is packed with its labels; return others unchanged."""
    if not isinstance(asking.array, Grouped):
        return asking
    array, grouping = asking.array.array, asking.array.grouping
    lanes = lanes_of(asking.question)
    if lanes.composed is not None or not (asking.is_whole and are_stretches(lanes, grouping)):
        grouping = grouping.numbered
    axes, codes, is_one_lane = asking.axes, grouping.codes, asking.is_whole
    packed = accompanied(array, labels=codes)
    if is_one_lane:
        packed, axes, codes = as_one_lane(packed), tuple(axis + 1 for axis in axes), codes[None]
    differs = any(n != 1 for axis, n in enumerate(codes.shape) if axis not in axes)
    grouping = replace(grouping, differs=differs)
    if not is_one_lane:
        sizes = grouping.sizes_in(math.prod(packed.shape[axis] for axis in axes))
        grouping = replace(grouping, sizes=sizes)
    return replace(asking, array=packed, axes=axes, grouping=grouping, is_one_lane=is_one_lane)


def are_stretches(question: LaneQuestion, grouping: Grouping) -> bool:
    """Return whether groups of all elements can be answered as stretches of ranks.

    A stretch is the run of ranks of one group in the order of (label, element). This needs no
    knowledge of the labels, but groups that are given by labels rather than by windows, and a
    question that order statistics or composed questions answer.
    """
    is_known = question.composed is not None or question.wanted_of_group is not None
    return is_known and grouping.windows is None


def ask_once(
    a: Any,
    measure: loads.Measured,
    merge: loads.Merged,
    label: str,
    answer: Callable[[Any], Any] = itself,
) -> Any:
    """Answer from one partial result of each chunk: lazily for a dask array, eagerly for others.

    Parameters
    ----------
    measure : callable
        ``(chunk, dtype)``: the partial result of a chunk.
    merge : callable
        ``(partials)``: merge the partial results of several chunks.
    label : str
        Prefix of the names of the layers.
    answer : callable
        ``(partial_result)``: the answer, any object, from the partial result of all chunks.
    """
    if isinstance(a, DaskArray):
        return loads.ask_once(shuffles.shuffles_apart(a), measure, merge, answer, label)
    return answer_once_now(a, numpy_dtype(a), measure, merge, answer)


def _described(chosen: Plan, given: Asking, asking: Asking) -> Plan:
    """Add to a plan what the array is, and the bytes of labels: `asking` has them packed."""
    is_grouped = isinstance(given.array, Grouped)
    chosen = described(chosen, data_of(given.array))
    chosen = replace(chosen, shuffle=shuffles.described(asking.array))
    if not is_grouped or asking.grouping is None:
        return chosen
    shape, codes = given.array.grouping.codes.shape, asking.grouping.codes
    is_of_each = shape == given.array.shape or given.array.ndim == len(given.axes)
    return with_labels(chosen, asking.array, asking.lanes, codes.dtype) if is_of_each else chosen


def mapped(
    answer: Any,
    function: Callable[[Any], Any],
    name: str,
    dtype: np.dtype[Any],
    **axes: Any,
) -> Any:
    """Apply a function to each block of an answer: lazily if it is lazy, else eagerly and in kind.

    Parameters
    ----------
    function : callable
        Takes a block. Deterministically tokenizable.
    name : str
        Prefix of the name of the new layer.
    dtype : dtype
        Dtype of the result.
    **axes
        The axes that the function drops or adds, and their chunks, as for `dask.array.map_blocks`.
    """
    if not isinstance(answer, DaskArray):
        block = function(answer)
        return in_kind(block, block)
    ndim = answer.ndim - ("drop_axis" in axes) + len(axes.get("new_axis", ()))
    result: DaskArray = map_blocks(
        function,
        answer,
        name=f"{name}-{tokenize(answer.name, function)}",
        dtype=dtype,
        meta=meta_from_array(answer._meta, ndim=ndim, dtype=dtype),
        **axes,
    )
    return result


def unfolded(answer: Any, shape: tuple[int, ...], name: str) -> Any:
    """Reshape the first axis of an answer, which has one chunk, to axes of the given shape."""
    axes: dict[str, Any] = {"drop_axis": 0, "new_axis": list(range(len(shape)))}
    if isinstance(answer, DaskArray):
        axes["chunks"] = (*((size,) for size in shape), *answer.chunks[1:])
    return mapped(answer, partial(_unfolded, shape=shape), f"{name}-unfolded", answer.dtype, **axes)


def _unfolded(block: Any, shape: tuple[int, ...]) -> Any:
    return namespace(block).reshape(block, (*shape, *block.shape[1:]))  # of masked arrays too


def _ask_lanes(asking: Asking, label: str) -> DaskArray:
    grouping, names = asking.grouping, None
    if grouping is not None and grouping.is_numbered:
        names = grouping.names
    request = LaneRequest(asking.lanes, label, asking.shape, asking.dtype, names=names)
    return ask_lanes(asking.array, request)


def _answer_now(asking: Asking) -> Any:
    array, dtype = asking.array, numpy_dtype(asking.array)
    is_object = asking.dtype is None
    if asking.is_whole:
        answer = _answer_only_lane(asking)
        if answer is not None:
            return answer
        answer = answer_now(array, dtype, asking.question)
        return answer if is_object else asking.form.made(answer)
    if asking.is_one_lane:
        answer = asking.lanes.block([array], dtype, asking.shape)
    else:
        answer = answer_lanes_now(array, dtype, asking.lanes, asking.shape, is_object=is_object)
    return answer if is_object else in_kind(answer, answer)


def _answer_only_lane(asking: Asking) -> Any:
    """Answer a question about all elements of an array in memory with a one-lane kernel.

    Return None if the kernels have none for this array and question.
    """
    question = asking.question
    if not (isinstance(question, ElementQuestion) and math.prod(asking.array.shape)):
        return None
    if isinstance(question, LaneQuestion) and question.further is not None:
        return None
    order = question.order
    answer = kernels.lanes.answer_only_lane(asking.array, order)
    return None if answer is None else answer.reshape(asking.form.shape)
