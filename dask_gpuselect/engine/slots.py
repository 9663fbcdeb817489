"""Questions about the elements of each of a few slots: groups of all elements.

A slot is treated as an array of its own, loaded together with the others: the question about all
elements is applied to each slot, by the same loads, and partial results are `Slots` of ordinary
ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array

from dask_gpuselect import kernels
from dask_gpuselect.arrays import fitted, in_kind
from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.answers import AnswerAxes, Form
from dask_gpuselect.engine.groups import Grouping
from dask_gpuselect.engine.lane_plans import one_lane_limit
from dask_gpuselect.engine.questions import Costs, Measures, Question, ThirdLoad
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.slots import Slots, every, over_slots

LEAST = {"table": (1 << 11, 1 << 17), "stretches": (1 << 7, 0)}
"""Least numbers of elements of a slot in a chunk, on average, and in all chunks for slots.

Groups with fewer elements are no slots.

Each slot takes about 0.3 ms for each load of a chunk. What groups are if they are no slots decides:
a table of all groups, in one task, or stretches of an order of all elements.

With 18 groups of 2^21 float32 on a CPU, weighted medians and box plots took 154 and 385 ms as
slots, and 144 and 232 in a table; of 2^23, 463 and 1,082, and 579 and 865.
"""

MOST = 1 << 10  # most slots, where their number is not known before


@dataclass(frozen=True)
class OfSlots(Question):
    """A question about the elements of each slot.

    Parameters
    ----------
    of_each : Question
        Question about one slot: that of a `Question.by_slot`.
    n_slots : int
        Most slots that there can be, for plans.
    """

    of_each: Question
    n_slots: int

    keep = None

    @property
    def measures(self) -> Measures:
        return replace(self.of_each.measures, counts=False)

    @property
    def n_answers(self) -> int:
        return self.n_slots * self.of_each.n_answers

    @property
    def costs(self) -> Costs:
        each = self.of_each.costs

        def candidates(n_pivots: int) -> int:  # a slot has those of its own pivots
            return self.n_slots * each.candidates(-(-n_pivots // self.n_slots))

        return Costs(each.share, candidates, self.n_slots)

    def bracket(self, cuts: Cuts) -> Brackets:
        return over_slots(self.of_each.bracket)(cuts)

    @property
    def n_ranges(self) -> int:
        return self.n_slots * self.of_each.n_ranges

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        return over_slots(self.of_each.narrower)(brackets, cuts)

    def resolve(self, brackets: Brackets, tally: Tally) -> Any:
        return over_slots(self.of_each.resolve)(brackets, tally)

    @property
    def third(self) -> ThirdLoad | None:
        of_each = self.of_each.third
        if of_each is None:
            return None
        functions = _brackets_if_any, over_slots(_resolved_again)
        return ThirdLoad(of_each.name, *(partial(each, of_each=of_each) for each in functions))

    def finish(self, resolved: Any, sums: Moments | None) -> Any:
        return over_slots(self.of_each.finish)(resolved, sums)


def _brackets_if_any(brackets: Any, resolved: Any, *, of_each: ThirdLoad) -> Any:
    """Return the brackets of the third load of all slots; None if no slot needs one."""
    more = _brackets_of_slot(brackets, resolved, of_each=of_each)
    return more if any(map(_is_some, every(more))) else None


@over_slots
def _brackets_of_slot(brackets: Brackets, resolved: Any, *, of_each: ThirdLoad) -> Brackets:
    """Return the brackets of a slot's third load, which are empty if it needs none."""
    more = of_each.brackets(brackets, resolved)
    return Brackets(brackets.ends[:0], np.zeros(1, np.bool_)) if more is None else more


def _resolved_again(resolved: Any, more: Brackets, tally: Tally, *, of_each: ThirdLoad) -> Any:
    """Resolve a slot from the third load, if it needs one."""
    return of_each.resolve(resolved, more, tally) if _is_some(more) else resolved


def _is_some(brackets: Brackets) -> bool:
    return bool(len(brackets.ends) or brackets.wanted.any())


def takes_slots(x: Any, question: Question, grouping: Grouping) -> bool:
    """Return whether groups of all elements of an array are few enough to be slots."""
    if not _can_be_slots(x, question, grouping):
        return False
    others, n = _without_slots(x, grouping), grouping.at_most
    is_on_device = Source.of(x).is_on_device if _is_lazy(x) else kernels.is_on_device(x)
    if others == "table" and is_on_device:  # the device sorts all groups together
        return False
    size = float(math.prod(x.shape))
    in_a_chunk = size / max(x.npartitions if _is_lazy(x) else 1, 1)
    return all(map(partial(are_few, n), (in_a_chunk, size), LEAST[others]))


def _can_be_slots(x: Any, question: Question, grouping: Grouping) -> bool:
    """Return whether a question can be asked about slots, where these can be faster.

    All groups without weights are answered together: medians of 18 groups of 2^24 float32 take 0.33
    s so, and 0.45 as slots; 64 groups 0.48 and 0.59; three groups 0.34 and 0.30.
    """
    is_one = isinstance(question, Question) and question.by_slot is not None
    return is_one and grouping.windows is None and question.measures.weights


def _without_slots(x: Any, grouping: Grouping) -> str:
    """Return what groups would be if they were no slots: a key of `LEAST`."""
    is_table = not _is_lazy(x) or x.nbytes <= one_lane_limit(Source.of(x), grouping.codes.nbytes)
    return "table" if is_table else "stretches"


def are_few(n_groups: float, size: float, least: int) -> bool:
    """Return whether groups have at least so many of `size` elements on average, and are few.

    An unknown size, NaN, is large enough. If no element is needed, any number of groups is few.
    """
    return not least or (n_groups <= MOST and not n_groups * least > size)


def _is_lazy(x: Any) -> bool:
    return isinstance(x, DaskArray)


def about_slots(question: Question, grouping: Grouping) -> OfSlots:
    """Return the question about each group of all elements as a slot."""
    assert question.by_slot is not None
    return OfSlots(question.by_slot.question, int(max(min(grouping.at_most, MOST), 1)))


def together(answers: Slots, n: int, *, question: OfSlots, shape: AnswerAxes, kind: Any) -> Any:
    """Combine the answers about `n` slots in an array of a kind; box plots stay as they are."""
    by_slot = question.of_each.by_slot
    assert by_slot is not None
    answer = by_slot.together([answers[slot] for slot in range(n)])
    if kind is None:
        return answer
    return in_kind(answer[0, ...] if shape.is_scalar else answer, kind)


def together_lazily(
    answers: DaskArray,
    question: OfSlots,
    grouping: Grouping,
    shape: AnswerAxes,
    dtype: np.dtype[Any] | None,
    kind: Any,
) -> DaskArray:
    """Combine lazy answers about slots in a lazy array."""
    meta = np.empty((0,) * len(shape.labels), object)
    if dtype is not None:
        meta = fitted(meta_from_array(kind, ndim=meta.ndim, dtype=dtype))
    how = {"question": question, "shape": shape, "form": Form((), dtype, meta)}
    groups = {"names": grouping.names} if grouping.is_lazy else {"n": grouping.number}
    made = graphs.in_one_place([answers], _together, "slots", (0,) * meta.ndim, **how, **groups)
    sizes = shape.new_axes(question.of_each.n_answers)
    chunks = tuple((sizes[label],) for label in shape.labels)
    return DaskArray(made.dask, made.name, chunks, meta=meta)


def _together(parts: list[Slots], *, form: Form, names: Any = None, n: int = 0, **how: Any) -> Any:
    kind = None if form.dtype is None else form.kind
    return together(parts[0], n if names is None else len(names), kind=kind, **how)
