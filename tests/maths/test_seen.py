"""What some chunks let expect of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection, weighing
from dask_gpuselect.maths.chunk_order import ChunkOrder
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.kept import covers
from dask_gpuselect.maths.partition import SortedChunks
from dask_gpuselect.maths.rulers import Ruler
from dask_gpuselect.maths.seen import MOST_KEPT, ROUGH_PIVOTS, Guess, Seen
from dask_gpuselect.maths.weight_brackets import find_share_brackets
from dask_gpuselect.maths.weights import WeightedCuts

N, N_CHUNKS, N_PIVOTS = 4000, 120, 63
MOST_PIVOTS = 1 << 20  # all of them
QUARTILES = np.array([0.25, 0.5, 0.75])

KINDS: dict[str, Callable[[np.random.Generator, int], NDArray[Any]]] = {
    "mixed": lambda rng, i: rng.standard_normal(N),
    "heavy tails": lambda rng, i: rng.standard_cauchy(N) ** 3,
    "a trend": lambda rng, i: rng.standard_normal(N) + i / N_CHUNKS,
    "few values": lambda rng, i: rng.integers(0, 5, N).astype(float),
    "constant": lambda rng, i: np.full(N, 3.0),
    "sizes that differ": lambda rng, i: rng.standard_normal(N // (1 + i % 3)),
    "some empty": lambda rng, i: rng.standard_normal(N * (i % 4 > 0)),
}


def seeded() -> np.random.Generator:
    """For each test its own: of other random data a guess may miss, which costs a load."""
    return np.random.default_rng(3)


def brackets_of(cuts: Cuts) -> Brackets:
    n = int(cuts.n_valid.sum())
    ranks = (QUARTILES * (n - 1)).astype(np.int64)
    return find_brackets(cuts, ranks, np.minimum(ranks + 1, n - 1))


def guess_of(all_cuts: list[Any], n_seen: int, keep: Callable[[Any], Brackets]) -> Guess:
    places = np.sort(ChunkOrder.evenly(len(all_cuts)).chunks(0, n_seen))
    cuts = type(all_cuts[0]).merge([all_cuts[i] for i in places])
    return Seen(cuts, places, len(all_cuts)).guess(keep, MOST_PIVOTS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_guessed_of_a_quarter_covers_what_is_proven(kind: str) -> None:
    rng = seeded()
    cuts = [selection.cuts(KINDS[kind](rng, i), N_PIVOTS) for i in range(N_CHUNKS)]
    guess = guess_of(cuts, N_CHUNKS // 4, brackets_of)
    assert guess.brackets is not None
    assert guess.share <= MOST_KEPT
    assert covers(guess.brackets, brackets_of(Cuts.merge(cuts)))


def bracket_of(q: float, cuts: Cuts) -> Brackets:
    rank = np.array([int(q * cuts.n_valid.sum())])
    return find_brackets(cuts, rank, rank)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.1, 0.5, 0.75])
def test_chunks_seen_anywhere_tell_of_all_of_noise(q: float) -> None:
    """Nothing says that tasks run in an even order."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        cuts = [selection.cuts(rng.standard_normal(1000), 255) for _ in range(60)]
        places = np.sort(rng.permutation(60)[:7])
        seen = Seen(Cuts.merge([cuts[i] for i in places]), places, 60)
        found = seen.guess(partial(bracket_of, q), MOST_PIVOTS)
        assert found.brackets is not None
        assert covers(found.brackets, bracket_of(q, Cuts.merge(cuts)))


@pytest.mark.few(3)
@pytest.mark.parametrize("q", [0.02, 0.1, 0.5, 0.75])
def test_there_is_as_much_doubt_below_a_quantile_as_above(q: float) -> None:
    rng = seeded()
    cuts = [selection.cuts(rng.random(N), N) for _ in range(N_CHUNKS)]  # it tells everything
    guess = guess_of(cuts, 15, partial(bracket_of, q))
    assert guess.brackets is not None
    merged = Cuts.merge([cuts[i] for i in ChunkOrder.evenly(N_CHUNKS).chunks(0, 15)])
    low, high = (np.mean(merged.pivots <= end) for end in guess.brackets.ends[[0, -1]])
    assert q - low == pytest.approx(guess.doubt / 2, rel=0.1)
    assert high - q == pytest.approx(guess.doubt / 2, rel=0.1)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 2.0**900])
def test_so_it_is_with_weights(scale: float) -> None:
    def keep(cuts: WeightedCuts) -> Brackets:
        return find_share_brackets(cuts, QUARTILES.tolist(), with_next=False)

    rng = seeded()
    cuts = [
        weighing.cuts(rng.standard_normal(N), scale * rng.lognormal(0, 1, N), N_PIVOTS)
        for _ in range(N_CHUNKS)
    ]
    guess = guess_of(cuts, N_CHUNKS // 4, keep)
    assert guess.brackets is not None
    assert covers(guess.brackets, keep(WeightedCuts.merge(cuts)), weighs=True)


@pytest.mark.parametrize("kind", ["mixed", "heavy tails", "few values", "constant"])
def test_what_a_chunk_guesses_alone_covers_what_is_proven(kind: str) -> None:
    rng = seeded()
    cuts = [selection.cuts(KINDS[kind](rng, i), 4 * N_PIVOTS) for i in range(N_CHUNKS)]
    guess = Seen(cuts[0], np.zeros(1, np.int64), N_CHUNKS).guess_alone(brackets_of)
    assert guess.brackets is not None
    assert guess.share <= MOST_KEPT
    assert covers(guess.brackets, brackets_of(Cuts.merge(cuts)))


def test_a_chunk_alone_guesses_nothing_of_nothing() -> None:
    cuts = selection.cuts(np.empty(0), N_PIVOTS)
    assert Seen(cuts, np.zeros(1, np.int64), 9).guess_alone(brackets_of).brackets is None


def test_few_that_are_kept_by_a_ruler_are_not_worth_another_guess() -> None:
    guess = Guess(brackets_of(selection.cuts(np.arange(9), 9)), 0.01, 0.01)
    ruler = Ruler(np.arange(4.0), 0.0, 1.0, is_by_key=False)
    assert guess.may_improve
    assert replace(guess, n_kept=1.0).may_improve  # what is measured by pivots takes longer
    assert not replace(guess, n_kept=1.0, ruler=ruler).may_improve
    assert replace(guess, n_kept=2.0**21, ruler=ruler).may_improve


def test_a_guess_that_holds_far_too_much_is_not_soon_made_again() -> None:
    assert Guess(None, 0.16, 0.05).next_after(40) == 51
    assert Guess(None, 0.9, 0.05).next_after(40) > 120


def waves(n_seen: int) -> tuple[list[Cuts], IntArray]:
    """The cuts of some chunks that differ much."""
    rng = seeded()
    places = np.sort(ChunkOrder.evenly(N_CHUNKS).chunks(0, n_seen))
    return [selection.cuts(rng.standard_normal(N) + 3 * np.sin(i), N) for i in places], places


def test_a_few_pivots_tell_that_it_is_too_early() -> None:
    """The first look is at few pivots, and there is no other."""
    looked = []

    def keep(cuts: Cuts) -> Brackets:
        looked.append(len(cuts.pivots))
        return brackets_of(cuts)

    cuts, places = waves(20)
    assert Seen(Cuts.merge(cuts), places, N_CHUNKS).guess(keep, MOST_PIVOTS).brackets is None
    assert len(looked) == 1
    assert looked[0] <= ROUGH_PIVOTS + len(cuts)


@pytest.mark.parametrize("ranks", [[0.5], [0.5, 0.501], [0.01, 0.5, 0.99]])
@pytest.mark.parametrize("doubt", [0.01, 0.1])
def test_what_a_guess_holds_at_least(ranks: list[float], doubt: float) -> None:
    """What brackets share counts once, and there is nothing beyond the ends."""
    cuts = selection.cuts(np.arange(10.0 * N), 10 * N)
    wanted = (np.array(ranks) * 10 * N).astype(np.int64)
    seen = Seen(cuts, np.zeros(1, np.int64), 2)
    about = find_brackets(cuts, wanted, wanted + 1)
    guessed = find_brackets(replace(cuts, doubt=doubt / 2), wanted, wanted + 1)
    least = seen._least_inside(about, doubt)
    assert least == pytest.approx(seen._share_inside(guessed), rel=0.02)


def test_chunks_that_are_far_apart_say_so_at_once() -> None:
    cuts, places = waves(2)
    assert Seen(Cuts.merge(cuts), places, N_CHUNKS).guess(brackets_of, MOST_PIVOTS).is_far
    alike = [selection.cuts(KINDS["mixed"](seeded(), i), N_PIVOTS) for i in range(N_CHUNKS)]
    assert not guess_of(alike, 2, brackets_of).is_far


def test_sorted_data_cannot_be_guessed_early() -> None:
    """Of the first quarter the error is larger than what may be kept."""
    cuts = [selection.cuts(np.arange(N) + i * N, N_PIVOTS) for i in range(N_CHUNKS)]
    guess = guess_of(cuts, 10, brackets_of)
    assert guess.brackets is None
    assert guess.doubt > MOST_KEPT
    assert guess.next_after(10) > 13


def test_waves_are_not_guessed() -> None:
    rng = seeded()
    levels = 3 * np.sin(np.arange(N_CHUNKS) * 1.7)
    cuts = [selection.cuts(rng.standard_normal(N) + level, N_PIVOTS) for level in levels]
    assert guess_of(cuts, 12, brackets_of).brackets is None


def test_nothing_is_guessed_of_nothing() -> None:
    cuts = [selection.cuts(np.empty(0), N_PIVOTS) for _ in range(N_CHUNKS)]
    assert guess_of(cuts, 12, brackets_of).brackets is None


def test_few_chunks_of_which_most_are_empty() -> None:
    """Less than one element each, on average."""
    cuts = [selection.cuts(np.arange(6.0 * (i == 3)), N_PIVOTS) for i in range(11)]
    guess = Seen(Cuts.merge(cuts), np.arange(11), 11).guess(brackets_of, MOST_PIVOTS)
    assert guess.brackets is None or covers(guess.brackets, brackets_of(Cuts.merge(cuts)))


def test_chunks_that_agree_by_chance_are_doubted() -> None:
    """No less than if elements were drawn at random: the first two of many may be alike."""
    cuts = [selection.cuts(np.random.default_rng(5).standard_normal(N), N_PIVOTS)] * N_CHUNKS
    guess = guess_of(cuts, 2, brackets_of)
    assert guess.doubt > np.sqrt(0.5 / N)
    assert guess_of(cuts, 60, brackets_of).doubt < guess.doubt / 3


def test_guesses_of_many_brackets_are_made_again() -> None:
    """Each of them holds the doubt, however little that is of all that they hold."""

    def nineteen(cuts: Cuts) -> Brackets:
        ranks = np.arange(1, 20) * int(cuts.n_valid.sum()) // 20
        return find_brackets(cuts, ranks, ranks)

    pivots = 2000
    cuts = [selection.cuts(np.random.default_rng(i).random(20 * N), pivots) for i in range(60)]
    guess = guess_of(cuts, 30, nineteen)
    assert guess.brackets is not None
    assert guess.n_apart == 19
    assert guess.doubt < 0.1 * guess.share
    assert guess.next_after(30) == 61


def test_elements_kept_for_a_sort_are_about_its_splitters() -> None:
    """Of cuts that stand for about as many elements as there are."""
    wanted = SortedChunks(4, (0, N * 20, N * 30, N * 70))
    rng = seeded()
    cuts = [selection.cuts(rng.standard_normal(N), N_PIVOTS) for _ in range(N_CHUNKS)]
    guess = guess_of(cuts, N_CHUNKS // 4, wanted.keep)
    assert guess.brackets is not None
    assert covers(guess.brackets, wanted.bracket(Cuts.merge(cuts)))
