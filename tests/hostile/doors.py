"""A row for every public function: which data it takes, how arguments are drawn, what is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from inspect import signature
from typing import Any

import dask.array as da
import numpy as np
import scipy.optimize
import xarray as xr
from matplotlib.cbook import boxplot_stats

import dask_gpuselect as ours
import dask_gpuselect.xarray  # noqa: F401 -- registers the accessors
from dask_gpuselect import distribution, neighbors, robust
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from dask_gpuselect.strategies import STRATEGIES
from tests import oracle
from tests.hostile.dice import Array, Dice, drawn_data, drawn_dtype
from tests.matrix import definitions

Arguments = dict[str, Any]


class Broken(Exception):
    """A law that does not hold."""


@dataclass(frozen=True)
class Beside:
    """An array that is passed beside the first one: in the same chunks of rows, or in its own."""

    a: Array
    chunks: Any = "along"


@dataclass(frozen=True)
class Refused:
    """That there is no answer but an error of this kind."""

    kind: type[Exception]


@dataclass(frozen=True)
class Door:
    """A public function.

    Parameters
    ----------
    ask : callable
        ``(x, **arguments) -> answer``; lazy ones are computed by the judge.
    verify : callable
        ``(found, a, **arguments)``: raises `Broken`. If there is a refusal to come, ``refusal``
        says so beforehand.
    draw : callable
        ``(dice, a) -> arguments``.
    kinds : str
        Of dtypes: b, i, f, and m for dates.
    ndim : (int, int)
    divided : int
        Axes that may have several chunks.
    loads : callable
        ``(x, **arguments)`` to how often a chunk is loaded at most.
    fit : callable
        ``(dice, a) -> a`` as the function takes them.
    how : str
        "either", "plain" or "lazy".
    sizes_known : bool
        Whether chunk sizes have to be.
    unsized : mapping
        Arguments for arrays of unknown size.
    same_bits : bool
        Whether chunks make no difference at all.
    spoils : tuple of str
        Arguments of `SPOILS` that may be made senseless; of the sorts' only where they matter.
    """

    ask: Callable[..., Any]
    verify: Callable[..., None]
    draw: Callable[[Dice, Array], Arguments]
    kinds: str = "bif"
    ndim: tuple[int, int] = (0, 4)
    divided: int = 9
    loads: Callable[..., float] = lambda x, **_: math.inf
    fit: Callable[[Dice, Array], Array] = lambda d, a: a
    refusal: Callable[..., type[Exception] | None] = lambda a, **_: None
    how: str = "either"
    sizes_known: bool = False
    unsized: Mapping[str, Any] = field(default_factory=dict)
    same_bits: bool = True
    spoils: tuple[str, ...] = ()

    @property
    def takes_masks(self) -> bool:
        """Whether masked arrays are answered: where masks are, and by bins, which ask there."""
        return self.ask is ours.quantile_bins or "where" in signature(self.ask).parameters


# --- Comparing ------------------------------------------------------------------------------------


def same(found: Any, wanted: Any, what: str = "") -> None:
    """Equal in dtype, shape and every element; all NaN are equal, and so are the two zeros."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        raise Broken(f"{what}: {found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}")
    with np.errstate(all="ignore"):
        is_same = (found == wanted) | ((found != found) & (wanted != wanted))
    if not np.all(is_same):
        i = np.argwhere(~is_same)[0]
        raise Broken(f"{what}: other values: {found[*i]!r}, not {wanted[*i]!r}, at {i.tolist()}")


def near(found: Any, wanted: Any, what: str, tolerance: float = 1e-9, scale: float = 0.0) -> None:
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    least = max(tolerance * scale, 16 * 5e-324)  # sums of denormals are rounded to these
    if not np.allclose(found, wanted, rtol=tolerance, atol=least, equal_nan=True):
        raise Broken(f"{what}: not near: {found!r} and {wanted!r}")


def holds(truth: Any, what: str) -> None:
    if not np.all(truth):
        raise Broken(what)


# --- Quantiles ------------------------------------------------------------------------------------


def drawn_axis(d: Dice, a: Array) -> Any:
    if d.chance(0.4) or not a.ndim:
        return None
    some = d.rng.permutation(a.ndim)[: d.number(1, a.ndim)].tolist()
    some = [i - a.ndim if d.chance(0.3) else i for i in some]
    return d.pick([some[0], tuple(some), some, np.int64(some[0]), some[0], tuple(some), ()])


def drawn_share(d: Dice) -> float:
    return float(d.pick([0.5, 0.25, 0.0, 1.0, 1 - 2.0**-53, 5e-324, 1 / 3, d.rng.random()]))


def drawn_q(d: Dice) -> Any:
    many = [drawn_share(d) for _ in range(d.number(0, 5))]
    one = drawn_share(d)
    return d.pick(
        [one, one, many, tuple(many), np.array(many), np.array(one), np.float64(one), [one] * 3]
        + [np.linspace(0, 1, d.number(1, 60)).tolist(), 0, 1, True, np.array([0.25, 1], "f4")]
    )


def draw_quantiles(name: str) -> Callable[[Dice, Array], Arguments]:
    def draw(d: Dice, a: Array) -> Arguments:
        arguments: Arguments = {"axis": drawn_axis(d, a), "keepdims": d.chance(0.3)}
        if oracle.takes_q(name):
            q = drawn_q(d)
            if "percentile" in name:
                q = type(q)(100 * x for x in q) if isinstance(q, list | tuple) else q * 100
            methods = [*oracle.methods_for(name, a.dtype)]
            arguments |= {"q": q, "method": d.pick([*methods, "linear"]) if a.dtype.kind in "if"
                          else d.pick(methods)}  # fmt: skip
        return arguments

    return draw


def lanes_of(a: Array, axis: Any) -> tuple[Array, tuple[int, ...]]:
    """The lanes along the last axis, and the shape with sizes of 1 for what is reduced."""
    axes = range(a.ndim) if axis is None else np.atleast_1d(np.asarray(axis, int)) % max(a.ndim, 1)
    gone = [int(i) for i in axes]
    kept = [i for i in range(a.ndim) if i not in gone]
    lanes = a.transpose([*kept, *gone]).reshape(
        *(a.shape[i] for i in kept), math.prod(a.shape[i] for i in gone)
    )
    return lanes, tuple(1 if i in gone else n for i, n in enumerate(a.shape))


def by_lane(
    a: Array, axis: Any, keepdims: bool, answer: Callable[[Array], Any], n_q: tuple[int, ...] = ()
) -> Array:
    lanes, shape = lanes_of(a, axis)
    empty = np.asarray(answer(np.ones(1, a.dtype)))
    table = np.empty((*lanes.shape[:-1], *n_q), empty.dtype)
    for place in itertools.product(*map(range, lanes.shape[:-1])):
        table[place] = answer(lanes[place])
    if n_q:
        table = np.moveaxis(table, -1, 0)
    return table.reshape((*n_q, *shape)) if keepdims else table


def with_nan(a: Array, axis: Any = None) -> Array:
    """Of the dtype in which it is told that there are no elements."""
    is_empty = lanes_of(a, axis)[0].shape[-1] == 0
    return a.astype("f8") if is_empty and a.dtype.kind in "biu" else a


def verify_quantiles(name: str) -> Callable[..., None]:
    def verify(
        found: Any, a: Array, *, axis: Any = None, keepdims: bool = False, q: Any = 0.5,
        method: str = "median", strategy: Any = None,
    ) -> None:  # fmt: skip
        n_q = np.shape(q) if oracle.takes_q(name) else ()
        answer = partial(oracle.expected, name, q=q, method=method)
        wanted = by_lane(with_nan(a, axis), axis, keepdims, answer, n_q)
        if a.dtype.kind in "iu" and method not in oracle.DISCRETE:
            # Known before it is known that there are no elements.
            wanted = wanted.astype(oracle.expected_dtype(name, a.dtype, q, method))
        same(found, wanted, "oracle")

    return verify


def refuses_empty(a: Array, *, axis: Any = None, **_: Any) -> type[Exception] | None:
    return IndexError if lanes_of(a, axis)[0].shape[-1] == 0 else None


def may_refuse_empty(a: Array, *, axis: Any = None, **_: Any) -> type[Exception] | None:
    """Integers that turn out to be none, while computing, have no NaN to say so."""
    return refuses_empty(a, axis=axis) if a.dtype.kind in "biu" else None


def loads_of_quantiles(x: da.Array, *, axis: Any = None, q: Any = 0.5, **_: Any) -> float:
    many = np.full(np.shape(q), 0.5)
    if any(n == 0 for n in x.shape):
        return math.inf
    plan = ours.explain(x, many, axis=axis)
    said = "one to two loads" if plan.kept_bytes else f"{plan.loads} loads"
    if said not in str(plan) and plan.loads != 1:
        raise Broken(f"the plan's text: {plan}")
    return int(plan.loads)


QUANTILES = {
    name: Door(
        getattr(ours, name),
        verify_quantiles(name),
        draw_quantiles(name),
        kinds="ifbm" if oracle.takes_q(name) else "ifb",
        loads=loads_of_quantiles,
        refusal=refuses_empty if name in ("quantile", "percentile") else may_refuse_empty,
        spoils=("q", "axis", "method") if oracle.takes_q(name) else ("axis",),
    )
    for name in oracle.FUNCTIONS
}


def draw_strategy(d: Dice, a: Array) -> Arguments:
    k: Any = d.number(-a.size, a.size - 1) if a.size else 0
    k = d.pick([k, [k, 0, k], np.array([k, k]), [], np.int16(0)])
    return {"k": k, "strategy": d.pick([None, None, *STRATEGIES])}


def verify_order(found: Any, a: Array, *, k: Any, strategy: Any) -> None:
    same(found, np.sort(a, axis=None)[np.asarray(k, int)], f"oracle {strategy}")


def draw_quantile_strategy(d: Dice, a: Array) -> Arguments:
    drawn = draw_quantiles("quantile")(d, a)
    return drawn | {"axis": None, "strategy": d.pick([*STRATEGIES])}


# --- Box plots ------------------------------------------------------------------------------------


def draw_box(d: Dice, a: Array) -> Arguments:
    return {
        "axis": drawn_axis(d, a),
        "whis": d.pick([1.5, 1.5, 0, 0.3, 3, np.float32(1.5), (5, 95), (0, 100), [2.5, 40], (0, 50)]
                       + [(60, 100), (50, 50), math.inf]),
        "nan_policy": d.pick(["omit", "omit", "propagate"]),
        "autorange": d.chance(0.3),
        "max_fliers": d.pick([1000, 1000, 0, 1, 7]),
        "method": d.pick(["linear"] * 5 + [*oracle.METHODS]),
    }  # fmt: skip


def verify_box(box: Any, a: Array, *, axis: Any = None, **how: Any) -> None:
    """Compare a box with its definition, and with matplotlib's where that is exact enough."""
    slot = definitions.Slot(a.ravel(), None, 0)
    for name, wanted in definitions.box("describe_boxplot", slot, a.dtype, **how).items():
        value = np.asarray(getattr(box, name))
        same(value.astype(np.asarray(wanted).dtype), wanted, name)
    v = a[a == a]
    is_shared = how["method"] == "linear" and a.dtype.kind == "f" and a.dtype.itemsize < 8
    if is_shared and v.size and np.isfinite(v).all() and box.med == box.med:
        (theirs,) = boxplot_stats(v.astype("f8"), whis=how["whis"], autorange=how["autorange"])
        for name in ("whislo", "whishi", "cilo", "cihi", "iqr"):
            near(getattr(box, name), theirs[name], f"matplotlib's {name}", 1e-12)


def verify_boxes(found: Any, a: Array, *, axis: Any = None, **how: Any) -> None:
    lanes, _ = lanes_of(a, axis)
    places = [*itertools.product(*map(range, lanes.shape[:-1]))]
    holds(len(found) == len(places), f"{len(found)} boxes, not {len(places)}")
    holds(repr(found) and found._repr_html_(), "nothing is shown")
    holds(not places or found[-1].n == found.boxes[-1].n, "the last box")
    for box, place in list(zip(found, places, strict=True))[:60]:
        verify_box(box, lanes[place], **how)


def loads_of_boxes(x: da.Array, *, axis: Any = None, **_: Any) -> float:
    lanes = x.ndim and axis is not None and len(np.atleast_1d(axis)) < x.ndim
    return int(ours.explain(x, [0.5] * 3, axis=axis).loads) + 1 if lanes else 3


def ask_groups(x: Any, labels: Any, n: int, **how: Any) -> Any:
    return ours.describe_boxplot({i: x[labels == i] for i in range(n)}, **how)


def draw_groups(d: Dice, a: Array) -> Arguments:
    n = d.number(1, 5)
    return draw_box(d, a) | {"axis": None, "n": n, "labels": Beside(d.rng.integers(0, n, len(a)))}


def verify_groups(found: Any, a: Array, *, labels: Array, n: int, **how: Any) -> None:
    for i, box in enumerate(found):
        holds(box.label == str(i), f"label {box.label}")
        verify_box(box, a[labels == i], **how)


def ask_xarray(x: Any, axis: Any, what: str) -> Any:
    names = [f"d{i}" for i in range(x.ndim)]
    table = xr.DataArray(x, dims=names)
    dims = None if axis is None else [names[i] for i in np.atleast_1d(axis)]
    if what == "boxes":
        return table.exact.describe_boxplot(dims)
    with ours.enable():
        if what == "median":
            return table.median(dims, skipna=False).data
        return table.quantile(0.25, dims, skipna=True).data


def draw_xarray(d: Dice, a: Array) -> Arguments:
    axis = drawn_axis(d, a)  # without one, xarray returns the array itself
    return {
        "axis": axis,
        "what": d.pick(
            ["boxes"] if isinstance(axis, tuple) and not axis else ["boxes", "median", "quantile"]
        ),
    }


def verify_xarray(found: Any, a: Array, *, axis: Any, what: str) -> None:
    if what == "boxes":
        defaults = {"whis": 1.5, "autorange": False, "nan_policy": "omit", "max_fliers": 1000}
        return verify_boxes(found, a, axis=axis, method="linear", **defaults)
    if lanes_of(a, axis)[0].shape[-1] and a.dtype.kind == "f":
        name = "median" if what == "median" else "nanquantile"
        q, method = (0.5, "median") if what == "median" else (np.float64(0.25), "linear")
        answer = partial(oracle.expected, name, q=q, method=method)
        wanted = by_lane(a, axis, False, answer)
        same(np.asarray(found, wanted.dtype), wanted, f"oracle {what}")
    return None


# --- Spread and distribution ----------------------------------------------------------------------


def draw_spread(name: str) -> Callable[[Dice, Array], Arguments]:
    def draw(d: Dice, a: Array) -> Arguments:
        arguments = {"axis": drawn_axis(d, a), "keepdims": d.chance(0.3)}
        arguments["scale"] = d.pick([1.0, 1, "normal", 2, np.float32(4)])
        if "iqr" in name:
            arguments["q"] = d.pick([(0.25, 0.75), [0, 1], (0.5, 0.5), np.array([0.1, 0.9])])
            arguments["method"] = d.pick(["linear", "linear", *oracle.METHODS])
        return arguments

    return draw


def verify_spread(name: str) -> Callable[..., None]:
    definition = definitions.mad if "mad" in name else definitions.iqr

    def verify(found: Any, a: Array, *, axis: Any, keepdims: bool, **how: Any) -> None:
        def one(lane: Array) -> Any:
            return definition(name, definitions.Slot(lane, None, 0), lane.dtype, **how)

        same(found, by_lane(a, axis, keepdims, one), "by definition")

    return verify


def loads_of_mad(x: da.Array, *, axis: Any = None, **_: Any) -> float:
    if axis is None or len(np.atleast_1d(axis)) == x.ndim:
        return 3
    if any(n == 0 for n in x.shape):
        return math.inf
    return max(1, 2 * int(ours.explain(x.astype("f8"), axis=axis).loads))


def draw_ecdf(d: Dice, a: Array) -> Arguments:
    values = np.unique(a[a == a].ravel()[:20]) if a.dtype.kind != "b" else a.ravel()[:2]
    return {"points": d.pick([1001, 2, 3, 17, values, values.tolist()])}


def verify_ecdf(found: Any, a: Array, *, points: Any) -> None:
    v = np.sort(a[a == a], axis=None)
    n = v.size
    holds((found.n_valid, found.n_missing) == (n, a.size - n), "numbers")
    repr(found)
    if not n:
        return holds(np.isnan(found.cdf([0.0, 1.0])), "cdf of nothing")
    p = found.points
    same(found.below, v.searchsorted(p), "below")
    same(found.upto, v.searchsorted(p, "right"), "upto")
    same(p[[0, -1]], v[[0, -1]].astype(v.dtype), "extremes")
    if np.ndim(points) == 0:
        share = np.diff(np.append(0, found.below)) - 0
        holds(found.max_error * (points - 1) <= 1 + 1e-12, f"max_error {found.max_error}")
        holds(share >= 0, "counts descend")
    else:
        missing = np.setdiff1d(np.asarray(points, v.dtype), p)
        holds(len(missing) == 0, f"points without {missing}")
    same(found.cdf(p), found.upto / n, "cdf at points")
    if v.dtype.kind != "f" or np.isfinite(v).all():
        with np.errstate(all="ignore"):
            z = np.sort(np.concatenate([p, p[:-1] / 2 + p[1:] / 2, [np.inf, -np.inf]]).astype("f8"))
        truth = np.array([sum(map(x.__ge__, v.tolist())) for x in z.tolist()]) / n if n < 300 else (
            v.astype("f8").searchsorted(z, "right") / n)  # fmt: skip
        lower, upper = found.cdf_bounds(z)
        y = found.cdf(z)
        holds(np.diff(y) >= 0, "cdf descends")
        holds((lower <= y) & (y <= upper), "cdf outside of its bounds")
        if n < 300:
            holds((lower <= truth) & (truth <= upper), "share outside of its bounds")
        holds(found.pdf(z) >= 0, f"pdf {found.pdf(z).min()}")
    shares = np.array([0.0, 1e-9, 0.1, 0.25, 0.5, 0.9, 1 - 2.0**-53, 1.0])
    low, high = found.quantile_bounds(shares)
    exact = oracle.expected("quantile", v, shares, "inverted_cdf")
    holds(((low == exact) & (exact == high)) | ((low < exact) & (exact < high)), "quantile_bounds")
    y, low, high = found.quantile(shares), np.asarray(low, "f8"), np.asarray(high, "f8")
    holds((y >= low) & (y <= high), f"quantile outside of its bounds: {y}, {low}, {high}")
    holds(y[1:] >= y[:-1], f"quantile descends: {y}")
    return None


# --- Sorting and bins -----------------------------------------------------------------------------


def draw_sort(d: Dice, a: Array) -> Arguments:
    spill = d.pick([None, None, True, False])
    chunks = d.pick([None, None, max(1, len(a) // 3), -1, "1 kiB"])
    return {"chunks": chunks, "spill": spill, "split_every": d.pick([None, None, 2, 3, 5])}


def verify_sort(found: Any, a: Array, **_: Any) -> None:
    same(found, np.sort(a), "oracle")
    if a.dtype.kind == "f":
        holds(~(np.signbit(found) & (np.asarray(found) == 0)), "negative zeros")


def verify_argsort(found: Any, a: Array, **_: Any) -> None:
    same(found, np.argsort(a, kind="stable"), "oracle")


def draw_sort_by(d: Dice, a: Array) -> Arguments:
    value = drawn_data(d, (len(a), *d.pick([(), (3,)])), drawn_dtype(d, "bifm"))
    if d.chance(0.2):
        value = np.arange(len(a)).astype(d.pick(["U3", "c16", "i4,f8", "O"]))
    return draw_sort(d, a) | {"value": Beside(value)}


def verify_sort_by(found: Any, a: Array, *, value: Array, **_: Any) -> None:
    order = np.argsort(a, kind="stable")
    same(found[0], np.sort(a), "key")
    same(found[1], value[order], "value")


def draw_digitize(d: Dice, a: Array) -> Arguments:
    bins = drawn_data(d, (d.number(0, 20),), a.dtype if d.chance(0.7) else drawn_dtype(d, "if"))
    if a.dtype.kind in "mM" or bins.dtype.kind in "mM":
        with np.errstate(invalid="ignore"):
            bins = bins.astype(a.dtype)
    bins = np.sort(bins[bins == bins])[:: d.pick([1, -1])]
    n = len(bins)
    chunks = d.pick([None, None, ((n // 2, n - n // 2),)])
    return {"bins": Beside(bins, chunks), "right": d.chance(0.5)}


def verify_digitize(found: Any, a: Array, *, bins: Array, right: bool) -> None:
    descends = len(bins) > 1 and bins[0] > bins[-1]
    edges = [b for b in bins.tolist()] if a.dtype.kind != "m" else bins
    if a.dtype.kind in "mM":
        wanted = np.digitize(a.view("i8"), bins.view("i8"), right=right)
        wanted = np.where(a != a, 0 if descends else len(bins), wanted)
        if descends:
            return None  # what is missing is told by the documentation, not by NumPy
    else:

        def place(x: Any) -> int:
            if x != x:
                return 0 if descends else len(edges)
            if descends:
                return sum(b >= x if right else b > x for b in edges)
            return sum(b < x if right else b <= x for b in edges)

        wanted = np.array([place(x) for x in a.ravel()[:400].tolist()], np.int64)
        return same(np.ravel(found)[:400], wanted, "oracle")
    return same(found, wanted, "oracle")


def verify_bins(found: Any, a: Array, *, n_bins: int, method: str) -> None:
    q = np.arange(n_bins + 1) / n_bins
    same(found, oracle.expected("nanquantile", with_nan(a), q, method), "oracle")


def verify_sorted_box(found: Any, a: Array, *, whis: float, bits: int) -> None:
    v = np.sort(a[a == a], axis=None)
    box = {
        name: found[i]
        for i, name in enumerate(
            ("n", "n_nan", "q1", "med", "q3", "iqr", "whislo", "whishi", "n_low", "n_high")
        )
    }
    holds((box["n"], box["n_nan"]) == (v.size, a.size - v.size), "n")
    if v.size:
        (wanted,) = ours.describe_boxplot(a, whis=whis)
        for name, value in box.items():
            same(float(value), float(getattr(wanted, name)), name)
        same(np.sort(found[10]), np.sort(v[v < box["whislo"]]), "fliers_low")
        same(np.sort(found[11]), np.sort(v[v > box["whishi"]]), "fliers_high")


def ask_sorted_box(x: Any, whis: float, bits: int) -> Any:
    box = describe_sorted(radix_sort(x, bits=bits), whis)
    return tuple(getattr(box, name) for name in box.__dataclass_fields__)


# --- Neighbours and fits --------------------------------------------------------------------------


def as_table(d: Dice, a: Array) -> Array:
    """Finite rows."""
    a = np.nan_to_num(a, nan=1.5, posinf=2.0, neginf=-3.0) if a.dtype.kind == "f" else a
    a = a.ravel()[: d.number(1, 600)]
    p = d.number(1, min(4, len(a))) if a.size else 1
    a = a[: len(a) // p * p].reshape(-1, p) if a.size else np.ones((3, 1), a.dtype)
    return np.ascontiguousarray(a)


def squared_distances(X: Array, Q: Array) -> list[list[Fraction]]:
    rows, queries = X.tolist(), Q.tolist()
    return [[sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(row, q, strict=True))
             for row in rows] for q in queries]  # fmt: skip


def draw_neighbors(d: Dice, a: Array) -> Arguments:
    few = a[d.rng.integers(0, len(a), d.number(1, 5))]
    queries = few if d.chance(0.5) else np.ascontiguousarray(few[::-1] + few.dtype.type(1))
    n = len(queries)
    chunks = d.pick([None, None, ((n,), a.shape[1:]), ((n // 2, n - n // 2), a.shape[1:])])
    return {"Q": Beside(queries, chunks), "k": d.number(1, min(len(a), 8))}


def verify_neighbors(found: Any, a: Array, *, Q: Array, k: int) -> None:
    distances, indices = np.asarray(found[0]), np.asarray(found[1])
    holds(distances.shape == indices.shape == (len(Q), k), f"shape {distances.shape}")
    holds(distances[:, 1:] >= distances[:, :-1], "distances descend")
    wide = (a.astype("f8"), Q.astype("f8"))
    for i, row in enumerate(squared_distances(*wide)):
        order = sorted(range(len(row)), key=lambda j: (row[j], j))
        kth = row[order[k - 1]]
        worst = max(row[j] for j in indices[i].tolist())
        # A sum of squares in float64 is off by some eps.
        holds(worst <= kth * (1 + Fraction(1, 2**48)), f"neighbours {indices[i]}, not {order[:k]}")
        holds(len(set(indices[i].tolist())) == k, "neighbours twice")
        with np.errstate(over="ignore"):
            wanted = [math.sqrt(row[j]) if 0 < row[j] < 2**1000 and row[j] > Fraction(1, 2**1000)
                      else None for j in indices[i].tolist()]  # fmt: skip
        for x, y in zip(distances[i].tolist(), wanted, strict=True):
            if y is not None:
                near(x, y, "distance", 1e-12)


def ask_estimator(x: Any, y: Any, Q: Any, k: int, weights: str, what: str) -> Any:
    make = getattr(neighbors, what)
    return make(n_neighbors=k, weights=weights).fit(x, y).predict(Q)


def draw_estimator(d: Dice, a: Array) -> Arguments:
    drawn = draw_neighbors(d, a)
    what = d.pick(["KNeighborsRegressor", "KNeighborsClassifier"])
    y = d.rng.integers(0, 3, len(a)) if "Class" in what else d.rng.normal(size=len(a))
    y = d.pick([Beside(y), Beside(y, None)])
    return drawn | {"y": y, "weights": d.pick(["uniform", "distance"]), "what": what}


def ask_others(x: Any, k: int) -> Any:
    return neighbors.NearestNeighbors(n_neighbors=k).fit(x).kneighbors()


def verify_others(found: Any, a: Array, *, k: int) -> None:
    """The rows themselves are left out."""
    distances, indices = np.asarray(found[0]), np.asarray(found[1])
    holds(distances.shape == indices.shape == (len(a), k), f"shape {distances.shape}")
    holds(indices != np.arange(len(a))[:, None], "a row is its own neighbour")
    few = slice(0, 4)
    rows = squared_distances(a.astype("f8"), a[few].astype("f8"))
    for i, row in enumerate(rows):
        kth = sorted(row[:i] + row[i + 1 :])[k - 1]
        worst = max(row[j] for j in indices[i].tolist())
        holds(worst <= kth * (1 + Fraction(1, 2**48)), f"neighbours {indices[i]} of {i}")


def verify_estimator(found: Any, a: Array, *, y: Array, Q: Array, k: int, weights: str,
                     what: str) -> None:  # fmt: skip
    _, index = neighbors.kneighbors(a, Q, k)
    near_y = y[index]
    if what == "KNeighborsRegressor":
        holds(found >= near_y.min(axis=1) - 1e-9, "mean below all neighbours")
        holds(found <= near_y.max(axis=1) + 1e-9, "mean above all neighbours")
        if weights == "uniform":
            near(found, near_y.mean(axis=1), "mean", 1e-9, 1.0)
    elif weights == "uniform":
        votes = (near_y[:, :, None] == np.arange(3)).sum(axis=1)
        same(found, votes.argmax(axis=1), "vote")


def as_design(d: Dice, a: Array) -> Array:
    p = d.number(1, 3)
    n = d.number(2 * (p + 1) + 1, 500)  # fewer rows are refused, which has a test of its own
    scale = d.pick([1.0, 1.0, 1e-160, 1e150, 1e-30, 1e8])
    return d.rng.normal(size=(n, p)) * scale + d.pick([0.0, 0.0, 1e3 * scale])


def draw_fit(d: Dice, a: Array) -> Arguments:
    beta = d.rng.normal(size=a.shape[1])
    y = a @ beta + d.pick([0.0, 5.0]) + d.pick([0, 1e-3]) * np.std(a) * d.rng.normal(size=len(a))
    bad = d.rng.random(len(a)) < 0.3
    y[bad] += d.pick([10, 1e6]) * np.std(y)
    y *= d.pick([1.0, 1.0, 1e-160, 1e140, 1e-20])
    return {
        "y": Beside(y),
        "what": d.pick(["LeastTrimmedSquares", "LeastMedianOfSquares"]),
        "coverage": d.pick([None, None, 0.6, 1.0]),
        "fit_intercept": d.chance(0.7),
        "reweight": d.chance(0.3),
    }


def ask_fit(x: Any, y: Any, what: str, **how: Any) -> Any:
    if what == "LeastMedianOfSquares" and how["coverage"] == 1.0:
        how["coverage"] = 0.5
    fit = getattr(robust, what)(n_starts=40, n_best=3, random_state=0, **how).fit(x, y)
    return fit, fit.support_, fit.predict(x)


def verify_fit(found: Any, a: Array, *, y: Array, what: str, reweight: bool, **_: Any) -> None:
    fit, support, predicted = found
    holds(np.isfinite(np.append(fit.coef_, fit.intercept_)), f"coef {fit.coef_} {fit.intercept_}")
    with np.errstate(all="ignore"):
        wanted = a @ fit.coef_ + fit.intercept_
    near(predicted, wanted, "prediction", 1e-7, float(np.abs(y).max()) + 1e-300)
    holds(np.asarray(support).shape == (len(a),), "support's shape")
    if not reweight:
        holds(np.count_nonzero(support) >= fit.n_covered_, "support smaller than covered")
        with np.errstate(all="ignore"):
            size = float(np.abs(y).max()) or 1.0
            residuals = np.sort(((y - wanted) / size) ** 2)[: fit.n_covered_]
            total = residuals.sum() if what == "LeastTrimmedSquares" else residuals[-1]
            stated = fit.objective_ / size / size
        if total > 1e-20 and np.isfinite(stated) and stated > 0:
            near(stated, total, "objective", 1e-4)


# --- Functions of plain arrays --------------------------------------------------------------------


def as_curve(d: Dice, a: Array) -> Array:
    a = np.unique(a[np.isfinite(a)].astype("f8"))
    return a if len(a) > 1 else np.array([0.0, 1.0])


def ask_rational(x: Any, y: Any, slopes: Any, extrapolate: Any) -> Any:
    return distribution.MonotoneRationalSpline(x, y, slopes, extrapolate=extrapolate)


def draw_rational(d: Dice, a: Array) -> Arguments:
    drawn = draw_spline(d, a)
    y = drawn["y"].a
    slopes = np.abs(np.nan_to_num(drawn_data(d, a.shape, np.dtype("f8")), posinf=1, neginf=1))
    return drawn | {"slopes": Beside(-slopes if y[-1] < y[0] else slopes, None)}


def draw_spline(d: Dice, a: Array) -> Arguments:
    y = drawn_data(d, a.shape, np.dtype("f8"))
    y = np.sort(np.nan_to_num(y, nan=0.5, posinf=1.0, neginf=-1.0))[:: d.pick([1, -1])]
    return {"y": Beside(y, None), "extrapolate": d.pick([True, False, "constant"])}


def verify_spline(s: Any, a: Array, *, y: Array, extrapolate: Any, slopes: Any = None) -> None:
    same(s(a), y, "at its points")
    with np.errstate(all="ignore"):
        z = np.sort(np.concatenate([a, a[:-1] / 2 + a[1:] / 2, a[:-1] * 0.9 + a[1:] * 0.1]))
    z = z[(z >= a[0]) & (z <= a[-1])]
    found = s(z)
    sign = -1 if y[-1] < y[0] else 1
    holds(np.isfinite(found), "not finite")
    holds(sign * np.diff(found) >= 0 if np.abs(found).max() < 1e307
          else sign * found[1:] >= sign * found[:-1], "not monotone")  # fmt: skip
    holds((found >= min(y[0], y[-1])) & (found <= max(y[0], y[-1])), "outside of the data")
    holds(np.isnan(s(np.array([np.nan]))), "NaN")
    rates = s(z, nu=1)
    holds(~(sign * rates < 0), f"slopes of the wrong sign: {rates}")
    back = s.inverse(found)
    holds((back >= a[0]) & (back <= a[-1]), "inverse outside of the points")
    # It may be steep: from one number to the next.
    below = sign * s(np.maximum(np.nextafter(back, -np.inf), a[0]))
    above = sign * s(np.minimum(np.nextafter(back, np.inf), a[-1]))
    slack = 1e-6 * np.abs(found) + 1e-9 * np.abs(y).max()
    holds(below / 2 <= (sign * found + slack) / 2, "inverse of larger values")
    holds(above / 2 >= (sign * found - slack) / 2, "inverse of smaller values")


def verify_isotonic(found: Any, a: Array, *, weights: Any, loss: str, increasing: bool) -> None:
    y = a.astype("f8")
    holds(np.diff(found if increasing else found[::-1]) >= 0, "does not ascend")
    if loss == "squared":
        wanted = scipy.optimize.isotonic_regression(y, weights=weights, increasing=increasing).x
        near(found, wanted, "oracle", 1e-9, float(np.abs(y).max(initial=0)))
    elif len(y) <= 12 and weights is None:
        z = y if increasing else y[::-1]
        lower = lambda part: np.sort(part)[(len(part) - 1) // 2]  # noqa: E731
        n = len(z)
        wanted = [max(min(lower(z[i : j + 1]) for j in range(k, n)) for i in range(k + 1))
                  for k in range(n)]  # fmt: skip
        same(found, np.array(wanted[:: 1 if increasing else -1], "f8"), "oracle")
    else:
        holds(np.isin(found, y), "no elements")


def draw_isotonic(d: Dice, a: Array) -> Arguments:
    weights = Beside(d.rng.random(len(a)) + 0.01, None) if d.chance(0.4) else None
    loss = d.pick(["squared", "absolute"])
    return {"weights": weights, "loss": loss, "increasing": d.chance(0.6)}


def as_sequence(d: Dice, a: Array) -> Array:
    a = a.ravel()[: d.pick([12, 12, 400])]
    return np.clip(np.nan_to_num(a.astype("f8"), nan=0.5, posinf=1.0, neginf=-1.0), -1e300, 1e300)


DOORS: Mapping[str, Door] = {
    **QUANTILES,
    "quantile by strategy": Door(ours.quantile, verify_quantiles("quantile"),
                                 draw_quantile_strategy, refusal=refuses_empty, kinds="ifm",
                                 spoils=("q", "strategy")),
    "order_statistic": Door(ours.order_statistic, verify_order, draw_strategy, kinds="bifm",
                            refusal=lambda a, k, **_: IndexError if np.size(k) and not a.size
                            else None, unsized={"k": 0}, spoils=("k", "strategy")),
    "describe_boxplot": Door(ours.describe_boxplot, verify_boxes, draw_box, kinds="if",
                             loads=loads_of_boxes,
                             spoils=("axis", "method", "whis", "max_fliers", "nan_policy",
                                     "labels")),
    "boxes of groups": Door(ask_groups, verify_groups, draw_groups, kinds="if", ndim=(1, 1),
                            loads=lambda x, **_: 3),
    "xarray": Door(ask_xarray, verify_xarray, draw_xarray, kinds="if", sizes_known=True,
                   how="lazy"),
    **{name: Door(getattr(robust, name), verify_spread(name), draw_spread(name),
                  kinds="ifb" if "mad" in name else "if",
                  loads=loads_of_mad if "mad" in name else loads_of_quantiles,
                  refusal=refuses_empty if name == "iqr" else (lambda a, **_: None),
                  spoils=("axis", "scale"))
       for name in ("mad", "nanmad", "iqr", "naniqr")},
    "ecdf": Door(distribution.ecdf, verify_ecdf, draw_ecdf,
                 loads=lambda x, points: 2 if np.ndim(points) == 0 else 1, spoils=("points",)),
    "sort": Door(ours.sort, verify_sort, draw_sort, kinds="bifm", ndim=(1, 1),
                 loads=lambda x, **_: 3, unsized={"chunks": None},
                 spoils=("chunks", "split_every", "spill")),
    "argsort": Door(ours.argsort, verify_argsort, draw_sort, kinds="bifm", ndim=(1, 1),
                    loads=lambda x, **_: 3, unsized={"chunks": None},
                    spoils=("chunks", "split_every")),
    "sort with a value": Door(lambda x, value, **how: ours.sort_by(x, value, **how), verify_sort_by,
                    draw_sort_by, kinds="bifm", ndim=(1, 1), loads=lambda x, **_: 3,
                            unsized={"chunks": None}),
    "digitize": Door(ours.digitize, verify_digitize, draw_digitize, kinds="bifm",
                     loads=lambda x, **_: 1, spoils=("bins",)),
    "quantile_bins": Door(ours.quantile_bins, verify_bins,
                          lambda d, a: {"n_bins": d.number(1, 30), "method": d.pick(
                              ["linear", "lower"] if a.dtype.kind in "if" else ["lower"])},
                          kinds="ifm", loads=lambda x, **_: 2, refusal=may_refuse_empty,
                          spoils=("n_bins", "method")),
    "radix_sort": Door(radix_sort, lambda f, a, bits: verify_sort(f, a.ravel()),
                       lambda d, a: {"bits": d.pick([16, 16, 11])}, kinds="bifm",
                       ndim=(0, 1), how="lazy",
                       loads=lambda x, **_: 1, spoils=("bits",)),
    "describe_sorted": Door(ask_sorted_box, verify_sorted_box,
                            lambda d, a: {"whis": d.pick([1.5, 0, 0.3]), "bits": 16}, kinds="if",
                            ndim=(1, 1), how="lazy"),
    "kneighbors": Door(neighbors.kneighbors, verify_neighbors, draw_neighbors, kinds="ifb",
                       fit=as_table, divided=1, ndim=(1, 2), loads=lambda x, **_: 1,
                       spoils=("k",)),
    "neighbours of rows": Door(ask_others, verify_others,
                               lambda d, a: {"k": d.number(1, min(len(a) - 1, 5))}, kinds="if",
                               fit=lambda d, a: np.repeat(as_table(d, a), 2, axis=0), divided=1,
                               ndim=(1, 2), loads=lambda x, **_: 2, sizes_known=True),
    "neighbour estimators": Door(ask_estimator, verify_estimator, draw_estimator, kinds="if",
                                 fit=as_table, divided=1, ndim=(1, 2)),
    "robust fits": Door(ask_fit, verify_fit, draw_fit, kinds="f", fit=as_design, divided=1,
                        ndim=(1, 1), same_bits=False, spoils=("coverage",)),
    "spline": Door(distribution.MonotoneQuadraticSpline, verify_spline, draw_spline, kinds="f",
                   ndim=(1, 1), fit=as_curve, how="plain"),
    "rational spline": Door(ask_rational, verify_spline, draw_rational, kinds="f", ndim=(1, 1),
                            fit=as_curve, how="plain"),
    "noisy shares": Door(
        lambda x, shares: distribution.EstimatedDistribution.from_noisy(x, shares),
        lambda f, a, shares: (holds(np.diff(f.shares) >= 0, "shares descend"),
                              same(f.cdf(a), f.shares, "cdf at points"),
                              holds(np.diff(f.cdf(np.linspace(a[0] / 2, a[-1] / 2) * 2)[1:-1]) >= 0,
                                    "cdf descends"))[0],
        lambda d, a: {"shares": Beside(np.sort(d.rng.random(len(a))) + 0.1 * d.rng.random(), None)},
        kinds="f", ndim=(1, 1), fit=as_curve, how="plain"),
    "isotonic_regression": Door(distribution.isotonic_regression, verify_isotonic, draw_isotonic,
                                kinds="if", ndim=(1, 1), fit=as_sequence, how="plain",
                                spoils=("loss",)),
}  # fmt: skip

SPOILS: Mapping[str, tuple[Any, ...]] = {
    "q": (1e9, -0.1, math.nan, math.inf, "a", None, 1j, [[2.5]], [0.5, math.nan], [None], object(),
          da.ones(3), [da.ones(()), 0.5], np.timedelta64(1), {}, "0.5", np.ma.masked),
    "axis": (99, -99, "0", 0.5, (0, 99), [0.0], object(), 1j, math.nan, "ab", (None,)),
    "method": ("Linear", None, 7, b"linear", ["linear"], {}, object(), math.nan),
    "k": (10**9, -(10**9), 0.5, "1", None, [[0]], math.nan, 2**70, [0, 2**70], 1j, object(), {}),
    "whis": (-1, math.nan, (5,), (95, 5), (0, 101), "a", None, (math.nan, 5), [1, 2, 3], 1j, {},
             object(), "15", (None, 5), [[1, 2]]),
    "max_fliers": (-1, 1.5, "3", None, math.nan, math.inf, 1j, [1], object()),
    "nan_policy": ("raise", None, 0, [], {}, math.nan),
    "labels": (["a"] * 99, 5, object(), math.nan),
    "scale": (0, -1, math.nan, math.inf, "norm", None, [1.0, 2.0], 1j, object(), {}, 1e400),
    "points": (1, 0, -5, 0.5, math.nan, "a", None, [math.nan], [[1]], [None], ["a"], 1j, object(),
               {}, [1j], da.ones(3)),
    "n_bins": (0, -1, 2.5, "4", None, math.nan, [3], object(), 1j),
    "bins": ([[1]], ["a"], [math.nan], [1, 0, 2], None, 5, [1j], object(), {}, "a", [None]),
    "strategy": ("nope", 5, "", [], object(), {}, math.nan),
    "chunks": (0, "abc", (1, 1, 999_999), 0.5, ((1,), (2,)), object(), 1j, math.nan),
    "split_every": (1, 0, -1, 0.5, "a", {0: 1}, math.nan, [2], object(), 1j),
    "spill": ("/nonexistent/folder", 5, 0.5, object(), ["a"]),
    "bits": (0, 17, -1, 2.5, "8", None, math.nan, object()),
    "coverage": (0.2, 1.5, math.nan, "a", 1j, [0.5], object()),
    "loss": ("huber", None, 5, [], {}),
}  # fmt: skip
"""By argument, what makes no sense as it: each must be refused by an error raised on purpose."""
