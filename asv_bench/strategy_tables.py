"""What ``strategies.py`` has measured, and its tables in Markdown."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.selection import (
    ADVERSARIAL_PAIRS,
    ALABI_PAIRS,
    BELIAKOV,
    DEFAULT,
    OURS,
    OUTLIERS,
)
from compare import rounded, table

LARGE = 22  # from 2**LARGE elements on the default is to be the fastest


@dataclass
class Record:
    """Calls of one contender for one k.

    Parameters
    ----------
    table, dtype, data, name : str
        `name` is the contender's.
    log : int
        Of the number of elements, to base 2.
    k : int
        From 0, the smallest.
    ms : list of float
        Of each timed call.
    rounds, reads, gathered : number, optional
        See `search.Selected`.
    note : str
        Why there is no time.
    """

    table: str
    dtype: str
    data: str
    log: int
    name: str
    k: int
    ms: list[float] = field(default_factory=list)
    rounds: int | None = None
    reads: float | None = None
    gathered: int | None = None
    note: str = ""


Spot = tuple[str, str, str, int]  # table, dtype, data, log
Key = tuple[str, str, str, int, str]  # and name


class Results:
    """Records by table, dtype, data, logarithm of the size, and contender."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.by_key: dict[Key, list[Record]] = defaultdict(list)
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        key = (record.table, record.dtype, record.data, record.log, record.name)
        self.by_key[key].append(record)

    def __iter__(self) -> Iterator[Record]:
        return (record for records in self.by_key.values() for record in records)

    def times(self, *key: Any) -> list[float]:
        """Of each k the median; of a single k all, if it stands for every k."""
        return [statistics.median(record.ms) for record in self.of(*key) if record.ms]

    def of(self, *key: Any) -> list[Record]:
        return self.by_key.get(key, [])

    def note(self, *key: Any) -> str:
        return next((record.note for record in self.of(*key) if record.note), "")

    def mean(self, *key: Any) -> float | None:
        """Milliseconds over all k; None if it was not measured."""
        times = self.times(*key)
        return None if not times or self.note(*key) else statistics.mean(times)

    def logs(self, name: str, dtype: str) -> list[int]:
        return sorted({key[3] for key in self.by_key if key[:2] == (name, dtype)})

    def names(self, name: str) -> list[str]:
        return list(dict.fromkeys(key[4] for key in self.by_key if key[0] == name))

    def dtypes(self, name: str) -> list[str]:
        return list(dict.fromkeys(key[1] for key in self.by_key if key[0] == name))


def ms(value: float | None, note: str = "") -> str:
    return note if value is None else rounded(value)


def with_best(rows: list[tuple[str, list[float | None], list[str]]]) -> list[list[str]]:
    """A line for each contender, with the least of each column in bold."""
    columns = list(zip(*(values for _, values, _ in rows), strict=True))
    least = [min((v for v in column if v is not None), default=None) for column in columns]
    lines = []
    for name, values, notes in rows:
        cells = [ms(value, note) for value, note in zip(values, notes, strict=True)]
        lines.append(
            [
                name,
                *(
                    f"**{cell}**" if value is not None and value == best else cell
                    for cell, value, best in zip(cells, values, least, strict=True)
                ),
            ]
        )
    return lines


def grid(
    results: Results, columns: Mapping[str, Sequence[Spot]], names: Sequence[str]
) -> Iterator[str]:
    """Contenders by columns; a cell is the mean over its spots."""
    rows = []
    for name in names:
        values, notes = [], []
        for spots in columns.values():
            times = [results.mean(*spot, name) for spot in spots]
            known = [time for time in times if time is not None]
            values.append(statistics.mean(known) if known and len(known) == len(times) else None)
            notes.append(next((note for spot in spots if (note := results.note(*spot, name))), ""))
        if any(value is not None for value in values) or any(notes):
            rows.append((name, values, notes))
    return table(["", *columns], with_best(rows))


def sizes(logs: Sequence[int]) -> list[str]:
    return [f"2^{log}" for log in logs]


# --- Beliakov 2011 ------------------------------------------------------------------------------


def beliakov(results: Results) -> Iterator[str]:
    names = results.names("beliakov")
    for number, dtype in (("I", "float32"), ("II", "float64")):
        logs = results.logs("beliakov", dtype)
        if not logs:
            continue

        def spot(data: str, log: int, dtype: str = dtype) -> Spot:
            return "beliakov", dtype, data, log

        nine = {log: [spot(data, log) for data in BELIAKOV] for log in logs}
        at = logs[-1]
        yield f"Table {number}: the median of {dtype}, mean ms over the nine distributions.\n"
        yield from grid(results, {f"2^{log}": nine[log] for log in logs}, names)
        yield f"What each takes at 2^{at} {dtype}, mean over the nine distributions.\n"
        yield from costs(results, nine[at], names)
        yield f"Each distribution, 2^{at} {dtype}, ms.\n"
        yield from grid(results, {data: [spot(data, at)] for data in (*BELIAKOV, *OUTLIERS)}, names)
        yield f"Outliers, 2^{at} {dtype}: rounds, and reads.\n"
        yield from rounds_of(results, {data: spot(data, at) for data in OUTLIERS}, names)


def costs(results: Results, spots: Sequence[Spot], names: Sequence[str]) -> Iterator[str]:
    """Milliseconds, rounds, reads and gathered elements, each a mean over all spots and k."""
    rows = []
    for name in names:
        records = [record for spot in spots for record in results.of(*spot, name) if record.ms]
        if records:
            time = statistics.mean(statistics.median(record.ms) for record in records)
            rows.append((time, [name, rounded(time), *traces(records)]))
    rows.sort(key=lambda row: row[0])
    return table(["", "ms", "rounds", "reads", "gathered"], [row for _, row in rows])


def traces(records: Sequence[Record]) -> list[str]:
    """Mean rounds, reads and gathered elements; nothing of what has no rounds."""
    if records[0].rounds is None:
        return ["", "", ""]
    rounds, reads, gathered = (
        statistics.mean(getattr(record, what) or 0 for record in records)
        for what in ("rounds", "reads", "gathered")
    )
    return [f"{rounds:.1f}", f"{reads:.2f}", f"{gathered:,.0f}"]


def rounds_of(results: Results, columns: Mapping[str, Spot], names: Sequence[str]) -> Iterator[str]:
    """Rounds and reads of each strategy on some data."""
    rows = []
    for name in names:
        items = [results.of(*spot, name) for spot in columns.values()]
        cells = [" ".join(traces(records)[:2]) if records else "" for records in items]
        if any(cell.strip() for cell in cells):
            rows.append([name, *(cell.replace(" ", ", ") for cell in cells)])
    return table(["", *columns], rows)


# --- Alabi et al. 2012 --------------------------------------------------------------------------

RATIOS = (
    ("VII, VIII", "sort&choose", "bucket"),
    ("VII, VIII", "sort&choose", "radix 4"),
    ("IX", "randomized", "bucket"),
    ("dask_gpuselect", "sort&choose", DEFAULT),
)


def alabi(results: Results) -> Iterator[str]:
    names = results.names("alabi")
    for data, dtype in ALABI_PAIRS:
        logs = [
            log
            for log in results.logs("alabi", dtype)
            if any(results.of("alabi", dtype, data, log, name) for name in names)
        ]
        if not logs:
            continue
        yield f"{data}, {dtype}: mean ms over the values of k (least to most).\n"
        yield from table(["", *sizes(logs)], list(spans(results, data, dtype, logs)))
        yield f"What each takes at 2^{logs[-1]}, {data}, {dtype}, mean over the values of k.\n"
        yield from costs(results, [("alabi", dtype, data, logs[-1])], names)
    for number, over, under in RATIOS:
        yield f"Table {number}: {over} / {under}, of the means.\n"
        yield from ratios(results, over, under)


def spans(results: Results, data: str, dtype: str, logs: list[int]) -> Iterator[list[str]]:
    for name in results.names("alabi"):
        cells = []
        for log in logs:
            key = ("alabi", dtype, data, log, name)
            times, note = results.times(*key), results.note(*key)
            if note or not times:
                cells.append(note)
                continue
            if len(times) == 1:  # the same for every k: over the repetitions
                times = results.of(*key)[0].ms
            mean, least, most = map(rounded, (statistics.mean(times), min(times), max(times)))
            cells.append(f"{mean} ({least} to {most})")
        if any(cells):
            yield [name, *cells]


def ratios(results: Results, over: str, under: str) -> Iterator[str]:
    logs = sorted({log for _, dtype in ALABI_PAIRS for log in results.logs("alabi", dtype)})
    rows = []
    for log in logs:
        cells = []
        for data, dtype in ALABI_PAIRS:
            a, b = (results.mean("alabi", dtype, data, log, name) for name in (over, under))
            cells.append(rounded(a / b) if a and b else "")
        rows.append([f"2^{log}", *cells])
    return table(["n", *(f"{data}, {dtype}" for data, dtype in ALABI_PAIRS)], rows)


def by_k(results: Results) -> Iterator[str]:
    names = results.names("k")
    for (data, dtype), log in k_spots(results):
        items = {
            name: {record.k: statistics.median(record.ms) for record in records if record.ms}
            for name in names
            if (records := results.of("k", dtype, data, log, name))
        }
        ranks = sorted({k for times in items.values() for k in times})
        shown = [name for name in names if len(items.get(name, ())) > 1]
        yield f"Figures 5 and 6: {data}, {dtype}, 2^{log}: ms by the rank, smallest first.\n"
        rows = [
            [f"{(k + 1) / 2**log:.3g} n", *(ms(items[name].get(k)) for name in shown)]
            for k in ranks
        ]
        yield from table(["rank", *shown], rows)


def k_spots(results: Results) -> list[tuple[tuple[str, str], int]]:
    return list(
        dict.fromkeys(((key[2], key[1]), key[3]) for key in results.by_key if key[0] == "k")
    )


def adversarial(results: Results) -> Iterator[str]:
    names = results.names("adversarial")
    logs = {log for _, dtype in ADVERSARIAL_PAIRS for log in results.logs("adversarial", dtype)}
    for log in sorted(logs):
        spots: dict[str, Spot] = {
            f"{data}, {dtype}": ("adversarial", dtype, data, log)
            for data, dtype in ADVERSARIAL_PAIRS
        }
        yield f"Adversarial vectors (section 4.2.5), the median of 2^{log}: ms.\n"
        yield from grid(results, {name: [spot] for name, spot in spots.items()}, names)
        yield f"Rounds, and reads, 2^{log}.\n"
        yield from rounds_of(results, spots, names)


# --- Alyafi & Khalid ----------------------------------------------------------------------------


def bitonic(results: Results) -> Iterator[str]:
    columns = {
        f"2^{log} {dtype}": [("bitonic", dtype, "uniform", log)]
        for dtype in results.dtypes("bitonic")
        for log in results.logs("bitonic", dtype)
    }
    yield "Table 2: sub-arrays of a bitonic sort, ms in all.\n"
    yield from grid(results, columns, results.names("bitonic"))


# --- The default --------------------------------------------------------------------------------


def slower_defaults(results: Results) -> list[tuple[float, list[str]]]:
    """Where the default is not the fastest of all, largest ratio first."""
    rows = []
    spots = dict.fromkeys(key[:4] for key in results.by_key if key[3] >= LARGE)
    for spot in spots:
        ours = results.mean(*spot, DEFAULT)
        others = {
            name: time
            for name in results.names(spot[0])
            if name not in OURS and (time := results.mean(*spot, name)) is not None
        }
        if ours is None or not others:
            continue
        best = min(others, key=others.__getitem__)
        if ours > others[best]:
            name, dtype, data, log = spot
            ratio = ours / others[best]
            cells = [name, data, dtype, f"2^{log}", rounded(ours), best, rounded(others[best])]
            rows.append((ratio, [*cells, rounded(ratio)]))
    return sorted(rows, reverse=True)


def compared(results: Results) -> int:
    """How many spots the default was measured at."""
    return len(
        {key[:4] for key in results.by_key if key[3] >= LARGE and results.mean(*key[:4], DEFAULT)}
    )


def defaults(results: Results) -> Iterator[str]:
    slower = slower_defaults(results)
    yield f"Where {DEFAULT} is not the fastest from 2^{LARGE} elements on: {len(slower)} of"
    yield f"{compared(results)} combinations of data, dtype and size.\n"
    head = ["table", "data", "dtype", "n", "ms", "the fastest", "ms", "ratio"]
    yield from table(head, [row for _, row in slower])


TABLES: dict[str, tuple[str, Callable[[Results], Iterator[str]]]] = {
    "beliakov": ("Beliakov 2011, tables I and II", beliakov),
    "adversarial": ("Alabi et al. 2012, adversarial vectors", adversarial),
    "bitonic": ("Alyafi & Khalid, table 2", bitonic),
    "k": ("Alabi et al. 2012, figures 5 and 6", by_k),
    "alabi": ("Alabi et al. 2012, tables II to IX", alabi),
}
"""In the order in which they are measured: those that take longest last."""
