"""The worst that the search has found: questions, plans, and the recipes of their data.

Each took longest beside normal data, of its question and plan, or made most work; those that are
mended stay here, so that they stay so.
"""

from __future__ import annotations

from tests.hostile.recipes import Recipe, Step


def _of(
    *steps: Step,
    weights: str = "alike",
    labels: str = "alike",
    where: str = "alike",
    dtype: str = "f8",
    chunks: str = "even",
) -> Recipe:
    return Recipe(dtype, steps, chunks, weights, labels, where)


BINADES = ("named", "every binade")
SPREAD = (("exponents", 2000, 2), ("ordered", "descending"), ("power", 0.01))
WORST: tuple[tuple[str, str, Recipe], ...] = (
    ("box", "lazy", _of(("stretched", "all but the first", 30), ("exponents", 2000, 3))),
    ("box", "plain", _of(("exp", 3), ("mixed", 0.7, "subnormal", 1))),
    ("box", "persisted", _of(("exponents", 2000, 3))),
    ("mad", "lazy", _of(("exp", 60))),
    ("mad", "plain", _of(("clusters", 10, 0.001, 1), ("exp", 60))),
    ("mad", "persisted", _of(("tied", 30.0), ("named", "bucket killer"))),
    ("linear weights", "lazy", _of(("clusters", 100, 1e6, 3), weights="one heavy")),
    ("linear weights", "plain", _of(("clusters", 100, 1e6, 3), weights="one heavy")),
    ("weights", "plain", _of(("power", 30), ("exp", 1), weights="not the middle")),
    ("weights", "lazy", _of(("ordered", "by turns"), weights="not the middle")),
    ("weighted box", "lazy", _of(("scaled", 0.3, 1e3, 3), weights="heavy late")),
    ("weighted box", "plain", _of(("exponents", 60, 1), weights="one heavy")),
    ("few weighted lanes", "plain", _of(("mixed", 0.01, "nan", 2), weights="subnormal")),
    (
        "few weighted lanes",
        "plain",
        _of(("missing", "last"), chunks="shrinking", weights="mostly 0"),
    ),
    (
        "many weighted lanes",
        "lazy",
        _of(("power", 100), ("missing", "late"), weights="heavy late"),
    ),
    (
        "many weighted lanes",
        "plain",
        _of(("named", "nan and inf"), chunks="growing", weights="ones"),
    ),
    ("weighted lane boxes", "plain", _of(weights="many magnitudes")),
    ("short lanes", "plain", _of(("named", "nan and inf"))),
    ("lane box passes", "lazy", _of(("stretched", "last", 300), BINADES)),
    ("lane boxes", "lazy", _of(("exponents", 2000, 2))),
    ("group boxes", "lazy", _of(("exponents", 2000, 2), labels="zipf")),
    ("many lane boxes", "lazy", _of(("exponents", 2000, 2))),
    ("many lane boxes", "plain", _of(("exponents", 2000, 2))),
    ("short lane boxes", "plain", _of(("exponents", 2000, 2))),
    ("short lane boxes", "lazy", _of(("exponents", 2000, 2))),
    ("short lane boxes", "plain", _of(("scaled", 1.0, 1e-310, 3))),
    ("many group boxes", "lazy", _of(("exponents", 2000, 2))),
    ("group boxes", "plain", _of(("shifted", "away", 30.0), ("scaled", 0.5, 1e300, 3))),
    ("quartiles", "lazy", _of(("mixed", 1e-5, "nan", 1))),
    ("quartiles", "persisted", _of(("mixed", 0.7, "nan", 1), ("power", 100))),
    ("quartiles", "plain", _of(("tied", 0.03), ("clusters", 5, 1e6, 2))),
    ("percentiles", "plain", _of(("exp", 0.1), ("missing", "away"))),
    ("lanes", "plain", _of(("atom", 0.5, 1e-9, 3), ("scaled", 1e-5, 1e-300, 3))),
    ("lanes", "lazy", _of(("squeezed", "late", -0.5), ("ordered", "zigzag"))),
    ("box", "plain", _of(("exponents", 2000, 2), ("power", 0.01), dtype="i2")),
    ("masked box", "plain", _of(*SPREAD, where="all", dtype="i2", chunks="growing")),
    ("masked quartiles", "plain", _of(("exp", 10), ("ordered", "by turns"), dtype="i2")),
    ("masked mad", "plain", _of(("power", 3), ("clusters", 3, 1e6, 2), where="all", dtype="i2")),
    ("masked lanes", "plain", _of(("atom", 0.001, 1e-9, 2), where="none", dtype="i2")),
    ("lanes", "plain", _of(("named", "one valid"), ("atom", 0.1, 0.0, 3), dtype="i2")),
    ("lane boxes", "plain", _of(("missing", "all but the first few"), dtype="i2")),
)
