"""Draw the overview picture from the measurements: python docs/overview.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parents[1] / "asv_bench" / "measured"
PICTURE = Path(__file__).parent / "overview.png"
OURS, OTHERS = "tab:blue", "0.7"


def text_of(section: str) -> str:
    """Return the text of a section of the measurements."""
    pages = "".join(path.read_text(encoding="utf-8") for path in sorted(MEASURED.glob("*.md")))
    _, *parts = re.split(r"^#+ (.*)$", pages, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))[section]


def tables(section: str) -> dict[str, list[str]]:
    """Return the rows of a section's tables by their first cell; the first of equal ones."""
    rows: dict[str, list[str]] = {}
    for line in text_of(section).splitlines():
        if line.startswith("|"):
            first, *others = [cell.strip() for cell in line.strip("|").split("|")]
            rows.setdefault(first.strip("`"), others)
    return rows


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def figures() -> dict[str, dict[str, float]]:
    """Return the drawn figures: relative times, reads of each chunk, and gigabytes."""
    times = tables("Quartiles of 1e8 float64")
    loads = tables("One read")
    (peak,) = (row[-1] for name, row in tables("Out of core").items() if name == "quartiles")
    return {
        "times": {
            "dask_gpuselect": number(times["quantile(x, q)"][-1]),
            "da.percentile\n(approximate)": number(times["da.percentile(x, 100 * q)"][-1]),
            "np.quantile\n(all in memory)": number(times["np.quantile(a, q)"][-1]),
            "da.median after rechunk\n(the median alone)": number(
                times["da.median(x.rechunk(-1), axis=0)"][-1]
            ),
        },
        "loads": {
            name: number(loads[row][0])
            for name, row in (
                ("similar chunks", "mixed"),
                ("a trend", "trend of four deviations"),
                ("seasons", "seasons"),
                ("sorted data", "sorted"),
            )
        },
        "gigabytes": {"peak of the process": number(peak) / 1000, "the data": 32.0},
    }


def draw_bars(axes: Any, bars: dict[str, float], title: str, colours: list[str], form: str) -> None:
    """Draw one panel: a bar for each name, with its number."""
    drawn = axes.barh(list(bars), list(bars.values()), color=colours, height=0.62)
    axes.bar_label(drawn, [form.format(value) for value in bars.values()], padding=4)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlim(0, 1.25 * max(bars.values()))
    axes.set_xticks([])
    axes.tick_params(left=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def draw(picture: Path) -> dict[str, dict[str, float]]:
    """Draw the picture, and return the drawn figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found, seconds = figures(), tables("Quartiles of 1e8 float64")["quantile(x, q)"][3]
    panels: list[tuple[str, str, str, int]] = [
        ("times", f"Time of three quartiles (1× is {seconds} s)", "{:.3g}×", 1),
        ("loads", "Times that each chunk is read", "{:.3g}", 4),
        ("gigabytes", "Memory, GB", "{:.3g}", 1),
    ]
    figure, all_axes = pyplot.subplots(
        1, 3, figsize=(9.6, 2.5), width_ratios=(1.2, 1, 0.9), layout="constrained"
    )
    figure.get_layout_engine().set(wspace=0.05)  # type: ignore[union-attr, call-arg]
    for axes, (name, title, form, n_ours) in zip(all_axes, panels, strict=True):
        n_others = len(found[name]) - n_ours
        draw_bars(axes, found[name], title, [OURS] * n_ours + [OTHERS] * n_others, form)
    loads = all_axes[1]
    loads.axvline(2, color="tab:red", linewidth=1)
    loads.set_xlim(0, 2.6)
    loads.text(2.05, 0.5, "limit", color="tab:red", va="center", fontsize=9)
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
