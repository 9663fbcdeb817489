"""Groups of all elements: two loads, brackets of every group at once, labels that need not be known
before."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, describe_boxplot, median, nanquantile, quantile
from dask_gpuselect.engine import plans
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, mad
from tests.backends import CUPY, Backend
from tests.data import normal, uniform
from tests.sources import Source, changing

pytestmark = pytest.mark.any_dask

# Columns that fit, so that one load is enough; parts of several chunks; each chunk by itself, and
# cuts in several places.
PLANS: dict[str, dict[str, str]] = {
    "one load": {},
    "parts": {"dask_gpuselect.column-limit": "20 kB"},
    "roots": {"dask_gpuselect.column-limit": "8 kB", "dask_gpuselect.root-limit": "100 kB"},
}
N = 5000
DTYPES = ["f8", "f4", "f2", "i1", "u2", "u8", "?", "M8[s]", "m8[D]", ">f8"]


def values(dtype: str = "f8", n: int = N) -> NDArray[Any]:
    found = 1000 * normal(n)
    if np.dtype(dtype).kind in "ui":
        info = np.iinfo(dtype)
        found = np.clip(found, max(info.min, -120), min(info.max, 120)).round()
    return (
        (found > 0)
        if dtype == "?"
        else found.astype("i8" if dtype[0] in "Mm" else dtype).astype(dtype)
    )


def labels(n_groups: int, n: int = N) -> NDArray[np.int64]:
    """Negative ones among them, and in no order."""
    return np.floor(uniform(n)[::-1] * n_groups).astype(np.int64) - 3


def alone(a: NDArray[Any], by: NDArray[Any], ask: Callable[..., Any]) -> NDArray[Any]:
    """The answer about each group by itself."""
    return np.stack([np.asarray(ask(a[by == each])) for each in np.unique(by)], axis=-1)


@pytest.mark.few(8)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_group_is_as_alone(dtype: str, plan: str) -> None:
    a, by = values(dtype), labels(40)
    x = da.from_array(a, chunks=611)
    method = "lower" if a.dtype.kind in "Mmb" else "linear"
    q = [0.0, 0.25, 0.5, 1.0]
    wanted = alone(a, by, lambda some: quantile(some, q, method=method))
    with dask.config.set(PLANS[plan]):
        for known in (by, da.from_array(by, chunks=777)):
            for groups in (None, np.unique(by)):
                found = groupby(x, known, groups=groups).quantile(q, method=method)
                assert found.dtype == wanted.dtype
                np.testing.assert_array_equal(found.compute(), wanted)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("groups", [None, [7, -3, 99, 0]])
def test_all_questions(plan: str, groups: list[int] | None) -> None:
    """Medians of what is not NaN, deviations, ranges, counts and boxes."""
    a, by = values(), labels(12)
    a[::50] = np.nan
    x, lazy = da.from_array(a, chunks=611), da.from_array(by, chunks=500)
    names = np.unique(by) if groups is None else np.array(groups)
    members = [a[(by == each) & ~np.isnan(a)] for each in names]
    with dask.config.set(PLANS[plan]):
        grouped = groupby(x, lazy, groups=groups)
        asked = (
            grouped.groups,
            grouped.nanquantile([0.1, 0.5]),
            grouped.mad(where=~np.isnan(a)),
            grouped.iqr(where=~np.isnan(a)),
            grouped.count(),
            grouped.describe_boxplot(),
        )
        assert grouped.count().dtype == np.int64
        found = _without_warnings(lambda: dask.compute(*asked, scheduler="sync"))
    told, quantiles, mads, ranges, counts, boxes = found
    np.testing.assert_array_equal(told, names)
    for i, some in enumerate(members):
        assert counts[i] == len(some) == boxes[i].n
        if len(some):
            np.testing.assert_array_equal(quantiles[:, i], np.quantile(some, [0.1, 0.5]))
            assert mads[i] == mad(some)
            assert ranges[i] == iqr(some)
            box = describe_boxplot(some)[0]
            assert (boxes[i].med, boxes[i].std, boxes[i].n_low) == (box.med, box.std, box.n_low)
        else:
            assert np.isnan([*quantiles[:, i], mads[i], ranges[i]]).all()


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data())
def test_any_chunks_any_groups(draw: st.DataObject) -> None:
    """However elements, ties and groups fall on chunks."""
    n = draw.draw(st.integers(1, 300))
    a = np.array(draw.draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), np.float32)
    by = np.array(draw.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    chunks = draw.draw(st.integers(1, n)), draw.draw(st.integers(1, n))
    x, lazy = da.from_array(a, chunks=chunks[0]), da.from_array(by, chunks=chunks[1])
    limits = {"column-limit": draw.draw(st.integers(1, 2000)), "root-limit": 1000}
    q = draw.draw(st.lists(st.floats(0, 1), min_size=1, max_size=20))
    with dask.config.set({f"dask_gpuselect.{name}": each for name, each in limits.items()}):
        found = groupby(x, lazy).quantile(q), groupby(x, lazy, groups=range(11)).nanquantile(q)
    with np.errstate(all="ignore"):
        discovered, known = _without_warnings(lambda: dask.compute(*found, scheduler="sync"))
    names = np.unique(by)
    wanted = alone(a, by, lambda some: quantile(some, q))
    np.testing.assert_array_equal(discovered, wanted)
    np.testing.assert_array_equal(known[:, names], wanted)
    assert np.isnan(np.delete(known, names, axis=1)).all()


def _without_warnings(ask: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return ask()


@pytest.mark.parametrize("n_groups", [1, 18, 3000])
def test_loads_of_data_and_labels(n_groups: int) -> None:
    """Two of both, whatever the number of groups, if nothing is kept; one more of the labels for
    `groups`."""
    source, by = Source((20_000,)), Source((20_000,))
    x, lazy = source.lazy(1500), (by.lazy(1500) * n_groups).astype(np.int32)
    with dask.config.set(PLANS["parts"] | {"dask_gpuselect.keep-limit": 0}):
        for groups in (None, np.arange(n_groups)):
            grouped = groupby(x, lazy, groups=groups)
            asked = grouped.nanquantile([0.1, 0.5, 0.9]), grouped.count()
            assert not source.loads
            _without_warnings(asked[0].compute)
            assert set(source.loads.values()) == set(by.loads.values()) == {2}
            source.counts.clear()
            by.counts.clear()
            asked[1].compute()
            assert set(source.loads.values()) == {2}
            source.counts.clear()
            by.counts.clear()
        groupby(x, lazy).groups.compute()
        assert not source.loads
        assert set(by.loads.values()) == {1}


def test_one_group_with_nearly_all() -> None:
    a, by = values(n=40_000), np.where(uniform(40_000) < 0.9, 7, labels(2000, 40_000))
    with dask.config.set(PLANS["roots"]):
        found = groupby(da.from_array(a, chunks=3000), da.from_array(by, chunks=3000)).median()
        np.testing.assert_array_equal(found.compute(), alone(a, by, np.median))


def test_a_device_takes_in_one_task_what_fits(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of NumPy chunks threads take parts, with weights and without."""
    monkeypatch.setattr(plans, "ONE_TASK", 20_000)
    x, by = backend.mapped(da.from_array(values(), chunks=611)), labels(5)
    weights = backend.mapped(da.ones(N, chunks=611))
    for how, in_parts in (({}, ("groups", 2)), ({"weights": weights}, ("passes", 3))):
        plan = groupby(x, by).explain(**how)
        assert (plan.name, plan.loads) == (("column", 1) if backend is CUPY else in_parts)


def test_many_groups_have_several_roots() -> None:
    """No task holds the cuts of all groups, and the answer is that of one place."""
    a, by = values(n=40_000), labels(2000, 40_000) + 3
    x, lazy = da.from_array(a, chunks=3000), da.from_array(by, chunks=3000)
    answers = []
    for limit in ("1 GiB", "1 MB", "100 kB"):
        how = {"dask_gpuselect.column-limit": "30 kB", "dask_gpuselect.root-limit": limit}
        with dask.config.set(how):
            grouped = groupby(x, lazy, groups=np.arange(2000))
            plan = grouped.explain([0.2, 0.8])
            assert plan.name == "groups"
            assert plan.loads == 2
            assert plan.gathered_bytes <= 1.01 * dask.utils.parse_bytes(limit)
            answers.append(grouped.quantile([0.2, 0.8]).compute())
    for each in answers[1:]:
        np.testing.assert_array_equal(each, answers[0])
    np.testing.assert_array_equal(
        answers[0], alone(a, by, lambda some: np.quantile(some, [0.2, 0.8]))
    )


def test_what_gathers_is_what_explain_says() -> None:
    """The cuts of all groups that come to one place take no more than that."""
    a, by = values(n=40_000), labels(500, 40_000) + 3
    sizes = []

    def noted(reports: Any, n_groups: int, ranks: Any) -> Any:
        sizes.append(sum(report.__sizeof__() for report in reports))
        return find(reports, n_groups, ranks)

    from dask_gpuselect.engine import group_elements

    find = group_elements.find_group_brackets
    with dask.config.set(PLANS["parts"]), pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_elements, "find_group_brackets", noted)
        grouped = groupby(da.from_array(a, chunks=3000), by)
        grouped.median().compute(scheduler="sync")
        assert 0 < sum(sizes) <= grouped.explain().gathered_bytes


@pytest.mark.few(2)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "u2", "?"])
def test_any_kind_of_array(backend: Backend, dtype: str, plan: str) -> None:
    """What NumPy chunks answer: lazily and at once, by labels of either kind, with masks."""
    a, by, keeps = values(dtype), labels(40), uniform(N) < 0.8
    if a.dtype.kind == "f":
        a[::50] = np.nan
    how: dict[str, Any] = {"method": "lower"} if dtype == "?" else {}

    def answers(x: Any, by: Any, where: Any, groups: Any = None) -> list[Any]:
        grouped = groupby(x, by, groups=groups)
        found = [grouped.quantile([0.2, 0.5], **how), grouped.count()]
        found.append(grouped.nanquantile(0.3, where=where, **how))
        if dtype[0] == "f" and groups is not None:
            found.append(grouped.mad(where=where))
        return found

    x, lazy, mask = (backend.lazy(each, 611) for each in (a, by, keeps))
    held = backend.asarray(a), backend.asarray(by), backend.asarray(keeps)
    with dask.config.set(PLANS[plan]):
        for groups in (None, [7, -3, 99, 0] if dtype[0] == "f" else [7, -3, 0]):
            wanted = _without_warnings(lambda g=groups: answers(a, by, keeps, g))
            for given in (
                lambda g: answers(*held, g),
                lambda g: answers(held[0], by, keeps, g),
                lambda g: dask.compute(*answers(x, lazy, mask, g)),
                lambda g: dask.compute(*answers(x, by, keeps, g)),
                lambda g: dask.compute(*answers(x, held[1], held[2], g)),
            ):
                found = _without_warnings(lambda ask=given, g=groups: ask(g))
                for ours, right in zip(found, wanted, strict=True):
                    assert ours.dtype == right.dtype
                    np.testing.assert_array_equal(backend.to_numpy(ours), right)


def test_boxes_of_any_kind_of_array(backend: Backend) -> None:
    a, by = values(), labels(12)
    wanted = groupby(a, by).describe_boxplot()
    for plan in PLANS.values():
        with dask.config.set(plan):
            lazy = groupby(backend.lazy(a, 611), backend.lazy(by, 500)).describe_boxplot()
            boxes = lazy.compute()
        for ours, right in zip(boxes, wanted, strict=True):
            np.testing.assert_equal(ours.to_dict(), right.to_dict())


# --- Labels ---------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("plan", PLANS)
def test_labels_of_all_kinds(plan: str) -> None:
    a, numbers = values(), labels(6) + 3
    kinds: dict[str, NDArray[Any]] = {
        "strings": np.array(["b", "a", "dd", "ccc", "e", "f"])[numbers],
        "bytes": np.array([b"b", b"a", b"dd", b"ccc", b"e", b"f"])[numbers],
        "dates": np.array("2020-01-01", "M8[D]") + numbers * 400,
        "bools": numbers > 2,
        "floats": np.where(numbers == 2, np.nan, numbers * 10.0),
        "far apart": (numbers - 3) * (2**62 // 3),
        "uint64": numbers.astype(np.uint64) * np.uint64(2**61),
        "uint8": (numbers * 50).astype(np.uint8),
    }
    x = da.from_array(a, chunks=611)
    with dask.config.set(PLANS[plan]):
        for name, by in kinds.items():
            names = np.unique(by[by == by])
            wanted = [np.median(a[by == each]) for each in names]
            for given_labels in (by, da.from_array(by, chunks=900)):
                grouped = groupby(x, given_labels)
                told = grouped.groups
                np.testing.assert_array_equal(told if given_labels is by else told.compute(), names)
                np.testing.assert_array_equal(grouped.median().compute(), wanted, err_msg=name)
            some = groupby(
                x, da.from_array(by, chunks=900), groups=names[[2, 0] if len(names) > 2 else [1]]
            )
            np.testing.assert_array_equal(
                some.median().compute(), [wanted[2], wanted[0]] if len(names) > 2 else [wanted[1]]
            )


def test_several_kinds_of_lazy_labels() -> None:
    """The combinations that there are, as of labels in memory."""
    a = values(n=3000).reshape(50, 60)
    rows, cells = np.floor(uniform(50) * 4).astype(int)[:, None], labels(5, 3000).reshape(50, 60)
    x = da.from_array(a, chunks=(20, 13))
    lazy = da.from_array(rows, chunks=(7, 1)), da.from_array(cells, chunks=(50, 9))
    known, found = groupby(x, (rows, cells)), groupby(x, lazy)
    with dask.config.set(PLANS["roots"]):
        names, medians = dask.compute(found.groups, found.median())
        assert names.tolist() == known.groups
        np.testing.assert_array_equal(medians, known.median().compute())
        some = groupby(x, lazy, groups=[(3, -3), (9, 9), (0, 1)])
        with pytest.warns(RuntimeWarning):
            found_some = some.nanmedian().compute()
    assert np.isnan(found_some[1])
    for i, (row, cell) in enumerate([(3, -3), (9, 9), (0, 1)]):
        if i != 1:
            assert found_some[i] == np.median(a[(rows == row) & (cells == cell)])


def test_fractions_are_told_while_computing() -> None:
    by = da.from_array(np.arange(10) / 4, chunks=5)
    with pytest.raises(ValueError, match="floats with fractions"):
        groupby(da.arange(10, chunks=5), by).median().compute(scheduler="sync")
    found = groupby(da.arange(10, chunks=5), by, groups=[0.25, 1.0]).median()
    np.testing.assert_array_equal(found.compute(), [1, 4])


# --- Companions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS)
def test_masks_and_nodata(plan: str) -> None:
    a, by, keeps = values("i2"), labels(9), uniform(N) < 0.7
    x, lazy = da.from_array(a, chunks=611), da.from_array(by, chunks=1000)
    kept = keeps & (a != 0) & (a != 5)
    wanted = [np.median(a[kept & (by == each)]) for each in np.unique(by)]
    with dask.config.set(PLANS[plan]):
        for where in (keeps, da.from_array(keeps, chunks=400)):
            found = groupby(x, lazy).median(where=where, nodata=[0, 5]).compute()
            np.testing.assert_array_equal(found, wanted)
        masked = da.ma.masked_array(x, mask=da.from_array(~kept, chunks=611))
        found = groupby(masked, lazy).median().compute()
        np.testing.assert_array_equal(found, wanted)
        counts = groupby(x, lazy, groups=np.unique(by)).count(where=keeps).compute()
        np.testing.assert_array_equal(counts, [(keeps & (by == e)).sum() for e in np.unique(by)])


def test_missing_dates() -> None:
    a, by = values("M8[s]"), labels(4)
    a[::7] = "NaT"
    with dask.config.set(PLANS["parts"]):
        grouped = groupby(da.from_array(a, chunks=611), da.from_array(by, chunks=611))
        every, valid = dask.compute(
            grouped.quantile(0.5, method="lower"), grouped.nanquantile(0.5, method="lower")
        )
        mixed, medians = dask.compute(grouped.nanquantile(0.7), grouped.nanmedian())
        counts = grouped.count().compute()
    assert np.isnat(every).all()
    some = a[~np.isnat(a)], by[~np.isnat(a)]
    np.testing.assert_array_equal(
        valid, alone(*some, lambda s: nanquantile(s, 0.5, method="lower"))
    )
    np.testing.assert_array_equal(mixed, alone(*some, lambda s: np.quantile(s, 0.7)))
    np.testing.assert_array_equal(
        medians, alone(*some, lambda s: np.median(s.view("m8[s]")).view("M8[s]"))
    )
    np.testing.assert_array_equal(counts, alone(*some, len))


def test_weights() -> None:
    """In passes of known groups; others have to fit one task, or there is an error."""
    a, by, weights = values(), labels(5), np.floor(uniform(N) * 4).astype(int)
    x, lazy = da.from_array(a, chunks=611), da.from_array(by, chunks=611)
    how: dict[str, Any] = {"weights": weights, "method": "inverted_cdf"}
    with dask.config.set(PLANS["parts"]):
        found = groupby(x, lazy, groups=np.unique(by)).quantile(0.3, **how).compute()
        with pytest.raises(ValueError, match="makes passes possible"):
            groupby(x, lazy).quantile(0.3, **how)
    np.testing.assert_array_equal(groupby(x, lazy).quantile(0.3, **how).compute(), found)
    repeated = np.repeat(a, weights), np.repeat(by, weights)
    np.testing.assert_array_equal(
        found, alone(*repeated, lambda some: np.quantile(some, 0.3, method="inverted_cdf"))
    )


# --- Chunks ---------------------------------------------------------------------------------------


def test_unknown_sizes() -> None:
    a, by = values(), labels(6)
    x, lazy = da.from_array(a, chunks=611), da.from_array(by, chunks=611)
    some, of_some = x[x > 0], lazy[x > 0]
    found = groupby(some, of_some)
    assert np.isnan(found.median().shape[0])
    assert found.explain().task_bytes == -1
    np.testing.assert_array_equal(found.median().compute(), alone(a[a > 0], by[a > 0], np.median))
    np.testing.assert_array_equal(found.groups.compute(), np.unique(by[a > 0]))


def test_empty_chunks_and_groups_in_few() -> None:
    a, by = values(), np.arange(N) // 100
    x = da.from_array(a, chunks=((0, 700, 0, 0, 4300),))
    with dask.config.set(PLANS["roots"]):
        found = groupby(x, da.from_array(by, chunks=50)).median().compute()
    np.testing.assert_array_equal(found, alone(a, by, np.median))


@pytest.mark.parametrize("ask", [lambda g: g.median(), lambda g: g.describe_boxplot()])
def test_a_changing_source(tmp_path: Path, ask: Callable[[Any], Any]) -> None:
    def change(some: NDArray[Any], load: int) -> NDArray[Any]:
        return some[::-1] if load == 2 else some

    x = changing(change, directory=tmp_path)
    by = da.from_array(np.arange(6000) % 7, chunks=1000)
    by = da.map_blocks(lambda block: block, by, chunks=((np.nan,) * 6,), dtype=by.dtype)
    with pytest.raises(ChunksChangedError, match=r"chunk \(0, 3\)|chunk \(3"):
        ask(groupby(x, by, groups=range(7))).compute(scheduler="sync")


def test_at_once() -> None:
    """Plain arrays are answered in kind, as lazy ones are."""
    a, by = values(), labels(30)
    grouped = groupby(a, by)
    found = grouped.quantile([0.3, 0.6])
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, alone(a, by, lambda some: np.quantile(some, [0.3, 0.6])))
    assert groupby([1.0, 2.0, 4.0], ["a", "b", "a"]).median().tolist() == [2.5, 2.0]


@pytest.mark.parametrize("where", [None, "mask"])
def test_labels_that_differ_between_lanes(where: str | None) -> None:
    a, by = values(n=3000).reshape(60, 50), labels(4, 3000).reshape(60, 50)
    keeps = uniform(3000).reshape(60, 50) < 0.8 if where else np.ones((60, 50), bool)
    how = {"where": keeps} if where else {}
    names = np.unique(by)
    wanted = np.array(
        [[median(a[(by[:, j] == each) & keeps[:, j], j]) for j in range(50)] for each in names]
    )
    x = da.from_array(a, chunks=(17, 20))
    for given_labels in (by, da.from_array(by, chunks=(60, 7))):
        for limit in ("1 GiB", "9 kB"):
            with dask.config.set({"dask_gpuselect.column-limit": limit}):
                found = groupby(x, given_labels, 0, groups=names).median(**how).compute()
                np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(groupby(a, by, 0).median(**how), wanted)
