"""Draw the picture of out-of-core GPU work from the measurements: python docs/gpu_picture.py."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PICTURE = HERE / "out_of_core_gpu.png"
SECTION = "From the host to a GPU"


def overview() -> Any:
    """Load the program beside this one, which reads the tables."""
    spec: Any = importlib.util.spec_from_file_location("overview", HERE / "overview.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figures() -> dict[str, dict[str, float]]:
    """Return the drawn figures: memory in GiB, and seconds."""
    read = overview()
    rows = read.tables(SECTION)
    told = r"(\d+) GiB of float32.*?limited to (\d+) GiB"
    data, limit = re.search(told, read.text_of(SECTION), re.S).groups()
    total, quartiles = (
        rows["to_gpu(x).sum()`, 2 workers"],
        rows["quantile(to_gpu(x), q)`, 2 workers"],
    )
    return {
        "memory": {
            "the data": float(data),
            "the limit": float(limit),
            "in use": read.number(quartiles[-1].removesuffix(" GiB")),
        },
        "seconds": {
            "x.sum(), one read": read.number(total[1]),
            "quartiles, two reads": read.number(quartiles[1]),
        },
    }


def draw(picture: Path) -> dict[str, dict[str, float]]:
    """Draw the picture, and return the drawn figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    read, found = overview(), figures()
    titles = {"memory": "Memory of the GPU, GiB", "seconds": "Seconds"}
    figure, both = pyplot.subplots(1, 2, figsize=(8, 1.9), layout="constrained")
    for axes, (name, title) in zip(both, titles.items(), strict=True):
        colours = [read.OTHERS] * (len(found[name]) - 1) + [read.OURS]
        read.draw_bars(axes, found[name], title, colours, "{:.3g}")
    figure.savefig(picture, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE)
    draw(parser.parse_args(arguments).output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
