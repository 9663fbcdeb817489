"""Searches for data that are slow: python -m tests.hostile.search --minutes 20 --seed 1

For each question, plan and dtype recipes are drawn and changed. Two pools are kept: of those that
take longest beside normal data, and of those that make kernels look at most elements and hand on
most bytes, which are numbers that no noise changes. The worst of both are measured again, taking
turns with normal data, and told by a line of JSON each. Numbers of the second kind, and the recipes
that are drawn for them, depend on the seed alone; times do not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from dask_gpuselect.kernels import compiling
from tests.hostile import costs
from tests.hostile.costs import LIMITS, PLANS, QUESTIONS, prepared, time_ratio
from tests.hostile.recipes import Breeder, Recipe

POOL = 10
NEW = 0.3  # of the recipes are no change of one that is known
N_CHUNKS = 32
DTYPES = ("f8", "f4", "i8", "u4", "i2", "u1", "f2", "?")
OF_BOOL = {"median", "mad", "sort", "groups", "two groups", "many groups"}
OF_BOOL |= {"masked mad", "lane mads"}
"""What is asked of bool, which has no quantiles."""
N_NORMAL = 5  # times that normal data are measured


@dataclass(frozen=True)
class Tried:
    """What a recipe costs, in units of what normal data do."""

    recipe: Recipe
    time: float
    looks: float
    handed: float

    @property
    def work(self) -> float:
        return self.looks + self.handed


class Search:
    """The search for data that are slow for a question.

    Parameters
    ----------
    question, plan, dtype : str
        In `QUESTIONS` and `PLANS`.
    n : int
        Elements.
    seed : int
    """

    def __init__(self, question: str, plan: str, dtype: str, n: int, seed: int) -> None:
        self.asked, self.plan, self.n = QUESTIONS[question], plan, n
        self.rng = np.random.default_rng([seed, *f"{question}/{plan}/{dtype}".encode()])
        self.breeder = Breeder(self.rng, self.asked.needs)
        self.by_time: list[Tried] = []
        self.by_work: list[Tried] = []
        self.n_tried = 0
        self.normal = Tried(Recipe(dtype), 1.0, 1.0, 1.0)
        normal = [self._cost(Recipe(dtype)) for _ in range(N_NORMAL)]
        self.normal = sorted(normal, key=lambda each: each.time)[N_NORMAL // 2]

    def run(self, seconds: float, most: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.n_tried < most:
            pool = self.by_time if self.rng.random() < 0.5 else self.by_work
            if len(pool) < POOL or self.rng.random() < NEW:
                recipe = self.breeder.new(self.normal.recipe.dtype)
            else:
                recipe = self.breeder.changed(pool[int(self.rng.integers(POOL))].recipe)
            self.note(self._cost(recipe))

    def note(self, cost: Tried) -> None:
        self.n_tried += 1
        normal = self.normal
        found = Tried(
            cost.recipe,
            cost.time / normal.time,
            cost.looks / max(normal.looks, 1.0),
            cost.handed / max(normal.handed, 0.05),
        )
        if found.recipe in [each.recipe for each in [*self.by_time, *self.by_work]]:
            return
        self.by_time = sorted([*self.by_time, found], key=lambda each: -each.time)[:POOL]
        self.by_work = sorted([*self.by_work, found], key=lambda each: -each.work)[:POOL]

    def worst(self, n: int) -> Iterator[tuple[Recipe, float]]:
        """The worst recipes, with times that were measured again."""
        some = dict.fromkeys(each.recipe for each in [*self.by_time[:2], *self.by_work[:1]])
        for recipe in some:
            yield recipe, time_ratio(self.asked, self.plan, recipe, n, N_CHUNKS, repeat=5)

    def _cost(self, recipe: Recipe) -> Tried:
        made = recipe.made(self.n, N_CHUNKS)
        run, _ = prepared(self.asked, self.plan, made)
        with costs.counted(self.n, made.values.itemsize) as work:
            try:
                ((seconds,),) = costs.seconds_in_turns([run], 1)
            except ValueError:  # all weights of a lane are 0, which is refused
                return Tried(recipe, 0.0, 0.0, 0.0)
        return Tried(recipe, seconds, work.looks, work.handed)


def told(case: tuple[str, str, str], seconds: float, given: argparse.Namespace) -> int:
    """Search for so long, and tell the worst; how many recipes were tried."""
    search = Search(*case, int(given.elements), given.seed)
    search.run(seconds, given.most)
    question, plan, dtype = case
    about = {"question": question, "plan": plan, "dtype": dtype, "tried": search.n_tried}
    work = search.by_work[0]
    about |= {"looks": round(work.looks, 2), "handed": round(work.handed, 2)}
    found = sorted(search.worst(int(given.again)), key=lambda each: -each[1])
    for recipe, ratio in found[:2]:
        line = about | {"ratio": round(ratio, 2), "recipe": asdict(recipe)}
        over = {"OVER": LIMITS[plan]} if ratio > LIMITS[plan] else {}
        print(json.dumps(line | over), flush=True)
    return search.n_tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--questions", nargs="*", default=[*QUESTIONS])
    parser.add_argument("--plans", nargs="*", default=[*PLANS])
    parser.add_argument("--dtypes", nargs="*", default=[*DTYPES])
    parser.add_argument("--elements", type=float, default=1e6)
    parser.add_argument("--again", type=float, default=4e6, help="elements of times told")
    parser.add_argument("--most", type=int, default=1 << 40, help="recipes of each search")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    gc.freeze()  # so that collecting what a run has left takes no time
    cases = [
        (question, plan, dtype)
        for dtype in given.dtypes
        for question in given.questions
        for plan in given.plans
        if dtype != "?" or question in OF_BOOL
    ]
    compiling.LARGE = 0  # nothing is done by NumPy instead
    total = sum(told(case, 60 * given.minutes / len(cases), given) for case in cases)
    print(f"{total} recipes; {os.cpu_count()} CPUs; Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
