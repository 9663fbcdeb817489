"""The data and the contenders of the papers on selection: one table for the benchmarks and for
``strategies.py``. NumPy and CuPy take the same calls.

Beliakov 2011, *Parallel calculation of the median and order statistics on GPUs with application to
robust regression*; Alabi et al. 2012, *Fast k-selection algorithms for graphics processing units*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dask_gpuselect import order_statistic, quantile
from dask_gpuselect.engine.search import Selected, select_now
from dask_gpuselect.strategies import (
    Bisection,
    BitonicMerge,
    BrentMinimize,
    BrentRoot,
    Bucket,
    GoldenSection,
    Kelley,
    Quickselect,
    Radix,
    Randomized,
    SortAndChoose,
    Strategy,
)

# --- Data ---------------------------------------------------------------------------------------


class Maker:
    """Random numbers of a namespace, NumPy's or CuPy's, made where they stay.

    Parameters
    ----------
    xp : module
    n : int
        How many.
    dtype : dtype
        float32 or float64; anything else is made of float64.
    seed : int
    """

    def __init__(self, xp: ModuleType, n: int, dtype: DTypeLike, seed: int = 2011) -> None:
        self.xp, self.n, self.dtype = xp, n, np.dtype(dtype)
        self.float = self.dtype if self.dtype.kind == "f" else np.dtype(np.float64)
        self.rng = xp.random.default_rng(seed)

    def uniform(self) -> Any:
        """In (0, 1], as Alabi et al. define it (footnote 6)."""
        return 1 - self.rng.random(self.n, dtype=self.float)

    def normal(self) -> Any:
        return self.rng.standard_normal(self.n, dtype=self.float)

    def half_normal(self) -> Any:
        return abs(self.normal())

    def beta(self) -> Any:
        """β(2, 5): the second smallest of six uniform numbers."""
        least, second = self.uniform(), self.uniform()
        least, second = self.xp.minimum(least, second), self.xp.maximum(least, second)
        for _ in range(4):
            third = self.uniform()
            second = self.xp.minimum(second, self.xp.maximum(least, third))
            least = self.xp.minimum(least, third)
        return second

    def mixed(self, share: float, first: Any, second: Any) -> Any:
        """The first for exactly ``floor(share * n)`` elements, evenly strewn, and one more of a
        half (Beliakov 2011, V.A: "50% of elements + 1")."""
        count = math.floor(share * self.n) + (share == 0.5)
        step = max(round(0.6180339887 * self.n), 1)
        while math.gcd(step, self.n) > 1:
            step += 1
        places = self.xp.arange(self.n, dtype=np.int64)
        places *= step
        places %= self.n
        return self.xp.where(places < count, first, second).astype(self.float, copy=False)

    def spiked(self, values: Any, count: int, value: float) -> Any:
        """With so many elements replaced, in places far from each other."""
        places = np.arange(count) * self.n // count + self.n // (2 * count)
        values[self.xp.asarray(places)] = value
        return values

    def wide_integers(self) -> Any:
        """Every uint32 alike; others scaled to the dtype."""
        return self.xp.floor((1 - self.uniform()) * 2.0**32)

    def bucket_killer(self) -> Any:
        """Each power of two from 2^-32 to 2^32, and the rest random near the least (4.2.5)."""
        values = (1 + self.uniform() / 1024) * 2.0**-32
        powers = (2.0 ** np.arange(-32, 33))[: self.n]
        places = np.arange(len(powers)) * self.n // len(powers)
        values[self.xp.asarray(places)] = self.xp.asarray(powers.astype(self.float))
        return values

    def near_zero(self) -> Any:
        """Multiples of the smallest number: 1024 buckets over their range overflow (4.2.5)."""
        bits = np.dtype(f"u{self.float.itemsize}")
        largest = 2.0**44 if self.float.itemsize == 8 else 2.0**20
        return (self.uniform() * largest).astype(bits).view(self.float)


def _mixture(share: float, first: str, second: Callable[[Maker], Any]) -> Callable[[Maker], Any]:
    return lambda m: m.mixed(share, getattr(m, first)(), second(m))


def _far(m: Maker) -> Any:
    """N(100, 1)."""
    return m.normal() + 100


TWO_THIRDS, ONE_THIRD = 0.666, 0.333

BELIAKOV: Mapping[str, Callable[[Maker], Any]] = {
    "uniform": Maker.uniform,
    "normal": Maker.normal,
    "half-normal": Maker.half_normal,
    "beta(2, 5)": Maker.beta,
    "mixture 1": _mixture(TWO_THIRDS, "normal", _far),
    "mixture 2": _mixture(0.5, "normal", _far),
    "mixture 3": _mixture(0.9, "half_normal", lambda m: 10.0),
    "mixture 4": _mixture(TWO_THIRDS, "half_normal", _far),
    "mixture 5": _mixture(0.5, "half_normal", _far),
}
"""Beliakov 2011, section V.A, in its order."""

OUTLIERS: Mapping[str, Callable[[Maker], Any]] = {
    "normal, one of 1e9": lambda m: m.spiked(m.normal(), 1, 1e9),
    "normal, ten of 1e9": lambda m: m.spiked(m.normal(), 10, 1e9),
    "normal, one of 1e20": lambda m: m.spiked(m.normal(), 1, 1e20),
}
"""Beliakov 2011, sections V.A and V.D: "one or more components took very large values"."""

ALABI: Mapping[str, Callable[[Maker], Any]] = {
    "uniform": lambda m: m.wide_integers() if m.dtype.kind == "u" else m.uniform(),
    "normal": Maker.normal,
    "half-normal": Maker.half_normal,
    "U(-1e6, 1e6)": lambda m: 2e6 * m.uniform() - 1e6,
    "N(0, 100)": lambda m: 10 * m.normal(),  # 100 is the variance (footnote 6)
}
"""Alabi et al. 2012, section 4.1.2."""

ALABI_PAIRS = (
    ("uniform", "uint32"),
    ("uniform", "float32"),
    ("uniform", "float64"),
    ("normal", "float32"),
    ("normal", "float64"),
    ("half-normal", "float32"),
    ("U(-1e6, 1e6)", "float32"),
    ("N(0, 100)", "float32"),
)
"""Tables II to VI, and section 4.2.4."""

ADVERSARIAL: Mapping[str, Callable[[Maker], Any]] = {
    "sorted": lambda m: m.xp.sort(ALABI["uniform"](m)),
    "all ones": lambda m: m.xp.ones(m.n, m.float),
    "ones and twos": lambda m: 1.0 + (m.uniform() > 0.95),  # the paper's example
    "bucket killer": Maker.bucket_killer,
    "near machine zero": Maker.near_zero,
}
"""Alabi et al. 2012, section 4.2.5."""

ADVERSARIAL_PAIRS = (
    ("sorted", "uint32"),
    ("all ones", "float32"),
    ("ones and twos", "float32"),
    ("bucket killer", "float32"),
    ("bucket killer", "float64"),
    ("near machine zero", "float64"),  # in float32 the paper's doubles do not overflow
)

DATA = {**BELIAKOV, **OUTLIERS, **ALABI, **ADVERSARIAL}


def make_data(name: str, dtype: str, n: int, xp: ModuleType = np) -> Any:
    """One-dimensional, the same every time."""
    return DATA[name](Maker(xp, n, dtype)).astype(dtype, copy=False)


def median_rank(n: int) -> int:
    """From 0: that of the lower median."""
    return (n - 1) // 2


SHARES = (0.01, 0.025, *(round(0.05 * i, 2) for i in range(1, 20)), 0.975, 0.99)


def alabi_ks(n: int) -> list[int]:
    """The 25 of section 4.1.2: the k-th largest, from 1."""
    return [2, *(max(math.floor(share * n), 1) for share in SHARES), n - 1]


# --- Contenders ---------------------------------------------------------------------------------

Select = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Contender:
    """One way to the k-th smallest element, from 0.

    Parameters
    ----------
    select : callable
        From an array and k to a scalar, in kind or of Python.
    strategy : Strategy, optional
        What it is, if its rounds can be traced.
    any_k : bool
        Whether it does the same for every k.
    only_median : bool
        Whether it finds nothing else.
    """

    select: Select
    strategy: Strategy | None = None
    any_k: bool = False
    only_median: bool = False

    def traced(self, x: Any, k: int) -> tuple[Any, Selected | None]:
        """The element, and what finding it took."""
        if self.strategy is None:
            return self.select(x, k), None
        ranks = np.array([k])
        result = select_now(x, np.dtype(x.dtype), lambda n: (ranks, ranks), self.strategy)
        return result.elements[k], result


def by_strategy(strategy: Strategy, *, any_k: bool = False) -> Contender:
    return Contender(lambda x, k: order_statistic(x, k, strategy=strategy), strategy, any_k=any_k)


PAPERS: Mapping[str, Contender] = {
    "sort&choose": by_strategy(SortAndChoose(), any_k=True),
    "Kelley": by_strategy(Kelley()),  # 7 iterations
    "bisection": by_strategy(Bisection(space="value")),
    "golden section": by_strategy(GoldenSection()),
    "Brent, minimum": by_strategy(BrentMinimize()),
    "Brent, root": by_strategy(BrentRoot()),
    "quickselect": by_strategy(Quickselect()),
    "radix 4": by_strategy(Radix(4)),
    "radix 4, copying": by_strategy(Radix(4, copies=True)),
    "radix 4, in place": by_strategy(Radix(4, copies=False)),
    "bucket": by_strategy(Bucket()),  # 1024
    "randomized": by_strategy(Randomized()),  # p = 0.9
    "bitonic merge": by_strategy(BitonicMerge(), any_k=True),
}
"""With the papers' parameters."""

TODAY: Mapping[str, Contender] = {
    "Kelley, by key": by_strategy(Kelley(space="key")),
    "Kelley, by log": by_strategy(Kelley(space="log")),
    "bisection, by key": by_strategy(Bisection()),
    "golden section, by key": by_strategy(GoldenSection(space="key")),
    "Brent, minimum, by key": by_strategy(BrentMinimize(space="key")),
    "Brent, root, by key": by_strategy(BrentRoot(space="key")),
    "radix 8": by_strategy(Radix(8)),
    "radix 11": by_strategy(Radix(11)),
}
"""The same with what suits today's machines, or any data."""


def _quantile(x: Any, k: int) -> Any:
    # (n - 1) q is k but for rounding.
    return quantile(x, k / max(x.size - 1, 1), method="nearest")


OURS: Mapping[str, Contender] = {
    "`quantile`": Contender(_quantile),
    "`order_statistic`": Contender(order_statistic),
}
"""The package's own engine, without a strategy."""

DEFAULT = "`quantile`"


def peers(xp: ModuleType) -> dict[str, Contender]:
    """What else there is for these arrays."""
    name = "np" if xp is np else xp.__name__
    results = {
        f"`{name}.partition`": Contender(lambda x, k: xp.partition(x, k)[k], any_k=xp is not np),
        f"`{name}.sort`": Contender(lambda x, k: xp.sort(x)[k], any_k=True),
    }
    torch = _torch(xp)
    if torch is not None:
        results["`torch.kthvalue`"] = Contender(
            lambda x, k: torch.kthvalue(torch.from_dlpack(x), k + 1).values.item()
        )
        results["`torch.median`"] = Contender(
            lambda x, k: torch.median(torch.from_dlpack(x)).item(), only_median=True
        )
    return results


def _torch(xp: ModuleType) -> Any:
    """PyTorch, if it is there and can use the device."""
    try:
        import torch
    except ImportError:
        return None
    return torch if xp is np or torch.cuda.is_available() else None


def contenders(xp: ModuleType) -> dict[str, Contender]:
    return {**OURS, **PAPERS, **TODAY, **peers(xp)}
