"""Pictures of what ``strategies.py`` has measured, as the papers draw them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from benchmarks.selection import ADVERSARIAL_PAIRS, ALABI_PAIRS, BELIAKOV, DEFAULT
from strategy_tables import Results, k_spots

# Okabe & Ito's colours, which all kinds of colour vision tell apart, with a darker one for their
# yellow; and a marker each. A contender has the same in every picture. The default is black and
# thick.
STYLES = {
    DEFAULT: ("#000000", "o"),
    "sort&choose": ("#999999", "s"),
    "Kelley": ("#0072B2", "^"),
    "bisection": ("#56B4E9", "v"),
    "Brent, minimum": ("#882255", "D"),
    "Brent, root": ("#E69F00", "<"),
    "quickselect": ("#CC79A7", "P"),
    "bucket": ("#D55E00", "X"),
    "radix 4": ("#56B4E9", ">"),
    "radix 8": ("#009E73", "h"),
    "radix 11": ("#882255", "*"),
    "randomized": ("#CC79A7", "p"),
    "`np.partition`": ("#E69F00", "d"),
    "`torch.kthvalue`": ("#E69F00", "d"),
}
OF_BELIAKOV = (
    "sort&choose",
    "Kelley",
    "bisection",
    "Brent, minimum",
    "Brent, root",
    "quickselect",
    "radix 8",
    DEFAULT,
)
OF_ALABI = (
    "sort&choose",
    "Kelley",
    "bucket",
    "radix 4",
    "radix 8",
    "radix 11",
    "randomized",
    "`np.partition`",
    "`torch.kthvalue`",
    DEFAULT,
)
OF_ADVERSARIAL = tuple(name for name in OF_ALABI if not name.startswith("`") or name == DEFAULT)
WIDTH = 4.2  # inches of a panel
Drawing = Callable[[Any], None]


def draw(results: Results, folder: Path) -> Iterator[Path]:
    """The pictures of all tables that were measured."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "beliakov": beliakov(results),
        "alabi": alabi(results),
        "k": by_k(results),
        "adversarial": adversarial(results),
    }
    for name, panels in pictures.items():
        if panels:
            yield saved(folder / f"strategies_{name}.png", panels)


def saved(path: Path, panels: Sequence[Drawing], legend_columns: int | None = None) -> Path:
    """Panels side by side, at most three in a row, with one legend below all."""
    from matplotlib import pyplot
    from PIL import Image  # which matplotlib needs

    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(max(WIDTH * columns, 6), 3.6 * rows + 0.8), squeeze=False
    )
    cells = grid.ravel()
    for cell in cells[len(panels) :]:
        cell.set_axis_off()
    for cell, panel in zip(cells, panels, strict=False):
        panel(cell)
    entries = {}
    for cell in cells:
        entries |= dict(zip(*reversed(cell.get_legend_handles_labels()), strict=True))
    wide = legend_columns or 2 + columns
    figure.legend(
        entries.values(), entries.keys(), loc="lower center", ncols=min(len(entries), wide)
    )
    lines = -(-len(entries) // wide)
    figure.tight_layout(rect=(0, 0.24 * lines / figure.get_figheight() + 0.02, 1, 1))
    drawn = BytesIO()
    figure.savefig(drawn, dpi=90)
    pyplot.close(figure)
    # 64 colours take a third of the bytes.
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)
    return path


def label(name: str) -> str:
    return f"{name.strip('`')} (default)" if name == DEFAULT else name.strip("`")


def line(cell: Any, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    colour, marker = STYLES[name]
    is_ours = name == DEFAULT
    cell.plot(
        x,
        y,
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=2.4 if is_ours else 1.2,
        zorder=3 if is_ours else 2,
        label=label(name),
    )


def by_size(
    results: Results, title: str, names: Sequence[str], mean: Callable[[str, int], float | None]
) -> Drawing:
    """A panel of time by size, both logarithmic."""

    def panel(cell: Any) -> None:
        logs = sorted({key[3] for key in results.by_key})
        for name in names:
            points = [(2**log, time) for log in logs if (time := mean(name, log)) is not None]
            if points:
                line(cell, name, *zip(*points, strict=True))
        cell.set_xscale("log", base=2)
        cell.set_yscale("log")
        cell.set_title(title, fontsize=10, loc="left")
        cell.set_xlabel("n")
        cell.set_ylabel("ms")
        cell.grid(alpha=0.3)

    return panel


def beliakov(results: Results) -> list[Drawing]:
    """Figures 2 and 3: the median, mean over the nine distributions."""

    def mean(dtype: str) -> Callable[[str, int], float | None]:
        def of(name: str, log: int) -> float | None:
            times = [results.mean("beliakov", dtype, data, log, name) for data in BELIAKOV]
            known = [time for time in times if time is not None]
            return statistics.mean(known) if len(known) == len(BELIAKOV) else None

        return of

    return [
        by_size(results, f"Median, {dtype}, nine distributions", OF_BELIAKOV, mean(dtype))
        for dtype in ("float32", "float64")
        if results.logs("beliakov", dtype)
    ]


def alabi(results: Results) -> list[Drawing]:
    """Figures 1, 2, 7 and 8: the mean over k."""

    def mean(data: str, dtype: str) -> Callable[[str, int], float | None]:
        return lambda name, log: results.mean("alabi", dtype, data, log, name)

    return [
        by_size(results, f"{data}, {dtype}, mean over k", OF_ALABI, mean(data, dtype))
        for data, dtype in ALABI_PAIRS[:6]
        if results.logs("alabi", dtype)
    ]


def by_k(results: Results) -> list[Drawing]:
    """Figures 5 and 6: time by the rank."""
    return [_by_k(results, data, dtype, log) for (data, dtype), log in k_spots(results)]


def _by_k(results: Results, data: str, dtype: str, log: int) -> Drawing:
    from matplotlib.ticker import LogLocator

    def panel(cell: Any) -> None:
        for name in OF_ALABI:
            records = [r for r in results.of("k", dtype, data, log, name) if r.ms]
            if len(records) > 1:
                records.sort(key=lambda record: record.k)
                times = [statistics.median(record.ms) for record in records]
                line(cell, name, [(record.k + 1) / 2**log for record in records], times)
        cell.set_yscale("log")
        cell.set_title(f"{data}, {dtype}, $2^{{{log}}}$", fontsize=10, loc="left")
        cell.yaxis.set_major_formatter("{x:g}")
        cell.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        cell.yaxis.set_minor_formatter("{x:g}")
        cell.set_xlabel("rank / n")
        cell.set_ylabel("ms")
        cell.grid(alpha=0.3)

    return panel


def adversarial(results: Results) -> list[Drawing]:
    """Figures 9 and 10, at each size: bars."""
    logs = {log for _, dtype in ADVERSARIAL_PAIRS for log in results.logs("adversarial", dtype)}
    return [_bars(results, log) for log in sorted(logs)]


def _bars(results: Results, log: int) -> Drawing:
    def panel(cell: Any) -> None:
        height = 0.8 / len(OF_ADVERSARIAL)
        for i, name in enumerate(OF_ADVERSARIAL):
            times = [
                (place + (i - (len(OF_ADVERSARIAL) - 1) / 2) * height, time)
                for place, (data, dtype) in enumerate(ADVERSARIAL_PAIRS)
                if (time := results.mean("adversarial", dtype, data, log, name)) is not None
            ]
            if times:
                places, widths = zip(*times, strict=True)
                cell.barh(places, widths, height, color=STYLES[name][0], label=label(name))
        names = [f"{data}\n{dtype}" for data, dtype in ADVERSARIAL_PAIRS]
        cell.set_yticks(range(len(names)), names, fontsize=8)
        cell.invert_yaxis()
        cell.set_xscale("log")
        cell.set_xlabel("ms")
        cell.set_title(f"Adversarial vectors, median of $2^{{{log}}}$", fontsize=10, loc="left")
        cell.grid(alpha=0.3, axis="x")

    return panel
