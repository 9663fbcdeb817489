"""Data that were made to be slow: answers are right, work is bounded, and so is time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.hostile import costs
from tests.hostile.costs import LIMITS, PLANS, QUESTIONS, Asked, prepared, time_ratio, work_of
from tests.hostile.recipes import BESIDE, CHUNKS, STEPS, Breeder, Recipe, frame
from tests.hostile.search import DTYPES, Search
from tests.hostile.worst import WORST

N, N_CHUNKS = 60_000, 12
# Looks at an element and bytes handed on may be so many times those of normal data, and as much of
# all elements more.
LOOKS, HANDED, MORE = 3.0, 6.0, 0.5

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def numbers_of(answer: Any) -> Any:
    """What an answer says, as something to compare."""
    (found,) = answer
    return repr(found) if not isinstance(found, np.ndarray | np.generic) else found


@pytest.mark.few(4)
@pytest.mark.parametrize("number", range(len(WORST)))
def test_all_plans_have_one_answer(number: int) -> None:
    """Any plan, and another number of chunks, to the last bit; and work is bounded."""
    question, plan, recipe = WORST[number]
    asked, made = QUESTIONS[question], recipe.made(N, N_CHUNKS)
    with np.errstate(all="ignore"):
        answers = [numbers_of(prepared(asked, each, made)[0]()) for each in PLANS]
        others = frame("any", N, 7).sizes
        answers.append(numbers_of(prepared(asked, "lazy", made, others)[0]()))
        hostile, normal = (
            work_of(asked, plan, each) for each in (made, recipe.normal.made(N, N_CHUNKS))
        )
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])
    assert hostile.looks <= LOOKS * normal.looks + MORE
    assert hostile.handed <= HANDED * normal.handed + MORE
    assert hostile.loads <= max(2.0, normal.loads) + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WORST)))
def test_time_is_bounded(number: int) -> None:
    question, plan, recipe = WORST[number]
    ratio = time_ratio(QUESTIONS[question], plan, recipe, 2_000_000, 32, repeat=5)
    assert ratio <= LIMITS[plan], (question, plan, recipe, ratio)


# --- The search -----------------------------------------------------------------------------------


def test_recipes_are_data() -> None:
    """The same ones again, of all steps and chunks, in every dtype."""
    rng = np.random.default_rng(0)
    breeders = [Breeder(rng, (name,)) for name in BESIDE]
    recipe, seen = breeders[0].new("f8"), set()
    for i in range(200):
        dtype = DTYPES[i % len(DTYPES)]
        breeder = breeders[i % 3]
        recipe = breeder.changed(recipe) if i % 4 else breeder.new(dtype)
        recipe = dataclasses.replace(recipe, dtype=dtype)
        made = recipe.made(500, 9)
        assert sum(made.at.sizes) == len(made.values) == 500
        assert all(len(made.beside(name)) == 500 for name in BESIDE)
        assert made.values.dtype == dtype
        again = eval(repr(recipe), {"Recipe": Recipe, "inf": np.inf, "nan": np.nan})
        assert again.made(500, 9).values.tobytes() == made.values.tobytes()
        seen.add((recipe.steps, recipe.chunks))
    assert {name for steps, _ in seen for name, *_ in steps} == set(STEPS)
    assert {chunks for _, chunks in seen} == set(CHUNKS)


def test_a_search_finds_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that copies what is negative many times is found out, by work alone: were times
    to choose the recipes that are changed, each run would try other ones."""
    from dask_gpuselect import kernels

    def ask(x: Any) -> Any:
        some = x[x < -1]
        for _ in range(3 if some.size > 4000 else 0):
            kernels.cuts(x, dtype=x.dtype, share=1)
        return kernels.cuts(x, dtype=x.dtype, share=1)

    monkeypatch.setitem(QUESTIONS, "bad", Asked("median", ask=ask))  # type: ignore[arg-type]

    def alike(runs: list[Any], repeat: int) -> list[list[float]]:
        return [[1.0 for _ in range(repeat) if run()] for run in runs]

    monkeypatch.setattr(costs, "seconds_in_turns", alike)
    search = Search("bad", "plain", "f8", 8000, 0)
    search.run(60, 30)
    assert search.n_tried == 30
    assert search.by_work[0].looks == 4.0
    assert search.by_work[0].work >= search.by_work[-1].work
