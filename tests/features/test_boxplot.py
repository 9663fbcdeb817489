"""`describe_boxplot` against matplotlib's statistics, and what it promises of loads and chunks."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import is_dask_collection, tokenize
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.cbook import boxplot_stats
from numpy.typing import NDArray

from dask_gpuselect import Box, Boxplot, describe_boxplot, kernels
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.engine import pilot
from dask_gpuselect.kernels.reference.selection import valid_in
from dask_gpuselect.maths import boxes
from dask_gpuselect.maths.boxes import Rule, rungs_of, values_inside
from tests.data import FLOATS, INTEGERS, MISSING, cluster_at_the_fence, make, normal, valid
from tests.sources import Source
from tests.spies import noted

KEYS = ("iqr", "cilo", "cihi", "whislo", "whishi", "q1", "med", "q3")


def assert_box(
    box: Box, a: NDArray[Any], whis: Any = 1.5, *, autorange: bool = False, most: int = 1000
) -> None:
    """As matplotlib, of numbers that NumPy interpolates right."""
    v = valid(a)
    (expected,) = boxplot_stats(v.astype(np.float64), whis=whis, autorange=autorange)
    assert (box.n, box.n_nan) == (v.size, a.size - v.size)
    np.testing.assert_allclose(box.mean, expected["mean"], rtol=1e-12, atol=1e-300)
    for key in KEYS:
        np.testing.assert_array_equal(float(getattr(box, key)), float(expected[key]), err_msg=key)
    fliers = expected["fliers"]
    low = np.sort(fliers[fliers < expected["whislo"]])
    high = np.sort(fliers[fliers > expected["whishi"]])[::-1]
    assert (box.n_low, box.n_high) == (len(low), len(high))
    np.testing.assert_array_equal(box.fliers, np.concatenate([low[:most], high[:most]]))
    assert box.fliers.dtype == a.dtype
    assert (box.min, box.max) == (v.min(), v.max())


PERCENTILES = st.one_of(st.sampled_from([0, 25, 50, 75, 100]), st.floats(0, 100))


@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 2.0]), min_size=1),
    whis=st.tuples(PERCENTILES, PERCENTILES).map(sorted) | st.sampled_from([1.5, 0.3, 0]),
    autorange=st.booleans(),
)
def test_as_matplotlib(values: list[float], whis: Any, autorange: bool) -> None:
    """Every field, whatever the whiskers."""
    a = np.array(values)
    arguments: Any = {"whis": whis, "autorange": autorange}
    lazy = describe_boxplot(da.from_array(a, chunks=7), **arguments).compute(scheduler="sync")
    lanes = describe_boxplot(a[:, None], 0, **arguments)
    for box in (*describe_boxplot(a, **arguments), *lazy, *lanes):
        assert_box(box, a, whis, autorange=autorange)


# --- Loads ----------------------------------------------------------------------------------------


class Shaped(Source):
    """Elements by a function of their hashes."""

    def __init__(self, n: int, shape: Any) -> None:
        super().__init__((n,))
        self.of = shape

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return *super().__dask_tokenize__(), tokenize(self.of)

    def values(self, index: Any) -> NDArray[Any]:
        return np.asarray(self.of(super().values(index)))


SHAPES = {
    "ordinary": lambda u: np.exp(u),
    "no range": lambda u: np.where(u < 0.2, u, 0.5),
    "fliers below": lambda u: np.where(u < 0.1, -1000 * u - 5, u),
    "all fliers above": lambda u: np.where(u < 0.76, 1.0, 10 + u),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("nothing_kept")
def test_two_loads_and_a_third_where_it_is_needed() -> None:
    """By the array alone whose fence lies in a cluster."""
    sources = {name: Shaped(60_000, shape) for name, shape in SHAPES.items()}
    sources["at the fence"] = Shaped(200_000, cluster_at_the_fence)
    together = describe_boxplot({name: s.lazy(7000) for name, s in sources.items()}, max_fliers=100)
    for box, (name, source) in zip(together.compute(), sources.items(), strict=True):
        assert set(source.loads.values()) == {3 if name == "at the fence" else 2}
        assert_box(box, source.values((slice(None),)), most=100)


# --- Data in memory -------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_one_read_of_data_in_memory(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess that is proven by the counts, or a miss: then the way of lazy data."""
    missed: list[Any] = []
    names = (FLOATS | MISSING) if dtype[0] == "f" else INTEGERS
    rules = ((1.5, False), ((5, 95), True))
    for i, name in enumerate(names):
        a = make(name, dtype, 40_000)
        if not len(valid(a)):
            continue
        for whis, autorange in rules if i < 4 else rules[i % 2 :][:1]:
            arguments: dict[str, Any] = {"whis": whis, "autorange": autorange, "max_fliers": 30}
            wanted = describe_boxplot(a, **arguments)
            with monkeypatch.context() as patch:
                patch.setattr(pilot, "PILOT_WORTH", 2000)
                patch.setattr(pilot, "PILOT_SIZE", 3000)
                noted(patch, kernels, "cuts", lambda *_, **__: None, missed)
                resident = describe_boxplot(da.from_array(a, chunks=10_000), **arguments)
                assert any("boxplot-guess" in layer for layer in resident.__dask_graph__().layers)
                lazily = resident.compute(scheduler="sync")
                for actual in (describe_boxplot(a, **arguments), lazily):
                    np.testing.assert_equal(actual[0].to_dict(), wanted[0].to_dict())
    assert len(missed) < 4 * len(names)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 2000)
    monkeypatch.setattr(boxes, "PILOT_SIGMA", -3)  # brackets that hold nothing
    a = normal(40_000).astype(dtype)
    assert_box(describe_boxplot(da.from_array(a, chunks=10_000))[0], a)


# --- The result -----------------------------------------------------------------------------------


@pytest.fixture
def lazy() -> Boxplot:
    x = da.from_array(normal(3000), chunks=700)
    return describe_boxplot({"a": x, "b": x**3})


def test_it_is_a_collection(lazy: Boxplot) -> None:
    assert is_dask_collection(lazy)
    assert "of a, b, not computed" in repr(lazy)
    boxes = lazy.compute()
    assert not is_dask_collection(boxes)
    total, same, _ = dask.compute(da.ones(5).sum(), lazy, 3)
    assert (total, repr(same)) == (5, repr(boxes))
    resident, again = lazy.persist(), pickle.loads(pickle.dumps(lazy))
    assert is_dask_collection(resident)
    assert repr(resident.compute()) == repr(boxes) == repr(again.compute())
    assert tokenize(lazy) == tokenize(again) != tokenize(boxes)
    assert [box.label for box in boxes[:]] == ["a", "b"]
    assert repr(boxes["b"]) == repr(boxes[1]) == repr(*lazy[-1:])
    with pytest.raises(KeyError):
        boxes["c"]


@pytest.mark.parametrize(
    ("shape", "axis", "size"),
    [((9,), None, "1 box"), ((9, 3), 0, "3 boxes"), ((3, 4, 5), 1, "3 x 5 boxes")],
)
def test_lazy_boxes_say_what_they_are(shape: tuple[int, ...], axis: Any, size: str) -> None:
    lazy = describe_boxplot(da.ones(shape, chunks=2), axis)
    assert repr(lazy) == f"<Boxplot of {size}, not computed: type boxplot.compute()>"


def test_it_is_a_table_that_can_be_read(lazy: Boxplot) -> None:
    boxes, table = lazy.compute(), lazy.to_dataframe()
    columns = boxes.to_dict()
    assert list(table.index) == columns["label"].tolist() == ["a", "b"]
    assert columns["n"].tolist() == [3000, 3000]
    assert table.loc["b", "med"] == boxes["b"].med
    every = (table.loc["b", "fliers"], columns["fliers"][1], boxes["b"].fliers)
    assert {len(fliers) for fliers in every} == {boxes[1].n_low + boxes[1].n_high}
    lanes = describe_boxplot(np.arange(12.0).reshape(2, 3, 2), axis=0).to_dataframe()
    assert list(lanes.index) == list(range(6))
    assert lanes["med"].tolist() == [3, 4, 5, 6, 7, 8]
    head, first, second = repr(boxes).splitlines()
    assert head.split()[:4] == ["n", "n_nan", "min", "whislo"]
    assert [*first.split()[:3], *second.split()[:1]] == ["a", "3,000", "0", "b"]
    html = boxes._repr_html_()
    assert html.count("<tr>") == 3
    assert "<td>3,000</td>" in html
    assert "not computed" in lazy._repr_html_()


def test_it_is_drawn_as_by_matplotlib(lazy: Boxplot, tmp_path: Any) -> None:
    from matplotlib import image
    from matplotlib.figure import Figure

    a = normal(3000)
    axes = ours, theirs = Figure().subplots(), Figure().subplots()
    lazy.plot(ours, showmeans=True, shownotches=True)
    theirs.boxplot([a, a**3], showmeans=True, notch=True, tick_labels=["a", "b"])
    assert len(ours.lines) == len(theirs.lines) > 10
    for mine, other in zip(ours.lines, theirs.lines, strict=True):
        actual, wanted = (np.sort(line.get_xydata(), axis=0) for line in (mine, other))
        np.testing.assert_allclose(actual, wanted, rtol=1e-12)
    ticks = [[tick.get_text() for tick in ax.get_xticklabels()] for ax in axes]
    assert ticks[0] == ticks[1]
    pictures = []
    for ax in axes:
        ax.figure.savefig(tmp_path / "picture.png")
        pictures.append(image.imread(tmp_path / "picture.png"))
    assert np.abs(pictures[0] - pictures[1]).mean() < 0.002


def test_fliers_left_out_are_counted_in_the_picture() -> None:
    from matplotlib.figure import Figure

    a = np.concatenate([normal(3000), np.arange(50) + 1000.0])
    boxes = describe_boxplot(a, max_fliers=5)
    ax = boxes.plot(Figure().subplots())
    texts = [text.get_text() for text in ax.texts]
    assert texts == [f"{count:,} fliers" for count in (boxes[0].n_low, boxes[0].n_high)]
    assert [text.xy for text in ax.texts] == [(1.0, boxes[0].min), (1.0, boxes[0].max)]
    across = boxes.plot(Figure().subplots(), orientation="horizontal")
    assert [text.xy for text in across.texts] == [(boxes[0].min, 1.0), (boxes[0].max, 1.0)]
    assert not boxes.plot(Figure().subplots(), showfliers=False).texts
    assert not describe_boxplot(np.ones((5, 0)), 0).plot(Figure().subplots()).lines


def test_plotly(lazy: Boxplot) -> None:
    arguments = lazy.to_plotly()
    assert arguments.pop("quartilemethod") == "inclusive"
    assert "quartilemethod" not in describe_boxplot(normal(9), method="lower").to_plotly()
    assert arguments["x"] == ["a", "b"]
    assert arguments["median"] == [box.med for box in lazy.compute()]
    assert all(len(values) == 2 for values in arguments.values())


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        describe_boxplot(normal(10)).plot()


# --- Arguments ------------------------------------------------------------------------------------


def test_labels() -> None:
    boxes = describe_boxplot([np.arange(5), np.arange(9.0)], labels=["five", "nine"])
    assert [box.label for box in boxes] == ["five", "nine"]
    assert [box.n for a in ([1, 2, 3], [[4], [5, 6]]) for box in describe_boxplot(a)] == [3, 1, 2]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "f4", "f8"])
def test_fences_among_the_values_of_a_dtype(dtype: str) -> None:
    kind = np.dtype(dtype)
    fences = (-np.inf, -1e300, -(2.0**63), -129.5, -0.5, 0.0, 0.1, 127.0, 255.5, 2.0**63, 2.0**64)
    fences = np.array([*fences, np.inf])
    values, is_none = values_inside(np.stack([fences, fences]), kind)
    for fence, (low, high), (no_low, no_high) in zip(fences, values.T, is_none.T, strict=True):
        assert no_low or float(low) >= fence
        assert no_high or float(high) <= fence
        if no_low or no_high or low <= high:
            continue
        next_one = np.nextafter(high, kind.type(np.inf)) if kind.kind == "f" else int(high) + 1
        assert next_one == (low if kind.kind == "f" else int(low))
    assert values_inside(np.full((2, 1), np.nan), kind)[1].all()


# --- Samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_missing", [0, 1, 700])
@pytest.mark.parametrize("size", [0, 1, 600, 5_000])
def test_places_follow_from_the_elements_that_are_no_nan(size: int, n_missing: int) -> None:
    ordered = np.append(np.arange(float(size)), np.full(n_missing, np.nan))
    elements, n = valid_in(ordered, rungs_of)
    assert n == size
    wanted = np.concatenate([np.arange(size)[part] for part in rungs_of(size)])
    np.testing.assert_array_equal(elements, wanted)


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, 1 << 22])
@pytest.mark.parametrize("whis", [0.0, 1.5, 3.0, (0.05, 0.95)])
def test_what_a_device_is_told(whis: Any, size: int) -> None:
    rule = Rule(whis, autorange=False, max_fliers=10, method="weibull")
    guess = BoxQuestion.of(rule, np.dtype("f4"), omits_nan=True).in_memory.guess_there(size, 0.01)
    if isinstance(whis, tuple) or size <= 100:
        assert guess is None
        return
    assert guess is not None
    places = np.array(guess.places)
    assert (np.diff(places) > 0).all()
    quartiles = size * np.array([0.25, 0.5, 0.75])
    assert (places[::2] < quartiles).all()
    assert (quartiles < places[1::2]).all()
    assert 0 < guess.n_extreme < guess.most_near < 0.1 * size
    assert guess.n_ends == len(guess.brackets(np.arange(guess.n_ends)).ends) == 12
    assert guess.most_tied == size // 1000
