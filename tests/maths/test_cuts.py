"""The mathematics of brackets, without dask and without compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths import expected
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Cuts, Tally
from dask_gpuselect.maths.envelope import (
    THIN,
    Distances,
    Envelope,
    Ranges,
    exact_gap,
    find_brackets,
    thinned,
)
from dask_gpuselect.maths.expected import Expected, bounds_of
from dask_gpuselect.maths.finish import order_statistics
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS, MISSING, normal

QUANTILES = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


def cuts_of(chunks: Sequence[NDArray[Any]], n_pivots: int) -> Cuts:
    return Cuts.merge([reference.cuts(chunk, n_pivots) for chunk in chunks])


def ranks_of(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two neighbours of some quantiles."""
    first = np.unique((QUANTILES * (n - 1)).astype(np.int64))
    return first, np.minimum(first + 1, n - 1)


def bounds(envelope: Envelope, cuts: Cuts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What distances prove of #{x <= y} at every distinct pivot y."""
    distances = Distances.of(cuts, envelope)
    positions = range(len(envelope.values))
    least = np.array([distances.least(y) for y in positions], np.int64)
    most = np.array([distances.most(y) for y in positions], np.int64)
    return least, most


def split(values: NDArray[Any], how: str) -> list[NDArray[Any]]:
    """Chunks in several orders and sizes, some of them empty."""
    chunks = {
        "as it comes": lambda: np.array_split(values, 7),
        "dealt": lambda: [values[i::5] for i in range(5)],
        "sorted": lambda: np.array_split(np.sort(values), 6),
        "irregular": lambda: np.split(values, [0, 3, 4, 4, len(values) // 3]),
        "one": lambda: [values],
    }
    return chunks[how]()


SPLITS = ("as it comes", "dealt", "sorted", "irregular", "one")


def holds(brackets: Brackets, value: Any) -> bool:
    """Whether a value is an end, or in a wanted cell."""
    cell = int(np.searchsorted(brackets.ends, value, side="left"))
    is_end = cell < len(brackets.ends) and brackets.ends[cell] == value
    return bool(is_end or brackets.wanted[cell])


# --- Brackets hold the order statistics ---------------------------------------------------------


@pytest.mark.parametrize("use_distances", [False, True])
@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
def test_brackets_hold_the_order_statistics(name: str, how: str, use_distances: bool) -> None:
    values = (FLOATS | MISSING)[name](1500)
    ordered = np.sort(values[~np.isnan(values)])
    cuts = cuts_of(split(values, how), 12)
    assert cuts.n_valid.sum() == len(ordered)
    if len(ordered) == 0:
        return
    first, last = ranks_of(len(ordered))
    brackets = find_brackets(cuts, first, last, use_distances=use_distances)
    assert all(holds(brackets, ordered[k]) for k in [*first, *last])


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("name", INTEGERS)
def test_brackets_of_integers(name: str, dtype: str) -> None:
    values = INTEGERS[name](1500, dtype)
    ordered = np.sort(values)
    for how in SPLITS:
        cuts = cuts_of(split(values, how), 12)
        first, last = ranks_of(len(ordered))
        brackets = find_brackets(cuts, first, last)
        assert brackets.ends.dtype == values.dtype
        assert all(holds(brackets, ordered[k]) for k in [*first, *last])


floats = st.floats(allow_nan=False, width=64)
few_floats = st.sampled_from([0.0, -0.0, 1.0, 1 + 2**-52, 5e-324, -5e-324, 1e308, -1e308, np.inf])


@given(
    chunks=st.lists(
        arrays(np.float64, st.integers(0, 40), elements=floats | few_floats), min_size=1, max_size=5
    ),
    n_pivots=st.integers(1, 9),
    data=st.data(),
)
def test_brackets_of_any_floats(
    chunks: list[NDArray[np.float64]], n_pivots: int, data: st.DataObject
) -> None:
    ordered = np.sort(np.concatenate(chunks))
    if len(ordered) == 0:
        return
    first = data.draw(st.integers(0, len(ordered) - 1))
    last = min(first + data.draw(st.integers(0, 1)), len(ordered) - 1)
    cuts = cuts_of(chunks, n_pivots)
    envelope = Envelope.of(cuts)
    true = np.searchsorted(ordered, envelope.values, side="right")
    assert (envelope.lower <= true).all()
    assert (true <= envelope.upper).all()
    least, most = bounds(envelope, cuts)
    assert (envelope.lower <= least).all()
    assert (least <= true).all()
    assert (true <= most).all()
    assert (most <= envelope.upper).all()
    ranks = np.array([first]), np.array([last])
    around = Ranges.of_ranks(thinned(cuts, THIN), *ranks).around(cuts)
    for use_distances in (False, True):
        brackets = find_brackets(cuts, *ranks, use_distances=use_distances)
        assert holds(brackets, ordered[first])
        assert holds(brackets, ordered[last])
        same = find_brackets(around, *ranks, use_distances=use_distances)
        np.testing.assert_array_equal(same.ends, brackets.ends)
        np.testing.assert_array_equal(same.wanted, brackets.wanted)


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", FLOATS)
def test_pivots_far_from_all_ranks_do_not_matter(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be left out, and some are."""
    values = FLOATS[name](1500)
    cuts = cuts_of(split(values, how), 60)
    monkeypatch.setattr("dask_gpuselect.maths.envelope.THIN", 4)
    for q in ([0.0], [1.0], [0.5], [0.0, 0.3, 0.31, 1.0]):
        first = (np.array(q) * (len(values) - 1)).astype(np.int64)
        last = np.minimum(first + 1, len(values) - 1)
        plain = find_brackets(cuts, first, last)
        with monkeypatch.context() as patch:
            patch.setattr("dask_gpuselect.maths.envelope.THIN_FROM", 0)
            fewer = find_brackets(cuts, first, last)
        np.testing.assert_array_equal(fewer.ends, plain.ends)
        np.testing.assert_array_equal(fewer.wanted, plain.wanted)
    if name == "normal" and how != "irregular":
        around = Ranges.of_ranks(thinned(cuts, 4), np.array([750]), np.array([751])).around(cuts)
        assert len(around.pivots) < len(cuts.pivots) / 2
        assert around.n_valid.sum() == 1500


# --- Distances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("error", [-1, 0, 1])
def test_distances_prove_the_truth_whatever_the_rounding(name: str, error: int) -> None:
    """Sums that are off by all that `Cuts` allows still give bounds that hold, and never wider."""
    values = FLOATS[name](1500)
    cuts = cuts_of(split(values, "as it comes"), 12)
    envelope = Envelope.of(cuts)
    with np.errstate(invalid="ignore", over="ignore"):
        off = cuts.distance * (1 + error * (envelope.inside + 8) * 2.0**-53)
    least, most = bounds(envelope, replace(cuts, distance=off))
    true = np.searchsorted(np.sort(values), envelope.values, side="right")
    assert (envelope.lower <= least).all()
    assert (least <= true).all()
    assert (true <= most).all()
    assert (most <= envelope.upper).all()


@pytest.mark.parametrize("unknown", [np.nan, np.inf])
def test_unknown_distances_leave_what_counts_prove(unknown: float) -> None:
    chunks = split(normal(1500), "as it comes")
    cuts = cuts_of(chunks, 12)
    cuts = replace(cuts, distance=np.full_like(cuts.distance, unknown))
    envelope = Envelope.of(cuts)
    least, most = bounds(envelope, cuts)
    np.testing.assert_array_equal(least, envelope.lower)
    np.testing.assert_array_equal(most, envelope.upper)


@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "outliers",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("lognormal", "offset", "trended")
        ),
    ],
)
@pytest.mark.slow
def test_candidates_are_few(name: str) -> None:
    """At most 1.1 n/m a quantile by counts alone in any order, and fewer with distances.

    At 32 chunks of 200,000 elements. Where a cell holds less than a hundred, chance moves the
    pivots, and the worst of a hundred quantiles has 1.14 n/m.
    """
    values = FLOATS[name](32 * 200_000)
    ordered = np.sort(values)
    orders = {
        "dealt": [values[i::32] for i in range(32)],
        "as it comes": np.array_split(values, 32),
        "sorted": np.array_split(ordered, 32),
    }
    for order, chunks in orders.items():
        for n_pivots in (64, 256):
            cuts = cuts_of(chunks, n_pivots)
            ranks = (np.linspace(0.03, 0.97, 21) * (len(values) - 1)).astype(np.int64)
            by_counts, by_distances = (
                np.array(
                    [
                        gathered(ordered, find_brackets(cuts, k, k, use_distances=use))
                        for k in ranks[:, None]
                    ]
                )
                for use in (False, True)
            )
            assert by_counts.max() <= 1.1 * len(values) / n_pivots
            assert (by_distances <= by_counts).all()
            if order != "sorted":  # where a bracket is one cell of one chunk, nothing narrows it
                assert np.median(by_distances / np.maximum(by_counts, 1)) < 0.97


def gathered(ordered: NDArray[Any], brackets: Brackets) -> int:
    """The number of candidates."""
    below = np.append(np.searchsorted(ordered, brackets.ends, side="left"), len(ordered))
    upto = np.append(0, np.searchsorted(ordered, brackets.ends, side="right"))
    return int((below - upto)[brackets.wanted].sum())


def test_heavy_ties_between_uncertain_pivots_are_counted() -> None:
    """The rank falls just beside a heavily tied pivot of one chunk, in an open cell of another."""
    tied = np.concatenate([np.full(60_000, 0.5), np.linspace(0, 0.499, 20_000)])
    free = np.linspace(0.0, 1.0, 80_001)
    cuts = cuts_of([tied, free], 100)
    ordered = np.sort(np.concatenate([tied, free]))
    last_tie = int(np.searchsorted(ordered, 0.5, side="right"))
    for rank in range(last_tie - 900, last_tie + 900, 37):
        ranks = np.array([rank]), np.array([rank + 1])
        assert gathered(ordered, find_brackets(cuts, *ranks, use_distances=False)) < 4000


@pytest.mark.parametrize(
    ("low", "high", "gap"),
    [
        (np.int64(-(2**63)), np.int64(2**63 - 1), 2.0**64),
        (np.int8(-128), np.int8(127), 255.0),
        (np.uint64(1), np.uint64(2**64 - 1), 2.0**64),
        (np.int64(2**53), np.int64(2**53 + 1), 1.0),
        (np.float32(1), np.float32(1 + 2**-23), 2.0**-23),
        (5e-324, 1e-323, 5e-324),
        (-1.7e308, 1.7e308, np.inf),
    ],
)
def test_exact_gap(low: Any, high: Any, gap: float) -> None:
    assert exact_gap(low, high) == gap


# --- One chunk's own bounds, and the check of load 2 --------------------------------------------


def test_bounds_of_a_chunk() -> None:
    chunk = np.array([1.0, 2.0, 2.0, 3.0, 5.0, 8.0])
    cuts = reference.cuts(chunk, 3)
    assert cuts.pivots.tolist() == [1.0, 2.0, 8.0]
    ends = np.array([0.0, 1.0, 1.5, 2.0, 4.0, 8.0, 9.0])
    ((least,), (most,), (is_pivot,)) = bounds_of(cuts, slice(None), ends)
    assert is_pivot.tolist() == [False, True, False, True, False, True, False]
    assert least.tolist() == [0, 0, 1, 1, 3, 5, 6]  # below, at least
    assert np.where(is_pivot, least, most).tolist() == [0, 0, 1, 1, 5, 5, 6]
    assert np.where(is_pivot, most, least).tolist() == [0, 1, 1, 3, 3, 6, 6]  # up to, at least
    assert most.tolist() == [0, 1, 1, 3, 5, 6, 6]


@pytest.mark.parametrize("n_ends", [0, 1, 40])
@pytest.mark.parametrize("at_once", [1, 100, 1 << 20])
@pytest.mark.parametrize("most_checked", [1, 60, 1 << 20])
def test_what_is_expected_of_every_chunk(
    most_checked: int, at_once: int, n_ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a chunk alone, and as the chunks are: of empty chunks, too, and of ends that are
    pivots or not."""
    monkeypatch.setattr(expected, "MOST_CHECKED", most_checked)
    monkeypatch.setattr(expected, "AT_ONCE", at_once)
    values = np.append(np.round(normal(600), 1), [np.nan] * 3)
    chunks = [*split(values, "irregular"), np.array([np.nan]), values[:40], values[:0]]
    cuts = cuts_of(chunks, 7)
    pivots = np.unique(np.append(cuts.pivots, np.linspace(-2.01, 2.01, 41)))
    ends = pivots[np.arange(n_ends) * len(pivots) // max(n_ends, 1)]
    wanted = np.arange(n_ends + 1) % 2 == 0
    table = Expected.of(cuts, Brackets(ends, wanted))
    assert table.least.shape == (len(chunks), min(n_ends, max(most_checked // len(chunks), 1)))
    for i, chunk in enumerate(chunks):
        alone = Expected.of(reference.cuts(chunk, 7), Brackets(ends, wanted))
        known = chunk[~np.isnan(chunk)]
        for field in ("n_valid", "n_missing", "most_candidates", "least", "most", "is_pivot"):
            mine = getattr(alone, field)[0]
            if mine.ndim and len(alone.checked) > len(table.checked):
                mine = mine[table.checked]
            np.testing.assert_array_equal(getattr(table, field)[i], mine)
        tally = reference.tally(chunk, Brackets(ends, wanted), int(table.most_candidates[i]))
        assert tally is not None
        assert table.check(i, tally, Brackets(ends, wanted), "(0,)") is tally
        assert table.n_valid[i] == len(known)


@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
def test_an_unchanged_chunk_passes_at_any_ends(name: str) -> None:
    values = (FLOATS | MISSING)[name](700)
    cuts = reference.cuts(values, 9)
    ends = np.unique(normal(50))
    brackets = Brackets(ends, np.arange(51) % 3 == 0)
    table = Expected.of(cuts, brackets)
    most = int(table.most_candidates[0])
    tally = reference.tally(values, brackets, most)
    assert tally is not None
    assert len(tally.candidates) <= most
    assert table.check(0, tally, brackets, "(0,)") is tally


def changed(values: NDArray[Any]) -> str:
    """The message for a chunk that is `values` on the second load."""
    cuts = reference.cuts(np.arange(100.0), 11)
    brackets = Brackets(np.array([30.0, 41.0]), np.array([False, True, False]))
    table = Expected.of(cuts, brackets)
    tally = reference.tally(values, brackets, int(table.most_candidates[0]))
    with pytest.raises(ChunksChangedError, match="persist") as caught:
        table.check(0, tally, brackets, "(3, 0)")
    return str(caught.value)


def test_a_chunk_of_another_size_is_named() -> None:
    message = changed(np.arange(98.0))
    assert "chunk (3, 0) held 100 valid elements on the first load and 98 on the second" in message


def test_a_chunk_with_more_nan_is_named() -> None:
    message = changed(np.append(np.arange(100.0), np.nan))
    assert "chunk (3, 0) held 0 missing (NaN or NaT) elements on the first load and 1" in message


def test_a_chunk_of_other_content_is_named() -> None:
    message = changed(np.arange(100.0) + 20)
    assert "chunk (3, 0) held 30 to 39 elements below 30.0 on the first load and 10" in message


def test_a_chunk_with_too_many_candidates_is_named() -> None:
    assert "chunk (3, 0) holds more elements between" in changed(np.full(100, 35.0))


# --- Finish -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
def test_order_statistics_of_every_rank(name: str) -> None:
    values = FLOATS[name](300)
    chunks = split(values, "as it comes")
    every = np.arange(300)
    brackets = find_brackets(cuts_of(chunks, 6), every, every)
    parts = [reference.tally(chunk, brackets, len(chunk)) for chunk in chunks]
    tally = Tally.merge([part for part in parts if part is not None])
    found = order_statistics(brackets, tally, every.reshape(3, 100))
    np.testing.assert_array_equal(found.ravel(), np.sort(values))


def test_a_rank_outside_its_bracket_is_an_error() -> None:
    brackets = Brackets(np.array([10.0, 20.0]), np.array([False, True, False]))
    tally = reference.tally(np.arange(100.0), brackets, 100)
    assert tally is not None
    assert order_statistics(brackets, tally, np.array([15])).tolist() == [15.0]
    with pytest.raises(ChunksChangedError, match="left the brackets"):
        order_statistics(brackets, tally, np.array([15, 50]))


def test_counts_and_ranks_are_int64() -> None:
    cuts = cuts_of(split(normal(500).astype(np.float32), "irregular"), 5)
    for column in (cuts.below, cuts.upto, cuts.sizes, cuts.n_valid, cuts.n_missing):
        assert column.dtype == np.int64
    envelope = Envelope.of(cuts)
    for column in (envelope.lower, envelope.upper, envelope.ties):
        assert column.dtype == np.int64
