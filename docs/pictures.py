"""Draw the picture of how it works, from the library's own functions: python docs/pictures.py"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dask_gpuselect.kernels.reference import selection as generic
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.expected import bounds_of

CHUNKS = ((40, 12), (55, 8), (60, 18))  # mean and standard deviation of each
SIZE = 60
N_PIVOTS = 8  # the root of that
PICTURE = Path(__file__).parent / "how_it_works.png"
COLOURS = ("tab:blue", "tab:orange", "tab:green")


def draw(picture: Path) -> dict[str, Any]:
    """Draw it, and return what is drawn."""
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
    known, open_too, is_pivot = bounds_of(cuts, slice(None), y)  # of the elements up to y
    least, most = np.where(is_pivot, open_too, known).sum(axis=0), open_too.sum(axis=0)

    figure, (above, below) = pyplot.subplots(
        2, sharex=True, figsize=(9, 6.5), height_ratios=(1, 2.2), layout="constrained"
    )
    for i, (chunk, part, colour) in enumerate(zip(chunks, parts, COLOURS, strict=True)):
        above.plot(chunk, np.full(SIZE, -i), ".", color=colour, alpha=0.45, markersize=5)
        above.plot(part.pivots, np.full(len(part.pivots), -i), "|", color=colour, markersize=22)
    above.set_yticks([0, -1, -2], [f"chunk {i}" for i in range(3)])
    above.set_ylim(-2.7, 0.7)
    above.set_title("Load 1: each chunk counts at its own pivots (bars)", fontsize=11, loc="left")

    below.fill_between(y, least, most, color="0.85", label="what the counts leave open")
    for bound in (least, most):
        below.plot(y, bound, color="0.55", linewidth=0.8)
    below.step(
        np.concatenate([[y[0]], elements, [y[-1]]]),
        np.concatenate([[0], np.arange(1, len(elements) + 1), [len(elements)]]),
        where="post",
        color="black",
        linewidth=1,
        label="elements up to y, known to nobody yet",
    )
    below.axhline(rank + 0.5, color="tab:red", linewidth=1, label=f"the wanted rank, {rank}")
    for axes in (above, below):
        axes.axvspan(bracket[0], bracket[-1], color="tab:red", alpha=0.25, linewidth=0)
    below.set_title(
        f"Their sum proves a bracket (red): load 2 gathers {len(inside)} of {len(elements)}",
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE)
    draw(parser.parse_args(arguments).output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
