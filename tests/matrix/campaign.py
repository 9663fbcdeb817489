"""Draw cases, check laws, and tell each failure as a script."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.matrix.cases import Case, drawn, on_device, pinned, script, smaller
from tests.matrix.laws import LAWS, problem_of

LIMIT_TOO_SMALL = "column-limit is"
"""A part of the error that says that no plan fits a limit, as is documented."""


@dataclass(frozen=True)
class Failure:
    """A law that a case breaks, and the error that says so."""

    case: Case
    law: str
    error: Exception

    @property
    def kind(self) -> str:
        """What failures of one cause have in common."""
        return f"{self.law}, {self.case.question.name}: {_kind(self.error)}"

    @cached_property
    def script(self) -> str:
        """A script that fails by itself, of a case that is as small as possible."""
        kind = _kind(self.error)
        small = smaller(self.case, lambda other: _kind(problem_of(other, self.law)) == kind)
        problem = problem_of(small, self.law) or self.error
        return script(small, f"{self.law}: {type(problem).__name__}: {problem}")


SEED, PARTS, CASES = 20, 12, 90
"""The short campaign: so many parts of so many cases."""


def short_campaign(part: int, *, device: bool = False) -> Iterator[Failure]:
    """Check a part of the short campaign."""
    more = pinned(SEED, part, PARTS)
    return campaign(SEED, most=CASES, part=part, of=PARTS, more=more, device=device)


def campaign(
    seed: int,
    *,
    most: int | None = None,
    end: float = float("inf"),
    part: int = 0,
    of: int = 1,
    more: Iterable[Case] = (),
    counts: Counter[str] | None = None,
    device: bool = False,
) -> Iterator[Failure]:
    """Check one part of the cases of a seed: the law `right` of each, and another law of every
    second one. `right` compares with definitions, and few mistakes break other laws alone.

    Parameters
    ----------
    most : int, optional
        Cases of this part.
    end : float
        When to stop, by `time.monotonic`.
    part, of : int
        Every `of`-th case, from the number `part` on.
    more : iterable of Case
        To check afterwards.
    counts : Counter, optional
        Counts how often each law was checked.
    device : bool
        Whether arrays are CuPy's, as far as cases can be of such.
    """
    counts = Counter() if counts is None else counts
    others = [law for law in LAWS if law != "right"] + ["changes named"] * 2
    turn = 0
    cases: Iterator[Case] = itertools.chain(itertools.islice(drawn(seed, part, of), most), more)
    if device:
        cases = filter(None, map(on_device, cases))
    for n, case in enumerate(cases):
        if time.monotonic() > end:
            return
        laws = ["right"]
        if n % 2:
            next_laws = (others[(turn + i) % len(others)] for i in range(len(others)))
            laws += itertools.islice((law for law in next_laws if LAWS[law].applies(case)), 1)
            turn += 1
        for law in laws:
            try:
                LAWS[law].check(case)
                counts[law] += 1
            except Exception as error:
                if LIMIT_TOO_SMALL in str(error):
                    counts["limits that are too small"] += 1
                else:
                    yield Failure(case, law, error)
                break


def _kind(error: BaseException | None) -> str:
    """What failures of one cause have in common."""
    if error is None:
        return ""
    text = re.sub(r"-?\d[\d.e+-]*|nan|inf|\(.*?\)|np\.\w+", "#", str(error).split("\n")[0])[:60]
    return f"{type(error).__name__}: {text}"
