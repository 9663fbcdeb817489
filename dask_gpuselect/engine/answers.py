"""Shapes, axes and array kinds of answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array

from dask_gpuselect.arrays import fitted, in_kind, namespace, transposed
from dask_gpuselect.engine.source import DaskArray


@dataclass(frozen=True)
class Form:
    """The form of an answer about all elements: an array of a given shape and kind, or any object.

    Parameters
    ----------
    shape : tuple of int
        Shape of the answer.
    dtype : dtype or None
        Dtype of the answer. None if it is an object; its shape is then ().
    kind : array
        Array whose kind (NumPy, CuPy, ...) the answer has.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    kind: Any

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # The array stands for its kind alone. A device would have to be asked for its elements.
        return type(self).__name__, self.shape, self.dtype, type(self.kind).__name__

    def made(self, answer: Any) -> Any:
        """Convert an answer found on the host to this form."""
        return answer if self.dtype is None else in_kind(answer.reshape(self.shape), self.kind)

    @property
    def key_index(self) -> tuple[int, ...]:
        """The indices that follow the name in the key of the task that makes the answer."""
        return (0,) * len(self.shape)

    def lazy(self, made: DaskArray) -> DaskArray:
        """Wrap the result of a task, one object, as a dask array of one chunk in this form."""
        if self.dtype is None:
            return made
        meta = fitted(meta_from_array(self.kind, ndim=len(self.shape), dtype=self.dtype))
        chunks = tuple((size,) for size in self.shape)
        return DaskArray(made.dask, made.name, chunks, meta=meta)


@dataclass(frozen=True)
class AnswerAxes:
    """The axes of an answer, and their order.

    Parameters
    ----------
    ndim : int
        Number of dimensions of the data.
    axes : tuple of int
        Reduced axes of the data, ascending.
    keepdims : bool
        True if the reduced axes stay, with size 1.
    is_scalar : bool
        True if the answer has no axis for several answers (such as one for each q).
    n_groups : float, optional
        Number of groups, whose axis replaces the first reduced one. None if lanes have no groups.
    is_one_lane : bool
        True if the data got a first axis of size 1, which is not reduced, so that all elements form
        one lane. No answer has that axis.
    """

    ndim: int
    axes: tuple[int, ...]
    keepdims: bool
    is_scalar: bool
    n_groups: float | None = None
    is_one_lane: bool = False

    @property
    def labels(self) -> tuple[int, ...]:
        """The label of each axis of the answer: its axis of the data, or a number from `ndim` on.

        `ndim` is the axis of the answers, and ``ndim + 1 + axis`` stands for a reduced axis that is
        kept, or for the axis of groups.
        """
        labels = [] if self.is_scalar else [self.ndim]
        for axis in range(self.ndim):
            if axis not in self.axes:
                if axis or not self.is_one_lane:
                    labels.append(axis)
            elif self.keepdims or self._group_label == self.ndim + 1 + axis:
                labels.append(self.ndim + 1 + axis)
        return tuple(labels)

    @property
    def _group_label(self) -> int | None:
        return None if self.n_groups is None else self.ndim + 1 + self.axes[0]

    @property
    def group_axis(self) -> int:
        """The position of the axis of groups in the answer."""
        assert self._group_label is not None
        return self.labels.index(self._group_label)

    @property
    def of_one_group(self) -> AnswerAxes:
        """The axes of the answer about one group, before groups are stacked: all axes are kept."""
        return replace(self, keepdims=True, n_groups=None, is_one_lane=False)

    @property
    def of_rows(self) -> AnswerAxes:
        """The axes of an answer about groups of all elements that are the rows of a table."""
        return AnswerAxes(2, (1,), keepdims=False, is_scalar=self.is_scalar)

    def new_axes(self, n_answers: int) -> dict[int, Any]:
        """Return the sizes of the answer's axes that are not axes of the data, by their labels."""
        sizes: dict[int, Any] = {self.ndim: n_answers}
        if self._group_label is not None:
            sizes[self._group_label] = self.n_groups or 0
        return {label: sizes.get(label, 1) for label in self.labels if label >= self.ndim}

    def chunks(self, x: DaskArray, n_answers: int) -> tuple[tuple[int, ...], ...]:
        """Return the chunks of the answer about the dask array `x`."""
        new = self.new_axes(n_answers)
        return tuple((new[label],) if label in new else x.chunks[label] for label in self.labels)

    def answer_place(self, block: tuple[int, ...]) -> tuple[int, ...]:
        """Return the place of the answer's block for the place of a block of the data."""
        return tuple(block[label] if label < self.ndim else 0 for label in self.labels)

    def restore(self, answer: np.ndarray[Any, Any], block: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Reshape answers ``(n_answers, n_lanes)`` for a block of that shape to these axes."""
        answer = namespace(answer).reshape(answer, (answer.shape[0], *self.remaining(block)))
        return answer[0, ...] if self.is_scalar else answer

    def restore_groups(self, answer: Any, block: tuple[int, ...]) -> Any:
        """Reshape answers ``(n_answers, n_groups, n_lanes)`` for a block to these axes.

        The reduced axes of the block are dropped. The axis of groups stands in place of the first
        of them.
        """
        before = self.axes[0]  # axes before it are not reduced
        remaining = tuple(size for axis, size in enumerate(block) if axis not in self.axes)
        sizes = answer.shape[:2]
        sides = math.prod(remaining[:before]), math.prod(remaining[before:])
        xp = namespace(answer)
        answer = transposed(xp.reshape(answer, (*sizes, *sides)), (0, 2, 1, 3))
        outer = remaining[self.is_one_lane : before]
        answer = xp.reshape(answer, (sizes[0], *outer, sizes[1], *remaining[before:]))
        return answer[0, ...] if self.is_scalar else answer

    def remaining(self, block: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sizes of the axes that remain of a block of that shape."""
        return tuple(
            1 if axis in self.axes else size
            for axis, size in enumerate(block)
            if self.keepdims or axis not in self.axes
        )
