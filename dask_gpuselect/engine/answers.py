"""The shape and the kind of an answer."""

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
    """What an answer about all elements is: an array of a shape and a kind, or any object.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype or None
        None for an object, of shape ().
    kind : array
        Of whose kind the answer is.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    kind: Any

    def made(self, answer: Any) -> Any:
        """The answer, found on the host, in this form."""
        return answer if self.dtype is None else in_kind(answer.reshape(self.shape), self.kind)

    @property
    def place(self) -> tuple[int, ...]:
        """What is behind the name in the key of the task that makes it."""
        return (0,) * len(self.shape)

    def lazy(self, made: DaskArray) -> DaskArray:
        """The array of one chunk that the task at this place of an array of objects makes."""
        if self.dtype is None:
            return made
        meta = fitted(meta_from_array(self.kind, ndim=len(self.shape), dtype=self.dtype))
        chunks = tuple((size,) for size in self.shape)
        return DaskArray(made.dask, made.name, chunks, meta=meta)


@dataclass(frozen=True)
class AnswerAxes:
    """Which axes an answer has.

    Parameters
    ----------
    ndim, axes
        The dimensions of the data, and those of them that are reduced.
    keepdims, is_scalar
        Whether the reduced axes stay, with size 1; whether the axis of the answers is left out.
    n_groups
        Of how many groups there are answers: their axis stands where the first reduced one stood.
        None if all elements of a lane are one.
    is_one_lane
        Whether the first axis of the data, which is not reduced, is there to make one lane of all
        elements: no answer has it.
    """

    ndim: int
    axes: tuple[int, ...]
    keepdims: bool
    is_scalar: bool
    n_groups: float | None = None
    is_one_lane: bool = False

    @property
    def labels(self) -> tuple[int, ...]:
        """For each axis of the answer, the one of the data that it is, or from `ndim` on a number
        of its own: `ndim` for the axis of the answers."""
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
        """Of the answer."""
        assert self._group_label is not None
        return self.labels.index(self._group_label)

    @property
    def of_one_group(self) -> AnswerAxes:
        """The axes of the answer about one group, before those of all are put together: all there
        are."""
        return replace(self, keepdims=True, n_groups=None, is_one_lane=False)

    @property
    def of_rows(self) -> AnswerAxes:
        """The axes of the answer about all groups of all elements, each of them a row of a
        table."""
        return AnswerAxes(2, (1,), keepdims=False, is_scalar=self.is_scalar)

    def new_axes(self, n_answers: int) -> dict[int, Any]:
        """The sizes of the axes that are not the data's."""
        sizes: dict[int, Any] = {self.ndim: n_answers}
        if self._group_label is not None:
            sizes[self._group_label] = self.n_groups or 0
        return {label: sizes.get(label, 1) for label in self.labels if label >= self.ndim}

    def chunks(self, x: DaskArray, n_answers: int) -> tuple[tuple[int, ...], ...]:
        """Of the answer about the chunks of `x`."""
        new = self.new_axes(n_answers)
        return tuple((new[label],) if label in new else x.chunks[label] for label in self.labels)

    def place(self, block: tuple[int, ...]) -> tuple[int, ...]:
        """Of the answer's block, in its grid, by that of the data's block."""
        return tuple(block[label] if label < self.ndim else 0 for label in self.labels)

    def restore(self, answer: np.ndarray[Any, Any], block: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The answers ``(n_answers, n_lanes)`` for a block of that shape, with these axes."""
        answer = namespace(answer).reshape(answer, (answer.shape[0], *self.kept(block)))
        return answer[0, ...] if self.is_scalar else answer

    def restore_groups(self, answer: Any, block: tuple[int, ...]) -> Any:
        """The answers ``(n_answers, n_groups, n_lanes)`` for a block of that shape, with these axes
        but the reduced ones."""
        before = self.axes[0]  # axes before it are not reduced
        kept = tuple(size for axis, size in enumerate(block) if axis not in self.axes)
        sizes = answer.shape[:2]
        sides = math.prod(kept[:before]), math.prod(kept[before:])
        xp = namespace(answer)
        answer = transposed(xp.reshape(answer, (*sizes, *sides)), (0, 2, 1, 3))
        outer = kept[self.is_one_lane : before]
        answer = xp.reshape(answer, (sizes[0], *outer, sizes[1], *kept[before:]))
        return answer[0, ...] if self.is_scalar else answer

    def kept(self, block: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes that are left of a block of that shape."""
        return tuple(
            1 if axis in self.axes else size
            for axis, size in enumerate(block)
            if self.keepdims or axis not in self.axes
        )
