"""Right answers from definitions: which elements make a slot, and what is true of them.

Nothing of the package is used. `tests.oracle` has the quantiles of one set of elements, by NumPy
where NumPy is exact and by fractions elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests import oracle

Array = NDArray[Any]

NORMAL_MAD = 1 / NormalDist().inv_cdf(0.75)
NORMAL_IQR = 1 / (2 * NormalDist().inv_cdf(0.75))


class Refused(Exception):  # noqa: N818 -- it is the right answer
    """There is no answer but an error of some kinds."""

    def __init__(self, *kinds: type[Exception]) -> None:
        super().__init__(*kinds)
        self.kinds = kinds


# --- Slots ----------------------------------------------------------------------------------------


class Slot(NamedTuple):
    """The elements of one answer that take part: values, weights if there are any, how many a mask
    or a weight of 0 leaves out, and how many of these a weight of 0."""

    values: Array
    weights: Array | None
    n_left_out: int
    n_weightless: int = 0


@dataclass(frozen=True, eq=False)
class Elements:
    """All that an answer depends on, whatever the chunks.

    Parameters
    ----------
    values : ndarray
    axes : tuple of int
        The reduced axes, ascending.
    weights, takes_part, labels : ndarray or None
        Of the shape of the values.
    groups : tuple or None
        The labels that are asked for.
    windows : dict or None
        Places along the only reduced axis for each of `groups`, in place of labels.
    """

    values: Array
    axes: tuple[int, ...]
    weights: Array | None = None
    takes_part: Array | None = None
    labels: Array | None = None
    groups: tuple[Any, ...] | None = None
    windows: Mapping[Any, list[int]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an answer: an axis of groups stands where the first reduced axis stood."""
        remaining = [n for i, n in enumerate(self.values.shape) if i not in self.axes]
        if self.groups is not None:
            remaining.insert(self.axes[0] if self.axes else 0, len(self.groups))
        return tuple(remaining)

    def slots(self) -> Iterator[Slot]:
        """Every slot, in the order of the elements of an answer."""
        remaining = [i for i in range(self.values.ndim) if i not in self.axes]
        ranges: list[Any] = [range(self.values.shape[i]) for i in remaining]
        at = self.axes[0] if self.axes else 0
        if self.groups is not None:
            ranges.insert(at, self.groups)
        for place in itertools.product(*ranges):
            index: list[Any] = [slice(None)] * self.values.ndim
            lane = [*place[:at], *place[at + 1 :]] if self.groups is not None else place
            for axis, i in zip(remaining, lane, strict=True):
                index[axis] = i
            values = np.asarray(self.values[tuple(index)]).ravel()
            every = np.ones(len(values), bool)
            if self.windows is not None:
                every = np.isin(np.arange(len(values)), self.windows[place[at]])
            if self.labels is not None:
                every &= np.asarray(self.labels[tuple(index)]).ravel() == place[at]
            takes_part, weights, n_weightless = every, None, 0
            if self.takes_part is not None:
                takes_part = takes_part & np.asarray(self.takes_part[tuple(index)]).ravel()
            if self.weights is not None:
                weights = np.asarray(self.weights[tuple(index)]).ravel()
                n_weightless = int((takes_part & (weights == 0) & (values == values)).sum())
                takes_part = takes_part & (weights > 0)
            n_left_out = int(every.sum() - takes_part.sum())
            weights = None if weights is None else weights[takes_part]
            yield Slot(values[takes_part], weights, n_left_out, n_weightless)


# --- Quantiles ------------------------------------------------------------------------------------


def _dtype_of_quantiles(name: str, dtype: Any, how: Mapping[str, Any]) -> np.dtype[Any]:
    method = how["method"] if oracle.takes_q(name) else "median"
    return oracle.expected_dtype(name, dtype, how.get("q", 0.5), method)


def quantiles(name: str, slot: Slot, dtype: Any, **how: Any) -> Any:
    """Define a quantile function of `numpy` for the elements of a slot; `fill_value` if there is
    none."""
    answer_dtype = _dtype_of_quantiles(name, dtype, how)
    method = how.get("method", "median")
    share = np.asarray(how.get("q", 0.5), np.float64) / (100 if "percentile" in name else 1)
    values = slot.values
    is_missing = values != values
    is_lost = is_missing.any() and not oracle.skips_missing(name)
    if len(values) == 0 or is_lost or is_missing.all():
        takes_part = len(values) if not oracle.skips_missing(name) else (~is_missing).any()
        if not takes_part and how.get("fill_value") is not None:
            return np.full(share.shape, how["fill_value"], answer_dtype)
        if answer_dtype.kind not in "fmM":
            raise Refused(IndexError)
        return np.full(share.shape, "NaT" if answer_dtype.kind in "mM" else np.nan, answer_dtype)
    if slot.weights is None:
        return oracle.expected(name, values, how.get("q", 0.5), method)
    valid = oracle.Weighed.of(values[~is_missing], slot.weights[~is_missing])
    results = [oracle.weighted_of(valid, q, method, answer_dtype) for q in share.ravel()]
    return np.array(results, answer_dtype).reshape(share.shape)


def _spread_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" else np.dtype("f8")


def mad(name: str, slot: Slot, dtype: Any, *, scale: Any) -> Any:
    """Define the median absolute deviation: the median of all |x - median|, times a constant."""
    function = "nanmedian" if name.startswith("nan") else "median"
    center = quantiles(function, slot, dtype)
    with np.errstate(all="ignore"):
        values = slot.values
        if function == "nanmedian":
            values = values[values == values]
        # Of infinite elements at an infinite median: NaN, as SciPy has it.
        distances = np.abs(values - center)
        result = quantiles("median", slot._replace(values=distances), distances.dtype)
        return result / result.dtype.type(1 / NORMAL_MAD if scale == "normal" else scale)


def iqr(name: str, slot: Slot, dtype: Any, *, q: Any, method: str, scale: Any) -> Any:
    """Define the interquartile range: the difference of two quantiles of float64, rounded once."""
    function = "nanquantile" if name.startswith("nan") else "quantile"
    wide = slot.values if dtype.kind in "iu" else slot.values.astype("f8")
    if not len(wide):
        return _spread_dtype(dtype).type(np.nan)
    pair = np.asarray(
        quantiles(function, slot._replace(values=wide), np.dtype("f8"), q=[*q], method=method)
    )
    low, high = pair.tolist()  # exact, of integers that a method chooses
    with np.errstate(all="ignore"):
        result = np.float64(high - low) / (1 / NORMAL_IQR if scale == "normal" else float(scale))
    return np.asarray(result).astype(_spread_dtype(dtype))[()]


def trimmed_mean(name: str, slot: Slot, dtype: Any, *, proportiontocut: float) -> Any:
    """Define the mean of what is left without a share at each end, by fractions, rounded once."""
    values = np.sort(slot.values)
    if name.startswith("nan"):
        values = values[values == values]
    inner = values[(k := int(proportiontocut * len(values))) : len(values) - k]
    answer = _spread_dtype(dtype).newbyteorder("=")
    if not len(inner) or (values != values).any():
        return answer.type(np.nan)
    if not np.isfinite(inner).all():
        with np.errstate(invalid="ignore"):  # of infinities of both signs
            return np.sum(inner[np.isinf(inner)]).astype(answer)
    return oracle.nearest(Fraction(sum(map(Fraction, inner.tolist())), len(inner)), answer)


def count(name: str, slot: Slot, dtype: Any) -> Any:
    """Define the number of elements that are neither missing nor left out."""
    return np.int64((slot.values == slot.values).sum())


def bins(name: str, slot: Slot, dtype: Any, *, n_bins: int, method: str) -> Any:
    """Define edges of bins of equal numbers of elements."""
    shares = np.arange(n_bins + 1) / n_bins
    return quantiles("nanquantile", slot, dtype, q=shares, method=method)


def order_statistic(name: str, slot: Slot, dtype: Any, *, k: Any, strategy: str | None) -> Any:
    """Define the element of rank k; NaN are the largest, as `numpy.sort` has them. Every strategy
    finds it."""
    ranks = np.asarray(k)
    if ranks.size and (not len(slot.values) or (ranks >= len(slot.values)).any()):
        raise Refused(IndexError)
    return np.sort(slot.values)[ranks]


# --- In order -------------------------------------------------------------------------------------


def in_order(name: str, slot: Slot, dtype: Any, **how: Any) -> Any:
    """Define the elements in ascending order, those that are missing last."""
    return np.sort(slot.values)


def order(name: str, slot: Slot, dtype: Any, **how: Any) -> Any:
    """Define the places of the elements in ascending order; equal ones keep theirs."""
    return np.argsort(slot.values, kind="stable")


def digitize(name: str, slot: Slot, dtype: Any, *, bins: Array, right: bool) -> Any:
    """Define how many edges each element has passed, by numbers of Python, which compare exactly;
    NaN are the largest."""
    edges = bins.tolist()
    descends = bool(edges) and edges[0] > edges[-1]

    def passed(value: Any) -> int:
        if value != value:
            return 0 if descends else len(edges)
        if descends:
            return sum(edge >= value if right else edge > value for edge in edges)
        return sum(edge < value if right else edge <= value for edge in edges)

    return np.array([passed(value) for value in slot.values.tolist()], np.int64)


def ecdf(name: str, slot: Slot, dtype: Any, *, points: Any) -> dict[str, Any]:
    """Define how many elements are below some points and up to them: the elements at even ranks, or
    given values beside the least and the largest element."""
    v = np.sort(slot.values[slot.values == slot.values])
    n = len(v)
    if np.ndim(points):
        at = np.concatenate([np.array(points).astype(dtype), v[:1], v[-1:]])
    else:
        at = v[[j * (n - 1) // (points - 1) for j in range(points)]] if n else v
    at = np.unique(at)
    result = {"points": at, "below": v.searchsorted(at), "upto": v.searchsorted(at, "right")}
    return result | {"n_valid": n, "n_missing": len(slot.values) - n}


# --- Moving windows -------------------------------------------------------------------------------

PADS = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap"}
"""NumPy's words for what SciPy's modes put beyond the ends."""
EXTREMES = {"min": 0.0, "max": 1.0}


def _reached(n: int, before: int, after: int, step: int, mode: str | None) -> list[list[int]]:
    """List the elements along an axis of n in each window; -1 is beyond the ends."""
    room = max(before, after, 0)
    how: dict[str, Any] = {"mode": PADS[mode]} if mode else {"constant_values": -1}
    padded = np.pad(np.arange(n), room, **how).tolist()
    return [padded[i + room - before : i + room + after + 1] for i in range(0, n, step)]


def _windows(about: Elements, along: list[list[list[int]]]) -> Iterator[tuple[Array, Array]]:
    """Yield the values of each window, and which of them take part, in its shape."""
    values, takes_part = about.values, about.takes_part
    takes_part = np.ones(values.shape, bool) if takes_part is None else takes_part
    n = values.ndim
    for axis, places in enumerate(map(np.array, along)):  # an axis of windows, and one within them
        values, takes_part = (each.take(places, 2 * axis) for each in (values, takes_part))
        takes_part = takes_part & (places >= 0).reshape(*places.shape, *(1,) * (n - axis - 1))
    order = [*range(0, 2 * n, 2), *range(1, 2 * n, 2)]
    values, takes_part = values.transpose(order), takes_part.transpose(order)
    for index in np.ndindex(values.shape[:n]):
        yield values[index], takes_part[index]


def rolling(
    name: str,
    about: Elements,
    *,
    statistic: str,
    window: list[int],
    center: bool,
    min_periods: int | None,
    boundary: str | None,
    closed: str | None,
    step: int,
    **how: Any,
) -> Array:
    """Define a statistic of every moving window, by what it is of one slot."""
    dtype = about.values.dtype
    along, n, most, lacks, is_short = [], 1, 1, about.takes_part is not None, False
    omits = statistic.startswith("nan")
    for axis, length in enumerate(about.values.shape):
        if axis not in about.axes:
            along.append(_reached(length, 0, 0, 1, None))
            continue
        size = window[about.axes.index(axis)]
        after = (size - 1) // 2 if center else 0
        before = size - 1 - after + (closed in ("left", "both"))
        after -= closed in ("left", "neither")
        along.append(_reached(length, before, after, step, boundary))
        n *= size
        most *= before + after + 1
        is_short |= boundary is None and (before, after) != (0, 0)
        lacks |= boundary is None and min(before, after) < 0
    least = min_periods if min_periods is not None else 1 if omits else n
    lacks |= least > most or (is_short and least > 1)
    plain = statistic.removeprefix("nan")
    definition, function = {
        "mad": (mad, statistic), "iqr": (iqr, statistic), "count": (count, "count"),
    }.get(plain, (quantiles, statistic))  # fmt: skip
    if plain in EXTREMES:
        function = "nanquantile" if omits else "quantile"
        how |= {"q": EXTREMES[plain], "method": "lower"}

    def answer_of(values: Array) -> Array:
        return np.asarray(definition(function, Slot(values, None, 0), dtype, **how))

    result = answer_of(np.ones(2, dtype)).dtype
    if lacks and plain != "count" and result.kind in "biu":
        result = np.dtype("f8")
    # Integers never lack elements here.
    lost = np.array(
        "NaT" if result.kind in "mM" else np.nan, result if result.kind in "fmM" else "f8"
    )
    results = []
    for values, takes_part in _windows(about, along):
        values = values[takes_part]
        is_few = (values == values).sum() < max(least, 1)
        if plain != "count" and is_few:
            results.append(np.broadcast_to(lost, np.shape(how.get("q", 0)) * (plain != "iqr")))
        else:
            results.append(answer_of(values))
    table = np.stack(results, axis=-1)
    shape = (*table.shape[:-1], *(len(each) for each in along))
    return table.reshape(shape).astype(result)


def rank_filter(
    name: str,
    about: Elements,
    *,
    size: list[int],
    marks: int | None,
    mode: str,
    cval: Any,
    origin: list[int],
    nan: str,
    rank: Any = None,
    percentile: Any = None,
) -> Array:
    """Define the filters of images: one element of every window, among those in a footprint."""
    along = []
    sizes = dict(zip(about.axes, size, strict=False))
    moved = dict(zip(about.axes, origin, strict=False))
    for axis, length in enumerate(about.values.shape):
        n, shift = sizes.get(axis, 1), moved.get(axis, 0)
        before = n // 2 + shift
        along.append(_reached(length, before, n - 1 - before, 1, mode if mode in PADS else None))
    footprint = footprint_of([sizes[axis] for axis in about.axes], marks)
    whole = int(footprint.sum())
    results = []
    for values, is_inside in _windows(about, along):
        values = np.where(is_inside, values, np.asarray(cval).astype(values.dtype))
        values = values.reshape(footprint.shape)[footprint]
        is_missing = values != values
        v = np.sort(values[~is_missing])
        n = len(v)
        if n == 0 or (nan == "propagate" and is_missing.any()):
            results.append(values[is_missing][0])
        elif name == "median_filter":
            results.append(v[n // 2])
        elif name == "percentile_filter":
            share = percentile % 100 if percentile < 0 else percentile
            results.append(v[-1] if share == 100 else v[int(n * share / 100.0)])
        else:
            results.append(v[int(np.rint(rank % whole * (n - 1) / max(whole - 1, 1)))])
    return np.array(results, about.values.dtype).reshape(about.values.shape)


def footprint_of(size: list[int], marks: int | None) -> Array:
    """Make the footprint of a number: about two thirds of the places, the first one always."""
    result = np.ones(size, bool)
    if marks is not None:
        result = np.random.default_rng(marks).random(size) < 0.65
        result.flat[0] = True
    return result


OF_WINDOWS = (rolling, rank_filter)
"""Definitions of an answer to all windows; others are of one slot."""


# --- Box plots ------------------------------------------------------------------------------------


def box(
    name: str,
    slot: Slot,
    dtype: Any,
    *,
    whis: Any,
    method: str,
    nan_policy: str,
    autorange: bool,
    max_fliers: int,
) -> dict[str, Any]:
    """Define a box by fractions, and by the rules of matplotlib."""
    is_missing = slot.values != slot.values
    v = slot.values[~is_missing]
    weights = None if slot.weights is None else slot.weights[~is_missing]
    n_nan = int(is_missing.sum())
    actual: dict[str, Any] = {"n_nan": n_nan, "n_left_out": slot.n_left_out}
    if not len(v) or (nan_policy == "propagate" and n_nan):
        lost = ("min", "q1", "med", "q3", "max", "mean", "std", "whislo", "whishi")
        return actual | dict.fromkeys(lost, np.nan)
    wide = v if v.dtype.kind in "iu" else v.astype("f8")

    def at(shares: list[float]) -> list[float]:
        if weights is None:
            some = oracle.expected("quantile", wide, shares, method)
            return [float(x) for x in some.tolist()]
        elements = oracle.Weighed.of(v, weights)
        return [float(oracle.weighted_of(elements, q, method, np.dtype("f8"))) for q in shares]

    q1, med, q3 = at([0.25, 0.5, 0.75])
    with np.errstate(all="ignore"):
        spread = float(np.float64(q3) - np.float64(q1))
        if spread == 0 and autorange:
            low, high = -np.inf, np.inf
        elif np.ndim(whis):
            low, high = at([x / 100 for x in whis])
        else:
            low, high = (float(x) for x in (np.float64(q1) - whis * np.float64(spread),
                         np.float64(q3) + whis * np.float64(spread)))  # fmt: skip
    floats = v.astype("f8")
    whislo = min((x for x in floats.tolist() if x >= low), default=q1)
    whishi = max((x for x in floats.tolist() if x <= high), default=q3)
    whislo, whishi = min(whislo, q1), max(whishi, q3)
    is_low, is_high = floats < whislo, floats > whishi
    w = [Fraction(1)] * len(v) if weights is None else [*map(Fraction, weights.tolist())]

    def heavy(which: Array) -> Any:
        total = sum(itertools.compress(w, which.tolist()), Fraction(0))
        return int(total) if weights is None else float(total)

    below, above = np.sort(v[is_low])[:max_fliers], np.sort(v[is_high])[::-1][:max_fliers]
    if weights is not None:
        below, above = np.unique(below), np.unique(above)[::-1]
        fliers = np.concatenate([below, above])
        actual["flier_weights"] = np.array([heavy(v == each) for each in fliers], "f8")
    actual |= {
        "n": heavy(np.ones(len(v), bool)), "n_low": heavy(is_low), "n_high": heavy(is_high),
        "min": float(v.min()), "q1": q1, "med": med, "q3": q3, "max": float(v.max()),
        "whislo": whislo, "whishi": whishi, "fliers": np.concatenate([below, above]),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        notch = 1.57 * np.float64(spread) / np.sqrt(np.float64(actual["n"]))
        actual |= {"iqr": spread, "cilo": float(med - notch), "cihi": float(med + notch)}
    if np.isfinite(floats).all():
        exact, total = [*map(Fraction, v.tolist())], sum(w, Fraction(0))
        mean = sum(map(Fraction.__mul__, exact, w), Fraction(0)) / total
        square = sum((x * x * y for x, y in zip(exact, w, strict=True)), Fraction(0)) / total
        actual |= {"mean": float(mean), "std": oracle.root_of(square - mean * mean)}
    else:
        with np.errstate(invalid="ignore"):  # of infinities of both signs
            actual |= {"mean": float(floats[np.isinf(floats)].sum()), "std": np.nan}
    return actual


Definition = Callable[..., Any]


def answer(definition: Definition, name: str, about: Elements, **how: Any) -> Any:
    """Put the definitions of all slots together, in the shape of an answer.

    Raises
    ------
    Refused
        If there is no answer to one of the slots.
    """
    if definition in OF_WINDOWS:
        return definition(name, about, **how)
    dtype = about.values.dtype
    if any(slot.n_weightless and not len(slot.values) for slot in about.slots()):
        # As NumPy refuses weights that are all 0; of integers another slot may be empty.
        raise Refused(ValueError, IndexError)
    results = [definition(name, slot, dtype, **how) for slot in about.slots()]
    if definition in (box, ecdf):
        return results
    if not results:
        (empty,) = [definition(name, Slot(np.ones(1, dtype), None, 0), dtype, **how)]
        found_shape = np.shape(empty)
        return np.empty((*found_shape, *about.shape), np.asarray(empty).dtype)
    table = np.stack([np.asarray(each) for each in results], axis=-1)
    return table.reshape((*table.shape[:-1], *about.shape))[()]
