"""Draw the pictures of how it works with the library's own functions: python docs/pictures.py."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dask_gpuselect.kernels.reference import selection as generic
from dask_gpuselect.maths.cached import covers
from dask_gpuselect.maths.chunk_sample import ChunkOrder, ChunkSample
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.expected import bounds_of, cells_of

CHUNKS = ((40, 12), (55, 8), (60, 18))  # mean and standard deviation of each
SIZE = 60
N_PIVOTS = 8  # the root of that
PICTURE = Path(__file__).parent / "how_it_works.png"
KEPT = Path(__file__).parent / "kept_range.png"
N_CHUNKS, CHUNK, N_SEEN = 40, 1600, 12
COLOURS = ("tab:blue", "tab:orange", "tab:green")


def draw(picture: Path) -> dict[str, Any]:
    """Draw pivots, bounds and the bracket, and return what is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    random = np.random.default_rng(1)
    chunks = [random.normal(mean, deviation, SIZE) for mean, deviation in CHUNKS]
    parts = [generic.cuts(chunk, N_PIVOTS) for chunk in chunks]
    cuts = Cuts.merge(parts)
    elements = np.sort(np.concatenate(chunks))
    rank = len(elements) // 2
    ranks = np.array([rank])
    bracket = find_brackets(cuts, ranks, ranks).ends
    inside = elements[(elements > bracket[0]) & (elements < bracket[-1])]

    y = np.linspace(elements[0] - 2, elements[-1] + 2, 4000)
    cells = cells_of(cuts, slice(None), y)
    counts = cuts.upto, cuts.below, cuts.n_valid
    known, open_too, is_pivot = bounds_of(cells, *counts)  # of the elements up to y
    least, most = np.where(is_pivot, open_too, known).sum(axis=0), open_too.sum(axis=0)

    figure, (above, below) = pyplot.subplots(
        2, sharex=True, figsize=(9, 6.5), height_ratios=(1, 2.2), layout="constrained"
    )
    for i, (chunk, part, colour) in enumerate(zip(chunks, parts, COLOURS, strict=True)):
        above.plot(chunk, np.full(SIZE, -i), ".", color=colour, alpha=0.45, markersize=5)
        above.plot(part.pivots, np.full(len(part.pivots), -i), "|", color=colour, markersize=22)
    above.set_yticks([0, -1, -2], [f"chunk {i}" for i in range(3)])
    above.set_ylim(-2.7, 0.7)
    above.set_title("Read 1: each chunk counts at its own pivots (bars)", fontsize=11, loc="left")

    below.fill_between(y, least, most, color="0.85", label="bounds from the counts")
    for bound in (least, most):
        below.plot(y, bound, color="0.55", linewidth=0.8)
    below.step(
        np.concatenate([[y[0]], elements, [y[-1]]]),
        np.concatenate([[0], np.arange(1, len(elements) + 1), [len(elements)]]),
        where="post",
        color="black",
        linewidth=1,
        label="number of elements up to y, not known yet",
    )
    below.axhline(rank + 0.5, color="tab:red", linewidth=1, label=f"the wanted rank, {rank}")
    for axes in (above, below):
        axes.axvspan(bracket[0], bracket[-1], color="tab:red", alpha=0.25, linewidth=0)
    below.set_title(
        f"Their sum proves a bracket (red): read 2 gathers {len(inside)} of {len(elements)}",
        fontsize=11,
        loc="left",
    )
    below.set_xlabel("y")
    below.set_ylabel("number of elements up to y")
    below.legend(loc="upper left", frameon=False)
    figure.savefig(picture, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return {
        "elements": elements,
        "rank": rank,
        "bracket": bracket,
        "inside": inside,
        "y": y,
        "least": least,
        "most": most,
    }


def draw_kept(picture: Path) -> dict[str, Any]:
    """Draw the elements that the first read caches of drifting chunks; return what is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    random = np.random.default_rng(4)
    drift = 4 * np.sin(np.arange(N_CHUNKS) / 7)
    chunks = [random.normal(50 + mean, 12, CHUNK) for mean in drift]
    parts = [generic.cuts(chunk, int(CHUNK**0.5)) for chunk in chunks]
    rank = np.array([N_CHUNKS * CHUNK // 2])

    def brackets(cuts: Cuts) -> Brackets:
        n = int(cuts.n_valid.sum())
        middle = rank * n // (N_CHUNKS * CHUNK)
        return find_brackets(cuts, middle, middle)

    order = ChunkOrder.evenly(N_CHUNKS).chunks(0, N_CHUNKS)
    places = np.sort(order[:N_SEEN])
    cuts = Cuts.merge([parts[i] for i in places])
    guess = ChunkSample(cuts, places, N_CHUNKS).guess(brackets, len(cuts.pivots))
    assert guess.brackets is not None
    low, high = guess.brackets.ends[[0, -1]]
    proven = brackets(Cuts.merge(parts))
    kept = [chunk[(chunk > low) & (chunk < high)] for chunk in chunks]
    first = set(places.tolist())

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for i, (chunk, inside) in enumerate(zip(chunks, kept, strict=True)):
        shown = chunk[::16]
        colour = "tab:orange" if i in first else "0.75"
        axes.plot(shown, np.full(len(shown), i), ".", color=colour, markersize=3)
        if i not in first:
            axes.plot(inside, np.full(len(inside), i), "|", color="tab:blue", markersize=6)
    # For the legend alone.
    axes.plot([], [], ".", color="tab:orange", label=f"{N_SEEN} chunks read before the guess")
    axes.plot([], [], ".", color="0.75", label="chunks read after the guess (some elements)")
    axes.plot([], [], "|", color="tab:blue", label="cached: all elements in the guess")
    axes.axvspan(
        *proven.ends[[0, -1]], color="tab:red", linewidth=0, zorder=3, label="the proven bracket"
    )
    axes.set(xlabel="value", ylabel="chunk", xlim=(20, 80), ylim=(-1, N_CHUNKS + 9))
    axes.set_title(
        "Blue chunks are not read again: their cached elements cover the bracket", loc="left"
    )
    axes.legend(loc="upper center", frameon=False, ncols=2, fontsize=9)
    figure.savefig(picture, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return {
        "guess": (low, high),
        "proven": (proven.ends[0], proven.ends[-1]),
        "covers": covers(guess.brackets, proven),
        "share": sum(map(len, kept)) / (N_CHUNKS * CHUNK),
        "median": np.sort(np.concatenate(chunks))[rank[0]],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.add_argument("--output-kept", type=Path, default=KEPT)
    options = parser.parse_args(arguments)
    draw(options.output)
    draw_kept(options.output_kept)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
