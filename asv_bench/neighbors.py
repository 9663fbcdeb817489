"""Nearest neighbours beside scikit-learn's brute force, or torch's and cuVS's on a GPU; prints
Markdown.

    python asv_bench/neighbors.py           NumPy rows, plain and in 10 chunks
    python asv_bench/neighbors.py --gpu     CuPy rows, on one device

Times are taken as ``compare.py`` takes them, and answers checked: distances must be the same but
for rounding, else the program ends with 1. How many neighbours are wrong, or differ, is printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import dask
import numpy as np
from benchmarks.common import Floats
from benchmarks.neighbors import CONTENDERS, normal_rows, ours_plain, scikit_learns
from compare import Runs, WrongAnswerError, machine, ratio, rounded, say, table, take_turns

from dask_gpuselect.neighbors import kneighbors

THEIRS = "scikit-learn"
Contender = Callable[[Any, Any, int], tuple[Any, Any]]


def contest(
    contenders: Mapping[str, Contender],
    rows: Any,
    queries: Any,
    k: int,
    repeat: int,
    to_host: Callable[[Any], Any] = np.asarray,
) -> Runs:
    """The runs of all, checked."""
    for call in contenders.values():
        call(rows[: max(k, 1000)], queries[:10], k)  # no time has a compilation
    what = f"{len(rows):,} x {rows.shape[1]}, {len(queries):,} queries, k = {k}"
    calls = {
        name: lambda call=call: call(rows, queries, k)  # type: ignore[misc]
        for name, call in contenders.items()
    }
    runs = take_turns(calls, repeat, what)
    first, *others = (tuple(map(to_host, of_one[-1].result)) for of_one in runs.values())
    for name, (distances, _) in zip(list(runs)[1:], others, strict=True):
        tolerance = 1e-2 if distances.dtype == np.float32 else 1e-6
        if not np.allclose(distances, first[0], rtol=tolerance, atol=tolerance):
            raise WrongAnswerError(f"{name} has other distances than {next(iter(runs))}")
    return runs


def cells(runs: Runs, base: str) -> Iterator[str]:
    """The seconds of each, and the ratios of the others to the base."""
    for of_one in runs.values():
        yield rounded(statistics.median(run.seconds for run in of_one))
    for name in runs:
        if name != base:
            yield rounded(ratio(runs, base, name))


def head(names: Sequence[str], base: str) -> list[str]:
    others = [f"{base} / {name}" for name in names if name != base]
    return [*(f"{name}, s" for name in names), *others]


# --- On a CPU


def on_cpu(arguments: argparse.Namespace) -> None:
    say(machine("scikit-learn"))
    print(f"{arguments.queries:,} queries of normal float64, medians of {arguments.repeat}\n")
    lines = []
    for n in arguments.rows:
        for p in arguments.features:
            rows, queries = normal_rows(n, arguments.queries, p)
            for k in arguments.k:
                runs = contest(CONTENDERS, rows, queries, k, arguments.repeat)
                lines.append([f"{n:,}", str(p), str(k), *cells(runs, THEIRS)])
    say(table(["rows", "features", "k", *head(list(CONTENDERS), THEIRS)], lines))

    n, p, k = min(arguments.rows), 20, min(arguments.k)
    print(f"{n:,} rows of {p} features, k = {k}\n")
    lines = []
    for n_queries in arguments.many:
        rows, queries = normal_rows(n, n_queries, p)
        runs = contest(CONTENDERS, rows, queries, k, arguments.repeat)
        lines.append([f"{n_queries:,}", *cells(runs, THEIRS)])
    say(table(["queries", *head(list(CONTENDERS), THEIRS)], lines))

    print("Neighbours that are not the nearest, of rows about a point far from the origin\n")
    lines = [list(far_from_the_origin(n, arguments.queries, k, shift)) for shift in (0, 1e6, 1e8)]
    say(table(["every feature about", "k", "scikit-learn, wrong", "dask_gpuselect, wrong"], lines))


def far_from_the_origin(n: int, n_queries: int, k: int, shift: float) -> Iterator[str]:
    """Distances by differences tell whether a row should have been another's neighbour."""
    rows, queries = (a + shift for a in normal_rows(n, n_queries, 20))
    queries = queries[: min(200, n_queries)]
    yield from (f"{shift:g}", str(k))
    squared = np.zeros((len(queries), n))
    for x, q in zip(rows.T, queries.T, strict=True):
        squared += (x - q[:, None]) ** 2
    last = np.partition(squared, k - 1, axis=1)[:, k - 1 : k]
    for call in (scikit_learns, ours_plain):
        _, indices = call(rows, queries, k)
        wrong = np.take_along_axis(squared, indices, 1) > last
        yield f"{wrong.mean():.2%}"


# --- On a GPU


def gpu_contenders() -> Mapping[str, Contender]:
    """Those that are installed. All end with what the host waits for."""
    results: dict[str, Contender] = {
        "dask_gpuselect": ours_on_gpu,
        "dask_gpuselect, tiles of 64 MiB": ours_by_few,
    }
    if find_spec("torch"):
        results |= {"torch, float64": torch_float64, "torch, float32": torch_float32}
    if find_spec("cuvs"):
        results["cuVS, float32"] = cuvs_float32
    return results


def ours_on_gpu(rows: Any, queries: Any, k: int) -> tuple[Any, Any]:
    return waited_for(kneighbors(rows, queries, k))


def ours_by_few(rows: Any, queries: Any, k: int) -> tuple[Any, Any]:
    with dask.config.set({"dask_gpuselect.distance-limit": "64 MiB"}):
        return ours_on_gpu(rows, queries, k)


def waited_for(answer: tuple[Any, Any]) -> tuple[Any, Any]:
    import cupy

    cupy.cuda.get_current_stream().synchronize()
    return answer


def torch_float64(rows: Any, queries: Any, k: int) -> tuple[Any, Any]:
    import cupy
    import torch

    x, q = (torch.as_tensor(a, device="cuda") for a in (rows, queries))
    distances, indices = torch.cdist(q, x).topk(k, largest=False)
    torch.cuda.synchronize()
    return cupy.asarray(distances), cupy.asarray(indices)


def torch_float32(rows: Any, queries: Any, k: int) -> tuple[Any, Any]:
    return torch_float64(rows.astype("f4"), queries.astype("f4"), k)


def cuvs_float32(rows: Any, queries: Any, k: int) -> tuple[Any, Any]:
    import cupy
    from cuvs.neighbors import brute_force

    index = brute_force.build(rows.astype("f4"), metric="euclidean")
    distances, indices = brute_force.search(index, queries.astype("f4"), k)
    return waited_for((cupy.asarray(distances), cupy.asarray(indices)))


def on_gpu(arguments: argparse.Namespace) -> None:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    print(f"{properties['name'].decode()}, CuPy {cupy.__version__}\n")
    contenders = gpu_contenders()
    print(f"{arguments.queries:,} queries of normal float64, medians of {arguments.repeat}\n")
    lines, differ = [], []
    for n in arguments.rows:
        for p in arguments.features:
            rows, queries = map(cupy.asarray, normal_rows(n, arguments.queries, p))
            for k in arguments.k:
                runs = contest(contenders, rows, queries, k, arguments.repeat, cupy.asnumpy)
                case = [f"{n:,}", str(p), str(k)]
                lines.append([*case, *cells(runs, "dask_gpuselect")])
                differ.append([*case, *differing(runs, cupy.asnumpy)])
                cupy.get_default_memory_pool().free_all_blocks()
    say(table(["rows", "features", "k", *head(list(contenders), "dask_gpuselect")], lines))
    print("Neighbours that dask_gpuselect does not find\n")
    say(table(["rows", "features", "k", *list(contenders)[1:]], differ))


def differing(runs: Runs, to_host: Callable[[Any], Floats]) -> Iterator[str]:
    ours, *others = (to_host(of_one[-1].result[1]) for of_one in runs.values())
    for indices in others:
        yield f"{(indices != ours).mean():.2%}"


# --- The program


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--gpu", action="store_true", help="on one CUDA device")
    add("--rows", nargs="+", type=int, default=[100_000, 1_000_000], help="1e5 1e6")
    add("--features", nargs="+", type=int, default=[5, 20, 50], help="5 20 50")
    add("--k", nargs="+", type=int, default=[5, 50], help="5 50")
    add("--queries", type=int, default=1000, help="1000")
    add("--many", nargs="+", type=int, default=[1, 10, 100, 10_000], help="1 10 100 10000")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    parsed = parser.parse_args(arguments)
    try:
        (on_gpu if parsed.gpu else on_cpu)(parsed)
    except WrongAnswerError as error:
        print(f"neighbors: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
