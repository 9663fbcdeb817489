"""What one GPU takes, in units of one read of the same data; every table in one call:

    python asv_bench/gpu.py

One read is `x.sum()`, measured in the same run. Times are medians over the repetitions: of device
events for single kernels, and of the wall between two synchronisations for whole functions, host
work included. Every answer is checked by counting what is below and up to it.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import cupy as cp
import dask
import dask.array as da
import numpy as np

import dask_gpuselect
from dask_gpuselect.kernels.cuda import launch
from dask_gpuselect.kernels.cuda import selection as kernels

Q = [0.25, 0.5, 0.75]


def kinds(n: int) -> dict[str, Callable[[], Any]]:
    """float32 data, by name."""
    rng = cp.random.default_rng(1)

    def normal() -> Any:
        return rng.standard_normal(n, dtype=cp.float32)

    def uniform() -> Any:
        return rng.random(n, dtype=cp.float32)

    def replaced(share: float, value: float) -> Any:
        x = normal()
        x[uniform() < share] = value
        return x

    return {
        "normal": normal,
        "lognormal(σ = 3)": lambda: cp.exp(3 * normal()),
        "constant": lambda: cp.full(n, 3.7, cp.float32),
        "two-valued": lambda: (uniform() < 0.5).astype(cp.float32),
        "integers 0 to 9": lambda: cp.floor(10 * uniform()),
        "sorted": lambda: cp.sort(normal()),
        "periodic": lambda: cp.arange(n, dtype=cp.int32).__and__(63).astype(cp.float32),
        "2^-32 to 2^32": lambda: cp.exp2(64 * uniform() - 32),
        "1 % outliers of 1e20": lambda: replaced(0.01, 1e20),
        "denormal": lambda: (1e4 * uniform()).astype(cp.int32).view(cp.float32),
        "half infinite": lambda: replaced(0.5, cp.inf),
        "all NaN": lambda: cp.full(n, cp.nan, cp.float32),
        "-0.0 and 0.0": lambda: cp.copysign(cp.zeros(n, cp.float32), normal()),
    }


def wall(function: Callable[[], Any], repeat: int) -> float:
    """Milliseconds, host work included."""
    return in_turn({"alone": function}, repeat)["alone"]


def in_turn(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Milliseconds by the wall of calls that take turns: the clock of a device drifts."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeat):
        for name, call in calls.items():
            cp.cuda.Device().synchronize()
            start = time.perf_counter()
            call()
            cp.cuda.Device().synchronize()
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(each) for name, each in times.items()}


@contextmanager
def kernel_times() -> Iterator[dict[str, list[tuple[Any, Any]]]]:
    """Device events around every kernel that is started meanwhile."""
    events: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    prepared = launch._prepared

    def noted(dtype: Any, name: str, *args: Any) -> tuple[Callable[..., None], int]:
        kernel, at_once = prepared(dtype, name, *args)

        def timed(*args: Any, **kwargs: Any) -> None:
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            kernel(*args, **kwargs)
            stop.record()
            events[name.split("_")[0]].append((start, stop))

        return timed, at_once

    launch._prepared = noted
    try:
        yield events
    finally:
        launch._prepared = prepared


def device(function: Callable[[], Any], repeat: int) -> dict[str, float]:
    """Milliseconds of each kernel in a call of the function."""
    function()
    calls = []
    for _ in range(repeat):
        with kernel_times() as events:
            function()
            cp.cuda.Device().synchronize()
        calls.append(
            {
                name: sum(cp.cuda.get_elapsed_time(*pair) for pair in pairs)
                for name, pairs in events.items()
            }
        )
    return {name: statistics.median(call[name] for call in calls) for name in calls[0]}


def check(x: Any) -> None:
    """That the quartiles are the elements of their ranks."""
    result = dask_gpuselect.nanquantile(x, Q, method="lower").get()
    n = int((~cp.isnan(x)).sum())
    for q, value in zip(Q, result, strict=True):
        rank = int(np.floor((n - 1) * q))
        typed = x.dtype.type(value)
        assert int((x < typed).sum()) <= rank < int((x <= typed).sum()), (q, value)


def free() -> None:
    cp.get_default_memory_pool().free_all_blocks()


def plain_arrays(shrink: int, repeat: int) -> None:
    print("\n## Plain arrays, wall\n")
    peers = "| `cupy.median`, reads | `cupy.quantile`, 3 q, reads "
    print(f"| data | read, ms | median, ms | reads | quartiles, ms | reads {peers}|")
    print("|---|---|---|---|---|---|---|---|")
    for name, dtype, log in (("float32", "f4", 30), ("float64", "f8", 29)):
        x = cp.random.default_rng(1).standard_normal(1 << (log - shrink), dtype=dtype)
        check(x)
        read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]
        median = wall(lambda x=x: dask_gpuselect.median(x), repeat)  # type: ignore[misc]
        quartiles = wall(lambda x=x: dask_gpuselect.quantile(x, Q), repeat)  # type: ignore[misc]
        peer = wall(lambda x=x: cp.median(x), 3)  # type: ignore[misc]
        peers3 = wall(lambda x=x: cp.quantile(x, cp.asarray(Q)), 3)  # type: ignore[misc]
        row = f"{read:.3f} | {median:.3f} | {median / read:.2f} | {quartiles:.3f} "
        row += f"| {quartiles / read:.2f} | {peer / read:.1f} | {peers3 / read:.1f}"
        print(f"| {name}, 2^{log - shrink} | {row} |", flush=True)
        del x
        free()


def all_kinds(shrink: int, repeat: int) -> None:
    n = 1 << (28 - shrink)
    print(f"\n## Kernels by device events, and functions by the wall: float32, 2^{28 - shrink}\n")
    print(
        "| data | read, ms | cuts, reads | with choosing | pivots | candidates, 3 brackets, reads "
        "| median, ms | to normal | quartiles, ms | to normal |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    normal: tuple[float, float] | None = None
    for name, make in kinds(n).items():
        x = make()
        if name != "all NaN":
            check(x)
        read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]
        of_cuts = device(lambda x=x: kernels.cuts(x, 4095), repeat)  # type: ignore[misc]
        classify = of_cuts.get("classify", 0.0) / read
        both = classify + of_cuts.get("choose", 0.0) / read
        pivots = len(kernels.cuts(x, 4095).pivots)
        of_quartiles = device(lambda x=x: dask_gpuselect.nanquantile(x, Q), repeat)  # type: ignore[misc]
        tally = of_quartiles["tally"] / read
        median = wall(lambda x=x: dask_gpuselect.nanmedian(x), repeat)  # type: ignore[misc]
        three = wall(lambda x=x: dask_gpuselect.nanquantile(x, Q), repeat)  # type: ignore[misc]
        normal = normal or (median, three)
        print(
            f"| {name} | {read:.3f} | {classify:.2f} | {both:.2f} | {pivots} | {tally:.2f} "
            f"| {median:.3f} | {median / normal[0]:.2f} | {three:.3f} | {three / normal[1]:.2f} |",
            flush=True,
        )
        del x
        free()


STACKS = (
    (24, 4000, 4000),
    (365, 1000, 1000),
    (3650, 300, 300),
    (40_000, 90, 90),
    (100_000, 60, 60),
)


def lanes(shape: tuple[int, ...], kind: str) -> Any:
    """float32 lanes along the first axis."""
    rng = cp.random.default_rng(1)
    x = rng.standard_normal(shape, dtype=cp.float32)
    if kind == "tied":
        x = cp.floor(3 * x)
    elif kind == "lognormal(σ = 3)":
        x = cp.exp(3 * x)
    elif kind == "sorted":
        x.sort(axis=0)
    elif kind == "constant":
        x[...] = 3.7
    elif kind == "10 % NaN":
        x[rng.random(shape, dtype=cp.float32) < 0.1] = cp.nan
    return x


def chunked(x: Any, axis: int, n_chunks: int) -> da.Array:
    parts = [cp.ascontiguousarray(part) for part in cp.array_split(x, n_chunks, axis)]
    lazy = [da.from_array(part, chunks=-1, name=False, asarray=False) for part in parts]
    return da.concatenate(lazy, axis)


def along_axes(shrink: int, repeat: int) -> None:
    print("\n## Along an axis, float32: reads, wall\n")
    print(
        "| shape, data | axis | read, ms | median, ms | median | its kernel | nanmedian "
        "| quartiles | 9 q | quartiles / median | nanmedian / median | 5 chunks, kernel "
        "| `cupy.median` |"
    )
    print("|---" * 13 + "|")
    rows = [(shape, "normal", axis) for shape in STACKS for axis in (0, -1)]
    kinds = ("tied", "lognormal(σ = 3)", "sorted", "constant", "10 % NaN")
    rows += [(shape, kind, 0) for shape in STACKS[1:3] for kind in kinds]
    for shape, kind, axis in rows:
        shape = (shape[0] >> shrink, *shape[1:])
        x = lanes(shape, kind)
        if axis == -1:
            x = cp.ascontiguousarray(cp.moveaxis(x, 0, -1))
        one = x[..., :9] if axis == 0 else x[:9]
        result = dask_gpuselect.nanquantile(one, Q, axis=axis).get()
        assert np.array_equal(result, np.nanquantile(one.get().astype("f8"), Q, axis=axis))
        read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]
        median, nanmedian, three, nine = (
            wall(call, repeat)
            for call in (
                lambda x=x, axis=axis: dask_gpuselect.median(x, axis=axis),
                lambda x=x, axis=axis: dask_gpuselect.nanmedian(x, axis=axis),
                lambda x=x, axis=axis: dask_gpuselect.nanquantile(x, Q, axis=axis),
                lambda x=x, axis=axis: dask_gpuselect.nanquantile(
                    x, np.arange(1, 10) / 10, axis=axis
                ),
            )
        )
        kernel = device(lambda x=x, axis=axis: dask_gpuselect.nanmedian(x, axis=axis), repeat)  # type: ignore[misc]
        lazy = dask_gpuselect.nanmedian(chunked(x, axis, 5), axis=axis)
        in_chunks = device(lambda lazy=lazy: lazy.compute(scheduler="sync"), repeat)  # type: ignore[misc]
        peer = wall(lambda x=x, axis=axis: cp.median(x, axis=axis), 1) if kind == "normal" else 0  # type: ignore[misc]
        reads = (median, sum(kernel.values()), nanmedian, three, nine)
        print(
            f"| {shape}, {kind} | {axis} | {read:.3f} | {median:.3f} "
            + "".join(f"| {time / read:.2f} " for time in reads)
            + f"| {three / nanmedian:.2f} | {nanmedian / median:.2f} "
            + f"| {sum(in_chunks.values()) / read:.2f} | {peer / read:.0f} |",
            flush=True,
        )
        del x, one, lazy
        free()


def columns(shrink: int, repeat: int) -> None:
    """A column of five chunks of which a third may be held: chunks in the graph, and chunks that
    tasks make."""
    shape = (STACKS[2][0] >> shrink, *STACKS[2][1:])
    x = lanes(shape, "normal")
    expected = np.median(x[:, :9].get().astype("f8"), axis=0).astype("f4")
    read = wall(lambda: x.sum(), repeat)
    print(f"\n## A column of 5 chunks, {shape}, of which a third may be held: wall\n")
    print(f"A read of it takes {read:.3f} ms.\n")
    print("| chunks | asked | plan | ms | reads | kernels, ms | kernels, reads |")
    print("|---" * 7 + "|")
    persisted = chunked(x, 0, 5)
    made = persisted.map_blocks(lambda chunk: chunk, dtype=x.dtype, meta=persisted._meta)
    questions = {
        "median": dask_gpuselect.median,
        "quartiles": partial(dask_gpuselect.quantile, q=Q),
    }
    for chunks, column in {"in the graph": persisted, "made by tasks": made}.items():
        for name, ask in questions.items():
            with dask.config.set({"dask_gpuselect.column-limit": x.nbytes // 3}):
                lazy = ask(column, axis=0)
                plan = dask_gpuselect.explain(column, 0.5 if name == "median" else Q, axis=0)
            result = lazy.compute(scheduler="sync")
            assert name != "median" or np.array_equal(result[:9].get(), expected)
            ms = wall(lambda lazy=lazy: lazy.compute(scheduler="sync"), repeat)  # type: ignore[misc]
            kernels = device(lambda lazy=lazy: lazy.compute(scheduler="sync"), repeat)  # type: ignore[misc]
            busy = sum(kernels.values())
            print(
                f"| {chunks} | {name} | {plan.name} | {ms:.2f} | {ms / read:.1f} "
                f"| {busy:.2f} | {busy / read:.1f} |",
                flush=True,
            )


def check_box(x: Any, box: dask_gpuselect.Box) -> None:
    """That quartiles lie where they should, and that whiskers, fliers and sums follow."""
    wide = x.astype(cp.float64, copy=False)
    assert (box.n, box.n_nan) == (x.size, 0)
    assert (box.min, box.max) == (float(wide.min()), float(wide.max()))
    for q, value in zip(Q, (box.q1, box.med, box.q3), strict=True):
        rank = (x.size - 1) * q
        assert int((wide < value).sum()) <= np.ceil(rank), (q, value)
        assert int((wide <= value).sum()) > np.floor(rank), (q, value)
    low, high = box.q1 - 1.5 * box.iqr, box.q3 + 1.5 * box.iqr
    assert box.whislo == float(cp.where(wide >= low, wide, cp.inf).min())
    assert box.whishi == float(cp.where(wide <= high, wide, -cp.inf).max())
    assert (box.n_low, box.n_high) == (int((wide < low).sum()), int((wide > high).sum()))
    result, expected = (box.mean, box.std), (float(wide.mean()), float(wide.std()))
    assert np.allclose(result, expected, rtol=1e-9, atol=1e-9 * box.std), (result, expected)


def quartiles_of(array: Any) -> Any:
    """Computed, whether the array is lazy or not, as `box_of`."""
    result = dask_gpuselect.quantile(array, Q)
    return result.compute(scheduler="sync") if isinstance(result, da.Array) else result


def box_of(array: Any) -> dask_gpuselect.Box:
    return dask_gpuselect.describe_boxplot(array).compute(scheduler="sync")[0]


def box_plots(shrink: int, repeat: int) -> None:
    print("\n## Box plots, wall\n")
    print(
        "| data | array | read, ms | quartiles, ms | reads | `describe_boxplot`, ms | reads "
        "| of quartiles |"
    )
    print("|---|---|---|---|---|---|---|---|")
    kinds = {"normal": lambda x: x, "lognormal(σ = 3)": lambda x: cp.exp(3 * x)}
    # Boxes, and quartiles of chunks, of 2^28 elements at most are read once, after a sample.
    sizes = (("float32", "f4", 30), ("float64", "f8", 29), ("float32", "f4", 28))
    for (kind, shaped), (name, dtype, log) in product(kinds.items(), sizes):
        n = 1 << (log - shrink)
        x = shaped(cp.random.default_rng(1).standard_normal(n, dtype=dtype))
        read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]
        persisted = chunked(x, 0, 8).persist(scheduler="sync")  # else its chunks are like files
        for form, array in (("plain", x), ("8 chunks", persisted)):
            check_box(x, box_of(array))
            quartiles = wall(lambda array=array: quartiles_of(array), repeat)  # type: ignore[misc]
            box = wall(lambda array=array: box_of(array), repeat)  # type: ignore[misc]
            print(
                f"| {name}, 2^{log - shrink}, {kind} | {form} | {read:.3f} "
                f"| {quartiles:.3f} | {quartiles / read:.2f} | {box:.3f} | {box / read:.2f} "
                f"| {box / quartiles:.2f} |",
                flush=True,
            )
        del x, persisted, array
        free()


SHAPES = ((24, 4000, 4000), (365, 1000, 1000), (3650, 300, 300))


def check_lanes(x: Any, axis: int, table: Any) -> None:
    """That boxes of some lanes are those of NumPy's arithmetic."""
    lanes = cp.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    some = np.unique(np.linspace(0, len(lanes) - 1, 200).astype(np.int64))
    host = lanes[cp.asarray(some)].get().astype(np.float64)
    q = np.quantile(host, Q, axis=1)
    for name, expected in zip(("q1", "med", "q3"), q, strict=True):
        assert np.array_equal(getattr(table, name).ravel()[some], expected), name
    reach = 1.5 * (q[2] - q[0])
    n_low = (host < (q[0] - reach)[:, None]).sum(axis=1)
    assert np.array_equal(table.n_low.ravel()[some], n_low)
    assert np.array_equal(table.max.ravel()[some], host.max(axis=1))
    assert np.allclose(table.mean.ravel()[some], host.mean(axis=1), rtol=1e-9, atol=1e-12)
    assert np.allclose(table.std.ravel()[some], host.std(axis=1), rtol=1e-9)
    assert len(table.fliers) == int((table.listed_low + table.listed_high).sum())


def lane_boxes(shrink: int, repeat: int) -> None:
    print("\n## Box plots along an axis, plain float32 arrays, wall\n")
    print(
        "| shape, data | axis | read, ms | quartiles, reads | `describe_boxplot`, ms | reads "
        "| its kernels, reads | medians on the host too, reads | all columns, reads |"
    )
    print("|---" * 9 + "|")
    for shape, kind in product(SHAPES, ("normal", "lognormal(σ = 3)")):
        for axis in (0, -1):
            x = lanes((shape[0] >> shrink, *shape[1:]), kind)
            x = x if axis == 0 else cp.ascontiguousarray(cp.moveaxis(x, 0, -1))
            read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]

            def boxes(x: Any = x, axis: int = axis) -> Any:
                return dask_gpuselect.describe_boxplot(x, axis=axis).tables[0]

            check_lanes(x, axis, boxes())

            def three(x: Any = x, axis: int = axis) -> Any:
                return dask_gpuselect.quantile(x, Q, axis=axis)

            quartiles = wall(three, repeat)
            box = wall(boxes, repeat)
            alone = sum(device(boxes, repeat).values())

            def seen_boxes(boxes: Any = boxes) -> Any:
                return boxes().med

            def every_column(boxes: Any = boxes) -> Any:
                return boxes().__reduce__()

            noted, every = wall(seen_boxes, 3), wall(every_column, 1)
            name = f"({', '.join(map(str, x.shape))}), {kind}"
            times = f"{quartiles / read:.2f} | {box:.2f} | {box / read:.2f} | {alone / read:.2f}"
            looked = f"{noted / read:.1f} | {every / read:.1f}"
            print(f"| {name} | {axis} | {read:.3f} | {times} | {looked} |", flush=True)
            del x, boxes, three, seen_boxes, every_column
            free()


def lane_kernels(shrink: int, repeat: int) -> None:
    print("\n## Kernels of lanes, by device events\n")
    print("| shape, float32 | axis | read, ms | median, ms | reads | boxes, ms | reads |")
    print("|---" * 7 + "|")
    for shape, axis in product(STACKS[:4], (0, -1)):
        x = lanes((shape[0] >> shrink, *shape[1:]), "normal")
        x = x if axis == 0 else cp.ascontiguousarray(cp.moveaxis(x, 0, -1))
        read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]
        cells = [f"({', '.join(map(str, x.shape))})", str(axis), f"{read:.3f}"]
        for call in (
            lambda x=x, axis=axis: dask_gpuselect.median(x, axis=axis),
            lambda x=x, axis=axis: dask_gpuselect.describe_boxplot(x, axis=axis).tables[0],
        ):
            times = device(call, repeat)
            own = sum(times.get(name, 0.0) for name in ("lanes", "long", "boxes", "finish"))
            cells += [f"{own:.3f}", f"{own / read:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        del x, call
        free()


def import_torch() -> Any:
    """PyTorch, or None if there is none, or none that can use the device."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def ranks_off(x: Any, found: Sequence[float]) -> int:
    """How many ranks found quartiles are from between the neighbours of their places, at most."""
    worst = 0
    for q, value in zip(Q, found, strict=True):
        position = (x.size - 1) * q
        below, upto = int((x < value).sum()), int((x <= value).sum())
        worst = max(worst, below - int(np.ceil(position)), int(np.floor(position)) + 1 - upto)
    return worst


def torchs_quartiles(torch: Any, x: Any, tensor: Any, ours: float) -> str:
    """Cells of the table: what PyTorch takes and how far off it is, or what it says instead."""
    q = torch.tensor(Q, dtype=tensor.dtype, device=tensor.device)
    try:
        result = torch.quantile(tensor, q).tolist()
        theirs = wall(lambda: torch.quantile(tensor, q), 3)
    except RuntimeError as error:  # in older versions, of more than 2^24 elements
        return f"{type(error).__name__}: {str(error).splitlines()[0]} | |"
    return f"{theirs:.3f} | {theirs / ours:.1f} | {ranks_off(x, result)}"


def beside_torch(shrink: int, repeat: int) -> None:
    print("\n## Beside PyTorch, wall\n")
    torch = import_torch()
    if torch is None:
        print("Left out: PyTorch is not installed, or finds no device.")
        return
    print(f"PyTorch {torch.__version__}, on the same device memory.\n")
    print(
        "| data | read, ms | median, ms | `torch.median`, ms | of dask_gpuselect | quartiles, ms "
        "| `torch.quantile`, 3 q, ms | of dask_gpuselect | off by ranks |"
    )
    print("|---" * 9 + "|")
    # 2^24 is the most that `torch.quantile` takes in older versions.
    for name, dtype, log in (("float32", "f4", 30), ("float64", "f8", 29), ("float32", "f4", 24)):
        x = cp.random.default_rng(1).standard_normal(1 << (log - shrink), dtype=dtype)
        check(x)
        read = wall(lambda x=x: x.sum(), repeat)  # type: ignore[misc]
        median = wall(lambda x=x: dask_gpuselect.median(x), repeat)  # type: ignore[misc]
        quartiles = wall(lambda x=x: dask_gpuselect.quantile(x, Q), repeat)  # type: ignore[misc]
        lower = float(dask_gpuselect.quantile(x, 0.5, method="lower"))
        free()  # PyTorch has a pool of its own
        tensor = torch.from_dlpack(x)
        assert tensor.data_ptr() == x.data.ptr  # and not a copy
        # Of an even number of elements it is the lower of the two in the middle.
        assert float(torch.median(tensor)) == lower
        theirs = wall(lambda t=tensor: torch.median(t), 3)  # type: ignore[misc]
        print(
            f"| {name}, 2^{log - shrink} | {read:.3f} | {median:.3f} | {theirs:.3f} "
            f"| {theirs / median:.1f} | {quartiles:.3f} "
            f"| {torchs_quartiles(torch, x, tensor, quartiles)} |",
            flush=True,
        )
        del x, tensor
        torch.cuda.empty_cache()
        free()


def small_arrays(shrink: int, repeat: int) -> None:
    print("\n## Small arrays, wall, in turn\n")
    torch = import_torch()
    names = ("median", "quartiles", "`cupy.median`", *(["`torch.median`"] if torch else []))
    print(f"| data, ms | {' | '.join(names)} |\n" + "|---" * (1 + len(names)) + "|")
    sizes = product((("float32", "f4"), ("float64", "f8")), (10, 16, 20, 22, 23, 25))
    for (name, dtype), log in sizes:
        x = cp.random.default_rng(1).standard_normal(1 << (log - shrink), dtype=dtype)
        check(x)
        calls: list[Callable[[], Any]] = [
            lambda x=x: dask_gpuselect.median(x),
            lambda x=x: dask_gpuselect.quantile(x, Q),
            lambda x=x: cp.median(x),
        ]
        if torch:
            tensor = torch.from_dlpack(x)
            calls.append(lambda t=tensor: torch.median(t))
        times = in_turn(dict(zip(names, calls, strict=True)), 7 * repeat)
        result = " | ".join(f"{ms:.3f}" for ms in times.values())
        print(f"| {name}, 2^{log - shrink} | {result} |", flush=True)
        del x, calls
        free()


def held_chunks(shrink: int, repeat: int) -> None:
    print("\n## Chunks that a graph holds on one device, float32, wall, in turn\n")
    print(
        "| data | chunks | read, ms | `x.sum()`, ms | reads | quartiles, ms | reads "
        "| box plot, ms | reads |"
    )
    print("|---" * 9 + "|")
    kinds = {"normal": lambda x: x, "lognormal(σ = 3)": lambda x: cp.exp(3 * x)}
    for (kind, shaped), (log, chunks) in product(kinds.items(), ((30, 8), (29, 64), (28, 8))):
        x = shaped(cp.random.default_rng(1).standard_normal(1 << (log - shrink), dtype="f4"))
        held = chunked(x, 0, chunks)
        check_box(x, box_of(held))
        times = in_turn(
            {
                "read": lambda x=x: x.sum(),
                "sum": lambda held=held: held.sum().compute(scheduler="sync"),
                "quartiles": lambda held=held: quartiles_of(held),
                "box": lambda held=held: box_of(held),
            },
            repeat,
        )
        read = times.pop("read")
        result = " | ".join(f"{ms:.2f} | {ms / read:.1f}" for ms in times.values())
        print(f"| 2^{log - shrink}, {kind} | {chunks} | {read:.3f} | {result} |", flush=True)
        del x, held
        free()


TABLES = {
    "small": small_arrays,
    "plain": plain_arrays,
    "kinds": all_kinds,
    "axes": along_axes,
    "columns": columns,
    "held": held_chunks,
    "boxplot": box_plots,
    "boxes": lane_boxes,
    "lanes_kernels": lane_kernels,
    "torch": beside_torch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--shrink", type=int, default=0, help="halve all sizes so many times")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    arguments = parser.parse_args()
    name = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode()
    print(f"{name}, CuPy {cp.__version__}; medians of {arguments.repeat} repetitions.")
    warnings.simplefilter("ignore", RuntimeWarning)  # of data that is all NaN
    with dask.config.set({"dask_gpuselect.column-limit": "16 GiB"}):
        for name in arguments.tables:
            TABLES[name](arguments.shrink, arguments.repeat)


if __name__ == "__main__":
    main()
