"""Mistakes that the matrix must catch: ``python -m tests.matrix.planted``.

Each is planted by itself in a copy of the package, and the short campaign is run on it, in forked
processes that import the copy. The tables of the matrix are extended until it catches all of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
from importlib import import_module
from multiprocessing import connection
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "dask_gpuselect"


class Mistake(NamedTuple):
    """A mistake: what goes wrong, in which file, and the text that is replaced there, which is
    there once."""

    name: str
    path: str
    right: str
    wrong: str


ROWS = {
    "elements that equal the end of a bracket are not counted up to it": (
        "kernels/reference/selection.py",
        'for side in ("left", "right"))\n    return to_host(below)',
        'for side in ("left", "left"))\n    return to_host(below)',
    ),
    "the last cell of a bracket is not gathered": (
        "maths/cuts.py",
        'side="left") + 1, -1)',
        'side="left"), -1)',
    ),
    "the NaN of the first chunk alone are counted": (
        "maths/cuts.py",
        "merged = {name: sum_of(each) for name, each in columns.items() if each[0] is not None}",
        "merged = {name: sum_of(each) for name, each in columns.items() if each[0] is not None}\n"
        '        merged["n_missing"] = parts[0].n_missing',
    ),
    "ties that the first load has counted are not candidates": (
        "maths/cached.py",
        "elements = np.concatenate([elements, np.repeat(cached.ends, times)])",
        "elements = elements",
    ),
    "where= is ignored beside nodata=": (
        "engine/companions.py",
        "        every = every & each\n    more",
        "        every = each\n    more",
    ),
    "nodata=NaN leaves nothing out": (
        "engine/companions.py",
        "is_other = values == values if value != value else values != value",
        "is_other = values != value",
    ),
    "nan-variants do not fill lanes of nothing but NaN": (
        "quantiles/questions.py",
        "(order.n_valid == 0) & (self.skips_missing | (order.n_missing == 0))",
        "(order.n_valid == 0) & (order.n_missing == 0)",
    ),
    "a group of neighbouring elements loses the last one": (
        "engine/groups.py",
        "slice(int(places[0]), int(places[-1]) + 1)",
        "slice(int(places[0]), int(places[-1]))",
    ),
    "groups that differ between lanes ignore masks": (
        "engine/groups.py",
        "keeps = ~is_other if chunk.keeps is None else chunk.keeps & ~is_other",
        "keeps = ~is_other",
    ),
    "the cuts of the last chunk are lost": (
        "maths/tables.py",
        "columns = {name: [getattr(part, name) for part in parts] for name in names}",
        "columns = {name: [getattr(part, name) for part in parts[:-1]] for name in names}",
    ),
    "NaT durations are counted": (
        "groups/functions.py",
        "takes = values == values",
        'takes = (values == values) | (dtype.kind == "m")',
    ),
    "counts along an axis are those of the first chunk": (
        "groups/functions.py",
        "return np.asarray(sum(counts[1:], counts[0]), np.int64)",
        "return np.asarray(counts[0], np.int64)",
    ),
    "keepdims is dropped": (
        "engine/answers.py",
        "elif self.keepdims or self._group_label ==",
        "elif self._group_label ==",
    ),
    "the axis of groups comes first": (
        "engine/answers.py",
        "before = self.axes[0]  # axes before it are not reduced",
        "before = 0",
    ),
    "a chunk that changes between two passes is not named": (
        "engine/marks.py",
        "    if len(differs):\n",
        "    if len(differs) > 1:\n",
    ),
    "fingerprints ignore the order of elements": (
        "engine/marks.py",
        "else begun_fingerprint(c, ordered=ordered) for c",
        "else begun_fingerprint(c, ordered=False) for c",
    ),
    "a second load with more elements below an end is taken": (
        "maths/expected.py",
        "differs = (counts < at_least) | (counts > at_most)",
        "differs = counts < at_least",
    ),
    "interpolation is from the lower neighbour alone, in other last bits": (
        "maths/interpolation.py",
        "is_low = weight < 0.5",
        "is_low = weight < 1.5",
    ),
    "large integers are interpolated as floats": (
        "maths/interpolation.py",
        'if lower.dtype.kind in "iu" and lower.dtype.itemsize == 8:',
        'if lower.dtype.kind in "i" and lower.dtype.itemsize == 8:',
    ),
    "one NaN in a lane is overlooked": (
        "quantiles/questions.py",
        "is_missing |= order.n_missing > 0",
        "is_missing |= order.n_missing > 1",
    ),
    "one NaN of all elements is overlooked": (
        "quantiles/questions.py",
        "if n_valid and (self.skips_missing or not n_missing):",
        "if n_valid and (self.skips_missing or n_missing < 2):",
    ),
    "notches are too wide": ("maths/boxes.py", "NOTCH = 1.57", "NOTCH = 1.58"),
    "the deviation of boxes has n - 1 degrees of freedom": (
        "maths/moments.py",
        "rounded_root(variance, n * n << DIGIT * SQUARE_POINT),",
        "rounded_root(variance, n * max(n - 1, 1) << DIGIT * SQUARE_POINT),",
    ),
    "the moments of the last chunk are lost": (
        "maths/moments.py",
        "map(sum_of, zip(*(part.parts() for part in parts), strict=True))",
        "map(sum_of, zip(*(part.parts() for part in [*parts][: max(1, len(parts) - 1)])))",
    ),
    "tails of lanes with NaN lose their largest element": (
        "maths/tails.py",
        "beyond = np.maximum(n_valid - width, 0)[:, None]",
        "beyond = np.maximum(n_valid - width - 1, 0)[:, None]",
    ),
    "brackets of lanes in parts end one rank too early": (
        "maths/lane_cuts.py",
        "search(upto, upper[rows], last, upto=True)",
        "search(upto, upper[rows], last, upto=False)",
    ),
    "sums of weights are compared before they are rounded": (
        "maths/exact_sums.py",
        "share = (share + half - 1 + (share >> last & 1)) >> last << last",
        "share = share >> last << last",
    ),
    "masked elements weigh": (
        "kernels/reference/weighing.py",
        "        values, weights = values[keeps], weights[keeps]\n    weights = as_weights",
        "        values, weights = values, weights\n    weights = as_weights",
    ),
    "NaN that weigh nothing are missing": (
        "kernels/reference/weighing.py",
        "n_missing = n_true(is_missing & takes)",
        "n_missing = n_true(is_missing)",
    ),
    "a call computes its array": (
        "engine/asking.py",
        "    askings = [by_group(each) for each in askings]\n",
        "    askings = [by_group(each) for each in askings]\n"
        "    [each.array.compute() for each in askings if hasattr(each.array, 'compute')]\n",
    ),
    "every load computes the medians of groups again": (
        "robust/questions.py",
        "median = computed_once(ask(x, self.median, True))",
        "median = ask(x, question.median, True)",
    ),
    "a chunk is copied four times": (
        "kernels/registry.py",
        "            self._made[make] = ",
        "            whole = getattr(self.chunk, 'values', self.chunk)\n"
        "            self.copies = [whole.copy() for _ in range(6)]\n"
        "            self._made[make] = ",
    ),
    "the compiled tally gathers the lower end of a cell too": (
        "kernels/cpu/spans.py",
        "marks[k] |= ((v > low) | is_first)",
        "marks[k] |= ((v >= low) | is_first)",
    ),
    "places are counted from the begin of each chunk": (
        "sorting/graph.py",
        "columns.append(ordering.places(dealt, table.offsets[place]))",
        "columns.append(ordering.places(dealt, 0))",
    ),
    "what goes along with a key stays where it is in its chunk": (
        "sorting/graph.py",
        "else [_taken(v, dealt.order) for v in values]",
        "else list(values)",
    ),
    "the least and the largest element are no points unless every chunk has them": (
        "distribution/empirical.py",
        "is_known = is_known & (is_own | (at_most[first] == at_least[behind]))",
        "is_known = is_known & is_own",
    ),
    "bins have their left edge, whatever is asked": (
        "kernels/bins.py",
        'side = "left" if right else "right"',
        'side = "right"',
    ),
    "bins lack their last edge": (
        "sorting/binning.py",
        "np.arange(n_bins + 1) / n_bins, axis",
        "np.arange(n_bins + 1) / (n_bins + 1), axis",
    ),
    "moving windows are one too short": (
        "windows/functions.py",
        "reach = Halo(size - 1 - after + earlier,",
        "reach = Halo(max(size - 2 - after, 0) + earlier,",
    ),
    "even windows that are centred reach too far behind": (
        "windows/functions.py",
        "after = (size - 1) // 2 if is_centred else 0",
        "after = size // 2 if is_centred else 0",
    ),
    "windows need one element less than min_periods": (
        "windows/questions.py",
        "is_few = n_valid < max(self.least, 1)",
        "is_few = n_valid < max(self.least - 1, 1)",
    ),
    "the mask of a chunk around is ignored": (
        "engine/companions.py",
        "dtype=bool) if array is None else array",
        "dtype=bool) if array is None or array is not packed[0].keeps else array",
    ),
    "elements beyond the ends take part in windows": (
        "kernels/reference/windows.py",
        "keeps = _widened(values, inner, outside, fill is not None)",
        "keeps = _widened(values, inner, outside, True)",
    ),
    "the last chunk reflects one element too few": (
        "engine/halos.py",
        "return np.minimum(turned, 2 * n - 1 - turned)",
        "return np.minimum(turned, np.maximum(2 * n - 2 - turned, 0))",
    ),
    "the steps of windows begin anew in each chunk": (
        "engine/halos.py",
        "first = -(-start // reach.step) * reach.step",
        "first = start",
    ),
    "NaN in windows are valid elements": (
        "kernels/reference/windows.py",
        "return n_kept if is_missing is None else n_kept - n_missing, n_missing",
        "return n_kept, n_missing",
    ),
    "the origin of a filter has the other sign": (
        "windows/filters.py",
        "before = n // 2 + shift",
        "before = n // 2 - shift",
    ),
    "ranks of percentile filters are those of one element less": (
        "windows/filters.py",
        "n * rank / 100.0",
        "(n - 1) * rank / 100.0",
    ),
    "networks leave the last window of a row as it is": (
        "kernels/cpu/window_networks.py",
        "n = shape[-1] - first - n_behind\n",
        "n = shape[-1] - first - n_behind - 1\n",
    ),
    "histograms of columns keep an element that leaves them": (
        "kernels/cpu/window_columns.py",
        "n_valid[x] += by",
        "n_valid[x] += max(by, 0)",
    ),
    "a window that moves keeps what it leaves": (
        "kernels/cpu/window_blocks.py",
        "for i in range(leaving.size):\n                    rank",
        "for i in range(1, leaving.size):\n                    rank",
    ),
    "the kernel of blocks of windows ignores masks": (
        "kernels/cpu/windows.py",
        "np.where(keeps, keys, ~keys.dtype.type(0))",
        "keys",
    ),
    "networks of windows ignore masks": (
        "kernels/cpu/windows.py",
        "np.where(keeps, values, own.type(np.nan))",
        "values",
    ),
    "trimmed means of lanes are corrected at one end alone": (
        "robust/trimmed.py",
        "cut_off, np.tile(n_cut, 2))",
        "cut_off, np.concatenate([n_cut, 0 * n_cut]))",
    ),
    "a trimmed mean lacks one of the elements that equal its cut": (
        "robust/trimmed.py",
        "sum_of_ranks(brackets, tally, n_cut, n - n_cut, ",
        "sum_of_ranks(brackets, tally, n_cut, n - n_cut - 1, ",
    ),
    "what lies between the cuts of a trimmed mean is not summed": (
        "robust/trimmed.py",
        "between = ~brackets.wanted",
        "between = brackets.wanted & ~brackets.wanted",
    ),
    "what a chunk has cached answers whatever is asked": (
        "maths/cached.py",
        "return not ((first < last) | needed)[is_left_out].any()",
        "return True",
    ),
    "threads that share an array lose its last element": (
        "engine/now.py",
        "pieces = np.array_split(flat, max(",
        "pieces = np.array_split(flat[: -1 if flat.size > 300 else None], max(",
    ),
}
"""The mistakes: name -> (path, right, wrong)."""
MISTAKES = tuple(Mistake(name, *row) for name, row in ROWS.items())


CAUGHT = 9
"""How a process ends that has caught a mistake."""
HEAVY = ("dask.array", "numba", "pandas", "pytest", "scipy.special")
"""Packages that every process needs, imported once."""


def _check(copy: str, first: int, step: int) -> None:
    """Check every so many parts of the short campaign on a copy of the package."""
    sys.path.insert(0, copy)
    from tests.matrix.campaign import PARTS, short_campaign

    assert Path(sys.modules[PACKAGE].__path__[0]).parent == Path(copy)
    if any(True for part in range(first, PARTS, step) for _ in short_campaign(part)):
        os._exit(CAUGHT)


def planted(mistake: Mistake, copy: Path) -> bool:
    """Plant a mistake in a copy of the package, and return whether it is caught."""
    path = copy / PACKAGE / mistake.path
    text, times = path.read_text(), path.stat()
    if text.count(mistake.right) != 1:
        raise SystemExit(f"{mistake.path} has the text of {mistake.name!r} not once")
    path.write_text(text.replace(mistake.right, mistake.wrong))
    fork = multiprocessing.get_context("fork")
    n = os.cpu_count() or 1
    some = [fork.Process(target=_check, args=(str(copy), i, n)) for i in range(n)]
    try:
        for process in some:
            process.start()
        running = {process.sentinel: process for process in some}
        while running:
            for sentinel in connection.wait(running):
                process = running.pop(sentinel)  # type: ignore[call-overload]
                process.join()
                if process.exitcode == CAUGHT or process.exitcode < 0:  # or it has crashed
                    return True
                if process.exitcode:
                    raise SystemExit(f"the campaign itself fails with {mistake.name!r}")
    finally:
        for process in some:
            process.kill()
            process.join()
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of mistakes; all by default")
    names = parser.parse_args().names
    some = [each for each in MISTAKES if not names or any(name in each.name for name in names)]
    missed = []
    for name in HEAVY:
        import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / PACKAGE, Path(folder) / PACKAGE)
        for mistake in some:
            is_caught = planted(mistake, Path(folder))
            print("caught" if is_caught else "MISSED", mistake.name, flush=True)
            missed += [] if is_caught else [mistake.name]
    print(f"{len(some) - len(missed)} of {len(some)} mistakes are caught")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
