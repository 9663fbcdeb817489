"""A case: what is asked, where, what goes wrong and when; drawn from a seed and a number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.faults import FAULTS
from tests.faults.places import CLUSTERS, Place
from tests.faults.questions import QUESTIONS

SCHEDULERS = {"sync": 0.42, "threads": 0.42, "here": 0.16, "apart": 0.0}
"""And how often they are drawn; real processes only on demand."""
COSTLY = {
    "scheduler closes": 0.1,
    "worker out of memory": 0.1,
    "worker short of memory": 0.1,
    "worker dies of a read": 0.5,
    "reader stalls for long": 0.2,
}
"""Faults that take seconds are drawn less often."""


@dataclass(frozen=True)
class Case:
    """What is asked and what goes wrong.

    Parameters
    ----------
    question, data, scheduler, fault : str
        Names in the tables of this folder.
    moment : float
        When, as a share in [0, 1) of all tasks, or of what goes to the disk.
    is_during : bool
        While the task runs, and not when it has ended.
    delay : float
        Seconds after that.
    chunk, load : int
        Where it is the store that fails: which chunk, at which load from 1 on.
    is_again : bool
        And whether at later loads, too.
    retries : int
        Of dask, on a cluster.
    keep : str
        Where the first load keeps what the second would want: "memory", "disk" or "nothing".
    kind : str
        Of the chunks, in `places.KINDS`.
    """

    seed: int
    number: int
    question: str
    data: str
    scheduler: str
    fault: str
    moment: float
    is_during: bool
    delay: float
    chunk: int
    load: int
    is_again: bool
    retries: int
    keep: str
    kind: str = "read"


def drawn(seed: int, number: int, only: Sequence[str] = (), faults: Sequence[str] = ()) -> Case:
    """The case of that number, among some schedulers and faults."""
    d = random.Random(f"{seed} {number}")
    shares = dict.fromkeys(only, 1.0) or SCHEDULERS
    scheduler = d.choices([*shares], [*shares.values()])[0]
    possible = [name for name, fault in FAULTS.items() if scheduler in fault.places]
    possible = [name for name in possible if name in (faults or possible)]
    fault = d.choices(possible, [COSTLY.get(name, 1) for name in possible])[0]
    needs_disk = FAULTS[fault].is_struck_at == "disk" or fault == "vanishing folder"
    keep = d.choice(["disk"] if needs_disk else ["memory", "memory", "disk", "nothing"])
    questions = [*QUESTIONS]
    if needs_disk and d.random() < 0.6:
        questions = [name for name in questions if QUESTIONS[name].on_disk]
    question = d.choice(questions)
    return Case(
        seed=seed,
        number=number,
        question=question,
        data=d.choice(QUESTIONS[question].data),
        scheduler=scheduler,
        fault=fault,
        moment=round(d.random(), 3),
        is_during=d.random() < 0.5,
        delay=round(d.choice([0, 0, d.random() * 0.004]), 5),
        chunk=d.randrange(10),
        load=d.choice([1, 1, 2, 2, 2, 3]),
        is_again=d.random() < 0.3,
        retries=d.choice([0, 3]) if scheduler in (*CLUSTERS, "apart") else 0,
        keep=keep,
        kind=d.choice(CLUSTERS.get(scheduler, Place()).kinds),
    )
