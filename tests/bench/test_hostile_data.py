"""Data that were made to be slow: answers are right, work is bounded, and so is time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.matrix.costs import LIMITS, PLANS, QUESTIONS, prepared, time_ratio, work_of
from tests.matrix.laws import same
from tests.matrix.recipes import WORST, frame

N, N_CHUNKS = 60_000, 12
# Looks at an element and bytes handed on may be so many times those of normal data, and as much of
# all elements more.
LOOKS, HANDED, MORE = 3.0, 6.0, 0.5

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.few(4)
@pytest.mark.parametrize("number", range(len(WORST)))
def test_all_plans_have_one_answer(number: int) -> None:
    """Any plan, and another number of chunks, to the last bit; and work is bounded."""
    question, plan, recipe = WORST[number]
    about, made = QUESTIONS[question], recipe.made(N, N_CHUNKS)
    with np.errstate(all="ignore"):
        answers = [prepared(about, each, made)[0]() for each in PLANS]
        others = frame("any", N, 7).sizes
        answers.append(prepared(about, "lazy", made, others)[0]())
        hostile, normal = (
            work_of(about, plan, each) for each in (made, recipe.normal.made(N, N_CHUNKS))
        )
    for answer in answers[1:]:
        same(answer, answers[0])
    assert hostile.looks <= LOOKS * normal.looks + MORE
    assert hostile.handed <= HANDED * normal.handed + MORE
    assert hostile.loads <= max(2.0, normal.loads) + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WORST)))
def test_time_is_bounded(number: int) -> None:
    """Whatever else the machine does: that slows one measurement, and not each."""
    question, plan, recipe = WORST[number]
    for _ in range(3):
        ratio = time_ratio(QUESTIONS[question], plan, recipe, 2_000_000, 32, repeat=5)
        if ratio <= LIMITS[plan]:
            return
    raise AssertionError((question, plan, recipe, ratio))
